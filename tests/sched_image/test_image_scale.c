/* sched_image/test_image_scale.c - how large an image of 100,000 blocks and 1,000 requests is and
 * how long it takes; and whether somebody added a field that no image has. */
#include "base/unit.h"
#include "sched/sched.h"

#include <quire/image.h>

#include <time.h>

enum { NUM_TRIES = 5, BLOCK_SIZE = 16 };
#ifdef QUIRE_HOSTILE /* where every key has the same few tags */
enum { NUM_BLOCKS = 1000, NUM_REQUESTS = 10, PROMPT = 1500 };
#else
enum { NUM_BLOCKS = 100000, NUM_REQUESTS = 1000, PROMPT = 1500 };
#endif

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static quire_hasher *make_hasher(void)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = QUIRE_HASH_SHA256_CBOR;
    config.block_size = BLOCK_SIZE;
    config.seed = (quire_bytes){"0", 1};
    quire_hasher *hasher;
    assert_int_equal(quire_hasher_create(&config, NULL, &hasher), QUIRE_OK);
    return hasher;
}

static quire_sched_config make_config(quire_hasher *hasher)
{
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = BLOCK_SIZE,
                                                      .num_kv_heads = 8,
                                                      .head_size = 128,
                                                      .dtype = QUIRE_DTYPE_FLOAT16}};
    static quire_cache_config cache;
    cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    c.cache = &cache;
    c.cache->num_blocks = NUM_BLOCKS;
    c.cache->groups = &group;
    c.cache->num_groups = 1;
    c.cache->max_model_len = 4096;
    c.hasher = hasher;
    c.max_num_seqs = NUM_REQUESTS;
    c.max_num_batched_tokens = NUM_REQUESTS * PROMPT;
    c.max_requests = NUM_REQUESTS;
    return c;
}

static void add_requests(quire_sched *sched, uint32_t n)
{
    quire_token prompt[PROMPT];
    for (uint32_t i = 0; i < n; i++) {
        char id[16];
        quire_req req;
        for (uint32_t t = 0; t < PROMPT; t++)
            prompt[t] = (quire_token)(i * 31 + t);
        quire_request_params p = {.size = sizeof(quire_request_params),
                                  .id = {id, (size_t)snprintf(id, sizeof id, "request-%u", i)},
                                  .prompt = prompt,
                                  .num_prompt_tokens = PROMPT};
        assert_int_equal(quire_sched_add(sched, &p, &req), QUIRE_OK);
    }
}

static void time_and_size(void **state)
{
    (void)state;
    quire_hasher *hasher = make_hasher();
    quire_hasher *other = make_hasher();
    quire_sched_config config = make_config(hasher);
    quire_sched *sched;
    assert_int_equal(quire_sched_create(&config, NULL, &sched), QUIRE_OK);
    add_requests(sched, NUM_REQUESTS);
    const quire_step *step;
    assert_int_equal(quire_sched_schedule(sched, &step), QUIRE_OK);
    assert_int_equal(step->num_reqs, NUM_REQUESTS);

    size_t bytes = quire_sched_image_bytes(sched);
    unsigned char *image = malloc(bytes);
    assert_non_null(image);
    config.hasher = other;
    double best_save = 1e9;
    double best_restore = 1e9;
    for (int i = 0; i < NUM_TRIES; i++) {
        double start = now_ms();
        assert_int_equal(quire_sched_save(sched, image, bytes, &bytes), QUIRE_OK);
        double saved = now_ms();
        quire_sched *again;
        assert_int_equal(quire_sched_restore(&config, NULL, image, bytes, &again), QUIRE_OK);
        double restored = now_ms();
        assert_int_equal(quire_sched_get_counts(again).num_running, NUM_REQUESTS);
        quire_sched_destroy(again);
        best_save = saved - start < best_save ? saved - start : best_save;
        best_restore = restored - saved < best_restore ? restored - saved : best_restore;
    }
    printf("%u blocks, %u requests of %u tokens: image %.1f MB, save %.1f ms, restore %.1f ms "
           "(creation and walker included; best of %d)\n",
           NUM_BLOCKS, NUM_REQUESTS, PROMPT, (double)bytes * 1e-6, best_save, best_restore,
           NUM_TRIES);
    free(image);
    quire_sched_destroy(sched);
    quire_hasher_destroy(hasher);
    quire_hasher_destroy(other);
}

/* A structure that has grown has a new field. If decisions depend on it, it belongs into the walk
 * of src/sched/image*.c, and QR_IMAGE_VERSION is raised. Then, and also if they do not, the size
 * here follows. */
static void no_field_was_forgotten(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t is;
        size_t was;
    } SIZES[] = {
        {"quire_sched", sizeof(quire_sched), 4272},
        {"qr_request", sizeof(qr_request), 448},
        {"qr_fences", sizeof(qr_fences), 56},
        {"qr_fenced_row", sizeof(qr_fenced_row), 24},
        {"qr_pace", sizeof(qr_pace), 24},
        {"qr_queues", sizeof(qr_queues), 216},
        {"qr_doomed", sizeof(qr_doomed), 16},
        {"qr_swap", sizeof(qr_swap), 1360},
        {"qr_swap_slot", sizeof(qr_swap_slot), 8},
        {"qr_pins", sizeof(qr_pins), 64},
        {"qr_pin", sizeof(qr_pin), 48},
        {"qr_prefix", sizeof(qr_prefix), 64},
        {"qr_prefix_wait", sizeof(qr_prefix_wait), 40},
        {"qr_waiter", sizeof(qr_waiter), 48},
        {"qr_session_input", sizeof(qr_session_input), 128},
        {"qr_batch", sizeof(qr_batch), 64},
        {"qr_encoder", sizeof(qr_encoder), 224},
        {"qr_encoder_item", sizeof(qr_encoder_item), 32},
        {"qr_kept_set", sizeof(qr_kept_set), 12},
        {"qr_feature", sizeof(qr_feature), 40},
        {"qr_flag_store", sizeof(qr_flag_store), 24},
        {"qr_flag_chain", sizeof(qr_flag_chain), 8},
        {"qr_flag_chunk", sizeof(qr_flag_chunk), 8 + 8 * QR_FLAG_WORDS},
        {"quire_cache", sizeof(quire_cache), 504},
        {"qr_row_state", sizeof(qr_row_state), 8},
        {"qr_group", sizeof(qr_group), 448},
        {"qr_row", sizeof(qr_row), 16},
        {"qr_part", sizeof(qr_part), 20},
        {"quire_pool", sizeof(quire_pool), (324 + 6 * QR_QUEUE_AHEAD + 7) / 8 * 8},
        {"qr_extra_head", sizeof(qr_extra_head), 8},
        {"qr_prompt", sizeof(qr_prompt), 8},
        {"qr_block", sizeof(qr_block), 64},
        {"quire_event", sizeof(quire_event), 88},
    };
    uint32_t num_changed = 0;
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        if (SIZES[i].is == SIZES[i].was)
            continue;
        printf("%s has %zu bytes, had %zu: does an image need the new field?\n", SIZES[i].name,
               SIZES[i].is, SIZES[i].was);
        num_changed++;
    }
    assert_int_equal(num_changed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_and_size),
        cmocka_unit_test(no_field_was_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

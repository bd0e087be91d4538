/* What the scheduler does not take: configs, requests, text beyond its limits; and that nothing has
 * changed then. */
#include "coverage/sched_kit.h"

#include "sched/sched.h"

/* ---- configs --------------------------------------------------------------- */

static sched_kit kit;

static void refuse_config(const quire_sched_config *config, int status)
{
    quire_sched *none = NULL;
    assert_int_equal(quire_sched_bytes(config), 0);
    assert_int_equal(quire_sched_create(config, NULL, &none), status);
    assert_null(none);
}

/* The kit's config with one field changed. */
#define REFUSE(field, value)                                                                       \
    do {                                                                                           \
        quire_cache_config cache = kit.cache;                                                      \
        quire_sched_config config = kit.config;                                                    \
        config.cache = &cache;                                                                     \
        config.field = (value);                                                                    \
        refuse_config(&config, QUIRE_E_CONFIG);                                                    \
    } while (0)

static void configs_out_of_range(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    sched_kit_open(&kit);
    const uint32_t many = 1u << 31;
    REFUSE(max_num_seqs, SCHED_KIT_REQS + 1);
    REFUSE(max_requests, (1u << 24) + 1);
    REFUSE(max_num_batched_tokens, many);
    REFUSE(max_num_scheduled_tokens, many);
    REFUSE(num_spec_tokens, 1025);
    REFUSE(num_lookahead_tokens, many);
    REFUSE(max_batches, 65);
    REFUSE(max_loras, 65537);
    REFUSE(max_request_bytes, 63);
    REFUSE(max_request_bytes, (1u << 20) + 1);
    REFUSE(max_loading, SCHED_KIT_REQS + 1);
    REFUSE(max_ghosts, (1u << 28) + 1);
    REFUSE(max_encoder_items, (1u << 20) + 1);
    REFUSE(encoder_cache_size, many);
    REFUSE(encoder_compute_budget, many);
    REFUSE(max_text_tokens, (UINT64_C(1) << 40) + 1);
    REFUSE(policy, (quire_policy)2);
    REFUSE(profile, (quire_profile)3);
    REFUSE(enable_chunked_prefill, (quire_switch)9);
    REFUSE(log_stats, (quire_switch)9);
    REFUSE(cache->num_blocks, 0);
    REFUSE(cache->hash_block_size, 3);
    REFUSE(hasher, NULL);
    REFUSE(cache->digest_bytes, 32);
    quire_sched_config config = kit.config;
    config.max_requests = config.max_num_seqs = 1u << 20;
    config.max_request_bytes = 1u << 20; /* more features in a step than can be counted */
    refuse_config(&config, QUIRE_E_CONFIG);
    refuse_config(NULL, QUIRE_E_ARGUMENT);
    sched_kit_close(&kit);
}

static void hasher_of_other_blocks(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    sched_kit_open(&kit);
    kit.groups[0].spec.block_size = 2 * SCHED_KIT_BLOCK;
    refuse_config(&kit.config, QUIRE_E_CONFIG);
    kit.config.cache->hash_block_size = SCHED_KIT_BLOCK; /* one group: a hash for each block */
    refuse_config(&kit.config, QUIRE_E_CONFIG);
    sched_kit_close(&kit);
}

static int no_random(void *user, void *out, size_t bytes)
{
    (void)out;
    (void)bytes;
    uint32_t *left = user;
    return (*left)-- == 0;
}

static void without_random_bytes(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    sched_kit_open(&kit);
    quire_sched_config config = kit.config;
    uint32_t left = 0;
    config.hooks = (quire_hooks){.user = &left, .random_bytes = no_random};
    quire_sched *none = NULL;
    assert_int_equal(quire_sched_create(&config, NULL, &none), QUIRE_E_RANDOM);
    config.hooks = (quire_hooks){0};
    left = 0;
    config.cache->hooks = (quire_hooks){.user = &left, .random_bytes = no_random};
    assert_int_equal(quire_sched_create(&config, NULL, &none), QUIRE_E_RANDOM);
    assert_null(none);
    sched_kit_close(&kit);
}

/* ---- requests -------------------------------------------------------------- */

static void refuse_request(const quire_request_params *p, int status)
{
    quire_req req = 77;
    uint32_t pages = kit.sched->texts.store.num_free;
    uint32_t waiting = quire_sched_get_counts(kit.sched).num_waiting;
    assert_int_equal(quire_sched_add(kit.sched, p, &req), status);
    assert_int_equal(req, 77);
    assert_int_equal(kit.sched->texts.store.num_free, pages);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_waiting, waiting);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
}

#define REFUSE_REQUEST(status, ...)                                                                \
    do {                                                                                           \
        quire_request_params p = sched_kit_params(&kit, "a", "aaaa");                              \
        __VA_ARGS__;                                                                               \
        refuse_request(&p, (status));                                                              \
    } while (0)

static void open_for_images(uint32_t request_bytes)
{
    sched_kit_init(&kit, 16);
    kit.config.max_request_bytes = request_bytes;
    kit.config.encoder_cache_size = 8;
    kit.config.encoder_compute_budget = 6;
    sched_kit_open(&kit);
}

static void requests_with_missing_arrays(void **state)
{
    (void)state;
    open_for_images(512);
    quire_mm_input image = {.feature = {{"x", 1}, 0, 4}};
    quire_mm_input nameless = {.feature = {{NULL, 0}, 0, 4}};
    quire_mm_input unnamed = {.feature = {{"x", 0}, 0, 4}};
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.id.data = NULL);
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.id.len = 0);
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.prompt = NULL);
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.num_stop_token_ids = 1);
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.num_mm_inputs = 1);
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.lora_name.len = 1);
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.cache_salt.len = 1);
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.mm_inputs = &nameless; p.num_mm_inputs = 1);
    REFUSE_REQUEST(QUIRE_E_ARGUMENT, p.mm_inputs = &unnamed; p.num_mm_inputs = 1);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.num_prompt_tokens = 0);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.prompt = NULL; p.num_prompt_tokens = 0);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.num_prompt_tokens = 64);
    static const char long_id[257];
    REFUSE_REQUEST(QUIRE_E_RANGE, p.id = ((quire_bytes){long_id, sizeof long_id}));
    quire_request_params p = sched_kit_params(&kit, "a", "aaaa");
    p.mm_inputs = &image;
    p.num_mm_inputs = 1;
    sched_kit_add_params(&kit, &p);
    refuse_request(&p, QUIRE_E_DUPLICATE);
    sched_kit_close(&kit);
}

static void requests_with_too_much(void **state)
{
    (void)state;
    open_for_images(512);
    static quire_token stops[200];
    static const char name[600];
    REFUSE_REQUEST(QUIRE_E_RANGE, p.stop_token_ids = stops; p.num_stop_token_ids = 129);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.lora_name = ((quire_bytes){name, 513}));
    REFUSE_REQUEST(QUIRE_E_RANGE, p.cache_salt = ((quire_bytes){name, 513}));
    REFUSE_REQUEST(QUIRE_E_RANGE, p.lora_name = ((quire_bytes){name, 300});
                   p.cache_salt = ((quire_bytes){name, 300}));
    REFUSE_REQUEST(QUIRE_E_RANGE, p.lora_name = ((quire_bytes){name, 512}); /* one byte more */
                   p.cache_salt = ((quire_bytes){name, 1}));
    sched_kit_close(&kit);
}

static void images_that_do_not_fit(void **state)
{
    (void)state;
    open_for_images(512);
    static const char name[300];
    static quire_token stops[120];
    static const quire_token long_prompt[63];
    quire_mm_input many[16];
    for (uint32_t i = 0; i < COUNT(many); i++)
        many[i] = (quire_mm_input){.feature = {{name, 100}, 3 * i, 3}};
    quire_mm_input far = {.feature = {{"x", 1}, 65, 4}};
    quire_mm_input wide = {.feature = {{"x", 1}, 0, 65}};
    quire_mm_input called = {.feature = {{name, 257}, 0, 4}};
    quire_mm_input large = {.feature = {{"x", 1}, 0, 9}, .num_embeds = 9};
    quire_mm_input dear = {.feature = {{"x", 1}, 0, 9}, .num_embeds = 7};
    REFUSE_REQUEST(QUIRE_E_RANGE, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = many; p.num_mm_inputs = 16);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = many; p.num_mm_inputs = 4);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = many; p.num_mm_inputs = 1; p.stop_token_ids = stops;
                   p.num_stop_token_ids = 120);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = many; p.num_mm_inputs = 1; p.stop_token_ids = stops;
                   p.num_stop_token_ids = 104);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = &far; p.num_mm_inputs = 1);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = &wide; p.num_mm_inputs = 1);
    REFUSE_REQUEST(QUIRE_E_RANGE, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = &called; p.num_mm_inputs = 1);
    REFUSE_REQUEST(QUIRE_E_TOO_LONG, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = &large; p.num_mm_inputs = 1);
    REFUSE_REQUEST(QUIRE_E_TOO_LONG, p.prompt = long_prompt; p.num_prompt_tokens = 63;
                   p.mm_inputs = &dear; p.num_mm_inputs = 1);
    sched_kit_close(&kit);
}

/* The keys of a block have a limit of their own. */
static void keys_that_the_hasher_cannot_take(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    kit.config.max_request_bytes = 1u << 16;
    kit.config.encoder_cache_size = 8;
    kit.config.encoder_compute_budget = 8;
    sched_kit_open(&kit);
    static const char name[20000];
    REFUSE_REQUEST(QUIRE_E_RANGE, p.cache_salt = ((quire_bytes){name, sizeof name}));
    static quire_mm_input many[400]; /* all in the first block */
    for (uint32_t i = 0; i < COUNT(many); i++)
        many[i] = (quire_mm_input){.feature = {{name, 64}, 0, 4}};
    REFUSE_REQUEST(QUIRE_E_RANGE, p.mm_inputs = many; p.num_mm_inputs = 400);
    sched_kit_close(&kit);
}

static void decoder_inputs_begin_at_the_start(void **state)
{
    (void)state;
    sched_kit_init(&kit, 32);
    kit.groups[1] = kit.groups[0];
    kit.groups[1].spec.kind = QUIRE_LAYER_CROSS;
    kit.config.cache->num_groups = 2;
    kit.config.cache->enable_caching = QUIRE_OFF;
    kit.config.is_encoder_decoder = QUIRE_ON;
    kit.config.encoder_cache_size = 8;
    kit.config.encoder_compute_budget = 8;
    sched_kit_open(&kit);
    quire_mm_input sound = {.feature = {{"x", 1}, 1, 4}};
    REFUSE_REQUEST(QUIRE_E_RANGE, p.mm_inputs = &sound; p.num_mm_inputs = 1);
    sound.feature.offset = 0;
    quire_request_params p = sched_kit_params(&kit, "a", "aaaa");
    p.mm_inputs = &sound;
    p.num_mm_inputs = 1;
    sched_kit_add_params(&kit, &p);
    sched_kit_step(&kit);
    assert_int_equal(kit.step->num_reqs, 1);
    assert_int_equal(kit.step->encoder_start[1], 1);
    assert_true(kit.step->blocks[1].count > 0);
    sched_kit_close(&kit);
}

/* Requests that ended and were not told yet keep their place in the lists. */
static void limits_of_requests(void **state)
{
    (void)state;
    for (uint32_t by_client = 0; by_client < 2; by_client++) {
        sched_kit_init(&kit, 32);
        kit.config.include_finished_set = by_client == 1 ? QUIRE_ON : QUIRE_OFF;
        sched_kit_open(&kit);
        const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t i = 0; round < 2 && i < COUNT(names); i++)
                sched_kit_add(&kit, names[i], "aaaa", 8);
            REFUSE_REQUEST(QUIRE_FULL, p.id = ((quire_bytes){"z", 1}));
            uint32_t n = 0;
            assert_int_equal(quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_ABORTED, &n),
                             QUIRE_OK);
            assert_int_equal(n, round < 2 ? SCHED_KIT_REQS : 0);
        }
        sched_kit_schedule(&kit);
        assert_int_equal(kit.step->num_finished, 2 * SCHED_KIT_REQS);
        if (by_client == 1)
            REFUSE_REQUEST(QUIRE_FULL, p.id = ((quire_bytes){"z", 1})); /* the update tells them */
        sched_kit_update(&kit, kit.step->step, NULL);
        assert_int_equal(kit.outputs->num_finished, by_client * 2 * SCHED_KIT_REQS);
        sched_kit_add(&kit, "z", "aaaa", 8);
        sched_kit_close(&kit);
    }
}

#ifndef QUIRE_HOSTILE
static void text_has_a_limit(void **state)
{
    (void)state;
    sched_kit_init(&kit, 1200);
    kit.config.cache->max_model_len = 2048;
    kit.config.max_text_tokens = 1;
    kit.config.max_num_seqs = 1;
    kit.config.max_requests = 4; /* four pages that wait, and two for the one that runs */
    sched_kit_open(&kit);
    static char text[1801];
    memset(text, 'a', 1800);
    sched_kit_add(&kit, "b", text, 8);
    quire_request_params p = sched_kit_params(&kit, "d", text);
    p.num_prompt_tokens = 1024;
    p.is_resumable = 1;
    quire_req d = sched_kit_add_params(&kit, &p);
    assert_int_equal(quire_sched_continue(kit.sched, d, &p), QUIRE_E_RANGE);
    p.id = (quire_bytes){"e", 1};
    p.num_prompt_tokens = 1025;
    refuse_request(&p, QUIRE_FULL);
    p.num_prompt_tokens = 1;
    assert_int_equal(quire_sched_continue(kit.sched, d, &p), QUIRE_OK);
    assert_int_equal(quire_sched_continue(kit.sched, d, &p), QUIRE_FULL);
    refuse_request(&p, QUIRE_FULL);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    sched_kit_close(&kit);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_out_of_range),
        cmocka_unit_test(hasher_of_other_blocks),
        cmocka_unit_test(without_random_bytes),
        cmocka_unit_test(requests_with_missing_arrays),
        cmocka_unit_test(requests_with_too_much),
        cmocka_unit_test(images_that_do_not_fit),
        cmocka_unit_test(keys_that_the_hasher_cannot_take),
        cmocka_unit_test(decoder_inputs_begin_at_the_start),
        cmocka_unit_test(limits_of_requests),
#ifndef QUIRE_HOSTILE /* the numbers are for pages of 1,024 tokens */
        cmocka_unit_test(text_has_a_limit),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

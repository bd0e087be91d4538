/* sched_image/test_image_rules.c - what vLLM 0.32's rules keep besides: extra keys of blocks, the
 * prompts of rows, and a free queue with two ends. A scheduler that was restored goes on as the one
 * that was saved. */
#include "base/inner.h"
#include "base/unit.h"
#include "sched/sched.h"

#include <quire/image.h>
#include <quire/sched.h>

#include <stdlib.h>
#include <string.h>

enum { NUM_GROUPS = 2, NUM_BLOCKS = 60, LONGEST = 64, STEPS = 40, NUM_PROMPTS = 6 };

static quire_group_config groups[NUM_GROUPS] = {{.spec = {.kind = QUIRE_LAYER_FULL,
                                                          .block_size = 8,
                                                          .num_kv_heads = 1,
                                                          .head_size = 8,
                                                          .dtype = QUIRE_DTYPE_FLOAT16}},
                                                {.spec = {.kind = QUIRE_LAYER_SLIDING_WINDOW,
                                                          .block_size = 4,
                                                          .sliding_window = 8,
                                                          .num_kv_heads = 1,
                                                          .head_size = 8,
                                                          .dtype = QUIRE_DTYPE_FLOAT16}}};

typedef struct side {
    quire_hasher *hasher;
    quire_sched *sched;
    char told[1 << 16]; /* blocks of all steps */
    size_t used;
} side;

/* A new scheduler, or the one of an image; says what came of it. */
static int open_side(side *s, uint32_t interval, const void *image, size_t bytes)
{
    *s = (side){0};
    quire_hasher_config h = QUIRE_HASHER_CONFIG_INIT;
    h.algo = QUIRE_HASH_SHA256;
    h.block_size = 4;
    h.profile = QUIRE_PROFILE_VLLM_0_32;
    h.seed = (quire_bytes){"seed", 4};
    assert_int_equal(quire_hasher_create(&h, NULL, &s->hasher), QUIRE_OK);
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    cache.groups = groups;
    cache.num_groups = NUM_GROUPS;
    cache.num_blocks = NUM_BLOCKS;
    cache.max_model_len = LONGEST;
    cache.prefix_cache_retention_interval = interval;
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    c.cache = &cache;
    c.hasher = s->hasher;
    c.profile = QUIRE_PROFILE_VLLM_0_32;
    c.max_requests = 16;
    c.max_num_seqs = 4;
    c.max_num_batched_tokens = 16;
    return image == NULL ? quire_sched_create(&c, NULL, &s->sched)
                         : quire_sched_restore(&c, NULL, image, bytes, &s->sched);
}

static void close_side(side *s)
{
    quire_sched_destroy(s->sched);
    quire_hasher_destroy(s->hasher);
}

/* Prompts that begin alike and end at different places. */
static void add_prompt(side *s, uint32_t i)
{
    quire_token tokens[LONGEST];
    uint32_t n = 13 + 7 * (i % 5);
    for (uint32_t t = 0; t < n; t++)
        tokens[t] = (quire_token)(t + (t > 20 ? i % 3 : 0));
    char id[8];
    int len = snprintf(id, sizeof id, "r%u", i);
    quire_request_params p = {.size = sizeof p,
                              .id = {id, (size_t)len},
                              .prompt = tokens,
                              .num_prompt_tokens = n,
                              .max_tokens = 9};
    quire_req req = 0;
    assert_int_equal(quire_sched_add(s->sched, &p, &req), QUIRE_OK);
}

static void step(side *s, uint32_t number)
{
    const quire_step *given;
    const quire_outputs *outputs;
    quire_token tokens[16];
    if (number % 4 == 0)
        add_prompt(s, number / 4 + 100);
    assert_int_equal(quire_sched_schedule(s->sched, &given), QUIRE_OK);
    quire_block free_blocks[NUM_BLOCKS];
    uint32_t n = quire_pool_get_all_free_blocks(s->sched->cache->pool, free_blocks, NUM_BLOCKS);
    for (uint32_t i = 0; i < n; i++)
        s->used +=
            (size_t)snprintf(s->told + s->used, sizeof s->told - s->used, " %u", free_blocks[i]);
    s->used += (size_t)snprintf(s->told + s->used, sizeof s->told - s->used, "|%u\n",
                                quire_pool_get_counts(s->sched->cache->pool).num_keys);
    assert_true(s->used < sizeof s->told);
    for (uint32_t i = 0; i < 16; i++)
        tokens[i] = (quire_token)(i + number);
    quire_model_output o = {.size = sizeof o, .sampled = tokens};
    assert_int_equal(quire_sched_update(s->sched, given->step, &o, &outputs), QUIRE_OK);
    assert_int_equal(quire_sched_check(s->sched), QUIRE_OK);
}

static uint32_t count_extras(const side *s)
{
    const qr_extras *extras = &s->sched->cache->pool->extras;
    uint32_t count = 0;
    for (uint32_t i = 0; i < extras->num_extras; i++)
        count += extras->owners[i] != 0;
    return count;
}

static void a_restored_one_goes_on(void **state)
{
    (void)state;
    uint32_t most_extras = 0;
    static side first;
    static side second;
    for (uint32_t at = 3; at < STEPS; at += 3) {
        assert_int_equal(open_side(&first, 0, NULL, 0), QUIRE_OK);
        for (uint32_t i = 0; i < at; i++)
            step(&first, i);
        most_extras = count_extras(&first) > most_extras ? count_extras(&first) : most_extras;
        size_t bytes = quire_sched_image_bytes(first.sched);
        void *image = malloc(bytes);
        assert_non_null(image);
        size_t written = 0;
        assert_int_equal(quire_sched_save(first.sched, image, bytes, &written), QUIRE_OK);
        assert_int_equal(open_side(&second, 0, image, written), QUIRE_OK);
        assert_int_equal(count_extras(&second), count_extras(&first));
        first.used = second.used = 0;
        for (uint32_t i = at; i < STEPS; i++) {
            step(&first, i);
            step(&second, i);
        }
        assert_string_equal(first.told, second.told);
        close_side(&second);
        /* another interval, other keys */
        assert_int_equal(open_side(&second, 8, image, written), QUIRE_E_CONFIG);
        close_side(&second);
        close_side(&first);
        free(image);
    }
    assert_true(most_extras > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_restored_one_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

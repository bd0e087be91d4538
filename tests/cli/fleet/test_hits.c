/* What is known of a cache without looking into it, beside the cache: the same hits, whatever was
 * stored and evicted in between, with a pool so small that each block taken evicts one. */
#include "base/unit.h"
#include "fleet/hits.h"

enum { NUM_BLOCKS = 48, DIGEST = 16, LONGEST = 20, NUM_PROMPTS = 40, NUM_ROUNDS = 20000 };

typedef struct prompt {
    unsigned char hashes[LONGEST][DIGEST];
    uint64_t names[LONGEST];
    uint32_t length;
} prompt;

static prompt prompts[NUM_PROMPTS];

/* Each prompt branches off another one, as those of users behind one system prompt. */
static void make_prompts(uint64_t *random)
{
    for (uint32_t p = 0; p < NUM_PROMPTS; p++) {
        prompt *it = &prompts[p];
        const prompt *parent = p > 0 ? &prompts[unit_random(random) % p] : it;
        uint32_t same = p > 0 ? (uint32_t)(unit_random(random) % parent->length) : 0;
        it->length = same + 1 + (uint32_t)(unit_random(random) % (LONGEST - same));
        memcpy(it->hashes, parent->hashes, same * sizeof *it->hashes);
        for (uint32_t i = same; i < it->length; i++)
            for (uint32_t k = 0; k < DIGEST; k += 8) {
                uint64_t word = unit_random(random);
                memcpy(it->hashes[i] + k, &word, sizeof word);
            }
        for (uint32_t i = 0; i < it->length; i++)
            memcpy(&it->names[i], it->hashes[i], sizeof it->names[i]);
    }
}

static void note(void *user, const quire_event *event)
{
    hits_known *known = user;
    if (event->kind != QUIRE_EVENT_STORED) {
        hits_note_removed(known);
        return;
    }
    for (uint32_t i = 0; i < event->num_blocks; i++) {
        uint64_t name;
        memcpy(&name, (const unsigned char *)event->hashes + (size_t)i * DIGEST, sizeof name);
        hits_note_stored(known, name);
    }
}

static uint32_t in_cache(const quire_pool *pool, const prompt *it)
{
    const uint32_t group = 0;
    quire_block found[LONGEST];
    uint32_t num_hit = 0;
    assert_int_equal(quire_pool_get_cached_prefix(pool, it->hashes, DIGEST, it->length, &group, 1,
                                                  found, &num_hit),
                     QUIRE_OK);
    return num_hit;
}

/* As a request would: what is there is touched, the rest is taken and cached, then all is freed;
 * the end of the prompt first, or its beginning, so that hits end in the middle too. */
static void serve(quire_pool *pool, const prompt *it, bool end_first)
{
    const uint32_t group = 0;
    quire_block blocks[LONGEST];
    quire_block order[LONGEST];
    uint32_t num_hit = 0;
    assert_int_equal(quire_pool_get_cached_prefix(pool, it->hashes, DIGEST, it->length, &group, 1,
                                                  blocks, &num_hit),
                     QUIRE_OK);
    assert_int_equal(quire_pool_touch(pool, blocks, num_hit), QUIRE_OK);
    assert_int_equal(quire_pool_get_new_blocks(pool, it->length - num_hit, blocks + num_hit),
                     QUIRE_OK);
    /* blocks behind a gap may be cached already: they get no second key */
    quire_cache_full_params params = QUIRE_CACHE_FULL_PARAMS_INIT;
    params.blocks = blocks;
    params.num_cached_blocks = num_hit;
    params.num_full_blocks = it->length;
    params.hashes = it->hashes;
    params.hash_len = DIGEST;
    params.num_hashes = it->length;
    params.block_size = 16;
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_OK);
    for (uint32_t i = 0; i < it->length; i++)
        order[i] = blocks[end_first ? it->length - 1 - i : i];
    assert_int_equal(quire_pool_free_blocks(pool, order, it->length), QUIRE_OK);
}

static uint64_t seed = 1;

static void the_same_hits(void **state)
{
    (void)state;
    uint64_t random = seed;
    uint32_t num_partial = 0;
    hits_known known;
    quire_pool *pool;
    make_prompts(&random);
    assert_true(hits_open(&known, NUM_BLOCKS));
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = NUM_BLOCKS;
    config.hash_bytes = DIGEST;
    config.on_event = note;
    config.event_user = &known;
    assert_int_equal(quire_pool_create(&config, NULL, &pool), QUIRE_OK);
    for (uint32_t round = 0; round < NUM_ROUNDS; round++) {
        uint64_t number = unit_random(&random) % NUM_PROMPTS;
        const prompt *it = &prompts[number];
        hits_prompt asked = {.hashes = it->hashes[0],
                             .block_bytes = DIGEST,
                             .names = it->names,
                             .num_blocks = it->length,
                             .number = number * 24}; /* several have the same place */
        if (unit_random(&random) % 2 == 0)
            hits_keep(&known, pool, &asked);
        uint32_t expected = in_cache(pool, it);
        assert_int_equal(hits_find(&known, pool, &asked), expected);
        num_partial += expected > 0 && expected < it->length;
        if (unit_random(&random) % 4 == 0)
            serve(pool, it, unit_random(&random) % 4 != 0);
        if (unit_random(&random) % 1000 == 0)
            assert_int_equal(quire_pool_reset_prefix_cache(pool), QUIRE_OK);
    }
    assert_true(num_partial > NUM_ROUNDS / 20);
    quire_pool_destroy(pool);
    hits_close(&known);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_hits)};
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

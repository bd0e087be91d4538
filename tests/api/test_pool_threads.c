/* api/test_pool_threads.c - usage is readable from any thread while the owner works.
 *
 *      owner    take, cache, free, take ...
 *      readers  empty + cached + active + null == total, in every reading
 *
 * A reading belongs to one moment: were the numbers read one by one, the sum would be off. Run with
 * the thread sanitizer it also shows that no reading is a race. */
#include "base/unit.h"

#include <quire/pool.h>

#include <pthread.h>
#include <stdatomic.h>

enum { NUM_BLOCKS = 64, NUM_READERS = 2, ROUNDS = 20000 };

typedef struct shared {
    quire_pool *pool;
    atomic_bool done;
    atomic_uint started;
} shared;

typedef struct reader {
    shared *with;
    pthread_t thread;
    uint64_t readings;
    uint64_t wrong;
} reader;

static bool reading_is_right(const quire_usage *usage)
{
    return usage->total == NUM_BLOCKS && usage->null_blocks == 1 && usage->empty < NUM_BLOCKS &&
           usage->cached < NUM_BLOCKS && usage->active < NUM_BLOCKS &&
           usage->empty + usage->cached + usage->active + usage->null_blocks == usage->total;
}

static void *read_usage(void *argument)
{
    reader *r = argument;
    const quire_pool *pool = r->with->pool;
    atomic_fetch_add(&r->with->started, 1);
    while (!atomic_load(&r->with->done)) {
        quire_usage usage = quire_pool_get_usage(pool);
        double share = quire_usage_level(quire_pool_get_usage(pool));
        uint32_t num_free = quire_pool_get_num_free_blocks(pool);
        r->wrong +=
            !reading_is_right(&usage) || share < 0.0 || share > 1.0 || num_free >= NUM_BLOCKS;
        r->readings++;
    }
    return NULL;
}

/* One request: some blocks, keys for half of them, and back, last to first. */
static void work(quire_pool *pool, uint64_t *r)
{
    quire_block blocks[NUM_BLOCKS];
    quire_block back[NUM_BLOCKS];
    static unsigned char hashes[NUM_BLOCKS][32];
    uint32_t n = 1 + unit_random_below(r, NUM_BLOCKS - 1);
    assert_int_equal(quire_pool_get_new_blocks(pool, n, blocks), QUIRE_OK);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t word = unit_random(r);
        memcpy(hashes[i], &word, sizeof word);
        back[i] = blocks[n - 1 - i];
    }
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = blocks,
                                      .num_full_blocks = n / 2,
                                      .hashes = hashes,
                                      .hash_len = 32,
                                      .num_hashes = n};
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_OK);
    assert_int_equal(quire_pool_free_blocks(pool, back, n), QUIRE_OK);
}

static void every_reading_adds_up(void **state)
{
    (void)state;
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = NUM_BLOCKS;
    shared with = {.pool = NULL};
    atomic_init(&with.done, false);
    atomic_init(&with.started, 0);
    assert_int_equal(quire_pool_create(&config, NULL, &with.pool), QUIRE_OK);
    reader readers[NUM_READERS];
    for (int i = 0; i < NUM_READERS; i++) {
        readers[i] = (reader){.with = &with};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_usage, &readers[i]), 0);
    }
    while (atomic_load(&with.started) < NUM_READERS)
        continue;
    uint64_t r = 1;
    for (int i = 0; i < ROUNDS; i++)
        work(with.pool, &r);
    atomic_store(&with.done, true);
    for (int i = 0; i < NUM_READERS; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
        assert_true(readers[i].readings > 0);
    }
    assert_int_equal(quire_pool_check(with.pool), QUIRE_OK);
    quire_pool_destroy(with.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reading_adds_up),
    };
    return cmocka_run_group_tests_name("api_pool_threads", tests, NULL, NULL);
}

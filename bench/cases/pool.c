/* pool.c - taking, giving back, touching, caching and evicting blocks.
 *
 *      take_give     get_new_blocks + free_blocks: empty blocks round and round the queue
 *      touch_free    touch + free_blocks: what a prefix hit costs at its two ends
 *      cache_full    cache_full_blocks: giving full blocks their keys
 *      evict         get_new_blocks when every free block is cached: the key goes first
 */
#include "bench.h"

#include <stdlib.h>

#define POOL_BLOCKS   100000u
#define PREFIX_BLOCKS 2048u
#define MAX_BATCH     100u

/* ---- take and give back ------------------------------------------------- */

typedef struct take_give {
    quire_pool *pool;
    uint32_t batch;
} take_give;

static void *take_give_setup(const bench_case *self)
{
    take_give *s = bench_memory(sizeof *s);
    s->pool = bench_pool(self->size, 32);
    s->batch = self->batch;
    return s;
}

static uint64_t take_give_pass(void *state, bench_timer *timer)
{
    const take_give *s = state;
    const uint32_t calls = 10000 / s->batch;
    quire_block blocks[MAX_BATCH];
    uint64_t check = 0;
    int status = QUIRE_OK;

    bench_start(timer);
    for (uint32_t i = 0; i < calls; i++) {
        status |= quire_pool_get_new_blocks(s->pool, s->batch, blocks);
        check += blocks[0];
        status |= quire_pool_free_blocks(s->pool, blocks, s->batch);
    }
    bench_stop(timer, (uint64_t)calls * s->batch);
    bench_must(status, "take and give back");
    return check;
}

static void take_give_teardown(void *state)
{
    take_give *s = state;
    quire_pool_destroy(s->pool);
    free(s);
}

/* ---- touch and free ----------------------------------------------------- */

static uint64_t touch_free_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    uint32_t first = (uint32_t)(bench_random(&c->random) % (c->count - c->batch));
    const quire_block *hit = c->blocks + first;
    const quire_block *last_to_first = c->reversed + (c->count - first - c->batch);

    bench_start(timer);
    int status = quire_pool_touch(c->pool, hit, c->batch);
    status |= quire_pool_free_blocks(c->pool, last_to_first, c->batch);
    bench_stop(timer, c->batch);
    bench_must(status, "touch and free");
    return quire_pool_get_num_free_blocks(c->pool);
}

/* ---- cache full blocks -------------------------------------------------- */

static void *cache_full_setup(const bench_case *self)
{
    bench_cached *cached = bench_cached_setup(self);
    bench_must(quire_pool_touch(cached->pool, cached->blocks, cached->batch), "quire_pool_touch");
    return cached;
}

static uint64_t cache_full_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    bench_must(quire_pool_evict_blocks(c->pool, c->blocks, c->batch), "quire_pool_evict_blocks");
    bench_start(timer);
    bench_cached_store(c, 0, c->batch);
    bench_stop(timer, c->batch);
    return quire_pool_get_counts(c->pool).num_keys;
}

/* ---- the cases ---------------------------------------------------------- */

#define EVICT(order, is_shuffled, batch, label, count)                                             \
    {                                                                                              \
        "evict/" #batch "/" order "/" label, "ns/block", 1, 100, count, batch, is_shuffled,        \
            bench_cached_setup, bench_evict_pass, bench_cached_teardown                            \
    }
#define EVICT_SIZES(order, is_shuffled, batch)                                                     \
    EVICT(order, is_shuffled, batch, "1k", 1000), EVICT(order, is_shuffled, batch, "10k", 10000),  \
        EVICT(order, is_shuffled, batch, "100k", 100000),                                          \
        EVICT(order, is_shuffled, batch, "1M", 1000000)

bench_group bench_pool_group(void)
{
    static const bench_case cases[] = {
        {"pool/take_give/100", "ns/block", 1, 0, POOL_BLOCKS, 100, false, take_give_setup,
         take_give_pass, take_give_teardown},
        {"pool/take_give/1", "ns/block", 1, 0, POOL_BLOCKS, 1, false, take_give_setup,
         take_give_pass, take_give_teardown},
        {"pool/touch_free/2048", "ns/block", 1, 0, POOL_BLOCKS - 1, PREFIX_BLOCKS, true,
         bench_cached_setup, touch_free_pass, bench_cached_teardown},
        {"pool/cache_full/2048", "ns/block", 1, 0, POOL_BLOCKS - 1, PREFIX_BLOCKS, true,
         cache_full_setup, cache_full_pass, bench_cached_teardown},
        EVICT_SIZES("shuffled", true, 1),
        EVICT_SIZES("ordered", false, 1),
        EVICT_SIZES("shuffled", true, 100),
        EVICT_SIZES("ordered", false, 100),
    };
    return (bench_group){cases, sizeof cases / sizeof *cases};
}

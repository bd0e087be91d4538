/* scale.c - the operations on pools of 1 thousand to 10 million blocks, at random places.
 *
 *      chase        yardstick: one load of a 32-byte record whose address the load before gave, in
 *                   as many records as the pool has blocks: what the machine asks for a miss
 *      take_give    batches of 100 from a queue in no order
 *      lookup       quire_pool_get_cached_prefix: runs of 256 hashes that start anywhere
 *      lookup_one   quire_pool_get_cached_block of any one hash
 *      evict        get_new_blocks(1), all free blocks cached, in no order
 *      touch_free   a hit of 256 blocks: touched, then freed last to first
 *
 * An operation that did more work in a larger pool would grow faster than the yardstick.
 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_BLOCKS  256u
#define RUNS        64u
#define RECORD_SIZE 32u

static const uint32_t group_zero = 0;

/* Runs start at multiples of the batch, so that two of them are the same or have nothing in common.
 */
static uint32_t random_run(bench_cached *c)
{
    return (uint32_t)(bench_random(&c->random) % (c->count / c->batch)) * c->batch;
}

/* ---- yardstick ---------------------------------------------------------- */

typedef struct chase {
    unsigned char *records; /* the first word of each: the index of the next; one ring of all */
    uint32_t at;
} chase;

static void *chase_setup(const bench_case *self)
{
    chase *s = bench_memory(sizeof *s);
    uint32_t *order = bench_memory(self->size * sizeof *order);
    s->records = bench_memory((size_t)self->size * RECORD_SIZE);
    s->at = 0;
    for (uint32_t i = 0; i < self->size; i++)
        order[i] = i;
    bench_shuffle(order, self->size, 7);
    for (uint32_t i = 0; i < self->size; i++) {
        uint32_t next = order[(i + 1) % self->size];
        memcpy(s->records + (size_t)order[i] * RECORD_SIZE, &next, sizeof next);
    }
    free(order);
    return s;
}

static uint64_t chase_pass(void *state, bench_timer *timer)
{
    chase *s = state;
    uint32_t at = s->at;
    bench_start(timer);
    for (uint32_t i = 0; i < RUN_BLOCKS * RUNS; i++)
        memcpy(&at, s->records + (size_t)at * RECORD_SIZE, sizeof at);
    bench_stop(timer, RUN_BLOCKS * RUNS);
    s->at = at;
    return at;
}

static void chase_teardown(void *state)
{
    chase *s = state;
    free(s->records);
    free(s);
}

/* ---- operations --------------------------------------------------------- */

/* All blocks empty, the queue in no order: everything taken, and given back shuffled. */
static void *shuffled_setup(const bench_case *self)
{
    bench_cached *c = bench_memory(sizeof *c);
    memset(c, 0, sizeof *c);
    c->pool = bench_pool(self->size, 32);
    c->count = self->size - 1;
    c->batch = self->batch;
    c->out = bench_memory(self->size * sizeof *c->out);
    bench_must(quire_pool_get_new_blocks(c->pool, c->count, c->out), "quire_pool_get_new_blocks");
    bench_shuffle(c->out, c->count, 8);
    bench_must(quire_pool_free_blocks(c->pool, c->out, c->count), "quire_pool_free_blocks");
    return c;
}

static uint64_t take_give_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    uint64_t check = 0;
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < RUNS; i++) {
        status |= quire_pool_get_new_blocks(c->pool, c->batch, c->out);
        check += c->out[0];
        status |= quire_pool_free_blocks(c->pool, c->out, c->batch);
    }
    bench_stop(timer, (uint64_t)RUNS * c->batch);
    bench_must(status, "take and give back");
    return check;
}

static uint64_t lookup_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    uint64_t hits = 0;
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < RUNS; i++) {
        uint32_t num_hit = 0;
        size_t first = random_run(c);
        status |=
            quire_pool_get_cached_prefix(c->pool, c->hashes + first * c->hash_bytes, c->hash_bytes,
                                         c->batch, &group_zero, 1, c->out, &num_hit);
        hits += num_hit;
    }
    bench_stop(timer, hits);
    bench_must(status, "quire_pool_get_cached_prefix");
    if (hits != (uint64_t)RUNS * c->batch)
        bench_must(QUIRE_MISS, "quire_pool_get_cached_prefix");
    return c->out[c->batch - 1];
}

static uint64_t lookup_one_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    uint64_t check = 0;
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < RUN_BLOCKS; i++) {
        size_t which = (size_t)(bench_random(&c->random) % c->count);
        quire_bytes hash = {c->hashes + which * c->hash_bytes, c->hash_bytes};
        quire_block block = 0;
        status |= quire_pool_get_cached_block(c->pool, hash, &group_zero, 1, &block);
        check += block;
    }
    bench_stop(timer, RUN_BLOCKS);
    bench_must(status, "quire_pool_get_cached_block");
    return check;
}

static uint64_t touch_free_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < RUNS; i++) {
        uint32_t first = random_run(c);
        const quire_block *last_to_first = c->reversed + (c->count - first - c->batch);
        status |= quire_pool_touch(c->pool, c->blocks + first, c->batch);
        status |= quire_pool_free_blocks(c->pool, last_to_first, c->batch);
    }
    bench_stop(timer, (uint64_t)RUNS * c->batch);
    bench_must(status, "touch and free");
    return quire_pool_get_num_free_blocks(c->pool);
}

static void shuffled_teardown(void *state)
{
    bench_cached *c = state;
    quire_pool_destroy(c->pool);
    free(c->out);
    free(c);
}

/* ---- the cases ---------------------------------------------------------- */

#define NUM_SIZES 5
static const struct {
    const char *label;
    uint32_t blocks;
} sizes[NUM_SIZES] = {
    {"1k", 1000}, {"10k", 10000}, {"100k", 100000}, {"1M", 1000000}, {"10M", 10000000}};

#define AT(op, label, blocks, batch, setup, pass, teardown)                                        \
    {                                                                                              \
        "scale/" op "/" label, "ns/block", 1, 0, blocks, batch, true, setup, pass, teardown        \
    }
#define FROM_1K_TO_10M(op, batch, setup, pass, teardown)                                           \
    AT(op, "1k", 1000, batch, setup, pass, teardown),                                              \
        AT(op, "10k", 10000, batch, setup, pass, teardown),                                        \
        AT(op, "100k", 100000, batch, setup, pass, teardown),                                      \
        AT(op, "1M", 1000000, batch, setup, pass, teardown),                                       \
        AT(op, "10M", 10000000, batch, setup, pass, teardown)

bench_group bench_scale_group(void)
{
    static const bench_case cases[] = {
        FROM_1K_TO_10M("chase", 1, chase_setup, chase_pass, chase_teardown),
        FROM_1K_TO_10M("take_give", 100, shuffled_setup, take_give_pass, shuffled_teardown),
        FROM_1K_TO_10M("lookup", RUN_BLOCKS, bench_cached_setup, lookup_pass,
                       bench_cached_teardown),
        FROM_1K_TO_10M("lookup_one", 1, bench_cached_setup, lookup_one_pass, bench_cached_teardown),
        FROM_1K_TO_10M("evict", 1, bench_cached_setup, bench_evict_pass, bench_cached_teardown),
        FROM_1K_TO_10M("touch_free", RUN_BLOCKS, bench_cached_setup, touch_free_pass,
                       bench_cached_teardown),
    };
    return (bench_group){cases, sizeof cases / sizeof *cases};
}

/* ---- summary ------------------------------------------------------------ */

static size_t pool_bytes(uint32_t blocks, uint32_t hash_bytes)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = blocks;
    config.hash_bytes = hash_bytes;
    return quire_pool_bytes(&config);
}

static void print_memory(uint32_t hash_bytes, bool machine)
{
    if (machine) {
        for (int i = 0; i < NUM_SIZES; i++)
            printf("scale/bytes_%" PRIu32 "/%s\tbytes\t0\t%zu\n", hash_bytes, sizes[i].label,
                   pool_bytes(sizes[i].blocks, hash_bytes));
        return;
    }
    const double gib = 1024.0 * 1024.0 * 1024.0;
    size_t largest = pool_bytes(sizes[NUM_SIZES - 1].blocks, hash_bytes);
    printf("  bytes, hash of %-2" PRIu32, hash_bytes);
    for (int i = 0; i < NUM_SIZES; i++)
        printf(" %11zu", pool_bytes(sizes[i].blocks, hash_bytes));
    printf("   10M: %.3f GiB, %s 1 GiB\n", (double)largest / gib,
           (double)largest < gib ? "below" : "ABOVE");
}

static double median_of(const bench_result *results, size_t num_results, const char *op, int size)
{
    char name[64];
    snprintf(name, sizeof name, "scale/%s/%s", op, sizes[size].label);
    for (size_t i = 0; i < num_results; i++)
        if (strcmp(results[i].of->name, name) == 0)
            return results[i].median;
    return 0;
}

/* 0: that case was not among those to run. */
static void print_median(double median)
{
    if (median > 0)
        printf(" %11.2f", median);
    else
        printf(" %11s", "-");
}

void bench_scale_summary(const bench_result *results, size_t num_results, bool machine)
{
    static const char *const ops[] = {"chase",      "take_give", "lookup",
                                      "lookup_one", "evict",     "touch_free"};
    bool any = false;
    for (size_t i = 0; i < num_results; i++)
        any |= strncmp(results[i].of->name, "scale/", 6) == 0;
    if (!any)
        return;
    if (!machine) {
        printf("\nscale, ns/block   ");
        for (int i = 0; i < NUM_SIZES; i++)
            printf(" %11s", sizes[i].label);
        printf("   growth from first to last\n");
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            double first = median_of(results, num_results, ops[o], 0);
            double last = median_of(results, num_results, ops[o], NUM_SIZES - 1);
            printf("  %-16s", ops[o]);
            for (int i = 0; i < NUM_SIZES; i++)
                print_median(median_of(results, num_results, ops[o], i));
            if (first > 0 && last > 0)
                printf("   %.1fx", last / first);
            printf("\n");
        }
    }
    print_memory(32, machine);
    print_memory(16, machine);
}

/* cache.c - a request's blocks, group by group: what an engine asks in every step.
 *
 *      decode          allocate_slots of one token, round robin over 256 or 1,024 requests of 500
 *                      to 2,000 tokens; one full group, or a window of 1,024 tokens beside it
 *      computed        get_computed_blocks of a prompt of 65,537 tokens: 4,096 blocks, all hits;
 *                      one full group, or a window or Mamba (align) beside it
 *      allocate        allocate_slots of that prompt, nothing of it cached: each block taken evicts
 *      allocate_hit    the same, all of it cached
 *      free            free of that request: 4,096 blocks with keys, and one without
 *      can_fit         can_allocate of all that prompt with its hit, and (_miss) without
 *      fork            a second request that shares all 4,097 blocks
 *      common_prefix   get_num_common_prefix_blocks: 256 requests that share 128 blocks
 *
 * Check values come from a new cache, so that they are the same in every run; what is timed runs in
 * a cache that has been in use.
 */
#include "bench.h"

#include <stdlib.h>

#define PROMPT_BLOCKS 4096u
#define PROMPT_TOKENS (PROMPT_BLOCKS * BENCH_BLOCK_SIZE + 1)
#define PROMPT_POOL   100000u
#define SHARED_BLOCKS 128u
#define SHARED_TOKENS (SHARED_BLOCKS * BENCH_BLOCK_SIZE + 1)
#define CALLS         4u    /* that take microseconds, in one pass */
#define MANY_CALLS    1000u /* that take nanoseconds */

/* ---- decode ------------------------------------------------------------- */

static void *decode_setup(quire_layer_kind second, uint32_t num_requests)
{
    const bench_fleet_config config = {.second = second,
                                       .num_blocks = 256 * num_requests,
                                       .num_requests = num_requests,
                                       .shortest = 500,
                                       .longest = 2000};
    return bench_fleet_decoding(&config);
}

static void *decode_full_setup(const bench_case *self)
{
    return decode_setup(0, self->size);
}

static void *decode_window_setup(const bench_case *self)
{
    return decode_setup(QUIRE_LAYER_SLIDING_WINDOW, self->size);
}

/* ---- a prompt of 64k tokens --------------------------------------------- */

/* Computed and freed: its full blocks are in the cache. */
static bench_fleet *prompt_new(quire_layer_kind second, uint32_t max_copies)
{
    const bench_fleet_config config = {.second = second,
                                       .num_blocks = PROMPT_POOL,
                                       .num_requests = 1,
                                       .shortest = PROMPT_TOKENS,
                                       .longest = PROMPT_TOKENS,
                                       .max_copies = max_copies};
    bench_fleet *f = bench_fleet_new(&config);
    bench_fleet_start(f);
    f->check = bench_fleet_check(f);
    bench_fleet_stop(f);
    return f;
}

static void *prompt_setup(const bench_case *self)
{
    (void)self;
    return prompt_new(0, 0);
}

static void *prompt_window_setup(const bench_case *self)
{
    (void)self;
    return prompt_new(QUIRE_LAYER_SLIDING_WINDOW, 0);
}

static void *prompt_mamba_setup(const bench_case *self)
{
    (void)self;
    return prompt_new(QUIRE_LAYER_MAMBA, 0);
}

/* The hit of the prompt, as parameters of the calls that want one. */
static quire_allocate_params find_hit(bench_fleet *f, quire_block_span *hit)
{
    quire_allocate_params params = {
        .size = sizeof(quire_allocate_params), .num_new_tokens = 1, .new_computed_blocks = hit};
    bench_must(quire_cache_get_computed_blocks(f->cache, f->requests, hit,
                                               &params.num_new_computed_tokens),
               "quire_cache_get_computed_blocks");
    if (params.num_new_computed_tokens != PROMPT_TOKENS - 1)
        bench_must(QUIRE_MISS, "quire_cache_get_computed_blocks");
    return params;
}

static uint64_t computed_pass(void *state, bench_timer *timer)
{
    bench_fleet *f = state;
    quire_block_span hit[BENCH_MAX_GROUPS];
    bench_start(timer);
    for (uint32_t i = 0; i < CALLS; i++)
        (void)find_hit(f, hit);
    bench_stop(timer, CALLS);
    return bench_check_spans(BENCH_CHECK_START, hit, f->num_groups);
}

static uint64_t allocate_pass(void *state, bench_timer *timer)
{
    bench_fleet *f = state;
    const quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                          .num_new_tokens = PROMPT_TOKENS};
    quire_block_span new_blocks[BENCH_MAX_GROUPS];
    bench_fleet_draw(f);
    bench_start(timer);
    int status = quire_cache_allocate_slots(f->cache, f->requests, &params, new_blocks);
    bench_stop(timer, 1);
    bench_must(status, "quire_cache_allocate_slots");
    bench_fleet_stop(f);
    return f->check;
}

static uint64_t allocate_hit_pass(void *state, bench_timer *timer)
{
    bench_fleet *f = state;
    quire_block_span hit[BENCH_MAX_GROUPS], new_blocks[BENCH_MAX_GROUPS];
    const quire_allocate_params params = find_hit(f, hit);
    bench_start(timer);
    int status = quire_cache_allocate_slots(f->cache, f->requests, &params, new_blocks);
    bench_stop(timer, 1);
    bench_must(status, "quire_cache_allocate_slots");
    bench_fleet_stop(f);
    return f->check;
}

static uint64_t free_pass(void *state, bench_timer *timer)
{
    bench_fleet *f = state;
    bench_fleet_hit(f, f->requests);
    bench_start(timer);
    int status = quire_cache_free(f->cache, f->requests);
    bench_stop(timer, 1);
    bench_must(status, "quire_cache_free");
    return f->check;
}

static uint64_t can_fit_pass(void *state, bench_timer *timer)
{
    bench_fleet *f = state;
    quire_block_span hit[BENCH_MAX_GROUPS];
    quire_allocate_params params = find_hit(f, hit);
    int status = QUIRE_OK;
    params.full_sequence_must_fit = 1;
    bench_start(timer);
    for (uint32_t i = 0; i < CALLS; i++)
        status |= quire_cache_can_allocate(f->cache, f->requests, &params);
    bench_stop(timer, CALLS);
    bench_must(status, "quire_cache_can_allocate");
    return f->check;
}

static uint64_t can_fit_miss_pass(void *state, bench_timer *timer)
{
    bench_fleet *f = state;
    const quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                          .num_new_tokens = PROMPT_TOKENS,
                                          .full_sequence_must_fit = 1};
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < MANY_CALLS; i++)
        status |= quire_cache_can_allocate(f->cache, f->requests, &params);
    bench_stop(timer, MANY_CALLS);
    bench_must(status, "quire_cache_can_allocate");
    return f->check;
}

/* ---- fork --------------------------------------------------------------- */

static void *fork_setup(const bench_case *self)
{
    (void)self;
    bench_fleet *f = prompt_new(0, 1);
    bench_fleet_hit(f, f->requests);
    return f;
}

static uint64_t fork_pass(void *state, bench_timer *timer)
{
    bench_fleet *f = state;
    quire_cache_request child = f->requests[0];
    child.seq = 0;
    bench_start(timer);
    int status = quire_cache_fork(f->cache, f->requests, &child);
    bench_stop(timer, 1);
    bench_must(status, "quire_cache_fork");
    bench_must(quire_cache_free(f->cache, &child), "quire_cache_free");
    return f->check;
}

/* ---- common prefix ------------------------------------------------------ */

static void *common_prefix_setup(const bench_case *self)
{
    const bench_fleet_config config = {.num_blocks = 256 * self->size,
                                       .num_requests = self->size,
                                       .shortest = SHARED_TOKENS,
                                       .longest = SHARED_TOKENS};
    bench_fleet *f = bench_fleet_new(&config);
    bench_fleet_draw(f);
    for (uint32_t i = 0; i < f->num_requests; i++) {
        f->requests[i].hashes = f->requests[0].hashes;
        bench_fleet_hit(f, &f->requests[i]);
    }
    f->check = bench_fleet_check(f);
    return f;
}

static uint64_t common_prefix_pass(void *state, bench_timer *timer)
{
    const bench_fleet *f = state;
    uint32_t common[BENCH_MAX_GROUPS] = {0};
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < MANY_CALLS; i++)
        status |= quire_cache_get_num_common_prefix_blocks(f->cache, f->requests[0].seq, common);
    bench_stop(timer, MANY_CALLS);
    bench_must(status, "quire_cache_get_num_common_prefix_blocks");
    if (common[0] != SHARED_BLOCKS)
        bench_must(QUIRE_E_CORRUPT, "quire_cache_get_num_common_prefix_blocks");
    return f->check;
}

/* ---- the cases ---------------------------------------------------------- */

#define DECODE(kind, requests)                                                                     \
    {                                                                                              \
        "cache/decode/" #kind "/" #requests, "ns/call", 1, 0, requests, 1, true,                   \
            decode_##kind##_setup, bench_fleet_decode_pass, bench_fleet_teardown                   \
    }
#define PROMPT(name, setup, pass)                                                                  \
    {                                                                                              \
        "cache/" name "/64k", "us/call", 1000, 0, PROMPT_POOL, PROMPT_BLOCKS, true, setup, pass,   \
            bench_fleet_teardown                                                                   \
    }

bench_group bench_cache_group(void)
{
    static const bench_case cases[] = {
        DECODE(full, 256),
        DECODE(full, 1024),
        DECODE(window, 256),
        DECODE(window, 1024),
        PROMPT("computed/full", prompt_setup, computed_pass),
        PROMPT("computed/window", prompt_window_setup, computed_pass),
        PROMPT("computed/mamba", prompt_mamba_setup, computed_pass),
        PROMPT("allocate", prompt_setup, allocate_pass),
        PROMPT("allocate_hit", prompt_setup, allocate_hit_pass),
        PROMPT("free", prompt_setup, free_pass),
        PROMPT("can_fit", prompt_setup, can_fit_pass),
        {"cache/can_fit_miss/64k", "ns/call", 1, 0, PROMPT_POOL, PROMPT_BLOCKS, true, prompt_setup,
         can_fit_miss_pass, bench_fleet_teardown},
        PROMPT("fork", fork_setup, fork_pass),
        {"cache/common_prefix/128", "ns/call", 1, 0, 256, SHARED_BLOCKS, true, common_prefix_setup,
         common_prefix_pass, bench_fleet_teardown},
    };
    return (bench_group){cases, sizeof cases / sizeof *cases};
}

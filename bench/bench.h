/* bench.h - what the benchmark's files share: cases, the timer, and the pools they measure.
 *
 *      case    one thing to measure: how to set it up, and one pass of it
 *      pass    some operations; only what lies between start and stop is timed, so that a pass can
 *              put things back in between
 *      round   passes until 20 ms are timed: one value, time / operations
 *
 *      setup --> round (warm-up) --> round --> round --> ... --> teardown
 *                thrown away         value     value             median and spread of the values
 *
 * A pass returns a check value made of the results, and the program prints it, so that no work can
 * be optimised away. For the hash cases it is the end of the chain's last digest, for the cache
 * cases it is made of the block ids that requests got: vLLM must come to the same.
 */
#ifndef QUIRE_BENCH_BENCH_H
#define QUIRE_BENCH_BENCH_H

#include <quire.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define BENCH_MAX_ROUNDS 1000
#define BENCH_ROUND_NS   UINT64_C(20000000)

/* ---- timer -------------------------------------------------------------- */

typedef struct bench_timer {
    uint64_t started_ns;
    uint64_t timed_ns;
    uint64_t operations;
} bench_timer;

static inline uint64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline void bench_start(bench_timer *timer)
{
    timer->started_ns = bench_now_ns();
}

/* The clock itself costs some 30 ns: what lies between start and stop should take 5 us or more. */
static inline void bench_stop(bench_timer *timer, uint64_t operations)
{
    timer->timed_ns += bench_now_ns() - timer->started_ns;
    timer->operations += operations;
}

/* ---- cases -------------------------------------------------------------- */

typedef struct bench_case {
    const char *name; /* group/operation/variant */
    const char *unit; /* "ns/block" */
    double unit_ns;   /* nanoseconds in the unit's first half */
    double limit;     /* what the median should stay below, in units; 0: no limit */
    uint32_t size;    /* blocks in the pool, or what the case makes of it */
    uint32_t batch;   /* blocks in one call */
    bool shuffled;    /* neighbours in the queue are no neighbours in memory */
    void *(*setup)(const struct bench_case *self);
    uint64_t (*pass)(void *state, bench_timer *timer);
    void (*teardown)(void *state);
} bench_case;

/* Whose decisions hashes, caches and schedulers make: what --profile says. */
quire_profile bench_profile(void);

/* The cases of one file. */
typedef struct bench_group {
    const bench_case *cases;
    size_t num_cases;
} bench_group;

bench_group bench_pool_group(void);
bench_group bench_lookup_group(void);
bench_group bench_hash_group(void);
bench_group bench_table_group(void);
bench_group bench_cache_group(void);
bench_group bench_cache_scale_group(void);
bench_group bench_scale_group(void);
bench_group bench_sched_group(void);
bench_group bench_sched_scale_group(void);
bench_group bench_sched_crowds_group(void);
bench_group bench_slots_group(void); /* where libquire_tier is built */

typedef struct bench_result {
    const bench_case *of;
    uint64_t check;
    uint32_t num_rounds;
    double rounds[BENCH_MAX_ROUNDS]; /* in units, in the order measured */
    double median, p10, p90;
} bench_result;

/* What the scale cases say together: each operation's growth with the pool, and the pool's bytes.
 * Nothing when none of them ran. */
void bench_scale_summary(const bench_result *results, size_t num_results, bool machine);
/* The same for one decode token in caches of all sizes. */
void bench_cache_scale_summary(const bench_result *results, size_t num_results, bool machine);
/* And for one decode token of a step, by running requests. */
void bench_sched_scale_summary(const bench_result *results, size_t num_results, bool machine);

/* ---- help for cases ----------------------------------------------------- */

/* Ends the program with a message unless status is QUIRE_OK: a benchmark of failing calls is worth
 * nothing. */
void bench_must(int status, const char *call);
/* Memory, or the end of the program. Huge pages are asked for, as the library does. */
void *bench_memory(size_t bytes);

/* splitmix64: a few instructions, and easy to write again on the Python side. */
uint64_t bench_random(uint64_t *state);
void bench_shuffle(uint32_t *values, uint32_t count, uint64_t seed);
/* Token ids in 0..127,999, the same in every run. */
void bench_tokens(quire_token *tokens, size_t count);

quire_pool *bench_pool(uint32_t num_blocks, uint32_t hash_bytes);

/* A pool whose blocks are all cached and free: hash i belongs to blocks[i], and the free queue
 * holds blocks[0], blocks[1], ... The ids in blocks are in order or shuffled. */
typedef struct bench_cached {
    quire_pool *pool;
    uint32_t count; /* cached blocks: all but the null block */
    uint32_t hash_bytes;
    unsigned char *hashes;
    quire_block *blocks;
    quire_block
        *reversed;    /* reversed[i] = blocks[count - 1 - i]: requests are freed last to first */
    uint32_t batch;   /* of the case */
    uint32_t cursor;  /* of the case */
    uint64_t random;  /* of the case */
    quire_block *out; /* count ids, for the case */
} bench_cached;

/* Memory and random hashes, which may be replaced before the fill. */
bench_cached *bench_cached_new(uint32_t count, uint32_t hash_bytes);
void bench_cached_fill(bench_cached *cached, bool shuffled);
/* Both, from the case's size, batch and shuffled; hashes of 32 bytes. */
void *bench_cached_setup(const bench_case *self);
void bench_cached_teardown(void *state);
/* Gives hashes [first, first + count) to their blocks, which must be active and without one. */
void bench_cached_store(bench_cached *cached, uint32_t first, uint32_t count);

/* A pass: evicts up to 65,536 cached blocks by taking them from the head of the queue, in calls of
 * `batch`; then, not timed, caches and frees them again. */
uint64_t bench_evict_pass(void *state, bench_timer *timer);

/* ---- caches (fleet.c) --------------------------------------------------- */

#define BENCH_BLOCK_SIZE   16u
#define BENCH_DIGEST_BYTES 32u
#define BENCH_DECODE_STEPS 64u
#define BENCH_MAX_GROUPS   2u
#define BENCH_CHECK_START  UINT64_C(0xcbf29ce484222325)

typedef struct bench_fleet_config {
    quire_layer_kind second; /* of the group beside the full one; 0: none */
    uint32_t num_blocks;
    uint32_t num_requests;
    uint32_t shortest; /* tokens of a prompt, drawn between the two */
    uint32_t longest;
    uint32_t max_copies;
} bench_fleet_config;

/* A cache whose pool is full of cached blocks, and requests that run in it. */
typedef struct bench_fleet {
    quire_cache *cache;
    uint32_t num_groups;
    uint32_t num_requests;
    uint32_t *prompt_tokens;
    quire_cache_request *requests;
    unsigned char *hashes; /* stride bytes for each request */
    size_t stride;
    uint64_t random;
    uint64_t check; /* of the case */
} bench_fleet;

bench_fleet *bench_fleet_new(const bench_fleet_config *config);
void bench_fleet_teardown(void *state);
/* Gives all `count` blocks of a new pool random keys and frees them, in no order. */
void bench_fill_pool(quire_pool *pool, uint32_t count, uint64_t *random);
/* Hashes that nothing has yet. */
void bench_fleet_hashes(bench_fleet *fleet, unsigned char *hashes, uint32_t count);
/* Every request new: without blocks, its prompt not in the cache. */
void bench_fleet_draw(bench_fleet *fleet);
/* Draws, and computes all prompts. */
void bench_fleet_start(bench_fleet *fleet);
/* BENCH_DECODE_STEPS tokens for each request, round robin, all timed. */
void bench_fleet_decode(bench_fleet *fleet, bench_timer *timer);
void bench_fleet_stop(bench_fleet *fleet);
/* Blocks for one request without any, from the cache as far as possible. */
void bench_fleet_hit(bench_fleet *fleet, quire_cache_request *request);
/* A case of decoding: a fleet with the check value of its first life, and a pass, a life each. */
bench_fleet *bench_fleet_decoding(const bench_fleet_config *config);
uint64_t bench_fleet_decode_pass(void *state, bench_timer *timer);
/* Check values, of all blocks of all requests, and of some groups' blocks on top of another. */
uint64_t bench_fleet_check(const bench_fleet *fleet);
uint64_t bench_check_spans(uint64_t check, const quire_block_span *spans, uint32_t num_groups);

/* The whole program; see run.c. */
int bench_run(int argc, const char *const *argv);

#endif

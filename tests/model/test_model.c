/* model/test_model.c - random calls on the real pool and the naive one, compared after every call.
 *
 *      seed --> config, call, call, call, ...   a few thousand calls, then a new pool
 *                        |     |
 *                        +-----+--> same answer, same outputs, same events, same state, and
 *                                   quire_pool_check finds nothing
 *
 * Pools are tiny and hashes few, so that full pools, hits, duplicates and evictions happen all the
 * time. About one call in eight is wrong on purpose. At the end every status that a call can give
 * must have been given: a generator that stopped reaching a case fails the test.
 *
 *      model_pool [--ops N] [--seed S]
 */
#include "generate.h"
#include "pair.h"
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(MODEL_SLOW)
enum { DEFAULT_OPS = 200000 };
#else
enum { DEFAULT_OPS = 3000000 };
#endif
/* From so many on, rare answers cannot be missing by chance. */
enum { OPS_THAT_SEE_ALL = 100000 };

/* ---- what was seen ------------------------------------------------------ */

enum { LOWEST_STATUS = -15, HIGHEST_STATUS = 5, NUM_STATUSES = HIGHEST_STATUS - LOWEST_STATUS + 1 };

typedef struct tally {
    uint64_t seen[OP_NUM_KINDS][NUM_STATUSES];
} tally;

typedef struct reachable {
    op_kind kind;
    int statuses[8]; /* besides QUIRE_OK and QUIRE_E_ARGUMENT; 0 ends */
} reachable;

/* QUIRE_E_OVERFLOW would take four thousand million calls of touch. */
static const reachable all_reachable[] = {
    {OP_GET_NEW, {QUIRE_NO_SPACE, QUIRE_E_RANGE}},
    {OP_TOUCH, {QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK}},
    {OP_FREE, {QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, QUIRE_E_DOUBLE_FREE}},
    {OP_HOLD, {QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK}},
    {OP_LET_GO, {QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, QUIRE_E_DOUBLE_FREE}},
    {OP_CACHE, {QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_ALREADY_CACHED, QUIRE_E_RANGE, QUIRE_E_DISABLED}},
    {OP_EVICT, {QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK}},
    {OP_RESET, {QUIRE_BUSY}},
    {OP_GET_CACHED, {QUIRE_MISS, QUIRE_E_RANGE}},
    {OP_GET_PREFIX, {QUIRE_E_RANGE}},
    {OP_INFO, {QUIRE_E_UNKNOWN_BLOCK}},
    {OP_DRAW, {QUIRE_E_RANGE}},
};

static uint64_t seen(const tally *counts, op_kind kind, int status)
{
    return counts->seen[kind][status - LOWEST_STATUS];
}

static void print_tally(const tally *counts)
{
    for (int kind = 0; kind < OP_NUM_KINDS; kind++) {
        uint64_t total = 0;
        for (int s = 0; s < NUM_STATUSES; s++)
            total += counts->seen[kind][s];
        printf("%-20s %12llu  ", op_kind_name((op_kind)kind), (unsigned long long)total);
        for (int s = 0; s < NUM_STATUSES; s++)
            if (counts->seen[kind][s] > 0)
                printf(" %s %llu", quire_status_name(s + LOWEST_STATUS) + strlen("QUIRE_"),
                       (unsigned long long)counts->seen[kind][s]);
        printf("\n");
    }
}

static bool saw(const tally *counts, op_kind kind, int status)
{
    if (seen(counts, kind, status) > 0)
        return true;
    printf("NEVER SEEN: %s from %s\n", quire_status_name(status), op_kind_name(kind));
    return false;
}

static bool saw_all(const tally *counts)
{
    bool all = saw(counts, OP_FREE_LIST, QUIRE_OK) && saw(counts, OP_NEXT_FREE, QUIRE_OK);
    for (size_t i = 0; i < sizeof all_reachable / sizeof all_reachable[0]; i++) {
        const reachable *r = &all_reachable[i];
        all = saw(counts, r->kind, QUIRE_OK) && all;
        all = saw(counts, r->kind, QUIRE_E_ARGUMENT) && all;
        for (int s = 0; r->statuses[s] != 0; s++)
            all = saw(counts, r->kind, r->statuses[s]) && all;
    }
    return all;
}

/* ---- running ------------------------------------------------------------ */

typedef struct run {
    uint64_t ops;
    uint64_t seed;
    uint64_t done;
    tally counts;
} run;

static bool step(run *r, pair *both, const operation *op)
{
    const char *difference = pair_apply(both, op);
    if (difference == NULL)
        difference = pair_same_state(both);
    if (difference == NULL && quire_pool_check(both->real) != QUIRE_OK)
        difference = "quire_pool_check finds the pool corrupt";
    if (difference != NULL) {
        printf("seed %llu, operation %llu\n", (unsigned long long)r->seed,
               (unsigned long long)r->done);
        pair_print(both, op, difference);
        return false;
    }
    r->counts.seen[op->kind][both->naive_result.status - LOWEST_STATUS]++;
    r->done++;
    return true;
}

/* One pool's life. */
static bool run_pool(run *r, rng *random)
{
    pair both;
    quire_pool_config wanted;
    generator gen;
    generate_config(random, &wanted, &gen);
    uint64_t secret_seed = rng_next(random);
    quire_pool_config config = pair_init(&both, &wanted, &secret_seed);
    if (quire_pool_create(&config, NULL, &both.real) != QUIRE_OK) {
        printf("seed %llu: quire_pool_create failed\n", (unsigned long long)r->seed);
        return false;
    }
    bool same = pair_same_state(&both) == NULL;
    uint32_t life = 500 + rng_below(random, 4000);
    for (uint32_t i = 0; same && i < life && r->done < r->ops; i++) {
        operation op;
        generate_operation(random, &gen, &both.naive, &op);
        same = step(r, &both, &op);
    }
    quire_pool_destroy(both.real);
    return same;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    static run r = {.ops = DEFAULT_OPS, .seed = 1};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--ops") == 0)
            r.ops = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seed") == 0)
            r.seed = strtoull(argv[i + 1], NULL, 10);
    }
    rng random = {r.seed};
    double start = seconds_now();
    while (r.done < r.ops)
        if (!run_pool(&r, &random))
            return EXIT_FAILURE;
    double seconds = seconds_now() - start;
    print_tally(&r.counts);
    if (r.ops >= OPS_THAT_SEE_ALL && !saw_all(&r.counts))
        return EXIT_FAILURE;
    printf("%llu operations, seed %llu, %.0f operations/s, 0 differences\n",
           (unsigned long long)r.done, (unsigned long long)r.seed, (double)r.done / seconds);
    return EXIT_SUCCESS;
}

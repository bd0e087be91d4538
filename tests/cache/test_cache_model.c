/* cache/test_cache_model.c - an engine's calls, made up at random, on the real cache and the naive
 * one, compared after every call.
 *
 *      seed --> mix of groups, call, call, call, ...   some hundred calls, then another mix
 *                                |     |
 *                                +-----+--> same answers, blocks, events, numbers, free queue and
 *                                           state; quire_cache_check finds nothing
 *
 * The naive cache predicts nothing and pins every hit before it takes a block, so agreement shows
 * that predicted = taken (I15), that hits are pinned first (I3), and that a call that fails changes
 * nothing (I2). Pools are tiny. At the end everything that can happen must have happened: a
 * generator that stopped reaching a case fails the test.
 *
 *      cache_model [--ops N] [--seed S] [--mix NAME]
 */
#include "base/inner.h"
#include "cache/cache_kit.h"
#include "cache/cache_mix.h"
#include "model/plain.h"

#include <time.h>

#if defined(MODEL_SLOW)
enum { DEFAULT_OPS = 60000 };
#else
enum { DEFAULT_OPS = 200000 };
#endif
/* From so many on, rare answers cannot be missing by chance. */
enum { OPS_THAT_SEE_ALL = 50000 };

typedef struct run {
    uint64_t ops;
    uint64_t seed;
    const char *only; /* the mix; NULL: all */
    uint64_t done;
    uint64_t random;
    uint32_t hash_block_size;
    cache_mix mix;
    cache_pair pair;
    pair_tally tally;
} run;

static uint32_t below(run *r, uint32_t n)
{
    return unit_random_below(&r->random, n);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool has_blocks(const run *r, const pair_request *q)
{
    return r->pair.naive.seqs[q->slot].used;
}

/* ---- a request's life --------------------------------------------------- */

/* Tokens from a connector, and of the rest some to be computed: all of them, or a chunk. */
static void draw_first_params(run *r, const pair_request *q, uint32_t num_hit,
                              quire_allocate_params *params)
{
    uint32_t rest = q->r.num_tokens - num_hit;
    params->num_new_computed_tokens = num_hit;
    if (below(r, 4) == 0)
        params->num_external_computed_tokens = below(r, rest + 1);
    rest -= params->num_external_computed_tokens;
    params->num_new_tokens = below(r, 2) == 0 ? rest : below(r, rest + 1);
    if (params->num_external_computed_tokens == 0 && params->num_new_tokens == 0)
        params->num_new_tokens = 1;
    if (params->num_external_computed_tokens > 0)
        params->delay_cache_blocks = params->num_new_tokens == 0 || below(r, 2) == 0;
    else
        params->num_lookahead_tokens = below(r, 4) == 0 ? below(r, 5) : 0;
    if (below(r, 2) == 0) /* which blocks of windows get keys */
        params->num_prompt_tokens = 1 + below(r, q->r.num_tokens);
    if (below(r, 2) == 0)
        params->shared_prefix_boundary =
            quire_cache_get_counts(r->pair.real).shared_prefix_boundary;
}

static void preempt(run *r, pair_request *q)
{
    pair_free(&r->pair, q);
    q->r.was_preempted = 1;
}

/* As an engine does when there is no room; not always, so that it is asked again in vain too. */
static void make_room(run *r)
{
    pair_request *q = &r->pair.requests[below(r, r->pair.num_requests)];
    cache_pair_compare(&r->pair);
    if (r->pair.difference == NULL && has_blocks(r, q))
        preempt(r, q);
}

static void allocate(run *r, pair_request *q, const quire_allocate_params *params)
{
    int status = pair_allocate(&r->pair, q, params, &r->tally);
    if (status == QUIRE_NO_SPACE)
        make_room(r);
    if (status != QUIRE_OK)
        return;
    q->r.num_computed_tokens +=
        params->num_new_computed_tokens + params->num_external_computed_tokens;
    q->num_allocated = q->r.num_computed_tokens + params->num_new_tokens;
    q->is_delayed = params->delay_cache_blocks;
}

static void begin(run *r, pair_request *q)
{
    quire_block_span hit[NAIVE_GROUPS];
    quire_allocate_params params = QUIRE_ALLOCATE_PARAMS_INIT;
    if (q->r.was_preempted == 0 || below(r, 4) == 0)
        cache_mix_prompt(&r->mix, &r->random, r->hash_block_size, q);
    uint32_t num_hit = pair_lookup(&r->pair, q, hit, &r->tally);
    if (r->pair.difference != NULL)
        return;
    draw_first_params(r, q, num_hit, &params);
    if (num_hit > 0 || below(r, 2) == 0)
        params.new_computed_blocks = hit;
    if (below(r, 3) == 0)
        pair_can_fit(&r->pair, q, &params, &r->tally);
    if (r->pair.difference == NULL)
        allocate(r, q, &params);
}

/* What was allocated is computed now; of drafts some are rejected. */
static void advance(run *r, pair_request *q)
{
    uint32_t accepted = q->num_allocated;
    if (q->num_allocated > q->r.num_tokens)
        accepted = q->r.num_tokens + below(r, q->num_allocated - q->r.num_tokens + 1);
    q->r.num_computed_tokens = accepted;
    if (accepted >= q->r.num_tokens)
        cache_mix_grow(r->hash_block_size, q, accepted + 1);
}

static void go_on(run *r, pair_request *q)
{
    uint32_t most = r->mix.config.max_model_len;
    if (q->num_allocated >= most) {
        pair_free(&r->pair, q);
        return;
    }
    advance(r, q);
    uint32_t left = q->r.num_tokens - q->r.num_computed_tokens;
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = 1 + below(r, left)};
    if (left == 1) {
        params.num_new_tokens += below(r, 3) == 0 ? below(r, 4) : 0;
        params.num_new_tokens = smaller(params.num_new_tokens, most - q->r.num_computed_tokens);
        params.num_lookahead_tokens = below(r, 3) == 0 ? below(r, 5) : 0;
    }
    if (below(r, 8) == 0)
        pair_can_fit(&r->pair, q, &params, &r->tally);
    if (r->pair.difference == NULL)
        allocate(r, q, &params);
}

/* ---- the rest of an engine ---------------------------------------------- */

static void evict_some(run *r)
{
    quire_block blocks[5];
    uint32_t n = below(r, 6);
    uint32_t num_blocks = r->mix.config.num_blocks;
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = below(r, num_blocks);
    if (n > 0 && below(r, 6) == 0)
        blocks[below(r, n)] = num_blocks + below(r, 3);
    pair_evict(&r->pair, blocks, n, &r->tally);
}

static void free_all(run *r)
{
    for (uint32_t i = 0; i < r->pair.num_requests; i++)
        pair_free(&r->pair, &r->pair.requests[i]);
    if (r->pair.num_ballast > 0)
        pair_drop_ballast(&r->pair);
}

static void reset(run *r)
{
    if (below(r, 3) == 0)
        free_all(r);
    pair_reset(&r->pair, &r->tally);
}

static void change_ballast(run *r)
{
    uint32_t num_free = naive_pool_get_num_free_blocks(&r->pair.naive.pool);
    if (r->pair.num_ballast > 0)
        pair_drop_ballast(&r->pair);
    else if (num_free > 0)
        pair_take_ballast(&r->pair, 1 + below(r, num_free));
}

/* ---- wrong calls -------------------------------------------------------- */

static void wrong_allocate(run *r, pair_request *q)
{
    quire_cache_request copy = q->r;
    quire_cache *cache = r->pair.real;
    quire_allocate_params params = {.size = sizeof(quire_allocate_params), .num_new_tokens = 1};
    switch (below(r, 4)) {
    case 0:
        params.num_new_tokens = 0;
        pair_must_fail(&r->pair, quire_cache_allocate_slots(cache, &copy, &params, NULL),
                       QUIRE_E_ARGUMENT, &r->tally);
        break;
    case 1:
        params.num_new_tokens = r->mix.config.max_model_len + 1 - below(r, 1);
        pair_must_fail(&r->pair, quire_cache_allocate_slots(cache, &copy, &params, NULL),
                       QUIRE_E_RANGE, &r->tally);
        break;
    case 2:
        copy.seq += UINT64_C(1) << 40;
        pair_must_fail(&r->pair, quire_cache_allocate_slots(cache, &copy, &params, NULL),
                       QUIRE_E_UNKNOWN_SEQ, &r->tally);
        break;
    default:
        pair_must_fail(&r->pair, quire_cache_allocate_slots(cache, NULL, &params, NULL),
                       QUIRE_E_ARGUMENT, &r->tally);
    }
}

static void wrong_seq(run *r, pair_request *q)
{
    quire_block_span spans[NAIVE_GROUPS];
    uint32_t counts[NAIVE_GROUPS];
    quire_cache_request copy = q->r;
    quire_cache *cache = r->pair.real;
    copy.seq ^= UINT64_C(0x5a5a) << 32 | below(r, 16);
    if (copy.seq == 0 || copy.seq == q->r.seq)
        return;
    pair_must_fail(&r->pair, quire_cache_get_blocks(cache, copy.seq, spans), QUIRE_E_UNKNOWN_SEQ,
                   &r->tally);
    pair_must_fail(&r->pair, inner_remove_skipped(cache, copy.seq, 3), QUIRE_E_UNKNOWN_SEQ,
                   &r->tally);
    pair_must_fail(&r->pair, quire_cache_get_num_common_prefix_blocks(cache, copy.seq, counts),
                   QUIRE_E_UNKNOWN_SEQ, &r->tally);
    pair_must_fail(&r->pair, quire_cache_free(cache, &copy), QUIRE_E_UNKNOWN_SEQ, &r->tally);
}

/* ---- one call ----------------------------------------------------------- */

static void act_on_request(run *r, pair_request *q)
{
    uint32_t dice = below(r, 100);
    if (!has_blocks(r, q)) {
        begin(r, q);
    } else if (q->is_delayed && dice < 60) {
        pair_cache_blocks(&r->pair, q, smaller(q->num_allocated, q->r.num_tokens));
        q->is_delayed = 0;
    } else if (dice < 75) {
        go_on(r, q);
    } else if (dice < 83) {
        preempt(r, q);
    } else if (dice < 90) {
        pair_free(&r->pair, q);
        q->r.was_preempted = 0;
    } else if (dice < 95) {
        pair_remove_skipped(&r->pair, q, smaller(q->num_allocated, q->r.num_tokens), &r->tally);
    } else {
        pair_common_prefix(&r->pair, q);
    }
}

static void act(run *r)
{
    uint32_t dice = below(r, 100);
    pair_request *q = &r->pair.requests[below(r, r->pair.num_requests)];
    if (r->pair.naive.num_step_keys > NAIVE_STEP_KEYS - NAIVE_TOKENS || dice < 12)
        pair_new_step(&r->pair);
    else if (dice < 15)
        evict_some(r);
    else if (dice < 18)
        reset(r);
    else if (dice < 22)
        change_ballast(r);
    else if (dice < 25)
        pair_take_stats(&r->pair);
    else if (dice < 28)
        wrong_allocate(r, q);
    else if (dice < 30)
        wrong_seq(r, q);
    else
        act_on_request(r, q);
}

/* ---- running ------------------------------------------------------------ */

static bool report(const run *r)
{
    printf("seed %llu, operation %llu, mix %s\n", (unsigned long long)r->seed,
           (unsigned long long)r->done, r->mix.name);
    cache_pair_print(&r->pair);
    return false;
}

/* One cache's life; at its end everything is freed, and nothing is in use any more. */
static bool run_cache(run *r)
{
    uint32_t n = below(r, cache_num_mixes());
    cache_mix_make(n, &r->random, &r->mix);
    if (r->only != NULL && strcmp(r->only, r->mix.name) != 0)
        return true;
    uint64_t secret = unit_random(&r->random);
    const char *why = cache_pair_open(&r->pair, &r->mix.config, &secret);
    if (why != NULL) {
        printf("seed %llu: mix %s cannot be made: %s\n", (unsigned long long)r->seed, r->mix.name,
               why);
        return false;
    }
    r->hash_block_size = quire_cache_get_counts(r->pair.real).hash_block_size;
    uint32_t life = 100 + below(r, 900);
    for (uint32_t i = 0; i < life && r->done < r->ops && r->pair.difference == NULL; i++) {
        act(r);
        cache_pair_compare(&r->pair);
        r->done++;
    }
    if (r->pair.difference == NULL) {
        free_all(r);
        cache_pair_compare(&r->pair);
        if (quire_cache_get_usage(r->pair.real).active != 0)
            r->pair.difference = "blocks are in use though all was freed";
    }
    bool same = r->pair.difference == NULL || report(r);
    cache_pair_close(&r->pair);
    return same;
}

static bool saw(const char *name, uint64_t count)
{
    printf("%-16s %10llu%s\n", name, (unsigned long long)count, count == 0 ? "   NEVER SEEN" : "");
    return count > 0;
}

static bool saw_all(const pair_tally *t)
{
    bool all = saw("hits", t->hits);
    all = saw("partial hits", t->partial_hits) && all;
    all = saw("exact fits", t->exact_fits) && all;
    all = saw("no space", t->no_space) && all;
    all = saw("one short", t->one_short) && all;
    all = saw("waits for a step", t->waits) && all;
    all = saw("full", t->full) && all;
    all = saw("trims", t->trims) && all;
    all = saw("external", t->externals) && all;
    all = saw("evictions", t->evictions) && all;
    all = saw("resets", t->resets) && all;
    all = saw("busy", t->busy) && all;
    all = saw("fits", t->fits) && all;
    all = saw("does not fit", t->does_not_fit) && all;
    return saw("errors", t->errors) && all;
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
        if (strcmp(argv[i], "--mix") == 0)
            r.only = argv[i + 1];
    }
    r.random = r.seed;
    double start = seconds_now();
    while (r.done < r.ops)
        if (!run_cache(&r))
            return EXIT_FAILURE;
    double seconds = seconds_now() - start;
    bool all = saw_all(&r.tally);
    if (r.only == NULL && r.ops >= OPS_THAT_SEE_ALL && !all)
        return EXIT_FAILURE;
    printf("%llu operations, seed %llu, %.0f operations/s, 0 differences\n",
           (unsigned long long)r.done, (unsigned long long)r.seed, (double)r.done / seconds);
    return EXIT_SUCCESS;
}

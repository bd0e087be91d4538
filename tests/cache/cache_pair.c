#include "cache/cache_pair.h"
#include "base/inner.h"

#include <stdio.h>
#include <string.h>

static void differ(cache_pair *pair, bool same, const char *difference)
{
    if (!same && pair->difference == NULL)
        pair->difference = difference;
}

static int seeded_bytes(void *user, void *out, size_t bytes)
{
    uint64_t state = *(const uint64_t *)user;
    unsigned char *p = out;
    for (size_t i = 0; i < bytes; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        p[i] = (unsigned char)(state >> 56);
    }
    return 0;
}

const char *cache_pair_open(cache_pair *pair, const quire_cache_config *wanted, uint64_t *seed)
{
    quire_cache_config config = *wanted;
    memset(pair, 0, sizeof *pair);
    config.on_event = event_log_add;
    config.event_user = &pair->real_log;
    config.hooks.user = seed;
    config.hooks.random_bytes = seeded_bytes;
    int status = quire_cache_create(&config, NULL, &pair->real);
    if (status != QUIRE_OK)
        return quire_status_name(status);
    pair->pool = quire_cache_get_pool(pair->real);
    naive_cache_init(&pair->naive, wanted, quire_cache_get_counts(pair->real).hash_block_size,
                     &pair->naive_log);
    pair->num_requests = NAIVE_SEQS;
    for (uint32_t i = 0; i < NAIVE_SEQS; i++) {
        pair->requests[i].slot = i;
        pair->requests[i].r.num_tokens = 1;
        pair->requests[i].r.num_hashes = 1 / pair->naive.hash_block_size;
        pair->requests[i].r.user = &pair->requests[i];
        pair->requests[i].r.hashes = pair->requests[i].hashes;
    }
    return NULL;
}

void cache_pair_close(cache_pair *pair)
{
    quire_cache_destroy(pair->real);
    pair->real = NULL;
}

/* ---- spans and answers -------------------------------------------------- */

static bool same_blocks(const naive_cache *naive, const quire_block_span *real,
                        const naive_answer *answer)
{
    for (uint32_t g = 0; g < naive->num_groups; g++) {
        if (real[g].count != answer->count[g])
            return false;
        for (uint32_t i = 0; i < real[g].count; i++)
            if (real[g].ids[i] != answer->ids[g][i])
                return false;
    }
    return true;
}

static void say_call(cache_pair *pair, const char *name, const pair_request *q,
                     const quire_allocate_params *p)
{
    static const quire_allocate_params nothing = QUIRE_ALLOCATE_PARAMS_INIT;
    if (p == NULL)
        p = &nothing;
    (void)snprintf(pair->call, sizeof pair->call,
                   "%s: request %u of %u tokens, %u computed; hit %u external %u new %u "
                   "lookahead %u delay %u",
                   name, (unsigned)q->slot, (unsigned)q->r.num_tokens,
                   (unsigned)q->r.num_computed_tokens, (unsigned)p->num_new_computed_tokens,
                   (unsigned)p->num_external_computed_tokens, (unsigned)p->num_new_tokens,
                   (unsigned)p->num_lookahead_tokens, (unsigned)p->delay_cache_blocks);
}

static void say_plain(cache_pair *pair, const char *name)
{
    (void)snprintf(pair->call, sizeof pair->call, "%s", name);
}

static void clear_logs(cache_pair *pair)
{
    event_log_clear(&pair->real_log);
    event_log_clear(&pair->naive_log);
}

static void compare_logs(cache_pair *pair)
{
    differ(pair, event_log_equal(&pair->real_log, &pair->naive_log), "the events differ");
}

/* ---- calls -------------------------------------------------------------- */

uint32_t pair_lookup(cache_pair *pair, pair_request *q, quire_block_span *hit, pair_tally *tally)
{
    naive_answer wanted;
    uint32_t num_tokens = UINT32_MAX;
    say_call(pair, "get_computed_blocks", q, NULL);
    clear_logs(pair);
    uint32_t naive_tokens = naive_cache_lookup(&pair->naive, &q->r, &wanted);
    int status = quire_cache_get_computed_blocks(pair->real, &q->r, hit, &num_tokens);
    differ(pair, status == QUIRE_OK, "get_computed_blocks failed");
    differ(pair, num_tokens == naive_tokens, "the hit's length differs");
    if (pair->difference == NULL)
        differ(pair, same_blocks(&pair->naive, hit, &wanted), "the hit's blocks differ");
    compare_logs(pair);
    tally->hits += naive_tokens > 0;
    for (uint32_t g = 0; g < pair->naive.num_groups; g++)
        tally->partial_hits += wanted.count[g] > 0 && wanted.ids[g][0] == QUIRE_NULL_BLOCK;
    return naive_tokens;
}

static void count_allocation(const cache_pair *pair, int status, pair_tally *tally)
{
    const naive_cache *naive = &pair->naive;
    tally->exact_fits += status == QUIRE_OK && naive_pool_get_num_free_blocks(&naive->pool) == 0;
    tally->no_space += status == QUIRE_NO_SPACE;
    tally->one_short += status == QUIRE_NO_SPACE && naive->short_by == 1;
    tally->waits += status == QUIRE_NO_SPACE && naive->short_by == 0;
    tally->full += status == QUIRE_FULL;
}

int pair_allocate(cache_pair *pair, pair_request *q, const quire_allocate_params *params,
                  pair_tally *tally)
{
    naive_answer wanted;
    quire_block_span got[NAIVE_GROUPS];
    say_call(pair, "allocate_slots", q, params);
    clear_logs(pair);
    quire_seq seq = q->r.seq;
    uint32_t before = pair->naive_log.num_events;
    int wanted_status = naive_cache_allocate(&pair->naive, q->slot, &q->r, params, &wanted);
    int status = quire_cache_allocate_slots(pair->real, &q->r, params, got);
    differ(pair, status == wanted_status, "allocate_slots answers differently");
    if (pair->difference == NULL && status == QUIRE_OK) {
        differ(pair, same_blocks(&pair->naive, got, &wanted), "the new blocks differ");
        differ(pair, q->r.seq != 0 && (seq == 0 || q->r.seq == seq), "seq is wrong");
    } else {
        differ(pair, q->r.seq == seq, "a failed allocate_slots wrote seq");
    }
    compare_logs(pair);
    count_allocation(pair, wanted_status, tally);
    tally->evictions += pair->naive_log.num_events > before + pair->naive.num_groups;
    tally->externals += status == QUIRE_OK && params->num_external_computed_tokens > 0;
    return wanted_status;
}

void pair_can_fit(cache_pair *pair, const pair_request *q, const quire_allocate_params *params,
                  pair_tally *tally)
{
    say_call(pair, "can_fit_full_sequence", q, params);
    clear_logs(pair);
    int wanted = naive_cache_can_fit(&pair->naive, q->slot, &q->r, params);
    int status = quire_cache_can_fit_full_sequence(pair->real, &q->r, params);
    differ(pair, status == wanted, "can_fit_full_sequence answers differently");
    compare_logs(pair);
    tally->fits += wanted == QUIRE_OK;
    tally->does_not_fit += wanted != QUIRE_OK;
}

void pair_free(cache_pair *pair, pair_request *q)
{
    say_call(pair, "free", q, NULL);
    clear_logs(pair);
    naive_cache_free(&pair->naive, q->slot);
    differ(pair, quire_cache_free(pair->real, &q->r) == QUIRE_OK, "free failed");
    differ(pair, q->r.seq == 0, "free left a seq");
    q->num_allocated = 0;
    q->r.num_computed_tokens = 0;
    compare_logs(pair);
}

void pair_remove_skipped(cache_pair *pair, pair_request *q, uint32_t num_tokens, pair_tally *tally)
{
    say_call(pair, "remove_skipped_blocks", q, NULL);
    clear_logs(pair);
    uint32_t before = naive_pool_get_num_free_blocks(&pair->naive.pool);
    naive_cache_remove_skipped(&pair->naive, q->slot, num_tokens);
    differ(pair, inner_remove_skipped(pair->real, q->r.seq, num_tokens) == QUIRE_OK,
           "remove_skipped_blocks failed");
    tally->trims += naive_pool_get_num_free_blocks(&pair->naive.pool) > before;
    compare_logs(pair);
}

void pair_cache_blocks(cache_pair *pair, pair_request *q, uint32_t num_tokens)
{
    say_call(pair, "cache_blocks", q, NULL);
    clear_logs(pair);
    naive_cache_cache_blocks(&pair->naive, q->slot, &q->r, num_tokens);
    differ(pair, quire_cache_cache_blocks(pair->real, &q->r, num_tokens) == QUIRE_OK,
           "cache_blocks failed");
    compare_logs(pair);
}

void pair_evict(cache_pair *pair, const quire_block *blocks, uint32_t num_blocks, pair_tally *tally)
{
    quire_block usable[NAIVE_MAX_BLOCKS];
    uint32_t num_usable = 0;
    say_plain(pair, "evict_blocks");
    clear_logs(pair);
    for (uint32_t i = 0; i < num_blocks; i++)
        if (blocks[i] != QUIRE_NULL_BLOCK)
            usable[num_usable++] = blocks[i];
    int wanted = naive_pool_evict_blocks(&pair->naive.pool, usable, num_usable);
    int status = inner_evict(pair->real, blocks, num_blocks);
    differ(pair, status == wanted, "evict_blocks answers differently");
    tally->errors += status < 0;
    compare_logs(pair);
}

void pair_reset(cache_pair *pair, pair_tally *tally)
{
    say_plain(pair, "reset_prefix_cache");
    clear_logs(pair);
    int wanted = naive_pool_reset_prefix_cache(&pair->naive.pool);
    int status = quire_cache_reset_prefix_cache(pair->real);
    differ(pair, status == wanted, "reset_prefix_cache answers differently");
    if (wanted == QUIRE_OK)
        pair->naive.stats.was_reset = 1;
    tally->resets += wanted == QUIRE_OK;
    tally->busy += wanted == QUIRE_BUSY;
    compare_logs(pair);
}

void pair_new_step(cache_pair *pair)
{
    say_plain(pair, "new_step_starts");
    naive_cache_new_step(&pair->naive);
    differ(pair, quire_cache_new_step_starts(pair->real) == QUIRE_OK, "new_step_starts failed");
}

void pair_common_prefix(cache_pair *pair, const pair_request *q)
{
    uint32_t wanted[NAIVE_GROUPS];
    uint32_t got[NAIVE_GROUPS];
    say_call(pair, "get_num_common_prefix_blocks", q, NULL);
    naive_cache_common_prefix(&pair->naive, q->slot, wanted);
    int status = quire_cache_get_num_common_prefix_blocks(pair->real, q->r.seq, got);
    differ(pair, status == QUIRE_OK, "get_num_common_prefix_blocks failed");
    for (uint32_t g = 0; g < pair->naive.num_groups && status == QUIRE_OK; g++)
        differ(pair, got[g] == wanted[g], "the common prefix differs");
}

void pair_take_stats(cache_pair *pair)
{
    quire_prefix_stats got;
    const quire_prefix_stats *wanted = &pair->naive.stats;
    say_plain(pair, "take_prefix_stats");
    differ(pair, quire_cache_take_prefix_stats(pair->real, &got) == QUIRE_OK, "no stats");
    differ(pair,
           got.was_reset == wanted->was_reset && got.requests == wanted->requests &&
               got.queries == wanted->queries && got.hits == wanted->hits,
           "the stats differ");
    differ(pair,
           got.preempted_requests == wanted->preempted_requests &&
               got.preempted_queries == wanted->preempted_queries &&
               got.preempted_hits == wanted->preempted_hits,
           "the stats of preempted requests differ");
    memset(&pair->naive.stats, 0, sizeof pair->naive.stats);
}

void pair_take_ballast(cache_pair *pair, uint32_t num_blocks)
{
    quire_block naive[NAIVE_MAX_BLOCKS];
    say_plain(pair, "take ballast");
    clear_logs(pair);
    quire_block *real = pair->ballast + pair->num_ballast;
    differ(pair, quire_pool_get_new_blocks(pair->pool, num_blocks, real) == QUIRE_OK, "ballast");
    naive_pool_get_new_blocks(&pair->naive.pool, num_blocks, naive);
    differ(pair, memcmp(real, naive, num_blocks * sizeof *naive) == 0, "the ballast differs");
    pair->num_ballast += num_blocks;
    compare_logs(pair);
}

void pair_drop_ballast(cache_pair *pair)
{
    say_plain(pair, "drop ballast");
    naive_pool_free_blocks(&pair->naive.pool, pair->ballast, pair->num_ballast);
    differ(pair, quire_pool_free_blocks(pair->pool, pair->ballast, pair->num_ballast) == QUIRE_OK,
           "ballast could not be freed");
    pair->num_ballast = 0;
}

void pair_must_fail(cache_pair *pair, int status, int wanted, pair_tally *tally)
{
    (void)snprintf(pair->call, sizeof pair->call, "a wrong call: %s, wanted %s",
                   quire_status_name(status), quire_status_name(wanted));
    differ(pair, status == wanted, "a wrong call is not refused as it should be");
    tally->errors++;
}

/* ---- comparing ---------------------------------------------------------- */

static bool same_info(const quire_block_info *a, const quire_block_info *b)
{
    if (a->ref_cnt != b->ref_cnt || a->state != b->state)
        return false;
    if (a->hash.data == NULL || b->hash.data == NULL)
        return a->hash.data == b->hash.data;
    return a->hash.len == b->hash.len && a->group_id == b->group_id &&
           memcmp(a->hash.data, b->hash.data, a->hash.len) == 0;
}

static void compare_pools(cache_pair *pair)
{
    quire_block real[NAIVE_MAX_BLOCKS];
    const naive_pool *naive = &pair->naive.pool;
    uint32_t num_free = quire_pool_get_all_free_blocks(pair->pool, real, NAIVE_MAX_BLOCKS);
    differ(pair, num_free == naive->num_free, "the number of free blocks differs");
    if (pair->difference == NULL)
        differ(pair, memcmp(real, naive->queue, num_free * sizeof real[0]) == 0,
               "the free queues differ");
    for (quire_block b = 0; b < naive->num_blocks; b++) {
        quire_block_info a;
        quire_block_info c;
        differ(pair, quire_pool_get_block(pair->pool, b, &a) == QUIRE_OK, "no block info");
        (void)naive_pool_get_block(naive, b, &c);
        differ(pair, same_info(&a, &c), "a block differs");
    }
    quire_usage r = quire_cache_get_usage(pair->real);
    quire_usage n = naive_pool_usage(naive);
    differ(pair,
           r.total == n.total && r.empty == n.empty && r.cached == n.cached &&
               r.active == n.active && r.null_blocks == n.null_blocks,
           "quire_cache_get_usage differs");
    differ(pair,
           quire_usage_level(quire_cache_get_usage(pair->real)) == naive_pool_get_usage(naive),
           "the level differs");
}

static void compare_request(cache_pair *pair, const pair_request *q)
{
    quire_block_span got[NAIVE_GROUPS];
    const naive_seq *s = &pair->naive.seqs[q->slot];
    differ(pair, quire_cache_get_blocks(pair->real, q->r.seq, got) == QUIRE_OK,
           "get_blocks failed");
    for (uint32_t g = 0; g < pair->naive.num_groups && pair->difference == NULL; g++) {
        differ(pair, got[g].count == s->num_blocks[g], "a request's number of blocks differs");
        if (pair->difference == NULL && got[g].count > 0)
            differ(pair, memcmp(got[g].ids, s->blocks[g], got[g].count * sizeof(quire_block)) == 0,
                   "a request's blocks differ");
    }
}

void cache_pair_compare(cache_pair *pair)
{
    if (pair->difference != NULL)
        return;
    compare_pools(pair);
    for (uint32_t i = 0; i < pair->num_requests; i++)
        compare_request(pair, &pair->requests[i]);
    differ(pair, quire_cache_get_counts(pair->real).num_seqs == naive_cache_num_seqs(&pair->naive),
           "num_seqs differs");
    differ(pair, quire_cache_check(pair->real) == QUIRE_OK, "quire_cache_check finds damage");
}

static void print_blocks(const char *name, const quire_block *blocks, uint32_t count)
{
    printf("    %s:", name);
    for (uint32_t i = 0; i < count; i++)
        printf(" %u", (unsigned)blocks[i]);
    printf("\n");
}

void cache_pair_print(const cache_pair *pair)
{
    const naive_cache *naive = &pair->naive;
    quire_block queue[NAIVE_MAX_BLOCKS];
    printf("%s\n  %s\n", pair->call, pair->difference);
    for (uint32_t g = 0; g < naive->num_groups; g++) {
        const quire_layer_spec *spec = &naive->groups[g].spec;
        printf("  group %u: kind %d, block size %u, window %u, chunk %u\n", (unsigned)g,
               (int)spec->kind, (unsigned)spec->block_size, (unsigned)spec->sliding_window,
               (unsigned)spec->attention_chunk_size);
    }
    for (uint32_t i = 0; i < pair->num_requests; i++) {
        quire_block_span got[NAIVE_GROUPS];
        const naive_seq *s = &naive->seqs[i];
        if (quire_cache_get_blocks(pair->real, pair->requests[i].r.seq, got) != QUIRE_OK)
            continue;
        for (uint32_t g = 0; g < naive->num_groups && (s->used || got[g].count > 0); g++) {
            printf("  request %u, group %u\n", (unsigned)i, (unsigned)g);
            print_blocks("real ", got[g].ids, got[g].count);
            print_blocks("naive", s->blocks[g], s->num_blocks[g]);
        }
    }
    uint32_t n = quire_pool_get_all_free_blocks(pair->pool, queue, NAIVE_MAX_BLOCKS);
    printf("  free queues\n");
    print_blocks("real ", queue, n);
    print_blocks("naive", naive->pool.queue, naive->pool.num_free);
    event_log_print("real", &pair->real_log);
    event_log_print("naive", &pair->naive_log);
}

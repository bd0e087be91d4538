/* tier/promote/plan.c - what a request needs for a longer hit, and where that is.
 *
 *      tokens        0        local      found                      target
 *      full group    | engine  | CPU pool  | file file file Redis    |  all of them, in turn
 *      window        |         |           |               file file |  the last ones before it
 *      Mamba         |         |           |                    file |  the last one
 *
 * A target suits a group when all blocks that a hit of that length needs are somewhere. A group
 * that misses one takes the target back to where that block begins, until all groups agree. The CPU
 * pool's cache then decides what is a hit.
 */
#include "tier/promote/parts.h"

/* Where a block is. */
enum {
    SOURCE_NOT_ASKED = 0,
    SOURCE_NONE = 1,
    SOURCE_CPU = 2,
    SOURCE_MOVE = 3, /* being fetched */
    SOURCE_TIER = 4, /* + tier */
    SOURCE_MAYBE = 8 /* + tier: to be asked with FIND */
};
_Static_assert(QUIRE_OFFLOAD_MAX_TIERS <= 4, "sources of tiers have four places each");

static quire_bytes hash_of(const qr_promote *promote, const qr_promote_request *request,
                           uint32_t group, uint32_t block)
{
    return qr_block_key(promote->groups[group].key_form, request->hashes, block);
}

void qr_promote_plan_key(const qr_promote *promote, const qr_promote_request *request,
                         uint32_t group, uint32_t block, quire_tier_key *key)
{
    qr_key_make(hash_of(promote, request, group, block), group, promote->rank, key);
}

/* ---- looking ----------------------------------------------------------------- */

typedef struct batch {
    quire_tier_key keys[QR_LOWER_BATCH];
    uint8_t *sources;
    uint32_t n;
} batch;

/* Asks a tier about those that nobody has for sure. */
static void ask_tier(qr_promote *promote, batch *b, uint32_t tier)
{
    quire_tier_key keys[QR_LOWER_BATCH];
    uint8_t at[QR_LOWER_BATCH];
    uint8_t found[QR_LOWER_BATCH];
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->sources[i] == SOURCE_NONE || b->sources[i] >= SOURCE_MAYBE) {
            keys[n] = b->keys[i];
            at[n++] = (uint8_t)i;
        }
    if (n == 0 || quire_tier_lookup(promote->tiers[tier].tier, keys, n, found) != QUIRE_OK)
        return;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *source = &b->sources[at[i]];
        if (found[i] == 1)
            *source = (uint8_t)(SOURCE_TIER + tier);
        else if (found[i] == 2 && *source == SOURCE_NONE)
            *source = (uint8_t)(SOURCE_MAYBE + tier);
    }
}

/* Host blocks of the group's blocks [first, first + n); the null block where there is none. Keys
 * that do not lie one behind the other are looked up one by one. */
static bool find_cached(const qr_promote *promote, const qr_promote_request *request,
                        uint32_t group, uint32_t first, uint32_t n, quire_block *blocks)
{
    const qr_key_form *form = &promote->groups[group].key_form;
    if (!form->by_last || form->joined == 1) {
        quire_bytes row = hash_of(promote, request, group, first);
        return quire_pool_get_cached_each(promote->pool, row.data, row.len, n, group, blocks) ==
               QUIRE_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        quire_bytes key = hash_of(promote, request, group, first + i);
        if (quire_pool_get_cached_block(promote->pool, key, &group, 1, &blocks[i]) != QUIRE_OK)
            blocks[i] = QUIRE_NULL_BLOCK;
    }
    return true;
}

/* Sources of the group's blocks [first, first + n). */
static void look(qr_promote *promote, const qr_promote_request *request, uint32_t group,
                 uint32_t first, uint32_t n)
{
    batch b = {.sources = promote->groups[group].sources + first, .n = n};
    quire_block blocks[QR_LOWER_BATCH];
    uint32_t tags[QR_LOWER_BATCH];
    bool is_read = find_cached(promote, request, group, first, n, blocks);
    bool has_moves = promote->num_loads > 0;
    for (uint32_t i = 0; i < n; i++) {
        qr_promote_plan_key(promote, request, group, first + i, &b.keys[i]);
        tags[i] = has_moves ? qr_slots_index_tag(&promote->index, &b.keys[i]) : 0;
        qr_prefetch(qr_slots_index_home(&promote->index, tags[i]));
        b.sources[i] = is_read && blocks[i] != QUIRE_NULL_BLOCK ? SOURCE_CPU : SOURCE_NONE;
    }
    for (uint32_t i = 0; has_moves && i < n; i++)
        if (b.sources[i] == SOURCE_NONE &&
            qr_promote_move_find_tag(promote, tags[i], &b.keys[i]) != QR_NIL)
            b.sources[i] = SOURCE_MOVE;
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        if (qr_promote_is_usable(&promote->tiers[t]))
            ask_tier(promote, &b, t);
}

/* How many blocks of a full group, from first on, are somewhere. Most prompts have nothing more, so
 * that little is asked at first. */
static uint32_t count_run(qr_promote *promote, const qr_promote_request *request, uint32_t group,
                          uint32_t first, uint32_t end)
{
    const uint8_t *sources = promote->groups[group].sources;
    uint32_t size = 1;
    for (uint32_t at = first; at < end;
         size = 4 * size < QR_LOWER_BATCH ? 4 * size : QR_LOWER_BATCH) {
        uint32_t n = end - at < size ? end - at : size;
        look(promote, request, group, at, n);
        for (uint32_t i = 0; i < n; i++)
            if (sources[at + i] == SOURCE_NONE)
                return at + i - first;
        at += n;
    }
    return end - first;
}

/* ---- agreeing ---------------------------------------------------------------- */

/* The first block that a hit of so many tokens needs. The CPU pool counts chunks of attention from
 * the engine's hit on. */
static uint32_t first_needed(const qr_promote_group *g, uint32_t tokens, uint32_t base)
{
    uint32_t end = tokens / g->block_size;
    uint32_t first = base / g->block_size;
    uint32_t start = first;
    if (g->kind == QUIRE_LAYER_MAMBA)
        start = end - 1;
    else if (g->chunk_tokens > 0)
        start = (base + (tokens - base) / g->chunk_tokens * g->chunk_tokens) / g->block_size;
    else if (g->window_blocks > 0)
        start = end > g->window_blocks ? end - g->window_blocks : 0;
    return start > first ? start : first;
}

/* The longest hit, at most so many tokens, that suits a group which does not need all blocks. */
static uint32_t suit_group(qr_promote *promote, const qr_promote_request *request, uint32_t group,
                           uint32_t target)
{
    qr_promote_group *g = &promote->groups[group];
    while (target > request->num_local) {
        uint32_t first = first_needed(g, target, request->num_local);
        uint32_t missing = QR_NIL;
        for (uint32_t end = target / g->block_size; end > first && missing == QR_NIL;) {
            uint32_t n = end - first < QR_LOWER_BATCH ? end - first : QR_LOWER_BATCH;
            if (g->sources[end - n] == SOURCE_NOT_ASKED || g->sources[end - 1] == SOURCE_NOT_ASKED)
                look(promote, request, group, end - n, n);
            for (uint32_t i = end; i-- > end - n && missing == QR_NIL;)
                if (g->sources[i] == SOURCE_NONE)
                    missing = i;
            end -= n;
        }
        if (missing == QR_NIL)
            return target;
        target = missing * g->block_size / promote->alignment * promote->alignment;
    }
    return request->num_local;
}

static uint32_t agree(qr_promote *promote, const qr_promote_request *request, uint32_t target)
{
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        if (!promote->groups[g].is_full)
            continue;
        uint32_t size = promote->groups[g].block_size;
        uint32_t first = request->num_found / size;
        if (target / size <= first)
            return request->num_found;
        target = (first + count_run(promote, request, g, first, target / size)) * size;
        target = target / promote->alignment * promote->alignment;
    }
    for (uint32_t before = 0; before != target && target > request->num_found;) {
        before = target;
        for (uint32_t g = 0; g < promote->num_groups; g++)
            if (!promote->groups[g].is_full)
                target = suit_group(promote, request, g, target);
    }
    return target;
}

/* ---- deciding ---------------------------------------------------------------- */

static uint32_t first_to_fetch(const qr_promote_group *g, const qr_promote_request *request,
                               uint32_t target)
{
    return g->is_full ? request->num_found / g->block_size
                      : first_needed(g, target, request->num_local);
}

/* The tier of a source, for its cost. */
static uint8_t tier_of(uint8_t source)
{
    if (source >= SOURCE_MAYBE)
        return (uint8_t)(source - SOURCE_MAYBE);
    return source >= SOURCE_TIER ? (uint8_t)(source - SOURCE_TIER) : QR_COSTS_FREE;
}

static void count_skipped(qr_promote *promote, const qr_cost_run *run, uint32_t first)
{
    for (uint32_t i = first; i < run->num_blocks; i++)
        if (run->sources[i] != QR_COSTS_FREE)
            qr_count_add(&promote->tiers[run->sources[i]].counters.skipped_tokens,
                         (uint64_t)run->block_tokens);
}

/* How far of the target is worth it: with one group any block, else all or nothing, since another
 * target would need other blocks. */
static uint32_t decide(qr_promote *promote, const qr_promote_request *request,
                       const qr_record *record, uint32_t target)
{
    qr_cost_run run = {.sources = promote->run,
                       .block_bytes = (double)promote->block_bytes,
                       .is_covered = !record->is_urgent};
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        const qr_promote_tier *tier = &promote->tiers[t];
        uint32_t before = tier->queues[QR_QUEUE_LOAD].count + tier->loads_on_time;
        run.queued_bytes[t] = (double)before * run.block_bytes;
    }
    uint32_t num_paid = 0;
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        const qr_promote_group *group = &promote->groups[g];
        uint32_t end = target / group->block_size;
        for (uint32_t i = first_to_fetch(group, request, target); i < end; i++) {
            uint8_t tier = tier_of(group->sources[i]);
            promote->run[run.num_blocks++] = tier;
            num_paid += tier != QR_COSTS_FREE ? 1 : 0;
        }
    }
    run.block_tokens = (double)(target - request->num_found) / run.num_blocks;
    uint32_t split = qr_costs_split(&promote->costs, &run);
    if (promote->is_single) {
        uint32_t room =
            promote->max_loads > record->num_taken ? promote->max_loads - record->num_taken : 0;
        count_skipped(promote, &run, split);
        split = split < room ? split : room;
        return request->num_found + split * promote->groups[0].block_size;
    }
    if (split == 0)
        count_skipped(promote, &run, 0);
    return split > 0 && num_paid + record->num_taken <= promote->max_loads ? target
                                                                           : request->num_found;
}

/* ---- fetching ---------------------------------------------------------------- */

/* false: no room. */
static bool fetch_block(qr_promote *promote, const qr_promote_request *request, uint32_t record,
                        uint32_t group, uint32_t block, const quire_tier_key *key, uint32_t tag)
{
    const qr_promote_group *g = &promote->groups[group];
    uint8_t source = g->sources[block];
    qr_record *r = &promote->records[record];
    qr_assert_internal(request->hashes != NULL);
    uint32_t move = qr_promote_move_find_tag(promote, tag, key);
    if (move == QR_NIL) {
        bool is_full = !r->is_urgent && promote->num_loads >= promote->max_loads / 2;
        if (source < SOURCE_TIER || promote->free_waiter == QR_NIL || is_full)
            return false;
        move = qr_promote_move_new_load(promote, key, tag, tier_of(source));
        if (move == QR_NIL)
            return false;
        if (promote->hash_bytes > QUIRE_TIER_HASH_BYTES)
            memcpy(promote->long_hashes + (size_t)move * promote->hash_bytes,
                   hash_of(promote, request, group, block).data, g->hash_len);
        promote->moves[move].is_ahead = !r->is_urgent;
        bool must_find = source >= SOURCE_MAYBE && !promote->tiers[tier_of(source)].loads_unknown;
        qr_promote_queue_push(promote, move,
                              must_find      ? QR_QUEUE_FIND
                              : r->is_urgent ? QR_QUEUE_LOAD
                                             : QR_QUEUE_AHEAD,
                              false);
        r->num_taken++;
    }
    if (!qr_promote_move_await(promote, move, record, block * g->block_size))
        return false;
    uint8_t bit = (uint8_t)(1u << promote->moves[move].tier);
    r->tiers |= bit;
    r->load_tiers |= promote->moves[move].queue == QR_QUEUE_FIND ? 0 : bit;
    return true;
}

/* Those of a group's blocks [first, end) that the CPU pool has not; their places in the index of
 * moves are asked for together. false: no room for all. */
static bool fetch_blocks(qr_promote *promote, const qr_promote_request *request, uint32_t record,
                         uint32_t group, uint32_t first, uint32_t end)
{
    quire_tier_key keys[QR_LOWER_BATCH];
    uint32_t blocks[QR_LOWER_BATCH];
    uint32_t tags[QR_LOWER_BATCH];
    for (uint32_t at = first; at < end;) {
        uint32_t n = 0;
        for (; at < end && n < QR_LOWER_BATCH; at++) {
            if (promote->groups[group].sources[at] == SOURCE_CPU)
                continue;
            blocks[n] = at;
            qr_promote_plan_key(promote, request, group, at, &keys[n]);
            tags[n] = qr_slots_index_tag(&promote->index, &keys[n]);
            qr_prefetch_write(qr_slots_index_home(&promote->index, tags[n]));
            n++;
        }
        for (uint32_t i = 0; i < n; i++)
            if (!fetch_block(promote, request, record, group, blocks[i], &keys[i], tags[i]))
                return false;
    }
    return true;
}

static void forget_sources(qr_promote *promote, const qr_promote_request *request, uint32_t target)
{
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        uint32_t first = request->num_local / promote->groups[g].block_size;
        memset(promote->groups[g].sources + first, SOURCE_NOT_ASKED,
               target / promote->groups[g].block_size - first);
    }
}

/* The longest hit that there could be; at most num_found: none longer. */
static uint32_t longest_target(const qr_promote *promote, const qr_promote_request *request,
                               const qr_record *record)
{
    uint64_t hashed = (uint64_t)request->num_hashes * promote->hash_size;
    uint64_t target = request->num_tokens > 0 ? request->num_tokens - 1 : 0;
    target = hashed < target ? hashed : target;
    target = record->limit < target ? record->limit : target;
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        const qr_promote_group *group = &promote->groups[g];
        uint64_t most = (uint64_t)group->max_blocks * group->block_size;
        target = most < target ? most : target;
        if (request->num_local % group->block_size != 0)
            return 0;
    }
    return (uint32_t)(target / promote->alignment * promote->alignment);
}

/* With one group: whether the block behind those that were found is somewhere. */
bool qr_promote_has_next(qr_promote *promote, const qr_promote_request *request)
{
    const qr_promote_group *g = &promote->groups[0];
    uint32_t next = request->num_found / g->block_size;
    if (next >= g->max_blocks || next >= request->num_hashes) /* one group alone joins no hashes */
        return false;
    look(promote, request, 0, next, 1);
    return g->sources[next] != SOURCE_NONE;
}

uint32_t qr_promote_plan_fetch(qr_promote *promote, const qr_promote_request *request,
                               uint32_t record)
{
    qr_record *r = &promote->records[record];
    uint32_t target = longest_target(promote, request, r);
    if (request->num_found < request->num_local || target <= request->num_found)
        return 0;
    if (!promote->is_single)
        forget_sources(promote, request, target);
    target = agree(promote, request, target);
    if (target <= request->num_found)
        return 0;
    uint32_t worth = decide(promote, request, r, target);
    if (worth < target)
        r->limit = worth;
    if (worth <= request->num_found)
        return 0;
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        const qr_promote_group *group = &promote->groups[g];
        uint32_t end = worth / group->block_size;
        if (!fetch_blocks(promote, request, record, g, first_to_fetch(group, request, worth), end))
            break;
    }
    return r->pending;
}

void qr_promote_plan_hurry(qr_promote *promote, const qr_promote_request *request)
{
    const qr_record *r = &promote->records[quire_req_index(request->req)];
    uint32_t target = longest_target(promote, request, r);
    /* With one group, what is behind its own is others'. */
    uint32_t left = promote->is_single ? r->pending : UINT32_MAX;
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        const qr_promote_group *group = &promote->groups[g];
        uint32_t end = target / group->block_size;
        for (uint32_t i = request->num_local / group->block_size; i < end && left > 0; i++) {
            quire_tier_key key;
            qr_promote_plan_key(promote, request, g, i, &key);
            uint32_t move = qr_promote_move_find(promote, &key);
            if (move == QR_NIL)
                continue;
            left--;
            promote->moves[move].is_ahead = false;
            if (promote->moves[move].queue != QR_QUEUE_AHEAD)
                continue;
            qr_promote_queue_remove(promote, move);
            qr_promote_queue_push(promote, move, QR_QUEUE_LOAD, false);
        }
    }
}

/* The keys of one group stand for those of all: tiers evict by them what is needed last. */
void qr_promote_plan_expect(qr_promote *promote, const qr_promote_request *request)
{
    qr_record *r = &promote->records[quire_req_index(request->req)];
    const qr_promote_group *g = &promote->groups[promote->count_group];
    uint32_t first = request->num_local / g->block_size;
    uint32_t end = longest_target(promote, request, r) / g->block_size;
    if (end <= first || !promote->looks_ahead)
        return;
    for (uint32_t i = first; i < end; i++)
        qr_promote_plan_key(promote, request, promote->count_group, i,
                            &promote->expected[i - first]);
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        if (promote->tiers[t].looks_ahead)
            quire_tier_expect(promote->tiers[t].tier, r->req, promote->next_order,
                              promote->expected, end - first);
    promote->next_order++;
    r->is_expected = true;
}

void qr_promote_plan_unexpect(qr_promote *promote, qr_record *record)
{
    for (uint32_t t = 0; t < promote->num_tiers && record->is_expected; t++)
        if (promote->tiers[t].looks_ahead)
            quire_tier_expect(promote->tiers[t].tier, record->req, 0, NULL, 0);
    record->is_expected = false;
}

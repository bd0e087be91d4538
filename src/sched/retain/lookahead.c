#include "sched/retain/lookahead.h"

#include "base/bits.h"
#include "sched/sched.h"

/* So many requests are looked at in one step, and all of them again in so many steps: before what
 * was computed for the first of them can be evicted. */
enum { NEW_IN_STEP = QR_AT_A_TIME(8, 2), AGAIN_IN_STEPS = QR_AT_A_TIME(32, 2) };
/* Enough is enough: blocks that are looked up in one step, before the last request. */
enum { BLOCKS_IN_STEP = QR_AT_A_TIME(4096, 2) };
/* While rows name 1 / LISTED_PART of the pool, no further request is looked at. */
enum { LISTED_PART = 4 };

/* ---- the furthest ---------------------------------------------------------- */

static quire_block *ahead_row(const qr_lookahead *a, uint32_t entry)
{
    return a->rows + (size_t)entry * a->row_blocks;
}

/* Whether request a is served after b. FCFS serves those that are held up before the others. */
static bool is_further(const quire_sched *s, uint32_t a, uint32_t b)
{
    const qr_waiter *x = &s->table.waiters[a];
    const qr_waiter *y = &s->table.waiters[b];
    if (s->settings.policy == QUIRE_POLICY_PRIORITY)
        return qr_waiter_before(y, x);
    return x->queue != y->queue ? x->queue == s->queues.waiting.number : x->order > y->order;
}

typedef bool ahead_test(const quire_sched *s, uint32_t entry);

static bool is_any(const quire_sched *s, uint32_t entry)
{
    return entry < s->ahead.num;
}

static bool has_blocks(const quire_sched *s, uint32_t entry)
{
    return s->ahead.entries[entry].num_blocks > 0;
}

/* Its deepest block is in the free queue. Where it is in use, those before it mostly are too. */
static bool ends_free(const quire_sched *s, uint32_t entry)
{
    uint32_t n = s->ahead.entries[entry].num_blocks;
    return n > 0 && qr_queue_is_kept(&s->cache->pool->queue, ahead_row(&s->ahead, entry)[n - 1]);
}

/* The entry, of those that pass the test, whose request is served last; QR_NIL: none passes. */
static uint32_t find_furthest(const quire_sched *s, ahead_test *test)
{
    const qr_lookahead *a = &s->ahead;
    uint32_t furthest = QR_NIL;
    for (uint32_t i = 0; i < a->num; i++)
        if (test(s, i) &&
            (furthest == QR_NIL || is_further(s, a->entries[i].index, a->entries[furthest].index)))
            furthest = i;
    return furthest;
}

static void give_last(quire_sched *s, uint32_t entry)
{
    qr_lookahead *a = &s->ahead;
    qr_ahead *e = &a->entries[entry];
    quire_block last = ahead_row(a, entry)[--e->num_blocks];
    a->num_listed--;
    qr_queue_unwant(&s->cache->pool->queue, last);
    uint32_t num_tokens = e->num_blocks * s->cache->groups[0].block_size;
    e->num_tokens = e->num_tokens < num_tokens ? e->num_tokens : num_tokens;
}

/* See quire_pool. Every block that is kept back is in a row, so this ends. Where no row ends with a
 * free block, the furthest gives up what is in use behind its free ones. */
static void release_kept(void *keeper, uint32_t n)
{
    quire_sched *s = keeper;
    qr_lookahead *a = &s->ahead;
    while (qr_queue_num_others(&s->cache->pool->queue) < n) {
        if (a->furthest == QR_NIL || !ends_free(s, a->furthest))
            a->furthest = find_furthest(s, ends_free);
        if (a->furthest != QR_NIL) {
            give_last(s, a->furthest);
            continue;
        }
        uint32_t entry = find_furthest(s, has_blocks);
        while (has_blocks(s, entry) && !ends_free(s, entry))
            give_last(s, entry);
    }
}

/* ---- making ---------------------------------------------------------------- */

void qr_lookahead_carve(qr_lookahead *a, qr_arena *arena, const quire_sched_config *c)
{
    bool is_on = c->lookahead > 0;
    uint32_t row = is_on ? qr_cache_most_full_blocks(c->cache) : 0;
    a->entries = qr_arena_take(arena, c->lookahead, sizeof *a->entries);
    a->rows = qr_arena_take(arena, (size_t)c->lookahead * row, sizeof *a->rows);
    a->spare = qr_arena_take(arena, row, sizeof *a->spare);
    a->entry_of = qr_arena_take(arena, is_on ? c->max_requests : 0, sizeof *a->entry_of);
    a->wanted = qr_arena_take(arena, is_on ? c->cache->num_blocks : 0, sizeof *a->wanted);
}

void qr_lookahead_init(quire_sched *s, const quire_sched_config *c)
{
    qr_lookahead *a = &s->ahead;
    a->max = c->lookahead;
    a->num = 0;
    a->num_listed = 0;
    a->last = QR_NIL;
    a->turn = 0;
    a->furthest = QR_NIL;
    if (a->max == 0)
        return;
    a->row_blocks = qr_cache_most_full_blocks(c->cache);
    memset(a->wanted, 0, c->cache->num_blocks * sizeof *a->wanted);
    for (uint32_t i = 0; i < c->max_requests; i++)
        a->entry_of[i] = QR_NIL;
    s->cache->pool->queue.wanted = a->wanted;
    s->cache->pool->release_kept = release_kept;
    s->cache->pool->keeper = s;
}

/* ---- entries --------------------------------------------------------------- */

static void unwant_row(quire_sched *s, uint32_t entry)
{
    const qr_lookahead *a = &s->ahead;
    const quire_block *row = ahead_row(a, entry);
    for (uint32_t i = a->entries[entry].num_blocks; i-- > 0;) /* the tail is evicted first */
        qr_queue_unwant(&s->cache->pool->queue, row[i]);
}

void qr_lookahead_drop(quire_sched *s, uint32_t index)
{
    qr_lookahead *a = &s->ahead;
    uint32_t entry = a->entry_of[index];
    if (entry == QR_NIL)
        return;
    unwant_row(s, entry);
    a->num_listed -= a->entries[entry].num_blocks;
    a->furthest = QR_NIL;
    a->entry_of[index] = QR_NIL;
    uint32_t last = --a->num;
    if (entry == last)
        return;
    a->entries[entry] = a->entries[last];
    a->entry_of[a->entries[entry].index] = entry;
    memcpy(ahead_row(a, entry), ahead_row(a, last), a->entries[last].num_blocks * sizeof *a->rows);
}

void qr_lookahead_drop_all(quire_sched *s)
{
    while (s->ahead.num > 0)
        qr_lookahead_drop(s, s->ahead.entries[s->ahead.num - 1].index);
}

/* The blocks of its hit, group by group, first to last; *num_tokens of them. */
static uint32_t list_hit(quire_sched *s, uint32_t index, uint32_t *num_tokens)
{
    qr_lookahead *a = &s->ahead;
    uint32_t n = 0;
    qr_sched_show_all_hashes(s, index);
    qr_cache_get_computed_blocks(s->cache, &s->table.requests[index].kv, s->room.spans, num_tokens);
    for (uint32_t g = 0; g < s->cache->num_groups; g++)
        for (uint32_t i = 0; i < s->room.spans[g].count && n < a->row_blocks; i++)
            if (s->room.spans[g].ids[i] != QUIRE_NULL_BLOCK)
                a->spare[n++] = s->room.spans[g].ids[i];
    return n;
}

static uint32_t fill_entry(quire_sched *s, uint32_t entry)
{
    qr_lookahead *a = &s->ahead;
    qr_ahead *e = &a->entries[entry];
    uint32_t num_tokens;
    uint32_t n = list_hit(s, e->index, &num_tokens);
    for (uint32_t i = 0; i < n; i++)
        qr_queue_want(&s->cache->pool->queue, a->spare[i]);
    unwant_row(s, entry); /* after that: what is in both stays where it is */
    memcpy(ahead_row(a, entry), a->spare, n * sizeof *a->rows);
    a->num_listed += n;
    a->num_listed -= e->num_blocks;
    e->num_blocks = n;
    e->num_tokens = num_tokens;
    a->furthest = QR_NIL;
    return n;
}

static uint32_t add_entry(quire_sched *s, uint32_t index)
{
    qr_lookahead *a = &s->ahead;
    uint32_t entry = a->num++;
    a->entries[entry] = (qr_ahead){.index = index};
    a->entry_of[index] = entry;
    return fill_entry(s, entry);
}

/* Has no blocks of its own, and may find some. */
static bool may_hit(const quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    return s->ahead.entry_of[index] == QR_NIL && r->kv.seq == 0 && r->num_saved == 0 &&
           r->kv.skip_reading_prefix == 0;
}

/* What the nearest need is worth more: the furthest are looked at later. */
uint32_t qr_lookahead_add(quire_sched *s, uint32_t index)
{
    qr_lookahead *a = &s->ahead;
    if (!may_hit(s, index))
        return 0;
    if (a->num == a->max) {
        uint32_t furthest = a->entries[find_furthest(s, is_any)].index;
        if (!is_further(s, furthest, index))
            return 0;
        qr_lookahead_drop(s, furthest);
        a->last = QR_NIL; /* it has no entry any more: from the head again */
    }
    return add_entry(s, index);
}

/* ---- a step ---------------------------------------------------------------- */

/* The next of the queue that has no entry; with PRIORITY the heap's order is near enough. */
static uint32_t next_to_look_at(quire_sched *s)
{
    qr_lookahead *a = &s->ahead;
    const qr_waiting *q = &s->queues.waiting;
    if (q->policy == QUIRE_POLICY_PRIORITY) {
        uint32_t n = q->count < a->max ? q->count : a->max;
        for (uint32_t i = 0; i < n && i < NEW_IN_STEP; i++) {
            uint32_t index = q->heap[a->turn++ % n];
            if (may_hit(s, index))
                return index;
        }
        return QR_NIL;
    }
    bool goes_on = a->last != QR_NIL && q->waiters[a->last].queue == q->number;
    uint32_t at = goes_on ? a->last : q->sentinel;
    for (uint32_t i = 0; i < a->max; i++) {
        at = q->waiters[at].link.next;
        if (at == q->sentinel)
            return QR_NIL;
        a->last = at;
        if (may_hit(s, at))
            return at;
    }
    return QR_NIL;
}

/* More rows than that find a few more hits, but preempted requests have more tokens to compute
 * again: docs/decisions/014. A block counts once for each row. */
static bool lists_enough(const quire_sched *s)
{
    return s->ahead.num_listed >= s->cache->pool->queue.num_blocks / LISTED_PART;
}

/* Whether the block behind its hit was computed since. */
static bool has_grown(const quire_sched *s, const qr_ahead *e)
{
    const qr_request *r = &s->table.requests[e->index];
    uint32_t next = e->num_tokens / s->settings.hash_block_size;
    if (next >= r->kv.num_hashes || s->cache->groups[0].block_size != s->settings.hash_block_size)
        return false;
    qr_key key = {qr_text_hash(&s->texts.store, &r->text, next), s->texts.store.digest_bytes, 0};
    return qr_map_get(&s->cache->pool->map, key) != QUIRE_NULL_BLOCK;
}

void qr_lookahead_turn(quire_sched *s)
{
    qr_lookahead *a = &s->ahead;
    uint32_t num_blocks = 0;
    uint32_t head = s->queues.waiting.count > 0 ? qr_waiting_peek(&s->queues.waiting) : QR_NIL;
    a->furthest = QR_NIL; /* requests may have changed their queue */
    if (head != QR_NIL)
        num_blocks += qr_lookahead_add(s, head);
    for (uint32_t i = 0; i < NEW_IN_STEP && s->queues.waiting.count > 0; i++) {
        bool has_place = a->num < a->max && num_blocks < BLOCKS_IN_STEP && !lists_enough(s);
        uint32_t index = has_place ? next_to_look_at(s) : QR_NIL;
        if (index == QR_NIL)
            break;
        num_blocks += add_entry(s, index);
    }
    uint32_t num_again = (a->num + AGAIN_IN_STEPS - 1) / AGAIN_IN_STEPS;
    for (uint32_t i = 0; i < num_again && num_blocks < BLOCKS_IN_STEP; i++) {
        uint32_t entry = a->turn++ % a->num;
        if (has_grown(s, &a->entries[entry]))
            num_blocks += fill_entry(s, entry);
    }
}

/* ---- checking -------------------------------------------------------------- */

bool qr_lookahead_is_valid(const quire_sched *s)
{
    const qr_lookahead *a = &s->ahead;
    uint64_t num_listed = 0;
    uint64_t num_wanted = 0;
    if (a->num > a->max)
        return false;
    for (uint32_t i = 0; i < a->num; i++) {
        const qr_ahead *e = &a->entries[i];
        if (e->index >= s->settings.max_requests || a->entry_of[e->index] != i ||
            s->table.waiters[e->index].queue == 0 || e->num_blocks > a->row_blocks)
            return false;
        num_listed += e->num_blocks;
    }
    for (uint32_t b = 0; a->max > 0 && b < s->cache->pool->queue.num_blocks; b++)
        num_wanted += a->wanted[b] & QR_QUEUE_MAX_WANTED;
    return num_listed == a->num_listed && num_wanted == num_listed;
}

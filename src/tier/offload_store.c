#include "tier/offload_store.h"

#include "tier/offload_carts.h"
#include "tier/offload_match.h"
#include "tier/offload_protect.h"
#include "tier/system.h"

enum { LOOK_AT_ONCE = 64 };

/* Blocks that are chosen: of the first num_taken both have a user more already. */
typedef struct store_round {
    quire_block *gpu;
    quire_block *cpu;
    uint32_t count;
    uint32_t num_taken;
    uint32_t num_free; /* CPU blocks that are left for others */
    uint32_t num_left; /* blocks that may be chosen */
} store_round;

/* ---- choosing -------------------------------------------------------------- */

/* In the default profile what requests far behind in the queue will need gives way. */
static bool has_room(quire_offload *o, store_round *round)
{
    while (round->num_free == 0 || round->num_left == 0) {
        bool gave_way = round->num_left > 0 && qr_protect_give_way(o);
        if (!gave_way && round->num_left > 0 && o->match.is_pinned) {
            qr_match_release(o); /* it is looked up again when its request is asked for */
            gave_way = true;
        }
        if (!gave_way) {
            qr_count(&o->counters.no_room, 1);
            return false;
        }
        uint32_t promised = round->count - round->num_taken;
        uint32_t num_free = quire_pool_get_num_free_blocks(o->cpu);
        round->num_free = num_free > promised ? num_free - promised : 0;
    }
    return true;
}

/* ---- choosing, as vLLM ------------------------------------------------------ */

static void choose(store_round *round, quire_block gpu)
{
    round->gpu[round->count++] = gpu;
    round->num_free--;
    round->num_left--;
}

/* A block may have so many users that there is no room for one more: it is not stored. Returns how
 * many are. */
static uint32_t hold_chosen(quire_offload *o, quire_block *gpu, quire_block *cpu, uint32_t n,
                            store_round *round)
{
    if (qr_gpu_hold(o, gpu, n) == QUIRE_OK)
        return n;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (qr_gpu_hold(o, &gpu[i], 1) != QUIRE_OK) {
            quire_pool_free_blocks(o->cpu, &cpu[i], 1);
            continue;
        }
        gpu[kept] = gpu[i];
        cpu[kept++] = cpu[i];
    }
    round->count = round->num_taken + kept;
    return kept;
}

/* CPU blocks for those that were chosen, and a user more for both. Keys come with the content. */
static void take_chosen(quire_offload *o, store_round *round)
{
    uint32_t n = round->count - round->num_taken;
    quire_block *gpu = round->gpu + round->num_taken;
    quire_block *cpu = round->cpu + round->num_taken;
    if (n == 0 || quire_pool_get_new_blocks(o->cpu, n, cpu) != QUIRE_OK) {
        round->count = round->num_taken;
        return;
    }
    n = hold_chosen(o, gpu, cpu, n, round);
    for (uint32_t i = 0; i < n; i++)
        qr_bit_set(o->is_storing, gpu[i]);
    round->num_taken = round->count;
    qr_count(&o->counters.stores_in_flight, n);
}

/* ---- choosing, without its faults -------------------------------------------- */

/* Stores those of n GPU blocks that are not in the CPU pool. The CPU blocks have keys at once, so
 * that nobody else stores these; they are no hits yet: offload_match.c ends a hit before a block
 * that is pending. Returns how many are done with: fewer than n when there is no room;
 * num_with_key: how many before the first that has no key. */
static uint32_t take_missing(quire_offload *o, const quire_block *gpu, uint32_t n,
                             store_round *round, uint32_t *num_with_key)
{
    uint32_t done = 0;
    *num_with_key = 0;
    while (done < n) {
        quire_same same = {0};
        quire_block *from = round->gpu + round->count;
        quire_block *to = round->cpu + round->count;
        uint32_t most = n - done < round->num_left ? n - done : round->num_left;
        if (quire_pool_take_same(o->cpu, o->gpu, gpu + done, most, from, to, &same) != QUIRE_OK)
            break;
        for (uint32_t i = 0; o->is_lazy && i < same.num_taken; i++)
            qr_bit_set(o->is_storing, from[i]);
        *num_with_key += *num_with_key == done ? same.num_with_key : 0;
        done += same.num_done;
        round->count += same.num_taken;
        round->num_taken = round->count;
        round->num_left -= same.num_taken;
        o->num_flight += same.num_taken;
        qr_count(&o->counters.stores_in_flight, same.num_taken);
        round->num_free = quire_pool_get_num_free_blocks(o->cpu);
        if (done < n && !has_room(o, round))
            break;
    }
    return done;
}

/* ---- eager ----------------------------------------------------------------- */

/* A block that left the window may be another's by now, who has not computed it yet. In vLLM it is
 * stored all the same; here only where it is still the request's own, or nobody's. */
static bool is_anothers(const quire_offload *o, const quire_block_span *own, uint32_t at,
                        quire_block gpu)
{
    quire_block_info info;
    if (at < own->count && own->ids[at] == gpu)
        return false;
    return quire_pool_block_info(o->gpu, gpu, &info) == QUIRE_OK && info.ref_cnt > 0;
}

/* How many of count blocks are computed. A request that was preempted has fewer tokens than it has
 * placeholders of steps in flight; vLLM cuts the list at a negative number then, which in Python is
 * counted from its end. */
static uint32_t num_ready(const quire_offload *o, int64_t confirmed, uint32_t block_size,
                          uint32_t count)
{
    if (confirmed >= 0)
        return (uint64_t)confirmed / block_size < count ? (uint32_t)confirmed / block_size : count;
    uint32_t missing = (uint32_t)((block_size - 1 - confirmed) / block_size);
    return o->is_vllm && missing < count ? count - missing : 0;
}

/* A part of a request's row in a group. */
typedef struct store_part {
    const quire_block *row;
    const quire_block_span *own; /* those that the request has now */
    uint32_t first;
    uint32_t num_blocks;
    uint32_t found_from; /* these were found in the CPU pool when it came */
    uint32_t found_before;
} store_part;

/* Chooses of a part's blocks, looked at together: what one waits for, memory, comes for all.
 * Returns how many are done with; fewer than there are: the next one has no key yet, or there is no
 * room. */
static uint32_t scan_part_vllm(quire_offload *o, const store_part *part, store_round *round,
                               bool *is_full)
{
    quire_block found[LOOK_AT_ONCE];
    const quire_block *blocks = part->row + part->first;
    quire_pool_find_same(o->cpu, o->gpu, blocks, part->num_blocks, found);
    for (uint32_t i = 0; i < part->num_blocks; i++) {
        if (blocks[i] == QUIRE_NULL_BLOCK)
            continue;
        if (found[i] == UINT32_MAX)
            return i;
        if (found[i] != QUIRE_NULL_BLOCK || qr_bit_get(o->is_storing, blocks[i]))
            continue;
        *is_full = !has_room(o, round);
        if (*is_full)
            return i;
        choose(round, blocks[i]);
    }
    return part->num_blocks;
}

static uint32_t scan_part(quire_offload *o, const store_part *part, store_round *round,
                          bool *is_full)
{
    quire_block gpu[LOOK_AT_ONCE];
    uint32_t places[LOOK_AT_ONCE];
    uint32_t num_with_key;
    const quire_block *blocks = part->row + part->first;
    uint32_t n = 0;
    for (uint32_t i = 0; i < part->num_blocks; i++) {
        uint32_t at = part->first + i;
        bool is_there = at >= part->found_from && at < part->found_before;
        if (blocks[i] == QUIRE_NULL_BLOCK || is_there || is_anothers(o, part->own, at, blocks[i]))
            continue;
        places[n] = i;
        gpu[n++] = blocks[i];
    }
    *is_full = take_missing(o, gpu, n, round, &num_with_key) < n;
    return num_with_key < n ? places[num_with_key] : part->num_blocks;
}

/* False when the CPU pool is full. */
static bool scan_group(quire_offload *o, uint32_t index, uint32_t g, int64_t confirmed,
                       const quire_block_span *own, store_round *round)
{
    size_t at = (size_t)index * o->num_groups + g;
    const quire_block *row = own->ids;
    uint32_t count = own->count;
    if (o->has_rows) {
        row = o->rows + (size_t)index * o->row_blocks + o->groups[g].row_start;
        count = o->row_count[at];
    }
    uint32_t end = num_ready(o, confirmed, o->groups[g].block_size, count);
    const qr_offload_req *r = &o->reqs[index];
    uint32_t size = o->groups[g].block_size;
    bool is_full = false;
    while (o->num_stored[at] < end) {
        uint32_t left = end - o->num_stored[at];
        store_part part = {.row = row,
                           .own = own,
                           .first = o->num_stored[at],
                           .num_blocks = left < LOOK_AT_ONCE ? left : LOOK_AT_ONCE,
                           .found_from = (r->loaded_from + size - 1) / size,
                           .found_before = r->loaded_to / size};
        uint32_t done = o->is_vllm ? scan_part_vllm(o, &part, round, &is_full)
                                   : scan_part(o, &part, round, &is_full);
        o->num_stored[at] += done;
        if (done < part.num_blocks)
            break;
    }
    return !is_full;
}

/* What it has, and how many of its tokens are computed; false: it is not there any more. */
static bool read_request(const quire_offload *o, const qr_offload_req *r, quire_block_span *own,
                         int64_t *confirmed)
{
    quire_req_info info;
    if (quire_sched_req_info(o->sched, r->req, &info) != QUIRE_OK ||
        quire_sched_get_blocks(o->sched, r->req, own) != QUIRE_OK)
        return false;
    *confirmed = (int64_t)info.num_computed_tokens - info.num_output_placeholders;
    return true;
}

/* With fewer computed tokens than this, a look at the request would find nothing. */
static uint32_t find_next_ready(const quire_offload *o, uint32_t index)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        uint32_t stored = o->num_stored[(size_t)index * o->num_groups + g];
        uint32_t tokens = (stored + 1) * o->groups[g].block_size;
        least = tokens < least ? tokens : least;
    }
    return least;
}

static void scan_request(quire_offload *o, qr_offload_req *r, store_round *round)
{
    uint32_t index = (uint32_t)(r - o->reqs);
    quire_block_span own[QR_OFFLOAD_MAX_GROUPS];
    int64_t confirmed;
    if (!read_request(o, r, own, &confirmed))
        return;
    for (uint32_t g = 0; g < o->num_groups; g++)
        if (!scan_group(o, index, g, confirmed, &own[g], round))
            break;
    if (o->is_vllm)
        take_chosen(o, round);
    o->next_ready[index] = find_next_ready(o, index);
}

/* ---- eager, of many requests together ---------------------------------------- */

/* Where no group has a window: the blocks of a step's requests in one row, so that what one waits
 * for, memory, comes while others are at their turn.
 *
 *      blocks   | of request 7 | of 12 | 12 | of 3 ..      parts: without what a request has loaded
 */
enum { GATHERED = 256 };

typedef struct gathered_part {
    uint32_t index; /* of the request */
    uint32_t group;
    uint32_t from;  /* num_stored before it, */
    uint32_t start; /* and its first block's place in the request's row */
    uint32_t first; /* of its blocks, in the gathering */
    uint32_t count;
    uint32_t place; /* of the request in the step; QR_NIL: in none */
} gathered_part;

typedef struct gathering {
    uint32_t count;
    uint32_t num_parts;
    bool is_full; /* there was no room for all */
    quire_block blocks[GATHERED];
    gathered_part parts[GATHERED];
} gathering;

static uint32_t count_with_key(const quire_offload *o, const quire_block *blocks, uint32_t n)
{
    quire_block_info info;
    uint32_t i = 0;
    while (i < n && quire_pool_block_info(o->gpu, blocks[i], &info) == QUIRE_OK &&
           info.hash.data != NULL)
        i++;
    return i;
}

/* One without a key, or without room, and what is behind it, is for the next look. */
static void end_part(quire_offload *o, const gathering *all, const gathered_part *part,
                     uint32_t num_done, uint32_t num_with_key)
{
    uint32_t *num_stored = &o->num_stored[(size_t)part->index * o->num_groups + part->group];
    uint32_t n = part->count;
    if (part->first + n > num_done)
        n = num_done > part->first ? num_done - part->first : 0;
    if (part->first + n > num_with_key)
        n = count_with_key(o, all->blocks + part->first, n);
    if (*num_stored == part->from)
        *num_stored = part->start + n;
    o->next_ready[part->index] = find_next_ready(o, part->index);
    if (part->place != QR_NIL)
        o->due[part->place] = o->next_ready[part->index];
}

static void store_gathered(quire_offload *o, gathering *all, store_round *round)
{
    uint32_t num_with_key = 0;
    uint32_t num_done = 0;
    if (all->count > 0)
        num_done = take_missing(o, all->blocks, all->count, round, &num_with_key);
    for (uint32_t i = 0; i < all->num_parts; i++)
        end_part(o, all, &all->parts[i], num_done, num_with_key);
    all->is_full = num_done < all->count;
    all->count = all->num_parts = 0;
}

/* Blocks [part->start, end) of a row; null blocks end it. Returns the place behind it. */
static uint32_t gather_part(quire_offload *o, gathering *all, const quire_block *row, uint32_t end,
                            gathered_part part, store_round *round)
{
    if (all->count == GATHERED || all->num_parts == GATHERED)
        store_gathered(o, all, round);
    part.first = all->count;
    uint32_t at = part.start;
    while (at < end && all->count < GATHERED && row[at] != QUIRE_NULL_BLOCK)
        all->blocks[all->count++] = row[at++];
    part.count = at - part.start;
    all->parts[all->num_parts++] = part;
    return at;
}

static void gather_request(quire_offload *o, const qr_offload_req *r, uint32_t place,
                           gathering *all, store_round *round)
{
    uint32_t index = (uint32_t)(r - o->reqs);
    quire_block_span own[QR_OFFLOAD_MAX_GROUPS];
    int64_t confirmed;
    if (!read_request(o, r, own, &confirmed))
        return;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        uint32_t size = o->groups[g].block_size;
        uint32_t end = num_ready(o, confirmed, size, own[g].count);
        uint32_t found_from = (r->loaded_from + size - 1) / size;
        uint32_t found_before = r->loaded_to / size;
        uint32_t from = o->num_stored[(size_t)index * o->num_groups + g];
        while (from < end && !all->is_full) {
            uint32_t start = from;
            if (start >= found_from && start < found_before)
                start = found_before < end ? found_before : end;
            uint32_t stop = start < found_from && found_from < end ? found_from : end;
            while (start < stop && own[g].ids[start] == QUIRE_NULL_BLOCK)
                start++;
            gathered_part part = {
                .index = index, .group = g, .from = from, .start = start, .place = place};
            from = gather_part(o, all, own[g].ids, stop, part, round);
        }
    }
}

/* The blocks that a step tells; more than a longest request has are never looked at. */
static void add_blocks(quire_offload *o, uint32_t index, const quire_block_span *blocks)
{
    for (uint32_t g = 0; o->has_rows && g < o->num_groups; g++) {
        size_t at = (size_t)index * o->num_groups + g;
        uint32_t room = o->groups[g].max_blocks - o->row_count[at];
        uint32_t n = blocks[g].count < room ? blocks[g].count : room;
        quire_block *row = o->rows + (size_t)index * o->row_blocks + o->groups[g].row_start;
        if (n > 0)
            memcpy(row + o->row_count[at], blocks[g].ids, n * sizeof *row);
        o->row_count[at] += n;
    }
}

/* Nothing of it is stored, and it has other blocks. */
static void begin_request(quire_offload *o, uint32_t index)
{
    size_t first = (size_t)index * o->num_groups;
    for (uint32_t g = 0; !o->is_lazy && g < o->num_groups; g++)
        o->num_stored[first + g] = 0;
    for (uint32_t g = 0; o->has_rows && g < o->num_groups; g++)
        o->row_count[first + g] = 0;
    o->next_ready[index] = 0;
    o->num_listed = 0;
}

static inline bool has_blocks(const quire_block_span *blocks, uint32_t num_groups)
{
    uint32_t n = blocks[0].count;
    for (uint32_t g = 1; g < num_groups; g++)
        n |= blocks[g].count;
    return n > 0;
}

static inline bool is_plain(const quire_offload *o)
{
    return !o->is_vllm && !o->has_windows;
}

/* With blocks or not, so many tokens make a look worth it. */
static inline bool is_due(const quire_offload *o, uint32_t computed, uint32_t next_ready)
{
    return computed >= next_ready || computed < o->most_placeholders;
}

/* A request that comes in may have found blocks that another one computes in this very step: they
 * are looked at in the next. vLLM's copies come after the step, so it looks at once. */
static void scan_coming(quire_offload *o, const quire_step *step, uint8_t kind, bool has_place,
                        store_round *round)
{
    if (step->num_reqs == 0 || memchr(step->kinds, kind, step->num_reqs) == NULL)
        return;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t index = quire_req_index(step->reqs[i]);
        qr_offload_req *r = &o->reqs[index];
        if (step->kinds[i] != kind || r->req != step->reqs[i])
            continue;
        if (kind == QUIRE_STEP_RESUMED)
            begin_request(o, index);
        add_blocks(o, index, &step->blocks[(size_t)i * o->num_groups]);
        uint32_t computed = step->num_computed_tokens[i];
        if (o->is_vllm && has_place && is_due(o, computed, o->next_ready[index]))
            scan_request(o, r, round);
    }
}

/* next_ready by the places of a step's requests: from step to step these are mostly the same. */
static void list_due(quire_offload *o, const quire_step *step)
{
    uint32_t n = step->num_reqs;
    if (n == o->num_listed && memcmp(o->listed, step->reqs, n * sizeof *o->listed) == 0)
        return;
    memcpy(o->listed, step->reqs, n * sizeof *o->listed);
    o->num_listed = n;
    for (uint32_t i = 0; i < n; i++)
        o->due[i] = o->next_ready[quire_req_index(step->reqs[i])];
}

static void scan_running(quire_offload *o, const quire_step *step, bool has_place,
                         store_round *round)
{
    gathering all;
    all.count = all.num_parts = 0;
    all.is_full = false;
    list_due(o, step);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        const quire_block_span *blocks = &step->blocks[(size_t)i * o->num_groups];
        uint32_t computed = step->num_computed_tokens[i];
        bool has_some = o->has_rows && has_blocks(blocks, o->num_groups);
        if (!has_some && !is_due(o, computed, o->due[i]))
            continue; /* most of them, in most steps */
        uint32_t index = quire_req_index(step->reqs[i]);
        qr_offload_req *r = &o->reqs[index];
        if (step->kinds[i] != QUIRE_STEP_RUNNING || r->req != step->reqs[i])
            continue;
        if (has_some)
            add_blocks(o, index, blocks);
        bool is_now = has_place && is_due(o, computed, o->due[i]);
        if (is_now && is_plain(o) && !all.is_full)
            gather_request(o, r, i, &all, round);
        else if (is_now && !is_plain(o))
            scan_request(o, r, round);
        o->due[i] = o->next_ready[index];
    }
    store_gathered(o, &all, round);
}

/* In the order in which vLLM goes through a step. */
static void choose_eager(quire_offload *o, const quire_step *step, bool has_place,
                         store_round *round)
{
    scan_coming(o, step, QUIRE_STEP_NEW, has_place, round);
    scan_running(o, step, has_place, round);
    scan_coming(o, step, QUIRE_STEP_RESUMED, has_place, round);
}

/* ---- lazy ------------------------------------------------------------------ */

/* vLLM's cursor: it goes on from the block that was looked at last, wherever that is by now. */
static void choose_lazy_vllm(quire_offload *o, store_round *round)
{
    quire_block_info info;
    uint32_t limit = round->num_free;
    if (o->cursor != QUIRE_NULL_BLOCK &&
        quire_pool_block_info(o->gpu, o->cursor, &info) == QUIRE_OK && info.ref_cnt > 0)
        o->cursor = QUIRE_NULL_BLOCK;
    quire_block node = quire_pool_next_free(o->gpu, o->cursor);
    for (uint32_t covered = 0;
         node != QUIRE_NULL_BLOCK && covered < o->target_free && round->count < limit; covered++) {
        o->cursor = node;
        quire_block found;
        quire_pool_find_same(o->cpu, o->gpu, &node, 1, &found);
        if (found == QUIRE_NULL_BLOCK && !qr_bit_get(o->is_storing, node))
            choose(round, node);
        node = quire_pool_next_free(o->gpu, node);
    }
    take_chosen(o, round);
}

/* A block that was looked at, and is still where it was: in the walk before, and behind those that
 * this walk has met of it. One that was taken since, and freed again, is behind them all. */
static bool was_seen(quire_offload *o, quire_block gpu, uint64_t *last)
{
    uint64_t seen = o->seen[gpu];
    bool is_same = seen >= o->walk_first && seen > *last;
    if (is_same)
        *last = seen;
    else if (seen < o->walk_first) /* behind this one, nothing is where it was */
        *last = UINT64_MAX;
    return is_same;
}

/* The blocks that will be evicted next, from the head of the queue on: twice what a step can take.
 * There is nothing to do before half of them have been taken: a step takes no more than the other
 * half. */
static void choose_lazy(quire_offload *o, store_round *round)
{
    uint64_t num_taken = quire_pool_get_num_allocated(o->gpu);
    if (num_taken - o->walked_at < o->target_free / 2)
        return;
    quire_block gpu[LOOK_AT_ONCE];
    uint32_t num_with_key;
    uint32_t n = 0;
    uint64_t last = 0;
    uint64_t first = o->walk_next;
    if (num_taken - o->walked_at >= o->target_free) /* all of the walk before were taken */
        o->walk_first = o->walk_next;
    uint32_t half = o->num_cpu / 2; /* those on their way come back: all together must fit */
    uint32_t most = o->num_flight < half ? half - o->num_flight : 0;
    most = most < o->target_free ? most : o->target_free;
    quire_block node = quire_pool_next_free(o->gpu, QUIRE_NULL_BLOCK);
    bool has_room_left = true;
    while (node != QUIRE_NULL_BLOCK && has_room_left && o->num_walked < most) {
        quire_block next = quire_pool_next_free(o->gpu, node);
        if (!was_seen(o, node, &last))
            gpu[n++] = node;
        o->walked[o->num_walked++] = node;
        o->seen[node] = o->walk_next++;
        node = next;
        bool is_last = node == QUIRE_NULL_BLOCK || o->num_walked == most;
        if (n < LOOK_AT_ONCE && !is_last)
            continue;
        uint32_t done = take_missing(o, gpu, n, round, &num_with_key);
        has_room_left = done == n;
        for (; done < n; done++)
            o->seen[gpu[done]] = 0;
        n = 0;
    }
    o->walk_first = first;
    o->walked_at = num_taken;
    bool is_whole = o->num_walked == o->target_free && has_room_left;
    if (node == QUIRE_NULL_BLOCK || !is_whole) /* what is freed comes into view at once */
        o->walked_at -= o->target_free;
}

/* Blocks that a step or an admission gives to requests, of all groups, while stores are on the way:
 * one span after the other. */
static void note_used(quire_offload *o, const quire_block_span *spans, uint32_t num_spans)
{
    for (uint32_t k = 0; k < num_spans; k++)
        for (uint32_t i = 0; i < spans[k].count; i++)
            if (qr_bit_get(o->is_storing, spans[k].ids[i]))
                qr_bit_set(o->is_used, spans[k].ids[i]);
}

void qr_store_note_alloc(quire_offload *o, quire_req req, const quire_block_span *blocks)
{
    uint32_t index = quire_req_index(req);
    qr_offload_req *r = &o->reqs[index];
    if (r->req != req) {
        r->req = req;
        begin_request(o, index);
    }
    for (uint32_t g = 0; o->is_lazy && g < o->num_groups; g++)
        o->walked_at -= blocks[g].count; /* found blocks have left the queue, too */
    if (o->is_lazy && !o->is_vllm && o->num_events > 0)
        note_used(o, blocks, o->num_groups);
}

/* ---- events ---------------------------------------------------------------- */

/* vLLM's events are numbered without gaps; here a number whose place is taken is left out. */
static bool find_place(quire_offload *o)
{
    if (o->num_events == o->num_places)
        return false;
    while (!o->is_vllm && o->events[o->next_event & (o->num_places - 1)].count > 0)
        o->next_event++;
    return o->events[o->next_event & (o->num_places - 1)].count == 0;
}

/* From here on the CPU blocks are pending. */
static void put_into_carts(quire_offload *o, const store_round *round, uint32_t *first,
                           uint32_t *last)
{
    qr_carts_add(o, first, last, round->gpu, round->cpu, round->count);
    for (uint32_t i = 0; i < round->count; i++)
        o->is_pending[round->cpu[i]] = 1;
}

static void make_event(quire_offload *o, const store_round *round)
{
    uint32_t place = (uint32_t)(o->next_event & (o->num_places - 1));
    quire_offload_meta *meta = &o->meta;
    uint64_t due_ns = o->is_vllm ? 0 : qr_tier_now_ns(&o->hooks) + o->deadline_ns;
    uint32_t first = QR_NIL;
    uint32_t last = QR_NIL;
    put_into_carts(o, round, &first, &last);
    o->events[place] = (qr_offload_event){.id = o->next_event,
                                          .mark = o->mark,
                                          .step = o->step,
                                          .due_ns = due_ns,
                                          .first = first,
                                          .last = last,
                                          .sent = first,
                                          .has_crcs = o->has_device && o->lower != NULL,
                                          .count = round->count};
    o->next_due_ns = due_ns < o->next_due_ns ? due_ns : o->next_due_ns;
    o->num_events++;
    if (o->has_device)
        o->unsent_events[o->num_unsent++] = place;
    meta->store_event = o->next_event++;
    meta->num_stores = round->count;
}

/* What was decided between the steps comes first. */
static void add_kept(quire_offload *o, store_round *round)
{
    while (o->kept_first != QR_NIL) {
        const qr_offload_cart *cart = &o->carts[o->kept_first];
        uint32_t next = cart->next;
        memcpy(round->gpu + round->count, cart->gpu, cart->count * sizeof *cart->gpu);
        memcpy(round->cpu + round->count, cart->cpu, cart->count * sizeof *cart->cpu);
        round->count += cart->count;
        qr_carts_return(o, o->kept_first);
        o->kept_first = next;
    }
    round->num_taken = round->count;
    o->kept_last = QR_NIL;
}

/* Stores must not take the memory that requests need, however slow they are. */
static uint32_t num_stores_left(const quire_offload *o)
{
    return o->most_stores > o->num_flight ? o->most_stores - o->num_flight : 0;
}

void qr_store_build(quire_offload *o, const quire_step *step)
{
    store_round round = {.gpu = o->meta_store_gpu,
                         .cpu = o->meta_store_cpu,
                         .num_free = quire_pool_get_num_free_blocks(o->cpu),
                         .num_left = num_stores_left(o)};
    bool has_place = o->has_mark && o->num_late == 0 && find_place(o);
    o->num_walked = 0;
    if (has_place)
        add_kept(o, &round);
    if (o->is_lazy && !o->is_vllm && o->num_events > 0)
        note_used(o, step->blocks, step->num_reqs * o->num_groups);
    if (!o->is_lazy)
        choose_eager(o, step, has_place, &round);
    else if (has_place && o->is_vllm)
        choose_lazy_vllm(o, &round);
    else if (has_place)
        choose_lazy(o, &round);
    if (round.count == 0)
        return;
    make_event(o, &round);
    for (uint32_t i = 0; o->is_vllm && i < round.count; i++)
        qr_bit_clear(o->is_storing, round.gpu[i]);
}

void qr_store_last_blocks(quire_offload *o, qr_offload_req *r)
{
    store_round round = {.gpu = o->scratch,
                         .cpu = o->scratch2,
                         .num_free = quire_pool_get_num_free_blocks(o->cpu),
                         .num_left = num_stores_left(o)};
    if (is_plain(o)) {
        gathering all;
        all.count = all.num_parts = 0;
        all.is_full = false;
        gather_request(o, r, QR_NIL, &all, &round);
        store_gathered(o, &all, &round);
    } else {
        scan_request(o, r, &round);
    }
    if (round.count == 0)
        return;
    put_into_carts(o, &round, &o->kept_first, &o->kept_last);
}

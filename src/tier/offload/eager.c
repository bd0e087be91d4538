/* tier/offload/eager.c - eager stores. */
#include "tier/offload/offload.h"

enum { EAGER_AT_ONCE = QR_AT_A_TIME(64, 2) };

/* A block that left the window may be another's by now, who has not computed it yet: it is stored
 * only where it is still the request's own, or nobody's. */
static bool is_anothers(const quire_offload *o, const quire_block_span *own, uint32_t at,
                        quire_block gpu)
{
    quire_block_info info;
    if (at < own->count && own->ids[at] == gpu)
        return false;
    return quire_pool_get_block(o->gpu, gpu, &info) == QUIRE_OK && info.ref_cnt > 0;
}

/* How many of count blocks are computed. A request that was preempted may have fewer tokens than
 * placeholders of steps in flight. */
static uint32_t num_ready(int64_t confirmed, uint32_t block_size, uint32_t count)
{
    uint64_t ready = confirmed > 0 ? (uint64_t)confirmed / block_size : 0;
    return ready < count ? (uint32_t)ready : count;
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

/* Stores a part's blocks, looked at together: what one waits for, memory, comes for all. Returns
 * how many are done with; fewer than there are: the next one has no key yet, or there is no room.
 */
static uint32_t scan_part(quire_offload *o, const store_part *part, qr_store_round *round,
                          bool *is_full)
{
    quire_block gpu[EAGER_AT_ONCE];
    uint32_t places[EAGER_AT_ONCE];
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
    *is_full = qr_round_take_missing(o, gpu, n, round, &num_with_key) < n;
    return num_with_key < n ? places[num_with_key] : part->num_blocks;
}

/* Where the next look begins: at the first block without a key, which may get one. In a group that
 * has gaps, blocks without keys for good, that may be one of the last blocks only. */
static uint32_t next_to_store(const qr_offload_group *group, uint32_t next, uint32_t gap,
                              uint32_t end)
{
    if (gap == UINT32_MAX || !group->has_gaps)
        return gap == UINT32_MAX ? next : gap;
    uint32_t late = end > group->num_keyed_later ? end - group->num_keyed_later : 0;
    uint32_t place = gap < late ? late : gap;
    return place < next ? place : next;
}

/* False when the CPU pool is full. */
static bool scan_group(quire_offload *o, uint32_t index, uint32_t g, int64_t confirmed,
                       const quire_block_span *own, qr_store_round *round)
{
    size_t at = (size_t)index * o->num_groups + g;
    const quire_block *row = own->ids;
    uint32_t count = own->count;
    if (o->has_rows) {
        row = o->rows + (size_t)index * o->row_blocks + o->groups[g].row_start;
        count = o->row_count[at];
    }
    uint32_t end = num_ready(confirmed, o->groups[g].block_size, count);
    const qr_offload_req *r = &o->reqs[index];
    const qr_offload_group *group = &o->groups[g];
    uint32_t size = group->block_size;
    uint32_t next = o->num_stored[at];
    uint32_t gap = UINT32_MAX; /* the first block without a key */
    bool is_full = false;
    while (next < end && !is_full) {
        uint32_t left = end - next;
        store_part part = {.row = row,
                           .own = own,
                           .first = next,
                           .num_blocks = left < EAGER_AT_ONCE ? left : EAGER_AT_ONCE,
                           .found_from = (r->loaded_from + size - 1) / size,
                           .found_before = r->loaded_to / size};
        uint32_t done = scan_part(o, &part, round, &is_full);
        if (done < part.num_blocks && gap == UINT32_MAX)
            gap = next + done;
        if (done < part.num_blocks && !group->has_gaps)
            break;
        next += is_full ? done : part.num_blocks;
    }
    o->num_stored[at] = next_to_store(group, next, gap, end);
    return !is_full;
}

/* What it has, and how many of its tokens are computed; false: it is not there any more. */
static bool read_request(const quire_offload *o, const qr_offload_req *r, quire_block_span *own,
                         int64_t *confirmed)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (quire_sched_get_req_info(o->sched, r->req, &info) != QUIRE_OK ||
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

static void scan_request(quire_offload *o, qr_offload_req *r, qr_store_round *round)
{
    uint32_t index = (uint32_t)(r - o->reqs);
    quire_block_span own[QR_OFFLOAD_MAX_GROUPS];
    int64_t confirmed;
    if (!read_request(o, r, own, &confirmed))
        return;
    for (uint32_t g = 0; g < o->num_groups; g++)
        if (!scan_group(o, index, g, confirmed, &own[g], round))
            break;
    o->next_ready[index] = find_next_ready(o, index);
}

/* ---- many requests together ---------------------------------------- */

/* Where no group has a window: the blocks of a step's requests in one row, so that what one waits
 * for, memory, comes while others are at their turn.
 *
 *      blocks   | of request 7 | of 12 | 12 | of 3 ..      parts: without what a request has loaded
 */
enum { GATHERED = QR_AT_A_TIME(256, 2) };

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

/* What is in it is written before it is read. */
static void begin_gathering(gathering *all)
{
    all->count = all->num_parts = 0;
    all->is_full = false;
}

static uint32_t count_with_key(const quire_offload *o, const quire_block *blocks, uint32_t n)
{
    quire_block_info info;
    uint32_t i = 0;
    while (i < n && quire_pool_get_block(o->gpu, blocks[i], &info) == QUIRE_OK &&
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

static void store_gathered(quire_offload *o, gathering *all, qr_store_round *round)
{
    uint32_t num_with_key = 0;
    uint32_t num_done = 0;
    if (all->count > 0)
        num_done = qr_round_take_missing(o, all->blocks, all->count, round, &num_with_key);
    for (uint32_t i = 0; i < all->num_parts; i++)
        end_part(o, all, &all->parts[i], num_done, num_with_key);
    all->is_full = num_done < all->count;
    all->count = all->num_parts = 0;
}

/* Blocks [part->start, end) of a row, as many as there is room for; without windows there are no
 * null blocks among them. Returns the place behind them. */
static uint32_t gather_part(quire_offload *o, gathering *all, const quire_block *row, uint32_t end,
                            gathered_part part, qr_store_round *round)
{
    if (all->count == GATHERED || all->num_parts == GATHERED)
        store_gathered(o, all, round);
    if (all->is_full)
        return part.start;
    uint32_t room = GATHERED - all->count;
    uint32_t n = end - part.start < room ? end - part.start : room;
    if (n > 0)
        memcpy(all->blocks + all->count, row + part.start, n * sizeof *row);
    part.first = all->count;
    part.count = n;
    all->count += n;
    all->parts[all->num_parts++] = part;
    return part.start + n;
}

static void gather_request(quire_offload *o, const qr_offload_req *r, uint32_t place,
                           gathering *all, qr_store_round *round)
{
    uint32_t index = (uint32_t)(r - o->reqs);
    quire_block_span own[QR_OFFLOAD_MAX_GROUPS];
    int64_t confirmed;
    if (!read_request(o, r, own, &confirmed))
        return;
    o->next_ready[index] = find_next_ready(o, index); /* where there is nothing */
    for (uint32_t g = 0; g < o->num_groups; g++) {
        uint32_t size = o->groups[g].block_size;
        uint32_t end = num_ready(confirmed, size, own[g].count);
        uint32_t found_from = (r->loaded_from + size - 1) / size;
        uint32_t found_before = r->loaded_to / size;
        uint32_t from = o->num_stored[(size_t)index * o->num_groups + g];
        while (from < end && !all->is_full) {
            uint32_t start = from;
            if (start >= found_from && start < found_before)
                start = found_before < end ? found_before : end;
            uint32_t stop = start < found_from && found_from < end ? found_from : end;
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

void qr_eager_begin(quire_offload *o, uint32_t index)
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

/* A request that comes in may have found blocks that another one computes in this very step: they
 * are looked at in the next. */
static void note_coming(quire_offload *o, const quire_step *step, uint8_t kind)
{
    if (step->num_reqs == 0 || memchr(step->kinds, kind, step->num_reqs) == NULL)
        return;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t index = quire_req_index(step->reqs[i]);
        if (step->kinds[i] != kind || o->reqs[index].req != step->reqs[i])
            continue;
        if (kind == QUIRE_STEP_RESUMED)
            qr_eager_begin(o, index);
        add_blocks(o, index, &step->blocks[(size_t)i * o->num_groups]);
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
                         qr_store_round *round)
{
    list_due(o, step);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        const quire_block_span *blocks = &step->blocks[(size_t)i * o->num_groups];
        uint32_t computed = step->num_computed_tokens[i];
        bool has_some = o->has_rows && has_blocks(blocks, o->num_groups);
        if (!has_some && computed < o->due[i])
            continue; /* most of them, in most steps */
        uint32_t index = quire_req_index(step->reqs[i]);
        qr_offload_req *r = &o->reqs[index];
        if (step->kinds[i] != QUIRE_STEP_RUNNING || r->req != step->reqs[i])
            continue;
        if (has_some)
            add_blocks(o, index, blocks);
        if (has_place && computed >= o->due[i])
            scan_request(o, r, round);
        o->due[i] = o->next_ready[index];
    }
}

/* The next request, from i on, whose look is worth it; n: none. Most are not, in most steps. */
static uint32_t find_due(const uint32_t *computed, const uint32_t *due, uint32_t i, uint32_t n)
{
    for (; i + 4 <= n; i += 4)
        if ((computed[i] >= due[i]) | (computed[i + 1] >= due[i + 1]) |
            (computed[i + 2] >= due[i + 2]) | (computed[i + 3] >= due[i + 3]))
            break;
    while (i < n && computed[i] < due[i])
        i++;
    return i;
}

/* False: there was no room for all. */
static bool gather_running(quire_offload *o, const quire_step *step, qr_store_round *round)
{
    gathering all;
    const uint32_t *computed = step->num_computed_tokens;
    uint32_t n = step->num_reqs;
    begin_gathering(&all);
    list_due(o, step);
    for (uint32_t i = find_due(computed, o->due, 0, n); i < n && !all.is_full;
         i = find_due(computed, o->due, i + 1, n)) {
        uint32_t index = quire_req_index(step->reqs[i]);
        const qr_offload_req *r = &o->reqs[index];
        if (step->kinds[i] != QUIRE_STEP_RUNNING || r->req != step->reqs[i])
            continue;
        gather_request(o, r, i, &all, round);
        o->due[i] = o->next_ready[index];
    }
    if (!all.is_full)
        store_gathered(o, &all, round);
    return !all.is_full;
}

/* Steps in which requests go on by a token each have few blocks: those of some steps are stored
 * together, in fewer and larger copies. Where several steps are on their way, each has requests of
 * its own: the next look is at as many. A request's last blocks do not wait, see choose_last. */
enum { LOOK_AFTER_STEPS = QR_AT_A_TIME(16, 1) };

static void look_at_running(quire_offload *o, const quire_step *step, bool has_place,
                            qr_store_round *round)
{
    o->num_passed_steps++;
    if (o->num_passed_steps >= LOOK_AFTER_STEPS || o->num_passed_tokens >= o->look_tokens) {
        o->num_looks_left = o->num_batches;
        o->num_passed_steps = o->num_passed_tokens = 0;
    }
    if (has_place && o->num_looks_left > 0 && gather_running(o, step, round))
        o->num_looks_left--;
    o->num_passed_tokens += step->total_tokens;
}

/* Copies on write change rows that are known. */
static void take_copies(quire_offload *o, const quire_step *step)
{
    for (uint32_t i = 0; o->has_rows && i < step->num_copies; i++) {
        const quire_step_copy *copy = &step->copies[i];
        uint32_t index = copy->place == UINT32_MAX ? 0 : quire_req_index(step->reqs[copy->place]);
        if (copy->place == UINT32_MAX || o->reqs[index].req != step->reqs[copy->place])
            continue;
        quire_block *row =
            o->rows + (size_t)index * o->row_blocks + o->groups[copy->group].row_start;
        if (copy->index < o->row_count[(size_t)index * o->num_groups + copy->group])
            row[copy->index] = copy->to;
    }
}

void qr_eager_choose(quire_offload *o, const quire_step *step, bool has_place,
                     qr_store_round *round)
{
    take_copies(o, step);
    note_coming(o, step, QUIRE_STEP_NEW);
    if (o->has_windows)
        scan_running(o, step, has_place, round);
    else
        look_at_running(o, step, has_place, round);
    note_coming(o, step, QUIRE_STEP_RESUMED);
}

/* What a request that ends has computed and not stored: it will not be looked at again. */
static void count_left(quire_offload *o, const qr_offload_req *r)
{
    uint32_t index = (uint32_t)(r - o->reqs);
    quire_block_span own[QR_OFFLOAD_MAX_GROUPS];
    int64_t confirmed;
    if (!read_request(o, r, own, &confirmed))
        return;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        uint32_t first = o->num_stored[(size_t)index * o->num_groups + g];
        uint32_t end = num_ready(confirmed, o->groups[g].block_size, own[g].count);
        if (first < end)
            qr_round_count_missing(o, own[g].ids + first, end - first);
    }
}

void qr_eager_choose_last(quire_offload *o, qr_offload_req *r, qr_store_round *round)
{
    gathering all;
    if (!o->has_windows) {
        begin_gathering(&all);
        gather_request(o, r, QR_NIL, &all, round);
        store_gathered(o, &all, round);
    } else {
        scan_request(o, r, round);
    }
    if (round->is_full)
        count_left(o, r);
}

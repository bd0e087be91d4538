#include "tier/offload_store.h"

#include "tier/offload_protect.h"
#include "tier/offload_storing.h"

/* Blocks that are chosen: of the first num_taken both have a user more already. */
typedef struct store_round {
    quire_block *gpu;
    quire_block *cpu;
    uint32_t count;
    uint32_t num_taken;
    uint32_t num_free; /* CPU blocks that are left for others */
} store_round;

/* ---- choosing -------------------------------------------------------------- */

/* Whether the CPU pool neither has this key nor will have it. */
static bool is_wanted(const quire_offload *o, quire_block gpu, const quire_block_info *info)
{
    quire_block found;
    if (qr_bit_get(o->is_storing, gpu) ||
        quire_pool_get_cached_block(o->cpu, info->hash, &info->group_id, 1, &found) == QUIRE_OK)
        return false;
    return o->is_vllm || !qr_storing_has(o, qr_storing_print(o, info->hash, info->group_id));
}

/* In the default profile what requests far behind in the queue will need gives way. */
static bool has_room(quire_offload *o, store_round *round)
{
    while (round->num_free == 0) {
        if (!qr_protect_give_way(o)) {
            qr_count(&o->counters.no_room, 1);
            return false;
        }
        uint32_t promised = round->count - round->num_taken;
        uint32_t num_free = quire_pool_get_num_free_blocks(o->cpu);
        round->num_free = num_free > promised ? num_free - promised : 0;
    }
    return true;
}

static void choose(store_round *round, quire_block gpu)
{
    round->gpu[round->count++] = gpu;
    round->num_free--;
}

static void note_flight(quire_offload *o, quire_block gpu, quire_block cpu)
{
    quire_block_info info;
    quire_pool_block_info(o->gpu, gpu, &info);
    qr_storing_add(o, cpu, qr_storing_print(o, info.hash, info.group_id));
}

/* CPU blocks for those that were chosen, and a user more for both. */
static void take_chosen(quire_offload *o, store_round *round)
{
    uint32_t n = round->count - round->num_taken;
    quire_block *gpu = round->gpu + round->num_taken;
    quire_block *cpu = round->cpu + round->num_taken;
    if (n == 0 || quire_pool_get_new_blocks(o->cpu, n, cpu) != QUIRE_OK) {
        round->count = round->num_taken;
        return;
    }
    qr_gpu_hold(o, gpu, n);
    for (uint32_t i = 0; i < n; i++) {
        qr_bit_set(o->is_storing, gpu[i]);
        if (!o->is_vllm)
            note_flight(o, gpu[i], cpu[i]);
    }
    round->num_taken = round->count;
    qr_count(&o->counters.stores_in_flight, n);
}

/* ---- eager ----------------------------------------------------------------- */

/* A block that left the window may be another's by now, who has not computed it yet. In vLLM it is
 * stored all the same; here only where it is still the request's own, or nobody's. */
static bool is_anothers(const quire_offload *o, const quire_block_span *own, uint32_t at,
                        quire_block gpu, uint32_t num_users)
{
    if (o->is_vllm || own == NULL || num_users == 0)
        return false;
    return at >= own->count || own->ids[at] != gpu;
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

/* False when the CPU pool is full. */
static bool scan_group(quire_offload *o, uint32_t index, uint32_t g, int64_t confirmed,
                       const quire_block_span *own, store_round *round)
{
    size_t at = (size_t)index * o->num_groups + g;
    const quire_block *row = o->rows + (size_t)index * o->row_blocks + o->groups[g].row_start;
    uint32_t end = num_ready(o, confirmed, o->groups[g].block_size, o->row_count[at]);
    uint32_t i = o->num_stored[at];
    bool is_full = false;
    for (; i < end && !is_full; i++) {
        quire_block_info info;
        if (row[i] == QUIRE_NULL_BLOCK)
            continue;
        quire_pool_block_info(o->gpu, row[i], &info);
        if (is_anothers(o, own, i, row[i], info.ref_cnt))
            continue;
        if (info.hash.data == NULL)
            break;
        if (!is_wanted(o, row[i], &info))
            continue;
        is_full = !has_room(o, round);
        if (is_full)
            break;
        choose(round, row[i]);
    }
    o->num_stored[at] = i;
    return !is_full;
}

/* With fewer computed tokens than this, a look at the request would find nothing. */
static uint32_t next_ready(const quire_offload *o, uint32_t index)
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
    quire_req_info info;
    if (quire_sched_req_info(o->sched, r->req, &info) != QUIRE_OK)
        return;
    bool has_windows =
        !o->is_vllm && o->has_windows && quire_sched_get_blocks(o->sched, r->req, own) == QUIRE_OK;
    int64_t confirmed = (int64_t)info.num_computed_tokens - info.num_output_placeholders;
    for (uint32_t g = 0; g < o->num_groups; g++)
        if (!scan_group(o, index, g, confirmed, has_windows ? &own[g] : NULL, round))
            break;
    take_chosen(o, round);
    r->next_ready = next_ready(o, index);
}

/* The blocks that a step tells; more than a longest request has are never looked at. */
static void add_blocks(quire_offload *o, uint32_t index, const quire_block_span *blocks,
                       bool is_resumed)
{
    for (uint32_t g = 0; g < o->num_groups; g++) {
        size_t at = (size_t)index * o->num_groups + g;
        if (is_resumed)
            o->row_count[at] = o->num_stored[at] = 0;
        uint32_t room = o->groups[g].max_blocks - o->row_count[at];
        uint32_t n = blocks[g].count < room ? blocks[g].count : room;
        quire_block *row = o->rows + (size_t)index * o->row_blocks + o->groups[g].row_start;
        if (n > 0)
            memcpy(row + o->row_count[at], blocks[g].ids, n * sizeof *row);
        o->row_count[at] += n;
    }
}

/* A request that comes in may have found blocks that another one computes in this very step: they
 * are looked at in the next. vLLM's copies come after the step, so it looks at once. */
static void scan_kind(quire_offload *o, const quire_step *step, uint8_t kind, bool has_place,
                      store_round *round)
{
    bool looks = has_place && (o->is_vllm || kind == QUIRE_STEP_RUNNING);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        qr_offload_req *r = &o->reqs[quire_req_index(step->reqs[i])];
        if (step->kinds[i] != kind || r->req != step->reqs[i])
            continue;
        const quire_block_span *blocks = &step->blocks[(size_t)i * o->num_groups];
        add_blocks(o, quire_req_index(r->req), blocks, kind == QUIRE_STEP_RESUMED);
        if (kind == QUIRE_STEP_RESUMED)
            r->next_ready = 0;
        uint32_t computed = step->num_computed_tokens[i];
        if (looks && (computed >= r->next_ready || computed < o->most_placeholders))
            scan_request(o, r, round);
    }
}

/* In the order in which vLLM goes through a step. */
static void choose_eager(quire_offload *o, const quire_step *step, bool has_place,
                         store_round *round)
{
    scan_kind(o, step, QUIRE_STEP_NEW, has_place, round);
    scan_kind(o, step, QUIRE_STEP_RUNNING, has_place, round);
    scan_kind(o, step, QUIRE_STEP_RESUMED, has_place, round);
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
        quire_pool_block_info(o->gpu, node, &info);
        if (info.hash.data != NULL && is_wanted(o, node, &info))
            choose(round, node);
        node = quire_pool_next_free(o->gpu, node);
    }
    take_chosen(o, round);
}

/* The blocks that will be evicted next, from the head of the queue on. Those that were looked at
 * since a request had them are passed over; a head that has not changed means that nothing was
 * taken since. */
static void choose_lazy(quire_offload *o, store_round *round)
{
    quire_block node = quire_pool_next_free(o->gpu, QUIRE_NULL_BLOCK);
    if (node == o->last_head)
        return;
    for (uint32_t covered = 0; node != QUIRE_NULL_BLOCK && covered < o->target_free; covered++) {
        quire_block_info info;
        quire_block next = quire_pool_next_free(o->gpu, node);
        if (!qr_bit_get(o->is_seen, node)) {
            quire_pool_block_info(o->gpu, node, &info);
            bool is_chosen = info.hash.data != NULL && is_wanted(o, node, &info);
            if (is_chosen && !has_room(o, round))
                break;
            if (is_chosen)
                choose(round, node);
            take_chosen(o, round); /* at once: another block may have the same key */
            qr_bit_set(o->is_seen, node);
        }
        node = next;
    }
    o->last_head = quire_pool_next_free(o->gpu, QUIRE_NULL_BLOCK);
}

static void forget_seen(quire_offload *o, const quire_block_span *blocks)
{
    bool has_stores = o->num_events > 0;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        for (uint32_t i = 0; i < blocks[g].count; i++) {
            quire_block gpu = blocks[g].ids[i];
            qr_bit_clear(o->is_seen, gpu);
            if (has_stores && qr_bit_get(o->is_storing, gpu))
                qr_bit_set(o->is_used, gpu);
        }
    }
}

void qr_store_note_alloc(quire_offload *o, quire_req req, const quire_block_span *blocks)
{
    uint32_t index = quire_req_index(req);
    qr_offload_req *r = &o->reqs[index];
    if (r->req != req) {
        r->req = req;
        r->next_ready = 0;
        for (uint32_t g = 0; !o->is_lazy && g < o->num_groups; g++)
            o->row_count[(size_t)index * o->num_groups + g] =
                o->num_stored[(size_t)index * o->num_groups + g] = 0;
    }
    if (o->is_lazy && !o->is_vllm)
        forget_seen(o, blocks);
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

static void chain_blocks(quire_offload *o, const quire_block *gpu, const quire_block *cpu,
                         uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        o->store_gpu[cpu[i]] = gpu[i];
        o->store_next[cpu[i]] = i + 1 < n ? cpu[i + 1] : QUIRE_NULL_BLOCK;
    }
}

static void make_event(quire_offload *o, const store_round *round)
{
    uint32_t place = (uint32_t)(o->next_event & (o->num_places - 1));
    quire_offload_meta *meta = &o->meta;
    chain_blocks(o, round->gpu, round->cpu, round->count);
    o->events[place] = (qr_offload_event){.id = o->next_event,
                                          .mark = o->mark,
                                          .step = o->step,
                                          .first = round->cpu[0],
                                          .sent = round->cpu[0],
                                          .count = round->count};
    o->num_events++;
    if (o->has_device)
        o->unsent_events[o->num_unsent++] = place;
    meta->store_event = o->next_event++;
    meta->num_stores = round->count;
}

/* What was decided between the steps comes first. */
static void add_kept(quire_offload *o, store_round *round)
{
    for (quire_block cpu = o->kept_first; cpu != QUIRE_NULL_BLOCK; cpu = o->store_next[cpu]) {
        round->gpu[round->count] = o->store_gpu[cpu];
        round->cpu[round->count++] = cpu;
    }
    round->num_taken = round->count;
    o->kept_first = o->kept_last = QUIRE_NULL_BLOCK;
}

void qr_store_build(quire_offload *o, const quire_step *step)
{
    store_round round = {.gpu = o->meta_store_gpu,
                         .cpu = o->meta_store_cpu,
                         .num_free = quire_pool_get_num_free_blocks(o->cpu)};
    bool has_place = find_place(o);
    if (has_place)
        add_kept(o, &round);
    for (uint32_t i = 0; o->is_lazy && !o->is_vllm && i < step->num_reqs; i++)
        forget_seen(o, &step->blocks[(size_t)i * o->num_groups]);
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
    store_round round = {
        .gpu = o->scratch, .cpu = o->scratch2, .num_free = quire_pool_get_num_free_blocks(o->cpu)};
    scan_request(o, r, &round);
    if (round.count == 0)
        return;
    chain_blocks(o, round.gpu, round.cpu, round.count);
    if (o->kept_first == QUIRE_NULL_BLOCK)
        o->kept_first = round.cpu[0];
    else
        o->store_next[o->kept_last] = round.cpu[0];
    o->kept_last = round.cpu[round.count - 1];
}

/* ---- ends ------------------------------------------------------------------ */

qr_offload_event *qr_store_event(quire_offload *o, uint64_t id)
{
    qr_offload_event *event = &o->events[id & (o->num_places - 1)];
    return event->count > 0 && event->id == id ? event : NULL;
}

void qr_store_report(quire_offload *o, qr_offload_event *event, uint32_t num_reports)
{
    event->num_reports += num_reports;
    if (!event->is_listed)
        o->told_events[o->num_told_events++] = (uint32_t)(event - o->events);
    event->is_listed = true;
}

/* Keys for a run of blocks of one group. A block whose key was taken from it is left out. */
static void give_keys(quire_offload *o, const quire_block *gpu, const quire_block *cpu, uint32_t n)
{
    quire_cache_full_params params = {.hashes = o->hashes};
    uint32_t start = 0;
    for (uint32_t i = 0; i <= n; i++) {
        quire_block_info info = {0};
        if (i < n)
            quire_pool_block_info(o->gpu, gpu[i], &info);
        bool goes_on = i > start && info.hash.data != NULL && info.hash.len == params.hash_len &&
                       info.group_id == params.group_id;
        if (!goes_on) {
            params.blocks = cpu + start;
            params.num_full_blocks = params.num_hashes = i - start;
            if (i > start && params.hash_len > 0)
                quire_pool_cache_full_blocks(o->cpu, &params);
            start = i;
            params.hash_len = info.hash.len;
            params.group_id = info.group_id;
            params.block_size = o->groups[info.group_id].block_size;
        }
        if (info.hash.len > 0)
            memcpy(o->hashes + (i - start) * info.hash.len, info.hash.data, info.hash.len);
    }
}

/* Blocks that were stored lazily are as cold as before, unless a request had them meanwhile. */
static void free_gpu_blocks(quire_offload *o, quire_block *gpu, uint32_t n)
{
    uint32_t num_used = 0;
    uint32_t num_cold = 0;
    if (!o->is_lazy || o->is_vllm) {
        qr_gpu_let_go(o, gpu, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (qr_bit_get(o->is_used, gpu[i]))
            o->scratch[num_used++] = gpu[i];
        else
            gpu[num_cold++] = gpu[i];
        qr_bit_clear(o->is_used, gpu[i]);
    }
    qr_gpu_let_go(o, o->scratch, num_used);
    quire_pool_let_go(o->gpu, gpu, num_cold, 1);
}

/* vLLM frees them first to last, and evicts the head of a prompt before what is behind it. */
static void free_stored(quire_offload *o, quire_block *cpu, uint32_t n)
{
    for (uint32_t i = 0; !o->is_vllm && i < n / 2; i++) {
        quire_block other = cpu[n - 1 - i];
        cpu[n - 1 - i] = cpu[i];
        cpu[i] = other;
    }
    quire_pool_free_blocks(o->cpu, cpu, n);
}

static void finish_chunk(quire_offload *o, const qr_offload_event *event, quire_block *gpu,
                         quire_block *cpu, const uint32_t *crcs, uint32_t n)
{
    bool is_good = !event->has_failed && !event->is_dropped;
    for (uint32_t i = 0; !o->is_vllm && i < n; i++) {
        qr_storing_remove(o, cpu[i]);
        qr_bit_clear(o->is_storing, gpu[i]);
    }
    if (is_good) {
        give_keys(o, gpu, cpu, n);
        if (o->lower != NULL)
            qr_lower_stored(o->lower, cpu, event->has_crcs ? crcs : NULL, NULL, n);
        free_stored(o, cpu, n);
    } else { /* to the head: there is nothing in them */
        quire_pool_hold(o->cpu, cpu, n);
        quire_pool_free_blocks(o->cpu, cpu, n);
        quire_pool_let_go(o->cpu, cpu, n, 1);
    }
    free_gpu_blocks(o, gpu, n);
    qr_count(&o->counters.stores_in_flight, 0 - (uint64_t)n);
    qr_count(is_good ? &o->counters.stored_blocks : &o->counters.failed_stores, n);
}

static void finish_blocks(quire_offload *o, const qr_offload_event *event)
{
    quire_block gpu[QR_COPIES_IN_JOB];
    quire_block cpu[QR_COPIES_IN_JOB];
    uint32_t crcs[QR_COPIES_IN_JOB];
    quire_block next = event->first;
    while (next != QUIRE_NULL_BLOCK) {
        uint32_t n = 0;
        for (; n < QR_COPIES_IN_JOB && next != QUIRE_NULL_BLOCK; next = o->store_next[next]) {
            crcs[n] = o->store_crc != NULL ? o->store_crc[next] : 0;
            gpu[n] = o->store_gpu[next];
            cpu[n++] = next;
        }
        finish_chunk(o, event, gpu, cpu, crcs, n);
    }
}

void qr_store_finish_told(quire_offload *o)
{
    for (uint32_t i = 0; i < o->num_told_events; i++) {
        qr_offload_event *event = &o->events[o->told_events[i]];
        event->is_listed = false;
        if (event->num_reports < o->num_workers)
            continue;
        finish_blocks(o, event);
        *event = (qr_offload_event){0};
        o->num_events--;
    }
    o->num_told_events = 0;
}

void qr_store_drop_all(quire_offload *o)
{
    for (uint32_t i = 0; i < o->num_places; i++)
        o->events[i].is_dropped = o->events[i].count > 0;
    qr_offload_event kept = {.first = o->kept_first, .is_dropped = true};
    o->kept_first = o->kept_last = QUIRE_NULL_BLOCK; /* nobody has begun these */
    finish_blocks(o, &kept);
}

/* tier/offload/store.c - the stores of a step; lazy ones. */
#include "tier/offload/offload.h"

#include "base/hooks.h"

enum { LAZY_AT_ONCE = QR_AT_A_TIME(64, 2) };

/* ---- lazy ------------------------------------------------------------------ */

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
static void choose_lazy(quire_offload *o, qr_store_round *round)
{
    uint64_t num_taken = quire_pool_get_counts(o->gpu).num_allocated;
    if (num_taken - o->walked_at < o->target_free / 2)
        return;
    quire_block gpu[LAZY_AT_ONCE];
    uint32_t num_with_key;
    uint32_t n = 0;
    uint64_t last = 0;
    uint64_t first = o->walk_next;
    if (num_taken - o->walked_at >= o->target_free) /* all of the walk before were taken */
        o->walk_first = o->walk_next;
    uint32_t half = o->num_cpu / 2; /* those on their way come back: all together must fit */
    uint32_t most = o->num_flight < half ? half - o->num_flight : 0;
    most = most < o->target_free ? most : o->target_free;
    quire_block node = quire_pool_get_next_free(o->gpu, QUIRE_NULL_BLOCK);
    bool has_room_left = true;
    while (node != QUIRE_NULL_BLOCK && has_room_left && o->num_walked < most) {
        quire_block next = quire_pool_get_next_free(o->gpu, node);
        if (!was_seen(o, node, &last))
            gpu[n++] = node;
        o->walked[o->num_walked++] = node;
        o->seen[node] = o->walk_next++;
        node = next;
        bool is_last = node == QUIRE_NULL_BLOCK || o->num_walked == most;
        if (n < LAZY_AT_ONCE && !is_last)
            continue;
        uint32_t done = qr_round_take_missing(o, gpu, n, round, &num_with_key);
        has_room_left = done == n;
        qr_round_count_missing(o, gpu + done, n - done);
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
        qr_eager_begin(o, index);
    }
    for (uint32_t g = 0; o->is_lazy && g < o->num_groups; g++)
        o->walked_at -= blocks[g].count; /* found blocks have left the queue, too */
    if (o->is_lazy && o->num_events > 0)
        note_used(o, blocks, o->num_groups);
}

/* ---- events ---------------------------------------------------------------- */

/* A number whose place is taken is left out. */
static bool find_place(quire_offload *o)
{
    if (o->num_events == o->num_places)
        return false;
    while (o->events[o->next_event & (o->num_places - 1)].store.count > 0)
        o->next_event++;
    return true;
}

static void make_event(quire_offload *o, const qr_store_round *round)
{
    uint32_t place = (uint32_t)(o->next_event & (o->num_places - 1));
    quire_offload_meta *meta = &o->meta;
    qr_offload_event *event = &o->events[place];
    *event = (qr_offload_event){.id = o->next_event,
                                .store = QR_NO_TRANSFERS,
                                .has_crcs = o->has_device && o->promote != NULL,
                                .has_saved = o->has_saved};
    qr_transfers_add(o, &event->store, round->gpu, round->cpu, round->count);
    event->store.sent = event->store.first;
    event->store.mark = o->mark;
    event->store.step = o->step;
    event->store.due_ns = qr_now_ns(&o->hooks) + o->deadline_ns;
    if (event->store.due_ns < o->next_due_ns)
        o->next_due_ns = event->store.due_ns;
    o->num_events++;
    if (o->has_device)
        o->unsent_events[o->num_unsent++] = place;
    o->has_saved = false;
    meta->store_event = o->next_event++;
    meta->num_stores = round->count;
}

/* What was decided between the steps comes first. */
static void add_kept(quire_offload *o, qr_store_round *round)
{
    for (uint32_t at = o->kept.first, next; at != QR_NIL; at = next) {
        const qr_transfer_batch *batch = &o->transfers[at];
        next = batch->next;
        memcpy(round->gpu + round->count, batch->gpu, batch->count * sizeof *batch->gpu);
        memcpy(round->cpu + round->count, batch->cpu, batch->count * sizeof *batch->cpu);
        round->count += batch->count;
        qr_transfers_return(o, at);
    }
    o->kept = QR_NO_TRANSFERS;
}

/* Stores must not take the memory that requests need, however slow they are. */
static uint32_t num_stores_left(const quire_offload *o)
{
    return o->most_stores > o->num_flight ? o->most_stores - o->num_flight : 0;
}

void qr_store_build(quire_offload *o, const quire_step *step)
{
    qr_store_round round = {.gpu = o->meta_store_gpu,
                            .cpu = o->meta_store_cpu,
                            .num_free = quire_pool_get_num_free_blocks(o->cpu),
                            .num_left = num_stores_left(o)};
    bool has_place = o->has_mark && o->num_late == 0 && find_place(o);
    o->num_walked = 0;
    if (has_place)
        add_kept(o, &round);
    if (o->is_lazy && o->num_events > 0) {
        note_used(o, step->blocks, step->num_reqs * o->num_groups);
        for (uint32_t i = 0; i < step->num_copies; i++) { /* that are filled on a write */
            quire_block_span copied = {&step->copies[i].to, 1};
            note_used(o, &copied, 1);
        }
    }
    if (!o->is_lazy)
        qr_eager_choose(o, step, has_place, &round);
    else if (has_place)
        choose_lazy(o, &round);
    if (round.count > 0)
        make_event(o, &round);
}

void qr_store_of_one(quire_offload *o, qr_offload_req *r, uint32_t most)
{
    uint32_t num_left = num_stores_left(o);
    qr_store_round round = {.gpu = o->scratch,
                            .cpu = o->scratch2,
                            .num_free = quire_pool_get_num_free_blocks(o->cpu),
                            .num_left = num_left < most ? num_left : most};
    qr_eager_choose_last(o, r, &round);
    if (round.count == 0)
        return;
    for (uint32_t i = 0; o->is_lazy && i < round.count; i++)
        qr_bit_set(o->is_used, round.gpu[i]); /* a request had them: they are not cold */
    qr_transfers_add(o, &o->kept, round.gpu, round.cpu, round.count);
}

/* Adds a user to each CPU block that holds one of these GPU blocks, so that nothing evicts it, and
 * lists the CPU blocks in o->refs. Returns how many are listed. */
static uint32_t keep_found(quire_offload *o, const quire_block *gpu, uint32_t n, uint32_t num_kept)
{
    quire_block found[LAZY_AT_ONCE];
    for (uint32_t i = 0; i < n; i += LAZY_AT_ONCE) {
        uint32_t part = n - i < LAZY_AT_ONCE ? n - i : LAZY_AT_ONCE;
        quire_pool_find_same(o->cpu, o->gpu, gpu + i, part, found);
        for (uint32_t k = 0; k < part; k++)
            if (gpu[i + k] != QUIRE_NULL_BLOCK && found[k] != QUIRE_NULL_BLOCK &&
                found[k] != UINT32_MAX && quire_pool_touch(o->cpu, &found[k], 1) == QUIRE_OK)
                o->refs[num_kept++] = found[k];
    }
    return num_kept;
}

/* Of a group that has gaps: behind the last of n blocks with a key no hit ends. */
static uint32_t end_of_keys(const quire_offload *o, const quire_block_span *blocks, uint32_t n)
{
    quire_block_info info;
    n = n < blocks->count ? n : blocks->count;
    while (n > 0 && blocks->ids[n - 1] != QUIRE_NULL_BLOCK &&
           quire_pool_get_block(o->gpu, blocks->ids[n - 1], &info) == QUIRE_OK &&
           info.hash.data == NULL)
        n--;
    return n;
}

uint32_t qr_store_preempted(quire_offload *o, qr_offload_req *r, const quire_block_span *blocks,
                            uint32_t num_tokens, bool is_urgent)
{
    uint32_t *num_stored = &o->num_stored[(size_t)(r - o->reqs) * o->num_groups];
    uint32_t num_blocks = 0;
    uint32_t num_kept = 0;
    for (uint32_t g = 0; g < o->num_groups; g++)
        for (uint32_t i = 0; i < blocks[g].count; i++)
            num_blocks += blocks[g].ids[i] != QUIRE_NULL_BLOCK;
    if (num_blocks > o->num_cpu / 2) /* the request would evict its own head */
        return 0;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        num_stored[g] = 0; /* what was there may be evicted by now */
        num_kept = keep_found(o, blocks[g].ids, blocks[g].count, num_kept);
    }
    r->loaded_from = r->loaded_to = 0;
    qr_store_of_one(o, r, is_urgent ? num_blocks / 2 : UINT32_MAX);
    while (num_kept > 0) /* most recently used from now on; the head of the prompt goes last */
        quire_pool_free_blocks(o->cpu, &o->refs[--num_kept], 1);
    o->has_saved = o->has_saved || o->kept.count > 0;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        const qr_offload_group *group = &o->groups[g];
        uint32_t stored =
            group->has_gaps ? end_of_keys(o, &blocks[g], num_stored[g]) : num_stored[g];
        uint32_t tokens = stored * group->block_size;
        num_tokens = tokens < num_tokens ? tokens : num_tokens;
    }
    r->num_saved = num_tokens;
    return num_tokens;
}

/* tier/planner/loads.c - host blocks to the blocks that a request got for them. A hit covers the
 * tail of what a group has, so both sides are laid end to end (see tier/offload/offload.h). */
#include "tier/planner/planner.h"

/* One pair more of the request's load; there is a batch for it. */
static void add_pair(quire_planner *p, qr_planner_req *r, qr_planner_batch **last,
                     quire_block block, uint32_t slot)
{
    if (*last == NULL || (*last)->job.num_copies == QR_BATCH_COPIES) {
        *last = qr_planner_new_batch(p, QUIRE_DEVICE_LOAD);
        qr_planner_queue_batch(p, *last);
        (*last)->owner = (uint32_t)(r - p->reqs);
        r->num_batches++;
    }
    (*last)->copies[(*last)->job.num_copies++] = (quire_device_copy){.block = block, .slot = slot};
    if (p->holds_loads)
        qr_planner_hold(p, block);
    p->slots[slot].num_loads++;
    p->slots[slot].last_load = p->last_load;
}

/* A host block of the hit that has no place of its own in the engine is not loaded. Returns how
 * many are. */
static uint32_t pair_blocks(quire_planner *p, qr_planner_req *r, const quire_block_span *blocks)
{
    qr_planner_match *m = &p->match;
    qr_planner_batch *last = NULL;
    const quire_block *host = m->blocks;
    uint32_t total = m->num_local + m->num_external;
    uint32_t n = 0;
    for (uint32_t g = 0; g < p->host.num_groups; host += m->counts[g++]) {
        uint32_t size = p->host.groups[g].block_size;
        uint32_t first = (total + size - 1) / size - m->counts[g];
        for (uint32_t i = 0; i < m->counts[g]; i++) {
            uint32_t at = first + i;
            quire_block block = at < blocks[g].count ? blocks[g].ids[at] : QUIRE_NULL_BLOCK;
            if (host[i] == QUIRE_NULL_BLOCK)
                continue;
            if (block == QUIRE_NULL_BLOCK || block >= p->num_gpu) {
                quire_pool_free_blocks(p->host.pool, &host[i], 1);
                continue;
            }
            add_pair(p, r, &last, block, host[i]);
            p->scratch[n++] = host[i];
        }
    }
    return n;
}

static void end_load(quire_planner *p, qr_planner_req *r)
{
    r->load = QR_PLANNER_LOADED;
    p->ended[p->num_ended++] = (uint32_t)(r - p->reqs);
}

/* What of the request's blocks in the host pool is known needs no store. */
static void skip_stored(quire_planner *p, const qr_planner_req *r, uint32_t num_tokens)
{
    uint32_t *num_stored = &p->num_stored[(size_t)(r - p->reqs) * p->host.num_groups];
    for (uint32_t g = 0; g < p->host.num_groups; g++)
        num_stored[g] = num_tokens / p->host.groups[g].block_size;
}

/* The engine waits for tokens that nobody promised: they are told to be lost, with all blocks of
 * the first group. */
static void begin_lost(quire_planner *p, qr_planner_req *r, const quire_block_span *blocks)
{
    qr_planner_batch *last = NULL;
    for (uint32_t i = 0; i < blocks[0].count; i++) {
        if (blocks[0].ids[i] == QUIRE_NULL_BLOCK || blocks[0].ids[i] >= p->num_gpu)
            continue;
        if (last == NULL || last->job.num_copies == QR_BATCH_COPIES) {
            last = qr_planner_new_batch(p, QUIRE_DEVICE_LOAD);
            if (last == NULL)
                break;
            last->owner = (uint32_t)(r - p->reqs);
            last->next = r->first_batch;
            r->first_batch = (uint32_t)(last - p->batches);
        }
        last->copies[last->job.num_copies++] = (quire_device_copy){.block = blocks[0].ids[i]};
    }
    r->has_failed = true;
    end_load(p, r);
}

void qr_planner_begin_load(quire_planner *p, qr_planner_req *r, const quire_block_span *blocks,
                           uint32_t num_external)
{
    qr_planner_match *m = &p->match;
    r->first_batch = QR_NIL;
    r->num_batches = 0;
    r->has_failed = false;
    r->load = QR_PLANNER_LOADING;
    if (!m->is_pinned || m->req != r->req || m->num_external != num_external) {
        begin_lost(p, r, blocks);
        return;
    }
    p->last_load++;
    if (m->num_local == 0)
        skip_stored(p, r, num_external);
    uint32_t n = pair_blocks(p, r, blocks);
    if (p->promote != NULL)
        qr_promote_reused(p->promote, p->scratch, n);
    m->is_pinned = false; /* the users are the load's now */
    m->req = 0;
    qr_count_add(&p->counters.hit_tokens, num_external);
    qr_count_add(&p->counters.loads_in_flight, n);
    if (n == 0)
        end_load(p, r);
}

/* The host blocks of a whole load, from the last to the first: the start of a prefix is evicted
 * last. */
static void free_slots(quire_planner *p, const qr_planner_req *r)
{
    for (uint32_t at = r->first_batch; at != QR_NIL; at = p->batches[at].next) {
        const qr_planner_batch *batch = &p->batches[at];
        uint32_t n = batch->job.num_copies;
        for (uint32_t i = 0; i < n; i++) {
            p->scratch[i] = batch->copies[n - 1 - i].slot;
            p->slots[p->scratch[i]].num_loads--;
        }
        quire_pool_free_blocks(p->host.pool, p->scratch, n);
        qr_count_add(&p->counters.loads_in_flight, UINT64_C(0) - n);
    }
}

/* The batch stays with its request until the load is told: its blocks may be invalid. */
void qr_planner_end_load_batch(quire_planner *p, qr_planner_batch *batch, bool is_good)
{
    qr_planner_req *r = &p->reqs[batch->owner];
    qr_count_add(&p->counters.loaded_blocks, is_good ? batch->job.num_copies : 0);
    r->has_failed = r->has_failed || !is_good;
    batch->is_out = false;
    batch->next = r->first_batch;
    r->first_batch = (uint32_t)(batch - p->batches);
    if (--r->num_batches > 0)
        return;
    free_slots(p, r);
    end_load(p, r);
}

void qr_planner_tell_loads(quire_planner *p)
{
    p->num_loaded = p->num_failed = p->num_failed_blocks = 0;
    for (uint32_t i = 0; i < p->num_ended; i++) {
        qr_planner_req *r = &p->reqs[p->ended[i]];
        for (uint32_t at = r->first_batch, next; at != QR_NIL; at = next) {
            qr_planner_batch *batch = &p->batches[at];
            next = batch->next;
            bool is_told = r->has_failed && !r->has_ended; /* else they may be another's by now */
            for (uint32_t k = 0; is_told && k < batch->job.num_copies; k++)
                p->failed_blocks[p->num_failed_blocks++] = batch->copies[k].block;
            qr_planner_free_batch(p, batch);
        }
        if (r->has_failed) {
            p->failed[p->num_failed++] = r->req;
            qr_count_add(&p->counters.failed_loads, 1);
        } else {
            p->loaded[p->num_loaded++] = r->req;
        }
        r->first_batch = QR_NIL;
        r->load = QR_PLANNER_NO_LOAD;
        if (r->has_ended)
            qr_planner_free_req(p, r);
    }
    p->num_ended = 0;
}

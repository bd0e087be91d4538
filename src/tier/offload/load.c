/* tier/offload/load.c - loads: CPU blocks to GPU blocks. */
#include "tier/offload/offload.h"

/* ---- beginning ------------------------------------------------------------- */

/* A CPU block of the hit that has no place of its own in the engine's memory is not loaded. */
static void pair_blocks(quire_offload *o, qr_offload_req *r, const quire_block_span *blocks)
{
    uint32_t n = 0;
    qr_offload_match *m = &o->match;
    uint32_t total = m->num_local + m->num_tokens;
    const quire_block *cpu = m->blocks;
    for (uint32_t g = 0; g < o->num_groups; cpu += m->counts[g++]) {
        uint32_t num_computed = (total + o->groups[g].block_size - 1) / o->groups[g].block_size;
        for (uint32_t i = 0; i < m->counts[g]; i++) {
            uint32_t at = num_computed - m->counts[g] + i;
            quire_block gpu = at < blocks[g].count ? blocks[g].ids[at] : QUIRE_NULL_BLOCK;
            if (cpu[i] == QUIRE_NULL_BLOCK)
                continue;
            if (gpu == QUIRE_NULL_BLOCK) {
                if (m->is_pinned)
                    quire_pool_free_blocks(o->cpu, &cpu[i], 1);
                continue;
            }
            o->scratch[n] = gpu;
            o->scratch2[n++] = cpu[i];
        }
    }
    qr_transfers_add(o, &r->load, o->scratch, o->scratch2, n);
}

/* The scheduler waits for tokens that nobody promised: they are told to be lost. */
static void begin_lost(quire_offload *o, qr_offload_req *r, const quire_block_span *blocks)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < blocks[0].count && i < o->groups[0].max_blocks; i++) {
        o->scratch2[n] = QUIRE_NULL_BLOCK;
        if (blocks[0].ids[i] != QUIRE_NULL_BLOCK)
            o->scratch[n++] = blocks[0].ids[i];
    }
    qr_transfers_add(o, &r->load, o->scratch, o->scratch2, n);
    quire_pool_hold(o->gpu, o->scratch, n);
    qr_load_end(o, quire_req_index(r->req), true);
}

void qr_load_begin(quire_offload *o, quire_req req, const quire_block_span *blocks,
                   uint32_t num_external)
{
    qr_offload_match *m = &o->match;
    qr_offload_req *r = &o->reqs[quire_req_index(req)];
    if (!r->is_loaded) /* else it comes back with what was loaded */
        r->loaded_to = 0;
    r->is_loaded = false;
    if (num_external == 0)
        return;
    r->load.step = o->step + 1;
    r->has_ended = false;
    r->is_fresh = true;
    if (m->req != req || m->num_tokens != num_external) {
        begin_lost(o, r, blocks);
        return;
    }
    pair_blocks(o, r, blocks);
    r->loaded_from = m->num_local;
    r->loaded_to = m->num_local + m->num_tokens;
    if (!m->is_pinned)
        quire_pool_touch(o->cpu, o->scratch2, r->load.count);
    quire_pool_hold(o->gpu, o->scratch, r->load.count);
    if (o->promote != NULL)
        qr_promote_reused(o->promote, o->scratch2, r->load.count);
    m->is_pinned = false; /* the users are the load's now */
    m->req = 0;
    r->load_state = QR_LOAD_WAITS;
    o->new_loads[o->num_new_loads++] = quire_req_index(req);
    qr_count_add(&o->counters.hit_tokens, num_external);
    qr_count_add(&o->counters.loads_in_flight, r->load.count);
}

void qr_load_refuse(quire_offload *o)
{
    for (uint32_t i = 0; i < o->num_new_loads; i++) {
        o->reqs[o->new_loads[i]].load.step = o->step;
        qr_load_end(o, o->new_loads[i], true);
    }
    o->num_new_loads = 0;
}

void qr_load_build(quire_offload *o, bool zeroes)
{
    quire_offload_meta *meta = &o->meta;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->num_new_loads; i++) {
        qr_offload_req *r = &o->reqs[o->new_loads[i]];
        if (zeroes && r->is_fresh) {
            r->is_fresh = false;
            o->new_loads[kept++] = o->new_loads[i];
            continue;
        }
        for (uint32_t at = r->load.first; at != QR_NIL; at = o->transfers[at].next) {
            const qr_transfer_batch *batch = &o->transfers[at];
            memcpy(o->meta_load_gpu + meta->num_loads, batch->gpu,
                   batch->count * sizeof *batch->gpu);
            memcpy(o->meta_load_cpu + meta->num_loads, batch->cpu,
                   batch->count * sizeof *batch->cpu);
            meta->num_loads += batch->count;
        }
        o->meta_reqs[meta->num_load_reqs++] = r->req;
        r->load_state = QR_LOAD_ON_THE_WAY;
        r->load.step = o->step;
        r->load.mark = o->mark;
        r->load.sent = r->load.first;
        if (!o->has_device)
            continue;
        o->sending[o->num_sending++] = o->new_loads[i];
        qr_copy_expect_load(o, o->new_loads[i]);
    }
    if (meta->num_load_reqs > 0)
        meta->load_event = o->next_load_event++;
    o->num_new_loads = kept;
}

/* ---- ending ---------------------------------------------------------------- */

bool qr_load_is_on_the_way(quire_offload *o, quire_req req)
{
    const qr_offload_req *r = qr_offload_find(o, req);
    return r != NULL && r->load_state == QR_LOAD_ON_THE_WAY;
}

void qr_load_end(quire_offload *o, uint32_t index, bool has_failed)
{
    qr_offload_req *r = &o->reqs[index];
    if (o->has_device && r->load_state == QR_LOAD_ON_THE_WAY)
        qr_copy_forget_load(o, index);
    r->load_state = QR_LOAD_ENDED;
    r->load.has_failed |= has_failed;
    o->ended_loads[o->num_ended_loads++] = index;
}

bool qr_load_abandon(quire_offload *o, qr_offload_req *r)
{
    uint32_t index = (uint32_t)(r - o->reqs);
    if (r->load_state == QR_LOAD_NONE)
        return false;
    r->has_ended = true;
    if (r->load_state != QR_LOAD_WAITS)
        return true;
    uint32_t kept = 0; /* nobody has begun it */
    for (uint32_t i = 0; i < o->num_new_loads; i++)
        if (o->new_loads[i] != index)
            o->new_loads[kept++] = o->new_loads[i];
    o->num_new_loads = kept;
    qr_load_end(o, index, true);
    return true;
}

/* A failure is for the update of a step that knows of the load: one before would pass over it. */
void qr_load_tell(quire_offload *o, uint64_t step, quire_model_output *output)
{
    uint32_t num_told = 0;
    uint32_t num_invalid = 0;
    for (uint32_t i = 0; i < o->num_ended_loads; i++) {
        qr_offload_req *r = &o->reqs[o->ended_loads[i]];
        bool must_fail = r->load.has_failed && !r->has_ended;
        r->load_state = QR_LOAD_ENDED;
        if (must_fail && r->load.step > step)
            continue;
        r->load_state = QR_LOAD_TOLD;
        o->told_reqs[num_told++] = r->req;
        for (uint32_t at = r->load.first; must_fail && at != QR_NIL; at = o->transfers[at].next)
            for (uint32_t k = 0; k < o->transfers[at].count; k++)
                o->invalid_blocks[num_invalid++] = o->transfers[at].gpu[k];
    }
    output->finished_recving = o->told_reqs;
    output->num_finished_recving = num_told;
    output->invalid_blocks = o->invalid_blocks;
    output->num_invalid_blocks = num_invalid;
}

/* The last first, as requests do. Returns how many CPU blocks it has: of a load that was lost none.
 */
static uint32_t leave_loaded(quire_offload *o, const qr_transfer_batch *batch)
{
    uint32_t n = batch->count;
    uint32_t num_cpu = batch->cpu[0] == QUIRE_NULL_BLOCK ? 0 : n;
    quire_block last_first[QR_TRANSFER_PAIRS] = {0};
    qr_reverse(batch->cpu, num_cpu, last_first);
    quire_pool_free_blocks(o->cpu, last_first, num_cpu);
    qr_reverse(batch->gpu, n, last_first);
    quire_pool_let_go(o->gpu, last_first, n, 0);
    return num_cpu;
}

static void finish_load(quire_offload *o, qr_offload_req *r)
{
    uint32_t num_cpu = 0;
    uint32_t n = r->load.count;
    uint32_t at = r->load.last;
    while (at != QR_NIL) {
        const qr_transfer_batch *batch = &o->transfers[at];
        uint32_t next = batch->prev;
        num_cpu += leave_loaded(o, batch);
        qr_transfers_return(o, at);
        at = next;
    }
    qr_count_add(&o->counters.loads_in_flight, 0 - (uint64_t)num_cpu);
    r->is_loaded = !r->load.has_failed;
    if (r->load.has_failed)
        qr_count_add(&o->counters.failed_loads, 1);
    qr_count_add(r->load.has_failed ? &o->counters.failed_load_blocks : &o->counters.loaded_blocks,
                 n);
    r->load_state = QR_LOAD_NONE;
    r->load = QR_NO_TRANSFERS;
    if (r->has_ended)
        qr_offload_leave(o, r);
}

void qr_load_finish_told(quire_offload *o)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->num_ended_loads; i++) {
        qr_offload_req *r = &o->reqs[o->ended_loads[i]];
        if (r->load_state == QR_LOAD_TOLD)
            finish_load(o, r);
        else
            o->ended_loads[kept++] = o->ended_loads[i];
    }
    o->num_ended_loads = kept;
}

void qr_load_drop_all(quire_offload *o)
{
    for (uint32_t i = 0; i < o->max_requests; i++)
        if (o->reqs[i].load_state != QR_LOAD_NONE && o->reqs[i].load_state != QR_LOAD_TOLD)
            o->reqs[i].load.has_failed = true;
}

/* tier/offload/check.c - the walker: every user of a block is known. */
#include "tier/offload/offload.h"

/* What was found so far. */
typedef struct findings {
    uint32_t *cpu; /* users of each block */
    uint32_t *gpu;
    uint64_t num_batches; /* in lists */
} findings;

/* Counts on both sides what a list of transfers holds. False: it is none, or has another count. */
static bool count_transfers(const quire_offload *o, const qr_transfers *list, findings *f)
{
    uint32_t prev = QR_NIL;
    uint32_t n = 0;
    for (uint32_t at = list->first; at != QR_NIL; at = o->transfers[at].next) {
        if (at >= o->num_transfers || ++f->num_batches > o->num_transfers ||
            o->transfers[at].prev != prev)
            return false;
        prev = at;
        const qr_transfer_batch *batch = &o->transfers[at];
        bool is_full = batch->count == QR_TRANSFER_PAIRS;
        if (batch->count > QR_TRANSFER_PAIRS || (!is_full && batch->next != QR_NIL))
            return false;
        for (uint32_t i = 0; i < batch->count; i++) {
            if (batch->gpu[i] >= o->num_gpu || batch->cpu[i] >= o->num_cpu)
                return false;
            f->gpu[batch->gpu[i]]++;
            f->cpu[batch->cpu[i]]++;
        }
        n += batch->count;
    }
    return list->last == prev && list->count == n;
}

/* Each batch is free, or in one of the lists. */
static bool are_transfers_there(const quire_offload *o, const findings *f)
{
    uint64_t n = f->num_batches + o->num_fresh_transfers;
    for (uint32_t at = o->free_transfer; at != QR_NIL && n <= o->num_transfers;
         at = o->transfers[at].next)
        n++;
    return n == o->num_transfers;
}

static bool count_stores(const quire_offload *o, findings *f)
{
    uint32_t num_events = 0;
    uint64_t total = o->kept.count;
    if (!count_transfers(o, &o->kept, f))
        return false;
    for (uint32_t i = 0; i < o->num_places; i++) {
        const qr_transfers *store = &o->events[i].store;
        if (store->count > 0 && !count_transfers(o, store, f))
            return false;
        num_events += store->count > 0;
        total += store->count;
    }
    uint64_t pending = 0;
    for (uint32_t i = 0; i < o->num_cpu; i++)
        pending += quire_pool_count_unheld(o->cpu, &i, 1) == 0;
    return num_events == o->num_events && total == pending &&
           total == atomic_load(&o->counters.stores_in_flight);
}

static bool count_loads(const quire_offload *o, findings *f)
{
    for (uint32_t i = 0; i < o->max_requests; i++) {
        const qr_offload_req *r = &o->reqs[i];
        if (r->load_state != QR_LOAD_NONE && !count_transfers(o, &r->load, f))
            return false;
    }
    for (uint32_t i = 0; i < o->num_jobs; i++) { /* loads that were given up */
        const qr_offload_job *job = &o->jobs[i];
        for (uint32_t k = 0; job->is_late && k < job->job.num_copies; k++) {
            f->gpu[job->copies[k].block]++;
            f->cpu[job->copies[k].slot]++;
        }
    }
    return true;
}

/* What was told to the scheduler, and what requests are expected to need. */
static bool count_hits(const quire_offload *o, uint32_t *cpu)
{
    uint32_t n = 0;
    for (uint32_t g = 0; o->match.is_pinned && g < o->num_groups; g++)
        n += o->match.counts[g];
    for (uint32_t i = o->match.num_known; i < n; i++)
        cpu[o->match.blocks[i]]++;
    for (uint32_t i = 0; i < o->num_expected; i++) {
        const qr_offload_req *r = &o->reqs[o->expected[i]];
        uint32_t node = r->protect_last;
        for (uint32_t left = r->num_protected; left > 0; left--) {
            if (node == QR_NIL)
                return false;
            cpu[o->nodes[node].blocks[(left - 1) % QR_NODE_BLOCKS]]++;
            if ((left - 1) % QR_NODE_BLOCKS == 0)
                node = o->nodes[node].next;
        }
        if (node != QR_NIL)
            return false;
    }
    return true;
}

/* The blocks of requests; those that ended while they load have theirs still. Returns how many have
 * some. */
static uint32_t count_requests(const quire_offload *o, uint32_t *gpu)
{
    uint32_t num_with_blocks = 0;
    for (uint32_t which = 0; which <= 3; which++) {
        uint32_t n = 0;
        if (which < 3)
            n = quire_sched_get_queue(o->sched, which, o->check_queue, o->max_requests);
        for (uint32_t i = 0; which == 3 && i < o->max_requests; i++)
            if (o->reqs[i].load_state != QR_LOAD_NONE && o->reqs[i].has_ended)
                o->check_queue[n++] = o->reqs[i].req;
        for (uint32_t i = 0; i < n; i++) {
            quire_block_span spans[QR_OFFLOAD_MAX_GROUPS];
            if (quire_sched_get_blocks(o->sched, o->check_queue[i], spans) != QUIRE_OK)
                continue;
            uint32_t num_blocks = 0;
            for (uint32_t g = 0; g < o->num_groups; g++) {
                num_blocks += spans[g].count;
                for (uint32_t k = 0; k < spans[g].count; k++)
                    gpu[spans[g].ids[k]]++;
            }
            num_with_blocks += num_blocks > 0;
        }
    }
    return num_with_blocks;
}

/* has_more: pins of the scheduler, sinks, and sequences that are no request's, which are not seen
 * from here. */
static bool are_counts_right(const quire_pool *pool, const uint32_t *refs, uint32_t n,
                             bool has_more)
{
    for (quire_block block = 1; block < n; block++) {
        quire_block_info info;
        if (quire_pool_get_block(pool, block, &info) != QUIRE_OK || info.ref_cnt < refs[block] ||
            (info.ref_cnt > refs[block] && !has_more))
            return false;
    }
    return true;
}

int qr_offload_check(const quire_offload *o)
{
    findings f = {.cpu = o->refs, .gpu = o->refs + o->num_cpu};
    memset(o->refs, 0, ((size_t)o->num_cpu + o->num_gpu) * sizeof *o->refs);
    if (quire_cache_check(o->cpu_cache) != QUIRE_OK || !count_stores(o, &f) ||
        !count_loads(o, &f) || !are_transfers_there(o, &f) || !count_hits(o, f.cpu))
        return QUIRE_E_CORRUPT;
    if (o->promote != NULL && qr_promote_check(o->promote) != QUIRE_OK)
        return QUIRE_E_CORRUPT;
    if (o->promote != NULL)
        qr_promote_count_refs(o->promote, f.cpu);
    if (!are_counts_right(o->cpu, f.cpu, o->num_cpu, o->has_pins))
        return QUIRE_E_CORRUPT;
    if (o->gpu == NULL)
        return QUIRE_OK;
    bool has_others = count_requests(o, f.gpu) < quire_cache_get_counts(o->gpu_cache).num_seqs;
    bool is_right = are_counts_right(o->gpu, f.gpu, o->num_gpu, o->has_pins || has_others);
    return is_right ? QUIRE_OK : QUIRE_E_CORRUPT;
}

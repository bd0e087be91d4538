/* tier/planner/check.c - the walker: every user of a host block is known. */
#include "tier/planner/planner.h"

/* The batches of a load have users until all of them have ended. */
static bool has_users(const quire_planner *p, const qr_planner_batch *batch)
{
    if (!batch->is_used || batch->job.op == QUIRE_DEVICE_STORE)
        return batch->is_used;
    return p->reqs[batch->owner].load == QR_PLANNER_LOADING;
}

static bool count_batches(const quire_planner *p)
{
    uint64_t num_storing = 0;
    uint64_t num_loading = 0;
    uint32_t num_used = 0;
    for (uint32_t i = 0; i < p->num_batches; i++) {
        const qr_planner_batch *batch = &p->batches[i];
        num_used += batch->is_used;
        if (!has_users(p, batch))
            continue;
        for (uint32_t k = 0; k < batch->job.num_copies; k++) {
            if (batch->copies[k].slot >= p->num_slots || batch->copies[k].block >= p->num_gpu)
                return false;
            p->refs[batch->copies[k].slot]++;
        }
        if (batch->job.op == QUIRE_DEVICE_STORE)
            num_storing += batch->job.num_copies;
        else
            num_loading += batch->job.num_copies;
    }
    return num_storing == p->num_storing && num_used + p->num_free_batches == p->num_batches &&
           num_loading == qr_count_get(&p->counters.loads_in_flight);
}

static void count_match(const quire_planner *p)
{
    uint32_t n = 0;
    for (uint32_t g = 0; p->match.is_pinned && g < p->host.num_groups; g++)
        n += p->match.counts[g];
    for (uint32_t i = 0; i < n; i++)
        if (p->match.blocks[i] != QUIRE_NULL_BLOCK)
            p->refs[p->match.blocks[i]]++;
}

int qr_planner_check(const quire_planner *p)
{
    memset(p->refs, 0, p->num_slots * sizeof *p->refs);
    if (!count_batches(p))
        return QUIRE_E_CORRUPT;
    count_match(p);
    if (p->promote != NULL)
        qr_promote_count_refs(p->promote, p->refs);
    for (quire_block block = 1; block < p->num_slots; block++) {
        quire_block_info info;
        if (quire_pool_get_block(p->host.pool, block, &info) != QUIRE_OK ||
            info.ref_cnt != p->refs[block])
            return QUIRE_E_CORRUPT;
    }
    return p->promote == NULL ? QUIRE_OK : qr_promote_check(p->promote);
}

/* tier/promote/check.c - the walker: every reference has an owner, every count is what it counts.
 * */
#include "tier/promote/parts.h"

void qr_promote_count_refs(const qr_promote *promote, uint32_t *refs)
{
    for (uint32_t i = 0; i < QR_LOWER_ALL_JOBS * promote->num_tiers; i++) {
        const qr_promote_job *job = &promote->jobs[i];
        for (uint32_t k = 0; job->has_blocks && k < job->job.num_ios; k++)
            refs[job->blocks[k]]++;
    }
}

/* Moves in queues, and in jobs. */
static uint32_t count_moves(const qr_promote *promote, bool *is_good)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        for (uint32_t q = 0; q < QR_QUEUE_COUNT; q++) {
            const qr_promote_queue *queue = &promote->tiers[t].queues[q];
            uint32_t n = 0;
            for (uint32_t i = queue->chain.first; i != QR_NIL; i = promote->moves[i].link.next) {
                const qr_move *m = &promote->moves[i];
                *is_good = *is_good && m->is_used && m->queue == q && m->tier == t &&
                           m->is_store == (q == QR_QUEUE_STORE) && n <= promote->num_moves;
                if (!*is_good)
                    return 0;
                n++;
            }
            *is_good = *is_good && n == queue->count;
            count += n;
        }
    for (uint32_t i = 0; i < QR_LOWER_ALL_JOBS * promote->num_tiers; i++) {
        const qr_promote_job *job = &promote->jobs[i];
        if (!job->is_out && promote->tiers[job->tier].stalled != i)
            continue;
        for (uint32_t k = 0; k < job->job.num_ios; k++)
            count += job->moves[k] != QR_NIL ? 1 : 0;
    }
    return count;
}

/* Live waiters of a record are what it waits for. */
static bool are_records_good(const qr_promote *promote)
{
    uint64_t live = 0;
    uint64_t pending = 0;
    for (uint32_t i = 0; i < promote->num_moves; i++) {
        if (!promote->moves[i].is_used)
            continue;
        for (uint32_t w = promote->moves[i].first_waiter; w != QR_NIL; w = promote->waiters[w].next)
            live += promote->records[promote->waiters[w].record].epoch == promote->waiters[w].epoch;
    }
    for (uint32_t i = 0; i < promote->num_records; i++) {
        if (promote->records[i].pending > 0 && promote->records[i].state != QR_ASK_WAITING)
            return false;
        pending += promote->records[i].pending;
    }
    return live == pending;
}

/* Those that tiers have had something to do with are marked. */
static bool are_pasts_good(const qr_promote *promote)
{
    for (uint32_t i = 0; i < promote->num_cpu_blocks; i++)
        if ((promote->blocks[i].origin | promote->blocks[i].offered) != 0 &&
            !qr_bit_get(promote->has_past, i))
            return false;
    return true;
}

/* The index has the moves that load, each under its key. */
static bool is_index_good(const qr_promote *promote)
{
    uint64_t distances = 0;
    uint64_t sum_passed;
    if (!qr_buckets_is_valid(&promote->index, &sum_passed))
        return false;
    for (uint32_t i = 0; i < promote->num_moves; i++) {
        const qr_move *m = &promote->moves[i];
        if (!m->is_used || m->is_store)
            continue;
        if (qr_promote_move_find(promote, &m->key) != i)
            return false;
        distances += qr_slots_index_distance(&promote->index, m->tag, i);
    }
    return distances == sum_passed && promote->num_loads == promote->index.used;
}

int qr_promote_check(const qr_promote *promote)
{
    bool is_good = are_pasts_good(promote);
    uint32_t moves = count_moves(promote, &is_good);
    uint32_t used = 0;
    for (uint32_t i = 0; i < promote->num_moves; i++)
        used += promote->moves[i].is_used ? 1 : 0;
    uint32_t counted = promote->num_loads;
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        counted += promote->tiers[t].num_queued;
    is_good = is_good && moves == used && used == counted && is_index_good(promote) &&
              are_records_good(promote);
    return is_good ? QUIRE_OK : QUIRE_E_CORRUPT;
}

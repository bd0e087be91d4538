/* tier/lower_check.c - the walker: every reference has an owner, every count is what it counts. */
#include "tier/lower_parts.h"

void qr_lower_count_refs(const qr_lower *lower, uint32_t *refs)
{
    uint32_t per_tier = QR_LOWER_JOBS + QR_LOWER_FIND_JOBS;
    for (uint32_t i = 0; i < per_tier * lower->num_tiers; i++) {
        const qr_lower_job *job = &lower->jobs[i];
        for (uint32_t k = 0; job->has_blocks && k < job->job.num_ios; k++)
            refs[job->blocks[k]]++;
    }
}

/* Moves in queues, and in jobs. */
static uint32_t count_moves(const qr_lower *lower, bool *is_good)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < lower->num_tiers; t++)
        for (uint32_t q = 0; q < QR_QUEUE_COUNT; q++) {
            const qr_lower_queue *queue = &lower->tiers[t].queues[q];
            uint32_t n = 0;
            for (uint32_t i = queue->first; i != QR_NIL; i = lower->moves[i].next) {
                const qr_move *m = &lower->moves[i];
                *is_good = *is_good && m->is_used && m->queue == q && m->tier == t &&
                           m->is_store == (q == QR_QUEUE_STORE) && n <= lower->num_moves;
                if (!*is_good)
                    return 0;
                n++;
            }
            *is_good = *is_good && n == queue->count;
            count += n;
        }
    uint32_t per_tier = QR_LOWER_JOBS + QR_LOWER_FIND_JOBS;
    for (uint32_t i = 0; i < per_tier * lower->num_tiers; i++) {
        const qr_lower_job *job = &lower->jobs[i];
        if (!job->is_out && lower->tiers[job->tier].stalled != i)
            continue;
        for (uint32_t k = 0; k < job->job.num_ios; k++)
            count += job->moves[k] != QR_NIL ? 1 : 0;
    }
    return count;
}

/* Live waiters of a record are what it waits for. */
static bool are_records_good(const qr_lower *lower)
{
    uint64_t live = 0;
    uint64_t pending = 0;
    for (uint32_t i = 0; i < lower->num_moves; i++) {
        if (!lower->moves[i].is_used)
            continue;
        for (uint32_t w = lower->moves[i].first_waiter; w != QR_NIL; w = lower->waiters[w].next)
            live += lower->records[lower->waiters[w].record].epoch == lower->waiters[w].epoch;
    }
    for (uint32_t i = 0; i < lower->num_records; i++) {
        if (lower->records[i].pending > 0 && lower->records[i].state != QR_ASK_WAITING)
            return false;
        pending += lower->records[i].pending;
    }
    return live == pending;
}

/* Those that tiers have had something to do with are marked. */
static bool are_pasts_good(const qr_lower *lower)
{
    for (uint32_t i = 0; i < lower->num_cpu_blocks; i++)
        if ((lower->blocks[i].origin | lower->blocks[i].offered) != 0 &&
            !qr_bit_get(lower->has_past, i))
            return false;
    return true;
}

/* The index has the moves that load, each under its key. */
static bool is_index_good(const qr_lower *lower)
{
    uint64_t distances = 0;
    uint64_t sum_passed;
    if (!qr_buckets_is_valid(&lower->index, &sum_passed))
        return false;
    for (uint32_t i = 0; i < lower->num_moves; i++) {
        const qr_move *m = &lower->moves[i];
        if (!m->is_used || m->is_store)
            continue;
        if (qr_lower_move_find(lower, &m->key) != i)
            return false;
        distances += qr_slots_index_distance(&lower->index, m->tag, i);
    }
    return distances == sum_passed && lower->num_loads == lower->index.used;
}

int qr_lower_check(const qr_lower *lower)
{
    bool is_good = are_pasts_good(lower);
    uint32_t moves = count_moves(lower, &is_good);
    uint32_t used = 0;
    for (uint32_t i = 0; i < lower->num_moves; i++)
        used += lower->moves[i].is_used ? 1 : 0;
    uint32_t counted = lower->num_loads;
    for (uint32_t t = 0; t < lower->num_tiers; t++)
        counted += lower->tiers[t].num_queued;
    is_good = is_good && moves == used && used == counted && is_index_good(lower) &&
              are_records_good(lower);
    return is_good ? QUIRE_OK : QUIRE_E_CORRUPT;
}

#include "tier/file/queue.h"

static uint32_t next_pending(const quire_tier_job *job, uint32_t io)
{
    while (io < job->num_ios && job->ios[io].status != QUIRE_TIER_PENDING)
        io++;
    return io;
}

static void drop_first(qr_file_queue *queue)
{
    queue->first = queue->first->next;
    queue->next_io = queue->first == NULL ? 0 : next_pending(queue->first, 0);
}

void qr_file_queue_add(qr_file_queue *queue, quire_tier_job *job)
{
    uint32_t first_io = next_pending(job, 0);
    if (first_io == job->num_ios)
        return;
    job->next = NULL;
    if (queue->first == NULL) {
        queue->first = job;
        queue->next_io = first_io;
    } else {
        queue->last->next = job;
    }
    queue->last = job;
}

bool qr_file_queue_take(qr_file_queue *queue, quire_tier_job **job, uint32_t *io)
{
    if (queue->first == NULL)
        return false;
    *job = queue->first;
    *io = queue->next_io;
    queue->next_io = next_pending(*job, *io + 1);
    if (queue->next_io == (*job)->num_ios)
        drop_first(queue);
    return true;
}

bool qr_file_queue_cancel(qr_file_queue *queue, quire_tier_ends *ends, quire_tier_job *job)
{
    quire_tier_job *before = NULL;
    quire_tier_job *at = queue->first;
    while (at != NULL && at != job) {
        before = at;
        at = at->next;
    }
    if (at == NULL)
        return false;
    uint32_t io = before == NULL ? queue->next_io : next_pending(job, 0);
    if (before == NULL)
        drop_first(queue);
    else
        before->next = job->next;
    if (queue->last == job)
        queue->last = before;
    while (io < job->num_ios) {
        uint32_t next = next_pending(job, io + 1);
        ends->end(ends, job, io, QUIRE_TIER_CANCELLED);
        io = next;
    }
    return true;
}

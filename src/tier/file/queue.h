/* tier/file/queue.h - jobs that were begun, and how far.
 *
 *      first ─► job ─► job ─► last        through quire_tier_job.next
 *        └ ios before next_io were taken
 *
 * A job leaves the queue when its last io is taken: from then on it may end at any time, and
 * nothing here looks at it again. */
#ifndef QR_TIER_FILE_QUEUE_H
#define QR_TIER_FILE_QUEUE_H

#include <quire/tier.h>

#include <stdbool.h>

typedef struct qr_file_queue {
    quire_tier_job *first;
    quire_tier_job *last;
    uint32_t next_io; /* of the first; pending */
} qr_file_queue;

/* Its ios that are pending. */
void qr_file_queue_add(qr_file_queue *queue, quire_tier_job *job);
/* The next io; false: there is none. */
bool qr_file_queue_take(qr_file_queue *queue, quire_tier_job **job, uint32_t *io);
/* What of the job was not taken ends as cancelled; false: nothing of it is here. */
bool qr_file_queue_cancel(qr_file_queue *queue, quire_tier_ends *ends, quire_tier_job *job);

#endif

/* block/queue.h - the free queue: blocks without a user, the next to be taken at the head.
 *
 *      head                                                   tail
 *       v                                                      v
 *      [s] <-> 5 <-> 9 <-> 2 <-> ...  <-> 7 <-> 4 <-> (back to [s], the sentinel)
 *       taken, and evicted,                 just freed,
 *       first                               kept longest
 *
 *      num_free = length of the list;  every block is in it at most once
 */
#ifndef QR_BLOCK_QUEUE_H
#define QR_BLOCK_QUEUE_H

#include "block/block.h"

typedef struct qr_queue {
    qr_block *blocks; /* num_blocks records and one more, the sentinel */
    uint32_t num_blocks;
    uint32_t num_free;
} qr_queue;

/* All blocks from first on, in order of their ids; those before it are in no list. */
void qr_queue_init(qr_queue *queue, qr_block *blocks, uint32_t num_blocks, uint32_t first);

static inline uint32_t qr_queue_head(const qr_queue *queue)
{
    return queue->blocks[queue->num_blocks].free.next; /* num_blocks itself when empty */
}

static inline bool qr_queue_contains(const qr_queue *queue, uint32_t block)
{
    return qr_link_in_list(&queue->blocks[block].free);
}

/* Takes n blocks from the head; n <= num_free. */
void qr_queue_popleft_n(qr_queue *queue, uint32_t n, uint32_t *out);
/* Adds a block that is not in the queue at the tail. */
void qr_queue_append(qr_queue *queue, uint32_t block);
void qr_queue_append_n(qr_queue *queue, const uint32_t *blocks, uint32_t n);
/* Takes out a block that is in the queue, from anywhere. */
void qr_queue_remove(qr_queue *queue, uint32_t block);
/* The next block after one of the queue, num_blocks at the end: for (b = head; b != num_blocks; b =
 * next). */
static inline uint32_t qr_queue_next(const qr_queue *queue, uint32_t block)
{
    return queue->blocks[block].free.next;
}
bool qr_queue_is_valid(const qr_queue *queue);

#endif

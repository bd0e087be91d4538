/* block/queue.h - the free queue: blocks without a user, the next to be taken at the head.
 *
 *      head                                                   tail
 *       v                                                      v
 *      [s] <-> 5 <-> 9 <-> 2 <-> ...  <-> 7 <-> 4 <-> (back to [s], the sentinel)
 *       taken, and evicted,                 just freed,
 *       first                               kept longest
 *
 *      num_free = length of the list;  every block is in it at most once
 *
 * In a large pool neighbours in the queue are strangers in memory, and to walk the list means to
 * wait for memory at every step, since each block alone knows the next. So a block that joins the
 * tail is also noted in the block that joined QR_QUEUE_AHEAD before it: when that one is taken,
 * this one is fetched. A hint may be out of date, which costs a useless fetch and nothing else.
 */
#ifndef QR_BLOCK_QUEUE_H
#define QR_BLOCK_QUEUE_H

#include "block/block.h"

enum { QR_QUEUE_AHEAD = 8 }; /* a power of two */

typedef struct qr_queue {
    qr_block *blocks; /* num_blocks records and one more, the sentinel */
    uint32_t num_blocks;
    uint32_t num_free;
    uint32_t recent[QR_QUEUE_AHEAD]; /* the last that joined, in a ring */
    uint32_t num_joined;
} qr_queue;

/* All blocks from first on, in order of their ids; those before it are in no list. */
void qr_queue_init(qr_queue *queue, qr_block *blocks, uint32_t num_blocks, uint32_t first);

/* num_blocks, the sentinel, when it is empty. */
static inline uint32_t qr_queue_head(const qr_queue *queue)
{
    return queue->blocks[queue->num_blocks].free.next;
}

/* The block behind one of the queue: for (b = head; b != num_blocks; b = next). */
static inline uint32_t qr_queue_next(const qr_queue *queue, uint32_t block)
{
    return queue->blocks[block].free.next;
}

static inline bool qr_queue_contains(const qr_queue *queue, uint32_t block)
{
    return qr_link_in_list(&queue->blocks[block].free);
}

/* Takes the head of a queue that is not empty. */
static inline uint32_t qr_queue_popleft(qr_queue *queue)
{
    uint32_t block = qr_queue_head(queue);
    qr_assert_internal(block != queue->num_blocks);
    qr_prefetch_write(&queue->blocks[queue->blocks[block].ahead]);
    qr_list_remove(queue->blocks, sizeof *queue->blocks, block);
    queue->num_free--;
    return block;
}

/* Adds a block that is not in the queue at the tail. */
static inline void qr_queue_append(qr_queue *queue, uint32_t block)
{
    uint32_t place = queue->num_joined++ % QR_QUEUE_AHEAD;
    queue->blocks[queue->recent[place]].ahead = block;
    queue->recent[place] = block;
    qr_list_insert_before(queue->blocks, sizeof *queue->blocks, queue->num_blocks, block);
    queue->num_free++;
}

/* Takes out a block that is in the queue, from anywhere. */
static inline void qr_queue_remove(qr_queue *queue, uint32_t block)
{
    qr_list_remove(queue->blocks, sizeof *queue->blocks, block);
    queue->num_free--;
}

/* The first n blocks, n <= num_free; and n blocks that are not in the queue, in the order given. */
void qr_queue_popleft_n(qr_queue *queue, uint32_t n, uint32_t *out);
void qr_queue_append_n(qr_queue *queue, const uint32_t *blocks, uint32_t n);

bool qr_queue_is_valid(const qr_queue *queue);

#endif

/* block/queue_kit.h - vLLM's names for what the pool does with the free queue. */
#ifndef BLOCK_QUEUE_KIT_H
#define BLOCK_QUEUE_KIT_H

#include "block/queue.h"

/* n <= num_others from the head. */
static inline void kit_popleft_n(qr_queue *queue, uint32_t n, uint32_t *out)
{
    uint32_t head = qr_queue_head(queue);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = head;
        head = qr_queue_take(queue, head);
    }
    qr_queue_take_end(queue, head, n);
}

/* Blocks that are not in the queue, in the order given. */
static inline void kit_append_n(qr_queue *queue, const uint32_t *blocks, uint32_t n)
{
    qr_queue_joining joining = qr_queue_join_begin(queue);
    for (uint32_t i = 0; i < n; i++)
        qr_queue_join(queue, &joining, blocks[i]);
    qr_queue_join_end(queue, &joining);
}

/* The same at the head, where a queue with two ends puts blocks without a key. */
static inline void kit_prepend_n(qr_queue *queue, const uint32_t *blocks, uint32_t n)
{
    bool is_two_ended = queue->is_two_ended;
    queue->is_two_ended = true;
    kit_append_n(queue, blocks, n);
    queue->is_two_ended = is_two_ended;
}

#endif

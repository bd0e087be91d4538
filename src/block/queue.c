#include "block/queue.h"

void qr_queue_init(qr_queue *queue, qr_block *blocks, uint32_t num_blocks, uint32_t first)
{
    for (uint32_t b = 0; b <= num_blocks; b++) {
        blocks[b].free = (qr_link){0, 0};
        blocks[b].ahead = 0;
    }
    qr_queue_init_zeros(queue, blocks, num_blocks, first);
}

void qr_queue_init_zeros(qr_queue *queue, qr_block *blocks, uint32_t num_blocks, uint32_t first)
{
    *queue = (qr_queue){.blocks = blocks,
                        .num_blocks = num_blocks,
                        .num_free = num_blocks - first,
                        .num_joined = num_blocks - first,
                        .end = num_blocks};
    for (uint32_t b = 0; b < first; b++)
        qr_link_clear(&blocks[b].free);
    qr_queue_set_next(blocks, num_blocks, first);
    qr_queue_set_prev(blocks, first, num_blocks);
    for (uint32_t i = 0; i < QR_QUEUE_AHEAD; i++)
        queue->recent[i] = num_blocks; /* nobody yet: the note goes to the sentinel */
    uint32_t ends = num_blocks - first < QR_QUEUE_AHEAD ? num_blocks - first : QR_QUEUE_AHEAD;
    for (uint32_t b = num_blocks - ends; b < num_blocks; b++)
        queue->recent[(b - first) % QR_QUEUE_AHEAD] = b;
}

static uint32_t count_wanted(const qr_queue *queue, uint32_t block)
{
    return queue->wanted[block] & QR_QUEUE_MAX_WANTED;
}

void qr_queue_want(qr_queue *queue, uint32_t block)
{
    qr_assert(count_wanted(queue, block) < QR_QUEUE_MAX_WANTED);
    queue->wanted[block]++;
    bool moves = !qr_queue_is_kept(queue, block) && qr_queue_contains(queue, block) &&
                 qr_queue_is_wanted(queue, block);
    if (moves) {
        qr_queue_remove(queue, block);
        qr_queue_append(queue, block);
    }
}

void qr_queue_unwant(qr_queue *queue, uint32_t block)
{
    qr_assert(count_wanted(queue, block) > 0);
    queue->wanted[block]--;
    bool was_last = count_wanted(queue, block) == 0;
    if (was_last && qr_queue_is_kept(queue, block)) {
        qr_queue_remove(queue, block);
        qr_queue_append(queue, block);
    }
}

void qr_queue_append(qr_queue *queue, uint32_t block)
{
    qr_queue_joining joining = qr_queue_join_begin(queue);
    joining.is_two_ended = false;
    qr_queue_join(queue, &joining, block);
    qr_queue_join_end(queue, &joining);
}

bool qr_queue_is_valid(const qr_queue *queue)
{
    uint32_t sentinel = queue->num_blocks;
    uint32_t length = 0;
    uint32_t before = sentinel;
    uint32_t num_kept = 0;
    bool is_behind_end = false;
    for (uint32_t i = 0; i < QR_QUEUE_AHEAD; i++)
        if (queue->recent[i] > sentinel)
            return false;
    for (uint32_t b = qr_queue_head(queue); b != sentinel; b = qr_queue_next(queue, b)) {
        bool hint_ok = b < sentinel && queue->blocks[b].ahead <= sentinel;
        if (!hint_ok || qr_queue_prev_of(queue->blocks, b) != before || ++length > queue->num_free)
            return false;
        is_behind_end = is_behind_end || b == queue->end;
        if (is_behind_end != qr_queue_is_kept(queue, b))
            return false;
        num_kept += is_behind_end;
        before = b;
    }
    if (num_kept != queue->num_kept || (queue->end != sentinel) != is_behind_end)
        return false;
    return length == queue->num_free && qr_queue_prev_of(queue->blocks, sentinel) == before;
}

#include "block/queue.h"

void qr_queue_init(qr_queue *queue, qr_block *blocks, uint32_t num_blocks, uint32_t first)
{
    queue->blocks = blocks;
    queue->num_blocks = num_blocks;
    queue->num_free = 0;
    for (uint32_t b = 0; b < num_blocks; b++)
        qr_link_clear(&blocks[b].free);
    qr_list_init(blocks, sizeof *blocks, num_blocks);
    for (uint32_t b = first; b < num_blocks; b++)
        qr_queue_append(queue, b);
}

void qr_queue_popleft_n(qr_queue *queue, uint32_t n, uint32_t *out)
{
    qr_assert(n <= queue->num_free);
    qr_block *blocks = queue->blocks;
    uint32_t sentinel = queue->num_blocks;
    uint32_t block = blocks[sentinel].free.next;
    for (uint32_t i = 0; i < n; i++) {
        qr_assert_internal(block != sentinel);
        uint32_t next = blocks[block].free.next;
        qr_prefetch_write(&blocks[next]);
        qr_link_clear(&blocks[block].free);
        out[i] = block;
        block = next;
    }
    blocks[sentinel].free.next = block;
    blocks[block].free.prev = sentinel;
    queue->num_free -= n;
}

void qr_queue_append(qr_queue *queue, uint32_t block)
{
    qr_list_insert_before(queue->blocks, sizeof *queue->blocks, queue->num_blocks, block);
    queue->num_free++;
}

void qr_queue_append_n(qr_queue *queue, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        qr_queue_append(queue, blocks[i]);
}

void qr_queue_remove(qr_queue *queue, uint32_t block)
{
    qr_list_remove(queue->blocks, sizeof *queue->blocks, block);
    queue->num_free--;
}

bool qr_queue_is_valid(const qr_queue *queue)
{
    uint32_t sentinel = queue->num_blocks;
    uint32_t length = 0;
    uint32_t before = sentinel;
    for (uint32_t b = qr_queue_head(queue); b != sentinel; b = qr_queue_next(queue, b)) {
        if (b > sentinel || queue->blocks[b].free.prev != before || ++length > queue->num_free)
            return false;
        before = b;
    }
    return length == queue->num_free && queue->blocks[sentinel].free.prev == before;
}

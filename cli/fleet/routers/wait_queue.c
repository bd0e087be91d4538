#include "wait_queue.h"

#include "output/grown.h"

static bool goes_before(const waiting_request *a, const waiting_request *b)
{
    return a->order != b->order ? a->order > b->order : a->seq < b->seq;
}

static void swap(waiting_request *a, waiting_request *b)
{
    waiting_request moved = *a;
    *a = *b;
    *b = moved;
}

static void sift_down(wait_queue *queue, uint32_t i)
{
    for (;;) {
        uint32_t best = i;
        for (uint32_t child = 2 * i + 1; child <= 2 * i + 2; child++)
            if (child < queue->num_waiting && goes_before(&queue->heap[child], &queue->heap[best]))
                best = child;
        if (best == i)
            return;
        swap(&queue->heap[i], &queue->heap[best]);
        i = best;
    }
}

static void sift_up(wait_queue *queue, uint32_t i)
{
    for (; i > 0 && goes_before(&queue->heap[i], &queue->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&queue->heap[i], &queue->heap[(i - 1) / 2]);
}

bool wait_queue_add(wait_queue *queue, uint64_t number, uint32_t router, double order)
{
    if (wait_queue_router(queue, number) != PAIR_MAP_NONE)
        return true;
    if (!grow(&queue->heap, queue->num_waiting, &queue->room, UINT32_MAX, sizeof *queue->heap) ||
        !pair_map_set(&queue->routers, number, 0, router))
        return false;
    queue->heap[queue->num_waiting] = (waiting_request){number, queue->num_ever++, order, router};
    sift_up(queue, queue->num_waiting++);
    return true;
}

void wait_queue_remove(wait_queue *queue, uint64_t number)
{
    uint32_t i = 0;
    if (wait_queue_router(queue, number) == PAIR_MAP_NONE)
        return;
    pair_map_remove(&queue->routers, number, 0);
    while (queue->heap[i].number != number)
        i++;
    queue->heap[i] = queue->heap[--queue->num_waiting];
    if (i < queue->num_waiting) {
        sift_up(queue, i);
        sift_down(queue, i);
    }
}

bool wait_queue_first(const wait_queue *queue, uint64_t *number)
{
    if (queue->num_waiting == 0)
        return false;
    *number = queue->heap[0].number;
    return true;
}

uint32_t wait_queue_router(const wait_queue *queue, uint64_t number)
{
    return pair_map_get(&queue->routers, number, 0);
}

void wait_queue_free(wait_queue *queue)
{
    free(queue->heap);
    pair_map_free(&queue->routers);
    *queue = (wait_queue){0};
}

#include "arrival_queue.h"

#include "output/grown.h"

#include <stdlib.h>
#include <string.h>

void arrival_free(arrival *it)
{
    if (it != NULL) {
        free(it->segments);
        free(it->after);
    }
    free(it);
}

arrival *arrival_copy(const arrival *it)
{
    const trace_request *q = &it->request;
    size_t segment_bytes = q->num_segments * sizeof *q->prompt;
    size_t after_bytes = q->num_after * sizeof *q->after;
    arrival *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *it;
    copy->segments = malloc(segment_bytes + 1);
    copy->after = malloc(after_bytes + 1);
    if (copy->segments == NULL || copy->after == NULL) {
        arrival_free(copy);
        return NULL;
    }
    if (segment_bytes > 0)
        memcpy(copy->segments, q->prompt, segment_bytes);
    if (after_bytes > 0)
        memcpy(copy->after, q->after, after_bytes);
    copy->request.prompt = copy->segments;
    copy->request.after = copy->after;
    return copy;
}

static bool is_before(const arrival *a, const arrival *b)
{
    return a->time_s < b->time_s || (a->time_s == b->time_s && a->number < b->number);
}

static void move_up(arrival_queue *q, size_t i, arrival *it)
{
    for (; i > 0 && is_before(it, q->items[(i - 1) / 2]); i = (i - 1) / 2)
        q->items[i] = q->items[(i - 1) / 2];
    q->items[i] = it;
}

static void move_down(arrival_queue *q, size_t i, arrival *it)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= q->count)
            break;
        if (child + 1 < q->count && is_before(q->items[child + 1], q->items[child]))
            child++;
        if (!is_before(q->items[child], it))
            break;
        q->items[i] = q->items[child];
        i = child;
    }
    q->items[i] = it;
}

bool arrival_queue_push(arrival_queue *q, arrival *it)
{
    if (!grow(&q->items, q->count, &q->capacity, UINT32_MAX, sizeof(arrival *)))
        return false;
    move_up(q, q->count++, it);
    return true;
}

arrival *arrival_queue_pop(arrival_queue *q)
{
    if (q->count == 0)
        return NULL;
    arrival *top = q->items[0];
    arrival *last = q->items[--q->count];
    if (q->count > 0)
        move_down(q, 0, last);
    return top;
}

bool arrival_queue_remove(arrival_queue *q, const arrival *it)
{
    size_t i = 0;
    while (i < q->count && q->items[i] != it)
        i++;
    if (i == q->count)
        return false;
    arrival *last = q->items[--q->count];
    if (i == q->count)
        return true;
    bool goes_up = i > 0 && is_before(last, q->items[(i - 1) / 2]);
    goes_up ? move_up(q, i, last) : move_down(q, i, last);
    return true;
}

void arrival_queue_free(arrival_queue *q)
{
    for (size_t i = 0; i < q->count; i++)
        arrival_free(q->items[i]);
    free(q->items);
    *q = (arrival_queue){0};
}

#include "sched/queues/waiting.h"

void qr_waiting_init(qr_waiting *queue, qr_waiter *waiters, uint32_t *heap, uint32_t sentinel,
                     uint16_t number, quire_policy policy)
{
    *queue = (qr_waiting){
        .waiters = waiters, .heap = heap, .sentinel = sentinel, .number = number, .policy = policy};
    qr_list_init(waiters, sizeof *waiters, sentinel);
}

static int compare_ids(quire_bytes a, quire_bytes b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = shorter == 0 ? 0 : memcmp(a.data, b.data, shorter);
    if (order != 0)
        return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

bool qr_waiter_before(const qr_waiter *a, const qr_waiter *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->is_swapped != b->is_swapped)
        return a->is_swapped;
    if (a->arrival_time < b->arrival_time || a->arrival_time > b->arrival_time)
        return a->arrival_time < b->arrival_time;
    return compare_ids(a->id, b->id) < 0;
}

/* ---- the heap -------------------------------------------------------------- */

static void heap_put(qr_waiting *queue, uint32_t place, uint32_t req)
{
    queue->heap[place] = req;
    queue->waiters[req].place = place;
}

static bool heap_before(const qr_waiting *queue, uint32_t a, uint32_t b)
{
    return qr_waiter_before(&queue->waiters[a], &queue->waiters[b]);
}

static void heap_rise(qr_waiting *queue, uint32_t place, uint32_t req)
{
    while (place > 0) {
        uint32_t parent = (place - 1) / 2;
        if (!heap_before(queue, req, queue->heap[parent]))
            break;
        heap_put(queue, place, queue->heap[parent]);
        place = parent;
    }
    heap_put(queue, place, req);
}

static void heap_sink(qr_waiting *queue, uint32_t place, uint32_t req)
{
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= queue->count)
            break;
        if (child + 1 < queue->count &&
            heap_before(queue, queue->heap[child + 1], queue->heap[child]))
            child++;
        if (!heap_before(queue, queue->heap[child], req))
            break;
        heap_put(queue, place, queue->heap[child]);
        place = child;
    }
    heap_put(queue, place, req);
}

static void heap_remove(qr_waiting *queue, uint32_t place)
{
    uint32_t moved = queue->heap[queue->count]; /* count is one less already */
    if (place == queue->count)
        return;
    if (place > 0 && heap_before(queue, moved, queue->heap[(place - 1) / 2]))
        heap_rise(queue, place, moved);
    else
        heap_sink(queue, place, moved);
}

/* ---- both kinds ------------------------------------------------------------ */

static inline void enter(qr_waiting *queue, uint32_t req, uint32_t before)
{
    qr_assert(queue->waiters[req].queue == 0);
    queue->waiters[req].queue = queue->number;
    queue->count++;
    if (queue->policy == QUIRE_POLICY_PRIORITY)
        heap_rise(queue, queue->count - 1, req);
    else
        qr_list_insert_before(queue->waiters, sizeof *queue->waiters, before, req);
}

void qr_waiting_add(qr_waiting *queue, uint32_t req)
{
    queue->waiters[req].order = ++queue->last_order;
    enter(queue, req, queue->sentinel);
}

void qr_waiting_prepend(qr_waiting *queue, uint32_t req)
{
    const qr_waiter *waiters = queue->waiters;
    uint32_t before = waiters[queue->sentinel].link.next;
    while (before != queue->sentinel && waiters[before].is_swapped && !waiters[req].is_swapped)
        before = waiters[before].link.next;
    queue->waiters[req].order = --queue->first_order;
    enter(queue, req, before);
}

uint32_t qr_waiting_peek(const qr_waiting *queue)
{
    qr_assert(queue->count > 0);
    return queue->policy == QUIRE_POLICY_PRIORITY ? queue->heap[0]
                                                  : queue->waiters[queue->sentinel].link.next;
}

void qr_waiting_remove(qr_waiting *queue, uint32_t req)
{
    qr_assert(queue->waiters[req].queue == queue->number);
    queue->waiters[req].queue = 0;
    queue->count--;
    if (queue->policy == QUIRE_POLICY_PRIORITY)
        heap_remove(queue, queue->waiters[req].place);
    else
        qr_list_remove(queue->waiters, sizeof *queue->waiters, req);
}

void qr_waiting_prepend_all(qr_waiting *queue, qr_waiting *other)
{
    while (other->count > 0) { /* from the last to the first */
        uint32_t req = other->policy == QUIRE_POLICY_PRIORITY
                           ? other->heap[other->count - 1]
                           : other->waiters[other->sentinel].link.prev;
        qr_waiting_remove(other, req);
        qr_waiting_prepend(queue, req);
    }
}

/* ---- looking --------------------------------------------------------------- */

/* reqs[0, n) is a heap; puts `req`, which stood at its end, where it belongs from the top. */
static void sort_sink(const qr_waiting *queue, uint32_t *reqs, uint32_t n, uint32_t req)
{
    uint32_t place = 0;
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= n)
            break;
        if (child + 1 < n && heap_before(queue, reqs[child + 1], reqs[child]))
            child++;
        if (!heap_before(queue, reqs[child], req))
            break;
        reqs[place] = reqs[child];
        place = child;
    }
    reqs[place] = req;
}

/* The copy of a heap, sorted: the first goes behind the others again and again, then all turn. */
static void sort_heap(const qr_waiting *queue, uint32_t *reqs, uint32_t n)
{
    for (uint32_t left = n; left > 1; left--) {
        uint32_t first = reqs[0];
        sort_sink(queue, reqs, left - 1, reqs[left - 1]);
        reqs[left - 1] = first;
    }
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t first = reqs[i];
        reqs[i] = reqs[n - 1 - i];
        reqs[n - 1 - i] = first;
    }
}

uint32_t qr_waiting_list(const qr_waiting *queue, uint32_t *reqs)
{
    uint32_t n = queue->count;
    if (queue->policy == QUIRE_POLICY_PRIORITY) {
        for (uint32_t i = 0; i < n; i++)
            reqs[i] = queue->heap[i];
        sort_heap(queue, reqs, n);
        return n;
    }
    uint32_t at = queue->sentinel;
    for (uint32_t i = 0; i < n; i++)
        reqs[i] = at = queue->waiters[at].link.next;
    return n;
}

/* nearest[0, n) is a heap; puts `req` into it, behind the others at first. */
static void sort_rise(const qr_waiting *queue, uint32_t *nearest, uint32_t n, uint32_t req)
{
    uint32_t place = n;
    for (; place > 0 && heap_before(queue, req, nearest[(place - 1) / 2]); place = (place - 1) / 2)
        nearest[place] = nearest[(place - 1) / 2];
    nearest[place] = req;
}

/* Of a heap the next in order is a child of one that was listed, or the top. */
static uint32_t heap_first(const qr_waiting *queue, uint32_t *reqs, uint32_t most,
                           uint32_t *nearest)
{
    uint32_t count = 0;
    uint32_t n = 1;
    nearest[0] = queue->heap[0];
    while (count < most && n > 0) {
        uint32_t req = nearest[0];
        uint32_t child = 2 * queue->waiters[req].place + 1;
        reqs[count++] = req;
        n--;
        if (n > 0)
            sort_sink(queue, nearest, n, nearest[n]);
        for (uint32_t i = child; i < child + 2 && i < queue->count; i++)
            sort_rise(queue, nearest, n++, queue->heap[i]);
    }
    return count;
}

uint32_t qr_waiting_first(const qr_waiting *queue, uint32_t *reqs, uint32_t most, uint32_t *nearest)
{
    most = most < queue->count ? most : queue->count;
    if (queue->policy == QUIRE_POLICY_PRIORITY)
        return most == 0 ? 0 : heap_first(queue, reqs, most, nearest);
    uint32_t at = queue->sentinel;
    for (uint32_t i = 0; i < most; i++)
        reqs[i] = at = queue->waiters[at].link.next;
    return most;
}

bool qr_waiting_is_valid(const qr_waiting *queue)
{
    uint32_t seen = 0;
    if (queue->policy == QUIRE_POLICY_PRIORITY) {
        for (; seen < queue->count; seen++) {
            uint32_t req = queue->heap[seen];
            const qr_waiter *w = &queue->waiters[req];
            if (w->queue != queue->number || w->place != seen)
                return false;
            if (seen > 0 && heap_before(queue, req, queue->heap[(seen - 1) / 2]))
                return false;
        }
        return true;
    }
    uint32_t at = queue->waiters[queue->sentinel].link.next;
    for (; at != queue->sentinel && seen <= queue->count; seen++) {
        const qr_waiter *w = &queue->waiters[at];
        if (w->queue != queue->number || queue->waiters[w->link.next].link.prev != at)
            return false;
        at = w->link.next;
    }
    return seen == queue->count;
}

#include "belady.h"

#include "output/grown.h"

#define MOST (UINT32_C(1) << 30)

bool belady_add_request(belady_log *log, uint32_t num_held)
{
    belady_request request = {.num_held = num_held};
    if (!grow(&log->requests, log->num_requests, &log->requests_room, MOST, sizeof request))
        return false;
    log->requests[log->num_requests++] = request;
    return true;
}

bool belady_add_lookup(belady_log *log, uint32_t request, uint32_t user, uint32_t block)
{
    belady_request *held = &log->requests[request];
    if (held->first_run > 0) {
        belady_run *last = &log->runs[held->first_run - 1];
        if (last->user == user && last->to == block) {
            last->to++;
            return true;
        }
    }
    if (!grow(&log->runs, log->num_runs, &log->runs_room, MOST, sizeof *log->runs))
        return false;
    log->runs[log->num_runs++] = (belady_run){user, block, block + 1, held->first_run};
    held->first_run = log->num_runs;
    return true;
}

/* ---- one pool size --------------------------------------------------------- */

/* Blocks [low, high) of a request's prompt that wait in the pool for its lookup. */
typedef struct waiting_blocks {
    uint32_t low;
    uint32_t high;
} waiting_blocks;

typedef struct min_pool {
    waiting_blocks *waiting; /* by request */
    uint32_t *heap;          /* requests that blocks wait for, the last one on top */
    uint32_t heap_size;
    uint64_t num_waiting; /* blocks in `waiting` */
    uint64_t num_useless; /* blocks that nobody will look up */
} min_pool;

static void heap_push(min_pool *pool, uint32_t request)
{
    uint32_t at = pool->heap_size++;
    while (at > 0 && pool->heap[(at - 1) / 2] < request) {
        pool->heap[at] = pool->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    pool->heap[at] = request;
}

static void heap_pop(min_pool *pool)
{
    uint32_t last = pool->heap[--pool->heap_size];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= pool->heap_size)
            break;
        if (child + 1 < pool->heap_size && pool->heap[child + 1] > pool->heap[child])
            child++;
        if (pool->heap[child] <= last)
            break;
        pool->heap[at] = pool->heap[child];
        at = child;
    }
    pool->heap[at] = last;
}

/* Evicts until `excess` blocks are gone: useless ones, then the deepest of the last request. */
static void evict(min_pool *pool, uint64_t excess)
{
    uint64_t useless = excess < pool->num_useless ? excess : pool->num_useless;
    pool->num_useless -= useless;
    excess -= useless;
    while (excess > 0 && pool->heap_size > 0) {
        waiting_blocks *last = &pool->waiting[pool->heap[0]];
        uint32_t there = last->high - last->low;
        uint32_t gone = excess < there ? (uint32_t)excess : there;
        last->high -= gone;
        pool->num_waiting -= gone;
        excess -= gone;
        if (last->high == last->low)
            heap_pop(pool);
    }
}

/* The request's blocks are back in the pool, each waits for its next lookup. */
static void give_back(min_pool *pool, const belady_log *log, const belady_request *request)
{
    uint64_t useful = 0;
    for (uint32_t at = request->first_run; at > 0; at = log->runs[at - 1].more) {
        const belady_run *run = &log->runs[at - 1];
        waiting_blocks *waiting = &pool->waiting[run->user];
        if (waiting->low == waiting->high) {
            waiting->high = run->to;
            heap_push(pool, run->user);
        }
        waiting->low = run->from;
        useful += run->to - run->from;
    }
    pool->num_waiting += useful;
    pool->num_useless += request->num_held - useful;
}

static uint64_t run_pool(min_pool *pool, const belady_log *log, uint64_t num_blocks)
{
    uint64_t hits = 0;
    for (uint32_t i = 0; i < log->num_requests; i++) {
        const belady_request *request = &log->requests[i];
        waiting_blocks *found = &pool->waiting[i];
        hits += found->high - found->low;
        pool->num_waiting -= found->high - found->low;
        found->low = found->high; /* what is still on the heap for it is empty, and popped so */
        uint64_t used = request->num_held + pool->num_waiting + pool->num_useless;
        if (used > num_blocks)
            evict(pool, used - num_blocks);
        give_back(pool, log, request);
    }
    return hits;
}

bool belady_hits(const belady_log *log, uint64_t num_blocks, uint64_t *hits)
{
    min_pool pool = {0};
    *hits = 0;
    if (log->num_requests == 0)
        return true;
    pool.waiting = calloc(log->num_requests, sizeof *pool.waiting);
    pool.heap = malloc(((size_t)log->num_requests + log->num_runs) * sizeof *pool.heap);
    bool ok = pool.waiting != NULL && pool.heap != NULL;
    if (ok)
        *hits = run_pool(&pool, log, num_blocks);
    free(pool.waiting);
    free(pool.heap);
    return ok;
}

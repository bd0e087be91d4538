/* cli/tiers/queue.h - jobs that go over one link, one behind the other, in simulated time.
 *
 *      first                       last
 *      [job, end] [job, end] [job, end]       ends do not decrease
 */
#ifndef QUIRE_CLI_TIERS_QUEUE_H
#define QUIRE_CLI_TIERS_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tiers_queue_entry {
    void *job;
    uint64_t end_ns;
} tiers_queue_entry;

typedef struct tiers_queue {
    double ns_per_byte;
    uint64_t latency_ns;
    uint64_t free_ns; /* the link has carried all by then */
    tiers_queue_entry *entries;
    uint32_t capacity;
    uint32_t first;
    uint32_t num;
} tiers_queue;

/* False: no memory. */
bool tiers_queue_init(tiers_queue *q, uint32_t capacity, double bytes_per_s, double latency_s);
void tiers_queue_free(tiers_queue *q);

static inline bool tiers_queue_is_full(const tiers_queue *q)
{
    return q->num == q->capacity;
}

/* Goes over the link when it is free, not before from_ns. There is room. */
void tiers_queue_put(tiers_queue *q, void *job, uint64_t from_ns, uint64_t bytes);
/* Ends now, since it is not tried; behind those that are on their way. */
void tiers_queue_put_failed(tiers_queue *q, void *job, uint64_t now_ns);
/* The link is taken for so many bytes of others. */
void tiers_queue_delay(tiers_queue *q, uint64_t from_ns, uint64_t bytes);
/* The first, when its time has come, or NULL. */
void *tiers_queue_take(tiers_queue *q, uint64_t now_ns);
/* When the first ends; UINT64_MAX: there is none. */
uint64_t tiers_queue_next_ns(const tiers_queue *q);

/* A number in [0, 1) from a state that goes on: the same in every run. */
double tiers_dice(uint64_t *state);

#endif

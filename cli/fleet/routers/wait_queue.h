/* cli/fleet/routers/wait_queue.h - requests that wait in routers, the one with the largest order
 * first; of equal orders the one that has waited longest. */
#ifndef QUIRE_CLI_FLEET_ROUTERS_WAIT_QUEUE_H
#define QUIRE_CLI_FLEET_ROUTERS_WAIT_QUEUE_H

#include "fleet/views/pair_map.h"

typedef struct waiting_request {
    uint64_t number;
    uint64_t seq;
    double order;
    uint32_t router;
} waiting_request;

/* All zero is an empty queue. */
typedef struct wait_queue {
    waiting_request *heap;
    uint32_t num_waiting;
    uint32_t room;
    uint64_t num_ever;
    pair_map routers; /* number of a request, to the router that it waits in */
} wait_queue;

/* A request that waits already keeps its place. False: no memory. */
bool wait_queue_add(wait_queue *queue, uint64_t number, uint32_t router, double order);
/* Does nothing if the request does not wait. */
void wait_queue_remove(wait_queue *queue, uint64_t number);
/* False: the queue is empty. */
bool wait_queue_first(const wait_queue *queue, uint64_t *number);
/* PAIR_MAP_NONE: the request does not wait. */
uint32_t wait_queue_router(const wait_queue *queue, uint64_t number);
void wait_queue_free(wait_queue *queue);

#endif

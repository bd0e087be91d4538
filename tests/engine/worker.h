/* engine/worker.h - the offload of an engine as a planner, and its device and tiers as a worker's:
 * plans and reports between them, as between processes.
 *
 *      schedule ─ take_plan ─► submit ─ step's work ─ poll ─► give_report ─ offload poll, update
 */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include <quire/offload.h>
#include <quire/worker.h>

#include <stdbool.h>

typedef struct engine_worker {
    quire_transfer *transfer; /* NULL: the offload has device and tiers itself */
    quire_worker *worker;
    quire_offload_tier tiers[QUIRE_TRANSFER_MAX_TIERS]; /* of the transfer */
} engine_worker;

/* Gives device, memory and tiers of the config to a worker, and the transfer's to the config. A
 * status. */
int engine_worker_open(engine_worker *w, quire_offload_config *config);
/* The worker leaves device and tiers alone from now on. */
void engine_worker_stop(engine_worker *w);
/* After tiers and device were closed, and the offload was destroyed; with jobs in flight after it
 * was abandoned, and before it is destroyed. 0, or 1. */
int engine_worker_close(engine_worker *w);

/* After schedule, before the step's work: a status. */
int engine_worker_submit(engine_worker *w);
/* Before the offload is polled: a status. */
int engine_worker_poll(engine_worker *w);

#endif

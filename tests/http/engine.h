/* http/engine.h - a small engine that never tires: prompts that share beginnings come at random,
 * are scheduled, get made-up tokens and end; the pool is tight, so that blocks are evicted and
 * requests preempted. The same seed makes the same decisions, and a digest says which they were.
 */
#ifndef HTTP_ENGINE_H
#define HTTP_ENGINE_H

#include "base/unit.h"

#include <pthread.h>
#include <quire.h>
#include <stdatomic.h>

typedef struct engine {
    quire_group_config group;
    quire_hasher *hasher;
    quire_sched *sched;
    quire_monitor *monitor; /* NULL without one */
    uint64_t random;
    uint64_t num_added;
    uint64_t digest; /* of all steps */
    uint64_t num_steps;

    pthread_t thread; /* of engine_start */
    uint64_t steps_wanted;
    uint32_t pause_us;
    _Atomic bool is_stopped;
} engine;

/* num_swap_blocks > 0: with a host buffer. */
void engine_open(engine *e, uint64_t seed, bool has_monitor, uint32_t num_swap_blocks);
void engine_close(engine *e);
/* Adds what comes, schedules and updates. */
void engine_step(engine *e);
void engine_run(engine *e, uint64_t num_steps);
void engine_add(engine *e);
/* Steps without new requests until nothing runs or waits. Needs the monitor. */
void engine_drain(engine *e);

/* Steps in a thread of its own, until there are so many or it is stopped. */
void engine_start(engine *e, uint64_t num_steps, uint32_t pause_us);
void engine_stop(engine *e);
void engine_join(engine *e);

#endif

/* sched.h - the Scheduler object, which sched.c makes and sched_step.c runs. */
#ifndef QUIRE_PYTHON_SCHED_H
#define QUIRE_PYTHON_SCHED_H

#include "core.h"

typedef struct flight {
    uint64_t step;
    uint32_t num_reqs;
} flight;

typedef struct sched_object {
    py_handle base;       /* a quire_sched */
    quire_hasher *hasher; /* the scheduler's own */
    uint32_t num_groups;
    uint32_t num_spec_tokens;
    flight *flights; /* a ring of max_batches */
    uint32_t max_batches;
    uint32_t first_flight;
    uint32_t num_flights;
    bool has_snapshots;
    quire_snapshot snapshot;
    quire_tier_usage tiers[QUIRE_MAX_TIERS]; /* of the snapshot */
} sched_object;

/* Statuses of requests, by name. */
extern const py_name py_req_statuses[];

/* Raises the exception of a status, with the sentence of quire_refusal where that is its
 * reason; always NULL. */
PyObject *py_raise_why(PyObject *object, int status);

/* sched_move.c: methods that move requests. */
PyObject *py_sched_fork(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_sched_preempt(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_sched_offload(PyObject *object, PyObject *req);
PyObject *py_sched_resume(PyObject *object, PyObject *req);
PyObject *py_sched_pin(PyObject *object, PyObject *args);
PyObject *py_sched_drop_pins(PyObject *object, PyObject *ignored);
PyObject *py_sched_set_swap_costs(PyObject *object, PyObject *args);
PyObject *py_sched_pressure(PyObject *object, PyObject *ignored);

/* sched_step.c: methods for requests and steps. */
PyObject *py_sched_add(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_sched_continue(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_sched_finish(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_sched_finish_all(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_sched_schedule(PyObject *object, PyObject *ignored);
PyObject *py_sched_update(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_sched_update_drafts(PyObject *object, PyObject *args, PyObject *kwargs);

#endif

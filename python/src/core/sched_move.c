/* sched_move.c - Scheduler: requests that are forked, preempted, moved, pinned (quire/sched.h). */
#include "sched.h"

static const py_name preempt_modes[] = {{"cheaper", QUIRE_PREEMPT_CHEAPER},
                                        {"swap", QUIRE_PREEMPT_SWAP},
                                        {"recompute", QUIRE_PREEMPT_RECOMPUTE},
                                        {NULL, 0}};

PyObject *py_sched_fork(PyObject *object, PyObject *args, PyObject *kwargs)
{
    unsigned long long parent;
    PyObject *id;
    PyObject *tail = Py_None;
    py_request request;
    quire_req child;
    if (!PyArg_ParseTuple(args, "KO|O:fork", &parent, &id, &tail) ||
        py_request_get(id, tail, kwargs, &request) < 0)
        return NULL;
    quire_sched *sched = py_open(object);
    int err = sched != NULL ? quire_sched_fork(sched, parent, &request.params, &child) : QUIRE_OK;
    bool has_id = request.params.id.len > 0; /* else that is what was wrong */
    py_request_release(&request);
    if (sched == NULL)
        return NULL;
    if (err != QUIRE_OK)
        return has_id ? py_raise_why(object, err) : py_fail(object, err);
    return PyLong_FromUnsignedLongLong(child);
}

PyObject *py_sched_preempt(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"req", "mode", NULL};
    unsigned long long req;
    PyObject *text = NULL;
    int mode = QUIRE_PREEMPT_CHEAPER;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|O:preempt", names, &req, &text) ||
        (text != NULL && py_name_value(preempt_modes, text, "mode", &mode) < 0))
        return NULL;
    PY_OPEN(quire_sched, sched);
    return py_done(object, quire_sched_preempt(sched, req, (quire_preempt_mode)mode));
}

static PyObject *change_request(PyObject *object, PyObject *argument,
                                int (*change)(quire_sched *sched, quire_req req))
{
    quire_req req = PyLong_AsUnsignedLongLong(argument);
    PY_OPEN(quire_sched, sched);
    return py_done(object, change(sched, req));
}

PyObject *py_sched_offload(PyObject *object, PyObject *req)
{
    return change_request(object, req, quire_sched_offload);
}

PyObject *py_sched_resume(PyObject *object, PyObject *req)
{
    return change_request(object, req, quire_sched_resume);
}

PyObject *py_sched_pin(PyObject *object, PyObject *args)
{
    unsigned long long req;
    double seconds;
    if (!PyArg_ParseTuple(args, "Kd:pin", &req, &seconds))
        return NULL;
    PY_OPEN(quire_sched, sched);
    if (!(seconds >= 0))
        return PyErr_Format(PyExc_ValueError, "pin: seconds must be 0 or more");
    uint64_t ns = seconds < 1.8e10 ? (uint64_t)(seconds * 1e9) : UINT64_MAX;
    return py_done(object, quire_sched_pin(sched, req, ns));
}

PyObject *py_sched_drop_pins(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PY_OPEN(quire_sched, sched);
    return py_done(object, quire_sched_drop_pins(sched));
}

PyObject *py_sched_set_swap_costs(PyObject *object, PyObject *args)
{
    unsigned long long block_ns;
    unsigned long long token_ns;
    if (!PyArg_ParseTuple(args, "KK:set_swap_costs", &block_ns, &token_ns))
        return NULL;
    PY_OPEN(quire_sched, sched);
    return py_done(object, quire_sched_set_swap_costs(sched, block_ns, token_ns));
}

PyObject *py_sched_pressure(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PY_OPEN(quire_sched, sched);
    return py_pressure_dict(object, quire_sched_get_cache(sched));
}

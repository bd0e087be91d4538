/* sched_step.c - Scheduler: requests come, steps are decided and updated (quire/sched.h).
 *
 * The arrays that update takes must have a row for each request of the step, so the sizes of steps
 * in flight are remembered here, oldest first.
 */
#include "sched.h"

#include <string.h>

/* ---- requests -------------------------------------------------------------- */

PyObject *py_raise_why(PyObject *object, int status)
{
    py_fail(object, status);
    bool is_told = status == QUIRE_E_TOO_LONG || status == QUIRE_E_ARGUMENT;
    if (is_told && quire_refusal()[0] != 0)
        PyErr_SetString(PyErr_Occurred(), quire_refusal());
    return NULL;
}

static PyObject *add_request(PyObject *object, const py_request *request)
{
    quire_req req;
    PY_OPEN(quire_sched, sched);
    int err = quire_sched_add(sched, &request->params, &req);
    if (err == QUIRE_E_TOO_LONG)
        return py_raise_why(object, err);
    if (err != QUIRE_OK)
        return py_fail(object, err);
    return PyLong_FromUnsignedLongLong(req);
}

PyObject *py_sched_add(PyObject *object, PyObject *args, PyObject *kwargs)
{
    PyObject *id;
    PyObject *prompt;
    py_request request;
    if (!PyArg_ParseTuple(args, "OO:add", &id, &prompt) ||
        py_request_get(id, prompt, kwargs, &request) < 0)
        return NULL;
    PyObject *req = add_request(object, &request);
    py_request_release(&request);
    return req;
}

PyObject *py_sched_continue(PyObject *object, PyObject *args, PyObject *kwargs)
{
    unsigned long long req;
    PyObject *prompt = Py_None;
    py_request request;
    if (!PyArg_ParseTuple(args, "K|O:continue_request", &req, &prompt) ||
        py_request_get(NULL, prompt, kwargs, &request) < 0)
        return NULL;
    quire_sched *sched = py_open(object);
    PyObject *done = NULL;
    if (sched != NULL)
        done = py_done(
            object, quire_sched_continue(sched, req, prompt != Py_None ? &request.params : NULL));
    py_request_release(&request);
    return done;
}

/* What finish and finish_all give back. */
static PyObject *finished(PyObject *object, int err, uint32_t count)
{
    if (err != QUIRE_OK)
        return py_fail(object, err);
    return PyLong_FromUnsignedLong(count);
}

PyObject *py_sched_finish(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"reqs", "status", NULL};
    PyObject *source;
    PyObject *text = NULL;
    int status = QUIRE_REQ_FINISHED_ABORTED;
    uint32_t count = 0;
    py_ints reqs;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:finish", names, &source, &text))
        return NULL;
    if (source == Py_None)
        return PyErr_Format(PyExc_TypeError, "reqs must be a sequence of requests, not None; "
                                             "finish_all() ends every request");
    if ((text != NULL && py_name_value(py_req_statuses, text, "status", &status) < 0) ||
        py_ints_get(source, 'Q', "reqs", &reqs) < 0)
        return NULL;
    quire_sched *sched = py_open(object);
    int err = QUIRE_OK;
    if (sched != NULL)
        err = quire_sched_finish(sched, reqs.data, reqs.count, (quire_req_status)status, &count);
    py_ints_release(&reqs);
    return sched == NULL ? NULL : finished(object, err, count);
}

PyObject *py_sched_finish_all(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"status", NULL};
    PyObject *text = NULL;
    int status = QUIRE_REQ_FINISHED_ABORTED;
    uint32_t count = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:finish_all", names, &text) ||
        (text != NULL && py_name_value(py_req_statuses, text, "status", &status) < 0))
        return NULL;
    PY_OPEN(quire_sched, sched);
    return finished(object, quire_sched_finish_all(sched, (quire_req_status)status, &count), count);
}

/* ---- one step -------------------------------------------------------------- */

PyObject *py_sched_schedule(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    sched_object *self = (sched_object *)object;
    const quire_step *step;
    PY_OPEN(quire_sched, sched);
    PY_CALL(quire_sched_schedule(sched, &step));
    uint32_t slot = (self->first_flight + self->num_flights++) % self->max_batches;
    self->flights[slot] = (flight){step->step, step->num_reqs};
    return py_step_new(py_state_of(object), step, self->num_groups,
                       self->has_snapshots ? &self->snapshot : NULL);
}

/* What update was given, in the arguments' order. */
typedef struct update_input {
    py_rows sampled;
    py_ints num_sampled;
    py_ints has_pooled;
    py_ints num_invalid_drafts;
    py_ints finished_sending;
    py_ints finished_recving;
    py_ints invalid_blocks;
} update_input;

static void update_input_release(update_input *in)
{
    py_rows_release(&in->sampled);
    py_ints_release(&in->num_sampled);
    py_ints_release(&in->has_pooled);
    py_ints_release(&in->num_invalid_drafts);
    py_ints_release(&in->finished_sending);
    py_ints_release(&in->finished_recving);
    py_ints_release(&in->invalid_blocks);
}

static int wrong_rows(const char *what, uint32_t num_reqs)
{
    return PY_REFUSE(PyExc_ValueError, "%s needs one entry for each of the step's %u requests",
                     what, num_reqs);
}

static int check_counts(const uint32_t *counts, uint32_t num, uint32_t stride, const char *what)
{
    for (uint32_t i = 0; counts != NULL && i < num; i++)
        if (counts[i] > stride)
            return PY_REFUSE(PyExc_ValueError, "%s[%u] is %u, more than stride, which is %u", what,
                             i, counts[i], stride);
    return 0;
}

static int check_input(const update_input *in, uint32_t n)
{
    if (in->sampled.num_rows != n && in->sampled.flat.count > 0)
        return wrong_rows("sampled", n);
    if (in->sampled.flat.count == 0 && in->num_sampled.count == 0 && n > 0 &&
        in->has_pooled.count == 0)
        return wrong_rows("sampled", n);
    if (in->num_sampled.data != NULL && in->num_sampled.count != n)
        return wrong_rows("num_sampled", n);
    if (in->has_pooled.data != NULL && in->has_pooled.count != n)
        return wrong_rows("has_pooled", n);
    if (in->num_invalid_drafts.data != NULL && in->num_invalid_drafts.count != n)
        return wrong_rows("num_invalid_drafts", n);
    uint32_t stride = in->sampled.flat.count > 0 ? in->sampled.stride : 0;
    return check_counts(in->num_sampled.data, in->num_sampled.count, stride, "num_sampled");
}

static PyObject *update_step(PyObject *object, uint64_t step, const update_input *in)
{
    static const uint32_t none_sampled = 0;
    sched_object *self = (sched_object *)object;
    const py_state *state = py_state_of(object);
    const quire_outputs *outputs;
    PY_OPEN(quire_sched, sched);
    const flight *oldest = &self->flights[self->first_flight];
    if (self->num_flights == 0 || oldest->step != step)
        return py_raise(state, QUIRE_E_ARGUMENT);
    if (check_input(in, oldest->num_reqs) < 0)
        return NULL;
    const uint32_t *counts = in->sampled.counts != NULL ? in->sampled.counts : in->num_sampled.data;
    uint32_t *zeros = NULL;
    if (counts == NULL && in->sampled.flat.count == 0) { /* pooling alone, or an empty step */
        zeros = PyMem_Calloc((size_t)oldest->num_reqs + 1, sizeof *zeros);
        counts = zeros != NULL ? zeros : &none_sampled;
        if (zeros == NULL)
            return PyErr_NoMemory();
    }
    quire_model_output output = {.size = sizeof(quire_model_output),
                                 .sampled = in->sampled.flat.data,
                                 .stride = in->sampled.stride,
                                 .num_sampled = counts,
                                 .has_pooled = in->has_pooled.data,
                                 .num_invalid_drafts = in->num_invalid_drafts.data,
                                 .finished_sending = in->finished_sending.data,
                                 .num_finished_sending = in->finished_sending.count,
                                 .finished_recving = in->finished_recving.data,
                                 .num_finished_recving = in->finished_recving.count,
                                 .invalid_blocks = in->invalid_blocks.data,
                                 .num_invalid_blocks = in->invalid_blocks.count};
    int err = quire_sched_update(sched, step, &output, &outputs);
    PyMem_Free(zeros);
    if (err != QUIRE_OK)
        return py_raise(state, err);
    self->first_flight = (self->first_flight + 1) % self->max_batches;
    self->num_flights--;
    return py_outputs_new(state, outputs, self->num_spec_tokens);
}

PyObject *py_sched_update(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"step",
                            "sampled",
                            "num_sampled",
                            "stride",
                            "has_pooled",
                            "num_invalid_drafts",
                            "finished_sending",
                            "finished_recving",
                            "invalid_blocks",
                            NULL};
    PyObject *o[8] = {Py_None, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None};
    unsigned int stride = 1;
    uint64_t step;
    update_input in;
    memset(&in, 0, sizeof in);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO$IOOOOO:update", names, &o[0], &o[1], &o[2],
                                     &stride, &o[3], &o[4], &o[5], &o[6], &o[7]))
        return NULL;
    PyObject *outputs = NULL;
    if (py_step_number(py_state_of(object), o[0], &step) == 0 &&
        py_rows_get(o[1], stride, "sampled", &in.sampled) == 0 &&
        py_ints_get(o[2], 'I', "num_sampled", &in.num_sampled) == 0 &&
        py_ints_get(o[3], 'B', "has_pooled", &in.has_pooled) == 0 &&
        py_ints_get(o[4], 'I', "num_invalid_drafts", &in.num_invalid_drafts) == 0 &&
        py_ints_get(o[5], 'Q', "finished_sending", &in.finished_sending) == 0 &&
        py_ints_get(o[6], 'Q', "finished_recving", &in.finished_recving) == 0 &&
        py_ints_get(o[7], 'I', "invalid_blocks", &in.invalid_blocks) == 0)
        outputs = update_step(object, step, &in);
    update_input_release(&in);
    return outputs;
}

static PyObject *update_drafts(PyObject *object, const py_ints *reqs, const py_rows *drafts,
                               const py_ints *num_drafts)
{
    const uint32_t *counts = drafts->counts != NULL ? drafts->counts : num_drafts->data;
    if (reqs->count == 0)
        Py_RETURN_NONE;
    if (drafts->num_rows != reqs->count ||
        (drafts->counts == NULL && num_drafts->count != reqs->count))
        return PyErr_Format(PyExc_ValueError,
                            "drafts and num_drafts need one entry for each of %u "
                            "requests",
                            reqs->count);
    if (check_counts(counts, reqs->count, drafts->stride, "num_drafts") < 0)
        return NULL;
    PY_OPEN(quire_sched, sched);
    return py_done(object, quire_sched_update_drafts(sched, reqs->data, reqs->count,
                                                     drafts->flat.data, drafts->stride, counts));
}

PyObject *py_sched_update_drafts(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"reqs", "drafts", "num_drafts", "stride", NULL};
    PyObject *req_source;
    PyObject *draft_source;
    PyObject *num_source = Py_None;
    unsigned int stride = 1;
    py_ints reqs;
    py_ints num_drafts;
    py_rows drafts;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O$I:update_drafts", names, &req_source,
                                     &draft_source, &num_source, &stride) ||
        py_ints_get(req_source, 'Q', "reqs", &reqs) < 0)
        return NULL;
    PyObject *done = NULL;
    if (py_rows_get(draft_source, stride, "drafts", &drafts) == 0) {
        if (py_ints_get(num_source, 'I', "num_drafts", &num_drafts) == 0) {
            done = update_drafts(object, &reqs, &drafts, &num_drafts);
            py_ints_release(&num_drafts);
        }
        py_rows_release(&drafts);
    }
    py_ints_release(&reqs);
    return done;
}

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
    if (sched == NULL || err != QUIRE_OK)
        return sched == NULL ? NULL : py_fail(object, err);
    return PyLong_FromUnsignedLong(count);
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
    PY_CALL(quire_sched_finish_all(sched, (quire_req_status)status, &count));
    return PyLong_FromUnsignedLong(count);
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

/* The lists that update takes beside the tokens, in the arguments' order. */
enum { NUM_SAMPLED, HAS_POOLED, NUM_INVALID, SENT, RECEIVED, BAD_BLOCKS, NUM_LISTS };
static const struct {
    const char *name;
    char type;
    bool is_row; /* one item for each request of the step */
} update_lists[NUM_LISTS] = {
    {"num_sampled", 'I', true},        {"has_pooled", 'B', true},
    {"num_invalid_drafts", 'I', true}, {"finished_sending", 'Q', false},
    {"finished_recving", 'Q', false},  {"invalid_blocks", 'I', false},
};

typedef struct update_input {
    py_rows sampled;
    py_ints lists[NUM_LISTS];
} update_input;

static void update_input_release(update_input *in)
{
    py_rows_release(&in->sampled);
    for (int i = 0; i < NUM_LISTS; i++)
        py_ints_release(&in->lists[i]);
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
    const py_ints *counts = &in->lists[NUM_SAMPLED];
    bool has_none = in->sampled.flat.count == 0;
    if (has_none ? counts->count == 0 && n > 0 && in->lists[HAS_POOLED].count == 0
                 : in->sampled.num_rows != n)
        return wrong_rows("sampled", n);
    for (int i = 0; i < NUM_LISTS; i++)
        if (update_lists[i].is_row && in->lists[i].data != NULL && in->lists[i].count != n)
            return wrong_rows(update_lists[i].name, n);
    return check_counts(counts->data, counts->count, has_none ? 0 : in->sampled.stride,
                        "num_sampled");
}

static PyObject *update_step(PyObject *object, uint64_t step, const update_input *in)
{
    sched_object *self = (sched_object *)object;
    const py_state *state = py_state_of(object);
    const quire_outputs *outputs;
    PY_OPEN(quire_sched, sched);
    const flight *oldest = &self->flights[self->first_flight];
    if (self->num_flights == 0 || oldest->step != step)
        return py_raise(state, QUIRE_E_ARGUMENT);
    if (check_input(in, oldest->num_reqs) < 0)
        return NULL;
    const uint32_t *counts =
        in->sampled.counts != NULL ? in->sampled.counts : in->lists[NUM_SAMPLED].data;
    uint32_t *zeros = NULL;
    if (counts == NULL && in->sampled.flat.count == 0) { /* pooling alone, or an empty step */
        zeros = PyMem_Calloc((size_t)oldest->num_reqs + 1, sizeof *zeros);
        counts = zeros;
        if (zeros == NULL)
            return PyErr_NoMemory();
    }
    quire_model_output output = {.size = sizeof(quire_model_output),
                                 .sampled = in->sampled.flat.data,
                                 .stride = in->sampled.stride,
                                 .num_sampled = counts,
                                 .has_pooled = in->lists[HAS_POOLED].data,
                                 .num_invalid_drafts = in->lists[NUM_INVALID].data,
                                 .finished_sending = in->lists[SENT].data,
                                 .num_finished_sending = in->lists[SENT].count,
                                 .finished_recving = in->lists[RECEIVED].data,
                                 .num_finished_recving = in->lists[RECEIVED].count,
                                 .invalid_blocks = in->lists[BAD_BLOCKS].data,
                                 .num_invalid_blocks = in->lists[BAD_BLOCKS].count};
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
    PyObject *number;
    PyObject *sampled = Py_None;
    PyObject *o[NUM_LISTS] = {Py_None, Py_None, Py_None, Py_None, Py_None, Py_None};
    unsigned int stride = 1;
    uint64_t step;
    update_input in;
    memset(&in, 0, sizeof in);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO$IOOOOO:update", names, &number, &sampled,
                                     &o[0], &stride, &o[1], &o[2], &o[3], &o[4], &o[5]))
        return NULL;
    bool is_read = py_step_number(py_state_of(object), number, &step) == 0 &&
                   py_rows_get(sampled, stride, "sampled", &in.sampled) == 0;
    for (int i = 0; is_read && i < NUM_LISTS; i++)
        is_read = py_ints_get(o[i], update_lists[i].type, update_lists[i].name, &in.lists[i]) == 0;
    PyObject *outputs = is_read ? update_step(object, step, &in) : NULL;
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

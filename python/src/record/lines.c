/* lines.c - one method for each kind of line. */
#include "record.h"

#include <string.h>

static const char *const REASONS[] = {"stop", "length", "abort", "error", "repetition", "ignored"};

static int read_reason(const char *name, quire_recorded_reason *reason)
{
    for (int i = 0; i < (int)(sizeof REASONS / sizeof *REASONS); i++)
        if (strcmp(name, REASONS[i]) == 0) {
            *reason = (quire_recorded_reason)(i + 1);
            return 0;
        }
    return PY_REFUSE(PyExc_ValueError,
                     "invalid reason '%.40s' (expected stop, length, abort, error, repetition or "
                     "ignored)",
                     name);
}

/* Numbers, or pairs of numbers; None: none. */
static int read_list(PyObject *given, record_list *list, int is_pairs)
{
    list->count = 0;
    if (given == NULL || given == Py_None)
        return 0;
    PyObject *items = PySequence_Fast(given, "a list is needed");
    if (items == NULL)
        return -1;
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        uint32_t numbers[2];
        if (is_pairs && !PyTuple_Check(item))
            failed = PY_REFUSE(PyExc_TypeError, "pairs of numbers are needed") < 0;
        else if (is_pairs)
            failed = !PyArg_ParseTuple(item, "II;pairs of numbers are needed", &numbers[0],
                                       &numbers[1]) ||
                     record_push_pair(list, numbers[0], numbers[1]) < 0;
        else
            failed = record_read_number(item, &numbers[0]) < 0 || record_push(list, numbers[0]) < 0;
    }
    Py_DECREF(items);
    return failed ? -1 : 0;
}

/* ---- requests ----------------------------------------------------------------- */

/* None: empty. */
static int read_name(PyObject *name, quire_bytes *bytes)
{
    Py_ssize_t len;
    char *data;
    if (name == NULL || name == Py_None)
        return 0;
    if (PyUnicode_Check(name)) {
        bytes->data = PyUnicode_AsUTF8AndSize(name, &len);
        bytes->len = bytes->data == NULL ? 0 : (size_t)len;
        return bytes->data == NULL ? -1 : 0;
    }
    if (PyBytes_AsStringAndSize(name, &data, &len) < 0)
        return -1;
    *bytes = (quire_bytes){data, (size_t)len};
    return 0;
}

/* Tuples of offset, length, embeddings and identifier. */
static int read_inputs(PyObject *given, quire_recorded_input **inputs, uint32_t *count)
{
    *inputs = NULL;
    *count = 0;
    if (given == NULL || given == Py_None)
        return 0;
    if (!PyList_Check(given))
        return PY_REFUSE(PyExc_TypeError, "inputs must be a list");
    *count = (uint32_t)PyList_GET_SIZE(given);
    *inputs = PyMem_Calloc((size_t)*count + 1, sizeof **inputs);
    if (*inputs == NULL)
        return PY_REFUSE_MEMORY();
    for (uint32_t i = 0; i < *count; i++) {
        quire_recorded_input *input = &(*inputs)[i];
        PyObject *identifier;
        if (!PyTuple_Check(PyList_GET_ITEM(given, i)))
            return PY_REFUSE(PyExc_TypeError, "inputs must be a list of tuples");
        if (!PyArg_ParseTuple(PyList_GET_ITEM(given, i), "IIIO", &input->offset, &input->length,
                              &input->num_embeds, &identifier) ||
            read_name(identifier, &input->identifier) < 0)
            return -1;
    }
    return 0;
}

static PyObject *recorder_add(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"arrival_time", "prompt",      "max_tokens", "min_tokens", "eos",
                            "stops",        "priority",    "client",     "hashes",     "adapter",
                            "salt",         "session",     "inputs",     "grammar",    "pooling",
                            "resumable",    "skip_prefix", NULL};
    quire_recorded_request request = QUIRE_RECORDED_REQUEST_INIT;
    quire_recorded_input *inputs = NULL;
    PyObject *hashes = NULL;
    PyObject *adapter = NULL;
    PyObject *salt = NULL;
    PyObject *session = NULL;
    PyObject *given = NULL;
    uint32_t req = 0;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL ||
        !PyArg_ParseTupleAndKeywords(
            args, kwargs, "dII|$IpIiIOOOOOpppp", names, &request.arrival_time,
            &request.num_prompt_tokens, &request.max_tokens, &request.min_tokens, &request.has_eos,
            &request.num_stop_tokens, &request.priority, &request.client_index, &hashes, &adapter,
            &salt, &session, &given, &request.use_grammar, &request.is_pooling,
            &request.is_resumable, &request.skip_reading_prefix))
        return NULL;
    if (read_name(adapter, &request.adapter) < 0 || read_name(salt, &request.cache_salt) < 0 ||
        read_name(session, &request.session) < 0 ||
        record_read_hashes((record_recorder *)self, hashes, 0, &request.num_hashes,
                           &request.hash_bytes) < 0 ||
        read_inputs(given, &inputs, &request.num_inputs) < 0) {
        PyMem_Free(inputs);
        return NULL;
    }
    request.hashes = ((record_recorder *)self)->bytes;
    request.inputs = inputs;
    int status = quire_recorder_add(recorder, &request, &req);
    PyMem_Free(inputs);
    return record_result(status, PyLong_FromUnsignedLong(req));
}

static PyObject *recorder_end(PyObject *self, PyObject *args)
{
    PyObject *hashes = NULL;
    Py_ssize_t first = 0;
    const char *name;
    uint32_t req;
    uint32_t num_output;
    uint32_t count;
    uint32_t hash_bytes;
    quire_recorded_reason reason;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL ||
        !PyArg_ParseTuple(args, "IsI|On", &req, &name, &num_output, &hashes, &first) ||
        read_reason(name, &reason) < 0)
        return NULL;
    if (first < 0)
        return PyErr_Format(PyExc_ValueError, "invalid first hash %zd (expected 0 or more)", first);
    if (record_read_hashes((record_recorder *)self, hashes, first, &count, &hash_bytes) < 0)
        return NULL;
    int status = quire_recorder_end(recorder, req, reason, num_output,
                                    ((record_recorder *)self)->bytes, count, hash_bytes);
    return record_result(status, Py_NewRef(Py_None));
}

static PyObject *recorder_finish(PyObject *self, PyObject *args)
{
    record_list *reqs = &((record_recorder *)self)->lists[RECORD_REQS];
    PyObject *given;
    const char *name;
    quire_recorded_reason reason;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL || !PyArg_ParseTuple(args, "Os", &given, &name) ||
        read_reason(name, &reason) < 0 || read_list(given, reqs, 0) < 0)
        return NULL;
    int status = quire_recorder_finish(recorder, reqs->items, reqs->count, reason);
    return record_result(status, Py_NewRef(Py_None));
}

/* ---- steps ---------------------------------------------------------------------- */

static PyObject *recorder_schedule(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"reqs",    "tokens",  "new",     "resumed", "preempted", "drafts",
                            "encoder", "running", "waiting", "free",    "throttle",  NULL};
    quire_recorded_step step = QUIRE_RECORDED_STEP_INIT;
    record_recorder *r = (record_recorder *)self;
    PyObject *given[RECORD_NUM_LISTS] = {NULL};
    uint64_t number = 0;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL ||
        !PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO|$OOOOOIIIp", names, &given[RECORD_REQS], &given[RECORD_TOKENS],
            &given[RECORD_NEW], &given[RECORD_RESUMED], &given[RECORD_PREEMPTED],
            &given[RECORD_DRAFTS], &given[RECORD_ENCODER], &step.num_running, &step.num_waiting,
            &step.num_free_blocks, &step.throttle_prefills))
        return NULL;
    for (int i = 0; i < RECORD_NUM_LISTS; i++)
        if (read_list(given[i], &r->lists[i], i >= RECORD_NEW) < 0)
            return NULL;
    if (r->lists[RECORD_REQS].count != r->lists[RECORD_TOKENS].count)
        return PyErr_Format(PyExc_ValueError, "%u reqs, but %u tokens", r->lists[RECORD_REQS].count,
                            r->lists[RECORD_TOKENS].count);
    record_fill_step(r, &step);
    int status = quire_recorder_schedule(recorder, &step, &number);
    return record_result(status, PyLong_FromUnsignedLongLong(number));
}

static PyObject *recorder_update(PyObject *self, PyObject *args)
{
    record_list *sampled = &((record_recorder *)self)->lists[RECORD_TOKENS];
    PyObject *given = NULL;
    unsigned long long step;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL || !PyArg_ParseTuple(args, "K|O", &step, &given) ||
        read_list(given, sampled, 0) < 0)
        return NULL;
    int is_all_ones = given == NULL || given == Py_None;
    int status =
        quire_recorder_update(recorder, step, is_all_ones ? NULL : sampled->items, sampled->count);
    return record_result(status, Py_NewRef(Py_None));
}

static PyObject *recorder_drafts(PyObject *self, PyObject *given)
{
    record_list *drafts = &((record_recorder *)self)->lists[RECORD_DRAFTS];
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL || read_list(given, drafts, 1) < 0)
        return NULL;
    int status = quire_recorder_drafts(recorder, (const quire_recorded_pair *)drafts->items,
                                       drafts->count / 2);
    return record_result(status, Py_NewRef(Py_None));
}

/* ---- other calls ------------------------------------------------------------------ */

static PyObject *recorder_reset(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"what", "running", "connector", "done", NULL};
    const char *what = "prefix";
    int running = 0;
    int connector = 0;
    int done = 1;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "|s$ppp", names, &what,
                                                         &running, &connector, &done))
        return NULL;
    if (strcmp(what, "prefix") != 0 && strcmp(what, "encoder") != 0)
        return PyErr_Format(PyExc_ValueError, "invalid what '%.40s' (expected prefix or encoder)",
                            what);
    uint32_t flags = (running ? (uint32_t)QUIRE_RECORDED_RESET_RUNNING : 0) |
                     (connector ? (uint32_t)QUIRE_RECORDED_RESET_CONNECTOR : 0) |
                     (done ? (uint32_t)QUIRE_RECORDED_RESET_DONE : 0) |
                     (what[0] == 'e' ? (uint32_t)QUIRE_RECORDED_RESET_ENCODER : 0);
    return record_result(quire_recorder_reset(recorder, flags), Py_NewRef(Py_None));
}

static PyObject *recorder_set_pause(PyObject *self, PyObject *given)
{
    uint32_t pause;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL || record_read_number(given, &pause) < 0)
        return NULL;
    return record_result(quire_recorder_set_pause(recorder, pause), Py_NewRef(Py_None));
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

PyMethodDef record_line_methods[] = {
    {"add", KEYWORDS(recorder_add), "A request was added; its number."},
    {"schedule", KEYWORDS(recorder_schedule), "A step was scheduled; its number."},
    {"update", recorder_update, METH_VARARGS, "The output of a step was computed."},
    {"drafts", recorder_drafts, METH_O, "Numbers of drafts were proposed."},
    {"end", recorder_end, METH_VARARGS, "A request has ended."},
    {"finish", recorder_finish, METH_VARARGS, "Requests were ended from outside."},
    {"reset", KEYWORDS(recorder_reset), "A cache was reset."},
    {"set_pause", recorder_set_pause, METH_O, "The pause state was set."},
    {NULL, NULL, 0, NULL}};

/* edit.c - changing what the scheduler decided, from outside.
 *
 *      request.status = WAITING_FOR_REMOTE_KVS        edit      one value of one request
 *      scheduler.skipped_waiting.add_request(r)       enqueue   into another queue
 *      scheduler.waiting.remove_requests([r])         leave     out of the one it is in
 *
 * vLLM's scheduler is open: its tests, and connectors, write into it. What they write goes straight
 * into the library's state, as far as that stays whole: a request is in one queue, and one that
 * runs or has ended keeps its status. The library's own headers are needed for it.
 */
#include "shim.h"

#include "sched/sched.h"

enum { RUNNING, WAITING, SKIPPED };
enum { STATUS, COMPUTED, PLACEHOLDERS, PREEMPTIONS, RECEIVED, FAILED, IN_FLIGHT, GRAMMAR };

/* The request of a number that Python gave; NULL with an exception. */
static qr_request *request_of(vllm_core *core, quire_req req, uint32_t *index)
{
    *index = qr_sched_index_of(core->sched, req);
    if (*index != QR_NIL)
        return &core->sched->table.requests[*index];
    vllm_raise(QUIRE_E_UNKNOWN_REQ, "request");
    return NULL;
}

/* ---- values -------------------------------------------------------------- */

static int edit_status(quire_sched *s, qr_request *r, uint32_t status)
{
    int is_waiting =
        status >= QUIRE_REQ_WAITING && status <= QUIRE_REQ_PREEMPTED && status != QUIRE_REQ_RUNNING;
    if (r->status == status)
        return 0;
    if (!is_waiting || r->status == QUIRE_REQ_RUNNING || qr_request_is_finished(r)) {
        PyErr_Format(PyExc_AttributeError,
                     "status cannot become %u by writing where it is %u: only a request that waits "
                     "can be made to wait for something else; use finish_requests",
                     status, (unsigned int)r->status);
        return -1;
    }
    s->queues.num_waiting_for_streaming -= r->status == QUIRE_REQ_WAITING_FOR_STREAMING;
    s->queues.num_waiting_for_streaming += status == QUIRE_REQ_WAITING_FOR_STREAMING;
    if (status == QUIRE_REQ_WAITING_FOR_GRAMMAR) {
        r->use_grammar = true;
        r->is_plain = false;
    }
    r->status = (uint8_t)status;
    return 0;
}

static bool load_has_failed(const qr_request *r)
{
    return r->load == QR_LOAD_FAILING || r->load == QR_LOAD_FAILED;
}

static void edit_load(qr_request *r, bool is_done, bool has_failed)
{
    static const uint8_t LOADS[2][2] = {{QR_LOAD_OPEN, QR_LOAD_FAILING},
                                        {QR_LOAD_DONE, QR_LOAD_FAILED}};
    r->load = LOADS[is_done][has_failed];
}

/* edit(number, which value, value) */
PyObject *vllm_core_edit(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long number;
    int which;
    unsigned int value;
    uint32_t index;
    if (!PyArg_ParseTuple(args, "KiI", &number, &which, &value))
        return NULL;
    qr_request *r = request_of(core, number, &index);
    if (r == NULL || (which == STATUS && edit_status(core->sched, r, value) < 0))
        return NULL;
    if (which == COMPUTED && value > r->kv.num_tokens + r->num_placeholders + r->num_drafts) {
        PyErr_Format(PyExc_ValueError, "num_computed_tokens cannot be %u: the request has %u",
                     value, r->kv.num_tokens);
        return NULL;
    }
    if (which == COMPUTED)
        r->kv.num_computed_tokens = core->slots[index].num_computed = value;
    else if (which == PLACEHOLDERS)
        r->num_placeholders = value;
    else if (which == PREEMPTIONS)
        r->num_preemptions = core->slots[index].num_preemptions = value;
    else if (which == RECEIVED)
        edit_load(r, value != 0, load_has_failed(r));
    else if (which == FAILED)
        edit_load(r, r->load == QR_LOAD_DONE || r->load == QR_LOAD_FAILED, value != 0);
    else if (which == IN_FLIGHT)
        r->num_in_flight = value;
    else if (which == GRAMMAR) {
        r->use_grammar = value != 0;
        r->is_plain = r->is_plain && value == 0;
    }
    Py_RETURN_NONE;
}

/* flags(number): whether its load has come, whether it failed, and the last step that it was in, as
 * fences count steps */
PyObject *vllm_core_flags(PyObject *self, PyObject *number)
{
    uint32_t index;
    quire_req req = PyLong_AsUnsignedLongLong(number);
    const qr_request *r = PyErr_Occurred() ? NULL : request_of((vllm_core *)self, req, &index);
    return r == NULL ? NULL
                     : Py_BuildValue("(iiK)", r->load == QR_LOAD_DONE || r->load == QR_LOAD_FAILED,
                                     load_has_failed(r), r->last_fence);
}

/* cache_blocks(number, tokens): its full blocks get their keys */
PyObject *vllm_core_cache_blocks(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long number;
    unsigned int num_tokens;
    uint32_t index;
    if (!PyArg_ParseTuple(args, "KI", &number, &num_tokens) ||
        request_of(core, number, &index) == NULL)
        return NULL;
    qr_sched_cache_blocks(core->sched, index, num_tokens);
    Py_RETURN_NONE;
}

/* ---- queues -------------------------------------------------------------- */

static void leave(quire_sched *s, uint32_t index)
{
    uint32_t place = 0;
    while (place < s->queues.num_running && s->queues.running[place] != index)
        place++;
    if (place < s->queues.num_running)
        qr_sched_leave_running(s, place);
    else
        qr_sched_dequeue(s, index);
}

/* leave(number): out of the queue that it is in */
PyObject *vllm_core_leave(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long number;
    uint32_t index;
    if (!PyArg_ParseTuple(args, "K", &number) || request_of(core, number, &index) == NULL)
        return NULL;
    leave(core->sched, index);
    Py_RETURN_NONE;
}

static int enter_running(quire_sched *s, qr_request *r, uint32_t index)
{
    int has_no_blocks = s->settings.is_async && s->hasher != NULL && r->kv.seq == 0;
    if (s->queues.num_running == s->settings.max_num_seqs || qr_request_is_finished(r) ||
        has_no_blocks) {
        PyErr_SetString(PyExc_ValueError,
                        "running: the request has ended, or it has no blocks to run with in "
                        "asynchronous scheduling, or max_num_seqs requests run already");
        return -1;
    }
    leave(s, index);
    if (!qr_texts_promise(&s->texts, r, qr_sched_last_token_of(s, r))) {
        qr_sched_enqueue(s, index);
        vllm_raise(QUIRE_FULL, "running");
        return -1;
    }
    qr_sched_make_text_room(s, r);
    r->status = QUIRE_REQ_RUNNING;
    s->queues.running[s->queues.num_running++] = index;
    return 0;
}

/* enqueue(number, which queue, in front): it leaves the one that it was in */
PyObject *vllm_core_enqueue(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long number;
    int which;
    int in_front;
    uint32_t index;
    if (!PyArg_ParseTuple(args, "Kip", &number, &which, &in_front))
        return NULL;
    quire_sched *s = core->sched;
    qr_request *r = request_of(core, number, &index);
    if (r == NULL || (which == RUNNING && enter_running(s, r, index) < 0))
        return NULL;
    if (which == RUNNING)
        Py_RETURN_NONE;
    if (r->status == QUIRE_REQ_RUNNING || qr_request_is_finished(r)) {
        PyErr_SetString(PyExc_ValueError, "a request that runs or has ended cannot wait");
        return NULL;
    }
    qr_waiting *queue = which == WAITING ? &s->queues.waiting : &s->queues.skipped;
    leave(s, index);
    if (s->settings.rules.holders_first && r->status != QUIRE_REQ_WAITING &&
        r->status != QUIRE_REQ_PREEMPTED && !s->table.waiters[index].is_deferred) {
        s->table.waiters[index].is_deferred = true; /* something holds it up */
        s->queues.num_deferred++;
    }
    if (in_front)
        qr_waiting_prepend(queue, index);
    else
        qr_waiting_add(queue, index);
    Py_RETURN_NONE;
}

/* update.c - what the model runner computed goes in, EngineCoreOutputs come out.
 *
 *      num_scheduled_tokens ──► req_id_to_index ──► sampled_token_ids     the order of the step is
 *            (order)                                      │               that of the dict
 *                                                         ▼
 *      EngineCoreOutput ◄── quire_outputs ◄── quire_sched_update
 *
 * A list of sampled tokens is not copied: cut to what was taken, it is the new_token_ids of its
 * output, as in vLLM.
 */
#include "update.h"

#include <string.h>

/* An attribute, or NULL where it is None or empty; -1 through *failed. */
static PyObject *optional(PyObject *object, const char *name, int *failed)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    int is_there = value == NULL || value == Py_None ? 0 : PyObject_IsTrue(value);
    if (value == NULL || is_there < 0)
        *failed = 1;
    if (is_there <= 0)
        Py_CLEAR(value);
    return value;
}

static int input_read(vllm_core *core, PyObject *output, PyObject *computed, update_input *input)
{
    int failed = 0;
    input->scheduled = PyObject_GetAttr(output, core->names[VLLM_NAME_SCHEDULED]);
    input->sampled = PyObject_GetAttr(computed, core->names[VLLM_NAME_SAMPLED]);
    input->index = PyObject_GetAttr(computed, core->names[VLLM_NAME_INDEX]);
    input->prompt_logprobs = optional(computed, "prompt_logprobs_dict", &failed);
    if (vllm_is_0_32(core))
        input->token_logprobs = optional(computed, "prompt_token_id_logprobs_dict", &failed);
    if (core->returns_masks)
        input->masks = optional(computed, "sampling_masks", &failed);
    input->pooled = optional(computed, "pooler_output", &failed);
    input->nans = optional(computed, "num_nans_in_logits", &failed);
    input->drafts = optional(output, "scheduled_spec_decode_tokens", &failed);
    input->invalid = optional(output, "num_invalid_spec_tokens", &failed);
    input->logprobs = PyObject_GetAttr(computed, core->names[VLLM_NAME_LOGPROBS]);
    if (input->logprobs == Py_None)
        Py_CLEAR(input->logprobs);
    if (failed || PyErr_Occurred())
        return -1;
    if (!PyDict_Check(input->scheduled) || !PyDict_Check(input->index) ||
        !PyList_Check(input->sampled))
        return PY_REFUSE(PyExc_TypeError, "num_scheduled_tokens and req_id_to_index must be dicts, "
                                          "sampled_token_ids a list");
    if (PyDict_Size(input->scheduled) > (Py_ssize_t)core->max_rows)
        return PY_REFUSE(PyExc_ValueError, "more requests than max_num_seqs");
    return 0;
}

/* Drafts that were not accepted are not computed either. */
static int read_rejected(vllm_core *core, const update_input *input, uint32_t row, vllm_slot *slot)
{
    PyObject *drafts = PyDict_GetItemWithError(input->drafts, slot->id);
    PyObject *invalid = NULL;
    if (drafts != NULL && input->invalid != NULL)
        invalid = PyDict_GetItemWithError(input->invalid, slot->id);
    if (PyErr_Occurred())
        return -1;
    uint32_t num_drafts = drafts == NULL ? 0 : (uint32_t)PyList_Size(drafts);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (num_drafts > 0 && slot->num_computed > 0 &&
        quire_sched_get_req_info(core->sched, slot->req, &info) == QUIRE_OK &&
        info.num_stale_tokens == 0)
        slot->num_computed -= num_drafts - (core->num_sampled[row] - 1);
    if (invalid != NULL)
        core->num_invalid[row] = (uint32_t)PyLong_AsUnsignedLong(invalid);
    slot->has_drafted = num_drafts > 0;
    slot->num_drafted = num_drafts - core->num_invalid[row];
    slot->num_accepted = core->num_sampled[row] - 1;
    return PyErr_Occurred() ? -1 : 0;
}

/* Room for longer rows; the first rows are filled already. */
static int widen_rows(vllm_core *core, uint32_t num_filled, Py_ssize_t stride)
{
    quire_token *wide = PyMem_Calloc((size_t)core->max_rows * (size_t)stride, sizeof(*wide));
    if (wide == NULL)
        return PY_REFUSE_MEMORY();
    for (uint32_t row = 0; row < num_filled; row++)
        memcpy(wide + (size_t)row * (size_t)stride, core->sampled + (size_t)row * core->stride,
               core->stride * sizeof(*wide));
    PyMem_Free(core->sampled);
    core->sampled = wide;
    core->stride = (uint32_t)stride;
    return 0;
}

/* The request keeps what was counted last, and all of its outputs from then on show it. */
static int read_nans(vllm_core *core, PyObject *nans, vllm_slot *slot)
{
    PyObject *count = PyDict_GetItemWithError(nans, slot->id);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (count == NULL || quire_sched_get_req_info(core->sched, slot->req, &info) != QUIRE_OK ||
        (info.num_stale_tokens > 0 && info.drops_stale))
        return PyErr_Occurred() ? -1 : 0;
    slot->num_nans = (uint32_t)PyLong_AsUnsignedLong(count);
    return PyErr_Occurred() ? -1
                            : PyObject_SetAttrString(slot->request, "num_nans_in_logits", count);
}

/* The next row of req_id_to_index; most runners list the requests in the order of the step. */
typedef struct index_cursor {
    Py_ssize_t at;
    PyObject *id;
    PyObject *index;
} index_cursor;

static PyObject *index_of(const update_input *input, const index_cursor *next,
                          const vllm_slot *slot)
{
    return next->id == slot->id ? next->index : PyDict_GetItemWithError(input->index, slot->id);
}

/* The tokens of one request of the step. */
static int read_row(vllm_core *core, const update_input *input, uint32_t row, vllm_slot *slot,
                    const index_cursor *next)
{
    PyObject *index = index_of(input, next, slot);
    if (index == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, slot->id);
        return -1;
    }
    slot->row = PyLong_AsSsize_t(index);
    slot->generated = NULL;
    slot->num_taken = 0;
    slot->wanted_logprobs = slot->wants_logprobs;
    slot->has_turned = 0;
    Py_CLEAR(slot->aux);
    slot->has_drafted = 0;
    if (PyErr_Occurred() || (input->nans != NULL && read_nans(core, input->nans, slot) < 0))
        return -1;
    if (input->pooled != NULL) {
        PyObject *pooled = PyList_GetItem(input->pooled, slot->row);
        if (pooled == NULL)
            return -1;
        core->has_pooled[row] = pooled != Py_None;
    }
    if (PyList_Size(input->sampled) == 0)
        return 0;
    slot->generated = PyList_GetItem(input->sampled, slot->row);
    Py_ssize_t count = slot->generated == NULL ? -1 : PyList_Size(slot->generated);
    if (count < 0)
        return -1;
    if (count > (Py_ssize_t)core->stride && widen_rows(core, row, count) < 0)
        return -1;
    if (vllm_read_tokens(slot->generated, 0, count, core->sampled + (size_t)row * core->stride) < 0)
        return -1;
    core->num_sampled[row] = (uint32_t)count;
    return input->drafts == NULL || count == 0 ? 0 : read_rejected(core, input, row, slot);
}

/* Requests that ended since the step was scheduled have no slot any more, and no say. */
vllm_slot *vllm_slot_of_id(vllm_core *core, PyObject *id)
{
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(id, &len);
    if (text == NULL)
        return NULL;
    quire_req req = quire_sched_find(core->sched, (quire_bytes){text, (size_t)len});
    return req == 0 ? NULL : vllm_slot_of(core, req);
}

/* Most requests are in the row that they had in the step before, and their ids are the very objects
 * that their slots have: no need to look them up. */
static vllm_slot *slot_of_row(vllm_core *core, uint32_t row, PyObject *id)
{
    vllm_slot *slot = &core->slots[core->row_slots[row]];
    if (slot->request != NULL && slot->id == id)
        return slot;
    slot = vllm_slot_of_id(core, id);
    if (slot != NULL)
        core->row_slots[row] = (uint32_t)(slot - core->slots);
    return slot;
}

static int read_rows(vllm_core *core, const update_input *input, quire_model_output *model)
{
    Py_ssize_t at = 0;
    PyObject *id;
    PyObject *count;
    uint32_t row = 0;
    index_cursor next = {0};
    while (PyDict_Next(input->scheduled, &at, &id, &count)) {
        core->num_sampled[row] = 0;
        core->has_pooled[row] = 0;
        core->num_invalid[row] = 0;
        if (!PyDict_Next(input->index, &next.at, &next.id, &next.index))
            next.id = NULL;
        vllm_slot *slot = slot_of_row(core, row, id);
        if (slot == NULL && PyErr_Occurred())
            return -1;
        if (slot != NULL && read_row(core, input, row, slot, &next) < 0)
            return -1;
        row++;
    }
    model->sampled = core->sampled;
    model->stride = core->stride;
    model->num_sampled = core->num_sampled;
    model->num_invalid_drafts = input->invalid == NULL ? NULL : core->num_invalid;
    model->has_pooled = input->pooled == NULL ? NULL : core->has_pooled;
    return 0;
}

static int is_in_flight(const vllm_core *core, uint64_t step)
{
    for (uint32_t i = 0; i < core->num_flight; i++) {
        if (core->flight[i] == step)
            return 1;
    }
    return 0;
}

/* The number that schedule left on the SchedulerOutput. vLLM keeps nothing of a step: one that was
 * made by hand, given before, or forgotten since, becomes a step in flight here. */
static int step_number(vllm_core *core, PyObject *output, uint64_t *number)
{
    PyObject *value = PyObject_GetAttr(output, core->names[VLLM_NAME_STEP]);
    if (value == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    *number = value == NULL ? 0 : PyLong_AsUnsignedLongLong(value);
    Py_XDECREF(value);
    if (PyErr_Occurred())
        return -1;
    return is_in_flight(core, *number) ? 0 : vllm_note_step(core, output, number);
}

void vllm_flight_end(vllm_core *core, uint64_t step)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < core->num_flight; i++) {
        core->flight[kept] = core->flight[i];
        kept += core->flight[i] != step;
    }
    core->num_flight = kept;
}

/* The library takes the step's output. */
static const quire_outputs *take_output(vllm_core *core, uint64_t step,
                                        const quire_model_output *model)
{
    const quire_outputs *made = NULL;
    core->is_updating = 1;
    int status = quire_sched_update(core->sched, step, model, &made);
    core->is_updating = 0;
    if (status == QUIRE_OK)
        vllm_flight_end(core, step);
    else if (step > UINT64_MAX / 2) /* made by hand, and not to be given again */
        quire_sched_forget_step(core->sched, step);
    if (vllm_raise_kept(core) < 0)
        return NULL;
    if (status != QUIRE_OK)
        vllm_raise(status, "update_from_output");
    return status == QUIRE_OK ? made : NULL;
}

/* ---- what a connector reports -------------------------------------------- */

/* Numbers of requests, and of blocks; the caller frees them. */
typedef struct update_transfers {
    quire_req *reqs;     /* sent, then failed */
    quire_req *received; /* the connector may replace them: vllm_take_received */
    quire_block *blocks;
    uint32_t num_sent;
    uint32_t num_received;
    uint32_t num_failed;
    uint32_t num_blocks;
} update_transfers;

/* The lists that update is given. */
typedef struct update_lists {
    PyObject *sent;
    PyObject *received;
    PyObject *blocks;
    PyObject *failed; /* NULL: none */
} update_lists;

static void read_numbers(PyObject *list, uint32_t count, quire_req *reqs)
{
    for (uint32_t i = 0; i < count; i++)
        reqs[i] = PyLong_AsUnsignedLongLong(PyList_GetItem(list, (Py_ssize_t)i));
}

static int received_read(PyObject *list, update_transfers *made)
{
    uint32_t count = (uint32_t)PyList_Size(list);
    quire_req *reqs = PyMem_Calloc((size_t)count + 1, sizeof(*reqs));
    if (reqs == NULL)
        return PY_REFUSE_MEMORY();
    read_numbers(list, count, reqs);
    PyMem_Free(made->received);
    made->received = reqs;
    made->num_received = count;
    return PyErr_Occurred() ? -1 : 0;
}

static int transfers_read(const update_lists *lists, update_transfers *made)
{
    made->num_sent = (uint32_t)PyList_Size(lists->sent);
    made->num_failed = lists->failed == NULL ? 0 : (uint32_t)PyList_Size(lists->failed);
    made->num_blocks = (uint32_t)PyList_Size(lists->blocks);
    uint32_t num_reqs = made->num_sent + made->num_failed;
    made->reqs = PyMem_Calloc((size_t)num_reqs + 1, sizeof(*made->reqs));
    made->blocks = PyMem_Calloc((size_t)made->num_blocks + 1, sizeof(*made->blocks));
    if (made->reqs == NULL || made->blocks == NULL)
        return PY_REFUSE_MEMORY();
    if (received_read(lists->received, made) < 0)
        return -1;
    read_numbers(lists->sent, made->num_sent, made->reqs);
    read_numbers(lists->failed, made->num_failed, made->reqs + made->num_sent);
    for (uint32_t i = 0; i < made->num_blocks; i++)
        made->blocks[i] =
            (quire_block)PyLong_AsUnsignedLong(PyList_GetItem(lists->blocks, (Py_ssize_t)i));
    return PyErr_Occurred() ? -1 : 0;
}

static void transfers_tell(const update_transfers *made, quire_model_output *model)
{
    model->finished_sending = made->reqs;
    model->num_finished_sending = made->num_sent;
    model->finished_recving = made->received;
    model->num_finished_recving = made->num_received;
    model->failed_recving = made->reqs + made->num_sent;
    model->num_failed_recving = made->num_failed;
    model->invalid_blocks = made->blocks;
    model->num_invalid_blocks = made->num_blocks;
}

/* What the library reads after it has told the connector. */
struct vllm_reports {
    update_transfers transfers;
    quire_model_output model;
};

int vllm_take_received(vllm_core *core, PyObject *list)
{
    vllm_reports *reports = core->reports;
    if (!PyList_Check(list))
        return PY_REFUSE(PyExc_TypeError, "told must return a list");
    if (received_read(list, &reports->transfers) < 0)
        return -1;
    transfers_tell(&reports->transfers, &reports->model);
    return 0;
}

static int ends_kept(vllm_core *core, const quire_req *reqs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (vllm_slot_end_kept(core, reqs[i]) < 0)
            return -1;
    }
    return 0;
}

static int transfers_end(vllm_core *core, const update_transfers *made)
{
    int failed = ends_kept(core, made->reqs, made->num_sent) < 0 ||
                 ends_kept(core, made->received, made->num_received) < 0;
    return failed ? -1 : 0;
}

static void transfers_free(update_transfers *made)
{
    PyMem_Free(made->reqs);
    PyMem_Free(made->received);
    PyMem_Free(made->blocks);
}

/* update(scheduler_output, model_runner_output, sent, received, invalid blocks, failed requests):
 * ({client: [EngineCoreOutput]}, stats or None). 0.20 has no failed requests. */
PyObject *vllm_core_update(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    PyObject *output;
    PyObject *computed;
    update_lists lists = {0};
    if (!PyArg_ParseTuple(args, "OOO!O!O!|O!", &output, &computed, &PyList_Type, &lists.sent,
                          &PyList_Type, &lists.received, &PyList_Type, &lists.blocks, &PyList_Type,
                          &lists.failed))
        return NULL;
    uint64_t step;
    update_input input = {0};
    vllm_reports reports = {.model = QUIRE_MODEL_OUTPUT_INIT};
    const quire_outputs *made = NULL;
    PyObject *answer = NULL;
    if (step_number(core, output, &step) == 0 && input_read(core, output, computed, &input) == 0 &&
        read_rows(core, &input, &reports.model) == 0 &&
        transfers_read(&lists, &reports.transfers) == 0) {
        transfers_tell(&reports.transfers, &reports.model);
        core->reports = &reports;
        made = take_output(core, step, &reports.model);
        core->reports = NULL;
    }
    int collects =
        PyGC_Disable(); /* the outputs are all alive: look at them once, not five times */
    PyObject *by_client = PyErr_Occurred() ? NULL : vllm_add_outputs(core, &input, made);
    if (collects)
        PyGC_Enable();
    if (by_client != NULL && transfers_end(core, &reports.transfers) < 0)
        Py_CLEAR(by_client);
    transfers_free(&reports.transfers);
    if (made != NULL && by_client == NULL)
        core->is_closed = 1; /* the tokens are taken, and nobody will hear of them */
    PyObject *stats = by_client == NULL ? NULL : vllm_stats(core, made->stats);
    if (stats != NULL)
        answer = Py_BuildValue("(OO)", by_client, stats);
    Py_XDECREF(by_client);
    Py_XDECREF(stats);
    vllm_clear_all(&input, sizeof input);
    return answer;
}

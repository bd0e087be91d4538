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
#include "vllm.h"

#include <string.h>

enum { FETCH_AHEAD = 4 };

/* What is read from the model runner's output; all owned. */
typedef struct update_input {
    PyObject *sampled;
    PyObject *index;
    PyObject *scheduled;
    PyObject *logprobs;        /* NULL: None */
    PyObject *prompt_logprobs; /* NULL: empty */
    PyObject *token_logprobs;  /* of some token ids, in 0.32; NULL: empty */
    PyObject *pooled;          /* NULL: none */
    PyObject *nans;            /* NULL: None */
    PyObject *drafts;          /* NULL: empty */
    PyObject *invalid;         /* drafts that a grammar refused; NULL: none */
} update_input;

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
    if (num_drafts > 0 && slot->num_computed > 0 && !vllm_is_stale(core, slot->req))
        slot->num_computed -= num_drafts - (core->num_sampled[row] - 1);
    if (invalid != NULL)
        core->num_invalid[row] = (uint32_t)PyLong_AsUnsignedLong(invalid);
    uint32_t most = num_drafts < core->num_spec_tokens ? num_drafts : core->num_spec_tokens;
    slot->num_drafted = most > core->num_invalid[row] ? most - core->num_invalid[row] : 0;
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

/* The tokens of one request of the step. */
static int read_row(vllm_core *core, const update_input *input, uint32_t row, vllm_slot *slot)
{
    PyObject *index = PyDict_GetItemWithError(input->index, slot->id);
    if (index == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, slot->id);
        return -1;
    }
    slot->row = PyLong_AsSsize_t(index);
    slot->generated = NULL;
    slot->num_taken = 0;
    slot->num_drafted = 0;
    if (PyErr_Occurred())
        return -1;
    if (input->pooled != NULL) {
        PyObject *pooled = PyList_GetItem(input->pooled, slot->row);
        if (pooled == NULL)
            return -1;
        core->has_pooled[row] = pooled != Py_None;
        if (pooled != Py_None && !slot->has_output && vllm_is_0_32(core) &&
            vllm_keep_row(core, slot) < 0)
            return -1;
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
    if (count > 0 && !slot->has_output && vllm_is_0_32(core) && vllm_keep_row(core, slot) < 0)
        return -1;
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
    while (PyDict_Next(input->scheduled, &at, &id, &count)) {
        core->num_sampled[row] = 0;
        core->has_pooled[row] = 0;
        core->num_invalid[row] = 0;
        vllm_slot *slot = slot_of_row(core, row, id);
        if (slot == NULL && PyErr_Occurred())
            return -1;
        if (slot != NULL && read_row(core, input, row, slot) < 0)
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

/* ---- what came out ------------------------------------------------------- */

/* The new tokens, as the list that the runner gave, cut; and appended to those of the request. */
static PyObject *take_tokens(vllm_slot *slot, const quire_output *made)
{
    Py_ssize_t count = (Py_ssize_t)made->num_new_tokens;
    if (slot->generated == NULL || count == 0)
        return PyList_New(0);
    if (PyList_Size(slot->generated) > count &&
        PyList_SetSlice(slot->generated, count, PyList_Size(slot->generated), NULL) < 0)
        return NULL;
    if (vllm_slot_take(slot, count) < 0)
        return NULL;
    return Py_NewRef(slot->generated);
}

static int set_and_drop(PyObject *output, const char *name, PyObject *value)
{
    int failed = value == NULL || PyObject_SetAttrString(output, name, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

/* Sets what a dict has for the request, if it has it. */
static int set_found(PyObject *output, const char *name, PyObject *dict, const vllm_slot *slot)
{
    PyObject *found = PyDict_GetItemWithError(dict, slot->id);
    if (found == NULL)
        return PyErr_Occurred() ? -1 : 0;
    return PyObject_SetAttrString(output, name, found);
}

/* Why it stopped, in words or as a token: a session shows it from then on. */
static int set_stop_reason(PyObject *output, vllm_slot *slot, const quire_output *made)
{
    PyObject *reason = NULL;
    if (made->finish_reason != QUIRE_FINISH_NONE && made->has_stop_reason)
        reason = PyLong_FromLong(made->stop_reason);
    else if (made->finish_reason != QUIRE_FINISH_NONE && made->has_repeated)
        reason = PyUnicode_FromString("repetition_detected");
    else if (slot->has_stop_reason)
        reason = PyObject_GetAttrString(slot->request, "stop_reason");
    if (reason == NULL)
        return PyErr_Occurred() ? -1 : 0;
    slot->has_stop_reason = 1;
    if (PyObject_SetAttrString(slot->request, "stop_reason", reason) < 0) {
        Py_DECREF(reason);
        return -1;
    }
    return set_and_drop(output, "stop_reason", reason);
}

static int set_finish(vllm_core *core, PyObject *output, const quire_output *made)
{
    PyObject *reason = PyTuple_GetItem(core->types.finish_reasons, (Py_ssize_t)made->finish_reason);
    return reason == NULL ? -1 : PyObject_SetAttrString(output, "finish_reason", reason);
}

static int set_logprobs(const update_input *input, PyObject *output, const vllm_slot *slot,
                        const quire_output *made, int wants_logprobs)
{
    if (input->token_logprobs != NULL &&
        set_found(output, "prompt_token_id_logprobs", input->token_logprobs, slot) < 0)
        return -1;
    if (wants_logprobs && input->logprobs != NULL &&
        set_and_drop(output, "new_logprobs",
                     PyObject_CallMethod(input->logprobs, "slice_request", "nI", slot->row,
                                         made->num_new_tokens)) < 0)
        return -1;
    if (input->prompt_logprobs == NULL)
        return 0;
    return set_found(output, "new_prompt_logprobs_tensors", input->prompt_logprobs, slot);
}

static PyObject *prefill_stats(vllm_core *core, vllm_slot *slot, const quire_output *made,
                               uint32_t keyed)
{
    uint32_t cached = made->num_local_cached + made->num_external_cached;
    if (PyObject_SetAttrString(slot->request, "prefill_stats", Py_None) < 0)
        return NULL;
    slot->has_output = 1;
    if (keyed > made->num_prompt_tokens)
        keyed = made->num_prompt_tokens;
    if (vllm_is_0_32(core))
        return PyObject_CallFunction(core->types.prefill_stats, "IIIIII", made->num_prompt_tokens,
                                     made->num_prompt_tokens - cached, cached,
                                     made->num_local_cached, made->num_external_cached,
                                     keyed > cached ? keyed - cached : 0);
    return PyObject_CallFunction(core->types.prefill_stats, "IIIII", made->num_prompt_tokens,
                                 made->num_prompt_tokens - cached, cached, made->num_local_cached,
                                 made->num_external_cached);
}

/* Where a decoding engine will load what this one has computed, it is told how much of that was
 * found in the cache here (0.32). */
static int tell_cached(vllm_core *core, const vllm_slot *slot, const quire_output *made)
{
    if (!vllm_is_0_32(core) || !made->has_prefill_stats || !PyDict_Check(slot->kv_params))
        return 0;
    PyObject *wanted = PyDict_GetItemString(slot->kv_params, "do_remote_prefill");
    int is_wanted = wanted == NULL ? 0 : PyObject_IsTrue(wanted);
    if (is_wanted <= 0)
        return is_wanted;
    PyObject *count = PyLong_FromUnsignedLong(made->num_local_cached + made->num_external_cached);
    int failed = count == NULL ||
                 PyDict_SetItemString(slot->kv_params, "remote_prefill_cached_tokens", count) < 0;
    Py_XDECREF(count);
    return failed ? -1 : 0;
}

/* What is known of an output before a session takes its next turn. */
typedef struct output_notes {
    int wants_logprobs;
    uint32_t num_keyed; /* tokens in the prefix cache, with the first output */
} output_notes;

static int set_events(PyObject *output, vllm_slot *slot)
{
    if (slot->trace_headers != NULL &&
        PyObject_SetAttrString(output, "trace_headers", slot->trace_headers) < 0)
        return -1;
    if (!slot->has_events)
        return 0;
    slot->has_events = 0;
    return set_and_drop(output, "events", PyObject_CallMethod(slot->request, "take_events", NULL));
}

static int set_params(vllm_core *core, PyObject *output, const vllm_slot *slot,
                      const quire_output *made)
{
    if (slot->kv_params != NULL &&
        (tell_cached(core, slot, made) < 0 ||
         PyObject_SetAttrString(output, "kv_transfer_params", slot->kv_params) < 0))
        return -1;
    return slot->ec_params == NULL
               ? 0
               : PyObject_SetAttrString(output, "ec_transfer_params", slot->ec_params);
}

/* What few outputs have. */
static int set_rare(vllm_core *core, const update_input *input, PyObject *output, vllm_slot *slot,
                    const quire_output *made, output_notes notes)
{
    int is_stopped = made->finish_reason != QUIRE_FINISH_NONE;
    if ((is_stopped && set_finish(core, output, made) < 0) || set_events(output, slot) < 0)
        return -1;
    if (made->finish_reason == QUIRE_FINISH_ERROR && made->num_new_tokens == 0)
        return 0; /* ended by something else than its output */
    if ((is_stopped || slot->has_stop_reason) && set_stop_reason(output, slot, made) < 0)
        return -1;
    if (made->has_prefill_stats &&
        set_and_drop(output, "prefill_stats", prefill_stats(core, slot, made, notes.num_keyed)) < 0)
        return -1;
    if (set_params(core, output, slot, made) < 0)
        return -1;
    if (input->pooled != NULL &&
        PyObject_SetAttrString(output, "pooling_output", PyList_GetItem(input->pooled, slot->row)) <
            0)
        return -1;
    if (input->nans != NULL &&
        (set_found(slot->request, "num_nans_in_logits", input->nans, slot) < 0 ||
         set_found(output, "num_nans_in_logits", input->nans, slot) < 0))
        return -1;
    return set_logprobs(input, output, slot, made, notes.wants_logprobs);
}

typedef struct output_lists {
    PyObject *by_client;
    PyObject *last; /* of last_client; borrowed. NULL: there was none yet */
    uint32_t last_client;
} output_lists;

static int client_append(output_lists *lists, uint32_t client, PyObject *output)
{
    if (lists->last != NULL && lists->last_client == client)
        return PyList_Append(lists->last, output);
    PyObject *by_client = lists->by_client;
    PyObject *key = PyLong_FromUnsignedLong(client);
    PyObject *list = key == NULL ? NULL : PyDict_GetItemWithError(by_client, key);
    int failed = PyErr_Occurred() != NULL;
    if (!failed && list == NULL) {
        list = PyList_New(0);
        failed = vllm_dict_put(by_client, key, list) < 0; /* which has it then */
    }
    failed = failed || PyList_Append(list, output) < 0;
    Py_XDECREF(key);
    lists->last = failed ? NULL : list;
    lists->last_client = client;
    return failed ? -1 : 0;
}

static const long finished_statuses[] = {[QUIRE_FINISH_STOP] = QUIRE_REQ_FINISHED_STOPPED,
                                         [QUIRE_FINISH_LENGTH] = QUIRE_REQ_FINISHED_LENGTH,
                                         [QUIRE_FINISH_ABORT] = QUIRE_REQ_FINISHED_ABORTED,
                                         [QUIRE_FINISH_ERROR] = QUIRE_REQ_FINISHED_ERROR,
                                         [QUIRE_FINISH_REPETITION] = QUIRE_REQ_FINISHED_REPETITION};

/* A session that stopped and goes on: its Request takes the next input, if that is there. 1: it
 * goes on, 0: it has ended. */
static int session_turn(vllm_core *core, vllm_slot *slot)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (quire_sched_get_req_info(core->sched, slot->req, &info) != QUIRE_OK ||
        info.status >= QUIRE_REQ_FINISHED_STOPPED)
        return 0;
    if (info.status == QUIRE_REQ_WAITING_FOR_STREAMING)
        return 1;
    PyObject *answer = PyObject_CallFunctionObjArgs(core->types.turn, slot->request, NULL);
    int wants_logprobs = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (wants_logprobs < 0)
        return -1;
    slot->wants_logprobs = (uint8_t)wants_logprobs;
    slot->num_prompt = info.num_prompt_tokens;
    slot->has_events = (uint8_t)core->log_stats;
    return 1;
}

static int add_output(vllm_core *core, const update_input *input, const quire_output *made,
                      output_lists *lists)
{
    vllm_slot *slot = vllm_slot_of(core, made->req);
    PyObject *tokens = take_tokens(slot, made);
    int stopped = made->finish_reason != QUIRE_FINISH_NONE;
    for (uint32_t i = 0; i < slot->num_drafted && made->num_new_tokens > 0; i++)
        core->num_drafted[i]++;
    slot->num_drafted = 0;
    output_notes notes = {.wants_logprobs = slot->wants_logprobs};
    if (tokens != NULL && made->has_prefill_stats)
        notes.num_keyed = vllm_keyed_tokens(core, slot);
    int goes_on = tokens != NULL && stopped ? session_turn(core, slot) : 0;
    if (goes_on < 0)
        Py_CLEAR(tokens);
    PyObject *output = tokens == NULL ? NULL
                                      : PyObject_CallFunctionObjArgs(core->types.engine_core_output,
                                                                     slot->id, tokens, NULL);
    Py_XDECREF(tokens);
    if (!vllm_is_0_32(core)) /* which looks at the next turn's wishes */
        notes.wants_logprobs = slot->wants_logprobs;
    int failed = output == NULL || set_rare(core, input, output, slot, made, notes) < 0 ||
                 client_append(lists, made->client_index, output) < 0;
    Py_XDECREF(output);
    if (!failed && stopped && !goes_on)
        failed = vllm_slot_finish(core, slot, finished_statuses[made->finish_reason],
                                  made->client_index) < 0;
    return failed ? -1 : 0;
}

/* Slots, token lists and ids of a thousand requests do not fit the nearest caches: what the next
 * outputs touch is asked for while this one is made. */
static void fetch_slots(const vllm_core *core, const quire_outputs *made, uint32_t i)
{
    uint32_t far = i + 2 * FETCH_AHEAD < made->num_outputs ? i + 2 * FETCH_AHEAD : i;
    uint32_t near = i + FETCH_AHEAD < made->num_outputs ? i + FETCH_AHEAD : i;
    __builtin_prefetch(&core->slots[quire_req_index(made->outputs[far].req)]);
    const vllm_slot *slot = &core->slots[quire_req_index(made->outputs[near].req)];
    __builtin_prefetch(slot->id, 1);
    __builtin_prefetch(slot->all_tokens, 1);
    __builtin_prefetch(slot->output_tokens, 1);
    __builtin_prefetch(slot->generated, 1);
}

/* A dict of lists of EngineCoreOutput, by client. */
static PyObject *add_outputs(vllm_core *core, const update_input *input, const quire_outputs *made)
{
    output_lists lists = {.by_client = PyDict_New()};
    memset(core->num_drafted, 0, core->num_spec_tokens * sizeof(*core->num_drafted));
    for (uint32_t i = 0; lists.by_client != NULL && i < made->num_outputs; i++) {
        fetch_slots(core, made, i);
        if (add_output(core, input, &made->outputs[i], &lists) < 0)
            Py_CLEAR(lists.by_client);
    }
    return lists.by_client;
}

static PyObject *make_u64(const void *numbers, uint32_t i)
{
    return PyLong_FromUnsignedLongLong(((const uint64_t *)numbers)[i]);
}

static PyObject *spec_stats(const vllm_core *core, const quire_spec_stats *stats)
{
    if (stats->num_drafts == 0)
        Py_RETURN_NONE;
    PyObject *accepted = py_list_of(core->num_spec_tokens, make_u64, stats->accepted_per_pos);
    if (accepted == NULL)
        return NULL;
    if (!vllm_is_0_32(core))
        return Py_BuildValue("(KKKN)", stats->num_drafts, stats->num_draft_tokens,
                             stats->num_accepted_tokens, accepted);
    PyObject *drafted = py_list_of(core->num_spec_tokens, make_u64, core->num_drafted);
    if (drafted == NULL) {
        Py_DECREF(accepted);
        return NULL;
    }
    return Py_BuildValue("(KKKNN)", stats->num_drafts, stats->num_draft_tokens,
                         stats->num_accepted_tokens, accepted, drafted);
}

static PyObject *stats_tuple(const vllm_core *core, const quire_outputs *made)
{
    if (made->stats == NULL)
        Py_RETURN_NONE;
    const quire_sched_stats *s = made->stats;
    return Py_BuildValue("(IIIdNNN)", s->num_running, s->num_waiting, s->num_skipped,
                         s->kv_cache_usage, vllm_prefix_stats(&s->prefix),
                         spec_stats(core, &s->spec), vllm_prefix_stats(&s->connector_prefix));
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
    quire_req *reqs; /* sent, then received */
    quire_block *blocks;
    uint32_t num_sent;
    uint32_t num_received;
    uint32_t num_blocks;
} update_transfers;

static int transfers_read(PyObject *sent, PyObject *received, PyObject *blocks,
                          update_transfers *made)
{
    made->num_sent = (uint32_t)PyList_Size(sent);
    made->num_received = (uint32_t)PyList_Size(received);
    made->num_blocks = (uint32_t)PyList_Size(blocks);
    uint32_t num_reqs = made->num_sent + made->num_received;
    made->reqs = PyMem_Calloc((size_t)num_reqs + 1, sizeof(*made->reqs));
    made->blocks = PyMem_Calloc((size_t)made->num_blocks + 1, sizeof(*made->blocks));
    if (made->reqs == NULL || made->blocks == NULL)
        return PY_REFUSE_MEMORY();
    for (uint32_t i = 0; i < num_reqs; i++) {
        PyObject *number = i < made->num_sent
                               ? PyList_GetItem(sent, (Py_ssize_t)i)
                               : PyList_GetItem(received, (Py_ssize_t)(i - made->num_sent));
        made->reqs[i] = PyLong_AsUnsignedLongLong(number);
    }
    for (uint32_t i = 0; i < made->num_blocks; i++)
        made->blocks[i] = (quire_block)PyLong_AsUnsignedLong(PyList_GetItem(blocks, (Py_ssize_t)i));
    return PyErr_Occurred() ? -1 : 0;
}

static void transfers_tell(const update_transfers *made, quire_model_output *model)
{
    model->finished_sending = made->reqs;
    model->num_finished_sending = made->num_sent;
    model->finished_recving = made->reqs + made->num_sent;
    model->num_finished_recving = made->num_received;
    model->invalid_blocks = made->blocks;
    model->num_invalid_blocks = made->num_blocks;
}

static int transfers_end(vllm_core *core, const update_transfers *made)
{
    for (uint32_t i = 0; i < made->num_sent + made->num_received; i++) {
        if (vllm_slot_end_kept(core, made->reqs[i]) < 0)
            return -1;
    }
    return 0;
}

/* update(scheduler_output, model_runner_output, sent, received, invalid blocks):
 * ({client: [EngineCoreOutput]}, stats or None) */
PyObject *vllm_core_update(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    PyObject *output;
    PyObject *computed;
    PyObject *sent;
    PyObject *received;
    PyObject *blocks;
    if (!PyArg_ParseTuple(args, "OOO!O!O!", &output, &computed, &PyList_Type, &sent, &PyList_Type,
                          &received, &PyList_Type, &blocks))
        return NULL;
    update_transfers transfers = {0};
    uint64_t step;
    update_input input = {0};
    quire_model_output model = QUIRE_MODEL_OUTPUT_INIT;
    const quire_outputs *made = NULL;
    PyObject *answer = NULL;
    if (step_number(core, output, &step) == 0 && input_read(core, output, computed, &input) == 0 &&
        read_rows(core, &input, &model) == 0 &&
        transfers_read(sent, received, blocks, &transfers) == 0) {
        transfers_tell(&transfers, &model);
        made = take_output(core, step, &model);
    }
    PyObject *by_client = PyErr_Occurred() ? NULL : add_outputs(core, &input, made);
    if (by_client != NULL && transfers_end(core, &transfers) < 0)
        Py_CLEAR(by_client);
    PyMem_Free(transfers.reqs);
    PyMem_Free(transfers.blocks);
    if (made != NULL && by_client == NULL)
        core->is_closed = 1; /* the tokens are taken, and nobody will hear of them */
    PyObject *stats = by_client == NULL ? NULL : stats_tuple(core, made);
    if (stats != NULL)
        answer = Py_BuildValue("(OO)", by_client, stats);
    Py_XDECREF(by_client);
    Py_XDECREF(stats);
    vllm_clear_all(&input, sizeof input);
    return answer;
}

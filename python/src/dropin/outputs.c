/* outputs.c - what an update made, as vLLM's EngineCoreOutputs and stats.
 *
 *      quire_output ──► EngineCoreOutput      tokens, and what few outputs have: why it ended,
 *                                             stats of its prefill, log probabilities, events
 */
#include "update.h"

enum { FETCH_AHEAD = 4 };

/* Outputs of requests that something else than their output has ended; they are the last ones. */
static int is_ending(const quire_output *made)
{
    return made->finish_reason == QUIRE_FINISH_ERROR && made->num_new_tokens == 0;
}

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
                               uint32_t num_created)
{
    uint32_t cached = made->num_local_cached + made->num_external_cached;
    if (PyObject_SetAttrString(slot->request, "prefill_stats", Py_None) < 0)
        return NULL;
    if (vllm_is_0_32(core))
        return PyObject_CallFunction(core->types.prefill_stats, "IIIIII", made->num_prompt_tokens,
                                     made->num_prompt_tokens - cached, cached,
                                     made->num_local_cached, made->num_external_cached,
                                     num_created);
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
    int goes_on;          /* it has stopped, and takes its next turn */
    uint32_t num_created; /* tokens that it brought into the prefix cache, with the first output */
    PyObject *aux;        /* auxiliary output, NULL: none */
} output_notes;

PyObject *vllm_slot_take_aux(const vllm_core *core, vllm_slot *slot)
{
    PyObject *taken = slot->aux;
    slot->aux = NULL;
    return taken != NULL ? taken
                         : PyObject_CallFunctionObjArgs(core->types.aux_taken, slot->request, NULL);
}

/* What the workers give besides tokens; not where something else ends the request. */
static int take_aux(const vllm_core *core, vllm_slot *slot, const quire_output *made,
                    output_notes *notes)
{
    if (core->types.aux_taken == NULL || is_ending(made))
        return 0;
    notes->aux = vllm_slot_take_aux(core, slot);
    return notes->aux == NULL ? -1 : 0;
}

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

/* Of an output that ends its request; another one may follow that says that it failed. A session
 * that went on, and has ended since, had no parameters yet. */
static int set_params(vllm_core *core, PyObject *output, const vllm_slot *slot,
                      const quire_output *made, int goes_on)
{
    if (goes_on || (vllm_is_0_32(core) && made->finish_reason == QUIRE_FINISH_NONE))
        return 0;
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
    if (is_ending(made))
        return 0;
    if ((is_stopped || slot->has_stop_reason) && set_stop_reason(output, slot, made) < 0)
        return -1;
    if (made->has_prefill_stats &&
        set_and_drop(output, "prefill_stats", prefill_stats(core, slot, made, notes.num_created)) <
            0)
        return -1;
    if (set_params(core, output, slot, made, notes.goes_on) < 0)
        return -1;
    if (input->pooled != NULL &&
        PyObject_SetAttrString(output, "pooling_output", PyList_GetItem(input->pooled, slot->row)) <
            0)
        return -1;
    if (notes.aux != NULL && PyObject_SetAttrString(output, "routed_experts", notes.aux) < 0)
        return -1;
    if (slot->num_nans > 0 &&
        set_and_drop(output, "num_nans_in_logits", PyLong_FromUnsignedLong(slot->num_nans)) < 0)
        return -1;
    if (is_stopped && core->types.observed != NULL &&
        set_and_drop(output, "spec_decode_metrics",
                     PyObject_GetAttrString(slot->request, "spec_decode_metrics")) < 0)
        return -1;
    if (input->masks != NULL && made->num_new_tokens > 0 &&
        set_and_drop(output, "new_sampling_mask",
                     PyObject_CallMethod(input->masks, "slice_request", "nI", slot->row,
                                         made->num_new_tokens)) < 0)
        return -1;
    return set_logprobs(input, output, slot, made, notes.wants_logprobs);
}

/* Stats of the drafts of a request whose tokens count. */
static int observe(const vllm_core *core, const vllm_slot *slot, const quire_output *made)
{
    if (core->types.observed == NULL || !slot->has_drafted || made->num_new_tokens == 0)
        return 0;
    PyObject *answer = PyObject_CallFunction(core->types.observed, "OII", slot->request,
                                             slot->num_drafted, slot->num_accepted);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
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

/* Whether a request with output i has such an output besides. */
static int is_ended_later(const quire_outputs *all, uint32_t i)
{
    quire_req req = all->outputs[i].req;
    uint32_t last = all->num_outputs;
    while (last-- > i + 1 && is_ending(&all->outputs[last])) {
        if (all->outputs[last].req == req)
            return 1;
    }
    return 0;
}

/* Whether a session has an input that it takes when it stops. */
static int has_input(const vllm_slot *slot)
{
    PyObject *queue = PyObject_GetAttrString(slot->request, "streaming_queue");
    int has_some = queue == NULL ? -1 : PyObject_IsTrue(queue);
    Py_XDECREF(queue);
    return has_some;
}

int vllm_slot_turn(vllm_core *core, vllm_slot *slot, uint32_t num_prompt)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(core->types.turn, slot->request, NULL);
    int wants_logprobs = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (wants_logprobs < 0)
        return -1;
    slot->wants_logprobs = (uint8_t)wants_logprobs;
    slot->num_prompt = num_prompt;
    slot->has_events = (uint8_t)core->log_stats;
    return 0;
}

/* A session that stopped and goes on: its Request takes the next input, if that is there. 1: it
 * goes on, 0: it has ended. ends_later: it went on, and has ended since. */
static int session_turn(vllm_core *core, vllm_slot *slot, int ends_later)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    int is_known = quire_sched_get_req_info(core->sched, slot->req, &info) == QUIRE_OK;
    if (!ends_later && (!is_known || info.status >= QUIRE_REQ_FINISHED_STOPPED))
        return 0;
    if (slot->has_turned)
        return 1;
    int takes = ends_later ? has_input(slot) : info.status != QUIRE_REQ_WAITING_FOR_STREAMING;
    if (takes <= 0)
        return takes < 0 ? -1 : 1;
    return vllm_slot_turn(core, slot, is_known ? info.num_prompt_tokens : slot->num_prompt) < 0 ? -1
                                                                                                : 1;
}

static int add_output(vllm_core *core, const update_input *input, const quire_outputs *all,
                      uint32_t i, output_lists *lists)
{
    const quire_output *made = &all->outputs[i];
    vllm_slot *slot = vllm_slot_of(core, made->req);
    PyObject *tokens = observe(core, slot, made) < 0 ? NULL : take_tokens(slot, made);
    int stopped = made->finish_reason != QUIRE_FINISH_NONE;
    output_notes notes = {.wants_logprobs = slot->wanted_logprobs};
    if (made->has_prefill_stats && all->num_cache_creation_tokens != NULL)
        notes.num_created = all->num_cache_creation_tokens[i];
    if (tokens != NULL && take_aux(core, slot, made, &notes) < 0)
        Py_CLEAR(tokens);
    if (tokens != NULL && stopped)
        notes.goes_on = session_turn(core, slot, is_ended_later(all, i));
    if (notes.goes_on < 0)
        Py_CLEAR(tokens);
    PyObject *given[] = {slot->id, tokens};
    PyObject *output =
        tokens == NULL ? NULL : PyObject_Vectorcall(core->types.engine_core_output, given, 2, NULL);
    Py_XDECREF(tokens);
    if (!vllm_is_0_32(core)) /* which looks at the next turn's wishes */
        notes.wants_logprobs = slot->wants_logprobs;
    int failed = output == NULL || set_rare(core, input, output, slot, made, notes) < 0 ||
                 client_append(lists, made->client_index, output) < 0;
    Py_XDECREF(output);
    Py_XDECREF(notes.aux);
    if (!failed && stopped && !notes.goes_on)
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

PyObject *vllm_add_outputs(vllm_core *core, const update_input *input, const quire_outputs *made)
{
    output_lists lists = {.by_client = PyDict_New()};
    for (uint32_t i = 0; lists.by_client != NULL && i < made->num_outputs; i++) {
        fetch_slots(core, made, i);
        if (add_output(core, input, made, i, &lists) < 0)
            Py_CLEAR(lists.by_client);
    }
    return lists.by_client;
}

static PyObject *make_u64(const void *numbers, uint32_t i)
{
    return PyLong_FromUnsignedLongLong(((const uint64_t *)numbers)[i]);
}

static PyObject *spec_stats(const vllm_core *core, const quire_sched_stats *all)
{
    const quire_spec_stats *stats = &all->spec;
    if (stats->num_drafts == 0)
        Py_RETURN_NONE;
    PyObject *accepted = py_list_of(core->num_spec_tokens, make_u64, stats->accepted_per_pos);
    if (accepted == NULL)
        return NULL;
    if (!vllm_is_0_32(core))
        return Py_BuildValue("(KKKN)", stats->num_drafts, stats->num_draft_tokens,
                             stats->num_accepted_tokens, accepted);
    PyObject *drafted = py_list_of(core->num_spec_tokens, make_u64, all->drafts_per_pos);
    if (drafted == NULL) {
        Py_DECREF(accepted);
        return NULL;
    }
    return Py_BuildValue("(KKKNN)", stats->num_drafts, stats->num_draft_tokens,
                         stats->num_accepted_tokens, accepted, drafted);
}

PyObject *vllm_stats(const vllm_core *core, const quire_sched_stats *s)
{
    if (s == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("(IIIdNNN)", s->num_running, s->num_waiting, s->num_skipped,
                         s->kv_cache_usage, vllm_prefix_stats(&s->prefix), spec_stats(core, s),
                         vllm_prefix_stats(&s->connector_prefix));
}

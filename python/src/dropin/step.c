/* step.c - a step as vLLM's SchedulerOutput.
 *
 *      quire_step (arrays) ──► num_scheduled_tokens, scheduled_new_reqs, scheduled_cached_reqs, ...
 *
 * Numbers and ids cross once: a decoding request costs one dict entry, two numbers and two
 * references. The number of the step is kept on the SchedulerOutput as _quire_step, for update.
 */
#include "vllm.h"

/* What a SchedulerOutput is made of while it is filled; all owned. */
typedef struct step_parts {
    PyObject *new_reqs;
    PyObject *resumed_reqs; /* as new ones, for the V2 model runner */
    PyObject *new_token_ids;
    PyObject *req_ids;
    PyObject *resumed;
    PyObject *all_token_ids;
    PyObject *new_block_ids;
    PyObject *num_computed;
    PyObject *num_output;
    PyObject *num_scheduled;
    PyObject *drafts;
    PyObject *encoder_inputs;
    PyObject *timestamp; /* NULL: without stats, nothing is recorded */
} step_parts;

static int parts_make(step_parts *parts)
{
    *parts = (step_parts){.new_reqs = PyList_New(0),
                          .resumed_reqs = PyList_New(0),
                          .new_token_ids = PyList_New(0),
                          .req_ids = PyList_New(0),
                          .resumed = PySet_New(NULL),
                          .all_token_ids = PyDict_New(),
                          .new_block_ids = PyList_New(0),
                          .num_computed = PyList_New(0),
                          .num_output = PyList_New(0),
                          .num_scheduled = PyDict_New(),
                          .drafts = PyDict_New(),
                          .encoder_inputs = PyDict_New()};
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *make_text(const void *texts, uint32_t i)
{
    const quire_bytes *text = (const quire_bytes *)texts + i;
    return PyUnicode_FromStringAndSize(text->data, (Py_ssize_t)text->len);
}

/* A tuple of lists, one for each group; None for a running request without new blocks. */
PyObject *vllm_block_ids(const quire_block_span *spans, uint32_t num_groups, int may_be_none)
{
    uint32_t total = 0;
    for (uint32_t g = 0; g < num_groups; g++)
        total += spans[g].count;
    if (total == 0 && may_be_none)
        Py_RETURN_NONE;
    PyObject *tuple = PyTuple_New((Py_ssize_t)num_groups);
    for (uint32_t g = 0; tuple != NULL && g < num_groups; g++) {
        PyObject *list = py_list_u32(spans[g].ids, spans[g].count);
        if (list == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SetItem(tuple, (Py_ssize_t)g, list);
    }
    return tuple;
}

static int add_new_request(vllm_core *core, step_parts *parts, const quire_step *step, uint32_t i,
                           const vllm_slot *slot)
{
    PyObject *ids =
        vllm_block_ids(step->blocks + (size_t)i * core->num_groups, core->num_groups, 0);
    PyObject *data = ids == NULL
                         ? NULL
                         : PyObject_CallFunction(core->types.new_request_data, "OOI", slot->request,
                                                 ids, step->num_computed_tokens[i]);
    Py_XDECREF(ids);
    int is_new = step->kinds[i] == QUIRE_STEP_NEW;
    return vllm_list_put(is_new ? parts->new_reqs : parts->resumed_reqs, data);
}

/* Those that the step computes, without drafts: the first stage of a pipeline does not sample. */
static int add_new_tokens(step_parts *parts, const quire_step *step, uint32_t i,
                          const vllm_slot *slot)
{
    uint32_t num_drafts = step->draft_start[i + 1] - step->draft_start[i];
    Py_ssize_t first = (Py_ssize_t)step->num_computed_tokens[i];
    Py_ssize_t end = first + (Py_ssize_t)(step->num_tokens[i] - num_drafts);
    return vllm_list_put(parts->new_token_ids, PyList_GetSlice(slot->all_tokens, first, end));
}

static int add_known_request(vllm_core *core, step_parts *parts, const quire_step *step, uint32_t i,
                             const vllm_slot *slot)
{
    int is_resumed = step->kinds[i] == QUIRE_STEP_RESUMED;
    const quire_block_span *spans = step->blocks + (size_t)i * core->num_groups;
    if (PyList_Append(parts->req_ids, slot->id) < 0 ||
        vllm_list_put(parts->new_block_ids, vllm_block_ids(spans, core->num_groups, 1)) < 0 ||
        vllm_list_put(parts->num_computed, PyLong_FromUnsignedLong(step->num_computed_tokens[i])) <
            0 ||
        vllm_list_put(parts->num_output, PyLong_FromUnsignedLong(step->num_output_tokens[i])) < 0)
        return -1;
    if (is_resumed && PySet_Add(parts->resumed, slot->id) < 0)
        return -1;
    if (core->tells_tokens && add_new_tokens(parts, step, i, slot) < 0)
        return -1;
    if (step->was_in_last_step[i] || (core->is_v2 && vllm_is_0_32(core)))
        return 0;
    PyObject *tokens = PyList_GetSlice(slot->all_tokens, 0, PyList_Size(slot->all_tokens));
    return vllm_dict_put(parts->all_token_ids, slot->id, tokens);
}

static int record(vllm_core *core, step_parts *parts, vllm_slot *slot, int type)
{
    if (!core->log_stats)
        return 0;
    PyObject *answer = PyObject_CallFunction(core->types.record, "OiO", slot->request, type,
                                             parts->timestamp == NULL ? Py_None : parts->timestamp);
    if (answer == NULL)
        return -1;
    Py_XDECREF(parts->timestamp);
    parts->timestamp = answer;
    slot->has_events = 1;
    return 0;
}

static int add_to_step(vllm_core *core, step_parts *parts, const quire_step *step, uint32_t i)
{
    vllm_slot *slot = vllm_slot_of(core, step->reqs[i]);
    PyObject *count = PyLong_FromUnsignedLong(step->num_tokens[i]);
    int failed = vllm_dict_put(parts->num_scheduled, slot->id, count) < 0;
    uint32_t num_drafts = step->draft_start[i + 1] - step->draft_start[i];
    if (!failed && num_drafts > 0) {
        PyObject *drafts = py_list_tokens(step->drafts + step->draft_start[i], num_drafts);
        failed = vllm_dict_put(parts->drafts, slot->id, drafts) < 0;
    }
    uint32_t first_input = step->encoder_start[i];
    uint32_t num_inputs = step->encoder_start[i + 1] - first_input;
    if (!failed && num_inputs > 0) {
        PyObject *inputs = py_list_u32(step->encoder_inputs + first_input, num_inputs);
        failed = vllm_dict_put(parts->encoder_inputs, slot->id, inputs) < 0;
    }
    slot->num_computed = step->num_computed_tokens[i] + step->num_tokens[i];
    slot->is_prefill_chunk = slot->num_computed < slot->num_prompt + step->num_output_tokens[i];
    if (failed || (step->kinds[i] != QUIRE_STEP_RUNNING && record(core, parts, slot, 2) < 0))
        return -1;
    int is_new =
        step->kinds[i] == QUIRE_STEP_NEW || (core->is_v2 && step->kinds[i] == QUIRE_STEP_RESUMED);
    return is_new ? add_new_request(core, parts, step, i, slot)
                  : add_known_request(core, parts, step, i, slot);
}

static PyObject *preempted_ids(vllm_core *core, step_parts *parts, const quire_step *step)
{
    PyObject *set = core->preempted; /* by a reset, and noted then; they may have ended since */
    core->preempted = PySet_New(NULL);
    if (core->preempted == NULL)
        Py_CLEAR(set);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    for (uint32_t i = 0; set != NULL && i < step->num_preempted; i++) {
        vllm_slot *slot = vllm_slot_of(core, step->preempted[i]);
        if (slot == NULL || quire_sched_get_req_info(core->sched, slot->req, &info) != QUIRE_OK ||
            slot->num_preemptions == info.num_preemptions)
            continue;
        slot->num_preemptions = info.num_preemptions;
        slot->num_computed = 0;
        if (PySet_Add(set, slot->id) < 0 || vllm_slot_end_aux(core, slot) < 0 ||
            record(core, parts, slot, 3) < 0)
            Py_CLEAR(set);
    }
    return set;
}

static PyObject *make_output(vllm_core *core, step_parts *parts, const quire_step *step,
                             PyObject *preempted)
{
    PyObject *finished = core->finished;
    core->finished = PySet_New(NULL);
    PyObject *output = NULL;
    PyObject *freed = py_list_of(step->num_freed_encoder, make_text, step->freed_encoder);
    PyObject *common = py_list_u32(step->num_common_prefix_blocks, core->num_groups);
    PyObject *total = PyLong_FromUnsignedLong(step->total_tokens);
    PyObject *cached = NULL;
    Py_ssize_t num_new = PyList_Size(parts->new_reqs);
    PyList_SetSlice(parts->new_reqs, num_new, num_new, parts->resumed_reqs);
    if (!PyErr_Occurred())
        cached = PyObject_CallFunctionObjArgs(core->types.cached_request_data, parts->req_ids,
                                              parts->resumed, parts->new_token_ids,
                                              parts->all_token_ids, parts->new_block_ids,
                                              parts->num_computed, parts->num_output, NULL);
    if (cached != NULL && vllm_is_0_32(core))
        output = PyObject_CallFunctionObjArgs(
            core->types.scheduler_output, parts->new_reqs, cached, parts->num_scheduled, total,
            parts->drafts, parts->encoder_inputs, finished, freed, Py_None, preempted, NULL);
    else if (cached != NULL)
        output = PyObject_CallFunctionObjArgs(
            core->types.scheduler_output, parts->new_reqs, cached, parts->num_scheduled, total,
            parts->drafts, parts->encoder_inputs, common, finished, freed, preempted, NULL);
    Py_XDECREF(finished);
    Py_XDECREF(freed);
    Py_XDECREF(common);
    Py_XDECREF(total);
    Py_XDECREF(cached);
    return output;
}

static int set_step(vllm_core *core, PyObject *output, const quire_step *step)
{
    PyObject *number = PyLong_FromUnsignedLongLong(step->step);
    int failed =
        number == NULL || PyObject_SetAttr(output, core->names[VLLM_NAME_STEP], number) < 0;
    Py_XDECREF(number);
    if (!failed && step->blocks_to_zero.count > 0) {
        PyObject *ids = py_list_u32(step->blocks_to_zero.ids, step->blocks_to_zero.count);
        failed = ids == NULL || PyObject_SetAttrString(output, "new_block_ids_to_zero", ids) < 0;
        Py_XDECREF(ids);
    }
    return failed ? -1 : 0;
}

/* Copies of blocks that a hit ends in: vLLM's objects, in their order. */
static int set_copies(const vllm_core *core, PyObject *output, const quire_step *step)
{
    if (step->num_copies == 0)
        return 0;
    PyObject *list = PyList_New(0);
    int failed = list == NULL;
    for (uint32_t i = 0; i < step->num_copies && !failed; i++)
        failed = vllm_list_put(list,
                               PyObject_CallFunction(core->types.block_copy, "II",
                                                     step->copies[i].from, step->copies[i].to)) < 0;
    failed = failed || PyObject_SetAttrString(output, "kv_cache_block_copies", list) < 0;
    Py_XDECREF(list);
    return failed ? -1 : 0;
}

/* What 0.32 tells besides. */
static int set_more(vllm_core *core, PyObject *output, const quire_step *step)
{
    if (!vllm_is_0_32(core))
        return 0;
    int has_sync_loads = core->has_sync_loads;
    core->has_sync_loads = 0;
    if (has_sync_loads && PyObject_SetAttrString(output, "has_sync_kv_loads", Py_True) < 0)
        return -1;
    if (set_copies(core, output, step) < 0)
        return -1;
    if (core->num_spec_tokens == 0)
        return 0;
    PyObject *number = PyLong_FromUnsignedLong(step->num_spec_tokens);
    int failed =
        number == NULL || PyObject_SetAttrString(output, "num_spec_tokens_to_schedule", number) < 0;
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

PyObject *vllm_make_output(vllm_core *core, const quire_step *step)
{
    step_parts parts;
    PyObject *preempted = NULL;
    PyObject *output = NULL;
    int failed = parts_make(&parts) < 0;
    if (!failed)
        preempted = preempted_ids(core, &parts, step);
    failed = failed || preempted == NULL;
    for (uint32_t i = 0; !failed && i < step->num_reqs; i++)
        failed = add_to_step(core, &parts, step, i) < 0;
    if (!failed)
        output = make_output(core, &parts, step, preempted);
    if (output != NULL && (set_step(core, output, step) < 0 || set_more(core, output, step) < 0))
        Py_CLEAR(output);
    Py_XDECREF(preempted);
    vllm_clear_all(&parts, sizeof parts);
    return output;
}

/* has_structured_output_requests and the like are known when the step has been noted. */
static int set_grammar(PyObject *output, const quire_step *step)
{
    if (step->has_grammar_reqs &&
        PyObject_SetAttrString(output, "has_structured_output_requests", Py_True) < 0)
        return -1;
    if (step->has_pending_grammar_tokens &&
        PyObject_SetAttrString(output, "pending_structured_output_tokens", Py_True) < 0)
        return -1;
    return 0;
}

/* vLLM keeps nothing of a step, and whoever drops an output says so to nobody: when all places are
 * taken the oldest step will not be updated any more. */
static int make_place(vllm_core *core)
{
    if (core->num_flight < core->max_flight)
        return 0;
    uint64_t oldest = core->flight[0];
    int status = quire_sched_forget_step(core->sched, oldest);
    vllm_flight_end(core, oldest);
    return status == QUIRE_OK ? 0 : vllm_refuse(status, "schedule");
}

/* schedule(whether prompts wait), in 0.32; schedule() in 0.20 */
PyObject *vllm_core_schedule(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    const quire_step *step;
    int throttles = 0;
    if (!PyArg_ParseTuple(args, "|p", &throttles) || make_place(core) < 0)
        return NULL;
    int status = QUIRE_OK;
    if (throttles != core->is_throttled)
        status = quire_sched_set_throttle(core->sched, (uint32_t)throttles);
    if (status == QUIRE_OK)
        core->is_throttled = throttles;
    if (status == QUIRE_OK)
        status = quire_sched_schedule(core->sched, &step);
    if (status == QUIRE_OK)
        core->flight[core->num_flight++] = step->step;
    PyObject *output = core->output; /* made for a connector, inside */
    core->output = NULL;
    if (vllm_raise_kept(core) < 0) {
        Py_XDECREF(output);
        return NULL;
    }
    if (status != QUIRE_OK)
        return vllm_raise(status, "schedule");
    if (output == NULL)
        output = vllm_make_output(core, step);
    if (output != NULL && set_grammar(output, step) < 0)
        Py_CLEAR(output);
    return output;
}

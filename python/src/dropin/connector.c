/* connector.c - a KV connector of vLLM's, asked by the scheduler.
 *
 *      quire_sched_schedule ──► match ──► alloc ──► meta      quire_sched_update ──► finished
 *                               (functions of quire/vllm/connector.py, around the connector)
 *
 * Meta data are built at the end of schedule, from a SchedulerOutput that is filled there: requests
 * must still show the tokens that were computed before the step. Exceptions: see calls.c.
 */
#include "vllm.h"

static int connector_match(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                           uint32_t *is_async)
{
    vllm_core *core = user;
    *num_external = *is_async = 0;
    if (core->error[0] != NULL)
        return QUIRE_OK;
    PyObject *answer =
        PyObject_CallFunction(core->types.match, "OII", vllm_slot_of(core, req)->request, num_local,
                              vllm_asked_part(core));
    PyObject *count;
    int later = 0;
    int status = QUIRE_OK;
    if (answer != NULL && PyArg_ParseTuple(answer, "Op", &count, &later)) {
        if (count == Py_None)
            status = QUIRE_RETRY;
        else
            *num_external = (uint32_t)PyLong_AsUnsignedLong(count);
        *is_async = (uint32_t)later;
    }
    Py_XDECREF(answer);
    core->is_async_load = later;
    if (PyErr_Occurred() || vllm_slot_cut(core, vllm_slot_of(core, req)) < 0) {
        vllm_keep_error(core);
        *num_external = *is_async = 0;
    }
    return status;
}

/* A function of a request and a number, whose answer does not matter. */
static void tell(vllm_core *core, PyObject *function, quire_req req, uint32_t number)
{
    if (core->error[0] == NULL)
        vllm_drop_or_keep(
            core, PyObject_CallFunction(function, "OI", vllm_slot_of(core, req)->request, number));
}

static void connector_alloc(void *user, quire_req req, const quire_block_span *spans,
                            uint32_t num_external)
{
    (void)spans; /* the Python function looks them up, as KVCacheBlocks */
    vllm_core *core = user;
    core->has_sync_loads |= num_external > 0 && !core->is_async_load;
    tell(core, core->types.alloc, req, num_external);
}

/* Both connectors look at the same SchedulerOutput. more: a further argument, or NULL. */
static void *give_output(vllm_core *core, const quire_step *step, PyObject *function,
                         PyObject *more)
{
    if (core->error[0] != NULL)
        return NULL;
    if (core->output == NULL)
        core->output = vllm_make_output(core, step);
    PyObject *answer = core->output == NULL
                           ? NULL
                           : PyObject_CallFunctionObjArgs(function, core->output, more, NULL);
    vllm_drop_or_keep(core, answer);
    return NULL; /* the meta data stay Python's */
}

/* A state: group, block, tokens. */
static PyObject *make_state(const void *of, uint32_t i)
{
    const quire_state_offer *state = (const quire_state_offer *)of + i;
    return Py_BuildValue("(III)", state->group, state->block, state->num_tokens);
}

static int add_state(PyObject *states, PyObject *id, PyObject *state)
{
    PyObject *list = PyDict_GetItemWithError(states, id);
    if (list == NULL && !PyErr_Occurred()) {
        list = PyList_New(0);
        if (vllm_dict_put(states, id, list) < 0) /* which has it then */
            list = NULL;
    }
    if (list == NULL)
        Py_CLEAR(state);
    return vllm_list_put(list, state);
}

/* A dict of lists, by request, of the states that the step offers. */
static PyObject *make_states(vllm_core *core, const quire_step *step)
{
    PyObject *states = PyDict_New();
    for (uint32_t i = 0; i < step->num_states && states != NULL; i++) {
        const vllm_slot *slot = vllm_slot_of(core, step->states[i].req);
        PyObject *state = slot == NULL ? NULL : make_state(step->states, i);
        if (slot != NULL && add_state(states, slot->id, state) < 0)
            Py_CLEAR(states);
    }
    return states;
}

static void *connector_meta(void *user, const quire_step *step)
{
    vllm_core *core = user;
    if (!vllm_is_0_32(core))
        return give_output(core, step, core->types.meta, NULL);
    PyObject *states = core->error[0] == NULL ? make_states(core, step) : NULL;
    if (states == NULL && core->error[0] == NULL)
        vllm_keep_error(core);
    give_output(core, step, core->types.meta, states);
    Py_XDECREF(states);
    return NULL;
}

/* What request_finished answers: whether blocks are kept, and parameters for the last output. */
static int take_ending(vllm_core *core, PyObject *answer, PyObject **kept)
{
    int keeps = 0;
    PyObject *params = NULL;
    if (answer != NULL && !PyTuple_Check(answer))
        PyErr_Format(PyExc_TypeError,
                     "request_finished must return (whether blocks are kept, parameters or None), "
                     "not %R",
                     answer);
    else if (answer != NULL && PyArg_ParseTuple(answer, "pO", &keeps, &params) && params != Py_None)
        Py_XSETREF(*kept, Py_NewRef(params));
    Py_XDECREF(answer);
    if (PyErr_Occurred())
        vllm_keep_error(core);
    return keeps;
}

static int connector_finished(void *user, quire_req req, const quire_block_span *spans)
{
    vllm_core *core = user;
    vllm_slot *slot = vllm_slot_of(core, req);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (core->error[0] != NULL)
        return 0;
    if (quire_sched_get_req_info(core->sched, req, &info) == QUIRE_OK)
        slot->told_status = (uint8_t)info.status;
    PyObject *blocks =
        vllm_slot_sync(core, slot) < 0 ? NULL : vllm_block_ids(spans, core->num_groups, 0);
    PyObject *answer = blocks == NULL ? NULL
                                      : PyObject_CallFunctionObjArgs(core->types.finished,
                                                                     slot->request, blocks, NULL);
    Py_XDECREF(blocks);
    return take_ending(core, answer, &slot->kv_params);
}

static int connector_states_finished(void *user, quire_req req, const quire_block_span *spans,
                                     const quire_state_offer *states, uint32_t num_states)
{
    vllm_core *core = user;
    vllm_slot *slot = vllm_slot_of(core, req);
    if (core->error[0] != NULL)
        return 0;
    PyObject *blocks =
        vllm_slot_sync(core, slot) < 0 ? NULL : vllm_block_ids(spans, core->num_groups, 0);
    PyObject *list = blocks == NULL ? NULL : py_list_of(num_states, make_state, states);
    PyObject *answer = list == NULL
                           ? NULL
                           : PyObject_CallFunctionObjArgs(core->types.states_finished,
                                                          slot->request, blocks, list, NULL);
    Py_XDECREF(blocks);
    Py_XDECREF(list);
    return vllm_truth_or_keep(core, answer, 0);
}

static void connector_told(void *user)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return;
    PyObject *received = PyObject_CallFunctionObjArgs(core->types.told, NULL);
    if (received != NULL && received != Py_None && vllm_take_received(core, received) < 0)
        Py_CLEAR(received);
    vllm_drop_or_keep(core, received);
}

static int connector_reset(void *user)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return 1;
    PyObject *answer = PyObject_CallFunctionObjArgs(core->types.reset, NULL);
    int failed = answer == NULL || answer == Py_False;
    vllm_drop_or_keep(core, answer);
    return failed;
}

static int connector_pending_frees(void *user)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return 0;
    return vllm_truth_or_keep(core, PyObject_CallFunctionObjArgs(core->types.pending_frees, NULL),
                              0);
}

quire_connector vllm_connector(vllm_core *core)
{
    int is_asked = core->types.pending_frees != NULL;
    int tells_states = core->types.states_finished != NULL;
    return (quire_connector){.size = sizeof(quire_connector),
                             .user = core,
                             .get_num_new_matched_tokens = connector_match,
                             .update_state_after_alloc = connector_alloc,
                             .build_meta = connector_meta,
                             .request_finished = connector_finished,
                             .reset_cache = connector_reset,
                             .update_output = connector_told,
                             .requires_kv_delivery = (int)core->requires_kv_delivery,
                             .is_kv_consumer = (int)core->defers_frees,
                             .has_pending_block_frees = is_asked ? connector_pending_frees : NULL,
                             .supports_divergent_local_hybrid_hits = (int)core->diverges,
                             .takes_states = vllm_is_0_32(core),
                             .states_finished = tells_states ? connector_states_finished : NULL};
}

/* ---- encoder connectors -------------------------------------------------- */

static int images_has_item(void *user, quire_req req, uint32_t input)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return 0;
    PyObject *answer =
        PyObject_CallFunction(core->types.has_image, "OI", vllm_slot_of(core, req)->request, input);
    return vllm_truth_or_keep(core, answer, 0);
}

static void images_alloc(void *user, quire_req req, uint32_t input)
{
    tell(user, ((vllm_core *)user)->types.image_alloc, req, input);
}

static void *images_meta(void *user, const quire_step *step)
{
    return give_output(user, step, ((vllm_core *)user)->types.image_meta, NULL);
}

static int images_finished(void *user, quire_req req)
{
    vllm_core *core = user;
    vllm_slot *slot = vllm_slot_of(core, req);
    if (core->error[0] != NULL)
        return 0;
    PyObject *answer = NULL;
    if (vllm_slot_sync(core, slot) == 0)
        answer = PyObject_CallFunctionObjArgs(core->types.image_finished, slot->request, NULL);
    return take_ending(core, answer, &slot->ec_params);
}

static int images_ready(void *user, quire_req req, uint32_t num_computed)
{
    vllm_core *core = user;
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    long long computed = num_computed;
    if (core->error[0] != NULL)
        return 1;
    /* After a load that failed vLLM tells a number below 0 */
    if (quire_sched_get_req_info(core->sched, req, &info) == QUIRE_OK &&
        info.status == QUIRE_REQ_RUNNING)
        computed = (long long)info.num_computed_tokens - (long long)info.num_output_placeholders;
    PyObject *answer = PyObject_CallFunction(core->types.image_ready, "OL",
                                             vllm_slot_of(core, req)->request, computed);
    return vllm_truth_or_keep(core, answer, 1);
}

static void images_freed(void *user, quire_req req, uint32_t input)
{
    tell(user, ((vllm_core *)user)->types.image_freed, req, input);
}

/* Numbers of requests that vLLM's connector has lost, in a list. */
static uint32_t images_lost(void *user, quire_req *reqs, uint32_t capacity)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return 0;
    PyObject *answer = PyObject_CallFunctionObjArgs(core->types.image_lost, NULL);
    Py_ssize_t count = answer == NULL ? -1 : PyList_Size(answer);
    uint32_t n = 0;
    for (; (Py_ssize_t)n < count && n < capacity; n++)
        reqs[n] = PyLong_AsUnsignedLongLong(PyList_GetItem(answer, (Py_ssize_t)n));
    Py_XDECREF(answer);
    if (!PyErr_Occurred())
        return n;
    vllm_keep_error(core);
    return 0;
}

quire_encoder_connector vllm_encoder_connector(vllm_core *core)
{
    const vllm_types *types = &core->types;
    return (quire_encoder_connector){
        .size = sizeof(quire_encoder_connector),
        .user = core,
        .has_item = images_has_item,
        .update_state_after_alloc = images_alloc,
        .build_meta = images_meta,
        .request_finished = types->image_finished == NULL ? NULL : images_finished,
        .ensure_cache_available = types->image_ready == NULL ? NULL : images_ready,
        .update_state_after_free = types->image_freed == NULL ? NULL : images_freed,
        .take_unavailable = types->image_lost == NULL ? NULL : images_lost};
}

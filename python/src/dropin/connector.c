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
        PyObject_CallFunction(core->types.match, "OI", vllm_slot_of(core, req)->request, num_local);
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

/* Both connectors look at the same SchedulerOutput. */
static void *give_output(vllm_core *core, const quire_step *step, PyObject *function)
{
    if (core->error[0] != NULL)
        return NULL;
    if (core->output == NULL)
        core->output = vllm_make_output(core, step);
    PyObject *answer =
        core->output == NULL ? NULL : PyObject_CallFunctionObjArgs(function, core->output, NULL);
    vllm_drop_or_keep(core, answer);
    return NULL; /* the meta data stay Python's */
}

static void *connector_meta(void *user, const quire_step *step)
{
    return give_output(user, step, ((vllm_core *)user)->types.meta);
}

static int connector_finished(void *user, quire_req req, const quire_block_span *spans)
{
    vllm_core *core = user;
    vllm_slot *slot = vllm_slot_of(core, req);
    if (core->error[0] != NULL)
        return 0;
    PyObject *blocks =
        vllm_slot_sync(core, slot) < 0 ? NULL : vllm_block_ids(spans, core->num_groups, 0);
    PyObject *answer = blocks == NULL ? NULL
                                      : PyObject_CallFunctionObjArgs(core->types.finished,
                                                                     slot->request, blocks, NULL);
    int keeps = 0;
    PyObject *params = NULL;
    PyObject *image_params = Py_None;
    if (answer != NULL && !PyTuple_Check(answer))
        PyErr_Format(PyExc_TypeError,
                     "request_finished must return (whether blocks are kept, parameters or None), "
                     "not %R",
                     answer);
    else if (answer != NULL && PyArg_ParseTuple(answer, "pO|O", &keeps, &params, &image_params)) {
        if (params != Py_None)
            Py_XSETREF(slot->kv_params, Py_NewRef(params));
        if (image_params != Py_None)
            Py_XSETREF(slot->ec_params, Py_NewRef(image_params));
    }
    Py_XDECREF(blocks);
    Py_XDECREF(answer);
    if (PyErr_Occurred())
        vllm_keep_error(core);
    return keeps;
}

static void connector_told(void *user)
{
    vllm_core *core = user;
    if (core->error[0] == NULL)
        vllm_drop_or_keep(core, PyObject_CallFunctionObjArgs(core->types.told, NULL));
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

quire_connector vllm_connector(vllm_core *core)
{
    return (quire_connector){.size = sizeof(quire_connector),
                             .user = core,
                             .get_num_new_matched_tokens = connector_match,
                             .update_state_after_alloc = connector_alloc,
                             .build_meta = connector_meta,
                             .request_finished = connector_finished,
                             .reset_cache = connector_reset,
                             .update_output = connector_told,
                             .requires_kv_delivery = (int)core->requires_kv_delivery};
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
    return give_output(user, step, ((vllm_core *)user)->types.image_meta);
}

quire_encoder_connector vllm_encoder_connector(vllm_core *core)
{
    return (quire_encoder_connector){.size = sizeof(quire_encoder_connector),
                                     .user = core,
                                     .has_item = images_has_item,
                                     .update_state_after_alloc = images_alloc,
                                     .build_meta = images_meta};
}

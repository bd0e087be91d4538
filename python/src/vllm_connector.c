/* vllm_connector.c - a KV connector of vLLM's, asked by the scheduler.
 *
 *      quire_sched_schedule ──► match ──► alloc ──► meta      quire_sched_update ──► finished
 *                               (functions of quire/vllm/connector.py, around the connector)
 *
 * Meta data are built at the end of schedule, from a SchedulerOutput that is filled there: requests
 * must still show the tokens that were computed before the step. Exceptions: see vllm_calls.c.
 */
#include "vllm.h"

/* A number of blocks as a tuple of lists of (id, users, hash or None). */
static PyObject *block_tuple(quire_pool *pool, quire_block block)
{
    quire_block_info info = {0};
    if (quire_pool_block_info(pool, block, &info) != QUIRE_OK || info.hash.data == NULL)
        return Py_BuildValue("(IIO)", block, info.ref_cnt, Py_None);
    return Py_BuildValue("(IIy#I)", block, info.ref_cnt, (const char *)info.hash.data,
                         (Py_ssize_t)info.hash.len, info.group_id);
}

static PyObject *span_list(vllm_core *core, const quire_block_span *span, int with_info)
{
    quire_pool *pool = quire_cache_pool(quire_sched_cache(core->sched));
    PyObject *list = PyList_New((Py_ssize_t)span->count);
    for (uint32_t i = 0; list != NULL && i < span->count; i++) {
        PyObject *item =
            with_info ? block_tuple(pool, span->ids[i]) : PyLong_FromUnsignedLong(span->ids[i]);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *span_tuple(vllm_core *core, const quire_block_span *spans, int with_info)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)core->num_groups);
    for (uint32_t g = 0; tuple != NULL && g < core->num_groups; g++) {
        PyObject *list = span_list(core, &spans[g], with_info);
        if (list == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SetItem(tuple, (Py_ssize_t)g, list);
    }
    return tuple;
}

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
    if (PyErr_Occurred()) {
        vllm_keep_error(core);
        *num_external = *is_async = 0;
    }
    return status;
}

static void connector_alloc(void *user, quire_req req, const quire_block_span *spans,
                            uint32_t num_external)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return;
    PyObject *blocks = span_tuple(core, spans, 1);
    PyObject *answer = blocks == NULL ? NULL
                                      : PyObject_CallFunction(core->types.alloc, "OOI",
                                                              vllm_slot_of(core, req)->request,
                                                              blocks, num_external);
    if (answer == NULL)
        vllm_keep_error(core);
    Py_XDECREF(blocks);
    Py_XDECREF(answer);
}

static void *connector_meta(void *user, const quire_step *step)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return NULL;
    core->output = vllm_make_output(core, step);
    PyObject *answer = core->output == NULL
                           ? NULL
                           : PyObject_CallFunctionObjArgs(core->types.meta, core->output, NULL);
    if (answer == NULL)
        vllm_keep_error(core);
    Py_XDECREF(answer);
    return NULL;
}

static int connector_finished(void *user, quire_req req, const quire_block_span *spans)
{
    vllm_core *core = user;
    vllm_slot *slot = vllm_slot_of(core, req);
    if (core->error[0] != NULL)
        return 0;
    PyObject *blocks = vllm_slot_sync(core, slot) < 0 ? NULL : span_tuple(core, spans, 0);
    PyObject *answer = blocks == NULL ? NULL
                                      : PyObject_CallFunctionObjArgs(core->types.finished,
                                                                     slot->request, blocks, NULL);
    int keeps = 0;
    PyObject *params = NULL;
    if (answer != NULL && PyArg_ParseTuple(answer, "pO", &keeps, &params) && params != Py_None) {
        Py_INCREF(params);
        Py_XDECREF(slot->kv_params);
        slot->kv_params = params;
    }
    Py_XDECREF(blocks);
    Py_XDECREF(answer);
    if (PyErr_Occurred())
        vllm_keep_error(core);
    return keeps;
}

static int connector_reset(void *user)
{
    vllm_core *core = user;
    if (core->error[0] != NULL)
        return 1;
    PyObject *answer = PyObject_CallFunctionObjArgs(core->types.reset, NULL);
    int failed = answer == NULL ? -1 : answer == Py_False;
    Py_XDECREF(answer);
    if (failed < 0)
        vllm_keep_error(core);
    return failed != 0;
}

quire_connector vllm_connector(vllm_core *core)
{
    return (quire_connector){.user = core,
                             .get_num_new_matched_tokens = connector_match,
                             .update_state_after_alloc = connector_alloc,
                             .build_meta = connector_meta,
                             .request_finished = connector_finished,
                             .reset_cache = connector_reset};
}

/* look.c - parts of a scheduler of vLLM 0.32 that its tests look at, and one that they call.
 *
 *      scheduler.deferred_frees, .sched_step_seq, .processed_step_seq      fences
 *      scheduler.kv_cache_manager.prefix_cache_stats, .connector_...       peek_stats
 *      scheduler.prefill_capacity_bound, .encoder_cache_mismatch_reqs      peek_step
 *      scheduler._preempt_request(request, ...)                            preempt
 */
#include "shim.h"

#include "sched/sched.h"

/* fences(core): steps with tokens that were scheduled, and updated; the fences of rows that wait */
PyObject *shim_fences(vllm_core *core)
{
    const qr_fences *f = &core->sched->fences;
    PyObject *rows = PyList_New(0);
    for (uint32_t i = 0; rows != NULL && i < f->num_rows; i++) {
        const qr_fenced_row *row = &f->rows[(f->first + i) % f->max_rows];
        if (vllm_list_put(rows, PyLong_FromUnsignedLongLong(row->fence)) < 0)
            Py_CLEAR(rows);
    }
    return rows == NULL ? NULL : Py_BuildValue("(KKN)", f->scheduled, f->processed, rows);
}

/* peek_stats(core): of the prefix cache, and of what the connector found; both stay as they are */
PyObject *shim_peek_stats(vllm_core *core)
{
    PyObject *local = vllm_prefix_stats(&core->sched->cache->stats);
    PyObject *external = vllm_prefix_stats(&core->sched->partners.connector_stats);
    if (local != NULL && external != NULL)
        return Py_BuildValue("(NN)", local, external);
    Py_XDECREF(local);
    Py_XDECREF(external);
    return NULL;
}

/* peek_step(core): whether the last admission left requests waiting that nothing held up; numbers
 * of requests whose images have other sizes than those in the cache */
PyObject *shim_peek_step(vllm_core *core)
{
    const qr_doomed *doomed = &core->sched->results.other_sizes;
    PyObject *reqs = PyList_New(0);
    for (uint32_t i = 0; reqs != NULL && i < doomed->num; i++) {
        if (vllm_list_put(reqs, PyLong_FromUnsignedLongLong(doomed->reqs[i])) < 0)
            Py_CLEAR(reqs);
    }
    return reqs == NULL ? NULL : Py_BuildValue("(iN)", core->sched->pace.is_bound, reqs);
}

/* align(core, tokens): chunks end at multiples, as with layers that keep states; 0: anywhere */
PyObject *shim_align(vllm_core *core, uint32_t num_tokens)
{
    core->sched->settings.mamba_block_size = num_tokens;
    Py_RETURN_NONE;
}

/* drop_skipped(core, number): blocks that the request's certain tokens need no longer, as when it
 * ends and a connector gets its blocks */
PyObject *shim_drop_skipped(vllm_core *core, quire_req req)
{
    quire_sched *s = core->sched;
    uint32_t index = qr_sched_index_of(s, req);
    if (index == QR_NIL)
        return vllm_raise(QUIRE_E_UNKNOWN_REQ, "request");
    qr_sched_drop_skipped(s, index);
    Py_RETURN_NONE;
}

/* preempt(core, number, drops its outputs): it may have left the running requests before */
PyObject *shim_preempt(vllm_core *core, quire_req req, int drops)
{
    quire_sched *s = core->sched;
    uint32_t index = qr_sched_index_of(s, req);
    if (index == QR_NIL || s->table.requests[index].status != QUIRE_REQ_RUNNING) {
        PyErr_SetString(PyExc_ValueError, "only requests that run can be preempted");
        return NULL;
    }
    for (uint32_t i = 0; i < s->queues.num_running; i++) {
        if (s->queues.running[i] == index) {
            qr_sched_leave_running(s, i);
            break;
        }
    }
    qr_request *r = &s->table.requests[index];
    qr_sched_preempt(s, index);
    r->drops_stale |= drops != 0;
    core->slots[index].num_preemptions = r->num_preemptions;
    core->slots[index].num_computed = 0;
    Py_RETURN_NONE;
}

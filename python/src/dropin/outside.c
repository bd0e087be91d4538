/* outside.c - what reaches the scheduler from outside of its own steps.
 *
 *      update_from_output(a step it did not make)     becomes a step in flight
 *      connector cuts request._all_token_ids          the library's prompt is cut too
 *      request.spec_token_ids                         the drafts of its next step, to look at
 *      request.num_in_flight_tokens, ...              counters of 0.32, to look at
 *
 * The library's own headers are needed for the first and the last.
 */
#include "vllm.h"

#include "sched/sched.h"

#include <string.h>

/* ---- drafts -------------------------------------------------------------- */

/* drafts(number): those of its next step */
PyObject *vllm_core_drafts(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "K", &number))
        return NULL;
    uint32_t index = qr_sched_index_of(core->sched, number);
    if (index == QR_NIL)
        return vllm_raise(QUIRE_E_UNKNOWN_REQ, "request");
    return py_list_tokens(qr_sched_drafts_of(core->sched, index),
                          core->sched->table.requests[index].num_drafts);
}

/* ---- what 0.32 counts ---------------------------------------------------- */

PyObject *vllm_flight_of(const vllm_core *core, quire_req req)
{
    uint32_t index = qr_sched_index_of(core->sched, req);
    if (index == QR_NIL)
        return vllm_raise(QUIRE_E_UNKNOWN_REQ, "request");
    const qr_request *r = &core->sched->table.requests[index];
    return Py_BuildValue("(IIi)", r->num_in_flight, r->num_stale, (int)r->drops_stale);
}

uint32_t vllm_num_apart(const vllm_core *core)
{
    const qr_queues *queues = &core->sched->queues;
    return vllm_is_0_32(core) ? queues->num_deferred : queues->skipped.count;
}

int vllm_is_stale(const vllm_core *core, quire_req req)
{
    uint32_t index = qr_sched_index_of(core->sched, req);
    return index != QR_NIL && core->sched->table.requests[index].num_stale > 0;
}

/* 0.32 tells with the first output how many tokens of a request the prefix cache has: when the
 * output was taken, and before the blocks of a request that ends go. The row is kept meanwhile:
 *
 *      num_groups counts | ids of the first group | ids of the second | ...
 */
int vllm_keep_row(vllm_core *core, vllm_slot *slot)
{
    quire_block_span spans[VLLM_MOST_GROUPS];
    size_t total = core->num_groups;
    if (quire_sched_get_blocks(core->sched, slot->req, spans) != QUIRE_OK)
        return 0;
    for (uint32_t g = 0; g < core->num_groups; g++)
        total += spans[g].count;
    uint32_t *kept = PyMem_Malloc(total * sizeof(*kept) + 1);
    if (kept == NULL)
        return PY_REFUSE_MEMORY();
    uint32_t *at = kept + core->num_groups;
    for (uint32_t g = 0; g < core->num_groups; g++) {
        kept[g] = spans[g].count;
        for (uint32_t i = 0; i < spans[g].count; i++)
            *at++ = spans[g].ids[i];
    }
    PyMem_Free(slot->row_blocks);
    slot->row_blocks = kept;
    return 0;
}

/* Whether a key is the hash of the request's first so many hash blocks. */
static int is_hash_of(const vllm_slot *slot, quire_bytes key, uint32_t num_hashes)
{
    PyObject *dict = PyObject_GenericGetDict(slot->request, NULL);
    PyObject *hashes = dict == NULL ? NULL : PyDict_GetItemString(dict, "block_hashes");
    int is_same = 0;
    if (num_hashes > 0 && hashes != NULL && PyList_Check(hashes) &&
        PyList_Size(hashes) >= (Py_ssize_t)num_hashes) {
        PyObject *hash = PyList_GetItem(hashes, (Py_ssize_t)num_hashes - 1);
        is_same = PyBytes_Check(hash) && (size_t)PyBytes_Size(hash) == key.len &&
                  memcmp(PyBytes_AsString(hash), key.data, key.len) == 0;
    }
    Py_XDECREF(dict);
    PyErr_Clear();
    return is_same;
}

/* Tokens up to the end of the last key. The prompt's last hash may be a key inside a block: of the
 * whole prompt with EAGLE, else of all but its last token. */
static uint32_t keyed_in_group(const vllm_core *core, const vllm_slot *slot, const qr_group *group,
                               const uint32_t *ids, uint32_t count)
{
    const quire_sched *s = core->sched;
    uint32_t unit = s->settings.hash_block_size;
    uint32_t num_hashes = (slot->num_prompt - !group->is_eagle) / unit;
    for (uint32_t i = count; i-- > 0;) {
        quire_block_info info;
        if (ids[i] == QUIRE_NULL_BLOCK ||
            quire_pool_get_block(s->cache->pool, ids[i], &info) != QUIRE_OK ||
            info.hash.data == NULL)
            continue;
        int is_tail = group->block_size != unit && is_hash_of(slot, info.hash, num_hashes);
        return is_tail ? num_hashes * unit : (i + 1) * group->block_size;
    }
    return 0;
}

uint32_t vllm_keyed_tokens(const vllm_core *core, vllm_slot *slot)
{
    const uint32_t *counts = slot->row_blocks;
    uint32_t least = UINT32_MAX;
    if (counts == NULL)
        return 0;
    const uint32_t *ids = counts + core->num_groups;
    for (uint32_t g = 0; g < core->num_groups; g++) {
        const qr_group *group = &core->sched->cache->groups[g];
        uint32_t keyed = keyed_in_group(core, slot, group, ids, counts[g]);
        ids += counts[g];
        if (group->spec.kind != QUIRE_LAYER_CROSS && keyed < least)
            least = keyed;
    }
    PyMem_Free(slot->row_blocks);
    slot->row_blocks = NULL;
    return least == UINT32_MAX ? 0 : least;
}

/* fail(number): the request ends with an error in the next update (0.32). */
PyObject *vllm_core_fail(PyObject *self, PyObject *args)
{
    quire_sched *s = ((vllm_core *)self)->sched;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "K", &number))
        return NULL;
    uint32_t index = qr_sched_index_of(s, number);
    if (!vllm_is_0_32((vllm_core *)self))
        return vllm_raise(QUIRE_E_ARGUMENT, "fail");
    if (index != QR_NIL)
        qr_doom(&s->results.bad_grammars, &s->table.requests[index], number);
    Py_RETURN_NONE;
}

/* ---- steps made by hand -------------------------------------------------- */

/* The numbers of drafts of a request in scheduled_spec_decode_tokens. */
static int count_drafts(PyObject *drafts, PyObject *id, uint32_t *count)
{
    PyObject *list = PyDict_GetItemWithError(drafts, id);
    Py_ssize_t size = list == NULL ? 0 : PyObject_Size(list);
    *count = size < 0 ? 0 : (uint32_t)size;
    return PyErr_Occurred() ? -1 : 0;
}

static int fill_batch(vllm_core *core, qr_batch *batch, PyObject *scheduled, PyObject *drafts)
{
    Py_ssize_t at = 0;
    PyObject *id;
    PyObject *count;
    uint32_t row = 0;
    while (PyDict_Next(scheduled, &at, &id, &count)) {
        const vllm_slot *slot = vllm_slot_of_id(core, id);
        if (PyErr_Occurred() || count_drafts(drafts, id, &batch->num_drafts[row]) < 0)
            return -1;
        batch->num_tokens[row] = (uint32_t)PyLong_AsUnsignedLong(count);
        if (PyErr_Occurred())
            return -1;
        batch->reqs[row] = slot == NULL ? 0 : slot->req;
        batch->num_preemptions[row] = slot == NULL ? 0 : slot->num_preemptions;
        batch->is_past_prompt[row] = 1;
        row++;
    }
    batch->num_reqs = row;
    return 0;
}

static int note_step(vllm_core *core, PyObject *scheduled, PyObject *drafts, uint64_t *number)
{
    quire_sched *s = core->sched;
    if (!PyDict_Check(scheduled) || !PyDict_Check(drafts) ||
        PyDict_Size(scheduled) > (Py_ssize_t)s->settings.max_num_seqs ||
        s->flight.num_batches == s->settings.max_batches)
        return PY_REFUSE(
            PyExc_ValueError,
            "this SchedulerOutput is not one of this scheduler's, and cannot stand for "
            "one: too many requests, or too many steps in flight");
    qr_batch *batch =
        &s->flight
             .batches[(s->flight.first_batch + s->flight.num_batches) % s->settings.max_batches];
    if (fill_batch(core, batch, scheduled, drafts) < 0)
        return -1;
    batch->step = UINT64_MAX - core->num_foreign++; /* not one of those that schedule counts */
    s->flight.num_batches++;
    *number = batch->step;
    return 0;
}

int vllm_note_step(vllm_core *core, PyObject *output, uint64_t *number)
{
    PyObject *scheduled = PyObject_GetAttr(output, core->names[VLLM_NAME_SCHEDULED]);
    PyObject *drafts =
        scheduled == NULL ? NULL : PyObject_GetAttr(output, core->names[VLLM_NAME_DRAFTS]);
    int failed = drafts == NULL || note_step(core, scheduled, drafts, number) < 0;
    Py_XDECREF(scheduled);
    Py_XDECREF(drafts);
    return failed ? -1 : 0;
}

/* ---- a connector cuts a prompt ------------------------------------------- */

int vllm_slot_cut(vllm_core *core, vllm_slot *slot)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    Py_ssize_t left = PyList_Size(slot->all_tokens);
    if (quire_sched_get_req_info(core->sched, slot->req, &info) != QUIRE_OK ||
        left >= (Py_ssize_t)info.num_tokens)
        return 0;
    uint64_t num_prompt;
    uint64_t max_tokens;
    if (vllm_read_attribute(slot->request, "num_prompt_tokens", &num_prompt) < 0 ||
        vllm_read_attribute(slot->request, "max_tokens", &max_tokens) < 0)
        return -1;
    int status = num_prompt == (uint64_t)left
                     ? quire_sched_cut_prompt(core->sched, slot->req, (uint32_t)num_prompt,
                                              (uint32_t)max_tokens)
                     : QUIRE_E_RANGE;
    if (status != QUIRE_OK)
        return vllm_refuse(status, "a connector cut the tokens of a request");
    slot->num_prompt = (uint32_t)num_prompt;
    return 0;
}

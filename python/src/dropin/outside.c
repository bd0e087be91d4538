/* outside.c - what reaches the scheduler from outside of its own steps.
 *
 *      update_from_output(a step it did not make)     becomes a step in flight
 *      connector cuts request._all_token_ids          the library's prompt is cut too
 *      request.spec_token_ids                         the drafts of its next step, to look at
 *      images that have another size than in the cache, for a warning
 *      hashes of a block beside its own
 *      a hit that ends inside of a block              how much of it a connector is not told of
 *
 * The library's own headers are needed for all but the second.
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

/* ---- blocks that several hashes name --------------------------------------- */

/* further_hashes(id): a list, with their groups */
PyObject *vllm_core_further_hashes(PyObject *self, PyObject *args)
{
    const quire_pool *pool =
        quire_cache_get_pool(quire_sched_get_cache(((vllm_core *)self)->sched));
    unsigned int id;
    if (!PyArg_ParseTuple(args, "I", &id))
        return NULL;
    if (id >= pool->queue.num_blocks)
        return vllm_raise(QUIRE_E_UNKNOWN_BLOCK, "further_hashes");
    PyObject *list = PyList_New(0);
    uint32_t extra = pool->extras.heads == NULL ? 0 : pool->extras.heads[id].first;
    for (; list != NULL && extra != 0; extra = qr_extras_next(&pool->extras, extra)) {
        qr_key key = qr_map_key_of(&pool->map, extra);
        quire_bytes hash = {key.hash, key.len};
        if (vllm_list_put(list, vllm_hash_with_group(hash, key.group_id)) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* ---- images of another size ------------------------------------------------ */

/* The first image of the request whose size is not that of the item in the cache, as a tuple:
 * request, identifier, embeddings of the item, number of the image, its embeddings. */
static PyObject *find_other_size(vllm_core *core, quire_req req)
{
    const quire_sched *s = core->sched;
    uint32_t index = qr_sched_index_of(s, req);
    const vllm_slot *slot = vllm_slot_of(core, req);
    for (uint32_t i = 0;
         index != QR_NIL && slot != NULL && i < s->table.requests[index].num_features; i++) {
        const qr_feature *f = &s->table.requests[index].features[i];
        uint32_t held = qr_encoder_size_of(&s->encoder, f);
        if (held != QR_NIL && held != f->num_embeds)
            return Py_BuildValue("(Os#III)", slot->id, f->identifier.data,
                                 (Py_ssize_t)f->identifier.len, held, i, f->num_embeds);
    }
    return NULL;
}

/* other_sizes(): of each request that the next update ends because of it */
PyObject *vllm_core_other_sizes(PyObject *self, PyObject *Py_UNUSED(unused))
{
    vllm_core *core = (vllm_core *)self;
    const qr_doomed *doomed = &core->sched->results.other_sizes;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < doomed->num; i++) {
        PyObject *found = find_other_size(core, doomed->reqs[i]);
        if (PyErr_Occurred() || (found != NULL && vllm_list_put(list, found) < 0))
            Py_CLEAR(list);
    }
    return list;
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

/* ---- a connector is asked ------------------------------------------------ */

uint32_t vllm_asked_part(const vllm_core *core)
{
    return core->sched->partners.asked_part;
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
    if (max_tokens > UINT32_MAX)
        max_tokens = UINT32_MAX;
    int status = num_prompt == (uint64_t)left
                     ? quire_sched_cut_prompt(core->sched, slot->req, (uint32_t)num_prompt,
                                              (uint32_t)max_tokens)
                     : QUIRE_E_RANGE;
    if (status != QUIRE_OK)
        return vllm_refuse(status, "a connector cut the tokens of a request");
    slot->num_prompt = (uint32_t)num_prompt;
    return 0;
}

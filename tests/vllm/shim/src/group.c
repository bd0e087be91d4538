/* group.c - the steps of one single-type manager, on a group of a cache, and looking at it.
 *
 *      need       how many free blocks an allocation takes          changes nothing
 *      keep       hits get one more user, external tokens blocks
 *      allocate   blocks for the tokens to be computed
 *
 * Inside a KVCacheManager the library runs them in one call (slots.c). Here each is checked on
 * its own, since nobody has counted before. Blocks that are given need not have keys, nor belong to
 * the pool where they are merely counted: vLLM looks at their users alone.
 */
#include "cache.h"

#include <string.h>

static qr_group *group_at(vllm_cache *self, uint32_t g)
{
    if (g < self->cache->num_groups)
        return &self->cache->groups[g];
    PyErr_Format(PyExc_IndexError, "KV cache group %u of %u", g, self->cache->num_groups);
    return NULL;
}

/* ---- need ---------------------------------------------------------------------------------- */

/* How many of the blocks from `first` on have no user, null blocks aside; -1: not blocks. */
static Py_ssize_t count_evictable(PyObject *blocks, Py_ssize_t first)
{
    Py_ssize_t count = 0;
    Py_ssize_t n = PySequence_Size(blocks);
    for (Py_ssize_t i = first; i < n; i++) {
        PyObject *item = PySequence_GetItem(blocks, i);
        if (item == NULL || !vllm_is_block(item)) {
            if (item != NULL)
                PyErr_Format(PyExc_TypeError, "%R is not a KVCacheBlock of the shim", item);
            Py_XDECREF(item);
            return -1;
        }
        const vllm_block *block = (vllm_block *)item;
        int64_t users = block->ref_cnt;
        if (block->pool != NULL && block->pool->pool != NULL)
            users = (int64_t)block->pool->pool->queue.blocks[block->id].ref_cnt - block->is_loose;
        count += users == 0 && !block->is_null;
        Py_DECREF(item);
    }
    return n < 0 ? -1 : count;
}

/* Mamba: whether the last block got its key in this very step. 1, 0, or -1. */
static int is_of_this_step(const vllm_cache *self, const qr_group *group, PyObject *blocks)
{
    Py_ssize_t n = PySequence_Size(blocks);
    if (n <= 0 || group->stamps == NULL)
        return n < 0 ? -1 : 0;
    PyObject *item = PySequence_GetItem(blocks, n - 1);
    if (item == NULL)
        return -1;
    const vllm_block *last = (vllm_block *)item;
    int is_ours = vllm_is_block(item) && last->pool == (vllm_pool *)self->pool && !last->is_null;
    int found = is_ours && group->stamps[last->id] == group->step &&
                qr_block_has_key(&group->pool->queue.blocks[last->id]);
    Py_DECREF(item);
    return found;
}

/* The want of a step, with as many null blocks as there are hits: what is counted of them is
 * counted by count_evictable. */
static int make_want(vllm_cache *self, const qr_group *group, size_t num_hits, qr_want *want)
{
    if (vllm_cache_reserve_ids(self, num_hits) < 0)
        return -1;
    if (num_hits > 0)
        memset(self->ids, 0, num_hits * sizeof(*self->ids)); /* QUIRE_NULL_BLOCK */
    self->spans[group->id] = (quire_block_span){self->ids, (uint32_t)num_hits};
    want->hits = num_hits > 0 ? self->spans : NULL;
    want->num_certain = want->num_kept = want->total_computed;
    if (group->spec.kind == QUIRE_LAYER_CROSS)
        want->num_encoder_tokens = want->num_tokens;
    return 0;
}

static PyObject *need_of(vllm_cache *self, const qr_group *group, PyObject *hits, qr_want *want)
{
    Py_ssize_t num_hits = PySequence_Size(hits);
    const qr_row *row = want->row == QR_NIL ? NULL : &group->rows[want->row];
    if (num_hits < 0 || make_want(self, group, (size_t)num_hits, want) < 0)
        return NULL;
    if (num_hits > 0 && row != NULL && row->is_settled)
        return PyErr_Format(PyExc_ValueError,
                            "a request that has computed blocks cannot get %zd more hits",
                            num_hits);
    int is_new_state = is_of_this_step(self, group, hits);
    if (is_new_state < 0)
        return NULL;
    if (is_new_state) /* more than there are: ask again in the next step */
        return PyLong_FromUnsignedLong(group->pool->queue.num_blocks + 1UL);
    qr_need need = group->ops->need(group, want);
    bool counts_all = group->spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN;
    uint32_t skipped = 0;
    if (!counts_all && group->ops->skipped_tokens != NULL)
        skipped = group->ops->skipped_tokens(group, want->total_computed) / group->block_size;
    uint32_t have = row == NULL ? 0 : row->num_blocks;
    Py_ssize_t evictable = count_evictable(hits, skipped > have ? skipped - have : 0);
    return evictable < 0 ? NULL : PyLong_FromLongLong(need.predicted + evictable);
}

/* need(group, request id, tokens, hits, computed tokens, tokens without lookahead) */
PyObject *vllm_group_need(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *id;
    PyObject *hits;
    uint32_t g;
    qr_want want = {0};
    if (!PyArg_ParseTuple(args, "O&OO&OO&O&", vllm_to_u32, &g, &id, vllm_to_u32, &want.num_tokens,
                          &hits, vllm_to_u32, &want.total_computed, vllm_to_u32, &want.num_main) ||
        vllm_cache_enter(self, 0) < 0)
        return NULL;
    const qr_group *group = group_at(self, g);
    PyObject *answer = NULL;
    if (group != NULL && vllm_cache_row(self, id, &want.row) == 0)
        answer = need_of(self, group, hits, &want);
    return vllm_cache_leave(self, answer);
}

/* ---- keep ---------------------------------------------------------------------------------- */

static int refuse_space(int64_t needed)
{
    PyErr_Format(PyExc_ValueError, "Cannot get %lld free blocks from the pool", (long long)needed);
    return -1;
}

/* Takes back a row that was opened for nothing; an exception is set. */
static int give_up_row(vllm_cache *self, PyObject *id, uint32_t row, bool is_new)
{
    PyObject *error[3];
    PyErr_Fetch(&error[0], &error[1], &error[2]);
    if (is_new && vllm_cache_close_row(self, id, row) < 0)
        PyErr_Clear();
    PyErr_Restore(error[0], error[1], error[2]);
    return -1;
}

/* Whether the hits can be kept in this row, and there are blocks for what is external. */
static int check_keep(vllm_cache *self, uint32_t g, const qr_want *want)
{
    const qr_group *group = &self->cache->groups[g];
    uint32_t num_hits = self->spans[group->id].count;
    if (num_hits > 0 && !group->enable_caching) {
        PyErr_SetString(PyExc_ValueError, "prefix caching is off: there can be no computed blocks");
        return -1;
    }
    if (group->rows[want->row].num_blocks > 0) {
        PyErr_Format(PyExc_ValueError, "the request has %u blocks already",
                     group->rows[want->row].num_blocks);
        return -1;
    }
    qr_kept kept = qr_group_kept_hits(group, want);
    const qr_block *records = group->pool->queue.blocks;
    int64_t needed = kept.num_external;
    for (uint32_t i = 0; i < kept.num_kept; i++)
        needed += kept.kept[i] != QUIRE_NULL_BLOCK && records[kept.kept[i]].ref_cnt == 0;
    if (needed > group->pool->queue.num_free)
        return refuse_space(needed);
    return vllm_store_longer_rows(self->store, g, kept.skipped + kept.num_kept + kept.num_external);
}

static int keep(vllm_cache *self, uint32_t g, PyObject *id, PyObject *hits, qr_want *want)
{
    qr_group *group = &self->cache->groups[g];
    Py_ssize_t n = PySequence_Size(hits);
    if (n < 0 || vllm_cache_row(self, id, &want->row) < 0 ||
        vllm_cache_reserve_ids(self, (size_t)n) < 0)
        return -1;
    bool is_over = want->row != QR_NIL && group->rows[want->row].is_settled;
    if ((is_over || group->ops->find == NULL) && n == 0)
        return 0; /* no hits can come, and none did */
    if (is_over || group->ops->find == NULL) {
        PyErr_Format(PyExc_ValueError, "%zd computed blocks for a request that cannot have any", n);
        return -1;
    }
    bool is_new = want->row == QR_NIL;
    if (is_new && vllm_cache_open_row(self, id, &want->row) < 0)
        return -1;
    int got = n == 0 ? 0 : vllm_pool_ids(self->pool, hits, self->ids, (uint32_t)n);
    self->spans[group->id] = (quire_block_span){self->ids, got < 0 ? 0 : (uint32_t)got};
    want->hits = self->spans;
    if (got < 0 || check_keep(self, g, want) < 0)
        return give_up_row(self, id, want->row, is_new);
    qr_group_keep_hits(group, want);
    uint32_t kept = group->rows[want->row].num_blocks;
    qr_group_add_external(group, want);
    if (vllm_cache_measure(self, group, want->row, 0, kept, 1) < 0)
        return -1;
    return vllm_cache_measure(self, group, want->row, kept, group->rows[want->row].num_blocks, 0);
}

/* keep(group, request id, hits, local computed tokens, external computed tokens) */
PyObject *vllm_group_keep(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *id;
    PyObject *hits;
    uint32_t g;
    uint32_t local;
    qr_want want = {.keeps_hits = true};
    if (!PyArg_ParseTuple(args, "O&OOO&O&", vllm_to_u32, &g, &id, &hits, vllm_to_u32, &local,
                          vllm_to_u32, &want.num_external) ||
        vllm_cache_enter(self, 1) < 0)
        return NULL;
    want.total_computed = qr_clamp_u32((uint64_t)local + want.num_external);
    want.num_certain = want.num_kept = want.total_computed;
    int failed = group_at(self, g) == NULL || keep(self, g, id, hits, &want) < 0;
    PyObject *done = failed ? NULL : Py_None;
    Py_XINCREF(done);
    return vllm_cache_leave(self, done);
}

/* ---- allocate ------------------------------------------------------------------------------ */

/* The row is opened first: that runs Python code, and nothing may change after the counting. */
static PyObject *allocate_in(vllm_cache *self, uint32_t g, PyObject *id, qr_want *want)
{
    qr_group *group = &self->cache->groups[g];
    uint32_t tokens = want->num_tokens > want->num_main ? want->num_tokens : want->num_main;
    uint32_t length = qr_ceil_div(tokens, group->block_size) + group->spec.num_speculative_blocks;
    if (vllm_cache_row(self, id, &want->row) < 0 || make_want(self, group, 0, want) < 0 ||
        vllm_store_longer_rows(self->store, g, length) < 0)
        return NULL;
    bool is_new = want->row == QR_NIL;
    if (is_new && vllm_cache_open_row(self, id, &want->row) < 0)
        return NULL;
    qr_need need = group->ops->need(group, want);
    if (need.taken > group->pool->queue.num_free) {
        refuse_space(need.taken);
        give_up_row(self, id, want->row, is_new);
        return NULL;
    }
    uint32_t n = group->ops->allocate(group, want);
    uint32_t end = group->rows[want->row].num_blocks;
    const uint32_t *blocks = qr_group_row_blocks(group, want->row);
    if (vllm_cache_measure(self, group, want->row, end - n, end, 0) < 0)
        return NULL;
    return vllm_pool_blocks(self->pool, blocks + end - n, n);
}

/* allocate(group, request id, tokens, tokens without lookahead) -> new blocks */
PyObject *vllm_group_allocate(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *id;
    uint32_t g;
    qr_want want = {0};
    if (!PyArg_ParseTuple(args, "O&OO&O&", vllm_to_u32, &g, &id, vllm_to_u32, &want.num_tokens,
                          vllm_to_u32, &want.num_main) ||
        vllm_cache_enter(self, 1) < 0)
        return NULL;
    PyObject *made = group_at(self, g) == NULL ? NULL : allocate_in(self, g, id, &want);
    return vllm_cache_leave(self, made);
}

/* ---- looking ------------------------------------------------------------------------------- */

static quire_block_span row_span(const qr_group *group, uint32_t row)
{
    if (row == QR_NIL)
        return (quire_block_span){NULL, 0};
    return (quire_block_span){qr_group_row_blocks(group, row), group->rows[row].num_blocks};
}

static PyObject *id_list(quire_block_span span)
{
    PyObject *list = PyList_New((Py_ssize_t)span.count);
    for (uint32_t i = 0; list != NULL && i < span.count; i++) {
        PyObject *number = PyLong_FromUnsignedLong(span.ids[i]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, number);
    }
    return list;
}

static PyObject *lists_of(vllm_cache *self, PyObject *id, int as_blocks)
{
    uint32_t row;
    uint32_t num_groups = self->cache == NULL ? 0 : self->cache->num_groups;
    if (vllm_cache_enter(self, 0) < 0)
        return NULL;
    PyObject *lists = vllm_cache_row(self, id, &row) < 0 ? NULL : PyTuple_New(num_groups);
    for (uint32_t g = 0; lists != NULL && g < num_groups; g++) {
        quire_block_span span = row_span(&self->cache->groups[g], row);
        PyObject *list =
            as_blocks ? vllm_pool_blocks(self->pool, span.ids, span.count) : id_list(span);
        if (list == NULL)
            Py_CLEAR(lists);
        else
            PyTuple_SetItem(lists, (Py_ssize_t)g, list);
    }
    return vllm_cache_leave(self, lists);
}

PyObject *vllm_cache_blocks(PyObject *self, PyObject *id)
{
    return lists_of((vllm_cache *)self, id, 1);
}

PyObject *vllm_cache_block_ids(PyObject *self, PyObject *id)
{
    return lists_of((vllm_cache *)self, id, 0);
}

/* row(group, request id) -> (blocks, how many have keys; None: it had neither hits nor keys) */
PyObject *vllm_group_row(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *id;
    uint32_t g;
    uint32_t row;
    if (!PyArg_ParseTuple(args, "O&O", vllm_to_u32, &g, &id) || vllm_cache_enter(self, 0) < 0)
        return NULL;
    PyObject *answer = NULL;
    const qr_group *group = group_at(self, g);
    if (group != NULL && vllm_cache_row(self, id, &row) == 0) {
        quire_block_span span = row_span(group, row);
        PyObject *list = vllm_pool_blocks(self->pool, span.ids, span.count);
        if (list != NULL && row != QR_NIL && group->rows[row].is_settled)
            answer = Py_BuildValue("(NI)", list, group->rows[row].num_cached);
        else if (list != NULL)
            answer = Py_BuildValue("(NO)", list, Py_None);
    }
    return vllm_cache_leave(self, answer);
}

/* common_prefix(group, request id): blocks at the start that all requests share. */
PyObject *vllm_group_common_prefix(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *id;
    uint32_t g;
    uint32_t row;
    if (!PyArg_ParseTuple(args, "O&O", vllm_to_u32, &g, &id) || vllm_cache_enter(self, 0) < 0)
        return NULL;
    PyObject *answer = NULL;
    const qr_group *group = group_at(self, g);
    if (group != NULL && vllm_cache_row(self, id, &row) == 0) {
        quire_block_span span = {NULL, 0};
        if (group->ops == &qr_full_ops)
            span = row_span(group, row);
        const qr_block *records = group->pool->queue.blocks;
        uint32_t n = 0;
        while (n < span.count && records[span.ids[n]].ref_cnt == self->cache->num_seqs)
            n++;
        answer = PyLong_FromUnsignedLong(n);
    }
    return vllm_cache_leave(self, answer);
}

/* take_new(group): ids of blocks that its requests got since the last call. */
PyObject *vllm_group_take_new(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    uint32_t g;
    if (!PyArg_ParseTuple(args, "O&", vllm_to_u32, &g) || vllm_cache_enter(self, 1) < 0)
        return NULL;
    PyObject *list = NULL;
    const qr_group *group = group_at(self, g);
    if (group != NULL) {
        qr_fresh *fresh = &self->cache->fresh;
        uint32_t kept = 0;
        uint32_t taken = 0;
        for (uint32_t i = 0; i < fresh->count; i++) {
            if (fresh->groups[i] == group->id) {
                fresh->sorted[taken++] = fresh->ids[i];
                continue;
            }
            fresh->ids[kept] = fresh->ids[i];
            fresh->groups[kept++] = fresh->groups[i];
        }
        fresh->count = kept;
        list = id_list((quire_block_span){fresh->sorted, taken});
    }
    return vllm_cache_leave(self, list);
}

/* skipped(group, computed tokens): tokens at the start that no later one looks at. */
PyObject *vllm_group_skipped(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    uint32_t g;
    uint32_t computed;
    if (!PyArg_ParseTuple(args, "O&O&", vllm_to_u32, &g, vllm_to_u32, &computed) ||
        vllm_cache_enter(self, 0) < 0)
        return NULL;
    PyObject *answer = NULL;
    const qr_group *group = group_at(self, g);
    if (group != NULL)
        answer = PyLong_FromUnsignedLong(
            group->ops->skipped_tokens == NULL ? 0 : group->ops->skipped_tokens(group, computed));
    return vllm_cache_leave(self, answer);
}

/* sinks(group): the blocks that its requests share. */
PyObject *vllm_group_sinks(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    uint32_t g;
    if (!PyArg_ParseTuple(args, "O&", vllm_to_u32, &g) || vllm_cache_enter(self, 0) < 0)
        return NULL;
    const qr_group *group = group_at(self, g);
    PyObject *list =
        group == NULL ? NULL : vllm_pool_blocks(self->pool, group->sinks, group->num_sinks);
    return vllm_cache_leave(self, list);
}

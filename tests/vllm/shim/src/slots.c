/* slots.c - what a KVCacheManager does for a request, each in one call of the library.
 *
 *      request.request_id, num_tokens, num_computed_tokens ──► quire_cache_request
 *      request.block_hashes   only those of blocks that are about to get their keys
 *
 * Where somebody listens to KV events, keys are given by the BlockPool, which tells of them, and
 * the library is asked to leave that to us.
 */
#include "cache.h"

/* ---- reading ------------------------------------------------------------------------------- */

/* A request as the cache sees it; *id is a new reference. */
static int read_request(vllm_cache *self, PyObject *request, quire_cache_request *r, PyObject **id)
{
    *r = (quire_cache_request){.hashes = self->hashes, .user = request};
    *id = PyObject_GetAttr(request, self->names[VLLM_CACHE_ID]);
    if (*id == NULL ||
        vllm_attr_u32(request, self->names[VLLM_CACHE_NUM_TOKENS], &r->num_tokens) < 0 ||
        vllm_attr_u32(request, self->names[VLLM_CACHE_COMPUTED], &r->num_computed_tokens) < 0)
        return -1;
    return vllm_cache_seq(self, *id, &r->seq);
}

/* Blocks of the hit: a sequence for each group, or None. */
static int read_hits(vllm_cache *self, PyObject *given, quire_allocate_params *p)
{
    uint32_t num_groups = self->cache->num_groups;
    size_t used = 0;
    if (given == Py_None)
        return 0;
    if (!PyTuple_Check(given) || PyTuple_Size(given) != (Py_ssize_t)num_groups) {
        PyErr_Format(PyExc_ValueError, "new_computed_blocks must have blocks for %u groups",
                     num_groups);
        return -1;
    }
    for (uint32_t g = 0; g < num_groups; g++) {
        Py_ssize_t n = PySequence_Size(PyTuple_GetItem(given, (Py_ssize_t)g));
        if (n < 0 || vllm_cache_reserve_ids(self, used + (size_t)n) < 0)
            return -1;
        int got = n == 0 ? 0
                         : vllm_pool_ids(self->pool, PyTuple_GetItem(given, (Py_ssize_t)g),
                                         self->ids + used, (uint32_t)n);
        if (got < 0)
            return -1;
        self->spans[g] = (quire_block_span){NULL, (uint32_t)got};
        used += (size_t)got;
    }
    size_t begin = 0;
    for (uint32_t g = 0; g < num_groups; g++) { /* the ids stand still from here on */
        self->spans[g].ids = self->ids + begin;
        begin += self->spans[g].count;
    }
    if (used > 0)
        p->new_computed_blocks = self->spans;
    return 0;
}

/* Loads the hashes [r->first_hash, ...) that name the first num_tokens tokens. */
static int read_hashes(vllm_cache *self, PyObject *request, quire_cache_request *r,
                       uint32_t num_tokens)
{
    PyObject *hashes = PyObject_GetAttr(request, self->names[VLLM_CACHE_HASHES]);
    PyObject *list = hashes == NULL ? NULL : vllm_hash_list(hashes);
    Py_XDECREF(hashes);
    if (list == NULL)
        return -1;
    size_t num_hashes = (size_t)PyList_Size(list);
    size_t num_needed = num_tokens / self->cache->hash_block_size;
    int failed = 0;
    if (num_hashes < num_needed) {
        PyErr_Format(PyExc_ValueError,
                     "a request of %u tokens to be cached has %zu block hashes, not %zu: it needs "
                     "a block hasher of %u tokens",
                     num_tokens, num_hashes, num_needed, self->cache->hash_block_size);
        failed = 1;
    }
    r->num_hashes = (uint32_t)num_needed;
    if (!failed && r->first_hash < r->num_hashes)
        failed = vllm_cache_load_hashes(self, list, r->first_hash, r->num_hashes, 0) < 0;
    Py_DECREF(list);
    r->hashes = self->hashes;
    return failed ? -1 : 0;
}

/* Whether the BlockPool gives keys, not the library. Of a scheduler's cache the library tells. */
static int pool_gives_keys(const vllm_cache *self)
{
    return self->store != NULL &&
           (((const vllm_pool *)self->pool)->enable_events || self->store->first_pool != NULL);
}

/* ---- keys ---------------------------------------------------------------------------------- */

/* As qr_group_cache, through the BlockPool: it tells of them, and takes hashes of any length. */
static int cache_row(vllm_cache *self, qr_group *group, uint32_t row, PyObject *request,
                     uint32_t num_full)
{
    qr_row *r = &group->rows[row];
    uint32_t first = r->num_cached;
    if (vllm_pool_cache_full(self->pool, request, qr_group_row_blocks(group, row), first, num_full,
                             group->block_size, group->id) < 0)
        return -1;
    r->num_cached = num_full;
    r->is_settled = true;
    if (group->ops->cached != NULL)
        group->ops->cached(group, row, first, num_full);
    return 0;
}

/* Keys for the full blocks of the first num_tokens tokens, in one group or all. */
static int cache_groups(vllm_cache *self, quire_cache_request *r, PyObject *request,
                        uint32_t num_tokens, int only)
{
    uint32_t row = qr_cache_row_of(self->cache, r->seq);
    for (uint32_t g = 0; g < self->cache->num_groups; g++) {
        qr_group *group = &self->cache->groups[g];
        uint32_t num_full = num_tokens / group->block_size;
        if ((only >= 0 && g != (uint32_t)only) || group->rows[row].num_cached >= num_full)
            continue;
        if (num_full > group->rows[row].num_blocks) {
            PyErr_Format(PyExc_ValueError, "%u full blocks of a request that has %u", num_full,
                         group->rows[row].num_blocks);
            return -1;
        }
        if (pool_gives_keys(self)) {
            if (cache_row(self, group, row, request, num_full) < 0)
                return -1;
            continue;
        }
        if (read_hashes(self, request, r, num_tokens) < 0)
            return -1;
        qr_group_cache(group, row, r, num_tokens);
    }
    return 0;
}

/* cache_blocks(request, num_tokens, group) */
PyObject *vllm_cache_cache_blocks(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *request;
    uint32_t num_tokens;
    int group;
    if (!PyArg_ParseTuple(args, "OO&i", &request, vllm_to_u32, &num_tokens, &group) ||
        vllm_cache_enter(self, 0) < 0)
        return NULL;
    PyObject *done = NULL;
    quire_cache_request r = {.user = request};
    PyObject *id = PyObject_GetAttr(request, self->names[VLLM_CACHE_ID]);
    int failed = id == NULL || vllm_cache_seq(self, id, &r.seq) < 0;
    if (!failed && !self->cache->enable_caching) {
        PyErr_SetString(PyExc_ValueError, "prefix caching is off: there is nothing to cache");
    } else if (!failed && r.seq == 0) {
        PyErr_Format(PyExc_ValueError, "the request %R has no blocks to cache", id);
    } else if (!failed) {
        failed = cache_groups(self, &r, request, num_tokens, group) < 0;
        done = failed ? NULL : Py_None;
        Py_XINCREF(done);
    }
    Py_XDECREF(id);
    return vllm_cache_leave(self, done);
}

/* ---- allocate_slots ------------------------------------------------------------------------ */

/* What the library has to know of the hashes, and whether we give the keys after it. */
static int prepare_keys(vllm_cache *self, PyObject *request, quire_cache_request *r,
                        quire_allocate_params *p, uint32_t *num_to_cache)
{
    const quire_cache *cache = self->cache;
    uint64_t end = (uint64_t)r->num_computed_tokens + p->num_new_computed_tokens +
                   p->num_external_computed_tokens + p->num_new_tokens;
    uint32_t certain = end < r->num_tokens ? (uint32_t)end : r->num_tokens;
    *num_to_cache = 0;
    if (!cache->enable_caching || p->delay_cache_blocks)
        return 0;
    r->num_hashes = certain / cache->hash_block_size;
    if (r->seq != 0 && !qr_cache_has_uncached(cache, r->seq, certain))
        return 0;
    if (r->seq != 0)
        r->first_hash = qr_cache_first_needed_hash(cache, r->seq);
    else if (p->new_computed_blocks != NULL)
        r->first_hash = qr_cache_first_hash_after(cache, p->new_computed_blocks);
    if (read_hashes(self, request, r, certain) < 0)
        return -1;
    if (pool_gives_keys(self)) {
        p->delay_cache_blocks = 1;
        *num_to_cache = certain;
    }
    return 0;
}

/* Rows of cross attention are as long as the encoder's input, which nobody announces. */
static int prepare_encoder(vllm_cache *self, uint32_t num_tokens)
{
    quire_cache *cache = self->cache;
    if (num_tokens <= cache->max_encoder_tokens)
        return 0;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        uint32_t needed = qr_ceil_div(num_tokens, group->block_size);
        if (group->spec.kind == QUIRE_LAYER_CROSS &&
            vllm_store_longer_rows(self->store, g, needed) < 0)
            return -1;
    }
    cache->max_encoder_tokens = num_tokens;
    return 0;
}

static PyObject *refuse(const vllm_cache *self, int status, const quire_cache_request *r,
                        const quire_allocate_params *p)
{
    if (PyErr_Occurred())
        return NULL;
    if (status != QUIRE_E_RANGE)
        return vllm_raise(status, "allocate_slots");
    unsigned long long end = (unsigned long long)r->num_computed_tokens + p->num_new_tokens +
                             p->num_new_computed_tokens + p->num_external_computed_tokens;
    return PyErr_Format(PyExc_ValueError,
                        "allocate_slots: %llu tokens in one request, where max_model_len is %u",
                        end, self->cache->max_model_len);
}

static int call_library(vllm_cache *self, quire_cache_request *r, const quire_allocate_params *p,
                        quire_block_span *new_blocks)
{
    int status = quire_cache_allocate_slots(self->cache, r, p, new_blocks);
    if (status != QUIRE_FULL)
        return status;
    if (vllm_store_more_rows(self->store) < 0)
        return QUIRE_E_NOMEM;
    return quire_cache_allocate_slots(self->cache, r, p, new_blocks);
}

/* The new blocks of each group; an empty tuple when there is none at all. */
static PyObject *new_lists(vllm_cache *self, const quire_block_span *spans)
{
    uint32_t any = 0;
    uint32_t num_groups = self->cache->num_groups;
    for (uint32_t g = 0; g < num_groups; g++)
        any |= spans[g].count;
    PyObject *lists = PyTuple_New(any == 0 ? 0 : (Py_ssize_t)num_groups);
    for (uint32_t g = 0; any != 0 && lists != NULL && g < num_groups; g++) {
        PyObject *list = vllm_pool_blocks(self->pool, spans[g].ids, spans[g].count);
        if (list == NULL)
            Py_CLEAR(lists);
        else
            PyTuple_SetItem(lists, (Py_ssize_t)g, list);
    }
    return lists;
}

int vllm_cache_measure(vllm_cache *self, const qr_group *group, uint32_t row, uint32_t first,
                       uint32_t end, int is_hit)
{
    vllm_pool *pool = (vllm_pool *)self->pool;
    const uint32_t *ids = qr_group_row_blocks(group, row);
    int failed = 0;
    if (pool->metrics == Py_None)
        return 0;
    for (uint32_t i = first; !failed && i < end; i++) {
        PyObject *block = ids[i] == QUIRE_NULL_BLOCK ? NULL : vllm_pool_block(self->pool, ids[i]);
        if (block == NULL)
            continue;
        if (is_hit)
            failed = vllm_pool_measure(pool, "on_block_accessed", block) < 0;
        else
            failed =
                (pool->enable_caching && vllm_pool_measure(pool, "on_block_evicted", block) < 0) ||
                vllm_pool_measure(pool, "on_block_allocated", block) < 0;
        Py_DECREF(block);
    }
    return failed || PyErr_Occurred() ? -1 : 0;
}

/* What allocate_slots did: hits first, then new blocks. Mamba's blocks for drafts that were used
 * again count as new ones. */
static int measure_all(vllm_cache *self, const quire_cache_request *r, int is_new,
                       const quire_allocate_params *p, const quire_block_span *new_blocks)
{
    uint32_t row = qr_cache_row_of(self->cache, r->seq);
    int failed = 0;
    if (((vllm_pool *)self->pool)->metrics == Py_None)
        return 0;
    for (uint32_t g = 0; is_new && !failed && g < self->cache->num_groups; g++) {
        uint32_t num_hits = p->new_computed_blocks == NULL ? 0 : self->spans[g].count;
        failed = vllm_cache_measure(self, &self->cache->groups[g], row, 0, num_hits, 1) < 0;
    }
    for (uint32_t g = 0; !failed && g < self->cache->num_groups; g++) {
        const qr_group *group = &self->cache->groups[g];
        uint32_t end = group->rows[row].num_blocks;
        uint32_t first = end - new_blocks[g].count;
        if (is_new)
            first = p->new_computed_blocks == NULL ? 0 : self->spans[g].count;
        failed = vllm_cache_measure(self, group, row, first, end, 0) < 0;
    }
    return failed ? -1 : 0;
}

static int remember_seq(vllm_cache *self, PyObject *id, quire_cache_request *r)
{
    PyObject *number = PyLong_FromUnsignedLongLong(r->seq);
    int failed = number == NULL || PyDict_SetItem(self->seqs, id, number) < 0;
    Py_XDECREF(number);
    if (failed)
        quire_cache_free(self->cache, r);
    return failed ? -1 : 0;
}

static PyObject *allocate(vllm_cache *self, PyObject *request, PyObject *hits,
                          quire_allocate_params *p)
{
    quire_cache_request r = {0};
    quire_block_span new_blocks[VLLM_MAX_GROUPS];
    PyObject *id = NULL;
    PyObject *made = NULL;
    uint32_t num_to_cache;
    if (read_request(self, request, &r, &id) == 0 && read_hits(self, hits, p) == 0 &&
        prepare_encoder(self, p->num_encoder_tokens) == 0 &&
        prepare_keys(self, request, &r, p, &num_to_cache) == 0) {
        int is_new = r.seq == 0;
        int status = call_library(self, &r, p, new_blocks);
        if (status == QUIRE_NO_SPACE) {
            made = Py_None;
            Py_INCREF(made);
        } else if (status != QUIRE_OK) {
            refuse(self, status, &r, p);
        } else if ((!is_new || remember_seq(self, id, &r) == 0) &&
                   vllm_pool_flush(self->pool) == 0 &&
                   measure_all(self, &r, is_new, p, new_blocks) == 0 &&
                   (num_to_cache == 0 ||
                    cache_groups(self, &r, request, num_to_cache, VLLM_ALL_GROUPS) == 0)) {
            made = new_lists(self, new_blocks);
        }
    }
    Py_XDECREF(id);
    return made;
}

/* allocate_slots(request, new, new computed, hits, lookahead, external, delay, encoder) -> the new
 * blocks of each group, (): none were needed, None: there is no room. */
PyObject *vllm_cache_allocate(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *request;
    PyObject *hits;
    quire_allocate_params p = QUIRE_ALLOCATE_PARAMS_INIT;
    int delay;
    if (!PyArg_ParseTuple(args, "OO&O&OO&O&pO&", &request, vllm_to_u32, &p.num_new_tokens,
                          vllm_to_u32, &p.num_new_computed_tokens, &hits, vllm_to_u32,
                          &p.num_lookahead_tokens, vllm_to_u32, &p.num_external_computed_tokens,
                          &delay, vllm_to_u32, &p.num_encoder_tokens) ||
        vllm_cache_enter(self, 1) < 0)
        return NULL;
    p.delay_cache_blocks = (uint32_t)delay;
    return vllm_cache_leave(self, allocate(self, request, hits, &p));
}

/* can_fit(request, new computed, hits, external, encoder) */
PyObject *vllm_cache_can_fit(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *request;
    PyObject *hits;
    PyObject *id = NULL;
    PyObject *answer = NULL;
    quire_cache_request r = {0};
    quire_allocate_params p = QUIRE_ALLOCATE_PARAMS_INIT;
    if (!PyArg_ParseTuple(args, "OO&OO&O&", &request, vllm_to_u32, &p.num_new_computed_tokens,
                          &hits, vllm_to_u32, &p.num_external_computed_tokens, vllm_to_u32,
                          &p.num_encoder_tokens) ||
        vllm_cache_enter(self, 1) < 0)
        return NULL;
    if (read_request(self, request, &r, &id) == 0 && read_hits(self, hits, &p) == 0 &&
        prepare_encoder(self, p.num_encoder_tokens) == 0) {
        int status = quire_cache_can_fit_full_sequence(self->cache, &r, &p);
        if (status == QUIRE_OK || status == QUIRE_NO_SPACE)
            answer = PyBool_FromLong(status == QUIRE_OK);
        else
            vllm_raise(status, "can_fit_full_sequence");
    }
    Py_XDECREF(id);
    return vllm_cache_leave(self, answer);
}

/* ---- giving back --------------------------------------------------------------------------- */

static int free_row(vllm_cache *self, PyObject *id, uint32_t row, int only)
{
    quire_cache *cache = self->cache;
    uint32_t left = 0;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        if (only < 0 || g == (uint32_t)only)
            qr_group_free(&cache->groups[g], row);
        left |= cache->groups[g].rows[row].num_blocks;
    }
    cache->row_states[row].quiet_until = 0;
    return left == 0 ? vllm_cache_close_row(self, id, row) : 0;
}

/* free(request id, group): of one group, or of all. */
PyObject *vllm_cache_free(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *id;
    int group;
    uint32_t row;
    if (!PyArg_ParseTuple(args, "Oi", &id, &group) || vllm_cache_enter(self, 1) < 0)
        return NULL;
    int failed = vllm_cache_row(self, id, &row) < 0;
    if (!failed && row != QR_NIL)
        failed = free_row(self, id, row, group) < 0;
    PyObject *done = failed ? NULL : Py_None;
    Py_XINCREF(done);
    return vllm_cache_leave(self, done);
}

/* remove_skipped(request id, computed tokens, group) */
PyObject *vllm_cache_remove_skipped(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *id;
    uint32_t computed;
    int only;
    uint32_t row;
    if (!PyArg_ParseTuple(args, "OO&i", &id, vllm_to_u32, &computed, &only) ||
        vllm_cache_enter(self, 1) < 0)
        return NULL;
    int failed = vllm_cache_row(self, id, &row) < 0;
    for (uint32_t g = 0; !failed && row != QR_NIL && g < self->cache->num_groups; g++) {
        qr_group *group = &self->cache->groups[g];
        if ((only < 0 || g == (uint32_t)only) && group->ops->remove_skipped != NULL)
            group->ops->remove_skipped(group, row, computed);
    }
    PyObject *done = failed ? NULL : Py_None;
    Py_XINCREF(done);
    return vllm_cache_leave(self, done);
}

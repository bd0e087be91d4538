/* hashes.c - a request's block hashes, and the longest hit that they name.
 *
 *      request.block_hashes   [ b"..", b"..", b"..", ... ]      Python bytes, all of one length
 *      self->hashes           | 32 B | 32 B | 32 B | ...        as the library wants them
 *
 * A KVCacheManager is not told how long a hash is: the first one decides (16 or 32 bytes).
 *
 * One full group, which most models have, is looked up piece by piece, so that a prompt that is not
 * cached costs the copy of a few hashes only.
 */
#include "cache.h"

#include "base/quirks.h"

#include <string.h>

enum { PIECE = 128, LONG_DIGEST = 32, SHORT_DIGEST = 16 };

PyObject *vllm_hash_list(PyObject *hashes)
{
    if (!PyList_Check(hashes))
        return PySequence_List(hashes);
    Py_INCREF(hashes);
    return hashes;
}

/* The first hash tells the length of all. */
static int learn_digest(vllm_cache *self, Py_ssize_t len)
{
    if (len != LONG_DIGEST && len != SHORT_DIGEST) {
        PyErr_Format(PyExc_ValueError,
                     "a block hash of %zd bytes: quire.vllm's KVCacheManager takes 16 or 32 "
                     "(sha256, sha256_cbor, xxhash, xxhash_cbor)",
                     len);
        return -1;
    }
    self->digest_bytes = (uint32_t)len;
    for (uint32_t g = 0; g < self->cache->num_groups; g++) {
        qr_group *group = &self->cache->groups[g];
        group->key_stride = group->hash_len = group->hashes_joined * (uint32_t)len;
    }
    return 0;
}

static int refuse_hash(const vllm_cache *self, PyObject *hash, Py_ssize_t len)
{
    if (!PyBytes_Check(hash))
        PyErr_Format(PyExc_TypeError, "a block hash must be bytes, not %R", hash);
    else
        PyErr_Format(PyExc_ValueError,
                     "a block hash of %zd bytes, where all before had %u: one cache has one "
                     "hash function",
                     len, self->digest_bytes);
    return -1;
}

static int reserve_hashes(vllm_cache *self, size_t count)
{
    if (count * LONG_DIGEST <= self->hash_room)
        return 0;
    size_t room = 2 * self->hash_room;
    if (room < count * LONG_DIGEST)
        room = count * LONG_DIGEST;
    unsigned char *hashes = PyMem_Realloc(self->hashes, room);
    if (hashes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->hashes = hashes;
    self->hash_room = room;
    return 0;
}

/* One hash, whatever it is, through the interpreter's own functions. */
static int copy_hash(vllm_cache *self, PyObject *hash, size_t place)
{
    char *data;
    Py_ssize_t len;
    if (hash == NULL)
        return -1;
    if (PyBytes_AsStringAndSize(hash, &data, &len) < 0)
        return refuse_hash(self, hash, 0);
    if (self->digest_bytes == 0 && learn_digest(self, len) < 0)
        return -1;
    if ((size_t)len != self->digest_bytes)
        return refuse_hash(self, hash, len);
    memcpy(self->hashes + place * (size_t)len, data, (size_t)len);
    return 0;
}

int vllm_cache_load_hashes(vllm_cache *self, PyObject *list, uint32_t first, uint32_t end,
                           uint32_t place)
{
    if (end <= first)
        return 0;
    if (reserve_hashes(self, (size_t)place + end - first) < 0)
        return -1;
    for (uint32_t i = first; i < end; i++)
        if (copy_hash(self, PyList_GetItem(list, (Py_ssize_t)i), (size_t)place + i - first) < 0)
            return -1;
    return 0;
}

/* ---- the cache's own groups ---------------------------------------------------------------- */

/* How many of the group's first max_blocks blocks are cached one after the other, from the first
 * on; they go to `out`. With keeps the hashes that were loaded stay, else a piece at a time. */
static int find_run(vllm_cache *self, PyObject *list, const qr_group *group, uint32_t max_blocks,
                    uint32_t *out, int keeps, uint32_t *num_hit)
{
    uint32_t joined = group->hashes_joined;
    *num_hit = 0;
    while (*num_hit < max_blocks) {
        uint32_t n = max_blocks - *num_hit < PIECE ? max_blocks - *num_hit : PIECE;
        uint32_t place = keeps ? *num_hit * joined : 0;
        if (vllm_cache_load_hashes(self, list, *num_hit * joined, (*num_hit + n) * joined, place) <
            0)
            return -1;
        const unsigned char *hashes = self->hashes + (size_t)place * self->digest_bytes;
        qr_key first = {hashes, group->hash_len, group->id};
        uint32_t got = qr_map_get_run(&group->pool->map, first, n, out + *num_hit, 1);
        *num_hit += got;
        if (got < n)
            break;
    }
    return 0;
}

static PyObject *hit_lists(vllm_cache *self, uint32_t num_tokens)
{
    PyObject *lists = PyTuple_New((Py_ssize_t)self->cache->num_groups);
    for (uint32_t g = 0; lists != NULL && g < self->cache->num_groups; g++) {
        PyObject *list = vllm_pool_blocks(self->pool, self->spans[g].ids, self->spans[g].count);
        if (list == NULL)
            Py_CLEAR(lists);
        else
            PyTuple_SetItem(lists, (Py_ssize_t)g, list);
    }
    return lists == NULL ? NULL : Py_BuildValue("(NI)", lists, num_tokens);
}

static PyObject *find_one_full(vllm_cache *self, PyObject *list, uint32_t max_blocks)
{
    const quire_cache *cache = self->cache;
    uint32_t num_hit;
    if (find_run(self, list, &cache->groups[0], max_blocks, cache->hits[0], 0, &num_hit) < 0)
        return NULL;
    if (cache->sets[0].is_eagle && num_hit > 0)
        num_hit--;
    self->spans[0] = (quire_block_span){cache->hits[0], num_hit};
    return hit_lists(self, num_hit * cache->groups[0].block_size);
}

/* Loads the hashes that a lookup of several groups can look at. Where one is full, its run bounds
 * the hit of all: beyond it, one more block of each is looked at. */
static int load_for_all(vllm_cache *self, PyObject *list, uint32_t *num_hashes)
{
    const quire_cache *cache = self->cache;
    uint32_t loaded = 0;
    if (cache->num_sets > 1 && cache->sets[0].is_full) {
        const qr_group *group = &cache->groups[cache->sets[0].ids[0]];
        uint32_t max_blocks = *num_hashes / group->hashes_joined;
        uint32_t num_hit;
        if (find_run(self, list, group, max_blocks, cache->hits[group->id], 1, &num_hit) < 0)
            return -1;
        uint64_t tokens =
            (uint64_t)num_hit * group->block_size + 2 * (uint64_t)cache->lookup_alignment;
        loaded = num_hit * group->hashes_joined;
        if (tokens / cache->hash_block_size < *num_hashes)
            *num_hashes = (uint32_t)(tokens / cache->hash_block_size);
    }
    return vllm_cache_load_hashes(self, list, loaded, *num_hashes, loaded);
}

static PyObject *find_in_list(vllm_cache *self, PyObject *list, uint32_t num_tokens)
{
    quire_cache *cache = self->cache;
    uint32_t num_hit_tokens = 0;
    uint32_t num_hashes = 0;
    if (cache->enable_caching && num_tokens <= cache->max_model_len) {
        size_t given = (size_t)PyList_Size(list);
        num_hashes = (num_tokens - 1) / cache->hash_block_size;
        num_hashes = given < num_hashes ? (uint32_t)given : num_hashes;
        bool is_one_full = cache->num_groups == 1 && cache->groups[0].ops == &qr_full_ops;
        if (is_one_full && cache->is_plain)
            return find_one_full(self, list, num_hashes);
        if (load_for_all(self, list, &num_hashes) < 0)
            return NULL;
    }
    quire_cache_request request = {
        .num_tokens = num_tokens, .hashes = self->hashes, .num_hashes = num_hashes};
    int status = quire_cache_get_computed_blocks(cache, &request, self->spans, &num_hit_tokens);
    if (status == QUIRE_E_RANGE)
        return PyErr_Format(PyExc_ValueError, "a request of %u tokens, where max_model_len is %u",
                            num_tokens, cache->max_model_len);
    if (status != QUIRE_OK)
        return vllm_raise(status, "get_computed_blocks");
    return hit_lists(self, num_hit_tokens);
}

PyObject *vllm_cache_find(PyObject *self_object, PyObject *args)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyObject *hashes;
    uint32_t num_tokens;
    if (!PyArg_ParseTuple(args, "OO&", &hashes, vllm_to_u32, &num_tokens))
        return NULL;
    if (num_tokens == 0)
        return PyErr_Format(PyExc_ValueError, "a request without tokens has no computed blocks");
    if (vllm_cache_enter(self, 0) < 0)
        return NULL;
    PyObject *list = vllm_hash_list(hashes);
    PyObject *found = list == NULL ? NULL : find_in_list(self, list, num_tokens);
    Py_XDECREF(list);
    return vllm_cache_leave(self, found);
}

/* ---- any pool ------------------------------------------------------------------------------ */

/* What one call of find_hit looks up: some groups of one spec, with keys of their own. The library
 * finds groups and the places for their hits by the groups' ids. */
typedef struct hit_query {
    uint32_t ids[VLLM_MAX_GROUPS];
    uint32_t num_ids;
    qr_group *groups;
    uint32_t **out;
    uint32_t *blocks; /* max_blocks for each group */
    uint32_t max_blocks;
    unsigned char *keys;
} hit_query;

static void query_free(hit_query *query)
{
    PyMem_Free(query->groups);
    PyMem_Free(query->out);
    PyMem_Free(query->blocks);
    PyMem_Free(query->keys);
}

static int query_ids(hit_query *query, PyObject *ids, uint32_t *largest)
{
    Py_ssize_t count = PyList_Check(ids) ? PyList_Size(ids) : -1;
    if (count < 1 || count > VLLM_MAX_GROUPS) {
        PyErr_SetString(PyExc_ValueError, "kv_cache_group_ids must be a list of 1 to 64 numbers");
        return -1;
    }
    query->num_ids = (uint32_t)count;
    *largest = 0;
    for (uint32_t i = 0; i < query->num_ids; i++) {
        if (!vllm_to_u32(PyList_GetItem(ids, (Py_ssize_t)i), &query->ids[i]))
            return -1;
        if (query->ids[i] > QR_MAX_GROUP_ID) {
            PyErr_Format(PyExc_ValueError, "KV cache group %u is above %d", query->ids[i],
                         QR_MAX_GROUP_ID);
            return -1;
        }
        *largest = query->ids[i] > *largest ? query->ids[i] : *largest;
    }
    return 0;
}

static int query_groups(hit_query *query, PyObject *ids, const vllm_pool *pool,
                        const quire_layer_spec *spec)
{
    uint32_t largest;
    if (query_ids(query, ids, &largest) < 0)
        return -1;
    query->groups = PyMem_Calloc((size_t)largest + 1, sizeof(*query->groups));
    query->out = PyMem_Calloc((size_t)largest + 1, sizeof(*query->out));
    query->blocks =
        PyMem_Calloc((size_t)query->num_ids * query->max_blocks + 1, sizeof(*query->blocks));
    if (query->groups == NULL || query->out == NULL || query->blocks == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < query->num_ids; i++) {
        uint32_t id = query->ids[i];
        query->out[id] = query->blocks + (size_t)i * query->max_blocks;
        query->groups[id] = (qr_group){.ops = qr_group_ops_of(spec->kind),
                                       .pool = pool->pool,
                                       .id = id,
                                       .block_size = spec->block_size,
                                       .hashes_joined = 1,
                                       .quirks = qr_quirks(QUIRE_PROFILE_VLLM_0_20),
                                       .spec = *spec};
    }
    return 0;
}

static PyObject *query_run(hit_query *query, PyObject *pool, PyObject *hashes, uint32_t max_tokens,
                           int eagle, uint32_t alignment)
{
    size_t count = (size_t)PyList_Size(hashes);
    uint32_t hash_len = 0;
    if (count > query->max_blocks)
        count = query->max_blocks;
    query->keys = vllm_pool_keys(pool, hashes, 1, 0, (uint32_t)count, &hash_len);
    if (query->keys == NULL)
        return NULL;
    for (uint32_t i = 0; i < query->num_ids; i++)
        query->groups[query->ids[i]].key_stride = query->groups[query->ids[i]].hash_len = hash_len;
    qr_group_set set = {.ids = query->ids, .num_ids = query->num_ids};
    qr_lookup lookup = {.hashes = query->keys,
                        .num_hashes = (uint32_t)count,
                        .groups = query->groups,
                        .out = query->out};
    const qr_group_ops *ops = query->groups[query->ids[0]].ops;
    uint32_t n = ops->find(&set, &lookup, max_tokens, eagle != 0, alignment);
    PyObject *lists = PyTuple_New((Py_ssize_t)query->num_ids);
    for (uint32_t i = 0; lists != NULL && i < query->num_ids; i++) {
        PyObject *list = vllm_pool_blocks(pool, query->out[query->ids[i]], n);
        if (list == NULL)
            Py_CLEAR(lists);
        else
            PyTuple_SetItem(lists, (Py_ssize_t)i, list);
    }
    return lists;
}

/* What the library's lookups take for granted. */
static int check_query(const vllm_pool *pool, const quire_layer_spec *spec, int eagle,
                       uint32_t alignment)
{
    const qr_group_ops *ops = qr_group_ops_of(spec->kind);
    const char *wrong = NULL;
    if (vllm_check_open(pool) < 0)
        return -1;
    if (ops == NULL || ops->find == NULL)
        wrong = "layers of this kind have no prefix caching";
    else if (!pool->pool->enable_caching)
        wrong = "the pool has no prefix caching";
    else if (alignment == 0 || spec->block_size == 0)
        wrong = "block_size and alignment_tokens must be 1 or more";
    else if (spec->kind == QUIRE_LAYER_CHUNKED_LOCAL && (eagle || alignment != spec->block_size))
        wrong = "chunked local attention goes with neither EAGLE nor other block sizes";
    else if (pool->overlay != NULL && PyDict_Size(pool->overlay) > 0)
        wrong = "the prefix cache has entries for blocks that are not the pool's";
    if (wrong != NULL)
        PyErr_Format(PyExc_ValueError, "find_longest_cache_hit: %s", wrong);
    return wrong == NULL ? 0 : -1;
}

/* find_hit(pool, [group], hashes, max_length, group ids, eagle, alignment) -> blocks by group */
PyObject *vllm_find_hit(PyObject *type, PyObject *args)
{
    PyObject *pool;
    PyObject *groups;
    PyObject *hashes;
    PyObject *ids;
    uint32_t max_tokens;
    uint32_t alignment;
    int eagle;
    (void)type;
    if (!PyArg_ParseTuple(args, "OOOO&OpO&", &pool, &groups, &hashes, vllm_to_u32, &max_tokens,
                          &ids, &eagle, vllm_to_u32, &alignment) ||
        !vllm_is_pool(pool))
        return NULL;
    vllm_cache_plan *plan = PyMem_Calloc(1, sizeof(*plan));
    if (plan == NULL)
        return PyErr_NoMemory();
    quire_layer_spec spec = {0};
    int failed = vllm_plan_groups(plan, groups) < 0;
    if (!failed)
        spec = plan->groups[0].spec;
    PyMem_Free(plan);
    if (failed || check_query((vllm_pool *)pool, &spec, eagle, alignment) < 0)
        return NULL;
    PyObject *list = vllm_hash_list(hashes);
    PyObject *found = NULL;
    hit_query query = {.max_blocks = max_tokens / spec.block_size};
    if (list != NULL && query_groups(&query, ids, (vllm_pool *)pool, &spec) == 0)
        found = query_run(&query, pool, list, max_tokens, eagle, alignment);
    query_free(&query);
    Py_XDECREF(list);
    return found;
}

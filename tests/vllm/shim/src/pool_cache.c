/* pool_cache.c - BlockPool's prefix cache: finding blocks, giving and taking keys, events.
 *
 *      cache_full_blocks:  request.block_hashes ──► keys, one array ──► one call of the library
 *
 * Events are vLLM's objects, made by methods of the Python class. The library's hook only notes
 * what a block lost; it is told when the call is over, so that no Python code runs inside one.
 */
#include "pool.h"

#include <string.h>

int vllm_pool_measure(vllm_pool *pool, const char *method, PyObject *block)
{
    if (pool->metrics == Py_None)
        return 0;
    PyObject *name = PyUnicode_InternFromString(method); /* one that the type's cache knows */
    PyObject *answer =
        name == NULL ? NULL : PyObject_CallMethodObjArgs(pool->metrics, name, block, NULL);
    Py_XDECREF(name);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* ---- events ------------------------------------------------------------------- */

/* Steals the event; NULL: making it failed. */
static int append_event(vllm_pool *pool, PyObject *event)
{
    if (event == NULL)
        return -1;
    int failed = -1;
    if (pool->events != NULL && PyList_Check(pool->events))
        failed = PyList_Append(pool->events, event);
    else
        PyErr_SetString(PyExc_TypeError, "kv_event_queue must be a list");
    Py_DECREF(event);
    return failed;
}

static int tell_removed(vllm_pool *pool, PyObject *block_hash)
{
    PyObject *name = PyUnicode_InternFromString("_removed");
    PyObject *event = NULL;
    if (name != NULL)
        event = PyObject_CallMethodObjArgs((PyObject *)pool, name, block_hash, NULL);
    Py_XDECREF(name);
    return append_event(pool, event);
}

/* The block_hash that a block lost: of a key that was made from other bytes, those. */
static PyObject *lost_hash(const vllm_pool *pool, const quire_event *event)
{
    vllm_key made;
    const vllm_block *block =
        pool->blocks == NULL ? NULL : (vllm_block *)pool->blocks[event->blocks[0]];
    if (event->hash_bytes == VLLM_KEY_BYTES && block != NULL && block->hash != NULL &&
        vllm_key_parse(pool, block->hash, &made) > 0 && made.key.len == event->hash_bytes &&
        memcmp(made.key.hash, event->hashes, event->hash_bytes) == 0) {
        Py_INCREF(block->hash);
        return block->hash;
    }
    return vllm_key_bytes(event->hashes, event->hash_bytes, event->group_id);
}

void vllm_pool_note_removed(void *user, const quire_event *event)
{
    vllm_pool *pool = user;
    if (event->kind != QUIRE_EVENT_REMOVED)
        return;
    if (pool->removed == NULL)
        pool->removed = PyList_New(0);
    PyObject *hash = pool->removed == NULL ? NULL : lost_hash(pool, event);
    if (hash == NULL || PyList_Append(pool->removed, hash) < 0) {
        PyErr_Clear(); /* the library is at work; flush raises it */
        pool->has_missed = 1;
    }
    Py_XDECREF(hash);
}

/* The notes are taken away first: making events runs Python code, which may come back here. */
int vllm_pool_flush(PyObject *self)
{
    vllm_pool *pool = (vllm_pool *)self;
    PyObject *removed = pool->removed;
    int failed = pool->has_missed;
    if (removed == NULL && !failed)
        return 0;
    pool->removed = NULL;
    pool->has_missed = 0;
    if (failed)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(removed); i++)
        failed = tell_removed(pool, PyList_GetItem(removed, i)) < 0;
    Py_XDECREF(removed);
    return failed ? -1 : 0;
}

/* The hashes of blocks, None for null blocks; and the one before the first, or None. */
static PyObject *stored_hashes(PyObject *hashes, uint32_t scale, const quire_block *ids,
                               uint32_t first, uint32_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        PyObject *hash = Py_None;
        if (ids[i] == QUIRE_NULL_BLOCK)
            Py_INCREF(hash);
        else
            hash = vllm_hash_at(hashes, scale, first + i);
        if (hash == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, hash);
    }
    return list;
}

/* What one call of cache_full_blocks is about. */
typedef struct full_blocks {
    PyObject *request;
    PyObject *hashes;       /* request.block_hashes */
    PyObject *blocks;       /* a list: those that get keys; NULL: of the pool, by ids */
    const quire_block *ids; /* the same, 0 for null blocks and for blocks of no pool */
    uint32_t scale;         /* hashes in a block */
    uint32_t first;
    uint32_t n;
    uint32_t block_size;
    uint32_t group_id;
} full_blocks;

static PyObject *make_stored(vllm_pool *pool, const full_blocks *full, PyObject *hashes,
                             PyObject *parent)
{
    PyObject *name = PyUnicode_InternFromString("_stored");
    PyObject *make = name == NULL ? NULL : PyObject_GetAttr((PyObject *)pool, name);
    PyObject *event = NULL;
    if (make != NULL)
        event = PyObject_CallFunction(make, "OOIIOI", full->request, hashes, full->group_id,
                                      full->first, parent, full->block_size);
    Py_XDECREF(name);
    Py_XDECREF(make);
    return event;
}

static int tell_stored(vllm_pool *pool, const full_blocks *full, const quire_block *shown)
{
    if (!pool->enable_events)
        return 0;
    PyObject *parent = Py_None;
    if (full->first == 0)
        Py_INCREF(parent);
    else
        parent = vllm_hash_at(full->hashes, full->scale, full->first - 1);
    PyObject *hashes = stored_hashes(full->hashes, full->scale, shown, full->first, full->n);
    PyObject *event = NULL;
    if (parent != NULL && hashes != NULL)
        event = make_stored(pool, full, hashes, parent);
    Py_XDECREF(parent);
    Py_XDECREF(hashes);
    return append_event(pool, event);
}

/* ---- cache_full_blocks ---------------------------------------------------------- */

static int raise_cached(int64_t id)
{
    PyErr_Format(PyExc_AssertionError, "block %lld has a hash already, or is listed twice",
                 (long long)id);
    return -1;
}

/* The block_hash that the i-th of the blocks gets. */
static PyObject *key_at(const full_blocks *full, uint32_t i)
{
    PyObject *hash = vllm_hash_at(full->hashes, full->scale, full->first + i);
    if (hash == NULL)
        return NULL;
    PyObject *key =
        vllm_key_bytes(PyBytes_AsString(hash), (size_t)PyBytes_Size(hash), full->group_id);
    Py_DECREF(hash);
    return key;
}

/* One by one, as vLLM does: into the pool's map or its overlay. */
static int cache_each(vllm_pool *pool, const full_blocks *full)
{
    for (uint32_t i = 0; i < full->n; i++) {
        vllm_block *block =
            (vllm_block *)(full->blocks == NULL ? pool->blocks[full->ids[i]]
                                                : PyList_GetItem(full->blocks, (Py_ssize_t)i));
        if (block->is_null)
            continue;
        PyObject *old = vllm_block_hash(block);
        int is_cached = old != Py_None;
        Py_XDECREF(old);
        if (old == NULL || is_cached)
            return old == NULL ? -1 : raise_cached(block->id);
        PyObject *key = key_at(full, i);
        if (key == NULL)
            return -1;
        vllm_block_stamp(block, key);
        int failed = vllm_map_insert(pool, key, (PyObject *)block);
        Py_DECREF(key);
        if (failed < 0)
            return -1;
    }
    return 0;
}

/* All blocks are the pool's, and the overlay is empty: one call. */
static int cache_in_pool(vllm_pool *pool, const full_blocks *full)
{
    uint32_t len;
    for (uint32_t i = 0; pool->blocks != NULL && i < full->n; i++)
        if (full->ids[i] != 0 && ((vllm_block *)pool->blocks[full->ids[i]])->is_stamp)
            return raise_cached(full->ids[i]);
    unsigned char *keys =
        vllm_pool_keys((PyObject *)pool, full->hashes, full->scale, full->first, full->n, &len);
    if (keys == NULL && pool->owner == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear(); /* hashes of several lengths do not fit one array */
        return cache_each(pool, full);
    }
    if (keys == NULL)
        return -1;
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = full->ids,
                                      .num_full_blocks = full->n,
                                      .hashes = keys,
                                      .hash_len = len,
                                      .num_hashes = full->n,
                                      .group_id = full->group_id};
    int status = quire_pool_cache_full_blocks(pool->pool, &params);
    PyMem_Free(keys);
    if (status == QUIRE_E_ALREADY_CACHED)
        return raise_cached(full->ids[0]);
    if (status != QUIRE_OK)
        vllm_raise(status, "cache_full_blocks");
    return status == QUIRE_OK ? 0 : -1;
}

/* Blocks whose keys were made from other bytes get these, to be shown as block_hash. */
static int keep_originals(vllm_pool *pool, const full_blocks *full)
{
    for (uint32_t i = 0; i < full->n; i++) {
        quire_block id = full->ids[i];
        if (id == 0 || qr_block_key_len(&pool->pool->queue.blocks[id]) != VLLM_KEY_BYTES)
            continue;
        PyObject *key = key_at(full, i);
        if (key == NULL)
            return -1;
        vllm_block *block = (vllm_block *)pool->blocks[id];
        vllm_block_stamp(block, key);
        block->is_stamp = 0;
        Py_DECREF(key);
    }
    return 0;
}

/* scale and hashes, and that there are enough of them. */
static int read_hashes(const vllm_pool *pool, full_blocks *full)
{
    uint32_t unit = pool->hash_block_size == 0 ? full->block_size : pool->hash_block_size;
    if (full->block_size == 0 || full->block_size % unit != 0) {
        PyErr_Format(PyExc_AssertionError, "block_size %u is not a multiple of hash_block_size %u",
                     (unsigned int)full->block_size, (unsigned int)unit);
        return -1;
    }
    full->scale = full->block_size / unit;
    PyObject *name = PyUnicode_InternFromString("block_hashes");
    full->hashes = name == NULL ? NULL : PyObject_GetAttr(full->request, name);
    Py_XDECREF(name);
    Py_ssize_t n = full->hashes == NULL ? -1 : PySequence_Size(full->hashes);
    if (n >= 0 && (uint64_t)n / full->scale < (uint64_t)full->first + full->n) {
        PyErr_Format(PyExc_AssertionError, "%zd hashes are not enough for %u blocks of %u hashes",
                     n, (unsigned int)(full->first + full->n), (unsigned int)full->scale);
        n = -1;
    }
    if (n < 0)
        Py_CLEAR(full->hashes);
    return n < 0 ? -1 : 0;
}

static int cache_window(vllm_pool *pool, full_blocks *full, const quire_block *shown, int is_odd)
{
    if (read_hashes(pool, full) < 0)
        return -1;
    int failed;
    if (is_odd || !pool->pool->enable_caching || PyDict_Size(pool->overlay) > 0)
        failed = cache_each(pool, full) < 0;
    else
        failed = cache_in_pool(pool, full) < 0 ||
                 (pool->owner == NULL && keep_originals(pool, full) < 0);
    failed = failed || tell_stored(pool, full, shown) < 0;
    Py_CLEAR(full->hashes);
    return failed ? -1 : 0;
}

int vllm_pool_cache_full(PyObject *self, PyObject *request, const quire_block *blocks,
                         uint32_t num_cached, uint32_t num_full, uint32_t block_size,
                         uint32_t group_id)
{
    vllm_pool *pool = (vllm_pool *)self;
    if (vllm_pool_make_blocks(pool) < 0)
        return -1;
    if (num_cached >= num_full)
        return 0;
    full_blocks full = {.request = request,
                        .ids = blocks + num_cached,
                        .first = num_cached,
                        .n = num_full - num_cached,
                        .block_size = block_size,
                        .group_id = group_id};
    return cache_window(pool, &full, full.ids, 0);
}

/* Numbers of the blocks that get keys. shown has 1 for a block of no pool, which is not null;
 * whether there is one, or -1. */
static int window_ids(const vllm_pool *pool, PyObject *blocks, quire_block *ids, quire_block *shown)
{
    Py_ssize_t n = PyList_Size(blocks);
    int is_odd = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(blocks, i);
        const vllm_block *block = (vllm_block *)item;
        ids[i] = 0;
        shown[i] = 0;
        if (vllm_is_block(item) && block->pool == NULL && block->kind == VLLM_BLOCK_REAL) {
            shown[i] = !block->is_null;
            is_odd = 1;
            continue;
        }
        int64_t id = vllm_pool_number(pool, item);
        if (id < 0)
            return -1;
        ids[i] = shown[i] = (quire_block)id;
    }
    return is_odd;
}

static int cache_list(vllm_pool *pool, full_blocks *full)
{
    if ((uint64_t)PyList_Size(full->blocks) != full->n) {
        PyErr_Format(PyExc_ValueError, "%u blocks are to be cached, and only %zd are given",
                     (unsigned int)full->n, PyList_Size(full->blocks));
        return -1;
    }
    quire_block *ids = PyMem_Malloc(2 * (size_t)full->n * sizeof *ids);
    if (ids == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int is_odd = window_ids(pool, full->blocks, ids, ids + full->n);
    full->ids = ids;
    int failed = is_odd < 0 ? -1 : cache_window(pool, full, ids + full->n, is_odd);
    PyMem_Free(ids);
    return failed;
}

PyObject *vllm_pool_cache_full_blocks(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "request",           "blocks", "num_cached_blocks", "num_full_blocks", "block_size",
        "kv_cache_group_id", NULL};
    PyObject *request;
    PyObject *blocks;
    long long num_cached;
    long long num_full;
    long long block_size;
    long long group_id;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOLLLL:cache_full_blocks", names, &request,
                                     &blocks, &num_cached, &num_full, &block_size, &group_id) ||
        vllm_pool_make_blocks((vllm_pool *)self) < 0)
        return NULL;
    if (num_cached >= num_full)
        Py_RETURN_NONE;
    if (num_cached < 0 || num_full > INT32_MAX || block_size < 1 || block_size > INT32_MAX ||
        group_id < 0 || group_id > QR_MAX_GROUP_ID) {
        PyErr_Format(PyExc_ValueError,
                     "blocks %lld to %lld of %lld tokens in group %lld: out of range", num_cached,
                     num_full, block_size, group_id);
        return NULL;
    }
    PyObject *window = PySequence_GetSlice(blocks, (Py_ssize_t)num_cached, (Py_ssize_t)num_full);
    PyObject *list = window == NULL ? NULL : PySequence_List(window);
    Py_XDECREF(window);
    if (list == NULL)
        return NULL;
    full_blocks full = {.request = request,
                        .blocks = list,
                        .first = (uint32_t)num_cached,
                        .n = (uint32_t)(num_full - num_cached),
                        .block_size = (uint32_t)block_size,
                        .group_id = (uint32_t)group_id};
    int failed = cache_list((vllm_pool *)self, &full);
    Py_DECREF(list);
    if (failed < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- finding --------------------------------------------------------------------- */

/* The block of one group, borrowed; NULL: there is none, or an exception. */
static PyObject *find_in_group(vllm_pool *pool, PyObject *hash, uint32_t group_id)
{
    vllm_key made;
    const char *data = PyBytes_AsString(hash);
    size_t len = (size_t)PyBytes_Size(hash);
    if (PyDict_Size(pool->overlay) > 0) {
        PyObject *key = vllm_key_bytes(data, len, group_id);
        PyObject *found = key == NULL ? NULL : vllm_entries_get_one(pool->overlay, key);
        Py_XDECREF(key);
        if (found != NULL || PyErr_Occurred())
            return found;
    }
    if (!vllm_key_of(pool, data, len, group_id, &made))
        return NULL;
    quire_block id = qr_map_get(&pool->pool->map, made.key);
    return id == 0 ? NULL : pool->blocks[id];
}

/* A list of the blocks of all groups; NULL: one has none, or an exception. */
static PyObject *find_in_groups(vllm_pool *pool, PyObject *hash, PyObject *groups)
{
    int is_list = PyList_Check(groups);
    Py_ssize_t n = is_list ? PyList_Size(groups) : PyTuple_Size(groups);
    PyObject *found = PyList_New(n);
    for (Py_ssize_t i = 0; found != NULL && i < n; i++) {
        PyObject *given = is_list ? PyList_GetItem(groups, i) : PyTuple_GetItem(groups, i);
        unsigned long long group_id = PyLong_AsUnsignedLongLong(given);
        PyObject *block = NULL;
        if (group_id <= UINT32_MAX) /* -1 with an exception is above it */
            block = find_in_group(pool, hash, (uint32_t)group_id);
        if (block == NULL) {
            Py_CLEAR(found);
        } else {
            Py_INCREF(block);
            PyList_SetItem(found, i, block);
        }
    }
    return found;
}

PyObject *vllm_pool_get_cached_block(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                                     PyObject *names)
{
    static const char *const expected[] = {"block_hash", "kv_cache_group_ids"};
    vllm_pool *pool = (vllm_pool *)self;
    PyObject *given[2];
    if (vllm_arguments(args, num_args, names, expected, 2, given) < 0 ||
        vllm_pool_make_blocks(pool) < 0)
        return NULL;
    if (!PyBytes_Check(given[0])) {
        PyErr_Format(PyExc_TypeError, "block_hash must be bytes, not %R", given[0]);
        return NULL;
    }
    PyObject *groups = PySequence_Fast(given[1], "kv_cache_group_ids must be a sequence of ints");
    if (groups == NULL)
        return NULL;
    PyObject *found = find_in_groups(pool, given[0], groups);
    Py_DECREF(groups);
    if (found == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return found;
}

/* ---- evicting --------------------------------------------------------------------- */

int vllm_pool_evict(vllm_pool *pool, vllm_block *block)
{
    if (block->pool == pool && qr_block_has_key(&pool->pool->queue.blocks[block->id])) {
        quire_block id = (quire_block)block->id;
        int status = quire_pool_evict_blocks(pool->pool, &id, 1);
        if (status != QUIRE_OK)
            vllm_raise(status, "evict_blocks");
        return status != QUIRE_OK || vllm_pool_flush((PyObject *)pool) < 0 ? -1 : 1;
    }
    PyObject *found;
    if (!block->is_stamp)
        return 0;
    if (vllm_entries_pop(pool->overlay, block->hash, block->id, &found) < 0)
        return -1;
    if (found == NULL)
        return 0;
    Py_DECREF(found);
    PyObject *hash = block->hash;
    Py_INCREF(hash);
    vllm_block_stamp(block, NULL);
    int failed = pool->enable_events && tell_removed(pool, hash) < 0;
    Py_DECREF(hash);
    return failed ? -1 : 1;
}

PyObject *vllm_pool_maybe_evict(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                                PyObject *names)
{
    vllm_pool *pool = (vllm_pool *)self;
    PyObject *block = vllm_argument(args, num_args, names, "block");
    if (block == NULL || vllm_check_open(pool) < 0)
        return NULL;
    int is_free = vllm_is_block(block) && ((vllm_block *)block)->pool == NULL;
    if (!is_free && vllm_pool_number(pool, block) < 0)
        return NULL;
    if (vllm_pool_measure(pool, "on_block_evicted", block) < 0)
        return NULL;
    int evicted = vllm_pool_evict(pool, (vllm_block *)block);
    return evicted < 0 ? NULL : PyBool_FromLong(evicted);
}

/* All are checked before the first is evicted. */
static int check_ids(const vllm_pool *pool, PyObject *ids)
{
    Py_ssize_t n = PyList_Size(ids);
    for (Py_ssize_t i = 0; i < n; i++) {
        long long id = PyLong_AsLongLong(PyList_GetItem(ids, i));
        if (id == -1 && PyErr_Occurred())
            return -1;
        if (id < 0 || id >= pool->num_blocks) {
            PyErr_Format(PyExc_AssertionError,
                         "block_id %lld is not below the %u blocks of the pool; only ids that the "
                         "scheduler gave out can be evicted",
                         id, (unsigned int)pool->num_blocks);
            return -1;
        }
    }
    return 0;
}

PyObject *vllm_pool_evict_blocks(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                                 PyObject *names)
{
    vllm_pool *pool = (vllm_pool *)self;
    PyObject *given = vllm_argument(args, num_args, names, "block_ids");
    if (given == NULL || vllm_pool_make_blocks(pool) < 0)
        return NULL;
    PyObject *ids = PySequence_List(given);
    int failed = ids == NULL || check_ids(pool, ids) < 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(ids); i++) {
        PyObject *block = pool->blocks[PyLong_AsLongLong(PyList_GetItem(ids, i))];
        failed = vllm_pool_measure(pool, "on_block_evicted", block) < 0 ||
                 vllm_pool_evict(pool, (vllm_block *)block) < 0;
    }
    Py_XDECREF(ids);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* pool.c - Pool: a fixed pool of KV blocks with a prefix cache (quire/pool.h). */
#include "core.h"

typedef struct pool_object {
    py_handle base;
    uint32_t num_blocks;
    uint32_t hash_bytes;
} pool_object;

/* ---- making ---------------------------------------------------------------- */

static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"num_blocks", "enable_caching", "hash_bytes", "events", NULL};
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    int has_caching = 1;
    int has_events = 0;
    unsigned int num_blocks;
    unsigned int hash_bytes = 32;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "I|$pIp:Pool", names, &num_blocks, &has_caching,
                                     &hash_bytes, &has_events))
        return NULL;
    pool_object *self = py_new(type);
    if (self == NULL)
        return NULL;
    config.num_blocks = num_blocks;
    config.enable_caching = has_caching ? QUIRE_ON : QUIRE_OFF;
    config.hash_bytes = hash_bytes;
    if (has_events) {
        config.on_event = py_event_record;
        config.event_user = &self->base.events;
    }
    self->num_blocks = num_blocks;
    self->hash_bytes = hash_bytes > 0 ? hash_bytes : 32;
    quire_pool *pool = NULL;
    int err = quire_pool_create(&config, NULL, &pool);
    self->base.handle = err == QUIRE_OK ? pool : NULL;
    if (err != QUIRE_OK) {
        Py_DECREF((PyObject *)self);
        return py_raise_refused(PyType_GetModuleState(type), err, false);
    }
    return (PyObject *)self;
}

PY_CLOSE(pool, quire_pool_destroy)

/* ---- changing -------------------------------------------------------------- */

static PyObject *pool_take(PyObject *object, PyObject *argument)
{
    unsigned long long num = 0;
    PyObject *number = PyNumber_Index(argument);
    if (number != NULL)
        num = PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    PY_OPEN(quire_pool, pool);
    if (num >= ((pool_object *)object)->num_blocks)
        return py_fail(object, QUIRE_E_RANGE);
    quire_block *blocks = PyMem_Malloc((size_t)(num + 1) * sizeof *blocks);
    if (blocks == NULL)
        return PyErr_NoMemory();
    int err = quire_pool_get_new_blocks(pool, (uint32_t)num, blocks);
    PyObject *list = err == QUIRE_OK ? py_list_u32(blocks, (uint32_t)num) : py_fail(object, err);
    PyMem_Free(blocks);
    return list;
}

typedef int (*change_function)(quire_pool *, const quire_block *, uint32_t);

static PyObject *change_blocks(PyObject *object, PyObject *source, change_function change)
{
    py_ints blocks;
    if (py_ints_get(source, 'I', "blocks", &blocks) < 0)
        return NULL;
    quire_pool *pool = py_open(object);
    PyObject *done = pool != NULL ? py_done(object, change(pool, blocks.data, blocks.count)) : NULL;
    py_ints_release(&blocks);
    return done;
}

static PyObject *pool_free(PyObject *object, PyObject *source)
{
    return change_blocks(object, source, quire_pool_free_blocks);
}

static PyObject *pool_touch(PyObject *object, PyObject *source)
{
    return change_blocks(object, source, quire_pool_touch);
}

static PyObject *pool_evict(PyObject *object, PyObject *source)
{
    return change_blocks(object, source, quire_pool_evict_blocks);
}

static PyObject *pool_evict_cached(PyObject *object, PyObject *argument)
{
    uint32_t num_blocks = py_u32(argument);
    PY_OPEN(quire_pool, pool);
    return py_evict_cached(object, pool, num_blocks);
}

static PyObject *cache_blocks(PyObject *object, const py_ints *blocks, const py_hashes *hashes,
                              quire_cache_full_params *params)
{
    PY_OPEN(quire_pool, pool);
    if (params->num_full_blocks > blocks->count)
        return py_fail(object, QUIRE_E_RANGE);
    params->blocks = blocks->data;
    params->hashes = hashes->data;
    params->hash_len = hashes->hash_len;
    params->num_hashes = hashes->count;
    return py_done(object, quire_pool_cache_full_blocks(pool, params));
}

static PyObject *pool_cache(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"blocks",   "hashes",     "num_cached_blocks", "num_full_blocks",
                            "group_id", "block_size", "hash_len",          NULL};
    PyObject *block_source;
    PyObject *hash_source;
    PyObject *full = Py_None;
    quire_cache_full_params params = QUIRE_CACHE_FULL_PARAMS_INIT;
    unsigned int hash_len = 0;
    py_ints blocks;
    py_hashes hashes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$IOIII:cache", names, &block_source,
                                     &hash_source, &params.num_cached_blocks, &full,
                                     &params.group_id, &params.block_size, &hash_len) ||
        py_ints_get(block_source, 'I', "blocks", &blocks) < 0)
        return NULL;
    PyObject *done = NULL;
    if (py_hashes_get(hash_source, hash_len, &hashes) == 0) {
        unsigned long num_full = blocks.count < hashes.count ? blocks.count : hashes.count;
        if (full != Py_None)
            num_full = PyLong_AsUnsignedLong(full);
        params.num_full_blocks = num_full < UINT32_MAX ? (uint32_t)num_full : UINT32_MAX;
        if (!PyErr_Occurred())
            done = cache_blocks(object, &blocks, &hashes, &params);
        py_ints_release(&hashes);
    }
    py_ints_release(&blocks);
    return done;
}

PY_METHOD(pool_reset, quire_pool, quire_pool_reset_prefix_cache)

/* ---- finding --------------------------------------------------------------- */

typedef struct hit_rows {
    const quire_block *blocks;
    uint32_t num_groups;
} hit_rows;

static PyObject *make_hit(const void *rows, uint32_t i)
{
    const hit_rows *r = rows;
    PyObject *row = py_list_u32(r->blocks + (size_t)i * r->num_groups, r->num_groups);
    PyObject *tuple = row != NULL ? PyList_AsTuple(row) : NULL;
    Py_XDECREF(row);
    return tuple;
}

/* [7, 3] with one group, [(7, 4), (3, 8)] with two. */
static PyObject *hit_list(const quire_block *blocks, uint32_t num_hit, uint32_t num_groups)
{
    if (num_groups == 1)
        return py_list_u32(blocks, num_hit);
    return py_list_of(num_hit, make_hit, &(hit_rows){blocks, num_groups});
}

static PyObject *look_up(PyObject *object, const py_hashes *hashes, const uint32_t *groups,
                         uint32_t num_groups)
{
    uint32_t num_hit = 0;
    PY_OPEN(quire_pool, pool);
    if (hashes->count == 0)
        return PyList_New(0);
    quire_block *blocks = PyMem_Calloc((size_t)hashes->count * num_groups + 1, sizeof *blocks);
    if (blocks == NULL)
        return PyErr_NoMemory();
    int err = quire_pool_get_cached_prefix(pool, hashes->data, hashes->hash_len, hashes->count,
                                           groups, num_groups, blocks, &num_hit);
    PyObject *list = err == QUIRE_OK || err == QUIRE_MISS ? hit_list(blocks, num_hit, num_groups)
                                                          : py_fail(object, err);
    PyMem_Free(blocks);
    return list;
}

static PyObject *pool_lookup(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"hashes", "group_ids", "hash_len", NULL};
    static const uint32_t first_group = 0;
    PyObject *source;
    PyObject *group_source = Py_None;
    unsigned int hash_len = 0;
    py_ints groups;
    py_hashes hashes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O$I:lookup", names, &source, &group_source,
                                     &hash_len) ||
        py_ints_get(group_source, 'I', "group_ids", &groups) < 0)
        return NULL;
    PyObject *list = NULL;
    bool is_default = group_source == Py_None;
    if (py_hashes_get(source, hash_len, &hashes) == 0) {
        list = look_up(object, &hashes, is_default ? &first_group : groups.data,
                       is_default ? 1 : groups.count);
        py_ints_release(&hashes);
    }
    py_ints_release(&groups);
    return list;
}

/* ---- looking --------------------------------------------------------------- */

static PyObject *pool_block(PyObject *object, PyObject *argument)
{
    quire_block_info info;
    quire_block block = py_u32(argument);
    PY_OPEN(quire_pool, pool);
    PY_CALL(quire_pool_get_block(pool, block, &info));
    PyObject *hash = info.hash.data != NULL
                         ? PyBytes_FromStringAndSize(info.hash.data, (Py_ssize_t)info.hash.len)
                         : Py_NewRef(Py_None);
    if (hash == NULL)
        return NULL;
    return Py_BuildValue("{s:I,s:I,s:N,s:C}", "ref_cnt", info.ref_cnt, "group_id", info.group_id,
                         "hash", hash, "state", info.state);
}

static PyObject *pool_free_queue(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PY_OPEN(quire_pool, pool);
    uint32_t count = quire_pool_get_num_free_blocks(pool);
    quire_block *blocks = PyMem_Malloc(((size_t)count + 1) * sizeof *blocks);
    if (blocks == NULL)
        return PyErr_NoMemory();
    quire_pool_get_all_free_blocks(pool, blocks, count);
    PyObject *list = py_list_u32(blocks, count);
    PyMem_Free(blocks);
    return list;
}

static PyObject *pool_draw(PyObject *object, PyObject *args)
{
    unsigned int first = 0;
    unsigned int num = 0;
    if (!PyArg_ParseTuple(args, "|II:draw", &first, &num))
        return NULL;
    PY_OPEN(quire_pool, pool);
    uint32_t total = ((pool_object *)object)->num_blocks;
    if (PyTuple_Size(args) < 2)
        num = first < total ? total - first : 0;
    if (first > total || num > total - first)
        return py_fail(object, QUIRE_E_RANGE);
    char *text = PyMem_Malloc((size_t)num + 1);
    if (text == NULL)
        return PyErr_NoMemory();
    int err = quire_pool_draw(pool, first, num, text);
    PyObject *drawn =
        err == QUIRE_OK ? PyUnicode_FromStringAndSize(text, (Py_ssize_t)num) : py_fail(object, err);
    PyMem_Free(text);
    return drawn;
}

PY_METHOD(pool_check, quire_pool, quire_pool_check)
PY_NUMBERS(pool_usage, quire_pool, py_usage_dict, quire_pool_get_usage)

static PyObject *pool_take_events(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return py_event_list(&((py_handle *)object)->events);
}

static double level_of(const quire_pool *pool)
{
    return quire_usage_level(quire_pool_get_usage(pool));
}

static uint32_t count_keys(const quire_pool *pool)
{
    return quire_pool_get_counts(pool).num_keys;
}

PY_ATTRIBUTE(pool_num_free, quire_pool, PyLong_FromUnsignedLong, quire_pool_get_num_free_blocks)
PY_ATTRIBUTE(pool_share, quire_pool, PyFloat_FromDouble, level_of)
PY_ATTRIBUTE(pool_num_keys, quire_pool, PyLong_FromUnsignedLong, count_keys)

/* ---- the type -------------------------------------------------------------- */

static PyMethodDef pool_methods[] = {
    {"take", pool_take, METH_O,
     "take(num_blocks, /)\n--\n\nTakes blocks from the head of the free queue: a list of ids. "
     "NO_SPACE when fewer are free."},
    {"free", pool_free, METH_O,
     "free(blocks, /)\n--\n\nOne user less for each block; give a request's blocks last to first."},
    {"touch", pool_touch, METH_O, "touch(blocks, /)\n--\n\nOne more user for each block."},
    {"evict", pool_evict, METH_O, "evict(blocks, /)\n--\n\nTakes the keys from blocks."},
    {"evict_cached", pool_evict_cached, METH_O,
     "evict_cached(num_blocks, /)\n--\n\nEvicts cached blocks, the least recently freed first; "
     "returns how many there were."},
    {"cache", PY_KEYWORDS(pool_cache),
     "cache(blocks, hashes, *, num_cached_blocks=0, num_full_blocks=None, group_id=0, "
     "block_size=0, hash_len=0)\n--\n\nGives full blocks their keys, so that they can be found."},
    {"lookup", PY_KEYWORDS(pool_lookup),
     "lookup(hashes, group_ids=None, *, hash_len=0)\n--\n\nThe cached blocks of a prompt's hashes, "
     "up to the first miss: ids, or tuples of ids with several groups."},
    {"reset_prefix_cache", pool_reset, METH_NOARGS,
     "reset_prefix_cache()\n--\n\nTakes the keys from all blocks. BUSY while any is in use."},
    {"usage", pool_usage, METH_NOARGS,
     "usage()\n--\n\nA dict: total, empty, cached, active, null_blocks."},
    {"block", pool_block, METH_O, "block(block, /)\n--\n\nA dict: ref_cnt, group_id, hash, state."},
    {"free_queue", pool_free_queue, METH_NOARGS,
     "free_queue()\n--\n\nThe free blocks, those to be taken first at the head."},
    {"draw", pool_draw, METH_VARARGS,
     "draw(first=0, num_blocks=None, /)\n--\n\nOne letter for each block: 'NAAACCEECE'."},
    {"check", pool_check, METH_NOARGS,
     "check()\n--\n\nWalks the whole pool; E_CORRUPT when an invariant does not hold."},
    {"take_events", pool_take_events, METH_NOARGS,
     "take_events()\n--\n\nWhat the prefix cache did since the last call, as dicts."},
    {"close", pool_close, METH_NOARGS, "close()\n--\n\nFrees the memory; a second call is fine."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef pool_getset[] = {
    {"num_blocks", py_get_u32, NULL, "Blocks, the null block included.",
     PY_OFFSET(pool_object, num_blocks)},
    {"num_free", pool_num_free, NULL, "Blocks without a user.", NULL},
    {"num_keys", pool_num_keys, NULL, "Different keys that can be found.", NULL},
    {"usage_share", pool_share, NULL, "1 - free / (num_blocks - 1), as vLLM computes it.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PY_TYPE(pool, "quire.Pool",
        "Pool(num_blocks, *, enable_caching=True, hash_bytes=32, events=False)\n--\n\n"
        "A fixed pool of KV blocks with a prefix cache. Block 0 is the null block.")

/* map.c - BlockHashToBlockMap: from block_hash to a block, or to several in order.
 *
 *      stand-alone   a dictionary {key: block or {id: block}}, as vLLM's
 *      view          a pool's map, and before it the pool's overlay, a dictionary of the same form
 *
 * The pool's map cannot hold everything that vLLM's can: the null block, blocks of no pool, a
 * second key of one block. What it cannot hold goes to the overlay, together with the blocks that
 * have the same key, so that their order is kept:
 *
 *      a key of the overlay is not in the pool's map, unless the library put it there later
 */
#include "pool.h"

static PyTypeObject *map_type;

/* ---- a dictionary ------------------------------------------------------------ */

PyObject *vllm_entries_get_one(PyObject *entries, PyObject *key)
{
    PyObject *found = PyDict_GetItemWithError(entries, key);
    PyObject *first;
    PyObject *id;
    Py_ssize_t at = 0;
    if (found == NULL || vllm_is_block(found))
        return found;
    return PyDict_Check(found) && PyDict_Next(found, &at, &id, &first) ? first : NULL;
}

static int put_by_id(PyObject *several, PyObject *block)
{
    PyObject *id = PyLong_FromLongLong(((vllm_block *)block)->id);
    int failed = id == NULL || PyDict_SetItem(several, id, block) < 0;
    Py_XDECREF(id);
    return failed ? -1 : 0;
}

int vllm_entries_insert(PyObject *entries, PyObject *key, PyObject *block)
{
    PyObject *found = PyDict_GetItemWithError(entries, key);
    if (found == NULL)
        return PyErr_Occurred() ? -1 : PyDict_SetItem(entries, key, block);
    if (PyDict_Check(found))
        return put_by_id(found, block);
    PyObject *several = PyDict_New();
    int failed = several == NULL || put_by_id(several, found) < 0 ||
                 put_by_id(several, block) < 0 || PyDict_SetItem(entries, key, several) < 0;
    Py_XDECREF(several);
    return failed ? -1 : 0;
}

/* A new reference in *block, or NULL there. */
int vllm_entries_pop(PyObject *entries, PyObject *key, long long id, PyObject **block)
{
    PyObject *found = PyDict_GetItemWithError(entries, key);
    *block = NULL;
    if (found == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (vllm_is_block(found)) {
        if (((vllm_block *)found)->id != id)
            return 0;
        Py_INCREF(found);
        *block = found;
        return PyDict_DelItem(entries, key);
    }
    PyObject *number = PyLong_FromLongLong(id);
    PyObject *one = number == NULL ? NULL : PyDict_GetItemWithError(found, number);
    int failed = number == NULL || (one == NULL && PyErr_Occurred());
    if (one != NULL) {
        Py_INCREF(one);
        *block = one;
        failed = PyDict_DelItem(found, number) < 0 ||
                 (PyDict_Size(found) == 0 && PyDict_DelItem(entries, key) < 0);
    }
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

/* ---- the pool's map ----------------------------------------------------------- */

/* The block under a key; 0 when there is none. */
static quire_block find(const vllm_pool *pool, PyObject *key, vllm_key *made)
{
    if (vllm_key_parse(pool, key, made) <= 0)
        return 0;
    return qr_map_get(&pool->pool->map, made->key);
}

static int is_in_overlay(const vllm_pool *pool, PyObject *key)
{
    return PyDict_Size(pool->overlay) > 0 ? PyDict_Contains(pool->overlay, key) : 0;
}

/* Takes a block from the pool's map; it keeps the hash as its stamp. */
static int take_out(vllm_pool *pool, quire_block id, PyObject *key)
{
    vllm_block *block = (vllm_block *)pool->blocks[id];
    if (vllm_block_forget(block) < 0)
        return -1;
    vllm_block_stamp(block, key);
    return 0;
}

static int put_into_pool(vllm_pool *pool, const vllm_key *made, PyObject *key, vllm_block *block)
{
    quire_block id = (quire_block)block->id;
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = &id,
                                      .num_full_blocks = 1,
                                      .hashes = made->key.hash,
                                      .hash_len = made->key.len,
                                      .num_hashes = 1,
                                      .group_id = made->key.group_id};
    void (*on_event)(void *, const quire_event *) = pool->pool->on_event;
    pool->pool->on_event = NULL;
    int status = quire_pool_cache_full_blocks(pool->pool, &params);
    pool->pool->on_event = on_event;
    if (status != QUIRE_OK) {
        vllm_raise(status, "insert");
        return -1;
    }
    vllm_block_stamp(block, key);
    block->is_stamp = 0; /* the bytes that the key was made from */
    return 0;
}

/* All blocks under a key leave the pool's map for the overlay, in their order. */
static int move_to_overlay(vllm_pool *pool, const vllm_key *made, PyObject *key)
{
    quire_block id;
    while ((id = qr_map_get(&pool->pool->map, made->key)) != 0)
        if (take_out(pool, id, key) < 0 ||
            vllm_entries_insert(pool->overlay, key, pool->blocks[id]) < 0)
            return -1;
    return 0;
}

/* Whether the pool's map can have this block under this key, and nothing is written on it that says
 * otherwise. */
static int is_plain(const vllm_pool *pool, PyObject *key, const vllm_block *block)
{
    if (block->pool != pool || block->is_null ||
        qr_block_has_key(&pool->pool->queue.blocks[block->id]) || is_in_overlay(pool, key))
        return 0;
    return !block->is_stamp || PyObject_RichCompareBool(block->hash, key, Py_EQ) == 1;
}

static int has_this_key(const vllm_pool *pool, const vllm_block *block, PyObject *key)
{
    if (block->pool != pool || !qr_block_has_key(&pool->pool->queue.blocks[block->id]))
        return 0;
    PyObject *own = vllm_block_hash(block);
    int same = own != NULL && PyObject_RichCompareBool(own, key, Py_EQ) == 1;
    Py_XDECREF(own);
    return same;
}

int vllm_map_insert(vllm_pool *pool, PyObject *key, PyObject *object)
{
    vllm_key made;
    const vllm_block *block = (vllm_block *)object;
    if (vllm_pool_make_blocks(pool) < 0)
        return -1;
    if (!vllm_is_block(object) || block->kind != VLLM_BLOCK_REAL ||
        (block->pool != NULL && block->pool != pool)) {
        PyErr_Format(PyExc_ValueError, "%R is not a block of this pool", object);
        return -1;
    }
    int is_key = vllm_key_parse(pool, key, &made);
    if (is_key < 0)
        return -1;
    if (is_key && is_plain(pool, key, block))
        return put_into_pool(pool, &made, key, (vllm_block *)object);
    if (has_this_key(pool, block, key))
        return 0;
    if (pool->owner != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "the prefix cache of a scheduler or manager cannot have %R under the key %R",
                     object, key);
        return -1;
    }
    if (is_key && move_to_overlay(pool, &made, key) < 0)
        return -1;
    return vllm_entries_insert(pool->overlay, key, object);
}

/* ---- methods -------------------------------------------------------------------- */

/* 0: go on with the dictionary alone; 1: with a pool too. */
static int check_map(const vllm_map *map)
{
    if (map->pool == NULL)
        return 0;
    return vllm_pool_make_blocks(map->pool) < 0 ? -1 : 1;
}

static PyObject *map_get_one_block(PyObject *self, PyObject *key)
{
    vllm_map *map = (vllm_map *)self;
    vllm_key made;
    int has_pool = check_map(map);
    if (has_pool < 0)
        return NULL;
    PyObject *found = NULL;
    if (!has_pool || PyDict_Size(map->pool->overlay) > 0)
        found = vllm_entries_get_one(map->entries, key);
    if (found == NULL && !PyErr_Occurred() && has_pool) {
        quire_block id = find(map->pool, key, &made);
        found = id == 0 ? NULL : map->pool->blocks[id];
    }
    if (PyErr_Occurred())
        return NULL;
    if (found == NULL)
        found = Py_None;
    Py_INCREF(found);
    return found;
}

static PyObject *map_insert(PyObject *self, PyObject *args)
{
    vllm_map *map = (vllm_map *)self;
    PyObject *key;
    PyObject *block;
    if (!PyArg_ParseTuple(args, "SO:insert", &key, &block) || check_map(map) < 0)
        return NULL;
    if (!vllm_is_block(block)) {
        PyErr_Format(PyExc_TypeError, "insert() takes a KVCacheBlock, not %R", block);
        return NULL;
    }
    int failed = map->pool == NULL ? vllm_entries_insert(map->entries, key, block)
                                   : vllm_map_insert(map->pool, key, block);
    if (failed < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* A block of the pool's map by key and number; its stamp stays, as in vLLM. */
static int pop_from_pool(vllm_pool *pool, PyObject *key, long long id, PyObject **block)
{
    vllm_key made;
    quire_block first = find(pool, key, &made);
    quire_block at = first;
    if (first == 0)
        return PyErr_Occurred() ? -1 : 0;
    while (at != id && pool->pool->queue.blocks[at].dup_next != first)
        at = pool->pool->queue.blocks[at].dup_next;
    if (at != id)
        return 0;
    if (take_out(pool, at, key) < 0)
        return -1;
    *block = pool->blocks[at];
    Py_INCREF(*block);
    return 0;
}

static PyObject *map_pop(PyObject *self, PyObject *args)
{
    vllm_map *map = (vllm_map *)self;
    PyObject *key;
    PyObject *block = NULL;
    long long id;
    if (!PyArg_ParseTuple(args, "SL:pop", &key, &id))
        return NULL;
    int has_pool = check_map(map);
    if (has_pool < 0 || vllm_entries_pop(map->entries, key, id, &block) < 0)
        return NULL;
    if (block == NULL && has_pool && pop_from_pool(map->pool, key, id, &block) < 0)
        return NULL;
    if (block == NULL)
        Py_RETURN_NONE;
    return block;
}

static Py_ssize_t map_length(PyObject *self)
{
    vllm_map *map = (vllm_map *)self;
    vllm_key made;
    PyObject *key;
    PyObject *value;
    Py_ssize_t at = 0;
    int has_pool = check_map(map);
    if (has_pool < 0)
        return -1;
    Py_ssize_t n = PyDict_Size(map->entries);
    if (!has_pool)
        return n;
    while (PyDict_Next(map->entries, &at, &key, &value))
        n -= find(map->pool, key, &made) != 0;
    return n + (Py_ssize_t)quire_pool_get_counts(map->pool->pool).num_keys;
}

/* ---- what the mapping _cache is made of -------------------------------------------- */

static PyObject *map_keys(PyObject *self, PyObject *unused)
{
    const vllm_pool *pool = ((vllm_map *)self)->pool;
    (void)unused;
    if (check_map((vllm_map *)self) <= 0)
        return PyErr_Occurred() ? NULL : PyDict_Keys(((vllm_map *)self)->entries);
    PyObject *keys = PyDict_Keys(pool->overlay);
    for (uint32_t i = 1; keys != NULL && i < pool->num_blocks; i++) {
        const qr_block *record = &pool->pool->queue.blocks[i];
        if (!qr_block_has_key(record) || !record->is_first)
            continue;
        PyObject *key = vllm_block_hash((vllm_block *)pool->blocks[i]);
        int is_there = key == NULL ? -1 : is_in_overlay(pool, key);
        if (is_there < 0 || (is_there == 0 && PyList_Append(keys, key) < 0))
            Py_CLEAR(keys);
        Py_XDECREF(key);
    }
    return keys;
}

/* Its block, or a dictionary of several. */
static PyObject *map_entry(PyObject *self, PyObject *key)
{
    vllm_map *map = (vllm_map *)self;
    vllm_key made;
    int has_pool = check_map(map);
    PyObject *found = has_pool < 0 ? NULL : PyDict_GetItemWithError(map->entries, key);
    Py_XINCREF(found);
    if (found != NULL || PyErr_Occurred())
        return found;
    quire_block first = has_pool && PyBytes_Check(key) ? find(map->pool, key, &made) : 0;
    if (first == 0) {
        PyErr_SetObject(PyExc_KeyError, key);
        return NULL;
    }
    const qr_block *records = map->pool->pool->queue.blocks;
    if (records[first].dup_next == first)
        return vllm_pool_block((PyObject *)map->pool, first);
    PyObject *several = PyDict_New();
    quire_block at = first;
    do {
        if (several != NULL && put_by_id(several, map->pool->blocks[at]) < 0)
            Py_CLEAR(several);
        at = records[at].dup_next;
    } while (at != first);
    return several;
}

/* Takes all blocks from a key; whether there were any. */
static PyObject *map_drop(PyObject *self, PyObject *key)
{
    vllm_map *map = (vllm_map *)self;
    vllm_key made;
    int has_pool = check_map(map);
    int is_there = has_pool < 0 ? -1 : PyDict_Contains(map->entries, key);
    if (is_there < 0 || (is_there > 0 && PyDict_DelItem(map->entries, key) < 0))
        return NULL;
    quire_block id;
    while (has_pool && (id = find(map->pool, key, &made)) != 0) {
        is_there = 1;
        if (take_out(map->pool, id, key) < 0)
            return NULL;
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(is_there);
}

static PyObject *map_get_cache(PyObject *self, void *unused)
{
    vllm_map *map = (vllm_map *)self;
    (void)unused;
    if (map->pool == NULL) {
        Py_INCREF(map->entries);
        return map->entries;
    }
    PyObject *module = PyImport_ImportModule("quire_shim.block_pool");
    PyObject *name = PyUnicode_InternFromString("CachedBlocks");
    PyObject *view = NULL;
    if (module != NULL && name != NULL)
        view = PyObject_CallMethodObjArgs(module, name, self, NULL);
    Py_XDECREF(module);
    Py_XDECREF(name);
    return view;
}

/* ---- the type ---------------------------------------------------------------------- */

static PyObject *map_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":BlockHashToBlockMap", names))
        return NULL;
    vllm_map *map = (vllm_map *)PyType_GenericAlloc(type, 0);
    if (map == NULL)
        return NULL;
    map->entries = PyDict_New();
    if (map->entries == NULL)
        Py_CLEAR(map);
    return (PyObject *)map;
}

PyObject *vllm_map_view(vllm_pool *pool)
{
    if (vllm_check_open(pool) < 0)
        return NULL;
    vllm_map *map = (vllm_map *)PyType_GenericAlloc(map_type, 0);
    if (map == NULL)
        return NULL;
    Py_INCREF((PyObject *)pool);
    map->pool = pool;
    Py_INCREF(pool->overlay);
    map->entries = pool->overlay;
    return (PyObject *)map;
}

static int map_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((vllm_map *)self)->pool);
    Py_VISIT(((vllm_map *)self)->entries);
    return 0;
}

static void map_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF((PyObject *)((vllm_map *)self)->pool);
    Py_XDECREF(((vllm_map *)self)->entries);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef map_methods[] = {
    {"get_one_block", map_get_one_block, METH_O, "get_one_block(key): the first block, or None"},
    {"insert", map_insert, METH_VARARGS, "insert(key, block): as the last under this key"},
    {"pop", map_pop, METH_VARARGS, "pop(key, block_id): that block, or None"},
    {"_keys", map_keys, METH_NOARGS, "_keys(): all keys, in no order"},
    {"_entry", map_entry, METH_O, "_entry(key): a block, or {id: block}"},
    {"_drop", map_drop, METH_O, "_drop(key): whether it was there"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef map_fields[] = {
    {"_cache", map_get_cache, NULL, "{key: block, or {id: block}}", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot map_slots[] = {
    {Py_tp_new, (void *)map_new},
    {Py_tp_dealloc, (void *)map_dealloc},
    {Py_tp_traverse, (void *)map_traverse},
    {Py_tp_methods, map_methods},
    {Py_tp_getset, map_fields},
    {Py_mp_length, (void *)map_length},
    {Py_tp_doc, "BlockHashToBlockMap(): blocks of the prefix cache by their block_hash"},
    {0, NULL}};
static PyType_Spec map_spec = {.name = "_quire_shim.BlockHashToBlockMap",
                               .basicsize = (int)sizeof(vllm_map),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                               .slots = map_slots};

PyObject *vllm_map_make_type(PyObject *module)
{
    (void)module;
    PyObject *type = PyType_FromSpec(&map_spec);
    Py_XINCREF(type);
    map_type = (PyTypeObject *)type;
    return type;
}

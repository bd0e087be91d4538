/* pool.c - BlockPool's C side: a quire_pool, and the objects of its blocks.
 *
 *      owner == NULL    the pool is ours: keys of any length, events, metrics, an overlay
 *      owner != NULL    the pool of a scheduler or a cache, which goes on changing it; what would
 *                       be seen here alone and not by the owner is refused
 *
 * Objects are made all at once, when the first is asked for, and stay: a block is one object as
 * long as the pool lives.
 */
#include "pool.h"

#include <structmember.h>

/* ---- objects of blocks ------------------------------------------------------ */

static void drop_blocks(vllm_pool *pool)
{
    Py_CLEAR(pool->list);
    for (int i = 0; i < 2; i++) {
        if (pool->ends[i] != NULL)
            vllm_block_detach(pool->ends[i]);
        Py_CLEAR(pool->ends[i]);
    }
    PyObject **blocks = pool->blocks;
    pool->blocks = NULL;
    for (uint32_t i = 0; blocks != NULL && i < pool->num_blocks; i++) {
        vllm_block *block = (vllm_block *)blocks[i];
        if (block != NULL && Py_REFCNT(blocks[i]) > 1) /* somebody will look at it */
            vllm_block_detach(block);
        Py_XDECREF((PyObject *)block);
    }
    PyMem_Free(blocks);
}

static vllm_block *make_block(vllm_pool *pool, int64_t id, int kind)
{
    vllm_block *block = vllm_block_make(id, kind, id == QUIRE_NULL_BLOCK);
    if (block == NULL)
        return NULL;
    block->pool = pool;
    return block;
}

int vllm_pool_make_blocks(vllm_pool *pool)
{
    if (pool->blocks != NULL)
        return 0;
    if (vllm_check_open(pool) < 0)
        return -1;
    pool->blocks = PyMem_Calloc(pool->num_blocks, sizeof *pool->blocks);
    if (pool->blocks == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    pool->ends[0] = make_block(pool, -1, VLLM_BLOCK_HEAD);
    pool->ends[1] = make_block(pool, -1, VLLM_BLOCK_TAIL);
    int failed = pool->ends[0] == NULL || pool->ends[1] == NULL;
    for (uint32_t i = 0; !failed && i < pool->num_blocks; i++) {
        pool->blocks[i] = (PyObject *)make_block(pool, i, VLLM_BLOCK_REAL);
        failed = pool->blocks[i] == NULL;
    }
    if (failed)
        drop_blocks(pool);
    return failed ? -1 : 0;
}

PyObject *vllm_pool_block(PyObject *self, quire_block id)
{
    vllm_pool *pool = (vllm_pool *)self;
    if (vllm_pool_make_blocks(pool) < 0)
        return NULL;
    if (id >= pool->num_blocks) {
        PyErr_Format(PyExc_IndexError, "block %u is not below the %u of the pool", (unsigned int)id,
                     (unsigned int)pool->num_blocks);
        return NULL;
    }
    Py_INCREF(pool->blocks[id]);
    return pool->blocks[id];
}

PyObject *vllm_pool_blocks(PyObject *self, const quire_block *ids, uint32_t n)
{
    vllm_pool *pool = (vllm_pool *)self;
    if (vllm_pool_make_blocks(pool) < 0)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= pool->num_blocks)
            return vllm_pool_block(self, ids[i]);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        Py_INCREF(pool->blocks[ids[i]]);
        PyList_SetItem(list, (Py_ssize_t)i, pool->blocks[ids[i]]);
    }
    return list;
}

int64_t vllm_pool_number(const vllm_pool *pool, PyObject *object)
{
    if (!vllm_is_block(object)) {
        PyErr_Format(PyExc_TypeError, "a KVCacheBlock is expected, not %R", object);
        return -1;
    }
    const vllm_block *block = (vllm_block *)object;
    if (block->pool == pool && block->kind == VLLM_BLOCK_REAL)
        return block->id;
    PyErr_Format(PyExc_ValueError, "%R is not a block of this pool; take it from pool.blocks",
                 object);
    return -1;
}

int vllm_pool_ids(PyObject *self, PyObject *sequence, quire_block *ids, uint32_t capacity)
{
    PyObject *fast = PySequence_Fast(sequence, "a sequence of KVCacheBlocks is expected");
    if (fast == NULL)
        return -1;
    int is_list = PyList_Check(fast);
    Py_ssize_t n = is_list ? PyList_Size(fast) : PyTuple_Size(fast);
    if ((size_t)n > capacity) {
        PyErr_Format(PyExc_ValueError, "%zd blocks are more than the %u there is room for", n,
                     (unsigned int)capacity);
        n = -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = is_list ? PyList_GetItem(fast, i) : PyTuple_GetItem(fast, i);
        int64_t id = vllm_pool_number((vllm_pool *)self, item);
        if (id < 0)
            n = -1;
        else
            ids[i] = (quire_block)id;
    }
    Py_DECREF(fast);
    return (int)n;
}

/* ---- making and ending --------------------------------------------------------- */

static int check_number(long long value, const char *what, long long most)
{
    if (value > 0 && value <= most)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s must be from 1 to %lld, not %lld", what, most, value);
    return -1;
}

static int make_pool(vllm_pool *pool, uint32_t num_blocks)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    config.num_blocks = num_blocks;
    config.enable_caching = pool->enable_caching ? QUIRE_ON : QUIRE_OFF;
    config.hash_bytes = VLLM_KEY_BYTES;
    config.on_event = pool->enable_events ? vllm_pool_note_removed : NULL;
    config.event_user = pool;
    int status = quire_pool_create(&config, NULL, &pool->pool);
    if (status != QUIRE_OK) {
        vllm_raise(status, "BlockPool");
        return -1;
    }
    pool->num_blocks = num_blocks;
    return 0;
}

static int pool_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"num_gpu_blocks",         "enable_caching",    "hash_block_size",
                            "enable_kv_cache_events", "metrics_collector", NULL};
    vllm_pool *pool = (vllm_pool *)self;
    long long num_blocks;
    long long hash_block_size;
    int enable_caching;
    int enable_events = 0;
    PyObject *metrics = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "LpL|pO:BlockPool", names, &num_blocks,
                                     &enable_caching, &hash_block_size, &enable_events, &metrics))
        return -1;
    if (check_number(num_blocks, "num_gpu_blocks", QUIRE_MAX_BLOCKS) < 0 ||
        check_number(hash_block_size, "hash_block_size", INT32_MAX) < 0)
        return -1;
    if (pool->pool != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the BlockPool is initialised already");
        return -1;
    }
    pool->hash_block_size = (unsigned int)hash_block_size;
    pool->enable_caching = (char)enable_caching;
    pool->enable_events = (char)enable_events;
    PyObject *old = pool->metrics;
    Py_INCREF(metrics);
    pool->metrics = metrics;
    Py_XDECREF(old);
    return make_pool(pool, (uint32_t)num_blocks);
}

static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    vllm_pool *pool = (vllm_pool *)PyType_GenericAlloc(type, 0);
    if (pool == NULL)
        return NULL;
    pool->events = PyList_New(0);
    pool->overlay = PyDict_New();
    Py_INCREF(Py_None);
    pool->metrics = Py_None;
    if (pool->events == NULL || pool->overlay == NULL)
        Py_CLEAR(pool);
    return (PyObject *)pool;
}

/* The class that Python sees, with an object that has no pool yet. */
static vllm_pool *make_view(void)
{
    PyObject *module = PyImport_ImportModule("quire_shim.block_pool");
    PyObject *type = module == NULL ? NULL : PyObject_GetAttrString(module, "BlockPool");
    Py_XDECREF(module);
    if (type == NULL)
        return NULL;
    PyObject *view = PyObject_CallMethod(type, "__new__", "O", type);
    Py_DECREF(type);
    return (vllm_pool *)view;
}

PyObject *vllm_pool_wrap(quire_pool *pool, PyObject *owner)
{
    vllm_pool *view = make_view();
    if (view == NULL)
        return NULL;
    Py_INCREF(owner);
    view->owner = owner;
    view->pool = pool;
    view->num_blocks = pool->queue.num_blocks;
    view->enable_caching = pool->enable_caching;
    return (PyObject *)view;
}

void vllm_pool_close(PyObject *self)
{
    vllm_pool *pool = (vllm_pool *)self;
    quire_pool *gone = pool->pool;
    if (gone == NULL)
        return;
    if (pool->withheld != NULL && pool->owner != NULL)
        quire_pool_free_blocks(gone, pool->withheld, pool->num_withheld);
    drop_blocks(pool);
    pool->pool = NULL;
    if (pool->owner == NULL)
        quire_pool_destroy(gone);
    PyMem_Free(pool->withheld);
    pool->withheld = NULL;
    Py_CLEAR(pool->removed);
}

static int pool_traverse(PyObject *self, visitproc visit, void *arg)
{
    vllm_pool *pool = (vllm_pool *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(pool->owner);
    Py_VISIT(pool->list);
    Py_VISIT(pool->events);
    Py_VISIT(pool->metrics);
    Py_VISIT(pool->overlay);
    return 0;
}

static int pool_clear(PyObject *self)
{
    vllm_pool *pool = (vllm_pool *)self;
    vllm_pool_close(self);
    Py_CLEAR(pool->owner);
    Py_CLEAR(pool->events);
    Py_CLEAR(pool->metrics);
    Py_CLEAR(pool->overlay);
    return 0;
}

static void pool_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    pool_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- looking ------------------------------------------------------------------------ */

/* Whether no block was in use, and all hashes are gone. */
static PyObject *pool_reset(PyObject *self, PyObject *unused)
{
    vllm_pool *pool = (vllm_pool *)self;
    (void)unused;
    if (vllm_check_open(pool) < 0)
        return NULL;
    if (pool->pool->queue.num_free + 1 != pool->num_blocks)
        Py_RETURN_FALSE;
    int status = quire_pool_reset_prefix_cache(pool->pool);
    if (status != QUIRE_OK)
        return status == QUIRE_BUSY ? PyBool_FromLong(0) : vllm_raise(status, "reset");
    PyDict_Clear(pool->overlay);
    for (uint32_t i = 0; pool->blocks != NULL && i < pool->num_blocks; i++)
        vllm_block_stamp((vllm_block *)pool->blocks[i], NULL);
    Py_RETURN_TRUE;
}

static PyObject *pool_get_num_free(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (vllm_check_open((vllm_pool *)self) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(((vllm_pool *)self)->pool->queue.num_free);
}

static PyObject *pool_get_usage(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (vllm_check_open((vllm_pool *)self) < 0)
        return NULL;
    return PyFloat_FromDouble(quire_usage_level(quire_pool_get_usage(((vllm_pool *)self)->pool)));
}

static PyObject *pool_get_list(PyObject *self, void *unused)
{
    vllm_pool *pool = (vllm_pool *)self;
    (void)unused;
    if (vllm_pool_make_blocks(pool) < 0)
        return NULL;
    if (pool->list == NULL) {
        pool->list = PyList_New((Py_ssize_t)pool->num_blocks);
        for (uint32_t i = 0; pool->list != NULL && i < pool->num_blocks; i++) {
            Py_INCREF(pool->blocks[i]);
            PyList_SetItem(pool->list, (Py_ssize_t)i, pool->blocks[i]);
        }
    }
    Py_XINCREF(pool->list);
    return pool->list;
}

static PyObject *pool_get_null(PyObject *self, void *unused)
{
    (void)unused;
    return vllm_pool_block(self, QUIRE_NULL_BLOCK);
}

static PyObject *pool_get_queue(PyObject *self, void *unused)
{
    (void)unused;
    return vllm_queue_view((vllm_pool *)self);
}

static PyObject *pool_get_map(PyObject *self, void *unused)
{
    (void)unused;
    return vllm_map_view((vllm_pool *)self);
}

enum { FAST = METH_FASTCALL | METH_KEYWORDS };

static PyMethodDef pool_methods[] = {
    {"get_new_blocks", (PyCFunction)(void (*)(void))vllm_pool_get_new, FAST,
     "get_new_blocks(num_blocks): from the head of the free queue, each with one user"},
    {"touch", (PyCFunction)(void (*)(void))vllm_pool_touch, FAST,
     "touch(blocks): one more user for each"},
    {"free_blocks", (PyCFunction)(void (*)(void))vllm_pool_free, FAST,
     "free_blocks(ordered_blocks): one user less for each; the first is taken again first"},
    {"get_cached_block", (PyCFunction)(void (*)(void))vllm_pool_get_cached_block, FAST,
     "get_cached_block(block_hash, kv_cache_group_ids): a block for each group, or None"},
    {"cache_full_blocks", (PyCFunction)(void (*)(void))vllm_pool_cache_full_blocks,
     METH_VARARGS | METH_KEYWORDS,
     "cache_full_blocks(request, blocks, num_cached_blocks, num_full_blocks, block_size, "
     "kv_cache_group_id): they can be found from now on"},
    {"_maybe_evict_cached_block", (PyCFunction)(void (*)(void))vllm_pool_maybe_evict, FAST,
     "_maybe_evict_cached_block(block): whether it could be found until now"},
    {"evict_blocks", (PyCFunction)(void (*)(void))vllm_pool_evict_blocks, FAST,
     "evict_blocks(block_ids)"},
    {"get_num_free_blocks", pool_get_num_free, METH_NOARGS, "get_num_free_blocks()"},
    {"get_usage", pool_get_usage, METH_NOARGS, "get_usage(): 0 to 1"},
    {"_reset", pool_reset, METH_NOARGS, "_reset(): whether all hashes are gone"},
    {NULL, NULL, 0, NULL}};

static PyMemberDef pool_members[] = {
    {"num_gpu_blocks", T_UINT, offsetof(vllm_pool, num_blocks), READONLY, "blocks in all"},
    {"hash_block_size", T_UINT, offsetof(vllm_pool, hash_block_size), 0, "tokens in one hash"},
    {"enable_caching", T_BOOL, offsetof(vllm_pool, enable_caching), READONLY, "prefix caching"},
    {"enable_kv_cache_events", T_BOOL, offsetof(vllm_pool, enable_events), 0, "events"},
    {"kv_event_queue", T_OBJECT_EX, offsetof(vllm_pool, events), 0, "events not taken yet"},
    {"metrics_collector", T_OBJECT_EX, offsetof(vllm_pool, metrics), 0, "or None"},
    {NULL, 0, 0, 0, NULL}};

static PyGetSetDef pool_fields[] = {
    {"blocks", pool_get_list, NULL, "all blocks, by their numbers", NULL},
    {"null_block", pool_get_null, NULL, "block 0, which stands for no block", NULL},
    {"free_block_queue", pool_get_queue, NULL, "the blocks without a user", NULL},
    {"cached_block_hash_to_block", pool_get_map, NULL, "the blocks that can be found", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot pool_slots[] = {
    {Py_tp_new, (void *)pool_new},
    {Py_tp_init, (void *)pool_init},
    {Py_tp_dealloc, (void *)pool_dealloc},
    {Py_tp_traverse, (void *)pool_traverse},
    {Py_tp_clear, (void *)pool_clear},
    {Py_tp_methods, pool_methods},
    {Py_tp_members, pool_members},
    {Py_tp_getset, pool_fields},
    {Py_tp_doc, "Pool(num_gpu_blocks, enable_caching, hash_block_size, ...): see BlockPool"},
    {0, NULL}};
static PyType_Spec pool_spec = {.name = "_quire_shim.Pool",
                                .basicsize = (int)sizeof(vllm_pool),
                                .flags =
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                                .slots = pool_slots};

PyObject *vllm_pool_make_type(PyObject *module)
{
    (void)module;
    return PyType_FromSpec(&pool_spec);
}

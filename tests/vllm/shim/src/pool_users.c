/* pool_users.c - BlockPool's get_new_blocks, touch and free_blocks.
 *
 * A list of blocks becomes an array of numbers, and the library is called once. It checks all
 * before it changes any, and so does what stands around it. The null block is counted here, since
 * vLLM counts it and the library does not; blocks that are loose are refused.
 */
#include "pool.h"

static int place_of(PyObject *name, const char *const *expected, int n)
{
    int i = 0;
    while (i < n && PyUnicode_CompareWithASCIIString(name, expected[i]) != 0)
        i++;
    return i;
}

int vllm_arguments(PyObject *const *args, Py_ssize_t num_args, PyObject *names,
                   const char *const *expected, int n, PyObject **given)
{
    Py_ssize_t num_named = names == NULL ? 0 : PyTuple_Size(names);
    int is_right = num_args + num_named == n;
    for (int i = 0; i < n; i++)
        given[i] = is_right && i < num_args ? args[i] : NULL;
    for (Py_ssize_t i = 0; is_right && i < num_named; i++) {
        int place = place_of(PyTuple_GetItem(names, i), expected, n);
        is_right = place < n && given[place] == NULL;
        if (is_right)
            given[place] = args[num_args + i];
    }
    if (!is_right)
        PyErr_Format(PyExc_TypeError, "%d argument%s expected: %s%s%s", n, n > 1 ? "s are" : " is",
                     expected[0], n > 1 ? ", " : "", n > 1 ? expected[1] : "");
    return is_right ? 0 : -1;
}

PyObject *vllm_argument(PyObject *const *args, Py_ssize_t n, PyObject *names, const char *name)
{
    PyObject *given;
    return vllm_arguments(args, n, names, &name, 1, &given) < 0 ? NULL : given;
}

static quire_block *room_for(size_t n)
{
    quire_block *ids = PyMem_Malloc((n + 1) * sizeof *ids);
    if (ids == NULL)
        PyErr_NoMemory();
    return ids;
}

/* Takes n blocks, and tells what was evicted. Blocks with an entry in the overlay are known by
 * their stamp only when they are taken: one by one, so that events stay in order. */
static int take_ids(vllm_pool *pool, uint32_t n, quire_block *ids)
{
    int has_overlay = pool->enable_caching && PyDict_Size(pool->overlay) > 0;
    uint32_t portion = has_overlay ? 1 : n;
    for (uint32_t done = 0; done < n; done += portion) {
        int status = quire_pool_get_new_blocks(pool->pool, portion, ids + done);
        if (status != QUIRE_OK)
            vllm_raise(status, "get_new_blocks");
        if (status != QUIRE_OK || vllm_pool_flush((PyObject *)pool) < 0)
            return -1;
        if (has_overlay && vllm_pool_evict(pool, (vllm_block *)pool->blocks[ids[done]]) < 0)
            return -1;
    }
    return 0;
}

static int measure_taken(vllm_pool *pool, PyObject *blocks)
{
    Py_ssize_t n = pool->metrics == Py_None ? 0 : PyList_Size(blocks);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *block = PyList_GetItem(blocks, i);
        if (pool->enable_caching && vllm_pool_measure(pool, "on_block_evicted", block) < 0)
            return -1;
        if (vllm_pool_measure(pool, "on_block_allocated", block) < 0)
            return -1;
    }
    return 0;
}

PyObject *vllm_pool_get_new(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                            PyObject *names)
{
    vllm_pool *pool = (vllm_pool *)self;
    PyObject *argument = vllm_argument(args, num_args, names, "num_blocks");
    long long n = argument == NULL ? -1 : PyLong_AsLongLong(argument);
    if ((n == -1 && PyErr_Occurred()) || vllm_pool_make_blocks(pool) < 0)
        return NULL;
    if (n < 0 || n > pool->pool->queue.num_free) {
        PyErr_Format(PyExc_ValueError, "Cannot get %lld free blocks from the pool", n);
        return NULL;
    }
    quire_block *ids = room_for((size_t)n);
    PyObject *list = NULL;
    if (ids != NULL && take_ids(pool, (uint32_t)n, ids) == 0)
        list = vllm_pool_blocks(self, ids, (uint32_t)n);
    PyMem_Free(ids);
    if (list != NULL && measure_taken(pool, list) < 0)
        Py_CLEAR(list);
    return list;
}

/* Numbers of the real blocks among them, and how many are null; -1 with an exception. */
static Py_ssize_t real_ids(vllm_pool *pool, PyObject *blocks, quire_block *ids, int64_t *num_null)
{
    Py_ssize_t n = PyList_Size(blocks);
    Py_ssize_t num_real = 0;
    *num_null = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(blocks, i);
        const vllm_block *block = (vllm_block *)item;
        int is_ours = vllm_is_block(item) && block->pool == pool && block->kind == VLLM_BLOCK_REAL;
        int64_t id = is_ours ? block->id : vllm_pool_number(pool, item);
        if (id < 0)
            return -1;
        if (id != QUIRE_NULL_BLOCK && block->is_loose) {
            PyErr_Format(PyExc_RuntimeError,
                         "block %lld has no user and is not in the free queue; append() it there",
                         (long long)id);
            return -1;
        }
        *num_null += id == QUIRE_NULL_BLOCK;
        if (id != QUIRE_NULL_BLOCK)
            ids[num_real++] = (quire_block)id;
    }
    return num_real;
}

/* touch or free, for a list of blocks of the pool. */
static int change_users(vllm_pool *pool, PyObject *blocks, int by)
{
    int64_t num_null;
    quire_block *ids = room_for((size_t)PyList_Size(blocks));
    if (ids == NULL)
        return -1;
    Py_ssize_t n = real_ids(pool, blocks, ids, &num_null);
    int status = QUIRE_OK;
    if (n > 0 && by > 0)
        status = quire_pool_touch(pool->pool, ids, (uint32_t)n);
    if (n > 0 && by < 0)
        status = quire_pool_free_blocks(pool->pool, ids, (uint32_t)n);
    PyMem_Free(ids);
    if (status != QUIRE_OK)
        vllm_raise(status, by > 0 ? "touch" : "free_blocks");
    if (n < 0 || status != QUIRE_OK)
        return -1;
    pool->null_users += by * num_null;
    return 0;
}

/* A list is used as it is; of anything else one is made. */
static PyObject *as_list(PyObject *blocks)
{
    if (!PyList_CheckExact(blocks))
        return PySequence_List(blocks);
    Py_INCREF(blocks);
    return blocks;
}

PyObject *vllm_pool_touch(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                          PyObject *names)
{
    vllm_pool *pool = (vllm_pool *)self;
    PyObject *argument = vllm_argument(args, num_args, names, "blocks");
    if (argument == NULL || vllm_check_open(pool) < 0)
        return NULL;
    PyObject *blocks = as_list(argument);
    int failed = blocks == NULL || change_users(pool, blocks, 1) < 0;
    for (Py_ssize_t i = 0; !failed && pool->metrics != Py_None && i < PyList_Size(blocks); i++)
        failed = vllm_pool_measure(pool, "on_block_accessed", PyList_GetItem(blocks, i)) < 0;
    Py_XDECREF(blocks);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* Blocks of no pool leave the list; they count their users themselves. With the last one such a
 * block would join a free queue that it cannot be in. */
static PyObject *without_strangers(PyObject *blocks)
{
    Py_ssize_t n = PyList_Size(blocks);
    PyObject *rest = PyList_New(0);
    for (Py_ssize_t i = 0; rest != NULL && i < n; i++) {
        PyObject *item = PyList_GetItem(blocks, i);
        vllm_block *block = vllm_is_block(item) ? (vllm_block *)item : NULL;
        int is_stranger = block != NULL && block->pool == NULL && block->kind == VLLM_BLOCK_REAL &&
                          block->ref_cnt != 1;
        if (is_stranger)
            block->ref_cnt--;
        else if (PyList_Append(rest, item) < 0)
            Py_CLEAR(rest);
    }
    return rest;
}

PyObject *vllm_pool_free(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                         PyObject *names)
{
    vllm_pool *pool = (vllm_pool *)self;
    PyObject *argument = vllm_argument(args, num_args, names, "ordered_blocks");
    if (argument == NULL || vllm_check_open(pool) < 0)
        return NULL;
    PyObject *blocks = as_list(argument);
    int is_strange = 0;
    for (Py_ssize_t i = 0; blocks != NULL && !is_strange && i < PyList_Size(blocks); i++) {
        PyObject *item = PyList_GetItem(blocks, i);
        is_strange = vllm_is_block(item) && ((vllm_block *)item)->pool == NULL;
    }
    if (is_strange) {
        PyObject *all = blocks;
        blocks = without_strangers(all);
        Py_DECREF(all);
    }
    int failed = blocks == NULL || change_users(pool, blocks, -1) < 0;
    Py_XDECREF(blocks);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

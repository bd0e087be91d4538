/* blocks.c - the blocks of a scheduler, as connectors see and hold them.
 *
 *      pool.blocks[7].ref_cnt, .block_hash     block
 *      pool.blocks[7].next_free_block          next_free: a walk along the free queue
 *      pool.get_cached_block(hash, groups)     cached_block: the block that has a key
 *      pool.touch(blocks), .free_blocks        a copy under way keeps its blocks
 *
 * Connectors call these while a step is being made, so they are not guarded (guard.c): they change
 * the users of blocks and nothing else. The null block has no users to count.
 */
#include "vllm.h"

#include <string.h>

enum { GROUP_BYTES = 4 };

static quire_pool *pool_of(PyObject *self)
{
    return quire_cache_get_pool(quire_sched_get_cache(((vllm_core *)self)->sched));
}

PyObject *vllm_hash_with_group(quire_bytes hash, uint32_t group)
{
    if (hash.data == NULL)
        Py_RETURN_NONE;
    size_t len = hash.len;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(len + GROUP_BYTES));
    if (bytes == NULL)
        return NULL;
    char *data = PyBytes_AsString(bytes);
    memcpy(data, hash.data, len);
    for (size_t i = 0; i < GROUP_BYTES; i++)
        data[len + i] = (char)(group >> (8 * (GROUP_BYTES - 1 - i)));
    return bytes;
}

PyObject *vllm_core_block(PyObject *self, PyObject *args)
{
    unsigned int id;
    quire_block_info info;
    if (!PyArg_ParseTuple(args, "I", &id))
        return NULL;
    int status = quire_pool_get_block(pool_of(self), id, &info);
    if (status != QUIRE_OK)
        return vllm_raise(status, "block");
    PyObject *hash = vllm_hash_with_group(info.hash, info.group_id);
    return hash == NULL ? NULL : Py_BuildValue("(IN)", info.ref_cnt, hash);
}

PyObject *vllm_core_next_free(PyObject *self, PyObject *args)
{
    unsigned int id;
    if (!PyArg_ParseTuple(args, "I", &id))
        return NULL;
    return PyLong_FromUnsignedLong(quire_pool_get_next_free(pool_of(self), id));
}

PyObject *vllm_core_num_free(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLong(quire_pool_get_num_free_blocks(pool_of(self)));
}

/* cached_block(hash, group): a block with this key, None without one */
PyObject *vllm_core_cached_block(PyObject *self, PyObject *args)
{
    const char *data;
    Py_ssize_t len;
    unsigned int group;
    quire_block block;
    if (!PyArg_ParseTuple(args, "y#I", &data, &len, &group))
        return NULL;
    int status = quire_pool_get_cached_block(pool_of(self), (quire_bytes){data, (size_t)len},
                                             &group, 1, &block);
    if (status == QUIRE_MISS)
        Py_RETURN_NONE;
    if (status != QUIRE_OK)
        return vllm_raise(status, "get_cached_block");
    return PyLong_FromUnsignedLong(block);
}

/* The numbers of a list but for those of the null block; NULL with an exception. */
static quire_block *real_ids(PyObject *args, uint32_t *count)
{
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list))
        return NULL;
    Py_ssize_t size = PyList_Size(list);
    quire_block *ids = PyMem_Malloc(((size_t)size + 1) * sizeof(*ids));
    if (ids == NULL)
        return (void *)PyErr_NoMemory();
    *count = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        unsigned long id = PyLong_AsUnsignedLong(PyList_GetItem(list, i));
        if (id > UINT32_MAX && !PyErr_Occurred())
            vllm_raise(QUIRE_E_UNKNOWN_BLOCK, "blocks");
        if (PyErr_Occurred()) {
            PyMem_Free(ids);
            return NULL;
        }
        if (id != QUIRE_NULL_BLOCK)
            ids[(*count)++] = (quire_block)id;
    }
    return ids;
}

static PyObject *change_users(PyObject *self, PyObject *args, const char *what,
                              int (*change)(quire_pool *, const quire_block *, uint32_t))
{
    uint32_t count = 0;
    quire_block *ids = real_ids(args, &count);
    if (ids == NULL)
        return NULL;
    int status = change(pool_of(self), ids, count);
    PyMem_Free(ids);
    return vllm_done(status, what);
}

PyObject *vllm_core_touch(PyObject *self, PyObject *args)
{
    return change_users(self, args, "touch", quire_pool_touch);
}

PyObject *vllm_core_free_blocks(PyObject *self, PyObject *args)
{
    return change_users(self, args, "free_blocks", quire_pool_free_blocks);
}

/* lists.h - lists of what the library gave, and refusals, for both extensions. */
#ifndef QUIRE_PYTHON_LISTS_H
#define QUIRE_PYTHON_LISTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <quire.h>

/* For functions that answer with 0 or -1: -1 and an exception. */
#define PY_REFUSE(...)     (PyErr_Format(__VA_ARGS__), -1)
#define PY_REFUSE_MEMORY() (PyErr_NoMemory(), -1)

/* A list of what `make` gives for 0 to count - 1; NULL and an exception. */
typedef PyObject *py_make_item(const void *user, uint32_t i);
static inline PyObject *py_list_of(uint32_t count, py_make_item *make, const void *user)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = make(user, i);
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static inline PyObject *py_make_u32(const void *items, uint32_t i)
{
    return PyLong_FromUnsignedLong(((const uint32_t *)items)[i]);
}

static inline PyObject *py_list_u32(const uint32_t *items, uint32_t count)
{
    return py_list_of(count, py_make_u32, items);
}

static inline PyObject *py_make_token(const void *tokens, uint32_t i)
{
    return PyLong_FromLong(((const quire_token *)tokens)[i]);
}

static inline PyObject *py_list_tokens(const quire_token *tokens, uint32_t count)
{
    return py_list_of(count, py_make_token, tokens);
}

static inline PyObject *py_make_hash(const void *hashes, uint32_t i)
{
    const quire_bytes *first = hashes;
    return PyBytes_FromStringAndSize((const char *)first->data + i * first->len,
                                     (Py_ssize_t)first->len);
}

/* Hashes that lie one after the other. */
static inline PyObject *py_hash_list(const void *hashes, size_t hash_len, size_t count)
{
    return py_list_of((uint32_t)count, py_make_hash, &(quire_bytes){hashes, hash_len});
}

#endif

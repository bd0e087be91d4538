/* cache.h - the Cache object, which cache.c makes and cache_moves.c asks and moves. */
#ifndef QUIRE_PYTHON_CACHE_H
#define QUIRE_PYTHON_CACHE_H

#include "core.h"

typedef struct cache_object {
    py_handle base;
    uint32_t num_groups;
    uint32_t digest_bytes;
} cache_object;

/* Hashes of a request, to be released with py_ints_release. */
int py_cache_hashes_get(PyObject *object, PyObject *source, quire_cache_request *request,
                        py_hashes *hashes);

/* cache_moves.c */
PyObject *py_cache_copy_on_write(PyObject *object, PyObject *args);
PyObject *py_cache_can_allocate(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_cache_move_out(PyObject *object, PyObject *args);
PyObject *py_cache_move_in(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_cache_can_move_in(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_cache_location(PyObject *object, PyObject *seq);
PyObject *py_cache_find_token(PyObject *object, PyObject *args);
PyObject *py_cache_block(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *py_cache_totals(PyObject *object, PyObject *ignored);
PyObject *py_cache_pressure(PyObject *object, PyObject *ignored);
PyObject *py_cache_evict_cached(PyObject *object, PyObject *num_blocks);

#endif

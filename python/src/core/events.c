/* events.c - what the prefix cache did, kept as plain bytes until somebody asks.
 *
 *      +--------+--------+--------+--------+--------+--------
 *      | record | blocks | hashes | parent | record | ...
 *      +--------+--------+--------+--------+--------+--------
 *
 * The library tells events in the middle of a call. A Python object made there could start the
 * collector, a finalizer could use the same handle, and find it half changed.
 */
#include "core.h"

#include <string.h>

typedef struct event_record {
    quire_event_kind kind;
    uint32_t group_id;
    uint32_t num_blocks;
    uint32_t first_block;
    uint32_t hash_bytes;
    uint32_t parent_bytes;
    uint32_t block_size;
    uint32_t still_cached;
} event_record;

static bool reserve_bytes(py_event_log *log, size_t bytes)
{
    if (bytes <= log->capacity - log->used)
        return true;
    size_t capacity = log->capacity * 2 + bytes + 4096;
    char *data = PyMem_Realloc(log->data, capacity);
    if (data == NULL)
        return false;
    log->data = data;
    log->capacity = capacity;
    return true;
}

static void append_bytes(py_event_log *log, const void *data, size_t bytes)
{
    if (bytes > 0)
        memcpy(log->data + log->used, data, bytes);
    log->used += bytes;
}

void py_event_record(void *user, const quire_event *event)
{
    py_event_log *log = user;
    bool has_blocks = event->kind != QUIRE_EVENT_CLEARED;
    event_record record = {.kind = event->kind,
                           .group_id = event->group_id,
                           .num_blocks = has_blocks ? event->num_blocks : 0,
                           .first_block = event->first_block,
                           .hash_bytes = event->hash_bytes,
                           .parent_bytes = event->parent.data ? (uint32_t)event->parent.len : 0,
                           .block_size = event->block_size,
                           .still_cached = event->still_cached};
    size_t block_bytes = record.num_blocks * sizeof(quire_block);
    size_t hash_bytes = (size_t)record.num_blocks * record.hash_bytes;
    if (!reserve_bytes(log, sizeof record + block_bytes + hash_bytes + record.parent_bytes)) {
        log->is_lost = true;
        return;
    }
    append_bytes(log, &record, sizeof record);
    append_bytes(log, event->blocks, block_bytes);
    append_bytes(log, event->hashes, hash_bytes);
    append_bytes(log, event->parent.data, record.parent_bytes);
}

/* ---- as dicts -------------------------------------------------------------- */

static PyObject *make_block(const void *blocks, uint32_t i)
{
    quire_block block; /* records lie anywhere */
    memcpy(&block, (const char *)blocks + i * sizeof block, sizeof block);
    return PyLong_FromUnsignedLong(block);
}

static const char *const kind_names[] = {"", "stored", "removed", "cleared"};

static PyObject *event_dict(const event_record *record, const char *at)
{
    const char *hashes = at + record->num_blocks * sizeof(quire_block);
    const char *parent = hashes + (size_t)record->num_blocks * record->hash_bytes;
    if (record->kind == QUIRE_EVENT_CLEARED)
        return Py_BuildValue("{s:s}", "kind", kind_names[record->kind]);
    PyObject *blocks = py_list_of(record->num_blocks, make_block, at);
    PyObject *all = py_hash_list(hashes, record->hash_bytes, record->num_blocks);
    if (record->kind == QUIRE_EVENT_REMOVED)
        return Py_BuildValue("{s:s,s:I,s:N,s:N,s:N}", "kind", kind_names[record->kind], "group_id",
                             record->group_id, "blocks", blocks, "hashes", all, "still_cached",
                             PyBool_FromLong((long)record->still_cached));
    return Py_BuildValue("{s:s,s:I,s:N,s:N,s:I,s:I,s:y#}", "kind", kind_names[record->kind],
                         "group_id", record->group_id, "blocks", blocks, "hashes", all,
                         "first_block", record->first_block, "block_size", record->block_size,
                         "parent", record->parent_bytes > 0 ? parent : NULL,
                         (Py_ssize_t)record->parent_bytes);
}

PyObject *py_event_list(py_event_log *log)
{
    py_event_log taken = *log; /* what is told meanwhile, by a finalizer's calls, is for later */
    memset(log, 0, sizeof *log);
    PyObject *list = PyList_New(0);
    if (taken.is_lost && list != NULL) {
        Py_CLEAR(list);
        PyErr_NoMemory();
    }
    for (size_t at = 0; list != NULL && at < taken.used;) {
        event_record record;
        memcpy(&record, taken.data + at, sizeof record);
        at += sizeof record;
        PyObject *dict = event_dict(&record, taken.data + at);
        if (dict == NULL || PyList_Append(list, dict) < 0)
            Py_CLEAR(list);
        Py_XDECREF(dict);
        at += record.num_blocks * (sizeof(quire_block) + record.hash_bytes) + record.parent_bytes;
    }
    py_event_log_free(&taken);
    return list;
}

void py_event_log_free(py_event_log *log)
{
    PyMem_Free(log->data);
    memset(log, 0, sizeof *log);
}

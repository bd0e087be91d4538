/* events.c - what the prefix cache did, told to a Python function that makes vLLM's events.
 *
 * vLLM makes them at the same moments: the tokens and keys of an event are those that the request
 * has then. Without kv_events_config nothing is told. Exceptions: see calls.c.
 */
#include "vllm.h"

/* The hashes of an event's blocks, None for null blocks. */
static PyObject *make_hash(const void *of, uint32_t i)
{
    const quire_event *event = of;
    const char *hash = (const char *)event->hashes + (size_t)i * event->hash_bytes;
    return event->blocks[i] == QUIRE_NULL_BLOCK
               ? Py_NewRef(Py_None)
               : PyBytes_FromStringAndSize(hash, (Py_ssize_t)event->hash_bytes);
}

static PyObject *hash_list(const quire_event *event)
{
    return py_list_of(event->num_blocks, make_hash, event);
}

static PyObject *tell_stored(vllm_core *core, const quire_event *event)
{
    PyObject *request = event->request;
    PyObject *id = PyObject_GetAttrString(request, "request_id");
    vllm_slot *slot = id == NULL ? NULL : vllm_slot_of_id(core, id);
    Py_XDECREF(id);
    if (slot == NULL ? PyErr_Occurred() != NULL : vllm_slot_sync(core, slot) < 0)
        return NULL;
    PyObject *hashes = hash_list(event);
    if (hashes == NULL)
        return NULL;
    return PyObject_CallFunction(core->types.event, "iONIIy#I", (int)event->kind, request, hashes,
                                 event->group_id, event->first_block,
                                 (const char *)event->parent.data, (Py_ssize_t)event->parent.len,
                                 event->block_size);
}

static void tell_event(void *user, const quire_event *event)
{
    vllm_core *core = user;
    PyObject *answer = NULL;
    if (core->error[0] != NULL)
        return;
    if (event->kind == QUIRE_EVENT_STORED) {
        answer = tell_stored(core, event);
    } else {
        PyObject *hashes = event->kind == QUIRE_EVENT_REMOVED ? hash_list(event) : PyList_New(0);
        if (hashes != NULL)
            answer = PyObject_CallFunction(core->types.event, "iONIIzI", (int)event->kind, Py_None,
                                           hashes, event->group_id, 0U, NULL, 0U);
    }
    vllm_drop_or_keep(core, answer);
}

void vllm_listen(vllm_core *core, quire_cache_config *config)
{
    if (core->types.event == NULL)
        return;
    config->on_event = tell_event;
    config->event_user = core;
}

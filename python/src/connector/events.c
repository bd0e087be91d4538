/* events.c - what the host pool and the tiers store and remove, as tuples:
 *
 *      (kind, hash, group, Known or None, position of the block in its request or -1, block size,
 *       0: the host pool; tier + 1)
 *
 * The hash of a block that is longer than a hash is vLLM's: that of its last part, or all of them.
 */
#include "connector.h"

#include <string.h>

/* Where the request has this hash; -1: nowhere. Blocks come in their order, so the search begins
 * where the last one ended. */
static long position_of(planner *p, const known *k, uint32_t group, const unsigned char *hash)
{
    uint32_t joined = p->groups[group].block_size / p->hash_block_size;
    uint32_t count = joined == 0 ? 0 : k->num_hashes / joined;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (p->last_found + 1 + i) % count;
        const unsigned char *own = k->hashes + ((size_t)(at + 1) * joined - 1) * p->digest_bytes;
        if (memcmp(own, hash, p->digest_bytes) == 0) {
            p->last_found = at;
            return (long)at;
        }
    }
    return -1;
}

static int add_event(planner *p, const quire_event *event, uint32_t i, uint32_t place)
{
    const unsigned char *key = (const unsigned char *)event->hashes + (size_t)i * event->hash_bytes;
    const unsigned char *hash = key + event->hash_bytes - p->digest_bytes;
    int is_stored = event->kind == QUIRE_EVENT_STORED && p->asking != NULL && place == 0;
    long position = is_stored ? position_of(p, p->asking, event->group_id, hash) : -1;
    PyObject *tuple = Py_BuildValue("(iy#IOlII)", (int)event->kind, (const char *)hash,
                                    (Py_ssize_t)p->digest_bytes, event->group_id,
                                    position >= 0 ? (PyObject *)p->asking : Py_None, position,
                                    p->groups[event->group_id].block_size, place);
    int failed = tuple == NULL || PyList_Append(p->events, tuple) < 0;
    Py_XDECREF(tuple);
    return failed ? -1 : 0;
}

/* Inside a call of the library, which cannot fail: events that do not fit into memory are lost. */
static void add_events(planner *p, const quire_event *event, uint32_t place)
{
    if (event->kind == QUIRE_EVENT_REMOVED && event->still_cached)
        return;
    if (event->kind == QUIRE_EVENT_CLEARED || event->hash_bytes < p->digest_bytes)
        return;
    for (uint32_t i = 0; i < event->num_blocks; i++) {
        if (event->blocks[i] != QUIRE_NULL_BLOCK && add_event(p, event, i, place) < 0)
            PyErr_Clear();
    }
}

void planner_on_event(void *user, const quire_event *event)
{
    add_events(user, event, 0);
}

void planner_on_tier_event(void *user, uint32_t tier, const quire_event *event)
{
    add_events(user, event, tier + 1);
}

PyObject *planner_take_events(PyObject *self, PyObject *Py_UNUSED(unused))
{
    planner *p = (planner *)self;
    PyObject *taken = p->events == NULL ? PyList_New(0) : Py_NewRef(p->events);
    PyObject *empty = p->events == NULL ? NULL : PyList_New(0);
    if (empty != NULL)
        Py_SETREF(p->events, empty);
    else if (p->events != NULL)
        Py_CLEAR(taken);
    return taken;
}

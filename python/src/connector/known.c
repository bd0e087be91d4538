/* known.c - what the planner knows of a request: hashes and blocks, copied out of Python once.
 *
 *      Request.block_hashes  H0 H1 H2 ...  ──►  hashes: grows with the list
 *      new_block_ids         ([7, 9], [3]) ──►  blocks[g]: grows, or is replaced
 *
 * A hash chain: if the last hash that was read is still at its place, so are those before it.
 */
#include "connector.h"

#include <structmember.h>

#include <string.h>

known *known_new(planner *p, PyObject *request)
{
    known *k = PyObject_New(known, connector_known_type);
    if (k == NULL)
        return NULL;
    memset((char *)k + sizeof(PyObject), 0, sizeof *k - sizeof(PyObject));
    k->request = Py_NewRef(request);
    k->num_groups = p->num_groups;
    return k;
}

static void known_dealloc(PyObject *self)
{
    known *k = (known *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (uint32_t g = 0; g < k->num_groups; g++)
        PyMem_Free(k->blocks[g]);
    PyMem_Free(k->hashes);
    Py_XDECREF(k->request);
    PyObject_Free(self);
    Py_DECREF(type);
}

int known_begin_again(planner *p, known *k)
{
    memset(k->told, 0, sizeof k->told);
    k->num_read = 0;
    int status = quire_planner_preempted(p->planner, k->req);
    return status == QUIRE_OK ? 0 : connector_refuse(status, "preempted");
}

/* ---- hashes ---------------------------------------------------------------- */

static const unsigned char *hash_at(const planner *p, PyObject *list, uint32_t i)
{
    PyObject *hash = PyList_GET_ITEM(list, (Py_ssize_t)i);
    if (PyBytes_Check(hash) && PyBytes_GET_SIZE(hash) == (Py_ssize_t)p->digest_bytes)
        return (const unsigned char *)PyBytes_AS_STRING(hash);
    PyErr_Format(PyExc_ValueError, "block_hashes[%u] must be %u bytes, not %R", i, p->digest_bytes,
                 hash);
    return NULL;
}

static int grow_hashes(const planner *p, known *k, uint32_t count)
{
    if (count <= k->max_hashes)
        return 0;
    uint32_t capacity = count + count / 2 + 8;
    unsigned char *more = PyMem_Realloc(k->hashes, (size_t)capacity * p->digest_bytes);
    if (more == NULL)
        return PY_REFUSE_MEMORY();
    k->hashes = more;
    k->max_hashes = capacity;
    return 0;
}

/* The hashes that were read are not the request's any longer: a session that goes on. */
static int are_others(const planner *p, const known *k, PyObject *list, uint32_t count)
{
    uint32_t last = k->num_hashes - 1;
    if (k->num_hashes == 0)
        return 0;
    if (count < k->num_hashes)
        return 1;
    const unsigned char *hash = hash_at(p, list, last);
    if (hash == NULL)
        return -1;
    return memcmp(hash, k->hashes + (size_t)last * p->digest_bytes, p->digest_bytes) != 0;
}

static int read_list(planner *p, known *k, PyObject *list)
{
    if (!PyList_Check(list))
        return PY_REFUSE(PyExc_TypeError, "block_hashes must be a list");
    uint32_t count = (uint32_t)PyList_GET_SIZE(list);
    int others = are_others(p, k, list, count);
    if (others < 0 || (others > 0 && known_begin_again(p, k) < 0) || grow_hashes(p, k, count) < 0)
        return -1;
    if (others > 0)
        k->num_hashes = 0;
    for (; k->num_hashes < count; k->num_hashes++) {
        const unsigned char *hash = hash_at(p, list, k->num_hashes);
        if (hash == NULL)
            return -1;
        memcpy(k->hashes + (size_t)k->num_hashes * p->digest_bytes, hash, p->digest_bytes);
    }
    return 0;
}

int known_read_hashes(planner *p, known *k)
{
    PyObject *list = PyObject_GetAttrString(k->request, "block_hashes");
    int failed = list == NULL || read_list(p, k, list) < 0;
    Py_XDECREF(list);
    return failed ? -1 : 0;
}

/* ---- blocks ---------------------------------------------------------------- */

/* vLLM's blocks are objects with a slot block_id: its place in them, 0 if they have none. */
static Py_ssize_t place_of_id(PyObject *block)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)Py_TYPE(block), "block_id");
    Py_ssize_t place = 0;
    if (found == NULL)
        PyErr_Clear();
    else if (Py_IS_TYPE(found, &PyMemberDescr_Type) &&
             ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX)
        place = ((PyMemberDescrObject *)found)->d_member->offset;
    Py_XDECREF(found);
    return place;
}

typedef struct block_reader {
    PyTypeObject *type; /* of the last block */
    Py_ssize_t place;
} block_reader;

/* Of a number, or of a block. -1 and an exception. */
static unsigned long id_of(block_reader *reader, PyObject *block)
{
    if (PyLong_Check(block))
        return PyLong_AsUnsignedLong(block);
    if (Py_TYPE(block) != reader->type)
        *reader = (block_reader){Py_TYPE(block), place_of_id(block)};
    PyObject *id = reader->place == 0 ? NULL : *(PyObject **)((char *)block + reader->place);
    if (id == NULL)
        return (unsigned long)PY_REFUSE(PyExc_TypeError, "%R has no block_id", block);
    return PyLong_AsUnsignedLong(id);
}

static int add_group(known *k, uint32_t group, PyObject *list)
{
    block_reader reader = {NULL, 0};
    if (PyTuple_Check(list) && PyTuple_GET_SIZE(list) == 0)
        return 0; /* vLLM's way to say that there are none */
    if (!PyList_Check(list))
        return PY_REFUSE(PyExc_TypeError, "block ids must be lists");
    uint32_t count = (uint32_t)PyList_GET_SIZE(list);
    uint32_t needed = k->counts[group] + count;
    if (needed > k->capacities[group]) {
        uint32_t capacity = needed + needed / 2 + 8;
        quire_block *more = PyMem_Realloc(k->blocks[group], capacity * sizeof *more);
        if (more == NULL)
            return PY_REFUSE_MEMORY();
        k->blocks[group] = more;
        k->capacities[group] = capacity;
    }
    for (uint32_t i = 0; i < count; i++) {
        unsigned long id = id_of(&reader, PyList_GET_ITEM(list, (Py_ssize_t)i));
        if (id == (unsigned long)-1 && PyErr_Occurred())
            return -1;
        k->blocks[group][k->counts[group]++] = (quire_block)id;
    }
    return 0;
}

int known_add_blocks(known *k, PyObject *ids)
{
    if (ids == Py_None)
        return 0;
    if (!PyTuple_Check(ids) || PyTuple_GET_SIZE(ids) != (Py_ssize_t)k->num_groups)
        return PY_REFUSE(PyExc_ValueError, "block ids must be a tuple of %u lists", k->num_groups);
    for (uint32_t g = 0; g < k->num_groups; g++) {
        if (add_group(k, g, PyTuple_GET_ITEM(ids, (Py_ssize_t)g)) < 0)
            return -1;
    }
    return 0;
}

int known_set_blocks(known *k, PyObject *ids)
{
    memset(k->counts, 0, sizeof k->counts);
    return known_add_blocks(k, ids);
}

void known_spans(const known *k, quire_block_span *spans)
{
    for (uint32_t g = 0; g < k->num_groups; g++)
        spans[g] = (quire_block_span){.ids = k->blocks[g], .count = k->counts[g]};
}

/* ---- the type -------------------------------------------------------------- */

static PyMemberDef known_members[] = {
    {"request", T_OBJECT, offsetof(known, request), READONLY, "vLLM's Request."},
    {"is_loading", T_INT, offsetof(known, is_loading), 0, "1: vLLM waits for its load."},
    {"is_asked", T_INT, offsetof(known, is_asked), 0, "1: it was asked for."},
    {"has_failed", T_INT, offsetof(known, has_failed), 0, "1: a load of it has failed."},
    {NULL, 0, 0, 0, NULL}};

static PyObject *known_tier_tokens(PyObject *self, void *Py_UNUSED(unused))
{
    const known *k = (const known *)self;
    PyObject *made = PyTuple_New(QUIRE_TRANSFER_MAX_TIERS);
    for (Py_ssize_t i = 0; made != NULL && i < QUIRE_TRANSFER_MAX_TIERS; i++) {
        PyObject *tokens = PyLong_FromUnsignedLongLong(k->tier_tokens[i]);
        if (tokens == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, tokens);
    }
    return made;
}

static PyGetSetDef known_getters[] = {{"tier_tokens", known_tier_tokens, NULL,
                                       "Tokens of its last hit that came from each tier.", NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot known_slots[] = {{Py_tp_dealloc, known_dealloc},
                                    {Py_tp_members, known_members},
                                    {Py_tp_getset, known_getters},
                                    {Py_tp_doc, "What a planner knows of a request."},
                                    {0, NULL}};

PyType_Spec connector_known_spec = {
    .name = "quire._connector.Known",
    .basicsize = sizeof(known),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = known_slots,
};

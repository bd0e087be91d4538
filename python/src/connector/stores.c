/* stores.c - what a step says about its requests: blocks that they got, tokens that are computed.
 *
 *      scheduled_new_reqs      all blocks of a request (V2 model runner: also of one that resumes)
 *      scheduled_cached_reqs   further blocks; of one that resumes, all
 *      request_finished        all blocks, once more, before vLLM frees them
 *
 * Blocks of windows leave a request while it runs, and vLLM does not say which: a block is told to
 * the planner once, and only if vLLM's pool still has it under the hash of its position. Blocks
 * that have lost their content since are not stored.
 */
#include "connector.h"

#include <string.h>

/* ---- blocks that vLLM may have given away ---------------------------------- */

/* Whether block id has the hash of the group's block i, by vLLM's pool: the hash of the block (of
 * its last part, if it is longer than a hash), then the group in four bytes. -1 and an
 * exception. */
static int has_hash(const planner *p, const known *k, uint32_t group, uint32_t i, quire_block id)
{
    enum { GROUP_BYTES = 4 };
    uint32_t joined = p->groups[group].block_size / p->hash_block_size;
    const unsigned char *hash = k->hashes + ((size_t)(i + 1) * joined - 1) * p->digest_bytes;
    PyObject *block = PySequence_GetItem(p->pool, (Py_ssize_t)id);
    PyObject *key = block == NULL ? NULL : PyObject_GetAttrString(block, "block_hash");
    int found = key == NULL ? -1 : 0;
    if (key != NULL && PyBytes_Check(key)) {
        const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(key);
        size_t len = (size_t)PyBytes_GET_SIZE(key);
        const unsigned char *end = data + len - GROUP_BYTES;
        found = len >= p->digest_bytes + GROUP_BYTES &&
                memcmp(end - p->digest_bytes, hash, p->digest_bytes) == 0 &&
                (uint32_t)(end[0] << 24 | end[1] << 16 | end[2] << 8 | end[3]) == group;
    }
    Py_XDECREF(key);
    Py_XDECREF(block);
    return found;
}

/* Whether block id has one user: the request that asks. -1 and an exception. */
static int has_one_user(const planner *p, quire_block id)
{
    PyObject *block = PySequence_GetItem(p->pool, (Py_ssize_t)id);
    PyObject *count = block == NULL ? NULL : PyObject_GetAttrString(block, "ref_cnt");
    long users = count == NULL ? -1 : PyLong_AsLong(count);
    Py_XDECREF(count);
    Py_XDECREF(block);
    return PyErr_Occurred() ? -1 : users == 1;
}

/* The group's blocks [first, end): those that the request has no longer become null blocks. */
static int drop_lost(const planner *p, known *k, uint32_t group, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        quire_block *id = &k->blocks[group][i];
        int is_there = *id == QUIRE_NULL_BLOCK ? 1 : has_hash(p, k, group, i, *id);
        if (is_there < 0)
            return -1;
        if (!is_there)
            *id = QUIRE_NULL_BLOCK;
    }
    return 0;
}

/* ---- telling the planner --------------------------------------------------- */

/* How many full blocks of the group are computed and hashed. */
static uint32_t full_blocks(const planner *p, const known *k, uint32_t group, uint32_t num_computed)
{
    uint32_t size = p->groups[group].block_size;
    uint32_t hashed = (uint32_t)((uint64_t)k->num_hashes * p->hash_block_size / size);
    uint32_t end = num_computed / size;
    end = end < hashed ? end : hashed;
    return end < k->counts[group] ? end : k->counts[group];
}

/* 1: some blocks wait for stores in flight: the next step tells again. */
static int tell(planner *p, known *k, uint32_t num_computed, uint32_t is_last)
{
    quire_block_span spans[CONNECTOR_MAX_GROUPS];
    quire_planner_request request = {
        .req = k->req, .hashes = k->hashes, .num_hashes = k->num_hashes, .is_last = is_last};
    known_spans(k, spans);
    p->asking = k;
    int status = quire_planner_computed(p->planner, &request, spans, num_computed);
    p->asking = NULL;
    if (status != QUIRE_OK && status != QUIRE_RETRY)
        return connector_refuse(status, "computed");
    return status == QUIRE_RETRY;
}

int planner_tell_computed(planner *p, known *k, uint32_t num_computed)
{
    uint32_t needed = num_computed / p->hash_block_size;
    if (needed <= k->num_read || k->is_loading)
        return 0; /* no new full block */
    if (needed > k->num_hashes && known_read_hashes(p, k) < 0)
        return -1;
    for (uint32_t g = 0; g < p->num_groups; g++) {
        uint32_t end = full_blocks(p, k, g, num_computed);
        if (p->groups[g].is_window && drop_lost(p, k, g, k->told[g], end) < 0)
            return -1;
    }
    int waits = tell(p, k, num_computed, 0);
    if (waits != 0)
        return waits < 0 ? -1 : 0;
    k->num_read = needed < k->num_hashes ? needed : k->num_hashes;
    for (uint32_t g = 0; g < p->num_groups; g++) {
        uint32_t end = full_blocks(p, k, g, num_computed);
        k->told[g] = end > k->told[g] ? end : k->told[g];
        for (uint32_t i = 0; p->groups[g].is_window && i < k->told[g]; i++)
            k->blocks[g][i] = QUIRE_NULL_BLOCK;
    }
    return 0;
}

/* The first blocks of the group that were filled before this step: how many. One that another
 * request has too may be filled in this step. -1 and an exception. */
static int count_filled(const planner *p, known *k, uint32_t group, uint32_t end)
{
    uint32_t n = 0;
    int is_filled = 1;
    while (n < end && is_filled > 0) {
        quire_block id = k->blocks[group][n];
        is_filled = id == QUIRE_NULL_BLOCK ? 1 : has_one_user(p, id);
        n += is_filled > 0;
    }
    return is_filled < 0 || drop_lost(p, k, group, 0, n) < 0 ? -1 : (int)n;
}

/* Blocks of windows that a new request found: the request may lose them before the next step. */
static int tell_found(planner *p, known *k, uint32_t num_computed)
{
    uint32_t all[CONNECTOR_MAX_GROUPS];
    uint32_t filled[CONNECTOR_MAX_GROUPS];
    if (known_read_hashes(p, k) < 0)
        return -1;
    for (uint32_t g = 0; g < p->num_groups; g++) {
        uint32_t end = p->groups[g].is_window ? full_blocks(p, k, g, num_computed) : 0;
        int n = count_filled(p, k, g, end);
        if (n < 0)
            return -1;
        filled[g] = (uint32_t)n;
    }
    memcpy(all, k->counts, sizeof all);
    memcpy(k->counts, filled, sizeof filled);
    int waits = tell(p, k, num_computed, 0);
    memcpy(k->counts, all, sizeof all);
    if (waits == 0)
        memcpy(k->told, filled, sizeof filled);
    return waits < 0 ? -1 : 0;
}

/* ---- the requests of a step ------------------------------------------------ */

static int take_number(PyObject *object, uint32_t *number)
{
    unsigned long value = object == NULL ? 0 : PyLong_AsUnsignedLong(object);
    *number = (uint32_t)value;
    return object == NULL || PyErr_Occurred() ? -1 : 0;
}

static known *find_known(PyObject *table, PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(table, name);
    return found != NULL && Py_TYPE(found) == connector_known_type ? (known *)found : NULL;
}

/* Its blocks are these. vLLM also gives it blocks that another request fills in this very step, and
 * counts them as computed; the plan may be submitted before the step is. So the next step tells
 * what is computed, but for what can be lost until then. */
static int take_all(planner *p, known *k, PyObject *ids, uint32_t num_computed)
{
    if (k->has_run && known_begin_again(p, k) < 0)
        return -1;
    k->has_run = 1;
    memset(k->told, 0, sizeof k->told);
    k->num_read = 0;
    if (known_set_blocks(k, ids) < 0)
        return -1;
    return p->has_windows && num_computed > 0 ? tell_found(p, k, num_computed) : 0;
}

static int take_new(planner *p, PyObject *table, PyObject *data)
{
    PyObject *name = PyObject_GetAttrString(data, "req_id");
    known *k = name == NULL ? NULL : find_known(table, name);
    Py_XDECREF(name);
    if (k == NULL)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *ids = PyObject_GetAttrString(data, "block_ids");
    PyObject *computed = PyObject_GetAttrString(data, "num_computed_tokens");
    uint32_t num_computed = 0;
    int failed = ids == NULL || take_number(computed, &num_computed) < 0 ||
                 take_all(p, k, ids, num_computed) < 0;
    Py_XDECREF(ids);
    Py_XDECREF(computed);
    return failed ? -1 : 0;
}

/* new_requests(knowns, scheduled_new_reqs) */
PyObject *planner_new_requests(PyObject *self, PyObject *args)
{
    PyObject *table;
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &table, &PyList_Type, &list))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        if (take_new((planner *)self, table, PyList_GET_ITEM(list, i)) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

typedef struct cached_lists {
    PyObject *names;
    PyObject *blocks;
    PyObject *computed;
    PyObject *resumed; /* a set */
} cached_lists;

static int take_cached(planner *p, PyObject *table, const cached_lists *lists, Py_ssize_t i)
{
    PyObject *name = PyList_GET_ITEM(lists->names, i);
    known *k = find_known(table, name);
    uint32_t num_computed;
    if (k == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int resumes = PySequence_Contains(lists->resumed, name);
    if (resumes < 0 || take_number(PyList_GET_ITEM(lists->computed, i), &num_computed) < 0)
        return -1;
    PyObject *ids = PyList_GET_ITEM(lists->blocks, i);
    if (resumes)
        return take_all(p, k, ids, num_computed);
    if (known_add_blocks(k, ids) < 0)
        return -1;
    return planner_tell_computed(p, k, num_computed);
}

/* cached_requests(knowns, req_ids, new_block_ids, num_computed_tokens, resumed_req_ids) */
PyObject *planner_cached_requests(PyObject *self, PyObject *args)
{
    PyObject *table;
    cached_lists lists;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O", &PyDict_Type, &table, &PyList_Type, &lists.names,
                          &PyList_Type, &lists.blocks, &PyList_Type, &lists.computed,
                          &lists.resumed))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(lists.names);
    if (PyList_GET_SIZE(lists.blocks) != count || PyList_GET_SIZE(lists.computed) != count)
        return PyErr_Format(PyExc_ValueError, "lists of different lengths");
    for (Py_ssize_t i = 0; i < count; i++) {
        if (take_cached((planner *)self, table, &lists, i) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- the end of a request -------------------------------------------------- */

/* The last full blocks. Of windows those that were told before have been given away since. */
static int tell_last(planner *p, known *k, PyObject *ids, uint32_t num_computed)
{
    if (known_set_blocks(k, ids) < 0 || known_read_hashes(p, k) < 0)
        return -1;
    for (uint32_t g = 0; g < p->num_groups; g++) {
        uint32_t end = full_blocks(p, k, g, num_computed);
        uint32_t first = k->told[g] < end ? k->told[g] : end;
        if (!p->groups[g].is_window)
            continue;
        for (uint32_t i = 0; i < first; i++)
            k->blocks[g][i] = QUIRE_NULL_BLOCK;
        if (drop_lost(p, k, g, first, end) < 0)
            return -1;
    }
    return tell(p, k, num_computed, 1);
}

/* finished(known, block_ids, num_computed): blocks that vLLM must hold, before it frees them */
PyObject *planner_finished(PyObject *self, PyObject *args)
{
    planner *p = (planner *)self;
    known *k;
    PyObject *ids;
    unsigned int num_computed;
    const quire_block *held;
    uint32_t num_held;
    if (!PyArg_ParseTuple(args, "O!OI", connector_known_type, &k, &ids, &num_computed) ||
        (k->has_run && !k->is_loading && tell_last(p, k, ids, num_computed) < 0))
        return NULL;
    int status = quire_planner_take_held(p->planner, &held, &num_held);
    PyObject *list = status == QUIRE_OK ? py_list_u32(held, num_held) : NULL;
    if (list != NULL)
        status = quire_planner_finished(p->planner, k->req);
    if (status != QUIRE_OK) {
        Py_XDECREF(list);
        return connector_raise(status, "finished");
    }
    uint32_t index = quire_req_index(k->req);
    if (!k->is_loading && p->by_index[index] == k)
        Py_CLEAR(p->by_index[index]);
    return list;
}

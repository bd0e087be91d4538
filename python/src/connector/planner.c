/* planner.c - quire._connector.Planner: one quire_planner, and its requests. */
#include "connector.h"

#include <string.h>

/* ---- making one ------------------------------------------------------------ */

static int read_tier(PyObject *given, quire_planner_tier *tier)
{
    quire_transfer_tier *own = &tier->tier;
    if (!PyDict_Check(given))
        return PY_REFUSE(PyExc_TypeError, "a tier must be a dict");
    if (connector_read_text(given, "label", &own->label) < 0 ||
        connector_read_text(given, "medium", &own->medium) < 0 ||
        connector_read_u64(given, "deadline_ns", &own->deadline_ns) < 0 ||
        vllm_read_u32(given, "is_persistent", &own->is_persistent) < 0 ||
        vllm_read_u32(given, "is_shared", &own->is_shared) < 0 ||
        vllm_read_u32(given, "is_read_only", &own->is_read_only) < 0)
        return -1;
    return vllm_read_u32(given, "admit", (uint32_t *)(void *)&tier->admit);
}

static int read_tiers(PyObject *given, quire_planner_config *config, quire_planner_tier *tiers)
{
    PyObject *list = PyDict_GetItemString(given, "tiers");
    Py_ssize_t count = list == NULL ? 0 : PyList_Size(list);
    if (count < 0 || count > QUIRE_TRANSFER_MAX_TIERS)
        return PyErr_Occurred()
                   ? -1
                   : PY_REFUSE(PyExc_ValueError, "at most %d tiers", QUIRE_TRANSFER_MAX_TIERS);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_tier(PyList_GET_ITEM(list, i), &tiers[i]) < 0)
            return -1;
    }
    config->tiers = tiers;
    config->num_tiers = (uint32_t)count;
    return 0;
}

static int is_window(const quire_layer_spec *spec)
{
    return spec->kind != QUIRE_LAYER_FULL && spec->kind != QUIRE_LAYER_TQ_FULL &&
           spec->kind != QUIRE_LAYER_MLA && spec->kind != QUIRE_LAYER_SINK_FULL;
}

static void note_groups(planner *p, const quire_cache_config *cache)
{
    uint32_t ranks = (cache->dcp_world_size > 0 ? cache->dcp_world_size : 1) *
                     (cache->pcp_world_size > 0 ? cache->pcp_world_size : 1);
    p->num_groups = cache->num_groups;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        p->groups[g].block_size = cache->groups[g].spec.block_size * ranks;
        p->groups[g].is_window = is_window(&cache->groups[g].spec);
        p->has_windows |= p->groups[g].is_window;
    }
    p->hash_block_size = cache->hash_block_size;
    p->digest_bytes = cache->digest_bytes;
}

static int make_planner(planner *p, PyObject *given)
{
    quire_group_config groups[CONNECTOR_MAX_GROUPS];
    quire_planner_tier tiers[QUIRE_TRANSFER_MAX_TIERS];
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_planner_config config = QUIRE_PLANNER_CONFIG_INIT;
    PyObject *numbers = PyDict_GetItemString(given, "cache");
    PyObject *wants_events = PyDict_GetItemString(given, "events");
    memset(tiers, 0, sizeof tiers);
    if (numbers == NULL || !PyDict_Check(numbers))
        return PY_REFUSE(PyExc_ValueError, "cache must be a dict");
    if (vllm_read_cache(numbers, &cache, groups, CONNECTOR_MAX_GROUPS) < 0 ||
        vllm_read_u32(numbers, "digest_bytes", &cache.digest_bytes) < 0 ||
        vllm_read_u32(numbers, "profile", (uint32_t *)(void *)&cache.profile) < 0 ||
        vllm_read_u32(given, "num_slots", &config.num_slots) < 0 ||
        vllm_read_u32(given, "max_requests", &config.max_requests) < 0 ||
        vllm_read_u32(given, "event_keys", &config.event_keys) < 0 ||
        vllm_read_u32(given, "num_ranks", &config.num_ranks) < 0 ||
        vllm_read_u32(given, "learns", (uint32_t *)(void *)&config.learns) < 0 ||
        vllm_read_u32(given, "holds_loads", (uint32_t *)(void *)&config.holds_loads) < 0 ||
        connector_read_u64(given, "block_bytes", &config.block_bytes) < 0 ||
        connector_read_u64(given, "recompute_token_ns", &config.recompute_token_ns) < 0 ||
        read_tiers(given, &config, tiers) < 0)
        return -1;
    note_groups(p, &cache);
    p->max_requests = config.max_requests;
    config.cache = &cache;
    if (wants_events != NULL && PyObject_IsTrue(wants_events)) {
        config.on_event = planner_on_event;
        config.on_tier_event = planner_on_tier_event;
        config.event_user = p;
        p->events = PyList_New(0);
    }
    p->by_index = PyMem_Calloc(p->max_requests, sizeof(known *));
    if (p->by_index == NULL || (config.on_event != NULL && p->events == NULL))
        return PY_REFUSE_MEMORY();
    int status = quire_planner_create(&config, &p->planner);
    return status == QUIRE_OK ? 0 : connector_refuse(status, "planner");
}

static PyObject *planner_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *given;
    if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &given))
        return NULL;
    planner *p = (planner *)type->tp_alloc(type, 0);
    if (p != NULL && make_planner(p, given) < 0)
        Py_CLEAR(p);
    return (PyObject *)p;
}

static void planner_dealloc(PyObject *self)
{
    planner *p = (planner *)self;
    PyTypeObject *type = Py_TYPE(self);
    quire_planner_destroy(p->planner);
    for (uint32_t i = 0; p->by_index != NULL && i < p->max_requests; i++)
        Py_CLEAR(p->by_index[i]);
    PyMem_Free(p->by_index);
    Py_XDECREF(p->pool);
    Py_XDECREF(p->events);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- requests -------------------------------------------------------------- */

/* add(request): a Known; None: there are too many requests */
static PyObject *planner_add(PyObject *self, PyObject *request)
{
    planner *p = (planner *)self;
    known *k = known_new(p, request);
    if (k == NULL)
        return NULL;
    int status = quire_planner_add(p->planner, &k->req);
    if (status == QUIRE_OK) {
        Py_XSETREF(p->by_index[quire_req_index(k->req)], (known *)Py_NewRef(k));
        return (PyObject *)k;
    }
    Py_DECREF(k);
    if (status == QUIRE_FULL)
        Py_RETURN_NONE;
    return connector_raise(status, "add");
}

static int read_request(planner *p, PyObject *args, known **k, quire_planner_request *request,
                        unsigned int *num_local)
{
    unsigned int num_tokens;
    if (!PyArg_ParseTuple(args, "O!II", connector_known_type, k, &num_tokens, num_local) ||
        known_read_hashes(p, *k) < 0)
        return -1;
    *request = (quire_planner_request){.req = (*k)->req,
                                       .hashes = (*k)->hashes,
                                       .num_hashes = (*k)->num_hashes,
                                       .num_tokens = num_tokens};
    return 0;
}

/* match(known, num_tokens, num_local): tokens that can be loaded; None: not known yet */
static PyObject *planner_match(PyObject *self, PyObject *args)
{
    planner *p = (planner *)self;
    known *k;
    quire_planner_request request;
    unsigned int num_local;
    uint32_t num_external = 0;
    if (read_request(p, args, &k, &request, &num_local) < 0)
        return NULL;
    k->is_asked = 1;
    p->asking = k;
    int status = quire_planner_match(p->planner, &request, num_local, &num_external);
    p->asking = NULL;
    if (status == QUIRE_RETRY)
        Py_RETURN_NONE;
    if (status != QUIRE_OK)
        return connector_raise(status, "match");
    return PyLong_FromUnsignedLong(num_external);
}

/* prefetch(known, num_tokens, num_local) */
static PyObject *planner_prefetch(PyObject *self, PyObject *args)
{
    planner *p = (planner *)self;
    known *k;
    quire_planner_request request;
    unsigned int num_local;
    if (read_request(p, args, &k, &request, &num_local) < 0)
        return NULL;
    p->asking = k;
    int status = quire_planner_prefetch(p->planner, &request, num_local);
    p->asking = NULL;
    if (status < 0)
        return connector_raise(status, "prefetch");
    Py_RETURN_NONE;
}

/* What the tiers have had of all hits: of one load it is the difference. */
static void count_tiers(const planner *p, uint64_t *tokens)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    (void)quire_planner_get_stats(p->planner, &stats);
    for (uint32_t i = 0; i < QUIRE_TRANSFER_MAX_TIERS; i++)
        tokens[i] = stats.tiers[i].hit_tokens;
}

static int tell_allocated(planner *p, known *k, const quire_block_span *spans,
                          uint32_t num_external)
{
    uint64_t before[QUIRE_TRANSFER_MAX_TIERS];
    if (num_external == 0)
        return quire_planner_allocated(p->planner, k->req, spans, 0);
    count_tiers(p, before);
    int status = quire_planner_allocated(p->planner, k->req, spans, num_external);
    count_tiers(p, k->tier_tokens);
    for (uint32_t i = 0; i < QUIRE_TRANSFER_MAX_TIERS; i++)
        k->tier_tokens[i] -= before[i];
    return status;
}

/* allocated(known, block_ids, num_external): the load begins; block_ids is None where nothing is
 * loaded */
static PyObject *planner_allocated(PyObject *self, PyObject *args)
{
    planner *p = (planner *)self;
    known *k;
    PyObject *ids;
    unsigned int num_external;
    quire_block_span spans[CONNECTOR_MAX_GROUPS];
    if (!PyArg_ParseTuple(args, "O!OI", connector_known_type, &k, &ids, &num_external) ||
        (num_external > 0 && known_set_blocks(k, ids) < 0))
        return NULL;
    known_spans(k, spans);
    int status = tell_allocated(p, k, spans, num_external);
    if (status != QUIRE_OK)
        return connector_raise(status, "allocated");
    if (num_external > 0)
        k->is_loading = 1;
    Py_RETURN_NONE;
}

/* ---- a step ---------------------------------------------------------------- */

/* plan(step, num_tokens, num_reqs): (the plan's bytes, blocks that vLLM must hold) */
static PyObject *planner_plan(PyObject *self, PyObject *args)
{
    planner *p = (planner *)self;
    unsigned long long step;
    unsigned int num_tokens;
    unsigned int num_reqs;
    quire_planner_out out;
    if (!PyArg_ParseTuple(args, "KII", &step, &num_tokens, &num_reqs))
        return NULL;
    int status = quire_planner_plan(p->planner, step, num_tokens, num_reqs, &out);
    if (status != QUIRE_OK)
        return connector_raise(status, "plan");
    return Py_BuildValue("(y#N)", out.plan.len > 0 ? (const char *)out.plan.data : "",
                         (Py_ssize_t)out.plan.len, py_list_u32(out.held, out.num_held));
}

/* report(bytes): False: the worker has restarted, and its slots are empty */
static PyObject *planner_report(PyObject *self, PyObject *report)
{
    char *data;
    Py_ssize_t len;
    if (PyBytes_AsStringAndSize(report, &data, &len) < 0)
        return NULL;
    int status = quire_planner_report(((planner *)self)->planner, (quire_bytes){data, (size_t)len});
    if (status < 0)
        return connector_raise(status, "report");
    return PyBool_FromLong(status != QUIRE_LOST);
}

typedef struct told_requests {
    planner *p;
    const quire_req *reqs;
} told_requests;

static PyObject *make_told(const void *user, uint32_t i)
{
    const told_requests *told = user;
    known *k = told->p->by_index[quire_req_index(told->reqs[i])];
    if (k != NULL && k->req == told->reqs[i])
        return Py_NewRef((PyObject *)k);
    return PyErr_Format(PyExc_RuntimeError, "results name a request that is not known");
}

/* results(step): (loaded, failed, their blocks, blocks that may be reused) */
static PyObject *planner_results(PyObject *self, PyObject *args)
{
    planner *p = (planner *)self;
    unsigned long long step;
    quire_planner_results results;
    if (!PyArg_ParseTuple(args, "K", &step))
        return NULL;
    int status = quire_planner_get_results(p->planner, step, &results);
    if (status != QUIRE_OK)
        return connector_raise(status, "results");
    told_requests loaded = {p, results.loaded};
    told_requests failed = {p, results.failed};
    PyObject *made = Py_BuildValue("(NNNN)", py_list_of(results.num_loaded, make_told, &loaded),
                                   py_list_of(results.num_failed, make_told, &failed),
                                   py_list_u32(results.failed_blocks, results.num_failed_blocks),
                                   py_list_u32(results.released, results.num_released));
    return made;
}

static PyObject *planner_has_pending(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(quire_planner_has_pending(((planner *)self)->planner));
}

/* drop_stores(): blocks that may be reused; all of them, now */
static PyObject *planner_drop_stores(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const quire_block *released;
    uint32_t num_released;
    int status = quire_planner_drop_stores(((planner *)self)->planner, &released, &num_released);
    if (status != QUIRE_OK)
        return connector_raise(status, "drop_stores");
    return py_list_u32(released, num_released);
}

/* ---- identity -------------------------------------------------------------- */

/* reset(): False: a tier is shared; it needs another identity */
static PyObject *planner_reset(PyObject *self, PyObject *Py_UNUSED(unused))
{
    int status = quire_planner_reset(((planner *)self)->planner);
    if (status < 0 && status != QUIRE_E_IDENTITY)
        return connector_raise(status, "reset");
    return PyBool_FromLong(status != QUIRE_E_IDENTITY);
}

/* set_identity(fingerprint) */
static PyObject *planner_set_identity(PyObject *self, PyObject *args)
{
    const char *data;
    Py_ssize_t len;
    if (!PyArg_ParseTuple(args, "y#", &data, &len))
        return NULL;
    if (len != QUIRE_FINGERPRINT_BYTES)
        return PyErr_Format(PyExc_ValueError, "a fingerprint has %d bytes",
                            QUIRE_FINGERPRINT_BYTES);
    int status =
        quire_planner_set_identity(((planner *)self)->planner, (const unsigned char *)data);
    if (status != QUIRE_OK)
        return connector_raise(status, "set_identity");
    Py_RETURN_NONE;
}

/* bind(blocks): vLLM's blocks, by number, with their block_hash */
static PyObject *planner_bind(PyObject *self, PyObject *blocks)
{
    Py_XSETREF(((planner *)self)->pool, Py_NewRef(blocks));
    Py_RETURN_NONE;
}

static PyObject *planner_check(PyObject *self, PyObject *Py_UNUSED(unused))
{
    int status = quire_planner_check(((planner *)self)->planner);
    return status == QUIRE_OK ? Py_NewRef(Py_True) : connector_raise(status, "check");
}

/* forget(known): its load is told, and it has ended */
static PyObject *planner_forget(PyObject *self, PyObject *args)
{
    planner *p = (planner *)self;
    known *k;
    if (!PyArg_ParseTuple(args, "O!", connector_known_type, &k))
        return NULL;
    if (p->by_index[quire_req_index(k->req)] == k)
        Py_CLEAR(p->by_index[quire_req_index(k->req)]);
    Py_RETURN_NONE;
}

static PyMethodDef planner_methods[] = {
    {"add", planner_add, METH_O, "A request: Known, or None if there are too many."},
    {"match", planner_match, METH_VARARGS, "Tokens that can be loaded; None: not known yet."},
    {"prefetch", planner_prefetch, METH_VARARGS, "A request that waits."},
    {"allocated", planner_allocated, METH_VARARGS, "A request has blocks for its load."},
    {"new_requests", planner_new_requests, METH_VARARGS, "scheduled_new_reqs of a step."},
    {"cached_requests", planner_cached_requests, METH_VARARGS, "scheduled_cached_reqs of a step."},
    {"finished", planner_finished, METH_VARARGS, "A request has ended: blocks to keep."},
    {"forget", planner_forget, METH_VARARGS, "An ended request whose load was told."},
    {"plan", planner_plan, METH_VARARGS, "The plan of a step, and blocks to hold."},
    {"report", planner_report, METH_O, "What a worker reports."},
    {"results", planner_results, METH_VARARGS, "What has ended."},
    {"has_pending", planner_has_pending, METH_NOARGS, "Whether transfers are in flight."},
    {"drop_stores", planner_drop_stores, METH_NOARGS, "No store counts: blocks to reuse."},
    {"reset", planner_reset, METH_NOARGS, "Empties the host pool and private tiers."},
    {"set_identity", planner_set_identity, METH_VARARGS, "Another meaning of all blocks."},
    {"bind", planner_bind, METH_O, "vLLM's blocks."},
    {"stats", planner_stats, METH_NOARGS, "Counters, as a dict."},
    {"has_counted", planner_has_counted, METH_NOARGS, "Whether counters have grown since."},
    {"take_events", planner_take_events, METH_NOARGS, "Events since the last call."},
    {"check", planner_check, METH_NOARGS, "Walks everything."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot planner_slots[] = {{Py_tp_new, planner_new},
                                      {Py_tp_dealloc, planner_dealloc},
                                      {Py_tp_methods, planner_methods},
                                      {Py_tp_doc, "A quire_planner."},
                                      {0, NULL}};

PyType_Spec connector_planner_spec = {.name = "quire._connector.Planner",
                                      .basicsize = sizeof(planner),
                                      .flags = Py_TPFLAGS_DEFAULT,
                                      .slots = planner_slots};

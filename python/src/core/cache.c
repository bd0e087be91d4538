/* cache.c - Cache: which blocks each request has, group by group (quire/cache.h).
 *
 * A request is a number here, its seq: 0 before its first allocate_slots, which gives it one.
 * Hashes are given anew with each call: a list, or one buffer of all, which costs nothing.
 */
#include "cache.h"

#include <string.h>

/* ---- configs --------------------------------------------------------------- */

#define CACHE(text, name, kind, names) PY_FIELD_NAMED(quire_cache_config, text, name, kind, names)
#define U32(name)                      PY_FIELD(quire_cache_config, name, PY_FIELD_U32)
#define SWITCH(name)                   PY_FIELD(quire_cache_config, name, PY_FIELD_SWITCH)
static const py_field cache_fields[] = {
    CACHE("num_gpu_blocks", num_blocks, PY_FIELD_U32, NULL),
    U32(max_model_len),
    U32(max_encoder_tokens),
    U32(hash_block_size),
    CACHE("enable_prefix_caching", enable_caching, PY_FIELD_SWITCH, NULL),
    SWITCH(use_eagle),
    SWITCH(track_new_blocks),
    CACHE("decode_context_parallel_size", dcp_world_size, PY_FIELD_U32, NULL),
    CACHE("prefill_context_parallel_size", pcp_world_size, PY_FIELD_U32, NULL),
    CACHE("watermark", watermark, PY_FIELD_F64, NULL),
    CACHE("admit_below", admit_below, PY_FIELD_F64, NULL),
    CACHE("preempt_above", preempt_above, PY_FIELD_F64, NULL),
    U32(event_log_bytes),
    PY_FIELDS_END};

/* Those that a scheduler has of its own. */
static const py_field own_fields[] = {U32(max_num_batched_tokens),
                                      U32(max_requests),
                                      U32(max_copies),
                                      U32(num_host_blocks),
                                      U32(digest_bytes),
                                      SWITCH(log_stats),
                                      CACHE("profile", profile, PY_FIELD_NAME, py_profiles),
                                      PY_FIELDS_END};

static int get_group(void *user, PyObject *item, void *out)
{
    (void)user;
    quire_group_config *group = out;
    return py_layer_get(item, &group->spec, &group->is_eagle);
}

/* Without plan and groups: one full group. Its heads do not matter to a cache. */
static int default_group(PyObject *keywords, quire_group_config **groups, uint32_t *count)
{
    static const py_field block_size_field[] = {{"block_size", 0, PY_FIELD_U32, NULL},
                                                PY_FIELDS_END};
    uint32_t block_size = 16;
    if (py_fields_take(block_size_field, &block_size, keywords) < 0)
        return -1;
    *groups = PyMem_Calloc(1, sizeof **groups);
    if (*groups == NULL)
        return PY_REFUSE_MEMORY();
    (*groups)->spec = (quire_layer_spec){.kind = QUIRE_LAYER_FULL,
                                         .block_size = block_size,
                                         .num_kv_heads = 8,
                                         .head_size = 128,
                                         .dtype = QUIRE_DTYPE_BFLOAT16};
    *count = 1;
    return 0;
}

int py_cache_config_take(const py_state *state, PyObject *keywords, quire_cache_config *config,
                         quire_group_config **groups)
{
    *groups = NULL;
    PyObject *plan_source = py_take(keywords, "plan");
    PyObject *group_source = PyErr_Occurred() ? NULL : py_take(keywords, "groups");
    int err = PyErr_Occurred() ? -1 : 0;
    if (err == 0 && plan_source != NULL && plan_source != Py_None) {
        const quire_plan *plan = py_plan_get(state, plan_source);
        err = plan != NULL ? quire_plan_cache_config(plan, config) : -1;
        if (plan != NULL && err != QUIRE_OK)
            py_raise(state, err);
    } else if (err == 0) {
        bool is_given = group_source != NULL && group_source != Py_None;
        if (is_given)
            *groups =
                py_items_get(group_source, sizeof **groups, get_group, NULL, &config->num_groups);
        err = is_given ? (*groups != NULL ? 0 : -1)
                       : default_group(keywords, groups, &config->num_groups);
        config->groups = *groups;
    }
    if (err == 0)
        err = py_fields_take(cache_fields, config, keywords);
    Py_XDECREF(plan_source);
    Py_XDECREF(group_source);
    return err == 0 ? 0 : -1;
}

/* ---- making ---------------------------------------------------------------- */

static PyObject *make_cache(PyTypeObject *type, quire_cache_config *config)
{
    cache_object *self = py_new(type);
    if (self == NULL)
        return NULL;
    quire_cache *cache = NULL;
    int err = quire_cache_create(config, NULL, &cache);
    self->base.handle = err == QUIRE_OK ? cache : NULL;
    if (err != QUIRE_OK) {
        Py_DECREF((PyObject *)self);
        return py_raise_refused(PyType_GetModuleState(type), err, true);
    }
    self->num_groups = quire_cache_get_counts(cache).num_groups;
    self->digest_bytes = config->digest_bytes > 0 ? config->digest_bytes : 32;
    return (PyObject *)self;
}

static PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    quire_group_config *groups = NULL;
    if (!PyArg_ParseTuple(args, ":Cache"))
        return NULL;
    PyObject *rest = kwargs != NULL ? PyDict_Copy(kwargs) : PyDict_New();
    PyObject *self = NULL;
    if (rest != NULL &&
        py_cache_config_take(PyType_GetModuleState(type), rest, &config, &groups) == 0 &&
        py_fields_take(own_fields, &config, rest) == 0 && py_nothing_left(rest, "Cache") == 0)
        self = make_cache(type, &config);
    PyMem_Free(groups);
    Py_XDECREF(rest);
    return self;
}

PY_CLOSE(cache, quire_cache_destroy)

/* ---- blocks ---------------------------------------------------------------- */

PyObject *py_spans_list(const quire_block_span *spans, uint32_t num_groups)
{
    size_t total = 0;
    size_t used = 0;
    for (uint32_t g = 0; g < num_groups; g++)
        total += spans[g].count;
    quire_block *ids = PyMem_Malloc((total + num_groups + 1) * sizeof *ids);
    if (ids == NULL)
        return PyErr_NoMemory();
    uint32_t *counts = ids + total;
    for (uint32_t g = 0; g < num_groups; g++) {
        counts[g] = spans[g].count;
        if (counts[g] > 0)
            memcpy(ids + used, spans[g].ids, counts[g] * sizeof *ids);
        used += counts[g];
    }
    used = 0;
    PyObject *list = PyList_New((Py_ssize_t)num_groups);
    for (uint32_t g = 0; list != NULL && g < num_groups; g++) {
        PyObject *blocks = py_list_u32(ids + used, counts[g]);
        if (blocks == NULL || PyList_SetItem(list, g, blocks) < 0)
            Py_CLEAR(list);
        used += counts[g];
    }
    PyMem_Free(ids);
    return list;
}

quire_block_span *py_spans_new(uint32_t num_groups)
{
    quire_block_span *spans = PyMem_Calloc((size_t)num_groups + 1, sizeof *spans);
    return spans != NULL ? spans : (void *)PyErr_NoMemory();
}

PyObject *py_spans_taken(PyObject *object, int status, quire_block_span *spans, uint32_t num_groups)
{
    PyObject *list =
        status == QUIRE_OK ? py_spans_list(spans, num_groups) : py_fail(object, status);
    PyMem_Free(spans);
    return list;
}

static PyObject *cache_blocks_of(PyObject *object, PyObject *argument)
{
    uint32_t num_groups = ((cache_object *)object)->num_groups;
    quire_seq seq = PyLong_AsUnsignedLongLong(argument);
    PY_OPEN(quire_cache, cache);
    quire_block_span *spans = py_spans_new(num_groups);
    if (spans == NULL)
        return NULL;
    return py_spans_taken(object, quire_cache_get_blocks(cache, seq, spans), spans, num_groups);
}

/* ---- a request's life ------------------------------------------------------ */

int py_cache_hashes_get(PyObject *object, PyObject *source, quire_cache_request *request,
                        py_hashes *hashes)
{
    int err = py_hashes_get(source, ((cache_object *)object)->digest_bytes, hashes);
    request->hashes = hashes->data;
    request->num_hashes = hashes->count;
    return err;
}

static PyObject *cache_get_computed(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"num_tokens", "hashes", NULL};
    quire_cache_request request = {0};
    PyObject *source;
    py_hashes hashes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "IO:get_computed_blocks", names,
                                     &request.num_tokens, &source) ||
        py_cache_hashes_get(object, source, &request, &hashes) < 0)
        return NULL;
    uint32_t num_groups = ((cache_object *)object)->num_groups;
    uint32_t num_tokens = 0;
    quire_cache *cache = py_open(object);
    quire_block_span *spans = cache != NULL ? py_spans_new(num_groups) : NULL;
    PyObject *list = NULL;
    if (spans != NULL) {
        int err = quire_cache_get_computed_blocks(cache, &request, spans, &num_tokens);
        list = py_spans_taken(object, err, spans, num_groups);
    }
    py_ints_release(&hashes);
    return list != NULL ? Py_BuildValue("(NI)", list, num_tokens) : NULL;
}

/* The hit's blocks, as get_computed_blocks gave them. */
static int get_spans(PyObject *source, uint32_t num_groups, py_ints *rows, quire_block_span *spans)
{
    PyObject *list = PySequence_List(source);
    int err = list != NULL && PyList_Size(list) == (Py_ssize_t)num_groups ? 0 : -1;
    if (list != NULL && err < 0)
        PyErr_Format(PyExc_ValueError, "new_computed_blocks needs %u lists", num_groups);
    for (uint32_t g = 0; err == 0 && g < num_groups; g++) {
        err = py_ints_get(PyList_GetItem(list, g), 'I', "new_computed_blocks", &rows[g]);
        spans[g] = (quire_block_span){rows[g].data, rows[g].count};
    }
    Py_XDECREF(list);
    return err;
}

static PyObject *allocate(PyObject *object, quire_cache_request *request,
                          const quire_allocate_params *params, quire_block_span *spans)
{
    PY_OPEN(quire_cache, cache);
    PY_CALL(quire_cache_allocate_slots(cache, request, params, spans));
    PyObject *list = py_spans_list(spans, ((cache_object *)object)->num_groups);
    return list != NULL ? Py_BuildValue("(KN)", (unsigned long long)request->seq, list) : NULL;
}

static PyObject *allocate_with_hit(PyObject *object, quire_cache_request *request,
                                   quire_allocate_params *params, PyObject *hit)
{
    uint32_t num_groups = ((cache_object *)object)->num_groups;
    py_ints *rows = PyMem_Calloc((size_t)num_groups + 1, sizeof *rows);
    quire_block_span *spans = PyMem_Calloc(2 * (size_t)num_groups + 1, sizeof *spans);
    PyObject *result = NULL;
    if (rows == NULL || spans == NULL)
        PyErr_NoMemory();
    else if (hit == Py_None || get_spans(hit, num_groups, rows, spans) == 0) {
        params->new_computed_blocks = hit != Py_None ? spans : NULL;
        result = allocate(object, request, params, spans + num_groups);
    }
    for (uint32_t g = 0; rows != NULL && g < num_groups; g++)
        py_ints_release(&rows[g]);
    PyMem_Free(rows);
    PyMem_Free(spans);
    return result;
}

static PyObject *cache_allocate(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"seq",
                            "num_tokens",
                            "num_new_tokens",
                            "num_computed_tokens",
                            "hashes",
                            "num_new_computed_tokens",
                            "new_computed_blocks",
                            "num_lookahead_tokens",
                            "num_external_computed_tokens",
                            "num_encoder_tokens",
                            "delay_cache_blocks",
                            NULL};
    quire_cache_request request = {0};
    quire_allocate_params params = QUIRE_ALLOCATE_PARAMS_INIT;
    unsigned long long seq;
    PyObject *hash_source = Py_None;
    PyObject *hit = Py_None;
    int is_delayed = 0;
    py_hashes hashes;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "KII|$IOIOIIIp:allocate_slots", names, &seq, &request.num_tokens,
            &params.num_new_tokens, &request.num_computed_tokens, &hash_source,
            &params.num_new_computed_tokens, &hit, &params.num_lookahead_tokens,
            &params.num_external_computed_tokens, &params.num_encoder_tokens, &is_delayed) ||
        py_cache_hashes_get(object, hash_source, &request, &hashes) < 0)
        return NULL;
    request.seq = seq;
    params.delay_cache_blocks = (uint32_t)is_delayed;
    PyObject *result = allocate_with_hit(object, &request, &params, hit);
    py_ints_release(&hashes);
    return result;
}

static PyObject *cache_free(PyObject *object, PyObject *argument)
{
    quire_cache_request request = {.seq = PyLong_AsUnsignedLongLong(argument), .num_tokens = 1};
    PY_OPEN(quire_cache, cache);
    return py_done(object, quire_cache_free(cache, &request));
}

static PyObject *cache_fork(PyObject *object, PyObject *argument)
{
    quire_cache_request parent = {.seq = PyLong_AsUnsignedLongLong(argument), .num_tokens = 1};
    quire_cache_request child = {.num_tokens = 1};
    PY_OPEN(quire_cache, cache);
    PY_CALL(quire_cache_fork(cache, &parent, &child));
    return PyLong_FromUnsignedLongLong(child.seq);
}

static PyObject *cache_take_copies(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    const quire_block_copy *copies;
    uint32_t count;
    PY_OPEN(quire_cache, cache);
    PY_CALL(quire_cache_take_copies(cache, &copies, &count));
    return py_copied_view(object, copies, count * sizeof *copies, "I");
}

/* ---- looking --------------------------------------------------------------- */

PY_METHOD(cache_reset, quire_cache, quire_cache_reset_prefix_cache)
PY_METHOD(cache_new_step, quire_cache, quire_cache_new_step_starts)
PY_METHOD(cache_check, quire_cache, quire_cache_check)
PY_NUMBERS(cache_usage, quire_cache, py_usage_dict, quire_cache_get_usage)

static PyObject *cache_take_events(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PY_OPEN(quire_cache, cache);
    return py_take_events(object, cache);
}

/* ---- the type -------------------------------------------------------------- */

static PyMethodDef cache_methods[] = {
    {"get_computed_blocks", PY_KEYWORDS(cache_get_computed),
     "get_computed_blocks(num_tokens, hashes)\n--\n\nThe longest hit of a prompt: (a list of "
     "blocks for each group, tokens)."},
    {"allocate_slots", PY_KEYWORDS(cache_allocate),
     "allocate_slots(seq, num_tokens, num_new_tokens, *, num_computed_tokens=0, hashes=None, "
     "num_new_computed_tokens=0, new_computed_blocks=None, num_lookahead_tokens=0, "
     "num_external_computed_tokens=0, num_encoder_tokens=0, delay_cache_blocks=False)\n--\n\nMakes "
     "room for new tokens: (seq, new blocks of each group). seq 0 for a new request. NO_SPACE."},
    {"free", cache_free, METH_O, "free(seq, /)\n--\n\nGives all blocks of a request back."},
    {"fork", cache_fork, METH_O,
     "fork(seq, /)\n--\n\nA new seq that shares all blocks; writing makes copies."},
    {"take_copies", cache_take_copies, METH_NOARGS,
     "take_copies()\n--\n\nPages to copy before the next pass: from, to, group, one after the "
     "other."},
    {"copy_on_write", py_cache_copy_on_write, METH_VARARGS,
     "copy_on_write(seq, first_token, num_tokens, /)\n--\n\nBlocks of these tokens that are shared "
     "or cached are replaced by copies. NO_SPACE, FULL."},
    {"can_allocate", PY_KEYWORDS(py_cache_can_allocate),
     "can_allocate(seq, num_tokens, num_new_tokens, *, num_computed_tokens=0, hashes=None, "
     "num_lookahead_tokens=0)\n--\n\nWhether allocate_slots would succeed now; changes nothing."},
    {"move_out", py_cache_move_out, METH_VARARGS,
     "move_out(seq, num_computed_tokens, /)\n--\n\nMoves a request to host slots: (its new seq, "
     "block, slot and group of each copy, one after the other). FULL, MISS."},
    {"move_in", PY_KEYWORDS(py_cache_move_in),
     "move_in(seq, num_tokens, num_computed_tokens, hashes=None)\n--\n\nMoves it back: (its new "
     "seq, the copies as for move_out). NO_SPACE, FULL."},
    {"can_move_in", PY_KEYWORDS(py_cache_can_move_in),
     "can_move_in(seq, num_tokens, num_computed_tokens, hashes=None)\n--\n\nWhether move_in would "
     "succeed now."},
    {"location", py_cache_location, METH_O, "location(seq, /)\n--\n\n'device', 'host' or 'none'."},
    {"find_token", py_cache_find_token, METH_VARARGS,
     "find_token(seq, token, group=0, /)\n--\n\n(block, place in the row, offset in the block). "
     "MISS outside the window."},
    {"block", PY_KEYWORDS(py_cache_block),
     "block(seq, index, group=0, *, num_computed_tokens=0)\n--\n\nOne block of a request, as a "
     "dict."},
    {"totals", py_cache_totals, METH_NOARGS,
     "totals()\n--\n\nWhat all requests have together, as a dict."},
    {"pressure", py_cache_pressure, METH_NOARGS,
     "pressure()\n--\n\nA dict: level, should_admit, should_preempt."},
    {"evict_cached", py_cache_evict_cached, METH_O,
     "evict_cached(num_blocks, /)\n--\n\nEvicts cached blocks, the least recently freed first; "
     "returns how many there were."},
    {"blocks", cache_blocks_of, METH_O, "blocks(seq, /)\n--\n\nAll blocks, a list for each group."},
    {"usage", cache_usage, METH_NOARGS,
     "usage()\n--\n\nA dict: total, empty, cached, active, null_blocks."},
    {"reset_prefix_cache", cache_reset, METH_NOARGS,
     "reset_prefix_cache()\n--\n\nNothing can be found any more. BUSY while blocks are in use."},
    {"new_step_starts", cache_new_step, METH_NOARGS,
     "new_step_starts()\n--\n\nStates computed in the step before can be hits now."},
    {"take_events", cache_take_events, METH_NOARGS,
     "take_events()\n--\n\nEvents since the last call; needs event_log_bytes."},
    {"check", cache_check, METH_NOARGS,
     "check()\n--\n\nWalks everything; E_CORRUPT when an invariant does not hold."},
    {"close", cache_close, METH_NOARGS, "close()\n--\n\nFrees the memory."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef cache_getset[] = {
    {"num_groups", py_get_u32, NULL, "Groups of layers.", PY_OFFSET(cache_object, num_groups)},
    {NULL, NULL, NULL, NULL, NULL}};

PY_TYPE(
    cache, "quire.Cache",
    "Cache(*, num_gpu_blocks=0, max_model_len=0, plan=None, groups=None, block_size=16, "
    "max_encoder_tokens=0, hash_block_size=0, enable_prefix_caching=True, use_eagle=False, "
    "track_new_blocks=None, decode_context_parallel_size=1, prefill_context_parallel_size=1, "
    "watermark=0.0, admit_below=0.8, preempt_above=0.95, event_log_bytes=0, "
    "max_num_batched_tokens=0, max_requests=0, max_copies=0, num_host_blocks=0, digest_bytes=32, "
    "log_stats=False, profile='default')\n--\n\n"
    "The KV cache of an engine: which blocks each request has.\n\n"
    "num_gpu_blocks and max_model_len are needed, or a plan that has both. groups: layers as "
    "dicts, one for each group; without them one group of full attention with block_size. "
    "include/quire/cache.h explains each setting.")

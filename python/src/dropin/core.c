/* core.c - quire._vllm.Core: one quire_sched, its slots, and the calls that are not a step. */
#include "vllm.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char *const core_names[VLLM_NUM_NAMES] = {
    "sampled_token_ids", "req_id_to_index", "num_scheduled_tokens", "scheduled_spec_decode_tokens",
    "logprobs",          "_quire_step"};

PyObject *vllm_raise(int status, const char *what)
{
    PyObject *kind = PyExc_RuntimeError;
    if (status == QUIRE_E_NOMEM)
        kind = PyExc_MemoryError;
    if (status == QUIRE_E_ARGUMENT || status == QUIRE_E_CONFIG || status == QUIRE_E_RANGE ||
        status == QUIRE_E_PREDICTION)
        kind = PyExc_ValueError;
    if (status == QUIRE_E_CONFIG && quire_refusal()[0] != '\0')
        return PyErr_Format(kind, "%s: %s", what, quire_refusal());
    return PyErr_Format(kind, "%s: %s (%s)", what, quire_strerror(status),
                        quire_status_name(status));
}

int vllm_refuse(int status, const char *what)
{
    vllm_raise(status, what);
    return -1;
}

PyObject *vllm_done(int status, const char *what)
{
    if (status != QUIRE_OK)
        return vllm_raise(status, what);
    Py_RETURN_NONE;
}

void vllm_clear_all(void *objects, size_t bytes)
{
    PyObject **all = objects;
    for (size_t i = 0; i < bytes / sizeof(PyObject *); i++)
        Py_CLEAR(all[i]);
}

int vllm_dict_put(PyObject *dict, PyObject *key, PyObject *value)
{
    int failed = value == NULL || PyDict_SetItem(dict, key, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

int vllm_list_put(PyObject *list, PyObject *value)
{
    int failed = value == NULL || PyList_Append(list, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

vllm_slot *vllm_slot_of(vllm_core *core, quire_req req)
{
    uint32_t index = quire_req_index(req);
    if (index >= core->max_requests || core->slots[index].req != req)
        return NULL;
    return &core->slots[index];
}

/* ---- a request leaves ---------------------------------------------------- */

void vllm_slot_clear(vllm_slot *slot)
{
    vllm_slot gone = *slot;
    memset(slot, 0, sizeof(*slot));
    vllm_clear_all(&gone, offsetof(vllm_slot, req)); /* which is behind the references */
}

static int note_finished(vllm_core *core, PyObject *id, uint32_t client)
{
    if (PySet_Add(core->finished, id) < 0)
        return -1;
    if (core->types.finished_by_client == NULL)
        return 0;
    PyObject *key = PyLong_FromUnsignedLong(client);
    PyObject *set = key == NULL ? NULL : PyObject_GetItem(core->types.finished_by_client, key);
    int failed = set == NULL || PySet_Add(set, id) < 0;
    Py_XDECREF(key);
    Py_XDECREF(set);
    return failed ? -1 : 0;
}

static int slot_end(vllm_core *core, vllm_slot *slot, long status)
{
    PyObject *answer = NULL;
    if (PyDict_DelItem(core->types.requests, slot->id) == 0)
        answer = PyObject_CallFunction(core->types.ended, "OlIII", slot->request, status,
                                       slot->num_computed, slot->num_preemptions,
                                       (uint32_t)slot->is_prefill_chunk);
    vllm_slot_clear(slot);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

int vllm_slot_end_aux(const vllm_core *core, const vllm_slot *slot)
{
    if (core->types.aux_ended == NULL)
        return 0;
    PyObject *answer = PyObject_CallFunctionObjArgs(core->types.aux_ended, slot->request, NULL);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

int vllm_slot_finish(vllm_core *core, vllm_slot *slot, long status, uint32_t client)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (vllm_slot_end_aux(core, slot) < 0 || note_finished(core, slot->id, client) < 0)
        return -1;
    if (quire_sched_get_req_info(core->sched, slot->req, &info) != QUIRE_OK)
        return slot_end(core, slot, status);
    slot->final_status = (uint8_t)status;
    return 0;
}

int vllm_slot_end_kept(vllm_core *core, quire_req req)
{
    vllm_slot *slot = vllm_slot_of(core, req);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (slot == NULL || quire_sched_get_req_info(core->sched, req, &info) == QUIRE_OK)
        return 0;
    return slot_end(core, slot, slot->final_status);
}

static PyObject *core_finish(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long number;
    int status;
    if (!PyArg_ParseTuple(args, "Ki", &number, &status))
        return NULL;
    quire_req req = number;
    vllm_slot *slot = vllm_slot_of(core, req);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (slot == NULL || slot->final_status != 0 ||
        quire_sched_get_req_info(core->sched, req, &info) != QUIRE_OK)
        Py_RETURN_FALSE;
    int answer = quire_sched_finish(core->sched, &req, 1, (quire_req_status)status, NULL);
    if (vllm_raise_kept(core) < 0)
        return NULL;
    if (answer != QUIRE_OK)
        return vllm_raise(answer, "finish_requests");
    slot->num_computed = info.num_computed_tokens;
    if (vllm_slot_finish(core, slot, status, info.client_index) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

/* ---- looking ------------------------------------------------------------- */

/* Whether a request has ended in the update that is running, and a connector has it in its hands:
 * the library has forgotten it, its Request is not told yet. */
static int has_just_ended(const vllm_slot *slot)
{
    return slot != NULL && slot->request != NULL && slot->told_status != 0;
}

static PyObject *core_info(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long req;
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (!PyArg_ParseTuple(args, "K", &req))
        return NULL;
    vllm_slot *slot = vllm_slot_of(core, req);
    int status = quire_sched_get_req_info(core->sched, req, &info);
    if (status != QUIRE_OK && has_just_ended(slot))
        return Py_BuildValue("(iIIIIi)", (int)slot->told_status, slot->num_computed, 0,
                             slot->num_preemptions, 0, (int)slot->is_prefill_chunk);
    if (slot == NULL || status != QUIRE_OK)
        return vllm_raise(status == QUIRE_OK ? QUIRE_E_UNKNOWN_REQ : status, "request");
    return Py_BuildValue("(iIIIIi)", (int)info.status, info.num_computed_tokens,
                         info.num_output_placeholders, info.num_preemptions, info.num_spec_tokens,
                         (int)slot->is_prefill_chunk);
}

/* flight(number): tokens of steps in flight, those that are stale, whether they are dropped */
static PyObject *core_flight(PyObject *self, PyObject *args)
{
    unsigned long long req;
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (!PyArg_ParseTuple(args, "K", &req))
        return NULL;
    int status = quire_sched_get_req_info(((vllm_core *)self)->sched, req, &info);
    if (status != QUIRE_OK && !has_just_ended(vllm_slot_of((vllm_core *)self, req)))
        return vllm_raise(status, "request");
    return Py_BuildValue("(III)", info.num_in_flight_tokens, info.num_stale_tokens,
                         info.drops_stale);
}

/* The set itself: it is the next SchedulerOutput's. */
static PyObject *core_finished(PyObject *self, PyObject *Py_UNUSED(unused))
{
    vllm_core *core = (vllm_core *)self;
    return Py_NewRef(core->finished);
}

static PyObject *core_preempted(PyObject *self, PyObject *Py_UNUSED(unused))
{
    vllm_core *core = (vllm_core *)self;
    return Py_NewRef(core->preempted);
}

static PyObject *core_blocks(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long req;
    quire_block_span spans[VLLM_MOST_GROUPS];
    if (!PyArg_ParseTuple(args, "K", &req))
        return NULL;
    int status = quire_sched_get_blocks(core->sched, req, spans);
    if (status != QUIRE_OK)
        return vllm_raise(status, "blocks");
    return vllm_block_ids(spans, core->num_groups, 0);
}

/* A queue as a list of Requests: 0 running, 1 waiting, 2 skipped. */
static PyObject *core_queue(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned int which;
    if (!PyArg_ParseTuple(args, "I", &which))
        return NULL;
    uint32_t count = quire_sched_get_queue(core->sched, which, NULL, 0);
    quire_req *reqs = PyMem_Malloc((count + 1) * sizeof(*reqs));
    if (reqs == NULL)
        return PyErr_NoMemory();
    quire_sched_get_queue(core->sched, which, reqs, count);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *request = vllm_slot_of(core, reqs[i])->request;
        Py_INCREF(request);
        PyList_SetItem(list, (Py_ssize_t)i, request);
    }
    PyMem_Free(reqs);
    return list;
}

static PyObject *core_queue_length(PyObject *self, PyObject *args)
{
    unsigned int which;
    if (!PyArg_ParseTuple(args, "I", &which))
        return NULL;
    return PyLong_FromUnsignedLong(
        quire_sched_get_queue(((vllm_core *)self)->sched, which, NULL, 0));
}

static PyObject *core_counts(PyObject *self, PyObject *Py_UNUSED(unused))
{
    vllm_core *core = (vllm_core *)self;
    quire_sched_counts counts = quire_sched_get_counts(core->sched);
    return Py_BuildValue("(IIIi)", counts.num_running, counts.num_waiting, counts.num_unfinished,
                         PySet_Size(core->finished) > 0);
}

static PyObject *core_set_pause(PyObject *self, PyObject *args)
{
    unsigned int pause;
    if (!PyArg_ParseTuple(args, "I", &pause))
        return NULL;
    int status = quire_sched_set_pause(((vllm_core *)self)->sched, (quire_pause)pause);
    return vllm_done(status, "set_pause_state");
}

/* A request was preempted outside of a step: an event of it, and the next step lists it. */
static int note_preempted(vllm_core *core, vllm_slot *slot, PyObject **time)
{
    if (vllm_is_0_32(core) && PySet_Add(core->preempted, slot->id) < 0)
        return -1;
    if (vllm_slot_end_aux(core, slot) < 0)
        return -1;
    if (!core->log_stats)
        return 0;
    PyObject *answer = PyObject_CallFunction(core->types.record, "OiO", slot->request, 3,
                                             *time == NULL ? Py_None : *time);
    if (answer == NULL)
        return -1;
    Py_XSETREF(*time, answer);
    slot->has_events = 1;
    return 0;
}

/* A request after a reset, which may have preempted it. */
static int slot_look(vllm_core *core, vllm_slot *slot, PyObject **time)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (slot == NULL || slot->request == NULL ||
        quire_sched_get_req_info(core->sched, slot->req, &info) != QUIRE_OK)
        return 0;
    if (slot->num_preemptions != info.num_preemptions && note_preempted(core, slot, time) < 0)
        return -1;
    slot->num_computed = info.num_computed_tokens;
    slot->num_preemptions = info.num_preemptions;
    return 0;
}

/* Those that ran, the last one first, as they were preempted; then all others. */
static int slots_look(vllm_core *core, const quire_req *ran, uint32_t num_ran)
{
    PyObject *time = NULL;
    int failed = 0;
    for (uint32_t i = num_ran; i-- > 0 && !failed;)
        failed = slot_look(core, vllm_slot_of(core, ran[i]), &time) < 0;
    for (uint32_t i = 0; i < core->max_requests && !failed; i++)
        failed = slot_look(core, &core->slots[i], &time) < 0;
    Py_XDECREF(time);
    return failed ? -1 : 0;
}

static PyObject *core_reset_prefix_cache(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned int reset_running;
    unsigned int reset_connector;
    if (!PyArg_ParseTuple(args, "II", &reset_running, &reset_connector))
        return NULL;
    quire_req *ran = PyMem_Malloc(((size_t)core->max_rows + 1) * sizeof(*ran));
    if (ran == NULL)
        return PyErr_NoMemory();
    uint32_t num_ran = quire_sched_get_queue(core->sched, 0, ran, core->max_rows);
    int status = quire_sched_reset_prefix_cache(core->sched, reset_running, reset_connector);
    if (status == QUIRE_OK)
        vllm_lives_forget(core); /* as vLLM's collector does */
    int failed = vllm_raise_kept(core) < 0 || (reset_running && slots_look(core, ran, num_ran) < 0);
    PyMem_Free(ran);
    if (failed)
        return NULL;
    if (status < 0)
        return vllm_raise(status, "reset_prefix_cache");
    return PyBool_FromLong(status == QUIRE_OK);
}

static PyObject *core_reset_encoder_cache(PyObject *self, PyObject *Py_UNUSED(unused))
{
    int status = quire_sched_reset_encoder_cache(((vllm_core *)self)->sched);
    return vllm_done(status, "reset_encoder_cache");
}

PyObject *vllm_prefix_stats(const quire_prefix_stats *stats)
{
    return Py_BuildValue("(iKKKKKK)", stats->was_reset != 0, stats->requests, stats->queries,
                         stats->hits, stats->preempted_requests, stats->preempted_queries,
                         stats->preempted_hits);
}

/* What make_stats needs outside of an update. */
static PyObject *core_stats(PyObject *self, PyObject *Py_UNUSED(unused))
{
    vllm_core *core = (vllm_core *)self;
    const quire_sched_stats *stats = NULL;
    int status = quire_sched_take_stats(core->sched, &stats);
    return status == QUIRE_OK ? vllm_stats(core, stats) : vllm_raise(status, "make_stats");
}

/* ---- making and ending --------------------------------------------------- */

static int read_types(vllm_core *core, PyObject *types)
{
    const struct {
        const char *name;
        bool may_be_missing;
    } wanted[] = {
#define X(field, name, may_be_missing) {name, may_be_missing},
        VLLM_TYPES(X)
#undef X
    };
    PyObject **all = (PyObject **)&core->types;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        all[i] = Py_XNewRef(PyDict_GetItemString(types, wanted[i].name));
        if (all[i] == NULL && !wanted[i].may_be_missing)
            return PY_REFUSE(PyExc_KeyError, "%s", wanted[i].name);
    }
    if (core->types.finished_by_client == Py_None)
        Py_CLEAR(core->types.finished_by_client);
    return 0;
}

static int make_memory(vllm_core *core)
{
    size_t rows = core->max_rows;
    core->slots = PyMem_Calloc(core->max_requests, sizeof(vllm_slot));
    core->stride = core->num_spec_tokens + 1;
    core->sampled = PyMem_Calloc(rows * core->stride, sizeof(quire_token));
    core->num_sampled = PyMem_Calloc(rows, sizeof(uint32_t));
    core->has_pooled = PyMem_Calloc(rows, sizeof(uint8_t));
    core->num_invalid = PyMem_Calloc(rows, sizeof(uint32_t));
    core->row_slots = PyMem_Calloc(rows, sizeof(uint32_t));
    core->finished = PySet_New(NULL);
    core->preempted = PySet_New(NULL);
    if (core->slots == NULL || core->sampled == NULL || core->num_sampled == NULL ||
        core->has_pooled == NULL || core->num_invalid == NULL || core->row_slots == NULL)
        return PY_REFUSE_MEMORY();
    for (size_t i = 0; i < VLLM_NUM_NAMES; i++) {
        core->names[i] = PyUnicode_InternFromString(core_names[i]);
        if (core->names[i] == NULL)
            return -1;
    }
    return core->finished == NULL || core->preempted == NULL ? -1 : 0;
}

static const vllm_field core_fields[] = {
    VLLM_FIELD(vllm_core, tells_tokens), VLLM_FIELD(vllm_core, is_v2),
    VLLM_FIELD(vllm_core, profile),      VLLM_FIELD(vllm_core, requires_kv_delivery),
    VLLM_FIELD(vllm_core, defers_frees), VLLM_FIELD(vllm_core, returns_masks),
    VLLM_FIELD(vllm_core, diverges),     {NULL, 0}};

/* The scheduler, with what it asks and tells. */
static int create_sched(vllm_core *core, PyObject *given, quire_sched_config *config)
{
    quire_grammar grammar = vllm_grammar(core);
    quire_connector connector = vllm_connector(core);
    quire_encoder_connector images = vllm_encoder_connector(core);
    config->grammar = &grammar; /* copied, as all others */
    config->connector = core->types.match == NULL ? NULL : &connector;
    config->encoder_connector = core->types.has_image == NULL ? NULL : &images;
    vllm_listen(core, config->cache);
    config->hasher = core->hasher;
    uint32_t *drafts = NULL;
    if (vllm_read_list(given, "num_spec_tokens_by_batch", &drafts, &config->num_batch_sizes) < 0)
        return -1;
    config->num_spec_tokens_by_batch = drafts;
    int status = quire_sched_create(config, NULL, &core->sched);
    PyMem_Free(drafts);
    return status == QUIRE_OK ? 0 : vllm_refuse(status, "Scheduler");
}

static int make_sched(vllm_core *core, PyObject *given)
{
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    quire_group_config groups[VLLM_MOST_GROUPS];
    if (vllm_read_fields(given, core_fields, core) < 0 ||
        vllm_read_config(given, &config, &hasher, groups, VLLM_MOST_GROUPS) < 0)
        return -1;
    int status = QUIRE_OK;
    if (cache.enable_caching != QUIRE_OFF)
        status = quire_hasher_create(&hasher, NULL, &core->hasher);
    if (status != QUIRE_OK)
        return vllm_refuse(status, "Scheduler");
    if (create_sched(core, given, &config) < 0)
        return -1;
    core->num_groups = cache.num_groups;
    core->max_requests = config.max_requests;
    core->max_rows = config.max_num_seqs;
    core->num_spec_tokens = config.num_spec_tokens;
    uint32_t places = config.max_batches - 1; /* and one for a step made by hand */
    core->max_flight = places < VLLM_MAX_FLIGHT ? places : VLLM_MAX_FLIGHT;
    core->log_stats = config.log_stats == QUIRE_ON;
    core->digest_bytes = cache.digest_bytes;
    return 0;
}

static PyObject *core_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given;
    PyObject *types;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "Core takes no keyword arguments");
    if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &given, &PyDict_Type, &types))
        return NULL;
    vllm_core *core = (vllm_core *)PyType_GenericAlloc(type, 0);
    if (core == NULL)
        return NULL;
    if (read_types(core, types) < 0 || make_sched(core, given) < 0 || make_memory(core) < 0) {
        Py_DECREF(core);
        return NULL;
    }
    return (PyObject *)core;
}

/* The types are references and nothing else. */
enum { NUM_TYPES = sizeof(vllm_types) / sizeof(PyObject *) };

static int core_traverse(PyObject *self, visitproc visit, void *arg)
{
    vllm_core *core = (vllm_core *)self;
    Py_VISIT(Py_TYPE(self));
    for (uint32_t i = 0; core->slots != NULL && i < core->max_requests; i++) {
        Py_VISIT(core->slots[i].request);
    }
    PyObject **types = (PyObject **)&core->types;
    for (size_t i = 0; i < NUM_TYPES; i++)
        Py_VISIT(types[i]);
    Py_VISIT(core->output);
    for (size_t i = 0; i < 3; i++)
        Py_VISIT(core->error[i]);
    return 0;
}

static int core_clear(PyObject *self)
{
    vllm_core *core = (vllm_core *)self;
    for (uint32_t i = 0; core->slots != NULL && i < core->max_requests; i++)
        vllm_slot_clear(&core->slots[i]);
    vllm_clear_all(&core->types, sizeof core->types);
    vllm_clear_all(core->error, sizeof core->error);
    Py_CLEAR(core->output);
    return 0;
}

static void core_dealloc(PyObject *self)
{
    vllm_core *core = (vllm_core *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    core_clear(self);
    vllm_lives_free(core);
    quire_sched_destroy(core->sched);
    quire_hasher_destroy(core->hasher);
    PyMem_Free(core->slots);
    PyMem_Free(core->sampled);
    PyMem_Free(core->num_sampled);
    PyMem_Free(core->has_pooled);
    PyMem_Free(core->num_invalid);
    PyMem_Free(core->row_slots);
    Py_XDECREF(core->finished);
    Py_XDECREF(core->preempted);
    vllm_clear_all(core->names, sizeof core->names);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- one call at a time -------------------------------------------------- */

#define GUARDED(name, call)                                                                        \
    static PyObject *name(PyObject *self, PyObject *args)                                          \
    {                                                                                              \
        return vllm_guarded(self, args, call);                                                     \
    }

GUARDED(guarded_add, vllm_core_add)
GUARDED(guarded_go_on, vllm_core_go_on)
GUARDED(guarded_schedule, vllm_core_schedule)
GUARDED(guarded_update, vllm_core_update)
GUARDED(guarded_update_drafts, vllm_core_update_drafts)
GUARDED(guarded_finish, core_finish)
GUARDED(guarded_set_pause, core_set_pause)
GUARDED(guarded_follow, vllm_core_follow)
GUARDED(guarded_reset_encoder_cache, core_reset_encoder_cache)
GUARDED(guarded_reset_prefix_cache, core_reset_prefix_cache)

static PyMethodDef core_methods[] = {
    {"add", guarded_add, METH_VARARGS, "add(request, params): its number"},
    {"go_on", guarded_go_on, METH_VARARGS, "go_on(number, request, params): a session's input"},
    {"schedule", guarded_schedule, METH_VARARGS, "schedule(prompts wait): a SchedulerOutput"},
    {"update", guarded_update, METH_VARARGS,
     "update(scheduler_output, model_runner_output): outputs by client, and stats"},
    {"update_drafts", guarded_update_drafts, METH_VARARGS, "update_drafts(numbers, lists)"},
    {"finish", guarded_finish, METH_VARARGS, "finish(number, status): whether it was there"},
    {"info", core_info, METH_VARARGS, "info(number): what changes in every step"},
    {"flight", core_flight, METH_VARARGS,
     "flight(number): tokens of steps in flight, stale ones, whether those are dropped"},
    {"other_sizes", vllm_core_other_sizes, METH_NOARGS, "other_sizes(): images unlike their item"},
    {"drafts", vllm_core_drafts, METH_VARARGS, "drafts(number): token ids"},
    {"finished", core_finished, METH_NOARGS, "finished(): ids that ended since the last step"},
    {"blocks", core_blocks, METH_VARARGS, "blocks(number): block ids by group"},
    {"block", vllm_core_block, METH_VARARGS, "block(id): users, hash with its group or None"},
    {"cached_block", vllm_core_cached_block, METH_VARARGS,
     "cached_block(hash, group): a block with this key, None without one"},
    {"further_hashes", vllm_core_further_hashes, METH_VARARGS,
     "further_hashes(id): those beside its own"},
    {"next_free", vllm_core_next_free, METH_VARARGS,
     "next_free(id): the block behind it in the free queue, 0 at its end; next_free(0): its head"},
    {"num_free", vllm_core_num_free, METH_NOARGS, "num_free(): blocks in the free queue"},
    {"touch", vllm_core_touch, METH_VARARGS, "touch(ids): one more user for each block"},
    {"free_blocks", vllm_core_free_blocks, METH_VARARGS, "free_blocks(ids): one user less"},
    {"preempted", core_preempted, METH_NOARGS, "preempted(): ids that a reset has preempted"},
    {"queue", core_queue, METH_VARARGS, "queue(which): Requests in order"},
    {"queue_length", core_queue_length, METH_VARARGS, "queue_length(which)"},
    {"counts", core_counts, METH_NOARGS, "running, waiting, unfinished, any finished"},
    {"stats", core_stats, METH_NOARGS, "stats(): of requests, cache and connector"},
    {"follow", guarded_follow, METH_VARARGS, "follow(sample_rate): the lives of some blocks"},
    {"take_lives", vllm_core_take_lives, METH_NOARGS,
     "take_lives(): (lifetime, idle, gaps) of each that has ended since, in seconds"},
    {"set_pause", guarded_set_pause, METH_VARARGS, "set_pause(state)"},
    {"reset_encoder_cache", guarded_reset_encoder_cache, METH_NOARGS, "reset_encoder_cache()"},
    {"reset_prefix_cache", guarded_reset_prefix_cache, METH_VARARGS,
     "reset_prefix_cache(reset_running, reset_connector): whether it was"},
    {NULL, NULL, 0, NULL}};

static PyType_Slot core_slots[] = {{Py_tp_new, (void *)core_new},
                                   {Py_tp_dealloc, (void *)core_dealloc},
                                   {Py_tp_traverse, (void *)core_traverse},
                                   {Py_tp_clear, (void *)core_clear},
                                   {Py_tp_methods, core_methods},
                                   {Py_tp_doc, "Core(config, types): a scheduler in C."},
                                   {0, NULL}};
PyType_Spec vllm_core_spec = {.name = "quire._vllm.Core",
                              .basicsize = (int)sizeof(vllm_core),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                              .slots = core_slots};

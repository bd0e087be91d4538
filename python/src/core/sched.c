/* sched.c - Scheduler: making one, looking at it, and its type (quire/sched.h). */
#include "sched.h"

#include "base/bits.h"

#include <string.h>

/* ---- configs --------------------------------------------------------------- */

static const py_name policies[] = {
    {"fcfs", QUIRE_POLICY_FCFS}, {"priority", QUIRE_POLICY_PRIORITY}, {NULL, 0}};
static const py_name victims[] = {{"default", QUIRE_VICTIM_DEFAULT},
                                  {"lifo", QUIRE_VICTIM_LIFO},
                                  {"priority", QUIRE_VICTIM_PRIORITY},
                                  {"lru", QUIRE_VICTIM_LRU},
                                  {NULL, 0}};
static const py_name pauses[] = {{"unpaused", QUIRE_UNPAUSED},
                                 {"paused_new", QUIRE_PAUSED_NEW},
                                 {"paused_all", QUIRE_PAUSED_ALL},
                                 {NULL, 0}};
const py_name py_req_statuses[] = {{"waiting", QUIRE_REQ_WAITING},
                                   {"waiting_for_grammar", QUIRE_REQ_WAITING_FOR_GRAMMAR},
                                   {"waiting_for_remote_kvs", QUIRE_REQ_WAITING_FOR_REMOTE_KVS},
                                   {"waiting_for_streaming", QUIRE_REQ_WAITING_FOR_STREAMING},
                                   {"running", QUIRE_REQ_RUNNING},
                                   {"preempted", QUIRE_REQ_PREEMPTED},
                                   {"finished_stopped", QUIRE_REQ_FINISHED_STOPPED},
                                   {"finished_length", QUIRE_REQ_FINISHED_LENGTH},
                                   {"finished_aborted", QUIRE_REQ_FINISHED_ABORTED},
                                   {"finished_ignored", QUIRE_REQ_FINISHED_IGNORED},
                                   {"finished_error", QUIRE_REQ_FINISHED_ERROR},
                                   {"finished_repetition", QUIRE_REQ_FINISHED_REPETITION},
                                   {NULL, 0}};
static const py_name queues[] = {{"running", 0}, {"waiting", 1}, {"skipped", 2}, {NULL, 0}};

#define CONFIG(name, kind)   PY_FIELD(quire_sched_config, name, kind)
#define U32(name)            CONFIG(name, PY_FIELD_U32)
#define U64(name)            CONFIG(name, PY_FIELD_U64)
#define SWITCH(name)         CONFIG(name, PY_FIELD_SWITCH)
#define AS(text, name, kind) PY_FIELD_AS(quire_sched_config, text, name, kind)
#define NAMED(name, names)   PY_FIELD_NAMED(quire_sched_config, #name, name, PY_FIELD_NAME, names)
static const py_field config_fields[] = {
    NAMED(policy, policies),
    U32(max_num_seqs),
    U32(max_num_batched_tokens),
    U32(max_num_scheduled_tokens),
    U32(long_prefill_token_threshold),
    SWITCH(enable_chunked_prefill),
    AS("scheduler_reserve_full_isl", reserve_full_sequence, PY_FIELD_SWITCH),
    SWITCH(async_scheduling),
    U32(max_batches),
    AS("num_speculative_tokens", num_spec_tokens, PY_FIELD_U32),
    U32(num_lookahead_tokens),
    U32(max_loras),
    SWITCH(is_encoder_decoder),
    SWITCH(disable_chunked_mm_input),
    U32(encoder_compute_budget),
    U32(encoder_cache_size),
    U32(mamba_block_size),
    SWITCH(include_finished_set),
    SWITCH(fail_on_load_error),
    SWITCH(log_stats),
    U32(max_requests),
    U32(max_loading),
    U64(max_text_tokens),
    U32(max_request_bytes),
    U32(max_encoder_items),
    NAMED(profile, py_profiles),
    U32(num_swap_blocks),
    U64(swap_block_ns),
    U64(recompute_token_ns),
    U32(max_pins),
    U32(lookahead),
    U32(prefix_window),
    U32(prefix_patience),
    SWITCH(use_pressure),
    NAMED(victim, victims),
    PY_FIELDS_END};

static const py_field snapshots_field[] = {{"snapshots", 0, PY_FIELD_BOOL, NULL}, PY_FIELDS_END};

static void keep_snapshot(void *user, const quire_snapshot *snapshot)
{
    sched_object *self = user;
    self->snapshot = *snapshot;
    memcpy(self->tiers, snapshot->tiers, snapshot->num_tiers * sizeof *self->tiers);
    self->snapshot.tiers = self->tiers;
}

/* Tokens under one hash, as the cache will choose them. */
static uint32_t hash_block_size(const quire_cache_config *config)
{
    uint32_t size = config->hash_block_size;
    uint32_t dcp = config->dcp_world_size > 0 ? config->dcp_world_size : 1;
    uint32_t pcp = config->pcp_world_size > 0 ? config->pcp_world_size : 1;
    for (uint32_t g = 0; config->hash_block_size == 0 && g < config->num_groups; g++)
        size = (uint32_t)qr_gcd(size, config->groups[g].spec.block_size * dcp * pcp);
    return size;
}

/* Of the config of its cache. */
static const py_field copies_field[] = {PY_FIELD(quire_cache_config, max_copies, PY_FIELD_U32),
                                        PY_FIELDS_END};

static int make_sched(sched_object *self, quire_sched_config *config, PyObject *keywords,
                      const Py_buffer *image)
{
    const py_state *state = py_state_of((PyObject *)self);
    uint32_t has_snapshots = 0;
    if (py_fields_take(config_fields, config, keywords) < 0 ||
        py_fields_take(copies_field, config->cache, keywords) < 0 ||
        py_fields_take(snapshots_field, &has_snapshots, keywords) < 0 ||
        py_hasher_take(state, keywords, hash_block_size(config->cache), &self->hasher,
                       &config->cache->digest_bytes) < 0 ||
        py_nothing_left(keywords, "Scheduler") < 0)
        return -1;
    config->hasher = self->hasher;
    self->has_snapshots = has_snapshots != 0;
    if (self->has_snapshots) {
        config->on_snapshot = keep_snapshot;
        config->observer = self;
    }
    self->max_batches = config->max_batches > 0 ? config->max_batches : 2;
    self->num_spec_tokens = config->num_spec_tokens;
    quire_sched *sched = NULL;
    int err = image == NULL
                  ? quire_sched_create(config, NULL, &sched)
                  : quire_sched_restore(config, NULL, image->buf, (size_t)image->len, &sched);
    self->base.handle = err == QUIRE_OK ? sched : NULL;
    if (err != QUIRE_OK) {
        py_raise_refused(state, err, true);
        return -1;
    }
    self->flights = PyMem_Calloc(self->max_batches, sizeof *self->flights);
    if (self->flights == NULL)
        return PY_REFUSE_MEMORY();
    self->num_groups = quire_cache_get_counts(quire_sched_get_cache(sched)).num_groups;
    return 0;
}

static PyObject *build_sched(PyTypeObject *type, PyObject *kwargs, const Py_buffer *image)
{
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    quire_group_config *groups = NULL;
    PyObject *rest = kwargs != NULL ? PyDict_Copy(kwargs) : PyDict_New();
    sched_object *self = rest != NULL ? py_new(type) : NULL;
    if (self != NULL) {
        if (py_cache_config_take(PyType_GetModuleState(type), rest, config.cache, &groups) < 0 ||
            make_sched(self, &config, rest, image) < 0)
            Py_CLEAR(self);
    }
    PyMem_Free(groups);
    Py_XDECREF(rest);
    return (PyObject *)self;
}

static PyObject *sched_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return PyArg_ParseTuple(args, ":Scheduler") ? build_sched(type, kwargs, NULL) : NULL;
}

static PyObject *sched_restore(PyObject *type, PyObject *args, PyObject *kwargs)
{
    Py_buffer image;
    if (!PyArg_ParseTuple(args, "y*:restore", &image))
        return NULL;
    PyObject *self = build_sched((PyTypeObject *)type, kwargs, &image);
    PyBuffer_Release(&image);
    return self;
}

static PyObject *sched_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    sched_object *self = (sched_object *)object;
    quire_sched_destroy(self->base.handle);
    quire_hasher_destroy(self->hasher);
    self->base.handle = NULL;
    self->hasher = NULL;
    self->num_flights = 0;
    Py_RETURN_NONE;
}

static void sched_dealloc(PyObject *object)
{
    sched_object *self = (sched_object *)object;
    Py_DECREF(sched_close(object, NULL));
    PyMem_Free(self->flights);
    py_event_log_free(&self->base.events);
    py_delete(object);
}

/* ---- looking at requests ------------------------------------------------ */

static PyObject *sched_find(PyObject *object, PyObject *id)
{
    quire_bytes bytes;
    if (py_bytes_get(id, "id", &bytes) < 0)
        return NULL;
    PY_OPEN(quire_sched, sched);
    quire_req req = quire_sched_find(sched, bytes);
    if (req == 0)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(req);
}

#define INFO(name) PY_FIELD(quire_req_info, name, PY_FIELD_U32)
static const py_field req_fields[] = {
    PY_FIELD_NAMED(quire_req_info, "status", status, PY_FIELD_NAME, py_req_statuses),
    INFO(num_tokens),
    INFO(num_prompt_tokens),
    INFO(num_computed_tokens),
    INFO(num_output_placeholders),
    INFO(num_spec_tokens),
    INFO(num_preemptions),
    INFO(client_index),
    INFO(lora_id),
    PY_FIELD(quire_req_info, priority, PY_FIELD_I32),
    PY_FIELD(quire_req_info, arrival_time, PY_FIELD_F64),
    PY_FIELD(quire_req_info, seq, PY_FIELD_U64),
    INFO(num_swapped_tokens),
    PY_FIELD_NAMED(quire_req_info, "location", location, PY_FIELD_NAME, py_locations),
    PY_FIELD(quire_req_info, is_offloaded, PY_FIELD_BOOL),
    PY_FIELDS_END};

static PyObject *sched_info(PyObject *object, PyObject *argument)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_req req = PyLong_AsUnsignedLongLong(argument);
    PY_OPEN(quire_sched, sched);
    PY_CALL(quire_sched_get_req_info(sched, req, &info));
    PyObject *id = PyBytes_FromStringAndSize(info.id.data, (Py_ssize_t)info.id.len);
    PyObject *dict = id != NULL ? py_fields_dict(req_fields, &info) : NULL;
    if (dict == NULL || py_put(dict, "id", id) < 0) {
        if (dict == NULL)
            Py_XDECREF(id);
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *sched_tokens(PyObject *object, PyObject *args)
{
    unsigned long long req;
    unsigned int first = 0;
    PyObject *num_source = Py_None;
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (!PyArg_ParseTuple(args, "K|IO:tokens", &req, &first, &num_source))
        return NULL;
    unsigned long num = num_source != Py_None ? PyLong_AsUnsignedLong(num_source) : 0;
    PY_OPEN(quire_sched, sched);
    PY_CALL(quire_sched_get_req_info(sched, req, &info));
    if (num_source == Py_None)
        num = first < info.num_tokens ? info.num_tokens - first : 0;
    if (first > info.num_tokens || num > info.num_tokens - first)
        return py_fail(object, QUIRE_E_RANGE);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(num * sizeof(quire_token)));
    if (bytes == NULL)
        return NULL;
    int err = quire_sched_get_tokens(sched, req, first, (uint32_t)num,
                                     (quire_token *)(void *)PyBytes_AsString(bytes));
    if (err == QUIRE_OK)
        return py_taken_view(object, bytes, "i");
    Py_DECREF(bytes);
    return py_fail(object, err);
}

static PyObject *sched_blocks(PyObject *object, PyObject *argument)
{
    uint32_t num_groups = ((sched_object *)object)->num_groups;
    quire_req req = PyLong_AsUnsignedLongLong(argument);
    PY_OPEN(quire_sched, sched);
    quire_block_span *spans = py_spans_new(num_groups);
    if (spans == NULL)
        return NULL;
    return py_spans_taken(object, quire_sched_get_blocks(sched, req, spans), spans, num_groups);
}

/* ---- the rest -------------------------------------------------------------- */

static PyObject *sched_reset_prefix(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"reset_running", NULL};
    int reset_running = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:reset_prefix_cache", names, &reset_running))
        return NULL;
    PY_OPEN(quire_sched, sched);
    return py_done(object, quire_sched_reset_prefix_cache(sched, (uint32_t)reset_running, 0));
}

static PyObject *sched_queue(PyObject *object, PyObject *name)
{
    int which;
    if (py_name_value(queues, name, "queue", &which) < 0)
        return NULL;
    PY_OPEN(quire_sched, sched);
    uint32_t count = quire_sched_get_queue(sched, (uint32_t)which, NULL, 0);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(quire_req)));
    if (bytes == NULL)
        return NULL;
    quire_sched_get_queue(sched, (uint32_t)which, (quire_req *)(void *)PyBytes_AsString(bytes),
                          count);
    return py_taken_view(object, bytes, "Q");
}

PY_METHOD(sched_reset_encoder, quire_sched, quire_sched_reset_encoder_cache)
PY_METHOD(sched_check, quire_sched, quire_sched_check)
PY_NUMBERS(sched_usage, quire_sched, py_usage_dict, quire_sched_get_usage)

static PyObject *sched_save(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    quire_sched *sched = py_open(object);
    size_t written;
    if (sched == NULL)
        return NULL;
    if (((sched_object *)object)->num_flights > 0)
        return py_fail(object, QUIRE_BUSY);
    size_t bytes = quire_sched_image_bytes(sched);
    PyObject *image = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (image == NULL)
        return NULL;
    int err = quire_sched_save(sched, PyBytes_AsString(image), bytes, &written);
    if (err != QUIRE_OK || written != bytes) {
        Py_DECREF(image);
        return py_fail(object, err != QUIRE_OK ? err : QUIRE_E_CORRUPT);
    }
    return image;
}

static PyObject *sched_take_events(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PY_OPEN(quire_sched, sched);
    return py_take_events(object, quire_sched_get_cache(sched));
}

/* ---- attributes ------------------------------------------------------------ */

#define COUNT_OF(name, make)                                                                       \
    static PyObject *sched_##name(PyObject *object, void *Py_UNUSED(closure))                      \
    {                                                                                              \
        PY_OPEN(quire_sched, sched);                                                               \
        return make(quire_sched_get_counts(sched).name);                                           \
    }

COUNT_OF(num_running, PyLong_FromUnsignedLong)
COUNT_OF(num_waiting, PyLong_FromUnsignedLong)
COUNT_OF(num_unfinished, PyLong_FromUnsignedLong)
COUNT_OF(has_finished, PyBool_FromLong)

static PyObject *sched_get_pause(PyObject *object, void *Py_UNUSED(closure))
{
    PY_OPEN(quire_sched, sched);
    return PyUnicode_FromString(py_name_text(pauses, (int)quire_sched_get_counts(sched).pause));
}

static int sched_set_pause(PyObject *object, PyObject *value, void *Py_UNUSED(closure))
{
    int pause;
    if (value == NULL)
        return PY_REFUSE(PyExc_AttributeError, "pause cannot be deleted");
    if (py_name_value(pauses, value, "pause", &pause) < 0)
        return -1;
    quire_sched *sched = py_open(object);
    int err = sched != NULL ? quire_sched_set_pause(sched, (quire_pause)pause) : QUIRE_OK;
    if (err != QUIRE_OK)
        py_fail(object, err);
    return sched != NULL && err == QUIRE_OK ? 0 : -1;
}

/* ---- the type -------------------------------------------------------------- */

#define REQUEST_PARAMS                                                                             \
    "max_tokens=0, min_tokens=0, eos_token_id=None, stop_token_ids=None, priority=0, "             \
    "arrival_time=0.0, lora_name=None, lora_id=0, cache_salt=None, mm_inputs=None, "               \
    "client_index=0, use_grammar=False, is_pooling=False, is_resumable=False, "                    \
    "skip_reading_prefix=False, repetition_max_pattern=0, repetition_min_pattern=0, "              \
    "repetition_min_count=0, lora_path=None"

static PyMethodDef sched_methods[] = {
    {"restore", PY_FUNCTION(sched_restore), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "restore(image, /, **config)\n--\n\nA scheduler from an image that save() made."},
    {"add", PY_KEYWORDS(py_sched_add),
     "add(id, prompt, /, *, " REQUEST_PARAMS ")\n--\n\n"
     "Adds a request and gives its number.\n\n"
     "id: str or bytes, unique among the requests that have not ended. prompt: token ids, a list "
     "or a buffer. max_tokens: output tokens at most; 0: as many as fit max_model_len. "
     "eos_token_id, stop_token_ids: tokens that end the output. priority: smaller is first. "
     "mm_inputs: tuples (identifier, offset, length[, num_embeds[, is_embed]]). "
     "is_resumable: a session, see continue_request. include/quire/sched.h explains the others "
     "(quire_request_params)."},
    {"continue_request", PY_KEYWORDS(py_sched_continue),
     "continue_request(req, prompt=None, /, *, " REQUEST_PARAMS ")\n--\n\n"
     "The next input of a session, with params as add has them; None: no more follow."},
    {"finish", PY_KEYWORDS(py_sched_finish),
     "finish(reqs, status='finished_aborted')\n--\n\nEnds these requests from outside; returns how "
     "many it ended."},
    {"finish_all", PY_KEYWORDS(py_sched_finish_all),
     "finish_all(status='finished_aborted')\n--\n\nEnds every request from outside; returns how "
     "many it ended."},
    {"pin", py_sched_pin, METH_VARARGS,
     "pin(req, seconds, /)\n--\n\nKeeps a request's blocks for so long after its end; 0: not. "
     "Needs max_pins."},
    {"drop_pins", py_sched_drop_pins, METH_NOARGS,
     "drop_pins()\n--\n\nReleases the blocks of all pins that are kept now."},
    {"fork", PY_KEYWORDS(py_sched_fork),
     "fork(req, id, tail=None, /, *, " REQUEST_PARAMS ")\n--\n\n"
     "A child that begins with the text of req: its number. The tokens of tail take the place of "
     "the last tokens of output. Needs max_copies; params that are the parent's are not read."},
    {"preempt", PY_KEYWORDS(py_sched_preempt),
     "preempt(req, mode='cheaper')\n--\n\nTakes the blocks from a request; 'swap' keeps its KV in "
     "host slots, 'recompute' does not, 'cheaper' chooses."},
    {"offload", py_sched_offload, METH_O,
     "offload(req, /)\n--\n\nMoves a request to host slots until resume. Needs num_swap_blocks."},
    {"resume", py_sched_resume, METH_O,
     "resume(req, /)\n--\n\nA request that was offloaded may be admitted again."},
    {"set_swap_costs", py_sched_set_swap_costs, METH_VARARGS,
     "set_swap_costs(swap_block_ns, recompute_token_ns, /)\n--\n\nWhat moving a block and "
     "computing a token cost, as measured."},
    {"pressure", py_sched_pressure, METH_NOARGS,
     "pressure()\n--\n\nA dict: level, should_admit, should_preempt."},
    {"find", sched_find, METH_O, "find(id, /)\n--\n\nThe request of an id, or None."},
    {"info", sched_info, METH_O, "info(req, /)\n--\n\nA request's state, as a dict."},
    {"tokens", sched_tokens, METH_VARARGS,
     "tokens(req, first=0, num=None, /)\n--\n\nTokens of a request, prompt and output."},
    {"blocks", sched_blocks, METH_O,
     "blocks(req, /)\n--\n\nA request's blocks, a list for each group."},
    {"schedule", py_sched_schedule, METH_NOARGS, "schedule()\n--\n\nDecides the next step."},
    {"update", PY_KEYWORDS(py_sched_update),
     "update(step, sampled=None, num_sampled=None, *, stride=1, has_pooled=None, "
     "num_invalid_drafts=None, finished_sending=None, finished_recving=None, invalid_blocks=None)"
     "\n--\n\nTakes the tokens of the oldest step: a list of lists, or a flat buffer."},
    {"update_drafts", PY_KEYWORDS(py_sched_update_drafts),
     "update_drafts(reqs, drafts, num_drafts=None, *, stride=1)\n--\n\nThe drafts for the next "
     "step."},
    {"reset_prefix_cache", PY_KEYWORDS(sched_reset_prefix),
     "reset_prefix_cache(reset_running=False)\n--\n\nNothing can be found any more. BUSY while "
     "blocks are in use."},
    {"reset_encoder_cache", sched_reset_encoder, METH_NOARGS,
     "reset_encoder_cache()\n--\n\nForgets what was encoded."},
    {"queue", sched_queue, METH_O,
     "queue(name, /)\n--\n\n'running', 'waiting' or 'skipped', in the order of service."},
    {"usage", sched_usage, METH_NOARGS,
     "usage()\n--\n\nA dict: total, empty, cached, active, null_blocks."},
    {"check", sched_check, METH_NOARGS,
     "check()\n--\n\nWalks everything; E_CORRUPT when an invariant does not hold."},
    {"save", sched_save, METH_NOARGS,
     "save()\n--\n\nThe state as one image. BUSY while steps are in flight."},
    {"take_events", sched_take_events, METH_NOARGS,
     "take_events()\n--\n\nEvents since the last call; needs event_log_bytes."},
    {"close", sched_close, METH_NOARGS, "close()\n--\n\nFrees the memory."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef sched_getset[] = {
    {"num_running", sched_num_running, NULL, "Running requests.", NULL},
    {"num_waiting", sched_num_waiting, NULL, "Waiting requests, skipped ones included.", NULL},
    {"num_unfinished", sched_num_unfinished, NULL, "Requests that a step may serve.", NULL},
    {"has_finished", sched_has_finished, NULL, "Some ended and no step has told yet.", NULL},
    {"pause", sched_get_pause, sched_set_pause, "'unpaused', 'paused_new' or 'paused_all'.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PY_TYPE(sched, "quire.Scheduler",
        "Scheduler(*, num_gpu_blocks=0, max_model_len=0, plan=None, groups=None, block_size=16, "
        "policy='fcfs', max_num_seqs=128, max_num_batched_tokens=2048, max_num_scheduled_tokens=0, "
        "long_prefill_token_threshold=0, enable_chunked_prefill=True, enable_prefix_caching=True, "
        "prefix_caching_hash_algo='sha256', seed=None, none_hash=None, "
        "scheduler_reserve_full_isl=True, async_scheduling=False, max_batches=2, "
        "num_speculative_tokens=0, num_lookahead_tokens=0, max_loras=0, is_encoder_decoder=False, "
        "disable_chunked_mm_input=False, encoder_compute_budget=0, encoder_cache_size=0, "
        "max_encoder_tokens=0, max_encoder_items=1024, mamba_block_size=0, hash_block_size=0, "
        "use_eagle=False, track_new_blocks=None, decode_context_parallel_size=1, "
        "prefill_context_parallel_size=1, watermark=0.0, admit_below=0.8, preempt_above=0.95, "
        "include_finished_set=False, fail_on_load_error=False, log_stats=False, snapshots=False, "
        "event_log_bytes=0, max_requests=4096, max_loading=0, max_text_tokens=8388608, "
        "max_request_bytes=2048, max_extra_bytes=0, num_swap_blocks=0, swap_block_ns=0, "
        "recompute_token_ns=1, max_pins=0, lookahead=0, prefix_window=0, prefix_patience=0, "
        "max_copies=0, use_pressure=False, victim='default', profile='default')\n--\n\n"
        "Who computes how many tokens in the next step, as vLLM 0.20.0 decides it.\n\n"
        "num_gpu_blocks and max_model_len are needed, or a plan that has both. groups: layers as "
        "dicts, one for each group; without them one group of full attention with block_size. "
        "include/quire/sched.h and cache.h explain each setting.")

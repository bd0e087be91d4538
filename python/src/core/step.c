/* step.c - Step and Outputs: what schedule and update gave, copied into arrays of their own.
 *
 * Each array is a bytes object, made while the library's memory is valid; asking for it makes a
 * memoryview of its items, which numpy, torch and array take without a copy. A Step that is kept is
 * the same for ever.
 *
 *      spans of blocks, num_reqs x num_groups, are one flat array and where each begins:
 *
 *      block_start   0     2  2     3          request 0: groups [7 3] []   request 1: [9]
 *      block_ids     7  3  9
 */
#include "core.h"

#include <string.h>

/* X(name, format, doc, how many of step->name there are); the first are copied from spans. */
#define STEP_SPANS(X)                                                                              \
    X(block_start, "I", "Where the blocks of request i, group g begin: [i * num_groups + g].", )   \
    X(block_ids, "I", "New blocks of running requests, all blocks of the others.", )               \
    X(blocks_to_zero, "I", "Blocks to be zeroed before use.", )
#define STEP_COLUMNS(X)                                                                            \
    X(reqs, "Q", "The requests, in the order in which they were scheduled.", n)                    \
    X(kinds, "B", "0 running, 1 new, 2 resumed after preemption.", n)                              \
    X(was_in_last_step, "B", "0: the worker may need all tokens again.", n)                        \
    X(num_tokens, "I", "Tokens scheduled, drafts included.", n)                                    \
    X(num_computed_tokens, "I", "Tokens computed before this step.", n)                            \
    X(num_output_tokens, "I", "Output tokens, placeholders included.", n)                          \
    X(draft_start, "I", "Where the drafts of request i begin.", starts)                            \
    X(drafts, "i", "The drafts of all requests.", n > 0 ? step->draft_start[n] : 0)                \
    X(encoder_start, "I", "Where the features of request i begin.", starts)                        \
    X(encoder_inputs, "I", "Features that are to be encoded, of all requests.",                    \
      n > 0 ? step->encoder_start[n] : 0)                                                          \
    X(num_common_prefix_blocks, "I", "For each group.",                                            \
      step->num_common_prefix_blocks != NULL ? num_groups : 0)                                     \
    X(finished, "Q", "Requests that ended since the last step.", step->num_finished)               \
    X(preempted, "Q", "Requests that gave their blocks back.", step->num_preempted)                \
    X(swap_out_blocks, "I", "Blocks to copy to host slots.", step->num_swap_out)                   \
    X(swap_out_slots, "I", "The slots.", step->num_swap_out)                                       \
    X(swap_in_blocks, "I", "Blocks to copy from host slots.", step->num_swap_in)                   \
    X(swap_in_slots, "I", "The slots.", step->num_swap_in)                                         \
    X(copies, "I", "Copies on write: from, to, group, place of the request, index in its row.",    \
      step->num_copies)
#define STEP_ARRAYS(X) STEP_SPANS(X) STEP_COLUMNS(X)

/* X(name, format, doc, type, value of an output) */
#define OUTPUTS_COLUMNS(X)                                                                         \
    X(reqs, "Q", "The requests with an output.", quire_req, o->req)                                \
    X(client_index, "I", "As given when the request was added.", uint32_t, o->client_index)        \
    X(finish_reasons, "B", "0 none, 1 stop, 2 length, 3 abort, 4 error, 5 repetition.", uint8_t,   \
      (uint8_t)o->finish_reason)                                                                   \
    X(has_stop_reason, "B", "1: stop_reason is the stop token.", uint8_t,                          \
      (uint8_t)o->has_stop_reason)                                                                 \
    X(stop_reason, "i", "The stop token.", quire_token, o->has_stop_reason ? o->stop_reason : 0)   \
    X(has_prefill_stats, "B", "1 with a request's first output.", uint8_t,                         \
      (uint8_t)o->has_prefill_stats)                                                               \
    X(num_local_cached, "I", "Prompt tokens from the prefix cache.", uint32_t,                     \
      o->has_prefill_stats ? o->num_local_cached : 0)                                              \
    X(num_external_cached, "I", "And from the connector.", uint32_t,                               \
      o->has_prefill_stats ? o->num_external_cached : 0)                                           \
    X(num_prompt_tokens, "I", "Tokens of the prompt.", uint32_t,                                   \
      o->has_prefill_stats ? o->num_prompt_tokens : 0)
#define OUTPUTS_ARRAYS(X)                                                                          \
    OUTPUTS_COLUMNS(X)                                                                             \
    X(token_start, "I", "Where the tokens of output i begin; one more at the end.", , )            \
    X(tokens, "i", "The new tokens of all outputs.", , )                                           \
    X(finished, "Q", "With include_finished_set: requests that ended since the last update.", , )  \
    X(finished_clients, "I", "And their clients.", , )

typedef struct array_row {
    int index;
    const char *format;
} array_row;

#define STEP_INDEX(name, format, doc, ...)    STEP_##name,
#define STEP_ROW(name, format, doc, ...)      {STEP_##name, format},
#define OUTPUTS_INDEX(name, format, doc, ...) OUTPUTS_##name,
#define OUTPUTS_ROW(name, format, doc, ...)   {OUTPUTS_##name, format},
enum step_array { STEP_ARRAYS(STEP_INDEX) NUM_STEP_ARRAYS };
enum outputs_array { OUTPUTS_ARRAYS(OUTPUTS_INDEX) NUM_OUTPUTS_ARRAYS };
static const array_row step_rows[] = {STEP_ARRAYS(STEP_ROW)};
static const array_row outputs_rows[] = {OUTPUTS_ARRAYS(OUTPUTS_ROW)};

enum { MAX_ARRAYS = 24 };

/* Both kinds: arrays first, then what is a number or text. */
typedef struct record_object {
    PyObject ob_base;
    PyObject *arrays[MAX_ARRAYS]; /* bytes */
    PyObject *freed_encoder;      /* bytes: lengths and texts, one after the other */
    PyObject *accepted_per_pos;   /* bytes */
    uint64_t step;
    uint32_t num;
    uint32_t num_groups;
    uint32_t total_tokens;
    uint32_t has_grammar_reqs;
    uint32_t has_pending_grammar_tokens;
    bool has_snapshot;
    bool has_stats;
    quire_snapshot snapshot;
    quire_tier_usage tiers[2]; /* of the snapshot: GPU and swap, whose names are constants */
    quire_sched_stats stats;
} record_object;

static void record_dealloc(PyObject *object)
{
    record_object *self = (record_object *)object;
    for (int i = 0; i < MAX_ARRAYS; i++)
        Py_XDECREF(self->arrays[i]);
    Py_XDECREF(self->freed_encoder);
    Py_XDECREF(self->accepted_per_pos);
    py_delete(object);
}

static PyObject *get_array(PyObject *object, void *closure)
{
    const array_row *row = closure;
    PyObject *bytes = ((record_object *)object)->arrays[row->index];
    return py_array_view(py_state_of(object), bytes, row->format);
}

/* ---- filling --------------------------------------------------------------- */

static bool copy_array(record_object *self, int index, const void *data, size_t bytes)
{
    self->arrays[index] =
        PyBytes_FromStringAndSize(bytes > 0 ? (const char *)data : "", (Py_ssize_t)bytes);
    return self->arrays[index] != NULL;
}

static bool room_for(record_object *self, int index, size_t bytes, void *out)
{
    self->arrays[index] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (self->arrays[index] == NULL)
        return false;
    char *data = PyBytes_AsString(self->arrays[index]);
    memcpy(out, &data, sizeof data); /* a pointer to any type */
    return true;
}

static bool copy_blocks(record_object *self, const quire_step *step, uint32_t num_groups)
{
    size_t num_spans = (size_t)step->num_reqs * num_groups;
    size_t total = 0;
    uint32_t *starts;
    quire_block *ids;
    for (size_t i = 0; i < num_spans; i++)
        total += step->blocks[i].count;
    if (!room_for(self, STEP_block_start, (num_spans + 1) * sizeof *starts, &starts) ||
        !room_for(self, STEP_block_ids, total * sizeof *ids, &ids))
        return false;
    uint32_t used = 0;
    for (size_t i = 0; i < num_spans; i++) {
        const quire_block_span *span = &step->blocks[i];
        starts[i] = used;
        if (span->count > 0)
            memcpy(ids + used, span->ids, span->count * sizeof *ids);
        used += span->count;
    }
    starts[num_spans] = used;
    const quire_block_span *zero = &step->blocks_to_zero;
    return copy_array(self, STEP_blocks_to_zero, zero->ids, zero->count * sizeof *zero->ids);
}

static bool copy_texts(record_object *self, const quire_step *step)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < step->num_freed_encoder; i++)
        bytes += sizeof(size_t) + step->freed_encoder[i].len;
    self->freed_encoder = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (self->freed_encoder == NULL)
        return false;
    char *at = PyBytes_AsString(self->freed_encoder);
    for (uint32_t i = 0; i < step->num_freed_encoder; i++) {
        const quire_bytes *text = &step->freed_encoder[i];
        memcpy(at, &text->len, sizeof text->len);
        at += sizeof text->len;
        if (text->len > 0)
            memcpy(at, text->data, text->len);
        at += text->len;
    }
    return true;
}

#define STEP_COPY(name, format, doc, count)                                                        \
    &&copy_array(self, STEP_##name, step->name, (size_t)(count) * sizeof *step->name)

static bool copy_columns(record_object *self, const quire_step *step, uint32_t num_groups)
{
    uint32_t n = step->num_reqs;
    uint32_t starts = n > 0 ? n + 1 : 0;
    return true STEP_COLUMNS(STEP_COPY);
}

PyObject *py_step_new(const py_state *state, const quire_step *step, uint32_t num_groups,
                      const quire_snapshot *snapshot)
{
    record_object *self = py_new((PyTypeObject *)state->step_type);
    if (self == NULL)
        return NULL;
    self->step = step->step;
    self->num = step->num_reqs;
    self->num_groups = num_groups;
    self->total_tokens = step->total_tokens;
    self->has_grammar_reqs = step->has_grammar_reqs;
    self->has_pending_grammar_tokens = step->has_pending_grammar_tokens;
    self->has_snapshot = snapshot != NULL;
    if (snapshot != NULL) {
        self->snapshot = *snapshot;
        self->snapshot.num_tiers = snapshot->num_tiers < 2 ? snapshot->num_tiers : 2;
        memcpy(self->tiers, snapshot->tiers, self->snapshot.num_tiers * sizeof *self->tiers);
        self->snapshot.tiers = NULL; /* they are the scheduler's */
    }
    if (!copy_columns(self, step, num_groups) || !copy_blocks(self, step, num_groups) ||
        !copy_texts(self, step))
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* ---- outputs --------------------------------------------------------------- */

#define COLUMN(name, format, doc, type, value) type *name;
#define COLUMN_ROOM(name, format, doc, type, value)                                                \
    &&room_for(self, OUTPUTS_##name, n * sizeof(type), &c.name)
#define COLUMN_SET(name, format, doc, type, value) c.name[i] = (value);

static bool copy_outputs(record_object *self, const quire_outputs *outputs)
{
    struct {
        OUTPUTS_COLUMNS(COLUMN)
    } c;
    uint32_t *starts;
    quire_token *tokens;
    size_t n = outputs->num_outputs;
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += outputs->outputs[i].num_new_tokens;
    if (!(room_for(self, OUTPUTS_token_start, (n + 1) * sizeof *starts, &starts) &&
          room_for(self, OUTPUTS_tokens, total * sizeof *tokens, &tokens)
              OUTPUTS_COLUMNS(COLUMN_ROOM)))
        return false;
    starts[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const quire_output *o = &outputs->outputs[i];
        OUTPUTS_COLUMNS(COLUMN_SET)
        if (o->num_new_tokens > 0)
            memcpy(tokens + starts[i], o->new_tokens, o->num_new_tokens * sizeof *tokens);
        starts[i + 1] = starts[i] + o->num_new_tokens;
    }
    return true;
}

PyObject *py_outputs_new(const py_state *state, const quire_outputs *outputs,
                         uint32_t num_spec_tokens)
{
    record_object *self = py_new((PyTypeObject *)state->outputs_type);
    if (self == NULL)
        return NULL;
    size_t finished = outputs->num_finished;
    const uint64_t *accepted =
        outputs->stats != NULL ? outputs->stats->spec.accepted_per_pos : NULL;
    self->num = outputs->num_outputs;
    self->has_stats = outputs->stats != NULL;
    if (self->has_stats)
        self->stats = *outputs->stats;
    self->accepted_per_pos = PyBytes_FromStringAndSize(
        (const char *)accepted,
        self->has_stats && accepted != NULL ? (Py_ssize_t)num_spec_tokens * 8 : 0);
    if (self->accepted_per_pos == NULL || !copy_outputs(self, outputs) ||
        !copy_array(self, OUTPUTS_finished, outputs->finished, finished * 8) ||
        !copy_array(self, OUTPUTS_finished_clients, outputs->finished_clients,
                    outputs->finished_clients != NULL ? finished * 4 : 0))
        Py_CLEAR(self);
    return (PyObject *)self;
}

int py_step_number(const py_state *state, PyObject *source, uint64_t *number)
{
    if (Py_TYPE(source) == (PyTypeObject *)state->step_type) {
        *number = ((record_object *)source)->step;
        return 0;
    }
    if (!PyLong_Check(source))
        return PY_REFUSE(PyExc_TypeError, "step must be a Step or its number");
    *number = PyLong_AsUnsignedLongLong(source);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- looking --------------------------------------------------------------- */

/* An index into a record's requests or outputs; -1 and an IndexError. */
static Py_ssize_t index_of(const record_object *self, PyObject *argument, const char *what)
{
    Py_ssize_t i = PyNumber_AsSsize_t(argument, PyExc_IndexError);
    if (!PyErr_Occurred() && (i < 0 || i >= (Py_ssize_t)self->num))
        PyErr_Format(PyExc_IndexError, what, self->num);
    return PyErr_Occurred() ? -1 : i;
}

static const uint32_t *numbers_of(const record_object *self, int array)
{
    return (const uint32_t *)(void *)PyBytes_AsString(self->arrays[array]);
}

typedef struct block_rows {
    const uint32_t *starts;
    const uint32_t *ids;
} block_rows;

static PyObject *make_row(const void *rows, uint32_t g)
{
    const block_rows *r = rows;
    return py_list_u32(r->ids + r->starts[g], r->starts[g + 1] - r->starts[g]);
}

static PyObject *step_blocks(PyObject *object, PyObject *argument)
{
    const record_object *self = (record_object *)object;
    Py_ssize_t i = index_of(self, argument, "the step has %u requests");
    if (i < 0)
        return NULL;
    block_rows rows = {numbers_of(self, STEP_block_start) + (size_t)i * self->num_groups,
                       numbers_of(self, STEP_block_ids)};
    return py_list_of(self->num_groups, make_row, &rows);
}

static PyObject *outputs_tokens_of(PyObject *object, PyObject *argument)
{
    const record_object *self = (record_object *)object;
    Py_ssize_t i = index_of(self, argument, "there are %u outputs");
    if (i < 0)
        return NULL;
    const uint32_t *starts = numbers_of(self, OUTPUTS_token_start) + i;
    const quire_token *tokens = (const quire_token *)numbers_of(self, OUTPUTS_tokens);
    return py_list_tokens(tokens + starts[0], starts[1] - starts[0]);
}

static PyObject *step_freed_encoder(PyObject *object, void *Py_UNUSED(closure))
{
    char *at;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(((record_object *)object)->freed_encoder, &at, &size) < 0)
        return NULL;
    const char *end = at + size;
    PyObject *list = PyList_New(0);
    while (list != NULL && at < end) {
        size_t length;
        memcpy(&length, at, sizeof length);
        at += sizeof length;
        PyObject *text = PyUnicode_DecodeUTF8(at, (Py_ssize_t)length, "surrogateescape");
        at += length;
        if (text == NULL || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

#define U32(name) PY_FIELD(quire_snapshot, name, PY_FIELD_U32)
#define U64(name) PY_FIELD(quire_snapshot, name, PY_FIELD_U64)
static const py_field snapshot_fields[] = {U64(step),
                                           U64(time_ns),
                                           U32(num_running),
                                           U32(num_waiting),
                                           U32(num_skipped),
                                           U32(num_scheduled),
                                           U32(num_new),
                                           U32(num_resumed),
                                           U32(num_preempted),
                                           U32(num_finished),
                                           U32(num_tokens),
                                           U32(num_prefill_tokens),
                                           U32(num_draft_tokens),
                                           U32(num_hit_tokens),
                                           U32(num_external_tokens),
                                           U32(num_swapped_out_blocks),
                                           U32(num_swapped_in_blocks),
                                           U32(num_swapped),
                                           U32(num_free_swap_blocks),
                                           U32(num_pinned),
                                           U32(num_pinned_blocks),
                                           U32(num_watermark_blocks),
                                           PY_FIELDS_END};

static const py_field tier_fields[] = {PY_FIELD(quire_tier_usage, pinned, PY_FIELD_U64),
                                       PY_FIELD(quire_tier_usage, stored_blocks, PY_FIELD_U64),
                                       PY_FIELD(quire_tier_usage, loaded_blocks, PY_FIELD_U64),
                                       PY_FIELD(quire_tier_usage, hit_tokens, PY_FIELD_U64),
                                       PY_FIELD(quire_tier_usage, failed_blocks, PY_FIELD_U64),
                                       PY_FIELDS_END};

static PyObject *make_tier(const void *tiers, uint32_t i)
{
    const quire_tier_usage *tier = (const quire_tier_usage *)tiers + i;
    PyObject *dict = py_fields_dict(tier_fields, tier);
    if (dict != NULL && (py_put(dict, "name", PyUnicode_FromString(tier->name)) < 0 ||
                         py_put(dict, "medium", PyUnicode_FromString(tier->medium)) < 0 ||
                         py_put(dict, "blocks", py_usage_dict(tier->blocks)) < 0))
        Py_CLEAR(dict);
    return dict;
}

static PyObject *step_snapshot(PyObject *object, void *Py_UNUSED(closure))
{
    const record_object *self = (record_object *)object;
    if (!self->has_snapshot)
        Py_RETURN_NONE;
    PyObject *dict = py_fields_dict(snapshot_fields, &self->snapshot);
    if (dict != NULL &&
        (py_put(dict, "blocks", py_usage_dict(self->snapshot.blocks)) < 0 ||
         py_put(dict, "tiers", py_list_of(self->snapshot.num_tiers, make_tier, self->tiers)) < 0))
        Py_CLEAR(dict);
    return dict;
}

static const py_field prefix_fields[] = {
    PY_FIELD(quire_prefix_stats, was_reset, PY_FIELD_BOOL),
    PY_FIELD(quire_prefix_stats, requests, PY_FIELD_U64),
    PY_FIELD(quire_prefix_stats, queries, PY_FIELD_U64),
    PY_FIELD(quire_prefix_stats, hits, PY_FIELD_U64),
    PY_FIELD(quire_prefix_stats, preempted_requests, PY_FIELD_U64),
    PY_FIELD(quire_prefix_stats, preempted_queries, PY_FIELD_U64),
    PY_FIELD(quire_prefix_stats, preempted_hits, PY_FIELD_U64),
    PY_FIELDS_END};

static const py_field stats_fields[] = {
    PY_FIELD(quire_sched_stats, num_running, PY_FIELD_U32),
    PY_FIELD(quire_sched_stats, num_waiting, PY_FIELD_U32),
    PY_FIELD(quire_sched_stats, num_skipped, PY_FIELD_U32),
    PY_FIELD(quire_sched_stats, kv_cache_usage, PY_FIELD_F64),
    PY_FIELD_AS(quire_sched_stats, "num_drafts", spec.num_drafts, PY_FIELD_U64),
    PY_FIELD_AS(quire_sched_stats, "num_draft_tokens", spec.num_draft_tokens, PY_FIELD_U64),
    {"num_accepted_tokens", offsetof(quire_sched_stats, spec.num_accepted_tokens), PY_FIELD_U64,
     NULL},
    PY_FIELDS_END};

static PyObject *outputs_stats(PyObject *object, void *Py_UNUSED(closure))
{
    const record_object *self = (record_object *)object;
    if (!self->has_stats)
        Py_RETURN_NONE;
    PyObject *dict = py_fields_dict(stats_fields, &self->stats);
    if (dict != NULL &&
        (py_put(dict, "prefix", py_fields_dict(prefix_fields, &self->stats.prefix)) < 0 ||
         py_put(dict, "connector_prefix",
                py_fields_dict(prefix_fields, &self->stats.connector_prefix)) < 0 ||
         py_put(dict, "accepted_per_pos",
                py_array_view(py_state_of(object), self->accepted_per_pos, "Q")) < 0))
        Py_CLEAR(dict);
    return dict;
}

static PyObject *record_step(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((record_object *)object)->step);
}

static Py_ssize_t record_length(PyObject *object)
{
    return (Py_ssize_t)((record_object *)object)->num;
}

/* ---- types ----------------------------------------------------------------- */

#define OFFSET(name) PY_OFFSET(record_object, name)
#define STEP_GETTER(name, format, doc, ...)                                                        \
    {#name, get_array, NULL, doc, (void *)(uintptr_t)&step_rows[STEP_##name]},
#define OUTPUTS_GETTER(name, format, doc, ...)                                                     \
    {#name, get_array, NULL, doc, (void *)(uintptr_t)&outputs_rows[OUTPUTS_##name]},

static PyGetSetDef step_getset[] = {
    STEP_ARRAYS(STEP_GETTER){"step", record_step, NULL, "Its number, from 1 on.", NULL},
    {"num_reqs", py_get_u32, NULL, "Requests in it.", OFFSET(num)},
    {"num_groups", py_get_u32, NULL, "Groups of the cache.", OFFSET(num_groups)},
    {"total_tokens", py_get_u32, NULL, "Tokens of all requests.", OFFSET(total_tokens)},
    {"has_grammar_reqs", py_get_u32, NULL, "Requests with a grammar are in it.",
     OFFSET(has_grammar_reqs)},
    {"has_pending_grammar_tokens", py_get_u32, NULL, "And tokens of theirs are in flight.",
     OFFSET(has_pending_grammar_tokens)},
    {"freed_encoder", step_freed_encoder, NULL, "Identifiers of encoder outputs to drop.", NULL},
    {"snapshot", step_snapshot, NULL, "With snapshots=True: the step in numbers.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyGetSetDef outputs_getset[] = {
    OUTPUTS_ARRAYS(OUTPUTS_GETTER){"stats", outputs_stats, NULL, "With log_stats: a dict.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef step_methods[] = {
    {"blocks", step_blocks, METH_O,
     "blocks(i, /)\n--\n\nThe blocks of the i-th request, a list for each group."},
    {NULL, NULL, 0, NULL}};

static PyMethodDef outputs_methods[] = {
    {"tokens_of", outputs_tokens_of, METH_O,
     "tokens_of(i, /)\n--\n\nThe new tokens of the i-th output."},
    {NULL, NULL, 0, NULL}};

PY_TYPE_OF(step, record_object, "quire.Step", Py_TPFLAGS_DISALLOW_INSTANTIATION,
           "What a step computes; Scheduler.schedule() makes it.",
           {Py_tp_dealloc, (void *)record_dealloc}, {Py_sq_length, (void *)record_length})
PY_TYPE_OF(outputs, record_object, "quire.Outputs", Py_TPFLAGS_DISALLOW_INSTANTIATION,
           "What came out of a step; Scheduler.update() makes it.",
           {Py_tp_dealloc, (void *)record_dealloc}, {Py_sq_length, (void *)record_length})

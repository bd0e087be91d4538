/* core.h - what the files of the extension share.
 *
 *      Python object ──► convert arguments ──► is the handle open? ──► one call into libquire
 *                        (may run Python code)                          │
 *                                     new objects ◄── copy what it gave ◄┘  (runs no Python code)
 *
 * The order matters. Converting an argument may run code of the caller's (__index__, a buffer),
 * which may close the handle: so the handle is looked at last. What the library gives is valid
 * until its next call, and making a Python object that the collector tracks may run finalizers: so
 * it is copied first, into bytes objects or plain memory, which run nothing.
 *
 * Threads: the GIL is held throughout and never released inside a call, so that threads which share
 * a handle take turns call by call. There is no other lock, and no state but the module's own.
 */
#ifndef QUIRE_PYTHON_CORE_H
#define QUIRE_PYTHON_CORE_H

#include "lists.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- the module ---------------------------------------------------------- */

typedef struct py_state {
    PyObject *error;       /* quire.Error */
    PyObject *closed;      /* quire.Closed */
    PyObject *statuses;    /* int -> exception class */
    PyObject *empty_array; /* array.array, for memoryviews without items */
    PyObject *chain_type;
    PyObject *plan_type;
    PyObject *step_type;
    PyObject *outputs_type;
} py_state;

/* Of the module that made the object's type: types here are final, so it is always there. */
py_state *py_state_of(PyObject *self);

/* Types and functions that module.c adds. */
extern PyType_Spec py_pool_spec, py_cache_spec, py_sched_spec, py_hasher_spec, py_chain_spec;
extern PyType_Spec py_plan_spec, py_step_spec, py_outputs_spec;
extern PyMethodDef py_cost_functions[], py_plan_functions[], py_preset_functions[];

/* A function of any signature as a slot or method; void is the one type that all convert to. */
#define PY_FUNCTION(f) ((PyCFunction)(void (*)(void))(f))
#define PY_KEYWORDS(f) PY_FUNCTION(f), METH_VARARGS | METH_KEYWORDS

/* ---- objects around a handle of the library -------------------------------- */

/* Events as plain bytes: they are told inside calls, where no Python object may be made. */
typedef struct py_event_log {
    char *data;
    size_t used;
    size_t capacity;
    bool is_lost; /* there was no memory for one */
} py_event_log;

/* What each begins with; its type is named after it. */
typedef struct py_handle {
    PyObject ob_base;
    void *handle;        /* NULL: closed */
    py_event_log events; /* that were told and not taken; a Hasher has none */
} py_handle;

/* A new object of a type, all zero; NULL and an exception. */
void *py_new(PyTypeObject *type);
/* The end of tp_dealloc. */
void py_delete(PyObject *object);
/* The handle, or NULL and quire.Closed: to be asked last, after all conversions. */
void *py_open(PyObject *object);

/* For functions with an argument `object` that return an object. PY_OPEN: the open handle, where no
 * conversion before has failed. PY_CALL: a call into the library that must succeed. */
#define PY_OPEN(type, name)                                                                        \
    type *name = PyErr_Occurred() ? NULL : py_open(object);                                        \
    if (name == NULL)                                                                              \
    return NULL
#define PY_CALL(call)                                                                              \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != QUIRE_OK)                                                                   \
            return py_fail(object, status_);                                                       \
    } while (0)

/* A method without arguments that is one call; one that gives what `make` makes of the numbers that
 * it asks for; and an attribute that does. */
#define PY_METHOD(name, type, call)                                                                \
    static PyObject *name(PyObject *object, PyObject *Py_UNUSED(ignored))                          \
    {                                                                                              \
        PY_OPEN(type, handle);                                                                     \
        return py_done(object, call(handle));                                                      \
    }
#define PY_NUMBERS(name, type, make, call)                                                         \
    static PyObject *name(PyObject *object, PyObject *Py_UNUSED(ignored))                          \
    {                                                                                              \
        PY_OPEN(type, handle);                                                                     \
        return make(call(handle));                                                                 \
    }
#define PY_ATTRIBUTE(name, type, make, call)                                                       \
    static PyObject *name(PyObject *object, void *Py_UNUSED(closure))                              \
    {                                                                                              \
        PY_OPEN(type, handle);                                                                     \
        return make(call(handle));                                                                 \
    }

/* close(), and tp_dealloc, of an object that is its handle. */
#define PY_CLOSE(name, destroy)                                                                    \
    static PyObject *name##_close(PyObject *object, PyObject *Py_UNUSED(ignored))                  \
    {                                                                                              \
        destroy(((py_handle *)object)->handle);                                                    \
        ((py_handle *)object)->handle = NULL;                                                      \
        Py_RETURN_NONE;                                                                            \
    }                                                                                              \
    static void name##_dealloc(PyObject *object)                                                   \
    {                                                                                              \
        Py_DECREF(name##_close(object, NULL));                                                     \
        py_event_log_free(&((py_handle *)object)->events);                                         \
        py_delete(object);                                                                         \
    }

/* A type with name_methods, name_getset and more slots; and one of objects that can be made, which
 * has name_new and name_dealloc. */
#define PY_TYPE_OF(name, object, text, flags, doc, ...)                                            \
    static PyType_Slot name##_slots[] = {{Py_tp_doc, doc},                                         \
                                         {Py_tp_methods, name##_methods},                          \
                                         {Py_tp_getset, name##_getset},                            \
                                         __VA_ARGS__,                                              \
                                         {0, NULL}};                                               \
    PyType_Spec py_##name##_spec = {text, sizeof(object), 0,                                       \
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | (flags),       \
                                    name##_slots};
#define PY_TYPE(name, text, doc)                                                                   \
    PY_TYPE_OF(name, name##_object, text, 0, doc, {Py_tp_new, (void *)name##_new},                 \
               {Py_tp_dealloc, (void *)name##_dealloc})

/* An attribute that is a uint32_t of the object: the getter, and its closure. */
PyObject *py_get_u32(PyObject *object, void *offset);
#define PY_OFFSET(type, field) ((void *)(uintptr_t)offsetof(type, field))

/* ---- errors.c ------------------------------------------------------------ */

int py_add_errors(PyObject *module, py_state *state);
/* Raises the exception of a status that is not QUIRE_OK; always NULL. */
PyObject *py_raise(const py_state *state, int status);
/* The same right after a call that takes a config: the sentence names the field that it refused. */
PyObject *py_raise_refused(const py_state *state, int status, bool has_vllm_names);
/* The same for a method of an object. */
PyObject *py_fail(PyObject *object, int status);
/* None, or NULL and the exception of the status. */
PyObject *py_done(PyObject *object, int status);

/* ---- fields.c: structs of the library as dicts --------------------------- */

typedef struct py_name {
    const char *text; /* NULL ends a list */
    int value;
} py_name;

typedef enum py_field_kind {
    PY_FIELD_U32,
    PY_FIELD_BOOL, /* a uint32_t, 0 or 1 */
    PY_FIELD_U64,
    PY_FIELD_I32,
    PY_FIELD_F64,
    PY_FIELD_SWITCH, /* a quire_switch */
    PY_FIELD_NAME    /* an enum, by name */
} py_field_kind;

typedef struct py_field {
    const char *name; /* NULL ends a table */
    size_t offset;
    py_field_kind kind;
    const py_name *names;
} py_field;

/* Rows of a table; the second is for a field of another name, the third for one with names. */
#define PY_FIELD(type, field, kind)          PY_FIELD_AS(type, #field, field, kind)
#define PY_FIELD_AS(type, text, field, kind) PY_FIELD_NAMED(type, text, field, kind, NULL)
#define PY_FIELD_NAMED(type, text, field, kind, names)                                             \
    {                                                                                              \
        text, offsetof(type, field), kind, names                                                   \
    }
#define PY_FIELDS_END                                                                              \
    {                                                                                              \
        NULL, 0, PY_FIELD_U32, NULL                                                                \
    }

/* Takes the keys of a table out of a dict and sets the fields; None leaves a field as it is. */
int py_fields_take(const py_field *table, void *out, PyObject *dict);
/* Takes one key out of a dict: a new reference, or NULL, with an exception or without. */
PyObject *py_take(PyObject *dict, const char *name);
/* 0 when nothing is left in it, else a TypeError that names what. */
int py_nothing_left(PyObject *dict, const char *what);
/* A dict of the struct's fields. */
PyObject *py_fields_dict(const py_field *table, const void *in);
/* Sets dict[name] = value and gives up the reference; value NULL is an error already raised. */
int py_put(PyObject *dict, const char *name, PyObject *value);
PyObject *py_usage_dict(quire_usage usage);
int py_name_value(const py_name *names, PyObject *text, const char *what, int *value);
const char *py_name_text(const py_name *names, int value);

extern const py_name py_profiles[];

/* ---- arrays.c: numbers in and out, in bulk -------------------------------- */

/* Whole numbers, from a list, tuple, buffer or anything iterable. Buffers of the wanted type are
 * used where they are; others are converted, and what does not fit is an OverflowError. */
typedef struct py_ints {
    const void *data; /* items of the wanted type; NULL when there are none */
    uint32_t count;
    size_t hash_len; /* of hashes */
    void *owned;
    Py_buffer view; /* all zero where there is none */
} py_ints;

/* type: 'i' int32, 'I' uint32, 'q' int64, 'Q' uint64, 'B' uint8. None counts as none, with data
 * NULL. */
int py_ints_get(PyObject *source, char type, const char *what, py_ints *out);
void py_ints_release(py_ints *ints);

/* Rows of tokens: a list of lists (of any lengths), or a flat buffer with a row of stride each. */
typedef struct py_rows {
    py_ints flat;
    uint32_t *counts; /* one for each row where they were lists, else NULL */
    uint32_t num_rows;
    uint32_t stride;
} py_rows;

int py_rows_get(PyObject *source, uint32_t stride, const char *what, py_rows *out);
void py_rows_release(py_rows *rows);

/* A whole number; what is larger than 32 bits counts as UINT32_MAX. PyErr_Occurred says more. */
uint32_t py_u32(PyObject *number);

/* Each item of a sequence through `get`: an array of items of `bytes` each, to be freed with
 * PyMem_Free; NULL and an exception. */
typedef int py_get_item(void *user, PyObject *item, void *out);
void *py_items_get(PyObject *source, size_t bytes, py_get_item *get, void *user, uint32_t *count);

/* Hashes of one length, in the same struct: a list of bytes, or one buffer of all, one after the
 * other. hash_len 0: that of the first, which needs a list. */
typedef py_ints py_hashes;
int py_hashes_get(PyObject *source, size_t hash_len, py_hashes *out);

/* str as UTF-8, or bytes; valid as long as the object. None: absent. The second puts the object
 * into a list that keeps it. */
int py_bytes_get(PyObject *source, const char *what, quire_bytes *out);
int py_bytes_keep(PyObject *keep, PyObject *source, const char *what, quire_bytes *out);

/* A read-only memoryview of a bytes object's items; the second copies the bytes first, the third
 * takes over the reference (NULL: an exception). */
PyObject *py_array_view(const py_state *state, PyObject *bytes, const char *format);
PyObject *py_copied_view(PyObject *object, const void *data, size_t bytes, const char *format);
PyObject *py_taken_view(PyObject *object, PyObject *bytes, const char *format);

/* ---- events.c ------------------------------------------------------------- */

void py_event_record(void *log, const quire_event *event);
/* The events as a list of dicts; the log is empty afterwards. */
PyObject *py_event_list(py_event_log *log);
void py_event_log_free(py_event_log *log);

/* ---- layers.c ------------------------------------------------------------- */

int py_layer_get(PyObject *source, quire_layer_spec *out, uint32_t *is_eagle);
/* A sequence of them, to be freed with PyMem_Free; NULL and an exception. */
quire_layer_spec *py_layers_get(PyObject *source, uint32_t *count);
PyObject *py_layer_dict(const quire_layer_spec *spec);
/* The function of the module: layers of a model. */
PyObject *py_model_layers(PyObject *module, PyObject *source);

/* ---- plan.c, cache.c: configs --------------------------------------------- */

/* The plan behind a Plan object; NULL and an exception when it is closed or something else. */
const quire_plan *py_plan_get(const py_state *state, PyObject *object);

/* A cache's config from keywords, which are taken out of the dict. *groups is to be freed with
 * PyMem_Free whatever the answer. */
int py_cache_config_take(const py_state *state, PyObject *keywords, quire_cache_config *config,
                         quire_group_config **groups);
/* quire_cache_get_pressure as a dict; how many blocks of num_blocks were evicted. For methods. */
PyObject *py_pressure_dict(PyObject *object, quire_cache *cache);
PyObject *py_evict_cached(PyObject *object, quire_pool *pool, uint32_t num_blocks);
/* What the cache did since the last call, as a list of dicts. */
PyObject *py_take_events(PyObject *object, quire_cache *cache);
extern const py_name py_locations[];
/* Blocks of all groups as a list of lists, from spans; copied before anything is made. */
PyObject *py_spans_list(const quire_block_span *spans, uint32_t num_groups);
/* Spans for a call that fills them in, or NULL and an exception; and the same list of them, or the
 * exception of the call's status: they are freed. */
quire_block_span *py_spans_new(uint32_t num_groups);
PyObject *py_spans_taken(PyObject *object, int status, quire_block_span *spans,
                         uint32_t num_groups);

/* ---- hashing.c ------------------------------------------------------------ */

/* Takes a hasher's keywords out of the dict and makes one. */
int py_hasher_take(const py_state *state, PyObject *keywords, uint32_t block_size,
                   quire_hasher **hasher, uint32_t *digest_bytes);

/* ---- step.c --------------------------------------------------------------- */

PyObject *py_step_new(const py_state *state, const quire_step *step, uint32_t num_groups,
                      const quire_snapshot *snapshot);
PyObject *py_outputs_new(const py_state *state, const quire_outputs *outputs,
                         uint32_t num_spec_tokens);
/* The number of a Step, or an int itself. */
int py_step_number(const py_state *state, PyObject *source, uint64_t *number);

/* ---- request.c ------------------------------------------------------------ */

/* A request's params and the objects that they point into. */
typedef struct py_request {
    quire_request_params params;
    py_ints prompt;
    py_ints stop;
    quire_mm_input *mm_inputs;
    PyObject *keep; /* a list: texts and is_embed flags; the library copies them */
} py_request;

int py_request_get(PyObject *id, PyObject *prompt, PyObject *keywords, py_request *out);
void py_request_release(py_request *request);

#endif

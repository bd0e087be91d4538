/* errors.c - the library's statuses as exceptions.
 *
 *      Exception ── Error ── E_DOUBLE_FREE, NO_SPACE, ...     one for each status but OK
 *                     │        .status  -7
 *                     │        .name    "QUIRE_E_DOUBLE_FREE"
 *                     └───── Closed                           a handle was used after close()
 *
 * The classes come from the library's own list, so a status that is added there is an exception
 * here. Where Python has a class for the same thing, they are of that kind too.
 */
#include "core.h"

#include <string.h>

typedef struct status_entry {
    int status;
    const char *class_name;
    const char *full_name;
    const char *sentence;
} status_entry;

static const status_entry entries[] = {
#define ENTRY(value, name, sentence) {(value), #name, "quire." #name, sentence},
    QUIRE_OUTCOME_MAP(ENTRY) QUIRE_ERROR_MAP(ENTRY)
#undef ENTRY
};

static const struct {
    int status;
    PyObject **builtin;
} builtins[] = {
    {QUIRE_E_NOMEM, &PyExc_MemoryError},        {QUIRE_E_ARGUMENT, &PyExc_ValueError},
    {QUIRE_E_CONFIG, &PyExc_ValueError},        {QUIRE_E_RANGE, &PyExc_ValueError},
    {QUIRE_E_TOO_LONG, &PyExc_ValueError},      {QUIRE_E_UNKNOWN_BLOCK, &PyExc_LookupError},
    {QUIRE_E_UNKNOWN_NAME, &PyExc_LookupError}, {QUIRE_E_UNKNOWN_SEQ, &PyExc_LookupError},
    {QUIRE_E_UNKNOWN_REQ, &PyExc_LookupError},  {QUIRE_MISS, &PyExc_LookupError},
    {QUIRE_E_OVERFLOW, &PyExc_OverflowError},
};

static PyObject *make_class(const py_state *state, const status_entry *entry)
{
    PyObject *builtin = NULL;
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (builtins[i].status == entry->status)
            builtin = *builtins[i].builtin;
    PyObject *bases =
        builtin != NULL ? PyTuple_Pack(2, state->error, builtin) : PyTuple_Pack(1, state->error);
    PyObject *attributes = Py_BuildValue("{s:i,s:s}", "status", entry->status, "name",
                                         quire_status_name(entry->status));
    PyObject *made = NULL;
    if (bases != NULL && attributes != NULL)
        made = PyErr_NewExceptionWithDoc(entry->full_name, entry->sentence, bases, attributes);
    Py_XDECREF(bases);
    Py_XDECREF(attributes);
    return made;
}

static int add_class(PyObject *module, const py_state *state, const status_entry *entry)
{
    PyObject *made = make_class(state, entry);
    PyObject *key = PyLong_FromLong(entry->status);
    int err = -1;
    if (made != NULL && key != NULL && PyDict_SetItem(state->statuses, key, made) == 0)
        err = PyModule_AddObjectRef(module, entry->class_name, made);
    Py_XDECREF(key);
    Py_XDECREF(made);
    return err;
}

int py_add_errors(PyObject *module, py_state *state)
{
    state->statuses = PyDict_New();
    state->error = PyErr_NewExceptionWithDoc(
        "quire.Error",
        "A call was not valid, or its outcome was not the usual one.\n\n"
        "Nothing was changed. `status` is the library's number, `name` its name.",
        NULL, NULL);
    if (state->statuses == NULL || state->error == NULL)
        return -1;
    PyObject *bases = PyTuple_Pack(2, state->error, PyExc_ValueError);
    if (bases != NULL)
        state->closed = PyErr_NewExceptionWithDoc("quire.Closed",
                                                  "A handle was used after close().", bases, NULL);
    Py_XDECREF(bases);
    if (state->closed == NULL || PyModule_AddObjectRef(module, "Error", state->error) < 0 ||
        PyModule_AddObjectRef(module, "Closed", state->closed) < 0)
        return -1;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (entries[i].status != QUIRE_OK && add_class(module, state, &entries[i]) < 0)
            return -1;
    return 0;
}

/* Fields whose settings have vLLM's names here. */
static const char *const renamed[][2] = {
    {"num_blocks", "num_gpu_blocks"},
    {"enable_caching", "enable_prefix_caching"},
    {"num_spec_tokens", "num_speculative_tokens"},
    {"reserve_full_sequence", "scheduler_reserve_full_isl"},
    {"dcp_world_size", "decode_context_parallel_size"},
    {"pcp_world_size", "prefill_context_parallel_size"},
};

/* The library's sentence about a config, with the names that settings have in Python; the cache's
 * are not apart here. NULL: it has none. */
static const char *refusal_of(int status, bool has_vllm_names, char *text, size_t bytes)
{
    const char *sentence = quire_refusal();
    bool is_about_config = status == QUIRE_E_CONFIG || status == QUIRE_E_UNKNOWN_NAME;
    if (!is_about_config || sentence[0] == 0)
        return NULL;
    if (strncmp(sentence, "cache: ", strlen("cache: ")) == 0)
        sentence += strlen("cache: ");
    for (size_t i = 0; has_vllm_names && i < sizeof renamed / sizeof *renamed; i++) {
        size_t len = strlen(renamed[i][0]);
        const char *name = strncmp(sentence, "invalid ", 8) == 0 ? sentence + 8 : sentence;
        if (strncmp(name, renamed[i][0], len) != 0 || name[len] != ' ')
            continue;
        (void)PyOS_snprintf(text, bytes, "%.*s%s%s", (int)(name - sentence), sentence,
                            renamed[i][1], name + len);
        return text;
    }
    return sentence;
}

PyObject *py_raise_refused(const py_state *state, int status, bool has_vllm_names)
{
    char text[320];
    const char *refusal = refusal_of(status, has_vllm_names, text, sizeof text);
    py_raise(state, status);
    PyObject *kind = PyErr_Occurred();
    if (refusal != NULL && kind != NULL)
        PyErr_SetString(kind, refusal);
    return NULL;
}

PyObject *py_raise(const py_state *state, int status)
{
    PyObject *key = PyLong_FromLong(status);
    if (key == NULL)
        return NULL;
    PyObject *type = PyDict_GetItemWithError(state->statuses, key);
    Py_DECREF(key);
    if (type != NULL || !PyErr_Occurred())
        PyErr_SetString(type != NULL ? type : state->error, quire_strerror(status));
    return NULL;
}

PyObject *py_fail(PyObject *object, int status)
{
    return py_raise(py_state_of(object), status);
}

PyObject *py_done(PyObject *object, int status)
{
    if (status != QUIRE_OK)
        return py_fail(object, status);
    Py_RETURN_NONE;
}

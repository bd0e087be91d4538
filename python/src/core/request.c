/* request.c - the params of a request, from Python objects (quire/sched.h). */
#include "core.h"

#include <string.h>

#define U32(name)  PY_FIELD(quire_request_params, name, PY_FIELD_U32)
#define BOOL(name) PY_FIELD(quire_request_params, name, PY_FIELD_BOOL)
static const py_field request_fields[] = {
    U32(max_tokens),
    U32(min_tokens),
    U32(repetition_max_pattern),
    U32(repetition_min_pattern),
    U32(repetition_min_count),
    PY_FIELD(quire_request_params, priority, PY_FIELD_I32),
    PY_FIELD(quire_request_params, arrival_time, PY_FIELD_F64),
    U32(client_index),
    U32(lora_id),
    BOOL(use_grammar),
    BOOL(is_pooling),
    BOOL(is_resumable),
    BOOL(skip_reading_prefix),
    PY_FIELDS_END};

static int take_held_text(py_request *r, PyObject *dict, const char *name, quire_bytes *out)
{
    PyObject *source = py_take(dict, name);
    if (source == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int err = py_bytes_keep(r->keep, source, name, out);
    Py_DECREF(source);
    return err;
}

/* ---- images ---------------------------------------------------------------- */

static int get_flags(py_request *r, PyObject *source, quire_mm_input *out)
{
    py_ints flags;
    if (py_ints_get(source, 'B', "is_embed", &flags) < 0)
        return -1;
    int err = -1;
    if (flags.count != out->feature.length) {
        PyErr_SetString(PyExc_ValueError, "is_embed needs one flag for each placeholder token");
    } else {
        PyObject *copy = PyBytes_FromStringAndSize(flags.data, (Py_ssize_t)flags.count);
        if (copy != NULL && PyList_Append(r->keep, copy) == 0) {
            out->is_embed = (const uint8_t *)PyBytes_AsString(copy);
            err = 0;
        }
        Py_XDECREF(copy);
    }
    py_ints_release(&flags);
    return err;
}

static int get_mm_input(void *user, PyObject *source, void *item)
{
    quire_mm_input *out = item;
    PyObject *identifier;
    PyObject *is_embed = Py_None;
    unsigned long long offset;
    unsigned long long length;
    PyObject *tuple = PySequence_Tuple(source);
    int err = -1;
    if (tuple != NULL &&
        PyArg_ParseTuple(
            tuple, "OKK|IO;a feature is (identifier, offset, length[, num_embeds[, is_embed]])",
            &identifier, &offset, &length, &out->num_embeds, &is_embed)) {
        out->feature.offset = offset;
        out->feature.length = length;
        err = py_bytes_keep(((py_request *)user)->keep, identifier, "identifier",
                            &out->feature.identifier);
        if (err == 0 && is_embed != Py_None)
            err = get_flags(user, is_embed, out);
    }
    Py_XDECREF(tuple);
    return err;
}

static int take_mm_inputs(py_request *r, PyObject *dict)
{
    PyObject *source = py_take(dict, "mm_inputs");
    if (source != NULL && source != Py_None)
        r->mm_inputs =
            py_items_get(source, sizeof *r->mm_inputs, get_mm_input, r, &r->params.num_mm_inputs);
    Py_XDECREF(source);
    r->params.mm_inputs = r->mm_inputs;
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- stop rules ------------------------------------------------------------ */

static int take_stop_rules(py_request *r, PyObject *dict)
{
    PyObject *eos = py_take(dict, "eos_token_id");
    if (eos != NULL && eos != Py_None) {
        long token = PyLong_AsLong(eos);
        if (!PyErr_Occurred() && (token < INT32_MIN || token > INT32_MAX))
            PyErr_SetString(PyExc_OverflowError, "eos_token_id does not fit int32");
        r->params.has_eos = 1;
        r->params.eos_token_id = (quire_token)token;
    }
    Py_XDECREF(eos);
    PyObject *stop = PyErr_Occurred() ? NULL : py_take(dict, "stop_token_ids");
    if (PyErr_Occurred())
        return -1;
    int err = py_ints_get(stop, 'i', "stop_token_ids", &r->stop);
    Py_XDECREF(stop);
    r->params.stop_token_ids = r->stop.data;
    r->params.num_stop_token_ids = r->stop.count;
    return err;
}

/* ---- all of it ------------------------------------------------------------- */

static int take_rest(py_request *r, PyObject *keywords)
{
    PyObject *dict = PyDict_Copy(keywords);
    if (dict == NULL)
        return -1;
    bool is_taken = py_fields_take(request_fields, &r->params, dict) == 0 &&
                    take_held_text(r, dict, "lora_name", &r->params.lora_name) == 0 &&
                    take_held_text(r, dict, "lora_path", &r->params.lora_path) == 0 &&
                    take_held_text(r, dict, "cache_salt", &r->params.cache_salt) == 0 &&
                    take_mm_inputs(r, dict) == 0 && take_stop_rules(r, dict) == 0 &&
                    py_nothing_left(dict, "a request") == 0;
    Py_DECREF(dict);
    return is_taken ? 0 : -1;
}

int py_request_get(PyObject *id, PyObject *prompt, PyObject *keywords, py_request *out)
{
    memset(out, 0, sizeof *out);
    out->params.size = sizeof out->params;
    out->keep = PyList_New(0);
    bool is_read = out->keep != NULL &&
                   (id == NULL || py_bytes_keep(out->keep, id, "id", &out->params.id) == 0) &&
                   py_ints_get(prompt, 'i', "prompt", &out->prompt) == 0 &&
                   (keywords == NULL || take_rest(out, keywords) == 0);
    if (!is_read) {
        py_request_release(out);
        return -1;
    }
    out->params.prompt = out->prompt.data;
    out->params.num_prompt_tokens = out->prompt.count;
    return 0;
}

void py_request_release(py_request *request)
{
    py_ints_release(&request->prompt);
    py_ints_release(&request->stop);
    PyMem_Free(request->mm_inputs);
    Py_XDECREF(request->keep);
    memset(request, 0, sizeof *request);
}

/* vllm_request.c - a Request comes in: its tokens and rules are copied into the quire_sched.
 *
 * quire/vllm/request.py reads the rules from the Request and its params; here they are a dict of
 * numbers and texts. Names that are not there keep their defaults.
 */
#include "vllm.h"

#include <string.h>

static int read_text(PyObject *dict, const char *name, quire_bytes *bytes)
{
    PyObject *text = PyDict_GetItemString(dict, name);
    if (text == NULL)
        return 0;
    Py_ssize_t len;
    const char *data = PyUnicode_AsUTF8AndSize(text, &len);
    if (data == NULL)
        return -1;
    *bytes = (quire_bytes){data, (size_t)len};
    return 0;
}

static int read_token(PyObject *number, quire_token *token)
{
    long value = number == NULL ? -1 : PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < INT32_MIN || value > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a token id is beyond 32 bits");
        return -1;
    }
    *token = (quire_token)value;
    return 0;
}

/* A list of tokens as an array that the caller frees. */
static quire_token *copy_tokens(PyObject *list, uint32_t *count)
{
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "token ids must be a list");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(list);
    quire_token *tokens = PyMem_Malloc(((size_t)size + 1) * sizeof(*tokens));
    if (tokens == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (vllm_read_tokens(list, 0, size, tokens) < 0) {
        PyMem_Free(tokens);
        return NULL;
    }
    *count = (uint32_t)size;
    return tokens;
}

static int read_rules(PyObject *rules, quire_request_params *params)
{
    const struct {
        const char *name;
        uint32_t *at;
    } numbers[] = {{"max_tokens", &params->max_tokens},
                   {"min_tokens", &params->min_tokens},
                   {"repetition_max_pattern", &params->repetition_max_pattern},
                   {"repetition_min_pattern", &params->repetition_min_pattern},
                   {"repetition_min_count", &params->repetition_min_count},
                   {"client_index", &params->client_index},
                   {"lora_id", &params->lora_id},
                   {"is_pooling", &params->is_pooling},
                   {"use_grammar", &params->use_grammar},
                   {"skip_reading_prefix", &params->skip_reading_prefix}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (vllm_read_u32(rules, numbers[i].name, numbers[i].at) < 0)
            return -1;
    }
    PyObject *eos = PyDict_GetItemString(rules, "eos_token_id");
    PyObject *priority = PyDict_GetItemString(rules, "priority");
    PyObject *arrival = PyDict_GetItemString(rules, "arrival_time");
    if (eos != NULL) {
        params->has_eos = 1;
        if (read_token(eos, &params->eos_token_id) < 0)
            return -1;
    }
    if (priority != NULL && read_token(priority, &params->priority) < 0)
        return -1;
    params->arrival_time = arrival == NULL ? 0.0 : PyFloat_AsDouble(arrival);
    return PyErr_Occurred() || read_text(rules, "id", &params->id) < 0 ||
                   read_text(rules, "lora_name", &params->lora_name) < 0 ||
                   read_text(rules, "cache_salt", &params->cache_salt) < 0
               ? -1
               : 0;
}

/* Images: a list of (identifier, offset, length, embeddings, flags or None). The texts and flags
 * lie in the list's objects, which the slot keeps. */
static int read_feature(PyObject *tuple, quire_mm_input *input)
{
    const char *text;
    Py_ssize_t len;
    unsigned long long offset;
    unsigned long long length;
    PyObject *flags;
    if (!PyArg_ParseTuple(tuple, "s#KKIO", &text, &len, &offset, &length, &input->num_embeds,
                          &flags))
        return -1;
    input->feature = (quire_mm_feature){{text, (size_t)len}, offset, length};
    if (flags == Py_None)
        return 0;
    char *data;
    Py_ssize_t num_flags;
    if (PyBytes_AsStringAndSize(flags, &data, &num_flags) < 0)
        return -1;
    if ((unsigned long long)num_flags != length) {
        PyErr_SetString(PyExc_ValueError, "is_embed must have a flag for each placeholder");
        return -1;
    }
    input->is_embed = (const uint8_t *)data;
    return 0;
}

static int read_features(PyObject *list, quire_request_params *params, quire_mm_input **made)
{
    Py_ssize_t count = list == NULL ? 0 : PyList_Size(list);
    if (count <= 0)
        return count < 0 ? -1 : 0;
    *made = PyMem_Calloc((size_t)count, sizeof(**made));
    if (*made == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_feature(PyList_GetItem(list, i), &(*made)[i]) < 0)
            return -1;
    }
    params->mm_inputs = *made;
    params->num_mm_inputs = (uint32_t)count;
    return 0;
}

static int fill_slot(vllm_core *core, vllm_slot *slot, PyObject *request, PyObject *rules)
{
    uint32_t wants_logprobs = 0;
    if (vllm_read_u32(rules, "wants_logprobs", &wants_logprobs) < 0)
        return -1;
    slot->wants_logprobs = (uint8_t)wants_logprobs;
    slot->has_events = (uint8_t)core->log_stats;
    Py_INCREF(request);
    slot->request = request;
    slot->id = PyObject_GetAttrString(request, "request_id");
    slot->all_tokens = PyObject_GetAttrString(request, "_all_token_ids");
    slot->output_tokens = PyObject_GetAttrString(request, "_output_token_ids");
    slot->trace_headers = PyObject_GetAttrString(request, "trace_headers");
    if (slot->trace_headers == Py_None)
        Py_CLEAR(slot->trace_headers);
    slot->features = PyDict_GetItemString(rules, "features");
    Py_XINCREF(slot->features);
    return PyErr_Occurred() ? -1 : 0;
}

/* add(request, rules): the number that names it from now on. */
PyObject *vllm_core_add(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    PyObject *request;
    PyObject *rules;
    if (!PyArg_ParseTuple(args, "OO!", &request, &PyDict_Type, &rules))
        return NULL;
    vllm_slot made = {0};
    quire_request_params params = {0};
    quire_token *stops = NULL;
    quire_token *prompt = NULL;
    quire_mm_input *features = NULL;
    quire_req req = 0;
    int status = QUIRE_E_ARGUMENT;
    PyObject *stop_list = PyDict_GetItemString(rules, "stop_token_ids");
    if (fill_slot(core, &made, request, rules) == 0 && read_rules(rules, &params) == 0 &&
        read_features(made.features, &params, &features) == 0) {
        prompt = copy_tokens(made.all_tokens, &params.num_prompt_tokens);
        if (prompt != NULL && stop_list != NULL)
            stops = copy_tokens(stop_list, &params.num_stop_token_ids);
    }
    if (!PyErr_Occurred()) {
        params.prompt = prompt;
        params.user = request; /* in events */
        params.stop_token_ids = stops;
        status = quire_sched_add(core->sched, &params, &req);
        if (status != QUIRE_OK)
            vllm_raise(status, "add_request");
    }
    PyMem_Free(prompt);
    PyMem_Free(stops);
    PyMem_Free(features);
    if (status != QUIRE_OK) {
        Py_XDECREF(made.request);
        Py_XDECREF(made.id);
        Py_XDECREF(made.all_tokens);
        Py_XDECREF(made.output_tokens);
        Py_XDECREF(made.trace_headers);
        Py_XDECREF(made.features);
        return NULL;
    }
    made.req = req;
    made.num_prompt = params.num_prompt_tokens;
    core->slots[quire_req_index(req)] = made;
    return PyLong_FromUnsignedLongLong(req);
}

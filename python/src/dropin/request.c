/* request.c - a Request comes in: its tokens and rules are copied into the quire_sched.
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

/* A list of tokens as an array that the caller frees. */
static quire_token *copy_tokens(PyObject *list, uint32_t *count)
{
    if (!PyList_Check(list))
        return (void *)PyErr_Format(PyExc_TypeError, "token ids must be a list");
    Py_ssize_t size = PyList_Size(list);
    quire_token *tokens = PyMem_Malloc(((size_t)size + 1) * sizeof(*tokens));
    if (tokens == NULL)
        return (void *)PyErr_NoMemory();
    if (vllm_read_tokens(list, 0, size, tokens) < 0) {
        PyMem_Free(tokens);
        return NULL;
    }
    *count = (uint32_t)size;
    return tokens;
}

#define RULE(field) VLLM_FIELD(quire_request_params, field)
static const vllm_field rule_fields[] = {RULE(max_tokens),
                                         RULE(min_tokens),
                                         RULE(repetition_max_pattern),
                                         RULE(repetition_min_pattern),
                                         RULE(repetition_min_count),
                                         RULE(client_index),
                                         RULE(lora_id),
                                         RULE(is_pooling),
                                         RULE(is_resumable),
                                         RULE(use_grammar),
                                         RULE(skip_reading_prefix),
                                         RULE(kv_cache_report_full),
                                         {NULL, 0}};

static int read_rules(PyObject *rules, quire_request_params *params)
{
    if (vllm_read_fields(rules, rule_fields, params) < 0)
        return -1;
    PyObject *eos = PyDict_GetItemString(rules, "eos_token_id");
    PyObject *priority = PyDict_GetItemString(rules, "priority");
    PyObject *arrival = PyDict_GetItemString(rules, "arrival_time");
    if (eos != NULL) {
        params->has_eos = 1;
        if (vllm_read_token(eos, &params->eos_token_id) < 0)
            return -1;
    }
    if (priority != NULL && vllm_read_token(priority, &params->priority) < 0)
        return -1;
    params->arrival_time = arrival == NULL ? 0.0 : PyFloat_AsDouble(arrival);
    return PyErr_Occurred() || read_text(rules, "id", &params->id) < 0 ||
                   read_text(rules, "lora_name", &params->lora_name) < 0 ||
                   read_text(rules, "lora_path", &params->lora_path) < 0 ||
                   read_text(rules, "cache_salt", &params->cache_salt) < 0
               ? -1
               : 0;
}

/* Images: a list of (identifier, offset, length, embeddings, flags or None). The texts and flags
 * lie in the list's objects; the library copies them. */
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
    if ((unsigned long long)num_flags != length)
        return PY_REFUSE(PyExc_ValueError, "is_embed must have a flag for each placeholder");
    input->is_embed = (const uint8_t *)data;
    return 0;
}

static int read_features(PyObject *list, quire_request_params *params, quire_mm_input **made)
{
    Py_ssize_t count = list == NULL ? 0 : PyList_Size(list);
    if (count <= 0)
        return count < 0 ? -1 : 0;
    *made = PyMem_Calloc((size_t)count, sizeof(**made));
    if (*made == NULL)
        return PY_REFUSE_MEMORY();
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_feature(PyList_GetItem(list, i), &(*made)[i]) < 0)
            return -1;
    }
    params->mm_inputs = *made;
    params->num_mm_inputs = (uint32_t)count;
    return 0;
}

/* What is read from a request and its rules; arrays are freed by input_free. */
typedef struct request_input {
    quire_request_params params;
    quire_token *prompt;
    quire_token *stops;
    quire_mm_input *features;
} request_input;

/* Bytes that lie in an object of the rules, which live as long as the call. */
static int read_bytes(PyObject *rules, const char *name, char **data, Py_ssize_t *len)
{
    PyObject *bytes = PyDict_GetItemString(rules, name);
    *data = NULL;
    *len = 0;
    return bytes == NULL ? 0 : PyBytes_AsStringAndSize(bytes, data, len);
}

/* The hashes that the Request made of its prompt, if they are of the scheduler's kind; and the rows
 * of a prompt of embeddings. */
static int read_prompt(const vllm_core *core, PyObject *rules, quire_request_params *params)
{
    char *data;
    Py_ssize_t len;
    uint32_t num_hashes = 0;
    if (vllm_read_u32(rules, "num_hashes", &num_hashes) < 0 ||
        read_bytes(rules, "hashes", &data, &len) < 0)
        return -1;
    if (num_hashes > 0 && (size_t)len == (size_t)num_hashes * core->digest_bytes) {
        params->hashes = (const unsigned char *)data;
        params->num_hashes = num_hashes;
    }
    if (read_bytes(rules, "prompt_embeds", &data, &len) < 0)
        return -1;
    if (data != NULL && params->num_prompt_tokens > 0) {
        params->prompt_embeds = data;
        params->prompt_embed_bytes = (size_t)len / params->num_prompt_tokens;
    }
    return 0;
}

static int input_read(PyObject *tokens, PyObject *rules, request_input *input)
{
    quire_request_params *params = &input->params;
    PyObject *stops = PyDict_GetItemString(rules, "stop_token_ids");
    if (read_rules(rules, params) < 0 ||
        read_features(PyDict_GetItemString(rules, "features"), params, &input->features) < 0)
        return -1;
    input->prompt = copy_tokens(tokens, &params->num_prompt_tokens);
    if (input->prompt != NULL && stops != NULL)
        input->stops = copy_tokens(stops, &params->num_stop_token_ids);
    params->prompt = input->prompt;
    params->stop_token_ids = input->stops;
    return PyErr_Occurred() ? -1 : 0;
}

static void input_free(request_input *input)
{
    PyMem_Free(input->prompt);
    PyMem_Free(input->stops);
    PyMem_Free(input->features);
}

static int read_logprobs(PyObject *rules, vllm_slot *slot)
{
    uint32_t wants_logprobs = 0;
    int failed = vllm_read_u32(rules, "wants_logprobs", &wants_logprobs) < 0;
    slot->wants_logprobs = (uint8_t)wants_logprobs;
    return failed ? -1 : 0;
}

static int fill_slot(vllm_core *core, vllm_slot *slot, PyObject *request, PyObject *rules)
{
    if (read_logprobs(rules, slot) < 0)
        return -1;
    slot->has_events = (uint8_t)core->log_stats;
    slot->request = Py_NewRef(request);
    slot->id = PyObject_GetAttrString(request, "request_id");
    slot->all_tokens = PyObject_GetAttrString(request, "_all_token_ids");
    slot->output_tokens = PyObject_GetAttrString(request, "_output_token_ids");
    slot->trace_headers = PyObject_GetAttrString(request, "trace_headers");
    if (slot->trace_headers == Py_None)
        Py_CLEAR(slot->trace_headers);
    return PyErr_Occurred() ? -1 : 0;
}

static void raise_refused(const vllm_core *core, int status, const quire_request_params *params)
{
    if (status == QUIRE_E_RANGE)
        PyErr_Format(
            PyExc_ValueError,
            "add_request: a prompt of %u tokens with %u images, %u stop tokens and an id of %zu "
            "bytes; it must have at least one token and fewer than max_model_len, and some 100 "
            "images, 500 stop tokens and 2,000 bytes of names are the most",
            params->num_prompt_tokens, params->num_mm_inputs, params->num_stop_token_ids,
            params->id.len);
    else if (status == QUIRE_FULL)
        PyErr_Format(
            PyExc_ValueError,
            "add_request: no room for a prompt of %u tokens: %u requests are the most, and "
            "their tokens have a limit",
            params->num_prompt_tokens, core->max_requests);
    else if (status != QUIRE_OK)
        vllm_raise(status, "add_request");
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
    request_input input = {.params = QUIRE_REQUEST_PARAMS_INIT};
    quire_req req = 0;
    int status = QUIRE_E_ARGUMENT;
    if (fill_slot(core, &made, request, rules) == 0 &&
        input_read(made.all_tokens, rules, &input) == 0 &&
        read_prompt(core, rules, &input.params) == 0) {
        input.params.user = request; /* in events */
        status = quire_sched_add(core->sched, &input.params, &req);
        raise_refused(core, status, &input.params);
    }
    input_free(&input);
    if (status != QUIRE_OK) {
        vllm_slot_clear(&made);
        return NULL;
    }
    made.req = req;
    made.num_prompt = input.params.num_prompt_tokens;
    core->slots[quire_req_index(req)] = made;
    return PyLong_FromUnsignedLongLong(req);
}

/* ---- sessions ------------------------------------------------------------ */

/* One that waited for its input has it now. */
static int take_input(vllm_core *core, vllm_slot *slot, PyObject *rules, int was_waiting)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (!was_waiting || quire_sched_get_req_info(core->sched, slot->req, &info) != QUIRE_OK)
        return 0;
    slot->num_prompt = info.num_prompt_tokens;
    slot->has_events = (uint8_t)core->log_stats;
    return read_logprobs(rules, slot);
}

/* go_on(number, request or None, rules): the next input of a session; None: no more follow. */
PyObject *vllm_core_go_on(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    unsigned long long number;
    PyObject *request;
    PyObject *rules;
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (!PyArg_ParseTuple(args, "KOO!", &number, &request, &PyDict_Type, &rules))
        return NULL;
    vllm_slot *slot = vllm_slot_of(core, number);
    if (slot == NULL || quire_sched_get_req_info(core->sched, number, &info) != QUIRE_OK)
        return vllm_raise(QUIRE_E_UNKNOWN_REQ, "request");
    int was_waiting = info.status == QUIRE_REQ_WAITING_FOR_STREAMING;
    request_input input = {.params = QUIRE_REQUEST_PARAMS_INIT};
    PyObject *tokens = NULL;
    int status = QUIRE_OK;
    if (request == Py_None) {
        status = quire_sched_continue(core->sched, number, NULL);
    } else {
        tokens = PyObject_GetAttrString(request, "_all_token_ids");
        if (tokens != NULL && input_read(tokens, rules, &input) == 0)
            status = quire_sched_continue(core->sched, number, &input.params);
    }
    if (!PyErr_Occurred() && status == QUIRE_OK && request != Py_None)
        take_input(core, slot, rules, was_waiting);
    Py_XDECREF(tokens);
    input_free(&input);
    if (PyErr_Occurred())
        return NULL;
    if (status == QUIRE_FULL)
        return PyErr_Format(PyExc_ValueError, "no room for the next input of a session");
    return vllm_done(status, "the next input of a session");
}

/* layers.c - layers as dicts, and the layers of a model (quire/layer.h, quire/model.h). */
#include "core.h"

#include <string.h>

/* ---- layers ---------------------------------------------------------------- */

static const py_name layer_kinds[] = {{"full", QUIRE_LAYER_FULL},
                                      {"tq_full", QUIRE_LAYER_TQ_FULL},
                                      {"mla", QUIRE_LAYER_MLA},
                                      {"sink_full", QUIRE_LAYER_SINK_FULL},
                                      {"sliding_window", QUIRE_LAYER_SLIDING_WINDOW},
                                      {"sliding_window_mla", QUIRE_LAYER_SLIDING_WINDOW_MLA},
                                      {"chunked_local", QUIRE_LAYER_CHUNKED_LOCAL},
                                      {"mamba", QUIRE_LAYER_MAMBA},
                                      {"cross", QUIRE_LAYER_CROSS},
                                      {"encoder_only", QUIRE_LAYER_ENCODER_ONLY},
                                      {"rswa", QUIRE_LAYER_RSWA},
                                      {"circular_buffer", QUIRE_LAYER_CIRCULAR_BUFFER},
                                      {"hidden_state", QUIRE_LAYER_HIDDEN_STATE},
                                      {NULL, 0}};
static const py_name dtypes[] = {{"float16", QUIRE_DTYPE_FLOAT16},
                                 {"bfloat16", QUIRE_DTYPE_BFLOAT16},
                                 {"float32", QUIRE_DTYPE_FLOAT32},
                                 {"float64", QUIRE_DTYPE_FLOAT64},
                                 {"fp8_e4m3", QUIRE_DTYPE_FP8_E4M3},
                                 {"fp8_e5m2", QUIRE_DTYPE_FP8_E5M2},
                                 {"int8", QUIRE_DTYPE_INT8},
                                 {"uint8", QUIRE_DTYPE_UINT8},
                                 {"int32", QUIRE_DTYPE_INT32},
                                 {"none", 0},
                                 {NULL, 0}};
static const py_name kv_quants[] = {{"none", QUIRE_KV_QUANT_NONE},
                                    {"fp8_per_tensor", QUIRE_KV_QUANT_FP8_PER_TENSOR},
                                    {"int8_per_token_head", QUIRE_KV_QUANT_INT8_PER_TOKEN_HEAD},
                                    {"fp8_per_token_head", QUIRE_KV_QUANT_FP8_PER_TOKEN_HEAD},
                                    {"nvfp4", QUIRE_KV_QUANT_NVFP4},
                                    {NULL, 0}};
static const py_name mla_caches[] = {{"none", QUIRE_MLA_CACHE_NONE},
                                     {"auto", QUIRE_MLA_CACHE_AUTO},
                                     {"fp8", QUIRE_MLA_CACHE_FP8},
                                     {"fp8_ds_mla", QUIRE_MLA_CACHE_FP8_DS_MLA},
                                     {NULL, 0}};
static const py_name mla_versions[] = {
    {"none", QUIRE_MLA_VERSION_NONE}, {"deepseek_v4", QUIRE_MLA_VERSION_DEEPSEEK_V4}, {NULL, 0}};
static const py_name mamba_types[] = {{"mamba2", QUIRE_MAMBA2},
                                      {"mamba1", QUIRE_MAMBA1},
                                      {"linear_attention", QUIRE_MAMBA_LINEAR},
                                      {"short_conv", QUIRE_MAMBA_SHORT_CONV},
                                      {"gdn_attention", QUIRE_MAMBA_GDN},
                                      {"kda_attention", QUIRE_MAMBA_KDA},
                                      {NULL, 0}};
static const py_name mamba_modes[] = {{"none", QUIRE_MAMBA_MODE_NONE},
                                      {"all", QUIRE_MAMBA_MODE_ALL},
                                      {"align", QUIRE_MAMBA_MODE_ALIGN},
                                      {NULL, 0}};

#define U32(name)          PY_FIELD(quire_layer_spec, name, PY_FIELD_U32)
#define NAMED(name, names) PY_FIELD_NAMED(quire_layer_spec, #name, name, PY_FIELD_NAME, names)
static const py_field layer_fields[] = {NAMED(kind, layer_kinds),
                                        U32(block_size),
                                        U32(num_kv_heads),
                                        U32(head_size),
                                        U32(head_size_v),
                                        NAMED(dtype, dtypes),
                                        NAMED(kv_quant, kv_quants),
                                        PY_FIELD(quire_layer_spec, page_size_padded, PY_FIELD_U64),
                                        U32(sliding_window),
                                        U32(attention_chunk_size),
                                        U32(sink_len),
                                        U32(tq_slot_size),
                                        NAMED(mla_cache, mla_caches),
                                        NAMED(mla_version, mla_versions),
                                        U32(alignment),
                                        U32(compress_ratio),
                                        NAMED(mamba_type, mamba_types),
                                        NAMED(mamba_mode, mamba_modes),
                                        U32(num_speculative_blocks),
                                        U32(rswa_window),
                                        PY_FIELDS_END};

static const py_field eagle_field[] = {{"is_eagle", 0, PY_FIELD_BOOL, NULL}, PY_FIELDS_END};

/* A state is (dtype, dims). */
static int get_state(PyObject *source, quire_state *out)
{
    PyObject *dtype;
    PyObject *dims;
    py_ints items;
    int number;
    PyObject *tuple = PySequence_Tuple(source);
    int err = -1;
    if (tuple != NULL && PyArg_ParseTuple(tuple, "OO;a state is (dtype, dims)", &dtype, &dims) &&
        py_name_value(dtypes, dtype, "dtype", &number) == 0 &&
        py_ints_get(dims, 'I', "dims", &items) == 0) {
        out->dtype = (quire_dtype)number;
        out->num_dims = items.count;
        err = items.count <= QUIRE_MAX_STATE_DIMS
                  ? 0
                  : PY_REFUSE(PyExc_ValueError, "a state has too many dimensions");
        if (err == 0 && items.count > 0)
            memcpy(out->dims, items.data, items.count * sizeof(uint32_t));
        py_ints_release(&items);
    }
    Py_XDECREF(tuple);
    return err;
}

static int get_states(PyObject *source, quire_layer_spec *out)
{
    PyObject *list = PySequence_List(source);
    if (list == NULL)
        return -1;
    int err = 0;
    if (PyList_Size(list) > QUIRE_MAX_STATES)
        err = PY_REFUSE(PyExc_ValueError, "a layer has too many states");
    for (Py_ssize_t i = 0; err == 0 && i < PyList_Size(list); i++)
        err = get_state(PyList_GetItem(list, i), &out->states[i]);
    Py_DECREF(list);
    return err;
}

int py_layer_get(PyObject *source, quire_layer_spec *out, uint32_t *is_eagle)
{
    memset(out, 0, sizeof *out);
    *is_eagle = 0;
    if (!PyDict_Check(source))
        return PY_REFUSE(PyExc_TypeError, "a layer must be a dict");
    PyObject *rest = PyDict_Copy(source);
    if (rest == NULL)
        return -1;
    PyObject *states = py_take(rest, "states");
    bool has_states = states != NULL && states != Py_None;
    bool is_taken = !PyErr_Occurred() && (!has_states || get_states(states, out) == 0) &&
                    py_fields_take(layer_fields, out, rest) == 0 &&
                    py_fields_take(eagle_field, is_eagle, rest) == 0 &&
                    py_nothing_left(rest, "a layer") == 0;
    Py_XDECREF(states);
    Py_DECREF(rest);
    return is_taken ? 0 : -1;
}

static PyObject *make_state(const void *spec, uint32_t i)
{
    const quire_state *state = &((const quire_layer_spec *)spec)->states[i];
    PyObject *dims = py_list_u32(state->dims, state->num_dims);
    return dims == NULL ? NULL
                        : Py_BuildValue("(sN)", py_name_text(dtypes, (int)state->dtype), dims);
}

static PyObject *state_list(const quire_layer_spec *spec)
{
    uint32_t count = 0;
    while (count < QUIRE_MAX_STATES && spec->states[count].num_dims > 0)
        count++;
    return py_list_of(count, make_state, spec);
}

PyObject *py_layer_dict(const quire_layer_spec *spec)
{
    PyObject *dict = py_fields_dict(layer_fields, spec);
    if (dict != NULL && spec->kind == QUIRE_LAYER_MAMBA &&
        py_put(dict, "states", state_list(spec)) < 0)
        Py_CLEAR(dict);
    return dict;
}

static PyObject *make_layer(const void *layers, uint32_t i)
{
    return py_layer_dict((const quire_layer_spec *)layers + i);
}

static int get_layer(void *user, PyObject *item, void *out)
{
    uint32_t is_eagle;
    (void)user;
    return py_layer_get(item, out, &is_eagle);
}

quire_layer_spec *py_layers_get(PyObject *source, uint32_t *count)
{
    return py_items_get(source, sizeof(quire_layer_spec), get_layer, NULL, count);
}

/* ---- models ---------------------------------------------------------------- */

static const py_name cache_dtypes[] = {
    {"auto", QUIRE_CACHE_DTYPE_AUTO},
    {"fp8", QUIRE_CACHE_DTYPE_FP8},
    {"int8_per_token_head", QUIRE_CACHE_DTYPE_INT8_PER_TOKEN_HEAD},
    {"fp8_per_token_head", QUIRE_CACHE_DTYPE_FP8_PER_TOKEN_HEAD},
    {"nvfp4", QUIRE_CACHE_DTYPE_NVFP4},
    {"fp8_ds_mla", QUIRE_CACHE_DTYPE_FP8_DS_MLA},
    {NULL, 0}};

#undef U32
#undef NAMED
#define U32(name)          PY_FIELD(quire_model_params, name, PY_FIELD_U32)
#define NAMED(name, names) PY_FIELD_NAMED(quire_model_params, #name, name, PY_FIELD_NAME, names)
static const py_field model_fields[] = {
    NAMED(torch_dtype, dtypes),
    U32(num_hidden_layers),
    U32(hidden_size),
    U32(num_attention_heads),
    U32(num_key_value_heads),
    U32(head_dim),
    U32(max_position_embeddings),
    U32(sliding_window),
    PY_FIELD(quire_model_params, use_sliding_window, PY_FIELD_SWITCH),
    U32(max_window_layers),
    U32(sliding_window_pattern),
    U32(attention_chunk_size),
    U32(no_rope_layer_interval),
    U32(kv_lora_rank),
    U32(qk_rope_head_dim),
    U32(index_head_dim),
    U32(attn_layer_period),
    U32(attn_layer_offset),
    U32(mamba_expand),
    U32(mamba_d_state),
    U32(mamba_d_conv),
    U32(mamba_n_heads),
    U32(mamba_d_head),
    U32(mamba_n_groups),
    U32(mamba_chunk_size),
    U32(full_attention_interval),
    U32(linear_num_key_heads),
    U32(linear_num_value_heads),
    U32(linear_key_head_dim),
    U32(linear_value_head_dim),
    U32(linear_conv_kernel_dim),
    U32(decoder_layers),
    U32(decoder_attention_heads),
    U32(d_model),
    U32(block_size),
    NAMED(cache_dtype, cache_dtypes),
    U32(tensor_parallel_size),
    U32(max_model_len),
    NAMED(mamba_mode, mamba_modes),
    U32(mamba_block_size),
    NAMED(mamba_ssm_dtype, dtypes),
    U32(num_speculative_tokens),
    U32(kernel_block_size),
    NAMED(profile, py_profiles),
    PY_FIELDS_END};

/* What a model's params point into. */
typedef struct model_parts {
    PyObject *model_type;
    PyObject *pattern;
    py_ints layer_types;
    py_ints no_rope_layers;
    py_ints attn_layer_indices;
} model_parts;

static void model_parts_release(model_parts *parts)
{
    Py_XDECREF(parts->model_type);
    Py_XDECREF(parts->pattern);
    py_ints_release(&parts->layer_types);
    py_ints_release(&parts->no_rope_layers);
    py_ints_release(&parts->attn_layer_indices);
}

static int take_text(PyObject *dict, const char *name, PyObject **object, const char **text)
{
    *object = py_take(dict, name);
    if (*object == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (*object == Py_None)
        return 0;
    if (!PyUnicode_Check(*object))
        return PY_REFUSE(PyExc_TypeError, "%s must be a str", name);
    *text = PyUnicode_AsUTF8AndSize(*object, NULL);
    return *text != NULL ? 0 : -1;
}

static int take_ints(PyObject *dict, const char *name, py_ints *ints)
{
    PyObject *source = py_take(dict, name);
    if (source == NULL && PyErr_Occurred())
        return -1;
    int err = py_ints_get(source, 'I', name, ints);
    Py_XDECREF(source);
    return err;
}

static int model_take(PyObject *dict, quire_model_params *params, model_parts *parts)
{
    if (take_text(dict, "model_type", &parts->model_type, &params->model_type) < 0 ||
        take_text(dict, "hybrid_override_pattern", &parts->pattern,
                  &params->hybrid_override_pattern) < 0 ||
        take_ints(dict, "layer_types", &parts->layer_types) < 0 ||
        take_ints(dict, "no_rope_layers", &parts->no_rope_layers) < 0 ||
        take_ints(dict, "attn_layer_indices", &parts->attn_layer_indices) < 0 ||
        py_fields_take(model_fields, params, dict) < 0)
        return -1;
    uint32_t layers = params->num_hidden_layers;
    if ((parts->layer_types.data != NULL && parts->layer_types.count != layers) ||
        (parts->no_rope_layers.data != NULL && parts->no_rope_layers.count != layers))
        return PY_REFUSE(PyExc_ValueError,
                         "layer_types and no_rope_layers need one entry for each layer");
    params->layer_types = (const quire_layer_type *)parts->layer_types.data;
    params->no_rope_layers = parts->no_rope_layers.data;
    params->attn_layer_indices = parts->attn_layer_indices.data;
    params->num_attn_layer_indices = parts->attn_layer_indices.count;
    return py_nothing_left(dict, "a model");
}

static PyObject *make_layers(const py_state *state, const quire_model_params *params)
{
    uint32_t count = 0;
    int err = quire_model_layers(params, NULL, 0, &count);
    if (err != QUIRE_OK)
        return py_raise_refused(state, err, false);
    quire_layer_spec *layers = PyMem_Calloc((size_t)count + 1, sizeof *layers);
    if (layers == NULL)
        return PyErr_NoMemory();
    err = quire_model_layers(params, layers, count, &count);
    PyObject *list = err == QUIRE_OK ? py_list_of(count, make_layer, layers) : py_raise(state, err);
    PyMem_Free(layers);
    return list;
}

PyObject *py_model_layers(PyObject *module, PyObject *source)
{
    quire_model_params params = QUIRE_MODEL_PARAMS_INIT;
    model_parts parts;
    memset(&parts, 0, sizeof parts);
    if (!PyDict_Check(source))
        return PyErr_Format(PyExc_TypeError, "a model must be a dict");
    PyObject *dict = PyDict_Copy(source);
    PyObject *list = NULL;
    if (dict != NULL && model_take(dict, &params, &parts) == 0)
        list = make_layers(PyModule_GetState(module), &params);
    Py_XDECREF(dict);
    model_parts_release(&parts);
    return list;
}

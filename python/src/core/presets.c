/* presets.c - the models that the program knows by name, as fields of a config.json
 * (cli/model/shape.h).
 */
#include "core.h"

#include "model/shape.h"

#include <string.h>

#define SHAPE(text, name) PY_FIELD_AS(shape, text, name, PY_FIELD_U32)
static const py_field shape_fields[] = {SHAPE("num_hidden_layers", num_layers),
                                        SHAPE("hidden_size", hidden),
                                        SHAPE("num_attention_heads", num_heads),
                                        SHAPE("num_key_value_heads", num_kv_heads),
                                        SHAPE("head_dim", head_dim),
                                        SHAPE("max_position_embeddings", max_model_len),
                                        SHAPE("sliding_window", window),
                                        SHAPE("sliding_window_pattern", window_pattern),
                                        SHAPE("kv_lora_rank", kv_lora_rank),
                                        SHAPE("qk_rope_head_dim", qk_rope_head_dim),
                                        SHAPE("attention_chunk_size", chunk),
                                        SHAPE("linear_conv_kernel_dim", linear_conv),
                                        SHAPE("linear_num_key_heads", linear_key_heads),
                                        SHAPE("linear_num_value_heads", linear_value_heads),
                                        SHAPE("linear_key_head_dim", linear_key_dim),
                                        SHAPE("linear_value_head_dim", linear_value_dim),
                                        PY_FIELDS_END};

static PyObject *make_flag(const void *flags, uint32_t i)
{
    return PyLong_FromLong(((const uint8_t *)flags)[i]);
}

static PyObject *shape_dict(const shape *s)
{
    PyObject *dict = py_fields_dict(shape_fields, s);
    const char *interval = s->chunk > 0 ? "no_rope_layer_interval" : "full_attention_interval";
    if (dict != NULL &&
        (py_put(dict, "model_type", PyUnicode_FromString(s->model_type)) < 0 ||
         py_put(dict, "use_sliding_window", PyBool_FromLong(s->window > 0)) < 0 ||
         py_put(dict, interval, PyLong_FromUnsignedLong(s->full_interval)) < 0 ||
         (s->has_layer_types &&
          py_put(dict, "layer_types", py_list_of(s->num_layers, make_flag, s->layer_types)) < 0) ||
         (s->has_rope_flags &&
          py_put(dict, "no_rope_layers", py_list_of(s->num_layers, make_flag, s->rope_flags)) < 0)))
        Py_CLEAR(dict);
    return dict;
}

static PyObject *model_presets(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *dict = PyDict_New();
    for (uint32_t i = 0; dict != NULL && shape_preset(i) != NULL; i++)
        if (py_put(dict, shape_preset(i)->name, shape_dict(shape_preset(i))) < 0)
            Py_CLEAR(dict);
    return dict;
}

PyMethodDef py_preset_functions[] = {
    {"_model_presets", model_presets, METH_NOARGS,
     "_model_presets()\n--\n\nThe models that have a name: fields of their config.json."},
    {NULL, NULL, 0, NULL}};

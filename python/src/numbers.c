/* numbers.c - numbers out of dicts, by tables of fields, and what describes a cache. */
#include "numbers.h"

#include <string.h>

_Static_assert(sizeof(quire_switch) == sizeof(uint32_t), "switches are read as numbers");
_Static_assert(sizeof(quire_layer_kind) == sizeof(uint32_t), "kinds are read as numbers");

#define CACHE(field) VLLM_FIELD(quire_cache_config, field)
static const vllm_field cache_fields[] = {CACHE(num_blocks),
                                          CACHE(max_model_len),
                                          CACHE(hash_block_size),
                                          CACHE(enable_caching),
                                          CACHE(use_eagle),
                                          CACHE(dcp_world_size),
                                          CACHE(pcp_world_size),
                                          CACHE(max_encoder_tokens),
                                          CACHE(track_new_blocks),
                                          CACHE(prefix_cache_retention_interval),
                                          CACHE(num_prefill_lookahead),
                                          CACHE(max_in_flight_tokens),
                                          CACHE(mamba_shared_prefix_checkpoint),
                                          {NULL, 0}};

#define LAYER(field) VLLM_FIELD(quire_layer_spec, field)
static const vllm_field layer_fields[] = {LAYER(kind),
                                          LAYER(block_size),
                                          LAYER(num_kv_heads),
                                          LAYER(head_size),
                                          LAYER(dtype),
                                          LAYER(sliding_window),
                                          LAYER(attention_chunk_size),
                                          LAYER(sink_len),
                                          LAYER(tq_slot_size),
                                          LAYER(mamba_mode),
                                          LAYER(num_speculative_blocks),
                                          LAYER(num_prefill_checkpoint_blocks),
                                          LAYER(prefill_checkpoint_alignment),
                                          LAYER(rswa_window),
                                          {NULL, 0}};

int vllm_read_u32(PyObject *dict, const char *name, uint32_t *value)
{
    PyObject *number = PyDict_GetItemString(dict, name);
    if (number == NULL)
        return 0;
    unsigned long wide = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred())
        return -1;
    if (wide > UINT32_MAX)
        return PY_REFUSE(PyExc_OverflowError, "%s is above 2^32", name);
    *value = (uint32_t)wide;
    return 0;
}

int vllm_read_fields(PyObject *dict, const vllm_field *fields, void *target)
{
    for (const vllm_field *field = fields; field->name != NULL; field++) {
        char *at = (char *)target + field->offset;
        uint32_t value;
        memcpy(&value, at, sizeof(value));
        if (vllm_read_u32(dict, field->name, &value) < 0)
            return -1;
        memcpy(at, &value, sizeof(value));
    }
    return 0;
}

static int read_groups(PyObject *list, quire_group_config *groups, uint32_t max_groups,
                       uint32_t *num_groups)
{
    if (list == NULL || !PyList_Check(list) || PyList_Size(list) > (Py_ssize_t)max_groups)
        return PY_REFUSE(PyExc_ValueError, "groups must be a list of at most %u", max_groups);
    *num_groups = (uint32_t)PyList_Size(list);
    for (uint32_t i = 0; i < *num_groups; i++) {
        PyObject *group = PyList_GetItem(list, (Py_ssize_t)i);
        memset(&groups[i], 0, sizeof(groups[i]));
        if (!PyDict_Check(group))
            return PY_REFUSE(PyExc_TypeError, "a group must be a dict");
        if (vllm_read_fields(group, layer_fields, &groups[i].spec) < 0 ||
            vllm_read_u32(group, "is_eagle", &groups[i].is_eagle) < 0)
            return -1;
        if (groups[i].spec.kind == QUIRE_LAYER_MAMBA)
            groups[i].spec.states[0] = (quire_state){1, {1}, QUIRE_DTYPE_FLOAT32};
    }
    return 0;
}

int vllm_read_cache(PyObject *given, quire_cache_config *cache, quire_group_config *groups,
                    uint32_t max_groups)
{
    PyObject *watermark = PyDict_GetItemString(given, "watermark");
    if (vllm_read_fields(given, cache_fields, cache) < 0 ||
        read_groups(PyDict_GetItemString(given, "groups"), groups, max_groups, &cache->num_groups) <
            0)
        return -1;
    if (watermark != NULL)
        cache->watermark = PyFloat_AsDouble(watermark);
    cache->groups = groups;
    return PyErr_Occurred() ? -1 : 0;
}

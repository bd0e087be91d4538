/* config.c - from a dict of numbers (quire/vllm/config.py makes it from a VllmConfig) to the
 * configs of a quire_hasher and a quire_sched. Names that are not there keep their defaults.
 */
#include "vllm.h"

#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(quire_policy) == sizeof(uint32_t), "the policy is read as a number");
_Static_assert(sizeof(quire_profile) == sizeof(uint32_t), "profiles are read as numbers");

#define SCHED(field) VLLM_FIELD(quire_sched_config, field)
static const vllm_field sched_fields[] = {SCHED(policy),
                                          SCHED(max_num_seqs),
                                          SCHED(max_num_batched_tokens),
                                          SCHED(max_num_scheduled_tokens),
                                          SCHED(long_prefill_token_threshold),
                                          SCHED(enable_chunked_prefill),
                                          SCHED(reserve_full_sequence),
                                          SCHED(async_scheduling),
                                          SCHED(max_batches),
                                          SCHED(num_spec_tokens),
                                          SCHED(num_lookahead_tokens),
                                          SCHED(max_loras),
                                          SCHED(is_encoder_decoder),
                                          SCHED(disable_chunked_mm_input),
                                          SCHED(encoder_compute_budget),
                                          SCHED(encoder_cache_size),
                                          SCHED(mamba_block_size),
                                          SCHED(fail_on_load_error),
                                          SCHED(log_stats),
                                          SCHED(max_requests),
                                          SCHED(max_loading),
                                          SCHED(max_request_bytes),
                                          SCHED(max_encoder_items),
                                          SCHED(max_num_active_seqs),
                                          SCHED(long_prefill_token_threshold_adaptive),
                                          SCHED(num_draft_slots),
                                          SCHED(num_prefill_lookahead_tokens),
                                          SCHED(is_pooling_model),
                                          SCHED(decode_interval),
                                          SCHED(is_encoder_only),
                                          SCHED(profile),
                                          {NULL, 0}};

int vllm_read_attribute(PyObject *object, const char *name, uint64_t *value)
{
    PyObject *number = PyObject_GetAttrString(object, name);
    *value = number == NULL ? 0 : PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

int vllm_read_list(PyObject *dict, const char *name, uint32_t **numbers, uint32_t *count)
{
    PyObject *list = PyDict_GetItemString(dict, name);
    *numbers = NULL;
    *count = 0;
    if (list == NULL)
        return 0;
    if (!PyList_Check(list))
        return PY_REFUSE(PyExc_TypeError, "%s must be a list", name);
    *count = (uint32_t)PyList_Size(list);
    uint32_t *made = PyMem_Calloc((size_t)*count + 1, sizeof(*made));
    if (made == NULL)
        return PY_REFUSE_MEMORY();
    for (uint32_t i = 0; i < *count; i++)
        made[i] = (uint32_t)PyLong_AsUnsignedLong(PyList_GetItem(list, (Py_ssize_t)i));
    if (PyErr_Occurred()) {
        PyMem_Free(made);
        return -1;
    }
    *numbers = made;
    return 0;
}

static int read_hasher(PyObject *given, quire_hasher_config *hasher)
{
    PyObject *name = PyDict_GetItemString(given, "hash_algorithm");
    PyObject *none_hash = PyDict_GetItemString(given, "none_hash");
    if (name == NULL || none_hash == NULL)
        return PY_REFUSE(PyExc_ValueError, "hash_algorithm and none_hash are needed");
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    char *data;
    Py_ssize_t len;
    if (text == NULL || PyBytes_AsStringAndSize(none_hash, &data, &len) < 0)
        return -1;
    int status = quire_hash_algo_by_name(text, &hasher->algo);
    if (status != QUIRE_OK)
        return vllm_refuse(status, text);
    hasher->none_hash = (quire_bytes){data, (size_t)len};
    return vllm_read_u32(given, "hash_block_size", &hasher->block_size);
}

int vllm_read_config(PyObject *given, quire_sched_config *config, quire_hasher_config *hasher,
                     quire_group_config *groups, uint32_t max_groups)
{
    PyObject *tokens = PyDict_GetItemString(given, "max_text_tokens");
    if (vllm_read_fields(given, sched_fields, config) < 0 ||
        vllm_read_cache(given, config->cache, groups, max_groups) < 0 ||
        read_hasher(given, hasher) < 0)
        return -1;
    if (tokens != NULL)
        config->max_text_tokens = PyLong_AsUnsignedLongLong(tokens);
    config->cache->digest_bytes = (uint32_t)quire_hash_digest_bytes(hasher->algo);
    hasher->profile = config->profile;
    return PyErr_Occurred() ? -1 : 0;
}

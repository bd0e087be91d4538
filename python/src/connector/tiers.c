/* tiers.c - tiers and identities, from dicts (quire/vllm/tiers/options.py makes them). */
#include "connector.h"

#include <string.h>

int connector_read_u64(PyObject *dict, const char *name, uint64_t *value)
{
    PyObject *number = PyDict_GetItemString(dict, name);
    if (number == NULL || number == Py_None)
        return 0;
    unsigned long long wide = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred())
        return -1;
    *value = wide;
    return 0;
}

int connector_read_text(PyObject *dict, const char *name, const char **text)
{
    PyObject *value = PyDict_GetItemString(dict, name);
    if (value == NULL || value == Py_None)
        return 0;
    *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : NULL;
    if (*text == NULL && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s must be a str", name);
    return *text == NULL ? -1 : 0;
}

/* ---- tiers ----------------------------------------------------------------- */

static int read_fingerprint(PyObject *given, const unsigned char **fingerprint)
{
    PyObject *bytes = PyDict_GetItemString(given, "fingerprint");
    if (bytes == NULL || !PyBytes_Check(bytes) ||
        PyBytes_GET_SIZE(bytes) != QUIRE_FINGERPRINT_BYTES)
        return PY_REFUSE(PyExc_ValueError, "fingerprint must be %d bytes", QUIRE_FINGERPRINT_BYTES);
    *fingerprint = (const unsigned char *)PyBytes_AS_STRING(bytes);
    return 0;
}

static int open_file(PyObject *given, const quire_tier_config *common, uint64_t block_bytes,
                     quire_tier **tier)
{
    quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
    const unsigned char *fingerprint;
    if (connector_read_text(given, "path", &config.path) < 0 ||
        vllm_read_u32(given, "shared", &config.is_shared) < 0 ||
        connector_read_u64(given, "bytes", &config.capacity_bytes) < 0 ||
        vllm_read_u32(given, "checkpoint_ms", &config.checkpoint_ms) < 0 ||
        vllm_read_u32(given, "direct", (uint32_t *)(void *)&config.direct) < 0 ||
        read_fingerprint(given, &fingerprint) < 0)
        return -1;
    memcpy(config.fingerprint, fingerprint, QUIRE_FINGERPRINT_BYTES);
    config.block_bytes = (uint32_t)block_bytes;
    config.if_other = QUIRE_TIER_FILE_ANEW; /* another model's blocks are of no use here */
    int status;
    Py_BEGIN_ALLOW_THREADS status = quire_tier_file_open(&config, common, NULL, tier);
    Py_END_ALLOW_THREADS return status == QUIRE_OK ? 0 : connector_refuse(status, "file tier");
}

static int refuse_size(uint64_t block_bytes)
{
    if (block_bytes <= UINT32_MAX)
        return 0;
    return PY_REFUSE(PyExc_ValueError, "blocks of %llu bytes are too large for a tier",
                     (unsigned long long)block_bytes);
}

enum { MAX_SERVERS = 64 };

static int read_servers(PyObject *given, quire_tier_redis_config *config, const char **servers)
{
    PyObject *list = PyDict_GetItemString(given, "servers");
    Py_ssize_t count = list == NULL || !PyList_Check(list) ? 0 : PyList_GET_SIZE(list);
    if (count < 1 || count > MAX_SERVERS)
        return PY_REFUSE(PyExc_ValueError, "servers must be a list of 1..%d", MAX_SERVERS);
    for (Py_ssize_t i = 0; i < count; i++) {
        servers[i] = PyUnicode_AsUTF8(PyList_GET_ITEM(list, i));
        if (servers[i] == NULL)
            return -1;
    }
    config->servers = servers;
    config->num_servers = (uint32_t)count;
    return 0;
}

static int open_redis(PyObject *given, const quire_tier_config *common, uint64_t block_bytes,
                      quire_tier **tier)
{
    quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
    const char *servers[MAX_SERVERS];
    if (read_servers(given, &config, servers) < 0 ||
        connector_read_text(given, "prefix", &config.prefix) < 0 ||
        connector_read_text(given, "user", &config.user) < 0 ||
        connector_read_text(given, "password", &config.password) < 0 ||
        connector_read_text(given, "password_file", &config.password_file) < 0 ||
        connector_read_text(given, "tls_ca_file", &config.tls_ca_file) < 0 ||
        connector_read_text(given, "tls_cert_file", &config.tls_cert_file) < 0 ||
        connector_read_text(given, "tls_key_file", &config.tls_key_file) < 0 ||
        connector_read_text(given, "tls_server_name", &config.tls_server_name) < 0 ||
        vllm_read_u32(given, "tls", &config.tls) < 0 ||
        vllm_read_u32(given, "trust_network", &config.trust_network) < 0 ||
        vllm_read_u32(given, "connections", &config.connections) < 0 ||
        connector_read_u64(given, "ttl_ms", &config.ttl_ms) < 0 ||
        read_fingerprint(given, &config.fingerprint) < 0)
        return -1;
    if (refuse_size(block_bytes) < 0)
        return -1;
    config.max_block_bytes = (uint32_t)block_bytes;
    int status;
    Py_BEGIN_ALLOW_THREADS status = quire_tier_redis_open(&config, common, NULL, tier, NULL);
    Py_END_ALLOW_THREADS return status == QUIRE_OK ? 0 : connector_refuse(status, "redis tier");
}

static int read_credentials(PyObject *given, quire_tier_object_config *config)
{
    if (connector_read_text(given, "access_key", &config->access_key) < 0 ||
        connector_read_text(given, "secret_key", &config->secret_key) < 0 ||
        connector_read_text(given, "session_token", &config->session_token) < 0 ||
        connector_read_text(given, "credentials_file", &config->credentials_file) < 0 ||
        connector_read_text(given, "profile", &config->profile) < 0 ||
        connector_read_text(given, "credentials_uri", &config->credentials_uri) < 0)
        return -1;
    return connector_read_text(given, "credentials_token_file", &config->credentials_token_file);
}

static int open_object(PyObject *given, const quire_tier_config *common, uint64_t block_bytes,
                       quire_tier **tier)
{
    quire_tier_object_config config = QUIRE_TIER_OBJECT_CONFIG_INIT;
    if (connector_read_text(given, "endpoint", &config.endpoint) < 0 ||
        connector_read_text(given, "bucket", &config.bucket) < 0 ||
        connector_read_text(given, "region", &config.region) < 0 ||
        connector_read_text(given, "prefix", &config.prefix) < 0 ||
        connector_read_text(given, "tls_ca_file", &config.tls_ca_file) < 0 ||
        connector_read_text(given, "tls_cert_file", &config.tls_cert_file) < 0 ||
        connector_read_text(given, "tls_key_file", &config.tls_key_file) < 0 ||
        vllm_read_u32(given, "virtual_host", (uint32_t *)(void *)&config.virtual_host) < 0 ||
        vllm_read_u32(given, "sign_payload", (uint32_t *)(void *)&config.sign_payload) < 0 ||
        vllm_read_u32(given, "trust_network", &config.trust_network) < 0 ||
        vllm_read_u32(given, "connections", &config.connections) < 0 ||
        read_credentials(given, &config) < 0 || read_fingerprint(given, &config.fingerprint) < 0 ||
        refuse_size(block_bytes) < 0)
        return -1;
    config.max_block_bytes = (uint32_t)block_bytes;
    int status;
    Py_BEGIN_ALLOW_THREADS status = quire_tier_object_open(&config, common, NULL, tier, NULL);
    Py_END_ALLOW_THREADS return status == QUIRE_OK ? 0 : connector_refuse(status, "object tier");
}

typedef struct tier_kind {
    const char *name;
    int (*open)(PyObject *given, const quire_tier_config *common, uint64_t block_bytes,
                quire_tier **tier);
} tier_kind;

/* One row for each kind of tier. */
static const tier_kind tier_kinds[] = {
    {"file", open_file}, {"redis", open_redis}, {"object", open_object}, {NULL, NULL}};

int connector_open_tier(PyObject *given, const quire_tier_config *callers, uint64_t block_bytes,
                        quire_tier **tier)
{
    quire_tier_config common = *callers;
    const char *kind = NULL;
    if (!PyDict_Check(given) || connector_read_text(given, "kind", &kind) < 0 ||
        connector_read_text(given, "label", &common.label) < 0 ||
        connector_read_u64(given, "deadline_ns", &common.deadline_ns) < 0)
        return PyErr_Occurred() ? -1 : PY_REFUSE(PyExc_TypeError, "a tier must be a dict");
    for (const tier_kind *row = tier_kinds; kind != NULL && row->name != NULL; row++) {
        if (strcmp(row->name, kind) == 0)
            return row->open(given, &common, block_bytes, tier);
    }
    return PY_REFUSE(PyExc_ValueError, "there is no tier of kind \"%s\"", kind ? kind : "");
}

/* ---- identities ------------------------------------------------------------ */

typedef struct identity_text {
    const char *name;
    size_t offset;
} identity_text;

#define TEXT(field)                                                                                \
    {                                                                                              \
#field, offsetof(quire_identity, field)                                                    \
    }
static const identity_text identity_texts[] = {
    TEXT(model),  TEXT(weights_digest), TEXT(tokenizer),      TEXT(kv_dtype),  TEXT(kv_scales),
    TEXT(layout), TEXT(attention),      TEXT(hash_algorithm), TEXT(hash_seed), TEXT(tenant)};

#define NUMBER(field) VLLM_FIELD(quire_identity, field)
static const vllm_field identity_numbers[] = {NUMBER(num_layers), NUMBER(num_kv_heads),
                                              NUMBER(head_dim),   NUMBER(block_tokens),
                                              NUMBER(num_groups), NUMBER(tp_size),
                                              NUMBER(pp_size),    NUMBER(dcp_size),
                                              NUMBER(pcp_size),   {NULL, 0}};

/* Texts are str or bytes. */
static int read_identity_text(PyObject *given, const identity_text *row, quire_identity *identity)
{
    PyObject *value = PyDict_GetItemString(given, row->name);
    quire_bytes *field = (quire_bytes *)(void *)((char *)identity + row->offset);
    Py_ssize_t len = 0;
    if (value == NULL || value == Py_None)
        return 0;
    if (PyBytes_Check(value))
        *field = (quire_bytes){PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value)};
    else
        field->data = PyUnicode_AsUTF8AndSize(value, &len);
    if (field->data == NULL)
        return -1;
    if (!PyBytes_Check(value))
        field->len = (size_t)len;
    return 0;
}

PyObject *connector_fingerprint(PyObject *Py_UNUSED(module), PyObject *given)
{
    quire_identity identity = QUIRE_IDENTITY_INIT;
    unsigned char made[QUIRE_FINGERPRINT_BYTES];
    if (!PyDict_Check(given))
        return PyErr_Format(PyExc_TypeError, "an identity must be a dict");
    for (size_t i = 0; i < sizeof identity_texts / sizeof *identity_texts; i++) {
        if (read_identity_text(given, &identity_texts[i], &identity) < 0)
            return NULL;
    }
    if (vllm_read_fields(given, identity_numbers, &identity) < 0 ||
        connector_read_u64(given, "block_bytes", &identity.block_bytes) < 0)
        return NULL;
    int status = quire_fingerprint(&identity, made);
    if (status != QUIRE_OK)
        return connector_raise(status, "fingerprint");
    return PyBytes_FromStringAndSize((const char *)made, sizeof made);
}

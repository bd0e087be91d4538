/* hasher.c - vLLM's request block hasher: a callable that takes a Request and returns the
 * hashes of the full blocks that it has no hash for yet.
 *
 *      Request.block_hashes   H0 H1 H2            a new request: a chain over all of its tokens
 *      Request._all_token_ids ████████████▒▒      later: the chain goes on from the last hash
 *
 * What is out of the ordinary (prompt embeddings, token ids beyond 32 bits, a text that is no
 * UTF-8) is left to vLLM's own function, which gives the same bytes.
 */
#include "vllm.h"

#include "hash/chain.h"

#include <string.h>

#define MAX_KEYS 64 /* extra keys of one block, features of one request */

typedef struct hasher_object {
    PyObject_HEAD quire_hasher *hasher;
    quire_hash_algo algo;
    quire_profile profile;
    uint32_t block_size;
    size_t digest_bytes;
    quire_chain *chain;
    PyObject *none_hash; /* the object that hasher was made with */
    PyObject *module;    /* has NONE_HASH, which may be set anew */
    PyObject *fallback;  /* vLLM's own */
    PyObject *names[6];
} hasher_object;

enum { NAME_HASHES, NAME_TOKENS, NAME_FEATURES, NAME_LORA, NAME_SALT, NAME_EMBEDS };
static const char *const hasher_names[] = {"block_hashes", "_all_token_ids", "mm_features",
                                           "lora_request", "cache_salt",     "prompt_embeds"};

/* What a request brings beside its tokens. Owned: the objects that the texts lie in. */
typedef struct hasher_extras {
    quire_extra_keys keys;
    quire_mm_feature features[MAX_KEYS];
    PyObject *owned[MAX_KEYS + 3];
    uint32_t num_owned;
    int is_odd; /* leave it to vLLM */
} hasher_extras;

/* ---- making -------------------------------------------------------------- */

static int hasher_renew(hasher_object *self, PyObject *none_hash)
{
    char *data;
    Py_ssize_t len;
    if (PyBytes_AsStringAndSize(none_hash, &data, &len) < 0)
        return -1;
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = self->algo;
    config.block_size = self->block_size;
    config.profile = self->profile;
    config.none_hash = (quire_bytes){data, (size_t)len};
    quire_hasher *made;
    int status = quire_hasher_create(&config, NULL, &made);
    if (status != QUIRE_OK)
        return vllm_refuse(status, "block hasher");
    quire_chain *chain = PyMem_Realloc(self->chain, quire_chain_bytes(made));
    if (chain == NULL) {
        quire_hasher_destroy(made);
        return PY_REFUSE_MEMORY();
    }
    self->chain = chain;
    quire_hasher_destroy(self->hasher);
    self->hasher = made;
    Py_XSETREF(self->none_hash, Py_NewRef(none_hash));
    return 0;
}

static PyObject *hasher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name;
    unsigned int block_size;
    unsigned int profile = QUIRE_PROFILE_VLLM_0_20;
    PyObject *module;
    PyObject *fallback;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "BlockHasher takes no keyword arguments");
    if (!PyArg_ParseTuple(args, "sIOO|I", &name, &block_size, &module, &fallback, &profile))
        return NULL;
    if (profile != QUIRE_PROFILE_VLLM_0_20 && profile != QUIRE_PROFILE_VLLM_0_32)
        return PyErr_Format(PyExc_ValueError, "invalid profile %u", profile);
    quire_hash_algo algo;
    int status = quire_hash_algo_by_name(name, &algo);
    if (status != QUIRE_OK)
        return vllm_raise(status, name);
    hasher_object *self = (hasher_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->algo = algo;
    self->profile = (quire_profile)profile;
    self->block_size = block_size;
    self->digest_bytes = quire_hash_digest_bytes(algo);
    self->module = Py_NewRef(module);
    self->fallback = Py_NewRef(fallback);
    for (size_t i = 0; i < sizeof(hasher_names) / sizeof(hasher_names[0]); i++) {
        self->names[i] = PyUnicode_InternFromString(hasher_names[i]);
        if (self->names[i] == NULL) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static void hasher_dealloc(PyObject *object)
{
    hasher_object *self = (hasher_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    quire_hasher_destroy(self->hasher);
    PyMem_Free(self->chain);
    Py_XDECREF(self->none_hash);
    Py_XDECREF(self->module);
    Py_XDECREF(self->fallback);
    vllm_clear_all(self->names, sizeof self->names);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- what a request brings ----------------------------------------------- */

/* The bytes of a str, which live as long as the object: the reference is kept. None: absent. NULL:
 * an exception is raised already. */
static void extras_text(hasher_extras *extras, PyObject *text, quire_bytes *bytes)
{
    Py_ssize_t len;
    if (text == NULL)
        return;
    extras->owned[extras->num_owned++] = text;
    if (text == Py_None)
        return;
    const char *data = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &len) : NULL;
    if (data == NULL) {
        PyErr_Clear();
        extras->is_odd = 1;
        return;
    }
    *bytes = (quire_bytes){data, (size_t)len};
}

static int extras_feature(hasher_extras *extras, PyObject *feature, quire_mm_feature *made)
{
    extras_text(extras, PyObject_GetAttrString(feature, "identifier"), &made->identifier);
    PyObject *position = PyErr_Occurred() ? NULL : PyObject_GetAttrString(feature, "mm_position");
    if (position == NULL)
        return -1;
    int failed = vllm_read_attribute(position, "offset", &made->offset) < 0 ||
                 vllm_read_attribute(position, "length", &made->length) < 0;
    Py_DECREF(position);
    return failed ? -1 : 0;
}

static int extras_features(hasher_extras *extras, PyObject *list)
{
    Py_ssize_t count = PyList_Check(list) ? PyList_Size(list) : MAX_KEYS + 1;
    if (count > MAX_KEYS) {
        extras->is_odd = 1;
        return 0;
    }
    for (Py_ssize_t i = 0; i < count && !extras->is_odd; i++) {
        if (extras_feature(extras, PyList_GetItem(list, i), &extras->features[i]) < 0)
            return -1;
    }
    extras->keys.mm_features = extras->features;
    extras->keys.num_mm_features = (size_t)count;
    return 0;
}

static int hasher_read_extras(hasher_object *self, PyObject *request, hasher_extras *extras)
{
    extras->keys = (quire_extra_keys)QUIRE_EXTRA_KEYS_INIT;
    extras->num_owned = 0;
    extras->is_odd = 0;
    PyObject *embeds = PyObject_GetAttr(request, self->names[NAME_EMBEDS]);
    PyObject *features =
        embeds == NULL ? NULL : PyObject_GetAttr(request, self->names[NAME_FEATURES]);
    int failed = features == NULL || extras_features(extras, features) < 0;
    extras->is_odd |= embeds != Py_None;
    PyObject *lora = failed ? NULL : PyObject_GetAttr(request, self->names[NAME_LORA]);
    if (lora != NULL && lora != Py_None)
        extras_text(extras, PyObject_GetAttrString(lora, "lora_name"), &extras->keys.lora_name);
    if (lora != NULL && lora != Py_None && self->profile == QUIRE_PROFILE_VLLM_0_32 &&
        !PyErr_Occurred())
        extras_text(extras, PyObject_GetAttrString(lora, "lora_path"), &extras->keys.lora_path);
    if (lora != NULL && !PyErr_Occurred())
        extras_text(extras, PyObject_GetAttr(request, self->names[NAME_SALT]),
                    &extras->keys.cache_salt);
    Py_XDECREF(embeds);
    Py_XDECREF(features);
    Py_XDECREF(lora);
    return PyErr_Occurred() ? -1 : 0;
}

static void extras_release(hasher_extras *extras)
{
    while (extras->num_owned > 0)
        Py_DECREF(extras->owned[--extras->num_owned]);
}

/* ---- hashing ------------------------------------------------------------- */

/* The chain goes on where the hashes of the request end; of its features only the last one is then
 * looked at. 1: the last hash is not one of the algorithm's. */
static int hash_chain(hasher_object *self, PyObject *hashes, Py_ssize_t num_hashed,
                      const quire_token *tokens, Py_ssize_t num_blocks,
                      const quire_extra_keys *extra, unsigned char *digests)
{
    PyObject *parent = num_hashed > 0 ? PyList_GetItem(hashes, num_hashed - 1) : NULL;
    char *data = NULL;
    Py_ssize_t len = 0;
    if (num_hashed > 0 && (parent == NULL || PyBytes_AsStringAndSize(parent, &data, &len) < 0))
        return -1;
    if (num_hashed > 0 && (len == 0 || len > QUIRE_MAX_DIGEST_BYTES))
        return 1;
    quire_chain *chain = self->chain;
    qr_chain_init(self->hasher, chain);
    if (num_hashed > 0) {
        chain->num_blocks = (uint64_t)num_hashed;
        chain->parent_len = (uint32_t)len;
        memcpy(chain->parent, data, (size_t)len);
    }
    bool has_keys = extra->lora_name.data != NULL || extra->cache_salt.data != NULL ||
                    extra->num_mm_features > 0;
    size_t num_new;
    int status =
        quire_chain_append(self->hasher, chain, tokens, (size_t)num_blocks * self->block_size,
                           has_keys ? extra : NULL, digests, (size_t)num_blocks, &num_new);
    return status == QUIRE_OK ? 0 : vllm_refuse(status, "block hasher");
}

/* NONE_HASH may have been set since the last request. */
static int hasher_follow_none_hash(hasher_object *self)
{
    PyObject *none_hash = PyObject_GetAttrString(self->module, "NONE_HASH");
    if (none_hash == NULL)
        return -1;
    int failed = none_hash != self->none_hash && hasher_renew(self, none_hash) < 0;
    Py_DECREF(none_hash);
    return failed ? -1 : 0;
}

static PyObject *hash_blocks(hasher_object *self, PyObject *request, PyObject *hashes,
                             PyObject *tokens, Py_ssize_t num_hashed, Py_ssize_t num_blocks)
{
    Py_ssize_t first = num_hashed * (Py_ssize_t)self->block_size;
    Py_ssize_t count = num_blocks * (Py_ssize_t)self->block_size;
    PyObject *made = NULL;
    hasher_extras extras;
    if ((num_hashed == 0 || self->hasher == NULL) && hasher_follow_none_hash(self) < 0)
        return NULL;
    if (hasher_read_extras(self, request, &extras) < 0) {
        extras_release(&extras);
        return NULL;
    }
    quire_token *numbers =
        PyMem_Malloc((size_t)count * sizeof *numbers + (size_t)num_blocks * self->digest_bytes);
    unsigned char *digests = numbers != NULL ? (unsigned char *)(numbers + count) : NULL;
    int answer = numbers != NULL ? extras.is_odd : PY_REFUSE_MEMORY();
    if (answer == 0 && vllm_read_tokens(tokens, first, count, numbers) < 0) {
        PyErr_Clear(); /* one of them does not fit */
        answer = 1;
    }
    if (answer == 0)
        answer = hash_chain(self, hashes, num_hashed, numbers, num_blocks, &extras.keys, digests);
    if (answer == 1)
        made = PyObject_CallFunctionObjArgs(self->fallback, request, NULL);
    if (answer == 0)
        made = py_hash_list(digests, self->digest_bytes, (size_t)num_blocks);
    PyMem_Free(numbers);
    extras_release(&extras);
    return made;
}

static PyObject *hasher_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    hasher_object *self = (hasher_object *)object;
    PyObject *request;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "a block hasher takes one request");
    if (!PyArg_ParseTuple(args, "O", &request))
        return NULL;
    PyObject *hashes = PyObject_GetAttr(request, self->names[NAME_HASHES]);
    if (hashes == NULL)
        return NULL;
    PyObject *tokens = PyObject_GetAttr(request, self->names[NAME_TOKENS]);
    PyObject *made = NULL;
    if (tokens != NULL && (!PyList_Check(hashes) || !PyList_Check(tokens))) {
        PyErr_SetString(PyExc_TypeError, "block_hashes and _all_token_ids must be lists");
    } else if (tokens != NULL) {
        Py_ssize_t num_hashed = PyList_Size(hashes);
        Py_ssize_t num_blocks = PyList_Size(tokens) / (Py_ssize_t)self->block_size - num_hashed;
        made = num_blocks <= 0 ? PyList_New(0)
                               : hash_blocks(self, request, hashes, tokens, num_hashed, num_blocks);
    }
    Py_DECREF(hashes);
    Py_XDECREF(tokens);
    return made;
}

static PyType_Slot hasher_slots[] = {
    {Py_tp_new, (void *)hasher_new},
    {Py_tp_dealloc, (void *)hasher_dealloc},
    {Py_tp_call, (void *)hasher_call},
    {Py_tp_doc, "BlockHasher(algorithm, block_size, module, fallback, profile): a callable that "
                "returns the hashes of a Request's new full blocks."},
    {0, NULL}};
PyType_Spec vllm_hasher_spec = {.name = "quire._vllm.BlockHasher",
                                .basicsize = (int)sizeof(hasher_object),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = hasher_slots};

/* hashing.c - Hasher and Chain: from tokens to the names of KV blocks (quire/hash.h).
 *
 *      Hasher   how to hash; hash() hashes the full blocks of a whole prompt at once
 *      Chain    one request: append() hashes the blocks that became full, nothing twice
 */
#include "core.h"

#include <string.h>

typedef struct hasher_object {
    py_handle base; /* a quire_hasher */
    quire_hash_algo algo;
    uint32_t block_size;
} hasher_object;

/* A request's extra keys. The texts live in objects that `keep` holds; equal objects have equal
 * pointers, which is what the pickled algorithms look at. */
typedef struct extra_keys {
    quire_extra_keys keys;
    quire_mm_feature *features;
    PyObject *keep;   /* a list */
    Py_buffer embeds; /* all zero where there are none */
} extra_keys;

typedef struct chain_object {
    PyObject ob_base;
    PyObject *owner;    /* the Hasher */
    quire_chain *chain; /* in memory */
    void *memory;
    extra_keys extra;
} chain_object;

/* ---- extra keys ------------------------------------------------------------ */

static void extra_release(extra_keys *extra)
{
    PyMem_Free(extra->features);
    Py_XDECREF(extra->keep);
    PyBuffer_Release(&extra->embeds);
    memset(extra, 0, sizeof *extra);
}

static int get_feature(void *user, PyObject *source, void *out)
{
    quire_mm_feature *feature = out;
    PyObject *tuple = PySequence_Tuple(source);
    PyObject *identifier;
    unsigned long long offset;
    unsigned long long length;
    int err = -1;
    if (tuple != NULL && PyArg_ParseTuple(tuple, "OKK;a feature is (identifier, offset, length)",
                                          &identifier, &offset, &length)) {
        feature->offset = offset;
        feature->length = length;
        err = py_bytes_keep(((extra_keys *)user)->keep, identifier, "identifier",
                            &feature->identifier);
    }
    Py_XDECREF(tuple);
    return err;
}

static int get_features(extra_keys *extra, PyObject *source)
{
    uint32_t count = 0;
    extra->features = py_items_get(source, sizeof *extra->features, get_feature, extra, &count);
    extra->keys.mm_features = extra->features;
    extra->keys.num_mm_features = count;
    return extra->features != NULL ? 0 : -1;
}

/* Rows of embeddings: any buffer of two dimensions, a row for each token. */
static int get_embeds(extra_keys *extra, PyObject *source)
{
    if (PyObject_GetBuffer(source, &extra->embeds, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    const Py_buffer *view = &extra->embeds;
    if (view->ndim != 2 || view->shape[0] == 0)
        return PY_REFUSE(PyExc_TypeError, "prompt_embeds must have two dimensions: tokens, bytes");
    extra->keys.prompt_embeds = view->buf;
    extra->keys.num_prompt_embeds = (uint64_t)view->shape[0];
    extra->keys.prompt_embed_bytes = (size_t)(view->len / view->shape[0]);
    return 0;
}

/* sources: lora_name, cache_salt, mm_features, prompt_embeds, lora_path. */
static int extra_get(extra_keys *extra, PyObject *const *sources)
{
    memset(extra, 0, sizeof *extra);
    extra->keys.size = sizeof extra->keys;
    extra->keep = PyList_New(0);
    if (extra->keep != NULL &&
        py_bytes_keep(extra->keep, sources[0], "lora_name", &extra->keys.lora_name) == 0 &&
        py_bytes_keep(extra->keep, sources[1], "cache_salt", &extra->keys.cache_salt) == 0 &&
        (sources[2] == Py_None || get_features(extra, sources[2]) == 0) &&
        (sources[3] == Py_None || get_embeds(extra, sources[3]) == 0) &&
        py_bytes_keep(extra->keep, sources[4], "lora_path", &extra->keys.lora_path) == 0)
        return 0;
    extra_release(extra);
    return -1;
}

/* ---- making ---------------------------------------------------------------- */

/* The one field of a hasher's config that a scheduler has not under the same name. */
static const py_field hasher_fields[] = {
    PY_FIELD(quire_hasher_config, max_extra_bytes, PY_FIELD_U32), PY_FIELDS_END};

static int get_algo(const py_state *state, PyObject *source, quire_hash_algo *algo)
{
    if (source == NULL || source == Py_None)
        return 0;
    const char *name = PyUnicode_Check(source) ? PyUnicode_AsUTF8AndSize(source, NULL) : NULL;
    if (name == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "the hash algorithm must be a str");
        return -1;
    }
    int err = quire_hash_algo_by_name(name, algo);
    if (err != QUIRE_OK) {
        py_raise(state, err);
        PyErr_Format(PyErr_Occurred(), "no hash algorithm \"%s\" (HASH_ALGORITHMS lists them)",
                     name);
    }
    return err == QUIRE_OK ? 0 : -1;
}

static int make_hasher(const py_state *state, quire_hasher_config *config, PyObject *algo,
                       PyObject *seed, PyObject *none_hash, quire_hasher **hasher)
{
    if (get_algo(state, algo, &config->algo) < 0 || py_bytes_get(seed, "seed", &config->seed) < 0 ||
        py_bytes_get(none_hash, "none_hash", &config->none_hash) < 0)
        return -1;
    int err = quire_hasher_create(config, NULL, hasher);
    if (err != QUIRE_OK)
        py_raise_refused(state, err, false);
    return err == QUIRE_OK ? 0 : -1;
}

int py_hasher_take(const py_state *state, PyObject *keywords, uint32_t block_size,
                   quire_hasher **hasher, uint32_t *digest_bytes)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.block_size = block_size;
    PyObject *algo = py_take(keywords, "prefix_caching_hash_algo");
    PyObject *seed = py_take(keywords, "seed");
    PyObject *none_hash = py_take(keywords, "none_hash");
    int err = PyErr_Occurred() ? -1 : 0;
    if (err == 0)
        err = py_fields_take(hasher_fields, &config, keywords);
    if (err == 0)
        err = make_hasher(state, &config, algo, seed, none_hash, hasher);
    *digest_bytes = (uint32_t)quire_hash_digest_bytes(config.algo);
    Py_XDECREF(algo);
    Py_XDECREF(seed);
    Py_XDECREF(none_hash);
    return err;
}

static PyObject *hasher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"algo",    "block_size",      "seed", "none_hash",
                            "profile", "max_extra_bytes", NULL};
    const py_state *state = PyType_GetModuleState(type);
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    PyObject *algo = NULL;
    PyObject *seed = NULL;
    PyObject *none_hash = NULL;
    PyObject *profile = NULL;
    unsigned int block_size = 16;
    int value = QUIRE_PROFILE_DEFAULT;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OI$OOOI:Hasher", names, &algo, &block_size,
                                     &seed, &none_hash, &profile, &config.max_extra_bytes))
        return NULL;
    if (profile != NULL && py_name_value(py_profiles, profile, "profile", &value) < 0)
        return NULL;
    config.block_size = block_size;
    config.profile = (quire_profile)value;
    quire_hasher *made;
    if (make_hasher(state, &config, algo, seed, none_hash, &made) < 0)
        return NULL;
    hasher_object *self = py_new(type);
    if (self == NULL) {
        quire_hasher_destroy(made);
        return NULL;
    }
    self->base.handle = made;
    self->algo = config.algo;
    self->block_size = block_size > 0 ? block_size : 16;
    return (PyObject *)self;
}

PY_CLOSE(hasher, quire_hasher_destroy)

/* ---- hashing --------------------------------------------------------------- */

/* Appends to a chain and gives the new hashes, as a list or as one bytes object. object: the
 * Hasher. */
static PyObject *append_tokens(PyObject *object, quire_chain *chain, const py_ints *tokens,
                               const quire_extra_keys *extra, bool is_joined)
{
    const hasher_object *self = (hasher_object *)object;
    size_t digest = quire_hash_digest_bytes(self->algo);
    uint64_t before = quire_chain_get_num_tokens(chain);
    uint64_t total = before + tokens->count;
    size_t capacity = (size_t)(total / self->block_size - before / self->block_size);
    size_t count = 0;
    PY_OPEN(quire_hasher, hasher);
    PyObject *joined = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(capacity * digest));
    if (joined == NULL)
        return NULL;
    char *digests = PyBytes_AsString(joined);
    int err = quire_chain_append(hasher, chain, tokens->data, tokens->count, extra, digests,
                                 capacity, &count);
    if (err == QUIRE_OK && is_joined)
        return joined;
    PyObject *list = err == QUIRE_OK ? py_hash_list(digests, digest, count) : py_fail(object, err);
    Py_DECREF(joined);
    return list;
}

/* Its memory, to be freed; NULL and an exception. */
static void *start_chain(PyObject *object, quire_chain **chain)
{
    PY_OPEN(quire_hasher, hasher);
    size_t bytes = quire_chain_bytes(hasher);
    void *memory = PyMem_Malloc(bytes);
    if (memory == NULL)
        return PyErr_NoMemory();
    int err = quire_chain_init(hasher, memory, bytes, chain);
    if (err == QUIRE_OK)
        return memory;
    PyMem_Free(memory);
    return py_fail(object, err);
}

static PyObject *hash_once(PyObject *object, const py_ints *tokens, const quire_extra_keys *extra,
                           bool is_joined)
{
    quire_chain *chain;
    void *memory = start_chain(object, &chain);
    if (memory == NULL)
        return NULL;
    PyObject *hashes = append_tokens(object, chain, tokens, extra, is_joined);
    PyMem_Free(memory);
    return hashes;
}

/* The keywords that hash and chain share, in the order of `sources`. */
enum { NUM_EXTRA = 5 };

static PyObject *hasher_hash(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"tokens",        "lora_name", "cache_salt", "mm_features",
                            "prompt_embeds", "lora_path", "joined",     NULL};
    PyObject *source;
    PyObject *e[NUM_EXTRA] = {Py_None, Py_None, Py_None, Py_None, Py_None};
    int is_joined = 0;
    py_ints tokens;
    extra_keys extra;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOOOp:hash", names, &source, &e[0], &e[1],
                                     &e[2], &e[3], &e[4], &is_joined) ||
        extra_get(&extra, e) < 0)
        return NULL;
    PyObject *hashes = NULL;
    if (py_ints_get(source, 'i', "tokens", &tokens) == 0) {
        hashes = hash_once(object, &tokens, &extra.keys, is_joined);
        py_ints_release(&tokens);
    }
    extra_release(&extra);
    return hashes;
}

/* ---- one block ------------------------------------------------------------- */

static const py_name key_kinds[] = {
    {"lora_name", QUIRE_KEY_LORA_NAME},   {"mm_feature", QUIRE_KEY_MM_FEATURE},
    {"cache_salt", QUIRE_KEY_CACHE_SALT}, {"prompt_embeds", QUIRE_KEY_PROMPT_EMBEDS},
    {"lora_path", QUIRE_KEY_LORA_PATH},   {NULL, 0}};

static int get_key(PyObject *source, quire_extra_key *out)
{
    PyObject *kind;
    PyObject *value;
    long long offset = 0;
    int number;
    if (!PyTuple_Check(source))
        return PY_REFUSE(PyExc_TypeError,
                         "a key is a tuple: (kind, value) or (kind, value, offset)");
    if (!PyArg_ParseTuple(source, "OO|L", &kind, &value, &offset) ||
        py_name_value(key_kinds, kind, "kind", &number) < 0 ||
        py_bytes_get(value, "value", &out->value) < 0)
        return -1;
    out->kind = (quire_extra_key_kind)number;
    out->offset = offset;
    return 0;
}

enum { MAX_KEYS = 256 };

static PyObject *hash_one(PyObject *object, PyObject *parent, const py_ints *tokens, PyObject *keys)
{
    quire_extra_key list[MAX_KEYS];
    quire_bytes before;
    char digest[QUIRE_MAX_DIGEST_BYTES];
    Py_ssize_t count = PyTuple_Size(keys);
    if (count > MAX_KEYS)
        return PyErr_Format(PyExc_ValueError, "at most %d keys", MAX_KEYS);
    for (Py_ssize_t i = 0; i < count; i++)
        if (get_key(PyTuple_GetItem(keys, i), &list[i]) < 0)
            return NULL;
    if (py_bytes_get(parent, "parent", &before) < 0)
        return NULL;
    PY_OPEN(quire_hasher, hasher);
    PY_CALL(quire_hasher_hash_block64(hasher, before, tokens->data, tokens->count, list,
                                      (size_t)count, digest));
    return PyBytes_FromStringAndSize(
        digest, (Py_ssize_t)quire_hash_digest_bytes(((hasher_object *)object)->algo));
}

static PyObject *hasher_hash_block(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"parent", "tokens", "keys", NULL};
    PyObject *parent;
    PyObject *source;
    PyObject *given = NULL;
    py_ints tokens;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:hash_block", names, &parent, &source,
                                     &given))
        return NULL;
    PyObject *keys = given != NULL ? PySequence_Tuple(given) : PyTuple_New(0);
    PyObject *hash = NULL;
    if (keys != NULL && py_ints_get(source, 'q', "tokens", &tokens) == 0) {
        hash = hash_one(object, parent, &tokens, keys);
        py_ints_release(&tokens);
    }
    Py_XDECREF(keys);
    return hash;
}

/* ---- chain ----------------------------------------------------------------- */

static PyObject *hasher_chain(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"lora_name",     "cache_salt", "mm_features",
                            "prompt_embeds", "lora_path",  NULL};
    PyObject *e[NUM_EXTRA] = {Py_None, Py_None, Py_None, Py_None, Py_None};
    extra_keys extra;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOOO:chain", names, &e[0], &e[1], &e[2],
                                     &e[3], &e[4]) ||
        extra_get(&extra, e) < 0)
        return NULL;
    chain_object *made = py_new((PyTypeObject *)py_state_of(object)->chain_type);
    if (made == NULL) {
        extra_release(&extra);
        return NULL;
    }
    made->owner = Py_NewRef(object);
    made->extra = extra;
    made->memory = start_chain(object, &made->chain);
    if (made->memory == NULL)
        Py_CLEAR(made);
    return (PyObject *)made;
}

static void chain_dealloc(PyObject *object)
{
    chain_object *self = (chain_object *)object;
    PyMem_Free(self->memory);
    extra_release(&self->extra);
    Py_XDECREF(self->owner);
    py_delete(object);
}

static PyObject *chain_append(PyObject *object, PyObject *source)
{
    chain_object *self = (chain_object *)object;
    py_ints tokens;
    if (py_ints_get(source, 'i', "tokens", &tokens) < 0)
        return NULL;
    PyObject *hashes = append_tokens(self->owner, self->chain, &tokens, &self->extra.keys, false);
    py_ints_release(&tokens);
    return hashes;
}

static PyObject *chain_num_tokens(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(quire_chain_get_num_tokens(((chain_object *)object)->chain));
}

static PyObject *chain_num_blocks(PyObject *object, void *Py_UNUSED(closure))
{
    const chain_object *self = (chain_object *)object;
    uint32_t block_size = ((const hasher_object *)self->owner)->block_size;
    return PyLong_FromUnsignedLongLong(quire_chain_get_num_tokens(self->chain) / block_size);
}

/* ---- types ----------------------------------------------------------------- */

static PyObject *hasher_algo(PyObject *object, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(quire_hash_algo_name(((hasher_object *)object)->algo));
}

static PyObject *hasher_digest_size(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(quire_hash_digest_bytes(((hasher_object *)object)->algo));
}

static PyObject *hasher_none_hash(PyObject *object, void *Py_UNUSED(closure))
{
    PY_OPEN(quire_hasher, hasher);
    quire_bytes hash = quire_hasher_get_info(hasher).none_hash;
    return PyBytes_FromStringAndSize(hash.data, (Py_ssize_t)hash.len);
}

static PyMethodDef hasher_methods[] = {
    {"hash", PY_KEYWORDS(hasher_hash),
     "hash(tokens, *, lora_name=None, cache_salt=None, mm_features=None, prompt_embeds=None, "
     "lora_path=None, joined=False)\n--\n\nThe hashes of all full blocks of a prompt, as a list of "
     "bytes; joined: "
     "as one bytes object."},
    {"hash_block", PY_KEYWORDS(hasher_hash_block),
     "hash_block(parent, tokens, keys=())\n--\n\nThe hash of one block; parent None for the "
     "first."},
    {"chain", PY_KEYWORDS(hasher_chain),
     "chain(*, lora_name=None, cache_salt=None, mm_features=None, prompt_embeds=None, "
     "lora_path=None)\n--\n\nA new Chain: the running hash of one request."},
    {"close", hasher_close, METH_NOARGS, "close()\n--\n\nForgets the secret and frees the memory."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef hasher_getset[] = {
    {"algo", hasher_algo, NULL, "The algorithm's name.", NULL},
    {"block_size", py_get_u32, NULL, "Tokens in a block.", PY_OFFSET(hasher_object, block_size)},
    {"digest_size", hasher_digest_size, NULL, "Bytes of a hash.", NULL},
    {"none_hash", hasher_none_hash, NULL, "What stands for the parent of a first block.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PY_TYPE(hasher, "quire.Hasher",
        "Hasher(algo='sha256', block_size=16, *, seed=None, none_hash=None, "
        "profile='default', max_extra_bytes=0)\n--\n\n"
        "Hashes blocks of tokens as vLLM does. Without seed and none_hash: at random.")

static PyMethodDef chain_methods[] = {
    {"append", chain_append, METH_O,
     "append(tokens)\n--\n\nAppends tokens; the hashes of the blocks that became full."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef chain_getset[] = {
    {"num_tokens", chain_num_tokens, NULL, "Tokens so far.", NULL},
    {"num_blocks", chain_num_blocks, NULL, "Blocks that are hashed.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PY_TYPE_OF(chain, chain_object, "quire.Chain", Py_TPFLAGS_DISALLOW_INSTANTIATION,
           "The running hash of one request: Hasher.chain() makes it.",
           {Py_tp_dealloc, (void *)chain_dealloc})

/* keys.c - vLLM's block hashes as keys of a quire_pool.
 *
 *      block_hash = hash (any bytes) + group (4 bytes, big-endian)
 *
 * A quire_pool takes hashes whose length is a multiple of 16, up to a limit given when it is made.
 * BlockPool is not told how long hashes will be, and joins several where a block is larger
 * than hash_block_size. So a pool of our own keeps 16 and 32 bytes as they are, and of any other
 * hash 48 bytes:
 *
 *      | length, 8 bytes | zero, 8 bytes | SHA-256, 32 bytes |
 *
 * A hash of 48 bytes is no exception: what has 48 bytes in such a pool was made here. Of somebody
 * else's pool (a scheduler's, a cache's) the limit is known, and hashes are taken as they are.
 */
#include "pool.h"

#include "hash/digest.h"

#include <string.h>

static int is_kept(const vllm_pool *pool, size_t len)
{
    if (pool->owner == NULL && len == VLLM_KEY_BYTES)
        return 0;
    return len > 0 && len % QR_HASH_UNIT == 0 && len <= pool->pool->map.stride;
}

static void digest_key(const void *hash, size_t len, unsigned char *room)
{
    uint64_t length = len;
    memset(room, 0, VLLM_KEY_BYTES - QR_SHA256_BYTES);
    memcpy(room, &length, sizeof length);
    qr_sha256(hash, len, room + VLLM_KEY_BYTES - QR_SHA256_BYTES);
}

int vllm_key_of(const vllm_pool *pool, const void *hash, size_t len, uint32_t group_id,
                vllm_key *key)
{
    if (!pool->pool->enable_caching || group_id > QR_MAX_GROUP_ID)
        return 0;
    if (is_kept(pool, len)) {
        key->key = (qr_key){hash, (uint32_t)len, group_id};
        return 1;
    }
    if (pool->owner != NULL)
        return 0;
    digest_key(hash, len, key->room);
    key->key = (qr_key){key->room, VLLM_KEY_BYTES, group_id};
    return 1;
}

int vllm_key_parse(const vllm_pool *pool, PyObject *bytes, vllm_key *key)
{
    char *data;
    Py_ssize_t len;
    if (!PyBytes_Check(bytes)) {
        PyErr_Format(PyExc_TypeError, "a key of the prefix cache must be bytes, not %R", bytes);
        return -1;
    }
    if (PyBytes_AsStringAndSize(bytes, &data, &len) < 0)
        return -1;
    if (len < VLLM_GROUP_BYTES)
        return 0;
    const unsigned char *group = (unsigned char *)data + len - VLLM_GROUP_BYTES;
    uint32_t group_id = (uint32_t)group[0] << 24 | (uint32_t)group[1] << 16 |
                        (uint32_t)group[2] << 8 | (uint32_t)group[3];
    return vllm_key_of(pool, data, (size_t)len - VLLM_GROUP_BYTES, group_id, key);
}

PyObject *vllm_key_bytes(const void *hash, size_t len, uint32_t group_id)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(len + VLLM_GROUP_BYTES));
    if (bytes == NULL)
        return NULL;
    unsigned char *data = (unsigned char *)PyBytes_AsString(bytes);
    memcpy(data, hash, len);
    for (uint32_t i = 0; i < VLLM_GROUP_BYTES; i++)
        data[len + i] = (unsigned char)(group_id >> (24 - 8 * i));
    return bytes;
}

/* ---- hashes of a request ---------------------------------------------------- */

/* Borrowed: hashes is a list or a tuple. */
static PyObject *item_at(PyObject *hashes, size_t i)
{
    return PyList_Check(hashes) ? PyList_GetItem(hashes, (Py_ssize_t)i)
                                : PyTuple_GetItem(hashes, (Py_ssize_t)i);
}

static int hash_bytes(PyObject *hash, char **data, Py_ssize_t *len)
{
    if (hash == NULL)
        return -1;
    if (!PyBytes_Check(hash)) {
        PyErr_Format(PyExc_TypeError, "a block hash must be bytes, not %R", hash);
        return -1;
    }
    return PyBytes_AsStringAndSize(hash, data, len);
}

PyObject *vllm_hash_at(PyObject *hashes, uint32_t scale, uint32_t i)
{
    PyObject *joined = NULL;
    for (uint32_t j = 0; j < scale; j++) {
        PyObject *part = PySequence_GetItem(hashes, (Py_ssize_t)i * scale + j);
        if (part != NULL && !PyBytes_Check(part)) {
            PyErr_Format(PyExc_TypeError, "a block hash must be bytes, not %R", part);
            Py_CLEAR(part);
        }
        if (part == NULL) {
            Py_XDECREF(joined);
            return NULL;
        }
        if (joined == NULL) {
            joined = part;
            continue;
        }
        PyBytes_ConcatAndDel(&joined, part);
        if (joined == NULL)
            return NULL;
    }
    return joined;
}

/* Hashes that are kept as they are: scale of them make a key of `len` bytes. */
static int copy_keys(PyObject *hashes, uint32_t scale, size_t first, size_t count, size_t len,
                     unsigned char *keys)
{
    size_t part = len / scale;
    for (size_t i = 0; i < count * scale; i++) {
        char *data;
        Py_ssize_t got;
        if (hash_bytes(item_at(hashes, first * scale + i), &data, &got) < 0)
            return -1;
        if ((size_t)got != part) {
            PyErr_Format(PyExc_ValueError,
                         "hashes of one request must have one length; here are %zd and %zu bytes",
                         got, part);
            return -1;
        }
        memcpy(keys + i * part, data, part);
    }
    return 0;
}

static int digest_keys(const vllm_pool *pool, PyObject *hashes, uint32_t scale, uint32_t first,
                       uint32_t count, unsigned char *keys)
{
    for (uint32_t i = 0; i < count; i++) {
        char *data;
        Py_ssize_t len;
        PyObject *joined = vllm_hash_at(hashes, scale, first + i);
        if (hash_bytes(joined, &data, &len) < 0) {
            Py_XDECREF(joined);
            return -1;
        }
        int kept = is_kept(pool, (size_t)len);
        if (!kept)
            digest_key(data, (size_t)len, keys + (size_t)i * VLLM_KEY_BYTES);
        Py_DECREF(joined);
        if (kept) {
            PyErr_Format(PyExc_ValueError,
                         "hashes of one request must have one length; %zd bytes is not that of the "
                         "first",
                         len);
            return -1;
        }
    }
    return 0;
}

unsigned char *vllm_pool_keys(PyObject *self, PyObject *given, uint32_t scale, uint32_t first,
                              uint32_t count, uint32_t *len)
{
    const vllm_pool *pool = (vllm_pool *)self;
    char *data;
    Py_ssize_t part = 0;
    if (vllm_check_open(pool) < 0)
        return NULL;
    PyObject *hashes = PySequence_Fast(given, "block hashes must be a sequence of bytes");
    if (hashes == NULL)
        return NULL;
    unsigned char *keys = NULL;
    if (count > 0 && hash_bytes(item_at(hashes, (size_t)first * scale), &data, &part) < 0)
        goto done;
    size_t joined = (size_t)part * scale;
    int kept = is_kept(pool, joined);
    if (count > 0 && !kept && pool->owner != NULL) {
        PyErr_Format(PyExc_ValueError, "a hash of %zu bytes does not fit this pool, which takes %u",
                     joined, (unsigned int)pool->pool->map.stride);
        goto done;
    }
    *len = kept ? (uint32_t)joined : VLLM_KEY_BYTES;
    keys = PyMem_Malloc(count == 0 ? 1 : (size_t)count * *len);
    if (keys == NULL)
        PyErr_NoMemory();
    else if ((kept ? copy_keys(hashes, scale, first, count, joined, keys)
                   : digest_keys(pool, hashes, scale, first, count, keys)) < 0) {
        PyMem_Free(keys);
        keys = NULL;
    }
done:
    Py_DECREF(hashes);
    return keys;
}

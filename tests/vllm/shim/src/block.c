/* block.c - KVCacheBlock: a block of a pool, or one of no pool with a state of its own.
 *
 *                    of a pool                        of no pool
 *      block_id      its number                       as given
 *      ref_cnt       users of the record              own
 *      block_hash    key of the record, or the stamp  the stamp
 *      prev, next    links of the record              links of the stand-alone queue that has it
 *
 * In vLLM a block's hash and the map's entry are written apart. Here the key of a record is both:
 * reset_hash of a block that can be found also takes it from the map.
 */
#include "pool.h"

#include <string.h>
#include <structmember.h>

PyTypeObject *vllm_block_type;

int vllm_check_open(const vllm_pool *pool)
{
    if (pool->pool != NULL)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "the BlockPool is closed, or was never initialised");
    return -1;
}

static qr_block *record_of(const vllm_block *block)
{
    return &block->pool->pool->queue.blocks[block->id];
}

static int is_real_of_pool(const vllm_block *block)
{
    return block->pool != NULL && block->kind == VLLM_BLOCK_REAL;
}

vllm_block *vllm_block_make(int64_t id, int kind, int is_null)
{
    PyObject *number = PyLong_FromLongLong(id);
    if (number == NULL)
        return NULL;
    vllm_block *block = (vllm_block *)PyType_GenericAlloc(vllm_block_type, 0);
    if (block == NULL) {
        Py_DECREF(number);
        return NULL;
    }
    block->id = id;
    block->shown_id = number;
    block->shown_null = PyBool_FromLong(is_null);
    block->kind = (uint8_t)kind;
    block->is_null = is_null != 0;
    return block;
}

/* ---- hash ------------------------------------------------------------------ */

void vllm_block_stamp(vllm_block *block, PyObject *hash)
{
    PyObject *old = block->hash;
    Py_XINCREF(hash);
    block->hash = hash;
    block->is_stamp = hash != NULL;
    Py_XDECREF(old);
}

/* Whether the bytes that are kept are those from which the record's key was made. */
static int is_original(const vllm_block *block, const qr_block *record)
{
    vllm_key made;
    if (block->hash == NULL || vllm_key_parse(block->pool, block->hash, &made) <= 0)
        return 0;
    return made.key.len == qr_block_key_len(record) && made.key.group_id == record->group_id &&
           memcmp(made.key.hash, qr_map_hash_of(&block->pool->pool->map, (uint32_t)block->id),
                  made.key.len) == 0;
}

PyObject *vllm_block_hash(const vllm_block *block)
{
    PyObject *shown = block->is_stamp ? block->hash : Py_None;
    if (is_real_of_pool(block) && qr_block_has_key(record_of(block))) {
        const qr_block *record = record_of(block);
        uint32_t len = qr_block_key_len(record);
        int is_digest = block->pool->owner == NULL && len == VLLM_KEY_BYTES;
        if (!is_digest || !is_original(block, record))
            return vllm_key_bytes(qr_map_hash_of(&block->pool->pool->map, (uint32_t)block->id), len,
                                  record->group_id);
        shown = block->hash;
    }
    Py_INCREF(shown);
    return shown;
}

static PyObject *block_get_hash(PyObject *self, void *unused)
{
    (void)unused;
    return vllm_block_hash((vllm_block *)self);
}

int vllm_block_forget(vllm_block *block)
{
    if (is_real_of_pool(block) && qr_block_has_key(record_of(block))) {
        quire_pool *pool = block->pool->pool;
        quire_block id = (quire_block)block->id;
        void (*on_event)(void *, const quire_event *) = pool->on_event;
        pool->on_event = NULL;
        int status = quire_pool_evict_blocks(pool, &id, 1);
        pool->on_event = on_event;
        if (status != QUIRE_OK) {
            vllm_raise(status, "reset_hash");
            return -1;
        }
    }
    vllm_block_stamp(block, NULL);
    return 0;
}

static int write_hash(vllm_block *block, PyObject *value)
{
    if (value == NULL || value == Py_None)
        return vllm_block_forget(block);
    if (!PyBytes_Check(value)) {
        PyErr_Format(PyExc_TypeError, "block_hash must be bytes or None, not %R", value);
        return -1;
    }
    if (block->kind != VLLM_BLOCK_REAL) {
        PyErr_SetString(PyExc_ValueError, "an end of a free queue has no block_hash");
        return -1;
    }
    if (is_real_of_pool(block) && qr_block_has_key(record_of(block))) {
        PyErr_Format(PyExc_ValueError,
                     "block %lld is in the prefix cache under another hash; evict it first",
                     (long long)block->id);
        return -1;
    }
    vllm_block_stamp(block, value);
    return 0;
}

static int block_set_hash(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    PyObject *old = vllm_block_hash((vllm_block *)self);
    if (old == NULL)
        return -1;
    int has_hash = old != Py_None;
    Py_DECREF(old);
    if (has_hash) {
        PyErr_Format(PyExc_AssertionError, "block %lld has a hash already; reset_hash() it first",
                     (long long)((vllm_block *)self)->id);
        return -1;
    }
    return write_hash((vllm_block *)self, value);
}

static int block_set_raw_hash(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    return write_hash((vllm_block *)self, value);
}

static PyObject *block_reset_hash(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (vllm_block_forget((vllm_block *)self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- users ----------------------------------------------------------------- */

static int64_t shown_users(const vllm_block *block)
{
    if (!is_real_of_pool(block))
        return block->ref_cnt;
    if (block->is_null)
        return block->pool->null_users;
    return (int64_t)record_of(block)->ref_cnt - block->is_loose;
}

void vllm_block_detach(vllm_block *block)
{
    if (block->pool == NULL)
        return;
    PyObject *hash = vllm_block_hash(block);
    if (hash == NULL)
        PyErr_Clear();
    block->ref_cnt = shown_users(block);
    block->pool = NULL;
    vllm_block_stamp(block, hash == Py_None ? NULL : hash);
    Py_XDECREF(hash);
    block->is_loose = 0;
}

static PyObject *block_get_users(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(shown_users((vllm_block *)self));
}

/* A block of a pool that is out of the free queue may get any number of users; with none it is
 * loose, until the queue takes it back. */
static int write_users(vllm_block *block, long long users)
{
    qr_block *record = record_of(block);
    if (users < 0 || users > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "block %lld cannot have %lld users", (long long)block->id,
                     users);
        return -1;
    }
    if (record->ref_cnt == 0 && users > 0) {
        PyErr_Format(PyExc_ValueError,
                     "block %lld is in the free queue and cannot get users by writing ref_cnt; "
                     "touch() it, or get_new_blocks()",
                     (long long)block->id);
        return -1;
    }
    if (record->ref_cnt == 0)
        return 0;
    uint8_t is_loose = users == 0;
    block->pool->num_loose += is_loose;
    block->pool->num_loose -= block->is_loose;
    block->is_loose = is_loose;
    record->ref_cnt = is_loose ? 1 : (uint32_t)users;
    return 0;
}

static int block_set_users(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    vllm_block *block = (vllm_block *)self;
    long long users = value == NULL ? -1 : PyLong_AsLongLong(value);
    if (value == NULL)
        PyErr_SetString(PyExc_AttributeError, "ref_cnt cannot be deleted");
    if (PyErr_Occurred())
        return -1;
    if (is_real_of_pool(block) && !block->is_null)
        return write_users(block, users);
    if (is_real_of_pool(block))
        block->pool->null_users = users;
    else
        block->ref_cnt = users;
    return 0;
}

/* ---- the rest -------------------------------------------------------------- */

static PyObject *block_get_neighbour(PyObject *self, void *forward)
{
    vllm_block *found = vllm_queue_neighbour((vllm_block *)self, forward != NULL);
    PyObject *shown = found == NULL ? Py_None : (PyObject *)found;
    Py_INCREF(shown);
    return shown;
}

/* None at an end of a stand-alone queue cuts it, as it does in vLLM; no other link can be written.
 */
static int block_set_neighbour(PyObject *self, PyObject *value, void *forward)
{
    vllm_block *block = (vllm_block *)self;
    PyObject *now = (PyObject *)vllm_queue_neighbour(block, forward != NULL);
    if (value == now || (value == Py_None && now == NULL))
        return 0;
    int is_end = block->kind == (forward != NULL ? VLLM_BLOCK_HEAD : VLLM_BLOCK_TAIL);
    if (value == Py_None && block->queue != NULL && is_end) {
        block->queue->is_cut[forward == NULL] = 1;
        return 0;
    }
    PyErr_SetString(PyExc_AttributeError, "links are written by the free queue alone; use its "
                                          "append, remove and popleft");
    return -1;
}

static int is_equal(const vllm_block *a, const vllm_block *b)
{
    if (a->id != b->id || a->is_null != b->is_null || shown_users(a) != shown_users(b))
        return 0;
    for (int forward = 0; forward < 2; forward++) {
        const vllm_block *next_a = vllm_queue_neighbour(a, forward);
        const vllm_block *next_b = vllm_queue_neighbour(b, forward);
        if ((next_a == NULL) != (next_b == NULL) || (next_a != NULL && next_a->id != next_b->id))
            return 0;
    }
    PyObject *hash_a = vllm_block_hash(a);
    PyObject *hash_b = vllm_block_hash(b);
    int equal = -1;
    if (hash_a != NULL && hash_b != NULL)
        equal = PyObject_RichCompareBool(hash_a, hash_b, Py_EQ);
    Py_XDECREF(hash_a);
    Py_XDECREF(hash_b);
    return equal;
}

/* By value, as vLLM's; of the neighbours only the numbers. */
static PyObject *block_compare(PyObject *a, PyObject *b, int operation)
{
    if (!vllm_is_block(a) || !vllm_is_block(b) || (operation != Py_EQ && operation != Py_NE)) {
        Py_INCREF(Py_NotImplemented);
        return Py_NotImplemented;
    }
    int equal = a == b ? 1 : is_equal((vllm_block *)a, (vllm_block *)b);
    return equal < 0 ? NULL : PyBool_FromLong(equal == (operation == Py_EQ));
}

static PyObject *neighbour_number(const vllm_block *block, int forward)
{
    const vllm_block *found = vllm_queue_neighbour(block, forward);
    if (found != NULL)
        return PyLong_FromLongLong(found->id);
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *block_repr(PyObject *self)
{
    const vllm_block *block = (vllm_block *)self;
    PyObject *hash = vllm_block_hash(block);
    PyObject *before = neighbour_number(block, 0);
    PyObject *behind = neighbour_number(block, 1);
    PyObject *text = NULL;
    if (hash != NULL && before != NULL && behind != NULL)
        text = PyUnicode_FromFormat("KVCacheBlock(block_id=%lld, ref_cnt=%lld, _block_hash=%R, "
                                    "prev_free_block=%R, next_free_block=%R)",
                                    (long long)block->id, (long long)shown_users(block), hash,
                                    before, behind);
    Py_XDECREF(hash);
    Py_XDECREF(before);
    Py_XDECREF(behind);
    return text;
}

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"block_id",        "ref_cnt", "_block_hash", "prev_free_block",
                            "next_free_block", "is_null", NULL};
    long long id;
    long long users = 0;
    PyObject *hash = Py_None;
    PyObject *before = Py_None;
    PyObject *behind = Py_None;
    int is_null = 0;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L|LOOOp:KVCacheBlock", names, &id, &users,
                                     &hash, &before, &behind, &is_null))
        return NULL;
    if (before != Py_None || behind != Py_None) {
        PyErr_SetString(PyExc_ValueError, "prev_free_block and next_free_block must be None: a "
                                          "free queue links its blocks itself");
        return NULL;
    }
    vllm_block *block = vllm_block_make(id, VLLM_BLOCK_REAL, is_null);
    if (block == NULL)
        return NULL;
    block->ref_cnt = users;
    if (write_hash(block, hash) < 0)
        Py_CLEAR(block);
    return (PyObject *)block;
}

static void block_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((vllm_block *)self)->hash);
    Py_XDECREF(((vllm_block *)self)->shown_id);
    Py_XDECREF(((vllm_block *)self)->shown_null);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef block_methods[] = {
    {"reset_hash", block_reset_hash, METH_NOARGS,
     "reset_hash(): the block has no hash, and is not found any more"},
    {NULL, NULL, 0, NULL}};

/* What loops read: the interpreter takes such members without a call. */
static PyMemberDef block_members[] = {
    {"block_id", T_OBJECT_EX, offsetof(vllm_block, shown_id), READONLY, "its number in the pool"},
    {"is_null", T_OBJECT_EX, offsetof(vllm_block, shown_null), READONLY,
     "whether it stands for no block"},
    {NULL, 0, 0, 0, NULL}};

static PyGetSetDef block_fields[] = {
    {"ref_cnt", block_get_users, block_set_users, "how many use it", NULL},
    {"block_hash", block_get_hash, block_set_hash, "hash and group of its content, or None", NULL},
    {"_block_hash", block_get_hash, block_set_raw_hash, "block_hash, written without a check",
     NULL},
    {"prev_free_block", block_get_neighbour, block_set_neighbour, "before it in the free queue",
     NULL},
    {"next_free_block", block_get_neighbour, block_set_neighbour, "behind it in the free queue",
     (void *)1},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot block_slots[] = {
    {Py_tp_new, (void *)block_new},
    {Py_tp_dealloc, (void *)block_dealloc},
    {Py_tp_repr, (void *)block_repr},
    {Py_tp_richcompare, (void *)block_compare},
    {Py_tp_hash, (void *)PyObject_HashNotImplemented},
    {Py_tp_methods, block_methods},
    {Py_tp_members, block_members},
    {Py_tp_getset, block_fields},
    {Py_tp_doc, "KVCacheBlock(block_id, ref_cnt=0): a block of KV cache; vLLM's of the same name"},
    {0, NULL}};
static PyType_Spec block_spec = {.name = "_quire_shim.KVCacheBlock",
                                 .basicsize = (int)sizeof(vllm_block),
                                 .flags = Py_TPFLAGS_DEFAULT,
                                 .slots = block_slots};

PyObject *vllm_block_make_type(PyObject *module)
{
    (void)module;
    PyObject *type = PyType_FromSpec(&block_spec);
    Py_XINCREF(type);
    vllm_block_type = (PyTypeObject *)type;
    return type;
}

/* queue.c - FreeKVCacheBlockQueue: of blocks of no pool, or a view on a pool's free queue.
 *
 *      stand-alone, place 0 is the sentinel            view
 *      place   0    1    2    3    4                   the records of the quire_pool
 *      block   -   b7   b2    -   b4                   and its sentinel
 *      links: 0 -> 2 -> 1 -> 4 -> 0;  place 3 is free again
 *
 *      a block is in at most one queue
 *      block.queue = queue  <=>  records[block.place].block = block
 *
 * vLLM's ends are two blocks that are never popped. Here both are the sentinel, shown as two
 * objects. A block that is taken from a pool's queue without a user (popleft, remove) has one in
 * its record: it is loose, and append gives it back.
 */
#include "pool.h"

static PyTypeObject *queue_type;

enum { HEAD = 0, TAIL = 1, FIRST_ROOM = 16 };

/* ---- neighbours ------------------------------------------------------------ */

static vllm_block *in_pool(const vllm_block *block, int forward)
{
    vllm_pool *pool = block->pool;
    const qr_queue *queue = &pool->pool->queue;
    uint32_t from = block->kind == VLLM_BLOCK_REAL ? (uint32_t)block->id : queue->num_blocks;
    bool is_linked = qr_link_in_list(&queue->blocks[from].free);
    if (!is_linked || pool->blocks == NULL)
        return NULL;
    uint32_t to =
        forward ? qr_queue_next_of(queue->blocks, from) : qr_queue_prev_of(queue->blocks, from);
    return to == queue->num_blocks ? pool->ends[forward ? TAIL : HEAD]
                                   : (vllm_block *)pool->blocks[to];
}

vllm_block *vllm_queue_neighbour(const vllm_block *block, int forward)
{
    if (block->kind == (forward ? VLLM_BLOCK_TAIL : VLLM_BLOCK_HEAD))
        return NULL;
    if (block->pool != NULL)
        return in_pool(block, forward);
    const vllm_queue *queue = block->queue;
    if (queue == NULL)
        return NULL;
    if (block->kind != VLLM_BLOCK_REAL && queue->is_cut[forward ? HEAD : TAIL])
        return NULL;
    const qr_link *link = &queue->records[block->place].link;
    uint32_t to = forward ? link->next : link->prev;
    return to == 0 ? queue->ends[forward ? TAIL : HEAD] : queue->records[to].block;
}

/* ---- stand-alone ------------------------------------------------------------ */

static int grow(vllm_queue *queue)
{
    uint32_t room = queue->num_records == 0 ? FIRST_ROOM : queue->num_records * 2;
    vllm_queue_record *records = PyMem_Realloc(queue->records, room * sizeof *records);
    if (records == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    queue->records = records;
    queue->num_records = room;
    return 0;
}

/* A place for one more block, of no list; 0 with an exception. */
static uint32_t take_place(vllm_queue *queue)
{
    uint32_t place = queue->first_free;
    if (place != 0) {
        queue->first_free = queue->records[place].link.next;
    } else {
        if (queue->num_used == queue->num_records && grow(queue) < 0)
            return 0;
        place = queue->num_used++;
    }
    qr_link_clear(&queue->records[place].link);
    return place;
}

static int join(vllm_queue *queue, vllm_block *block)
{
    uint32_t place = take_place(queue);
    if (place == 0)
        return -1;
    Py_INCREF((PyObject *)block);
    queue->records[place].block = block;
    qr_list_insert_before(queue->records, sizeof *queue->records, 0, place);
    block->queue = queue;
    block->place = place;
    queue->num_free++;
    return 0;
}

/* The reference becomes the caller's. */
static vllm_block *leave(vllm_queue *queue, uint32_t place)
{
    vllm_queue_record *record = &queue->records[place];
    vllm_block *block = record->block;
    qr_list_remove(queue->records, sizeof *queue->records, place);
    record->block = NULL;
    record->link.next = queue->first_free;
    queue->first_free = place;
    block->queue = NULL;
    queue->num_free--;
    return block;
}

/* ---- both -------------------------------------------------------------------- */

static int check_view(const vllm_queue *queue)
{
    return queue->pool == NULL ? 0 : vllm_check_open(queue->pool);
}

static uint32_t count_free(const vllm_queue *queue)
{
    return queue->pool == NULL ? queue->num_free : queue->pool->pool->queue.num_free;
}

static vllm_block *as_block(PyObject *object)
{
    if (vllm_is_block(object))
        return (vllm_block *)object;
    PyErr_Format(PyExc_TypeError, "a free queue takes KVCacheBlocks, not %R", object);
    return NULL;
}

/* Whether append may take it: it is in no queue, and has no user where a pool counts them. */
static int check_joining(const vllm_queue *queue, const vllm_block *block)
{
    const char *why = NULL;
    if (block->kind != VLLM_BLOCK_REAL)
        why = "is an end of a queue";
    else if (block->pool != queue->pool)
        why = queue->pool == NULL ? "belongs to a pool; use that pool's queue"
                                  : "is not one of this pool";
    else if (block->queue != NULL)
        why = "is in a free queue already";
    else if (block->is_null && queue->pool != NULL)
        why = "is the null block, which is never free";
    else if (queue->pool != NULL && !block->is_loose)
        why = "is in the free queue already or has users; free_blocks() takes those away";
    if (why == NULL)
        return 0;
    PyErr_Format(PyExc_ValueError, "block %lld %s", (long long)block->id, why);
    return -1;
}

/* Ids of the first n of a pool's queue, which become loose. */
static int take_loose(vllm_pool *pool, const quire_block *ids, uint32_t n)
{
    int status = quire_pool_touch(pool->pool, ids, n);
    if (status != QUIRE_OK) {
        vllm_raise(status, "the free queue");
        return -1;
    }
    for (uint32_t i = 0; i < n; i++)
        ((vllm_block *)pool->blocks[ids[i]])->is_loose = 1;
    pool->num_loose += n;
    return 0;
}

static int give_loose(vllm_pool *pool, const quire_block *ids, uint32_t n)
{
    int status = quire_pool_free_blocks(pool->pool, ids, n);
    if (status != QUIRE_OK) {
        vllm_raise(status, "the free queue");
        return -1;
    }
    for (uint32_t i = 0; i < n; i++)
        ((vllm_block *)pool->blocks[ids[i]])->is_loose = 0;
    pool->num_loose -= n;
    return 0;
}

/* The first n; the caller frees them. */
static quire_block *first_ids(const vllm_pool *pool, uint32_t n)
{
    quire_block *ids = PyMem_Malloc((n + (size_t)1) * sizeof *ids);
    if (ids == NULL)
        PyErr_NoMemory();
    else
        quire_pool_get_all_free_blocks(pool->pool, ids, n);
    return ids;
}

static PyObject *pop_from_pool(vllm_pool *pool, uint32_t n)
{
    quire_block *ids = first_ids(pool, n);
    PyObject *list = ids == NULL ? NULL : vllm_pool_blocks((PyObject *)pool, ids, n);
    if (list != NULL && take_loose(pool, ids, n) < 0)
        Py_CLEAR(list);
    PyMem_Free(ids);
    return list;
}

/* ---- methods ----------------------------------------------------------------- */

static PyObject *queue_popleft(PyObject *self, PyObject *unused)
{
    vllm_queue *queue = (vllm_queue *)self;
    (void)unused;
    if (check_view(queue) < 0)
        return NULL;
    if (count_free(queue) == 0 || queue->is_cut[HEAD]) {
        PyErr_SetString(PyExc_ValueError, "No free blocks available");
        return NULL;
    }
    if (queue->pool == NULL)
        return (PyObject *)leave(queue, queue->records[0].link.next);
    PyObject *list = pop_from_pool(queue->pool, 1);
    PyObject *block = list == NULL ? NULL : PyList_GetItem(list, 0);
    Py_XINCREF(block);
    Py_XDECREF(list);
    return block;
}

static PyObject *queue_popleft_n(PyObject *self, PyObject *argument)
{
    vllm_queue *queue = (vllm_queue *)self;
    long long n = PyLong_AsLongLong(argument);
    if ((n == -1 && PyErr_Occurred()) || check_view(queue) < 0)
        return NULL;
    if (n < 0 || n > count_free(queue)) {
        PyErr_Format(PyExc_AssertionError, "%lld blocks are asked for, and %u are free", n,
                     (unsigned int)count_free(queue));
        return NULL;
    }
    if (queue->pool != NULL)
        return pop_from_pool(queue->pool, (uint32_t)n);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (Py_ssize_t i = 0; list != NULL && i < (Py_ssize_t)n; i++)
        PyList_SetItem(list, i, (PyObject *)leave(queue, queue->records[0].link.next));
    return list;
}

static PyObject *queue_remove(PyObject *self, PyObject *argument)
{
    vllm_queue *queue = (vllm_queue *)self;
    vllm_block *block = as_block(argument);
    if (block == NULL || check_view(queue) < 0)
        return NULL;
    int is_ours = queue->pool == NULL ? block->queue == queue : block->pool == queue->pool;
    if (!is_ours || block->kind != VLLM_BLOCK_REAL || vllm_queue_neighbour(block, 1) == NULL) {
        PyErr_Format(PyExc_RuntimeError, "remove() of a block that is not in this free queue: %R",
                     argument);
        return NULL;
    }
    if (queue->pool == NULL) {
        Py_DECREF((PyObject *)leave(queue, block->place));
    } else {
        quire_block id = (quire_block)block->id;
        if (take_loose(queue->pool, &id, 1) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static int append_one(vllm_queue *queue, PyObject *argument)
{
    vllm_block *block = as_block(argument);
    if (block == NULL || check_joining(queue, block) < 0)
        return -1;
    if (queue->pool == NULL)
        return join(queue, block);
    quire_block id = (quire_block)block->id;
    return give_loose(queue->pool, &id, 1);
}

static PyObject *queue_append(PyObject *self, PyObject *block)
{
    vllm_queue *queue = (vllm_queue *)self;
    if (check_view(queue) < 0)
        return NULL;
    if (queue->is_cut[TAIL]) {
        PyErr_SetString(PyExc_RuntimeError, "the tail of the free queue has no prev_free_block");
        return NULL;
    }
    if (append_one(queue, block) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static int append_all(vllm_queue *queue, PyObject *blocks)
{
    Py_ssize_t n = PyList_Size(blocks);
    for (Py_ssize_t i = 0; i < n; i++) {
        vllm_block *block = as_block(PyList_GetItem(blocks, i));
        if (block == NULL || check_joining(queue, block) < 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) /* a block listed twice is refused here */
        if (append_one(queue, PyList_GetItem(blocks, i)) < 0)
            return -1;
    return 0;
}

static PyObject *queue_append_n(PyObject *self, PyObject *sequence)
{
    vllm_queue *queue = (vllm_queue *)self;
    if (check_view(queue) < 0)
        return NULL;
    PyObject *blocks = PySequence_List(sequence);
    if (blocks == NULL)
        return NULL;
    int failed = 0;
    if (PyList_Size(blocks) > 0 && queue->is_cut[TAIL]) {
        PyErr_SetString(PyExc_AssertionError, "the tail of the free queue has no prev_free_block");
        failed = -1;
    } else {
        failed = append_all(queue, blocks);
    }
    Py_DECREF(blocks);
    if (failed < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *queue_get_all(PyObject *self, PyObject *unused)
{
    vllm_queue *queue = (vllm_queue *)self;
    (void)unused;
    if (check_view(queue) < 0)
        return NULL;
    if (queue->is_cut[HEAD]) {
        PyErr_SetString(PyExc_RuntimeError, "the head of the free queue has no next_free_block");
        return NULL;
    }
    if (queue->pool != NULL) {
        uint32_t n = count_free(queue);
        quire_block *ids = first_ids(queue->pool, n);
        PyObject *blocks = ids == NULL ? NULL : vllm_pool_blocks((PyObject *)queue->pool, ids, n);
        PyMem_Free(ids);
        return blocks;
    }
    PyObject *list = PyList_New((Py_ssize_t)queue->num_free);
    uint32_t place = queue->records[0].link.next;
    for (Py_ssize_t i = 0; list != NULL && place != 0; i++) {
        Py_INCREF((PyObject *)queue->records[place].block);
        PyList_SetItem(list, i, (PyObject *)queue->records[place].block);
        place = queue->records[place].link.next;
    }
    return list;
}

/* ---- num_free_blocks ----------------------------------------------------------- */

static PyObject *queue_get_count(PyObject *self, void *unused)
{
    (void)unused;
    if (check_view((vllm_queue *)self) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(count_free((vllm_queue *)self));
}

/* All free blocks become loose, in order. */
static int withhold(vllm_pool *pool)
{
    uint32_t n = pool->pool->queue.num_free;
    quire_block *ids = first_ids(pool, n);
    PyObject *made = ids == NULL ? NULL : vllm_pool_blocks((PyObject *)pool, ids, n);
    if (made == NULL || take_loose(pool, ids, n) < 0) {
        Py_XDECREF(made);
        PyMem_Free(ids);
        return -1;
    }
    Py_DECREF(made);
    pool->withheld = ids;
    pool->num_withheld = n;
    return 0;
}

/* They come back before those that were freed meanwhile. */
static int give_back(vllm_pool *pool)
{
    uint32_t n = pool->pool->queue.num_free;
    quire_block *later = first_ids(pool, n);
    if (later == NULL)
        return -1;
    int failed = quire_pool_touch(pool->pool, later, n) != QUIRE_OK ||
                 give_loose(pool, pool->withheld, pool->num_withheld) < 0 ||
                 quire_pool_free_blocks(pool->pool, later, n) != QUIRE_OK;
    PyMem_Free(later);
    if (failed && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "blocks that were withheld were changed meanwhile");
    if (failed)
        return -1;
    PyMem_Free(pool->withheld);
    pool->withheld = NULL;
    pool->num_withheld = 0;
    return 0;
}

/* Who writes 0 wants a pool without free blocks, and writes the number back later. */
static int queue_set_count(PyObject *self, PyObject *value, void *unused)
{
    vllm_queue *queue = (vllm_queue *)self;
    (void)unused;
    long long count = value == NULL ? -1 : PyLong_AsLongLong(value);
    if ((count == -1 && PyErr_Occurred()) || check_view(queue) < 0)
        return -1;
    if (count == count_free(queue))
        return 0;
    vllm_pool *pool = queue->pool;
    if (pool != NULL && count == 0 && pool->withheld == NULL)
        return withhold(pool);
    uint32_t total = pool == NULL ? 0 : count_free(queue) + pool->num_withheld;
    if (pool != NULL && pool->withheld != NULL && count == total)
        return give_back(pool);
    PyErr_Format(
        PyExc_ValueError,
        "num_free_blocks is %u and can be written in a pool's queue alone: 0 withholds all "
        "free blocks, and %u gives them back; not %R",
        (unsigned int)count_free(queue), (unsigned int)total, value == NULL ? Py_None : value);
    return -1;
}

static PyObject *queue_get_end(PyObject *self, void *which)
{
    vllm_queue *queue = (vllm_queue *)self;
    if (check_view(queue) < 0)
        return NULL;
    if (queue->pool != NULL) { /* neighbours of an end are blocks: all must be there */
        PyObject *first = vllm_pool_block((PyObject *)queue->pool, 0);
        if (first == NULL)
            return NULL;
        Py_DECREF(first);
    }
    vllm_block **ends = queue->pool == NULL ? queue->ends : queue->pool->ends;
    PyObject *end = (PyObject *)ends[which == NULL ? HEAD : TAIL];
    Py_INCREF(end);
    return end;
}

/* ---- making ---------------------------------------------------------------------- */

static int make_ends(vllm_queue *queue)
{
    for (int i = 0; i < 2; i++) {
        vllm_block *end = vllm_block_make(-1, i == HEAD ? VLLM_BLOCK_HEAD : VLLM_BLOCK_TAIL, 0);
        if (end == NULL)
            return -1;
        end->queue = queue;
        queue->ends[i] = end;
    }
    return 0;
}

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"blocks", NULL};
    PyObject *sequence;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:FreeKVCacheBlockQueue", names, &sequence))
        return NULL;
    PyObject *blocks = PySequence_List(sequence);
    if (blocks == NULL)
        return NULL;
    vllm_queue *queue = (vllm_queue *)PyType_GenericAlloc(type, 0);
    if (queue != NULL) {
        int failed = grow(queue) < 0 || make_ends(queue) < 0;
        if (!failed) {
            qr_list_init(queue->records, sizeof *queue->records, 0);
            queue->records[0].block = NULL;
            queue->num_used = 1;
            failed = append_all(queue, blocks) < 0;
        }
        if (failed)
            Py_CLEAR(queue);
    }
    Py_DECREF(blocks);
    return (PyObject *)queue;
}

PyObject *vllm_queue_view(vllm_pool *pool)
{
    vllm_queue *queue = (vllm_queue *)PyType_GenericAlloc(queue_type, 0);
    if (queue == NULL)
        return NULL;
    Py_INCREF((PyObject *)pool);
    queue->pool = pool;
    return (PyObject *)queue;
}

static int queue_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((vllm_queue *)self)->pool);
    return 0;
}

static void queue_dealloc(PyObject *self)
{
    vllm_queue *queue = (vllm_queue *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (uint32_t place = 1; place < queue->num_used; place++) {
        vllm_block *block = queue->records[place].block;
        if (block != NULL)
            block->queue = NULL;
        Py_XDECREF((PyObject *)block);
    }
    for (int i = 0; i < 2; i++) {
        if (queue->ends[i] != NULL)
            queue->ends[i]->queue = NULL;
        Py_XDECREF((PyObject *)queue->ends[i]);
    }
    PyMem_Free(queue->records);
    Py_XDECREF((PyObject *)queue->pool);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef queue_methods[] = {
    {"popleft", queue_popleft, METH_NOARGS, "popleft(): the first free block"},
    {"popleft_n", queue_popleft_n, METH_O, "popleft_n(n): the first n, as a list"},
    {"remove", queue_remove, METH_O, "remove(block): takes it out, from anywhere"},
    {"append", queue_append, METH_O, "append(block): puts it at the tail"},
    {"append_n", queue_append_n, METH_O, "append_n(blocks): puts them at the tail, in order"},
    {"get_all_free_blocks", queue_get_all, METH_NOARGS, "get_all_free_blocks(): head to tail"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef queue_fields[] = {
    {"num_free_blocks", queue_get_count, queue_set_count, "how many are in it", NULL},
    {"fake_free_list_head", queue_get_end, NULL, "stands before the first block", NULL},
    {"fake_free_list_tail", queue_get_end, NULL, "stands behind the last block", (void *)1},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot queue_slots[] = {
    {Py_tp_new, (void *)queue_new},
    {Py_tp_dealloc, (void *)queue_dealloc},
    {Py_tp_traverse, (void *)queue_traverse},
    {Py_tp_methods, queue_methods},
    {Py_tp_getset, queue_fields},
    {Py_tp_doc, "FreeKVCacheBlockQueue(blocks): blocks in the order in which they are taken"},
    {0, NULL}};
static PyType_Spec queue_spec = {.name = "_quire_shim.FreeKVCacheBlockQueue",
                                 .basicsize = (int)sizeof(vllm_queue),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                 .slots = queue_slots};

PyObject *vllm_queue_make_type(PyObject *module)
{
    (void)module;
    PyObject *type = PyType_FromSpec(&queue_spec);
    Py_XINCREF(type);
    queue_type = (PyTypeObject *)type;
    return type;
}

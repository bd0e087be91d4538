/* cache.c - _quire_shim.Cache: its making and end, and how requests are found in it. */
#include "cache.h"

#include "sched/sched.h"

#include <string.h>

static const char *const attribute_names[VLLM_CACHE_NAMES] = {
    "request_id", "num_tokens", "num_computed_tokens", "block_hashes"};
static PyObject *pool_type;
enum { FIRST_ROOM = 64 * 32 };

int vllm_to_u32(PyObject *number, void *target)
{
    unsigned long value = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred())
        return 0;
    if (value > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%lu is above 2^32", value);
        return 0;
    }
    *(uint32_t *)target = (uint32_t)value;
    return 1;
}

int vllm_attr_u32(PyObject *object, PyObject *name, uint32_t *value)
{
    PyObject *number = PyObject_GetAttr(object, name);
    int ok = number != NULL && vllm_to_u32(number, value);
    Py_XDECREF(number);
    return ok ? 0 : -1;
}

int vllm_is_pool(PyObject *object)
{
    int is_pool = PyObject_IsInstance(object, pool_type);
    if (is_pool == 0)
        PyErr_Format(PyExc_TypeError, "%R is not a BlockPool of the shim", object);
    return is_pool > 0;
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Only a garbage collector's last look finds one that is gone. */
static int check_made(const vllm_cache *self)
{
    if (self->cache != NULL)
        return vllm_check_open((vllm_pool *)self->pool);
    PyErr_SetString(PyExc_RuntimeError, "the cache is gone");
    return -1;
}

int vllm_cache_enter(vllm_cache *self, int changes)
{
    if (check_made(self) < 0)
        return -1;
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "a call of this cache is under way");
        return -1;
    }
    if (changes && self->store == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this KV cache belongs to a scheduler, which allocates and frees; ask the "
                        "scheduler, or make a KVCacheManager of your own");
        return -1;
    }
    self->is_busy = 1;
    return 0;
}

PyObject *vllm_cache_leave(vllm_cache *self, PyObject *answer)
{
    self->is_busy = 0;
    if (answer == NULL || self->store == NULL || vllm_pool_flush(self->pool) == 0)
        return answer;
    Py_DECREF(answer);
    return NULL;
}

int vllm_cache_reserve_ids(vllm_cache *self, size_t count)
{
    if (count <= self->id_room)
        return 0;
    quire_block *ids = PyMem_Realloc(self->ids, count * sizeof(*ids));
    if (ids == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->ids = ids;
    self->id_room = count;
    return 0;
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Of a scheduler's request. */
static int seq_in_core(vllm_cache *self, PyObject *id, quire_seq *seq)
{
    vllm_core *core = (vllm_core *)self->keeper;
    const vllm_slot *slot = vllm_slot_of_id(core, id);
    if (slot == NULL)
        return PyErr_Occurred() ? -1 : 0;
    const qr_request *request = &core->sched->table.requests[quire_req_index(slot->req)];
    if (request->is_in_use)
        *seq = request->kv.seq;
    return 0;
}

int vllm_cache_seq(vllm_cache *self, PyObject *id, quire_seq *seq)
{
    *seq = 0;
    if (check_made(self) < 0)
        return -1;
    if (self->seqs == NULL)
        return seq_in_core(self, id, seq);
    PyObject *number = PyDict_GetItemWithError(self->seqs, id);
    if (number == NULL)
        return PyErr_Occurred() ? -1 : 0;
    *seq = PyLong_AsUnsignedLongLong(number);
    return 0;
}

int vllm_cache_row(vllm_cache *self, PyObject *id, uint32_t *row)
{
    quire_seq seq;
    if (vllm_cache_seq(self, id, &seq) < 0)
        return -1;
    *row = seq == 0 ? QR_NIL : qr_cache_row_of(self->cache, seq);
    return 0;
}

int vllm_cache_open_row(vllm_cache *self, PyObject *id, uint32_t *row)
{
    quire_seq seq;
    if (!qr_cache_has_row(self->cache) && vllm_store_more_rows(self->store) < 0)
        return -1;
    *row = qr_cache_open_row(self->cache, &seq);
    PyObject *number = PyLong_FromUnsignedLongLong(seq);
    int failed = number == NULL || PyDict_SetItem(self->seqs, id, number) < 0;
    Py_XDECREF(number);
    if (failed)
        qr_cache_close_row(self->cache, *row);
    return failed ? -1 : 0;
}

int vllm_cache_close_row(vllm_cache *self, PyObject *id, uint32_t row)
{
    qr_cache_close_row(self->cache, row);
    return PyDict_DelItem(self->seqs, id);
}

/* ids() -> those of the requests that have blocks, in the order in which they got them. */
static PyObject *cache_ids(PyObject *self_object, PyObject *unused)
{
    vllm_cache *self = (vllm_cache *)self_object;
    (void)unused;
    if (check_made(self) < 0)
        return NULL;
    if (self->seqs != NULL)
        return PyDict_Keys(self->seqs);
    PyObject *all = PyDict_Keys(((vllm_core *)self->keeper)->types.requests);
    PyObject *ids = all == NULL ? NULL : PyList_New(0);
    for (Py_ssize_t i = 0; ids != NULL && i < PyList_Size(all); i++) {
        PyObject *id = PyList_GetItem(all, i);
        quire_seq seq;
        if (vllm_cache_seq(self, id, &seq) < 0 || (seq != 0 && PyList_Append(ids, id) < 0))
            Py_CLEAR(ids);
    }
    Py_XDECREF(all);
    return ids;
}

static PyObject *cache_has(PyObject *self, PyObject *id)
{
    quire_seq seq;
    return vllm_cache_seq((vllm_cache *)self, id, &seq) < 0 ? NULL : PyBool_FromLong(seq != 0);
}

static PyObject *cache_new_step(PyObject *self_object, PyObject *unused)
{
    vllm_cache *self = (vllm_cache *)self_object;
    (void)unused;
    if (vllm_cache_enter(self, 1) < 0)
        return NULL;
    for (uint32_t g = 0; g < self->cache->num_groups; g++)
        if (self->cache->groups[g].stamps != NULL)
            qr_mamba_new_step(&self->cache->groups[g]);
    Py_INCREF(Py_None);
    return vllm_cache_leave(self, Py_None);
}

static PyObject *cache_pool(PyObject *self, void *closure)
{
    PyObject *pool = ((vllm_cache *)self)->pool;
    (void)closure;
    if (pool == NULL)
        pool = Py_None;
    Py_INCREF(pool);
    return pool;
}

static PyObject *cache_is_shown(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((vllm_cache *)self)->store == NULL);
}

/* ---- making and ending --------------------------------------------------------------------- */

static void free_keeper(PyObject *capsule)
{
    vllm_store_free(PyCapsule_GetPointer(capsule, "quire.vllm_store"));
}

/* Names, room, and the fields that every kind of cache has. */
static int make_common(vllm_cache *self, uint32_t largest_id)
{
    for (int i = 0; i < VLLM_CACHE_NAMES; i++) {
        self->names[i] = PyUnicode_InternFromString(attribute_names[i]);
        if (self->names[i] == NULL)
            return -1;
    }
    self->spans = PyMem_Calloc((size_t)largest_id + 1, sizeof(*self->spans));
    self->hashes = PyMem_Malloc(FIRST_ROOM);
    self->hash_room = FIRST_ROOM;
    if (self->spans == NULL || self->hashes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int make_store(vllm_cache *self, const vllm_cache_plan *plan, PyObject *pool)
{
    self->store = vllm_store_make(plan, pool == Py_None ? NULL : ((vllm_pool *)pool)->pool);
    if (self->store == NULL)
        return -1;
    self->keeper = PyCapsule_New(self->store, "quire.vllm_store", free_keeper);
    if (self->keeper == NULL) {
        vllm_store_free(self->store);
        self->store = NULL;
        return -1;
    }
    self->cache = self->store->cache;
    self->seqs = PyDict_New();
    if (pool != Py_None)
        Py_INCREF(pool);
    else
        pool = vllm_pool_wrap(self->cache->pool, self->keeper);
    self->pool = pool;
    if (self->pool == NULL || self->seqs == NULL)
        return -1;
    if (self->store->first_pool == NULL)
        self->cache->event_user = pool; /* what the config named is told to that one */
    return 0;
}

/* Cache(groups, num_blocks, max_model_len, max_num_batched_tokens, hash_block_size, caching, eagle,
 *       dcp, pcp, events, pool=None, first_id=0, admission_cap=2^32-1) */
static int read_plan(PyObject *args, vllm_cache_plan *plan, PyObject **pool)
{
    quire_cache_config *c = &plan->config;
    PyObject *groups;
    int caching;
    int eagle;
    int events;
    *c = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    *pool = Py_None;
    plan->admission_cap = UINT32_MAX;
    if (!PyArg_ParseTuple(args, "OO&O&O&O&ppO&O&p|OO&O&", &groups, vllm_to_u32, &c->num_blocks,
                          vllm_to_u32, &c->max_model_len, vllm_to_u32, &c->max_num_batched_tokens,
                          vllm_to_u32, &plan->hash_block_size, &caching, &eagle, vllm_to_u32,
                          &c->dcp_world_size, vllm_to_u32, &c->pcp_world_size, &events, pool,
                          vllm_to_u32, &plan->first_id, vllm_to_u32, &plan->admission_cap))
        return -1;
    c->enable_caching = caching ? QUIRE_ON : QUIRE_OFF;
    c->use_eagle = eagle ? QUIRE_ON : QUIRE_OFF;
    if (*pool == Py_None) {
        c->hash_block_size = plan->hash_block_size;
        c->on_event = events ? vllm_pool_note_removed : NULL;
        return vllm_plan_groups(plan, groups);
    }
    if (!vllm_is_pool(*pool) || vllm_check_open((vllm_pool *)*pool) < 0)
        return -1;
    if (plan->first_id > QR_MAX_GROUP_ID) {
        PyErr_Format(PyExc_ValueError, "KV cache group %u is above %d", plan->first_id,
                     QR_MAX_GROUP_ID);
        return -1;
    }
    if (caching && !((vllm_pool *)*pool)->pool->enable_caching) {
        PyErr_SetString(PyExc_ValueError, "prefix caching is on, but the BlockPool has none");
        return -1;
    }
    return vllm_plan_groups(plan, groups);
}

static PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *pool;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Cache takes no keywords");
        return NULL;
    }
    vllm_cache_plan *plan = PyMem_Calloc(1, sizeof(*plan));
    if (plan == NULL)
        return PyErr_NoMemory();
    vllm_cache *self = NULL;
    if (read_plan(args, plan, &pool) == 0) {
        allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        self = (vllm_cache *)allocate(type, 0);
    }
    uint32_t largest = plan->first_id > VLLM_MAX_GROUPS ? plan->first_id : VLLM_MAX_GROUPS;
    if (self != NULL && (make_common(self, largest) < 0 || make_store(self, plan, pool) < 0))
        Py_CLEAR(self);
    PyMem_Free(plan);
    return (PyObject *)self;
}

/* Cache.of_core(core): the cache of a scheduler. */
static PyObject *cache_of_core(PyObject *type, PyObject *core)
{
    if (!shim_is_core(core))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    vllm_cache *self = (vllm_cache *)allocate((PyTypeObject *)type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(core);
    self->keeper = core;
    quire_cache *cache = quire_sched_get_cache(((vllm_core *)core)->sched);
    if (make_common(self, VLLM_MAX_GROUPS) == 0)
        self->pool = vllm_pool_wrap(quire_cache_get_pool(cache), core);
    if (self->pool == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    self->cache = cache;
    if (cache->num_groups > 0)
        self->digest_bytes = cache->groups[0].hash_len / cache->groups[0].hashes_joined;
    return (PyObject *)self;
}

static int cache_traverse(PyObject *self_object, visitproc visit, void *arg)
{
    vllm_cache *self = (vllm_cache *)self_object;
    Py_VISIT(Py_TYPE(self_object));
    Py_VISIT(self->keeper);
    Py_VISIT(self->pool);
    Py_VISIT(self->seqs);
    return 0;
}

static int cache_clear(PyObject *self_object)
{
    vllm_cache *self = (vllm_cache *)self_object;
    self->cache = NULL;
    Py_CLEAR(self->pool);
    Py_CLEAR(self->seqs);
    Py_CLEAR(self->keeper);
    return 0;
}

static void cache_dealloc(PyObject *self_object)
{
    vllm_cache *self = (vllm_cache *)self_object;
    PyTypeObject *type = Py_TYPE(self_object);
    PyObject_GC_UnTrack(self_object);
    cache_clear(self_object);
    for (int i = 0; i < VLLM_CACHE_NAMES; i++)
        Py_XDECREF(self->names[i]);
    PyMem_Free(self->hashes);
    PyMem_Free(self->ids);
    PyMem_Free(self->spans);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self_object);
    Py_DECREF(type);
}

static PyMethodDef cache_methods[] = {
    {"of_core", cache_of_core, METH_O | METH_CLASS, "of_core(core): the cache of a scheduler"},
    {"find_hit", vllm_find_hit, METH_VARARGS | METH_CLASS,
     "find_hit(pool, group, hashes, max_length, group_ids, eagle, alignment): blocks by group"},
    {"find", vllm_cache_find, METH_VARARGS, "find(hashes, num_tokens): blocks by group, tokens"},
    {"allocate_slots", vllm_cache_allocate, METH_VARARGS,
     "allocate_slots(request, new, new computed, hits, lookahead, external, delay, encoder)"},
    {"can_fit", vllm_cache_can_fit, METH_VARARGS,
     "can_fit(request, new computed, hits, external, encoder): whether all of it fits now"},
    {"cache_blocks", vllm_cache_cache_blocks, METH_VARARGS,
     "cache_blocks(request, num_tokens, group): keys for full blocks"},
    {"free", vllm_cache_free, METH_VARARGS, "free(request id, group)"},
    {"remove_skipped", vllm_cache_remove_skipped, METH_VARARGS,
     "remove_skipped(request id, computed tokens, group)"},
    {"blocks", vllm_cache_blocks, METH_O, "blocks(request id): blocks by group"},
    {"block_ids", vllm_cache_block_ids, METH_O, "block_ids(request id): numbers by group"},
    {"need", vllm_group_need, METH_VARARGS,
     "need(group, request id, tokens, hits, computed tokens, tokens without lookahead)"},
    {"keep", vllm_group_keep, METH_VARARGS, "keep(group, request id, hits, local, external)"},
    {"allocate", vllm_group_allocate, METH_VARARGS,
     "allocate(group, request id, tokens, tokens without lookahead): new blocks"},
    {"row", vllm_group_row, METH_VARARGS,
     "row(group, request id): blocks, how many of them have keys or None"},
    {"common_prefix", vllm_group_common_prefix, METH_VARARGS, "common_prefix(group, request id)"},
    {"take_new", vllm_group_take_new, METH_VARARGS, "take_new(group): ids taken since last time"},
    {"skipped", vllm_group_skipped, METH_VARARGS, "skipped(group, computed tokens): tokens"},
    {"sinks", vllm_group_sinks, METH_VARARGS, "sinks(group): blocks that all requests share"},
    {"ids", cache_ids, METH_NOARGS, "ids(): requests that have blocks"},
    {"has", cache_has, METH_O, "has(request id)"},
    {"new_step", cache_new_step, METH_NOARGS, "new_step(): a step starts"},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef cache_getset[] = {
    {"pool", cache_pool, NULL, "its BlockPool", NULL},
    {"is_shown", cache_is_shown, NULL, "whether it is a scheduler's", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot cache_slots[] = {{Py_tp_new, (void *)cache_new},
                                    {Py_tp_dealloc, (void *)cache_dealloc},
                                    {Py_tp_traverse, (void *)cache_traverse},
                                    {Py_tp_clear, (void *)cache_clear},
                                    {Py_tp_methods, cache_methods},
                                    {Py_tp_getset, cache_getset},
                                    {Py_tp_doc, "The quire_cache under vLLM's KV cache managers."},
                                    {0, NULL}};

static PyType_Spec cache_spec = {"_quire_shim.Cache", sizeof(vllm_cache), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, cache_slots};

PyObject *vllm_cache_make_type(PyObject *module)
{
    pool_type = PyObject_GetAttrString(module, "Pool");
    if (pool_type == NULL)
        return NULL;
    return PyType_FromModuleAndSpec(module, &cache_spec, NULL);
}

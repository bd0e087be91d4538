/* seed.c - blocks in a scheduler's cache that no request of the scheduler put there.
 *
 *      manager.allocate_slots(request, n)     seed     for a request that was never added
 *      manager.free(request)                  unseed
 *      block_pool.evict_blocks(ids)           evict
 *      coordinator.find_longest_cache_hit_per_group(...)     hits_alone
 *
 * vLLM's tests fill a cache in this way before their scheduler looks into it.
 */
#include "shim.h"

#include "sched/sched.h"

enum { MAX_GROUPS = 64 };

/* The blocks of a sequence, a list for each group. */
static PyObject *rows_of(const quire_cache *cache, quire_seq seq)
{
    PyObject *rows = PyTuple_New((Py_ssize_t)cache->num_groups);
    uint32_t row = qr_cache_row_of(cache, seq);
    for (uint32_t g = 0; rows != NULL && g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        const uint32_t *ids = qr_group_row_blocks(group, row);
        PyObject *list = PyList_New(0);
        for (uint32_t i = 0; list != NULL && i < group->rows[row].num_blocks; i++) {
            if (vllm_list_put(list, PyLong_FromUnsignedLong(ids[i])) < 0)
                Py_CLEAR(list);
        }
        if (list == NULL)
            Py_CLEAR(rows);
        else
            PyTuple_SetItem(rows, (Py_ssize_t)g, list);
    }
    return rows;
}

/* seed(seq or 0, hashes, their number, tokens of the request, computed tokens, new tokens): (seq,
 * blocks of each group), or None without room. It has no hits. */
PyObject *vllm_core_seed(PyObject *self, PyObject *args)
{
    quire_cache *cache = ((vllm_core *)self)->sched->cache;
    quire_cache_request r = {0};
    quire_allocate_params p = QUIRE_ALLOCATE_PARAMS_INIT;
    quire_block_span made[MAX_GROUPS];
    unsigned long long seq;
    const char *hashes;
    if (!PyArg_ParseTuple(args, "KyIIII", &seq, &hashes, &r.num_hashes, &r.num_tokens,
                          &r.num_computed_tokens, &p.num_new_tokens))
        return NULL;
    if (cache->num_groups > MAX_GROUPS)
        return vllm_raise(QUIRE_E_RANGE, "allocate_slots");
    r.seq = seq;
    r.hashes = hashes;
    int status = quire_cache_allocate_slots(cache, &r, &p, made);
    if (status == QUIRE_NO_SPACE)
        Py_RETURN_NONE;
    if (status != QUIRE_OK)
        return vllm_raise(status, "allocate_slots");
    PyObject *rows = rows_of(cache, r.seq);
    return rows == NULL ? NULL : Py_BuildValue("(KN)", r.seq, rows);
}

/* unseed(seq) */
PyObject *vllm_core_unseed(PyObject *self, PyObject *args)
{
    quire_cache_request r = {0};
    unsigned long long seq;
    if (!PyArg_ParseTuple(args, "K", &seq))
        return NULL;
    r.seq = seq;
    int status = quire_cache_free(((vllm_core *)self)->sched->cache, &r);
    return status != QUIRE_OK ? vllm_raise(status, "free") : Py_NewRef(Py_None);
}

/* evict(block): its keys are forgotten */
PyObject *vllm_core_evict(PyObject *self, PyObject *args)
{
    unsigned int block;
    if (!PyArg_ParseTuple(args, "I", &block))
        return NULL;
    quire_block id = block;
    int status = quire_pool_evict_blocks(((vllm_core *)self)->sched->cache->pool, &id, 1);
    return status != QUIRE_OK ? vllm_raise(status, "evict_blocks") : Py_NewRef(Py_None);
}

/* hits_alone(hashes, their number, most tokens): what each group has by itself, in tokens */
PyObject *vllm_core_hits_alone(PyObject *self, PyObject *args)
{
    const quire_cache *cache = ((vllm_core *)self)->sched->cache;
    const unsigned char *hashes;
    unsigned int num_hashes;
    unsigned int most;
    if (!PyArg_ParseTuple(args, "yII", &hashes, &num_hashes, &most))
        return NULL;
    qr_lookup lookup = {
        .hashes = hashes, .num_hashes = num_hashes, .groups = cache->groups, .out = cache->hits};
    PyObject *hits = PyList_New((Py_ssize_t)cache->num_groups);
    for (uint32_t i = 0; hits != NULL && i < cache->num_sets; i++) {
        const qr_group_set *set = &cache->sets[i];
        const qr_group *group = &cache->groups[set->ids[0]];
        uint32_t tokens = group->block_size * group->ops->find(set, &lookup, most, set->is_eagle,
                                                               cache->lookup_alignment);
        for (uint32_t k = 0; k < set->num_ids; k++)
            PyList_SetItem(hits, (Py_ssize_t)set->ids[k], PyLong_FromUnsignedLong(tokens));
    }
    return hits;
}

/* rows.c - making a quire_cache for vLLM's managers, and giving it more room.
 *
 *      groups[g].rows     [ r0 ][ r1 ] ... [ r15 ]                  full: replaced by twice as many
 *      groups[g].blocks   [ blocks of r0 | blocks of r1 | ... ]     max_row places each
 *      free_rows, row_states                                        one for each row
 *
 * A cache that stands on a given pool (alone) is made with a pool of a few blocks, which is then
 * left unused: its groups are told the given one. What is as long as the pool is replaced too.
 */
#include "cache.h"

#include <string.h>

enum { FIRST_ROWS = 16, SPARE_BLOCKS = 2 };

/* ---- reading ------------------------------------------------------------------------------- */

static int read_group(PyObject *tuple, quire_group_config *group)
{
    unsigned int kind;
    unsigned int mode;
    unsigned int number;
    quire_layer_spec *spec = &group->spec;
    memset(group, 0, sizeof(*group));
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a group must be a tuple of numbers");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "IO&O&O&O&IO&II", &kind, vllm_to_u32, &spec->block_size,
                          vllm_to_u32, &spec->sliding_window, vllm_to_u32,
                          &spec->attention_chunk_size, vllm_to_u32, &spec->sink_len, &mode,
                          vllm_to_u32, &spec->num_speculative_blocks, &group->is_eagle, &number))
        return -1;
    spec->kind = (quire_layer_kind)kind;
    spec->mamba_mode = (quire_mamba_mode)mode;
    if (spec->kind == QUIRE_LAYER_MAMBA) { /* shapes do not matter, but whether they are equal */
        spec->states[0] = (quire_state){1, {number + 1}, QUIRE_DTYPE_FLOAT32};
        return 0;
    }
    spec->num_kv_heads = 1;
    spec->head_size = number + 1;
    spec->dtype = QUIRE_DTYPE_BFLOAT16;
    return 0;
}

int vllm_plan_groups(vllm_cache_plan *plan, PyObject *tuples)
{
    if (!PyList_Check(tuples) || PyList_Size(tuples) > VLLM_MAX_GROUPS) {
        PyErr_Format(PyExc_ValueError, "quire.vllm: %zd KV cache groups, of at most %d",
                     PyObject_Size(tuples), (int)VLLM_MAX_GROUPS);
        return -1;
    }
    plan->config.groups = plan->groups;
    plan->config.num_groups = (uint32_t)PyList_Size(tuples);
    for (uint32_t g = 0; g < plan->config.num_groups; g++) {
        if (read_group(PyList_GetItem(tuples, (Py_ssize_t)g), &plan->groups[g]) < 0)
            return -1;
        if (plan->groups[g].spec.kind == QUIRE_LAYER_CROSS) /* its rows grow with the encoder's */
            plan->config.max_encoder_tokens = plan->groups[g].spec.block_size;
    }
    return 0;
}

/* ---- more room ----------------------------------------------------------------------------- */

static uint32_t *copy_blocks(const qr_group *group, uint32_t num_rows, uint32_t new_rows,
                             uint32_t max_row)
{
    uint32_t *blocks = PyMem_Malloc(((size_t)new_rows * max_row + 1) * sizeof(*blocks));
    for (uint32_t row = 0; blocks != NULL && row < num_rows; row++)
        memcpy(blocks + (size_t)row * max_row, qr_group_row_blocks(group, row),
               group->rows[row].num_blocks * sizeof(*blocks));
    return blocks;
}

static int more_of_group(vllm_store *store, uint32_t g, uint32_t new_rows)
{
    qr_group *group = &store->cache->groups[g];
    uint32_t num_rows = store->cache->max_requests;
    qr_row *rows = PyMem_Malloc(new_rows * sizeof(*rows));
    uint32_t *blocks = copy_blocks(group, num_rows, new_rows, group->max_row);
    if (rows == NULL || blocks == NULL) {
        PyMem_Free(rows);
        PyMem_Free(blocks);
        return -1;
    }
    memcpy(rows, group->rows, num_rows * sizeof(*rows));
    PyMem_Free(store->rows[g].rows);
    PyMem_Free(store->rows[g].blocks);
    group->rows = store->rows[g].rows = rows;
    group->blocks = store->rows[g].blocks = blocks;
    for (uint32_t row = num_rows; row < new_rows; row++)
        qr_group_init_row(group, row);
    return 0;
}

int vllm_store_more_rows(vllm_store *store)
{
    quire_cache *cache = store->cache;
    uint32_t num_rows = cache->max_requests;
    uint32_t new_rows = 2 * num_rows;
    qr_assert(cache->num_seqs == num_rows);
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        if (more_of_group(store, g, new_rows) <
            0) { /* groups before it merely have room to spare */
            PyErr_NoMemory();
            return -1;
        }
    }
    qr_row_state *states = PyMem_Calloc(new_rows, sizeof(*states));
    uint32_t *free_rows = PyMem_Malloc(new_rows * sizeof(*free_rows));
    if (states == NULL || free_rows == NULL) {
        PyMem_Free(states);
        PyMem_Free(free_rows);
        PyErr_NoMemory();
        return -1;
    }
    memcpy(states, cache->row_states, num_rows * sizeof(*states));
    for (uint32_t i = 0; i < new_rows; i++)
        free_rows[i] = new_rows - 1 - i; /* the first new row is the next to go */
    PyMem_Free(store->row_states);
    PyMem_Free(store->free_rows);
    cache->row_states = store->row_states = states;
    cache->free_rows = store->free_rows = free_rows;
    cache->max_requests = new_rows;
    return 0;
}

int vllm_store_longer_rows(vllm_store *store, uint32_t g, uint32_t num_blocks)
{
    quire_cache *cache = store->cache;
    qr_group *group = &cache->groups[g];
    if (num_blocks <= group->max_row)
        return 0;
    uint32_t max_row = num_blocks < 2 * group->max_row ? 2 * group->max_row : num_blocks;
    uint32_t *blocks = copy_blocks(group, cache->max_requests, cache->max_requests, max_row);
    uint32_t *hits = PyMem_Malloc(max_row * sizeof(*hits));
    if (blocks == NULL || hits == NULL) {
        PyMem_Free(blocks);
        PyMem_Free(hits);
        PyErr_NoMemory();
        return -1;
    }
    PyMem_Free(store->rows[g].blocks);
    PyMem_Free(store->rows[g].hits);
    group->blocks = store->rows[g].blocks = blocks;
    cache->hits[g] = store->rows[g].hits = hits;
    group->max_row = max_row;
    return 0;
}

/* ---- making -------------------------------------------------------------------------------- */

static int take_sinks(quire_cache *cache)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        if (qr_pool_get_new_blocks(cache->pool, group->num_sinks, group->sinks) != QUIRE_OK) {
            PyErr_Format(PyExc_ValueError, "the pool has no %u free blocks for sinks",
                         group->num_sinks);
            return -1;
        }
    }
    return 0;
}

/* Puts the cache on another pool than the one it was made with. */
static int stand_on(vllm_store *store, const vllm_cache_plan *plan, quire_pool *pool)
{
    quire_cache *cache = store->cache;
    size_t num_blocks = pool->queue.num_blocks;
    qr_fresh *fresh = &store->fresh;
    *fresh = (qr_fresh){.capacity = 2 * (uint32_t)num_blocks};
    fresh->ids = PyMem_Malloc(2 * num_blocks * sizeof(*fresh->ids));
    fresh->groups = PyMem_Malloc(2 * num_blocks * sizeof(*fresh->groups));
    fresh->sorted = PyMem_Malloc(2 * num_blocks * sizeof(*fresh->sorted));
    store->stamps = PyMem_Calloc(num_blocks, sizeof(*store->stamps));
    if (fresh->ids == NULL || fresh->groups == NULL || fresh->sorted == NULL ||
        store->stamps == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    store->first_pool = cache->pool;
    cache->pool = pool;
    cache->fresh = *fresh;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        group->pool = pool;
        group->id = plan->first_id + g;
        group->admission_cap = plan->admission_cap;
        if (group->stamps != NULL)
            group->stamps = store->stamps;
    }
    return take_sinks(cache);
}

vllm_store *vllm_store_make(const vllm_cache_plan *plan, quire_pool *pool)
{
    vllm_store *store = PyMem_Calloc(1, sizeof(*store));
    if (store == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    quire_cache_config config = plan->config;
    config.groups = plan->groups;
    config.max_requests = FIRST_ROWS;
    config.track_new_blocks = QUIRE_ON;
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    if (pool != NULL)
        config.num_blocks = SPARE_BLOCKS + plan->groups[0].spec.sink_len;
    int status = quire_cache_create(&config, NULL, &store->cache);
    if (status != QUIRE_OK)
        vllm_raise(status, "quire.vllm cannot make a cache of these KV cache groups");
    if (status != QUIRE_OK || (pool != NULL && stand_on(store, plan, pool) < 0)) {
        vllm_store_free(store);
        return NULL;
    }
    return store;
}

void vllm_store_free(vllm_store *store)
{
    if (store->cache != NULL && store->first_pool != NULL)
        store->cache->pool = store->first_pool;
    quire_cache_destroy(store->cache);
    for (uint32_t g = 0; g < VLLM_MAX_GROUPS; g++) {
        PyMem_Free(store->rows[g].rows);
        PyMem_Free(store->rows[g].blocks);
        PyMem_Free(store->rows[g].hits);
    }
    PyMem_Free(store->row_states);
    PyMem_Free(store->free_rows);
    PyMem_Free(store->stamps);
    PyMem_Free(store->fresh.ids);
    PyMem_Free(store->fresh.groups);
    PyMem_Free(store->fresh.sorted);
    PyMem_Free(store);
}

/* cache.h - _quire_shim.Cache: the quire_cache under vLLM's KVCacheManager, its coordinators
 * and single-type managers.
 *
 *      KVCacheManager ─► coordinator ─► Cache ─► quire_cache ─► groups ─► rows of block ids
 *                            │            ▲          │
 *                            ▼            │          ▼
 *                 single-type managers ───┘      quire_pool ◄── BlockPool, KVCacheBlocks
 *                 (cache, group)
 *
 * made     the coordinator's: the cache makes its own pool, a BlockPool shows it
 * alone    a manager's that was made on a given BlockPool: one group, on the pool of that
 * shown    a scheduler's: the quire_cache of a Core. What belongs to the scheduler is refused
 *
 * Requests are found by their ids: in `seqs`, or through the Core. A quire_cache has room for a
 * fixed number of requests; vLLM has no such limit, so the arrays of rows are replaced by larger
 * ones when they are full. Both they and the cache are in a vllm_store, which the BlockPool keeps
 * alive too.
 */
#ifndef QUIRE_PYTHON_VLLM_CACHE_H
#define QUIRE_PYTHON_VLLM_CACHE_H

#include "pool.h"

#include "cache/cache.h"

enum { VLLM_MAX_GROUPS = 64, VLLM_ALL_GROUPS = -1 };

/* Arrays that took the place of a group's own; NULL: not yet. */
typedef struct vllm_rows {
    qr_row *rows;
    uint32_t *blocks;
    uint32_t *hits;
} vllm_rows;

typedef struct vllm_store {
    quire_cache *cache;
    quire_pool *first_pool; /* alone: the one that the cache was made with; else NULL */
    vllm_rows rows[VLLM_MAX_GROUPS];
    qr_row_state *row_states;
    uint32_t *free_rows;
    uint32_t *stamps; /* alone: as many as the given pool has blocks, as are those in fresh */
    qr_fresh fresh;
} vllm_store;

enum { VLLM_CACHE_ID, VLLM_CACHE_NUM_TOKENS, VLLM_CACHE_COMPUTED, VLLM_CACHE_HASHES };
enum { VLLM_CACHE_NAMES = VLLM_CACHE_HASHES + 1 };

typedef struct vllm_cache {
    PyObject_HEAD quire_cache *cache;
    vllm_store *store; /* NULL: shown */
    PyObject *keeper;  /* of the store, or the Core */
    PyObject *pool;
    PyObject *seqs; /* {request id: seq}; NULL: shown */
    PyObject *names[VLLM_CACHE_NAMES];
    uint32_t digest_bytes; /* of a request's hashes: that of the first one that was seen; or 0 */
    unsigned char *hashes; /* room for those of one call */
    size_t hash_room;
    quire_block *ids; /* room for hits that are given */
    size_t id_room;
    quire_block_span *spans; /* one for each group, by its id */
    int is_busy;             /* inside a call */
} vllm_cache;

/* ---- cache.c ------------------------------------------------------------------------ */

/* After Pool, which it knows from the module. */
extern PyObject *vllm_cache_make_type(PyObject *module);
/* 0 with an exception when it is none. */
extern int vllm_is_pool(PyObject *object);
/* Begins a call that looks (changes 0) or changes; 0, or -1 with an exception. */
extern int vllm_cache_enter(vllm_cache *self, int changes);
/* Ends it: tells what the pool's listeners are to know. The answer, or NULL with an exception. */
extern PyObject *vllm_cache_leave(vllm_cache *self, PyObject *answer);
/* The seq of a request, 0 when it has no blocks; -1: an exception. */
extern int vllm_cache_seq(vllm_cache *self, PyObject *id, quire_seq *seq);
/* The row of a request, QR_NIL when it has none. */
extern int vllm_cache_row(vllm_cache *self, PyObject *id, uint32_t *row);
/* A row for a request that has none. */
extern int vllm_cache_open_row(vllm_cache *self, PyObject *id, uint32_t *row);
extern int vllm_cache_close_row(vllm_cache *self, PyObject *id, uint32_t row);
/* Room for so many more ids at self->ids. */
extern int vllm_cache_reserve_ids(vllm_cache *self, size_t count);
/* For PyArg_ParseTuple's "O&": a number of 32 bits, not negative. */
extern int vllm_to_u32(PyObject *number, void *target);
extern int vllm_attr_u32(PyObject *object, PyObject *name, uint32_t *value);

/* ---- rows.c: making a quire_cache, and giving it more room --------------------------- */

typedef struct vllm_cache_plan {
    quire_cache_config config;
    quire_group_config groups[VLLM_MAX_GROUPS];
    uint32_t first_id;      /* alone: of its group */
    uint32_t admission_cap; /* alone */
    uint32_t hash_block_size;
} vllm_cache_plan;

/* Reads (kind, block size, window, chunk, sinks, Mamba mode, speculative blocks, eagle, number)
 * tuples: equal numbers are equal specs. */
extern int vllm_plan_groups(vllm_cache_plan *plan, PyObject *tuples);
/* A store with a cache that has its own pool, or, where pool is given, stands on that. */
extern vllm_store *vllm_store_make(const vllm_cache_plan *plan, quire_pool *pool);
extern void vllm_store_free(vllm_store *store);
/* Room for twice as many requests; for a row of so many blocks in one group. */
extern int vllm_store_more_rows(vllm_store *store);
extern int vllm_store_longer_rows(vllm_store *store, uint32_t group, uint32_t num_blocks);

/* ---- hashes.c ----------------------------------------------------------------------- */

/* Hashes [first, end) of a list, one after the other in self->hashes from `place` on. 0, or -1. */
extern int vllm_cache_load_hashes(vllm_cache *self, PyObject *list, uint32_t first, uint32_t end,
                                  uint32_t place);
/* The hashes of a request as a list; a new reference. */
extern PyObject *vllm_hash_list(PyObject *hashes);
/* find(hashes, num_tokens) -> (blocks of each group, tokens) */
extern PyObject *vllm_cache_find(PyObject *self, PyObject *args);
/* find_hit(pool, group, hashes, max_length, group ids, eagle, alignment): in any BlockPool. */
extern PyObject *vllm_find_hit(PyObject *type, PyObject *args);

/* ---- slots.c ------------------------------------------------------------------------ */

/* Tells a metrics collector, where there is one, of blocks [first, end) of a row: hits, or new. */
extern int vllm_cache_measure(vllm_cache *self, const qr_group *group, uint32_t row, uint32_t first,
                              uint32_t end, int is_hit);

extern PyObject *vllm_cache_allocate(PyObject *self, PyObject *args);
extern PyObject *vllm_cache_can_fit(PyObject *self, PyObject *args);
extern PyObject *vllm_cache_cache_blocks(PyObject *self, PyObject *args);
extern PyObject *vllm_cache_free(PyObject *self, PyObject *args);
extern PyObject *vllm_cache_remove_skipped(PyObject *self, PyObject *args);

/* ---- group.c: one group's steps, and looking ----------------------------------------- */

extern PyObject *vllm_group_need(PyObject *self, PyObject *args);
extern PyObject *vllm_group_keep(PyObject *self, PyObject *args);
extern PyObject *vllm_group_allocate(PyObject *self, PyObject *args);
extern PyObject *vllm_group_row(PyObject *self, PyObject *args);
extern PyObject *vllm_group_common_prefix(PyObject *self, PyObject *args);
extern PyObject *vllm_group_take_new(PyObject *self, PyObject *args);
extern PyObject *vllm_group_skipped(PyObject *self, PyObject *args);
extern PyObject *vllm_group_sinks(PyObject *self, PyObject *args);
extern PyObject *vllm_cache_blocks(PyObject *self, PyObject *id);
extern PyObject *vllm_cache_block_ids(PyObject *self, PyObject *id);

#endif

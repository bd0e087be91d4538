/* pool.h - vLLM's KVCacheBlock, FreeKVCacheBlockQueue, BlockHashToBlockMap and BlockPool, as
 * views on one quire_pool.
 *
 *      BlockPool ──────► KVCacheBlock 0, 1, 2, ...     each knows its pool and its number
 *          │                  │ asks
 *          ▼                  ▼
 *      quire_pool ────► record: users, key, place in the free queue
 *
 * A block has no state of its own that the record has too. Its pointer to the pool is borrowed: a
 * pool that ends leaves each block that somebody still holds with its last values. Therefore blocks
 * need no garbage collector, and a pool of a million blocks costs it nothing.
 *
 * What vLLM's objects allow and a quire_pool does not is kept beside it:
 *      stamp     a block_hash that was written on a block, and is not (or no longer) in the map
 *      loose     a block that was taken out of the free queue and has no user: the record has one
 *      overlay   map entries for the null block, for blocks of no pool, for a second key of a block
 */
#ifndef QUIRE_PYTHON_VLLM_POOL_H
#define QUIRE_PYTHON_VLLM_POOL_H

#include "shim.h"

#include "block/pool.h"

struct vllm_pool;
struct vllm_queue;

enum { VLLM_BLOCK_REAL, VLLM_BLOCK_HEAD, VLLM_BLOCK_TAIL };

typedef struct vllm_block {
    PyObject_HEAD struct vllm_pool *pool; /* borrowed; NULL: of no pool, the rest is its state */
    struct vllm_queue *queue;             /* borrowed; the stand-alone queue that has it, or NULL */
    PyObject *hash;     /* the stamp; or what the key of the record was made from. May be NULL */
    int64_t id;         /* -1: an end of a queue */
    PyObject *shown_id; /* id and is_null, as Python reads them */
    PyObject *shown_null;
    int64_t ref_cnt; /* of a block of no pool */
    uint32_t place;  /* in the queue */
    uint8_t kind;    /* VLLM_BLOCK_REAL, or which end of a queue */
    uint8_t is_null;
    uint8_t is_stamp; /* hash is one */
    uint8_t is_loose; /* users of the record = users shown + is_loose */
} vllm_block;

/* Pools of our own take hashes of any length: 16 and 32 bytes as they are, others as 48 bytes, the
 * length and a SHA-256, so that no two ever meet. */
enum { VLLM_KEY_BYTES = 48, VLLM_GROUP_BYTES = 4 };

typedef struct vllm_pool {
    PyObject_HEAD quire_pool *pool; /* NULL: not made, or closed */
    PyObject *owner;                /* keeps it alive; NULL: it is ours */
    PyObject **blocks;              /* all of them, made when one is asked for; else NULL */
    PyObject *list;                 /* the same as a list */
    vllm_block *ends[2];            /* of the free queue */
    uint32_t num_blocks;
    unsigned int hash_block_size;
    char enable_caching;
    char enable_events;
    PyObject *events;  /* kv_event_queue */
    PyObject *metrics; /* or NULL */
    PyObject *overlay; /* {key: block or {id: block}} */
    int64_t null_users;
    uint32_t num_loose;
    quire_block *withheld; /* while num_free_blocks = 0 says that there are none; else NULL */
    uint32_t num_withheld;
    PyObject *removed; /* block hashes that blocks lost since the last flush; NULL: none */
    int has_missed;    /* one of them, for want of memory */
} vllm_pool;

/* ---- for those who build on it: pool.c ---------------------------------------------- */

extern PyObject *vllm_pool_make_type(PyObject *module);
/* A BlockPool that shows somebody else's pool; owner keeps that alive. Its hash_block_size and
 * enable_kv_cache_events are 0 until they are set. */
extern PyObject *vllm_pool_wrap(quire_pool *pool, PyObject *owner);
/* The owner takes its pool away: blocks keep their last values, calls are refused from now on. */
extern void vllm_pool_close(PyObject *pool);
/* A new reference to the one object of a block; IndexError for an id that the pool has not. */
extern PyObject *vllm_pool_block(PyObject *pool, quire_block id);
/* The same for many, as a list. */
extern PyObject *vllm_pool_blocks(PyObject *pool, const quire_block *ids, uint32_t n);
/* The numbers of a sequence of blocks, null blocks included: how many, or -1. Blocks of no pool or
 * of another one are refused. */
extern int vllm_pool_ids(PyObject *pool, PyObject *sequence, quire_block *ids, uint32_t capacity);

extern int vllm_pool_make_blocks(vllm_pool *pool);
/* The number of one block of the pool; -1 with an exception. */
extern int64_t vllm_pool_number(const vllm_pool *pool, PyObject *block);

/* ---- pool_users.c ------------------------------------------------------------------- */

/* Arguments of a method by their place or their name, borrowed: one, or one or two. */
extern PyObject *vllm_argument(PyObject *const *args, Py_ssize_t n, PyObject *names,
                               const char *name);
extern int vllm_arguments(PyObject *const *args, Py_ssize_t num_args, PyObject *names,
                          const char *const *expected, int n, PyObject **given);
extern PyObject *vllm_pool_get_new(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                                   PyObject *names);
extern PyObject *vllm_pool_touch(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                                 PyObject *names);
extern PyObject *vllm_pool_free(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                                PyObject *names);

/* ---- keys.c ------------------------------------------------------------------------- */

typedef struct vllm_key {
    qr_key key; /* hash points to the caller's bytes, or to room */
    unsigned char room[VLLM_KEY_BYTES];
} vllm_key;

/* 1; 0 when no block of the pool can have such a key. */
extern int vllm_key_of(const vllm_pool *pool, const void *hash, size_t len, uint32_t group_id,
                       vllm_key *key);
/* The same for a block_hash, whose last 4 bytes are the group. -1: not bytes. */
extern int vllm_key_parse(const vllm_pool *pool, PyObject *bytes, vllm_key *key);
/* The bytes of hash and group, as vLLM's block_hash has them. */
extern PyObject *vllm_key_bytes(const void *hash, size_t len, uint32_t group_id);
/* Keys of the blocks [first, first + count), each made from scale hashes of a list: one array of
 * *len bytes each, to be freed with PyMem_Free; NULL with an exception. For one request's hashes,
 * which are of one length, or all of lengths that are not kept as they are. */
extern unsigned char *vllm_pool_keys(PyObject *pool, PyObject *hashes, uint32_t scale,
                                     uint32_t first, uint32_t count, uint32_t *len);
/* The hash of block i, its scale hashes joined. */
extern PyObject *vllm_hash_at(PyObject *hashes, uint32_t scale, uint32_t i);

/* ---- pool_cache.c: keys and events -------------------------------------------------- */

/* As BlockPool.cache_full_blocks, for blocks of the pool by their numbers. 0, or -1. */
extern int vllm_pool_cache_full(PyObject *pool, PyObject *request, const quire_block *blocks,
                                uint32_t num_cached, uint32_t num_full, uint32_t block_size,
                                uint32_t group_id);
/* Tells kv_event_queue of the keys that blocks lost; after calls of the library on a pool of our
 * own. 0, or -1. */
extern int vllm_pool_flush(PyObject *pool);
extern void vllm_pool_note_removed(void *user, const quire_event *event);
extern PyObject *vllm_pool_cache_full_blocks(PyObject *self, PyObject *args, PyObject *kwargs);
extern PyObject *vllm_pool_get_cached_block(PyObject *self, PyObject *const *args,
                                            Py_ssize_t num_args, PyObject *names);
extern PyObject *vllm_pool_maybe_evict(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                                       PyObject *names);
extern PyObject *vllm_pool_evict_blocks(PyObject *self, PyObject *const *args, Py_ssize_t num_args,
                                        PyObject *names);
/* Evicts a block as vLLM does: 1 when it was cached, 0, or -1. Tells the event, not the metrics. */
extern int vllm_pool_evict(vllm_pool *pool, vllm_block *block);
/* Calls a method of the metrics collector, where there is one. */
extern int vllm_pool_measure(vllm_pool *pool, const char *method, PyObject *block);

/* ---- block.c ------------------------------------------------------------------------ */

extern PyObject *vllm_block_make_type(PyObject *module);
extern PyTypeObject *vllm_block_type;
static inline int vllm_is_block(PyObject *object)
{
    return Py_TYPE(object) == vllm_block_type;
}
extern vllm_block *vllm_block_make(int64_t id, int kind, int is_null);
/* Its block_hash: bytes or None, a new reference. */
extern PyObject *vllm_block_hash(const vllm_block *block);
/* Writes a stamp; NULL takes it away. */
extern void vllm_block_stamp(vllm_block *block, PyObject *hash);
/* The block leaves its pool with its last values. */
extern void vllm_block_detach(vllm_block *block);
/* The block is not found under its key any more, and no event tells. It keeps no stamp. */
extern int vllm_block_forget(vllm_block *block);
extern int vllm_check_open(const vllm_pool *pool);

/* ---- queue.c ------------------------------------------------------------------------ */

typedef struct vllm_queue_record {
    qr_link link;
    vllm_block *block; /* owned; NULL: the place is free */
} vllm_queue_record;

/* A pool's queue is a view: pool is set, and the rest is 0. Place 0 is the sentinel. */
typedef struct vllm_queue {
    PyObject_HEAD vllm_pool *pool;
    vllm_queue_record *records;
    uint32_t num_records;
    uint32_t num_used;   /* places that ever had a block; behind them all are free */
    uint32_t first_free; /* places that are free again, by link.next; 0: none */
    uint32_t num_free;
    vllm_block *ends[2];
    uint8_t is_cut[2]; /* somebody wrote None into the link of an end */
} vllm_queue;

extern PyObject *vllm_queue_make_type(PyObject *module);
extern PyObject *vllm_queue_view(vllm_pool *pool);
/* The block behind (forward) or before one, NULL: None; borrowed. */
extern vllm_block *vllm_queue_neighbour(const vllm_block *block, int forward);

/* ---- map.c -------------------------------------------------------------------------- */

typedef struct vllm_map {
    PyObject_HEAD vllm_pool *pool; /* a view; NULL: entries is all */
    PyObject *entries;             /* the dictionary; of a view, the pool's overlay */
} vllm_map;

extern PyObject *vllm_map_make_type(PyObject *module);
extern PyObject *vllm_map_view(vllm_pool *pool);
/* As BlockHashToBlockMap's methods, on a dictionary. */
extern PyObject *vllm_entries_get_one(PyObject *entries, PyObject *key); /* borrowed, or NULL */
extern int vllm_entries_insert(PyObject *entries, PyObject *key, PyObject *block);
extern int vllm_entries_pop(PyObject *entries, PyObject *key, long long id, PyObject **block);
/* Puts a block under a key, into the pool or its overlay. 0, or -1. */
extern int vllm_map_insert(vllm_pool *pool, PyObject *key, PyObject *block);

#endif

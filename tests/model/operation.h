/* model/operation.h - one call of quire/pool.h as data: it can be made up, carried out on either
 * pool, and printed.
 *
 *      operation --+--> operation_on_real   --> result --+
 *                  |                                     +--> equal, byte by byte
 *                  +--> operation_on_naive  --> result --+
 *
 * A result starts out filled with a pattern, so an output that a call must leave alone is compared
 * as well. Hashes are named by small numbers; few of them, so that blocks share keys all the time.
 */
#ifndef MODEL_OPERATION_H
#define MODEL_OPERATION_H

#include "naive_pool.h"

#define OP_MAX_BLOCKS 64
#define OP_MAX_HASHES 16
#define OP_MAX_GROUPS 4

/* X(NAME, "text") */
#define OP_KIND_MAP(X)                                                                             \
    X(GET_NEW, "get_new_blocks")                                                                   \
    X(TOUCH, "touch")                                                                              \
    X(FREE, "free_blocks")                                                                         \
    X(HOLD, "hold")                                                                                \
    X(LET_GO, "let_go")                                                                            \
    X(CACHE, "cache_full_blocks")                                                                  \
    X(EVICT, "evict_blocks")                                                                       \
    X(RESET, "reset_prefix_cache")                                                                 \
    X(GET_CACHED, "get_cached_block")                                                              \
    X(GET_PREFIX, "get_cached_prefix")                                                             \
    X(INFO, "block_info")                                                                          \
    X(FREE_LIST, "get_all_free_blocks")                                                            \
    X(NEXT_FREE, "next_free")                                                                      \
    X(DRAW, "draw")

typedef enum op_kind {
#define MODEL_X(name, text) OP_##name,
    OP_KIND_MAP(MODEL_X)
#undef MODEL_X
        OP_NUM_KINDS
} op_kind;

/* Pointers to pass as NULL. */
enum { NULL_POOL = 1, NULL_BLOCKS = 2, NULL_HASHES = 4, NULL_GROUPS = 8, NULL_OUT = 16 };

typedef struct operation {
    op_kind kind;
    uint32_t nulls;       /* NULL_... bits */
    uint32_t num;         /* blocks listed or asked for; capacity; the block of INFO */
    uint32_t first;       /* DRAW */
    uint32_t num_cached;  /* CACHE */
    uint32_t num_full;    /* CACHE */
    uint32_t num_hashes;  /* CACHE, GET_PREFIX */
    uint32_t hash_len;    /* CACHE, GET_CACHED, GET_PREFIX; as passed */
    uint32_t hash_stride; /* bytes of a hash in the array: hash_len, or what its 0 stands for */
    uint32_t num_groups;  /* GET_CACHED, GET_PREFIX; CACHE uses groups[0] */
    uint32_t groups[OP_MAX_GROUPS];
    uint8_t hash_ids[OP_MAX_HASHES]; /* of the first OP_MAX_HASHES hashes */
    quire_block blocks[OP_MAX_BLOCKS];
} operation;

typedef struct op_result {
    int status;
    uint32_t count;                    /* num_hit, or how many are free */
    quire_block blocks[OP_MAX_BLOCKS]; /* what the call wrote */
    char text[NAIVE_MAX_BLOCKS + 8];
} op_result;

const char *op_kind_name(op_kind kind);
/* Whether the call can change a pool. */
bool op_kind_changes(op_kind kind);
/* The bytes of a hash. Those of numbers 2k and 2k+1 differ in the last byte alone, and hashes of
 * one number and different lengths are alike but for it: a key must be compared whole. */
void op_hash(uint32_t id, uint32_t len, unsigned char *out);

void operation_on_real(const operation *op, quire_pool *pool, op_result *result);
void operation_on_naive(const operation *op, naive_pool *pool, op_result *result);
bool op_result_equal(const operation *op, const op_result *a, const op_result *b);

void operation_print(const operation *op);
void op_result_print(const char *name, const operation *op, const op_result *result);

#endif

/* group/group.h - one group of layers: the blocks that its requests have.
 *
 *      rows   row 0   [ 7 ][ 3 ][ 9 ]                one row for each request that has blocks,
 *             row 1   [ - ][ 4 ][ 8 ][ 5 ]           max_row places each; - is the null block
 *             row 2                                  not in use
 *
 * What differs between the kinds of layers is in qr_group_ops, one file for each: full.c, window.c,
 * chunked.c, mamba.c, cross.c, rswa.c, ring.c. What they share is here and in group.c.
 *
 * An allocation is asked for and done in steps, each over all groups before the next begins:
 *
 *      need            how many free blocks it takes, as predicted and in fact   changes nothing
 *      remove_skipped  blocks outside the window are given back
 *      keep_hits       blocks of the hit get one more user
 *      add_external    new blocks for tokens that a connector brings
 *      allocate        new blocks for the tokens to be computed
 *      cache           full blocks get their keys
 *
 * Once `need` is not larger than what is free, the other steps cannot fail.
 *
 *      blocks[num_blocks..max_row) of a row mean nothing;  num_cached <= num_blocks
 *      a row that is not in use is all zero but for last_state, QR_NIL; its part is QR_NO_PART
 */
#ifndef QR_GROUP_GROUP_H
#define QR_GROUP_GROUP_H

#include "base/quirks.h"
#include "base/rules.h"
#include "block/pool.h"
#include "group/fresh.h"

#include <quire/cache.h>

typedef struct qr_row {
    uint32_t num_blocks; /* null blocks included */
    uint32_t num_cached; /* of them, from the start: those that have keys or need none */
    uint32_t last_state; /* Mamba, align mode: place of the state before the newest, or QR_NIL */
    uint32_t num_retired : 30; /* align mode: states before it were given back, by the rule */
    uint32_t is_settled : 1;   /* had hits or keys: no further hits (vLLM: in num_cached_block) */
    uint32_t has_state : 1;    /* Mamba, align mode: allocate has run */
} qr_row;

#define QR_MOST_RETIRED ((UINT32_C(1) << 30) - 1)
_Static_assert(sizeof(qr_row) == 16, "decoding reads one of each request");

/* Blocks of a row that hold a prefix which ends inside them, or elsewhere. */
typedef struct qr_part {
    uint32_t partial;    /* place of a block that others find, and that is copied before the next
                                tokens are written to it (cache/parts.h); or QR_NIL */
    uint32_t checkpoint; /* Mamba: place of the block for the state of a token inside the chunk */
    uint32_t checkpoint_end; /* and the tokens up to there; QR_NIL and 0: there is none */
    uint32_t keyed;     /* place of the last checkpoint that got a key, also of earlier chunks */
    uint32_t keyed_end; /* and the tokens that its key names; QR_NIL and 0: there is none */
} qr_part;

#define QR_NO_PART ((qr_part){.partial = QR_NIL, .checkpoint = QR_NIL, .keyed = QR_NIL})

/* What a request's own text says about the blocks that are worth a key. */
typedef struct qr_prompt {
    uint32_t num_tokens;      /* of the prompt */
    uint32_t shared_boundary; /* where other requests have gone on differently; 0: not known */
} qr_prompt;

/* One allocation, the same for all groups. */
typedef struct qr_want {
    uint32_t row;            /* QR_NIL: the request has none yet */
    uint32_t num_tokens;     /* that need a slot, lookahead included */
    uint32_t num_main;       /* the same without lookahead */
    uint32_t total_computed; /* local and external */
    uint32_t num_certain;    /* of them, those that will not be taken back */
    uint32_t num_kept; /* of them, those whose hits are kept as far as the window needs them */
    uint32_t num_external;
    uint32_t num_local;   /* the others of total_computed; 0 where no hit ends inside a block */
    uint32_t prefill_end; /* Mamba: a chunk that reaches it may have a checkpoint; 0: each chunk */
    uint32_t num_encoder_tokens;
    uint32_t num_prompt;          /* tokens of the prompt; 0: not known */
    const quire_block_span *hits; /* of all groups, or NULL */
    bool keeps_hits;              /* keep_hits will run: hits or external tokens */
    bool for_admission;           /* asked for a whole sequence */
    /* Groups whose external blocks the load writes, so that they need not be zeroed. */
    const uint32_t *unzeroed;
    uint32_t num_unzeroed;
} qr_want;

typedef struct qr_need {
    int64_t predicted; /* what is compared with the free blocks */
    int64_t taken;     /* what the steps take from the free queue */
    int status;        /* QUIRE_OK, or why the want cannot be */
} qr_need;

typedef struct qr_group qr_group;

/* A lookup: hashes of one request, and where the hits of each group go. */
typedef struct qr_lookup {
    const unsigned char *hashes;
    uint32_t num_hashes;
    const qr_group *groups; /* all of the cache's */
    uint32_t **out;         /* for each of them, max_row places */
} qr_lookup;

/* Groups with equal specs are looked up together: a block is a hit when all of them have it. */
typedef struct qr_group_set {
    const uint32_t *ids;
    uint32_t num_ids;
    bool is_full; /* one of the full kinds */
    bool is_eagle;
    bool eagle_done; /* in the fixed point: the drop was made for this candidate */
} qr_group_set;

typedef struct qr_group_ops {
    /* Tokens at the start of a request that no token after the first `computed` looks at; NULL:
     * none, ever. */
    uint32_t (*skipped_tokens)(const qr_group *group, uint32_t computed);
    /* The most computed tokens for which remove_skipped finds nothing more to give back, after it
     * ran for `computed`; NULL: any number. */
    uint32_t (*quiet_tokens)(const qr_group *group, uint32_t computed);
    qr_need (*need)(const qr_group *group, const qr_want *want);
    /* Returns how many blocks at the end of the row the new tokens got. */
    uint32_t (*allocate)(qr_group *group, const qr_want *want);
    void (*remove_skipped)(qr_group *group, uint32_t row, uint32_t computed);
    /* How many blocks remove_skipped would bring to the free queue. */
    uint32_t (*count_skipped)(const qr_group *group, uint32_t row, uint32_t computed);
    /* Called with the row as it is, before and after: blocks [first, end) have just got keys; NULL:
     * not. */
    void (*cached)(qr_group *group, uint32_t row, uint32_t first, uint32_t end);
    /* Called in a group that has_tails whenever blocks of num_tokens tokens may get keys, new ones
     * or not: gives the block where the prompt ends its key. */
    void (*cache_tail)(qr_group *group, uint32_t row, const quire_cache_request *request,
                       uint32_t num_tokens);
    /* The longest hit of the set's groups within max_tokens, in blocks; its length in tokens is a
     * multiple of `alignment`. With `eagle` the last block that matched is dropped. NULL: the kind
     * has no prefix caching. */
    uint32_t (*find)(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                     bool eagle, uint32_t alignment);
    /* The same in a group that takes_parts: in tokens, a multiple of those under one hash. */
    uint32_t (*find_parts)(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                           bool eagle);
} qr_group_ops;

struct qr_group {
    const qr_group_ops *ops;
    quire_pool *pool;
    uint32_t id;
    uint32_t block_size;    /* tokens in a block, over all context-parallel ranks */
    uint32_t hash_len;      /* bytes of a block's key */
    uint32_t hashes_joined; /* of one block */
    uint32_t hash_size;     /* tokens under one hash */
    /* The key of block i is at first_key + i * key_stride of a request's hashes: all hashes of the
     * block, joined, or the last of them alone. */
    uint32_t first_key;
    uint32_t key_stride;
    uint32_t max_row;
    uint32_t admission_cap; /* most blocks that a request holds at one time; UINT32_MAX: no cap */
    uint64_t quirks;
    bool enable_caching;
    bool is_eagle;
    bool drops_eagle;   /* lookups drop the last block: it, or a group of its set, is_eagle */
    bool drops_state;   /* Mamba: with EAGLE a prompt is resumed one hash before its last */
    bool takes_parts;   /* a hit may end inside a block */
    bool has_junctions; /* Mamba: a prefix that others have too ends inside a block with a key */
    bool has_tails;     /* blocks where a prompt ends get an extra key */
    bool has_mask;      /* not all full blocks get keys */
    bool has_own_keys;  /* one of these, or keys that do not lie side by side */
    bool tracks_new;
    qr_row *rows;
    qr_part *parts; /* of each row; NULL: there are none */
    uint32_t *blocks;
    qr_fresh *fresh;          /* blocks to be zeroed; shared by all groups */
    uint32_t *stamps;         /* Mamba: for each block the step in which its key was given */
    uint32_t step;            /* Mamba: the current one, from 1 on */
    uint32_t next_checkpoint; /* Mamba: of the allocation that is being made; 0: none */
    uint32_t *sinks;          /* SINK_FULL: the blocks that all requests share */
    uint32_t num_sinks;
    qr_rules rules;
    uint32_t alignment;    /* tokens that a hit is a multiple of */
    uint32_t multiple;     /* tokens that are whole blocks in every group */
    uint32_t extra_tokens; /* kept before the window, for drafts that are computed again */
    uint32_t retention;    /* interval of the boundaries whose blocks get keys, as configured */
    bool cache_eagles;     /* some group is_eagle */
    uint32_t *masked;      /* a row without the blocks that get no keys; shared by all groups */
    unsigned char *keys;   /* keys of a row, one behind the other; shared, NULL: they always are */
    const qr_prompt *prompts; /* of each row; shared, NULL: no rule asks for them */
    quire_layer_spec spec;
};

const qr_group_ops *qr_group_ops_of(quire_layer_kind kind);

static inline qr_part qr_group_part(const qr_group *group, uint32_t row)
{
    return group->parts == NULL || row == QR_NIL ? QR_NO_PART : group->parts[row];
}

static inline uint32_t qr_ceil_div(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

static inline uint32_t qr_clamp_u32(uint64_t n)
{
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static inline uint32_t *qr_group_row_blocks(const qr_group *group, uint32_t row)
{
    return group->blocks + (size_t)row * group->max_row;
}

/* Tokens that the key of block i of a row stands for, which may be fewer than the block has, or
 * than end there (group/checkpoint.h); 0: it has none. */
static inline uint32_t qr_group_keyed_tokens(const qr_group *group, uint32_t row, uint32_t i)
{
    const quire_pool *pool = group->pool;
    uint32_t block = qr_group_row_blocks(group, row)[i];
    if (!qr_block_has_key(&pool->queue.blocks[block]))
        return 0;
    qr_part part = qr_group_part(group, row);
    if (part.keyed == i)
        return part.keyed_end;
    uint32_t partial = pool->extras.heads == NULL ? 0 : pool->extras.heads[block].num_tokens;
    return partial > 0 ? partial : (i + 1) * group->block_size;
}

static inline const unsigned char *qr_lookup_hash(const qr_lookup *lookup, const qr_group *group,
                                                  uint32_t block)
{
    return lookup->hashes + group->first_key + (size_t)block * group->key_stride;
}

/* Blocks of the request's hashes that a lookup of max_tokens may use. */
static inline uint32_t qr_lookup_max_blocks(const qr_lookup *lookup, const qr_group *group,
                                            uint32_t max_tokens)
{
    uint32_t by_tokens = max_tokens / group->block_size;
    uint32_t by_hashes = lookup->num_hashes / group->hashes_joined;
    return by_tokens < by_hashes ? by_tokens : by_hashes;
}

/* Whether the want's hit ends inside a block of this group, which is then copied. */
static inline bool qr_want_ends_inside(const qr_group *group, const qr_want *want)
{
    return want->num_local != 0 && want->num_local % group->block_size != 0 && want->hits != NULL &&
           want->hits[group->id].count > 0;
}

/* QUIRE_OK, or why the block that such a hit ends in cannot be copied. */
static inline int qr_want_check_inside(const qr_group *group, const qr_want *want)
{
    quire_block_span hits = want->hits[group->id];
    bool is_last = hits.count == want->num_local / group->block_size + 1;
    return is_last && hits.ids[hits.count - 1] != QUIRE_NULL_BLOCK ? QUIRE_OK : QUIRE_E_ARGUMENT;
}

/* Blocks [first, end) of a row. */
typedef struct qr_saved_range {
    uint32_t first;
    uint32_t end;
} qr_saved_range;

/* The blocks of the first num_tokens tokens that the next token looks at: what is copied when a
 * request is moved to host memory. */
static inline qr_saved_range qr_group_saved_range(const qr_group *group, uint32_t num_tokens)
{
    uint32_t skipped =
        group->ops->skipped_tokens == NULL ? 0 : group->ops->skipped_tokens(group, num_tokens);
    return (qr_saved_range){skipped / group->block_size,
                            qr_ceil_div(num_tokens, group->block_size)};
}

/* ---- what most kinds share ------------------------------------------------- */

/* For so many tokens, which for most kinds are want->num_tokens. */
qr_need qr_group_need_for(const qr_group *group, const qr_want *want, uint32_t num_tokens);
uint32_t qr_group_allocate_for(qr_group *group, uint32_t row, uint32_t num_tokens);
/* n new blocks at the end of the row. */
void qr_group_take(qr_group *group, uint32_t row, uint32_t n);
/* Blocks [first, end) of a row are to be given back: from the last skipped one down to the first
 * that is already gone, before which all are. */
void qr_group_skipped_range(const qr_group *group, uint32_t row, uint32_t computed, uint32_t *first,
                            uint32_t *end);
void qr_group_remove_to(qr_group *group, uint32_t row, uint32_t computed);
uint32_t qr_group_count_to(const qr_group *group, uint32_t row, uint32_t computed);

qr_need qr_group_need(const qr_group *group, const qr_want *want);
uint32_t qr_group_allocate(qr_group *group, const qr_want *want);

/* Block i of the request, in all groups of the set, into their `out`; false when one has it not. */
bool qr_set_find_block(const qr_group_set *set, const qr_lookup *lookup, uint32_t i);
/* The same for the block in which the request's hash of number `hash` ends, by that hash. */
bool qr_set_find_part(const qr_group_set *set, const qr_lookup *lookup, uint32_t hash);
/* Blocks [first, end), up to the first that one has not; returns how many. */
uint32_t qr_set_find_run(const qr_group_set *set, const qr_lookup *lookup, uint32_t first,
                         uint32_t end);
void qr_set_fill_null(const qr_group_set *set, const qr_lookup *lookup, uint32_t end);
/* The most of num_blocks blocks whose tokens are a multiple of alignment. */
uint32_t qr_align_blocks(uint32_t num_blocks, uint32_t block_size, uint32_t alignment);

/* The hits of the want that are not skipped: their number, and where they begin. */
typedef struct qr_kept {
    uint32_t skipped; /* blocks at the front that become null blocks */
    uint32_t num_kept;
    const uint32_t *kept;
    uint32_t num_external; /* blocks that add_external takes */
} qr_kept;

qr_kept qr_group_kept_hits(const qr_group *group, const qr_want *want);
/* How many of the blocks have no user, null blocks aside. *status is set where one is none of the
 * pool's, or is not cached in this group. */
uint32_t qr_group_count_evictable(const qr_group *group, const uint32_t *blocks, uint32_t n,
                                  int *status);

/* ---- steps that are the same for all kinds --------------------------------- */

/* The most tokens of the row, lookahead included, for which an allocation changes nothing. */
uint32_t qr_group_quiet_tokens(const qr_group *group, uint32_t row, uint32_t computed);
void qr_group_init_row(qr_group *group, uint32_t row);
void qr_group_keep_hits(qr_group *group, const qr_want *want);
void qr_group_add_external(qr_group *group, const qr_want *want);
/* Gives full blocks their keys; the hashes are enough. */
void qr_group_cache(qr_group *group, uint32_t row, const quire_cache_request *request,
                    uint32_t num_tokens);
/* The block's key at num_tokens tokens of the request, which end in it. */
qr_partial_key qr_group_key_at(const qr_group *group, uint32_t block,
                               const quire_cache_request *request, uint32_t num_tokens);
/* Gives the block in which the prompt ends its extra key, in a full group that has_tails, once so
 * many tokens are cached. */
void qr_group_cache_tail(qr_group *group, uint32_t row, const quire_cache_request *request,
                         uint32_t num_tokens);
/* Those of blocks [first, end) of the row that have no key get one; the request shows the hash
 * before them too. */
void qr_group_cache_end(qr_group *group, uint32_t row, const quire_cache_request *request,
                        qr_saved_range range);
/* Gives all blocks back, last to first. */
void qr_group_free(qr_group *group, uint32_t row);

extern const qr_group_ops qr_full_ops;
extern const qr_group_ops qr_window_ops;
extern const qr_group_ops qr_chunked_ops;
extern const qr_group_ops qr_mamba_ops;
extern const qr_group_ops qr_cross_ops;
extern const qr_group_ops qr_rswa_ops;
extern const qr_group_ops qr_ring_ops;

/* The lookup of full attention, for kinds that give blocks back but find them in the same way. */
uint32_t qr_full_find(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                      bool eagle, uint32_t alignment);
uint32_t qr_full_find_parts(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                            bool eagle);
/* States cached from here on count as of a new step. */
void qr_mamba_new_step(qr_group *group);
/* The tokens up to the state inside the want's chunk that is kept, or 0. */
uint32_t qr_mamba_plan_checkpoint(const qr_group *group, const qr_want *want);
/* The state that has the block's key is written in this step. */
void qr_mamba_stamp(qr_group *group, uint32_t block);
/* What remove_skipped and count_skipped are for other kinds: gives back, or counts, the blocks
 * between a prompt of num_prompt tokens, which is not 0, and the window. */
void qr_rswa_remove_gap(qr_group *group, uint32_t row, uint32_t computed, uint32_t num_prompt);
bool qr_rswa_has_gap(const qr_group *group, uint32_t row, uint32_t computed, uint32_t num_prompt);
uint32_t qr_rswa_count_gap(const qr_group *group, uint32_t row, uint32_t computed,
                           uint32_t num_prompt);

#endif

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
 *      a row that is not in use is all zero but for last_state, QR_NIL
 */
#ifndef QR_GROUP_GROUP_H
#define QR_GROUP_GROUP_H

#include "base/quirks.h"
#include "base/rules.h"
#include "block/pool.h"

#include <quire/cache.h>

/* Blocks that were taken since they were last asked for: their pages are to be zeroed.
 *
 *      ids     [ 12 ][ 40 ][ 41 ][ 12 ]        in the order taken; a block given back and taken
 *      groups  [  0 ][  0 ][  2 ][  2 ]        again is there twice
 *
 * The list holds twice the pool. When nobody drains it, second mentions are dropped to make room;
 * after that at least half of it is free, so this costs O(1) for each block.
 */
typedef struct qr_fresh {
    uint32_t *ids;
    uint16_t *groups;
    uint32_t *sorted; /* where take puts them */
    uint32_t count;
    uint32_t capacity; /* 0: not tracked */
} qr_fresh;

void qr_fresh_carve(qr_fresh *fresh, qr_arena *arena, uint32_t num_blocks);
void qr_fresh_add(qr_fresh *fresh, quire_pool *pool, uint32_t group, const uint32_t *ids,
                  uint32_t n);
/* All of them, group by group, into `sorted`; returns how many. */
uint32_t qr_fresh_take(qr_fresh *fresh, uint32_t num_groups);

typedef struct qr_row {
    uint32_t num_blocks;  /* null blocks included */
    uint32_t num_cached;  /* of them, from the start: those that have keys or need none */
    uint32_t last_state;  /* Mamba, align mode: place of the state before the newest, or QR_NIL */
    uint32_t num_retired; /* Mamba, align mode: states before it were given back, by the rule */
    bool is_settled; /* had hits or keys: further hits cannot come (vLLM: in num_cached_block) */
    bool has_state;  /* Mamba, align mode: allocate has run */
} qr_row;

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
    /* Called whenever blocks of num_tokens tokens may get keys, new ones or not; NULL: not. */
    void (*reached)(qr_group *group, uint32_t row, uint32_t num_tokens);
    /* The longest hit of the set's groups within max_tokens, in blocks; its length in tokens is a
     * multiple of `alignment`. With `eagle` the last block that matched is dropped. NULL: the kind
     * has no prefix caching. */
    uint32_t (*find)(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                     bool eagle, uint32_t alignment);
} qr_group_ops;

struct qr_group {
    const qr_group_ops *ops;
    quire_pool *pool;
    uint32_t id;
    uint32_t block_size;    /* tokens in a block, over all context-parallel ranks */
    uint32_t hash_len;      /* bytes of a block's key */
    uint32_t hashes_joined; /* of one block */
    /* The key of block i is at first_key + i * key_stride of a request's hashes: all hashes of the
     * block, joined, or the last of them alone. */
    uint32_t first_key;
    uint32_t key_stride;
    uint32_t max_row;
    uint32_t admission_cap; /* most blocks that a request holds at one time; UINT32_MAX: no cap */
    uint64_t quirks;
    bool enable_caching;
    bool is_eagle;
    bool drops_eagle;  /* lookups drop the last block: it, or a group of its set, is_eagle */
    bool has_tails;    /* blocks where a prompt ends get an extra key */
    bool has_mask;     /* not all full blocks get keys */
    bool has_own_keys; /* one of these, or keys that do not lie side by side */
    bool tracks_new;
    qr_row *rows;
    uint32_t *blocks;
    qr_fresh *fresh;  /* blocks to be zeroed; shared by all groups */
    uint32_t *stamps; /* Mamba: for each block the step in which its key was given */
    uint32_t step;    /* Mamba: the current one, from 1 on */
    uint32_t *sinks;  /* SINK_FULL: the blocks that all requests share */
    uint32_t num_sinks;
    qr_rules rules;
    uint32_t alignment;    /* tokens that a hit is a multiple of */
    uint32_t extra_tokens; /* kept before the window, for drafts that are computed again */
    uint32_t retention;    /* interval of the boundaries whose blocks get keys, as configured */
    bool cache_eagles;     /* some group is_eagle */
    uint32_t *masked;      /* a row without the blocks that get no keys; shared by all groups */
    unsigned char *keys;   /* keys of a row, one behind the other; shared, NULL: they always are */
    const qr_prompt *prompts; /* of each row; shared, NULL: no rule asks for them */
    quire_layer_spec spec;
};

const qr_group_ops *qr_group_ops_of(quire_layer_kind kind);

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
/* Gives the block in which the prompt ends its extra key, in a group that has_tails, once so many
 * tokens are cached. */
void qr_group_cache_tail(qr_group *group, uint32_t row, const quire_cache_request *request,
                         uint32_t num_tokens);
/* Which blocks of [first, end) of a row can be hits, in a group that has_mask: the row's blocks, or
 * `masked` with null blocks in place of the others. */
const uint32_t *qr_group_mask(qr_group *group, uint32_t row, uint32_t first, uint32_t end);
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
/* States cached from here on count as of a new step. */
void qr_mamba_new_step(qr_group *group);
/* What remove_skipped and count_skipped are for other kinds: gives back, or counts, the blocks
 * between a prompt of num_prompt tokens, which is not 0, and the window. */
void qr_rswa_remove_gap(qr_group *group, uint32_t row, uint32_t computed, uint32_t num_prompt);
uint32_t qr_rswa_count_gap(const qr_group *group, uint32_t row, uint32_t computed,
                           uint32_t num_prompt);

#endif

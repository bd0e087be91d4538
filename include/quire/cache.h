/* quire/cache.h - the KV cache of an engine: the blocks of each request, in each group of layers.
 *
 *      request   num_tokens 37, block_size 16
 *
 *                 0..15    16..31   32..47
 *      group 0   [  7   ] [  3   ] [  9   ]       full attention: every block
 *      group 1   [ null ] [  4   ] [  8   ]       sliding window: older blocks are freed
 *      group 2   [ null ] [ null ] [  5   ]       Mamba: the newest state
 *
 *                      get_computed_blocks      allocate_slots           free
 *      a new prompt -------------------> hits -----------------> a seq -------> nothing
 *                    which of its blocks        hits kept,   |  ^  |      its blocks stay in the
 *                    are cached already         new blocks   |  +--+      prefix cache until
 *                                                            |  next      a request needs them
 *                                            fork            v  tokens
 *                                            --------> another seq that shares all blocks
 *
 * group    layers that share block tables: same kind, same block size (quire/plan.h makes groups
 *          from the layers of a model). The blocks of all groups come from one pool.
 * seq      the number of a request that has blocks; 0: the request has no blocks. The cache assigns
 *          the number at the request's first allocate_slots and releases it at free. A released
 *          number is valid again only after its place was used 2^31 times more.
 * hit      tokens at the start of a prompt whose blocks are cached in every group that needs them.
 * computed tokens whose keys and values are in memory.
 * skipped  tokens that no later token attends to (outside the window). Their blocks are freed and
 *          replaced by the null block.
 *
 *      tokens   | computed | new hits | external | new | lookahead |
 *                 request    from the   from a     to be   room for
 *                 has them   cache      connector  computed drafts
 *
 * The decisions are the decisions of vLLM's KVCacheManager, block id for block id, of the release
 * that the profile names, with the bugs that show in decisions (quire/config.h lists them).
 * QUIRE_PROFILE_DEFAULT has none of these bugs, and of two rules the better one. With
 * QUIRE_PROFILE_VLLM_0_32, groups of kinds TQ_FULL, SINK_FULL and Mamba groups of mode ALL are
 * refused; in the other profiles, groups of kinds RSWA, CIRCULAR_BUFFER and HIDDEN_STATE.
 *
 * Cost: allocate_slots is O(blocks that change), free O(blocks), get_computed_blocks O(blocks up to
 * the first miss). Nothing is allocated after creation.
 *
 * Threads: one writer thread. Any thread may call quire_cache_get_usage.
 *
 * Statuses: a call that does not return QUIRE_OK has changed nothing. The one exception is in the
 * vLLM profiles: allocate_slots frees the blocks outside the window even if it then returns
 * QUIRE_NO_SPACE, as vLLM does. If a required pointer is NULL, a call returns
 * QUIRE_E_ARGUMENT. A seq that the cache does not know gives QUIRE_E_UNKNOWN_SEQ.
 */
#ifndef QUIRE_CACHE_H
#define QUIRE_CACHE_H

#include "config.h"
#include "error.h"
#include "layer.h"
#include "memory.h"
#include "pool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_cache quire_cache;

/* The number of a request that has blocks; 0: no blocks. */
typedef uint64_t quire_seq;

/* Where the KV of a request is. */
typedef enum quire_location {
    QUIRE_LOCATION_NONE = 0,   /* no token is computed, or nothing is kept */
    QUIRE_LOCATION_DEVICE = 1, /* in blocks */
    QUIRE_LOCATION_HOST = 2    /* in host slots */
} quire_location;

/* Blocks of one group, in the order of the tokens. */
typedef struct quire_block_span { /* final */
    const quire_block *ids;
    uint32_t count;
} quire_block_span;

/* ---- making a cache ----------------------------------------------------- */

typedef struct quire_group_config { /* final */
    quire_layer_spec spec;          /* of its layers; ENCODER_ONLY layers have no group */
    uint32_t is_eagle;              /* 1: the group has draft layers (EAGLE, MTP) */
} quire_group_config;

typedef struct quire_cache_config {
    size_t size;
    uint32_t num_blocks;              /* with the null block */
    const quire_group_config *groups; /* copied; NULL and 0 for a model without a KV cache */
    uint32_t num_groups;
    uint32_t max_model_len; /* the most tokens of a request */
    /* The most tokens of a step, all requests together; 0 = max_model_len. */
    uint32_t max_num_batched_tokens;
    uint32_t max_encoder_tokens; /* of one request; required with CROSS groups */
    uint32_t max_requests;       /* the most requests that have blocks at a time; 0 = 256 */
    /* Tokens under one hash; 0 = the block size of the groups, or their greatest common divisor if
     * block sizes differ. Beside others, CIRCULAR_BUFFER groups do not count. */
    uint32_t hash_block_size;
    uint32_t digest_bytes;       /* of one hash; 0 = as the scheduler's hasher, or 32 */
    quire_switch enable_caching; /* default on */
    /* Default off. On: if no group has is_eagle, every group counts as a group with draft layers.
     */
    quire_switch use_eagle;
    quire_switch log_stats; /* default off: no quire_prefix_stats */
    /* For take_new_block_ids. Default on if there is a Mamba group, because its pages must be
     * zeroed before use. Lists the blocks of FULL and TQ_FULL groups, in QUIRE_PROFILE_VLLM_0_32
     * the blocks of all groups but Mamba and CIRCULAR_BUFFER groups. */
    quire_switch track_new_blocks;
    /* Decode context parallelism; 0 = 1. Above 1: one group of a full kind. In
     * QUIRE_PROFILE_VLLM_0_32 groups of full kinds and Mamba groups; blocks of the latter do not
     * grow. */
    uint32_t dcp_world_size;
    /* Prefill context parallelism; likewise. In QUIRE_PROFILE_VLLM_0_32 groups of full kinds, whose
     * blocks do not grow with it. */
    uint32_t pcp_world_size;
    quire_profile profile;

    /* Features beyond vLLM 0.20.0; all are off by default. */
    /* Part of the blocks that a new request must leave free, 0 to 1. Not applied while no request
     * has blocks. In QUIRE_PROFILE_VLLM_0_32 it applies where has_scheduled_reqs is set. */
    double watermark;
    double admit_below;   /* quire_cache_get_pressure: 0 = 0.80 */
    double preempt_above; /* 0 = 0.95 */
    /* The most pending copies on write; 0: no fork. QUIRE_E_CONFIG in a scheduler with
     * QUIRE_PROFILE_VLLM_0_20. Copies of blocks that a hit ends in (quire_cache_take_copies) need
     * none. */
    uint32_t max_copies;
    uint32_t event_log_bytes; /* bytes of the log for quire_cache_take_events; 0: no log */

    /* Called inside the call that causes the event; must not call this cache, its pool or its
     * scheduler. NULL: no events. */
    void (*on_event)(void *user, const quire_event *event);
    void *event_user;
    quire_hooks hooks;

    /* Slots of a host buffer for quire_cache_move_out; one slot holds a block of one group. At most
     * 2^28; 0: none. QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20, with Mamba or CROSS groups, and in
     * the cache of a scheduler, which moves requests itself (quire_sched_config.num_swap_blocks).
     */
    uint32_t num_host_blocks;

    /* Which blocks of window groups, and in QUIRE_PROFILE_VLLM_0_32 of Mamba groups, get keys, so
     * that a later request can use them. 0: the blocks at the end of the prompt, and where a prefix
     * is known to be shared (shared_prefix_boundary). A multiple of all block sizes: also the
     * blocks at each multiple of it. QUIRE_RETAIN_ALL: all that a hit can use. The scheduler of the
     * default profile adds the blocks where a request ends or is preempted.
     * QUIRE_PROFILE_VLLM_0_20 gives all blocks their keys: 0. */
    uint32_t prefix_cache_retention_interval;
    /* QUIRE_PROFILE_VLLM_0_32, multi-module MTP: tokens that the draft modules look ahead while
     * they compute a prompt, with EAGLE at most the block size. The last of them but one are
     * computed again, so that their blocks get keys later. 0 in other profiles. */
    uint32_t num_prefill_lookahead;
    /* The most tokens of all steps that are scheduled and not yet updated: what a window's blocks
     * must hold besides the window. 0 = max_num_batched_tokens. */
    uint32_t max_in_flight_tokens;
    /* QUIRE_PROFILE_VLLM_0_32, Mamba groups in mode ALIGN with EAGLE: the state at
     * shared_prefix_boundary is kept too if that is inside a block. Default off. */
    quire_switch mamba_shared_prefix_checkpoint;
} quire_cache_config;

/* For prefix_cache_retention_interval: vLLM's None. */
#define QUIRE_RETAIN_ALL UINT32_MAX

#define QUIRE_CACHE_CONFIG_INIT QUIRE_SIZED_INIT(quire_cache_config)

/* Create a cache: see quire/memory.h. Memory: the memory of the pool, and for each request and
 * group 4 bytes for each block of max_model_len. QUIRE_E_CONFIG also for configs that vLLM refuses:
 * caching with a CROSS group, or with several groups that are all circular buffers; chunked local
 * layers with EAGLE, or with groups of another block size; a hash block size that does not divide
 * the block sizes; several equal groups with caching on; more sink blocks than the pool has.
 * QUIRE_E_RANDOM if the random hook fails. _destroy frees what _create took; NULL: does nothing. */
QUIRE_API int quire_cache_create(const quire_cache_config *config, const quire_allocator *allocator,
                                 quire_cache **cache);
static inline size_t quire_cache_bytes(const quire_cache_config *config)
{
    size_t bytes = 0;
    quire_cache *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_cache_create(config, &measure, &none);
    return bytes;
}
QUIRE_API void quire_cache_destroy(quire_cache *cache);

/* ---- a request, as the cache sees it ------------------------------------ */

/* A request. The caller keeps one struct for each request and updates it. */
typedef struct quire_cache_request { /* final */
    /* 0 at the start; allocate_slots, fork, move_out, move_in and free write it. */
    quire_seq seq;
    uint32_t num_tokens;          /* prompt and output; 1 or more */
    uint32_t num_computed_tokens; /* 0 before the first step and after preemption */
    /* One hash for every full hash block of its tokens, digest_bytes each. */
    const void *hashes;
    uint32_t num_hashes;
    /* Number of the first hash in hashes; 0 for get_computed_blocks. Otherwise a multiple of the
     * hashes that every group joins, and below the hashes of the blocks that have their keys in
     * every group, the blocks of the hit included. If not: QUIRE_E_RANGE. */
    uint32_t first_hash;
    uint32_t was_preempted;       /* for the stats */
    uint32_t skip_reading_prefix; /* 1: get_computed_blocks finds nothing */
    void *user;                   /* returned in events, as their request */
} quire_cache_request;

/* ---- finding ------------------------------------------------------------ */

/* Finds the longest hit of the request: for each group its blocks, and the number of tokens. Blocks
 * that a group does not need are null blocks at the start. The hit has at most num_tokens - 1
 * tokens, so that one token is left to compute. blocks has room for num_groups spans, which are
 * valid until the next call of this function. The blocks are not kept: pass them to allocate_slots
 * before anything else changes the cache. With caching off, or with skip_reading_prefix, all spans
 * are empty and *num_tokens is 0. Returns QUIRE_E_ARGUMENT if num_tokens is 0 or first_hash is not
 * 0, QUIRE_E_RANGE if a field of the request exceeds max_model_len. */
QUIRE_API int quire_cache_get_computed_blocks(quire_cache *cache,
                                              const quire_cache_request *request,
                                              quire_block_span *blocks, uint32_t *num_tokens);

/* ---- allocating --------------------------------------------------------- */

typedef struct quire_allocate_params {
    size_t size;
    uint32_t num_new_tokens;          /* tokens to compute, drafts included */
    uint32_t num_new_computed_tokens; /* tokens of the hit */
    /* Blocks of the hit, num_groups spans; NULL: no hit. */
    const quire_block_span *new_computed_blocks;
    uint32_t num_lookahead_tokens;
    uint32_t num_external_computed_tokens; /* tokens that a connector loads */
    uint32_t num_encoder_tokens;           /* for CROSS groups */
    uint32_t delay_cache_blocks;           /* 1: do not give the full blocks their keys yet */
    /* The last num_uncertain_tokens computed tokens may still be removed (rejected drafts): the
     * window stays behind them. */
    uint32_t num_uncertain_tokens;
    /* 1: quire_cache_can_allocate answers for all tokens of the request, whatever num_new_tokens
     * is. quire_cache_allocate_slots reads this field in QUIRE_PROFILE_VLLM_0_32 only: if not all
     * tokens fit, returns QUIRE_NO_SPACE and changes nothing. */
    uint32_t full_sequence_must_fit;
    /* Free blocks that this allocation must leave to other requests. */
    uint32_t reserved_blocks;
    /* QUIRE_PROFILE_VLLM_0_32: 1: the request waits or was preempted, and others are scheduled: the
     * watermark applies. Other profiles apply it to a request without blocks. */
    uint32_t has_scheduled_reqs;
    /* Groups whose external blocks are written by a load that ends after this step: they are not
     * listed to be zeroed. NULL: none. */
    const uint32_t *skip_zeroing_group_ids;
    uint32_t num_skip_zeroing_group_ids;
    /* For the keys of blocks (not in QUIRE_PROFILE_VLLM_0_20); 0: as the request's last call said.
     * RSWA groups keep the blocks of the prompt. */
    uint32_t num_prompt_tokens;      /* at first: all tokens */
    uint32_t shared_prefix_boundary; /* at first: none, see quire_cache_counts */
} quire_allocate_params;

#define QUIRE_ALLOCATE_PARAMS_INIT QUIRE_SIZED_INIT(quire_allocate_params)

/* Allocates blocks for new tokens: keeps the blocks of the hit, frees the blocks outside the
 * window, takes new blocks, and gives full blocks their keys (for at most num_tokens tokens, which
 * are certain). new_blocks, if not NULL, gets the blocks for new and lookahead tokens: num_groups
 * spans, valid until the request's blocks change again. The first call of a request writes
 * request->seq.
 *
 *      QUIRE_NO_SPACE      not enough free blocks (or, with Mamba, the state of the hit is computed
 *                          in this very step: retry in the next step)
 *      QUIRE_FULL          max_requests requests have blocks, or max_copies copies are pending
 *      QUIRE_E_ARGUMENT    num_new_tokens and num_external_computed_tokens are both 0 (and in
 *                          QUIRE_PROFILE_VLLM_0_32 num_new_computed_tokens), or a request that has
 *                          blocks has a hit
 *      QUIRE_E_STALE_HIT   a block of the hit was evicted, or belongs to another group
 *      QUIRE_E_RANGE       more tokens than max_model_len, fewer hashes than full blocks, or more
 *                          encoder tokens than max_encoder_tokens
 *      QUIRE_E_DISABLED    a hit, but caching is off
 *      QUIRE_E_UNKNOWN_SEQ request->seq is not 0 and unknown
 *      QUIRE_E_PREDICTION  vLLM would raise an exception here, because it predicted too few
 *                          blocks (in the vLLM profiles only) */
QUIRE_API int quire_cache_allocate_slots(quire_cache *cache, quire_cache_request *request,
                                         const quire_allocate_params *params,
                                         quire_block_span *new_blocks);

/* Returns what quire_cache_allocate_slots would return now for the same arguments. Changes nothing,
 * also in the vLLM profiles. For one more token of a decoding request: num_new_tokens
 * 1. With full_sequence_must_fit see quire_cache_can_fit_full_sequence. */
QUIRE_API int quire_cache_can_allocate(const quire_cache *cache, const quire_cache_request *request,
                                       const quire_allocate_params *params);

/* Returns QUIRE_OK if all tokens of the request would fit now, otherwise QUIRE_NO_SPACE. Use it
 * before the first chunk of a long prompt. Reads the hit, the external and the encoder tokens of
 * params. Errors as quire_cache_allocate_slots. */
static inline int quire_cache_can_fit_full_sequence(const quire_cache *cache,
                                                    const quire_cache_request *request,
                                                    const quire_allocate_params *params)
{
    if (params == NULL)
        return QUIRE_E_ARGUMENT;
    quire_allocate_params whole = *params;
    whole.full_sequence_must_fit = 1;
    return quire_cache_can_allocate(cache, request, &whole);
}

/* Gives the full blocks of the first num_computed_tokens tokens their keys: after a load with
 * delay_cache_blocks. With caching off, does nothing. Returns QUIRE_E_RANGE if the request has
 * fewer hashes or blocks, QUIRE_E_UNKNOWN_SEQ if the request has no blocks. */
QUIRE_API int quire_cache_cache_blocks(quire_cache *cache, const quire_cache_request *request,
                                       uint32_t num_computed_tokens);

/* ---- freeing ------------------------------------------------------------ */

/* Frees all blocks of the request, group by group, last to first, and sets request->seq to 0. If
 * the request was moved out, frees its host slots. If request->seq is 0, does nothing. */
QUIRE_API int quire_cache_free(quire_cache *cache, quire_cache_request *request);

/* Like quire_pool_reset_prefix_cache. Sink blocks do not count as in use. Returns QUIRE_BUSY while
 * a block is in use or a request is moved out. */
QUIRE_API int quire_cache_reset_prefix_cache(quire_cache *cache);

/* Call this at the start of a step: Mamba states that the last step computed can be hits from now
 * on. */
QUIRE_API int quire_cache_new_step_starts(quire_cache *cache);

/* ---- looking ------------------------------------------------------------ */

/* All blocks of a request: num_groups spans, valid until the request's blocks change. All spans are
 * empty for seq 0. */
QUIRE_API int quire_cache_get_blocks(const quire_cache *cache, quire_seq seq,
                                     quire_block_span *blocks);

/* The place of one token of a request: block `block`, which is entry `index` of the request's row
 * in the group, at `offset` in the block. quire_layout_token_address gives the address of the
 * token's KV in a layer. With context parallelism a block, and so the offset, covers positions of
 * all ranks: see quire/table.h.
 *
 *      QUIRE_MISS           the entry is the null block: the token is outside the window
 *      QUIRE_E_UNKNOWN_SEQ  the request has no blocks, or was moved out
 *      QUIRE_E_RANGE        the group does not exist, or no block holds this token
 *      QUIRE_E_ARGUMENT     a Mamba group: a state does not belong to one token; a CIRCULAR_BUFFER
 *                           group: its block holds the newest tokens, wherever they begin */
typedef struct quire_token_place { /* final */
    quire_block block;
    uint32_t index;
    uint32_t offset;
} quire_token_place;

QUIRE_API int quire_cache_find_token(const quire_cache *cache, quire_seq seq, uint32_t group,
                                     uint32_t token, quire_token_place *place);

/* One block of a request: entry `index` of the request's row in the group. */
typedef struct quire_cache_block { /* final */
    /* DEVICE; HOST if the request was moved out; NONE: the entry is the null block, nothing is
     * kept. */
    quire_location location;
    uint32_t block;      /* block id; HOST: slot; UINT32_MAX: none */
    uint32_t prev;       /* the same for the entry before it in the row */
    uint32_t ref_cnt;    /* requests, pending copies and touches that use the block; HOST: 1 */
    uint32_t num_holds;  /* holds on it (quire_pool_hold) */
    uint32_t has_key;    /* 1: the block has a key in the prefix cache */
    uint32_t num_tokens; /* computed tokens of the request in this block */
    uint32_t block_size; /* tokens that the block has room for */
} quire_cache_block;

/* Describes one block of a request. Reads seq and num_computed_tokens of the request. Returns
 * QUIRE_E_UNKNOWN_SEQ, or QUIRE_E_RANGE if the group does not exist or index is past the end of the
 * row. Cost: O(1) on the device, O(blocks of the request) on the host. */
QUIRE_API int quire_cache_get_block(const quire_cache *cache, const quire_cache_request *request,
                                    uint32_t group, uint32_t index, quire_cache_block *block);

/* Totals over all requests. */
typedef struct quire_cache_totals {
    size_t size;
    uint32_t num_seqs; /* requests that have blocks */
    /* Entries in all rows, without null blocks: a block that n rows list counts n times. */
    uint64_t num_table_blocks;
    uint32_t num_moved_out;        /* requests that were moved to host slots */
    uint32_t num_host_blocks;      /* slots in use */
    uint32_t num_free_host_blocks; /* free slots */
    uint32_t num_copies;           /* pending copies on write */
    uint32_t watermark_blocks;     /* blocks that a new request must leave free */
} quire_cache_totals;

#define QUIRE_CACHE_TOTALS_INIT QUIRE_SIZED_INIT(quire_cache_totals)

/* Computes the totals. Cost: a pass over the rows of all requests. */
QUIRE_API int quire_cache_get_totals(const quire_cache *cache, quire_cache_totals *totals);

/* For each group, the number of blocks at the start of the request that all requests with blocks
 * share (cascade attention). 0 for groups that are not of a full kind, and with caching off. */
QUIRE_API int quire_cache_get_num_common_prefix_blocks(const quire_cache *cache, quire_seq seq,
                                                       uint32_t *num_blocks);

/* The blocks of FULL and TQ_FULL groups that were taken since the last call, group by group, in
 * order; the engine must zero them. A block that was taken twice may be listed twice. ids is valid
 * until the next allocate_slots. At most 2 x num_blocks blocks. */
QUIRE_API int quire_cache_take_new_block_ids(quire_cache *cache, quire_block_span *ids);

typedef struct quire_cache_counts { /* final */
    uint32_t num_groups;
    uint32_t hash_block_size; /* tokens under one hash */
    uint32_t num_seqs;        /* requests that have blocks */
    /* Tokens of the longest hit that one group had in the last get_computed_blocks, if it is longer
     * than the hit of all groups together; otherwise 0. Blocks there are worth a key: say so in
     * quire_allocate_params. QUIRE_PROFILE_VLLM_0_20: 0. */
    uint32_t shared_prefix_boundary;
} quire_cache_counts;

/* All 0 if cache is NULL. Cost: O(1). */
QUIRE_API quire_cache_counts quire_cache_get_counts(const quire_cache *cache);

/* The pool, for the functions of quire/pool.h; NULL if cache is NULL. Blocks that are touched
 * through quire_pool_touch must be freed through quire_pool_free_blocks. */
QUIRE_API quire_pool *quire_cache_get_pool(const quire_cache *cache);
/* The blocks of the pool by state. Any thread. */
static inline quire_usage quire_cache_get_usage(const quire_cache *cache)
{
    return quire_pool_get_usage(quire_cache_get_pool(cache));
}

/* What prefix caching saved, in tokens. A request counts once, when it gets its first blocks. In
 * QUIRE_PROFILE_VLLM_0_20 it counts at every get_computed_blocks. */
typedef struct quire_prefix_stats { /* final */
    uint32_t was_reset;             /* 1: reset_prefix_cache succeeded */
    uint64_t requests;
    uint64_t queries;
    uint64_t hits;
    uint64_t preempted_requests;
    uint64_t preempted_queries;
    uint64_t preempted_hits;
} quire_prefix_stats;

/* Returns the numbers since the last call, and sets them to 0. Returns QUIRE_E_DISABLED without
 * log_stats. */
QUIRE_API int quire_cache_take_prefix_stats(quire_cache *cache, quire_prefix_stats *stats);

/* Calls visit for each event since the last call, oldest first, and removes the events from the
 * log. The events are the same that on_event gets. *lost, if not NULL, is the number of events that
 * the log had no room for: if it is not 0, the listener must start again from an empty state.
 * Returns QUIRE_E_DISABLED without event_log_bytes. */
QUIRE_API int quire_cache_take_events(quire_cache *cache,
                                      void (*visit)(void *user, const quire_event *event),
                                      void *user, uint64_t *lost);

/* Walks the whole cache and checks every invariant. Returns QUIRE_OK or QUIRE_E_CORRUPT. Blocks
 * that were touched through quire_cache_get_pool are valid. */
QUIRE_API int quire_cache_check(const quire_cache *cache);

/* ---- fork and copy on write --------------------------------------------- */

/* The child gets all blocks of the parent, shared: nothing is copied. Writes child->seq; the caller
 * sets the other fields of the child.
 *
 *      QUIRE_FULL           max_requests requests have blocks
 *      QUIRE_E_UNKNOWN_SEQ  the parent has no blocks
 *      QUIRE_E_DISABLED     max_copies is 0
 *      QUIRE_E_ARGUMENT     a Mamba group in mode ALIGN or with speculative blocks, a
 *                           CIRCULAR_BUFFER group, or the child already has blocks */
QUIRE_API int quire_cache_fork(quire_cache *cache, const quire_cache_request *parent,
                               quire_cache_request *child);

/* Call this before tokens [first_token, first_token + num_tokens) of a request are written. Each of
 * their blocks that another request shares, or that the prefix cache finds, is replaced by a
 * private copy. allocate_slots does this itself for the tokens that it allocates. Returns
 * QUIRE_NO_SPACE, QUIRE_FULL if max_copies copies are pending, QUIRE_E_UNKNOWN_SEQ, or
 * QUIRE_E_RANGE if a token is past max_model_len. */
QUIRE_API int quire_cache_copy_on_write(quire_cache *cache, quire_seq seq, uint32_t first_token,
                                        uint32_t num_tokens);

/* A page to copy, in all layers of the group, before the next forward pass. */
typedef struct quire_block_copy { /* final */
    quire_block from;
    quire_block to;
    uint32_t group;
} quire_block_copy;

/* The pending copies, in any order: no block is both source and target. Until this call source and
 * target are not reused; this call ends that. So make the copies before the next forward pass. If
 * the only request that has the target of a copy is freed, the copy is dropped.
 *
 * QUIRE_PROFILE_VLLM_0_32 has copies without forks. If a Mamba group in mode ALIGN has several
 * hashes in a block, a hit may end inside a block: the request gets a copy of the block. Where the
 * state at the end of a prompt is kept, the copy is the block that later requests find. Make these
 * copies in the order of the list, after new blocks were zeroed. No copy is dropped.
 *
 * The list is valid until the next allocate_slots, copy_on_write or fork. A scheduler takes the
 * copies of its cache itself: see quire_step.copies. */
QUIRE_API int quire_cache_take_copies(quire_cache *cache, const quire_block_copy **copies,
                                      uint32_t *num_copies);

/* ---- moving a request to host memory ------------------------------------- */

/* For engines without a scheduler; a scheduler has quire_sched_preempt and quire_sched_offload.
 *
 *      free blocks   1024 ── allocate_slots, 100 tokens ──► 1017
 *                    1017 ── move_out ───────────────────► 1024      7 host slots in use
 *                    1024 ── move_in ────────────────────► 1017      0 host slots in use
 *
 * The caller makes the copies in the order of the calls, and all of them before the next forward
 * pass: first the copies of move_out and move_in, then the copies of quire_cache_take_copies. New
 * blocks (quire_cache_take_new_block_ids) are zeroed before the copies of a move_in. */
typedef struct quire_block_move { /* final */
    quire_block block;            /* its page in all layers of the group */
    uint32_t slot;                /* of the host buffer, 0 to num_host_blocks - 1 */
    uint32_t group;
} quire_block_move;

/* Moves a request out: frees its blocks, and lists the copies from blocks to host slots that keep
 * its computed tokens (request->num_computed_tokens; blocks outside the window are not kept). From
 * then on request->seq names the slots: only move_in, can_move_in, get_block, location and free
 * accept it. A block that another request shares is copied too and stays with the other request.
 * Loads into the request's blocks must have ended. moves is valid until the next move.
 *
 *      QUIRE_MISS           no token is computed: use quire_cache_free
 *      QUIRE_FULL           not enough free host slots
 *      QUIRE_E_DISABLED     num_host_blocks is 0
 *      QUIRE_E_UNKNOWN_SEQ  the request has no blocks, or was already moved out
 *      QUIRE_E_RANGE        more computed tokens than the request's blocks hold */
QUIRE_API int quire_cache_move_out(quire_cache *cache, quire_cache_request *request,
                                   const quire_block_move **moves, uint32_t *num_moves);

/* Moves a request in: allocates blocks for a request that was moved out, and lists the copies from
 * host slots to blocks. Blocks that the prefix cache still has are shared instead of copied.
 * num_computed_tokens must be the same as at move_out. The watermark applies, as for a new request.
 * moves is valid until the next move. With moves and num_moves NULL the call only says what it
 * would return now.
 *
 *      QUIRE_NO_SPACE       not enough free blocks
 *      QUIRE_FULL           max_requests requests have blocks
 *      QUIRE_E_UNKNOWN_SEQ  the request was not moved out
 *      QUIRE_E_ARGUMENT     num_computed_tokens has changed
 *      QUIRE_E_RANGE        fewer hashes than full blocks */
QUIRE_API int quire_cache_move_in(quire_cache *cache, quire_cache_request *request,
                                  const quire_block_move **moves, uint32_t *num_moves);
/* Returns what move_in would return now. Invalidates the spans of get_computed_blocks; changes
 * nothing else. */
static inline int quire_cache_can_move_in(quire_cache *cache, const quire_cache_request *request)
{
    quire_cache_request copy;
    if (request == NULL)
        return QUIRE_E_ARGUMENT;
    copy = *request;
    return quire_cache_move_in(cache, &copy, NULL, NULL);
}

/* Where the blocks of a request are. NONE for seq 0 and for a seq that the cache does not know. */
static inline quire_location quire_cache_get_location(const quire_cache *cache, quire_seq seq)
{
    const uint32_t no_group = UINT32_MAX; /* QUIRE_E_RANGE: the request is known */
    quire_cache_request request;
    quire_cache_block block;
    quire_token_place place;
    memset(&request, 0, sizeof request);
    request.seq = seq;
    if (quire_cache_find_token(cache, seq, no_group, 0, &place) == QUIRE_E_RANGE)
        return QUIRE_LOCATION_DEVICE;
    return quire_cache_get_block(cache, &request, no_group, 0, &block) == QUIRE_E_RANGE
               ? QUIRE_LOCATION_HOST
               : QUIRE_LOCATION_NONE;
}

/* ---- memory pressure ---------------------------------------------------- */

typedef struct quire_pressure { /* final */
    double level;               /* used part of the pool: 0: all blocks are free, 1: none is free */
    /* 0 from the moment that level exceeds preempt_above until level is below admit_below. The gap
     * keeps an engine from admitting and preempting in turn. */
    uint32_t should_admit;
    uint32_t should_preempt; /* 1: level is above preempt_above */
} quire_pressure;

QUIRE_API int quire_cache_get_pressure(quire_cache *cache, quire_pressure *pressure);

#ifdef __cplusplus
}
#endif
#endif

/* quire/cache.h - the KV cache of an engine: which blocks each request has, group by group.
 *
 *      request   num_tokens 37, block_size 16
 *
 *                 0..15    16..31   32..47
 *      group 0   [  7   ] [  3   ] [  9   ]       full attention: every block
 *      group 1   [ null ] [  4   ] [  8   ]       sliding window: older blocks are given back
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
 * group    layers that share block tables: same kind, same block size (quire/plan.h makes them from
 *          a model's layers). Blocks of all groups come from one pool.
 * seq      a request that has blocks, by number. 0: it has none. The cache gives the number out at
 *          the request's first allocate_slots and takes it back at free. A number that was freed is
 *          valid again only after its place was used 2^31 times more.
 * hit      tokens at the start of a prompt whose blocks are cached in every group that needs them.
 * computed tokens whose keys and values are in memory.
 * skipped  tokens that no later token will look at (outside the window). Their blocks are given
 *          back, and the null block stands in their place.
 *
 *      tokens   | computed | new hits | external | new | lookahead |
 *                 request    from the   from a     to be   room for
 *                 has them   cache      connector  computed drafts
 *
 * Decisions are the same as in vLLM 0.20.0's KVCacheManager, block id for block id: with
 * QUIRE_PROFILE_VLLM_0_20 including the bugs that show in decisions (quire/config.h names them),
 * with QUIRE_PROFILE_DEFAULT without.
 *
 * Cost: allocate_slots is O(blocks that change), free O(blocks), get_computed_blocks O(blocks up to
 * the first miss). Nothing is allocated after creation.
 *
 * Threads: one writer. quire_cache_usage and quire_cache_get_usage: any thread.
 *
 * Answers: a call that does not return QUIRE_OK has changed nothing, with one exception that
 * QUIRE_QUIRK_TRIM_ON_FAILURE names. NULL where something must be is QUIRE_E_ARGUMENT.
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

/* A request that has blocks; 0 is none. */
typedef uint64_t quire_seq;

/* Where the KV of a request is. */
typedef enum quire_location {
    QUIRE_LOCATION_NONE = 0,   /* nothing is computed, or nothing is kept */
    QUIRE_LOCATION_DEVICE = 1, /* in its blocks */
    QUIRE_LOCATION_HOST = 2    /* in host slots */
} quire_location;

/* Blocks of one group, in the order of the tokens. */
typedef struct quire_block_span {
    const quire_block *ids;
    uint32_t count;
} quire_block_span;

/* ---- making a cache ----------------------------------------------------- */

typedef struct quire_group_config {
    quire_layer_spec spec; /* of its layers; ENCODER_ONLY has no group */
    uint32_t is_eagle;     /* 1: holds draft layers (EAGLE, MTP) */
} quire_group_config;

typedef struct quire_cache_config {
    size_t size;
    uint32_t num_blocks;              /* the null block included */
    const quire_group_config *groups; /* copied; NULL and 0 for a model without KV cache */
    uint32_t num_groups;
    uint32_t max_model_len;          /* tokens in a request */
    uint32_t max_num_batched_tokens; /* tokens in a step, of all requests; 0 = max_model_len */
    uint32_t max_encoder_tokens;     /* of one request; needed with CROSS groups */
    uint32_t max_requests;           /* that have blocks at one time; 0 = 256 */
    uint32_t hash_block_size;        /* tokens under one hash; 0 = the groups' block size when that
                                        is one, else its greatest common divisor */
    uint32_t digest_bytes;           /* of one hash; 0 = 32 */
    quire_switch enable_caching;     /* default on */
    quire_switch use_eagle;          /* default off; on: the groups with is_eagle, or all if none */
    quire_switch log_stats;          /* default off: keep no quire_prefix_stats */
    quire_switch track_new_blocks;   /* take_new_block_ids; default on when there is a Mamba group,
                                        whose pages must be zeroed before use */
    uint32_t dcp_world_size;         /* context parallelism, decode and prefill; 0 = 1. Above 1: */
    uint32_t pcp_world_size;         /* one group, of a full kind */
    quire_profile profile;
    uint64_t quirks_on; /* single quirks on top of the profile's, and */
    uint64_t quirks_off;

    /* Beyond vLLM 0.20.0; all off by default */
    double watermark;         /* part of the blocks that a new request must leave free, 0 to 1;
                                 0 if no other sequence has blocks */
    double admit_below;       /* quire_cache_pressure: 0 = 0.80 */
    double preempt_above;     /* 0 = 0.95 */
    uint32_t max_copies;      /* copies on write that may be pending; 0: no fork. QUIRE_E_CONFIG in
                                 a scheduler of QUIRE_PROFILE_VLLM_0_20 */
    uint32_t event_log_bytes; /* for quire_cache_take_events; 0: none */

    void (*on_event)(void *user, const quire_event *event); /* at once; NULL: not */
    void *event_user;
    quire_hooks hooks;

    /* Slots of a host buffer for quire_cache_move_out, a block of one group each; at most 2^28. 0:
     * none. QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20, with Mamba or CROSS groups, and in the cache
     * of a scheduler, which moves requests itself (quire_sched_config.num_swap_blocks). */
    uint32_t num_host_blocks;
} quire_cache_config;

#define QUIRE_CACHE_CONFIG_INIT QUIRE_SIZED_INIT(quire_cache_config)

/* Plan, carve, seal: see quire/memory.h. Memory: that of the pool, and for each request and group
 * 4 bytes for each block of max_model_len. QUIRE_E_CONFIG for what vLLM refuses too: caching with
 * a CROSS group; chunked local layers with EAGLE, or with groups of another block size; a hash
 * block size that does not divide the block sizes; several groups that are all alike, with caching
 * on; more sink blocks than there are. */
QUIRE_API size_t quire_cache_bytes(const quire_cache_config *config);
QUIRE_API int quire_cache_create_in(void *memory, size_t bytes, const quire_cache_config *config,
                                    quire_cache **cache);
QUIRE_API int quire_cache_create(const quire_cache_config *config, const quire_allocator *allocator,
                                 quire_cache **cache);
QUIRE_API void quire_cache_destroy(quire_cache *cache);

/* ---- a request, as the cache sees it ------------------------------------ */

/* The caller keeps one for each request, and keeps it up to date. */
typedef struct quire_cache_request {
    quire_seq seq;                /* 0 at the start; allocate_slots, fork and free write it */
    uint32_t num_tokens;          /* prompt and output; 1 or more */
    uint32_t num_computed_tokens; /* 0 before its first step, and after preemption */
    const void *hashes; /* one for every full hash block of its tokens, digest_bytes each */
    uint32_t num_hashes;
    uint32_t first_hash;          /* hashes begins with this one: 0 for get_computed_blocks; else a
                                     multiple of what every group joins, below the hashes of the
                                     blocks that have their keys in every group; the blocks of the
                                     hit count. QUIRE_E_RANGE */
    uint32_t was_preempted;       /* for the stats */
    uint32_t skip_reading_prefix; /* 1: get_computed_blocks finds nothing */
    void *user;                   /* in events, as their request */
} quire_cache_request;

/* ---- finding ------------------------------------------------------------ */

/* The longest hit of the request: for each group its blocks (null blocks in front where the group
 * does not need them), and the number of tokens, at most num_tokens - 1 so that there is one to
 * compute. blocks takes num_groups spans; they are valid until the next call of this function. The
 * blocks are not kept: give them to allocate_slots before anything else changes the cache.
 * With caching off, or skip_reading_prefix: all empty, 0 tokens. */
QUIRE_API int quire_cache_get_computed_blocks(quire_cache *cache,
                                              const quire_cache_request *request,
                                              quire_block_span *blocks, uint32_t *num_tokens);

/* ---- allocating --------------------------------------------------------- */

typedef struct quire_allocate_params {
    uint32_t num_new_tokens;                     /* to be computed, drafts included */
    uint32_t num_new_computed_tokens;            /* of the hit */
    const quire_block_span *new_computed_blocks; /* of the hit, num_groups; NULL: no hit */
    uint32_t num_lookahead_tokens;
    uint32_t num_external_computed_tokens; /* of a connector */
    uint32_t num_encoder_tokens;           /* for CROSS groups */
    uint32_t delay_cache_blocks;           /* 1: give the full blocks no keys yet */
    uint32_t num_uncertain_tokens; /* of the computed ones, at the end: they may be taken back, so
                                      that the window stays behind them */
} quire_allocate_params;

/* Makes room for new tokens: keeps the hit's blocks, gives back what is outside the window, takes
 * new blocks, and gives full ones their keys (of tokens that are certain: at most num_tokens).
 * new_blocks, where not NULL, gets the blocks for new and lookahead tokens, num_groups spans, valid
 * until the request's blocks change again. Writes request->seq at the request's first call.
 *
 *      QUIRE_NO_SPACE    not enough free blocks (or, with Mamba, a hit whose state is computed in
 *                        this very step: ask again in the next)
 *      QUIRE_FULL        max_requests have blocks, or max_copies are pending
 *      QUIRE_E_ARGUMENT  nothing to do: num_new_tokens and num_external_computed_tokens are 0; or
 *                        hit blocks for a request that has blocks
 *      QUIRE_E_STALE_HIT a block of the hit was evicted since, or is another group's
 *      QUIRE_E_RANGE     more tokens than max_model_len, fewer hashes than full blocks, more
 *                        encoder tokens than max_encoder_tokens
 *      QUIRE_E_PREDICTION  where vLLM 0.20.0 would raise, having predicted too few blocks (with
 *                        the quirks that do so alone) */
QUIRE_API int quire_cache_allocate_slots(quire_cache *cache, quire_cache_request *request,
                                         const quire_allocate_params *params,
                                         quire_block_span *new_blocks);

/* What quire_cache_allocate_slots would answer to the same arguments now. Changes nothing, also
 * with QUIRE_QUIRK_TRIM_ON_FAILURE. For one more token of a request that decodes: num_new_tokens 1.
 */
QUIRE_API int quire_cache_can_allocate(const quire_cache *cache, const quire_cache_request *request,
                                       const quire_allocate_params *params);

/* QUIRE_OK when all of the request's tokens would fit now, else QUIRE_NO_SPACE: asked before a long
 * prompt is begun in chunks. Of params the hit, external and encoder tokens count. */
QUIRE_API int quire_cache_can_fit_full_sequence(const quire_cache *cache,
                                                const quire_cache_request *request,
                                                const quire_allocate_params *params);

/* Keys for the full blocks of the first num_computed_tokens tokens: after a delayed load. Without
 * caching it does nothing. */
QUIRE_API int quire_cache_cache_blocks(quire_cache *cache, const quire_cache_request *request,
                                       uint32_t num_computed_tokens);

/* ---- giving back -------------------------------------------------------- */

/* Gives all blocks of the request back, group by group, last to first, and sets request->seq to 0;
 * a request without blocks is fine. Gives back the host slots of a request that was moved out. */
QUIRE_API int quire_cache_free(quire_cache *cache, quire_cache_request *request);

/* Gives back the blocks that no token after the first total_computed_tokens looks at. */
QUIRE_API int quire_cache_remove_skipped_blocks(quire_cache *cache, quire_seq seq,
                                                uint32_t total_computed_tokens);

/* See quire_pool_evict_blocks, but null blocks are passed over. */
QUIRE_API int quire_cache_evict_blocks(quire_cache *cache, const quire_block *blocks,
                                       uint32_t num_blocks);

/* See quire_pool_reset_prefix_cache. Blocks of sinks do not count as in use. QUIRE_BUSY also while
 * a request is moved out. */
QUIRE_API int quire_cache_reset_prefix_cache(quire_cache *cache);

/* At the start of a step: states that were computed in the step before can be hits now. */
QUIRE_API int quire_cache_new_step_starts(quire_cache *cache);

/* ---- looking ------------------------------------------------------------ */

/* All blocks of a request, num_groups spans, valid until they change; all empty for seq 0. */
QUIRE_API int quire_cache_get_blocks(const quire_cache *cache, quire_seq seq,
                                     quire_block_span *blocks);

/* Where one token of a request is: in block `block`, which stands at `index` in the row of the
 * group, at `offset`. The address of the token's KV in a layer: quire_layout_token_address. With
 * context parallelism a block has positions of all ranks, and so has the offset: see quire/table.h.
 *
 *      QUIRE_MISS           the null block stands there: the token is outside the window
 *      QUIRE_E_UNKNOWN_SEQ  the request has no blocks, or was moved out
 *      QUIRE_E_RANGE        there is no such group, or no block for this token
 *      QUIRE_E_ARGUMENT     a Mamba group: a state is not one token's */
typedef struct quire_token_place {
    quire_block block;
    uint32_t index;
    uint32_t offset;
} quire_token_place;

QUIRE_API int quire_cache_find_token(const quire_cache *cache, quire_seq seq, uint32_t group,
                                     uint32_t token, quire_token_place *place);

/* One block of a request, as the request has it: the one at `index` in the row of the group. */
typedef struct quire_cache_block {
    quire_location location; /* DEVICE; HOST for a request that was moved out; NONE: nothing is kept
                                here, the null block stands in its place */
    uint32_t block;          /* its id; HOST: its slot; UINT32_MAX: none */
    uint32_t prev;           /* the same of the block before it in the group; UINT32_MAX: none */
    uint32_t ref_cnt;        /* requests, pending copies and touches that use it; HOST: 1 */
    uint32_t num_holds;      /* holds on it (quire_pool_hold) */
    uint32_t has_key;        /* 1: the prefix cache finds it */
    uint32_t num_tokens;     /* computed tokens of the request in this block */
    uint32_t block_size;     /* tokens that it has room for */
} quire_cache_block;

/* Of the request seq and num_computed_tokens count. QUIRE_E_UNKNOWN_SEQ; QUIRE_E_RANGE for a group
 * that is not there, and for an index behind the row. Cost: O(1) on the device, O(blocks of the
 * request) on the host. */
QUIRE_API int quire_cache_get_block(const quire_cache *cache, const quire_cache_request *request,
                                    uint32_t group, uint32_t index, quire_cache_block *block);

/* What all requests have together. */
typedef struct quire_cache_totals {
    uint32_t num_seqs;             /* requests that have blocks, */
    uint64_t num_table_blocks;     /* the blocks in all their rows: a block counts once for each row
                                  that lists it, null blocks do not count */
    uint32_t num_moved_out;        /* requests that were moved to host slots, */
    uint32_t num_host_blocks;      /* slots that they have, */
    uint32_t num_free_host_blocks; /* slots that are free */
    uint32_t num_copies;           /* copies on write that are pending */
    uint32_t watermark_blocks;     /* blocks that a new request must leave free */
} quire_cache_totals;

/* Costs a pass over the rows of all requests. */
QUIRE_API int quire_cache_get_totals(const quire_cache *cache, quire_cache_totals *totals);

/* For each group, how many blocks at the start of the request are shared by all requests that have
 * blocks (cascade attention); 0 for other than full kinds and without caching. */
QUIRE_API int quire_cache_get_num_common_prefix_blocks(const quire_cache *cache, quire_seq seq,
                                                       uint32_t *num_blocks);

/* Blocks of FULL and TQ_FULL groups that were taken since the last call, group by group, in the
 * order taken; a block that was taken twice may be listed twice. They are to be zeroed. ids is
 * valid until the next allocate_slots. Never more than twice num_blocks. */
QUIRE_API int quire_cache_take_new_block_ids(quire_cache *cache, quire_block_span *ids);

/* The blocks that all requests share at their start, of a SINK_FULL group; empty for others. */
QUIRE_API int quire_cache_get_sink_blocks(const quire_cache *cache, uint32_t group,
                                          quire_block_span *blocks);

QUIRE_API uint32_t quire_cache_num_groups(const quire_cache *cache);
QUIRE_API uint32_t quire_cache_num_seqs(const quire_cache *cache); /* requests that have blocks */
QUIRE_API uint32_t quire_cache_hash_block_size(const quire_cache *cache);
QUIRE_API uint64_t quire_cache_quirks(const quire_cache *cache); /* the quirks in force */

/* The pool, for the functions of quire/pool.h. Blocks that are touched through it must be freed
 * through it. */
QUIRE_API quire_pool *quire_cache_pool(quire_cache *cache);
QUIRE_API quire_usage quire_cache_usage(const quire_cache *cache);
QUIRE_API double quire_cache_get_usage(const quire_cache *cache);

/* What prefix caching saved, in tokens. Counted once for a request, when it gets its first blocks;
 * with QUIRE_QUIRK_STATS_EVERY_LOOKUP at every get_computed_blocks. */
typedef struct quire_prefix_stats {
    uint32_t was_reset; /* 1: reset_prefix_cache succeeded */
    uint64_t requests;
    uint64_t queries;
    uint64_t hits;
    uint64_t preempted_requests;
    uint64_t preempted_queries;
    uint64_t preempted_hits;
} quire_prefix_stats;

/* Gives the numbers since the last call and starts anew. QUIRE_E_DISABLED without log_stats. */
QUIRE_API int quire_cache_take_prefix_stats(quire_cache *cache, quire_prefix_stats *stats);

/* Calls visit for each event since the last call, oldest first, and forgets them; the events are
 * the very same that on_event gets. *lost, where not NULL, counts events that the log had no room
 * for: then the listener must start anew. QUIRE_E_DISABLED without event_log_bytes. */
QUIRE_API int quire_cache_take_events(quire_cache *cache,
                                      void (*visit)(void *user, const quire_event *event),
                                      void *user, uint64_t *lost);

/* Walks everything and checks every invariant: QUIRE_OK or QUIRE_E_CORRUPT. Blocks touched through
 * quire_cache_pool count as fine. */
QUIRE_API int quire_cache_check(const quire_cache *cache);

/* ---- fork and copy on write --------------------------------------------- */

/* The child gets all blocks of the parent, shared: nothing is copied. The child's hashes, tokens
 * and so on are the caller's to set; seq is written. QUIRE_FULL, QUIRE_E_UNKNOWN_SEQ,
 * QUIRE_E_DISABLED when max_copies is 0, QUIRE_E_ARGUMENT with Mamba groups in mode ALIGN or with
 * speculative blocks, or when the child has blocks. */
QUIRE_API int quire_cache_fork(quire_cache *cache, const quire_cache_request *parent,
                               quire_cache_request *child);

/* Before tokens [first_token, first_token + num_tokens) of a request are written: every block of
 * theirs that another request shares, or that can be found in the prefix cache, is replaced by a
 * private copy. allocate_slots does this by itself for the tokens it makes room for.
 * QUIRE_NO_SPACE, QUIRE_FULL. */
QUIRE_API int quire_cache_copy_on_write(quire_cache *cache, quire_seq seq, uint32_t first_token,
                                        uint32_t num_tokens);

/* A page to be copied, in all layers of the group, before the next forward pass. */
typedef struct quire_block_copy {
    quire_block from;
    quire_block to;
    uint32_t group;
} quire_block_copy;

/* The copies that are pending, in any order: no block is both source and target. Both are kept from
 * reuse until this call, which ends that: run the copies before the next forward pass. When
 * the only request that has a copy's target is freed, the copy is dropped. Valid until the next
 * allocate_slots, copy_on_write or fork. A scheduler takes the copies of its cache itself: see
 * quire_step.copies. */
QUIRE_API int quire_cache_take_copies(quire_cache *cache, const quire_block_copy **copies,
                                      uint32_t *num_copies);

/* ---- moving a request to host memory ------------------------------------- */

/* For engines that schedule by themselves; a scheduler has quire_sched_preempt and _offload.
 *
 *      free blocks   1024 ── allocate_slots, 100 tokens ──► 1017
 *                    1017 ── move_out ───────────────────► 1024      7 host slots in use
 *                    1024 ── move_in ────────────────────► 1017      0 host slots in use
 *
 * The caller makes the copies, in the order of the calls, and all of them before the next forward
 * pass: first the copies of move_out and move_in, then the copies of quire_cache_take_copies. New
 * blocks (quire_cache_take_new_block_ids) are zeroed before the copies of a move_in. */
typedef struct quire_block_move {
    quire_block block; /* its page in all layers of the group */
    uint32_t slot;     /* of the host buffer, 0 to num_host_blocks - 1 */
    uint32_t group;
} quire_block_move;

/* Takes the blocks from a request, and lists the copies from blocks to host slots that keep its
 * computed tokens (request->num_computed_tokens; blocks outside the window are not kept). From then
 * on request->seq names the slots: no call takes it but move_in, can_move_in, get_block, location
 * and free. A block that another request shares is copied as well and stays with the other request.
 * Loads into the request's blocks must have ended. moves is valid until the next move.
 *
 *      QUIRE_MISS           no token is computed: use quire_cache_free
 *      QUIRE_FULL           too few host slots are free
 *      QUIRE_E_DISABLED     num_host_blocks is 0
 *      QUIRE_E_UNKNOWN_SEQ  the request has no blocks, or was moved out already
 *      QUIRE_E_RANGE        more computed tokens than its blocks hold */
QUIRE_API int quire_cache_move_out(quire_cache *cache, quire_cache_request *request,
                                   const quire_block_move **moves, uint32_t *num_moves);

/* Gives such a request blocks again, and lists the copies from host slots to blocks. Blocks that
 * the prefix cache still has are shared instead of copied. num_computed_tokens must be what it was
 * at move_out. The watermark counts, as for a new request. moves is valid until the next move.
 *
 *      QUIRE_NO_SPACE       not enough free blocks
 *      QUIRE_FULL           max_requests have blocks
 *      QUIRE_E_UNKNOWN_SEQ  the request was not moved out
 *      QUIRE_E_ARGUMENT     num_computed_tokens has changed
 *      QUIRE_E_RANGE        fewer hashes than full blocks */
QUIRE_API int quire_cache_move_in(quire_cache *cache, quire_cache_request *request,
                                  const quire_block_move **moves, uint32_t *num_moves);
/* What move_in would answer now. Ends the validity of what get_computed_blocks gave, and changes
 * nothing else. */
QUIRE_API int quire_cache_can_move_in(quire_cache *cache, const quire_cache_request *request);

/* Where the blocks of a request are; NONE for 0 and for a seq that the cache does not know. */
QUIRE_API quire_location quire_cache_location(const quire_cache *cache, quire_seq seq);

/* ---- memory pressure ---------------------------------------------------- */

typedef struct quire_pressure {
    double level;            /* 0: all free, 1: none */
    uint32_t should_admit;   /* 0 from the moment level passes preempt_above, until it is below
                                admit_below: the gap keeps an engine from admitting and preempting
                                in turn */
    uint32_t should_preempt; /* level is above preempt_above */
} quire_pressure;

QUIRE_API int quire_cache_pressure(quire_cache *cache, quire_pressure *pressure);

#ifdef __cplusplus
}
#endif
#endif

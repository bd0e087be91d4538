/* cache/cache.h - the KV cache: groups of layers over one pool of blocks.
 *
 *      cache.c     making it                     lookup.c   the longest hit: one group, or several
 *      slots.c     allocate_slots, free          fork.c     sharing a request's blocks, copies
 *      cache_check.c   the walker                event_log.c   events until they are taken
 *      host.c      requests in host memory       diverge.c  hits for a connector
 *      report.c    events for hits               parts.c    hits that end inside a block
 *
 *      seq = generation << 32 | (row + 1)        a row that is freed gets a new generation
 *
 * The contracts are in quire/cache.h. Functions here expect a valid cache and arrays that are
 * there; they check what is in them.
 *
 *      rows in use + free_rows = max_requests;   every group has the same rows in use
 *      users of a block = rows that list it + pending copies (+ touches through the pool)
 */
#ifndef QR_CACHE_CACHE_H
#define QR_CACHE_CACHE_H

#include "cache/event_log.h"
#include "cache/host.h"
#include "group/group.h"

typedef struct qr_row_state {
    uint32_t generation;  /* odd: in use */
    uint32_t quiet_until; /* allocations of up to so many tokens change nothing */
} qr_row_state;

/* Where the target of a pending copy was put. */
typedef struct qr_copy_place {
    uint32_t row;
    uint32_t index; /* in the row, of the copy's group */
} qr_copy_place;

struct quire_cache {
    uint32_t magic;
    uint32_t num_groups;
    uint32_t max_model_len;
    uint32_t max_requests;
    uint32_t hash_block_size;
    uint32_t lookup_alignment; /* tokens that a hit is a multiple of */
    uint32_t block_multiple;   /* tokens that are whole blocks in every group */
    uint32_t shared_prefix; /* of the last lookup: the longest hit of a group, where it is longer */
    bool reports_hits;      /* of the next lookup: the blocks that it finds are told */
    uint32_t num_recomputed; /* computed tokens whose keys and values may still be written again */
    uint32_t num_sets;
    uint32_t num_seqs;
    uint32_t watermark_blocks;
    uint32_t max_encoder_tokens;
    uint64_t quirks;
    qr_rules rules;
    bool has_tails;         /* of a group */
    bool retains_ends;      /* blocks get keys where a request ends or is preempted, see retain.h */
    bool takes_parts;       /* hits may end inside a block */
    bool has_checkpoints;   /* states inside a chunk may be kept, see group/checkpoint.h */
    bool copies_parts;      /* blocks that a prefix ends inside of are copied, see parts.c */
    bool caches_all_tokens; /* blocks get keys as soon as they are full */
    bool enable_caching;
    bool log_stats;
    bool is_admitting; /* of quire_pressure */
    bool is_plain;     /* full groups and windows, keys for all tokens, no copies: most models */
    double admit_below;
    double preempt_above;

    qr_group *groups;
    qr_group_set *sets; /* in the order of lookup: full kinds first */
    uint32_t *set_ids;
    uint32_t **hits; /* of the last lookup, for each group */
    qr_row_state *row_states;
    uint32_t *free_rows;
    uint32_t *stamps;
    uint32_t *masked; /* for groups, see group.h */
    unsigned char *keys;
    qr_prompt *prompts; /* of each row; NULL: not asked for */
    qr_fresh fresh;

    quire_block_copy *copies;
    qr_copy_place *copy_places; /* the same number */
    uint32_t num_copies;
    uint32_t num_told;   /* of them, the first ones: they are being made */
    uint32_t max_copies; /* 0: no forks */
    uint32_t copy_room;

    quire_prefix_stats stats;
    qr_event_log events;
    void (*on_event)(void *user, const quire_event *event);
    void *event_user;
    /* Mamba, align mode: a block with a key holds the state behind so many tokens of the request
     * for which the call is. NULL: not told. */
    void (*on_state)(void *user, uint32_t group, uint32_t block, uint32_t num_tokens);
    void *state_user;
    quire_pool *pool;
    qr_owner owner;
    qr_host host;
};

#define QR_CACHE_MAGIC UINT32_C(0x51434348) /* "QCCH" */

enum { QR_MAX_TOKENS = 1 << 30 };

/* ---- cache.c --------------------------------------------------------------- */

/* The config with its defaults filled in, or an error; groups still are the caller's. */
int qr_cache_config_read(quire_cache_config *config, const quire_cache_config *callers);
/* Bytes of the longest key of the groups' blocks. */
uint32_t qr_cache_hash_bytes(const quire_cache_config *config);
quire_cache *qr_cache_carve(qr_arena *arena, const quire_cache_config *config);
int qr_cache_init(quire_cache *cache, const quire_cache_config *config);

/* The row of a seq that is in use, else QR_NIL. */
static inline uint32_t qr_cache_row_of(const quire_cache *cache, quire_seq seq)
{
    uint32_t row = (uint32_t)seq - 1;
    uint32_t generation = (uint32_t)(seq >> 32);
    bool ok = row < cache->max_requests && generation % 2 == 1 &&
              cache->row_states[row].generation == generation;
    return QR_LIKELY(ok) ? row : QR_NIL;
}

static inline bool qr_cache_row_in_use(const quire_cache *cache, uint32_t row)
{
    return cache->row_states[row].generation % 2 == 1;
}

/* A row, empty in all groups; there is one. */
uint32_t qr_cache_open_row(quire_cache *cache, quire_seq *seq);
void qr_cache_close_row(quire_cache *cache, uint32_t row);

/* No request has blocks, none is held, and none waits to be copied. */
static inline bool qr_cache_is_unused(const quire_cache *cache)
{
    return cache->num_seqs == 0 && cache->pool->num_held == 0 && cache->num_copies == 0;
}

static inline bool qr_cache_has_row(const quire_cache *cache)
{
    return cache->num_seqs < cache->max_requests;
}

/* Whether an allocation of so many tokens in all changes nothing. */
static inline bool qr_cache_is_quiet(const quire_cache *cache, quire_seq seq, uint64_t num_tokens)
{
    uint32_t row = qr_cache_row_of(cache, seq);
    return row != QR_NIL && num_tokens <= cache->row_states[row].quiet_until;
}

_Static_assert(offsetof(quire_allocate_params, num_encoder_tokens) ==
                       offsetof(quire_allocate_params, num_external_computed_tokens) + 4 &&
                   offsetof(quire_allocate_params, reserved_blocks) ==
                       offsetof(quire_allocate_params, full_sequence_must_fit) + 4 &&
                   offsetof(quire_allocate_params, shared_prefix_boundary) ==
                       offsetof(quire_allocate_params, num_prompt_tokens) + 4,
               "read as pairs");

/* New tokens alone: no hit, no external and no encoder tokens, nothing to be left, no other end of
 * the prompt. Each decoded token asks for it, so pairs of fields are read at once. */
static inline bool qr_cache_is_plain(const quire_allocate_params *p)
{
    const unsigned char *fields = (const unsigned char *)p;
    uint64_t others =
        qr_load_u64(fields + offsetof(quire_allocate_params, num_external_computed_tokens)) |
        qr_load_u64(fields + offsetof(quire_allocate_params, full_sequence_must_fit)) |
        qr_load_u64(fields + offsetof(quire_allocate_params, num_prompt_tokens)) |
        p->num_new_computed_tokens | p->has_scheduled_reqs | (uintptr_t)p->new_computed_blocks;
    return others == 0 && p->num_new_tokens > 0;
}

static inline uint64_t qr_cache_all_tokens(const quire_cache_request *request,
                                           const quire_allocate_params *p)
{
    return (uint64_t)request->num_computed_tokens + p->num_new_tokens + p->num_lookahead_tokens;
}

/* True, with empty new_blocks, where allocate_slots changes nothing: most calls in decoding. All
 * fields of p are then in their ranges. */
static inline bool qr_cache_allocates_nothing(const quire_cache *cache,
                                              const quire_cache_request *request,
                                              const quire_allocate_params *p,
                                              quire_block_span *new_blocks)
{
    if (!qr_cache_is_plain(p) ||
        !qr_cache_is_quiet(cache, request->seq, qr_cache_all_tokens(request, p)))
        return false;
    for (uint32_t g = 0; new_blocks != NULL && g < cache->num_groups; g++)
        new_blocks[g] = (quire_block_span){NULL, 0};
    return true;
}

/* The most blocks that a request of so many tokens holds at one time when it is alone; */
uint64_t qr_cache_blocks_alone(const quire_cache *cache, uint32_t num_tokens,
                               uint32_t num_encoder_tokens);
/* and those that an empty pool has for it. */
uint64_t qr_cache_most_blocks(const quire_cache *cache);
/* Fills in what a config leaves open. */
static inline void qr_default_u32(uint32_t *value, uint32_t to)
{
    if (*value == 0)
        *value = to;
}

static inline void qr_default_switch(quire_switch *value, bool on)
{
    if (*value == QUIRE_DEFAULT)
        *value = on ? QUIRE_ON : QUIRE_OFF;
}

/* The full blocks of the longest request, in all groups. */
uint32_t qr_cache_most_full_blocks(const quire_cache_config *config);
/* Whether caching num_tokens tokens would give a block its key. */
bool qr_cache_has_uncached(const quire_cache *cache, quire_seq seq, uint32_t num_tokens);
/* The first hash that caching further blocks of the request looks at. */
uint32_t qr_cache_first_needed_hash(const quire_cache *cache, quire_seq seq);
/* The tokens under all the hashes that it looks at, where so many tokens are cached. */
uint32_t qr_cache_end_of_keys(const quire_cache *cache, quire_seq seq, uint32_t num_tokens);
/* The same as the first hash, of a new request, once these hits are kept. */
uint32_t qr_cache_first_hash_after(const quire_cache *cache, const quire_block_span *hits);

/* ---- the others ------------------------------------------------------------ */

int qr_cache_get_computed_blocks(quire_cache *cache, const quire_cache_request *request,
                                 quire_block_span *blocks, uint32_t *num_tokens);

/* Tells of the hits of each group. */
void qr_cache_report_hits(const quire_cache *cache, const quire_cache_request *request,
                          const quire_block_span *blocks);
/* For a connector that brings the states of Mamba groups: the hit of the full groups, and for each
 * group the blocks that it has of it. *has_diverged: a group has fewer. Without both kinds, and
 * where another group has more than the full ones: as above. */
int qr_cache_get_diverged_blocks(quire_cache *cache, const quire_cache_request *request,
                                 quire_block_span *blocks, uint32_t *num_tokens,
                                 bool *has_diverged);

/* allocate_slots, without the way of qr_cache_allocates_nothing. */
int qr_cache_allocate_more(quire_cache *cache, quire_cache_request *request,
                           const quire_allocate_params *p, quire_block_span *new_blocks);
static inline int qr_cache_allocate_slots(quire_cache *cache, quire_cache_request *request,
                                          const quire_allocate_params *p,
                                          quire_block_span *new_blocks)
{
    if (qr_cache_allocates_nothing(cache, request, p, new_blocks))
        return QUIRE_OK;
    return qr_cache_allocate_more(cache, request, p, new_blocks);
}
/* Whether an allocation was refused for want of blocks or places. Any other refusal of a request
 * that the scheduler keeps itself would be a fault of its own. */
static inline bool qr_cache_lacks_room(int status)
{
    return status == QUIRE_NO_SPACE || status == QUIRE_FULL || status == QUIRE_E_PREDICTION;
}
/* What allocate_slots would answer now; changes nothing. */
int qr_cache_can_allocate(const quire_cache *cache, const quire_cache_request *request,
                          const quire_allocate_params *params);
int qr_cache_can_fit(const quire_cache *cache, const quire_cache_request *request,
                     const quire_allocate_params *params);
/* Blocks that the request still needs for all its tokens and num_more others. */
uint32_t qr_cache_count_remaining(const quire_cache *cache, const quire_cache_request *request,
                                  uint32_t num_more);
int qr_cache_cache_blocks(quire_cache *cache, const quire_cache_request *request, uint32_t row,
                          uint32_t num_tokens);
/* num_prompt: tokens of the prompt; 0: not known, then RSWA groups give nothing back. */
void qr_cache_remove_skipped(quire_cache *cache, uint32_t row, uint32_t computed,
                             uint32_t num_prompt);
void qr_cache_free(quire_cache *cache, uint32_t row);

/* ---- rows.c ---------------------------------------------------------------- */

/* The blocks of a sequence, one span for each group; empty if the sequence has no row. */
void qr_cache_get_blocks(const quire_cache *cache, quire_seq seq, quire_block_span *blocks);
/* For each group: how many leading blocks of the row all sequences share. */
void qr_cache_count_common(const quire_cache *cache, uint32_t row, uint32_t *num_blocks);
/* Tokens of the sequence up to the end of its last key, in the group that has the fewest. */
uint32_t qr_cache_count_keyed(const quire_cache *cache, quire_seq seq);
/* Frees the blocks of a request, in the pool or in host memory. False if its seq is unknown. */
bool qr_cache_drop(quire_cache *cache, quire_cache_request *request);
/* Frees the sequence's blocks, those of all groups at once, from the last to the first. */
void qr_cache_free_joined(quire_cache *cache, quire_seq seq);
/* Takes the keys from the blocks, so that no lookup finds them. */
void qr_cache_evict(quire_cache *cache, const quire_block *blocks, uint32_t num_blocks);
/* Takes the keys from all blocks: QUIRE_OK, or QUIRE_BUSY and no change. */
int qr_cache_reset(quire_cache *cache);
void qr_cache_begin_step(quire_cache *cache);
/* The blocks that were taken since the last call, in order; valid until the next call. */
quire_block_span qr_cache_take_fresh(quire_cache *cache);
/* The blocks of the sequence from this token on count as taken just now. A block that begins before
 * the token does not: what it has would be lost. */
void qr_cache_refresh(quire_cache *cache, quire_seq seq, uint32_t token);
quire_prefix_stats qr_cache_take_stats(quire_cache *cache);

/* ---- the rest -------------------------------------------------------------- */

/* One request that looked for num_queries tokens and found num_hits. */
void qr_prefix_stats_count(quire_prefix_stats *stats, bool was_preempted, uint64_t num_queries,
                           uint64_t num_hits);
/* Records one request in the cache's own. */
void qr_cache_count_lookup(quire_cache *cache, const quire_cache_request *request,
                           uint32_t num_hits);

/* The child shares the blocks of the parent's first num_tokens tokens; UINT32_MAX: all blocks. */
int qr_cache_fork(quire_cache *cache, uint32_t parent_row, uint32_t num_tokens, quire_seq *child);
/* Whether a fork of a row that is in use succeeds now. */
bool qr_cache_can_fork(const quire_cache *cache);
/* Blocks of tokens [first, last) that are shared or cached, of all groups. */
uint32_t qr_cache_count_shared(const quire_cache *cache, uint32_t row, uint32_t first,
                               uint32_t last);
/* Replaces them; there are so many free blocks and so much room for copies. */
void qr_cache_copy_shared(quire_cache *cache, uint32_t row, uint32_t first, uint32_t last);
/* Where the content of a block lies now: the source of the pending copy that will fill it, or the
 * block itself. */
uint32_t qr_cache_content_of(const quire_cache *cache, uint32_t block);
/* After a row was freed: forgets the copies whose targets no row lists. */
void qr_cache_drop_copies(quire_cache *cache);
uint32_t qr_cache_take_copies(quire_cache *cache);

bool qr_cache_is_valid(const quire_cache *cache);

/* For walkers: two lists name the same numbers, each as often, if sums of the numbers' weights are
 * equal: but for one chance in 2^64, and without memory to count in. */
typedef struct qr_tally {
    uint64_t count;
    uint64_t weight;
} qr_tally;

static inline void qr_tally_add(qr_tally *t, uint32_t number, uint64_t times)
{
    uint64_t w = ((uint64_t)number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    w = (w ^ w >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    t->count += times;
    t->weight += (w ^ w >> 32) * times;
}

static inline bool qr_tally_is_same(qr_tally a, qr_tally b)
{
    return a.count == b.count && a.weight == b.weight;
}

#endif

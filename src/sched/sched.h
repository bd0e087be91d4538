/* sched/sched.h - the scheduler: its state, and the parts of a step.
 *
 *      settings.h what it was created with; the callbacks
 *      sched.c    creating it                          sched_check.c   the walker
 *
 *      requests/  table.h    all of them               requests.c   add, finish, free
 *                 texts.*    tokens and their pages    hashes.c     hashes of full blocks
 *                 sessions.* inputs that follow        fork.*       a request that shares a text
 *      queues/    waiting.*  one queue                 queues.h     all of them
 *                 prefix.*   admission out of turn     deadlock.*   requests that block each other
 *      step/      schedule.c a step, as a table of contents
 *                 running.c  running requests          admit.c      waiting requests
 *                 preempt.*  victims, pressure         admissible.* requests that can never run
 *                 step.*     the step's arrays         flight.*     steps in flight
 *                 fence.*    blocks that wait for them pace.*       passed over on purpose
 *                 update.c   the model's outputs       stop.c       when a request ends by itself
 *                 loads.c    loads end or fail         reset.c      the prefix cache is emptied
 *                 states.*   states for a connector
 *      encoder/   encoder.*, encoder_step.*            flags.*      placeholders with an embedding
 *      retain/    swap.*     KV of preempted requests in host memory
 *                 pins.*     blocks of ended requests that stay for a while
 *                 lookahead.*  blocks of waiting requests that are evicted last
 *      watch/     observer.* decisions                 tell.c       snapshots, the monitor
 *                 watch.*    making the monitor
 *      image/     saving and restoring all of it
 *
 * The public contracts are in quire/sched.h.
 */
#ifndef QR_SCHED_SCHED_H
#define QR_SCHED_SCHED_H

#include "cache/cache.h"
#include "hash/chain.h"
#include "sched/encoder/encoder_step.h"
#include "sched/queues/deadlock.h"
#include "sched/queues/prefix.h"
#include "sched/queues/queues.h"
#include "sched/requests/sessions.h"
#include "sched/requests/table.h"
#include "sched/requests/texts.h"
#include "sched/retain/lookahead.h"
#include "sched/retain/pins.h"
#include "sched/retain/swap.h"
#include "sched/settings.h"
#include "sched/step/fence.h"
#include "sched/step/flight.h"
#include "sched/step/pace.h"
#include "sched/step/preempt.h"
#include "sched/step/states.h"
#include "sched/step/step.h"
#include "sched/watch/observer.h"
#include "sched/watch/watch.h"

enum { QR_MAX_ID_BYTES = 256, QR_MAX_IDENTIFIER_BYTES = 256 };

/* Memory that a call uses and no later call reads. */
typedef struct qr_room {
    uint32_t *scratch; /* max_requests numbers, inside one call */
    uint32_t *order;   /* the same */
    quire_req *req_scratch;
    quire_req *lost_reqs;       /* the same, for an encoder connector that loses requests */
    quire_token *token_scratch; /* max_model_len */
    uint8_t *failed_blocks;     /* a qr_failed mark for each block; all 0 between calls */
    quire_block_span *spans;    /* num_groups, inside one call */
    quire_block_span *no_spans; /* num_groups empty ones */
    uint32_t *group_ids;        /* 0, 1, ...: all groups */
} qr_room;

struct quire_sched {
    uint32_t magic;
    qr_settings settings;
    qr_partners partners;
    quire_pause pause;
    quire_cache *cache;
    quire_hasher *hasher; /* NULL without caching */
    quire_chain *chain;   /* room to hash in */
    qr_texts texts;
    qr_encoder encoder;
    qr_flag_store flags; /* of features */
    qr_request_table table;
    qr_queues queues;
    qr_deadlock deadlock;
    qr_sessions sessions;
    qr_ended ended;
    qr_flight flight;
    qr_fences fences;
    qr_pace pace;
    qr_states states;
    qr_step_builder builder;
    qr_results results;
    qr_observer observer;
    qr_watch watch;
    qr_swap swap;
    qr_pins pins;
    qr_lookahead ahead;
    qr_prefix prefix;
    qr_room room;
    qr_owner owner;
};

#define QR_SCHED_MAGIC UINT32_C(0x51534348) /* "QSCH" */

/* ---- sched.c --------------------------------------------------------------- */

int qr_sched_config_read(quire_sched_config *config, quire_cache_config *cache,
                         const quire_sched_config *callers);
quire_sched *qr_sched_carve(qr_arena *arena, const quire_sched_config *config);
int qr_sched_init(quire_sched *sched, const quire_sched_config *config);

static inline quire_req qr_sched_req_of(const quire_sched *sched, uint32_t index)
{
    return (quire_req)sched->table.requests[index].generation << 32 | (index + 1);
}

/* The index of a request that is there, else QR_NIL. */
static inline uint32_t qr_sched_index_of(const quire_sched *sched, quire_req req)
{
    uint32_t index = (uint32_t)req - 1;
    bool ok = index < sched->settings.max_requests && sched->table.requests[index].is_in_use &&
              sched->table.requests[index].generation == (uint32_t)(req >> 32);
    return QR_LIKELY(ok) ? index : QR_NIL;
}

/* Tokens of one feature. What an encoder-decoder model's encoder sees is no part of the prompt. */
static inline uint32_t qr_sched_longest_feature(const quire_sched *sched)
{
    return sched->settings.is_encoder_decoder ? QR_MAX_TOKENS : sched->settings.max_model_len;
}

enum { QR_FETCH_AHEAD = QR_AT_A_TIME(8, 1) };

/* With many requests running each waits for memory: asks for one that is to come. */
static inline void qr_sched_fetch(const quire_sched *sched, uint32_t index)
{
    const unsigned char *r = (const unsigned char *)&sched->table.requests[index];
    qr_prefetch_write(r);
    qr_prefetch_write(r + 64);
}

/* Whether some layers keep a state, which holds for the last computed token alone. */
static inline bool qr_sched_has_states(const quire_sched *sched)
{
    for (uint32_t g = 0; g < sched->cache->num_groups; g++)
        if (sched->cache->groups[g].spec.kind == QUIRE_LAYER_MAMBA)
            return true;
    return false;
}

static inline quire_token *qr_sched_drafts_of(const quire_sched *sched, uint32_t index)
{
    return sched->table.drafts + (size_t)index * sched->settings.num_spec_tokens;
}

/* ---- requests.c ------------------------------------------------------------ */

int qr_sched_add(quire_sched *sched, const quire_request_params *params, quire_req *req);
int qr_sched_cut_prompt(quire_sched *sched, uint32_t index, uint32_t num_tokens,
                        uint32_t max_tokens);
void qr_sched_finish(quire_sched *sched, const quire_req *reqs, uint32_t n, quire_req_status status,
                     uint32_t *num_finished);
void qr_sched_finish_all(quire_sched *sched, quire_req_status status, uint32_t *num_finished);
/* Frees blocks that the request's processed tokens need no longer: a connector gets the others. */
void qr_sched_drop_skipped(quire_sched *sched, uint32_t index);

/* Frees the encoder's items that the request needs no longer. A draft model may read behind its
 * certain tokens. */
void qr_sched_free_encoded(quire_sched *sched, uint32_t index);

/* After its status became finished: tells the connector, frees the encoder's items, lists it; and
 * frees its blocks unless something still needs them. */
void qr_sched_free_request(quire_sched *sched, uint32_t index, bool keep_blocks);
/* Gives the blocks back and forgets the request. */
void qr_sched_free_blocks(quire_sched *sched, uint32_t index);
/* Forgets the request's features from the num_left-th on: those of its inputs move up. */
void qr_sched_drop_features(quire_sched *sched, qr_request *r, uint32_t num_left);
/* What a request or a fork has of its params, beside lists and names. */
void qr_request_fill_numbers(const quire_sched *sched, qr_request *r,
                             const quire_request_params *params, uint32_t num_prompt_tokens);
/* Whether the request, with so many tokens to begin with, can run alone in an empty engine: as
 * qr_admissible_check. */
int qr_request_check_alone(quire_sched *sched, const qr_request *r, uint32_t num_tokens);
/* QUIRE_OK, or QUIRE_E_ARGUMENT where an array is missing. */
int qr_request_check_arrays(const quire_request_params *params);
/* Whether all features lie where they may: in the prompt, or beside it (encoder-decoder). */
bool qr_request_features_ok(const quire_sched *sched, const quire_request_params *params);
/* Copies what a request brings into its blob; false when it does not fit. */
bool qr_request_copy_stops(const quire_sched *sched, uint32_t index, const quire_request_params *p,
                           qr_stop_rules *to);
/* Copies the is_embed flags of new features, features[num_old, ...). QUIRE_FULL when they find no
 * room now, QUIRE_E_RANGE when they never will. */
int qr_request_copy_flags(quire_sched *sched, const quire_request_params *p, qr_feature *features,
                          uint32_t num_old, qr_flag_chain *chain);
/* Arrays for num_old features and the new ones, of which the new ones are filled in. */
bool qr_request_copy_features(const quire_sched *sched, uint32_t index,
                              const quire_request_params *p, uint32_t num_old,
                              qr_feature **features, quire_mm_feature **mm_features);
void *qr_request_take_blob(const quire_sched *sched, uint32_t index, size_t bytes);
bool qr_request_copy_bytes(const quire_sched *sched, uint32_t index, quire_bytes from,
                           quire_bytes *to);

/* ---- hashes.c -------------------------------------------------------------- */

/* Hashes of the prompt's full blocks: those that params have, then the others. QUIRE_E_RANGE when
 * extra keys are too long. */
int qr_sched_hash_prompt(quire_sched *sched, qr_request *r, const quire_request_params *params,
                         const quire_token *tokens);
/* Hashes all blocks that are full and have no hash. */
void qr_sched_hash_new_blocks(quire_sched *sched, uint32_t index);
/* Appends a token of the output and hashes the block that it fills. */
void qr_sched_append(quire_sched *sched, uint32_t index, quire_token token);
/* Sets kv.hashes for a lookup; */
void qr_sched_show_all_hashes(quire_sched *sched, uint32_t index);
/* or for an allocation or a caching of the row, up to so many tokens. */
void qr_sched_show_hashes(quire_sched *sched, uint32_t index, uint32_t num_tokens);
/* Gives its full blocks of so many tokens their keys. */
void qr_sched_cache_blocks(quire_sched *sched, uint32_t index, uint32_t num_tokens);
/* Before it loses its blocks: those with which it could go on get keys. */
void qr_sched_cache_end(quire_sched *sched, uint32_t index);

/* ---- texts ------------------------------------------------------------------ */

/* Where the request's text ends at the latest. */
static inline uint32_t qr_sched_last_token_of(const quire_sched *sched, const qr_request *r)
{
    uint64_t end = (uint64_t)r->num_prompt_tokens + r->max_tokens;
    bool goes_on = r->is_resumable || r->stops.min_tokens > r->max_tokens;
    uint32_t most = sched->settings.max_model_len;
    return goes_on || end > most ? most : (uint32_t)end;
}

/* Takes promised pages for the first `end` tokens of the request, or for all that it may have. */
static inline void qr_sched_take_promised(quire_sched *sched, qr_request *r, uint32_t end)
{
    uint32_t last = qr_sched_last_token_of(sched, r);
    qr_texts_take_promised(&sched->texts, r, end < last ? end : last);
}

/* Takes the pages for the tokens that the steps in flight and one more can add to the request. */
static inline void qr_sched_make_text_room(quire_sched *sched, qr_request *r)
{
    uint32_t end = r->kv.num_tokens + r->num_placeholders + 1 + sched->settings.num_spec_tokens;
    if (QR_UNLIKELY(end > r->text.num_pages * sched->texts.store.page_tokens))
        qr_sched_take_promised(sched, r, end);
}

/* ---- the step -------------------------------------------------------------- */

int qr_sched_schedule(quire_sched *sched, const quire_step **step);
void qr_sched_run_running(quire_sched *sched);
void qr_sched_admit_waiting(quire_sched *sched);
/* Takes the keys from the request's blocks of `token` and all behind it, in all groups. */
void qr_sched_forget_from(quire_sched *sched, const qr_request *r, uint32_t token);
/* Whether the request may compute fewer tokens in a step than it wants. A request that is alone
 * does so when the pool has no room for all: window layers give blocks back in between. */
bool qr_sched_may_shrink(const quire_sched *sched, const qr_request *r);
/* Ends a request that is too long to run, even alone in an empty engine: the next update tells.
 * While steps are forgotten instead of updated, only so many end: then false. */
bool qr_sched_end_outgrown(quire_sched *sched, uint32_t index);
/* How many tokens fit before a state is to be kept at a block's end (Mamba, align mode). */
uint32_t qr_sched_align_tokens(const quire_sched *sched, const qr_request *r, uint32_t computed,
                               uint32_t num_new);

/* Looks the request up in the prefix cache. True: the hit is one for a load alone, since a group
 * lacks its end; if nothing is loaded, agree_on_hit finds the hit that all groups have. */
bool qr_sched_find_hit(quire_sched *sched, qr_request *r, quire_block_span *hits,
                       uint32_t *num_tokens);
void qr_sched_agree_on_hit(quire_sched *sched, qr_request *r, quire_block_span *hits,
                           uint32_t *num_tokens);

/* Of num_new tokens from `computed` on, so many that a chunk of a prompt leaves either nothing or
 * enough for the draft model to read behind it. */
uint32_t qr_sched_leave_lookahead(const quire_sched *sched, const qr_request *r, uint32_t computed,
                                  uint32_t num_new);

/* ---- step.h ---------------------------------------------------------------- */

/* Adds a request; blocks are those to be told, num_groups spans. */
static inline void qr_step_add(quire_sched *s, uint32_t index, quire_step_kind kind,
                               uint32_t num_tokens, uint32_t num_computed,
                               const quire_block_span *blocks)
{
    qr_step_builder *b = &s->builder;
    const qr_request *r = &s->table.requests[index];
    uint32_t i = b->out.num_reqs++;
    uint32_t num_groups = s->cache->num_groups;
    qr_assert(i < s->settings.max_num_seqs);
    b->reqs[i] = qr_sched_req_of(s, index);
    b->kinds[i] = (uint8_t)kind;
    b->was_in_last_step[i] = r->last_step == b->last_step;
    b->num_tokens[i] = num_tokens;
    b->num_computed[i] = num_computed;
    b->num_outputs[i] = qr_request_num_outputs(r) + r->num_placeholders;
    b->num_drafts[i] = 0;
    b->encoder_first[i] = b->num_encoder_found;
    b->encoder_count[i] = 0;
    for (uint32_t g = 0; g < num_groups; g++)
        b->blocks[(size_t)i * num_groups + g] = blocks[g];
    b->budget -= num_tokens;
    b->out.total_tokens += num_tokens;
    if (QR_UNLIKELY(s->settings.draft_slots > 0))
        qr_step_leave_slots(s);
}

/* ---- tell.c ---------------------------------------------------------------- */

/* The metrics, which know what time it is now; NULL when nobody looks. */
static inline qr_metrics *qr_sched_timed_metrics(const quire_sched *sched)
{
    if (sched->watch.monitor == NULL)
        return NULL;
    sched->watch.monitor->metrics.now_ns = qr_now_ns(&sched->observer.hooks);
    return &sched->watch.monitor->metrics;
}

/* When schedule or update began, for those that tell; 0 when nobody asks. */
static inline uint64_t qr_sched_begins(const quire_sched *sched)
{
    const qr_metrics *metrics = qr_sched_timed_metrics(sched);
    if (metrics == NULL)
        return 0;
    return sched->watch.monitor->shares_clock ? metrics->now_ns
                                              : qr_monitor_now(sched->watch.monitor);
}

/* The cache's events, on their way to monitor, observer and caller. */
void qr_sched_take_event(void *user, const quire_event *event);
/* The pool's on_move, where there is a monitor. */
void qr_sched_tell_move(void *user, uint32_t from, uint32_t to);
/* All tiers as they are now; room for QUIRE_MAX_TIERS. Returns how many. */
uint32_t qr_sched_list_tiers(const quire_sched *s, quire_tier_usage *tiers);
/* Lets others see how full tiers and queues are. */
void qr_sched_tell_levels(quire_sched *s);
/* How many are there; whenever that has changed. */
static inline void qr_sched_tell_load(const quire_sched *sched)
{
    if (sched->watch.monitor != NULL)
        atomic_store_explicit(&sched->watch.monitor->num_unfinished,
                              sched->queues.num_running + sched->queues.waiting.count +
                                  sched->queues.skipped.count,
                              memory_order_relaxed);
}
/* At the end of schedule; */
void qr_sched_tell_step(quire_sched *sched, uint64_t began_ns);
/* and of update, of whose outputs the first were of requests that had ended before. */
void qr_sched_tell_update(quire_sched *sched, uint64_t began_ns, uint32_t num_outgrown);

/* The batch of that place in the ring; place num_batches is the next one's. */
static inline qr_batch *qr_flight_batch(const quire_sched *s, uint32_t place)
{
    uint32_t at = s->flight.first_batch + place;
    return &s->flight.batches[at < s->settings.max_batches ? at : at - s->settings.max_batches];
}
/* ---- update ---------------------------------------------------------------- */

int qr_sched_update(quire_sched *sched, uint64_t step, const quire_model_output *output,
                    const quire_outputs **outputs);
/* What update gives beside outputs, since the last update; of no step. */
const quire_sched_stats *qr_sched_take_stats(quire_sched *sched);
int qr_sched_update_drafts(quire_sched *sched, const quire_req *reqs, uint32_t n,
                           const quire_token *drafts, uint32_t stride, const uint32_t *num_drafts);
/* Whether the last token ends the request; sets its status. */
bool qr_sched_check_stop(const quire_sched *sched, qr_request *r, quire_token last);

/* ---- loads.c --------------------------------------------------------------- */

/* Blocks that a load must leave: for requests in the middle of their prompts, and for the drafts of
 * its own first step. */
uint32_t qr_sched_count_reserved(const quire_sched *sched);
/* A request that waits for loads: true when it can be scheduled now. */
bool qr_sched_promote_loaded(quire_sched *sched, uint32_t index);
/* Requests whose loads failed: their output does not count. */
typedef struct qr_failed_reqs {
    uint32_t num;
    const quire_req *reqs;
    const uint32_t *has_failed; /* of each request of the table: not 0; NULL where num is 0 */
} qr_failed_reqs;

/* Loads into these blocks failed. The result holds until the end of the call. */
qr_failed_reqs qr_sched_fail_blocks(quire_sched *sched, const qr_batch *batch,
                                    const quire_model_output *output);
/* Loads of the step that did not fail: what lies in their blocks may be found from now on. */
void qr_sched_confirm_loads(quire_sched *sched, const qr_batch *batch);
/* Requests with has_failed[index] != 0 that run are preempted, and what was computed for them in
 * steps up to now does not count. */
void qr_sched_begin_again(quire_sched *sched, const uint32_t *has_failed);
void qr_sched_note_transfers(quire_sched *sched, const quire_model_output *output);

/* ---- reset.c --------------------------------------------------------------- */

int qr_sched_reset_prefix_cache(quire_sched *sched, bool with_running, bool with_connector);

bool qr_sched_is_valid(const quire_sched *sched);

#endif

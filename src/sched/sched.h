/* sched/sched.h - the scheduler's state, and the parts of a step.
 *
 *      sched.c      making it                      requests.c  add, session inputs, the end of one
 *      schedule.c   a step, as a list of contents  running.c   those that run
 *      admit.c      those that wait                step.c      the step's arrays
 *      preempt.[ch] victims, and memory pressure
 *      starved.c    those that wait with blocks    admissible.[ch] requests that could never run
 *      flight.c     steps in flight                stop.c      when a request ends by itself
 *      update.c     what the engine computed       hashes.c    hashes of blocks
 *      sessions.c   inputs that follow             loads.c     the connector's loads end or fail
 *      reset.c      the prefix cache is emptied    fork.[ch]   a request with another one's text
 *      observer.[ch]   decisions                    sched_check.c   the walker
 *      tell.c       snapshots, and what the monitor is told
 *      swap.[ch]    KV of preempted ones in host memory
 *      pins.[ch]    blocks of ended ones that are kept for a while
 *      lookahead.[ch]  blocks of waiting ones that are evicted last
 *      prefix.[ch]  waiting ones that are admitted before their turn
 *      flags.[ch]   which placeholder tokens take an embedding
 *
 * The public contracts are in quire/sched.h.
 */
#ifndef QR_SCHED_SCHED_H
#define QR_SCHED_SCHED_H

#include "base/idmap.h"
#include "cache/cache.h"
#include "hash/chain.h"
#include "obs/monitor.h"
#include "sched/encoder_step.h"
#include "sched/lookahead.h"
#include "sched/observer.h"
#include "sched/pins.h"
#include "sched/preempt.h"
#include "sched/prefix.h"
#include "sched/request.h"
#include "sched/swap.h"
#include "sched/waiting.h"

enum { QR_MAX_ID_BYTES = 256, QR_MAX_IDENTIFIER_BYTES = 256 };

/* A step that was scheduled and not updated yet. */
typedef struct qr_batch {
    uint64_t step;
    uint32_t num_reqs;
    quire_req *reqs;
    uint32_t *num_tokens;
    uint32_t *num_drafts;
    uint32_t
        *num_preemptions;    /* of each when it was scheduled: more now, and the output is stale */
    uint8_t *is_past_prompt; /* a token is sampled for it */
    bool loads;              /* somebody loads and computes in it */
} qr_batch;

/* The step being made. Arrays have room for max_num_seqs requests. */
typedef struct qr_step_builder {
    quire_step out;
    quire_req *reqs; /* these three are the batch's own */
    uint8_t *kinds;
    uint8_t *was_in_last_step;
    uint32_t *num_tokens;
    uint32_t *num_drafts;
    uint32_t *num_computed;
    uint32_t *num_outputs;
    quire_block_span *blocks;
    uint32_t last_step; /* the step before, as requests note it; UINT32_MAX: it was made void */
    bool loads;         /* somebody loads and computes in it */
    bool has_drafts;    /* else every row of drafts is empty, as the zeros say */
    bool has_inputs;    /* the same for encoder inputs */
    uint32_t *zeros;    /* max_num_seqs + 1 */
    uint32_t *draft_start;
    quire_token *drafts;
    uint32_t *encoder_first; /* into encoder_found, before they are put in a row */
    uint32_t *encoder_count;
    uint32_t *encoder_found;
    uint32_t num_encoder_found;
    uint32_t *encoder_planned; /* of one request */
    uint32_t *encoder_start;
    uint32_t *encoder_inputs;
    uint32_t *common_prefix;
    quire_req *preempted; /* by the caller since the last step, then in this step */
    uint32_t num_asked;
    uint32_t num_preempted; /* in this step */
    quire_req *finished;
    quire_step_copy *copies;
    uint32_t *row_places; /* of the cache's rows, in this step; with copies alone */
    uint32_t *lora_ids;   /* different ones in this step */
    uint32_t num_loras;
    uint32_t budget;
    uint32_t encoder_budget;
    uint32_t without_blocks; /* the first request that found no room for its blocks, or QR_NIL */
    bool is_chosen;          /* by prefix.c: the request that is being admitted; */
    bool is_in_order;        /* no further one is chosen in this step */
    bool is_turn_free;       /* starved: nobody has blocks, and one load may begin, */
    bool has_passed_turn;    /* and one that had its turn was passed over */
    uint32_t num_new;        /* these four for those who are told of steps */
    uint32_t num_resumed;
    uint32_t num_prefill_tokens;
    uint32_t num_draft_tokens;
} qr_step_builder;

/* An input of a session that waits until the session has stopped. */
struct qr_session_input {
    uint32_t next; /* of the same session, or of the free ones; QR_NIL: none */
    qr_text text;
    double arrival_time;
    qr_stop_rules stops;
    qr_feature *features; /* all that the session will have then; NULL: no new ones */
    quire_mm_feature *mm_features;
    uint32_t num_features; /* new ones, at the end of the arrays */
    qr_flag_chain flags;   /* of the new ones */
};

/* What a scheduler was created with: limits and choices. Nothing here changes later. */
typedef struct qr_rules {
    quire_policy policy;
    uint32_t max_num_seqs;
    uint32_t max_scheduled;
    uint32_t max_model_len;
    uint32_t long_prefill_threshold;
    uint32_t num_spec_tokens;
    uint32_t num_lookahead;
    uint32_t max_loras;
    uint32_t encoder_budget;
    uint32_t mamba_block_size; /* of align mode; 0: steps are not aligned */
    uint32_t hash_block_size;
    uint32_t max_requests;
    uint32_t max_request_bytes;
    uint32_t max_features; /* of one request */
    uint32_t max_batches;
    uint32_t max_finished;
    uint32_t max_loading;
    uint64_t quirks;
    bool chunked_prefill;
    bool reserve_full_sequence;
    bool is_async;
    bool is_encoder_decoder;
    bool disable_chunked_mm;
    bool use_eagle;
    bool zeroes_blocks;
    bool log_stats;
    bool counts_stats; /* for that, or for the monitor */
    bool lists_finished;
    bool fails_on_load_error;
    bool uses_pressure;
    bool can_unschedule; /* a victim may be in the step already: not so where it is the last */
    quire_victim victim; /* as resolved: LIFO, PRIORITY or LRU */
    uint32_t (*choose_victim)(void *user, const quire_req *candidates, uint32_t num);
    void *victim_user;
} qr_rules;

/* Whom the scheduler asks and tells in its steps, and whether a call to them is under way. */
typedef struct qr_partners {
    bool has_connector;
    bool has_encoder_connector;
    bool has_grammar;
    bool is_inside;      /* a call that may run callbacks: they must not change the scheduler */
    quire_req asked_req; /* the connector is asked about it, and may cut its prompt; 0: none */
    quire_connector connector;
    quire_encoder_connector encoder_connector;
    quire_grammar grammar;
    quire_prefix_stats connector_stats;
} qr_partners;

/* The texts of all requests and inputs, and who may take the pages that are free. */
typedef struct qr_texts {
    qr_text_store store;
    uint32_t *tables;           /* tables of the requests, and of their inputs */
    uint32_t max_waiting_pages; /* pages of requests that never ran, and of inputs */
    uint32_t num_waiting_pages;
    uint32_t num_promised_pages; /* of all requests: free ones that are not for others */
} qr_texts;

/* All requests that are there. */
typedef struct qr_request_table {
    qr_idmap ids;
    qr_request *requests;
    qr_waiter *waiters; /* max_requests, and a sentinel for each queue */
    unsigned char *blobs;
    quire_token *drafts; /* num_spec_tokens for each request */
    uint32_t *free_slots;
    uint32_t num_live;
    qr_link *by_age; /* all that are there, in the order in which they were added */
} qr_request_table;

/* Who runs, and who waits in which order. */
typedef struct qr_queues {
    uint32_t *running;
    uint32_t num_running;
    qr_waiting waiting;
    qr_waiting skipped;
    qr_waiting step_skipped;
    uint32_t num_waiting_for_streaming;
} qr_queues;

/* Requests that wait, hold blocks and keep each other from running. */
typedef struct qr_deadlock {
    uint32_t num_holders[QR_HOLDS_IDLE + 1]; /* requests of each qr_holder kind but the first */
    uint32_t is_active; /* a waiting request had to give up its blocks, see starved.c */
    uint64_t round;     /* of turns, see starved.c; never 0 */
} qr_deadlock;

/* Inputs of sessions that have not stopped yet. */
typedef struct qr_sessions {
    qr_session_input *inputs;
    uint32_t first_free_input;
} qr_sessions;

/* Requests that have ended and are to be listed. */
typedef struct qr_ended {
    quire_req *finished; /* since the last step */
    uint32_t num_finished;
    quire_req *client_finished; /* since the last update, with include_finished_set */
    uint32_t *client_of_finished;
    uint32_t num_client_finished;
    quire_req *asked; /* that ran, and that the caller has preempted since the last step */
    uint32_t num_asked;
} qr_ended;

/* Steps that were scheduled and not updated yet. */
typedef struct qr_flight {
    uint64_t step;
    qr_batch *batches; /* a ring */
    uint32_t first_batch;
    uint32_t num_batches;
    uint64_t first_valid_step; /* steps before it were made void by a reset */
} qr_flight;

/* What an update gives back. */
typedef struct qr_results {
    quire_output *outputs;
    quire_token *output_tokens; /* tokens of the outputs, num_spec_tokens + 1 for each */
    quire_outputs result;
    uint64_t *accepted_per_pos;
    quire_output *outgrown; /* of requests that ended in schedule, to be told in the next update */
    uint32_t num_outgrown;
    uint32_t num_stopped; /* running ones, in this update */
} qr_results;

/* The monitor, and room to tell it of an event. */
typedef struct qr_watch {
    quire_monitor *monitor; /* NULL: nobody looks */
    qr_feed_piece *pieces;  /* of an event's tokens, and */
    quire_feed_key *keys;   /* its keys */
} qr_watch;

/* Memory that a call uses and no later call reads. */
typedef struct qr_room {
    uint32_t *scratch; /* max_requests numbers, inside one call */
    uint32_t *order;   /* the same */
    quire_req *req_scratch;
    quire_token *token_scratch; /* max_model_len */
    uint8_t *failed_blocks;     /* a qr_failed mark for each block; all 0 between calls */
    quire_block_span *spans;    /* num_groups, inside one call */
    quire_block_span *no_spans; /* num_groups empty ones */
} qr_room;

struct quire_sched {
    uint32_t magic;
    qr_rules rules;
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
    qr_step_builder builder;
    qr_results results;
    qr_observer observer;
    qr_watch watch;
    qr_swap swap;
    qr_pins pins;
    qr_lookahead ahead;
    qr_prefix prefix;
    qr_room room;
    char why_refused[160]; /* the last refusal that has a reason; "": none */
    qr_owner owner;
};

#define QR_SCHED_MAGIC UINT32_C(0x51534348) /* "QSCH" */

/* ---- sched.c --------------------------------------------------------------- */

int qr_sched_config_read(quire_sched_config *config, const quire_sched_config *callers);
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
    bool ok = index < sched->rules.max_requests && sched->table.requests[index].is_in_use &&
              sched->table.requests[index].generation == (uint32_t)(req >> 32);
    return QR_LIKELY(ok) ? index : QR_NIL;
}

/* Tokens of one feature. What an encoder-decoder model's encoder sees is no part of the prompt. */
static inline uint32_t qr_sched_longest_feature(const quire_sched *sched)
{
    return sched->rules.is_encoder_decoder ? QR_MAX_TOKENS : sched->rules.max_model_len;
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
    return sched->table.drafts + (size_t)index * sched->rules.num_spec_tokens;
}

/* ---- requests.c ------------------------------------------------------------ */

int qr_sched_add(quire_sched *sched, const quire_request_params *params, quire_req *req);
/* A slot for a request that comes in, empty and not in use yet: QUIRE_OK, QUIRE_E_DUPLICATE or
 * QUIRE_FULL. qr_sched_release_slot takes it back. */
int qr_sched_take_slot(quire_sched *sched, quire_bytes id, uint32_t *index);
void qr_sched_release_slot(quire_sched *sched, uint32_t index);
/* The request that was made in the slot is there from now on, and in no queue. */
void qr_sched_enter(quire_sched *sched, uint32_t index, const quire_request_params *params);
int qr_sched_continue(quire_sched *sched, uint32_t index, const quire_request_params *params);
int qr_sched_cut_prompt(quire_sched *sched, uint32_t index, uint32_t num_tokens,
                        uint32_t max_tokens);
/* Puts a request that is in no queue into the one its status asks for. */
void qr_sched_enqueue(quire_sched *sched, uint32_t index);
/* Takes it out of the queue it is in, if any. */
void qr_sched_dequeue(quire_sched *sched, uint32_t index);
void qr_sched_finish(quire_sched *sched, const quire_req *reqs, uint32_t n, quire_req_status status,
                     uint32_t *num_finished);
void qr_sched_finish_all(quire_sched *sched, quire_req_status status, uint32_t *num_finished);
/* After its status became finished: tells the connector, frees the encoder's items, lists it; and
 * frees its blocks unless something still needs them. */
void qr_sched_free_request(quire_sched *sched, uint32_t index, bool keep_blocks);
/* Gives the blocks back and forgets the request. */
void qr_sched_free_blocks(quire_sched *sched, uint32_t index);
/* A session that has stopped: true when it ends, else it waits again. */
bool qr_sched_session_ends(quire_sched *sched, uint32_t index);
void qr_sched_drop_inputs(quire_sched *sched, uint32_t index);
/* Forgets the request's features from the num_left-th on: those of its inputs move up. */
void qr_sched_drop_features(quire_sched *sched, qr_request *r, uint32_t num_left);
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
unsigned char *qr_request_take_blob(const quire_sched *sched, uint32_t index, size_t bytes);
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

/* ---- pages of requests (requests.c) ---------------------------------------- */

/* Pages for its prompt, its inputs and all that it may generate are promised to a request when it
 * is admitted for the first time: so that those that run always have a page for the next token, and
 * end. False when that is too much now. */
/* Where its text ends at the latest. */
uint32_t qr_sched_last_token_of(const quire_sched *sched, const qr_request *r);
bool qr_sched_promise_pages(quire_sched *sched, qr_request *r);
void qr_sched_take_back_promise(quire_sched *sched, qr_request *r);
/* Pages for tokens that wait, to add to `text`; false when there would be more than `most`. */
bool qr_sched_take_waiting_pages(quire_sched *sched, qr_text *text, uint32_t num_tokens,
                                 uint32_t most);
void qr_sched_release_waiting_pages(quire_sched *sched, qr_text *text);
/* Takes pages that were promised, up to those for `end` tokens. */
void qr_sched_take_promised_pages(quire_sched *sched, qr_request *r, uint32_t end);

/* Takes the pages for what the steps in flight and one more can add to the request's tokens. */
static inline void qr_sched_make_text_room(quire_sched *sched, qr_request *r)
{
    uint32_t end = r->kv.num_tokens + r->num_placeholders + 1 + sched->rules.num_spec_tokens;
    if (QR_UNLIKELY(end > r->text.num_pages * sched->texts.store.page_tokens))
        qr_sched_take_promised_pages(sched, r, end);
}

/* ---- starved.c ------------------------------------------------------------- */

/* Before requests are looked at; whether one may begin a load now; one has begun a load, or runs,
 * or has lost blocks. */
void qr_starved_begin(quire_sched *sched);
/* The status of the request or its row has changed: counts it anew. */
void qr_starved_note_holder(quire_sched *sched, qr_request *r);
/* The walker's part: whether the counts are right. */
bool qr_starved_is_valid(const quire_sched *sched);
bool qr_starved_may_load(quire_sched *sched, const qr_request *r);
void qr_starved_note_change(quire_sched *sched);
/* After they were: where all that could have begun one have had their turn, all may again. */
void qr_starved_end_round(quire_sched *sched);
/* Takes the blocks of a request that waits, to be computed again; false when there is none. */
bool qr_starved_take_blocks(quire_sched *sched);
/* Some request has moved on. */
void qr_starved_end(quire_sched *sched);

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

/* ---- step.c ---------------------------------------------------------------- */

void qr_step_begin(quire_sched *sched);
/* Adds a request; blocks are those to be told, num_groups spans. */
static inline void qr_step_add(quire_sched *s, uint32_t index, quire_step_kind kind,
                               uint32_t num_tokens, uint32_t num_computed,
                               const quire_block_span *blocks)
{
    qr_step_builder *b = &s->builder;
    const qr_request *r = &s->table.requests[index];
    uint32_t i = b->out.num_reqs++;
    uint32_t num_groups = s->cache->num_groups;
    qr_assert(i < s->rules.max_num_seqs);
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
}

/* What of the request's features must be encoded for num_new tokens from `computed` on. */
qr_encoder_plan qr_sched_plan_encoder(quire_sched *sched, const qr_request *r, uint32_t computed,
                                      uint32_t num_new);
/* Allocates what was planned for the request that was added last. */
void qr_step_add_encoder(quire_sched *sched, qr_request *r, const qr_encoder_plan *plan);
void qr_step_add_lora(quire_sched *sched, uint32_t lora_id);
bool qr_step_has_lora(const quire_sched *sched, uint32_t lora_id);
/* The place of a request in the step being made, or QR_NIL. */
uint32_t qr_step_find(const quire_sched *sched, quire_req req);
void qr_step_remove(quire_sched *sched, uint32_t place);
const quire_step *qr_step_end(quire_sched *sched);

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

/* ---- flight.c -------------------------------------------------------------- */

/* The place of a step among those in flight, oldest first, or QR_NIL. */
uint32_t qr_flight_find(const quire_sched *sched, uint64_t step);
/* Whether no request of it waits for an older one. */
bool qr_flight_is_in_order(quire_sched *sched, uint32_t place);
/* Who waits for the i-th output of the step; QR_NIL: the request has ended, or has begun again. */
uint32_t qr_flight_who_waits(const quire_sched *sched, const qr_batch *batch, uint32_t i);
/* The batch of that place in the ring; place num_batches is the next one's. */
static inline qr_batch *qr_flight_batch(const quire_sched *s, uint32_t place)
{
    uint32_t at = s->flight.first_batch + place;
    return &s->flight.batches[at < s->rules.max_batches ? at : at - s->rules.max_batches];
}
/* It is in flight no longer. */
void qr_flight_end(quire_sched *sched, uint32_t place);
int qr_sched_forget_step(quire_sched *sched, uint64_t step);

/* ---- update ---------------------------------------------------------------- */

int qr_sched_update(quire_sched *sched, uint64_t step, const quire_model_output *output,
                    const quire_outputs **outputs);
int qr_sched_update_drafts(quire_sched *sched, const quire_req *reqs, uint32_t n,
                           const quire_token *drafts, uint32_t stride, const uint32_t *num_drafts);
/* Whether the last token ends the request; sets its status. */
bool qr_sched_check_stop(const quire_sched *sched, qr_request *r, quire_token last);

/* ---- loads.c --------------------------------------------------------------- */

/* A request that waits for loads: true when it can be scheduled now. */
bool qr_sched_promote_loaded(quire_sched *sched, uint32_t index);
/* Loads into these blocks failed. Marks the requests whose output does not count with
 * scratch[index] = 1, lists them in req_scratch, and returns how many. */
uint32_t qr_sched_fail_blocks(quire_sched *sched, const qr_batch *batch,
                              const quire_model_output *output);
/* Loads of the step that did not fail: what lies in their blocks may be found from now on. */
void qr_sched_confirm_loads(quire_sched *sched, const qr_batch *batch);
/* Requests with scratch[index] != 0 that run are preempted, and what was computed for them in steps
 * up to now does not count. */
void qr_sched_begin_again(quire_sched *sched);
void qr_sched_note_transfers(quire_sched *sched, const quire_model_output *output);

/* ---- reset.c --------------------------------------------------------------- */

int qr_sched_reset_prefix_cache(quire_sched *sched, bool with_running, bool with_connector);

bool qr_sched_is_valid(const quire_sched *sched);

#endif

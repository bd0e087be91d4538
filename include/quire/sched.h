/* quire/sched.h - the scheduler: who computes how many tokens in the next step.
 *
 *      add ──► waiting ──► running ──► finished           schedule()  decides a step
 *                 ^           │                            the engine  computes it
 *                 └─preempted─┘                            update()    takes what came out
 *
 *                 step n                       step n + 1
 *      schedule ──────────► update      with async_scheduling the next schedule may come before the
 *           schedule ──────────► update    update of the one before: up to max_batches in flight
 *
 * request   a prompt and what is generated from it. quire_req names it: quire_req_index is below
 *           max_requests and no other request's while it lives, the high 32 bits are a generation.
 *           A quire_req of a request that has ended is valid again only after its index was used
 *           2^32 times more.
 * budget    tokens that one step computes: max_num_scheduled_tokens for all requests together.
 *           Running requests come first, in order; then waiting ones, as long as there is budget,
 *           room in the KV cache, and nobody had to be preempted.
 * preempt   a running request gives its blocks back and waits again: the last one (FCFS) or the one
 *           with the largest (priority, arrival time) (PRIORITY), or as `victim` says.
 * pressure  the used part of the pool. Above a mark requests are preempted, and below another mark
 *           requests are admitted (use_pressure; off by default).
 * drafts    tokens that a cheaper model guessed; computed together with the next token and then
 *           accepted or rejected.
 * placeholders   tokens of steps in flight, whose values are not known yet (async scheduling).
 * swap      a preempted request's KV may be kept in a host buffer, where that costs less than
 *           computing it again (num_swap_blocks; off by default).
 * fork      a second request with the text of the first: parallel samples, beams
 *           (quire_sched_fork; needs cache.max_copies). The two share blocks until one writes.
 *
 *      status                      may become
 *      WAITING                     RUNNING, WAITING_FOR_REMOTE_KVS, finished
 *      WAITING_FOR_GRAMMAR         WAITING, finished
 *      WAITING_FOR_REMOTE_KVS      WAITING, PREEMPTED, finished
 *      WAITING_FOR_STREAMING       WAITING, finished
 *      RUNNING                     PREEMPTED, WAITING, WAITING_FOR_STREAMING, finished
 *      PREEMPTED                   RUNNING, WAITING_FOR_REMOTE_KVS, finished
 *      FINISHED_*                  nothing; gone once its blocks are free
 *
 * Decisions are those of vLLM 0.20.0's Scheduler, or AsyncScheduler with async_scheduling: with
 * QUIRE_PROFILE_VLLM_0_20 including the bugs that show in decisions, with QUIRE_PROFILE_DEFAULT
 * without. In the default profile every accepted request ends: a request that could not run alone
 * in an empty engine is refused (QUIRE_E_TOO_LONG), and a request that outgrows the pool while it
 * generates ends with QUIRE_FINISH_LENGTH, when it runs or when it waits to be computed again. What
 * the caller must do for it: update or forget each step, answer for the connector and the grammar,
 * and continue or end sessions. Where vLLM 0.20.0's engine ends with "Cannot get N free blocks"
 * (QUIRE_E_PREDICTION in quire/cache.h), schedule goes on as if there was no room: a running
 * request has another one preempted, and a waiting one goes on waiting.
 *
 * Cost: schedule and update are O(requests in the step); add and finish O(log requests) and the
 * tokens given. Nothing is allocated after creation.
 *
 * Callbacks run on the calling thread, inside the call that causes them. A callback must not change
 * the scheduler: every function that would answers QUIRE_E_ARGUMENT there, and quire_sched_destroy
 * does nothing. Allowed are quire_sched_find, _user, _req_info, _get_params, _get_mm_input,
 * _get_tokens, _get_blocks, _get_queue, _num_*, _usage, and as their comments say _get_hashes and
 * _cut_prompt.
 *
 * Threads: one writer. quire_sched_usage: any thread.
 *
 * Answers: a call that does not return QUIRE_OK has changed nothing. NULL where something must be
 * is QUIRE_E_ARGUMENT; a quire_req that is not there is QUIRE_E_UNKNOWN_REQ.
 */
#ifndef QUIRE_SCHED_H
#define QUIRE_SCHED_H

#include "cache.h"
#include "config.h"
#include "connector.h"
#include "error.h"
#include "hash.h"
#include "memory.h"
#include "monitor.h"
#include "observe.h"
#include "output.h"
#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_sched quire_sched;
typedef enum quire_req_status {
    QUIRE_REQ_WAITING = 1,
    QUIRE_REQ_WAITING_FOR_GRAMMAR = 2,
    QUIRE_REQ_WAITING_FOR_REMOTE_KVS = 3,
    QUIRE_REQ_WAITING_FOR_STREAMING = 4,
    QUIRE_REQ_RUNNING = 5,
    QUIRE_REQ_PREEMPTED = 6,
    QUIRE_REQ_FINISHED_STOPPED = 7, /* from here on: finished */
    QUIRE_REQ_FINISHED_LENGTH = 8,
    QUIRE_REQ_FINISHED_ABORTED = 9,
    QUIRE_REQ_FINISHED_IGNORED = 10,
    QUIRE_REQ_FINISHED_ERROR = 11,
    QUIRE_REQ_FINISHED_REPETITION = 12
} quire_req_status;

typedef enum quire_policy { QUIRE_POLICY_FCFS = 0, QUIRE_POLICY_PRIORITY = 1 } quire_policy;

/* Which running request gives its blocks back when others need room. */
typedef enum quire_victim {
    QUIRE_VICTIM_DEFAULT = 0,  /* FCFS: LIFO; PRIORITY: PRIORITY */
    QUIRE_VICTIM_LIFO = 1,     /* the request that was admitted last */
    QUIRE_VICTIM_PRIORITY = 2, /* the request with the largest (priority, arrival time) */
    QUIRE_VICTIM_LRU = 3       /* the request that was in no step for the longest time; of equals
                                  the one that was admitted last */
} quire_victim;

typedef enum quire_preempt_mode {
    QUIRE_PREEMPT_CHEAPER = 0,  /* swap where that pays and there are slots, else recompute */
    QUIRE_PREEMPT_SWAP = 1,     /* its KV is moved to host slots */
    QUIRE_PREEMPT_RECOMPUTE = 2 /* its KV is computed again */
} quire_preempt_mode;

typedef enum quire_pause {
    QUIRE_UNPAUSED = 0,
    QUIRE_PAUSED_NEW = 1, /* running requests go on, nobody is admitted */
    QUIRE_PAUSED_ALL = 2
} quire_pause;

/* ---- making a scheduler ------------------------------------------------- */

typedef struct quire_sched_config {
    size_t size;
    quire_cache_config cache; /* its profile, quirks, log_stats and max_requests follow from here;
                                 cache.size must be this library's, see quire/config.h */
    quire_hasher *hasher;     /* needed with prefix caching; kept, and used by this scheduler alone;
                                 its block size is the cache's hash_block_size */
    quire_policy policy;
    uint32_t max_num_seqs;                 /* running at one time; 0 = 128 */
    uint32_t max_num_batched_tokens;       /* 0 = 2,048 */
    uint32_t max_num_scheduled_tokens;     /* of one step; 0 = max_num_batched_tokens */
    uint32_t long_prefill_token_threshold; /* most prompt tokens of one request and step; 0: any */
    quire_switch enable_chunked_prefill;   /* default on. Off: max_num_batched_tokens and
                                              max_num_scheduled_tokens must not be smaller than
                                              cache.max_model_len, else QUIRE_E_CONFIG */
    quire_switch reserve_full_sequence;    /* admit only what fits as a whole; default on */
    quire_switch async_scheduling;         /* default off */
    uint32_t max_batches;          /* steps that may be scheduled and not yet updated; 0 = 2 */
    uint32_t num_spec_tokens;      /* drafts for each request and step */
    uint32_t num_lookahead_tokens; /* slots beyond the drafts' own (EAGLE, draft models) */
    uint32_t max_loras;            /* different adapters in one step; 0: no LoRA */
    quire_switch is_encoder_decoder;
    quire_switch disable_chunked_mm_input;
    uint32_t encoder_compute_budget; /* embeddings that one step encodes */
    uint32_t encoder_cache_size;     /* embeddings that are kept */
    /* cache_config.block_size, for Mamba in align mode; 0 = that group's. QUIRE_E_CONFIG if it is
     * larger than the tokens of a step, or than long_prefill_token_threshold. */
    uint32_t mamba_block_size;
    quire_switch include_finished_set; /* finished requests by client, in outputs */
    quire_switch fail_on_load_error;   /* failed loads end their requests; default: recompute */
    quire_switch log_stats;            /* default off */

    /* Limits: QUIRE_FULL when reached */
    uint32_t max_requests;      /* not finished, at one time; 0 = 4,096 */
    uint32_t max_loading;       /* that hold blocks and do not run, sessions that wait for input
                                   not counted; 0 = max_num_seqs */
    uint64_t max_text_tokens;   /* of all requests that wait; 0 = 8 Mi. Sessions that wait for input
                                   keep their text and count too: when they fill it, requests that
                                   never ran wait until a session ends */
    uint32_t max_request_bytes; /* names, stop tokens, features, salt of one request; 0 = 2,048 */
    uint32_t max_encoder_items; /* in the encoder cache; 0 = 1,024 */

    /* Told inside schedule; NULL: not. Decisions cost a little more, snapshots nearly nothing. */
    void (*on_snapshot)(void *user, const quire_snapshot *snapshot);
    void (*on_decision)(void *user, const quire_decision *decision);
    void *observer;
    uint32_t max_ghosts; /* evicted blocks to remember for QUIRE_DECISION_DROPPED; 0 = 65,536 with
                            on_decision, else none */

    const quire_connector *connector; /* copied; NULL: none. QUIRE_E_CONFIG with is_encoder_decoder,
                                         as in vLLM: a connector loads no encoder input */
    const quire_grammar *grammar;     /* copied; NULL: none */
    quire_profile profile;
    uint64_t quirks_on;
    uint64_t quirks_off;
    quire_hooks hooks;

    /* Swapping, beyond vLLM 0.20.0. With a connector that saves preempted requests
     * (quire/offload.h) the library does all of it, and nothing is to be set here. Without one: a
     * host buffer of the engine, to which the engine makes the step's copies, keeps the KV of a
     * preempted request when moving its n blocks costs less than computing its m tokens again:
     *
     *      2 * (swap_setup_ns + n * swap_block_ns) < m * recompute_token_ns
     *
     * (quire/cost.h has both in seconds). It is resumed before others that wait, with PRIORITY
     * before those of its own priority. No request ever waits for a slot: without one it is
     * computed again. QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20 and with QUIRE_QUIRK_STALE_OUTPUTS
     * or QUIRE_QUIRK_FAILED_BLOCKS_STAY; with Mamba or CROSS groups or is_encoder_decoder. At most
     * 2^28 slots; times are below 2^32 ns. */
    uint32_t num_swap_blocks; /* slots of the buffer, a block of one group each; 0: no swapping */
    uint64_t swap_block_ns;   /* to move a block one way */
    uint64_t recompute_token_ns; /* to compute a token; 0 = 1 */

    const quire_encoder_connector *encoder_connector; /* copied; NULL: none. QUIRE_E_CONFIG with
                                                         is_encoder_decoder (default profile) */

    const quire_monitor_config *monitor; /* copied; NULL: none. See quire_sched_monitor */

    /* Requests whose blocks can be kept after their end: quire_sched_pin. Beyond vLLM 0.20.0;
     * QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20, without prefix caching, and above 2^20. */
    uint32_t max_pins; /* 0: none */

    /* How many waiting requests, from the head of the queue, have their cached blocks evicted after
     * all other free blocks. Of these blocks, those of the request that is served last go first,
     * and of one request the end of its prefix first. A preempted request is one of them at once,
     * in its place in the queue. While these requests would find a quarter of the pool (a block
     * counts once for each request), only the head of the queue and preempted requests are added.
     * Lookahead reserves nothing: a block that it keeps is still free, and an allocation succeeds
     * exactly if it would succeed without lookahead. Beyond vLLM 0.20.0; QUIRE_E_CONFIG in
     * QUIRE_PROFILE_VLLM_0_20, without prefix caching, and above 4,096. */
    uint32_t lookahead; /* 0: none */

    /* Prefix-aware admission: of the first prefix_window waiting requests, the one with the most
     * tokens in the prefix cache is admitted next; of equals the first. So requests that share a
     * prefix are admitted together, and before it is evicted. A request can be overtaken only a
     * limited number of times. Of what was admitted since a request began to wait, count what was
     * admitted in turn (requests before it in the queue, for which FCFS makes it wait as well) and
     * what overtook it. When the request is admitted, at most (prefix_patience - 1) times as many
     * requests have overtaken it as were admitted in turn, and fewer than (prefix_patience - 1)
     * times as many tokens to be computed, plus those of one request. A request that was preempted,
     * is swapped or has blocks is not overtaken. With QUIRE_POLICY_PRIORITY requests are chosen
     * among those of the same priority. quire_sched_get_queue still lists the queue in its own
     * order. Beyond vLLM 0.20.0; QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20, without prefix caching,
     * and for a prefix_patience without prefix_window. Cost: O(prefix_window) for each admission.
     */
    uint32_t prefix_window; /* at most 1,024; 0: requests are admitted in the order of the queue */
    uint32_t prefix_patience; /* 1 (no request is overtaken) to 1,000; 0 = 4 */

    /* Memory pressure, beyond vLLM 0.20.0. The level is the used part of the pool. A request that
     * has no blocks is admitted only while the level is below cache.admit_below, and only if its
     * prompt leaves the level at cache.preempt_above or below. While the level is above
     * cache.preempt_above, running requests are preempted at the start of a step, and requests that
     * were loaded wait too. When no request runs, one is admitted at any level, and the last
     * running request is not preempted: so requests end. Blocks of pins, of sessions that wait and
     * of loads count as used. QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20. */
    quire_switch use_pressure; /* default off */

    /* The victim of a preemption; QUIRE_E_CONFIG for others than DEFAULT in
     * QUIRE_PROFILE_VLLM_0_20. While other requests run, the request that was admitted first is no
     * victim, except with QUIRE_VICTIM_PRIORITY. */
    quire_victim victim;
    /* Chooses the victim among num requests, in the order in which they were admitted: returns its
     * place in candidates. The last one is the victim if the answer is num or more. Called inside
     * schedule, instead of `victim`; NULL: not. */
    uint32_t (*choose_victim)(void *user, const quire_req *candidates, uint32_t num);
    void *victim_user;

    uint64_t swap_setup_ns; /* to begin the copies of one request, one way: see swap_block_ns */
} quire_sched_config;

#define QUIRE_SCHED_CONFIG_INIT QUIRE_NESTED_INIT(quire_sched_config, cache)

QUIRE_API size_t quire_sched_bytes(const quire_sched_config *config);
QUIRE_API int quire_sched_create_in(void *memory, size_t bytes, const quire_sched_config *config,
                                    quire_sched **sched);
QUIRE_API int quire_sched_create(const quire_sched_config *config, const quire_allocator *allocator,
                                 quire_sched **sched);
QUIRE_API void quire_sched_destroy(quire_sched *sched);

/* ---- requests ----------------------------------------------------------- */

/* An image, sound or video: its placeholder tokens, and the embeddings that the encoder makes. With
 * is_encoder_decoder it has no place in the prompt: its offset is 0, and it may be longer. */
typedef struct quire_mm_input {
    quire_mm_feature feature;
    uint32_t num_embeds;     /* 0 = one for each placeholder token */
    const uint8_t *is_embed; /* feature.length flags, not 0: an embedding goes there; NULL: to all
                                placeholders, as is_encoder_decoder asks for. Copied as bits */
} quire_mm_input;

typedef struct quire_request_params {
    quire_bytes id;            /* any bytes, at most 256; unique; PRIORITY breaks ties by it */
    const quire_token *prompt; /* copied */
    uint32_t num_prompt_tokens;
    uint32_t max_tokens; /* output tokens; 0 = as many as fit in max_model_len */
    uint32_t min_tokens;
    uint32_t has_eos;
    quire_token eos_token_id;
    const quire_token *stop_token_ids;
    uint32_t num_stop_token_ids;
    uint32_t repetition_max_pattern; /* 0: do not look for repetition */
    uint32_t repetition_min_pattern;
    uint32_t repetition_min_count;
    int32_t priority;    /* smaller is first */
    double arrival_time; /* finite */
    uint32_t client_index;
    quire_bytes lora_name;
    uint32_t lora_id; /* 0: no adapter */
    quire_bytes cache_salt;
    const quire_mm_input *mm_inputs;
    uint32_t num_mm_inputs;
    uint32_t use_grammar;
    uint32_t is_pooling;   /* ends with its first output; max_tokens is 1 */
    uint32_t is_resumable; /* a session: further inputs follow, see quire_sched_continue */
    uint32_t skip_reading_prefix;
    void *user; /* given back by quire_sched_user, and in events */

    /* The hashes of the prompt's first num_hashes blocks of hash_block_size tokens, one after the
     * other, where the caller has made them with the scheduler's hasher: they are believed, and
     * those that are missing are made. Not looked at without prefix caching. */
    const unsigned char *hashes;
    uint32_t num_hashes;
    /* A prompt of embeddings: num_prompt_tokens rows of prompt_embed_bytes bytes, read during the
     * call, and only where hashes are made from them: of the blocks that num_hashes leaves, and of
     * the one that output will fill up. prompt may be NULL: its tokens are then zeros. Not for
     * sessions. */
    const void *prompt_embeds;
    size_t prompt_embed_bytes;
} quire_request_params;

/* QUIRE_FULL when a limit is reached; QUIRE_E_DUPLICATE for an id that is there; QUIRE_E_RANGE for
 * an empty prompt or one of max_model_len tokens or more, an arrival time that is NaN or infinite,
 * an mm_input that does not lie in the prompt (default profile; not for is_encoder_decoder), more
 * hashes than it has full blocks, or data past max_request_bytes; in the default profile
 * QUIRE_E_TOO_LONG for a request that could never run, even alone in an empty engine. Such a
 * request
 *
 *      needs more blocks than the pool has, for its prompt, its first token and its encoder input;
 *      has more encoder input than cache.max_encoder_tokens (is_encoder_decoder);
 *      has mm_inputs that one step needs together, and that exceed encoder_compute_budget,
 *      encoder_cache_size or max_encoder_items: one mm_input; several that lie in the same token,
 *      with EAGLE in two neighbouring tokens, with Mamba in align mode in one block of tokens; all
 *      of them for is_encoder_decoder;
 *      has an mm_input that does not fit the largest step, where disable_chunked_mm_input meets
 *      EAGLE or Mamba in align mode.
 *
 * quire_sched_why_refused says which. The scheduler has room for one is_embed flag for each token
 * of its text memory (for none with an encoder_cache_size of 0): QUIRE_FULL when other requests use
 * it, QUIRE_E_RANGE for a request that has more flags than that. */
QUIRE_API int quire_sched_add(quire_sched *sched, const quire_request_params *params,
                              quire_req *req);

/* A child of a request: another request that begins with the parent's text. From then on the two
 * are requests like any others: each generates, stops, is aborted, preempted, swapped and forked by
 * itself, in any order.
 *
 *      parent   prompt | a b c d ...      the child's prompt is the parent's prompt, and the
 *      child    prompt | a b e f ...      parent's output so far is the child's output so far
 *
 * Of params the id, user, max_tokens, min_tokens, stop rules, priority, arrival time, client_index,
 * use_grammar, is_resumable and skip_reading_prefix count for the child. If num_prompt_tokens is
 * n > 0, the n tokens of prompt take the place of the last n tokens of output: with 1, the child
 * goes on with another token than the one that update gave the parent, as beams do. Everything else
 * is the parent's: text, hashes, mm_inputs, adapter, salt, embeddings. These fields of params are
 * not read. max_tokens and min_tokens count the output so far too. The child has no drafts, no pin
 * and no inputs of a session that wait; no rule looks at tokens that are there already.
 *
 * The child runs at once, right behind the parent, and shares the parent's blocks, so that nothing
 * is computed twice, if all of this holds:
 *
 *      the parent is RUNNING, and no step that computes its tokens is in flight
 *      the tokens that take the place of others were not computed (one never is)
 *      fewer than max_num_seqs requests run, and the scheduler is not paused
 *      the cache and the text memory have room for one more request that runs
 *      params have neither use_grammar nor skip_reading_prefix
 *      no group is Mamba in mode ALIGN or has speculative blocks
 *
 * Otherwise the child is WAITING (or WAITING_FOR_GRAMMAR), as if it had been added with this text,
 * and finds what the prefix cache has of it. The first step of a child lists it as QUIRE_STEP_NEW
 * with all its blocks. `preempted` also lists a child that no step has listed before.
 *
 * A request that writes into a shared block gets a copy of it first (quire_step.copies): it needs a
 * free block, as a new block does. A request for which cache.max_copies leaves no copy in a step
 * waits for the next step.
 *
 *      QUIRE_E_DISABLED      cache.max_copies is 0, or one of QUIRE_QUIRK_STALE_OUTPUTS,
 *                            QUIRE_QUIRK_FAILED_BLOCKS_STAY and QUIRE_QUIRK_HOPELESS_WAITS is on.
 *                            In the vLLM profile all three are on, and max_copies must be 0
 *      QUIRE_E_UNKNOWN_REQ   there is no such parent
 *      QUIRE_E_ARGUMENT      the parent has ended, waits for the next input of its session, or is
 *                            pooling; or params say is_pooling, or, with prefix caching, say
 *                            is_resumable where the parent has a prompt of embeddings:
 *                            quire_sched_why_refused says which
 *      QUIRE_E_DUPLICATE     the id is there already
 *      QUIRE_E_RANGE         max_tokens is not more than the output so far, num_prompt_tokens is
 *                            more; or as for add
 *      QUIRE_E_TOO_LONG      the text needs more blocks than an empty pool has, as for add
 *      QUIRE_FULL            a limit is reached, as for add */
QUIRE_API int quire_sched_fork(quire_sched *sched, quire_req parent,
                               const quire_request_params *params, quire_req *child);

/* Why add, continue or fork last returned QUIRE_E_TOO_LONG (what the request needs, the limit, both
 * numbers), or fork refused the parent: a sentence. "" before the first. Valid until the next. */
QUIRE_API const char *quire_sched_why_refused(const quire_sched *sched);

/* The next input of a session: prompt, features, arrival time and stop rules of params count. It is
 * used when the session has finished what it has; NULL: no more follow, and the session ends there.
 * QUIRE_E_ARGUMENT for a request that is no session, or one whose last input was given, and for
 * mm_inputs with is_encoder_decoder, whose encoder runs before the first token alone. QUIRE_FULL
 * and QUIRE_E_RANGE as for add; QUIRE_E_TOO_LONG if the session with all its inputs could never
 * run. If the session generates so much in between that an input no longer fits, the session ends
 * where the input would have been used. */
QUIRE_API int quire_sched_continue(quire_sched *sched, quire_req req,
                                   const quire_request_params *params);

/* Forgets the prompt's tokens from num_prompt_tokens on, and lowers max_tokens unless 0 is given
 * (min_tokens is then at most max_tokens), for a request that has no blocks, no output and no
 * state in host slots. A connector may call it inside get_num_new_matched_tokens, for the request
 * that it is asked about: one that computes a prompt for another engine may leave that one the
 * last token. QUIRE_E_RANGE if num_prompt_tokens is 0 or more than the prompt has,
 * QUIRE_E_ARGUMENT for a request that has begun, for a session that waits for its next input and,
 * with prefix caching, for a prompt of embeddings, whose rows are not kept. mm_inputs behind the
 * cut are forgotten too; QUIRE_E_RANGE if the cut goes through one. */
QUIRE_API int quire_sched_cut_prompt(quire_sched *sched, quire_req req, uint32_t num_prompt_tokens,
                                     uint32_t max_tokens);

/* When the request ends by itself or is aborted, its full blocks stay for ttl_ns, however much
 * others need room: for a conversation or an agent that is sure to come back. They are let go when
 * the time is over; when a request has them all as its hit; when the cache is reset; when max_pins
 * others are kept and this one ends soonest; and when nobody runs and one that waits finds no room
 * without them, the one that ends soonest first, so that nobody waits for ever. ttl_ns 0 takes it
 * back. QUIRE_E_DISABLED without max_pins. */
QUIRE_API int quire_sched_pin(quire_sched *sched, quire_req req, uint64_t ttl_ns);
/* Lets all go that are kept now. */
QUIRE_API int quire_sched_drop_pins(quire_sched *sched);

/* Ends requests from outside with a FINISHED_* status; any other status is QUIRE_E_ARGUMENT. A
 * request that has ended already is skipped. If num_reqs is 0, no request ends, and reqs may be
 * NULL. *num_finished, where not NULL, is how many requests this call ended. */
QUIRE_API int quire_sched_finish(quire_sched *sched, const quire_req *reqs, uint32_t num_reqs,
                                 quire_req_status status, uint32_t *num_finished);
/* The same for every request of the scheduler, in the order in which they were added. */
QUIRE_API int quire_sched_finish_all(quire_sched *sched, quire_req_status status,
                                     uint32_t *num_finished);

/* The request of an id, 0 when there is none. */
QUIRE_API quire_req quire_sched_find(const quire_sched *sched, quire_bytes id);
QUIRE_API void *quire_sched_user(const quire_sched *sched, quire_req req);

typedef struct quire_req_info {
    quire_req_status status;
    uint32_t num_tokens;
    uint32_t num_prompt_tokens;
    uint32_t num_computed_tokens;
    uint32_t num_output_placeholders;
    uint32_t num_spec_tokens;
    uint32_t num_preemptions;
    uint32_t client_index;
    uint32_t lora_id;
    int32_t priority;
    double arrival_time;
    quire_bytes id;
    quire_seq seq;
    uint32_t num_swapped_tokens; /* whose KV is kept in host slots while it waits, or was saved by
                                    the connector when the request lost its blocks: what is evicted
                                    there since is computed again */
    quire_location location;
    uint32_t is_offloaded; /* 1: it waits for quire_sched_resume */
} quire_req_info;

QUIRE_API int quire_sched_req_info(const quire_sched *sched, quire_req req, quire_req_info *info);
/* What the request was added with, and as continue, fork and cut_prompt have changed it since: for
 * an engine that is told of a new request (QUIRE_STEP_NEW). Sampling parameters are the engine's
 * own: they are behind `user`. max_tokens is never 0. prompt is NULL (quire_sched_get_tokens has
 * it), so are hashes, prompt_embeds and mm_inputs; num_mm_inputs says how many
 * quire_sched_get_mm_input gives. Pointers are valid until the request ends or is continued. */
QUIRE_API int quire_sched_get_params(const quire_sched *sched, quire_req req,
                                     quire_request_params *params);
/* The index-th image, sound or video of the request. is_embed, where not NULL, has room for
 * feature.length flags: 1 where an embedding goes. QUIRE_E_RANGE for an index that is not there. */
QUIRE_API int quire_sched_get_mm_input(const quire_sched *sched, quire_req req, uint32_t index,
                                       quire_mm_input *input, uint8_t *is_embed);
/* Copies tokens [first, first + num) of the request. */
QUIRE_API int quire_sched_get_tokens(const quire_sched *sched, quire_req req, uint32_t first,
                                     uint32_t num, quire_token *tokens);
/* All hashes of the request, digest_bytes each, one for every full hash block; 0 without prefix
 * caching. Valid until the next call of any kind. For a connector: inside
 * get_num_new_matched_tokens of the request that it is asked about alone. */
QUIRE_API int quire_sched_get_hashes(quire_sched *sched, quire_req req, const void **hashes,
                                     uint32_t *num_hashes);
/* The same of the first `most` at most: where few tell enough, the others are not touched. */
QUIRE_API int quire_sched_get_first_hashes(quire_sched *sched, quire_req req, uint32_t most,
                                           const void **hashes, uint32_t *num_hashes);
QUIRE_API int quire_sched_get_blocks(const quire_sched *sched, quire_req req,
                                     quire_block_span *blocks);

/* ---- one step ----------------------------------------------------------- */

/* Decides the next step. QUIRE_FULL when max_batches steps wait for their update. */
QUIRE_API int quire_sched_schedule(quire_sched *sched, const quire_step **step);

/* Takes the output of a step in flight: step is its number, and one that is not in flight is
 * QUIRE_E_ARGUMENT. Steps may be updated in any order, but those of one request in theirs: also
 * QUIRE_E_ARGUMENT, except in the vLLM profile (QUIRE_QUIRK_STALE_OUTPUTS, _FAILED_BLOCKS_STAY), in
 * which tokens are appended as the updates come.
 *
 * QUIRE_E_RANGE for more tokens than a request's drafts and one, for any tokens of a request inside
 * its prompt, and for more invalid drafts than the request had; QUIRE_E_UNKNOWN_BLOCK.
 * With QUIRE_QUIRK_STALE_OUTPUTS those are taken, as vLLM takes them: with drafts up to
 * num_spec_tokens + 1, without any number, max_num_seqs * (num_spec_tokens + 1) in all. */
QUIRE_API int quire_sched_update(quire_sched *sched, uint64_t step,
                                 const quire_model_output *output, const quire_outputs **outputs);

/* The output of this step will never come: its place is free for another one. Requests that run and
 * were to get it are preempted, and computed again. In the vLLM profile (the same two quirks)
 * nothing else happens, as in vLLM, which keeps nothing of a step: its tokens count as computed,
 * and none was sampled; a request that waits for a token then waits until it is finished from
 * outside. QUIRE_E_ARGUMENT for a step that is not in flight. */
QUIRE_API int quire_sched_forget_step(quire_sched *sched, uint64_t step);

/* The drafts for the next step: drafts[i * stride + k] for request reqs[i]. In async scheduling
 * they are the workers' own, and only their number counts. */
QUIRE_API int quire_sched_update_drafts(quire_sched *sched, const quire_req *reqs,
                                        uint32_t num_reqs, const quire_token *drafts,
                                        uint32_t stride, const uint32_t *num_drafts);

/* ---- moving a request ---------------------------------------------------- */

/* Takes the blocks from a request: one that runs, that was loaded and waits, or a session between
 * two inputs. With mode SWAP, or CHEAPER where that pays, a connector that saves keeps its full
 * blocks, or host slots keep its KV: the next step lists the copies to slots in swap_out. A request
 * that ran is in preempted of the next step. It waits at the head of the queue and is admitted
 * again when there is room.
 *
 *      QUIRE_MISS        it has no blocks; mode SWAP: none of its tokens is computed for good
 *      QUIRE_BUSY        its blocks are being loaded, or sent after its end; mode SWAP: a step in
 *                        flight loads into them
 *      QUIRE_FULL        mode SWAP: the connector saves nothing of it, and too few host slots are
 *                        free
 *      QUIRE_E_DISABLED  mode SWAP: num_swap_blocks is 0, and no connector saves */
QUIRE_API int quire_sched_preempt(quire_sched *sched, quire_req req, quire_preempt_mode mode);

/* The same with mode SWAP, and the request is not admitted until quire_sched_resume, whatever room
 * there is. A request without blocks, or without computed tokens, is kept from admission alone.
 * QUIRE_BUSY, QUIRE_FULL and QUIRE_E_DISABLED as for preempt. */
QUIRE_API int quire_sched_offload(quire_sched *sched, quire_req req);
/* The request may be admitted again: its KV comes back from host memory then. QUIRE_MISS for a
 * request that is not offloaded. */
QUIRE_API int quire_sched_resume(quire_sched *sched, quire_req req);

/* ---- the rest ----------------------------------------------------------- */

/* What swapping a block one way and computing a token cost, as measured since: swap_block_ns and
 * recompute_token_ns of the config (0 = 1). QUIRE_E_RANGE for 2^32 ns and more. */
QUIRE_API int quire_sched_set_swap_costs(quire_sched *sched, uint64_t swap_block_ns,
                                         uint64_t recompute_token_ns);

/* Moving num_blocks one way took so long, or computing num_tokens: from the first call on,
 * swap_setup_ns and swap_block_ns, or recompute_token_ns, are what these calls say, the last ones
 * most. An image keeps the costs, and not what they were learned from. QUIRE_E_ARGUMENT for 0
 * blocks or tokens. */
QUIRE_API int quire_sched_learn_swap(quire_sched *sched, uint32_t num_blocks, uint64_t ns);
QUIRE_API int quire_sched_learn_compute(quire_sched *sched, uint32_t num_tokens, uint64_t ns);

QUIRE_API int quire_sched_set_pause(quire_sched *sched, quire_pause pause);
QUIRE_API quire_pause quire_sched_get_pause(const quire_sched *sched);

/* See quire_cache_reset_prefix_cache. Pins, lookahead and state in host slots are dropped. If
 * reset_running, all running requests are preempted; if reset_connector, the connector's cache is
 * reset too.
 *
 *      QUIRE_BUSY        a block would still be in use: by a request that runs (unless
 *                        reset_running), loads, is being sent or is a session that waits for input,
 *                        or by a hold that is not a pin; or the connector's reset_cache failed
 *      QUIRE_E_ARGUMENT  reset_connector without a connector
 *
 * Both change nothing, except with QUIRE_QUIRK_RESET_IN_PARTS (in the vLLM profile), where each
 * part that can be done is done, and the answer is QUIRE_BUSY if one could not. */
QUIRE_API int quire_sched_reset_prefix_cache(quire_sched *sched, uint32_t reset_running,
                                             uint32_t reset_connector);
QUIRE_API int quire_sched_reset_encoder_cache(quire_sched *sched);

QUIRE_API uint32_t quire_sched_num_running(const quire_sched *sched);
QUIRE_API uint32_t quire_sched_num_waiting(const quire_sched *sched);    /* skipped ones included */
QUIRE_API uint32_t quire_sched_num_unfinished(const quire_sched *sched); /* as pause and sessions */
QUIRE_API uint32_t quire_sched_has_finished(const quire_sched *sched); /* not yet told in a step */
/* The queues, in the order in which they will be served; as far as capacity goes, returns how many
 * there are. which: 0 running, 1 waiting, 2 skipped. */
QUIRE_API uint32_t quire_sched_get_queue(const quire_sched *sched, uint32_t which, quire_req *reqs,
                                         uint32_t capacity);

QUIRE_API quire_cache *quire_sched_cache(quire_sched *sched);
/* What other threads may look at; NULL when the config had none. */
QUIRE_API quire_monitor *quire_sched_monitor(quire_sched *sched);
QUIRE_API quire_usage quire_sched_usage(const quire_sched *sched);
/* Walks everything: QUIRE_OK or QUIRE_E_CORRUPT. */
QUIRE_API int quire_sched_check(const quire_sched *sched);

#ifdef __cplusplus
}
#endif
#endif

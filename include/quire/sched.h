/* quire/sched.h - the scheduler: which requests compute how many tokens in the next step.
 *
 *      add ──► waiting ──► running ──► finished           schedule()  decides a step
 *                 ^           │                            the engine  computes it
 *                 └─preempted─┘                            update()    reads the sampled tokens
 *
 *                 step n                       step n + 1
 *      schedule ──────────► update      with async_scheduling the next schedule may come before the
 *           schedule ──────────► update    update of the step before: up to max_batches in flight
 *
 * request   a prompt and the tokens generated from it. quire_req names a request: quire_req_index
 *           is below max_requests and unique among live requests; the high 32 bits are a
 *           generation. The quire_req of a request that has ended is valid again only after its
 *           index was used 2^32 times more.
 * budget    tokens that one step computes: max_num_scheduled_tokens for all requests together.
 *           Running requests come first, in order. Then waiting requests are admitted as long as
 *           the budget lasts, the KV cache has room, and no request had to be preempted.
 * preempt   a running request loses its blocks and waits again: the last request (FCFS), the
 *           request with the largest (priority, arrival time) (PRIORITY), or the request that
 *           `victim` selects.
 * pressure  the used part of the pool. Above one mark requests are preempted, below another mark
 *           requests are admitted (use_pressure; off by default).
 * drafts    tokens that a cheaper model guessed; computed with the next token, then accepted or
 *           rejected.
 * placeholders   tokens of steps in flight, whose values are not known yet (async scheduling).
 * swap      the KV of a preempted request is kept in a host buffer if that costs less than
 *           computing it again (num_swap_blocks; off by default).
 * fork      a second request with the text of the first: parallel samples, beams (quire_sched_fork;
 *           needs cache.max_copies). The two requests share blocks until one writes.
 *
 *      status                      may become
 *      WAITING                     RUNNING, WAITING_FOR_REMOTE_KVS, finished
 *      WAITING_FOR_GRAMMAR         WAITING, finished
 *      WAITING_FOR_REMOTE_KVS      WAITING, PREEMPTED, finished
 *      WAITING_FOR_STREAMING       WAITING, finished
 *      RUNNING                     PREEMPTED, WAITING, WAITING_FOR_STREAMING, finished
 *      PREEMPTED                   RUNNING, WAITING_FOR_REMOTE_KVS, finished
 *      FINISHED_*                  nothing; the request is deleted when its blocks are free
 *
 * The decisions are the decisions of vLLM's Scheduler, or AsyncScheduler with async_scheduling, of
 * the release that the profile names, with the bugs that show in decisions. QUIRE_PROFILE_DEFAULT
 * has none of these bugs. In the default profile every accepted request ends: a request
 * that could not run alone in an empty engine is rejected (QUIRE_E_TOO_LONG), and a request that
 * outgrows the pool ends with QUIRE_FINISH_LENGTH, while it runs or while it waits to be computed
 * again. For this the caller must update or forget each step, answer for the connector and the
 * grammar, and continue or end sessions. Where vLLM's engine ends with "Cannot get N free
 * blocks" (QUIRE_E_PREDICTION in quire/cache.h), schedule acts as if the pool had no room.
 *
 * Cost: schedule and update are O(requests in the step); add and finish are O(log requests) plus
 * the tokens given. Nothing is allocated after creation.
 *
 * Callbacks run on the calling thread, inside the call that causes them. A callback must not change
 * the scheduler: inside a callback every function that changes the scheduler returns
 * QUIRE_E_ARGUMENT, and quire_sched_destroy does nothing. A callback may call quire_sched_find,
 * _user, _req_info, _get_params, _get_mm_input, _get_tokens, _get_blocks, _get_queue, _get_counts,
 * _usage, and, as their comments say, _get_hashes and _cut_prompt.
 *
 * Threads: one writer thread. Any thread may call quire_sched_get_usage.
 *
 * Statuses: a call that does not return QUIRE_OK has changed nothing. If a required pointer is
 * NULL, a call returns QUIRE_E_ARGUMENT. If a quire_req does not exist, a call returns
 * QUIRE_E_UNKNOWN_REQ.
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
#include "request.h"
#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_sched quire_sched;
typedef enum quire_policy { QUIRE_POLICY_FCFS = 0, QUIRE_POLICY_PRIORITY = 1 } quire_policy;

/* Which running request is preempted when other requests need blocks. */
typedef enum quire_victim {
    QUIRE_VICTIM_DEFAULT = 0,  /* FCFS: LIFO; PRIORITY: PRIORITY */
    QUIRE_VICTIM_LIFO = 1,     /* the request that was admitted last */
    QUIRE_VICTIM_PRIORITY = 2, /* the request with the largest (priority, arrival time) */
    QUIRE_VICTIM_LRU = 3       /* the request with the oldest last step; of equals, admitted last */
} quire_victim;

typedef enum quire_preempt_mode {
    /* SWAP if that costs less and slots are free, otherwise RECOMPUTE. */
    QUIRE_PREEMPT_CHEAPER = 0,
    QUIRE_PREEMPT_SWAP = 1,      /* keep its KV in host slots */
    QUIRE_PREEMPT_RECOMPUTE = 2, /* compute its KV again */
    QUIRE_PREEMPT_OFFLOAD = 3,   /* SWAP, and no admission before quire_sched_resume */
    QUIRE_PREEMPT_RESUME = 4     /* no preemption: ends OFFLOAD, as quire_sched_resume does */
} quire_preempt_mode;

typedef enum quire_pause {
    QUIRE_UNPAUSED = 0,
    QUIRE_PAUSED_NEW = 1, /* running requests continue, no request is admitted */
    QUIRE_PAUSED_ALL = 2
} quire_pause;

/* ---- making a scheduler ------------------------------------------------- */

typedef struct quire_sched_config {
    size_t size;
    quire_cache_config *cache; /* required; profile, log_stats, max_requests: from here */
    /* Required with prefix caching; its block size is the cache's hash_block_size. The scheduler
     * keeps the pointer and uses the hasher alone: destroy the hasher after the scheduler. */
    quire_hasher *hasher;
    quire_policy policy;
    uint32_t max_num_seqs;             /* the most running requests; 0 = 128 */
    uint32_t max_num_batched_tokens;   /* 0 = 2,048 */
    uint32_t max_num_scheduled_tokens; /* of one step; 0 = max_num_batched_tokens */
    /* The most tokens of one request in a step; 0: no limit. A request that is alone in the
     * scheduler has no limit, except in QUIRE_PROFILE_VLLM_0_20. */
    uint32_t long_prefill_token_threshold;
    /* Default on. If off, max_num_batched_tokens and max_num_scheduled_tokens must be at least
     * cache.max_model_len, otherwise QUIRE_E_CONFIG. */
    quire_switch enable_chunked_prefill;
    quire_switch reserve_full_sequence; /* admit only if the whole request fits; default on */
    quire_switch async_scheduling;      /* default off */
    uint32_t max_batches;     /* the most steps in flight (scheduled, not yet updated); 0 = 2 */
    uint32_t num_spec_tokens; /* the most drafts of a request in a step */
    /* More slots after the drafts (EAGLE, draft models), from admission on; in
     * QUIRE_PROFILE_VLLM_0_20 from the second step on. */
    uint32_t num_lookahead_tokens;
    uint32_t max_loras; /* the most different adapters in a step; 0: no LoRA */
    quire_switch is_encoder_decoder;
    quire_switch disable_chunked_mm_input;
    uint32_t encoder_compute_budget; /* embeddings that one step encodes */
    uint32_t encoder_cache_size;     /* embeddings that the encoder cache holds */
    /* vLLM's cache_config.block_size, for Mamba in align mode; 0 = the block size of that group, in
     * QUIRE_PROFILE_VLLM_0_32 the smallest of all groups with prefix caching. QUIRE_E_CONFIG if it
     * exceeds the tokens of a step or long_prefill_token_threshold (not in that profile). */
    uint32_t mamba_block_size;
    quire_switch include_finished_set; /* outputs list the finished requests by client */
    quire_switch fail_on_load_error;   /* a failed load ends its request; default: recompute */
    quire_switch log_stats;            /* default off */

    /* Limits: if one is reached, calls return QUIRE_FULL. */
    uint32_t max_requests; /* the most unfinished requests; 0 = 4,096 */
    /* Requests that hold blocks and do not run, waiting sessions excluded; 0 = max_num_seqs. */
    uint32_t max_loading;
    /* Tokens of all waiting requests; 0 = 8 Mi. Sessions that wait for input keep their text and
     * count too: if they fill this memory, requests that never ran wait until a session ends. */
    uint64_t max_text_tokens;
    /* Bytes of id, names, stop tokens, features and salt of one request; 0 = 2,048. */
    uint32_t max_request_bytes;
    uint32_t max_encoder_items; /* in the encoder cache; 0 = 1,024 */

    /* Called inside schedule; NULL: not called. on_decision costs a little time. */
    void (*on_snapshot)(void *user, const quire_snapshot *snapshot);
    void (*on_decision)(void *user, const quire_decision *decision);
    void *observer;
    /* Blocks that QUIRE_DECISION_DROPPED remembers; 0 = 65,536 with on_decision, else none. */
    uint32_t max_ghosts;

    /* Copied; NULL: none. QUIRE_E_CONFIG with is_encoder_decoder, as in vLLM. */
    const quire_connector *connector;
    const quire_grammar *grammar; /* copied; NULL: none */
    quire_profile profile;
    quire_hooks hooks;

    /* Swapping, beyond vLLM 0.20.0. With a connector that saves preempted requests
     * (quire/offload.h) the library does everything, and nothing is to be set here. Without one,
     * the engine has a host buffer and makes the copies of each step. The buffer keeps the KV of a
     * preempted request if moving its n blocks costs less than computing its m tokens:
     *
     *      2 * (swap_setup_ns + n * swap_block_ns) < m * recompute_token_ns
     *
     * (quire/cost.h has both sides in seconds). A swapped request is resumed before other waiting
     * requests, with PRIORITY before other requests of the same priority. No request waits for a
     * slot: without a free slot the request is computed again. QUIRE_E_CONFIG in
     * QUIRE_PROFILE_VLLM_0_20, with Mamba or CROSS groups, and with is_encoder_decoder. At most
     * 2^28 slots; times below 2^32 ns. */
    uint32_t num_swap_blocks;    /* slots, one block of one group each; 0: no swapping */
    uint64_t swap_block_ns;      /* to move one block in one direction */
    uint64_t recompute_token_ns; /* to compute one token; 0 = 1 */

    /* Copied; NULL: none. QUIRE_E_CONFIG with is_encoder_decoder (default profile). */
    const quire_encoder_connector *encoder_connector;

    const quire_monitor_config *monitor; /* copied; NULL: none. See quire_sched_get_monitor */

    /* The most requests whose blocks are kept after their end: quire_sched_pin. Beyond vLLM 0.20.0;
     * QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20, without prefix caching, and above 2^20. */
    uint32_t max_pins; /* 0: no pins */

    /* The number of waiting requests, from the head of the queue, whose cached blocks are evicted
     * after all other free blocks. Among these blocks, the blocks of the request that is served
     * last are evicted first, and of one request the end of its prefix first. A preempted request
     * is added immediately, at its place in the queue. While these requests would find a quarter of
     * the pool (a block counts once for each request), only the head of the queue and preempted
     * requests are added. Lookahead reserves nothing: its blocks are still free, and an allocation
     * succeeds exactly if it would succeed without lookahead. Beyond vLLM 0.20.0; QUIRE_E_CONFIG in
     * QUIRE_PROFILE_VLLM_0_20, without prefix caching, and above 4,096. */
    uint32_t lookahead; /* 0: no lookahead */

    /* Prefix-aware admission: of the first prefix_window waiting requests, the request with the
     * most tokens in the prefix cache is admitted next; of equals, the first. So requests that
     * share a prefix are admitted together, before the prefix is evicted. A request can be
     * overtaken only a limited number of times. Count the requests admitted since a request began
     * to wait: the requests before it in the queue (admitted in turn), and the requests that
     * overtook it. When the request is admitted, at most (prefix_patience - 1) times as many
     * requests have overtaken it as were admitted in turn, and fewer than (prefix_patience - 1)
     * times as many tokens to compute, plus the tokens of one request. A request that was
     * preempted, is swapped or has blocks is not overtaken. With QUIRE_POLICY_PRIORITY a request
     * overtakes only requests of its priority. quire_sched_get_queue lists the queue in its own
     * order. Beyond vLLM 0.20.0; QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20, without prefix caching,
     * and if prefix_patience is set without prefix_window. Cost: O(prefix_window) for each
     * admission. */
    uint32_t prefix_window;   /* at most 1,024; 0: admission in the order of the queue */
    uint32_t prefix_patience; /* 1 (no request is overtaken) to 1,000; 0 = 4 */

    /* Memory pressure, beyond vLLM 0.20.0. The level is the used part of the pool. A request
     * without blocks is admitted only while the level is below cache.admit_below, and only if its
     * prompt leaves the level at cache.preempt_above or below. While the level is above
     * cache.preempt_above, running requests are preempted at the start of a step, and loaded
     * requests wait too. If no request runs, one request is admitted at any level, and the last
     * running request is not preempted: so requests end. Blocks of pins, of waiting sessions and of
     * loads count as used. QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20. */
    quire_switch use_pressure; /* default off */

    /* The victim of a preemption. QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20 unless it is DEFAULT.
     * While other requests run, the request that was admitted first is not a victim, except with
     * QUIRE_VICTIM_PRIORITY. */
    quire_victim victim;
    /* Selects the victim instead of `victim`; NULL: not called. Called inside schedule. candidates
     * lists num requests in the order of admission. Returns an index of candidates; if the index is
     * num or more, the last candidate is the victim. */
    uint32_t (*choose_victim)(void *user, const quire_req *candidates, uint32_t num);
    void *victim_user;

    uint64_t swap_setup_ns; /* to start the copies of one request in one direction */

    /* ---- options of vLLM 0.32; QUIRE_E_CONFIG in QUIRE_PROFILE_VLLM_0_20 unless 0 ---- */

    /* Requests that may run, with sessions that wait for their next input: at most max_num_seqs.
     * 0: max_num_seqs. QUIRE_E_CONFIG in QUIRE_PROFILE_DEFAULT too. */
    uint32_t max_num_active_seqs;
    /* On: long_prefill_token_threshold is at least max_num_batched_tokens / number of requests.
     * QUIRE_E_CONFIG in QUIRE_PROFILE_DEFAULT too. */
    quire_switch long_prefill_token_threshold_adaptive;
    /* Input slots of each request that the draft model needs beside num_spec_tokens; they count
     * against max_num_batched_tokens, which must be larger. */
    uint32_t num_draft_slots;
    /* Tokens behind a chunk of a prompt that the draft model reads. 0: 1 with EAGLE, else none.
     * QUIRE_PROFILE_DEFAULT: at most 1. */
    uint32_t num_prefill_lookahead_tokens;
    quire_switch is_pooling_model; /* on: no token is sampled, a prompt may have max_model_len */

    /* ---- QUIRE_E_CONFIG in profiles other than QUIRE_PROFILE_VLLM_0_32 unless 0 ---- */

    /* With async_scheduling: a request that decodes in step n decodes again in step n +
     * decode_interval at the earliest. vLLM: the stages of the pipeline. 0 = 1. */
    uint32_t decode_interval;
    /* Copied. Element n - 1 is the number of drafts that each request gets after a step of n
     * requests, at most num_spec_tokens; the last element counts for larger steps too. NULL:
     * num_spec_tokens. */
    const uint32_t *num_spec_tokens_by_batch;
    uint32_t num_batch_sizes;
    /* On: the model runs its encoder alone, for an encoder connector. A request ends when its
     * prompt is computed; no token is sampled. Prompts are cut into chunks without
     * enable_chunked_prefill too. */
    quire_switch is_encoder_only;
} quire_sched_config;

#define QUIRE_SCHED_CONFIG_INIT QUIRE_SIZED_INIT(quire_sched_config)

/* Create a scheduler: see quire/memory.h. quire_refusal says why a config is invalid. */
QUIRE_API int quire_sched_create(const quire_sched_config *config, const quire_allocator *allocator,
                                 quire_sched **sched);
static inline size_t quire_sched_bytes(const quire_sched_config *config)
{
    size_t bytes = 0;
    quire_sched *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_sched_create(config, &measure, &none);
    return bytes;
}
QUIRE_API void quire_sched_destroy(quire_sched *sched);

/* ---- requests ----------------------------------------------------------- */

/* Adds a request; *req names it. The scheduler copies params.
 *
 *      QUIRE_FULL          a limit is reached, or other requests use the memory for is_embed flags
 *      QUIRE_E_DUPLICATE   a request with this id exists
 *      QUIRE_E_RANGE       an empty prompt, or max_model_len tokens or more (more than
 *                          max_model_len for is_pooling with is_pooling_model); an arrival time
 *                          that is NaN or infinite; an mm_input outside the prompt (default
 *                          profile, without is_encoder_decoder); more hashes than full blocks;
 *                          more num_hidden_tokens than num_hashes blocks or the prompt have;
 *                          more than max_request_bytes; more is_embed flags than the text memory
 *                          has tokens (any flag with an encoder_cache_size of 0)
 *      QUIRE_E_ARGUMENT    the id is empty, or a required pointer is NULL
 *      QUIRE_E_TOO_LONG    default profile: the request could never run, even alone in an empty
 *                          engine; quire_refusal says why. Such a request needs more
 *                          blocks than the pool has, for its prompt, its first token and its
 *                          encoder input; or has more encoder input than cache.max_encoder_tokens
 *                          (is_encoder_decoder); or has mm_inputs that one step needs together and
 *                          that exceed encoder_compute_budget, encoder_cache_size or
 *                          max_encoder_items (one mm_input; several in the same token, with EAGLE
 *                          in two neighbouring tokens, with Mamba in align mode in one block of
 *                          tokens; all of them for is_encoder_decoder); or has an mm_input that
 *                          does not fit in the largest step, if disable_chunked_mm_input meets
 *                          EAGLE or Mamba in align mode */
QUIRE_API int quire_sched_add(quire_sched *sched, const quire_request_params *params,
                              quire_req *req);

/* Adds a child of a request: another request that begins with the parent's text. From then on the
 * two are independent: each generates, stops, is aborted, preempted, swapped and forked separately.
 *
 *      parent   prompt | a b c d ...      the child's prompt is the parent's prompt, and the
 *      child    prompt | a b e f ...      parent's output so far is the child's output so far
 *
 * Of params the call reads id, user, max_tokens, min_tokens, stop rules, priority, arrival time,
 * client_index, use_grammar, is_resumable and skip_reading_prefix. If num_prompt_tokens is n > 0,
 * the n tokens of prompt replace the last n tokens of output: with 1, the child continues with
 * another token than the parent, as beams do. Everything else comes from the parent: text, hashes,
 * mm_inputs, adapter, salt, embeddings. max_tokens and min_tokens include the output so far. The
 * child has no drafts, no pin and no waiting session inputs. Stop rules do not look at tokens that
 * already exist.
 *
 * If all of the following hold, the child runs immediately, right behind the parent, and shares the
 * parent's blocks, so that nothing is computed twice:
 *
 *      the parent is RUNNING, and no step that computes its tokens is in flight
 *      the replaced tokens were not computed (the last token never is)
 *      fewer than max_num_seqs requests run, and the scheduler is not paused
 *      the cache and the text memory have room for one more running request
 *      params have neither use_grammar nor skip_reading_prefix
 *      no group is Mamba in mode ALIGN or has speculative blocks
 *
 * Otherwise the child is WAITING (or WAITING_FOR_GRAMMAR), as if it had been added with this text,
 * and finds its prefix in the prefix cache. The first step of a child lists it as QUIRE_STEP_NEW
 * with all its blocks. `preempted` also lists a child that no step has listed before.
 *
 * A request that writes into a shared block gets a copy of the block first (quire_step.copies),
 * which needs a free block. If a step has no copy left of cache.max_copies, the request waits for
 * the next step.
 *
 *      QUIRE_E_DISABLED      cache.max_copies is 0, as it must be in the vLLM profiles
 *      QUIRE_E_UNKNOWN_REQ   the parent does not exist
 *      QUIRE_E_ARGUMENT      the parent has ended, waits for the next input of its session, or is
 *                            pooling; or params have is_pooling, or, with prefix caching,
 *                            is_resumable and the parent has a prompt of embeddings:
 *                            quire_refusal says which
 *      QUIRE_E_DUPLICATE     a request with this id exists
 *      QUIRE_E_RANGE         max_tokens is not above the output so far, num_prompt_tokens is above
 *                            it; or as for add
 *      QUIRE_E_TOO_LONG      the text needs more blocks than an empty pool has, as for add
 *      QUIRE_FULL            a limit is reached, as for add */
QUIRE_API int quire_sched_fork(quire_sched *sched, quire_req parent,
                               const quire_request_params *params, quire_req *child);

/* Adds the next input of a session. Reads prompt, mm_inputs, arrival time and stop rules of params.
 * The session uses the input when it has finished its earlier inputs. params NULL: no more inputs
 * follow, and the session ends there. QUIRE_E_ARGUMENT if the request is not a session, if its last
 * input was given, for a prompt of embeddings, and for mm_inputs with is_encoder_decoder (its
 * encoder runs before the first token only). QUIRE_FULL and QUIRE_E_RANGE as for add.
 * QUIRE_E_TOO_LONG if the session with all its inputs could never run. If the session generates so
 * many tokens that a waiting input no longer fits, the session ends where it would have used the
 * input. */
QUIRE_API int quire_sched_continue(quire_sched *sched, quire_req req,
                                   const quire_request_params *params);

/* Removes the prompt's tokens from num_prompt_tokens on, and lowers max_tokens unless max_tokens is
 * 0 (min_tokens is then at most max_tokens). The request must have no blocks, no output and no KV
 * in host slots. mm_inputs behind the cut are removed too. A connector may call this inside
 * get_num_new_matched_tokens, for the request that it is asked about: a connector that computes a
 * prompt for another engine may leave the last token to that engine. QUIRE_E_RANGE if
 * num_prompt_tokens is 0, above the prompt's, or below its num_hidden_tokens, or if the cut goes
 * through an mm_input.
 * QUIRE_E_ARGUMENT if the request has begun or its output is in flight
 * (QUIRE_PROFILE_VLLM_0_32), if it is a session that waits for input, or, with
 * prefix caching, if it has a prompt of embeddings, whose rows are not kept. */
QUIRE_API int quire_sched_cut_prompt(quire_sched *sched, quire_req req, uint32_t num_prompt_tokens,
                                     uint32_t max_tokens);

/* Pins the blocks of a request: when the request ends by itself or is aborted, its full blocks are
 * kept for ttl_ns, even if other requests need room. ttl_ns 0 removes the pin. Use it for a
 * conversation or an agent that will continue. A pin ends when its time has passed; when a request
 * has all its blocks as its hit; when the cache is reset; when max_pins pins exist and this one
 * ends soonest; and when no request runs and a waiting request finds no room: then the pin that
 * ends soonest ends first. QUIRE_E_DISABLED without max_pins. */
QUIRE_API int quire_sched_pin(quire_sched *sched, quire_req req, uint64_t ttl_ns);

/* Ends requests with a FINISHED_* status; with any other status returns QUIRE_E_ARGUMENT. Skips
 * requests that have ended. If num_reqs is 0, no request ends, and reqs may be NULL. If num_reqs is
 * UINT32_MAX, every request ends, and reqs must be NULL. *num_finished,
 * if not NULL, is the number of requests that this call ended. */
QUIRE_API int quire_sched_finish(quire_sched *sched, const quire_req *reqs, uint32_t num_reqs,
                                 quire_req_status status, uint32_t *num_finished);

/* The request with this id, or 0 if it does not exist. */
QUIRE_API quire_req quire_sched_find(const quire_sched *sched, quire_bytes id);

QUIRE_API int quire_sched_get_req_info(const quire_sched *sched, quire_req req,
                                       quire_req_info *info);
/* The params of a request, with the changes by continue, fork and cut_prompt: for an engine that
 * sees a new request (QUIRE_STEP_NEW). The engine keeps sampling parameters itself, behind `user`.
 * max_tokens is never 0. prompt, hashes, prompt_embeds and mm_inputs are NULL: use
 * quire_sched_get_tokens and quire_sched_get_mm_input (num_mm_inputs says how many). Pointers are
 * valid until the request ends or is continued. */
QUIRE_API int quire_sched_get_params(const quire_sched *sched, quire_req req,
                                     quire_request_params *params);
/* The index-th image, sound or video of the request. is_embed, if not NULL, has room for
 * feature.length flags: 1 where an embedding goes. QUIRE_E_RANGE if the request has no such
 * mm_input. */
QUIRE_API int quire_sched_get_mm_input(const quire_sched *sched, quire_req req, uint32_t index,
                                       quire_mm_input *input, uint8_t *is_embed);
/* Copies tokens [first, first + num) of the request. QUIRE_E_RANGE if it has fewer tokens. */
QUIRE_API int quire_sched_get_tokens(const quire_sched *sched, quire_req req, uint32_t first,
                                     uint32_t num, quire_token *tokens);
/* The first `most` hashes of the request, digest_bytes each, one for every full hash block; with
 * UINT32_MAX all; none without prefix caching. Valid until the next call of any function. A
 * connector may call this only in get_num_new_matched_tokens, for the request in question. */
QUIRE_API int quire_sched_get_hashes(quire_sched *sched, quire_req req, uint32_t most,
                                     const void **hashes, uint32_t *num_hashes);
QUIRE_API int quire_sched_get_blocks(const quire_sched *sched, quire_req req,
                                     quire_block_span *blocks);

/* ---- one step ----------------------------------------------------------- */

/* Decides the next step; valid until the next schedule. QUIRE_FULL if max_batches are in flight. */
QUIRE_API int quire_sched_schedule(quire_sched *sched, const quire_step **step);

/* Reads the output of the step in flight with this number. Steps may be updated in any order, but
 * the steps of one request in their order. *outputs is valid until the next update.
 *
 *      QUIRE_E_ARGUMENT       the step is not in flight, or is out of order for a request. The vLLM
 *                             profiles accept any order and append tokens as the updates come
 *      QUIRE_E_RANGE          more tokens than the request's drafts plus one or than stride, tokens
 *                             for a request inside its prompt, or more invalid drafts than drafts.
 *                             The vLLM profiles accept such tokens, as vLLM does: with
 *                             drafts up to num_spec_tokens + 1, without drafts any number,
 *                             max_num_seqs * (num_spec_tokens + 1) in all
 *      QUIRE_E_UNKNOWN_BLOCK  an invalid block does not exist */
QUIRE_API int quire_sched_update(quire_sched *sched, uint64_t step,
                                 const quire_model_output *output, const quire_outputs **outputs);

/* The output of this step will never come: the step is no longer in flight, and its running
 * requests are preempted and computed again. In the vLLM profiles nothing else
 * happens, as in vLLM: the tokens count as computed, and none was sampled; a request that waits for
 * a token waits until the caller finishes it. QUIRE_E_ARGUMENT if the step is not in flight. */
QUIRE_API int quire_sched_forget_step(quire_sched *sched, uint64_t step);

/* Sets the drafts for the next step: drafts[i * stride + k] for request reqs[i]. With async
 * scheduling the workers keep the drafts, and only their number counts. Skips requests that have
 * ended. QUIRE_E_RANGE if a number of drafts exceeds num_spec_tokens or stride. */
QUIRE_API int quire_sched_update_drafts(quire_sched *sched, const quire_req *reqs,
                                        uint32_t num_reqs, const quire_token *drafts,
                                        uint32_t stride, const uint32_t *num_drafts);

/* ---- moving a request ---------------------------------------------------- */

/* Preempts a request that runs, that was loaded and waits, or a session between two inputs: the
 * request loses its blocks. With mode SWAP, or CHEAPER if that costs less, a connector that saves
 * keeps its full blocks, or host slots keep its KV (the next step lists the copies in swap_out).
 * The next step lists a request that ran in preempted. The request waits at the head of the queue
 * and is admitted again when there is room.
 *
 *      QUIRE_MISS        the request has no blocks; mode SWAP: none of its tokens is final
 *      QUIRE_BUSY        its blocks are being loaded, or sent after its end; mode SWAP: a step in
 *                        flight loads into them
 *      QUIRE_FULL        mode SWAP: the connector saves nothing of it, and not enough host slots
 *                        are free
 *      QUIRE_E_DISABLED  mode SWAP: num_swap_blocks is 0, and no connector saves */
QUIRE_API int quire_sched_preempt(quire_sched *sched, quire_req req, quire_preempt_mode mode);

/* ---- the rest ----------------------------------------------------------- */

/* Sets swap_block_ns and recompute_token_ns of the config to new measurements (0 = 1 for the
 * latter). QUIRE_E_RANGE for 2^32 ns and more. */
QUIRE_API int quire_sched_set_swap_costs(quire_sched *sched, uint64_t swap_block_ns,
                                         uint64_t recompute_token_ns);

/* Reports a measurement: moving `amount` blocks in one direction (SWAP), or computing `amount`
 * tokens (COMPUTE), took ns. From
 * the first call on, swap_setup_ns and swap_block_ns, or recompute_token_ns, follow from these
 * calls, the latest with the largest weight. An image keeps the costs, not the measurements.
 * QUIRE_E_ARGUMENT if kind is invalid or amount is 0. */
typedef enum quire_cost_kind { QUIRE_COST_SWAP = 1, QUIRE_COST_COMPUTE = 2 } quire_cost_kind;

QUIRE_API int quire_sched_learn(quire_sched *sched, quire_cost_kind kind, uint32_t amount,
                                uint64_t ns);

/* What counts from the next schedule on: see quire_sched_set_pause and quire_sched_set_throttle.
 * QUIRE_E_ARGUMENT if `what` or value is invalid. */
typedef enum quire_sched_setting {
    QUIRE_SET_PAUSE = 1,   /* a quire_pause */
    QUIRE_SET_THROTTLE = 2 /* 0 or 1 */
} quire_sched_setting;

QUIRE_API int quire_sched_set(quire_sched *sched, quire_sched_setting what, uint32_t value);

/* The stats since the last update or the last call of this function, without drafts; as
 * quire_outputs.stats, which they replace. QUIRE_E_DISABLED without log_stats. */
QUIRE_API int quire_sched_take_stats(quire_sched *sched, const quire_sched_stats **stats);

/* Empties a cache: what is a sum of flags. Without QUIRE_RESET_ENCODER the prefix cache, like
 * quire_cache_reset_prefix_cache: ends pins, lookahead and state in host slots. With
 * QUIRE_RESET_RUNNING, preempts all running requests; with QUIRE_RESET_CONNECTOR, resets the
 * connector's cache too.
 *
 *      QUIRE_BUSY        a block would still be in use: by a request that runs (unless
 *                        QUIRE_RESET_RUNNING), loads, is being sent or is a session that waits for
 *                        input, or by a hold that is not a pin; or the connector's reset_cache
 *                        failed
 *      QUIRE_E_ARGUMENT  QUIRE_RESET_CONNECTOR without a connector, or other flags
 *
 * Both change nothing, except in the vLLM profiles: each part that
 * can be reset is reset, and the call returns QUIRE_BUSY if one part could not. */
enum {
    QUIRE_RESET_RUNNING = 1,
    QUIRE_RESET_CONNECTOR = 2,
    QUIRE_RESET_ENCODER = 4 /* alone: the encoder cache, and not the prefix cache */
};

QUIRE_API int quire_sched_reset(quire_sched *sched, uint32_t what);

typedef struct quire_sched_counts { /* final */
    uint32_t num_running;
    uint32_t num_waiting;    /* skipped requests included */
    uint32_t num_unfinished; /* without paused requests and sessions that wait for input */
    uint32_t has_finished;   /* 1: a finished request is in no step yet */
    quire_pause pause;
} quire_sched_counts;

/* All 0 if sched is NULL. */
QUIRE_API quire_sched_counts quire_sched_get_counts(const quire_sched *sched);
/* Writes the requests of a queue, at most capacity, in the order in which they will be served.
 * Returns the number of requests in the queue. which: 0 running, 1 waiting, 2 skipped; 3: of
 * both waiting queues, the requests that a step has skipped, as the stats count them
 * (QUIRE_PROFILE_VLLM_0_32). */
QUIRE_API uint32_t quire_sched_get_queue(const quire_sched *sched, uint32_t which, quire_req *reqs,
                                         uint32_t capacity);

QUIRE_API quire_cache *quire_sched_get_cache(const quire_sched *sched);
/* The monitor, which other threads may read; NULL if the config has no monitor. */
QUIRE_API quire_monitor *quire_sched_get_monitor(quire_sched *sched);
/* Walks the whole scheduler and checks every invariant. Returns QUIRE_OK or QUIRE_E_CORRUPT. */
QUIRE_API int quire_sched_check(const quire_sched *sched);

#ifdef __cplusplus
}
#endif

#include "sched_calls.h"

#endif

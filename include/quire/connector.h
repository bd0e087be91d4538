/* quire/connector.h - callbacks through which a scheduler gets KV of earlier requests, encoder
 * outputs and grammars.
 *
 *      schedule ──► quire_connector          KV blocks outside of the engine's memory:
 *                                            quire/offload.h, or the caller's own connector
 *               ──► quire_encoder_connector  images, sound and video that another engine encodes
 *               ──► quire_grammar            structured output
 *
 * quire_sched_config names these structs; the scheduler copies them. The scheduler calls the
 * functions on the thread that calls the scheduler. A callback must not change the scheduler:
 * quire/sched.h lists the functions that a callback may call.
 */
#ifndef QUIRE_CONNECTOR_H
#define QUIRE_CONNECTOR_H

#include "cache.h"
#include "config.h"
#include "observe.h"

#ifdef __cplusplus
extern "C" {
#endif

struct quire_step;

/* A state of Mamba layers: `block` holds what the layers of the group have after the first
 * num_tokens tokens of the request. */
typedef struct quire_state_offer { /* final */
    quire_req req;
    uint32_t group;
    quire_block block;
    uint32_t num_tokens;
} quire_state_offer;

/* Finds KV of earlier requests outside the prefix cache: in a tier, or in another engine. A
 * function that is NULL is not called; the connector then finds, saves or resets nothing. */
typedef struct quire_connector {
    size_t size;
    void *user;
    /* Sets *num_external to the number of tokens that the connector has after the first num_local
     * tokens of the request. Sets *is_async to 1 if the tokens are loaded while the request waits,
     * to 0 if they are loaded in this step. Returns QUIRE_OK, or QUIRE_RETRY if the answer is not
     * known yet: the scheduler asks again in the next step. Any other status counts as 0 tokens. */
    int (*get_num_new_matched_tokens)(void *user, quire_req req, uint32_t num_local,
                                      uint32_t *num_external, uint32_t *is_async);
    /* The request now has these blocks, and num_external tokens of them must be loaded.
     * quire_sched_fork also calls this function, with num_external 0, for a child that runs
     * immediately. */
    void (*update_state_after_alloc)(void *user, quire_req req, const quire_block_span *blocks,
                                     uint32_t num_external);
    /* Called at the end of schedule. Returns what the workers must do, as the connector's own data:
     * quire_step.connector_meta. */
    void *(*build_meta)(void *user, const struct quire_step *step);
    /* The request ends. Returns 1 if its blocks are still being sent: the scheduler then frees the
     * blocks when finished_sending lists the request. Returns 0 otherwise. blocks has the blocks of
     * computed tokens, in QUIRE_PROFILE_VLLM_0_20 all blocks of the request. */
    int (*request_finished)(void *user, quire_req req, const quire_block_span *blocks);
    int (*reset_cache)(void *user); /* returns 0 on success */
    /* Called in update, before the scheduler frees blocks that were sent and records loads that
     * ended. */
    void (*update_output)(void *user);
    /* Writes at most `capacity` tiers of the connector, for snapshots and the monitor, and returns
     * their number. The tiers and their order must never change. First called while the scheduler
     * is created, then at the end of schedule (with on_snapshot or a monitor) and of update (with a
     * monitor). The names must stay valid as long as the scheduler. */
    uint32_t (*get_tiers)(void *user, quire_tier_usage *tiers, uint32_t capacity);
    /* The request is about to lose these blocks and will wait. Its first num_tokens tokens are
     * computed and final, at the latest when the steps in flight end. The connector may hold blocks
     * (quire_pool_hold) until it has stored them. is_urgent is 1 if another request needs blocks in
     * this step. Returns how many of the request's first tokens the connector has, or will have
     * when its stores end; 0: none. get_num_new_matched_tokens finds these tokens later. If this
     * function is NULL, the connector saves nothing of a preempted request. */
    uint32_t (*request_preempted)(void *user, quire_req req, const quire_block_span *blocks,
                                  uint32_t num_tokens, int is_urgent);
    /* 1: the connector must send what a request computed, so outputs of steps in flight do not
     * count once the request is preempted. Used in QUIRE_PROFILE_VLLM_0_32 alone. */
    int requires_kv_delivery;
    /* 1: the connector loads. With several steps in flight the blocks of a request that ends or is
     * preempted become free when these steps were updated. Used in QUIRE_PROFILE_VLLM_0_32
     * alone. */
    int is_kv_consumer;
    /* 1: blocks will become free without a preemption; asked when a running request finds no room,
     * which then waits. NULL: never. Used in QUIRE_PROFILE_VLLM_0_32 alone. */
    int (*has_pending_block_frees)(void *user);
    /* 1: a load also brings the Mamba states at its end. With full and Mamba groups num_local is
     * then the hit of the full groups, even if a Mamba group has less; if the connector has no
     * tokens behind it, the hit of all groups counts. Used in QUIRE_PROFILE_VLLM_0_32 alone. */
    int supports_divergent_local_hybrid_hits;
    /* 1: quire_step.states lists states that the connector may store. Used in
     * QUIRE_PROFILE_VLLM_0_32 alone, with Mamba groups in mode ALIGN and prefix caching. */
    int takes_states;
    /* With takes_states. The request ends before a token was computed behind these states, one of a
     * group at most, whose blocks are still its own. Called before request_finished, with the same
     * blocks. Returns 1 if the request's blocks must be kept, as request_finished does. NULL: the
     * states are not told. */
    int (*states_finished)(void *user, quire_req req, const quire_block_span *blocks,
                           const quire_state_offer *states, uint32_t num_states);
} quire_connector;

#define QUIRE_CONNECTOR_INIT QUIRE_SIZED_INIT(quire_connector)

/* Finds encoder outputs of images, sound and video outside the encoder cache: in another engine
 * that encodes. A function that is NULL is not called. input is the number of one of the request's
 * mm_inputs; in a session the mm_inputs of all inputs are numbered one after the other. */
typedef struct quire_encoder_connector {
    size_t size;
    void *user;
    /* Returns 1 if the connector has the encoder output of this input: the input is then not
     * encoded and uses none of the encoder's budget. Called when a step needs the input and the
     * encoder cache has room. */
    int (*has_item)(void *user, quire_req req, uint32_t input);
    /* The input now has a place in the encoder cache. Called first for the inputs that are encoded
     * in this step, then for the inputs that are loaded. */
    void (*update_state_after_alloc)(void *user, quire_req req, uint32_t input);
    /* Called at the end of schedule, after build_meta of the quire_connector:
     * quire_step.encoder_connector_meta. */
    void *(*build_meta)(void *user, const struct quire_step *step);
    /* The request ends; its encoder outputs are still in the encoder cache. Returns 1 if the
     * request's blocks must be kept: the scheduler then frees them when finished_sending lists the
     * request. Returns 0 otherwise. Called after request_finished of the quire_connector. */
    int (*request_finished)(void *user, quire_req req);
    /* Returns 0 if an encoder output that the request needs after its first num_computed tokens is
     * still in flight: the step skips the request. Called for requests with mm_inputs: for a
     * running request before its tokens are counted, for a waiting request once its cached tokens
     * are known. num_computed is 0 where vLLM would pass less: after a failed load, with steps of
     * the request in flight. */
    int (*ensure_cache_available)(void *user, quire_req req, uint32_t num_computed);
    /* The request has computed all tokens of this input and no longer uses its place in the encoder
     * cache. Not called when the request ends or is preempted. */
    void (*update_state_after_free)(void *user, quire_req req, uint32_t input);
    /* Writes at most `capacity` requests whose encoder outputs will never come, and returns their
     * number: they end with an error, after all others that do. Called in each update, after the
     * outputs of the step and before any request ends with an error. */
    uint32_t (*take_unavailable)(void *user, quire_req *reqs, uint32_t capacity);
} quire_encoder_connector;

#define QUIRE_ENCODER_CONNECTOR_INIT QUIRE_SIZED_INIT(quire_encoder_connector)

/* Structured output. The caller keeps the grammars. If is_ready is NULL, every grammar is ready; if
 * should_advance is NULL, no grammar advances; if accept_tokens or validate_tokens is NULL, all
 * tokens are accepted. */
typedef struct quire_grammar {
    size_t size;
    void *user;
    /* 1: compiled, may be scheduled; 0: not yet; negative: it cannot be compiled, and the next
     * update ends the request with an error. */
    int (*is_ready)(void *user, quire_req req);
    int (*should_advance)(void *user, quire_req req); /* 1: past the reasoning */
    int (*accept_tokens)(void *user, quire_req req, const quire_token *tokens, uint32_t n);
    /* Returns how many of the drafts, from the first on, the grammar accepts. */
    uint32_t (*validate_tokens)(void *user, quire_req req, const quire_token *tokens, uint32_t n);
} quire_grammar;

#define QUIRE_GRAMMAR_INIT QUIRE_SIZED_INIT(quire_grammar)

#ifdef __cplusplus
}
#endif
#endif

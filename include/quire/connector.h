/* quire/connector.h - what others bring into a scheduler: KV of earlier requests, encoder outputs,
 * grammars.
 *
 *      schedule ──► quire_connector          blocks that lie elsewhere: quire/offload.h, or the
 *                                            caller's own
 *               ──► quire_encoder_connector  images, sound and video that another engine encodes
 *               ──► quire_grammar            structured output
 *
 * Callbacks of quire_sched_config, on the thread that calls the scheduler. A callback must not
 * change the scheduler.
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

/* Where KV of earlier requests may be found beside the prefix cache: a tier, another engine. NULL
 * functions answer "nothing". */
typedef struct quire_connector {
    void *user;
    /* How many tokens past the first num_local of the request it has, and whether they come at once
     * or are loaded while the request waits (*is_async = 1). QUIRE_OK, or QUIRE_RETRY: not known
     * yet, ask in the next step. */
    int (*get_num_new_matched_tokens)(void *user, quire_req req, uint32_t num_local,
                                      uint32_t *num_external, uint32_t *is_async);
    /* The request has these blocks now; num_external tokens of them are to be loaded. Also called
     * inside quire_sched_fork, with 0, for a child that runs at once. */
    void (*update_state_after_alloc)(void *user, quire_req req, const quire_block_span *blocks,
                                     uint32_t num_external);
    /* At the end of schedule: what the workers must do, as the connector's own data. */
    void *(*build_meta)(void *user, const struct quire_step *step);
    /* The request ends. 1: its blocks are still being sent, free them at finished_sending. */
    int (*request_finished)(void *user, quire_req req, const quire_block_span *blocks);
    int (*reset_cache)(void *user); /* 0: done */
    /* In update, before blocks that were sent are given back and loads that ended are noted. */
    void (*update_output)(void *user);
    /* Its tiers, for snapshots and the monitor: writes at most `capacity`, returns how many. Always
     * the same tiers in the same order; first called while the scheduler is created, then at the
     * end of schedule (with on_snapshot or a monitor) and of update (with a monitor). Names stay
     * valid while the scheduler lives. */
    uint32_t (*get_tiers)(void *user, quire_tier_usage *tiers, uint32_t capacity);
    /* The request is about to lose these blocks, and waits then; its first num_tokens tokens are
     * computed for good, by steps in flight at the latest. The connector may hold blocks
     * (quire_pool_hold) until it has stored them. is_urgent: another request needs blocks in this
     * very step. Returns how many of the request's first tokens the connector has, or has when its
     * stores have ended: 0 if none. They come back by get_num_new_matched_tokens. NULL: the
     * connector saves nothing of a preempted request. */
    uint32_t (*request_preempted)(void *user, quire_req req, const quire_block_span *blocks,
                                  uint32_t num_tokens, int is_urgent);
} quire_connector;

/* Where the encoder's outputs of images, sound and video may be found beside the encoder cache:
 * another engine that encodes. NULL functions answer "nothing". input is the number of one of the
 * request's mm_inputs; of a session all of its inputs' count, one after the other. */
typedef struct quire_encoder_connector {
    void *user;
    /* Whether it has what the encoder would make of this input: then it is not encoded, and takes
     * nothing of the encoder's budget. Asked when the input is needed and there is room for it. */
    int (*has_item)(void *user, quire_req req, uint32_t input);
    /* The input has its place in the encoder cache. Told first of inputs that are encoded in this
     * step, then of inputs that are loaded. */
    void (*update_state_after_alloc)(void *user, quire_req req, uint32_t input);
    /* At the end of schedule, after the quire_connector's. */
    void *(*build_meta)(void *user, const struct quire_step *step);
} quire_encoder_connector;

/* Structured output: grammars live with the caller. NULL functions: ready, not advancing, all
 * accepted. */
typedef struct quire_grammar {
    void *user;
    int (*is_ready)(void *user, quire_req req);       /* compiled: the request may be scheduled */
    int (*should_advance)(void *user, quire_req req); /* past its reasoning part */
    int (*accept_tokens)(void *user, quire_req req, const quire_token *tokens, uint32_t n);
    /* How many of the drafts, from the start, the grammar allows. */
    uint32_t (*validate_tokens)(void *user, quire_req req, const quire_token *tokens, uint32_t n);
} quire_grammar;

#ifdef __cplusplus
}
#endif
#endif

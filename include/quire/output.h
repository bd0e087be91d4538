/* quire/output.h - what comes out of a step: of the engine, and of the scheduler for its clients.
 *
 *      engine ── quire_model_output ──► quire_sched_update ── quire_outputs ──► clients
 *
 * Arrays of a quire_model_output are in the order of the step (quire/sched.h). They are read during
 * the call. What quire_outputs points to is valid until the next update.
 */
#ifndef QUIRE_OUTPUT_H
#define QUIRE_OUTPUT_H

#include "cache.h"
#include "config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum quire_finish_reason {
    QUIRE_FINISH_NONE = 0,
    QUIRE_FINISH_STOP = 1,
    QUIRE_FINISH_LENGTH = 2,
    QUIRE_FINISH_ABORT = 3,
    QUIRE_FINISH_ERROR = 4,
    QUIRE_FINISH_REPETITION = 5
} quire_finish_reason;

/* What the engine computed. Arrays are in the step's order. */
typedef struct quire_model_output {
    const quire_token *sampled;  /* sampled[i * stride + k], k < num_sampled[i] */
    uint32_t stride;             /* 0 = 1 */
    const uint32_t *num_sampled; /* NULL: 1 for requests past their prompt, 0 for others */
    const uint8_t *has_pooled;   /* NULL: none */
    const uint32_t
        *num_invalid_drafts; /* drafts that a grammar rejected, for the stats: at most the
                                           request's drafts in the step; NULL: none */

    /* Of a connector */
    const quire_req *finished_sending;
    uint32_t num_finished_sending;
    const quire_req *finished_recving;
    uint32_t num_finished_recving;
    const quire_block *invalid_blocks; /* loads of this step, or asynchronous ones, that failed */
    uint32_t num_invalid_blocks;
} quire_model_output;

typedef struct quire_output {
    quire_req req; /* no longer valid where finish_reason is set and the request is not a session */
    void *user;
    uint32_t client_index;
    uint32_t num_new_tokens;
    const quire_token *new_tokens;
    quire_finish_reason finish_reason;
    uint32_t has_stop_reason;
    quire_token stop_reason;      /* the stop token */
    uint32_t has_prefill_stats;   /* with its first output; else the three below are not set */
    uint32_t num_local_cached;    /* prompt tokens from the prefix cache */
    uint32_t num_external_cached; /* and from the connector */
    uint32_t num_prompt_tokens;
    uint32_t
        has_repeated; /* repetition stopped it: now, before its grammar refused the tokens, or in
                              an earlier turn of a session. No stop token did so later */
} quire_output;

typedef struct quire_spec_stats {
    uint64_t num_drafts; /* requests with drafts */
    uint64_t num_draft_tokens;
    uint64_t num_accepted_tokens;
    const uint64_t *accepted_per_pos; /* num_spec_tokens */
} quire_spec_stats;

typedef struct quire_sched_stats {
    uint32_t num_running;
    uint32_t num_waiting;
    uint32_t num_skipped;
    double kv_cache_usage;
    quire_prefix_stats prefix;
    quire_prefix_stats connector_prefix;
    quire_spec_stats spec;
} quire_sched_stats;

/* Valid until the next update. */
typedef struct quire_outputs {
    uint32_t num_outputs;
    const quire_output *outputs;
    uint32_t num_finished; /* with include_finished_set: since the last update */
    const quire_req *finished;
    const uint32_t *finished_clients;
    uint32_t has_stats;
    quire_sched_stats stats;
} quire_outputs;

#ifdef __cplusplus
}
#endif
#endif

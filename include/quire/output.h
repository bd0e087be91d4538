/* quire/output.h - what quire_sched_update reads from the engine and returns for the clients.
 *
 *      engine ── quire_model_output ──► quire_sched_update ── quire_outputs ──► clients
 *
 * The arrays of a quire_model_output have one element for each request of the step, in the step's
 * order (quire/step.h). They are read during the call only. Everything that quire_outputs points to
 * is valid until the next update.
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

/* What the engine computed for the requests of one step. */
typedef struct quire_model_output {
    size_t size;
    /* Sampled[i * stride + k], k < num_sampled[i]; NULL: no tokens. */
    const quire_token *sampled;
    uint32_t stride; /* 0 = 1 */
    /* NULL: 1 for each request past its prompt, 0 for all others. */
    const uint32_t *num_sampled;
    /* Not 0: a pooling request has its result; NULL: none has. */
    const uint8_t *has_pooled;
    /* Drafts that a grammar rejected, for the stats; at most the drafts of the request in the step.
     * NULL: none. */
    const uint32_t *num_invalid_drafts;

    /* From the workers of a connector */
    const quire_req *finished_sending;
    uint32_t num_finished_sending;
    const quire_req *finished_recving;
    uint32_t num_finished_recving;
    /* Blocks whose load failed: loads of this step, and asynchronous loads. */
    const quire_block *invalid_blocks;
    uint32_t num_invalid_blocks;
    /* Requests whose loads failed as a whole, in any group. They compute what was to be loaded, or end
     * with an error (fail_on_load_error), once finished_recving lists them. */
    const quire_req *failed_recving;
    uint32_t num_failed_recving;
} quire_model_output;

#define QUIRE_MODEL_OUTPUT_INIT QUIRE_SIZED_INIT(quire_model_output)

typedef struct quire_output { /* final */
    /* Invalid after this update if finish_reason is set and the request is not a session. */
    quire_req req;
    void *user;
    uint32_t client_index;
    uint32_t num_new_tokens;
    const quire_token *new_tokens;
    quire_finish_reason finish_reason;
    uint32_t has_stop_reason;
    quire_token stop_reason; /* the stop token */
    /* 1 in the first output of a request; if 0, the three fields below are not set. */
    uint32_t has_prefill_stats;
    uint32_t num_local_cached;    /* prompt tokens from the prefix cache */
    uint32_t num_external_cached; /* prompt tokens from the connector */
    uint32_t num_prompt_tokens;
    /* 1 if the repetition rule was the last rule that stopped the request: in this update, in an
     * earlier turn of a session, or before the grammar rejected the tokens. A later stop token sets
     * it to 0. */
    uint32_t has_repeated;
} quire_output;

typedef struct quire_spec_stats { /* final */
    uint64_t num_drafts;          /* requests that had drafts */
    uint64_t num_draft_tokens;
    uint64_t num_accepted_tokens;
    const uint64_t *accepted_per_pos; /* num_spec_tokens elements */
} quire_spec_stats;

typedef struct quire_sched_stats { /* lent */
    uint32_t num_running;
    uint32_t num_waiting;
    uint32_t num_skipped;
    double kv_cache_usage;
    quire_prefix_stats prefix;
    quire_prefix_stats connector_prefix;
    quire_spec_stats spec;
} quire_sched_stats;

/* What an update returns. Valid until the next update. */
typedef struct quire_outputs { /* lent */
    uint32_t num_outputs;
    const quire_output *outputs;
    /* With include_finished_set: the requests that finished since the last update. */
    uint32_t num_finished;
    const quire_req *finished;
    const uint32_t *finished_clients;
    const quire_sched_stats *stats; /* NULL without log_stats */
} quire_outputs;

#ifdef __cplusplus
}
#endif
#endif

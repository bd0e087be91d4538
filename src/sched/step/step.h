/* sched/step/step.h - the step being made: its arrays, what is left of its budgets, and what the
 * update gives back. */
#ifndef QR_SCHED_STEP_STEP_H
#define QR_SCHED_STEP_STEP_H

#include "sched/encoder/encoder.h"
#include "sched/requests/request.h"

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
    bool loads;         /* a request of the step loads blocks and computes */
    bool has_drafts;    /* else every row of drafts is empty, as the zeros say */
    bool has_inputs;    /* the same for encoder inputs */
    uint32_t *zeros;    /* max_num_seqs + 1 */
    uint32_t *draft_start;
    quire_token *drafts;
    uint32_t *padded; /* places whose drafts have no value (pads_drafts), rising */
    uint32_t num_padded;
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
    uint32_t budget;    /* tokens that the next request may have */
    uint32_t threshold; /* of a long prefill in this step; 0: none */
    uint32_t num_ran;   /* running requests in the step */
    bool shapes_chunks; /* more than the budget limits the tokens of a running request */
    uint32_t encoder_budget;
    uint32_t without_blocks; /* the first request that found no room for its blocks, or QR_NIL */
    bool is_chosen;          /* by prefix.c: the request that is being admitted; */
    bool is_in_order;        /* no further one is chosen in this step */
    bool is_turn_free;       /* deadlock: no request holds blocks, one load may begin, */
    bool has_passed_turn;    /* and a request that had its turn was skipped */
    uint32_t num_new;        /* these four are for snapshots and the monitor */
    uint32_t num_resumed;
    uint32_t num_prefill_tokens;
    uint32_t num_draft_tokens;
} qr_step_builder;

void qr_step_begin(quire_sched *sched);
/* What of the request's features must be encoded for num_new tokens from `computed` on. */
qr_encoder_plan qr_sched_plan_encoder(quire_sched *sched, const qr_request *r, uint32_t computed,
                                      uint32_t num_new);
/* Whether the encoder's connector has, or need not have, what the request reads next; `computed`
 * tokens are certain. */
bool qr_sched_has_encoder_inputs(const quire_sched *sched, const qr_request *r, uint32_t computed);
/* Lets the encoder's connector know when a request needs an input no longer. */
void qr_sched_watch_encoder(quire_sched *sched);
/* Allocates what was planned for the request that was added last. */
void qr_step_add_encoder(quire_sched *sched, qr_request *r, const qr_encoder_plan *plan);
void qr_step_add_lora(quire_sched *sched, uint32_t lora_id);
bool qr_step_has_lora(const quire_sched *sched, uint32_t lora_id);
/* The place of a request in the step being made, or QR_NIL. */
/* Where drafts need slots: those of the step and of the next request are not for tokens. */
void qr_step_leave_slots(quire_sched *sched);
/* Whether a running request of the step computes a prompt. */
bool qr_step_has_prefill(const quire_sched *sched);
uint32_t qr_step_find(const quire_sched *sched, quire_req req);
void qr_step_remove(quire_sched *sched, uint32_t place);
const quire_step *qr_step_end(quire_sched *sched);

/* Requests that will end with an error, in the order in which that was found. Some may have ended
 * since. */
typedef struct qr_doomed {
    quire_req *reqs; /* max_finished */
    uint32_t num;
} qr_doomed;

/* Lists the request, unless it is listed. */
void qr_sched_doom(quire_sched *sched, qr_doomed *doomed, uint32_t index);

/* What an update gives back. */
typedef struct qr_results {
    quire_output *outputs;
    quire_token *output_tokens; /* tokens of the outputs, num_spec_tokens + 1 for each */
    quire_outputs result;
    quire_sched_stats stats; /* result.stats, where the config has log_stats */
    uint64_t *accepted_per_pos;
    uint64_t *drafts_per_pos;
    uint32_t *num_created;  /* of each output, with counts_created; else NULL */
    quire_output *outgrown; /* of requests that ended in schedule: the next update lists them */
    uint32_t num_outgrown;
    qr_doomed bad_grammars; /* requests that the next update ends with an error */
    qr_doomed other_sizes;
    uint32_t num_stopped; /* running requests that ended in this update */
} qr_results;

#endif

/* quire/step.h - what a scheduler tells of a step: who computes what, with which blocks.
 *
 *      before the tokens are computed:   swap-outs  ─►  blocks_to_zero  ─►  swap-ins  ─►  copies
 */
#ifndef QUIRE_STEP_H
#define QUIRE_STEP_H

#include "cache.h"
#include "config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum quire_step_kind {
    QUIRE_STEP_RUNNING = 0,
    QUIRE_STEP_NEW = 1,    /* first time: the worker does not know it */
    QUIRE_STEP_RESUMED = 2 /* after preemption: blocks replace those the worker knows */
} quire_step_kind;

/* A page to be copied, in all layers of the group, before the step's tokens are computed. */
typedef struct quire_step_copy {
    quire_block from;
    quire_block to;
    uint32_t group;
    uint32_t place; /* in the step's reqs: the request that has `to` instead of `from` from now on;
                       UINT32_MAX: none of the step's */
    uint32_t index; /* where: blocks[group][index] of the request is `to` */
} quire_step_copy;

/* Valid until the next schedule; what update needs of it is kept inside. All arrays of num_reqs are
 * in the order in which requests were scheduled: running ones, then those admitted. */
typedef struct quire_step {
    uint64_t step; /* its number, from 1 on */
    uint32_t num_reqs;
    uint32_t total_tokens;
    const quire_req *reqs;
    const uint8_t *kinds;                /* quire_step_kind */
    const uint8_t *was_in_last_step;     /* 0: the worker may need all tokens again */
    const uint32_t *num_tokens;          /* scheduled, drafts included */
    const uint32_t *num_computed_tokens; /* before this step */
    const uint32_t *num_output_tokens;   /* placeholders included */
    const quire_block_span *blocks; /* num_reqs x num_groups: new ones for running requests, all
                                            for the others */
    const uint32_t *draft_start;    /* num_reqs + 1: drafts of request i are */
    const quire_token *drafts;      /* drafts[draft_start[i]] to [draft_start[i + 1]) */
    const uint32_t *encoder_start;  /* the same for the features that are to be encoded */
    const uint32_t *encoder_inputs;
    const uint32_t *num_common_prefix_blocks; /* num_groups */
    uint32_t num_finished;                    /* since the last step */
    const quire_req *finished;
    uint32_t num_preempted;
    const quire_req *preempted;
    uint32_t num_freed_encoder; /* identifiers of encoder outputs to drop */
    const quire_bytes *freed_encoder;
    quire_block_span blocks_to_zero;
    uint32_t has_grammar_reqs;
    uint32_t has_pending_grammar_tokens;
    void *connector_meta;

    /* With num_swap_blocks: copies between blocks (their pages in all layers of the group) and
     * slots of the host buffer, to be made in the order of steps and within one before its tokens
     * are computed: all swap-outs, then blocks_to_zero, then all swap-ins, then all copies.
     * Swapped-out blocks may belong to others from this step on, and a slot that is swapped in is
     * free after it. */
    uint32_t num_swap_out;
    const quire_block *swap_out_blocks; /* swap_out_blocks[i] to swap_out_slots[i] */
    const uint32_t *swap_out_slots;
    uint32_t num_swap_in;
    const quire_block *swap_in_blocks; /* from swap_in_slots[i] to swap_in_blocks[i] */
    const uint32_t *swap_in_slots;

    void *encoder_connector_meta;

    /* With cache.max_copies: copies on write, to be made after all of the above and before the
     * step's tokens are computed, also where the output of the step will never come. They may be
     * made in any order and all at once: no block is both source and target. Nobody needs to call
     * quire_cache_take_copies. `blocks` of a request in QUIRE_STEP_RUNNING lists new blocks at the
     * end alone, so whoever keeps block tables applies the copies to them. */
    uint32_t num_copies;
    const quire_step_copy *copies;
} quire_step;

#ifdef __cplusplus
}
#endif
#endif

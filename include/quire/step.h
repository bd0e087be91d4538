/* quire/step.h - what quire_sched_schedule returns: the requests of a step, their tokens and
 * blocks.
 *
 *      before the tokens are computed:   swap-outs  ─►  blocks_to_zero  ─►  swap-ins  ─►  copies
 */
#ifndef QUIRE_STEP_H
#define QUIRE_STEP_H

#include "cache.h"
#include "config.h"
#include "connector.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum quire_step_kind {
    QUIRE_STEP_RUNNING = 0,
    QUIRE_STEP_NEW = 1, /* first step of the request: the worker does not know it */
    /* After preemption: the listed blocks replace all its blocks. */
    QUIRE_STEP_RESUMED = 2
} quire_step_kind;

/* A page to copy, in all layers of the group, before the tokens of the step are computed. */
typedef struct quire_step_copy { /* final */
    quire_block from;
    quire_block to;
    uint32_t group;
    /* Index in the step's reqs of the request that uses `to` instead of `from` from now on.
     * UINT32_MAX: the request is not in the step. */
    uint32_t place;
    uint32_t index; /* blocks[group][index] of the request is now `to` */
} quire_step_copy;

/* One step. Valid until the next schedule: the scheduler keeps what update needs. Arrays of
 * num_reqs elements are in the order in which the requests were scheduled: running requests, then
 * admitted requests. */
typedef struct quire_step { /* lent */
    uint64_t step;          /* the number of the step, from 1 on */
    uint32_t num_reqs;
    uint32_t total_tokens;
    const quire_req *reqs;
    const uint8_t *kinds;                /* quire_step_kind */
    const uint8_t *was_in_last_step;     /* 0: the worker may need all tokens again */
    const uint32_t *num_tokens;          /* tokens scheduled, drafts included */
    const uint32_t *num_computed_tokens; /* tokens computed before this step */
    const uint32_t *num_output_tokens;   /* placeholders included */
    /* num_reqs x num_groups spans. QUIRE_STEP_RUNNING: the new blocks alone. QUIRE_STEP_NEW and
     * QUIRE_STEP_RESUMED: all blocks. */
    const quire_block_span *blocks;
    /* num_reqs + 1 elements. Request i has the drafts from drafts[draft_start[i]] to
     * drafts[draft_start[i + 1] - 1]. */
    const uint32_t *draft_start;
    const quire_token *drafts;
    /* num_reqs + 1 elements. Request i encodes its mm_inputs with the numbers from
     * encoder_inputs[encoder_start[i]] to encoder_inputs[encoder_start[i + 1] - 1]. */
    const uint32_t *encoder_start;
    const uint32_t *encoder_inputs;
    const uint32_t *num_common_prefix_blocks; /* num_groups elements */
    uint32_t num_finished;                    /* requests that finished since the last step */
    const quire_req *finished;
    uint32_t num_preempted;
    const quire_req *preempted;
    uint32_t num_freed_encoder; /* identifiers of encoder outputs to delete */
    const quire_bytes *freed_encoder;
    quire_block_span blocks_to_zero;
    uint32_t has_grammar_reqs;
    uint32_t has_pending_grammar_tokens;
    void *connector_meta;

    /* With num_swap_blocks: copies between blocks (their pages in all layers of the group) and
     * slots of the host buffer. The engine makes the copies in the order of the steps. Within a
     * step the engine makes them before the step's tokens are computed: all swap-outs, then
     * blocks_to_zero, then all swap-ins, then all copies. From this step on, other requests may use
     * the swapped-out blocks. After this step, the swapped-in slots are free. */
    uint32_t num_swap_out;
    const quire_block *swap_out_blocks; /* swap_out_blocks[i] to swap_out_slots[i] */
    const uint32_t *swap_out_slots;
    uint32_t num_swap_in;
    const quire_block *swap_in_blocks; /* from swap_in_slots[i] to swap_in_blocks[i] */
    const uint32_t *swap_in_slots;

    void *encoder_connector_meta;

    /* With cache.max_copies: copies on write. The engine makes them after everything above and
     * before the step's tokens are computed, also if the engine never returns the output of the
     * step. The copies may be made in any order or in parallel: no block is both source and target.
     * Do not call quire_cache_take_copies. If the engine keeps block tables, it must apply the
     * copies to the tables: `blocks` of a QUIRE_STEP_RUNNING request lists only the new blocks at
     * the end. */
    uint32_t num_copies;
    const quire_step_copy *copies;

    uint32_t num_spec_tokens; /* drafts that the workers make for each request of this step */

    /* With quire_connector.takes_states: states that have got a key since the last step, group by
     * group. The states are there once this step, and its copies, are computed; a connector that
     * reads a block later must hold it (quire_pool_hold). Requests need not be in this step. */
    uint32_t num_states;
    const quire_state_offer *states;
} quire_step;

#ifdef __cplusplus
}
#endif
#endif

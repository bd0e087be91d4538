/* sched/retain/swap.h - waiting requests whose KV is kept in host memory.
 *
 *      request   row   [ - ][ 4 ][ 8 ][ 5 ]     6 of 8 tokens in block 5 are sure
 *                            │    │    │
 *      preempted             v    v    v         the step's swap_out: blocks to slots
 *      slots     free 1   [ 0 ][ 2 ][ 3 ]        num_saved tokens, a chain from first_saved on
 *                            :    │    │         (block 4 is still cached: a hit, not copied)
 *      resumed               v    v    v         the step's swap_in: slots to new blocks
 *                row   [ - ][ 4 ][ 9 ][ 1 ]
 *
 * Which blocks are kept follows from the number of tokens alone: in each group those of the saved
 * tokens that the next token looks at, group after group and first to last. So a chain of slots is
 * all that there is to remember.
 *
 *      slots in chains + num_free = num_slots;  a request that has a chain waits and has no blocks
 *
 * Swapping pays when moving the blocks out and in costs less than computing the tokens again. What
 * is not sure is never kept: tokens that are not known yet, drafts, loads that may still fail. A
 * caller may ask for it between two steps: those copies are listed in the next step.
 *
 * A connector that saves (request_preempted) goes first: it has a host area and copies of its own,
 * and the request finds its tokens there when it comes back. Slots are for what it does not take.
 */
#ifndef QR_SCHED_RETAIN_SWAP_H
#define QR_SCHED_RETAIN_SWAP_H

#include "base/arena.h"
#include "base/cost.h"

#include <quire/sched.h>

typedef struct qr_swap_slot {
    uint32_t next;  /* of the same request, or of the free ones; QR_NIL: the last */
    uint32_t owner; /* index of a request; QR_NIL: free */
} qr_swap_slot;

/* Copies of the step being made: at most one for each slot. */
typedef struct qr_swap_moves {
    quire_block *blocks;
    uint32_t *slots;
    uint32_t count;
} qr_swap_moves;

typedef struct qr_swap {
    uint32_t num_slots; /* 0: victims are always computed again */
    uint32_t num_free;
    uint32_t first_free;
    uint32_t num_requests; /* that have a chain */
    uint64_t setup_ns;     /* of the copies of one request, one way */
    uint64_t block_ns;
    uint64_t token_ns;
    qr_cost learned_move; /* of blocks: setup_ns and block_ns, once something was learned */
    qr_cost learned_compute;
    qr_swap_slot *slots;
    qr_swap_moves out;
    qr_swap_moves asked; /* out as well, of requests that the caller moved since the last step */
    qr_swap_moves in;
    uint32_t num_tokens_in; /* of `in`: tokens that need not be computed again */
} qr_swap;

void qr_swap_carve(qr_swap *swap, qr_arena *arena, uint32_t num_slots);
void qr_swap_init(qr_swap *swap, const quire_sched_config *config);

/* The moves that the caller asked for are the new step's first. */
void qr_swap_begin(qr_swap *swap);
/* Whether there is host memory for preempted requests: a connector's, or slots. */
bool qr_swap_is_on(const quire_sched *sched);
/* Before a request that is in no list is preempted in a step: the connector saves its tokens, or
 * slots keep its blocks, if that pays and there are slots for all of them. is_urgent: another
 * request needs blocks in this step. */
void qr_swap_out(quire_sched *sched, uint32_t index, bool is_urgent);
/* Whether the caller can have the KV of a request moved to host memory: QUIRE_OK, or
 *      QUIRE_E_DISABLED   there is no host memory      QUIRE_FULL   too few slots are free
 *      QUIRE_BUSY         its blocks are being loaded  QUIRE_MISS   nothing is computed for good
 * Where it is QUIRE_OK and the connector has saved tokens, r->num_hosted says how many. */
int qr_swap_prepare(quire_sched *sched, uint32_t index);
/* Whether slots are cheaper than to compute the tokens again. */
bool qr_swap_pays(const quire_sched *sched, uint32_t index);
/* After qr_swap_prepare, for a request that is in no queue and of which the connector saved
 * nothing. */
void qr_swap_asked(quire_sched *sched, uint32_t index);
/* What moving num_blocks one way, or computing num_tokens, took. */
void qr_swap_learn_move(qr_swap *swap, uint32_t num_blocks, uint64_t ns);
void qr_swap_learn_compute(qr_swap *swap, uint32_t num_tokens, uint64_t ns);
/* A request that was just admitted, with num_local tokens found in the prefix cache, and is in no
 * queue: its other blocks, as sched->spans has them, are filled from its slots. */
void qr_swap_in(quire_sched *sched, uint32_t index, uint32_t num_local);
/* Gives the slots of a request back, if it has any; it is in no queue. */
void qr_swap_drop(quire_sched *sched, uint32_t index);
/* What is kept is not to be used again: all will be computed. */
void qr_swap_drop_all(quire_sched *sched);

bool qr_swap_is_valid(const quire_sched *sched);

#endif

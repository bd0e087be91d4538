/* sched/swap.h - waiting requests whose KV is kept in host memory.
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
 */
#ifndef QR_SCHED_SWAP_H
#define QR_SCHED_SWAP_H

#include "base/arena.h"

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
    uint64_t block_ns;
    uint64_t token_ns;
    qr_swap_slot *slots;
    qr_swap_moves out;
    qr_swap_moves asked; /* out as well, of requests that the caller moved since the last step */
    qr_swap_moves in;
    uint32_t num_tokens_in; /* of `in`: tokens that need not be computed again */
} qr_swap;

/* QUIRE_E_CONFIG where it does not go together with the rest of a config that was read. */
int qr_swap_config_check(const quire_sched_config *config);
void qr_swap_carve(qr_swap *swap, qr_arena *arena, uint32_t num_slots);
void qr_swap_init(qr_swap *swap, const quire_sched_config *config);

/* The moves that the caller asked for are the new step's first. */
void qr_swap_begin(qr_swap *swap);
/* Before a request that is in no list is preempted in a step: keeps its blocks, if that pays and
 * there are slots for all of them. */
void qr_swap_out(quire_sched *sched, uint32_t index);
/* Whether the caller can have the blocks of a request moved to slots: QUIRE_OK, or
 *      QUIRE_E_DISABLED   there are no slots           QUIRE_FULL   too few slots are free
 *      QUIRE_BUSY         its blocks are being loaded  QUIRE_MISS   nothing is computed for good */
int qr_swap_check(quire_sched *sched, uint32_t index);
/* Whether that is cheaper than to compute the tokens again. */
bool qr_swap_pays(const quire_sched *sched, uint32_t index);
/* After qr_swap_check, for a request that is in no queue. */
void qr_swap_asked(quire_sched *sched, uint32_t index);
/* A request that was just admitted, with num_local tokens found in the prefix cache, and is in no
 * queue: its other blocks, as sched->spans has them, are filled from its slots. */
void qr_swap_in(quire_sched *sched, uint32_t index, uint32_t num_local);
/* Gives the slots of a request back, if it has any; it is in no queue. */
void qr_swap_drop(quire_sched *sched, uint32_t index);
/* What is kept is not to be used again: all will be computed. */
void qr_swap_drop_all(quire_sched *sched);

/* Blocks that are kept for so many tokens. */
uint32_t qr_swap_num_blocks(const quire_sched *sched, uint32_t num_tokens);
bool qr_swap_is_valid(const quire_sched *sched);

#endif

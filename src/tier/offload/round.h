/* tier/offload/round.h - what is chosen to be stored at one time, and the CPU blocks for it.
 *
 *      vLLM      chosen, then CPU blocks for all of a request; keys come with the content
 *      default   looked up, CPU block, key and users in one pass
 */
#ifndef QR_TIER_OFFLOAD_ROUND_H
#define QR_TIER_OFFLOAD_ROUND_H

#include "tier/offload/offload.h"

/* Blocks that are chosen: of the first num_taken both have a user more already. */
typedef struct qr_store_round {
    quire_block *gpu;
    quire_block *cpu;
    uint32_t count;
    uint32_t num_taken;
    uint32_t num_free; /* CPU blocks that are left for others */
    uint32_t num_left; /* blocks that may be chosen */
    bool is_full;      /* there was no room for a block */
} qr_store_round;

/* Whether there is room for one more. In the default profile what requests far behind in the queue
 * will need gives way. */
bool qr_round_has_room(quire_offload *o, qr_store_round *round);

/* As vLLM: one more; then CPU blocks for those that were chosen, and a user more for both. Keys
 * come with the content. */
static inline void qr_round_choose(qr_store_round *round, quire_block gpu)
{
    round->gpu[round->count++] = gpu;
    round->num_free--;
    round->num_left--;
}

void qr_round_take_chosen(quire_offload *o, qr_store_round *round);

/* Counts those of n GPU blocks that have a key and are not in the CPU pool: they are not stored for
 * want of room. */
void qr_round_count_missing(quire_offload *o, const quire_block *gpu, uint32_t n);

/* Stores those of n GPU blocks that are not in the CPU pool. The CPU blocks have keys at once, so
 * that nobody else stores these; they are no hits yet: match.c ends a hit before a block
 * that is pending. Returns how many are done with: fewer than n when there is no room;
 * num_with_key: how many before the first that has no key. */
uint32_t qr_round_take_missing(quire_offload *o, const quire_block *gpu, uint32_t n,
                               qr_store_round *round, uint32_t *num_with_key);

#endif

/* sched/retain/swap_kit.h - three requests in a pool that is too small for them, and host slots.
 *
 *      16 blocks of 4     a, b and c have prompts of 20 tokens: 5 blocks each, one is free
 *      the second step    a takes it, b needs one too: c goes, with 20 tokens computed of its 21
 *
 * Contents are followed by the simulation (sched/sim/sim.h); here is what is decided and told.
 */
#ifndef SCHED_SWAP_KIT_H
#define SCHED_SWAP_KIT_H

#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { PROMPT = 20, VICTIM_BLOCKS = 5, SLOTS = 16 };

typedef struct crowd {
    sched_kit kit;
    quire_req a;
    quire_req b;
    quire_req c;
} crowd;

quire_sched_config crowd_config(crowd *w);
/* Adds a, b and c, in the order of their arrival times. */
void crowd_add(crowd *w);
/* Up to the step in which c goes. */
void crowd_open(crowd *w, const quire_sched_config *config);
void crowd_end(crowd *w, quire_req req);
/* Tokens of a request that are in slots. */
uint32_t crowd_saved(const crowd *w, quire_req req);
/* Ends all: every slot must have come back. */
void crowd_close(crowd *w);

#endif

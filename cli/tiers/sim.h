/* cli/tiers/sim.h - a lower tier in simulated time: which keys it has, and none of their bytes.
 *
 *      STORE ──► slots: who goes ──┐
 *      LOAD  ──► slots: is it there ┴──► one device: loads first, stores in what they leave
 *
 * Its quire_tier runs inline: what a job takes is known when it begins, and it ends when the
 * simulated clock is there.
 */
#ifndef QUIRE_CLI_TIERS_SIM_H
#define QUIRE_CLI_TIERS_SIM_H

#include "tiers.h"

typedef struct tiers_sim tiers_sim;

typedef struct tiers_sim_config {
    const tiers_lower *lower;
    uint32_t num_slots;
    uint64_t block_bytes;
    quire_slots_policy policy;
    double failures;
    quire_hooks hooks; /* now_ns: the simulated clock */
} tiers_sim_config;

/* The tier owns what *sim points at. QUIRE_OK, or an error with a sentence. */
int tiers_sim_open(const tiers_sim_config *config, quire_tier **tier, tiers_sim **sim);
/* When the next job ends, or is late; UINT64_MAX: there is none. */
uint64_t tiers_sim_next_ns(const tiers_sim *sim);

#endif

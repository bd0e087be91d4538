/* cli/tiers/usage.h - the blocks of a tier over time, and what moved.
 *
 *      step ──────── step ──── step
 *      now  holds until the next: sums are blocks x seconds
 */
#ifndef QUIRE_CLI_TIERS_USAGE_H
#define QUIRE_CLI_TIERS_USAGE_H

#include "tiers.h"

typedef struct tiers_usage {
    quire_usage now;
    quire_usage most;
    double sum_empty;
    double sum_cached;
    double sum_active;
    uint64_t hit_tokens; /* since the last step; the caller adds */
    uint64_t num_in;     /* blocks, in all */
    uint64_t num_out;
} tiers_usage;

/* What was lasted so long, and now it is this. What is new since the step before is returned. */
page_tier_step tiers_usage_step(tiers_usage *u, double seconds, const quire_usage *now, uint64_t in,
                                uint64_t out);
/* After so much time in all. */
void tiers_usage_fill(const tiers_usage *u, double seconds, tiers_tally *tally);

#endif

/* tier/promote/costs.h - what loading costs, what computing costs, learned from what they took.
 *
 *      ns                            load:     base + unit x bytes, its slow 5 % above that
 *       │            . computing     compute:  unit x tokens
 *       │         .      _ - '
 *       │      .   _ - '  loading    A run of blocks is loaded from its head up to where loading
 *       │   ._ - '                   that much and computing the rest ends soonest.
 *       └───────────────── tokens
 *
 * probe     what does not pay is tried now and then all the same: nothing else would show that it
 *           pays again.
 *
 * Pure: no clock, no memory.
 */
#ifndef QR_TIER_PROMOTE_COSTS_H
#define QR_TIER_PROMOTE_COSTS_H

#include "base/cost.h"

enum { QR_COSTS_MAX_TIERS = 4 };

typedef struct qr_costs {
    struct {
        qr_cost load;       /* of bytes */
        double deadline_ns; /* what takes longer is not worth beginning */
        bool has_paid;      /* last time: then it takes more to stop, else more to begin */
        uint32_t num_skips; /* since it was loaded from */
    } tiers[QR_COSTS_MAX_TIERS];
    qr_cost compute; /* of tokens */
} qr_costs;

/* A run of found blocks, from its head. */
typedef struct qr_cost_run {
    const uint8_t *sources; /* tier of each block; QR_COSTS_FREE: it costs nothing */
    uint32_t num_blocks;
    double block_tokens;
    double block_bytes;
    double queued_bytes[QR_COSTS_MAX_TIERS]; /* before it, in each tier */
    bool is_covered; /* the request waits for the engine anyway: loading takes nobody's time */
} qr_cost_run;

#define QR_COSTS_FREE UINT8_MAX

/* How many of its blocks are worth loading. Those whose cost is not known are: so it is learned. */
uint32_t qr_costs_split(qr_costs *costs, const qr_cost_run *run);
/* Whether so many blocks, all from one tier and all or nothing, are. */
bool qr_costs_pays(const qr_costs *costs, uint32_t tier, double bytes, double tokens);
/* The same for a tier that is asked after others: now and then (probe) also if it does not pay. */
bool qr_costs_try(qr_costs *costs, uint32_t tier, double bytes, double tokens);
/* Tokens from which on loading is faster than computing; 0: always, UINT32_MAX: never. */
uint32_t qr_costs_least_tokens(const qr_costs *costs, uint32_t tier, double bytes_per_token);

#endif

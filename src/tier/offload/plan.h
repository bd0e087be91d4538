/* tier/offload/plan.h - how much memory an offload needs, and where its parts are. */
#ifndef QR_TIER_OFFLOAD_PLAN_H
#define QR_TIER_OFFLOAD_PLAN_H

#include "tier/offload/offload.h"

/* The configs with their defaults, and what others will need. */
typedef struct qr_offload_plan {
    quire_offload_config config;
    quire_sched_config sched;
    quire_cache_config cpu;
    size_t cpu_bytes;
    size_t lower_bytes;
} qr_offload_plan;

int qr_offload_read_plan(qr_offload_plan *plan, const quire_offload_config *callers);
/* The offload's numbers and parts into *o; returns where it will be. cpu and lower get the memory
 * of the CPU pool's cache and of the tiers. */
quire_offload *qr_offload_carve(qr_arena *arena, const qr_offload_plan *plan, quire_offload *o,
                                void **cpu, void **promote);
/* 0: more than there can be. */
size_t qr_offload_plan_bytes(const qr_offload_plan *plan);

#endif

/* cli/fleet/scale_spec.h - a fleet that grows and shrinks, as text.
 *
 *      queue:requests=16,max=8                        at most 16 requests for each worker
 *      slo:ttft=2,tpot=0.05,low=0.5,percentile=0.99,max=8
 *      hpa:target=16,tolerance=0.1,max=8              Kubernetes' formula, over requests
 *      schedule:0=2,28800=8,period=86400,max=8        workers from that second on
 *
 * Fields of all policies: min, max, startup, interval, up-window, down-window, up-cooldown,
 * down-cooldown, hand-over. docs/fleet.md lists them with their defaults.
 */
#ifndef QUIRE_CLI_FLEET_SCALE_SPEC_H
#define QUIRE_CLI_FLEET_SCALE_SPEC_H

#include "scaling.h"

enum { SCALE_MAX_ROWS = 64 };

typedef struct scale_spec {
    scaling_config config; /* but gpus_per_worker and price_per_gpu_hour; parameters point into
                              this struct, which must not move */
    union {
        scaling_queue queue;
        scaling_slo slo;
        scaling_hpa hpa;
        scaling_schedule schedule;
    } of;
    scaling_row rows[SCALE_MAX_ROWS];
    double percentile; /* of the latencies that the policy looks at, 0 to 1 */
    bool hands_over;   /* a draining worker's waiting requests go back to the router */
} scale_spec;

/* 0; or -1, and a sentence (failure.h) that names the field, its value and its range. */
int scale_spec_read(const char *text, uint32_t max_workers, scale_spec *spec);

#endif

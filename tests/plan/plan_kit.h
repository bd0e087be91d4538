/* plan/plan_kit.h - small models to plan: a letter for each layer.
 *
 *      f full   w window of 128   v window of 512   c chunked   m Mamba   x cross   e encoder-only
 *      l latent of 576 values     i latent of 128   s, t the same with a window of 128
 *
 * Pages of f, w, v, c, m and x are of one size, 65,536 bytes.
 */
#ifndef PLAN_PLAN_KIT_H
#define PLAN_PLAN_KIT_H

#include "base/unit.h"

#include <quire/plan.h>

enum { KIT_MAX_LAYERS = 64, KIT_PAGE = 65536 };

typedef struct plan_kit {
    quire_plan_params params;
    quire_plan_shortage shortage;
    quire_layer_spec layers[KIT_MAX_LAYERS];
    quire_plan_worker workers[4];
    uint32_t worker_layers[4][KIT_MAX_LAYERS];
} plan_kit;

/* A model on one worker with much memory, 4096 tokens at most. */
void kit_init(plan_kit *kit, const char *letters);
/* Another worker: the layers from first to before end. The first call replaces the one worker. */
void kit_add_stage(plan_kit *kit, uint32_t first, uint32_t end, uint64_t memory_bytes);
/* The plan, which must work out. */
quire_plan *kit_plan(const plan_kit *kit);
/* Fails unless the answer is this status, and no plan is made. */
void kit_refused(const plan_kit *kit, int status);

/* Fails unless the groups have these layers: "0,1 2,3" are two groups. */
void kit_check_groups(const quire_plan *plan, const char *expected);
/* The same for a worker's tensors. */
void kit_check_tensors(const quire_plan *plan, uint32_t worker, const char *expected);

#endif

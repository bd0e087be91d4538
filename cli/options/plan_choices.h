/* cli/options/plan_choices.h - the part of a plan that is about choices: host memory, swap,
 * watermark,
 * pressure. Each is left out where it is not asked for.
 */
#ifndef QUIRE_CLI_OPTIONS_PLAN_CHOICES_H
#define QUIRE_CLI_OPTIONS_PLAN_CHOICES_H

#include "engine.h"
#include "memory_options.h"
#include "tiers_options.h"

typedef struct plan_choice_options {
    tiers_options tiers; /* of it, host memory and the link to it */
    swap_options swap;
    pressure_options pressure;
} plan_choice_options;

#define PLAN_CHOICE_OPTIONS_INIT                                                                   \
    {                                                                                              \
        .tiers = TIERS_OPTIONS_INIT                                                                \
    }

#define PLAN_CHOICE_OPTIONS(c)                                                                     \
    PRESSURE_OPTIONS((c).pressure), SWAP_OPTIONS((c).swap), TIERS_CPU_OPTIONS((c).tiers)

typedef struct plan_choices {
    const plan_result *plan;
    uint32_t tp;
    uint32_t mean_tokens; /* of a request */
    uint32_t cpu_blocks;  /* 0: no offload; the null block included */
    swap_settings swap;
    pressure_options pressure;
} plan_choices;

/* 0, or an exit status after a sentence. */
int plan_choices_resolve(const command *cmd, const plan_choice_options *o,
                         const engine_setup *setup, const plan_result *plan, uint32_t mean_tokens,
                         plan_choices *choices);
void plan_choices_print(const plan_choices *c);
/* Members of the plan's object, each with a comma behind it. */
void plan_choices_print_json(const plan_choices *c);

#endif

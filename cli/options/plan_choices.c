#include "plan_choices.h"

#include <quire/cost.h>

#include <inttypes.h>
#include <stdio.h>

#define GIB ((double)(UINT64_C(1) << 30))

int plan_choices_resolve(const command *cmd, const plan_choice_options *o,
                         const engine_setup *setup, const plan_result *plan, uint32_t mean_tokens,
                         plan_choices *choices)
{
    *choices = (plan_choices){
        .plan = plan, .tp = setup->tp, .mean_tokens = mean_tokens, .pressure = o->pressure};
    int status = pressure_check(cmd, &o->pressure);
    if (status == 0)
        status = tiers_resolve_cpu(cmd, &o->tiers, plan->block_bytes, &choices->cpu_blocks);
    if (status == 0)
        status = swap_resolve(cmd, &o->swap, &o->tiers.link, &setup->time, plan->block_bytes,
                              &choices->swap);
    if (status == 0 && choices->swap.num_blocks > 0 && setup->shape.linear_conv > 0)
        return command_error(cmd,
                             "--swap-%s: %s has states of linear attention, which are not swapped",
                             o->swap.blocks > 0 ? "blocks" : "memory", setup->shape.name);
    return status;
}

/* ---- numbers --------------------------------------------------------------- */

/* Tokens that the blocks hold, where all groups keep all tokens, as in plan_result. */
static uint64_t tokens_of(const plan_choices *c, uint64_t num_blocks)
{
    return num_blocks * c->plan->block_size / c->plan->num_groups;
}

static uint64_t blocks_of_request(const plan_choices *c)
{
    return quire_cost_blocks_for_tokens(c->mean_tokens, c->plan->block_size) * c->plan->num_groups;
}

/* Usable blocks of the pool up to a mark. */
static uint64_t blocks_at(const plan_choices *c, double part)
{
    return (uint64_t)((double)(c->plan->num_blocks - 1) * part);
}

static uint64_t watermark_blocks(const plan_choices *c)
{
    return quire_cost_watermark_blocks(c->plan->num_blocks, c->pressure.watermark);
}

/* Of a request of mean_tokens: out and back, and computed again, in ms, as the scheduler counts. */
static double swap_ms(const plan_choices *c)
{
    uint64_t one_way_ns = c->swap.setup_ns + blocks_of_request(c) * c->swap.block_ns;
    return 2 * (double)one_way_ns * 1e-6;
}

static double recompute_ms(const plan_choices *c)
{
    return (double)c->mean_tokens * (double)c->swap.token_ns * 1e-6;
}

/* ---- for people ------------------------------------------------------------ */

static void print_memory(const plan_choices *c, const char *name, uint64_t num_blocks,
                         uint32_t null_blocks)
{
    double gib = (double)((num_blocks + null_blocks) * c->plan->block_bytes) / GIB;
    printf("  %-18s %.2f GiB%s: %" PRIu64 " blocks%s, %" PRIu64 " tokens", name, gib,
           c->tp > 1 ? " for each GPU" : "", num_blocks,
           null_blocks > 0 ? " and the null block" : "", tokens_of(c, num_blocks));
    if (c->tp > 1)
        printf("; %.2f GiB in all", gib * c->tp);
    putchar('\n');
}

static void print_swap(const plan_choices *c)
{
    print_memory(c, "swap", c->swap.num_blocks, 0);
    printf("    %.2f preempted requests of %u tokens; one is moved out and back in %.1f ms and "
           "computed\n    again in %.1f ms (a block %.1f us, a token %.1f us): %s\n",
           (double)c->swap.num_blocks / (double)blocks_of_request(c), c->mean_tokens, swap_ms(c),
           recompute_ms(c), (double)c->swap.block_ns * 1e-3, (double)c->swap.token_ns * 1e-3,
           swap_ms(c) < recompute_ms(c) ? "swapped" : "computed again");
}

void plan_choices_print(const plan_choices *c)
{
    uint32_t pool = c->plan->num_blocks - 1;
    if (c->pressure.watermark > 0)
        printf("  watermark          %" PRIu64
               " blocks stay free when a request is admitted: %" PRIu64
               " tokens for requests that run\n",
               watermark_blocks(c), tokens_of(c, watermark_blocks(c)));
    if (c->pressure.preempt_above > 0)
        printf("  pressure           requests are admitted below %" PRIu64
               " blocks in use, and preempted above %" PRIu64 " (of %u)\n",
               blocks_at(c, pressure_admit_below(&c->pressure)),
               blocks_at(c, c->pressure.preempt_above), pool);
    if (c->swap.num_blocks > 0)
        print_swap(c);
    if (c->cpu_blocks > 0)
        print_memory(c, "host memory", c->cpu_blocks - 1, 1);
}

/* ---- for programs ----------------------------------------------------------- */

void plan_choices_print_json(const plan_choices *c)
{
    uint64_t block_bytes = c->plan->block_bytes;
    if (c->pressure.watermark > 0)
        printf("  \"watermark_blocks\": %" PRIu64 ",\n", watermark_blocks(c));
    if (c->pressure.preempt_above > 0)
        printf("  \"admit_below_blocks\": %" PRIu64 ",\n  \"preempt_above_blocks\": %" PRIu64 ",\n",
               blocks_at(c, pressure_admit_below(&c->pressure)),
               blocks_at(c, c->pressure.preempt_above));
    if (c->swap.num_blocks > 0)
        printf("  \"swap\": {\"blocks\": %u, \"bytes\": %" PRIu64 ", \"tokens\": %" PRIu64
               ", \"setup_us\": %.3f, \"block_us\": %.3f, \"token_us\": %.3f, \"swap_ms\": %.6f, "
               "\"recompute_ms\": %.6f},\n",
               c->swap.num_blocks, c->swap.num_blocks * block_bytes,
               tokens_of(c, c->swap.num_blocks), (double)c->swap.setup_ns * 1e-3,
               (double)c->swap.block_ns * 1e-3, (double)c->swap.token_ns * 1e-3, swap_ms(c),
               recompute_ms(c));
    if (c->cpu_blocks > 0)
        printf("  \"host\": {\"blocks\": %u, \"usable_blocks\": %u, \"bytes\": %" PRIu64
               ", \"all_bytes\": %" PRIu64 ", \"tokens\": %" PRIu64 "},\n",
               c->cpu_blocks, c->cpu_blocks - 1, c->cpu_blocks * block_bytes,
               c->cpu_blocks * block_bytes * c->tp, tokens_of(c, c->cpu_blocks - 1));
}

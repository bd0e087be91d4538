#include "memory_options.h"

static unsigned long long number(uint64_t n)
{
    return n;
}

int host_memory_resolve(const command *cmd, const host_memory *given, uint64_t block_bytes,
                        uint32_t *num_blocks)
{
    *num_blocks = given->blocks;
    if (given->bytes == 0)
        return 0;
    if (given->blocks > 0)
        return command_error(cmd, "--%s %u and --%s %llu are the same memory: give one of them",
                             given->blocks_name, given->blocks, given->bytes_name,
                             number(given->bytes));
    uint64_t blocks = given->bytes / block_bytes;
    if (blocks < given->min_blocks || blocks > given->max_blocks)
        return command_error(
            cmd,
            "invalid value \"%llu\" for --%s (expected %llu..%llu: %u to %u blocks of %llu bytes)",
            number(given->bytes), given->bytes_name, number(given->min_blocks * block_bytes),
            number(given->max_blocks * block_bytes), given->min_blocks, given->max_blocks,
            number(block_bytes));
    *num_blocks = (uint32_t)blocks;
    return 0;
}

/* Times that the library takes are below 2^32 ns. */
static uint64_t ns_of_us(double us)
{
    return us * 1e3 < (double)UINT32_MAX ? (uint64_t)(us * 1e3) : UINT32_MAX;
}

/* A cost without memory to swap to. */
static int check_idle(const command *cmd, const swap_options *o)
{
    const char *name = o->setup_us > 0  ? "swap-setup-cost"
                       : o->swap_us > 0 ? "swap-cost"
                                        : "recompute-cost";
    double us = o->setup_us > 0 ? o->setup_us : o->swap_us > 0 ? o->swap_us : o->recompute_us;
    if (us <= 0)
        return 0;
    return command_error(cmd, "--%s %g needs --swap-blocks or --swap-memory", name, us);
}

int swap_resolve(const command *cmd, const swap_options *o, const host_link *link,
                 const time_model *time, uint64_t block_bytes, swap_settings *settings)
{
    *settings = (swap_settings){0};
    const host_memory given = {.blocks_name = "swap-blocks",
                               .bytes_name = "swap-memory",
                               .blocks = o->blocks,
                               .bytes = o->memory,
                               .min_blocks = 1,
                               .max_blocks = SWAP_MAX_BLOCKS};
    uint32_t num_blocks;
    int status = host_memory_resolve(cmd, &given, block_bytes, &num_blocks);
    if (status != 0)
        return status;
    if (num_blocks == 0)
        return check_idle(cmd, o);
    double bytes_per_s = link->gbps * 1e9;
    double setup_us = o->setup_us > 0 ? o->setup_us : link->latency_us;
    double block_us = o->swap_us > 0 ? o->swap_us : (double)block_bytes / bytes_per_s * 1e6;
    double token_us = o->recompute_us > 0 ? o->recompute_us : time_model_prompt_token_us(time);
    *settings = (swap_settings){.num_blocks = num_blocks,
                                .setup_ns = ns_of_us(setup_us),
                                .block_ns = ns_of_us(block_us),
                                .token_ns = ns_of_us(token_us),
                                .bytes_per_s = bytes_per_s,
                                .latency_s = link->latency_us * 1e-6};
    return 0;
}

int pressure_check(const command *cmd, const pressure_options *o)
{
    if (o->admit_below > 0 && o->preempt_above == 0)
        return command_error(cmd, "--admit-below %g needs --preempt-above", o->admit_below);
    double admit_below = pressure_admit_below(o);
    if (o->preempt_above > 0 && admit_below > o->preempt_above)
        return command_error(
            cmd,
            "invalid value \"%g\"%s for --admit-below (expected 0..%g, which is --preempt-above)",
            admit_below, o->admit_below > 0 ? "" : ", the default,", o->preempt_above);
    return 0;
}

#include "costs.h"

/* 20,000 prompt tokens a second, and attention to the tokens before them. */
static double prefill_s(void *context, uint32_t worker, uint32_t num_cached, uint32_t num_new)
{
    (void)context;
    (void)worker;
    return num_new == 0 ? 0 : 2e-3 + num_new * 50e-6 + (double)num_new * num_cached * 1e-10;
}

static double decode_s(void *context, uint32_t worker, uint32_t num_running,
                       uint64_t context_tokens)
{
    (void)context;
    (void)worker;
    return 8e-3 + num_running * 20e-6 + (double)context_tokens * 5e-8;
}

/* Blocks of 2 MiB at 50 GB/s. */
static double transfer_s(void *context, uint32_t from, uint32_t to, uint32_t num_blocks)
{
    (void)context;
    return from == to ? 0 : num_blocks * 40e-6;
}

void costs_complete(router_costs *costs)
{
    costs->prefill_s = costs->prefill_s == NULL ? prefill_s : costs->prefill_s;
    costs->decode_s = costs->decode_s == NULL ? decode_s : costs->decode_s;
    costs->transfer_s = costs->transfer_s == NULL ? transfer_s : costs->transfer_s;
}

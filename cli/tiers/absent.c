/* absent.c - what --cpu-blocks does in a program that was built without libquire_tier. */
#include "run.h"

#include <math.h>
#include <stdio.h>

tiers_run *tiers_run_open(const tiers_run_config *config, char message[TIERS_MESSAGE_BYTES])
{
    (void)config;
    snprintf(message, TIERS_MESSAGE_BYTES,
             "this quire was built without tiers: build it with -DQUIRE_BUILD_TIER=ON");
    return NULL;
}

void tiers_run_close(tiers_run *t)
{
    (void)t;
}

const quire_connector *tiers_run_connector(tiers_run *t)
{
    (void)t;
    return NULL;
}

int tiers_run_bind(tiers_run *t, quire_sched *sched)
{
    (void)t;
    (void)sched;
    return QUIRE_OK;
}

void tiers_run_added(tiers_run *t, quire_req req)
{
    (void)t;
    (void)req;
}

tiers_split tiers_run_admitted(tiers_run *t, quire_req req, uint32_t num_computed)
{
    (void)t;
    (void)req;
    return (tiers_split){.gpu = num_computed};
}

void tiers_run_learn(tiers_run *t, uint32_t num_tokens, uint32_t num_prefill, double seconds)
{
    (void)t;
    (void)num_tokens;
    (void)num_prefill;
    (void)seconds;
}

int tiers_run_poll(tiers_run *t, uint64_t step, quire_model_output *output)
{
    (void)t;
    (void)step;
    (void)output;
    return QUIRE_OK;
}

bool tiers_run_has_saved(const tiers_run *t, quire_req req)
{
    (void)t;
    (void)req;
    return false;
}

double tiers_run_copy(tiers_run *t, bool is_load, uint32_t num_blocks, double from_s)
{
    (void)t;
    (void)is_load;
    (void)num_blocks;
    return from_s;
}

double tiers_run_next_s(const tiers_run *t)
{
    (void)t;
    return HUGE_VAL;
}

void tiers_run_pass(const tiers_run *t, double seconds)
{
    (void)t;
    (void)seconds;
}

void tiers_run_drain(tiers_run *t)
{
    (void)t;
}

const page_tier_step *tiers_run_step(tiers_run *t, double time_s)
{
    (void)t;
    (void)time_s;
    return NULL;
}

const quire_pool *tiers_run_host_pool(const tiers_run *t)
{
    (void)t;
    return NULL;
}

uint32_t tiers_run_num(const tiers_run *t)
{
    (void)t;
    return 0;
}

void tiers_run_finish(tiers_run *t, double end_s, tiers_result *result)
{
    (void)t;
    (void)end_s;
    *result = (tiers_result){0};
}

#include "engine/worker.h"

#include <sched.h>

static int open_transfer(engine_worker *w, const quire_offload_config *config)
{
    quire_transfer_tier tiers[QUIRE_TRANSFER_MAX_TIERS] = {{0}};
    quire_transfer_config c = QUIRE_TRANSFER_CONFIG_INIT;
    for (uint32_t i = 0; i < config->num_tiers; i++) {
        const quire_tier_caps *caps = quire_tier_get_caps(config->tiers[i].tier);
        tiers[i] = (quire_transfer_tier){.label = quire_tier_label(config->tiers[i].tier),
                                         .is_persistent = caps->is_persistent,
                                         .is_shared = caps->is_shared,
                                         .is_read_only = caps->is_read_only};
    }
    c.tiers = tiers;
    c.num_tiers = config->num_tiers;
    return quire_transfer_open(&c, NULL, &w->transfer);
}

static int open_worker(engine_worker *w, const quire_offload_config *config)
{
    quire_worker_tier tiers[QUIRE_TRANSFER_MAX_TIERS] = {{0}};
    quire_worker_config c = QUIRE_WORKER_CONFIG_INIT;
    for (uint32_t i = 0; i < config->num_tiers; i++)
        tiers[i].tier = config->tiers[i].tier;
    c.device = *config->device;
    c.memory = config->memory;
    c.block_bytes = config->block_bytes;
    c.num_slots = config->num_cpu_blocks;
    c.tiers = tiers;
    c.num_tiers = config->num_tiers;
    return quire_worker_create(&c, NULL, &w->worker);
}

int engine_worker_open(engine_worker *w, quire_offload_config *config)
{
    int status = open_transfer(w, config);
    if (status == QUIRE_OK)
        status = open_worker(w, config);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t i = 0; i < config->num_tiers; i++) {
        w->tiers[i] = config->tiers[i];
        w->tiers[i].tier = quire_transfer_get_tier(w->transfer, i);
    }
    config->device = quire_transfer_device(w->transfer);
    config->memory = NULL;
    config->tiers = w->tiers;
    return QUIRE_OK;
}

void engine_worker_stop(engine_worker *w)
{
    if (w->worker != NULL)
        (void)quire_worker_abandon(w->worker);
}

int engine_worker_close(engine_worker *w)
{
    int status = w->worker == NULL ? QUIRE_OK : quire_worker_destroy(w->worker);
    quire_transfer_close(w->transfer);
    *w = (engine_worker){0};
    return status == QUIRE_OK ? 0 : 1;
}

int engine_worker_submit(engine_worker *w)
{
    quire_bytes plan = {0};
    int status = w->transfer == NULL ? QUIRE_OK : quire_transfer_take_plan(w->transfer, &plan);
    if (status != QUIRE_OK || plan.len == 0)
        return status;
    do /* its thread has commands of earlier plans still: it is ending them */
        status = quire_worker_submit(w->worker, plan);
    while (status == QUIRE_BUSY && sched_yield() == 0);
    return status;
}

int engine_worker_poll(engine_worker *w)
{
    quire_bytes report = {0};
    int status = w->transfer == NULL ? QUIRE_OK : quire_worker_poll(w->worker, &report);
    if (status != QUIRE_OK || report.len == 0)
        return status;
    return quire_transfer_give_report(w->transfer, report);
}

/* worker_kit.c - the planner and the workers of worker.h. */
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening and closing --------------------------------------------------- */

static void open_planner(worker_kit *kit)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = WORKER_TOKENS,
                                               .num_kv_heads = 1,
                                               .head_size = 8,
                                               .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_planner_config config = QUIRE_PLANNER_CONFIG_INIT;
    const quire_planner_tier tier = {
        .tier = {.label = "bench", .deadline_ns = UINT64_C(60000000000)}, .admit = QUIRE_ADMIT_ALL};
    cache.groups = &group;
    cache.num_groups = 1;
    cache.num_blocks = kit->num_blocks;
    cache.max_model_len = (kit->most_blocks + 1) * WORKER_TOKENS;
    cache.hash_block_size = WORKER_TOKENS;
    cache.digest_bytes = WORKER_HASH;
    config.cache = &cache;
    config.num_slots = kit->num_slots;
    config.block_bytes = kit->block_bytes;
    config.max_requests = 256;
    config.num_ranks = kit->num_ranks;
    config.tiers = &tier;
    config.num_tiers = kit->ranks[0].tier == NULL ? 0 : 1;
    config.learns = QUIRE_OFF;
    int status = quire_planner_create(&config, &kit->planner);
    bench_must(status, status == QUIRE_OK ? "" : quire_refusal());
}

static void open_worker(worker_kit *kit, uint32_t i)
{
    quire_worker_config config = QUIRE_WORKER_CONFIG_INIT;
    const quire_worker_tier tier = {.tier = kit->ranks[i].tier};
    config.rank = config.key_rank = i;
    config.num_ranks = kit->num_ranks;
    config.device = kit->ranks[i].device;
    config.memory = kit->ranks[i].slots;
    config.block_bytes = kit->block_bytes;
    config.num_slots = kit->num_slots;
    config.tiers = &tier;
    config.num_tiers = tier.tier == NULL ? 0 : 1;
    int status = quire_worker_create(&config, NULL, &kit->ranks[i].worker);
    bench_must(status, status == QUIRE_OK ? "" : quire_refusal());
}

void worker_kit_open(worker_kit *kit)
{
    open_planner(kit);
    for (uint32_t i = 0; i < kit->num_ranks; i++)
        open_worker(kit, i);
    kit->hashes = bench_memory((size_t)kit->most_blocks * WORKER_HASH);
    memset(kit->hashes, 0, (size_t)kit->most_blocks * WORKER_HASH);
}

void worker_kit_close(worker_kit *kit)
{
    while (quire_planner_has_pending(kit->planner)) {
        worker_kit_plan(kit);
        worker_kit_poll(kit);
    }
    quire_planner_destroy(kit->planner);
    for (uint32_t i = 0; i < kit->num_ranks; i++) {
        worker_rank *rank = &kit->ranks[i];
        bench_must(quire_worker_destroy(rank->worker), "quire_worker_destroy");
        bench_must(quire_tier_close(rank->tier), "quire_tier_close");
        quire_device_close(&rank->device);
    }
    free(kit->hashes);
}

/* ---- steps ----------------------------------------------------------------- */

void worker_kit_plan(worker_kit *kit)
{
    bench_must(quire_planner_plan(kit->planner, ++kit->step, 1, 1, &kit->out),
               "quire_planner_plan");
    kit->num_held += kit->out.num_held;
    for (uint32_t i = 0; kit->out.plan.len > 0 && i < kit->num_ranks; i++) {
        int status = quire_worker_submit(kit->ranks[i].worker, kit->out.plan);
        bench_must(status, status == QUIRE_OK ? "" : quire_refusal());
    }
}

void worker_kit_poll(worker_kit *kit)
{
    for (uint32_t i = 0; i < kit->num_ranks; i++) {
        quire_bytes report;
        bench_must(quire_worker_poll(kit->ranks[i].worker, &report), "quire_worker_poll");
        if (report.len > 0)
            bench_must(quire_planner_report(kit->planner, report), "quire_planner_report");
    }
    bench_must(quire_planner_get_results(kit->planner, kit->step, &kit->results),
               "quire_planner_get_results");
    kit->num_held -= kit->results.num_released;
}

quire_planner_request worker_kit_request(worker_kit *kit, quire_req req, uint64_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t state = first + i;
        uint64_t words[WORKER_HASH / 8];
        for (uint32_t k = 0; k < WORKER_HASH / 8; k++)
            words[k] = bench_random(&state);
        memcpy(kit->hashes + (size_t)i * WORKER_HASH, words, sizeof words);
    }
    return (quire_planner_request){
        .req = req, .hashes = kit->hashes, .num_hashes = n, .num_tokens = n * WORKER_TOKENS + 1};
}

/* ---- numbers --------------------------------------------------------------- */

void worker_values_add(worker_values *v, double value)
{
    if (v->n < WORKER_MOST_ROUNDS)
        v->values[v->n++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double worker_values_at(worker_values *v, uint32_t percent)
{
    qsort(v->values, v->n, sizeof v->values[0], compare);
    return v->values[(size_t)(v->n - 1) * percent / 100];
}

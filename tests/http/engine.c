#include "http/engine.h"

#include <unistd.h>

enum { BLOCK = 4, BLOCKS = 97, LEN = 128, RUNNING = 8, REQUESTS = 32, FAMILIES = 6 };

void engine_open(engine *e, uint64_t seed, bool has_monitor, uint32_t num_swap_blocks)
{
    memset(e, 0, sizeof *e);
    e->random = seed;
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.block_size = BLOCK;
    hasher.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hasher, NULL, &e->hasher), QUIRE_OK);
    e->group = (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                             .block_size = BLOCK,
                                             .num_kv_heads = 1,
                                             .head_size = 8,
                                             .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    monitor.num_names = 4;
    monitor.map_ms = 1;
    monitor.event_bytes = 64 << 10;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = BLOCKS;
    cache.groups = &e->group;
    cache.num_groups = 1;
    cache.max_model_len = LEN;
    config.hasher = e->hasher;
    config.max_num_seqs = RUNNING;
    config.max_requests = REQUESTS;
    config.max_num_batched_tokens = 64;
    config.max_text_tokens = 16384;
    config.num_swap_blocks = num_swap_blocks;
    config.swap_block_ns = 1;
    config.recompute_token_ns = 10;
    config.monitor = has_monitor ? &monitor : NULL;
    assert_int_equal(quire_sched_create(&config, NULL, &e->sched), QUIRE_OK);
    e->monitor = quire_sched_get_monitor(e->sched);
    assert_true((e->monitor != NULL) == has_monitor);
}

void engine_close(engine *e)
{
    assert_int_equal(quire_sched_check(e->sched), QUIRE_OK);
    quire_sched_destroy(e->sched);
    quire_hasher_destroy(e->hasher);
}

void engine_add(engine *e)
{
    quire_token prompt[LEN];
    char id[24];
    uint32_t family = unit_random_below(&e->random, FAMILIES);
    uint32_t n = 8 + unit_random_below(&e->random, LEN / 2);
    uint32_t shared = unit_random_below(&e->random, n);
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (quire_token)(i < shared ? family * 1000 + i : unit_random(&e->random) % 50000);
    snprintf(id, sizeof id, "r%llu", (unsigned long long)e->num_added);
    const quire_request_params params = {.size = sizeof(quire_request_params),
                                         .id = {id, strlen(id)},
                                         .prompt = prompt,
                                         .num_prompt_tokens = n,
                                         .max_tokens = 1 + unit_random_below(&e->random, LEN / 2)};
    quire_req req;
    int status = quire_sched_add(e->sched, &params, &req);
    assert_true(status == QUIRE_OK || status == QUIRE_FULL);
    e->num_added += status == QUIRE_OK;
}

static void digest(engine *e, uint64_t number)
{
    e->digest = (e->digest ^ number) * UINT64_C(0x100000001b3);
}

static void digest_step(engine *e, const quire_step *step)
{
    digest(e, step->step);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        digest(e, step->reqs[i]);
        digest(e, step->num_tokens[i]);
        for (uint32_t k = 0; k < step->blocks[i].count; k++)
            digest(e, step->blocks[i].ids[k]);
    }
    for (uint32_t i = 0; i < step->num_preempted; i++)
        digest(e, step->preempted[i]);
}

static void step_once(engine *e)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[RUNNING];
    assert_int_equal(quire_sched_schedule(e->sched, &step), QUIRE_OK);
    digest_step(e, step);
    for (uint32_t i = 0; i < RUNNING; i++)
        sampled[i] = (quire_token)(unit_random(&e->random) % 50000);
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_sched_update(e->sched, step->step, &output, &outputs), QUIRE_OK);
    e->num_steps++;
}

void engine_step(engine *e)
{
    if (unit_random_below(&e->random, 4) == 0)
        engine_add(e);
    if (unit_random_below(&e->random, 2000) == 0)
        quire_sched_reset_prefix_cache(e->sched, 1, 0);
    step_once(e);
}

void engine_run(engine *e, uint64_t num_steps)
{
    for (uint64_t i = 0; i < num_steps; i++)
        engine_step(e);
}

void engine_drain(engine *e)
{
    while (quire_monitor_get_num_unfinished(e->monitor) > 0)
        step_once(e);
}

static void *run_thread(void *user)
{
    engine *e = user;
    while (e->num_steps < e->steps_wanted && !atomic_load(&e->is_stopped)) {
        engine_step(e);
        if (e->pause_us > 0)
            usleep(e->pause_us);
    }
    return NULL;
}

void engine_start(engine *e, uint64_t num_steps, uint32_t pause_us)
{
    e->steps_wanted = num_steps;
    e->pause_us = pause_us;
    atomic_store(&e->is_stopped, false);
    assert_int_equal(pthread_create(&e->thread, NULL, run_thread, e), 0);
}

void engine_join(engine *e)
{
    assert_int_equal(pthread_join(e->thread, NULL), 0);
}

void engine_stop(engine *e)
{
    atomic_store(&e->is_stopped, true);
    engine_join(e);
}

/* sched_engine.c - the engine of bench_sched.h.
 *
 * The pool is full of cached blocks at ids in no order, as after long use: each block taken evicts
 * another. Hashes are sha256, the default of both sides, and stats are counted, as a server does.
 * vllm_sched.py does the same with vLLM's Scheduler and AsyncScheduler: both must come to the same
 * block ids.
 */
#include "sched.h"

#include <stdlib.h>
#include <string.h>

/* A request's text lies in pages of that many tokens. */
#define TEXT_PAGE 1024u

static void create_hasher(bench_engine *e)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT; /* sha256 */
    config.block_size = BENCH_BLOCK_SIZE;
    config.seed = (quire_bytes){"0", 1};
    bench_must(quire_hasher_create(&config, NULL, &e->hasher), "quire_hasher_create");
}

static void create_sched(bench_engine *e, const bench_engine_config *engine)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = BENCH_BLOCK_SIZE,
                                               .num_kv_heads = 1,
                                               .head_size = 1,
                                               .dtype = QUIRE_DTYPE_FLOAT32}};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    const uint32_t n = engine->num_requests;
    cache.num_blocks = engine->num_blocks;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = engine->longest + engine->max_tokens;
    config.hasher = e->hasher;
    config.max_num_seqs = n;
    config.max_num_batched_tokens = n * cache.max_model_len;
    config.async_scheduling = engine->is_async ? QUIRE_ON : QUIRE_OFF;
    config.log_stats = QUIRE_ON;
    config.max_requests = n;
    config.max_text_tokens = n * (cache.max_model_len / TEXT_PAGE + 1ull) * TEXT_PAGE;
    config.max_request_bytes = 64;
    config.profile = bench_profile();
    config.monitor = engine->monitor;
    bench_must(quire_sched_create(&config, NULL, &e->sched), "quire_sched_create");
}

bench_engine *bench_engine_new(const bench_engine_config *config)
{
    bench_engine *e = bench_memory(sizeof *e);
    const uint32_t n = config->num_requests;
    const uint32_t table = n + BENCH_DECODE_STEPS;
    *e = (bench_engine){.num_requests = n,
                        .max_tokens = config->max_tokens,
                        .is_async = config->is_async,
                        .random = 11};
    e->prompt_tokens = bench_memory(n * sizeof *e->prompt_tokens);
    e->reqs = bench_memory(n * sizeof *e->reqs);
    e->table = bench_memory(((size_t)table + config->longest) * sizeof *e->table);
    e->prompt = bench_memory(config->longest * sizeof *e->prompt);
    bench_tokens(e->table, (size_t)table + config->longest);
    memcpy(e->prompt, e->table, config->longest * sizeof *e->prompt);
    for (uint32_t i = 0; i < n; i++)
        e->prompt_tokens[i] =
            config->shortest +
            (uint32_t)(bench_random(&e->random) % (config->longest - config->shortest + 1));
    create_hasher(e);
    create_sched(e, config);
    bench_fill_pool(quire_cache_get_pool(quire_sched_get_cache(e->sched)), config->num_blocks - 1,
                    &e->random);
    return e;
}

void bench_engine_teardown(void *state)
{
    bench_engine *e = state;
    quire_sched_destroy(e->sched);
    quire_hasher_destroy(e->hasher);
    free(e->prompt_tokens);
    free(e->reqs);
    free(e->table);
    free(e->prompt);
    free(e);
}

void bench_engine_add_again(bench_engine *e, uint32_t i)
{
    const quire_request_params params = {.size = sizeof(quire_request_params),
                                         .id = {&i, sizeof i},
                                         .prompt = e->prompt,
                                         .num_prompt_tokens = e->prompt_tokens[i],
                                         .max_tokens = e->max_tokens};
    bench_must(quire_sched_add(e->sched, &params, &e->reqs[i]), "quire_sched_add");
}

void bench_engine_add(bench_engine *e, uint32_t i)
{
    e->prompt[0] = e->num_added++;
    bench_engine_add_again(e, i);
}

void bench_engine_schedule(bench_engine *e)
{
    bench_must(quire_sched_schedule(e->sched, &e->step), "quire_sched_schedule");
    e->scheduled = e->step->step;
}

void bench_engine_update(bench_engine *e)
{
    const uint64_t step = ++e->updated;
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .sampled = e->table + step % BENCH_DECODE_STEPS};
    const quire_outputs *outputs;
    bench_must(quire_sched_update(e->sched, step, &output, &outputs), "quire_sched_update");
}

void bench_engine_drain(bench_engine *e)
{
    while (e->updated < e->scheduled)
        bench_engine_update(e);
}

/* Everything fits into one step; with async scheduling the first decode step follows at once. */
void bench_engine_start(bench_engine *e)
{
    for (uint32_t i = 0; i < e->num_requests; i++)
        bench_engine_add(e, i);
    bench_engine_schedule(e);
    if (e->is_async)
        bench_engine_schedule(e);
    bench_engine_update(e);
}

void bench_engine_stop(bench_engine *e)
{
    bench_must(quire_sched_finish_all(e->sched, QUIRE_REQ_FINISHED_ABORTED, NULL),
               "quire_sched_finish");
    bench_engine_drain(e);
    bench_engine_schedule(e);
    bench_engine_update(e);
}

uint64_t bench_engine_check_step(const bench_engine *e, uint64_t check)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < e->step->num_reqs; i++)
        for (uint32_t k = 0; k < e->step->blocks[i].count; k++)
            sum += e->step->blocks[i].ids[k];
    const quire_block numbers[] = {e->step->num_reqs, e->step->total_tokens, e->step->num_preempted,
                                   sum};
    const quire_block_span span = {numbers, sizeof numbers / sizeof *numbers};
    return bench_check_spans(check, &span, 1);
}

uint64_t bench_engine_check(const bench_engine *e)
{
    quire_block_span blocks;
    uint64_t check = BENCH_CHECK_START;
    for (uint32_t i = 0; i < e->num_requests; i++) {
        bench_must(quire_sched_get_blocks(e->sched, e->reqs[i], &blocks), "quire_sched_get_blocks");
        check = bench_check_spans(check, &blocks, 1);
    }
    return check;
}

#include "noalloc_sched.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4, BLOCKS = 60, LEN = 96 };

static uint32_t below(noalloc_sched *e, uint32_t limit)
{
    e->random = e->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((e->random >> 32) * limit) >> 32);
}

static void count(noalloc_sched *e, int status)
{
    e->full += status == QUIRE_FULL;
    e->failures += status < 0;
}

static void on_event(void *user, const quire_event *event)
{
    ((noalloc_sched *)user)->evictions += event->kind == QUIRE_EVENT_REMOVED;
}

/* Clocks without the system: where system calls are forbidden, so is its clock. */
static uint64_t count_steps(void *user)
{
    return ((noalloc_sched *)user)->clock++;
}

static double count_seconds(void *user)
{
    return (double)((noalloc_sched *)user)->clock;
}

bool noalloc_sched_start(noalloc_sched *e, uint64_t seed, bool is_async)
{
    quire_group_config groups[2] = {{.spec = {.kind = QUIRE_LAYER_FULL,
                                              .block_size = BLOCK,
                                              .num_kv_heads = 1,
                                              .head_size = 8,
                                              .dtype = QUIRE_DTYPE_FLOAT16}}};
    groups[1] = groups[0];
    groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    groups[1].spec.sliding_window = 10;
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    memset(e, 0, sizeof *e);
    e->random = seed;
    e->is_async = is_async;
    hasher.block_size = BLOCK;
    if (quire_hasher_create(&hasher, NULL, &e->hasher) != QUIRE_OK)
        return false;
    cache.num_blocks = BLOCKS;
    cache.groups = groups;
    cache.num_groups = 2;
    cache.max_model_len = LEN;
    cache.on_event = on_event;
    cache.event_user = e;
    config.hasher = e->hasher;
    config.policy = is_async ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
    config.max_num_seqs = NOALLOC_SEQS;
    config.max_num_batched_tokens = 64;
    config.async_scheduling = is_async ? QUIRE_ON : QUIRE_OFF;
    config.num_spec_tokens = NOALLOC_SPEC;
    config.max_loras = 2;
    config.encoder_compute_budget = 8;
    config.encoder_cache_size = 8;
    config.max_encoder_items = 4;
    config.include_finished_set = QUIRE_ON;
    config.log_stats = QUIRE_ON;
    config.max_requests = NOALLOC_LIVE;
    config.max_text_tokens = 4096;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    monitor.token_ids = QUIRE_ON;
    monitor.event_bytes = 1 << 16;
    monitor.sample_rate = 0.5;
    monitor.hooks = (quire_hooks){.user = e, .now_ns = count_steps};
    monitor.wall_time = count_seconds;
    monitor.wall_user = e;
    config.hooks = monitor.hooks;
    config.monitor = &monitor; /* being looked at takes no memory either */
    return quire_sched_create(&config, NULL, &e->sched) == QUIRE_OK;
}

void noalloc_sched_end(noalloc_sched *e)
{
    quire_sched_destroy(e->sched);
    quire_hasher_destroy(e->hasher);
}

static void add(noalloc_sched *e)
{
    quire_token prompt[LEN / 2];
    uint32_t n = 4 + below(e, LEN / 2 - 4);
    uint32_t family = below(e, 5);
    uint32_t split = below(e, n);
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (quire_token)(i < split ? family * 1000 + i : below(e, 4));
    const quire_mm_input image = {.feature = {.identifier = {&"abc"[family % 3], 1}, .length = 4}};
    quire_req req;
    const quire_request_params params = {.size = sizeof(quire_request_params),
                                         .id = {&e->number, sizeof e->number},
                                         .prompt = prompt,
                                         .num_prompt_tokens = n,
                                         .max_tokens = 1 + below(e, LEN / 2),
                                         .priority = (int32_t)below(e, 3),
                                         .lora_id = below(e, 3),
                                         .mm_inputs = &image,
                                         .num_mm_inputs = family == 4,
                                         .is_resumable = below(e, 8) == 0};
    e->number++;
    count(e, quire_sched_add(e->sched, &params, &req));
}

static void seldom(noalloc_sched *e)
{
    quire_req reqs[NOALLOC_LIVE];
    quire_token tokens[LEN];
    quire_block_span spans[2];
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    uint32_t n = quire_sched_get_queue(e->sched, below(e, 3), reqs, NOALLOC_LIVE);
    uint32_t dice = below(e, 40);
    for (uint32_t i = 0; i < n; i++) {
        count(e, quire_sched_get_req_info(e->sched, reqs[i], &info));
        count(e, quire_sched_get_tokens(e->sched, reqs[i], 0, info.num_tokens, tokens));
        count(e, quire_sched_get_blocks(e->sched, reqs[i], spans));
        if (info.status == QUIRE_REQ_WAITING_FOR_STREAMING)
            count(e, quire_sched_continue(e->sched, reqs[i], NULL));
    }
    count(e, quire_sched_check(e->sched));
    if (dice < 10 && n > 0)
        count(e, quire_sched_finish(e->sched, reqs, 1, QUIRE_REQ_FINISHED_ABORTED, NULL));
    else if (dice == 10)
        count(e, quire_sched_finish_all(e->sched, QUIRE_REQ_FINISHED_ABORTED, NULL));
    else if (dice < 14)
        e->resets += quire_sched_reset_prefix_cache(e->sched, dice != 11, 0) == QUIRE_OK;
    else if (dice == 14)
        count(e, quire_sched_reset_encoder_cache(e->sched));
}

static void propose(noalloc_sched *e)
{
    quire_req reqs[NOALLOC_SEQS];
    quire_token drafts[NOALLOC_SEQS * NOALLOC_SPEC];
    uint32_t counts[NOALLOC_SEQS];
    uint32_t n = quire_sched_get_queue(e->sched, 0, reqs, NOALLOC_SEQS);
    memset(drafts, 0, sizeof drafts);
    for (uint32_t i = 0; i < n; i++)
        counts[i] = below(e, NOALLOC_SPEC + 1);
    count(e, quire_sched_update_drafts(e->sched, reqs, n, drafts, NOALLOC_SPEC, counts));
}

static void update(noalloc_sched *e)
{
    const quire_outputs *outputs;
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = e->sampled};
    for (uint32_t i = 0; i < NOALLOC_SEQS; i++)
        e->sampled[i] = (quire_token)below(e, 4);
    int status = quire_sched_update(e->sched, ++e->updated, &output, &outputs);
    count(e, status);
    if (status == QUIRE_OK)
        e->finished += outputs->num_finished;
    if (!e->is_async)
        propose(e);
}

static void step(noalloc_sched *e)
{
    const quire_step *made;
    if (below(e, 3) == 0)
        add(e);
    if (below(e, 50) == 0)
        seldom(e);
    while (e->steps - e->updated >= (e->is_async ? 2 : 1))
        update(e);
    int status = quire_sched_schedule(e->sched, &made);
    count(e, status);
    if (status != QUIRE_OK)
        return;
    e->steps++;
    e->preempted += made->num_preempted;
    for (uint32_t i = 0; i < made->num_reqs; i++)
        e->hits += made->kinds[i] != QUIRE_STEP_RUNNING && made->num_computed_tokens[i] > 0;
}

void noalloc_sched_run(noalloc_sched *e, uint64_t steps)
{
    uint64_t end = e->steps + steps;
    while (e->steps < end && e->failures == 0)
        step(e);
}

bool noalloc_sched_did_all(const noalloc_sched *e)
{
    return e->failures == 0 && e->hits > 0 && e->preempted > 0 && e->finished > 0 &&
           e->evictions > 0 && e->resets > 0 && e->full > 0;
}

void noalloc_sched_print(const noalloc_sched *e)
{
    printf("sched %-6s %llu steps, %llu hits, %llu preempted, %llu finished, %llu evictions, "
           "%llu resets, %llu full, %llu failures\n",
           e->is_async ? "async" : "sync", (unsigned long long)e->steps,
           (unsigned long long)e->hits, (unsigned long long)e->preempted,
           (unsigned long long)e->finished, (unsigned long long)e->evictions,
           (unsigned long long)e->resets, (unsigned long long)e->full,
           (unsigned long long)e->failures);
}

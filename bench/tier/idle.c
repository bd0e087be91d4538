/* idle.c - what an offload costs a scheduler that has nothing for it to do.
 *
 *      none      a scheduler alone: requests decode, one token each in a step
 *      idle      with an offload in lazy mode: nothing is near its eviction, nothing is stored
 *      eager     with one that stores each block as it gets full: one for each request in 16 steps
 *
 * Three schedulers with the same requests take turns of STEPS steps, so that what else the machine
 * does falls on all alike; each round gives a ratio to `none`, and the table has the median of the
 * rounds and their 10th and 90th percentile.
 */
#include "bench.h"

#include <quire/offload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 48, ROUNDS = 41, BLOCK = 16, PROMPT = 64, LEN = 8192, NUM_SIDES = 3 };

static const char *const NAMES[] = {"none", "idle", "eager"};

typedef struct side {
    uint32_t num_reqs;
    quire_hasher *hasher;
    quire_group_config group;
    quire_offload *offload; /* NULL: none */
    quire_sched *sched;
    quire_token *sampled;
    uint64_t stored_event;
    double ns_per_step[ROUNDS];
} side;

static void add_requests(side *s)
{
    for (uint32_t i = 0; i < s->num_reqs; i++) {
        quire_token prompt[PROMPT];
        char name[16];
        for (uint32_t k = 0; k < PROMPT; k++)
            prompt[k] = (quire_token)(i * 1000 + k);
        int len = snprintf(name, sizeof name, "%u", i);
        quire_request_params params = {.size = sizeof(quire_request_params),
                                       .id = {name, (size_t)len},
                                       .prompt = prompt,
                                       .num_prompt_tokens = PROMPT,
                                       .max_tokens = LEN - PROMPT - 1};
        quire_req req;
        bench_must(quire_sched_add(s->sched, &params, &req), "quire_sched_add");
    }
}

static void open_side(side *s, uint32_t which, uint32_t num_reqs)
{
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    *s = (side){.num_reqs = num_reqs, .stored_event = QUIRE_OFFLOAD_NO_EVENT};
    hasher.block_size = BLOCK;
    bench_must(quire_hasher_create(&hasher, NULL, &s->hasher), "quire_hasher_create");
    s->group = (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                             .block_size = BLOCK,
                                             .num_kv_heads = 8,
                                             .head_size = 128,
                                             .dtype = QUIRE_DTYPE_BFLOAT16}};
    cache.groups = &s->group;
    cache.num_groups = 1;
    cache.num_blocks = num_reqs * (LEN / BLOCK) + 1;
    cache.max_model_len = LEN;
    config.hasher = s->hasher;
    config.max_num_seqs = num_reqs;
    config.max_num_batched_tokens = 4096;
    config.max_requests = 2 * num_reqs;
    if (which > 0) {
        quire_offload_config offload = QUIRE_OFFLOAD_CONFIG_INIT;
        offload.sched = &config;
        offload.num_cpu_blocks = 2 * cache.num_blocks;
        offload.mode = which == 1 ? QUIRE_OFFLOAD_LAZY : QUIRE_OFFLOAD_EAGER;
        bench_must(quire_offload_create(&offload, NULL, &s->offload), "quire_offload_create");
        config.connector = quire_offload_connector(s->offload);
    }
    bench_must(quire_sched_create(&config, NULL, &s->sched), "quire_sched_create");
    if (s->offload != NULL)
        bench_must(quire_offload_bind(s->offload, s->sched), "quire_offload_bind");
    s->sampled = bench_memory(num_reqs * sizeof *s->sampled);
    memset(s->sampled, 0, num_reqs * sizeof *s->sampled);
    add_requests(s);
}

/* Stores are there one step later. */
static void run_step(side *s)
{
    const quire_step *step = NULL;
    const quire_outputs *outputs = NULL;
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = s->sampled};
    bench_must(quire_sched_schedule(s->sched, &step), "quire_sched_schedule");
    if (s->offload != NULL) {
        const quire_offload_meta *meta = step->connector_meta;
        quire_offload_report report = {.size = sizeof(quire_offload_report),
                                       .stored_events = &s->stored_event,
                                       .num_stored = s->stored_event != QUIRE_OFFLOAD_NO_EVENT};
        bench_must(quire_offload_tell(s->offload, &report), "quire_offload_tell");
        bench_must(quire_offload_poll(s->offload, step->step, &output), "quire_offload_poll");
        s->stored_event = meta->store_event;
    }
    bench_must(quire_sched_update(s->sched, step->step, &output, &outputs), "quire_sched_update");
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(side *sides, uint32_t which)
{
    double ratios[ROUNDS];
    double times[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        ratios[i] = sides[which].ns_per_step[i] / sides[0].ns_per_step[i];
        times[i] = sides[which].ns_per_step[i];
    }
    qsort(ratios, ROUNDS, sizeof ratios[0], compare_doubles);
    qsort(times, ROUNDS, sizeof times[0], compare_doubles);
    printf("  %-6s %8.2f us/step   %6.3f of none (%.3f to %.3f)\n", NAMES[which],
           times[ROUNDS / 2] / 1000, ratios[ROUNDS / 2], ratios[ROUNDS / 10],
           ratios[ROUNDS - 1 - ROUNDS / 10]);
}

int main(int argc, char **argv)
{
    static side sides[NUM_SIDES];
    uint32_t num_reqs = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 256;
    for (uint32_t i = 0; i < NUM_SIDES; i++) {
        open_side(&sides[i], i, num_reqs);
        for (uint32_t k = 0; k < num_reqs * PROMPT / 4096 + STEPS; k++)
            run_step(&sides[i]);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t turn = 0; turn < NUM_SIDES; turn++) {
            side *s = &sides[(turn + round) % NUM_SIDES];
            uint64_t began_ns = bench_now_ns();
            for (uint32_t k = 0; k < STEPS; k++)
                run_step(s);
            s->ns_per_step[round] = (double)(bench_now_ns() - began_ns) / STEPS;
        }
    }
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    bench_must(quire_offload_get_stats(sides[2].offload, &stats), "quire_offload_get_stats");
    printf("%u requests decode, %d rounds of %d steps; eager stored %llu blocks\n", num_reqs,
           ROUNDS, STEPS, (unsigned long long)stats.stored_blocks);
    for (uint32_t i = 0; i < NUM_SIDES; i++)
        report(sides, i);
    return 0;
}

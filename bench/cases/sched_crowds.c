/* sched_crowds.c - a step beside many pins, waiting or loading requests: is its cost flat?
 *
 *      sched/pins/N       one request comes and ends, N pins stay              ns for a step
 *      sched/waiting/N    PRIORITY: N requests wait, the first finds no room   ns for a step
 *      sched/loading/N    N requests load, and each is looked at in each step  ns for a request
 *      sched/list/N       PRIORITY: quire_sched_get_queue of N requests        ns for a request
 *
 * The first three must not grow with N, the last one only as its logarithm does.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 16, STEPS = 64 };

typedef enum crowd_kind { PINS, WAITING, LOADING, LIST } crowd_kind;

typedef struct crowd {
    quire_cache_config cache_config;
    crowd_kind kind;
    uint32_t size;
    uint32_t num_added;
    quire_hasher *hasher;
    quire_sched *sched;
    quire_req *reqs;
    const quire_step *step;
} crowd;

static int load_all(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                    uint32_t *is_async)
{
    (void)user, (void)req;
    *num_external = 2 * BLOCK - num_local;
    *is_async = 1;
    return QUIRE_OK;
}

static const quire_connector loader = {.size = sizeof(quire_connector),
                                       .get_num_new_matched_tokens = load_all};

static quire_req add_one(crowd *c, uint32_t num_tokens, uint32_t max_tokens)
{
    quire_token prompt[4 * BLOCK] = {(quire_token)c->num_added};
    char id[16];
    const int length = snprintf(id, sizeof id, "r%u", c->num_added++);
    const quire_request_params p = {.size = sizeof(quire_request_params),
                                    .id = {id, (size_t)length},
                                    .prompt = prompt,
                                    .num_prompt_tokens = num_tokens,
                                    .max_tokens = max_tokens,
                                    .priority = (int32_t)(c->num_added * 7919 % 13)};
    quire_req req;
    bench_must(quire_sched_add(c->sched, &p, &req), "quire_sched_add");
    return req;
}

static void run_step(crowd *c)
{
    static const quire_token tokens[8];
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .sampled = c->kind == PINS ? tokens : NULL};
    const quire_outputs *outputs;
    bench_must(quire_sched_schedule(c->sched, &c->step), "quire_sched_schedule");
    bench_must(quire_sched_update(c->sched, c->step->step, &output, &outputs),
               "quire_sched_update");
}

/* ---- setup -------------------------------------------------------------- */

static quire_sched_config crowd_config(crowd *c, const quire_group_config *group)
{
    quire_hasher_config h = QUIRE_HASHER_CONFIG_INIT;
    h.algo = QUIRE_HASH_QUIRE128;
    h.block_size = BLOCK;
    h.seed = (quire_bytes){"bench", 5};
    bench_must(quire_hasher_create(&h, NULL, &c->hasher), "quire_hasher_create");
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    c->cache_config = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    config.cache = &c->cache_config;
    config.cache->groups = group;
    config.cache->num_groups = 1;
    config.cache->max_model_len = 64;
    config.cache->digest_bytes = 16;
    config.cache->num_blocks = 256;
    config.hasher = c->hasher;
    config.max_num_seqs = 8;
    config.max_requests = c->size + 64;
    return config;
}

static void fill(crowd *c)
{
    for (uint32_t i = 0; c->kind == PINS && i < c->size; i++) {
        const quire_req req = add_one(c, BLOCK + 1, 1);
        bench_must(quire_sched_pin(c->sched, req, UINT64_C(1) << 60), "quire_sched_pin");
        run_step(c);
    }
    if (c->kind == WAITING) { /* has most of the pool, and gets no token: it never ends */
        add_one(c, 4 * BLOCK - 1, 1);
        run_step(c);
    }
    for (uint32_t i = 0; c->kind != PINS && i < c->size; i++)
        add_one(c, 2 * BLOCK, 1);
    if (c->kind == LOADING)
        run_step(c);
}

static void *crowd_setup(const bench_case *self)
{
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = BLOCK,
                                                      .num_kv_heads = 1,
                                                      .head_size = 64,
                                                      .dtype = QUIRE_DTYPE_BFLOAT16}};
    crowd *c = bench_memory(sizeof *c);
    *c = (crowd){.kind = (crowd_kind)self->batch, .size = self->size};
    c->reqs = bench_memory(self->size * sizeof *c->reqs);
    quire_sched_config config = crowd_config(c, &group);
    if (c->kind == PINS) {
        config.max_pins = c->size;
        config.cache->num_blocks = 2 * c->size + 256;
    } else if (c->kind == LOADING) {
        config.cache->num_blocks = 2 * c->size + 256;
        config.max_loading = c->size;
        config.connector = &loader;
    } else {
        config.policy = QUIRE_POLICY_PRIORITY;
        config.cache->num_blocks = 6;
    }
    bench_must(quire_sched_create(&config, NULL, &c->sched), "quire_sched_create");
    fill(c);
    return c;
}

static void crowd_teardown(void *state)
{
    crowd *c = state;
    quire_sched_destroy(c->sched);
    quire_hasher_destroy(c->hasher);
    free(c->reqs);
    free(c);
}

/* ---- passes ------------------------------------------------------------- */

static uint64_t step_pass(void *state, bench_timer *timer)
{
    crowd *c = state;
    bench_start(timer);
    for (uint32_t i = 0; i < STEPS; i++) {
        if (c->kind == PINS)
            add_one(c, BLOCK + 1, 1);
        run_step(c);
    }
    bench_stop(timer, c->kind == LOADING ? (uint64_t)STEPS * c->size : STEPS);
    return quire_sched_get_counts(c->sched).num_waiting;
}

static uint64_t list_pass(void *state, bench_timer *timer)
{
    crowd *c = state;
    bench_start(timer);
    const uint32_t n = quire_sched_get_queue(c->sched, 1, c->reqs, c->size);
    bench_stop(timer, c->size);
    return n;
}

/* ---- the cases ---------------------------------------------------------- */

/* size: of the crowd, batch: its kind */
#define CROWD(name, size, kind, pass)                                                              \
    {                                                                                              \
        "sched/" name, (kind) >= LOADING ? "ns/request" : "ns/step", 1, 0, size, kind, false,      \
            crowd_setup, pass, crowd_teardown                                                      \
    }

static const bench_case cases[] = {
    CROWD("pins/1k", 1024, PINS, step_pass),       CROWD("pins/16k", 16384, PINS, step_pass),
    CROWD("waiting/1k", 1024, WAITING, step_pass), CROWD("waiting/16k", 16384, WAITING, step_pass),
    CROWD("loading/256", 256, LOADING, step_pass), CROWD("loading/4k", 4096, LOADING, step_pass),
    CROWD("list/1k", 1024, LIST, list_pass),       CROWD("list/16k", 16384, LIST, list_pass),
};

bench_group bench_sched_crowds_group(void)
{
    return (bench_group){cases, sizeof cases / sizeof *cases};
}

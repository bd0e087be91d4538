/* test_routers.c - the routers of a fleet as the engine room calls them. */
#include "base/unit.h"

#include "fleet/routers/router.h"
#include "fleet/routers/router_table.h"

#include <math.h>

enum { WORKERS = 4 };

static router_load loads[WORKERS];

/* ---- a small fleet --------------------------------------------------------- */

static routers *open_routers(const char *text, router_spec *spec, uint32_t num_routers,
                             void (*change)(routers_settings *))
{
    routers *r = NULL;
    char why[ROUTER_WHY_BYTES] = "";
    routers_settings settings;
    memset(loads, 0, sizeof loads);
    if (!router_spec_read(text, spec, why))
        fail_msg("%s", why);
    routers_defaults(spec->policy, &settings);
    settings.values = spec->values;
    settings.max_workers = WORKERS;
    settings.num_routers = num_routers;
    settings.seed = 7;
    if (change != NULL)
        change(&settings);
    if (!routers_open(&settings, &r, why))
        fail_msg("%s", why);
    return r;
}

static void join(routers *r, uint32_t worker, router_role pool)
{
    router_join(r, 0, worker, &(router_worker_info){pool, 100, 1000, 0});
}

static routers *open_fleet(const char *text, router_spec *spec)
{
    routers *r = open_routers(text, spec, 1, NULL);
    for (uint32_t w = 0; w < WORKERS; w++)
        join(r, w, ROUTER_SERVE);
    return r;
}

static void close_fleet(routers *r, router_spec *spec)
{
    routers_close(r);
    router_spec_free(spec);
}

/* Prompt p has the blocks p * 100 + 1, + 2, ... */
static router_answer ask_for(routers *r, double now_s, uint64_t number, uint32_t prompt,
                             uint32_t num_blocks)
{
    static uint64_t blocks[64];
    router_answer answer;
    for (uint32_t i = 0; i < num_blocks; i++)
        blocks[i] = prompt * 100 + i + 1;
    router_request request = {.number = number,
                              .time_s = now_s,
                              .arrival_s = now_s,
                              .blocks = blocks,
                              .num_blocks = num_blocks,
                              .block_size = 16,
                              .num_prompt_tokens = num_blocks * 16 + 8};
    router_choose(r, &request, loads, &answer);
    return answer;
}

static void stored(routers *r, double time_s, uint32_t worker, uint32_t prompt, uint32_t num_blocks)
{
    uint64_t blocks[64];
    for (uint32_t i = 0; i < num_blocks; i++)
        blocks[i] = prompt * 100 + i + 1;
    router_kv(r,
              &(router_kv_event){time_s, worker, ROUTER_GPU, ROUTER_KV_STORED, blocks, num_blocks});
}

/* ---- counts ---------------------------------------------------------------- */

static void requests_are_counted_until_they_end(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_fleet("dynamo-kv", &spec);
    const router_worker *w = router_workers(r, 0);
    assert_true(router_wants_kv(r));
    assert_true(isinf(router_next_tick(r)));
    stored(r, 1, 2, 5, 10);
    router_answer a = ask_for(r, 1, 11, 5, 12);
    assert_int_equal(a.action, ROUTER_ROUTE);
    assert_int_equal(a.worker, 2);
    assert_int_equal(a.prefill_worker, ROUTER_NONE);
    assert_int_equal(a.believed_blocks, 10);
    assert_int_equal(a.best_hit_worker, 2);
    assert_int_equal(a.best_hit_blocks, 10);
    assert_int_equal(w[2].in_flight, 1);
    assert_int_equal(w[2].in_prefill, 1);
    assert_int_equal(w[2].prefill_tokens, 40); /* 200 - 160 */
    assert_int_equal(w[2].active_blocks, 12);
    assert_int_equal(w[2].in_flight_tokens, 200);
    router_first_token(r, 2, 11, 160);
    assert_int_equal(w[2].in_prefill, 0);
    assert_int_equal(w[2].prefill_tokens, 0);
    assert_int_equal(w[2].in_flight, 1);
    router_output(r, 3, 11, 16);
    assert_int_equal(w[2].in_flight_tokens, 216);
    router_done(r, 4, 11, 20, false);
    assert_int_equal(w[2].in_flight, 0);
    assert_int_equal(w[2].active_blocks, 0);
    assert_int_equal(w[2].in_flight_tokens, 0);
    assert_int_equal(w[2].num_routed, 1);
    router_done(r, 5, 11, 20, false); /* unknown: no effect */
    router_first_token(r, 5, 11, 0);
    assert_int_equal(w[2].in_flight, 0);
    a = ask_for(r, 6, 12, 5, 12);
    router_done(r, 7, 12, 0, true); /* aborted before its first token */
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_true(w[i].in_flight == 0 && w[i].in_prefill == 0 && w[i].prefill_tokens == 0 &&
                    w[i].active_blocks == 0);
    close_fleet(r, &spec);
}

static void workers_join_drain_and_leave(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_routers("vllm-kv-aware", &spec, 1, NULL);
    router_answer a = ask_for(r, 0, 1, 5, 4);
    assert_int_equal(a.action, ROUTER_WAIT); /* no worker is ready */
    assert_int_equal(router_num_waiting(r), 1);
    uint64_t number = 0;
    assert_false(router_next_waiting(r, 0, &number));
    join(r, 1, ROUTER_SERVE);
    assert_true(router_next_waiting(r, 0, &number));
    assert_int_equal(number, 1);
    assert_int_equal(ask_for(r, 1, 1, 5, 4).worker, 1);
    assert_int_equal(router_num_waiting(r), 0);
    stored(r, 1, 1, 5, 4);
    join(r, 2, ROUTER_SERVE);
    assert_int_equal(ask_for(r, 2, 2, 5, 4).worker, 1);
    router_drain(r, 3, 1);
    assert_int_equal(ask_for(r, 3, 3, 5, 4).worker, 2);
    join(r, 1, ROUTER_SERVE); /* drained, and back with its cache */
    assert_int_equal(ask_for(r, 4, 4, 5, 3).best_hit_worker, 1);
    router_leave(r, 5, 1);
    join(r, 1, ROUTER_SERVE);
    router_answer cold = ask_for(r, 50, 5, 5, 4); /* its own decisions are older than 2 s */
    assert_int_equal(cold.best_hit_worker, ROUTER_NONE);
    close_fleet(r, &spec);
}

/* ---- the queue ------------------------------------------------------------- */

static void requests_wait_for_a_first_token(void **state)
{
    router_spec spec;
    uint64_t number;
    (void)state;
    routers *r = open_routers("dynamo-kv:router-queue-threshold=0.1,router-queue-policy=lcfs",
                              &spec, 1, NULL);
    join(r, 0, ROUTER_SERVE);
    assert_int_equal(ask_for(r, 1, 1, 1, 10).action, ROUTER_ROUTE); /* 168 tokens > 0.1 * 1000 */
    assert_int_equal(ask_for(r, 2, 2, 2, 10).action, ROUTER_WAIT);
    assert_int_equal(ask_for(r, 3, 3, 3, 10).action, ROUTER_WAIT);
    assert_int_equal(ask_for(r, 4, 4, 4, 10).action, ROUTER_WAIT);
    assert_int_equal(router_num_waiting(r), 3);
    router_done(r, 4, 3, 0, true); /* cancelled while it waits */
    assert_int_equal(router_num_waiting(r), 2);
    assert_false(router_next_waiting(r, 4, &number));              /* it changed no worker */
    assert_int_equal(ask_for(r, 4, 4, 4, 10).action, ROUTER_WAIT); /* keeps its place */
    router_first_token(r, 5, 1, 0);
    assert_true(router_next_waiting(r, 5, &number));
    assert_int_equal(number, 4); /* the last one first */
    assert_int_equal(ask_for(r, 5, 4, 4, 10).action, ROUTER_ROUTE);
    assert_true(router_next_waiting(r, 5, &number));
    assert_int_equal(number, 2);
    assert_int_equal(ask_for(r, 5, 2, 2, 10).action, ROUTER_WAIT); /* 4 computes now */
    assert_false(router_next_waiting(r, 5, &number));
    close_fleet(r, &spec);
}

/* ---- prefill and decode apart ---------------------------------------------- */

static void prompts_go_to_another_pool(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_routers("dynamo-kv:conditional-disagg=isl-bounding", &spec, 1, NULL);
    join(r, 0, ROUTER_PREFILL);
    join(r, 1, ROUTER_DECODE);
    join(r, 2, ROUTER_DECODE);
    stored(r, 0, 0, 6, 5);
    router_answer a = ask_for(r, 1, 1, 6, 10);
    assert_int_equal(a.prefill_worker, 0);
    assert_true(a.worker == 1 || a.worker == 2);
    assert_int_equal(a.believed_blocks, 5); /* of the worker that computes the prompt */
    const router_worker *w = router_workers(r, 0);
    assert_int_equal(w[0].prefill_tokens, 88);
    assert_int_equal(w[a.worker].prefill_tokens, 0);
    assert_int_equal(w[a.worker].in_flight, 1);
    router_first_token(r, 2, 1, 80); /* the prefill worker has done its part */
    assert_int_equal(w[0].in_flight, 0);
    assert_int_equal(w[a.worker].in_flight, 1);
    router_done(r, 3, 1, 5, false);
    assert_int_equal(w[a.worker].in_flight, 0);
    stored(r, 3, 1, 7, 8); /* 8 of 10 blocks are on a decode worker: it prefills itself */
    stored(r, 3, 2, 7, 8);
    a = ask_for(r, 4, 2, 7, 10);
    assert_int_equal(a.action, ROUTER_ROUTE);
    assert_int_equal(a.prefill_worker, ROUTER_NONE);
    assert_int_equal(w[a.worker].prefill_tokens, 40);
    router_done(r, 4, 2, 0, true);
    router_leave(r, 5, 0); /* no prefill worker is left */
    a = ask_for(r, 6, 3, 8, 10);
    assert_int_equal(a.action, ROUTER_ROUTE);
    assert_int_equal(a.prefill_worker, ROUTER_NONE);
    router_done(r, 7, 3, 0, true);
    join(r, 0, ROUTER_PREFILL);
    a = ask_for(r, 8, 4, 9, 10);
    assert_int_equal(a.prefill_worker, 0);
    router_done(r, 9, 4, 0, true); /* aborted while its prompt is computed */
    for (uint32_t i = 0; i < 3; i++)
        assert_true(w[i].in_flight == 0 && w[i].prefill_tokens == 0 && w[i].active_blocks == 0);
    close_fleet(r, &spec);
}

/* The prefill worker crashes, and the decode worker goes on alone. */
static void a_lost_prefill_counts_no_more(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_routers("dynamo-kv", &spec, 1, NULL);
    join(r, 0, ROUTER_PREFILL);
    join(r, 1, ROUTER_DECODE);
    router_answer a = ask_for(r, 1, 1, 6, 10);
    const router_worker *w = router_workers(r, 0);
    assert_int_equal(a.prefill_worker, 0);
    assert_int_equal(w[0].in_flight, 1);
    router_prefill_lost(r, 2, 1);
    assert_true(w[0].in_flight == 0 && w[0].prefill_tokens == 0 && w[0].active_blocks == 0);
    assert_int_equal(w[1].in_flight, 1);
    router_prefill_lost(r, 2, 1);  /* it has none any more: */
    router_prefill_lost(r, 2, 99); /* nothing happens, nor for a request that is not there */
    router_leave(r, 2, 0);
    join(r, 0, ROUTER_PREFILL);
    router_first_token(r, 3, 1, 0);
    router_done(r, 4, 1, 5, false);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(w[i].in_flight == 0 && w[i].prefill_tokens == 0 && w[i].active_blocks == 0);
    close_fleet(r, &spec);
}

/* ---- reports --------------------------------------------------------------- */

static void slow_reports(routers_settings *s)
{
    s->view.knowledge.metrics_every_s = 1;
    s->view.metrics_lag_s = 0.25;
}

static void current_reports(routers_settings *s)
{
    s->view.knowledge.metrics_every_s = 0;
}

static void reports_are_as_old_as_the_last_tick(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_routers("vllm-dp", &spec, 1, slow_reports);
    for (uint32_t w = 0; w < WORKERS; w++)
        join(r, w, ROUTER_SERVE);
    const router_worker *w = router_workers(r, 0);
    assert_true(router_next_tick(r) == 1);
    loads[0].running = 5;
    assert_int_equal(ask_for(r, 0.5, 1, 1, 1).worker, 0); /* no report yet */
    assert_true(w[0].load_time_s == -1);
    router_tick(r, 1, loads);
    assert_true(router_next_tick(r) == 2);
    loads[0].running = 50;
    (void)ask_for(r, 1.2, 2, 1, 1);
    assert_int_equal(w[0].load.running, 0); /* on its way */
    (void)ask_for(r, 1.25, 3, 1, 1);
    assert_int_equal(w[0].load.running, 5);
    assert_true(w[0].load_time_s == 1);
    router_tick(r, 2, loads);
    (void)ask_for(r, 2.1, 4, 1, 1);
    assert_int_equal(w[0].load.running, 5);
    (void)ask_for(r, 3, 5, 1, 1);
    assert_int_equal(w[0].load.running, 50);
    close_fleet(r, &spec);

    r = open_routers("vllm-dp", &spec, 1, current_reports);
    join(r, 0, ROUTER_SERVE);
    assert_true(isinf(router_next_tick(r)));
    loads[0].running = 9;
    (void)ask_for(r, 1, 1, 1, 1);
    assert_int_equal(router_workers(r, 0)[0].load.running, 9);
    close_fleet(r, &spec);
}

/* Only pools for prefill and decode need reports of aibrix-prefix. */
static void reports_begin_with_pools(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_fleet("aibrix-prefix", &spec);
    assert_true(isinf(router_next_tick(r)));
    router_join(r, 3, 0, &(router_worker_info){ROUTER_DECODE, 100, 1000, 0});
    assert_true(fabs(router_next_tick(r) - 3.05) < 1e-12);
    close_fleet(r, &spec);
}

/* ---- several routers ------------------------------------------------------- */

static void lossy(routers_settings *s)
{
    s->view.kv_loss = 0.5;
}

static void routers_have_their_own_views(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_routers("vllm-kv-aware", &spec, 3, NULL);
    for (uint32_t w = 0; w < WORKERS; w++)
        join(r, w, ROUTER_SERVE);
    for (uint32_t i = 0; i < 6; i++) {
        router_answer a = ask_for(r, 1, i, i, 4);
        assert_int_equal(a.router, i % 3);
        assert_int_equal(a.worker, i / 3); /* each router believes the fleet idle at first */
    }
    assert_int_equal(router_workers(r, 0)[0].in_flight, 1);
    assert_int_equal(router_workers(r, 2)[1].in_flight, 1);
    stored(r, 2, 3, 9, 4); /* KV events reach all of them */
    for (uint32_t i = 6; i < 9; i++)
        assert_int_equal(ask_for(r, 2, i, 9, 4).worker, 3);
    assert_int_equal(router_stats(r).kv_batches, 1);
    close_fleet(r, &spec);

    r = open_routers("production-loadaware", &spec, 2, lossy);
    for (uint32_t w = 0; w < WORKERS; w++)
        join(r, w, ROUTER_SERVE);
    for (uint32_t i = 0; i < 1000; i++)
        stored(r, i, 1, i, 1);
    uint32_t heard[2] = {0};
    uint32_t both = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        bool first = ask_for(r, 1000, 2 * i, i, 1).best_hit_worker == 1;
        bool second = ask_for(r, 1000, 2 * i + 1, i, 1).best_hit_worker == 1;
        heard[0] += first;
        heard[1] += second;
        both += first && second;
    }
    router_view_stats stats = router_stats(r);
    assert_int_equal(stats.kv_batches, 2000);
    assert_int_equal(stats.kv_lost, 2000 - heard[0] - heard[1]);
    assert_true(heard[0] > 400 && heard[0] < 600 && both > 180 && both < 320); /* independent */
    close_fleet(r, &spec);
}

static void a_prompt_in_parts(routers_settings *s)
{
    s->view.knowledge.tokens_per_block = 60; /* 4 blocks of 16 */
    s->view.knowledge.max_blocks = 2;
}

/* Prompts of 11 blocks have two parts of 4 blocks; a third one is not looked up. */
static void approximate_indexes_have_their_own_blocks(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_routers("lmetric", &spec, 1, a_prompt_in_parts);
    join(r, 0, ROUTER_SERVE);
    assert_false(router_wants_kv(r));
    assert_int_equal(ask_for(r, 1, 1, 1, 11).believed_blocks, 0);
    assert_int_equal(ask_for(r, 1, 2, 1, 11).believed_blocks, 8);
    assert_int_equal(ask_for(r, 1, 3, 1, 7).believed_blocks, 4);
    assert_int_equal(ask_for(r, 1, 4, 1, 3).believed_blocks, 0);
    assert_int_equal(ask_for(r, 1, 5, 1, 16).believed_blocks, 8);
    assert_int_equal(router_stats(r).index_blocks, 2);
    close_fleet(r, &spec);
}

/* Own decisions of the last 2 s and events: the longer one counts. */
static void both_indexes_count(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_fleet("vllm-kv-aware", &spec);
    router_answer a = ask_for(r, 1, 1, 1, 6);
    stored(r, 1, a.worker, 1, 2);
    assert_int_equal(ask_for(r, 2.9, 2, 1, 6).believed_blocks, 6);
    stored(r, 3, 3, 2, 3);
    assert_int_equal(ask_for(r, 3, 3, 2, 6).believed_blocks, 3);
    assert_int_equal(ask_for(r, 4.9, 4, 1, 6).best_hit_blocks, 2); /* the last one was at 2.9 */
    close_fleet(r, &spec);
}

/* The engine room looks into the caches itself, where routers hear all events at once. */
static void look_into_caches(void *context, const router_request *request, router_hit *hits)
{
    hits[2] = (router_hit){request->num_blocks - 1, 1, 0, request->num_blocks - 1};
    ++*(uint32_t *)context;
}

static uint32_t num_looks;

static void exact_caches(routers_settings *s)
{
    s->exact_hits = look_into_caches;
    s->exact_context = &num_looks;
}

static void late_caches(routers_settings *s)
{
    exact_caches(s);
    s->view.kv_lag_s = 1;
}

static void caches_take_the_place_of_an_exact_index(void **state)
{
    router_spec spec;
    (void)state;
    num_looks = 0;
    routers *r = open_routers("production-loadaware", &spec, 2, exact_caches);
    for (uint32_t w = 0; w < WORKERS; w++)
        join(r, w, ROUTER_SERVE);
    assert_false(router_wants_kv(r));
    assert_true(router_wants_blocks(r));
    router_answer a = ask_for(r, 1, 1, 5, 10);
    assert_int_equal(a.worker, 2);
    assert_int_equal(a.believed_blocks, 10);
    assert_int_equal(num_looks, 1);
    close_fleet(r, &spec);
    r = open_routers("production-loadaware", &spec, 1, late_caches);
    join(r, 0, ROUTER_SERVE);
    assert_true(router_wants_kv(r));
    assert_int_equal(ask_for(r, 1, 1, 5, 10).believed_blocks, 0);
    close_fleet(r, &spec);
    r = open_routers("lmetric", &spec, 1, exact_caches); /* its own decisions only */
    join(r, 0, ROUTER_SERVE);
    assert_int_equal(ask_for(r, 1, 1, 5, 10).believed_blocks, 0);
    close_fleet(r, &spec);
    assert_int_equal(num_looks, 1);
    r = open_fleet("round-robin", &spec);
    assert_false(router_wants_blocks(r));
    router_request request = {.number = 1, .block_size = 16, .num_prompt_tokens = 99};
    router_choose(r, &request, loads, &a); /* without names */
    assert_int_equal(a.action, ROUTER_ROUTE);
    close_fleet(r, &spec);
}

static void the_oracle_knows_all(routers_settings *s)
{
    s->view.kv_lag_s = 100;
    s->view.kv_loss = 1;
    s->view.knowledge.metrics_every_s = 100;
}

static void nothing_hides_from_the_oracle(void **state)
{
    router_spec spec;
    (void)state;
    routers *r = open_routers("oracle", &spec, 1, the_oracle_knows_all);
    join(r, 0, ROUTER_SERVE);
    join(r, 1, ROUTER_SERVE);
    assert_true(isinf(router_next_tick(r)));
    stored(r, 1, 1, 5, 40);
    assert_int_equal(ask_for(r, 1, 1, 5, 40).worker, 1);
    loads[1].prefill_tokens = 10000;
    assert_int_equal(ask_for(r, 1, 2, 5, 40).worker, 0);
    close_fleet(r, &spec);
}

/* ---- the same again -------------------------------------------------------- */

/* Two runs of each policy decide alike, over joins, leaves, ends and queues; and all counts are
 * zero at the end. */
static void run_once(const char *name, uint64_t seed, uint32_t out[400])
{
    router_spec spec;
    uint64_t random = seed;
    routers *r = open_fleet(name, &spec);
    bool is_open[400] = {false};
    for (uint32_t i = 0; i < 400; i++) {
        uint32_t other = unit_random_below(&random, i + 1);
        router_answer a =
            ask_for(r, i, i, unit_random_below(&random, 12), unit_random_below(&random, 30));
        out[i] = a.worker;
        is_open[i] = a.action == ROUTER_ROUTE;
        if (is_open[i])
            stored(r, i, a.worker, unit_random_below(&random, 12), 20);
        for (uint32_t w = 0; w < WORKERS; w++)
            loads[w].waiting = unit_random_below(&random, 5);
        if (router_next_tick(r) <= i + 1)
            router_tick(r, i + 1, loads);
        router_first_token(r, i + 0.5, other, 16);
        if (unit_random_below(&random, 2) == 0)
            router_done(r, i + 0.5, other, 9, unit_random_below(&random, 4) == 0);
        if (i % 50 == 20) {
            router_leave(r, i + 0.5, i / 50 % WORKERS);
            join(r, i / 50 % WORKERS, ROUTER_SERVE);
        }
    }
    for (uint32_t i = 0; i < 400; i++)
        router_done(r, 400, i, 0, true);
    for (uint32_t w = 0; w < WORKERS; w++) {
        const router_worker *worker = &router_workers(r, 0)[w];
        assert_true(worker->in_flight == 0 && worker->in_prefill == 0 &&
                    worker->prefill_tokens == 0 && worker->in_flight_tokens == 0 &&
                    worker->active_blocks == 0);
    }
    close_fleet(r, &spec);
}

static void the_same_seed_gives_the_same_decisions(void **state)
{
    uint32_t first[400];
    uint32_t second[400];
    (void)state;
    for (uint32_t i = 0; router_name(i) != NULL; i++) {
        run_once(router_name(i), 3, first);
        run_once(router_name(i), 3, second);
        assert_memory_equal(first, second, sizeof first);
    }
}

/* ---- why ------------------------------------------------------------------- */

static void a_decision_is_said_in_a_sentence(void **state)
{
    char text[256];
    router_spec spec;
    uint64_t blocks[12];
    router_answer a;
    (void)state;
    routers *r = open_routers("dynamo-kv", &spec, 1, NULL);
    join(r, 0, ROUTER_SERVE);
    join(r, 1, ROUTER_SERVE);
    stored(r, 1, 1, 5, 10);
    for (uint32_t i = 0; i < 12; i++)
        blocks[i] = 501 + i;
    router_request request = {.number = 1,
                              .blocks = blocks,
                              .num_blocks = 12,
                              .block_size = 16,
                              .num_prompt_tokens = 192,
                              .time_s = 1};
    router_choose(r, &request, loads, &a);
    size_t n = router_explain(r, &request, &a, text, sizeof text);
    assert_string_equal(text, "worker 1: cost 14 (2 prefill blocks, 12 decode blocks, 0 for "
                              "requests); next is worker 0 with 24; longest hit 10 of 12 blocks at "
                              "worker 1");
    assert_int_equal(n, strlen(text));
    assert_int_equal(router_explain(r, &request, &a, text, 9), 8); /* cut off */
    assert_string_equal(text, "worker 1");
    close_fleet(r, &spec);

    r = open_routers("random", &spec, 1, NULL);
    request.number = 2;
    router_choose(r, &request, loads, &a);
    (void)router_explain(r, &request, &a, text, sizeof text);
    assert_string_equal(text, "request waits: no worker is ready");
    close_fleet(r, &spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_counted_until_they_end),
        cmocka_unit_test(workers_join_drain_and_leave),
        cmocka_unit_test(requests_wait_for_a_first_token),
        cmocka_unit_test(prompts_go_to_another_pool),
        cmocka_unit_test(a_lost_prefill_counts_no_more),
        cmocka_unit_test(reports_are_as_old_as_the_last_tick),
        cmocka_unit_test(reports_begin_with_pools),
        cmocka_unit_test(routers_have_their_own_views),
        cmocka_unit_test(approximate_indexes_have_their_own_blocks),
        cmocka_unit_test(both_indexes_count),
        cmocka_unit_test(caches_take_the_place_of_an_exact_index),
        cmocka_unit_test(nothing_hides_from_the_oracle),
        cmocka_unit_test(the_same_seed_gives_the_same_decisions),
        cmocka_unit_test(a_decision_is_said_in_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

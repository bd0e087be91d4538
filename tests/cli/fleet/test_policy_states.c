/* test_policy_states.c - what policies remember from one decision to the next, and what they draw.
 * Every number here was computed by hand from docs/routers.md. */
#include "base/unit.h"
#include "policy_kit.h"

#include <math.h>

enum { DRAWS = 20000 };

static void expect_choice(policy_world *w, uint32_t worker)
{
    assert_int_equal(policy_choose(w).worker, worker);
}

/* ---- round-robin ----------------------------------------------------------- */

static void round_robin_takes_turns(void **state)
{
    (void)state;
    policy_world w = policy_world_of(4);
    policy_open(&w, "round-robin");
    for (uint32_t i = 0; i < 9; i++)
        expect_choice(&w, i % 4); /* 0 1 2 3 0 1 2 3 0 */
    w.workers[1].is_ready = false;
    expect_choice(&w, 2); /* 1 was next */
    expect_choice(&w, 3);
    expect_choice(&w, 0);
    expect_choice(&w, 2);
    w.workers[1].is_ready = true;
    expect_choice(&w, 3);
    expect_choice(&w, 0);
    expect_choice(&w, 1); /* it is back in its place */
    w.workers[2].is_ready = w.workers[3].is_ready = false;
    expect_choice(&w, 0);
    expect_choice(&w, 1);
    w.role = ROUTER_DECODE; /* another pool has its own turn */
    expect_choice(&w, 0);
    w.role = ROUTER_PREFILL;
    expect_choice(&w, 0);
    w.role = ROUTER_SERVE;
    expect_choice(&w, 0);
    policy_close(&w);
}

/* ---- power-of-two ---------------------------------------------------------- */

static void power_of_two_draws_two_workers(void **state)
{
    (void)state;
    policy_world w = policy_world_of(4);
    uint32_t counts[4] = {0};
    policy_open(&w, "power-of-two");
    w.workers[1].in_flight = 1;
    w.workers[2].in_flight = 2;
    w.workers[3].in_flight = 3;
    for (uint32_t i = 0; i < DRAWS; i++)
        counts[policy_choose(&w).worker]++;
    /* The best of two of four: 3/6, 2/6, 1/6, never the most loaded. */
    assert_true(fabs(counts[0] / (double)DRAWS - 1 / 2.0) < 0.02);
    assert_true(fabs(counts[1] / (double)DRAWS - 1 / 3.0) < 0.02);
    assert_true(fabs(counts[2] / (double)DRAWS - 1 / 6.0) < 0.02);
    assert_int_equal(counts[3], 0);
    policy_close(&w);
}

/* ---- session --------------------------------------------------------------- */

static void sessions_move_only_from_a_lost_worker(void **state)
{
    (void)state;
    policy_world w = policy_world_of(8);
    uint32_t counts[8] = {0};
    policy_open(&w, "session");
    for (uint64_t s = 1; s <= 4000; s++) {
        w.request.session = s;
        w.workers[3].is_ready = true;
        uint32_t before = policy_choose(&w).worker;
        assert_int_equal(policy_choose(&w).worker, before);
        w.workers[3].is_ready = false;
        uint32_t after = policy_choose(&w).worker;
        assert_true(before == 3 ? after != 3 : after == before);
        counts[before]++;
    }
    for (uint32_t i = 0; i < 8; i++)
        assert_true(counts[i] > 400 && counts[i] < 600);
    policy_close(&w);
}

/* ---- dynamo-kv ------------------------------------------------------------- */

/* Costs 10, 12 and 14 at temperature 1: weights 1, e^-0.5, e^-1. */
static void dynamo_draws_by_softmax(void **state)
{
    (void)state;
    policy_world w = policy_world_of(3);
    uint32_t counts[3] = {0};
    policy_open(&w, "dynamo-kv:router-temperature=1,prefill-load-scale=0");
    w.workers[1].active_blocks = 2;
    w.workers[2].active_blocks = 4;
    double sum = 1 + exp(-0.5) + exp(-1);
    for (uint32_t i = 0; i < DRAWS; i++)
        counts[policy_choose(&w).worker]++;
    assert_true(fabs(counts[0] / (double)DRAWS - 1 / sum) < 0.02);
    assert_true(fabs(counts[1] / (double)DRAWS - exp(-0.5) / sum) < 0.02);
    assert_true(fabs(counts[2] / (double)DRAWS - exp(-1) / sum) < 0.02);
    policy_close(&w);
}

static double order_of(const char *policy, double arrival_s, int32_t priority, uint32_t hit)
{
    char spec[128];
    policy_world w = policy_world_of(2);
    snprintf(spec, sizeof spec, "dynamo-kv:router-queue-threshold=0,router-queue-policy=%s",
             policy);
    policy_open(&w, spec);
    w.workers[0].prefill_tokens = w.workers[1].prefill_tokens = 1;
    w.request.arrival_s = arrival_s;
    w.request.priority = priority;
    policy_hit(&w, 1, hit);
    router_choice c = policy_choose(&w);
    assert_int_equal(c.action, ROUTER_WAIT);
    policy_close(&w);
    return c.wait_order;
}

static void dynamo_orders_its_queue(void **state)
{
    (void)state;
    assert_true(order_of("fcfs", 5, 0, 0) == -5);
    assert_true(order_of("fcfs", 5, -3, 0) == -2); /* 3 s ahead */
    assert_true(order_of("fcfs", 5, 3, 0) == -5);  /* a larger priority is not behind */
    assert_true(order_of("lcfs", 5, 0, 0) == 5);
    assert_true(order_of("lcfs", 5, -3, 0) == 8);
    assert_true(order_of("wspt", 5, 0, 0) == 1 / 160.0);
    assert_true(order_of("wspt", 5, -1, 5) == 2 / 80.0); /* the best hit counts */
    assert_true(order_of("wspt", 5, 0, 10) == 1);        /* at least one token */
}

static bool is_apart(policy_world *w, const char *spec)
{
    policy_open(w, spec);
    w->role = ROUTER_DECODE;
    router_ask ask = policy_ask(w);
    bool apart = w->spec.policy->disaggregates(w->state, &ask, 0);
    policy_close(w);
    return apart;
}

static void dynamo_prefills_short_prompts_on_the_decode_worker(void **state)
{
    (void)state;
    const char *isl = "dynamo-kv:conditional-disagg=isl-bounding";
    policy_world w = policy_world_of(3);
    w.workers[0].pool = ROUTER_DECODE;
    w.workers[1].pool = w.workers[2].pool = ROUTER_PREFILL;
    assert_true(is_apart(&w, "dynamo-kv"));
    assert_true(is_apart(&w, isl)); /* all of the prompt: 1 >= 0.7 */
    policy_hit(&w, 0, 3);
    assert_true(is_apart(&w, isl)); /* 112 / 160 = 0.7 */
    policy_hit(&w, 0, 4);
    assert_false(is_apart(&w, isl)); /* 96 / 160 */
    assert_true(is_apart(&w, "dynamo-kv:conditional-disagg=isl-bounding,eff-isl-threshold=96"));
    assert_false(is_apart(&w, "dynamo-kv:conditional-disagg=isl-bounding,eff-isl-threshold=97"));
    /* prefill-load: the worker that would be chosen is 2, and busy above 0.5 * 8192. */
    const char *load = "dynamo-kv:conditional-disagg=prefill-load,prefill-busy-threshold=0.5";
    w.workers[1].prefill_tokens = 9000;
    w.workers[2].prefill_tokens = 4096;
    assert_true(is_apart(&w, load));
    w.workers[2].prefill_tokens = 4097;
    assert_false(is_apart(&w, load));
    assert_true(is_apart(&w, "dynamo-kv:conditional-disagg=prefill-load")); /* no threshold */
    assert_false(
        is_apart(&w, "dynamo-kv:conditional-disagg=prefill-load,router-queue-threshold=0.5"));
    policy_hit(&w, 0, 0);
    assert_false(
        is_apart(&w, "dynamo-kv:conditional-disagg=isl-or-load,prefill-busy-threshold=0.5"));
}

/* ---- llm-d ----------------------------------------------------------------- */

static void llm_d_spreads_cold_requests(void **state)
{
    (void)state;
    policy_world w = policy_world_of(3);
    policy_open(&w, "llm-d:prefix=0,queue=0,kv=0,no-hit-lru=1");
    expect_choice(&w, 0); /* never used: 1, 1/2, 0 */
    expect_choice(&w, 1); /* 1 and 2 come first */
    expect_choice(&w, 2);
    expect_choice(&w, 0); /* the oldest */
    policy_hit(&w, 2, 1);
    router_choice c = policy_choose(&w); /* warm: 0.5 for all, and no turn */
    assert_true(c.score == 0.5);
    policy_hit(&w, 2, 0);
    expect_choice(&w, 1);
    expect_choice(&w, 2);
    policy_tell(&w, ROUTER_EVENT_JOINED, 2, (router_event){0});
    expect_choice(&w, 2); /* as if never used */
    expect_choice(&w, 0);
    policy_close(&w);
}

static void llm_d_keeps_sessions(void **state)
{
    (void)state;
    policy_world w = policy_world_of(2);
    policy_open(&w, "llm-d:prefix=0,queue=2,kv=0,session=1");
    w.workers[0].load.waiting = 1;
    w.request.session = 7;
    expect_choice(&w, 1);
    w.workers[0].load.waiting = 0;
    router_choice c = policy_choose(&w); /* 2 against 2 + 1 */
    assert_int_equal(c.worker, 1);
    assert_true(c.score == 3);
    w.workers[1].load.waiting = 1;
    expect_choice(&w, 0); /* 2 against 1: the session moves */
    w.workers[1].load.waiting = 0;
    expect_choice(&w, 0);
    policy_close(&w);
}

/* Scores 1 and 3. */
static void llm_d_draws_by_score(void **state)
{
    (void)state;
    policy_world w = policy_world_of(2);
    uint32_t first = 0;
    policy_open(&w, "llm-d:prefix=4,queue=0,kv=0,picker=weighted-random");
    w.request.num_blocks = 4;
    policy_hit(&w, 0, 1);
    policy_hit(&w, 1, 3);
    for (uint32_t i = 0; i < DRAWS; i++)
        first += policy_choose(&w).worker == 0;
    assert_true(fabs(first / (double)DRAWS - 0.25) < 0.02);
    policy_close(&w);
}

static void llm_d_explores_beside_its_filter(void **state)
{
    (void)state;
    policy_world w = policy_world_of(2);
    uint32_t others = 0;
    policy_open(&w, "llm-d:prefix=0,queue=0,kv=1,affinity-threshold=0.8,exploration=0.25");
    policy_hit(&w, 0, 8);
    w.workers[0].load.kv_usage = 0.5; /* without the filter 1 is better */
    for (uint32_t i = 0; i < DRAWS; i++)
        others += policy_choose(&w).worker == 1;
    assert_true(fabs(others / (double)DRAWS - 0.25) < 0.02);
    policy_close(&w);
}

static void llm_d_decides_on_prefill_workers(void **state)
{
    (void)state;
    policy_world w = policy_world_of(1);
    assert_true(is_apart(&w, "llm-d"));
    assert_false(is_apart(&w, "llm-d:non-cached-tokens=0"));
    assert_true(is_apart(&w, "llm-d:non-cached-tokens=160"));
    assert_false(is_apart(&w, "llm-d:non-cached-tokens=161"));
    policy_hit(&w, 0, 5);
    assert_true(is_apart(&w, "llm-d:non-cached-tokens=80"));
    assert_false(is_apart(&w, "llm-d:non-cached-tokens=81"));
}

/* ---- vllm-dp --------------------------------------------------------------- */

static void vllm_dp_counts_what_it_sent_since_the_report(void **state)
{
    (void)state;
    policy_world w = policy_world_of(2);
    policy_open(&w, "vllm-dp");
    w.num_routers = 2;
    w.workers[0].load.running = 10;
    expect_choice(&w, 1); /* 10 against 0 */
    expect_choice(&w, 1); /* 10 against 4 * 2 */
    expect_choice(&w, 0); /* 10 against 16 */
    router_choice c = policy_choose(&w);
    assert_int_equal(c.worker, 1); /* 18 against 16 */
    assert_true(c.score == 16);
    policy_tell(&w, ROUTER_EVENT_METRICS, 1, (router_event){0});
    expect_choice(&w, 1); /* 18 against 0 */
    policy_tell(&w, ROUTER_EVENT_METRICS, 0, (router_event){0});
    w.workers[0].load.running = 7;
    expect_choice(&w, 0); /* 7 against 8 */
    policy_close(&w);
}

/* ---- smetric --------------------------------------------------------------- */

static void smetric_counts_pending_work(void **state)
{
    (void)state;
    policy_world w = policy_world_of(2);
    policy_open(&w, "smetric");
    w.role = ROUTER_PREFILL;
    router_choice c = policy_choose(&w); /* both 160: the first in turn */
    assert_int_equal(c.worker, 0);
    assert_true(c.work == 160);
    policy_tell(&w, ROUTER_EVENT_ROUTED, 0, (router_event){.work = c.work});
    expect_choice(&w, 1); /* 320 against 160 */
    policy_hit(&w, 0, 10);
    c = policy_choose(&w); /* 160 + 0 against 160: the first in turn, which is 0 */
    assert_int_equal(c.worker, 0);
    assert_true(c.score == 160 && c.work == 0);
    expect_choice(&w, 1); /* in turn: 1 is asked first */
    policy_tell(&w, ROUTER_EVENT_ABORTED, 0, (router_event){.work = 160});
    expect_choice(&w, 0); /* 0 against 160 */
    expect_choice(&w, 0);
    policy_close(&w);
}

/* 80 of 160 tokens are left: 80 + 80 (160 - 40) / 64. */
static void smetric_counts_attention(void **state)
{
    (void)state;
    policy_world w = policy_world_of(1);
    policy_open(&w, "smetric:attention-crossover-tokens=64");
    policy_hit(&w, 0, 5);
    assert_true(policy_choose(&w).work == 230);
    policy_close(&w);
}

/* 8 first tokens after 1 s each: 10, 20 ... 80 tokens a second. The 0.9 quantile is sample
 * round(7 * 0.9) = 6: 70. */
static void smetric_learns_the_rate(void **state)
{
    (void)state;
    policy_world w = policy_world_of(2);
    policy_open(&w, "smetric:ttft-slo-secs=1,ttft-slo-secs-per-1k-tokens=0,slack=1");
    w.role = ROUTER_PREFILL;
    w.request.num_history_tokens = 100;
    policy_hit(&w, 0, 5); /* 80 tokens left: 80/70 s are too late */
    for (uint32_t i = 1; i <= 7; i++) {
        policy_tell(&w, ROUTER_EVENT_ROUTED, 0, (router_event){.work = 10 * i});
        policy_tell(&w, ROUTER_EVENT_FIRST_TOKEN, 0,
                    (router_event){.work = 10 * i, .routed_s = 5, .time_s = 6});
    }
    expect_choice(&w, 0); /* seven samples are not enough: it is in time */
    w.workers[1].in_flight = 9;
    policy_tell(&w, ROUTER_EVENT_ROUTED, 1, (router_event){.work = -100});
    policy_tell(&w, ROUTER_EVENT_FIRST_TOKEN, 0,
                (router_event){.work = 80, .routed_s = 5, .time_s = 6});
    policy_tell(&w, ROUTER_EVENT_ROUTED, 0, (router_event){.work = 80});
    expect_choice(&w, 1); /* 0 is late, 1 has no rate and is in time, and has less work */
    policy_tell(&w, ROUTER_EVENT_JOINED, 0, (router_event){0});
    expect_choice(&w, 0); /* a new engine: nothing is known */
    policy_close(&w);
}

/* ---- preble ---------------------------------------------------------------- */

/* A prompt of 160 new tokens takes 16 ms, 45 tokens 45 * 11.16 ms = 502.2 ms. */
static void preble_counts_the_window(void **state)
{
    (void)state;
    policy_world w = policy_world_of(2);
    policy_open(&w, "preble:window-s=100");
    router_choice c = policy_choose(&w);
    assert_int_equal(c.worker, 0);
    assert_true(fabs(c.work - 0.5182) < 1e-12);
    policy_tell(&w, ROUTER_EVENT_ROUTED, 0,
                (router_event){.work = c.work, .time_s = 10, .num_prompt_tokens = 160});
    expect_choice(&w, 1);
    policy_tell(&w, ROUTER_EVENT_ROUTED, 1,
                (router_event){.work = 0.6, .time_s = 20, .num_prompt_tokens = 160});
    c = policy_choose(&w);
    assert_int_equal(c.worker, 0);
    assert_true(fabs(c.score - 0.5342) < 1e-12);
    policy_hit(&w, 0, 6);
    policy_hit(&w, 1, 6);
    policy_tell(&w, ROUTER_EVENT_ROUTED, 0, (router_event){.work = 0, .time_s = 21});
    expect_choice(&w, 1); /* exploit: one request against two */
    w.request.time_s = 110;
    expect_choice(&w, 1); /* both at 10 and 110: not older than the window */
    w.request.time_s = 110.5;
    expect_choice(&w, 0); /* one against one */
    w.request.time_s = 200;
    policy_hit(&w, 0, 0);
    policy_hit(&w, 1, 0);
    c = policy_choose(&w);
    assert_true(fabs(c.score - 0.016) < 1e-12); /* nothing in the window */
    policy_close(&w);
}

/* Half of the window's tokens were found; 10 new blocks evict 4: 0.5 * 64 * 0.1 ms = 3.2 ms. */
static void preble_pays_for_evictions(void **state)
{
    (void)state;
    policy_world w = policy_world_of(1);
    policy_open(&w, "preble");
    policy_tell(
        &w, ROUTER_EVENT_ROUTED, 0,
        (router_event){.work = 0, .time_s = 9, .num_prompt_tokens = 200, .num_cached_tokens = 100});
    w.workers[0].known_blocks = 90;
    assert_true(fabs(policy_choose(&w).terms[1]) < 1e-12); /* 90 + 10 fit */
    w.workers[0].known_blocks = 94;
    assert_true(fabs(policy_choose(&w).terms[1] - 0.0032) < 1e-12);
    w.workers[0].known_blocks = 500;
    assert_true(fabs(policy_choose(&w).terms[1] - 0.008) < 1e-12); /* at most its own blocks */
    policy_close(&w);
}

/* ---- conductor ------------------------------------------------------------- */

/* Before any prefill one takes 0.001 * 512^1.5 + 5 = 16.585 ms; then the mean of 8 ms and 16 ms. */
static void conductor_learns_the_time_of_a_prefill(void **state)
{
    (void)state;
    policy_world w = policy_world_of(1);
    policy_open(&w, "conductor");
    w.workers[0].in_flight = 2;
    router_choice c = policy_choose(&w);
    assert_true(fabs(c.terms[0] - 2 * (0.001 * pow(512, 1.5) + 5)) < 1e-9);
    policy_tell(&w, ROUTER_EVENT_FIRST_TOKEN, 0, (router_event){.num_prompt_tokens = 160});
    policy_tell(&w, ROUTER_EVENT_FIRST_TOKEN, 0,
                (router_event){.num_prompt_tokens = 80, .num_cached_tokens = 0});
    c = policy_choose(&w);
    assert_true(fabs(c.terms[0] - 24) < 1e-9);
    policy_tell(&w, ROUTER_EVENT_JOINED, 0, (router_event){0});
    c = policy_choose(&w);
    assert_true(fabs(c.terms[0] - 2 * (0.001 * pow(512, 1.5) + 5)) < 1e-9);
    policy_close(&w);
}

/* ---- runner-up and ties ---------------------------------------------------- */

static void choices_name_the_next_best(void **state)
{
    (void)state;
    policy_world w = policy_world_of(3);
    policy_open(&w, "production-loadaware");
    w.workers[0].in_flight = 4;
    w.workers[1].in_flight = 2;
    w.workers[2].in_flight = 3;
    router_choice c = policy_choose(&w);
    assert_int_equal(c.worker, 1);
    assert_int_equal(c.runner_up, 2);
    assert_int_equal(c.num_ties, 0);
    assert_true(c.score > c.runner_up_score);
    w.workers[2].in_flight = 2;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 100; i++) {
        c = policy_choose(&w);
        assert_int_equal(c.num_ties, 1);
        assert_int_equal(c.runner_up, c.worker == 1 ? 2 : 1);
        assert_true(c.runner_up_score == c.score);
        seen |= 1u << c.worker;
    }
    assert_int_equal(seen, 6);
    policy_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_robin_takes_turns),
        cmocka_unit_test(power_of_two_draws_two_workers),
        cmocka_unit_test(sessions_move_only_from_a_lost_worker),
        cmocka_unit_test(dynamo_draws_by_softmax),
        cmocka_unit_test(dynamo_orders_its_queue),
        cmocka_unit_test(dynamo_prefills_short_prompts_on_the_decode_worker),
        cmocka_unit_test(llm_d_spreads_cold_requests),
        cmocka_unit_test(llm_d_keeps_sessions),
        cmocka_unit_test(llm_d_draws_by_score),
        cmocka_unit_test(llm_d_explores_beside_its_filter),
        cmocka_unit_test(llm_d_decides_on_prefill_workers),
        cmocka_unit_test(vllm_dp_counts_what_it_sent_since_the_report),
        cmocka_unit_test(smetric_counts_pending_work),
        cmocka_unit_test(smetric_counts_attention),
        cmocka_unit_test(smetric_learns_the_rate),
        cmocka_unit_test(preble_counts_the_window),
        cmocka_unit_test(preble_pays_for_evictions),
        cmocka_unit_test(conductor_learns_the_time_of_a_prefill),
        cmocka_unit_test(choices_name_the_next_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cli/fleet/test_scaling.c - policies, windows, cooldowns and bills, by hand. */
#include "base/unit.h"
#include "fleet/scaling.h"
#include "output/failure.h"

#include <math.h>

static scaling_now with(uint32_t ready, uint32_t starting)
{
    return (scaling_now){
        .ready = ready, .starting = starting, .metric = NAN, .ttft_s = NAN, .tpot_s = NAN};
}

/* ---- policies ----------------------------------------------------------------------- */

static void the_queue_is_divided_among_workers(void **state)
{
    (void)state;
    static const struct {
        uint64_t queued;
        uint64_t running;
        uint32_t workers;
    } cases[] = {{0, 0, 0}, {0, 1, 1}, {2, 8, 1}, {3, 8, 2}, {100, 0, 10}, {101, 0, 11}};
    scaling_queue queue = {.requests = 10};
    for (size_t i = 0; i < COUNT(cases); i++) {
        scaling_now now = with(4, 0);
        now.queued = cases[i].queued;
        now.running = cases[i].running;
        assert_int_equal(scaling_by_queue(&queue, &now), cases[i].workers);
    }
    scaling_queue third = {.requests = 0.1}; /* 3 / 0.1 is a little more than 30 */
    scaling_now now = with(4, 0);
    now.queued = 3;
    assert_int_equal(scaling_by_queue(&third, &now), 30);
}

static void latencies_above_their_limits_add_workers(void **state)
{
    (void)state;
    static const struct {
        double ttft_s;
        double tpot_s;
        uint64_t queued;
        uint64_t running;
        uint32_t starting;
        uint32_t workers;                  /* of 4 ready */
    } cases[] = {{1.9, 0.04, 5, 5, 0, 4},  /* within the limits, and something waits */
                 {2.0, 0.05, 0, 5, 0, 4},  /* just at the limits */
                 {2.1, 0.01, 0, 5, 0, 5},  /* 4 * 1.05 */
                 {0.1, 0.075, 0, 5, 0, 6}, /* 4 * 1.5: the worse of the two */
                 {9.0, 0.01, 0, 5, 0, 8},  /* at most twice as many */
                 {9.0, 0.01, 0, 5, 2, 12}, {0.9, 0.02, 0, 5, 0, 3}, /* all below half */
                 {0.9, 0.03, 0, 5, 0, 4},                           /* one is not */
                 {0.9, 0.02, 1, 5, 0, 4},  {0.9, 0.02, 0, 5, 1, 5},
                 {NAN, NAN, 0, 5, 0, 4}, /* nothing is known */
                 {NAN, NAN, 0, 0, 0, 3}, /* nothing to do */
                 {NAN, 0.06, 0, 5, 0, 5}};
    scaling_slo slo = {.ttft_s = 2, .tpot_s = 0.05, .low = 0.5};
    for (size_t i = 0; i < COUNT(cases); i++) {
        scaling_now now = with(4, cases[i].starting);
        now.ttft_s = cases[i].ttft_s;
        now.tpot_s = cases[i].tpot_s;
        now.queued = cases[i].queued;
        now.running = cases[i].running;
        assert_int_equal(scaling_by_slo(&slo, &now), cases[i].workers);
    }
    scaling_slo ttft_only = {.ttft_s = 2, .low = 0.5};
    scaling_now now = with(0, 0);
    now.ttft_s = 0.1;
    assert_int_equal(scaling_by_slo(&ttft_only, &now), 0);
}

static void hpa_is_the_sum_over_the_target(void **state)
{
    (void)state;
    static const struct {
        uint32_t ready;
        uint32_t starting;
        double metric;
        uint32_t workers;
    } cases[] = {
        {3, 0, 180, 5},  /* 60 each, 1.5 of 40: 4.5 */
        {4, 0, 176, 4},  /* 44 each: within a tenth */
        {4, 0, 177, 5},  /* a little more */
        {4, 0, 144, 4},  /* 36 each: within a tenth */
        {4, 0, 119, 3},  /* 29.75 each */
        {2, 2, 120, 4},  /* 60 each, but 30 with the two that start: not fewer than there are */
        {2, 1, 120, 3},  /* exactly the target with the one that starts */
        {2, 2, 400, 10}, /* still too little */
        {2, 4, 40, 1},   /* would shrink: only ready workers are counted */
        {0, 2, 100, 2},  {4, 0, NAN, 4}, {4, 0, 0, 0}};
    scaling_hpa hpa = {.target = 40, .tolerance = 0.1};
    for (size_t i = 0; i < COUNT(cases); i++) {
        scaling_now now = with(cases[i].ready, cases[i].starting);
        now.metric = cases[i].metric;
        assert_int_equal(scaling_by_hpa(&hpa, &now), cases[i].workers);
    }
}

static void schedules_repeat(void **state)
{
    (void)state;
    static const scaling_row rows[] = {{100, 8}, {200, 2}};
    scaling_schedule once = {rows, 2, 0};
    scaling_schedule daily = {rows, 2, 1000};
    static const struct {
        double at_s;
        uint32_t once;
        uint32_t daily;
    } cases[] = {{0, 5, 2}, {99.9, 5, 2}, {100, 8, 8}, {199, 8, 8}, {200, 2, 2}, {1150, 2, 8}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        scaling_now now = with(4, 1);
        now.now_s = cases[i].at_s;
        assert_int_equal(scaling_by_schedule(&once, &now), cases[i].once);
        assert_int_equal(scaling_by_schedule(&daily, &now), cases[i].daily);
    }
}

/* ---- the decision ------------------------------------------------------------------ */

/* What the policy says is the queue's length. */
static uint32_t as_queued(const void *nothing, const scaling_now *now)
{
    (void)nothing;
    return (uint32_t)now->queued;
}

static const scaling_config plain = {
    .policy = as_queued, .min_workers = 1, .max_workers = 10, .interval_s = 10};

typedef struct decision {
    uint64_t recommended;
    uint32_t wanted;
} decision;

/* Every 10 s; workers that are wanted are ready at once. */
static void expect_series(const scaling_config *config, uint32_t workers, const decision *series,
                          size_t num)
{
    scaling s;
    assert_int_equal(scaling_begin(&s, config, 0), 0);
    for (size_t i = 0; i < num; i++) {
        scaling_now now = with(workers, 0);
        now.now_s = 10.0 * (double)i;
        now.queued = series[i].recommended;
        workers = scaling_decide(&s, &now);
        if (workers != series[i].wanted)
            fail_msg("decision %zu: %u workers, not %u", i, workers, series[i].wanted);
    }
}

static void without_windows_the_policy_decides(void **state)
{
    (void)state;
    static const decision series[] = {{4, 4}, {12, 10}, {0, 1}, {10, 10}, {1, 1}};
    expect_series(&plain, 2, series, COUNT(series));
}

/* Down only to the most of the last 30 s, their first moment included; up at once. */
static void windows_stabilise(void **state)
{
    (void)state;
    scaling_config config = plain;
    config.down_window_s = 30;
    static const decision down[] = {{8, 8}, {3, 8}, {5, 8}, {2, 8}, {2, 5}, {2, 5}, {2, 2}, {9, 9}};
    expect_series(&config, 2, down, COUNT(down));
    config.down_window_s = 0;
    config.up_window_s = 20; /* up only to the least of the last 20 s */
    static const decision up[] = {{2, 2}, {8, 2}, {6, 2}, {7, 6}, {9, 6}, {9, 7}, {3, 3}};
    expect_series(&config, 2, up, COUNT(up));
}

static void cooldowns_hold_the_number(void **state)
{
    (void)state;
    scaling_config config = plain;
    config.min_workers = 2;
    config.up_cooldown_s = 20;
    config.down_cooldown_s = 40;
    /* changes at 0, 20, 60 and 80 s */
    static const decision series[] = {{4, 4}, {6, 4}, {6, 6}, {3, 6}, {3, 6},
                                      {3, 6}, {3, 3}, {9, 3}, {9, 9}, {1, 9}};
    expect_series(&config, 3, series, COUNT(series));
    scaling s;
    assert_int_equal(scaling_begin(&s, &config, 0), 0);
    scaling_now now = with(3, 0);
    now.queued = 5;
    assert_int_equal(scaling_decide(&s, &now), 5);
    now = with(1, 0); /* four crashed: the minimum holds in spite of the cooldown */
    now.queued = 5;
    now.now_s = 10;
    assert_int_equal(scaling_decide(&s, &now), 2);
}

static void full_windows_forget_the_oldest(void **state)
{
    (void)state;
    scaling_config config = plain;
    config.down_window_s = 10.0 * (SCALING_MAX_WINDOW - 1);
    scaling s;
    assert_int_equal(scaling_begin(&s, &config, 0), 0);
    scaling_now now = with(9, 0);
    for (int i = 0; i <= SCALING_MAX_WINDOW; i++) {
        now.now_s = 10.0 * i;
        now.queued = i == 0 ? 9 : 3;
        uint32_t wanted = scaling_decide(&s, &now);
        assert_int_equal(wanted, i < SCALING_MAX_WINDOW ? 9 : 3);
    }
}

/* ---- the bill, and refusals -------------------------------------------------------- */

static void gpu_hours_are_paid(void **state)
{
    (void)state;
    scaling_config config = plain;
    config.gpus_per_worker = 4;
    config.price_per_gpu_hour = 2.5;
    config.startup_s = 90;
    scaling s;
    assert_int_equal(scaling_begin(&s, &config, 100), 0);
    assert_true(scaling_gpu_hours(&s, 5000) == 0);
    scaling_pay(&s, 100, 2);
    scaling_pay(&s, 1900, 3); /* half an hour of 2 */
    scaling_pay(&s, 1900, 5);
    assert_true(fabs(scaling_gpu_hours(&s, 1900) - 4) < 1e-12);
    assert_true(fabs(scaling_gpu_hours(&s, 2620) - 8) < 1e-12); /* a fifth of an hour of 5 */
    assert_true(fabs(scaling_cost(&s, 2620) - 20) < 1e-12);
    assert_true(scaling_ready_s(&s, 10) == 100);
}

static void invalid_values_are_named(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        double value;
        const char *message;
    } times[] = {
        {offsetof(scaling_config, up_window_s), -1,
         "up_window_s is -1 (expected 0 or more, finite)"},
        {offsetof(scaling_config, down_window_s), 10231,
         "the longest window is 10231 s (expected at most 1023 times interval_s: 10230 s)"},
        {offsetof(scaling_config, down_cooldown_s), HUGE_VAL,
         "down_cooldown_s is inf (expected 0 or more, finite)"},
        {offsetof(scaling_config, startup_s), -0.5,
         "startup_s is -0.5 (expected 0 or more, finite)"},
        {offsetof(scaling_config, interval_s), 0, "interval_s is 0 (expected above 0, finite)"}};
    scaling s;
    for (size_t i = 0; i < COUNT(times); i++) {
        scaling_config config = plain;
        memcpy((char *)&config + times[i].offset, &times[i].value, sizeof(double));
        assert_int_equal(scaling_begin(&s, &config, 0), -1);
        assert_string_equal(failure(), times[i].message);
    }
    scaling_config config = plain;
    config.min_workers = 11;
    assert_int_equal(scaling_begin(&s, &config, 0), -1);
    assert_string_equal(failure(),
                        "min_workers is 11 and max_workers is 10 (expected max_workers of "
                        "at least 1 and of at least min_workers)");
    config = plain;
    config.policy = NULL;
    assert_int_equal(scaling_begin(&s, &config, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_is_divided_among_workers),
        cmocka_unit_test(latencies_above_their_limits_add_workers),
        cmocka_unit_test(hpa_is_the_sum_over_the_target),
        cmocka_unit_test(schedules_repeat),
        cmocka_unit_test(without_windows_the_policy_decides),
        cmocka_unit_test(windows_stabilise),
        cmocka_unit_test(cooldowns_hold_the_number),
        cmocka_unit_test(full_windows_forget_the_oldest),
        cmocka_unit_test(gpu_hours_are_paid),
        cmocka_unit_test(invalid_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cli/fleet/test_failures.c - failures and autoscaling as text, what holds when, and the series. */
#include "base/unit.h"
#include "fleet/failures.h"
#include "fleet/scale_spec.h"
#include "fleet/series.h"
#include "output/failure.h"

#include <math.h>

/* ---- failures ------------------------------------------------------------------------ */

static void failures_are_read_and_sorted(void **state)
{
    (void)state;
    failures f = {0};
    assert_int_equal(failures_add(&f, "slow:worker=1,from=60,to=90,factor=4", 4), 0);
    assert_int_equal(failures_add(&f, "crash:worker=3,at=20,restart=60", 4), 0);
    assert_int_equal(failures_add(&f, "crash:at=20,worker=0;gap:worker=2,from=0,to=1", 4), 0);
    static const struct {
        failure_kind kind;
        uint32_t worker;
        double from_s;
        double to_s;
    } wanted[] = {{FAILURE_GAP, 2, 0, 1},
                  {FAILURE_CRASH, 3, 20, 80},
                  {FAILURE_CRASH, 0, 20, HUGE_VAL},
                  {FAILURE_SLOW, 1, 60, 90}};
    assert_int_equal(f.num_events, COUNT(wanted));
    for (size_t i = 0; i < COUNT(wanted); i++) {
        assert_int_equal(f.events[i].kind, wanted[i].kind);
        assert_int_equal(f.events[i].worker, wanted[i].worker);
        assert_true(f.events[i].from_s == wanted[i].from_s);
        assert_true(f.events[i].to_s == wanted[i].to_s);
    }
    failures_free(&f);
}

static void invalid_failures_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *said;
    } cases[] = {
        {"fire:worker=1", "invalid failure \"fire:worker=1\" (expected crash, slow, partition, gap "
                          "or tier)"},
        {"crash:worker=4,at=1", "invalid value \"4\" for worker of crash (expected a whole number "
                                "from 0 to 3)"},
        {"crash:worker=0.5,at=1", "invalid value \"0.5\" for worker of crash (expected a whole "
                                  "number from 0 to 3)"},
        {"crash:worker=1,at=-1", "invalid value \"-1\" for at of crash (expected 0 to 1000000000)"},
        {"crash:worker=1,at=nan", "invalid value \"nan\" for at of crash (expected 0 to "
                                  "1000000000)"},
        {"crash:worker=1,at=", "invalid value \"\" for at of crash (expected 0 to 1000000000)"},
        {"crash:worker=1", "crash needs at=VALUE (0 to 1000000000)"},
        {"crash:worker=1,worker=2,at=1", "worker of crash is given twice"},
        {"crash:worker=1,at=1,factor=2", "crash has no field \"factor\" (expected worker, at, "
                                         "restart)"},
        {"slow:worker=1,from=1,to=2,factor=0.5", "invalid value \"0.5\" for factor of slow "
                                                 "(expected 1 to 1000)"},
        {"tier:from=1,to=2,lose=2", "invalid value \"2\" for lose of tier (expected a whole number "
                                    "from 0 to 1)"},
        {"tier:worker=1,from=1", "tier has no field \"worker\" (expected from, to, lose)"},
        {"tier:from=3,to=2", "invalid value \"2\" for to of tier (expected more than from: 3)"},
        {"gap:worker=1,from=5,to=5", "invalid value \"5\" for to of gap (expected more than from: "
                                     "5)"},
    };
    failures f = {0};
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(failures_add(&f, cases[i].text, 4), -1);
        assert_string_equal(failure(), cases[i].said);
    }
    assert_int_equal(f.num_events, 0);
    failures_free(&f);
}

static void states_hold_from_their_first_to_before_their_last_second(void **state)
{
    (void)state;
    failures f = {0};
    failures_add(&f, "slow:worker=1,from=10,to=30,factor=4", 2);
    failures_add(&f, "slow:worker=1,from=20,to=25,factor=2", 2);
    failures_add(&f, "partition:worker=1,from=12,to=14", 2);
    failures_add(&f, "gap:worker=1,from=14,to=16", 2);
    static const struct {
        double now_s;
        double slowness;
        bool is_mute;
        bool is_hidden;
        double next_s;
    } cases[] = {{9.999, 1, false, false, 10}, {10, 4, false, false, 12},
                 {12, 4, true, true, 14},      {14, 4, true, false, 16},
                 {16, 4, false, false, 20},    {20, 4, false, false, 25},
                 {25, 4, false, false, 30},    {30, 1, false, false, HUGE_VAL}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        failure_state s = failures_now(&f, 1, cases[i].now_s);
        assert_true(s.slowness == cases[i].slowness);
        assert_int_equal(s.is_mute, cases[i].is_mute);
        assert_int_equal(s.is_hidden, cases[i].is_hidden);
        assert_true(failures_next_s(&f, cases[i].now_s) == cases[i].next_s);
        assert_true(failures_now(&f, 0, cases[i].now_s).slowness == 1);
    }
    assert_true(failures_lose_events(&f));
    failures_free(&f);
    failures_add(&f, "crash:worker=1,at=10,restart=5", 2);
    assert_false(failures_lose_events(&f));
    assert_true(failures_next_s(&f, 9) == 10);
    assert_true(failures_next_s(&f, 10) == HUGE_VAL); /* ready: the fleet keeps that time */
    failures_free(&f);
    failures_add(&f, "tier:from=10,to=30;tier:from=20,to=25,lose=1", 2);
    assert_false(failures_lose_events(&f));
    assert_true(failures_next_s(&f, 25) == 30);
    assert_false(failures_tier_now(&f, 9.999).is_down);
    assert_true(failures_tier_now(&f, 10).is_down && !failures_tier_now(&f, 10).loses);
    assert_true(failures_tier_now(&f, 20).is_down && failures_tier_now(&f, 20).loses);
    assert_true(failures_tier_now(&f, 25).is_down && !failures_tier_now(&f, 25).loses);
    assert_false(failures_tier_now(&f, 30).is_down);
    failures_free(&f);
}

/* Of an exponential distribution: the mean, and e^-1 of all beyond it. */
static void random_crashes_have_their_mean(void **state)
{
    (void)state;
    enum { NUM_DRAWS = 40000 };
    const failures f = {.mtbf_s = 100, .seed = 1};
    const failures other = {.mtbf_s = 100, .seed = 2};
    double sum = 0;
    uint32_t beyond = 0;
    for (uint32_t i = 0; i < NUM_DRAWS; i++) {
        double after_s = failures_draw_s(&f, i % 16, i / 16, 50) - 50;
        assert_true(after_s > 0);
        sum += after_s;
        beyond += after_s > 100;
    }
    assert_true(fabs(sum / NUM_DRAWS - 100) < 2);
    assert_true(fabs((double)beyond / NUM_DRAWS - exp(-1)) < 0.01);
    assert_true(failures_draw_s(&f, 3, 4, 0) == failures_draw_s(&f, 3, 4, 0));
    assert_true(failures_draw_s(&f, 3, 4, 0) != failures_draw_s(&f, 4, 3, 0));
    assert_true(failures_draw_s(&f, 3, 4, 0) != failures_draw_s(&other, 3, 4, 0));
    assert_true(failures_draw_s(&(failures){0}, 3, 4, 0) == HUGE_VAL);
}

/* ---- autoscaling as text ---------------------------------------------------------------- */

static void policies_are_read(void **state)
{
    (void)state;
    scale_spec s;
    assert_int_equal(scale_spec_read("queue:requests=16,max=8", 100, &s), 0);
    assert_true(s.config.policy == scaling_by_queue && s.of.queue.requests == 16);
    assert_int_equal(s.config.min_workers, 1);
    assert_int_equal(s.config.max_workers, 8);
    assert_true(s.config.startup_s == 60 && s.config.interval_s == 15);
    assert_true(s.config.down_window_s == 300 && !s.hands_over);
    assert_int_equal(
        scale_spec_read("slo:tpot=0.05,low=0.4,percentile=0.9,min=2,max=2,hand-over=1", 2, &s), 0);
    assert_true(s.of.slo.ttft_s == 0 && s.of.slo.tpot_s == 0.05 && s.of.slo.low == 0.4);
    assert_true(s.percentile == 0.9 && s.hands_over);
    assert_int_equal(scale_spec_read("hpa:target=4,max=3", 100, &s), 0);
    assert_true(s.of.hpa.target == 4 && s.of.hpa.tolerance == 0.1);
    assert_int_equal(scale_spec_read("schedule:0=2,max=9,28800=8.0,period=86400", 100, &s), 0);
    assert_int_equal(s.of.schedule.num_rows, 2);
    assert_true(s.rows[1].at_s == 28800 && s.rows[1].workers == 8);
    assert_true(s.of.schedule.period_s == 86400 && s.config.max_workers == 9);
}

static void invalid_policies_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *said;
    } cases[] = {
        {"magic:max=3", "invalid policy \"magic:max=3\" (expected queue, slo, hpa or schedule)"},
        {"queue:max=3", "queue needs requests=VALUE (0.001 to 1000000000)"},
        {"queue:requests=1", "queue needs max=VALUE (1 to 100)"},
        {"queue:requests=1,max=101", "invalid value \"101\" for max of queue (expected a whole "
                                     "number from 1 to 100)"},
        {"queue:requests=1,min=4,max=3", "invalid value \"4\" for min (expected 1 to 3, which is "
                                         "max)"},
        {"queue:requests=1,max=3,interval=0.1", "invalid value \"300\" for down-window (expected "
                                                "at most 102.3, which is 1023 times interval)"},
        {"queue:requests=1,max=3,up-window=20000",
         "invalid value \"20000\" for up-window (expected "
         "at most 15345, which is 1023 times interval)"},
        {"slo:max=3", "slo has no limit (expected ttft=S, tpot=S or both, above 0)"},
        {"schedule:max=3", "schedule has no row (expected SECONDS=WORKERS)"},
        {"schedule:0=2,0=3,max=3", "invalid row \"0=3\" of schedule (expected a time after 0)"},
        {"schedule:0=0,max=3", "invalid row \"0=0\" of schedule (expected SECONDS=WORKERS, with 0 "
                               "to 1e9 and a whole number from 1 to 100)"},
        {"schedule:0=2x,max=3", "invalid row \"0=2x\" of schedule (expected SECONDS=WORKERS, with "
                                "0 to 1e9 and a whole number from 1 to 100)"},
    };
    scale_spec s;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(scale_spec_read(cases[i].text, 100, &s), -1);
        assert_string_equal(failure(), cases[i].said);
    }
}

/* ---- the series --------------------------------------------------------------------------- */

static void recovery_is_the_first_window_that_is_as_before(void **state)
{
    (void)state;
    series s = {0};
    for (uint32_t i = 0; i < 200; i++) { /* 0.1 s; from 100 to 129 s 1 s; then 0.12 s */
        double ttft_s = i < 100 ? 0.1 : i < 130 ? 1 : 0.12;
        series_first_token(&s, i + 0.5, ttft_s);
        series_end(&s, i + 0.999, 3);
    }
    assert_true(isnan(series_ttft_before(&s, 0.9)));
    assert_true(fabs(series_ttft_before(&s, 100.2) - 0.1) < 1e-12);
    assert_true(fabs(series_ttft_before(&s, 101) - (59 * 0.1 + 1) / 60) < 1e-12);
    /* a window with one second of 1 s has a mean of 0.208: so it begins at 130 */
    assert_true(series_ttft_back_s(&s, 100.2, 0.125) == 140);
    assert_true(series_ttft_back_s(&s, 100.2, 0.21) == 139);
    assert_true(series_ttft_back_s(&s, 131.5, 0.125) == 142);
    assert_true(series_ttft_back_s(&s, 100.2, 0.05) == HUGE_VAL);
    assert_true(series_ttft_back_s(&s, 100.2, NAN) == HUGE_VAL);
    assert_int_equal(s.seconds[7].ends, 1);
    assert_int_equal(s.seconds[7].output_tokens, 3);
    series_end(&s, SERIES_MAX_S, 1);
    assert_int_equal(s.num_seconds, 200);
    series_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_are_read_and_sorted),
        cmocka_unit_test(invalid_failures_are_named),
        cmocka_unit_test(states_hold_from_their_first_to_before_their_last_second),
        cmocka_unit_test(random_crashes_have_their_mean),
        cmocka_unit_test(policies_are_read),
        cmocka_unit_test(invalid_policies_are_named),
        cmocka_unit_test(recovery_is_the_first_window_that_is_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

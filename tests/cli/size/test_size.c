/* cli/size and the limits of an SLO: the search against all answers, prices, targets. */
#include "base/unit.h"
#include "output/failure.h"
#include "replay/slo.h"
#include "size/prices.h"
#include "size/search.h"

#include <math.h>
#include <string.h>

/* ---- the search ------------------------------------------------------------------------ */

typedef bool (*is_enough)(uint32_t workers, uint32_t parameter);

static search run_search(uint32_t most, is_enough enough, uint32_t parameter)
{
    search s = {.most = most};
    for (uint32_t next; (next = search_next(&s)) > 0;) {
        assert_in_range(next, 1, most);
        for (uint32_t i = 0; i < s.num_tries; i++)
            assert_int_not_equal(s.tries[i].workers, next); /* nothing is tried twice */
        search_add(&s, next, enough(next, parameter));
    }
    return s;
}

static bool from(uint32_t workers, uint32_t least)
{
    return workers >= least;
}

/* All answers of all sizes: exact, and both neighbours have been tried. */
static void the_answer_is_exact_where_more_is_better(void **state)
{
    (void)state;
    for (uint32_t most = 1; most <= 70; most++) {
        for (uint32_t least = 1; least <= most + 1; least++) {
            search s = run_search(most, from, least);
            assert_true(search_is_monotone(&s));
            assert_int_equal(search_best(&s), least <= most ? least : 0);
            assert_int_equal(search_least(&s), least);
            bool has_below = least == 1;
            bool has_above = least >= most;
            for (uint32_t i = 0; i < s.num_tries; i++) {
                has_below = has_below || s.tries[i].workers == least - 1;
                has_above = has_above || s.tries[i].workers == least + 1;
            }
            assert_true(has_below && has_above);
        }
    }
    search s = run_search(65535, from, 40000);
    assert_int_equal(search_best(&s), 40000);
    assert_in_range(s.num_tries, 1, 40);
}

static bool not_one_of(uint32_t workers, uint32_t bad)
{
    return workers >= 5 && workers != bad;
}

/* 6 is the first that is found; one below its neighbour is enough too. */
static void a_hole_is_seen_and_looked_behind(void **state)
{
    (void)state;
    search s = run_search(64, not_one_of, 7); /* 1 2 4 no, 8 yes, 6 yes, 5 yes */
    assert_int_equal(search_best(&s), 5);
    s = run_search(64, not_one_of, 6); /* 8 yes, 6 no, 7 yes; 5 is the neighbour below */
    assert_int_equal(search_best(&s), 5);
    assert_false(search_is_monotone(&s));
    s = run_search(64, not_one_of, 64);
    assert_true(search_is_monotone(&s));
}

static bool is_odd(uint32_t workers, uint32_t unused)
{
    (void)unused;
    return workers % 2 == 1;
}

static void only_even(uint32_t most)
{
    search s = {.most = most};
    for (uint32_t next; (next = search_next(&s)) > 0;)
        search_add(&s, next, next % 2 == 0);
    assert_int_equal(search_best(&s), 2);
    assert_int_equal(search_least(&s), 2);
}

/* The answer is enough, whatever the order of the others. */
static void a_search_ends_without_any_order(void **state)
{
    (void)state;
    search s = run_search(9, is_odd, 0);
    assert_int_equal(search_best(&s), 1);
    assert_false(search_is_monotone(&s)); /* 2 is not enough */
    only_even(2);
    only_even(60000);
}

/* ---- targets --------------------------------------------------------------------------- */

static void targets_are_read(void **state)
{
    (void)state;
    slo_targets t;
    assert_int_equal(slo_targets_read("ttft_p99=2s,tpot_p50=50ms,e2e=1.5min,ttft_p99.9=9us", &t),
                     0);
    assert_int_equal(t.num, 4);
    static const struct {
        slo_metric metric;
        double share;
        double limit_ms;
    } expected[] = {
        {SLO_TTFT, 0.99, 2000}, {SLO_TPOT, 0.5, 50}, {SLO_E2E, 1, 90000}, {SLO_TTFT, 0.999, 0.009}};
    for (size_t i = 0; i < COUNT(expected); i++) {
        assert_int_equal(t.list[i].metric, expected[i].metric);
        assert_true(fabs(t.list[i].share - expected[i].share) < 1e-9);
        assert_true(fabs(t.list[i].limit_ms - expected[i].limit_ms) < 1e-9);
    }
    assert_string_equal(t.list[3].name, "ttft_p99.9");
    assert_int_equal(slo_targets_read("tpot_p100=1ms", &t), 0);
    assert_int_equal(slo_targets_read("tpot_p0.1=1ms", &t), 0);
}

static void wrong_targets_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "ttft_p0=1s",
                                        "ttft_p100.1=1s",
                                        "ttft_p=1s",
                                        "ttft_99=1s",
                                        "ttft_p-5=1s",
                                        "ttft_=1s",
                                        "itl_p99=1s",
                                        "ttft_p99",
                                        "ttft_p99=0s",
                                        "ttft_p99=-1s",
                                        "ttft_p99=2",
                                        "ttft_p99=2h",
                                        "ttft_p99=1s,",
                                        "ttft_p99=1s,,tpot=1s",
                                        "ttft_p99.000000000000000000001=1s"};
    static const char many[] =
        "ttft_p1=1s,ttft_p2=1s,ttft_p3=1s,ttft_p4=1s,ttft_p5=1s,ttft_p6=1s,"
        "ttft_p7=1s,ttft_p8=1s,ttft_p9=1s,ttft_p10=1s,ttft_p11=1s,ttft_p12=1s,"
        "ttft_p13=1s,ttft_p14=1s,ttft_p15=1s,ttft_p16=1s,ttft_p17=1s"; /* 17 */
    slo_targets t;
    for (size_t i = 0; i < COUNT(texts); i++) {
        assert_int_equal(slo_targets_read(texts[i], &t), -1);
        assert_non_null(strstr(failure(), "--slo"));
    }
    assert_int_equal(slo_targets_read(many + strlen("ttft_p1=1s,"), &t), 0);
    assert_int_equal(slo_targets_read(many, &t), -1);
    assert_non_null(strstr(failure(), "16"));
    assert_int_equal(slo_targets_read("ttft_p99=1s,e2e=9s,ttft_p99=2s", &t), -1);
    assert_string_equal(failure(), "--slo: ttft_p99 is given twice");
    slo limits;
    assert_int_equal(slo_read("ttft=1s,ttft=2s", &limits), -1);
    assert_string_equal(failure(), "--slo: ttft is given twice");
}

/* ---- prices ---------------------------------------------------------------------------- */

static void prices_are_found(void **state)
{
    (void)state;
    prices p;
    double price;
    assert_int_equal(prices_read(NULL, &p), 0);
    assert_int_equal(prices_find(&p, "H100", &price), 0);
    assert_true(fabs(price - 0) < 1e-9);
    assert_int_equal(prices_read("2.5", &p), 0);
    assert_int_equal(prices_find(&p, "H200", &price), 0);
    assert_true(fabs(price - 2.5) < 1e-9);
    assert_int_equal(prices_read("h100=2,H200=1000000", &p), 0);
    assert_int_equal(prices_find(&p, "H100", &price), 0);
    assert_true(fabs(price - 2) < 1e-9);
    assert_int_equal(prices_find(&p, "B200", &price), -1);
    assert_non_null(strstr(failure(), "B200"));
    static const char *const texts[] = {"",         "x",      "0",        "-1",      "=2",
                                        "H100=",    "H100=x", "H9=2",     "H100=2,", "1000000.1",
                                        "H100=nan", "inf",    "H100=2,,3"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        assert_int_equal(prices_read(texts[i], &p), -1);
        assert_non_null(strstr(failure(), "--gpu-cost"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answer_is_exact_where_more_is_better),
        cmocka_unit_test(a_hole_is_seen_and_looked_behind),
        cmocka_unit_test(a_search_ends_without_any_order),
        cmocka_unit_test(targets_are_read),
        cmocka_unit_test(wrong_targets_are_refused),
        cmocka_unit_test(prices_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

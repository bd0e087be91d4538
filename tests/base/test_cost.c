/* base/test_cost.c - the line of a cost, with exact numbers: one sample, a base that is too large
 * or below 0, and a base of less than a nanosecond. What is decided by costs is tested with the
 * tiers (tier/promote/test_costs.c). */
#include "base/cost.h"
#include "base/unit.h"

static void one_sample_is_exact(void **state)
{
    (void)state;
    qr_cost cost;
    qr_cost_init(&cost, 0, 0);
    qr_cost_learn(&cost, 2, 100);
    assert_true(cost.base_ns == 0);
    assert_true(cost.unit_ns == 50);
    assert_true(qr_cost_ns(&cost, 1) == 50);
    assert_true(qr_cost_ns(&cost, 2) == 100);
    assert_true(qr_cost_ns(&cost, 8) == 100); /* not known to take longer */
}

/* A smaller job never takes longer than a larger one, and none takes less than no time. */
static void expect_rising(const qr_cost *cost)
{
    double last = 0;
    for (double units = 1; units < 1e7; units *= 10) {
        double ns = qr_cost_ns(cost, units);
        assert_true(ns >= last);
        last = ns;
    }
}

/* Jobs that are faster than the base: one that was given, and one that was learned. */
static void the_base_is_at_most_what_jobs_take(void **state)
{
    (void)state;
    qr_cost cost;
    qr_cost_init(&cost, 1e6, 1);
    qr_cost_learn(&cost, 1000, 1e5);
    assert_true(cost.base_ns == 1e5);
    assert_true(cost.unit_ns == 0);
    expect_rising(&cost);
    qr_cost_init(&cost, 0, 0);
    for (int i = 0; i < 20; i++) { /* 1,000 ns and 1 ns a unit */
        qr_cost_learn(&cost, 1, 1001);
        qr_cost_learn(&cost, 1000, 2000);
    }
    assert_true(cost.base_ns > 999 && cost.base_ns < 1001);
    for (int i = 0; i < 200; i++) { /* one size alone, faster than the base */
        qr_cost_learn(&cost, 1000, 100);
        expect_rising(&cost);
    }
    assert_true(qr_cost_ns(&cost, 1000) < 101);
}

/* Large jobs that take more than their share: the line would begin below 0. */
static void the_base_is_not_negative(void **state)
{
    (void)state;
    qr_cost cost;
    qr_cost_init(&cost, 0, 0);
    for (int i = 0; i < 20; i++) {
        qr_cost_learn(&cost, 10, 10);
        qr_cost_learn(&cost, 1000, 1e6);
        expect_rising(&cost);
    }
    assert_true(cost.base_ns == 0);
}

static void the_base_may_be_less_than_a_nanosecond(void **state)
{
    (void)state;
    qr_cost cost;
    qr_cost_init(&cost, 0.5, 1);
    qr_cost_learn(&cost, 4, 4.5);
    assert_true(cost.base_ns == 0.5);
    assert_true(cost.unit_ns == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sample_is_exact),
        cmocka_unit_test(the_base_is_at_most_what_jobs_take),
        cmocka_unit_test(the_base_is_not_negative),
        cmocka_unit_test(the_base_may_be_less_than_a_nanosecond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What is learned of made-up tiers, and what is decided by it. */
#include "tier/promote/costs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MIB 1048576.0

/* ---- made-up things -------------------------------------------------------- */

static uint64_t g_random = 88172645463325252u;

static double random_unit(void)
{
    g_random ^= g_random << 13;
    g_random ^= g_random >> 7;
    g_random ^= g_random << 17;
    return (double)(g_random >> 11) * 0x1p-53;
}

typedef struct world {
    double base_ns;
    double unit_ns;
    double noise; /* 0: none; 1: exponential */
} world;

static double take(const world *w, double units)
{
    double ns = w->base_ns + w->unit_ns * units;
    return ns * (1 - w->noise) - ns * w->noise * log(1 - random_unit());
}

static void teach(qr_cost *cost, const world *w, uint32_t samples, double least, double most)
{
    for (uint32_t i = 0; i < samples; i++) {
        double units = least * pow(most / least, random_unit());
        qr_cost_learn(cost, units, take(w, units));
    }
}

static void assert_near(double value, double wanted, double part)
{
    if (!(fabs(value - wanted) <= part * wanted))
        fail_msg("%g, wanted %g within %g %%", value, wanted, 100 * part);
}

/* ---- learning -------------------------------------------------------------- */

static void test_a_line_is_learned(void **state)
{
    (void)state;
    world w = {.base_ns = 2e6, .unit_ns = 0.3}; /* 2 ms, 3.3 GB/s */
    qr_cost cost;
    qr_cost_init(&cost, 0, 0);
    assert_false(cost.is_known);
    teach(&cost, &w, 20, 256 * 1024, 64 * MIB);
    assert_true(cost.is_known);
    assert_near(qr_cost_ns(&cost, MIB), take(&w, MIB), 0.02);
    assert_near(qr_cost_ns(&cost, 128 * MIB), take(&w, 128 * MIB), 0.02);
    assert_near(cost.base_ns, w.base_ns, 0.05);
    assert_near(cost.unit_ns, w.unit_ns, 0.02);
    teach(&cost, &w, 60, 256 * 1024, 64 * MIB); /* and what surprised at the start is forgotten */
    assert_near(qr_cost_p95_ns(&cost, MIB), take(&w, MIB), 0.05);
}

static void test_noise_widens_the_p95(void **state)
{
    (void)state;
    world w = {.base_ns = 1e5, .unit_ns = 1, .noise = 1};
    qr_cost cost;
    qr_cost_init(&cost, 0, 0);
    teach(&cost, &w, 2000, MIB, 64 * MIB);
    double above = 0;
    for (int i = 0; i < 2000; i++) {
        teach(&cost, &w, 1, MIB, 64 * MIB);
        above += take(&w, 8 * MIB) > qr_cost_p95_ns(&cost, 8 * MIB) ? 1 : 0;
    }
    assert_true(above > 2000 * 0.02 && above < 2000 * 0.15);
}

static void test_a_change_is_followed(void **state)
{
    (void)state;
    world fast = {.base_ns = 1e5, .unit_ns = 0.2};
    world slow = {.base_ns = 5e6, .unit_ns = 4};
    qr_cost cost;
    qr_cost_init(&cost, 0, 0);
    teach(&cost, &fast, 1000, 256 * 1024, 64 * MIB);
    teach(&cost, &slow, 40, 256 * 1024, 64 * MIB);
    assert_near(qr_cost_ns(&cost, 8 * MIB), take(&slow, 8 * MIB), 0.1);
    teach(&cost, &fast, 100, 256 * 1024, 64 * MIB);
    assert_near(qr_cost_ns(&cost, 8 * MIB), take(&fast, 8 * MIB), 0.1);
    teach(&cost, &fast, 100, 256 * 1024, 64 * MIB);
    assert_near(qr_cost_p95_ns(&cost, 8 * MIB), take(&fast, 8 * MIB), 0.1);
}

static void test_one_size_is_enough(void **state)
{
    (void)state;
    qr_cost cost;
    qr_cost_init(&cost, 0, 0);
    for (int i = 0; i < 10; i++)
        qr_cost_learn(&cost, 2 * MIB, 1e6);
    assert_near(qr_cost_ns(&cost, 2 * MIB), 1e6, 0.01);
    assert_near(qr_cost_ns(&cost, MIB), 5e5, 0.01);
    assert_near(qr_cost_ns(&cost, 64 * MIB), 1e6,
                0.01); /* not known to take longer: it is tried, */
    qr_cost_learn(&cost, 64 * MIB, 32e6);
    assert_near(qr_cost_ns(&cost, 64 * MIB), 32e6, 0.01); /* and then known */
    qr_cost_init(&cost, 4e5, 1);                          /* a base that was given stays */
    for (int i = 0; i < 40; i++)
        qr_cost_learn(&cost, 2 * MIB, 1e6);
    assert_near(cost.base_ns, 4e5, 0.01);
    assert_near(qr_cost_ns(&cost, 2 * MIB), 1e6, 0.01);
}

/* Tokens and blocks come in ones, and a base may be less than a nanosecond. */
static void test_small_numbers_are_learned_too(void **state)
{
    (void)state;
    world w = {.base_ns = 0.5, .unit_ns = 1};
    qr_cost cost;
    qr_cost_init(&cost, 0, 0);
    qr_cost_learn(&cost, 1, 100);
    assert_near(qr_cost_ns(&cost, 1), 100, 0.01);
    qr_cost_init(&cost, 0, 0);
    teach(&cost, &w, 40, 1, 64);
    assert_near(cost.base_ns, w.base_ns, 0.01);
    assert_near(cost.unit_ns, w.unit_ns, 0.01);
}

/* A base that was given, but is more than jobs take: larger jobs do not take less for it. */
static void test_a_base_that_is_too_large_shrinks(void **state)
{
    (void)state;
    qr_cost cost;
    qr_cost_init(&cost, 1e6, 1);
    qr_cost_learn(&cost, 1000, 1e5);
    assert_near(cost.base_ns, 1e5, 0.01);
    assert_near(qr_cost_ns(&cost, 1000), 1e5, 0.01);
    assert_true(qr_cost_ns(&cost, 1e6) >= qr_cost_ns(&cost, 1000));
}

static void test_nonsense_is_not_learned(void **state)
{
    (void)state;
    qr_cost cost;
    qr_cost_init(&cost, 100, 1);
    qr_cost_learn(&cost, 0, 5);
    qr_cost_learn(&cost, -1, 5);
    qr_cost_learn(&cost, 5, -1);
    qr_cost_learn(&cost, NAN, 5);
    qr_cost_learn(&cost, 5, NAN);
    assert_true(qr_cost_ns(&cost, 10) == 110);
    qr_cost_learn(&cost, 5, 0); /* a clock that did not move */
    qr_cost_learn(&cost, 1e300, 1e300);
    assert_true(isfinite(qr_cost_ns(&cost, 1e6)) && qr_cost_ns(&cost, 1e6) >= 0);
    for (int i = 0; i < 100; i++) /* larger is faster: no negative times */
        qr_cost_learn(&cost, i % 2 != 0 ? 1e6 : 1e3, i % 2 != 0 ? 1e3 : 1e6);
    for (double units = 1; units < 1e9; units *= 3)
        assert_true(qr_cost_ns(&cost, units) >= 0);
    qr_cost_init(&cost, 0, 0);
    for (int i = 0; i < 100; i++) /* nor longer ones than were seen */
        qr_cost_learn(&cost, i % 2 != 0 ? 1e6 : 1e3, i % 2 != 0 ? 1e3 : 1e6);
    for (double units = 1; units < 1e9; units *= 3)
        assert_true(qr_cost_ns(&cost, units) <= 1e6);
}

/* ---- load or compute ------------------------------------------------------- */

enum { RUN = 1000 };
static uint8_t g_sources[RUN];

static qr_cost_run run_of(uint32_t n)
{
    memset(g_sources, 0, sizeof g_sources);
    return (qr_cost_run){
        .sources = g_sources, .num_blocks = n, .block_tokens = 16, .block_bytes = 2 * MIB};
}

/* One tier of so many GB/s, and an engine of so many tokens a second. */
static qr_costs costs_of(double gb_per_s, double latency_ns, double tokens_per_s)
{
    qr_costs costs;
    memset(&costs, 0, sizeof costs);
    for (uint32_t t = 0; t < QR_COSTS_MAX_TIERS; t++) {
        qr_cost_init(&costs.tiers[t].load, 0, 0);
        costs.tiers[t].deadline_ns = HUGE_VAL;
    }
    if (gb_per_s > 0)
        qr_cost_init(&costs.tiers[0].load, latency_ns, 1 / gb_per_s);
    qr_cost_init(&costs.compute, 0, tokens_per_s > 0 ? 1e9 / tokens_per_s : 0);
    return costs;
}

static void test_fast_is_loaded_slow_is_computed(void **state)
{
    (void)state;
    qr_cost_run run = run_of(RUN);
    qr_costs costs = costs_of(7, 1e5, 25000); /* 2 MiB in 0.3 ms, 16 tokens in 0.64 ms */
    assert_int_equal(qr_costs_split(&costs, &run), RUN);
    costs = costs_of(1, 1e5, 25000); /* 2.1 ms */
    assert_int_equal(qr_costs_split(&costs, &run), 0);
    run.is_covered = true;
    assert_int_equal(qr_costs_split(&costs, &run), RUN);
}

static void test_short_runs_do_not_pay_the_latency(void **state)
{
    (void)state;
    qr_costs costs = costs_of(7, 10e6, 25000); /* 10 ms: about 30 blocks' gain */
    qr_cost_run run = run_of(10);
    assert_int_equal(qr_costs_split(&costs, &run), 0);
    run = run_of(100);
    assert_int_equal(qr_costs_split(&costs, &run), 100);
    uint32_t least = qr_costs_least_tokens(&costs, 0, 2 * MIB / 16);
    assert_true(least > 30 * 16 * 9 / 10 && least < 32 * 16);
    assert_true(qr_costs_pays(&costs, 0, 2 * MIB * 60, 16 * 60));
    assert_false(qr_costs_pays(&costs, 0, 2 * MIB * 10, 16 * 10));
}

static void test_unknown_is_tried(void **state)
{
    (void)state;
    qr_cost_run run = run_of(50);
    qr_costs costs = costs_of(0, 0, 25000);
    assert_int_equal(qr_costs_split(&costs, &run), 50);
    assert_int_equal(qr_costs_least_tokens(&costs, 0, 1), 0);
    costs = costs_of(0.001, 1e9, 0);
    assert_int_equal(qr_costs_split(&costs, &run), 50);
    assert_true(qr_costs_pays(&costs, 0, 1e9, 1));
}

static void test_the_head_is_loaded_the_tail_computed(void **state)
{
    (void)state;
    qr_costs costs = costs_of(7, 1e5, 25000);
    qr_cost_init(&costs.tiers[1].load, 1e6, 1 / 0.5); /* slower than computing */
    qr_cost_run run = run_of(200);
    memset(g_sources + 80, 1, 120);                        /* behind the 80th in the slow tier */
    assert_in_range(qr_costs_split(&costs, &run), 80, 86); /* a few come while the fast one works */
    memset(g_sources, QR_COSTS_FREE, 80);                  /* is there already */
    assert_int_equal(qr_costs_split(&costs, &run), 80);
    memset(g_sources, 1, 80);
    memset(g_sources + 80, 0, 120); /* the slow one first: both at once do not pay either */
    assert_int_equal(qr_costs_split(&costs, &run), 0);
}

/* Two tiers work at once: the slower one may take as long as the faster one needs anyway. */
static void test_tiers_load_side_by_side(void **state)
{
    (void)state;
    qr_costs costs = costs_of(7, 1e5, 25000);
    qr_cost_init(&costs.tiers[1].load, 1e5, 1);
    qr_cost_run run = run_of(110);
    memset(g_sources + 100, 1, 10); /* 30 ms for the first, 21 ms for the second */
    assert_int_equal(qr_costs_split(&costs, &run), 110);
}

static void test_what_would_be_late_is_not_begun(void **state)
{
    (void)state;
    qr_costs costs = costs_of(2, 0, 1000); /* 1 ms a block */
    costs.tiers[0].deadline_ns = 100e6;
    costs.tiers[0].has_paid = true;
    qr_cost_run run = run_of(RUN);
    uint32_t split = qr_costs_split(&costs, &run);
    assert_true(split > 90 && split < 100);
    run.queued_bytes[0] = 40 * 2 * MIB; /* others are before it */
    assert_in_range(qr_costs_split(&costs, &run), split - 41, split - 39);
    run.is_covered = true;
    assert_in_range(qr_costs_split(&costs, &run), split - 41, split - 39);
    assert_false(qr_costs_pays(&costs, 0, 300e6, 1e9));
}

static void test_no_flapping_at_the_border(void **state)
{
    (void)state;
    qr_costs costs = costs_of(2 * MIB / 640e3, 1, 25000); /* exactly as long as computing */
    qr_cost_run run = run_of(100);
    uint32_t changes = 0;
    bool was_loaded = qr_costs_split(&costs, &run) > 0;
    for (int i = 0; i < 2000; i++) {
        costs.tiers[0].num_skips = 0; /* probes are not meant here */
        world noisy = {.unit_ns = (1 + 0.03 * sin(i)) * 640e3 / (2 * MIB)};
        qr_cost_init(&costs.tiers[0].load, 1, noisy.unit_ns);
        bool is_loaded = qr_costs_split(&costs, &run) > 0;
        changes += is_loaded != was_loaded ? 1 : 0;
        was_loaded = is_loaded;
    }
    assert_true(changes <= 1);
}

static void test_a_slow_tier_is_probed_and_comes_back(void **state)
{
    (void)state;
    world w = {.base_ns = 1e5, .unit_ns = 5};
    qr_costs costs = costs_of(0.2, 1e5, 25000);
    qr_cost_run run = run_of(100);
    uint32_t loads = 0;
    for (int i = 0; i < 640; i++) {
        uint32_t split = qr_costs_split(&costs, &run);
        loads += split > 0 ? 1 : 0;
        assert_true(split <= 16);
        if (split > 0)
            qr_cost_learn(&costs.tiers[0].load, split * 2 * MIB, take(&w, split * 2 * MIB));
    }
    assert_int_equal(loads, 20);
    w.unit_ns = 0.1; /* now it is fast */
    uint32_t asks = 0;
    while (qr_costs_split(&costs, &run) < 100) {
        if (++asks % 32 == 31)
            qr_cost_learn(&costs.tiers[0].load, 32 * MIB, take(&w, 32 * MIB));
        assert_true(asks < 32 * 40);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_is_learned),
        cmocka_unit_test(test_noise_widens_the_p95),
        cmocka_unit_test(test_a_change_is_followed),
        cmocka_unit_test(test_one_size_is_enough),
        cmocka_unit_test(test_small_numbers_are_learned_too),
        cmocka_unit_test(test_a_base_that_is_too_large_shrinks),
        cmocka_unit_test(test_nonsense_is_not_learned),
        cmocka_unit_test(test_fast_is_loaded_slow_is_computed),
        cmocka_unit_test(test_short_runs_do_not_pay_the_latency),
        cmocka_unit_test(test_unknown_is_tried),
        cmocka_unit_test(test_the_head_is_loaded_the_tail_computed),
        cmocka_unit_test(test_tiers_load_side_by_side),
        cmocka_unit_test(test_what_would_be_late_is_not_begun),
        cmocka_unit_test(test_no_flapping_at_the_border),
        cmocka_unit_test(test_a_slow_tier_is_probed_and_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

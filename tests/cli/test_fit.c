/* test_fit.c - coefficients that steps were made from are found again, whatever noise there is. */
#include "base/unit.h"

#include "model/fit.h"

#include <math.h>
#include <string.h>

enum { ROWS = 4000, TERMS = 5 };

/* A step's constant, requests, tokens, context, pairs: ms, as a small engine has them. */
static const double truth[TERMS] = {3.2, 0.11, 0.027, 0.00021, 0.00008};

static double random_share(uint64_t *random)
{
    return unit_random_below(random, 1u << 20) / (double)(1u << 20);
}

/* Steps of decodes, some with prompts. */
static void make_rows(fit_row *rows, const double *c, uint64_t seed)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t requests = 1 + unit_random_below(&seed, 40);
        double prompt = unit_random_below(&seed, 4) == 0 ? 50 + unit_random_below(&seed, 450) : 0;
        double context = requests * (20.0 + unit_random_below(&seed, 900)) + prompt;
        rows[i] =
            (fit_row){.x = {1, requests, requests + prompt, context, prompt * (prompt + 1) / 2}};
        rows[i].y = fit_predict(&rows[i], TERMS, c);
    }
}

static void check_near(const double *found, const double *expected, double share)
{
    for (uint32_t i = 0; i < TERMS; i++)
        if (fabs(found[i] / expected[i] - 1) > share)
            fail_msg("coefficient %u is %.6g, not %.6g", i, found[i], expected[i]);
}

static void exact_rows_give_the_coefficients(void **state)
{
    fit_row rows[ROWS];
    double found[FIT_MAX_TERMS];
    (void)state;
    make_rows(rows, truth, 1);
    assert_true(fit_nonnegative(rows, ROWS, TERMS, found));
    check_near(found, truth, 0.002);
    fit_errors errors = fit_compare(rows, ROWS, TERMS, found);
    assert_int_equal(errors.num_rows, ROWS);
    assert_true(errors.median < 1e-3 && errors.p90 < 1e-3 && fabs(errors.sum) < 1e-3);
}

static void noise_moves_them_little(void **state)
{
    fit_row rows[ROWS];
    double found[FIT_MAX_TERMS];
    uint64_t random = 3;
    (void)state;
    make_rows(rows, truth, 2);
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i].y *= 0.8 + 0.4 * random_share(&random);
    assert_true(fit_nonnegative(rows, ROWS, TERMS, found));
    check_near(found, truth, 0.15);
    fit_errors errors = fit_compare(rows, ROWS, TERMS, found);
    assert_true(errors.median > 0.05 && errors.median < 0.15);
    assert_true(fabs(errors.sum) < 1e-9); /* the sums agree */
}

/* Every tenth step was delayed by another process, by 5 to 100 times its time. */
static void outliers_do_not_count(void **state)
{
    fit_row rows[ROWS];
    double found[FIT_MAX_TERMS];
    uint64_t random = 5;
    (void)state;
    make_rows(rows, truth, 4);
    for (uint32_t i = 0; i < ROWS; i++) {
        rows[i].y *= 0.95 + 0.1 * random_share(&random);
        if (unit_random_below(&random, 10) == 0)
            rows[i].y *= 5 + 95 * random_share(&random);
    }
    assert_true(fit_nonnegative(rows, ROWS, TERMS, found));
    check_near(found, truth, 0.05);
}

/* The machine is slower in every second stretch of rows, and then more requests run: a plain fit
 * takes the slowness for the cost of requests. */
static void slow_stretches_do_not_count(void **state)
{
    fit_row rows[ROWS];
    double plain[FIT_MAX_TERMS];
    double level[FIT_MAX_TERMS];
    uint64_t random = 7;
    double sum = 0;
    double predicted = 0;
    (void)state;
    for (uint32_t i = 0; i < ROWS; i++) {
        bool is_slow = i / 400 % 2 == 1;
        double requests = (is_slow ? 10 : 1) + unit_random_below(&random, 12);
        rows[i] = (fit_row){.x = {1, requests}, .y = 4 + 0.05 * requests};
        rows[i].y *= (is_slow ? 1.8 : 1) * (0.97 + 0.06 * random_share(&random));
        sum += rows[i].y;
    }
    assert_true(fit_nonnegative(rows, ROWS, 2, plain));
    assert_true(fit_level(rows, ROWS, 2, level));
    assert_true(plain[1] / plain[0] > 3 * 0.05 / 4);
    assert_true(fabs(level[1] / level[0] / (0.05 / 4) - 1) < 0.2);
    for (uint32_t i = 0; i < ROWS; i++)
        predicted += fit_predict(&rows[i], 2, level);
    assert_true(fabs(predicted / sum - 1) < 1e-9);
}

/* Rows of one speed: the same coefficients. */
static void an_even_machine_is_fitted_alike(void **state)
{
    fit_row rows[ROWS];
    double found[FIT_MAX_TERMS];
    (void)state;
    make_rows(rows, truth, 9);
    assert_true(fit_level(rows, ROWS, TERMS, found));
    check_near(found, truth, 0.002);
    assert_true(fit_level(rows, 3, 1, found)); /* fewer than a run */
    assert_false(fit_level(rows, 0, 1, found));
}

/* A least-squares fit would make the third one negative. */
static void no_coefficient_is_negative(void **state)
{
    fit_row rows[200];
    double found[FIT_MAX_TERMS];
    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        double n = 1 + i % 20;
        rows[i] = (fit_row){.x = {1, n, n * n}, .y = 5 + 2 * n - 0.01 * n * n};
    }
    assert_true(fit_nonnegative(rows, 200, 3, found));
    assert_true(found[0] > 4 && found[1] > 1.5 && found[1] < 2.1);
    assert_true(found[2] == 0);
}

/* No step had a prompt: nothing can be said of pairs. */
static void a_term_without_values_is_0(void **state)
{
    fit_row rows[300];
    double found[FIT_MAX_TERMS];
    (void)state;
    for (uint32_t i = 0; i < 300; i++)
        rows[i] = (fit_row){.x = {1, 1 + i % 7, 0}, .y = 2 + 0.5 * (1 + i % 7)};
    assert_true(fit_nonnegative(rows, 300, 3, found));
    assert_true(fabs(found[0] - 2) < 1e-6 && fabs(found[1] - 0.5) < 1e-6 && found[2] == 0);
}

static void no_rows_are_no_fit(void **state)
{
    double found[FIT_MAX_TERMS] = {7, 7};
    (void)state;
    assert_false(fit_nonnegative(NULL, 0, 2, found));
    assert_true(found[0] == 0 && found[1] == 0);
    assert_int_equal(fit_compare(NULL, 0, 2, found).num_rows, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_rows_give_the_coefficients),
        cmocka_unit_test(noise_moves_them_little),
        cmocka_unit_test(outliers_do_not_count),
        cmocka_unit_test(slow_stretches_do_not_count),
        cmocka_unit_test(an_even_machine_is_fitted_alike),
        cmocka_unit_test(no_coefficient_is_negative),
        cmocka_unit_test(a_term_without_values_is_0),
        cmocka_unit_test(no_rows_are_no_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

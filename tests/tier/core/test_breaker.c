/* tier/core/test_breaker.c - the breaker alone, with a made-up clock: strikes in a row, times that
 * double with a little chance, one probe, outcomes from before that do not count; and at random
 * beside a naive one. */
#include "base/unit.h"
#include "tier/core/breaker.h"

enum { STRIKES = 3 };
#define FIRST UINT64_C(8000)

static uint64_t now;

/* Lets a job through, and tells its outcome at once. */
static void take_job(qr_breaker *b, qr_outcome outcome)
{
    assert_true(qr_breaker_let(b, now));
    qr_breaker_take(b, b->epoch, outcome, now);
}

static qr_breaker opened(uint64_t seed)
{
    qr_breaker b;
    now = 1000;
    qr_breaker_init(&b, STRIKES, FIRST, seed);
    for (int i = 0; i < STRIKES; i++)
        take_job(&b, QR_OUTCOME_BAD);
    return b;
}

static void strikes_in_a_row_open_it(void **state)
{
    (void)state;
    qr_breaker b;
    qr_breaker_init(&b, STRIKES, FIRST, 1);
    for (int round = 0; round < 10; round++) {
        take_job(&b, QR_OUTCOME_BAD);
        take_job(&b, QR_OUTCOME_BAD);
        take_job(&b, QR_OUTCOME_NONE); /* neither a strike nor a success */
        assert_int_equal(b.health, QUIRE_TIER_CLOSED);
        take_job(&b, QR_OUTCOME_GOOD);
    }
    take_job(&b, QR_OUTCOME_BAD);
    take_job(&b, QR_OUTCOME_NONE);
    take_job(&b, QR_OUTCOME_BAD);
    take_job(&b, QR_OUTCOME_BAD);
    assert_int_equal(b.health, QUIRE_TIER_OPEN);
    assert_int_equal(b.num_opened, 1);
    assert_false(qr_breaker_let(&b, now));
}

static void it_opens_without_strikes(void **state)
{
    (void)state;
    qr_breaker b;
    now = 1000;
    qr_breaker_init(&b, STRIKES, FIRST, 1);
    take_job(&b, QR_OUTCOME_BAD);
    qr_breaker_open(&b, now);
    assert_int_equal(b.health, QUIRE_TIER_OPEN);
    assert_int_equal(b.strikes, 0);
    assert_false(qr_breaker_let(&b, b.until_ns - 1));
    now = b.until_ns;
    take_job(&b, QR_OUTCOME_GOOD);
    assert_int_equal(b.health, QUIRE_TIER_CLOSED);
}

static void times_double_up_to_a_limit(void **state)
{
    (void)state;
    static const uint64_t TIMES[] = {1, 2, 4, 8, 12, 12, 12};
    uint64_t spread = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        qr_breaker b = opened(seed);
        for (size_t i = 0; i < COUNT(TIMES); i++) {
            uint64_t about = TIMES[i] * FIRST;
            uint64_t open = b.until_ns - now;
            assert_in_range(open, about - about / 8, about + about / 8);
            spread |= open ^ about;
            now = b.until_ns - 1;
            assert_false(qr_breaker_would_let(&b, now));
            assert_false(qr_breaker_let(&b, now));
            now++;
            assert_true(qr_breaker_would_let(&b, now));
            take_job(&b, QR_OUTCOME_BAD);
            assert_int_equal(b.health, QUIRE_TIER_OPEN);
        }
        now = b.until_ns;
        take_job(&b, QR_OUTCOME_GOOD);
        assert_int_equal(b.health, QUIRE_TIER_CLOSED);
        for (int i = 0; i < STRIKES; i++)
            take_job(&b, QR_OUTCOME_BAD);
        assert_in_range(b.until_ns - now, FIRST - FIRST / 8,
                        FIRST + FIRST / 8); /* from the start */
    }
    assert_int_not_equal(spread, 0);
}

static void one_probe_at_a_time(void **state)
{
    (void)state;
    qr_breaker b = opened(1);
    now = b.until_ns;
    assert_true(qr_breaker_let(&b, now));
    assert_int_equal(b.health, QUIRE_TIER_PROBING);
    assert_false(qr_breaker_would_let(&b, now));
    assert_false(qr_breaker_let(&b, now + 100 * FIRST));
    qr_breaker_take(&b, b.epoch, QR_OUTCOME_NONE, now); /* it was not tried: another one may */
    assert_int_equal(b.health, QUIRE_TIER_PROBING);
    assert_true(qr_breaker_let(&b, now));
    assert_false(qr_breaker_let(&b, now));
    qr_breaker_take(&b, b.epoch, QR_OUTCOME_GOOD, now);
    assert_int_equal(b.health, QUIRE_TIER_CLOSED);
    assert_true(qr_breaker_let(&b, now));
    assert_true(qr_breaker_let(&b, now));
}

/* Many were on their way when it opened; what becomes of them says nothing about now. */
static void old_outcomes_do_not_count(void **state)
{
    (void)state;
    qr_breaker b;
    qr_breaker_init(&b, STRIKES, FIRST, 1);
    uint32_t before = b.epoch;
    for (int i = 0; i < 20; i++)
        assert_true(qr_breaker_let(&b, now));
    for (int i = 0; i < 10; i++)
        qr_breaker_take(&b, before, QR_OUTCOME_BAD, now);
    assert_int_equal(b.num_opened, 1);
    qr_breaker_take(&b, before, QR_OUTCOME_GOOD, now);
    assert_int_equal(b.health, QUIRE_TIER_OPEN);
    now = b.until_ns;
    assert_true(qr_breaker_let(&b, now));
    qr_breaker_take(&b, before, QR_OUTCOME_BAD, now);
    qr_breaker_take(&b, before, QR_OUTCOME_GOOD, now);
    assert_int_equal(b.health, QUIRE_TIER_PROBING);
    assert_false(qr_breaker_let(&b, now));
}

static void epochs_wrap(void **state)
{
    (void)state;
    qr_breaker b;
    qr_breaker_init(&b, 1, FIRST, 1);
    b.epoch = UINT32_MAX - 3;
    for (int i = 0; i < 10; i++) {
        now = b.until_ns;
        take_job(&b, QR_OUTCOME_BAD);
        assert_int_equal(b.health, QUIRE_TIER_OPEN);
    }
    assert_int_equal(b.num_opened, 10);
}

/* Every state is left again: jobs that are let through and end, at any time, in any order. */
static void it_never_stays_open(void **state)
{
    uint64_t *random = *state;
    qr_breaker b;
    uint32_t epochs[64];
    uint32_t count = 0;
    uint32_t opened_before = 0;
    qr_breaker_init(&b, STRIKES, FIRST, *random);
    now = 0;
    for (int i = 0; i < 200000; i++) {
        bool is_good_time = i / 2000 % 2 == 0;
        now += unit_random_below(random, (uint32_t)FIRST / 4);
        if (count < COUNT(epochs) && qr_breaker_would_let(&b, now)) {
            assert_true(qr_breaker_let(&b, now));
            epochs[count++] = b.epoch;
        }
        if (count > 0 && unit_random_below(random, 3) > 0) {
            uint32_t at = unit_random_below(random, count);
            qr_outcome outcome = is_good_time ? QR_OUTCOME_GOOD : QR_OUTCOME_BAD;
            if (unit_random_below(random, 10) == 0)
                outcome = QR_OUTCOME_NONE;
            uint32_t epoch = epochs[at];
            epochs[at] = epochs[--count];
            qr_breaker_take(&b, epoch, outcome, now);
        }
        if (i % 2000 == 1999) { /* good times close it, bad ones open it */
            if (is_good_time)
                assert_int_equal(b.health, QUIRE_TIER_CLOSED);
            else
                assert_true(b.num_opened > opened_before);
            opened_before = (uint32_t)b.num_opened;
        }
    }
}

int main(int argc, char **argv)
{
    uint64_t random = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strikes_in_a_row_open_it),
        cmocka_unit_test(it_opens_without_strikes),
        cmocka_unit_test(times_double_up_to_a_limit),
        cmocka_unit_test(one_probe_at_a_time),
        cmocka_unit_test(old_outcomes_do_not_count),
        cmocka_unit_test(epochs_wrap),
        cmocka_unit_test_prestate(it_never_stays_open, &random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* base/test_bits.c - the greatest common divisor, and a field's default. */
#include "base/bits.h"
#include "base/config.h"
#include "base/unit.h"

static void divisors_are_the_greatest(void **state)
{
    (void)state;
    for (uint64_t a = 0; a < 60; a++) {
        for (uint64_t b = 0; b < 60; b++) {
            uint64_t most = a + b; /* of 0 and b it is b */
            for (uint64_t d = 1; a != 0 && b != 0 && d <= a; d++)
                most = d == 1 || (a % d == 0 && b % d == 0) ? d : most;
            assert_int_equal(qr_gcd(a, b), most);
        }
    }
    assert_int_equal(qr_gcd(UINT64_C(1) << 40, UINT64_C(3) << 35), UINT64_C(1) << 35);
}

static void zero_means_the_default(void **state)
{
    (void)state;
    assert_int_equal(qr_or_default(0, 7), 7);
    assert_int_equal(qr_or_default(UINT64_MAX, 7), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divisors_are_the_greatest),
        cmocka_unit_test(zero_means_the_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tier/object/test_absent.c - a library without libcurl refuses the tier with a sentence. */
#include "base/unit.h"

#include <quire/tier_object.h>

static void open_is_refused(void **state)
{
    quire_tier_object_config c = QUIRE_TIER_OBJECT_CONFIG_INIT;
    quire_tier_object_stats stats = QUIRE_TIER_OBJECT_STATS_INIT;
    quire_tier *tier;
    quire_tier_object *object;
    (void)state;
    assert_int_equal(quire_tier_object_is_built(), 0);
    assert_int_equal(quire_tier_object_open(&c, NULL, NULL, &tier, &object), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "built without libcurl"));
    assert_null(tier);
    assert_null(object);
    assert_int_equal(quire_tier_object_open(&c, NULL, NULL, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_tier_object_create(&c, 0, NULL, &object), QUIRE_E_CONFIG);
    assert_int_equal(quire_tier_object_create(&c, 0, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_null(quire_tier_object_ops());
    assert_int_equal(quire_tier_object_get_stats(NULL, &stats), QUIRE_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(open_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

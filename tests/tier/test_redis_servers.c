/* tier/test_redis_servers.c - the Redis tier on real servers that are killed, stopped, restarted,
 * filled and reconfigured under it. Whatever happens: each job ends in bounded time, what a load
 * gives back is what was stored, and nothing is left over.
 *
 *      tier_redis_servers [--long]     all faults; without, those that take no time */
#include "redis_kit.h"

#include <signal.h>
#include <unistd.h>

static bool is_long;

/* ---- a server that is well ------------------------------------------------- */

static void all_operations(redis_tier *t)
{
    redis_do(t, QUIRE_TIER_LOAD, 0, 20);
    redis_expect_only(t, REDIS_BIT(MISSING));
    redis_do(t, QUIRE_TIER_FIND, 0, 20);
    redis_expect_only(t, REDIS_BIT(MISSING));
    redis_do(t, QUIRE_TIER_REMOVE, 0, 20);
    redis_expect_only(t, REDIS_BIT(MISSING));
    redis_do(t, QUIRE_TIER_STORE, 0, 20);
    redis_expect_only(t, REDIS_BIT(DONE));
    redis_do(t, QUIRE_TIER_FIND, 10, 20);
    assert_int_equal(redis_count(t, QUIRE_TIER_DONE), 10);
    assert_int_equal(redis_count(t, QUIRE_TIER_MISSING), 10);
    assert_int_equal(t->ios[0].bytes, t->bytes);
    redis_do(t, QUIRE_TIER_LOAD, 10, 20);
    assert_int_equal(redis_count(t, QUIRE_TIER_DONE), 10);
    redis_do(t, QUIRE_TIER_REMOVE, 0, 5);
    redis_expect_only(t, REDIS_BIT(DONE));
    redis_do(t, QUIRE_TIER_LOAD, 0, 10);
    assert_int_equal(redis_count(t, QUIRE_TIER_MISSING), 5);
    assert_int_equal(redis_count(t, QUIRE_TIER_DONE), 5);
}

static void one_server(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 127, 128, 129, 16383, 16384, 16385, 300000, 2097152};
    redis_server s;
    redis_start(&s, NULL);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        redis_tier t = {.bytes = sizes[i], .config.connections = (uint32_t)(1 + i % 3)};
        redis_tier_open(&t, &s, 1);
        all_operations(&t);
        redis_expect(s.port, "+OK", "FLUSHALL", NULL);
        redis_tier_close(&t);
    }
    redis_forget(&s);
}

static void one_cluster(void **state)
{
    (void)state;
    redis_server s[3];
    redis_tier t = {0};
    redis_start_cluster(s, 3, NULL, NULL);
    redis_tier_open(&t, &s[1], 1);
    all_operations(&t);
    assert_int_equal(redis_stats(&t).slots, 16384);
    assert_int_equal(redis_stats(&t).nodes, 3);
    redis_tier_close(&t);
    for (int i = 0; i < 3; i++)
        redis_forget(&s[i]);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_server),
        cmocka_unit_test(one_cluster),
    };
    is_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    redis_need_server();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

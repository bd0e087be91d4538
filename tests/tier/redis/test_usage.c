/* tier/redis/test_usage.c - how full Redis servers are, as quire_tier_stats says it: real ones that
 * are filled, emptied, limited, killed and put together; and one that lies. */
#include "fake.h"
#include "redis_kit.h"

#include <signal.h>

/* ---- real servers ---------------------------------------------------------- */

enum { USAGE_NS = 20000000, USAGE_MS = 10000 };

static quire_tier_stats stats_of(const redis_tier *t)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(quire_tier_get_stats(t->tier, &stats), QUIRE_OK);
    const quire_usage *u = &stats.usage;
    assert_int_equal(u->total, u->empty + u->cached + u->active + u->null_blocks);
    return stats;
}

/* Until the server has said that it has so many keys. */
static quire_tier_stats await_keys(const redis_tier *t, uint64_t num_keys)
{
    uint64_t since_ms = redis_now_ms();
    quire_tier_stats stats = stats_of(t);
    while (stats.usage.cached != num_keys) {
        redis_sleep_ms(5);
        assert_true(redis_now_ms() - since_ms < USAGE_MS);
        stats = stats_of(t);
    }
    return stats;
}

static void usage_is_the_servers(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {.breaker_ms = 20, .config.usage_ns = USAGE_NS};
    redis_start(&s, "--maxmemory", "8mb", NULL);
    redis_tier_open(&t, &s, 1);
    redis_await_stores(&t, 0, 40);
    quire_tier_stats stats = await_keys(&t, 40);
    assert_true(stats.space.used_bytes > 40 * 10000);
    assert_int_equal(stats.space.capacity_bytes, 8 << 20);
    assert_int_equal(stats.usage.empty,
                     (stats.space.capacity_bytes - stats.space.used_bytes) / (10000 + 128));
    redis_expect(s.port, "+OK", "SET", "somebody", "else", NULL); /* it has its place there too */
    (void)await_keys(&t, 41);
    redis_expect(s.port, "+OK", "CONFIG", "SET", "maxmemory", "0", NULL);
    redis_expect(s.port, "+OK", "FLUSHALL", NULL);
    stats = await_keys(&t, 0);
    while (stats.space.capacity_bytes != 0) { /* the question after the next one, at most */
        redis_sleep_ms(5);
        stats = stats_of(&t);
    }
    assert_int_equal(stats.usage.total, 0); /* no limit: it is what it holds */
    redis_await_stores(&t, 0, 5);
    stats = await_keys(&t, 5);
    redis_end(&s, SIGKILL);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 5);
    redis_sleep_ms(100);
    stats = stats_of(&t);
    assert_int_equal(stats.usage.cached, 5); /* the last that it said */
    redis_start_again(&s);
    redis_await_stores(&t, 0, 3);
    (void)await_keys(&t, 3);
    redis_tier_close(&t);
    redis_forget(&s);
}

/* A user who may not ask: the tier works, and its size is not known. */
static void usage_may_be_forbidden(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {.config.usage_ns = USAGE_NS, .config.user = "quire", .config.password = "pass"};
    redis_start(&s, NULL);
    redis_expect(s.port, "+OK", "ACL", "SETUSER", "quire", "on", ">pass", "~*", "+@all", "-info",
                 "-dbsize", NULL);
    redis_tier_open(&t, &s, 1);
    redis_await_stores(&t, 0, 10);
    redis_sleep_ms(100);
    quire_tier_stats stats = stats_of(&t);
    assert_int_equal(stats.usage.total, 0);
    assert_int_equal(stats.space.used_bytes, 0);
    const char *told = strstr(t.log, "INFO or DBSIZE");
    assert_non_null(told);
    assert_null(strstr(told + 1, "INFO or DBSIZE")); /* once */
    redis_do(&t, QUIRE_TIER_LOAD, 0, 10);
    redis_expect_only(&t, REDIS_BIT(DONE));
    redis_tier_close(&t);
    redis_forget(&s);
}

static void usage_of_a_cluster(void **state)
{
    (void)state;
    enum { NODES = 3, KEYS = 60 };
    redis_server s[NODES];
    char said[256];
    redis_tier t = {.config.usage_ns = USAGE_NS};
    redis_start_cluster(s, NODES, "--maxmemory", "4mb");
    redis_tier_open(&t, s, NODES);
    redis_await_stores(&t, 0, KEYS);
    quire_tier_stats stats = await_keys(&t, KEYS);
    assert_int_equal(stats.space.capacity_bytes, NODES * (4 << 20));
    for (int i = 0; i < NODES; i++) { /* no node has them all */
        redis_say(s[i].port, said, "DBSIZE", NULL);
        int num_keys = atoi(said + 1);
        assert_in_range(num_keys, 1, KEYS - 1);
    }
    redis_expect(s[0].port, "+OK", "FLUSHALL", NULL);
    redis_say(s[1].port, said, "DBSIZE", NULL);
    int left = atoi(said + 1);
    redis_say(s[2].port, said, "DBSIZE", NULL);
    (void)await_keys(&t, (uint64_t)(left + atoi(said + 1)));
    redis_tier_close(&t);
    redis_forget_all(s, NODES);
}

/* The first of two servers does not say any more how full it is: the other one is asked in its own
 * time, while no job wakes the tier up. */
static void usage_of_the_others(void **state)
{
    (void)state;
    enum { NODES = 2, KEYS = 40 };
    redis_server s[NODES];
    char said[256];
    redis_tier t = {.config.usage_ns = USAGE_NS};
    redis_start_cluster(s, NODES, NULL, NULL);
    redis_tier_open(&t, s, NODES);
    redis_await_stores(&t, 0, KEYS);
    (void)await_keys(&t, KEYS);
    redis_expect(s[0].port, "+OK", "ACL", "SETUSER", "default", "-info", "-dbsize", NULL);
    redis_sleep_ms(10 * USAGE_NS / 1000000);
    redis_say(s[1].port, said, "DBSIZE", NULL);
    int num_others = atoi(said + 1);
    assert_in_range(num_others, 1, KEYS - 1);
    redis_expect(s[1].port, "+OK", "FLUSHALL", NULL);
    (void)await_keys(&t, (uint64_t)(KEYS - num_others));
    assert_non_null(strstr(t.log, "INFO or DBSIZE"));
    redis_tier_close(&t);
    redis_forget_all(s, NODES);
}

/* ---- a server that lies ---------------------------------------------------- */

typedef struct lie {
    fake_mode mode;
    bool is_surprise; /* and the connection is closed */
} lie;

/* Numbers that are none are not taken: those before stay. Jobs end as they should. */
static void lies_are_not_taken(void **state)
{
    (void)state;
    static const lie lies[] = {{FAKE_USAGE_STATUS, true},
                               {FAKE_USAGE_EMPTY, false},
                               {FAKE_USAGE_HUGE, false},
                               {FAKE_USAGE_NEGATIVE, true},
                               {FAKE_USAGE_FORBIDDEN, false}};
    for (size_t i = 0; i < COUNT(lies); i++) {
        redis_fake *fake = redis_fake_start();
        redis_tier t = {.breaker_ms = 20, .config.usage_ns = USAGE_NS};
        char address[32];
        const char *addresses[1] = {address};
        (void)snprintf(address, sizeof address, "127.0.0.1:%d", redis_fake_port(fake));
        assert_int_equal(redis_tier_open_at(&t, addresses, 1), QUIRE_OK);
        redis_await_stores(&t, 0, 5);
        quire_tier_stats stats = await_keys(&t, 5);
        assert_int_equal(stats.space.used_bytes, 4096);
        assert_int_equal(stats.space.capacity_bytes, 1000000);
        redis_fake_set(fake, lies[i].mode);
        redis_sleep_ms(150);
        stats = stats_of(&t);
        assert_int_equal(stats.usage.cached, 5);
        assert_int_equal(stats.space.used_bytes, 4096);
        assert_int_equal(redis_stats(&t).surprises > 0, lies[i].is_surprise);
        redis_fake_set(fake, FAKE_WELL);
        redis_await_stores(&t, 0, 8);
        if (lies[i].mode != FAKE_USAGE_FORBIDDEN) /* then it is not asked again */
            (void)await_keys(&t, 8);
        redis_tier_close(&t);
        redis_fake_stop(fake);
    }
}

/* A question without an answer does not hold jobs up beyond their deadline, and ends. */
static void silence_is_bounded(void **state)
{
    (void)state;
    redis_fake *fake = redis_fake_start();
    redis_tier t = {.breaker_ms = 20,
                    .deadline_ms = 300,
                    .config.usage_ns = USAGE_NS,
                    .config.connect_ns = 20000000,
                    .config.late_ns = 20000000,
                    .config.connections = 2};
    char address[32];
    const char *addresses[1] = {address};
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", redis_fake_port(fake));
    redis_fake_set(fake, FAKE_USAGE_NEVER);
    assert_int_equal(redis_tier_open_at(&t, addresses, 1), QUIRE_OK);
    for (int i = 0; i < 5; i++) {
        redis_do(&t, QUIRE_TIER_STORE, 0, 5);
        assert_true(t.took_ms < 300 + REDIS_SLACK_MS);
    }
    redis_sleep_ms(400);
    assert_true(redis_stats(&t).lost > 0); /* the connection with the open question is given up */
    assert_int_equal(stats_of(&t).usage.total, 0);
    redis_fake_set(fake, FAKE_WELL);
    redis_await_stores(&t, 0, 5);
    (void)await_keys(&t, 5);
    redis_tier_close(&t);
    redis_fake_stop(fake);
}

int main(void)
{
    static const struct CMUnitTest fakes[] = {
        cmocka_unit_test(lies_are_not_taken),
        cmocka_unit_test(silence_is_bounded),
    };
    static const struct CMUnitTest servers[] = {
        cmocka_unit_test(usage_is_the_servers),
        cmocka_unit_test(usage_may_be_forbidden),
        cmocka_unit_test(usage_of_a_cluster),
        cmocka_unit_test(usage_of_the_others),
    };
    int failed = cmocka_run_group_tests(fakes, NULL, NULL);
    if (failed != 0)
        return failed;
    redis_need_server();
    return cmocka_run_group_tests(servers, NULL, NULL);
}

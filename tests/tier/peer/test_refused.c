/* tier/peer/test_refused.c - a peer that says no, again and again: it is asked less and less often,
 * and the tier's breaker opens. */
#include "peer_kit.h"

/* What the client believes, and may learn later. */
static int get_rumour(void *user, char *secret, size_t bytes)
{
    (void)snprintf(secret, bytes, "%s", *(const char **)user);
    return 0;
}

/* Jobs without a pause for so long: how often the peer said no. */
static uint64_t count_refusals(peer_kit *k, uint64_t ms)
{
    uint64_t before = peer_served(k).not_proven;
    for (uint64_t end = peer_now_ms() + ms; peer_now_ms() < end; peer_sleep_ms(1))
        peer_do(k, QUIRE_TIER_FIND, 0, 1);
    return peer_served(k).not_proven - before;
}

/* 5, 10, 20, ... 160 ms, with up to 25 % more by chance; without that some sixty times. */
static void a_peer_that_refuses_is_asked_less_and_less_often(void **state)
{
    (void)state;
    const char *rumour = "a secret that is wrong";
    peer_kit k = {.common = {.breaker_strikes = 1000000},
                  .config = {.get_secret = get_rumour, .retry_ns = 5000000}};
    k.config.secret_user = &rumour;
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    assert_in_range(count_refusals(&k, 400), 2, 8);
    assert_in_range(count_refusals(&k, 400), 0, 4);
    assert_null(strstr(k.log, "connected again"));
    const char *told = strstr(k.log, "authentication failed");
    assert_non_null(told);
    assert_null(strstr(told + 1, "authentication failed")); /* one line, not one for each */
    rumour = PEER_SECRET;                                   /* and then it comes back */
    for (uint64_t end = peer_now_ms() + 10000; peer_now_ms() < end; peer_sleep_ms(1)) {
        peer_do(&k, QUIRE_TIER_FIND, 0, 1);
        if (k.ios[0].status == QUIRE_TIER_DONE)
            break;
    }
    assert_int_equal(k.ios[0].status, QUIRE_TIER_DONE);
    assert_non_null(strstr(k.log, "connected again"));
    peer_end(&k);
}

/* The tier's own breaker: where nothing else answers, jobs are not even taken. */
static void a_peer_that_refuses_opens_the_breaker(void **state)
{
    (void)state;
    unsigned char other[QUIRE_FINGERPRINT_BYTES] = {1};
    peer_kit k = {.common = {.breaker_strikes = 3},
                  .config = {.fingerprint = other, .retry_ns = 1000000}};
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    peer_fill(&k, QUIRE_TIER_FIND, 0, 1);
    for (uint64_t end = peer_now_ms() + 10000; peer_now_ms() < end; peer_sleep_ms(1)) {
        int status = quire_tier_submit(k.tier, &k.job);
        if (status == QUIRE_BUSY)
            break;
        assert_int_equal(status, QUIRE_OK);
        peer_wait(&k);
        peer_fill(&k, QUIRE_TIER_FIND, 0, 1);
    }
    assert_int_equal(quire_tier_get_stats(k.tier, &stats), QUIRE_OK);
    assert_int_equal(stats.health, QUIRE_TIER_OPEN);
    assert_int_equal(peer_served(&k).not_same, 3);
    peer_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_refuses_is_asked_less_and_less_often),
        cmocka_unit_test(a_peer_that_refuses_opens_the_breaker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

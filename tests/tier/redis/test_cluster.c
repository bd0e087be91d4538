/* tier/redis/test_cluster.c - the Redis tier on real clusters whose nodes die and whose slots move.
 *
 *      tier_redis_cluster [--long]     all faults; without, those that take no time */
#include "redis_kit.h"

#include <signal.h>

static bool is_long;

#define FAILS (REDIS_BIT(FAILED) | REDIS_BIT(REFUSED))

static void one_cluster(void **state)
{
    (void)state;
    redis_server s[3];
    redis_tier t = {0};
    redis_start_cluster(s, 3, NULL, NULL);
    redis_tier_open(&t, &s[1], 1);
    redis_all_operations(&t);
    assert_int_equal(redis_stats(&t).slots, 16384);
    assert_int_equal(redis_stats(&t).nodes, 3);
    assert_true(redis_stats(&t).refreshed > 0 && redis_stats(&t).bytes_in > 0);
    assert_int_equal(redis_stats(&t).refused, 0);
    redis_tier_close(&t);
    redis_forget_all(s, 3);
}

/* The user of docs/tiers-redis.md can do all that a tier does, and nothing else. */
static void acl_user(void **state)
{
    (void)state;
    redis_server s[3];
    redis_tier t = {.config.user = "quire", .config.password = "pass"};
    redis_start_cluster(s, 3, NULL, NULL);
    for (int i = 0; i < 3; i++)
        redis_expect(s[i].port, "+OK", "ACL", "SETUSER", "quire", "on", ">pass", "~quire:*",
                     "-@all", "+get", "+set", "+del", "+strlen", "+ping", "+auth", "+asking",
                     "+cluster|slots", "+info", "+dbsize", NULL);
    redis_tier_open(&t, s, 1);
    redis_all_operations(&t);
    assert_string_equal(t.log, "");
    for (int i = 0; i < 3; i++)
        redis_expect(s[i].port, "+OK", "ACL", "SETUSER", "quire", "-set", NULL);
    redis_do(&t, QUIRE_TIER_STORE, 500, 20); /* none is there: what is there is not sent again */
    redis_expect_only(&t, REDIS_BIT(FAILED));
    assert_non_null(strstr(t.log, "NOPERM"));
    redis_do(&t, QUIRE_TIER_LOAD, 10, 5); /* who may only read goes on reading */
    redis_expect_only(&t, REDIS_BIT(DONE));
    redis_tier_close(&t);
    redis_forget_all(s, 3);
}

static void cluster_without_slots(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {.deadline_ms = 300};
    redis_start(&s, "--cluster-enabled", "yes", NULL);
    redis_tier_open(&t, &s, 1);
    redis_do(&t, QUIRE_TIER_STORE, 0, 10);
    redis_expect_only(&t, FAILS);
    assert_int_equal(redis_stats(&t).slots, 0);
    redis_expect(s.port, "+OK", "CLUSTER", "ADDSLOTSRANGE", "0", "8000", NULL);
    redis_await_cluster(&s, 1, "cluster_slots_ok:8001");
    redis_do(&t, QUIRE_TIER_STORE, 0, 10); /* all slots are needed: CLUSTERDOWN */
    redis_expect_only(&t, FAILS);
    redis_expect(s.port, "+OK", "CLUSTER", "ADDSLOTSRANGE", "8001", "16383", NULL);
    redis_await_cluster(&s, 1, "cluster_state:ok");
    redis_await_stores(&t, 0, 10);
    redis_tier_close(&t);
    redis_forget(&s);
}

static void one_of_three_dead(void **state)
{
    (void)state;
    redis_server s[3];
    redis_tier t = {.breaker_ms = 300};
    redis_start_cluster(s, 3, NULL, NULL);
    redis_tier_open(&t, s, 3);
    redis_await_stores(&t, 0, 60);
    redis_end(&s[1], SIGKILL);
    uint32_t num_lost = 0;
    for (int i = 0; i < 20; i++) {
        redis_do(&t, QUIRE_TIER_LOAD, 0, 60);
        redis_expect_only(&t, REDIS_BIT(DONE) | FAILS);
        num_lost = 60 - redis_count(&t, QUIRE_TIER_DONE);
        assert_true(num_lost > 0 && num_lost < 40);
        assert_true(t.took_ms < REDIS_SLACK_MS);
    }
    assert_int_equal(redis_stats(&t).nodes_open, 1);
    if (is_long) { /* a node takes its time before it takes part */
        redis_start_again(&s[1]);
        redis_await_stores(&t, 0, 60);
    }
    redis_tier_close(&t);
    redis_forget_all(s, 3);
}

static void node_id(const redis_server *s, char id[64])
{
    char said[256];
    redis_say(s->port, said, "CLUSTER", "MYID", NULL);
    (void)snprintf(id, 64, "%.40s", said);
}

/* Blocks go where a slot is being moved to, and where it has moved. */
static void slots_move(void **state)
{
    (void)state;
    redis_server s[3];
    redis_tier t = {.config.refresh_ns = UINT64_C(3000000000)}; /* so that MOVED is what helps */
    char ids[3][64];
    char key[QR_REDIS_KEY + 1];
    char slot[16];
    int from = 0;
    redis_start_cluster(s, 3, NULL, NULL);
    redis_tier_open(&t, s, 1);
    redis_await_stores(&t, 0, 40);
    for (int i = 0; i < 3; i++)
        node_id(&s[i], ids[i]);
    redis_key_text(&t, 100, key);
    uint16_t number = qr_redis_slot_of(key, strlen(key));
    (void)snprintf(slot, sizeof slot, "%u", number);
    while ((from + 1) * 16384 / 3 <= number)
        from++;
    int to = (from + 1) % 3;
    redis_expect(s[to].port, "+OK", "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from], NULL);
    redis_expect(s[from].port, "+OK", "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to], NULL);
    redis_do(&t, QUIRE_TIER_STORE, 100, 1);
    redis_expect_only(&t, REDIS_BIT(DONE));
    redis_do(&t, QUIRE_TIER_LOAD, 100, 1);
    redis_expect_only(&t, REDIS_BIT(DONE));
    assert_int_equal(redis_stats(&t).asked, 3); /* is it there, SET, GET */
    for (int i = 0; i < 3; i++)
        redis_expect(s[(to + i) % 3].port, "+OK", "CLUSTER", "SETSLOT", slot, "NODE", ids[to],
                     NULL);
    redis_do(&t, QUIRE_TIER_LOAD, 100, 1);
    redis_expect_only(&t, REDIS_BIT(DONE));
    assert_int_equal(redis_stats(&t).moved, 1);
    redis_do(&t, QUIRE_TIER_LOAD, 100, 1); /* now it is known */
    redis_expect_only(&t, REDIS_BIT(DONE));
    assert_int_equal(redis_stats(&t).moved, 1);
    redis_tier_close(&t);
    redis_forget_all(s, 3);
}

/* All slots of one node are given to another: a storm of MOVED, and a new map after it. */
static void all_slots_move(void **state)
{
    (void)state;
    redis_server s[3];
    redis_tier t = {0};
    char id[64];
    redis_start_cluster(s, 3, NULL, NULL);
    redis_tier_open(&t, s, 3);
    redis_await_stores(&t, 0, 60);
    node_id(&s[1], id);
    redis_expect(s[0].port, "+OK", "FLUSHALL", NULL); /* a slot with keys is not given away */
    redis_expect(s[0].port, "+OK", "CLUSTER", "DELSLOTSRANGE", "0", "5460", NULL);
    redis_expect(s[1].port, "+OK", "CLUSTER", "DELSLOTSRANGE", "0", "5460", NULL);
    redis_expect(s[1].port, "+OK", "CLUSTER", "ADDSLOTSRANGE", "0", "5460", NULL);
    redis_expect(s[1].port, "+", "CLUSTER", "BUMPEPOCH", NULL);
    redis_await_stores(&t, 0, 60);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 60);
    redis_expect_only(&t, REDIS_BIT(DONE));
    redis_tier_close(&t);
    redis_forget_all(s, 3);
}

static void replica_takes_over(void **state)
{
    (void)state;
    redis_server s[4];
    redis_tier t = {0};
    char id[64];
    char said[256] = "";
    redis_start_cluster(s, 3, NULL, NULL);
    redis_start(&s[3], "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
                "--cluster-require-full-coverage", "no", NULL);
    redis_meet(&s[3], &s[0]);
    redis_await_cluster(s, 4, "cluster_known_nodes:4");
    redis_await_cluster(&s[3], 1, "cluster_slots_ok:16384");
    node_id(&s[0], id);
    redis_expect(s[3].port, "+OK", "CLUSTER", "REPLICATE", id, NULL);
    redis_tier_open(&t, &s[1], 1);
    redis_await_stores(&t, 0, 60);
    for (int i = 0; i < 500 && strncmp(said, ":1", 2) != 0; i++)
        redis_say(s[0].port, said, "WAIT", "1", "100", NULL);
    redis_sleep_ms(300);
    redis_end(&s[0], SIGKILL);
    uint64_t begin = redis_now_ms();
    do {
        redis_do(&t, QUIRE_TIER_LOAD, 0, 60);
        redis_expect_only(&t, REDIS_BIT(DONE) | FAILS);
        redis_sleep_ms(20);
    } while (redis_count(&t, QUIRE_TIER_DONE) < 60 && redis_now_ms() - begin < 30000);
    redis_expect_only(&t, REDIS_BIT(DONE)); /* all of them: from the replica */
    redis_tier_close(&t);
    redis_forget_all(s, 4);
}

/* ---- everything at once ---------------------------------------------------- */

/* Nodes are killed, stopped, started and emptied at random while blocks come and go. */
static void torture(void **state)
{
    (void)state;
    enum { ROUNDS = 1500 };
    redis_server s[3];
    redis_tier t = {.deadline_ms = 200, .breaker_ms = 20, .config.connect_ns = 100000000};
    uint64_t random = 9;
    uint32_t num_done = 0;
    redis_start_cluster(s, 3, "--maxmemory", "3mb");
    redis_tier_open(&t, s, 3);
    for (int round = 0; round < ROUNDS; round++) {
        redis_server *one = &s[unit_random_below(&random, 3)];
        uint32_t fault = unit_random_below(&random, 40);
        if (fault == 0 && one->pid > 0) {
            redis_signal(one, SIGCONT);
            redis_end(one, SIGKILL);
        } else if (fault == 1) {
            redis_signal(one, SIGSTOP);
        } else if (fault < 16 && one->pid == 0) {
            redis_start_again(one);
        } else if (fault < 16) {
            redis_signal(one, SIGCONT);
        }
        redis_fill(&t, (quire_tier_op)(1 + unit_random_below(&random, 4)),
                   unit_random_below(&random, 200), 1 + unit_random_below(&random, 40));
        assert_int_equal(quire_tier_submit(t.tier, &t.job), QUIRE_OK);
        if (unit_random_below(&random, 10) == 0)
            assert_int_equal(quire_tier_cancel(t.tier, &t.job), QUIRE_OK);
        redis_wait(&t);
        assert_true(t.took_ms < 200 + REDIS_SLACK_MS);
        num_done += redis_count(&t, QUIRE_TIER_DONE);
        if (redis_count(&t, QUIRE_TIER_REFUSED) > 0)
            redis_sleep_ms(3); /* or all rounds are over before a breaker closes */
    }
    printf("%u ios done\n", num_done);
    assert_true(num_done > ROUNDS);
    redis_tier_close(&t);
    redis_forget_all(s, 3);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest quick[] = {
        cmocka_unit_test(one_of_three_dead),
    };
    static const struct CMUnitTest slow[] = {
        cmocka_unit_test(cluster_without_slots),
        cmocka_unit_test(one_cluster),
        cmocka_unit_test(acl_user),
        cmocka_unit_test(slots_move),
        cmocka_unit_test(all_slots_move),
        cmocka_unit_test(replica_takes_over),
        cmocka_unit_test(torture),
    };
    is_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    redis_need_server();
    int failed = cmocka_run_group_tests(quick, NULL, NULL);
    return is_long ? failed + cmocka_run_group_tests(slow, NULL, NULL) : failed;
}

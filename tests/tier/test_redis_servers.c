/* tier/test_redis_servers.c - the Redis tier on real servers that are killed, stopped, restarted,
 * filled and reconfigured under it. Whatever happens: each job ends in bounded time, what a load
 * gives back is what was stored, and nothing is left over.
 *
 *      tier_redis_servers [--long]     all faults; without, those that take no time */
#include "redis_kit.h"
#include "tier/redis_value.h"

#include <signal.h>
#include <unistd.h>

#define FAILS (REDIS_BIT(FAILED) | REDIS_BIT(REFUSED))

static void forget_all(redis_server *servers, int n)
{
    for (int i = 0; i < n; i++)
        redis_forget(&servers[i]);
}

/* Until all of them are stored: breakers need their time, and so do clusters. */
static void await_stores(redis_tier *t, uint32_t key, uint32_t num)
{
    uint64_t begin = redis_now_ms();
    do {
        redis_do(t, QUIRE_TIER_STORE, key, num);
        if (redis_now_ms() - begin > 20000)
            fail_msg("it does not come back; %s", t->log);
        if (redis_count(t, QUIRE_TIER_DONE) < num)
            redis_sleep_ms(10);
    } while (redis_count(t, QUIRE_TIER_DONE) < num);
}

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
    forget_all(s, 3);
}

static void over_a_path(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {0};
    char address[128];
    const char *addresses[1] = {address};
    redis_start(&s, "--unixsocket", "redis.sock", NULL);
    (void)snprintf(address, sizeof address, "unix:%s/redis.sock", s.dir);
    assert_int_equal(redis_tier_open_at(&t, addresses, 1), QUIRE_OK);
    all_operations(&t);
    redis_tier_close(&t);
    redis_forget(&s);
}

/* ---- a server that goes away ----------------------------------------------- */

static void down_at_start(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {0};
    redis_tier waiting = {.config.wait_ns = 100000000};
    char address[32];
    const char *addresses[1] = {address};
    redis_start(&s, NULL);
    redis_end(&s, SIGKILL);
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", s.port);
    assert_int_equal(redis_tier_open_at(&waiting, addresses, 1), QUIRE_E_SYSTEM);
    assert_non_null(strstr(waiting.message, "Connection refused"));
    redis_tier_open(&t, &s, 1);
    for (int i = 0; i < 5; i++) {
        redis_do(&t, QUIRE_TIER_LOAD, 0, 10);
        redis_expect_only(&t, FAILS);
        assert_true(t.took_ms < REDIS_SLACK_MS);
    }
    assert_non_null(strstr(t.log, "Connection refused"));
    redis_start_again(&s);
    await_stores(&t, 0, 10);
    redis_tier_close(&t);
    redis_forget(&s);
}

/* Killed while blocks are on their way, both ways. */
static void killed_in_between(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {.bytes = 1 << 20, .breaker_ms = 20};
    redis_start(&s, NULL);
    redis_tier_open(&t, &s, 1);
    for (int round = 0; round < 6; round++) {
        await_stores(&t, 0, 32);
        redis_fill(&t, round % 2 == 0 ? QUIRE_TIER_STORE : QUIRE_TIER_LOAD, 0, 32);
        assert_int_equal(quire_tier_submit(t.tier, &t.job), QUIRE_OK);
        redis_sleep_ms(round);
        redis_end(&s, SIGKILL);
        redis_wait(&t);
        redis_expect_only(&t, FAILS | REDIS_BIT(DONE));
        redis_start_again(&s);
    }
    await_stores(&t, 0, 32);
    redis_tier_close(&t);
    redis_forget(&s);
}

static void stopped(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {.deadline_ms = 150, .config.connect_ns = 100000000};
    redis_start(&s, NULL);
    redis_tier_open(&t, &s, 1);
    await_stores(&t, 0, 10);
    redis_signal(&s, SIGSTOP);
    for (int i = 0; i < 4; i++) {
        redis_do(&t, i % 2 == 0 ? QUIRE_TIER_LOAD : QUIRE_TIER_STORE, 0, 10);
        redis_expect_only(&t, FAILS);
        assert_true(t.took_ms < 150 + REDIS_SLACK_MS);
    }
    assert_true(redis_stats(&t).nodes_open == 1 || redis_stats(&t).late > 0);
    redis_signal(&s, SIGCONT);
    await_stores(&t, 0, 10);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 10);
    redis_expect_only(&t, REDIS_BIT(DONE));
    redis_tier_close(&t);
    redis_forget(&s);
}

/* Closing with a server that does not answer. */
static void closed_while_stopped(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {.deadline_ms = 60000, .bytes = 1 << 20};
    redis_start(&s, NULL);
    redis_tier_open(&t, &s, 1);
    await_stores(&t, 0, 32);
    redis_signal(&s, SIGSTOP);
    redis_fill(&t, QUIRE_TIER_STORE, 0, 32);
    assert_int_equal(quire_tier_submit(t.tier, &t.job), QUIRE_OK);
    redis_sleep_ms(20);
    uint64_t begin = redis_now_ms();
    assert_int_equal(quire_tier_close(t.tier), QUIRE_OK);
    assert_true(redis_now_ms() - begin < REDIS_SLACK_MS);
    free(t.memory);
    redis_forget(&s);
}

static void filled(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {.bytes = 300000};
    redis_start(&s, "--maxmemory", "5mb", "--maxmemory-policy", "noeviction", NULL);
    redis_tier_open(&t, &s, 1);
    redis_do(&t, QUIRE_TIER_STORE, 0, 40);
    redis_expect_only(&t, REDIS_BIT(DONE) | REDIS_BIT(NO_ROOM));
    assert_true(redis_count(&t, QUIRE_TIER_NO_ROOM) > 10);
    uint32_t num_stored = redis_count(&t, QUIRE_TIER_DONE);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 40);
    assert_int_equal(redis_count(&t, QUIRE_TIER_DONE), num_stored);
    assert_int_equal(redis_count(&t, QUIRE_TIER_MISSING), 40 - num_stored);
    assert_int_equal(redis_stats(&t).lost, 0);
    redis_expect(s.port, "+OK", "CONFIG", "SET", "maxmemory-policy", "allkeys-lru", NULL);
    await_stores(&t, 0, 40); /* it evicts */
    redis_tier_close(&t);
    redis_forget(&s);
}

static void loading(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {0};
    redis_start(&s, "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024",
                NULL);
    redis_tier_open(&t, &s, 1);
    await_stores(&t, 0, 50);
    redis_expect(s.port, "+OK", "SAVE", NULL);
    redis_end(&s, SIGKILL);
    redis_start_again(&s);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 50);
    redis_expect_only(&t, FAILS);
    uint64_t begin = redis_now_ms();
    while (redis_count(&t, QUIRE_TIER_DONE) < 50 && redis_now_ms() - begin < 20000) {
        redis_sleep_ms(20);
        redis_do(&t, QUIRE_TIER_LOAD, 0, 50);
    }
    redis_expect_only(&t, REDIS_BIT(DONE)); /* a restart does not lose what was saved */
    redis_tier_close(&t);
    redis_forget(&s);
}

/* ---- who may do what ------------------------------------------------------- */

static void passwords(void **state)
{
    (void)state;
    redis_server s;
    redis_start(&s, "--requirepass", "right", NULL);
    static const struct {
        const char *password;
        const char *log;
    } cases[] = {{NULL, "NOAUTH"}, {"wrong-secret", "WRONGPASS"}, {"right", NULL}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        redis_tier t = {.config.password = cases[i].password};
        redis_tier_open(&t, &s, 1);
        redis_do(&t, QUIRE_TIER_STORE, 0, 5);
        redis_expect_only(&t, cases[i].log == NULL ? REDIS_BIT(DONE) : FAILS);
        if (cases[i].log != NULL)
            assert_non_null(strstr(t.log, cases[i].log));
        assert_null(strstr(t.log, "wrong-secret"));
        redis_tier_close(&t);
    }
    redis_forget(&s);
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
                     "+cluster|slots", NULL);
    redis_tier_open(&t, s, 1);
    all_operations(&t);
    assert_string_equal(t.log, "");
    for (int i = 0; i < 3; i++)
        redis_expect(s[i].port, "+OK", "ACL", "SETUSER", "quire", "-set", NULL);
    redis_do(&t, QUIRE_TIER_STORE, 0, 20);
    redis_expect_only(&t, REDIS_BIT(FAILED));
    assert_non_null(strstr(t.log, "NOPERM"));
    redis_do(&t, QUIRE_TIER_LOAD, 10, 5); /* who may only read goes on reading */
    redis_expect_only(&t, REDIS_BIT(DONE));
    redis_tier_close(&t);
    forget_all(s, 3);
}

static void read_only(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {0};
    redis_start(&s, NULL);
    redis_tier_open(&t, &s, 1);
    await_stores(&t, 0, 10);
    redis_expect(s.port, "+OK", "REPLICAOF", "127.0.0.1", "1", NULL);
    redis_do(&t, QUIRE_TIER_STORE, 0, 10);
    redis_expect_only(&t, FAILS);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 10);
    redis_expect_only(&t, REDIS_BIT(DONE) | FAILS);
    redis_expect(s.port, "+OK", "REPLICAOF", "NO", "ONE", NULL);
    await_stores(&t, 0, 10);
    redis_tier_close(&t);
    redis_forget(&s);
}

/* ---- values that others touched -------------------------------------------- */

static void key_text(const redis_tier *t, uint32_t n, char *text)
{
    qr_redis_space space;
    quire_tier_key key = faulty_key(n);
    qr_redis_space_init(&space, "quire", t->fingerprint);
    text[qr_redis_key_write(&space, &key, 0, text)] = 0;
}

static void touched_values(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {0};
    char keys[6][QR_REDIS_KEY + 1];
    redis_start(&s, NULL);
    redis_tier_open(&t, &s, 1);
    await_stores(&t, 0, 7);
    for (uint32_t i = 0; i < 6; i++)
        key_text(&t, i, keys[i]);
    redis_expect(s.port, ":", "APPEND", keys[0], "x", NULL);            /* longer */
    redis_expect(s.port, ":", "SETRANGE", keys[1], "9999", "##", NULL); /* another byte */
    redis_expect(s.port, ":", "SETRANGE", keys[2], "20", "#", NULL);    /* another fingerprint */
    redis_expect(s.port, "+OK", "RENAME", keys[3], keys[4], NULL);      /* another block */
    redis_expect(s.port, "+OK", "SET", keys[5], "short", NULL);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 7);
    static const quire_tier_status expected[7] = {
        QUIRE_TIER_WRONG, QUIRE_TIER_WRONG, QUIRE_TIER_WRONG, QUIRE_TIER_MISSING,
        QUIRE_TIER_WRONG, QUIRE_TIER_WRONG, QUIRE_TIER_DONE};
    for (int i = 0; i < 7; i++)
        assert_int_equal(t.status[i], expected[i]);
    redis_do(&t, QUIRE_TIER_FIND, 0, 7); /* removed */
    assert_int_equal(redis_count(&t, QUIRE_TIER_MISSING), 6);
    redis_expect(s.port, ":1", "LPUSH", keys[0], "x", NULL);
    redis_do(&t, QUIRE_TIER_FIND, 0, 1);
    redis_expect_only(&t, REDIS_BIT(MISSING));
    redis_do(&t, QUIRE_TIER_LOAD, 0, 1);
    redis_expect_only(&t, REDIS_BIT(WRONG));
    await_stores(&t, 0, 1); /* between FIND and LOAD it is evicted */
    redis_do(&t, QUIRE_TIER_FIND, 0, 1);
    redis_expect_only(&t, REDIS_BIT(DONE));
    redis_expect(s.port, ":1", "DEL", keys[0], NULL);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 1);
    redis_expect_only(&t, REDIS_BIT(MISSING));
    redis_tier_close(&t);
    redis_forget(&s);
}

/* Other fingerprints never meet, and blocks go after their time. */
static void namespaces(void **state)
{
    (void)state;
    redis_server s;
    redis_tier a = {.config.ttl_ms = 100};
    redis_tier b = {.config.prefix = "others"};
    redis_start(&s, NULL);
    redis_tier_open(&a, &s, 1);
    redis_tier_open(&b, &s, 1);
    await_stores(&b, 0, 5);
    redis_do(&a, QUIRE_TIER_FIND, 0, 5);
    redis_expect_only(&a, REDIS_BIT(MISSING));
    await_stores(&a, 0, 5);
    redis_sleep_ms(200);
    redis_do(&a, QUIRE_TIER_FIND, 0, 5);
    redis_expect_only(&a, REDIS_BIT(MISSING));
    redis_tier_close(&a);
    redis_tier_close(&b);
    redis_forget(&s);
}

/* ---- clusters -------------------------------------------------------------- */

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
    await_stores(&t, 0, 10);
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
    await_stores(&t, 0, 60);
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
    redis_start_again(&s[1]);
    await_stores(&t, 0, 60);
    redis_tier_close(&t);
    forget_all(s, 3);
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
    await_stores(&t, 0, 40);
    for (int i = 0; i < 3; i++)
        node_id(&s[i], ids[i]);
    key_text(&t, 100, key);
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
    assert_int_equal(redis_stats(&t).asked, 2);
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
    forget_all(s, 3);
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
    await_stores(&t, 0, 60);
    node_id(&s[1], id);
    redis_expect(s[0].port, "+OK", "FLUSHALL", NULL); /* a slot with keys is not given away */
    redis_expect(s[0].port, "+OK", "CLUSTER", "DELSLOTSRANGE", "0", "5460", NULL);
    redis_expect(s[1].port, "+OK", "CLUSTER", "DELSLOTSRANGE", "0", "5460", NULL);
    redis_expect(s[1].port, "+OK", "CLUSTER", "ADDSLOTSRANGE", "0", "5460", NULL);
    redis_expect(s[1].port, "+", "CLUSTER", "BUMPEPOCH", NULL);
    await_stores(&t, 0, 60);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 60);
    redis_expect_only(&t, REDIS_BIT(DONE));
    redis_tier_close(&t);
    forget_all(s, 3);
}

static void replica_takes_over(void **state)
{
    (void)state;
    redis_server s[4];
    redis_tier t = {0};
    char id[64];
    char port[16];
    char said[256] = "";
    redis_start_cluster(s, 3, NULL, NULL);
    redis_start(&s[3], "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
                "--cluster-require-full-coverage", "no", NULL);
    (void)snprintf(port, sizeof port, "%d", s[0].port);
    (void)snprintf(said, sizeof said, "%d", s[0].port + 10000);
    redis_expect(s[3].port, "+OK", "CLUSTER", "MEET", "127.0.0.1", port, said, NULL);
    redis_await_cluster(s, 4, "cluster_known_nodes:4");
    redis_await_cluster(&s[3], 1, "cluster_slots_ok:16384");
    node_id(&s[0], id);
    redis_expect(s[3].port, "+OK", "CLUSTER", "REPLICATE", id, NULL);
    redis_tier_open(&t, &s[1], 1);
    await_stores(&t, 0, 60);
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
    forget_all(s, 4);
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
        } else if (fault < 8 && one->pid == 0) {
            redis_start_again(one);
        } else if (fault < 8) {
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
    }
    printf("%u ios done\n", num_done);
    assert_true(num_done > ROUNDS);
    redis_tier_close(&t);
    forget_all(s, 3);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest quick[] = {
        cmocka_unit_test(one_server),
        cmocka_unit_test(over_a_path),
        cmocka_unit_test(down_at_start),
        cmocka_unit_test(stopped),
        cmocka_unit_test(filled),
        cmocka_unit_test(passwords),
        cmocka_unit_test(read_only),
        cmocka_unit_test(touched_values),
        cmocka_unit_test(namespaces),
        cmocka_unit_test(cluster_without_slots),
        cmocka_unit_test(one_of_three_dead),
    };
    static const struct CMUnitTest slow[] = {
        cmocka_unit_test(one_cluster),
        cmocka_unit_test(killed_in_between),
        cmocka_unit_test(closed_while_stopped),
        cmocka_unit_test(loading),
        cmocka_unit_test(acl_user),
        cmocka_unit_test(slots_move),
        cmocka_unit_test(all_slots_move),
        cmocka_unit_test(replica_takes_over),
        cmocka_unit_test(torture),
    };
    bool is_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    redis_need_server();
    int failed = cmocka_run_group_tests(quick, NULL, NULL);
    return is_long ? failed + cmocka_run_group_tests(slow, NULL, NULL) : failed;
}

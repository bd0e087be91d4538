/* tier/redis/test_servers.c - the Redis tier on real servers that are killed, stopped, restarted,
 * filled and reconfigured under it. Whatever happens: each job ends in bounded time, what a load
 * gives back is what was stored, and nothing is left over.
 *
 *      tier_redis_servers [--long]     all faults; without, those that take no time */
#include "redis_kit.h"

#include <signal.h>
#include <unistd.h>

#define FAILS (REDIS_BIT(FAILED) | REDIS_BIT(REFUSED))

/* ---- a server that is well ------------------------------------------------- */

static void one_server(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 127, 128, 129, 16383, 16384, 16385, 300000, 2097152};
    redis_server s;
    redis_start(&s, NULL);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        redis_tier t = {.bytes = sizes[i], .config.connections = (uint32_t)(1 + i % 3)};
        redis_tier_open(&t, &s, 1);
        redis_all_operations(&t);
        redis_expect(s.port, "+OK", "FLUSHALL", NULL);
        redis_tier_close(&t);
    }
    redis_forget(&s);
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
    redis_all_operations(&t);
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
    assert_non_null(strstr(quire_refusal(), "Connection refused"));
    redis_tier_open(&t, &s, 1);
    for (int i = 0; i < 5; i++) {
        redis_do(&t, QUIRE_TIER_LOAD, 0, 10);
        redis_expect_only(&t, FAILS);
        assert_true(t.took_ms < REDIS_SLACK_MS);
    }
    assert_non_null(strstr(t.log, "Connection refused"));
    redis_start_again(&s);
    redis_await_stores(&t, 0, 10);
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
        redis_await_stores(&t, 0, 32);
        redis_fill(&t, round % 2 == 0 ? QUIRE_TIER_STORE : QUIRE_TIER_LOAD, 0, 32);
        assert_int_equal(quire_tier_submit(t.tier, &t.job), QUIRE_OK);
        redis_sleep_ms(round);
        redis_end(&s, SIGKILL);
        redis_wait(&t);
        redis_expect_only(&t, FAILS | REDIS_BIT(DONE));
        redis_start_again(&s);
    }
    redis_await_stores(&t, 0, 32);
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
    redis_await_stores(&t, 0, 10);
    redis_signal(&s, SIGSTOP);
    for (int i = 0; i < 4; i++) {
        redis_do(&t, i % 2 == 0 ? QUIRE_TIER_LOAD : QUIRE_TIER_STORE, 0, 10);
        redis_expect_only(&t, FAILS);
        assert_true(t.took_ms < 150 + REDIS_SLACK_MS);
    }
    assert_true(redis_stats(&t).nodes_open == 1 || redis_stats(&t).late > 0);
    redis_signal(&s, SIGCONT);
    redis_await_stores(&t, 0, 10);
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
    redis_await_stores(&t, 0, 32);
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
    redis_await_stores(&t, 0, 40); /* it evicts */
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
    redis_await_stores(&t, 0, 50);
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

/* Bytes that came to the server, by its own count. */
static uint64_t received_by(const redis_server *s)
{
    static const char NAME[] = "total_net_input_bytes:";
    char said[256];
    redis_say(s->port, said, "INFO", "stats", NULL);
    const char *at = strstr(said, NAME);
    assert_non_null(at);
    return strtoull(at + sizeof NAME - 1, NULL, 10);
}

static void read_only(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {0};
    redis_start(&s, NULL);
    redis_tier_open(&t, &s, 1);
    redis_await_stores(&t, 0, 10);
    redis_expect(s.port, "+OK", "REPLICAOF", "127.0.0.1", "1", NULL);
    redis_do(&t, QUIRE_TIER_STORE, 20, 10);
    redis_expect_only(&t, FAILS);
    redis_do(&t, QUIRE_TIER_LOAD, 0, 10);
    redis_expect_only(&t, REDIS_BIT(DONE) | FAILS);
    redis_expect(s.port, "+OK", "REPLICAOF", "NO", "ONE", NULL);
    redis_await_stores(&t, 0, 10);
    redis_tier_close(&t);
    redis_forget(&s);
}

/* A password that changes: each new connection asks for it, in the file or from the caller. */
static const char *current_password;

static int give_password(void *user, char *password, size_t bytes)
{
    ++*(int *)user;
    if (current_password == NULL)
        return 1;
    (void)snprintf(password, bytes, "%s", current_password);
    return 0;
}

static void write_password(const char *path, const char *password)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file, "%s\n", password);
    fclose(file);
    current_password = password;
}

static void passwords_change(void **state)
{
    (void)state;
    for (int from_file = 0; from_file < 2; from_file++) {
        char path[] = "/tmp/quire_password_XXXXXX";
        int num_asked = 0;
        redis_server s;
        redis_tier t = {.breaker_ms = 20};
        close(mkstemp(path));
        redis_start(&s, "--requirepass", "first", NULL);
        write_password(path, "first");
        if (from_file != 0)
            t.config.password_file = path;
        else
            t.config.get_password = give_password;
        t.config.password_user = &num_asked;
        redis_tier_open(&t, &s, 1);
        redis_await_stores(&t, 0, 5);
        redis_end(&s, SIGKILL);
        s.arguments[1] = "second"; /* the server's new one */
        redis_start_again(&s);
        write_password(path, "second");
        redis_await_stores(&t, 0, 5);
        current_password = NULL; /* none from the caller: the one before is used */
        redis_end(&s, SIGKILL);
        redis_start_again(&s);
        redis_await_stores(&t, 0, 5);
        assert_true(from_file != 0 || num_asked >= 2);
        assert_null(strstr(t.log, "second"));
        redis_tier_close(&t);
        redis_forget(&s);
        unlink(path);
    }
}

/* What the server has is not sent to it again, by whichever engine. */
static void present_is_not_sent(void **state)
{
    (void)state;
    enum { NUM = 32, BYTES = 100000 };
    redis_server s;
    redis_tier a = {.bytes = BYTES};
    redis_tier b = {.bytes = BYTES};
    redis_start(&s, NULL);
    redis_tier_open(&a, &s, 1);
    redis_tier_open(&b, &s, 1);
    redis_await_stores(&a, 0, NUM);
    uint64_t sent = redis_stats(&a).bytes_out;
    assert_true(sent >= NUM * BYTES);
    assert_int_equal(redis_stats(&a).present, 0);
    uint64_t received = received_by(&s);
    assert_true(received >= NUM * BYTES);
    redis_do(&b, QUIRE_TIER_STORE, 0, NUM); /* another engine, */
    redis_expect_only(&b, REDIS_BIT(DONE));
    redis_do(&a, QUIRE_TIER_STORE, 0, NUM); /* and the same one once more */
    redis_expect_only(&a, REDIS_BIT(DONE));
    assert_int_equal(redis_stats(&b).present, NUM);
    assert_int_equal(redis_stats(&a).present, NUM);
    assert_true(redis_stats(&b).bytes_out < NUM * 400);
    assert_true(received_by(&s) - received < 2 * NUM * 400);
    redis_do(&b, QUIRE_TIER_LOAD, 0, NUM);
    redis_expect_only(&b, REDIS_BIT(DONE));
    char key[256]; /* of another length, or of another type: it is replaced */
    redis_key_text(&a, 3, key);
    redis_expect(s.port, "+OK", "SET", key, "short", NULL);
    redis_key_text(&a, 4, key);
    redis_expect(s.port, ":1", "DEL", key, NULL);
    redis_expect(s.port, ":1", "SADD", key, "member", NULL);
    redis_do(&b, QUIRE_TIER_STORE, 0, NUM);
    redis_expect_only(&b, REDIS_BIT(DONE));
    assert_int_equal(redis_stats(&b).present, 2 * NUM - 2);
    redis_do(&a, QUIRE_TIER_LOAD, 0, NUM);
    redis_expect_only(&a, REDIS_BIT(DONE));
    redis_tier_close(&a);
    redis_tier_close(&b);
    redis_forget(&s);
}

/* Two engines; one gets new weights: it finds nothing of before, the other keeps its blocks. */
static void identities(void **state)
{
    (void)state;
    static const unsigned char next[QUIRE_FINGERPRINT_BYTES] = {3, 2, 1};
    redis_server s;
    redis_tier a = {0};
    redis_tier b = {0};
    redis_start(&s, NULL);
    redis_tier_open(&a, &s, 1);
    redis_tier_open(&b, &s, 1);
    redis_await_stores(&a, 0, 10);
    assert_int_equal(quire_tier_reset(a.tier), QUIRE_E_IDENTITY); /* b uses them */
    redis_do(&a, QUIRE_TIER_LOAD, 0, 10);
    redis_expect_only(&a, REDIS_BIT(DONE));
    assert_int_equal(quire_tier_set_identity(a.tier, next), QUIRE_OK);
    redis_do(&a, QUIRE_TIER_FIND, 0, 10);
    redis_expect_only(&a, REDIS_BIT(MISSING));
    redis_await_stores(&a, 20, 10);
    redis_do(&b, QUIRE_TIER_LOAD, 0, 10);
    redis_expect_only(&b, REDIS_BIT(DONE));
    redis_do(&b, QUIRE_TIER_LOAD, 20, 10);
    redis_expect_only(&b, REDIS_BIT(MISSING));
    redis_tier_close(&a);
    a = (redis_tier){0};
    memcpy(a.fingerprint, next, sizeof next); /* the next life of the new identity */
    redis_tier_open(&a, &s, 1);
    redis_do(&a, QUIRE_TIER_LOAD, 0, 10);
    redis_expect_only(&a, REDIS_BIT(MISSING));
    redis_do(&a, QUIRE_TIER_LOAD, 20, 10);
    redis_expect_only(&a, REDIS_BIT(DONE));
    redis_tier_close(&a);
    redis_tier_close(&b);
    redis_forget(&s);
}

/* ---- values that others touched -------------------------------------------- */

static void touched_values(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {0};
    char keys[6][QR_REDIS_KEY + 1];
    redis_start(&s, NULL);
    redis_tier_open(&t, &s, 1);
    redis_await_stores(&t, 0, 7);
    for (uint32_t i = 0; i < 6; i++)
        redis_key_text(&t, i, keys[i]);
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
    redis_await_stores(&t, 0, 1); /* between FIND and LOAD it is evicted */
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
    /* One block at a time may be on its way: slower, and all arrive. */
    redis_tier b = {
        .config.prefix = "others", .config.window_bytes = 1, .config.load_window_bytes = 1};
    redis_start(&s, NULL);
    redis_tier_open(&a, &s, 1);
    redis_tier_open(&b, &s, 1);
    redis_await_stores(&b, 0, 5);
    redis_do(&a, QUIRE_TIER_FIND, 0, 5);
    redis_expect_only(&a, REDIS_BIT(MISSING));
    redis_await_stores(&a, 0, 5);
    redis_sleep_ms(200);
    redis_do(&a, QUIRE_TIER_FIND, 0, 5);
    redis_expect_only(&a, REDIS_BIT(MISSING));
    redis_tier_close(&a);
    redis_tier_close(&b);
    redis_forget(&s);
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
        cmocka_unit_test(passwords_change),
        cmocka_unit_test(present_is_not_sent),
        cmocka_unit_test(identities),
    };
    static const struct CMUnitTest slow[] = {
        cmocka_unit_test(killed_in_between),
        cmocka_unit_test(closed_while_stopped),
        cmocka_unit_test(loading),
    };
    bool is_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    redis_need_server();
    int failed = cmocka_run_group_tests(quick, NULL, NULL);
    return is_long ? failed + cmocka_run_group_tests(slow, NULL, NULL) : failed;
}

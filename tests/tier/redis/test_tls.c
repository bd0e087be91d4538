/* tier/redis/test_tls.c - TLS with a real server: certificates are checked, both ways, and who is
 * not who he should be gets nothing. Skips without redis-server, the program openssl, or libssl. */
#include "redis_kit.h"
#include "tls_kit.h"

static int tls_port;

static void expect_tls(redis_tier *t, bool is_good, const char *log)
{
    static char address[32];
    static const char *addresses[1] = {address};
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", tls_port);
    t->config.tls = 1;
    assert_int_equal(redis_tier_open_at(t, addresses, 1), QUIRE_OK);
    redis_do(t, QUIRE_TIER_STORE, 0, 10);
    redis_expect_only(t, is_good ? REDIS_BIT(DONE) : REDIS_BIT(FAILED) | REDIS_BIT(REFUSED));
    redis_do(t, QUIRE_TIER_LOAD, 0, 10);
    redis_expect_only(t, is_good ? REDIS_BIT(DONE) : REDIS_BIT(FAILED) | REDIS_BIT(REFUSED));
    if (log != NULL && strstr(t->log, log) == NULL)
        fail_msg("\"%s\" is not in the log: %s", log, t->log);
    redis_tier_close(t);
}

static void certificates_are_checked(void **state)
{
    (void)state;
    redis_server s;
    char port[16];
    redis_start(&s, "--tls-cert-file", tls_file("server.crt"), "--tls-key-file",
                tls_file("server.key"), "--tls-ca-cert-file", tls_file("client.crt"),
                "--tls-auth-clients", "optional", NULL);
    (void)snprintf(port, sizeof port, "%d", redis_free_port());
    tls_port = atoi(port);
    redis_expect(s.port, "+OK", "CONFIG", "SET", "tls-port", port, NULL);

    redis_tier good = {.config.tls_ca_file = tls_file("server.crt"), .bytes = 300000};
    expect_tls(&good, true, NULL);
    redis_tier named = {.config.tls_ca_file = tls_file("server.crt"),
                        .config.tls_server_name = "redis.test"};
    expect_tls(&named, true, NULL);
    redis_tier misnamed = {.config.tls_ca_file = tls_file("server.crt"),
                           .config.tls_server_name = "other.test"};
    expect_tls(&misnamed, false, "hostname mismatch");
    redis_tier stranger = {.config.tls_ca_file = tls_file("client.crt")};
    expect_tls(&stranger, false, "certificate");
    redis_tier system = {0};
    expect_tls(&system, false, "certificate");
    redis_tier any = {.config.tls_trust_any = 1};
    expect_tls(&any, true, NULL);

    redis_expect(s.port, "+OK", "CONFIG", "SET", "tls-auth-clients", "yes", NULL);
    redis_tier nobody = {.config.tls_ca_file = tls_file("server.crt")};
    expect_tls(&nobody, false, "asks for a certificate");
    redis_tier somebody = {.config.tls_ca_file = tls_file("server.crt"),
                           .config.tls_cert_file = tls_file("client.crt"),
                           .config.tls_key_file = tls_file("client.key")};
    expect_tls(&somebody, true, NULL);
    redis_forget(&s);
}

/* TLS to a server that speaks none, and the other way round. */
static void one_side_alone(void **state)
{
    (void)state;
    redis_server s;
    redis_tier t = {.config.tls_trust_any = 1, .config.tls = 1, .config.connect_ns = 200000000};
    redis_start(&s, NULL);
    redis_tier_open(&t, &s, 1);
    redis_do(&t, QUIRE_TIER_STORE, 0, 3);
    redis_expect_only(&t, REDIS_BIT(FAILED) | REDIS_BIT(REFUSED));
    redis_tier_close(&t);
    redis_forget(&s);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_are_checked),
        cmocka_unit_test(one_side_alone),
    };
    redis_need_server();
    if (!tls_kit_open("redis")) {
        printf("skipped: no TLS here\n");
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tls_kit_close();
    return failed;
}

/* tier/peer/test_tls.c - TLS between peers: certificates are checked, both ways, and who is not who
 * he should be gets nothing. Skips without the program openssl, or libssl. */
#include "peer_kit.h"
#include "tier/redis/tls_kit.h"

static void expect_log(const peer_kit *k, const char *log)
{
    if (strstr(k->log, log) == NULL)
        fail_msg("\"%s\" is not in the log: %s", log, k->log);
}

static void expect_tls(peer_kit *k, bool is_good, const char *log)
{
    k->num_blocks = 20;
    k->bytes = 300000;
    k->server_config.tls = 1;
    k->server_config.tls_cert_file = tls_file("server.crt");
    k->server_config.tls_key_file = tls_file("server.key");
    k->config.tls = 1;
    assert_int_equal(peer_serve(k), QUIRE_OK);
    assert_int_equal(peer_connect(k), QUIRE_OK);
    for (int round = 0; round < 2; round++) {
        peer_do(k, QUIRE_TIER_FIND, 0, 21);
        assert_int_equal(peer_status_count(k, QUIRE_TIER_DONE), is_good ? 20 : 0);
        peer_do(k, QUIRE_TIER_LOAD, 0, 21);
        assert_int_equal(peer_status_count(k, QUIRE_TIER_DONE), is_good ? 20 : 0);
        assert_int_equal(peer_status_count(k, QUIRE_TIER_MISSING), is_good ? 1 : 0);
    }
    if (log != NULL)
        expect_log(k, log);
    peer_end(k);
}

static void certificates_are_checked(void **state)
{
    (void)state;
    peer_kit good = {.config.tls_ca_file = tls_file("server.crt")};
    expect_tls(&good, true, NULL);
    peer_kit named = {.config.tls_ca_file = tls_file("server.crt"),
                      .config.tls_server_name = "peer.test"};
    expect_tls(&named, true, NULL);
    peer_kit misnamed = {.config.tls_ca_file = tls_file("server.crt"),
                         .config.tls_server_name = "other.test"};
    expect_tls(&misnamed, false, "hostname mismatch");
    peer_kit stranger = {.config.tls_ca_file = tls_file("client.crt")};
    expect_tls(&stranger, false, "certificate");
    peer_kit any = {.config.tls_trust_any = 1};
    expect_tls(&any, true, NULL);
}

static void the_server_may_ask_for_certificates(void **state)
{
    (void)state;
    peer_kit nobody = {.server_config.tls_ca_file = tls_file("client.crt"),
                       .config.tls_ca_file = tls_file("server.crt")};
    expect_tls(&nobody, false, "asks for a certificate: set tls_cert_file and tls_key_file");
    peer_kit stranger = {.server_config.tls_ca_file = tls_file("client.crt"),
                         .config.tls_ca_file = tls_file("server.crt"),
                         .config.tls_cert_file = tls_file("server.crt"),
                         .config.tls_key_file = tls_file("server.key")};
    expect_tls(&stranger, false, "alert");
    peer_kit known = {.server_config.tls_ca_file = tls_file("client.crt"),
                      .config.tls_ca_file = tls_file("server.crt"),
                      .config.tls_cert_file = tls_file("client.crt"),
                      .config.tls_key_file = tls_file("client.key")};
    expect_tls(&known, true, NULL);
}

/* As another client sees it: the server says whose certificates it takes, so that one who has
 * several can choose. */
static void the_server_names_whom_it_trusts(void **state)
{
    (void)state;
    peer_kit k = {.server_config = {.tls = 1,
                                    .tls_cert_file = tls_file("server.crt"),
                                    .tls_key_file = tls_file("server.key"),
                                    .tls_ca_file = tls_file("client.crt")}};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_true(tls_client_prints(quire_peer_server_port(k.server),
                                  "Acceptable client certificate CA names"));
    peer_end(&k);
}

/* A secret is asked for inside TLS too. */
static void tls_does_not_replace_the_secret(void **state)
{
    (void)state;
    peer_kit k = {
        .config = {.tls_ca_file = tls_file("server.crt"), .secret = "another secret of the tests"}};
    expect_tls(&k, false, "authentication failed");
}

/* TLS to a server that speaks none, and the other way round. */
static void one_side_alone(void **state)
{
    (void)state;
    peer_kit client = {.config = {.tls = 1, .tls_trust_any = 1, .connect_ns = 200000000}};
    assert_int_equal(peer_serve(&client), QUIRE_OK);
    assert_int_equal(peer_connect(&client), QUIRE_OK);
    peer_do(&client, QUIRE_TIER_LOAD, 0, 3);
    assert_int_equal(peer_status_count(&client, QUIRE_TIER_FAILED), 3);
    expect_log(&client, "may not speak TLS");
    peer_end(&client);
    peer_kit server = {.server_config = {.tls = 1,
                                         .tls_cert_file = tls_file("server.crt"),
                                         .tls_key_file = tls_file("server.key")}};
    assert_int_equal(peer_serve(&server), QUIRE_OK);
    assert_int_equal(peer_connect(&server), QUIRE_OK);
    peer_do(&server, QUIRE_TIER_LOAD, 0, 3);
    assert_int_equal(peer_status_count(&server, QUIRE_TIER_FAILED), 3);
    expect_log(&server, "the peer expects TLS");
    peer_end(&server);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_are_checked),
        cmocka_unit_test(the_server_may_ask_for_certificates),
        cmocka_unit_test(the_server_names_whom_it_trusts),
        cmocka_unit_test(tls_does_not_replace_the_secret),
        cmocka_unit_test(one_side_alone),
    };
    if (!tls_kit_open("peer")) {
        printf("skipped: no TLS here\n");
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tls_kit_close();
    return failed;
}

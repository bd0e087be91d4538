/* tier/peer/test_peer.c - the peer tier and its server: what is offered is found and loaded; other
 * secrets and identities get nothing; every field that comes over the wire has its edges. */
#include "peer_kit.h"

#include "tier/peer/wire.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void blocks_are_found_and_loaded(void **state)
{
    (void)state;
    peer_kit k = {.num_blocks = 280};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    k.config.wait_ns = UINT64_C(5000000000);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    assert_string_equal(quire_tier_label(k.tier), "peer");
    assert_string_equal(quire_tier_medium(k.tier), "PEER");
    const quire_tier_caps *caps = quire_tier_get_caps(k.tier);
    assert_int_equal(caps->is_shared + caps->checks_crc + caps->is_read_only, 3);
    peer_do(&k, QUIRE_TIER_FIND, 0, 290); /* more than one FIND takes */
    for (uint32_t i = 0; i < 290; i++) {
        assert_int_equal(k.ios[i].status, i < 280 ? QUIRE_TIER_DONE : QUIRE_TIER_MISSING);
        assert_int_equal(k.ios[i].bytes, k.bytes);
    }
    for (int round = 0; round < 2; round++) { /* the second time the server knows all CRCs */
        peer_do(&k, QUIRE_TIER_LOAD, 0, 290);
        assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 280);
        assert_int_equal(peer_status_count(&k, QUIRE_TIER_MISSING), 10);
    }
    peer_do(&k, QUIRE_TIER_STORE, 0, 3);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_REFUSED), 3);
    peer_do(&k, QUIRE_TIER_REMOVE, 0, 3);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_REFUSED), 3);
    peer_fill(&k, QUIRE_TIER_LOAD, 0, 2);
    k.ios[1].bytes--;
    assert_int_equal(quire_tier_submit(k.tier, &k.job), QUIRE_OK);
    peer_wait(&k);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(k.ios[1].status, QUIRE_TIER_WRONG);
    quire_peer_server_stats stats = peer_served(&k);
    assert_int_equal(stats.offered, 280);
    assert_int_equal(stats.keys_found, 280);
    assert_int_equal(stats.keys_missing, 10);
    assert_int_equal(stats.blocks_sent, 561);
    assert_int_equal(stats.bytes_sent, 561 * (uint64_t)k.bytes);
    assert_int_equal(stats.blocks_missing, 21);
    assert_in_range(stats.connections, 1, 2);
    assert_int_equal(stats.accepted, stats.connections);
    assert_int_equal(stats.bad_frames + stats.blocks_void + stats.stalled + stats.turned_away, 0);
    quire_tier_peer_stats tier = peer_stats(&k);
    assert_int_equal(tier.connections, stats.connections);
    assert_int_equal(tier.connected, stats.accepted);
    assert_int_equal(tier.wrong, 1);
    assert_int_equal(tier.lost + tier.surprises + tier.voided + tier.late + tier.refused, 0);
    assert_true(tier.bytes_in > 561 * (uint64_t)k.bytes);
    assert_int_equal(quire_tier_reset(k.tier), QUIRE_E_IDENTITY);
    peer_end(&k);
}

static void a_prefix_is_asked_for_in_parts(void **state)
{
    (void)state;
    peer_kit k = {.num_blocks = 30};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    peer_fill(&k, QUIRE_TIER_FIND, 0, 100);
    k.job.is_prefix = 1;
    assert_int_equal(quire_tier_submit(k.tier, &k.job), QUIRE_OK);
    peer_wait(&k);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 30);
    assert_true(peer_status_count(&k, QUIRE_TIER_CANCELLED) > 0);
    peer_end(&k);
}

static void withdrawn_blocks_are_missing(void **state)
{
    (void)state;
    peer_kit k = {.num_blocks = 8};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    peer_do(&k, QUIRE_TIER_LOAD, 0, 8);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 8);
    assert_int_equal(quire_peer_server_withdraw(k.server, 3), QUIRE_OK);
    assert_int_equal(quire_peer_server_withdraw(k.server, 3), QUIRE_OK);
    peer_do(&k, QUIRE_TIER_LOAD, 3, 1);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_MISSING);
    peer_do(&k, QUIRE_TIER_FIND, 3, 1);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_MISSING);
    peer_offer(&k, 4, 100); /* key 4 is gone with it */
    peer_offer(&k, 5, 3);
    peer_do(&k, QUIRE_TIER_LOAD, 3, 3);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(k.ios[1].status, QUIRE_TIER_MISSING);
    assert_int_equal(k.ios[2].status, QUIRE_TIER_MISSING);
    peer_offer(&k, 6, 3); /* in two slots: the newer one */
    peer_offer(&k, 5, 200);
    peer_do(&k, QUIRE_TIER_LOAD, 3, 1);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(peer_served(&k).offered, 7);
    peer_end(&k);
}

/* ---- who may ask ----------------------------------------------------------- */

static void expect_nothing(peer_kit *k, const char *log)
{
    peer_do(k, QUIRE_TIER_LOAD, 0, 4);
    assert_int_equal(peer_status_count(k, QUIRE_TIER_FAILED), 4);
    peer_do(k, QUIRE_TIER_FIND, 0, 4); /* at once: it is not tried again so soon */
    assert_int_equal(peer_status_count(k, QUIRE_TIER_REFUSED), 4);
    assert_int_equal(peer_stats(k).refused, 4);
    if (strstr(k->log, log) == NULL)
        fail_msg("\"%s\" is not in the log: %s", log, k->log);
}

static void another_secret_gets_nothing(void **state)
{
    (void)state;
    peer_kit k = {.config = {.secret = "another secret of the tests", .retry_ns = 30000000000}};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    expect_nothing(&k, "authentication failed");
    assert_int_equal(peer_served(&k).not_proven, 1);
    assert_int_equal(peer_served(&k).keys_found + peer_served(&k).blocks_sent, 0);
    k.config.wait_ns = 100000000;
    peer_leave(&k);
    assert_int_equal(peer_connect(&k), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "authentication failed"));
    free(k.into);
    peer_end(&k);
}

/* It is another one in one byte of its fingerprint. */
static void get_nothing_with_another_identity(uint32_t byte)
{
    unsigned char other[QUIRE_FINGERPRINT_BYTES] = {0};
    other[byte] = 1;
    peer_kit k = {.config = {.fingerprint = other, .retry_ns = 30000000000}};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    expect_nothing(&k, "another fingerprint");
    assert_int_equal(peer_served(&k).not_same, 1);
    assert_int_equal(quire_tier_set_identity(k.tier, k.fingerprint), QUIRE_OK);
    peer_do(&k, QUIRE_TIER_LOAD, 0, 4);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 4);
    /* The server's changes: connections of the old one end, and so do the offers. */
    assert_int_equal(quire_peer_server_set_identity(k.server, other), QUIRE_OK);
    assert_int_equal(peer_served(&k).offered, 0);
    peer_offer(&k, 0, 0);
    peer_do(&k, QUIRE_TIER_LOAD, 0, 1);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_FAILED);
    assert_int_equal(quire_tier_set_identity(k.tier, other), QUIRE_OK);
    peer_do(&k, QUIRE_TIER_LOAD, 0, 2);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(k.ios[1].status, QUIRE_TIER_MISSING);
    peer_end(&k);
}

static void another_identity_gets_nothing(void **state)
{
    (void)state;
    get_nothing_with_another_identity(0);
    get_nothing_with_another_identity(QUIRE_FINGERPRINT_BYTES - 1);
}

static int get_secret(void *user, char *secret, size_t bytes)
{
    ++*(int *)user;
    (void)snprintf(secret, bytes, "%s", PEER_SECRET);
    return 0;
}

static void secrets_come_from_files_and_functions(void **state)
{
    (void)state;
    char path[] = "/tmp/quire_peer_XXXXXX";
    int calls = 0;
    int fd = mkstemp(path);
    assert_true(dprintf(fd, "%s\nmore\n", PEER_SECRET) > 0);
    close(fd);
    peer_kit k = {.server_config = {.secret_file = path},
                  .config = {.get_secret = get_secret, .secret_user = &calls}};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    peer_do(&k, QUIRE_TIER_LOAD, 0, 4);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 4);
    assert_true(calls >= 2);
    peer_end(&k);
    assert_int_equal(chmod(path, 0644), 0);
    peer_kit open = {.server_config = {.secret_file = path}};
    assert_int_equal(peer_serve(&open), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "secret_file"));
    calls = 0;
    peer_kit served = {.server_config = {.get_secret = get_secret, .secret_user = &calls}};
    assert_int_equal(peer_serve(&served), QUIRE_OK);
    assert_int_equal(chmod(path, 0600), 0);
    served.config.secret_file = path;
    assert_int_equal(peer_connect(&served), QUIRE_OK);
    peer_do(&served, QUIRE_TIER_LOAD, 0, 1);
    assert_int_equal(served.ios[0].status, QUIRE_TIER_DONE);
    peer_end(&served);
    unlink(path);
}

static void a_path_serves_too(void **state)
{
    (void)state;
    char address[64];
    (void)snprintf(address, sizeof address, "unix:/tmp/quire_peer_%d.sock", getpid());
    peer_kit k = {.server_config = {.address = address}, .config = {.server = address}};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(quire_peer_server_port(k.server), 0);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    peer_do(&k, QUIRE_TIER_LOAD, 0, 4);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 4);
    peer_end(&k);
    assert_int_equal(access(address + 5, F_OK), -1);
}

/* ---- configs --------------------------------------------------------------- */

static void configs_have_edges(void **state)
{
    (void)state;
    static const unsigned char print[QUIRE_FINGERPRINT_BYTES];
    quire_peer_server_config good = QUIRE_PEER_SERVER_CONFIG_INIT;
    good.address = "127.0.0.1:0";
    good.fingerprint = print;
    good.secret = PEER_SECRET;
    good.max_blocks = 1;
    good.max_block_bytes = 100;
    good.max_connections = 1;
    good.handshake_ns = 1000000000;
    good.stall_ns = 1000000000;
    quire_peer_server_config c;
    quire_peer_server *server;
#define REFUSED(error, change)                                                                     \
    do {                                                                                           \
        c = good;                                                                                  \
        change;                                                                                    \
        assert_int_equal(quire_peer_server_open(&c, &server), error);                              \
        assert_true(quire_refusal()[0] != 0);                                                      \
        assert_null(server);                                                                       \
    } while (0)
    REFUSED(QUIRE_E_CONFIG, c.address = NULL);
    REFUSED(QUIRE_E_CONFIG, c.address = "127.0.0.1");
    REFUSED(QUIRE_E_CONFIG, c.address = "localhost:1");
    REFUSED(QUIRE_E_CONFIG, c.address = ":0");
    REFUSED(QUIRE_E_UNSAFE, c.address = "0.0.0.0:0");
    REFUSED(QUIRE_E_CONFIG, c.fingerprint = NULL);
    REFUSED(QUIRE_E_CONFIG, c.secret = NULL);
    REFUSED(QUIRE_E_CONFIG, c.secret = "fifteen letters");
    REFUSED(QUIRE_E_CONFIG, c.secret_file = "/tmp/x");
    REFUSED(QUIRE_E_CONFIG, c.max_blocks = 0);
    REFUSED(QUIRE_E_CONFIG, c.max_blocks = (1u << 28) + 1);
    REFUSED(QUIRE_E_CONFIG, c.max_connections = 1025);
    REFUSED(QUIRE_E_CONFIG, c.handshake_ns = UINT64_C(86400000000001));
    REFUSED(QUIRE_E_CONFIG, c.stall_ns = UINT64_C(86400000000001));
    REFUSED(QUIRE_E_CONFIG, c.tls_cert_file = "/tmp/x");
    REFUSED(QUIRE_E_CONFIG, c.tls = 1);
    REFUSED(QUIRE_E_CONFIG, (c.tls = 1, c.tls_cert_file = c.tls_key_file = "/tmp/none"));
    REFUSED(QUIRE_E_CONFIG, (c.tls = 1, c.tls_ca_file = "/tmp/none"));
#undef REFUSED
    c = good;
    c.address = "0.0.0.0:0";
    c.trust_network = 1;
    assert_int_equal(quire_peer_server_open(&c, &server), QUIRE_OK);
    assert_int_equal(quire_peer_server_close(server), QUIRE_OK);
    assert_int_equal(quire_peer_server_close(NULL), QUIRE_OK);
    assert_int_equal(quire_peer_server_open(&good, &server), QUIRE_OK);
    unsigned char memory[101] = {0};
    quire_tier_key key = faulty_key(0);
    assert_int_equal(quire_peer_server_offer(server, 1, &key, memory, 10, NULL), QUIRE_E_RANGE);
    assert_int_equal(quire_peer_server_offer(server, 0, &key, memory, 0, NULL), QUIRE_E_RANGE);
    assert_int_equal(quire_peer_server_offer(server, 0, &key, memory, 101, NULL), QUIRE_E_RANGE);
    assert_int_equal(quire_peer_server_offer(server, 0, &key, memory, 100, NULL), QUIRE_OK);
    assert_int_equal(quire_peer_server_offer(server, 0, NULL, memory, 9, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_peer_server_offer(server, 0, &key, NULL, 9, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_peer_server_withdraw(server, 1), QUIRE_E_RANGE);
    assert_int_equal(quire_peer_server_withdraw(NULL, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_peer_server_set_identity(server, NULL), QUIRE_E_ARGUMENT);
    pid_t pid = fork();
    if (pid == 0) /* a child has no part of it */
        _exit(quire_peer_server_close(server) == QUIRE_E_SYSTEM &&
                      quire_peer_server_withdraw(server, 0) == QUIRE_E_SYSTEM
                  ? 0
                  : 1);
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(quire_peer_server_close(server), QUIRE_OK);
}

static void the_tiers_config_has_edges(void **state)
{
    (void)state;
    static const unsigned char print[QUIRE_FINGERPRINT_BYTES];
    quire_tier_peer_config good = QUIRE_TIER_PEER_CONFIG_INIT;
    good.server = "127.0.0.1:1";
    good.fingerprint = print;
    good.secret = PEER_SECRET;
    good.connections = 16;
    good.max_block_bytes = 100;
    good.load_window_bytes = 1;
    good.connect_ns = 1;
    good.late_ns = 1;
    quire_tier_peer_config c;
    quire_tier_peer *peer;
#define REFUSED(error, change)                                                                     \
    do {                                                                                           \
        c = good;                                                                                  \
        change;                                                                                    \
        assert_int_equal(quire_tier_peer_create(&c, 0, NULL, &peer), error);                       \
        assert_true(quire_refusal()[0] != 0);                                                      \
        assert_null(peer);                                                                         \
    } while (0)
    REFUSED(QUIRE_E_CONFIG, c.server = NULL);
    REFUSED(QUIRE_E_CONFIG, c.server = "127.0.0.1");
    REFUSED(QUIRE_E_CONFIG, c.server = "127.0.0.1:65536");
    REFUSED(QUIRE_E_UNSAFE, c.server = "10.1.2.3:7400");
    REFUSED(QUIRE_E_CONFIG, c.fingerprint = NULL);
    REFUSED(QUIRE_E_CONFIG, c.secret = NULL);
    REFUSED(QUIRE_E_CONFIG, c.secret = "fifteen letters");
    REFUSED(QUIRE_E_CONFIG, c.connections = 17);
    REFUSED(QUIRE_E_CONFIG, c.connect_ns = UINT64_C(86400000000001));
    REFUSED(QUIRE_E_CONFIG, c.late_ns = UINT64_C(86400000000001));
    REFUSED(QUIRE_E_CONFIG, c.retry_ns = UINT64_C(86400000000001));
    REFUSED(QUIRE_E_CONFIG, c.wait_ns = UINT64_C(86400000000001));
    REFUSED(QUIRE_E_CONFIG, c.tls_server_name = "x");
    REFUSED(QUIRE_E_CONFIG, (c.tls = 1, c.tls_trust_any = 1, c.tls_ca_file = "x"));
    REFUSED(QUIRE_E_CONFIG, (c.tls = 1, c.tls_cert_file = "x"));
    REFUSED(QUIRE_E_CONFIG, (c.tls = 1, c.tls_key_file = "x"));
#undef REFUSED
    c = good;
    c.server = "10.1.2.3:7400";
    c.trust_network = 1;
    assert_int_equal(quire_tier_peer_create(&c, 0, NULL, &peer), QUIRE_OK);
    quire_tier_peer_ops()->close(peer);
    assert_int_equal(quire_tier_peer_create(&good, 0, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_tier_peer_get_stats(NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_peer_server_get_stats(NULL, NULL), QUIRE_E_ARGUMENT);
}

/* ---- the server's questions ------------------------------------------------ */

static bool is_closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}

static int proven(const peer_kit *k)
{
    int fd = peer_raw_connect(quire_peer_server_port(k->server));
    assert_true(fd >= 0);
    assert_true(peer_raw_handshake(fd, PEER_SECRET, k->fingerprint));
    return fd;
}

static void the_server_closes_on_bad_questions(void **state)
{
    (void)state;
    peer_kit k = {.num_blocks = 4};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    static const uint32_t heads[][4] = {
        {0, 0, 0, 0},                                    /* no type */
        {QR_PEER_TYPE_FIND, 1, 0, 0},                    /* no keys */
        {QR_PEER_TYPE_FIND, 1, QR_PEER_MAX_FIND + 1, 0}, /* too many */
        {QR_PEER_TYPE_FIND, 1, UINT32_MAX, 0},           /* far too many */
        {QR_PEER_TYPE_FIND, 1, 1, 1},                    /* not 0 */
        {QR_PEER_TYPE_LOAD, 1, 10000, 1},                /* not 0 */
        {QR_PEER_TYPE_FOUND, 1, 1, 0},                   /* an answer */
        {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
    };
    for (size_t i = 0; i < COUNT(heads); i++) {
        unsigned char frame[QR_PEER_LOAD] = {0};
        int fd = proven(&k);
        qr_peer_put_head(frame, heads[i][0], heads[i][1], heads[i][2], heads[i][3]);
        assert_true(peer_raw_write(fd, frame, sizeof frame));
        assert_true(is_closed(fd));
        close(fd);
    }
    assert_int_equal(peer_served(&k).bad_frames, COUNT(heads));
    /* HELLO: magic, version, the field that must be 0; and PROOF that is not the secret's */
    for (int i = 0; i < 3; i++) {
        unsigned char hello[QR_PEER_HELLO];
        unsigned char challenge[QR_PEER_CHALLENGE];
        uint32_t version;
        uint32_t status;
        int fd = peer_raw_connect(quire_peer_server_port(k.server));
        qr_peer_put_greeting(hello, QR_PEER_OK, hello + 16);
        hello[i == 0 ? 0 : i == 1 ? 8 : 12] ^= 3;
        assert_true(peer_raw_write(fd, hello, sizeof hello));
        if (i == 1) {
            assert_true(peer_raw_read(fd, challenge, sizeof challenge));
            assert_true(qr_peer_get_greeting(challenge, &version, &status));
            assert_int_equal(status, QR_PEER_UNKNOWN);
        }
        assert_true(is_closed(fd));
        close(fd);
    }
    int fd = peer_raw_connect(quire_peer_server_port(k.server));
    assert_false(peer_raw_handshake(fd, "not the secret of the tests", k.fingerprint));
    assert_true(is_closed(fd));
    close(fd);
    /* A question in pieces, byte by byte, is one. */
    unsigned char frame[QR_PEER_LOAD];
    unsigned char answer[QR_PEER_LOADED];
    quire_tier_key key = faulty_key(99);
    fd = proven(&k);
    qr_peer_put_head(frame, QR_PEER_TYPE_LOAD, 77, k.bytes, 0);
    memcpy(frame + QR_PEER_HEAD, &key, QR_PEER_KEY);
    for (size_t i = 0; i < sizeof frame; i++)
        assert_true(peer_raw_write(fd, frame + i, 1));
    assert_true(peer_raw_read(fd, answer, sizeof answer));
    qr_peer_head head = qr_peer_get_head(answer);
    assert_int_equal(head.type, QR_PEER_TYPE_LOADED);
    assert_int_equal(head.id, 77);
    assert_int_equal(head.a, QR_PEER_MISSING);
    close(fd);
    peer_end(&k);
}

/* Random bytes, and questions with some bytes changed: the server goes on. */
static void the_server_survives_noise(void **state)
{
    (void)state;
    enum { RUNS = 300 };
    peer_kit k = {.num_blocks = 4, .bytes = 100};
    uint64_t random = 24;
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    for (int run = 0; run < RUNS; run++) {
        unsigned char noise[4096];
        uint32_t n = 1 + unit_random_below(&random, sizeof noise);
        quire_tier_key key = faulty_key(unit_random_below(&random, 8));
        for (uint32_t i = 0; i < n; i++)
            noise[i] = (unsigned char)unit_random(&random);
        bool is_proven = unit_random_below(&random, 4) > 0;
        for (uint32_t at = 0; is_proven && at + QR_PEER_LOAD <= n; at += QR_PEER_LOAD) {
            qr_peer_put_head(noise + at, QR_PEER_TYPE_LOAD, at, k.bytes, 0);
            memcpy(noise + at + QR_PEER_HEAD, &key, QR_PEER_KEY);
            if (unit_random_below(&random, 20) == 0)
                noise[at + unit_random_below(&random, QR_PEER_LOAD)] ^= 1;
        }
        int fd = is_proven ? proven(&k) : peer_raw_connect(quire_peer_server_port(k.server));
        (void)peer_raw_write(fd, noise, n);
        shutdown(fd, SHUT_WR);
        while (!is_closed(fd)) {
        }
        close(fd);
    }
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    peer_do(&k, QUIRE_TIER_LOAD, 0, 4);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 4);
    peer_end(&k);
}

static void idle_strangers_and_stalled_clients_are_closed(void **state)
{
    (void)state;
    peer_kit k = {.num_blocks = 1, .bytes = 32 << 20};
    k.server_config.handshake_ns = 200000000;
    k.server_config.stall_ns = 300000000;
    k.server_config.max_connections = 2;
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    int stranger = peer_raw_connect(quire_peer_server_port(k.server));
    int stalled = proven(&k);
    unsigned char frame[QR_PEER_LOAD];
    quire_tier_key key = faulty_key(0);
    qr_peer_put_head(frame, QR_PEER_TYPE_LOAD, 1, k.bytes, 0);
    memcpy(frame + QR_PEER_HEAD, &key, QR_PEER_KEY);
    assert_true(peer_raw_write(stalled, frame, sizeof frame));
    int third = proven(&k); /* the stranger gives way */
    assert_true(is_closed(stranger));
    assert_int_equal(peer_served(&k).turned_away, 1);
    int fourth = peer_raw_connect(quire_peer_server_port(k.server));
    assert_true(is_closed(fourth));
    assert_int_equal(peer_served(&k).turned_away, 2);
    uint64_t end = peer_now_ms() + 20000;
    while (peer_served(&k).stalled == 0 && peer_now_ms() < end)
        peer_sleep_ms(20);
    assert_int_equal(peer_served(&k).stalled, 1);
    int silent = peer_raw_connect(quire_peer_server_port(k.server));
    assert_true(is_closed(silent));
    assert_int_equal(peer_served(&k).turned_away, 3);
    assert_int_equal(peer_served(&k).connections, 1);
    close(stranger);
    close(stalled);
    close(third);
    close(fourth);
    close(silent);
    peer_end(&k);
}

/* ---- memory that changes while it is sent ---------------------------------- */

typedef struct churn {
    peer_kit *k;
    _Atomic bool is_over;
} churn;

static void *churn_blocks(void *user)
{
    churn *c = user;
    uint64_t random = 7;
    uint32_t keys[4] = {0, 1, 2, 3};
    while (!atomic_load(&c->is_over)) {
        uint32_t slot = unit_random_below(&random, 4);
        keys[slot] = unit_random_below(&random, 8);
        peer_offer(c->k, slot, keys[slot]);
        for (int i = 0; i < 4; i++) { /* the same again, which takes less time: it is a new offer */
            slot = unit_random_below(&random, 4);
            quire_tier_key key = faulty_key(keys[slot]);
            (void)quire_peer_server_offer(c->k->server, slot, &key,
                                          c->k->memory + (size_t)slot * c->k->bytes, c->k->bytes,
                                          NULL);
            usleep(100);
        }
    }
    return NULL;
}

/* The owner writes as fast as it can; what arrives is a whole block or none. */
static void blocks_may_change_while_they_are_sent(void **state)
{
    (void)state;
    peer_kit k = {.num_blocks = 4, .bytes = 512 << 10};
    churn c = {.k = &k};
    pthread_t thread;
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    assert_int_equal(pthread_create(&thread, NULL, churn_blocks, &c), 0);
    uint64_t num_done = 0;
    uint64_t end = peer_now_ms() + 60000;
    do {
        peer_do(&k, QUIRE_TIER_LOAD, 0, 8);
        num_done += peer_status_count(&k, QUIRE_TIER_DONE);
        assert_int_equal(
            peer_status_count(&k, QUIRE_TIER_DONE) + peer_status_count(&k, QUIRE_TIER_MISSING), 8);
    } while ((num_done < 200 || peer_stats(&k).voided < 5) && peer_now_ms() < end);
    atomic_store(&c.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(num_done > 0);
    assert_true(peer_stats(&k).voided > 0);
    assert_int_equal(peer_served(&k).blocks_void, peer_stats(&k).voided);
    peer_end(&k);
}

static void a_checksum_that_differs_is_wrong(void **state)
{
    (void)state;
    peer_kit k = {.num_blocks = 2};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    k.memory[0] ^= 1; /* of a block whose CRC was given */
    peer_do(&k, QUIRE_TIER_LOAD, 0, 2);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_WRONG);
    assert_int_equal(k.ios[1].status, QUIRE_TIER_DONE);
    assert_int_equal(peer_stats(&k).wrong, 1);
    peer_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_found_and_loaded),
        cmocka_unit_test(a_prefix_is_asked_for_in_parts),
        cmocka_unit_test(withdrawn_blocks_are_missing),
        cmocka_unit_test(another_secret_gets_nothing),
        cmocka_unit_test(another_identity_gets_nothing),
        cmocka_unit_test(secrets_come_from_files_and_functions),
        cmocka_unit_test(a_path_serves_too),
        cmocka_unit_test(configs_have_edges),
        cmocka_unit_test(the_tiers_config_has_edges),
        cmocka_unit_test(the_server_closes_on_bad_questions),
        cmocka_unit_test(the_server_survives_noise),
        cmocka_unit_test(idle_strangers_and_stalled_clients_are_closed),
        cmocka_unit_test(blocks_may_change_while_they_are_sent),
        cmocka_unit_test(a_checksum_that_differs_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

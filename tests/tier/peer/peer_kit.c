#include "peer_kit.h"

#include "tier/peer/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t peer_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void peer_sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static void keep_log(void *user, quire_log_level level, const char *text)
{
    peer_kit *k = user;
    (void)level;
    size_t n = strlen(k->log);
    (void)snprintf(k->log + n, sizeof k->log - n, "%s\n", text);
}

void peer_offer(peer_kit *k, uint32_t slot, uint32_t key)
{
    quire_tier_key name = faulty_key(key);
    unsigned char *memory = k->memory + (size_t)slot * k->bytes;
    assert_int_equal(quire_peer_server_withdraw(k->server, slot), QUIRE_OK);
    faulty_pattern(&name, memory, k->bytes);
    uint32_t crc = quire_crc32c(0, memory, k->bytes);
    assert_int_equal(quire_peer_server_offer(k->server, slot, &name, memory, k->bytes,
                                             slot % 2 == 0 ? &crc : NULL),
                     QUIRE_OK);
}

int peer_serve(peer_kit *k)
{
    k->bytes = k->bytes == 0 ? 10000 : k->bytes;
    k->num_blocks = k->num_blocks == 0 ? 20 : k->num_blocks;
    quire_peer_server_config *c = &k->server_config;
    c->size = sizeof *c;
    c->address = c->address == NULL ? "127.0.0.1:0" : c->address;
    c->fingerprint = c->fingerprint == NULL ? k->fingerprint : c->fingerprint;
    if (c->secret == NULL && c->secret_file == NULL && c->get_secret == NULL)
        c->secret = PEER_SECRET;
    c->max_blocks = c->max_blocks == 0 ? k->num_blocks : c->max_blocks;
    int status = quire_peer_server_open(c, &k->server);
    assert_int_equal(status != QUIRE_OK, quire_refusal()[0] != 0);
    if (status != QUIRE_OK)
        return status;
    k->memory = calloc(k->num_blocks, k->bytes);
    for (uint32_t i = 0; i < k->num_blocks; i++)
        peer_offer(k, i, i);
    return QUIRE_OK;
}

int peer_connect(peer_kit *k)
{
    quire_tier_peer_config *c = &k->config;
    if (c->server == NULL && k->server != NULL) {
        (void)snprintf(k->address, sizeof k->address, "127.0.0.1:%u",
                       quire_peer_server_port(k->server));
        c->server = k->address;
    }
    c->size = sizeof *c;
    c->fingerprint = c->fingerprint == NULL ? k->fingerprint : c->fingerprint;
    if (c->secret == NULL && c->secret_file == NULL && c->get_secret == NULL)
        c->secret = PEER_SECRET;
    c->retry_ns = c->retry_ns == 0 ? 20000000 : c->retry_ns;
    k->common.size = sizeof k->common;
    k->common.deadline_ns = (uint64_t)(k->deadline_ms == 0 ? 20000 : k->deadline_ms) * 1000000;
    if (k->common.breaker_strikes == 0)
        k->common.breaker_strikes = 1000000; /* the peer's own answers are looked at */
    k->common.hooks.user = k;
    k->common.hooks.log = keep_log;
    k->into = k->into == NULL ? calloc(PEER_MAX_IOS, k->bytes) : k->into;
    int status = quire_tier_peer_open(c, &k->common, NULL, &k->tier, &k->peer);
    assert_int_equal(status != QUIRE_OK, quire_refusal()[0] != 0);
    return status;
}

void peer_fill(peer_kit *k, quire_tier_op op, uint32_t key, uint32_t num)
{
    k->job = (quire_tier_job){.op = op, .num_ios = num, .ios = k->ios};
    memset(k->into, 0x5a, (size_t)num * k->bytes);
    for (uint32_t i = 0; i < num; i++)
        k->ios[i] = (quire_tier_io){.key = faulty_key(key + i),
                                    .memory = k->into + (size_t)i * k->bytes,
                                    .bytes = k->bytes};
}

static void compare_loads(const peer_kit *k)
{
    unsigned char *expected = malloc(k->bytes);
    for (uint32_t i = 0; i < k->job.num_ios && k->job.op == QUIRE_TIER_LOAD; i++) {
        if (k->ios[i].status != QUIRE_TIER_DONE)
            continue;
        faulty_pattern(&k->ios[i].key, expected, k->ios[i].bytes);
        assert_memory_equal(k->ios[i].memory, expected, k->ios[i].bytes);
        assert_int_equal(k->ios[i].crc, quire_crc32c(0, expected, k->ios[i].bytes));
    }
    free(expected);
}

void peer_wait(peer_kit *k)
{
    quire_tier_job *ended = NULL;
    uint64_t end = peer_now_ms() + 60000;
    while (quire_tier_poll(k->tier, &ended, 1) == 0) {
        assert_true(peer_now_ms() < end);
        struct timespec a_little = {.tv_nsec = 50000};
        nanosleep(&a_little, NULL);
    }
    assert_ptr_equal(ended, &k->job);
    compare_loads(k);
}

void peer_do(peer_kit *k, quire_tier_op op, uint32_t key, uint32_t num)
{
    peer_fill(k, op, key, num);
    assert_int_equal(quire_tier_submit(k->tier, &k->job), QUIRE_OK);
    peer_wait(k);
}

uint32_t peer_status_count(const peer_kit *k, quire_tier_status status)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->job.num_ios; i++)
        n += k->ios[i].status == status;
    return n;
}

quire_peer_server_stats peer_served(const peer_kit *k)
{
    quire_peer_server_stats stats = QUIRE_PEER_SERVER_STATS_INIT;
    assert_int_equal(quire_peer_server_get_stats(k->server, &stats), QUIRE_OK);
    return stats;
}

quire_tier_peer_stats peer_stats(const peer_kit *k)
{
    quire_tier_peer_stats stats = QUIRE_TIER_PEER_STATS_INIT;
    assert_int_equal(quire_tier_peer_get_stats(k->peer, &stats), QUIRE_OK);
    return stats;
}

void peer_leave(peer_kit *k)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(peer_stats(k).jobs, 0);
    assert_int_equal(quire_tier_get_stats(k->tier, &stats), QUIRE_OK);
    assert_int_equal(stats.jobs_in_flight, 0);
    assert_int_equal(stats.bad_ends, 0);
    assert_int_equal(quire_tier_close(k->tier), QUIRE_OK);
    free(k->into);
    k->into = NULL;
    k->tier = NULL;
}

void peer_end(peer_kit *k)
{
    if (k->tier != NULL)
        peer_leave(k);
    assert_int_equal(quire_peer_server_close(k->server), QUIRE_OK);
    free(k->memory);
}

/* ---- by hand --------------------------------------------------------------- */

int peer_raw_connect(uint32_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval most = {.tv_sec = 10};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

bool peer_raw_read(int fd, void *to, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        ssize_t n = recv(fd, (char *)to + at, bytes - at, 0);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

bool peer_raw_write(int fd, const void *from, size_t bytes)
{
    return send(fd, from, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

bool peer_raw_handshake(int fd, const char *secret, const unsigned char *fingerprint)
{
    qr_peer_talk talk;
    unsigned char proof[QR_PEER_PROOF];
    unsigned char welcome[QR_PEER_WELCOME];
    unsigned char mac[QR_PEER_MAC];
    unsigned char random[QR_PEER_RANDOM] = {7};
    uint32_t status;
    uint32_t most;
    qr_peer_put_greeting(talk.hello, QR_PEER_OK, random);
    if (!peer_raw_write(fd, talk.hello, QR_PEER_HELLO) ||
        !peer_raw_read(fd, talk.challenge, QR_PEER_CHALLENGE))
        return false;
    memcpy(talk.fingerprint, fingerprint, QUIRE_FINGERPRINT_BYTES);
    memcpy(proof, fingerprint, QUIRE_FINGERPRINT_BYTES);
    if (!qr_peer_prove(secret, &talk, NULL, proof + QUIRE_FINGERPRINT_BYTES) ||
        !peer_raw_write(fd, proof, sizeof proof) || !peer_raw_read(fd, welcome, sizeof welcome) ||
        !qr_peer_get_welcome(welcome, &status, &most) || status != QR_PEER_OK)
        return false;
    return qr_peer_prove(secret, &talk, welcome, mac) &&
           memcmp(mac, welcome + QR_PEER_WELCOME_HEAD, QR_PEER_MAC) == 0;
}

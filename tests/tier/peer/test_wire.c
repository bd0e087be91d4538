/* tier/peer/test_wire.c - both ends of a connection by hand: a peer that answers late, one whose
 * bytes come one by one, and one that says more than it may. What is opened is closed. */
#include "peer_kit.h"

#include "tier/net/socket.h"
#include "tier/peer/wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- bytes one by one ------------------------------------------------------ */

static _Atomic bool is_dripping;

ssize_t __real_qr_socket_send(qr_socket *s, struct iovec *pieces, int n);
ssize_t __wrap_qr_socket_send(qr_socket *s, struct iovec *pieces, int n);

ssize_t __wrap_qr_socket_send(qr_socket *s, struct iovec *pieces, int n)
{
    if (!atomic_load(&is_dripping) || n == 0)
        return __real_qr_socket_send(s, pieces, n);
    struct iovec one = {pieces[0].iov_base, 1};
    return __real_qr_socket_send(s, &one, 1);
}

/* The system may take as little as a byte of what is sent, of any part of it. */
static void sockets_may_take_single_bytes(void **state)
{
    (void)state;
    peer_kit k = {.num_blocks = 4, .bytes = 300};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    atomic_store(&is_dripping, true);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    for (int round = 0; round < 3; round++) {
        peer_do(&k, QUIRE_TIER_FIND, 0, 6);
        assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 4);
        peer_do(&k, QUIRE_TIER_LOAD, 0, 6);
        assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 4);
        assert_int_equal(peer_status_count(&k, QUIRE_TIER_MISSING), 2);
    }
    atomic_store(&is_dripping, false);
    assert_int_equal(peer_stats(&k).lost + peer_stats(&k).surprises, 0);
    assert_int_equal(peer_served(&k).bad_frames, 0);
    peer_end(&k);
}

/* ---- a peer by hand -------------------------------------------------------- */

static int listen_by_hand(peer_kit *k)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    (void)snprintf(k->address, sizeof k->address, "127.0.0.1:%u", ntohs(at.sin_port));
    k->config.server = k->address;
    return fd;
}

/* The server's side of the handshake. field: the byte of WELCOME that is 1, not 0; 0: none. */
static int welcome_client(int listener, size_t field)
{
    qr_peer_talk talk;
    unsigned char proof[QR_PEER_PROOF];
    unsigned char welcome[QR_PEER_WELCOME];
    static const unsigned char random[QR_PEER_RANDOM] = {9};
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    assert_true(peer_raw_read(fd, talk.hello, QR_PEER_HELLO));
    qr_peer_put_greeting(talk.challenge, QR_PEER_OK, random);
    assert_true(peer_raw_write(fd, talk.challenge, QR_PEER_CHALLENGE));
    assert_true(peer_raw_read(fd, proof, sizeof proof));
    memcpy(talk.fingerprint, proof, QUIRE_FINGERPRINT_BYTES);
    qr_peer_put_welcome(welcome, QR_PEER_OK, 1 << 20);
    welcome[field] |= field > 0;
    assert_true(qr_peer_prove(PEER_SECRET, &talk, welcome, welcome + QR_PEER_WELCOME_HEAD));
    assert_true(peer_raw_write(fd, welcome, sizeof welcome));
    return fd;
}

/* The id of the question, which must be a LOAD of this key. */
static uint32_t take_load(int fd, uint32_t n)
{
    unsigned char frame[QR_PEER_LOAD];
    quire_tier_key key = faulty_key(n);
    assert_true(peer_raw_read(fd, frame, sizeof frame));
    qr_peer_head head = qr_peer_get_head(frame);
    assert_int_equal(head.type, QR_PEER_TYPE_LOAD);
    assert_memory_equal(frame + QR_PEER_HEAD, &key, QR_PEER_KEY);
    return head.id;
}

static void answer_load(int fd, uint32_t n, uint32_t id, uint32_t bytes)
{
    unsigned char loaded[QR_PEER_LOADED] = {0};
    unsigned char tail[QR_PEER_HEAD];
    unsigned char *block = malloc(bytes);
    quire_tier_key key = faulty_key(n);
    assert_non_null(block);
    faulty_pattern(&key, block, bytes);
    qr_peer_put_head(loaded, QR_PEER_TYPE_LOADED, id, QR_PEER_OK, bytes);
    memcpy(loaded + QR_PEER_HEAD, &key, QR_PEER_KEY);
    qr_peer_put_head(tail, QR_PEER_TYPE_TAIL, id, QR_PEER_OK, quire_crc32c(0, block, bytes));
    assert_true(peer_raw_write(fd, loaded, sizeof loaded));
    assert_true(peer_raw_write(fd, block, bytes));
    assert_true(peer_raw_write(fd, tail, sizeof tail));
    free(block);
}

/* A cancelled load ends at once. Its answer may come later: it goes nowhere, and the connection
 * serves the next load. */
static void late_answers_leave_the_connection(void **state)
{
    (void)state;
    peer_kit k = {.bytes = 3000, .config = {.connections = 1, .late_ns = UINT64_C(60000000000)}};
    int listener = listen_by_hand(&k);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    peer_fill(&k, QUIRE_TIER_LOAD, 0, 1);
    assert_int_equal(quire_tier_submit(k.tier, &k.job), QUIRE_OK);
    int fd = welcome_client(listener, 0);
    uint32_t late_id = take_load(fd, 0);
    assert_int_equal(quire_tier_cancel(k.tier, &k.job), QUIRE_OK);
    peer_wait(&k);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_CANCELLED);
    peer_sleep_ms(20); /* nothing is due yet */
    peer_fill(&k, QUIRE_TIER_LOAD, 1, 1);
    assert_int_equal(quire_tier_submit(k.tier, &k.job), QUIRE_OK);
    uint32_t id = take_load(fd, 1);
    answer_load(fd, 0, late_id, k.bytes);
    answer_load(fd, 1, id, k.bytes);
    peer_wait(&k);
    assert_int_equal(k.ios[0].status, QUIRE_TIER_DONE);
    quire_tier_peer_stats stats = peer_stats(&k);
    assert_int_equal(stats.connected, 1);
    assert_int_equal(stats.lost + stats.surprises + stats.wrong, 0);
    peer_leave(&k);
    close(fd);
    close(listener);
}

static bool is_next(int fd, uint32_t n)
{
    unsigned char frame[QR_PEER_LOAD];
    quire_tier_key key = faulty_key(n);
    assert_int_equal(recv(fd, frame, sizeof frame, MSG_PEEK | MSG_WAITALL), sizeof frame);
    return memcmp(frame + QR_PEER_HEAD, &key, QR_PEER_KEY) == 0;
}

static void set_patience(int fd)
{
    const struct timeval patience = {.tv_sec = 10};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
}

/* A second connection is made when the first has as many bytes to bring as it may. From then on
 * the one with fewer bytes to bring is asked: a large block goes over one, small ones over the
 * other. */
static void connections_share_by_bytes(void **state)
{
    (void)state;
    enum { LARGE = 3000, SMALL = 100, NUM_SMALL = 5 };
    peer_kit k = {.bytes = LARGE, .config = {.connections = 2, .load_window_bytes = LARGE + 999}};
    int listener = listen_by_hand(&k);
    set_patience(listener);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    peer_fill(&k, QUIRE_TIER_LOAD, 0, 2);
    assert_int_equal(quire_tier_submit(k.tier, &k.job), QUIRE_OK);
    int first = welcome_client(listener, 0);
    set_patience(first);
    uint32_t id = take_load(first, 0);
    int second = welcome_client(listener, 0);
    set_patience(second);
    answer_load(second, 1, take_load(second, 1), LARGE);
    answer_load(first, 0, id, LARGE);
    peer_wait(&k);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 2);
    peer_fill(&k, QUIRE_TIER_LOAD, 10, 1 + NUM_SMALL);
    for (uint32_t i = 1; i <= NUM_SMALL; i++)
        k.ios[i].bytes = SMALL;
    assert_int_equal(quire_tier_submit(k.tier, &k.job), QUIRE_OK);
    bool is_first = is_next(first, 10);
    int large = is_first ? first : second;
    int small = is_first ? second : first;
    answer_load(large, 10, take_load(large, 10), LARGE);
    for (uint32_t i = 1; i <= NUM_SMALL; i++)
        answer_load(small, 10 + i, take_load(small, 10 + i), SMALL);
    peer_wait(&k);
    assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 1 + NUM_SMALL);
    assert_int_equal(peer_stats(&k).connected, 2);
    peer_leave(&k);
    close(first);
    close(second);
    close(listener);
}

/* Fields of WELCOME that must be 0 are looked at one by one. */
static void welcomes_have_no_other_fields(void **state)
{
    (void)state;
    static const size_t fields[] = {8, 12};
    for (size_t i = 0; i < COUNT(fields); i++) {
        peer_kit k = {.bytes = 100,
                      .config = {.connections = 1, .retry_ns = UINT64_C(30000000000)}};
        int listener = listen_by_hand(&k);
        assert_int_equal(peer_connect(&k), QUIRE_OK);
        peer_fill(&k, QUIRE_TIER_LOAD, 0, 1);
        assert_int_equal(quire_tier_submit(k.tier, &k.job), QUIRE_OK);
        int fd = welcome_client(listener, fields[i]);
        char byte;
        assert_int_equal(recv(fd, &byte, 1, 0), 0); /* it has closed, and asked nothing */
        peer_wait(&k);
        assert_int_equal(k.ios[0].status, QUIRE_TIER_FAILED);
        assert_int_equal(peer_stats(&k).surprises, 1);
        assert_int_equal(peer_stats(&k).connected, 0);
        peer_leave(&k);
        close(fd);
        close(listener);
    }
}

/* ---- opening and closing --------------------------------------------------- */

/* Opening waits for a connection; the first is enough. */
static void one_connection_is_enough(void **state)
{
    (void)state;
    peer_kit k = {.config = {.connections = 1, .wait_ns = UINT64_C(10000000000)}};
    assert_int_equal(peer_serve(&k), QUIRE_OK);
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    assert_int_equal(peer_stats(&k).connected, 1);
    peer_end(&k);
}

static uint32_t count_descriptors(void)
{
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void nothing_stays_open(void **state)
{
    (void)state;
    uint32_t before = 0;
    for (int round = 0; round < 3; round++) {
        peer_kit k = {.num_blocks = 2};
        assert_int_equal(peer_serve(&k), QUIRE_OK);
        assert_int_equal(peer_connect(&k), QUIRE_OK);
        peer_do(&k, QUIRE_TIER_LOAD, 0, 2);
        assert_int_equal(peer_status_count(&k, QUIRE_TIER_DONE), 2);
        peer_end(&k);
        if (round == 0) /* what the libraries keep is open now */
            before = count_descriptors();
    }
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sockets_may_take_single_bytes),
        cmocka_unit_test(late_answers_leave_the_connection),
        cmocka_unit_test(connections_share_by_bytes),
        cmocka_unit_test(welcomes_have_no_other_fields),
        cmocka_unit_test(one_connection_is_enough),
        cmocka_unit_test(nothing_stays_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

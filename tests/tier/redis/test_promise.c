/* tier/redis/test_promise.c - TLS takes bytes before it says so: what was begun must be gone on
 * with, also when the one who asked for it does not wait any longer. Else a command goes out with
 * the beginning of another. The same where a socket takes a byte, and where it takes none. (Linked
 * so that qr_tls_send and its kin come here.) */
#include "base/unit.h"
#include "tier/core/faulty.h"
#include "tier/redis/redis.h"

#include <sys/socket.h>
#include <unistd.h>

ssize_t __wrap_qr_tls_send(void *session, const void *bytes, size_t n);
ssize_t __wrap_qr_tls_receive(void *session, void *bytes, size_t n);
void __wrap_qr_tls_detach(void *session);
ssize_t __real_qr_socket_send(qr_socket *s, struct iovec *pieces, int n);
ssize_t __wrap_qr_socket_send(qr_socket *s, struct iovec *pieces, int n);

static char promised[4096];
static size_t num_promised;
static bool is_blocked;
static char sent[65536];
static size_t num_sent;

/* As OpenSSL does: what it took once it sends, and it says that it sent what it is given now. */
ssize_t __wrap_qr_tls_send(void *session, const void *bytes, size_t n)
{
    (void)session;
    n = n < sizeof promised ? n : sizeof promised;
    if (num_promised > 0 && (n < num_promised || memcmp(bytes, promised, num_promised) != 0))
        fail_msg("other bytes than before");
    memcpy(promised, bytes, n);
    num_promised = is_blocked ? n : 0;
    if (is_blocked)
        return 0;
    assert_true(num_sent + n <= sizeof sent);
    memcpy(sent + num_sent, bytes, n);
    num_sent += n;
    return (ssize_t)n;
}

static const char *answer = ""; /* of the server, in one piece */
static size_t flood;            /* bytes that it says then */

ssize_t __wrap_qr_tls_receive(void *session, void *bytes, size_t n)
{
    size_t len = strlen(answer);
    (void)session;
    assert_true(len <= n);
    if (len == 0 && flood > 0) {
        n = n < flood ? n : flood;
        memset(bytes, 'x', n);
        flood -= n;
        return (ssize_t)n;
    }
    memcpy(bytes, answer, len);
    answer = "";
    return (ssize_t)len;
}

void __wrap_qr_tls_detach(void *session)
{
    (void)session;
}

static bool takes_a_byte; /* and then no more */

ssize_t __wrap_qr_socket_send(qr_socket *s, struct iovec *pieces, int n)
{
    struct iovec one = {pieces[0].iov_base, 1};
    if (!takes_a_byte)
        return __real_qr_socket_send(s, pieces, n);
    ssize_t got = __real_qr_socket_send(s, &one, 1);
    s->can_write = false;
    return got;
}

/* ---- a link with two jobs -------------------------------------------------- */

enum { BYTES = 100 };

typedef struct task {
    quire_tier_job job;
    quire_tier_io io;
    unsigned char memory[BYTES];
} task;

static void end_task(quire_tier_ends *ends, quire_tier_job *job, uint32_t io,
                     quire_tier_status status)
{
    (void)ends;
    job->ios[io].status = status;
}

static quire_tier_ends ends = {end_task};
static quire_tier_redis *redis;
static qr_link *line;
static int other_end;

static void open_line(void)
{
    static const char *const servers[] = {"127.0.0.1:1"};
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {7};
    static char session;
    int pair[2];
    quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
    config.servers = servers;
    config.num_servers = 1;
    config.fingerprint = fingerprint;
    config.connections = 1;
    assert_int_equal(quire_tier_redis_create(&config, 4, NULL, &redis), QUIRE_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    other_end = pair[1];
    memset(redis->owner, 0, sizeof redis->owner);
    redis->net.ends = &ends;
    redis->has_map = true;
    redis->wants_map = false;
    redis->node_share = QR_REDIS_CALLS;
    redis->net.now_ns = 1;
    line = &redis->links[0];
    line->socket = (qr_socket){.fd = pair[0], .session = &session, .can_write = true};
    line->state = QR_LINK_READY;
    num_promised = 0;
    num_sent = 0;
}

static void close_line(void)
{
    close(other_end);
    quire_tier_redis_ops()->close(redis);
}

static void begin_task(task *t, quire_tier_op op, uint32_t key)
{
    memset(t, 0, sizeof *t);
    t->io.key = faulty_key(key);
    t->io.memory = t->memory;
    t->io.bytes = BYTES;
    t->job.op = op;
    t->job.num_ios = 1;
    t->job.ios = &t->io;
    t->job.due_ns = 1000;
    qr_net_begin(&redis->net, &t->job);
    qr_batch_route_all(redis);
    qr_node_tend(redis, &redis->nodes[0]);
}

static void pump(bool blocks)
{
    is_blocked = blocks;
    line->socket.can_write = true;
    qr_link_pump(redis, line);
}

/* A load is cancelled or late before TLS says that it is sent: it is sent all the same. */
static void begun_loads_are_sent(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        task a;
        task b;
        open_line();
        begin_task(&a, QUIRE_TIER_LOAD, 1);
        pump(true);
        begin_task(&b, QUIRE_TIER_FIND, 2);
        b.job.due_ns = 5000;
        if (is_late != 0) {
            redis->net.active_last->deadline_ns = 5000;
            redis->net.now_ns = 2000;
            qr_net_expire(&redis->net);
        } else {
            qr_net_leave(&redis->net, qr_net_find(&redis->net, &a.job));
        }
        assert_int_not_equal(a.io.status, QUIRE_TIER_PENDING);
        pump(false);
        assert_int_equal(line->state, QR_LINK_READY);
        assert_memory_equal(sent, "*2\r\n$3\r\nGET\r\n", 13);
        assert_int_equal(line->num_calls, 2);
        close_line();
    }
}

/* One byte is enough: the rest follows, and not the next command. */
static void a_byte_is_a_beginning(void **state)
{
    (void)state;
    task a;
    task b;
    open_line();
    begin_task(&a, QUIRE_TIER_LOAD, 1);
    takes_a_byte = true;
    pump(false);
    takes_a_byte = false;
    assert_int_equal(num_sent, 1);
    begin_task(&b, QUIRE_TIER_FIND, 2);
    qr_net_leave(&redis->net, qr_net_find(&redis->net, &a.job));
    assert_int_equal(a.io.status, QUIRE_TIER_CANCELLED);
    pump(false);
    assert_int_equal(line->state, QR_LINK_READY);
    assert_memory_equal(sent, "*2\r\n$3\r\nGET\r\n", 13);
    assert_int_equal(line->num_calls, 2);
    close_line();
}

/* Nothing of it is sent yet: nothing will be. */
static void loads_not_begun_leave(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        task a;
        task b;
        open_line();
        begin_task(&a, QUIRE_TIER_LOAD, 1);
        assert_int_equal(line->num_calls, 1);
        if (is_late != 0)
            redis->net.now_ns = 2000;
        qr_net_leave(&redis->net, qr_net_find(&redis->net, &a.job));
        assert_int_equal(a.io.status, is_late != 0 ? QUIRE_TIER_FAILED : QUIRE_TIER_CANCELLED);
        assert_int_equal(line->num_calls, 0);
        redis->net.now_ns = 1;
        begin_task(&b, QUIRE_TIER_FIND, 2);
        pump(false);
        assert_memory_equal(sent, "*2\r\n$6\r\nSTRLEN\r\n", 16);
        assert_int_equal(line->num_calls, 1);
        close_line();
    }
}

/* A store's memory is its user's again: its link is closed, before anything else is sent. */
static void begun_stores_close(void **state)
{
    (void)state;
    task a;
    open_line();
    begin_task(&a, QUIRE_TIER_STORE, 1);
    pump(false);
    assert_memory_equal(sent, "*2\r\n$6\r\nSTRLEN\r\n", 16);
    answer = ":0\r\n"; /* it is not there: it is sent */
    line->socket.can_read = true;
    pump(false);
    qr_node_tend(redis, &redis->nodes[0]);
    pump(true);
    redis->net.now_ns = 2000;
    qr_net_expire(&redis->net);
    assert_int_equal(a.io.status, QUIRE_TIER_FAILED);
    assert_int_equal(line->state, QR_LINK_CLOSED);
    close_line();
}

/* A server that sends without end: others have their turn all the same. */
static void floods_are_read_in_turns(void **state)
{
    enum { MUCH = 128 << 20, TURN = 32 << 20 };
    (void)state;
    task a;
    open_line();
    begin_task(&a, QUIRE_TIER_LOAD, 1);
    pump(false);
    answer = "$536870912\r\n"; /* a value that is not the block's */
    flood = MUCH;
    line->socket.can_read = true;
    for (uint32_t turns = 0; flood > MUCH / 2; turns++) {
        size_t left = flood;
        redis->net.has_more = false;
        pump(false);
        assert_true(redis->net.has_more);
        assert_true(left - flood <= TURN);
        assert_true(turns < MUCH / 64);
    }
    flood = 0;
    close_line();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(begun_loads_are_sent),     cmocka_unit_test(a_byte_is_a_beginning),
        cmocka_unit_test(loads_not_begun_leave),    cmocka_unit_test(begun_stores_close),
        cmocka_unit_test(floods_are_read_in_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

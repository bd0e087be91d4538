/* tier/redis/test_redis.c - the Redis tier's parts that need no server: replies, keys, values,
 * addresses,
 * configs. */
#include "base/unit.h"
#include "tier/core/faulty.h"
#include "tier/net/address.h"
#include "tier/redis/redis.h"
#include "tier/redis/resp.h"
#include "tier/redis/value.h"

#include <quire/tier_redis.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- replies --------------------------------------------------------------- */

typedef struct words {
    char text[4096];
    size_t n;
} words;

static void add(words *w, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    w->n += (size_t)vsnprintf(w->text + w->n, sizeof w->text - w->n, format, values);
    va_end(values);
}

static void add_item(words *w, const qr_resp_item *item)
{
    switch (item->kind) {
    case QR_RESP_STATUS:
        add(w, "s");
        break;
    case QR_RESP_ERROR:
        add(w, "e");
        break;
    case QR_RESP_TEXT_ITEM:
        add(w, "'%.*s'", (int)item->bytes, item->text);
        break;
    case QR_RESP_NIL:
        add(w, "nil");
        break;
    case QR_RESP_ARRAY:
        add(w, "[%lld", (long long)item->number);
        break;
    case QR_RESP_VALUE_ITEM:
        add(w, "<%lld", (long long)item->number);
        break;
    default:
        add(w, "%lld", (long long)item->number);
    }
    add(w, item->is_last ? "." : " ");
}

/* Items as text: s for a status, e for an error, [2 for an array, <7 for a value, a point
 * behind the last of a reply, ! for what is no reply, ~ where more must come. The bytes come one by
 * one, so that each item is seen unfinished first. */
static void expect_walk(const char *bytes, size_t n, bool as_value, const char *expected)
{
    qr_resp resp = {0};
    words w = {0};
    size_t begin = 0;
    size_t end = 0;
    int status = QR_RESP_MORE;
    while (status != QR_RESP_BAD && (end < n || status == QR_RESP_ITEM)) {
        qr_resp_item item;
        size_t used;
        end += status == QR_RESP_MORE;
        status = qr_resp_next(&resp, as_value, (const unsigned char *)bytes + begin, end - begin,
                              &used, &item);
        begin += used;
        if (status == QR_RESP_ITEM)
            add_item(&w, &item);
        else
            assert_int_equal(used, 0);
    }
    add(&w, status == QR_RESP_BAD ? "!" : begin < n ? "~" : "");
    assert_string_equal(w.text, expected);
}

static void replies_are_walked(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool as_value;
        const char *items;
    } cases[] = {
        {"+OK\r\n", true, "s."},
        {"-ERR no\r\n:7\r\n", false, "e.7."},
        {":-9223372036854775807\r\n", false, "-9223372036854775807."},
        {":9223372036854775808\r\n", false, "!"},
        {":99999999999999999999999\r\n", false, "!"},
        {":\r\n", false, "!"},
        {":-\r\n", false, "!"},
        {":1x\r\n", false, "!"},
        {": 1\r\n", false, "!"},
        {"$3\r\nabc\r\n", false, "'abc'."},
        {"$0\r\n\r\n", false, "''."},
        {"$3\r\nabcd\r\n", false, "!"},
        {"$3\r\nabc\rx", false, "!"},
        {"$-1\r\n", true, "nil."},
        {"$-2\r\n", true, "!"},
        {"$536870912\r\n", true, "<536870912."},
        {"$536870913\r\n", true, "!"},
        {"$513\r\n", false, "!"},
        {"*-1\r\n", false, "nil."},
        {"*-2\r\n", false, "!"},
        {"*0\r\n", false, "[0."},
        {"*2\r\n:5\r\n$3\r\nabc\r\n", true, "[2 5 'abc'."},
        {"*2\r\n*0\r\n*1\r\n+x\r\n+y\r\n", false, "[2 [0 [1 s.s."},
        {"*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", false, "[1 [1 [1 [1 1."},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", false, "[1 [1 [1 [1 !"},
        {"*524288\r\n", false, "[524288 "},
        {"*524289\r\n", false, "!"},
        {"*2\r\n*524287\r\n", false, "[2 !"},
        {"HTTP/1.1 400 Bad Request\r\n", false, "!"},
        {"+OK\n", false, "!"},
        {"+O\rK\r\n", false, "!"},
        {"\r\n", false, "!"},
        {"+OK\r", false, "~"},
        {"$3\r\nab", false, "~"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_walk(cases[i].bytes, strlen(cases[i].bytes), cases[i].as_value, cases[i].items);
    char line[QR_RESP_LINE + 2];
    memset(line, 'x', sizeof line);
    line[0] = '+';
    expect_walk(line, QR_RESP_LINE - 1, false, "~");
    expect_walk(line, QR_RESP_LINE, false, "!");
}

static void errors_have_a_first_word(void **state)
{
    (void)state;
    qr_resp resp = {0};
    qr_resp_item item;
    size_t used;
    const char *bytes = "-MOVED 1 a:1\r\n";
    assert_int_equal(
        qr_resp_next(&resp, false, (const unsigned char *)bytes, strlen(bytes), &used, &item),
        QR_RESP_ITEM);
    assert_true(qr_resp_is_error(&item, "MOVED"));
    assert_false(qr_resp_is_error(&item, "MOVE"));
    assert_false(qr_resp_is_error(&item, "MOVED 1 a:1 and more"));
}

/* ---- keys and values ------------------------------------------------------- */

static void slots_are_redis_own(void **state)
{
    (void)state;
    assert_int_equal(qr_redis_slot_of("123456789", 9), 0x31c3 % 16384);
    assert_int_equal(qr_redis_slot_of("foo", 3), 12182); /* as CLUSTER KEYSLOT says */
    assert_int_equal(qr_redis_slot_of("", 0), 0);
}

static qr_redis_space make_space(unsigned char byte)
{
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    qr_redis_space space;
    memset(fingerprint, byte, sizeof fingerprint);
    qr_redis_space_init(&space, "quire", fingerprint);
    return space;
}

static void keys_are_names(void **state)
{
    (void)state;
    qr_redis_space space = make_space(0xab);
    quire_tier_key key = {.group = 3, .rank = 4294967295u};
    char text[QR_REDIS_KEY];
    memset(key.hash, 0x1f, sizeof key.hash);
    uint32_t n = qr_redis_key_write(&space, &key, text);
    assert_true(n <= sizeof text);
    text[n] = 0;
    assert_string_equal(text, "quire:1:abababababababababababababababab:"
                              "1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f"
                              ":3:4294967295");
    char longest[QR_REDIS_PREFIX + 1];
    memset(longest, 'p', QR_REDIS_PREFIX);
    longest[QR_REDIS_PREFIX] = 0;
    qr_redis_space_init(&space, longest, space.fingerprint);
    key.group = UINT32_MAX;
    assert_true(qr_redis_key_write(&space, &key, text) <= QR_REDIS_KEY);
}

/* Keys of one prompt are spread over the slots. */
static void keys_are_spread(void **state)
{
    (void)state;
    enum { KEYS = 3000, PARTS = 16 };
    qr_redis_space space = make_space(1);
    uint32_t counts[PARTS] = {0};
    for (uint32_t i = 0; i < KEYS; i++) {
        char text[QR_REDIS_KEY];
        quire_tier_key key = faulty_key(i);
        uint32_t n = qr_redis_key_write(&space, &key, text);
        counts[qr_redis_slot_of(text, n) * PARTS / 16384]++;
    }
    for (int i = 0; i < PARTS; i++)
        assert_in_range(counts[i], KEYS / PARTS / 2, KEYS / PARTS * 2);
}

/* Any bit of a header that is another, and any field that was asked for otherwise, is seen. */
static void headers_are_checked(void **state)
{
    (void)state;
    qr_redis_space space = make_space(7);
    qr_redis_space other = make_space(8);
    quire_tier_io io = {.key = faulty_key(1), .bytes = 100, .crc = 0x12345678};
    unsigned char header[QR_NET_HEADER];
    uint32_t crc = 0;
    qr_net_header_write(space.fingerprint, &io, header);
    assert_true(qr_net_header_check(space.fingerprint, &io, header, &crc));
    assert_int_equal(crc, 0x12345678);
    io.place = 5; /* for tiers that have places: not of the block */
    assert_true(qr_net_header_check(space.fingerprint, &io, header, &crc));
    assert_false(qr_net_header_check(other.fingerprint, &io, header, &crc));
    for (int field = 0; field < 4; field++) {
        quire_tier_io asked = io;
        asked.key.hash[31] ^= field == 0;
        asked.key.group ^= field == 1;
        asked.key.rank ^= field == 2;
        asked.bytes ^= field == 3;
        assert_false(qr_net_header_check(space.fingerprint, &asked, header, &crc));
    }
    for (int bit = 0; bit < QR_NET_HEADER * 8; bit++) {
        header[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(qr_net_header_check(space.fingerprint, &io, header, &crc));
        header[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void commands_fit(void **state)
{
    (void)state;
    qr_redis_space space = make_space(7);
    quire_tier_io io = {.key = faulty_key(1), .bytes = 1000};
    char text[QR_REDIS_COMMAND];
    uint16_t slot;
    uint32_t n = qr_redis_command_write(&space, QUIRE_TIER_FIND, &io, false, text, &slot);
    assert_memory_equal(text, "*2\r\n$6\r\nSTRLEN\r\n$", 17);
    assert_memory_equal(text + n - 2, "\r\n", 2);
    n = qr_redis_command_write(&space, QUIRE_TIER_STORE, &io, true, text, &slot);
    assert_memory_equal(text, "*5\r\n$3\r\nSET\r\n$", 14);
    assert_memory_equal(text + n - QR_NET_HEADER - 7, "$1128\r\nQUIREKV1", 15);
    assert_true(n <= sizeof text);
}

/* ---- addresses ------------------------------------------------------------- */

static void addresses_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *host; /* NULL: none */
        int port;
        bool is_local;
    } cases[] = {
        {"127.0.0.1:7000", "127.0.0.1", 7000, true},
        {"127.1.2.3", "127.1.2.3", 6379, true},
        {"128.0.0.1", "128.0.0.1", 6379, false},
        {"[::1]:7000", "::1", 7000, true},
        {"[::1]", "::1", 6379, true},
        {"::1", "::1", 6379, true},
        {"fd00::1", "fd00::1", 6379, false},
        {"localhost:1", "localhost", 1, true},
        {"redis-0.cache:65535", "redis-0.cache", 65535, false},
        {"unix:/run/redis.sock", "/run/redis.sock", 0, true},
        {"unix:", NULL, 0, false},
        {"", NULL, 0, false},
        {":6379", NULL, 0, false},
        {"a:", NULL, 0, false},
        {"a:0", NULL, 0, false},
        {"a:65536", NULL, 0, false},
        {"a:123456", NULL, 0, false},
        {"a:1x", NULL, 0, false},
        {"a b:1", NULL, 0, false},
        {"[::1:7000", NULL, 0, false},
        {"[::1]7000", NULL, 0, false},
        {"[]:7000", NULL, 0, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        qr_address a;
        bool is_read = qr_address_parse(&a, cases[i].text, strlen(cases[i].text), 6379);
        assert_int_equal(is_read, cases[i].host != NULL);
        if (!is_read)
            continue;
        assert_string_equal(a.host, cases[i].host);
        assert_int_equal(a.port, cases[i].port);
        assert_int_equal(qr_address_is_local(&a), cases[i].is_local);
    }
    char longest[400];
    qr_address a;
    assert_false(qr_address_parse(&a, "unix:/a\0b", 9, 6379));
    assert_true(qr_address_parse(&a, "unix:a", 6, 6379));
    assert_true(qr_address_parse(&a, "a:1:2", 3, 6379)); /* what follows is not of the text */
    assert_string_equal(a.host, "a");
    assert_int_equal(a.port, 1);
    memset(longest, 'a', sizeof longest);
    assert_false(qr_address_parse(&a, longest, 256, 6379));
    assert_true(qr_address_parse(&a, longest, 255, 6379));
    memcpy(longest, "unix:/", 6);
    assert_false(qr_address_parse(&a, longest, 5 + 108, 6379));
    assert_true(qr_address_parse(&a, longest, 5 + 107, 6379));
}

static void servers_name_servers(void **state)
{
    (void)state;
    qr_address by;
    qr_address a;
    assert_true(qr_address_parse(&by, "10.0.0.9:7000", 13, 6379));
    assert_true(qr_address_parse_said(&a, "::1:7001", 8, &by));
    assert_string_equal(a.host, "::1");
    assert_int_equal(a.port, 7001);
    assert_true(qr_address_parse_said(&a, ":7002", 5, &by)); /* where it is itself */
    assert_string_equal(a.host, "10.0.0.9");
    assert_int_equal(a.port, 7002);
    assert_false(qr_address_parse_said(&a, "nothing", 7, &by));
    assert_false(qr_address_parse_said(&a, "x\n:1", 4, &by));
    assert_false(qr_address_parse_said(&a, "x:99999", 7, &by));
    assert_false(qr_address_set(&a, "x", 1, 70000, &by));
}

/* ---- sockets --------------------------------------------------------------- */

static int option_of(int fd, int level, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &bytes), 0);
    return value;
}

/* A small call is sent at once, and a peer that is gone is noticed. Without a descriptor there is
 * no socket. */
static void sockets_are_tuned(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    qr_endpoint endpoint = {.bytes = sizeof address};
    memcpy(&endpoint.address, &address, sizeof address);
    qr_socket s;
    assert_int_equal(qr_socket_connect(&s, &endpoint, NULL, "127.0.0.1", epoll_fd, &s), 0);
    assert_true(option_of(s.fd, IPPROTO_TCP, TCP_NODELAY) != 0);
    assert_true(option_of(s.fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
    assert_in_range(option_of(s.fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 1, 60000);
    qr_socket_close(&s);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int status = qr_socket_connect(&s, &endpoint, NULL, "127.0.0.1", epoll_fd, &s);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, -1);
    assert_true(s.fd < 0);
    close(epoll_fd);
    close(listener);
}

/* ---- configs --------------------------------------------------------------- */

static const char *const here[] = {"127.0.0.1:1"};
static const char *const there[] = {"10.1.2.3:6379"};
static const char *const nowhere[] = {"127.0.0.1:x"};
static const unsigned char print[QUIRE_FINGERPRINT_BYTES] = {1};

static quire_tier_redis_config good_config(void)
{
    quire_tier_redis_config c = QUIRE_TIER_REDIS_CONFIG_INIT;
    c.servers = here;
    c.num_servers = 1;
    c.fingerprint = print;
    return c;
}

static void expect_config(const quire_tier_redis_config *c, int status)
{
    quire_tier_redis *redis;
    int got = quire_tier_redis_create(c, 0, NULL, &redis);
    assert_int_equal(got, status);
    assert_int_equal(quire_refusal()[0] != 0, status != QUIRE_OK);
    assert_int_equal(redis != NULL, status == QUIRE_OK);
    if (redis != NULL)
        quire_tier_redis_ops()->close(redis);
}

static void configs_are_checked(void **state)
{
    (void)state;
    quire_tier_redis_config c = good_config();
    expect_config(&c, QUIRE_OK);
    c.fingerprint = NULL;
    expect_config(&c, QUIRE_E_CONFIG);
    c = good_config();
    c.num_servers = 0;
    expect_config(&c, QUIRE_E_CONFIG);
    c = good_config();
    c.servers = nowhere;
    expect_config(&c, QUIRE_E_CONFIG);
    c.servers = there;
    expect_config(&c, QUIRE_E_UNSAFE);
    c.trust_network = 1;
    expect_config(&c, QUIRE_OK);
    static const char *const prefixes[] = {"", "a b", "{x}", "x\n"};
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        c = good_config();
        c.prefix = prefixes[i];
        expect_config(&c, QUIRE_E_CONFIG);
    }
    c = good_config();
    c.user = "quire";
    expect_config(&c, QUIRE_E_CONFIG);
    c.password = "secret";
    expect_config(&c, QUIRE_OK);
    c.password_file = "x";
    expect_config(&c, QUIRE_E_CONFIG);
    c = good_config();
    c.connections = 65;
    expect_config(&c, QUIRE_E_CONFIG);
    c = good_config();
    c.max_block_bytes = 536870912;
    expect_config(&c, QUIRE_E_CONFIG);
    c = good_config();
    c.tls_ca_file = "x";
    expect_config(&c, QUIRE_E_CONFIG);
    c.tls = 1;
    expect_config(&c, QUIRE_E_CONFIG); /* there is no such file, or no TLS */
    assert_int_equal(quire_tier_redis_create(NULL, 0, NULL, NULL), QUIRE_E_ARGUMENT);
}

/* Each by itself: the longest, and one more. */
static void times_have_an_end(void **state)
{
    (void)state;
    static const uint64_t day = UINT64_C(86400000000000);
    quire_tier_redis_config c = good_config();
    uint64_t *const times[] = {&c.connect_ns, &c.refresh_ns, &c.breaker_ns, &c.late_ns,
                               &c.usage_ns,   &c.ttl_ms,     &c.wait_ns};
    for (size_t i = 0; i < COUNT(times); i++) {
        uint64_t longest = times[i] == &c.ttl_ms ? day / 1000000 * 3650 : day;
        c = good_config();
        *times[i] = longest + 1;
        expect_config(&c, QUIRE_E_CONFIG);
        assert_non_null(strstr(quire_refusal(), "invalid time"));
        *times[i] = longest;
        expect_config(&c, QUIRE_OK);
    }
}

static void password_files_are_private(void **state)
{
    (void)state;
    char path[] = "/tmp/quire_password_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    quire_tier_redis_config c = good_config();
    c.password_file = path;
    quire_tier_redis *redis;
    assert_int_equal(quire_tier_redis_create(&c, 0, NULL, &redis), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "the file is empty"));
    assert_int_equal(write(fd, "secret\n", 7), 7);
    expect_config(&c, QUIRE_OK);
    assert_int_equal(fchmod(fd, 0644), 0);
    expect_config(&c, QUIRE_E_CONFIG);
    close(fd);
    unlink(path);
    expect_config(&c, QUIRE_E_CONFIG);
}

/* The tier's functions are its own. */
static void common_has_no_ops(void **state)
{
    (void)state;
    quire_tier *tier = NULL;
    quire_tier_redis_config c = good_config();
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.ops = quire_tier_redis_ops();
    assert_int_equal(quire_tier_redis_open(&c, &common, NULL, &tier, NULL), QUIRE_E_ARGUMENT);
    assert_non_null(strstr(quire_refusal(), "common.ops"));
    common.ops = NULL;
    common.self = &c;
    assert_int_equal(quire_tier_redis_open(&c, &common, NULL, &tier, NULL), QUIRE_E_ARGUMENT);
    assert_null(tier);
}

/* ---- one stuck node -------------------------------------------------------- */

enum { MANY = 6000 };

static uint32_t num_ended[MANY];

static void note_end(quire_tier_ends *ends, quire_tier_job *job, uint32_t io,
                     quire_tier_status status)
{
    (void)ends;
    job->ios[io].status = status;
    num_ended[io]++;
}

/* As if the node had answered all that it was asked. */
static uint32_t answer_all(quire_tier_redis *redis, qr_node *node)
{
    uint32_t n = 0;
    for (; node->waiting.first != NULL; n++) {
        qr_call *call = node->waiting.first;
        qr_call_list_drop_first(&node->waiting);
        node->num_calls--;
        qr_call_end(redis, call, QUIRE_TIER_MISSING);
    }
    return n;
}

/* A node that answers gets all its calls, however many wait for one that does not. */
static void stuck_nodes_leave_room(void **state)
{
    (void)state;
    static const char *const two[] = {"127.0.0.1:1", "127.0.0.1:2"};
    quire_tier_ends ends = {note_end};
    quire_tier_redis *redis;
    quire_tier_redis_config c = good_config();
    c.servers = two;
    c.num_servers = 2;
    assert_int_equal(quire_tier_redis_create(&c, 4, NULL, &redis), QUIRE_OK);
    quire_tier_io *ios = calloc(MANY, sizeof *ios);
    quire_tier_job job = {
        .op = QUIRE_TIER_FIND, .num_ios = MANY, .ios = ios, .due_ns = UINT64_MAX - 1};
    uint32_t num_free = redis->num_free_calls;
    redis->net.ends = &ends;
    redis->has_map = true;
    redis->node_share = QR_REDIS_CALLS / 2;
    for (uint32_t slot = 0; slot < QR_REDIS_SLOTS; slot++)
        redis->owner[slot] = slot % 2;
    for (uint32_t i = 0; i < MANY; i++)
        ios[i].key = faulty_key(i);
    qr_net_begin(&redis->net, &job);
    uint32_t answered = 0;
    for (int round = 0; round < 3; round++) {
        qr_batch_route_all(redis);
        assert_int_equal(redis->nodes[1].num_calls, QR_REDIS_CALLS / 2);
        answered += answer_all(redis, &redis->nodes[0]);
    }
    assert_in_range(answered, MANY * 2 / 5, MANY * 3 / 5); /* all that are its own */
    redis->net.now_ns = UINT64_MAX;
    qr_net_expire(&redis->net);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(num_ended[i], 1);
    assert_int_equal(redis->num_free_calls, num_free);
    assert_int_equal(redis->net.num_jobs, 0);
    free(ios);
    quire_tier_redis_ops()->close(redis);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_are_walked),   cmocka_unit_test(errors_have_a_first_word),
        cmocka_unit_test(slots_are_redis_own),  cmocka_unit_test(keys_are_names),
        cmocka_unit_test(keys_are_spread),      cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(commands_fit),         cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(servers_name_servers), cmocka_unit_test(sockets_are_tuned),
        cmocka_unit_test(configs_are_checked),  cmocka_unit_test(password_files_are_private),
        cmocka_unit_test(common_has_no_ops),    cmocka_unit_test(stuck_nodes_leave_room),
        cmocka_unit_test(times_have_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

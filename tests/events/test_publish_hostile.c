/* events/test_publish_hostile.c - subscribers that do what they should not: the engine goes on,
 * memory stays bounded, and whoever behaves gets everything.
 *
 *      test_publish_hostile [--connections N]
 *              how often the hasty ones come and go; from 10,000 on, also a test that waits
 */
#include "engine_kit.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

/* Builds that are slow do less. */
#define IS_SLOW (HAS_SANITIZER || QUIRE_ASSERT_LEVEL > 2)

enum {
    MANY_STEPS = IS_SLOW ? 1000 : 20000,
    FIRST_ROUNDS = IS_SLOW ? 5 : 20,
    GROWTH_KIB = 48 << 10
};

static uint32_t num_connections = IS_SLOW ? 100 : 300;

typedef struct scene {
    engine e;
    quire_publisher *publisher;
    listener good;
    void *context; /* of those that misbehave */
    uint64_t rss_kib;
} scene;

static void open_scene(scene *s, quire_publisher_config config)
{
    engine_options options = {.num_blocks = 400, .has_tokens = true, .seed = 1};
    engine_open(&s->e, &options);
    config.monitor = s->e.monitor;
    if (config.endpoint == NULL)
        config.endpoint = "ipc://*"; /* whose queues in the system are short */
    if (config.replay_endpoint == NULL)
        config.replay_endpoint = "tcp://127.0.0.1:*";
    if (quire_publisher_create(&config, &s->publisher) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    quire_subscriber_config from = QUIRE_SUBSCRIBER_CONFIG_INIT;
    from.endpoint = quire_publisher_endpoint(s->publisher);
    from.replay_endpoint = quire_publisher_replay_endpoint(s->publisher);
    from.quiet_ms = 200;
    from.replay_timeout_ms = ENGINE_PATIENCE_MS;
    listener_open(&s->good, &from, 0);
    s->context = zmq_ctx_new();
    assert_non_null(s->context);
    for (int i = 0; i < FIRST_ROUNDS; i++) { /* until all queues and buffers that grow have grown */
        engine_run(&s->e, 100);
        assert_true(listener_follows(&s->good, &s->e));
    }
    s->rss_kib = engine_rss_kib();
}

static void close_scene(scene *s)
{
    assert_true(listener_follows(&s->good, &s->e));
    assert_int_equal(s->good.num_deliveries[QUIRE_DELIVERY_GAP], 0);
    listener_close(&s->good);
    quire_publisher_destroy(s->publisher);
    engine_close(&s->e);
    assert_int_equal(zmq_ctx_term(s->context), 0);
}

static void check_memory(const scene *s)
{
    uint64_t now_kib = engine_rss_kib();
    printf("memory: %llu KiB before, %llu after\n", (unsigned long long)s->rss_kib,
           (unsigned long long)now_kib);
    if (!HAS_SANITIZER)
        assert_true(now_kib < s->rss_kib + GROWTH_KIB);
}

static void *bad_socket(scene *s, int type, const char *endpoint)
{
    const int one = 1;
    const int none = 0;
    void *socket = zmq_socket(s->context, type);
    assert_non_null(socket);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none), 0);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_RCVHWM, &one, sizeof one), 0);
    if (type == ZMQ_SUB)
        assert_int_equal(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0), 0);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

/* All steps are made, in whatever state the subscribers are; what they make is told meanwhile. */
static void make_steps(scene *s, uint32_t num_steps)
{
    quire_monitor_step before = QUIRE_MONITOR_STEP_INIT;
    quire_monitor_step after = QUIRE_MONITOR_STEP_INIT;
    assert_int_equal(quire_monitor_get_last_step(s->e.monitor, &before), QUIRE_OK);
    for (uint32_t i = 0; i < num_steps; i++) {
        engine_step(&s->e);
        while (i % 100 == 0 && listener_take(&s->good, 0))
            ;
    }
    assert_int_equal(quire_monitor_get_last_step(s->e.monitor, &after), QUIRE_OK);
    assert_int_equal(after.step, before.step + num_steps);
}

/* Connected, subscribed, and never reads. */
static void stuck_subscribers(void **state)
{
    (void)state;
    scene s;
    void *stuck[4];
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.hwm = 1000;
    config.buffer_bytes = 4 << 20;
    open_scene(&s, config);
    for (size_t i = 0; i < COUNT(stuck); i++)
        stuck[i] = bad_socket(&s, ZMQ_SUB, quire_publisher_endpoint(s.publisher));
    make_steps(&s, MANY_STEPS);
    assert_true(listener_follows(&s.good, &s.e));
    check_memory(&s);
    for (size_t i = 0; i < COUNT(stuck); i++)
        assert_int_equal(zmq_close(stuck[i]), 0);
    close_scene(&s);
}

/* The same with queues that are long in number: their bytes are bounded too, and those that behave
 * ask for what was not sent. */
static void queues_of_many_bytes(void **state)
{
    (void)state;
    scene s;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.buffer_bytes = 1 << 20;
    config.queue_bytes = 1 << 18;
    open_scene(&s, config);
    void *stuck = bad_socket(&s, ZMQ_SUB, quire_publisher_endpoint(s.publisher));
    uint64_t until_ms = engine_now_ms() + ENGINE_PATIENCE_MS;
    while (engine_publisher_stats(s.publisher).num_unsent == 0 && engine_now_ms() < until_ms)
        make_steps(&s, 1000);
    assert_true(engine_publisher_stats(s.publisher).num_unsent > 0);
    assert_int_equal(zmq_close(stuck), 0);
    make_steps(&s, 100); /* the queue has gone with it: live batches again */
    close_scene(&s);
}

/* Greets as a subscriber does, byte by byte, and then says what no library would: libzmq's own
 * sockets would keep the topic as well, in this same process. */
static int greet_by_hand(const char *endpoint)
{
    static const unsigned char READY[] = {4,   25,  5,   'R', 'E', 'A', 'D', 'Y', 11,
                                          'S', 'o', 'c', 'k', 'e', 't', '-', 'T', 'y',
                                          'p', 'e', 0,   0,   0,   3,   'S', 'U', 'B'};
    unsigned char greeting[64] = {0xff, [9] = 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_port = htons((uint16_t)strtoul(strrchr(endpoint, ':') + 1, NULL, 10));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s >= 0);
    assert_int_equal(connect(s, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(s, greeting, sizeof greeting, 0), sizeof greeting);
    assert_int_equal(send(s, READY, sizeof READY, 0), sizeof READY);
    return s;
}

/* A subscription to a topic of millions of bytes, each of which libzmq would keep as a node. */
static void endless_topic(void **state)
{
    (void)state;
    enum { PIECES = 2048 };
    scene s;
    unsigned char piece[4096] = {0};
    unsigned char head[] = {2, 0, 0, 0, 0, 0, PIECES * sizeof piece >> 16, 0, 0};
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.endpoint = "tcp://127.0.0.1:*";
    open_scene(&s, config);
    int socket = greet_by_hand(quire_publisher_endpoint(s.publisher));
    assert_int_equal(send(socket, head, sizeof head, 0), sizeof head);
    piece[0] = 1; /* subscribe */
    for (int i = 0; i < PIECES && send(socket, piece, sizeof piece, MSG_NOSIGNAL) > 0; i++)
        memset(piece, 'x', sizeof piece);
    for (uint32_t i = 0; i < 5; i++) {
        make_steps(&s, 100);
        usleep(50000); /* time to be taken in */
    }
    check_memory(&s);
    assert_int_equal(close(socket), 0);
    close_scene(&s);
}

/* Ask for everything, and never read the answer. */
static void stuck_replays(void **state)
{
    (void)state;
    scene s;
    void *stuck[20];
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.buffer_bytes = 4 << 20;
    open_scene(&s, config);
    for (size_t i = 0; i < COUNT(stuck); i++) {
        stuck[i] = bad_socket(&s, ZMQ_DEALER, quire_publisher_replay_endpoint(s.publisher));
        for (int n = 0; n < 50; n++) { /* one is answered, the others come too early */
            assert_int_equal(zmq_send(stuck[i], "", 0, ZMQ_SNDMORE), 0);
            assert_int_equal(zmq_send(stuck[i], i % 2 == 0 ? "snapshot" : "\0\0\0\0\0\0\0", 8, 0),
                             8);
        }
    }
    make_steps(&s, MANY_STEPS);
    assert_true(listener_follows(&s.good, &s.e));
    check_memory(&s);
    for (size_t i = 0; i < COUNT(stuck); i++)
        assert_int_equal(zmq_close(stuck[i]), 0);
    close_scene(&s);
}

/* More of them than there are places: those are given up in some seconds, and others get theirs. */
static void crowd_of_stuck_replays(void **state)
{
    (void)state;
    scene s;
    listener late;
    void *stuck[100];
    if (num_connections < 10000) /* not in the ordinary run: it waits */
        skip();
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.replay_endpoint = "ipc://*";
    config.buffer_bytes = 8 << 20;
    open_scene(&s, config);
    make_steps(&s, MANY_STEPS);
    quire_subscriber_config from = QUIRE_SUBSCRIBER_CONFIG_INIT;
    from.endpoint = quire_publisher_endpoint(s.publisher);
    from.replay_endpoint = quire_publisher_replay_endpoint(s.publisher);
    from.replay_timeout_ms = ENGINE_PATIENCE_MS;
    for (size_t i = 0; i < COUNT(stuck); i++) {
        stuck[i] = bad_socket(&s, ZMQ_DEALER, from.replay_endpoint);
        assert_int_equal(zmq_send(stuck[i], "", 0, ZMQ_SNDMORE), 0);
        assert_int_equal(zmq_send(stuck[i], "\0\0\0\0\0\0\0", 8, 0), 8);
    }
    uint64_t before_ms = engine_now_ms();
    while (engine_now_ms() < before_ms + 500) /* until all have asked */
        make_steps(&s, 1);
    listener_open(&late, &from, 0);
    assert_true(listener_follows(&late, &s.e));
    assert_int_equal(late.num_deliveries[QUIRE_DELIVERY_WHOLE], 1);
    assert_true(engine_publisher_stats(s.publisher).num_refused > 0); /* they were given up */
    check_memory(&s);
    for (size_t i = 0; i < COUNT(stuck); i++)
        assert_int_equal(zmq_close(stuck[i]), 0);
    listener_close(&late);
    close_scene(&s);
}

static uint32_t count_files(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

/* A connection that speaks no ZeroMQ, and is left in the middle. */
static void knock(const char *endpoint)
{
    static const char words[] = "GET / HTTP/1.1\r\n\r\n\xff\0\0\0\0\0\0\0\1\x7f";
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)strtoul(strrchr(endpoint, ':') + 1, NULL, 10));
    int knocker = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(knocker >= 0);
    if (connect(knocker, (const struct sockaddr *)&address, sizeof address) == 0)
        (void)send(knocker, words, sizeof words, MSG_NOSIGNAL);
    (void)close(knocker);
}

/* Come and go, some in the middle of a word. */
static void hasty_subscribers(void **state)
{
    (void)state;
    scene s;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.endpoint = "tcp://127.0.0.1:*";
    config.buffer_bytes = 4 << 20;
    open_scene(&s, config);
    const char *endpoint = quire_publisher_endpoint(s.publisher);
    const char *replay = quire_publisher_replay_endpoint(s.publisher);
    uint32_t files = count_files();
    for (uint32_t i = 0; i < num_connections; i++) {
        bool asks = i % 4 == 3;
        void *hasty = bad_socket(&s, asks ? ZMQ_DEALER : ZMQ_SUB, asks ? replay : endpoint);
        if (asks) {
            (void)zmq_send(hasty, "", 0, ZMQ_SNDMORE);
            (void)zmq_send(hasty, "snapshot", 8, 0);
        }
        engine_step(&s.e);
        if (i % 8 == 0) { /* some wait until they are connected */
            zmq_pollitem_t item = {.socket = hasty, .events = ZMQ_POLLIN};
            for (int n = 0; n < 20 && zmq_poll(&item, 1, 5) == 0; n++)
                engine_step(&s.e);
        }
        assert_int_equal(zmq_close(hasty), 0);
        knock(i % 2 == 0 ? endpoint : replay);
        while (i % 50 == 0 && listener_take(&s.good, 0))
            ;
    }
    make_steps(&s, 1000);
    assert_true(listener_follows(&s.good, &s.e));
    check_memory(&s);
    uint64_t until_ms = engine_now_ms() + ENGINE_PATIENCE_MS;
    while (count_files() > files + 8 && engine_now_ms() < until_ms)
        (void)usleep(10000);
    assert_true(count_files() <= files + 8);
    close_scene(&s);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--connections") == 0)
        num_connections = (uint32_t)strtoul(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stuck_subscribers),      cmocka_unit_test(queues_of_many_bytes),
        cmocka_unit_test(endless_topic),          cmocka_unit_test(stuck_replays),
        cmocka_unit_test(crowd_of_stuck_replays), cmocka_unit_test(hasty_subscribers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* events/test_subscriber_hostile.c - a publisher that lies: frames that are none, numbers that
 * jump, answers that nobody asked for, in any order, without an end. The subscriber gives out
 * batches in the order of their numbers, says where there is a gap, and comes back in time.
 *
 *      test_subscriber_hostile [SEED]
 */
#include "engine_kit.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum { ROUNDS = 3000, IDS = 64, ID_BYTES = 16 };

static uint64_t seed;
static uint16_t port; /* on which a subscriber listens */

typedef struct liar {
    void *context;
    void *pub;
    void *router;
    char endpoint[64];
    char replay[64];
    uint64_t random;
    uint64_t number;
    unsigned char batch[64]; /* one that is good */
    size_t batch_len;
    unsigned char ids[IDS][ID_BYTES]; /* of those who asked */
    size_t id_lens[IDS];
    uint32_t num_ids;
} liar;

static void *open_socket(liar *x, int type, char *endpoint, size_t bytes)
{
    const int none = 0;
    void *socket = zmq_socket(x->context, type);
    assert_non_null(socket);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none), 0);
    assert_int_equal(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &bytes), 0);
    return socket;
}

static void open_liar(liar *x)
{
    quire_bytes bytes;
    quire_wire_writer *writer;
    quire_wire_event cleared = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    *x = (liar){.context = zmq_ctx_new(), .random = seed};
    assert_non_null(x->context);
    x->pub = open_socket(x, ZMQ_PUB, x->endpoint, sizeof x->endpoint);
    x->router = open_socket(x, ZMQ_ROUTER, x->replay, sizeof x->replay);
    assert_int_equal(quire_wire_writer_create(NULL, &writer), QUIRE_OK);
    assert_int_equal(quire_wire_begin(writer), QUIRE_OK);
    assert_int_equal(quire_wire_add(writer, &cleared), QUIRE_OK);
    assert_int_equal(quire_wire_end(writer, 1.5, 0, &bytes), QUIRE_OK);
    assert_true(bytes.len <= sizeof x->batch);
    memcpy(x->batch, bytes.data, bytes.len);
    x->batch_len = bytes.len;
    quire_wire_writer_destroy(writer);
}

static void close_liar(liar *x)
{
    assert_int_equal(zmq_close(x->pub), 0);
    assert_int_equal(zmq_close(x->router), 0);
    assert_int_equal(zmq_ctx_term(x->context), 0);
}

/* A number near the next, rarely far away, or that of an end. */
static uint64_t some_number(liar *x)
{
    switch (unit_random_below(&x->random, 20)) {
    case 0:
        return unit_random(&x->random);
    case 1:
        return UINT64_MAX;
    case 2:
        return x->number > 10 ? x->number - unit_random_below(&x->random, 10) : 0;
    case 3:
        return x->number += 1 + unit_random_below(&x->random, 5);
    case 4:
        return x->number = 0;
    default:
        return x->number++;
    }
}

/* Number and batch, or what is none of them. */
static void send_rest(liar *x, void *socket)
{
    unsigned char bytes[32];
    uint64_t number = some_number(x);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> (56 - 8 * i));
    uint32_t fault = unit_random_below(&x->random, 30);
    (void)zmq_send(socket, bytes, fault == 0 ? 7 : fault == 1 ? 9 : 8, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    for (uint32_t extra = fault == 2 ? 3 : 0; extra > 0; extra--)
        (void)zmq_send(socket, bytes, 8, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (fault == 3) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)unit_random(&x->random);
        (void)zmq_send(socket, bytes, sizeof bytes, ZMQ_DONTWAIT);
    } else if (fault == 4) {
        (void)zmq_send(socket, "", 0, ZMQ_DONTWAIT);
    } else { /* most are good; some have other bytes under a number that was there before */
        x->batch[9] = unit_random_below(&x->random, 10) == 0 ? (unsigned char)fault : 0;
        (void)zmq_send(socket, x->batch, x->batch_len, ZMQ_DONTWAIT);
    }
}

static void lie_live(liar *x)
{
    if (unit_random_below(&x->random, 50) == 0) {
        (void)zmq_send(x->pub, "alone", 5, ZMQ_DONTWAIT);
        return;
    }
    (void)zmq_send(x->pub, "topic", 5, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    send_rest(x, x->pub);
}

static void hear_requests(liar *x)
{
    unsigned char frame[64];
    for (;;) {
        int more = 1;
        size_t more_bytes = sizeof more;
        int len = zmq_recv(x->router, frame, sizeof frame, ZMQ_DONTWAIT);
        if (len < 0)
            return;
        assert_true(len <= ID_BYTES);
        uint32_t place = x->num_ids < IDS ? x->num_ids++ : unit_random_below(&x->random, IDS);
        memcpy(x->ids[place], frame, (size_t)len);
        x->id_lens[place] = (size_t)len;
        while (zmq_getsockopt(x->router, ZMQ_RCVMORE, &more, &more_bytes) == 0 && more != 0)
            (void)zmq_recv(x->router, frame, sizeof frame, ZMQ_DONTWAIT);
    }
}

/* Something for one who asked, now or long ago; what is sent to those who have gone is lost. */
static void lie_in_answer(liar *x)
{
    if (x->num_ids == 0)
        return;
    bool is_last = unit_random_below(&x->random, 4) > 0;
    uint32_t place = is_last ? x->num_ids - 1 : unit_random_below(&x->random, x->num_ids);
    for (uint32_t n = unit_random_below(&x->random, 4); n > 0; n--) {
        (void)zmq_send(x->router, x->ids[place], x->id_lens[place], ZMQ_SNDMORE | ZMQ_DONTWAIT);
        if (unit_random_below(&x->random, 30) > 0)
            (void)zmq_send(x->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        send_rest(x, x->router);
    }
}

static void run_liar(uint32_t start, bool has_replay)
{
    liar x;
    listener l;
    open_liar(&x);
    quire_subscriber_config config = QUIRE_SUBSCRIBER_CONFIG_INIT;
    config.endpoint = x.endpoint;
    config.replay_endpoint = has_replay ? x.replay : NULL;
    config.replay_timeout_ms = 20;
    config.quiet_ms = 10;
    config.max_message_bytes = 1000;
    config.start = start;
    listener_open(&l, &config, 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t before_ms = engine_now_ms();
        for (uint32_t n = unit_random_below(&x.random, 3); n > 0; n--)
            lie_live(&x);
        hear_requests(&x);
        lie_in_answer(&x);
        (void)listener_take(&l, (int)unit_random_below(&x.random, 2));
        assert_true(engine_now_ms() < before_ms + ENGINE_PATIENCE_MS);
    }
    uint64_t num_batches = l.num_deliveries[QUIRE_DELIVERY_LIVE] +
                           l.num_deliveries[QUIRE_DELIVERY_REPLAY] +
                           l.num_deliveries[QUIRE_DELIVERY_SNAPSHOT];
    assert_true(num_batches > 0);
    assert_true(l.num_corrupt > 0);
    listener_close(&l);
    close_liar(&x);
}

static void lies(void **state)
{
    (void)state;
    for (uint32_t start = 0; start < 3; start++)
        run_liar(start, true);
    run_liar(1, false);
}

/* Strangers connect to a subscriber that listens, and hang up at once. */
static uint16_t knock_often(uint32_t times)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    socklen_t bytes = sizeof to;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (times == 0) { /* only looks for a port that is free */
        int s = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(s, (const struct sockaddr *)&to, sizeof to), 0);
        assert_int_equal(getsockname(s, (struct sockaddr *)&to, &bytes), 0);
        assert_int_equal(close(s), 0);
        port = ntohs(to.sin_port);
    }
    to.sin_port = htons(port);
    for (uint32_t i = 0; i < times; i++) {
        const struct linger at_once = {.l_onoff = 1};
        int s = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(s >= 0);
        (void)connect(s, (const struct sockaddr *)&to, sizeof to);
        (void)setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (i % 4 == 0)
            usleep(500); /* accepted, most often */
        assert_int_equal(close(s), 0);
    }
    return port;
}

static void broken_connections(void **state)
{
    (void)state;
    liar x;
    char endpoint[64];
    quire_delivery d = QUIRE_DELIVERY_INIT;
    quire_subscriber *subscriber;
    quire_subscriber_config config = QUIRE_SUBSCRIBER_CONFIG_INIT;
    open_liar(&x);
    (void)snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", knock_often(0));
    config.endpoint = endpoint;
    config.listen = QUIRE_ON;
    config.start = 1;
    assert_int_equal(quire_subscriber_create(&config, &subscriber), QUIRE_OK);
    for (uint32_t i = 0; i < 50; i++) {
        (void)knock_often(60);
        assert_int_equal(quire_subscriber_next(subscriber, 1, &d), QUIRE_RETRY);
    }
    assert_int_equal(zmq_connect(x.pub, endpoint), 0);
    int status = QUIRE_RETRY;
    uint64_t until_ms = engine_now_ms() + ENGINE_PATIENCE_MS;
    while (status == QUIRE_RETRY && engine_now_ms() < until_ms) {
        unsigned char number[8] = {0};
        number[7] = (unsigned char)x.number++;
        assert_int_equal(zmq_send(x.pub, "", 0, ZMQ_SNDMORE), 0);
        assert_int_equal(zmq_send(x.pub, number, sizeof number, ZMQ_SNDMORE), 8);
        assert_true(zmq_send(x.pub, x.batch, x.batch_len, 0) > 0);
        status = quire_subscriber_next(subscriber, 50, &d);
    }
    assert_int_equal(status, QUIRE_OK);
    quire_subscriber_destroy(subscriber);
    close_liar(&x);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(lies),
                                       cmocka_unit_test(broken_connections)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

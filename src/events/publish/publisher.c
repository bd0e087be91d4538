/* events/publish/publisher.c - the thread that sends batches and answers requests.
 *
 *      reader ─► batches ─► payload ─┬─► PUB
 *                                    └─► replay buffer ─► answers ─► ROUTER
 *
 * The thread owns all of it, sockets included, from its start to its end. The scheduler does not
 * wake it: it looks for itself, every millisecond while there is something, every ten while not.
 */
#include <quire/events.h>

#include "base/config.h"
#include "base/count.h"
#include "base/fork_guard.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "base/thread.h"
#include "events/endpoint.h"
#include "events/frames.h"
#include "events/publish/replay_server.h"
#include "events/zap.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum {
    TOPIC_BYTES = 256,
    BATCHES_AT_ONCE = 64,
    SHORT_WAIT_MS = 1,
    LONG_WAIT_MS = 10,
    CLOSING_MS = 1000,
    REQUEST_BYTES = 1024, /* more than requests and CURVE's greetings have: others are cut off */
    REQUESTS_HWM = 16,    /* that wait from one peer */
    ANSWERS_HWM = 64      /* messages that wait for one peer; the rest goes out as it reads */
};

static const char DEFAULT_ENDPOINT[] = "tcp://127.0.0.1:5557";

/* X(number): of the publisher, and of its stats. */
#define PUBLISHER_STATS(X)                                                                         \
    X(num_batches)                                                                                 \
    X(num_events)                                                                                  \
    X(num_bytes)                                                                                   \
    X(num_lost)                                                                                    \
    X(num_replays)                                                                                 \
    X(num_snapshots)                                                                               \
    X(num_refused)                                                                                 \
    X(num_blocks)                                                                                  \
    X(num_unsent)

struct quire_publisher {
    qr_fork_guard guard;
    void *context;
    void *pub;
    void *router; /* NULL: no replay */
    qr_zap zap;
    qr_endpoint endpoint;
    qr_endpoint replay_endpoint;
    char topic[TOPIC_BYTES];
    size_t topic_len;
    qr_batches *batches;
    qr_replay_buffer buffer;
    qr_replay_server answers;
    qr_budget budget;
    uint64_t max_bytes; /* of the budget */

    pthread_t thread;
    bool has_thread;
    _Atomic bool is_stopping;
#define QR_X(field) _Atomic uint64_t field;
    PUBLISHER_STATS(QR_X)
#undef QR_X
    _Atomic uint64_t is_whole;
};

/* ---- the thread ------------------------------------------------------------ */

/* PUB never waits: a subscriber whose queue is full misses the batch. */
static bool send_live(quire_publisher *p, qr_payload *payload)
{
    zmq_msg_t last;
    unsigned char number[8];
    if (atomic_load_explicit(&p->budget.bytes, memory_order_relaxed) > p->max_bytes)
        return false;
    if (!qr_payload_wrap(payload, &last))
        return false;
    if (zmq_send(p->pub, p->topic, p->topic_len, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        (void)zmq_msg_close(&last);
        return false;
    }
    qr_payload_write_number(payload->number, number);
    (void)zmq_send(p->pub, number, sizeof number, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (zmq_msg_send(&last, p->pub, ZMQ_DONTWAIT) < 0)
        (void)zmq_msg_close(&last);
    return true;
}

static void publish(quire_publisher *p, quire_bytes bytes, uint32_t num_events)
{
    qr_payload *payload = qr_payload_create(&p->budget, p->buffer.next, bytes);
    if (payload == NULL) {
        qr_batches_lose(p->batches);
        return;
    }
    if (!send_live(p, payload))
        qr_count_add(&p->num_unsent, 1);
    qr_replay_buffer_push(&p->buffer, payload);
    qr_count_add(&p->num_batches, 1);
    qr_count_add(&p->num_events, num_events);
    qr_count_add(&p->num_bytes, bytes.len);
}

/* Whether there was anything. */
static bool publish_news(quire_publisher *p)
{
    quire_bytes bytes;
    uint32_t num_events;
    int count = 0;
    while (count < BATCHES_AT_ONCE &&
           qr_batches_next(p->batches, &bytes, &num_events) == QUIRE_OK) {
        publish(p, bytes, num_events);
        count++;
    }
    qr_count_set(&p->num_lost, p->batches->num_lost);
    qr_count_set(&p->num_blocks, p->batches->mirror->num_keys);
    qr_count_set(&p->is_whole, !p->batches->is_walking);
    return count > 0;
}

/* Waits for a request, or the time. A full list of answers does not wait for more requests. */
static void wait_and_read(quire_publisher *p, long wait_ms)
{
    zmq_pollitem_t items[2];
    int count = 0;
    bool takes_requests = p->router != NULL && qr_replay_server_has_room(&p->answers);
    if (takes_requests)
        items[count++] = (zmq_pollitem_t){.socket = p->router, .events = ZMQ_POLLIN};
    if (p->zap.socket != NULL)
        items[count++] = (zmq_pollitem_t){.socket = p->zap.socket, .events = ZMQ_POLLIN};
    /* Who came and went is noted only when the socket is used: without this, queues of those who
     * have gone would stay while nothing is sent. */
    int events;
    size_t events_bytes = sizeof events;
    (void)zmq_getsockopt(p->pub, ZMQ_EVENTS, &events, &events_bytes);
    (void)zmq_poll(items, count, wait_ms);
    if (takes_requests)
        qr_replay_server_read(&p->answers, qr_now_ms());
    if (p->zap.socket != NULL)
        qr_zap_answer(&p->zap);
}

static bool answer_requests(quire_publisher *p)
{
    if (p->router == NULL)
        return false;
    bool has_moved = qr_replay_server_serve(&p->answers, qr_now_ms());
    qr_count_set(&p->num_replays, p->answers.num_replays);
    qr_count_set(&p->num_snapshots, p->answers.num_snapshots);
    qr_count_set(&p->num_refused, p->answers.num_refused);
    return has_moved;
}

static void *publisher_thread(void *user)
{
    quire_publisher *p = user;
    long wait_ms = SHORT_WAIT_MS;
    while (!atomic_load_explicit(&p->is_stopping, memory_order_acquire)) {
        bool has_moved = publish_news(p);
        has_moved = answer_requests(p) || has_moved;
        wait_and_read(p, has_moved ? 0 : wait_ms);
        wait_ms = has_moved ? SHORT_WAIT_MS : 2 * wait_ms;
        if (wait_ms > LONG_WAIT_MS)
            wait_ms = LONG_WAIT_MS;
    }
    uint64_t deadline_ms = qr_now_ms() + CLOSING_MS;
    while (publish_news(p) && qr_now_ms() < deadline_ms)
        ;
    return NULL;
}

/* ---- making ---------------------------------------------------------------- */

static int say_refused(int status, const char *what, const char *value)
{
    qr_say("%s '%s': %s", what, value, quire_strerror(status));
    return status;
}

static int read_endpoints(quire_publisher *p, const quire_publisher_config *config)
{
    const char *texts[2] = {config->endpoint, config->replay_endpoint};
    qr_endpoint *endpoints[2] = {&p->endpoint, &p->replay_endpoint};
    for (int i = 0; i < 2 && texts[i] != NULL; i++) {
        int status = qr_endpoint_read(texts[i], config->rank, endpoints[i]);
        if (status != QUIRE_OK)
            return status;
        if (!endpoints[i]->is_local && config->curve_secret_key == NULL &&
            config->allow_strangers_to_read_prompts_and_stall_us == 0)
            return qr_fail(
                QUIRE_E_UNSAFE,
                "'%s' is open to other machines: set curve_secret_key (and curve_clients), or "
                "use tcp://127.0.0.1:PORT or ipc://FILE; if the network is trusted, set "
                "allow_strangers_to_read_prompts_and_stall_us",
                texts[i]);
    }
    if (config->listen != QUIRE_DEFAULT)
        p->endpoint.listens = config->listen == QUIRE_ON;
    p->replay_endpoint.listens = true;
    return QUIRE_OK;
}

static int guard_socket(void *socket, const quire_publisher_config *config)
{
    unsigned char key[QR_KEY_BYTES];
    if (config->curve_secret_key == NULL)
        return QUIRE_OK;
    if (zmq_has("curve") == 0)
        return qr_fail(QUIRE_E_SYSTEM,
                       "curve_secret_key is set, but this libzmq was built without CURVE");
    if (qr_zap_read_key(config->curve_secret_key, key) != QUIRE_OK)
        return qr_fail(QUIRE_E_ARGUMENT,
                       "invalid curve_secret_key (expected 40 characters from zmq_curve_keypair)");
    qr_socket_set(socket, ZMQ_CURVE_SERVER, 1);
    if (zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, config->curve_secret_key, QR_KEY_TEXT_BYTES) !=
            0 ||
        zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, "quire", strlen("quire")) != 0)
        return say_refused(QUIRE_E_SYSTEM, "CURVE", zmq_strerror(zmq_errno()));
    return QUIRE_OK;
}

static int open_socket(quire_publisher *p, const quire_publisher_config *config, int type,
                       qr_endpoint *endpoint, void **opened)
{
    void *socket = *opened = zmq_socket(p->context, type);
    if (socket == NULL)
        return say_refused(QUIRE_E_SYSTEM, "socket", zmq_strerror(zmq_errno()));
    if (type == ZMQ_PUB) {
        qr_socket_set(socket, ZMQ_SNDHWM, config->hwm > INT32_MAX ? INT32_MAX : (int)config->hwm);
    } else {
        qr_socket_set(socket, ZMQ_LINGER, 0);
        qr_socket_set(socket, ZMQ_SNDHWM, ANSWERS_HWM);
        qr_socket_set(socket, ZMQ_RCVHWM, REQUESTS_HWM);
        qr_socket_set(socket, ZMQ_ROUTER_MANDATORY, 1); /* tells who is full, and who has gone */
    }
    qr_socket_set(socket, ZMQ_TCP_KEEPALIVE, 1);
    qr_socket_set_most(socket, REQUEST_BYTES);
    int status = guard_socket(socket, config);
    return status == QUIRE_OK ? qr_endpoint_attach(endpoint, socket) : status;
}

static int open_sockets(quire_publisher *p, const quire_publisher_config *config)
{
    p->context = zmq_ctx_new();
    if (p->context == NULL)
        return say_refused(QUIRE_E_SYSTEM, "ZeroMQ", zmq_strerror(zmq_errno()));
    int status = QUIRE_OK;
    if (config->num_curve_clients > 0)
        status = qr_zap_init(&p->zap, p->context, config->curve_clients, config->num_curve_clients);
    if (status == QUIRE_OK)
        status = open_socket(p, config, ZMQ_PUB, &p->endpoint, &p->pub);
    if (status == QUIRE_OK && config->replay_endpoint != NULL)
        status = open_socket(p, config, ZMQ_ROUTER, &p->replay_endpoint, &p->router);
    return status;
}

/* Of the tiers whose events are told. */
static void set_mediums(qr_snapshot_maker *maker, const quire_monitor *monitor)
{
    quire_tier_usage tiers[QUIRE_MAX_TIERS];
    const quire_monitor_info *info = quire_monitor_get_info(monitor);
    uint32_t count = quire_monitor_get_tiers(monitor, tiers, QUIRE_MAX_TIERS);
    for (uint32_t i = 0; i < count; i++) {
        maker->mediums[i] = (quire_bytes){tiers[i].medium, strlen(tiers[i].medium)};
        if (info->tier_blocks[i] > 0)
            maker->num_tiers = i + 1;
    }
}

static int create_contents(quire_publisher *p, const quire_publisher_config *config)
{
    const quire_monitor_info *info = quire_monitor_get_info(config->monitor);
    bool is_0_32 = info->profile == QUIRE_PROFILE_VLLM_0_32;
    uint32_t as_maps = config->as_maps != 0 || is_0_32;
    qr_batches_config batches = {.monitor = config->monitor,
                                 .rank = config->rank,
                                 .hashes_as_bytes = config->hashes_as_bytes,
                                 .as_maps = as_maps,
                                 .has_specs = is_0_32,
                                 .every_copy = config->every_copy};
    p->max_bytes = config->buffer_bytes + config->queue_bytes;
    /* Without a replay endpoint nobody can ask: the newest alone keeps the numbers. */
    uint32_t steps = config->replay_endpoint == NULL ? 1 : config->buffer_steps;
    int status = qr_replay_buffer_init(&p->buffer, steps, config->buffer_bytes);
    if (status == QUIRE_OK)
        status = qr_batches_create(&batches, &p->batches);
    if (status == QUIRE_OK)
        status = qr_snapshot_maker_init(&p->answers.maker, as_maps);
    if (status != QUIRE_OK)
        return status;
    p->answers.router = p->router;
    p->answers.batches = p->batches;
    p->answers.buffer = &p->buffer;
    p->answers.budget = &p->budget;
    p->answers.max_bytes = p->max_bytes + config->queue_bytes; /* more than what live ones may */
    p->answers.has_topic = is_0_32;
    p->answers.topic = (quire_bytes){p->topic, p->topic_len};
    p->answers.maker.num_groups = info->num_groups;
    p->answers.maker.specs = is_0_32 ? info : NULL;
    set_mediums(&p->answers.maker, config->monitor);
    p->answers.maker.rank = config->rank;
    p->answers.maker.hashes_as_bytes = config->hashes_as_bytes;
    p->answers.maker.every_copy = config->every_copy;
    return QUIRE_OK;
}

static int check_publisher_config(const quire_publisher_config *config)
{
    bool has_list = config->curve_clients != NULL; /* an empty one would let everybody in */
    if (config->monitor == NULL || has_list != (config->num_curve_clients > 0) ||
        (has_list && config->curve_secret_key == NULL))
        return QUIRE_E_ARGUMENT;
    bool is_long = config->topic != NULL && strlen(config->topic) >= TOPIC_BYTES;
    return is_long || config->listen > QUIRE_OFF ? QUIRE_E_CONFIG : QUIRE_OK;
}

/* Fills in the defaults. */
static int read_publisher_config(const quire_publisher_config *callers,
                                 quire_publisher_config *config)
{
    int status = qr_config_read(config, sizeof *config, callers);
    if (status == QUIRE_OK)
        status = check_publisher_config(config);
    if (status != QUIRE_OK)
        return say_refused(status, "the publisher's", "config");
    if (config->endpoint == NULL)
        config->endpoint = DEFAULT_ENDPOINT;
    if (config->topic == NULL)
        config->topic = "";
    config->hwm = (uint32_t)qr_or_default(config->hwm, 100000);
    config->buffer_steps = (uint32_t)qr_or_default(config->buffer_steps, 10000);
    config->buffer_bytes = qr_or_default(config->buffer_bytes, UINT64_C(256) << 20);
    config->queue_bytes = qr_or_default(config->queue_bytes, UINT64_C(1) << 30);
    return QUIRE_OK;
}

QUIRE_API int quire_publisher_create(const quire_publisher_config *callers,
                                     quire_publisher **publisher)
{
    qr_refuse_clear();
    quire_publisher_config config;
    if (publisher == NULL)
        return say_refused(QUIRE_E_ARGUMENT, "publisher", "NULL");
    int status = read_publisher_config(callers, &config);
    if (status != QUIRE_OK)
        return status;
    quire_publisher *p = qr_alloc(1, sizeof *p);
    if (p == NULL)
        return say_refused(QUIRE_E_NOMEM, "publisher", config.endpoint);
    qr_fork_guard_init(&p->guard);
    p->topic_len = strlen(config.topic);
    memcpy(p->topic, config.topic, p->topic_len);
    status = read_endpoints(p, &config);
    if (status == QUIRE_OK)
        status = open_sockets(p, &config);
    if (status == QUIRE_OK) {
        status = create_contents(p, &config);
        p->has_thread =
            status == QUIRE_OK && qr_thread_start(&p->thread, "quire-events", publisher_thread, p);
        if (status == QUIRE_OK && !p->has_thread)
            status = QUIRE_E_SYSTEM;
        if (status != QUIRE_OK)
            (void)say_refused(status, "publisher", p->endpoint.text);
    }
    if (status != QUIRE_OK) {
        quire_publisher_destroy(p);
        return status;
    }
    *publisher = p;
    return QUIRE_OK;
}

static void stop_publisher(quire_publisher *p)
{
    uint64_t start_ms = qr_now_ms();
    atomic_store_explicit(&p->is_stopping, true, memory_order_release);
    if (p->has_thread)
        (void)pthread_join(p->thread, NULL);
    uint64_t spent_ms = qr_now_ms() - start_ms;
    qr_zap_release(&p->zap);
    (void)zmq_close(p->router);
    if (p->pub != NULL) { /* what is in the queues may still go out, in the time that is left */
        qr_socket_set(p->pub, ZMQ_LINGER, spent_ms < CLOSING_MS ? CLOSING_MS - (int)spent_ms : 0);
        (void)zmq_close(p->pub);
    }
    qr_replay_server_release(&p->answers);
    qr_replay_buffer_release(&p->buffer);
    qr_batches_destroy(p->batches);
    while (zmq_ctx_term(p->context) != 0 && zmq_errno() == EINTR)
        ;
}

/* In a child the thread does not exist, libzmq's descriptors are the parent's, and what the thread
 * was changing when the process forked cannot be freed: only the handle is. */
QUIRE_API void quire_publisher_destroy(quire_publisher *p)
{
    if (p == NULL)
        return;
    if (!qr_fork_guard_is_child(&p->guard))
        stop_publisher(p);
    qr_free(p);
}

/* ---- looking --------------------------------------------------------------- */

QUIRE_API int quire_publisher_get_stats(const quire_publisher *p, quire_publisher_stats *stats)
{
    quire_publisher_stats own;
    if (p == NULL)
        return QUIRE_E_ARGUMENT;
#define QR_X(field) own.field = qr_count_get(&p->field);
    PUBLISHER_STATS(QR_X)
#undef QR_X
    own.is_whole = (uint32_t)qr_count_get(&p->is_whole);
    return qr_struct_out(stats, &own, sizeof own);
}

QUIRE_API const char *quire_publisher_endpoint(const quire_publisher *p)
{
    return p == NULL ? "" : p->endpoint.text;
}

QUIRE_API const char *quire_publisher_replay_endpoint(const quire_publisher *p)
{
    return p == NULL || p->router == NULL ? "" : p->replay_endpoint.text;
}

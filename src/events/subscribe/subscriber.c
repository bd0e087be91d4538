/* events/subscribe/subscriber.c - how a subscriber is made, and what it hands out. Its steps:
 * subscription.c. */
#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "events/frames.h"
#include "events/subscribe/subscription.h"
#include "events/zap.h"

#include <errno.h>
#include <string.h>

static quire_bytes bytes_of(zmq_msg_t *frame)
{
    return (quire_bytes){zmq_msg_data(frame), zmq_msg_size(frame)};
}

static int read_delivery(quire_subscriber *s, quire_delivery *delivery)
{
    if (delivery->kind == QUIRE_DELIVERY_LIVE) /* answers come without */
        delivery->topic = bytes_of(&s->current.topic);
    delivery->bytes = bytes_of(&s->current.payload);
    delivery->events = s->reader;
    int status = quire_wire_read(s->reader, delivery->bytes, &delivery->batch);
    return status == QUIRE_E_RANGE ? QUIRE_E_CORRUPT : status;
}

QUIRE_API int quire_subscriber_next(quire_subscriber *s, int timeout_ms, quire_delivery *delivery)
{
    quire_delivery own;
    int status;
    if (s == NULL || !qr_struct_is_out(delivery, sizeof *delivery))
        return QUIRE_E_ARGUMENT;
    if (qr_fork_guard_is_child(&s->guard))
        return QUIRE_E_SYSTEM;
    uint64_t now_ms = qr_now_ms();
    uint64_t until_ms = timeout_ms < 0 ? UINT64_MAX : now_ms + (uint64_t)timeout_ms;
    for (;;) {
        long wait_ms = timeout_ms < 0 ? -1 : (long)(until_ms > now_ms ? until_ms - now_ms : 0);
        switch (qr_subscription_step(s, wait_ms, &own)) {
        case QR_OUTCOME_BATCH:
            status = read_delivery(s, &own);
            (void)qr_struct_out(delivery, &own, sizeof own);
            return status;
        case QR_OUTCOME_NOTICE:
            return qr_struct_out(delivery, &own, sizeof own);
        case QR_OUTCOME_BAD:
            return QUIRE_E_CORRUPT;
        case QR_OUTCOME_NOTHING:
            if (wait_ms == 0)
                return QUIRE_RETRY;
            break;
        default:
            break;
        }
        now_ms = qr_now_ms();
    }
}

/* ---- making ---------------------------------------------------------------- */

static int read_keys(quire_subscriber *s, const quire_subscriber_config *config)
{
    unsigned char key[QR_KEY_BYTES];
    const char *given[3] = {config->curve_server_key, config->curve_public_key,
                            config->curve_secret_key};
    char *kept[3] = {s->keys.server, s->keys.own_public, s->keys.own_secret};
    static const char *const names[3] = {"curve_server_key", "curve_public_key",
                                         "curve_secret_key"};
    if (config->curve_server_key == NULL)
        return QUIRE_OK;
    if (zmq_has("curve") == 0)
        return qr_fail(QUIRE_E_SYSTEM, "%s is set, but this libzmq was built without CURVE",
                       names[0]);
    /* A publisher that lets in whoever knows its key needs none of ours in particular. */
    if (zmq_curve_keypair(s->keys.own_public, s->keys.own_secret) != 0)
        return QUIRE_E_SYSTEM;
    s->keys.is_used = true;
    for (int i = 0; i < 3; i++) {
        bool is_half = i == 2 && given[1] != NULL && given[2] == NULL;
        if (is_half || (given[i] != NULL && qr_zap_read_key(given[i], key) != QUIRE_OK))
            return qr_fail(
                QUIRE_E_ARGUMENT,
                "%s is missing or invalid (expected 40 characters from zmq_curve_keypair)",
                names[i]);
        if (given[i] != NULL)
            memcpy(kept[i], given[i], QR_KEY_TEXT_BYTES + 1);
    }
    bool is_derived = given[2] != NULL && given[1] == NULL;
    if (is_derived && zmq_curve_public(s->keys.own_public, s->keys.own_secret) != 0)
        return QUIRE_E_SYSTEM;
    return QUIRE_OK;
}

static int open_sub(quire_subscriber *s, const quire_subscriber_config *config,
                    qr_endpoint *endpoint)
{
    const char *topic = config->topic == NULL ? "" : config->topic;
    s->context = zmq_ctx_new();
    s->sub = s->context == NULL ? NULL : zmq_socket(s->context, ZMQ_SUB);
    if (s->sub == NULL || zmq_setsockopt(s->sub, ZMQ_SUBSCRIBE, topic, strlen(topic)) != 0 ||
        !qr_curve_keys_apply(&s->keys, s->sub))
        return qr_fail(QUIRE_E_SYSTEM, "no socket for '%s': %s", config->endpoint,
                       zmq_strerror(zmq_errno()));
    qr_socket_set(s->sub, ZMQ_LINGER, 0);
    qr_socket_set(s->sub, ZMQ_RCVHWM, config->hwm > INT32_MAX ? INT32_MAX : (int)config->hwm);
    qr_socket_set_most(s->sub, config->max_message_bytes);
    if (zmq_socket_monitor(s->sub, "inproc://breaks", ZMQ_EVENT_DISCONNECTED) == 0) {
        s->breaks = zmq_socket(s->context, ZMQ_PAIR);
        if (s->breaks != NULL) {
            qr_socket_set(s->breaks, ZMQ_RCVHWM, 0); /* no limit */
            (void)zmq_connect(s->breaks, "inproc://breaks");
        }
    }
    endpoint->listens = config->listen == QUIRE_DEFAULT ? strchr(endpoint->text, '*') != NULL
                                                        : config->listen == QUIRE_ON;
    if (endpoint->listens && !endpoint->is_local && config->curve_server_key == NULL &&
        config->allow_strangers_to_tell_us_lies == 0)
        return qr_fail(
            QUIRE_E_UNSAFE,
            "'%s' is open to other machines and unauthenticated: set curve_server_key, or "
            "allow_strangers_to_tell_us_lies",
            config->endpoint);
    return qr_endpoint_attach(endpoint, s->sub);
}

/* Fills in the defaults. */
static int read_subscriber_config(const quire_subscriber_config *callers,
                                  quire_subscriber_config *config)
{
    int status = qr_config_read(config, sizeof *config, callers);
    if (status != QUIRE_OK)
        return status;
    if (config->endpoint == NULL)
        return QUIRE_E_ARGUMENT;
    if (config->start > 2 || config->listen > QUIRE_OFF || config->max_message_bytes > INT64_MAX)
        return QUIRE_E_CONFIG;
    config->hwm = (uint32_t)qr_or_default(config->hwm, 100000);
    config->quiet_ms = (uint32_t)qr_or_default(config->quiet_ms, 5000);
    config->replay_timeout_ms = (uint32_t)qr_or_default(config->replay_timeout_ms, 2000);
    config->max_message_bytes = qr_or_default(config->max_message_bytes, UINT64_C(64) << 20);
    return QUIRE_OK;
}

static int create_subscriber(quire_subscriber *s, const quire_subscriber_config *config)
{
    qr_endpoint endpoint;
    int status = qr_endpoint_read(config->endpoint, 0, &endpoint);
    if (status == QUIRE_OK && config->replay_endpoint != NULL) {
        s->has_replay = true;
        status = qr_endpoint_read(config->replay_endpoint, 0, &s->asker.endpoint);
    }
    if (status == QUIRE_OK)
        status = read_keys(s, config);
    if (status == QUIRE_OK)
        status = open_sub(s, config, &endpoint);
    if (status != QUIRE_OK)
        return status;
    s->asker.context = s->context;
    s->asker.keys = &s->keys;
    s->asker.max_message_bytes = config->max_message_bytes;
    s->asker.timeout_ms = config->replay_timeout_ms;
    status = quire_wire_reader_create(&s->reader);
    if (status != QUIRE_OK)
        qr_say("subscriber: %s", quire_strerror(status));
    return status;
}

QUIRE_API int quire_subscriber_create(const quire_subscriber_config *callers,
                                      quire_subscriber **subscriber)
{
    qr_refuse_clear();
    quire_subscriber_config config = {0};
    int status = subscriber == NULL ? QUIRE_E_ARGUMENT : read_subscriber_config(callers, &config);
    quire_subscriber *s = status == QUIRE_OK ? qr_alloc(1, sizeof *s) : NULL;
    if (s == NULL) {
        status = status == QUIRE_OK ? QUIRE_E_NOMEM : status;
        qr_say("subscriber: %s", quire_strerror(status));
        return status;
    }
    qr_fork_guard_init(&s->guard);
    qr_live_message_init(&s->held);
    qr_live_message_init(&s->current);
    status = create_subscriber(s, &config);
    if (status != QUIRE_OK) {
        quire_subscriber_destroy(s);
        return status;
    }
    s->quiet_ms = config.quiet_ms;
    s->patience = 1;
    qr_subscription_begin(s, config.start);
    *subscriber = s;
    return QUIRE_OK;
}

static void close_subscriber(quire_subscriber *s)
{
    qr_live_message_close(&s->held);
    qr_live_message_close(&s->current);
    qr_replay_client_close(&s->asker);
    (void)zmq_close(s->sub);
    (void)zmq_close(s->breaks);
    while (zmq_ctx_term(s->context) != 0 && zmq_errno() == EINTR)
        ;
    quire_wire_reader_destroy(s->reader);
}

/* In a child libzmq's descriptors are the parent's: only the handle is freed. */
QUIRE_API void quire_subscriber_destroy(quire_subscriber *s)
{
    if (s == NULL)
        return;
    if (!qr_fork_guard_is_child(&s->guard))
        close_subscriber(s);
    qr_free(s);
}

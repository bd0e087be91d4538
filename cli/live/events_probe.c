#include "events_probe.h"

#include "options/secret_file.h"
#include "output/progress.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum { PROBE_MS = 1000 };

static const char WATCH[] = "inproc://probe";

/* How far a connection came. */
typedef enum reached {
    WENT_NOWHERE,
    WAS_REFUSED,
    IS_CONNECTED, /* and no more */
    WAS_CLOSED,   /* while greeting */
    SPEAKS_OTHERWISE,
    WANTS_OTHER_KEYS,
    IS_DONE
} reached;

static bool set_keys(void *socket, const quire_subscriber_config *config)
{
    char public_key[KEY_CHARACTERS + 1];
    char secret_key[KEY_CHARACTERS + 1];
    if (config->curve_server_key == NULL)
        return true;
    if (zmq_curve_keypair(public_key, secret_key) != 0)
        return false;
    if (config->curve_secret_key != NULL) {
        memcpy(secret_key, config->curve_secret_key, sizeof secret_key);
        if (zmq_curve_public(public_key, secret_key) != 0)
            return false;
    }
    return zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, config->curve_server_key, KEY_CHARACTERS) ==
               0 &&
           zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, public_key, KEY_CHARACTERS) == 0 &&
           zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret_key, KEY_CHARACTERS) == 0;
}

/* ---- watching --------------------------------------------------------------- */

/* One event of the connection: its number and value. */
static bool next_sign(void *watch, long wait_ms, uint16_t *sign, uint32_t *value)
{
    unsigned char bytes[6];
    char address[8];
    zmq_pollitem_t item = {.socket = watch, .events = ZMQ_POLLIN};
    if (zmq_poll(&item, 1, wait_ms) <= 0)
        return false;
    bool is_whole = zmq_recv(watch, bytes, sizeof bytes, ZMQ_DONTWAIT) == sizeof bytes;
    (void)zmq_recv(watch, address, sizeof address, ZMQ_DONTWAIT);
    if (!is_whole)
        return false;
    memcpy(sign, bytes, sizeof *sign);
    memcpy(value, bytes + 2, sizeof *value);
    return true;
}

static reached advance(reached so_far, uint16_t sign, uint32_t value)
{
    switch (sign) {
    case ZMQ_EVENT_CONNECTED:
        return IS_CONNECTED;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        return IS_DONE;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        return WANTS_OTHER_KEYS;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        return value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH ||
                       value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC
                   ? WANTS_OTHER_KEYS
                   : SPEAKS_OTHERWISE;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_DISCONNECTED:
        return WAS_CLOSED;
    case ZMQ_EVENT_CLOSED:
    case ZMQ_EVENT_CONNECT_RETRIED:
        return so_far == WENT_NOWHERE ? WAS_REFUSED : so_far;
    default:
        return so_far;
    }
}

static reached watch_connection(void *watch)
{
    reached p = WENT_NOWHERE;
    uint16_t sign;
    uint32_t value;
    double end_s = progress_clock() + PROBE_MS * 1e-3;
    while (p == WENT_NOWHERE || p == IS_CONNECTED) {
        long left_ms = (long)((end_s - progress_clock()) * 1e3);
        if (left_ms <= 0)
            break;
        if (next_sign(watch, left_ms, &sign, &value))
            p = advance(p, sign, value);
    }
    return p;
}

static reached try_to_connect(const quire_subscriber_config *config, const char *endpoint,
                              bool is_replay)
{
    const int none = 0;
    const int is_v6 = strchr(endpoint, '[') != NULL;
    reached p = WENT_NOWHERE;
    void *context = zmq_ctx_new();
    void *socket = context != NULL ? zmq_socket(context, is_replay ? ZMQ_DEALER : ZMQ_SUB) : NULL;
    void *watch = context != NULL ? zmq_socket(context, ZMQ_PAIR) : NULL;
    if (socket != NULL && watch != NULL) {
        (void)zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
        (void)zmq_setsockopt(socket, ZMQ_IPV6, &is_v6, sizeof is_v6);
        if (set_keys(socket, config) && zmq_socket_monitor(socket, WATCH, ZMQ_EVENT_ALL) == 0 &&
            zmq_connect(watch, WATCH) == 0 && zmq_connect(socket, endpoint) == 0)
            p = watch_connection(watch);
        (void)zmq_socket_monitor(socket, NULL, 0);
    }
    if (watch != NULL)
        (void)zmq_close(watch);
    if (socket != NULL)
        (void)zmq_close(socket);
    if (context != NULL)
        (void)zmq_ctx_term(context);
    return p;
}

/* ---- saying ----------------------------------------------------------------- */

/* One that wants keys, or other keys, breaks off while it is greeted, as one of another kind does:
 * nothing tells them apart. */
static const char *reason_of(reached p, bool has_keys, bool is_replay)
{
    switch (p) {
    case WENT_NOWHERE:
        return "connection timeout (1 s): is the address right?";
    case WAS_REFUSED:
        return "connection refused: is the publisher running at this address?";
    case WANTS_OTHER_KEYS:
        return has_keys ? "the publisher rejected the key: it must know the public key of "
                          "--curve-secret-file"
                        : "the publisher requires keys: give --curve-server-key-file";
    case WAS_CLOSED:
        return has_keys ? "connection closed: the publisher's key is not that of "
                          "--curve-server-key-file, or the endpoint is of another kind"
               : is_replay
                   ? "connection closed: the publisher requires keys (--curve-server-key-file), or "
                     "this is its --events endpoint, which answers no requests"
                   : "connection closed: the publisher requires keys (--curve-server-key-file), or "
                     "this is its --replay-events endpoint, which publishes no events";
    default:
        return "protocol error: the server does not speak ZeroMQ (is it HTTP?)";
    }
}

probe_result events_probe(const quire_subscriber_config *config, bool is_replay,
                          char message[PROBE_MESSAGE_BYTES])
{
    const char *endpoint = is_replay ? config->replay_endpoint : config->endpoint;
    message[0] = '\0';
    if (endpoint == NULL || (!is_replay && strchr(endpoint, '*') != NULL))
        return PROBE_UNKNOWN;
    reached p = try_to_connect(config, endpoint, is_replay);
    if (p == IS_DONE)
        return PROBE_FINE;
    snprintf(message, PROBE_MESSAGE_BYTES, "%.200s: %s", endpoint,
             reason_of(p, config->curve_server_key != NULL, is_replay));
    return PROBE_FAILED;
}

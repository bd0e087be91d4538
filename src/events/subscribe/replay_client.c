#include "events/subscribe/replay_client.h"

#include "base/hooks.h"
#include "events/frames.h"
#include "events/payload.h"

enum { ANSWERS_HWM = 1000, FRAMES = 4, KEY_TEXT_BYTES = 40 };

bool qr_curve_keys_apply(const qr_curve_keys *keys, void *socket)
{
    return !keys->is_used ||
           (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, keys->server, KEY_TEXT_BYTES) == 0 &&
            zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys->own_public, KEY_TEXT_BYTES) == 0 &&
            zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys->own_secret, KEY_TEXT_BYTES) == 0);
}

void qr_replay_client_close(qr_replay_client *asker)
{
    (void)zmq_close(asker->dealer);
    asker->dealer = NULL;
}

static bool open_dealer(qr_replay_client *asker)
{
    void *dealer = zmq_socket(asker->context, ZMQ_DEALER);
    if (dealer == NULL)
        return false;
    asker->dealer = dealer;
    qr_socket_set(dealer, ZMQ_LINGER, 0);
    qr_socket_set(dealer, ZMQ_RCVHWM, ANSWERS_HWM);
    qr_socket_set_most(dealer, asker->max_message_bytes);
    qr_endpoint endpoint = asker->endpoint;
    endpoint.listens = false;
    return qr_curve_keys_apply(asker->keys, dealer) &&
           qr_endpoint_attach(&endpoint, dealer) == QUIRE_OK;
}

/* A socket for each request: what is left of an answer that was given up cannot be taken for a part
 * of the next one. */
bool qr_replay_client_ask(qr_replay_client *asker, const void *request)
{
    qr_replay_client_close(asker);
    bool is_sent =
        open_dealer(asker) && zmq_send(asker->dealer, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0 &&
        zmq_send(asker->dealer, request, QR_NUMBER_BYTES, ZMQ_DONTWAIT) == QR_NUMBER_BYTES;
    asker->deadline_ms = qr_now_ms() + asker->timeout_ms;
    if (!is_sent)
        qr_replay_client_close(asker);
    return is_sent;
}

/* ["", number, batch]; newer vLLM has its topic before the number. */
static bool read_answer(qr_replay_client *asker, uint64_t *number, zmq_msg_t *payload)
{
    qr_frames frames;
    bool is_good = qr_frames_receive(&frames, asker->dealer) && frames.count >= 3 &&
                   frames.count <= FRAMES &&
                   zmq_msg_size(&frames.all[frames.count - 2]) == QR_NUMBER_BYTES;
    if (is_good) {
        *number = qr_payload_read_number(zmq_msg_data(&frames.all[frames.count - 2]));
        (void)zmq_msg_move(payload, &frames.all[frames.count - 1]);
    }
    qr_frames_close(&frames);
    return is_good;
}

/* What has come counts, however late one looks: a subscriber may have been stopped meanwhile. */
qr_replay_outcome qr_replay_client_next(qr_replay_client *asker, long wait_ms, uint64_t *number,
                                        zmq_msg_t *payload)
{
    if (asker->dealer == NULL)
        return QR_REPLAY_LATE;
    uint64_t now_ms = qr_now_ms();
    long left_ms = now_ms < asker->deadline_ms ? (long)(asker->deadline_ms - now_ms) : 0;
    zmq_pollitem_t item = {.socket = asker->dealer, .events = ZMQ_POLLIN};
    bool is_there = zmq_poll(&item, 1, wait_ms < 0 || wait_ms > left_ms ? left_ms : wait_ms) > 0 &&
                    read_answer(asker, number, payload);
    if (!is_there && qr_now_ms() < asker->deadline_ms)
        return QR_REPLAY_NOTHING;
    if (is_there && *number != UINT64_MAX) {
        asker->deadline_ms = qr_now_ms() + asker->timeout_ms;
        return QR_REPLAY_BATCH;
    }
    qr_replay_client_close(asker);
    return is_there ? QR_REPLAY_END : QR_REPLAY_LATE;
}

#include "events/asker.h"

#include "base/hooks.h"
#include "events/payload.h"

enum { ANSWERS_HWM = 1000, FRAMES = 4, NUMBER_BYTES = 8, KEY_TEXT_BYTES = 40 };

const unsigned char QR_ASKER_WHOLE[8] = {'s', 'n', 'a', 'p', 's', 'h', 'o', 't'};

bool qr_curve_keys_apply(const qr_curve_keys *keys, void *socket)
{
    return !keys->is_used ||
           (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, keys->server, KEY_TEXT_BYTES) == 0 &&
            zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys->own_public, KEY_TEXT_BYTES) == 0 &&
            zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys->own_secret, KEY_TEXT_BYTES) == 0);
}

bool qr_frames_receive(void *socket, zmq_msg_t *frames, uint32_t most, uint32_t *count)
{
    int more = 1;
    *count = 0;
    while (more != 0) {
        zmq_msg_t rest;
        (void)zmq_msg_init(&rest);
        zmq_msg_t *frame = *count < most ? &frames[*count] : &rest;
        bool is_there = zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) >= 0;
        more = is_there ? zmq_msg_more(frame) : 0;
        (void)zmq_msg_close(&rest);
        if (!is_there)
            return false;
        (*count)++;
    }
    return true;
}

void qr_asker_close(qr_asker *asker)
{
    if (asker->dealer != NULL)
        (void)zmq_close(asker->dealer);
    asker->dealer = NULL;
}

static bool open_dealer(qr_asker *asker)
{
    char message[1] = "";
    const int linger_ms = 0;
    const int hwm = ANSWERS_HWM;
    int64_t most = (int64_t)asker->max_message_bytes;
    void *dealer = zmq_socket(asker->context, ZMQ_DEALER);
    if (dealer == NULL)
        return false;
    asker->dealer = dealer;
    (void)zmq_setsockopt(dealer, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    (void)zmq_setsockopt(dealer, ZMQ_RCVHWM, &hwm, sizeof hwm);
    (void)zmq_setsockopt(dealer, ZMQ_MAXMSGSIZE, &most, sizeof most);
    qr_endpoint endpoint = asker->endpoint;
    endpoint.listens = false;
    return qr_curve_keys_apply(asker->keys, dealer) &&
           qr_endpoint_attach(&endpoint, dealer, message, sizeof message) == QUIRE_OK;
}

/* A socket for each request: what is left of an answer that was given up cannot be taken for a part
 * of the next one. */
bool qr_asker_ask(qr_asker *asker, const unsigned char request[8])
{
    qr_asker_close(asker);
    bool is_sent = open_dealer(asker) &&
                   zmq_send(asker->dealer, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0 &&
                   zmq_send(asker->dealer, request, NUMBER_BYTES, ZMQ_DONTWAIT) == NUMBER_BYTES;
    asker->deadline_ms = qr_now_ms() + asker->timeout_ms;
    if (!is_sent)
        qr_asker_close(asker);
    return is_sent;
}

/* ["", number, batch]; newer vLLM has its topic before the number. */
static bool read_answer(qr_asker *asker, uint64_t *number, zmq_msg_t *payload)
{
    zmq_msg_t frames[FRAMES];
    uint32_t count;
    bool is_good = false;
    for (int i = 0; i < FRAMES; i++)
        (void)zmq_msg_init(&frames[i]);
    if (qr_frames_receive(asker->dealer, frames, FRAMES, &count) && count >= 3 && count <= FRAMES &&
        zmq_msg_size(&frames[count - 2]) == NUMBER_BYTES) {
        *number = qr_payload_read_number(zmq_msg_data(&frames[count - 2]));
        (void)zmq_msg_move(payload, &frames[count - 1]);
        is_good = true;
    }
    for (int i = 0; i < FRAMES; i++)
        (void)zmq_msg_close(&frames[i]);
    return is_good;
}

/* What has come counts, however late one looks: a subscriber may have been stopped meanwhile. */
qr_asker_answer qr_asker_next(qr_asker *asker, long wait_ms, uint64_t *number, zmq_msg_t *payload)
{
    if (asker->dealer == NULL)
        return QR_ASKER_LATE;
    uint64_t now_ms = qr_now_ms();
    long left_ms = now_ms < asker->deadline_ms ? (long)(asker->deadline_ms - now_ms) : 0;
    zmq_pollitem_t item = {.socket = asker->dealer, .events = ZMQ_POLLIN};
    bool is_there = zmq_poll(&item, 1, wait_ms < 0 || wait_ms > left_ms ? left_ms : wait_ms) > 0 &&
                    read_answer(asker, number, payload);
    if (!is_there && qr_now_ms() < asker->deadline_ms)
        return QR_ASKER_NOTHING;
    if (is_there && *number != UINT64_MAX) {
        asker->deadline_ms = qr_now_ms() + asker->timeout_ms;
        return QR_ASKER_BATCH;
    }
    qr_asker_close(asker);
    return is_there ? QR_ASKER_END : QR_ASKER_LATE;
}

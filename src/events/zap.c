#include "events/zap.h"

#include "base/memory.h"
#include "base/refuse.h"
#include "events/frames.h"

#include <quire/error.h>

#include <stdbool.h>
#include <string.h>
#include <zmq.h>

enum { FRAMES = 7, ANSWER_AT_ONCE = 64 };

/* The places of a question's frames. */
enum { FRAME_ID = 1, FRAME_MECHANISM = 5, FRAME_KEY = 6 };

int qr_zap_read_key(const char *text, unsigned char key[QR_KEY_BYTES])
{
    if (strlen(text) != QR_KEY_TEXT_BYTES || zmq_z85_decode(key, text) == NULL)
        return QUIRE_E_ARGUMENT;
    return QUIRE_OK;
}

int qr_zap_init(qr_zap *zap, void *context, const char *const *clients, uint32_t num_clients)
{
    zap->keys = qr_alloc(num_clients, QR_KEY_BYTES);
    if (zap->keys == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < num_clients; i++) {
        if (clients[i] == NULL || qr_zap_read_key(clients[i], zap->keys[i]) != QUIRE_OK)
            return qr_fail(QUIRE_E_ARGUMENT,
                           "invalid curve_clients[%u] (expected a public key: 40 characters from "
                           "zmq_curve_keypair)",
                           i);
    }
    zap->num_keys = num_clients;
    zap->socket = zmq_socket(context, ZMQ_REP);
    if (zap->socket == NULL || zmq_bind(zap->socket, "inproc://zeromq.zap.01") != 0)
        return qr_fail(QUIRE_E_SYSTEM, "cannot check clients' keys: %s", zmq_strerror(zmq_errno()));
    return QUIRE_OK;
}

void qr_zap_release(qr_zap *zap)
{
    (void)zmq_close(zap->socket);
    qr_free(zap->keys);
    *zap = (qr_zap){.socket = NULL};
}

static bool is_allowed(const qr_zap *zap, qr_frames *question)
{
    zmq_msg_t *mechanism = &question->all[FRAME_MECHANISM];
    zmq_msg_t *key = &question->all[FRAME_KEY];
    if (question->count != FRAMES || zmq_msg_size(mechanism) != strlen("CURVE") ||
        memcmp(zmq_msg_data(mechanism), "CURVE", strlen("CURVE")) != 0 ||
        zmq_msg_size(key) != QR_KEY_BYTES)
        return false;
    for (uint32_t i = 0; i < zap->num_keys; i++)
        if (memcmp(zap->keys[i], zmq_msg_data(key), QR_KEY_BYTES) == 0)
            return true;
    return false;
}

void qr_zap_answer(qr_zap *zap)
{
    bool is_there = true;
    for (int i = 0; i < ANSWER_AT_ONCE && is_there; i++) {
        qr_frames question;
        const int more = ZMQ_SNDMORE | ZMQ_DONTWAIT;
        is_there = qr_frames_receive(&question, zap->socket);
        if (is_there) {
            const char *status = is_allowed(zap, &question) ? "200" : "400";
            zmq_msg_t *id = &question.all[FRAME_ID];
            (void)zmq_send(zap->socket, "1.0", 3, more);
            (void)zmq_send(zap->socket, zmq_msg_data(id), zmq_msg_size(id), more);
            (void)zmq_send(zap->socket, status, 3, more);
            (void)zmq_send(zap->socket, "", 0, more);         /* a sentence, */
            (void)zmq_send(zap->socket, "", 0, more);         /* a user, */
            (void)zmq_send(zap->socket, "", 0, ZMQ_DONTWAIT); /* and what else: none */
        }
        qr_frames_close(&question);
    }
}

#include "events/zap.h"

#include "base/hooks.h"
#include "base/memory.h"

#include <quire/error.h>

#include <stdbool.h>
#include <string.h>
#include <zmq.h>

enum { FRAMES = 7, FRAME_BYTES = 256, ANSWER_AT_ONCE = 64 };

/* The places of a question's frames. */
enum { FRAME_VERSION, FRAME_ID, FRAME_MECHANISM = 5, FRAME_KEY = 6 };

typedef struct zap_question {
    size_t len[FRAMES];
    unsigned char frames[FRAMES][FRAME_BYTES];
    uint32_t count;
} zap_question;

int qr_zap_read_key(const char *text, unsigned char key[QR_KEY_BYTES])
{
    if (strlen(text) != QR_KEY_TEXT_BYTES || zmq_z85_decode(key, text) == NULL)
        return QUIRE_E_ARGUMENT;
    return QUIRE_OK;
}

int qr_zap_init(qr_zap *zap, void *context, const char *const *clients, uint32_t num_clients,
                char *message, size_t message_bytes)
{
    zap->keys = qr_alloc(num_clients, QR_KEY_BYTES);
    if (zap->keys == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < num_clients; i++) {
        if (clients[i] == NULL || qr_zap_read_key(clients[i], zap->keys[i]) != QUIRE_OK) {
            qr_say(message, message_bytes,
                   "invalid curve_clients[%u] (expected a public key: 40 characters from "
                   "zmq_curve_keypair)",
                   i);
            return QUIRE_E_ARGUMENT;
        }
    }
    zap->num_keys = num_clients;
    zap->socket = zmq_socket(context, ZMQ_REP);
    if (zap->socket == NULL || zmq_bind(zap->socket, "inproc://zeromq.zap.01") != 0) {
        qr_say(message, message_bytes, "cannot check clients' keys: %s", zmq_strerror(zmq_errno()));
        return QUIRE_E_SYSTEM;
    }
    return QUIRE_OK;
}

void qr_zap_release(qr_zap *zap)
{
    if (zap->socket != NULL)
        (void)zmq_close(zap->socket);
    qr_free(zap->keys);
    *zap = (qr_zap){.socket = NULL};
}

/* False: there is none. Frames that are too long, or too many, are cut off. */
static bool receive_question(void *socket, zap_question *question)
{
    int more = 1;
    memset(question, 0, sizeof *question);
    while (more != 0) {
        unsigned char rest[FRAME_BYTES];
        bool fits = question->count < FRAMES;
        int len = zmq_recv(socket, fits ? question->frames[question->count] : rest, FRAME_BYTES,
                           ZMQ_DONTWAIT);
        if (len < 0)
            return false;
        if (fits)
            question->len[question->count] = len > FRAME_BYTES ? FRAME_BYTES : (size_t)len;
        question->count++;
        size_t more_bytes = sizeof more;
        if (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &more_bytes) != 0)
            return false;
    }
    return true;
}

static bool is_allowed(const qr_zap *zap, const zap_question *question)
{
    if (question->count != FRAMES || question->len[FRAME_MECHANISM] != strlen("CURVE") ||
        memcmp(question->frames[FRAME_MECHANISM], "CURVE", strlen("CURVE")) != 0 ||
        question->len[FRAME_KEY] != QR_KEY_BYTES)
        return false;
    for (uint32_t i = 0; i < zap->num_keys; i++)
        if (memcmp(zap->keys[i], question->frames[FRAME_KEY], QR_KEY_BYTES) == 0)
            return true;
    return false;
}

void qr_zap_answer(qr_zap *zap)
{
    zap_question question;
    for (int i = 0; i < ANSWER_AT_ONCE && receive_question(zap->socket, &question); i++) {
        const char *status = is_allowed(zap, &question) ? "200" : "400";
        const int more = ZMQ_SNDMORE | ZMQ_DONTWAIT;
        (void)zmq_send(zap->socket, "1.0", 3, more);
        (void)zmq_send(zap->socket, question.frames[FRAME_ID], question.len[FRAME_ID], more);
        (void)zmq_send(zap->socket, status, 3, more);
        (void)zmq_send(zap->socket, "", 0, more);         /* a sentence, */
        (void)zmq_send(zap->socket, "", 0, more);         /* a user, */
        (void)zmq_send(zap->socket, "", 0, ZMQ_DONTWAIT); /* and what else: none */
    }
}

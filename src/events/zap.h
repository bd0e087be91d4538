/* events/zap.h - which clients' keys are let in: the question that libzmq asks for each new
 * connection (ZAP, ZeroMQ's RFC 27), answered from a list.
 *
 *      libzmq ──► [version, id, domain, address, identity, "CURVE", key] ──► 200 or 400
 */
#ifndef QR_EVENTS_ZAP_H
#define QR_EVENTS_ZAP_H

#include <stdint.h>

enum { QR_KEY_BYTES = 32, QR_KEY_TEXT_BYTES = 40 };

typedef struct qr_zap {
    void *socket; /* NULL: not asked, whoever knows the publisher's key is let in */
    unsigned char (*keys)[QR_KEY_BYTES];
    uint32_t num_keys;
} qr_zap;

/* Whether a text is a key: 40 characters of Z85. */
int qr_zap_read_key(const char *text, unsigned char key[QR_KEY_BYTES]);

/* Must come before the sockets that it guards are bound. QUIRE_E_SYSTEM, QUIRE_E_NOMEM, or
 * QUIRE_E_ARGUMENT for a text that is no key, with a sentence. */
int qr_zap_init(qr_zap *zap, void *context, const char *const *clients, uint32_t num_clients);
void qr_zap_release(qr_zap *zap);

/* Answers what was asked. */
void qr_zap_answer(qr_zap *zap);

#endif

/* events/endpoint.h - addresses: which way round, for whom, and which of several ranks.
 *
 *      tcp://127.0.0.1:5557     this machine     listens
 *      tcp://127.0.0.1:*        this machine     listens, and the system picks a port
 *      tcp://0.0.0.0:5557       everybody        listens
 *      tcp://router:5557        everybody        connects, as vLLM does
 *      ipc:///run/quire/kv      this machine     listens; a file, for this user alone
 *
 * Rank r of a data-parallel engine has port + r, or the file's name with _dpr. */
#ifndef QR_EVENTS_ENDPOINT_H
#define QR_EVENTS_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#define QR_ENDPOINT_BYTES 512

typedef struct qr_endpoint {
    char text[QR_ENDPOINT_BYTES]; /* for ZeroMQ: localhost is a number, the rank is in */
    bool is_ipc;
    bool is_ipv6;
    bool is_local; /* nobody beyond this machine can be at the other end */
    bool listens;  /* else it connects */
} qr_endpoint;

/* QUIRE_OK, or QUIRE_E_ARGUMENT with a sentence. */
int qr_endpoint_read(const char *text, uint32_t rank, qr_endpoint *endpoint);

/* Binds or connects a socket, and notes the address with the port that the system chose.
 * QUIRE_E_SYSTEM with a sentence. */
int qr_endpoint_attach(qr_endpoint *endpoint, void *socket);

#endif

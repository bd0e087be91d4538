/* http/listener.h - the socket that is listened to. */
#ifndef QR_HTTP_LISTENER_H
#define QR_HTTP_LISTENER_H

#include "http/access.h"

/* -1: the system refused, and errno says why. *port becomes the one that the system chose where it
 * was 0. */
int qr_http_listener_open(const qr_http_address *address, uint32_t *port);
/* Closes it if it is still the listening socket of that port: who got it may have closed it. */
void qr_http_listener_close(int socket, uint32_t port);

#endif

/* tier/net/name.h - names looked up beside the tier's thread, since the system's lookup blocks.
 *
 *      ask ──► thread ── getaddrinfo ──► answer, and fd can be read
 *
 * One name at a time. A lookup that does not come back holds up its own thread alone: closing
 * during one leaves the thread behind, which frees what is left when it comes back. The thread is
 * made with the first name; addresses in numbers need none. */
#ifndef QR_TIER_NET_NAME_H
#define QR_TIER_NET_NAME_H

#include "tier/net/address.h"

typedef struct qr_name qr_name;

/* NULL: no memory, or no descriptor. */
qr_name *qr_name_open(void);
void qr_name_close(qr_name *name);
int qr_name_fd(const qr_name *name);

/* false while another is looked up, or without a thread. */
bool qr_name_ask(qr_name *name, const qr_address *address);
/* The answer, once, and good until the next question: how many endpoints, 0 for none; -1: there is
 * no answer yet. */
int qr_name_answer(qr_name *name, const qr_address **asked, const qr_endpoint **endpoints);

#endif

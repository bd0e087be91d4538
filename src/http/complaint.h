/* http/complaint.h - the sentence that a caller gets when something fails. */
#ifndef QR_HTTP_COMPLAINT_H
#define QR_HTTP_COMPLAINT_H

#include <stddef.h>

/* Where it goes; nowhere with NULL or without bytes. */
typedef struct qr_http_complaint {
    char *message;
    size_t bytes;
} qr_http_complaint;

/* Gives the status back, so that both are one line. */
__attribute__((format(printf, 3, 4))) int qr_http_complain(const qr_http_complaint *complaint,
                                                           int status, const char *format, ...);

#endif

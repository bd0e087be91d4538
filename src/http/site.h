/* http/site.h - what all answers are made of; apart from health, nothing in it changes. */
#ifndef QR_HTTP_SITE_H
#define QR_HTTP_SITE_H

#include "http/access.h"
#include "http/health.h"

enum { QR_HTTP_LABEL_BYTES = 256, QR_HTTP_POLICY_BYTES = 512 };

/* A text of the config; absent where is_known is false. */
typedef struct qr_http_label {
    char text[QR_HTTP_LABEL_BYTES];
    bool is_known;
} qr_http_label;

typedef struct qr_http_site {
    quire_monitor *monitor;
    quire_monitor_info info;
    qr_http_access access;
    qr_http_health health;
    qr_http_label title;
    qr_http_label model_name;
    qr_http_label engine;
    qr_http_label gpu;
    double started; /* Unix time */
    const char *page;
    size_t page_bytes;
    char page_policy[QR_HTTP_POLICY_BYTES]; /* Content-Security-Policy of the page */
} qr_http_site;

/* Sets the page, and what a browser may do for it: run the one script that is in it, use the one
 * style that is in it, and ask this server. Both are named by their SHA-256, so that nothing that
 * got into the page otherwise would run. QUIRE_E_NOMEM when the hash could not be made. */
int qr_http_page_init(qr_http_site *site);
/* The same with another text; for tests. */
int qr_http_page_set(qr_http_site *site, const char *page, size_t bytes);

#endif

/* http/page.h - the live page, and what a browser may do for it: run the one script that is in it,
 * use the one style that is in it, and ask this server. Both are named by their SHA-256, so that
 * nothing that got into the page otherwise would run. */
#ifndef QR_HTTP_PAGE_H
#define QR_HTTP_PAGE_H

#include "http/site.h"

/* Sets page, page_bytes and page_policy. QUIRE_E_NOMEM when the hash could not be made. */
int qr_http_page_init(qr_http_site *site);
/* The same with another text; for tests. */
int qr_http_page_set(qr_http_site *site, const char *page, size_t bytes);

#endif

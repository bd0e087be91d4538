/* sched/requests/texts.h - the texts of all requests and inputs, and the promises of pages.
 *
 *      num_promised_pages <= store.num_free: the rest of the free pages is for waiting requests
 *
 * A request that waits takes pages for its prompt. When it is admitted for the first time, it is
 * promised the pages for all tokens that it may generate: so a running request always has a page
 * for its next token, and ends. */
#ifndef QR_SCHED_REQUESTS_TEXTS_H
#define QR_SCHED_REQUESTS_TEXTS_H

#include "sched/requests/request.h"
#include "sched/requests/text.h"

typedef struct qr_texts {
    qr_text_store store;
    uint32_t *tables;           /* of pages: one for each request, and for each input */
    uint32_t max_waiting_pages; /* of requests that never ran, and of inputs */
    uint32_t num_waiting_pages;
    uint32_t num_promised_pages; /* of all requests: free pages that no other may take */
} qr_texts;

/* Takes pages for tokens that wait, and adds them to `text`. False, and no change, if more than
 * `most` pages would wait or too few are free. */
bool qr_texts_take_waiting(qr_texts *texts, qr_text *text, uint32_t num_tokens, uint32_t most);
void qr_texts_release_waiting(qr_texts *texts, qr_text *text);
/* Promises the request pages for its first `last` tokens. False if too few pages are free. */
bool qr_texts_promise(qr_texts *texts, qr_request *r, uint32_t last);
void qr_texts_take_back(qr_texts *texts, qr_request *r);
/* Takes promised pages for the first `end` tokens of the request. */
void qr_texts_take_promised(qr_texts *texts, qr_request *r, uint32_t end);

#endif

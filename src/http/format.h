/* http/format.h - the monitor as JSON.
 *
 *      "meta":{"title":..,..},"columns":["step","time_us",..]     what never changes
 *      [7,1500,2,0,..],[8,1700,2,0,..]                            steps: rows of numbers
 *      {"kind":"stored","group":0,"blocks":2,"hash":"..","parent":null}      an event
 */
#ifndef QR_HTTP_FORMAT_H
#define QR_HTTP_FORMAT_H

#include "http/body.h"
#include "http/site.h"

/* Both, with a comma between. */
void qr_http_format_meta(qr_http_body *body, const qr_http_site *site);
/* The ids of requests of the last step, as one object; null where they are not kept. */
void qr_http_format_names(qr_http_body *body, const quire_monitor *monitor);
/* Block maps as a list of objects. */
void qr_http_format_maps(qr_http_body *body, const quire_monitor *monitor);

/* Which steps: those after `after` up to `until`, the oldest first, and no more than limit. every:
 * only each such step, counted back from `until`; 0 = 1. */
typedef struct qr_http_range {
    uint64_t after;
    uint64_t until;
    uint64_t limit;
    uint64_t every;
} qr_http_range;

typedef struct qr_http_rows {
    uint64_t num;
    uint64_t last;        /* step; with num 0 as it was asked for */
    uint64_t num_skipped; /* steps between `after` and the last that are not in it */
} qr_http_rows;

/* With commas between. */
qr_http_rows qr_http_format_steps(qr_http_body *body, const quire_monitor *monitor,
                                  const qr_http_range *range);

/* False, and nothing is written, for what is none of the cache's doings: batches and walks. */
bool qr_http_format_event(qr_http_body *body, const quire_feed_event *event);

#endif

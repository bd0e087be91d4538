/* record/format.h - from lines of the ring to JSON lines.
 *
 * It knows what the engine's thread need not remember: the requests of the steps in flight, and of
 * each live request the hit and the times of its first and last tokens. Memory is bounded: of more
 * than QR_MAX_LIVE live requests or QR_MAX_FLIGHT steps in flight, the older ones are forgotten,
 * and fields that need them are left out.
 */
#ifndef QR_RECORD_FORMAT_H
#define QR_RECORD_FORMAT_H

#include "record/line.h"
#include "record/salt.h"
#include "record/text.h"

enum { QR_MAX_LIVE = 1 << 16, QR_MAX_FLIGHT = 64 };

/* A live request, in the place of its number. */
typedef struct qr_record_live {
    uint32_t req; /* 0: none */
    uint32_t hit;
    uint32_t has_run;
    uint32_t num_preemptions;
    uint64_t first_ns; /* 0: no token yet */
    uint64_t last_ns;
} qr_record_live;

typedef struct qr_record_flight {
    uint64_t step;
    uint64_t t_ns;
    uint32_t *reqs;
    uint32_t num_reqs;
    uint32_t room;
} qr_record_flight;

typedef struct qr_format {
    qr_salt *salt;
    uint64_t start_ns;    /* time 0 of t */
    double start_s;       /* the same, since 1970 */
    qr_record_live *live; /* QR_MAX_LIVE */
    qr_record_flight flights[QR_MAX_FLIGHT];
    qr_record_text *out;
    /* The next schedule line has its reqs, even if they are the same as in the line before. */
    bool says_reqs;
    uint64_t last_step; /* whose reqs the line before has; 0: none */
} qr_format;

/* QUIRE_OK or QUIRE_E_NOMEM. */
int qr_format_init(qr_format *format, qr_salt *salt);
void qr_format_free(qr_format *format);
/* Appends the line to format->out. */
void qr_format_line(qr_format *format, const qr_line *line);
/* Appends a lost line: num_lines are missing here. */
void qr_format_lost(qr_format *format, uint64_t num_lines, uint64_t t_ns);

#endif

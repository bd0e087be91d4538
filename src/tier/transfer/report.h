/* tier/transfer/report.h - the jobs that a rank has ended, as bytes: written by a worker, read by
 * the planner.
 *
 *      | message head 16 | session 8 | sequence 8 | worker 8 | first_plan 8 | rank 4 | ranks 4 |
 *      | results 4 | gone 4 |  then each result:
 *      | id 8 | count 4 | 0 4 | ns 8 |  count statuses of a byte each, filled up to 8
 *                              then each key that its tiers evicted, or found to be missing:
 *      | tier 4 | group 4 | hash 32 |  group QR_REPORT_ALL_GONE: all of the tier may be gone
 *
 * session   of the plans; worker: random, chosen when the worker was made; first_plan: the first
 *           plan of the session that this worker took: it knows nothing of those before.
 * status    a quire_tier_status other than PENDING, or QR_REPORT_LATE. A job of copies has one.
 */
#ifndef QR_TIER_TRANSFER_REPORT_H
#define QR_TIER_TRANSFER_REPORT_H

#include "tier/transfer/message.h"

#include <quire/tier.h>

#define QR_REPORT_MAGIC UINT32_C(0x54505251) /* "QRPT" */

enum {
    QR_REPORT_HEAD = QR_MESSAGE_HEAD + 48,
    QR_REPORT_RESULT = 24,
    QR_REPORT_MOST_STATUSES = 64,
    QR_REPORT_GONE = 40,
    QR_REPORT_LATE = QUIRE_TIER_REFUSED + 1
};

#define QR_REPORT_ALL_GONE UINT32_MAX

typedef struct qr_report_result {
    uint64_t id;
    uint32_t count;
    uint64_t ns; /* from the plan to the end */
    const unsigned char *statuses;
} qr_report_result;

typedef struct qr_report_head {
    uint64_t session;
    uint64_t sequence;
    uint64_t worker;
    uint64_t first_plan;
    uint32_t rank;
    uint32_t num_ranks;
} qr_report_head;

/* ---- writing --------------------------------------------------------------- */

typedef struct qr_report_writer {
    unsigned char *bytes;
    size_t capacity;
    size_t used;
    uint32_t num_results;
    uint32_t num_gone;
} qr_report_writer;

void qr_report_begin(qr_report_writer *writer);
/* One result more. False: no room. */
bool qr_report_add(qr_report_writer *writer, const qr_report_result *result);
/* A key that is gone, behind all results; key NULL: all of the tier. False: no room. */
bool qr_report_add_gone(qr_report_writer *writer, uint32_t tier, const quire_tier_key *key);
quire_bytes qr_report_finish(qr_report_writer *writer, const qr_report_head *head);

/* ---- reading --------------------------------------------------------------- */

typedef struct qr_report {
    qr_report_head head;
    uint32_t num_results;
    uint32_t num_left;
    uint32_t num_gone; /* left, too */
    const unsigned char *next;
} qr_report;

/* QUIRE_OK: every result is what a report may have. QUIRE_E_CORRUPT, and a sentence. */
int qr_report_read(quire_bytes bytes, qr_report *report);
/* The next result of a report that was read; false: there is none. */
bool qr_report_next(qr_report *report, qr_report_result *result);
/* The next key that is gone, after all results; its rank is 0, its group may be QR_REPORT_ALL_GONE.
 * False: there is none. */
bool qr_report_next_gone(qr_report *report, uint32_t *tier, quire_tier_key *key);

#endif

/* sched/requests/table.h - all requests of a scheduler: their slots, names and order of arrival. */
#ifndef QR_SCHED_REQUESTS_TABLE_H
#define QR_SCHED_REQUESTS_TABLE_H

#include "base/idmap.h"
#include "base/list.h"
#include "sched/queues/waiting.h"
#include "sched/requests/request.h"

typedef struct qr_request_table {
    qr_idmap ids;
    qr_request *requests;
    qr_waiter *waiters; /* max_requests, and a sentinel for each queue */
    unsigned char *blobs;
    quire_token *drafts; /* num_spec_tokens for each request */
    uint32_t *free_slots;
    uint32_t num_live;
    qr_link *by_age; /* all that are there, in the order in which they were added */
} qr_request_table;

/* A slot for a request that comes in, empty and not in use yet: QUIRE_OK, QUIRE_E_DUPLICATE or
 * QUIRE_FULL. qr_sched_release_slot takes it back. */
int qr_sched_take_slot(quire_sched *sched, quire_bytes id, uint32_t *index);
void qr_sched_release_slot(quire_sched *sched, uint32_t index);
/* The request that was made in the slot is there from now on, and in no queue. */
void qr_sched_enter(quire_sched *sched, uint32_t index, const quire_request_params *params);

#endif

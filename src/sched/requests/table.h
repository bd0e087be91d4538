/* sched/requests/table.h - all requests of a scheduler: slots, names and order of arrival, those to
 * be listed.
 *
 *      request in slot i    requests[i]  waiters[i]  by_age[i]  its blob and its drafts
 *      free slots: free_slots[0, max_requests - num_live)
 */
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
    qr_link *by_age; /* all live requests, in the order in which they were added */
} qr_request_table;

/* Takes an empty slot for a new request: QUIRE_OK, QUIRE_E_DUPLICATE or QUIRE_FULL.
 * qr_sched_release_slot gives the slot back. */
int qr_sched_take_slot(quire_sched *sched, quire_bytes id, uint32_t *index);
void qr_sched_release_slot(quire_sched *sched, uint32_t index);
/* The request in the slot is live from now on; it is in no queue yet. */
void qr_sched_enter(quire_sched *sched, uint32_t index, const quire_request_params *params);

/* Requests that the next step or the next update will list: those that have ended, and those that
 * the caller has preempted. */
typedef struct qr_ended {
    quire_req *finished; /* ended since the last step */
    uint32_t num_finished;
    quire_req *client_finished; /* ended since the last update; with include_finished_set */
    uint32_t *client_of_finished;
    uint32_t num_client_finished;
    quire_req *asked; /* running requests that the caller has preempted since the last step */
    uint32_t num_asked;
} qr_ended;

#endif

/* sched/requests/ended.h - requests that have ended, or that the caller has preempted: the next
 * step lists them. */
#ifndef QR_SCHED_REQUESTS_ENDED_H
#define QR_SCHED_REQUESTS_ENDED_H

#include <quire/sched.h>

typedef struct qr_ended {
    quire_req *finished; /* since the last step */
    uint32_t num_finished;
    quire_req *client_finished; /* since the last update, with include_finished_set */
    uint32_t *client_of_finished;
    uint32_t num_client_finished;
    quire_req *asked; /* that ran, and that the caller has preempted since the last step */
    uint32_t num_asked;
} qr_ended;

#endif

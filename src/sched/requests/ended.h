/* sched/requests/ended.h - requests that the next step or the next update will list: those that
 * have ended, and those that the caller has preempted. */
#ifndef QR_SCHED_REQUESTS_ENDED_H
#define QR_SCHED_REQUESTS_ENDED_H

#include <quire/sched.h>

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

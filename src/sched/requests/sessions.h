/* sched/requests/sessions.h - inputs of sessions: they wait until the session has stopped. */
#ifndef QR_SCHED_REQUESTS_SESSIONS_H
#define QR_SCHED_REQUESTS_SESSIONS_H

#include "sched/requests/request.h"

/* An input of a session that waits until the session has stopped. */
struct qr_session_input {
    uint32_t next; /* of the same session, or of the free ones; QR_NIL: none */
    qr_text text;
    double arrival_time;
    uint32_t max_tokens;
    qr_stop_rules stops;
    qr_feature *features; /* all that the session will have then; NULL: no new ones */
    quire_mm_feature *mm_features;
    uint32_t num_features; /* new ones, at the end of the arrays */
    qr_flag_chain flags;   /* of the new ones */
};

typedef struct qr_sessions {
    qr_session_input *inputs;
    uint32_t first_free_input;
} qr_sessions;

/* The next input of a session: it is used now if the session has stopped, else it waits. */
int qr_sched_continue(quire_sched *sched, uint32_t index, const quire_request_params *params);
/* A session that has stopped: true when it ends, else it waits again. */
bool qr_sched_session_ends(quire_sched *sched, uint32_t index);
/* Forgets all inputs of the session that wait. */
void qr_sched_drop_inputs(quire_sched *sched, uint32_t index);

#endif

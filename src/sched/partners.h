/* sched/partners.h - the callbacks of a scheduler, and whether one of them runs now. */
#ifndef QR_SCHED_PARTNERS_H
#define QR_SCHED_PARTNERS_H

#include <quire/sched.h>

typedef struct qr_partners {
    bool has_connector;
    bool has_encoder_connector;
    bool has_grammar;
    bool is_inside; /* a call runs that may run callbacks: these must not change the scheduler */
    quire_req asked_req; /* the connector is asked about it, and may cut its prompt; 0: none */
    quire_connector connector;
    quire_encoder_connector encoder_connector;
    quire_grammar grammar;
    quire_prefix_stats connector_stats; /* tokens found by the connector, since the last update */
} qr_partners;

#endif

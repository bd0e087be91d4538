/* sched/watch/watch.h - the monitor of a scheduler, and room to tell it of an event. */
#ifndef QR_SCHED_WATCH_WATCH_H
#define QR_SCHED_WATCH_WATCH_H

#include "obs/monitor.h"

typedef struct qr_watch {
    quire_monitor *monitor; /* NULL: nobody looks */
    qr_feed_piece *pieces;  /* of an event's tokens, and */
    quire_feed_key *keys;   /* its keys */
} qr_watch;

#endif

/* sched/watch/watch.h - the monitor of a scheduler, and room to tell it of an event. */
#ifndef QR_SCHED_WATCH_WATCH_H
#define QR_SCHED_WATCH_WATCH_H

#include "obs/monitor.h"

typedef struct qr_watch {
    quire_monitor *monitor; /* NULL: no monitor */
    qr_feed_piece *pieces;  /* the tokens of an event */
    quire_feed_key *keys;   /* the extra keys of an event */
} qr_watch;

#endif

/* sched/watch/watch.h - the monitor of a scheduler, and room to tell it of an event. */
#ifndef QR_SCHED_WATCH_WATCH_H
#define QR_SCHED_WATCH_WATCH_H

#include "obs/monitor.h"

#include <quire/sched.h>

typedef struct qr_watch {
    quire_monitor *monitor; /* NULL: no monitor */
    qr_feed_piece *pieces;  /* the tokens of an event */
    quire_feed_key *keys;   /* the extra keys of an event */
} qr_watch;

/* Plans or carves, see base/arena.h, once the scheduler's room for texts is known. */
void qr_watch_carve(quire_sched *sched, qr_arena *arena, const quire_sched_config *config);
/* Once the cache is there. QUIRE_OK, also without a monitor, or the error of its creation. */
int qr_watch_init(quire_sched *sched, const quire_sched_config *config);

#endif

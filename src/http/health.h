/* http/health.h - whether the scheduler still makes steps.
 *
 *      step         7   8   9   9   9   9   9 ...      looked at ten times a second
 *      unfinished   1   2   2   2   2   2   2
 *                           ^ fine_ns                  stuck: this is long ago
 *
 * It is fine at a time at which a step was new, or nothing ran and nothing waited.
 *
 * One thread looks (qr_http_health_look); any may ask.
 */
#ifndef QR_HTTP_HEALTH_H
#define QR_HTTP_HEALTH_H

#include <quire/monitor.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef struct qr_http_health {
    _Atomic uint64_t step; /* the last one seen; 0: none */
    _Atomic uint64_t fine_ns;
    uint64_t stuck_ns;
} qr_http_health;

typedef struct qr_http_state {
    bool is_stuck;
    uint64_t step; /* 0: none yet */
    uint32_t num_unfinished;
    uint64_t quiet_ns; /* for so long there is something to do, and no step */
} qr_http_state;

/* 0: none yet. */
static inline uint64_t qr_http_last_step(const quire_monitor *monitor)
{
    quire_monitor_step last = QUIRE_MONITOR_STEP_INIT;
    return quire_monitor_get_last_step(monitor, &last) == QUIRE_OK ? last.step : 0;
}

void qr_http_health_look(qr_http_health *health, const quire_monitor *monitor, uint64_t now_ns);
qr_http_state qr_http_health_ask(const qr_http_health *health, const quire_monitor *monitor,
                                 uint64_t now_ns);

#endif

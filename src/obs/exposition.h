/* obs/exposition.h - metrics as text, for Prometheus.
 *
 *      Prometheus 0.0.4                               OpenMetrics 1.0.0
 *      # HELP quire_steps_total Steps scheduled.      # TYPE quire_steps counter
 *      # TYPE quire_steps_total counter               # HELP quire_steps Steps scheduled.
 *      quire_steps_total{engine="0"} 7                quire_steps_total{engine="0"} 7
 *                                                     # EOF
 *
 * Numbers are written from integers: no locale changes them. Bounds are written as vLLM's are, so
 * that the series have the same names.
 */
#ifndef QR_OBS_EXPOSITION_H
#define QR_OBS_EXPOSITION_H

#include "obs/metrics.h"

/* Writes as much as fits and a zero byte, and returns how long the text is without it. Any thread.
 */
size_t qr_exposition_write(const qr_metrics *metrics, const quire_metrics_format *format,
                           char *text, size_t bytes);

#endif

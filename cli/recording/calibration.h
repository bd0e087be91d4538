/* cli/recording/calibration.h - constants of the time model from a recording.
 *
 *      step      ms = roofline x the GPU's own + step + request r + token n + context c + pair p
 *      between   ms = gap + gap_request r + gap_add a
 *      arrival   ms = arrival + arrival_token x prompt
 *
 * r requests, n new tokens, c tokens that are read, p pairs of prefill, a requests added; all
 * constants are 0 or more (model/fit.h). The GPU's own time counts only if it makes the fit better.
 *
 * Every fifth window of the recording is held out: the constants are fitted to the other four, and
 * then tried on it. A window has a minute, or 1/25 of a short recording.
 */
#ifndef QUIRE_CLI_RECORDING_CALIBRATION_H
#define QUIRE_CLI_RECORDING_CALIBRATION_H

#include "model/fit.h"
#include "recorded.h"

typedef struct calibration {
    double window_s;
    fit_errors steps;
    fit_errors steps_held_out;
    fit_errors gaps;
    fit_errors gaps_held_out;
    uint32_t num_arrivals; /* at an idle engine: 0: too few, the fastest tenth of all was taken */
} calibration;

/* The first of the constants that a recording gives, beside step_ms. */
enum { CALIBRATION_FIRST_CONSTANT = 10 };
enum { CALIBRATION_MIN_STEPS = 100, CALIBRATION_MIN_ARRIVALS = 20 };

/* `model` is that of g's constants, on which the recording was read. Replaces the last ten of
 * g's constants and step_ms. 0, or -1 and a sentence. */
int calibration_fit(const recorded *m, const time_model *model, gpu_constants *c, calibration *out);

#endif

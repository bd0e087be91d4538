/* cli/recording/comparison.h - a replay beside the recording that it was made from.
 *
 *      recording ──► requests, steps ─────────────────► measured  ─┐
 *           └──────► replay_run ──► replay_probe ─────► predicted ─┴─► figures, errors, curves
 *
 * A request is compared if it ended by itself in the recording, and ended in the replay.
 */
#ifndef QUIRE_CLI_RECORDING_COMPARISON_H
#define QUIRE_CLI_RECORDING_COMPARISON_H

#include "output/distribution.h"
#include "recorded.h"
#include "replay/replay.h"

#include <jansson.h>
#include <stdio.h>

enum { COMPARISON_BINS = 120, COMPARISON_ERROR_BINS = 40 };

typedef enum comparison_metric {
    COMPARISON_TTFT,
    COMPARISON_TPOT,
    COMPARISON_E2E,
    COMPARISON_LATENCIES, /* those that each request has */
    COMPARISON_STEP = COMPARISON_LATENCIES,
    COMPARISON_METRICS
} comparison_metric;

/* A curve over time: the mean of each bin. */
typedef struct comparison_curve {
    double sum[COMPARISON_BINS];
    double weight[COMPARISON_BINS]; /* 0: the bin has nothing */
} comparison_curve;

typedef enum comparison_curve_kind {
    COMPARISON_CURVE_TTFT,    /* of requests, by arrival */
    COMPARISON_CURVE_RUNNING, /* of steps */
    COMPARISON_CURVE_WAITING,
    COMPARISON_CURVE_STEP,
    COMPARISON_CURVES
} comparison_curve_kind;

/* What was measured, or predicted. */
typedef struct comparison_side {
    distribution ms[COMPARISON_METRICS];
    comparison_curve curves[COMPARISON_CURVES];
    uint64_t steps;
    uint64_t step_tokens;
    uint64_t output_tokens;
    uint64_t hit_tokens;
    uint64_t preemptions;
    double sum_running; /* over steps, as is the next */
    double sum_waiting;
    uint64_t max_running;
    uint64_t max_waiting;
} comparison_side;

/* Of |predicted - measured| / measured, and of it with its sign, of each request. */
typedef struct comparison_errors {
    uint64_t count;
    double median;
    double p90;
    double signed_median;
    uint64_t bins[COMPARISON_ERROR_BINS]; /* signed, from -100 % to +100 %; the last: beyond, too */
} comparison_errors;

typedef struct comparison {
    const recorded *recording;
    double start_s; /* of the recording's clock: time 0 of the replay */
    double bin_s;
    comparison_side measured;
    comparison_side predicted;
    comparison_errors errors[COMPARISON_LATENCIES];
    double *relative[COMPARISON_LATENCIES]; /* of each request that was compared */
    uint64_t num_compared;
    uint64_t num_excluded;
    replay_probe probe;
} comparison;

/* Before the replay, which gets &c->probe. 0, or -1 and a sentence. Close it in either case. */
int comparison_open(comparison *c, const recorded *recording);
/* After the replay. */
void comparison_finish(comparison *c);
void comparison_close(comparison *c);

void comparison_print(FILE *out, comparison *c);
/* The object `comparison` of docs/compare.md. */
json_t *comparison_json(comparison *c);

#endif

/* cli/sweep/sweep.h - a grid of replays on all cores.
 *
 *      --num-gpu-blocks 1k,2k,4k  --max-num-seqs 64,256
 *
 *              1k     2k     4k                  a point is one value of each axis; the first axis
 *       64     0      2      4                   changes slowest
 *      256     1      3      5
 *
 * Each point is a process of its own: a replay that fails takes nothing with it, and the sentence
 * that it fails with is its result. Results stand in the order of points, whoever ends first. The
 * processes end with the sweep, also when it is killed.
 */
#ifndef QUIRE_CLI_SWEEP_H
#define QUIRE_CLI_SWEEP_H

#include "options/options.h"
#include "options/value_list.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { SWEEP_MAX_AXES = 64, SWEEP_MAX_POINTS = 100000 };

/* An option that was given, with all its values. */
typedef struct sweep_axis {
    const option *option;
    value_list list;
} sweep_axis;

typedef struct sweep_point {
    json_t *report; /* NULL: it failed */
    char *error;    /* why */
} sweep_point;

typedef struct sweep {
    const char *trace;
    json_t *trace_record; /* made_by_trace, of the time before the first replay */
    json_t *made_by;
    sweep_axis axes[SWEEP_MAX_AXES];
    uint32_t num_axes;
    sweep_point *points;
    uint32_t num_points;
    const char *stopped; /* why not all points ran (interrupt_name); NULL: all ran */
} sweep;

/* The value of an axis at a point. */
const char *sweep_value(const sweep *s, uint32_t point, uint32_t axis);
/* Whether it has more than one. */
bool sweep_varies(const sweep *s, uint32_t axis);

/* In the process of a point: so much of its replay is done, from 0 to 1. */
void sweep_tell(double share);

/* Runs in the process of a point: 0, and the report as JSON in out; else a sentence on stderr. */
typedef int (*sweep_run_point)(const sweep *s, uint32_t point, FILE *out);

/* How far a sweep is. */
typedef struct sweep_progress {
    uint32_t num_done; /* points that ended */
    uint32_t num_points;
    double share;  /* of all points, with parts of those that run */
    double left_s; /* until the last one ends; negative: not known */
} sweep_progress;

typedef struct sweep_settings {
    uint32_t num_jobs; /* at one time */
    sweep_run_point run;
    void (*progress)(void *user,
                     const sweep_progress *progress); /* ten times a second; NULL: not */
    void *progress_user;
    /* NULL, or why the sweep ends now: points that run are ended. The function may be NULL. */
    const char *(*stop)(void);
} sweep_settings;

/* 0, or -1: no processes or no memory. Points that failed, or were stopped, say so themselves. */
int sweep_run(sweep *s, const sweep_settings *settings);
/* The same with points that are there, whatever the axes: num_points of them, all zero. */
int sweep_run_points(sweep *s, const sweep_settings *settings);
/* The number of processors. */
uint32_t sweep_default_jobs(void);
/* For the threads of a point: jobs that have no point to run, shared by all points. */
uint32_t sweep_threads(const sweep *s, uint32_t num_jobs, uint32_t most);
/* Frees the points, and forgets them. */
void sweep_free_points(sweep *s);
void sweep_free(sweep *s);

/* A number of a report by its path, "ttft_ms.p50"; "gpus": workers times GPUs of each. False where
 * there is none. */
bool sweep_number(const sweep *s, uint32_t point, const char *path, double *number);

/* ---- report.c: what a sweep came to, as a table, plots, JSON and CSV ----------- */

/* A number of the report that is shown. */
typedef struct sweep_column {
    const char *path; /* "ttft_ms.p50" */
    const char *head;
    double factor; /* shown is the number times this */
    int decimals;
} sweep_column;

/* Those of this sweep: more where it has tiers, swap, pressure, pins or limits for goodput. The
 * last one has no path. Valid until the next call. */
const sweep_column *sweep_columns(const sweep *s);

static inline bool sweep_is_time(const sweep_column *c)
{
    return strstr(c->path, "_ms.") != NULL;
}

/* The axis that plots have as x: one that changes the memory if there is one, else any numbers; the
 * number of axes where there is nothing to plot. */
uint32_t sweep_plot_axis(const sweep *s);
/* Where a point stands on it: GiB or the value itself. False: it has no place. */
bool sweep_plot_x(const sweep *s, uint32_t axis, uint32_t point, double *x);
/* "GiB of KV cache" or the option's name. */
const char *sweep_plot_x_name(const sweep *s, uint32_t axis);
/* What a point has of all other axes that vary: "max-num-seqs 64, tp 2". */
void sweep_plot_series(const sweep *s, uint32_t axis, uint32_t point, char *text, size_t bytes);

void sweep_report_print(FILE *out, const sweep *s, bool has_plot);
/* False: no memory, or it could not be written. */
bool sweep_report_json(FILE *out, const sweep *s);
bool sweep_report_csv(FILE *out, const sweep *s);
/* page.c: the page. */
bool sweep_page_write(FILE *out, const sweep *s);

#endif

/* cli/sweep/report.h - what a sweep came to, as a table, plots, JSON and CSV. */
#ifndef QUIRE_CLI_SWEEP_REPORT_H
#define QUIRE_CLI_SWEEP_REPORT_H

#include "sweep.h"

#include <stdio.h>
#include <string.h>

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

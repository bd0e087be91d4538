/* cli/curve/report.h - a curve as a table, a plot, JSON and CSV. */
#ifndef QUIRE_CLI_CURVE_REPORT_H
#define QUIRE_CLI_CURVE_REPORT_H

#include "curve.h"

#include <jansson.h>
#include <stdio.h>

enum { CURVE_POLICIES = 4 };

/* By quire_slots_policy: as --policy takes them. */
extern const char *const curve_policy_names[CURVE_POLICIES + 1];

/* One row of the table. */
typedef struct curve_row {
    uint64_t num_blocks;
    curve_value hits;
    curve_value belady;
    uint64_t policies[CURVE_POLICIES]; /* hits of those that were asked for */
    bool is_too_small;                 /* for the largest request: there are no hits to tell */
    const char *note;                  /* why this size; NULL: a share of all blocks */
} curve_row;

typedef struct curve_report {
    const curve *curve;
    const char *trace;
    uint32_t block_size;
    double sample;
    uint64_t block_bytes; /* 0: not known, no GiB */
    bool has_belady;
    bool has_policy[CURVE_POLICIES];
    uint32_t backlog;
    const curve_row *rows; /* by size */
    uint32_t num_rows;
    uint32_t num_points; /* of plot, JSON and CSV; 0: each size at which the hits change */
    bool has_plot;
    const char *stopped; /* why not all of the trace was read, or rows are missing; NULL: all is */
    bool has_contents;   /* the trace says which prompts are alike */
    json_t *made_by;
} curve_report;

void curve_report_print(FILE *out, const curve_report *report);
/* False: no memory, or it could not be written. */
bool curve_report_json(FILE *out, const curve_report *report);
bool curve_report_csv(FILE *out, const curve_report *report);

#endif

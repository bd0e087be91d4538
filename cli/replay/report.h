/* cli/replay/report.h - what a replay came to, for people and for programs. */
#ifndef QUIRE_CLI_REPLAY_REPORT_H
#define QUIRE_CLI_REPLAY_REPORT_H

#include "replay.h"

#include <jansson.h>

/* What was replayed, on what; texts may be NULL. */
typedef struct report_subject {
    const char *trace;
    const char *model;
    const char *gpu;          /* "4 x H100" */
    json_t *made_by;          /* NULL: none; stays the caller's */
    uint64_t bytes_per_block; /* 0: not known */
    bool is_deterministic;    /* leave out what differs from run to run: wall_s, speed_factor */
    bool has_why;             /* evictions were looked at, */
    bool could_have_why;      /* or the command has an option for it */
} report_subject;

void report_print(FILE *out, const report_subject *subject, replay_result *result);
/* One JSON object, to be freed; NULL: no memory. The keys are stable, see docs/replay.md. */
char *report_json(const report_subject *subject, replay_result *result);
/* The same before it is text; to be freed with json_decref. */
json_t *report_tree(const report_subject *subject, replay_result *result);
/* By the trace's own block ids where it has them. */
double report_ideal_rate(const replay_result *result);
/* Simulated seconds in a second; 0: not known. */
double report_speed_factor(const replay_result *result);
/* The largest loss, and which part of prompt tokens was lost; hits and losses, as part of the
 * ideal; times. Parts of report_print. */
void report_print_hits(FILE *out, const replay_result *result);
void report_print_times(FILE *out, replay_result *result);
void report_print_head(FILE *out, const report_subject *subject, replay_result *result);
/* 1234567 as "1,234,567", valid until the fourth call after it. */
const char *report_number(uint64_t n);

static inline double report_share(uint64_t part, uint64_t all)
{
    return all == 0 ? 0 : (double)part / (double)all;
}

static inline json_t *report_integer(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* tiers/report.c: the part that is about tiers; as JSON: hits_by_tier, tier_hit_rate, tier_time and
 * tiers. */
void tiers_report_print(FILE *out, const replay_result *r, uint64_t bytes_per_block);
void tiers_report_json(json_t *report, const replay_result *r, uint64_t bytes_per_block);

#endif

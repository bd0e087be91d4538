#include "scale_spec.h"

#include "fields.h"
#include "output/failure.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LONGEST_S = 1e9;

/* The places of the fields that all policies have; a policy's own follow. */
enum { MIN, MAX, STARTUP, INTERVAL, UP_WINDOW, DOWN_WINDOW, UP_COOLDOWN, DOWN_COOLDOWN, HAND_OVER };
enum { NUM_COMMON = HAND_OVER + 1, MAX_OWN = 4, NUM_POLICIES = 4, TEXT_BYTES = 1024 };

typedef struct policy_fields {
    const char *name;
    scaling_policy *policy;
    field own[MAX_OWN + 1];
} policy_fields;

static const policy_fields policies[NUM_POLICIES] = {
    {"queue", scaling_by_queue, {{"requests", NAN, 0.001, 1e9, false}}},
    {"slo",
     scaling_by_slo,
     {{"ttft", 0, 0, 1e6, false},
      {"tpot", 0, 0, 1e6, false},
      {"low", 0.5, 0, 1, false},
      {"percentile", 0.99, 0, 1, false}}},
    {"hpa", scaling_by_hpa, {{"target", NAN, 0.001, 1e9, false}, {"tolerance", 0.1, 0, 1, false}}},
    {"schedule", scaling_by_schedule, {{"period", 0, 0, 1e9, false}}},
};

static void common_fields(uint32_t max_workers, field table[NUM_COMMON])
{
    const field common[NUM_COMMON] = {
        [MIN] = {"min", 1, 1, max_workers, true},
        [MAX] = {"max", NAN, 1, max_workers, true},
        [STARTUP] = {"startup", 60, 0, LONGEST_S, false},
        [INTERVAL] = {"interval", 15, 0.001, LONGEST_S, false},
        [UP_WINDOW] = {"up-window", 0, 0, LONGEST_S, false},
        [DOWN_WINDOW] = {"down-window", 300, 0, LONGEST_S, false},
        [UP_COOLDOWN] = {"up-cooldown", 0, 0, LONGEST_S, false},
        [DOWN_COOLDOWN] = {"down-cooldown", 0, 0, LONGEST_S, false},
        [HAND_OVER] = {"hand-over", 0, 0, 1, true},
    };
    memcpy(table, common, sizeof common);
}

/* "SECONDS=WORKERS", one row of a schedule. */
static int read_row(scale_spec *spec, const char *text, uint32_t max_workers)
{
    scaling_schedule *s = &spec->of.schedule;
    char *end;
    double at_s = strtod(text, &end);
    double workers = *end == '=' ? strtod(end + 1, &end) : NAN;
    bool is_whole = *end == '\0' && workers == floor(workers);
    if (!is_whole || !(workers >= 1 && workers <= max_workers) || !(at_s <= LONGEST_S))
        return fail_with("invalid row \"%s\" of schedule (expected SECONDS=WORKERS, with 0 to 1e9 "
                         "and a whole number from 1 to %u)",
                         text, max_workers);
    if (s->num_rows == SCALE_MAX_ROWS)
        return fail_with("schedule has more than %d rows", SCALE_MAX_ROWS);
    if (s->num_rows > 0 && at_s <= spec->rows[s->num_rows - 1].at_s)
        return fail_with("invalid row \"%s\" of schedule (expected a time after %g)", text,
                         spec->rows[s->num_rows - 1].at_s);
    spec->rows[s->num_rows++] = (scaling_row){at_s, (uint32_t)workers};
    return 0;
}

/* Takes the rows of a schedule out of the text, which is left with the fields. */
static int take_rows(scale_spec *spec, char *text, uint32_t max_workers)
{
    char *to = text;
    for (char *from = text; *from != '\0';) {
        size_t n = strcspn(from, ",");
        bool has_more = from[n] == ',';
        from[n] = '\0';
        if (isdigit((unsigned char)*from)) {
            if (read_row(spec, from, max_workers) != 0)
                return -1;
        } else {
            if (to > text)
                *to++ = ',';
            memmove(to, from, n);
            to += n;
        }
        from += n + has_more;
    }
    *to = '\0';
    if (spec->of.schedule.num_rows == 0)
        return fail_with("schedule has no row (expected SECONDS=WORKERS)");
    return 0;
}

static void set_parameters(scale_spec *spec, scaling_policy *policy, const double *own)
{
    if (policy == scaling_by_queue)
        spec->of.queue.requests = own[0];
    if (policy == scaling_by_slo)
        spec->of.slo = (scaling_slo){own[0], own[1], own[2]};
    if (policy == scaling_by_hpa)
        spec->of.hpa = (scaling_hpa){own[0], own[1]};
    if (policy == scaling_by_schedule) {
        spec->of.schedule.rows = spec->rows;
        spec->of.schedule.period_s = own[0];
    }
    spec->percentile = policy == scaling_by_slo ? own[3] : 0.99;
}

static int set_config(scale_spec *spec, scaling_policy *policy, const double *values)
{
    scaling now;
    spec->config = (scaling_config){.policy = policy,
                                    .parameters = &spec->of,
                                    .min_workers = (uint32_t)values[MIN],
                                    .max_workers = (uint32_t)values[MAX],
                                    .interval_s = values[INTERVAL],
                                    .up_window_s = values[UP_WINDOW],
                                    .down_window_s = values[DOWN_WINDOW],
                                    .up_cooldown_s = values[UP_COOLDOWN],
                                    .down_cooldown_s = values[DOWN_COOLDOWN],
                                    .startup_s = values[STARTUP]};
    spec->hands_over = values[HAND_OVER] > 0;
    if (values[MIN] > values[MAX])
        return fail_with("invalid value \"%g\" for min (expected 1 to %g, which is max)",
                         values[MIN], values[MAX]);
    int window = values[UP_WINDOW] > values[DOWN_WINDOW] ? UP_WINDOW : DOWN_WINDOW;
    if (values[window] / values[INTERVAL] > SCALING_MAX_WINDOW - 1)
        return fail_with("invalid value \"%g\" for %s (expected at most %g, which is %d times "
                         "interval)",
                         values[window], window == UP_WINDOW ? "up-window" : "down-window",
                         (SCALING_MAX_WINDOW - 1) * values[INTERVAL], SCALING_MAX_WINDOW - 1);
    return scaling_begin(&now, &spec->config, 0); /* says what is wrong */
}

int scale_spec_read(const char *text, uint32_t max_workers, scale_spec *spec)
{
    char name[16];
    char fields[TEXT_BYTES];
    const char *rest;
    field table[NUM_COMMON + MAX_OWN + 1] = {{0}};
    double values[NUM_COMMON + MAX_OWN];
    uint32_t i = 0;
    bool is_short = fields_name(text, name, sizeof name, &rest);
    while (i < NUM_POLICIES && (!is_short || strcmp(policies[i].name, name) != 0))
        i++;
    if (i == NUM_POLICIES)
        return fail_with("invalid policy \"%.64s\" (expected queue, slo, hpa or schedule)", text);
    if (strlen(rest) >= sizeof fields)
        return fail_with("the fields of %s have %zu characters (expected at most %d)", name,
                         strlen(rest), TEXT_BYTES - 1);
    *spec = (scale_spec){0};
    memcpy(fields, rest, strlen(rest) + 1);
    scaling_policy *policy = policies[i].policy;
    if (policy == scaling_by_schedule && take_rows(spec, fields, max_workers) != 0)
        return -1;
    common_fields(max_workers, table);
    memcpy(table + NUM_COMMON, policies[i].own, sizeof policies[i].own);
    if (fields_read(name, fields, table, values) != 0)
        return -1;
    set_parameters(spec, policy, values + NUM_COMMON);
    if (policy == scaling_by_slo && spec->of.slo.ttft_s <= 0 && spec->of.slo.tpot_s <= 0)
        return fail_with("slo has no limit (expected ttft=S, tpot=S or both, above 0)");
    return set_config(spec, policy, values);
}

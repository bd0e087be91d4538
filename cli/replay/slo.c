#include "slo.h"

#include "output/failure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *limit_named(slo *limits, const char *name, size_t length)
{
    const struct {
        const char *name;
        double *value;
    } rows[] = {{"ttft", &limits->ttft_ms}, {"tpot", &limits->tpot_ms}, {"e2e", &limits->e2e_ms}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == length && strncmp(rows[i].name, name, length) == 0)
            return rows[i].value;
    return NULL;
}

/* "2s" in milliseconds; 0: it is no time above 0. */
static double read_time(const char *text, size_t length)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {"min", 60e3}};
    char copy[32];
    char *end;
    if (length >= sizeof copy)
        return 0;
    memcpy(copy, text, length);
    copy[length] = '\0';
    double number = strtod(copy, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end != copy && strcmp(end, units[i].name) == 0 && isfinite(number) && number > 0)
            return number * units[i].ms;
    return 0;
}

int slo_read(const char *text, slo *limits)
{
    *limits = (slo){0};
    for (const char *at = text; at != NULL;) {
        size_t length = strcspn(at, ",");
        size_t name = strcspn(at, "=,");
        double *limit = at[name] == '=' ? limit_named(limits, at, name) : NULL;
        double ms = limit != NULL ? read_time(at + name + 1, length - name - 1) : 0;
        if (limit == NULL || ms <= 0)
            return fail_with("invalid value \"%.100s\" for --slo (expected ttft=TIME, tpot=TIME or "
                             "e2e=TIME with commas between them; a TIME is 50ms, 2s or 1.5min)",
                             text);
        if (*limit > 0)
            return fail_with("--slo: %.*s is given twice", (int)name, at);
        *limit = ms;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return 0;
}

bool slo_is_set(const slo *limits)
{
    return limits->ttft_ms > 0 || limits->tpot_ms > 0 || limits->e2e_ms > 0;
}

bool slo_is_met(const slo *limits, double ttft_ms, double tpot_ms, double e2e_ms)
{
    return (limits->ttft_ms <= 0 || ttft_ms <= limits->ttft_ms) &&
           (limits->tpot_ms <= 0 || tpot_ms <= limits->tpot_ms) &&
           (limits->e2e_ms <= 0 || e2e_ms <= limits->e2e_ms);
}

/* ---- of all requests ------------------------------------------------------------ */

static const char *const METRICS[] = {"ttft", "tpot", "e2e"}; /* slo_metric */

/* "p99.9" as 0.999; 0: it is no percentile. */
static double read_percentile(const char *text)
{
    char *end;
    if (text[0] != 'p' || !(text[1] >= '0' && text[1] <= '9'))
        return 0;
    double percent = strtod(text + 1, &end);
    return *end == '\0' && percent > 0 && percent <= 100 ? percent / 100 : 0;
}

/* "ttft_p99": false: it is no such name. */
static bool read_name(const char *text, size_t length, slo_target *target)
{
    if (length >= sizeof target->name)
        return false;
    memcpy(target->name, text, length);
    target->name[length] = '\0';
    size_t metric = strcspn(target->name, "_");
    for (int i = 0; i < 3; i++)
        if (strlen(METRICS[i]) == metric && strncmp(METRICS[i], target->name, metric) == 0) {
            target->metric = (slo_metric)i;
            target->share = metric == length ? 1 : read_percentile(target->name + metric + 1);
            return target->share > 0;
        }
    return false;
}

int slo_targets_read(const char *text, slo_targets *targets)
{
    *targets = (slo_targets){0};
    for (const char *at = text; at != NULL;) {
        size_t length = strcspn(at, ",");
        size_t name = strcspn(at, "=,");
        slo_target *target = &targets->list[targets->num];
        if (targets->num == SLO_MAX_TARGETS)
            return fail_with("--slo has more than %d limits", SLO_MAX_TARGETS);
        bool is_limit = at[name] == '=' && read_name(at, name, target);
        target->limit_ms = is_limit ? read_time(at + name + 1, length - name - 1) : 0;
        if (target->limit_ms <= 0)
            return fail_with("invalid value \"%.100s\" for --slo (expected ttft_p99=TIME, tpot, "
                             "e2e, each with a percentile above 0 to 100 or for all requests, with "
                             "commas between them; a TIME is 50ms, 2s or 1.5min)",
                             text);
        for (uint32_t i = 0; i < targets->num; i++)
            if (strcmp(targets->list[i].name, target->name) == 0)
                return fail_with("--slo: %s is given twice", target->name);
        targets->num++;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return 0;
}

#include "verdict.h"

#include "report.h"

/* Of all requests that came: more of them still waiting at the last arrival is an overload. */
#define OVERLOAD_SHARE 0.05
enum { OVERLOAD_LEAST = 16, QUEUED_FROM_MS = 1000 };

const char *verdict_name(verdict_state state)
{
    static const char *const names[] = {"unknown", "in_time", "queued", "overloaded"};
    return names[state];
}

const char *verdict_time(double ms)
{
    static _Thread_local char texts[8][24];
    static _Thread_local unsigned next;
    static const struct {
        const char *name;
        double ms;
        double below;
    } units[] = {{"us", 1e-3, 1},
                 {"ms", 1, 1e3},
                 {"s", 1e3, 120e3},
                 {"min", 60e3, 7200e3},
                 {"h", 3600e3, 1e18}};
    char *text = texts[next++ % 8];
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double number = ms / units[i].ms;
        int decimals = number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2;
        if (ms < units[i].below * (1 - 5e-4)) {
            snprintf(text, sizeof *texts, "%.*f %s", ms > 0 ? decimals : 0, number,
                     ms > 0 ? units[i].name : "ms");
            return text;
        }
    }
    return "-";
}

static void describe(verdict *v, replay_result *r)
{
    size_t room = sizeof v->text;
    double queue_ms = distribution_percentile(&r->queue_ms, 0.95);
    switch (v->state) {
    case VERDICT_OVERLOADED:
        snprintf(v->text, room,
                 "Overloaded: %.3g requests/s arrive, %.3g/s are served: the queue grows (%s of %s "
                 "requests were waiting when the last one came)",
                 v->arrive_per_s, v->served_per_s, report_number(r->waiting_at_last),
                 report_number(r->arrived));
        break;
    case VERDICT_QUEUED:
        snprintf(v->text, room,
                 "Queued: %.3g requests/s arrive and are served, but one in 20 waits %s or longer "
                 "in the queue (%s requests at most, %s after the start)",
                 v->arrive_per_s, verdict_time(queue_ms), report_number(r->max_waiting),
                 verdict_time(1e3 * r->max_waiting_s));
        break;
    case VERDICT_IN_TIME:
        snprintf(v->text, room,
                 "In time: %.3g requests/s arrive and are served; 19 of 20 wait %s or less in the "
                 "queue",
                 v->arrive_per_s, verdict_time(queue_ms));
        break;
    default:
        snprintf(v->text, room, "No verdict on load: the arrival times of the trace were not used");
    }
}

verdict verdict_of(replay_result *r)
{
    verdict v = {.state = VERDICT_UNKNOWN};
    double span_s = r->last_arrival_s - r->first_arrival_s;
    if (r->clock == REPLAY_CLOCK_TRACE && span_s > 0 && r->ttft_ms.count > 0) {
        v.arrive_per_s = (double)r->arrived / span_s;
        v.served_per_s = (double)r->ended_at_last / span_s;
        bool is_overloaded = r->waiting_at_last >= OVERLOAD_LEAST &&
                             (double)r->waiting_at_last > OVERLOAD_SHARE * (double)r->arrived;
        v.state = is_overloaded ? VERDICT_OVERLOADED
                  : distribution_percentile(&r->queue_ms, 0.95) >= QUEUED_FROM_MS ? VERDICT_QUEUED
                                                                                  : VERDICT_IN_TIME;
    }
    describe(&v, r);
    return v;
}

/* cli/fleet/failures.h - what is to fail in a fleet, and when.
 *
 *      crash      at              the worker's requests go back to the router, its cache is lost;
 *                 at + restart    it is ready again, with an empty cache
 *      slow       [from, to)      steps that begin take `factor` times as long
 *      partition  [from, to)      routers hear neither the worker's KV events nor its loads;
 *                                 requests, first tokens and ends still pass
 *      gap        [from, to)      the worker's KV events are lost, and nothing else
 *      tier       [from, to)      the shared tier finds and stores nothing; loads and stores on
 *                                 their way fail. With lose=1 its blocks are lost, too
 *
 * With mtbf_s, each worker also crashes at random times: the time from ready to crash has an
 * exponential distribution. It depends on the seed, the worker and the number of the crash alone.
 */
#ifndef QUIRE_CLI_FLEET_FAILURES_H
#define QUIRE_CLI_FLEET_FAILURES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum failure_kind {
    FAILURE_CRASH,
    FAILURE_SLOW,
    FAILURE_PARTITION,
    FAILURE_GAP,
    FAILURE_TIER
} failure_kind;

typedef struct failure_event {
    failure_kind kind;
    uint32_t worker; /* of a tier: FAILURES_NO_WORKER */
    double from_s;
    double to_s; /* of a crash: when the worker is ready again; HUGE_VAL: never */
    double factor;
    bool loses; /* of a tier */
} failure_event;

#define FAILURES_NO_WORKER UINT32_MAX

typedef struct failures {
    failure_event *events; /* by from_s, then in the order in which they were given */
    uint32_t num_events;
    uint32_t capacity;
    double mtbf_s; /* mean time between crashes of one worker; 0: none at random */
    double mtbf_restart_s;
    uint64_t seed;
} failures;

/* Adds "crash:worker=3,at=120,restart=60", or another kind, or several with semicolons between
 * them. 0; or -1, and a sentence (failure.h) that names the field, its value and its range: those
 * before it were added. */
int failures_add(failures *f, const char *text, uint32_t num_workers);
void failures_free(failures *f);

/* Events need the routers' index: their KV events do not all arrive. */
bool failures_lose_events(const failures *f);
/* When the worker crashes at random, if it is ready at that time; HUGE_VAL: never. number: how
 * often it did. */
double failures_draw_s(const failures *f, uint32_t worker, uint64_t number, double ready_s);
/* The first time after now_s at which an event begins, or one that is no crash ends. */
double failures_next_s(const failures *f, double now_s);

/* What holds for a worker now. */
typedef struct failure_state {
    double slowness; /* the largest factor; 1: none */
    bool is_mute;    /* no KV events, */
    bool is_hidden;  /* and no loads */
} failure_state;

/* What holds for the shared tier now: is_down, and whether its blocks are lost. */
typedef struct failure_tier {
    bool is_down;
    bool loses;
} failure_tier;

failure_tier failures_tier_now(const failures *f, double now_s);
failure_state failures_now(const failures *f, uint32_t worker, double now_s);

#endif

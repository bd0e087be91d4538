/* cli/fleet/members.h - which workers of a fleet serve, and what happens to them.
 *
 *              add                 ready_s              drain
 *      OFF ──────────► STARTING ────────────► READY ────────────► DRAINING ──► OFF   when empty
 *                          ▲                    │ crash               │
 *                          └────────────────────┴─────────────────────┘  OFF, if it never restarts
 *
 * A worker that becomes READY has an empty cache. Workers cost money in all states but OFF.
 * Changes take place between windows (fleet.h), at their exact times: crashes first, then workers
 * that become ready, then the autoscaler, then the requests that went back to the router.
 */
#ifndef QUIRE_CLI_FLEET_MEMBERS_H
#define QUIRE_CLI_FLEET_MEMBERS_H

#include "failures.h"
#include "scale_spec.h"
#include "series.h"
#include "trace/arrival_queue.h"

typedef enum member_state {
    MEMBER_OFF,
    MEMBER_STARTING,
    MEMBER_READY,
    MEMBER_DRAINING,
    MEMBER_NUM_STATES
} member_state;

typedef struct member {
    member_state state;
    double ready_s;       /* STARTING: when it is ready */
    double crash_s;       /* READY and DRAINING: the next crash at random */
    uint64_t num_crashes; /* at random */
    failure_state failing;
} member;

/* One crash, and the way back from it. */
typedef struct member_crash {
    uint32_t worker;
    double at_s;
    double ready_s;      /* HUGE_VAL: the worker does not come back */
    uint32_t num_begun;  /* requests that ran, */
    uint32_t num_queued; /* and that waited; */
    uint32_t num_back;   /* of them, those that went back to the router */
    uint32_t num_open;   /* of them, those without a token since */
    uint64_t lost_tokens;
    double resumed_s; /* when the last of them had a token again, or was refused; HUGE_VAL: not */
    double before_s;  /* mean TTFT before (series.h); NAN: not known */
    double back_s;    /* when it was back; HUGE_VAL: not */
} member_crash;

/* What happened to the members. */
typedef struct members_result {
    bool has_failures; /* they were asked for; so was the next */
    bool has_scaling;
    uint32_t num_ready; /* at the end */
    uint32_t most_ready;
    member_crash *crashes; /* in order */
    uint32_t num_crashes;
    uint32_t crashes_capacity;
    uint64_t num_begun; /* sums over crashes */
    uint64_t num_queued;
    uint64_t lost_tokens; /* whose KV was lost with a worker, of requests that had not ended */
    uint64_t recomputed_tokens; /* of them, those computed again: no other worker had them */
    uint64_t num_handed_over;   /* requests of draining workers that went back to the router */
    uint64_t num_added;         /* workers, by the autoscaler */
    uint64_t num_removed;
    uint64_t lost_batches; /* KV events that did not leave their worker */
    double gpu_hours;
    double cost;
    series series;
} members_result;

typedef struct members {
    member *of; /* by worker */
    uint32_t count[MEMBER_NUM_STATES];
    uint32_t paid_gpus;  /* of workers that cost money */
    scaling scaling;     /* also of a fleet that does not scale: the bill */
    double decide_s;     /* the next decision; HUGE_VAL: none */
    double told_s;       /* changes up to then have taken place; -1: none has */
    uint32_t next_event; /* the first crash of failures.events that has not taken place, or later */
    arrival_queue back;  /* requests on their way to the router */
    double *ttft_s;      /* since the last decision; so are the next */
    double *tpot_s;
    uint32_t num_ttft;
    uint32_t ttft_capacity;
    uint32_t num_tpot;
    uint32_t tpot_capacity;
} members;

struct fleet;

/* All workers, those that are ready at time 0 too. 0, or -1 and a sentence. */
int members_open(struct fleet *f);
void members_close(struct fleet *f);
/* When a worker changes next; HUGE_VAL: never. */
double members_next_s(const struct fleet *f);
/* All changes up to now. 0, or -1 and a sentence. */
int members_change(struct fleet *f);
/* A request that waits in the router may still be served. */
bool members_may_serve(const struct fleet *f);
/* No worker that generates is ready, starts or drains. */
bool members_are_off(const struct fleet *f);

/* ---- for crash.c --------------------------------------------------------------------- */

/* The worker crashes now, and is ready again then; HUGE_VAL: never. 0, or -1 and a sentence. */
int members_crash(struct fleet *f, uint32_t worker, double ready_s);
void members_set_state(struct fleet *f, uint32_t worker, member_state state, double time_s);
/* The fleet's copies of what the worker says. */
void members_look_at(struct fleet *f, uint32_t worker);

/* ---- requests -------------------------------------------------------------------------- */

/* What the fleet tells of its requests: is_again: it had a first token before a crash. num_cached:
 * tokens that its worker had of it. */
void members_admitted(struct fleet *f, const arrival *it, uint32_t num_cached);
void members_first_token(struct fleet *f, const arrival *it, double time_s, bool is_again);
void members_end(struct fleet *f, const arrival *it, double time_s, uint32_t num_tokens);
/* It will not be served. */
void members_refused(struct fleet *f, const arrival *it, double time_s);

void members_finish(struct fleet *f);
void members_result_free(members_result *result);

#endif

/* cli/fleet/worker.h - one worker of a fleet: an engine, and the requests that were sent to it.
 *
 *      worker_give ──► inbox, by time ──► engine       worker_advance: until a time, and no further
 *
 * A worker shares nothing with others, so workers advance in several threads at once. It stops
 *
 *      before a step that begins at `until` or later: requests may come until then
 *      after a step that ends at `until` or before
 *      when it has ended a request that another one waits for
 *
 * What happened to its requests is in engine.events, and changes of its cache in kv, until the
 * fleet has taken them.
 */
#ifndef QUIRE_CLI_FLEET_WORKER_H
#define QUIRE_CLI_FLEET_WORKER_H

#include "hits.h"
#include "remote_kv.h"
#include "routers/router.h"
#include "shared_kv.h"

/* What a request carries through the fleet: arrival.note. */
typedef struct fleet_request {
    uint32_t worker;
    uint32_t believed_tokens; /* that the router believed to be in the worker's cache */
    uint32_t hit_tokens;
    uint32_t shared_tokens; /* of them, from storage that workers share; */
    uint32_t peer_tokens;   /* of these, from other workers' host memory */
    bool has_follower;      /* another request may wait for its end */
    bool is_routed;         /* the router counts it */
    bool is_admitted;       /* by its worker */
    bool is_begun;          /* a worker has admitted it, or its prompt */
    bool has_ideal;         /* no cache finds more than the infinite one */
    uint32_t crash;         /* the last one that it was interrupted by, from 1 on; 0: none */
    uint32_t lost_tokens;   /* whose KV was lost with its last worker */
    double scheduled_s;
    double first_token_s;
    unsigned char *hashes; /* of its whole blocks, until it is added; NULL: not made */
    uint32_t num_hashes;
    uint32_t hash_bytes;
    remote_part remote;      /* where one worker computes its prompt, and another one generates: */
    uint32_t prefill_worker; /* ROUTER_NONE: the same */
    uint32_t moved_blocks;
    double computed_s;
    double transfer_start_s;
    double transfer_end_s;
} fleet_request;

/* Blocks that became known, or are gone, in one step. */
typedef struct worker_kv {
    double time_s;
    router_kv_kind kind;
    uint32_t first; /* in names */
    uint32_t count;
} worker_kv;

typedef struct worker {
    engine engine;
    const quire_pool *pool; /* of the engine's blocks */
    replay_result result;
    arrival_queue inbox;
    arrival *back;           /* of the inbox: there was no room for it */
    uint64_t outside_tokens; /* prompt tokens of both */
    uint64_t waiting_tokens; /* that requests which wait in the scheduler need, at least */
    uint32_t num_behind;     /* requests of both, when the last step began */
    router_load report;      /* as of the end of the last step: what vLLM reports */
    uint32_t digest_bytes;   /* of a hash of hash_block_size tokens */
    double given_s;          /* when it was given a request last */
    double last_end_s;       /* when a request ended last */
    double next_job_s;       /* of an engine that is idle */
    uint64_t alert_step;     /* the first of its steps that may end a request with a follower */
    uint64_t inbox_steps;    /* that requests of the inbox with a follower need, at least */
    double least_step_s;     /* no step with tokens is shorter */
    remote_kv remote;
    shared_kv shared;
    bool is_remote;         /* it has a connector: KV comes from other workers or a shared tier */
    double least_latency_s; /* no transfer takes less */
    bool stops;             /* it has ended a request that another one waits for */
    int status;             /* of the last worker_advance: 0, or -1 and a sentence in why */
    char why[REPLAY_MESSAGE_BYTES];
    bool no_memory;
    bool is_lean;
    bool has_kv;
    hits_known *known; /* NULL: nobody asks for the hits of many workers */
    worker_kv *kv;
    uint32_t num_kv;
    uint32_t kv_capacity;
    uint64_t *names;
    uint32_t num_names;
    uint32_t names_capacity;
} worker;

typedef struct worker_config {
    trace_format format; /* of the trace */
    bool has_kv;         /* changes of the cache are kept, for a router */
    hits_known *known;   /* where they are noted for fleet_exact_hits; NULL: nowhere */
    router_role role;
    bool is_layered;        /* its KV is sent while the prompt is computed */
    double least_latency_s; /* of transfers */
    shared_places places;   /* storage of all workers that serve */
    /* Few requests wait in the scheduler, and the rest in the inbox. It decides the same; but
     * requests that are refused are refused at other times. */
    bool is_lean;
} worker_config;

/* 0, or -1 and a sentence; worker_close in either case. */
int worker_open(worker *w, const replay_settings *settings, const worker_config *config);
void worker_close(worker *w);

/* The request, which came by now, is the worker's from now on. False: no memory. */
bool worker_give(worker *w, arrival *it, double now_s);
/* A transfer has ended. False: no memory. */
bool worker_received(worker *w, quire_req req, bool has_failed, double now_s);
bool worker_sent(worker *w, quire_req req, double now_s);
/* Goes on until then, with the memory for prompts of its thread. */
void worker_advance(worker *w, double until_s, engine_prompt *prompt);
/* When it does something next; HUGE_VAL: only when a request comes. */
double worker_next_s(const worker *w);
/* Before that time no request with a follower ends, and no transfer that it begins can matter. */
double worker_quiet_s(const worker *w);
/* Its load now: requests that came during a step wait. In its report they do not: the scheduler of
 * the step has not seen them. */
router_load worker_load(const worker *w);
/* Forgets the events and changes that the fleet has taken. */
void worker_taken(worker *w);
/* Requests that leave the worker, by arrival. They are the caller's, without hashes.
 * worker_crash: all of them; what was computed and cached is lost. worker_hand_over: those that no
 * step had. At a time at which the worker was advanced to. 0, or -1 and a sentence.
 * worker_take: this one, which does not load. */
int worker_crash(worker *w, double time_s, arrival_queue *back);
int worker_hand_over(worker *w, arrival_queue *back);
int worker_take(worker *w, arrival *it, double now_s);
/* It has no request. */
bool worker_is_empty(const worker *w);
void worker_finish(worker *w, double end_s);

/* Frees what a request carries. */
void fleet_request_free(arrival *it);

#endif

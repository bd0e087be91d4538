/* cli/fleet/remote_kv.h - KV that moves between workers, as the scheduler of one worker sees it.
 *
 *      prefill worker   prompt computed ──► the request ends, and its blocks stay
 *                       remote_kv_sent ──► free at the end of the next step
 *
 *      decode worker    admitted, with blocks for the whole prompt ──► ENGINE_LOADING ──► waits
 *                       remote_kv_received ──► runs after the end of the next step, and computes
 *                       the last token of the prompt, or all of it, if the transfer failed
 *
 * It is the connector of the worker's scheduler (quire/connector.h). What moves when, the fleet
 * decides (handoffs.h).
 */
#ifndef QUIRE_CLI_FLEET_REMOTE_KV_H
#define QUIRE_CLI_FLEET_REMOTE_KV_H

#include "replay/engine.h"

/* Requests, up to the end of the next step. */
typedef struct remote_list {
    quire_req *reqs;
    uint32_t count;
    uint32_t capacity;
} remote_list;

typedef struct remote_kv {
    engine *engine;
    bool is_layered; /* a prefill worker tells ENGINE_COMPUTING */
    bool is_leaving; /* requests that end now leave the worker: no blocks stay */
    uint32_t
        num_coming; /* requests of the worker that may begin to load, or to be sent, in a step */
    uint32_t num_loading; /* that have blocks, and wait for KV */
    uint32_t num_held;    /* that have ended, and whose blocks stay */
    remote_list received; /* failed ones too */
    remote_list failed;
    remote_list sent;
} remote_kv;

/* What a request has of it: in fleet_request. */
typedef struct remote_part {
    uint32_t handoff;       /* of the fleet */
    quire_req req;          /* LOADING, and the end of a prefill: in its worker's scheduler */
    bool is_begun;          /* LOADING or COMPUTING was told */
    bool has_failed;        /* the transfer */
    uint32_t local_tokens;  /* LOADING: found in the decode worker's own cache */
    uint32_t loaded_tokens; /* from storage that workers share, unless the load has failed; */
    uint32_t peer_tokens;   /* of them, from other workers' host memory */
    double start_s; /* LOADING: the blocks are there; COMPUTING: the last step of the prompt, */
    double end_s;   /* and its end */
} remote_part;

void remote_kv_open(remote_kv *r, engine *e, bool is_layered, quire_connector *connector);
void remote_kv_close(remote_kv *r);

/* The worker has a request of which it does a part. */
void remote_kv_given(remote_kv *r, const arrival *it);
/* It was left out, or leaves the worker. */
void remote_kv_left_out(remote_kv *r, const arrival *it);
/* The worker crashes: around engine_abort of its requests and engine_crash. The fleet has said
 * before of each that loads, and of each whose blocks are held, that this has ended. */
void remote_kv_crash(remote_kv *r);
void remote_kv_crashed(remote_kv *r);
/* engine_begin was called: tells which prompts will be computed at the end of the step. */
void remote_kv_began(remote_kv *r);
/* For engine_place. */
void remote_kv_answer(void *user, quire_model_output *output);

/* False: no memory. */
bool remote_kv_received(remote_kv *r, quire_req req, bool has_failed);
bool remote_kv_sent(remote_kv *r, quire_req req);

/* Its next step may begin a transfer. */
static inline bool remote_kv_may_begin(const remote_kv *r)
{
    return r->num_coming > 0;
}

/* It may have requests, and nothing to do. */
static inline bool remote_kv_waits(const remote_kv *r)
{
    return r->num_loading > 0 || r->num_held > 0;
}

static inline bool remote_kv_has_news(const remote_kv *r)
{
    return r->received.count > 0 || r->sent.count > 0;
}

#endif

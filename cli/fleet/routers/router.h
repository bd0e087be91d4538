/* cli/fleet/routers/router.h - the routers of a fleet: what the engine room calls.
 *
 *      engines ─ loads, KV events, first tokens, ends ─► routers ─► view: what router r believes
 *                                                           │           │
 *      requests ── router_choose ──────────────────────────►├─ policy ◄─┘
 *                                                           ▼
 *                                            worker, prefill worker; or wait, or refuse
 *
 *      routers *r;
 *      routers_open(&settings, &r, why);
 *      router_join(r, 0, w, &info);                        each worker, also later
 *      while (events of the fleet) {                       in the order of their times
 *          router_kv(r, &kv);                              all KV events until now
 *          router_tick(r, now, loads);                     at router_next_tick(r)
 *          router_choose(r, &request, loads, &answer);     an arrival; or a request that waited
 *          router_first_token(...); router_done(...);
 *          while (router_next_waiting(r, now, &number)) router_choose(... that request ...);
 *      }
 *      routers_close(r);
 *
 * Times are seconds of the fleet's one clock and never decrease, except router_kv: its times only
 * never decrease for one worker, so the engine room need not merge the workers' events. Before any
 * other call at time t the engine room has passed all KV events up to t.
 *
 * All calls come from one thread. The same calls and the same seed give the same answers.
 * router_choose allocates only if an index or a table has to grow.
 */
#ifndef QUIRE_CLI_FLEET_ROUTERS_ROUTER_H
#define QUIRE_CLI_FLEET_ROUTERS_ROUTER_H

#include "policy.h"

/* What a router knows, where it differs from the policy's default. */
typedef struct router_view_settings {
    router_knowledge knowledge;
    double kv_lag_s;      /* from a KV event at the worker to the router's index */
    double kv_loss;       /* part of the batches of KV events that are lost, 0 to 1 */
    bool has_losses;      /* the engine room loses batches too: router_kv_lost */
    double resync_s;      /* from the batch that shows a gap to the worker's whole cache in the
                             index; 0: a gap is never repaired */
    double metrics_lag_s; /* from the worker's report to the router; at most metrics_every_s */
} router_view_settings;

typedef struct routers_settings {
    const router_policy *policy;
    const double *values; /* of its options; NULL: the defaults */
    router_view_settings view;
    uint32_t num_routers; /* with own views; requests go to them in turn. 0: one */
    uint32_t max_workers; /* 1 to ROUTER_MAX_WORKERS */
    uint32_t block_size;  /* tokens of the blocks in requests and KV events */
    uint64_t seed;
    /* Optional: leading blocks of the request in the real caches, for all workers (max_workers
     * elements, already zero). It takes the place of the index where routers hear all KV events at
     * once (kv_lag_s and kv_loss are 0) and the index is ROUTER_INDEX_EVENTS or _BOTH;
     * router_wants_kv is false then. */
    void (*exact_hits)(void *context, const router_request *request, router_hit *hits);
    void *exact_context;
    router_costs costs; /* functions may be NULL: constants of one typical GPU then */
} routers_settings;

typedef struct routers routers;

/* The defaults of a policy: exact events without loss, the policy's own knowledge. */
void routers_defaults(const router_policy *policy, routers_settings *settings);

/* False, and a sentence in why: a value out of its range (field, value, range), or no memory. */
bool routers_open(const routers_settings *settings, routers **out, char why[256]);
void routers_close(routers *r);
const router_policy *routers_policy(const routers *r);

/* ---- workers --------------------------------------------------------------- */

typedef struct router_worker_info {
    router_role pool;
    uint32_t num_blocks;
    uint32_t max_num_batched_tokens;
    double capacity; /* relative speed; 0: 1 */
} router_worker_info;

/* The worker is ready, and its cache is empty. A worker that left may join again. */
void router_join(routers *r, double now_s, uint32_t worker, const router_worker_info *info);
/* No request is sent to it any longer; the requests that it has are still counted. */
void router_drain(routers *r, double now_s, uint32_t worker);
/* The worker's cache is lost. The engine room aborts the worker's requests before this call. */
void router_leave(routers *r, double now_s, uint32_t worker);

/* ---- what engines say ------------------------------------------------------ */

typedef enum router_tier { ROUTER_GPU, ROUTER_HOST, ROUTER_DISK, ROUTER_SHARED } router_tier;
enum { ROUTER_NUM_TIERS = 4 };
typedef enum router_kv_kind {
    ROUTER_KV_STORED,
    ROUTER_KV_REMOVED,
    ROUTER_KV_CLEARED
} router_kv_kind;

/* One batch of KV events of one worker: the blocks of one step. */
typedef struct router_kv_event {
    double time_s;
    uint32_t worker; /* of ROUTER_SHARED: the worker that stored or removed */
    router_tier tier;
    router_kv_kind kind;
    const uint64_t *blocks; /* names, as in requests */
    uint32_t num_blocks;
} router_kv_event;

void router_kv(routers *r, const router_kv_event *event);
/* The same for an event that no router hears; a resync still finds its blocks. Only with
 * router_view_settings.has_losses. */
void router_kv_lost(routers *r, const router_kv_event *event);
/* Whether router_kv has any effect: else the engine room need not collect KV events. */
bool router_wants_kv(const routers *r);
/* Whether router_choose reads the names of blocks: else a request may have NULL for them. */
bool router_wants_blocks(const routers *r);
/* Whether exact_hits is called. */
bool router_asks_caches(const routers *r);

/* When router_tick is to be called next; infinite: never. loads: by worker, as workers report them
 * now. */
double router_next_tick(const routers *r);
void router_tick(routers *r, double now_s, const router_load *loads);

/* ---- requests -------------------------------------------------------------- */

typedef struct router_answer {
    router_action action;
    uint32_t router;         /* which router decided */
    uint32_t worker;         /* serves or decodes; ROUTER_NONE unless action is ROUTER_ROUTE */
    uint32_t prefill_worker; /* ROUTER_NONE: the worker computes the prompt too */
    uint32_t
        believed_blocks;  /* leading blocks that the router believes the worker that computes the
                                 prompt to have */
    router_choice choice; /* of the worker */
    router_choice prefill_choice; /* of the prefill worker */
    uint32_t best_hit_worker;     /* the candidate with the longest believed hit; ROUTER_NONE: no
                                     candidate has any */
    uint32_t best_hit_blocks;
} router_answer;

/* Decides, and counts the request at its worker. loads: by worker, as they are now; read only if
 * reports are always up to date. A request that waits is asked again with its number. */
void router_choose(routers *r, const router_request *request, const router_load *loads,
                   router_answer *answer);

/* A waiting request that router_choose should be asked for again now, in the policy's order. */
bool router_next_waiting(routers *r, double now_s, uint64_t *number);
uint32_t router_num_waiting(const routers *r);

/* The prompt is computed: by the prefill worker, or by the worker with its first token.
 * num_cached_tokens: what the worker really found in its cache and tiers. */
void router_first_token(routers *r, double now_s, uint64_t number, uint32_t num_cached_tokens);
/* The prefill worker crashed before that, and the worker that was to decode does both. */
void router_prefill_lost(routers *r, double now_s, uint64_t number);
/* One more block of output of the request; only counted for policies that track output. */
void router_output(routers *r, double now_s, uint64_t number, uint32_t num_output_tokens);
/* Also takes back a request that waits. */
void router_done(routers *r, double now_s, uint64_t number, uint32_t num_output_tokens,
                 bool was_aborted);

/* ---- why ------------------------------------------------------------------- */

/* The decision in a sentence: "worker 7: cost 312 = 280 prefill + 32 decode; next worker 4 with
 * 340; longest hit 96 of 120 blocks at worker 3". Returns its length, cut off at capacity - 1. */
size_t router_explain(const routers *r, const router_request *request, const router_answer *answer,
                      char *out, size_t capacity);

/* What router number `index` believes of its workers now: for reports and tests. */
const router_worker *router_workers(const routers *r, uint32_t index);

/* KV batches that were lost, gaps that were seen, and caches that were read again. */
typedef struct router_view_stats {
    uint64_t kv_batches;
    uint64_t kv_lost;
    uint64_t gaps;
    uint64_t resyncs;
    uint64_t index_blocks; /* (block, worker) pairs in all views */
    uint64_t index_bytes;
} router_view_stats;

router_view_stats router_stats(const routers *r);

#endif

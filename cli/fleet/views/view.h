/* cli/fleet/views/view.h - what one router believes: its hits, its workers' loads, and its own
 * requests in flight.
 *
 *      KV events ─► kv_feed ─────┐
 *      own decisions ─► own_blocks ┴─► hits          of the prompt at hand, by worker
 *      reports, each n ms ──────────► workers[].load
 *      own decisions and answers ───► workers[].in_flight, prefill_tokens, active_blocks ...
 *
 * A view never looks at an engine. The counts are of this router's requests only: with several
 * routers, each one sees its own.
 */
#ifndef QUIRE_CLI_FLEET_VIEWS_VIEW_H
#define QUIRE_CLI_FLEET_VIEWS_VIEW_H

#include "active_blocks.h"
#include "kv_feed.h"
#include "own_blocks.h"

typedef struct view_settings {
    const router_policy *policy;
    router_view_settings knows;
    uint32_t max_workers;
    uint32_t block_size;
    kv_feed *feed; /* the caller's; NULL: no KV events */
    void (*exact_hits)(void *context, const router_request *request, router_hit *hits);
    void *exact_context;
} view_settings;

typedef struct view {
    view_settings settings;
    router_worker *workers;
    uint32_t num_workers;  /* one more than the highest worker that ever joined */
    router_hit *hits;      /* of the last view_look */
    uint32_t *active_hits; /* of the last view_look; NULL: not counted */
    uint32_t shared_hit;
    uint32_t *own_hits;
    own_blocks *own;        /* NULL: no approximate index */
    active_blocks *active;  /* NULL: not counted */
    uint64_t *apart_blocks; /* by worker: of its requests in the role ROUTER_DECODE, that come with
                               their KV and share nothing; NULL without active */
    router_load *reported;  /* on their way, until reported_due_s */
    double reported_due_s;
    uint32_t stride; /* blocks of the fleet in one block of the approximate index */
} view;

/* What one request at one worker counts. All zero: nothing. */
typedef struct view_flight {
    bool is_open;
    bool in_prefill;
    uint32_t worker;
    uint32_t last_block; /* active_blocks_begin */
    uint32_t num_apart_blocks;
    uint32_t num_prefill_tokens;
    uint32_t num_prompt_tokens;
    uint32_t num_output_tokens;
} view_flight;

/* False: no memory; the view is to be closed either way. */
bool view_open(view *v, const view_settings *settings);
void view_close(view *v);

void view_join(view *v, double now_s, uint32_t worker, const router_worker_info *info);
void view_drain(view *v, uint32_t worker);
void view_leave(view *v, uint32_t worker);

/* Brings the view up to now_s. loads: as they are now, for reports that are always up to date. */
void view_advance(view *v, double now_s, const router_load *loads);
/* Reports leave the workers. */
void view_report(view *v, double now_s, const router_load *loads);
/* Fills in the hits of a request, for all workers. */
void view_look(view *v, const router_request *request);

/* A request is sent to a worker, in a role. Right after view_look of the same request. */
view_flight view_begin(view *v, double now_s, uint32_t worker, router_role role,
                       const router_request *request);
void view_first_token(view *v, view_flight *flight);
void view_output(view *v, view_flight *flight, uint32_t num_output_tokens);
void view_end(view *v, view_flight *flight);

/* Leading blocks that the view believes the worker to have: of the last view_look. */
static inline uint32_t view_hit_blocks(const view *v, uint32_t worker)
{
    return router_hit_blocks(&v->hits[worker]);
}

#endif

/* cli/replay/replay.h - a trace through the library's own scheduler and cache; only the GPU's
 * time is a
 * model's.
 *
 *      arrivals ──► quire_sched_add                                  now
 *                   quire_sched_schedule ──► step ──► time model ──► now + step's time
 *                   quire_sched_update ◄── tokens that the trace says were generated
 *                        └──► tally, and the files that are asked for
 *
 * Nothing here is global: replays may run side by side in threads.
 */
#ifndef QUIRE_CLI_REPLAY_H
#define QUIRE_CLI_REPLAY_H

#include "model/time_model.h"
#include "options/memory_options.h"
#include "output/distribution.h"
#include "page/page.h"
#include "slo.h"
#include "tiers/tiers.h"
#include "trace/arrivals.h"

#include <quire/monitor.h>
#include <quire/plan.h>
#include <quire/sched.h>
#include <stdio.h>

enum { REPLAY_MESSAGE_BYTES = 640, REPLAY_COSTLIEST = 10 };

typedef struct replay_result replay_result;

/* A program follows a replay while it runs (cli/live/serve.c). All calls are made on the replay's
 * thread. */
typedef struct replay_watch {
    const quire_monitor_config *monitor;
    /* The scheduler is there, and has done nothing yet. 0, or -1 and a sentence. */
    int (*begin)(void *user, quire_sched *sched);
    /* Comes back when the simulated time is there, or when `stop` has something to say. */
    void (*wait)(void *user, double until_s);
    /* The trace has ended; true: it comes once more, to an empty prefix cache. */
    bool (*again)(void *user);
    /* It is over, and the scheduler goes when this returns. NULL: it failed. */
    void (*end)(void *user, replay_result *result);
    void *user;
} replay_watch;

/* What says how long a request may be. */
typedef enum replay_limit {
    REPLAY_LIMIT_MODEL,
    REPLAY_LIMIT_GIVEN,
    REPLAY_LIMIT_POOL
} replay_limit;

/* How far a replay is. The trace is read as its requests come: until all is read, its totals are
 * estimated from the part of the file that was read. */
typedef struct replay_progress {
    double simulated_s;
    uint64_t num_requests;   /* that have ended */
    uint64_t total_requests; /* of the trace; 0: not known (a pipe) */
    double share;            /* of the work, 0 to 1; negative: not known */
} replay_progress;

/* A request that ended, and a step: what a comparison with a recording takes. Times are simulated
 * seconds. */
typedef struct replay_request_seen {
    uint64_t number; /* in the trace, from 0 on */
    double arrival_s;
    double first_s;
    double end_s;
    uint32_t num_generated;
    uint32_t hit_tokens;
    uint32_t num_preempted;
} replay_request_seen;

typedef struct replay_step_seen {
    double start_s;
    double end_s;
    uint32_t num_tokens;
    uint32_t running;
    uint64_t waiting;
} replay_step_seen;

typedef struct replay_probe {
    void (*request)(void *user, const replay_request_seen *seen);
    void (*step)(void *user, const replay_step_seen *seen);
    void *user;
} replay_probe;

typedef struct replay_settings {
    const char *path;         /* of the trace; the names of several */
    const char *const *paths; /* of several traces, as one (trace_open_all); NULL: path is one */
    uint32_t num_paths;
    trace_options trace;
    replay_clock clock;
    double speed;       /* 0 = 1 */
    uint64_t max_steps; /* 0: until all requests have ended */

    const time_model *time;
    const quire_plan *plan;      /* blocks and groups, block size, longest request */
    uint32_t block_size;         /* of the scheduler: hits are multiples of it */
    uint32_t hash_block_size;    /* tokens under one hash */
    uint32_t retention_interval; /* as quire_cache_config has it */
    quire_sched_config sched;    /* what of it is an option; the replay fills in the rest */
    quire_hash_algo hash_algo;
    bool enable_prefix_caching;
    bool enable_chunked_prefill;
    bool reserve_full_sequence;
    bool async_scheduling;
    double pin_ttl_s; /* of turns of sessions that go on, where the trace has none; 0: no pins */
    pressure_options pressure;
    swap_settings swap;
    tiers_settings tiers;
    slo slo;
    replay_limit limit;
    uint64_t block_bytes; /* of a block of the pool: what tiers move */
    const char *model;    /* names of what real tiers keep, as is the next */
    const char *hash_name;

    /* Written to while it runs; NULL: not */
    page *page;
    FILE *snapshots;
    const page_meta *meta; /* for both */
    FILE *why;
    FILE *requests_csv;
    FILE *perfetto;
    const char *made_by; /* JSON, for the perfetto file; NULL: not */

    /* Called ten times a second; NULL: not */
    void (*progress)(void *user, const replay_progress *progress);
    void *progress_user;

    /* Asked after every step: NULL, or why the replay ends now (interrupt_name). The result is of
     * what ran until then. The function itself may be NULL: it runs to its end. */
    const char *(*stop)(void);

    const replay_watch *watch; /* NULL: nobody */
    const replay_probe *probe; /* the same */
} replay_settings;

/* A decision, and what it cost. */
typedef struct replay_cost {
    uint64_t request; /* its number in the trace */
    uint64_t step;
    double time_s;
    uint64_t tokens;
    bool is_preemption; /* else: blocks evicted before their reuse */
} replay_cost;

/* What swapping did. */
typedef struct replay_swaps {
    swap_settings settings;
    uint64_t swaps;    /* preemptions after which the KV went to host memory */
    uint64_t requests; /* that this happened to */
    uint64_t out_blocks;
    uint64_t in_blocks;
    uint64_t kept_tokens; /* came back, and were not computed again */
    double copy_s;        /* by which steps were longer */
    uint64_t most_blocks; /* of host memory, used at one time */
    double mean_blocks;   /* over simulated time */
} replay_swaps;

/* What the watermark and the marks of memory pressure did. */
typedef struct replay_pressure {
    pressure_options settings;
    uint64_t watermark_blocks;
    uint64_t preemptions; /* above preempt_above, before a request found no block */
    uint64_t held_up;     /* steps in which a request was not admitted for the level */
} replay_pressure;

struct replay_result {
    uint64_t requests;      /* that ended */
    uint64_t good_requests; /* of them: met all of settings.slo */
    uint64_t prompt_tokens; /* of requests whose prompt was computed: so are hits, ideal, losses */
    uint64_t output_tokens; /* that were generated */
    uint64_t steps;
    uint64_t hit_tokens;
    uint64_t hit_blocks;
    uint64_t query_blocks;
    bool has_ideal;
    uint64_t ideal_tokens;
    uint64_t ideal_blocks; /* of the trace's own ids */
    uint64_t trace_blocks;
    uint32_t id_block_size; /* 0: the trace has no ids, or several sizes */
    ideal_losses losses;
    uint64_t preemptions;
    uint64_t recomputed_tokens; /* after preemption */
    uint64_t overtaking;        /* requests that were admitted before others of the queue */
    uint64_t pinned;            /* requests whose blocks were to be kept after their end */
    uint64_t most_pinned;       /* blocks that were pinned at one time */
    double mean_pinned;         /* over simulated time */
    uint64_t dropped_tokens;    /* recomputed since a block was evicted: with `why` */
    distribution ttft_ms;
    distribution tpot_ms;
    distribution e2e_ms;
    distribution queue_ms;
    double simulated_s;
    double busy_s; /* of it, in steps */
    double wall_s;
    uint32_t block_size;
    quire_usage blocks; /* at the end; total without the null block */
    quire_usage most;   /* the most there were of each at one time */
    double mean_empty;  /* over simulated time */
    double mean_cached;
    double mean_active;
    uint64_t scheduled_tokens;
    uint32_t max_running;
    uint64_t max_waiting;
    double max_waiting_s;   /* when there were so many for the first time */
    uint64_t arrived;       /* requests that came */
    double first_arrival_s; /* when the first and the last of them came, to a step */
    double last_arrival_s;  /* and at the last: */
    uint64_t waiting_at_last;
    uint64_t ended_at_last;
    double mean_running; /* over steps */
    double mean_tokens;
    uint64_t errors;    /* bad records, and requests that cannot be served: with skip_bad */
    uint64_t truncated; /* ended by max_model_len, or the pool's end, before all their tokens */
    char first_error[REPLAY_MESSAGE_BYTES];
    replay_cost costliest[REPLAY_COSTLIEST];
    uint32_t num_costliest;
    uint64_t rounds;     /* times that the trace came */
    const char *stopped; /* what `stop` said; NULL: it was not stopped */
    bool is_cut_short;   /* by that, or by max_steps, before all of the trace was done */
    uint64_t unfinished; /* requests that had come then, and had not ended */
    tiers_result tiers;
    replay_swaps swap;
    replay_pressure pressure;
    trace_format format;
    bool has_contents; /* the trace says which prompts are alike; else each is unique */
    replay_clock clock;
    slo slo;
};

/* The trace of the settings; NULL, and a sentence. */
trace_reader *replay_open_trace(const replay_settings *settings);

/* 0, or -1 and a sentence. The result is to be freed either way. */
int replay_run(const replay_settings *settings, replay_result *result);
void replay_result_free(replay_result *result);

#endif

/* cli/replay/run.h - the state of one replay, for the files that make it up.
 *
 *      replay.c         the loop            tally.c   what is counted
 *      files.c   per-request table, decision log, trace for ui.perfetto.dev
 *      tiers.c   what lies behind the GPU's memory: tiers, and swapped requests
 */
#ifndef QUIRE_CLI_REPLAY_RUN_H
#define QUIRE_CLI_REPLAY_RUN_H

#include "replay.h"
#include "tiers/run.h"
#include "trace/id_set.h"

enum { REPLAY_INTERVALS = 8, REPLAY_BATCHES = 2 };

_Static_assert(TIERS_MAX + 1 <= PAGE_MAX_TIERS, "the page has all tiers, and swap");

/* A request in the scheduler; its place is that of its quire_req. (None leaves the scheduler before
 * update tells its end: the planned pool holds a request of max_model_len tokens.) */
typedef struct live {
    arrival *from;
    uint64_t output_content; /* as in from: looked at in every step */
    uint32_t prompt_tokens;
    uint32_t output_tokens; /* that it will generate */
    uint32_t num_generated;
    uint32_t num_computed; /* the most it ever had */
    uint32_t hit_tokens;
    tiers_split split; /* of them: whose they are, where there are tiers */
    uint64_t ideal_tokens;
    uint32_t ideal_blocks; /* of the trace's own ids */
    uint32_t trace_blocks;
    replay_losses losses;
    double scheduled_s; /* negative: not yet; so are those that follow */
    double first_token_s;
    double preempted_s;                        /* waits again since then */
    page_interval preempted[REPLAY_INTERVALS]; /* the last one takes in those that follow it */
    uint32_t num_preempted;
    uint32_t num_swaps; /* of them, those that moved its KV to host memory */
} live;

/* A step that was scheduled and has not ended. */
typedef struct flight {
    uint64_t step;
    double start_s;
    double end_s;
    uint32_t num_tokens;
    uint32_t num_prefill;
    double copy_s; /* before its tokens: swap */
    quire_token *sampled;
} flight;

typedef struct replay {
    const replay_settings *settings;
    replay_result *result;
    trace_reader *reader;
    arrivals *arrivals;
    quire_hasher *hasher;
    quire_sched *sched;
    tiers_run *tiers; /* NULL: none */
    uint32_t num_tiers;
    page_tier_step tier_steps[PAGE_MAX_TIERS]; /* as the page has them: of tiers, then of swap */
    uint32_t num_tier_steps;
    page_tier_step swap_told; /* sums that the page has */
    uint64_t swap_tokens;     /* that came back: in all, */
    uint64_t step_tokens;     /* and of them in this step */
    double sum_swapped;
    uint32_t num_idle; /* steps in a row in which nothing could be done */
    uint32_t max_model_len;
    uint32_t max_requests;
    uint32_t max_pins;
    uint32_t num_blocks;
    live *lives;
    quire_token *prompt; /* max_model_len */
    uint64_t filled;     /* whose that is: number + 1 */
    id_set seen;
    id_set outputs; /* of them, those that end with what a request generates */
    flight flights[REPLAY_BATCHES];
    uint32_t first_flight;
    uint32_t num_flights;
    uint32_t max_flights;
    double now_s;
    double free_s; /* when the GPU has done what it was given */
    uint64_t num_added;
    quire_snapshot snapshot;
    uint64_t query_tokens; /* of requests admitted in this step */
    bool writes_steps;     /* to a page, a table or a trace */
    double last_usage_s;   /* usage was counted up to here */
    tiers_usage pool;      /* the GPU's blocks */
    double sum_pinned;
    uint32_t num_pinned;  /* blocks, in the last step */
    uint32_t num_swapped; /* blocks of host memory, in the last step */
    char *states;         /* of blocks, for the page */
    char *host_states;
    uint64_t *owners;
    quire_block_span *spans; /* one for each group */
    uint64_t num_events;     /* in the perfetto file */
    double last_counters_s;
} replay;

static inline live *replay_live(const replay *r, quire_req req)
{
    return &r->lives[quire_req_index(req)];
}

/* What users know a request by: its number in the trace, from 1 on. */
static inline uint64_t replay_id(const live *l)
{
    return l->from->number + 1;
}

/* ---- tally.c -------------------------------------------------------- */

/* A request came, and is about to be added: what of it came before. */
void tally_arrival(replay *r, live *l);
/* It is in a step for the first time, or again, with so many tokens computed before it. */
void tally_admitted(replay *r, live *l, quire_step_kind kind, uint32_t num_computed,
                    double start_s);
/* The same with tiers, before it: where those tokens came from. */
void tally_sources(replay *r, live *l, quire_req req, quire_step_kind kind, uint32_t num_computed);
void tally_preempted(replay *r, quire_req req);
/* Its first token came: from here on its prompt counts, with what was found of it and what not. So
 * a replay that is cut short has hits, losses and prompts of the same requests. */
void tally_first_token(replay *r, live *l);
void tally_end(replay *r, live *l);
/* Milliseconds per output token after the first; negative: there is one token, or none. */
double tally_tpot_ms(const live *l, double end_s);
/* Whether a request that ends then has kept all of the settings' slo. */
bool tally_is_good(const replay *r, const live *l, double end_s);
/* A step of the snapshot that lasts until end_s. */
void tally_step(replay *r, double start_s, double end_s);
/* What the scheduler decided, and why: counted, and written where --why asks for it. */
void tally_decision(void *user, const quire_decision *decision);
void tally_cost(replay *r, replay_cost cost);
void tally_finish(replay *r);
/* How far it is. */
replay_progress tally_progress(const replay *r);

/* ---- tiers.c -------------------------------------------------------- */

/* Before the scheduler, into its config. 0, or -1 and a sentence. */
int replay_make_tiers(replay *r, quire_sched_config *c);
/* What they have done by the end of the step: QUIRE_OK, or an error. */
int replay_poll_tiers(replay *r, const flight *f, quire_model_output *output);
/* Requests wait for tiers, or blocks are still on their way to them: when the next job ends, or if
 * it has just ended, a moment later. HUGE_VAL: there is nothing to wait for. */
double replay_next_job_s(replay *r);

/* What all tiers have at that time, and what moved since they were last asked, into tier_steps.
 * NULL: there are none. */
const page_tier_step *replay_look_at_tiers(replay *r, double time_s);

/* From the scheduler's own snapshot, while its tiers can be read. */
void replay_note_swap(replay *r, const quire_snapshot *snapshot);
/* Makes the step's copies, before its tokens are computed: seconds that they take. */
double replay_copy_swapped(replay *r, const quire_step *step, double start_s);
/* The request was preempted: whether its KV went to host memory. */
void replay_count_swap(replay *r, quire_req req, live *l);
/* The swap buffer as a tier of the page, with what moved since it was last asked. */
page_tier_step replay_swap_step(replay *r);

/* ---- files.c -------------------------------------------------------- */

void replay_write_heads(replay *r);
void replay_write_request(replay *r, const live *l, double end_s, page_end end);
/* Of a step with tokens. The pool too, block by block, where the page asks for it. */
void replay_write_step(replay *r, double start_s, double end_s);
void replay_write_decision(replay *r, const quire_decision *decision);
void replay_write_tails(replay *r);

#endif

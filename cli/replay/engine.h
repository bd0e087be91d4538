/* cli/replay/engine.h - one engine of a replay: a scheduler, its cache, and a GPU whose time is a
 * model's. Who drives it gives it requests and says when it may go on.
 *
 *      engine.c   requests and steps          tally.c   what is counted
 *      files.c    per-request table, decision log, trace for ui.perfetto.dev
 *      tiers.c    what lies behind the GPU's memory: tiers, and swapped requests
 *
 *      ENGINE_BEGIN   at now_s: requests that have come are added, then engine_begin
 *           │  ▲
 *           ▼  │ engine_end, at engine_next_s
 *      ENGINE_END ──► ENGINE_IDLE   nothing can be done: until a request comes, or a job of the
 *                                   tiers ends (engine_next_job_s); then engine_wake
 *
 * `quire replay` drives one engine (replay.c), `quire fleet` many (cli/fleet). An engine shares
 * nothing with others: what the driver has to know of requests is in `events`, in the order in
 * which it happened, until the driver takes it.
 */
#ifndef QUIRE_CLI_REPLAY_ENGINE_H
#define QUIRE_CLI_REPLAY_ENGINE_H

#include "engine_prompt.h"
#include "replay.h"
#include "tiers/run.h"

enum { REPLAY_INTERVALS = 8, REPLAY_BATCHES = 2 };

_Static_assert(TIERS_MAX + 1 <= PAGE_MAX_TIERS, "the page has all tiers, and swap");

/* What happened to a request. */
typedef enum engine_event_kind {
    ENGINE_ADDED,       /* to the scheduler */
    ENGINE_LEFT_OUT,    /* it can never be served (--skip-bad) */
    ENGINE_ADMITTED,    /* it is in a step for the first time: its hit is known */
    ENGINE_FIRST_TOKEN, /* its prompt is computed */
    ENGINE_TOKENS,      /* of an ask: it generated tokens, and has not ended */
    ENGINE_COMPUTING,   /* of a driver with a connector, which tells it: the step began that
                           computes the last of its prompt; */
    ENGINE_LOADING,     /* it has blocks, into which KV is to be loaded */
    ENGINE_ENDED
} engine_event_kind;

typedef struct engine_event {
    engine_event_kind kind;
    uint32_t num_tokens; /* ADMITTED: of its hit; TOKENS and ENDED: that it generated so far;
                            LOADING: that are to be loaded */
    double time_s;
    arrival *from;              /* LEFT_OUT and ENDED: the driver's to free */
    quire_finish_reason finish; /* ENDED */
} engine_event;

/* What a request has that is not of a trace: all that the scheduler takes, but its id, priority and
 * arrival time, which the arrival has. It must live as long as the arrival. */
typedef struct engine_ask {
    quire_request_params params;
    /* The token that it generates in that place, from 0 on. */
    quire_token (*token_at)(const struct engine_ask *ask, uint32_t place);
} engine_ask;

/* A request in the scheduler; its place is that of its quire_req. (None leaves the scheduler before
 * update tells its end: the planned pool holds a request of max_model_len tokens.) */
typedef struct live {
    arrival *from;
    uint64_t output_content; /* as in from: looked at in every step */
    uint32_t prompt_tokens;
    uint32_t output_tokens; /* that it will generate; of an ask 0: its own rules end it */
    uint32_t num_generated;
    uint32_t prefill_left; /* prompt tokens that no step has computed or found */
    uint32_t num_computed; /* the most it ever had */
    uint32_t hit_tokens;
    tiers_split split;  /* of them: whose they are, where there are tiers */
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
    uint32_t num_reqs;
    double copy_s; /* before its tokens: swap */
    quire_token *sampled;
} flight;

typedef enum engine_phase { ENGINE_BEGIN, ENGINE_END, ENGINE_IDLE } engine_phase;

typedef struct engine {
    const replay_settings *settings;
    replay_result *result;
    quire_hasher *hasher;
    quire_sched *sched;
    engine_phase phase;
    uint32_t num_to_end;   /* steps, until it may begin another */
    bool is_idle;          /* the step that was begun has nothing to do, nor has another */
    uint32_t num_outside;  /* requests that have come and wait for room in the scheduler */
    engine_prompt *prompt; /* the driver's */
    engine_event *events;  /* the driver takes them: num_events = 0 */
    uint32_t num_events;
    uint32_t events_capacity;
    bool no_memory;                                         /* for events */
    tiers_run *tiers;                                       /* NULL: none */
    void (*answer)(void *user, quire_model_output *output); /* of the driver's connector, or NULL */
    void *answer_user;
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
    uint32_t num_lives;   /* places that were used */
    uint64_t *lives_used; /* a bit for each place: it has a request */
    flight flights[REPLAY_BATCHES];
    uint32_t first_flight;
    uint32_t num_flights;
    uint32_t max_flights;
    uint64_t prefill_left;   /* of all its requests */
    uint64_t context_tokens; /* of the requests of the last step */
    double now_s;
    double free_s;   /* when the GPU has done what it was given */
    double slowness; /* steps take so many times as long; 1 at first */
    double gap_s;    /* before the next step begins: the engine's own work between two steps */
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
    uint64_t num_lines;      /* in the perfetto file */
    double last_counters_s;
} engine;

/* ---- for the driver --------------------------------------------------------- */

/* What an engine is made with beside its settings. */
typedef struct engine_place {
    trace_format format;              /* of the trace */
    const quire_allocator *allocator; /* of the scheduler; NULL: the library's own */
    /* Changes of the prefix cache, inside engine_begin and engine_end; NULL: not called. */
    void (*on_kv)(void *user, const quire_event *event);
    void *user;
    /* Without tiers: the driver's own connector, and what it has to say at the end of a step.
     * NULL: none. */
    const quire_connector *connector;
    void (*answer)(void *user, quire_model_output *output);
    void *connector_user;
} engine_place;

/* An engine at time 0, without requests. 0, or -1 and a sentence; engine_close in either case. */
int engine_open(engine *e, const replay_settings *settings, const engine_place *place,
                replay_result *result);
/* Frees the requests that have not ended, too. */
void engine_close(engine *e);

/* The hasher of engines with these settings. 0, or -1 and a sentence. */
int engine_hasher(const replay_settings *settings, quire_hasher **hasher);

/* Its driver has the names of blocks: gives them to the scheduler instead of hashing again. */
typedef struct engine_names {
    const unsigned char *hashes; /* of the whole blocks of hash_block_size tokens */
    uint32_t count;
} engine_names;

/* Gives it a request that has come by now. names may be NULL. 1: it is taken (ENGINE_ADDED), or
 * left out; 0: there is no room before the next step; -1: an error. */
int engine_add(engine *e, arrival *it, const engine_names *names);
/* The request, which was added and has not ended, ends now without an event, and is the driver's to
 * free. 0 or -1. */
int engine_abort(engine *e, const arrival *it);
/* The engine's process ends now, and a new one takes its place: steps in flight and caches are
 * lost. All its requests were aborted before; the answer of the driver's connector names all whose
 * blocks wait for a transfer. It is idle then. 0 or -1. */
int engine_crash(engine *e, double time_s);
/* Schedules a step. 0 or -1. */
int engine_begin(engine *e);
/* The oldest step has ended: now is its end. 0 or -1. */
int engine_end(engine *e);
/* Before the driver adds requests for the next step: the time between two steps passes. */
void engine_pass_gap(engine *e);
/* When engine_begin or engine_end is to be called. HUGE_VAL: it is idle. */
double engine_next_s(const engine *e);
/* Of an idle engine, to be asked once: when a job of the tiers ends; HUGE_VAL: there is none. */
double engine_next_job_s(engine *e);
/* An idle engine goes on at that time. */
void engine_wake(engine *e, double time_s);
/* Without requests: empties the prefix cache, for another round. QUIRE_OK or an error. */
int engine_reset(engine *e);
/* It is over, at that time. */
void engine_finish(engine *e, double end_s);

/* A prompt is computed: what an infinite cache has found of it, and what was lost. */
void tally_ideal(replay_result *result, const arrival *it);
/* A request was added: the size of the trace's own blocks, if all its requests have the same. */
void tally_id_block_size(replay_result *result, const trace_request *q, bool is_first);

/* ---- for its files ----------------------------------------------------------- */

static inline live *engine_live(const engine *e, quire_req req)
{
    return &e->lives[quire_req_index(req)];
}

/* The first place from `from` on that has a request; num_lives: none has. Places without one are
 * many, and far apart. */
static inline uint32_t engine_next_live(const engine *e, uint32_t from)
{
    for (uint32_t word = from / 64; word * 64 < e->num_lives; word++) {
        uint64_t bits =
            e->lives_used[word] & (word == from / 64 ? UINT64_MAX << from % 64 : UINT64_MAX);
        if (bits != 0)
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return e->num_lives;
}

/* What users know a request by: its number in the trace, from 1 on. */
static inline uint64_t live_id(const live *l)
{
    return l->from->number + 1;
}

/* ---- tally.c -------------------------------------------------------- */

/* It is in a step for the first time, or again, with so many tokens computed before it. */
void tally_admitted(engine *e, live *l, quire_step_kind kind, uint32_t num_computed,
                    double start_s);
/* The same with tiers, before it: where those tokens came from. */
void tally_sources(engine *e, live *l, quire_req req, quire_step_kind kind, uint32_t num_computed);
void tally_preempted(engine *e, quire_req req);
/* Its first token came: from here on its prompt counts, with what was found of it and what not. So
 * a replay that is cut short has hits, losses and prompts of the same requests. */
void tally_first_token(engine *e, live *l);
void tally_end(engine *e, live *l);
/* Milliseconds per output token after the first; negative: there is one token, or none. */
double tally_tpot_ms(const live *l, double end_s);
/* Whether a request that ends then has kept all of the settings' slo. */
bool tally_is_good(const engine *e, const live *l, double end_s);
/* The steps in flight and the blocks of the pool are gone at that time. */
void tally_crash(engine *e, double time_s);
/* A step of the snapshot that lasts until end_s. */
void tally_step(engine *e, double start_s, double end_s);
/* What the scheduler decided, and why: counted, and written where --why asks for it. */
void tally_decision(void *user, const quire_decision *decision);
void tally_cost(engine *e, replay_cost cost);
void tally_finish(engine *e);
/* Something happened to a request now. False: no memory, and e->no_memory says so. */
bool engine_tell(engine *e, engine_event_kind kind, arrival *from, uint32_t num_tokens);

/* ---- tiers.c -------------------------------------------------------- */

/* Before the scheduler, into its config. 0, or -1 and a sentence. */
int engine_make_tiers(engine *e, quire_sched_config *c);
/* What they have done by the end of the step: QUIRE_OK, or an error. */
int engine_poll_tiers(engine *e, const flight *f, quire_model_output *output);
/* What all tiers have at that time, and what moved since they were last asked, into tier_steps.
 * NULL: there are none. */
const page_tier_step *engine_look_at_tiers(engine *e, double time_s);

/* From the scheduler's own snapshot, while its tiers can be read. */
void engine_note_swap(engine *e, const quire_snapshot *snapshot);
/* Makes the step's copies, before its tokens are computed: seconds that they take. */
double engine_copy_swapped(engine *e, const quire_step *step, double start_s);
/* The request was preempted: whether its KV went to host memory. */
void engine_count_swap(engine *e, quire_req req, live *l);
/* The swap buffer as a tier of the page, with what moved since it was last asked. */
page_tier_step engine_swap_step(engine *e);

/* ---- files.c -------------------------------------------------------- */

void engine_write_heads(engine *e);
void engine_write_request(engine *e, const live *l, double end_s, page_end end);
/* Of a step with tokens. The pool too, block by block, where the page asks for it. */
void engine_write_step(engine *e, double start_s, double end_s);
void engine_write_decision(engine *e, const quire_decision *decision);
void engine_write_tails(engine *e);

#endif

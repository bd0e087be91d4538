/* sched/sim/sim.h - a whole engine from one seed: scheduler, cache, and a scripted model,
 * connector,
 * grammar and users; every step is checked.
 *
 *      users ── add, continue, abort, reset, pause ──► scheduler ── step ──► worker
 *                                                         ^                    │ writes pages,
 *                                                         └── update ◄─────────┘ reads pages
 *
 * The worker knows of a request what steps tell it: it keeps its own block tables, from the diffs,
 * and pages in which each position holds a tag instead of keys and values:
 *
 *      tag(p) = mix(tag(p - 1), token at p, what lies there)          tag(-1) = mix(salt, adapter)
 *
 * so a tag names a whole prefix, as keys and values depend on it. Whoever computes a token reads
 * every position that its layer looks at, and all tags there must be those of its own prefix: a
 * block that was given to two, cached under a wrong name or reused too early shows at once. The
 * next token is a function of the tag: the same prefix always goes on in the same way.
 *
 * A Mamba block holds one tag, that of the last token of a step; a request reads it before its next
 * step. Blocks of cross attention hold tags of the encoder's input.
 *
 * Every call that may change the scheduler goes through SIM_CALL, which walks all of it afterwards.
 * What the library refuses is drawn too: sim_mix.c and sim_users.c say from the headers what must
 * be refused, compare, and draw again.
 */
#ifndef SCHED_SIM_H
#define SCHED_SIM_H

#include "base/unit.h"

#include <quire/sched.h>

enum {
    SIM_LEN = 96,
    SIM_GROUPS = 3,
    SIM_SLOTS = 100, /* requests of the users' at one time */
    SIM_SEQS = 48,
    SIM_HELD = 512,
    SIM_SPEC = 3,
    SIM_BATCHES = 3,
    SIM_BLOCK_SIZE = 16,
    SIM_ROW = SIM_LEN + 16, /* blocks of one request and group */
    SIM_FEATURES = 2,
    SIM_IMAGES = 6,       /* different ones */
    SIM_MOST_IMAGES = 48, /* of one request */
    SIM_ENCODER = 64,     /* tokens of an encoder-decoder model's input */
    SIM_INPUTS = 3,
    SIM_STOPS = 2,
    SIM_EOS = 0,
    SIM_PLACEHOLDER = 9,
    SIM_DIGEST = 16
};

/* What a seed draws once. */
typedef struct sim_mix {
    uint32_t num_groups;
    uint32_t block_size;
    uint32_t sizes[SIM_GROUPS]; /* tokens in a block */
    uint32_t page;              /* the largest of them */
    uint32_t num_blocks;
    uint32_t most_blocks; /* that an empty pool has */
    uint32_t len;         /* max_model_len */
    uint32_t seqs;        /* max_num_seqs */
    uint32_t batches;
    uint32_t num_spec;
    uint32_t max_loras;
    uint32_t max_requests;
    uint32_t batched; /* max_num_batched_tokens */
    uint32_t budget;  /* max_num_scheduled_tokens */
    uint32_t image_size;
    uint32_t encoder_budget;
    uint32_t encoder_cache;
    uint32_t max_encoder_tokens;
    uint32_t num_swap; /* slots in host memory */
    bool has_moves;    /* the caller preempts, offloads and resumes */
    bool use_pressure;
    double preempt_above;
    bool is_encoder_decoder;
    bool is_eagle;
    bool is_aligned; /* Mamba, align mode */
    bool has_mamba;
    bool is_async;
    bool has_connector;
    bool loads_async;
    bool loads_sync;
    bool loads_fail;
    bool sends; /* blocks of requests that ended are sent for a while */
    bool saves; /* the connector keeps some of what preempted requests have computed */
    bool has_grammar;
    bool has_images;
    bool has_pins;
    bool has_forks;
    bool has_sessions;
    bool has_pooling;
    bool has_repetition;
    bool has_embeds;
    bool has_hashes; /* that the caller makes */
    bool has_flags;  /* placeholders without an embedding */
    bool has_encoder_connector;
    bool is_caching;
    bool resets_running;
    uint32_t faults; /* of 1,000 steps, about */
    uint32_t arrivals;
} sim_mix;

typedef struct sim_image {
    uint32_t name;
    uint32_t offset;
    uint32_t length;
} sim_image;

typedef struct sim_row {
    quire_block ids[SIM_ROW];
    uint32_t count;
} sim_row;

/* A transfer of the connector's. */
typedef struct sim_transfer {
    bool is_on;
    bool is_async;
    uint64_t step;  /* that begins it: no step before it can end it */
    uint32_t first; /* tokens, of a load */
    uint32_t end;
    uint32_t steps_left;
    sim_row rows[SIM_GROUPS];
    uint64_t *tags; /* of a sending: what the blocks held at the end */
} sim_transfer;

typedef struct sim_request {
    bool is_there; /* the scheduler has it: from add until its blocks are free */
    bool has_ended;
    bool is_session;
    bool is_grammar;
    bool is_pooling;
    bool is_embeds; /* its prompt is made of embeddings */
    bool ends_session;
    bool is_moved;   /* the caller took its blocks once */
    bool is_tainted; /* its load failed: until it begins again it computes nothing but junk */
    bool has_embeds; /* the encoder's input of an encoder-decoder model is in its blocks */
    quire_req req;
    uint64_t number; /* of all requests, from 1 on */
    uint32_t num_prompt;
    uint32_t num_told;   /* tokens that the scheduler has been told */
    uint32_t num_tokens; /* and those sampled in steps in flight */
    quire_token tokens[SIM_LEN + SIM_SPEC + 2];
    uint64_t tags[SIM_LEN + SIM_SPEC + 2];
    uint32_t salt;
    uint32_t lora;
    sim_image images[SIM_MOST_IMAGES];
    uint32_t num_images;
    uint32_t max_tokens;
    uint32_t min_tokens;
    bool has_eos;
    quire_token stops[SIM_STOPS];
    uint32_t num_stops;
    uint32_t max_pattern; /* of repetition */
    uint32_t min_pattern;
    uint32_t min_count;
    uint32_t num_replaced;    /* of a fork: last tokens that are not its parent's */
    uint64_t branch;          /* 0, or its own way to go on: a fork's number */
    uint32_t embeds[SIM_LEN]; /* one number as the row of a token */
    uint32_t num_rows;        /* of them */
    uint64_t encoder_step;    /* in which the encoder connector was last told of its inputs */
    uint64_t told_inputs;     /* a bit each, in that step */
    uint64_t found_inputs;    /* the connector has them */
    uint32_t grammar_asks;    /* until it is ready */
    uint32_t retries;         /* of the connector's, until it knows */
    uint32_t asked_local;
    bool asked_async;
    uint32_t num_preemptions;
    quire_token inputs[SIM_INPUTS][SIM_LEN];
    uint32_t input_lens[SIM_INPUTS];
    uint32_t input_mins[SIM_INPUTS]; /* min_tokens: a cut may have lowered those of the prompt */
    sim_image input_images[SIM_INPUTS][SIM_FEATURES];
    uint32_t num_input_images[SIM_INPUTS];
    uint32_t num_inputs;
    sim_row rows[SIM_GROUPS]; /* as the worker has them */
    sim_transfer load;
    sim_transfer sending;
} sim_request;

/* One request of a step in flight. */
typedef struct sim_entry {
    sim_request *r;
    quire_req req;
    uint32_t num_sampled;
    uint32_t num_drafts;
    uint32_t num_rejected;
    bool is_void; /* its output must not count */
    bool is_pooled;
    quire_token sampled[SIM_SPEC + 1];
} sim_entry;

typedef struct sim_batch {
    uint64_t step;
    uint32_t num_entries;
    sim_entry entries[SIM_SEQS];
    uint32_t num_lost; /* blocks whose loads failed */
    quire_block lost[SIM_ROW];
} sim_batch;

/* What happened, so that a run that does nothing is seen. */
typedef struct sim_tally {
    uint64_t steps;
    uint64_t tokens;
    uint64_t requests;
    uint64_t preempted;
    uint64_t hits;
    uint64_t aborts;
    uint64_t resets;
    uint64_t loads;
    uint64_t lost;
    uint64_t sendings;
    uint64_t turns; /* of sessions */
    uint64_t rejected;
    uint64_t encoded;
    uint64_t full;
    uint64_t swapped_out; /* blocks */
    uint64_t swapped_in;
    uint64_t forgotten; /* steps */
    uint64_t pins;
    uint64_t forks;
    uint64_t shared; /* of them: children that ran at once */
    uint64_t copies;
    uint64_t overtaking; /* requests that were admitted before others */
    uint64_t calls;      /* after each of which the walker ran */
    uint64_t refused;    /* requests and inputs that could never run */
    uint64_t configs;    /* refused */
    uint64_t outgrown;   /* requests that became too long for the pool */
    uint64_t cuts;
    uint64_t moves;
    uint64_t saves;  /* requests that lost their blocks since the caller asked */
    uint64_t states; /* of Mamba layers, read */
    uint64_t pooled;
    uint64_t repeated; /* ends by repetition */
    uint64_t embedded; /* prompts of embeddings */
    uint64_t hashed;   /* requests that came with hashes */
    uint64_t found;    /* images that the encoder connector had */
    uint64_t large;    /* steps of more than 16 requests */
    uint64_t slowest;  /* steps until all requests had ended, at most */
} sim_tally;

typedef struct sim {
    uint64_t seed;
    uint64_t random;
    sim_mix mix;
    quire_group_config groups[SIM_GROUPS];
    quire_connector connector;
    quire_cache_config cache_config;
    quire_block held[SIM_HELD]; /* by the connector, while it saves them */
    uint32_t num_held;
    quire_grammar grammar;
    quire_encoder_connector encoder_connector;
    quire_hasher *hasher;
    quire_hasher *twin; /* gives the same hashes, for the users */
    quire_sched *sched;
    sim_request *requests;            /* SIM_SLOTS */
    sim_request *by_index[SIM_SLOTS]; /* of quire_req */
    sim_request *forking;             /* inside fork: the child, whose name is not known yet */
    uint64_t *pages;                  /* num_blocks x block_size tags */
    uint64_t *writers;                /* the same: step and request that wrote it last */
    uint64_t *host;                   /* num_swap x block_size tags */
    sim_batch batches[SIM_BATCHES];
    uint32_t first_batch;
    uint32_t num_batches;
    bool is_encoded[SIM_IMAGES];
    bool is_found[SIM_IMAGES];      /* by the encoder connector, in this step */
    quire_req queues[2][SIM_SLOTS]; /* waiting and skipped, as they were */
    uint32_t queue_lens[2];
    quire_req ends[4 * SIM_SLOTS]; /* requests that ended and were not told in a step yet */
    uint32_t num_ends;
    quire_req outgrown[SIM_BATCHES]; /* ended in schedule, to be told in the next update */
    uint32_t num_outgrown;
    uint64_t num_added;
    uint64_t junk;
    uint32_t check_every;
    bool is_ending;
    bool has_failed;
    sim_tally tally;
} sim;

/* ---- sim_mix.c ---- */
quire_sched_config sim_draw_config(sim *s);
/* Whether the headers say that the config is refused. */
bool sim_is_refused(const quire_sched_config *config);
/* The most blocks that a request of so many tokens has at one time when it is alone. */
uint32_t sim_blocks_alone(const sim *s, uint32_t num_tokens, uint32_t num_encoder_tokens);

/* ---- sim_users.c, sim_moves.c ---- */
bool sim_add(sim *s);
/* Something at random that is not a step. */
void sim_disturb(sim *s);
void sim_move(sim *s);
void sim_end_sessions(sim *s);
/* A session goes on with its next input. */
void sim_take_in_input(sim *s, sim_request *r);
/* The request has ended: the next step must say so. */
void sim_note_end(sim *s, sim_request *r);
/* Forgets the prompt's tokens from some place on, where that is allowed. */
void sim_cut_prompt(sim *s, sim_request *r);
uint32_t sim_num_encoder_tokens(const sim *s, const sim_request *r);
/* Whether an embedding goes to this placeholder of an image. */
bool sim_has_embed(const sim *s, uint32_t name, uint32_t placeholder);
uint32_t sim_num_embeds(const sim *s, const sim_image *image);

/* ---- sim_forks.c ---- */
void sim_fork(sim *s);

/* ---- sim_worker.c ---- */
void sim_tag(sim_request *r, uint32_t first);
quire_token sim_next_token(const sim_request *r, uint32_t num_tokens);
void sim_run_step(sim *s, const quire_step *step);
void sim_load(sim *s, sim_request *r, sim_batch *batch);

/* ---- sim_update.c ---- */
void sim_update(sim *s);
/* The output of some step in flight gets lost. */
void sim_lose_step(sim *s);
void sim_forget(sim *s, sim_request *r);
/* Outputs of its steps in flight count no more. */
void sim_void_in_flight(sim *s, sim_request *r);

/* ---- sim_check.c ---- */
void sim_check_step(sim *s, const quire_step *step);
void sim_check_state(sim *s);
void sim_check_end(sim *s);
sim_request *sim_find(sim *s, quire_req req);

/* ---- sim_others.c: connectors and grammar ---- */

/* The connector has saved some of the blocks that it holds, or all. */
void sim_let_go(sim *s, bool all);
/* quire_connector.request_preempted: holds some of the blocks for a few steps. */
uint32_t sim_request_preempted(void *user, quire_req req, const quire_block_span *blocks,
                               uint32_t num_tokens, int is_urgent);
void sim_fill_others(sim *s);
bool sim_grammar_refuses(const sim_request *r, uint32_t num_tokens);

/* ---- sim.c ---- */
/* After a call that may have changed the scheduler; returns what the call returned. */
int sim_called(sim *s, const char *what, int answer);

#define SIM_CALL(s, call) sim_called((s), #call, (call))

/* One seed; false and a line on stdout when something was wrong. */
bool sim_run(uint64_t seed, uint32_t num_steps, uint32_t check_every, sim_tally *tally);
void sim_fail(sim *s, const char *what, uint64_t a, uint64_t b);

#define SIM_CHECK(s, condition, what, a, b)                                                        \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sim_fail((s), (what), (uint64_t)(a), (uint64_t)(b));                                   \
    } while (0)

static inline uint32_t sim_below(sim *s, uint32_t n)
{
    return unit_random_below(&s->random, n);
}

static inline uint32_t sim_between(sim *s, uint32_t low, uint32_t high)
{
    return low + unit_random_below(&s->random, high - low + 1);
}

static inline bool sim_chance(sim *s, uint32_t percent)
{
    return unit_random_below(&s->random, 100) < percent;
}

static inline uint64_t sim_mix64(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 29)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif

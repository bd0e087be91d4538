/* cli/tiers/run.h - the tiers of one replay: made, looked at in each step, counted.
 *
 *      scheduler asks ──► notes who has what in the GPU ──► quire_offload answers
 *                         notes who waits, and since when
 *      admitted       ──► where its tokens came from: GPU, CPU, file, Redis
 *      a step ends    ──► poll: what has come and gone by now
 *      nothing to do  ──► when something will
 */
#ifndef QUIRE_CLI_TIERS_RUN_H
#define QUIRE_CLI_TIERS_RUN_H

#include "model/time_model.h"
#include "page/page.h"
#include "tiers.h"

/* ---- the blocks of a tier over time, and what moved ------------------------ */

/* What is now holds until the next step: sums are blocks x seconds. */
typedef struct tiers_usage {
    quire_usage now;
    quire_usage most;
    double sum_empty;
    double sum_cached;
    double sum_active;
    uint64_t hit_tokens; /* since the last step; the caller adds */
    uint64_t num_in;     /* blocks, in all */
    uint64_t num_out;
} tiers_usage;

static inline uint64_t larger_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What was lasted so long, and now it is this. What is new since the step before is returned. */
static inline page_tier_step tiers_usage_step(tiers_usage *u, double seconds,
                                              const quire_usage *now, uint64_t in, uint64_t out)
{
    page_tier_step step = {.blocks = *now,
                           .in_blocks = in - u->num_in,
                           .out_blocks = out - u->num_out,
                           .hit_tokens = u->hit_tokens};
    u->sum_empty += (double)u->now.empty * seconds;
    u->sum_cached += (double)u->now.cached * seconds;
    u->sum_active += (double)u->now.active * seconds;
    u->now = *now;
    u->most.empty = larger_of(u->most.empty, now->empty);
    u->most.cached = larger_of(u->most.cached, now->cached);
    u->most.active = larger_of(u->most.active, now->active);
    u->num_in = in;
    u->num_out = out;
    u->hit_tokens = 0;
    return step;
}

/* After so much time in all. */
static inline void tiers_usage_fill(const tiers_usage *u, double seconds, tiers_tally *tally)
{
    double duration = seconds > 0 ? seconds : 1;
    tally->total = u->now.empty + u->now.cached + u->now.active;
    tally->usage = u->now;
    tally->most = u->most;
    tally->mean_empty = u->sum_empty / duration;
    tally->mean_cached = u->sum_cached / duration;
    tally->mean_active = u->sum_active / duration;
    tally->in_blocks = u->num_in;
    tally->out_blocks = u->num_out;
}

/* ---- all tiers ------------------------------------------------------------- */

typedef struct tiers_run tiers_run;

typedef struct tiers_run_config {
    const tiers_settings *settings;
    const quire_sched_config *sched; /* of the scheduler to come */
    uint64_t block_bytes;
    uint32_t block_size;
    const time_model *time;
    const char *model; /* part of what real blocks are known by, as is how they are hashed */
    const char *hash_algo;
    void *user;
    double (*now_s)(void *user);
    double (*compute_end_s)(void *user); /* of all that the GPU was given */
} tiers_run_config;

/* Where the prompt tokens of a request came from; what is missing was computed. */
typedef struct tiers_split {
    uint32_t gpu;
    uint32_t tiers[TIERS_MAX];
} tiers_split;

/* NULL, and a sentence. */
tiers_run *tiers_run_open(const tiers_run_config *config);
/* After the scheduler: it may be gone. */
void tiers_run_close(tiers_run *t);
/* For the scheduler's config; then the scheduler. */
const quire_connector *tiers_run_connector(tiers_run *t);
int tiers_run_bind(tiers_run *t, quire_sched *sched);

/* A request has come, and waits. */
void tiers_run_added(tiers_run *t, quire_req req);
/* It is in a step, for the first time since it came or was preempted. */
tiers_split tiers_run_admitted(tiers_run *t, quire_req req, uint32_t num_computed);
/* A step that computed num_tokens, num_prefill of them of prompts, has ended. */
void tiers_run_learn(tiers_run *t, uint32_t num_tokens, uint32_t num_prefill, double seconds);
/* Before the update of that step. QUIRE_OK, or an error. */
int tiers_run_poll(tiers_run *t, uint64_t step, quire_model_output *output);

/* The request was preempted: whether host memory has, or gets, some of its KV. */
bool tiers_run_has_saved(const tiers_run *t, quire_req req);
/* The engine itself copies blocks to the host, or from there (is_load), from then on, over the same
 * link: when the copies end. */
double tiers_run_copy(tiers_run *t, bool is_load, uint32_t num_blocks, double from_s);

/* When something ends that was begun; HUGE_VAL: nothing will. */
double tiers_run_next_s(const tiers_run *t);
/* Simulated time goes on by so much: real jobs get as much of the real one. */
void tiers_run_pass(const tiers_run *t, double seconds);
/* Until nothing is under way any more, however long that takes in simulated time. */
void tiers_run_drain(tiers_run *t);

/* One for each tier, with what moved since it was last asked. */
const page_tier_step *tiers_run_step(tiers_run *t, double time_s);
uint32_t tiers_run_num(const tiers_run *t);
/* The blocks of the host pool; NULL: there is none. */
const quire_pool *tiers_run_host_pool(const tiers_run *t);
/* Ends what is under way, and says what came of it. The hits are the caller's to add up. */
void tiers_run_finish(tiers_run *t, double end_s, tiers_result *result);

#endif

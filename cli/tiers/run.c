#include "run.h"

#include "device.h"
#include "output/failure.h"
#include "real.h"
#include "sim.h"

#include <math.h>
#include <stdlib.h>

enum { RUN_MAX_EVENTS = 256, RUN_MAX_DRAINS = 10000 };

/* While real jobs are under way and there is nothing else to do, time goes on in such steps. */
#define RUN_REAL_STEP_S 0.0005

/* A request, as the scheduler's questions show it. */
typedef struct run_note {
    uint32_t num_local;    /* tokens in the GPU when it was asked about */
    uint32_t num_external; /* promised then, and loaded */
    uint32_t from[TIERS_MAX_LOWER];
    double since_s; /* waits for a tier; negative: it does not */
    bool is_saved;  /* when it was last preempted */
} run_note;

struct tiers_run {
    tiers_settings settings;
    tiers_run_config config;
    tiers_device device;
    quire_offload *offload;
    quire_tier *lower[TIERS_MAX_LOWER];
    tiers_sim *sims[TIERS_MAX_LOWER]; /* the lower tiers own them */
    tiers_real real;
    quire_connector inner;
    quire_connector outer;
    quire_sched *sched;
    run_note *notes; /* by quire_req_index */
    uint32_t max_step_tokens;
    uint64_t secrets;
    uint64_t last_step;
    bool is_draining;  /* time goes on by itself, */
    uint64_t drain_ns; /* and is this */
    double last_usage_s;
    tiers_usage usages[TIERS_MAX];
    page_tier_step steps[TIERS_MAX];
    uint64_t saved_preemptions;
    uint64_t saved_tokens;
    uint64_t failed_loads;
    double recompute_s;
    double wait_s;
};

static double now_s(const tiers_run *t)
{
    return t->config.now_s(t->config.user);
}

static uint64_t ns_of(double s)
{
    return s <= 0 ? 0 : (uint64_t)(s * 1e9);
}

static uint64_t run_now_ns(void *user)
{
    const tiers_run *t = user;
    return t->is_draining ? t->drain_ns : ns_of(now_s(t));
}

static uint64_t run_compute_end_ns(void *user)
{
    const tiers_run *t = user;
    return ns_of(t->config.compute_end_s(t->config.user));
}

/* Secrets of hash tables: the same in every run, but with as many different bits as real ones. */
static int run_secret(void *user, void *out, size_t bytes)
{
    tiers_run *t = user;
    unsigned char *at = out;
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(256 * tiers_dice(&t->secrets));
    return 0;
}

/* ---- what the scheduler asks ------------------------------------------------ */

static run_note *note_of(const tiers_run *t, quire_req req)
{
    return &t->notes[quire_req_index(req)];
}

static void begin_wait(const tiers_run *t, run_note *note)
{
    if (note->since_s < 0)
        note->since_s = now_s(t);
}

static void end_wait(tiers_run *t, run_note *note)
{
    if (note->since_s >= 0)
        t->wait_s += now_s(t) - note->since_s;
    note->since_s = -1;
}

static int run_matched(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                       uint32_t *is_async)
{
    tiers_run *t = user;
    run_note *note = note_of(t, req);
    note->num_local = num_local;
    note->num_external = 0;
    int answer =
        t->inner.get_num_new_matched_tokens(t->inner.user, req, num_local, num_external, is_async);
    if (answer == QUIRE_RETRY)
        begin_wait(t, note);
    else if (answer != QUIRE_OK || *num_external == 0)
        end_wait(t, note);
    return answer;
}

/* Whose tokens they were before: told as the growth of the sums. */
static void note_sources(const tiers_run *t, run_note *note, const quire_offload_stats *before)
{
    quire_offload_stats after = QUIRE_OFFLOAD_STATS_INIT;
    quire_offload_get_stats(t->offload, &after);
    for (uint32_t i = 0; i < t->settings.num_lower; i++)
        note->from[i] = (uint32_t)(after.tiers[i].hit_tokens - before->tiers[i].hit_tokens);
}

static void run_after_alloc(void *user, quire_req req, const quire_block_span *blocks,
                            uint32_t num_external)
{
    tiers_run *t = user;
    run_note *note = note_of(t, req);
    bool has_sources = num_external > 0 && t->settings.num_lower > 0;
    quire_offload_stats before = QUIRE_OFFLOAD_STATS_INIT;
    if (has_sources)
        quire_offload_get_stats(t->offload, &before);
    t->inner.update_state_after_alloc(t->inner.user, req, blocks, num_external);
    if (has_sources)
        note_sources(t, note, &before);
    if (num_external == 0) /* it is admitted; what was loaded was told before */
        return;
    note->num_external = num_external;
    begin_wait(t, note);
}

static void *run_build_meta(void *user, const struct quire_step *step)
{
    tiers_run *t = user;
    t->last_step = step->step;
    return t->inner.build_meta(t->inner.user, step);
}

static int run_request_finished(void *user, quire_req req, const quire_block_span *blocks)
{
    tiers_run *t = user;
    return t->inner.request_finished(t->inner.user, req, blocks);
}

static uint32_t run_request_preempted(void *user, quire_req req, const quire_block_span *blocks,
                                      uint32_t num_tokens, int is_urgent)
{
    tiers_run *t = user;
    uint32_t saved = t->inner.request_preempted(t->inner.user, req, blocks, num_tokens, is_urgent);
    note_of(t, req)->is_saved = saved > 0;
    t->saved_preemptions += saved > 0;
    t->saved_tokens += saved;
    return saved;
}

static int run_reset_cache(void *user)
{
    tiers_run *t = user;
    return t->inner.reset_cache(t->inner.user);
}

static void run_update_output(void *user)
{
    tiers_run *t = user;
    t->inner.update_output(t->inner.user);
}

static uint32_t run_get_tiers(void *user, quire_tier_usage *tiers, uint32_t capacity)
{
    tiers_run *t = user;
    return t->inner.get_tiers(t->inner.user, tiers, capacity);
}

/* The offload's own functions, with a look at some of them; those it has not are not there. */
static void wrap_connector(tiers_run *t)
{
    t->inner = *quire_offload_connector(t->offload);
    t->outer = (quire_connector){
        .size = sizeof(quire_connector),
        .user = t,
        .get_num_new_matched_tokens = run_matched,
        .update_state_after_alloc = run_after_alloc,
        .build_meta = run_build_meta,
        .request_finished = t->inner.request_finished != NULL ? run_request_finished : NULL,
        .request_preempted = t->inner.request_preempted != NULL ? run_request_preempted : NULL,
        .reset_cache = t->inner.reset_cache != NULL ? run_reset_cache : NULL,
        .update_output = t->inner.update_output != NULL ? run_update_output : NULL,
        .get_tiers = run_get_tiers};
}

/* ---- making it ---------------------------------------------------------------- */

static quire_hooks run_hooks(tiers_run *t)
{
    if (t->settings.is_real)
        return (quire_hooks)QUIRE_HOOKS_INIT;
    return (quire_hooks){.user = t, .now_ns = run_now_ns, .random_bytes = run_secret};
}

static int open_lower(tiers_run *t, uint32_t i)
{
    const tiers_lower *lower = &t->settings.lower[i];
    if (t->settings.is_real)
        return tiers_real_open_tier(&t->real, lower, t->settings.policy, &t->lower[i]);
    return tiers_sim_open(
        &(tiers_sim_config){.lower = lower,
                            .num_slots = tiers_num_slots(lower, t->config.block_bytes),
                            .block_bytes = t->config.block_bytes,
                            .policy = t->settings.policy,
                            .failures = t->settings.failures,
                            .hooks = run_hooks(t)},
        &t->lower[i], &t->sims[i]);
}

static bool make_device(tiers_run *t)
{
    const tiers_settings *s = &t->settings;
    tiers_device *d = &t->device;
    bool ok = tiers_queue_init(&d->stores, RUN_MAX_EVENTS, s->bytes_per_s, s->latency_s);
    ok = tiers_queue_init(&d->loads, RUN_MAX_EVENTS, s->bytes_per_s, s->latency_s) && ok;
    d->block_bytes = t->config.block_bytes;
    d->failures = s->failures;
    d->user = t;
    d->now_ns = run_now_ns;
    d->compute_end_ns = run_compute_end_ns;
    tiers_device_init(d);
    return ok;
}

static int make_offload(tiers_run *t)
{
    const tiers_settings *s = &t->settings;
    quire_offload_tier tiers[TIERS_MAX_LOWER];
    for (uint32_t i = 0; i < s->num_lower; i++)
        tiers[i] =
            (quire_offload_tier){.tier = t->lower[i],
                                 .admit = s->admit,
                                 .bytes_per_s = s->is_real ? 0 : s->lower[i].bytes_per_s,
                                 .latency_ns = s->is_real ? 0 : ns_of(s->lower[i].latency_s)};
    quire_offload_config c = QUIRE_OFFLOAD_CONFIG_INIT;
    c.learns = QUIRE_OFF; /* tiers_run_learn tells it, in simulated time */
    c.sched = t->config.sched;
    c.num_cpu_blocks = s->cpu_blocks;
    c.mode = s->mode;
    c.max_events = RUN_MAX_EVENTS;
    c.device = &t->device.device;
    c.memory = t->real.memory;
    c.block_bytes = t->config.block_bytes;
    c.backlog = s->backlog;
    c.lookahead = s->has_lookahead ? QUIRE_ON : QUIRE_OFF;
    c.peer_server = t->real.server;
    c.tiers = tiers;
    c.num_tiers = s->num_lower;
    c.recompute_token_ns = (uint64_t)(time_model_prompt_token_us(t->config.time) * 1e3);
    c.events = t->config.sched->monitor != NULL ? QUIRE_ON : QUIRE_OFF;
    c.hooks = run_hooks(t);
    int err = quire_offload_create(&c, NULL, &t->offload);
    if (err != QUIRE_OK)
        fail_with("cannot create host memory of %u blocks with these options: %s", s->cpu_blocks,
                  quire_strerror(err));
    return err;
}

tiers_run *tiers_run_open(const tiers_run_config *config)
{
    tiers_run *t = calloc(1, sizeof *t);
    fail_with("not enough memory for the tiers");
    if (t == NULL)
        return NULL;
    t->settings = *config->settings;
    t->config = *config;
    t->max_step_tokens = config->sched->max_num_batched_tokens;
    t->notes = calloc(config->sched->max_requests, sizeof *t->notes);
    bool ok = t->notes != NULL && make_device(t);
    if (ok && t->settings.is_real)
        ok = tiers_real_open(&t->real, config, &t->device);
    for (uint32_t i = 0; ok && i < t->settings.num_lower; i++)
        ok = open_lower(t, i) == QUIRE_OK;
    ok = ok && make_offload(t) == QUIRE_OK;
    if (!ok) {
        tiers_run_close(t);
        return NULL;
    }
    wrap_connector(t);
    t->config.sched = NULL; /* it was lent for the making */
    return t;
}

void tiers_run_close(tiers_run *t)
{
    if (t == NULL)
        return;
    bool is_free = quire_offload_destroy(t->offload) == QUIRE_OK;
    for (uint32_t i = 0; i < t->settings.num_lower; i++)
        is_free &= quire_tier_close(t->lower[i]) == QUIRE_OK;
    if (is_free) /* else somebody may still write there */
        tiers_real_close(&t->real);
    tiers_device_free(&t->device);
    free(t->notes);
    free(t);
}

const quire_connector *tiers_run_connector(tiers_run *t)
{
    return &t->outer;
}

int tiers_run_bind(tiers_run *t, quire_sched *sched)
{
    t->sched = sched;
    t->real.gpu = quire_cache_get_pool(quire_sched_get_cache(sched));
    t->real.cpu = quire_cache_get_pool(quire_offload_cache(t->offload));
    int err = quire_offload_bind(t->offload, sched);
    tiers_run_step(t, 0); /* what there is from the beginning on */
    return err;
}

/* ---- requests ------------------------------------------------------------------ */

void tiers_run_added(tiers_run *t, quire_req req)
{
    *note_of(t, req) = (run_note){.since_s = -1};
}

/* What computing tokens [first, first + num) of a prompt alone would take. */
static double compute_s(const tiers_run *t, uint32_t first, uint32_t num)
{
    uint32_t most = t->max_step_tokens;
    double ms = 0;
    for (uint32_t at = 0; at < num;) {
        uint32_t part = num - at < most ? num - at : most;
        step_work work = {0};
        step_work_add(t->config.time, &work, part, first + at);
        ms += time_model_step_ms(t->config.time, &work);
        at += part;
    }
    return ms * 1e-3;
}

tiers_split tiers_run_admitted(tiers_run *t, quire_req req, uint32_t num_computed)
{
    run_note *note = note_of(t, req);
    end_wait(t, note);
    tiers_split split = {.gpu = num_computed};
    if (note->num_external == 0 || num_computed <= note->num_local)
        return split;
    split.gpu = note->num_local;
    uint32_t left = num_computed - note->num_local;
    t->recompute_s += compute_s(t, note->num_local, left);
    for (uint32_t i = 0; i < t->settings.num_lower; i++) {
        uint32_t part = note->from[i] < left ? note->from[i] : left;
        split.tiers[1 + i] = part;
        left -= part;
    }
    split.tiers[0] = left;
    for (uint32_t i = 0; i <= t->settings.num_lower; i++)
        t->usages[i].hit_tokens += split.tiers[i];
    note->num_external = 0;
    return split;
}

/* ---- steps ---------------------------------------------------------------------- */

void tiers_run_learn(tiers_run *t, uint32_t num_tokens, uint32_t num_prefill, double seconds)
{
    if (2 * num_prefill > num_tokens) /* one that prompts have made long */
        quire_offload_learn(t->offload, num_tokens, ns_of(seconds));
}

static bool is_among(const quire_model_output *output, const quire_block_span *span)
{
    for (uint32_t i = 0; i < output->num_invalid_blocks; i++)
        for (uint32_t k = 0; k < span->count; k++)
            if (span->ids[k] == output->invalid_blocks[i])
                return true;
    return false;
}

/* Of those whose loads ended, who has nothing of them. */
static void note_failures(tiers_run *t, const quire_model_output *output)
{
    enum { GROUPS = 64 };
    quire_block_span spans[GROUPS];
    uint32_t num_groups = quire_cache_get_counts(quire_sched_get_cache(t->sched)).num_groups;
    for (uint32_t i = 0; i < output->num_finished_recving && num_groups <= GROUPS; i++) {
        quire_req req = output->finished_recving[i];
        if (quire_sched_get_blocks(t->sched, req, spans) != QUIRE_OK)
            continue;
        for (uint32_t g = 0; g < num_groups; g++)
            if (is_among(output, &spans[g]))
                note_of(t, req)->num_external = 0;
    }
}

int tiers_run_poll(tiers_run *t, uint64_t step, quire_model_output *output)
{
    int err = quire_offload_poll(t->offload, step, output);
    if (err != QUIRE_OK)
        return err;
    for (uint32_t i = 0; i < output->num_finished_recving; i++)
        end_wait(t, note_of(t, output->finished_recving[i]));
    if (output->num_invalid_blocks > 0)
        note_failures(t, output);
    return QUIRE_OK;
}

static bool has_real_jobs(const tiers_run *t)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    for (uint32_t i = 0; t->settings.is_real && i < t->settings.num_lower; i++)
        if (quire_tier_get_stats(t->lower[i], &stats) == QUIRE_OK && stats.jobs_in_flight > 0)
            return true;
    return false;
}

static uint64_t next_simulated_ns(const tiers_run *t)
{
    uint64_t next_ns = tiers_device_next_ns(&t->device);
    for (uint32_t i = 0; !t->settings.is_real && i < t->settings.num_lower; i++) {
        uint64_t ns = tiers_sim_next_ns(t->sims[i]);
        next_ns = ns < next_ns ? ns : next_ns;
    }
    return next_ns;
}

double tiers_run_next_s(const tiers_run *t)
{
    uint64_t next_ns = next_simulated_ns(t);
    double next_s = next_ns == UINT64_MAX ? HUGE_VAL : (double)(next_ns + 1) * 1e-9;
    double real_s = has_real_jobs(t) ? now_s(t) + RUN_REAL_STEP_S : HUGE_VAL;
    return next_s < real_s ? next_s : real_s;
}

void tiers_run_pass(const tiers_run *t, double seconds)
{
    if (seconds > 0 && has_real_jobs(t))
        tiers_real_sleep(seconds);
}

/* An empty step, so that what has ended is taken note of everywhere. */
static bool take_empty_step(tiers_run *t)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    return quire_sched_schedule(t->sched, &step) == QUIRE_OK &&
           tiers_run_poll(t, step->step, &output) == QUIRE_OK &&
           quire_sched_update(t->sched, step->step, &output, &outputs) == QUIRE_OK;
}

/* On to the end of the next job. False: there is none. */
static bool pass_to_next(tiers_run *t)
{
    uint64_t next_ns = next_simulated_ns(t);
    bool is_real = has_real_jobs(t);
    if (next_ns != UINT64_MAX && next_ns > t->drain_ns)
        t->drain_ns = next_ns;
    if (is_real)
        tiers_real_sleep(RUN_REAL_STEP_S);
    return is_real || next_ns != UINT64_MAX;
}

void tiers_run_drain(tiers_run *t)
{
    bool is_idle = quire_sched_get_num_unfinished(t->sched) == 0;
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    t->drain_ns = ns_of(now_s(t));
    t->is_draining = true;
    for (uint32_t i = 0; i < RUN_MAX_DRAINS && quire_offload_has_pending(t->offload); i++) {
        bool is_moving = pass_to_next(t);
        if (is_idle ? !take_empty_step(t) : tiers_run_poll(t, t->last_step, &output) != QUIRE_OK)
            break;
        if (!is_idle && !is_moving)
            break; /* cut short: nothing moves any more, and nobody takes note of it */
    }
    if (is_idle)
        take_empty_step(t);
    t->is_draining = false;
}

bool tiers_run_has_saved(const tiers_run *t, quire_req req)
{
    return note_of(t, req)->is_saved;
}

double tiers_run_copy(tiers_run *t, bool is_load, uint32_t num_blocks, double from_s)
{
    tiers_queue *q = is_load ? &t->device.loads : &t->device.stores;
    tiers_queue_delay(q, ns_of(from_s), num_blocks * t->config.block_bytes);
    return (double)(q->free_ns + q->latency_ns) * 1e-9;
}

/* ---- counting -------------------------------------------------------------------- */

const quire_pool *tiers_run_host_pool(const tiers_run *t)
{
    return t == NULL ? NULL : quire_cache_get_pool(quire_offload_cache(t->offload));
}

uint32_t tiers_run_num(const tiers_run *t)
{
    return 1 + t->settings.num_lower;
}

static quire_usage usage_of(const tiers_run *t, uint32_t tier, uint64_t *in, uint64_t *out)
{
    if (tier == 0) {
        *in = t->device.in_blocks;
        *out = t->device.out_blocks;
        return quire_pool_get_usage(quire_cache_get_pool(quire_offload_cache(t->offload)));
    }
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    (void)quire_tier_get_stats(t->lower[tier - 1], &stats); /* all 0 where there are none */
    *in = stats.bytes_stored / t->config.block_bytes;
    *out = stats.bytes_loaded / t->config.block_bytes;
    return stats.usage;
}

const page_tier_step *tiers_run_step(tiers_run *t, double time_s)
{
    for (uint32_t i = 0; i < tiers_run_num(t); i++) {
        uint64_t in;
        uint64_t out;
        quire_usage now = usage_of(t, i, &in, &out);
        t->steps[i] = tiers_usage_step(&t->usages[i], time_s - t->last_usage_s, &now, in, out);
    }
    t->last_usage_s = time_s;
    return t->steps;
}

void tiers_run_finish(tiers_run *t, double end_s, tiers_result *result)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    page_tier tiers[PAGE_MAX_TIERS];
    result->num_tiers = tiers_describe(&t->settings, t->config.block_bytes, tiers);
    tiers_run_step(t, end_s);
    tiers_run_drain(t);
    tiers_run_step(t, end_s); /* what that has changed took no time */
    for (uint32_t i = 0; i < result->num_tiers; i++) {
        result->tiers[i].name = tiers[i].name;
        result->tiers[i].label = tiers_label(i == 0 ? TIERS_CPU : t->settings.lower[i - 1].kind);
        tiers_usage_fill(&t->usages[i], end_s, &result->tiers[i]);
    }
    quire_offload_get_stats(t->offload, &stats);
    result->tiers[0].failed_blocks = t->device.failed_blocks;
    result->tiers[0].refused_blocks = stats.no_room;
    for (uint32_t i = 0; i < t->settings.num_lower; i++) {
        result->tiers[1 + i].failed_blocks = stats.tiers[i].failed_blocks;
        result->tiers[1 + i].late_blocks = stats.tiers[i].late_blocks;
        result->tiers[1 + i].skipped_tokens = stats.tiers[i].skipped_tokens;
        result->tiers[1 + i].refused_blocks = stats.tiers[i].not_admitted;
    }
    result->saved_preemptions = t->saved_preemptions;
    result->saved_tokens = t->saved_tokens;
    result->failed_loads = stats.failed_loads;
    result->recompute_s = t->recompute_s;
    result->wait_s = t->wait_s;
    result->wrong_blocks = t->real.num_wrong;
}

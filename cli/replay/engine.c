#include "engine.h"
#include "options/options.h"
#include "output/failure.h"
#include "trace/content.h"

#include <quire/error.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Requests that wait in the scheduler; others wait outside. In order of arrival, as many as one
 * step can admit are enough, and nobody can tell; by priority all should be there. */
enum { WAITING_BY_PRIORITY = 65536, MEAN_PROMPT = 1024 };

/* Somebody watches: those that wait are to be seen, up to so many. */
enum { WAITING_WATCHED = 4096 };

/* Requests that neither run nor wait, for each that runs. */
enum { CONNECTED = 4 };

/* Evicted blocks to remember, for the log of decisions. */
enum { MAX_GHOSTS = 1 << 22 };

/* ---- making it -------------------------------------------------------------- */

/* Secrets of hash tables: the same in every run, since nobody attacks a replay. */
static int no_secret(void *user, void *out, size_t bytes)
{
    (void)user;
    memset(out, 0x51, bytes);
    return 0;
}

/* The scheduler's clock is the simulated one. */
static uint64_t simulated_ns(void *user)
{
    const engine *e = user;
    return (uint64_t)(e->now_s * 1e9);
}

static void take_snapshot(void *user, const quire_snapshot *snapshot)
{
    engine *e = user;
    e->snapshot = *snapshot;
    e->snapshot.step =
        e->result->steps + 1; /* steps without tokens, while all wait, do not count */
    e->snapshot.num_waiting += e->num_outside;
    if (e->tiers != NULL) { /* counted when a request runs, not when its load begins */
        e->snapshot.num_hit_tokens = 0;
        e->snapshot.num_external_tokens = 0;
    }
    if (e->settings->swap.num_blocks > 0)
        engine_note_swap(e, snapshot);
}

int engine_hasher(const replay_settings *s, quire_hasher **hasher)
{
    quire_hasher_config h = QUIRE_HASHER_CONFIG_INIT;
    h.algo = s->hash_algo;
    h.profile = s->sched.profile;
    h.block_size = s->hash_block_size;
    h.seed = (quire_bytes){"replay", 6};
    h.hooks.random_bytes = no_secret;
    int err = quire_hasher_create(&h, NULL, hasher);
    return err == QUIRE_OK ? 0 : fail_with("cannot create the hasher: %s", why_refused(err));
}

static int make_sched(engine *e, const engine_place *place)
{
    const replay_settings *s = e->settings;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config c = s->sched;
    c.cache = &cache;
    int err = quire_plan_cache_config(s->plan, c.cache);
    if (err != QUIRE_OK)
        return fail_with("the plan cannot be used: %s", quire_strerror(err));
    cache.enable_caching = s->enable_prefix_caching ? QUIRE_ON : QUIRE_OFF;
    cache.hash_block_size = s->hash_block_size;
    cache.prefix_cache_retention_interval = s->retention_interval;
    cache.watermark = s->pressure.watermark;
    cache.admit_below = s->pressure.admit_below;
    cache.preempt_above = s->pressure.preempt_above;
    if (engine_hasher(s, &e->hasher) != 0)
        return -1;
    c.hasher = e->hasher;
    c.enable_chunked_prefill = s->enable_chunked_prefill ? QUIRE_ON : QUIRE_OFF;
    c.reserve_full_sequence = s->reserve_full_sequence ? QUIRE_ON : QUIRE_OFF;
    c.async_scheduling = s->async_scheduling ? QUIRE_ON : QUIRE_OFF;
    c.max_pins = e->max_pins;
    c.max_batches = e->max_flights;
    c.max_requests = e->max_requests;
    c.max_text_tokens = s->sched.policy == QUIRE_POLICY_FCFS
                            ? (uint64_t)s->sched.max_num_seqs * cache.max_model_len
                            : (uint64_t)WAITING_BY_PRIORITY * MEAN_PROMPT;
    c.max_request_bytes = 64;
    c.max_encoder_items = 1;
    c.hooks = (quire_hooks){.user = e, .now_ns = simulated_ns, .random_bytes = no_secret};
    cache.hooks.random_bytes = no_secret;
    cache.on_event = place->on_kv;
    cache.event_user = place->user;
    c.on_snapshot = take_snapshot;
    bool has_decisions = s->why != NULL || s->pressure.preempt_above > 0;
    c.on_decision = has_decisions ? tally_decision : NULL;
    c.observer = e;
    c.max_ghosts = s->why != NULL ? MAX_GHOSTS : 0;
    c.monitor = s->watch != NULL ? s->watch->monitor : NULL;
    e->max_model_len = cache.max_model_len;
    e->num_blocks = cache.num_blocks;
    if (s->tiers.cpu_blocks > 0 && engine_make_tiers(e, &c) != 0)
        return -1;
    if (place->connector != NULL)
        c.connector = place->connector;
    err = quire_sched_create(&c, place->allocator, &e->sched);
    if (err == QUIRE_OK && e->tiers != NULL)
        err = tiers_run_bind(e->tiers, e->sched);
    if (err == QUIRE_E_NOMEM)
        return fail_with("not enough memory for a pool of %u blocks (--num-gpu-blocks)",
                         e->num_blocks);
    if (err != QUIRE_OK)
        return fail_with("cannot create a scheduler with these options: %s", why_refused(err));
    return 0;
}

static int make_memory(engine *e)
{
    const replay_settings *s = e->settings;
    e->lives = calloc(e->max_requests, sizeof *e->lives);
    e->lives_used = calloc(e->max_requests / 64 + 1, sizeof *e->lives_used);
    bool ok = e->lives != NULL && e->lives_used != NULL;
    for (uint32_t i = 0; i < REPLAY_BATCHES; i++) {
        e->flights[i].sampled = calloc(s->sched.max_num_seqs, sizeof *e->flights[i].sampled);
        ok = ok && e->flights[i].sampled != NULL;
    }
    if (s->page != NULL) {
        uint32_t num_groups = quire_cache_get_counts(quire_sched_get_cache(e->sched)).num_groups;
        e->states = malloc((size_t)e->num_blocks + 1); /* and a zero at the end */
        e->owners = calloc(PAGE_MAX_OWNERS, sizeof *e->owners);
        e->spans = calloc((size_t)num_groups + 1, sizeof *e->spans);
        ok = ok && e->states != NULL && e->owners != NULL && e->spans != NULL;
    }
    return ok ? 0 : fail_with("not enough memory for a pool of %u blocks", e->num_blocks);
}

static uint32_t num_waiting_inside(const replay_settings *s)
{
    if (s->sched.policy != QUIRE_POLICY_FCFS)
        return WAITING_BY_PRIORITY;
    uint32_t seen = s->watch != NULL ? WAITING_WATCHED : s->sched.lookahead;
    seen = seen < s->sched.prefix_window ? s->sched.prefix_window : seen;
    return s->sched.max_num_seqs < seen ? seen : s->sched.max_num_seqs;
}

/* ---- blocks that are kept after the end of a turn, for the next one ------------ */

/* Requests whose blocks are kept at one time: when there are more, the first to expire goes. */
enum { MAX_PINS = 1024, LONGEST_S = 1000000000 };

/* Where the trace may say so, or --pin-ttl does. */
static uint32_t max_pins(const engine *e, trace_format format)
{
    const replay_settings *s = e->settings;
    bool is_asked = s->pin_ttl_s > 0 || format == TRACE_QUIRE;
    bool can_pin = s->sched.profile == QUIRE_PROFILE_DEFAULT && s->enable_prefix_caching;
    return is_asked && can_pin ? MAX_PINS : 0;
}

/* The trace's own time, or that of --pin-ttl for a turn that another one follows. */
static int pin_blocks(engine *e, const trace_request *q, quire_req req)
{
    bool goes_on = q->session != 0 && !q->is_last_turn;
    double ttl_s = q->pin_s >= 0 ? q->pin_s : goes_on ? e->settings->pin_ttl_s : 0;
    if (e->max_pins == 0 || ttl_s <= 0)
        return QUIRE_OK;
    e->result->pinned++;
    ttl_s = ttl_s < LONGEST_S ? ttl_s : LONGEST_S;
    return quire_sched_pin(e->sched, req, (uint64_t)(ttl_s * 1e9));
}

int engine_open(engine *e, const replay_settings *s, const engine_place *place,
                replay_result *result)
{
    *result = (replay_result){.format = place->format};
    *e = (engine){.settings = s,
                  .result = result,
                  .slowness = 1,
                  .writes_steps = s->page != NULL || s->snapshots != NULL || s->perfetto != NULL};
    e->max_requests = s->sched.max_num_seqs + num_waiting_inside(s);
    if (s->tiers.cpu_blocks > 0) /* those that load beside those that run, those lookahead sees */
        e->max_requests += s->sched.max_num_seqs + s->tiers.backlog;
    if (place->connector != NULL) { /* those that load, or whose blocks are still being sent */
        e->max_requests += CONNECTED * s->sched.max_num_seqs;
        e->answer = place->answer;
        e->answer_user = place->connector_user;
    }
    e->max_flights = s->async_scheduling ? REPLAY_BATCHES : 1;
    e->max_pins = max_pins(e, place->format);
    if (make_sched(e, place) != 0)
        return -1;
    return make_memory(e);
}

void engine_close(engine *e)
{
    for (uint32_t i = engine_next_live(e, 0); i < e->num_lives; i = engine_next_live(e, i + 1))
        arrival_free(e->lives[i].from);
    for (uint32_t i = 0; i < REPLAY_BATCHES; i++)
        free(e->flights[i].sampled);
    free(e->lives);
    free(e->lives_used);
    free(e->events);
    free(e->states);
    free(e->host_states);
    free(e->owners);
    free(e->spans);
    quire_sched_destroy(e->sched);
    tiers_run_close(e->tiers);
    quire_hasher_destroy(e->hasher);
}

int engine_reset(engine *e)
{
    if (e->tiers != NULL)
        tiers_run_drain(e->tiers);
    return quire_sched_reset_prefix_cache(e->sched, 0, e->tiers != NULL);
}

void engine_finish(engine *e, double end_s)
{
    e->now_s = end_s;
    tally_finish(e);
}

/* ---- requests come ---------------------------------------------------------- */

/* The file that the request stands in. */
static const char *file_of(const engine *e, const trace_request *q)
{
    return q->file != NULL ? q->file : e->settings->path;
}

/* A request that can never be served. 0 where those are counted, else -1. */
static int refuse(engine *e, const trace_request *q, const char *why)
{
    replay_result *result = e->result;
    char text[REPLAY_MESSAGE_BYTES];
    snprintf(text, sizeof text, "%s:%llu: a prompt of %u tokens %s", file_of(e, q),
             (unsigned long long)q->line, q->num_prompt_tokens, why);
    if (result->first_error[0] == '\0')
        memcpy(result->first_error, text, sizeof text);
    result->errors++;
    if (e->settings->trace.skip_bad)
        return 0;
    return fail_with("%s (--skip-bad skips such requests)", text);
}

/* A prompt that is too long; 0 or -1 as above. */
static int refuse_length(engine *e, const trace_request *q)
{
    char why[256];
    uint32_t in_pool = (e->num_blocks - 1) * e->settings->block_size;
    uint32_t longest = in_pool < e->max_model_len ? in_pool : e->max_model_len;
    if (e->settings->limit == REPLAY_LIMIT_POOL)
        snprintf(why, sizeof why,
                 "does not fit: the pool of %u blocks of %u tokens holds requests of %u tokens at "
                 "most; --num-gpu-blocks or --gpu-memory-utilization makes it larger",
                 e->num_blocks - 1, e->settings->block_size, longest);
    else
        snprintf(why, sizeof why, "is too long: it must be below %s (%u)",
                 e->settings->limit == REPLAY_LIMIT_GIVEN ? "--max-model-len"
                                                          : "the longest request of the model",
                 e->max_model_len);
    return refuse(e, q, why);
}

/* It can never be served: the driver is told, where that is no error. */
static int leave_out(engine *e, arrival *it, int status)
{
    if (it->ask != NULL) /* whoever asked hears it */
        status = 0;
    if (status == 0)
        engine_tell(e, ENGINE_LEFT_OUT, it, 0);
    return status == 0 ? 1 : -1;
}

enum { NUMBER_BYTES = 8, ID_BYTES = NUMBER_BYTES + 2 };

/* So that ids are in the order of arrival. Behind the number of one that went back stands how often
 * it did: an engine may still hold its blocks from before. */
static quire_bytes write_id(const arrival *it, unsigned char id[ID_BYTES])
{
    for (int i = 0; i < NUMBER_BYTES; i++)
        id[i] = (unsigned char)(it->number >> (56 - 8 * i));
    id[NUMBER_BYTES] = (unsigned char)(it->num_back >> 8);
    id[NUMBER_BYTES + 1] = (unsigned char)it->num_back;
    return (quire_bytes){id, it->num_back > 0 ? ID_BYTES : NUMBER_BYTES};
}

/* The prompt of a request of the trace. Behind its hashes nobody looks at its tokens, so the
 * scheduler gets those of the last block alone; a feed shows all. */
static void set_prompt(engine *e, const arrival *it, const engine_names *names,
                       quire_request_params *p)
{
    const trace_request *q = &it->request;
    const replay_settings *s = e->settings;
    p->num_prompt_tokens = q->num_prompt_tokens;
    p->max_tokens = q->num_output_tokens > 0 ? q->num_output_tokens : 1;
    if (s->enable_prefix_caching && s->watch == NULL &&
        (names != NULL ||
         engine_prompt_hash(e->prompt, e->hasher, s->hash_algo, s->hash_block_size, it))) {
        p->hashes = names != NULL ? names->hashes : e->prompt->hashes;
        p->num_hashes = names != NULL ? names->count : e->prompt->num_hashes;
        p->num_hidden_tokens = p->num_hashes * s->hash_block_size;
        p->prompt = engine_prompt_tail(e->prompt, it, p->num_hidden_tokens);
        return;
    }
    engine_prompt_fill(e->prompt, it);
    p->prompt = e->prompt->tokens;
}

/* What the scheduler is told of it, but its id. */
static quire_request_params params_of(engine *e, const arrival *it, const engine_names *names)
{
    const trace_request *q = &it->request;
    quire_request_params p = {.size = sizeof(quire_request_params)};
    if (it->ask != NULL)
        p = it->ask->params;
    else
        set_prompt(e, it, names, &p);
    p.priority = q->priority;
    p.arrival_time = it->time_s;
    return p;
}

int engine_add(engine *e, arrival *it, const engine_names *names)
{
    const trace_request *q = &it->request;
    if (q->num_prompt_tokens >= e->max_model_len)
        return leave_out(e, it, refuse_length(e, q));
    unsigned char id[ID_BYTES];
    quire_request_params p = params_of(e, it, names);
    p.id = write_id(it, id);
    quire_req req;
    double now_s = e->now_s;
    e->now_s = it->time_s; /* it came while the last step was computed: its waiting begins there */
    int err = quire_sched_add(e->sched, &p, &req);
    if (err == QUIRE_OK)
        err = pin_blocks(e, q, req);
    e->now_s = now_s;
    if (err == QUIRE_FULL)
        return 0;
    if (err == QUIRE_E_TOO_LONG)
        return leave_out(
            e, it, refuse(e, q, "does not fit the whole pool; --num-gpu-blocks makes it larger"));
    if (err != QUIRE_OK)
        return fail_with("%s:%llu: %s", file_of(e, q), (unsigned long long)q->line,
                         quire_strerror(err));
    live *l = engine_live(e, req);
    *l = (live){.from = it,
                .output_content = q->output_content,
                .prompt_tokens = q->num_prompt_tokens,
                .output_tokens = it->ask != NULL ? 0 : p.max_tokens,
                .prefill_left = q->num_prompt_tokens,
                .scheduled_s = -1,
                .first_token_s = -1,
                .preempted_s = -1};
    if (quire_req_index(req) >= e->num_lives)
        e->num_lives = quire_req_index(req) + 1;
    e->lives_used[quire_req_index(req) / 64] |= UINT64_C(1) << quire_req_index(req) % 64;
    e->prefill_left += q->num_prompt_tokens;
    if (!e->settings->async_scheduling)
        e->gap_s += e->settings->time->gap_add_ms * 1e-3 * e->slowness;
    engine_tell(e, ENGINE_ADDED, it, 0);
    if (e->tiers != NULL)
        tiers_run_added(e->tiers, req);
    e->num_added++;
    return 1;
}

/* Of its prompt, what is left when it is computed up to `end`. */
static void note_prefill(engine *e, live *l, uint32_t end)
{
    uint32_t left = l->prompt_tokens > end ? l->prompt_tokens - end : 0;
    e->prefill_left -= l->prefill_left;
    e->prefill_left += left;
    l->prefill_left = left;
}

static void free_place(engine *e, live *l)
{
    size_t i = (size_t)(l - e->lives);
    l->from = NULL;
    e->lives_used[i / 64] &= ~(UINT64_C(1) << i % 64);
}

int engine_abort(engine *e, const arrival *it)
{
    unsigned char id[ID_BYTES];
    quire_req req = quire_sched_find(e->sched, write_id(it, id));
    int err = req == 0 ? QUIRE_E_UNKNOWN_REQ
                       : quire_sched_finish(e->sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    if (err != QUIRE_OK)
        return fail_with("abort: %s", quire_strerror(err));
    live *l = engine_live(e, req);
    note_prefill(e, l, l->prompt_tokens);
    free_place(e, l);
    return 0;
}

/* Blocks that wait for a transfer are free: the driver's connector says that all have ended. */
static int end_transfers(engine *e)
{
    const quire_step *step;
    const quire_outputs *out;
    quire_model_output output = {.size = sizeof output, .sampled = e->flights[0].sampled};
    int err = quire_sched_schedule(e->sched, &step);
    if (err != QUIRE_OK)
        return err;
    e->answer(e->answer_user, &output);
    return quire_sched_update(e->sched, step->step, &output, &out);
}

int engine_crash(engine *e, double time_s)
{
    const quire_outputs *out;
    tally_crash(e, time_s);
    for (; e->num_flights > 0; e->num_flights--) { /* of requests that are gone */
        flight *f = &e->flights[e->first_flight];
        quire_model_output output = {.size = sizeof output, .sampled = f->sampled};
        int err = quire_sched_update(e->sched, f->step, &output, &out);
        if (err != QUIRE_OK)
            return fail_with("crash: %s", quire_strerror(err));
        e->first_flight = (e->first_flight + 1) % REPLAY_BATCHES;
    }
    int err = e->answer != NULL ? end_transfers(e) : QUIRE_OK;
    if (err == QUIRE_OK)
        err = engine_reset(e);
    if (err != QUIRE_OK)
        return fail_with("crash: %s", quire_strerror(err));
    e->now_s = e->free_s = time_s;
    e->num_to_end = 0;
    e->gap_s = 0;
    e->is_idle = true;
    e->phase = ENGINE_IDLE;
    e->context_tokens = 0;
    e->snapshot.blocks = quire_sched_get_usage(e->sched);
    return 0;
}

/* ---- a step ----------------------------------------------------------------- */

/* What the step costs, and what it will have sampled. */
static double run_step(engine *e, const quire_step *step, quire_token *sampled, double start_s)
{
    step_work work = {0};
    const time_model *time = e->settings->time;
    for (uint32_t i = 0; i < step->num_preempted; i++) {
        tally_preempted(e, step->preempted[i]);
        note_prefill(e, engine_live(e, step->preempted[i]), 0);
    }
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        live *l = engine_live(e, step->reqs[i]);
        uint32_t n = step->num_tokens[i];
        uint32_t computed = step->num_computed_tokens[i];
        step_work_add(time, &work, n, computed);
        uint32_t end = computed + n; /* the token sampled stands there */
        if (step->kinds[i] != QUIRE_STEP_RUNNING) {
            quire_step_kind kind = (quire_step_kind)step->kinds[i];
            if (e->tiers != NULL)
                tally_sources(e, l, step->reqs[i], kind, computed);
            tally_admitted(e, l, kind, computed, start_s);
        }
        l->num_computed = end > l->num_computed ? end : l->num_computed;
        if (l->prefill_left > 0)
            note_prefill(e, l, end);
        uint32_t place = end > l->prompt_tokens ? end - l->prompt_tokens : 0;
        if (l->from->ask != NULL)
            sampled[i] = l->from->ask->token_at(l->from->ask, place);
        else
            content_tokens(l->output_content, place, 1, &sampled[i]);
    }
    e->context_tokens = work.kv_tokens;
    return time_model_step_ms(time, &work) * 1e-3 * e->slowness;
}

void engine_pass_gap(engine *e)
{
    e->now_s += e->gap_s;
    e->gap_s = 0;
}

/* The GPU does it when it has done those before. */
int engine_begin(engine *e)
{
    const quire_step *step;
    engine_pass_gap(e);
    e->query_tokens = 0;
    int err = quire_sched_schedule(e->sched, &step);
    if (err != QUIRE_OK)
        return fail_with("schedule: %s", quire_strerror(err));
    flight *f = &e->flights[(e->first_flight + e->num_flights++) % REPLAY_BATCHES];
    double start_s = e->free_s > e->now_s ? e->free_s : e->now_s;
    f->step = step->step;
    f->start_s = start_s;
    double compute_s = run_step(e, step, f->sampled, start_s);
    f->copy_s = e->settings->swap.num_blocks > 0 ? engine_copy_swapped(e, step, start_s) : 0;
    f->end_s = start_s + f->copy_s + compute_s;
    f->num_tokens = e->snapshot.num_tokens;
    f->num_prefill = e->snapshot.num_prefill_tokens;
    f->num_reqs = step->num_reqs;
    e->free_s = f->end_s;
    bool has_tokens = step->total_tokens > 0;
    tally_step(e, start_s, f->end_s);
    if (has_tokens && e->writes_steps)
        engine_write_step(e, start_s, f->end_s);
    e->is_idle = !has_tokens && e->num_flights == 1;
    e->num_to_end = !has_tokens ? e->num_flights : e->num_flights == e->max_flights;
    e->phase = e->num_to_end > 0 ? ENGINE_END : ENGINE_BEGIN;
    if (!e->is_idle)
        e->num_idle = 0;
    return e->no_memory ? fail_with("not enough memory") : 0;
}

/* Of an engine that schedules a step when the one before has ended. */
static double gap_after(const engine *e, const flight *f)
{
    const time_model *time = e->settings->time;
    return (time->gap_ms + f->num_reqs * time->gap_request_ms) * 1e-3 * e->slowness;
}

int engine_end(engine *e)
{
    flight *f = &e->flights[e->first_flight];
    const quire_outputs *out;
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = f->sampled};
    e->first_flight = (e->first_flight + 1) % REPLAY_BATCHES;
    e->num_flights--;
    int err = e->tiers != NULL ? engine_poll_tiers(e, f, &output) : QUIRE_OK;
    e->now_s = f->end_s;
    if (e->answer != NULL)
        e->answer(e->answer_user, &output);
    if (err == QUIRE_OK)
        err = quire_sched_update(e->sched, f->step, &output, &out);
    if (err != QUIRE_OK)
        return fail_with("update: %s", quire_strerror(err));
    for (uint32_t i = 0; i < out->num_outputs; i++) {
        const quire_output *o = &out->outputs[i];
        live *l = engine_live(e, o->req);
        if (l->num_generated == 0 && o->num_new_tokens > 0)
            tally_first_token(e, l);
        l->num_generated += o->num_new_tokens;
        if (l->from->part != ARRIVAL_PREFILL) /* the token is generated again */
            e->result->output_tokens += o->num_new_tokens;
        if (o->finish_reason == QUIRE_FINISH_NONE) {
            if (l->from->ask != NULL)
                engine_tell(e, ENGINE_TOKENS, l->from, l->num_generated);
            continue;
        }
        tally_end(e, l);
        note_prefill(e, l, l->prompt_tokens);
        if (engine_tell(e, ENGINE_ENDED, l->from, l->num_generated))
            e->events[e->num_events - 1].finish = o->finish_reason;
        free_place(e, l);
    }
    if (e->num_to_end > 0 && --e->num_to_end == 0)
        e->phase = e->is_idle ? ENGINE_IDLE : ENGINE_BEGIN;
    if (!e->settings->async_scheduling && f->num_tokens > 0)
        e->gap_s = gap_after(e, f);
    return e->no_memory ? fail_with("not enough memory") : 0;
}

double engine_next_s(const engine *e)
{
    if (e->phase == ENGINE_END)
        return e->flights[e->first_flight].end_s;
    return e->phase == ENGINE_BEGIN ? e->now_s + e->gap_s : HUGE_VAL;
}

void engine_wake(engine *e, double time_s)
{
    bool is_empty = quire_sched_get_num_unfinished(e->sched) == 0;
    if (e->settings->page != NULL && time_s > e->now_s && is_empty)
        page_idle(e->settings->page, e->now_s, &e->pool.now, engine_look_at_tiers(e, e->now_s));
    if (e->tiers != NULL)
        tiers_run_pass(e->tiers, time_s - e->now_s);
    e->now_s = time_s > e->now_s ? time_s : e->now_s;
    e->gap_s = 0;
    e->phase = ENGINE_BEGIN;
}

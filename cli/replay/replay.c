#include "options/options.h"
#include "output/failure.h"
#include "output/progress.h"
#include "run.h"
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
    const replay *r = user;
    return (uint64_t)(r->now_s * 1e9);
}

static void take_snapshot(void *user, const quire_snapshot *snapshot)
{
    replay *r = user;
    r->snapshot = *snapshot;
    r->snapshot.step =
        r->result->steps + 1; /* steps without tokens, while all wait, do not count */
    r->snapshot.num_waiting += (uint32_t)arrivals_num_due(r->arrivals);
    if (r->tiers != NULL) { /* counted when a request runs, not when its load begins */
        r->snapshot.num_hit_tokens = 0;
        r->snapshot.num_external_tokens = 0;
    }
    if (r->settings->swap.num_blocks > 0)
        replay_note_swap(r, snapshot);
}

static int make_sched(replay *r)
{
    const replay_settings *s = r->settings;
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
    quire_hasher_config h = QUIRE_HASHER_CONFIG_INIT;
    h.algo = s->hash_algo;
    h.profile = s->sched.profile;
    h.block_size = cache.hash_block_size;
    h.seed = (quire_bytes){"replay", 6};
    h.hooks.random_bytes = no_secret;
    err = quire_hasher_create(&h, NULL, &r->hasher);
    if (err != QUIRE_OK)
        return fail_with("cannot create the hasher: %s", why_refused(err));
    c.hasher = r->hasher;
    c.enable_chunked_prefill = s->enable_chunked_prefill ? QUIRE_ON : QUIRE_OFF;
    c.reserve_full_sequence = s->reserve_full_sequence ? QUIRE_ON : QUIRE_OFF;
    c.async_scheduling = s->async_scheduling ? QUIRE_ON : QUIRE_OFF;
    c.max_pins = r->max_pins;
    c.max_batches = r->max_flights;
    c.max_requests = r->max_requests;
    c.max_text_tokens = s->sched.policy == QUIRE_POLICY_FCFS
                            ? (uint64_t)s->sched.max_num_seqs * cache.max_model_len
                            : (uint64_t)WAITING_BY_PRIORITY * MEAN_PROMPT;
    c.max_request_bytes = 64;
    c.max_encoder_items = 1;
    c.hooks = (quire_hooks){.user = r, .now_ns = simulated_ns, .random_bytes = no_secret};
    cache.hooks.random_bytes = no_secret;
    c.on_snapshot = take_snapshot;
    bool has_decisions = s->why != NULL || s->pressure.preempt_above > 0;
    c.on_decision = has_decisions ? tally_decision : NULL;
    c.observer = r;
    c.max_ghosts = s->why != NULL ? MAX_GHOSTS : 0;
    c.monitor = s->watch != NULL ? s->watch->monitor : NULL;
    r->max_model_len = cache.max_model_len;
    r->num_blocks = cache.num_blocks;
    if (s->tiers.cpu_blocks > 0 && replay_make_tiers(r, &c) != 0)
        return -1;
    err = quire_sched_create(&c, NULL, &r->sched);
    if (err == QUIRE_OK && r->tiers != NULL)
        err = tiers_run_bind(r->tiers, r->sched);
    if (err == QUIRE_E_NOMEM)
        return fail_with("not enough memory for a pool of %u blocks (--num-gpu-blocks)",
                         r->num_blocks);
    if (err != QUIRE_OK)
        return fail_with("cannot create a scheduler with these options: %s", why_refused(err));
    return 0;
}

static int make_memory(replay *r)
{
    const replay_settings *s = r->settings;
    r->lives = calloc(r->max_requests, sizeof *r->lives);
    r->prompt = malloc(r->max_model_len * sizeof *r->prompt);
    bool ok = r->lives != NULL && r->prompt != NULL;
    for (uint32_t i = 0; i < REPLAY_BATCHES; i++) {
        r->flights[i].sampled = calloc(s->sched.max_num_seqs, sizeof *r->flights[i].sampled);
        ok = ok && r->flights[i].sampled != NULL;
    }
    if (s->page != NULL) {
        uint32_t num_groups = quire_cache_get_counts(quire_sched_get_cache(r->sched)).num_groups;
        r->states = malloc((size_t)r->num_blocks + 1); /* and a zero at the end */
        r->owners = calloc(PAGE_MAX_OWNERS, sizeof *r->owners);
        r->spans = calloc((size_t)num_groups + 1, sizeof *r->spans);
        ok = ok && r->states != NULL && r->owners != NULL && r->spans != NULL;
    }
    return ok ? 0 : fail_with("not enough memory for a pool of %u blocks", r->num_blocks);
}

/* The trace, beginning now. */
static int open_trace(replay *r)
{
    const replay_settings *s = r->settings;
    r->reader = s->paths != NULL ? trace_open_all(s->paths, s->num_paths, &s->trace)
                                 : trace_open(s->path, &s->trace);
    if (r->reader == NULL)
        return -1;
    r->arrivals = arrivals_open(r->reader, s->clock, s->speed > 0 ? s->speed : 1, r->now_s);
    if (r->arrivals == NULL)
        return fail_with("not enough memory");
    r->result->format = trace_reader_format(r->reader);
    r->result->rounds++;
    return 0;
}

static void close_trace(replay *r)
{
    arrivals_close(r->arrivals);
    r->arrivals = NULL;
    trace_close(r->reader);
    r->reader = NULL;
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
static uint32_t max_pins(const replay *r)
{
    const replay_settings *s = r->settings;
    bool is_asked = s->pin_ttl_s > 0 || r->result->format == TRACE_QUIRE;
    bool can_pin = s->sched.profile == QUIRE_PROFILE_DEFAULT && s->enable_prefix_caching;
    return is_asked && can_pin ? MAX_PINS : 0;
}

/* The trace's own time, or that of --pin-ttl for a turn that another one follows. */
static int pin_blocks(replay *r, const trace_request *q, quire_req req)
{
    bool goes_on = q->session != 0 && !q->is_last_turn;
    double ttl_s = q->pin_s >= 0 ? q->pin_s : goes_on ? r->settings->pin_ttl_s : 0;
    if (r->max_pins == 0 || ttl_s <= 0)
        return QUIRE_OK;
    r->result->pinned++;
    ttl_s = ttl_s < LONGEST_S ? ttl_s : LONGEST_S;
    return quire_sched_pin(r->sched, req, (uint64_t)(ttl_s * 1e9));
}

static int make_all(replay *r)
{
    const replay_settings *s = r->settings;
    r->max_requests = s->sched.max_num_seqs + num_waiting_inside(s);
    if (s->tiers.cpu_blocks > 0) /* those that load beside those that run, those lookahead sees */
        r->max_requests += s->sched.max_num_seqs + s->tiers.backlog;
    r->max_flights = s->async_scheduling ? REPLAY_BATCHES : 1;
    if (open_trace(r) != 0)
        return -1;
    r->max_pins = max_pins(r);
    if (make_sched(r) != 0)
        return -1;
    return make_memory(r);
}

static void unmake(replay *r)
{
    for (uint32_t i = 0; r->lives != NULL && i < r->max_requests; i++)
        arrival_free(r->lives[i].from);
    for (uint32_t i = 0; i < REPLAY_BATCHES; i++)
        free(r->flights[i].sampled);
    free(r->lives);
    free(r->prompt);
    free(r->states);
    free(r->host_states);
    free(r->owners);
    free(r->spans);
    id_set_free(&r->seen);
    id_set_free(&r->outputs);
    quire_sched_destroy(r->sched);
    tiers_run_close(r->tiers);
    quire_hasher_destroy(r->hasher);
    close_trace(r);
}

/* ---- requests come ---------------------------------------------------------- */

/* The tokens of a prompt; one that could not be added before is there already. */
static void fill_prompt(replay *r, const arrival *it)
{
    const trace_request *q = &it->request;
    uint32_t at = 0;
    if (r->filled == it->number + 1)
        return;
    r->filled = it->number + 1;
    for (uint32_t i = 0; i < q->num_segments; i++) {
        content_tokens(q->prompt[i].content, 0, q->prompt[i].num_tokens, r->prompt + at);
        at += q->prompt[i].num_tokens;
    }
}

/* The file that the request stands in. */
static const char *file_of(const replay *r, const trace_request *q)
{
    return q->file != NULL ? q->file : r->settings->path;
}

/* A request that can never be served. 0 where those are counted, else -1. */
static int refuse(replay *r, const trace_request *q, const char *why)
{
    replay_result *result = r->result;
    char text[REPLAY_MESSAGE_BYTES];
    snprintf(text, sizeof text, "%s:%llu: a prompt of %u tokens %s", file_of(r, q),
             (unsigned long long)q->line, q->num_prompt_tokens, why);
    if (result->first_error[0] == '\0')
        memcpy(result->first_error, text, sizeof text);
    result->errors++;
    if (r->settings->trace.skip_bad)
        return 0;
    return fail_with("%s (--skip-bad skips such requests)", text);
}

/* A prompt that is too long; 0 or -1 as above. */
static int refuse_length(replay *r, const trace_request *q)
{
    char why[256];
    uint32_t in_pool = (r->num_blocks - 1) * r->settings->block_size;
    uint32_t longest = in_pool < r->max_model_len ? in_pool : r->max_model_len;
    if (r->settings->limit == REPLAY_LIMIT_POOL)
        snprintf(why, sizeof why,
                 "does not fit: the pool of %u blocks of %u tokens holds requests of %u tokens at "
                 "most; --num-gpu-blocks or --gpu-memory-utilization makes it larger",
                 r->num_blocks - 1, r->settings->block_size, longest);
    else
        snprintf(why, sizeof why, "is too long: it must be below %s (%u)",
                 r->settings->limit == REPLAY_LIMIT_GIVEN ? "--max-model-len"
                                                          : "the longest request of the model",
                 r->max_model_len);
    return refuse(r, q, why);
}

/* 1: taken in or left out; 0: no room now; -1: an error. */
static int add_request(replay *r, arrival *it)
{
    const trace_request *q = &it->request;
    if (q->num_prompt_tokens >= r->max_model_len)
        return refuse_length(r, q) == 0 ? 1 : -1;
    fill_prompt(r, it);
    unsigned char id[8];
    for (int i = 0; i < 8; i++) /* so that ids are in the order of arrival */
        id[i] = (unsigned char)(it->number >> (56 - 8 * i));
    uint32_t outputs = q->num_output_tokens > 0 ? q->num_output_tokens : 1;
    quire_request_params p = {.size = sizeof(quire_request_params),
                              .id = {id, sizeof id},
                              .prompt = r->prompt,
                              .num_prompt_tokens = q->num_prompt_tokens,
                              .max_tokens = outputs,
                              .priority = q->priority,
                              .arrival_time = it->time_s};
    quire_req req;
    double now_s = r->now_s;
    r->now_s = it->time_s; /* it came while the last step was computed: its waiting begins there */
    int err = quire_sched_add(r->sched, &p, &req);
    if (err == QUIRE_OK)
        err = pin_blocks(r, q, req);
    r->now_s = now_s;
    if (err == QUIRE_FULL)
        return 0;
    if (err == QUIRE_E_TOO_LONG)
        return refuse(r, q, "does not fit the whole pool; --num-gpu-blocks makes it larger") == 0
                   ? 1
                   : -1;
    if (err != QUIRE_OK)
        return fail_with("%s:%llu: %s", file_of(r, q), (unsigned long long)q->line,
                         quire_strerror(err));
    live *l = replay_live(r, req);
    *l = (live){.from = it,
                .output_content = q->output_content,
                .prompt_tokens = q->num_prompt_tokens,
                .output_tokens = outputs,
                .scheduled_s = -1,
                .first_token_s = -1,
                .preempted_s = -1};
    tally_arrival(r, l);
    if (r->tiers != NULL)
        tiers_run_added(r->tiers, req);
    r->num_added++;
    return 1;
}

/* All that have come by now, as long as the scheduler takes them. */
static int take_arrivals(replay *r)
{
    for (;;) {
        arrival *it = arrivals_take(r->arrivals, r->now_s);
        if (it == NULL)
            break;
        uint64_t before = r->num_added;
        int status = add_request(r, it);
        if (status == 0) {
            arrivals_put_back(r->arrivals, it);
            return 0;
        }
        if (r->num_added == before) { /* left out */
            arrivals_note_left_out(r->arrivals, &it->request, r->now_s);
            arrival_free(it);
        }
        if (status < 0)
            return -1;
    }
    if (arrivals_no_memory(r->arrivals))
        return fail_with("not enough memory for the requests that wait");
    if (arrivals_next_time(r->arrivals, r->now_s) < 0)
        return fail_with("%s", trace_error(r->reader));
    return 0;
}

/* ---- a step ----------------------------------------------------------------- */

/* What the step costs, and what it will have sampled. */
static double run_step(replay *r, const quire_step *step, quire_token *sampled, double start_s)
{
    step_work work = {0};
    const time_model *time = r->settings->time;
    for (uint32_t i = 0; i < step->num_preempted; i++)
        tally_preempted(r, step->preempted[i]);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        live *l = replay_live(r, step->reqs[i]);
        uint32_t n = step->num_tokens[i];
        uint32_t computed = step->num_computed_tokens[i];
        step_work_add(time, &work, n, computed);
        uint32_t end = computed + n; /* the token sampled stands there */
        if (step->kinds[i] != QUIRE_STEP_RUNNING) {
            quire_step_kind kind = (quire_step_kind)step->kinds[i];
            if (r->tiers != NULL)
                tally_sources(r, l, step->reqs[i], kind, computed);
            tally_admitted(r, l, kind, computed, start_s);
        }
        l->num_computed = end > l->num_computed ? end : l->num_computed;
        uint32_t place = end > l->prompt_tokens ? end - l->prompt_tokens : 0;
        content_tokens(l->output_content, place, 1, &sampled[i]);
    }
    return time_model_step_ms(time, &work) * 1e-3;
}

/* Schedules a step; the GPU does it when it has done those before. */
static int begin_step(replay *r, bool *has_tokens)
{
    const quire_step *step;
    r->query_tokens = 0;
    int err = quire_sched_schedule(r->sched, &step);
    if (err != QUIRE_OK)
        return fail_with("schedule: %s", quire_strerror(err));
    flight *f = &r->flights[(r->first_flight + r->num_flights++) % REPLAY_BATCHES];
    double start_s = r->free_s > r->now_s ? r->free_s : r->now_s;
    f->step = step->step;
    f->start_s = start_s;
    double compute_s = run_step(r, step, f->sampled, start_s);
    f->copy_s = r->settings->swap.num_blocks > 0 ? replay_copy_swapped(r, step, start_s) : 0;
    f->end_s = start_s + f->copy_s + compute_s;
    f->num_tokens = r->snapshot.num_tokens;
    f->num_prefill = r->snapshot.num_prefill_tokens;
    r->free_s = f->end_s;
    *has_tokens = step->total_tokens > 0;
    tally_step(r, start_s, f->end_s);
    if (*has_tokens && r->writes_steps)
        replay_write_step(r, start_s, f->end_s);
    return 0;
}

/* The oldest step has ended. */
static int end_step(replay *r)
{
    flight *f = &r->flights[r->first_flight];
    const quire_outputs *out;
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = f->sampled};
    r->first_flight = (r->first_flight + 1) % REPLAY_BATCHES;
    r->num_flights--;
    int err = r->tiers != NULL ? replay_poll_tiers(r, f, &output) : QUIRE_OK;
    r->now_s = f->end_s;
    if (err == QUIRE_OK)
        err = quire_sched_update(r->sched, f->step, &output, &out);
    if (err != QUIRE_OK)
        return fail_with("update: %s", quire_strerror(err));
    for (uint32_t i = 0; i < out->num_outputs; i++) {
        const quire_output *o = &out->outputs[i];
        live *l = replay_live(r, o->req);
        if (l->num_generated == 0 && o->num_new_tokens > 0)
            tally_first_token(r, l);
        l->num_generated += o->num_new_tokens;
        r->result->output_tokens += o->num_new_tokens;
        if (o->finish_reason == QUIRE_FINISH_NONE)
            continue;
        tally_end(r, l);
        arrivals_note_end(r->arrivals, &l->from->request, r->now_s);
        arrival_free(l->from);
        l->from = NULL;
    }
    return 0;
}

/* ---- the loop --------------------------------------------------------------- */

static void tell_progress(replay *r, double *told_at)
{
    const replay_settings *s = r->settings;
    double now = progress_clock();
    if (now < *told_at + 0.1)
        return;
    *told_at = now;
    replay_progress p = tally_progress(r);
    s->progress(s->progress_user, &p);
}

/* If somebody watches, waits until then. False: the replay ends now. */
static bool reach(replay *r, double time_s)
{
    const replay_settings *s = r->settings;
    if (s->watch != NULL)
        s->watch->wait(s->watch->user, time_s);
    if (s->stop != NULL)
        r->result->stopped = s->stop();
    return r->result->stopped == NULL;
}

/* The same trace again, as if nothing of it had come before. 0: it is not wanted. */
static int repeat(replay *r)
{
    const replay_watch *w = r->settings->watch;
    if (w == NULL || !w->again(w->user))
        return 0;
    if (r->tiers != NULL)
        tiers_run_drain(r->tiers);
    int err = quire_sched_reset_prefix_cache(r->sched, 0, r->tiers != NULL);
    if (err != QUIRE_OK)
        return fail_with("the prefix cache cannot be emptied: %s", quire_strerror(err));
    r->result->errors += trace_num_bad(r->reader);
    close_trace(r);
    id_set_free(&r->seen);
    id_set_free(&r->outputs);
    r->filled = 0;
    return open_trace(r) == 0 ? 1 : -1;
}

/* Nothing can be done now: on to the next arrival. 0: there is none. */
static int go_on(replay *r)
{
    double next = arrivals_next_time(r->arrivals, r->now_s);
    uint32_t unfinished = quire_sched_get_num_unfinished(r->sched);
    if (next < 0)
        return fail_with("%s", trace_error(r->reader));
    double next_job = replay_next_job_s(r);
    if (unfinished > 0 && next_job == HUGE_VAL)
        return fail_with("the scheduler cannot continue with %u requests", unfinished);
    if (next == HUGE_VAL && unfinished == 0)
        return repeat(r);
    next = next_job < next ? next_job : next;
    if (!reach(r, next))
        return 0;
    if (r->settings->page != NULL && next > r->now_s && unfinished == 0)
        page_idle(r->settings->page, r->now_s, &r->pool.now, replay_look_at_tiers(r, r->now_s));
    if (r->tiers != NULL)
        tiers_run_pass(r->tiers, next - r->now_s);
    r->now_s = next > r->now_s ? next : r->now_s;
    return 1;
}

/* Positive: to end now. */
static int finish_step(replay *r)
{
    return reach(r, r->flights[r->first_flight].end_s) ? end_step(r) : 1;
}

static int run_all(replay *r)
{
    const replay_settings *s = r->settings;
    double told_at = progress_clock();
    for (uint64_t n = 0; s->max_steps == 0 || r->result->steps < s->max_steps; n++) {
        bool has_tokens = false;
        if (take_arrivals(r) != 0 || begin_step(r, &has_tokens) != 0)
            return -1;
        bool is_idle = !has_tokens && r->num_flights == 1;
        int status = 0;
        if (!has_tokens || r->num_flights == r->max_flights)
            status = finish_step(r);
        if (status == 0 && !has_tokens && r->num_flights > 0)
            status = finish_step(r);
        if (status != 0)
            return status < 0 ? -1 : 0;
        if (s->progress != NULL && (n % 64 == 0 || s->watch != NULL))
            tell_progress(r, &told_at);
        if (!is_idle)
            r->num_idle = 0;
        int more = is_idle ? go_on(r) : 1;
        if (more <= 0)
            return more;
    }
    int status = 0;
    while (r->num_flights > 0 && status == 0)
        status = finish_step(r);
    r->result->is_cut_short = quire_sched_get_num_unfinished(r->sched) > 0 ||
                              arrivals_next_time(r->arrivals, r->now_s) != HUGE_VAL;
    return status < 0 ? -1 : 0;
}

/* Runs it for the one who watches, who leaves before the scheduler does. */
static int run_watched(replay *r, double start)
{
    const replay_watch *w = r->settings->watch;
    if (w != NULL && w->begin(w->user, r->sched) != 0)
        return -1;
    int status = run_all(r);
    if (status != 0 && !reach(r, r->now_s)) /* a read that was interrupted is no error */
        status = 0;
    tally_finish(r);
    r->result->wall_s = progress_clock() - start;
    if (w != NULL)
        w->end(w->user, status == 0 ? r->result : NULL);
    return status;
}

int replay_run(const replay_settings *settings, replay_result *result)
{
    replay r = {.settings = settings,
                .result = result,
                .writes_steps = settings->page != NULL || settings->snapshots != NULL ||
                                settings->perfetto != NULL};
    double start = progress_clock();
    *result = (replay_result){0};
    int status = make_all(&r);
    if (status == 0) {
        replay_write_heads(&r);
        status = run_watched(&r, start);
        replay_write_tails(&r);
    }
    unmake(&r);
    return status;
}

void replay_result_free(replay_result *result)
{
    distribution_free(&result->ttft_ms);
    distribution_free(&result->tpot_ms);
    distribution_free(&result->e2e_ms);
    distribution_free(&result->queue_ms);
}

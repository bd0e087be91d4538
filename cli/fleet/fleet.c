#include "fleet_state.h"
#include "output/failure.h"
#include "output/progress.h"

#include <math.h>

/* So that an interrupt is seen soon, and few events are kept. */
enum { LONGEST_WINDOW_S = 10 };

static void advance(fleet *f, uint32_t index, uint32_t lane)
{
    worker *w = &f->workers[index];
    worker_advance(w, f->until_s, &f->prompts[lane]);
    f->next_s[index] = worker_next_s(w);
    f->quiet_s[index] = worker_quiet_s(w);
    if (f->wants_loads)
        fleet_hear(f, index);
    fleet_keep_hits(f, index);
}

/* With a reader, that is the first job: it is long, and others fill the time beside it. */
static void do_job(void *user, uint32_t i, uint32_t lane)
{
    fleet *f = user;
    if (i < f->has_reader)
        fleet_look_ahead(f);
    else if (i - f->has_reader < f->num_going)
        advance(f, f->going[i - f->has_reader], lane);
    else
        fleet_keep_idle_hits(f);
}

static double least_of(const double *values, uint32_t n)
{
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < n; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

bool fleet_is_done(const fleet *f)
{
    return f->num_waiting == 0 && least_of(f->next_s, f->settings->num_workers) == HUGE_VAL &&
           handoffs_num_open(f->handoffs) == 0 && shared_moves_num_loads(f->shared) == 0 &&
           arrivals_next_time(f->arrivals, f->now_s) == HUGE_VAL;
}

/* Workers that have something to do up to then. */
static void find_going(fleet *f)
{
    f->num_going = 0;
    for (uint32_t i = 0; i < f->settings->num_workers; i++)
        if (f->next_s[i] < f->until_s ||
            (f->next_s[i] == f->until_s && f->workers[i].engine.phase == ENGINE_END))
            f->going[f->num_going++] = i;
}

/* When the first worker stopped, before the end of the window, because a request left out or ended
 * that another one waits for; HUGE_VAL: none did. */
static double first_stop_s(const fleet *f)
{
    double first_s = HUGE_VAL;
    for (uint32_t i = 0; i < f->num_going; i++) {
        const worker *w = &f->workers[f->going[i]];
        if (w->stops && w->engine.now_s < first_s)
            first_s = w->engine.now_s;
    }
    return first_s;
}

/* Transfers, up to now; workers hear of them. */
static int advance_handoffs(fleet *f)
{
    if (f->handoffs == NULL)
        return 0;
    if (!handoffs_advance(f->handoffs, f->now_s))
        return fail_with("not enough memory for the transfers");
    if (handoffs_take_changes(f->handoffs))
        for (uint32_t i = 0; i < f->settings->num_workers; i++)
            fleet_look_at(f, i);
    return 0;
}

/* The shared tier, up to now; workers hear of their loads. */
static int advance_shared(fleet *f)
{
    if (f->shared != NULL && !shared_moves_advance(f->shared, f->now_s))
        return fail_with("not enough memory for the transfers of the shared tier");
    fleet_look_at_changed(f);
    return 0;
}

/* Transfers of KV between workers, and those of the shared tier. */
static double next_move_s(const fleet *f)
{
    return fmin(handoffs_next_s(f->handoffs), shared_moves_next_s(f->shared));
}

/* The next window: 1 when there was one; 0: it is over. */
static int go(fleet *f)
{
    uint32_t n = f->settings->num_workers;
    if (members_change(f) != 0 || fleet_route_arrivals(f) != 0 || fleet_route_waiting(f) != 0)
        return -1;
    double next_s = arrivals_next_time(f->arrivals, f->now_s);
    double quiet_s = least_of(f->quiet_s, n);
    double busy_s = least_of(f->next_s, n);
    if (next_s < 0)
        return fail_with("%s", trace_error(f->reader));
    bool can_wait = f->num_waiting > 0 && members_may_serve(f);
    bool is_over =
        next_s == HUGE_VAL && busy_s == HUGE_VAL && next_move_s(f) == HUGE_VAL && !can_wait;
    if (is_over && handoffs_num_open(f->handoffs) > 0)
        return fail_with("the fleet cannot continue: %u requests wait for each other's blocks "
                         "(--num-gpu-blocks makes the pools larger)",
                         handoffs_num_open(f->handoffs));
    if (is_over && f->num_waiting > 0 && members_are_off(f))
        return fail_with("the fleet cannot continue: %u requests wait in the router, and all "
                         "workers%s are off (restart=S of --fail crash starts a worker again)",
                         f->num_waiting, f->handoffs != NULL ? " that decode" : "");
    if (is_over)
        return f->num_waiting == 0 ? 0
                                   : fail_with("%u requests wait in the router, and no worker "
                                               "has any",
                                               f->num_waiting);
    double tick_s = router_next_tick(f->routers);
    double moved_s = next_move_s(f);
    double until_s = next_s < quiet_s ? next_s : quiet_s;
    until_s = tick_s < until_s ? tick_s : until_s;
    double change_s = members_next_s(f);
    if (change_s <= f->now_s) /* behind the last request: no worker changes any more */
        change_s = HUGE_VAL;
    until_s = fmin(until_s, fmin(moved_s, change_s));
    double longest_s = f->settings->window_s > 0 ? f->settings->window_s : LONGEST_WINDOW_S;
    double soon_s = (busy_s > f->now_s ? busy_s : f->now_s) + longest_s;
    until_s = soon_s < until_s ? soon_s : until_s; /* HUGE_VAL stays, if all are idle */
    f->until_s = until_s > f->now_s ? until_s : f->now_s;
    find_going(f);
    if (f->num_going == 0 && f->until_s <= f->now_s && tick_s > f->now_s && moved_s > f->now_s)
        return fail_with("the fleet cannot continue at %.6f s", f->now_s);
    f->has_reader = f->settings->num_threads > 1 && arrivals_may_read_on(f->arrivals);
    fleet_find_coming(f);
    crew_run(f->crew, f->has_reader + f->num_going + (f->num_coming > 0), do_job, f);
    f->result->num_windows++;
    double stopped_s = first_stop_s(f);
    if (fleet_merge(f) != 0)
        return -1;
    if (f->until_s < HUGE_VAL)
        f->now_s = f->until_s;
    f->now_s = stopped_s < f->now_s ? stopped_s : f->now_s;
    if (advance_handoffs(f) != 0 || advance_shared(f) != 0)
        return -1;
    if (tick_s <= f->now_s)
        router_tick(f->routers, fleet_router_time(f, f->now_s), f->reports);
    return 1;
}

static void tell_progress(const fleet *f, double *told_at)
{
    const replay_settings *s = f->settings->replay;
    double now = progress_clock();
    if (s->progress == NULL || now < *told_at + 0.1)
        return;
    *told_at = now;
    arrivals_read read = arrivals_get_read(f->arrivals);
    uint64_t size = trace_size(f->reader);
    double part = read.is_all ? 1 : size > 0 ? (double)trace_position(f->reader) / (double)size : 0;
    replay_progress p = {
        .simulated_s = f->now_s, .num_requests = f->result->total.requests, .share = -1};
    if (part > 0 && read.requests > 0) {
        p.total_requests = (uint64_t)((double)read.requests / part + 0.5);
        p.share = (double)p.num_requests / (double)p.total_requests;
    }
    s->progress(s->progress_user, &p);
}

static int run_all(fleet *f)
{
    const replay_settings *s = f->settings->replay;
    double told_at = progress_clock();
    int status = 1;
    while (status > 0) {
        f->result->total.stopped = s->stop != NULL ? s->stop() : NULL;
        if (f->result->total.stopped != NULL)
            return 0;
        status = go(f);
        tell_progress(f, &told_at);
    }
    return status;
}

int fleet_run(const fleet_settings *settings, fleet_result *result)
{
    fleet *f = calloc(1, sizeof *f);
    double start = progress_clock();
    *result = (fleet_result){0};
    if (f == NULL)
        return fail_with("not enough memory");
    f->settings = settings;
    f->result = result;
    int status = fleet_make(f);
    bool has_files = status == 0 && settings->num_workers == 1;
    if (has_files)
        engine_write_heads(&f->workers[0].engine);
    if (status == 0 && settings->requests_csv != NULL && settings->num_workers > 1)
        fprintf(settings->requests_csv,
                "request,line,session,turn,worker,arrival_s,scheduled_s,first_token_s,end_s,"
                "prompt_tokens,output_tokens,hit_tokens,believed_tokens,ttft_ms,tpot_ms,e2e_ms,"
                "times_back%s%s\n",
                f->shared != NULL ? ",shared_tokens" : "",
                f->handoffs != NULL
                    ? ",prefill_worker,computed_s,transfer_start_s,transfer_end_s,moved_blocks"
                    : "");
    if (status == 0)
        status = run_all(f);
    if (status == 0)
        status = fleet_finish(f);
    if (has_files)
        engine_write_tails(&f->workers[0].engine);
    result->total.wall_s = progress_clock() - start;
    fleet_unmake(f);
    free(f);
    return status;
}

void fleet_result_free(fleet_result *result)
{
    replay_result_free(&result->total);
    free(result->workers);
    free(result->routed);
    free(result->node_bytes);
    free(result->shared_hits);
    distribution_free(&result->shared.load_ms);
    distribution_free(&result->transfers.wait_ms);
    distribution_free(&result->transfers.move_ms);
    members_result_free(&result->members);
}

#include "crash.h"

#include "fleet_state.h"
#include "output/failure.h"
#include "output/grown.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* A request that is interrupted so often will never end. */
enum { MOST_CRASHES = 1000 };

/* ---- requests go back to the router -------------------------------------------- */

void crash_interrupted(fleet *f, arrival *it, member_crash *crash)
{
    fleet_request *request = it->note;
    bool had_begun = request->lost_tokens > 0;
    members_refused(f, it, f->now_s); /* an older crash no longer waits for it */
    crash->num_begun += had_begun;
    crash->num_queued += !had_begun;
    crash->num_open++;
    crash->lost_tokens += request->lost_tokens;
    request->crash = f->result->members.num_crashes + 1;
}

/* As if it had just come; what led to its first token stays. */
static void begin_again(const fleet *f, arrival *it)
{
    fleet_request *request = it->note;
    it->part = ARRIVAL_WHOLE;
    request->is_admitted = request->is_begun = request->is_routed = false;
    request->has_ideal = false; /* later ones may be served before it */
    it->num_back++;
    request->remote = (remote_part){0};
    free(request->hashes); /* or NULL: a worker that never had it did not take them */
    request->hashes = NULL;
    if (it->first_token_s > 0 || f->handoffs == NULL)
        return;
    request->prefill_worker = ROUTER_NONE;
    request->computed_s = request->transfer_start_s = request->transfer_end_s = 0;
    request->moved_blocks = 0;
}

static int take_one_back(fleet *f, arrival *it, member_crash *crash)
{
    fleet_request *request = it->note;
    router_done(f->routers, fleet_router_time(f, f->now_s), it->number, 0, true);
    if (request->worker == ROUTER_NONE)
        ;
    else if (request->is_admitted)
        fleet_note_left(f, request->worker, f->now_s);
    else
        fleet_note_left_out(f, request->worker, f->now_s);
    f->num_admitted -= request->is_begun;
    begin_again(f, it);
    if (crash != NULL) {
        crash_interrupted(f, it, crash);
        crash->num_back++;
    }
    if (!arrival_queue_push(&f->members.back, it)) {
        fleet_request_free(it);
        return fail_with("not enough memory");
    }
    if (crash != NULL && it->num_back == MOST_CRASHES)
        return fail_with("request %" PRIu64 " was at %d workers that crashed: it is longer "
                         "than the time between crashes (--mtbf, --fail)",
                         it->number + 1, MOST_CRASHES);
    return 0;
}

int crash_take_back(fleet *f, arrival_queue *left, member_crash *crash)
{
    for (arrival *it; (it = arrival_queue_pop(left)) != NULL;)
        if (take_one_back(f, it, crash) != 0)
            return -1;
    return 0;
}

/* ---- a crash --------------------------------------------------------------------- */

static int note_crash(fleet *f, const member_crash *crash)
{
    members_result *r = &f->result->members;
    if (!grow(&r->crashes, r->num_crashes, &r->crashes_capacity, UINT32_MAX, sizeof *r->crashes))
        return fail_with("not enough memory");
    r->crashes[r->num_crashes++] = *crash;
    r->num_begun += crash->num_begun;
    r->num_queued += crash->num_queued;
    r->lost_tokens += crash->lost_tokens;
    series_back(&r->series, crash->at_s, crash->num_back);
    return 0;
}

/* The worker's requests, and parts of requests, leave it. 0 or -1. */
static int lose_worker(fleet *f, member_crash *crash)
{
    arrival_queue left = {0};
    arrival_queue back = {0};
    int status = crash_handoffs(f, crash, &back);
    if (status == 0 && f->shared != NULL && !shared_moves_crash(f->shared, f->now_s, crash->worker))
        status = fail_with("not enough memory for the transfers of the shared tier");
    if (status == 0)
        status = worker_crash(&f->workers[crash->worker], f->now_s, &left);
    if (status == 0)
        status = crash_parts(f, crash, &left, &back);
    if (status == 0)
        status = crash_take_back(f, &back, crash);
    for (arrival *it; (it = arrival_queue_pop(&left)) != NULL;)
        fleet_request_free(it);
    for (arrival *it; (it = arrival_queue_pop(&back)) != NULL;)
        fleet_request_free(it);
    arrival_queue_free(&left);
    arrival_queue_free(&back);
    fleet_look_at_changed(f);
    return status;
}

int members_crash(fleet *f, uint32_t w, double ready_s)
{
    members *m = &f->members;
    double now_s = f->now_s;
    member_state before = m->of[w].state;
    if (before == MEMBER_OFF)
        return 0;
    member_crash it = {.worker = w,
                       .at_s = now_s,
                       .ready_s = before == MEMBER_DRAINING ? HUGE_VAL : ready_s,
                       .resumed_s = HUGE_VAL,
                       .back_s = HUGE_VAL};
    int status = lose_worker(f, &it);
    if (it.num_open == 0)
        it.resumed_s = now_s;
    if (status != 0 || note_crash(f, &it) != 0)
        return -1;
    if (f->history != NULL)
        history_cleared(f->history, w, now_s);
    if (before != MEMBER_STARTING)
        router_leave(f->routers, fleet_router_time(f, now_s), w);
    members_set_state(f, w, it.ready_s < HUGE_VAL ? MEMBER_STARTING : MEMBER_OFF, now_s);
    m->of[w].ready_s = it.ready_s;
    m->of[w].crash_s = HUGE_VAL;
    members_look_at(f, w);
    return 0;
}

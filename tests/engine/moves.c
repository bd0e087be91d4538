/* engine/moves.c - what a caller decides about requests: which one is preempted and how, and which
 * one waits in host slots until it is resumed. */
#include "engine/engine.h"

quire_req engine_any_request(engine *e)
{
    quire_req reqs[ENGINE_MAX_REQUESTS];
    uint32_t n =
        quire_sched_get_queue(e->sched, engine_draw(&e->random, 3), reqs, ENGINE_MAX_REQUESTS);
    return n == 0 ? 0 : reqs[engine_draw(&e->random, n)];
}

/* Whether a move was made; not: the request's state does not allow it, as the header says. */
static int take_status(engine *e, const char *what, int status, bool *is_made)
{
    *is_made = status == QUIRE_OK;
    bool is_known =
        status == QUIRE_OK || status == QUIRE_MISS || status == QUIRE_BUSY || status == QUIRE_FULL;
    return is_known ? 0 : engine_fail(e, what, status);
}

static bool is_in_slots(const engine *e, quire_req req)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    return quire_sched_get_req_info(e->sched, req, &info) == QUIRE_OK &&
           info.location == QUIRE_LOCATION_HOST;
}

static int preempt_one(engine *e, quire_req req)
{
    quire_preempt_mode mode = (quire_preempt_mode)engine_draw(&e->random, 3);
    bool is_made;
    if (take_status(e, "preempt", quire_sched_preempt(e->sched, req, mode), &is_made) != 0)
        return 1;
    bool is_kept = is_made && is_in_slots(e, req);
    if (is_made && mode != QUIRE_PREEMPT_CHEAPER && is_kept != (mode == QUIRE_PREEMPT_SWAP))
        e->counts->confused++;
    e->counts->chosen_swaps += is_kept;
    e->counts->chosen_recomputes += is_made && !is_kept;
    return 0;
}

static int offload_one(engine *e, quire_req req)
{
    bool had_slots = is_in_slots(e, req);
    bool is_made;
    if (take_status(e, "offload", quire_sched_offload(e->sched, req), &is_made) != 0)
        return 1;
    e->counts->offloads += is_made;
    e->counts->chosen_swaps += is_made && !had_slots && is_in_slots(e, req);
    return 0;
}

/* Each of those that were offloaded, after some steps. */
static int resume_some(engine *e)
{
    quire_req reqs[ENGINE_MAX_REQUESTS];
    for (uint32_t which = 1; which < 3; which++) {
        uint32_t n = quire_sched_get_queue(e->sched, which, reqs, ENGINE_MAX_REQUESTS);
        for (uint32_t i = 0; i < n; i++) {
            quire_req_info info = QUIRE_REQ_INFO_INIT;
            int status = quire_sched_get_req_info(e->sched, reqs[i], &info);
            if (status == QUIRE_OK && info.is_offloaded && engine_chance(&e->random, 20)) {
                status = quire_sched_resume(e->sched, reqs[i]);
                e->counts->resumes++;
            }
            if (status != QUIRE_OK)
                return engine_fail(e, "resume", status);
        }
    }
    return 0;
}

int engine_move_requests(engine *e)
{
    if (resume_some(e) != 0)
        return 1;
    quire_req req = engine_draw(&e->random, 6) == 0 ? engine_any_request(e) : 0;
    if (req == 0)
        return 0;
    return engine_chance(&e->random, 60) ? preempt_one(e, req) : offload_one(e, req);
}

/* sched/sim/sim_moves.c - the caller takes the blocks from requests, and lets them come back. */
#include "sched/sim/sim.h"

static bool has_host(const sim *s)
{
    return s->mix.num_swap > 0 || s->mix.saves;
}

/* What the header says of a call that takes the blocks from a request; QUIRE_OK with mode SWAP may
 * be BUSY, FULL or MISS instead. */
static int expected_move(const sim *s, const quire_req_info *info, bool needs_slots)
{
    if (info->status >= QUIRE_REQ_FINISHED_STOPPED ||
        info->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
        return QUIRE_BUSY;
    if (info->seq == 0)
        return QUIRE_MISS;
    return needs_slots && !has_host(s) ? QUIRE_E_DISABLED : QUIRE_OK;
}

static void offload(sim *s, sim_request *r, const quire_req_info *before)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    int expected = expected_move(s, before, true);
    int err = SIM_CALL(s, quire_sched_offload(s->sched, r->req));
    if (expected == QUIRE_MISS)
        expected = has_host(s) ? QUIRE_OK : QUIRE_E_DISABLED;
    bool has_no_slots = expected == QUIRE_OK && (err == QUIRE_FULL || err == QUIRE_BUSY);
    SIM_CHECK(s, err == expected || has_no_slots, "offload", err, expected);
    if (err != QUIRE_OK || s->has_failed)
        return;
    quire_sched_get_req_info(s->sched, r->req, &info);
    SIM_CHECK(s, info.is_offloaded && info.seq == 0 && info.location != QUIRE_LOCATION_DEVICE,
              "offloaded, and has blocks", info.seq, info.location);
    if (before->status == QUIRE_REQ_RUNNING)
        sim_void_in_flight(s, r);
    r->is_moved = true;
    s->tally.moves++;
}

static void preempt(sim *s, sim_request *r, const quire_req_info *before)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_preempt_mode mode = (quire_preempt_mode)sim_below(s, 3);
    int expected = expected_move(s, before, mode == QUIRE_PREEMPT_SWAP);
    int err = SIM_CALL(s, quire_sched_preempt(s->sched, r->req, mode));
    bool cannot = expected == QUIRE_OK && mode == QUIRE_PREEMPT_SWAP &&
                  (err == QUIRE_FULL || err == QUIRE_BUSY || err == QUIRE_MISS);
    SIM_CHECK(s, err == expected || cannot, "preempt", err, expected);
    if (err != QUIRE_OK || s->has_failed)
        return;
    quire_sched_get_req_info(s->sched, r->req, &info);
    bool is_kept = info.location == QUIRE_LOCATION_HOST;
    SIM_CHECK(s,
              info.seq == 0 &&
                  (mode == QUIRE_PREEMPT_CHEAPER || is_kept == (mode == QUIRE_PREEMPT_SWAP)),
              "preempted, and its KV is elsewhere", mode, info.location);
    if (before->status == QUIRE_REQ_RUNNING)
        sim_void_in_flight(s, r);
    r->is_moved = true;
    s->tally.moves++;
}

/* Takes the blocks from requests in any state, and lets requests in again. */
void sim_move(sim *s)
{
    for (uint32_t i = 0; i < s->mix.max_requests && !s->has_failed; i++) {
        sim_request *r = &s->requests[i];
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        if (!r->is_there || quire_sched_get_req_info(s->sched, r->req, &info) != QUIRE_OK)
            continue;
        if (info.is_offloaded && (s->is_ending || sim_chance(s, 40))) {
            int err = SIM_CALL(s, quire_sched_resume(s->sched, r->req));
            SIM_CHECK(s, err == QUIRE_OK, "resume", err, 0);
        } else if (!info.is_offloaded && !s->is_ending && sim_chance(s, 10)) {
            int err = SIM_CALL(s, quire_sched_resume(s->sched, r->req));
            SIM_CHECK(s, err == QUIRE_MISS, "resume of a request that is not offloaded", err, 0);
            if (sim_chance(s, 50))
                offload(s, r, &info);
            else
                preempt(s, r, &info);
        }
    }
}

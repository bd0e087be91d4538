#include "crash.h"

#include "fleet_state.h"
#include "handoffs_inner.h"
#include "output/failure.h"

static int no_memory(bool ok)
{
    return ok ? 0 : fail_with("not enough memory for the transfers");
}

static int add_back(arrival_queue *back, arrival *it)
{
    if (arrival_queue_push(back, it))
        return 0;
    fleet_request_free(it);
    return fail_with("not enough memory");
}

/* The copy has left its prefill worker, and is needed no longer. */
static void forget_copy(fleet *f, arrival *copy)
{
    const fleet_request *request = copy->note;
    if (request->is_admitted)
        fleet_note_left(f, request->worker, f->now_s);
    else
        fleet_note_left_out(f, request->worker, f->now_s);
    f->num_admitted -= request->is_begun;
    fleet_request_free(copy);
}

/* From the decode worker, where it has no blocks yet. */
static int take_from_decode(fleet *f, const handoff *x, uint32_t lost_tokens, arrival_queue *back)
{
    arrival *it = x->it;
    if (worker_take(&f->workers[x->decode], it, f->now_s) != 0)
        return -1;
    ((fleet_request *)it->note)->lost_tokens = lost_tokens;
    return add_back(back, it);
}

/* ---- before the crash --------------------------------------------------------------- */

static int lose_decode(fleet *f, handoff *x, arrival_queue *back)
{
    handoffs *h = f->handoffs;
    bool is_held = x->is_computed && !x->has_no_prefill;
    arrival *it = x->it;
    handoff_cancel(h, x, f->now_s);
    if (it != NULL && x->has_blocks &&
        !worker_received(&f->workers[x->decode], x->decode_req, false, f->now_s))
        return no_memory(false);
    if (x->copy != NULL) {
        if (worker_take(&f->workers[x->prefill], x->copy, f->now_s) != 0)
            return -1;
        forget_copy(f, x->copy);
    }
    if (!x->is_given) {
        ((fleet_request *)it->note)->worker = ROUTER_NONE;
        ((fleet_request *)it->note)->lost_tokens = 0;
        x->is_given = true;
        if (add_back(back, it) != 0)
            return -1;
    }
    if (is_held)
        return no_memory(handoff_release(h, x, f->now_s));
    handoff_end(h, x);
    return 0;
}

/* A prompt that was computed, and whose KV has not arrived. */
static int lose_prompt(fleet *f, member_crash *crash, handoff *x, arrival_queue *back)
{
    handoffs *h = f->handoffs;
    uint32_t lost = x->it->request.num_prompt_tokens;
    handoff_cancel(h, x, f->now_s);
    if (!x->has_blocks) {
        if (take_from_decode(f, x, lost, back) != 0)
            return -1;
    } else {
        ((fleet_request *)x->it->note)->lost_tokens = lost;
        crash_interrupted(f, x->it, crash);
        if (!handoff_tell_received(h, x, true, f->now_s))
            return no_memory(false);
    }
    return no_memory(handoff_release(h, x, f->now_s));
}

int crash_handoffs(fleet *f, member_crash *crash, arrival_queue *back)
{
    handoffs *h = f->handoffs;
    for (uint32_t i = 0; h != NULL && i < h->num_all; i++) {
        handoff *x = &h->all[i];
        bool is_held = x->is_computed && !x->has_no_prefill;
        int status = 0;
        if (x->is_open && x->decode == crash->worker)
            status = lose_decode(f, x, back);
        else if (x->is_open && x->prefill == crash->worker && is_held)
            status = lose_prompt(f, crash, x, back);
        if (status != 0)
            return -1;
    }
    return 0;
}

/* ---- behind it ------------------------------------------------------------------- */

/* The decode worker waits with blocks for a prompt that nobody will have computed: from now on it
 * is as any request that one worker serves. */
static int serve_alone(fleet *f, member_crash *crash, handoff *x, uint32_t lost_tokens)
{
    arrival *it = x->it;
    fleet_request *request = it->note;
    router_prefill_lost(f->routers, fleet_router_time(f, f->now_s), it->number);
    it->part = ARRIVAL_WHOLE;
    request->lost_tokens = lost_tokens;
    request->believed_tokens = 0;
    if (it->first_token_s == 0)
        request->prefill_worker = ROUTER_NONE;
    crash_interrupted(f, it, crash);
    return no_memory(handoff_tell_received(f->handoffs, x, true, f->now_s));
}

/* A copy whose prompt was not computed. */
static int lose_copy(fleet *f, member_crash *crash, arrival *copy, arrival_queue *back)
{
    handoffs *h = f->handoffs;
    handoff *x = handoff_of(h, copy);
    uint32_t lost = ((const fleet_request *)copy->note)->lost_tokens;
    int status = 0;
    forget_copy(f, copy);
    handoff_cancel(h, x, f->now_s);
    if (x->it == NULL) {
        ; /* the decode worker needs nothing more */
    } else if (!x->is_given) {
        ((fleet_request *)x->it->note)->worker = ROUTER_NONE;
        ((fleet_request *)x->it->note)->lost_tokens = lost;
        x->is_given = true;
        status = add_back(back, x->it);
    } else if (x->has_blocks) {
        status = serve_alone(f, crash, x, lost);
    } else {
        status = take_from_decode(f, x, lost, back);
    }
    handoff_end(h, x);
    return status;
}

int crash_parts(fleet *f, member_crash *crash, arrival_queue *left, arrival_queue *back)
{
    for (arrival *it; (it = arrival_queue_pop(left)) != NULL;) {
        int status =
            it->part == ARRIVAL_PREFILL ? lose_copy(f, crash, it, back) : add_back(back, it);
        if (status != 0)
            return -1;
    }
    if (f->handoffs != NULL && handoffs_take_changes(f->handoffs))
        for (uint32_t i = 0; i < f->settings->num_workers; i++)
            fleet_look_at(f, i);
    return 0;
}

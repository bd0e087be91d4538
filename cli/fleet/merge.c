#include "fleet_state.h"
#include "output/failure.h"
#include "output/grown.h"

static void write_row(fleet *f, const arrival *it, const engine_event *end)
{
    const trace_request *q = &it->request;
    const fleet_request *request = it->note;
    FILE *out = f->settings->requests_csv;
    char tpot[32] = "";
    if (out == NULL || f->settings->num_workers == 1) /* one engine writes its own */
        return;
    if (end->num_tokens > 1)
        snprintf(tpot, sizeof tpot, "%.3f",
                 (end->time_s - request->first_token_s) * 1e3 / (end->num_tokens - 1));
    fprintf(out, "%llu,%llu,%llu,%u,%u,%.6f,%.6f,%.6f,%.6f,%u,%u,%u,%u,%.3f,%s,%.3f,%u",
            (unsigned long long)it->number + 1, (unsigned long long)q->line,
            (unsigned long long)q->session, q->turn, request->worker, it->time_s,
            request->scheduled_s, request->first_token_s, end->time_s, q->num_prompt_tokens,
            end->num_tokens, request->hit_tokens, request->believed_tokens,
            (request->first_token_s - it->time_s) * 1e3, tpot, (end->time_s - it->time_s) * 1e3,
            it->num_back);
    if (f->shared != NULL)
        fprintf(out, ",%u", request->shared_tokens);
    if (f->handoffs != NULL && request->prefill_worker != ROUTER_NONE)
        fprintf(out, ",%u,%.6f,%.6f,%.6f,%u", request->prefill_worker, request->computed_s,
                request->transfer_start_s, request->transfer_end_s, request->moved_blocks);
    else if (f->handoffs != NULL)
        fputs(",,,,,", out);
    fputc('\n', out);
}

/* A user sees it, unless there was one before a crash. */
static void note_user_token(fleet *f, arrival *it, double time_s)
{
    bool is_again = it->first_token_s > 0;
    members_first_token(f, it, time_s, is_again);
    if (!is_again)
        it->first_token_s = ((fleet_request *)it->note)->first_token_s = time_s;
}

static void note_first_token(fleet *f, worker *w, arrival *it, const engine_event *event)
{
    fleet_request *request = it->note;
    bool is_again = it->is_counted; /* its prompt counted before a crash */
    if (it->part != ARRIVAL_PREFILL)
        note_user_token(f, it, event->time_s);
    if (!is_again) {
        it->is_counted = true;
        f->result->believed_tokens += request->believed_tokens;
        tally_ideal(w->engine.result, it);
    }
    if (!is_again && f->shared != NULL) {
        f->result->shared_tokens += request->shared_tokens;
        f->result->peer_tokens += request->peer_tokens;
        f->result->shared_hits[request->worker] += request->shared_tokens;
    }
    if (!is_again && f->history != NULL)
        history_first_token(f->history, request->worker, event->time_s,
                            &(history_prompt){.number = it->number,
                                              .prompt_tokens = it->request.num_prompt_tokens,
                                              .hit_tokens = request->hit_tokens,
                                              .believed_tokens = request->believed_tokens,
                                              .ideal = &it->ideal});
    ideal_computed(&f->ideal, &it->request, request->worker);
    router_first_token(f->routers, fleet_router_time(f, event->time_s), it->number,
                       event->num_tokens);
}

static void show_admitted(fleet *f, uint32_t index, double time_s)
{
    if (f->history != NULL)
        history_admitted(f->history, index, time_s);
    if (f->settings->tracks != NULL)
        tracks_admitted(f->settings->tracks, index, time_s);
}

void fleet_note_left(fleet *f, uint32_t index, double time_s)
{
    if (f->history != NULL)
        history_left(f->history, index, time_s);
    if (f->settings->tracks != NULL)
        tracks_left(f->settings->tracks, index, time_s);
}

static void note_admitted(fleet *f, arrival *it, const engine_event *event)
{
    fleet_request *request = it->note;
    f->num_admitted++;
    request->is_admitted = request->is_begun = true;
    show_admitted(f, request->worker, event->time_s);
    members_admitted(f, it, event->num_tokens);
    if (it->first_token_s == 0)
        request->scheduled_s = event->time_s;
    if (it->is_counted) /* its prompt, before a crash */
        return;
    request->hit_tokens = event->num_tokens;
    request->shared_tokens = request->remote.has_failed ? 0 : request->remote.loaded_tokens;
    request->peer_tokens = request->remote.has_failed ? 0 : request->remote.peer_tokens;
    it->ideal.losses = (ideal_losses){0};
    ideal_admitted(
        &f->ideal, &it->request,
        &(ideal_hit){.tokens = event->num_tokens,
                     .block_size = f->engine.block_size,
                     .worker = request->worker,
                     .believed_tokens = f->ideal.has_workers ? request->believed_tokens : 0},
        &it->ideal);
}

static void note_end(fleet *f, const arrival *it, const engine_event *event)
{
    const trace_request *q = &it->request;
    const fleet_request *r = it->note;
    double decode_ms = (event->time_s - r->first_token_s) * 1e3;
    if (f->history != NULL)
        history_ended(f->history, r->worker, event->time_s,
                      &(history_end){.prompt_tokens = q->num_prompt_tokens,
                                     .output_tokens = event->num_tokens,
                                     .turn = q->turn,
                                     .priority = q->priority,
                                     .ttft_ms = (r->first_token_s - it->time_s) * 1e3,
                                     .tpot_ms = event->num_tokens > 1
                                                    ? decode_ms / (event->num_tokens - 1)
                                                    : -1,
                                     .e2e_ms = (event->time_s - it->time_s) * 1e3,
                                     .queue_ms = (r->scheduled_s - it->time_s) * 1e3});
    if (f->settings->tracks != NULL)
        tracks_ended(f->settings->tracks, r->worker,
                     &(track_request){.id = it->number + 1,
                                      .arrival_s = it->time_s,
                                      .scheduled_s = r->scheduled_s,
                                      .first_token_s = r->first_token_s,
                                      .end_s = event->time_s,
                                      .is_apart = r->computed_s > 0,
                                      .prefill_worker = r->prefill_worker,
                                      .computed_s = r->computed_s,
                                      .prompt_tokens = q->num_prompt_tokens,
                                      .hit_tokens = r->hit_tokens,
                                      .believed_tokens = r->believed_tokens});
}

void fleet_note_left_out(fleet *f, uint32_t index, double time_s)
{
    if (f->history != NULL)
        history_left_out(f->history, index, time_s);
    if (f->settings->tracks != NULL)
        tracks_left_out(f->settings->tracks, index, time_s);
}

/* It will not be served. */
static void leave_out(fleet *f, arrival *it, double time_s)
{
    f->num_left_out++;
    members_refused(f, it, time_s);
    router_done(f->routers, fleet_router_time(f, time_s), it->number, 0, true);
    arrivals_note_left_out(f->arrivals, &it->request, time_s);
    fleet_request_free(it);
}

/* Of requests whose prompt another worker computes: what differs. -1: no memory. 1: it is done. */
static int take_part_event(fleet *f, worker *w, const engine_event *event)
{
    arrival *it = event->from;
    fleet_request *request = it->note;
    arrival *rest = it;
    bool ok = true;
    switch (event->kind) {
    case ENGINE_COMPUTING:
        ok = handoffs_computing(f->handoffs, it, event->time_s);
        break;
    case ENGINE_LOADING:
        ok = handoffs_loading(f->handoffs, it, event->num_tokens, event->time_s);
        break;
    case ENGINE_ADMITTED:
        if (it->part == ARRIVAL_PREFILL)
            return 0;
        handoffs_recomputed(f->handoffs, it, event->num_tokens);
        members_admitted(f, it, event->num_tokens);
        show_admitted(f, request->worker, event->time_s);
        request->is_admitted = true;
        if (request->computed_s == 0 &&
            it->first_token_s == 0) /* no other worker computed its prompt in time */
            request->scheduled_s = event->time_s;
        break;
    case ENGINE_FIRST_TOKEN:
        if (it->part == ARRIVAL_PREFILL)
            return 0;
        note_user_token(f, it, event->time_s);
        ideal_computed(&f->ideal, &it->request, (uint32_t)(w - f->workers)); /* it has it too */
        break;
    case ENGINE_LEFT_OUT:
        ok = handoffs_left_out(f->handoffs, it, event->time_s, &rest);
        if (it->part == ARRIVAL_DECODE)
            return ok ? 0 : -1;
        fleet_note_left_out(f, request->worker, event->time_s);
        fleet_request_free(it);
        if (rest != NULL)
            leave_out(f, rest, event->time_s);
        break;
    case ENGINE_ENDED:
        if (it->part == ARRIVAL_DECODE)
            return 0;
        fleet_note_left(f, request->worker, event->time_s);
        if (f->settings->transfers.mode == TRANSFER_PULL) /* others have it from the start on */
            fleet_note_routed(f, handoffs_decode_of(f->handoffs, it), event->time_s);
        ok = handoffs_computed(f->handoffs, it, event->time_s);
        fleet_request_free(it);
        break;
    default:
        return it->part == ARRIVAL_PREFILL ? 0 : 1;
    }
    return ok ? 1 : -1;
}

static int take_event(fleet *f, worker *w, const engine_event *event)
{
    if (event->from->part != ARRIVAL_WHOLE) {
        int status = take_part_event(f, w, event);
        if (status != 0)
            return status < 0 ? fail_with("not enough memory for the transfers") : 0;
    }
    arrival *it = event->from;
    const trace_request *q = &it->request;
    replay_result *total = &f->result->total;
    switch (event->kind) {
    case ENGINE_ADDED:
        tally_id_block_size(total, q, f->num_added++ == 0);
        if (!f->ideal.has_workers) /* as a replay does: others are told when they come */
            ideal_arrived(&f->ideal, q, &it->ideal);
        return 0;
    case ENGINE_ADMITTED:
        note_admitted(f, it, event);
        return 0;
    case ENGINE_FIRST_TOKEN:
        note_first_token(f, w, it, event);
        return 0;
    case ENGINE_TOKENS: /* of asks alone */
    case ENGINE_COMPUTING:
    case ENGINE_LOADING:
        return 0;
    case ENGINE_LEFT_OUT:
        fleet_note_left_out(f, ((const fleet_request *)it->note)->worker, event->time_s);
        leave_out(f, it, event->time_s);
        return 0;
    case ENGINE_ENDED:
        total->requests++;
        members_end(f, it, event->time_s, event->num_tokens);
        router_done(f->routers, fleet_router_time(f, event->time_s), it->number, event->num_tokens,
                    false);
        write_row(f, it, event);
        note_end(f, it, event);
        arrivals_note_end(f->arrivals, q, event->time_s);
        break;
    }
    fleet_request_free(it);
    return 0;
}

static void note_kv(fleet *f, uint32_t index, const worker *w, const worker_kv *kv)
{
    const uint64_t *names = w->names + kv->first;
    if (kv->kind == ROUTER_KV_STORED)
        history_stored(f->history, index, kv->time_s, names, kv->count);
    else if (kv->kind == ROUTER_KV_REMOVED)
        history_removed(f->history, index, kv->time_s, names, kv->count);
    else
        history_cleared(f->history, index, kv->time_s);
}

static void tell_kv(fleet *f, uint32_t index)
{
    const worker *w = &f->workers[index];
    bool is_lost = f->members.of[index].failing.is_mute;
    f->result->members.lost_batches += is_lost && f->wants_kv ? w->num_kv : 0;
    for (uint32_t i = 0; i < w->num_kv && f->wants_kv; i++) {
        router_kv_event event = {.time_s = w->kv[i].time_s,
                                 .worker = index,
                                 .tier = ROUTER_GPU,
                                 .kind = w->kv[i].kind,
                                 .blocks = w->names + w->kv[i].first,
                                 .num_blocks = w->kv[i].count};
        if (is_lost)
            router_kv_lost(f->routers, &event);
        else
            router_kv(f->routers, &event);
    }
    for (uint32_t i = 0; i < w->num_kv && f->history != NULL; i++)
        note_kv(f, index, w, &w->kv[i]);
}

/* By time, then by worker; those of one worker stay in their order, which is that of memory. */
static int compare_merged(const void *a, const void *b)
{
    const merged *x = a;
    const merged *y = b;
    if (x->event->time_s != y->event->time_s)
        return x->event->time_s < y->event->time_s ? -1 : 1;
    if (x->worker != y->worker)
        return x->worker < y->worker ? -1 : 1;
    return x->event < y->event ? -1 : x->event > y->event;
}

/* By time, then by worker; those of one worker stay in their order. */
static int compare_asks(const void *a, const void *b)
{
    const merged_ask *x = a;
    const merged_ask *y = b;
    if (x->ask->time_s != y->ask->time_s)
        return x->ask->time_s < y->ask->time_s ? -1 : 1;
    if (x->worker != y->worker)
        return x->worker < y->worker ? -1 : 1;
    return x->ask < y->ask ? -1 : x->ask > y->ask;
}

/* What workers ask of the shared tier. */
static int merge_asks(fleet *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; f->shared != NULL && i < f->num_going; i++) {
        const shared_kv *s = &f->workers[f->going[i]].shared;
        for (uint32_t k = 0; k < s->num_asks; k++) {
            if (!grow(&f->asks, n, &f->asks_capacity, UINT32_MAX, sizeof *f->asks))
                return fail_with("not enough memory");
            f->asks[n++] = (merged_ask){.ask = &s->asks[k], .worker = f->going[i]};
        }
    }
    if (f->num_going > 1 && n > 1)
        qsort(f->asks, n, sizeof *f->asks, compare_asks);
    for (uint32_t i = 0; i < n; i++)
        if (!shared_moves_ask(f->shared, f->asks[i].worker, f->asks[i].ask))
            return fail_with("not enough memory for the transfers of the shared tier");
    return 0;
}

int fleet_merge(fleet *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->num_going; i++) {
        worker *w = &f->workers[f->going[i]];
        if (w->status != 0)
            return fail_with("%s", w->why);
        tell_kv(f, f->going[i]);
        for (uint32_t k = 0; k < w->engine.num_events; k++) {
            if (!grow(&f->merged, n, &f->merged_capacity, UINT32_MAX, sizeof *f->merged))
                return fail_with("not enough memory");
            f->merged[n++] = (merged){.event = &w->engine.events[k], .worker = f->going[i]};
        }
    }
    if (f->num_going > 1)
        qsort(f->merged, n, sizeof *f->merged, compare_merged);
    for (uint32_t i = 0; i < n; i++)
        if (take_event(f, &f->workers[f->merged[i].worker], f->merged[i].event) != 0)
            return -1;
    if (merge_asks(f) != 0)
        return -1;
    for (uint32_t i = 0; i < f->num_going; i++)
        worker_taken(&f->workers[f->going[i]]);
    return 0;
}

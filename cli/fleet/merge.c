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
    fprintf(out, "%llu,%llu,%llu,%u,%u,%.6f,%.6f,%.6f,%.6f,%u,%u,%u,%u,%.3f,%s,%.3f,%u\n",
            (unsigned long long)it->number + 1, (unsigned long long)q->line,
            (unsigned long long)q->session, q->turn, request->worker, it->time_s,
            request->scheduled_s, request->first_token_s, end->time_s, q->num_prompt_tokens,
            end->num_tokens, request->hit_tokens, request->believed_tokens,
            (request->first_token_s - it->time_s) * 1e3, tpot, (end->time_s - it->time_s) * 1e3,
            request->num_back);
}

static void note_first_token(fleet *f, worker *w, arrival *it, const engine_event *event)
{
    fleet_request *request = it->note;
    bool is_again = it->first_token_s > 0;
    members_first_token(f, it, event->time_s, is_again);
    if (!is_again) {
        it->first_token_s = request->first_token_s = event->time_s;
        f->result->believed_tokens += request->believed_tokens;
        tally_ideal(w->engine.result, it);
    }
    ideal_computed(&f->ideal, &it->request, request->worker);
    router_first_token(f->routers, fleet_router_time(f, event->time_s), it->number,
                       request->hit_tokens);
}

static void note_admitted(fleet *f, arrival *it, const engine_event *event)
{
    fleet_request *request = it->note;
    f->num_admitted++;
    request->is_admitted = true;
    request->hit_tokens = event->num_tokens;
    members_admitted(f, it);
    if (it->first_token_s > 0) /* its prompt counted before a crash */
        return;
    request->scheduled_s = event->time_s;
    it->ideal.losses = (ideal_losses){0};
    ideal_admitted(
        &f->ideal, &it->request,
        &(ideal_hit){.tokens = event->num_tokens,
                     .block_size = f->engine.block_size,
                     .worker = request->worker,
                     .believed_tokens = f->ideal.has_workers ? request->believed_tokens : 0},
        &it->ideal);
}

static void take_event(fleet *f, worker *w, const engine_event *event)
{
    arrival *it = event->from;
    const trace_request *q = &it->request;
    replay_result *total = &f->result->total;
    switch (event->kind) {
    case ENGINE_ADDED:
        tally_id_block_size(total, q, f->num_added++ == 0);
        if (!f->ideal.has_workers) /* as a replay does: others are told when they come */
            ideal_arrived(&f->ideal, q, &it->ideal);
        return;
    case ENGINE_ADMITTED:
        note_admitted(f, it, event);
        return;
    case ENGINE_FIRST_TOKEN:
        note_first_token(f, w, it, event);
        return;
    case ENGINE_TOKENS: /* of asks alone */
        return;
    case ENGINE_LEFT_OUT:
        f->num_left_out++;
        members_refused(f, it, event->time_s);
        router_done(f->routers, fleet_router_time(f, event->time_s), it->number, 0, true);
        arrivals_note_left_out(f->arrivals, q, event->time_s);
        break;
    case ENGINE_ENDED:
        total->requests++;
        members_end(f, it, event->time_s, event->num_tokens);
        router_done(f->routers, fleet_router_time(f, event->time_s), it->number, event->num_tokens,
                    false);
        write_row(f, it, event);
        arrivals_note_end(f->arrivals, q, event->time_s);
        break;
    }
    fleet_request_free(it);
}

static void tell_kv(fleet *f, uint32_t index)
{
    const worker *w = &f->workers[index];
    bool is_lost = f->members.of[index].failing.is_mute;
    f->result->members.lost_batches += is_lost ? w->num_kv : 0;
    for (uint32_t i = 0; i < w->num_kv; i++) {
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
        take_event(f, &f->workers[f->merged[i].worker], f->merged[i].event);
    for (uint32_t i = 0; i < f->num_going; i++)
        worker_taken(&f->workers[f->going[i]]);
    return 0;
}

#include "fleet_state.h"
#include "output/failure.h"
#include "output/grown.h"

#include <string.h>

/* The hashes of its whole blocks, and their names. The scheduler gets the hashes, so that no prompt
 * is hashed twice. False: no memory. */
static bool name_blocks(fleet *f, arrival *it, fleet_request *request)
{
    const replay_settings *s = &f->engine;
    uint32_t num_tokens = it->request.num_prompt_tokens;
    uint32_t num_hashes = num_tokens / s->hash_block_size;
    uint32_t num_blocks = num_tokens / s->block_size;
    uint32_t step = s->block_size / s->hash_block_size;
    size_t num_new = 0;
    if (num_tokens >= f->workers[0].engine.max_model_len)
        return true; /* no worker takes it */
    request->hashes = malloc((size_t)num_hashes * f->digest_bytes + 1);
    request->blocks = malloc(num_blocks * sizeof *request->blocks + 1);
    if (request->hashes == NULL || request->blocks == NULL)
        return false;
    engine_fill_prompt(&f->own, it);
    size_t bytes = quire_chain_bytes(f->hasher);
    if (quire_chain_init(f->hasher, f->chain, bytes, &f->chain) != QUIRE_OK ||
        quire_chain_append(f->hasher, f->chain, f->own.tokens, num_tokens, NULL, request->hashes,
                           num_hashes, &num_new) != QUIRE_OK)
        return false;
    request->num_hashes = num_hashes;
    for (uint32_t i = 0; i < num_blocks; i++)
        memcpy(&request->blocks[i],
               request->hashes + ((size_t)(i + 1) * step - 1) * f->digest_bytes,
               sizeof *request->blocks);
    return true;
}

double fleet_router_time(fleet *f, double time_s)
{
    f->told_s = time_s > f->told_s ? time_s : f->told_s;
    return f->told_s;
}

/* It will not be served. */
static void refuse(fleet *f, arrival *it)
{
    f->result->refused++;
    f->num_left_out++;
    members_refused(f, it, f->now_s);
    arrivals_note_left_out(f->arrivals, &it->request, f->now_s);
    fleet_request_free(it);
}

static int keep_waiting(fleet *f, arrival *it)
{
    f->result->waited++;
    if (!grow(&f->waiting, f->num_waiting, &f->waiting_capacity, UINT32_MAX, sizeof *f->waiting))
        return fail_with("not enough memory for the requests that wait");
    f->waiting[f->num_waiting++] = it;
    return 0;
}

static int send(fleet *f, arrival *it, const router_answer *answer)
{
    fleet_request *request = it->note;
    uint32_t w = answer->worker;
    request->worker = w;
    request->is_routed = true;
    request->believed_tokens = answer->believed_blocks * f->engine.block_size;
    f->result->routed[w]++;
    free(request->blocks);
    request->blocks = NULL;
    if (!worker_give(&f->workers[w], it, f->now_s))
        return fail_with("not enough memory for the requests that wait");
    f->next_s[w] = worker_next_s(&f->workers[w]);
    if (f->wants_loads && !f->members.of[w].failing.is_hidden)
        f->loads[w] = worker_load(&f->workers[w]);
    f->quiet_s[w] = worker_quiet_s(&f->workers[w]);
    return 0;
}

static int route(fleet *f, arrival *it)
{
    const trace_request *q = &it->request;
    fleet_request *request = it->note;
    router_answer answer;
    router_request ask = {
        .number = it->number,
        .time_s = fleet_router_time(f, f->now_s),
        .arrival_s = it->time_s,
        .session = q->session,
        .blocks = request->blocks,
        .num_blocks = request->blocks != NULL ? q->num_prompt_tokens / f->engine.block_size : 0,
        .block_size = f->engine.block_size,
        .num_prompt_tokens = q->num_prompt_tokens,
        .num_output_tokens = q->num_output_tokens,
        .priority = q->priority};
    f->asking = request;
    router_choose(f->routers, &ask, f->loads, &answer);
    if (answer.action == ROUTER_ROUTE)
        return send(f, it, &answer);
    if (answer.action == ROUTER_WAIT)
        return keep_waiting(f, it);
    refuse(f, it);
    return 0;
}

int fleet_route_again(fleet *f, arrival *it)
{
    if (f->wants_blocks && !name_blocks(f, it, it->note)) {
        fleet_request_free(it);
        return fail_with("not enough memory for the requests that wait");
    }
    return route(f, it);
}

/* A request has come. */
static int take_arrival(fleet *f, arrival *it)
{
    replay_result *total = &f->result->total;
    fleet_request *request = calloc(1, sizeof *request);
    if (request != NULL)
        request->has_follower = arrivals_may_follow(f->arrivals, &it->request);
    it->note = request;
    bool ok = request != NULL && (!f->wants_blocks || name_blocks(f, it, request));
    if (!ok) {
        fleet_request_free(it);
        return fail_with("not enough memory for the requests that wait");
    }
    if (total->arrived == 0)
        total->first_arrival_s = it->time_s;
    total->arrived++;
    total->last_arrival_s = it->time_s;
    total->waiting_at_last = total->arrived - f->num_left_out - f->num_admitted;
    total->ended_at_last = total->requests;
    if (total->waiting_at_last > total->max_waiting) {
        total->max_waiting = total->waiting_at_last;
        total->max_waiting_s = it->time_s;
    }
    if (f->ideal.has_workers)
        ideal_arrived(&f->ideal, &it->request, &it->ideal);
    return route(f, it);
}

int fleet_route_arrivals(fleet *f)
{
    for (;;) {
        arrival *it = arrivals_take(f->arrivals, f->now_s);
        if (it == NULL)
            break;
        if (take_arrival(f, it) != 0)
            return -1;
    }
    if (arrivals_no_memory(f->arrivals))
        return fail_with("not enough memory for the requests that wait");
    return 0;
}

/* Requests that wait in the routers, and may now go. */
int fleet_route_waiting(fleet *f)
{
    uint64_t number;
    while (f->num_waiting > 0 &&
           router_next_waiting(f->routers, fleet_router_time(f, f->now_s), &number)) {
        uint32_t i = 0;
        while (i < f->num_waiting && f->waiting[i]->number != number)
            i++;
        if (i == f->num_waiting)
            return fail_with("the router asks for request %llu, which does not wait",
                             (unsigned long long)number + 1);
        arrival *it = f->waiting[i];
        memmove(&f->waiting[i], &f->waiting[i + 1], (--f->num_waiting - i) * sizeof *f->waiting);
        if (route(f, it) != 0)
            return -1;
    }
    return 0;
}

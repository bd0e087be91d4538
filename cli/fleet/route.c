#include "fleet_state.h"
#include "output/failure.h"
#include "output/grown.h"

#include <string.h>

/* Hashes of prompts that wait at all workers, about. */
enum { KEPT_BYTES = 16 << 20 };

/* Whether routers want to know its blocks, and a worker takes it. */
static bool has_names(const fleet *f, const arrival *it)
{
    return f->wants_blocks && it->request.num_prompt_tokens < f->max_model_len;
}

bool fleet_is_hashed(const fleet *f, const arrival *it)
{
    return f->hashed.of[it->number % f->hashed.count] == it->number + 1;
}

fleet_asking fleet_asking_of(const fleet *f, const arrival *it)
{
    const fleet_hashed *h = &f->hashed;
    uint64_t place = it->number % h->count;
    uint32_t num_tokens = it->request.num_prompt_tokens;
    return (fleet_asking){.hashes = h->hashes + place * h->hash_bytes,
                          .blocks = h->names + place * h->num_names,
                          .num_hashes = num_tokens / f->engine.hash_block_size,
                          .num_blocks = num_tokens / f->engine.block_size};
}

/* The hashes of its whole blocks, and their names, into their place. False: the hasher failed. */
static bool hash_prompt(fleet *f, const arrival *it)
{
    fleet_hashed *h = &f->hashed;
    uint64_t place = it->number % h->count;
    unsigned char *hashes = h->hashes + place * h->hash_bytes;
    uint64_t *names = h->names + place * h->num_names;
    fleet_asking asking = fleet_asking_of(f, it);
    uint32_t step = f->engine.block_size / f->engine.hash_block_size;
    size_t num_new = 0;
    if (fleet_is_hashed(f, it))
        return true;
    h->of[place] = 0;
    engine_prompt_fill(&f->own, it);
    size_t bytes = quire_chain_bytes(f->hasher);
    if (quire_chain_init(f->hasher, f->chain, bytes, &f->chain) != QUIRE_OK ||
        quire_chain_append(f->hasher, f->chain, f->own.tokens, it->request.num_prompt_tokens, NULL,
                           hashes, asking.num_hashes, &num_new) != QUIRE_OK)
        return false;
    for (uint32_t i = 0; i < asking.num_blocks; i++)
        memcpy(&names[i], hashes + ((size_t)(i + 1) * step - 1) * f->digest_bytes, sizeof *names);
    h->of[place] = it->number + 1;
    return true;
}

/* Not where workers look at the prompt that is there, nor turns that wait for others: these may
 * come much later. */
void fleet_look_ahead(fleet *f)
{
    const arrival *it;
    while ((it = arrivals_read_on(f->arrivals)) != NULL) {
        bool is_free = (f->coming_places >> it->number % f->hashed.count & 1) == 0;
        bool waits = it->request.is_closed_loop && it->request.turn > 0;
        if (is_free && !waits && has_names(f, it))
            (void)hash_prompt(f, it); /* what fails here fails where it is routed */
    }
}

/* What routers are told of its blocks. False: the hasher failed. */
static bool name_blocks(fleet *f, const arrival *it)
{
    f->asking = (fleet_asking){0};
    if (!has_names(f, it))
        return true;
    if (!hash_prompt(f, it))
        return false;
    f->asking = fleet_asking_of(f, it);
    return true;
}

/* Whether few prompts are ahead of it at its worker: the hashes of many would be most of the
 * memory. */
static bool is_soon(const fleet *f, const worker *w)
{
    uint64_t tokens = w->engine.prefill_left + w->outside_tokens;
    uint64_t bytes = tokens / f->engine.hash_block_size * f->digest_bytes;
    return w->inbox.count == 0 || bytes < KEPT_BYTES / f->settings->num_workers;
}

/* So that the worker that adds it soon does not hash it again. False: no memory. */
static bool keep_hashes(const fleet *f, fleet_request *request, uint32_t index)
{
    size_t bytes = (size_t)f->asking.num_hashes * f->digest_bytes;
    if (bytes == 0 || !is_soon(f, &f->workers[index]))
        return true;
    request->hashes = malloc(bytes);
    if (request->hashes == NULL)
        return false;
    memcpy(request->hashes, f->asking.hashes, bytes);
    request->num_hashes = f->asking.num_hashes;
    request->hash_bytes = f->digest_bytes;
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
    ((fleet_request *)it->note)->has_ideal = false; /* later ones may be served before it */
    if (!grow(&f->waiting, f->num_waiting, &f->waiting_capacity, UINT32_MAX, sizeof *f->waiting))
        return fail_with("not enough memory for the requests that wait");
    f->waiting[f->num_waiting++] = it;
    return 0;
}

void fleet_hear(fleet *f, uint32_t w)
{
    if (f->members.of[w].failing.is_hidden)
        return;
    f->loads[w] = worker_load(&f->workers[w]);
    f->reports[w] = f->workers[w].report;
}

void fleet_look_at(fleet *f, uint32_t w)
{
    f->next_s[w] = worker_next_s(&f->workers[w]);
    if (f->wants_loads)
        fleet_hear(f, w);
    f->quiet_s[w] = worker_quiet_s(&f->workers[w]);
}

void fleet_look_at_changed(fleet *f)
{
    uint32_t w;
    while (f->shared != NULL && (w = shared_moves_take_changed(f->shared)) != UINT32_MAX)
        fleet_look_at(f, w);
}

void fleet_note_routed(fleet *f, uint32_t index, double time_s)
{
    if (f->history != NULL)
        history_routed(f->history, index, time_s);
    if (f->settings->tracks != NULL)
        tracks_routed(f->settings->tracks, index, time_s);
}

static int send(fleet *f, arrival *it, const router_answer *answer)
{
    fleet_request *request = it->note;
    uint32_t w = answer->worker;
    request->worker = w;
    request->is_routed = true;
    request->believed_tokens = answer->believed_blocks * f->engine.block_size;
    f->result->routed[w]++;
    uint32_t prefill = answer->prefill_worker;
    bool is_apart = prefill != ROUTER_NONE;
    bool ok = keep_hashes(f, request, is_apart ? prefill : w);
    fleet_note_routed(f, is_apart ? prefill : w, f->now_s);
    if (is_apart && f->settings->transfers.mode != TRANSFER_PULL)
        fleet_note_routed(f, w, f->now_s); /* which takes blocks at once */
    if (ok && is_apart)
        ok = handoffs_begin(f->handoffs, it, prefill, w, f->now_s);
    else if (ok)
        ok = worker_give(&f->workers[w], it, f->now_s);
    if (!ok)
        return fail_with("not enough memory for the requests that wait");
    fleet_look_at(f, w);
    if (prefill != ROUTER_NONE) {
        f->result->routed[prefill]++;
        fleet_look_at(f, prefill);
    }
    return 0;
}

static void note_decision(fleet *f, const router_request *ask, const router_answer *answer)
{
    const fleet_settings *s = f->settings;
    if (s->why != NULL && s->num_workers > 1) /* one engine writes its own */
        decisions_print(s->why, f->routers, ask, answer);
    if (f->history != NULL)
        history_decided(f->history, f->routers, ask, answer);
}

static int route(fleet *f, arrival *it, bool is_new)
{
    const trace_request *q = &it->request;
    router_answer answer;
    if (!name_blocks(f, it))
        return fail_with("the prompt of request %llu cannot be hashed",
                         (unsigned long long)it->number + 1);
    if (is_new && f->history != NULL)
        history_arrived(f->history, f->now_s, it->number, f->asking.blocks, f->asking.num_blocks);
    router_request ask = {.number = it->number,
                          .time_s = fleet_router_time(f, f->now_s),
                          .arrival_s = it->time_s,
                          .session = q->session,
                          .blocks = f->asking.blocks,
                          .num_blocks = f->asking.num_blocks,
                          .block_size = f->engine.block_size,
                          .num_prompt_tokens = q->num_prompt_tokens,
                          .num_output_tokens = q->num_output_tokens,
                          .priority = q->priority};
    router_choose(f->routers, &ask, f->loads, &answer);
    note_decision(f, &ask, &answer);
    if (answer.action == ROUTER_ROUTE)
        return send(f, it, &answer);
    if (answer.action == ROUTER_WAIT)
        return keep_waiting(f, it);
    refuse(f, it);
    return 0;
}

int fleet_route_again(fleet *f, arrival *it)
{
    return route(f, it, false);
}

/* A request has come. */
static int take_arrival(fleet *f, arrival *it)
{
    replay_result *total = &f->result->total;
    fleet_request *request = calloc(1, sizeof *request);
    if (request != NULL)
        request->prefill_worker = ROUTER_NONE;
    if (request != NULL)
        request->has_follower = arrivals_may_follow(f->arrivals, &it->request);
    it->note = request;
    if (request == NULL) {
        fleet_request_free(it);
        return fail_with("not enough memory for the requests that wait");
    }
    if (total->arrived == 0)
        total->first_arrival_s = it->time_s;
    total->arrived++;
    total->last_arrival_s = it->time_s;
    uint64_t gone = f->num_left_out + f->num_admitted; /* both, if only the decoder left it out */
    total->waiting_at_last = total->arrived > gone ? total->arrived - gone : 0;
    total->ended_at_last = total->requests;
    if (total->waiting_at_last > total->max_waiting) {
        total->max_waiting = total->waiting_at_last;
        total->max_waiting_s = it->time_s;
    }
    if (f->ideal.has_workers) {
        ideal_arrived(&f->ideal, &it->request, &it->ideal);
        request->has_ideal = it->request.id_block_size > 0 && !ideal_gave_up(&f->ideal);
    }
    return route(f, it, true);
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
        if (route(f, it, false) != 0)
            return -1;
    }
    return 0;
}

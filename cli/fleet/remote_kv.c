#include "remote_kv.h"
#include "output/grown.h"
#include "worker.h"

#include <stdlib.h>

static arrival *arrival_of(const remote_kv *r, quire_req req)
{
    return engine_live(r->engine, req)->from;
}

static remote_part *part_of(const arrival *it)
{
    return &((fleet_request *)it->note)->remote;
}

/* ---- the connector ------------------------------------------------------------- */

/* All of the prompt that the worker has not, once: a request that begins again after a failed
 * transfer or a preemption computes what it lacks. */
static int find_tokens(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                       uint32_t *is_async)
{
    const arrival *it = arrival_of(user, req);
    *num_external = 0;
    *is_async = 0;
    if (it->part != ARRIVAL_DECODE || part_of(it)->is_begun ||
        num_local >= it->request.num_prompt_tokens)
        return QUIRE_OK;
    part_of(it)->local_tokens = num_local;
    *num_external = it->request.num_prompt_tokens - num_local;
    *is_async = 1;
    return QUIRE_OK;
}

static void note_blocks(void *user, quire_req req, const quire_block_span *blocks,
                        uint32_t num_external)
{
    remote_kv *r = user;
    const engine *e = r->engine;
    arrival *it = arrival_of(r, req);
    remote_part *p = part_of(it);
    (void)blocks;
    if (it->part != ARRIVAL_DECODE || p->is_begun)
        return;
    p->is_begun = true;
    p->req = req;
    p->start_s = e->free_s > e->now_s ? e->free_s : e->now_s; /* the workers hear it then */
    r->num_coming--;
    r->num_loading += num_external > 0;
    engine_tell(r->engine, ENGINE_LOADING, it, num_external);
}

static int keep_blocks(void *user, quire_req req, const quire_block_span *blocks)
{
    remote_kv *r = user;
    const arrival *it = arrival_of(r, req);
    (void)blocks;
    if (it->part != ARRIVAL_PREFILL || r->is_leaving)
        return 0;
    part_of(it)->req = req;
    r->num_held++;
    return 1;
}

void remote_kv_open(remote_kv *r, engine *e, bool is_layered, quire_connector *connector)
{
    *r = (remote_kv){.engine = e, .is_layered = is_layered};
    *connector = (quire_connector)QUIRE_CONNECTOR_INIT;
    connector->user = r;
    connector->get_num_new_matched_tokens = find_tokens;
    connector->update_state_after_alloc = note_blocks;
    connector->request_finished = keep_blocks;
    connector->requires_kv_delivery = 1;
    connector->is_kv_consumer = 1;
}

void remote_kv_close(remote_kv *r)
{
    free(r->received.reqs);
    free(r->failed.reqs);
    free(r->sent.reqs);
}

/* ---- requests ------------------------------------------------------------------ */

static bool is_counted(const remote_kv *r, const arrival *it)
{
    return it->part == ARRIVAL_DECODE || (it->part == ARRIVAL_PREFILL && r->is_layered);
}

void remote_kv_given(remote_kv *r, const arrival *it)
{
    r->num_coming += is_counted(r, it);
}

void remote_kv_left_out(remote_kv *r, const arrival *it)
{
    r->num_coming -= is_counted(r, it) && !part_of(it)->is_begun;
}

void remote_kv_crash(remote_kv *r)
{
    r->is_leaving = true;
    r->failed.count = 0; /* nobody is left to compute it */
}

void remote_kv_crashed(remote_kv *r)
{
    r->is_leaving = false;
    r->num_coming = r->num_loading = r->num_held = 0;
}

void remote_kv_began(remote_kv *r)
{
    engine *e = r->engine;
    if (!r->is_layered || r->num_coming == 0)
        return;
    const flight *f = &e->flights[(e->first_flight + e->num_flights - 1) % REPLAY_BATCHES];
    for (uint32_t i = engine_next_live(e, 0); i < e->num_lives; i = engine_next_live(e, i + 1)) {
        const live *l = &e->lives[i];
        if (l->from->part != ARRIVAL_PREFILL || l->prefill_left > 0)
            continue;
        remote_part *p = part_of(l->from);
        if (p->is_begun)
            continue;
        p->is_begun = true;
        p->start_s = f->start_s;
        p->end_s = f->end_s;
        r->num_coming--;
        engine_tell(e, ENGINE_COMPUTING, l->from, 0);
    }
}

/* ---- what the fleet says ---------------------------------------------------------- */

static bool append(remote_list *list, quire_req req)
{
    if (!grow(&list->reqs, list->count, &list->capacity, UINT32_MAX, sizeof *list->reqs))
        return false;
    list->reqs[list->count++] = req;
    return true;
}

bool remote_kv_received(remote_kv *r, quire_req req, bool has_failed)
{
    r->num_loading--;
    return append(&r->received, req) && (!has_failed || append(&r->failed, req));
}

bool remote_kv_sent(remote_kv *r, quire_req req)
{
    r->num_held--;
    return append(&r->sent, req);
}

/* The lists stay as they are until the fleet speaks again, after the update. */
void remote_kv_answer(void *user, quire_model_output *output)
{
    remote_kv *r = user;
    output->finished_recving = r->received.reqs;
    output->num_finished_recving = r->received.count;
    output->failed_recving = r->failed.reqs;
    output->num_failed_recving = r->failed.count;
    output->finished_sending = r->sent.reqs;
    output->num_finished_sending = r->sent.count;
    r->received.count = 0;
    r->failed.count = 0;
    r->sent.count = 0;
}

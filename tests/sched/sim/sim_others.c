/* sched/sim/sim_others.c - the connectors and the grammars of the simulation: they answer by
 * chance,
 * and remember what they said. */
#include "sched/sim/sim.h"

static sim_request *request_of(sim *s, quire_req req)
{
    sim_request *r = s->by_index[quire_req_index(req)];
    if (s->forking != NULL) {
        r = s->forking;
        r->req = req;
    }
    SIM_CHECK(s, r != NULL && r->req == req, "a callback for a request that is not there", req, 0);
    return r;
}

static void copy_rows(const sim *s, sim_row *rows, const quire_block_span *blocks)
{
    for (uint32_t g = 0; g < s->mix.num_groups; g++) {
        rows[g].count = blocks[g].count;
        if (blocks[g].count > 0)
            memcpy(rows[g].ids, blocks[g].ids, blocks[g].count * sizeof *blocks[g].ids);
    }
}

/* ---- connector ------------------------------------------------------------- */

static int get_matched(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                       uint32_t *is_async)
{
    sim *s = user;
    sim_request *r = request_of(s, req);
    const sim_mix *m = &s->mix;
    if (r->retries > 0 && sim_chance(s, 70)) {
        r->retries--;
        return QUIRE_RETRY;
    }
    SIM_CHECK(s, num_local < r->num_told, "a hit of the whole prompt", num_local, r->num_told);
    if (sim_chance(s, 3))
        sim_cut_prompt(s, r);
    if (num_local >= r->num_told) { /* it will be looked up again */
        *num_external = 0;
        return QUIRE_OK;
    }
    bool loads = (m->loads_sync || m->loads_async) && sim_chance(s, 60);
    r->asked_local = num_local;
    r->asked_async = m->loads_async && (!m->loads_sync || sim_chance(s, 50));
    *is_async = r->asked_async;
    *num_external = loads ? sim_below(s, r->num_told - num_local + 1) : 0;
    return QUIRE_OK;
}

static void after_alloc(void *user, quire_req req, const quire_block_span *blocks,
                        uint32_t num_external)
{
    sim *s = user;
    sim_request *r = request_of(s, req);
    if (num_external == 0)
        return;
    SIM_CHECK(s, !r->load.is_on, "a second load", r->number, 0);
    r->load = (sim_transfer){.is_on = true,
                             .step = s->tally.steps,
                             .is_async = r->asked_async,
                             .first = r->asked_local,
                             .end = r->asked_local + num_external,
                             .steps_left = sim_between(s, 1, 4)};
    copy_rows(s, r->load.rows, blocks);
    s->tally.loads++;
}

static int request_finished(void *user, quire_req req, const quire_block_span *blocks)
{
    sim *s = user;
    sim_request *r = request_of(s, req);
    if (!s->mix.sends || r->load.is_on || !sim_chance(s, 50))
        return 0;
    r->sending = (sim_transfer){.is_on = true, .steps_left = sim_between(s, 1, 6)};
    copy_rows(s, r->sending.rows, blocks);
    uint32_t size = s->mix.page;
    r->sending.tags = calloc((size_t)SIM_GROUPS * SIM_ROW * size, sizeof(uint64_t));
    for (uint32_t g = 0; g < s->mix.num_groups; g++)
        for (uint32_t i = 0; i < r->sending.rows[g].count; i++)
            memcpy(r->sending.tags + ((size_t)g * SIM_ROW + i) * size,
                   s->pages + (size_t)r->sending.rows[g].ids[i] * size, size * sizeof(uint64_t));
    s->tally.sendings++;
    return 1;
}

/* It holds some of the blocks for a few steps. */
uint32_t sim_request_preempted(void *user, quire_req req, const quire_block_span *blocks,
                               uint32_t num_tokens, int is_urgent)
{
    sim *s = user;
    const sim_request *r = request_of(s, req);
    quire_block_span own[SIM_GROUPS];
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(s->sched));
    SIM_CHECK(s, num_tokens > 0 && num_tokens < r->num_told + 1, "more than its tokens are saved",
              num_tokens, r->num_told);
    (void)quire_sched_get_blocks(s->sched, req, own);
    for (uint32_t g = 0; g < s->mix.num_groups; g++) {
        SIM_CHECK(s, own[g].count == blocks[g].count && own[g].ids == blocks[g].ids,
                  "other blocks than the request has", own[g].count, blocks[g].count);
        for (uint32_t i = 0; i < blocks[g].count && s->num_held < SIM_HELD; i++)
            if (blocks[g].ids[i] != QUIRE_NULL_BLOCK && sim_chance(s, is_urgent ? 20 : 70) &&
                quire_pool_hold(pool, &blocks[g].ids[i], 1) == QUIRE_OK)
                s->held[s->num_held++] = blocks[g].ids[i];
    }
    s->tally.saves++;
    return sim_chance(s, 30) ? 0 : sim_below(s, num_tokens + 2);
}

void sim_let_go(sim *s, bool all)
{
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(s->sched));
    uint32_t left = 0;
    for (uint32_t i = 0; i < s->num_held; i++) {
        if (!all && !sim_chance(s, 40)) {
            s->held[left++] = s->held[i];
            continue;
        }
        int err = quire_pool_let_go(pool, &s->held[i], 1, sim_below(s, 2));
        SIM_CHECK(s, err == QUIRE_OK, "a block that is not held any more", s->held[i], err);
    }
    s->num_held = left;
}

static int reset_cache(void *user)
{
    (void)user;
    return 0;
}

static void *build_meta(void *user, const struct quire_step *step)
{
    sim *s = user;
    SIM_CHECK(s, step->num_reqs <= SIM_SEQS, "a step of too many requests", step->num_reqs, 0);
    for (uint32_t i = 0; step->num_swap_out > 0 && i < s->mix.max_requests; i++) {
        const sim_request *r = &s->requests[i];
        SIM_CHECK(s, !r->is_there || !r->load.is_on || r->load.step != s->tally.steps,
                  "a load that begins before the swap-outs of its step", r->number, i);
    }
    return s;
}

/* ---- encoder connector ------------------------------------------------------- */

static void begin_inputs(const sim *s, sim_request *r)
{
    if (r->encoder_step != s->tally.steps)
        r->told_inputs = r->found_inputs = 0;
    r->encoder_step = s->tally.steps;
}

static int has_item(void *user, quire_req req, uint32_t input)
{
    sim *s = user;
    sim_request *r = request_of(s, req);
    SIM_CHECK(s, input < r->num_images, "no such input", r->number, input);
    begin_inputs(s, r);
    bool has = sim_chance(s, 40);
    r->found_inputs &= ~(UINT64_C(1) << input); /* it may be asked twice, and answer otherwise */
    r->found_inputs |= (uint64_t)has << input;
    return has;
}

static void after_encoder_alloc(void *user, quire_req req, uint32_t input)
{
    sim *s = user;
    sim_request *r = request_of(s, req);
    begin_inputs(s, r);
    SIM_CHECK(s, (r->told_inputs >> input & 1) == 0, "an input that is told twice", input, 0);
    r->told_inputs |= UINT64_C(1) << input;
    if ((r->found_inputs >> input & 1) != 0 && input < r->num_images) {
        s->is_found[r->images[input].name] = true;
        s->tally.found++;
    }
}

/* ---- grammar --------------------------------------------------------------- */

static int is_ready(void *user, quire_req req)
{
    sim_request *r = request_of(user, req);
    if (r->grammar_asks == 0)
        return 1;
    r->grammar_asks--;
    return 0;
}

static int should_advance(void *user, quire_req req)
{
    (void)request_of(user, req);
    return 1;
}

bool sim_grammar_refuses(const sim_request *r, uint32_t num_tokens)
{
    return r->is_grammar && sim_mix64(r->tags[num_tokens - 1], 77) % 61 == 0;
}

/* The tokens are those behind what was told. */
static int accept_tokens(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    sim *s = user;
    sim_request *r = request_of(s, req);
    bool same = n > 0 && r->num_told + n <= r->num_tokens &&
                memcmp(r->tokens + r->num_told, tokens, n * sizeof *tokens) == 0;
    SIM_CHECK(s, same, "a grammar got other tokens than were sampled", r->number, n);
    return same && !sim_grammar_refuses(r, r->num_told + n);
}

static uint32_t validate_tokens(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    (void)tokens;
    (void)request_of(user, req);
    return sim_below(user, n + 1);
}

void sim_fill_others(sim *s)
{
    s->connector = (quire_connector){.size = sizeof(quire_connector),
                                     .user = s,
                                     .get_num_new_matched_tokens = get_matched,
                                     .update_state_after_alloc = after_alloc,
                                     .build_meta = build_meta,
                                     .request_finished = request_finished,
                                     .reset_cache = reset_cache};
    s->encoder_connector =
        (quire_encoder_connector){.size = sizeof(quire_encoder_connector),
                                  .user = s,
                                  .has_item = has_item,
                                  .update_state_after_alloc = after_encoder_alloc,
                                  .build_meta = build_meta};
    s->grammar = (quire_grammar){.size = sizeof(quire_grammar),
                                 .user = s,
                                 .is_ready = is_ready,
                                 .should_advance = should_advance,
                                 .accept_tokens = accept_tokens,
                                 .validate_tokens = validate_tokens};
}

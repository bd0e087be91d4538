/* sched/sim/sim_check.c - what must hold in every step and between them, and at the end. */
#include "sched/sim/sim.h"

#include "sched/sched.h"

sim_request *sim_find(sim *s, quire_req req)
{
    uint32_t index = quire_req_index(req);
    sim_request *r = index < SIM_SLOTS ? s->by_index[index] : NULL;
    if (r == NULL || r->req != req || r->has_ended) {
        sim_fail(s, "a request that is not there", req, 0);
        return NULL;
    }
    return r;
}

/* ---- the step -------------------------------------------------------------- */

static void check_ends(sim *s, const quire_step *step)
{
    SIM_CHECK(s, step->num_finished == s->num_ends, "another number of ends", step->num_finished,
              s->num_ends);
    for (uint32_t i = 0; i < step->num_finished && !s->has_failed; i++) {
        uint32_t at = 0;
        while (at < s->num_ends && s->ends[at] != step->finished[i])
            at++;
        SIM_CHECK(s, at < s->num_ends, "an end that was none, or was told twice", step->finished[i],
                  0);
        if (at < s->num_ends)
            s->ends[at] = s->ends[--s->num_ends];
    }
}

static void check_adapters(sim *s, const quire_step *step)
{
    uint32_t seen = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        const sim_request *r = s->by_index[quire_req_index(step->reqs[i])];
        count += r->lora > 0 && (seen >> r->lora & 1) == 0;
        seen |= 1u << r->lora;
    }
    SIM_CHECK(s, s->mix.max_loras == 0 || count <= s->mix.max_loras, "too many adapters", count,
              s->mix.max_loras);
}

static uint32_t image_of(const quire_bytes *name)
{
    return (uint32_t)(((const char *)name->data)[5] - '0');
}

/* What the connector has is not encoded; it was told of all inputs that got a place. */
static uint32_t check_found(sim *s, const quire_step *step, uint32_t i, const sim_request *r)
{
    uint64_t told = r->encoder_step == s->tally.steps ? r->told_inputs : 0;
    uint64_t found = told & r->found_inputs;
    uint64_t encoded = 0;
    for (uint32_t k = step->encoder_start[i]; k < step->encoder_start[i + 1]; k++)
        encoded |= UINT64_C(1) << step->encoder_inputs[k];
    SIM_CHECK(s, !s->mix.has_encoder_connector || (encoded ^ found) == told,
              "not the inputs that the connector was told of", encoded, told);
    return (uint32_t)__builtin_popcountll(found);
}

/* An encoder-decoder model encodes all of a request's input in its first step, and none later. */
static void check_encoder_inputs(sim *s, const quire_step *step)
{
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        const sim_request *r = s->by_index[quire_req_index(step->reqs[i])];
        uint32_t n = step->encoder_start[i + 1] - step->encoder_start[i];
        n += check_found(s, step, i, r);
        uint32_t expected = step->num_computed_tokens[i] == 0 ? r->num_images : 0;
        SIM_CHECK(s, n == expected, "another number of encoder inputs", n, expected);
        s->tally.encoded += n;
    }
}

/* The images that a step's tokens lie in are encoded, now or before. */
static void check_images(sim *s, const quire_step *step)
{
    if (s->mix.is_encoder_decoder) {
        check_encoder_inputs(s, step);
        return;
    }
    for (uint32_t i = 0; i < step->num_freed_encoder; i++)
        s->is_encoded[image_of(&step->freed_encoder[i])] = false;
    for (uint32_t i = 0; i < SIM_IMAGES; i++)
        s->is_encoded[i] = s->is_encoded[i] || s->is_found[i];
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        const sim_request *r = s->by_index[quire_req_index(step->reqs[i])];
        check_found(s, step, i, r);
        uint32_t first = step->num_computed_tokens[i];
        uint32_t end = first + step->num_tokens[i];
        for (uint32_t k = step->encoder_start[i]; k < step->encoder_start[i + 1]; k++) {
            SIM_CHECK(s, step->encoder_inputs[k] < r->num_images, "no such image", r->number, k);
            if (s->has_failed)
                return;
            s->is_encoded[r->images[step->encoder_inputs[k]].name] = true;
            s->tally.encoded++;
        }
        for (uint32_t k = 0; k < r->num_images; k++) {
            const sim_image *image = &r->images[k];
            bool is_needed = false;
            for (uint32_t p = image->offset; p < image->offset + image->length; p++)
                is_needed = is_needed || (p >= first && p < end &&
                                          sim_has_embed(s, image->name, p - image->offset));
            SIM_CHECK(s, !is_needed || s->is_encoded[image->name], "an image that nobody encoded",
                      r->number, k);
        }
    }
}

static void check_rows(sim *s, const sim_request *r)
{
    quire_block_span spans[SIM_GROUPS];
    quire_sched_get_blocks(s->sched, r->req, spans);
    for (uint32_t g = 0; g < s->mix.num_groups; g++) {
        SIM_CHECK(s, spans[g].count == r->rows[g].count, "the worker's row has another length",
                  r->rows[g].count, spans[g].count);
        for (uint32_t i = 0; i < spans[g].count && !s->has_failed; i++)
            SIM_CHECK(s, spans[g].ids[i] == 0 || spans[g].ids[i] == r->rows[g].ids[i],
                      "the worker's row has another block", r->number, i);
    }
}

/* With pressure the level passes the upper mark by no more than the blocks of this step's tokens,
 * unless one request runs alone. */
static void check_level(sim *s, const quire_step *step)
{
    const sim_mix *m = &s->mix;
    if (!m->use_pressure || quire_sched_get_counts(s->sched).num_running <= 1)
        return;
    uint32_t grown = 0;
    for (uint32_t i = 0; i < step->num_reqs; i++)
        for (uint32_t g = 0; g < m->num_groups; g++)
            grown += (step->num_tokens[i] + m->num_spec) / m->sizes[g] + 2 + m->num_spec;
    double level = quire_usage_level(quire_cache_get_usage(quire_sched_get_cache(s->sched)));
    double most = m->preempt_above + (double)grown / (m->num_blocks - 1);
    SIM_CHECK(s, level <= most + 1e-9, "the level is above the upper mark", (uint64_t)(level * 1e6),
              (uint64_t)(most * 1e6));
}

void sim_check_step(sim *s, const quire_step *step)
{
    check_level(s, step);
    uint32_t total = 0;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        sim_request *r = sim_find(s, step->reqs[i]);
        if (r == NULL)
            return;
        int err = quire_sched_get_req_info(s->sched, r->req, &info);
        SIM_CHECK(s, err == QUIRE_OK && info.status == QUIRE_REQ_RUNNING,
                  "a request in the step does not run", r->number, info.status);
        for (uint32_t k = 0; k < i; k++)
            SIM_CHECK(s, step->reqs[k] != r->req, "scheduled twice", r->number, i);
        SIM_CHECK(s, step->num_tokens[i] > 0, "no tokens", r->number, i);
        total += step->num_tokens[i];
        check_rows(s, r);
    }
    SIM_CHECK(s, total == step->total_tokens, "the sum of tokens", total, step->total_tokens);
    SIM_CHECK(s, total <= s->mix.budget, "over the budget", total, s->mix.budget);
    for (uint32_t i = 0; i < step->num_preempted; i++) {
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        quire_sched_get_req_info(s->sched, step->preempted[i], &info);
        sim_request *r = s->by_index[quire_req_index(step->preempted[i])];
        /* It may be admitted in the same step, after a move or (0.32) a reset, or be gone. */
        bool is_back = s->is_0_32 || (r != NULL && r->is_moved);
        SIM_CHECK(s, info.status == QUIRE_REQ_PREEMPTED || is_back, "preempted, and yet not",
                  info.status, 0);
    }
    s->tally.preempted += step->num_preempted;
    s->tally.tokens += total;
    s->tally.overtaking += s->sched->prefix.num_overtaking;
    check_ends(s, step);
    check_adapters(s, step);
    check_images(s, step);
}

/* ---- between steps --------------------------------------------------------- */

static uint32_t drafts_in_flight(const sim *s, quire_req req)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < s->num_batches; b++) {
        const sim_batch *batch = &s->batches[(s->first_batch + b) % SIM_BATCHES];
        for (uint32_t i = 0; i < batch->num_entries; i++)
            n += batch->entries[i].req == req ? batch->entries[i].num_drafts : 0;
    }
    return n;
}

static void check_request(sim *s, const sim_request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_token tokens[SIM_LEN];
    int err = quire_sched_get_req_info(s->sched, r->req, &info);
    SIM_CHECK(s, err == QUIRE_OK, "a request is gone", r->number, err);
    if (s->has_failed || r->has_ended)
        return;
    SIM_CHECK(s, info.num_tokens == r->num_told, "another number of tokens", info.num_tokens,
              r->num_told);
    SIM_CHECK(s, info.num_prompt_tokens == r->num_prompt, "another prompt", info.num_prompt_tokens,
              r->num_prompt);
    uint32_t most = info.num_tokens + info.num_output_placeholders;
    most += s->mix.is_async ? 0 : drafts_in_flight(s, r->req);
    SIM_CHECK(s, info.num_computed_tokens <= most, "computed more than there is",
              info.num_computed_tokens, most);
    if (s->has_failed)
        return;
    quire_sched_get_tokens(s->sched, r->req, 0, info.num_tokens, tokens);
    SIM_CHECK(s, memcmp(tokens, r->tokens, info.num_tokens * sizeof *tokens) == 0, "other tokens",
              r->number, 0);
}

static uint32_t place_in(const quire_req *queue, uint32_t n, quire_req req)
{
    for (uint32_t i = 0; i < n; i++)
        if (queue[i] == req)
            return i;
    return UINT32_MAX;
}

/* FCFS: swapped ones first. PRIORITY: sorted, swapped ones first among equals. */
static bool is_in_order(const sim *s, const quire_req_info *last, const quire_req_info *info)
{
    bool was_swapped = last->num_swapped_tokens > 0;
    bool is_swapped = info->num_swapped_tokens > 0;
    if (s->sched->settings.policy == QUIRE_POLICY_FCFS)
        return was_swapped || !is_swapped;
    if (info->priority != last->priority || was_swapped != is_swapped)
        return info->priority > last->priority || (info->priority == last->priority && was_swapped);
    return info->arrival_time >= last->arrival_time;
}

/* FCFS: of two that were in a queue and still are, the first stays first. */
static void check_queue(sim *s, uint32_t which)
{
    quire_req now[SIM_SLOTS];
    quire_req *before = s->queues[which - 1];
    uint32_t n = quire_sched_get_queue(s->sched, which, now, SIM_SLOTS);
    uint32_t last_place = 0;
    quire_req_info last = {
        .size = sizeof(quire_req_info), .priority = INT32_MIN, .num_swapped_tokens = 1};
    for (uint32_t i = 0; i < n && !s->has_failed; i++) {
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        uint32_t place = place_in(before, s->queue_lens[which - 1], now[i]);
        sim_request *r = sim_find(s, now[i]);
        if (r == NULL)
            return;
        quire_sched_get_req_info(s->sched, now[i], &info);
        if (!s->sched->table.waiters[quire_req_index(now[i])].is_swapped)
            info.num_swapped_tokens = 0; /* saved by the connector: it has no claim on slots */
        SIM_CHECK(s, is_in_order(s, &last, &info), "not in order", r->number, i);
        bool is_fcfs = s->sched->settings.policy == QUIRE_POLICY_FCFS;
        if (is_fcfs && place != UINT32_MAX && !r->is_session && info.num_preemptions == 0 &&
            !r->is_moved) {
            SIM_CHECK(s, place >= last_place, "overtaken", r->number, i);
            last_place = place;
        }
        last = info;
    }
    memcpy(before, now, n * sizeof *now);
    s->queue_lens[which - 1] = n;
}

void sim_check_state(sim *s)
{
    for (uint32_t i = 0; i < s->mix.max_requests && !s->has_failed; i++)
        if (s->requests[i].is_there)
            check_request(s, &s->requests[i]);
    check_queue(s, 1);
    check_queue(s, 2);
}

void sim_check_end(sim *s)
{
    const quire_sched *sched = s->sched;
    SIM_CHECK(s, SIM_CALL(s, quire_sched_drop_pins(s->sched)) == QUIRE_OK, "pins", 0, 0);
    SIM_CHECK(s, sched->cache->pool->num_held == 0, "blocks are held by nobody",
              sched->cache->pool->num_held, 0);
    SIM_CHECK(s, quire_sched_check(sched) == QUIRE_OK, "the walker, at the end", 0, 0);
    uint32_t num_sinks = s->mix.num_blocks - 1 - s->mix.most_blocks;
    SIM_CHECK(s, quire_sched_get_usage(sched).active == num_sinks, "blocks were not given back",
              quire_sched_get_usage(sched).active, num_sinks);
    SIM_CHECK(s, sched->table.num_live == 0, "slots were not given back", sched->table.num_live, 0);
    SIM_CHECK(s, sched->texts.store.num_free == sched->texts.store.num_pages,
              "pages were not given back", sched->texts.store.num_free,
              sched->texts.store.num_pages);
    SIM_CHECK(s, sched->swap.num_free == s->mix.num_swap, "host slots were not given back",
              sched->swap.num_free, s->mix.num_swap);
    SIM_CHECK(
        s,
        quire_sched_get_counts(sched).num_running + quire_sched_get_counts(sched).num_waiting == 0,
        "queues", 0, 0);
    SIM_CHECK(s, quire_sched_get_num_unfinished(sched) == 0, "unfinished ones",
              quire_sched_get_num_unfinished(sched), 0);
}

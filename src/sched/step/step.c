/* sched/step/step.c - the arrays of the step being made. */
#include "cache/parts.h"
#include "sched/sched.h"

/* What the caller has preempted since the last step is the first that was preempted in this one. */
static QR_NOINLINE void take_asked(quire_sched *s)
{
    memcpy(s->builder.preempted, s->ended.asked, s->ended.num_asked * sizeof *s->ended.asked);
    s->ended.num_asked = 0;
}

/* qr_step_end writes the others in any case. */
static void begin_out(quire_step *out, uint64_t step)
{
    out->step = step;
    out->num_reqs = 0;
    out->total_tokens = 0;
    out->num_preempted = 0;
    out->blocks_to_zero = (quire_block_span){0};
    out->has_grammar_reqs = 0;
    out->has_pending_grammar_tokens = 0;
    out->connector_meta = NULL;
    out->encoder_connector_meta = NULL;
    out->num_copies = 0;
}

/* A long prefill alone keeps nobody from running. With adaptive_threshold a request gets its share
 * of the step's tokens at least. */
static uint32_t choose_threshold(const quire_sched *s)
{
    uint32_t num = s->queues.num_running + s->queues.waiting.count + s->queues.skipped.count;
    uint32_t threshold = s->settings.long_prefill_threshold;
    if (!s->settings.rules.threshold_for_many || threshold == 0)
        return threshold;
    if (num <= 1)
        return 0;
    uint32_t share = s->settings.max_input / num;
    return s->settings.adaptive_threshold && share > threshold ? share : threshold;
}

void qr_step_begin(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    s->flight.step++;
    const qr_batch *batch = qr_flight_batch(s, s->flight.num_batches);
    begin_out(&b->out, s->flight.step);
    b->reqs = batch->reqs;
    b->num_tokens = batch->num_tokens;
    b->num_drafts = batch->num_drafts;
    bool is_valid =
        s->flight.step - 1 >= s->flight.first_valid_step && (uint32_t)(s->flight.step - 1) != 0;
    b->last_step = is_valid ? (uint32_t)(s->flight.step - 1) : UINT32_MAX;
    b->loads = false;
    b->has_drafts = false;
    b->has_inputs = false;
    b->num_encoder_found = 0;
    b->num_padded = 0;
    b->num_loras = 0;
    b->num_new = 0;
    b->num_resumed = 0;
    b->num_prefill_tokens = 0;
    b->num_draft_tokens = 0;
    b->budget = s->pause == QUIRE_PAUSED_ALL ? 0 : s->settings.max_scheduled;
    qr_step_leave_slots(s);
    b->threshold = choose_threshold(s);
    b->num_ran = 0;
    b->encoder_budget = s->settings.encoder_budget;
    s->builder.num_preempted = 0;
    s->prefix.num_overtaking = 0;
    if (s->swap.num_slots > 0)
        qr_swap_begin(&s->swap);
    b->num_asked = s->ended.num_asked;
    if (QR_UNLIKELY(s->ended.num_asked > 0))
        take_asked(s);
    s->observer.step = s->flight.step;
    s->observer.taker = 0;
    s->observer.num_hit_tokens = 0;
    s->observer.num_external_tokens = 0;
    s->observer.num_query_tokens = 0;
}

/* Whether another request of the step being made encodes the same item. */
static bool is_being_encoded(const quire_sched *s, const qr_feature *feature)
{
    const qr_step_builder *b = &s->builder;
    for (uint32_t i = 0; i < b->out.num_reqs; i++) {
        const qr_request *r = &s->table.requests[quire_req_index(b->reqs[i])];
        for (uint32_t k = 0; k < b->encoder_count[i]; k++) {
            uint32_t input = b->encoder_found[b->encoder_first[i] + k];
            if (qr_feature_is_same(&r->features[input], feature))
                return true;
        }
    }
    return false;
}

/* With can_unschedule a request that is in the step already may still be preempted from it, and
 * what it was to encode is not encoded then: others count on that from the next step on. */
static void wait_for_encoding(quire_sched *s, const qr_encoder_ask *ask, qr_encoder_plan *plan)
{
    const uint32_t *planned = s->builder.encoder_planned;
    uint64_t seen = (uint64_t)ask->num_computed_tokens + ask->shift;
    uint64_t end = seen + plan->num_new_tokens;
    bool is_cut = false;
    for (uint32_t i = 0; i < ask->num_features && ask->features[i].offset < end; i++) {
        const qr_feature *f = &ask->features[i];
        bool is_past = (uint64_t)f->offset + f->length <= ask->num_computed_tokens;
        if (is_past || !is_being_encoded(s, f))
            continue;
        qr_encoder_free_input(&s->encoder, ask->features, ask->num_features, i);
        if (is_cut)
            continue;
        is_cut = true;
        plan->num_new_tokens = seen < f->offset ? (uint32_t)(f->offset - seen) : 0;
        while (plan->num_inputs > 0 && planned[plan->num_inputs - 1] >= i)
            plan->budget += ask->features[planned[--plan->num_inputs]].num_embeds;
        while (plan->num_external > 0 &&
               planned[qr_encoder_external_at(ask->num_features, plan->num_external - 1)] >= i)
            plan->num_external--;
    }
}

/* Until an update comes, requests may end and others may come in their places, again and again. */
static void drop_ended(const quire_sched *s, qr_doomed *doomed)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < doomed->num; i++) {
        uint32_t index = qr_sched_index_of(s, doomed->reqs[i]);
        if (index != QR_NIL && !qr_request_is_finished(&s->table.requests[index]))
            doomed->reqs[left++] = doomed->reqs[i];
    }
    doomed->num = left;
}

void qr_sched_doom(quire_sched *s, qr_doomed *doomed, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (r->is_doomed)
        return;
    if (doomed->num == s->settings.max_finished)
        drop_ended(s, doomed);
    doomed->reqs[doomed->num++] = qr_sched_req_of(s, index);
    r->is_doomed = true;
}

qr_encoder_plan qr_sched_plan_encoder(quire_sched *s, const qr_request *r, uint32_t computed,
                                      uint32_t num_new)
{
    qr_encoder_ask ask = {
        .features = r->features,
        .flags = &s->flags,
        .chain = &r->flags,
        .num_features = r->num_features,
        .num_computed_tokens = computed,
        .num_new_tokens = num_new,
        .budget = s->builder.encoder_budget,
        .shift = s->settings.prefill_lookahead,
        .counts_inputs = s->settings.rules.counts_inputs,
        .disable_chunked = s->settings.disable_chunked_mm,
        .req = qr_sched_req_of(s, (uint32_t)(r - s->table.requests)),
        .connector = s->partners.has_encoder_connector ? &s->partners.encoder_connector : NULL};
    qr_encoder_plan plan = qr_encoder_schedule(&s->encoder, &ask, s->builder.encoder_planned);
    if (plan.has_other_size)
        qr_sched_doom(s, &s->results.other_sizes, (uint32_t)(r - s->table.requests));
    if (s->builder.num_encoder_found > 0 && s->settings.can_unschedule &&
        (s->settings.quirks & QR_QUIRK(UNENCODED_STAYS)) == 0)
        wait_for_encoding(s, &ask, &plan);
    return plan;
}

/* An input gets its place in the encoder cache, and the connector is told. */
static void allocate_input(quire_sched *s, qr_request *r, uint32_t input)
{
    const quire_encoder_connector *c = &s->partners.encoder_connector;
    qr_encoder_allocate(&s->encoder, r->features, input);
    if (s->partners.has_encoder_connector && c->update_state_after_alloc != NULL)
        c->update_state_after_alloc(c->user, qr_sched_req_of(s, (uint32_t)(r - s->table.requests)),
                                    input);
}

/* Features that name an item which the step encodes or loads for another of the request's. */
static void use_again(quire_sched *s, qr_request *r, const qr_encoder_plan *plan)
{
    const uint32_t *planned = s->builder.encoder_planned;
    for (uint32_t i = 0; i < r->num_features && !s->settings.is_encoder_decoder; i++) {
        const qr_feature *f = &r->features[i];
        if (qr_encoder_holds(&s->encoder, f) || f->offset >= plan->end)
            continue;
        for (uint32_t k = 0; k < plan->num_inputs + plan->num_external; k++) {
            uint32_t place = k < plan->num_inputs
                                 ? k
                                 : qr_encoder_external_at(r->num_features, k - plan->num_inputs);
            if (i > planned[place] && qr_feature_is_same(f, &r->features[planned[place]])) {
                (void)qr_encoder_check_and_update(&s->encoder, r->features, r->num_features, i);
                break;
            }
        }
    }
}

void qr_step_add_encoder(quire_sched *s, qr_request *r, const qr_encoder_plan *plan)
{
    qr_step_builder *b = &s->builder;
    for (uint32_t i = 0; i < plan->num_inputs; i++) {
        b->encoder_found[b->num_encoder_found++] = b->encoder_planned[i];
        allocate_input(s, r, b->encoder_planned[i]);
    }
    for (uint32_t i = 0; i < plan->num_external; i++)
        allocate_input(s, r, b->encoder_planned[qr_encoder_external_at(r->num_features, i)]);
    if (s->settings.rules.counts_inputs)
        use_again(s, r, plan);
    b->encoder_count[b->out.num_reqs - 1] = plan->num_inputs;
    if (plan->num_inputs == 0)
        return; /* loads take nothing of the budget, to which a preemption may have given back */
    b->has_inputs = true;
    b->encoder_budget = plan->budget;
}

bool qr_sched_has_encoder_inputs(const quire_sched *s, const qr_request *r, uint32_t computed)
{
    const quire_encoder_connector *c = &s->partners.encoder_connector;
    uint32_t index = (uint32_t)(r - s->table.requests);
    return c->ensure_cache_available == NULL ||
           c->ensure_cache_available(c->user, qr_sched_req_of(s, index), computed) != 0;
}

static void tell_free(void *user, const qr_feature *features, uint32_t i)
{
    const quire_sched *s = user;
    const quire_encoder_connector *c = &s->partners.encoder_connector;
    c->update_state_after_free(c->user, qr_sched_req_of(s, features[i].owner), i);
}

void qr_sched_watch_encoder(quire_sched *s)
{
    s->encoder.free_user = s;
    s->encoder.on_free =
        s->partners.encoder_connector.update_state_after_free == NULL ? NULL : tell_free;
}

void qr_step_add_lora(quire_sched *s, uint32_t lora_id)
{
    qr_step_builder *b = &s->builder;
    if (lora_id > 0 && !qr_step_has_lora(s, lora_id) && b->num_loras < s->settings.max_loras)
        b->lora_ids[b->num_loras++] = lora_id;
}

bool qr_step_has_lora(const quire_sched *s, uint32_t lora_id)
{
    for (uint32_t i = 0; i < s->builder.num_loras; i++)
        if (s->builder.lora_ids[i] == lora_id)
            return true;
    return false;
}

void qr_step_leave_slots(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    uint64_t slots = ((uint64_t)b->out.num_reqs + 1) * s->settings.draft_slots;
    uint64_t used = b->out.total_tokens + slots;
    uint64_t left = s->settings.max_input > used ? s->settings.max_input - used : 0;
    if (s->settings.draft_slots > 0 && left < b->budget)
        b->budget = (uint32_t)left;
}

bool qr_step_has_prefill(const quire_sched *s)
{
    for (uint32_t i = 0; i < s->builder.num_ran; i++)
        if (s->table.requests[quire_req_index(s->builder.reqs[i])].is_prefill_chunk)
            return true;
    return false;
}

uint32_t qr_step_find(const quire_sched *s, quire_req req)
{
    for (uint32_t i = 0; i < s->builder.out.num_reqs; i++)
        if (s->builder.reqs[i] == req)
            return i;
    return QR_NIL;
}

static void close_gap(void *array, size_t size, uint32_t place, uint32_t count)
{
    unsigned char *at = (unsigned char *)array + (size_t)place * size;
    memmove(at, at + size, (size_t)(count - place - 1) * size);
}

void qr_step_remove(quire_sched *s, uint32_t place)
{
    qr_step_builder *b = &s->builder;
    uint32_t count = b->out.num_reqs--;
    b->out.total_tokens -= b->num_tokens[place];
    b->budget = s->settings.max_scheduled - b->out.total_tokens;
    qr_step_leave_slots(s);
    close_gap(b->reqs, sizeof *b->reqs, place, count);
    close_gap(b->kinds, sizeof *b->kinds, place, count);
    close_gap(b->was_in_last_step, sizeof *b->was_in_last_step, place, count);
    close_gap(b->num_tokens, sizeof *b->num_tokens, place, count);
    close_gap(b->num_computed, sizeof *b->num_computed, place, count);
    close_gap(b->num_outputs, sizeof *b->num_outputs, place, count);
    close_gap(b->num_drafts, sizeof *b->num_drafts, place, count);
    close_gap(b->encoder_first, sizeof *b->encoder_first, place, count);
    close_gap(b->encoder_count, sizeof *b->encoder_count, place, count);
    close_gap(b->blocks, sizeof *b->blocks * s->cache->num_groups, place, count);
}

/* Drafts and encoder inputs of all requests, one after the other. */
static void make_rows(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    b->out.draft_start = b->has_drafts ? b->draft_start : b->zeros;
    b->out.encoder_start = b->has_inputs ? b->encoder_start : b->zeros;
    if (!b->has_drafts && !b->has_inputs)
        return;
    uint32_t drafts = 0;
    uint32_t inputs = 0;
    uint32_t padded = 0;
    for (uint32_t i = 0; i < b->out.num_reqs; i++) {
        b->draft_start[i] = drafts;
        b->encoder_start[i] = inputs;
        if (b->num_drafts[i] > 0) {
            const quire_token *from = qr_sched_drafts_of(s, quire_req_index(b->reqs[i]));
            bool is_padded = padded < b->num_padded && b->padded[padded] == i;
            if (is_padded)
                memset(b->drafts + drafts, 0xff, b->num_drafts[i] * sizeof *from); /* -1 each */
            else
                memcpy(b->drafts + drafts, from, b->num_drafts[i] * sizeof *from);
            padded += is_padded;
            drafts += b->num_drafts[i];
        }
        if (b->encoder_count[i] > 0) {
            const uint32_t *from = b->encoder_found + b->encoder_first[i];
            memcpy(b->encoder_inputs + inputs, from, b->encoder_count[i] * sizeof *from);
            inputs += b->encoder_count[i];
        }
    }
    b->draft_start[b->out.num_reqs] = drafts;
    b->encoder_start[b->out.num_reqs] = inputs;
}

static void common_prefix(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    uint32_t first_row = QR_NIL;
    if (s->queues.num_running > 0)
        first_row = qr_cache_row_of(s->cache, s->table.requests[s->queues.running[0]].kv.seq);
    for (uint32_t g = 0; g < s->cache->num_groups; g++)
        b->common_prefix[g] = 0;
    if (first_row != QR_NIL && !s->settings.rules.counts_no_common)
        qr_cache_count_common(s->cache, first_row, b->common_prefix);
}

/* Leaves out requests that have ended since the caller preempted them. Returns how many are there.
 */
static QR_NOINLINE uint32_t list_preempted(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    uint32_t left = 0;
    if (s->settings.rules.lists_reset)
        return b->num_asked + s->builder.num_preempted;
    for (uint32_t i = 0; i < b->num_asked + s->builder.num_preempted; i++) {
        uint32_t index = qr_sched_index_of(s, b->preempted[i]);
        if (index != QR_NIL && !qr_request_is_finished(&s->table.requests[index]))
            b->preempted[left++] = b->preempted[i];
    }
    return left;
}

/* The place of the request in whose row a copy's target was put. The row may have another user
 * since, or list another block. */
static uint32_t place_of_copy(const quire_sched *s, const quire_block_copy *copy, qr_copy_place at)
{
    const qr_step_builder *b = &s->builder;
    const qr_group *group = &s->cache->groups[copy->group];
    uint32_t place = b->row_places[at.row];
    bool is_in_step = place < b->out.num_reqs;
    if (is_in_step) {
        quire_seq seq = s->table.requests[quire_req_index(b->reqs[place])].kv.seq;
        is_in_step = qr_cache_row_of(s->cache, seq) == at.row &&
                     at.index < group->rows[at.row].num_blocks &&
                     qr_group_row_blocks(group, at.row)[at.index] == copy->to;
    }
    return is_in_step ? place : UINT32_MAX;
}

/* The cache's pending copies become the step's. */
static QR_NOINLINE void list_copies(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    const quire_cache *cache = s->cache;
    for (uint32_t i = 0; i < b->out.num_reqs; i++) {
        const qr_request *r = &s->table.requests[quire_req_index(b->reqs[i])];
        b->row_places[qr_cache_row_of(cache, r->kv.seq)] = i;
    }
    uint32_t first = cache->num_told;
    for (uint32_t i = first; i < cache->num_copies; i++) {
        const quire_block_copy *copy = &cache->copies[i];
        qr_copy_place at = cache->copy_places[i];
        b->copies[i - first] = (quire_step_copy){.from = copy->from,
                                                 .to = copy->to,
                                                 .group = copy->group,
                                                 .place = place_of_copy(s, copy, at),
                                                 .index = at.index};
    }
    if (!cache->copies_parts) {
        b->out.num_copies = qr_cache_take_copies(s->cache);
        return;
    }
    b->out.num_copies = qr_cache_tell_copies(s->cache);
    qr_fence_copies(s, b->out.num_copies);
}

const quire_step *qr_step_end(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    quire_step *out = &b->out;
    make_rows(s);
    common_prefix(s);
    if (s->ended.num_finished > 0)
        memcpy(b->finished, s->ended.finished, s->ended.num_finished * sizeof *s->ended.finished);
    out->num_finished = s->ended.num_finished;
    s->ended.num_finished = 0;
    if (QR_UNLIKELY(b->num_asked + s->builder.num_preempted > 0))
        out->num_preempted = list_preempted(s);
    out->reqs = b->reqs;
    out->kinds = b->kinds;
    out->was_in_last_step = b->was_in_last_step;
    out->num_tokens = b->num_tokens;
    out->num_computed_tokens = b->num_computed;
    out->num_output_tokens = b->num_outputs;
    out->blocks = b->blocks;
    out->drafts = b->drafts;
    out->encoder_inputs = b->encoder_inputs;
    out->num_common_prefix_blocks = b->common_prefix;
    out->finished = b->finished;
    out->preempted = b->preempted;
    out->copies = b->copies;
    out->num_spec_tokens = qr_pace_drafts(s, out->num_reqs);
    out->num_freed_encoder = qr_encoder_take_freed(&s->encoder, &out->freed_encoder);
    out->num_swap_out = s->swap.out.count;
    out->swap_out_blocks = s->swap.out.blocks;
    out->swap_out_slots = s->swap.out.slots;
    out->num_swap_in = s->swap.in.count;
    out->swap_in_blocks = s->swap.in.blocks;
    out->swap_in_slots = s->swap.in.slots;
    if (s->settings.zeroes_blocks)
        out->blocks_to_zero = qr_cache_take_fresh(s->cache);
    if (QR_UNLIKELY(s->cache->num_copies > s->cache->num_told))
        list_copies(s);
    if (QR_UNLIKELY(s->states.capacity > 0))
        qr_states_tell(s);
    return out;
}

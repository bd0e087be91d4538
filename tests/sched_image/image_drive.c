/* sched_image/image_drive.c - what the world does to its sides, and what it sees of them. */
#include "image_world.h"

#include "sched/sched.h"

static uint32_t draw(world *w, uint32_t n)
{
    return unit_random_below(&w->random, n);
}

/* ---- digests --------------------------------------------------------------- */

static void see(world_side *side, uint64_t value)
{
    uint64_t state = side->digest ^ value;
    side->digest = unit_random(&state);
}

static void see_u32s(world_side *side, const uint32_t *values, uint32_t n)
{
    see(side, n);
    for (uint32_t i = 0; i < n; i++)
        see(side, values[i]);
}

static void see_reqs(world_side *side, const quire_req *reqs, uint32_t n)
{
    see(side, n);
    for (uint32_t i = 0; i < n; i++)
        see(side, reqs[i]);
}

static void see_tokens(world_side *side, const quire_token *tokens, uint32_t n)
{
    see(side, n);
    for (uint32_t i = 0; i < n; i++)
        see(side, (uint32_t)tokens[i]);
}

static void see_bytes(world_side *side, quire_bytes bytes)
{
    see(side, bytes.len);
    for (size_t i = 0; i < bytes.len; i++)
        see(side, ((const unsigned char *)bytes.data)[i]);
}

static void see_step(world_side *side, const quire_step *s)
{
    const uint32_t num_groups = side->world->config.cache->num_groups;
    see(side, s->step);
    see(side, s->total_tokens);
    see_reqs(side, s->reqs, s->num_reqs);
    for (uint32_t i = 0; i < s->num_reqs; i++) {
        see(side, s->kinds[i] | (uint32_t)s->was_in_last_step[i] << 8);
        see(side, s->num_tokens[i]);
        see(side, s->num_computed_tokens[i]);
        see(side, s->num_output_tokens[i]);
    }
    for (uint32_t i = 0; i < s->num_reqs * num_groups; i++)
        see_u32s(side, s->blocks[i].ids, s->blocks[i].count);
    see_u32s(side, s->draft_start, s->num_reqs + 1);
    see_tokens(side, s->drafts, s->draft_start[s->num_reqs]);
    see_u32s(side, s->encoder_start, s->num_reqs + 1);
    see_u32s(side, s->encoder_inputs, s->encoder_start[s->num_reqs]);
    see_u32s(side, s->num_common_prefix_blocks, num_groups);
    see_reqs(side, s->finished, s->num_finished);
    see_reqs(side, s->preempted, s->num_preempted);
    for (uint32_t i = 0; i < s->num_freed_encoder; i++)
        see_bytes(side, s->freed_encoder[i]);
    see_u32s(side, s->blocks_to_zero.ids, s->blocks_to_zero.count);
    see(side, s->has_grammar_reqs | s->has_pending_grammar_tokens << 1);
    see_u32s(side, s->swap_out_blocks, s->num_swap_out);
    see_u32s(side, s->swap_out_slots, s->num_swap_out);
    see_u32s(side, s->swap_in_blocks, s->num_swap_in);
    see_u32s(side, s->swap_in_slots, s->num_swap_in);
    for (uint32_t i = 0; i < s->num_copies; i++) {
        see(side, (uint64_t)s->copies[i].from << 32 | s->copies[i].to);
        see(side, (uint64_t)s->copies[i].place << 32 | s->copies[i].index);
    }
}

static void see_prefix_stats(world_side *side, const quire_prefix_stats *s)
{
    see(side, s->was_reset);
    see(side, s->requests ^ s->queries << 20 ^ s->hits << 40);
    see(side, s->preempted_requests ^ s->preempted_queries << 20 ^ s->preempted_hits << 40);
}

static void see_outputs(world_side *side, const quire_outputs *o)
{
    for (uint32_t i = 0; i < o->num_outputs; i++) {
        const quire_output *out = &o->outputs[i];
        see(side, out->req);
        see(side, (uint64_t)(uintptr_t)out->user);
        see_tokens(side, out->new_tokens, out->num_new_tokens);
        see(side, (uint64_t)out->finish_reason << 32 | out->client_index);
        see(side, out->has_stop_reason ? (uint32_t)out->stop_reason : UINT64_MAX);
        see(side, out->has_repeated);
        if (!out->has_prefill_stats)
            continue;
        see(side, (uint64_t)out->num_local_cached << 32 | out->num_external_cached);
        see(side, out->num_prompt_tokens);
    }
    see_reqs(side, o->finished, o->num_finished);
    see_u32s(side, o->finished_clients, o->num_finished);
    see(side, o->stats != NULL);
    if (o->stats == NULL)
        return;
    see(side, (uint64_t)o->stats->num_running << 32 | o->stats->num_waiting);
    see(side, (uint64_t)(o->stats->kv_cache_usage * 1e9));
    see(side, o->stats->spec.num_drafts ^ o->stats->spec.num_draft_tokens << 20 ^
                  o->stats->spec.num_accepted_tokens << 40);
    see_prefix_stats(side, &o->stats->prefix);
    see_prefix_stats(side, &o->stats->connector_prefix);
}

static void see_event(void *user, const quire_event *event)
{
    world_side *side = user;
    see(side, (uint64_t)event->kind << 32 | event->group_id);
    see_u32s(side, event->blocks, event->num_blocks);
    see(side, (uint64_t)event->first_block << 32 | event->block_size);
    see_bytes(side, (quire_bytes){event->hashes, (size_t)event->num_blocks * event->hash_bytes});
    see_bytes(side, event->parent);
    see(side, (uint64_t)(uintptr_t)event->request ^ (uint64_t)event->still_cached << 60);
}

/* Queues, free blocks, and all that a request tells of itself. */
static void see_state(world_side *side)
{
    quire_req reqs[WORLD_MAX_REQUESTS];
    for (uint32_t which = 0; which < 3; which++) {
        uint32_t n = quire_sched_get_queue(side->sched, which, reqs, COUNT(reqs));
        see_reqs(side, reqs, n);
        for (uint32_t i = 0; i < n; i++) {
            quire_req_info info = QUIRE_REQ_INFO_INIT;
            assert_int_equal(quire_sched_get_req_info(side->sched, reqs[i], &info), QUIRE_OK);
            see(side, info.seq);
            see(side, (uint64_t)info.status << 32 | info.num_tokens);
            see(side, (uint64_t)info.num_computed_tokens << 32 | info.num_output_placeholders);
            see(side, (uint64_t)info.num_spec_tokens << 32 | info.num_preemptions);
            see(side, info.num_swapped_tokens);
            see_bytes(side, info.id);
            assert_true(quire_sched_find(side->sched, info.id) == reqs[i]);
        }
    }
    quire_usage usage = quire_sched_get_usage(side->sched);
    see_bytes(side, (quire_bytes){&usage, sizeof usage});
    see(side, quire_sched_get_num_unfinished(side->sched) |
                  quire_sched_get_counts(side->sched).has_finished << 16);
    quire_pressure pressure;
    assert_int_equal(quire_cache_get_pressure(quire_sched_get_cache(side->sched), &pressure),
                     QUIRE_OK);
    see(side, pressure.should_admit);
    uint64_t lost = 0;
    if (side->world->now % 8 == 0 && side->world->config.cache->event_log_bytes > 0)
        quire_cache_take_events(quire_sched_get_cache(side->sched), see_event, side, &lost);
    see(side, lost);
}

/* ---- requests -------------------------------------------------------------- */

typedef struct world_request {
    quire_request_params params;
    quire_token prompt[WORLD_MAX_PROMPT];
    quire_token stops[2];
    quire_mm_input inputs[WORLD_MAX_FEATURES];
    unsigned char hashes[512];
    char id[16];
} world_request;

static uint8_t some_flags[8]; /* overwritten as soon as a request has come in */
static const char *const PICTURES[] = {"cat", "dog", "horse", "elephant", "ant", "bee"};

static void draw_features(world *w, world_request *r)
{
    bool is_encoder_decoder = w->config.is_encoder_decoder == QUIRE_ON;
    uint32_t n = is_encoder_decoder ? 1 : draw(w, WORLD_MAX_FEATURES + 1);
    uint32_t at = 0;
    memcpy(some_flags, (const uint8_t[]){1, 0, 1, 1, 0, 1, 0, 1}, sizeof some_flags);
    for (uint32_t i = 0; i < n && at + 8 < r->params.num_prompt_tokens; i++) {
        const char *name = PICTURES[draw(w, COUNT(PICTURES))];
        uint32_t length = 1 + draw(w, 6);
        at += is_encoder_decoder ? 0 : draw(w, 4);
        r->inputs[r->params.num_mm_inputs++] =
            (quire_mm_input){.feature = {{name, strlen(name)}, at, length},
                             .is_embed = length <= 8 && draw(w, 3) == 0 ? some_flags : NULL};
        at += length;
    }
    for (uint32_t i = 0; i < r->params.num_mm_inputs; i++) {
        quire_mm_input *in = &r->inputs[i];
        for (uint64_t k = 0; in->is_embed != NULL && k < in->feature.length; k++)
            in->num_embeds += in->is_embed[k];
    }
    r->params.mm_inputs = r->inputs;
}

/* Prompts begin alike, so that there are hits. */
static void draw_text(world *w, world_request *r, uint32_t most)
{
    uint32_t n = 1 + draw(w, most);
    uint32_t shared = draw(w, n + 1);
    uint32_t family = draw(w, 3);
    for (uint32_t i = 0; i < n; i++)
        r->prompt[i] = (quire_token)(i < shared ? (family * 7 + i) % 11 : draw(w, 12));
    r->params.prompt = r->prompt;
    r->params.num_prompt_tokens = n;
}

static void draw_request(world *w, world_request *r)
{
    memset(r, 0, sizeof *r);
    quire_request_params *p = &r->params;
    p->size = sizeof *p;
    draw_text(w, r, w->max_prompt);
    int len = snprintf(r->id, sizeof r->id, "r%u", w->num_added++);
    p->id = (quire_bytes){r->id, (size_t)len};
    p->max_tokens = 1 + draw(w, 20);
    p->min_tokens = draw(w, 3);
    p->has_eos = draw(w, 2);
    p->eos_token_id = 1;
    r->stops[0] = 2;
    r->stops[1] = 3;
    p->stop_token_ids = r->stops;
    p->num_stop_token_ids = draw(w, 3);
    p->repetition_max_pattern = draw(w, 3) == 0 ? 2 : 0;
    p->repetition_min_count = 3;
    p->priority = (int32_t)draw(w, 4);
    p->arrival_time = (double)draw(w, 8);
    p->client_index = draw(w, 3);
    p->lora_id = w->config.max_loras > 0 ? draw(w, 5) : 0;
    if (p->lora_id > 0)
        p->lora_name = (quire_bytes){&"adapters"[p->lora_id], 8 - p->lora_id};
    if (p->lora_id > 1)
        p->lora_path = (quire_bytes){"/path", p->lora_id};
    if (draw(w, 6) == 0)
        p->cache_salt = (quire_bytes){"salt", 1 + draw(w, 4)};
    p->use_grammar = draw(w, 6) == 0;
    p->is_pooling = draw(w, 12) == 0;
    p->is_resumable = draw(w, 4) == 0 && !p->is_pooling;
    p->skip_reading_prefix = draw(w, 10) == 0;
    p->user = (void *)(uintptr_t)(w->num_added * UINT64_C(0x123456789));
    if (w->has_features)
        draw_features(w, r);
}

/* Embeddings, and hashes that the caller has made: of any bytes, since they are believed. */
static void draw_names(world *w, world_request *r)
{
    static const unsigned char rows[WORLD_MAX_PROMPT] = {1, 2, 3};
    quire_request_params *p = &r->params;
    if (draw(w, 8) == 0 && !p->is_resumable) {
        p->prompt_embeds = rows;
        p->prompt_embed_bytes = 1;
        p->prompt = draw(w, 2) == 0 ? NULL : p->prompt;
    }
    if (draw(w, 6) != 0)
        return;
    uint32_t digest_bytes = w->config.cache->digest_bytes;
    uint32_t most = (uint32_t)sizeof r->hashes / digest_bytes;
    uint32_t num_full = p->num_prompt_tokens / w->hasher_config.block_size;
    p->hashes = r->hashes;
    p->num_hashes = draw(w, (num_full < most ? num_full : most) + 1);
    for (uint32_t i = 0; i < p->num_hashes * digest_bytes; i++)
        r->hashes[i] = (unsigned char)(i * 31);
}

static void add_request(world *w)
{
    static world_request r;
    draw_request(w, &r);
    draw_names(w, &r);
    quire_req req = 0;
    bool is_pinned = draw(w, 4) == 0;
    for (uint32_t i = 0; i < w->num_sides; i++) {
        req = 0;
        see(&w->sides[i], (uint32_t)quire_sched_add(w->sides[i].sched, &r.params, &req));
        see(&w->sides[i], req);
        if (is_pinned && req != 0)
            see(&w->sides[i], (uint32_t)quire_sched_pin(w->sides[i].sched, req, UINT64_C(1) << 50));
    }
    memset(some_flags, 0, sizeof some_flags);
    if (req != 0)
        w->known[w->num_added % COUNT(w->known)] = req;
}

static quire_req draw_known(world *w)
{
    return w->known[(w->num_added + COUNT(w->known) - draw(w, w->config.max_requests)) %
                    COUNT(w->known)];
}

/* A child of a request in any state; its last token may be another. */
static void fork_request(world *w)
{
    static world_request r;
    draw_request(w, &r);
    draw_names(w, &r);
    quire_req parent = draw_known(w);
    quire_req req = 0;
    r.params.max_tokens += 20;
    r.params.num_prompt_tokens = draw(w, 2);
    r.params.prompt = r.prompt;
    for (uint32_t i = 0; i < w->num_sides; i++) {
        req = 0;
        see(&w->sides[i], (uint32_t)quire_sched_fork(w->sides[i].sched, parent, &r.params, &req));
        see(&w->sides[i], req);
    }
    memset(some_flags, 0, sizeof some_flags);
    if (req != 0)
        w->known[w->num_added % COUNT(w->known)] = req;
}

static void continue_session(world *w)
{
    static world_request r;
    draw_request(w, &r);
    draw_text(w, &r, w->max_prompt / 4);
    r.params.num_mm_inputs = 0;
    if (w->has_features && w->config.is_encoder_decoder != QUIRE_ON)
        draw_features(w, &r);
    quire_req req = draw_known(w);
    bool ends = draw(w, 3) == 0;
    for (uint32_t i = 0; i < w->num_sides; i++)
        see(&w->sides[i],
            (uint32_t)quire_sched_continue(w->sides[i].sched, req, ends ? NULL : &r.params));
    memset(some_flags, 0, sizeof some_flags);
}

static void finish_some(world *w)
{
    quire_req reqs[3] = {draw_known(w), draw_known(w), draw_known(w)};
    bool all = draw(w, 30) == 0;
    quire_req_status status = (quire_req_status)(QUIRE_REQ_FINISHED_STOPPED + draw(w, 5));
    for (uint32_t i = 0; i < w->num_sides; i++) {
        uint32_t count = 0;
        quire_sched *sched = w->sides[i].sched;
        if (all)
            quire_sched_finish_all(sched, status, &count);
        else
            quire_sched_finish(sched, reqs, COUNT(reqs), status, &count);
        see(&w->sides[i], count);
    }
}

/* ---- steps ----------------------------------------------------------------- */

static void note_batch(world *w, const quire_step *step)
{
    const quire_sched *s = w->sides[0].sched;
    const qr_batch *from = &s->flight.batches[(s->flight.first_batch + s->flight.num_batches - 1) %
                                              s->settings.max_batches];
    world_batch *batch = &w->batches[w->num_batches++];
    *batch = (world_batch){.step = step->step, .num_reqs = step->num_reqs};
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        batch->reqs[i] = step->reqs[i];
        batch->num_drafts[i] = step->draft_start[i + 1] - step->draft_start[i];
        batch->is_past_prompt[i] = from->is_past_prompt[i];
        w->num_drafted += batch->num_drafts[i];
    }
    w->num_preempted += step->num_preempted;
}

static void schedule(world *w)
{
    const quire_step *step = NULL;
    for (uint32_t i = w->num_sides; i-- > 0;) { /* side 0 last: its step is noted */
        int answer = quire_sched_schedule(w->sides[i].sched, &step);
        assert_int_equal(answer, QUIRE_OK);
        see_step(&w->sides[i], step);
    }
    note_batch(w, step);
}

typedef struct world_output {
    quire_model_output output;
    quire_token sampled[WORLD_MAX_SEQS * (WORLD_MAX_DRAFTS + 1)];
    uint32_t num_sampled[WORLD_MAX_SEQS];
    uint8_t has_pooled[WORLD_MAX_SEQS];
    quire_req ended[WORLD_MAX_REQUESTS * 4];
    quire_block invalid[2];
} world_output;

static void draw_sampled(world *w, const world_batch *batch, world_output *o)
{
    const quire_sched *s = w->sides[0].sched;
    o->output = (quire_model_output){.size = sizeof(quire_model_output),
                                     .sampled = o->sampled,
                                     .stride = WORLD_MAX_DRAFTS + 1,
                                     .num_sampled = o->num_sampled,
                                     .has_pooled = o->has_pooled};
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
        bool pools = index != QR_NIL && s->table.requests[index].is_pooling;
        o->num_sampled[i] =
            !batch->is_past_prompt[i] || pools ? 0 : 1 + draw(w, batch->num_drafts[i] + 1);
        if (w->config.profile == QUIRE_PROFILE_VLLM_0_20 && !pools && draw(w, 16) == 0)
            o->num_sampled[i] = draw(w, w->config.num_spec_tokens + 2); /* it takes any number */
        o->has_pooled[i] = pools && batch->is_past_prompt[i];
    }
    for (uint32_t i = 0; i < COUNT(o->sampled); i++)
        o->sampled[i] = (quire_token)draw(w, 12);
}

/* Loads that arrived or failed, blocks that were sent. */
static void draw_transfers(world *w, world_output *o)
{
    const quire_sched *s = w->sides[0].sched;
    for (uint32_t i = 0; i < COUNT(w->known); i++) {
        uint32_t index = qr_sched_index_of(s, w->known[i]);
        if (index == QR_NIL || draw(w, 3) != 0)
            continue;
        const qr_request *r = &s->table.requests[index];
        if (r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS || qr_request_is_finished(r))
            o->ended[o->output.num_finished_recving++] = w->known[i];
        quire_block_span span = {0};
        if (r->kv.seq != 0 && draw(w, 4) == 0 && !qr_request_is_finished(r) &&
            quire_sched_get_blocks(s, w->known[i], &span) == QUIRE_OK && span.count > 0)
            o->invalid[o->output.num_invalid_blocks++ % COUNT(o->invalid)] =
                span.ids[draw(w, span.count)];
    }
    if (o->output.num_invalid_blocks > COUNT(o->invalid))
        o->output.num_invalid_blocks = COUNT(o->invalid);
    o->output.finished_recving = o->ended;
    o->output.finished_sending = o->ended;
    o->output.num_finished_sending = o->output.num_finished_recving;
    o->output.invalid_blocks = o->invalid;
}

/* False, and nothing done, where the default wants an older step first. */
static bool update(world *w, const world_batch *batch)
{
    static world_output o;
    memset(&o, 0, sizeof o);
    draw_sampled(w, batch, &o);
    if (w->has_loads)
        draw_transfers(w, &o);
    for (uint32_t i = 0; i < w->num_sides; i++) {
        const quire_outputs *outputs;
        int answer = quire_sched_update(w->sides[i].sched, batch->step, &o.output, &outputs);
        if (answer == QUIRE_E_ARGUMENT && batch != w->batches)
            return false;
        assert_int_equal(answer, QUIRE_OK);
        see_outputs(&w->sides[i], outputs);
        w->num_finished += i == 0 ? outputs->num_outputs : 0;
    }
    return true;
}

static void give_drafts(world *w, const world_batch *batch)
{
    quire_token drafts[WORLD_MAX_SEQS * WORLD_MAX_DRAFTS];
    uint32_t num_drafts[WORLD_MAX_SEQS];
    for (uint32_t i = 0; i < COUNT(drafts); i++)
        drafts[i] = (quire_token)draw(w, 12);
    for (uint32_t i = 0; i < COUNT(num_drafts); i++)
        num_drafts[i] = draw(w, w->config.num_spec_tokens + 1);
    for (uint32_t i = 0; i < w->num_sides; i++)
        see(&w->sides[i],
            (uint32_t)quire_sched_update_drafts(w->sides[i].sched, batch->reqs, batch->num_reqs,
                                                drafts, WORLD_MAX_DRAFTS, num_drafts));
}

static void finish_step(world *w)
{
    uint32_t which = draw(w, 3) == 0 ? draw(w, w->num_batches) : 0;
    world_batch *batch = &w->batches[which];
    bool is_lost = draw(w, 16) == 0;
    for (uint32_t i = 0; i < w->num_sides && is_lost; i++)
        see(&w->sides[i], (uint32_t)quire_sched_forget_step(w->sides[i].sched, batch->step));
    if (!is_lost && !update(w, batch)) {
        which = 0;
        batch = w->batches;
        update(w, batch);
    }
    if (w->config.num_spec_tokens > 0)
        give_drafts(w, batch);
    w->num_batches--;
    memmove(batch, batch + 1, (w->num_batches - which) * sizeof *batch);
}

/* ---- rare things ----------------------------------------------------------- */

static void disturb(world *w)
{
    uint32_t what = draw(w, 16);
    uint32_t how = draw(w, 3);
    quire_req known = draw_known(w);
    for (uint32_t i = 0; i < w->num_sides; i++) {
        quire_sched *s = w->sides[i].sched;
        if (what == 0)
            see(&w->sides[i], (uint32_t)quire_sched_reset_prefix_cache(s, how > 0, how > 1));
        else if (what == 1 && w->num_batches == 0)
            see(&w->sides[i], (uint32_t)quire_sched_reset_encoder_cache(s));
        else if (what == 4)
            see(&w->sides[i], (uint32_t)quire_sched_cut_prompt(s, known, 1 + 3 * how, how));
        else if (what < 4)
            see(&w->sides[i], (uint32_t)quire_sched_set_pause(s, (quire_pause)how));
        else
            see(&w->sides[i], (uint32_t)quire_sched_set_pause(s, QUIRE_UNPAUSED));
    }
}

bool world_round(world *w)
{
    w->now++;
    for (uint32_t n = w->is_wide ? draw(w, 8) : draw(w, 2); n > 0; n--)
        add_request(w);
    if (w->config.cache->max_copies > 0 && draw(w, 2) == 0)
        fork_request(w);
    if (draw(w, 4) == 0)
        continue_session(w);
    if (draw(w, 12) == 0)
        finish_some(w);
    if (draw(w, 6) == 0)
        disturb(w);
    if (w->num_batches < w->config.max_batches)
        schedule(w);
    if (w->num_batches > 0 && (w->num_batches == w->config.max_batches || draw(w, 2) == 0))
        finish_step(w);
    if (draw(w, 10) == 0)
        finish_some(w);
    if (draw(w, 10) == 0)
        disturb(w);
    for (uint32_t i = 0; i < w->num_sides; i++) {
        see_state(&w->sides[i]);
        if (quire_sched_check(w->sides[i].sched) != QUIRE_OK)
            fail_msg("seed %llu, round %llu: side %u is not valid", (unsigned long long)w->seed,
                     (unsigned long long)w->now, i);
    }
    return w->num_sides == 1 || w->sides[0].digest == w->sides[1].digest;
}

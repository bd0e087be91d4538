/* sched_image/image_use.c - what an engine does with a scheduler, and all that it can ask. */
#include "image_forge.h"

#include "base/inner.h"
#include "sched/sched.h"

/* Everything that is read goes in here, so that it is read. */
static volatile uint64_t sink;

static void read_bytes(const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sink += ((const unsigned char *)data)[i];
}

static uint32_t below(uint64_t *random, uint32_t n)
{
    return n == 0 ? 0 : unit_random_below(random, n);
}

/* ---- getters --------------------------------------------------------------- */

static void read_request(quire_sched *s, quire_req req)
{
    static quire_token tokens[4 * WORLD_MAX_PROMPT];
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_block_span spans[WORLD_MAX_GROUPS] = {{NULL, 0}};
    const void *hashes;
    uint32_t num_hashes = 0;
    if (quire_sched_get_req_info(s, req, &info) != QUIRE_OK)
        return;
    read_bytes(info.id.data, info.id.len);
    sink += (uint64_t)(uintptr_t)quire_sched_get_user(s, req) + quire_sched_find(s, info.id);
    if (info.num_tokens <= COUNT(tokens) &&
        quire_sched_get_tokens(s, req, 0, info.num_tokens, tokens) == QUIRE_OK)
        read_bytes(tokens, info.num_tokens * sizeof *tokens);
    if (quire_sched_get_hashes(s, req, UINT32_MAX, &hashes, &num_hashes) == QUIRE_OK)
        read_bytes(hashes, (size_t)num_hashes * s->texts.store.digest_bytes);
    quire_sched_get_hashes(s, req, 2, &hashes, &num_hashes);
    if (quire_sched_get_blocks(s, req, spans) == QUIRE_OK)
        for (uint32_t g = 0; g < s->cache->num_groups; g++)
            read_bytes(spans[g].ids, spans[g].count * sizeof *spans[g].ids);
}

static void read_queues(quire_sched *s)
{
    static quire_req reqs[WORLD_MAX_REQUESTS];
    for (uint32_t which = 0; which < 3; which++) {
        uint32_t n = quire_sched_get_queue(s, which, reqs, COUNT(reqs));
        for (uint32_t i = 0; i < n && i < COUNT(reqs); i++)
            read_request(s, reqs[i]);
    }
}

static void read_event(void *user, const quire_event *event)
{
    (void)user;
    read_bytes(event->hashes, (size_t)event->num_blocks * event->hash_bytes);
    read_bytes(event->blocks, event->num_blocks * sizeof *event->blocks);
    read_bytes(event->parent.data, event->parent.len);
}

static void read_cache(quire_sched *s)
{
    quire_cache *cache = quire_sched_get_cache(s);
    quire_usage usage = quire_sched_get_usage(s);
    quire_pressure pressure;
    quire_prefix_stats stats;
    quire_block_span span = {NULL, 0};
    const quire_block_copy *copies;
    uint32_t num_copies = 0;
    uint64_t lost;
    read_bytes(&usage, sizeof usage);
    quire_cache_get_pressure(cache, &pressure);
    quire_cache_take_events(cache, read_event, NULL, &lost);
    quire_cache_take_prefix_stats(cache, &stats);
    if (quire_cache_take_copies(cache, &copies, &num_copies) == QUIRE_OK)
        read_bytes(copies, num_copies * sizeof *copies);
    if (quire_cache_take_new_block_ids(cache, &span) == QUIRE_OK)
        read_bytes(span.ids, span.count * sizeof *span.ids);
    for (uint32_t g = 0; g < quire_cache_get_counts(cache).num_groups; g++)
        if ((span = inner_sinks(cache, g)).count > 0)
            read_bytes(span.ids, span.count * sizeof *span.ids);
    sink += quire_cache_get_counts(cache).num_seqs +
            (uint64_t)(quire_usage_level(quire_cache_get_usage(cache)) * 1000);
}

static void read_numbers(const quire_sched *s)
{
    sink += quire_sched_get_counts(s).num_running + quire_sched_get_counts(s).num_waiting +
            quire_sched_get_num_unfinished(s) + quire_sched_get_counts(s).has_finished +
            (uint64_t)quire_sched_get_counts(s).pause;
}

/* ---- steps and outputs ----------------------------------------------------- */

static void read_step(const quire_sched *s, const quire_step *step)
{
    uint32_t n = step->num_reqs;
    uint32_t num_groups = s->cache->num_groups;
    read_bytes(step->reqs, n * sizeof *step->reqs);
    read_bytes(step->kinds, n);
    read_bytes(step->was_in_last_step, n);
    read_bytes(step->num_tokens, n * sizeof *step->num_tokens);
    read_bytes(step->num_computed_tokens, n * sizeof *step->num_computed_tokens);
    read_bytes(step->num_output_tokens, n * sizeof *step->num_output_tokens);
    for (uint32_t i = 0; i < n * num_groups; i++)
        read_bytes(step->blocks[i].ids, step->blocks[i].count * sizeof *step->blocks[i].ids);
    read_bytes(step->drafts, step->draft_start[n] * sizeof *step->drafts);
    read_bytes(step->encoder_inputs, step->encoder_start[n] * sizeof *step->encoder_inputs);
    read_bytes(step->num_common_prefix_blocks, num_groups * sizeof *step->num_common_prefix_blocks);
    read_bytes(step->finished, step->num_finished * sizeof *step->finished);
    read_bytes(step->preempted, step->num_preempted * sizeof *step->preempted);
    for (uint32_t i = 0; i < step->num_freed_encoder; i++)
        read_bytes(step->freed_encoder[i].data, step->freed_encoder[i].len);
    read_bytes(step->blocks_to_zero.ids,
               step->blocks_to_zero.count * sizeof *step->blocks_to_zero.ids);
    read_bytes(step->swap_out_blocks, step->num_swap_out * sizeof *step->swap_out_blocks);
    read_bytes(step->swap_out_slots, step->num_swap_out * sizeof *step->swap_out_slots);
    read_bytes(step->swap_in_blocks, step->num_swap_in * sizeof *step->swap_in_blocks);
    read_bytes(step->swap_in_slots, step->num_swap_in * sizeof *step->swap_in_slots);
}

static void read_outputs(const quire_sched *s, const quire_outputs *o)
{
    for (uint32_t i = 0; i < o->num_outputs; i++) {
        read_bytes(&o->outputs[i], sizeof o->outputs[i]);
        read_bytes(o->outputs[i].new_tokens,
                   o->outputs[i].num_new_tokens * sizeof *o->outputs[i].new_tokens);
    }
    read_bytes(o->finished, o->num_finished * sizeof *o->finished);
    read_bytes(o->finished_clients, o->num_finished * sizeof *o->finished_clients);
    if (o->stats != NULL)
        read_bytes(o->stats->spec.accepted_per_pos,
                   s->settings.num_spec_tokens * sizeof *o->stats->spec.accepted_per_pos);
}

typedef struct used_output {
    quire_model_output output;
    quire_token sampled[WORLD_MAX_SEQS * (WORLD_MAX_DRAFTS + 1)];
    uint32_t num_sampled[WORLD_MAX_SEQS];
    uint8_t has_pooled[WORLD_MAX_SEQS];
    quire_req recved[WORLD_MAX_REQUESTS];
    quire_req sent[WORLD_MAX_REQUESTS];
    quire_block invalid[8];
} used_output;

/* Loads that arrive or fail, and blocks that were sent, of requests that the scheduler has. */
static void draw_transfers(const quire_sched *s, used_output *o, uint64_t *random)
{
    quire_model_output *out = &o->output;
    for (uint32_t i = 0; i < s->settings.max_requests; i++) {
        const qr_request *r = &s->table.requests[i];
        if (!r->is_in_use || below(random, 3) != 0)
            continue;
        if (r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS || r->load == QR_LOAD_LEFT)
            o->recved[out->num_finished_recving++] = qr_sched_req_of(s, i);
        if (r->awaits_sending)
            o->sent[out->num_finished_sending++] = qr_sched_req_of(s, i);
    }
    for (uint32_t n = below(random, 8) == 0 ? below(random, COUNT(o->invalid)) : 0; n > 0; n--)
        o->invalid[out->num_invalid_blocks++] = below(random, s->cache->pool->queue.num_blocks);
    out->finished_recving = o->recved;
    out->finished_sending = o->sent;
    out->invalid_blocks = o->invalid;
}

static void draw_output(const quire_sched *s, const qr_batch *batch, used_output *o,
                        uint64_t *random)
{
    *o = (used_output){.output = {.size = sizeof o->output,
                                  .sampled = o->sampled,
                                  .stride = WORLD_MAX_DRAFTS + 1,
                                  .num_sampled = o->num_sampled,
                                  .has_pooled = o->has_pooled}};
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
        bool pools = index != QR_NIL && s->table.requests[index].is_pooling;
        o->num_sampled[i] =
            pools || !batch->is_past_prompt[i] ? 0 : 1 + below(random, batch->num_drafts[i] + 1);
        o->has_pooled[i] = pools && batch->is_past_prompt[i];
    }
    for (uint32_t i = 0; i < COUNT(o->sampled); i++)
        o->sampled[i] = (quire_token)below(random, 12);
    if (s->partners.has_connector)
        draw_transfers(s, o, random);
}

static const char *update(quire_sched *s, uint64_t *random)
{
    static used_output o;
    const qr_batch *batch = &s->flight.batches[s->flight.first_batch];
    uint64_t number = batch->step;
    quire_req reqs[WORLD_MAX_SEQS];
    uint32_t num_reqs = batch->num_reqs;
    memcpy(reqs, batch->reqs, num_reqs * sizeof *reqs);
    if (below(random, 16) == 0)
        return quire_sched_forget_step(s, number) == QUIRE_OK ? NULL : "forget_step";
    draw_output(s, batch, &o, random);
    const quire_outputs *outputs;
    if (quire_sched_update(s, number, &o.output, &outputs) != QUIRE_OK)
        return "update";
    read_outputs(s, outputs);
    if (s->settings.num_spec_tokens == 0)
        return NULL;
    uint32_t num_drafts[WORLD_MAX_SEQS];
    for (uint32_t i = 0; i < num_reqs; i++)
        num_drafts[i] = below(random, s->settings.num_spec_tokens + 1);
    int err = quire_sched_update_drafts(s, reqs, num_reqs, o.sampled, WORLD_MAX_DRAFTS, num_drafts);
    return err == QUIRE_OK ? NULL : "update_drafts";
}

/* ---- requests -------------------------------------------------------------- */

static quire_req draw_req(const quire_sched *s, uint64_t *random)
{
    uint32_t index = below(random, s->settings.max_requests);
    return qr_sched_req_of(s, index);
}

static void add(world *w, quire_sched *s, uint64_t *random)
{
    static uint32_t number;
    quire_token prompt[64];
    char id[24];
    int len = snprintf(id, sizeof id, "forged-%u", number++);
    for (uint32_t i = 0; i < COUNT(prompt); i++)
        prompt[i] = (quire_token)(i % 11);
    quire_mm_input input = {.feature = {{"cat", 3}, 0, 4}, .is_embed = (const uint8_t *)"\1\0\1\0"};
    bool is_encoder_decoder = w->config.is_encoder_decoder == QUIRE_ON;
    quire_request_params p = {.size = sizeof(quire_request_params),
                              .id = {id, (size_t)len},
                              .prompt = prompt,
                              .num_prompt_tokens = 1 + below(random, 40),
                              .max_tokens = 1 + below(random, 8),
                              .priority = (int32_t)below(random, 4),
                              .mm_inputs = &input,
                              .num_mm_inputs = w->has_features && below(random, 2) == 0,
                              .is_resumable = below(random, 4) == 0};
    if (is_encoder_decoder)
        p.num_mm_inputs = 1;
    quire_req req = 0;
    if (quire_sched_add(s, &p, &req) != QUIRE_OK)
        return;
    quire_sched_pin(s, req, UINT64_C(1) << 50);
    p.num_mm_inputs = 0;
    if (p.is_resumable)
        quire_sched_continue(s, req, &p);
}

/* Ends, aborts, pauses, resets: whatever an engine may call at any time. */
static void disturb(world *w, quire_sched *s, uint64_t *random)
{
    quire_req reqs[4];
    for (uint32_t i = 0; i < COUNT(reqs); i++)
        reqs[i] = draw_req(s, random);
    switch (below(random, 24)) {
    case 0:
        quire_sched_finish(s, reqs, COUNT(reqs), QUIRE_REQ_FINISHED_ABORTED, NULL);
        break;
    case 1:
        quire_sched_reset_prefix_cache(s, below(random, 2), 0);
        break;
    case 2:
        quire_sched_continue(s, reqs[0], NULL);
        break;
    case 3:
        quire_sched_cut_prompt(s, reqs[0], 1 + below(random, 8), below(random, 4));
        break;
    case 4:
        quire_sched_drop_pins(s);
        break;
    case 5:
        quire_sched_pin(s, reqs[0], UINT64_C(1) << 50);
        break;
    case 6:
        quire_sched_set_pause(s, (quire_pause)below(random, 3));
        break;
    case 7:
    case 8:
    case 9:
        quire_sched_set_pause(s, QUIRE_UNPAUSED);
        break;
    default:
        for (uint32_t n = below(random, w->is_wide ? 5 : 2); n > 0; n--)
            add(w, s, random);
    }
}

/* ---- the whole ------------------------------------------------------------- */

static const char *use_once(world *w, quire_sched *s, uint64_t *random)
{
    const quire_step *step;
    const char *refused = NULL;
    disturb(w, s, random);
    if (s->flight.num_batches < s->settings.max_batches) {
        if (quire_sched_schedule(s, &step) != QUIRE_OK)
            return "schedule";
        read_step(s, step);
    }
    if (s->flight.num_batches == s->settings.max_batches || below(random, 2) == 0)
        refused = s->flight.num_batches > 0 ? update(s, random) : NULL;
    if (refused != NULL)
        return refused;
    return quire_sched_check(s) == QUIRE_OK ? NULL : "check";
}

static const char *end_all(quire_sched *s, uint64_t *random)
{
    const quire_step *step;
    quire_sched_finish_all(s, QUIRE_REQ_FINISHED_ABORTED, NULL);
    if (quire_sched_check(s) != QUIRE_OK)
        return "check after all have ended";
    while (s->flight.num_batches > 0) {
        const char *refused = update(s, random);
        if (refused != NULL)
            return refused;
    }
    if (quire_sched_schedule(s, &step) != QUIRE_OK)
        return "the last schedule";
    read_step(s, step);
    return quire_sched_check(s) == QUIRE_OK ? NULL : "check in the end";
}

const char *forge_use(world *w, quire_sched *s, uint64_t *random)
{
    if (quire_sched_check(s) != QUIRE_OK)
        return "check after restore";
    for (uint32_t i = 0; i < FORGE_STEPS; i++) {
        const char *refused = use_once(w, s, random);
        if (refused != NULL)
            return refused;
        if (i % 8 == 0) {
            read_queues(s);
            read_cache(s);
            read_numbers(s);
        }
    }
    return end_all(s, random);
}

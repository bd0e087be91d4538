/* sched/requests/requests.c - a request comes in, goes on as a session, and ends. */
#include "hash/digest.h"
#include "sched/sched.h"
#include "sched/step/admissible.h"

/* ---- blobs: what has no fixed size ------------------------------------------ */

void *qr_request_take_blob(const quire_sched *s, uint32_t index, size_t bytes)
{
    qr_request *r = &s->table.requests[index];
    size_t rounded = (bytes + 7) / 8 * 8;
    if (rounded > s->settings.max_request_bytes - r->blob_used)
        return NULL;
    unsigned char *at =
        s->table.blobs + (size_t)index * s->settings.max_request_bytes + r->blob_used;
    r->blob_used += (uint32_t)rounded;
    return at;
}

bool qr_request_copy_bytes(const quire_sched *s, uint32_t index, quire_bytes from, quire_bytes *to)
{
    *to = (quire_bytes){NULL, 0};
    if (from.len == 0)
        return true;
    if (from.len > s->settings.max_request_bytes)
        return false;
    unsigned char *at = qr_request_take_blob(s, index, from.len);
    if (at == NULL)
        return false;
    memcpy(at, from.data, from.len);
    *to = (quire_bytes){at, from.len};
    return true;
}

bool qr_request_copy_stops(const quire_sched *s, uint32_t index, const quire_request_params *p,
                           qr_stop_rules *to)
{
    *to = (qr_stop_rules){.num_tokens = p->num_stop_token_ids,
                          .min_tokens = p->min_tokens,
                          .repetition_max_pattern = p->repetition_max_pattern,
                          .repetition_min_pattern = p->repetition_min_pattern,
                          .repetition_min_count = p->repetition_min_count,
                          .eos_token_id = p->eos_token_id,
                          .has_eos = p->has_eos != 0};
    quire_bytes tokens = {(const void *)p->stop_token_ids,
                          p->num_stop_token_ids * sizeof(quire_token)};
    bool fits = qr_request_copy_bytes(s, index, tokens, &tokens);
    to->tokens = (const void *)tokens.data;
    return fits;
}

/* Of a prompt's embeddings the digest of those rows stays that lie in the block which the prompt
 * does not fill. */
static bool copy_embeds(const quire_sched *s, uint32_t index, const quire_request_params *p,
                        quire_bytes *to)
{
    unsigned char digest[QR_SHA256_BYTES];
    *to = (quire_bytes){NULL, 0};
    if (p->prompt_embeds == NULL || s->hasher == NULL)
        return true;
    size_t num_left = p->num_prompt_tokens % s->settings.hash_block_size;
    size_t first = p->num_prompt_tokens - num_left;
    const unsigned char *rows = p->prompt_embeds;
    qr_sha256(rows + first * p->prompt_embed_bytes, num_left * p->prompt_embed_bytes, digest);
    return qr_request_copy_bytes(s, index, (quire_bytes){digest, sizeof digest}, to);
}

static uint32_t count_embeds(const quire_mm_input *in)
{
    uint32_t length = (uint32_t)in->feature.length;
    if (in->is_embed == NULL)
        return in->num_embeds > 0 && in->num_embeds < length ? in->num_embeds : length;
    uint32_t count = 0;
    for (uint32_t i = 0; i < length; i++)
        count += in->is_embed[i] != 0;
    return count;
}

bool qr_request_copy_features(const quire_sched *s, uint32_t index, const quire_request_params *p,
                              uint32_t num_old, qr_feature **features,
                              quire_mm_feature **mm_features)
{
    uint64_t total = (uint64_t)num_old + p->num_mm_inputs;
    *features = NULL;
    *mm_features = NULL;
    if (p->num_mm_inputs == 0)
        return true;
    if (total > s->settings.max_features)
        return false;
    *features = qr_request_take_blob(s, index, total * sizeof **features);
    *mm_features = qr_request_take_blob(s, index, total * sizeof **mm_features);
    if (*features == NULL || *mm_features == NULL)
        return false;
    for (uint32_t i = 0; i < p->num_mm_inputs; i++) {
        const quire_mm_input *in = &p->mm_inputs[i];
        quire_mm_feature *mm = &(*mm_features)[num_old + i];
        *mm = in->feature;
        if (in->feature.offset > s->settings.max_model_len ||
            in->feature.length > qr_sched_longest_feature(s) ||
            in->feature.identifier.len > QR_MAX_IDENTIFIER_BYTES ||
            !qr_request_copy_bytes(s, index, in->feature.identifier, &mm->identifier))
            return false;
        (*features)[num_old + i] = (qr_feature){.identifier = mm->identifier,
                                                .owner = index,
                                                .offset = (uint32_t)mm->offset,
                                                .length = (uint32_t)mm->length,
                                                .num_embeds = count_embeds(in)};
    }
    return true;
}

int qr_request_copy_flags(quire_sched *s, const quire_request_params *p, qr_feature *features,
                          uint32_t num_old, qr_flag_chain *chain)
{
    uint64_t num_flags = 0;
    for (uint32_t i = 0; i < p->num_mm_inputs; i++)
        num_flags += p->mm_inputs[i].is_embed != NULL ? p->mm_inputs[i].feature.length : 0;
    uint64_t num_chunks = qr_flags_chunks_for(num_flags);
    if (num_chunks > s->flags.num_chunks)
        return QUIRE_E_RANGE;
    if (!qr_flags_take(&s->flags, chain, (uint32_t)num_chunks))
        return QUIRE_FULL;
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->num_mm_inputs; i++) {
        qr_feature *f = &features[num_old + i];
        f->has_flags = p->mm_inputs[i].is_embed != NULL;
        if (!f->has_flags)
            continue;
        f->first_flag = at & INT32_MAX;
        qr_flags_write(&s->flags, chain, at, p->mm_inputs[i].is_embed, f->length);
        at += f->length;
    }
    return QUIRE_OK;
}

/* ---- coming in ------------------------------------------------------------- */

int qr_request_check_arrays(const quire_request_params *p)
{
    bool has_prompt = p->prompt != NULL || p->prompt_embeds != NULL ||
                      p->num_prompt_tokens == p->num_hidden_tokens;
    bool is_special = p->is_resumable || p->prompt_embeds != NULL;
    bool ok = has_prompt && (p->num_hidden_tokens == 0 || !is_special) &&
              (p->hashes != NULL || p->num_hashes == 0) &&
              (p->prompt_embeds == NULL || !p->is_resumable) &&
              (p->stop_token_ids != NULL || p->num_stop_token_ids == 0) &&
              (p->mm_inputs != NULL || p->num_mm_inputs == 0) &&
              (p->lora_name.data != NULL || p->lora_name.len == 0) &&
              (p->lora_path.data != NULL || p->lora_path.len == 0) &&
              (p->cache_salt.data != NULL || p->cache_salt.len == 0);
    for (uint32_t i = 0; ok && i < p->num_mm_inputs; i++)
        ok = p->mm_inputs[i].feature.identifier.data != NULL &&
             p->mm_inputs[i].feature.identifier.len > 0;
    return ok ? QUIRE_OK : QUIRE_E_ARGUMENT;
}

bool qr_request_features_ok(const quire_sched *s, const quire_request_params *p)
{
    bool is_strict = (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) == 0;
    for (uint32_t i = 0; i < p->num_mm_inputs; i++) {
        const quire_mm_feature *f = &p->mm_inputs[i].feature;
        if (f->offset > s->settings.max_model_len || f->length > qr_sched_longest_feature(s) ||
            (s->settings.is_encoder_decoder && f->offset != 0))
            return false;
        if (is_strict && !s->settings.is_encoder_decoder &&
            f->offset + f->length > p->num_prompt_tokens)
            return false;
        if (is_strict && s->settings.is_encoder_decoder && p->mm_inputs[i].is_embed != NULL)
            return false;
    }
    return true;
}

int qr_request_check_alone(quire_sched *s, const qr_request *r, uint32_t num_tokens)
{
    bool hides = (s->settings.quirks & QR_QUIRK(MIN_TOKENS_HIDES_LENGTH)) != 0;
    bool goes_on = r->is_resumable || (hides && r->stops.min_tokens > r->max_tokens);
    uint32_t num_outputs = num_tokens - r->num_prompt_tokens;
    const qr_admissible_ask ask = {.num_tokens = num_tokens,
                                   .has_second = goes_on || r->max_tokens > num_outputs + 1,
                                   .features = r->features,
                                   .num_features = r->num_features,
                                   .first_new = r->num_features};
    return qr_admissible_check(s, &ask);
}

void qr_request_fill_numbers(const quire_sched *s, qr_request *r, const quire_request_params *p,
                             uint32_t num_prompt_tokens)
{
    r->num_prompt_tokens = num_prompt_tokens;
    r->max_tokens = p->is_pooling ? 1 : p->max_tokens;
    if (r->max_tokens == 0)
        r->max_tokens = s->settings.max_model_len - num_prompt_tokens;
    r->status = p->use_grammar ? QUIRE_REQ_WAITING_FOR_GRAMMAR : QUIRE_REQ_WAITING;
    r->use_grammar = p->use_grammar != 0;
    r->is_pooling = p->is_pooling != 0;
    r->is_resumable = p->is_resumable != 0;
    r->has_prefill_stats = true;
    r->client_index = p->client_index;
    r->kv.user = p->user;
    r->kv.skip_reading_prefix = p->skip_reading_prefix;
    r->reports_hits = p->kv_cache_report_full != 0;
}

/* Hashes of their blocks cannot be made. */
static bool are_hidden_tokens_ok(const quire_sched *s, const quire_request_params *p)
{
    uint64_t most = s->hasher != NULL ? (uint64_t)p->num_hashes * s->settings.hash_block_size
                                      : p->num_prompt_tokens;
    return p->num_hidden_tokens <= most && p->num_hidden_tokens <= p->num_prompt_tokens;
}

static int fill_request(quire_sched *s, uint32_t index, const quire_request_params *p)
{
    qr_request *r = &s->table.requests[index];
    qr_request_fill_numbers(s, r, p, p->num_prompt_tokens);
    r->lora_id = p->lora_id;
    r->num_features = p->num_mm_inputs;
    qr_stop_rules stops;
    quire_mm_feature *mm_features;
    bool fits = qr_request_copy_stops(s, index, p, &stops) &&
                qr_request_copy_features(s, index, p, 0, &r->features, &mm_features) &&
                qr_request_copy_bytes(s, index, p->lora_name, &r->extra.lora_name) &&
                qr_request_copy_bytes(s, index, p->lora_path, &r->extra.lora_path) &&
                qr_request_copy_bytes(s, index, p->cache_salt, &r->extra.cache_salt) &&
                copy_embeds(s, index, p, &r->embeds_tail);
    if (!fits)
        return QUIRE_E_RANGE;
    qr_request_set_stops(r, &stops);
    int err = qr_request_check_alone(s, r, p->num_prompt_tokens);
    if (err == QUIRE_OK)
        err = qr_request_copy_flags(s, p, r->features, 0, &r->flags);
    if (err != QUIRE_OK)
        return err;
    r->extra.mm_features = mm_features;
    r->extra.num_mm_features = r->num_features;
    r->is_plain = !r->use_grammar && !r->is_pooling && r->num_features == 0;
    r->has_extra = r->extra.lora_name.len > 0 || r->extra.cache_salt.len > 0 || r->num_features > 0;
    qr_text_hide(&r->text, p->num_hidden_tokens);
    if (!qr_texts_take_waiting(&s->texts, &r->text, p->num_prompt_tokens,
                               s->texts.max_waiting_pages))
        return QUIRE_FULL;
    const quire_token *prompt = p->prompt;
    if (prompt == NULL && p->prompt_embeds != NULL) { /* embeddings alone */
        memset(s->room.token_scratch, 0,
               (size_t)p->num_prompt_tokens * sizeof *s->room.token_scratch);
        prompt = s->room.token_scratch;
    }
    err = qr_sched_hash_prompt(s, r, p, prompt);
    if (err != QUIRE_OK)
        return err;
    qr_text_cut(&s->texts.store, &r->text, p->num_hidden_tokens);
    qr_text_append(&s->texts.store, &r->text, prompt, p->num_prompt_tokens - p->num_hidden_tokens);
    if (s->watch.monitor != NULL) /* whose feed reads tokens in place */
        qr_text_show(&s->texts.store, &r->text);
    r->kv.num_tokens = p->num_prompt_tokens;
    return QUIRE_OK;
}

void qr_sched_release_slot(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (r->has_promise)
        qr_texts_take_back(&s->texts, r);
    qr_texts_release_waiting(&s->texts, &r->text);
    qr_flags_release(&s->flags, &r->flags);
    *r = (qr_request){
        .generation = r->generation, .text = r->text, .first_input = QR_NIL, .last_input = QR_NIL};
}

int qr_sched_take_slot(quire_sched *s, quire_bytes id, uint32_t *index)
{
    if (qr_idmap_find(&s->table.ids, id.data, (uint32_t)id.len) != QR_NIL)
        return QUIRE_E_DUPLICATE;
    uint64_t ends = (uint64_t)s->ended.num_finished + s->table.num_live;
    uint64_t told = (uint64_t)s->ended.num_client_finished + s->table.num_live;
    if (s->table.num_live == s->settings.max_requests || ends >= s->settings.max_finished ||
        told >= s->settings.max_finished)
        return QUIRE_FULL;
    *index = s->table.free_slots[s->settings.max_requests - 1 - s->table.num_live];
    qr_sched_release_slot(s, *index);
    return QUIRE_OK;
}

void qr_sched_enter(quire_sched *s, uint32_t index, const quire_request_params *p)
{
    int err = qr_idmap_insert(&s->table.ids, p->id.data, (uint32_t)p->id.len, index);
    qr_assert(err == QUIRE_OK);
    s->table.num_live++;
    qr_list_insert_before(s->table.by_age, sizeof *s->table.by_age, s->settings.max_requests,
                          index);
    qr_request *r = &s->table.requests[index];
    r->is_in_use = true;
    r->generation++;
    qr_waiter *w = &s->table.waiters[index];
    qr_link_clear(&w->link);
    w->queue = 0;
    w->is_deferred = false;
    w->priority = p->priority;
    w->arrival_time = p->arrival_time;
    w->id = (quire_bytes){qr_idmap_key(&s->table.ids, index), p->id.len};
    qr_metrics *metrics = qr_sched_timed_metrics(s);
    if (metrics != NULL)
        qr_metrics_add_request(metrics, index, r->num_prompt_tokens,
                               r->is_pooling ? 0 : r->max_tokens);
}

int qr_sched_add(quire_sched *s, const quire_request_params *p, quire_req *req)
{
    uint32_t index;
    int err = p->id.data == NULL || p->id.len == 0 ? QUIRE_E_ARGUMENT : qr_request_check_arrays(p);
    if (err == QUIRE_OK && !(qr_request_features_ok(s, p) && are_hidden_tokens_ok(s, p)))
        err = QUIRE_E_RANGE;
    if (err == QUIRE_OK)
        err = qr_sched_take_slot(s, p->id, &index);
    if (err != QUIRE_OK)
        return err;
    err = fill_request(s, index, p);
    if (err != QUIRE_OK) {
        qr_sched_release_slot(s, index);
        return err;
    }
    qr_sched_enter(s, index, p);
    qr_sched_enqueue(s, index);
    *req = qr_sched_req_of(s, index);
    qr_sched_tell_load(s);
    qr_assert_expensive(qr_sched_is_valid(s));
    return QUIRE_OK;
}

/* The features that lie in the first num_tokens tokens, or QR_NIL where one begins there and ends
 * behind them. */
static uint32_t count_features_before(const qr_request *r, uint32_t num_tokens)
{
    uint32_t n = 0;
    while (n < r->num_features && r->features[n].offset < num_tokens) {
        if (r->features[n].length > num_tokens - r->features[n].offset)
            return QR_NIL;
        n++;
    }
    return n;
}

/* A request that could run can run with fewer tokens and features: nothing else is to be checked.
 * vLLM keeps the hash of a block that is full no longer, as for a session: SESSION_STALE_HASH. */
int qr_sched_cut_prompt(quire_sched *s, uint32_t index, uint32_t num_tokens, uint32_t max_tokens)
{
    qr_request *r = &s->table.requests[index];
    bool has_begun = r->kv.seq != 0 || r->kv.num_computed_tokens > 0 || r->num_saved > 0 ||
                     r->num_hosted > 0 || r->kv.num_tokens > r->num_prompt_tokens ||
                     qr_request_is_finished(r) || r->status == QUIRE_REQ_WAITING_FOR_STREAMING;
    has_begun = has_begun || (r->num_stale > 0 && !r->drops_stale); /* output is on its way */
    if (has_begun || r->embeds_tail.data != NULL)
        return QUIRE_E_ARGUMENT;
    if (num_tokens == 0 || num_tokens > r->num_prompt_tokens || num_tokens < r->text.num_hidden)
        return QUIRE_E_RANGE;
    bool keeps_all =
        (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) != 0 || s->settings.is_encoder_decoder;
    uint32_t num_features = keeps_all ? r->num_features : count_features_before(r, num_tokens);
    if (num_features == QR_NIL)
        return QUIRE_E_RANGE;
    if (num_features < r->num_features)
        qr_sched_drop_features(s, r, num_features);
    qr_text_cut(&s->texts.store, &r->text, num_tokens);
    r->kv.num_tokens = num_tokens;
    r->num_prompt_tokens = num_tokens;
    if (max_tokens > 0 && max_tokens < r->max_tokens) {
        r->max_tokens = max_tokens;
        if (r->stops.min_tokens > max_tokens) /* else it would run on, past the promised pages */
            r->stops.min_tokens = max_tokens;
    }
    if (!r->has_promise) { /* it has no more pages than it will need */
        s->texts.num_waiting_pages -= r->text.num_pages;
        qr_text_trim(&s->texts.store, &r->text);
        s->texts.num_waiting_pages += r->text.num_pages;
    }
    bool is_stale = (s->settings.quirks & QR_QUIRK(SESSION_STALE_HASH)) != 0;
    uint32_t most = is_stale ? r->text.num_pages * s->texts.store.page_hashes : 0;
    if (s->hasher != NULL && !is_stale)
        most = num_tokens / s->settings.hash_block_size;
    r->kv.num_hashes = r->kv.num_hashes < most ? r->kv.num_hashes : most;
    return QUIRE_OK;
}

static void defer(quire_sched *s, uint32_t index)
{
    qr_waiter *w = &s->table.waiters[index];
    s->queues.num_deferred += !w->is_deferred;
    w->is_deferred = true;
}

void qr_sched_undefer(quire_sched *s, uint32_t index)
{
    qr_waiter *w = &s->table.waiters[index];
    s->queues.num_deferred -= w->is_deferred;
    w->is_deferred = false;
}

/* A load may have failed, and its request may still have the blocks. */
static bool holds_blocks(const qr_request *r)
{
    return r->kv.num_computed_tokens > 0 || r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS;
}

void qr_sched_skip(quire_sched *s, uint32_t index)
{
    bool is_apart = !s->settings.rules.holders_first || holds_blocks(&s->table.requests[index]);
    if (s->settings.rules.holders_first)
        defer(s, index);
    qr_waiting_add(is_apart ? &s->queues.step_skipped : &s->queues.step_waiting, index);
}

void qr_sched_enqueue(quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    bool is_held = qr_request_is_held(r);
    if (s->prefix.window > 0)
        qr_prefix_enter(s, index);
    if (s->settings.rules.holders_first && is_held)
        defer(s, index);
    bool is_apart = s->settings.rules.holders_first ? holds_blocks(r) : is_held;
    qr_waiting_add(is_apart ? &s->queues.skipped : &s->queues.waiting, index);
}

void qr_sched_dequeue(quire_sched *s, uint32_t index)
{
    uint32_t number = s->table.waiters[index].queue;
    if (number == s->queues.waiting.number)
        qr_waiting_remove(&s->queues.waiting, index);
    else if (number == s->queues.skipped.number)
        qr_waiting_remove(&s->queues.skipped, index);
}

/* ---- the end --------------------------------------------------------------- */

/* Of the request's blocks in room.spans, those of computed tokens; states have no place in a
 * text. */
static void cut_to_computed(quire_sched *s, const qr_request *r)
{
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        const qr_group *group = &s->cache->groups[g];
        /* vLLM takes the block size of one rank: with context parallelism it cuts too little. */
        bool is_vllm = s->settings.rules.counts_in_flight;
        uint32_t size = is_vllm ? group->spec.block_size : group->block_size;
        uint32_t most = qr_ceil_div(r->kv.num_computed_tokens, size);
        bool is_attention =
            group->spec.kind != QUIRE_LAYER_MAMBA && group->spec.kind != QUIRE_LAYER_CROSS;
        if (is_attention && s->room.spans[g].count > most)
            s->room.spans[g].count = most;
    }
}

void qr_sched_drop_skipped(quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    uint32_t row = qr_cache_row_of(s->cache, r->kv.seq);
    if (row != QR_NIL)
        qr_cache_remove_skipped(s->cache, row, qr_request_processed_tokens(r),
                                r->num_prompt_tokens);
}

static bool connector_keeps(quire_sched *s, uint32_t index, bool is_loading)
{
    const quire_connector *c = &s->partners.connector;
    qr_request *r = &s->table.requests[index];
    if (!s->partners.has_connector)
        return false;
    uint32_t num_states = c->states_finished == NULL ? 0 : qr_states_end(s, index);
    /* Blocks that a load still writes to stay; a connector that reports a failure has ended it. */
    if (!is_loading || r->status == QUIRE_REQ_FINISHED_ERROR)
        qr_sched_drop_skipped(s, index);
    if (c->request_finished == NULL && num_states == 0)
        return false;
    quire_req req = qr_sched_req_of(s, index);
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    if (s->settings.rules.cuts_sent_blocks)
        cut_to_computed(s, r);
    bool keeps = num_states > 0 &&
                 c->states_finished(c->user, req, s->room.spans, s->states.ended, num_states) != 0;
    if (c->request_finished != NULL)
        keeps |= c->request_finished(c->user, req, s->room.spans) != 0;
    return keeps;
}

void qr_sched_free_request(quire_sched *s, uint32_t index, bool keep_blocks)
{
    qr_request *r = &s->table.requests[index];
    bool is_good = r->status != QUIRE_REQ_FINISHED_ERROR && r->status != QUIRE_REQ_FINISHED_IGNORED;
    if (is_good && !keep_blocks)
        qr_sched_cache_end(s, index);
    bool keeps = connector_keeps(s, index, keep_blocks);
    const quire_encoder_connector *e = &s->partners.encoder_connector;
    if (e->request_finished != NULL)
        keeps |= e->request_finished(e->user, qr_sched_req_of(s, index)) != 0;
    qr_swap_drop(s, index);
    if (s->ahead.num > 0)
        qr_lookahead_drop(s, index);
    if (r->num_features > 0)
        qr_encoder_free(&s->encoder, r->features, r->num_features);
    s->ended.finished[s->ended.num_finished++] = qr_sched_req_of(s, index);
    if (s->settings.lists_finished) {
        s->ended.client_finished[s->ended.num_client_finished] = qr_sched_req_of(s, index);
        s->ended.client_of_finished[s->ended.num_client_finished++] = r->client_index;
    }
    r->awaits_sending = keeps;
    r->is_prefilling = false;
    r->load = keep_blocks ? QR_LOAD_LEFT : QR_LOAD_OPEN;
    r->load_step = 0;
    if (s->watch.monitor != NULL)
        qr_metrics_mark_end(&s->watch.monitor->metrics, index);
    if (!keeps && !keep_blocks)
        qr_sched_free_blocks(s, index);
}

void qr_sched_free_blocks(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (r->pin_ns > 0)
        qr_pins_keep(s, index);
    qr_fence_drop(s, r);
    qr_sched_drop_inputs(s, index);
    qr_idmap_remove(&s->table.ids, index);
    qr_list_remove(s->table.by_age, sizeof *s->table.by_age, index);
    qr_sched_release_slot(s, index);
    s->table.free_slots[s->settings.max_requests - s->table.num_live--] = index;
}

static void leave_queue(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (r->status != QUIRE_REQ_RUNNING) {
        bool is_listed_again = s->table.waiters[index].queue == 0;
        if (r->status == QUIRE_REQ_WAITING_FOR_STREAMING && !is_listed_again)
            s->queues.num_waiting_for_streaming--;
        qr_sched_dequeue(s, index);
        qr_sched_undefer(s, index);
        return;
    }
    uint32_t place = 0;
    while (place < s->queues.num_running && s->queues.running[place] != index)
        place++;
    if (place < s->queues.num_running) /* else it is listed twice */
        qr_sched_leave_running(s, place);
}

static void finish_one(quire_sched *s, uint32_t index, quire_req_status status)
{
    qr_request *r = &s->table.requests[index];
    bool is_loading = qr_request_is_loading(r);
    r->status = (uint8_t)status;
    qr_deadlock_note_holder(s, r);
    qr_metrics *metrics = qr_sched_timed_metrics(s);
    if (metrics != NULL)
        qr_metrics_end_request(metrics, index, status);
    qr_sched_free_request(s, index, is_loading);
}

void qr_sched_finish(quire_sched *s, const quire_req *reqs, uint32_t n, quire_req_status status,
                     uint32_t *num_finished)
{
    uint32_t count = 0;
    for (uint32_t pass = 0; pass < 2;
         pass++) { /* all leave their queues before the first is freed */
        for (uint32_t i = 0; i < n; i++) {
            uint32_t index = qr_sched_index_of(s, reqs[i]);
            if (index == QR_NIL || qr_request_is_finished(&s->table.requests[index]))
                continue;
            if (pass == 0) {
                leave_queue(s, index);
                continue;
            }
            finish_one(s, index, status);
            count++;
        }
    }
    if (s->deadlock.is_active && count > 0)
        qr_deadlock_end(s);
    if (num_finished != NULL)
        *num_finished = count;
    qr_sched_tell_load(s);
    qr_assert_expensive(qr_sched_is_valid(s));
}

void qr_sched_finish_all(quire_sched *s, quire_req_status status, uint32_t *num_finished)
{
    uint32_t n = 0; /* in the order in which they were added */
    for (uint32_t i = s->table.by_age[s->settings.max_requests].next; i != s->settings.max_requests;
         i = s->table.by_age[i].next)
        s->room.req_scratch[n++] = qr_sched_req_of(s, i);
    qr_sched_finish(s, s->room.req_scratch, n, status, num_finished);
}

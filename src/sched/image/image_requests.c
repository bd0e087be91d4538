/* Pages and places in the blob are taken anew, one after the other: they may lie elsewhere then,
 * which nobody sees. How much of the blob is used up is kept, since that bounds what can follow. */

#include "sched/image/image_flight.h"

#include <math.h>

/* ---- the blob -------------------------------------------------------------- */

static void *image_take_blob(qr_image *image, quire_sched *s, uint32_t index, size_t bytes)
{
    if (image->is_bad || bytes == 0)
        return NULL;
    void *at = qr_request_take_blob(s, index, bytes);
    qr_image_require(image, at != NULL);
    return at;
}

/* n bytes that `from` points to, or that are put into the blob; returns where they are then. */
static const void *image_blob(qr_image *image, quire_sched *s, uint32_t index, const void *from,
                              size_t n)
{
    if (!image->is_reading) {
        qr_image_put(image, from, n);
        return from;
    }
    void *to = image_take_blob(image, s, index, n);
    if (to != NULL)
        qr_image_bytes(image, to, n);
    return to;
}

static void image_name(qr_image *image, quire_sched *s, uint32_t index, quire_bytes *name)
{
    uint32_t len = (uint32_t)name->len;
    qr_image_u32(image, &len, s->settings.max_request_bytes);
    const void *data = image_blob(image, s, index, name->data, len);
    if (image->is_reading)
        *name = (quire_bytes){data, len};
}

static void image_stops(qr_image *image, quire_sched *s, uint32_t index, qr_stop_rules *stops)
{
    uint32_t *const numbers[] = {&stops->min_tokens, &stops->repetition_max_pattern,
                                 &stops->repetition_min_pattern, &stops->repetition_min_count};
    qr_image_bytes(image, &stops->eos_token_id, sizeof stops->eos_token_id);
    qr_image_bool(image, &stops->has_eos);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        qr_image_u32(image, numbers[i], UINT32_MAX);
    qr_image_u32(image, &stops->num_tokens, UINT32_MAX);
    const void *tokens =
        image_blob(image, s, index, stops->tokens, stops->num_tokens * sizeof *stops->tokens);
    if (image->is_reading)
        stops->tokens = tokens;
}

/* ---- features -------------------------------------------------------------- */

/* The chain of flags as it is, chunk by chunk; features name places in it. */
static void image_chain(qr_image *image, quire_sched *s, qr_flag_chain *chain)
{
    uint32_t num_chunks = chain->num_chunks;
    qr_image_u32(image, &num_chunks, s->flags.num_chunks);
    if (image->is_reading)
        qr_image_require(image, qr_flags_take(&s->flags, chain, num_chunks));
    uint32_t chunk = QR_NIL;
    for (uint32_t i = 0; i < num_chunks && !image->is_bad; i++) {
        chunk = qr_flags_next(&s->flags, chain, chunk);
        qr_flag_chunk *c = &s->flags.chunks[chunk];
        qr_image_bytes(image, c->words, sizeof c->words);
    }
}

static void image_flags(qr_image *image, const quire_sched *s, const qr_flag_chain *chain,
                        qr_feature *f)
{
    uint64_t room = (uint64_t)chain->num_chunks * QR_FLAGS_IN_CHUNK;
    bool has_flags = f->has_flags;
    uint32_t first_flag = f->first_flag;
    qr_image_bool(image, &has_flags);
    if (image->is_reading)
        f->has_flags = has_flags;
    if (!has_flags) {
        qr_image_require(image, f->num_embeds <= f->length);
        return;
    }
    qr_image_u32(image, &first_flag, INT32_MAX);
    qr_image_require(image, (uint64_t)first_flag + f->length <= room);
    if (image->is_reading)
        f->first_flag = first_flag & INT32_MAX;
    if (image->is_reading && !image->is_bad)
        qr_image_require(image, qr_feature_embeds_in_range(f, &s->flags, chain, 0, f->length) ==
                                    f->num_embeds);
}

static void image_feature(qr_image *image, quire_sched *s, uint32_t index,
                          const qr_flag_chain *chain, qr_feature *f)
{
    qr_assert(f != NULL);
    if (image->is_reading)
        *f = (qr_feature){.owner = index};
    qr_image_u32(image, &f->offset, 2 * s->settings.max_model_len);
    qr_image_u32(image, &f->length, qr_sched_longest_feature(s));
    qr_image_u32(image, &f->num_embeds, UINT32_MAX);
    image_name(image, s, index, &f->identifier);
    qr_image_require(image, f->identifier.len > 0 && f->identifier.len <= QR_MAX_IDENTIFIER_BYTES);
    image_flags(image, s, chain, f);
}

/* Features [first, first + n) of arrays that have those before them as well, or will. */
static void image_features(qr_image *image, quire_sched *s, uint32_t index, uint32_t first,
                           uint32_t n, qr_flag_chain *chain, qr_feature **features,
                           quire_mm_feature **mm_features)
{
    size_t total = (size_t)first + n;
    if (image->is_reading) {
        *features = NULL;
        *mm_features = NULL;
        qr_image_require(image, total <= s->settings.max_features);
    }
    if (n == 0 || image->is_bad)
        return;
    if (image->is_reading) {
        *features = image_take_blob(image, s, index, total * sizeof **features);
        *mm_features = image_take_blob(image, s, index, total * sizeof **mm_features);
    }
    image_chain(image, s, chain);
    for (size_t i = first; i < total && !image->is_bad; i++) {
        qr_feature *f = *features + i;
        image_feature(image, s, index, chain, f);
        if (image->is_reading && *mm_features != NULL)
            (*mm_features)[i] = (quire_mm_feature){f->identifier, f->offset, f->length};
    }
}

/* ---- text ------------------------------------------------------------------ */

/* For tokens that are hidden. */
static void image_zeros(qr_image *image, size_t bytes)
{
    static const unsigned char zeros[256];
    for (size_t part; bytes > 0 && !image->is_bad; bytes -= part) {
        part = bytes < sizeof zeros ? bytes : sizeof zeros;
        qr_image_put(image, zeros, part);
    }
}

static void image_text(qr_image *image, quire_sched *s, qr_text *text)
{
    qr_text_store *store = &s->texts.store;
    uint32_t num_pages = text->num_pages;
    uint32_t num_tokens = text->num_tokens;
    qr_image_u32(image, &num_pages, store->max_pages);
    qr_image_u32(image, &num_tokens, s->settings.max_model_len);
    qr_image_require(image, qr_text_pages_for(store, num_tokens) <= num_pages);
    if (image->is_reading && !image->is_bad)
        qr_image_require(image, qr_text_reserve(store, text, num_pages * store->page_tokens));
    for (uint32_t page = 0; page * store->page_tokens < num_tokens && !image->is_bad; page++) {
        uint32_t rest = num_tokens - page * store->page_tokens;
        uint32_t part = rest < store->page_tokens ? rest : store->page_tokens;
        uint32_t first = page * store->page_tokens;
        uint32_t num_hidden = text->num_hidden > first ? text->num_hidden - first : 0;
        num_hidden = image->is_reading ? 0 : num_hidden < part ? num_hidden : part;
        image_zeros(image, num_hidden * sizeof(quire_token));
        if (num_hidden == part)
            continue;
        quire_token *tokens = qr_text_page_tokens(store, text, page) + num_hidden;
        qr_image_bytes(image, tokens, (part - num_hidden) * sizeof *tokens);
    }
    if (image->is_reading && !image->is_bad)
        qr_text_cut(store, text, num_tokens);
}

static void image_hashes(qr_image *image, quire_sched *s, qr_request *r)
{
    const qr_text_store *store = &s->texts.store;
    qr_image_u32(image, &r->kv.num_hashes, r->text.num_pages * store->page_hashes);
    for (uint32_t first = 0; first < r->kv.num_hashes && !image->is_bad;
         first += store->page_hashes) {
        uint32_t rest = r->kv.num_hashes - first;
        uint32_t part = rest < store->page_hashes ? rest : store->page_hashes;
        qr_image_bytes(image, qr_text_hash(store, &r->text, first),
                       (size_t)part * store->digest_bytes);
    }
}

/* ---- inputs of a session ---------------------------------------------------- */

/* Times order requests: NaN would not. */
static void image_time(qr_image *image, double *time)
{
    qr_image_bytes(image, time, sizeof *time);
    if (image->is_reading)
        qr_image_require(image, isfinite(*time));
}

static void image_input(qr_image *image, quire_sched *s, uint32_t index, qr_session_input *in,
                        uint32_t num_old)
{
    image_text(image, s, &in->text);
    if (image->is_reading)
        s->texts.num_waiting_pages += in->text.num_pages;
    image_time(image, &in->arrival_time);
    if (s->settings.rules.input_sets_max_tokens)
        qr_image_u32(image, &in->max_tokens, UINT32_MAX);
    image_stops(image, s, index, &in->stops);
    qr_image_u32(image, &in->num_features, s->settings.max_features);
    image_features(image, s, index, num_old, in->num_features, &in->flags, &in->features,
                   &in->mm_features);
}

/* The next one that waits; while reading it is taken from the free ones. */
static uint32_t image_next_input(qr_image *image, quire_sched *s, qr_request *r, uint32_t before)
{
    if (!image->is_reading)
        return before == QR_NIL ? r->first_input : s->sessions.inputs[before].next;
    uint32_t input = s->sessions.first_free_input;
    qr_image_require(image, input != QR_NIL);
    if (image->is_bad)
        return QR_NIL;
    s->sessions.first_free_input = s->sessions.inputs[input].next;
    s->sessions.inputs[input].next = QR_NIL;
    if (before == QR_NIL)
        r->first_input = input;
    else
        s->sessions.inputs[before].next = input;
    r->last_input = input;
    return input;
}

static void image_inputs(qr_image *image, quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    uint32_t count = 0;
    uint32_t num_old = r->num_features;
    for (uint32_t i = r->first_input; i != QR_NIL; i = s->sessions.inputs[i].next)
        count++;
    qr_image_u32(image, &count, s->settings.max_requests);
    uint32_t input = QR_NIL;
    for (uint32_t i = 0; i < count && !image->is_bad; i++) {
        input = image_next_input(image, s, r, input);
        if (image->is_bad)
            return;
        image_input(image, s, index, &s->sessions.inputs[input], num_old);
        num_old += s->sessions.inputs[input].num_features;
    }
}

/* ---- one request ----------------------------------------------------------- */

static void image_request_numbers(qr_image *image, quire_sched *s, qr_request *r)
{
    bool has_given_way = r->gave_way_in == s->deadlock.round;
    bool *const flags[] = {&r->is_prefill_chunk, &r->discards_async, &r->use_grammar,
                           &r->is_pooling,       &r->is_resumable,   &r->has_prefill_stats,
                           &r->ends_session,     &r->is_plain,       &r->awaits_sending,
                           &r->has_failed_load,  &r->has_promise,    &r->is_offloaded,
                           &has_given_way};
    uint32_t *const numbers[] = {
        &r->max_tokens,   &r->num_preemptions, &r->num_local_cached, &r->num_external_cached,
        &r->client_index, &r->lora_id,         &r->kv.was_preempted, &r->kv.skip_reading_prefix};
    uint64_t user = (uint64_t)(uintptr_t)r->kv.user;
    qr_image_u8(image, &r->status, QUIRE_REQ_FINISHED_REPETITION);
    qr_image_u8(image, &r->stopped_by, QR_STOPPED_BY_REPETITION);
    qr_image_u8(image, &r->load, QR_LOAD_LEFT);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        qr_image_bool(image, flags[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        qr_image_u32(image, numbers[i], UINT32_MAX);
    qr_image_u32(image, &r->kv.num_tokens, s->settings.max_model_len);
    qr_image_u32(image, &r->num_prompt_tokens, r->kv.num_tokens);
    qr_image_u32(image, &r->kv.num_computed_tokens, s->settings.max_model_len);
    qr_image_u32(image, &r->num_placeholders, QR_MAX_TOKENS);
    qr_image_u32(image, &r->num_drafts, s->settings.num_spec_tokens);
    qr_image_u32(image, &r->num_features, s->settings.max_features);
    qr_image_u32(image, &r->last_step, UINT32_MAX);
    qr_image_u32(image, &r->num_kept, r->kv.num_tokens);
    qr_image_u64(image, &r->first_valid_step, s->flight.step + 1);
    qr_image_u64(image, &r->load_step, s->flight.step);
    qr_image_u64(image, &r->pin_ns, s->pins.max_pins == 0 ? 0 : UINT64_MAX);
    qr_image_u32(image, &r->load_end, s->settings.max_model_len);
    qr_image_u32(image, &r->num_promised_pages, s->texts.store.max_pages);
    qr_image_u64(image, &user, UINTPTR_MAX);
    qr_image_bytes(image, &r->stop_reason, sizeof r->stop_reason);
    if (image->is_reading) {
        r->kv.user = (void *)(uintptr_t)user;
        r->gave_way_in = has_given_way ? s->deadlock.round : 0;
    }
    qr_image_require(image, !image->is_reading || (r->status > 0 && r->num_prompt_tokens > 0));
    /* After a load that failed a request loads no more: no update would confirm this one. */
    bool is_running = image->is_reading && r->status == QUIRE_REQ_RUNNING;
    qr_image_require(image, !is_running || r->load_step == 0 || !r->has_failed_load);
}

static void image_waiter(qr_image *image, quire_sched *s, uint32_t index)
{
    qr_waiter *w = &s->table.waiters[index];
    uint32_t len = (uint32_t)w->id.len;
    qr_image_bytes(image, &w->priority, sizeof w->priority);
    image_time(image, &w->arrival_time);
    qr_image_u32(image, &len, QR_MAX_ID_BYTES);
    if (!image->is_reading) {
        qr_image_put(image, w->id.data, len);
        return;
    }
    const unsigned char *id = qr_image_view(image, len);
    qr_image_require(image, len > 0);
    if (image->is_bad)
        return;
    qr_image_require(image, qr_idmap_insert(&s->table.ids, id, len, index) == QUIRE_OK);
    w->id = (quire_bytes){qr_idmap_key(&s->table.ids, index), len};
}

static void image_extra(qr_image *image, quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    quire_mm_feature *mm_features = NULL;
    image_features(image, s, index, 0, r->num_features, &r->flags, &r->features, &mm_features);
    for (uint32_t i = 0; i < r->num_features && !image->is_bad; i++)
        qr_image_hold(image, &s->encoder, r->features, i);
    qr_image_kept(image, &s->encoder, r->features, r->num_features);
    image_name(image, s, index, &r->extra.lora_name);
    if (image->version > QR_IMAGE_OLD_VERSION) {
        image_name(image, s, index, &r->extra.lora_path);
        qr_image_bool(image, &r->reports_hits);
    }
    image_name(image, s, index, &r->extra.cache_salt);
    image_name(image, s, index, &r->embeds_tail);
    qr_image_require(image, r->embeds_tail.len == 0 || r->embeds_tail.len == QR_SHA256_BYTES);
    if (!image->is_reading)
        return;
    r->extra.mm_features = mm_features;
    r->extra.num_mm_features = r->num_features;
    r->has_extra = r->extra.lora_name.len > 0 || r->extra.cache_salt.len > 0 || r->num_features > 0;
}

/* The slots of a request that is swapped out, group after group. */
static void image_saved(qr_image *image, quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    qr_image_u32(image, &r->num_hosted, r->kv.seq == 0 ? r->kv.num_tokens : 0);
    qr_image_u32(image, &r->num_saved, s->swap.num_slots == 0 ? 0 : r->kv.num_tokens);
    if (r->num_saved == 0)
        return;
    uint32_t count = qr_cache_num_saved(s->cache, r->num_saved);
    uint32_t *link = &r->first_saved;
    for (uint32_t i = 0; i < count && !image->is_bad; i++) {
        qr_image_u32(image, link, s->swap.num_slots - 1);
        qr_swap_slot *slot = &s->swap.slots[*link];
        if (image->is_reading)
            slot->owner = index;
        link = &slot->next;
    }
    if (!image->is_reading)
        return;
    *link = QR_NIL;
    s->table.waiters[index].is_swapped = true;
    s->swap.num_requests++;
}

/* How often it was overtaken, and what it would find. */
static void image_wait(qr_image *image, quire_sched *s, uint32_t index)
{
    const qr_turns *all = &s->prefix.admitted;
    if (s->prefix.window == 0)
        return;
    qr_prefix_wait *wait = &s->prefix.waits[index];
    qr_image_u64(image, &wait->came.tokens, all->tokens);
    qr_image_u64(image, &wait->came.requests, all->requests);
    qr_image_u64(image, &wait->overtaken.tokens, all->tokens - wait->came.tokens);
    qr_image_u64(image, &wait->overtaken.requests, all->requests - wait->came.requests);
    qr_image_u32(image, &wait->num_found, s->settings.max_model_len);
}

void qr_image_request(qr_image *image, quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    uint32_t blob_used = r->blob_used;
    image_request_numbers(image, s, r);
    image_waiter(image, s, index);
    qr_image_flight(image, s, index);
    image_text(image, s, &r->text);
    qr_image_require(image, r->text.num_tokens == r->kv.num_tokens);
    if (image->is_reading) {
        s->texts.num_promised_pages += r->num_promised_pages;
        s->texts.num_waiting_pages += r->has_promise ? 0 : r->text.num_pages;
    }
    image_hashes(image, s, r);
    qr_image_bytes(image, qr_sched_drafts_of(s, index), r->num_drafts * sizeof *s->table.drafts);
    image_stops(image, s, index, &r->stops);
    if (image->is_reading) {
        qr_stop_rules stops = r->stops;
        qr_request_set_stops(r, &stops);
    }
    image_extra(image, s, index);
    image_inputs(image, s, index);
    qr_image_seq(image, s->cache, r->num_prompt_tokens, &r->kv.seq);
    if (image->is_reading)
        qr_deadlock_note_holder(s, r);
    image_saved(image, s, index);
    image_wait(image, s, index);
    qr_image_u32(image, &blob_used, s->settings.max_request_bytes);
    qr_image_require(image, blob_used >= r->blob_used && blob_used % 8 == 0);
    if (image->is_reading && !image->is_bad)
        r->blob_used = blob_used;
}

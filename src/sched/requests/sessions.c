/* sched/requests/sessions.c - requests that go on: inputs that follow what was generated.
 *
 *      prompt | generated      stops: the next input is taken, or the session waits for it
 *      prompt . . . . . . | input       what was computed becomes prompt; the last sampled token,
 *                                       which was not, is dropped
 */
#include "sched/sched.h"
#include "sched/step/admissible.h"

static void free_input(quire_sched *s, uint32_t input)
{
    qr_texts_release_waiting(&s->texts, &s->sessions.inputs[input].text);
    qr_flags_release(&s->flags, &s->sessions.inputs[input].flags);
    s->sessions.inputs[input].next = s->sessions.first_free_input;
    s->sessions.first_free_input = input;
}

void qr_sched_drop_inputs(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    while (r->first_input != QR_NIL) {
        uint32_t next = s->sessions.inputs[r->first_input].next;
        free_input(s, r->first_input);
        r->first_input = next;
    }
}

void qr_sched_drop_features(quire_sched *s, qr_request *r, uint32_t num_left)
{
    uint32_t num_old = r->num_features;
    uint32_t num_dropped = r->num_features - num_left;
    for (uint32_t i = r->first_input; i != QR_NIL; i = s->sessions.inputs[i].next) {
        qr_session_input *in = &s->sessions.inputs[i];
        if (in->num_features == 0)
            continue;
        memmove(in->features + num_old - num_dropped, in->features + num_old,
                in->num_features * sizeof *in->features);
        memmove(in->mm_features + num_old - num_dropped, in->mm_features + num_old,
                in->num_features * sizeof *in->mm_features);
        num_old += in->num_features;
    }
    r->num_features = num_left;
    r->extra.num_mm_features = num_left;
}

static uint32_t kept_tokens(const qr_request *r)
{
    return r->kv.num_computed_tokens < r->kv.num_tokens ? r->kv.num_computed_tokens
                                                        : r->kv.num_tokens;
}

/* Where the next input of a session that has stopped begins. */
static uint32_t tokens_before_input(const quire_sched *s, const qr_request *r)
{
    bool keeps_ahead = (s->settings.quirks & QR_QUIRK(SESSION_KEEPS_AHEAD)) != 0;
    return keeps_ahead ? kept_tokens(r) : r->num_kept;
}

/* The session with an input of num_new tokens that makes it num_tokens long. The input's features
 * stand behind num_old others in its array; those of the session are looked at too, unless other
 * inputs come before. */
static qr_admissible_ask ask_with_input(const qr_request *r, const qr_session_input *in,
                                        uint32_t num_old, uint32_t num_tokens, uint32_t num_new)
{
    qr_admissible_ask ask = {.num_tokens = num_tokens,
                             .has_second = true,
                             .features = r->features,
                             .num_features = r->num_features,
                             .first_new = r->num_features,
                             .base = num_tokens - num_new};
    if (in->num_features == 0)
        return ask;
    uint32_t num_known = num_old == r->num_features ? num_old : 0;
    if (num_known > 0)
        memcpy(in->features, r->features, num_known * sizeof *r->features);
    ask.features = in->features + num_old - num_known;
    ask.num_features = num_known + in->num_features;
    ask.first_new = num_known;
    return ask;
}

/* The fewest tokens that the session keeps when it stops. */
static uint32_t fewest_kept(const qr_request *r)
{
    if (r->status == QUIRE_REQ_WAITING_FOR_STREAMING)
        return r->num_kept;
    return r->kv.num_tokens - 1 > r->num_prompt_tokens ? r->kv.num_tokens - 1
                                                       : r->num_prompt_tokens;
}

/* Pages for the session with its input. A session that waited for the input has no promise: then
 * the pages that the input gave back are enough. */
static void take_pages(quire_sched *s, qr_request *r, uint32_t num_tokens)
{
    if (r->has_promise) {
        qr_sched_take_promised(s, r, num_tokens);
        return;
    }
    uint32_t before = r->text.num_pages;
    bool has_room = qr_text_reserve(&s->texts.store, &r->text, num_tokens);
    qr_assert(has_room);
    s->texts.num_waiting_pages += r->text.num_pages - before;
}

/* The session goes on with an input: what it has computed becomes its prompt, the last sampled
 * token is dropped, and the input follows. */
static void start_input(quire_sched *s, uint32_t index, uint32_t input)
{
    qr_request *r = &s->table.requests[index];
    qr_session_input *in = &s->sessions.inputs[input];
    uint32_t kept = tokens_before_input(s, r);
    qr_text_cut(&s->texts.store, &r->text, kept);
    if ((s->settings.quirks & QR_QUIRK(SESSION_STALE_HASH)) == 0 && s->hasher != NULL &&
        r->kv.num_hashes > kept / s->settings.hash_block_size)
        r->kv.num_hashes = kept / s->settings.hash_block_size;
    if (in->num_features > 0) {
        uint32_t old = r->num_features;
        if (old > 0) {
            memcpy(in->features, r->features, old * sizeof *r->features);
            memcpy(in->mm_features, r->extra.mm_features, old * sizeof *in->mm_features);
        }
        for (uint32_t i = old; i < old + in->num_features; i++) {
            in->features[i].offset += kept;
            in->features[i].first_flag =
                (in->features[i].first_flag + r->flags.num_chunks * QR_FLAGS_IN_CHUNK) & INT32_MAX;
            in->mm_features[i].offset += kept;
        }
        qr_flags_join(&s->flags, &r->flags, &in->flags);
        r->features = in->features;
        r->num_features = old + in->num_features;
        r->extra.mm_features = in->mm_features;
        r->extra.num_mm_features = r->num_features;
        r->has_extra = true;
        r->is_plain = false;
    }
    uint32_t n = in->text.num_tokens;
    qr_text_copy(&s->texts.store, &in->text, 0, n, s->room.token_scratch);
    qr_texts_release_waiting(&s->texts, &in->text);
    take_pages(s, r, kept + n);
    qr_text_append(&s->texts.store, &r->text, s->room.token_scratch, n);
    r->kv.num_tokens = r->text.num_tokens;
    r->num_prompt_tokens = r->text.num_tokens;
    qr_sched_hash_new_blocks(s, index);
    s->table.waiters[index].arrival_time = in->arrival_time;
    qr_request_set_stops(r, &in->stops);
    if (s->settings.rules.input_sets_max_tokens)
        r->max_tokens = in->max_tokens;
    if (r->status == QUIRE_REQ_WAITING_FOR_STREAMING)
        s->queues.num_waiting_for_streaming--;
    r->status = QUIRE_REQ_WAITING;
    qr_deadlock_note_holder(s, r);
    qr_metrics *metrics = qr_sched_timed_metrics(s);
    if (metrics != NULL)
        qr_metrics_continue_request(metrics, index, r->num_prompt_tokens);
    free_input(s, input);
}

/* Whether the session has room for the input behind what was generated: in the model's length, and
 * alone in an empty engine. */
static bool input_fits(const quire_sched *s, const qr_request *r, uint32_t input)
{
    const qr_session_input *in = &s->sessions.inputs[input];
    uint64_t num_tokens = (uint64_t)tokens_before_input(s, r) + in->text.num_tokens;
    if (num_tokens >= s->settings.max_model_len)
        return false;
    qr_admissible_ask ask =
        ask_with_input(r, in, r->num_features, (uint32_t)num_tokens, in->text.num_tokens);
    return (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) != 0 ||
           qr_why_never(s, &ask).needs == NULL;
}

/* A session that waits for its user has a promise of pages for max_model_len tokens no longer: else
 * max_num_seqs of them would keep all other requests from running. With the quirks outputs of steps
 * in flight may still come. */
static void wait_for_input(quire_sched *s, qr_request *r)
{
    r->status = QUIRE_REQ_WAITING_FOR_STREAMING;
    qr_deadlock_note_holder(s, r);
    s->queues.num_waiting_for_streaming++;
    uint64_t late = QR_QUIRK(SESSION_KEEPS_AHEAD) | QR_QUIRK(STALE_OUTPUTS);
    if ((s->settings.quirks & late) == 0)
        qr_texts_take_back(&s->texts, r);
}

bool qr_sched_session_ends(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (!r->is_resumable)
        return true;
    if (s->settings.rules.input_sets_max_tokens) {
        r->kv.num_computed_tokens = qr_request_certain_tokens(r);
        r->num_kept = kept_tokens(r);
        r->num_drafts = 0;
        r->num_placeholders = 0;
        r->drops_stale = true;
        r->num_stale = r->num_in_flight;
        r->is_plain = r->is_plain && r->num_stale == 0;
    } else if ((s->settings.quirks & QR_QUIRK(SESSION_KEEPS_AHEAD)) == 0) {
        r->num_kept = kept_tokens(r);
        if (qr_sched_has_states(s) && r->kv.num_computed_tokens > r->num_kept)
            qr_cache_drop(s->cache, &r->kv); /* steps in flight have moved the state on */
        r->kv.num_computed_tokens = r->kv.seq != 0 ? r->num_kept : 0;
        r->num_placeholders = 0;
        qr_request_void_steps(r, s->flight.step);
    }
    uint32_t input = r->first_input;
    if (input != QR_NIL && !input_fits(s, r, input)) /* what was generated left no place for it */
        return true;
    r->load = QR_LOAD_OPEN; /* one that has ended or failed does not count for the next input */
    if (input != QR_NIL) {
        r->first_input = s->sessions.inputs[input].next;
        if (r->first_input == QR_NIL)
            r->last_input = QR_NIL;
        start_input(s, index, input);
    } else if (r->ends_session) {
        return true;
    } else {
        wait_for_input(s, r);
    }
    qr_sched_enqueue(s, index);
    return false;
}

/* Whether the keys of all features would fit one block, wherever they come to lie: later it is too
 * late to say no. */
static bool feature_keys_fit(const quire_sched *s, const qr_request *r,
                             const quire_request_params *p)
{
    if (s->hasher == NULL || p->num_mm_inputs == 0)
        return true;
    bool has_path = s->hasher->tags_extra_keys && r->extra.lora_path.len > 0;
    uint64_t num_keys = has_path ? 3 : 2;
    uint64_t bytes = r->extra.lora_name.len + r->extra.cache_salt.len;
    bytes += has_path ? r->extra.lora_path.len : 0;
    for (uint32_t i = 0; i < r->num_features; i++, num_keys++)
        bytes += r->features[i].identifier.len;
    for (uint32_t input = r->first_input; input != QR_NIL; input = s->sessions.inputs[input].next)
        for (uint32_t i = 0; i < s->sessions.inputs[input].num_features; i++, num_keys++)
            bytes += QR_MAX_IDENTIFIER_BYTES;
    for (uint32_t i = 0; i < p->num_mm_inputs; i++, num_keys++)
        bytes += p->mm_inputs[i].feature.identifier.len;
    return num_keys <= s->hasher->max_keys &&
           bytes + num_keys * QR_HASH_MAX_PER_KEY <= s->hasher->max_extra_bytes;
}

static int fill_input(quire_sched *s, uint32_t index, const quire_request_params *p,
                      qr_session_input *in)
{
    qr_request *r = &s->table.requests[index];
    uint64_t num_inputs = p->num_prompt_tokens; /* tokens of this input and of those before */
    uint32_t num_old = r->num_features;
    for (uint32_t i = r->first_input; i != QR_NIL; i = s->sessions.inputs[i].next) {
        num_inputs += s->sessions.inputs[i].text.num_tokens;
        num_old += s->sessions.inputs[i].num_features;
    }
    if (r->kv.num_tokens + num_inputs >= s->settings.max_model_len)
        return QUIRE_E_RANGE;
    if (!feature_keys_fit(s, r, p))
        return QUIRE_E_RANGE;
    in->arrival_time = p->arrival_time;
    in->max_tokens = p->max_tokens;
    in->num_features = p->num_mm_inputs;
    in->next = QR_NIL;
    if (!qr_request_copy_stops(s, index, p, &in->stops) ||
        !qr_request_copy_features(s, index, p, num_old, &in->features, &in->mm_features))
        return QUIRE_E_RANGE;
    uint32_t num_tokens = fewest_kept(r) + (uint32_t)num_inputs;
    qr_admissible_ask ask = ask_with_input(r, in, num_old, num_tokens, p->num_prompt_tokens);
    int err = qr_admissible_check(s, &ask);
    if (err == QUIRE_OK)
        err = qr_request_copy_flags(s, p, in->features, num_old, &in->flags);
    if (err != QUIRE_OK)
        return err;
    /* Sessions that wait may have more pages than waiting requests may take. One can go on as long
     * as there are pages left to run it. */
    uint32_t most = s->texts.store.num_pages - s->texts.store.max_pages;
    if (!qr_texts_take_waiting(&s->texts, &in->text, p->num_prompt_tokens, most))
        return QUIRE_FULL;
    qr_text_append(&s->texts.store, &in->text, p->prompt, p->num_prompt_tokens);
    return QUIRE_OK;
}

int qr_sched_continue(quire_sched *s, uint32_t index, const quire_request_params *p)
{
    qr_request *r = &s->table.requests[index];
    if (!r->is_resumable || r->ends_session || qr_request_is_finished(r))
        return QUIRE_E_ARGUMENT;
    if (p == NULL) {
        r->ends_session = true;
        quire_req req = qr_sched_req_of(s, index);
        if (r->status == QUIRE_REQ_WAITING_FOR_STREAMING)
            qr_sched_finish(s, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
        return QUIRE_OK;
    }
    int err = qr_request_check_arrays(p);
    if (err == QUIRE_OK && (p->prompt_embeds != NULL || p->num_hidden_tokens > 0))
        err = QUIRE_E_ARGUMENT;
    if (err == QUIRE_OK && s->settings.is_encoder_decoder && p->num_mm_inputs > 0)
        err = QUIRE_E_ARGUMENT; /* its encoder runs before the first token alone */
    if (err == QUIRE_OK && (p->num_prompt_tokens == 0 || !qr_request_features_ok(s, p)))
        err = QUIRE_E_RANGE;
    if (err != QUIRE_OK)
        return err;
    uint32_t input = s->sessions.first_free_input;
    if (input == QR_NIL)
        return QUIRE_FULL;
    qr_session_input *in = &s->sessions.inputs[input];
    s->sessions.first_free_input = in->next;
    uint32_t blob_used = r->blob_used;
    err = fill_input(s, index, p, in);
    if (err != QUIRE_OK) {
        r->blob_used = blob_used;
        free_input(s, input);
        return err;
    }
    if (r->status == QUIRE_REQ_WAITING_FOR_STREAMING) {
        bool is_apart = s->table.waiters[index].queue == s->queues.skipped.number;
        qr_waiting *queue = is_apart ? &s->queues.skipped : &s->queues.waiting;
        bool by_priority =
            s->settings.policy == QUIRE_POLICY_PRIORITY; /* its arrival time changes */
        if (by_priority)
            qr_waiting_remove(queue, index);
        start_input(s, index, input);
        if (by_priority)
            qr_waiting_add(queue, index);
        return QUIRE_OK;
    }
    if (r->last_input == QR_NIL)
        r->first_input = input;
    else
        s->sessions.inputs[r->last_input].next = input;
    r->last_input = input;
    return QUIRE_OK;
}

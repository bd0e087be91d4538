#include "sched/requests/fork.h"

#include "base/refuse.h"
#include "sched/sched.h"

/* ---- may it be ---------------------------------------------------------------- */

static int refuse_parent(const char *why)
{
    (void)qr_refuse("%s", why);
    return QUIRE_E_ARGUMENT;
}

static int check_parent(const qr_request *parent, const quire_request_params *p)
{
    if (qr_request_is_finished(parent))
        return refuse_parent("the parent has ended");
    if (parent->status == QUIRE_REQ_WAITING_FOR_STREAMING)
        return refuse_parent("the parent waits for the next input of its session");
    if (parent->is_pooling || p->is_pooling != 0)
        return refuse_parent("a pooling request has no output that a fork could begin with");
    if (parent->embeds_tail.data != NULL && p->is_resumable != 0)
        return refuse_parent("a prompt of embeddings is not for sessions");
    return QUIRE_OK;
}

static int check_child(quire_sched *s, const qr_request *parent, const quire_request_params *p)
{
    uint64_t unsure =
        QR_QUIRK(STALE_OUTPUTS) | QR_QUIRK(FAILED_BLOCKS_STAY) | QR_QUIRK(HOPELESS_WAITS);
    if (s->cache->max_copies == 0 || (s->settings.quirks & unsure) != 0)
        return QUIRE_E_DISABLED;
    if (p->id.data == NULL || p->id.len == 0 || (p->prompt == NULL && p->num_prompt_tokens > 0) ||
        (p->stop_token_ids == NULL && p->num_stop_token_ids > 0))
        return QUIRE_E_ARGUMENT;
    int err = check_parent(parent, p);
    if (err != QUIRE_OK)
        return err;
    uint32_t num_outputs = qr_request_num_outputs(parent);
    bool has_room = p->max_tokens == 0 || p->max_tokens > num_outputs;
    return has_room && p->num_prompt_tokens <= num_outputs ? QUIRE_OK : QUIRE_E_RANGE;
}

/* ---- what it is ---------------------------------------------------------------- */

/* The parent's features, none of them in use by the child yet. */
static bool copy_features(quire_sched *s, uint32_t index, const qr_request *parent)
{
    qr_request *r = &s->table.requests[index];
    uint32_t n = parent->num_features;
    r->num_features = n;
    if (n == 0)
        return true;
    r->features = qr_request_take_blob(s, index, n * sizeof *r->features);
    quire_mm_feature *mm_features = qr_request_take_blob(s, index, n * sizeof *mm_features);
    if (r->features == NULL || mm_features == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        quire_bytes identifier;
        if (!qr_request_copy_bytes(s, index, parent->features[i].identifier, &identifier))
            return false;
        r->features[i] = parent->features[i];
        r->features[i].identifier = identifier;
        r->features[i].owner = index;
        r->features[i].holds = 0;
        mm_features[i] = parent->extra.mm_features[i];
        mm_features[i].identifier = identifier;
    }
    r->extra.mm_features = mm_features;
    r->extra.num_mm_features = n;
    return true;
}

/* All but its text. */
static int fill_child(quire_sched *s, uint32_t index, const qr_request *parent,
                      const quire_request_params *p)
{
    qr_request *r = &s->table.requests[index];
    qr_stop_rules stops;
    qr_request_fill_numbers(s, r, p, parent->num_prompt_tokens);
    r->lora_id = parent->lora_id;
    r->has_extra = parent->has_extra;
    r->is_plain = !r->use_grammar && parent->num_features == 0;
    bool fits = qr_request_copy_stops(s, index, p, &stops) && copy_features(s, index, parent) &&
                qr_request_copy_bytes(s, index, parent->extra.lora_name, &r->extra.lora_name) &&
                qr_request_copy_bytes(s, index, parent->extra.lora_path, &r->extra.lora_path) &&
                qr_request_copy_bytes(s, index, parent->extra.cache_salt, &r->extra.cache_salt) &&
                qr_request_copy_bytes(s, index, parent->embeds_tail, &r->embeds_tail);
    if (!fits)
        return QUIRE_E_RANGE;
    qr_request_set_stops(r, &stops);
    int err = qr_request_check_alone(s, r, parent->kv.num_tokens);
    if (err != QUIRE_OK)
        return err;
    return qr_flags_copy(&s->flags, &parent->flags, &r->flags) ? QUIRE_OK : QUIRE_FULL;
}

/* ---- where it begins ------------------------------------------------------------ */

static bool is_in_flight(quire_sched *s, uint32_t index)
{
    for (uint32_t place = 0; place < s->flight.num_batches; place++) {
        const qr_batch *batch = qr_flight_batch(s, place);
        for (uint32_t i = 0; i < batch->num_reqs; i++)
            if (qr_flight_who_waits(s, batch, i) == index)
                return true;
    }
    return false;
}

static bool can_share(quire_sched *s, uint32_t parent, const quire_request_params *p)
{
    const qr_request *r = &s->table.requests[parent];
    return r->status == QUIRE_REQ_RUNNING && r->num_placeholders == 0 && r->load_step == 0 &&
           r->kv.num_computed_tokens > 0 && r->kv.num_computed_tokens < r->kv.num_tokens &&
           r->kv.num_computed_tokens <= r->kv.num_tokens - p->num_prompt_tokens &&
           !r->discards_async && s->pause == QUIRE_UNPAUSED &&
           s->queues.num_running + s->ended.num_asked < s->settings.max_num_seqs &&
           p->use_grammar == 0 && p->skip_reading_prefix == 0 && qr_cache_can_fork(s->cache) &&
           !is_in_flight(s, parent);
}

/* The pages of a child that runs do not count among those that wait. *shares becomes false where
 * there are too few for all that it may generate. */
static int take_text(quire_sched *s, uint32_t index, const qr_request *parent,
                     const quire_request_params *p, bool *shares)
{
    qr_request *r = &s->table.requests[index];
    uint32_t most = *shares ? UINT32_MAX : s->texts.max_waiting_pages;
    qr_text_hide(&r->text, parent->text.num_hidden);
    if (!qr_texts_take_waiting(&s->texts, &r->text, parent->kv.num_tokens, most))
        return QUIRE_FULL;
    *shares = *shares && qr_texts_promise(&s->texts, r, qr_sched_last_token_of(s, r));
    if (!*shares && s->texts.num_waiting_pages > s->texts.max_waiting_pages)
        return QUIRE_FULL;
    uint32_t num_same = parent->kv.num_tokens - p->num_prompt_tokens;
    qr_text_copy_all(&s->texts.store, &parent->text, &r->text);
    qr_text_cut(&s->texts.store, &r->text, num_same);
    r->kv.num_tokens = num_same;
    r->kv.num_hashes = s->hasher == NULL ? 0 : num_same / s->settings.hash_block_size;
    for (uint32_t i = 0; i < p->num_prompt_tokens; i++)
        qr_sched_append(s, index, p->prompt[i]);
    return QUIRE_OK;
}

static void run_behind(quire_sched *s, uint32_t parent, uint32_t index)
{
    const qr_request *from = &s->table.requests[parent];
    qr_request *r = &s->table.requests[index];
    uint32_t computed = from->kv.num_computed_tokens;
    int err =
        qr_cache_fork(s->cache, qr_cache_row_of(s->cache, from->kv.seq), computed, &r->kv.seq);
    qr_assert(err == QUIRE_OK);
    uint32_t place = 0;
    while (s->queues.running[place] != parent)
        place++;
    memmove(&s->queues.running[place + 2], &s->queues.running[place + 1],
            (s->queues.num_running - place - 1) * sizeof *s->queues.running);
    s->queues.running[place + 1] = index;
    s->queues.num_running++;
    r->status = QUIRE_REQ_RUNNING;
    r->kv.num_computed_tokens = computed;
    r->is_prefill_chunk = from->is_prefill_chunk;
    r->num_local_cached = computed;
    if (s->watch.monitor != NULL)
        qr_metrics_admit(&s->watch.monitor->metrics, index);
    const quire_connector *c = &s->partners.connector;
    if (!s->partners.has_connector || c->update_state_after_alloc == NULL)
        return;
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    c->update_state_after_alloc(c->user, qr_sched_req_of(s, index), s->room.spans, 0);
}

int qr_sched_fork(quire_sched *s, uint32_t parent, const quire_request_params *p, quire_req *child)
{
    uint32_t index;
    int err = check_child(s, &s->table.requests[parent], p);
    if (err == QUIRE_OK)
        err = qr_sched_take_slot(s, p->id, &index);
    if (err != QUIRE_OK)
        return err;
    bool shares = can_share(s, parent, p);
    err = fill_child(s, index, &s->table.requests[parent], p);
    if (err == QUIRE_OK)
        err = take_text(s, index, &s->table.requests[parent], p, &shares);
    if (err != QUIRE_OK) {
        qr_sched_release_slot(s, index);
        return err;
    }
    qr_sched_enter(s, index, p);
    if (shares)
        run_behind(s, parent, index);
    else
        qr_sched_enqueue(s, index);
    *child = qr_sched_req_of(s, index);
    qr_sched_tell_load(s);
    qr_assert_expensive(qr_sched_is_valid(s));
    return QUIRE_OK;
}

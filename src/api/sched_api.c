/* api/sched_api.c - quire/sched.h: argument checks, then one call inward. */
#include "api/fields.h"
#include "sched/requests/fork.h"
#include "sched/sched.h"

static bool sched_ok(const quire_sched *sched)
{
    return QR_LIKELY(sched != NULL && sched->magic == QR_SCHED_MAGIC);
}

/* Callbacks run inside a call; from there no second call may change the scheduler. False for what
 * is no scheduler, and inside a call. */
static bool enter_call(quire_sched *sched)
{
    if (!sched_ok(sched) || QR_UNLIKELY(sched->partners.is_inside))
        return false;
    sched->partners.is_inside = true;
    return true;
}

/* A call that may say in quire_refusal why it takes no request. */
static bool enter_request(quire_sched *sched)
{
    qr_refuse_clear();
    return enter_call(sched);
}

static int leave_call(quire_sched *sched, int status)
{
    sched->partners.is_inside = false;
    return status;
}

/* ---- making ---------------------------------------------------------------- */

int quire_sched_create(const quire_sched_config *config, const quire_allocator *allocator,
                       quire_sched **sched)
{
    quire_sched_config c;
    quire_cache_config cache;
    if (sched == NULL)
        return QUIRE_E_ARGUMENT;
    int err = qr_check_sched_config(&c, config);
    if (err == QUIRE_OK)
        err = qr_sched_config_read(&c, &cache, config); /* c.cache is then &cache */
    if (err != QUIRE_OK)
        return err;
    qr_owner owner;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    qr_sched_carve(&size, &c);
    err = qr_owner_begin_fresh(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_sched *made = qr_sched_carve(&arena, &c);
    qr_arena_seal(&arena);
    err = qr_sched_init(made, &c);
    if (err != QUIRE_OK) {
        qr_owner_release(&owner);
        return err;
    }
    made->owner = owner;
    *sched = made;
    return QUIRE_OK;
}

void quire_sched_destroy(quire_sched *sched)
{
    if (!sched_ok(sched) || sched->partners.is_inside)
        return;
    sched->magic = 0;
    sched->cache->magic = 0;
    sched->cache->pool->magic = 0;
    if (sched->watch.monitor != NULL)
        sched->watch.monitor->magic = 0;
    qr_owner_release(&sched->owner);
}

/* ---- requests -------------------------------------------------------------- */

/* max_hashes: UINT32_MAX where no hashes are looked at. */
static int check_params_of(const quire_sched *sched, const quire_request_params *params,
                           uint32_t max_hashes)
{
    uint32_t num_sampled = params->is_pooling ? sched->settings.num_sampled : 1;
    qr_field_limits limits = {.max_model_len = sched->settings.max_model_len,
                              .max_prompt_tokens = sched->settings.max_model_len - num_sampled,
                              .longest_feature = qr_sched_longest_feature(sched),
                              .max_hashes = max_hashes,
                              .max_features = sched->settings.max_features,
                              .max_stop_tokens =
                                  sched->settings.max_request_bytes / sizeof(quire_token)};
    return qr_check_request_params(params, &limits);
}

int quire_sched_add(quire_sched *sched, const quire_request_params *params, quire_req *req)
{
    quire_request_params room;
    params = qr_struct_in(&room, sizeof room, params);
    if (params == NULL || req == NULL || !enter_request(sched))
        return QUIRE_E_ARGUMENT;
    bool has_hashes = sched->hasher != NULL;
    uint32_t num_blocks =
        has_hashes ? params->num_prompt_tokens / sched->settings.hash_block_size : 0;
    int err = check_params_of(sched, params, has_hashes ? num_blocks : UINT32_MAX);
    return leave_call(sched, err == QUIRE_OK ? qr_sched_add(sched, params, req) : err);
}

/* Of a child's params only what the child does not get from its parent is looked at. */
int quire_sched_fork(quire_sched *sched, quire_req parent, const quire_request_params *params,
                     quire_req *child)
{
    quire_request_params room;
    params = qr_struct_in(&room, sizeof room, params);
    if (params == NULL || child == NULL || !enter_request(sched))
        return QUIRE_E_ARGUMENT;
    quire_request_params own = *params;
    own.num_prompt_tokens = 1; /* what it is in a fork depends on the parent */
    own.prompt = NULL;
    own.lora_name.len = 0;
    own.lora_path.len = 0;
    own.cache_salt.len = 0;
    own.num_mm_inputs = 0;
    own.prompt_embed_bytes = 0;
    own.num_hidden_tokens = 0;
    uint32_t index = qr_sched_index_of(sched, parent);
    int err = index == QR_NIL ? QUIRE_E_UNKNOWN_REQ : check_params_of(sched, &own, UINT32_MAX);
    return leave_call(sched, err == QUIRE_OK ? qr_sched_fork(sched, index, params, child) : err);
}

int quire_sched_continue(quire_sched *sched, quire_req req, const quire_request_params *params)
{
    quire_request_params room;
    bool is_last = params == NULL;
    params = qr_struct_in(&room, sizeof room, params);
    if ((params == NULL && !is_last) || !enter_request(sched))
        return QUIRE_E_ARGUMENT;
    uint32_t index = qr_sched_index_of(sched, req);
    int err = index == QR_NIL ? QUIRE_E_UNKNOWN_REQ : QUIRE_OK;
    if (err == QUIRE_OK && params != NULL)
        err = check_params_of(sched, params, UINT32_MAX);
    if (err == QUIRE_OK)
        err = qr_sched_continue(sched, index, params);
    return leave_call(sched, err);
}

int quire_sched_cut_prompt(quire_sched *sched, quire_req req, uint32_t num_prompt_tokens,
                           uint32_t max_tokens)
{
    if (!sched_ok(sched) || (sched->partners.is_inside && sched->partners.asked_req != req))
        return QUIRE_E_ARGUMENT;
    uint32_t index = qr_sched_index_of(sched, req);
    if (index == QR_NIL)
        return QUIRE_E_UNKNOWN_REQ;
    return qr_sched_cut_prompt(sched, index, num_prompt_tokens, max_tokens);
}

static int pin_request(quire_sched *sched, quire_req req, uint64_t ttl_ns)
{
    uint32_t index = qr_sched_index_of(sched, req);
    if (index == QR_NIL)
        return QUIRE_E_UNKNOWN_REQ;
    if (sched->pins.max_pins == 0)
        return QUIRE_E_DISABLED;
    sched->table.requests[index].pin_ns = ttl_ns;
    return QUIRE_OK;
}

int quire_sched_pin(quire_sched *sched, quire_req req, uint64_t ttl_ns)
{
    if (!enter_call(sched))
        return QUIRE_E_ARGUMENT;
    if (req != 0 || ttl_ns != 0)
        return leave_call(sched, pin_request(sched, req, ttl_ns));
    qr_pins_drop_all(sched);
    return leave_call(sched, QUIRE_OK);
}

static bool is_final(quire_req_status status)
{
    return status >= QUIRE_REQ_FINISHED_STOPPED && status <= QUIRE_REQ_FINISHED_REPETITION;
}

int quire_sched_finish(quire_sched *sched, const quire_req *reqs, uint32_t num_reqs,
                       quire_req_status status, uint32_t *num_finished)
{
    bool is_all = num_reqs == UINT32_MAX && reqs == NULL;
    if (!is_final(status) || (reqs == NULL && num_reqs > 0 && !is_all) || !enter_call(sched))
        return QUIRE_E_ARGUMENT;
    if (is_all)
        qr_sched_finish_all(sched, status, num_finished);
    else
        qr_sched_finish(sched, reqs, num_reqs, status, num_finished);
    return leave_call(sched, QUIRE_OK);
}

quire_req quire_sched_find(const quire_sched *sched, quire_bytes id)
{
    if (!sched_ok(sched) || id.data == NULL || id.len == 0 || id.len > QR_MAX_ID_BYTES)
        return 0;
    uint32_t index = qr_idmap_find(&sched->table.ids, id.data, (uint32_t)id.len);
    return index == QR_NIL ? 0 : qr_sched_req_of(sched, index);
}

static quire_location location_of(const qr_request *r)
{
    if (r->kv.seq != 0)
        return QUIRE_LOCATION_DEVICE;
    return r->num_saved + r->num_hosted > 0 ? QUIRE_LOCATION_HOST : QUIRE_LOCATION_NONE;
}

int quire_sched_get_req_info(const quire_sched *sched, quire_req req, quire_req_info *info)
{
    if (!sched_ok(sched) || info == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t index = qr_sched_index_of(sched, req);
    if (index == QR_NIL)
        return QUIRE_E_UNKNOWN_REQ;
    const qr_request *r = &sched->table.requests[index];
    const qr_waiter *w = &sched->table.waiters[index];
    quire_req_info own = {.status = (quire_req_status)r->status,
                          .num_tokens = r->kv.num_tokens,
                          .num_prompt_tokens = r->num_prompt_tokens,
                          .num_computed_tokens = r->kv.num_computed_tokens,
                          .num_output_placeholders = r->num_placeholders,
                          .num_spec_tokens = r->num_drafts,
                          .num_preemptions = r->num_preemptions,
                          .client_index = r->client_index,
                          .lora_id = r->lora_id,
                          .priority = w->priority,
                          .arrival_time = w->arrival_time,
                          .id = w->id,
                          .seq = r->kv.seq,
                          .num_swapped_tokens = r->num_saved + r->num_hosted,
                          .location = location_of(r),
                          .is_offloaded = r->is_offloaded,
                          .user = r->kv.user,
                          .num_in_flight_tokens = r->num_in_flight,
                          .num_stale_tokens = r->num_stale,
                          .drops_stale = r->drops_stale};
    return qr_struct_out(info, &own, sizeof own);
}

/* The request, or NULL and why. */
static const qr_request *find_request(const quire_sched *sched, quire_req req, uint32_t *index,
                                      int *err)
{
    *index = sched_ok(sched) ? qr_sched_index_of(sched, req) : QR_NIL;
    *err = !sched_ok(sched) ? QUIRE_E_ARGUMENT : *index == QR_NIL ? QUIRE_E_UNKNOWN_REQ : QUIRE_OK;
    return *err == QUIRE_OK ? &sched->table.requests[*index] : NULL;
}

int quire_sched_get_params(const quire_sched *sched, quire_req req, quire_request_params *params)
{
    uint32_t index;
    int err;
    const qr_request *r = find_request(sched, req, &index, &err);
    if (r == NULL || params == NULL)
        return r == NULL ? err : QUIRE_E_ARGUMENT;
    const qr_waiter *w = &sched->table.waiters[index];
    quire_request_params own = {.size = sizeof(quire_request_params),
                                .id = w->id,
                                .num_prompt_tokens = r->num_prompt_tokens,
                                .max_tokens = r->max_tokens,
                                .min_tokens = r->stops.min_tokens,
                                .has_eos = r->stops.has_eos,
                                .eos_token_id = r->stops.eos_token_id,
                                .stop_token_ids = r->stops.tokens,
                                .num_stop_token_ids = r->stops.num_tokens,
                                .repetition_max_pattern = r->stops.repetition_max_pattern,
                                .repetition_min_pattern = r->stops.repetition_min_pattern,
                                .repetition_min_count = r->stops.repetition_min_count,
                                .priority = w->priority,
                                .arrival_time = w->arrival_time,
                                .client_index = r->client_index,
                                .lora_name = r->extra.lora_name,
                                .lora_path = r->extra.lora_path,
                                .lora_id = r->lora_id,
                                .cache_salt = r->extra.cache_salt,
                                .num_mm_inputs = r->num_features,
                                .use_grammar = r->use_grammar,
                                .is_pooling = r->is_pooling,
                                .is_resumable = r->is_resumable,
                                .skip_reading_prefix = r->kv.skip_reading_prefix,
                                .kv_cache_report_full = r->reports_hits,
                                .num_hidden_tokens = r->text.num_hidden,
                                .user = r->kv.user};
    return qr_struct_out(params, &own, sizeof own);
}

int quire_sched_get_mm_input(const quire_sched *sched, quire_req req, uint32_t i,
                             quire_mm_input *input, uint8_t *is_embed)
{
    uint32_t index;
    int err;
    const qr_request *r = find_request(sched, req, &index, &err);
    if (r == NULL || input == NULL)
        return r == NULL ? err : QUIRE_E_ARGUMENT;
    if (i >= r->num_features)
        return QUIRE_E_RANGE;
    const qr_feature *f = &r->features[i];
    *input = (quire_mm_input){
        .feature = r->extra.mm_features[i], .num_embeds = f->num_embeds, .is_embed = is_embed};
    for (uint32_t t = 0; is_embed != NULL && t < f->length; t++)
        is_embed[t] = !f->has_flags ||
                      qr_flags_count(&sched->flags, &r->flags, (uint64_t)f->first_flag + t, 1) > 0;
    return QUIRE_OK;
}

int quire_sched_get_tokens(const quire_sched *sched, quire_req req, uint32_t first, uint32_t num,
                           quire_token *tokens)
{
    if (!sched_ok(sched) || (tokens == NULL && num > 0))
        return QUIRE_E_ARGUMENT;
    uint32_t index = qr_sched_index_of(sched, req);
    if (index == QR_NIL)
        return QUIRE_E_UNKNOWN_REQ;
    const qr_text *text = &sched->table.requests[index].text;
    if (num > text->num_tokens || first > text->num_tokens - num)
        return QUIRE_E_RANGE;
    qr_text_copy(&sched->texts.store, text, first, num, tokens);
    return QUIRE_OK;
}

int quire_sched_get_hashes(quire_sched *sched, quire_req req, uint32_t most, const void **hashes,
                           uint32_t *num_hashes)
{
    if (!sched_ok(sched) || hashes == NULL || num_hashes == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t index = qr_sched_index_of(sched, req);
    if (index == QR_NIL)
        return QUIRE_E_UNKNOWN_REQ;
    const qr_request *r = &sched->table.requests[index];
    uint32_t num = sched->hasher != NULL ? r->kv.num_hashes : 0;
    num = num < most ? num : most;
    *num_hashes = num;
    *hashes = num > 0 ? qr_text_all_hashes(&sched->texts.store, &r->text, num) : NULL;
    return QUIRE_OK;
}

int quire_sched_get_blocks(const quire_sched *sched, quire_req req, quire_block_span *blocks)
{
    if (!sched_ok(sched))
        return QUIRE_E_ARGUMENT;
    uint32_t index = qr_sched_index_of(sched, req);
    if (index == QR_NIL)
        return QUIRE_E_UNKNOWN_REQ;
    return quire_cache_get_blocks(sched->cache, sched->table.requests[index].kv.seq, blocks);
}

/* ---- steps ----------------------------------------------------------------- */

int quire_sched_schedule(quire_sched *sched, const quire_step **step)
{
    if (step == NULL || !enter_call(sched))
        return QUIRE_E_ARGUMENT;
    return leave_call(sched, qr_sched_schedule(sched, step));
}

int quire_sched_update(quire_sched *sched, uint64_t step, const quire_model_output *output,
                       const quire_outputs **outputs)
{
    quire_model_output room;
    output = qr_struct_in(&room, sizeof room, output);
    if (output == NULL || outputs == NULL ||
        (output->finished_sending == NULL && output->num_finished_sending > 0) ||
        (output->finished_recving == NULL && output->num_finished_recving > 0) ||
        (output->invalid_blocks == NULL && output->num_invalid_blocks > 0) ||
        (output->failed_recving == NULL && output->num_failed_recving > 0) || !enter_call(sched))
        return QUIRE_E_ARGUMENT;
    return leave_call(sched, qr_sched_update(sched, step, output, outputs));
}

int quire_sched_forget_step(quire_sched *sched, uint64_t step)
{
    return enter_call(sched) ? leave_call(sched, qr_sched_forget_step(sched, step))
                             : QUIRE_E_ARGUMENT;
}

int quire_sched_update_drafts(quire_sched *sched, const quire_req *reqs, uint32_t num_reqs,
                              const quire_token *drafts, uint32_t stride,
                              const uint32_t *num_drafts)
{
    if ((num_reqs > 0 && (reqs == NULL || num_drafts == NULL || (drafts == NULL && stride > 0))) ||
        !enter_call(sched))
        return QUIRE_E_ARGUMENT;
    int err = qr_sched_update_drafts(sched, reqs, num_reqs, drafts, stride, num_drafts);
    return leave_call(sched, err);
}

/* ---- moving a request ------------------------------------------------------- */

/* QR_NIL, with the answer in *err; else the call has begun. */
static uint32_t enter_with(quire_sched *sched, quire_req req, int *err)
{
    *err = QUIRE_E_ARGUMENT;
    if (!enter_call(sched))
        return QR_NIL;
    uint32_t index = qr_sched_index_of(sched, req);
    if (index == QR_NIL)
        *err = leave_call(sched, QUIRE_E_UNKNOWN_REQ);
    return index;
}

int quire_sched_preempt(quire_sched *sched, quire_req req, quire_preempt_mode mode)
{
    int err = QUIRE_E_ARGUMENT;
    if ((unsigned)mode > QUIRE_PREEMPT_RESUME)
        return err;
    uint32_t index = enter_with(sched, req, &err);
    if (index == QR_NIL)
        return err;
    if (mode == QUIRE_PREEMPT_RESUME)
        return leave_call(sched, qr_sched_resume(sched, index));
    return leave_call(sched, mode == QUIRE_PREEMPT_OFFLOAD
                                 ? qr_sched_offload(sched, index)
                                 : qr_sched_preempt_asked(sched, index, mode));
}

/* ---- the rest -------------------------------------------------------------- */

int quire_sched_set_swap_costs(quire_sched *sched, uint64_t swap_block_ns,
                               uint64_t recompute_token_ns)
{
    if (!sched_ok(sched) || sched->partners.is_inside)
        return QUIRE_E_ARGUMENT;
    if (swap_block_ns > UINT32_MAX || recompute_token_ns > UINT32_MAX)
        return QUIRE_E_RANGE;
    sched->swap.block_ns = swap_block_ns;
    sched->swap.token_ns = recompute_token_ns == 0 ? 1 : recompute_token_ns;
    return QUIRE_OK;
}

int quire_sched_learn(quire_sched *sched, quire_cost_kind kind, uint32_t amount, uint64_t ns)
{
    if (!sched_ok(sched) || sched->partners.is_inside || amount == 0)
        return QUIRE_E_ARGUMENT;
    if (kind == QUIRE_COST_SWAP)
        qr_swap_learn_move(&sched->swap, amount, ns);
    else if (kind == QUIRE_COST_COMPUTE)
        qr_swap_learn_compute(&sched->swap, amount, ns);
    else
        return QUIRE_E_ARGUMENT;
    return QUIRE_OK;
}

int quire_sched_set(quire_sched *sched, quire_sched_setting what, uint32_t value)
{
    uint32_t most = what == QUIRE_SET_PAUSE ? QUIRE_PAUSED_ALL : 1;
    bool is_known = what == QUIRE_SET_PAUSE || what == QUIRE_SET_THROTTLE;
    if (!sched_ok(sched) || sched->partners.is_inside || !is_known || value > most)
        return QUIRE_E_ARGUMENT;
    if (what == QUIRE_SET_THROTTLE && !sched->settings.rules.throttles_prefills)
        return QUIRE_E_DISABLED;
    if (what == QUIRE_SET_PAUSE)
        sched->pause = (quire_pause)value;
    else
        sched->pace.is_throttled = value != 0;
    return QUIRE_OK;
}

int quire_sched_take_stats(quire_sched *sched, const quire_sched_stats **stats)
{
    if (!sched_ok(sched) || sched->partners.is_inside || stats == NULL)
        return QUIRE_E_ARGUMENT;
    if (!sched->settings.log_stats)
        return QUIRE_E_DISABLED;
    *stats = qr_sched_take_stats(sched);
    return QUIRE_OK;
}

int quire_sched_reset(quire_sched *sched, uint32_t what)
{
    if (what > QUIRE_RESET_ENCODER || !enter_call(sched))
        return QUIRE_E_ARGUMENT;
    if (what == QUIRE_RESET_ENCODER) {
        qr_encoder_reset(&sched->encoder);
        return leave_call(sched, QUIRE_OK);
    }
    int err = qr_sched_reset_prefix_cache(sched, (what & QUIRE_RESET_RUNNING) != 0,
                                          (what & QUIRE_RESET_CONNECTOR) != 0);
    return leave_call(sched, err);
}

/* Requests that steps will go on with. */
static uint32_t count_unfinished(const quire_sched *sched, uint32_t num_waiting)
{
    if (sched->pause == QUIRE_PAUSED_ALL)
        return 0;
    if (sched->pause == QUIRE_PAUSED_NEW && !sched->settings.rules.holders_first)
        return sched->queues.num_running;
    if (sched->pause == QUIRE_PAUSED_NEW)
        num_waiting = sched->queues.skipped.count; /* those with blocks still run */
    return sched->queues.num_running + num_waiting - sched->queues.num_waiting_for_streaming;
}

/* vLLM 0.32 counts requests whose blocks a connector still reads. */
static bool has_finished(const quire_sched *sched, uint32_t num_waiting)
{
    bool has_left = sched->settings.rules.holders_first && sched->partners.has_connector &&
                    sched->table.num_live > sched->queues.num_running + num_waiting;
    return sched->ended.num_finished > 0 || has_left;
}

quire_sched_counts quire_sched_get_counts(const quire_sched *sched)
{
    if (!sched_ok(sched))
        return (quire_sched_counts){.num_running = 0};
    uint32_t num_waiting = sched->queues.waiting.count + sched->queues.skipped.count;
    return (quire_sched_counts){.num_running = sched->queues.num_running,
                                .num_waiting = num_waiting,
                                .num_unfinished = count_unfinished(sched, num_waiting),
                                .has_finished = has_finished(sched, num_waiting),
                                .pause = sched->pause};
}

/* Into room.order, holders first; only counts them where no list is asked for. */
static uint32_t list_deferred(const quire_sched *sched, uint32_t capacity)
{
    uint32_t *order = sched->room.order;
    if (capacity == 0)
        return sched->queues.num_deferred;
    uint32_t count = qr_waiting_list(&sched->queues.skipped, order);
    count += qr_waiting_list(&sched->queues.waiting, order + count);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (sched->table.waiters[order[i]].is_deferred)
            order[kept++] = order[i];
    return kept;
}

uint32_t quire_sched_get_queue(const quire_sched *sched, uint32_t which, quire_req *reqs,
                               uint32_t capacity)
{
    if (!sched_ok(sched) || which > 3 || (reqs == NULL && capacity > 0))
        return 0;
    uint32_t count = sched->queues.num_running;
    const uint32_t *from = which == 0 ? sched->queues.running : sched->room.order;
    if (which == 1 || which == 2)
        count = qr_waiting_list(which == 1 ? &sched->queues.waiting : &sched->queues.skipped,
                                sched->room.order);
    else if (which == 3)
        count = list_deferred(sched, capacity);
    for (uint32_t i = 0; i < count && i < capacity; i++)
        reqs[i] = qr_sched_req_of(sched, from[i]);
    return count;
}

quire_monitor *quire_sched_get_monitor(quire_sched *sched)
{
    return sched_ok(sched) ? sched->watch.monitor : NULL;
}

quire_cache *quire_sched_get_cache(const quire_sched *sched)
{
    return sched_ok(sched) ? sched->cache : NULL;
}

int quire_sched_check(const quire_sched *sched)
{
    if (!sched_ok(sched))
        return QUIRE_E_ARGUMENT;
    return qr_sched_is_valid(sched) ? QUIRE_OK : QUIRE_E_CORRUPT;
}

#include "sched/sched.h"

#include "base/hooks.h"
#include "base/refuse.h"
#include "cache/parts.h"
#include "group/spec.h"
#include "sched/step/admissible.h"

/* ---- reading the config ---------------------------------------------------- */

static uint32_t align_block_size(const quire_cache_config *c)
{
    for (uint32_t g = 0; g < c->num_groups; g++)
        if (c->groups[g].spec.kind == QUIRE_LAYER_MAMBA &&
            c->groups[g].spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN)
            return c->groups[g].spec.block_size;
    return 0;
}

/* What chunks are aligned to: vLLM's cache_config.block_size, which is by later rules the smallest
 * block in which a prefix can be found. */
static uint32_t chunk_alignment(const quire_cache_config *c)
{
    uint32_t size = align_block_size(c);
    for (uint32_t g = 0; g < c->num_groups && qr_rules_of(c->profile)->aligns_to_stops; g++) {
        const quire_layer_spec *spec = &c->groups[g].spec;
        if (qr_spec_is_cacheable(spec) && spec->block_size < size)
            size = spec->block_size;
    }
    return size;
}

/* Where states inside a chunk can be kept: only if all Mamba layers can. */
static uint32_t checkpoint_alignment(const quire_cache_config *c)
{
    uint32_t alignment = 0;
    for (uint32_t g = c->num_groups; g-- > 0;) {
        const quire_layer_spec *spec = &c->groups[g].spec;
        if (spec->kind == QUIRE_LAYER_MAMBA && spec->num_prefill_checkpoint_blocks == 0)
            return 0;
        if (spec->kind == QUIRE_LAYER_MAMBA)
            alignment = spec->prefill_checkpoint_alignment;
    }
    return alignment;
}

static uint32_t max_features_of(const quire_sched_config *c)
{
    size_t each = sizeof(qr_feature) + sizeof(quire_mm_feature);
    return c->max_request_bytes / (uint32_t)each;
}

static void fill_sched_defaults(quire_sched_config *c)
{
    qr_default_u32(&c->max_num_seqs, 128);
    qr_default_u32(&c->max_num_batched_tokens, 2048);
    qr_default_u32(&c->max_num_scheduled_tokens, c->max_num_batched_tokens);
    qr_default_u32(&c->max_batches, 2);
    qr_default_u32(&c->max_requests, 4096);
    qr_default_u32(&c->max_loading, c->max_num_seqs);
    qr_default_u32(&c->max_request_bytes, 2048);
    qr_default_u32(&c->max_encoder_items, 1024);
    if (c->on_decision != NULL)
        qr_default_u32(&c->max_ghosts, 65536);
    if (c->recompute_token_ns == 0)
        c->recompute_token_ns = 1;
    if (c->max_text_tokens == 0)
        c->max_text_tokens = UINT64_C(8) << 20;
    qr_default_switch(&c->enable_chunked_prefill, true);
    qr_default_switch(&c->reserve_full_sequence, true);
    qr_default_switch(&c->async_scheduling, false);
    qr_default_switch(&c->is_encoder_decoder, false);
    qr_default_switch(&c->disable_chunked_mm_input, false);
    qr_default_switch(&c->include_finished_set, false);
    qr_default_switch(&c->fail_on_load_error, false);
    qr_default_switch(&c->log_stats, false);
    qr_default_switch(&c->use_pressure, false);
}

/* How numbers that are in their ranges (api/fields.h) go together. */
static int check_sched_numbers(const quire_sched_config *c)
{
    const qr_field fields[] = {
        QR_FIELD(c, max_num_seqs, 0, c->max_requests),
        QR_FIELD(c, max_loading, 0, c->max_requests),
        QR_FIELD(c, max_num_active_seqs, 0, c->max_num_seqs),
        QR_FIELD(c, max_request_bytes, 64, 1u << 20),
    };
    int err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err == QUIRE_OK && (uint64_t)max_features_of(c) * c->max_num_seqs > INT32_MAX)
        err = qr_refuse("max_request_bytes %u with max_num_seqs %u: too many features of requests "
                        "(expected at most %d)",
                        c->max_request_bytes, c->max_num_seqs, INT32_MAX);
    return err;
}

/* Options that only the default profile has, and that belong to no room of their own. */
static int check_default_profile(const quire_sched_config *c)
{
    if (c->profile == QUIRE_PROFILE_DEFAULT)
        return QUIRE_OK;
    if (c->cache->max_copies > 0)
        return qr_refuse("cache.max_copies is %u, but forks need the default profile",
                         c->cache->max_copies);
    if (c->use_pressure == QUIRE_ON)
        return qr_refuse("use_pressure is on, but memory pressure needs the default profile");
    if (c->victim != QUIRE_VICTIM_DEFAULT || c->choose_victim != NULL)
        return qr_refuse("victim is %d and choose_victim is %s, but a choice of victims needs the "
                         "default profile",
                         (int)c->victim, c->choose_victim != NULL ? "given" : "NULL");
    return QUIRE_OK;
}

/* Options of vLLM 0.32's schedulers. */
static int check_0_32(const quire_sched_config *c)
{
    bool is_0_32 = c->profile == QUIRE_PROFILE_VLLM_0_32;
    bool is_0_20 = c->profile == QUIRE_PROFILE_VLLM_0_20;
    const struct {
        const char *name;
        uint32_t value;
        bool is_allowed;
    } options[] = {
        {"max_num_active_seqs", c->max_num_active_seqs, is_0_32},
        {"long_prefill_token_threshold_adaptive",
         c->long_prefill_token_threshold_adaptive == QUIRE_ON, is_0_32},
        {"decode_interval", c->decode_interval, is_0_32},
        {"num_batch_sizes", c->num_batch_sizes, is_0_32},
        {"is_encoder_only", c->is_encoder_only == QUIRE_ON, is_0_32},
        {"num_draft_slots", c->num_draft_slots, !is_0_20},
        {"num_prefill_lookahead_tokens", c->num_prefill_lookahead_tokens,
         is_0_32 || (!is_0_20 && c->num_prefill_lookahead_tokens == 1)},
        {"is_pooling_model", c->is_pooling_model == QUIRE_ON, !is_0_20},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].value > 0 && !options[i].is_allowed)
            return qr_refuse("%s is %u, but this profile does not have it", options[i].name,
                             options[i].value);
    if (c->num_draft_slots >= c->max_num_batched_tokens)
        return qr_refuse(
            "num_draft_slots is %u, but max_num_batched_tokens is %u: no request could "
            "be scheduled",
            c->num_draft_slots, c->max_num_batched_tokens);
    return qr_pace_check(c);
}

/* Options that only the default profile has: refuses the first option that is on (not 0) where the
 * rest of the config does not allow it. */
static int check_default_only(const quire_sched_config *c)
{
    bool is_default = c->profile == QUIRE_PROFILE_DEFAULT;
    bool has_caching = is_default && c->cache->enable_caching == QUIRE_ON;
    bool can_look = has_caching && c->cache->num_groups > 0;
    bool can_swap = is_default && c->is_encoder_decoder == QUIRE_OFF && qr_cache_can_move(c->cache);
    const struct {
        const char *name;
        uint32_t value;
        bool is_allowed;
        const char *needs;
    } options[] = {
        {"num_swap_blocks", c->num_swap_blocks, can_swap,
         "swapping needs the default profile, no encoder-decoder, and groups whose blocks can be "
         "moved"},
        {"max_pins", c->max_pins, has_caching, "pins need the default profile with prefix caching"},
        {"lookahead", c->lookahead, can_look, "it needs the default profile with prefix caching"},
        {"prefix_window", c->prefix_window, can_look,
         "it needs the default profile with prefix caching"},
        {"prefix_patience", c->prefix_patience, c->prefix_window > 0, "prefix_window is 0"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].value > 0 && !options[i].is_allowed)
            return qr_refuse("%s is %u, but %s", options[i].name, options[i].value,
                             options[i].needs);
    return QUIRE_OK;
}

/* The cache's config follows from the scheduler's. */
static void derive_cache(quire_sched_config *c)
{
    c->cache->profile = c->profile;
    c->cache->log_stats = c->monitor != NULL ? QUIRE_ON : c->log_stats; /* its metrics need them */
    c->cache->max_num_batched_tokens = c->max_num_batched_tokens;
    const qr_rules *rules = qr_rules_of(c->profile);
    if (rules->counts_in_flight && c->cache->max_in_flight_tokens == 0) {
        uint64_t most = (uint64_t)c->max_batches * c->max_num_batched_tokens;
        c->cache->max_in_flight_tokens = most < QR_MAX_TOKENS ? (uint32_t)most : QR_MAX_TOKENS;
    }
    if (c->profile == QUIRE_PROFILE_VLLM_0_32 && c->num_prefill_lookahead_tokens > 1 &&
        c->cache->num_prefill_lookahead == 0)
        c->cache->num_prefill_lookahead = c->num_prefill_lookahead_tokens;
    c->cache->max_requests = c->max_num_seqs + c->max_loading + qr_fences_most(c);
    bool has_hasher = c->hasher != NULL && c->hasher->magic == QR_HASHER_MAGIC;
    if (has_hasher && c->cache->digest_bytes == 0)
        c->cache->digest_bytes = (uint32_t)c->hasher->digest_bytes;
    if (c->is_encoder_decoder == QUIRE_ON && c->cache->max_encoder_tokens == 0)
        c->cache->max_encoder_tokens = c->encoder_compute_budget;
}

static int check_hasher(const quire_sched_config *c)
{
    if (c->hasher == NULL)
        return qr_refuse("hasher is NULL, but prefix caching needs one (or set "
                         "cache.enable_caching to QUIRE_OFF)");
    if (c->hasher->magic != QR_HASHER_MAGIC)
        return qr_refuse("hasher is not a hasher, or was destroyed");
    if (c->hasher->block_size != c->cache->hash_block_size)
        return qr_refuse("hasher has block_size %u, but the cache hashes blocks of %u tokens",
                         c->hasher->block_size, c->cache->hash_block_size);
    if (c->hasher->digest_bytes != c->cache->digest_bytes)
        return qr_refuse("hasher makes hashes of %zu bytes, but cache.digest_bytes is %u",
                         (size_t)c->hasher->digest_bytes, c->cache->digest_bytes);
    return QUIRE_OK;
}

int qr_sched_config_read(quire_sched_config *c, quire_cache_config *cache,
                         const quire_sched_config *callers)
{
    int err = qr_refuse_reading(c, sizeof *c, callers, "quire_sched_config");
    if (err == QUIRE_OK)
        err = qr_refuse_reading(cache, sizeof *cache, c->cache, "quire_cache_config");
    if (err != QUIRE_OK)
        return err;
    c->cache = cache;
    fill_sched_defaults(c);
    err = check_sched_numbers(c);
    if (err != QUIRE_OK)
        return err;
    if (c->is_encoder_decoder == QUIRE_ON && c->connector != NULL)
        return qr_refuse("connector is given, but is_encoder_decoder is on: a connector loads no "
                         "encoder input");
    if (c->cache->num_host_blocks > 0)
        return qr_refuse("cache.num_host_blocks is %u, but a scheduler moves requests itself: set "
                         "num_swap_blocks",
                         c->cache->num_host_blocks);
    derive_cache(c);
    quire_cache_config filled;
    err = qr_cache_config_read(&filled, cache);
    if (err != QUIRE_OK)
        return qr_refuse_in(err, "cache");
    *cache = filled;
    err = check_default_profile(c);
    if (err == QUIRE_OK)
        err = check_default_only(c);
    if (err == QUIRE_OK)
        err = check_0_32(c);
    if (err != QUIRE_OK)
        return err;
    quire_monitor_config monitor;
    if (c->monitor != NULL && qr_monitor_config_read(&monitor, c->monitor) != QUIRE_OK)
        return qr_refuse_in(QUIRE_E_CONFIG, "monitor");
    qr_default_u32(&c->mamba_block_size, chunk_alignment(cache));
    const char *never =
        qr_admissible_config(c, align_block_size(cache) > 0 ? c->mamba_block_size : 0);
    if (never != NULL) {
        qr_log(&c->hooks, QUIRE_LOG_ERROR, "%s", never);
        return qr_refuse("%s (max_num_batched_tokens %u, max_num_scheduled_tokens %u, "
                         "cache.max_model_len %u)",
                         never, c->max_num_batched_tokens, c->max_num_scheduled_tokens,
                         cache->max_model_len);
    }
    return cache->enable_caching == QUIRE_OFF ? QUIRE_OK : check_hasher(c);
}

/* ---- plan and carve -------------------------------------------------------- */

#define TAKE(field, count) ((field) = qr_arena_take(arena, (count), sizeof *(field)))

static void carve_builder(qr_step_builder *b, qr_arena *arena, const quire_sched_config *c,
                          uint32_t max_features)
{
    uint32_t n = c->max_num_seqs;
    size_t num_inputs = (size_t)max_features * n;
    TAKE(b->kinds, n);
    TAKE(b->was_in_last_step, n);
    TAKE(b->num_computed, n);
    TAKE(b->num_outputs, n);
    TAKE(b->blocks, (size_t)n * c->cache->num_groups);
    TAKE(b->zeros, (size_t)n + 1);
    TAKE(b->draft_start, n + 1);
    TAKE(b->drafts, (size_t)n * c->num_spec_tokens);
    TAKE(b->padded, n);
    TAKE(b->encoder_first, n);
    TAKE(b->encoder_count, n);
    TAKE(b->encoder_found, num_inputs);
    TAKE(b->encoder_planned, max_features);
    TAKE(b->encoder_start, n + 1);
    TAKE(b->encoder_inputs, num_inputs);
    TAKE(b->common_prefix, c->cache->num_groups);
    TAKE(b->preempted, n);
    TAKE(b->finished, 2 * (size_t)c->max_requests);
    TAKE(b->lora_ids, c->max_loras);
    uint32_t copy_room =
        qr_cache_copies_parts(c->cache) ? c->cache->num_blocks : c->cache->max_copies;
    TAKE(b->copies, copy_room);
    TAKE(b->row_places, copy_room > 0 ? c->cache->max_requests : 0);
}

static void carve_requests(quire_sched *s, qr_arena *arena, const quire_sched_config *c)
{
    uint32_t n = c->max_requests;
    TAKE(s->table.requests, n);
    TAKE(s->table.waiters, (size_t)n + 4);
    TAKE(s->table.by_age, (size_t)n + 1);
    s->table.blobs = qr_arena_take(arena, n, c->max_request_bytes);
    TAKE(s->table.drafts, (size_t)n * c->num_spec_tokens);
    TAKE(s->table.free_slots, n);
    TAKE(s->queues.running, c->max_num_seqs);
    TAKE(s->ended.asked, c->max_num_seqs);
    TAKE(s->queues.waiting.heap, n);
    TAKE(s->queues.skipped.heap, n);
    TAKE(s->queues.step_skipped.heap, n);
    TAKE(s->queues.step_waiting.heap, n);
    TAKE(s->sessions.inputs, n);
    TAKE(s->ended.finished, 2 * (size_t)n);
    TAKE(s->ended.client_finished, 2 * (size_t)n);
    TAKE(s->ended.client_of_finished, 2 * (size_t)n);
    TAKE(s->room.scratch, n);
    TAKE(s->room.order, n);
    TAKE(s->room.req_scratch, n);
    quire_encoder_connector images = QUIRE_ENCODER_CONNECTOR_INIT;
    (void)qr_config_read(&images, sizeof images, c->encoder_connector);
    TAKE(s->room.lost_reqs, images.take_unavailable == NULL ? 0 : n);
    TAKE(s->room.token_scratch, c->cache->max_model_len);
    qr_idmap_carve(&s->table.ids, arena, n, QR_MAX_ID_BYTES);
}

static void carve_text(quire_sched *s, qr_arena *arena, const quire_sched_config *c)
{
    bool caching = c->cache->enable_caching == QUIRE_ON;
    qr_text_limits limits = {.max_model_len = c->cache->max_model_len,
                             .hash_block_size = caching ? c->cache->hash_block_size : 0,
                             .digest_bytes = c->cache->digest_bytes,
                             .max_tokens = c->max_text_tokens,
                             .max_requests = c->max_requests,
                             .max_full = c->max_num_seqs};
    qr_text_carve(&s->texts.store, arena, &limits);
    s->texts.max_waiting_pages =
        s->texts.store.num_pages - c->max_num_seqs * s->texts.store.max_pages;
    TAKE(s->texts.tables, 2 * (size_t)c->max_requests * qr_text_places(&s->texts.store));
    if (caching)
        s->chain = qr_arena_take(arena, 1, qr_chain_bytes(c->hasher));
}

/* All functions NULL without a connector. */
static quire_connector connector_of(const quire_sched_config *c)
{
    quire_connector connector = QUIRE_CONNECTOR_INIT;
    (void)qr_config_read(&connector, sizeof connector, c->connector);
    return connector;
}

/* A flag for each token that there is room for, and a chunk that is not full for each request and
 * input: where features do not overlap, whoever has room for a prompt has room for its flags. */
static uint32_t num_flag_chunks(const quire_sched *s, const quire_sched_config *c)
{
    uint64_t num_tokens = (uint64_t)s->texts.store.num_pages * s->texts.store.page_tokens;
    uint64_t n = c->encoder_cache_size == 0
                     ? 0
                     : num_tokens / QR_FLAGS_IN_CHUNK + 2 * (uint64_t)c->max_requests;
    return n < INT32_MAX / QR_FLAGS_IN_CHUNK ? (uint32_t)n : INT32_MAX / QR_FLAGS_IN_CHUNK;
}

quire_sched *qr_sched_carve(qr_arena *arena, const quire_sched_config *c)
{
    quire_sched *made = qr_arena_take(arena, 1, sizeof *made);
    quire_sched parts = {0};
    quire_sched *s = &parts;
    carve_requests(s, arena, c);
    carve_text(s, arena, c);
    carve_builder(&s->builder, arena, c, max_features_of(c));
    s->fences.max_rows = s->fences.max_seqs = qr_fences_most(c);
    if (s->fences.max_rows > 0 && qr_cache_copies_parts(c->cache))
        s->fences.max_rows += c->cache->num_blocks; /* each step's copies have different targets */
    TAKE(s->fences.rows, s->fences.max_rows);
    qr_pace_carve(&s->pace, arena, c);
    qr_states_carve(&s->states, arena, c);
    TAKE(s->flight.batches, c->max_batches);
    for (uint32_t i = 0; i < c->max_batches; i++) {
        qr_batch batch;
        TAKE(batch.reqs, c->max_num_seqs);
        TAKE(batch.num_tokens, c->max_num_seqs);
        TAKE(batch.num_drafts, c->max_num_seqs);
        TAKE(batch.num_preemptions, c->max_num_seqs);
        TAKE(batch.is_past_prompt, c->max_num_seqs);
        if (made != NULL)
            s->flight.batches[i] = batch;
    }
    TAKE(s->results.outputs, (size_t)c->max_num_seqs + c->max_batches + c->max_requests);
    TAKE(s->results.output_tokens, (size_t)c->max_num_seqs * (c->num_spec_tokens + 1));
    TAKE(s->results.accepted_per_pos, c->num_spec_tokens);
    TAKE(s->results.drafts_per_pos, c->num_spec_tokens);
    if (qr_rules_of(c->profile)->counts_created)
        TAKE(s->results.num_created, (size_t)c->max_num_seqs + c->max_batches + c->max_requests);
    TAKE(s->room.failed_blocks, c->cache->num_blocks);
    TAKE(s->room.spans, c->cache->num_groups);
    TAKE(s->room.no_spans, c->cache->num_groups);
    TAKE(s->room.group_ids, c->cache->num_groups);
    qr_encoder_config encoder = {.cache_size = c->encoder_cache_size,
                                 .max_items = c->max_encoder_items,
                                 .max_identifier_bytes = QR_MAX_IDENTIFIER_BYTES,
                                 .max_features = max_features_of(c),
                                 .max_requests = c->max_requests,
                                 .is_encoder_decoder = c->is_encoder_decoder == QUIRE_ON};
    uint64_t quirks = qr_quirks(c->profile);
    encoder.frees_again = (quirks & QR_QUIRK(ENCODER_FREES_AGAIN)) != 0;
    encoder.counts_inputs = qr_rules_of(c->profile)->counts_inputs;
    encoder.sizes_by_user = encoder.frees_again && !encoder.counts_inputs;
    qr_encoder_carve(&s->encoder, arena, &encoder);
    qr_flags_carve(&s->flags, arena, num_flag_chunks(s, c));
    TAKE(s->results.other_sizes.reqs, 2 * (size_t)c->max_requests);
    TAKE(s->results.bad_grammars.reqs, 2 * (size_t)c->max_requests);
    TAKE(s->results.outgrown, c->max_batches); /* at most one in a step */
    qr_observer_carve(&s->observer, arena, c->max_ghosts);
    qr_swap_carve(&s->swap, arena, c->num_swap_blocks);
    qr_pins_carve(&s->pins, arena, c);
    qr_lookahead_carve(&s->ahead, arena, c);
    qr_prefix_carve(&s->prefix, arena, c);
    s->cache = qr_cache_carve(arena, c->cache);
    qr_watch_carve(s, arena, c);
    if (made != NULL)
        *made = parts;
    return made;
}

/* ---- filling it ------------------------------------------------------------ */

static quire_victim victim_of(const quire_sched_config *c)
{
    if (c->victim != QUIRE_VICTIM_DEFAULT)
        return c->victim;
    return c->policy == QUIRE_POLICY_PRIORITY ? QUIRE_VICTIM_PRIORITY : QUIRE_VICTIM_LIFO;
}

/* A request that is admitted leaves so many blocks free that the level is preempt_above at most. */
static void init_pressure(quire_sched *s, const quire_sched_config *c)
{
    s->settings.uses_pressure = c->use_pressure == QUIRE_ON;
    if (!s->settings.uses_pressure)
        return;
    double most = (double)(c->cache->num_blocks - 1) * c->cache->preempt_above;
    uint32_t reserve = c->cache->num_blocks - 1 - (uint32_t)most;
    if (s->cache->watermark_blocks < reserve)
        s->cache->watermark_blocks = reserve;
}

static void init_sched_numbers(quire_sched *s, const quire_sched_config *c)
{
    s->settings.policy = c->policy;
    s->settings.victim = victim_of(c);
    s->settings.choose_victim = c->choose_victim;
    s->settings.victim_user = c->victim_user;
    s->settings.can_unschedule =
        s->settings.victim != QUIRE_VICTIM_LIFO || c->choose_victim != NULL;
    s->settings.max_num_seqs = c->max_num_seqs;
    s->settings.max_scheduled = c->max_num_scheduled_tokens;
    s->settings.max_model_len = c->cache->max_model_len;
    s->settings.long_prefill_threshold = c->long_prefill_token_threshold;
    s->settings.num_spec_tokens = c->num_spec_tokens;
    s->settings.num_lookahead = c->num_lookahead_tokens;
    s->settings.max_loras = c->max_loras;
    s->settings.encoder_budget = c->encoder_compute_budget;
    s->settings.mamba_block_size = align_block_size(c->cache) > 0 ? c->mamba_block_size : 0;
    s->settings.hash_block_size = c->cache->hash_block_size;
    s->settings.max_requests = c->max_requests;
    s->settings.max_loading = c->max_loading;
    s->settings.max_request_bytes = c->max_request_bytes;
    s->settings.max_features = max_features_of(c);
    s->settings.max_batches = c->max_batches;
    s->settings.max_finished = 2 * c->max_requests;
    s->settings.quirks = qr_quirks(c->profile);
    s->settings.rules = *qr_rules_of(c->profile);
    s->settings.max_active = c->max_num_active_seqs > 0 ? c->max_num_active_seqs : c->max_num_seqs;
    s->settings.draft_slots = c->num_draft_slots;
    s->settings.max_input = c->max_num_batched_tokens;
    s->settings.prefill_lookahead = c->num_prefill_lookahead_tokens > 0
                                        ? c->num_prefill_lookahead_tokens
                                        : c->cache->use_eagle == QUIRE_ON;
    s->settings.num_sampled = c->is_pooling_model == QUIRE_ON ? 0 : 1;
    s->settings.is_encoder_only = c->is_encoder_only == QUIRE_ON;
    s->settings.adaptive_threshold = c->long_prefill_token_threshold_adaptive == QUIRE_ON;
    s->settings.chunked_prefill = c->enable_chunked_prefill == QUIRE_ON;
    s->settings.reserve_full_sequence = c->reserve_full_sequence == QUIRE_ON;
    s->settings.is_async = c->async_scheduling == QUIRE_ON;
    s->settings.is_encoder_decoder = c->is_encoder_decoder == QUIRE_ON;
    s->settings.disable_chunked_mm = c->disable_chunked_mm_input == QUIRE_ON;
    s->settings.use_eagle = c->cache->use_eagle == QUIRE_ON;
    s->settings.checkpoint_alignment = checkpoint_alignment(c->cache);
    for (uint32_t g = 0; g < s->cache->num_groups; g++)
        s->settings.keeps_junctions |= s->cache->groups[g].has_junctions;
    s->settings.keeps_tails =
        s->cache->takes_parts && c->cache->hash_block_size < s->cache->block_multiple;
    s->settings.log_stats = c->log_stats == QUIRE_ON;
    s->settings.counts_stats = s->settings.log_stats || c->monitor != NULL;
    s->settings.lists_finished = c->include_finished_set == QUIRE_ON;
    s->settings.fails_on_load_error = c->fail_on_load_error == QUIRE_ON;
    s->fences.is_on = s->fences.max_rows > 0;
    s->settings.zeroes_blocks = c->cache->track_new_blocks == QUIRE_ON;
    s->partners.has_connector = c->connector != NULL;
    s->partners.has_encoder_connector = c->encoder_connector != NULL;
    s->partners.has_grammar = c->grammar != NULL;
    s->partners.connector = connector_of(c);
    (void)qr_config_read(&s->partners.encoder_connector, sizeof s->partners.encoder_connector,
                         c->encoder_connector);
    (void)qr_config_read(&s->partners.grammar, sizeof s->partners.grammar, c->grammar);
    s->hasher = c->cache->enable_caching == QUIRE_ON ? c->hasher : NULL;
}

static void init_observer(qr_observer *observer, const quire_sched_config *c)
{
    observer->on_snapshot = c->on_snapshot;
    observer->on_decision = c->on_decision;
    observer->user = c->observer;
    observer->hooks = c->hooks;
    observer->on_event = c->cache->on_event;
    observer->event_user = c->cache->event_user;
    memset(observer->ghosts, 0, (size_t)observer->num_ghosts * sizeof *observer->ghosts);
}

static void init_slots(quire_sched *s)
{
    uint32_t n = s->settings.max_requests;
    qr_list_init(s->table.by_age, sizeof *s->table.by_age, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *pages = s->texts.tables + (size_t)i * 2 * qr_text_places(&s->texts.store);
        s->table.requests[i] =
            (qr_request){.text = {.pages = pages}, .first_input = QR_NIL, .last_input = QR_NIL};
        s->table.waiters[i] = (qr_waiter){0};
        qr_link_clear(&s->table.waiters[i].link);
        qr_link_clear(&s->table.by_age[i]);
        s->table.free_slots[i] = n - 1 - i;
        s->sessions.inputs[i] =
            (qr_session_input){.next = i + 1 < n ? i + 1 : QR_NIL,
                               .text = {.pages = pages + qr_text_places(&s->texts.store)}};
    }
    s->sessions.first_free_input = 0;
    s->deadlock.round = 1;
    qr_waiting_init(&s->queues.waiting, s->table.waiters, s->queues.waiting.heap, n, 1,
                    s->settings.policy);
    qr_waiting_init(&s->queues.skipped, s->table.waiters, s->queues.skipped.heap, n + 1, 2,
                    s->settings.policy);
    qr_waiting_init(&s->queues.step_skipped, s->table.waiters, s->queues.step_skipped.heap, n + 2,
                    3, s->settings.policy);
    qr_waiting_init(&s->queues.step_waiting, s->table.waiters, s->queues.step_waiting.heap, n + 3,
                    4, s->settings.policy);
}

int qr_sched_init(quire_sched *s, const quire_sched_config *c)
{
    uint64_t secret[4];
    int err = qr_random_bytes(&c->hooks, secret, sizeof secret);
    quire_cache_config cache = *c->cache;
    if (c->on_decision != NULL || c->monitor != NULL) { /* seen on their way to the caller */
        cache.on_event = qr_sched_take_event;
        cache.event_user = s;
    }
    if (err == QUIRE_OK)
        err = qr_cache_init(s->cache, &cache);
    if (err != QUIRE_OK)
        return err;
    err = qr_watch_init(s, c);
    if (err != QUIRE_OK)
        return err;
    if (s->watch.monitor != NULL) {
        s->cache->pool->on_move = qr_sched_tell_move;
        s->cache->pool->move_user = s;
    }
    init_sched_numbers(s, c);
    init_pressure(s, c);
    init_observer(&s->observer, c);
    qr_states_init(s);
    qr_pace_init(&s->pace, c);
    qr_swap_init(&s->swap, c);
    qr_pins_init(&s->pins, c);
    qr_lookahead_init(s, c);
    qr_prefix_init(&s->prefix, c);
    qr_text_init(&s->texts.store);
    qr_idmap_init(&s->table.ids, secret[0], secret[1]);
    qr_encoder_init(&s->encoder, secret[2], secret[3]);
    qr_sched_watch_encoder(s);
    qr_flags_init(&s->flags);
    init_slots(s);
    for (uint32_t g = 0; g < s->cache->num_groups; g++)
        s->room.no_spans[g] = (quire_block_span){NULL, 0};
    for (uint32_t g = 0; g < s->cache->num_groups; g++)
        s->room.group_ids[g] = g;
    if (!s->cache->pool->is_fresh)
        memset(s->room.failed_blocks, 0, c->cache->num_blocks);
    for (uint32_t i = 0; s->cache->copy_room > 0 && i < c->cache->max_requests; i++)
        s->builder.row_places[i] = UINT32_MAX;
    memset(s->builder.zeros, 0, ((size_t)s->settings.max_num_seqs + 1) * sizeof *s->builder.zeros);
    s->magic = QR_SCHED_MAGIC;
    qr_sched_tell_levels(s);
    qr_assert_expensive(qr_sched_is_valid(s));
    return QUIRE_OK;
}

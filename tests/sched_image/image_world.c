/* sched_image/image_world.c - the config that a seed draws, and the two sides. */
#include "image_world.h"

static uint32_t draw(world *w, uint32_t n)
{
    return unit_random_below(&w->random, n);
}

static quire_switch draw_switch(world *w, uint32_t one_in)
{
    return draw(w, one_in) == 0 ? QUIRE_ON : QUIRE_OFF;
}

/* ---- groups ---------------------------------------------------------------- */

static quire_group_config group_of(quire_layer_kind kind, uint32_t block_size)
{
    return (quire_group_config){.spec = {.kind = kind,
                                         .block_size = block_size,
                                         .num_kv_heads = 1,
                                         .head_size = 8,
                                         .dtype = QUIRE_DTYPE_FLOAT16}};
}

static quire_group_config window_group(uint32_t block_size, uint32_t window)
{
    quire_group_config g = group_of(QUIRE_LAYER_SLIDING_WINDOW, block_size);
    g.spec.sliding_window = window;
    return g;
}

static quire_group_config mamba_group(uint32_t block_size, quire_mamba_mode mode, uint32_t drafts)
{
    quire_group_config g = {.spec = {.kind = QUIRE_LAYER_MAMBA, .block_size = block_size}};
    g.spec.states[0] = (quire_state){.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16};
    g.spec.mamba_mode = mode;
    g.spec.num_speculative_blocks = drafts;
    return g;
}

static void draw_groups(world *w, uint32_t size)
{
    quire_cache_config *c = w->config.cache;
    w->groups[0] = group_of(QUIRE_LAYER_FULL, size);
    c->num_groups = 2;
    switch (draw(w, 8)) {
    case 0:
        w->groups[1] = window_group(size, 2 * size + 1);
        break;
    case 1:
        w->groups[1] = window_group(2 * size, 3 * size);
        w->groups[2] = window_group(size, size + 2);
        c->num_groups = 3;
        break;
    case 2:
        w->groups[1] = mamba_group(size, (quire_mamba_mode)draw(w, 2), w->config.num_spec_tokens);
        break;
    case 3:
        w->groups[1] =
            mamba_group(size, QUIRE_MAMBA_MODE_ALIGN, w->config.num_spec_tokens > 0 ? 1 : 0);
        break;
    case 4:
        w->groups[0].spec.kind = QUIRE_LAYER_SINK_FULL;
        w->groups[0].spec.sink_len = size;
        c->num_groups = 1;
        break;
    default:
        c->num_groups = 1;
    }
    c->groups = w->groups;
}

/* ---- what others bring in -------------------------------------------------- */

static uint64_t answer(const world_side *side, quire_req req, uint64_t question)
{
    uint64_t state = side->world->seed ^ req * 0x9e37 ^ question << 40;
    return unit_random(&state) >> 20;
}

static int matched_tokens(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                          uint32_t *is_async)
{
    const world_side *side = user;
    uint64_t a = answer(side, req, side->world->now);
    if (a % 8 == 0)
        return QUIRE_RETRY;
    if (a % 3 != 0)
        return QUIRE_OK;
    *num_external = (uint32_t)(a >> 8) % (num_local + 24);
    *is_async = a >> 16 & 1;
    return QUIRE_OK;
}

static int still_sending(void *user, quire_req req, const quire_block_span *blocks)
{
    (void)blocks;
    return answer(user, req, 1) % 3 == 0;
}

static int has_item(void *user, quire_req req, uint32_t input)
{
    const world_side *side = user;
    return answer(side, req, side->world->now + input) % 3 == 0;
}

static int has_pending(void *user)
{
    const world_side *side = user;
    return answer(side, 0, side->world->now) % 8 == 0;
}

static int ensure(void *user, quire_req req, uint32_t num_computed)
{
    const world_side *side = user;
    return answer(side, req, side->world->now + num_computed) % 8 != 0;
}

static int encoder_keeps(void *user, quire_req req)
{
    return answer(user, req, 4) % 3 == 0;
}

static void note_alloc(void *user, quire_req req, uint32_t input)
{
    world_side *side = user;
    uint64_t state = side->digest ^ req ^ (uint64_t)input << 40;
    side->digest = unit_random(&state);
}

static int grammar_ready(void *user, quire_req req)
{
    const world_side *side = user;
    if (side->world->is_0_32 && answer(side, req, 3) % 2 == 0)
        return -1;
    return answer(side, req, side->world->now) % 3 == 0;
}

static int grammar_advances(void *user, quire_req req)
{
    return answer(user, req, 2) % 2 == 0;
}

static int grammar_accepts(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    const world_side *side = user;
    (void)tokens;
    return answer(side, req, side->world->now + n) % 16 != 0;
}

static void add_event(void *user, const quire_event *event)
{
    world_side *side = user;
    uint64_t state = side->digest ^ event->num_blocks ^ (uint64_t)event->kind << 32 ^
                     (uint64_t)(uintptr_t)event->request << 8;
    for (uint32_t i = 0; i < event->num_blocks; i++)
        state = unit_random(&state) ^ event->blocks[i];
    for (size_t i = 0; i < (size_t)event->num_blocks * event->hash_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)event->hashes + i, sizeof word);
        state = unit_random(&state) ^ word;
    }
    side->digest = unit_random(&state) ^ event->still_cached;
}

static void add_decision(void *user, const quire_decision *decision)
{
    world_side *side = user;
    uint64_t state = side->digest ^ decision->req ^ decision->other << 20 ^ decision->block;
    state = unit_random(&state) ^ decision->step ^ (uint64_t)decision->num << 32;
    side->digest = unit_random(&state) ^ (uint64_t)decision->kind << 8 ^ (uint64_t)decision->reason;
}

/* ---- the config ------------------------------------------------------------ */

static void draw_steps(world *w)
{
    quire_sched_config *c = &w->config;
    c->policy = draw(w, 3) == 0 ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
    c->max_num_seqs = 2 + draw(w, WORLD_SMALL_SEQS - 1);
    c->num_spec_tokens = draw(w, 2) == 0 ? 1 + draw(w, WORLD_MAX_DRAFTS) : 0;
    c->num_lookahead_tokens = draw(w, 4) == 0 ? c->num_spec_tokens : 0;
    c->async_scheduling = draw_switch(w, 2);
    c->max_batches = 1 + draw(w, WORLD_MAX_BATCHES);
    c->max_num_batched_tokens = w->max_prompt > 64 ? 512 : 24 + draw(w, 24);
    c->long_prefill_token_threshold = draw(w, 4) == 0 ? 7 : 0;
    c->reserve_full_sequence = draw_switch(w, 2);
    c->max_loras = draw(w, 3) == 0 ? 2 : 0;
    c->include_finished_set = draw_switch(w, 2);
    c->log_stats = draw_switch(w, 2);
    c->profile = draw(w, 2) == 0 ? QUIRE_PROFILE_VLLM_0_20 : QUIRE_PROFILE_DEFAULT;
    if (w->is_0_32)
        c->profile = QUIRE_PROFILE_VLLM_0_32;
}

static void draw_limits(world *w, uint32_t block_size)
{
    quire_sched_config *c = &w->config;
    c->max_requests = WORLD_SMALL_REQUESTS;
    c->max_loading = 4;
    c->max_text_tokens = 32 * 1024;
    c->max_request_bytes = 1024;
    c->max_encoder_items = 6;
    c->cache->max_model_len = w->max_prompt > 64 ? 2 * w->max_prompt : 4 * w->max_prompt;
    c->cache->num_blocks = 2 * w->max_prompt / block_size * c->cache->num_groups;
    c->cache->num_blocks = c->cache->num_blocks / (1 + draw(w, 3)) + 3 + draw(w, 24);
    if (c->cache->num_blocks > WORLD_SMALL_BLOCKS)
        c->cache->num_blocks = WORLD_SMALL_BLOCKS;
    c->cache->event_log_bytes = draw(w, 2) == 0 ? 4096 : 0;
    c->cache->enable_caching = draw(w, 6) == 0 ? QUIRE_OFF : QUIRE_ON;
    c->cache->max_copies = draw(w, 4) == 0 ? 4 : 0;
    c->encoder_cache_size = 24;
    c->encoder_compute_budget = 16;
}

static void draw_encoder_decoder(world *w, uint32_t block_size)
{
    quire_sched_config *c = &w->config;
    w->groups[1] = group_of(QUIRE_LAYER_CROSS, block_size);
    c->cache->num_groups = 2;
    c->cache->enable_caching = QUIRE_OFF;
    c->cache->prefix_cache_retention_interval = 0;
    c->is_encoder_decoder = QUIRE_ON;
    c->cache->max_encoder_tokens = 16;
    w->has_features = true;
}

quire_hasher *world_make_hasher(const world *w)
{
    quire_hasher *hasher;
    assert_int_equal(quire_hasher_create(&w->hasher_config, NULL, &hasher), QUIRE_OK);
    return hasher;
}

static void draw_hasher(world *w)
{
    static const quire_hash_algo ALGOS[] = {QUIRE_HASH_SHA256_CBOR, QUIRE_HASH_XXHASH,
                                            QUIRE_HASH_QUIRE128, QUIRE_HASH_SHA256};
    w->hasher_config = (quire_hasher_config)QUIRE_HASHER_CONFIG_INIT;
    w->hasher_config.algo = ALGOS[draw(w, COUNT(ALGOS))];
    w->hasher_config.seed = (quire_bytes){"seed", 4};
    w->hasher_config.profile = w->config.profile;
    w->config.cache->digest_bytes = (uint32_t)quire_hash_digest_bytes(w->hasher_config.algo);
}

static uint64_t no_time(void *user)
{
    (void)user;
    return 1;
}

quire_sched_config world_side_config(world *w, uint32_t side)
{
    static quire_connector connector = QUIRE_CONNECTOR_INIT;
    static quire_grammar grammar = QUIRE_GRAMMAR_INIT;
    static quire_encoder_connector encoder = QUIRE_ENCODER_CONNECTOR_INIT;
    world_side *s = &w->sides[side];
    quire_sched_config c = w->config;
    c.hasher = s->hasher;
    c.hooks.now_ns = no_time;
    c.cache->on_event = add_event;
    c.cache->event_user = s;
    connector = (quire_connector){.size = sizeof(quire_connector),
                                  .user = s,
                                  .get_num_new_matched_tokens = matched_tokens,
                                  .request_finished = still_sending,
                                  .is_kv_consumer = w->has_fences,
                                  .requires_kv_delivery = w->seed % 5 == 0,
                                  .has_pending_block_frees = w->is_0_32 ? has_pending : NULL};
    grammar = (quire_grammar){.size = sizeof(quire_grammar),
                              .user = s,
                              .is_ready = grammar_ready,
                              .should_advance = grammar_advances,
                              .accept_tokens = grammar_accepts};
    c.on_decision = w->seed % 2 == 0 ? add_decision : NULL;
    c.observer = s;
    c.max_ghosts = w->seed % 2 == 0 ? 64 : 0;
    encoder = (quire_encoder_connector){.size = sizeof(quire_encoder_connector),
                                        .user = s,
                                        .has_item = has_item,
                                        .update_state_after_alloc = note_alloc};
    if (w->is_0_32) {
        encoder.ensure_cache_available = ensure;
        encoder.update_state_after_free = note_alloc;
        encoder.request_finished = w->has_loads ? encoder_keeps : NULL; /* so that sends end */
    }
    c.connector = w->has_loads ? &connector : NULL;
    bool has_encoder = w->seed % 3 == 0 && c.is_encoder_decoder != QUIRE_ON;
    c.encoder_connector = has_encoder ? &encoder : NULL;
    c.grammar = &grammar;
    return c;
}

/* Where the rest of the config allows it. */
static void draw_swap(world *w)
{
    if (draw(w, 4) == 0)
        return;
    w->config.num_swap_blocks = 1 + draw(w, WORLD_SMALL_BLOCKS);
    w->config.swap_block_ns = draw(w, 3);
    w->config.recompute_token_ns = 2;
    quire_sched_config c = world_side_config(w, 0);
    if (quire_sched_bytes(&c) == 0)
        w->config.num_swap_blocks = 0;
}

/* The same. Time stands still, so that pins end otherwise. */
static void draw_pins(world *w)
{
    if (draw(w, 3) == 0)
        return;
    w->config.max_pins = 1 + draw(w, w->is_wide ? 40 : 4);
    quire_sched_config c = world_side_config(w, 0);
    if (quire_sched_bytes(&c) == 0)
        w->config.max_pins = 0;
}

/* The same again, for requests that wait. */
static void draw_lookahead(world *w)
{
    if (draw(w, 2) == 0)
        return;
    w->config.lookahead = 1 + draw(w, WORLD_MAX_LOOKAHEAD);
    quire_sched_config c = world_side_config(w, 0);
    if (quire_sched_bytes(&c) == 0)
        w->config.lookahead = 0;
}

/* The same again, for requests that overtake others. */
static void draw_prefix(world *w)
{
    if (draw(w, 2) == 0)
        return;
    w->config.prefix_window = 1 + draw(w, 8);
    w->config.prefix_patience = draw(w, 4);
    quire_sched_config c = world_side_config(w, 0);
    if (quire_sched_bytes(&c) > 0)
        return;
    w->config.prefix_window = 0;
    w->config.prefix_patience = 0;
}

/* Blocks for most of the requests in a step, so that there are many, and some are preempted. */
static void widen(world *w, uint32_t block_size)
{
    quire_sched_config *c = &w->config;
    uint32_t row = (w->max_prompt + 24) / block_size * c->cache->num_groups;
    c->max_num_seqs = 40 + draw(w, WORLD_MAX_SEQS - 39);
    c->max_requests = WORLD_MAX_REQUESTS;
    c->max_num_batched_tokens = 512 + draw(w, 512);
    c->long_prefill_token_threshold = draw(w, 4) == 0 ? 100 : 0;
    c->max_loading = 1 + draw(w, 20);
    c->max_text_tokens = 128 * 1024;
    c->max_encoder_items = 40;
    c->encoder_cache_size = 100;
    c->encoder_compute_budget = 64;
    c->cache->num_blocks = 300 + draw(w, 400) + (w->max_prompt > 64 ? 2 * row : 0);
    if (c->cache->num_blocks > WORLD_MAX_BLOCKS)
        c->cache->num_blocks = WORLD_MAX_BLOCKS;
    c->cache->event_log_bytes = draw(w, 2) == 0 ? 65536 : 0;
    c->cache->max_copies = draw(w, 4) == 0 ? 40 : 0;
}

/* Prompts and hits that end inside a block, and states of tokens inside a chunk. */
static void draw_parts(world *w, uint32_t size)
{
    quire_cache_config *c = w->config.cache;
    w->groups[0] = group_of(QUIRE_LAYER_FULL, 2 * size);
    w->groups[1] =
        mamba_group(2 * size, QUIRE_MAMBA_MODE_ALIGN, w->config.num_spec_tokens > 0 ? 1 : 0);
    w->groups[1].spec.num_prefill_checkpoint_blocks = draw(w, 2);
    w->groups[1].spec.prefill_checkpoint_alignment =
        w->groups[1].spec.num_prefill_checkpoint_blocks;
    c->num_groups = 2;
    c->hash_block_size = size;
    c->mamba_shared_prefix_checkpoint = draw_switch(w, 2);
}

/* Kinds and modes that are gone become others; a full group may have larger blocks. */
static void draw_groups_0_32(world *w, uint32_t size)
{
    quire_cache_config *c = w->config.cache;
    for (uint32_t g = 0; g < c->num_groups; g++) {
        quire_layer_spec *spec = &w->groups[g].spec;
        if (spec->kind == QUIRE_LAYER_SINK_FULL) {
            spec->kind = QUIRE_LAYER_FULL;
            spec->sink_len = 0;
        }
        if (spec->kind == QUIRE_LAYER_MAMBA && spec->mamba_mode == QUIRE_MAMBA_MODE_ALL)
            spec->mamba_mode = QUIRE_MAMBA_MODE_NONE;
    }
    if (c->num_groups == 1 && draw(w, 3) == 0) {
        w->groups[0].spec.block_size = 2 * size;
        w->groups[1] = window_group(size, 2 * size + 1);
        c->num_groups = 2;
    }
    if (draw(w, 5) == 0)
        draw_parts(w, size);
    static const uint32_t INTERVALS[] = {0, 0, 1, QUIRE_RETAIN_ALL};
    uint32_t interval = INTERVALS[draw(w, COUNT(INTERVALS))];
    if (c->num_groups > 1)
        c->prefix_cache_retention_interval = interval == 1 ? 4 * size : interval;
}

/* Options that only this profile has. */
static void draw_0_32(world *w)
{
    quire_sched_config *c = &w->config;
    c->max_num_active_seqs = draw(w, 4) == 0 ? 1 + draw(w, c->max_num_seqs) : 0;
    c->long_prefill_token_threshold_adaptive = draw_switch(w, 2);
    c->num_draft_slots = c->num_spec_tokens > 0 && draw(w, 3) == 0 ? 1 + draw(w, 2) : 0;
    c->decode_interval = draw(w, 4) == 0 ? 2 + draw(w, 3) : 0;
    c->cache->watermark = draw(w, 3) == 0 ? 0.05 : 0;
    if (c->num_spec_tokens > 0 && draw(w, 3) == 0) {
        for (uint32_t i = 0; i < WORLD_SMALL_SEQS; i++)
            w->drafts_by_batch[i] = draw(w, c->num_spec_tokens + 1);
        c->num_spec_tokens_by_batch = w->drafts_by_batch;
        c->num_batch_sizes = 1 + draw(w, WORLD_SMALL_SEQS);
    }
    w->has_fences = draw(w, 2) == 0;
}

static void open_world(world *w, uint64_t seed, bool is_wide, bool may_look_ahead)
{
    bool is_0_32 = w->is_0_32;
    memset(w, 0, sizeof *w);
    w->is_0_32 = is_0_32;
    w->seed = seed;
    w->random = seed;
    w->is_wide = is_wide;
    w->config = (quire_sched_config)QUIRE_SCHED_CONFIG_INIT;
    w->cache_config = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    w->config.cache = &w->cache_config;
    bool is_long = draw(w, 16) == 0;
    uint32_t block_size = is_long && !is_wide ? 256 : 4;
    w->max_prompt = is_long ? WORLD_MAX_PROMPT : 40;
    draw_steps(w);
    draw_groups(w, block_size);
    if (w->is_0_32)
        draw_groups_0_32(w, block_size);
    if (w->config.long_prefill_token_threshold > 0 && is_long) /* a Mamba block must fit it */
        w->config.long_prefill_token_threshold = block_size;
    draw_limits(w, block_size);
    if (is_wide)
        widen(w, block_size);
    if (w->is_0_32)
        draw_0_32(w);
    draw_hasher(w);
    w->has_features = draw(w, 3) == 0;
    w->has_loads = (w->is_0_32 || w->config.cache->num_groups == 1) && draw(w, 2) == 0;
    if (!is_long && w->config.num_spec_tokens == 0 && draw(w, 12) == 0) {
        draw_encoder_decoder(w, block_size);
        w->has_loads = false;
    }
    w->config.fail_on_load_error = draw_switch(w, 2);
    w->hasher_config.block_size = block_size;
    w->num_sides = 1;
    w->sides[0] = (world_side){.world = w, .hasher = world_make_hasher(w)};
    draw_swap(w);
    draw_pins(w);
    draw_prefix(w);
    if (may_look_ahead)
        draw_lookahead(w);
    if (w->config.profile != QUIRE_PROFILE_DEFAULT)
        w->config.cache->max_copies = 0; /* no forks there */
    quire_sched_config c = world_side_config(w, 0);
    if (quire_sched_create(&c, NULL, &w->sides[0].sched) != QUIRE_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, quire_refusal());
}

void world_open(world *w, uint64_t seed)
{
    w->is_0_32 = false;
    open_world(w, seed, false, false);
}

void world_open_0_32(world *w, uint64_t seed, bool is_wide)
{
    w->is_0_32 = true;
    open_world(w, seed, is_wide, false);
}

void world_open_wide(world *w, uint64_t seed, bool may_look_ahead)
{
    w->is_0_32 = false;
    open_world(w, seed, true, may_look_ahead);
}

void world_close(world *w)
{
    for (uint32_t i = 0; i < 2; i++) {
        quire_sched_destroy(w->sides[i].sched);
        quire_hasher_destroy(w->sides[i].hasher);
    }
}

unsigned char *world_save(const world *w, uint32_t side, size_t *bytes)
{
    const quire_sched *sched = w->sides[side].sched;
    size_t room = quire_sched_image_bytes(sched);
    unsigned char *image = malloc(room);
    assert_non_null(image);
    assert_int_equal(quire_sched_save(sched, image, room, bytes), QUIRE_OK);
    assert_int_equal(*bytes, room);
    return image;
}

int world_restore(world *w, const void *image, size_t bytes)
{
    world_side *s = &w->sides[1];
    *s = (world_side){.world = w, .hasher = world_make_hasher(w), .digest = w->sides[0].digest};
    quire_sched_config c = world_side_config(w, 1);
    int err = quire_sched_restore(&c, NULL, image, bytes, &s->sched);
    if (err == QUIRE_OK)
        w->num_sides = 2;
    return err;
}

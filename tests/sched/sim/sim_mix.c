/* sched/sim/sim_mix.c - the scheduler of a seed: small, so that everything runs out all the time.
 * The
 * config is drawn without a thought of what goes together; sim_is_refused says what does not. */
#include "sched/sim/sim.h"

/* ---- groups of layers -------------------------------------------------------- */

typedef enum layer_mix {
    MIX_FULL,
    MIX_MLA,
    MIX_SINK,
    MIX_WINDOW,
    MIX_WINDOW_MLA,
    MIX_CHUNK,
    MIX_FULL_WINDOW,
    MIX_FULL_CHUNK,
    MIX_FULL_FULL,
    MIX_FULL_MAMBA,
    MIX_MAMBA,
    MIX_FULL_WINDOW_MAMBA,
    MIX_ENCODER_DECODER,
    NUM_MIXES
} layer_mix;

static quire_layer_spec spec_of(const sim *s, quire_layer_kind kind)
{
    return (quire_layer_spec){.kind = kind,
                              .block_size = s->mix.block_size,
                              .num_kv_heads = 1,
                              .head_size = 8,
                              .dtype = QUIRE_DTYPE_FLOAT16};
}

static quire_layer_spec draw_window(sim *s, quire_layer_kind kind)
{
    quire_layer_spec spec = spec_of(s, kind);
    spec.sliding_window = sim_between(s, 1, 3 * s->mix.block_size);
    return spec;
}

static quire_layer_spec draw_chunk(sim *s)
{
    quire_layer_spec spec = spec_of(s, QUIRE_LAYER_CHUNKED_LOCAL);
    spec.attention_chunk_size = s->mix.block_size * sim_between(s, 1, 3);
    return spec;
}

static quire_layer_spec draw_sink(sim *s)
{
    quire_layer_spec spec = spec_of(s, QUIRE_LAYER_SINK_FULL);
    spec.sink_len = s->mix.block_size * sim_between(s, 1, 4);
    return spec;
}

/* Without a mode the newest state alone is kept: its block is as long as the model, as vLLM has it.
 */
static quire_layer_spec draw_mamba(sim *s)
{
    uint32_t size = s->mix.block_size;
    quire_layer_spec spec = {.kind = QUIRE_LAYER_MAMBA,
                             .block_size = size * sim_between(s, 1, 2),
                             .states = {{.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16}},
                             .mamba_mode = (quire_mamba_mode)sim_below(s, 3),
                             .num_speculative_blocks = s->mix.num_spec};
    if (spec.mamba_mode == QUIRE_MAMBA_MODE_NONE)
        spec.block_size = (s->mix.len + size - 1) / size * size;
    return spec;
}

static void draw_groups(sim *s)
{
    static const layer_mix OFTEN[] = {MIX_FULL, MIX_FULL, MIX_FULL_WINDOW, MIX_WINDOW};
    sim_mix *m = &s->mix;
    layer_mix mix = sim_chance(s, 35) ? OFTEN[sim_below(s, (uint32_t)COUNT(OFTEN))]
                                      : (layer_mix)sim_below(s, NUM_MIXES);
    quire_layer_spec specs[SIM_GROUPS] = {spec_of(s, QUIRE_LAYER_FULL)};
    m->num_groups = 1;
    switch (mix) {
    case MIX_MLA:
        specs[0] = spec_of(s, QUIRE_LAYER_MLA);
        break;
    case MIX_SINK:
        specs[0] = draw_sink(s);
        break;
    case MIX_WINDOW:
        specs[0] = draw_window(s, QUIRE_LAYER_SLIDING_WINDOW);
        break;
    case MIX_WINDOW_MLA:
        specs[0] = draw_window(s, QUIRE_LAYER_SLIDING_WINDOW_MLA);
        break;
    case MIX_CHUNK:
        specs[0] = draw_chunk(s);
        break;
    case MIX_MAMBA:
        specs[0] = draw_mamba(s);
        break;
    case MIX_FULL:
    case NUM_MIXES:
        break;
    case MIX_FULL_WINDOW_MAMBA:
        specs[m->num_groups++] = draw_window(s, QUIRE_LAYER_SLIDING_WINDOW);
        specs[m->num_groups++] = draw_mamba(s);
        break;
    case MIX_FULL_WINDOW:
        specs[m->num_groups++] = draw_window(s, QUIRE_LAYER_SLIDING_WINDOW);
        break;
    case MIX_FULL_CHUNK:
        specs[m->num_groups++] = draw_chunk(s);
        break;
    case MIX_FULL_FULL:
        specs[m->num_groups++] = spec_of(s, QUIRE_LAYER_FULL);
        break;
    case MIX_FULL_MAMBA:
        specs[m->num_groups++] = draw_mamba(s);
        break;
    case MIX_ENCODER_DECODER:
        specs[m->num_groups++] = spec_of(s, QUIRE_LAYER_CROSS);
        break;
    }
    m->is_encoder_decoder = mix == MIX_ENCODER_DECODER;
    m->has_mamba = false;
    m->is_aligned = false;
    m->page = 1;
    for (uint32_t g = 0; g < m->num_groups; g++) {
        s->groups[g].spec = specs[g];
        m->sizes[g] = specs[g].block_size;
        m->page = m->sizes[g] > m->page ? m->sizes[g] : m->page;
        bool is_mamba = specs[g].kind == QUIRE_LAYER_MAMBA;
        m->has_mamba = m->has_mamba || is_mamba;
        m->is_aligned =
            m->is_aligned || (is_mamba && specs[g].mamba_mode == QUIRE_MAMBA_MODE_ALIGN);
    }
}

static uint32_t ceil_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Windows and chunks hold what is looked at, and one step. */
static uint32_t group_blocks_alone(const sim *s, uint32_t g, uint32_t num_tokens,
                                   uint32_t num_encoder_tokens)
{
    const quire_layer_spec *spec = &s->groups[g].spec;
    uint32_t size = spec->block_size;
    uint32_t blocks = ceil_div(num_tokens, size);
    switch (spec->kind) {
    case QUIRE_LAYER_CROSS:
        return ceil_div(num_encoder_tokens, size);
    case QUIRE_LAYER_SLIDING_WINDOW:
    case QUIRE_LAYER_SLIDING_WINDOW_MLA:
        return smaller(
            blocks,
            ceil_div(smaller(spec->sliding_window - 1 + s->mix.batched, s->mix.len), size) + 1);
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return smaller(
            blocks,
            ceil_div(smaller(spec->attention_chunk_size + s->mix.batched, s->mix.len), size));
    case QUIRE_LAYER_MAMBA:
        if (spec->mamba_mode == QUIRE_MAMBA_MODE_ALIGN)
            blocks = smaller(blocks, 2);
        return blocks + spec->num_speculative_blocks;
    default:
        return blocks;
    }
}

uint32_t sim_blocks_alone(const sim *s, uint32_t num_tokens, uint32_t num_encoder_tokens)
{
    uint32_t blocks = 0;
    for (uint32_t g = 0; g < s->mix.num_groups; g++)
        blocks += group_blocks_alone(s, g, num_tokens, num_encoder_tokens);
    return blocks;
}

/* ---- sizes ------------------------------------------------------------------- */

/* A pool for one request of any length and more, one that is too small for most, or any. */
static uint32_t draw_num_blocks(sim *s)
{
    const sim_mix *m = &s->mix;
    uint32_t each = ceil_div(m->len + 2 * m->num_spec, m->block_size) + 2;
    uint32_t dice = sim_below(s, 10);
    if (m->seqs > 16 && dice < 8) /* so that many run */
        return 1 + m->num_groups * each * sim_between(s, 2, 6);
    if (dice < 5)
        return 1 + m->num_groups * each + sim_below(s, 2 * each);
    if (dice < 8)
        return sim_between(s, 2, m->num_groups * each + 1);
    return sim_between(s, 2, 8);
}

/* Profile VLLM_0_32: kinds that are gone, and what shows vLLM's bugs, is left out:
 *
 *      loads that fail             what others found in their blocks stays
 *      loads with windows, states  the last token of a whole load is computed again
 *      images                      inputs of a request that was unscheduled; waits for places
 *      adapters                    those of the step count, not those of all that run
 *      priorities                  equal ones preempt each other forever
 *      small pools, whole prompts  a request that does not fit waits forever
 *      steps below 1 + drafts      a request of one token is padded, and never fits
 *      sessions, drafts            drafts behind the token that stopped it count as computed
 *      sessions, steps in flight   a session that stops while it is preempted loses its text
 *      sessions, loads             two that wait and hold blocks wait for each other (#45388)
 *      forgotten steps             their tokens are in flight forever */
static void narrow_0_32(sim *s)
{
    sim_mix *m = &s->mix;
    bool is_full = true;
    for (uint32_t g = 0; g < m->num_groups; g++) {
        quire_layer_spec *spec = &s->groups[g].spec;
        if (spec->kind == QUIRE_LAYER_SINK_FULL || spec->kind == QUIRE_LAYER_CROSS) {
            spec->kind = QUIRE_LAYER_FULL;
            spec->sink_len = 0;
        }
        if (spec->kind == QUIRE_LAYER_MAMBA && spec->mamba_mode == QUIRE_MAMBA_MODE_ALL) {
            spec->mamba_mode = QUIRE_MAMBA_MODE_ALIGN;
            m->is_aligned = true;
        }
        if (spec->kind == QUIRE_LAYER_MAMBA && spec->mamba_mode == QUIRE_MAMBA_MODE_ALIGN)
            m->sizes[g] = spec->block_size = m->block_size; /* no hits inside blocks */
        is_full = is_full && (spec->kind == QUIRE_LAYER_FULL || spec->kind == QUIRE_LAYER_MLA);
    }
    m->is_encoder_decoder = m->has_images = m->has_encoder_connector = false;
    m->has_connector = m->has_connector && is_full;
    m->loads_async = m->loads_async && is_full;
    m->loads_sync = m->loads_sync && is_full;
    m->loads_fail = m->saves = m->has_moves = false;
    m->sends = m->sends && is_full;
    m->max_loras = 0;
    m->has_sessions =
        m->has_sessions && !m->is_async && m->batches == 1 && m->num_spec == 0 && !m->loads_async;
    uint32_t each = ceil_div(m->len + 2 * m->num_spec, m->block_size) + 4 + m->num_spec;
    m->num_blocks = 1 + m->num_groups * each * sim_between(s, 1, 4) + sim_below(s, each);
    m->most_blocks = m->num_blocks - 1;
    m->max_encoder_tokens = 0;
    uint32_t least = 2 * (m->num_spec + 2);
    m->batched = m->batched > least ? m->batched : least;
    m->budget = m->budget > least ? m->budget : least;
}

static void draw_mix(sim *s)
{
    static const uint32_t sizes[] = {1, 2, 4, 4, 8, 16};
    sim_mix *m = &s->mix;
    *m = (sim_mix){.block_size = sizes[sim_below(s, (uint32_t)COUNT(sizes))]};
    m->len = sim_between(s, 2, SIM_LEN);
    m->is_async = sim_chance(s, 50);
    m->batches = sim_between(s, 1, SIM_BATCHES);
    m->num_spec = sim_chance(s, 40) ? sim_between(s, 1, SIM_SPEC) : 0;
    draw_groups(s);
    m->is_eagle = sim_chance(s, 25);
    m->max_loras = sim_chance(s, 30) ? sim_between(s, 1, 2) : 0;
    m->has_connector = sim_chance(s, 40);
    m->loads_async = m->has_connector && sim_chance(s, 60);
    m->loads_sync = m->has_connector && sim_chance(s, 60);
    m->loads_fail = m->has_connector && sim_chance(s, 50);
    m->sends = m->has_connector && sim_chance(s, 50);
    m->saves = m->has_connector && sim_chance(s, 50);
    m->has_grammar = sim_chance(s, 25);
    m->has_images = m->is_encoder_decoder || sim_chance(s, 30);
    m->has_sessions = sim_chance(s, 25);
    m->has_pooling = sim_chance(s, 20);
    m->has_repetition = sim_chance(s, 25);
    m->has_embeds = sim_chance(s, 20);
    m->has_hashes = sim_chance(s, 30);
    m->has_flags = sim_chance(s, m->is_encoder_decoder ? 10 : 40);
    m->has_encoder_connector = sim_chance(s, 30);
    m->resets_running = sim_chance(s, 50);
    m->has_moves = sim_chance(s, 35);
    m->faults = sim_chance(s, 20) ? 0 : sim_between(s, 10, 100);
    bool is_large = s->seed % 12 == 0;
    m->arrivals = is_large ? sim_between(s, 60, 100) : sim_between(s, 5, 60);
    m->seqs = is_large ? sim_between(s, 20, SIM_SEQS) : sim_between(s, 1, 12);
    m->max_requests = is_large ? sim_between(s, SIM_SEQS, SIM_SLOTS) : sim_between(s, m->seqs, 32);
    m->batched = sim_between(s, 1, 2) * sim_between(s, 1, m->len + 1);
    m->budget = sim_chance(s, 20) ? sim_between(s, 1, m->batched) : m->batched;
    m->num_blocks = draw_num_blocks(s);
    m->image_size = sim_between(s, 1, m->is_encoder_decoder ? SIM_ENCODER / 2 : m->len);
    m->encoder_budget = sim_below(s, 2 * m->image_size + 2);
    m->encoder_cache = sim_below(s, 3 * m->image_size + 2);
    m->max_encoder_tokens = m->is_encoder_decoder ? sim_between(s, 1, SIM_ENCODER) : 0;
    m->most_blocks = m->num_blocks - 1;
    for (uint32_t g = 0; g < m->num_groups; g++)
        if (s->groups[g].spec.kind == QUIRE_LAYER_SINK_FULL)
            m->most_blocks -= s->groups[g].spec.sink_len / m->sizes[g];
    if (s->is_0_32)
        narrow_0_32(s);
}

/* ---- the config -------------------------------------------------------------- */

static quire_switch draw_switch(sim *s)
{
    return (quire_switch)sim_below(s, 3);
}

/* Few slots and many, copies that are always worth it and some that are for long prefixes alone. */
static void draw_swap(sim *s, quire_sched_config *c)
{
    s->mix.num_swap = sim_chance(s, 45) ? sim_between(s, 1, 2 * s->mix.num_blocks) : 0;
    c->num_swap_blocks = s->mix.num_swap;
    c->swap_block_ns = sim_chance(s, 50) ? sim_below(s, s->mix.block_size) : 0;
    c->recompute_token_ns = sim_below(s, 3);
}

/* Pins that stand in everybody's way. */
static void draw_pins(sim *s, quire_sched_config *c)
{
    s->mix.has_pins = sim_chance(s, 35);
    c->max_pins = s->mix.has_pins ? sim_between(s, 1, 6) : 0;
    c->lookahead = sim_chance(s, 40) ? sim_between(s, 1, SIM_SLOTS) : 0;
}

/* Windows of one and of all, requests that are never overtaken and some that nearly always are. */
static void draw_prefix(sim *s, quire_sched_config *c)
{
    c->prefix_window = sim_chance(s, 40) ? sim_between(s, 1, SIM_SLOTS) : 0;
    c->prefix_patience = sim_chance(s, 40) ? sim_between(s, 1, 6) : 0;
}

static uint32_t choose_victim(void *user, const quire_req *candidates, uint32_t num)
{
    sim *s = user;
    SIM_CHECK(s, num > 0 && s->by_index[quire_req_index(candidates[num - 1])] != NULL,
              "a victim that is not there", num, 0);
    return sim_below(s, num + 1);
}

static void draw_pressure(sim *s, quire_sched_config *c)
{
    s->mix.use_pressure = sim_chance(s, 35);
    c->use_pressure = s->mix.use_pressure ? QUIRE_ON : QUIRE_OFF;
    c->cache->admit_below = (double)sim_between(s, 0, 10) / 10;
    c->cache->preempt_above = (double)sim_between(s, 4, 10) / 10;
    s->mix.preempt_above = c->cache->preempt_above;
    c->victim = sim_chance(s, 50) ? (quire_victim)sim_below(s, 4) : QUIRE_VICTIM_DEFAULT;
    if (sim_chance(s, 15)) {
        c->choose_victim = choose_victim;
        c->victim_user = s;
    }
}

static void draw_cache(sim *s, quire_cache_config *c)
{
    sim_mix *m = &s->mix;
    c->num_blocks = m->num_blocks;
    c->groups = s->groups;
    c->num_groups = m->num_groups;
    c->max_model_len = m->len;
    c->digest_bytes = SIM_DIGEST;
    c->enable_caching = sim_chance(s, m->is_encoder_decoder ? 10 : 85) ? QUIRE_ON : QUIRE_OFF;
    m->is_caching = c->enable_caching == QUIRE_ON;
    c->hash_block_size = m->block_size;
    c->use_eagle = m->is_eagle ? QUIRE_ON : QUIRE_OFF;
    c->max_encoder_tokens = m->max_encoder_tokens;
    c->watermark = sim_chance(s, 25) ? (double)sim_below(s, 11) / 10 : 0;
    m->has_forks = sim_chance(s, 40);
    c->max_copies = !m->has_forks ? 0 : sim_chance(s, 50) ? sim_between(s, 1, 4) : 100;
    if (sim_chance(s, 20))
        c->track_new_blocks = QUIRE_ON;
}

/* What only this profile has; and nothing that only the default has. */
static void draw_0_32(sim *s, quire_sched_config *c)
{
    static uint32_t drafts[SIM_SEQS];
    sim_mix *m = &s->mix;
    c->profile = QUIRE_PROFILE_VLLM_0_32;
    c->policy = QUIRE_POLICY_FCFS;
    c->enable_chunked_prefill = QUIRE_ON;
    c->cache->max_copies = 0;
    m->has_forks = m->has_pins = m->use_pressure = false;
    m->num_swap = 0;
    c->cache->watermark = sim_chance(s, 20) ? 0.05 : 0;
    c->cache->track_new_blocks = m->has_connector ? QUIRE_OFF : c->cache->track_new_blocks;
    bool has_retention = false;
    for (uint32_t g = 0; g < m->num_groups; g++) {
        quire_layer_kind kind = s->groups[g].spec.kind;
        has_retention = has_retention || kind == QUIRE_LAYER_SLIDING_WINDOW ||
                        kind == QUIRE_LAYER_SLIDING_WINDOW_MLA || kind == QUIRE_LAYER_MAMBA;
    }
    if (has_retention && sim_chance(s, 50))
        c->cache->prefix_cache_retention_interval = QUIRE_RETAIN_ALL;
    c->max_num_active_seqs = sim_chance(s, 20) ? sim_between(s, 1, m->seqs) : 0;
    c->long_prefill_token_threshold_adaptive = draw_switch(s);
    c->num_draft_slots = m->num_spec > 0 && m->batched > 8 && sim_chance(s, 20) ? 1 : 0;
    c->decode_interval = m->is_async && sim_chance(s, 25) ? sim_between(s, 2, 4) : 0;
    if (m->num_spec > 0 && sim_chance(s, 30)) {
        c->num_batch_sizes = sim_between(s, 1, m->seqs);
        for (uint32_t i = 0; i < c->num_batch_sizes; i++)
            drafts[i] = sim_below(s, m->num_spec + 1);
        c->num_spec_tokens_by_batch = drafts;
    }
    s->connector.is_kv_consumer = sim_chance(s, 50);
}

quire_sched_config sim_draw_config(sim *s)
{
    draw_mix(s);
    const sim_mix *m = &s->mix;
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    s->cache_config = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    c.cache = &s->cache_config;
    draw_cache(s, c.cache);
    c.policy = sim_chance(s, 40) ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
    c.max_num_seqs = m->seqs;
    c.max_num_batched_tokens = m->batched;
    c.max_num_scheduled_tokens = m->budget;
    c.long_prefill_token_threshold = sim_chance(s, 30) ? sim_between(s, 1, m->batched) : 0;
    c.enable_chunked_prefill = draw_switch(s);
    c.reserve_full_sequence = draw_switch(s);
    c.async_scheduling = m->is_async ? QUIRE_ON : QUIRE_OFF;
    c.max_batches = m->batches;
    c.num_spec_tokens = m->num_spec;
    c.num_lookahead_tokens = sim_chance(s, 50) ? m->num_spec : 0;
    c.max_loras = m->max_loras;
    c.is_encoder_decoder = m->is_encoder_decoder ? QUIRE_ON : QUIRE_OFF;
    c.encoder_compute_budget = m->encoder_budget;
    c.encoder_cache_size = m->encoder_cache;
    c.disable_chunked_mm_input = draw_switch(s);
    c.include_finished_set = draw_switch(s);
    c.fail_on_load_error = draw_switch(s);
    c.log_stats = draw_switch(s);
    c.max_requests = m->max_requests;
    c.max_loading = sim_between(s, 1, m->seqs);
    c.max_text_tokens = sim_chance(s, 30) ? 1 : 2048;
    c.max_encoder_items = sim_between(s, 1, SIM_IMAGES);
    if (m->has_connector)
        c.connector = &s->connector;
    s->connector.request_preempted = m->saves ? sim_request_preempted : NULL;
    if (m->has_encoder_connector)
        c.encoder_connector = &s->encoder_connector;
    if (m->has_grammar)
        c.grammar = &s->grammar;
    if (s->is_0_32) {
        draw_0_32(s, &c);
        return c;
    }
    draw_swap(s, &c);
    draw_pins(s, &c);
    draw_prefix(s, &c);
    draw_pressure(s, &c);
    return c;
}

/* ---- what the headers refuse -------------------------------------------------- */

static bool has_kind(const quire_sched_config *c, quire_layer_kind kind)
{
    for (uint32_t g = 0; g < c->cache->num_groups; g++)
        if (c->cache->groups[g].spec.kind == kind)
            return true;
    return false;
}

/* quire/cache.h */
static bool cache_is_refused(const quire_cache_config *c, bool is_0_32, bool has_cross,
                             bool has_chunk)
{
    uint32_t num_sinks = 0;
    bool all_alike = c->num_groups > 1;
    bool sizes_differ = false;
    for (uint32_t g = 0; g < c->num_groups; g++) {
        const quire_layer_spec *spec = &c->groups[g].spec;
        num_sinks += spec->sink_len / spec->block_size;
        all_alike = all_alike && spec->kind == c->groups[0].spec.kind;
        sizes_differ = sizes_differ || spec->block_size != c->groups[0].spec.block_size;
    }
    if (num_sinks >= c->num_blocks)
        return true;
    if (c->enable_caching != QUIRE_ON)
        return false;
    bool is_chunk_refused = has_chunk && (c->use_eagle == QUIRE_ON || sizes_differ);
    bool is_one = c->num_groups == 1 && c->hash_block_size != c->groups[0].spec.block_size;
    return has_cross || (all_alike && !is_0_32) || is_chunk_refused || is_one;
}

/* quire/sched.h: steps that are too short for whole prompts or Mamba blocks; swapping and pins. */
bool sim_is_refused(const quire_sched_config *c)
{
    bool has_cross = has_kind(c, QUIRE_LAYER_CROSS);
    uint32_t aligned = 0;
    bool is_0_32 = c->profile == QUIRE_PROFILE_VLLM_0_32; /* its chunks may end inside blocks */
    for (uint32_t g = 0; g < c->cache->num_groups && !is_0_32; g++)
        if (c->cache->groups[g].spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN)
            aligned = c->cache->groups[g].spec.block_size;
    uint32_t step = smaller(c->max_num_batched_tokens, c->max_num_scheduled_tokens);
    uint32_t threshold = c->long_prefill_token_threshold;
    bool is_short = (c->enable_chunked_prefill == QUIRE_OFF && step < c->cache->max_model_len) ||
                    aligned > step || (threshold > 0 && aligned > threshold);
    bool no_swap = has_cross || has_kind(c, QUIRE_LAYER_MAMBA);
    bool no_pins = c->cache->enable_caching == QUIRE_OFF;
    bool no_loads =
        c->is_encoder_decoder == QUIRE_ON && (c->connector != NULL || c->encoder_connector != NULL);
    double admit_below = c->cache->admit_below == 0 ? 0.80 : c->cache->admit_below;
    double preempt_above = c->cache->preempt_above == 0 ? 1 : c->cache->preempt_above;
    return is_short || no_loads || admit_below > preempt_above ||
           (c->num_swap_blocks > 0 && no_swap) ||
           (c->max_pins + c->lookahead + c->prefix_window > 0 && no_pins) ||
           (c->prefix_patience > 0 && c->prefix_window == 0) ||
           cache_is_refused(c->cache, c->profile == QUIRE_PROFILE_VLLM_0_32, has_cross,
                            has_kind(c, QUIRE_LAYER_CHUNKED_LOCAL));
}

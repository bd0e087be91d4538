/* sched/sim_mix.c - the scheduler of a seed: small, so that everything runs out all the time. */
#include "sched/sim.h"

static void draw_groups(sim *s)
{
    sim_mix *m = &s->mix;
    quire_layer_spec spec = {.kind = QUIRE_LAYER_FULL,
                             .block_size = m->block_size,
                             .num_kv_heads = 1,
                             .head_size = 8,
                             .dtype = QUIRE_DTYPE_FLOAT16};
    quire_layer_spec window = spec;
    window.kind = QUIRE_LAYER_SLIDING_WINDOW;
    window.sliding_window = sim_between(s, 1, 3 * m->block_size);
    quire_layer_spec chunk = spec;
    chunk.kind = QUIRE_LAYER_CHUNKED_LOCAL;
    chunk.attention_chunk_size = m->block_size * sim_between(s, 1, 3);
    uint32_t kind = sim_below(s, 8);
    m->num_groups = kind >= 6 ? 2 : 1;
    s->groups[0].spec = kind == 4 ? window : kind == 5 ? chunk : spec;
    s->groups[1].spec = kind == 6 ? window : chunk;
}

static void draw_mix(sim *s)
{
    static const uint32_t sizes[] = {1, 2, 4, 4, 8, 16};
    sim_mix *m = &s->mix;
    m->block_size = sizes[sim_below(s, (uint32_t)COUNT(sizes))];
    m->len = sim_between(s, 16, SIM_LEN);
    draw_groups(s);
    m->is_async = sim_chance(s, 50);
    m->batches = sim_between(s, 1, SIM_BATCHES);
    m->num_spec = sim_chance(s, 40) ? sim_between(s, 1, SIM_SPEC) : 0;
    m->max_loras = sim_chance(s, 30) ? sim_between(s, 1, 2) : 0;
    m->has_connector = sim_chance(s, 40);
    m->loads_async = m->has_connector && sim_chance(s, 60);
    m->loads_sync = m->has_connector && sim_chance(s, 60);
    m->loads_fail = m->has_connector && sim_chance(s, 50);
    m->sends = m->has_connector && sim_chance(s, 50);
    m->has_grammar = sim_chance(s, 25);
    m->has_images = sim_chance(s, 30);
    m->has_sessions = sim_chance(s, 25);
    m->resets_running = sim_chance(s, 50);
    m->faults = sim_chance(s, 20) ? 0 : sim_between(s, 10, 100);
    m->arrivals = sim_between(s, 5, 60);
    m->max_requests = sim_between(s, SIM_SEQS, SIM_SLOTS);
    m->budget = sim_between(s, 1, 2) * sim_between(s, 2, m->len);
    uint32_t each = (m->len + 2 * m->num_spec + m->block_size - 1) / m->block_size + 2;
    m->num_blocks = 1 + m->num_groups * each + sim_below(s, 2 * each);
    m->image_size = sim_between(s, 1, m->len / 4 < m->budget ? m->len / 4 : m->budget);
}

static quire_switch draw_switch(sim *s)
{
    return (quire_switch)sim_below(s, 3);
}

/* Few slots and many, copies that are always worth it and some that are for long prefixes alone. */
static void draw_swap(sim *s, quire_sched_config *c)
{
    s->mix.num_swap = sim_chance(s, 50) ? sim_between(s, 1, 2 * s->mix.num_blocks) : 0;
    c->num_swap_blocks = s->mix.num_swap;
    c->swap_block_ns = sim_chance(s, 50) ? sim_below(s, s->mix.block_size) : 0;
    c->recompute_token_ns = sim_below(s, 3);
}

/* Pins that stand in everybody's way. */
static void draw_pins(sim *s, quire_sched_config *c)
{
    s->mix.has_pins = c->cache.enable_caching == QUIRE_ON && sim_chance(s, 40);
    c->max_pins = s->mix.has_pins ? sim_between(s, 1, 6) : 0;
    if (c->cache.enable_caching == QUIRE_ON && sim_chance(s, 50))
        c->lookahead = sim_between(s, 1, SIM_SLOTS);
}

quire_sched_config sim_draw_config(sim *s)
{
    draw_mix(s);
    const sim_mix *m = &s->mix;
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    c.cache.num_blocks = m->num_blocks;
    c.cache.groups = s->groups;
    c.cache.num_groups = m->num_groups;
    c.cache.max_model_len = m->len;
    c.cache.digest_bytes = 16;
    c.cache.enable_caching = sim_chance(s, 85) ? QUIRE_ON : QUIRE_OFF;
    c.hasher = s->hasher;
    c.policy = sim_chance(s, 40) ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
    c.max_num_seqs = sim_between(s, 1, SIM_SEQS);
    c.max_num_batched_tokens = m->budget;
    c.long_prefill_token_threshold = sim_chance(s, 30) ? sim_between(s, 1, m->budget) : 0;
    c.enable_chunked_prefill = m->budget >= m->len ? draw_switch(s) : QUIRE_ON;
    c.reserve_full_sequence = draw_switch(s);
    c.async_scheduling = m->is_async ? QUIRE_ON : QUIRE_OFF;
    c.max_batches = m->batches;
    c.num_spec_tokens = m->num_spec;
    c.num_lookahead_tokens = sim_chance(s, 50) ? m->num_spec : 0;
    c.max_loras = m->max_loras;
    c.encoder_compute_budget = m->image_size * sim_between(s, 1, 3);
    c.encoder_cache_size = m->image_size * sim_between(s, 1, 4);
    c.disable_chunked_mm_input = draw_switch(s);
    c.include_finished_set = draw_switch(s);
    c.fail_on_load_error = draw_switch(s);
    c.log_stats = draw_switch(s);
    c.max_requests = m->max_requests;
    c.max_loading = sim_between(s, 1, SIM_SEQS);
    c.max_text_tokens = sim_chance(s, 20) ? 2048 : 0;
    c.max_encoder_items = sim_between(s, 2, SIM_IMAGES);
    if (m->has_connector)
        c.connector = &s->connector;
    if (m->has_grammar)
        c.grammar = &s->grammar;
    if (c.disable_chunked_mm_input == QUIRE_ON) /* an image must fit what a step may compute */
        c.long_prefill_token_threshold = 0;
    draw_swap(s, &c);
    draw_pins(s, &c);
    return c;
}

#include "engine/engine.h"

#include "engine/forks.h"

#include <stdio.h>

static uint32_t blocks_for(uint32_t tokens, uint32_t block_size)
{
    return (tokens + block_size - 1) / block_size;
}

static void draw_model(engine_setup *s, const engine_switches *on, uint64_t *random)
{
    engine_model_config *m = &s->model;
    m->vocabulary = 256;
    m->width = 32;
    m->num_heads = 4;
    m->num_kv_heads = engine_chance(random, 80) ? 2 : 4;
    m->head_size = 8;
    m->hidden = 48;
    m->is_tied = engine_chance(random, 30);
    m->seed = engine_random(random);
    m->num_groups = on->hybrid && engine_chance(random, 50) ? engine_between(random, 2, 3) : 1;
    m->num_layers = m->num_groups * (m->num_groups < 3 ? engine_between(random, 1, 2) : 1);
    if (m->num_layers == 1)
        m->num_layers = 2;
    for (uint32_t g = 1; g < m->num_groups; g++)
        m->windows[g] = m->windows[g - 1] + engine_between(random, 3, 20);
    if (m->num_groups == 1 && on->hybrid && engine_chance(random, 15))
        m->windows[0] = engine_between(random, 4, 40);
    s->max_model_len = 32 * engine_between(random, 2, 4);
    m->max_positions = s->max_model_len;
}

/* The least that one request of full length needs, and some more: somebody is always in the way. */
static void draw_memory(engine_setup *s, uint64_t *random)
{
    static const uint32_t SIZES[] = {1, 2, 4, 4, 8, 8, 16, 16};
    uint32_t size = SIZES[engine_draw(random, 8)];
    uint32_t least = 0;
    for (uint32_t g = 0; g < s->model.num_groups; g++) {
        s->block_sizes[g] = size;
        if (g > 0 && size < 16 && engine_chance(random, 15))
            s->block_sizes[g] = 2 * size;
        least += blocks_for(s->max_model_len + ENGINE_MAX_SPEC + 4, s->block_sizes[g]) + 1;
    }
    s->num_blocks = 2 + least * engine_between(random, 100, 200) / 100;
    s->layout = engine_chance(random, 50) ? ENGINE_LAYER_OUTER : ENGINE_BLOCK_OUTER;
}

static void draw_steps(engine_setup *s, const engine_switches *on, uint64_t *random)
{
    s->max_num_seqs = engine_between(random, 4, 16);
    s->is_chunked = on->chunked && engine_chance(random, 80);
    s->max_num_batched_tokens = engine_between(random, s->max_num_seqs + 8, 80);
    if (!s->is_chunked)
        s->max_num_batched_tokens = s->max_model_len;
    if (s->is_chunked && engine_chance(random, 30))
        s->long_prefill_token_threshold = engine_between(random, 5, 24);
    s->is_async = on->async && engine_chance(random, 45);
    s->num_spec_tokens =
        on->spec && engine_chance(random, 45) ? engine_between(random, 1, ENGINE_MAX_SPEC) : 0;
    s->is_priority = engine_chance(random, 30);
    s->is_reserving = engine_chance(random, 35);
    s->is_caching = on->prefix && engine_chance(random, 92);
    s->is_zeroing = on->zero && engine_chance(random, 25);
    s->is_pinning = on->pins && s->is_caching && engine_chance(random, 15);
    s->is_resetting = on->resets && engine_chance(random, 20);
    s->is_saving = on->images && engine_chance(random, 30);
    s->is_forgetting = on->forget && engine_chance(random, 15);
    if (s->num_spec_tokens > 0 && engine_chance(random, 30))
        s->num_lookahead_tokens = engine_between(random, 1, 3);
    s->is_aborting = on->aborts && engine_chance(random, 50);
    s->lookahead = s->is_caching && engine_chance(random, 25) ? 16 : 0;
}

/* One search must fit, or it is thrown out for ever: its prompt, and blocks of each beam's own. */
static void make_room_for_forks(engine_setup *s)
{
    uint32_t least = 2;
    for (uint32_t g = 0; g < s->model.num_groups; g++)
        least += blocks_for(s->max_model_len / 3, s->block_sizes[g]) +
                 ENGINE_FORK_WIDTH * (blocks_for(8, s->block_sizes[g]) + 2);
    s->num_blocks = s->num_blocks > least ? s->num_blocks : least;
}

static void draw_tiers(engine_setup *s, const engine_switches *on, uint64_t *random)
{
    uint32_t turn = (uint32_t)(s->seed % ENGINE_NUM_TURNS);
    bool needs_offload = turn < 4 || turn == 9 || turn == 14;
    if ((needs_offload || turn == 10) && on->prefix)
        s->is_caching = true;
    if (on->offload && s->is_caching &&
        (needs_offload || (turn != 6 && engine_chance(random, 50)))) {
        s->num_cpu_blocks = s->num_blocks * engine_between(random, 50, 250) / 100;
        if (needs_offload)
            s->num_cpu_blocks = s->num_blocks * engine_between(random, 50, 110) / 100;
        s->is_lazy = on->lazy && engine_chance(random, 40);
        uint32_t which = engine_draw(random, 10); /* a file, Redis, both or none */
        s->has_file = on->file && which < 6;
        s->has_redis = on->redis && which >= 4 && which < 9;
        s->is_failing = on->failures && engine_chance(random, 30);
        s->is_slow = on->failures && s->is_reserving && engine_chance(random, 60);
    }
    s->is_restarting = on->restarts && s->has_file && engine_chance(random, 50);
    s->is_crashing = on->crashes && engine_chance(random, 50);
    s->has_forks = (on->beams || on->samples || on->branches) && turn != 11 &&
                   (turn == 12 || turn == 13 || engine_chance(random, 35));
    if (turn == 13)
        s->is_async = false; /* beams are computed together, and then they choose */
    s->has_beams = on->beams && !s->is_async;
    s->has_samples = on->samples;
    s->has_branches = on->branches && s->has_forks;
    if (s->has_forks)
        make_room_for_forks(s);
    if (on->swap && (turn == 11 || engine_chance(random, 50)))
        s->num_swap_blocks = s->num_blocks * engine_between(random, 30, 150) / 100;
    if (on->failures && s->num_cpu_blocks > 0 && !s->is_reserving)
        s->is_slow = engine_chance(random, 60); /* last: seeds keep the engines they had */
}

/* What chance would leave out of a short run has its turn: in sixteen engines everything was. */
static void take_turns(engine_setup *s, const engine_switches *on)
{
    bool has_offload = s->num_cpu_blocks > 0;
    switch (s->seed % ENGINE_NUM_TURNS) {
    case 0:
    case 14:
        s->has_redis = on->redis && has_offload;
        s->has_file = s->has_file && !s->has_redis;
        break;
    case 1:
    case 9:
        s->has_file = on->file && has_offload;
        s->is_restarting = on->restarts && s->has_file;
        s->is_crashing = on->crashes && s->seed % ENGINE_NUM_TURNS == 9;
        break;
    case 2:
        s->is_failing = on->failures && has_offload;
        break;
    case 3:
        s->is_lazy = on->lazy && has_offload;
        break;
    case 4:
        s->is_forgetting = on->forget;
        break;
    case 5:
        s->is_resetting = on->resets;
        break;
    case 6:
        s->is_saving = on->images && !has_offload;
        break;
    case 7:
        s->is_zeroing = on->zero;
        break;
    case 8:
        s->is_aborting = on->aborts;
        break;
    case 10:
        s->is_pinning = on->pins && s->is_caching;
        break;
    default:
        break;
    }
}

/* A search whose beams pass the upper mark is preempted for ever, as one that passes the pool. */
static void draw_pressure(engine_setup *s, uint64_t *random)
{
    uint32_t above = engine_between(random, 50, 100);
    s->use_pressure = true;
    s->preempt_above = above / 100.0;
    s->admit_below = engine_between(random, 20, above) / 100.0;
    if (s->has_beams && s->has_forks)
        s->num_blocks = s->num_blocks * 100 / above + 1;
}

static void draw_policies(engine_setup *s, const engine_switches *on, uint64_t *random)
{
    bool has_policy = engine_chance(random, 30);
    uint32_t window = engine_between(random, 1, ENGINE_MAX_REQUESTS);
    uint32_t patience = engine_chance(random, 50) ? engine_between(random, 1, 6) : 0;
    if (on->policy && s->is_caching && has_policy) {
        s->prefix_window = window;
        s->prefix_patience = patience;
    }
    bool has_victims = engine_chance(random, 30);
    quire_victim victim = (quire_victim)engine_between(random, 0, 3);
    if (on->victims && has_victims) {
        s->victim = victim;
        s->has_victim_hook = victim == QUIRE_VICTIM_DEFAULT;
    }
    if (on->pressure && engine_chance(random, 25))
        draw_pressure(s, random);
    s->is_moving = on->moves && engine_chance(random, 25);
    bool is_saved = on->saves && s->num_cpu_blocks > 0 && engine_chance(random, 50);
    if (is_saved)
        s->num_swap_blocks = 0; /* the offload saves what is preempted */
    else if (s->is_moving && s->num_swap_blocks == 0)
        s->num_swap_blocks = s->num_blocks * engine_between(random, 30, 150) / 100;
}

static void draw_peer(engine_setup *s, const engine_switches *on, uint64_t *random)
{
    bool has_turn = s->seed % ENGINE_NUM_TURNS == 15;
    if (!on->peer || !on->offload || !on->prefix)
        return;
    s->has_peer = has_turn || (s->num_cpu_blocks > 0 && engine_chance(random, 25));
    if (!s->has_peer)
        return;
    s->is_caching = true;
    s->num_cpu_blocks = s->num_blocks * engine_between(random, 30, 100) / 100;
}

/* What came later is drawn from numbers of its own: seeds keep the engines they had. */
static void draw_more(engine_setup *s, const engine_switches *on)
{
    uint64_t random = s->seed ^ UINT64_C(0x9e3779b9);
    draw_peer(s, on, &random);
    draw_policies(s, on, &random);
}

void engine_setup_draw(engine_setup *setup, const engine_switches *switches, uint64_t seed)
{
    uint64_t random = seed;
    *setup = (engine_setup){.seed = seed};
    draw_model(setup, switches, &random);
    draw_memory(setup, &random);
    draw_steps(setup, switches, &random);
    draw_tiers(setup, switches, &random);
    take_turns(setup, switches);
    draw_more(setup, switches);
}

void engine_setup_print(const engine_setup *s)
{
    printf("  seed %llu: %u layers in %u groups, windows %u %u %u, blocks of %u %u %u, %s outer\n",
           (unsigned long long)s->seed, s->model.num_layers, s->model.num_groups,
           s->model.windows[0], s->model.windows[1], s->model.windows[2], s->block_sizes[0],
           s->block_sizes[1], s->block_sizes[2],
           s->layout == ENGINE_LAYER_OUTER ? "layer" : "block");
    printf("    length %u, %u blocks, %u requests, %u tokens a step (%u), %u drafts, %u swap, %u "
           "CPU blocks\n   ",
           s->max_model_len, s->num_blocks, s->max_num_seqs, s->max_num_batched_tokens,
           s->long_prefill_token_threshold, s->num_spec_tokens, s->num_swap_blocks,
           s->num_cpu_blocks);
    const struct {
        bool is_on;
        const char *name;
    } flags[] = {{s->is_lazy, "lazy"},
                 {s->has_file, "file"},
                 {s->has_redis, "redis"},
                 {s->has_peer, "peer"},
                 {s->is_serving, "serving"},
                 {s->has_worker, "worker"},
                 {s->use_pressure, "pressure"},
                 {s->is_moving, "moving"},
                 {s->prefix_window > 0, "prefix-window"},
                 {s->victim != QUIRE_VICTIM_DEFAULT, "victim"},
                 {s->has_victim_hook, "victim-hook"},
                 {s->is_chunked, "chunked"},
                 {s->is_caching, "caching"},
                 {s->is_async, "async"},
                 {s->is_priority, "priority"},
                 {s->is_reserving, "reserving"},
                 {s->is_zeroing, "zeroing"},
                 {s->is_failing, "failing"},
                 {s->is_slow, "slow"},
                 {s->is_pinning, "pinning"},
                 {s->is_resetting, "resetting"},
                 {s->is_aborting, "aborting"},
                 {s->has_forks, "forks"},
                 {s->is_restarting, "restarting"},
                 {s->is_crashing, "crashing"},
                 {s->is_saving, "saving"},
                 {s->is_forgetting, "forgetting"},
                 {s->lookahead > 0, "lookahead"}};
    for (uint32_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].is_on)
            printf(" %s", flags[i].name);
    printf("\n");
}

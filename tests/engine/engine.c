#include "engine/engine.h"
#include "base/quirks_kit.h"

#include "engine/forks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int engine_fail(engine *e, const char *what, int status)
{
    const char *why = quire_refusal();
    (void)snprintf(e->message, sizeof e->message, "%s: %s", what,
                   why[0] != 0 ? why : quire_strerror(status));
    return 1;
}

/* ---- opening --------------------------------------------------------------- */

static uint32_t hash_block_size(const engine_setup *s)
{
    uint32_t least = s->block_sizes[0]; /* the others are this, or twice as large */
    for (uint32_t g = 1; g < s->model.num_groups; g++)
        least = s->block_sizes[g] < least ? s->block_sizes[g] : least;
    return least;
}

static int open_hashers(engine *e)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = e->setup->seed % 2 == 0 ? QUIRE_HASH_SHA256 : QUIRE_HASH_QUIRE128;
    config.block_size = hash_block_size(e->setup);
    config.seed = (quire_bytes){"engine", 6}; /* the same names after a restart */
    int status = quire_hasher_create(&config, NULL, &e->hasher);
    e->config.cache->digest_bytes = (uint32_t)quire_hash_digest_bytes(config.algo);
    return status == QUIRE_OK ? 0 : engine_fail(e, "hasher", status);
}

static void describe_groups(engine *e, uint64_t page_bytes)
{
    const engine_setup *s = e->setup;
    for (uint32_t g = 0; g < s->model.num_groups; g++) {
        quire_layer_spec *spec = &e->groups[g].spec;
        spec->kind = s->model.windows[g] > 0 ? QUIRE_LAYER_SLIDING_WINDOW : QUIRE_LAYER_FULL;
        spec->sliding_window = s->model.windows[g];
        spec->block_size = s->block_sizes[g];
        spec->num_kv_heads = s->model.num_kv_heads;
        spec->head_size = s->model.head_size;
        spec->dtype = QUIRE_DTYPE_FLOAT32;
        spec->page_size_padded = page_bytes;
    }
}

static bool has_victims(const engine_setup *s)
{
    return s->victim != QUIRE_VICTIM_DEFAULT || s->has_victim_hook;
}

static uint32_t choose_victim(void *user, const quire_req *candidates, uint32_t num)
{
    engine *e = user;
    (void)candidates;
    return engine_draw(&e->random, num + 1);
}

/* Counts what no step tells. */
static void note_decision(void *user, const quire_decision *decision)
{
    engine *e = user;
    bool is_preemption = decision->kind == QUIRE_DECISION_PREEMPTED;
    bool is_pressure = is_preemption && decision->reason == QUIRE_REASON_PRESSURE;
    e->counts->overtaking += decision->kind == QUIRE_DECISION_OVERTOOK;
    e->counts->pressed += is_pressure;
    e->counts->victims += is_preemption && decision->reason != QUIRE_REASON_ASKED &&
                          decision->other != decision->req && has_victims(e->setup);
}

static void describe_sched(engine *e)
{
    const engine_setup *s = e->setup;
    quire_sched_config *c = &e->config;
    c->cache->groups = e->groups;
    c->cache->num_groups = s->model.num_groups;
    c->cache->num_blocks = s->num_blocks;
    c->cache->max_model_len = s->max_model_len;
    c->cache->enable_caching = s->is_caching ? QUIRE_ON : QUIRE_OFF;
    c->cache->track_new_blocks = s->is_zeroing ? QUIRE_ON : QUIRE_OFF;
    c->cache->max_copies = s->has_forks ? ENGINE_MAX_COPIES : 0;
    c->hasher = e->hasher;
    c->policy = s->is_priority ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
    c->max_num_seqs = s->max_num_seqs;
    c->max_num_batched_tokens = s->max_num_batched_tokens;
    c->long_prefill_token_threshold = s->long_prefill_token_threshold;
    c->enable_chunked_prefill = s->is_chunked ? QUIRE_ON : QUIRE_OFF;
    c->reserve_full_sequence = s->is_reserving ? QUIRE_ON : QUIRE_OFF;
    c->async_scheduling = s->is_async ? QUIRE_ON : QUIRE_OFF;
    c->num_spec_tokens = s->num_spec_tokens;
    c->num_lookahead_tokens = s->num_lookahead_tokens;
    c->max_requests = ENGINE_MAX_REQUESTS;
    c->max_loading = s->max_num_seqs;
    c->max_pins = s->is_pinning ? 4 : 0;
    c->lookahead = s->lookahead;
    c->num_swap_blocks = s->num_swap_blocks;
    c->swap_block_ns = 1; /* moving is nearly always worth it */
    c->recompute_token_ns = 100;
    c->prefix_window = s->prefix_window;
    c->prefix_patience = s->prefix_patience;
    c->victim = s->victim;
    if (s->has_victim_hook) {
        c->choose_victim = choose_victim;
        c->victim_user = e;
    }
    if (s->use_pressure) {
        c->use_pressure = QUIRE_ON;
        c->cache->admit_below = s->admit_below;
        c->cache->preempt_above = s->preempt_above;
    }
    if (s->use_pressure || s->prefix_window > 0 || has_victims(s)) {
        c->on_decision = note_decision;
        c->observer = e;
        c->max_ghosts = 1;
    }
}

static int open_backend(engine *e)
{
    const engine_setup *s = e->setup;
    engine_backend_config c = {.model = e->model,
                               .layout = s->layout,
                               .num_blocks = s->num_blocks,
                               .max_rows = e->max_rows,
                               .max_row_blocks = e->max_row_blocks,
                               .max_works = 3,
                               .num_swap_blocks = s->num_swap_blocks,
                               .num_references = ENGINE_NUM_REFERENCES};
    c.max_tokens = s->max_num_batched_tokens;
    c.max_logits = c.max_tokens;
    memcpy(c.block_sizes, s->block_sizes, sizeof c.block_sizes);
    uint64_t block_bytes = engine_block_bytes(&c);
    describe_groups(e, engine_page_bytes(&c));
    if (s->num_cpu_blocks > 0) {
        quire_host_memory_config host = QUIRE_HOST_MEMORY_CONFIG_INIT;
        host.bytes = s->num_cpu_blocks * block_bytes;
        host.hugepages = QUIRE_OFF;
        int status = quire_host_memory_open(&host, &e->host);
        if (status != QUIRE_OK)
            return engine_fail(e, "host memory", status);
        c.slots = quire_host_memory_get_info(e->host)->data;
        c.num_slots = s->num_cpu_blocks;
    }
    int status = e->ops->create(&c, &e->backend);
    e->is_disabled = status == QUIRE_E_DISABLED;
    e->block_bytes = block_bytes;
    return status == QUIRE_OK ? 0 : engine_fail(e, "backend", status);
}

static int open_offload(engine *e)
{
    const engine_setup *s = e->setup;
    const quire_host_memory_info *host = quire_host_memory_get_info(e->host);
    engine_tiers_choice choice = {
        .file = s->has_file, .redis = s->has_redis, .peer = s->has_peer, .server = s->is_serving};
    if (engine_tiers_open(e->tiers, choice, e->block_bytes, host->data,
                          (size_t)s->num_cpu_blocks * e->block_bytes) != 0)
        return engine_fail(e, "tiers", QUIRE_E_SYSTEM);
    quire_offload_tier tiers[ENGINE_NUM_TIERS] = {{0}};
    quire_offload_config c = QUIRE_OFFLOAD_CONFIG_INIT;
    c.learns = QUIRE_OFF; /* its steps take no time */
    if (e->tiers->peer != NULL)
        tiers[c.num_tiers++].tier = e->tiers->peer;
    if (e->tiers->file != NULL)
        tiers[c.num_tiers++].tier = e->tiers->file;
    if (e->tiers->remote != NULL)
        tiers[c.num_tiers++].tier = e->tiers->remote;
    c.sched = &e->config;
    c.num_cpu_blocks = s->num_cpu_blocks;
    c.mode = s->is_lazy ? QUIRE_OFFLOAD_LAZY : QUIRE_OFFLOAD_EAGER;
    c.device = e->ops->device(e->backend);
    c.memory = host->data;
    c.block_bytes = e->block_bytes;
    c.backlog = 16;
    c.tiers = tiers;
    c.peer_server = e->tiers->server;
    if (s->has_worker) {
        int err = engine_worker_open(&e->worker, &c);
        if (err != QUIRE_OK)
            return engine_fail(e, "worker", err);
    }
    int status = quire_offload_create(&c, NULL, &e->offload);
    if (status != QUIRE_OK)
        return engine_fail(e, "offload", status);
    e->config.connector = quire_offload_connector(e->offload);
    return 0;
}

static int open_sched(engine *e)
{
    if (e->setup->num_cpu_blocks > 0 && open_offload(e) != 0)
        return 1;
    quirks_change(e->setup->quirks, 0); /* for schedulers that take over too */
    int status = quire_sched_create(&e->config, NULL, &e->sched);
    if (status != QUIRE_OK)
        return engine_fail(e, "scheduler", status);
    if (e->offload != NULL)
        status = quire_offload_bind(e->offload, e->sched);
    return status == QUIRE_OK ? 0 : engine_fail(e, "bind", status);
}

static int open_tables(engine *e)
{
    quire_table_config c = QUIRE_TABLE_CONFIG_INIT;
    c.max_num_reqs = e->max_rows;
    c.max_num_blocks_per_req = e->max_row_blocks;
    c.max_num_batched_tokens = e->setup->max_num_batched_tokens;
    for (uint32_t g = 0; g < e->setup->model.num_groups; g++) {
        c.block_size = e->setup->block_sizes[g];
        int status = quire_table_create(&c, NULL, &e->tables[g]);
        if (status != QUIRE_OK)
            return engine_fail(e, "table", status);
    }
    return engine_batch_create(e);
}

/* Copies that fail and are late; or that do not wait, where that is what is broken. */
static int set_faults(engine *e)
{
    bool is_racing = e->setup->broken == ENGINE_BREAK_MARKS;
    engine_faults faults = {.ignores_marks = is_racing};
    if (is_racing) {
        faults.compute_delay_us = 400;
        faults.copy_delay_us = 1;
    } else if (e->setup->is_failing) {
        faults.compute_delay_us = 30;
        faults.copy_delay_us = 20;
        faults.fail_per_mille = 60;
    }
    if (e->setup->is_slow && !is_racing)
        faults.copy_delay_us = 100;
    if (e->ops->set_faults == NULL)
        return 0;
    int status = e->ops->set_faults(e->backend, &faults);
    return status == QUIRE_OK ? 0 : engine_fail(e, "faults", status);
}

int engine_open(engine *e, const engine_setup *setup, const engine_model *model,
                const engine_backend_ops *ops, engine_tiers *tiers, engine_counts *counts)
{
    bool is_verbose = e->is_verbose;
    *e = (engine){.setup = setup,
                  .model = model,
                  .ops = ops,
                  .tiers = tiers,
                  .counts = counts,
                  .is_verbose = is_verbose,
                  .config = QUIRE_SCHED_CONFIG_INIT,
                  .cache_config = QUIRE_CACHE_CONFIG_INIT,
                  .random = setup->seed ^ UINT64_C(0x51a7e5)};
    e->config.cache = &e->cache_config;
    e->max_rows = ENGINE_MAX_REQUESTS;
    e->max_row_blocks = (setup->max_model_len + ENGINE_MORE_TOKENS) / hash_block_size(setup) + 2;
    if (open_hashers(e) != 0 || open_backend(e) != 0)
        return 1;
    describe_sched(e);
    if (open_sched(e) != 0 || open_tables(e) != 0 || set_faults(e) != 0)
        return 1;
    if (setup->has_forks && engine_forks_create(e) != 0)
        return engine_fail(e, "forks", QUIRE_E_NOMEM);
    counts->engines++;
    return 0;
}

/* ---- closing --------------------------------------------------------------- */

static void count_hits(engine *e)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    if (e->offload == NULL || quire_offload_get_stats(e->offload, &stats) != QUIRE_OK)
        return;
    uint32_t place = 0;
    uint64_t of_tiers = 0;
    if (e->setup->has_peer) {
        of_tiers += stats.tiers[place].hit_tokens;
        e->counts->peer_tokens += stats.tiers[place++].hit_tokens;
    }
    if (e->setup->has_file) {
        uint64_t n = stats.tiers[place++].hit_tokens;
        e->counts->file_tokens += n;
        e->counts->restart_tokens += e->was_restarted ? n : 0;
        of_tiers += n;
    }
    if (e->setup->has_redis) {
        e->counts->redis_tokens += stats.tiers[place].hit_tokens;
        of_tiers += stats.tiers[place].hit_tokens;
    }
    e->counts->host_tokens += stats.hit_tokens - of_tiers;
    e->counts->lazy_stores += e->setup->is_lazy ? stats.stored_blocks : 0;
    e->counts->loads_failed += stats.failed_loads;
}

void engine_close(engine *e, bool is_crash)
{
    count_hits(e);
    engine_worker_stop(&e->worker);
    if (e->offload != NULL && engine_tiers_close(e->tiers) != 0)
        e->counts->confused++;
    engine_forks_destroy(e);
    e->ops->destroy(e->backend);
    if (e->offload != NULL && is_crash) {
        (void)quire_offload_abandon(e->offload);
        e->counts->confused += engine_worker_close(&e->worker) != 0;
    }
    quire_sched_destroy(e->sched);
    if (e->offload != NULL && quire_offload_destroy(e->offload) != QUIRE_OK)
        e->counts->confused++;
    e->counts->confused += engine_worker_close(&e->worker) != 0;
    if (e->offload != NULL)
        engine_tiers_stop_serving(e->tiers);
    quire_host_memory_close(e->host);
    for (uint32_t g = 0; g < ENGINE_MAX_GROUPS; g++)
        quire_table_destroy(e->tables[g]);
    quire_hasher_destroy(e->hasher);
    engine_batch_destroy(e);
}

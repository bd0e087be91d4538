/* A program of tests/build/abi.py: it uses every kind of struct that may grow, and prints what the
 * library answers. It is compiled against the headers as they are, and runs with libraries whose
 * structs have one field more. Bytes behind the structs that the library writes must not change. */
#include <quire.h>
#include <quire/device_cuda.h>
#include <quire/events.h>
#include <quire/http.h>
#include <quire/offload.h>
#include <quire/planner.h>
#include <quire/record.h>
#include <quire/tier_file.h>
#include <quire/tier_peer.h>
#include <quire/tier_redis.h>
#include <quire/wire.h>
#include <quire/worker.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- structs that never grow ------------------------------------------------ */

#define FINAL(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " is final")

FINAL(quire_block_span, 16);
FINAL(quire_group_config, 224);
FINAL(quire_cache_request, 48);
FINAL(quire_token_place, 12);
FINAL(quire_cache_block, 32);
FINAL(quire_prefix_stats, 56);
FINAL(quire_block_copy, 12);
FINAL(quire_block_move, 12);
FINAL(quire_pressure, 16);
FINAL(quire_hooks, 64);
FINAL(quire_device_copy, 12);
FINAL(quire_device_job, 48);
FINAL(quire_device, 16);
FINAL(quire_device_host_faults, 20);
FINAL(quire_cuda_region, 24);
FINAL(quire_cuda_arena_view, 32);
FINAL(quire_cuda_pair, 8);
FINAL(quire_cuda_tables_view, 32);
FINAL(quire_bytes, 16);
FINAL(quire_mm_feature, 32);
FINAL(quire_hasher_info, 32);
FINAL(quire_extra_key, 32);
FINAL(quire_state, 24);
FINAL(quire_layer_spec, 216);
FINAL(quire_allocator, 40);
FINAL(quire_feed_key, 40);
FINAL(quire_monitor_group, 12);
FINAL(quire_tier_step, 72);
FINAL(quire_name, 64);
FINAL(quire_map_cell, 16);
FINAL(quire_tier_usage, 128);
FINAL(quire_offload_tier, 40);
FINAL(quire_output, 64);
FINAL(quire_spec_stats, 32);
FINAL(quire_plan_worker, 24);
FINAL(quire_plan_tensor, 24);
FINAL(quire_same, 16);
FINAL(quire_usage, 40);
FINAL(quire_cache_counts, 16);
FINAL(quire_pool_counts, 16);
FINAL(quire_sched_counts, 20);
FINAL(quire_block_info, 32);
FINAL(quire_mm_input, 48);
FINAL(quire_step_copy, 20);
FINAL(quire_state_offer, 24);
FINAL(quire_table_view, 40);
FINAL(quire_layout, 40);
FINAL(quire_tier_key, 40);
FINAL(quire_tier_io, 72);
FINAL(quire_tier_job, 80);
FINAL(quire_tier_space, 16);
FINAL(quire_planner_tier, 64);
FINAL(quire_planner_request, 32);
FINAL(quire_transfer_tier, 40);
FINAL(quire_worker_tier, 24);
FINAL(quire_page_region, 24);
FINAL(quire_wire_hash, 24);
FINAL(quire_wire_key, 32);
FINAL(quire_wire_batch, 24);
FINAL(quire_recorded_pair, 8);
FINAL(quire_recorded_input, 32);

/* ---- the program -------------------------------------------------------------- */

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

static void must(int status, const char *what)
{
    if (status == QUIRE_OK)
        return;
    printf("%s: %s (%s)\n", what, quire_status_name(status), quire_refusal());
    exit(1);
}

/* A struct that the library writes, with bytes behind it that it must leave alone. */
static void *guarded(size_t bytes)
{
    unsigned char *memory = malloc(bytes + GUARD);
    memset(memory, 0, bytes);
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + bytes, GUARD_BYTE, GUARD);
    return memory;
}

static void check_guard(const void *memory, size_t bytes, const char *what)
{
    size_t size;
    memcpy(&size, memory, sizeof size);
    bool is_whole = size == bytes;
    for (size_t i = 0; i < GUARD; i++)
        is_whole &= ((const unsigned char *)memory)[bytes + i] == GUARD_BYTE;
    printf("%s: %s\n", what, is_whole ? "within its size" : "written past its size");
}

#define OUT(type, name) type *name = guarded(sizeof *name)
#define DONE(name)      (check_guard(name, sizeof *name, #name), free(name))

static const quire_group_config GROUP = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                  .block_size = 16,
                                                  .num_kv_heads = 2,
                                                  .head_size = 8,
                                                  .dtype = QUIRE_DTYPE_FLOAT16}};

static void use_plan(void)
{
    quire_plan_params params = QUIRE_PLAN_PARAMS_INIT;
    quire_plan_worker worker = {.memory_bytes = 1 << 20};
    quire_plan *plan;
    OUT(quire_plan_info, info);
    OUT(quire_plan_group, group);
    OUT(quire_plan_share, share);
    OUT(quire_plan_shortage, shortage);
    params.layers = &GROUP.spec;
    params.num_layers = 1;
    params.workers = &worker;
    params.num_workers = 1;
    params.max_model_len = 1000;
    params.shortage = shortage;
    must(quire_plan_create(&params, NULL, &plan), "plan");
    must(quire_plan_get_info(plan, info), "info");
    must(quire_plan_get_group(plan, 0, group), "group");
    must(quire_plan_get_worker(plan, 0, share), "share");
    printf("plan: %u blocks, page %llu, used %llu\n", info->num_blocks,
           (unsigned long long)group->page_bytes, (unsigned long long)share->used_bytes);
    quire_plan_destroy(plan);
    worker.memory_bytes = 4096;
    printf("too little memory: %d", quire_plan_create(&params, NULL, &plan));
    printf(", needed %llu\n", (unsigned long long)shortage->needed_bytes);
    DONE(info), DONE(group), DONE(share), DONE(shortage);
}

static void use_cache(void)
{
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    quire_cache *cache;
    quire_cache_request request = {.num_tokens = 40};
    quire_allocate_params params = QUIRE_ALLOCATE_PARAMS_INIT;
    OUT(quire_cache_totals, totals);
    config.num_blocks = 20;
    config.groups = &GROUP;
    config.num_groups = 1;
    config.max_model_len = 200;
    config.enable_caching = QUIRE_OFF;
    must(quire_cache_create(&config, NULL, &cache), "cache");
    params.num_new_tokens = 40;
    must(quire_cache_allocate_slots(cache, &request, &params, NULL), "allocate");
    must(quire_cache_get_totals(cache, totals), "totals");
    printf("cache: %u requests, %llu blocks\n", totals->num_seqs,
           (unsigned long long)totals->num_table_blocks);
    quire_cache_destroy(cache);
    DONE(totals);
}

static void use_pool(void)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    quire_cache_full_params params = QUIRE_CACHE_FULL_PARAMS_INIT;
    unsigned char hash[32] = {7};
    quire_block block;
    quire_pool *pool;
    config.num_blocks = 4;
    must(quire_pool_create(&config, NULL, &pool), "pool");
    must(quire_pool_get_new_blocks(pool, 1, &block), "block");
    params.blocks = &block;
    params.num_full_blocks = 1;
    params.hashes = hash;
    params.hash_len = sizeof hash;
    params.num_hashes = 1;
    must(quire_pool_cache_full_blocks(pool, &params), "key");
    printf("pool: %llu active\n", (unsigned long long)quire_pool_get_usage(pool).active);
    quire_pool_destroy(pool);
}

/* ---- a scheduler with all its partners ------------------------------------------ */

static int num_asked;

static int match(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                 uint32_t *is_async)
{
    (void)user, (void)req, (void)num_local;
    num_asked++;
    *num_external = *is_async = 0;
    return QUIRE_OK;
}

static void on_snapshot(void *user, const quire_snapshot *snapshot)
{
    *(uint32_t *)user += snapshot->num_tokens + snapshot->num_watermark_blocks;
}

static void run_steps(quire_sched *sched)
{
    const quire_step *step;
    const quire_outputs *outputs;
    const quire_token sampled[4] = {9, 9, 9, 9};
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    output.sampled = sampled;
    while (quire_sched_get_num_unfinished(sched) > 0) {
        must(quire_sched_schedule(sched, &step), "schedule");
        must(quire_sched_update(sched, step->step, &output, &outputs), "update");
        printf("step %llu: %u tokens, %u outputs, %u running\n", (unsigned long long)step->step,
               step->total_tokens, outputs->num_outputs, outputs->stats->num_running);
    }
}

static void use_monitor(quire_monitor *monitor)
{
    quire_monitor_step two[2] = {QUIRE_MONITOR_STEP_INIT};
    OUT(quire_monitor_step, last);
    OUT(quire_step_names, names);
    OUT(quire_block_map, map);
    quire_name list[8];
    static quire_map_cell cells[QUIRE_MAP_CELLS];
    uint32_t n = quire_monitor_get_steps(monitor, 0, two, 2);
    must(quire_monitor_get_last_step(monitor, last), "last step");
    printf("monitor: %u steps, first %llu, second %llu, last %llu of %u blocks\n", n,
           (unsigned long long)two[0].step, (unsigned long long)two[1].step,
           (unsigned long long)last->step, quire_monitor_get_info(monitor)->num_blocks);
    must(quire_monitor_get_names(monitor, 1, names, list, 8), "names");
    printf("step 1 ran %u: %.*s\n", names->num_running, (int)list[0].bytes, list[0].text);
    must(quire_monitor_get_map(monitor, 0, map, cells, QUIRE_MAP_CELLS), "map");
    printf("map of %s: %u cells\n", map->name, map->num_cells);
    DONE(last), DONE(names), DONE(map);
}

static void read_events(quire_reader *reader)
{
    OUT(quire_feed_event, event);
    uint32_t num_stored = 0;
    uint64_t batches = 0;
    while (quire_reader_next(reader, event) == QUIRE_OK) {
        num_stored += event->kind == QUIRE_FEED_STORED ? event->num_blocks : 0;
        batches += event->kind == QUIRE_FEED_BATCH;
    }
    printf("events: %u stored in %llu batches\n", num_stored, (unsigned long long)batches);
    DONE(event);
}

static void use_sched(void)
{
    uint32_t seen = 0;
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_monitor_config watched = QUIRE_MONITOR_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    quire_connector connector = QUIRE_CONNECTOR_INIT;
    quire_encoder_connector encoder = QUIRE_ENCODER_CONNECTOR_INIT;
    quire_grammar grammar = QUIRE_GRAMMAR_INIT;
    quire_request_params params = QUIRE_REQUEST_PARAMS_INIT;
    quire_token prompt[40] = {1, 2, 3};
    quire_sched *sched;
    quire_reader *reader;
    quire_req req;
    OUT(quire_req_info, info);
    OUT(quire_request_params, kept);
    hashing.seed = (quire_bytes){"abi", 3};
    cache.num_blocks = 64;
    cache.groups = &GROUP;
    cache.num_groups = 1;
    cache.max_model_len = 200;
    watched.num_names = 4;
    watched.map_ms = 1;
    connector.get_num_new_matched_tokens = match;
    config.cache = &cache;
    config.monitor = &watched;
    config.connector = &connector;
    config.encoder_connector = &encoder;
    config.grammar = &grammar;
    config.log_stats = QUIRE_ON;
    config.on_snapshot = on_snapshot;
    config.observer = &seen;
    config.swap_setup_ns = 5;
    must(quire_hasher_create(&hashing, NULL, &config.hasher), "hasher");
    must(quire_sched_create(&config, NULL, &sched), "sched");
    must(quire_reader_create(quire_sched_get_monitor(sched), NULL, &reader), "reader");
    params.id = (quire_bytes){"first", 5};
    params.prompt = prompt;
    params.num_prompt_tokens = 40;
    params.max_tokens = 3;
    must(quire_sched_add(sched, &params, &req), "add");
    must(quire_sched_get_req_info(sched, req, info), "req_info");
    must(quire_sched_get_params(sched, req, kept), "get_params");
    printf("request %.*s: %u tokens, at most %u\n", (int)info->id.len, (const char *)info->id.data,
           info->num_tokens, kept->max_tokens);
    run_steps(sched);
    printf("asked %d times, seen %u\n", num_asked, seen);
    use_monitor(quire_sched_get_monitor(sched));
    read_events(reader);
    DONE(info), DONE(kept);
    quire_reader_destroy(reader);
    quire_sched_destroy(sched);
    quire_hasher_destroy(config.hasher);
}

int main(void)
{
    quire_extra_keys extra = QUIRE_EXTRA_KEYS_INIT;
    printf("keys: %zu bytes\n", extra.size);
    use_plan();
    use_pool();
    use_cache();
    use_sched();
    return 0;
}

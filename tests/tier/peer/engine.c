#include "engine.h"

#include <time.h>

#define SECRET "known to all engines of the test"

static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {1};
static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                  .block_size = PEER_BLOCK_SIZE,
                                                  .num_kv_heads = 1,
                                                  .head_size = 64,
                                                  .dtype = QUIRE_DTYPE_FLOAT16}};

/* ---- opening --------------------------------------------------------------- */

void peer_engine_serve(peer_engine *e)
{
    quire_peer_server_config server = QUIRE_PEER_SERVER_CONFIG_INIT;
    server.address = "127.0.0.1:0";
    server.fingerprint = fingerprint;
    server.secret = SECRET;
    server.max_blocks = e->num_cpu;
    server.max_block_bytes = PEER_BLOCK_BYTES;
    assert_int_equal(quire_peer_server_open(&server, &e->server), QUIRE_OK);
}

static void open_peer(peer_engine *e, uint32_t i)
{
    char address[32];
    quire_tier_peer_config peer = QUIRE_TIER_PEER_CONFIG_INIT;
    (void)snprintf(address, sizeof address, "127.0.0.1:%u",
                   quire_peer_server_port(e->sources[i]->server));
    peer.server = address;
    peer.fingerprint = fingerprint;
    peer.secret = SECRET;
    peer.max_hints = e->max_hints;
    peer.event_keys = e->event_keys;
    peer.wait_ns = UINT64_C(10000000000);
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.breaker_strikes = 1000000; /* a new identity is tried at once */
    assert_int_equal(quire_tier_peer_open(&peer, &common, NULL, &e->tiers[i], &e->peers[i]),
                     QUIRE_OK);
    e->num_tiers++;
}

static void open_device(peer_engine *e)
{
    e->blocks = calloc(PEER_GPU_BLOCKS, PEER_BLOCK_BYTES);
    e->slots = aligned_alloc(4096, (size_t)e->num_cpu * PEER_BLOCK_BYTES);
    quire_device_host_config device = QUIRE_DEVICE_HOST_CONFIG_INIT;
    device.blocks = e->blocks;
    device.num_blocks = PEER_GPU_BLOCKS;
    device.slots = e->slots;
    device.num_slots = e->num_cpu;
    device.block_bytes = PEER_BLOCK_BYTES;
    assert_int_equal(quire_device_host_open(&device, NULL, &e->device), QUIRE_OK);
}

void peer_engine_set(peer_engine *e, quire_sched_config *config)
{
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    hashing.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hashing, NULL, &e->hasher), QUIRE_OK);
    config->hasher = e->hasher;
    config->cache->num_blocks = PEER_GPU_BLOCKS;
    config->cache->groups = &group;
    config->cache->num_groups = 1;
    config->cache->max_model_len = PEER_PROMPT + 15;
    config->max_num_seqs = 2;
}

void peer_engine_open(peer_engine *e)
{
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    peer_engine_set(e, &config);
    config.monitor = e->has_events ? &monitor : NULL;
    open_device(e);
    peer_engine_serve(e);
    for (uint32_t i = 0; i < PEER_MAX_SOURCES && e->sources[i] != NULL; i++)
        open_peer(e, i);
    quire_offload_config offload = QUIRE_OFFLOAD_CONFIG_INIT;
    quire_offload_tier tiers[PEER_MAX_SOURCES] = {{0}};
    for (uint32_t i = 0; i < e->num_tiers; i++)
        tiers[i].tier = e->tiers[i];
    offload.sched = &config;
    offload.num_cpu_blocks = e->num_cpu;
    offload.mode = e->mode;
    offload.device = &e->device;
    offload.memory = e->slots;
    offload.block_bytes = PEER_BLOCK_BYTES;
    offload.peer_server = e->server;
    offload.tiers = tiers;
    offload.num_tiers = e->num_tiers;
    offload.events = e->has_events ? QUIRE_ON : QUIRE_OFF;
    offload.learns = QUIRE_OFF; /* it loads whatever there is */
    assert_int_equal(quire_offload_create(&offload, NULL, &e->offload), QUIRE_OK);
    config.connector = quire_offload_connector(e->offload);
    assert_int_equal(quire_sched_create(&config, NULL, &e->sched), QUIRE_OK);
    assert_int_equal(quire_offload_bind(e->offload, e->sched), QUIRE_OK);
}

void peer_engine_close(peer_engine *e)
{
    assert_int_equal(e->num_wrong, 0);
    for (uint32_t i = 0; i < e->num_tiers; i++)
        assert_int_equal(quire_tier_close(e->tiers[i]), QUIRE_OK);
    quire_device_close(&e->device);
    quire_sched_destroy(e->sched);
    assert_int_equal(quire_offload_destroy(e->offload), QUIRE_OK);
    quire_peer_server_stats stats = QUIRE_PEER_SERVER_STATS_INIT;
    assert_int_equal(quire_peer_server_get_stats(e->server, &stats), QUIRE_OK);
    assert_int_equal(stats.offered, 0); /* with the offload all offers end */
    assert_int_equal(quire_peer_server_close(e->server), QUIRE_OK);
    quire_hasher_destroy(e->hasher);
    free(e->blocks);
    free(e->slots);
}

/* ---- the model ------------------------------------------------------------- */

/* What the model would compute for a block of a prompt. */
static uint64_t content_of(uint32_t prompt, uint32_t block)
{
    return prompt * UINT64_C(1000003) + block * UINT64_C(7919) + 1;
}

static void compute(peer_engine *e, const quire_step *step)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t prompt = (uint32_t)(uintptr_t)quire_sched_get_user(e->sched, step->reqs[i]);
        uint32_t known = step->num_computed_tokens[i] / PEER_BLOCK_SIZE;
        uint32_t end = (step->num_computed_tokens[i] + step->num_tokens[i]) / PEER_BLOCK_SIZE;
        quire_block_span span;
        quire_sched_get_blocks(e->sched, step->reqs[i], &span);
        for (uint32_t b = 0; b < end && b < PEER_PROMPT_BLOCKS; b++) {
            unsigned char *at = e->blocks + (size_t)span.ids[b] * PEER_BLOCK_BYTES;
            uint64_t right = content_of(prompt, b);
            if (b < known)
                e->num_wrong += memcmp(at + 512, &right, sizeof right) != 0;
            else
                memcpy(at + 512, &right, sizeof right);
        }
    }
}

static void note_offered(peer_engine *e)
{
    quire_peer_server_stats stats = QUIRE_PEER_SERVER_STATS_INIT;
    assert_int_equal(quire_peer_server_get_stats(e->server, &stats), QUIRE_OK);
    if (stats.offered < e->least_offered)
        e->least_offered = stats.offered;
}

static void make_step(peer_engine *e)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[2] = {7, 7};
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_sched_schedule(e->sched, &step), QUIRE_OK);
    note_offered(e);
    compute(e, step);
    assert_int_equal(quire_offload_poll(e->offload, step->step, &output), QUIRE_OK);
    assert_int_equal(quire_sched_update(e->sched, step->step, &output, &outputs), QUIRE_OK);
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        e->num_local += outputs->outputs[i].num_local_cached;
    note_offered(e);
}

void peer_engine_run(peer_engine *e, uint32_t p)
{
    quire_token prompt[PEER_PROMPT];
    for (uint32_t i = 0; i < PEER_PROMPT; i++)
        prompt[i] = (quire_token)(p * 1000 + i);
    quire_req req;
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {&p, sizeof p},
                                   .prompt = prompt,
                                   .num_prompt_tokens = PEER_PROMPT,
                                   .max_tokens = 1,
                                   .user = (void *)(uintptr_t)p};
    assert_int_equal(quire_sched_add(e->sched, &params, &req), QUIRE_OK);
    while (quire_sched_get_num_unfinished(e->sched) > 0 || quire_offload_has_pending(e->offload))
        make_step(e);
    assert_int_equal(quire_offload_check(e->offload), QUIRE_OK);
}

quire_offload_stats peer_engine_stats(const peer_engine *e)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    assert_int_equal(quire_offload_get_stats(e->offload, &stats), QUIRE_OK);
    return stats;
}

quire_peer_server_stats peer_engine_served(const peer_engine *e)
{
    quire_peer_server_stats stats = QUIRE_PEER_SERVER_STATS_INIT;
    assert_int_equal(quire_peer_server_get_stats(e->server, &stats), QUIRE_OK);
    return stats;
}

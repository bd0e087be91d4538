/* toy_engine.h - the engine of tiers.c and peers.c: a scheduler with 24 blocks, host memory behind
 * them, and a "model" that writes a number into each block that follows from the block's tokens,
 * and reads it again before it uses a block: a wrong byte anywhere would be seen (num_wrong).
 *
 *      open_memory(&e, num_cpu_blocks);   then a tier, a peer server
 *      open_engine(&e, tier, server);
 *      run_prompt(&e, 0);  ...
 *      close_engine(&e);                  the tier before, the server after it
 *      free_memory(&e);
 */
#ifndef TOY_ENGINE_H
#define TOY_ENGINE_H

#include <quire.h>
#include <quire/offload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BLOCK_SIZE = 16,
    BLOCK_BYTES = 4096,
    GPU_BLOCKS = 25, /* the null block is one of them */
    NUM_PROMPTS = 6,
    PROMPT_BLOCKS = 10,
    PROMPT = PROMPT_BLOCKS * BLOCK_SIZE + 1
};

typedef struct engine {
    quire_hasher *hasher;
    quire_sched *sched;
    quire_offload *offload;
    quire_device device;
    quire_host_memory *host;
    uint32_t num_cpu_blocks;
    unsigned char *blocks; /* what a GPU's memory would be */
    uint32_t num_local;    /* tokens found there */
    uint32_t num_wrong;
} engine;

static void must(int status, const char *what)
{
    if (status == QUIRE_OK)
        return;
    const char *why = quire_refusal();
    fprintf(stderr, "%s: %s\n", what, why[0] != 0 ? why : quire_strerror(status));
    exit(1);
}

/* ---- opening --------------------------------------------------------------- */

/* What decides what a block means: engines that share blocks must agree on it. */
static void set_fingerprint(unsigned char *fingerprint)
{
    quire_identity identity = QUIRE_IDENTITY_INIT;
    identity.model = (quire_bytes){"toy", 3};
    identity.weights_digest = (quire_bytes){"1", 1};
    identity.block_tokens = BLOCK_SIZE;
    identity.block_bytes = BLOCK_BYTES;
    must(quire_fingerprint(&identity, fingerprint), "fingerprint");
}

static void open_memory(engine *e, uint32_t num_cpu_blocks)
{
    quire_host_memory_config host = QUIRE_HOST_MEMORY_CONFIG_INIT;
    host.bytes = (uint64_t)num_cpu_blocks * BLOCK_BYTES;
    must(quire_host_memory_open(&host, &e->host), "host memory");
    e->num_cpu_blocks = num_cpu_blocks;
    e->blocks = calloc(GPU_BLOCKS, BLOCK_BYTES);
    quire_device_host_config device = QUIRE_DEVICE_HOST_CONFIG_INIT;
    device.blocks = e->blocks;
    device.num_blocks = GPU_BLOCKS;
    device.slots = quire_host_memory_get_info(e->host)->data;
    device.num_slots = num_cpu_blocks;
    device.block_bytes = BLOCK_BYTES;
    must(quire_device_host_open(&device, NULL, &e->device), "device");
}

/* tier: behind host memory; server: to which host memory is offered. Either may be NULL. */
static void open_engine(engine *e, quire_tier *tier, quire_peer_server *server)
{
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = BLOCK_SIZE,
                                                      .num_kv_heads = 1,
                                                      .head_size = 64,
                                                      .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    hashing.seed = (quire_bytes){"0", 1}; /* the same names in all engines, and after a restart */
    must(quire_hasher_create(&hashing, NULL, &e->hasher), "hasher");
    config.hasher = e->hasher;
    cache.num_blocks = GPU_BLOCKS;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = PROMPT + 15;
    config.max_num_seqs = 2;

    quire_offload_config offload = QUIRE_OFFLOAD_CONFIG_INIT;
    quire_offload_tier tiers[] = {{.tier = tier}};
    offload.sched = &config;
    offload.num_cpu_blocks = e->num_cpu_blocks;
    offload.device = &e->device;
    offload.memory = quire_host_memory_get_info(e->host)->data;
    offload.block_bytes = BLOCK_BYTES;
    offload.peer_server = server;
    offload.tiers = tiers;
    offload.num_tiers = tier != NULL ? 1 : 0;
    must(quire_offload_create(&offload, NULL, &e->offload), "offload");
    config.connector = quire_offload_connector(e->offload);
    must(quire_sched_create(&config, NULL, &e->sched), "scheduler");
    must(quire_offload_bind(e->offload, e->sched), "bind");
}

/* Tiers are closed before, a server after it. */
static void close_engine(engine *e)
{
    quire_device_close(&e->device);
    quire_sched_destroy(e->sched);
    must(quire_offload_destroy(e->offload), "offload");
    quire_hasher_destroy(e->hasher);
}

static void free_memory(engine *e)
{
    quire_host_memory_close(e->host);
    free(e->blocks);
}

/* ---- the model ------------------------------------------------------------- */

/* What the model would compute for a block of a prompt. */
static uint64_t content_of(uint32_t prompt, uint32_t block)
{
    return prompt * UINT64_C(1000003) + block * UINT64_C(7919) + 1;
}

static void compute(engine *e, const quire_step *step)
{
    long ns = 100000 + 50000 * (long)step->total_tokens; /* a model would take its time */
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t prompt = (uint32_t)(uintptr_t)quire_sched_get_user(e->sched, step->reqs[i]);
        uint32_t known = step->num_computed_tokens[i] / BLOCK_SIZE;
        uint32_t end = (step->num_computed_tokens[i] + step->num_tokens[i]) / BLOCK_SIZE;
        quire_block_span span;
        quire_sched_get_blocks(e->sched, step->reqs[i], &span);
        for (uint32_t b = 0; b < end && b < PROMPT_BLOCKS; b++) {
            unsigned char *at = e->blocks + (size_t)span.ids[b] * BLOCK_BYTES;
            uint64_t right = content_of(prompt, b);
            if (b < known)
                e->num_wrong += memcmp(at + 512, &right, sizeof right) != 0;
            else
                memcpy(at + 512, &right, sizeof right);
        }
    }
}

static void make_step(engine *e)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[2] = {7, 7};
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    must(quire_sched_schedule(e->sched, &step), "schedule");
    compute(e, step);
    must(quire_offload_poll(e->offload, step->step, &output), "poll");
    must(quire_sched_update(e->sched, step->step, &output, &outputs), "update");
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        e->num_local += outputs->outputs[i].num_local_cached;
}

static void run_prompt(engine *e, uint32_t p)
{
    quire_token prompt[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = (quire_token)(p * 1000 + i);
    quire_req req;
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {&p, sizeof p},
                                   .prompt = prompt,
                                   .num_prompt_tokens = PROMPT,
                                   .max_tokens = 1,
                                   .user = (void *)(uintptr_t)p};
    must(quire_sched_add(e->sched, &params, &req), "add");
    while (quire_sched_get_num_unfinished(e->sched) > 0 || quire_offload_has_pending(e->offload))
        make_step(e);
    must(quire_offload_check(e->offload), "check");
}

#endif

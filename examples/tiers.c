/* tiers.c - an engine whose KV blocks outlive its memory, and itself.
 *
 *      engine's memory, 24 blocks ──► host memory, 40 blocks ──► a file, 200 blocks
 *
 * Six prompts of ten blocks each go through an engine that has room for two. In the second round
 * what left the engine's memory is loaded from host memory or from the file; then everything is
 * closed and opened again, as by a restart, and the file still has it. The "model" writes a number
 * into each block that follows from the block's tokens, and reads it again before it uses a block:
 * a wrong byte anywhere would be seen.
 */
#include <quire.h>
#include <quire/offload.h>
#include <quire/tier_file.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BLOCK_SIZE = 16,
    BLOCK_BYTES = 4096,
    GPU_BLOCKS = 25, /* the null block is one of them */
    CPU_BLOCKS = 41,
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
    quire_tier *file;
    unsigned char *blocks; /* what a GPU's memory would be */
    uint32_t num_local;    /* tokens found there */
    uint32_t num_wrong;
} engine;

static void must(int status, const char *what, const char *message)
{
    if (status == QUIRE_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, message[0] != 0 ? message : quire_strerror(status));
    exit(1);
}

/* ---- opening --------------------------------------------------------------- */

static void open_file_tier(engine *e, const char *path, char *message)
{
    quire_host_memory_info host = quire_host_memory_get_info(e->host);
    quire_identity identity = QUIRE_IDENTITY_INIT;
    identity.model = (quire_bytes){"toy", 3};
    identity.weights_digest = (quire_bytes){"1", 1};
    identity.block_tokens = BLOCK_SIZE;
    identity.block_bytes = BLOCK_BYTES;
    quire_tier_file_config file = QUIRE_TIER_FILE_CONFIG_INIT;
    file.path = path;
    file.block_bytes = BLOCK_BYTES;
    file.capacity_bytes = 2 << 20;
    must(quire_fingerprint(&identity, file.fingerprint), "fingerprint", "");
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.memory = host.data;
    common.memory_bytes = host.bytes;
    must(quire_tier_file_open(&file, &common, NULL, &e->file, message, 256), "file tier", message);
}

static void open_memory(engine *e, char *message)
{
    quire_host_memory_config host = QUIRE_HOST_MEMORY_CONFIG_INIT;
    host.bytes = (uint64_t)CPU_BLOCKS * BLOCK_BYTES;
    must(quire_host_memory_open(&host, &e->host, message, 256), "host memory", message);
    e->blocks = calloc(GPU_BLOCKS, BLOCK_BYTES);
    quire_device_host_config device = QUIRE_DEVICE_HOST_CONFIG_INIT;
    device.blocks = e->blocks;
    device.num_blocks = GPU_BLOCKS;
    device.slots = quire_host_memory_get_info(e->host).data;
    device.num_slots = CPU_BLOCKS;
    device.block_bytes = BLOCK_BYTES;
    must(quire_device_host_open(&device, NULL, &e->device, message, 256), "device", message);
}

static void open_engine(engine *e, const char *path)
{
    char message[256] = "";
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = BLOCK_SIZE,
                                                      .num_kv_heads = 1,
                                                      .head_size = 64,
                                                      .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    hashing.seed = (quire_bytes){"0", 1}; /* the same names after a restart */
    must(quire_hasher_create(&hashing, NULL, &e->hasher), "hasher", "");
    config.hasher = e->hasher;
    config.cache.num_blocks = GPU_BLOCKS;
    config.cache.groups = &group;
    config.cache.num_groups = 1;
    config.cache.max_model_len = PROMPT + 15;
    config.max_num_seqs = 2;
    open_memory(e, message);
    open_file_tier(e, path, message);

    quire_offload_config offload = QUIRE_OFFLOAD_CONFIG_INIT;
    quire_offload_tier tiers[] = {{.tier = e->file}};
    offload.sched = &config;
    offload.num_cpu_blocks = CPU_BLOCKS;
    offload.device = &e->device;
    offload.memory = quire_host_memory_get_info(e->host).data;
    offload.block_bytes = BLOCK_BYTES;
    offload.tiers = tiers;
    offload.num_tiers = 1;
    must(quire_offload_create(&offload, NULL, &e->offload), "offload", "");
    config.connector = quire_offload_connector(e->offload);
    must(quire_sched_create(&config, NULL, &e->sched), "scheduler", "");
    must(quire_offload_bind(e->offload, e->sched), "bind", "");
}

static void close_engine(engine *e)
{
    must(quire_tier_close(e->file), "close", "");
    quire_device_close(&e->device);
    quire_sched_destroy(e->sched);
    must(quire_offload_destroy(e->offload), "offload", "");
    quire_host_memory_close(e->host);
    quire_hasher_destroy(e->hasher);
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
        uint32_t prompt = (uint32_t)(uintptr_t)quire_sched_user(e->sched, step->reqs[i]);
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
    quire_model_output output = {.sampled = sampled};
    must(quire_sched_schedule(e->sched, &step), "schedule", "");
    compute(e, step);
    must(quire_offload_poll(e->offload, step->step, &output), "poll", "");
    must(quire_sched_update(e->sched, step->step, &output, &outputs), "update", "");
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        e->num_local += outputs->outputs[i].num_local_cached;
}

/* The last of the round before comes first: of the six, two are still where each memory ends. */
static void run_prompts(engine *e, const char *what, bool is_reversed)
{
    quire_offload_stats before;
    quire_offload_stats after;
    must(quire_offload_get_stats(e->offload, &before), "stats", "");
    e->num_local = 0;
    for (uint32_t turn = 0; turn < NUM_PROMPTS; turn++) {
        uint32_t p = is_reversed ? NUM_PROMPTS - 1 - turn : turn;
        quire_token prompt[PROMPT];
        for (uint32_t i = 0; i < PROMPT; i++)
            prompt[i] = (quire_token)(p * 1000 + i);
        quire_req req;
        quire_request_params params = {.id = {&p, sizeof p},
                                       .prompt = prompt,
                                       .num_prompt_tokens = PROMPT,
                                       .max_tokens = 1,
                                       .user = (void *)(uintptr_t)p};
        must(quire_sched_add(e->sched, &params, &req), "add", "");
        while (quire_sched_num_unfinished(e->sched) > 0 || quire_offload_has_pending(e->offload))
            make_step(e);
    }
    must(quire_offload_get_stats(e->offload, &after), "stats", "");
    must(quire_offload_check(e->offload), "check", "");
    uint64_t from_file = after.tiers[0].hit_tokens - before.tiers[0].hit_tokens;
    uint64_t from_host = after.hit_tokens - before.hit_tokens - from_file;
    printf(
        "%-16s %3u tokens found in the engine's memory, %3llu in host memory, %3llu in the file\n",
        what, e->num_local, (unsigned long long)from_host, (unsigned long long)from_file);
}

int main(void)
{
    char path[] = "/tmp/quire-tiers-XXXXXX";
    int descriptor = mkstemp(path);
    if (descriptor < 0)
        return 1;
    (void)close(descriptor);
    (void)unlink(path);
    engine e = {0};
    open_engine(&e, path);
    run_prompts(&e, "first time:", false);
    run_prompts(&e, "again:", true);
    close_engine(&e);
    open_engine(&e, path);
    run_prompts(&e, "after a restart:", false);
    close_engine(&e);
    printf("wrong blocks: %u\n", e.num_wrong);
    (void)unlink(path);
    return e.num_wrong == 0 ? 0 : 1;
}

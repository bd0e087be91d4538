/* tiers.c - an engine whose KV blocks outlive its memory, and itself.
 *
 *      engine's memory, 24 blocks ──► host memory, 40 blocks ──► a file, 200 blocks
 *
 * Six prompts of ten blocks each go through an engine that has room for two. In the second round
 * what left the engine's memory is loaded from host memory or from the file; then everything is
 * closed and opened again, as by a restart, and the file still has it. toy_engine.h has the engine.
 */
#include "toy_engine.h"

#include <quire/tier_file.h>

#include <stdbool.h>
#include <unistd.h>

enum { CPU_BLOCKS = 41 };

static quire_tier *open_file_tier(const engine *e, const char *path)
{
    quire_tier *tier;
    const quire_host_memory_info *host = quire_host_memory_get_info(e->host);
    quire_tier_file_config file = QUIRE_TIER_FILE_CONFIG_INIT;
    file.path = path;
    file.block_bytes = BLOCK_BYTES;
    file.capacity_bytes = 2 << 20;
    set_fingerprint(file.fingerprint);
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.memory = host->data;
    common.memory_bytes = host->bytes;
    must(quire_tier_file_open(&file, &common, NULL, &tier), "file tier");
    return tier;
}

/* The last of the round before comes first: of the six, two are still where each memory ends. */
static void run_prompts(engine *e, const char *what, bool is_reversed)
{
    quire_offload_stats before = QUIRE_OFFLOAD_STATS_INIT;
    quire_offload_stats after = QUIRE_OFFLOAD_STATS_INIT;
    must(quire_offload_get_stats(e->offload, &before), "stats");
    e->num_local = 0;
    for (uint32_t turn = 0; turn < NUM_PROMPTS; turn++)
        run_prompt(e, is_reversed ? NUM_PROMPTS - 1 - turn : turn);
    must(quire_offload_get_stats(e->offload, &after), "stats");
    uint64_t from_file = after.tiers[0].hit_tokens - before.tiers[0].hit_tokens;
    uint64_t from_host = after.hit_tokens - before.hit_tokens - from_file;
    printf(
        "%-16s %3u tokens found in the engine's memory, %3llu in host memory, %3llu in the file\n",
        what, e->num_local, (unsigned long long)from_host, (unsigned long long)from_file);
}

/* An engine's life, from opening to closing. */
static void live(engine *e, const char *path, const char *what, bool has_second_round)
{
    open_memory(e, CPU_BLOCKS);
    quire_tier *file = open_file_tier(e, path);
    open_engine(e, file, NULL);
    run_prompts(e, what, false);
    if (has_second_round)
        run_prompts(e, "again:", true);
    must(quire_tier_close(file), "close");
    close_engine(e);
    free_memory(e);
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
    live(&e, path, "first time:", true);
    live(&e, path, "after a restart:", false);
    printf("wrong blocks: %u\n", e.num_wrong);
    (void)unlink(path);
    return e.num_wrong == 0 ? 0 : 1;
}

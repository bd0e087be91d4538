/* tier/file/file_life.c - one life of a file tier, for test_kill.py to end at any time.
 *
 *      file_life PATH uring|threads|shared SEED
 *
 * Opens, loads all keys and says how many came ("found N"), then stores, loads and removes at
 * random until its input ends, or it is killed. A block with bytes that were never stored under
 * its key ends it with status 1.
 */
#include "tier/file/file_kit.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIFE_SLOTS = 64, LIFE_BLOCK = 65536, LIFE_KEYS = 160, LIFE_IOS = 16 };

static uint64_t life_random = 1;

static uint32_t draw(uint32_t below)
{
    life_random ^= life_random << 13;
    life_random ^= life_random >> 7;
    life_random ^= life_random << 17;
    return (uint32_t)(life_random >> 20) % below;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Returns how many were DONE. */
static uint32_t run(quire_tier *tier, unsigned char *memory, quire_tier_op op, uint32_t first,
                    uint32_t n)
{
    quire_tier_io ios[LIFE_IOS];
    quire_tier_job *ended[1];
    quire_tier_job job = {.op = op, .num_ios = n, .ios = ios};
    uint32_t num_done = 0;
    for (uint32_t i = 0; i < n; i++) {
        ios[i] = (quire_tier_io){.key = kit_key((first + i) % LIFE_KEYS),
                                 .memory = memory + (size_t)i * LIFE_BLOCK,
                                 .bytes = LIFE_BLOCK};
        if (op == QUIRE_TIER_STORE)
            kit_fill(ios[i].memory, LIFE_BLOCK, (first + i) % LIFE_KEYS);
    }
    if (quire_tier_submit(tier, &job) != QUIRE_OK)
        return 0;
    while (quire_tier_poll(tier, ended, 1) == 0)
        poll(NULL, 0, 0);
    for (uint32_t i = 0; i < n; i++) {
        bool is_done = ios[i].status == QUIRE_TIER_DONE;
        num_done += is_done;
        if (op == QUIRE_TIER_LOAD && is_done &&
            !kit_is_filled(ios[i].memory, LIFE_BLOCK, (first + i) % LIFE_KEYS))
            die("a block", "came back with bytes that were never stored");
    }
    return num_done;
}

static quire_tier *open_tier(const char *path, const char *mode, const void *memory)
{
    quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    quire_tier *tier;
    config.path = path;
    config.block_bytes = LIFE_BLOCK;
    config.is_shared = strcmp(mode, "shared") == 0;
    config.capacity_bytes = (uint64_t)LIFE_SLOTS * (LIFE_BLOCK + 8192);
    config.uring = strcmp(mode, "threads") == 0 ? QUIRE_OFF : QUIRE_DEFAULT;
    config.checkpoint_ms = 20;
    common.memory = memory;
    common.memory_bytes = (size_t)LIFE_IOS * LIFE_BLOCK;
    if (quire_tier_file_open(&config, &common, NULL, &tier) != QUIRE_OK)
        die("not opened", quire_refusal());
    return tier;
}

int main(int argc, char **argv)
{
    unsigned char *memory;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    uint32_t num_found = 0;
    if (argc != 4 || posix_memalign((void **)&memory, 4096, (size_t)LIFE_IOS * LIFE_BLOCK) != 0)
        return 2;
    life_random = strtoull(argv[3], NULL, 0) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    quire_tier *tier = open_tier(argv[1], argv[2], memory);
    for (int tries = 0; tries < 5000 && run(tier, memory, QUIRE_TIER_STORE, 0, 1) == 0; tries++)
        poll(NULL, 0, 1); /* nothing is stored before all that was stored is known */
    for (uint32_t key = 0; key < LIFE_KEYS; key += LIFE_IOS)
        num_found += run(tier, memory, QUIRE_TIER_LOAD, key, LIFE_IOS);
    printf("found %u\n", num_found);
    fflush(stdout);
    while (poll(&input, 1, 0) == 0) {
        uint32_t dice = draw(100);
        quire_tier_op op = dice < 50   ? QUIRE_TIER_STORE
                           : dice < 97 ? QUIRE_TIER_LOAD
                                       : QUIRE_TIER_REMOVE;
        (void)run(tier, memory, op, draw(LIFE_KEYS), 1 + draw(LIFE_IOS));
    }
    int status = quire_tier_close(tier);
    free(memory);
    return status == QUIRE_OK ? 0 : 1;
}

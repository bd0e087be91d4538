/* object.c - Quire's side of bench/tier/object.py: blocks to an object store and back.
 *
 *      quire_bench_tier_object ENDPOINT BUCKET BLOCKS BYTES CONNECTIONS [unsigned] [CA_FILE]
 *
 * unsigned: without the SHA-256 of what is stored in the signature. CA_FILE: of an https endpoint.
 *
 * Reads "put", "get" and "remove" from its input. Each is one job of BLOCKS blocks through the
 * tier's thread. Prints the seconds that the job took. A put asks first whether the block is
 * stored, a get checks each block (header, CRC32C), as always. */
#include "bench.h"

#include <quire/tier_object.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BLOCKS = 1024, FIRST_OPTION = 6 };

static quire_tier_io ios[MAX_BLOCKS];

static void give_up(const char *what)
{
    fprintf(stderr, "quire_bench_tier_object: %s\n", what);
    exit(1);
}

static unsigned char *make_blocks(uint32_t blocks, uint32_t bytes)
{
    size_t total = (size_t)blocks * bytes;
    unsigned char *memory = malloc(total);
    if (memory == NULL)
        give_up("not enough memory");
    for (size_t i = 0; i < total; i++)
        memory[i] = (unsigned char)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < blocks; i++) {
        ios[i].memory = memory + (size_t)i * bytes;
        ios[i].bytes = bytes;
        ios[i].crc = quire_crc32c(0, ios[i].memory, bytes);
    }
    return memory;
}

static double run_pass(quire_tier *tier, quire_tier_op op, uint32_t blocks)
{
    quire_tier_job job = {.op = op, .ios = ios, .num_ios = blocks, .has_crcs = 1};
    quire_tier_job *ended;
    const struct timespec turn = {.tv_nsec = 50000}; /* the cores are the server's and the tier's */
    for (uint32_t i = 0; i < blocks; i++) {
        memcpy(ios[i].key.hash, &i, sizeof i);
        ios[i].status = QUIRE_TIER_PENDING;
    }
    uint64_t begin = bench_now_ns();
    if (quire_tier_submit(tier, &job) != QUIRE_OK)
        give_up("submit failed");
    while (quire_tier_poll(tier, &ended, 1) == 0)
        (void)nanosleep(&turn, NULL);
    double seconds = (double)(bench_now_ns() - begin) * 1e-9;
    for (uint32_t i = 0; i < blocks; i++)
        if (ios[i].status != QUIRE_TIER_DONE)
            give_up("a block was not stored, loaded or removed");
    return seconds;
}

static quire_tier *open_tier(int argc, char **words)
{
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {7};
    quire_tier_object_config config = QUIRE_TIER_OBJECT_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    quire_tier *tier;
    config.endpoint = words[1];
    config.bucket = words[2];
    config.fingerprint = fingerprint;
    config.connections = (uint32_t)strtoul(words[5], NULL, 10);
    config.access_key = "testing"; /* as boto3's, in object.py */
    config.secret_key = "testing";
    for (int i = FIRST_OPTION; i < argc; i++)
        if (strcmp(words[i], "unsigned") == 0)
            config.sign_payload = QUIRE_OFF;
        else
            config.tls_ca_file = words[i];
    config.wait_ns = UINT64_C(60000000000);
    config.stall_ns = UINT64_C(60000000000);
    common.deadline_ns = UINT64_C(600000000000);
    common.max_bytes_in_flight = UINT64_MAX / 2;
    if (quire_tier_object_open(&config, &common, NULL, &tier, NULL) != QUIRE_OK)
        give_up(quire_refusal());
    return tier;
}

int main(int argc, char **argv)
{
    char line[64];
    if (argc < FIRST_OPTION || argc > FIRST_OPTION + 2)
        give_up("ENDPOINT BUCKET BLOCKS BYTES CONNECTIONS [unsigned] [CA_FILE]");
    uint32_t blocks = (uint32_t)strtoul(argv[3], NULL, 10);
    uint32_t bytes = (uint32_t)strtoul(argv[4], NULL, 10);
    if (blocks == 0 || blocks > MAX_BLOCKS || bytes == 0)
        give_up("BLOCKS is not in 1..1024, or BYTES is 0");
    unsigned char *memory = make_blocks(blocks, bytes);
    quire_tier *tier = open_tier(argc, argv);
    while (fgets(line, sizeof line, stdin) != NULL) {
        quire_tier_op op = strcmp(line, "put\n") == 0   ? QUIRE_TIER_STORE
                           : strcmp(line, "get\n") == 0 ? QUIRE_TIER_LOAD
                                                        : QUIRE_TIER_REMOVE;
        printf("%.6f\n", run_pass(tier, op, blocks));
        (void)fflush(stdout);
    }
    (void)quire_tier_close(tier);
    free(memory);
    return 0;
}

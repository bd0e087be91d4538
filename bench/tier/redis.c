/* redis.c - blocks to a Redis server and back: hiredis and Quire's tier, in turns.
 *
 *      quire_bench_tier_redis [--port P] [--rounds 9] [--blocks 64] [--bytes 2097152]
 *                             [--depth 8] [--connections 3]
 *
 *      round   hiredis SET ─► Quire SET ─► hiredis GET ─► Quire GET     the same blocks
 *
 * One server on this machine (--port, or one that is started for it). hiredis: depth commands are
 * appended, then their replies read; it neither checks the bytes nor puts them where they belong.
 * Quire: one job through the tier's thread; each block is checked (header, CRC32C), as always.
 * Prints the median and the spread of the rounds, and of the ratios of each round. */
#include "bench.h"

#include <quire/tier_redis.h>

#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ROUNDS = 101, MAX_BLOCKS = 1024, KEY_BYTES = 32 };
enum { HIREDIS_SET, QUIRE_SET, HIREDIS_GET, QUIRE_GET, NUM_KINDS };

typedef struct setting {
    uint32_t port;
    uint32_t rounds;
    uint32_t blocks;
    uint32_t bytes;
    uint32_t depth;
    uint32_t connections;
} setting;

static setting o = {.rounds = 9, .blocks = 64, .bytes = 2u << 20, .depth = 8, .connections = 3};
static unsigned char *memory;
static quire_tier_io ios[MAX_BLOCKS];

static void give_up(const char *what)
{
    fprintf(stderr, "quire_bench_tier_redis: %s\n", what);
    exit(1);
}

/* ---- hiredis --------------------------------------------------------------- */

static void hiredis_pass(redisContext *context, bool is_set)
{
    for (uint32_t begin = 0; begin < o.blocks; begin += o.depth) {
        uint32_t end = begin + o.depth < o.blocks ? begin + o.depth : o.blocks;
        for (uint32_t i = begin; i < end; i++) {
            char key[KEY_BYTES];
            int key_bytes = snprintf(key, sizeof key, "hiredis:%u", i);
            const char *words[3] = {is_set ? "SET" : "GET", key,
                                    (const char *)memory + (size_t)i * o.bytes};
            const size_t lengths[3] = {3, (size_t)key_bytes, o.bytes};
            redisAppendCommandArgv(context, is_set ? 3 : 2, words, lengths);
        }
        for (uint32_t i = begin; i < end; i++) {
            redisReply *reply;
            if (redisGetReply(context, (void **)&reply) != REDIS_OK)
                give_up("hiredis: no reply");
            if (is_set ? reply->type != REDIS_REPLY_STATUS
                       : reply->type != REDIS_REPLY_STRING || reply->len != o.bytes)
                give_up("hiredis: another reply than expected");
            freeReplyObject(reply);
        }
    }
}

/* ---- Quire ----------------------------------------------------------------- */

static void quire_pass(quire_tier *tier, bool is_set)
{
    quire_tier_job job = {.op = is_set ? QUIRE_TIER_STORE : QUIRE_TIER_LOAD,
                          .num_ios = o.blocks,
                          .ios = ios,
                          .has_crcs = 1}; /* known since the block was copied from the GPU */
    quire_tier_job *ended;
    for (uint32_t i = 0; i < o.blocks; i++)
        ios[i].status = QUIRE_TIER_PENDING;
    if (quire_tier_submit(tier, &job) != QUIRE_OK)
        give_up("submit failed");
    while (quire_tier_poll(tier, &ended, 1) == 0) {
        struct timespec step = {.tv_nsec = 100000}; /* as a scheduler's steps, but shorter */
        nanosleep(&step, NULL);
    }
    for (uint32_t i = 0; i < o.blocks; i++)
        if (ios[i].status != QUIRE_TIER_DONE)
            give_up("a block did not arrive");
}

static quire_tier *open_tier(void)
{
    static unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    char address[32];
    const char *servers[1] = {address};
    quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    quire_tier *tier;
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", o.port);
    config.servers = servers;
    config.num_servers = 1;
    config.fingerprint = fingerprint;
    config.connections = o.connections;
    config.wait_ns = UINT64_C(5000000000);
    common.deadline_ns = UINT64_C(60000000000);
    common.max_bytes_in_flight = UINT64_MAX / 2;
    if (quire_tier_redis_open(&config, &common, NULL, &tier, NULL) != QUIRE_OK)
        give_up(quire_refusal());
    return tier;
}

/* ---- the server ------------------------------------------------------------ */

static pid_t start_server(void)
{
    char port[16];
    o.port = 16000 + (uint32_t)getpid() % 10000;
    (void)snprintf(port, sizeof port, "%u", o.port);
    pid_t pid = fork();
    if (pid == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL)
            _exit(126);
        execlp("redis-server", "redis-server", "--port", port, "--save", "", "--appendonly", "no",
               "--bind", "127.0.0.1", (char *)NULL);
        _exit(127);
    }
    return pid;
}

static redisContext *connect_hiredis(pid_t server)
{
    for (int i = 0; i < 500; i++) {
        redisContext *context = redisConnect("127.0.0.1", (int)o.port);
        if (context != NULL && context->err == 0)
            return context;
        redisFree(context);
        if (server > 0 && waitpid(server, NULL, WNOHANG) == server)
            give_up("redis-server did not start; apt install redis-server");
        usleep(20000);
    }
    give_up("no server answers");
    return NULL;
}

/* ---- numbers --------------------------------------------------------------- */

static int compare_reals(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static void print_row(const char *name, const double *values, const char *unit)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, o.rounds * sizeof *values);
    qsort(sorted, o.rounds, sizeof *sorted, compare_reals);
    printf("%-28s %6.2f (%.2f .. %.2f) %s\n", name, sorted[o.rounds / 2], sorted[0],
           sorted[o.rounds - 1], unit);
}

static void parse(int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *value;
        uint32_t max;
    } options[] = {
        {"--port", &o.port, 65535},          {"--rounds", &o.rounds, MAX_ROUNDS},
        {"--blocks", &o.blocks, MAX_BLOCKS}, {"--bytes", &o.bytes, 64u << 20},
        {"--depth", &o.depth, MAX_BLOCKS},   {"--connections", &o.connections, 64},
    };
    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;
        while (k < sizeof options / sizeof *options && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == sizeof options / sizeof *options || i + 1 == argc)
            give_up("--port --rounds --blocks --bytes --depth --connections, each with a number");
        unsigned long value = strtoul(argv[i + 1], NULL, 10);
        if (value == 0 || value > options[k].max)
            give_up("a number is out of its range");
        *options[k].value = (uint32_t)value;
    }
}

static void make_blocks(void)
{
    size_t total = (size_t)o.blocks * o.bytes;
    memory = aligned_alloc(4096, (total + 4095) / 4096 * 4096);
    if (memory == NULL)
        give_up("not enough memory");
    for (size_t i = 0; i < total; i++)
        memory[i] = (unsigned char)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < o.blocks; i++) {
        ios[i].memory = memory + (size_t)i * o.bytes;
        ios[i].bytes = o.bytes;
        ios[i].crc = quire_crc32c(0, ios[i].memory, o.bytes);
        memcpy(ios[i].key.hash, &i, sizeof i);
    }
}

int main(int argc, char **argv)
{
    static double rates[NUM_KINDS][MAX_ROUNDS];
    static double set_ratios[MAX_ROUNDS];
    static double get_ratios[MAX_ROUNDS];
    parse(argc, argv);
    make_blocks();
    pid_t server = o.port == 0 ? start_server() : 0;
    redisContext *context = connect_hiredis(server);
    quire_tier *tier = open_tier();
    printf("%u blocks of %u bytes; hiredis: %u in a pipeline, Quire: %u connections; %u rounds in "
           "turns\n",
           o.blocks, o.bytes, o.depth, o.connections, o.rounds);
    for (uint32_t round = 0; round <= o.rounds; round++) {
        for (int kind = 0; kind < NUM_KINDS; kind++) {
            bool is_set = kind == HIREDIS_SET || kind == QUIRE_SET;
            uint64_t begin = bench_now_ns();
            if (kind == HIREDIS_SET || kind == HIREDIS_GET)
                hiredis_pass(context, is_set);
            else
                quire_pass(tier, is_set);
            double seconds = (double)(bench_now_ns() - begin) * 1e-9;
            if (round > 0) /* the first is a warm-up */
                rates[kind][round - 1] = (double)o.blocks * o.bytes / seconds * 1e-9;
        }
    }
    for (uint32_t i = 0; i < o.rounds; i++) {
        set_ratios[i] = rates[QUIRE_SET][i] / rates[HIREDIS_SET][i];
        get_ratios[i] = rates[QUIRE_GET][i] / rates[HIREDIS_GET][i];
    }
    print_row("hiredis SET", rates[HIREDIS_SET], "GB/s");
    print_row("Quire   SET", rates[QUIRE_SET], "GB/s");
    print_row("ratio of each round", set_ratios, "(at least 2.5)");
    print_row("hiredis GET", rates[HIREDIS_GET], "GB/s");
    print_row("Quire   GET", rates[QUIRE_GET], "GB/s");
    print_row("ratio of each round", get_ratios, "(at least 1.2)");
    redisFree(context);
    quire_tier_close(tier);
    free(memory);
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    return 0;
}

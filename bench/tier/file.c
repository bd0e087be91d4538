/* bench/tier/file.c - the private file tier, block after block at random: GB/s.
 *
 *      quire_bench_tier_file --path FILE --bytes N --block N --depth N --seconds N read|write
 *
 * tier_file.py runs it beside fio, in one run, in the same folder with the same sizes and depth.
 * What is written has its CRC computed, and what is read its CRC checked, as always. */
#include <quire/tier_file.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_JOBS = 256 };

typedef struct bench {
    const char *path;
    uint64_t bytes;
    uint32_t block_bytes;
    uint32_t depth;
    double seconds;
    quire_tier *tier;
    unsigned char *memory;
    uint32_t num_jobs;
    uint32_t num_keys; /* in the file */
    uint64_t next_key; /* that was never stored */
    uint64_t random;
    quire_tier_job jobs[MAX_JOBS];
    quire_tier_io ios[MAX_JOBS];
} bench;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void say_and_exit(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static quire_tier_key key_of(uint64_t number)
{
    quire_tier_key key;
    quire_tier_key_of((quire_bytes){&number, sizeof number}, 0, 0, &key);
    return key;
}

static uint64_t next_random(bench *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return b->random;
}

static void submit(bench *b, uint32_t job, quire_tier_op op, uint64_t key)
{
    b->ios[job] = (quire_tier_io){.key = key_of(key),
                                  .memory = b->memory + (size_t)job * b->block_bytes,
                                  .bytes = b->block_bytes};
    b->jobs[job] = (quire_tier_job){.op = op, .num_ios = 1, .ios = &b->ios[job]};
    if (quire_tier_submit(b->tier, &b->jobs[job]) != QUIRE_OK)
        say_and_exit("submit", "refused");
}

/* Runs jobs, num_jobs at a time, until `until` seconds or `count` of them; returns how many. */
static uint64_t run(bench *b, quire_tier_op op, uint64_t count, double until)
{
    uint64_t begun = 0;
    uint64_t ended = 0;
    for (; begun < b->num_jobs && begun < count; begun++)
        submit(b, (uint32_t)begun, op,
               op == QUIRE_TIER_STORE ? b->next_key++ : next_random(b) % b->num_keys);
    while (ended < begun) {
        quire_tier_job *done[MAX_JOBS];
        uint32_t n = quire_tier_poll(b->tier, done, MAX_JOBS);
        if (n == 0)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        for (uint32_t i = 0; i < n; i++) {
            if (done[i]->ios[0].status != QUIRE_TIER_DONE)
                say_and_exit("a block", "was not stored or loaded");
            ended++;
            if (begun >= count || now_s() >= until)
                continue;
            submit(b, (uint32_t)(done[i] - b->jobs), op,
                   op == QUIRE_TIER_STORE ? b->next_key++ : next_random(b) % b->num_keys);
            begun++;
        }
    }
    return ended;
}

static void open_tier(bench *b)
{
    quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    size_t memory_bytes = (size_t)b->num_jobs * b->block_bytes;
    b->memory =
        mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->memory == MAP_FAILED)
        say_and_exit("memory", "there is none");
    (void)madvise(b->memory, memory_bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < memory_bytes; i++)
        b->memory[i] = (unsigned char)(i * 2654435761u >> 8);
    config.path = b->path;
    config.capacity_bytes = b->bytes;
    config.block_bytes = b->block_bytes;
    config.depth = b->depth;
    common.memory = b->memory;
    common.memory_bytes = memory_bytes;
    common.max_bytes_in_flight = UINT64_C(1) << 40;
    common.deadline_ns = UINT64_C(60000000000);
    if (quire_tier_file_open(&config, &common, NULL, &b->tier) != QUIRE_OK)
        say_and_exit(b->path, quire_refusal());
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    quire_tier_get_stats(b->tier, &stats);
    b->num_keys = (uint32_t)stats.usage.total;
}

/* All slots hold something, and the next to go are at random, not one after the other. */
static void fill(bench *b)
{
    run(b, QUIRE_TIER_STORE, b->num_keys, 1e18);
    for (uint32_t i = 0; i < 4 * b->num_keys; i++) {
        quire_tier_key key = key_of(next_random(b) % b->num_keys);
        quire_tier_touch(b->tier, &key, 1);
    }
}

static void read_arguments(bench *b, int argc, char **argv, quire_tier_op *op)
{
    *b = (bench){.bytes = UINT64_C(2) << 30,
                 .block_bytes = 2 << 20,
                 .depth = 16,
                 .seconds = 5,
                 .random = UINT64_C(88172645463325252)};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--path") == 0)
            b->path = argv[++i];
        else if (strcmp(argv[i], "--bytes") == 0 && ++i < argc)
            b->bytes = strtoull(value, NULL, 0);
        else if (strcmp(argv[i], "--block") == 0 && ++i < argc)
            b->block_bytes = (uint32_t)strtoul(value, NULL, 0);
        else if (strcmp(argv[i], "--depth") == 0 && ++i < argc)
            b->depth = (uint32_t)strtoul(value, NULL, 0);
        else if (strcmp(argv[i], "--seconds") == 0 && ++i < argc)
            b->seconds = strtod(value, NULL);
        else if (strcmp(argv[i], "read") == 0 || strcmp(argv[i], "write") == 0)
            *op = argv[i][0] == 'r' ? QUIRE_TIER_LOAD : QUIRE_TIER_STORE;
        else
            say_and_exit(argv[i], "is no argument of this program");
    }
    b->num_jobs = 4 * b->depth < MAX_JOBS ? 4 * b->depth : MAX_JOBS;
    if (b->path == NULL)
        say_and_exit("--path", "is missing");
}

int main(int argc, char **argv)
{
    static bench b;
    quire_tier_op op = QUIRE_TIER_LOAD;
    read_arguments(&b, argc, argv, &op);
    open_tier(&b);
    fill(&b);
    double start = now_s();
    uint64_t num_blocks = run(&b, op, UINT64_MAX, start + b.seconds);
    double seconds = now_s() - start;
    printf("%.4f\n", (double)num_blocks * b.block_bytes / seconds * 1e-9);
    quire_tier_close(b.tier);
    (void)unlink(b.path);
    return 0;
}

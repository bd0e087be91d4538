/* host.c - blocks between the engine's memory and host slots, beside plain memcpy.
 *
 *      memcpy    the blocks into slots, one after the other, on this thread
 *      store     the same through the host device, with their CRC32C
 *      memcpy    the slots into blocks
 *      load      the same through the device
 *
 * Blocks and slots are paired at random, and together larger than the processor's caches. The four
 * alternate, so that what else the machine does falls on all alike; each round gives a ratio to its
 * memcpy, and the table has the median of the rounds and their 10th and 90th percentile.
 */
#include "bench.h"

#include <quire/device.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 1001, COPIES_OF_JOB = 16, MAX_JOBS = 4096 };

typedef enum side { COPY_OUT, STORE, COPY_IN, LOAD, NUM_SIDES } side;

static const char *const NAMES[] = {"memcpy", "store", "memcpy", "load"};

typedef struct world {
    uint64_t block_bytes;
    uint32_t num_blocks;
    unsigned char *blocks;
    unsigned char *slots;
    quire_device_copy *copies; /* num_blocks */
    quire_device device;
    quire_device_job jobs[MAX_JOBS];
    uint32_t num_jobs;
} world;

static void *open_memory(uint64_t bytes)
{
    quire_host_memory *memory = NULL;
    quire_host_memory_config config = QUIRE_HOST_MEMORY_CONFIG_INIT;
    config.bytes = bytes;
    int status = quire_host_memory_open(&config, &memory);
    bench_must(status, status == QUIRE_OK ? "quire_host_memory_open" : quire_refusal());
    return quire_host_memory_get_info(memory)->data;
}

static void build(world *w, uint64_t mib)
{
    uint64_t bytes = mib << 20;
    uint64_t random = 1;
    w->num_blocks = (uint32_t)(bytes / w->block_bytes);
    w->blocks = open_memory(bytes);
    w->slots = open_memory(bytes);
    uint32_t *order = bench_memory(w->num_blocks * sizeof *order);
    w->copies = bench_memory(w->num_blocks * sizeof *w->copies);
    for (uint32_t i = 0; i < w->num_blocks; i++)
        order[i] = i;
    bench_shuffle(order, w->num_blocks, 7);
    for (uint32_t i = 0; i < w->num_blocks; i++)
        w->copies[i] = (quire_device_copy){.block = order[i], .slot = i};
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = bench_random(&random);
        memcpy(w->blocks + i, &word, sizeof word);
    }
    w->num_jobs = (w->num_blocks + COPIES_OF_JOB - 1) / COPIES_OF_JOB;
    quire_device_host_config config = QUIRE_DEVICE_HOST_CONFIG_INIT;
    config.blocks = w->blocks;
    config.slots = w->slots;
    config.num_blocks = w->num_blocks;
    config.num_slots = w->num_blocks;
    config.block_bytes = w->block_bytes;
    config.max_jobs = MAX_JOBS;
    bench_must(quire_device_host_open(&config, NULL, &w->device), "host device");
}

static void copy_plain(world *w, side s)
{
    for (uint32_t i = 0; i < w->num_blocks; i++) {
        unsigned char *slot = w->slots + w->copies[i].slot * w->block_bytes;
        unsigned char *block = w->blocks + w->copies[i].block * w->block_bytes;
        memcpy(s == COPY_OUT ? slot : block, s == COPY_OUT ? block : slot, w->block_bytes);
    }
}

static void copy_by_device(world *w, quire_device_op op)
{
    uint32_t num_ended = 0;
    for (uint32_t i = 0; i < w->num_jobs; i++) {
        uint32_t first = i * COPIES_OF_JOB;
        uint32_t left = w->num_blocks - first;
        w->jobs[i] = (quire_device_job){.op = op,
                                        .copies = w->copies + first,
                                        .num_copies = left < COPIES_OF_JOB ? left : COPIES_OF_JOB};
        bench_must(w->device.ops->submit(w->device.self, &w->jobs[i]), "submit");
    }
    while (num_ended < w->num_jobs) {
        quire_device_job *done[64];
        uint32_t count = w->device.ops->poll(w->device.self, done, 64);
        for (uint32_t i = 0; i < count; i++)
            bench_must(done[i]->status, "copy");
        num_ended += count;
        if (count == 0)
            nanosleep(&(struct timespec){.tv_nsec = 50000},
                      NULL); /* as a scheduler has its steps */
    }
}

static double process_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

typedef struct cost {
    double wall_ns;
    double cpu_ns; /* of all threads: what is left when others use the machine too */
} cost;

static cost time_side(world *w, side s)
{
    double cpu_ns = process_ns();
    uint64_t start_ns = bench_now_ns();
    if (s == COPY_OUT || s == COPY_IN)
        copy_plain(w, s);
    else
        copy_by_device(w, s == STORE ? QUIRE_DEVICE_STORE : QUIRE_DEVICE_LOAD);
    uint64_t wall_ns = bench_now_ns() - start_ns;
    return (cost){(double)wall_ns, process_ns() - cpu_ns};
}

/* ---- rounds ---------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double part_of(double *values, uint32_t n, uint32_t percent)
{
    qsort(values, n, sizeof *values, compare);
    return values[(size_t)(n - 1) * percent / 100];
}

static void print_ratio(const char *name, double *ratios, uint32_t n)
{
    printf("   %s x %.3f (%.3f .. %.3f)", name, part_of(ratios, n, 50), part_of(ratios, n, 10),
           part_of(ratios, n, 90));
}

static void measure(world *w, uint32_t num_rounds)
{
    static double speeds[NUM_SIDES][MAX_ROUNDS];
    static double walls[NUM_SIDES][MAX_ROUNDS];
    static double cpus[NUM_SIDES][MAX_ROUNDS];
    double bytes = (double)w->num_blocks * (double)w->block_bytes;
    for (uint32_t r = 0; r <= num_rounds; r++) { /* the first is to warm up */
        cost costs[NUM_SIDES];
        for (uint32_t s = 0; s < NUM_SIDES; s++)
            costs[s] = time_side(w, (side)s);
        for (uint32_t s = 0; r > 0 && s < NUM_SIDES; s++) {
            speeds[s][r - 1] = bytes / costs[s].wall_ns;
            const cost *plain = &costs[s <= STORE ? COPY_OUT : COPY_IN];
            walls[s][r - 1] = plain->wall_ns / costs[s].wall_ns;
            cpus[s][r - 1] = plain->cpu_ns / costs[s].cpu_ns;
        }
    }
    for (uint32_t s = 0; s < NUM_SIDES; s++) {
        printf("%-7s %6.2f GB/s", NAMES[s], part_of(speeds[s], num_rounds, 50));
        print_ratio("time", walls[s], num_rounds);
        print_ratio("processor time", cpus[s], num_rounds);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {{"rounds", required_argument, NULL, 'r'},
                                            {"block", required_argument, NULL, 'b'},
                                            {"mib", required_argument, NULL, 'm'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    static world w = {.block_bytes = 2 << 20};
    uint64_t mib = 1024;
    uint32_t num_rounds = 31;
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        switch (c) {
        case 'r':
            num_rounds = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'b':
            w.block_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            mib = strtoull(optarg, NULL, 10);
            break;
        default:
            printf("usage: %s [--rounds N] [--block BYTES] [--mib N]\n"
                   "Copies between engine memory and host slots, beside memcpy.\n",
                   argv[0]);
            return c == 'h' ? 0 : 2;
        }
    }
    if (num_rounds < 1 || num_rounds > MAX_ROUNDS || mib < 1 || mib > 65536 ||
        w.block_bytes < 512 || w.block_bytes > mib << 20 ||
        (mib << 20) / w.block_bytes > COPIES_OF_JOB * MAX_JOBS) {
        fprintf(stderr,
                "--rounds is 1 to %d, --mib 1 to 65536, --block 512 to all of that, and at "
                "most %d blocks\n",
                MAX_ROUNDS, COPIES_OF_JOB * MAX_JOBS);
        return 2;
    }
    build(&w, mib);
    printf("%u blocks of %llu bytes, %u rounds; times memcpy: above 1 is faster\n\n", w.num_blocks,
           (unsigned long long)w.block_bytes, num_rounds);
    measure(&w, num_rounds);
    quire_device_close(&w.device);
    return 0;
}

/* worker_file.c - prefixes from the file tier, while an engine makes steps, beside plain reads.
 *
 *      plain    THREADS threads read the tier's file from its beginning: pread of the next value
 *      steps    in each step: match for all requests that wait, plan, submit; the engine computes
 *               (sleeps); poll, report, results. A request waits, loads its prefix from the file
 *               into host slots and from there into the engine, and ends; then another one begins.
 *
 * The file has three times the blocks of the host pool, and prefixes are asked for one after the
 * other: none is in the host pool when it is asked for. Both sides bypass the page cache where the
 * file system allows it. They alternate; each round gives a ratio to its plain reads. */
#define _GNU_SOURCE /* O_DIRECT */
#include "worker.h"

#include <quire/tier_file.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 16, MOST_REQUESTS = 64, NUM_STEPS = 2 };
static const double GOAL = 0.8;
static const uint32_t STEPS_MS[NUM_STEPS] = {20, 100};
static const uint64_t VALUES[] = {2 << 20, 256 << 10};
enum { NUM_VALUES = sizeof VALUES / sizeof *VALUES };

typedef struct file_request {
    quire_req req;
    uint64_t prefix;
    bool is_loading;
} file_request;

typedef struct file_bench {
    const worker_options *options;
    char path[512];
    worker_kit kit;
    uint32_t num_prefix;   /* blocks of a prefix */
    uint32_t num_prefixes; /* in the file */
    quire_host_memory *memory[2];
    file_request requests[MOST_REQUESTS];
    uint64_t next_prefix;
    uint64_t num_missing; /* blocks that were asked for and did not come */
    bool is_direct;
} file_bench;

static void fail(const char *what)
{
    fprintf(stderr, "quire_bench_tier_worker: %s\n", what);
    exit(1);
}

static void sleep_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    (void)nanosleep(&t, NULL);
}

/* ---- opening --------------------------------------------------------------- */

static void *open_memory(file_bench *b, uint32_t which, uint64_t bytes)
{
    quire_host_memory_config config = QUIRE_HOST_MEMORY_CONFIG_INIT;
    config.bytes = bytes;
    int status = quire_host_memory_open(&config, &b->memory[which]);
    bench_must(status, status == QUIRE_OK ? "" : quire_refusal());
    return quire_host_memory_get_info(b->memory[which])->data;
}

static void open_device(file_bench *b)
{
    worker_kit *kit = &b->kit;
    quire_device_host_config config = QUIRE_DEVICE_HOST_CONFIG_INIT;
    config.num_blocks = kit->num_blocks;
    config.num_slots = kit->num_slots;
    config.block_bytes = kit->block_bytes;
    config.blocks = open_memory(b, 0, kit->num_blocks * kit->block_bytes);
    config.slots = kit->ranks[0].slots = open_memory(b, 1, kit->num_slots * kit->block_bytes);
    int status = quire_device_host_open(&config, NULL, &kit->ranks[0].device);
    bench_must(status, status == QUIRE_OK ? "" : quire_refusal());
}

static void open_tier(file_bench *b)
{
    worker_kit *kit = &b->kit;
    quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    uint64_t blocks = (uint64_t)b->num_prefixes * b->num_prefix;
    config.path = b->path;
    config.block_bytes = (uint32_t)kit->block_bytes;
    config.depth = b->options->depth;
    config.capacity_bytes = (blocks + blocks / 16 + 16) * (kit->block_bytes + 4096) + (1 << 20);
    common.memory = kit->ranks[0].slots;
    common.memory_bytes = kit->num_slots * kit->block_bytes;
    common.deadline_ns = UINT64_C(60000000000);
    int status = quire_tier_file_open(&config, &common, NULL, &kit->ranks[0].tier);
    bench_must(status, status == QUIRE_OK ? "" : quire_refusal());
}

static void open_bench(file_bench *b, const worker_options *options, uint64_t value_bytes)
{
    worker_kit *kit = &b->kit;
    *b = (file_bench){.options = options};
    (void)snprintf(b->path, sizeof b->path, "%s/quire-bench-%d", options->folder, (int)getpid());
    uint64_t prefix_bytes = (uint64_t)options->prefix_mib << 20;
    b->num_prefix = (uint32_t)(prefix_bytes / value_bytes);
    kit->num_ranks = 1;
    kit->block_bytes = value_bytes;
    kit->most_blocks = b->num_prefix;
    /* Of the engine: room for all requests, and for stores, which may hold three quarters of it. */
    kit->num_blocks = (options->requests + 1) * b->num_prefix + 2;
    /* Half of the slots may be loading at a time: that half is one request's prefix more than all
     * requests need. */
    kit->num_slots = 2 * (options->requests + 1) * b->num_prefix + 1;
    b->num_prefixes = 3 * (kit->num_slots / b->num_prefix);
    open_device(b);
    open_tier(b);
    worker_kit_open(kit);
}

static void close_bench(file_bench *b)
{
    worker_kit_close(&b->kit);
    quire_host_memory_close(b->memory[0]);
    quire_host_memory_close(b->memory[1]);
    (void)unlink(b->path);
}

/* ---- the file -------------------------------------------------------------- */

static uint64_t content_of(const file_bench *b, uint64_t prefix)
{
    return 1 + prefix % b->num_prefixes * b->num_prefix;
}

/* Each prefix is computed, goes to the host pool and from there to the file. */
static void fill(file_bench *b)
{
    worker_kit *kit = &b->kit;
    quire_block *blocks = bench_memory(b->num_prefix * sizeof *blocks);
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    for (uint32_t i = 0; i < b->num_prefix; i++)
        blocks[i] = i + 1;
    for (uint32_t prefix = 0; prefix < b->num_prefixes; prefix++) {
        quire_req req;
        quire_block_span span = {blocks, b->num_prefix};
        bench_must(quire_planner_add(kit->planner, &req), "quire_planner_add");
        quire_planner_request request =
            worker_kit_request(kit, req, content_of(b, prefix), b->num_prefix);
        int status;
        do {
            status = quire_planner_computed(kit->planner, &request, &span,
                                            b->num_prefix * WORKER_TOKENS);
            worker_kit_plan(kit);
            sleep_ns(1000000);
            worker_kit_poll(kit);
        } while (status == QUIRE_RETRY || quire_planner_has_pending(kit->planner));
        bench_must(quire_planner_finished(kit->planner, req), "quire_planner_finished");
    }
    free(blocks);
    bench_must(quire_planner_get_stats(kit->planner, &stats), "quire_planner_get_stats");
    if (stats.tiers[0].stored_blocks < (uint64_t)b->num_prefixes * b->num_prefix)
        fail("the file has not got all blocks");
}

/* ---- plain reads ----------------------------------------------------------- */

typedef struct reader {
    pthread_t thread;
    const file_bench *bench;
    int fd;
    uint64_t num_values;    /* of the file */
    _Atomic uint64_t *next; /* of all readers */
    uint64_t until_ns;
    uint64_t num_read;
} reader;

/* Into the engine's memory, one block after the other, as a loader would: not into a few buffers
 * that stay in the processor's caches. */
static void *run_reader(void *user)
{
    reader *r = user;
    const worker_kit *kit = &r->bench->kit;
    unsigned char *blocks = quire_host_memory_get_info(r->bench->memory[0])->data;
    while (bench_now_ns() < r->until_ns) {
        uint64_t number = atomic_fetch_add(r->next, 1);
        void *block = blocks + number % kit->num_blocks * kit->block_bytes;
        off_t at = (off_t)(number % r->num_values * kit->block_bytes);
        if (pread(r->fd, block, kit->block_bytes, at) != (ssize_t)kit->block_bytes)
            fail("a plain read");
        r->num_read++;
    }
    return NULL;
}

static double read_plainly(file_bench *b)
{
    reader readers[THREADS];
    _Atomic uint64_t next = 0;
    int fd = open(b->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    b->is_direct = fd >= 0;
    if (fd < 0)
        fd = open(b->path, O_RDONLY | O_CLOEXEC);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    if (end < (off_t)b->kit.block_bytes)
        fail("the tier's file cannot be read");
    if (!b->is_direct)
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    uint64_t begin_ns = bench_now_ns();
    uint64_t num_read = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        readers[i] = (reader){.bench = b,
                              .fd = fd,
                              .next = &next,
                              .num_values = (uint64_t)end / b->kit.block_bytes,
                              .until_ns = begin_ns + b->options->seconds * UINT64_C(1000000000)};
        if (pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]) != 0)
            fail("a thread");
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        (void)pthread_join(readers[i].thread, NULL);
        num_read += readers[i].num_read;
    }
    double rate = (double)(num_read * b->kit.block_bytes) / (double)(bench_now_ns() - begin_ns);
    (void)close(fd);
    return rate;
}

/* ---- steps ----------------------------------------------------------------- */

static void begin_request(file_bench *b, file_request *r)
{
    *r = (file_request){.prefix = b->next_prefix++};
    bench_must(quire_planner_add(b->kit.planner, &r->req), "quire_planner_add");
}

/* A request that waits is asked about in each step, as a scheduler does it. */
static void ask(file_bench *b, file_request *r, uint32_t place)
{
    worker_kit *kit = &b->kit;
    quire_block *blocks = bench_memory(b->num_prefix * sizeof *blocks);
    quire_block_span span = {blocks, b->num_prefix};
    uint32_t num_external = 0;
    quire_planner_request request =
        worker_kit_request(kit, r->req, content_of(b, r->prefix), b->num_prefix);
    int status = quire_planner_match(kit->planner, &request, 0, &num_external);
    if (status == QUIRE_OK) {
        for (uint32_t i = 0; i < b->num_prefix; i++)
            blocks[i] = 1 + place * b->num_prefix + i;
        b->num_missing += b->num_prefix - num_external / WORKER_TOKENS;
        bench_must(quire_planner_allocated(kit->planner, r->req, &span, num_external),
                   "quire_planner_allocated");
        r->is_loading = true;
    } else if (status != QUIRE_RETRY) {
        bench_must(status, "quire_planner_match");
    }
    free(blocks);
}

/* Returns the blocks that have arrived in the engine. */
static uint64_t run_step(file_bench *b, uint32_t step_ms)
{
    worker_kit *kit = &b->kit;
    uint64_t until_ns = bench_now_ns() + step_ms * UINT64_C(1000000);
    uint64_t num_arrived = 0;
    for (uint32_t i = 0; i < b->options->requests; i++)
        if (!b->requests[i].is_loading)
            ask(b, &b->requests[i], i);
    worker_kit_plan(kit);
    uint64_t now_ns = bench_now_ns();
    sleep_ns(until_ns > now_ns ? until_ns - now_ns : 0);
    worker_kit_poll(kit);
    bench_must(kit->results.num_failed == 0 ? QUIRE_OK : QUIRE_E_SYSTEM, "a load");
    for (uint32_t i = 0; i < kit->results.num_loaded; i++)
        for (uint32_t k = 0; k < b->options->requests; k++)
            if (b->requests[k].req == kit->results.loaded[i]) {
                num_arrived += b->num_prefix;
                bench_must(quire_planner_finished(kit->planner, b->requests[k].req),
                           "quire_planner_finished");
                begin_request(b, &b->requests[k]);
                break;
            }
    return num_arrived;
}

static double load_in_steps(file_bench *b, uint32_t step_ms)
{
    uint64_t num_arrived = 0;
    for (uint32_t i = 0; i < b->options->requests; i++)
        begin_request(b, &b->requests[i]);
    while (num_arrived == 0) /* until the first has arrived: not measured */
        num_arrived = run_step(b, step_ms);
    num_arrived = 0;
    uint64_t begin_ns = bench_now_ns();
    uint64_t until_ns = begin_ns + b->options->seconds * UINT64_C(1000000000);
    while (bench_now_ns() < until_ns)
        num_arrived += run_step(b, step_ms);
    double rate = (double)(num_arrived * b->kit.block_bytes) / (double)(bench_now_ns() - begin_ns);
    for (uint32_t i = 0; i < b->options->requests; i++)
        bench_must(quire_planner_finished(b->kit.planner, b->requests[i].req),
                   "quire_planner_finished");
    while (quire_planner_has_pending(b->kit.planner)) {
        worker_kit_plan(&b->kit);
        worker_kit_poll(&b->kit);
    }
    return rate;
}

/* ---- rounds ---------------------------------------------------------------- */

static bool show(const file_bench *b, uint32_t step_ms, worker_values *plain, worker_values *rates,
                 worker_values *ratios)
{
    double median = worker_values_at(ratios, 50);
    printf("%5llu KiB  steps of %3u ms  plain %5.2f  Quire %5.2f GB/s  ratio %.3f (%.3f .. "
           "%.3f)%s%s\n",
           (unsigned long long)(b->kit.block_bytes >> 10), step_ms, worker_values_at(plain, 50),
           worker_values_at(rates, 50), median, worker_values_at(ratios, 0),
           worker_values_at(ratios, 100), b->is_direct ? "" : "  through the page cache",
           median < GOAL ? "  MISSED" : "");
    (void)fflush(stdout);
    return median >= GOAL;
}

static bool run_values(const worker_options *options, uint64_t value_bytes)
{
    static file_bench b;
    static worker_values plain[NUM_STEPS];
    static worker_values rates[NUM_STEPS];
    static worker_values ratios[NUM_STEPS];
    bool are_met = true;
    memset(plain, 0, sizeof plain);
    memset(rates, 0, sizeof rates);
    memset(ratios, 0, sizeof ratios);
    open_bench(&b, options, value_bytes);
    fill(&b);
    for (uint32_t r = 0; r < options->rounds; r++)
        for (uint32_t s = 0; s < NUM_STEPS; s++) {
            double of_disk = read_plainly(&b);
            double rate = load_in_steps(&b, STEPS_MS[s]);
            worker_values_add(&plain[s], of_disk);
            worker_values_add(&rates[s], rate);
            worker_values_add(&ratios[s], rate / of_disk);
        }
    for (uint32_t s = 0; s < NUM_STEPS; s++)
        are_met = show(&b, STEPS_MS[s], &plain[s], &rates[s], &ratios[s]) && are_met;
    if (b.num_missing > 0)
        printf("%llu blocks were asked for and not found\n", (unsigned long long)b.num_missing);
    are_met = are_met && b.num_missing == 0;
    close_bench(&b);
    return are_met;
}

int worker_bench_file(const worker_options *options)
{
    bool are_met = true;
    if (options->requests == 0 || options->requests > MOST_REQUESTS)
        fail("--requests is not in 1..64");
    printf(
        "files: %u requests wait or load, prefixes of %u MiB, %u s each, %u rounds; of %d threads "
        "that read the same file (at least %g)\n",
        options->requests, options->prefix_mib, options->seconds, options->rounds, THREADS, GOAL);
    for (uint32_t i = 0; i < NUM_VALUES; i++)
        if (options->kib == 0 || (uint64_t)options->kib << 10 == VALUES[i])
            are_met = run_values(options, VALUES[i]) && are_met;
    return are_met ? 0 : 1;
}

#include "bench.h"

#include "output/json_print.h"
#include "traffic.h"

enum { NUM_CASES = 62, COW_PAIRS = 256, LAYERS = 32 };
#define COW_BYTES (UINT64_C(1) << 20)

static const uint64_t PIECES[] = {4096, 16384, 65536, 262144, 2 << 20};

typedef struct bench {
    const gpu_bench_options *options;
    gpu_rig rig;
    gpu_results results;
    double limits[4]; /* by ways; 0: within the GPU */
    bool has_failed;
} bench;

/* ---- limits ---------------------------------------------------------------- */

static void measure_limit(bench *b, unsigned ways, const char *name)
{
    gpu_rounds rounds = {.count = 0};
    (void)(ways == 0 ? gpu_rig_plain_within(&b->rig) : gpu_rig_plain(&b->rig, ways));
    double start = progress_clock();
    while (gpu_wants_more(&b->rig, &rounds, start)) {
        double rate = ways == 0 ? gpu_rig_plain_within(&b->rig) : gpu_rig_plain(&b->rig, ways);
        b->has_failed |= rate <= 0;
        rounds.values[rounds.count++] = rate;
    }
    b->limits[ways] = gpu_results_add(&b->results, name, "GB/s", b->rig.bytes, &rounds, 0, 0);
}

static void measure_limits(bench *b)
{
    double start = progress_clock();
    while (progress_clock() - start < b->rig.case_seconds) /* clocks and bus wake up */
        b->has_failed |= gpu_rig_plain(&b->rig, GPU_LOADS | GPU_STORES) <= 0;
    b->results.section = "The machine's limits: plain copies, as large as they come";
    measure_limit(b, GPU_LOADS, "host to GPU");
    measure_limit(b, GPU_STORES, "GPU to host");
    measure_limit(b, GPU_LOADS | GPU_STORES, "both directions at once");
    measure_limit(b, 0, "within the GPU (bytes copied)");
}

/* ---- scattered copies ------------------------------------------------------ */

static const char *name_of_method(quire_cuda_method method)
{
    static const char *const NAMES[] = {"by size",           "kernel", "copy engine, batch",
                                        "copy engine, loop", "staged", "copy engine, rows"};
    return NAMES[method];
}

static gpu_traffic_plan plan_traffic(const bench *b, uint64_t piece, uint32_t layers, unsigned ways,
                                     quire_cuda_crc crc)
{
    return (gpu_traffic_plan){.piece = piece,
                              .layers = layers,
                              .ways = ways,
                              .ctas = b->options->ctas,
                              .engine_from = b->options->engine_from,
                              .crc = crc,
                              .bytes = b->rig.bytes};
}

static void measure_traffic(bench *b, const gpu_traffic_plan *plan, const char *what, double goal)
{
    gpu_traffic traffic;
    gpu_rounds rounds = {.count = 0};
    gpu_rounds plain = {.count = 0};
    char name[96];
    if (plan->piece * (plan->layers == 0 ? 1 : plan->layers) > b->rig.bytes)
        return;
    if (gpu_traffic_open(&traffic, &b->rig, plan) != 0) {
        b->has_failed = true;
        return;
    }
    gpu_traffic_measure(&traffic, &rounds, &plain);
    const quire_device_cuda_stats *stats = quire_device_cuda_get_stats(&traffic.device);
    bool is_mixed = plan->ways == (GPU_LOADS | GPU_STORES) && stats->method != stats->store_method;
    (void)snprintf(
        name, sizeof name, "%s, %s%s%s", what,
        name_of_method((plan->ways & GPU_LOADS) != 0 ? stats->method : stats->store_method),
        is_mixed ? " and " : "", is_mixed ? name_of_method(stats->store_method) : "");
    if (traffic.has_failed || !gpu_traffic_is_right(&traffic)) {
        (void)fprintf(stderr, "quire bench: %s of %llu bytes: %s\n", name,
                      (unsigned long long)plan->piece,
                      traffic.has_failed ? b->rig.cuda->info.what : "wrong bytes");
        b->has_failed = true;
    }
    (void)gpu_results_add(&b->results, name, "GB/s", plan->piece, &rounds,
                          gpu_rounds_median(&plain), goal);
    gpu_traffic_close(&traffic);
}

/* Pieces of all sizes, of blocks with so many layers. */
static void measure_pieces(bench *b, uint32_t layers)
{
    static const struct {
        unsigned ways;
        const char *name;
        double goal;
    } WAYS[] = {{GPU_LOADS, "host to GPU", 90},
                {GPU_STORES, "GPU to host", 90},
                {GPU_LOADS | GPU_STORES, "both at once", 85}};
    for (size_t w = 0; w < sizeof WAYS / sizeof *WAYS; w++)
        for (size_t i = 0; i < sizeof PIECES / sizeof *PIECES; i++) {
            gpu_traffic_plan plan =
                plan_traffic(b, PIECES[i], layers, WAYS[w].ways, QUIRE_CUDA_CRC_NONE);
            /* Small blocks in both directions have no goal: nobody has many of them. */
            bool has_goal =
                layers > 1 || WAYS[w].ways != (GPU_LOADS | GPU_STORES) || PIECES[i] >= 262144;
            measure_traffic(b, &plan, WAYS[w].name, has_goal ? WAYS[w].goal : 0);
        }
}

static void measure_scattered(bench *b)
{
    b->results.section =
        "Scattered pieces, through quire_device: blocks of 32 layers, a piece in each";
    measure_pieces(b, LAYERS);
    b->results.section = "Scattered pieces, through quire_device: blocks of one piece";
    measure_pieces(b, 1);
    if (b->rig.cuda->info.has_kernels == 0)
        return;
    b->results.section = "GPU to host with CRC32C by the GPU: blocks of 32 layers";
    for (size_t i = 0; i < sizeof PIECES / sizeof *PIECES; i += 2) {
        gpu_traffic_plan plan = plan_traffic(b, PIECES[i], LAYERS, GPU_STORES, QUIRE_CUDA_CRC_GPU);
        measure_traffic(b, &plan, "GPU to host, CRC", 0);
    }
}

/* ---- copy-on-write --------------------------------------------------------- */

static double copy_blocks_once(gpu_rig *rig, quire_device *device, const quire_cuda_pair *pairs,
                               uint32_t n)
{
    enum { TIMES = 8 };
    double start = progress_clock();
    for (int i = 0; i < TIMES; i++)
        if (quire_device_cuda_copy_blocks(device, pairs, n) != QUIRE_OK)
            return 0;
    if (rig->calls->cuStreamSynchronize(rig->compute) != 0)
        return 0;
    return TIMES * (double)n * (double)COW_BYTES / (progress_clock() - start) / 1e9;
}

static void measure_cow(bench *b)
{
    gpu_traffic traffic;
    gpu_rounds rounds = {.count = 0};
    quire_cuda_pair pairs[COW_PAIRS];
    gpu_traffic_plan plan = plan_traffic(b, COW_BYTES, 0, 0, QUIRE_CUDA_CRC_NONE);
    uint32_t half = (uint32_t)(b->rig.bytes / COW_BYTES);
    uint32_t n = half < COW_PAIRS ? half : COW_PAIRS;
    b->results.section = "Copy-on-write, in the engine's stream";
    if (n == 0 || gpu_traffic_open(&traffic, &b->rig, &plan) != 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        pairs[i] = (quire_cuda_pair){(i * 7) % n, half + (i * 11) % n};
    (void)copy_blocks_once(&b->rig, &traffic.device, pairs, n);
    double start = progress_clock();
    while (gpu_wants_more(&b->rig, &rounds, start)) {
        double rate = copy_blocks_once(&b->rig, &traffic.device, pairs, n);
        b->has_failed |= rate <= 0;
        rounds.values[rounds.count++] = rate;
    }
    (void)gpu_results_add(&b->results, "copies between blocks", "GB/s", COW_BYTES, &rounds,
                          b->limits[0], 70);
    gpu_traffic_close(&traffic);
}

/* ---- beside a computation -------------------------------------------------- */

/* How long the computation takes, with copies beside it or (traffic NULL) without. */
static double compute_once(bench *b, gpu_work_kind kind, uint32_t steps, gpu_traffic *traffic)
{
    enum { LAUNCHES = 10 };
    double ms = -1;
    for (int i = 0; traffic != NULL && i < 64; i++)
        gpu_traffic_turn(traffic); /* under way when the computation begins */
    if (gpu_rig_compute(&b->rig, kind, LAUNCHES, steps) != 0)
        return -1;
    while (!gpu_rig_has_computed(&b->rig, &ms))
        if (traffic != NULL)
            gpu_traffic_turn(traffic);
    if (traffic != NULL)
        gpu_traffic_drain(traffic);
    return ms;
}

/* Steps of a kernel that takes about 2 ms, or less where there is little time for all of it. */
static uint32_t find_steps(bench *b, gpu_work_kind kind)
{
    double wanted_ms = b->rig.case_seconds < 0.01 ? 1 : 20;
    uint32_t steps = 1;
    double ms = compute_once(b, kind, steps, NULL);
    while (ms >= 0 && ms < wanted_ms && steps < 1 << 20) {
        steps = ms < 0.5 ? steps * 8 : (uint32_t)(steps * 1.1 * wanted_ms / ms) + 1;
        ms = compute_once(b, kind, steps, NULL);
    }
    return steps;
}

static const char *const KINDS[] = {"math", "cache", "memory"};

static void measure_slowdown(bench *b, gpu_work_kind kind, uint32_t steps,
                             const gpu_traffic_plan *plan, const char *what, double goal)
{
    gpu_traffic traffic;
    gpu_rounds slower = {.count = 0};
    gpu_rounds rates = {.count = 0};
    char name[96];
    if (plan->piece * plan->layers > b->rig.bytes || gpu_traffic_open(&traffic, &b->rig, plan) != 0)
        return;
    (void)compute_once(b, kind, steps, &traffic);
    double start = progress_clock();
    while (gpu_wants_more(&b->rig, &slower, start)) {
        double alone = compute_once(b, kind, steps, NULL);
        uint64_t before = traffic.bytes_moved;
        double begun = progress_clock();
        double beside = compute_once(b, kind, steps, &traffic);
        rates.values[rates.count++] =
            (double)(traffic.bytes_moved - before) / (progress_clock() - begun) / 1e9;
        slower.values[slower.count++] = 100 * (beside - alone) / alone;
        b->has_failed |= alone <= 0 || beside <= 0 || traffic.has_failed;
    }
    (void)snprintf(name, sizeof name, "%s-bound slower, %s", KINDS[kind], what);
    (void)gpu_results_add(&b->results, name, "%", plan->piece, &slower, 0, goal);
    (void)gpu_results_add(&b->results, "  copied beside it, both directions", "GB/s", plan->piece,
                          &rates, b->limits[GPU_LOADS | GPU_STORES], 0);
    gpu_traffic_close(&traffic);
}

/* Goals are for what a device does by default with blocks from 64 KiB on. None beside a kernel that
 * reads as fast as memory gives: there even plain copies cost more. */
static void measure_beside_compute(bench *b)
{
    static const struct {
        const char *name;
        uint64_t piece;
        uint32_t layers;
        quire_cuda_crc crc;
        double goals[GPU_NUM_WORKS];
    } CASES[] = {
        {"1 layer, batch", 2 << 20, 1, QUIRE_CUDA_CRC_NONE, {5, 5, 0}},
        {"32 layers, rows", 65536, LAYERS, QUIRE_CUDA_CRC_NONE, {5, 5, 0}},
        {"1 layer, batch", 65536, 1, QUIRE_CUDA_CRC_NONE, {5, 5, 0}},
        {"32 layers, staged", 16384, LAYERS, QUIRE_CUDA_CRC_NONE, {5, 5, 0}},
        {"32 layers, staged", 4096, LAYERS, QUIRE_CUDA_CRC_NONE, {5, 5, 0}},
        {"1 layer, kernel", 16384, 1, QUIRE_CUDA_CRC_NONE, {5, 0, 0}},
        {"1 layer, batch, CRC", 2 << 20, 1, QUIRE_CUDA_CRC_GPU, {0}},
        {"32 layers, rows, CRC", 65536, LAYERS, QUIRE_CUDA_CRC_GPU, {0}},
    };
    b->results.section = "Copies in both directions beside a computation";
    for (int kind = 0; kind < GPU_NUM_WORKS; kind++) {
        if (b->rig.work[kind] == NULL)
            return;
        uint32_t steps = find_steps(b, (gpu_work_kind)kind);
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
            gpu_traffic_plan plan = plan_traffic(b, CASES[i].piece, CASES[i].layers,
                                                 GPU_LOADS | GPU_STORES, CASES[i].crc);
            measure_slowdown(b, (gpu_work_kind)kind, steps, &plan, CASES[i].name,
                             CASES[i].goals[kind]);
        }
    }
}

/* ---- tables ---------------------------------------------------------------- */

enum { TABLE_ROWS = 1024, TABLE_STRIDE = 2048, TABLE_SLOTS = 1024, TABLE_CHANGES = 64 };

/* A step in which one in 16 of the requests got a block: us, until the GPU has it. */
static double send_tables_once(gpu_rig *rig, quire_cuda_tables *tables, const int64_t *slots,
                               uint32_t round)
{
    double start = progress_clock();
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < TABLE_CHANGES && status == QUIRE_OK; i++) {
        int32_t id = (int32_t)(round + i);
        status = quire_cuda_tables_set(tables, i * (TABLE_ROWS / TABLE_CHANGES),
                                       round % TABLE_STRIDE, &id, 1);
    }
    if (status == QUIRE_OK)
        status = quire_cuda_tables_set_slots(tables, 0, slots, TABLE_SLOTS);
    if (status == QUIRE_OK)
        status = quire_cuda_tables_send(tables);
    if (status != QUIRE_OK || rig->calls->cuStreamSynchronize(rig->compute) != 0)
        return -1;
    return (progress_clock() - start) * 1e6;
}

static double send_whole_once(gpu_rig *rig, uint64_t entries)
{
    size_t bytes = (size_t)TABLE_ROWS * TABLE_STRIDE * 4;
    double start = progress_clock();
    if (bytes > rig->bytes ||
        rig->calls->cuMemcpyHtoDAsync(entries, rig->host, bytes, rig->compute) != 0 ||
        rig->calls->cuStreamSynchronize(rig->compute) != 0)
        return -1;
    return (progress_clock() - start) * 1e6;
}

static void measure_tables(bench *b)
{
    quire_cuda_tables *tables = NULL;
    gpu_rounds changes = {.count = 0};
    gpu_rounds whole = {.count = 0};
    static int64_t slots[TABLE_SLOTS];
    quire_cuda_tables_config config = QUIRE_CUDA_TABLES_CONFIG_INIT;
    config.cuda = b->rig.cuda;
    config.num_rows = TABLE_ROWS;
    config.row_stride = TABLE_STRIDE;
    config.num_slots = TABLE_SLOTS;
    if (quire_cuda_tables_open(&config, NULL, &tables) != QUIRE_OK)
        return;
    uint64_t entries = quire_cuda_tables_get_view(tables).entries;
    b->results.section = "Block tables of 1,024 rows x 2,048, until the GPU has them";
    for (uint32_t i = 0; i < GPU_MOST_ROUNDS; i++) {
        changes.values[changes.count++] = send_tables_once(&b->rig, tables, slots, i);
        whole.values[whole.count++] = send_whole_once(&b->rig, entries);
    }
    b->has_failed |= changes.values[0] < 0;
    (void)gpu_results_add(&b->results, "64 changes and 1,024 slots", "us", 0, &changes, 0, 0);
    if (whole.values[0] > 0)
        (void)gpu_results_add(&b->results, "the whole table, a plain copy", "us", 0, &whole, 0, 0);
    quire_cuda_tables_close(tables);
}

static void print_head(const bench *b)
{
    const quire_cuda_info *info = quire_cuda_get_info(b->rig.cuda);
    if (b->options->json) {
        (void)fputs("{\"gpu\":", stdout);
        json_print_text(stdout, info->name);
        (void)printf(",\"driver\":%d,\"capability\":%u,\"multiprocessors\":%u,\"kernels\":%s,"
                     "\"batches\":%s,",
                     info->driver_version, info->capability, info->num_multiprocessors,
                     info->has_kernels != 0 ? "true" : "false",
                     info->has_batches != 0 ? "true" : "false");
        return;
    }
    (void)printf("%s, %u multiprocessors, CUDA driver %d.%d; %s; %s\n\n", info->name,
                 info->num_multiprocessors, info->driver_version / 1000,
                 info->driver_version % 1000 / 10,
                 info->has_kernels != 0 ? "with kernels" : info->what,
                 info->has_batches != 0 ? "batched copies" : "no batched copies");
}

/* ---- scan: rates of all ways to copy, by size of piece and number of CTAs ---- */

enum { NUM_COLUMNS = 6, ROUNDS = 3 };
#define SLOW_BYTES (UINT64_C(64) << 20)

static const uint64_t SCANNED[NUM_COLUMNS] = {4096, 16384, 65536, 262144, 1 << 20, 2 << 20};

/* The best of a few rounds; 0: it cannot be done. */
static double best_rate(gpu_rig *rig, const gpu_traffic_plan *plan)
{
    gpu_traffic traffic;
    double best = 0;
    if (gpu_traffic_open(&traffic, rig, plan) != 0)
        return 0;
    for (int i = 0; i < ROUNDS && !traffic.has_failed; i++) {
        double rate = gpu_traffic_round(&traffic);
        best = rate > best ? rate : best;
    }
    gpu_traffic_close(&traffic);
    return best;
}

static void scan_row(gpu_rig *rig, FILE *out, const char *name, gpu_traffic_plan plan)
{
    (void)fprintf(out, "  %-22s", name);
    for (int i = 0; i < NUM_COLUMNS; i++) {
        plan.piece = SCANNED[i];
        if (plan.piece * (plan.layers == 0 ? 1 : plan.layers) > rig->bytes)
            continue;
        bool is_slow = plan.method != QUIRE_CUDA_KERNEL && plan.layers < 2 && plan.piece <= 65536;
        plan.bytes = is_slow && rig->bytes > SLOW_BYTES ? SLOW_BYTES : rig->bytes;
        (void)fprintf(out, " %8.2f", best_rate(rig, &plan));
    }
    (void)fputc('\n', out);
    (void)fflush(out);
}

static void scan_ways(gpu_rig *rig, FILE *out, unsigned ways, const char *title)
{
    static const uint32_t CTAS[] = {16, 32, 64, 128, 256};
    char name[48];
    (void)fprintf(out, "%s: plain %.2f GB/s\n  %-22s %8s %8s %8s %8s %8s %8s\n", title,
                  gpu_rig_plain(rig, ways), "", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB",
                  "2 MiB");
    gpu_traffic_plan plan = {.ways = ways, .crc = QUIRE_CUDA_CRC_NONE, .method = QUIRE_CUDA_KERNEL};
    if (rig->cuda->info.has_kernels != 0) {
        for (size_t i = 0; i < sizeof CTAS / sizeof *CTAS; i++) {
            plan.ctas = CTAS[i];
            (void)snprintf(name, sizeof name, "kernel, %u CTAs", CTAS[i]);
            scan_row(rig, out, name, plan);
        }
        plan.method = QUIRE_CUDA_STAGED;
        plan.layers = 32;
        scan_row(rig, out, "staged, 32 layers", plan);
        plan.layers = 1;
    }
    plan.layers = 32;
    plan.method = QUIRE_CUDA_ROWS;
    scan_row(rig, out, "rows, 32 layers", plan);
    plan.method = QUIRE_CUDA_BATCH;
    if (rig->cuda->info.has_batches != 0)
        scan_row(rig, out, "batch, 32 layers", plan);
    plan.layers = 1;
    if (rig->cuda->info.has_batches != 0)
        scan_row(rig, out, "copy engine, batch", plan);
    plan.method = QUIRE_CUDA_LOOP;
    scan_row(rig, out, "copy engine, loop", plan);
}

/* ---- all of it ------------------------------------------------------------- */

int gpu_bench_run(const gpu_bench_options *options)
{
    static bench b;
    b = (bench){.options = options};
    if (gpu_rig_open(&b.rig, options) != 0)
        return 1;
    b.rig.case_seconds = options->seconds / NUM_CASES;
    if (options->scan) {
        (void)gpu_rig_plain(&b.rig, GPU_LOADS | GPU_STORES); /* warms up */
        scan_ways(&b.rig, stdout, GPU_LOADS, "host to GPU");
        scan_ways(&b.rig, stdout, GPU_STORES, "GPU to host");
        scan_ways(&b.rig, stdout, GPU_LOADS | GPU_STORES, "both at once");
    } else {
        measure_limits(&b);
        measure_scattered(&b);
        measure_cow(&b);
        measure_beside_compute(&b);
        measure_tables(&b);
        print_head(&b);
        if (options->json)
            gpu_results_print_json(&b.results, stdout);
        else
            gpu_results_print(&b.results, stdout);
        (void)fputs(options->json ? "}\n" : "", stdout);
    }
    gpu_rig_close(&b.rig);
    return b.has_failed || (options->check && !gpu_results_are_met(&b.results)) ? 1 : 0;
}

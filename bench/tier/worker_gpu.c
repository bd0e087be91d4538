/* worker_gpu.c - KV memory of two ranks on one GPU, through planner and workers, beside plain
 * copies.
 *
 *      layers   vLLM 0.20: a tensor [2, blocks, ...] for each layer: K and V of each layer are
 *               pieces of a block
 *      packed   vLLM 0.32: all layers of a block lie side by side: the block is one piece
 *
 *      plain    one copy of the same bytes for each rank, contiguous: cuMemcpyDtoHAsync, or HtoD
 *      loop     one such call for each piece
 *      Quire    computed or match, plan, submit, poll, report, until the last block has arrived
 *
 * Blocks are in random order. The sides alternate; each round gives a ratio to its plain copy. The
 * warm-up round compares all bytes. */
#include "worker.h"

#include "tier/device/cuda/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIECES = 64, GAP = 64 << 10, REQUEST_BLOCKS = 1024, LOOPS = 3, OUT = 0, IN = 1 };
static const double GOAL = 0.9;

typedef struct gpu_layout {
    const char *name;
    uint64_t piece;
    uint32_t num_pieces; /* of a block: 2 x layers, or 1 */
} gpu_layout;

static const gpu_layout LAYOUTS[] = {
    {"layers", 16 << 10, 64}, {"layers", 64 << 10, 64}, {"layers", 256 << 10, 32},
    {"layers", 2 << 20, 4},   {"packed", 16 << 10, 1},  {"packed", 64 << 10, 1},
    {"packed", 256 << 10, 1}, {"packed", 2 << 20, 1},
};
enum { NUM_LAYOUTS = sizeof LAYOUTS / sizeof *LAYOUTS };

typedef struct gpu_rank {
    quire_cuda *cuda;
    qr_cu_address kv;
    void *slots;
} gpu_rank;

typedef struct gpu_bench {
    uint32_t num_ranks;
    uint32_t num_ctas;
    uint64_t bytes;      /* of a rank, moved in a round */
    uint64_t kv_bytes;   /* of a rank: half as much again, and gaps */
    uint64_t slot_bytes; /* twice as much, and slot 0 */
    gpu_rank ranks[WORKER_RANKS];
    qr_cu_stream stream;
    unsigned char *expected; /* kv_bytes, pinned; and what was read back */
    unsigned char *found;
    const qr_cuda_calls *calls; /* of the first rank; the context is the same */
} gpu_bench;

typedef struct gpu_case {
    gpu_bench *bench;
    const gpu_layout *layout;
    worker_kit kit;
    uint32_t num_moved; /* blocks, in a round */
    uint32_t *order;    /* of them, in the engine */
    uint64_t next;      /* content that was never stored */
} gpu_case;

static void must(const gpu_bench *b, qr_cu_result result, const char *what)
{
    char text[160];
    if (result == QR_CU_SUCCESS)
        return;
    qr_cuda_describe(&b->ranks[0].cuda->driver, result, text, sizeof text);
    fprintf(stderr, "quire_bench_tier_worker: %s: %s\n", what, text);
    exit(1);
}

/* ---- memory ---------------------------------------------------------------- */

static void open_rank(gpu_bench *b, uint32_t i)
{
    gpu_rank *rank = &b->ranks[i];
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    bench_must(quire_cuda_open(&config, NULL, &rank->cuda), "quire_cuda_open");
    bench_must(qr_gpu_enter(rank->cuda), "the GPU's context");
    must(b, qr_gpu_alloc(rank->cuda, b->kv_bytes, &rank->kv), "KV memory");
    qr_gpu_leave(rank->cuda);
    bench_must(quire_cuda_host_alloc(rank->cuda, b->slot_bytes, &rank->slots), "host memory");
    memset(rank->slots, 0, b->slot_bytes);
}

/* False: there is no GPU. */
static bool open_bench(gpu_bench *b, const worker_options *options)
{
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    quire_cuda *cuda;
    void *memory[2];
    if (quire_cuda_open(&config, NULL, &cuda) != QUIRE_OK)
        return false;
    quire_cuda_close(cuda);
    b->num_ranks = options->num_ranks;
    b->num_ctas = options->num_ctas;
    b->bytes = options->mib << 20;
    b->kv_bytes = b->bytes / 2 * 3 + (64 << 20);
    b->slot_bytes = 2 * b->bytes + (16 << 20);
    for (uint32_t i = 0; i < b->num_ranks; i++)
        open_rank(b, i);
    b->calls = &b->ranks[0].cuda->driver.calls;
    for (uint32_t i = 0; i < 2; i++)
        bench_must(quire_cuda_host_alloc(b->ranks[0].cuda, b->kv_bytes, &memory[i]), "memory");
    b->expected = memory[0];
    b->found = memory[1];
    uint64_t random = 1;
    for (uint64_t i = 0; i + 8 <= b->kv_bytes; i += 8) {
        uint64_t word = bench_random(&random);
        memcpy(b->expected + i, &word, sizeof word);
    }
    bench_must(qr_gpu_enter(b->ranks[0].cuda), "the GPU's context");
    must(b, b->calls->cuStreamCreateWithPriority(&b->stream, QR_CU_STREAM_NON_BLOCKING, 0),
         "a stream");
    return true;
}

static void close_bench(gpu_bench *b)
{
    must(b, b->calls->cuStreamDestroy(b->stream), "the stream");
    qr_gpu_leave(b->ranks[0].cuda);
    quire_cuda_host_free(b->ranks[0].cuda, b->expected);
    quire_cuda_host_free(b->ranks[0].cuda, b->found);
    for (uint32_t i = 0; i < b->num_ranks; i++) {
        quire_cuda_host_free(b->ranks[i].cuda, b->ranks[i].slots);
        bench_must(qr_gpu_enter(b->ranks[i].cuda), "the GPU's context");
        qr_gpu_free(b->ranks[i].cuda, b->ranks[i].kv);
        qr_gpu_leave(b->ranks[i].cuda);
        quire_cuda_close(b->ranks[i].cuda);
    }
}

static void wait_for_stream(const gpu_bench *b)
{
    must(b, b->calls->cuStreamSynchronize(b->stream), "synchronize");
}

/* ---- a case ---------------------------------------------------------------- */

/* A piece of block 0; the next block's is behind it. Tensors of layers are allocations of their
 * own: distances between them are not equal. */
static uint64_t piece_address(const gpu_case *c, uint32_t rank, uint32_t piece)
{
    uint64_t layer = piece / 2;
    uint64_t gaps = layer * (layer + 1) / 2 * GAP;
    return c->bench->ranks[rank].kv + piece * c->kit.num_blocks * c->layout->piece + gaps;
}

static void open_device(gpu_case *c, uint32_t i)
{
    quire_cuda_region regions[MOST_PIECES];
    quire_device_cuda_config config = QUIRE_DEVICE_CUDA_CONFIG_INIT;
    for (uint32_t p = 0; p < c->layout->num_pieces; p++)
        regions[p] =
            (quire_cuda_region){piece_address(c, i, p), c->layout->piece, c->layout->piece};
    config.cuda = c->bench->ranks[i].cuda;
    config.regions = regions;
    config.num_regions = c->layout->num_pieces;
    config.num_blocks = c->kit.num_blocks;
    config.num_slots = c->kit.num_slots;
    config.slots = c->kit.ranks[i].slots = c->bench->ranks[i].slots;
    config.pin = QUIRE_OFF;
    config.num_ctas = c->bench->num_ctas;
    int status = quire_device_cuda_open(&config, NULL, &c->kit.ranks[i].device);
    bench_must(status, status == QUIRE_OK ? "" : quire_refusal());
}

static void open_case(gpu_case *c, gpu_bench *b, const gpu_layout *layout)
{
    uint64_t block_bytes = layout->piece * layout->num_pieces;
    uint32_t n = (uint32_t)(b->bytes / block_bytes);
    *c = (gpu_case){.bench = b, .layout = layout, .num_moved = n, .next = 1};
    c->kit.num_ranks = b->num_ranks;
    c->kit.block_bytes = block_bytes;
    c->kit.num_blocks = n / 2 * 3 + 2; /* a quarter of the blocks is never held by stores */
    c->kit.num_slots = 2 * n + 1;
    c->kit.most_blocks = REQUEST_BLOCKS;
    for (uint32_t i = 0; i < b->num_ranks; i++)
        open_device(c, i);
    worker_kit_open(&c->kit);
    c->order = bench_memory((size_t)n * sizeof *c->order);
    for (uint32_t i = 0; i < n; i++)
        c->order[i] = i + 1;
    bench_shuffle(c->order, n, 7);
}

static void close_case(gpu_case *c)
{
    worker_kit_close(&c->kit);
    free(c->order);
}

/* ---- sides ----------------------------------------------------------------- */

static double rate_since(const gpu_case *c, uint64_t begin_ns)
{
    double bytes = (double)c->num_moved * (double)c->kit.block_bytes * c->kit.num_ranks;
    return bytes / (double)(bench_now_ns() - begin_ns);
}

static void copy(const gpu_bench *b, int way, unsigned char *host, uint64_t address, uint64_t bytes)
{
    must(b,
         way == OUT ? b->calls->cuMemcpyDtoHAsync(host, address, bytes, b->stream)
                    : b->calls->cuMemcpyHtoDAsync(address, host, bytes, b->stream),
         "a copy");
}

static double run_plain(const gpu_case *c, int way)
{
    const gpu_bench *b = c->bench;
    uint64_t begin_ns = bench_now_ns();
    for (uint32_t i = 0; i < b->num_ranks; i++)
        copy(b, way, b->ranks[i].slots, b->ranks[i].kv, c->num_moved * c->kit.block_bytes);
    wait_for_stream(b);
    return rate_since(c, begin_ns);
}

static double run_loop(const gpu_case *c, int way)
{
    const gpu_bench *b = c->bench;
    uint64_t piece = c->layout->piece;
    uint64_t begin_ns = bench_now_ns();
    for (uint32_t i = 0; i < b->num_ranks; i++) {
        unsigned char *slot = b->ranks[i].slots;
        for (uint32_t n = 0; n < c->num_moved; n++)
            for (uint32_t p = 0; p < c->layout->num_pieces; p++, slot += piece)
                copy(b, way, slot, piece_address(c, i, p) + c->order[n] * piece, piece);
    }
    wait_for_stream(b);
    return rate_since(c, begin_ns);
}

static quire_req add_request(gpu_case *c)
{
    quire_req req;
    bench_must(quire_planner_add(c->kit.planner, &req), "quire_planner_add");
    return req;
}

/* Requests that end: all of their blocks are stored. */
static double run_stores(gpu_case *c)
{
    worker_kit *kit = &c->kit;
    uint64_t begin_ns = bench_now_ns();
    for (uint32_t first = 0; first < c->num_moved; first += REQUEST_BLOCKS) {
        uint32_t left = c->num_moved - first;
        uint32_t n = left < REQUEST_BLOCKS ? left : REQUEST_BLOCKS;
        quire_planner_request request = worker_kit_request(kit, add_request(c), c->next + first, n);
        quire_block_span span = {c->order + first, n};
        request.is_last = 1;
        bench_must(quire_planner_computed(kit->planner, &request, &span, n * WORKER_TOKENS),
                   "quire_planner_computed");
        worker_kit_plan(kit);
        bench_must(quire_planner_finished(kit->planner, request.req), "quire_planner_finished");
        worker_kit_poll(kit);
    }
    while (kit->num_held > 0) {
        worker_kit_plan(kit);
        worker_kit_poll(kit);
    }
    return rate_since(c, begin_ns);
}

static void start_load(gpu_case *c, uint32_t first, uint32_t n, quire_req *req)
{
    quire_block_span span = {c->order + first, n};
    uint32_t num_external = 0;
    *req = add_request(c);
    quire_planner_request request = worker_kit_request(&c->kit, *req, c->next + first, n);
    bench_must(quire_planner_match(c->kit.planner, &request, 0, &num_external),
               "quire_planner_match");
    if (num_external != n * WORKER_TOKENS)
        bench_must(QUIRE_E_CORRUPT, "blocks that were stored are not found");
    bench_must(quire_planner_allocated(c->kit.planner, *req, &span, num_external),
               "quire_planner_allocated");
}

/* What the last stores have stored. */
static double run_loads(gpu_case *c)
{
    static quire_req reqs[65536];
    worker_kit *kit = &c->kit;
    uint32_t num_reqs = 0;
    uint32_t num_loaded = 0;
    uint64_t begin_ns = bench_now_ns();
    for (uint32_t first = 0; first < c->num_moved || num_loaded < num_reqs;) {
        if (first < c->num_moved) {
            uint32_t left = c->num_moved - first;
            uint32_t n = left < REQUEST_BLOCKS ? left : REQUEST_BLOCKS;
            start_load(c, first, n, &reqs[num_reqs++]);
            first += n;
        }
        worker_kit_plan(kit);
        worker_kit_poll(kit);
        num_loaded += kit->results.num_loaded;
        bench_must(kit->results.num_failed == 0 ? QUIRE_OK : QUIRE_E_SYSTEM, "a load");
    }
    double rate = rate_since(c, begin_ns);
    for (uint32_t i = 0; i < num_reqs; i++)
        bench_must(quire_planner_finished(kit->planner, reqs[i]), "quire_planner_finished");
    return rate;
}

/* ---- rounds ---------------------------------------------------------------- */

/* Each rank has other bytes. */
static void fill_ranks(const gpu_bench *b, bool is_zero)
{
    for (uint32_t i = 0; i < b->num_ranks; i++) {
        uint64_t part = (uint64_t)i << 20;
        if (is_zero) {
            must(b, b->calls->cuMemsetD8Async(b->ranks[i].kv, 0, b->kv_bytes, b->stream), "zero");
        } else {
            copy(b, IN, b->expected + part, b->ranks[i].kv, b->kv_bytes - part); /* end unused */
        }
        wait_for_stream(b);
    }
}

static void check_rank(const gpu_case *c, uint32_t rank)
{
    const gpu_bench *b = c->bench;
    uint64_t part = (uint64_t)rank << 20;
    uint64_t piece = c->layout->piece;
    copy(b, OUT, b->found, b->ranks[rank].kv, b->kv_bytes);
    wait_for_stream(b);
    for (uint32_t n = 0; n < c->num_moved; n++)
        for (uint32_t p = 0; p < c->layout->num_pieces; p++) {
            uint64_t at = piece_address(c, rank, p) + c->order[n] * piece - b->ranks[rank].kv;
            if (memcmp(b->found + at, b->expected + part + at, piece) != 0)
                bench_must(QUIRE_E_CORRUPT, "bytes of a block that was stored and loaded");
        }
}

static void warm_up(gpu_case *c)
{
    fill_ranks(c->bench, false);
    (void)run_stores(c);
    fill_ranks(c->bench, true);
    (void)run_loads(c);
    for (uint32_t i = 0; i < c->bench->num_ranks; i++)
        check_rank(c, i);
    for (int way = OUT; way <= IN; way++)
        (void)run_plain(c, way);
}

static bool show(const gpu_case *c, int way, worker_values rates[3], worker_values *ratios)
{
    static const char *const METHODS[] = {"by size", "kernel", "batch", "loop", "staged", "rows"};
    const quire_device_cuda_stats *stats = quire_device_cuda_get_stats(&c->kit.ranks[0].device);
    double median = worker_values_at(ratios, 50);
    printf("%s  %5llu KiB x %2u  %-3s  %-6s  plain %6.2f  loop %6.2f  Quire %6.2f GB/s  ratio %.3f "
           "(%.3f .. %.3f)%s\n",
           c->layout->name, (unsigned long long)(c->layout->piece >> 10), c->layout->num_pieces,
           way == OUT ? "out" : "in", METHODS[way == OUT ? stats->store_method : stats->method],
           worker_values_at(&rates[0], 50), worker_values_at(&rates[1], 50),
           worker_values_at(&rates[2], 50), median, worker_values_at(ratios, 10),
           worker_values_at(ratios, 90), median < GOAL ? "  MISSED" : "");
    (void)fflush(stdout);
    return median >= GOAL;
}

static bool run_case(gpu_bench *b, const gpu_layout *layout, uint32_t rounds)
{
    static worker_values rates[2][3];
    static worker_values ratios[2];
    gpu_case c;
    memset(rates, 0, sizeof rates);
    memset(ratios, 0, sizeof ratios);
    open_case(&c, b, layout);
    warm_up(&c);
    for (uint32_t r = 0; r < rounds; r++) {
        double plain[2] = {run_plain(&c, OUT), 0};
        c.next += c.num_moved;
        double quire[2] = {run_stores(&c), run_loads(&c)};
        plain[IN] = run_plain(&c, IN);
        for (int way = OUT; way <= IN; way++) {
            worker_values_add(&rates[way][0], plain[way]);
            if (r < LOOPS)
                worker_values_add(&rates[way][1], run_loop(&c, way));
            worker_values_add(&rates[way][2], quire[way]);
            worker_values_add(&ratios[way], quire[way] / plain[way]);
        }
    }
    bool is_out_met = show(&c, OUT, rates[OUT], &ratios[OUT]);
    bool is_in_met = show(&c, IN, rates[IN], &ratios[IN]);
    close_case(&c);
    return is_out_met && is_in_met;
}

static bool is_wanted(const gpu_layout *layout, const worker_options *options)
{
    return options->kib == 0 || layout->piece == (uint64_t)options->kib << 10;
}

int worker_bench_gpu(const worker_options *options)
{
    static gpu_bench b;
    bool are_met = true;
    uint32_t num_wanted = 0;
    for (uint32_t i = 0; i < NUM_LAYOUTS; i++)
        num_wanted += is_wanted(&LAYOUTS[i], options) ? 1 : 0;
    if (num_wanted == 0) {
        printf("invalid --kib %u for gpu (expected 16, 64, 256 or 2048)\n", options->kib);
        return 2;
    }
    if (!open_bench(&b, options)) {
        printf("GPU: skipped: %s\n", quire_refusal());
        return WORKER_SKIPPED;
    }
    const quire_cuda_info *info = quire_cuda_get_info(b.ranks[0].cuda);
    printf("%s, driver %d: %u ranks on one GPU, %llu MiB each in a round, %u rounds; of one plain "
           "copy of the same bytes (at least %g)\n",
           info->name, info->driver_version, b.num_ranks, (unsigned long long)options->mib,
           options->rounds, GOAL);
    for (uint32_t i = 0; i < NUM_LAYOUTS; i++)
        if (is_wanted(&LAYOUTS[i], options))
            are_met = run_case(&b, &LAYOUTS[i], options->rounds) && are_met;
    close_bench(&b);
    return are_met ? 0 : 1;
}

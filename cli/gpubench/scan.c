#include "scan.h"

#include "traffic.h"

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

void gpu_scan(gpu_rig *rig, FILE *out)
{
    (void)gpu_rig_plain(rig, GPU_LOADS | GPU_STORES); /* warms up */
    scan_ways(rig, out, GPU_LOADS, "host to GPU");
    scan_ways(rig, out, GPU_STORES, "GPU to host");
    scan_ways(rig, out, GPU_LOADS | GPU_STORES, "both at once");
}

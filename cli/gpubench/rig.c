#include "rig.h"

#include "gpu_work.h"

#include <string.h>

/* As kernels of an engine: half of the threads that a multiprocessor can have, kept so by shared
 * memory; and several waves, so that a CTA that is held up does not hold up all. */
enum { LEAST_ROUNDS = 5, CTAS_ON_SM = 4, WAVES = 8, SHARED_BYTES = 48 << 10 };

/* Of 256 MiB the CTAs that run at a time have 33 MB on an H200, which its L2 cache holds. */
#define CACHE_BYTES (UINT64_C(256) << 20)
#define MOST_BYTES  (UINT64_C(2) << 30)

extern const char quire_gpu_work[];
extern const size_t quire_gpu_work_bytes;

bool gpu_wants_more(const gpu_rig *rig, const gpu_rounds *rounds, double start)
{
    if (rounds->count >= GPU_MOST_ROUNDS)
        return false;
    return rounds->count < LEAST_ROUNDS || progress_clock() - start < rig->case_seconds;
}

/* ---- opening --------------------------------------------------------------- */

static qr_cu_result take_memory(gpu_rig *rig)
{
    const qr_cuda_calls *calls = rig->calls;
    void *host = NULL;
    qr_cu_result result = calls->cuMemAlloc(&rig->device, (size_t)(2 * rig->bytes));
    rig->vector_bytes = rig->bytes < MOST_BYTES ? rig->bytes : MOST_BYTES;
    rig->results_bytes = (uint64_t)WAVES * CTAS_ON_SM * rig->cuda->info.num_multiprocessors *
                         GPU_WORK_THREADS * sizeof(float);
    uint64_t scratch_bytes = rig->results_bytes + rig->vector_bytes;
    if (result == 0)
        result = calls->cuMemAlloc(&rig->scratch, (size_t)scratch_bytes);
    if (result == 0)
        result = calls->cuMemHostAlloc(&host, (size_t)(2 * rig->bytes),
                                       QR_CU_HOST_PORTABLE | QR_CU_HOST_DEVICEMAP);
    rig->host = result == 0 ? host : NULL;
    if (result == 0)
        memset(rig->host, 0x5a, (size_t)(2 * rig->bytes));
    if (result == 0)
        result = calls->cuMemsetD8Async(rig->device, 0x33, (size_t)(2 * rig->bytes), rig->compute);
    if (result == 0)
        result = calls->cuMemsetD8Async(rig->scratch, 0, (size_t)scratch_bytes, rig->compute);
    return result == 0 ? calls->cuStreamSynchronize(rig->compute) : result;
}

static qr_cu_result set_up_rig(gpu_rig *rig)
{
    const qr_cuda_calls *calls = rig->calls;
    qr_cu_result result =
        calls->cuStreamCreateWithPriority(&rig->compute, QR_CU_STREAM_NON_BLOCKING, 0);
    for (int i = 0; i < 2 && result == 0; i++)
        result = calls->cuStreamCreateWithPriority(&rig->plain[i], QR_CU_STREAM_NON_BLOCKING, 0);
    if (result == 0)
        result = calls->cuEventCreate(&rig->begin, 0);
    if (result == 0)
        result = calls->cuEventCreate(&rig->end, 0);
    if (result == 0 && quire_gpu_work_bytes > 0 &&
        calls->cuModuleLoadDataEx(&rig->module, quire_gpu_work, 0, NULL, NULL) == 0) {
        static const char *const NAMES[] = {"quire_work_math", "quire_work_cache",
                                            "quire_work_memory"};
        for (int i = 0; i < GPU_NUM_WORKS; i++)
            (void)calls->cuModuleGetFunction(&rig->work[i], rig->module, NAMES[i]);
    }
    return result == 0 ? take_memory(rig) : result;
}

int gpu_rig_open(gpu_rig *rig, const gpu_bench_options *options)
{
    char message[320] = "";
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    *rig = (gpu_rig){.bytes = options->bytes >> 16 << 16}; /* whole pieces */
    config.library = options->driver;
    config.device = options->device;
    if (quire_cuda_open(&config, NULL, &rig->cuda) != QUIRE_OK) {
        (void)fprintf(stderr, "quire bench: %s\n", quire_refusal());
        return -1;
    }
    rig->calls = &rig->cuda->driver.calls;
    if (qr_gpu_enter(rig->cuda) != QUIRE_OK) {
        (void)fprintf(stderr, "quire bench: %s\n", rig->cuda->info.what);
        return -1;
    }
    qr_cu_result result = set_up_rig(rig);
    rig->cuda->stream = rig->compute;
    if (result == 0)
        return 0;
    qr_cuda_describe(&rig->cuda->driver, result, message, sizeof message);
    (void)fprintf(stderr, "quire bench: memory for the benchmark: %s; try a smaller --bytes\n",
                  message);
    gpu_rig_close(rig);
    return -1;
}

void gpu_rig_close(gpu_rig *rig)
{
    const qr_cuda_calls *calls = rig->calls;
    if (rig->compute != NULL)
        (void)calls->cuStreamSynchronize(rig->compute);
    if (rig->host != NULL)
        (void)calls->cuMemFreeHost(rig->host);
    if (rig->device != 0)
        (void)calls->cuMemFree(rig->device);
    if (rig->scratch != 0)
        (void)calls->cuMemFree(rig->scratch);
    if (rig->module != NULL)
        (void)calls->cuModuleUnload(rig->module);
    if (rig->begin != NULL)
        (void)calls->cuEventDestroy(rig->begin);
    if (rig->end != NULL)
        (void)calls->cuEventDestroy(rig->end);
    for (int i = 0; i < 2; i++)
        if (rig->plain[i] != NULL)
            (void)calls->cuStreamDestroy(rig->plain[i]);
    if (rig->compute != NULL)
        (void)calls->cuStreamDestroy(rig->compute);
    qr_gpu_leave(rig->cuda);
    quire_cuda_close(rig->cuda);
}

/* ---- plain copies ---------------------------------------------------------- */

double gpu_rig_plain(gpu_rig *rig, unsigned ways)
{
    const qr_cuda_calls *calls = rig->calls;
    qr_cu_result result = 0;
    double start = progress_clock();
    if ((ways & 1) != 0)
        result =
            calls->cuMemcpyDtoHAsync(rig->host, rig->device, (size_t)rig->bytes, rig->plain[0]);
    if ((ways & 2) != 0 && result == 0)
        result = calls->cuMemcpyHtoDAsync(rig->device + rig->bytes, rig->host + rig->bytes,
                                          (size_t)rig->bytes, rig->plain[1]);
    for (int i = 0; i < 2 && result == 0; i++)
        result = calls->cuStreamSynchronize(rig->plain[i]);
    double moved = (double)rig->bytes * ((ways & 1) + (ways >> 1 & 1));
    return result == 0 ? moved / (progress_clock() - start) / 1e9 : 0;
}

double gpu_rig_plain_within(gpu_rig *rig)
{
    enum { TIMES = 4 };
    const qr_cuda_calls *calls = rig->calls;
    qr_cu_result result = 0;
    double start = progress_clock();
    for (int i = 0; i < TIMES && result == 0; i++)
        result = calls->cuMemcpyDtoDAsync(rig->device + rig->bytes, rig->device, (size_t)rig->bytes,
                                          rig->compute);
    if (result == 0)
        result = calls->cuStreamSynchronize(rig->compute);
    return result == 0 ? TIMES * (double)rig->bytes / (progress_clock() - start) / 1e9 : 0;
}

/* ---- compute --------------------------------------------------------------- */

int gpu_rig_compute(gpu_rig *rig, gpu_work_kind kind, uint32_t launches, uint32_t steps)
{
    const qr_cuda_calls *calls = rig->calls;
    unsigned num_ctas = WAVES * CTAS_ON_SM * rig->cuda->info.num_multiprocessors;
    uint64_t bytes = rig->vector_bytes;
    if (kind == GPU_WORK_CACHE && bytes > CACHE_BYTES)
        bytes = CACHE_BYTES;
    gpu_work_args args = {.memory = rig->scratch + rig->results_bytes,
                          .vectors = bytes / 16,
                          .results = rig->scratch,
                          .steps = steps};
    void *arguments[1] = {&args};
    qr_cu_result result = calls->cuEventRecord(rig->begin, rig->compute);
    for (uint32_t i = 0; i < launches && result == 0; i++)
        result = calls->cuLaunchKernel(rig->work[kind], num_ctas, 1, 1, GPU_WORK_THREADS, 1, 1,
                                       SHARED_BYTES, rig->compute, arguments, NULL);
    if (result == 0)
        result = calls->cuEventRecord(rig->end, rig->compute);
    return result == 0 ? 0 : -1;
}

bool gpu_rig_has_computed(gpu_rig *rig, double *ms)
{
    float took = 0;
    qr_cu_result result = rig->calls->cuEventQuery(rig->end);
    if (result == QR_CU_NOT_READY)
        return false;
    if (result == 0)
        result = rig->calls->cuEventElapsedTime(&took, rig->begin, rig->end);
    *ms = result == 0 ? (double)took : -1;
    return true;
}

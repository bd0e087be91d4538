/* tier/device/cuda/device_open.c - opening and closing a device over a GPU: memory, streams,
 * events. */
#include "tier/device/cuda/device_cuda.h"

#include "base/refuse.h"

enum { MANY = 256, MOST_JOBS = 65536, MOST_COPIES = 65536, MOST_REGIONS = 65536 };
enum { SOME_PIECES = 16384, SOME_CTAS = 48, MOST_CTAS = 4096, WARP = 32 };
enum { FEW_ROWS = 4 }; /* a call costs the processor as much as this many pieces of a batch */
#define ENGINE_FROM (UINT64_C(64) << 10)
#define STAGED_FROM (UINT64_C(128) << 10)
#define STAGE_BYTES (UINT64_C(8) << 20)
#define SOME_BYTES  (UINT64_C(512) << 20) /* 10 ms of PCIe 5 */

static const char *what_is_wrong_with(const quire_device_cuda_config *config)
{
    if (config->cuda == NULL)
        return "cuda is NULL";
    if (config->regions == NULL || config->num_regions == 0 || config->num_regions > MOST_REGIONS)
        return "invalid num_regions (expected 1..65536)";
    if (config->slots == NULL || config->num_slots == 0 || config->num_blocks == 0)
        return "slots is NULL, or num_slots or num_blocks is 0";
    if (config->max_jobs > MOST_JOBS || config->max_copies > MOST_COPIES)
        return "max_jobs or max_copies is above 65,536";
    if (config->num_ctas > MOST_CTAS)
        return "num_ctas is above 4,096";
    if ((unsigned)config->method > QUIRE_CUDA_ROWS || (unsigned)config->crc > QUIRE_CUDA_CRC_NONE)
        return "method or crc is not a value of its enum";
    return NULL;
}

/* ---- memory ---------------------------------------------------------------- */

static void carve_cuda_device(qr_arena *arena, qr_cuda_device *d,
                              const quire_device_cuda_config *config)
{
    qr_cuda_map_carve(&d->map, arena, config->num_regions);
    d->jobs = qr_arena_take(arena, config->max_jobs, sizeof(quire_device_job *));
    d->free_slots = qr_arena_take(arena, config->max_jobs, sizeof *d->free_slots);
    for (int i = 0; i < 2; i++)
        d->queues[i].slots = qr_arena_take(arena, config->max_jobs, sizeof(uint32_t));
    d->done = qr_arena_take(arena, config->max_jobs, sizeof(qr_cu_event));
    d->copier.batch = qr_arena_take(arena, 1, sizeof *d->copier.batch);
}

static qr_cuda_device *create_cuda_device(const quire_device_cuda_config *config,
                                          const quire_allocator *allocator)
{
    qr_cuda_device none = {0};
    qr_owner owner;
    qr_arena plan = qr_arena_plan();
    (void)qr_arena_take(&plan, 1, sizeof none);
    carve_cuda_device(&plan, &none, config);
    qr_arena arena = qr_owner_carve(&owner, allocator, plan.used);
    if (arena.base == NULL)
        return NULL;
    qr_cuda_device *d = qr_arena_take(&arena, 1, sizeof *d);
    carve_cuda_device(&arena, d, config);
    d->owner = owner;
    d->cuda = config->cuda;
    d->num_slots = config->num_slots;
    d->max_jobs = config->max_jobs;
    d->max_copies = config->max_copies;
    d->max_pieces = config->max_pieces;
    d->max_bytes = config->max_bytes;
    for (uint32_t i = 0; i < config->max_jobs; i++)
        d->free_slots[i] = config->max_jobs - 1 - i;
    d->num_free = config->max_jobs;
    return d;
}

/* ---- how it copies --------------------------------------------------------- */

static quire_cuda_method choose_by_size(const qr_cuda_device *d, bool can_launch,
                                        const quire_device_cuda_config *config)
{
    if (config->method != QUIRE_CUDA_BY_SIZE)
        return config->method;
    if (can_launch && d->map.least_bytes < config->engine_from)
        return d->map.block_bytes < config->staged_from ? QUIRE_CUDA_KERNEL : QUIRE_CUDA_STAGED;
    if (d->map.num_regions >= FEW_ROWS * d->map.num_runs)
        return QUIRE_CUDA_ROWS;
    return d->cuda->info.has_batches != 0 ? QUIRE_CUDA_BATCH : QUIRE_CUDA_LOOP;
}

static const char *choose_methods(qr_cuda_device *d, const quire_device_cuda_config *config)
{
    const quire_cuda_info *info = &d->cuda->info;
    bool is_aligned = d->map.is_aligned && ((uintptr_t)config->slots & 15) == 0;
    bool can_launch = info->has_kernels != 0 && is_aligned;
    d->copier.has_batches = info->has_batches != 0 && config->method != QUIRE_CUDA_LOOP;
    for (int i = 0; i < 2; i++)
        d->copier.method[i] = choose_by_size(d, can_launch, config);
    /* Kernels that wait for the bus are CTAs of one warp: no multiprocessor then has much to do for
     * them. */
    d->copier.grid[0] = (qr_cuda_grid){config->num_ctas < 2 ? 1 : config->num_ctas / 2, WARP};
    d->copier.grid[1] = (qr_cuda_grid){config->num_ctas, WARP};
    for (int i = 0; i < 2; i++) {
        quire_cuda_method method = d->copier.method[i];
        bool has_kernel = method == QUIRE_CUDA_KERNEL || method == QUIRE_CUDA_STAGED;
        if (has_kernel && info->has_kernels == 0)
            return info->what;
        if (has_kernel && !is_aligned)
            return "kernels need slots and regions at multiples of 16";
        if (method == QUIRE_CUDA_BATCH && info->has_batches == 0)
            return "the driver has no cuMemcpyBatchAsync (requires CUDA 12.8)";
    }
    d->crc = config->crc;
    if (config->crc == QUIRE_CUDA_CRC_DEFAULT)
        d->crc = QUIRE_CUDA_CRC_NONE;
    if (d->crc == QUIRE_CUDA_CRC_GPU && !can_launch)
        return "crc by the GPU needs kernels, and slots and regions at multiples of 16";
    return NULL;
}

/* ---- what it has of the GPU ------------------------------------------------ */

/* Whether memory is pinned already, by whatever calls: looked at in many places, since some of it
 * may be. */
static bool is_pinned(const qr_cuda_calls *calls, const unsigned char *memory, size_t bytes)
{
    enum { PLACES = 64 };
    for (size_t i = 0; i <= PLACES; i++) {
        unsigned type = 0;
        const unsigned char *at = i < PLACES ? memory + bytes / PLACES * i : memory + bytes - 1;
        if (calls->cuPointerGetAttribute(&type, QR_CU_POINTER_MEMORY_TYPE, (uintptr_t)at) !=
                QR_CU_SUCCESS ||
            type != QR_CU_MEMORY_HOST)
            return false;
    }
    return true;
}

static int pin_slots(qr_cuda_device *d, const quire_device_cuda_config *config)
{
    const qr_cuda_calls *calls = &d->cuda->driver.calls;
    size_t bytes = (size_t)(config->num_slots * d->map.block_bytes);
    qr_cu_result result = QR_CU_INVALID_VALUE;
    d->copier.slots = config->slots;
    if (config->pin != QUIRE_OFF)
        result = calls->cuMemHostRegister(config->slots, bytes,
                                          QR_CU_HOST_PORTABLE | QR_CU_HOST_DEVICEMAP);
    d->has_pinned_slots = result == QR_CU_SUCCESS;
    /* Both are said of memory that is pinned, depending on who did it. */
    if ((result == QR_CU_ALREADY_REGISTERED || result == QR_CU_INVALID_VALUE) &&
        is_pinned(calls, config->slots, bytes))
        result = QR_CU_SUCCESS;
    if (result == QR_CU_SUCCESS)
        result = calls->cuMemHostGetDevicePointer(&d->copier.slots_address, config->slots, 0);
    if (result == QR_CU_SUCCESS)
        return QUIRE_OK;
    if (config->pin == QUIRE_OFF)
        return qr_gpu_explain(d->cuda, result, "the slots are not pinned");
    return qr_gpu_explain(d->cuda, result,
                          "cannot pin the slots; they need whole pages without other data, and a "
                          "sufficient limit (ulimit -l)");
}

static int take_pinned(qr_cuda_device *d)
{
    size_t pairs = (size_t)d->max_jobs * d->max_copies;
    size_t areas = (size_t)QR_NUM_AREAS * d->max_copies;
    size_t bytes = (pairs + areas) * sizeof(qr_block_pair);
    d->crc_parts = qr_cuda_crc_parts(&d->map);
    bytes += d->crc == QUIRE_CUDA_CRC_GPU ? pairs * d->crc_parts * sizeof(uint32_t) : 0;
    qr_cu_address address = 0;
    qr_cu_result result = qr_gpu_alloc_pinned(d->cuda, bytes, &d->pinned, &address);
    if (result != QR_CU_SUCCESS)
        return qr_gpu_explain(d->cuda, result, "out of pinned memory for the lists of jobs");
    d->pairs = d->pinned;
    d->areas = d->pairs + pairs;
    d->crcs = (uint32_t *)(void *)(d->areas + areas);
    d->pairs_address = address;
    d->areas_address = address + pairs * sizeof(qr_block_pair);
    d->crcs_address = d->areas_address + areas * sizeof(qr_block_pair);
    return QUIRE_OK;
}

static qr_cu_result make_streams(qr_cuda_device *d)
{
    qr_cu_result result = QR_CU_SUCCESS;
    for (int i = 0; i < QR_NUM_STREAMS && result == QR_CU_SUCCESS; i++)
        result = qr_gpu_make_stream(d->cuda, &d->streams[i]);
    if (result == QR_CU_SUCCESS)
        result = qr_gpu_make_events(d->cuda, d->marks, QR_NUM_MARKS);
    if (result == QR_CU_SUCCESS)
        result = qr_gpu_make_events(d->cuda, d->area_done, QR_NUM_AREAS);
    if (result == QR_CU_SUCCESS)
        result = qr_gpu_make_events(d->cuda, &d->crc_done, 1);
    if (result == QR_CU_SUCCESS)
        result = qr_gpu_make_events(d->cuda, d->done, d->max_jobs);
    return result;
}

static int set_up_device(qr_cuda_device *d, const quire_device_cuda_config *config)
{
    int status = pin_slots(d, config);
    if (status == QUIRE_OK)
        status = take_pinned(d);
    if (status != QUIRE_OK)
        return status;
    qr_cu_result result = make_streams(d);
    if (result != QR_CU_SUCCESS)
        return qr_gpu_explain(d->cuda, result, "cannot create streams and events on the GPU");
    if (d->cuda->info.has_kernels != 0 && d->map.is_aligned)
        result = qr_cuda_map_upload(&d->map, d->cuda);
    bool is_staged =
        d->copier.method[0] == QUIRE_CUDA_STAGED || d->copier.method[1] == QUIRE_CUDA_STAGED;
    if (result == QR_CU_SUCCESS && is_staged)
        result = qr_cuda_stage_open(&d->stage, d->cuda, &d->map, config->stage_bytes,
                                    config->max_copies);
    if (result != QR_CU_SUCCESS)
        return qr_gpu_explain(d->cuda, result, "out of GPU memory for maps and stages");
    return QUIRE_OK;
}

void qr_cuda_device_release(qr_cuda_device *d)
{
    const qr_cuda_calls *calls = &d->cuda->driver.calls;
    if (qr_gpu_enter(d->cuda) == QUIRE_OK) {
        for (int i = 0; i < QR_NUM_STREAMS; i++)
            qr_gpu_drop_stream(d->cuda, d->streams[i]);
        if (d->areas != NULL) /* copies between blocks still read them */
            (void)calls->cuStreamSynchronize(d->cuda->stream);
        qr_gpu_drop_events(d->cuda, d->marks, QR_NUM_MARKS);
        qr_gpu_drop_events(d->cuda, d->area_done, QR_NUM_AREAS);
        qr_gpu_drop_events(d->cuda, &d->crc_done, 1);
        qr_gpu_drop_events(d->cuda, d->done, d->max_jobs);
        qr_cuda_stage_release(&d->stage, d->cuda);
        qr_cuda_map_release(&d->map, d->cuda);
        if (d->pinned != NULL)
            (void)calls->cuMemFreeHost(d->pinned);
        if (d->has_pinned_slots)
            (void)calls->cuMemHostUnregister(d->copier.slots);
        qr_gpu_leave(d->cuda);
    }
    qr_owner_release(&d->owner);
}

/* ---- opening --------------------------------------------------------------- */

static int open_device(const quire_device_cuda_config *config, const quire_allocator *allocator,
                       quire_device *device)
{
    qr_cuda_device *d = create_cuda_device(config, allocator);
    if (d == NULL)
        return qr_fail(QUIRE_E_NOMEM, "out of memory for a GPU device of %u jobs",
                       config->max_jobs);
    const char *wrong =
        qr_cuda_map_fill(&d->map, config->regions, config->num_regions, config->num_blocks);
    if (wrong == NULL && d->map.block_bytes > SIZE_MAX / 2 / config->num_slots)
        wrong = "the slots together exceed the address space";
    if (wrong == NULL && (uint64_t)d->map.num_chunks * config->max_copies > UINT32_MAX / 2)
        wrong = "a job of max_copies would be more than 8 TiB";
    if (wrong == NULL)
        wrong = choose_methods(d, config);
    if (wrong != NULL) {
        qr_say("the GPU device's config: %s", wrong);
        qr_owner_release(&d->owner);
        return QUIRE_E_CONFIG;
    }
    d->copier.cuda = d->cuda;
    d->copier.map = &d->map;
    int status = qr_gpu_enter(d->cuda);
    if (status == QUIRE_OK) {
        status = set_up_device(d, config);
        qr_gpu_leave(d->cuda);
    } else {
        qr_say("the GPU is broken: %s", d->cuda->info.what);
    }
    if (status != QUIRE_OK)
        qr_cuda_device_release(d);
    else
        *device = (quire_device){&QR_CUDA_OPS, d};
    return status;
}

QUIRE_API int quire_device_cuda_open(const quire_device_cuda_config *callers,
                                     const quire_allocator *allocator, quire_device *device)
{
    quire_device_cuda_config config;
    int status = qr_refuse_opening(&config, sizeof config, callers, device, allocator,
                                   "the GPU device's config");
    if (status != QUIRE_OK)
        return status;
    const char *wrong = what_is_wrong_with(&config);
    if (wrong != NULL)
        return qr_fail(QUIRE_E_CONFIG, "the GPU device's config: %s", wrong);
    config.max_jobs = config.max_jobs == 0 ? MANY : config.max_jobs;
    config.max_copies = config.max_copies == 0 ? MANY : config.max_copies;
    config.max_pieces = config.max_pieces == 0 ? SOME_PIECES : config.max_pieces;
    config.max_bytes = config.max_bytes == 0 ? SOME_BYTES : config.max_bytes;
    config.num_ctas = config.num_ctas == 0 ? SOME_CTAS : config.num_ctas;
    config.engine_from = config.engine_from == 0 ? ENGINE_FROM : config.engine_from;
    config.staged_from = config.staged_from == 0 ? STAGED_FROM : config.staged_from;
    config.stage_bytes = config.stage_bytes == 0 ? STAGE_BYTES : config.stage_bytes;
    return open_device(&config, allocator, device);
}

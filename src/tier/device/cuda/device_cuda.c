#include "tier/device/cuda/device_cuda.h"

#include <quire/tier.h>

/* ---- marks ----------------------------------------------------------------- */

static int cuda_mark(void *self, uint64_t *mark)
{
    qr_cuda_device *d = self;
    if (mark == NULL)
        return QUIRE_E_ARGUMENT;
    if (d->cuda->info.is_broken != 0 || qr_gpu_enter(d->cuda) != QUIRE_OK)
        return QUIRE_E_SYSTEM;
    qr_cu_event event = d->marks[(d->last_mark + 1) % QR_NUM_MARKS];
    qr_cu_result result = d->cuda->driver.calls.cuEventRecord(event, d->cuda->stream);
    if (result != QR_CU_SUCCESS)
        qr_gpu_break(d->cuda, result, "cuEventRecord");
    qr_gpu_leave(d->cuda);
    if (result != QR_CU_SUCCESS)
        return QUIRE_E_SYSTEM;
    *mark = ++d->last_mark;
    return QUIRE_OK;
}

/* ---- submitting ------------------------------------------------------------ */

static int check_cuda_job(const qr_cuda_device *d, const quire_device_job *job)
{
    if (job == NULL || job->state != 0 || (job->num_copies > 0 && job->copies == NULL) ||
        (job->op != QUIRE_DEVICE_STORE && job->op != QUIRE_DEVICE_LOAD))
        return QUIRE_E_ARGUMENT;
    if (job->after > d->last_mark || job->num_copies > d->max_copies)
        return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < job->num_copies; i++)
        if (job->copies[i].block >= d->map.num_blocks || job->copies[i].slot >= d->num_slots)
            return QUIRE_E_RANGE;
    return QUIRE_OK;
}

/* Pieces that the copy engine gets for a job. What it has not begun takes room in the driver, and a
 * full driver waits: that is why they are counted. */
static uint64_t count_pieces(const qr_cuda_device *d, const quire_device_job *job)
{
    enum { PIECES_OF_A_STAGE = 256 }; /* a launch, a batch, and events around them */
    uint32_t in_stage = d->stage.blocks_in_stage;
    quire_cuda_method method = d->copier.method[job->op == QUIRE_DEVICE_STORE ? 0 : 1];
    if (method == QUIRE_CUDA_KERNEL)
        return 0;
    if (method == QUIRE_CUDA_STAGED)
        return ((uint64_t)job->num_copies + in_stage - 1) / in_stage * PIECES_OF_A_STAGE;
    return (uint64_t)job->num_copies * d->map.num_regions;
}

/* What the driver has no room for, it waits for: so it gets no more than it has room for, and the
 * rest waits for the next poll. */
static bool has_room(const qr_cuda_device *d, const quire_device_job *job, uint64_t pieces)
{
    uint64_t in_flight = d->bytes_in_flight[job->op == QUIRE_DEVICE_STORE ? 0 : 1];
    uint64_t bytes = pieces == 0 ? 0 : job->num_copies * d->map.block_bytes;
    return (d->pieces_in_flight == 0 || d->pieces_in_flight + pieces <= d->max_pieces) &&
           (in_flight == 0 || in_flight + bytes <= d->max_bytes);
}

static void count_in_flight(qr_cuda_device *d, const quire_device_job *job, bool begins)
{
    uint64_t pieces = count_pieces(d, job);
    uint64_t bytes = pieces == 0 ? 0 : job->num_copies * d->map.block_bytes;
    uint64_t *in_flight = &d->bytes_in_flight[job->op == QUIRE_DEVICE_STORE ? 0 : 1];
    d->pieces_in_flight = begins ? d->pieces_in_flight + pieces : d->pieces_in_flight - pieces;
    *in_flight = begins ? *in_flight + bytes : *in_flight - bytes;
}

static qr_cu_result wait_in_stream(qr_cuda_device *d, const quire_device_job *job,
                                   qr_cu_stream stream)
{
    if (job->after == 0 || d->ignores_marks)
        return QR_CU_SUCCESS;
    return d->cuda->driver.calls.cuStreamWaitEvent(stream, d->marks[job->after % QR_NUM_MARKS], 0);
}

/* Beside the copy, from the same source; the copy's stream then waits for it. All multiprocessors
 * do a little of it: where one has much to do, the engine's CTAs on it end late. */
static qr_cu_result start_crc(qr_cuda_device *d, const quire_device_job *job, uint32_t slot)
{
    const qr_cuda_calls *calls = &d->cuda->driver.calls;
    qr_cu_stream stream = d->streams[QR_STREAM_CRC];
    size_t first = (size_t)slot * d->max_copies;
    qr_cu_result result = wait_in_stream(d, job, stream);
    if (result == QR_CU_SUCCESS)
        result =
            qr_cuda_crc(d->cuda, &d->map, d->pairs_address + first * sizeof *d->pairs,
                        job->num_copies, d->crcs_address + first * d->crc_parts * sizeof *d->crcs,
                        d->cuda->info.num_multiprocessors, stream);
    if (result == QR_CU_SUCCESS)
        result = calls->cuEventRecord(d->crc_done, stream);
    return result;
}

/* The copies themselves, after the mark; *last is the stream that ends with them. */
static qr_cu_result start_copies(qr_cuda_device *d, const quire_device_job *job, uint32_t slot,
                                 qr_cu_stream *last)
{
    int which = job->op == QUIRE_DEVICE_STORE ? QR_STREAM_STORE : QR_STREAM_LOAD;
    bool is_staged = d->copier.method[which] == QUIRE_CUDA_STAGED;
    size_t first = (size_t)slot * d->max_copies;
    const qr_block_pair *pairs = &d->pairs[first];
    qr_cu_address address = d->pairs_address + first * sizeof *d->pairs;
    *last = is_staged && which == QR_STREAM_LOAD ? d->stage.kernels[which] : d->streams[which];
    qr_cu_result result =
        wait_in_stream(d, job, is_staged ? d->stage.kernels[which] : d->streams[which]);
    if (result != QR_CU_SUCCESS)
        return result;
    if (is_staged)
        return qr_cuda_stage_copy(&d->stage, &d->copier, job->op, pairs, address, job->num_copies,
                                  d->streams[which]);
    return qr_cuda_copy(&d->copier, job->op, pairs, address, job->num_copies, d->streams[which]);
}

static void start_job(qr_cuda_device *d, quire_device_job *job, uint32_t slot)
{
    const qr_cuda_calls *calls = &d->cuda->driver.calls;
    bool has_crc =
        job->op == QUIRE_DEVICE_STORE && d->crc == QUIRE_CUDA_CRC_GPU && job->num_copies > 0;
    qr_cu_stream last = NULL;
    qr_cu_result result = QR_CU_SUCCESS;
    const char *call = "CRC kernel";
    for (uint32_t i = 0; i < job->num_copies; i++)
        d->pairs[(size_t)slot * d->max_copies + i] =
            (qr_block_pair){job->copies[i].block, job->copies[i].slot};
    if (has_crc)
        result = start_crc(d, job, slot);
    if (result == QR_CU_SUCCESS) {
        call = "copies";
        result = start_copies(d, job, slot, &last);
    }
    if (result == QR_CU_SUCCESS && has_crc)
        result = calls->cuStreamWaitEvent(last, d->crc_done, 0);
    if (result == QR_CU_SUCCESS) {
        call = "cuEventRecord";
        result = calls->cuEventRecord(d->done[slot], last);
    }
    if (result != QR_CU_SUCCESS)
        qr_gpu_break(d->cuda, result, call);
}

/* A job whose beginning fails is taken all the same: some of it may be on its way, and poll ends it
 * when that is over. */
static int cuda_submit(void *self, quire_device_job *job)
{
    qr_cuda_device *d = self;
    if (d->cuda->info.is_broken != 0 || qr_fork_guard_is_child(&d->cuda->guard))
        return QUIRE_E_SYSTEM;
    int status = check_cuda_job(d, job);
    if (status != QUIRE_OK)
        return status;
    if (d->num_free == 0 || !has_room(d, job, count_pieces(d, job)))
        return QUIRE_FULL;
    if (qr_gpu_enter(d->cuda) != QUIRE_OK)
        return QUIRE_E_SYSTEM;
    uint32_t slot = d->free_slots[--d->num_free];
    qr_cuda_queue *queue = &d->queues[job->op == QUIRE_DEVICE_STORE ? 0 : 1];
    d->jobs[slot] = job;
    job->state = slot + 1;
    queue->slots[queue->last++ % d->max_jobs] = slot;
    count_in_flight(d, job, true);
    start_job(d, job, slot);
    qr_gpu_leave(d->cuda);
    return QUIRE_OK;
}

/* ---- ends ------------------------------------------------------------------ */

static uint32_t sum_parts(const qr_cuda_device *d, const uint32_t *parts)
{
    uint32_t sum = d->map.crc_constant;
    for (uint32_t i = 0; i < d->crc_parts; i++)
        sum ^= parts[i];
    return sum;
}

static void set_crcs(qr_cuda_device *d, quire_device_job *job, uint32_t slot)
{
    const uint32_t *crcs = &d->crcs[(size_t)slot * d->max_copies * d->crc_parts];
    bool is_store = job->op == QUIRE_DEVICE_STORE;
    for (uint32_t i = 0; i < job->num_copies; i++) {
        quire_device_copy *copy = &job->copies[i];
        if (!is_store || d->crc == QUIRE_CUDA_CRC_NONE)
            copy->crc = 0;
        else if (d->crc == QUIRE_CUDA_CRC_GPU)
            copy->crc = sum_parts(d, &crcs[(size_t)i * d->crc_parts]);
        else
            copy->crc = quire_crc32c(0, d->copier.slots + copy->slot * d->map.block_bytes,
                                     (size_t)d->map.block_bytes);
    }
}

static quire_device_job *end_first(qr_cuda_device *d, qr_cuda_queue *queue, int status)
{
    uint32_t slot = queue->slots[queue->first++ % d->max_jobs];
    quire_device_job *job = d->jobs[slot];
    uint64_t bytes = job->num_copies * d->map.block_bytes;
    d->jobs[slot] = NULL;
    d->free_slots[d->num_free++] = slot;
    count_in_flight(d, job, false);
    if (status == QUIRE_OK)
        set_crcs(d, job, slot);
    d->stats.jobs++;
    d->stats.failed_jobs += status == QUIRE_OK ? 0 : 1;
    if (status == QUIRE_OK && job->op == QUIRE_DEVICE_STORE)
        d->stats.bytes_stored += bytes;
    else if (status == QUIRE_OK)
        d->stats.bytes_loaded += bytes;
    job->status = status;
    job->state = 0;
    return job;
}

/* After an error: whether a queue's streams have come to rest, by ending or with the context. */
static bool is_queue_at_rest(const qr_cuda_device *d, int which)
{
    const qr_cuda_calls *calls = &d->cuda->driver.calls;
    if (qr_gpu_is_not_known(calls->cuStreamQuery(d->streams[which])))
        return false;
    if (d->stage.kernels[which] != NULL &&
        qr_gpu_is_not_known(calls->cuStreamQuery(d->stage.kernels[which])))
        return false;
    return which != QR_STREAM_STORE ||
           !qr_gpu_is_not_known(calls->cuStreamQuery(d->streams[QR_STREAM_CRC]));
}

/* Whether the first of a queue has ended, and how. A context that cannot be entered is gone, and
 * its streams with it: they must not even be asked. */
static bool has_first_ended(qr_cuda_device *d, int which, bool has_entered, int *status)
{
    const qr_cuda_queue *queue = &d->queues[which];
    if (queue->first == queue->last)
        return false;
    uint32_t slot = queue->slots[queue->first % d->max_jobs];
    *status = QUIRE_OK;
    if (d->cuda->info.is_broken == 0) {
        qr_cu_result result = d->cuda->driver.calls.cuEventQuery(d->done[slot]);
        if (result == QR_CU_SUCCESS)
            return true;
        if (qr_gpu_is_not_known(result))
            return false;
        qr_gpu_break(d->cuda, result, "a copy, or the computation before it");
    }
    *status = QUIRE_E_SYSTEM;
    return !has_entered || is_queue_at_rest(d, which);
}

static uint32_t cuda_poll(void *self, quire_device_job **jobs, uint32_t capacity)
{
    qr_cuda_device *d = self;
    uint32_t count = 0;
    int status;
    if (jobs == NULL || d->num_free == d->max_jobs || qr_fork_guard_is_child(&d->cuda->guard))
        return 0;
    bool has_entered = qr_gpu_enter(d->cuda) == QUIRE_OK;
    for (int which = 0; which < 2; which++)
        while (count < capacity && has_first_ended(d, which, has_entered, &status))
            jobs[count++] = end_first(d, &d->queues[which], status);
    if (has_entered)
        qr_gpu_leave(d->cuda);
    return count;
}

static void cuda_close(void *self)
{
    qr_cuda_device *d = self;
    if (!qr_fork_guard_is_child(&d->cuda->guard))
        qr_cuda_device_release(d);
}

const quire_device_ops QR_CUDA_OPS = {.abi = 1,
                                      .size = sizeof QR_CUDA_OPS,
                                      .name = "cuda",
                                      .mark = cuda_mark,
                                      .submit = cuda_submit,
                                      .poll = cuda_poll,
                                      .close = cuda_close};

qr_cuda_device *qr_cuda_device_of(const quire_device *device)
{
    return device != NULL && device->ops == &QR_CUDA_OPS ? device->self : NULL;
}

/* ---- in the engine's stream ------------------------------------------------ */

/* An area of pinned memory that no launch reads any more; QR_NUM_AREAS when there is none. */
static uint32_t find_area(qr_cuda_device *d)
{
    uint32_t area = d->next_area;
    if (!d->is_area_used[area])
        return area;
    qr_cu_result result = d->cuda->driver.calls.cuEventQuery(d->area_done[area]);
    if (result != QR_CU_SUCCESS && !qr_gpu_is_not_known(result))
        qr_gpu_break(d->cuda, result, "a copy between blocks, or the computation before it");
    return result == QR_CU_SUCCESS ? area : QR_NUM_AREAS;
}

static qr_block_pair *area_pairs(const qr_cuda_device *d, uint32_t area)
{
    return &d->areas[(size_t)area * d->max_copies];
}

static int send_area(qr_cuda_device *d, qr_copy_mode mode, uint32_t area, uint32_t n)
{
    qr_block_pair *pairs = area_pairs(d, area);
    qr_cu_address address = d->areas_address + (size_t)area * d->max_copies * sizeof *pairs;
    qr_cu_result result =
        qr_cuda_copy_within(d->cuda, &d->map, mode, pairs, address, n, d->cuda->stream);
    if (result == QR_CU_SUCCESS)
        result = d->cuda->driver.calls.cuEventRecord(d->area_done[area], d->cuda->stream);
    d->is_area_used[area] = true;
    d->next_area = (area + 1) % QR_NUM_AREAS;
    if (result == QR_CU_SUCCESS)
        return QUIRE_OK;
    qr_gpu_break(d->cuda, result, mode == QR_COPY_ZERO ? "zeroing blocks" : "copying blocks");
    return QUIRE_E_SYSTEM;
}

/* A list of blocks as kernels read it: pairs, or, to be zeroed, blocks. */
static qr_block_pair pair_at(const quire_cuda_pair *pairs, const quire_block *blocks, uint32_t i)
{
    if (pairs != NULL)
        return (qr_block_pair){pairs[i].from, pairs[i].to};
    return (qr_block_pair){blocks[i], blocks[i]};
}

static int check_list(const qr_cuda_device *d, const quire_cuda_pair *pairs,
                      const quire_block *blocks, uint32_t n)
{
    if (d == NULL || (n > 0 && pairs == NULL && blocks == NULL))
        return QUIRE_E_ARGUMENT;
    if (n > d->max_copies)
        return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < n; i++) {
        qr_block_pair pair = pair_at(pairs, blocks, i);
        if (pair.block >= d->map.num_blocks || pair.other >= d->map.num_blocks)
            return QUIRE_E_RANGE;
    }
    return d->cuda->info.is_broken != 0 ? QUIRE_E_SYSTEM : QUIRE_OK;
}

static int within(quire_device *device, const quire_cuda_pair *pairs, const quire_block *blocks,
                  uint32_t n)
{
    qr_cuda_device *d = qr_cuda_device_of(device);
    if (d != NULL && qr_fork_guard_is_child(&d->cuda->guard))
        return QUIRE_E_SYSTEM;
    int status = check_list(d, pairs, blocks, n);
    if (status != QUIRE_OK || n == 0)
        return status;
    if (qr_gpu_enter(d->cuda) != QUIRE_OK)
        return QUIRE_E_SYSTEM;
    uint32_t area = find_area(d);
    if (area == QR_NUM_AREAS) {
        status = d->cuda->info.is_broken != 0 ? QUIRE_E_SYSTEM : QUIRE_FULL;
    } else {
        for (uint32_t i = 0; i < n; i++)
            area_pairs(d, area)[i] = pair_at(pairs, blocks, i);
        status = send_area(d, pairs != NULL ? QR_COPY_BLOCKS : QR_COPY_ZERO, area, n);
    }
    qr_gpu_leave(d->cuda);
    return status;
}

QUIRE_API int quire_device_cuda_copy_blocks(quire_device *device, const quire_cuda_pair *pairs,
                                            uint32_t n)
{
    return within(device, pairs, NULL, n);
}

QUIRE_API int quire_device_cuda_zero_blocks(quire_device *device, const quire_block *blocks,
                                            uint32_t n)
{
    return within(device, NULL, blocks, n);
}

QUIRE_API const quire_device_cuda_stats *quire_device_cuda_get_stats(const quire_device *device)
{
    qr_cuda_device *d = qr_cuda_device_of(device);
    if (d == NULL)
        return NULL;
    quire_device_cuda_stats *stats = &d->stats;
    stats->method = d->copier.method[1];
    stats->store_method = d->copier.method[0];
    stats->crc = d->crc;
    stats->pieces_in_block = d->map.num_regions;
    stats->in_flight = d->max_jobs - d->num_free;
    return stats;
}

QUIRE_API int quire_device_cuda_ignore_marks(quire_device *device, uint32_t ignores_marks)
{
    qr_cuda_device *d = qr_cuda_device_of(device);
    if (d == NULL)
        return QUIRE_E_ARGUMENT;
    d->ignores_marks = ignores_marks != 0;
    return QUIRE_OK;
}

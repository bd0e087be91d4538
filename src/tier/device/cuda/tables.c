/* tier/device/cuda/tables.c - block tables and slot mapping on a GPU, of which only changes are
 * sent.
 *
 *      step (pinned, `depth` of them)   | changes ... | ids ... | numbers ... |  ── one launch ──►
 *      device memory                    entries (int32, rows x stride), slots (int64)
 *
 * A step's memory is free again when its event has come.
 */
#include "tier/device/cuda/gpu.h"
#include "tier/device/cuda/kernels.h"

#include "base/arena.h"
#include "base/refuse.h"

enum { SOME_DEPTH = 4, MOST_DEPTH = 64, TABLE_CTAS = 256 };
#define MOST_ENTRIES (UINT32_C(1) << 20)

typedef struct table_step {
    qr_table_change *changes;
    int64_t *numbers;
    int32_t *ids;
    qr_cu_address changes_address;
    qr_cu_address numbers_address;
    qr_cu_address ids_address;
    qr_cu_event done;
    bool is_out;
} table_step;

struct quire_cuda_tables {
    quire_cuda_tables_config config;
    qr_cu_address memory; /* entries, then slots */
    qr_cu_address slots;
    void *pinned;
    table_step *steps;
    uint32_t at; /* the step that is being filled */
    uint32_t num_changes;
    uint32_t num_ids;
    uint32_t num_numbers;
    qr_owner owner;
};

/* ---- changes --------------------------------------------------------------- */

/* Whether the present step's memory is free to be filled. */
static int begin_step(quire_cuda_tables *t)
{
    quire_cuda *cuda = t->config.cuda;
    table_step *step = &t->steps[t->at];
    if (cuda->info.is_broken != 0 || qr_fork_guard_is_child(&cuda->guard))
        return QUIRE_E_SYSTEM;
    if (!step->is_out)
        return QUIRE_OK;
    if (qr_gpu_enter(cuda) != QUIRE_OK)
        return QUIRE_E_SYSTEM;
    qr_cu_result result = cuda->driver.calls.cuEventQuery(step->done);
    bool is_known = !qr_gpu_is_not_known(result);
    if (result != QR_CU_SUCCESS && is_known)
        qr_gpu_break(cuda, result, "tables, or the computation before them");
    qr_gpu_leave(cuda);
    if (result != QR_CU_SUCCESS)
        return is_known ? QUIRE_E_SYSTEM : QUIRE_FULL;
    step->is_out = false;
    return QUIRE_OK;
}

/* Room for one change of so many entries, slots counted twice. */
static int check_room(quire_cuda_tables *t, uint64_t entries)
{
    int status = begin_step(t);
    if (status != QUIRE_OK)
        return status;
    if (t->num_changes == t->config.max_changes ||
        t->num_ids + 2 * (uint64_t)t->num_numbers + entries > t->config.max_entries)
        return QUIRE_FULL;
    return QUIRE_OK;
}

QUIRE_API int quire_cuda_tables_set(quire_cuda_tables *t, uint32_t row, uint32_t first,
                                    const int32_t *ids, uint32_t n)
{
    if (t == NULL || (n > 0 && ids == NULL))
        return QUIRE_E_ARGUMENT;
    if (row >= t->config.num_rows || first > t->config.row_stride ||
        n > t->config.row_stride - first)
        return QUIRE_E_RANGE;
    int status = n == 0 ? QUIRE_OK : check_room(t, n);
    if (status != QUIRE_OK || n == 0)
        return status;
    table_step *step = &t->steps[t->at];
    step->changes[t->num_changes++] = (qr_table_change){
        .target = (uint64_t)row * t->config.row_stride + first, .source = t->num_ids, .count = n};
    memcpy(&step->ids[t->num_ids], ids, n * sizeof *ids);
    t->num_ids += n;
    return QUIRE_OK;
}

QUIRE_API int quire_cuda_tables_set_slots(quire_cuda_tables *t, uint32_t first,
                                          const int64_t *slots, uint32_t n)
{
    if (t == NULL || (n > 0 && slots == NULL))
        return QUIRE_E_ARGUMENT;
    if (first > t->config.num_slots || n > t->config.num_slots - first)
        return QUIRE_E_RANGE;
    int status = n == 0 ? QUIRE_OK : check_room(t, 2 * (uint64_t)n);
    if (status != QUIRE_OK || n == 0)
        return status;
    table_step *step = &t->steps[t->at];
    step->changes[t->num_changes++] =
        (qr_table_change){.target = first, .source = t->num_numbers, .count = n, .is_slots = 1};
    memcpy(&step->numbers[t->num_numbers], slots, n * sizeof *slots);
    t->num_numbers += n;
    return QUIRE_OK;
}

QUIRE_API int quire_cuda_tables_send(quire_cuda_tables *t)
{
    if (t == NULL)
        return QUIRE_E_ARGUMENT;
    quire_cuda *cuda = t->config.cuda;
    table_step *step = &t->steps[t->at];
    if (cuda->info.is_broken != 0 || qr_fork_guard_is_child(&cuda->guard))
        return QUIRE_E_SYSTEM;
    if (t->num_changes == 0)
        return QUIRE_OK;
    if (qr_gpu_enter(cuda) != QUIRE_OK)
        return QUIRE_E_SYSTEM;
    qr_tables_args args = {.changes = step->changes_address,
                           .ids = step->ids_address,
                           .numbers = step->numbers_address,
                           .entries = t->memory,
                           .slots = t->slots,
                           .num_changes = t->num_changes};
    uint32_t ctas = t->num_changes < TABLE_CTAS ? t->num_changes : TABLE_CTAS;
    qr_cu_result result =
        qr_gpu_launch(cuda, QR_KERNEL_TABLES, ctas, QR_TABLES_THREADS, cuda->stream, &args);
    if (result == QR_CU_SUCCESS)
        result = cuda->driver.calls.cuEventRecord(step->done, cuda->stream);
    if (result != QR_CU_SUCCESS)
        qr_gpu_break(cuda, result, "sending tables");
    qr_gpu_leave(cuda);
    if (result != QR_CU_SUCCESS)
        return QUIRE_E_SYSTEM;
    step->is_out = true;
    t->at = (t->at + 1) % t->config.depth;
    t->num_changes = 0;
    t->num_ids = 0;
    t->num_numbers = 0;
    return QUIRE_OK;
}

QUIRE_API quire_cuda_tables_view quire_cuda_tables_get_view(const quire_cuda_tables *t)
{
    if (t == NULL)
        return (quire_cuda_tables_view){0};
    return (quire_cuda_tables_view){t->memory, t->slots, t->config.num_rows, t->config.row_stride,
                                    t->config.num_slots};
}

/* ---- opening --------------------------------------------------------------- */

static const char *set_table_defaults(quire_cuda_tables_config *config)
{
    if (config->cuda == NULL || config->num_rows == 0 || config->row_stride == 0)
        return "cuda is NULL, or num_rows or row_stride is 0";
    uint64_t all = (uint64_t)config->num_rows * config->row_stride;
    if (all > UINT32_MAX || config->num_slots > UINT32_MAX / 4 ||
        config->num_rows > UINT32_MAX / 4 || config->depth > MOST_DEPTH)
        return "the table has more than 2^32 entries, or depth is above 64";
    if (config->depth == 0)
        config->depth = SOME_DEPTH;
    if (config->max_changes == 0)
        config->max_changes = 2 * config->num_rows + 16;
    if (config->max_entries == 0)
        config->max_entries =
            (uint32_t)(all < MOST_ENTRIES ? all : MOST_ENTRIES) + 2 * config->num_slots;
    return NULL;
}

static quire_cuda_tables *create_tables(const quire_cuda_tables_config *config,
                                        const quire_allocator *allocator)
{
    qr_owner owner;
    qr_arena plan = qr_arena_plan();
    (void)qr_arena_take(&plan, 1, sizeof(quire_cuda_tables));
    (void)qr_arena_take(&plan, config->depth, sizeof(table_step));
    qr_arena arena = qr_owner_carve(&owner, allocator, plan.used);
    if (arena.base == NULL)
        return NULL;
    quire_cuda_tables *t = qr_arena_take(&arena, 1, sizeof *t);
    t->steps = qr_arena_take(&arena, config->depth, sizeof(table_step));
    t->config = *config;
    t->owner = owner;
    return t;
}

/* numbers and ids share max_entries words; ids may need all of them, and so may numbers. */
static qr_cu_result take_steps(quire_cuda_tables *t)
{
    const quire_cuda *cuda = t->config.cuda;
    size_t change_bytes = t->config.max_changes * sizeof(qr_table_change);
    size_t number_bytes = (size_t)(t->config.max_entries / 2 + 1) * sizeof(int64_t);
    size_t id_bytes = ((size_t)t->config.max_entries + 1) / 2 * 2 * sizeof(int32_t);
    size_t step_bytes = change_bytes + number_bytes + id_bytes;
    qr_cu_address address = 0;
    qr_cu_result result =
        qr_gpu_alloc_pinned(cuda, step_bytes * t->config.depth, &t->pinned, &address);
    for (uint32_t i = 0; i < t->config.depth && result == QR_CU_SUCCESS; i++) {
        table_step *step = &t->steps[i];
        unsigned char *base = (unsigned char *)t->pinned + i * step_bytes;
        step->changes = (qr_table_change *)(void *)base;
        step->numbers = (int64_t *)(void *)(base + change_bytes);
        step->ids = (int32_t *)(void *)(base + change_bytes + number_bytes);
        step->changes_address = address + i * step_bytes;
        step->numbers_address = step->changes_address + change_bytes;
        step->ids_address = step->numbers_address + number_bytes;
        result = qr_gpu_make_events(cuda, &step->done, 1);
    }
    return result;
}

static qr_cu_result take_tables(quire_cuda_tables *t)
{
    quire_cuda *cuda = t->config.cuda;
    const qr_cuda_calls *calls = &cuda->driver.calls;
    size_t entry_bytes = (size_t)t->config.num_rows * t->config.row_stride * sizeof(int32_t);
    entry_bytes = (entry_bytes + 15) / 16 * 16;
    size_t slot_bytes = (size_t)t->config.num_slots * sizeof(int64_t);
    qr_cu_result result = qr_gpu_alloc(cuda, entry_bytes + slot_bytes, &t->memory);
    if (result != QR_CU_SUCCESS)
        return result;
    t->slots = t->memory + entry_bytes;
    result = calls->cuMemsetD8Async(t->memory, 0, entry_bytes, cuda->stream);
    if (result == QR_CU_SUCCESS && slot_bytes > 0)
        result = calls->cuMemsetD8Async(t->slots, 255, slot_bytes, cuda->stream);
    return result == QR_CU_SUCCESS ? take_steps(t) : result;
}

QUIRE_API int quire_cuda_tables_open(const quire_cuda_tables_config *callers,
                                     const quire_allocator *allocator, quire_cuda_tables **tables)
{
    quire_cuda_tables_config config;
    int status =
        qr_refuse_opening(&config, sizeof config, callers, tables, allocator, "the tables' config");
    if (status != QUIRE_OK)
        return status;
    const char *wrong = set_table_defaults(&config);
    if (wrong != NULL)
        return qr_fail(QUIRE_E_CONFIG, "the tables' config: %s", wrong);
    if (config.cuda->info.has_kernels == 0)
        return qr_fail(QUIRE_E_SYSTEM, "tables on the GPU need kernels: %s",
                       config.cuda->info.what);
    quire_cuda_tables *t = create_tables(&config, allocator);
    if (t == NULL)
        return qr_fail(QUIRE_E_NOMEM, "out of memory for tables of %u steps", config.depth);
    status = qr_gpu_enter(config.cuda);
    if (status == QUIRE_OK) {
        qr_cu_result result = take_tables(t);
        if (result != QR_CU_SUCCESS)
            status = qr_gpu_explain(config.cuda, result, "out of memory for tables");
        qr_gpu_leave(config.cuda);
    } else {
        qr_say("the GPU is broken: %s", config.cuda->info.what);
    }
    if (status != QUIRE_OK)
        quire_cuda_tables_close(t);
    else
        *tables = t;
    return status;
}

QUIRE_API void quire_cuda_tables_close(quire_cuda_tables *t)
{
    if (t == NULL || qr_fork_guard_is_child(&t->config.cuda->guard))
        return;
    const qr_cuda_calls *calls = &t->config.cuda->driver.calls;
    if (qr_gpu_enter(t->config.cuda) == QUIRE_OK) {
        (void)calls->cuStreamSynchronize(t->config.cuda->stream);
        for (uint32_t i = 0; i < t->config.depth; i++)
            qr_gpu_drop_events(t->config.cuda, &t->steps[i].done, 1);
        if (t->pinned != NULL)
            (void)calls->cuMemFreeHost(t->pinned);
        qr_gpu_free(t->config.cuda, t->memory);
        qr_gpu_leave(t->config.cuda);
    }
    qr_owner_release(&t->owner);
}

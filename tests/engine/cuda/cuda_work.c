#include "engine/cuda/cuda.h"

#include <string.h>

int engine_cuda_launch(engine_cuda *b, qr_cu_function kernel, const void *args, uint32_t num_blocks)
{
    void *arguments[] = {(void *)(uintptr_t)args};
    return engine_cuda_status(
        b->card->driver.calls.cuLaunchKernel(kernel, num_blocks, 1, 1, ENGINE_KERNEL_THREADS, 1, 1,
                                             b->shared_bytes, b->stream, arguments, NULL));
}

int engine_cuda_finish(engine_cuda *b)
{
    return engine_cuda_status(b->card->driver.calls.cuStreamSynchronize(b->stream));
}

/* ---- what a kernel would believe without looking ---------------------------- */

static bool are_blocks_good(const engine_cuda *b, const quire_block *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (blocks[i] >= b->config.num_blocks)
            return false;
    return true;
}

static bool are_slots_good(const engine_cuda *b, const engine_work *w)
{
    for (uint32_t g = 0; g < b->model->config.num_groups && w->num_tokens > 0; g++) {
        int64_t end = (int64_t)b->config.num_blocks * b->config.block_sizes[g];
        for (uint32_t i = 0; i < w->num_tokens; i++)
            if (w->slot_mappings[g][i] < QUIRE_PAD_SLOT || w->slot_mappings[g][i] >= end)
                return false;
    }
    return true;
}

static bool are_spans_good(const engine_cuda *b, const engine_work *w)
{
    const engine_model_config *c = &b->model->config;
    uint32_t next = 0;
    for (uint32_t s = 0; s < w->num_spans; s++) {
        const engine_span *span = &w->spans[s];
        if (span->row >= b->config.max_rows || span->first_token != next ||
            span->num_tokens > w->num_tokens - next || span->first_position > c->max_positions ||
            span->num_tokens > c->max_positions - span->first_position)
            return false;
        next += span->num_tokens;
        for (uint32_t g = 0; g < c->num_groups; g++)
            if ((uint64_t)b->config.max_row_blocks * b->config.block_sizes[g] <
                span->first_position + span->num_tokens)
                return false;
    }
    for (uint32_t i = 0; i < w->num_tokens; i++)
        if ((uint32_t)w->tokens[i] >= c->vocabulary)
            return false;
    return next == w->num_tokens;
}

static bool is_work_good(const engine_cuda *b, const engine_work *w)
{
    if (w->num_tokens > b->config.max_tokens || w->num_logits > b->config.max_logits ||
        !are_spans_good(b, w) || !are_slots_good(b, w) ||
        !are_blocks_good(b, w->swap_out_blocks, w->num_swap_out) ||
        !are_blocks_good(b, w->swap_in_blocks, w->num_swap_in))
        return false;
    for (uint32_t i = 0; i < w->num_logits; i++)
        if (w->logit_tokens[i] >= w->num_tokens)
            return false;
    for (uint32_t i = 0; i < w->num_diffs; i++)
        if (!are_blocks_good(b, w->diffs[i].blocks, w->diffs[i].count) ||
            w->diffs[i].group >= b->model->config.num_groups ||
            w->diffs[i].row >= b->config.max_rows)
            return false;
    for (uint32_t i = 0; i < w->num_swap_out; i++)
        if (w->swap_out_slots[i] >= b->config.num_swap_blocks)
            return false;
    for (uint32_t i = 0; i < w->num_swap_in; i++)
        if (w->swap_in_slots[i] >= b->config.num_swap_blocks)
            return false;
    return true;
}

/* ---- blocks ---------------------------------------------------------------- */

static int swap_block(engine_cuda *b, quire_block block, uint32_t slot, bool is_out)
{
    const qr_cuda_calls *cu = &b->card->driver.calls;
    unsigned char *host = b->swap + slot * engine_block_bytes(&b->config);
    qr_cu_result result = QR_CU_SUCCESS;
    for (uint32_t i = 0; result == QR_CU_SUCCESS && i < b->pages.num_regions; i++) {
        const quire_cuda_region *region = &b->pages.regions[i];
        qr_cu_address page = region->base + block * region->stride;
        size_t bytes = (size_t)region->bytes;
        result = is_out ? cu->cuMemcpyDtoHAsync(host, page, bytes, b->stream)
                        : cu->cuMemcpyHtoDAsync(page, host, bytes, b->stream);
        host += bytes;
    }
    return engine_cuda_status(result);
}

static int copy_blocks(engine_cuda *b, const quire_block_copy *copies, uint32_t n)
{
    quire_cuda_pair pairs[128];
    for (uint32_t done = 0; done < n;) {
        uint32_t count = 0;
        for (; count < 128 && done + count < n; count++)
            pairs[count] = (quire_cuda_pair){copies[done + count].from, copies[done + count].to};
        int status = quire_device_cuda_copy_blocks(&b->device, pairs, count);
        if (status == QUIRE_FULL) /* many on their way: not in a step of ordinary size */
            status = engine_cuda_finish(b);
        else if (status == QUIRE_OK)
            done += count;
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

static int zero_blocks(engine_cuda *b, const quire_block *blocks, uint32_t n)
{
    for (uint32_t done = 0; done < n;) {
        uint32_t count = n - done < 128 ? n - done : 128;
        int status = quire_device_cuda_zero_blocks(&b->device, blocks + done, count);
        if (status == QUIRE_FULL)
            status = engine_cuda_finish(b);
        else if (status == QUIRE_OK)
            done += count;
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

static int move_blocks(engine_cuda *b, const engine_work *w)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < w->num_swap_out; i++)
        status = swap_block(b, w->swap_out_blocks[i], w->swap_out_slots[i], true);
    if (status == QUIRE_OK)
        status = zero_blocks(b, w->zero_blocks, w->num_zero);
    for (uint32_t i = 0; status == QUIRE_OK && i < w->num_swap_in; i++)
        status = swap_block(b, w->swap_in_blocks[i], w->swap_in_slots[i], false);
    if (status == QUIRE_OK)
        status = copy_blocks(b, w->copies, w->num_copies);
    return status;
}

/* ---- tables ---------------------------------------------------------------- */

static int set_row(engine_cuda *b, const engine_table_diff *d)
{
    uint32_t row = d->group * b->config.max_rows + d->row;
    const int32_t *ids = (const int32_t *)d->blocks;
    int status = quire_cuda_tables_set(b->tables, row, d->first, ids, d->count);
    if (status != QUIRE_FULL)
        return status;
    status = quire_cuda_tables_send(b->tables); /* more diffs than one send takes */
    if (status == QUIRE_OK)
        status = engine_cuda_finish(b);
    if (status == QUIRE_OK)
        status = quire_cuda_tables_set(b->tables, row, d->first, ids, d->count);
    return status;
}

static int set_slots(engine_cuda *b, uint32_t group, const int64_t *slots, uint32_t n)
{
    uint32_t first = group * b->config.max_tokens;
    int status = quire_cuda_tables_set_slots(b->tables, first, slots, n);
    if (status != QUIRE_FULL)
        return status;
    status = quire_cuda_tables_send(b->tables);
    if (status == QUIRE_OK)
        status = engine_cuda_finish(b);
    if (status == QUIRE_OK)
        status = quire_cuda_tables_set_slots(b->tables, first, slots, n);
    return status;
}

static int write_tables(engine_cuda *b, const engine_work *w)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < w->num_diffs; i++)
        if (w->diffs[i].count > 0)
            status = set_row(b, &w->diffs[i]);
    for (uint32_t g = 0; status == QUIRE_OK && g < b->model->config.num_groups; g++)
        if (w->num_tokens > 0)
            status = set_slots(b, g, w->slot_mappings[g], w->num_tokens);
    return status == QUIRE_OK ? quire_cuda_tables_send(b->tables) : status;
}

/* ---- the forward pass ------------------------------------------------------ */

/* Tokens, rows, positions, logit rows, one behind the other, so that one copy brings them. */
static int send_batch(engine_cuda *b, const engine_work *w, int32_t *batch)
{
    uint32_t n = w->num_tokens;
    memcpy(batch, w->tokens, n * sizeof *batch);
    for (uint32_t s = 0; s < w->num_spans; s++) {
        const engine_span *span = &w->spans[s];
        for (uint32_t i = 0; i < span->num_tokens; i++) {
            batch[n + span->first_token + i] = (int32_t)span->row;
            batch[2 * n + span->first_token + i] = (int32_t)(span->first_position + i);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        batch[3 * n + i] = ENGINE_NO_LOGITS;
    for (uint32_t i = 0; i < w->num_logits; i++)
        batch[3 * n + w->logit_tokens[i]] = (int32_t)i;
    return engine_cuda_status(b->card->driver.calls.cuMemcpyHtoDAsync(
        (qr_cu_address)(uintptr_t)b->batch, batch, 4 * n * sizeof *batch, b->stream));
}

static engine_kernel_paged_layer describe_layer(const engine_cuda *b, uint32_t layer)
{
    const engine_model_config *c = &b->model->config;
    uint32_t group = engine_layer_group(c, layer);
    const quire_cuda_region *region = &b->pages.regions[engine_layer_place(c, layer)];
    const int32_t *tables = (const int32_t *)(uintptr_t)b->table_view.entries;
    const int64_t *slots = (const int64_t *)(uintptr_t)b->table_view.slots;
    return (engine_kernel_paged_layer){.pages = (float *)(uintptr_t)region->base,
                                       .table = tables + (size_t)group * b->config.max_rows *
                                                             b->table_view.row_stride,
                                       .slots = slots + (size_t)group * b->config.max_tokens,
                                       .block_size = b->config.block_sizes[group],
                                       .window = c->windows[group]};
}

static int run_forward(engine_cuda *b, const engine_work *w, engine_cuda_place *place)
{
    const engine_card *card = b->card;
    uint32_t n = w->num_tokens;
    int status = send_batch(b, w, place->batch);
    engine_kernel_paged a = {.model = b->kernel_model, .x = b->x, .queries = b->queries};
    a.next = describe_layer(b, 0);
    a.block_stride = b->pages.regions[0].stride / sizeof(float);
    a.table_stride = b->table_view.row_stride;
    a.tokens = b->batch;
    a.rows = (const uint32_t *)b->batch + n;
    a.positions = (const uint32_t *)b->batch + 2 * (size_t)n;
    a.logit_rows = b->batch + 3 * (size_t)n;
    a.logits = engine_cuda_seen(b, place->logits);
    if (status == QUIRE_OK)
        status = engine_cuda_launch(b, card->engine_paged_begin, &a, n);
    for (uint32_t l = 0; status == QUIRE_OK && l < b->model->config.num_layers; l++) {
        a.layer = l;
        a.now = a.next;
        if (l + 1 < b->model->config.num_layers)
            a.next = describe_layer(b, l + 1);
        status = engine_cuda_launch(b, card->engine_paged_layer, &a, n);
    }
    return status;
}

static int delay_work(engine_cuda *b)
{
    if (b->faults.compute_delay_us == 0)
        return QUIRE_OK;
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    engine_kernel_delay a = {.ns = (b->random >> 33) % (b->faults.compute_delay_us + 1ull) * 1000};
    return engine_cuda_launch(b, b->card->engine_delay, &a, 1);
}

int engine_cuda_submit(void *self, const engine_work *work, uint64_t *ticket)
{
    engine_cuda *b = self;
    if (b->num_submitted - b->num_waited >= b->config.max_works)
        return QUIRE_FULL;
    if (!is_work_good(b, work))
        return QUIRE_E_RANGE;
    if (engine_card_enter(b->card) != 0)
        return QUIRE_E_SYSTEM;
    engine_cuda_place *place = &b->places[b->num_submitted % (b->config.max_works + 1)];
    int status = delay_work(b);
    if (status == QUIRE_OK)
        status = move_blocks(b, work);
    if (status == QUIRE_OK)
        status = write_tables(b, work);
    if (status == QUIRE_OK && work->num_tokens > 0)
        status = run_forward(b, work, place);
    if (status == QUIRE_OK)
        status = engine_cuda_status(b->card->driver.calls.cuEventRecord(place->done, b->stream));
    engine_card_leave(b->card);
    if (status == QUIRE_OK)
        *ticket = ++b->num_submitted;
    return status;
}

int engine_cuda_wait(void *self, uint64_t ticket, const float **logits)
{
    engine_cuda *b = self;
    if (ticket != b->num_waited + 1 || ticket > b->num_submitted)
        return QUIRE_E_ARGUMENT;
    engine_cuda_place *place = &b->places[b->num_waited % (b->config.max_works + 1)];
    if (engine_card_enter(b->card) != 0)
        return QUIRE_E_SYSTEM;
    int status = engine_cuda_status(b->card->driver.calls.cuEventSynchronize(place->done));
    engine_card_leave(b->card);
    if (status != QUIRE_OK)
        return status;
    b->num_waited++;
    *logits = place->logits;
    return QUIRE_OK;
}

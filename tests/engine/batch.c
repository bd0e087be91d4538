/* engine/batch.c - from the parts of a step to one work of the backend.
 *
 *      parts, as scheduled        row 7, row 2, row 5
 *      batch                      row 2 | row 5 | row 7      quire_table maps rows in order
 *      tables                     what changed of each row, as diffs
 */
#include "engine/engine.h"

#include "engine/forks.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------- */

int engine_batch_create(engine *e)
{
    engine_batch *b = &e->batch;
    size_t num_tokens = e->setup->max_num_batched_tokens;
    size_t num_diffs = (size_t)e->max_rows * ENGINE_MAX_GROUPS + ENGINE_MAX_COPIES;
    b->tokens = calloc(num_tokens, sizeof *b->tokens);
    b->positions = calloc(num_tokens, sizeof *b->positions);
    b->query_starts = calloc(e->max_rows + 1, sizeof *b->query_starts);
    b->logit_tokens = calloc(num_tokens, sizeof *b->logit_tokens);
    b->spans = calloc(e->max_rows, sizeof *b->spans);
    b->diffs = calloc(num_diffs, sizeof *b->diffs);
    b->diff_blocks = calloc(num_diffs, e->max_row_blocks * sizeof *b->diff_blocks);
    b->zeroed = calloc(4 * (size_t)e->setup->num_blocks, sizeof *b->zeroed);
    b->slots = calloc(num_tokens, sizeof *b->slots);
    bool is_good = b->tokens != NULL && b->positions != NULL && b->query_starts != NULL &&
                   b->logit_tokens != NULL && b->spans != NULL && b->diffs != NULL &&
                   b->diff_blocks != NULL && b->zeroed != NULL && b->slots != NULL;
    return is_good ? 0 : engine_fail(e, "batch", QUIRE_E_NOMEM);
}

void engine_batch_destroy(engine *e)
{
    engine_batch *b = &e->batch;
    free(b->tokens);
    free(b->positions);
    free(b->query_starts);
    free(b->logit_tokens);
    free(b->spans);
    free(b->diffs);
    free(b->diff_blocks);
    free(b->zeroed);
    free(b->slots);
    *b = (engine_batch){0};
}

void engine_batch_begin(engine *e)
{
    e->batch.num_diffs = 0;
    e->batch.num_diff_blocks = 0;
    e->batch.num_zeroed = 0;
}

/* ---- tables ---------------------------------------------------------------- */

static void add_diff(engine *e, uint32_t row, uint32_t group, uint32_t first,
                     quire_block_span blocks)
{
    engine_batch *b = &e->batch;
    quire_block *at = b->diff_blocks + b->num_diff_blocks;
    if (blocks.count == 0)
        return;
    memcpy(at, blocks.ids, blocks.count * sizeof *at);
    if (e->setup->broken == ENGINE_BREAK_TABLE && engine_chance(&e->random, 2))
        at[blocks.count - 1] = 1 + engine_draw(&e->random, e->setup->num_blocks - 1);
    b->num_diff_blocks += blocks.count;
    b->diffs[b->num_diffs++] = (engine_table_diff){group, row, first, blocks.count, at};
}

/* Only what differs from what stands there goes to the backend. */
int engine_batch_set_row(engine *e, uint32_t row, uint32_t group, quire_block_span blocks)
{
    quire_table_view view = quire_table_get_view(e->tables[group]);
    const int32_t *old = view.entries + (size_t)row * view.row_stride;
    uint32_t first = 0;
    while (first < blocks.count && old[first] == (int32_t)blocks.ids[first])
        first++;
    uint32_t end = blocks.count;
    while (end > first && old[end - 1] == (int32_t)blocks.ids[end - 1])
        end--;
    int status = quire_table_add_row(e->tables[group], row, blocks.ids, blocks.count);
    if (status != QUIRE_OK)
        return engine_fail(e, "add_row", status);
    add_diff(e, row, group, first, (quire_block_span){blocks.ids + first, end - first});
    return 0;
}

int engine_batch_extend_row(engine *e, uint32_t row, uint32_t group, quire_block_span blocks)
{
    uint32_t first = quire_table_get_view(e->tables[group]).row_lengths[row];
    int status = quire_table_append_row(e->tables[group], row, blocks.ids, blocks.count);
    if (status != QUIRE_OK)
        return engine_fail(e, "append_row", status);
    add_diff(e, row, group, first, blocks);
    return 0;
}

int engine_batch_change_row(engine *e, uint32_t row, uint32_t group, uint32_t index,
                            quire_block block)
{
    quire_table_view view = quire_table_get_view(e->tables[group]);
    uint32_t n = view.row_lengths[row];
    quire_block blocks[ENGINE_MAX_ROW];
    if (index >= n || n > ENGINE_MAX_ROW)
        return engine_fail(e, "a copy behind the row", QUIRE_E_RANGE);
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = (quire_block)view.entries[(size_t)row * view.row_stride + i];
    blocks[index] = block;
    return engine_batch_set_row(e, row, group, (quire_block_span){blocks, n});
}

/* ---- the work -------------------------------------------------------------- */

static int by_row(const void *a, const void *b)
{
    const engine_part *x = *(engine_part *const *)a;
    const engine_part *y = *(engine_part *const *)b;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void lay_out_part(engine *e, engine_part *part, engine_work *w)
{
    engine_batch *b = &e->batch;
    b->spans[w->num_spans++] =
        (engine_span){part->row, w->num_tokens, part->num_tokens, part->first_position};
    part->first_logit = w->num_logits;
    for (uint32_t i = 0; i < part->num_tokens; i++) {
        uint32_t p = part->first_position + i;
        uint32_t at = w->num_tokens++;
        b->positions[at] = p;
        b->tokens[at] =
            p < part->num_history ? part->history[p] : part->drafts[p - part->num_history];
        if (i + part->num_logits >= part->num_tokens)
            b->logit_tokens[w->num_logits++] = at;
    }
}

static void lay_out(engine *e, engine_flight *flight, engine_work *w)
{
    engine_part *order[ENGINE_MAX_REQUESTS];
    engine_batch *b = &e->batch;
    uint32_t next = 0;
    for (uint32_t i = 0; i < flight->num_reqs; i++)
        order[i] = &flight->parts[i];
    qsort(order, flight->num_reqs, sizeof *order, by_row);
    for (uint32_t row = 0; row < e->max_rows; row++) {
        b->query_starts[row] = (int32_t)w->num_tokens;
        if (next < flight->num_reqs && order[next]->row == row)
            lay_out_part(e, order[next++], w);
    }
    b->query_starts[e->max_rows] = (int32_t)w->num_tokens;
}

static int map_slots(engine *e, engine_work *w)
{
    for (uint32_t g = 0; g < e->setup->model.num_groups; g++) {
        int status = quire_table_compute_slot_mapping(
            e->tables[g], e->max_rows, e->batch.query_starts, e->batch.positions, w->num_tokens);
        if (status != QUIRE_OK)
            return engine_fail(e, "slot mapping", status);
        w->slot_mappings[g] = quire_table_get_view(e->tables[g]).slot_mapping;
    }
    if (e->setup->broken == ENGINE_BREAK_SLOT && w->num_tokens > 0 &&
        engine_chance(&e->random, 5)) {
        uint32_t at = engine_draw(&e->random, w->num_tokens);
        int64_t size = e->setup->block_sizes[0];
        memcpy(e->batch.slots, w->slot_mappings[0], w->num_tokens * sizeof *e->batch.slots);
        e->batch.slots[at] = (e->batch.slots[at] + 1) % (e->setup->num_blocks * size);
        w->slot_mappings[0] = e->batch.slots;
    }
    return 0;
}

static void take_moves(engine *e, const quire_step *step, engine_work *w)
{
    w->num_swap_out = step->num_swap_out;
    w->swap_out_blocks = step->swap_out_blocks;
    w->swap_out_slots = step->swap_out_slots;
    w->num_swap_in = e->setup->broken == ENGINE_BREAK_SWAP ? 0 : step->num_swap_in;
    w->swap_in_blocks = step->swap_in_blocks;
    w->swap_in_slots = step->swap_in_slots;
    if (e->setup->broken == ENGINE_BREAK_ZERO && engine_chance(&e->random, 5) &&
        e->batch.num_zeroed < e->setup->num_blocks)
        e->batch.zeroed[e->batch.num_zeroed++] =
            1 + engine_draw(&e->random, e->setup->num_blocks - 1);
    w->num_zero = e->batch.num_zeroed;
    w->zero_blocks = e->batch.zeroed;
    e->counts->swapped_out += step->num_swap_out;
    e->counts->swapped_in += step->num_swap_in;
    e->counts->zeroed += w->num_zero;
}

static void take_copies(engine *e, const quire_step *step, engine_work *w)
{
    for (uint32_t i = 0; i < step->num_copies; i++) {
        const quire_step_copy *copy = &step->copies[i];
        e->batch.copies[i] = (quire_block_copy){copy->from, copy->to, copy->group};
    }
    w->copies = e->batch.copies;
    w->num_copies = e->setup->broken == ENGINE_BREAK_COPY ? 0 : step->num_copies;
    e->counts->cow_copies += step->num_copies;
}

int engine_batch_submit(engine *e, engine_flight *flight, const quire_step *step)
{
    engine_work w = {0};
    lay_out(e, flight, &w);
    w.spans = e->batch.spans;
    w.tokens = e->batch.tokens;
    w.logit_tokens = e->batch.logit_tokens;
    w.num_diffs = e->batch.num_diffs;
    w.diffs = e->batch.diffs;
    take_moves(e, step, &w);
    take_copies(e, step, &w);
    if (map_slots(e, &w) != 0)
        return 1;
    e->counts->tokens_computed += w.num_tokens;
    e->counts->window_tokens += e->setup->model.num_groups > 1 ? w.num_tokens : 0;
    int status = e->ops->submit(e->backend, &w, &flight->ticket);
    return status == QUIRE_OK ? 0 : engine_fail(e, "submit", status);
}

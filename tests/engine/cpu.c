/* engine/cpu.c - the model on the processor, over a paged arena.
 *
 *      submit ──► a place of the ring, everything copied ──► compute thread of quire_device_host
 *      wait   ◄── semaphore of the place                ◄── run_work
 *
 * The compute thread alone touches arena, tables and swap slots, and the device's copies do in its
 * order: what a GPU's streams are.
 */
#include "engine/backend.h"
#include "engine/pages.h"
#include "engine/reference.h"

#include <errno.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cpu_backend cpu_backend;

/* A work with all that it points at. */
typedef struct cpu_place {
    cpu_backend *backend;
    engine_work work;
    unsigned char *memory;
    size_t capacity;
    size_t used;
    float *logits;
    sem_t done;
} cpu_place;

struct cpu_backend {
    engine_backend_config config;
    const engine_model *model;
    uint32_t group_layers;
    size_t page_bytes;
    size_t block_bytes;
    size_t layer_stride;
    size_t block_stride;
    unsigned char *arena;
    unsigned char *swap;
    unsigned char no_slot[1]; /* a device wants some */
    int32_t *tables;          /* [group][row][entry] */
    engine_token token;       /* its x and query are one of these: */
    float *states;            /* [max_tokens][width] */
    float *queries;           /* [max_tokens][num_heads * head_size] */
    float *kv;                /* of one token */
    engine_reference *reference;
    quire_device host;
    quire_device paged; /* over host, where blocks lie in pieces */
    uint64_t num_submitted;
    uint64_t num_waited;
    cpu_place *places; /* max_works */
};

/* ---- memory ---------------------------------------------------------------- */

static unsigned char *page_at(const cpu_backend *b, uint32_t place, quire_block block)
{
    return b->arena + place * b->layer_stride + block * b->block_stride;
}

static float *slot_at(const cpu_backend *b, uint32_t layer, int64_t slot)
{
    const engine_model_config *c = &b->model->config;
    uint32_t size = b->config.block_sizes[engine_layer_group(c, layer)];
    quire_block block = (quire_block)(slot / size);
    size_t offset = (size_t)(slot % size) * engine_token_floats(c) * sizeof(float);
    return (float *)(void *)(page_at(b, engine_layer_place(c, layer), block) + offset);
}

static int32_t *row_at(const cpu_backend *b, uint32_t group, uint32_t row)
{
    return b->tables + ((size_t)group * b->config.max_rows + row) * b->config.max_row_blocks;
}

/* ---- on the compute thread ------------------------------------------------- */

static void swap_block(cpu_backend *b, quire_block block, uint32_t slot, bool is_out)
{
    unsigned char *host = b->swap + slot * b->block_bytes;
    for (uint32_t l = 0; l < b->group_layers; l++, host += b->page_bytes) {
        unsigned char *page = page_at(b, l, block);
        memcpy(is_out ? host : page, is_out ? page : host, b->page_bytes);
    }
}

static void move_blocks(cpu_backend *b, const engine_work *w)
{
    for (uint32_t i = 0; i < w->num_swap_out; i++)
        swap_block(b, w->swap_out_blocks[i], w->swap_out_slots[i], true);
    for (uint32_t i = 0; i < w->num_zero; i++)
        for (uint32_t l = 0; l < b->group_layers; l++)
            memset(page_at(b, l, w->zero_blocks[i]), 0, b->page_bytes);
    for (uint32_t i = 0; i < w->num_swap_in; i++)
        swap_block(b, w->swap_in_blocks[i], w->swap_in_slots[i], false);
    for (uint32_t i = 0; i < w->num_copies; i++)
        for (uint32_t l = 0; l < b->group_layers; l++)
            memcpy(page_at(b, l, w->copies[i].to), page_at(b, l, w->copies[i].from), b->page_bytes);
}

static void write_tables(cpu_backend *b, const engine_work *w)
{
    for (uint32_t i = 0; i < w->num_diffs; i++) {
        const engine_table_diff *d = &w->diffs[i];
        int32_t *row = row_at(b, d->group, d->row);
        for (uint32_t k = 0; k < d->count; k++)
            row[d->first + k] = (int32_t)d->blocks[k];
    }
}

/* All heads over the positions from first to the token's own, through the row's blocks. */
static void attend(cpu_backend *b, uint32_t layer, const int32_t *row, uint32_t first,
                   uint32_t position)
{
    const engine_model_config *c = &b->model->config;
    engine_token *t = &b->token;
    uint32_t size = c->head_size;
    uint32_t block_size = b->config.block_sizes[engine_layer_group(c, layer)];
    uint32_t shared = c->num_heads / c->num_kv_heads;
    uint32_t n = position - first + 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t p = first + i;
        const float *keys =
            slot_at(b, layer, (int64_t)row[p / block_size] * block_size + p % block_size);
        for (uint32_t h = 0; h < c->num_heads; h++) {
            const float *key = keys + (size_t)(h / shared) * size;
            const float *query = t->query + (size_t)h * size;
            float dot = 0.0f;
            for (uint32_t d = 0; d < size; d++)
                dot += query[d] * key[d];
            t->scores[(size_t)h * c->max_positions + i] = dot * b->model->score_scale;
        }
    }
    float sums[64];
    for (uint32_t h = 0; h < c->num_heads; h++)
        sums[h] = engine_token_weigh(t->scores + (size_t)h * c->max_positions, n);
    memset(t->attended, 0, (size_t)c->num_heads * size * sizeof *t->attended);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t p = first + i;
        const float *values =
            slot_at(b, layer, (int64_t)row[p / block_size] * block_size + p % block_size) +
            (size_t)c->num_kv_heads * size;
        for (uint32_t h = 0; h < c->num_heads; h++) {
            float weight = t->scores[(size_t)h * c->max_positions + i];
            const float *value = values + (size_t)(h / shared) * size;
            for (uint32_t d = 0; d < size; d++)
                t->attended[(size_t)h * size + d] += weight * value[d];
        }
    }
    for (uint32_t h = 0; h < c->num_heads; h++)
        for (uint32_t d = 0; d < size; d++)
            t->attended[(size_t)h * size + d] = t->attended[(size_t)h * size + d] / sums[h];
}

/* The buffers of the batch's token at this place. */
static engine_token *token_at(cpu_backend *b, uint32_t at)
{
    const engine_model_config *c = &b->model->config;
    b->token.x = b->states + (size_t)at * c->width;
    b->token.query = b->queries + (size_t)at * c->num_heads * c->head_size;
    return &b->token;
}

static void attend_span(cpu_backend *b, uint32_t layer, const engine_span *span)
{
    const engine_model_config *c = &b->model->config;
    uint32_t g = engine_layer_group(c, layer);
    for (uint32_t i = 0; i < span->num_tokens; i++) {
        uint32_t position = span->first_position + i;
        engine_token *t = token_at(b, span->first_token + i);
        attend(b, layer, row_at(b, g, span->row), engine_first_seen(c->windows[g], position),
               position);
        engine_token_finish_layer(t, layer);
    }
}

/* All keys and values of a layer, then its attention: requests of one batch may share blocks that
 * one of them computes in it. */
static void run_layer(cpu_backend *b, const engine_work *w, uint32_t layer)
{
    uint32_t g = engine_layer_group(&b->model->config, layer);
    size_t bytes = engine_token_floats(&b->model->config) * sizeof(float);
    for (uint32_t s = 0; s < w->num_spans; s++) {
        const engine_span *span = &w->spans[s];
        for (uint32_t i = 0; i < span->num_tokens; i++) {
            uint32_t at = span->first_token + i;
            engine_token_project(token_at(b, at), layer, span->first_position + i, b->kv);
            memcpy(slot_at(b, layer, w->slot_mappings[g][at]), b->kv, bytes);
        }
    }
    for (uint32_t s = 0; s < w->num_spans; s++)
        attend_span(b, layer, &w->spans[s]);
}

static void run_work(void *user)
{
    cpu_place *place = user;
    cpu_backend *b = place->backend;
    const engine_work *w = &place->work;
    move_blocks(b, w);
    write_tables(b, w);
    for (uint32_t i = 0; i < w->num_tokens; i++)
        engine_token_begin(token_at(b, i), w->tokens[i]);
    for (uint32_t l = 0; l < b->model->config.num_layers; l++)
        run_layer(b, w, l);
    for (uint32_t i = 0; i < w->num_logits; i++)
        engine_token_logits(token_at(b, w->logit_tokens[i]),
                            place->logits + (size_t)i * b->model->config.vocabulary);
    (void)sem_post(&place->done);
}

/* ---- submit and wait ------------------------------------------------------- */

/* A copy in the place's memory; NULL when that has no room (or for nothing). */
static const void *keep(cpu_place *place, const void *from, size_t n, size_t each)
{
    size_t bytes = n * each;
    size_t at = (place->used + 15) & ~(size_t)15;
    place->used = at + bytes;
    if (bytes == 0 || place->used > place->capacity)
        return NULL;
    return memcpy(place->memory + at, from, bytes);
}

static void keep_diffs(cpu_place *place, const engine_work *from)
{
    engine_table_diff *diffs =
        (engine_table_diff *)(uintptr_t)keep(place, from->diffs, from->num_diffs, sizeof *diffs);
    for (uint32_t i = 0; i < from->num_diffs; i++) {
        const void *blocks =
            keep(place, from->diffs[i].blocks, from->diffs[i].count, sizeof(quire_block));
        if (diffs != NULL)
            diffs[i].blocks = blocks;
    }
    place->work.diffs = diffs;
}

static void keep_work(cpu_place *place, const engine_work *from)
{
    engine_work *w = &place->work;
    place->used = 0;
    *w = *from;
    w->swap_out_blocks = keep(place, from->swap_out_blocks, from->num_swap_out, 4);
    w->swap_out_slots = keep(place, from->swap_out_slots, from->num_swap_out, 4);
    w->zero_blocks = keep(place, from->zero_blocks, from->num_zero, 4);
    w->swap_in_blocks = keep(place, from->swap_in_blocks, from->num_swap_in, 4);
    w->swap_in_slots = keep(place, from->swap_in_slots, from->num_swap_in, 4);
    w->copies = keep(place, from->copies, from->num_copies, sizeof *from->copies);
    keep_diffs(place, from);
    w->spans = keep(place, from->spans, from->num_spans, sizeof *from->spans);
    w->tokens = keep(place, from->tokens, from->num_tokens, sizeof *from->tokens);
    for (uint32_t g = 0; g < ENGINE_MAX_GROUPS; g++)
        if (from->slot_mappings[g] != NULL)
            w->slot_mappings[g] =
                keep(place, from->slot_mappings[g], from->num_tokens, sizeof(int64_t));
    w->logit_tokens = keep(place, from->logit_tokens, from->num_logits, 4);
}

static int cpu_submit(void *self, const engine_work *work, uint64_t *ticket)
{
    cpu_backend *b = self;
    if (b->num_submitted - b->num_waited >= b->config.max_works)
        return QUIRE_FULL;
    if (work->num_tokens > b->config.max_tokens || work->num_logits > b->config.max_logits)
        return QUIRE_E_RANGE;
    cpu_place *place = &b->places[b->num_submitted % b->config.max_works];
    keep_work(place, work);
    if (place->used > place->capacity) { /* now it is known how much it takes */
        unsigned char *memory = realloc(place->memory, 2 * place->used);
        if (memory == NULL)
            return QUIRE_E_NOMEM;
        place->memory = memory;
        place->capacity = 2 * place->used;
        keep_work(place, work);
    }
    int status = quire_device_host_compute(&b->host, run_work, place);
    if (status == QUIRE_OK)
        *ticket = ++b->num_submitted;
    return status;
}

static int cpu_wait(void *self, uint64_t ticket, const float **logits)
{
    cpu_backend *b = self;
    if (ticket != b->num_waited + 1 || ticket > b->num_submitted)
        return QUIRE_E_ARGUMENT;
    cpu_place *place = &b->places[b->num_waited % b->config.max_works];
    while (sem_wait(&place->done) != 0 && errno == EINTR)
        ;
    b->num_waited++;
    *logits = place->logits;
    return QUIRE_OK;
}

/* ---- its life -------------------------------------------------------------- */

static void cpu_destroy(void *self)
{
    cpu_backend *b = self;
    const float *logits;
    if (b == NULL)
        return;
    while (b->num_waited < b->num_submitted)
        (void)cpu_wait(b, b->num_waited + 1, &logits);
    quire_device_close(&b->host);
    quire_device_close(&b->paged);
    for (uint32_t i = 0; b->places != NULL && i < b->config.max_works; i++) {
        free(b->places[i].memory);
        free(b->places[i].logits);
        (void)sem_destroy(&b->places[i].done);
    }
    free(b->places);
    engine_token_destroy(&b->token);
    engine_reference_destroy(b->reference);
    free(b->tables);
    free(b->states);
    free(b->queries);
    free(b->kv);
    free(b->swap);
    free(b->arena);
    free(b);
}

static bool take_memory(cpu_backend *b)
{
    const engine_backend_config *c = &b->config;
    const engine_model_config *m = &b->model->config;
    size_t arena_bytes = c->num_blocks * b->block_bytes;
    b->arena = aligned_alloc(64, (arena_bytes + 63) & ~(size_t)63);
    b->swap = calloc(c->num_swap_blocks + 1, b->block_bytes);
    b->tables = calloc((size_t)b->model->config.num_groups * c->max_rows,
                       c->max_row_blocks * sizeof *b->tables);
    b->places = calloc(c->max_works, sizeof *b->places);
    b->states = calloc(c->max_tokens, m->width * sizeof *b->states);
    b->queries = calloc(c->max_tokens, m->num_heads * m->head_size * sizeof *b->queries);
    b->kv = calloc(engine_token_floats(m), sizeof *b->kv);
    b->reference = engine_reference_create(b->model, c->num_references + 1);
    if (b->arena == NULL || b->swap == NULL || b->tables == NULL || b->places == NULL ||
        b->reference == NULL || b->states == NULL || b->queries == NULL || b->kv == NULL ||
        engine_token_create(&b->token, b->model) != 0)
        return false;
    memset(b->arena, 0xff, arena_bytes);
    bool is_good = true;
    for (uint32_t i = 0; i < c->max_works; i++) {
        cpu_place *p = &b->places[i];
        p->backend = b;
        p->logits = calloc(c->max_logits + 1, b->model->config.vocabulary * sizeof *p->logits);
        is_good = sem_init(&p->done, 0, 0) == 0 && p->logits != NULL && is_good;
    }
    return is_good;
}

/* Blocks in one piece are the device's blocks; in pieces, its blocks are pages. */
static int open_device(cpu_backend *b)
{
    const engine_backend_config *c = &b->config;
    uint32_t pieces = c->layout == ENGINE_LAYER_OUTER ? b->group_layers : 1;
    quire_device_host_config config = QUIRE_DEVICE_HOST_CONFIG_INIT;
    config.blocks = b->arena;
    config.num_blocks = c->num_blocks * pieces;
    config.block_bytes = b->block_bytes / pieces;
    config.slots = c->slots == NULL ? b->no_slot : c->slots;
    config.num_slots = c->slots == NULL ? 1 : c->num_slots * pieces;
    int status = quire_device_host_open(&config, NULL, &b->host);
    if (status == QUIRE_OK && pieces > 1 &&
        engine_pages_create(&b->host, c->num_blocks, pieces, config.slots, b->block_bytes,
                            &b->paged) == NULL)
        status = QUIRE_E_NOMEM;
    return status;
}

static int cpu_create(const engine_backend_config *config, void **self)
{
    cpu_backend *b = calloc(1, sizeof *b);
    if (b == NULL)
        return QUIRE_E_NOMEM;
    (void)quire_refuse(QUIRE_OK, "no memory");
    b->config = *config;
    b->model = config->model;
    b->group_layers = engine_group_layers(&b->model->config);
    b->page_bytes = engine_page_bytes(config);
    b->block_bytes = engine_block_bytes(config);
    bool is_layer_outer = config->layout == ENGINE_LAYER_OUTER;
    b->layer_stride = is_layer_outer ? config->num_blocks * b->page_bytes : b->page_bytes;
    b->block_stride = is_layer_outer ? b->page_bytes : b->block_bytes;
    int status = take_memory(b) ? open_device(b) : QUIRE_E_NOMEM;
    if (status != QUIRE_OK) {
        cpu_destroy(b);
        return status;
    }
    *self = b;
    return QUIRE_OK;
}

static const quire_device *cpu_device(void *self)
{
    cpu_backend *b = self;
    if (b->config.slots == NULL)
        return NULL;
    return b->paged.ops != NULL ? &b->paged : &b->host;
}

static int cpu_reference(void *self, uint32_t at, uint32_t first_position,
                         const quire_token *tokens, uint32_t num_tokens, uint32_t num_logits,
                         float *logits)
{
    cpu_backend *b = self;
    return engine_reference_run(b->reference, at, first_position, tokens, num_tokens, num_logits,
                                logits);
}

static int cpu_reference_copy(void *self, uint32_t from, uint32_t to, uint32_t num_tokens)
{
    cpu_backend *b = self;
    return engine_reference_copy(b->reference, from, to, num_tokens);
}

static int cpu_set_faults(void *self, const engine_faults *faults)
{
    cpu_backend *b = self;
    quire_device_host_faults of_host = {.compute_delay_us = faults->compute_delay_us,
                                        .copy_delay_us = faults->copy_delay_us,
                                        .fail_per_mille = faults->fail_per_mille,
                                        .ignores_marks = faults->ignores_marks};
    return quire_device_host_set_faults(&b->host, &of_host);
}

const engine_backend_ops ENGINE_CPU_OPS = {.name = "cpu",
                                           .create = cpu_create,
                                           .destroy = cpu_destroy,
                                           .device = cpu_device,
                                           .submit = cpu_submit,
                                           .wait = cpu_wait,
                                           .reference = cpu_reference,
                                           .reference_copy = cpu_reference_copy,
                                           .set_faults = cpu_set_faults};

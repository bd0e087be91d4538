#include "engine/cuda/cuda.h"

#include "base/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHARED_BYTES = 48 * 1024 }; /* that a kernel gets without asking */

/* ---- memory ---------------------------------------------------------------- */

/* The next bytes of a piece that is not there yet: places first, the memory afterwards. */
static uint64_t plan_bytes(uint64_t *used, uint64_t bytes)
{
    uint64_t at = (*used + 255) & ~UINT64_C(255);
    *used = at + bytes;
    return at;
}

static uint32_t count_rows(const engine_cuda *b)
{
    uint32_t positions = b->model->config.max_positions;
    return b->config.max_tokens > positions ? b->config.max_tokens : positions;
}

/* A pointer into the model's weights becomes one into their copy. */
static const float *move_pointer(const engine_model *m, const float *at, const float *copy)
{
    return copy + (at - m->weights);
}

static void move_layer(const engine_model *m, const engine_layer *from, const float *copy,
                       engine_layer *to)
{
    to->attention_norm = move_pointer(m, from->attention_norm, copy);
    to->query = move_pointer(m, from->query, copy);
    to->key = move_pointer(m, from->key, copy);
    to->value = move_pointer(m, from->value, copy);
    to->output = move_pointer(m, from->output, copy);
    to->hidden_norm = move_pointer(m, from->hidden_norm, copy);
    to->gate = move_pointer(m, from->gate, copy);
    to->up = move_pointer(m, from->up, copy);
    to->down = move_pointer(m, from->down, copy);
}

static void describe_model(engine_cuda *b, const float *weights, const engine_layer *layers)
{
    const engine_model *m = b->model;
    const engine_model_config *c = &m->config;
    b->kernel_model = (engine_kernel_model){.vocabulary = c->vocabulary,
                                            .width = c->width,
                                            .num_layers = c->num_layers,
                                            .num_heads = c->num_heads,
                                            .num_kv_heads = c->num_kv_heads,
                                            .head_size = c->head_size,
                                            .hidden = c->hidden,
                                            .epsilon = m->epsilon,
                                            .score_scale = m->score_scale,
                                            .embedding = move_pointer(m, m->embedding, weights),
                                            .final_norm = move_pointer(m, m->final_norm, weights),
                                            .head = move_pointer(m, m->head, weights),
                                            .cosines = move_pointer(m, m->cosines, weights),
                                            .sines = move_pointer(m, m->sines, weights),
                                            .layers = layers};
}

/* Weights, and what passes between kernels. */
static qr_cu_result take_device_memory(engine_cuda *b)
{
    const qr_cuda_calls *cu = &b->card->driver.calls;
    const engine_model *m = b->model;
    const engine_model_config *c = &m->config;
    uint64_t rows = count_rows(b);
    uint64_t used = 0;
    uint64_t weights_at = plan_bytes(&used, m->num_weights * sizeof(float));
    uint64_t layers_at = plan_bytes(&used, sizeof m->layers);
    uint64_t x_at = plan_bytes(&used, rows * c->width * sizeof(float));
    uint64_t queries_at = plan_bytes(&used, rows * c->num_heads * c->head_size * sizeof(float));
    uint64_t batch_at = plan_bytes(&used, 4ull * b->config.max_tokens * sizeof(int32_t));
    uint64_t cache_bytes = engine_cuda_cache_floats(c) * sizeof(float);
    uint64_t caches_at = plan_bytes(&used, b->config.num_references * cache_bytes);
    qr_cu_result result = cu->cuMemAlloc(&b->memory, (size_t)used);
    if (result != QR_CU_SUCCESS)
        return result;
    b->x = (float *)(uintptr_t)(b->memory + x_at);
    b->queries = (float *)(uintptr_t)(b->memory + queries_at);
    b->batch = (int32_t *)(uintptr_t)(b->memory + batch_at);
    b->caches = (float *)(uintptr_t)(b->memory + caches_at);
    const float *weights = (const float *)(uintptr_t)(b->memory + weights_at);
    for (uint32_t l = 0; l < c->num_layers; l++)
        move_layer(m, &m->layers[l], weights, &b->layers[l]);
    describe_model(b, weights, (const engine_layer *)(uintptr_t)(b->memory + layers_at));
    result = cu->cuMemsetD8Async(b->memory, 0xff, (size_t)used, b->stream);
    if (result == QR_CU_SUCCESS)
        result = cu->cuMemcpyHtoDAsync(b->memory + weights_at, m->weights,
                                       m->num_weights * sizeof(float), b->stream);
    if (result == QR_CU_SUCCESS)
        result =
            cu->cuMemcpyHtoDAsync(b->memory + layers_at, b->layers, sizeof b->layers, b->stream);
    return result;
}

/* What the GPU and the processor both write and read. */
static qr_cu_result take_pinned_memory(engine_cuda *b)
{
    const qr_cuda_calls *cu = &b->card->driver.calls;
    const engine_model_config *c = &b->model->config;
    uint64_t num_places = b->config.max_works + 1ull;
    uint64_t batch_bytes = 4ull * b->config.max_tokens * sizeof(int32_t);
    uint64_t logits_bytes = (uint64_t)b->config.max_logits * c->vocabulary * sizeof(float);
    uint64_t used = 0;
    uint64_t batches_at = plan_bytes(&used, num_places * batch_bytes);
    uint64_t logits_at = plan_bytes(&used, num_places * logits_bytes);
    uint64_t tokens_at = plan_bytes(&used, c->max_positions * sizeof(int32_t));
    uint64_t reference_at =
        plan_bytes(&used, (uint64_t)c->max_positions * c->vocabulary * sizeof(float));
    uint64_t swap_at =
        plan_bytes(&used, b->config.num_swap_blocks * engine_block_bytes(&b->config));
    uint64_t slot_at = plan_bytes(&used, engine_block_bytes(&b->config));
    void *memory = NULL;
    qr_cu_address seen = 0;
    qr_cu_result result =
        cu->cuMemHostAlloc(&memory, (size_t)used, QR_CU_HOST_PORTABLE | QR_CU_HOST_DEVICEMAP);
    if (result != QR_CU_SUCCESS)
        return result;
    b->pinned = memory;
    result = cu->cuMemHostGetDevicePointer(&seen, memory, 0);
    b->host_offset = seen - (uint64_t)(uintptr_t)memory;
    b->reference_tokens = (int32_t *)(void *)(b->pinned + tokens_at);
    b->reference_logits = (float *)(void *)(b->pinned + reference_at);
    b->swap = b->pinned + swap_at;
    b->no_slot = b->pinned + slot_at;
    for (uint64_t i = 0; result == QR_CU_SUCCESS && i < num_places; i++) {
        b->places[i].batch = (int32_t *)(void *)(b->pinned + batches_at + i * batch_bytes);
        b->places[i].logits = (float *)(void *)(b->pinned + logits_at + i * logits_bytes);
        result = cu->cuEventCreate(&b->places[i].done, QR_CU_EVENT_DISABLE_TIMING);
    }
    return result;
}

/* ---- what Quire has for GPUs ------------------------------------------------ */

static int open_arena(engine_cuda *b)
{
    const engine_backend_config *c = &b->config;
    quire_cuda_arena_config config = QUIRE_CUDA_ARENA_CONFIG_INIT;
    config.num_layers = engine_group_layers(&b->model->config);
    config.num_blocks = c->num_blocks;
    config.bytes = engine_page_bytes(c);
    config.layout =
        c->layout == ENGINE_LAYER_OUTER ? QUIRE_CUDA_LAYER_OUTER : QUIRE_CUDA_BLOCK_OUTER;
    int status = quire_cuda_arena_open(b->seat.cuda, &config, &b->arena);
    if (status != QUIRE_OK)
        return status;
    b->pages = quire_cuda_arena_get_view(b->arena);
    return engine_cuda_status(b->card->driver.calls.cuMemsetD8Async(
        b->pages.base, 0xff, (size_t)b->pages.bytes, b->stream));
}

static int open_tables(engine_cuda *b)
{
    uint32_t num_groups = b->model->config.num_groups;
    quire_cuda_tables_config config = QUIRE_CUDA_TABLES_CONFIG_INIT;
    config.cuda = b->seat.cuda;
    config.num_rows = num_groups * b->config.max_rows;
    config.row_stride = b->config.max_row_blocks;
    config.num_slots = num_groups * b->config.max_tokens;
    config.max_changes = 2 * config.num_rows + num_groups + 16;
    config.depth = b->config.max_works + 2;
    int status = quire_cuda_tables_open(&config, NULL, &b->tables);
    if (status == QUIRE_OK)
        b->table_view = quire_cuda_tables_get_view(b->tables);
    return status;
}

static int open_device(engine_cuda *b)
{
    const engine_backend_config *c = &b->config;
    quire_device_cuda_config config = QUIRE_DEVICE_CUDA_CONFIG_INIT;
    config.cuda = b->seat.cuda;
    config.regions = b->pages.regions;
    config.num_regions = b->pages.num_regions;
    config.num_blocks = c->num_blocks;
    config.slots = c->slots == NULL ? b->no_slot : c->slots;
    config.num_slots = c->slots == NULL ? 1 : c->num_slots;
    config.crc = b->model->config.seed % 2 == 0 ? QUIRE_CUDA_CRC_GPU : QUIRE_CUDA_CRC_DEFAULT;
    config.pin = c->slots == NULL ? QUIRE_OFF : QUIRE_DEFAULT; /* ours is pinned already */
    int status = quire_device_cuda_open(&config, NULL, &b->device);
    if (status == QUIRE_OK)
        (void)engine_flaky_open(&b->flaky, &b->device);
    return status;
}

static int open_cuda(engine_cuda *b)
{
    int status = open_arena(b);
    if (status == QUIRE_OK)
        status = open_tables(b);
    if (status == QUIRE_OK)
        status = open_device(b);
    return status;
}

/* ---- its life -------------------------------------------------------------- */

/* In the card's context. */
static void give_memory_back(engine_cuda *b)
{
    const qr_cuda_calls *cu = &b->card->driver.calls;
    for (uint32_t i = 0; i <= b->config.max_works; i++)
        if (b->places[i].done != NULL)
            (void)cu->cuEventDestroy(b->places[i].done);
    if (b->pinned != NULL)
        (void)cu->cuMemFreeHost(b->pinned);
    if (b->memory != 0)
        (void)cu->cuMemFree(b->memory);
}

static void cuda_destroy(void *self)
{
    engine_cuda *b = self;
    if (b == NULL)
        return;
    bool has_entered = engine_card_enter(b->card) == 0;
    if (has_entered && b->stream != NULL)
        (void)b->card->driver.calls.cuStreamSynchronize(b->stream);
    quire_device_close(&b->device);
    quire_cuda_tables_close(b->tables);
    quire_cuda_arena_close(b->arena);
    if (has_entered) {
        give_memory_back(b);
        engine_card_leave(b->card);
    }
    engine_seat_give(b->card, &b->seat);
    free(b->places);
    free(b);
}

static int open_backend(engine_cuda *b)
{
    char text[120];
    int status = engine_seat_take(b->card, &b->seat);
    if (status != QUIRE_OK)
        return status;
    b->stream = b->seat.stream;
    qr_cu_result result = take_device_memory(b);
    if (result == QR_CU_SUCCESS)
        result = take_pinned_memory(b);
    if (result == QR_CU_SUCCESS)
        return open_cuda(b);
    qr_cuda_describe(&b->card->driver, result, text, sizeof text);
    qr_say("the engine's memory on the GPU: %s", text);
    return result == QR_CU_OUT_OF_MEMORY ? QUIRE_E_NOMEM : QUIRE_E_SYSTEM;
}

static bool is_config_good(const engine_backend_config *c)
{
    uint64_t arena_floats = c->num_blocks * engine_block_bytes(c) / sizeof(float);
    return c->num_blocks > 0 && c->max_tokens > 0 && c->max_works > 0 && c->max_logits > 0 &&
           engine_kernel_shared_bytes(&c->model->config) <= MOST_SHARED_BYTES &&
           arena_floats <= UINT32_MAX; /* a kernel counts them in 32 bits */
}

static int cuda_create(const engine_backend_config *config, void **self)
{
    if (!is_config_good(config)) {
        (void)quire_refuse(QUIRE_OK, "larger than the kernels are made for");
        return QUIRE_E_CONFIG;
    }
    const engine_card *card = engine_card_get();
    if (card == NULL)
        return QUIRE_E_DISABLED;
    engine_cuda *b = calloc(1, sizeof *b);
    engine_cuda_place *places = calloc(config->max_works + 1ul, sizeof *places);
    if (b == NULL || places == NULL) {
        (void)quire_refuse(QUIRE_OK, "no memory");
        free(places);
        free(b);
        return QUIRE_E_NOMEM;
    }
    b->config = *config;
    b->model = config->model;
    b->card = card;
    b->places = places;
    b->random = config->model->config.seed;
    b->shared_bytes = engine_kernel_shared_bytes(&b->model->config);
    int status = QUIRE_E_SYSTEM;
    if (engine_card_enter(card) == 0) {
        status = open_backend(b);
        engine_card_leave(card);
    }
    if (status != QUIRE_OK) {
        cuda_destroy(b);
        if (quire_refusal()[0] == 0)
            (void)quire_refuse(status, "the GPU's context cannot be used");
        return status;
    }
    *self = b;
    return QUIRE_OK;
}

static const quire_device *cuda_device(void *self)
{
    engine_cuda *b = self;
    return b->config.slots == NULL ? NULL : &b->flaky.outer;
}

static int cuda_set_faults(void *self, const engine_faults *faults)
{
    engine_cuda *b = self;
    b->faults = *faults;
    b->flaky.fail_per_mille = faults->fail_per_mille;
    return quire_device_cuda_ignore_marks(&b->device, faults->ignores_marks);
}

const engine_backend_ops ENGINE_CUDA_OPS = {.name = "cuda",
                                            .create = cuda_create,
                                            .destroy = cuda_destroy,
                                            .device = cuda_device,
                                            .submit = engine_cuda_submit,
                                            .wait = engine_cuda_wait,
                                            .reference = engine_cuda_reference,
                                            .reference_copy = engine_cuda_reference_copy,
                                            .set_faults = cuda_set_faults};

#include "engine/cuda/cuda.h"

#include <string.h>

static int launch_reference(engine_cuda *b, engine_kernel_reference *a, uint32_t num_tokens)
{
    const engine_card *card = b->card;
    if (num_tokens == 1)
        return engine_cuda_launch(b, card->engine_reference_token, a, 1);
    int status = engine_cuda_launch(b, card->engine_reference_begin, a, num_tokens);
    for (uint32_t l = 0; status == QUIRE_OK && l < b->model->config.num_layers; l++) {
        a->layer = l;
        status = engine_cuda_launch(b, card->engine_reference_layer, a, num_tokens);
    }
    return status;
}

int engine_cuda_reference(void *self, uint32_t at, uint32_t first_position,
                          const quire_token *tokens, uint32_t num_tokens, uint32_t num_logits,
                          float *logits)
{
    engine_cuda *b = self;
    const engine_model_config *c = &b->model->config;
    if (at >= b->config.num_references || num_logits > num_tokens ||
        first_position > c->max_positions || num_tokens > c->max_positions - first_position)
        return QUIRE_E_RANGE;
    if (num_tokens == 0)
        return QUIRE_OK;
    engine_kernel_reference a = {.model = b->kernel_model, .num_groups = c->num_groups};
    memcpy(a.windows, c->windows, sizeof a.windows);
    memcpy(b->reference_tokens, tokens, num_tokens * sizeof *tokens);
    a.first_position = first_position;
    a.first_logits = num_tokens - num_logits;
    a.token = tokens[0];
    a.tokens = engine_cuda_seen(b, b->reference_tokens);
    a.cache = b->caches + at * engine_cuda_cache_floats(c);
    a.x = b->x;
    a.queries = b->queries;
    a.logits = engine_cuda_seen(b, b->reference_logits);
    if (engine_card_enter(b->card) != 0)
        return QUIRE_E_SYSTEM;
    int status = launch_reference(b, &a, num_tokens);
    if (status == QUIRE_OK)
        status = engine_cuda_finish(b);
    engine_card_leave(b->card);
    if (status == QUIRE_OK && num_logits > 0)
        memcpy(logits, b->reference_logits, (size_t)num_logits * c->vocabulary * sizeof *logits);
    return status;
}

int engine_cuda_reference_copy(void *self, uint32_t from, uint32_t to, uint32_t num_tokens)
{
    engine_cuda *b = self;
    const engine_model_config *c = &b->model->config;
    if (from >= b->config.num_references || to >= b->config.num_references ||
        num_tokens > c->max_positions)
        return QUIRE_E_RANGE;
    if (from == to || num_tokens == 0)
        return QUIRE_OK;
    uint64_t floats = engine_cuda_cache_floats(c);
    qr_cu_address source = (qr_cu_address)(uintptr_t)(b->caches + from * floats);
    qr_cu_address target = (qr_cu_address)(uintptr_t)(b->caches + to * floats);
    size_t bytes = (size_t)num_tokens * (size_t)(floats / c->max_positions) * sizeof(float);
    if (engine_card_enter(b->card) != 0)
        return QUIRE_E_SYSTEM;
    int status = engine_cuda_status(
        b->card->driver.calls.cuMemcpyDtoDAsync(target, source, bytes, b->stream));
    engine_card_leave(b->card);
    return status;
}

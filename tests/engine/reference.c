#include "engine/reference.h"

#include <stdlib.h>
#include <string.h>

struct engine_reference {
    const engine_model *model;
    uint32_t num_caches;
    float *caches;
    engine_token token;
};

static size_t layer_floats(const engine_model *m)
{
    return (size_t)m->config.max_positions * engine_token_floats(&m->config);
}

static float *cache_layer(engine_reference *r, uint32_t at, uint32_t layer)
{
    return r->caches + ((size_t)at * r->model->config.num_layers + layer) * layer_floats(r->model);
}

engine_reference *engine_reference_create(const engine_model *model, uint32_t num_caches)
{
    engine_reference *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->model = model;
    r->num_caches = num_caches;
    r->caches = calloc((size_t)num_caches * model->config.num_layers,
                       layer_floats(model) * sizeof *r->caches);
    if (r->caches == NULL || engine_token_create(&r->token, model) != 0) {
        engine_reference_destroy(r);
        return NULL;
    }
    return r;
}

void engine_reference_destroy(engine_reference *reference)
{
    if (reference == NULL)
        return;
    engine_token_destroy(&reference->token);
    free(reference->caches);
    free(reference);
}

/* One head over the positions from first to the token's own. */
static void attend_head(engine_token *t, const float *cache, uint32_t head, uint32_t first,
                        uint32_t position)
{
    const engine_model_config *c = &t->model->config;
    uint32_t size = c->head_size;
    uint32_t stride = engine_token_floats(c);
    uint32_t kv_head = head / (c->num_heads / c->num_kv_heads);
    const float *keys = cache + (size_t)kv_head * size;
    const float *values = keys + (size_t)c->num_kv_heads * size;
    const float *query = t->query + (size_t)head * size;
    float *out = t->attended + (size_t)head * size;
    uint32_t n = position - first + 1;
    for (uint32_t i = 0; i < n; i++) {
        const float *key = keys + (size_t)(first + i) * stride;
        float dot = 0.0f;
        for (uint32_t d = 0; d < size; d++)
            dot += query[d] * key[d];
        t->scores[i] = dot * t->model->score_scale;
    }
    float sum = engine_token_weigh(t->scores, n);
    memset(out, 0, size * sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < size; d++)
            out[d] += t->scores[i] * values[(size_t)(first + i) * stride + d];
    for (uint32_t d = 0; d < size; d++)
        out[d] = out[d] / sum;
}

static void run_token(engine_reference *r, uint32_t at, uint32_t position, quire_token id)
{
    const engine_model_config *c = &r->model->config;
    engine_token_begin(&r->token, id);
    for (uint32_t l = 0; l < c->num_layers; l++) {
        float *cache = cache_layer(r, at, l);
        uint32_t first = engine_first_seen(c->windows[engine_layer_group(c, l)], position);
        engine_token_project(&r->token, l, position,
                             cache + (size_t)position * engine_token_floats(c));
        for (uint32_t h = 0; h < c->num_heads; h++)
            attend_head(&r->token, cache, h, first, position);
        engine_token_finish_layer(&r->token, l);
    }
}

int engine_reference_run(engine_reference *reference, uint32_t at, uint32_t first_position,
                         const quire_token *tokens, uint32_t num_tokens, uint32_t num_logits,
                         float *logits)
{
    const engine_model_config *c = &reference->model->config;
    if (at >= reference->num_caches || num_logits > num_tokens ||
        num_tokens > c->max_positions - first_position)
        return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < num_tokens; i++) {
        run_token(reference, at, first_position + i, tokens[i]);
        if (i + num_logits >= num_tokens)
            engine_token_logits(&reference->token,
                                logits + (size_t)(i + num_logits - num_tokens) * c->vocabulary);
    }
    return QUIRE_OK;
}

int engine_reference_copy(engine_reference *reference, uint32_t from, uint32_t to,
                          uint32_t num_tokens)
{
    const engine_model_config *c = &reference->model->config;
    if (from >= reference->num_caches || to >= reference->num_caches ||
        num_tokens > c->max_positions)
        return QUIRE_E_RANGE;
    for (uint32_t l = 0; l < c->num_layers && from != to; l++)
        memcpy(cache_layer(reference, to, l), cache_layer(reference, from, l),
               (size_t)num_tokens * engine_token_floats(c) * sizeof(float));
    return QUIRE_OK;
}

#include "engine/model.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* SplitMix64: weights are the same on every machine. */
static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Takes the next n floats; without memory it only counts. */
static const float *take(engine_model *m, size_t n)
{
    const float *at = m->weights == NULL ? NULL : m->weights + m->num_weights;
    m->num_weights += n;
    return at;
}

static void lay_out_layer(engine_model *m, engine_layer *layer)
{
    const engine_model_config *c = &m->config;
    size_t width = c->width;
    size_t heads = (size_t)c->num_heads * c->head_size;
    size_t kv_heads = (size_t)c->num_kv_heads * c->head_size;
    layer->attention_norm = take(m, width);
    layer->query = take(m, width * heads);
    layer->key = take(m, width * kv_heads);
    layer->value = take(m, width * kv_heads);
    layer->output = take(m, heads * width);
    layer->hidden_norm = take(m, width);
    layer->gate = take(m, width * c->hidden);
    layer->up = take(m, width * c->hidden);
    layer->down = take(m, c->hidden * width);
}

static void lay_out(engine_model *m)
{
    const engine_model_config *c = &m->config;
    size_t rotary = (size_t)c->max_positions * (c->head_size / 2);
    m->num_weights = 0;
    m->embedding = take(m, (size_t)c->vocabulary * c->width);
    for (uint32_t l = 0; l < c->num_layers; l++)
        lay_out_layer(m, &m->layers[l]);
    m->final_norm = take(m, c->width);
    m->head = take(m, (size_t)c->width * c->vocabulary);
    m->cosines = take(m, rotary);
    m->sines = take(m, rotary);
}

static float *writable(const engine_model *m, const float *at)
{
    return m->weights + (at - m->weights);
}

/* Evenly from -scale to scale. */
static void fill_random(const engine_model *m, const float *at, size_t n, float scale,
                        uint64_t *random)
{
    float *to = writable(m, at);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(next_random(random) >> 40); /* 24 bits: exact in a float */
        to[i] = ((float)bits * (1.0f / 8388608.0f) - 1.0f) * scale;
    }
}

static void fill_norm(const engine_model *m, const float *at, uint64_t *random)
{
    fill_random(m, at, m->config.width, 0.25f, random);
    for (uint32_t i = 0; i < m->config.width; i++)
        writable(m, at)[i] += 1.0f;
}

static void fill_layer(const engine_model *m, const engine_layer *layer, uint64_t *random)
{
    const engine_model_config *c = &m->config;
    size_t heads = (size_t)c->num_heads * c->head_size;
    size_t kv_heads = (size_t)c->num_kv_heads * c->head_size;
    float scale = 1.7f / sqrtf((float)c->width);
    fill_norm(m, layer->attention_norm, random);
    fill_random(m, layer->query, c->width * heads, 2.0f * scale, random);
    fill_random(m, layer->key, c->width * kv_heads, 2.0f * scale, random);
    fill_random(m, layer->value, c->width * kv_heads, scale, random);
    fill_random(m, layer->output, heads * c->width, 1.7f / sqrtf((float)heads), random);
    fill_norm(m, layer->hidden_norm, random);
    fill_random(m, layer->gate, (size_t)c->width * c->hidden, scale, random);
    fill_random(m, layer->up, (size_t)c->width * c->hidden, scale, random);
    fill_random(m, layer->down, (size_t)c->hidden * c->width, 1.7f / sqrtf((float)c->hidden),
                random);
}

static void fill_head(const engine_model *m, uint64_t *random)
{
    const engine_model_config *c = &m->config;
    float *head = writable(m, m->head);
    if (!c->is_tied) {
        fill_random(m, m->head, (size_t)c->width * c->vocabulary, 0.5f, random);
        return;
    }
    for (uint32_t v = 0; v < c->vocabulary; v++)
        for (uint32_t i = 0; i < c->width; i++)
            head[(size_t)i * c->vocabulary + v] = m->embedding[(size_t)v * c->width + i];
}

static void fill_rotary(const engine_model *m)
{
    uint32_t half = m->config.head_size / 2;
    for (uint32_t p = 0; p < m->config.max_positions; p++) {
        for (uint32_t i = 0; i < half; i++) {
            double angle = p * pow(10000.0, -(double)i / half);
            writable(m, m->cosines)[(size_t)p * half + i] = (float)cos(angle);
            writable(m, m->sines)[(size_t)p * half + i] = (float)sin(angle);
        }
    }
}

static bool is_possible(const engine_model_config *c)
{
    return c->vocabulary > 0 && c->width > 0 && c->hidden > 0 && c->max_positions > 0 &&
           c->num_groups > 0 && c->num_groups <= ENGINE_MAX_GROUPS && c->num_layers > 0 &&
           c->num_layers <= ENGINE_MAX_LAYERS && c->num_layers % c->num_groups == 0 &&
           c->num_kv_heads > 0 && c->num_heads % c->num_kv_heads == 0 && c->head_size > 0 &&
           c->head_size % 2 == 0;
}

engine_model *engine_model_create(const engine_model_config *config)
{
    engine_model *m = is_possible(config) ? calloc(1, sizeof *m) : NULL;
    if (m == NULL)
        return NULL;
    m->config = *config;
    m->epsilon = 1e-5f;
    m->score_scale = 1.0f / sqrtf((float)config->head_size);
    lay_out(m);
    m->weights = calloc(m->num_weights, sizeof *m->weights);
    if (m->weights == NULL) {
        free(m);
        return NULL;
    }
    lay_out(m);
    uint64_t random = config->seed;
    fill_random(m, m->embedding, (size_t)config->vocabulary * config->width, 1.0f, &random);
    for (uint32_t l = 0; l < config->num_layers; l++)
        fill_layer(m, &m->layers[l], &random);
    fill_norm(m, m->final_norm, &random);
    fill_head(m, &random);
    fill_rotary(m);
    return m;
}

void engine_model_destroy(engine_model *model)
{
    if (model == NULL)
        return;
    free(model->weights);
    free(model);
}

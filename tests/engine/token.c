#include "engine/token.h"

#include "engine/arith.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 16 };

int engine_token_create(engine_token *token, const engine_model *model)
{
    const engine_model_config *c = &model->config;
    size_t heads = (size_t)c->num_heads * c->head_size;
    size_t scores = (size_t)c->num_heads * c->max_positions;
    float *at = calloc(2 * c->width + 2 * heads + 2 * c->hidden + scores, sizeof *at);
    if (at == NULL)
        return 1;
    *token = (engine_token){.model = model, .memory = at};
    token->x = at;
    token->norm = token->x + c->width;
    token->query = token->norm + c->width;
    token->attended = token->query + heads;
    token->gate = token->attended + heads;
    token->up = token->gate + c->hidden;
    token->scores = token->up + c->hidden;
    return 0;
}

void engine_token_destroy(engine_token *token)
{
    free(token->memory);
    *token = (engine_token){0};
}

/* n outputs of x times a matrix [in][out]: sums in registers, each in the order of rows. */
static inline void multiply_tile(const float *x, uint32_t in, const float *w, uint32_t out,
                                 uint32_t n, float *y)
{
    float sums[TILE] = {0};
    for (uint32_t i = 0; i < in; i++)
        for (uint32_t k = 0; k < n; k++)
            sums[k] += x[i] * w[(size_t)i * out + k];
    memcpy(y, sums, n * sizeof *y);
}

static void multiply(const float *x, uint32_t in, const float *w, uint32_t out, float *y)
{
    uint32_t o = 0;
    for (; o + TILE <= out; o += TILE)
        multiply_tile(x, in, w + o, out, TILE, y + o);
    if (o < out)
        multiply_tile(x, in, w + o, out, out - o, y + o);
}

static void normalise(const engine_model *m, const float *x, const float *w, float *y)
{
    uint32_t n = m->config.width;
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    float scale = 1.0f / sqrtf(sum / (float)n + m->epsilon);
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

static void rotate(const engine_model *m, uint32_t position, float *heads, uint32_t num_heads)
{
    uint32_t half = m->config.head_size / 2;
    const float *cosines = m->cosines + (size_t)position * half;
    const float *sines = m->sines + (size_t)position * half;
    for (uint32_t h = 0; h < num_heads; h++) {
        float *at = heads + (size_t)h * 2 * half;
        for (uint32_t i = 0; i < half; i++) {
            float a = at[i];
            float b = at[i + half];
            at[i] = a * cosines[i] - b * sines[i];
            at[i + half] = b * cosines[i] + a * sines[i];
        }
    }
}

void engine_token_begin(engine_token *token, quire_token id)
{
    uint32_t width = token->model->config.width;
    memcpy(token->x, token->model->embedding + (size_t)id * width, width * sizeof *token->x);
}

void engine_token_project(engine_token *token, uint32_t layer, uint32_t position, float *kv)
{
    const engine_model *m = token->model;
    const engine_model_config *c = &m->config;
    const engine_layer *w = &m->layers[layer];
    uint32_t kv_floats = c->num_kv_heads * c->head_size;
    normalise(m, token->x, w->attention_norm, token->norm);
    multiply(token->norm, c->width, w->query, c->num_heads * c->head_size, token->query);
    multiply(token->norm, c->width, w->key, kv_floats, kv);
    multiply(token->norm, c->width, w->value, kv_floats, kv + kv_floats);
    rotate(m, position, token->query, c->num_heads);
    rotate(m, position, kv, c->num_kv_heads);
}

void engine_token_finish_layer(engine_token *token, uint32_t layer)
{
    const engine_model_config *c = &token->model->config;
    const engine_layer *w = &token->model->layers[layer];
    multiply(token->attended, c->num_heads * c->head_size, w->output, c->width, token->norm);
    for (uint32_t i = 0; i < c->width; i++)
        token->x[i] += token->norm[i];
    normalise(token->model, token->x, w->hidden_norm, token->norm);
    multiply(token->norm, c->width, w->gate, c->hidden, token->gate);
    multiply(token->norm, c->width, w->up, c->hidden, token->up);
    for (uint32_t i = 0; i < c->hidden; i++) {
        float g = token->gate[i];
        token->gate[i] = g / (1.0f + engine_exp(-g)) * token->up[i];
    }
    multiply(token->gate, c->hidden, w->down, c->width, token->norm);
    for (uint32_t i = 0; i < c->width; i++)
        token->x[i] += token->norm[i];
}

void engine_token_logits(engine_token *token, float *logits)
{
    const engine_model *m = token->model;
    normalise(m, token->x, m->final_norm, token->norm);
    multiply(token->norm, m->config.width, m->head, m->config.vocabulary, logits);
}

float engine_token_weigh(float *scores, uint32_t n)
{
    float most = scores[0];
    for (uint32_t i = 1; i < n; i++)
        most = scores[i] > most ? scores[i] : most;
    for (uint32_t i = 0; i < n; i++)
        scores[i] = engine_exp(scores[i] - most);
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += scores[i];
    return sum;
}

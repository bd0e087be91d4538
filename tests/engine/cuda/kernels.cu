/* engine/cuda/kernels.cu - the model of engine/model.h as kernels: a block of threads for each token.
 *
 *      x ─► norm ─► queries, keys, values ─► rotary ─► cache      project(): the next layer's
 *      cache ─► scores ─► softmax ─► values ─► o                  attend_paged(), attend_reference()
 *      o ─► + ─► norm ─► SwiGLU ─► + ─► x                         finish()
 *
 * Every sum is made by one thread, in the order that engine/model.h says. So a token's bits depend
 * neither on the number of threads nor on what else runs, and they are those of the processor.
 */
#include "engine/cuda/dialect.h"
#include "engine/cuda/kernels.h"

#include "engine/arith.h"

/* Of one block, in its shared memory. */
typedef struct scratch {
    float *x;          /* [width] */
    float *normed;     /* [width] */
    float *raw;        /* queries, keys, values before rotation */
    float *out;        /* [num_heads * head_size] queries, later what attention gives */
    float *gated;      /* [hidden] */
    float *maxima;     /* [num_heads] */
    float *scores;     /* [num_heads][positions seen] */
    uint32_t *offsets; /* of the positions seen: their keys, in floats from the first page */
} scratch;

DEVICE scratch carve(const engine_kernel_model *m, float *shared, uint32_t num_seen)
{
    uint32_t query_size = m->num_heads * m->head_size;
    scratch s;
    s.x = shared;
    s.normed = s.x + m->width;
    s.raw = s.normed + m->width;
    s.out = s.raw + query_size + 2 * m->num_kv_heads * m->head_size;
    s.gated = s.out + query_size;
    s.maxima = s.gated + m->hidden;
    s.scores = s.maxima + m->num_heads;
    s.offsets = (uint32_t *)(s.scores + m->num_heads * num_seen);
    return s;
}

/* ---- what belongs to a token alone ----------------------------------------- */

/* Column `out` of a matrix of rows of `stride`. */
DEVICE float dot_column(const float *x, const float *matrix, uint32_t rows, uint32_t stride,
                        uint32_t out)
{
    const float *w = matrix + out;
    float sum = 0.0f;
    UNROLLED
    for (uint32_t i = 0; i < rows; i++)
        sum += x[i] * w[(size_t)i * stride];
    return sum;
}

/* Each thread makes the whole sum: cheaper than to wait for one that does. */
DEVICE void normalize(const engine_kernel_model *m, const float *x, const float *weights,
                      float *normed)
{
    float squares = 0.0f;
    for (uint32_t i = 0; i < m->width; i++)
        squares += x[i] * x[i];
    float scale = 1.0f / __builtin_sqrtf(squares / (float)m->width + m->epsilon);
    EACH(i, m->width)
    {
        normed[i] = x[i] * scale * weights[i];
    }
    TOGETHER();
}

DEVICE void embed(const engine_kernel_model *m, int32_t token, float *x)
{
    EACH(i, m->width)
    {
        x[i] = m->embedding[(size_t)token * m->width + i];
    }
    TOGETHER();
}

/* Pair i of a head, as rotated by a position. */
DEVICE void rotate(const engine_kernel_model *m, const float *raw, uint32_t position, uint32_t i,
                   float *rotated)
{
    uint32_t half = m->head_size / 2;
    float cosine = m->cosines[(size_t)position * half + i];
    float sine = m->sines[(size_t)position * half + i];
    rotated[i] = raw[i] * cosine - raw[i + half] * sine;
    rotated[i + half] = raw[i] * sine + raw[i + half] * cosine;
}

/* Queries to where the next launch finds them; keys and values to kv, unless that is NULL. */
DEVICE void project(const engine_kernel_model *m, const engine_layer *layer, const scratch *s,
                    uint32_t position, float *queries, float *kv)
{
    uint32_t query_size = m->num_heads * m->head_size;
    uint32_t kv_size = m->num_kv_heads * m->head_size;
    uint32_t half = m->head_size / 2;
    normalize(m, s->x, layer->attention_norm, s->normed);
    EACH(i, query_size + 2 * kv_size)
    {
        const float *matrix = layer->query;
        uint32_t stride = query_size;
        uint32_t out = i;
        if (i >= query_size) {
            matrix = i < query_size + kv_size ? layer->key : layer->value;
            stride = kv_size;
            out = (i - query_size) % kv_size;
        }
        s->raw[i] = dot_column(s->normed, matrix, m->width, stride, out);
    }
    TOGETHER();
    EACH(i, (m->num_heads + m->num_kv_heads) * half)
    {
        uint32_t head = i / half;
        const float *raw = s->raw + head * m->head_size;
        if (head < m->num_heads)
            rotate(m, raw, position, i % half, queries + head * m->head_size);
        else if (kv != NULL)
            rotate(m, raw, position, i % half, kv + (head - m->num_heads) * m->head_size);
    }
    EACH(i, kv_size)
    {
        if (kv != NULL)
            kv[kv_size + i] = s->raw[query_size + kv_size + i];
    }
}

/* What follows attention, up to the end of the layer. */
DEVICE void finish(const engine_kernel_model *m, const engine_layer *layer, const scratch *s)
{
    EACH(i, m->width)
    {
        s->x[i] += dot_column(s->out, layer->output, m->num_heads * m->head_size, m->width, i);
    }
    TOGETHER();
    normalize(m, s->x, layer->hidden_norm, s->normed);
    EACH(i, m->hidden)
    {
        float gate = dot_column(s->normed, layer->gate, m->width, m->hidden, i);
        float up = dot_column(s->normed, layer->up, m->width, m->hidden, i);
        s->gated[i] = gate / (1.0f + engine_exp(-gate)) * up;
    }
    TOGETHER();
    EACH(i, m->width)
    {
        s->x[i] += dot_column(s->gated, layer->down, m->hidden, m->width, i);
    }
    TOGETHER();
}

DEVICE void give_logits(const engine_kernel_model *m, const scratch *s, float *logits)
{
    normalize(m, s->x, m->final_norm, s->normed);
    EACH(i, m->vocabulary)
    {
        logits[i] = dot_column(s->normed, m->head, m->width, m->vocabulary, i);
    }
}

DEVICE void move(const float *from, float *to, uint32_t count)
{
    EACH(i, count)
    {
        to[i] = from[i];
    }
}

/* ---- attention through block tables ---------------------------------------- */

DEVICE void attend_paged(const engine_kernel_paged *a, const scratch *s, uint32_t row,
                         uint32_t first, uint32_t num_seen)
{
    const engine_kernel_model *m = &a->model;
    const int32_t *table = a->now.table + (size_t)row * a->table_stride;
    uint32_t size = m->head_size;
    uint32_t kv_size = m->num_kv_heads * size;
    uint32_t shared_by = m->num_heads / m->num_kv_heads;
    EACH(p, num_seen)
    {
        uint32_t position = first + p;
        uint32_t block = (uint32_t)table[position / a->now.block_size];
        s->offsets[p] = (uint32_t)(block * a->block_stride +
                                   position % a->now.block_size * (2 * kv_size));
    }
    TOGETHER();
    EACH(i, m->num_heads * num_seen)
    {
        uint32_t head = i / num_seen;
        const float *key = a->now.pages + s->offsets[i % num_seen] + head / shared_by * size;
        s->scores[i] = dot_column(s->out + head * size, key, size, 1, 0) * m->score_scale;
    }
    TOGETHER();
    EACH(head, m->num_heads)
    {
        float maximum = s->scores[head * num_seen];
        for (uint32_t p = 1; p < num_seen; p++)
            maximum = s->scores[head * num_seen + p] > maximum ? s->scores[head * num_seen + p]
                                                               : maximum;
        s->maxima[head] = maximum;
    }
    TOGETHER();
    EACH(i, m->num_heads * num_seen)
    {
        s->scores[i] = engine_exp(s->scores[i] - s->maxima[i / num_seen]);
    }
    TOGETHER();
    EACH(i, m->num_heads * size)
    {
        uint32_t head = i / size;
        const float *values = a->now.pages + kv_size + head / shared_by * size + i % size;
        float total = 0.0f;
        float value = 0.0f;
        UNROLLED
        for (uint32_t p = 0; p < num_seen; p++) {
            float weight = s->scores[head * num_seen + p];
            total += weight;
            value += weight * values[s->offsets[p]];
        }
        s->out[i] = value / total;
    }
    TOGETHER();
}

/* Where a token's keys go, or NULL: a slot that is none. */
DEVICE float *find_slot(const engine_kernel_paged *a, uint32_t token)
{
    int64_t slot = a->next.slots[token];
    if (slot < 0)
        return NULL;
    uint64_t block = (uint64_t)slot / a->next.block_size;
    uint64_t offset = (uint64_t)slot % a->next.block_size;
    uint32_t token_size = 2 * a->model.num_kv_heads * a->model.head_size;
    return a->next.pages + block * a->block_stride + offset * token_size;
}

KERNEL engine_paged_begin(const engine_kernel_paged a)
{
    SHARED(float, shared);
    const engine_kernel_model *m = &a.model;
    uint32_t token = MY_BLOCK;
    scratch s = carve(m, shared, 0);
    embed(m, a.tokens[token], s.x);
    move(s.x, a.x + (size_t)token * m->width, m->width);
    project(m, &m->layers[0], &s, a.positions[token],
            a.queries + (size_t)token * m->num_heads * m->head_size, find_slot(&a, token));
}

KERNEL engine_paged_layer(const engine_kernel_paged a)
{
    SHARED(float, shared);
    const engine_kernel_model *m = &a.model;
    uint32_t token = MY_BLOCK;
    uint32_t query_size = m->num_heads * m->head_size;
    uint32_t position = a.positions[token];
    uint32_t window = a.now.window;
    uint32_t first = window == 0 || position < window ? 0 : position - window + 1;
    uint32_t num_seen = position + 1 - first;
    scratch s = carve(m, shared, num_seen);
    bool is_last = a.layer + 1 == m->num_layers;
    if (is_last && a.logit_rows[token] == ENGINE_NO_LOGITS)
        return; /* nobody asks what comes out of it, and its keys are written */
    move(a.x + (size_t)token * m->width, s.x, m->width);
    move(a.queries + (size_t)token * query_size, s.out, query_size);
    attend_paged(&a, &s, a.rows[token], first, num_seen);
    finish(m, &m->layers[a.layer], &s);
    if (is_last) {
        give_logits(m, &s, a.logits + (size_t)a.logit_rows[token] * m->vocabulary);
        return;
    }
    move(s.x, a.x + (size_t)token * m->width, m->width);
    project(m, &m->layers[a.layer + 1], &s, position, a.queries + (size_t)token * query_size,
            find_slot(&a, token));
}

/* ---- the reference --------------------------------------------------------- */

DEVICE float *find_cached(const engine_kernel_reference *a, uint32_t layer, uint32_t position)
{
    uint32_t token_size = 2 * a->model.num_kv_heads * a->model.head_size;
    return a->cache + ((size_t)position * a->model.num_layers + layer) * token_size;
}

/* One request, one piece of memory: no table, no slot, no block. The sums are those of the other
 * one, by position. */
DEVICE void attend_reference(const engine_kernel_reference *a, const scratch *s, uint32_t layer,
                             uint32_t first, uint32_t num_seen)
{
    const engine_kernel_model *m = &a->model;
    uint32_t size = m->head_size;
    uint32_t shared_by = m->num_heads / m->num_kv_heads;
    size_t stride = (size_t)m->num_layers * 2 * m->num_kv_heads * size;
    const float *keys = find_cached(a, layer, first);
    const float *values = keys + m->num_kv_heads * size;
    EACH(p, num_seen)
    {
        for (uint32_t head = 0; head < m->num_heads; head++) {
            const float *key = keys + p * stride + head / shared_by * size;
            float score = 0.0f;
            for (uint32_t i = 0; i < size; i++)
                score += s->out[head * size + i] * key[i];
            s->scores[head * num_seen + p] = score * m->score_scale;
        }
    }
    TOGETHER();
    EACH(head, m->num_heads)
    {
        float maximum = s->scores[head * num_seen];
        for (uint32_t p = 1; p < num_seen; p++)
            if (s->scores[head * num_seen + p] > maximum)
                maximum = s->scores[head * num_seen + p];
        s->maxima[head] = maximum;
    }
    TOGETHER();
    EACH(p, num_seen)
    {
        for (uint32_t head = 0; head < m->num_heads; head++)
            s->scores[head * num_seen + p] =
                engine_exp(s->scores[head * num_seen + p] - s->maxima[head]);
    }
    TOGETHER();
    EACH(i, m->num_heads * size)
    {
        const float *weights = s->scores + i / size * num_seen;
        const float *value = values + i / size / shared_by * size + i % size;
        float total = 0.0f;
        float sum = 0.0f;
        UNROLLED
        for (uint32_t p = 0; p < num_seen; p++) {
            total += weights[p];
            sum += weights[p] * value[p * stride];
        }
        s->out[i] = sum / total;
    }
    TOGETHER();
}

/* Attention and the rest of a layer; x and the queries are in s. */
DEVICE void run_reference(const engine_kernel_reference *a, const scratch *s, uint32_t layer,
                          uint32_t position)
{
    uint32_t window = a->windows[layer % a->num_groups];
    uint32_t first = window == 0 || position < window ? 0 : position - window + 1;
    attend_reference(a, s, layer, first, position + 1 - first);
    finish(&a->model, &a->model.layers[layer], s);
}

KERNEL engine_reference_begin(const engine_kernel_reference a)
{
    SHARED(float, shared);
    const engine_kernel_model *m = &a.model;
    uint32_t token = MY_BLOCK;
    uint32_t position = a.first_position + token;
    scratch s = carve(m, shared, position + 1);
    embed(m, a.tokens[token], s.x);
    move(s.x, a.x + (size_t)token * m->width, m->width);
    project(m, &m->layers[0], &s, position, a.queries + (size_t)token * m->num_heads * m->head_size,
            find_cached(&a, 0, position));
}

KERNEL engine_reference_layer(const engine_kernel_reference a)
{
    SHARED(float, shared);
    const engine_kernel_model *m = &a.model;
    uint32_t token = MY_BLOCK;
    uint32_t query_size = m->num_heads * m->head_size;
    uint32_t position = a.first_position + token;
    scratch s = carve(m, shared, position + 1);
    bool is_last = a.layer + 1 == m->num_layers;
    if (is_last && token < a.first_logits)
        return;
    move(a.x + (size_t)token * m->width, s.x, m->width);
    move(a.queries + (size_t)token * query_size, s.out, query_size);
    TOGETHER();
    run_reference(&a, &s, a.layer, position);
    if (is_last) {
        give_logits(m, &s, a.logits + (size_t)(token - a.first_logits) * m->vocabulary);
        return;
    }
    move(s.x, a.x + (size_t)token * m->width, m->width);
    project(m, &m->layers[a.layer + 1], &s, position, a.queries + (size_t)token * query_size,
            find_cached(&a, a.layer + 1, position));
}

/* One token, alone: there is nobody to wait for between layers, so one launch does them all. */
KERNEL engine_reference_token(const engine_kernel_reference a)
{
    SHARED(float, shared);
    const engine_kernel_model *m = &a.model;
    uint32_t position = a.first_position;
    scratch s = carve(m, shared, position + 1);
    embed(m, a.token, s.x);
    for (uint32_t layer = 0; layer < m->num_layers; layer++) {
        project(m, &m->layers[layer], &s, position, s.out, find_cached(&a, layer, position));
        TOGETHER();
        run_reference(&a, &s, layer, position);
    }
    if (a.first_logits == 0)
        give_logits(m, &s, a.logits);
}

/* ---- for tests ------------------------------------------------------------- */

/* A step that takes long. */
KERNEL engine_delay(const engine_kernel_delay a)
{
    uint64_t start = now_ns();
    while (now_ns() - start < a.ns)
        ;
}

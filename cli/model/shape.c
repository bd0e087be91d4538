/* shape.c - parameters and bytes of a shape, layer by layer.
 *
 *      attention    q, k, v, o                or, latent: q_a, q_b, kv_a, kv_b, o
 *      feed-forward gate, up, down            of one dense layer, or of each expert; a router
 *      norms, biases                          a few thousand; counted, so that totals are exact
 *      embeddings, output head                vocabulary x hidden, once where they are tied
 */
#include "shape.h"
#include "options/nearest.h"
#include "output/failure.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- finding ------------------------------------------------------------- */

static void drop_ending(char *name, const char *ending)
{
    size_t length = strlen(name);
    size_t tail = strlen(ending);
    if (length > tail && strcmp(name + length - tail, ending) == 0)
        name[length - tail] = '\0';
}

/* "meta-llama/Llama-3.1-8B-Instruct" and "llama3.1-8b" are one name. */
static void squeeze_model_name(const char *name, char *out, size_t capacity)
{
    const char *slash = strrchr(name, '/');
    if (slash)
        name = slash + 1;
    if (strncasecmp(name, "meta-", 5) == 0)
        name += 5;
    squeeze_name(name, out, capacity);
    drop_ending(out, "instruct");
    drop_ending(out, "it");
    drop_ending(out, "chat");
}

static const shape *preset_named(const char *name)
{
    char wanted[128];
    char known[128];
    squeeze_model_name(name, wanted, sizeof wanted);
    for (uint32_t i = 0; shape_preset(i); i++) {
        squeeze_model_name(shape_preset(i)->name, known, sizeof known);
        if (strcmp(wanted, known) == 0)
            return shape_preset(i);
    }
    return NULL;
}

int shape_find(const char *name_or_path, shape *out)
{
    char path[1024];
    struct stat info;
    if (stat(name_or_path, &info) == 0) {
        snprintf(path, sizeof path, "%s%s", name_or_path,
                 S_ISDIR(info.st_mode) ? "/config.json" : "");
        return shape_read_config(path, out);
    }
    const shape *preset = preset_named(name_or_path);
    if (preset) {
        *out = *preset;
        return 0;
    }
    nearest near = nearest_to(name_or_path);
    for (uint32_t i = 0; shape_preset(i); i++)
        nearest_offer(&near, shape_preset(i)->name);
    const char *hint = nearest_name(&near);
    return fail_with("unknown model \"%.200s\", neither a preset nor a config.json; %s%s%s",
                     name_or_path, hint ? "did you mean " : "quire plan --list shows the presets",
                     hint ? hint : "", hint ? "?" : "");
}

/* What is wrong, or NULL. The limits are far above all models, and keep products below 2^63. */
static const char *shape_problem(const shape *s)
{
    enum { MAX_WIDTH = 1 << 17, MAX_FFN = 1 << 20, MAX_HEADS = 1024, MAX_HEAD_DIM = 4096 };
    if (s->num_layers == 0 || s->num_layers > SHAPE_MAX_LAYERS / 2)
        return "invalid number of layers (expected 1..256)";
    if (s->hidden == 0 || s->hidden > MAX_WIDTH || s->vocab == 0 || s->vocab > 1 << 24)
        return "hidden size or vocabulary is missing or too large";
    if (s->num_heads == 0 || s->num_heads > MAX_HEADS || s->num_kv_heads == 0 ||
        s->num_kv_heads > s->num_heads || s->head_dim == 0 || s->head_dim > MAX_HEAD_DIM)
        return "heads are missing, too many, too large, or fewer than the KV heads";
    if (s->q_lora_rank > MAX_WIDTH || s->kv_lora_rank > MAX_WIDTH ||
        s->qk_nope_head_dim > MAX_HEAD_DIM || s->qk_rope_head_dim > MAX_HEAD_DIM ||
        s->v_head_dim > MAX_HEAD_DIM)
        return "the latent vectors are too large";
    if (s->ffn > MAX_FFN || s->expert_ffn > MAX_FFN || s->shared_ffn > MAX_FFN ||
        s->num_experts > 4096)
        return "the feed-forward part is too large";
    if (s->num_experts == 0 ? s->ffn == 0 : s->expert_ffn == 0)
        return "the width of the feed-forward part is missing";
    if (s->num_experts > 0 &&
        (s->num_active_experts == 0 || s->num_active_experts > s->num_experts))
        return "invalid number of experts per token (expected 1 up to the number of experts)";
    if (s->num_dense_layers > s->num_layers)
        return "there are more dense layers than layers";
    return NULL;
}

int shape_check(const shape *s)
{
    quire_layer_spec layers[SHAPE_MAX_LAYERS];
    uint32_t num_layers = 0;
    const char *problem = shape_problem(s);
    if (!problem && shape_layers(s, &(shape_layers_params){0}, layers, &num_layers) != QUIRE_OK)
        problem = "the library does not know its layers";
    return problem ? fail_with("model %s: %s", s->name, problem) : 0;
}

/* ---- counting ------------------------------------------------------------ */

static uint64_t attention_params(const shape *s)
{
    uint64_t hidden = s->hidden;
    uint64_t heads = s->num_heads;
    if (s->kv_lora_rank == 0)
        return hidden * s->head_dim * (2 * heads + 2 * (uint64_t)s->num_kv_heads);
    uint64_t query = heads * (s->qk_nope_head_dim + s->qk_rope_head_dim);
    uint64_t q = s->q_lora_rank == 0 ? hidden * query : s->q_lora_rank * (hidden + query);
    uint64_t kv_a = hidden * (s->kv_lora_rank + s->qk_rope_head_dim);
    uint64_t kv_b = s->kv_lora_rank * heads * (s->qk_nope_head_dim + s->v_head_dim);
    return q + kv_a + kv_b + heads * s->v_head_dim * hidden;
}

/* Norms and biases of one layer: next to nothing, but then totals are those that are published. */
static uint64_t small_params(const shape *s)
{
    uint64_t norms = 2 * (uint64_t)s->hidden;
    uint64_t qkv = s->head_dim * (s->num_heads + 2 * (uint64_t)s->num_kv_heads);
    if (strncmp(s->model_type, "qwen3", 5) == 0)
        return norms + 2 * (uint64_t)s->head_dim;
    if (strncmp(s->model_type, "gemma3", 6) == 0)
        return 2 * norms + 2 * (uint64_t)s->head_dim;
    if (strcmp(s->model_type, "gemma2") == 0)
        return 2 * norms;
    if (strncmp(s->model_type, "qwen2", 5) == 0)
        return norms + qkv;
    if (s->kv_lora_rank > 0)
        return norms + s->q_lora_rank + s->kv_lora_rank;
    if (strcmp(s->model_type, "gpt_oss") == 0) /* biases everywhere, and a sink for each head */
        return norms + qkv + s->hidden + s->num_heads + s->num_experts +
               (uint64_t)s->num_experts * (2 * (uint64_t)s->expert_ffn + s->hidden);
    return norms;
}

static double bytes_of_weight(shape_weights weights, bool is_expert)
{
    switch (weights) {
    case SHAPE_FP8:
        return 1;
    case SHAPE_INT4:
        return 0.5 + 2.0 / 128; /* a scale for 128 of them */
    case SHAPE_MXFP4_EXPERTS:
        return is_expert ? 0.5 + 1.0 / 32 : 2; /* a byte of scale for 32 of them */
    default:
        return 2;
    }
}

shape_size shape_measure(const shape *s)
{
    uint64_t hidden = s->hidden;
    uint64_t expert_layers = s->num_experts == 0 ? 0 : s->num_layers - s->num_dense_layers;
    uint64_t dense_layers = s->num_layers - expert_layers;
    uint64_t embedding = hidden * s->vocab;
    uint64_t small = s->num_layers * small_params(s) + hidden;
    uint64_t router = hidden * s->num_experts;
    shape_size size = {0};
    size.dense_params = s->num_layers * attention_params(s) + dense_layers * 3 * hidden * s->ffn +
                        expert_layers * (3 * hidden * s->shared_ffn + router);
    size.expert_params = expert_layers * s->num_experts * 3 * hidden * s->expert_ffn;
    size.head_params = embedding;
    size.total_params =
        size.dense_params + size.expert_params + small + embedding * (s->is_tied ? 1 : 2);
    size.active_params = size.dense_params + size.head_params + small;
    if (s->num_experts > 0)
        size.active_params += size.expert_params / s->num_experts * s->num_active_experts;
    size.dense_bytes = (double)size.dense_params * bytes_of_weight(s->weights, false);
    size.expert_bytes = (double)size.expert_params * bytes_of_weight(s->weights, true);
    size.head_bytes = 2.0 * (double)size.head_params;
    size.weight_bytes = (uint64_t)(size.dense_bytes + size.expert_bytes) +
                        2 * (small + embedding * (s->is_tied ? 1 : 2));
    if (s->weight_bytes > 0) { /* shared out as the formula has them */
        double factor = (double)s->weight_bytes / (double)size.weight_bytes;
        size.dense_bytes *= factor;
        size.expert_bytes *= factor;
        size.head_bytes *= factor;
        size.weight_bytes = s->weight_bytes;
    }
    return size;
}

/* ---- the library's view -------------------------------------------------- */

int shape_layers(const shape *s, const shape_layers_params *params,
                 quire_layer_spec layers[SHAPE_MAX_LAYERS], uint32_t *num_layers)
{
    quire_layer_type types[SHAPE_MAX_LAYERS];
    uint32_t rope[SHAPE_MAX_LAYERS];
    quire_model_params model = QUIRE_MODEL_PARAMS_INIT;
    for (uint32_t i = 0; i < SHAPE_MAX_LAYERS; i++) {
        types[i] = (quire_layer_type)s->layer_types[i];
        rope[i] = s->rope_flags[i];
    }
    model.model_type = s->model_type;
    model.num_hidden_layers = s->num_layers;
    model.hidden_size = s->hidden;
    model.num_attention_heads = s->num_heads;
    model.num_key_value_heads = s->num_kv_heads;
    model.head_dim = s->head_dim;
    model.max_position_embeddings = s->max_model_len;
    model.sliding_window = s->window;
    model.use_sliding_window = s->window > 0 ? QUIRE_ON : QUIRE_OFF;
    model.sliding_window_pattern = s->window_pattern;
    model.layer_types = s->has_layer_types ? types : NULL;
    model.kv_lora_rank = s->kv_lora_rank;
    model.qk_rope_head_dim = s->qk_rope_head_dim;
    model.attention_chunk_size = s->chunk;
    model.no_rope_layers = s->has_rope_flags ? rope : NULL;
    model.no_rope_layer_interval = s->chunk > 0 ? s->full_interval : 0;
    if (s->linear_conv > 0) {
        model.full_attention_interval = s->full_interval;
        model.linear_conv_kernel_dim = s->linear_conv;
        model.linear_num_key_heads = s->linear_key_heads;
        model.linear_num_value_heads = s->linear_value_heads;
        model.linear_key_head_dim = s->linear_key_dim;
        model.linear_value_head_dim = s->linear_value_dim;
        model.mamba_mode = QUIRE_MAMBA_MODE_ALIGN; /* so that prefixes can be cached */
        model.max_model_len = s->max_model_len;
    }
    model.tensor_parallel_size = params->tp;
    model.block_size = params->block_size;
    model.cache_dtype = params->cache_dtype;
    return quire_model_layers(&model, layers, SHAPE_MAX_LAYERS, num_layers);
}

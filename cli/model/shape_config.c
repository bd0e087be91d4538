/* shape_config.c - a shape from a config.json of Hugging Face.
 *
 * Families differ in names (num_local_experts, num_experts, n_routed_experts), in what a missing
 * field means, and in where the text model's fields are (text_config). Fields that have no part in
 * bytes or time are not looked at.
 */
#include "shape.h"

#include "options/nearest.h"
#include "output/failure.h"

#include <jansson.h>

#include <stdio.h>
#include <string.h>

typedef struct config_reader {
    const char *path;
    const json_t *fields;
    shape *out;
    bool is_bad;
} config_reader;

static void reject(config_reader *r, const char *field, const char *why)
{
    if (!r->is_bad)
        fail_with("%.200s: field \"%s\" %s", r->path, field, why);
    r->is_bad = true;
}

/* The field's value; fallback where it is missing or null. */
static uint32_t whole(config_reader *r, const char *field, uint32_t fallback)
{
    const json_t *value = json_object_get(r->fields, field);
    if (!value || json_is_null(value))
        return fallback;
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number > INT32_MAX) {
        reject(r, field, "is not a whole number (expected 0..2147483647)");
        return fallback;
    }
    return (uint32_t)number;
}

static uint32_t needed(config_reader *r, const char *field, uint32_t fallback)
{
    uint32_t value = whole(r, field, fallback);
    if (value == 0)
        reject(r, field, "is missing or 0");
    return value;
}

static bool truth(const config_reader *r, const char *field, bool fallback)
{
    const json_t *value = json_object_get(r->fields, field);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

static bool is_family(const config_reader *r, const char *beginning)
{
    return strncmp(r->out->model_type, beginning, strlen(beginning)) == 0;
}

/* ---- parts --------------------------------------------------------------- */

static void read_attention(config_reader *r)
{
    shape *s = r->out;
    bool is_gemma3 = is_family(r, "gemma3"); /* its small configs leave out what is usual */
    s->num_heads = needed(r, "num_attention_heads", is_gemma3 ? 8 : 0);
    s->num_kv_heads = whole(r, "num_key_value_heads", is_gemma3 ? 4 : s->num_heads);
    s->head_dim = whole(r, "head_dim", is_gemma3 ? 256 : 0);
    s->kv_lora_rank = whole(r, "kv_lora_rank", 0);
    if (s->kv_lora_rank > 0) {
        s->q_lora_rank = whole(r, "q_lora_rank", 0);
        s->qk_nope_head_dim = needed(r, "qk_nope_head_dim", 0);
        s->qk_rope_head_dim = needed(r, "qk_rope_head_dim", 0);
        s->v_head_dim = needed(r, "v_head_dim", 0);
        s->head_dim = s->qk_nope_head_dim + s->qk_rope_head_dim;
    }
    if (s->head_dim == 0 && s->num_heads > 0)
        s->head_dim = s->hidden / s->num_heads;
}

static void read_experts(config_reader *r)
{
    static const char *const names[] = {"num_local_experts", "num_experts", "n_routed_experts"};
    shape *s = r->out;
    for (size_t i = 0; i < sizeof names / sizeof *names && s->num_experts == 0; i++)
        s->num_experts = whole(r, names[i], 0);
    if (s->num_experts == 0)
        return;
    s->num_active_experts = whole(r, "num_experts_per_tok", whole(r, "experts_per_token", 0));
    s->expert_ffn = whole(r, "moe_intermediate_size", s->ffn);
    uint64_t shared = (uint64_t)whole(r, "n_shared_experts", 0) * s->expert_ffn;
    s->shared_ffn = shared < UINT32_MAX ? (uint32_t)shared : UINT32_MAX;
    if (s->shared_ffn == 0)
        s->shared_ffn = whole(r, "shared_expert_intermediate_size", 0);
    s->num_dense_layers = whole(r, "first_k_dense_replace", 0);
    const json_t *dense = json_object_get(r->fields, "mlp_only_layers");
    if (json_is_array(dense))
        s->num_dense_layers += (uint32_t)json_array_size(dense);
    if (whole(r, "decoder_sparse_step", 1) > 1)
        reject(r, "decoder_sparse_step", "is more than 1, which is not supported");
}

static void read_layer_types(config_reader *r, const json_t *types)
{
    static const char *const names[] = {"full_attention", "sliding_attention", "chunked_attention",
                                        "linear_attention"};
    shape *s = r->out;
    if (json_array_size(types) != s->num_layers || s->num_layers > SHAPE_MAX_LAYERS) {
        reject(r, "layer_types", "does not have one entry for each layer");
        return;
    }
    for (uint32_t i = 0; i < s->num_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        for (uint8_t k = 0; type && k < sizeof names / sizeof *names; k++)
            if (strcmp(type, names[k]) == 0)
                s->layer_types[i] = (uint8_t)(k + 1);
        if (s->layer_types[i] != QUIRE_LAYER_TYPE_FULL &&
            s->layer_types[i] != QUIRE_LAYER_TYPE_SLIDING)
            reject(r, "layer_types", "has an entry that is neither full nor sliding attention");
    }
    s->has_layer_types = true;
}

static void read_windows(config_reader *r)
{
    shape *s = r->out;
    const json_t *types = json_object_get(r->fields, "layer_types");
    bool is_qwen = is_family(r, "qwen");
    s->window = whole(r, "sliding_window", 0);
    if (is_qwen && !truth(r, "use_sliding_window", false))
        s->window = 0;
    if (s->window == 0)
        return;
    if (is_family(r, "gemma3"))
        s->window_pattern = whole(r, "sliding_window_pattern", 6);
    if (json_is_array(types))
        read_layer_types(r, types);
}

static void read_weights(config_reader *r, const json_t *root)
{
    const json_t *quantized = json_object_get(root, "quantization_config");
    const char *method = json_string_value(json_object_get(quantized, "quant_method"));
    json_int_t bits = json_integer_value(json_object_get(quantized, "bits"));
    if (!json_is_object(quantized))
        return;
    if (method && strcmp(method, "mxfp4") == 0)
        r->out->weights = SHAPE_MXFP4_EXPERTS;
    else if ((method && strcmp(method, "fp8") == 0) || bits == 8)
        r->out->weights = SHAPE_FP8;
    else if (bits == 4)
        r->out->weights = SHAPE_INT4;
    else
        reject(r, "quantization_config", "has an unknown quant_method");
}

/* ---- the whole ----------------------------------------------------------- */

static void read_chunks(config_reader *r)
{
    shape *s = r->out;
    const json_t *flags = json_object_get(r->fields, "no_rope_layers");
    s->chunk = needed(r, "attention_chunk_size", 8192);
    s->full_interval = whole(r, "no_rope_layer_interval", 0);
    if (json_array_size(flags) == 0)
        return;
    if (json_array_size(flags) != s->num_layers || s->num_layers > SHAPE_MAX_LAYERS) {
        reject(r, "no_rope_layers", "does not have one entry for each layer");
        return;
    }
    for (uint32_t i = 0; i < s->num_layers; i++)
        s->rope_flags[i] = json_integer_value(json_array_get(flags, i)) != 0;
    s->has_rope_flags = true;
}

static void read_linear_layers(config_reader *r)
{
    shape *s = r->out;
    s->full_interval = whole(r, "full_attention_interval", 0);
    s->linear_conv = needed(r, "linear_conv_kernel_dim", 0);
    s->linear_key_heads = needed(r, "linear_num_key_heads", 0);
    s->linear_value_heads = needed(r, "linear_num_value_heads", 0);
    s->linear_key_dim = needed(r, "linear_key_head_dim", 0);
    s->linear_value_dim = needed(r, "linear_value_head_dim", 0);
}

/* Whether the type can be read. Of some the weights are counted, of others the user says them. */
static bool accept_type(config_reader *r, const char *type)
{
    static const char *const counted[] = {"llama",       "mistral",     "mixtral",     "phi3",
                                          "qwen2",       "qwen3",       "qwen2_moe",   "qwen3_moe",
                                          "gemma2",      "gemma3",      "gemma3_text", "gpt_oss",
                                          "deepseek_v2", "deepseek_v3", "kimi_k2",     NULL};
    static const char *const unread[] = {"jamba", "bamba", "nemotron_h", "whisper", NULL};
    if (!type || !quire_model_is_known(type) || is_one_of(type, unread)) {
        reject(r, "model_type", type ? "names a model with unknown layers" : "is missing");
        return false;
    }
    r->out->needs_weights = !is_one_of(type, counted);
    return true;
}

static void read_shape(config_reader *r, const json_t *root)
{
    shape *s = r->out;
    const json_t *text = json_object_get(root, "text_config");
    r->fields = json_is_object(text) ? text : root;
    const char *type = json_string_value(json_object_get(r->fields, "model_type"));
    if (!type)
        type = json_string_value(json_object_get(root, "model_type"));
    if (!accept_type(r, type))
        return;
    bool is_gemma = strncmp(type, "gemma", 5) == 0;
    snprintf(s->model_type, sizeof s->model_type, "%s", type);
    s->num_layers = needed(r, "num_hidden_layers", 0);
    s->hidden = needed(r, "hidden_size", 0);
    s->ffn = whole(r, "intermediate_size", 0);
    s->vocab = needed(r, "vocab_size", is_family(r, "gemma3") ? 262208 : 0);
    s->max_model_len = needed(r, "max_position_embeddings", is_family(r, "gemma3") ? 131072 : 0);
    s->is_tied = truth(r, "tie_word_embeddings", is_gemma);
    read_attention(r);
    read_experts(r);
    read_windows(r);
    if (is_family(r, "llama4"))
        read_chunks(r);
    if (is_family(r, "qwen3_next"))
        read_linear_layers(r);
    if (!s->needs_weights)
        read_weights(r, root);
}

/* The folder that the file is in says more than "config.json". */
static void name_after_path(const char *path, shape *out)
{
    const char *end = strrchr(path, '/');
    const char *begin = path;
    if (!end || strcmp(end, "/config.json") != 0) {
        snprintf(out->name, sizeof out->name, "%s", end ? end + 1 : path);
        return;
    }
    for (const char *p = path; p < end; p++)
        if (*p == '/')
            begin = p + 1;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(end - begin), begin);
}

int shape_read_config(const char *path, shape *out)
{
    json_error_t error;
    config_reader reader = {.path = path, .out = out};
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        return fail_with("%.200s:%d: %s", path, error.line, error.text);
    *out = (shape){0};
    name_after_path(path, out);
    read_shape(&reader, root);
    json_decref(root);
    return reader.is_bad ? -1 : shape_check(out);
}

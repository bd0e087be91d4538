#include "plan/model.h"

#include "base/assert.h"
#include "base/hooks.h"
#include "base/refuse.h"
#include "base/rules.h"
#include "group/spec.h"

typedef enum model_family {
    UNKNOWN_FAMILY,
    PLAIN,
    QWEN,
    ALTERNATE,
    PATTERN,
    CHUNKED,
    LATENT,
    JAMBA,
    BAMBA,
    NEMOTRON,
    QWEN_NEXT,
    WHISPER,
} model_family;

static const struct {
    const char *model_type;
    model_family family;
} FAMILIES[] = {
    {"llama", PLAIN},         {"mistral", PLAIN},       {"mixtral", PLAIN},
    {"phi", PLAIN},           {"phi3", PLAIN},          {"gemma", PLAIN},
    {"granite", PLAIN},       {"starcoder2", PLAIN},    {"stablelm", PLAIN},
    {"qwen2", QWEN},          {"qwen2_moe", QWEN},      {"qwen3", QWEN},
    {"qwen3_moe", QWEN},      {"gemma2", ALTERNATE},    {"gpt_oss", ALTERNATE},
    {"gemma3", PATTERN},      {"gemma3_text", PATTERN}, {"llama4", CHUNKED},
    {"llama4_text", CHUNKED}, {"deepseek_v2", LATENT},  {"deepseek_v3", LATENT},
    {"deepseek_v32", LATENT}, {"kimi_k2", LATENT},      {"jamba", JAMBA},
    {"bamba", BAMBA},         {"nemotron_h", NEMOTRON}, {"qwen3_next", QWEN_NEXT},
    {"whisper", WHISPER},
};

static model_family family_of(const char *model_type)
{
    for (size_t i = 0; i < sizeof FAMILIES / sizeof FAMILIES[0]; i++)
        if (strcmp(FAMILIES[i].model_type, model_type) == 0)
            return FAMILIES[i].family;
    return UNKNOWN_FAMILY;
}

/* ---- params ---------------------------------------------------------------- */

static void default_to(uint32_t *field, uint32_t value)
{
    if (*field == 0)
        *field = value;
}

static bool model_has_states(model_family family)
{
    return family == JAMBA || family == BAMBA || family == NEMOTRON || family == QWEN_NEXT;
}

/* Whisper has its own names for what others call hidden_size and so on. */
static void use_decoder_fields(quire_model_params *p)
{
    p->num_hidden_layers = p->decoder_layers;
    p->hidden_size = p->d_model;
    p->num_attention_heads = p->decoder_attention_heads;
    p->num_key_value_heads = 0;
    p->head_dim = 0;
}

static bool is_by_layout(const quire_model_params *p)
{
    return qr_rules_of(p->profile)->plans_by_layout;
}

/* What vLLM 0.32 does not have, or Quire not of it. */
static int check_release(const quire_model_params *p, model_family family)
{
    if (!is_by_layout(p))
        return QUIRE_OK;
    if (family == BAMBA)
        return qr_refuse("invalid model_type %.64s (vLLM 0.32 does not have it)", p->model_type);
    if (p->mamba_mode == QUIRE_MAMBA_MODE_ALL)
        return qr_refuse("invalid mamba_mode %d (vLLM 0.32 has no mode ALL)", (int)p->mamba_mode);
    if (family == NEMOTRON && p->mamba_mode == QUIRE_MAMBA_MODE_ALIGN)
        return qr_refuse("invalid mamba_mode %d (the checkpoints that vLLM 0.32 keeps of Mamba2 "
                         "layers in align mode are not supported)",
                         (int)p->mamba_mode);
    return QUIRE_OK;
}

static int check_model_params(const quire_model_params *p, model_family family)
{
    const qr_field fields[] = {
        QR_FIELD(p, num_attention_heads, 1, UINT64_MAX),
        QR_FIELD(p, head_dim, 1, UINT64_MAX),
        QR_FIELD(p, num_hidden_layers, 1, UINT64_MAX),
        QR_FIELD(p, cache_dtype, 0, QUIRE_CACHE_DTYPE_FP8_DS_MLA),
        QR_FIELD(p, mamba_mode, 0, QUIRE_MAMBA_MODE_ALIGN),
        QR_FIELD(p, use_sliding_window, 0, QUIRE_OFF),
        QR_FIELD(p, profile, 0, QUIRE_PROFILE_VLLM_0_32),
    };
    int err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err == QUIRE_OK)
        err = check_release(p, family);
    if (err != QUIRE_OK)
        return err;
    if (quire_dtype_bytes(p->torch_dtype) == 0)
        return qr_refuse("invalid torch_dtype %d", (int)p->torch_dtype);
    if (quire_dtype_bytes(p->mamba_ssm_dtype) == 0)
        return qr_refuse("invalid mamba_ssm_dtype %d", (int)p->mamba_ssm_dtype);
    if (p->num_attention_heads % p->tensor_parallel_size != 0)
        return qr_refuse("invalid tensor_parallel_size %u (expected a divisor of "
                         "num_attention_heads %u)",
                         p->tensor_parallel_size, p->num_attention_heads);
    if (p->cache_dtype == QUIRE_CACHE_DTYPE_FP8_DS_MLA && family != LATENT)
        return qr_refuse("cache_dtype fp8_ds_mla needs a model with latent attention (MLA)");
    /* Each worker has its share of the heads, or one that several workers have. */
    uint32_t heads = p->num_key_value_heads;
    uint32_t workers = p->tensor_parallel_size;
    bool shared = heads >= workers ? heads % workers == 0 : workers % heads == 0;
    return shared || family == LATENT
               ? QUIRE_OK
               : qr_refuse("invalid tensor_parallel_size %u (expected a divisor or a multiple of "
                           "num_key_value_heads %u)",
                           workers, heads);
}

int qr_model_params_read(quire_model_params *out, const quire_model_params *params)
{
    int err = qr_refuse_reading(out, sizeof *out, params, "quire_model_params");
    if (err != QUIRE_OK)
        return err;
    if (out->model_type == NULL)
        return qr_refuse("model_type is NULL");
    model_family family = family_of(out->model_type);
    if (family == UNKNOWN_FAMILY) {
        (void)qr_refuse("unknown model_type \"%.64s\"", out->model_type);
        return QUIRE_E_UNKNOWN_NAME;
    }
    if (family == WHISPER)
        use_decoder_fields(out);
    if (out->torch_dtype == 0)
        out->torch_dtype = QUIRE_DTYPE_BFLOAT16;
    if (out->mamba_ssm_dtype == 0)
        out->mamba_ssm_dtype = family == NEMOTRON ? QUIRE_DTYPE_FLOAT32 : out->torch_dtype;
    default_to(&out->num_key_value_heads, out->num_attention_heads);
    if (out->num_attention_heads > 0)
        default_to(&out->head_dim, out->hidden_size / out->num_attention_heads);
    default_to(&out->max_model_len, out->max_position_embeddings);
    default_to(&out->block_size, 16);
    default_to(&out->tensor_parallel_size, 1);
    default_to(&out->kernel_block_size, 16);
    default_to(&out->mamba_expand, 2);
    default_to(&out->mamba_n_groups, 1);
    default_to(&out->mamba_chunk_size, 2048);
    default_to(&out->mamba_block_size, out->mamba_chunk_size);
    return check_model_params(out, family);
}

/* ---- single layers --------------------------------------------------------- */

static quire_dtype stored_dtype(const quire_model_params *p)
{
    if (p->cache_dtype == QUIRE_CACHE_DTYPE_AUTO)
        return p->torch_dtype;
    return p->cache_dtype == QUIRE_CACHE_DTYPE_INT8_PER_TOKEN_HEAD ? QUIRE_DTYPE_INT8
                                                                   : QUIRE_DTYPE_UINT8;
}

static quire_kv_quant stored_quant(const quire_model_params *p)
{
    switch (p->cache_dtype) {
    case QUIRE_CACHE_DTYPE_FP8:
    case QUIRE_CACHE_DTYPE_FP8_DS_MLA:
        return QUIRE_KV_QUANT_FP8_PER_TENSOR;
    case QUIRE_CACHE_DTYPE_INT8_PER_TOKEN_HEAD:
        return QUIRE_KV_QUANT_INT8_PER_TOKEN_HEAD;
    case QUIRE_CACHE_DTYPE_FP8_PER_TOKEN_HEAD:
        return QUIRE_KV_QUANT_FP8_PER_TOKEN_HEAD;
    case QUIRE_CACHE_DTYPE_NVFP4:
        return QUIRE_KV_QUANT_NVFP4;
    default:
        return QUIRE_KV_QUANT_NONE;
    }
}

static quire_layer_spec attention_layer(const quire_model_params *p, quire_layer_kind kind)
{
    uint32_t heads = p->num_key_value_heads / p->tensor_parallel_size;
    return (quire_layer_spec){.kind = kind,
                              .block_size = p->block_size,
                              .num_kv_heads = heads == 0 ? 1 : heads,
                              .head_size = p->head_dim,
                              .dtype = stored_dtype(p),
                              .kv_quant = stored_quant(p)};
}

static quire_layer_spec window_layer(const quire_model_params *p)
{
    quire_layer_spec spec = attention_layer(p, QUIRE_LAYER_SLIDING_WINDOW);
    spec.sliding_window = p->sliding_window;
    uint32_t unit = p->kernel_block_size;
    if (is_by_layout(p)) /* blocks that the kernel takes whole */
        spec.block_size = p->block_size < unit ? unit : p->block_size / unit * unit;
    return spec;
}

static quire_layer_spec chunked_layer(const quire_model_params *p)
{
    quire_layer_spec spec = attention_layer(p, QUIRE_LAYER_CHUNKED_LOCAL);
    spec.attention_chunk_size = p->attention_chunk_size == 0 ? 8192 : p->attention_chunk_size;
    return spec;
}

static quire_layer_spec latent_layer(const quire_model_params *p)
{
    quire_mla_cache cache = p->cache_dtype == QUIRE_CACHE_DTYPE_AUTO  ? QUIRE_MLA_CACHE_AUTO
                            : p->cache_dtype == QUIRE_CACHE_DTYPE_FP8 ? QUIRE_MLA_CACHE_FP8
                                                                      : QUIRE_MLA_CACHE_FP8_DS_MLA;
    return (quire_layer_spec){.kind = QUIRE_LAYER_MLA,
                              .block_size = p->block_size,
                              .num_kv_heads = 1,
                              .head_size = p->kv_lora_rank + p->qk_rope_head_dim,
                              .dtype = stored_dtype(p),
                              .kv_quant = is_by_layout(p) ? stored_quant(p) : QUIRE_KV_QUANT_NONE,
                              .mla_cache = cache};
}

/* A vector of bytes for each token, and a scale for each 128 of them. */
static quire_layer_spec index_layer(const quire_model_params *p)
{
    return (quire_layer_spec){.kind = QUIRE_LAYER_MLA,
                              .block_size = p->block_size,
                              .num_kv_heads = 1,
                              .head_size = p->index_head_dim + p->index_head_dim / 128 * 4,
                              .dtype = QUIRE_DTYPE_UINT8};
}

/* ---- Mamba ----------------------------------------------------------------- */

/* The two states of a layer: the last inputs of the convolution, and the recurrent state. */
static void set_states(quire_layer_spec *spec, const quire_model_params *p, uint32_t conv_len,
                       uint64_t conv_dim, quire_state recurrent)
{
    spec->states[0] = (quire_state){
        .num_dims = 2, .dims = {conv_len, (uint32_t)conv_dim}, .dtype = p->torch_dtype};
    spec->states[1] = recurrent;
    spec->states[1].dtype = p->mamba_ssm_dtype;
}

static bool set_mamba1(quire_layer_spec *spec, const quire_model_params *p)
{
    uint64_t inner = (uint64_t)p->mamba_expand * p->hidden_size;
    if (p->mamba_d_conv < 2 || p->mamba_d_state == 0 || inner % p->tensor_parallel_size != 0 ||
        inner > UINT32_MAX)
        return false;
    inner /= p->tensor_parallel_size;
    spec->mamba_type = QUIRE_MAMBA1;
    set_states(spec, p, p->mamba_d_conv - 1, inner,
               (quire_state){2, {(uint32_t)inner, p->mamba_d_state}, 0});
    return true;
}

static bool set_mamba2(quire_layer_spec *spec, const quire_model_params *p, uint64_t inner)
{
    uint32_t workers = p->tensor_parallel_size;
    uint64_t groups = p->mamba_n_groups;
    if (groups % workers != 0)
        groups = workers; /* each worker has the groups that its heads need */
    uint64_t conv_dim = qr_add_u64(inner, qr_mul_u64(2 * groups, p->mamba_d_state));
    if (p->mamba_d_conv < 2 || p->mamba_d_state == 0 || p->mamba_n_heads == 0 ||
        p->mamba_n_heads % workers != 0 || conv_dim % workers != 0 || conv_dim > UINT32_MAX)
        return false;
    spec->mamba_type = QUIRE_MAMBA2;
    set_states(
        spec, p, p->mamba_d_conv - 1 + p->num_speculative_tokens, conv_dim / workers,
        (quire_state){3, {p->mamba_n_heads / workers, p->mamba_d_head, p->mamba_d_state}, 0});
    return true;
}

static bool set_gated_delta(quire_layer_spec *spec, const quire_model_params *p)
{
    uint32_t workers = p->tensor_parallel_size;
    uint64_t keys = qr_mul_u64(2 * (uint64_t)p->linear_key_head_dim, p->linear_num_key_heads);
    uint64_t values = (uint64_t)p->linear_value_head_dim * p->linear_num_value_heads;
    uint64_t conv_dim = qr_add_u64(keys, values);
    if (p->linear_conv_kernel_dim < 2 || keys == 0 || values == 0 || conv_dim % workers != 0 ||
        p->linear_num_value_heads % workers != 0 || conv_dim > UINT32_MAX)
        return false;
    spec->mamba_type = QUIRE_MAMBA_GDN;
    uint32_t heads = p->linear_num_value_heads / workers;
    set_states(spec, p, p->linear_conv_kernel_dim - 1 + p->num_speculative_tokens,
               conv_dim / workers,
               (quire_state){3, {heads, p->linear_value_head_dim, p->linear_key_head_dim}, 0});
    return true;
}

static bool set_state_shapes(quire_layer_spec *spec, const quire_model_params *p,
                             model_family family)
{
    uint64_t inner = family == BAMBA ? (uint64_t)p->mamba_expand * p->hidden_size
                                     : (uint64_t)p->mamba_n_heads * p->mamba_d_head;
    if (family == JAMBA)
        return set_mamba1(spec, p);
    return family == QWEN_NEXT ? set_gated_delta(spec, p) : set_mamba2(spec, p, inner);
}

static uint64_t round_up_to(uint64_t value, uint64_t unit)
{
    return qr_mul_u64(qr_cdiv_u64(value, unit), unit);
}

/* An attention page must hold a state, so that both can use the same blocks: enlarges p->block_size
 * and fills state up to the page. */
static int fit_state_in_page(quire_model_params *p, quire_layer_spec *state)
{
    quire_model_params one_token = *p;
    one_token.block_size = 1;
    quire_layer_spec attention = attention_layer(&one_token, QUIRE_LAYER_FULL);
    uint64_t token_bytes = qr_spec_page_bytes(&attention);
    state->block_size = 1;
    uint64_t state_bytes = qr_spec_page_bytes(state);
    if (token_bytes == 0 || state_bytes == 0 || p->max_model_len == 0)
        return qr_refuse("a model with Mamba layers needs max_model_len, and heads and states with "
                         "bytes");
    qr_assert(p->block_size > 0 && p->mamba_block_size > 0); /* defaults are filled in */
    uint32_t unit = p->kernel_block_size > p->block_size ? p->kernel_block_size : p->block_size;
    bool all = p->mamba_mode == QUIRE_MAMBA_MODE_ALL;
    uint64_t common = p->mamba_block_size / qr_gcd(p->mamba_block_size, unit) * unit;
    uint64_t tokens = round_up_to(qr_cdiv_u64(state_bytes, token_bytes), all ? common : unit);
    if (is_by_layout(p))
        tokens = round_up_to(tokens, p->kernel_block_size);
    if (tokens > UINT32_MAX)
        return qr_refuse("a page that holds a Mamba state needs blocks of %llu tokens (expected at "
                         "most %u)",
                         (unsigned long long)tokens, UINT32_MAX);
    if (p->block_size < tokens)
        p->block_size = (uint32_t)tokens;
    state->block_size = all                                       ? (uint32_t)tokens
                        : p->mamba_mode == QUIRE_MAMBA_MODE_ALIGN ? p->block_size
                                                                  : p->max_model_len;
    uint64_t page = qr_mul_u64(p->block_size, token_bytes);
    state->page_size_padded = page == state_bytes ? 0 : page;
    state->mamba_mode = p->mamba_mode;
    state->num_speculative_blocks = p->num_speculative_tokens;
    return QUIRE_OK;
}

/* The Mamba layer of the model. For Bamba vLLM sizes the page without the room for drafts that the
 * state then has. */
static int make_state(quire_model_params *p, model_family family, quire_layer_spec *state)
{
    quire_model_params sized = *p;
    if (family == BAMBA)
        sized.num_speculative_tokens = 0;
    const char *shapes = "the Mamba fields of the model are 0, or do not fit each other";
    if (!set_state_shapes(state, &sized, family))
        return qr_refuse("%s", shapes);
    int err = fit_state_in_page(p, state);
    if (err != QUIRE_OK)
        return err;
    if (!set_state_shapes(state, p, family))
        return qr_refuse("%s", shapes);
    return qr_spec_check(state);
}

/* ---- patterns -------------------------------------------------------------- */

/* Whether the layer has a state in place of keys and values; and whether it keeps anything. */
static bool layer_has_state(const quire_model_params *p, model_family family, uint32_t layer)
{
    uint32_t period = p->attn_layer_period == 0 ? 8 : p->attn_layer_period;
    uint32_t interval = p->full_attention_interval == 0 ? 4 : p->full_attention_interval;
    switch (family) {
    case JAMBA:
        return layer % period != p->attn_layer_offset;
    case BAMBA:
        for (uint32_t i = 0; i < p->num_attn_layer_indices; i++)
            if (p->attn_layer_indices[i] == layer)
                return false;
        return true;
    case NEMOTRON:
        return p->hybrid_override_pattern[layer] == 'M';
    case QWEN_NEXT:
        return p->layer_types != NULL ? p->layer_types[layer] == QUIRE_LAYER_TYPE_LINEAR
                                      : (layer + 1) % interval != 0;
    default:
        return false;
    }
}

static bool layer_keeps_nothing(const quire_model_params *p, model_family family, uint32_t layer)
{
    if (family != NEMOTRON)
        return false;
    char letter = p->hybrid_override_pattern[layer];
    return letter == '-' || letter == 'E';
}

static bool layer_has_window(const quire_model_params *p, model_family family, uint32_t layer)
{
    uint32_t every = p->sliding_window_pattern == 0 ? 6 : p->sliding_window_pattern;
    if (p->sliding_window == 0)
        return false;
    if (family == PLAIN || family == QWEN)
        return p->layer_types == NULL || p->layer_types[layer] == QUIRE_LAYER_TYPE_SLIDING;
    if (p->layer_types != NULL && strcmp(p->model_type, "gpt_oss") != 0)
        return p->layer_types[layer] == QUIRE_LAYER_TYPE_SLIDING;
    return family == PATTERN ? (layer + 1) % every != 0 : layer % 2 == 0;
}

static bool layer_is_chunked(const quire_model_params *p, uint32_t layer)
{
    uint32_t interval = p->no_rope_layer_interval == 0 ? 4 : p->no_rope_layer_interval;
    if (p->no_rope_layers != NULL)
        return p->no_rope_layers[layer] != 0;
    return (layer + 1) % interval != 0;
}

static quire_layer_spec text_layer(const quire_model_params *p, model_family family, uint32_t layer)
{
    bool may_have_window =
        family == PLAIN || family == QWEN || family == ALTERNATE || family == PATTERN;
    if (family == CHUNKED && layer_is_chunked(p, layer))
        return chunked_layer(p);
    if (may_have_window && layer_has_window(p, family, layer))
        return window_layer(p);
    return attention_layer(p, QUIRE_LAYER_FULL);
}

/* ---- all layers ------------------------------------------------------------ */

typedef struct layer_sink {
    quire_layer_spec *layers;
    uint32_t capacity;
    uint32_t count;
} layer_sink;

static void put_layer(layer_sink *sink, quire_layer_spec spec)
{
    if (sink->count < sink->capacity)
        sink->layers[sink->count] = spec;
    sink->count++;
}

static void put_layers(const quire_model_params *p, model_family family,
                       const quire_layer_spec *state, layer_sink *sink)
{
    for (uint32_t i = 0; i < p->num_hidden_layers; i++) {
        if (layer_keeps_nothing(p, family, i))
            continue;
        if (layer_has_state(p, family, i)) {
            put_layer(sink, *state);
        } else if (family == LATENT) {
            if (p->index_head_dim > 0)
                put_layer(sink, index_layer(p));
            put_layer(sink, latent_layer(p));
        } else {
            put_layer(sink, text_layer(p, family, i));
            if (family == WHISPER)
                put_layer(sink, attention_layer(p, QUIRE_LAYER_CROSS));
        }
    }
}

static bool one_layer_type(const quire_model_params *p)
{
    for (uint32_t i = 1; i < p->num_hidden_layers; i++)
        if (p->layer_types[i] != p->layer_types[0])
            return false;
    return true;
}

/* The window as the layers see it: vLLM 0.20 has one for the whole model where all layers are of
 * one type, and then it counts for all, whatever the type is called; vLLM 0.32 where all slide. */
static int settle_window(quire_model_params *p, model_family family)
{
    if (family == QWEN) {
        bool some = p->max_window_layers > 0 && p->max_window_layers < p->num_hidden_layers;
        bool mixed = p->layer_types != NULL && !one_layer_type(p);
        if (p->use_sliding_window != QUIRE_ON)
            p->sliding_window = 0;
        else if (p->sliding_window > 0 && (some || mixed))
            return qr_refuse("sliding_window %u for some layers only: vLLM has none for this "
                             "model_type",
                             p->sliding_window);
    }
    bool uniform = family == PLAIN || family == QWEN;
    if (uniform && p->layer_types != NULL && one_layer_type(p) && !is_by_layout(p))
        p->layer_types = NULL;
    bool need_window = family == ALTERNATE || family == PATTERN;
    return need_window && p->sliding_window == 0
               ? qr_refuse("invalid sliding_window 0 (expected 1 or more for model_type %.64s)",
                           p->model_type)
               : QUIRE_OK;
}

static int check_family_fields(const quire_model_params *p, model_family family)
{
    if (family == NEMOTRON && (p->hybrid_override_pattern == NULL ||
                               strlen(p->hybrid_override_pattern) != p->num_hidden_layers))
        return qr_refuse(
            "hybrid_override_pattern needs one letter for each of num_hidden_layers %u",
            p->num_hidden_layers);
    if (family == LATENT && p->kv_lora_rank == 0)
        return qr_refuse("invalid kv_lora_rank 0 (expected 1 or more for model_type %.64s)",
                         p->model_type);
    if (family == BAMBA && p->attn_layer_indices == NULL && p->num_attn_layer_indices > 0)
        return qr_refuse("attn_layer_indices is NULL, but num_attn_layer_indices is %u",
                         p->num_attn_layer_indices);
    bool latent_dtype = p->cache_dtype == QUIRE_CACHE_DTYPE_AUTO ||
                        p->cache_dtype == QUIRE_CACHE_DTYPE_FP8 ||
                        p->cache_dtype == QUIRE_CACHE_DTYPE_FP8_DS_MLA;
    return family == LATENT && !latent_dtype
               ? qr_refuse(
                     "cache_dtype of a model with latent attention (MLA) must be auto, fp8 or "
                     "fp8_ds_mla")
               : QUIRE_OK;
}

int qr_model_layers(const quire_model_params *params, quire_layer_spec *layers, uint32_t capacity,
                    uint32_t *num_layers)
{
    quire_model_params p = *params;
    model_family family = family_of(p.model_type);
    quire_layer_spec state = {.kind = QUIRE_LAYER_MAMBA};
    int err = check_family_fields(&p, family);
    if (err == QUIRE_OK)
        err = settle_window(&p, family);
    if (err == QUIRE_OK && model_has_states(family))
        err = make_state(&p, family, &state);
    if (err != QUIRE_OK)
        return err;
    layer_sink sink = {layers, 0, 0};
    put_layers(&p, family, &state, &sink); /* counts alone */
    if (layers != NULL && sink.count > capacity)
        return QUIRE_E_RANGE;
    if (layers != NULL) {
        sink = (layer_sink){layers, capacity, 0};
        put_layers(&p, family, &state, &sink);
    }
    *num_layers = sink.count;
    return QUIRE_OK;
}

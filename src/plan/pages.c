#include "plan/pages.h"

#include "base/assert.h"
#include "base/refuse.h"

/* Bytes of a state in the packed latent layouts, and of a scale. */
enum { DS_STATE_BYTES = 656, V4_STATE_BYTES = 584, HEAD_SCALE_BYTES = 4 };

/* ---- the shape of a page ---------------------------------------------------- */

static uint32_t page_value_size(const quire_layer_spec *spec)
{
    return spec->head_size_v == 0 ? spec->head_size : spec->head_size_v;
}

static uint32_t tokens_per_state(const quire_layer_spec *spec)
{
    return spec->compress_ratio == 0 ? 1 : spec->compress_ratio;
}

static uint64_t latent_bytes(const quire_layer_spec *spec)
{
    if (spec->mla_cache == QUIRE_MLA_CACHE_FP8_DS_MLA)
        return spec->mla_version == QUIRE_MLA_VERSION_DEEPSEEK_V4 ? V4_STATE_BYTES : DS_STATE_BYTES;
    return (uint64_t)spec->head_size * quire_dtype_bytes(spec->dtype);
}

static qr_page_shape attention_shape(const quire_layer_spec *spec)
{
    uint64_t element = quire_dtype_bytes(spec->dtype);
    uint64_t elements = (uint64_t)spec->head_size + page_value_size(spec);
    qr_page_shape shape = {spec->num_kv_heads, spec->block_size, elements * element};
    if (spec->kv_quant == QUIRE_KV_QUANT_INT8_PER_TOKEN_HEAD ||
        spec->kv_quant == QUIRE_KV_QUANT_FP8_PER_TOKEN_HEAD)
        shape.state_bytes += UINT64_C(2) * HEAD_SCALE_BYTES;
    if (spec->kv_quant == QUIRE_KV_QUANT_NVFP4) {
        /* Two values in a byte, and a scale byte for each 16. */
        shape.heads = UINT64_C(2) * spec->num_kv_heads;
        shape.state_bytes = (spec->head_size / 2 + spec->head_size / 16) * element;
    }
    return shape;
}

qr_page_shape qr_page_shape_of(const quire_layer_spec *spec)
{
    if (spec->kind == QUIRE_LAYER_MAMBA) {
        quire_layer_spec bare = *spec;
        bare.page_size_padded = 0;
        return (qr_page_shape){1, 1, qr_spec_real_page_bytes(&bare)};
    }
    if (qr_spec_is_mla(spec))
        return (qr_page_shape){spec->num_kv_heads, spec->block_size / tokens_per_state(spec),
                               latent_bytes(spec)};
    return attention_shape(spec);
}

uint64_t qr_page_real_bytes(const quire_layer_spec *spec)
{
    qr_page_shape shape = qr_page_shape_of(spec);
    return qr_mul_u64(qr_mul_u64(shape.heads, shape.states), shape.state_bytes);
}

uint64_t qr_page_bytes(const quire_layer_spec *spec)
{
    uint64_t real = qr_page_real_bytes(spec);
    if (spec->page_size_padded == 0)
        return real;
    return spec->page_size_padded >= real ? spec->page_size_padded : 0;
}

/* ---- checking, resolving ---------------------------------------------------- */

static int check_page_kind(const quire_layer_spec *spec)
{
    if (spec->kind == QUIRE_LAYER_TQ_FULL || spec->kind == QUIRE_LAYER_SINK_FULL)
        return qr_refuse("invalid kind %d (vLLM 0.32 has no layers of this kind, or cannot start "
                         "them)",
                         (int)spec->kind);
    if (spec->kind == QUIRE_LAYER_MAMBA && spec->mamba_mode == QUIRE_MAMBA_MODE_ALL)
        return qr_refuse("invalid mamba_mode %d (vLLM 0.32 has no mode ALL)",
                         (int)spec->mamba_mode);
    bool is_packed = spec->kv_quant == QUIRE_KV_QUANT_NVFP4 && !qr_spec_is_mla(spec);
    if (is_packed && page_value_size(spec) != spec->head_size)
        return qr_refuse("invalid head_size_v %u (with NVFP4 vLLM 0.32 expects head_size, %u)",
                         spec->head_size_v, spec->head_size);
    return QUIRE_OK;
}

int qr_page_check(const quire_layer_spec *spec)
{
    int err = qr_spec_check_fields(spec);
    if (err == QUIRE_OK)
        err = check_page_kind(spec);
    if (err != QUIRE_OK)
        return err;
    quire_layer_spec resolved = qr_page_resolve(spec);
    uint64_t real = qr_page_real_bytes(&resolved);
    if (real == 0 || real == UINT64_MAX || resolved.page_size_padded == UINT64_MAX)
        return qr_refuse("a page of these heads, sizes or states has no bytes, or more than 64 "
                         "bits can count");
    if (qr_page_bytes(&resolved) == 0)
        return qr_refuse("invalid page_size_padded %llu (a page has %llu bytes)",
                         (unsigned long long)resolved.page_size_padded, (unsigned long long)real);
    return QUIRE_OK;
}

/* What the alignment makes of the real page counts before a padding that was given. */
static void apply_alignment(quire_layer_spec *spec)
{
    if (!qr_spec_is_mla(spec) || spec->alignment == 0)
        return;
    uint64_t real = qr_page_real_bytes(spec);
    uint64_t aligned = qr_mul_u64(qr_cdiv_u64(real, spec->alignment), spec->alignment);
    if (aligned != real)
        spec->page_size_padded = aligned;
}

quire_layer_spec qr_page_resolve(const quire_layer_spec *spec)
{
    quire_layer_spec out = qr_spec_resolve(spec);
    out.page_size_padded = spec->page_size_padded;
    if (spec->kind != QUIRE_LAYER_MAMBA)
        out.head_size_v = qr_spec_is_mla(spec) ? 0 : page_value_size(spec);
    apply_alignment(&out);
    return out;
}

bool qr_page_equal(const quire_layer_spec *a, const quire_layer_spec *b)
{
    return a->head_size_v == b->head_size_v && a->page_size_padded == b->page_size_padded &&
           qr_spec_equal(a, b);
}

quire_layer_spec qr_page_with_block_size(const quire_layer_spec *spec, uint32_t block_size)
{
    quire_layer_spec out = *spec;
    out.block_size = block_size;
    apply_alignment(&out);
    return out;
}

quire_layer_spec qr_page_with_padding(const quire_layer_spec *spec, uint64_t page_size_padded)
{
    quire_layer_spec out = *spec;
    out.page_size_padded = page_size_padded;
    apply_alignment(&out);
    return out;
}

/* ---- merging ---------------------------------------------------------------- */

/* What all layers of one group share. */
static bool page_fields_equal(const quire_layer_spec *a, const quire_layer_spec *b)
{
    return a->block_size == b->block_size && a->num_kv_heads == b->num_kv_heads &&
           a->head_size == b->head_size && a->head_size_v == b->head_size_v &&
           a->dtype == b->dtype && a->kv_quant == b->kv_quant &&
           a->page_size_padded == b->page_size_padded;
}

/* A full layer takes R-SWA layers of its shape into its group, which then keeps all tokens; an
 * R-SWA layer takes its like alone. */
static bool merges_with_full(const quire_layer_spec *first, const quire_layer_spec *spec)
{
    if (first->kind == QUIRE_LAYER_RSWA)
        return spec->kind == first->kind && spec->rswa_window == first->rswa_window;
    return spec->kind == QUIRE_LAYER_FULL || spec->kind == QUIRE_LAYER_RSWA;
}

/* Adds a window or chunk to the one that the group has; false when it has another. */
static bool join_page_size(uint32_t *joined, uint32_t size)
{
    bool fits = size == 0 || *joined == 0 || *joined == size;
    *joined = size == 0 ? *joined : size;
    return fits;
}

static qr_merge merge_full_pages(const quire_layer_spec *const *specs, uint32_t num_specs,
                                 quire_layer_spec *merged)
{
    quire_layer_spec out = *specs[0];
    bool one_size = true;
    bool one_shape = true;
    for (uint32_t i = 0; i < num_specs; i++)
        if (!merges_with_full(specs[0], specs[i]))
            return QR_MERGE_DIFFER;
    for (uint32_t i = 1; i < num_specs; i++) {
        one_size = join_page_size(&out.sliding_window, specs[i]->sliding_window) && one_size;
        one_size =
            join_page_size(&out.attention_chunk_size, specs[i]->attention_chunk_size) && one_size;
        one_shape = one_shape && page_fields_equal(specs[0], specs[i]);
    }
    if (!one_size)
        return QR_MERGE_REFUSED;
    if (!one_shape || (out.sliding_window > 0 && out.attention_chunk_size > 0))
        return QR_MERGE_DIFFER;
    *merged = out;
    return QR_MERGED;
}

/* Latent layers with windows need not have one shape: the first layer's is taken, with its block
 * size. The padding stays, the alignment that it came from does not. */
static qr_merge merge_latent_pages(const quire_layer_spec *const *specs, uint32_t num_specs,
                                   quire_layer_spec *merged)
{
    const quire_layer_spec *first = specs[0];
    bool window = first->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA;
    for (uint32_t i = 1; i < num_specs; i++) {
        const quire_layer_spec *s = specs[i];
        bool is_like = window ? s->kind == first->kind
                              : s->kind == QUIRE_LAYER_MLA || s->kind == QUIRE_LAYER_HIDDEN_STATE;
        if (!is_like || s->mla_cache != first->mla_cache || s->mla_version != first->mla_version ||
            s->compress_ratio != first->compress_ratio)
            return QR_MERGE_DIFFER;
        if (window ? s->sliding_window != first->sliding_window : !page_fields_equal(first, s))
            return QR_MERGE_DIFFER;
    }
    *merged = *first;
    merged->alignment = 0;
    merged->attention_chunk_size = 0;
    if (window)
        merged->kv_quant = QUIRE_KV_QUANT_NONE;
    else
        merged->sliding_window = 0;
    return QR_MERGED;
}

qr_merge qr_page_try_merge(const quire_layer_spec *const *specs, uint32_t num_specs,
                           quire_layer_spec *merged)
{
    qr_assert(num_specs > 0);
    if (qr_spec_is_mla(specs[0]))
        return merge_latent_pages(specs, num_specs, merged);
    if (qr_spec_is_full(specs[0]))
        return merge_full_pages(specs, num_specs, merged);
    for (uint32_t i = 1; i < num_specs; i++)
        if (!qr_page_equal(specs[0], specs[i]))
            return QR_MERGE_DIFFER;
    *merged = *specs[0];
    return QR_MERGED;
}

bool qr_page_joins_type(const quire_layer_spec *first, const quire_layer_spec *spec)
{
    if (spec->block_size != first->block_size)
        return false;
    if (qr_spec_is_full(first))
        return qr_spec_is_full(spec);
    if (first->kind == QUIRE_LAYER_SLIDING_WINDOW)
        return qr_spec_is_window(spec) && spec->sliding_window == first->sliding_window;
    if (spec->kind != first->kind)
        return false;
    switch (first->kind) {
    case QUIRE_LAYER_SLIDING_WINDOW_MLA:
        return spec->sliding_window == first->sliding_window;
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return spec->attention_chunk_size == first->attention_chunk_size;
    case QUIRE_LAYER_MAMBA:
        return spec->num_speculative_blocks == first->num_speculative_blocks &&
               spec->num_prefill_checkpoint_blocks == first->num_prefill_checkpoint_blocks &&
               spec->prefill_checkpoint_alignment == first->prefill_checkpoint_alignment &&
               qr_page_bytes(spec) == qr_page_bytes(first);
    default:
        return true;
    }
}

/* ---- the most that a request needs ------------------------------------------ */

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t qr_page_most(const quire_layer_spec *spec, const qr_page_limits *limits)
{
    uint64_t all_tokens = limits->max_model_len;
    uint64_t in_flight = limits->max_in_flight_tokens;
    switch (spec->kind) {
    case QUIRE_LAYER_FULL:
    case QUIRE_LAYER_MLA:
    case QUIRE_LAYER_RSWA:
    case QUIRE_LAYER_HIDDEN_STATE:
        return qr_cdiv_u64(qr_cdiv_u64(all_tokens, limits->dcp_world_size), spec->block_size);
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return qr_cdiv_u64(least_of(spec->attention_chunk_size + in_flight, all_tokens),
                           spec->block_size);
    case QUIRE_LAYER_SLIDING_WINDOW:
    case QUIRE_LAYER_SLIDING_WINDOW_MLA:
        /* The newest token of a window is in flight. A window may begin inside a block, and then
         * touches one block more. */
        in_flight += spec->sliding_window - 1 + (uint64_t)limits->extra_retained_tokens;
        return qr_cdiv_u64(least_of(in_flight, all_tokens), spec->block_size) + 1;
    case QUIRE_LAYER_MAMBA:
        if (spec->mamba_mode != QUIRE_MAMBA_MODE_ALIGN)
            return UINT64_C(1) + spec->num_speculative_blocks;
        return UINT64_C(2) + spec->num_speculative_blocks + spec->num_prefill_checkpoint_blocks;
    case QUIRE_LAYER_CROSS:
        return qr_cdiv_u64(limits->max_encoder_tokens, spec->block_size);
    case QUIRE_LAYER_CIRCULAR_BUFFER:
        return 1;
    case QUIRE_LAYER_TQ_FULL:
    case QUIRE_LAYER_SINK_FULL:
    case QUIRE_LAYER_ENCODER_ONLY:
        return 0;
    }
    return 0;
}

#include "group/spec.h"

#include "base/assert.h"
#include "base/refuse.h"

/* Bytes of a token in the packed latent layouts, and of a scale. */
enum { DS_MLA_BYTES = 656, DS_V4_BYTES = 584, SCALE_BYTES = 4 };

/* ---- kinds ----------------------------------------------------------------- */

bool qr_spec_is_full(const quire_layer_spec *spec)
{
    return spec->kind == QUIRE_LAYER_FULL || spec->kind == QUIRE_LAYER_TQ_FULL ||
           spec->kind == QUIRE_LAYER_MLA || spec->kind == QUIRE_LAYER_SINK_FULL ||
           spec->kind == QUIRE_LAYER_RSWA || spec->kind == QUIRE_LAYER_HIDDEN_STATE;
}

bool qr_spec_is_window(const quire_layer_spec *spec)
{
    return spec->kind == QUIRE_LAYER_SLIDING_WINDOW || spec->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA;
}

bool qr_spec_is_mla(const quire_layer_spec *spec)
{
    return spec->kind == QUIRE_LAYER_MLA || spec->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA ||
           spec->kind == QUIRE_LAYER_HIDDEN_STATE;
}

bool qr_spec_is_cacheable(const quire_layer_spec *spec)
{
    return spec->kind != QUIRE_LAYER_CIRCULAR_BUFFER;
}

bool qr_spec_is_new(const quire_layer_spec *spec)
{
    return spec->kind == QUIRE_LAYER_RSWA || spec->kind == QUIRE_LAYER_CIRCULAR_BUFFER ||
           spec->kind == QUIRE_LAYER_HIDDEN_STATE;
}

/* Kinds whose values may have another size than their keys. */
static bool has_value_size(const quire_layer_spec *spec)
{
    return qr_spec_is_full(spec) || spec->kind == QUIRE_LAYER_SLIDING_WINDOW ||
           spec->kind == QUIRE_LAYER_CIRCULAR_BUFFER;
}

static bool has_scales(const quire_layer_spec *spec)
{
    return spec->kv_quant == QUIRE_KV_QUANT_INT8_PER_TOKEN_HEAD ||
           spec->kv_quant == QUIRE_KV_QUANT_FP8_PER_TOKEN_HEAD;
}

/* ---- pages ----------------------------------------------------------------- */

static uint32_t value_size(const quire_layer_spec *spec)
{
    return spec->head_size_v == 0 ? spec->head_size : spec->head_size_v;
}

static uint32_t compress_ratio(const quire_layer_spec *spec)
{
    return spec->compress_ratio == 0 ? 1 : spec->compress_ratio;
}

/* Two values in a byte, and a scale byte for each 16. */
static uint64_t nvfp4_bytes(uint32_t elements)
{
    return elements / 2 + elements / 16;
}

static uint64_t state_bytes(const quire_state *state)
{
    uint64_t bytes = quire_dtype_bytes(state->dtype);
    for (uint32_t i = 0; i < state->num_dims; i++)
        bytes = qr_mul_u64(bytes, state->dims[i]);
    return bytes;
}

static uint64_t mamba_bytes(const quire_layer_spec *spec)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < QUIRE_MAX_STATES && spec->states[i].num_dims > 0; i++)
        bytes = qr_add_u64(bytes, state_bytes(&spec->states[i]));
    return bytes;
}

static uint64_t mla_bytes(const quire_layer_spec *spec)
{
    uint64_t vectors = spec->block_size / compress_ratio(spec);
    bool packed = spec->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA ||
                  spec->mla_cache == QUIRE_MLA_CACHE_FP8_DS_MLA;
    if (packed && spec->mla_version == QUIRE_MLA_VERSION_DEEPSEEK_V4)
        return vectors * DS_V4_BYTES;
    if (packed && spec->kind != QUIRE_LAYER_SLIDING_WINDOW_MLA)
        return (uint64_t)spec->block_size * DS_MLA_BYTES;
    uint64_t vector_bytes = (uint64_t)spec->head_size * quire_dtype_bytes(spec->dtype);
    return qr_mul_u64(vectors * spec->num_kv_heads, vector_bytes);
}

/* What all heads keep of one block, when each keeps head_bytes of a token. */
static uint64_t heads_bytes(const quire_layer_spec *spec, uint64_t head_bytes)
{
    return qr_mul_u64((uint64_t)spec->block_size * spec->num_kv_heads, head_bytes);
}

static uint64_t real_page(const quire_layer_spec *spec)
{
    uint64_t element = quire_dtype_bytes(spec->dtype);
    uint64_t key_and_value = (uint64_t)spec->head_size + value_size(spec);
    switch (spec->kind) {
    case QUIRE_LAYER_MAMBA:
        return mamba_bytes(spec);
    case QUIRE_LAYER_MLA:
    case QUIRE_LAYER_SLIDING_WINDOW_MLA:
    case QUIRE_LAYER_HIDDEN_STATE:
        return mla_bytes(spec);
    case QUIRE_LAYER_TQ_FULL:
    case QUIRE_LAYER_FULL:
    case QUIRE_LAYER_SINK_FULL:
    case QUIRE_LAYER_RSWA:
        if (spec->kind == QUIRE_LAYER_TQ_FULL && spec->tq_slot_size > 0)
            return heads_bytes(spec, spec->tq_slot_size);
        if (spec->kv_quant == QUIRE_KV_QUANT_NVFP4)
            key_and_value = nvfp4_bytes(spec->head_size) + nvfp4_bytes(value_size(spec));
        return heads_bytes(spec, key_and_value * element);
    case QUIRE_LAYER_SLIDING_WINDOW:
    case QUIRE_LAYER_CIRCULAR_BUFFER:
        return heads_bytes(spec, key_and_value * element);
    case QUIRE_LAYER_CHUNKED_LOCAL:
    case QUIRE_LAYER_CROSS:
    case QUIRE_LAYER_ENCODER_ONLY:
        return heads_bytes(spec, UINT64_C(2) * spec->head_size * element);
    }
    return 0;
}

/* The padding in force: what was given, else what the alignment makes of the real page. 0: none. */
static uint64_t padded_page(const quire_layer_spec *spec)
{
    if (spec->page_size_padded > 0 || !qr_spec_is_mla(spec) || spec->alignment == 0)
        return spec->page_size_padded;
    uint64_t real = real_page(spec);
    uint64_t aligned = qr_mul_u64(qr_cdiv_u64(real, spec->alignment), spec->alignment);
    return aligned == real ? 0 : aligned;
}

/* Without the padding. */
static uint64_t filled_page(const quire_layer_spec *spec)
{
    uint64_t bytes = real_page(spec);
    if (spec->kind != QUIRE_LAYER_MAMBA && has_scales(spec))
        bytes = qr_add_u64(bytes, heads_bytes(spec, UINT64_C(2) * SCALE_BYTES));
    return bytes;
}

static uint64_t whole_page(const quire_layer_spec *spec)
{
    uint64_t padded = padded_page(spec);
    return padded > 0 ? padded : filled_page(spec);
}

/* ---- checking -------------------------------------------------------------- */

static int check_states(const quire_layer_spec *spec)
{
    if (spec->states[0].num_dims == 0)
        return qr_refuse("states[0] has no dimensions, but a Mamba layer needs a state");
    for (uint32_t i = 0; i < QUIRE_MAX_STATES && spec->states[i].num_dims > 0; i++) {
        const qr_field dims[] = {
            {"num_dims", spec->states[i].num_dims, 1, QUIRE_MAX_STATE_DIMS},
        };
        int err = qr_refuse_fields(dims, 1);
        if (err == QUIRE_OK && quire_dtype_bytes(spec->states[i].dtype) == 0)
            err = qr_refuse("invalid dtype %d", (int)spec->states[i].dtype);
        if (err != QUIRE_OK)
            return qr_refuse_in(err, "states[%u]", i);
    }
    const qr_field fields[] = {
        QR_FIELD(spec, mamba_type, 0, QUIRE_MAMBA_KDA),
        QR_FIELD(spec, mamba_mode, 0, QUIRE_MAMBA_MODE_ALIGN),
    };
    return qr_refuse_fields(fields, sizeof fields / sizeof *fields);
}

static int check_attention(const quire_layer_spec *spec)
{
    const uint64_t any = UINT64_MAX;
    bool is_chunked = spec->kind == QUIRE_LAYER_CHUNKED_LOCAL;
    bool is_mla = qr_spec_is_mla(spec);
    const qr_field fields[] = {
        QR_FIELD(spec, num_kv_heads, 1, any),
        QR_FIELD(spec, head_size, 1, any),
        QR_FIELD(spec, kv_quant, 0, QUIRE_KV_QUANT_NVFP4),
        QR_FIELD(spec, sliding_window, qr_spec_is_window(spec) ? 1 : 0, any),
        QR_FIELD(spec, attention_chunk_size, is_chunked ? 1 : 0, any),
        QR_FIELD(spec, sink_len, spec->kind == QUIRE_LAYER_SINK_FULL ? 1 : 0, any),
        QR_FIELD(spec, rswa_window, spec->kind == QUIRE_LAYER_RSWA ? 1 : 0, any),
        QR_FIELD(spec, mla_cache, 0, is_mla ? QUIRE_MLA_CACHE_FP8_DS_MLA : any),
        QR_FIELD(spec, mla_version, 0, is_mla ? QUIRE_MLA_VERSION_DEEPSEEK_V4 : any),
    };
    if (quire_dtype_bytes(spec->dtype) == 0)
        return qr_refuse("invalid dtype %d", (int)spec->dtype);
    return qr_refuse_fields(fields, sizeof fields / sizeof *fields);
}

int qr_spec_check_fields(const quire_layer_spec *spec)
{
    const qr_field fields[] = {
        QR_FIELD(spec, kind, QUIRE_LAYER_FULL, QUIRE_LAYER_HIDDEN_STATE),
        QR_FIELD(spec, block_size, 1, UINT64_MAX),
    };
    int err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    for (uint32_t i = 0; err == QUIRE_OK && i < sizeof spec->reserved / sizeof *spec->reserved; i++)
        if (spec->reserved[i] != 0)
            err = qr_refuse("invalid reserved[%u] %u (expected 0)", i, spec->reserved[i]);
    if (err == QUIRE_OK)
        err = spec->kind == QUIRE_LAYER_MAMBA ? check_states(spec) : check_attention(spec);
    return err;
}

int qr_spec_check(const quire_layer_spec *spec)
{
    int err = qr_spec_check_fields(spec);
    if (err != QUIRE_OK)
        return err;
    uint64_t filled = filled_page(spec);
    if (real_page(spec) == 0 || filled == UINT64_MAX || whole_page(spec) == UINT64_MAX)
        return qr_refuse("a page of these heads, sizes or states has no bytes, or more than 64 "
                         "bits can count");
    if (whole_page(spec) < filled)
        return qr_refuse("invalid page_size_padded %llu (a page has %llu bytes)",
                         (unsigned long long)whole_page(spec), (unsigned long long)filled);
    return QUIRE_OK;
}

uint64_t qr_spec_real_page_bytes(const quire_layer_spec *spec)
{
    return qr_spec_check(spec) == QUIRE_OK ? real_page(spec) : 0;
}

uint64_t qr_spec_page_bytes(const quire_layer_spec *spec)
{
    return qr_spec_check(spec) == QUIRE_OK ? whole_page(spec) : 0;
}

/* ---- resolving, comparing -------------------------------------------------- */

static void resolve_states(quire_layer_spec *out, const quire_layer_spec *spec)
{
    for (uint32_t i = 0; i < QUIRE_MAX_STATES && spec->states[i].num_dims > 0; i++) {
        out->states[i].num_dims = spec->states[i].num_dims;
        out->states[i].dtype = spec->states[i].dtype;
        memcpy(out->states[i].dims, spec->states[i].dims,
               spec->states[i].num_dims * sizeof spec->states[i].dims[0]);
    }
    out->mamba_type = spec->mamba_type;
    out->mamba_mode = spec->mamba_mode;
    out->num_speculative_blocks = spec->num_speculative_blocks;
}

static void resolve_heads(quire_layer_spec *out, const quire_layer_spec *spec)
{
    bool full = qr_spec_is_full(spec);
    out->num_kv_heads = spec->num_kv_heads;
    out->head_size = spec->head_size;
    out->head_size_v = has_value_size(spec) ? value_size(spec) : 0;
    out->dtype = spec->dtype;
    out->kv_quant = spec->kv_quant;
    if (full || qr_spec_is_window(spec))
        out->sliding_window = spec->sliding_window;
    if (full || spec->kind == QUIRE_LAYER_CHUNKED_LOCAL)
        out->attention_chunk_size = spec->attention_chunk_size;
    if (spec->kind == QUIRE_LAYER_SINK_FULL)
        out->sink_len = spec->sink_len;
    if (spec->kind == QUIRE_LAYER_TQ_FULL)
        out->tq_slot_size = spec->tq_slot_size;
    if (spec->kind == QUIRE_LAYER_RSWA)
        out->rswa_window = spec->rswa_window;
    if (!qr_spec_is_mla(spec))
        return;
    out->mla_cache = spec->mla_cache;
    out->mla_version = spec->mla_version;
    out->alignment = spec->alignment;
    out->compress_ratio = compress_ratio(spec);
}

quire_layer_spec qr_spec_resolve(const quire_layer_spec *spec)
{
    quire_layer_spec out = {.kind = spec->kind, .block_size = spec->block_size};
    out.page_size_padded = padded_page(spec);
    if (spec->kind == QUIRE_LAYER_MAMBA)
        resolve_states(&out, spec);
    else
        resolve_heads(&out, spec);
    return out;
}

static bool states_equal(const quire_layer_spec *a, const quire_layer_spec *b)
{
    for (uint32_t i = 0; i < QUIRE_MAX_STATES; i++) {
        const quire_state *s = &a->states[i];
        const quire_state *t = &b->states[i];
        if (s->num_dims != t->num_dims || s->dtype != t->dtype ||
            memcmp(s->dims, t->dims, sizeof s->dims) != 0)
            return false;
    }
    return a->mamba_type == b->mamba_type && a->mamba_mode == b->mamba_mode &&
           a->num_speculative_blocks == b->num_speculative_blocks;
}

/* What all layers of one group share, of whatever full kinds. */
static bool shapes_equal(const quire_layer_spec *a, const quire_layer_spec *b)
{
    return a->block_size == b->block_size && a->num_kv_heads == b->num_kv_heads &&
           a->head_size == b->head_size && a->dtype == b->dtype && a->kv_quant == b->kv_quant &&
           a->page_size_padded == b->page_size_padded;
}

bool qr_spec_equal(const quire_layer_spec *a, const quire_layer_spec *b)
{
    if (a->kind != b->kind)
        return false;
    quire_layer_spec x = qr_spec_resolve(a);
    quire_layer_spec y = qr_spec_resolve(b);
    return shapes_equal(&x, &y) && x.head_size_v == y.head_size_v &&
           x.sliding_window == y.sliding_window &&
           x.attention_chunk_size == y.attention_chunk_size && x.sink_len == y.sink_len &&
           x.tq_slot_size == y.tq_slot_size && x.rswa_window == y.rswa_window &&
           x.mla_cache == y.mla_cache && x.mla_version == y.mla_version &&
           x.alignment == y.alignment && x.compress_ratio == y.compress_ratio &&
           states_equal(&x, &y);
}

quire_layer_spec qr_spec_with_block_size(const quire_layer_spec *spec, uint32_t block_size)
{
    quire_layer_spec out = qr_spec_resolve(spec);
    uint64_t given = out.page_size_padded;
    out.block_size = block_size;
    out.page_size_padded = 0;
    uint64_t aligned = padded_page(&out);
    out.page_size_padded = aligned > 0 ? aligned : given;
    return out;
}

/* ---- merging --------------------------------------------------------------- */

/* Adds a window or chunk to the one that the group has; false when it has another. */
static bool join_size(uint32_t *joined, uint32_t size)
{
    if (size == 0)
        return true;
    bool fits = *joined == 0 || *joined == size;
    *joined = size;
    return fits;
}

static qr_merge merge_slots(const quire_layer_spec *const *specs, uint32_t num_specs)
{
    for (uint32_t i = 0; i < num_specs; i++) {
        if (specs[i]->kind != QUIRE_LAYER_TQ_FULL)
            return QR_MERGE_REFUSED;
        if (specs[i]->tq_slot_size != specs[0]->tq_slot_size)
            return QR_MERGE_DIFFER;
    }
    return QR_MERGED;
}

/* Layers that give the gap behind the prompt back share a group with their like alone. */
static uint32_t gap_window(const quire_layer_spec *spec)
{
    return spec->kind == QUIRE_LAYER_RSWA ? spec->rswa_window : 0;
}

static qr_merge merge_full(const quire_layer_spec *const *specs, uint32_t num_specs,
                           quire_layer_spec *merged)
{
    uint32_t window = 0;
    uint32_t chunk = 0;
    bool one_size = true;
    for (uint32_t i = 0; i < num_specs; i++)
        if (!qr_spec_is_full(specs[i]) || qr_spec_is_mla(specs[i]) ||
            gap_window(specs[i]) != gap_window(specs[0]))
            return QR_MERGE_DIFFER;
    for (uint32_t i = 0; i < num_specs; i++) {
        one_size = join_size(&window, specs[i]->sliding_window) && one_size;
        one_size = join_size(&chunk, specs[i]->attention_chunk_size) && one_size;
    }
    if (!one_size)
        return QR_MERGE_REFUSED;
    quire_layer_spec out = qr_spec_resolve(specs[0]);
    out.sliding_window = window;
    out.attention_chunk_size = chunk;
    for (uint32_t i = 1; i < num_specs; i++)
        if (!shapes_equal(&out, specs[i]))
            return QR_MERGE_DIFFER;
    if (window > 0 && chunk > 0)
        return QR_MERGE_DIFFER;
    qr_merge slots = out.kind == QUIRE_LAYER_TQ_FULL ? merge_slots(specs, num_specs) : QR_MERGED;
    if (slots == QR_MERGED)
        *merged = out;
    return slots;
}

/* Latent layers need not have one shape: the first layer's is taken. The padding stays, the
 * alignment that it came from does not. */
static qr_merge merge_latent(const quire_layer_spec *const *specs, uint32_t num_specs,
                             quire_layer_spec *merged)
{
    const quire_layer_spec *first = specs[0];
    bool window = first->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA;
    for (uint32_t i = 1; i < num_specs; i++) {
        const quire_layer_spec *s = specs[i];
        if (s->kind != first->kind || s->mla_cache != first->mla_cache ||
            s->mla_version != first->mla_version || compress_ratio(s) != compress_ratio(first) ||
            (window && s->sliding_window != first->sliding_window))
            return QR_MERGE_DIFFER;
    }
    *merged = qr_spec_resolve(first);
    merged->alignment = 0;
    merged->attention_chunk_size = 0;
    if (window) {
        merged->kv_quant = QUIRE_KV_QUANT_NONE;
    } else {
        merged->head_size_v = merged->head_size;
        merged->sliding_window = 0;
    }
    return QR_MERGED;
}

qr_merge qr_spec_try_merge(const quire_layer_spec *const *specs, uint32_t num_specs,
                           quire_layer_spec *merged)
{
    qr_assert(num_specs > 0);
    if (qr_spec_is_mla(specs[0]))
        return merge_latent(specs, num_specs, merged);
    if (qr_spec_is_full(specs[0]))
        return merge_full(specs, num_specs, merged);
    for (uint32_t i = 1; i < num_specs; i++)
        if (!qr_spec_equal(specs[0], specs[i]))
            return QR_MERGE_DIFFER;
    *merged = qr_spec_resolve(specs[0]);
    return QR_MERGED;
}

/* ---- the most that a request needs ----------------------------------------- */

uint32_t qr_spec_max_admission_blocks(const quire_layer_spec *spec, uint32_t max_num_batched_tokens,
                                      uint32_t max_model_len)
{
    bool chunked = spec->kind == QUIRE_LAYER_CHUNKED_LOCAL;
    if (!chunked && !qr_spec_is_window(spec))
        return UINT32_MAX;
    /* Of a window, the newest token is one of those of the step. */
    uint64_t held = chunked ? spec->attention_chunk_size : spec->sliding_window - 1;
    uint64_t tokens = held + max_num_batched_tokens;
    if (tokens > max_model_len)
        tokens = max_model_len;
    /* A window may begin inside a block, and then touches one more. */
    return (uint32_t)qr_cdiv_u64(tokens, spec->block_size) + !chunked;
}

uint64_t qr_spec_max_pages(const quire_layer_spec *spec, const qr_limits *limits)
{
    uint64_t all_tokens = limits->max_model_len;
    switch (spec->kind) {
    case QUIRE_LAYER_FULL:
    case QUIRE_LAYER_TQ_FULL:
    case QUIRE_LAYER_MLA:
    case QUIRE_LAYER_SINK_FULL:
    case QUIRE_LAYER_RSWA:
    case QUIRE_LAYER_HIDDEN_STATE:
        return qr_cdiv_u64(qr_cdiv_u64(all_tokens, limits->cp_world_size), spec->block_size);
    case QUIRE_LAYER_SLIDING_WINDOW:
    case QUIRE_LAYER_SLIDING_WINDOW_MLA:
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return qr_spec_max_admission_blocks(spec, limits->max_num_batched_tokens,
                                            limits->max_model_len);
    case QUIRE_LAYER_MAMBA:
        if (spec->mamba_mode == QUIRE_MAMBA_MODE_ALL)
            return qr_cdiv_u64(all_tokens, spec->block_size);
        return (spec->mamba_mode == QUIRE_MAMBA_MODE_ALIGN ? UINT64_C(2) : UINT64_C(1)) +
               spec->num_speculative_blocks;
    case QUIRE_LAYER_CROSS:
        return qr_cdiv_u64(limits->max_encoder_tokens, spec->block_size);
    case QUIRE_LAYER_CIRCULAR_BUFFER:
        return 1;
    case QUIRE_LAYER_ENCODER_ONLY:
        return 0;
    }
    return 0;
}

uint64_t qr_spec_max_bytes(const quire_layer_spec *spec, const qr_limits *limits)
{
    return qr_mul_u64(qr_spec_max_pages(spec, limits), whole_page(spec));
}

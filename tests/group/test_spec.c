/* group/test_spec.c - pages, the most that a request needs, equality and merging, kind by kind. */
#include "group/spec.h"

#include "base/unit.h"

static quire_layer_spec attention(quire_layer_kind kind)
{
    quire_layer_spec spec = {.kind = kind,
                             .block_size = 16,
                             .num_kv_heads = 8,
                             .head_size = 128,
                             .dtype = QUIRE_DTYPE_BFLOAT16};
    if (qr_spec_is_window(&spec))
        spec.sliding_window = 100;
    if (kind == QUIRE_LAYER_CHUNKED_LOCAL)
        spec.attention_chunk_size = 100;
    if (kind == QUIRE_LAYER_SINK_FULL)
        spec.sink_len = 16;
    if (kind == QUIRE_LAYER_RSWA)
        spec.rswa_window = 100;
    return spec;
}

static quire_layer_spec mamba(void)
{
    return (quire_layer_spec){
        .kind = QUIRE_LAYER_MAMBA,
        .block_size = 64,
        .states = {{2, {3, 1024}, QUIRE_DTYPE_BFLOAT16}, {3, {4, 64, 128}, QUIRE_DTYPE_FLOAT32}}};
}

static quire_layer_spec latent(void)
{
    return (quire_layer_spec){.kind = QUIRE_LAYER_MLA,
                              .block_size = 64,
                              .num_kv_heads = 1,
                              .head_size = 576,
                              .dtype = QUIRE_DTYPE_BFLOAT16};
}

static void assert_pages(const quire_layer_spec *spec, uint64_t real, uint64_t page)
{
    assert_int_equal(qr_spec_check(spec), QUIRE_OK);
    assert_int_equal(qr_spec_real_page_bytes(spec), real);
    assert_int_equal(quire_layer_page_bytes(spec), page);
}

/* ---- pages ------------------------------------------------------------------ */

static void dtypes_have_bytes(void **state)
{
    (void)state;
    const uint32_t bytes[] = {0, 2, 2, 4, 8, 1, 1, 1, 1, 4, 0};
    for (uint32_t i = 0; i < COUNT(bytes); i++)
        assert_int_equal(quire_dtype_bytes((quire_dtype)i), bytes[i]);
}

static void pages_of_attention_kinds(void **state)
{
    (void)state;
    const quire_layer_kind kinds[] = {
        QUIRE_LAYER_FULL,           QUIRE_LAYER_TQ_FULL,       QUIRE_LAYER_SINK_FULL,
        QUIRE_LAYER_SLIDING_WINDOW, QUIRE_LAYER_CHUNKED_LOCAL, QUIRE_LAYER_CROSS,
        QUIRE_LAYER_ENCODER_ONLY,   QUIRE_LAYER_RSWA,          QUIRE_LAYER_CIRCULAR_BUFFER};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        quire_layer_spec spec = attention(kinds[i]);
        assert_pages(&spec, 65536, 65536);
        spec.page_size_padded = 65536;
        assert_pages(&spec, 65536, 65536);
        spec.page_size_padded = 70000;
        assert_pages(&spec, 65536, 70000);
        spec.page_size_padded = 65535;
        assert_int_equal(qr_spec_check(&spec), QUIRE_E_CONFIG);
        assert_int_equal(quire_layer_page_bytes(&spec), 0);
    }
}

static void values_may_be_smaller_than_keys(void **state)
{
    (void)state;
    quire_layer_spec spec = attention(QUIRE_LAYER_FULL);
    spec.head_size_v = 64;
    assert_pages(&spec, 16 * 8 * (128 + 64) * 2, 49152);
    spec.kind = QUIRE_LAYER_CROSS; /* has no such field */
    assert_pages(&spec, 65536, 65536);
}

static void quantised_pages(void **state)
{
    (void)state;
    quire_layer_spec spec = attention(QUIRE_LAYER_FULL);
    spec.dtype = QUIRE_DTYPE_UINT8;
    spec.kv_quant = QUIRE_KV_QUANT_FP8_PER_TENSOR;
    assert_pages(&spec, 32768, 32768);
    spec.kv_quant = QUIRE_KV_QUANT_FP8_PER_TOKEN_HEAD;
    assert_pages(&spec, 32768, 32768 + 2 * 16 * 8 * 4);
    spec.kv_quant = QUIRE_KV_QUANT_INT8_PER_TOKEN_HEAD;
    assert_pages(&spec, 32768, 33792);
    spec.page_size_padded = 33000; /* has room for the page, not for its scales */
    assert_int_equal(qr_spec_check(&spec), QUIRE_E_CONFIG);
    spec.page_size_padded = 0;
    spec.kv_quant = QUIRE_KV_QUANT_NVFP4;
    assert_pages(&spec, 16 * 8 * 2 * (64 + 8), 18432);
    spec.kind = QUIRE_LAYER_SLIDING_WINDOW; /* not packed in vLLM 0.20.0 */
    spec.sliding_window = 100;
    assert_pages(&spec, 32768, 32768);
    spec.kind = QUIRE_LAYER_TQ_FULL;
    spec.tq_slot_size = 100;
    assert_pages(&spec, 16 * 8 * 100, 12800);
}

static void latent_pages(void **state)
{
    (void)state;
    quire_layer_spec spec = latent();
    assert_pages(&spec, 64 * 576 * 2, 73728);
    spec.compress_ratio = 4;
    assert_pages(&spec, 16 * 576 * 2, 18432);
    spec.mla_cache = QUIRE_MLA_CACHE_FP8_DS_MLA;
    assert_pages(&spec, 64 * 656, 41984); /* whatever the ratio */
    spec.mla_version = QUIRE_MLA_VERSION_DEEPSEEK_V4;
    assert_pages(&spec, 16 * 584, 9344);
    spec.mla_cache = QUIRE_MLA_CACHE_FP8; /* the version alone packs nothing */
    assert_pages(&spec, 16 * 576 * 2, 18432);
    spec.mla_cache = QUIRE_MLA_CACHE_FP8_DS_MLA;
    spec.alignment = 576;
    assert_pages(&spec, 9344, 17 * 576);
    spec.alignment = 584; /* nothing to round */
    assert_pages(&spec, 9344, 9344);
    spec.compress_ratio = 65; /* not one vector in a block */
    assert_int_equal(qr_spec_check(&spec), QUIRE_E_CONFIG);
}

static void latent_window_pages(void **state)
{
    (void)state;
    quire_layer_spec spec = latent();
    spec.kind = QUIRE_LAYER_SLIDING_WINDOW_MLA;
    spec.sliding_window = 128;
    assert_pages(&spec, 73728, 73728);
    spec.mla_cache = QUIRE_MLA_CACHE_FP8_DS_MLA; /* counts with the version alone */
    assert_pages(&spec, 73728, 73728);
    spec.mla_version = QUIRE_MLA_VERSION_DEEPSEEK_V4;
    spec.alignment = 576;
    assert_pages(&spec, 64 * 584, 37440);
}

static void state_pages(void **state)
{
    (void)state;
    quire_layer_spec spec = mamba();
    assert_pages(&spec, 3 * 1024 * 2 + 4 * 64 * 128 * 4, 137216);
    spec.page_size_padded = 140000;
    assert_pages(&spec, 137216, 140000);
    spec.page_size_padded = 137215;
    assert_int_equal(qr_spec_check(&spec), QUIRE_E_CONFIG);
}

/* ---- checking --------------------------------------------------------------- */

static void assert_refused(quire_layer_spec spec)
{
    assert_int_equal(qr_spec_check(&spec), QUIRE_E_CONFIG);
    assert_int_equal(qr_spec_real_page_bytes(&spec), 0);
    assert_int_equal(quire_layer_page_bytes(&spec), 0);
}

#define ASSERT_NEEDS(make, field, value)                                                           \
    do {                                                                                           \
        quire_layer_spec broken = (make);                                                          \
        broken.field = (value);                                                                    \
        assert_refused(broken);                                                                    \
    } while (0)

static void missing_fields_are_refused(void **state)
{
    (void)state;
    quire_layer_spec newer = attention(QUIRE_LAYER_FULL);
    newer.reserved[COUNT(newer.reserved) - 1] = 1;
    assert_refused(newer);
    ASSERT_NEEDS(attention(QUIRE_LAYER_FULL), kind, (quire_layer_kind)0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_FULL), kind, (quire_layer_kind)14);
    ASSERT_NEEDS(attention(QUIRE_LAYER_FULL), block_size, 0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_FULL), num_kv_heads, 0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_FULL), head_size, 0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_FULL), dtype, (quire_dtype)0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_FULL), dtype, (quire_dtype)10);
    ASSERT_NEEDS(attention(QUIRE_LAYER_FULL), kv_quant, (quire_kv_quant)5);
    ASSERT_NEEDS(attention(QUIRE_LAYER_SLIDING_WINDOW), sliding_window, 0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_SLIDING_WINDOW_MLA), sliding_window, 0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_CHUNKED_LOCAL), attention_chunk_size, 0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_SINK_FULL), sink_len, 0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_RSWA), rswa_window, 0);
    ASSERT_NEEDS(attention(QUIRE_LAYER_HIDDEN_STATE), mla_version, (quire_mla_version)2);
    ASSERT_NEEDS(latent(), mla_cache, (quire_mla_cache)4);
    ASSERT_NEEDS(latent(), mla_version, (quire_mla_version)2);
    ASSERT_NEEDS(mamba(), block_size, 0);
    ASSERT_NEEDS(mamba(), states[0].num_dims, 0);
    ASSERT_NEEDS(mamba(), states[0].num_dims, 5);
    ASSERT_NEEDS(mamba(), states[1].dtype, (quire_dtype)0);
    ASSERT_NEEDS(mamba(), mamba_type, (quire_mamba_type)6);
    ASSERT_NEEDS(mamba(), mamba_mode, (quire_mamba_mode)3);
    assert_int_equal(quire_layer_page_bytes(NULL), 0);
}

static void sizes_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    quire_layer_spec spec = attention(QUIRE_LAYER_FULL);
    spec.block_size = spec.num_kv_heads = spec.head_size = UINT32_MAX;
    assert_refused(spec);
    spec = mamba();
    for (uint32_t i = 0; i < 3; i++)
        spec.states[1].dims[i] = UINT32_MAX;
    assert_refused(spec);
    spec = latent();
    spec.block_size = spec.head_size = UINT32_MAX;
    assert_int_equal(qr_spec_check(&spec), QUIRE_E_CONFIG);
}

/* ---- the most that a request needs ------------------------------------------ */

static uint64_t pages_of(quire_layer_spec spec, uint32_t len, uint32_t step, uint32_t ranks)
{
    qr_limits limits = {len, step, 1500, ranks};
    uint64_t pages = qr_spec_max_pages(&spec, &limits);
    assert_int_equal(qr_spec_max_bytes(&spec, &limits), pages * qr_spec_page_bytes(&spec));
    return pages;
}

static void most_pages_of_each_kind(void **state)
{
    (void)state;
    assert_int_equal(pages_of(attention(QUIRE_LAYER_FULL), 1000, 64, 1), 63);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_FULL), 1000, 64, 4), 16);
    assert_int_equal(pages_of(latent(), 1000, 64, 1), 16);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_SLIDING_WINDOW), 1000, 64, 1), 12);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_SLIDING_WINDOW), 33, 64, 1), 4);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_CHUNKED_LOCAL), 1000, 64, 1), 11);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_CHUNKED_LOCAL), 33, 64, 1), 3);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_CROSS), 1000, 64, 1), 94);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_ENCODER_ONLY), 1000, 64, 1), 0);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_RSWA), 1000, 64, 1), 63);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_HIDDEN_STATE), 1000, 64, 4), 16);
    assert_int_equal(pages_of(attention(QUIRE_LAYER_CIRCULAR_BUFFER), 1000, 64, 1), 1);
    quire_layer_spec spec = mamba();
    spec.num_speculative_blocks = 3;
    assert_int_equal(pages_of(spec, 1000, 64, 1), 4);
    spec.mamba_mode = QUIRE_MAMBA_MODE_ALIGN;
    assert_int_equal(pages_of(spec, 1000, 64, 1), 5);
    spec.mamba_mode = QUIRE_MAMBA_MODE_ALL;
    assert_int_equal(pages_of(spec, 1000, 64, 1), 16);
}

static void admission_is_capped_for_kinds_that_give_back(void **state)
{
    (void)state;
    quire_layer_spec spec = attention(QUIRE_LAYER_SLIDING_WINDOW);
    assert_int_equal(qr_spec_max_admission_blocks(&spec, 64, 1000), 12);
    spec.sliding_window = 1;
    assert_int_equal(qr_spec_max_admission_blocks(&spec, 16, 1000), 2);
    spec = attention(QUIRE_LAYER_CHUNKED_LOCAL);
    assert_int_equal(qr_spec_max_admission_blocks(&spec, 64, 1000), 11);
    spec.attention_chunk_size = UINT32_MAX; /* the sum has more than 32 bits */
    assert_int_equal(qr_spec_max_admission_blocks(&spec, UINT32_MAX, UINT32_MAX), 268435456);
    spec = attention(QUIRE_LAYER_FULL);
    assert_int_equal(qr_spec_max_admission_blocks(&spec, 64, 1000), UINT32_MAX);
    spec = mamba();
    assert_int_equal(qr_spec_max_admission_blocks(&spec, 64, 1000), UINT32_MAX);
}

/* ---- equality --------------------------------------------------------------- */

#define ASSERT_COUNTS(make, field, value)                                                          \
    do {                                                                                           \
        quire_layer_spec a = (make);                                                               \
        quire_layer_spec b = a;                                                                    \
        assert_int_equal(qr_spec_equal(&a, &b), 1);                                                \
        b.field = (value);                                                                         \
        assert_int_equal(qr_spec_check(&b), QUIRE_OK);                                             \
        assert_int_equal(qr_spec_equal(&a, &b), 0);                                                \
        assert_int_equal(qr_spec_equal(&b, &a), 0);                                                \
    } while (0)

static void every_field_of_a_kind_counts(void **state)
{
    (void)state;
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), kind, QUIRE_LAYER_TQ_FULL);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), block_size, 32);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), num_kv_heads, 4);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), head_size, 64);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), head_size_v, 64);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), dtype, QUIRE_DTYPE_FLOAT16);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), kv_quant, QUIRE_KV_QUANT_NVFP4);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), page_size_padded, 65536);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), sliding_window, 7);
    ASSERT_COUNTS(attention(QUIRE_LAYER_FULL), attention_chunk_size, 7);
    ASSERT_COUNTS(attention(QUIRE_LAYER_SINK_FULL), sink_len, 32);
    ASSERT_COUNTS(attention(QUIRE_LAYER_TQ_FULL), tq_slot_size, 100);
    ASSERT_COUNTS(attention(QUIRE_LAYER_SLIDING_WINDOW), sliding_window, 99);
    ASSERT_COUNTS(attention(QUIRE_LAYER_CHUNKED_LOCAL), attention_chunk_size, 99);
    ASSERT_COUNTS(attention(QUIRE_LAYER_RSWA), rswa_window, 99);
    ASSERT_COUNTS(attention(QUIRE_LAYER_CIRCULAR_BUFFER), head_size_v, 64);
    ASSERT_COUNTS(attention(QUIRE_LAYER_HIDDEN_STATE), compress_ratio, 4);
    ASSERT_COUNTS(latent(), mla_cache, QUIRE_MLA_CACHE_AUTO);
    ASSERT_COUNTS(latent(), mla_version, QUIRE_MLA_VERSION_DEEPSEEK_V4);
    ASSERT_COUNTS(latent(), alignment, 1000);
    ASSERT_COUNTS(latent(), compress_ratio, 4);
    ASSERT_COUNTS(mamba(), states[0].num_dims, 1);
    ASSERT_COUNTS(mamba(), states[1].dims[2], 64);
    ASSERT_COUNTS(mamba(), states[1].dtype, QUIRE_DTYPE_FLOAT16);
    ASSERT_COUNTS(mamba(), mamba_type, QUIRE_MAMBA_GDN);
    ASSERT_COUNTS(mamba(), mamba_mode, QUIRE_MAMBA_MODE_ALL);
    ASSERT_COUNTS(mamba(), num_speculative_blocks, 1);
    ASSERT_COUNTS(mamba(), num_prefill_checkpoint_blocks, 1);
    ASSERT_COUNTS(mamba(), prefill_checkpoint_alignment, 1);
}

static void defaults_and_unused_fields_do_not_count(void **state)
{
    (void)state;
    quire_layer_spec a = attention(QUIRE_LAYER_FULL);
    quire_layer_spec b = a;
    b.head_size_v = 128;
    b.compress_ratio = 9;
    b.states[0].num_dims = 1;
    assert_int_equal(qr_spec_equal(&a, &b), 1);
    a = latent();
    b = a;
    b.compress_ratio = 1;
    b.sink_len = 7;
    assert_int_equal(qr_spec_equal(&a, &b), 1);
    a = mamba();
    b = a;
    b.states[2].dtype = QUIRE_DTYPE_INT8; /* a state that is not there */
    b.states[0].dims[3] = 5;
    b.head_size = 3;
    assert_int_equal(qr_spec_equal(&a, &b), 1);
}

/* ---- merging ---------------------------------------------------------------- */

static int merge_two(quire_layer_spec a, quire_layer_spec b, quire_layer_spec *merged)
{
    const quire_layer_spec *specs[] = {&a, &b};
    return qr_spec_try_merge(specs, 2, merged) == QR_MERGED ? QUIRE_OK : QUIRE_E_MIXED;
}

static qr_merge try_two(quire_layer_spec a, quire_layer_spec b)
{
    const quire_layer_spec *specs[] = {&a, &b};
    quire_layer_spec merged;
    memset(&merged, 0x77, sizeof merged);
    quire_layer_spec before = merged;
    qr_merge outcome = qr_spec_try_merge(specs, 2, &merged);
    if (outcome != QR_MERGED)
        assert_memory_equal(&merged, &before, sizeof merged);
    return outcome;
}

static void full_layers_merge_with_and_without_a_window(void **state)
{
    (void)state;
    quire_layer_spec plain = attention(QUIRE_LAYER_FULL);
    quire_layer_spec windowed = plain;
    quire_layer_spec chunked = plain;
    quire_layer_spec merged;
    windowed.sliding_window = 100;
    chunked.attention_chunk_size = 64;
    assert_int_equal(merge_two(plain, windowed, &merged), QUIRE_OK);
    assert_int_equal(merged.sliding_window, 100);
    assert_int_equal(merge_two(chunked, plain, &merged), QUIRE_OK);
    assert_int_equal(merged.attention_chunk_size, 64);
    assert_int_equal(merge_two(windowed, chunked, &merged), QUIRE_E_MIXED);
    assert_int_equal(try_two(windowed, chunked), QR_MERGE_DIFFER);
    quire_layer_spec other = windowed;
    other.sliding_window = 101;
    assert_int_equal(try_two(windowed, other), QR_MERGE_REFUSED);
    other = plain;
    other.head_size_v = 64; /* the first layer's counts */
    assert_int_equal(merge_two(plain, other, &merged), QUIRE_OK);
    assert_int_equal(merged.head_size_v, 128);
    other = plain;
    other.dtype = QUIRE_DTYPE_FLOAT16;
    assert_int_equal(try_two(plain, other), QR_MERGE_DIFFER);
}

static void full_kinds_merge_into_the_first(void **state)
{
    (void)state;
    quire_layer_spec merged;
    quire_layer_spec full = attention(QUIRE_LAYER_FULL);
    quire_layer_spec sink = attention(QUIRE_LAYER_SINK_FULL);
    quire_layer_spec slots = attention(QUIRE_LAYER_TQ_FULL);
    assert_int_equal(merge_two(full, sink, &merged), QUIRE_OK);
    assert_true(merged.kind == QUIRE_LAYER_FULL && merged.sink_len == 0);
    assert_int_equal(merge_two(sink, full, &merged), QUIRE_OK);
    assert_true(merged.kind == QUIRE_LAYER_SINK_FULL && merged.sink_len == 16);
    assert_int_equal(try_two(full, slots), QR_MERGED);
    assert_int_equal(try_two(slots, full), QR_MERGE_REFUSED);
    quire_layer_spec other = slots;
    other.tq_slot_size = 50;
    assert_int_equal(try_two(slots, other), QR_MERGE_DIFFER);
    assert_int_equal(try_two(full, latent()), QR_MERGE_DIFFER);
    assert_int_equal(try_two(full, mamba()), QR_MERGE_DIFFER);
}

static void new_kinds_merge_with_their_like(void **state)
{
    (void)state;
    quire_layer_spec merged;
    quire_layer_spec rswa = attention(QUIRE_LAYER_RSWA);
    quire_layer_spec other = rswa;
    quire_layer_spec hidden = attention(QUIRE_LAYER_HIDDEN_STATE);
    assert_int_equal(merge_two(rswa, other, &merged), QUIRE_OK);
    assert_true(merged.kind == QUIRE_LAYER_RSWA && merged.rswa_window == 100);
    other.rswa_window = 99;
    assert_int_equal(try_two(rswa, other), QR_MERGE_DIFFER);
    assert_int_equal(try_two(rswa, attention(QUIRE_LAYER_FULL)), QR_MERGE_DIFFER);
    assert_int_equal(try_two(attention(QUIRE_LAYER_FULL), rswa), QR_MERGE_DIFFER);
    assert_int_equal(try_two(hidden, hidden), QR_MERGED);
    assert_int_equal(try_two(hidden, attention(QUIRE_LAYER_MLA)), QR_MERGE_DIFFER);
    assert_int_equal(try_two(attention(QUIRE_LAYER_FULL), hidden), QR_MERGE_DIFFER);
    hidden.compress_ratio =
        4; /* a hidden state for 4 tokens: one vector of 2 bytes for each number */
    assert_pages(&hidden, 16 / 4 * 8 * 128 * 2, 8192);
}

static void latent_layers_merge_by_their_format(void **state)
{
    (void)state;
    quire_layer_spec merged;
    quire_layer_spec a = latent();
    quire_layer_spec b = latent();
    a.alignment = 1000;
    a.head_size_v = 64;
    a.kv_quant = QUIRE_KV_QUANT_FP8_PER_TENSOR;
    b.head_size = 128; /* not looked at */
    assert_int_equal(merge_two(a, b, &merged), QUIRE_OK);
    assert_int_equal(merged.head_size_v, 576);
    assert_int_equal(merged.kv_quant, QUIRE_KV_QUANT_FP8_PER_TENSOR);
    assert_int_equal(merged.alignment, 0); /* but its padding stays */
    assert_int_equal(quire_layer_page_bytes(&merged), 74000);
    b.compress_ratio = 2;
    assert_int_equal(try_two(a, b), QR_MERGE_DIFFER);
    b = latent();
    b.mla_cache = QUIRE_MLA_CACHE_FP8;
    assert_int_equal(try_two(a, b), QR_MERGE_DIFFER);
    a.kind = b.kind = QUIRE_LAYER_SLIDING_WINDOW_MLA;
    a.sliding_window = b.sliding_window = 10;
    b.mla_cache = QUIRE_MLA_CACHE_NONE;
    assert_int_equal(merge_two(a, b, &merged), QUIRE_OK);
    assert_int_equal(merged.kv_quant, QUIRE_KV_QUANT_NONE); /* lost here, as in vLLM */
    b.sliding_window = 11;
    assert_int_equal(try_two(a, b), QR_MERGE_DIFFER);
}

static void other_kinds_merge_when_equal(void **state)
{
    (void)state;
    const quire_layer_spec specs[] = {
        attention(QUIRE_LAYER_SLIDING_WINDOW), attention(QUIRE_LAYER_CHUNKED_LOCAL),
        attention(QUIRE_LAYER_CROSS), attention(QUIRE_LAYER_CIRCULAR_BUFFER), mamba()};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t j = 0; j < COUNT(specs); j++)
            assert_int_equal(try_two(specs[i], specs[j]), i == j ? QR_MERGED : QR_MERGE_DIFFER);
}

/* ---- another block size ----------------------------------------------------- */

static void alignment_follows_the_block_size(void **state)
{
    (void)state;
    quire_layer_spec spec = latent();
    spec.alignment = 1000;
    quire_layer_spec larger = qr_spec_with_block_size(&spec, 128);
    assert_int_equal(larger.page_size_padded, 148000); /* 147,456 bytes, rounded up */
    spec = attention(QUIRE_LAYER_FULL);
    spec.page_size_padded = 70000;
    larger = qr_spec_with_block_size(&spec, 32);
    assert_int_equal(larger.page_size_padded, 70000); /* as it was given: too small now */
    assert_int_equal(qr_spec_check(&larger), QUIRE_E_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_bytes),
        cmocka_unit_test(pages_of_attention_kinds),
        cmocka_unit_test(values_may_be_smaller_than_keys),
        cmocka_unit_test(quantised_pages),
        cmocka_unit_test(latent_pages),
        cmocka_unit_test(latent_window_pages),
        cmocka_unit_test(state_pages),
        cmocka_unit_test(missing_fields_are_refused),
        cmocka_unit_test(sizes_beyond_64_bits_are_refused),
        cmocka_unit_test(most_pages_of_each_kind),
        cmocka_unit_test(admission_is_capped_for_kinds_that_give_back),
        cmocka_unit_test(every_field_of_a_kind_counts),
        cmocka_unit_test(defaults_and_unused_fields_do_not_count),
        cmocka_unit_test(full_layers_merge_with_and_without_a_window),
        cmocka_unit_test(full_kinds_merge_into_the_first),
        cmocka_unit_test(new_kinds_merge_with_their_like),
        cmocka_unit_test(latent_layers_merge_by_their_format),
        cmocka_unit_test(other_kinds_merge_when_equal),
        cmocka_unit_test(alignment_follows_the_block_size),
    };
    return cmocka_run_group_tests_name("group_spec", tests, NULL, NULL);
}

/* plan/test_model.c - from config.json to layers: what is refused, and patterns that one can count.
 * The recordings of tests/parity have 25 models in several settings each. */
#include "base/unit.h"
#include "group/spec.h"

#include <quire/model.h>

enum { ROOM = 256 };

static quire_layer_spec layers[ROOM];

static quire_model_params llama(void)
{
    quire_model_params p = QUIRE_MODEL_PARAMS_INIT;
    p.model_type = "llama";
    p.num_hidden_layers = 32;
    p.hidden_size = 4096;
    p.num_attention_heads = 32;
    p.num_key_value_heads = 8;
    p.max_position_embeddings = 131072;
    return p;
}

/* One letter for each layer. */
static void assert_layers(const quire_model_params *p, const char *expected)
{
    char text[ROOM + 1] = "";
    uint32_t count = 0;
    assert_int_equal(quire_model_layers(p, layers, ROOM, &count), QUIRE_OK);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(qr_spec_check(&layers[i]), QUIRE_OK);
        text[i] = "?ftlswLcmxe"[layers[i].kind];
    }
    assert_string_equal(text, expected);
    uint32_t counted = 0;
    assert_int_equal(quire_model_layers(p, NULL, 0, &counted), QUIRE_OK);
    assert_int_equal(counted, count);
}

static void assert_refused(const quire_model_params *p, int status)
{
    uint32_t count = 77;
    memset(layers, 0x77, sizeof layers);
    assert_int_equal(quire_model_layers(p, layers, ROOM, &count), status);
    assert_int_equal(count, 77);
    const unsigned char *bytes = (const unsigned char *)layers;
    for (size_t i = 0; i < sizeof layers; i++)
        assert_int_equal(bytes[i], 0x77);
}

static void plain_models(void **state)
{
    (void)state;
    quire_model_params p = llama();
    p.num_hidden_layers = 4;
    assert_layers(&p, "ffff");
    assert_int_equal(layers[0].block_size, 16);
    assert_int_equal(layers[0].num_kv_heads, 8);
    assert_int_equal(layers[0].head_size, 128);
    assert_int_equal(layers[0].dtype, QUIRE_DTYPE_BFLOAT16);
    p.num_key_value_heads = 0; /* as many as attention heads */
    p.tensor_parallel_size = 4;
    p.block_size = 32;
    assert_layers(&p, "ffff");
    assert_int_equal(layers[0].num_kv_heads, 8);
    assert_int_equal(layers[0].block_size, 32);
    p.num_key_value_heads = 2; /* two workers have each head */
    assert_layers(&p, "ffff");
    assert_int_equal(layers[0].num_kv_heads, 1);
}

static void windows(void **state)
{
    (void)state;
    quire_model_params p = llama();
    p.num_hidden_layers = 7;
    p.sliding_window = 100;
    assert_layers(&p, "wwwwwww");
    const quire_layer_type types[] = {
        QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_SLIDING, QUIRE_LAYER_TYPE_FULL,
        QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_SLIDING, QUIRE_LAYER_TYPE_FULL,
        QUIRE_LAYER_TYPE_FULL,
    };
    p.layer_types = types;
    assert_layers(&p, "fwffwff");
    const quire_layer_type all_full[7] = {
        QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_FULL,
        QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_FULL,
    };
    p.layer_types = all_full; /* one type: the window is the whole model's */
    assert_layers(&p, "wwwwwww");
    p.layer_types = types;
    p.model_type = "gemma2";
    assert_layers(&p, "fwffwff");
    p.model_type = "gpt_oss"; /* by number, whatever the types say */
    assert_layers(&p, "wfwfwfw");
    p.layer_types = NULL;
    p.model_type = "gemma2";
    assert_layers(&p, "wfwfwfw");
    p.model_type = "gemma3";
    assert_layers(&p, "wwwwwfw");
    p.sliding_window_pattern = 3;
    assert_layers(&p, "wwfwwfw");
    p.sliding_window = 0;
    assert_refused(&p, QUIRE_E_CONFIG);
}

static void qwen_windows(void **state)
{
    (void)state;
    quire_model_params p = llama();
    p.model_type = "qwen2";
    p.num_hidden_layers = 3;
    p.sliding_window = 100;
    assert_layers(&p, "fff");
    p.use_sliding_window = QUIRE_ON;
    assert_layers(&p, "www");
    p.max_window_layers = 3;
    assert_layers(&p, "www");
    p.max_window_layers = 2;
    assert_refused(&p, QUIRE_E_CONFIG);
}

static void chunks(void **state)
{
    (void)state;
    quire_model_params p = llama();
    p.model_type = "llama4";
    p.num_hidden_layers = 6;
    assert_layers(&p, "cccfcc");
    assert_int_equal(layers[0].attention_chunk_size, 8192);
    p.no_rope_layer_interval = 2;
    p.attention_chunk_size = 64;
    assert_layers(&p, "cfcfcf");
    assert_int_equal(layers[0].attention_chunk_size, 64);
    const uint32_t no_rope[] = {0, 1, 1, 0, 0, 1};
    p.no_rope_layers = no_rope;
    assert_layers(&p, "fccffc");
}

static void latent_models(void **state)
{
    (void)state;
    quire_model_params p = llama();
    p.model_type = "deepseek_v3";
    p.num_hidden_layers = 2;
    assert_refused(&p, QUIRE_E_CONFIG);
    p.kv_lora_rank = 512;
    p.qk_rope_head_dim = 64;
    p.tensor_parallel_size = 16; /* every worker has all of it */
    assert_layers(&p, "ll");
    assert_int_equal(layers[0].num_kv_heads, 1);
    assert_int_equal(layers[0].head_size, 576);
    p.cache_dtype = QUIRE_CACHE_DTYPE_FP8_DS_MLA;
    p.index_head_dim = 128;
    assert_layers(&p, "llll");
    assert_int_equal(layers[0].head_size, 132);
    assert_int_equal(quire_layer_page_bytes(&layers[1]), 16 * 656);
    p.cache_dtype = QUIRE_CACHE_DTYPE_NVFP4;
    assert_refused(&p, QUIRE_E_CONFIG);
}

static void mamba_models(void **state)
{
    (void)state;
    quire_model_params p = llama();
    p.model_type = "jamba";
    p.num_hidden_layers = 10;
    p.attn_layer_offset = 4;
    p.mamba_d_state = 16;
    assert_refused(&p, QUIRE_E_CONFIG);
    p.mamba_d_conv = 1; /* the convolution has one input: no earlier one is kept */
    assert_refused(&p, QUIRE_E_CONFIG);
    p.mamba_d_conv = 2;
    assert_layers(&p, "mmmmfmmmmm");
    assert_int_equal(layers[0].states[0].dims[0], 1);
    p.mamba_d_conv = 4;
    assert_layers(&p, "mmmmfmmmmm");
    /* A page of attention holds a state, and a state is filled up to it. */
    assert_int_equal(quire_layer_page_bytes(&layers[0]), quire_layer_page_bytes(&layers[4]));
    assert_true(qr_spec_real_page_bytes(&layers[0]) <= quire_layer_page_bytes(&layers[4]));
    assert_int_equal(layers[0].block_size, 131072);
    p.mamba_mode = QUIRE_MAMBA_MODE_ALIGN;
    assert_layers(&p, "mmmmfmmmmm");
    assert_int_equal(layers[0].block_size, layers[4].block_size);
    p.kernel_block_size = 4096; /* blocks are multiples of it */
    assert_layers(&p, "mmmmfmmmmm");
    assert_int_equal(layers[4].block_size % 4096, 0);
    p.kernel_block_size = 0;
    p.mamba_mode = QUIRE_MAMBA_MODE_ALL;
    assert_layers(&p, "mmmmfmmmmm");
    assert_int_equal(layers[0].block_size, 2048);
    p.mamba_mode = QUIRE_MAMBA_MODE_NONE;
    p.max_position_embeddings = 0; /* the block of a state is as long as a request */
    assert_refused(&p, QUIRE_E_CONFIG);
}

static void nemotron_patterns(void **state)
{
    (void)state;
    quire_model_params p = llama();
    p.model_type = "nemotron_h";
    p.num_hidden_layers = 6;
    p.mamba_n_heads = 8;
    p.mamba_d_head = 64;
    p.mamba_d_state = 128;
    p.mamba_d_conv = 4;
    assert_refused(&p, QUIRE_E_CONFIG);
    p.hybrid_override_pattern = "M-M*E";
    assert_refused(&p, QUIRE_E_CONFIG); /* too short */
    p.hybrid_override_pattern = "M-M*EM";
    assert_layers(&p, "mmfm");
    assert_int_equal(layers[0].states[1].dtype, QUIRE_DTYPE_FLOAT32);
}

static void other_models(void **state)
{
    (void)state;
    quire_model_params p = QUIRE_MODEL_PARAMS_INIT;
    p.model_type = "whisper";
    p.decoder_layers = 2;
    p.decoder_attention_heads = 20;
    p.d_model = 1280;
    assert_layers(&p, "fxfx");
    assert_int_equal(layers[1].head_size, 64);
    p = llama();
    p.model_type = "qwen3_next";
    p.num_hidden_layers = 5;
    p.linear_num_key_heads = 16;
    p.linear_num_value_heads = 32;
    p.linear_key_head_dim = p.linear_value_head_dim = 128;
    p.linear_conv_kernel_dim = 4;
    assert_layers(&p, "mmmfm");
    const uint32_t attention[] = {0, 2};
    p.model_type = "bamba";
    p.attn_layer_indices = attention;
    p.num_attn_layer_indices = 2;
    p.mamba_n_heads = 128;
    p.mamba_d_head = 64;
    p.mamba_d_state = 128;
    p.mamba_d_conv = 4;
    assert_layers(&p, "fmfmm");
}

static void what_is_missing_is_refused(void **state)
{
    (void)state;
    uint32_t count = 0;
    quire_model_params p = llama();
    assert_int_equal(quire_model_layers(NULL, layers, ROOM, &count), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_model_layers(&p, layers, ROOM, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_model_layers(&p, NULL, 5, &count), QUIRE_E_ARGUMENT);
    memset(layers, 0x77, sizeof layers);
    assert_int_equal(quire_model_layers(&p, layers, 31, &count), QUIRE_E_RANGE);
    assert_int_equal(*(const unsigned char *)layers, 0x77);
    p.model_type = "no_such_model";
    assert_refused(&p, QUIRE_E_UNKNOWN_NAME);
    p.model_type = NULL;
    assert_refused(&p, QUIRE_E_CONFIG);
    p = llama();
    p.num_hidden_layers = 0;
    assert_refused(&p, QUIRE_E_CONFIG);
    p = llama();
    p.num_attention_heads = 0;
    assert_refused(&p, QUIRE_E_CONFIG);
    p = llama();
    p.tensor_parallel_size = 3; /* 32 heads on 3 workers */
    assert_refused(&p, QUIRE_E_CONFIG);
    p = llama();
    p.num_key_value_heads = 6;
    p.tensor_parallel_size = 4; /* 6 heads on 4 workers */
    assert_refused(&p, QUIRE_E_CONFIG);
    p = llama();
    p.cache_dtype = QUIRE_CACHE_DTYPE_FP8_DS_MLA;
    assert_refused(&p, QUIRE_E_CONFIG);
    p = llama();
    p.torch_dtype = (quire_dtype)44;
    assert_refused(&p, QUIRE_E_CONFIG);
    assert_int_equal(quire_model_is_known("llama"), 1);
    assert_int_equal(quire_model_is_known("no_such_model"), 0);
    assert_int_equal(quire_model_is_known(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_models),
        cmocka_unit_test(windows),
        cmocka_unit_test(qwen_windows),
        cmocka_unit_test(chunks),
        cmocka_unit_test(latent_models),
        cmocka_unit_test(mamba_models),
        cmocka_unit_test(nemotron_patterns),
        cmocka_unit_test(other_models),
        cmocka_unit_test(what_is_missing_is_refused),
    };
    return cmocka_run_group_tests_name("plan_model", tests, NULL, NULL);
}

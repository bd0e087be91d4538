/* Models whose fields do not fit together: each field alone, on a model that is right else. */
#include "base/unit.h"

#include <quire/model.h>

enum { MAX_LAYERS = 16 };

static const quire_layer_type all_full[] = {QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_FULL,
                                            QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_FULL};

static quire_model_params plain(const char *model_type)
{
    quire_model_params p = QUIRE_MODEL_PARAMS_INIT;
    p.model_type = model_type;
    p.num_hidden_layers = 4;
    p.hidden_size = 4096;
    p.num_attention_heads = 32;
    p.num_key_value_heads = 8;
    p.max_position_embeddings = 4096;
    return p;
}

static quire_model_params mamba1(void)
{
    quire_model_params p = plain("jamba");
    p.mamba_d_state = 16;
    p.mamba_d_conv = 4;
    return p;
}

static quire_model_params mamba2(void)
{
    quire_model_params p = plain("nemotron_h");
    p.hybrid_override_pattern = "M*M*";
    p.mamba_n_heads = 8;
    p.mamba_d_head = 64;
    p.mamba_d_state = 128;
    p.mamba_d_conv = 4;
    return p;
}

static quire_model_params bamba(void)
{
    quire_model_params p = mamba2();
    p.model_type = "bamba";
    return p;
}

static quire_model_params qwen(void)
{
    quire_model_params p = plain("qwen3");
    p.layer_types = all_full;
    p.use_sliding_window = QUIRE_ON;
    p.sliding_window = 64;
    return p;
}

static quire_model_params delta(void)
{
    quire_model_params p = plain("qwen3_next");
    p.linear_num_key_heads = 16;
    p.linear_num_value_heads = 32;
    p.linear_key_head_dim = p.linear_value_head_dim = 128;
    p.linear_conv_kernel_dim = 4;
    return p;
}

static int answer(const quire_model_params *p)
{
    quire_layer_spec layers[MAX_LAYERS];
    uint32_t count = 0;
    return quire_model_layers(p, layers, MAX_LAYERS, &count);
}

/* A right model with something changed is refused. */
#define REFUSE(model, ...)                                                                         \
    do {                                                                                           \
        quire_model_params p = (model);                                                            \
        assert_int_equal(answer(&p), QUIRE_OK);                                                    \
        __VA_ARGS__;                                                                               \
        assert_int_equal(answer(&p), QUIRE_E_CONFIG);                                              \
    } while (0)

static void values_that_are_not_there(void **state)
{
    (void)state;
    REFUSE(plain("llama"), p.hidden_size = 1);
    REFUSE(plain("llama"), p.torch_dtype = (quire_dtype)99);
    REFUSE(plain("llama"), p.mamba_ssm_dtype = (quire_dtype)99);
    REFUSE(plain("llama"), p.cache_dtype = (quire_cache_dtype)6);
    REFUSE(plain("llama"), p.mamba_mode = (quire_mamba_mode)3);
    REFUSE(plain("llama"), p.use_sliding_window = (quire_switch)3);
}

static void states_of_mamba1(void **state)
{
    (void)state;
    REFUSE(mamba1(), p.mamba_d_conv = 1);
    REFUSE(mamba1(), p.mamba_d_state = 0);
    REFUSE(mamba1(), p.head_dim = 128; p.hidden_size = 4097; p.mamba_expand = 1;
           p.tensor_parallel_size = 2);
    REFUSE(mamba1(), p.mamba_expand = 1u << 30);
}

static void states_of_mamba2(void **state)
{
    (void)state;
    REFUSE(mamba2(), p.mamba_d_conv = 1);
    REFUSE(mamba2(), p.mamba_d_state = 0);
    REFUSE(mamba2(), p.mamba_n_heads = 0);
    REFUSE(mamba2(), p.mamba_n_heads = 7; p.tensor_parallel_size = 2);
    REFUSE(mamba2(), p.mamba_n_heads = 1u << 16; p.mamba_d_head = 1u << 17);
    REFUSE(bamba(), p.head_dim = 128; p.hidden_size = 4097; p.mamba_expand = 1;
           p.tensor_parallel_size = 2); /* its width cannot be shared */
    REFUSE(bamba(), p.num_attn_layer_indices = 1);
}

static void states_of_linear_attention(void **state)
{
    (void)state;
    REFUSE(delta(), p.linear_conv_kernel_dim = 1);
    REFUSE(delta(), p.linear_num_key_heads = 0);
    REFUSE(delta(), p.linear_num_value_heads = 0);
    REFUSE(delta(), p.linear_num_value_heads = 31; p.linear_value_head_dim = 127;
           p.tensor_parallel_size = 2);
    REFUSE(delta(), p.linear_num_value_heads = 31; p.tensor_parallel_size = 2);
    REFUSE(delta(), p.linear_num_value_heads = 1u << 20; p.linear_value_head_dim = 1u << 12);
}

/* A state so large that no page of attention can be made as large. */
static void state_larger_than_any_page(void **state)
{
    (void)state;
    REFUSE(mamba1(), p.hidden_size = 1u << 20; p.head_dim = 1; p.num_attention_heads = 1;
           p.num_key_value_heads = 1; p.mamba_expand = 1u << 11; p.mamba_d_state = 1u << 20);
}

static void pages_that_hold_a_state_already(void **state)
{
    (void)state;
    quire_model_params p = mamba1();
    quire_layer_spec layers[MAX_LAYERS];
    uint32_t count = 0;
    p.attn_layer_period = 2;
    p.block_size = 4096;
    assert_int_equal(quire_model_layers(&p, layers, MAX_LAYERS, &count), QUIRE_OK);
    assert_int_equal(layers[0].kind, QUIRE_LAYER_FULL);
    assert_int_equal(layers[0].block_size, 4096);
}

/* All layers of one type are as good as no types; some of another, and Qwen has no window. */
static void windows_of_qwen(void **state)
{
    (void)state;
    static const quire_layer_type types[] = {QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_FULL,
                                             QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_SLIDING};
    REFUSE(qwen(), p.layer_types = types);
    REFUSE(qwen(), p.max_window_layers = 2);
    quire_model_params p = qwen();
    p.max_window_layers = 4;
    assert_int_equal(answer(&p), QUIRE_OK);
    p.sliding_window = 0;
    p.max_window_layers = 2;
    assert_int_equal(answer(&p), QUIRE_OK);
}

static void types_of_linear_layers(void **state)
{
    (void)state;
    quire_layer_type types[4] = {QUIRE_LAYER_TYPE_LINEAR, QUIRE_LAYER_TYPE_FULL,
                                 QUIRE_LAYER_TYPE_FULL, QUIRE_LAYER_TYPE_LINEAR};
    quire_layer_spec layers[MAX_LAYERS];
    uint32_t count = 0;
    quire_model_params p = delta();
    p.layer_types = types;
    assert_int_equal(quire_model_layers(&p, layers, MAX_LAYERS, &count), QUIRE_OK);
    assert_int_equal(count, 4);
    assert_int_equal(layers[0].kind, QUIRE_LAYER_MAMBA);
    assert_int_equal(layers[1].kind, QUIRE_LAYER_FULL);
    assert_int_equal(layers[3].kind, QUIRE_LAYER_MAMBA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_are_not_there),
        cmocka_unit_test(states_of_mamba1),
        cmocka_unit_test(states_of_mamba2),
        cmocka_unit_test(states_of_linear_attention),
        cmocka_unit_test(state_larger_than_any_page),
        cmocka_unit_test(pages_that_hold_a_state_already),
        cmocka_unit_test(windows_of_qwen),
        cmocka_unit_test(types_of_linear_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_shape.c - parameters of well-known models to the last one, and config.json files good and
 * bad.
 */
#include "base/unit.h"
#include "output/failure.h"

#include "model/shape.h"

#include <quire/cost.h>

#include <unistd.h>

static shape must_find(const char *name)
{
    shape s;
    if (shape_find(name, &s) != 0)
        fail_msg("%s", failure());
    return s;
}

/* Published with the weights: the number of their elements. */
static void totals_are_those_published(void **state)
{
    static const struct {
        const char *name;
        uint64_t params;
    } known[] = {{"llama-3.1-8b", UINT64_C(8030261248)},
                 {"llama-3.1-70b", UINT64_C(70553706496)},
                 {"llama-3.1-405b", UINT64_C(405853388800)},
                 {"llama-3.2-1b", UINT64_C(1235814400)},
                 {"llama-3.2-3b", UINT64_C(3212749824)},
                 {"mistral-7b", UINT64_C(7248023552)},
                 {"mistral-nemo-12b", UINT64_C(12247782400)},
                 {"mistral-small-24b", UINT64_C(23572403200)},
                 {"mixtral-8x7b", UINT64_C(46702792704)},
                 {"qwen2.5-7b", UINT64_C(7615616512)},
                 {"qwen2.5-72b", UINT64_C(72706203648)},
                 {"qwen3-0.6b", UINT64_C(596049920)},
                 {"qwen3-4b", UINT64_C(4022468096)},
                 {"qwen3-8b", UINT64_C(8190735360)},
                 {"qwen3-14b", UINT64_C(14768307200)},
                 {"qwen3-32b", UINT64_C(32762123264)},
                 {"qwen3-30b-a3b", UINT64_C(30532122624)},
                 {"gemma-2-9b", UINT64_C(9241705984)},
                 {"gpt-oss-20b", UINT64_C(20914757184)},
                 {"gpt-oss-120b", UINT64_C(116829156672)},
                 {"deepseek-v3", UINT64_C(671026404352)},
                 {"llama-2-7b", UINT64_C(6738415616)},
                 {"llama-2-13b", UINT64_C(13015864320)},
                 {"llama-2-70b", UINT64_C(68976648192)},
                 {"qwen2.5-14b", UINT64_C(14770033664)},
                 {"qwen2.5-32b", UINT64_C(32763876352)},
                 {"mistral-large-123b", UINT64_C(122610069504)},
                 {"deepseek-v2-lite", UINT64_C(15706484224)},
                 {"phi-4", UINT64_C(14659507200)}};
    (void)state;
    for (size_t i = 0; i < COUNT(known); i++) {
        shape s = must_find(known[i].name);
        uint64_t params = shape_measure(&s).total_params;
        if (params != known[i].params)
            fail_msg("%s: %llu", known[i].name, (unsigned long long)params);
    }
}

static uint64_t token_bytes(const shape *s, uint32_t tp, quire_cache_dtype dtype)
{
    quire_layer_spec layers[SHAPE_MAX_LAYERS];
    uint32_t num_layers = 0;
    shape_layers_params params = {.tp = tp, .block_size = 16, .cache_dtype = dtype};
    assert_int_equal(shape_layers(s, &params, layers, &num_layers), QUIRE_OK);
    assert_int_equal(num_layers, s->num_layers);
    return quire_cost_block_bytes(layers, num_layers) / 16;
}

static void every_preset_is_sound(void **state)
{
    (void)state;
    for (uint32_t i = 0; shape_preset(i); i++) {
        const shape *s = shape_preset(i);
        shape_size size = shape_measure(s);
        shape found = must_find(s->name);
        assert_int_equal(shape_check(s), 0);
        assert_string_equal(found.name, s->name);
        assert_true(size.active_params <= size.total_params);
        assert_true(token_bytes(s, 1, QUIRE_CACHE_DTYPE_AUTO) > 0);
        assert_true(s->max_model_len >= 4096);
    }
}

static void kv_bytes_follow_heads_and_workers(void **state)
{
    (void)state;
    shape llama = must_find("llama-3.1-8b");
    shape seventy = must_find("llama-3.1-70b");
    shape deepseek = must_find("deepseek-v3");
    assert_int_equal(token_bytes(&llama, 1, QUIRE_CACHE_DTYPE_AUTO), 131072);
    assert_int_equal(token_bytes(&llama, 1, QUIRE_CACHE_DTYPE_FP8), 65536);
    assert_int_equal(token_bytes(&llama, 4, QUIRE_CACHE_DTYPE_AUTO), 32768);
    assert_int_equal(token_bytes(&llama, 16, QUIRE_CACHE_DTYPE_AUTO), 16384); /* a head each */
    assert_int_equal(16 * token_bytes(&seventy, 1, QUIRE_CACHE_DTYPE_AUTO), 5242880);
    assert_int_equal(token_bytes(&deepseek, 8, QUIRE_CACHE_DTYPE_AUTO), 61 * 576 * 2);
}

static void weights_take_what_they_are_stored_in(void **state)
{
    (void)state;
    shape s = must_find("llama-3.1-8b");
    shape_size bf16 = shape_measure(&s);
    s.weights = SHAPE_FP8;
    shape_size fp8 = shape_measure(&s);
    s.weights = SHAPE_INT4;
    shape_size int4 = shape_measure(&s);
    assert_true(bf16.weight_bytes == 2 * bf16.total_params);
    assert_true(fp8.weight_bytes == bf16.weight_bytes - bf16.dense_params);
    assert_true(int4.weight_bytes < fp8.weight_bytes && int4.weight_bytes > fp8.weight_bytes / 2);
    s = must_find("gpt-oss-20b"); /* 13.8 GB on disk */
    double bytes = (double)shape_measure(&s).weight_bytes;
    assert_true(bytes > 13.3e9 && bytes < 14.0e9);
}

static void names_are_found_in_other_spellings(void **state)
{
    shape s;
    (void)state;
    assert_string_equal(must_find("meta-llama/Llama-3.1-8B-Instruct").name, "llama-3.1-8b");
    assert_string_equal(must_find("llama3-8b").name, "llama-3-8b");
    assert_string_equal(must_find("Qwen/Qwen3-0.6B").name, "qwen3-0.6b");
    assert_string_equal(must_find("google/gemma-3-27b-it").name, "gemma-3-27b");
    assert_int_equal(shape_find("lama-3.1-8b", &s), -1);
    assert_non_null(strstr(failure(), "did you mean llama-3.1-8b?"));
    assert_int_equal(shape_find("", &s), -1);
}

/* ---- config.json --------------------------------------------------------- */

static int read_text(const char *text, shape *s)
{
    char path[] = "/tmp/quire-shape-XXXXXX";
    int number = mkstemp(path);
    assert_true(number >= 0);
    FILE *file = fdopen(number, "w");
    fputs(text, file);
    fclose(file);
    int status = shape_find(path, s);
    unlink(path);
    return status;
}

static void same_as_preset(const char *text, const char *name)
{
    shape s;
    shape preset = must_find(name);
    if (read_text(text, &s) != 0)
        fail_msg("%s", failure());
    shape_size a = shape_measure(&s);
    shape_size b = shape_measure(&preset);
    assert_true(a.total_params == b.total_params);
    assert_true(a.active_params == b.active_params);
    assert_true(a.weight_bytes == b.weight_bytes);
    assert_int_equal(s.max_model_len, preset.max_model_len);
    assert_true(token_bytes(&s, 1, QUIRE_CACHE_DTYPE_AUTO) ==
                token_bytes(&preset, 1, QUIRE_CACHE_DTYPE_AUTO));
}

static void configs_come_to_their_presets(void **state)
{
    (void)state;
    same_as_preset(
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 32, \"hidden_size\": 4096,"
        "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 128256,"
        "\"intermediate_size\": 14336, \"max_position_embeddings\": 131072,"
        "\"tie_word_embeddings\": false, \"sliding_window\": null, \"unknown\": []}",
        "llama-3.1-8b");
    same_as_preset("{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 48,"
                   "\"hidden_size\": 2048, \"num_attention_heads\": 32, \"num_key_value_heads\": 4,"
                   "\"head_dim\": 128, \"intermediate_size\": 6144, \"moe_intermediate_size\": 768,"
                   "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"vocab_size\": 151936,"
                   "\"max_position_embeddings\": 40960, \"mlp_only_layers\": [],"
                   "\"decoder_sparse_step\": 1, \"sliding_window\": null}",
                   "qwen3-30b-a3b");
    same_as_preset("{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 61,"
                   "\"hidden_size\": 7168, \"num_attention_heads\": 128, \"num_key_value_heads\": "
                   "128, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128,"
                   "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"intermediate_size\": 18432,"
                   "\"moe_intermediate_size\": 2048, \"n_routed_experts\": 256,"
                   "\"num_experts_per_tok\": 8, \"n_shared_experts\": 1,"
                   "\"first_k_dense_replace\": 3, \"vocab_size\": 129280,"
                   "\"max_position_embeddings\": 163840,"
                   "\"quantization_config\": {\"quant_method\": \"fp8\"}}",
                   "deepseek-v3");
    same_as_preset("{\"model_type\": \"gpt_oss\", \"num_hidden_layers\": 24, \"hidden_size\": 2880,"
                   "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"head_dim\": 64,"
                   "\"intermediate_size\": 2880, \"num_local_experts\": 32,"
                   "\"num_experts_per_tok\": 4, \"vocab_size\": 201088, \"sliding_window\": 128,"
                   "\"max_position_embeddings\": 131072,"
                   "\"quantization_config\": {\"quant_method\": \"mxfp4\"}}",
                   "gpt-oss-20b");
}

static void windows_are_read(void **state)
{
    shape s;
    quire_layer_spec layers[SHAPE_MAX_LAYERS];
    uint32_t num_layers;
    uint32_t windows = 0;
    (void)state;
    assert_int_equal(
        read_text("{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\","
                  "\"num_hidden_layers\": 34, \"hidden_size\": 2560, \"intermediate_size\": 10240,"
                  "\"sliding_window\": 1024}}",
                  &s),
        0);
    assert_true(shape_measure(&s).total_params ==
                shape_measure(&(shape){.model_type = "gemma3_text",
                                       .num_layers = 34,
                                       .hidden = 2560,
                                       .num_heads = 8,
                                       .num_kv_heads = 4,
                                       .head_dim = 256,
                                       .ffn = 10240,
                                       .vocab = 262208,
                                       .is_tied = true})
                    .total_params);
    assert_int_equal(shape_layers(&s, &(shape_layers_params){0}, layers, &num_layers), QUIRE_OK);
    for (uint32_t i = 0; i < num_layers; i++)
        windows += layers[i].kind == QUIRE_LAYER_SLIDING_WINDOW;
    assert_int_equal(windows, 29); /* of 34, every sixth is full */
    assert_int_equal(
        read_text("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 4, \"hidden_size\": 64,"
                  "\"num_attention_heads\": 4, \"vocab_size\": 100, \"intermediate_size\": 128,"
                  "\"max_position_embeddings\": 512, \"sliding_window\": 128,"
                  "\"use_sliding_window\": false}",
                  &s),
        0);
    assert_int_equal(s.window, 0);
}

static void bad_configs_are_sentences(void **state)
{
    static const struct {
        const char *text;
        const char *sentence;
    } cases[] = {
        {"", ":1: "},
        {"[]", "field \"model_type\" is missing"},
        {"{\"model_type\": \"jamba\"}", "field \"model_type\" names a model"},
        {"{\"model_type\": \"llama\"}", "field \"num_hidden_layers\" is missing or 0"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": -3}", "\"num_hidden_layers\" is no"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": \"x\"}",
         "\"num_hidden_layers\" is no"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1e9}", "\"num_hidden_layers\" is no"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 100000, \"hidden_size\": 64,"
         "\"num_attention_heads\": 4, \"vocab_size\": 100, \"intermediate_size\": 128,"
         "\"max_position_embeddings\": 512}",
         "layers (expected 1..256)"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64,"
         "\"num_attention_heads\": 4, \"vocab_size\": 100, \"max_position_embeddings\": 512}",
         "width of the feed-forward part"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64,"
         "\"num_attention_heads\": 4, \"vocab_size\": 100, \"intermediate_size\": 128,"
         "\"max_position_embeddings\": 512, \"quantization_config\": {\"quant_method\": \"x\"}}",
         "\"quantization_config\" has an unknown quant_method"},
    };
    shape s;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(read_text(cases[i].text, &s), -1);
        if (!strstr(failure(), cases[i].sentence))
            fail_msg("%s: %s", cases[i].text, failure());
    }
    assert_int_equal(shape_find("no-such-folder/config.json", &s), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_are_those_published),
        cmocka_unit_test(every_preset_is_sound),
        cmocka_unit_test(kv_bytes_follow_heads_and_workers),
        cmocka_unit_test(weights_take_what_they_are_stored_in),
        cmocka_unit_test(names_are_found_in_other_spellings),
        cmocka_unit_test(configs_come_to_their_presets),
        cmocka_unit_test(windows_are_read),
        cmocka_unit_test(bad_configs_are_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* plan/test_layout.c - plans of vLLM 0.32: layouts, pages that are padded or packed, the null
 * block, and what is refused. The recordings of tests/parity/data/0.32 have random ones. */
#include "plan/plan_kit.h"

#include <time.h>

#include <quire/model.h>

static plan_kit kit;

static void start(const char *letters)
{
    kit_init(&kit, letters);
    kit.params.profile = QUIRE_PROFILE_VLLM_0_32;
}

static quire_plan_info info_of(const quire_plan *plan)
{
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    assert_int_equal(quire_plan_get_info(plan, &info), QUIRE_OK);
    return info;
}

static quire_plan_share share_of(const quire_plan *plan)
{
    quire_plan_share share = QUIRE_PLAN_SHARE_INIT;
    assert_int_equal(quire_plan_get_worker(plan, 0, &share), QUIRE_OK);
    return share;
}

static quire_layer_spec layer_as_planned(const quire_plan *plan, uint32_t layer)
{
    quire_layer_spec spec = {0};
    assert_int_equal(quire_plan_get_layer(plan, layer, &spec), QUIRE_OK);
    return spec;
}

static void check_place(const quire_plan *plan, uint32_t tensor, uint64_t offset,
                        uint64_t layer_stride, uint64_t block_stride)
{
    quire_plan_placement place = QUIRE_PLAN_PLACEMENT_INIT;
    assert_int_equal(quire_plan_get_placement(plan, 0, tensor, &place), QUIRE_OK);
    assert_int_equal(place.offset_bytes, offset);
    assert_int_equal(place.layer_stride, layer_stride);
    assert_int_equal(place.block_stride, block_stride);
}

static void check_tensor(const quire_plan *plan, uint32_t number, uint64_t bytes, uint32_t first,
                         uint32_t num_layers)
{
    quire_plan_tensor tensor = {0};
    assert_int_equal(quire_plan_get_tensor(plan, 0, number, &tensor), QUIRE_OK);
    assert_int_equal(tensor.bytes, bytes);
    assert_int_equal(tensor.num_layers, num_layers);
    assert_int_equal(tensor.layers[0], first);
}

/* ---- memory ------------------------------------------------------------------- */

static void null_block_counts(void **state)
{
    (void)state;
    const uint64_t block = 2 * KIT_PAGE;
    start("ff");
    kit.workers[0].memory_bytes = 256 * block; /* 4096 tokens, and no null block */
    kit_refused(&kit, QUIRE_E_MEMORY_LIMIT);
    assert_int_equal(kit.shortage.needed_bytes, 256 * block);
    assert_int_equal(kit.shortage.memory_bytes, 255 * block);
    assert_int_equal(kit.shortage.fitting_max_len, 4080);
    kit.params.auto_fit = QUIRE_ON;
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).max_model_len, 4080);
    quire_plan_destroy(plan);
    kit.params.auto_fit = QUIRE_OFF;
    kit.workers[0].memory_bytes += block;
    plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).num_blocks, 257);
    assert_int_equal(info_of(plan).num_tokens, 4112); /* of 257/256 requests */
    assert_int_equal(share_of(plan).used_bytes, 257 * block);
    quire_plan_destroy(plan);
}

static void given_blocks_are_checked(void **state)
{
    (void)state;
    start("ff");
    kit.workers[0].memory_bytes = 1;
    kit.params.num_blocks_override = 256;
    kit_refused(&kit, QUIRE_E_MEMORY_LIMIT);
    kit.params.num_blocks_override = 257;
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).num_blocks, 257);
    quire_plan_destroy(plan);
    kit.params.profile = QUIRE_PROFILE_VLLM_0_20; /* which checks the memory alone */
    kit.params.num_blocks_override = 2;
    kit.workers[0].memory_bytes = UINT64_C(1) << 30;
    quire_plan_destroy(kit_plan(&kit));
}

static void windows_hold_what_is_in_flight(void **state)
{
    (void)state;
    start("w");
    kit.params.max_num_batched_tokens = 256;
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(share_of(plan).needed_bytes, 25 * KIT_PAGE); /* cdiv(127 + 256, 16) + 1 */
    quire_plan_destroy(plan);
    kit.params.max_in_flight_tokens = 512;
    kit.params.num_prefill_lookahead = 3;
    plan = kit_plan(&kit);
    assert_int_equal(share_of(plan).needed_bytes, 42 * KIT_PAGE); /* cdiv(127 + 2 + 512, 16) + 1 */
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    assert_int_equal(quire_plan_cache_config(plan, &config), QUIRE_OK);
    assert_int_equal(config.max_in_flight_tokens, 512);
    assert_int_equal(config.num_prefill_lookahead, 3);
    quire_plan_destroy(plan);
}

/* ---- pages -------------------------------------------------------------------- */

static void pages_are_padded(void **state)
{
    (void)state;
    start("fwm");
    kit.layers[1].num_kv_heads = 3; /* 24576 bytes do not divide 65536 */
    kit.layers[2].page_size_padded = 0;
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, "0 1 2");
    assert_int_equal(layer_as_planned(plan, 1).page_size_padded, KIT_PAGE);
    assert_int_equal(layer_as_planned(plan, 1).block_size, 16);
    assert_int_equal(layer_as_planned(plan, 2).page_size_padded, KIT_PAGE);
    quire_plan_destroy(plan);
    kit.layers[1].num_kv_heads = 4; /* half the page: twice the tokens */
    plan = kit_plan(&kit);
    assert_int_equal(layer_as_planned(plan, 1).page_size_padded, 0);
    assert_int_equal(layer_as_planned(plan, 1).block_size, 32);
    quire_plan_destroy(plan);
}

static void windows_beside_latent_layers_keep_all(void **state)
{
    (void)state;
    start("lw");
    kit.layers[1].num_kv_heads = 1;
    kit.layers[1].head_size = 64; /* a page that the latent page is no multiple of */
    kit.layers[1].block_size = 16;
    kit.layers[0].head_size = 1000;
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).num_groups, 2); /* padded: the latent page is the largest */
    quire_plan_destroy(plan);
    kit.layers[1].head_size = 640;
    plan = kit_plan(&kit);
    kit_check_groups(plan, "0,1");
    assert_int_equal(layer_as_planned(plan, 1).kind, QUIRE_LAYER_FULL);
    assert_int_equal(layer_as_planned(plan, 1).sliding_window, 128);
    quire_plan_destroy(plan);
    kit.layers[1].block_size = 32;
    plan = kit_plan(&kit); /* the block size of full layers */
    assert_int_equal(layer_as_planned(plan, 1).block_size, 16);
    quire_plan_destroy(plan);
}

static void buckets_hold_what_merges(void **state)
{
    (void)state;
    start("fwffw");
    kit.layers[2].sliding_window = 99; /* a full layer that says so merges with those that do not */
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, "0,2 3 1,4");
    quire_plan_destroy(plan);
    kit.params.profile = QUIRE_PROFILE_VLLM_0_20;
    plan = kit_plan(&kit); /* three kinds; the rarest has one layer */
    assert_int_equal(info_of(plan).num_groups, 5);
    quire_plan_destroy(plan);
}

static void hidden_states_have_their_group(void **state)
{
    (void)state;
    start("fwf");
    kit.layers[2] = (quire_layer_spec){.kind = QUIRE_LAYER_HIDDEN_STATE,
                                       .block_size = 16,
                                       .num_kv_heads = 3,
                                       .head_size = 4096,
                                       .dtype = QUIRE_DTYPE_BFLOAT16};
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, "0 1 2");
    assert_int_equal(layer_as_planned(plan, 2).block_size, 2); /* 24576 bytes for each token */
    assert_int_equal(layer_as_planned(plan, 2).page_size_padded, KIT_PAGE);
    assert_int_equal(info_of(plan).hash_block_size, 2);
    quire_plan_destroy(plan);
    kit.layers[2].num_kv_heads = 9; /* 73728 bytes: all blocks become twice as large */
    plan = kit_plan(&kit);
    assert_int_equal(layer_as_planned(plan, 0).block_size, 32);
    assert_int_equal(layer_as_planned(plan, 2).block_size, 1);
    quire_plan_destroy(plan);
}

/* The blocks of hidden states divide those of the others: the largest that fits the page, found
 * quickly also where the block size is a large prime. */
static void hidden_blocks_divide_the_others(void **state)
{
    (void)state;
    static const struct {
        uint32_t block_size;
        uint32_t head_size;
        uint32_t hidden_block_size;
    } CASES[] = {{48, 4096, 24}, /* so many tokens fit the page */
                 {48, 4480, 16}, /* 21 */
                 {48, 2048, 48},  {48, 30000, 3},
                 {48, 200000, 1}, {16 * 134217689, 4480, 4 * 134217689}};
    for (size_t i = 0; i < COUNT(CASES); i++) {
        start("ff");
        kit.layers[0].block_size = CASES[i].block_size;
        kit.layers[1] = (quire_layer_spec){.kind = QUIRE_LAYER_HIDDEN_STATE,
                                           .block_size = 16,
                                           .num_kv_heads = 1,
                                           .head_size = CASES[i].head_size,
                                           .dtype = QUIRE_DTYPE_BFLOAT16};
        kit.workers[0].memory_bytes = UINT64_C(1) << (CASES[i].block_size < 4096 ? 36 : 55);
        clock_t begin = clock();
        quire_plan *plan = kit_plan(&kit);
        assert_true(clock() - begin < CLOCKS_PER_SEC / 2);
        assert_int_equal(layer_as_planned(plan, 1).block_size, CASES[i].hidden_block_size);
        quire_plan_destroy(plan);
    }
}

static void rings_do_not_count_for_hashes(void **state)
{
    (void)state;
    start("fw");
    kit.layers[1].kind = QUIRE_LAYER_CIRCULAR_BUFFER;
    kit.layers[1].block_size = 4;
    kit.layers[1].num_kv_heads = 32;
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).hash_block_size, 16);
    assert_int_equal(info_of(plan).block_size, 16);
    assert_int_equal(share_of(plan).needed_bytes, 257 * KIT_PAGE); /* one block for the ring */
    quire_plan_destroy(plan);
}

/* ---- layouts ------------------------------------------------------------------ */

static void layouts_place_layers(void **state)
{
    (void)state;
    const uint64_t cell = KIT_PAGE / 8; /* one head of a page */
    start("ff");
    kit.params.num_blocks_override = 300;
    quire_plan *plan = kit_plan(&kit);
    check_tensor(plan, 0, 600 * KIT_PAGE, 0, 2);
    check_place(plan, 0, 0, 300 * KIT_PAGE, KIT_PAGE);
    quire_plan_destroy(plan);
    kit.params.kv_layout = QUIRE_KV_LAYOUT_BLHNC;
    plan = kit_plan(&kit);
    check_place(plan, 0, 0, KIT_PAGE, 2 * KIT_PAGE);
    quire_plan_destroy(plan);
    kit.params.kv_layout = QUIRE_KV_LAYOUT_BHLNC;
    plan = kit_plan(&kit);
    check_place(plan, 0, 0, cell, 2 * KIT_PAGE);
    quire_plan_destroy(plan);
    kit.params.kv_layout = QUIRE_KV_LAYOUT_LHBNC;
    plan = kit_plan(&kit);
    check_place(plan, 0, 0, 300 * KIT_PAGE, cell);
    quire_plan_placement place = QUIRE_PLAN_PLACEMENT_INIT;
    assert_int_equal(quire_plan_get_placement(plan, 0, 1, &place), QUIRE_E_RANGE);
    assert_int_equal(quire_plan_get_placement(plan, 1, 0, &place), QUIRE_E_RANGE);
    assert_int_equal(quire_plan_get_placement(plan, 0, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_get_placement(NULL, 0, 0, &place), QUIRE_E_ARGUMENT);
    quire_plan_destroy(plan);
    kit.params.profile = QUIRE_PROFILE_VLLM_0_20;
    kit.params.kv_layout = 0;
    plan = kit_plan(&kit); /* each tensor is an allocation */
    check_place(plan, 1, 0, 0, KIT_PAGE);
    quire_plan_destroy(plan);
}

/* Three repeats of a large and a small full layer, and five windows. */
static void pages_lie_side_by_side(void **state)
{
    (void)state;
    start("fffffffwwww");
    for (uint32_t i = 1; i < 6; i += 2)
        kit.layers[i].num_kv_heads = 1;
    kit.layers[6] = kit.layers[7]; /* a window */
    kit.params.kv_layout = QUIRE_KV_LAYOUT_BLHNC;
    quire_plan *plan = kit_plan(&kit);
    const uint64_t block = 3 * KIT_PAGE + 3 * KIT_PAGE / 8;
    kit_check_groups(plan, "0,1,2,3,4,5 6,8,10 7,9"); /* 3 repeats in a group, at most */
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    assert_int_equal(quire_plan_get_group(plan, 0, &group), QUIRE_OK);
    assert_int_equal(group.layers_differ, 1);
    assert_int_equal(group.page_bytes, block);
    check_place(plan, 0, 0, KIT_PAGE, block);
    check_place(plan, 1, 3 * KIT_PAGE, KIT_PAGE / 8, block);
    check_place(plan, 2, 0, KIT_PAGE, block);
    quire_plan_destroy(plan);
    kit.params.kv_layout = QUIRE_KV_LAYOUT_BHLNC; /* pages are not runs of bytes there */
    kit_refused(&kit, QUIRE_E_MIXED);
    assert_non_null(strstr(quire_refusal(), "kv_layout BHLNC"));
    kit.params.kv_layout = QUIRE_KV_LAYOUT_LBNHC;
    plan = kit_plan(&kit); /* pages become one size */
    assert_int_equal(layer_as_planned(plan, 1).block_size, 128);
    quire_plan_destroy(plan);
}

static void layouts_that_cannot_pad_are_refused(void **state)
{
    (void)state;
    start("ff");
    kit.layers[0].page_size_padded = kit.layers[1].page_size_padded = 2 * KIT_PAGE;
    kit.params.kv_layout = QUIRE_KV_LAYOUT_LHBNC;
    kit_refused(&kit, QUIRE_E_MIXED);
    assert_non_null(strstr(quire_refusal(), "padded pages"));
    kit.layers[0].num_kv_heads = kit.layers[1].num_kv_heads = 1;
    quire_plan_destroy(kit_plan(&kit));
}

/* ---- drafts, ranks, hashes ---------------------------------------------------- */

static void drafts_of_mtp_mark_their_group(void **state)
{
    (void)state;
    start("wffw");
    kit.params.use_eagle = QUIRE_ON;
    quire_plan *plan = kit_plan(&kit);
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    assert_int_equal(quire_plan_get_group(plan, 0, &group), QUIRE_OK);
    assert_int_equal(group.is_eagle, 0);
    quire_plan_destroy(plan);
    kit.params.use_mtp = QUIRE_ON;
    plan = kit_plan(&kit);
    for (uint32_t g = 0; g < 2; g++) {
        assert_int_equal(quire_plan_get_group(plan, g, &group), QUIRE_OK);
        assert_int_equal(group.is_eagle, g == 0); /* the windows: the last layer is one */
    }
    quire_plan_destroy(plan);
}

static void ranks_share_attention_alone(void **state)
{
    (void)state;
    start("fm");
    kit.layers[1].block_size = 64;
    kit.layers[1].mamba_mode = QUIRE_MAMBA_MODE_ALIGN;
    kit.params.dcp_world_size = 4;
    kit.params.pcp_world_size = 3; /* does not count */
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).block_size, 64);
    assert_int_equal(info_of(plan).hash_block_size, 64);
    assert_int_equal(share_of(plan).needed_bytes, (64 + 2) * KIT_PAGE);
    quire_plan_destroy(plan);
    kit.params.hash_block_size = 48;
    kit_refused(&kit, QUIRE_E_CONFIG);
    start("fw");
    kit.params.dcp_world_size = 2;
    kit_refused(&kit, QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "dcp_world_size 2"));
}

static void one_group_has_one_hash_size(void **state)
{
    (void)state;
    start("ff");
    kit.params.hash_block_size = 8;
    kit_refused(&kit, QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "hash_block_size 8 (expected 16"));
    kit.params.hash_block_size = 16;
    quire_plan_destroy(kit_plan(&kit));
    kit.params.hash_block_size = 8;
    kit.params.enable_caching = QUIRE_OFF; /* not used */
    quire_plan_destroy(kit_plan(&kit));
}

/* ---- refusals ------------------------------------------------------------------ */

static void refused_layer(quire_layer_spec spec, const char *reason)
{
    start("f");
    kit.layers[0] = spec;
    kit_refused(&kit, QUIRE_E_CONFIG);
    if (strstr(quire_refusal(), reason) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", reason, quire_refusal());
}

static void old_layers_are_refused(void **state)
{
    (void)state;
    start("fm");
    quire_layer_spec full = kit.layers[0];
    quire_layer_spec mamba = kit.layers[1];
    full.kind = QUIRE_LAYER_SINK_FULL;
    full.sink_len = 16;
    refused_layer(full, "layers[0]: invalid kind 4");
    full.kind = QUIRE_LAYER_TQ_FULL;
    refused_layer(full, "layers[0]: invalid kind 2");
    mamba.mamba_mode = QUIRE_MAMBA_MODE_ALL;
    refused_layer(mamba, "layers[0]: invalid mamba_mode 1");
    full.kind = QUIRE_LAYER_FULL;
    full.kv_quant = QUIRE_KV_QUANT_NVFP4;
    full.head_size_v = 64;
    refused_layer(full, "layers[0]: invalid head_size_v 64");
    full.kv_quant = QUIRE_KV_QUANT_NONE;
    full.page_size_padded = 5;
    refused_layer(full, "layers[0]: invalid page_size_padded 5");
    start("fs"); /* hybrid off with latent windows: vLLM fails */
    kit.params.hybrid = QUIRE_OFF;
    kit_refused(&kit, QUIRE_E_MIXED);
}

static void other_profiles_have_no_layouts(void **state)
{
    (void)state;
    kit_init(&kit, "ff");
    kit.params.kv_layout = QUIRE_KV_LAYOUT_LBNHC;
    kit_refused(&kit, QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "kv_layout"));
    kit.params.kv_layout = 0;
    kit.params.max_in_flight_tokens = 1;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit.params.max_in_flight_tokens = 0;
    kit.params.num_prefill_lookahead = 1;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit.params.num_prefill_lookahead = 0;
    kit.params.use_mtp = QUIRE_ON;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit.params.use_mtp = 0;
    kit.params.profile = (quire_profile)3;
    kit_refused(&kit, QUIRE_E_CONFIG);
}

/* ---- models -------------------------------------------------------------------- */

static quire_layer_spec model_layers[64];

static int layers_of(const quire_model_params *p)
{
    uint32_t count = 0;
    return quire_model_layers(p, model_layers, 64, &count);
}

static void models_of_the_release(void **state)
{
    (void)state;
    quire_model_params p = QUIRE_MODEL_PARAMS_INIT;
    p.profile = QUIRE_PROFILE_VLLM_0_32;
    p.model_type = "gpt_oss";
    p.num_hidden_layers = 2;
    p.hidden_size = 2880;
    p.num_attention_heads = 64;
    p.head_dim = 64;
    p.sliding_window = 128;
    p.max_position_embeddings = 4096;
    p.block_size = 24;
    assert_int_equal(layers_of(&p), QUIRE_OK);
    assert_int_equal(model_layers[0].block_size, 16); /* a window: what the kernel takes whole */
    assert_int_equal(model_layers[1].block_size, 24);
    p.block_size = 8;
    assert_int_equal(layers_of(&p), QUIRE_OK);
    assert_int_equal(model_layers[0].block_size, 16);
    p.profile = QUIRE_PROFILE_VLLM_0_20;
    assert_int_equal(layers_of(&p), QUIRE_OK);
    assert_int_equal(model_layers[0].block_size, 8);
    p.profile = QUIRE_PROFILE_VLLM_0_32;
    p.mamba_mode = QUIRE_MAMBA_MODE_ALL;
    assert_int_equal(layers_of(&p), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "mamba_mode 1"));
    p.mamba_mode = QUIRE_MAMBA_MODE_ALIGN;
    p.model_type = "nemotron_h";
    assert_int_equal(layers_of(&p), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "checkpoints"));
    p.model_type = "bamba";
    assert_int_equal(layers_of(&p), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "bamba"));
    p.profile = (quire_profile)3;
    assert_int_equal(layers_of(&p), QUIRE_E_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_block_counts),
        cmocka_unit_test(given_blocks_are_checked),
        cmocka_unit_test(windows_hold_what_is_in_flight),
        cmocka_unit_test(pages_are_padded),
        cmocka_unit_test(windows_beside_latent_layers_keep_all),
        cmocka_unit_test(buckets_hold_what_merges),
        cmocka_unit_test(hidden_states_have_their_group),
        cmocka_unit_test(hidden_blocks_divide_the_others),
        cmocka_unit_test(rings_do_not_count_for_hashes),
        cmocka_unit_test(layouts_place_layers),
        cmocka_unit_test(pages_lie_side_by_side),
        cmocka_unit_test(layouts_that_cannot_pad_are_refused),
        cmocka_unit_test(drafts_of_mtp_mark_their_group),
        cmocka_unit_test(ranks_share_attention_alone),
        cmocka_unit_test(one_group_has_one_hash_size),
        cmocka_unit_test(old_layers_are_refused),
        cmocka_unit_test(other_profiles_have_no_layouts),
        cmocka_unit_test(models_of_the_release),
    };
    return cmocka_run_group_tests_name("plan_layout", tests, NULL, NULL);
}

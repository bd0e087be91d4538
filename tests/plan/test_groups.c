/* plan/test_groups.c - which layers share block tables and memory. The recordings of
 * tests/parity compare many more mixes with vLLM; here are those that one can follow by eye. */
#include "plan/plan_kit.h"

static void check_model(const char *letters, const char *groups, const char *tensors)
{
    plan_kit kit;
    kit_init(&kit, letters);
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, groups);
    kit_check_tensors(plan, 0, tensors);
    quire_plan_destroy(plan);
}

static void one_kind_is_one_group(void **state)
{
    (void)state;
    check_model("fff", "0,1,2", "0 1 2");
    check_model("ww", "0,1", "0 1");
    check_model("m", "0", "0");
    check_model("", "", "");
}

static void kinds_are_split_into_groups_of_equal_length(void **state)
{
    (void)state;
    check_model("fwwfww", "0,3 1,4 2,5", "0,1,2 3,4,5");
    check_model("wfwf", "0,2 1,3", "0,1 2,3");
    check_model("fwvfwv", "0,3 1,4 2,5", "0,1,2 3,4,5");
    check_model("mmmf", "0 1 2 3", "0,1,2,3");
    check_model("fxfx", "0,2 1,3", "0,1 2,3");
}

/* 3 window layers on 2 full ones are less than half more: groups of 3, one place is padding. */
static void a_small_difference_is_padded(void **state)
{
    (void)state;
    check_model("ffffwwwww", "0,1,2,3 4,5,6,7,8", "0,4 1,5 2,6 3,7 8");
    check_model("ffwww", "0,1 2,4 3", "0,2,3 1,4"); /* half more: groups of 2 */
}

static void pages_of_their_own_in_one_group(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "fff");
    kit.layers[1].num_kv_heads = 4;
    quire_plan *plan = kit_plan(&kit);
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    quire_plan_tensor tensor;
    kit_check_groups(plan, "0,1,2");
    kit_check_tensors(plan, 0, "0 1 2");
    assert_int_equal(quire_plan_get_group(plan, 0, &group), QUIRE_OK);
    assert_int_equal(group.layers_differ, 1);
    assert_int_equal(group.page_bytes, 2 * KIT_PAGE + KIT_PAGE / 2);
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    assert_int_equal(quire_plan_get_info(plan, &info), QUIRE_OK);
    assert_int_equal(quire_plan_get_tensor(plan, 0, 1, &tensor), QUIRE_OK);
    assert_int_equal(tensor.bytes, (uint64_t)info.num_blocks * KIT_PAGE / 2);
    quire_plan_destroy(plan);
}

/* A layer with a smaller page gets more tokens in a block, until pages are of one size. */
static void smaller_pages_get_larger_blocks(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "fw");
    kit.layers[1].num_kv_heads = 2;
    quire_plan *plan = kit_plan(&kit);
    quire_layer_spec spec;
    assert_int_equal(quire_plan_get_layer(plan, 1, &spec), QUIRE_OK);
    assert_int_equal(spec.block_size, 64);
    assert_int_equal(quire_layer_page_bytes(&spec), KIT_PAGE);
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    assert_int_equal(quire_plan_get_info(plan, &info), QUIRE_OK);
    assert_int_equal(info.block_size, 64);
    assert_int_equal(info.hash_block_size, 16);
    quire_plan_destroy(plan);
    kit.layers[1].num_kv_heads = 3;
    kit_refused(&kit, QUIRE_E_MIXED);
    kit_init(&kit, "fm");
    kit.layers[1].page_size_padded = KIT_PAGE / 2; /* a state does not grow with the block */
    kit_refused(&kit, QUIRE_E_MIXED);
}

static void what_cannot_be_one_model_is_refused(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "ff");
    kit.layers[0].sliding_window = 5;
    kit.layers[1].sliding_window = 6;
    kit_refused(&kit, QUIRE_E_MIXED);
    kit_init(&kit, "sf"); /* latent windows need latent layers beside them */
    kit_refused(&kit, QUIRE_E_MIXED);
    kit_init(&kit, "lsf"); /* and nothing else */
    kit_refused(&kit, QUIRE_E_MIXED);
}

static void encoder_only_layers_keep_nothing(void **state)
{
    (void)state;
    check_model("efefee", "1,3", "1 3");
    check_model("ee", "", "");
}

static void hybrid_off_is_one_group(void **state)
{
    (void)state;
    plan_kit kit;
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    kit_init(&kit, "fwwf");
    kit.params.hybrid = QUIRE_OFF;
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, "0,1,2,3");
    assert_int_equal(quire_plan_get_group(plan, 0, &group), QUIRE_OK);
    assert_int_equal(group.spec.kind, QUIRE_LAYER_FULL);
    assert_int_equal(group.spec.sliding_window, 128);
    quire_plan_destroy(plan);
    kit_init(&kit, "fwv"); /* two windows in one group are too many */
    kit.params.hybrid = QUIRE_OFF;
    kit_refused(&kit, QUIRE_E_MIXED);
    kit_init(&kit, "fm");
    kit.params.hybrid = QUIRE_OFF;
    kit_refused(&kit, QUIRE_E_MIXED);
    kit_init(&kit, "wv");
    kit.params.hybrid = QUIRE_OFF;
    kit_refused(&kit, QUIRE_E_MIXED);
}

/* Latent layers of two page sizes are tuples (0 1) and (2 3); windows share the larger size. */
static void latent_layers_with_windows(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "lilisss");
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, "0,1,2,3 4,5,6");
    kit_check_tensors(plan, 0, "1 0,4 3 2,5 - 6");
    quire_plan_destroy(plan);
    kit_init(&kit, "lissss");
    plan = kit_plan(&kit);
    kit_check_groups(plan, "0,1 2 3 4 5"); /* one tuple each: nothing to pad */
    quire_plan_destroy(plan);
    kit_init(&kit, "is"); /* the window's page is larger than any latent one */
    kit_refused(&kit, QUIRE_E_MIXED);
}

/* Tuples (2 3), (5 4) and (6 7), one in a group each. The scheduler sees a group as the first
 * worker does, which has of the second tuple layer 4 alone. */
static void the_first_worker_speaks_for_a_group(void **state)
{
    (void)state;
    plan_kit kit;
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    kit_init(&kit, "listtsst");
    kit_add_stage(&kit, 0, 5, UINT64_C(1) << 32);
    kit_add_stage(&kit, 5, 8, UINT64_C(1) << 32);
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, "0,1 2,3 5,4 6,7");
    const uint32_t head_sizes[] = {576, 576, 128, 576};
    for (uint32_t g = 0; g < 4; g++) {
        assert_int_equal(quire_plan_get_group(plan, g, &group), QUIRE_OK);
        assert_int_equal(group.spec.head_size, head_sizes[g]);
    }
    quire_plan_destroy(plan);
}

static void the_draft_of_deepseek_v4_marks_its_group(void **state)
{
    (void)state;
    plan_kit kit;
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    kit_init(&kit, "lisss");
    for (uint32_t i = 2; i < 5; i++)
        kit.layers[i].mla_version = QUIRE_MLA_VERSION_DEEPSEEK_V4;
    kit.layers[0].head_size = 2000; /* large enough for the windows' pages */
    for (uint32_t eagle = 0; eagle < 2; eagle++) {
        kit.params.use_eagle = eagle == 1 ? QUIRE_ON : QUIRE_OFF;
        quire_plan *plan = kit_plan(&kit);
        quire_plan_info info = QUIRE_PLAN_INFO_INIT;
        assert_int_equal(quire_plan_get_info(plan, &info), QUIRE_OK);
        for (uint32_t g = 0; g < info.num_groups; g++) {
            assert_int_equal(quire_plan_get_group(plan, g, &group), QUIRE_OK);
            bool has_last = group.layers[group.num_layers - 1] == 4;
            assert_int_equal(group.is_eagle, eagle == 1 && has_last);
        }
        quire_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_kind_is_one_group),
        cmocka_unit_test(kinds_are_split_into_groups_of_equal_length),
        cmocka_unit_test(a_small_difference_is_padded),
        cmocka_unit_test(pages_of_their_own_in_one_group),
        cmocka_unit_test(smaller_pages_get_larger_blocks),
        cmocka_unit_test(what_cannot_be_one_model_is_refused),
        cmocka_unit_test(encoder_only_layers_keep_nothing),
        cmocka_unit_test(hybrid_off_is_one_group),
        cmocka_unit_test(latent_layers_with_windows),
        cmocka_unit_test(the_first_worker_speaks_for_a_group),
        cmocka_unit_test(the_draft_of_deepseek_v4_marks_its_group),
    };
    return cmocka_run_group_tests_name("plan_groups", tests, NULL, NULL);
}

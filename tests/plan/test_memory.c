/* plan/test_memory.c - blocks, lengths and workers: how far memory goes. */
#include "plan/plan.h"
#include "plan/plan_kit.h"

static quire_plan_info info_of(const quire_plan *plan)
{
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    assert_int_equal(quire_plan_get_info(plan, &info), QUIRE_OK);
    return info;
}

static quire_plan_share share_of(const quire_plan *plan, uint32_t worker)
{
    quire_plan_share share = QUIRE_PLAN_SHARE_INIT;
    assert_int_equal(quire_plan_get_worker(plan, worker, &share), QUIRE_OK);
    return share;
}

/* Two layers, 4096 tokens: 256 blocks for one request. */
static void one_request_needs_its_blocks(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "ff");
    const uint64_t needed = UINT64_C(256) * 2 * KIT_PAGE;
    kit.workers[0].memory_bytes = needed;
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).num_blocks, 256);
    assert_int_equal(info_of(plan).num_tokens, 4096);
    assert_int_equal(share_of(plan, 0).needed_bytes, needed);
    assert_int_equal(share_of(plan, 0).used_bytes, needed);
    assert_true(share_of(plan, 0).max_concurrency == 1.0);
    quire_plan_destroy(plan);
    kit.workers[0].memory_bytes = needed - 1;
    kit_refused(&kit, QUIRE_E_MEMORY_LIMIT);
    assert_int_equal(kit.shortage.worker, 0);
    assert_int_equal(kit.shortage.memory_bytes, needed - 1);
    assert_int_equal(kit.shortage.needed_bytes, needed);
    assert_int_equal(kit.shortage.max_model_len, 4096);
    assert_int_equal(kit.shortage.fitting_max_len, 4080);
    kit.params.max_model_len = kit.shortage.fitting_max_len; /* as advised */
    quire_plan_destroy(kit_plan(&kit));
    kit.params.max_model_len++;
    kit.params.shortage = NULL;
    kit_refused(&kit, QUIRE_E_MEMORY_LIMIT);
}

static void auto_fit_lowers_the_length(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "ff");
    kit.params.auto_fit = QUIRE_ON;
    kit.workers[0].memory_bytes = UINT64_C(10) * 2 * KIT_PAGE;
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).max_model_len, 160);
    assert_int_equal(info_of(plan).num_blocks, 10);
    quire_plan_destroy(plan);
    kit.workers[0].memory_bytes = UINT64_C(1) << 40;
    plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).max_model_len, 4096);
    quire_plan_destroy(plan);
    kit.workers[0].memory_bytes = 2 * KIT_PAGE - 1;
    kit_refused(&kit, QUIRE_E_MEMORY_LIMIT);
    assert_int_equal(kit.shortage.fitting_max_len, 0);
    kit.workers[0].memory_bytes = 0;
    kit_refused(&kit, QUIRE_E_MEMORY_LIMIT);
}

static void the_smallest_worker_counts(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "fwwfww");
    kit_add_stage(&kit, 0, 3, UINT64_C(2000) * KIT_PAGE);
    kit_add_stage(&kit, 3, 6, UINT64_C(1234) * KIT_PAGE);
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, "0,3 1,4 2,5");
    kit_check_tensors(plan, 0, "0,1,2");
    kit_check_tensors(plan, 1, "3,4,5");
    assert_int_equal(info_of(plan).num_blocks, 1234);
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(share_of(plan, w).used_bytes, UINT64_C(1234) * KIT_PAGE);
        assert_int_equal(share_of(plan, w).num_layers, 3);
    }
    assert_int_equal(plan->shares[1].parts[2].layers.count, 1);
    assert_int_equal(plan->shares[1].parts[2].layers.ids[0], 5);
    quire_plan_destroy(plan);
    kit.workers[1].memory_bytes = 1000;
    kit_refused(&kit, QUIRE_E_MEMORY_LIMIT);
    assert_int_equal(kit.shortage.worker, 1);
}

static void a_group_may_be_missing_on_a_worker(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "fwfw");
    kit_add_stage(&kit, 0, 1, UINT64_C(1) << 32);
    kit_add_stage(&kit, 1, 4, UINT64_C(1) << 32);
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(plan->shares[0].parts[1].layers.count, 0);
    kit_check_tensors(plan, 0, "0");
    kit_check_tensors(plan, 1, "2,1 3");
    quire_plan_destroy(plan);
}

static void an_override_is_taken_as_it_is(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "ff");
    kit.params.num_blocks_override = 7;
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).num_blocks, 7);
    quire_plan_destroy(plan);
    kit_init(&kit, "");
    kit.params.num_blocks_override = 7; /* the null block is all that there is */
    plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).num_blocks, 1);
    assert_int_equal(info_of(plan).block_size, 16);
    assert_true(share_of(plan, 0).max_concurrency == 0.0);
    quire_plan_destroy(plan);
}

static void more_blocks_than_numbers_are_refused(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "f");
    kit.layers[0].num_kv_heads = kit.layers[0].head_size = kit.layers[0].block_size = 1;
    kit.workers[0].memory_bytes = UINT64_MAX;
    kit_refused(&kit, QUIRE_E_RANGE);
}

static void context_parallelism_divides_the_tokens(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "ff");
    kit.params.dcp_world_size = 2;
    kit.params.pcp_world_size = 2;
    quire_plan *plan = kit_plan(&kit);
    quire_plan_info info = info_of(plan);
    assert_int_equal(share_of(plan, 0).needed_bytes, UINT64_C(64) * 2 * KIT_PAGE);
    assert_int_equal(info.num_tokens, UINT64_C(64) * info.num_blocks);
    assert_int_equal(info.block_size, 64);
    assert_int_equal(info.hash_block_size, 64);
    quire_plan_destroy(plan);
    kit_init(&kit, "ww");
    kit.params.dcp_world_size = 2;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "fm");
    kit.params.pcp_world_size = 2;
    kit_refused(&kit, QUIRE_E_CONFIG);
}

static void block_sizes_for_the_scheduler(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "fw");
    kit.layers[1].block_size = 48;
    kit.layers[1].num_kv_heads = 8;
    kit.layers[1].page_size_padded = 0;
    kit.layers[0].page_size_padded = 3 * KIT_PAGE; /* as large as 48 tokens */
    quire_plan *plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).block_size, 48);
    assert_int_equal(info_of(plan).hash_block_size, 16);
    quire_plan_destroy(plan);
    kit.params.hash_block_size = 8;
    plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).hash_block_size, 8);
    quire_plan_destroy(plan);
    kit.params.hash_block_size = 24;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit.params.enable_caching = QUIRE_OFF; /* nobody hashes: nobody asks */
    plan = kit_plan(&kit);
    assert_int_equal(info_of(plan).hash_block_size, 48);
    quire_plan_destroy(plan);
    kit.params.use_connector = QUIRE_ON;
    kit_refused(&kit, QUIRE_E_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request_needs_its_blocks),
        cmocka_unit_test(auto_fit_lowers_the_length),
        cmocka_unit_test(the_smallest_worker_counts),
        cmocka_unit_test(a_group_may_be_missing_on_a_worker),
        cmocka_unit_test(an_override_is_taken_as_it_is),
        cmocka_unit_test(more_blocks_than_numbers_are_refused),
        cmocka_unit_test(context_parallelism_divides_the_tokens),
        cmocka_unit_test(block_sizes_for_the_scheduler),
    };
    return cmocka_run_group_tests_name("plan_memory", tests, NULL, NULL);
}

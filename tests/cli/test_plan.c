/* test_plan.c - blocks by hand and by the planner, and what `quire plan` prints. */
#include "base/unit.h"
#include "output/failure.h"

#include "commands/commands.h"
#include "model/plan_blocks.h"

#include <jansson.h>

#include <unistd.h>

static shape shape_named(const char *name)
{
    shape s;
    if (shape_find(name, &s) != 0)
        fail_msg("%s", failure());
    return s;
}

static gpu gpu_with(uint64_t memory_bytes)
{
    gpu g;
    assert_true(gpu_find("H100", &g));
    g.memory_bytes = memory_bytes;
    return g;
}

static plan_result plan_for(const shape *s, const gpu *g, const plan_settings *settings)
{
    plan_result result;
    if (plan_num_blocks(s, g, settings, &result, NULL) != 0)
        fail_msg("%s", failure());
    return result;
}

/* Llama 70B, 16 tokens in a block: 64 KiB in a layer, 5.24 MB in all 80; 43 GB for KV cache hold
 * 8,201 of them. */
static void blocks_are_memory_over_bytes(void **state)
{
    (void)state;
    shape s = shape_named("llama-3.1-70b");
    uint64_t reserve = UINT64_C(1) << 30;
    gpu g = gpu_with(UINT64_C(43000000000) + shape_measure(&s).weight_bytes + reserve);
    plan_result r =
        plan_for(&s, &g,
                 &(plan_settings){
                     .gpu_memory_utilization = 1, .reserve_bytes = reserve, .max_model_len = 8192});
    assert_true(r.kv_bytes == UINT64_C(43000000000));
    assert_int_equal(r.block_bytes, 5242880);
    assert_int_equal(r.token_bytes, 327680);
    assert_int_equal(r.num_blocks, 8201);
    assert_int_equal(r.num_tokens, 131216);
    assert_int_equal(r.max_model_len, 8192);
    assert_true(r.used_bytes == 8201 * UINT64_C(5242880));
}

static void workers_share_weights_and_heads(void **state)
{
    (void)state;
    shape s = shape_named("llama-3.1-70b");
    gpu g = gpu_with(UINT64_C(80) << 30);
    plan_result four = plan_for(&s, &g, &(plan_settings){.tp = 4});
    plan_result eight = plan_for(&s, &g, &(plan_settings){.tp = 8});
    assert_int_equal(four.block_bytes, 2 * eight.block_bytes);
    assert_int_equal(four.weight_bytes, shape_measure(&s).weight_bytes / 4);
    assert_true(eight.num_blocks > 2 * four.num_blocks);
    assert_true(eight.reserve_bytes < four.reserve_bytes);
}

/* Block sizes divide the same memory. */
static void block_size_changes_blocks_not_tokens(void **state)
{
    (void)state;
    shape s = shape_named("llama-3.1-8b");
    gpu g = gpu_with(UINT64_C(80) << 30);
    for (uint32_t size = 1; size <= 256; size *= 2) {
        plan_result r = plan_for(&s, &g, &(plan_settings){.block_size = size});
        assert_int_equal(r.block_size, size);
        assert_int_equal(r.num_blocks, r.kv_bytes / (131072 * (uint64_t)size));
        assert_int_equal(r.num_tokens, (uint64_t)r.num_blocks * size);
    }
}

static void blocks_can_be_given(void **state)
{
    (void)state;
    shape s = shape_named("llama-3.1-70b");
    gpu g = gpu_with(UINT64_C(24) << 30); /* the weights alone are 131 GiB */
    plan_result r = plan_for(&s, &g, &(plan_settings){.num_gpu_blocks = 1000});
    assert_int_equal(r.num_blocks, 1000);
    assert_int_equal(r.max_model_len, 16000);
}

static void what_does_not_fit_is_a_sentence(void **state)
{
    plan_result r;
    (void)state;
    shape s = shape_named("llama-3.1-70b");
    gpu g = gpu_with(UINT64_C(80) << 30);
    assert_int_equal(plan_num_blocks(&s, &g, &(plan_settings){0}, &r, NULL), -1);
    assert_non_null(strstr(failure(), "llama-3.1-70b does not fit: 131.4 GiB of weights"));
    assert_int_equal(plan_num_blocks(&s, &g, &(plan_settings){.tp = 3}, &r, NULL), -1);
    assert_non_null(strstr(failure(), "llama-3.1-70b with 16 tokens in a block on 3 GPUs"));
    s = shape_named("llama-3.1-8b");
    g = gpu_with(UINT64_C(24) << 30);
    plan_settings longer = {.max_model_len = 131072};
    assert_int_equal(plan_num_blocks(&s, &g, &longer, &r, NULL), -1);
    assert_non_null(strstr(failure(), "a request of 131072 tokens needs 16.00 GiB"));
    assert_int_equal(plan_num_blocks(&s, &g, &(plan_settings){0}, &r, NULL), 0);
    assert_true(r.max_model_len < 131072 && r.max_model_len > 16384);
    assert_true(r.max_concurrency >= 1);
}

/* ---- the command ---------------------------------------------------------- */

static json_t *plan_json(int argc, char **argv)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int before = dup(1);
    assert_true(before >= 0 && dup2(fileno(file), 1) >= 0);
    int status = command_run(&cmd_plan, argc, argv);
    fflush(stdout);
    assert_true(dup2(before, 1) >= 0);
    close(before);
    assert_int_equal(status, 0);
    rewind(file);
    json_error_t error;
    json_t *root = json_loadf(file, 0, &error);
    fclose(file);
    if (!root)
        fail_msg("%d: %s", error.line, error.text);
    return root;
}

static json_int_t number_of(const json_t *root, const char *key)
{
    assert_true(json_is_integer(json_object_get(root, key)));
    return json_integer_value(json_object_get(root, key));
}

static void command_prints_json(void **state)
{
    char *argv[] = {"plan", "--model", "gemma-3-27b", "--gpu", "H100", "--json"};
    (void)state;
    json_t *root = plan_json(6, argv);
    shape s = shape_named("gemma-3-27b");
    gpu g;
    assert_true(gpu_find("H100", &g));
    plan_result r = plan_for(&s, &g, &(plan_settings){0});
    assert_int_equal(number_of(root, "num_blocks"), r.num_blocks);
    assert_int_equal(number_of(root, "num_groups"), 7);
    assert_int_equal(number_of(root, "block_bytes"), r.block_bytes);
    assert_int_equal(number_of(root, "block_bytes"), 10 * 2 * 16 * 16 * 128 * 2);
    assert_int_equal(json_array_size(json_object_get(root, "block_sizes")), 7);
    json_decref(root);
}

/* vLLM 0.32 counts the null block, and the blocks of windows have a multiple of 16 tokens. */
static void command_plans_by_profile(void **state)
{
    (void)state;
    char *old[] = {"plan", "--model", "gpt-oss-20b", "--block-size", "24", "--json"};
    char *new[] = {"plan", "--model", "gpt-oss-20b", "--block-size",
                   "24",   "--json",  "--profile",   "vllm-0.32"};
    json_t *before = plan_json(6, old);
    json_t *after = plan_json(8, new);
    assert_int_equal(number_of(before, "block_size"), 24);
    assert_int_equal(number_of(after, "block_size"), 48);
    assert_int_equal(number_of(after, "num_groups"), 2);
    json_decref(before);
    json_decref(after);
    shape s = shape_named("llama-3.1-70b");
    gpu g = gpu_with(UINT64_C(24) << 30);
    plan_settings given = {.num_gpu_blocks = 1000, .profile = QUIRE_PROFILE_VLLM_0_32};
    assert_int_equal(plan_for(&s, &g, &given).max_model_len, 15984);
    plan_result r;
    given.kv_layout = QUIRE_KV_LAYOUT_LHBNC;
    given.max_model_len = 16000; /* does not fit beside the null block */
    assert_int_equal(plan_num_blocks(&s, &g, &given, &r, NULL), -1);
    assert_non_null(strstr(failure(), "one of 15984 tokens would fit"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_memory_over_bytes),
        cmocka_unit_test(workers_share_weights_and_heads),
        cmocka_unit_test(block_size_changes_blocks_not_tokens),
        cmocka_unit_test(blocks_can_be_given),
        cmocka_unit_test(what_does_not_fit_is_a_sentence),
        cmocka_unit_test(command_prints_json),
        cmocka_unit_test(command_plans_by_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

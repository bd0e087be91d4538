/* plan/test_random.c - random layers, workers and settings, sensible and not.
 *
 * Whatever is asked, there is an answer; and every plan that is made keeps what a plan promises:
 *
 *      each layer is in one group, and on each worker that has it in one tensor
 *      tensors of a worker take no more than its memory, unless the blocks were given
 *      one request of max_model_len tokens fits
 *      vLLM 0.32: tensors lie in their allocation, and the null block fits too
 *
 *      test_random [SEED]
 */
#include "plan/plan_kit.h"

enum { CASES = 20000 };

static uint64_t seed;

/* Mostly small, sometimes anything. */
static uint32_t odd_number(uint64_t *random)
{
    uint32_t bits = unit_random_below(random, 40);
    return bits >= 32 ? unit_random_below(random, 4)
                      : (uint32_t)(unit_random(random) >> (63 - bits));
}

/* Changes one field of a layer to an odd number. */
static void spoil_layer(uint64_t *random, quire_layer_spec *spec)
{
    uint32_t *const fields[] = {
        &spec->block_size,     &spec->num_kv_heads,      &spec->head_size,
        &spec->head_size_v,    &spec->sliding_window,    &spec->attention_chunk_size,
        &spec->sink_len,       &spec->tq_slot_size,      &spec->alignment,
        &spec->compress_ratio, &spec->states[0].dims[0], &spec->num_speculative_blocks};
    uint32_t which = unit_random_below(random, COUNT(fields) + 4);
    if (which < COUNT(fields))
        *fields[which] = odd_number(random);
    else if (which == COUNT(fields))
        spec->kind = (quire_layer_kind)unit_random_below(random, 15);
    else if (which == COUNT(fields) + 1)
        spec->dtype = (quire_dtype)unit_random_below(random, 11);
    else if (which == COUNT(fields) + 2)
        spec->kv_quant = (quire_kv_quant)unit_random_below(random, 6);
    else
        spec->page_size_padded = (uint64_t)odd_number(random) << unit_random_below(random, 33);
}

static void draw_workers(uint64_t *random, plan_kit *kit)
{
    uint32_t n = kit->params.num_layers;
    uint32_t cut = unit_random_below(random, n + 1);
    uint64_t bytes = unit_random(random) >> unit_random_below(random, 64);
    kit->workers[0].memory_bytes = bytes;
    if (unit_random_below(random, 3) > 0)
        return;
    kit_add_stage(kit, 0, cut, bytes);
    kit_add_stage(kit, cut, n, bytes >> unit_random_below(random, 4));
    if (unit_random_below(random, 20) == 0)
        kit->worker_layers[1][0] = odd_number(random);
}

static void draw_case(uint64_t *random, plan_kit *kit)
{
    const char *const alphabets[] = {"f",   "fw",  "fwv", "fc", "fm",
                                     "wvm", "lis", "lit", "fx", "fwvcmxelist"};
    const char *letters = alphabets[unit_random_below(random, COUNT(alphabets))];
    char text[KIT_MAX_LAYERS + 1] = "";
    uint32_t n = unit_random_below(random, 24);
    for (uint32_t i = 0; i < n; i++)
        text[i] = letters[unit_random_below(random, (uint32_t)strlen(letters))];
    kit_init(kit, text);
    for (uint32_t i = unit_random_below(random, 4) * unit_random_below(random, 2); i > 0 && n > 0;
         i--)
        spoil_layer(random, &kit->layers[unit_random_below(random, n)]);
    kit->params.max_model_len = 1 + unit_random_below(random, 1u << unit_random_below(random, 31));
    kit->params.max_num_batched_tokens = odd_number(random);
    kit->params.auto_fit = unit_random_below(random, 2) == 0 ? QUIRE_ON : QUIRE_OFF;
    kit->params.hybrid = unit_random_below(random, 4) == 0 ? QUIRE_OFF : QUIRE_ON;
    kit->params.num_blocks_override = unit_random_below(random, 8) == 0 ? odd_number(random) : 0;
    kit->params.dcp_world_size =
        unit_random_below(random, 8) == 0 ? unit_random_below(random, 5) : 0;
    kit->params.use_eagle = QUIRE_ON;
    if (unit_random_below(random, 2) == 0) {
        kit->params.profile = QUIRE_PROFILE_VLLM_0_32;
        kit->params.kv_layout = (quire_kv_layout)unit_random_below(random, 7);
        kit->params.max_in_flight_tokens = unit_random_below(random, 2) * odd_number(random);
        kit->params.num_prefill_lookahead = unit_random_below(random, 4);
        kit->params.use_mtp = unit_random_below(random, 2) == 0 ? QUIRE_ON : QUIRE_OFF;
    }
    draw_workers(random, kit);
}

/* ---- what a plan promises ----------------------------------------------------- */

/* The last page of a tensor begins in the allocation. */
static void check_place(const quire_plan *plan, uint32_t worker, uint32_t number,
                        const quire_plan_tensor *tensor)
{
    quire_plan_placement place = QUIRE_PLAN_PLACEMENT_INIT;
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    assert_int_equal(quire_plan_get_info(plan, &info), QUIRE_OK);
    assert_int_equal(quire_plan_get_placement(plan, worker, number, &place), QUIRE_OK);
    assert_true(tensor->num_layers > 0 && place.layer_stride > 0 && place.block_stride > 0);
    assert_true(place.offset_bytes + (tensor->num_layers - 1) * place.layer_stride +
                    (info.num_blocks - 1) * place.block_stride <
                tensor->bytes);
}

static bool has_layer(const plan_kit *kit, uint32_t worker, uint32_t layer)
{
    const quire_plan_worker *w = &kit->workers[worker];
    bool found = w->layers == NULL;
    for (uint32_t i = 0; i < w->num_layers; i++)
        found = found || w->layers[i] == layer;
    return found;
}

static void check_tensors(const quire_plan *plan, const plan_kit *kit, uint32_t worker)
{
    uint32_t seen[KIT_MAX_LAYERS] = {0};
    quire_plan_share share = QUIRE_PLAN_SHARE_INIT;
    uint32_t in_tensors = 0;
    bool by_layout = kit->params.profile == QUIRE_PROFILE_VLLM_0_32;
    assert_int_equal(quire_plan_get_worker(plan, worker, &share), QUIRE_OK);
    for (uint32_t t = 0; t < share.num_tensors; t++) {
        quire_plan_tensor tensor;
        assert_int_equal(quire_plan_get_tensor(plan, worker, t, &tensor), QUIRE_OK);
        if (by_layout && has_layer(kit, worker, tensor.layers[0]))
            check_place(plan, worker, t, &tensor);
        for (uint32_t i = 0; i < tensor.num_layers; i++) {
            assert_int_equal(seen[tensor.layers[i]]++, 0);
            in_tensors++;
        }
    }
    /* vLLM 0.32 also places groups of which the worker has no layer. */
    assert_true(by_layout ? in_tensors >= share.num_layers : in_tensors == share.num_layers);
    if (kit->params.num_blocks_override == 0)
        assert_true(share.used_bytes <= share.memory_bytes);
    if (!by_layout || kit->params.num_blocks_override == 0)
        assert_true(share.needed_bytes <= share.memory_bytes);
}

static void check_plan(const quire_plan *plan, const plan_kit *kit)
{
    uint32_t seen[KIT_MAX_LAYERS] = {0};
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    assert_int_equal(quire_plan_get_info(plan, &info), QUIRE_OK);
    assert_true(info.num_blocks > 0 && info.max_model_len > 0);
    assert_true(info.max_model_len <= kit->params.max_model_len);
    for (uint32_t g = 0; g < info.num_groups; g++) {
        quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
        assert_int_equal(quire_plan_get_group(plan, g, &group), QUIRE_OK);
        assert_true(group.num_layers > 0 && group.page_bytes > 0);
        for (uint32_t i = 0; i < group.num_layers; i++)
            assert_int_equal(seen[group.layers[i]]++, 0);
    }
    for (uint32_t i = 0; i < kit->params.num_layers; i++)
        assert_int_equal(seen[i], kit->layers[i].kind != QUIRE_LAYER_ENCODER_ONLY);
    for (uint32_t w = 0; w < info.num_workers; w++)
        check_tensors(plan, kit, w);
}

static void every_question_has_an_answer(void **state)
{
    (void)state;
    static plan_kit kit;
    uint32_t made = 0;
    uint32_t counts[32] = {0};
    uint64_t random = seed;
    for (uint32_t i = 0; i < CASES; i++) {
        quire_plan *plan = NULL;
        draw_case(&random, &kit);
        int status = quire_plan_create(&kit.params, NULL, &plan);
        assert_true(status <= 0 && status > -32);
        counts[-status]++;
        made += status == QUIRE_OK;
        if (status == QUIRE_OK)
            check_plan(plan, &kit);
        else
            assert_null(plan);
        quire_plan_destroy(plan);
    }
    print_message("%u of %d made, %u mixed, %u too large, %u refused\n", made, CASES,
                  counts[-QUIRE_E_MIXED], counts[-QUIRE_E_MEMORY_LIMIT], counts[-QUIRE_E_CONFIG]);
    assert_true(made > CASES / 20 && counts[-QUIRE_E_MIXED] > 0 && counts[-QUIRE_E_CONFIG] > 0);
    assert_true(counts[-QUIRE_E_MEMORY_LIMIT] > 0);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_question_has_an_answer)};
    return cmocka_run_group_tests_name("plan_random", tests, NULL, NULL);
}

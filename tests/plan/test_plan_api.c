/* plan/test_plan_api.c - the calls of quire/plan.h: what they refuse, memory, and the way from a
 * plan to a cache. */
#include "plan/plan_kit.h"

#include <quire/cache.h>

enum { ROOM = 65536 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];

static void making_refuses_null(void **state)
{
    (void)state;
    plan_kit kit;
    quire_plan *plan = NULL;
    kit_init(&kit, "ff");
    assert_int_equal(quire_plan_bytes(NULL), 0);
    assert_int_equal(quire_plan_create(NULL, NULL, &plan), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_create(&kit.params, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_plan_create(&kit.params, &(quire_allocator){.memory = NULL, .bytes = ROOM}, &plan),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_plan_create(NULL, &(quire_allocator){.memory = memory, .bytes = ROOM}, &plan),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_plan_create(&kit.params, &(quire_allocator){.memory = memory, .bytes = ROOM}, NULL),
        QUIRE_E_ARGUMENT);
    assert_null(plan);
    quire_plan_destroy(NULL);
}

static void making_refuses_bad_memory_unwritten(void **state)
{
    (void)state;
    plan_kit kit;
    quire_plan *plan = NULL;
    kit_init(&kit, "fwfwlis");
    size_t bytes = quire_plan_bytes(&kit.params);
    kit_init(&kit, "fwfw");
    assert_true(quire_plan_bytes(&kit.params) < bytes && bytes < ROOM);
    bytes = quire_plan_bytes(&kit.params);
    memset(memory, 0x77, ROOM);
    assert_int_equal(quire_plan_create(&kit.params,
                                       &(quire_allocator){.memory = memory, .bytes = bytes - 1},
                                       &plan),
                     QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_plan_create(&kit.params,
                                       &(quire_allocator){.memory = memory + 1, .bytes = bytes},
                                       &plan),
                     QUIRE_E_ALIGNMENT);
    for (size_t i = 0; i < ROOM; i++)
        assert_int_equal(memory[i], 0x77);
    assert_int_equal(
        quire_plan_create(&kit.params, &(quire_allocator){.memory = memory, .bytes = bytes}, &plan),
        QUIRE_OK);
    for (size_t i = bytes; i < ROOM; i++)
        assert_int_equal(memory[i], 0x77);
    kit_check_groups(plan, "0,2 1,3");
    quire_plan_destroy(plan);
    quire_plan_destroy(plan); /* the memory is the caller's: a second end is noticed */
}

/* ---- params ----------------------------------------------------------------- */

static void bad_counts_and_switches_are_refused(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "ff");
    kit.params.size = 3;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit.params.num_workers = 0;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit.params.workers = NULL;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit.params.layers = NULL;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit.params.max_model_len = 0;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit.params.hybrid = (quire_switch)3;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit.params.dcp_world_size = kit.params.pcp_world_size = 65536;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "fx");
    kit.params.max_encoder_tokens = 0;
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "fw");
    kit.layers[1].sliding_window = 0;
    kit_refused(&kit, QUIRE_E_CONFIG);
    assert_int_equal(quire_plan_bytes(&kit.params), 0);
}

static void bad_workers_are_refused(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "ff");
    kit.workers[0].num_layers = 2; /* of no list */
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit_add_stage(&kit, 0, 1, 1 << 30); /* layer 1 is nowhere */
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_add_stage(&kit, 1, 3, 1 << 30); /* there is no layer 2 */
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit_add_stage(&kit, 0, 2, 1 << 30);
    kit.worker_layers[0][1] = 0; /* twice */
    kit_refused(&kit, QUIRE_E_CONFIG);
    kit_init(&kit, "ff");
    kit_add_stage(&kit, 0, 2, 1 << 30);
    kit_add_stage(&kit, 2, 2, 1 << 30); /* nothing to do */
    kit_refused(&kit, QUIRE_E_CONFIG);
}

/* A program that was compiled against a shorter struct. */
static void shorter_params_mean_defaults(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "fwwfww");
    kit.params.size = offsetof(quire_plan_params, hash_block_size) / 8 * 8;
    kit.params.enable_caching = (quire_switch)77; /* beyond its end: not read */
    quire_plan *plan = kit_plan(&kit);
    kit_check_groups(plan, "0,3 1,4 2,5");
    quire_plan_destroy(plan);
}

/* ---- looking ---------------------------------------------------------------- */

static void looking_refuses_null_and_far_indices(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "fw");
    quire_plan *plan = kit_plan(&kit);
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    quire_plan_share share = QUIRE_PLAN_SHARE_INIT;
    quire_plan_tensor tensor;
    quire_layer_spec spec;
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    assert_int_equal(quire_plan_get_info(NULL, &info), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_get_info(plan, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_get_group(NULL, 0, &group), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_get_group(plan, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_get_group(plan, 2, &group), QUIRE_E_RANGE);
    assert_int_equal(quire_plan_get_worker(plan, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_get_worker(plan, 1, &share), QUIRE_E_RANGE);
    assert_int_equal(quire_plan_get_tensor(plan, 0, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_get_tensor(plan, 1, 0, &tensor), QUIRE_E_RANGE);
    assert_int_equal(quire_plan_get_layer(plan, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_get_layer(plan, 2, &spec), QUIRE_E_RANGE);
    assert_int_equal(quire_plan_cache_config(plan, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_plan_cache_config(NULL, &config), QUIRE_E_ARGUMENT);
    config.size = 8;
    assert_int_equal(quire_plan_cache_config(plan, &config), QUIRE_E_CONFIG);
    quire_plan_destroy(plan);
}

/* ---- memory ----------------------------------------------------------------- */

typedef struct counter {
    uint32_t calls;
    uint32_t fail_at;
    int64_t held;
} counter;

static void *count_alloc(void *user, size_t bytes, size_t alignment)
{
    counter *c = user;
    if (++c->calls == c->fail_at)
        return NULL;
    c->held += (int64_t)bytes;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void count_free(void *user, void *given, size_t bytes, size_t alignment)
{
    (void)alignment;
    ((counter *)user)->held -= (int64_t)bytes;
    free(given);
}

static void one_allocation_and_none_is_left(void **state)
{
    (void)state;
    plan_kit kit;
    counter c = {0};
    quire_allocator allocator = {.user = &c, .alloc = count_alloc, .free = count_free};
    quire_plan *plan = NULL;
    kit_init(&kit, "fwfwm");
    c.fail_at = 1;
    assert_int_equal(quire_plan_create(&kit.params, &allocator, &plan), QUIRE_E_NOMEM);
    c = (counter){0};
    kit.workers[0].memory_bytes = 1;
    assert_int_equal(quire_plan_create(&kit.params, &allocator, &plan), QUIRE_E_MEMORY_LIMIT);
    assert_true(c.calls == 1 && c.held == 0 && plan == NULL);
    kit.workers[0].memory_bytes = UINT64_C(1) << 36;
    assert_int_equal(quire_plan_create(&kit.params, &allocator, &plan), QUIRE_OK);
    assert_int_equal(c.calls, 2);
    quire_plan_destroy(plan);
    assert_int_equal(c.held, 0);
}

/* ---- to a cache ------------------------------------------------------------- */

static void a_plan_makes_a_cache(void **state)
{
    (void)state;
    plan_kit kit;
    kit_init(&kit, "fwwfww");
    kit.params.max_num_batched_tokens = 512;
    kit.workers[0].memory_bytes = UINT64_C(2000) * KIT_PAGE;
    quire_plan *plan = kit_plan(&kit);
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    config.max_requests = 3;
    assert_int_equal(quire_plan_cache_config(plan, &config), QUIRE_OK);
    assert_int_equal(config.num_blocks, 1000);
    assert_int_equal(config.num_groups, 3);
    assert_int_equal(config.max_model_len, 4096);
    assert_int_equal(config.max_num_batched_tokens, 512);
    assert_int_equal(config.hash_block_size, 16);
    assert_int_equal(config.max_requests, 3); /* not the plan's */
    assert_int_equal(config.groups[0].spec.kind, QUIRE_LAYER_FULL);
    assert_int_equal(config.groups[2].spec.sliding_window, 128);
    quire_cache *cache = NULL;
    assert_int_equal(quire_cache_create(&config, NULL, &cache), QUIRE_OK);
    quire_plan_destroy(plan);     /* the cache has copies */
    unsigned char hashes[6 * 32]; /* any: of the 6 full blocks */
    memset(hashes, 0x77, sizeof hashes);
    quire_cache_request request = {.num_tokens = 100, .hashes = hashes, .num_hashes = 6};
    quire_allocate_params params = {.size = sizeof(quire_allocate_params), .num_new_tokens = 100};
    quire_block_span blocks[3];
    assert_int_equal(quire_cache_allocate_slots(cache, &request, &params, blocks), QUIRE_OK);
    for (uint32_t g = 0; g < 3; g++)
        assert_int_equal(blocks[g].count, 7);
    assert_int_equal(quire_cache_free(cache, &request), QUIRE_OK);
    quire_cache_destroy(cache);
}

/* By default what cannot be cached is not: then the cache takes the config. */
static void caching_is_off_where_it_cannot_be(void **state)
{
    (void)state;
    const char *models[] = {"", "fx", "fw"};
    for (size_t i = 0; i < COUNT(models); i++) {
        plan_kit kit;
        kit_init(&kit, models[i]);
        kit.workers[0].memory_bytes = UINT64_C(300) * KIT_PAGE * 2;
        quire_plan *plan = kit_plan(&kit);
        quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
        quire_cache *cache = NULL;
        config.max_requests = 1;
        assert_int_equal(quire_plan_cache_config(plan, &config), QUIRE_OK);
        assert_int_equal(config.enable_caching, i == 2 ? QUIRE_ON : QUIRE_OFF);
        assert_int_equal(quire_cache_create(&config, NULL, &cache), QUIRE_OK);
        quire_cache_destroy(cache);
        quire_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making_refuses_null),
        cmocka_unit_test(making_refuses_bad_memory_unwritten),
        cmocka_unit_test(bad_counts_and_switches_are_refused),
        cmocka_unit_test(bad_workers_are_refused),
        cmocka_unit_test(shorter_params_mean_defaults),
        cmocka_unit_test(looking_refuses_null_and_far_indices),
        cmocka_unit_test(one_allocation_and_none_is_left),
        cmocka_unit_test(a_plan_makes_a_cache),
        cmocka_unit_test(caching_is_off_where_it_cannot_be),
    };
    return cmocka_run_group_tests_name("plan_api", tests, NULL, NULL);
}

/* sched/test_sched_lookahead.c - what waiting requests will find is evicted last. */
#include "sched/sched_kit.h"

enum { PREFIX = 16 };

static quire_sched_config one_runs(sched_kit *kit, uint32_t lookahead)
{
    quire_sched_config config = kit_config(kit);
    config.max_num_seqs = 1;
    config.lookahead = lookahead;
    return config;
}

static void finish(sched_kit *kit, quire_req req)
{
    assert_int_equal(quire_sched_finish(kit->sched, &req, 1, QUIRE_REQ_FINISHED_STOPPED, NULL),
                     QUIRE_OK);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

static void run_and_finish(sched_kit *kit, const char *id, uint32_t n)
{
    quire_req req = kit_add(kit, id, n);
    kit_run(kit, 1);
    finish(kit, req);
}

/* a's four blocks are the coldest when x comes for eleven; w, behind it, begins as a did. Returns
 * how many tokens w finds. */
static uint32_t found_behind(uint32_t num_blocks, uint32_t lookahead, uint32_t x_tokens,
                             quire_policy policy)
{
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, lookahead);
    config.cache.num_blocks = num_blocks;
    config.policy = policy;
    kit_open(&kit, &config);
    run_and_finish(&kit, "a", PREFIX);
    run_and_finish(&kit, "b", 4 * (num_blocks - 1) - PREFIX - 8);
    quire_req x = kit_add(&kit, "x", x_tokens);
    quire_request_params w = *kit_params(&kit, "a", PREFIX + 4);
    quire_req req;
    w.id = (quire_bytes){"w", 1};
    w.arrival_time = 1;
    assert_int_equal(quire_sched_add(kit.sched, &w, &req), QUIRE_OK);
    kit_run(&kit, 1);
    assert_int_equal(kit_info(&kit, x).status, QUIRE_REQ_RUNNING);
    finish(&kit, x);
    kit_step(&kit);
    uint32_t found = kit.step->num_computed_tokens[0];
    assert_int_equal(found + kit.step->num_tokens[0], PREFIX + 4);
    kit_answer(&kit, kit.step->step, 1);
    finish(&kit, req);
    kit_close(&kit);
    return found;
}

static void what_waits_is_evicted_last(void **state)
{
    (void)state;
    assert_int_equal(found_behind(17, 0, 44, QUIRE_POLICY_FCFS), 0);
    assert_int_equal(found_behind(17, 1, 44, QUIRE_POLICY_FCFS), 0); /* x alone is looked at */
    assert_int_equal(found_behind(17, 2, 44, QUIRE_POLICY_FCFS), PREFIX);
    assert_int_equal(found_behind(17, 0, 44, QUIRE_POLICY_PRIORITY), 0);
    assert_int_equal(found_behind(17, 8, 44, QUIRE_POLICY_PRIORITY), PREFIX);
}

/* x needs all there is: it gets it, the deepest blocks of w first. */
static void nobody_gets_less_for_it(void **state)
{
    (void)state;
    assert_int_equal(found_behind(14, 8, 46, QUIRE_POLICY_FCFS), 4);
    assert_int_equal(found_behind(13, 8, 46, QUIRE_POLICY_FCFS), 0);
}

/* A request that ended, or a reset: nothing is kept back any more. */
static void ends_with_its_request(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8);
    kit_open(&kit, &config);
    run_and_finish(&kit, "a", PREFIX);
    quire_req x = kit_add(&kit, "x", 4);
    kit_run(&kit, 1);
    quire_request_params w = *kit_params(&kit, "a", PREFIX + 4);
    quire_req req;
    w.id = (quire_bytes){"w", 1};
    assert_int_equal(quire_sched_add(kit.sched, &w, &req), QUIRE_OK);
    kit_run(&kit, 1);
    quire_block last[32];
    quire_pool *pool = quire_cache_pool(quire_sched_cache(kit.sched));
    uint32_t n = quire_pool_get_all_free_blocks(pool, last, 32);
    const quire_block kept[] = {4, 3, 2, 1};
    assert_memory_equal(last + n - 4, kept, sizeof kept);
    finish(&kit, req);
    finish(&kit, x); /* behind a's */
    n = quire_pool_get_all_free_blocks(pool, last, 32);
    assert_memory_not_equal(last + n - 4, kept, sizeof kept);
    kit_close(&kit);
}

/* What runs computes, meanwhile, more of what w will need. */
static void a_hit_that_grows_is_seen(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8);
    config.max_num_batched_tokens = 8;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PREFIX);
    quire_request_params w = *kit_params(&kit, "a", PREFIX + 4);
    quire_req req;
    w.id = (quire_bytes){"w", 1};
    assert_int_equal(quire_sched_add(kit.sched, &w, &req), QUIRE_OK);
    for (uint32_t i = 0; i < 4; i++)
        kit_run(&kit, 1);
    finish(&kit, a);
    quire_req x = kit_add(&kit, "x", 4);
    quire_pool *pool = quire_cache_pool(quire_sched_cache(kit.sched));
    quire_block all[32];
    uint32_t n = quire_pool_get_all_free_blocks(pool, all, 32);
    for (uint32_t i = n - 4; i < n;
         i++) /* as they were freed: a's, all of them behind the others */
        assert_true(all[i] >= 1 && all[i] <= 4);
    finish(&kit, x);
    finish(&kit, req);
    kit_close(&kit);
}

static void what_is_refused(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 4097);
    assert_int_equal(quire_sched_bytes(&config), 0);
    config.lookahead = 1;
    assert_true(quire_sched_bytes(&config) > 0);
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    assert_int_equal(quire_sched_bytes(&config), 0);
    config.profile = QUIRE_PROFILE_DEFAULT;
    config.cache.enable_caching = QUIRE_OFF;
    assert_int_equal(quire_sched_bytes(&config), 0);
    quire_hasher_destroy(kit.hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_waits_is_evicted_last),
        cmocka_unit_test(nobody_gets_less_for_it),
        cmocka_unit_test(ends_with_its_request),
        cmocka_unit_test(a_hit_that_grows_is_seen),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sched/requests/test_first_hashes.c - what the scheduler shows of a request's hashes. */
#include "sched/sched_kit.h"

static sched_kit kit;

enum { NUM_TOKENS = 3000, NUM_HASHES = NUM_TOKENS / KIT_BLOCK, DIGEST_BYTES = 32 };

static quire_req add_long(void)
{
    static quire_token prompt[NUM_TOKENS];
    for (quire_token i = 0; i < NUM_TOKENS; i++)
        prompt[i] = i;
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {"a", 1},
                                   .prompt = prompt,
                                   .num_prompt_tokens = NUM_TOKENS,
                                   .max_tokens = 1};
    quire_req req = 0;
    assert_int_equal(quire_sched_add(kit.sched, &params, &req), QUIRE_OK);
    return req;
}

/* More than one page of them, so that they are put together. */
static void the_first_are_the_first_of_all(void **state)
{
    (void)state;
    quire_sched_config config = kit_config(&kit);
    config.cache->max_model_len = 2 * NUM_TOKENS;
    config.cache->num_blocks = 2 * NUM_HASHES;
    kit_open(&kit, &config);
    quire_req req = add_long();
    static unsigned char all[NUM_HASHES][DIGEST_BYTES];
    const void *hashes;
    uint32_t num = 0;
    assert_int_equal(quire_sched_get_hashes(kit.sched, req, UINT32_MAX, &hashes, &num), QUIRE_OK);
    assert_int_equal(num, NUM_HASHES);
    memcpy(all, hashes, sizeof all);
    assert_memory_not_equal(all[0], all[1], DIGEST_BYTES);
    for (uint32_t most = 1; most <= NUM_HASHES; most = 3 * most + 1) {
        assert_int_equal(quire_sched_get_hashes(kit.sched, req, most, &hashes, &num), QUIRE_OK);
        assert_int_equal(num, most);
        assert_memory_equal(hashes, all, (size_t)most * DIGEST_BYTES);
    }
    assert_int_equal(quire_sched_get_hashes(kit.sched, req, UINT32_MAX, &hashes, &num), QUIRE_OK);
    assert_int_equal(num, NUM_HASHES);
    assert_memory_equal(hashes, all, sizeof all);
    kit_close(&kit);
}

static void none_and_errors(void **state)
{
    (void)state;
    quire_sched_config config = kit_config(&kit);
    kit_open(&kit, &config);
    quire_req req = kit_add(&kit, "a", 3 * KIT_BLOCK);
    const void *hashes = &config;
    uint32_t num = 9;
    assert_int_equal(quire_sched_get_hashes(kit.sched, req, 0, &hashes, &num), QUIRE_OK);
    assert_int_equal(num, 0);
    assert_null(hashes);
    assert_int_equal(quire_sched_get_hashes(kit.sched, req, 9, &hashes, &num), QUIRE_OK);
    assert_int_equal(num, 3);
    assert_int_equal(quire_sched_get_hashes(NULL, req, 1, &hashes, &num), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_hashes(kit.sched, req, 1, NULL, &num), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_hashes(kit.sched, req, 1, &hashes, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_hashes(kit.sched, req + 1, 1, &hashes, &num),
                     QUIRE_E_UNKNOWN_REQ);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_are_the_first_of_all),
        cmocka_unit_test(none_and_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

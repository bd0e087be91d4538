/* sched/test_sched_preempt.c - who gives its blocks back, when the pool is too full, and when the
 * caller asks. A request of 16 tokens has four of the pool's 16 blocks. */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { PROMPT = 16, SLOTS = 8 };

static sched_kit kit;
static quire_decision last_preempted, last_refused;

static void note_decision(void *user, const quire_decision *decision)
{
    (void)user;
    if (decision->kind == QUIRE_DECISION_PREEMPTED)
        last_preempted = *decision;
    if (decision->kind == QUIRE_DECISION_NO_ROOM || decision->kind == QUIRE_DECISION_HELD_UP)
        last_refused = *decision;
}

static quire_sched_config config_of(void)
{
    quire_sched_config config = kit_config(&kit);
    config.on_decision = note_decision;
    config.num_swap_blocks = SLOTS;
    config.max_num_batched_tokens = 64;
    return config;
}

static double level(void)
{
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    return quire_usage_level(quire_cache_get_usage(quire_sched_get_cache(kit.sched)));
}

/* ---- pressure --------------------------------------------------------------- */

static void admits_below_one_mark(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    config.use_pressure = QUIRE_ON;
    config.cache->admit_below = 0.4;
    config.cache->preempt_above = 0.6;
    kit_open(&kit, &config);
    for (uint32_t i = 0; i < 4; i++)
        kit_add(&kit, (const char *[]){"a", "b", "c", "d"}[i], 12);
    kit_step(&kit); /* three blocks each: after two of them the level is 6 of 16 */
    assert_string_equal(kit_shown_step(&kit), "a:12 b:12 c:12");
    assert_true(level() > 0.5 && level() <= 0.6);
    assert_int_equal(last_refused.reason, QUIRE_REASON_PRESSURE);
    kit_close(&kit);
}

/* Two requests grow past the upper mark: the second gives way, and waits until the first ends. */
static void preempts_above_the_other(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    config.use_pressure = QUIRE_ON;
    config.num_swap_blocks = 0;
    config.cache->admit_below = 0.5;
    config.cache->preempt_above = 0.5;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 15);
    kit_add(&kit, "b", 15);
    kit_run(&kit, 1);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_running, 2);
    for (uint32_t i = 0; i < 4 && quire_sched_get_counts(kit.sched).num_running == 2; i++)
        kit_run(&kit, 1);
    assert_string_equal(kit_shown_queue(&kit, 0), "a");
    assert_string_equal(kit_shown_queue(&kit, 1), "b");
    assert_int_equal(last_preempted.reason, QUIRE_REASON_PRESSURE);
    assert_true(level() <= 0.5);
    for (uint32_t i = 0; i < 80 && quire_sched_get_num_unfinished(kit.sched) > 0; i++)
        kit_run(&kit, 1);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

/* What is larger than the mark runs when it is alone. */
static void one_runs_at_any_level(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    config.use_pressure = QUIRE_ON;
    config.cache->admit_below = 0.1;
    config.cache->preempt_above = 0.1;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 40);
    kit_add(&kit, "b", 40);
    for (uint32_t i = 0; i < 60 && quire_sched_get_num_unfinished(kit.sched) > 0; i++) {
        kit_run(&kit, 1);
        assert_true(quire_sched_get_counts(kit.sched).num_running <= 1);
    }
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

static void refused_in_the_vllm_profile(void **state)
{
    (void)state;
    quire_sched *made = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        quire_sched_config config = config_of();
        config.num_swap_blocks = 0;
        config.profile = QUIRE_PROFILE_VLLM_0_20;
        config.use_pressure = i == 0 ? QUIRE_ON : QUIRE_OFF;
        config.victim = i == 1 ? QUIRE_VICTIM_LRU : QUIRE_VICTIM_DEFAULT;
        assert_int_equal(quire_sched_create(&config, NULL, &made), QUIRE_E_CONFIG);
        assert_non_null(strstr(quire_refusal(), i == 0 ? "use_pressure" : "victim"));
        quire_hasher_destroy(kit.hasher);
    }
}

/* ---- victims ------------------------------------------------------------------ */

static uint32_t answer, num_asked;

static uint32_t choose(void *user, const quire_req *candidates, uint32_t num)
{
    assert_ptr_equal(user, &answer);
    assert_true(candidates[0] != 0);
    assert_int_equal(num, 2); /* b and c: a goes on */
    num_asked++;
    return answer;
}

/* a, b and c fill the pool; the next token of a needs a block. Who goes? */
static const char *victim_of(const quire_sched_config *config)
{
    static char name[8];
    kit_open(&kit, config);
    kit.params.priority = 1;
    kit_add(&kit, "a", 20);
    kit.params.priority = 9;
    kit_add(&kit, "b", 20);
    kit.params.priority = 5;
    kit_add(&kit, "c", 24);
    kit_run(&kit, 1);
    kit_step(&kit);
    assert_int_equal(kit.step->num_preempted, 1);
    quire_req_info info = kit_info(&kit, kit.step->preempted[0]);
    snprintf(name, sizeof name, "%.*s", (int)info.id.len, (const char *)info.id.data);
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    kit_close(&kit);
    return name;
}

static void victims_are_chosen(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    config.num_swap_blocks = 0;
    assert_string_equal(victim_of(&config), "c");
    config = config_of();
    config.victim = QUIRE_VICTIM_PRIORITY;
    assert_string_equal(victim_of(&config), "b");
    config = config_of();
    config.victim = QUIRE_VICTIM_LRU; /* all were in the last step: the last */
    assert_string_equal(victim_of(&config), "c");
    config = config_of();
    config.policy = QUIRE_POLICY_PRIORITY;
    config.victim = QUIRE_VICTIM_LIFO; /* a, c, b: in the order of priority */
    assert_string_equal(victim_of(&config), "b");
    static const char *const BY_ANSWER[] = {"b", "c", "c"};
    for (answer = 0; answer < 3; answer++) {
        config = config_of();
        config.choose_victim = choose;
        config.victim_user = &answer;
        assert_string_equal(victim_of(&config), BY_ANSWER[answer]);
    }
    assert_int_equal(num_asked, 3);
}

/* b waited for the encoder, say: it was in no step since the first. */
static void least_recent_goes(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    config.victim = QUIRE_VICTIM_LRU;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 20);
    quire_req b = kit_add(&kit, "b", 20);
    kit_add(&kit, "c", 24);
    kit_run(&kit, 1);
    kit.sched->table.requests[quire_req_index(b)].last_step = 0;
    kit_step(&kit);
    assert_int_equal(kit.step->num_preempted, 1);
    assert_true(kit.step->preempted[0] == b);
    kit_close(&kit);
}

/* ---- when the caller asks ----------------------------------------------------- */

static void preempted_by_the_caller(void **state)
{
    (void)state;
    static const quire_location WHERE[] = {QUIRE_LOCATION_HOST, QUIRE_LOCATION_HOST,
                                           QUIRE_LOCATION_NONE};
    for (uint32_t mode = 0; mode < 3; mode++) {
        quire_sched_config config = config_of();
        kit_open(&kit, &config);
        quire_req a = kit_add(&kit, "a", PROMPT);
        assert_int_equal(quire_sched_preempt(kit.sched, a, (quire_preempt_mode)mode), QUIRE_MISS);
        kit_run(&kit, 1);
        assert_int_equal(kit_info(&kit, a).location, QUIRE_LOCATION_DEVICE);
        assert_int_equal(quire_sched_preempt(kit.sched, a, (quire_preempt_mode)mode), QUIRE_OK);
        assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_PREEMPTED);
        assert_int_equal(kit_info(&kit, a).location, WHERE[mode]);
        assert_int_equal(last_preempted.reason, QUIRE_REASON_ASKED);
        assert_true(level() == 0);
        kit_step(&kit);
        assert_int_equal(kit.step->num_preempted, 1);
        assert_true(kit.step->preempted[0] == a);
        assert_int_equal(kit.step->num_swap_out, mode == QUIRE_PREEMPT_RECOMPUTE ? 0 : 4);
        assert_int_equal(kit.step->kinds[0], QUIRE_STEP_RESUMED);
        kit_close(&kit);
    }
}

/* Five blocks: a and b have two each, c one. a takes that of c, b finds none and goes. */
static void by_the_caller_and_by_the_step(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    config.num_swap_blocks = 0;
    config.cache->num_blocks = 6;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 8);
    quire_req b = kit_add(&kit, "b", 8);
    quire_req c = kit_add(&kit, "c", 2);
    kit_run(&kit, 1);
    assert_int_equal(quire_sched_preempt(kit.sched, c, QUIRE_PREEMPT_RECOMPUTE), QUIRE_OK);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    assert_int_equal(kit.step->num_preempted, 2);
    assert_true(kit.step->preempted[0] == c && kit.step->preempted[1] == b);
    kit_answer(&kit, kit.step->step, 1);
    kit_close(&kit);
}

static void swap_is_refused(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    config.num_swap_blocks = 3;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PROMPT);
    kit_run(&kit, 1);
    kit_state before = kit_save(kit.sched);
    assert_int_equal(quire_sched_preempt(kit.sched, a, QUIRE_PREEMPT_SWAP), QUIRE_FULL);
    assert_int_equal(quire_sched_offload(kit.sched, a), QUIRE_FULL);
    assert_int_equal(quire_sched_resume(kit.sched, a), QUIRE_MISS);
    assert_int_equal(quire_sched_preempt(kit.sched, a, (quire_preempt_mode)4), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_preempt(NULL, a, QUIRE_PREEMPT_SWAP), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_preempt(kit.sched, a + 1, QUIRE_PREEMPT_SWAP),
                     QUIRE_E_UNKNOWN_REQ);
    assert_int_equal(quire_sched_offload(kit.sched, a + 1), QUIRE_E_UNKNOWN_REQ);
    assert_int_equal(quire_sched_resume(kit.sched, a + 1), QUIRE_E_UNKNOWN_REQ);
    kit_same(kit.sched, before);
    kit_close(&kit);
    config = config_of();
    config.num_swap_blocks = 0;
    kit_open(&kit, &config);
    a = kit_add(&kit, "a", PROMPT);
    kit_run(&kit, 1);
    assert_int_equal(quire_sched_preempt(kit.sched, a, QUIRE_PREEMPT_SWAP), QUIRE_E_DISABLED);
    assert_int_equal(quire_sched_offload(kit.sched, a), QUIRE_E_DISABLED);
    kit_close(&kit);
}

/* An offloaded request stays out while there is room, through an image, and comes back whole. */
static void offloaded_until_resumed(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PROMPT);
    kit_run(&kit, 1);
    assert_int_equal(quire_sched_offload(kit.sched, a), QUIRE_OK);
    assert_int_equal(kit_info(&kit, a).is_offloaded, 1);
    kit_state image = kit_save(kit.sched);
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &made), QUIRE_OK);
    quire_sched_destroy(kit.sched);
    kit.sched = made;
    kit_same(kit.sched, image);
    kit_step(&kit);
    assert_int_equal(kit.step->num_swap_out, 4); /* the copies were not forgotten */
    assert_int_equal(kit.step->num_reqs, 0);
    assert_int_equal(last_refused.reason, QUIRE_REASON_OFFLOADED);
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(quire_sched_resume(kit.sched, a), QUIRE_OK);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    assert_int_equal(kit_info(&kit, a).location, QUIRE_LOCATION_DEVICE);
    kit_answer(&kit, kit.step->step, 1);
    kit_close(&kit);
}

/* Slots of a request that ends before its copies were listed become another request's. */
static void ends_before_its_copies(void **state)
{
    (void)state;
    quire_sched_config config = config_of();
    config.num_swap_blocks = 4;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PROMPT);
    quire_req b = kit_add(&kit, "b", PROMPT);
    kit_run(&kit, 1);
    assert_int_equal(quire_sched_offload(kit.sched, a), QUIRE_OK);
    assert_int_equal(quire_sched_offload(kit.sched, b), QUIRE_FULL);
    quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(quire_sched_offload(kit.sched, b), QUIRE_OK);
    kit_step(&kit);
    assert_int_equal(kit.step->num_swap_out, 4);
    assert_int_equal(kit.step->num_preempted, 1);
    assert_true(kit.step->preempted[0] == b);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admits_below_one_mark),
        cmocka_unit_test(preempts_above_the_other),
        cmocka_unit_test(one_runs_at_any_level),
        cmocka_unit_test(refused_in_the_vllm_profile),
        cmocka_unit_test(victims_are_chosen),
        cmocka_unit_test(least_recent_goes),
        cmocka_unit_test(preempted_by_the_caller),
        cmocka_unit_test(swap_is_refused),
        cmocka_unit_test(offloaded_until_resumed),
        cmocka_unit_test(ends_before_its_copies),
        cmocka_unit_test(by_the_caller_and_by_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

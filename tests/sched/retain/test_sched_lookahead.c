/* sched/retain/test_sched_lookahead.c - what waiting requests will find is evicted last. */
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
    config.cache->num_blocks = num_blocks;
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
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(kit.sched));
    uint32_t n = quire_pool_get_all_free_blocks(pool, last, 32);
    const quire_block kept[] = {4, 3, 2, 1};
    assert_memory_equal(last + n - 4, kept, sizeof kept);
    finish(&kit, req);
    finish(&kit, x); /* behind a's */
    n = quire_pool_get_all_free_blocks(pool, last, 32);
    assert_memory_not_equal(last + n - 4, kept, sizeof kept);
    kit_close(&kit);
}

/* a computes, meanwhile, more of what w will need: all of it is behind x's blocks, which come back
 * last. */
static void a_hit_that_grows_is_seen(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8);
    config.max_num_seqs = 2;
    config.max_num_batched_tokens = 8;
    kit_open(&kit, &config);
    quire_req x = kit_add(&kit, "x", 4);
    quire_req a = kit_add(&kit, "a", PREFIX);
    quire_request_params w = *kit_params(&kit, "a", PREFIX + 4);
    quire_req req;
    w.id = (quire_bytes){"w", 1};
    assert_int_equal(quire_sched_add(kit.sched, &w, &req), QUIRE_OK);
    for (uint32_t i = 0; i < 12; i++)
        kit_run(&kit, 1);
    quire_block_span blocks;
    quire_block all[32];
    assert_int_equal(
        quire_cache_get_blocks(quire_sched_get_cache(kit.sched), kit_info(&kit, a).seq, &blocks),
        QUIRE_OK);
    quire_block prefix[PREFIX / KIT_BLOCK];
    memcpy(prefix, blocks.ids, sizeof prefix);
    finish(&kit, a);
    finish(&kit, x);
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(kit.sched));
    uint32_t n = quire_pool_get_all_free_blocks(pool, all, 32);
    for (uint32_t i = n - (uint32_t)COUNT(prefix); i < n; i++) { /* in any order */
        bool is_kept = false;
        for (uint32_t k = 0; k < COUNT(prefix); k++)
            is_kept = is_kept || all[i] == prefix[k];
        assert_true(is_kept);
    }
    finish(&kit, req);
    kit_close(&kit);
}

/* x and y run and take all blocks, w's hit too. Then x needs one more, and y is preempted. Returns
 * how many tokens y finds. */
static uint32_t found_after_preemption(uint32_t lookahead, quire_policy policy)
{
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, lookahead);
    config.max_num_seqs = 2;
    config.policy = policy;
    kit_open(&kit, &config);
    run_and_finish(&kit, "a", PREFIX);
    quire_req x = kit_add(&kit, "x", 16);
    kit.params.arrival_time = 1;
    quire_req y = kit_add(&kit, "y", 24);
    quire_request_params w = *kit_params(&kit, "a", PREFIX + 4);
    quire_req req;
    w.id = (quire_bytes){"w", 1};
    w.arrival_time = 2;
    assert_int_equal(quire_sched_add(kit.sched, &w, &req), QUIRE_OK);
    while (kit_info(&kit, y).status != QUIRE_REQ_PREEMPTED)
        kit_run(&kit, 1);
    assert_int_equal(kit_info(&kit, x).num_computed_tokens, 29);
    finish(&kit, x);
    kit_step(&kit);
    assert_true(kit.step->reqs[0] == y);
    uint32_t found = kit.step->num_computed_tokens[0];
    kit_answer(&kit, kit.step->step, 1);
    kit_close(&kit);
    return found;
}

/* x takes one block of the nine that y had computed: that is all that y has lost. */
static void what_was_preempted_is_found_again(void **state)
{
    (void)state;
    const uint32_t lookaheads[] = {0, 1, 2, 8};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(found_after_preemption(lookaheads[i], QUIRE_POLICY_FCFS), 32);
        assert_int_equal(found_after_preemption(lookaheads[i], QUIRE_POLICY_PRIORITY), 32);
    }
}

/* w waits for a's four blocks while a runs. After a's end b takes eight others and one of these:
 * the deepest. */
static void what_is_freed_gives_its_end_first(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8);
    config.max_num_seqs = 2;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PREFIX);
    quire_req x = kit_add(&kit, "x", 13);
    quire_req b = kit_add(&kit, "b", 36);
    quire_request_params w = *kit_params(&kit, "a", PREFIX + 4);
    quire_req req;
    w.id = (quire_bytes){"w", 1};
    assert_int_equal(quire_sched_add(kit.sched, &w, &req), QUIRE_OK);
    for (uint32_t i = 0; i < 3; i++)
        kit_run(&kit, 1);
    finish(&kit, a);
    kit_run(&kit, 1);
    assert_int_equal(kit_info(&kit, b).status, QUIRE_REQ_RUNNING);
    finish(&kit, b);
    finish(&kit, x);
    kit_step(&kit);
    assert_true(kit.step->reqs[0] == req);
    assert_int_equal(kit.step->num_computed_tokens[0], 12);
    kit_answer(&kit, kit.step->step, 1);
    kit_close(&kit);
}

/* y runs; x, v and w wait. v begins as a did and w as b did, whose blocks are the coldest; c's fill
 * the rest of the pool. x comes for seven blocks. Returns how many tokens w finds after x and v. */
static uint32_t found_by_the_third(uint32_t num_blocks, uint32_t lookahead)
{
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, lookahead);
    config.cache->num_blocks = num_blocks;
    kit_open(&kit, &config);
    run_and_finish(&kit, "a", PREFIX);
    run_and_finish(&kit, "b", PREFIX);
    run_and_finish(&kit, "c", KIT_BLOCK * (num_blocks - 1 - 8 - 2));
    quire_req y = kit_add(&kit, "y", KIT_BLOCK);
    quire_req x = kit_add(&kit, "x", 7 * KIT_BLOCK);
    quire_req v = kit_add(&kit, "a v", PREFIX + 4);
    quire_req w = kit_add(&kit, "b w", PREFIX + 4);
    for (uint32_t i = 0; i < 4; i++) /* enough to look at each of them */
        kit_run(&kit, 1);
    finish(&kit, y);
    kit_run(&kit, 1);
    assert_int_equal(kit_info(&kit, x).status, QUIRE_REQ_RUNNING);
    finish(&kit, x);
    kit_step(&kit);
    assert_true(kit.step->reqs[0] == v);
    assert_int_equal(kit.step->num_computed_tokens[0], lookahead > 0 ? PREFIX : 0);
    kit_answer(&kit, kit.step->step, 1);
    finish(&kit, v);
    kit_step(&kit);
    assert_true(kit.step->reqs[0] == w);
    uint32_t found = kit.step->num_computed_tokens[0];
    kit_answer(&kit, kit.step->step, 1);
    finish(&kit, w);
    kit_close(&kit);
    return found;
}

/* v's four blocks are a quarter of 19 blocks, rounded down, and less than a quarter of 20. */
static void a_quarter_of_the_pool_is_enough(void **state)
{
    (void)state;
    assert_int_equal(found_by_the_third(20, 0), 0);
    assert_int_equal(found_by_the_third(20, 8), PREFIX);
    assert_int_equal(found_by_the_third(19, 8), 0);
}

/* ---- random worlds --------------------------------------------------------- */

enum { CROWD = 48, CROWD_STEPS = 400, FAMILIES = 5 };

typedef struct crowd_request {
    quire_req req; /* 0: free */
    uint32_t ends_at;
    uint32_t num_lost;  /* full blocks that it had computed when it was preempted; 0: it was not */
    uint64_t num_taken; /* from the pool, before the step that preempted it */
} crowd_request;

typedef struct crowd {
    sched_kit kit;
    crowd_request all[CROWD];
    uint64_t random;
    uint32_t num_added;
    uint64_t num_preempted;
    uint64_t num_hit_tokens;
    uint64_t num_again_tokens;
} crowd;

static crowd_request *crowd_find(crowd *c, quire_req req)
{
    for (uint32_t i = 0; i < CROWD; i++)
        if (c->all[i].req == req)
            return &c->all[i];
    fail_msg("a request that was not added");
    return NULL;
}

/* Begins as others of its family; of some the prompt is the same. */
static void crowd_add(crowd *c)
{
    crowd_request *r = crowd_find(c, 0);
    char id[16];
    uint32_t family = unit_random_below(&c->random, FAMILIES);
    uint32_t n = 1 + unit_random_below(&c->random, KIT_LEN - 12);
    (void)snprintf(id, sizeof id, "%c%u", (char)('a' + family), c->num_added++);
    (void)kit_params(&c->kit, id, n);
    if (n > 12 && unit_random_below(&c->random, 2) == 0)
        c->kit.prompt[12] = (quire_token)c->num_added; /* from here on it is its own */
    *r = (crowd_request){.ends_at = n + 1 + unit_random_below(&c->random, 10)};
    assert_int_equal(quire_sched_add(c->kit.sched, &c->kit.params, &r->req), QUIRE_OK);
}

static uint64_t crowd_taken(const crowd *c)
{
    return quire_pool_get_counts(quire_cache_get_pool(quire_sched_get_cache(c->kit.sched)))
        .num_allocated;
}

/* A preempted request comes back: each block that was taken meanwhile has cost it one at most. */
static void crowd_resumed(crowd *c, crowd_request *r, uint32_t place, uint64_t num_taken)
{
    const quire_step *step = c->kit.step;
    uint32_t num_found = step->num_computed_tokens[place] / KIT_BLOCK;
    uint32_t end = step->num_computed_tokens[place] + step->num_tokens[place];
    uint32_t own = (end + KIT_BLOCK - 1) / KIT_BLOCK - num_found;
    uint32_t lost = r->num_lost > num_found ? r->num_lost - num_found : 0;
    assert_true(lost <= num_taken - r->num_taken - own);
    c->num_again_tokens += (uint64_t)lost * KIT_BLOCK;
    r->num_lost = 0;
}

static void crowd_step(crowd *c)
{
    uint32_t before[CROWD];
    uint64_t num_taken = crowd_taken(c);
    for (uint32_t i = 0; i < CROWD; i++)
        before[i] = c->all[i].req == 0 ? 0 : kit_info(&c->kit, c->all[i].req).num_computed_tokens;
    kit_step(&c->kit);
    const quire_step *step = c->kit.step;
    for (uint32_t i = 0; i < step->num_preempted; i++) {
        crowd_request *r = crowd_find(c, step->preempted[i]);
        r->num_lost = before[r - c->all] / KIT_BLOCK;
        r->num_taken = num_taken;
        c->num_preempted++;
    }
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        if (step->kinds[i] == QUIRE_STEP_RESUMED)
            crowd_resumed(c, crowd_find(c, step->reqs[i]), i, crowd_taken(c));
        if (step->kinds[i] == QUIRE_STEP_NEW)
            c->num_hit_tokens += step->num_computed_tokens[i];
    }
    kit_answer(&c->kit, step->step, 1);
    for (uint32_t i = 0; i < CROWD; i++) {
        crowd_request *r = &c->all[i];
        if (r->req == 0 || kit_info(&c->kit, r->req).num_tokens < r->ends_at)
            continue;
        finish(&c->kit, r->req);
        r->req = 0;
    }
}

/* The same requests for any lookahead, at the same steps; adds to the counts of *sum. */
static void run_crowd(uint64_t seed, uint32_t lookahead, crowd *sum)
{
    crowd c = {.random = seed};
    quire_sched_config config = one_runs(&c.kit, lookahead);
    config.cache->num_blocks = 17 + unit_random_below(&c.random, 16);
    config.max_num_seqs = 2 + unit_random_below(&c.random, KIT_RUNNING - 1);
    config.max_num_batched_tokens = 8 + unit_random_below(&c.random, 56);
    config.max_requests = CROWD;
    kit_open(&c.kit, &config);
    uint32_t left = CROWD;
    uint32_t num_steps = 0;
    for (; num_steps < CROWD_STEPS && (left > 0 || quire_sched_get_num_unfinished(c.kit.sched) > 0);
         num_steps++) {
        for (uint32_t n = unit_random_below(&c.random, 4); left > 0 && n > 0; n--, left--)
            crowd_add(&c);
        crowd_step(&c);
    }
    assert_true(num_steps < CROWD_STEPS);
    sum->num_preempted += c.num_preempted;
    sum->num_hit_tokens += c.num_hit_tokens;
    sum->num_again_tokens += c.num_again_tokens;
    kit_close(&c.kit);
}

/* In one world a different hit changes who runs when, and so all that follows: counts are compared
 * over many. */
static void random_worlds_are_not_worse(void **state)
{
    (void)state;
    enum { SEEDS = 100 };
    const uint32_t lookaheads[] = {0, 1, 3, 8, CROWD};
    crowd sums[5] = {0};
    for (uint32_t i = 0; i < 5; i++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            run_crowd(seed, lookaheads[i], &sums[i]);
    assert_true(sums[0].num_preempted > SEEDS / 2);
    for (uint32_t i = 1; i < 5; i++) {
        assert_true(sums[i].num_hit_tokens >= sums[0].num_hit_tokens);
        assert_true(sums[i].num_again_tokens <= sums[0].num_again_tokens);
    }
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
    config.cache->enable_caching = QUIRE_OFF;
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
        cmocka_unit_test(what_was_preempted_is_found_again),
        cmocka_unit_test(what_is_freed_gives_its_end_first),
        cmocka_unit_test(a_quarter_of_the_pool_is_enough),
        cmocka_unit_test(random_worlds_are_not_worse),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sched/queues/test_sched_prefix.c - waiting requests whose prefix is in the pool are admitted
 * first, and
 * nobody is overtaken more than the bound says. */
#include "sched/sched_kit.h"

#include "sched/sched.h"

enum { PREFIX = 16 };

static quire_sched_config one_runs(sched_kit *kit, uint32_t window, uint32_t patience)
{
    quire_sched_config config = kit_config(kit);
    config.max_num_seqs = 1;
    config.prefix_window = window;
    config.prefix_patience = patience;
    return config;
}

static void finish(sched_kit *kit, quire_req req)
{
    assert_int_equal(quire_sched_finish(kit->sched, &req, 1, QUIRE_REQ_FINISHED_STOPPED, NULL),
                     QUIRE_OK);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

/* A prompt that begins as that of `like` did. */
static quire_req add_like(sched_kit *kit, const char *id, const char *like, uint32_t n)
{
    quire_request_params p = *kit_params(kit, like, n);
    quire_req req;
    p.id = (quire_bytes){id, strlen(id)};
    assert_int_equal(quire_sched_add(kit->sched, &p, &req), QUIRE_OK);
    return req;
}

/* The prefix of a is in the pool; x runs first, then comes h, which finds nothing, then so many
 * requests that begin as a did. Each ends as soon as it has run: the order in which they run. */
static const char *order_of(const quire_sched_config *config, sched_kit *kit, uint32_t x_tokens,
                            uint32_t num_like_a)
{
    static const char *const names[] = {"1", "2", "3", "4"};
    static char order[16];
    uint32_t n = 0;
    kit_open(kit, config);
    quire_req a = kit_add(kit, "a", PREFIX);
    kit_run(kit, 1);
    finish(kit, a);
    kit_add(kit, "x", x_tokens);
    kit->params.arrival_time = 1;
    kit_add(kit, "h", 8);
    kit->params.arrival_time = 2;
    for (uint32_t i = 0; i < num_like_a; i++)
        add_like(kit, names[i], "a", PREFIX + 4);
    while (n < num_like_a + 2) {
        kit_step(kit);
        quire_req req = kit->step->reqs[0];
        order[n++] = *(const char *)kit_info(kit, req).id.data;
        kit_answer(kit, kit->step->step, 1);
        finish(kit, req);
    }
    order[n] = '\0';
    kit_close(kit);
    return order;
}

static const char *order_with(uint32_t window, uint32_t patience, uint32_t x_tokens)
{
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, window, patience);
    return order_of(&config, &kit, x_tokens, 4);
}

static void the_longest_prefix_goes_first(void **state)
{
    (void)state;
    assert_string_equal(order_with(0, 0, 12), "xh1234");
    assert_string_equal(order_with(8, 0, 12), "x123h4"); /* three for one, by default */
    assert_string_equal(order_with(1, 0, 12), "xh1234"); /* the head alone is looked at */
    assert_string_equal(order_with(2, 0, 12), "x123h4");
    assert_string_equal(order_with(8, 1000, 12), "x1234h");
}

/* One request was admitted in turn since h came: x. */
static void nobody_waits_past_the_bound(void **state)
{
    (void)state;
    assert_string_equal(order_with(8, 1, 12), "xh1234");
    assert_string_equal(order_with(8, 2, 12), "x1h234");
    assert_string_equal(order_with(8, 3, 12), "x12h34");
    /* By tokens: x had 4 to be computed, each that overtakes h has 4; then one, and each 4 */
    assert_string_equal(order_with(8, 3, 4), "x12h34");
    assert_string_equal(order_with(8, 3, 1), "x1h234");
}

static void equal_priorities_alone(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8, 2);
    config.policy = QUIRE_POLICY_PRIORITY;
    assert_string_equal(order_of(&config, &kit, 12, 4), "x1h234");
    config = one_runs(&kit, 8, 1000);
    config.policy = QUIRE_POLICY_PRIORITY;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PREFIX);
    kit_run(&kit, 1);
    finish(&kit, a);
    quire_req x = kit_add(&kit, "x", 12);
    kit.params.arrival_time = 1;
    quire_req h = kit_add(&kit, "h", 8);
    kit.params.priority = 1;
    add_like(&kit, "w", "a", PREFIX + 4);
    kit_run(&kit, 1);
    finish(&kit, x);
    kit_run(&kit, 1);
    assert_true(kit.step->reqs[0] == h);
    kit_close(&kit);
}

/* p2 finds what p1 computes in this very step, and follows it. */
static void together_with_what_is_computed_now(void **state)
{
    (void)state;
    for (uint32_t window = 0; window <= 8; window += 8) {
        sched_kit kit;
        quire_sched_config config = kit_config(&kit);
        config.prefix_window = window;
        kit_open(&kit, &config);
        kit_add(&kit, "p1", PREFIX);
        kit_add(&kit, "h", 8);
        kit_add(&kit, "p2", PREFIX + 4);
        kit_run(&kit, 1);
        assert_string_equal(kit_shown_step(&kit), window > 0 ? "p1:16 p2:4 h:8" : "p1:16 h:8 p2:4");
        kit_close(&kit);
    }
}

typedef struct told {
    quire_decision overtook;
    uint32_t num;
    uint32_t num_overtaking;
} told;

static void note_decision(void *user, const quire_decision *decision)
{
    told *t = user;
    if (decision->kind != QUIRE_DECISION_OVERTOOK)
        return;
    t->overtook = *decision;
    t->num++;
}

static void note_snapshot(void *user, const quire_snapshot *snapshot)
{
    ((told *)user)->num_overtaking += snapshot->num_overtaking;
}

/* c finds four blocks and no room for seven more: h is admitted, and c keeps its place. */
static void no_room_for_it_is_room_for_the_head(void **state)
{
    (void)state;
    sched_kit kit;
    told t = {0};
    quire_sched_config config = one_runs(&kit, 8, 0);
    config.max_num_seqs = 3;
    config.on_decision = note_decision;
    config.on_snapshot = note_snapshot;
    config.observer = &t;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PREFIX);
    kit_run(&kit, 1);
    finish(&kit, a);
    quire_req r = kit_add(&kit, "r", 31);
    quire_req h = kit_add(&kit, "h", 3);
    quire_req c = add_like(&kit, "c", "a", 44);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "r:31 h:3");
    assert_string_equal(kit_shown_queue(&kit, 1), "c");
    assert_int_equal(t.num, 0);
    quire_req i = kit_add(&kit, "i", 3);
    finish(&kit, r);
    finish(&kit, h);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "c:28 i:3");
    finish(&kit, c);
    finish(&kit, i);
    kit_close(&kit);
}

static void who_overtook_whom_is_told(void **state)
{
    (void)state;
    sched_kit kit;
    told t = {0};
    quire_sched_config config = one_runs(&kit, 8, 0);
    config.on_decision = note_decision;
    config.on_snapshot = note_snapshot;
    config.observer = &t;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PREFIX);
    kit_run(&kit, 1);
    finish(&kit, a);
    quire_req x = kit_add(&kit, "x", 12);
    quire_req h = kit_add(&kit, "h", 8);
    kit_add(&kit, "i", 8);
    quire_req w = add_like(&kit, "w", "a", PREFIX + 4);
    kit_run(&kit, 1);
    finish(&kit, x);
    kit_run(&kit, 1);
    assert_int_equal(t.num, 1);
    assert_int_equal(t.num_overtaking, 1);
    assert_true(t.overtook.req == w && t.overtook.other == h);
    assert_int_equal(t.overtook.num, 2); /* h and i */
    kit_close(&kit);
}

/* y was preempted: it is next, although w finds more. */
static void nobody_overtakes_what_was_preempted(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8, 1000);
    config.max_num_seqs = 2;
    kit_open(&kit, &config);
    quire_req x = kit_add(&kit, "x", 24);
    quire_req y = kit_add(&kit, "y", 24);
    while (kit_info(&kit, y).status != QUIRE_REQ_PREEMPTED)
        kit_run(&kit, 1);
    quire_req w = add_like(&kit, "w", "x", 28); /* all of x is in use, so it is there */
    finish(&kit, x);
    kit_step(&kit);
    assert_true(kit.step->reqs[0] == y);
    assert_true(kit_info(&kit, w).status != QUIRE_REQ_PREEMPTED);
    kit_answer(&kit, kit.step->step, 1);
    kit_close(&kit);
}

/* An image has what each was overtaken by: the twin goes on as the first one does. */
static void an_image_keeps_the_bound(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8, 3);
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PREFIX);
    kit_run(&kit, 1);
    finish(&kit, a);
    quire_req x = kit_add(&kit, "x", 12);
    kit_add(&kit, "h", 8);
    quire_req first = add_like(&kit, "1", "a", PREFIX + 4);
    add_like(&kit, "2", "a", PREFIX + 4);
    add_like(&kit, "3", "a", PREFIX + 4);
    kit_run(&kit, 1);
    finish(&kit, x);
    kit_run(&kit, 1); /* 1 */
    finish(&kit, first);
    kit_state saved = kit_save(kit.sched);
    quire_sched *twin;
    assert_int_equal(quire_sched_restore(&config, NULL, saved.image, saved.bytes, &twin), QUIRE_OK);
    kit_state again = kit_save(twin);
    assert_int_equal(again.bytes, saved.bytes);
    assert_memory_equal(again.image, saved.image, saved.bytes);
    free(again.image);
    quire_sched_config other = config;
    other.prefix_patience = 4;
    quire_sched *none = NULL;
    assert_int_equal(quire_sched_restore(&other, NULL, saved.image, saved.bytes, &none),
                     QUIRE_E_CONFIG);
    free(saved.image);
    quire_sched_destroy(kit.sched);
    kit.sched = twin;
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "2:4");
    finish(&kit, kit.step->reqs[0]);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "h:8"); /* not 3 */
    kit_close(&kit);
}

/* As above, but x computed one token, so that h was overtaken by as many tokens as it may be. */
static void an_image_keeps_the_bound_in_tokens(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8, 3);
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PREFIX);
    kit_run(&kit, 1);
    finish(&kit, a);
    quire_req x = kit_add(&kit, "x", 1);
    kit_add(&kit, "h", 8);
    quire_req first = add_like(&kit, "1", "a", PREFIX + 4);
    add_like(&kit, "2", "a", PREFIX + 4);
    kit_run(&kit, 1);
    finish(&kit, x);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "1:4");
    finish(&kit, first);
    kit_state saved = kit_save(kit.sched);
    quire_sched_destroy(kit.sched);
    assert_int_equal(quire_sched_restore(&config, NULL, saved.image, saved.bytes, &kit.sched),
                     QUIRE_OK);
    free(saved.image);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "h:8"); /* not 2 */
    kit_close(&kit);
}

/* y was preempted, and nobody behind it is looked at. But y itself may overtake h, which stands
 * before it by its arrival time. */
static void what_was_preempted_may_overtake(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8, 1000);
    config.policy = QUIRE_POLICY_PRIORITY;
    config.max_num_seqs = 2;
    kit_open(&kit, &config);
    kit.params.arrival_time = 2;
    quire_req y = kit_add(&kit, "y", PREFIX);
    kit_run(&kit, 1);
    kit.params.arrival_time = 1;
    kit_add(&kit, "h", 8);
    kit.params.arrival_time = 0;
    kit_add(&kit, "x", 8);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "y:1 x:8");
    assert_int_equal(quire_sched_preempt(kit.sched, y, QUIRE_PREEMPT_RECOMPUTE), QUIRE_OK);
    assert_string_equal(kit_shown_queue(&kit, 1), "h y");
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "x:1 y:2");
    kit_close(&kit);
}

#ifndef QUIRE_HOSTILE /* the numbers are for pages of 1,024 tokens */
/* Tokens are kept in pages of 1,024, here 20; whoever runs has eight of them promised. c, which was
 * to overtake h, finds no blocks: it gives back what it was promised, and h runs. */
static void no_pages_for_one_that_does_not_overtake(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8, 0);
    config.max_num_seqs = 2;
    config.max_requests = 4;
    config.max_text_tokens = 1;
    config.cache->max_model_len = 8192;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", PREFIX);
    kit_run(&kit, 1);
    finish(&kit, a);
    kit_add(&kit, "r", 31);
    kit_add(&kit, "h", 3);
    add_like(&kit, "c", "a", 44);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "r:31 h:3");
    assert_string_equal(kit_shown_queue(&kit, 1), "c");
    kit_close(&kit);
}
#endif

/* Nobody came after what was admitted, and nobody was overtaken by more than was admitted since. */
static void the_walker_checks_the_bound(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = one_runs(&kit, 8, 3);
    kit_open(&kit, &config);
    kit_add(&kit, "x", 8);
    quire_req h = kit_add(&kit, "h", 8);
    kit_run(&kit, 1);
    qr_prefix_wait *wait = &kit.sched->prefix.waits[quire_req_index(h)];
    uint64_t *const numbers[] = {&wait->came.tokens, &wait->came.requests, &wait->overtaken.tokens,
                                 &wait->overtaken.requests};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        uint64_t before = *numbers[i];
        *numbers[i] = 100;
        assert_int_equal(quire_sched_check(kit.sched), QUIRE_E_CORRUPT);
        *numbers[i] = before;
    }
    kit_close(&kit);
}

static void the_first_of_a_heap_are_in_order(void **state)
{
    (void)state;
    sched_kit kit;
    uint64_t random = 7;
    quire_sched_config config = one_runs(&kit, 8, 0);
    config.policy = QUIRE_POLICY_PRIORITY;
    config.max_requests = 64;
    kit_open(&kit, &config);
    uint32_t reqs[64], nearest[65], all[64];
    for (uint32_t n = 1; n <= 40; n++) {
        char id[3] = {(char)('A' + n / 26), (char)('a' + n % 26), '\0'};
        kit.params.priority = (int32_t)unit_random_below(&random, 4);
        kit.params.arrival_time = unit_random_below(&random, 6);
        kit_add(&kit, id, 4);
        assert_int_equal(qr_waiting_list(&kit.sched->queues.waiting, all), n);
        for (uint32_t most = 0; most <= n + 1; most++) {
            uint32_t count = qr_waiting_first(&kit.sched->queues.waiting, reqs, most, nearest);
            assert_int_equal(count, most < n ? most : n);
            assert_memory_equal(reqs, all, count * sizeof *reqs);
        }
    }
    kit_close(&kit);
}

static void what_is_refused(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched *none = NULL;
    quire_sched_config config = one_runs(&kit, 8, 0);
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    assert_int_equal(quire_sched_create(&config, NULL, &none), QUIRE_E_CONFIG);
    assert_string_equal(quire_refusal(),
                        "prefix_window is 8, but it needs the default profile with prefix caching");
    config.profile = QUIRE_PROFILE_DEFAULT;
    config.cache->enable_caching = QUIRE_OFF;
    assert_int_equal(quire_sched_create(&config, NULL, &none), QUIRE_E_CONFIG);
    config.cache->enable_caching = QUIRE_DEFAULT;
    config.prefix_window = 0;
    config.prefix_patience = 2;
    assert_int_equal(quire_sched_create(&config, NULL, &none), QUIRE_E_CONFIG);
    assert_string_equal(quire_refusal(), "prefix_patience is 2, but prefix_window is 0");
    quire_hasher_destroy(kit.hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_prefix_goes_first),
        cmocka_unit_test(nobody_waits_past_the_bound),
        cmocka_unit_test(equal_priorities_alone),
        cmocka_unit_test(together_with_what_is_computed_now),
        cmocka_unit_test(no_room_for_it_is_room_for_the_head),
        cmocka_unit_test(who_overtook_whom_is_told),
        cmocka_unit_test(nobody_overtakes_what_was_preempted),
        cmocka_unit_test(an_image_keeps_the_bound),
        cmocka_unit_test(an_image_keeps_the_bound_in_tokens),
        cmocka_unit_test(what_was_preempted_may_overtake),
#ifndef QUIRE_HOSTILE
        cmocka_unit_test(no_pages_for_one_that_does_not_overtake),
#endif
        cmocka_unit_test(the_walker_checks_the_bound),
        cmocka_unit_test(the_first_of_a_heap_are_in_order),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

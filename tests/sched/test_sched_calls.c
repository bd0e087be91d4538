/* Calls that end, cut and reset requests from outside: what they end, and that a call which is
 * refused has changed nothing. */
#include "base/quirks_kit.h"
#include "sched/retain/swap_kit.h"

static sched_kit kit;

static void open_default(void)
{
    quire_sched_config c = kit_config(&kit);
    kit_open(&kit, &c);
}

static void ends_from_outside(void **state)
{
    (void)state;
    open_default();
    quire_req reqs[4] = {kit_add(&kit, "a", 3), kit_add(&kit, "b", 3)};
    reqs[2] = reqs[0]; /* listed twice */
    const quire_req_status wrong[] = {QUIRE_REQ_RUNNING, QUIRE_REQ_PREEMPTED, (quire_req_status)0,
                                      (quire_req_status)13};
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(quire_sched_finish(kit.sched, reqs, 2, wrong[i], NULL), QUIRE_E_ARGUMENT);
    kit_run(&kit, 1);
    uint32_t count = 0;
    assert_int_equal(quire_sched_finish(kit.sched, reqs, 4, QUIRE_REQ_FINISHED_ABORTED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 2);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_running, 0);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 0);
    kit_step(&kit);
    assert_int_equal(kit.step->num_finished, 2);
    assert_int_equal(kit.step->finished[0], reqs[0]);
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_ABORTED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 0);
    kit_close(&kit);
}

/* data() of an empty std::vector is NULL: an empty list ends no request. */
static void finishes_none_of_an_empty_list(void **state)
{
    (void)state;
    open_default();
    kit_add(&kit, "a", 3);
    kit_add(&kit, "b", 3);
    uint32_t count = 7;
    assert_int_equal(quire_sched_finish(kit.sched, NULL, 0, QUIRE_REQ_FINISHED_ABORTED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 0);
    assert_int_equal(quire_sched_finish(kit.sched, NULL, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_finish_all(NULL, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_finish_all(kit.sched, QUIRE_REQ_RUNNING, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 2);
    assert_int_equal(quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_STOPPED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 2);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_unfinished, 0);
    kit_close(&kit);
}

/* The prompt fills the pool. With min_tokens above max_tokens the request ends after its first
 * token all the same, and needs no block for it; with the quirk it would go on. */
static void min_tokens_hides_length(void **state)
{
    (void)state;
    static const int STATUS[] = {QUIRE_OK, QUIRE_E_TOO_LONG};
    for (uint32_t has_quirk = 0; has_quirk < 2; has_quirk++) {
        quire_sched_config c = kit_config(&kit);
        c.cache->num_blocks = 9;
        quirks_change(has_quirk ? QR_QUIRK(MIN_TOKENS_HIDES_LENGTH) : 0, 0);
        kit_open(&kit, &c);
        quirks_change(0, 0);
        kit.params.max_tokens = 1;
        kit.params.min_tokens = 3;
        quire_req req;
        assert_int_equal(quire_sched_add(kit.sched, kit_params(&kit, "a", 32), &req),
                         STATUS[has_quirk]);
        kit_close(&kit);
    }
}

/* As many inputs wait as there are requests. Sessions that end give theirs back. */
static void a_session_ends_with_its_inputs(void **state)
{
    (void)state;
    open_default();
    for (uint32_t round = 0; round < 3; round++) {
        kit.params.is_resumable = 1;
        quire_req s = kit_add(&kit, "s", 3);
        kit.params.is_resumable = 0;
        for (uint32_t i = 0; i < KIT_REQUESTS; i++)
            assert_int_equal(quire_sched_continue(kit.sched, s, kit_params(&kit, "i", 3)),
                             QUIRE_OK);
        assert_int_equal(quire_sched_continue(kit.sched, s, kit_params(&kit, "i", 3)), QUIRE_FULL);
        assert_int_equal(quire_sched_finish(kit.sched, &s, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                         QUIRE_OK);
        kit_run(&kit, 1);
    }
    kit_close(&kit);
}

/* The session's text has one page of 1,024 tokens, and its input needs another one. */
static void a_session_grows_by_a_page(void **state)
{
    (void)state;
    static quire_token text[1000];
    quire_sched_config c = kit_config(&kit);
    c.cache->max_model_len = 4096;
    c.cache->num_blocks = 1100;
    c.max_num_batched_tokens = 4096;
    kit_open(&kit, &c);
    quire_request_params p = {.size = sizeof p,
                              .id = {"s", 1},
                              .prompt = text,
                              .num_prompt_tokens = COUNT(text),
                              .max_tokens = 1,
                              .is_resumable = 1};
    quire_req s;
    assert_int_equal(quire_sched_add(kit.sched, &p, &s), QUIRE_OK);
    kit_run(&kit, 1);
    assert_int_equal(kit_info(&kit, s).status, QUIRE_REQ_WAITING_FOR_STREAMING);
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_OK);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    kit_run(&kit, 1);
    assert_int_equal(kit_info(&kit, s).num_prompt_tokens, 2 * COUNT(text));
    kit_close(&kit);
}

/* ---- reset_prefix_cache ---------------------------------------------------- */

static uint32_t save_all(void *user, quire_req req, const quire_block_span *blocks,
                         uint32_t num_tokens, int is_urgent)
{
    (void)user;
    (void)req;
    (void)blocks;
    (void)is_urgent;
    return num_tokens;
}

/* A connector has the tokens of two requests that were preempted, until its cache is reset. */
static void a_reset_forgets_what_a_connector_has(void **state)
{
    (void)state;
    const quire_connector saver = {.size = sizeof(quire_connector), .request_preempted = save_all};
    quire_sched_config c = kit_config(&kit);
    c.connector = &saver;
    kit_open(&kit, &c);
    quire_req reqs[] = {kit_add(&kit, "a", 9), kit_add(&kit, "b", 9)};
    kit_run(&kit, 1);
    for (size_t i = 0; i < COUNT(reqs); i++) {
        assert_int_equal(quire_sched_preempt(kit.sched, reqs[i], QUIRE_PREEMPT_SWAP), QUIRE_OK);
        assert_int_equal(kit_info(&kit, reqs[i]).num_swapped_tokens, 9);
        assert_int_equal(kit_info(&kit, reqs[i]).location, QUIRE_LOCATION_HOST);
    }
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 1), QUIRE_OK);
    for (size_t i = 0; i < COUNT(reqs); i++) {
        assert_int_equal(kit_info(&kit, reqs[i]).num_swapped_tokens, 0);
        assert_int_equal(kit_info(&kit, reqs[i]).location, QUIRE_LOCATION_NONE);
    }
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "b:10 a:10");
    kit_close(&kit);
}

static uint64_t fixed_now(void *user)
{
    (void)user;
    return 1000;
}

static int is_sending(void *user, quire_req req, const quire_block_span *blocks)
{
    (void)req;
    (void)blocks;
    return *(int *)user;
}

static int num_connector_resets;
static int connector_answer;

static int reset_connector(void *user)
{
    (void)user;
    num_connector_resets++;
    return connector_answer;
}

static int keeps_sending;
static const quire_connector sender = {.size = sizeof(quire_connector),
                                       .user = &keeps_sending,
                                       .request_finished = is_sending,
                                       .reset_cache = reset_connector};

/* One request runs, one is pinned, one waits; with `sends`, one that ended is still being sent. */
static quire_req open_reset(const quire_connector *connector, uint64_t quirks_on, int sends)
{
    quire_sched_config c = kit_config(&kit);
    c.connector = connector;
    c.max_pins = 4;
    c.lookahead = 4;
    c.hooks.now_ns = fixed_now;
    c.max_num_seqs = 2;
    quirks_change(quirks_on, 0);
    kit_open(&kit, &c);
    quirks_change(0, 0);
    num_connector_resets = 0;
    connector_answer = 0;
    keeps_sending = 0;
    quire_req pinned = kit_add(&kit, "p", 9);
    assert_int_equal(quire_sched_pin(kit.sched, pinned, 1000000), QUIRE_OK);
    kit_run(&kit, 1);
    assert_int_equal(quire_sched_finish(kit.sched, &pinned, 1, QUIRE_REQ_FINISHED_STOPPED, NULL),
                     QUIRE_OK);
    quire_req a = kit_add(&kit, "a", 9);
    quire_req b = kit_add(&kit, "b", 9);
    kit_add(&kit, "c", 9);
    kit_run(&kit, 1);
    keeps_sending = sends;
    assert_int_equal(quire_sched_finish(kit.sched, &b, 1, QUIRE_REQ_FINISHED_STOPPED, NULL),
                     QUIRE_OK);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_RUNNING);
    return a;
}

static void check_reset(uint32_t reset_running, uint32_t reset_connector, int answer)
{
    kit_state before = kit_save(kit.sched);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, reset_running, reset_connector),
                     answer);
    kit_same(kit.sched, before);
}

static void a_reset_that_is_refused(void **state)
{
    (void)state;
    quire_req a = open_reset(&sender, 0, 1);
    check_reset(1, 0, QUIRE_BUSY);
    check_reset(1, 1, QUIRE_BUSY); /* blocks are still being sent */
    check_reset(0, 0, QUIRE_BUSY);
    assert_int_equal(num_connector_resets, 0);
    assert_int_equal(kit_info(&kit, a).num_computed_tokens, 9);
    kit_close(&kit);

    a = open_reset(&sender, 0, 0);
    check_reset(0, 1, QUIRE_BUSY); /* a runs */
    connector_answer = 1;
    check_reset(1, 1, QUIRE_BUSY); /* the connector refuses */
    assert_int_equal(num_connector_resets, 1);
    connector_answer = 0;
    quire_block held = 3;
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(kit.sched));
    assert_int_equal(quire_pool_hold(pool, &held, 1), QUIRE_OK);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 1), QUIRE_BUSY);
    assert_int_equal(quire_pool_let_go(pool, &held, 1, 1), QUIRE_OK);
    assert_int_equal(quire_pool_touch(pool, &held, 1), QUIRE_OK);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 1), QUIRE_BUSY);
    assert_int_equal(quire_pool_free_blocks(pool, &held, 1), QUIRE_OK);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_RUNNING);
    assert_int_equal(num_connector_resets, 1);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 1), QUIRE_OK);
    assert_int_equal(num_connector_resets, 2);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_PREEMPTED);
    assert_int_equal(quire_pool_get_counts(pool).num_keys, 0);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 0);
    kit_close(&kit);

    open_reset(NULL, 0, 0);
    check_reset(1, 1, QUIRE_E_ARGUMENT); /* there is no connector */
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    kit_close(&kit);
}

/* As vLLM 0.20.0: each part is done, and the answer says whether all were. */
static void reset_in_parts(void **state)
{
    (void)state;
    quire_req a = open_reset(&sender, QR_QUIRK(RESET_IN_PARTS), 1);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 1), QUIRE_BUSY);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_PREEMPTED);
    assert_int_equal(num_connector_resets, 1);
    kit_close(&kit);
    open_reset(NULL, QR_QUIRK(RESET_IN_PARTS), 0);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 1), QUIRE_BUSY);
    assert_int_equal(
        quire_pool_get_counts(quire_cache_get_pool(quire_sched_get_cache(kit.sched))).num_keys, 0);
    kit_close(&kit);
}

/* ---- cut_prompt ------------------------------------------------------------ */

/* A request that was preempted inside its prefill has no blocks, but its KV is in host slots. */
static void a_swapped_prompt_is_not_cut(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config c = crowd_config(&w);
    c.max_num_batched_tokens = 8;
    c.reserve_full_sequence = QUIRE_OFF;
    c.cache->num_blocks = 9;
    kit_open(&w.kit, &c);
    w.kit.params.max_tokens = 12;
    w.a = kit_add(&w.kit, "a", PROMPT);
    w.b = kit_add(&w.kit, "b", PROMPT);
    while (crowd_saved(&w, w.b) == 0) {
        kit_run(&w.kit, 1);
        assert_true(quire_sched_get_counts(w.kit.sched).num_running > 0);
    }
    quire_req_info info = kit_info(&w.kit, w.b);
    assert_int_equal(info.num_tokens, PROMPT); /* no output, */
    assert_int_equal(info.seq, 0);             /* and no blocks */
    kit_state before = kit_save(w.kit.sched);
    assert_int_equal(quire_sched_cut_prompt(w.kit.sched, w.b, 3, 0), QUIRE_E_ARGUMENT);
    kit_same(w.kit.sched, before);
    for (uint32_t i = 0; quire_sched_get_num_unfinished(w.kit.sched) > 0; i++) {
        assert_true(i < 100);
        kit_run(&w.kit, 1);
    }
    crowd_close(&w);
}

/* ---- callbacks ------------------------------------------------------------- */

static uint32_t num_refused;
static int cut_other;
static int cut_own;

static int cut_inside(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    (void)user;
    (void)num_local;
    *num_external = 0;
    *is_async = 0;
    quire_req other = quire_sched_find(kit.sched, (quire_bytes){"b", 1});
    if (other != req) {
        cut_other = quire_sched_cut_prompt(kit.sched, other, 2, 0);
        cut_own = quire_sched_cut_prompt(kit.sched, req, 5, 0);
    }
    return QUIRE_OK;
}

/* Everything that would change the scheduler is refused here. */
static void change_inside(void *user)
{
    (void)user;
    quire_sched *s = kit.sched;
    quire_req req = quire_sched_find(s, (quire_bytes){"b", 1});
    assert_true(req != 0);
    quire_req made = 0;
    size_t written = 0;
    char image[8];
    uint32_t one = 1;
    quire_token token = 1;
    const quire_step *step = NULL;
    const quire_outputs *outputs = NULL;
    const quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    sched_kit other = {0};
    const int answers[] = {
        quire_sched_add(s, kit_params(&other, "x", 3), &made),
        quire_sched_continue(s, req, NULL),
        quire_sched_cut_prompt(s, req, 2, 0),
        quire_sched_pin(s, req, 5),
        quire_sched_drop_pins(s),
        quire_sched_finish(s, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
        quire_sched_finish_all(s, QUIRE_REQ_FINISHED_ABORTED, NULL),
        quire_sched_schedule(s, &step),
        quire_sched_update(s, 1, &output, &outputs),
        quire_sched_forget_step(s, 1),
        quire_sched_update_drafts(s, &req, 1, &token, 1, &one),
        quire_sched_set_swap_costs(s, 1, 1),
        quire_sched_learn(s, QUIRE_COST_SWAP, 1, 1),
        quire_sched_learn(s, QUIRE_COST_COMPUTE, 1, 1),
        quire_sched_set_pause(s, QUIRE_PAUSED_ALL),
        quire_sched_reset_prefix_cache(s, 1, 0),
        quire_sched_reset_encoder_cache(s),
        quire_sched_save(s, image, sizeof image, &written),
    };
    quire_sched_destroy(s);
    for (size_t i = 0; i < COUNT(answers); i++)
        assert_int_equal(answers[i], QUIRE_E_ARGUMENT);
    num_refused++;
}

static void callbacks_change_nothing(void **state)
{
    (void)state;
    quire_connector connector = {.size = sizeof(quire_connector),
                                 .get_num_new_matched_tokens = cut_inside,
                                 .update_output = change_inside};
    quire_sched_config c = kit_config(&kit);
    c.connector = &connector;
    kit_open(&kit, &c);
    num_refused = 0;
    quire_req a = kit_add(&kit, "a", 9);
    kit_add(&kit, "b", 9);
    kit_step(&kit);
    assert_int_equal(cut_other, QUIRE_E_ARGUMENT);
    assert_int_equal(cut_own, QUIRE_OK);
    assert_int_equal(kit_info(&kit, a).num_prompt_tokens, 5);
    assert_string_equal(kit_shown_step(&kit), "a:5 b:9");
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(num_refused, 1);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_running, 2);
    kit_run(&kit, 1); /* afterwards calls are fine again */
    assert_int_equal(num_refused, 2);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(min_tokens_hides_length),
        cmocka_unit_test(a_session_ends_with_its_inputs),
        cmocka_unit_test(a_session_grows_by_a_page),
        cmocka_unit_test(a_reset_forgets_what_a_connector_has),
        cmocka_unit_test(a_reset_that_is_refused),
        cmocka_unit_test(reset_in_parts),
        cmocka_unit_test(a_swapped_prompt_is_not_cut),
        cmocka_unit_test(callbacks_change_nothing),
        cmocka_unit_test(ends_from_outside),
        cmocka_unit_test(finishes_none_of_an_empty_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Snapshots and decisions: every kind, and every reason, told as it happens and when it happens. */
#include "coverage/sched_kit.h"

#include "sched/sched.h"

static quire_mm_input image(const char *name, uint64_t offset, uint64_t length)
{
    return (quire_mm_input){.feature = {{name, strlen(name)}, offset, length}};
}

/* ---- held up --------------------------------------------------------------- */

static void grammar_that_is_not_compiled(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_use_grammar(&kit);
    sched_kit_open(&kit);
    quire_request_params p = sched_kit_params(&kit, "a", "aaaa");
    p.use_grammar = 1;
    quire_req a = sched_kit_add_params(&kit, &p);
    sched_kit_add(&kit, "b", "bbbb", 8);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up a grammar");
    assert_int_equal(kit.snapshot.num_skipped, 1);
    assert_int_equal(kit.snapshot.num_scheduled, 1);
    kit.is_ready = 1;
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    assert_int_equal(sched_kit_status(&kit, a), QUIRE_REQ_RUNNING);
    sched_kit_close(&kit);
}

static void load_that_has_not_arrived(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    kit.num_external = 4;
    kit.is_async = 1;
    quire_req a = sched_kit_add(&kit, "a", "aaaaaa", 8);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    assert_int_equal(kit.snapshot.num_external_tokens, 4);
    sched_kit_schedule(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up a loading");
    sched_kit_update(&kit, kit.step->step,
                     &(quire_model_output){.size = sizeof(quire_model_output),
                                           .finished_recving = &a,
                                           .num_finished_recving = 1});
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    assert_int_equal(kit.snapshot.num_new, 1);
    assert_int_equal(kit.snapshot.num_tokens, 2);
    sched_kit_close(&kit);
}

static void loads_have_a_limit(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    kit.config.max_loading = 1;
    sched_kit_open(&kit);
    kit.num_external = 4;
    kit.is_async = 1;
    quire_req a = sched_kit_add(&kit, "a", "aaaaaa", 8);
    sched_kit_add(&kit, "b", "bbbbbb", 8);
    sched_kit_schedule(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up b loading");
    assert_int_equal(kit.num_told, 1);
    sched_kit_update(&kit, kit.step->step,
                     &(quire_model_output){.size = sizeof(quire_model_output),
                                           .finished_recving = &a,
                                           .num_finished_recving = 1});
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    assert_int_equal(kit.num_told, 3); /* a runs, b loads */
    sched_kit_close(&kit);
}

static void session_without_input(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_open(&kit);
    quire_request_params p = sched_kit_params(&kit, "a", "aaaa");
    p.max_tokens = 1;
    p.is_resumable = 1;
    quire_req a = sched_kit_add_params(&kit, &p);
    sched_kit_step(&kit);
    assert_int_equal(sched_kit_status(&kit, a), QUIRE_REQ_WAITING_FOR_STREAMING);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up a streaming");
    sched_kit_close(&kit);
}

static void adapter_too_many(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.config.max_loras = 1;
    sched_kit_open(&kit);
    const char *const names[] = {"a", "b", "c", "d"};
    const uint32_t loras[] = {1, 2, 1, 0};
    for (uint32_t i = 0; i < 4; i++) {
        quire_request_params p = sched_kit_params(&kit, names[i], "aaaa");
        p.lora_id = loras[i];
        p.lora_name = (quire_bytes){loras[i] == 1 ? "one" : "two", loras[i] > 0 ? 3 : 0};
        sched_kit_add_params(&kit, &p);
    }
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up b lora");
    assert_int_equal(kit.step->num_reqs, 3);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up b lora");
    sched_kit_close(&kit);
}

static void connector_that_does_not_know_yet(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaaaa", 8);
    kit.matched_answer = QUIRE_RETRY;
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up a connector");
    assert_int_equal(kit.snapshot.num_scheduled, 0);
    kit.matched_answer = QUIRE_OK;
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    assert_int_equal(kit.snapshot.num_scheduled, 1);
    sched_kit_close(&kit);
}

/* ---- no room --------------------------------------------------------------- */

static void prompt_that_may_not_be_cut(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.config.max_num_batched_tokens = 6;
    kit.config.cache->max_model_len = 6;
    kit.config.enable_chunked_prefill = QUIRE_OFF;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaa", 8);
    sched_kit_add(&kit, "b", "bbbb", 8);
    sched_kit_add(&kit, "c", "c", 8);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "no_room b chunk 14");
    assert_int_equal(kit.step->num_reqs, 1); /* nobody overtakes b */
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    sched_kit_close(&kit);
}

static void images_beyond_the_budget(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.config.encoder_compute_budget = 4;
    kit.config.encoder_cache_size = 8;
    sched_kit_open(&kit);
    quire_mm_input images[2] = {image("x", 0, 4), image("y", 0, 4)};
    const char *const names[] = {"a", "b"};
    for (uint32_t i = 0; i < 2; i++) {
        quire_request_params p = sched_kit_params(&kit, names[i], "aaaaaa");
        p.mm_inputs = &images[i];
        p.num_mm_inputs = 1;
        sched_kit_add_params(&kit, &p);
    }
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "no_room b encoder 13");
    assert_int_equal(kit.step->encoder_start[1], 1);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    sched_kit_close(&kit);
}

static void states_are_not_kept_inside_a_block(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.groups[1].spec =
        (quire_layer_spec){.kind = QUIRE_LAYER_MAMBA,
                           .block_size = SCHED_KIT_BLOCK,
                           .states = {{.num_dims = 1, .dims = {16}, .dtype = QUIRE_DTYPE_FLOAT32}},
                           .mamba_mode = QUIRE_MAMBA_MODE_ALIGN};
    kit.config.cache->num_groups = 2;
    kit.config.max_num_batched_tokens = 6;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaa", 8);
    sched_kit_add(&kit, "b", "bbbbbbbb", 8);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "no_room b align 13");
    assert_true(kit.step->blocks_to_zero.count > 0);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    assert_int_equal(kit.step->num_tokens[1], 4);
    sched_kit_close(&kit);
}

#ifndef QUIRE_HOSTILE /* the numbers are for pages of 1,024 tokens */
/* Tokens are kept in pages of 1,024, here twelve. A session that runs has as many promised as the
 * model is long: with two of them there is no third. A session that waits for its user has not. */
static void idle_sessions_keep_no_pages_for_what_follows(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 2400);
    kit.config.cache->max_model_len = 4096;
    kit.config.max_num_batched_tokens = 4096;
    kit.config.max_num_seqs = 2;
    kit.config.max_requests = 4;
    kit.config.max_text_tokens = 1; /* four pages that wait, and four for each of two that run */
    sched_kit_open(&kit);
    static const char *const names[] = {"a", "b", "c", "d"};
    static char text[SCHED_KIT_PROMPTS];
    for (uint32_t i = 0; i < 4; i++) {
        memset(text, 0, sizeof text);
        memset(text, 'a' + (int)i, 1000);
        quire_request_params p = sched_kit_params(&kit, names[i], text);
        p.is_resumable = 1;
        p.max_tokens = 1;
        sched_kit_add_params(&kit, &p);
    }
    sched_kit_step(&kit); /* a and b stop, and wait for their users */
    assert_int_equal(kit.step->num_reqs, 2);
    sched_kit_told(&kit);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up a streaming; held_up b streaming");
    assert_int_equal(kit.step->num_reqs, 2);
    assert_int_equal(kit.step->reqs[0], kit.names[2].req);
    quire_request_params more = sched_kit_params(&kit, "a", "more");
    assert_int_equal(quire_sched_continue(kit.sched, kit.names[0].req, &more), QUIRE_OK);
    sched_kit_step(&kit);
    assert_int_equal(kit.step->reqs[0], kit.names[0].req);
    sched_kit_close(&kit);
}
#endif

static void too_few_blocks_for_the_next_one(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 5);
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaaaaaa", 8);
    sched_kit_add(&kit, "b", "bbbbbbbbb", 8);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "no_room b blocks 2");
    assert_int_equal(kit.snapshot.num_waiting, 1);
    sched_kit_close(&kit);
}

/* Nobody runs, and blocks are kept for a load: those behind the one that needs them do not wait. */
static void past_one_that_needs_what_is_being_loaded(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 6);
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    kit.num_external = 12;
    kit.is_async = 1;
    sched_kit_add(&kit, "a", "aaaaaaaaaaaaa", 4);
    sched_kit_step(&kit);
    kit.num_external = 0;
    sched_kit_add(&kit, "b", "bbbbbbbbbbbb", 4);
    sched_kit_add(&kit, "c", "cccc", 4);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "held_up a loading; no_room b blocks 2");
    assert_int_equal(kit.step->num_reqs, 1);
    assert_int_equal(kit.step->reqs[0], kit.names[2].req);
    sched_kit_step(&kit); /* somebody runs: b is next */
    assert_string_equal(sched_kit_told(&kit), "held_up a loading; no_room b blocks 0");
    sched_kit_close(&kit);
}

/* ---- taken away ------------------------------------------------------------ */

/* Four blocks: a and b have two each; the third of a is the second of b. */
static void preempted_for_another_and_for_nobody(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 5);
    kit.config.cache->enable_caching = QUIRE_OFF;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaaaaaa", 12);
    quire_req b = sched_kit_add(&kit, "b", "bbbbbbb", 12);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    sched_kit_schedule(&kit);
    assert_string_equal(sched_kit_told(&kit), "preempted b for a");
    assert_int_equal(kit.snapshot.num_preempted, 1);
    assert_int_equal(kit.step->preempted[0], b);
    sched_kit_close(&kit);

    sched_kit_init(&kit, 4);
    kit.config.cache->enable_caching = QUIRE_OFF;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaa", 12);
    sched_kit_add(&kit, "b", "bbbb", 12);
    sched_kit_step(&kit);
    sched_kit_step(&kit); /* a has the third block */
    assert_string_equal(sched_kit_told(&kit), "preempted b for b");
    sched_kit_close(&kit);
}

static void evicted_and_missed_later(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 5);
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaaaaaab", 1);
    sched_kit_step(&kit); /* it ends, two of its blocks stay cached */
    assert_string_equal(sched_kit_told(&kit), "");
    uint32_t num_events = kit.num_events;
    assert_true(num_events > 0); /* the caller's own events go on */
    sched_kit_add(&kit, "b", "bbbbbbbbbbbbb", 1);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "evicted for b; evicted for b");
    assert_true(kit.num_events > num_events);
    sched_kit_add(&kit, "c", "aaaaaaaab", 1);
    sched_kit_step(&kit);
    const char *told = sched_kit_told(&kit);
    assert_non_null(strstr(told, "evicted for c"));
    assert_non_null(strstr(told, "dropped c 2"));
    sched_kit_add(&kit, "d", "aaaaaaaab", 1); /* they are there again */
    sched_kit_step(&kit);
    assert_null(strstr(sched_kit_told(&kit), "dropped"));
    assert_int_equal(kit.snapshot.num_hit_tokens, 8);
    sched_kit_close(&kit);
}

/* With room for one ghost, the last block that was dropped is known. */
static void one_ghost_is_enough_for_one_block(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 5);
    kit.config.max_ghosts = 1;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaab", 1);
    sched_kit_step(&kit); /* one of its blocks stays cached */
    sched_kit_add(&kit, "b", "bbbbbbbbbbbbb", 1);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "evicted for b");
    sched_kit_add(&kit, "c", "aaaab", 1);
    sched_kit_step(&kit);
    assert_non_null(strstr(sched_kit_told(&kit), "dropped c 1"));
    sched_kit_close(&kit);
}

static void ghosts_are_what_is_nowhere_cached(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 5);
    sched_kit_open(&kit);
    qr_observer none = {0};
    unsigned char hash[16] = {1};
    assert_int_equal(qr_observer_count_ghosts(&none, hash, sizeof hash, sizeof hash, 1), 0);
    quire_block block = 1;
    quire_event event = {.size = sizeof(quire_event),
                         .kind = QUIRE_EVENT_REMOVED,
                         .num_blocks = 1,
                         .blocks = &block,
                         .hashes = hash,
                         .hash_bytes = sizeof hash};
    qr_observer_take_event(&none, &event);
    event.still_cached = 1; /* another block has the same content: nothing is lost */
    qr_observer_take_event(&kit.sched->observer, &event);
    assert_int_equal(
        qr_observer_count_ghosts(&kit.sched->observer, hash, sizeof hash, sizeof hash, 1), 0);
    event.still_cached = 0;
    qr_observer_take_event(&kit.sched->observer, &event);
    assert_int_equal(
        qr_observer_count_ghosts(&kit.sched->observer, hash, sizeof hash, sizeof hash, 1), 1);
    unsigned char apart[3 * sizeof hash]; /* the first and the third of three */
    memset(apart, 9, sizeof apart);
    memcpy(apart + 2 * sizeof hash, hash, sizeof hash);
    assert_int_equal(
        qr_observer_count_ghosts(&kit.sched->observer, apart, sizeof hash, 2 * sizeof hash, 2), 1);
    event.kind = QUIRE_EVENT_STORED; /* and it is back */
    qr_observer_take_event(&kit.sched->observer, &event);
    assert_int_equal(
        qr_observer_count_ghosts(&kit.sched->observer, hash, sizeof hash, sizeof hash, 1), 0);
    sched_kit_close(&kit);
}

static void request_that_outgrows_the_pool(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 3);
    sched_kit_open(&kit);
    quire_req a = sched_kit_add(&kit, "a", "aaaaaaa", 12);
    sched_kit_step(&kit);
    sched_kit_step(&kit);
    assert_string_equal(sched_kit_told(&kit), "");
    sched_kit_schedule(&kit);
    assert_string_equal(sched_kit_told(&kit), "outgrown a");
    assert_int_equal(kit.step->num_reqs, 0);
    assert_int_equal(kit.step->num_finished, 1);
    sched_kit_update(&kit, kit.step->step, NULL);
    assert_int_equal(sched_kit_output(&kit, a)->finish_reason, QUIRE_FINISH_LENGTH);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"a", 1}), 0);
    sched_kit_close(&kit);
}

/* ---- numbers --------------------------------------------------------------- */

static void snapshot_counts_a_step(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 32);
    kit.config.num_spec_tokens = 2;
    kit.config.max_num_batched_tokens = 12;
    sched_kit_open(&kit);
    quire_req a = sched_kit_add(&kit, "a", "aaaa", 8);
    sched_kit_step(&kit);
    quire_token drafts[2] = {'x', 'y'};
    uint32_t num_drafts = 2;
    assert_int_equal(quire_sched_update_drafts(kit.sched, &a, 1, drafts, 2, &num_drafts), QUIRE_OK);
    sched_kit_add(&kit, "b", "bbbbbbbbbbbbbbbb", 8);
    sched_kit_add(&kit, "c", "cccc", 8);
    sched_kit_schedule(&kit);
    const quire_snapshot *s = &kit.snapshot;
    assert_int_equal(s->step, 2);
    assert_int_equal(s->time_ns, 7);
    assert_int_equal(s->num_running, 2);
    assert_int_equal(s->num_waiting, 1);
    assert_int_equal(s->num_skipped, 0);
    assert_int_equal(s->num_scheduled, 2);
    assert_int_equal(s->num_new, 1);
    assert_int_equal(s->num_resumed, 0);
    assert_int_equal(s->num_tokens, 12);
    assert_int_equal(s->num_prefill_tokens, 9);
    assert_int_equal(s->num_draft_tokens, 2);
    assert_int_equal(s->blocks.active, 2 + 3);
    sched_kit_update(&kit, 2, NULL);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    sched_kit_step(&kit);
    assert_int_equal(s->num_resumed, 2);
    assert_int_equal(kit.num_snapshots, 3);
    sched_kit_close(&kit);
}

static void snapshot_of_a_prompt_in_parts(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 32);
    kit.config.max_num_batched_tokens = 12;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 8);
    static const uint32_t prefill[] = {12, 12, 6, 0};
    static const uint32_t tokens[] = {12, 12, 6, 1};
    for (uint32_t i = 0; i < 4; i++) {
        sched_kit_step(&kit);
        assert_int_equal(kit.snapshot.num_tokens, tokens[i]);
        assert_int_equal(kit.snapshot.num_prefill_tokens, prefill[i]);
        assert_int_equal(kit.snapshot.num_new, i == 0);
    }
    sched_kit_close(&kit);
}

static void nobody_has_to_look(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 3);
    kit.config.on_decision = NULL;
    kit.config.on_snapshot = NULL;
    kit.config.max_ghosts = 0;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaaaaa", 12);
    for (uint32_t i = 0; i < 3; i++)
        sched_kit_step(&kit);
    assert_int_equal(kit.num_snapshots, 0);
    assert_string_equal(sched_kit_told(&kit), "");
    assert_true(kit.num_events > 0);
    sched_kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammar_that_is_not_compiled),
        cmocka_unit_test(load_that_has_not_arrived),
        cmocka_unit_test(loads_have_a_limit),
        cmocka_unit_test(session_without_input),
        cmocka_unit_test(adapter_too_many),
        cmocka_unit_test(connector_that_does_not_know_yet),
        cmocka_unit_test(prompt_that_may_not_be_cut),
        cmocka_unit_test(images_beyond_the_budget),
        cmocka_unit_test(states_are_not_kept_inside_a_block),
#ifndef QUIRE_HOSTILE
        cmocka_unit_test(idle_sessions_keep_no_pages_for_what_follows),
#endif
        cmocka_unit_test(too_few_blocks_for_the_next_one),
        cmocka_unit_test(past_one_that_needs_what_is_being_loaded),
        cmocka_unit_test(preempted_for_another_and_for_nobody),
        cmocka_unit_test(evicted_and_missed_later),
        cmocka_unit_test(one_ghost_is_enough_for_one_block),
        cmocka_unit_test(ghosts_are_what_is_nowhere_cached),
        cmocka_unit_test(request_that_outgrows_the_pool),
        cmocka_unit_test(snapshot_counts_a_step),
        cmocka_unit_test(snapshot_of_a_prompt_in_parts),
        cmocka_unit_test(nobody_has_to_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

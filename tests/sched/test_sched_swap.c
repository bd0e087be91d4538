/* sched/test_sched_swap.c - preempted requests whose KV is kept in host slots.
 *
 *      16 blocks of 4     a, b and c have prompts of 20 tokens: 5 blocks each, one is free
 *      the second step    a takes it, b needs one too: c goes, with 20 tokens computed of its 21
 *
 * Contents are followed by the simulation (sched/sim.h); here is what is decided and told.
 */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { PROMPT = 20, VICTIM_BLOCKS = 5, SLOTS = 16 };

typedef struct crowd {
    sched_kit kit;
    quire_req a;
    quire_req b;
    quire_req c;
} crowd;

static quire_sched_config swap_config(crowd *w)
{
    quire_sched_config config = kit_config(&w->kit);
    config.num_swap_blocks = SLOTS;
    return config;
}

static void add_all(crowd *w)
{
    w->a = kit_add(&w->kit, "a", PROMPT);
    w->kit.params.arrival_time = 1;
    w->b = kit_add(&w->kit, "b", PROMPT);
    w->kit.params.arrival_time = 2;
    w->c = kit_add(&w->kit, "c", PROMPT);
}

/* Up to the step in which c goes. */
static void open_crowd(crowd *w, const quire_sched_config *config)
{
    kit_open(&w->kit, config);
    add_all(w);
    kit_run(&w->kit, 1);
    assert_string_equal(kit_shown_step(&w->kit), "a:20 b:20 c:20");
    kit_step(&w->kit);
    assert_int_equal(w->kit.step->num_preempted, 1);
    assert_true(w->kit.step->preempted[0] == w->c);
}

static void end(crowd *w, quire_req req)
{
    assert_int_equal(quire_sched_finish(w->kit.sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
}

static void close_crowd(crowd *w)
{
    quire_sched_finish(w->kit.sched, NULL, 0, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(w->kit.sched->swap.num_free, w->kit.sched->swap.num_slots);
    kit_close(&w->kit);
}

static uint32_t saved_of(const crowd *w, quire_req req)
{
    return kit_info(&w->kit, req).num_swapped_tokens;
}

/* ---- out and in ------------------------------------------------------------- */

static void a_victim_is_kept_and_resumed(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    config.cache.enable_caching = QUIRE_OFF; /* nothing is found again */
    open_crowd(&w, &config);
    assert_int_equal(w.kit.step->num_swap_out, VICTIM_BLOCKS);
    assert_int_equal(w.kit.step->num_swap_in, 0);
    for (uint32_t i = 0; i < VICTIM_BLOCKS; i++) {
        assert_int_equal(w.kit.step->swap_out_blocks[i], 11 + i);
        assert_int_equal(w.kit.step->swap_out_slots[i], i);
    }
    quire_req_info info = kit_info(&w.kit, w.c);
    assert_int_equal(info.num_swapped_tokens, PROMPT);
    assert_int_equal(info.status, QUIRE_REQ_PREEMPTED);
    assert_int_equal(info.num_computed_tokens, 0);
    kit_answer(&w.kit, w.kit.step->step, 1);

    kit_run(&w.kit, 1); /* there is no room for c */
    assert_int_equal(w.kit.step->num_swap_out + w.kit.step->num_swap_in, 0);
    end(&w, w.a);
    kit_step(&w.kit);
    const quire_step *step = w.kit.step;
    assert_string_equal(kit_shown_step(&w.kit), "b:1 c:1");
    assert_int_equal(step->kinds[1], QUIRE_STEP_RESUMED);
    assert_int_equal(step->num_computed_tokens[1], PROMPT);
    assert_int_equal(step->num_swap_in, VICTIM_BLOCKS);
    for (uint32_t i = 0; i < VICTIM_BLOCKS; i++) {
        assert_int_equal(step->swap_in_slots[i], i);
        assert_int_equal(step->swap_in_blocks[i], step->blocks[1].ids[i]);
    }
    assert_int_equal(saved_of(&w, w.c), 0);
    assert_int_equal(w.kit.sched->swap.num_free, SLOTS);
    close_crowd(&w);
}

static void what_is_still_cached_is_not_moved(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    open_crowd(&w, &config);
    kit_answer(&w.kit, w.kit.step->step, 1);
    end(&w, w.a);
    kit_step(&w.kit);
    const quire_step *step = w.kit.step; /* b took the last of c's blocks; four are still there */
    assert_string_equal(kit_shown_step(&w.kit), "b:1 c:1");
    assert_int_equal(step->num_computed_tokens[1], PROMPT);
    assert_int_equal(step->num_swap_in, 1);
    assert_int_equal(step->swap_in_slots[0], VICTIM_BLOCKS - 1);
    assert_int_equal(step->swap_in_blocks[0], step->blocks[1].ids[VICTIM_BLOCKS - 1]);
    assert_int_equal(step->blocks[1].ids[0], 11);
    close_crowd(&w);
}

/* What came in is found by others in the same step. */
static void what_is_moved_in_has_its_keys(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    open_crowd(&w, &config);
    kit_answer(&w.kit, w.kit.step->step, 1);
    end(&w, w.a);
    w.kit.params.cache_salt = (quire_bytes){NULL, 0};
    kit_params(&w.kit, "c", PROMPT);
    quire_request_params same = w.kit.params;
    same.id = (quire_bytes){"d", 1};
    same.prompt = w.kit.prompt;
    w.kit.prompt[PROMPT] = 77; /* a token more: the fifth block is full and can be found */
    same.num_prompt_tokens = PROMPT + 1;
    quire_req d;
    assert_int_equal(quire_sched_add(w.kit.sched, &same, &d), QUIRE_OK);
    kit_step(&w.kit);
    assert_string_equal(kit_shown_step(&w.kit), "b:1 c:1 d:1");
    assert_int_equal(w.kit.step->num_swap_in, 1);
    assert_int_equal(w.kit.step->num_computed_tokens[2], PROMPT);
    close_crowd(&w);
}

/* ---- whether ---------------------------------------------------------------- */

static uint32_t blocks_swapped_with(uint32_t num_slots, uint64_t block_ns, uint64_t token_ns)
{
    crowd w;
    quire_sched_config config = swap_config(&w);
    config.num_swap_blocks = num_slots;
    config.swap_block_ns = block_ns;
    config.recompute_token_ns = token_ns;
    open_crowd(&w, &config);
    uint32_t n = w.kit.step->num_swap_out;
    assert_int_equal(saved_of(&w, w.c), n > 0 ? PROMPT : 0);
    close_crowd(&w);
    return n;
}

static void cost_and_slots_decide(void **state)
{
    (void)state;
    assert_int_equal(blocks_swapped_with(SLOTS, 1, 1), VICTIM_BLOCKS); /* 2 * 5 * 1 < 20 * 1 */
    assert_int_equal(blocks_swapped_with(SLOTS, 2, 1), 0);             /* 20 and 20 */
    assert_int_equal(blocks_swapped_with(SLOTS, 19, 10), VICTIM_BLOCKS);
    assert_int_equal(blocks_swapped_with(SLOTS, 0, 0), VICTIM_BLOCKS);
    assert_int_equal(blocks_swapped_with(VICTIM_BLOCKS, 0, 0), VICTIM_BLOCKS);
    assert_int_equal(blocks_swapped_with(VICTIM_BLOCKS - 1, 0, 0), 0);
    assert_int_equal(blocks_swapped_with(0, 0, 0), 0);
}

/* All that c has is also a's: giving it up frees nothing, and it will be found. */
static void what_others_hold_is_not_kept(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    config.async_scheduling = QUIRE_ON;
    config.cache.num_blocks = 11;
    kit_open(&w.kit, &config);
    w.a = kit_add(&w.kit, "a", 17);
    w.b = kit_add(&w.kit, "b", 15);
    kit_run(&w.kit, 1);
    quire_request_params same = *kit_params(&w.kit, "a", 17);
    same.id = (quire_bytes){"c", 1};
    assert_int_equal(quire_sched_add(w.kit.sched, &same, &w.c), QUIRE_OK);
    kit_step(&w.kit); /* c has a's first four blocks, and one for its 17th token */
    assert_string_equal(kit_shown_step(&w.kit), "a:1 b:1 c:1");
    kit_step(&w.kit); /* b needs a fifth block; of c's 17 tokens the last is in flight */
    assert_true(w.kit.step->preempted[0] == w.c);
    assert_int_equal(kit_info(&w.kit, w.c).status, QUIRE_REQ_PREEMPTED);
    assert_int_equal(w.kit.step->num_swap_out, 0);
    close_crowd(&w);
}

static void configs_that_cannot_swap_are_refused(void **state)
{
    (void)state;
    crowd w;
    const quire_sched_config right = swap_config(&w);
    quire_sched_config wrong[8];
    for (size_t i = 0; i < COUNT(wrong); i++)
        wrong[i] = right;
    wrong[0].profile = QUIRE_PROFILE_VLLM_0_20;
    wrong[1].quirks_on = QUIRE_QUIRK(STALE_OUTPUTS);
    wrong[2].quirks_on = QUIRE_QUIRK(FAILED_BLOCKS_STAY);
    wrong[3].cache.max_copies = 4;
    wrong[4].num_swap_blocks = (1u << 28) + 1;
    wrong[5].swap_block_ns = UINT64_C(1) << 32;
    wrong[6].recompute_token_ns = UINT64_C(1) << 32;
    quire_group_config states = {.spec = {.kind = QUIRE_LAYER_MAMBA, .block_size = KIT_BLOCK}};
    states.spec.states[0] = (quire_state){.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16};
    wrong[7].cache.groups = &states;
    assert_true(quire_sched_bytes(&right) > 0);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(quire_sched_create(&wrong[i], NULL, &w.kit.sched), QUIRE_E_CONFIG);
        wrong[i].num_swap_blocks = 0;
        assert_true(quire_sched_bytes(&wrong[i]) > 0);
    }
    kit_open(&w.kit, &right);
    kit_close(&w.kit);
}

/* ---- the queue -------------------------------------------------------------- */

/* With slots for one of two victims: the one that is kept comes first, though the other was
 * preempted later. */
static void swapped_ones_come_first(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    config.num_swap_blocks = VICTIM_BLOCKS;
    open_crowd(&w, &config);
    quire_request_params held = *kit_params(&w.kit, "h", 4);
    held.use_grammar = 1;
    quire_req h;
    assert_int_equal(quire_sched_add(w.kit.sched, &held, &h), QUIRE_OK);
    kit_add(&w.kit, "d", 4);
    kit_answer(&w.kit, w.kit.step->step, 1);
    assert_string_equal(kit_shown_queue(&w.kit, 1), "c d");
    for (uint32_t i = 0; kit_info(&w.kit, w.b).status == QUIRE_REQ_RUNNING && i < 20; i++)
        kit_run(&w.kit, 1);
    assert_int_equal(saved_of(&w, w.b), 0);
    assert_int_equal(saved_of(&w, w.c), PROMPT);
    assert_string_equal(kit_shown_queue(&w.kit, 1), "c b d");
    assert_string_equal(kit_shown_queue(&w.kit, 2), "h"); /* in FCFS before those that wait */
    end(&w, w.a);
    kit_step(&w.kit);
    assert_true(w.kit.step->num_reqs >= 3);
    assert_true(w.kit.step->reqs[0] == w.c);
    assert_true(w.kit.step->reqs[1] == h);
    assert_true(w.kit.step->reqs[2] == w.b);
    close_crowd(&w);
}

static void add_urgent(crowd *w, const char *id, uint32_t n, int32_t priority, double arrival)
{
    w->kit.params.priority = priority;
    w->kit.params.arrival_time = arrival;
    quire_req req = kit_add(&w->kit, id, n);
    *(id[0] == 'a' ? &w->a : id[0] == 'b' ? &w->b : &w->c) = req;
}

static void priority_comes_before_being_swapped(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    config.policy = QUIRE_POLICY_PRIORITY;
    kit_open(&w.kit, &config);
    add_urgent(&w, "a", PROMPT, 0, 1);
    add_urgent(&w, "b", PROMPT, 0, 2);
    add_urgent(&w, "c", PROMPT, 1, 9);
    quire_req c = w.c;
    kit_run(&w.kit, 1);
    kit_run(&w.kit, 1);
    assert_int_equal(saved_of(&w, c), PROMPT);
    add_urgent(&w, "d", 30, 1, 3);
    add_urgent(&w, "e", 30, 0, 8);
    add_urgent(&w, "f", 30, 2, 0);
    assert_string_equal(kit_shown_queue(&w.kit, 1), "e c d f");
    close_crowd(&w);
}

/* ---- what does not count ---------------------------------------------------- */

static void tokens_in_flight_are_not_kept(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    config.async_scheduling = QUIRE_ON;
    kit_open(&w.kit, &config);
    add_all(&w);
    kit_step(&w.kit);
    uint64_t first = w.kit.step->step;
    kit_step(&w.kit); /* the first tokens are not known */
    assert_true(w.kit.step->preempted[0] == w.c);
    assert_int_equal(w.kit.step->num_swap_out, VICTIM_BLOCKS);
    assert_int_equal(saved_of(&w, w.c), PROMPT - 1);
    uint64_t second = w.kit.step->step;
    kit_answer(&w.kit, first, 1);
    assert_int_equal(w.kit.outputs->num_outputs, 2); /* c's is void */
    kit_answer(&w.kit, second, 1);
    end(&w, w.a);
    kit_step(&w.kit);
    assert_string_equal(kit_shown_step(&w.kit), "b:1 c:1");
    assert_int_equal(w.kit.step->num_computed_tokens[1], PROMPT - 1);
    kit_answer(&w.kit, w.kit.step->step, 5);
    assert_int_equal(kit_info(&w.kit, w.c).num_tokens, PROMPT + 1);
    close_crowd(&w);
}

/* b is in its prompt, 4 tokens a step, so that it can go on while c's step is in flight. */
static void drafts_in_flight_are_not_kept(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    config.num_spec_tokens = 2;
    config.long_prefill_token_threshold = 4;
    config.reserve_full_sequence = QUIRE_OFF;
    config.cache.num_blocks = 13;
    kit_open(&w.kit, &config);
    w.b = kit_add(&w.kit, "b", 44);
    w.c = kit_add(&w.kit, "c", 18);
    for (uint32_t i = 0; i < 5; i++)
        kit_run(&w.kit, 1);
    const quire_token drafts[] = {5, 5};
    const uint32_t num_drafts = 2;
    assert_int_equal(quire_sched_update_drafts(w.kit.sched, &w.c, 1, drafts, 2, &num_drafts),
                     QUIRE_OK);
    kit_step(&w.kit);
    assert_string_equal(kit_shown_step(&w.kit), "b:4 c:3");
    assert_int_equal(kit_info(&w.kit, w.c).num_computed_tokens, 21);
    kit_step(&w.kit);
    assert_string_equal(kit_shown_step(&w.kit), "b:4");
    assert_true(w.kit.step->preempted[0] == w.c);
    assert_int_equal(w.kit.step->num_swap_out, 5);
    assert_int_equal(saved_of(&w, w.c), 18); /* of 19 that are known */
    close_crowd(&w);
}

static int match_half(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    (void)user;
    (void)req;
    *num_external = num_local < PROMPT / 2 ? PROMPT / 2 - num_local : 0;
    *is_async = 0;
    return QUIRE_OK;
}

/* Until the update says that a load came, what lies behind it is worth nothing. */
static void loads_that_may_fail_are_not_kept(void **state)
{
    (void)state;
    for (uint32_t is_known = 0; is_known < 2; is_known++) {
        crowd w;
        quire_sched_config config = swap_config(&w);
        const quire_connector connector = {.get_num_new_matched_tokens = match_half};
        config.connector = &connector;
        config.async_scheduling = QUIRE_ON;
        kit_open(&w.kit, &config);
        add_all(&w);
        kit_step(&w.kit);
        assert_string_equal(kit_shown_step(&w.kit), "a:10 b:10 c:10");
        if (is_known)
            kit_answer(&w.kit, w.kit.step->step, 1);
        kit_step(&w.kit);
        assert_true(w.kit.step->preempted[0] == w.c);
        assert_int_equal(w.kit.step->num_swap_out, is_known ? VICTIM_BLOCKS : 0);
        close_crowd(&w);
    }
}

/* ---- groups ----------------------------------------------------------------- */

/* A window of 8 tokens beside full attention, in blocks of 4 and 8: of 40 tokens the next one looks
 * at 33 to 39 there, blocks 8 and 9. */
static void windows_keep_what_they_need(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    quire_group_config groups[2] = {w.kit.group, w.kit.group};
    groups[0].spec.block_size = 8;
    groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    groups[1].spec.sliding_window = 8;
    config.cache.groups = groups;
    config.cache.num_groups = 2;
    config.cache.enable_caching = QUIRE_OFF;
    config.cache.num_blocks = 25; /* 5 and 3 blocks for each */
    kit_open(&w.kit, &config);
    add_all(&w);
    quire_block rows[2][KIT_LEN];
    do {
        quire_block_span now[2];
        assert_int_equal(quire_sched_get_blocks(w.kit.sched, w.c, now), QUIRE_OK);
        for (uint32_t g = 0; g < 2 && now[g].count > 0; g++)
            memcpy(rows[g], now[g].ids, now[g].count * sizeof *rows[g]);
        kit_run(&w.kit, 1);
    } while (kit_info(&w.kit, w.c).status == QUIRE_REQ_RUNNING);
    const quire_step *step = w.kit.step;
    assert_int_equal(saved_of(&w, w.c), 40);
    assert_int_equal(step->num_swap_out, 7);
    assert_memory_equal(step->swap_out_blocks, rows[0], 5 * sizeof *rows[0]);
    assert_memory_equal(step->swap_out_blocks + 5, rows[1] + 8, 2 * sizeof *rows[1]);

    end(&w, w.a);
    kit_step(&w.kit);
    step = w.kit.step;
    assert_true(step->reqs[1] == w.c);
    assert_int_equal(step->num_computed_tokens[1], 40);
    const quire_block_span *full = &step->blocks[2];
    const quire_block_span *window = &step->blocks[3];
    assert_int_equal(window->ids[7], QUIRE_NULL_BLOCK);
    assert_int_not_equal(window->ids[8], QUIRE_NULL_BLOCK);
    assert_int_equal(step->num_swap_in, 7);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(step->swap_in_slots[i], i);
        assert_int_equal(step->swap_in_blocks[i], i < 5 ? full->ids[i] : window->ids[i + 3]);
    }
    close_crowd(&w);
}

/* ---- ends ------------------------------------------------------------------- */

static void slots_come_back_with_the_end(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    open_crowd(&w, &config);
    assert_int_equal(w.kit.sched->swap.num_free, SLOTS - VICTIM_BLOCKS);
    end(&w, w.c);
    assert_int_equal(w.kit.sched->swap.num_free, SLOTS);
    assert_int_equal(quire_sched_check(w.kit.sched), QUIRE_OK);
    close_crowd(&w);
}

static void a_reset_forgets_what_is_kept(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < 2; policy++) {
        crowd w;
        quire_sched_config config = swap_config(&w);
        config.policy = (quire_policy)policy;
        open_crowd(&w, &config);
        kit_answer(&w.kit, w.kit.step->step, 1);
        assert_int_equal(quire_sched_reset_prefix_cache(w.kit.sched, 0, 0), QUIRE_BUSY);
        assert_int_equal(saved_of(&w, w.c), PROMPT);
        assert_int_equal(quire_sched_reset_prefix_cache(w.kit.sched, 1, 0), QUIRE_OK);
        assert_int_equal(saved_of(&w, w.c), 0);
        assert_int_equal(w.kit.sched->swap.num_free, SLOTS);
        assert_string_equal(kit_shown_queue(&w.kit, 1), "a b c");
        kit_step(&w.kit);
        assert_int_equal(w.kit.step->num_swap_in, 0);
        assert_int_equal(w.kit.step->num_computed_tokens[0], 0);
        close_crowd(&w);
    }
}

/* ---- seen from outside ------------------------------------------------------ */

typedef struct seen {
    quire_snapshot last;
    uint32_t num_swapped;
    quire_decision swapped;
    bool was_preempted;
} seen;

static void note_snapshot(void *user, const quire_snapshot *snapshot)
{
    ((seen *)user)->last = *snapshot;
}

static void note_decision(void *user, const quire_decision *decision)
{
    seen *to = user;
    if (decision->kind == QUIRE_DECISION_SWAPPED) {
        assert_false(to->was_preempted);
        to->swapped = *decision;
        to->num_swapped++;
    }
    to->was_preempted = to->was_preempted || decision->kind == QUIRE_DECISION_PREEMPTED;
}

static void snapshots_and_decisions_tell(void **state)
{
    (void)state;
    crowd w;
    seen told = {0};
    quire_sched_config config = swap_config(&w);
    config.on_snapshot = note_snapshot;
    config.on_decision = note_decision;
    config.observer = &told;
    open_crowd(&w, &config);
    assert_int_equal(told.num_swapped, 1);
    assert_true(told.was_preempted && told.swapped.req == w.c);
    assert_int_equal(told.swapped.num, VICTIM_BLOCKS);
    assert_int_equal(told.last.num_swapped_out_blocks, VICTIM_BLOCKS);
    assert_int_equal(told.last.num_swapped_in_blocks, 0);
    assert_int_equal(told.last.num_swapped, 1);
    assert_int_equal(told.last.num_free_swap_blocks, SLOTS - VICTIM_BLOCKS);
    kit_answer(&w.kit, w.kit.step->step, 1);
    end(&w, w.a);
    kit_step(&w.kit);
    assert_int_equal(told.last.num_swapped_out_blocks, 0);
    assert_int_equal(told.last.num_swapped_in_blocks, 1);
    assert_int_equal(told.last.num_swapped, 0);
    assert_int_equal(told.last.num_free_swap_blocks, SLOTS);
    close_crowd(&w);
}

static void images_have_the_slots(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = swap_config(&w);
    open_crowd(&w, &config);
    kit_answer(&w.kit, w.kit.step->step, 1);
    size_t bytes = quire_sched_image_bytes(w.kit.sched);
    void *image = malloc(bytes);
    assert_non_null(image);
    assert_int_equal(quire_sched_save(w.kit.sched, image, bytes, &bytes), QUIRE_OK);
    quire_sched_destroy(w.kit.sched);
    assert_int_equal(quire_sched_restore(&config, NULL, image, bytes, &w.kit.sched), QUIRE_OK);
    free(image);
    assert_int_equal(saved_of(&w, w.c), PROMPT);
    assert_int_equal(w.kit.sched->swap.num_free, SLOTS - VICTIM_BLOCKS);
    end(&w, w.a);
    kit_step(&w.kit);
    assert_string_equal(kit_shown_step(&w.kit), "b:1 c:1");
    assert_int_equal(w.kit.step->num_swap_in, 1);
    assert_int_equal(w.kit.step->swap_in_slots[0], VICTIM_BLOCKS - 1);
    close_crowd(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_victim_is_kept_and_resumed),
        cmocka_unit_test(what_is_still_cached_is_not_moved),
        cmocka_unit_test(what_is_moved_in_has_its_keys),
        cmocka_unit_test(cost_and_slots_decide),
        cmocka_unit_test(what_others_hold_is_not_kept),
        cmocka_unit_test(configs_that_cannot_swap_are_refused),
        cmocka_unit_test(swapped_ones_come_first),
        cmocka_unit_test(priority_comes_before_being_swapped),
        cmocka_unit_test(tokens_in_flight_are_not_kept),
        cmocka_unit_test(drafts_in_flight_are_not_kept),
        cmocka_unit_test(loads_that_may_fail_are_not_kept),
        cmocka_unit_test(windows_keep_what_they_need),
        cmocka_unit_test(slots_come_back_with_the_end),
        cmocka_unit_test(a_reset_forgets_what_is_kept),
        cmocka_unit_test(snapshots_and_decisions_tell),
        cmocka_unit_test(images_have_the_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

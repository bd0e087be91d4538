/* sched/retain/test_sched_swap.c - who is swapped, when it is resumed, and which blocks move. */
#include "sched/retain/swap_kit.h"

/* ---- out and in ------------------------------------------------------------- */

static void a_victim_is_kept_and_resumed(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    config.cache->enable_caching = QUIRE_OFF; /* nothing is found again */
    crowd_open(&w, &config);
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
    crowd_end(&w, w.a);
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
    assert_int_equal(crowd_saved(&w, w.c), 0);
    assert_int_equal(w.kit.sched->swap.num_free, SLOTS);
    crowd_close(&w);
}

static void what_is_still_cached_is_not_moved(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    crowd_open(&w, &config);
    kit_answer(&w.kit, w.kit.step->step, 1);
    crowd_end(&w, w.a);
    kit_step(&w.kit);
    const quire_step *step = w.kit.step; /* b took the last of c's blocks; four are still there */
    assert_string_equal(kit_shown_step(&w.kit), "b:1 c:1");
    assert_int_equal(step->num_computed_tokens[1], PROMPT);
    assert_int_equal(step->num_swap_in, 1);
    assert_int_equal(step->swap_in_slots[0], VICTIM_BLOCKS - 1);
    assert_int_equal(step->swap_in_blocks[0], step->blocks[1].ids[VICTIM_BLOCKS - 1]);
    assert_int_equal(step->blocks[1].ids[0], 11);
    crowd_close(&w);
}

/* What came in is found by others in the same step. */
static void what_is_moved_in_has_its_keys(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    crowd_open(&w, &config);
    kit_answer(&w.kit, w.kit.step->step, 1);
    crowd_end(&w, w.a);
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
    crowd_close(&w);
}

/* ---- whether ---------------------------------------------------------------- */

static uint64_t setup_ns;

static uint32_t blocks_swapped_with(uint32_t num_slots, uint64_t block_ns, uint64_t token_ns)
{
    crowd w;
    quire_sched_config config = crowd_config(&w);
    config.num_swap_blocks = num_slots;
    config.swap_block_ns = block_ns;
    config.recompute_token_ns = token_ns;
    config.swap_setup_ns = setup_ns;
    crowd_open(&w, &config);
    uint32_t n = w.kit.step->num_swap_out;
    assert_int_equal(crowd_saved(&w, w.c), n > 0 ? PROMPT : 0);
    crowd_close(&w);
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

/* 2 * (setup + 5 * 10) < 20 * 10, up to a setup of 49. */
static void setting_up_costs_too(void **state)
{
    (void)state;
    for (setup_ns = 48; setup_ns <= 51; setup_ns++)
        assert_int_equal(blocks_swapped_with(SLOTS, 10, 10), setup_ns < 50 ? VICTIM_BLOCKS : 0);
    setup_ns = 0;
}

static void restore(sched_kit *kit, const quire_sched_config *config)
{
    size_t bytes = quire_sched_image_bytes(kit->sched);
    void *image = malloc(bytes);
    quire_sched *other = NULL;
    assert_int_equal(quire_sched_save(kit->sched, image, bytes, &bytes), QUIRE_OK);
    assert_int_equal(quire_sched_restore(config, NULL, image, bytes, &other), QUIRE_OK);
    quire_sched_destroy(kit->sched);
    kit->sched = other;
    free(image);
}

/* Moves that took setup + n * block_ns, and steps that took token_ns for each token, are learned,
 * and an image keeps the costs. */
static uint32_t blocks_swapped_after(uint64_t setup, uint64_t block_ns, uint64_t token_ns,
                                     bool is_restored)
{
    crowd w;
    quire_sched_config config = crowd_config(&w);
    config.cache->enable_caching = QUIRE_OFF;
    config.swap_block_ns = 1000;
    config.recompute_token_ns = 1;
    kit_open(&w.kit, &config);
    crowd_add(&w);
    kit_run(&w.kit, 1);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t n = 1 + i % 4 * 40;
        assert_int_equal(quire_sched_learn(w.kit.sched, QUIRE_COST_SWAP, n, setup + n * block_ns),
                         QUIRE_OK);
        assert_int_equal(
            quire_sched_learn(w.kit.sched, QUIRE_COST_COMPUTE, 10 * n, 10 * n * token_ns),
            QUIRE_OK);
    }
    if (is_restored)
        restore(&w.kit, &config);
    kit_step(&w.kit);
    uint32_t n = w.kit.step->num_swap_out;
    crowd_close(&w);
    return n;
}

static void costs_are_learned(void **state)
{
    (void)state;
    for (uint32_t is_restored = 0; is_restored < 2; is_restored++) {
        assert_int_equal(blocks_swapped_after(400, 100, 100, is_restored), VICTIM_BLOCKS);
        assert_int_equal(blocks_swapped_after(600, 100, 100, is_restored), 0);
        assert_int_equal(blocks_swapped_after(0, 180, 100, is_restored), VICTIM_BLOCKS);
        assert_int_equal(blocks_swapped_after(0, 220, 100, is_restored), 0);
    }
    assert_int_equal(quire_sched_learn(NULL, QUIRE_COST_SWAP, 1, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_learn(NULL, QUIRE_COST_COMPUTE, 1, 1), QUIRE_E_ARGUMENT);
    crowd w;
    quire_sched_config config = crowd_config(&w);
    crowd_open(&w, &config);
    assert_int_equal(quire_sched_learn(w.kit.sched, QUIRE_COST_SWAP, 0, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_learn(w.kit.sched, QUIRE_COST_COMPUTE, 0, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_learn(w.kit.sched, QUIRE_COST_SWAP, UINT32_MAX, UINT64_MAX),
                     QUIRE_OK);
    assert_int_equal(quire_sched_learn(w.kit.sched, QUIRE_COST_COMPUTE, 1, UINT64_MAX), QUIRE_OK);
    assert_int_equal(quire_sched_check(w.kit.sched), QUIRE_OK);
    crowd_close(&w);
}

/* What it costs was learned after the scheduler was made. */
static void costs_may_change(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    config.cache->enable_caching = QUIRE_OFF;
    config.swap_block_ns = 2;
    config.recompute_token_ns = 1;
    kit_open(&w.kit, &config);
    crowd_add(&w);
    kit_run(&w.kit, 1);
    uint64_t too_long = UINT64_C(1) << 32;
    assert_int_equal(quire_sched_set_swap_costs(NULL, 1, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_set_swap_costs(w.kit.sched, too_long, 1), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_set_swap_costs(w.kit.sched, 1, too_long), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_set_swap_costs(w.kit.sched, 19, 10), QUIRE_OK);
    kit_step(&w.kit);
    assert_int_equal(w.kit.step->num_swap_out, VICTIM_BLOCKS);
    crowd_close(&w);
}

/* All that c has is also a's: giving it up frees nothing, and it will be found. */
static void what_others_hold_is_not_kept(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    config.async_scheduling = QUIRE_ON;
    config.cache->num_blocks = 11;
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
    crowd_close(&w);
}

static void configs_that_cannot_swap_are_refused(void **state)
{
    (void)state;
    crowd w;
    const quire_sched_config right = crowd_config(&w);
    quire_sched_config wrong[8];
    quire_cache_config caches[COUNT(wrong)];
    for (size_t i = 0; i < COUNT(wrong); i++) {
        caches[i] = *right.cache;
        wrong[i] = right;
        wrong[i].cache = &caches[i];
    }
    wrong[0].profile = QUIRE_PROFILE_VLLM_0_20;
    wrong[1].num_swap_blocks = UINT32_MAX;
    wrong[2].num_swap_blocks = (1u << 28) + 1;
    wrong[3].swap_block_ns = UINT64_C(1) << 32;
    wrong[4].recompute_token_ns = UINT64_C(1) << 32;
    quire_group_config states = {.spec = {.kind = QUIRE_LAYER_MAMBA, .block_size = KIT_BLOCK}};
    states.spec.states[0] = (quire_state){.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16};
    wrong[5].cache->groups = &states;
    quire_group_config cross = w.kit.group;
    cross.spec.kind = QUIRE_LAYER_CROSS;
    wrong[6].cache->groups = &cross;
    wrong[6].cache->enable_caching = QUIRE_OFF;
    wrong[6].cache->max_encoder_tokens = 8;
    wrong[7] = wrong[6];
    wrong[7].is_encoder_decoder = QUIRE_ON;
    assert_true(quire_sched_bytes(&right) > 0);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(quire_sched_create(&wrong[i], NULL, &w.kit.sched), QUIRE_E_CONFIG);
        wrong[i].num_swap_blocks = 0;
        wrong[i].swap_block_ns = 0;
        wrong[i].recompute_token_ns = 0;
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
    quire_sched_config config = crowd_config(&w);
    config.num_swap_blocks = VICTIM_BLOCKS;
    crowd_open(&w, &config);
    quire_request_params held = *kit_params(&w.kit, "h", 4);
    held.use_grammar = 1;
    quire_req h;
    assert_int_equal(quire_sched_add(w.kit.sched, &held, &h), QUIRE_OK);
    kit_add(&w.kit, "d", 4);
    kit_answer(&w.kit, w.kit.step->step, 1);
    assert_string_equal(kit_shown_queue(&w.kit, 1), "c d");
    for (uint32_t i = 0; kit_info(&w.kit, w.b).status == QUIRE_REQ_RUNNING && i < 20; i++)
        kit_run(&w.kit, 1);
    assert_int_equal(crowd_saved(&w, w.b), 0);
    assert_int_equal(crowd_saved(&w, w.c), PROMPT);
    assert_string_equal(kit_shown_queue(&w.kit, 1), "c b d");
    assert_string_equal(kit_shown_queue(&w.kit, 2), "h"); /* in FCFS before those that wait */
    crowd_end(&w, w.a);
    kit_step(&w.kit);
    assert_true(w.kit.step->num_reqs >= 3);
    assert_true(w.kit.step->reqs[0] == w.c);
    assert_true(w.kit.step->reqs[1] == h);
    assert_true(w.kit.step->reqs[2] == w.b);
    crowd_close(&w);
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
    quire_sched_config config = crowd_config(&w);
    config.policy = QUIRE_POLICY_PRIORITY;
    kit_open(&w.kit, &config);
    add_urgent(&w, "a", PROMPT, 0, 1);
    add_urgent(&w, "b", PROMPT, 0, 2);
    add_urgent(&w, "c", PROMPT, 1, 9);
    quire_req c = w.c;
    kit_run(&w.kit, 1);
    kit_run(&w.kit, 1);
    assert_int_equal(crowd_saved(&w, c), PROMPT);
    add_urgent(&w, "d", 30, 1, 3);
    add_urgent(&w, "e", 30, 0, 8);
    add_urgent(&w, "f", 30, 2, 0);
    assert_string_equal(kit_shown_queue(&w.kit, 1), "e c d f");
    crowd_close(&w);
}

/* ---- what does not count ---------------------------------------------------- */

static void tokens_in_flight_are_not_kept(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    config.async_scheduling = QUIRE_ON;
    kit_open(&w.kit, &config);
    crowd_add(&w);
    kit_step(&w.kit);
    uint64_t first = w.kit.step->step;
    kit_step(&w.kit); /* the first tokens are not known */
    assert_true(w.kit.step->preempted[0] == w.c);
    assert_int_equal(w.kit.step->num_swap_out, VICTIM_BLOCKS);
    assert_int_equal(crowd_saved(&w, w.c), PROMPT - 1);
    uint64_t second = w.kit.step->step;
    kit_answer(&w.kit, first, 1);
    assert_int_equal(w.kit.outputs->num_outputs, 2); /* c's is void */
    kit_answer(&w.kit, second, 1);
    crowd_end(&w, w.a);
    kit_step(&w.kit);
    assert_string_equal(kit_shown_step(&w.kit), "b:1 c:1");
    assert_int_equal(w.kit.step->num_computed_tokens[1], PROMPT - 1);
    kit_answer(&w.kit, w.kit.step->step, 5);
    assert_int_equal(kit_info(&w.kit, w.c).num_tokens, PROMPT + 1);
    crowd_close(&w);
}

/* b is in its prompt, 4 tokens a step, so that it can go on while c's step is in flight. */
static void drafts_in_flight_are_not_kept(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    config.num_spec_tokens = 2;
    config.long_prefill_token_threshold = 4;
    config.reserve_full_sequence = QUIRE_OFF;
    config.cache->num_blocks = 13;
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
    assert_int_equal(crowd_saved(&w, w.c), 18); /* of 19 that are known */
    crowd_close(&w);
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
        quire_sched_config config = crowd_config(&w);
        const quire_connector connector = {.size = sizeof(quire_connector),
                                           .get_num_new_matched_tokens = match_half};
        config.connector = &connector;
        config.async_scheduling = QUIRE_ON;
        kit_open(&w.kit, &config);
        crowd_add(&w);
        kit_step(&w.kit);
        assert_string_equal(kit_shown_step(&w.kit), "a:10 b:10 c:10");
        if (is_known)
            kit_answer(&w.kit, w.kit.step->step, 1);
        kit_step(&w.kit);
        assert_true(w.kit.step->preempted[0] == w.c);
        assert_int_equal(w.kit.step->num_swap_out, is_known ? VICTIM_BLOCKS : 0);
        crowd_close(&w);
    }
}

/* ---- groups ----------------------------------------------------------------- */

/* A window of 8 tokens beside full attention, in blocks of 4 and 8: of 40 tokens the next one looks
 * at 33 to 39 there, blocks 8 and 9. */
static void windows_keep_what_they_need(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    quire_group_config groups[2] = {w.kit.group, w.kit.group};
    groups[0].spec.block_size = 8;
    groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    groups[1].spec.sliding_window = 8;
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    config.cache->enable_caching = QUIRE_OFF;
    config.cache->num_blocks = 25; /* 5 and 3 blocks for each */
    kit_open(&w.kit, &config);
    crowd_add(&w);
    quire_block rows[2][KIT_LEN];
    do {
        quire_block_span now[2];
        assert_int_equal(quire_sched_get_blocks(w.kit.sched, w.c, now), QUIRE_OK);
        for (uint32_t g = 0; g < 2 && now[g].count > 0; g++)
            memcpy(rows[g], now[g].ids, now[g].count * sizeof *rows[g]);
        kit_run(&w.kit, 1);
    } while (kit_info(&w.kit, w.c).status == QUIRE_REQ_RUNNING);
    const quire_step *step = w.kit.step;
    assert_int_equal(crowd_saved(&w, w.c), 40);
    assert_int_equal(step->num_swap_out, 7);
    assert_memory_equal(step->swap_out_blocks, rows[0], 5 * sizeof *rows[0]);
    assert_memory_equal(step->swap_out_blocks + 5, rows[1] + 8, 2 * sizeof *rows[1]);

    crowd_end(&w, w.a);
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
    crowd_close(&w);
}

/* Nothing is taken for granted of a row: one that is not whole, as a forged image may have it, is
 * not kept. */
static void rows_with_holes_are_not_kept(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    kit_open(&w.kit, &config);
    crowd_add(&w);
    kit_run(&w.kit, 1);
    quire_sched *s = w.kit.sched;
    uint32_t index = quire_req_index(w.c);
    uint32_t row = qr_cache_row_of(s->cache, s->table.requests[index].kv.seq);
    uint32_t *num_blocks = &s->cache->groups[0].rows[row].num_blocks;
    uint32_t *block = &qr_group_row_blocks(&s->cache->groups[0], row)[2];
    uint32_t was = *block;

    *block = QUIRE_NULL_BLOCK;
    qr_swap_out(s, index, false);
    assert_int_equal(crowd_saved(&w, w.c), 0);
    *block = was;
    --*num_blocks;
    qr_swap_out(s, index, false);
    assert_int_equal(crowd_saved(&w, w.c), 0);
    ++*num_blocks;
    qr_swap_out(s, index, false);
    assert_int_equal(crowd_saved(&w, w.c), PROMPT);
    qr_swap_drop(s, index);
    crowd_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_victim_is_kept_and_resumed),
        cmocka_unit_test(what_is_still_cached_is_not_moved),
        cmocka_unit_test(what_is_moved_in_has_its_keys),
        cmocka_unit_test(cost_and_slots_decide),
        cmocka_unit_test(setting_up_costs_too),
        cmocka_unit_test(costs_are_learned),
        cmocka_unit_test(costs_may_change),
        cmocka_unit_test(what_others_hold_is_not_kept),
        cmocka_unit_test(configs_that_cannot_swap_are_refused),
        cmocka_unit_test(swapped_ones_come_first),
        cmocka_unit_test(priority_comes_before_being_swapped),
        cmocka_unit_test(tokens_in_flight_are_not_kept),
        cmocka_unit_test(drafts_in_flight_are_not_kept),
        cmocka_unit_test(loads_that_may_fail_are_not_kept),
        cmocka_unit_test(windows_keep_what_they_need),
        cmocka_unit_test(rows_with_holes_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

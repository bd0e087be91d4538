/* Sessions, outputs and ends that are out of the ordinary: inputs that find no place, outputs that
 * cannot be, requests that are ended twice. */
#include "coverage/sched_kit.h"

#include "sched/sched.h"

static sched_kit kit;

/* ---- outputs of an engine -------------------------------------------------- */

static int update(const quire_model_output *output)
{
    int status = quire_sched_update(kit.sched, kit.step->step, output, &kit.outputs);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    return status;
}

static void outputs_that_cannot_be(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    kit.config.num_spec_tokens = 2;
    kit.config.max_num_batched_tokens = 6;
    sched_kit_open(&kit);
    quire_req a = sched_kit_add(&kit, "a", "aaaa", 8);
    sched_kit_add(&kit, "b", "bbbb", 8);
    sched_kit_schedule(&kit);
    quire_token sampled[6] = {'x', 'x', 'x', 'x', 'x', 'x'};
    uint32_t num_sampled[2] = {2, 0};
    quire_model_output output = {.size = sizeof(quire_model_output),
                                 .sampled = sampled,
                                 .stride = 3,
                                 .num_sampled = num_sampled};
    assert_int_equal(update(&output), QUIRE_E_RANGE); /* no drafts, one token */
    num_sampled[0] = 1;
    num_sampled[1] = 1;
    assert_int_equal(update(&output), QUIRE_E_RANGE); /* b is in its prompt */
    num_sampled[1] = 0;
    quire_block lost = 16;
    output.invalid_blocks = &lost;
    output.num_invalid_blocks = 1;
    assert_int_equal(update(&output), QUIRE_E_UNKNOWN_BLOCK);
    output.num_invalid_blocks = 0;
    assert_int_equal(update(&output), QUIRE_OK);
    assert_int_equal(kit.outputs->num_outputs, 1);
    assert_int_equal(update(&output), QUIRE_E_ARGUMENT); /* nothing is in flight */
    quire_token drafts[2] = {'x', 'y'};
    uint32_t num_drafts = 2;
    assert_int_equal(quire_sched_update_drafts(kit.sched, &a, 1, drafts, 2, &num_drafts), QUIRE_OK);
    sched_kit_schedule(&kit);
    num_sampled[0] = 3;
    num_sampled[1] = 1;
    output.stride = 2;
    assert_int_equal(update(&output), QUIRE_E_RANGE); /* more than a row */
    assert_int_equal(update(&(quire_model_output)QUIRE_MODEL_OUTPUT_INIT), QUIRE_OK);
    assert_int_equal(kit.outputs->num_outputs, 0); /* computed, and nothing sampled */
    sched_kit_close(&kit);
}

static void steps_in_flight_have_a_limit(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    kit.config.async_scheduling = QUIRE_ON;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaa", 8);
    sched_kit_schedule(&kit);
    sched_kit_schedule(&kit);
    const quire_step *step = NULL;
    assert_int_equal(quire_sched_schedule(kit.sched, &step), QUIRE_FULL);
    sched_kit_update(&kit, 1, NULL);
    sched_kit_schedule(&kit);
    sched_kit_update(&kit, 2, NULL);
    sched_kit_update(&kit, 3, NULL);
    sched_kit_close(&kit);
}

static void repetition_of_one_is_none(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    sched_kit_open(&kit);
    for (uint32_t count = 1; count <= 2; count++) {
        quire_request_params p = sched_kit_params(&kit, "a", "aaaa");
        p.max_tokens = 4;
        p.repetition_max_pattern = 1;
        p.repetition_min_count = count;
        quire_req a = sched_kit_add_params(&kit, &p);
        uint32_t steps = 0;
        do {
            sched_kit_step(&kit);
            steps++;
        } while (sched_kit_output(&kit, a)->finish_reason == QUIRE_FINISH_NONE);
        assert_int_equal(steps, count == 1 ? 4 : 2);
        assert_int_equal(sched_kit_output(&kit, a)->finish_reason,
                         count == 1 ? QUIRE_FINISH_LENGTH : QUIRE_FINISH_REPETITION);
    }
    sched_kit_close(&kit);
}

/* ---- ends ------------------------------------------------------------------ */

static void ended_twice_in_one_call(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    kit.config.max_num_seqs = 2;
    sched_kit_open(&kit);
    quire_request_params p = sched_kit_params(&kit, "s", "ssss");
    p.is_resumable = 1;
    p.max_tokens = 1;
    quire_req session = sched_kit_add_params(&kit, &p);
    quire_req runs = sched_kit_add(&kit, "r", "rrrr", 8);
    sched_kit_step(&kit);
    sched_kit_add(&kit, "q", "qqqq", 8);
    sched_kit_step(&kit);
    quire_req waits = sched_kit_add(&kit, "w", "wwww", 8);
    assert_int_equal(sched_kit_status(&kit, session), QUIRE_REQ_WAITING_FOR_STREAMING);
    assert_int_equal(sched_kit_status(&kit, waits), QUIRE_REQ_WAITING);
    quire_req reqs[] = {session, runs, 99, waits, session, waits, runs};
    uint32_t n = 0;
    assert_int_equal(
        quire_sched_finish(kit.sched, reqs, COUNT(reqs), QUIRE_REQ_FINISHED_ABORTED, &n), QUIRE_OK);
    assert_int_equal(n, 3);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 1);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_running, 1);
    sched_kit_close(&kit);
}

/* ---- sessions -------------------------------------------------------------- */

static quire_req open_session(uint32_t request_bytes, uint32_t max_tokens)
{
    sched_kit_init(&kit, 32);
    kit.config.max_request_bytes = request_bytes;
    kit.config.encoder_cache_size = 16;
    kit.config.encoder_compute_budget = 16;
    sched_kit_open(&kit);
    quire_request_params p = sched_kit_params(&kit, "s", "ssss");
    p.is_resumable = 1;
    p.max_tokens = max_tokens;
    return sched_kit_add_params(&kit, &p);
}

static void inputs_that_are_refused(void **state)
{
    (void)state;
    quire_req s = open_session(512, 1);
    quire_req plain = sched_kit_add(&kit, "p", "pppp", 8);
    quire_request_params p = sched_kit_params(&kit, "", "tttt");
    assert_int_equal(quire_sched_continue(kit.sched, plain, &p), QUIRE_E_ARGUMENT);
    p.num_stop_token_ids = 1;
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_E_ARGUMENT);
    static const quire_token stops[200];
    p.stop_token_ids = stops;
    p.num_stop_token_ids = 200;
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_E_RANGE);
    p.num_stop_token_ids = 0;
    quire_mm_input image = {.feature = {{"x", 1}, 65, 4}};
    p.mm_inputs = &image;
    p.num_mm_inputs = 1;
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_E_RANGE);
    p.num_mm_inputs = 0;
    p.num_prompt_tokens = 0;
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_E_RANGE);
    p.num_prompt_tokens = 60;
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_E_RANGE);
    p.num_prompt_tokens = 1;
    for (uint32_t i = 0; i < SCHED_KIT_REQS; i++)
        assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_OK);
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_FULL);
    assert_int_equal(quire_sched_continue(kit.sched, s, NULL), QUIRE_OK);
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    sched_kit_close(&kit);
}

static void input_for_a_session_that_ended(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    kit.keeps_blocks = 1;
    quire_request_params p = sched_kit_params(&kit, "s", "ssss");
    p.is_resumable = 1;
    quire_req s = sched_kit_add_params(&kit, &p);
    sched_kit_step(&kit);
    quire_sched_finish(kit.sched, &s, 1, QUIRE_REQ_FINISHED_STOPPED, NULL);
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_E_ARGUMENT);
    sched_kit_close(&kit);
}

/* An input that fitted when it came, and does not after what was generated. */
static void input_that_finds_no_place(void **state)
{
    (void)state;
    quire_req s = open_session(512, 20);
    char text[60] = {0};
    memset(text, 't', 55);
    quire_request_params p = sched_kit_params(&kit, "", text);
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_OK);
    for (uint32_t i = 0; i < 20; i++)
        sched_kit_step(&kit);
    assert_int_equal(sched_kit_output(&kit, s)->finish_reason, QUIRE_FINISH_LENGTH);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"s", 1}), 0);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 0);
    sched_kit_close(&kit);
}

/* Images of each input join those from before, and lie where the input lies. */
static void images_of_every_input(void **state)
{
    (void)state;
    quire_req s = open_session(2048, 1);
    quire_mm_input image = {.feature = {{"x", 1}, 0, 4}};
    quire_request_params p = sched_kit_params(&kit, "", "tttttt");
    p.mm_inputs = &image;
    p.num_mm_inputs = 1;
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_OK);
    image.feature.identifier = (quire_bytes){"y", 1};
    image.feature.offset = 1;
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_OK);
    sched_kit_step(&kit); /* ssss */
    sched_kit_step(&kit); /* the first input */
    assert_int_equal(kit.step->encoder_start[1], 1);
    assert_int_equal(kit.step->encoder_inputs[0], 0);
    sched_kit_step(&kit); /* the second */
    assert_int_equal(kit.step->encoder_start[1], 1);
    assert_int_equal(kit.step->encoder_inputs[0], 1);
    assert_int_equal(kit.step->num_computed_tokens[0], 10);
    assert_int_equal(sched_kit_status(&kit, s), QUIRE_REQ_WAITING_FOR_STREAMING);
    const qr_request *r = &kit.sched->table.requests[quire_req_index(s)];
    assert_int_equal(r->features[1].offset, 11);
    sched_kit_close(&kit);
}

/* The sampled token that fills a block is dropped: the block gets the hash of what follows. */
static void block_that_ended_with_the_dropped_token(void **state)
{
    (void)state;
    sched_kit_init(&kit, 32);
    sched_kit_open(&kit);
    quire_request_params p = sched_kit_params(&kit, "s", "sss");
    p.is_resumable = 1;
    p.max_tokens = 1;
    quire_req s = sched_kit_add_params(&kit, &p);
    sched_kit_step(&kit);
    p = sched_kit_params(&kit, "", "ttttt");
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_OK);
    sched_kit_step(&kit);
    quire_token tokens[8];
    assert_int_equal(quire_sched_get_tokens(kit.sched, s, 0, 8, tokens), QUIRE_OK);
    assert_int_equal(tokens[3], 't');
    quire_req b = sched_kit_add(&kit, "b", "ssstttttx", 8);
    sched_kit_step(&kit);
    assert_int_equal(sched_kit_output(&kit, b)->num_local_cached, 8);
    quire_req c = sched_kit_add(&kit, "c", "sssztttttx", 8); /* with the token that was dropped */
    sched_kit_step(&kit);
    assert_int_equal(sched_kit_output(&kit, c)->num_local_cached, 0);
    sched_kit_close(&kit);
}

static void keys_of_all_inputs_have_a_limit(void **state)
{
    (void)state;
    quire_req s = open_session(1u << 16, 1);
    static const char name[256];
    static quire_mm_input images[64];
    for (uint32_t i = 0; i < COUNT(images); i++)
        images[i] = (quire_mm_input){.feature = {{name, sizeof name}, 0, 4}};
    quire_request_params p = sched_kit_params(&kit, "", "tttt");
    p.mm_inputs = images;
    p.num_mm_inputs = 40;
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_OK);
    assert_int_equal(quire_sched_continue(kit.sched, s, &p), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    sched_kit_close(&kit);
}

/* ---- configs --------------------------------------------------------------- */

static void states_that_are_not_aligned(void **state)
{
    (void)state;
    sched_kit_init(&kit, 16);
    kit.groups[1].spec =
        (quire_layer_spec){.kind = QUIRE_LAYER_MAMBA,
                           .block_size = 64,
                           .states = {{.num_dims = 1, .dims = {16}, .dtype = QUIRE_DTYPE_FLOAT32}},
                           .mamba_mode = QUIRE_MAMBA_MODE_NONE};
    kit.config.cache->num_groups = 2;
    kit.config.cache->enable_caching = QUIRE_OFF;
    kit.config.max_num_batched_tokens = 6;
    sched_kit_open(&kit);
    sched_kit_add(&kit, "a", "aaaaaaaaaaaa", 8);
    sched_kit_step(&kit);
    assert_int_equal(kit.step->num_tokens[0], 6); /* any number of tokens will do */
    sched_kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_that_cannot_be),
        cmocka_unit_test(steps_in_flight_have_a_limit),
        cmocka_unit_test(repetition_of_one_is_none),
        cmocka_unit_test(ended_twice_in_one_call),
        cmocka_unit_test(inputs_that_are_refused),
        cmocka_unit_test(input_for_a_session_that_ended),
        cmocka_unit_test(input_that_finds_no_place),
        cmocka_unit_test(images_of_every_input),
        cmocka_unit_test(block_that_ended_with_the_dropped_token),
        cmocka_unit_test(keys_of_all_inputs_have_a_limit),
        cmocka_unit_test(states_that_are_not_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

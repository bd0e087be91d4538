/* sched_image/test_image_checks.c - one forged thing at a time, which no walker would find: restore
 * refuses it. And what an image must not lose.
 *
 * A scheduler's own memory is changed and then saved: the image is well formed, and a lie.
 *
 *      a, b   run; a has a copy of its last block under way
 *      s      a session that runs, with INPUTS inputs behind it
 *      t      a session that waits
 *      the group has one block of sinks
 */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { INPUTS = 5, PROMPT = 9 };

static sched_kit kit;
static quire_req a, b, s, t;

static void continue_session(quire_req req)
{
    assert_int_equal(quire_sched_continue(kit.sched, req, kit_params(&kit, "i", 2)), QUIRE_OK);
}

static quire_sched_config open_sched(void)
{
    quire_sched_config config = kit_config(&kit);
    kit.group.spec.kind = QUIRE_LAYER_SINK_FULL;
    kit.group.spec.sink_len = KIT_BLOCK;
    kit.cache.num_blocks = 33;
    kit.cache.max_copies = 2;
    kit.cache.event_log_bytes = 4096;
    kit_open(&kit, &config);
    a = kit_add(&kit, "a", PROMPT);
    b = kit_add(&kit, "b", PROMPT);
    kit.params.is_resumable = 1;
    s = kit_add(&kit, "s", PROMPT);
    kit_run(&kit, 1);
    t = kit_add(&kit, "t", PROMPT);
    for (uint32_t i = 0; i < INPUTS; i++)
        continue_session(s);
    quire_cache_request parent = {.seq = kit_info(&kit, a).seq};
    quire_cache_request child = {0};
    assert_int_equal(quire_cache_fork(kit.sched->cache, &parent, &child), QUIRE_OK);
    assert_int_equal(quire_cache_copy_on_write(kit.sched->cache, parent.seq, PROMPT - 1, 1),
                     QUIRE_OK);
    assert_int_equal(quire_cache_free(kit.sched->cache, &child), QUIRE_OK);
    assert_int_equal(kit.sched->cache->num_copies, 1);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    return config;
}

static qr_request *request_of(quire_req req)
{
    return &kit.sched->table.requests[quire_req_index(req)];
}

/* ---- forged ---------------------------------------------------------------- */

static void free_slot_that_is_in_use(void)
{
    kit.sched->table.free_slots[0] = quire_req_index(b);
}

static void free_slot_twice(void)
{
    kit.sched->table.free_slots[0] = kit.sched->table.free_slots[1];
}

static void free_slot_past_the_end(void)
{
    kit.sched->table.free_slots[0] = KIT_REQUESTS;
}

static void free_slot_further_past_the_end(void)
{
    kit.sched->table.free_slots[0] = KIT_REQUESTS + 1;
}

/* What is looked up by such a number must not be read, nor written. */
static void request_that_runs_far_past_the_end(void)
{
    kit.sched->queues.running[1] = UINT32_MAX;
}

static void memory_of_a_request_is_not_aligned(void)
{
    request_of(b)->blob_used += 4;
}

static void request_that_runs_twice(void)
{
    kit.sched->queues.running[1] = kit.sched->queues.running[0];
}

static void request_without_a_status(void)
{
    quire_sched *sched = kit.sched;
    uint32_t last = sched->queues.running[--sched->queues.num_running];
    sched->table.requests[last].status = 0;
}

static void more_inputs_than_there_are_places(void)
{
    assert_true(2 * INPUTS > KIT_REQUESTS);
    request_of(t)->first_input = request_of(s)->first_input;
    request_of(t)->last_input = request_of(s)->last_input;
}

static uint32_t *blocks_of(quire_req req)
{
    uint32_t row = (uint32_t)kit_info(&kit, req).seq - 1;
    return qr_group_row_blocks(&kit.sched->cache->groups[0], row);
}

/* Blocks may be touched through the pool. So the walker only looks at who uses which block while
 * there are as many users as references. */
static void touch_some_block(void)
{
    kit.sched->cache->pool->queue.blocks[blocks_of(b)[0]].ref_cnt++;
}

static void more_users_than_references_by_a_copys_target(void)
{
    kit.sched->cache->pool->queue.blocks[kit.sched->cache->copies[0].to].ref_cnt--;
    touch_some_block();
    touch_some_block();
}

static void more_users_than_references_by_a_copys_source(void)
{
    blocks_of(a)[0] = kit.sched->cache->copies[0].from;
    touch_some_block();
}

static void more_users_than_references_by_a_sink(void)
{
    blocks_of(a)[0] = kit.sched->cache->groups[0].sinks[0];
    touch_some_block();
}

static qr_batch *step_in_flight(void)
{
    kit_step(&kit);
    return &kit.sched->flight.batches[kit.sched->flight.first_batch];
}

static void output_for_a_request_that_waits(void)
{
    qr_batch *batch = step_in_flight();
    batch->reqs[0] = kit_add(&kit, "u", PROMPT);
}

static void output_for_a_request_that_was_preempted_since(void)
{
    qr_batch *batch = step_in_flight();
    request_of(batch->reqs[0])->num_preemptions++;
}

/* The next request would have the number of one that ended, and take its output. */
static void output_for_a_request_that_is_still_to_come(void)
{
    qr_batch *batch = step_in_flight();
    quire_req gone = batch->reqs[0];
    assert_int_equal(quire_sched_finish(kit.sched, &gone, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    request_of(gone)->generation--;
}

static void end_of_a_request_that_is_still_to_come(void)
{
    quire_req gone = kit_add(&kit, "u", PROMPT);
    assert_int_equal(quire_sched_finish(kit.sched, &gone, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    kit.sched->ended.finished[kit.sched->ended.num_finished - 1] += UINT64_C(5) << 32;
}

static void forged_images_are_refused(void **state)
{
    (void)state;
    static void (*const FORGED[])(void) = {
        free_slot_that_is_in_use,
        free_slot_twice,
        free_slot_past_the_end,
        free_slot_further_past_the_end,
        request_that_runs_far_past_the_end,
        memory_of_a_request_is_not_aligned,
        request_that_runs_twice,
        request_without_a_status,
        more_inputs_than_there_are_places,
        more_users_than_references_by_a_copys_target,
        more_users_than_references_by_a_copys_source,
        more_users_than_references_by_a_sink,
        output_for_a_request_that_waits,
        output_for_a_request_that_was_preempted_since,
        output_for_a_request_that_is_still_to_come,
        end_of_a_request_that_is_still_to_come,
    };
    for (uint32_t i = 0; i < COUNT(FORGED); i++) {
        quire_sched_config config = open_sched();
        FORGED[i]();
        kit_state image = kit_save(kit.sched);
        quire_sched *made = NULL;
        if (quire_sched_restore(&config, NULL, image.image, image.bytes, &made) != QUIRE_E_CORRUPT)
            fail_msg("forging %u is not refused", i);
        free(image.image);
        quire_sched_destroy(kit.sched);
        quire_hasher_destroy(kit.hasher);
    }
}

/* ---- kept ------------------------------------------------------------------ */

static void count_event(void *user, const quire_event *event)
{
    *(uint32_t *)user += event->num_blocks;
}

static void inputs_and_events_are_kept(void **state)
{
    (void)state;
    quire_sched_config config = open_sched();
    kit_state image = kit_save(kit.sched);
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &made), QUIRE_OK);
    uint32_t count = 0;
    for (uint32_t i = made->table.requests[quire_req_index(s)].first_input; i != QR_NIL;
         i = made->sessions.inputs[i].next)
        count++;
    assert_int_equal(count, INPUTS);
    kit_same(made, image);
    uint32_t num_stored = 0;
    assert_int_equal(quire_cache_take_events(made->cache, count_event, &num_stored, NULL),
                     QUIRE_OK);
    assert_int_equal(num_stored, 3 * (PROMPT / KIT_BLOCK));
    quire_sched_destroy(made);
    kit_close(&kit);
}

/* Four tokens of a are computed, and its image is behind them: the next step encodes it. */
static void place_of_a_feature_is_kept(void **state)
{
    (void)state;
    const quire_mm_input picture = {
        .feature = {.identifier = {"1", 1}, .offset = KIT_BLOCK + 1, .length = 2}};
    quire_sched_config config = kit_config(&kit);
    config.max_num_batched_tokens = KIT_BLOCK;
    config.encoder_compute_budget = 4;
    config.encoder_cache_size = 4;
    kit_open(&kit, &config);
    kit.params.mm_inputs = &picture;
    kit.params.num_mm_inputs = 1;
    a = kit_add(&kit, "a", PROMPT);
    kit_run(&kit, 1);
    assert_int_equal(kit.step->encoder_start[1], 0);
    kit_state image = kit_save(kit.sched);
    quire_sched_destroy(kit.sched);
    assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &kit.sched),
                     QUIRE_OK);
    kit_same(kit.sched, image);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4");
    assert_int_equal(kit.step->encoder_start[1], 1);
    kit_close(&kit);
}

static int keep_blocks(void *user, quire_req req, const quire_block_span *blocks)
{
    (void)user;
    (void)req;
    (void)blocks;
    return 1;
}

/* The placeholder of the step in flight is never filled: the request has ended, and is there while
 * its blocks are sent. */
static void request_that_ended_in_flight_is_kept(void **state)
{
    (void)state;
    const quire_connector connector = {.size = sizeof(quire_connector),
                                       .request_finished = keep_blocks};
    quire_sched_config config = kit_config(&kit);
    config.connector = &connector;
    config.async_scheduling = QUIRE_ON;
    config.max_batches = 2;
    kit_open(&kit, &config);
    a = kit_add(&kit, "a", PROMPT);
    kit_step(&kit);
    assert_int_equal(request_of(a)->num_placeholders, 1);
    assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    kit_state image = kit_save(kit.sched);
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &made), QUIRE_OK);
    assert_true(made->table.requests[quire_req_index(a)].awaits_sending);
    kit_same(made, image);
    quire_sched_destroy(made);
    kit_close(&kit);
}

/* ---- what is still to be told ----------------------------------------------- */

static const quire_outputs *update_with(quire_sched *sched, uint64_t step)
{
    const quire_token token = 7;
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = &token};
    const quire_outputs *outputs;
    assert_int_equal(quire_sched_update(sched, step, &output, &outputs), QUIRE_OK);
    return outputs;
}

/* A request that has outgrown the pool ends in schedule, and the next update tells. */
static void an_end_that_was_not_told_is_told(void **state)
{
    (void)state;
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = 4,
                                                      .num_kv_heads = 1,
                                                      .head_size = 1,
                                                      .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = 5;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = 64;
    cache.enable_caching = QUIRE_OFF;
    config.max_requests = config.max_num_seqs = 4;
    quire_sched *sched[2];
    assert_int_equal(quire_sched_create(&config, NULL, &sched[0]), QUIRE_OK);
    const quire_token prompt[10] = {0};
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {"a", 1},
                                   .prompt = prompt,
                                   .num_prompt_tokens = COUNT(prompt),
                                   .client_index = 3,
                                   .user = (void *)(uintptr_t)0xabcdef};
    quire_req req;
    assert_int_equal(quire_sched_add(sched[0], &params, &req), QUIRE_OK);
    const quire_step *step;
    for (;;) {
        assert_int_equal(quire_sched_schedule(sched[0], &step), QUIRE_OK);
        if (step->num_reqs == 0)
            break;
        update_with(sched[0], step->step);
    }
    static unsigned char image[65536];
    size_t bytes;
    assert_int_equal(quire_sched_save(sched[0], image, sizeof image, &bytes), QUIRE_OK);
    assert_int_equal(quire_sched_restore(&config, NULL, image, bytes, &sched[1]), QUIRE_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const quire_outputs *outputs = update_with(sched[i], step->step);
        assert_int_equal(outputs->num_outputs, 1);
        assert_true(outputs->outputs[0].req == req);
        assert_ptr_equal(outputs->outputs[0].user, params.user);
        assert_int_equal(outputs->outputs[0].client_index, 3);
        assert_int_equal(outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    }
    quire_sched_destroy(sched[0]);
    quire_sched_destroy(sched[1]);
}

/* ---- the hasher ------------------------------------------------------------ */

static int give_bytes(void *user, void *out, size_t n)
{
    memset(out, 0, n);
    ((unsigned char *)out)[n - 1] = *(const unsigned char *)user;
    return 0;
}

/* Keys of other blocks differ, though the first hash of all is the same. */
static void another_secret_is_refused(void **state)
{
    (void)state;
    static const int STATUS[] = {QUIRE_OK, QUIRE_E_CONFIG};
    unsigned char last = 0;
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.algo = QUIRE_HASH_QUIRE128;
    hasher.block_size = KIT_BLOCK;
    hasher.hooks = (quire_hooks){.user = &last, .random_bytes = give_bytes};
    quire_sched_config config = kit_config(&kit);
    quire_hasher_destroy(kit.hasher);
    assert_int_equal(quire_hasher_create(&hasher, NULL, &kit.hasher), QUIRE_OK);
    config.hasher = kit.hasher;
    kit.cache.digest_bytes = 16;
    kit_open(&kit, &config);
    kit_add(&kit, "a", PROMPT);
    kit_state image = kit_save(kit.sched);
    for (; last < COUNT(STATUS); last++) {
        quire_hasher *other;
        quire_sched *made = NULL;
        assert_int_equal(quire_hasher_create(&hasher, NULL, &other), QUIRE_OK);
        config.hasher = other;
        assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &made),
                         STATUS[last]);
        quire_sched_destroy(made);
        quire_hasher_destroy(other);
    }
    free(image.image);
    kit_close(&kit);
}

static int match_four(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    (void)user;
    (void)req;
    *num_external = num_local == 0 ? 4 : 0;
    *is_async = 0;
    return QUIRE_OK;
}

/* a loads in step 1, which is in flight. */
static quire_sched_config open_loading(quire_connector *connector)
{
    quire_sched_config config = kit_config(&kit);
    config.connector = connector;
    kit_open(&kit, &config);
    a = kit_add(&kit, "a", PROMPT);
    kit_step(&kit);
    assert_int_equal(request_of(a)->load_step, 1);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    return config;
}

/* After a load that failed a request loads no more. */
static void load_after_one_that_failed(void)
{
    request_of(a)->has_failed_load = true;
}

/* The step's outputs are for the request as it was before it was preempted. */
static void load_before_a_preemption(void)
{
    request_of(a)->num_preemptions++;
}

static void load_of_a_step_that_was_made_void(void)
{
    request_of(a)->is_plain = false;
    qr_request_void_steps(request_of(a), kit.sched->flight.step);
}

/* Only a request without void steps is plain. */
static void plain_request_with_void_steps(void)
{
    assert_true(request_of(a)->is_plain);
    qr_request_void_steps(request_of(a), 0);
    request_of(a)->is_plain = true;
}

static void forged_loads_are_refused(void **state)
{
    (void)state;
    static void (*const FORGE[])(void) = {load_after_one_that_failed, load_before_a_preemption,
                                          load_of_a_step_that_was_made_void,
                                          plain_request_with_void_steps};
    for (uint32_t i = 0; i < COUNT(FORGE); i++) {
        quire_connector connector = {.size = sizeof(quire_connector),
                                     .get_num_new_matched_tokens = match_four};
        quire_sched_config config = open_loading(&connector);
        qr_request before = *request_of(a);
        FORGE[i]();
        kit_state image = kit_save(kit.sched);
        quire_sched *made = NULL;
        assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &made),
                         QUIRE_E_CORRUPT);
        free(image.image);
        *request_of(a) = before;
        kit_close(&kit);
    }
}

/* ---- what a walker cannot see, or saw too late ------------------------------- */

static int match_later(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                       uint32_t *is_async)
{
    int status = match_four(user, req, num_local, num_external, is_async);
    *is_async = 1;
    return status;
}

static void expect_corrupt(const quire_sched_config *config)
{
    kit_state image = kit_save(kit.sched);
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_restore(config, NULL, image.image, image.bytes, &made),
                     QUIRE_E_CORRUPT);
    free(image.image);
}

static void load_without_tokens_is_refused(void **state)
{
    (void)state;
    quire_connector connector = {.size = sizeof(quire_connector),
                                 .get_num_new_matched_tokens = match_later};
    quire_sched_config config = kit_config(&kit);
    config.connector = &connector;
    kit_open(&kit, &config);
    a = kit_add(&kit, "a", PROMPT);
    kit_step(&kit);
    qr_request *r = request_of(a);
    assert_int_equal(r->status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
    uint32_t loaded = r->kv.num_computed_tokens;
    r->kv.num_computed_tokens = 0;
    expect_corrupt(&config);
    r->kv.num_computed_tokens = loaded;
    kit_close(&kit);
}

/* The room in the encoder cache of an encoder-decoder model is what its requests have left. */
static void forged_encoder_room_is_refused(void **state)
{
    (void)state;
    quire_sched_config config = kit_config(&kit);
    quire_group_config groups[2] = {kit.group, kit.group};
    const quire_mm_input sound = {.feature = {.identifier = {"1", 1}, .length = 4}};
    groups[1].spec.kind = QUIRE_LAYER_CROSS;
    kit.cache.groups = groups;
    kit.cache.num_groups = 2;
    kit.cache.enable_caching = QUIRE_OFF;
    config.is_encoder_decoder = QUIRE_ON;
    config.encoder_compute_budget = 8;
    config.encoder_cache_size = 8;
    kit_open(&kit, &config);
    kit.params.mm_inputs = &sound;
    kit.params.num_mm_inputs = 1;
    a = kit_add(&kit, "a", PROMPT);
    kit_step(&kit);
    assert_int_equal(kit.sched->encoder.num_free, 4);
    kit.sched->encoder.num_free = 5;
    expect_corrupt(&config);
    kit.sched->encoder.num_free = 4;
    kit_close(&kit);
}

/* More references than users: blocks may be touched through the pool, so that counting finds
 * nothing. */
static void block_of_two_groups_is_refused(void **state)
{
    (void)state;
    quire_sched_config config = kit_config(&kit);
    quire_group_config groups[2] = {kit.group, kit.group};
    groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    groups[1].spec.sliding_window = 64;
    kit.cache.groups = groups;
    kit.cache.num_groups = 2;
    kit.cache.num_blocks = 33;
    kit_open(&kit, &config);
    a = kit_add(&kit, "a", PROMPT);
    kit_run(&kit, 1);
    uint32_t row = (uint32_t)kit_info(&kit, a).seq - 1;
    uint32_t *blocks[2] = {qr_group_row_blocks(&kit.sched->cache->groups[0], row),
                           qr_group_row_blocks(&kit.sched->cache->groups[1], row)};
    uint32_t last = kit.sched->cache->groups[1].rows[row].num_blocks - 1;
    uint32_t before = blocks[1][last];
    uint32_t shared = blocks[0][last]; /* not full: it has no key */
    qr_block *records = kit.sched->cache->pool->queue.blocks;
    assert_false(qr_block_has_key(&records[shared]));
    blocks[1][last] = shared;
    records[shared].ref_cnt++;
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    expect_corrupt(&config);
    blocks[1][last] = before;
    records[shared].ref_cnt--;
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_images_are_refused),
        cmocka_unit_test(inputs_and_events_are_kept),
        cmocka_unit_test(place_of_a_feature_is_kept),
        cmocka_unit_test(request_that_ended_in_flight_is_kept),
        cmocka_unit_test(an_end_that_was_not_told_is_told),
        cmocka_unit_test(another_secret_is_refused),
        cmocka_unit_test(forged_loads_are_refused),
        cmocka_unit_test(load_without_tokens_is_refused),
        cmocka_unit_test(forged_encoder_room_is_refused),
        cmocka_unit_test(block_of_two_groups_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

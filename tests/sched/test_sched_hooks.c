/* sched/test_sched_hooks.c - what the scheduler of vLLM 0.32 asks its connectors, what it tells
 * beside its steps, and the options of its pace. The recordings (tests/parity) have decisions. */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { IMAGE = 4 }; /* tokens and embeddings of each */

static sched_kit kit;
static char told[256];
static bool is_there;      /* what ensure_cache_available answers */
static int keeps;          /* what request_finished answers */
static int frees_blocks;   /* what has_pending_block_frees answers */
static uint32_t num_asked; /* how often */

static void tell(const char *what, quire_req req, uint32_t number)
{
    size_t used = strlen(told);
    quire_req_info info = kit_info(&kit, req);
    snprintf(told + used, sizeof told - used, "%s%s %.*s%u", used == 0 ? "" : ", ", what,
             (int)info.id.len, (const char *)info.id.data, number);
}

static int note_end(void *user, quire_req req)
{
    assert_ptr_equal(user, &kit);
    tell("end", req, 0);
    return keeps;
}

static int ensure(void *user, quire_req req, uint32_t num_computed)
{
    assert_ptr_equal(user, &kit);
    tell("ensure", req, num_computed);
    return is_there;
}

static void note_free(void *user, quire_req req, uint32_t input)
{
    assert_ptr_equal(user, &kit);
    tell("free", req, input);
}

static quire_sched_config config_0_32(void)
{
    quire_sched_config config = kit_config(&kit);
    config.profile = QUIRE_PROFILE_VLLM_0_32;
    return config;
}

static void open_encoder(void)
{
    static quire_encoder_connector connector;
    quire_sched_config config = config_0_32();
    connector = (quire_encoder_connector)QUIRE_ENCODER_CONNECTOR_INIT;
    connector.user = &kit;
    connector.request_finished = note_end;
    connector.ensure_cache_available = ensure;
    connector.update_state_after_free = note_free;
    config.encoder_connector = &connector;
    config.encoder_compute_budget = 2 * IMAGE;
    config.encoder_cache_size = 4 * IMAGE;
    is_there = true;
    keeps = 0;
    kit_open(&kit, &config);
}

/* Two images, with a token before each and one behind. */
static quire_req add_images(const char *id)
{
    static const quire_mm_input images[] = {
        {.feature = {.identifier = {"x", 1}, .offset = 1, .length = IMAGE}},
        {.feature = {.identifier = {"y", 1}, .offset = 2 + IMAGE, .length = IMAGE}}};
    kit.params = (quire_request_params){
        .size = sizeof(quire_request_params), .mm_inputs = images, .num_mm_inputs = 2};
    return kit_add(&kit, id, 3 + 2 * IMAGE);
}

static void step_and_expect(const char *step, const char *calls)
{
    told[0] = '\0';
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), step);
    assert_string_equal(told, calls);
}

static void requests_wait_for_encoder_outputs(void **state)
{
    (void)state;
    open_encoder();
    is_there = false;
    quire_req a = add_images("a");
    kit.params = (quire_request_params){.size = sizeof(quire_request_params)};
    kit_add(&kit, "b", 5);
    step_and_expect("b:5", "ensure a0"); /* passed over, not in the way */
    assert_string_equal(kit_shown_queue(&kit, 3), "a");
    assert_int_equal(quire_sched_get_queue(kit.sched, 3, NULL, 0), 1);
    kit_answer(&kit, 1, 7);
    is_there = true;
    step_and_expect("b:1 a:11", "ensure a0");
    assert_int_equal(quire_sched_get_queue(kit.sched, 3, NULL, 0), 0);
    told[0] = '\0';
    kit_answer(&kit, 2, 7);
    assert_string_equal(told, "free a0, free a1");
    is_there = false;
    step_and_expect("b:1", "ensure a11"); /* a running request too */
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_RUNNING);
    kit_answer(&kit, 3, 7);
    kit_close(&kit);
}

static void the_encoder_may_keep_blocks(void **state)
{
    (void)state;
    open_encoder();
    quire_req a = add_images("a");
    quire_req b = add_images("b");
    kit_run(&kit, 7);
    told[0] = '\0';
    keeps = 1;
    assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    keeps = 0;
    assert_int_equal(quire_sched_finish(kit.sched, &b, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    assert_string_equal(told, "end a0, end b0"); /* no free: they ended */
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_FINISHED_ABORTED);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"b", 1}), 0);
    kit_step(&kit);
    quire_model_output output = {
        .size = sizeof output, .finished_sending = &a, .num_finished_sending = 1};
    assert_int_equal(quire_sched_update(kit.sched, 2, &output, &kit.outputs), QUIRE_OK);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"a", 1}), 0);
    kit_close(&kit);
}

static int has_pending(void *user)
{
    assert_ptr_equal(user, &kit);
    num_asked++;
    return frees_blocks;
}

/* b finds no room: a preemption would help, but the connector is about to give blocks back. */
static void pending_frees_are_waited_for(void **state)
{
    (void)state;
    quire_connector connector = QUIRE_CONNECTOR_INIT;
    connector.user = &kit;
    connector.has_pending_block_frees = has_pending;
    quire_sched_config config = config_0_32();
    config.cache->num_blocks = 6;
    config.connector = &connector;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 8);
    kit_add(&kit, "b", 8);
    num_asked = 0;
    frees_blocks = 1;
    kit_run(&kit, 7);
    assert_int_equal(kit.step->num_reqs, 2);
    kit_run(&kit, 7); /* one block is left: a has it */
    assert_string_equal(kit_shown_step(&kit), "a:1");
    assert_int_equal(kit.step->num_preempted, 0);
    assert_int_equal(num_asked, 1);
    frees_blocks = 0;
    kit_run(&kit, 7);
    assert_int_equal(num_asked, 2);
    assert_int_equal(kit.step->num_preempted, 1);
    kit_close(&kit);
}

/* ---- what is told ------------------------------------------------------------ */

static void tokens_in_flight_are_told(void **state)
{
    (void)state;
    quire_sched_config config = config_0_32();
    config.async_scheduling = QUIRE_ON;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 8);
    kit_step(&kit);
    kit_step(&kit);
    assert_int_equal(kit_info(&kit, a).num_in_flight_tokens, 9);
    assert_int_equal(kit_info(&kit, a).num_stale_tokens, 0);
    kit_answer(&kit, 1, 7);
    assert_int_equal(kit_info(&kit, a).num_in_flight_tokens, 1);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    assert_int_equal(kit_info(&kit, a).num_stale_tokens, 1);
    assert_int_equal(kit_info(&kit, a).drops_stale, 1);
    kit_answer(&kit, 2, 7);
    assert_int_equal(kit_info(&kit, a).num_stale_tokens, 0);
    kit_close(&kit);
}

static void created_tokens_are_told(void **state)
{
    (void)state;
    quire_sched_config config = config_0_32();
    kit_open(&kit, &config);
    kit_add(&kit, "a", 11);
    kit_run(&kit, 7);
    assert_int_equal(kit.outputs->outputs[0].has_prefill_stats, 1);
    assert_int_equal(kit.outputs->num_cache_creation_tokens[0], 8);
    kit_run(&kit, 7);
    assert_int_equal(kit.outputs->outputs[0].has_prefill_stats, 0);
    kit_add(&kit, "a2", 14); /* the same tokens and one block more */
    kit_run(&kit, 7);
    assert_int_equal(kit.outputs->outputs[1].num_local_cached, 8);
    assert_int_equal(kit.outputs->num_cache_creation_tokens[1], 4);
    kit_close(&kit);
    config = kit_config(&kit);
    kit_open(&kit, &config);
    kit_add(&kit, "a", 11);
    kit_run(&kit, 7);
    assert_null(kit.outputs->num_cache_creation_tokens);
    kit_close(&kit);
}

static int has_four(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                    uint32_t *is_async)
{
    (void)user;
    (void)req;
    (void)num_local;
    *num_external = 4;
    *is_async = 0;
    return QUIRE_OK;
}

static void stats_can_be_taken_at_any_time(void **state)
{
    (void)state;
    quire_connector connector = QUIRE_CONNECTOR_INIT;
    connector.get_num_new_matched_tokens = has_four;
    quire_sched_config config = config_0_32();
    config.connector = &connector;
    const quire_sched_stats *stats = NULL;
    kit_open(&kit, &config);
    assert_int_equal(quire_sched_take_stats(kit.sched, &stats), QUIRE_E_DISABLED);
    kit_close(&kit);
    config = config_0_32();
    config.connector = &connector;
    config.log_stats = QUIRE_ON;
    kit_open(&kit, &config);
    assert_int_equal(quire_sched_take_stats(NULL, &stats), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_take_stats(kit.sched, NULL), QUIRE_E_ARGUMENT);
    kit_add(&kit, "a", 9);
    kit_step(&kit);
    kit_add(&kit, "b", 9);
    assert_int_equal(quire_sched_take_stats(kit.sched, &stats), QUIRE_OK);
    assert_int_equal(stats->num_running, 1);
    assert_int_equal(stats->num_waiting, 1);
    assert_int_equal(stats->prefix.queries, 9);
    assert_int_equal(stats->connector_prefix.queries, 9);
    assert_int_equal(stats->connector_prefix.hits, 4);
    kit_answer(&kit, 1, 7); /* they were taken */
    assert_int_equal(kit.outputs->stats->prefix.queries, 0);
    assert_int_equal(kit.outputs->stats->connector_prefix.queries, 0);
    kit_close(&kit);
}

/* Three drafts, of which the grammar refused one, and one was accepted. */
static void drafts_are_counted_by_place(void **state)
{
    (void)state;
    const quire_token drafts[] = {1, 2, 3};
    const uint32_t num_drafts = 3;
    const uint32_t num_invalid = 1;
    const quire_token sampled[] = {1, 9};
    const uint32_t num_sampled = 2;
    quire_sched_config config = config_0_32();
    config.num_spec_tokens = 4;
    config.log_stats = QUIRE_ON;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 5);
    kit_run(&kit, 7);
    assert_int_equal(quire_sched_update_drafts(kit.sched, &a, 1, drafts, 3, &num_drafts), QUIRE_OK);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4");
    quire_model_output output = {.size = sizeof output,
                                 .sampled = sampled,
                                 .stride = 2,
                                 .num_sampled = &num_sampled,
                                 .num_invalid_drafts = &num_invalid};
    assert_int_equal(quire_sched_update(kit.sched, 2, &output, &kit.outputs), QUIRE_OK);
    static const uint64_t drafted[] = {1, 1, 0, 0};
    static const uint64_t accepted[] = {1, 0, 0, 0};
    assert_memory_equal(kit.outputs->stats->drafts_per_pos, drafted, sizeof drafted);
    assert_memory_equal(kit.outputs->stats->spec.accepted_per_pos, accepted, sizeof accepted);
    kit_close(&kit);
}

/* ---- pace -------------------------------------------------------------------- */

/* While a decodes, b's prompt waits; but not after a step that had to leave c waiting. */
static void prompts_are_throttled(void **state)
{
    (void)state;
    quire_sched_config config = config_0_32();
    config.max_num_seqs = 2;
    kit_open(&kit, &config);
    assert_int_equal(quire_sched_set_throttle(NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_set(kit.sched, QUIRE_SET_THROTTLE, 2), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_set(kit.sched, (quire_sched_setting)3, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_reset(kit.sched, QUIRE_RESET_ENCODER + 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_set_throttle(kit.sched, 1), QUIRE_OK);
    kit_add(&kit, "a", 5);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:5"); /* nobody decoded */
    kit_add(&kit, "b", 5);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    assert_int_equal(quire_sched_set_throttle(kit.sched, 0), QUIRE_OK);
    kit_add(&kit, "c", 5);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:1 b:5"); /* c finds no place */
    quire_req b = quire_sched_find(kit.sched, (quire_bytes){"b", 1});
    assert_int_equal(quire_sched_finish(kit.sched, &b, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    assert_int_equal(quire_sched_set_throttle(kit.sched, 1), QUIRE_OK);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:1 c:5");
    kit_close(&kit);
}

/* Chunks of a prompt that runs wait too. */
static void chunks_are_throttled(void **state)
{
    (void)state;
    quire_sched_config config = config_0_32();
    config.max_num_batched_tokens = 8;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 3);
    kit_add(&kit, "b", 12);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:3 b:5");
    assert_int_equal(quire_sched_set_throttle(kit.sched, 1), QUIRE_OK);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    assert_int_equal(quire_sched_set_throttle(kit.sched, 0), QUIRE_OK);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:1 b:7");
    kit_close(&kit);
}

static void decodes_keep_their_distance(void **state)
{
    (void)state;
    quire_sched_config config = config_0_32();
    config.async_scheduling = QUIRE_ON;
    config.max_batches = 4;
    config.decode_interval = 3;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 5);
    kit_step(&kit);
    kit_add(&kit, "b", 5);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "b:5");
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "");
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    kit_answer(&kit, 1, 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "b:1");
    kit_close(&kit);
}

static void drafts_follow_the_batch(void **state)
{
    (void)state;
    static const uint32_t by_batch[] = {3, 1};
    quire_sched_config config = config_0_32();
    config.async_scheduling = QUIRE_ON;
    config.num_spec_tokens = 4;
    config.num_spec_tokens_by_batch = by_batch;
    config.num_batch_sizes = 2;
    kit_open(&kit, &config);
    kit_run(&kit, 7);
    assert_int_equal(kit.step->num_spec_tokens, 4); /* nobody is in it */
    quire_req a = kit_add(&kit, "a", 5);
    kit_run(&kit, 7);
    assert_int_equal(kit.step->num_spec_tokens, 3);
    assert_int_equal(kit_info(&kit, a).num_spec_tokens, 3);
    kit_add(&kit, "b", 5);
    kit_add(&kit, "c", 5);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4 b:5 c:5");
    assert_int_equal(kit.step->num_spec_tokens, 1);
    kit_answer(&kit, 3, 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:2 b:2 c:2");
    kit_close(&kit);
}

static void expect_refusal(const quire_sched_config *config, const char *name)
{
    quire_sched *sched;
    assert_int_equal(quire_sched_create(config, NULL, &sched), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), name));
}

static void what_other_profiles_do_not_have(void **state)
{
    (void)state;
    static const uint32_t by_batch[] = {2, 5};
    quire_sched_config config = kit_config(&kit);
    config.num_spec_tokens = 4;
    quire_sched_config c = config;
    c.decode_interval = 2;
    expect_refusal(&c, "decode_interval");
    c = config;
    c.num_spec_tokens_by_batch = by_batch;
    c.num_batch_sizes = 1;
    expect_refusal(&c, "num_batch_sizes");
    c.profile = QUIRE_PROFILE_VLLM_0_32;
    c.num_batch_sizes = 2;
    expect_refusal(&c, "num_spec_tokens_by_batch[1]");
    c.num_batch_sizes = 0;
    expect_refusal(&c, "num_batch_sizes");
    c.num_spec_tokens_by_batch = NULL;
    c.max_num_active_seqs = KIT_RUNNING + 1;
    expect_refusal(&c, "max_num_active_seqs");
    c = config;
    c.profile = QUIRE_PROFILE_VLLM_0_20;
    c.num_draft_slots = 1;
    expect_refusal(&c, "num_draft_slots");
    c.num_draft_slots = 0;
    kit_open(&kit, &c);
    assert_int_equal(quire_sched_set_throttle(kit.sched, 1), QUIRE_E_DISABLED);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_wait_for_encoder_outputs),
        cmocka_unit_test(the_encoder_may_keep_blocks),
        cmocka_unit_test(pending_frees_are_waited_for),
        cmocka_unit_test(tokens_in_flight_are_told),
        cmocka_unit_test(created_tokens_are_told),
        cmocka_unit_test(stats_can_be_taken_at_any_time),
        cmocka_unit_test(drafts_are_counted_by_place),
        cmocka_unit_test(prompts_are_throttled),
        cmocka_unit_test(chunks_are_throttled),
        cmocka_unit_test(decodes_keep_their_distance),
        cmocka_unit_test(drafts_follow_the_batch),
        cmocka_unit_test(what_other_profiles_do_not_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

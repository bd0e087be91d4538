/* obs/test_metrics_scenes.c - what a random run seldom shows: drafts, sessions, a request that
 * outgrows the pool, failed loads, an image.
 */
#include "../sched/sched_kit.h"
#include "metrics_text.h"

enum { MAX_TEXT = 1 << 18 };

typedef struct scene {
    sched_kit kit;
    quire_sched_config config;
    quire_monitor_config monitor;
    uint64_t now_ns;
    char text[MAX_TEXT];
    metrics_text parsed;
} scene;

static uint64_t read_clock(void *user)
{
    return ((scene *)user)->now_ns;
}

/* A config to change before open_scene. */
static scene *new_scene(void)
{
    scene *s = calloc(1, sizeof *s);
    s->monitor = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    s->config = kit_config(&s->kit);
    s->config.monitor = &s->monitor;
    s->config.hooks.user = s;
    s->config.hooks.now_ns = read_clock;
    return s;
}

static void open_scene(scene *s)
{
    kit_open(&s->kit, &s->config);
}

static void close_scene(scene *s)
{
    kit_close(&s->kit);
    free(s);
}

static double read_value(scene *s, const char *name, const char *part)
{
    size_t written;
    assert_int_equal(quire_monitor_write_metrics(quire_sched_get_monitor(s->kit.sched), NULL,
                                                 s->text, MAX_TEXT, &written),
                     QUIRE_OK);
    text_parse(&s->parsed, s->text, false);
    double value = text_value(&s->parsed, name, part);
    text_free(&s->parsed);
    return value;
}

#define assert_shows(scene, name, part, n) assert_true(read_value(scene, name, part) == (n))

/* Schedules and takes these tokens for each request. */
static void run_with(scene *s, const quire_token *sampled, uint32_t stride, const uint32_t *counts)
{
    kit_step(&s->kit);
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .sampled = sampled,
                                       .stride = stride,
                                       .num_sampled = counts};
    assert_int_equal(quire_sched_update(s->kit.sched, s->kit.step->step, &output, &s->kit.outputs),
                     QUIRE_OK);
}

/* ---- tests ----------------------------------------------------------------- */

static void drafts_are_counted_by_position(void **state)
{
    (void)state;
    scene *s = new_scene();
    s->config.num_spec_tokens = 3;
    open_scene(s);
    quire_req req = kit_add(&s->kit, "a", 5);
    kit_run(&s->kit, 1);
    const quire_token drafts[] = {1, 2, 3};
    assert_int_equal(quire_sched_update_drafts(s->kit.sched, &req, 1, drafts, 3, (uint32_t[]){3}),
                     QUIRE_OK);
    run_with(s, (quire_token[]){1, 2, 9, 0}, 4, (uint32_t[]){3}); /* two were right */
    assert_int_equal(quire_sched_update_drafts(s->kit.sched, &req, 1, drafts, 3, (uint32_t[]){2}),
                     QUIRE_OK);
    run_with(s, (quire_token[]){7, 0, 0, 0}, 4, (uint32_t[]){1}); /* none */
    assert_shows(s, "vllm:spec_decode_num_drafts_total", "", 2);
    assert_shows(s, "vllm:spec_decode_num_draft_tokens_total", "", 5);
    assert_shows(s, "vllm:spec_decode_num_accepted_tokens_total", "", 2);
    assert_shows(s, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "position=\"0\"", 1);
    assert_shows(s, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "position=\"1\"", 1);
    assert_shows(s, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "position=\"2\"", 0);
    assert_shows(s, "quire_scheduled_tokens_total", "kind=\"prefill\"", 5);
    assert_shows(s, "quire_scheduled_tokens_total", "kind=\"decode\"", 2);
    assert_shows(s, "quire_scheduled_tokens_total", "kind=\"draft\"", 5);
    assert_shows(s, "vllm:generation_tokens_total", "", 5);
    close_scene(s);
}

/* It has all blocks and needs one more. Its place is taken by another before that is told. */
static void one_that_outgrows_the_pool_counts_once(void **state)
{
    (void)state;
    scene *s = new_scene();
    s->config.cache->num_blocks = 5; /* 16 tokens */
    open_scene(s);
    s->kit.params.max_tokens = 30;
    kit_add(&s->kit, "a", 14);
    while (quire_sched_get_num_unfinished(s->kit.sched) > 0) {
        s->now_ns += 1000;
        kit_step(&s->kit);
        if (quire_sched_get_num_unfinished(s->kit.sched) > 0)
            kit_answer(&s->kit, s->kit.step->step, 1);
    }
    quire_req other = kit_add(&s->kit, "b", 2);
    assert_int_equal(quire_req_index(other), 0);
    kit_answer(&s->kit, s->kit.step->step, 1);
    assert_int_equal(s->kit.outputs->num_outputs, 1);
    assert_int_equal(s->kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    assert_shows(s, "vllm:request_success_total", "finished_reason=\"length\"", 1);
    assert_shows(s, "vllm:e2e_request_latency_seconds_count", "", 1);
    assert_shows(s, "vllm:request_generation_tokens_sum", "", 3);
    assert_shows(s, "vllm:time_to_first_token_seconds_count", "", 1);
    s->now_ns += 5000;
    kit_run(&s->kit, 1);
    assert_shows(s, "vllm:time_to_first_token_seconds_count", "", 2);
    close_scene(s);
}

static void a_session_is_one_request(void **state)
{
    (void)state;
    scene *s = new_scene();
    open_scene(s);
    s->kit.params.max_tokens = 2;
    s->kit.params.is_resumable = 1;
    quire_req req = kit_add(&s->kit, "a", 5);
    s->now_ns = 1000000000;
    kit_run(&s->kit, 1);
    kit_run(&s->kit, 1);
    assert_int_equal(s->kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    assert_shows(s, "vllm:request_success_total", "finished_reason=\"length\"", 0);
    s->now_ns = 100000000000; /* until the next input comes */
    assert_int_equal(quire_sched_continue(s->kit.sched, req, kit_params(&s->kit, "b", 4)),
                     QUIRE_OK);
    s->now_ns += 2000000000;
    kit_run(&s->kit, 1);
    assert_shows(s, "vllm:time_to_first_token_seconds_count", "", 2);
    assert_shows(s, "vllm:time_to_first_token_seconds_sum", "", 3);
    assert_int_equal(quire_sched_continue(s->kit.sched, req, NULL), QUIRE_OK);
    kit_run(&s->kit, 1);
    assert_shows(s, "vllm:request_success_total", "finished_reason=\"length\"", 1);
    assert_shows(s, "vllm:request_queue_time_seconds_sum", "", 2);
    assert_shows(s, "vllm:inter_token_latency_seconds_count", "", 2);
    close_scene(s);
}

/* ---- a connector ----------------------------------------------------------- */

static int give_eight(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    (void)user;
    (void)req;
    *num_external = num_local < 8 ? 8 - num_local : 0;
    *is_async = 0;
    return QUIRE_OK;
}

static void external_tokens_and_a_load_that_fails(void **state)
{
    (void)state;
    const quire_connector connector = {.size = sizeof(quire_connector),
                                       .get_num_new_matched_tokens = give_eight};
    scene *s = new_scene();
    s->config.connector = &connector;
    s->config.fail_on_load_error = QUIRE_ON;
    open_scene(s);
    kit_add(&s->kit, "a", 12);
    kit_run(&s->kit, 1);
    assert_shows(s, "vllm:external_prefix_cache_queries_total", "", 12);
    assert_shows(s, "vllm:external_prefix_cache_hits_total", "", 8);
    assert_shows(s, "vllm:prompt_tokens_by_source_total", "source=\"external_kv_transfer\"", 8);
    assert_shows(s, "vllm:prompt_tokens_by_source_total", "source=\"local_compute\"", 4);
    quire_req req = kit_add(&s->kit, "b", 12);
    kit_step(&s->kit);
    quire_block_span blocks;
    assert_int_equal(quire_sched_get_blocks(s->kit.sched, req, &blocks), QUIRE_OK);
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .sampled = (quire_token[]){1, 1},
                                       .invalid_blocks = blocks.ids,
                                       .num_invalid_blocks = 1};
    assert_int_equal(quire_sched_update(s->kit.sched, s->kit.step->step, &output, &s->kit.outputs),
                     QUIRE_OK);
    assert_shows(s, "vllm:request_success_total", "finished_reason=\"error\"", 1);
    assert_shows(s, "vllm:e2e_request_latency_seconds_count", "", 1);
    assert_shows(s, "vllm:time_to_first_token_seconds_count", "", 1); /* it got none */
    close_scene(s);
}

/* ---- an image -------------------------------------------------------------- */

static void an_image_of_one_that_is_watched(void **state)
{
    (void)state;
    scene *s = new_scene();
    open_scene(s);
    kit_add(&s->kit, "a", 5);
    kit_run(&s->kit, 1);
    size_t bytes;
    void *image = malloc(1 << 22);
    assert_int_equal(quire_sched_save(s->kit.sched, image, 1 << 22, &bytes), QUIRE_OK);
    quire_sched *plain;
    quire_sched *watched;
    quire_sched_config config = s->config;
    assert_int_equal(quire_sched_restore(&config, NULL, image, bytes, &watched), QUIRE_OK);
    config.monitor = NULL;
    assert_int_equal(quire_sched_restore(&config, NULL, image, bytes, &plain), QUIRE_OK);
    quire_sched_destroy(plain);
    quire_sched *first = s->kit.sched;
    s->kit.sched = watched;
    kit_run(&s->kit, 1);
    kit_run(&s->kit, 1);
    assert_shows(s, "vllm:generation_tokens_total", "", 2);
    assert_shows(s, "vllm:inter_token_latency_seconds_count", "", 1);
    assert_shows(s, "vllm:time_to_first_token_seconds_count", "", 0);
    quire_sched_destroy(first);
    free(image);
    close_scene(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_counted_by_position),
        cmocka_unit_test(one_that_outgrows_the_pool_counts_once),
        cmocka_unit_test(a_session_is_one_request),
        cmocka_unit_test(external_tokens_and_a_load_that_fails),
        cmocka_unit_test(an_image_of_one_that_is_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

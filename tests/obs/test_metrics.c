/* obs/test_metrics.c - counters and histograms: what a request's life leaves in them. */
#include "metrics_box.h"

enum { MS = 1000000 };
static const uint64_t S = UINT64_C(1000) * MS;

static const qr_metrics_shape SHAPE = {.max_requests = 4, .max_model_len = 100, .num_blocks = 11};

static uint64_t value(const metrics_box *box, qr_metric metric, uint32_t place)
{
    return qr_metrics_get(&box->metrics, metric, place);
}

static uint64_t count_of(const metrics_box *box, qr_metric metric)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i <= box->metrics.count[metric]; i++)
        n += value(box, metric, i);
    return n;
}

/* One observation, and this is it. */
static void assert_only(const metrics_box *box, qr_metric metric, uint64_t expected)
{
    assert_int_equal(count_of(box, metric), 1);
    assert_true(qr_metrics_sum(&box->metrics, metric) == (double)expected);
}

static quire_output output_of(uint32_t index, uint32_t num_tokens, quire_finish_reason reason)
{
    return (quire_output){.req = (UINT64_C(1) << 32) | (index + 1),
                          .num_new_tokens = num_tokens,
                          .finish_reason = reason};
}

static void take(metrics_box *box, uint64_t now_ns, quire_output out)
{
    box->metrics.now_ns = now_ns;
    if (out.finish_reason != QUIRE_FINISH_NONE)
        qr_metrics_mark_end(&box->metrics, quire_req_index(out.req));
    qr_metrics_take_outputs(&box->metrics, &out, 0, 1);
}

static void add(metrics_box *box, uint64_t now_ns, uint32_t index)
{
    box->metrics.now_ns = now_ns;
    qr_metrics_add_request(&box->metrics, index, 40, 30);
}

static void admit(metrics_box *box, uint64_t now_ns, uint32_t index)
{
    box->metrics.now_ns = now_ns;
    qr_metrics_admit(&box->metrics, index);
}

/* ---- tests ----------------------------------------------------------------- */

static void a_value_counts_up_to_its_bound(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    const uint64_t *bounds = qr_metrics_bounds(&box.metrics, QR_METRIC_FIRST_TOKEN);
    uint32_t n = box.metrics.count[QR_METRIC_FIRST_TOKEN];
    assert_int_equal(n, 22);
    for (uint32_t i = 0; i < n; i++) {
        qr_metrics_observe(&box.metrics, QR_METRIC_FIRST_TOKEN, bounds[i], 1);
        qr_metrics_observe(&box.metrics, QR_METRIC_FIRST_TOKEN, bounds[i] + 1, 2);
        assert_int_equal(value(&box, QR_METRIC_FIRST_TOKEN, i), i == 0 ? 1 : 3);
    }
    qr_metrics_observe(&box.metrics, QR_METRIC_FIRST_TOKEN, UINT64_MAX, 1);
    assert_int_equal(value(&box, QR_METRIC_FIRST_TOKEN, n), 3);
    box_close(&box);
}

static void lengths_have_bounds_up_to_the_longest(void **state)
{
    (void)state;
    static const struct {
        uint32_t max_model_len;
        uint32_t num_bounds;
        uint64_t last;
    } cases[] = {{1, 1, 1},
                 {4, 2, 2},
                 {5, 3, 5},
                 {100, 7, 100},
                 {4096, 11, 2000},
                 {131072, 16, 100000},
                 {999, 9, 500},
                 {1000000, 19, 1000000},
                 {INT32_MAX, 29, 2000000000}};
    for (uint32_t i = 0; i < COUNT(cases); i++) {
        metrics_box box;
        qr_metrics_shape shape = SHAPE;
        shape.max_model_len = cases[i].max_model_len;
        box_open(&box, &shape, 1, 1);
        const uint64_t *bounds = qr_metrics_bounds(&box.metrics, QR_METRIC_PROMPT_LENGTH);
        assert_int_equal(box.metrics.count[QR_METRIC_PROMPT_LENGTH], cases[i].num_bounds);
        assert_int_equal(bounds[cases[i].num_bounds - 1], cases[i].last);
        box_close(&box);
    }
}

static void all_times_of_a_request(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    add(&box, 1 * S, 2);
    admit(&box, 3 * S, 2);
    quire_output first = output_of(2, 1, QUIRE_FINISH_NONE);
    first.has_prefill_stats = 1;
    first.num_prompt_tokens = 40;
    first.num_local_cached = 16;
    first.num_external_cached = 8;
    take(&box, 4 * S, first);
    assert_only(&box, QR_METRIC_FIRST_TOKEN, 3 * S);
    assert_int_equal(count_of(&box, QR_METRIC_TOKEN_GAP), 0);
    assert_int_equal(value(&box, QR_METRIC_PROMPT, 0), 40);
    assert_int_equal(value(&box, QR_METRIC_PROMPT_CACHED, 0), 24);
    assert_int_equal(value(&box, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_COMPUTE), 16);
    assert_int_equal(value(&box, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_CACHE), 16);
    assert_int_equal(value(&box, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_EXTERNAL), 8);
    assert_only(&box, QR_METRIC_ITERATION_TOKENS, 41);
    admit(&box, 5 * S, 2); /* after a preemption: the first time counts */
    take(&box, 6 * S, output_of(2, 2, QUIRE_FINISH_NONE));
    assert_only(&box, QR_METRIC_TOKEN_GAP, 2 * S);
    take(&box, 10 * S, output_of(2, 2, QUIRE_FINISH_LENGTH));
    assert_int_equal(count_of(&box, QR_METRIC_TOKEN_GAP), 2);
    assert_only(&box, QR_METRIC_END_TO_END, 9 * S);
    assert_only(&box, QR_METRIC_QUEUE_TIME, 2 * S);
    assert_only(&box, QR_METRIC_PREFILL_TIME, 1 * S);
    assert_only(&box, QR_METRIC_INFERENCE_TIME, 7 * S);
    assert_only(&box, QR_METRIC_DECODE_TIME, 6 * S);
    assert_only(&box, QR_METRIC_TOKEN_TIME, 6 * S / 4);
    assert_only(&box, QR_METRIC_PROMPT_LENGTH, 40);
    assert_only(&box, QR_METRIC_PREFILL_COMPUTED, 16);
    assert_only(&box, QR_METRIC_GENERATION_LENGTH, 5);
    assert_only(&box, QR_METRIC_MOST_GENERATED, 5);
    assert_only(&box, QR_METRIC_MAX_TOKENS, 30);
    assert_int_equal(value(&box, QR_METRIC_FINISHED, QUIRE_FINISH_LENGTH - 1), 1);
    assert_int_equal(value(&box, QR_METRIC_GENERATION, 0), 5);
    box_close(&box);
}

static void gaps_of_one_update_are_told_together(void **state)
{
    (void)state;
    metrics_box box;
    quire_output outputs[4];
    box_open(&box, &SHAPE, 1, 1);
    for (uint32_t i = 0; i < 4; i++) {
        add(&box, 0, i);
        admit(&box, 0, i);
        take(&box, i < 2 ? 1 * S : 2 * S, output_of(i, 1, QUIRE_FINISH_NONE));
        outputs[i] = output_of((i * 3) % 4, 1, QUIRE_FINISH_NONE); /* 0 3 2 1: runs of 1, 2, 1 */
    }
    box.metrics.now_ns = 3 * S;
    qr_metrics_take_outputs(&box.metrics, outputs, 0, 4);
    assert_int_equal(count_of(&box, QR_METRIC_TOKEN_GAP), 4);
    assert_true(qr_metrics_sum(&box.metrics, QR_METRIC_TOKEN_GAP) == (double)(6 * S));
    box_close(&box);
}

static void an_aborted_request_is_counted_alone(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    add(&box, 0, 0);
    admit(&box, 0, 0);
    qr_metrics_end_request(&box.metrics, 0, QUIRE_REQ_FINISHED_ABORTED);
    assert_int_equal(value(&box, QR_METRIC_FINISHED, QUIRE_FINISH_ABORT - 1), 1);
    assert_int_equal(count_of(&box, QR_METRIC_END_TO_END), 0);
    take(&box, 5, output_of(0, 1, QUIRE_FINISH_ERROR)); /* what still comes does not count again */
    assert_int_equal(value(&box, QR_METRIC_FINISHED, QUIRE_FINISH_ERROR - 1), 0);
    box_close(&box);
}

static void ended_from_outside(void **state)
{
    (void)state;
    static const struct {
        quire_req_status status;
        quire_finish_reason reason;
    } cases[] = {{QUIRE_REQ_FINISHED_STOPPED, QUIRE_FINISH_STOP},
                 {QUIRE_REQ_FINISHED_LENGTH, QUIRE_FINISH_LENGTH},
                 {QUIRE_REQ_FINISHED_IGNORED, QUIRE_FINISH_LENGTH},
                 {QUIRE_REQ_FINISHED_ERROR, QUIRE_FINISH_ERROR},
                 {QUIRE_REQ_FINISHED_REPETITION, QUIRE_FINISH_REPETITION}};
    for (uint32_t i = 0; i < COUNT(cases); i++) {
        metrics_box box;
        box_open(&box, &SHAPE, 1, 1);
        add(&box, 2 * S, 0);
        box.metrics.now_ns = 6 * S;
        qr_metrics_end_request(&box.metrics, 0, cases[i].status);
        assert_int_equal(value(&box, QR_METRIC_FINISHED, (uint32_t)cases[i].reason - 1), 1);
        assert_only(&box, QR_METRIC_END_TO_END, 4 * S);
        assert_int_equal(count_of(&box, QR_METRIC_QUEUE_TIME), 0); /* it never ran */
        assert_int_equal(count_of(&box, QR_METRIC_DECODE_TIME), 0);
        assert_int_equal(count_of(&box, QR_METRIC_TOKEN_TIME), 0);
        box_close(&box);
    }
}

/* A session: its turns have first tokens, its end is one. */
static void a_session_goes_on(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    add(&box, 0, 1);
    admit(&box, 1 * S, 1);
    take(&box, 2 * S, output_of(1, 1, QUIRE_FINISH_NONE));
    quire_output last = output_of(1, 1, QUIRE_FINISH_STOP);
    box.metrics.now_ns = 3 * S;
    qr_metrics_continue_request(&box.metrics, 1, 60); /* its input was there: before the output */
    qr_metrics_take_outputs(&box.metrics, &last, 0, 1);
    assert_int_equal(value(&box, QR_METRIC_FINISHED, QUIRE_FINISH_STOP - 1), 0);
    assert_int_equal(count_of(&box, QR_METRIC_TOKEN_GAP), 1);
    admit(&box, 5 * S, 1);
    take(&box, 7 * S, output_of(1, 1, QUIRE_FINISH_NONE));
    assert_int_equal(count_of(&box, QR_METRIC_FIRST_TOKEN), 2);
    assert_true(qr_metrics_sum(&box.metrics, QR_METRIC_FIRST_TOKEN) == (double)(6 * S));
    assert_int_equal(count_of(&box, QR_METRIC_TOKEN_GAP), 1);
    take(&box, 8 * S, output_of(1, 1, QUIRE_FINISH_STOP));
    assert_only(&box, QR_METRIC_END_TO_END, 5 * S);
    assert_only(&box, QR_METRIC_QUEUE_TIME, 2 * S);
    assert_only(&box, QR_METRIC_PROMPT_LENGTH, 60);
    assert_only(&box, QR_METRIC_GENERATION_LENGTH, 4);
    box_close(&box);
}

/* One that was restored from an image. */
static void a_request_that_was_not_seen_coming(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    take(&box, 2 * S, output_of(0, 1, QUIRE_FINISH_NONE));
    assert_int_equal(count_of(&box, QR_METRIC_FIRST_TOKEN), 0);
    take(&box, 5 * S, output_of(0, 1, QUIRE_FINISH_NONE));
    assert_only(&box, QR_METRIC_TOKEN_GAP, 3 * S);
    take(&box, 6 * S, output_of(0, 1, QUIRE_FINISH_STOP));
    assert_int_equal(value(&box, QR_METRIC_FINISHED, QUIRE_FINISH_STOP - 1), 1);
    assert_int_equal(count_of(&box, QR_METRIC_END_TO_END), 0);
    assert_int_equal(count_of(&box, QR_METRIC_PROMPT_LENGTH), 0);
    box_close(&box);
}

static void a_clock_that_goes_back_is_no_negative_time(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    add(&box, 9 * S, 0);
    admit(&box, 8 * S, 0);
    take(&box, 7 * S, output_of(0, 1, QUIRE_FINISH_NONE));
    take(&box, 6 * S, output_of(0, 1, QUIRE_FINISH_STOP));
    for (uint32_t i = QR_METRIC_FIRST_TOKEN; i <= QR_METRIC_DECODE_TIME; i++)
        assert_only(&box, (qr_metric)i, 0);
    box_close(&box);
}

/* A prompt whose numbers do not add up is counted as far as it is one. */
static void cached_tokens_are_of_the_prompt(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    add(&box, 0, 0);
    quire_output first = output_of(0, 1, QUIRE_FINISH_NONE);
    first.has_prefill_stats = 1;
    first.num_prompt_tokens = 10;
    first.num_local_cached = 12;
    first.num_external_cached = 5;
    take(&box, 1, first);
    assert_int_equal(value(&box, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_COMPUTE), 0);
    assert_int_equal(value(&box, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_CACHE), 10);
    assert_int_equal(value(&box, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_EXTERNAL), 0);
    box_close(&box);
}

static void levels_of_two_tiers(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    quire_tier_usage tiers[] = {
        {.name = "gpu",
         .blocks = {.total = 11, .empty = 2, .cached = 3, .active = 5, .null_blocks = 1}},
        {.name = "swap", .blocks = {.total = 7, .empty = 5, .active = 2}}};
    qr_metrics_levels levels = {.num_running = 3,
                                .num_waiting = 4,
                                .num_skipped = 5,
                                .tiers = tiers,
                                .num_tiers = 2,
                                .num_allocated = 20,
                                .num_evicted = 6};
    qr_metrics_set_levels(&box.metrics, &levels);
    quire_tier_usage seen[QUIRE_MAX_TIERS];
    assert_int_equal(qr_tiers_get(&box.metrics.tiers, seen, QUIRE_MAX_TIERS), 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(seen[i].name, tiers[i].name);
        assert_memory_equal(&seen[i].blocks, &tiers[i].blocks, sizeof tiers[i].blocks);
    }
    assert_int_equal(value(&box, QR_METRIC_USAGE, 0), 500000000);
    assert_int_equal(value(&box, QR_METRIC_WAITING, 0), 9);
    assert_int_equal(value(&box, QR_METRIC_ALLOCATIONS, 0), 20);
    assert_int_equal(value(&box, QR_METRIC_EVICTIONS, 0), 6);
    tiers[0].blocks = (quire_usage){.total = 1, .null_blocks = 1}; /* the null block alone */
    qr_metrics_set_levels(&box.metrics, &levels);
    assert_int_equal(value(&box, QR_METRIC_USAGE, 0), 0);
    box_close(&box);
}

static void tokens_of_a_step_add_up(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    quire_monitor_step steps[] = {
        {.num_tokens = 20, .num_prefill_tokens = 12, .num_draft_tokens = 3, .schedule_ns = 1500},
        {.num_tokens = 9, .num_prefill_tokens = 9, .num_draft_tokens = 2, .schedule_ns = 900}};
    qr_metrics_end_schedule(&box.metrics, &steps[0]);
    qr_metrics_end_schedule(&box.metrics, &steps[1]);
    qr_metrics_end_update(&box.metrics, 100);
    assert_int_equal(value(&box, QR_METRIC_STEPS, 0), 2);
    assert_int_equal(value(&box, QR_METRIC_SCHEDULED, QR_SCHEDULED_PREFILL), 21);
    assert_int_equal(value(&box, QR_METRIC_SCHEDULED, QR_SCHEDULED_DECODE), 5);
    assert_int_equal(value(&box, QR_METRIC_SCHEDULED, QR_SCHEDULED_DRAFT), 3);
    assert_int_equal(value(&box, QR_METRIC_SCHEDULE_TIME, 0), 1);
    assert_int_equal(value(&box, QR_METRIC_SCHEDULE_TIME, 1), 1);
    assert_only(&box, QR_METRIC_UPDATE_TIME, 100);
    box_close(&box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_counts_up_to_its_bound),
        cmocka_unit_test(lengths_have_bounds_up_to_the_longest),
        cmocka_unit_test(all_times_of_a_request),
        cmocka_unit_test(gaps_of_one_update_are_told_together),
        cmocka_unit_test(an_aborted_request_is_counted_alone),
        cmocka_unit_test(ended_from_outside),
        cmocka_unit_test(a_session_goes_on),
        cmocka_unit_test(a_request_that_was_not_seen_coming),
        cmocka_unit_test(a_clock_that_goes_back_is_no_negative_time),
        cmocka_unit_test(cached_tokens_are_of_the_prompt),
        cmocka_unit_test(levels_of_two_tiers),
        cmocka_unit_test(tokens_of_a_step_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

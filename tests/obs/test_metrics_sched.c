/* obs/test_metrics_sched.c - the metrics of a scheduler that works, against what its callers saw.
 *
 *      program [SEED]
 *
 * Random requests come, are aborted, preempted, reset and finished. A plain account of it is kept
 * from what add, schedule and update gave back; every so often the text is read and compared.
 * Then the same while another thread reads: no counter goes back, no part is more than its whole.
 */
#include "../sched/sched_kit.h"
#include "metrics_text.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MAX_TEXT = 1 << 17, STEPS = 1500 };
static const uint64_t NEVER = UINT64_MAX;

typedef struct account_request {
    uint64_t added;
    uint64_t scheduled;
    uint64_t first;
    uint64_t last;
    uint32_t num_prompt;
    uint32_t num_cached;
    uint32_t num_generated;
    uint32_t max_tokens;
} account_request;

/* Sums in ns or tokens; counts. */
typedef struct account_span {
    double sum;
    uint64_t count;
} account_span;

typedef struct account {
    account_request requests[KIT_REQUESTS];
    uint64_t num_added;
    uint64_t num_steps;
    uint64_t num_tokens;
    uint64_t num_preempted;
    uint64_t num_generated;
    uint64_t num_prompt;
    uint64_t num_local;
    uint64_t num_computed;
    uint64_t finished[6];
    uint64_t events[4]; /* by kind */
    quire_prefix_stats prefix;
    account_span first_token;
    account_span gap;
    account_span end_to_end;
    account_span queue;
    account_span prefill;
    account_span decode;
    account_span inference;
    account_span prompt_length;
    account_span generation_length;
    account_span max_tokens;
    account_span computed_length;
    account_span iteration;
} account;

typedef struct bench {
    sched_kit kit;
    quire_monitor_config monitor;
    uint64_t now_ns;
    uint64_t random;
    uint64_t num_ids;
    account seen;
    uint64_t flight[2]; /* steps that wait for their update */
    uint32_t num_flight;
    char *text;
} bench;

static uint64_t seed_given;

static uint64_t read_clock(void *user)
{
    return ((bench *)user)->now_ns;
}

static void count_event(void *user, const quire_event *event)
{
    ((bench *)user)->seen.events[event->kind]++;
}

static void open_bench(bench *b, bool is_async, uint32_t num_swap_blocks)
{
    memset(b, 0, sizeof *b);
    b->monitor = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    b->monitor.sample_rate = 1;
    b->random = seed_given;
    b->text = malloc(MAX_TEXT);
    quire_sched_config c = kit_config(&b->kit);
    c.monitor = &b->monitor;
    c.hooks.user = b;
    c.hooks.now_ns = read_clock;
    c.cache->on_event = count_event;
    c.cache->event_user = b;
    c.log_stats = QUIRE_ON;
    c.async_scheduling = is_async ? QUIRE_ON : QUIRE_OFF;
    c.num_swap_blocks = num_swap_blocks;
    c.swap_block_ns = 1;
    c.recompute_token_ns = 1000;
    kit_open(&b->kit, &c);
}

static void close_bench(bench *b)
{
    free(b->text);
    kit_close(&b->kit);
}

static uint32_t below(bench *b, uint32_t n)
{
    return unit_random_below(&b->random, n);
}

/* ---- what happens, and its account ----------------------------------------- */

static void span_add(account_span *span, uint64_t from, uint64_t to)
{
    if (from == NEVER || to == NEVER)
        return;
    span->sum += (double)(to - from);
    span->count++;
}

static void add_some(bench *b)
{
    char id[32];
    quire_req req;
    snprintf(id, sizeof id, "%c%llu", (char)('a' + below(b, 3)), (unsigned long long)b->num_ids++);
    uint32_t n = 1 + below(b, 30);
    b->kit.params = (quire_request_params){.size = sizeof(quire_request_params),
                                           .max_tokens = 1 + below(b, 12)};
    if (quire_sched_add(b->kit.sched, kit_params(&b->kit, id, n), &req) != QUIRE_OK)
        return;
    b->seen.requests[quire_req_index(req)] =
        (account_request){.added = b->now_ns,
                          .scheduled = NEVER,
                          .first = NEVER,
                          .last = NEVER,
                          .num_prompt = n,
                          .max_tokens = b->kit.params.max_tokens};
    b->seen.num_added++;
}

static void abort_one(bench *b)
{
    quire_req reqs[KIT_REQUESTS];
    uint32_t n = quire_sched_get_queue(b->kit.sched, below(b, 2), reqs, KIT_REQUESTS);
    if (n == 0)
        return;
    assert_int_equal(
        quire_sched_finish(b->kit.sched, &reqs[below(b, n)], 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
        QUIRE_OK);
    b->seen.finished[QUIRE_FINISH_ABORT]++;
}

static void reset_cache(bench *b)
{
    b->seen.num_preempted += quire_sched_get_counts(b->kit.sched).num_running;
    quire_sched_reset_prefix_cache(b->kit.sched, 1, 0);
}

static void schedule(bench *b)
{
    account *a = &b->seen;
    assert_int_equal(quire_sched_schedule(b->kit.sched, &b->kit.step), QUIRE_OK);
    const quire_step *step = b->kit.step;
    a->num_steps++;
    a->num_tokens += step->total_tokens;
    a->num_preempted += step->num_preempted;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        account_request *r = &a->requests[quire_req_index(step->reqs[i])];
        if (r->scheduled == NEVER)
            r->scheduled = b->now_ns;
    }
    b->flight[b->num_flight++] = step->step;
}

static void finish(account *a, const account_request *r, quire_finish_reason reason, uint64_t now)
{
    a->finished[reason]++;
    span_add(&a->end_to_end, r->added, now);
    span_add(&a->queue, r->added, r->scheduled);
    span_add(&a->prefill, r->scheduled, r->first);
    span_add(&a->decode, r->first, r->last);
    span_add(&a->inference, r->scheduled, r->last);
    span_add(&a->prompt_length, 0, r->num_prompt);
    span_add(&a->generation_length, 0, r->num_generated);
    span_add(&a->max_tokens, 0, r->max_tokens);
    span_add(&a->computed_length, 0, r->num_prompt - r->num_cached);
}

static void take_output(bench *b, const quire_output *out, uint64_t *num_tokens)
{
    account *a = &b->seen;
    account_request *r = &a->requests[quire_req_index(out->req)];
    a->num_generated += out->num_new_tokens;
    *num_tokens += out->num_new_tokens;
    r->num_generated += out->num_new_tokens;
    if (r->last == NEVER) {
        assert_true(out->has_prefill_stats);
        span_add(&a->first_token, r->added, b->now_ns);
        r->first = b->now_ns;
        r->num_cached = out->num_local_cached;
        a->num_prompt += out->num_prompt_tokens;
        a->num_local += out->num_local_cached;
        a->num_computed += out->num_prompt_tokens - out->num_local_cached;
        *num_tokens += out->num_prompt_tokens;
    } else {
        span_add(&a->gap, r->last, b->now_ns);
    }
    r->last = b->now_ns;
    if (out->finish_reason != QUIRE_FINISH_NONE)
        finish(a, r, out->finish_reason, b->now_ns);
}

static void update(bench *b)
{
    quire_token sampled[KIT_RUNNING];
    for (uint32_t i = 0; i < KIT_RUNNING; i++)
        sampled[i] = (quire_token)below(b, 100);
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    const quire_outputs *outputs;
    assert_int_equal(quire_sched_update(b->kit.sched, b->flight[0], &output, &outputs), QUIRE_OK);
    b->flight[0] = b->flight[1];
    b->num_flight--;
    uint64_t num_tokens = 0;
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        take_output(b, &outputs->outputs[i], &num_tokens);
    if (outputs->num_outputs > 0)
        span_add(&b->seen.iteration, 0, num_tokens);
    b->seen.prefix.queries += outputs->stats->prefix.queries;
    b->seen.prefix.hits += outputs->stats->prefix.hits;
    b->seen.prefix.preempted_queries += outputs->stats->prefix.preempted_queries;
    b->seen.prefix.preempted_hits += outputs->stats->prefix.preempted_hits;
}

static void step(bench *b, bool is_async)
{
    b->now_ns += 1 + below(b, 1000000000);
    for (uint32_t i = below(b, 3); i > 0; i--)
        add_some(b);
    if (below(b, 25) == 0)
        abort_one(b);
    if (below(b, 150) == 0)
        reset_cache(b);
    b->now_ns += 1 + below(b, 1000);
    schedule(b);
    b->now_ns += 1 + below(b, 100000000);
    while (b->num_flight > (is_async && below(b, 4) > 0 ? 1 : 0))
        update(b);
}

/* ---- reading --------------------------------------------------------------- */

static void read_text(bench *b, metrics_text *parsed, bool is_open)
{
    size_t written;
    quire_metrics_format format = {.size = sizeof format, .is_openmetrics = is_open};
    assert_int_equal(quire_monitor_write_metrics(quire_sched_get_monitor(b->kit.sched), &format,
                                                 b->text, MAX_TEXT, &written),
                     QUIRE_OK);
    assert_int_equal(strlen(b->text), written);
    text_parse(parsed, b->text, is_open);
}

static void assert_value(const metrics_text *t, const char *name, const char *part, uint64_t n)
{
    double found = text_value(t, name, part);
    if (found != (double)n)
        fail_msg("%s{%s} is %.17g, not %llu", name, part, found, (unsigned long long)n);
}

static void assert_span(const metrics_text *t, const char *name, account_span span, double unit)
{
    char full[96];
    snprintf(full, sizeof full, "%s_count", name);
    assert_value(t, full, "", span.count);
    snprintf(full, sizeof full, "%s_sum", name);
    double found = text_value(t, full, "");
    if (found < span.sum / unit - 1e-6 || found > span.sum / unit + 1e-6)
        fail_msg("%s is %.17g, not %.17g", full, found, span.sum / unit);
}

static void compare_spans(const metrics_text *t, const account *a)
{
    assert_span(t, "vllm:time_to_first_token_seconds", a->first_token, 1e9);
    assert_span(t, "vllm:inter_token_latency_seconds", a->gap, 1e9);
    assert_span(t, "vllm:e2e_request_latency_seconds", a->end_to_end, 1e9);
    assert_span(t, "vllm:request_queue_time_seconds", a->queue, 1e9);
    assert_span(t, "vllm:request_prefill_time_seconds", a->prefill, 1e9);
    assert_span(t, "vllm:request_decode_time_seconds", a->decode, 1e9);
    assert_span(t, "vllm:request_inference_time_seconds", a->inference, 1e9);
    assert_span(t, "quire_request_prompt_tokens", a->prompt_length, 1);
    assert_span(t, "quire_request_generation_tokens", a->generation_length, 1);
    assert_span(t, "quire_request_max_num_generation_tokens", a->generation_length, 1);
    assert_span(t, "quire_request_params_max_tokens", a->max_tokens, 1);
    assert_span(t, "quire_request_prefill_kv_computed_tokens", a->computed_length, 1);
    assert_span(t, "quire_iteration_tokens", a->iteration, 1);
}

static void compare_levels(const bench *b, const metrics_text *t)
{
    quire_usage usage = quire_sched_get_usage(b->kit.sched);
    quire_req reqs[KIT_REQUESTS];
    assert_value(t, "quire_blocks", "state=\"empty\",tier=\"gpu\"", usage.empty);
    assert_value(t, "quire_blocks", "state=\"cached\",tier=\"gpu\"", usage.cached);
    assert_value(t, "quire_blocks", "state=\"active\",tier=\"gpu\"", usage.active);
    assert_value(t, "quire_requests_running", "", quire_sched_get_counts(b->kit.sched).num_running);
    assert_value(t, "quire_requests_waiting", "", quire_sched_get_counts(b->kit.sched).num_waiting);
    assert_value(t, "quire_requests_waiting_by_reason", "reason=\"deferred\"",
                 quire_sched_get_queue(b->kit.sched, 2, reqs, KIT_REQUESTS));
}

static void compare(bench *b)
{
    static const char *const reasons[] = {"", "stop", "length", "abort", "error", "repetition"};
    const account *a = &b->seen;
    metrics_text t;
    read_text(b, &t, below(b, 2) == 0);
    assert_value(&t, "quire_requests_added_total", "", a->num_added);
    assert_value(&t, "quire_steps_total", "", a->num_steps);
    assert_value(&t, "quire_preemptions_total", "", a->num_preempted);
    assert_value(&t, "vllm:generation_tokens_total", "", a->num_generated);
    assert_value(&t, "vllm:prompt_tokens_total", "", a->num_prompt);
    assert_value(&t, "vllm:prompt_tokens_cached_total", "", a->num_local);
    assert_value(&t, "vllm:prompt_tokens_by_source_total", "source=\"local_compute\"",
                 a->num_computed);
    assert_value(&t, "vllm:prefix_cache_queries_total", "", a->prefix.queries);
    assert_value(&t, "vllm:prefix_cache_hits_total", "", a->prefix.hits);
    assert_value(&t, "quire_prefix_cache_preempted_queries_total", "", a->prefix.preempted_queries);
    assert_value(&t, "quire_prefix_cache_preempted_hits_total", "", a->prefix.preempted_hits);
    double scheduled = text_value(&t, "quire_scheduled_tokens_total", "kind=\"prefill\"") +
                       text_value(&t, "quire_scheduled_tokens_total", "kind=\"decode\"") +
                       text_value(&t, "quire_scheduled_tokens_total", "kind=\"draft\"");
    assert_true(scheduled == (double)a->num_tokens);
    for (uint32_t i = QUIRE_FINISH_STOP; i <= QUIRE_FINISH_REPETITION; i++) {
        char part[64];
        snprintf(part, sizeof part, "finished_reason=\"%s\"", reasons[i]);
        assert_value(&t, "vllm:request_success_total", part, a->finished[i]);
    }
    assert_value(&t, "quire_events_total", "kind=\"stored\"", a->events[QUIRE_EVENT_STORED]);
    assert_value(&t, "quire_events_total", "kind=\"removed\"", a->events[QUIRE_EVENT_REMOVED]);
    assert_value(&t, "quire_events_total", "kind=\"cleared\"", a->events[QUIRE_EVENT_CLEARED]);
    assert_value(&t, "quire_blocks_evicted_total", "", a->events[QUIRE_EVENT_REMOVED]);
    double allocated = text_value(&t, "quire_blocks_allocated_total", "");
    assert_true(text_value(&t, "quire_residency_sampled_blocks_total", "") == allocated);
    double lives = text_value(&t, "vllm:kv_block_lifetime_seconds_count", "");
    assert_true(lives < allocated && lives > allocated / 2); /* the rest lives, or was reset */
    compare_spans(&t, a);
    compare_levels(b, &t);
    text_free(&t);
}

/* ---- tests ----------------------------------------------------------------- */

static void run_and_compare(bool is_async, uint32_t num_swap_blocks)
{
    static bench b;
    open_bench(&b, is_async, num_swap_blocks);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(&b, is_async);
        if (i % 50 == 49 && b.num_flight == 0)
            compare(&b);
    }
    while (b.num_flight > 0)
        update(&b);
    compare(&b);
    assert_true(b.seen.num_preempted > 10 && b.seen.prefix.hits > 100);
    assert_true(b.seen.finished[QUIRE_FINISH_LENGTH] > 100);
    close_bench(&b);
}

static void metrics_are_what_callers_saw(void **state)
{
    (void)state;
    run_and_compare(false, 0);
    run_and_compare(true, 0);
    run_and_compare(false, 40);
}

static void stats_stay_the_callers(void **state)
{
    (void)state;
    sched_kit kit;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_sched_config c = kit_config(&kit);
    c.monitor = &monitor;
    kit_open(&kit, &c);
    kit_add(&kit, "a", 9);
    kit_run(&kit, 1);
    assert_null(kit.outputs->stats); /* log_stats is off */
    char *text = malloc(MAX_TEXT);
    size_t written;
    const quire_monitor *m = quire_sched_get_monitor(kit.sched);
    assert_int_equal(quire_monitor_write_metrics(m, NULL, text, MAX_TEXT, &written), QUIRE_OK);
    assert_non_null(
        strstr(text, "vllm:prefix_cache_queries_total{model_name=\"\",engine=\"0\"} 9\n"));
    free(text);
    kit_close(&kit);
}

/* After every call that changes it, not after steps alone. */
static void the_load_is_told_at_once(void **state)
{
    (void)state;
    sched_kit kit;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_sched_config c = kit_config(&kit);
    c.monitor = &monitor;
    kit_open(&kit, &c);
    const quire_monitor *m = quire_sched_get_monitor(kit.sched);
    quire_req a = kit_add(&kit, "a", 9);
    assert_int_equal(quire_monitor_get_num_unfinished(m), 1);
    kit_add(&kit, "b", 9);
    assert_int_equal(quire_monitor_get_num_unfinished(m), 2);
    assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    assert_int_equal(quire_monitor_get_num_unfinished(m), 1);
    kit_run(&kit, 1);
    assert_int_equal(quire_monitor_get_num_unfinished(m), 1);
    kit_close(&kit);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    sched_kit kit;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_sched_config c = kit_config(&kit);
    c.monitor = &monitor;
    kit_open(&kit, &c);
    const quire_monitor *m = quire_sched_get_monitor(kit.sched);
    quire_metrics_format format = {.size = sizeof format};
    char text[64];
    size_t need = 0;
    size_t written = 0;
    assert_int_equal(quire_monitor_write_metrics(NULL, &format, text, 64, &written),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_write_metrics(m, &format, NULL, 64, &written), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_write_metrics(m, &format, text, 64, NULL), QUIRE_E_ARGUMENT);
    format.names = (quire_metrics_names)3;
    assert_int_equal(quire_monitor_write_metrics(m, &format, text, 64, &written), QUIRE_E_CONFIG);
    format = (quire_metrics_format){.size = 1};
    assert_int_equal(quire_monitor_write_metrics(m, &format, text, 64, &written), QUIRE_E_CONFIG);
    format = (quire_metrics_format){.size = sizeof format};
    assert_int_equal(quire_monitor_write_metrics(m, &format, NULL, 0, &need), QUIRE_E_TOO_SMALL);
    char *whole = malloc(need);
    assert_int_equal(quire_monitor_write_metrics(m, &format, whole, need - 1, &written),
                     QUIRE_E_TOO_SMALL);
    assert_int_equal(written, need);
    assert_int_equal(quire_monitor_write_metrics(m, &format, whole, need, &written), QUIRE_OK);
    assert_int_equal(written, need - 1);
    free(whole);
    kit_close(&kit);
}

/* ---- two threads ----------------------------------------------------------- */

typedef struct watcher {
    const quire_monitor *monitor;
    atomic_bool is_over;
    uint64_t num_reads;
} watcher;

static double find_value(const char *text, const char *series)
{
    const char *at = strstr(text, series);
    return at == NULL ? -1 : strtod(at + strlen(series), NULL);
}

/* No cmocka here: it is for one thread. */
static void *watch(void *user)
{
    static const char *const wholes[][2] = {
        {"vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"},
        {"quire_prefix_cache_preempted_hits_total", "quire_prefix_cache_preempted_queries_total"},
        {"vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_total"}};
    watcher *w = user;
    char *text = malloc(MAX_TEXT);
    double last[COUNT(wholes)] = {0};
    do {
        size_t written;
        if (quire_monitor_write_metrics(w->monitor, NULL, text, MAX_TEXT, &written) != QUIRE_OK)
            abort();
        for (uint32_t i = 0; i < COUNT(wholes); i++) {
            char series[128];
            snprintf(series, sizeof series, "\n%s{model_name=\"\",engine=\"0\"} ", wholes[i][0]);
            double part = find_value(text, series);
            snprintf(series, sizeof series, "\n%s{model_name=\"\",engine=\"0\"} ", wholes[i][1]);
            double whole = find_value(text, series);
            if (part < 0 || part > whole || part < last[i])
                abort();
            last[i] = part;
        }
        w->num_reads++;
    } while (!atomic_load(&w->is_over));
    free(text);
    return NULL;
}

static void others_may_read_meanwhile(void **state)
{
    (void)state;
    static bench b;
    pthread_t thread;
    open_bench(&b, false, 0);
    watcher w = {.monitor = quire_sched_get_monitor(b.kit.sched)};
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    for (uint32_t i = 0; i < STEPS; i++)
        step(&b, false);
    atomic_store(&w.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(w.num_reads > 0);
    compare(&b);
    close_bench(&b);
}

int main(int argc, char **argv)
{
    seed_given = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_what_callers_saw), cmocka_unit_test(stats_stay_the_callers),
        cmocka_unit_test(the_load_is_told_at_once),     cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(others_may_read_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

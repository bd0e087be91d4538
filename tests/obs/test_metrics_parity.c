/* obs/test_metrics_parity.c - after the same run, the text shows what vLLM shows: the same names,
 * labels, bounds and values.
 *
 *      program [FILE]      data/metrics.txt, or a fresh one of record_metrics.py
 */
#include "metrics_box.h"
#include "metrics_text.h"

#include <math.h>

enum { SLOTS = 12, MAX_SPEC = 8 };

static const char *data_path;

typedef struct slot {
    bool is_there;
    bool is_running;
    bool is_prefilling;
    uint32_t num_prompt;
    uint32_t num_preempted; /* not told yet: vLLM's engine tells with the next output */
} slot;

typedef struct run {
    uint64_t random;
    uint32_t max_model_len;
    uint32_t num_spec;
    uint32_t pace;
    metrics_box box;
    slot slots[SLOTS];
    quire_output outputs[SLOTS];
    uint32_t num_outputs;
} run;

static void wait_some(run *r)
{
    uint64_t unit = 1;
    for (uint32_t scale = r->pace + unit_random_below(&r->random, 4); scale > 0; scale--)
        unit *= 10;
    r->box.metrics.now_ns += (1 + unit_random_below(&r->random, 100000)) * unit + 7;
}

static void add_some(run *r)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (r->slots[i].is_there || unit_random_below(&r->random, 4) != 0)
            continue;
        uint32_t num_prompt = 1 + unit_random_below(&r->random, r->max_model_len / 2);
        uint32_t max_tokens = 1 + unit_random_below(&r->random, 500);
        r->slots[i] = (slot){.is_there = true, .is_prefilling = true, .num_prompt = num_prompt};
        qr_metrics_add_request(&r->box.metrics, i, num_prompt, max_tokens);
    }
}

static void schedule(run *r)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        slot *s = &r->slots[i];
        if (!s->is_there)
            continue;
        if (!s->is_running && unit_random_below(&r->random, 2) == 0) {
            s->is_running = true;
            qr_metrics_admit(&r->box.metrics, i);
        } else if (s->is_running && unit_random_below(&r->random, 12) == 0) {
            s->is_running = false;
            s->num_preempted++;
        }
    }
}

static void make_output(run *r, uint32_t i)
{
    static const quire_finish_reason reasons[] = {QUIRE_FINISH_STOP, QUIRE_FINISH_LENGTH,
                                                  QUIRE_FINISH_ERROR, QUIRE_FINISH_REPETITION};
    slot *s = &r->slots[i];
    quire_output *out = &r->outputs[r->num_outputs++];
    *out = (quire_output){.req = (UINT64_C(1) << 32) | (i + 1)};
    if (s->is_prefilling) {
        out->has_prefill_stats = 1;
        out->num_prompt_tokens = s->num_prompt;
        out->num_local_cached = unit_random_below(&r->random, s->num_prompt);
        out->num_external_cached =
            unit_random_below(&r->random, s->num_prompt - out->num_local_cached);
    }
    out->num_new_tokens = 1 + unit_random_below(&r->random, 1 + r->num_spec);
    qr_metrics_add(&r->box.metrics, QR_METRIC_PREEMPTIONS, 0, s->num_preempted);
    s->num_preempted = 0;
    s->is_prefilling = false;
    if (unit_random_below(&r->random, 10) != 0)
        return;
    out->finish_reason = reasons[unit_random_below(&r->random, 4)];
    qr_metrics_mark_end(&r->box.metrics, i);
    s->is_there = false;
    s->is_running = false;
}

static quire_prefix_stats make_prefix(run *r)
{
    quire_prefix_stats stats = {.requests = 1, .preempted_requests = 1};
    stats.queries = unit_random_below(&r->random, 1000);
    stats.hits = unit_random_below(&r->random, (uint32_t)stats.queries + 1);
    stats.preempted_queries = unit_random_below(&r->random, 1000);
    stats.preempted_hits = unit_random_below(&r->random, (uint32_t)stats.preempted_queries + 1);
    return stats;
}

static void record_stats(run *r)
{
    uint64_t per_pos[MAX_SPEC] = {0};
    quire_tier_usage gpu = {.name = "gpu", .blocks = {.total = 1001, .null_blocks = 1}};
    qr_metrics_levels levels = {.tiers = &gpu, .num_tiers = 1};
    levels.num_running = unit_random_below(&r->random, 100);
    levels.num_waiting = unit_random_below(&r->random, 100);
    levels.num_skipped = unit_random_below(&r->random, 100);
    gpu.blocks.active = unit_random_below(&r->random, 1001);
    gpu.blocks.empty = 1000 - gpu.blocks.active;
    quire_sched_stats stats = {.prefix = make_prefix(r)};
    stats.connector_prefix = make_prefix(r);
    stats.spec.accepted_per_pos = per_pos;
    uint32_t num_drafts = r->num_spec > 0 ? unit_random_below(&r->random, 3) : 0;
    for (uint32_t i = 0; i < num_drafts; i++) {
        uint32_t accepted = unit_random_below(&r->random, r->num_spec + 1);
        stats.spec.num_drafts++;
        stats.spec.num_draft_tokens += r->num_spec;
        stats.spec.num_accepted_tokens += accepted;
        for (uint32_t k = 0; k < accepted; k++)
            per_pos[k]++;
    }
    qr_metrics_set_levels(&r->box.metrics, &levels);
    qr_metrics_take_stats(&r->box.metrics, &stats);
}

static void update(run *r)
{
    r->num_outputs = 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        if (r->slots[i].is_there && r->slots[i].is_running && unit_random_below(&r->random, 8) > 0)
            make_output(r, i);
    qr_metrics_take_outputs(&r->box.metrics, r->outputs, 0, r->num_outputs);
    record_stats(r);
}

/* ---- cases ----------------------------------------------------------------- */

/* One line of the recording: name{labels} value. */
static void compare_line(const metrics_text *text, char *line)
{
    char *labels = strchr(line, '{');
    assert_non_null(labels);
    *labels++ = 0;
    char *end = strrchr(labels, '}');
    *end = 0;
    double expected = strtod(end + 1, NULL);
    const text_sample *found = text_find(text, line, labels);
    if (found == NULL)
        fail_msg("vLLM shows %s{%s}", line, labels);
    double slack = strstr(line, "_sum") != NULL ? 1e-9 * fabs(expected) + 1e-6 : 1e-9;
    if (fabs(found->value - expected) > slack)
        fail_msg("%s{%s} is %.17g, vLLM's %.17g", line, labels, found->value, expected);
}

static uint32_t compare_case(FILE *file, const run *r, uint32_t num_lines)
{
    char line[512];
    metrics_text parsed;
    quire_metrics_format format = {
        .size = sizeof format, .names = QUIRE_NAMES_VLLM, .model_name = "m"};
    char *text = box_text(&r->box, &format);
    text_parse(&parsed, text, false);
    for (uint32_t i = 0; i < num_lines; i++) {
        assert_non_null(fgets(line, sizeof line, file));
        line[strcspn(line, "\n")] = 0;
        compare_line(&parsed, line);
    }
    assert_int_equal(parsed.num_samples, num_lines + 1); /* and cache_config_info */
    text_free(&parsed);
    free(text);
    return num_lines;
}

static void text_shows_what_vllm_shows(void **state)
{
    (void)state;
    FILE *file = fopen(data_path, "r");
    assert_non_null(file);
    char line[512];
    assert_non_null(fgets(line, sizeof line, file));
    unsigned long long seed;
    unsigned steps;
    unsigned num_lines;
    uint32_t cases = 0;
    uint32_t compared = 0;
    run r;
    memset(&r, 0, sizeof r);
    while (fscanf(file, " case %llu %u %u %u %u %u ", &seed, &r.max_model_len, &r.num_spec, &r.pace,
                  &steps, &num_lines) == 6) {
        qr_metrics_shape shape = {.max_requests = SLOTS,
                                  .max_model_len = r.max_model_len,
                                  .num_spec_tokens = r.num_spec,
                                  .num_blocks = 1001,
                                  .has_residency = true};
        memset(r.slots, 0, sizeof r.slots);
        r.random = seed;
        box_open(&r.box, &shape, 1, 1);
        r.box.metrics.now_ns = 1;
        for (uint32_t i = 0; i < steps; i++) {
            add_some(&r);
            wait_some(&r);
            schedule(&r);
            wait_some(&r);
            update(&r);
        }
        compared += compare_case(file, &r, num_lines);
        box_close(&r.box);
        cases++;
    }
    assert_true(feof(file));
    assert_true(cases > 0);
    printf("metrics: %u cases, %u samples, 0 differences\n", cases, compared);
    fclose(file);
}

int main(int argc, char **argv)
{
    data_path = argc > 1 ? argv[1] : QUIRE_OBS_DATA "/metrics.txt";
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_shows_what_vllm_shows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

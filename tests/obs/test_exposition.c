/* obs/test_exposition.c - metrics as text: read back by the rules of both formats.
 *
 *      program --write NAMES FORMAT      one text, for promtool and other readers: of quire, vllm
 *                                        or both, as prometheus or openmetrics
 */
#include "metrics_box.h"
#include "metrics_text.h"

#include <locale.h>

static const qr_metrics_shape SHAPE = {.max_requests = 4,
                                       .max_model_len = 2000000,
                                       .num_spec_tokens = 3,
                                       .num_blocks = 11,
                                       .block_size = 16,
                                       .enable_caching = true,
                                       .has_residency = true};

static const quire_tier_usage TIERS[] = {
    {.name = "gpu",
     .medium = "GPU",
     .blocks = {.total = 11, .empty = 1, .cached = 4, .active = 5, .null_blocks = 1},
     .pinned = 2,
     .hit_tokens = 170,
     .stored_bytes = QUIRE_UNKNOWN_BYTES,
     .loaded_bytes = QUIRE_UNKNOWN_BYTES,
     .used_bytes = QUIRE_UNKNOWN_BYTES,
     .capacity_bytes = QUIRE_UNKNOWN_BYTES},
    {.name = "swap",
     .medium = "CPU",
     .blocks = {.total = 5, .empty = 3, .active = 2},
     .stored_blocks = 7,
     .loaded_blocks = 6,
     .stored_bytes = QUIRE_UNKNOWN_BYTES,
     .loaded_bytes = QUIRE_UNKNOWN_BYTES,
     .used_bytes = QUIRE_UNKNOWN_BYTES,
     .capacity_bytes = QUIRE_UNKNOWN_BYTES},
    {.name = "a \"tier\"",
     .medium = "DISK",
     .blocks = {.total = 30, .empty = 8, .cached = 20, .active = 2},
     .stored_blocks = 23,
     .loaded_blocks = 9,
     .hit_tokens = 144,
     .stored_bytes = 23 * 4096,
     .loaded_bytes = 9 * 4096,
     .failed_blocks = 3,
     .used_bytes = 22 * 4096,
     .capacity_bytes = 30 * 4096}};
enum { NUM_TIERS = sizeof TIERS / sizeof *TIERS, TIER_SAMPLES = 4 * 3 + 3 * 3 + 3 * 2 + 2 + 2 };

/* Every word has a number of its own. */
static void fill(metrics_box *box)
{
    qr_metrics *m = &box->metrics;
    qr_tiers_set(&m->tiers, TIERS, NUM_TIERS);
    for (uint32_t i = 0; i < QR_NUM_METRICS; i++) {
        if (qr_metrics_is_histogram((qr_metric)i)) {
            const uint64_t *bounds = qr_metrics_bounds(m, (qr_metric)i);
            for (uint32_t k = 0; k < m->count[i]; k++)
                qr_metrics_observe(m, (qr_metric)i, bounds[k], k + i);
            qr_metrics_observe(m, (qr_metric)i, bounds[m->count[i] - 1] * 2 + 1, 1);
        }
        for (uint32_t k = 0; k < m->count[i] && !qr_metrics_is_histogram((qr_metric)i); k++)
            qr_metrics_set(m, (qr_metric)i, k, 1000 * i + k);
    }
}

static void open_filled(metrics_box *box)
{
    box_open(box, &SHAPE, 1, 1);
    fill(box);
}

static double scale_of(qr_metric metric)
{
    qr_metric_type type = qr_metrics_info(metric)->type;
    return type == QR_METRIC_TYPE_SECONDS || type == QR_METRIC_TYPE_RATIO ? 1e9 : 1;
}

/* Values of one family, in the order in which they stand there, are those of the words. */
static uint32_t compare_family(const metrics_text *parsed, uint32_t at, const qr_metrics *m,
                               qr_metric metric)
{
    const text_sample *s = &parsed->samples[at];
    double count = 0;
    if (!qr_metrics_is_histogram(metric)) {
        for (uint32_t i = 0; i < m->count[metric]; i++)
            assert_true(s[i].value == (double)qr_metrics_get(m, metric, i) / scale_of(metric));
        return at + m->count[metric];
    }
    uint32_t n = m->count[metric];
    for (uint32_t i = 0; i <= n; i++) {
        count += (double)qr_metrics_get(m, metric, i);
        assert_true(s[i].value == count);
        double le = strtod(strstr(s[i].labels, "le=\"") + 4, NULL);
        if (i < n)
            assert_true(le == (double)qr_metrics_bounds(m, metric)[i] / scale_of(metric));
    }
    double sum = qr_metrics_sum(m, metric) / scale_of(metric);
    assert_true(s[n + 1].value == count);
    if (s[n + 2].value < sum - 1e-8 || s[n + 2].value > sum + 1e-8)
        fail_msg("%s is %.17g, not %.17g", s[n + 2].name, s[n + 2].value, sum);
    return at + n + 3;
}

static void what_is_read_is_what_was_counted(void **state)
{
    (void)state;
    metrics_box box;
    open_filled(&box);
    for (uint32_t names = QUIRE_NAMES_BOTH; names <= QUIRE_NAMES_VLLM; names++) {
        for (uint32_t is_open = 0; is_open < 2; is_open++) {
            metrics_text parsed;
            quire_metrics_format format = {.size = sizeof format,
                                           .names = (quire_metrics_names)names,
                                           .is_openmetrics = is_open};
            char *text = box_text(&box, &format);
            text_parse(&parsed, text, is_open != 0);
            uint32_t at = 0;
            for (uint32_t i = 0; i < QR_NUM_METRICS; i++) {
                if (names != QUIRE_NAMES_VLLM)
                    at = compare_family(&parsed, at, &box.metrics, (qr_metric)i);
                if (names != QUIRE_NAMES_QUIRE && qr_metrics_info((qr_metric)i)->vllm_name != NULL)
                    at = compare_family(&parsed, at, &box.metrics, (qr_metric)i);
            }
            uint32_t num_infos = names == QUIRE_NAMES_BOTH ? 2 : 1;
            uint32_t num_tiers = names == QUIRE_NAMES_VLLM ? 0 : TIER_SAMPLES;
            assert_int_equal(at + num_infos + num_tiers, parsed.num_samples);
            text_free(&parsed);
            free(text);
        }
    }
    box_close(&box);
}

static void what_there_is_not_is_not_told(void **state)
{
    (void)state;
    metrics_box box;
    metrics_text parsed;
    qr_metrics_shape shape = {.max_requests = 1, .max_model_len = 10, .num_blocks = 2};
    box_open(&box, &shape, 1, 1);
    quire_metrics_format format = {.size = sizeof format};
    char *text = box_text(&box, &format);
    text_parse(&parsed, text, false);
    assert_null(strstr(text, "spec_decode"));
    assert_null(strstr(text, "kv_block_"));
    assert_null(strstr(text, "residency"));
    assert_null(strstr(text, "tier=\"swap\""));
    assert_null(strstr(text, "quire_blocks{"));
    text_free(&parsed);
    free(text);
    box_close(&box);
}

static void tiers_are_told_with_their_medium(void **state)
{
    (void)state;
    metrics_box box;
    metrics_text parsed;
    open_filled(&box);
    quire_metrics_format format = {.size = sizeof format, .names = QUIRE_NAMES_QUIRE};
    char *text = box_text(&box, &format);
    text_parse(&parsed, text, false);
    const char *gpu = "tier=\"gpu\"";
    const char *swap = "tier=\"swap\"";
    const char *disk = "medium=\"DISK\",model_name=\"\",tier=\"a \\\"tier\\\"\"";
    assert_true(text_value(&parsed, "quire_blocks", "state=\"cached\",tier=\"gpu\"") == 4);
    assert_true(text_value(&parsed, "quire_blocks", "state=\"null\",tier=\"gpu\"") == 1);
    assert_true(text_value(&parsed, "quire_capacity_blocks", gpu) == 11);
    assert_true(text_value(&parsed, "quire_pinned_blocks", gpu) == 2);
    assert_true(text_value(&parsed, "quire_tier_hit_tokens_total", gpu) == 170);
    assert_true(text_value(&parsed, "quire_tier_stored_blocks_total", swap) == 7);
    assert_true(text_value(&parsed, "quire_tier_loaded_blocks_total", swap) == 6);
    assert_true(text_value(&parsed, "quire_tier_stored_bytes_total", disk) == 23 * 4096);
    assert_true(text_value(&parsed, "quire_tier_loaded_bytes_total", disk) == 9 * 4096);
    assert_true(text_value(&parsed, "quire_tier_failed_blocks_total", disk) == 3);
    assert_true(text_value(&parsed, "quire_tier_used_bytes", disk) == 22 * 4096);
    assert_true(text_value(&parsed, "quire_tier_capacity_bytes", disk) == 30 * 4096);
    text_free(&parsed);
    free(text);
    box_close(&box);
}

static void numbers_are_written_exactly(void **state)
{
    (void)state;
    metrics_box box;
    box_open(&box, &SHAPE, 1, 1);
    qr_metrics *m = &box.metrics;
    qr_tiers_set(&m->tiers, TIERS, NUM_TIERS);
    qr_metrics_set(m, QR_METRIC_STEPS, 0, UINT64_MAX);
    qr_metrics_set(m, QR_METRIC_USAGE, 0, 70000001);
    qr_metrics_observe(m, QR_METRIC_FIRST_TOKEN, 1, 1);
    qr_metrics_observe(m, QR_METRIC_TOKEN_GAP, UINT64_C(12345678900), 3);
    quire_metrics_format format = {.size = sizeof format, .names = QUIRE_NAMES_QUIRE};
    char *text = box_text(&box, &format);
    static const char *const lines[] = {
        "quire_steps_total{model_name=\"\",engine=\"0\"} 18446744073709551615\n",
        "quire_kv_cache_usage_ratio{model_name=\"\",engine=\"0\"} 0.070000001\n",
        "quire_time_to_first_token_seconds_sum{model_name=\"\",engine=\"0\"} 0.000000001\n",
        "quire_inter_token_latency_seconds_sum{model_name=\"\",engine=\"0\"} 37.0370367\n",
        "le=\"0.001\"} 1\n",
        "le=\"7680.0\"} 0\n",
        "le=\"7.5\"} 0\n",
        "le=\"1e-06\"} 0\n",
        "le=\"5e-05\"} 0\n",
        "le=\"0.0001\"} 0\n",
        "le=\"500000.0\"} 0\n",
        "le=\"1e+06\"} 0\n",
        "le=\"2e+06\"} 0\n",
        "le=\"+Inf\"} 3\n",
        "tier=\"swap\",medium=\"CPU\",state=\"active\"} 2\n",
        "position=\"2\"} 0\n",
        "block_size=\"16\",num_gpu_blocks=\"11\",enable_prefix_caching=\"True\"} 1\n"};
    for (uint32_t i = 0; i < COUNT(lines); i++)
        if (strstr(text, lines[i]) == NULL)
            fail_msg("there is no %s", lines[i]);
    free(text);
    box_close(&box);
}

static void labels_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *written;
    } cases[] = {
        {"a\"b\\c\nd", "a\\\"b\\\\c\\nd"},
        {"Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"},
        {"a\xff\xc3", "a??"},              /* no UTF-8 */
        {"\xc0\xaf\xed\xa0\x80", "?????"}, /* too long, and half of a pair */
        {"\xe2\x82", "??"},                /* cut */
        {"\xf4\x90\x80\x80\xf5", "?????"}, /* past the last character */
        {"\xe0\x80\x80\xf0\x80\x80\x80", "???????"},
        {"} 1\n# EOF", "} 1\\n# EOF"},
    };
    metrics_box box;
    open_filled(&box);
    for (uint32_t i = 0; i < COUNT(cases); i++) {
        char expected[128];
        metrics_text parsed;
        quire_metrics_format format = {
            .size = sizeof format, .model_name = cases[i].name, .engine = cases[i].name};
        char *text = box_text(&box, &format);
        snprintf(expected, sizeof expected, "quire_steps_total{model_name=\"%s\",engine=\"%s\"} ",
                 cases[i].written, cases[i].written);
        assert_non_null(strstr(text, expected));
        text_parse(&parsed, text, false);
        text_free(&parsed);
        free(text);
    }
    box_close(&box);
}

/* Every size up to the right one: never past the end, always a zero, always the same answer. */
static void text_of_any_size_fits(void **state)
{
    (void)state;
    metrics_box box;
    open_filled(&box);
    quire_metrics_format format = {.size = sizeof format, .is_openmetrics = 1};
    char *whole = box_text(&box, &format);
    size_t need = strlen(whole);
    for (size_t bytes = 1; bytes <= need + 1;
         bytes += bytes < 2000 || bytes + 100 > need ? 1 : 997) {
        char *text = malloc(bytes);
        assert_int_equal(qr_exposition_write(&box.metrics, &format, text, bytes), need);
        assert_int_equal(text[bytes - 1], 0);
        assert_int_equal(strncmp(text, whole, bytes - 1), 0);
        free(text);
    }
    free(whole);
    box_close(&box);
}

static void locale_changes_nothing(void **state)
{
    (void)state;
    metrics_box box;
    open_filled(&box);
    quire_metrics_format format = {.size = sizeof format};
    char *before = box_text(&box, &format);
    bool has_locale = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    char *after = box_text(&box, &format);
    setlocale(LC_ALL, "C");
    assert_string_equal(before, after);
    if (!has_locale)
        print_message("no German locale: compared with itself\n");
    free(before);
    free(after);
    box_close(&box);
}

static int write_text(const char *names, const char *format_name)
{
    metrics_box box;
    open_filled(&box);
    quire_metrics_format format = {.size = sizeof format,
                                   .is_openmetrics = strcmp(format_name, "openmetrics") == 0,
                                   .model_name = "a \"model\"\\with\nall",
                                   .names = strcmp(names, "quire") == 0  ? QUIRE_NAMES_QUIRE
                                            : strcmp(names, "vllm") == 0 ? QUIRE_NAMES_VLLM
                                                                         : QUIRE_NAMES_BOTH};
    char *text = box_text(&box, &format);
    fputs(text, stdout);
    free(text);
    box_close(&box);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--write") == 0)
        return write_text(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_what_was_counted),
        cmocka_unit_test(what_there_is_not_is_not_told),
        cmocka_unit_test(tiers_are_told_with_their_medium),
        cmocka_unit_test(numbers_are_written_exactly),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(text_of_any_size_fits),
        cmocka_unit_test(locale_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

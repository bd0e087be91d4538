#include "obs/exposition.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* The label of each series of a shape; NULL: no label, or positions. */
static const char *const LABELS[QR_SHAPE_POSITIONS + 1][QUIRE_FINISH_REPETITION] = {
    [QR_SHAPE_WAITING] = {"reason=\"capacity\"", "reason=\"deferred\""},
    [QR_SHAPE_SCHEDULED] = {"kind=\"prefill\"", "kind=\"decode\"", "kind=\"draft\""},
    [QR_SHAPE_SOURCES] = {"source=\"local_compute\"", "source=\"local_cache_hit\"",
                          "source=\"external_kv_transfer\""},
    [QR_SHAPE_FINISHED] = {"finished_reason=\"stop\"", "finished_reason=\"length\"",
                           "finished_reason=\"abort\"", "finished_reason=\"error\"",
                           "finished_reason=\"repetition\""},
    [QR_SHAPE_EVENTS] = {"kind=\"stored\"", "kind=\"removed\"", "kind=\"cleared\""},
};

/* ---- text ------------------------------------------------------------------ */

/* used goes on counting when the text is full. */
typedef struct qr_exposition {
    char *text;
    size_t bytes;
    size_t used;
    const quire_metrics_format *format;
} qr_exposition;

static __attribute__((format(printf, 2, 3))) void say(qr_exposition *e, const char *format, ...)
{
    size_t room = e->used < e->bytes ? e->bytes - e->used + 1 : 0; /* with the 0 at the end */
    va_list values;
    va_start(values, format);
    int n = vsnprintf(room > 0 ? e->text + e->used : NULL, room, format, values);
    va_end(values);
    e->used += n > 0 ? (size_t)n : 0;
}

static void say_number(qr_exposition *e, uint64_t value)
{
    say(e, "%" PRIu64, value);
}

enum { BILLION = 1000000000 };

/* value / 10^9, exactly. */
static void say_billionths(qr_exposition *e, uint64_t whole, uint64_t rest)
{
    say_number(e, whole);
    if (rest == 0)
        return;
    int places = 9;
    for (; rest % 10 == 0; rest /= 10)
        places--;
    say(e, ".%0*" PRIu64, places, rest);
}

/* What is no UTF-8 would make the whole text unreadable. */
static void say_escaped(qr_exposition *e, const char *value)
{
    const unsigned char *s = (const unsigned char *)value;
    while (*s != 0) {
        size_t n = qr_utf8_char(s, strnlen((const char *)s, 4));
        if (*s == '\\' || *s == '"')
            say(e, "\\");
        if (*s == '\n')
            say(e, "\\n");
        else if (n == 0)
            say(e, "?");
        else
            say(e, "%.*s", (int)n, (const char *)s);
        s += n == 0 ? 1 : n;
    }
}

/* ---- one family ------------------------------------------------------------ */

static void say_header(qr_exposition *e, const char *name, const qr_metric_info *info)
{
    static const char *const types[] = {
        [QR_METRIC_TYPE_COUNTER] = "counter",  [QR_METRIC_TYPE_GAUGE] = "gauge",
        [QR_METRIC_TYPE_RATIO] = "gauge",      [QR_METRIC_TYPE_SECONDS] = "histogram",
        [QR_METRIC_TYPE_TOKENS] = "histogram",
    };
    bool is_open = e->format->is_openmetrics != 0;
    const char *suffix = info->type == QR_METRIC_TYPE_COUNTER && !is_open ? "_total" : "";
    say(e, "# HELP %s%s %s\n", name, suffix, info->sentence);
    say(e, "# TYPE %s%s %s\n", name, suffix, types[info->type]);
    if (is_open && info->type == QR_METRIC_TYPE_SECONDS)
        say(e, "# UNIT %s seconds\n", name);
}

/* Up to the label that the series has beside those of all. */
static void say_series(qr_exposition *e, const char *name, const char *suffix)
{
    const quire_metrics_format *f = e->format;
    say(e, "%s%s{model_name=\"", name, suffix);
    say_escaped(e, f->model_name == NULL ? "" : f->model_name);
    say(e, "\",engine=\"");
    say_escaped(e, f->engine == NULL ? "0" : f->engine);
    say(e, "\"");
}

static void say_simple(qr_exposition *e, const qr_metrics *m, qr_metric metric, const char *name)
{
    const qr_metric_info *info = qr_metrics_info(metric);
    const char *suffix = info->type == QR_METRIC_TYPE_COUNTER ? "_total" : "";
    for (uint32_t i = 0; i < m->count[metric]; i++) {
        uint64_t value = qr_metrics_get(m, metric, i);
        say_series(e, name, suffix);
        if (info->shape == QR_SHAPE_POSITIONS)
            say(e, ",position=\"%u\"", i);
        else if (LABELS[info->shape][i] != NULL)
            say(e, ",%s", LABELS[info->shape][i]);
        say(e, "} ");
        if (info->type == QR_METRIC_TYPE_RATIO)
            say_billionths(e, value / BILLION, value % BILLION);
        else
            say_number(e, value);
        say(e, "\n");
    }
}

/* As Python writes a float and vLLM's client a bound: 0.001, 2.0, 1e+06, 5e-06. Bounds have two
 * digits at most, and none is below 10^-9. */
static void say_bound(qr_exposition *e, uint64_t bound, bool is_time)
{
    uint64_t unit = is_time ? BILLION : 1;
    uint64_t whole = bound / unit;
    uint32_t zeros = 0;
    uint64_t digits = bound;
    for (; digits % 10 == 0; digits /= 10)
        zeros++;
    if (is_time && bound < BILLION / 10000) {
        say(e, "%" PRIu64 "e-0%u", digits, 9 - zeros);
    } else if (whole >= 1000000 && digits < 10) {
        say(e, "%" PRIu64 "e+%s%u", digits, zeros < 10 ? "0" : "", zeros - (is_time ? 9 : 0));
    } else {
        say_billionths(e, whole, is_time ? bound % BILLION : 0);
        if (!is_time || bound % BILLION == 0)
            say(e, ".0");
    }
}

static void say_sum(qr_exposition *e, const qr_metrics *m, qr_metric metric)
{
    double sum = qr_metrics_sum(m, metric);
    if (qr_metrics_info(metric)->type != QR_METRIC_TYPE_SECONDS) {
        say_number(e, (uint64_t)sum);
        return;
    }
    uint64_t whole = (uint64_t)(sum / BILLION);
    double rest = sum - (double)whole * BILLION;
    uint64_t part = rest <= 0 ? 0 : rest >= BILLION ? BILLION - 1 : (uint64_t)rest;
    say_billionths(e, whole, part);
}

static void say_histogram(qr_exposition *e, const qr_metrics *m, qr_metric metric, const char *name)
{
    const uint64_t *bounds = qr_metrics_bounds(m, metric);
    bool is_time = qr_metrics_info(metric)->type == QR_METRIC_TYPE_SECONDS;
    uint64_t count = 0;
    for (uint32_t i = 0; i <= m->count[metric]; i++) {
        count += qr_metrics_get(m, metric, i);
        say_series(e, name, "_bucket");
        say(e, ",le=\"");
        if (i < m->count[metric])
            say_bound(e, bounds[i], is_time);
        else
            say(e, "+Inf");
        say(e, "\"} %" PRIu64 "\n", count);
    }
    say_series(e, name, "_count");
    say(e, "} %" PRIu64 "\n", count);
    say_series(e, name, "_sum");
    say(e, "} ");
    say_sum(e, m, metric);
    say(e, "\n");
}

static void say_family(qr_exposition *e, const qr_metrics *m, qr_metric metric, const char *name)
{
    if (name == NULL)
        return;
    say_header(e, name, qr_metrics_info(metric));
    if (qr_metrics_is_histogram(metric))
        say_histogram(e, m, metric, name);
    else
        say_simple(e, m, metric, name);
}

/* ---- tiers ----------------------------------------------------------------- */

/* Which series a family of tiers has. */
typedef enum tier_series {
    TIER_ALL,    /* one for each tier */
    TIER_STATES, /* one for each tier and state of its blocks */
    TIER_MOVES,  /* one for each tier that blocks are copied to: not for the GPU */
    TIER_BYTES,  /* the same, where bytes are known */
    TIER_KNOWN   /* one for each tier where the value is known */
} tier_series;

typedef struct tier_family {
    qr_metric_info info;
    tier_series series;
    size_t value; /* where it is in quire_tier_usage */
} tier_family;

#define TIER(type, name, series, field, sentence)                                                  \
    {                                                                                              \
        {QR_METRIC_TYPE_##type, QR_SHAPE_ONE, name, NULL, sentence}, series,                       \
            offsetof(quire_tier_usage, field)                                                      \
    }
static const tier_family tier_families[] = {
    TIER(GAUGE, "quire_blocks", TIER_STATES, blocks,
         "Blocks of each tier: empty, cached (ref_cnt 0, with content), active (ref_cnt > "
         "0), null. Do not add the active blocks of different tiers."),
    TIER(GAUGE, "quire_capacity_blocks", TIER_ALL, blocks.total,
         "Blocks of each tier: empty, cached, active and null blocks together."),
    TIER(GAUGE, "quire_pinned_blocks", TIER_ALL, pinned,
         "Active blocks of each tier that a pin keeps."),
    TIER(COUNTER, "quire_tier_hit_tokens", TIER_ALL, hit_tokens,
         "Tokens of admitted requests, counted in the fastest tier that has them."),
    TIER(COUNTER, "quire_tier_stored_blocks", TIER_MOVES, stored_blocks,
         "Blocks copied to each tier."),
    TIER(COUNTER, "quire_tier_loaded_blocks", TIER_MOVES, loaded_blocks,
         "Blocks copied from each tier."),
    TIER(COUNTER, "quire_tier_failed_blocks", TIER_MOVES, failed_blocks,
         "Blocks of failed stores and loads of each tier."),
    TIER(COUNTER, "quire_tier_stored_bytes", TIER_BYTES, stored_bytes,
         "Bytes copied to each tier."),
    TIER(COUNTER, "quire_tier_loaded_bytes", TIER_BYTES, loaded_bytes,
         "Bytes copied from each tier."),
    TIER(GAUGE, "quire_tier_used_bytes", TIER_KNOWN, used_bytes,
         "Bytes that the blocks of each tier use; of Redis: used_memory of its servers."),
    TIER(GAUGE, "quire_tier_capacity_bytes", TIER_KNOWN, capacity_bytes,
         "Bytes that the blocks of each tier may use; of Redis: maxmemory of its servers."),
};
#undef TIER

static void say_tier_value(qr_exposition *e, const tier_family *family,
                           const quire_tier_usage *tier, const char *state, uint64_t value)
{
    say_series(e, family->info.quire_name,
               family->info.type == QR_METRIC_TYPE_COUNTER ? "_total" : "");
    say(e, ",tier=\"");
    say_escaped(e, tier->name);
    say(e, "\",medium=\"");
    say_escaped(e, tier->medium);
    if (state != NULL)
        say(e, "\",state=\"%s", state);
    say(e, "\"} %" PRIu64 "\n", value);
}

static void say_tier_states(qr_exposition *e, const tier_family *family,
                            const quire_tier_usage *tier)
{
    say_tier_value(e, family, tier, "empty", tier->blocks.empty);
    say_tier_value(e, family, tier, "cached", tier->blocks.cached);
    say_tier_value(e, family, tier, "active", tier->blocks.active);
    say_tier_value(e, family, tier, "null", tier->blocks.null_blocks);
}

static uint64_t value_of(const tier_family *family, const quire_tier_usage *tier)
{
    uint64_t value;
    memcpy(&value, (const char *)tier + family->value, sizeof value);
    return value;
}

static bool has_series(const tier_family *family, const quire_tier_usage *tiers, uint32_t i)
{
    bool is_gpu = i == 0;
    if (family->series == TIER_KNOWN)
        return value_of(family, &tiers[i]) != QUIRE_UNKNOWN_BYTES;
    bool has_bytes = tiers[i].stored_bytes != QUIRE_UNKNOWN_BYTES;
    return family->series <= TIER_STATES ||
           (!is_gpu && (has_bytes || family->series != TIER_BYTES));
}

static void say_tier_family(qr_exposition *e, const tier_family *family,
                            const quire_tier_usage *tiers, uint32_t count)
{
    bool has_header = false;
    for (uint32_t i = 0; i < count; i++) {
        if (!has_series(family, tiers, i))
            continue;
        if (!has_header)
            say_header(e, family->info.quire_name, &family->info);
        has_header = true;
        if (family->series == TIER_STATES)
            say_tier_states(e, family, &tiers[i]);
        else
            say_tier_value(e, family, &tiers[i], NULL, value_of(family, &tiers[i]));
    }
}

/* All of one moment. */
static void say_tiers(qr_exposition *e, const qr_metrics *m)
{
    quire_tier_usage tiers[QUIRE_MAX_TIERS];
    uint32_t count = qr_tiers_get(&m->tiers, tiers, QUIRE_MAX_TIERS);
    for (uint32_t i = 0; i < sizeof tier_families / sizeof *tier_families; i++)
        say_tier_family(e, &tier_families[i], tiers, count);
}

/* What never changes, as labels. */
static void say_config(qr_exposition *e, const qr_metrics *m, const char *name)
{
    static const qr_metric_info info = {.type = QR_METRIC_TYPE_GAUGE,
                                        .sentence = "The config of the KV cache; always 1."};
    say_header(e, name, &info);
    say_series(e, name, "");
    say(e, ",block_size=\"%u\",num_gpu_blocks=\"%u\",enable_prefix_caching=\"%s\"} 1\n",
        m->shape.block_size, m->shape.num_blocks, m->shape.enable_caching ? "True" : "False");
}

size_t qr_exposition_write(const qr_metrics *m, const quire_metrics_format *format, char *text,
                           size_t bytes)
{
    qr_exposition e = {.text = text, .bytes = bytes > 0 ? bytes - 1 : 0, .format = format};
    bool has_quire = format->names != QUIRE_NAMES_VLLM;
    bool has_vllm = format->names != QUIRE_NAMES_QUIRE;
    for (uint32_t i = 0; i < QR_NUM_METRICS; i++) {
        const qr_metric_info *info = qr_metrics_info((qr_metric)i);
        if (m->count[i] == 0)
            continue;
        say_family(&e, m, (qr_metric)i, has_quire ? info->quire_name : NULL);
        say_family(&e, m, (qr_metric)i, has_vllm ? info->vllm_name : NULL);
    }
    if (has_quire)
        say_tiers(&e, m);
    if (has_quire && !m->shape.is_pool)
        say_config(&e, m, "quire_cache_config_info");
    if (has_vllm && !m->shape.is_pool)
        say_config(&e, m, "vllm:cache_config_info");
    if (format->is_openmetrics)
        say(&e, "# EOF\n");
    if (bytes > 0)
        text[e.used < e.bytes ? e.used : e.bytes] = 0;
    return e.used;
}

#include "snapshots.h"

#include "output/failure.h"
#include "output/json_print.h"
#include "trace/input.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------- */

/* The numbers of a snapshot, in the order of the struct. */
static const struct {
    const char *name;
    size_t offset;
} COUNTS[] = {
    {"num_running", offsetof(quire_snapshot, num_running)},
    {"num_waiting", offsetof(quire_snapshot, num_waiting)},
    {"num_skipped", offsetof(quire_snapshot, num_skipped)},
    {"num_scheduled", offsetof(quire_snapshot, num_scheduled)},
    {"num_new", offsetof(quire_snapshot, num_new)},
    {"num_resumed", offsetof(quire_snapshot, num_resumed)},
    {"num_preempted", offsetof(quire_snapshot, num_preempted)},
    {"num_finished", offsetof(quire_snapshot, num_finished)},
    {"num_tokens", offsetof(quire_snapshot, num_tokens)},
    {"num_prefill_tokens", offsetof(quire_snapshot, num_prefill_tokens)},
    {"num_draft_tokens", offsetof(quire_snapshot, num_draft_tokens)},
    {"num_hit_tokens", offsetof(quire_snapshot, num_hit_tokens)},
    {"num_external_tokens", offsetof(quire_snapshot, num_external_tokens)},
    {"num_swapped_out_blocks", offsetof(quire_snapshot, num_swapped_out_blocks)},
    {"num_swapped_in_blocks", offsetof(quire_snapshot, num_swapped_in_blocks)},
    {"num_swapped", offsetof(quire_snapshot, num_swapped)},
    {"num_free_swap_blocks", offsetof(quire_snapshot, num_free_swap_blocks)},
    {"num_pinned", offsetof(quire_snapshot, num_pinned)},
    {"num_pinned_blocks", offsetof(quire_snapshot, num_pinned_blocks)},
};
enum { NUM_COUNTS = sizeof COUNTS / sizeof COUNTS[0] };

static void write_text_field(FILE *out, const char *name, const char *text)
{
    if (text == NULL)
        return;
    fprintf(out, ",\"%s\":", name);
    json_print_text(out, text);
}

void snapshots_write_meta(FILE *out, const page_meta *meta)
{
    fputs("{\"quire_snapshots\":1", out);
    write_text_field(out, "title", meta->title);
    write_text_field(out, "trace", meta->trace);
    write_text_field(out, "model", meta->model);
    write_text_field(out, "gpu", meta->gpu);
    fprintf(out, ",\"block_size\":%" PRIu32 ",\"bytes_per_block\":%" PRIu64, meta->block_size,
            meta->bytes_per_block);
    fputs(",\"options\":", out);
    if (json_dumpf(meta->options, out, JSON_COMPACT) != 0)
        fputs("[]", out);
    fputs(",\"tiers\":[", out);
    for (uint32_t i = 0; i < meta->num_tiers; i++) {
        fputs(i > 0 ? ",[" : "[", out);
        json_print_text(out, meta->tiers[i].name);
        fprintf(out, ",%" PRIu64 "]", meta->tiers[i].total);
    }
    putc(']', out);
    if (meta->made_by != NULL)
        fprintf(out, ",\"made_by\":%s", meta->made_by);
    fputs("}\n", out);
}

static void write_usage(FILE *out, const char *tier, const quire_usage *usage)
{
    fprintf(out, "%s\"empty\":%" PRIu64 ",\"cached\":%" PRIu64 ",\"active\":%" PRIu64, tier,
            usage->empty, usage->cached, usage->active);
}

void snapshots_write_step(FILE *out, const quire_snapshot *snapshot, double time_s,
                          double duration_s, uint64_t query_tokens, const page_tier_step *tiers,
                          uint32_t num_tiers)
{
    fprintf(out, "{\"step\":%" PRIu64 ",\"time_s\":%.9f,\"duration_ms\":%.6f", snapshot->step,
            time_s, duration_s * 1e3);
    for (size_t i = 0; i < NUM_COUNTS; i++) {
        uint32_t count;
        memcpy(&count, (const char *)snapshot + COUNTS[i].offset, sizeof count);
        fprintf(out, ",\"%s\":%" PRIu32, COUNTS[i].name, count);
    }
    fprintf(out, ",\"query_tokens\":%" PRIu64, query_tokens);
    write_usage(out, ",", &snapshot->blocks);
    if (tiers != NULL && num_tiers > 0) {
        fputs(",\"tiers\":[", out);
        for (uint32_t i = 0; i < num_tiers; i++) {
            write_usage(out, i > 0 ? ",{" : "{", &tiers[i].blocks);
            fprintf(out, ",\"in\":%" PRIu64 ",\"out\":%" PRIu64 ",\"hits\":%" PRIu64 "}",
                    tiers[i].in_blocks, tiers[i].out_blocks, tiers[i].hit_tokens);
        }
        putc(']', out);
    }
    fputs("}\n", out);
}

/* ---- reading --------------------------------------------------------------- */

typedef struct reading {
    input *in;
    page *page;
    uint32_t num_tiers;
    double last_time_s;
} reading;

static bool bad_record(reading *r, const char *key, const char *what)
{
    fail_with("%s:%" PRIu64 ": %s%s%s%s", input_name(r->in), input_line_number(r->in),
              key != NULL ? "\"" : "", key != NULL ? key : "", key != NULL ? "\": " : "", what);
    return false;
}

static bool read_count(reading *r, const json_t *record, const char *key, uint64_t most,
                       uint64_t *value)
{
    const json_t *found = json_object_get(record, key);
    if (found == NULL)
        return bad_record(r, key, "is missing");
    if (!json_is_integer(found))
        return bad_record(r, key, "is not a whole number");
    json_int_t number = json_integer_value(found);
    if (number < 0 || (uint64_t)number > most)
        return bad_record(r, key, "is out of range");
    *value = (uint64_t)number;
    return true;
}

static bool read_real(reading *r, const json_t *record, const char *key, double *value)
{
    const json_t *found = json_object_get(record, key);
    if (found == NULL)
        return bad_record(r, key, "is missing");
    if (!json_is_number(found))
        return bad_record(r, key, "is not a number");
    *value = json_number_value(found);
    if (!isfinite(*value) || *value < 0 || *value > 1e12)
        return bad_record(r, key, "is out of range");
    return true;
}

static bool read_usage(reading *r, const json_t *record, quire_usage *usage)
{
    *usage = (quire_usage){0};
    return read_count(r, record, "empty", UINT32_MAX, &usage->empty) &&
           read_count(r, record, "cached", UINT32_MAX, &usage->cached) &&
           read_count(r, record, "active", UINT32_MAX, &usage->active);
}

static bool read_tier(reading *r, const json_t *record, page_tier_step *tier)
{
    return read_usage(r, record, &tier->blocks) &&
           read_count(r, record, "in", UINT32_MAX, &tier->in_blocks) &&
           read_count(r, record, "out", UINT32_MAX, &tier->out_blocks) &&
           read_count(r, record, "hits", UINT32_MAX, &tier->hit_tokens);
}

static bool read_tiers(reading *r, const json_t *record, page_tier_step *tiers)
{
    if (r->num_tiers == 0)
        return true;
    const json_t *list = json_object_get(record, "tiers");
    if (!json_is_array(list) || json_array_size(list) != r->num_tiers)
        return bad_record(r, "tiers", "does not have one entry for each tier of the first line");
    for (uint32_t i = 0; i < r->num_tiers; i++)
        if (!read_tier(r, json_array_get(list, i), &tiers[i]))
            return false;
    return true;
}

static bool read_counts(reading *r, const json_t *record, quire_snapshot *snapshot)
{
    for (size_t i = 0; i < NUM_COUNTS; i++) {
        uint64_t count;
        if (!read_count(r, record, COUNTS[i].name, UINT32_MAX, &count))
            return false;
        uint32_t small = (uint32_t)count;
        memcpy((char *)snapshot + COUNTS[i].offset, &small, sizeof small);
    }
    if (snapshot->num_prefill_tokens > snapshot->num_tokens)
        return bad_record(r, "num_prefill_tokens", "is more than num_tokens");
    return true;
}

static bool read_step(reading *r, const json_t *record)
{
    quire_snapshot snapshot = {0};
    page_tier_step tiers[PAGE_MAX_TIERS];
    uint64_t query_tokens;
    double time_s;
    double duration_ms;
    if (!json_is_object(record))
        return bad_record(r, NULL, "a step must be an object");
    if (!read_count(r, record, "step", (uint64_t)1 << 53, &snapshot.step) ||
        !read_real(r, record, "time_s", &time_s) ||
        !read_real(r, record, "duration_ms", &duration_ms) || !read_counts(r, record, &snapshot) ||
        !read_count(r, record, "query_tokens", (uint64_t)1 << 53, &query_tokens) ||
        !read_usage(r, record, &snapshot.blocks) || !read_tiers(r, record, tiers))
        return false;
    if (time_s < r->last_time_s)
        return bad_record(r, "time_s", "is earlier than that of the step before");
    r->last_time_s = time_s;
    page_step(r->page, &snapshot, time_s, duration_ms / 1e3, query_tokens, tiers);
    return true;
}

static const char *text_of(const json_t *record, const char *key)
{
    return json_string_value(json_object_get(record, key));
}

static uint64_t count_of(const json_t *record, const char *key, json_int_t most)
{
    json_int_t number = json_integer_value(json_object_get(record, key));
    return number > 0 && number <= most ? (uint64_t)number : 0;
}

static json_t *read_options(const json_t *list)
{
    json_t *options = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *name = json_array_get(json_array_get(list, i), 0);
        json_t *value = json_array_get(json_array_get(list, i), 1);
        if (json_is_string(name) && json_is_string(value))
            json_array_append_new(options, json_pack("[O,O]", name, value));
    }
    return options;
}

static bool read_tier_names(reading *r, const json_t *list, page_tier *tiers)
{
    if (json_array_size(list) > PAGE_MAX_TIERS)
        return bad_record(r, "tiers", "has more entries than a page can show");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i);
        const char *name = json_string_value(json_array_get(pair, 0));
        json_int_t total = json_integer_value(json_array_get(pair, 1));
        if (name == NULL || total <= 0)
            return bad_record(r, "tiers", "has an entry that is not [name, blocks]");
        tiers[r->num_tiers++] = (page_tier){.name = name, .total = (uint64_t)total};
    }
    return true;
}

static bool read_meta(reading *r, const json_t *record)
{
    page_tier tiers[PAGE_MAX_TIERS];
    if (json_integer_value(json_object_get(record, "quire_snapshots")) != 1)
        return bad_record(r, NULL,
                          "not a snapshot file of this version (the first line must have "
                          "\"quire_snapshots\": 1)");
    if (!read_tier_names(r, json_object_get(record, "tiers"), tiers))
        return false;
    json_t *options = read_options(json_object_get(record, "options"));
    page_meta meta = {.title = text_of(record, "title"),
                      .trace = text_of(record, "trace"),
                      .model = text_of(record, "model"),
                      .gpu = text_of(record, "gpu"),
                      .block_size = (uint32_t)count_of(record, "block_size", UINT32_MAX),
                      .bytes_per_block = count_of(record, "bytes_per_block", (json_int_t)1 << 53),
                      .options = options,
                      .tiers = tiers,
                      .num_tiers = r->num_tiers};
    r->page = page_open(&meta);
    json_decref(options);
    return r->page != NULL || bad_record(r, NULL, "not enough memory");
}

static bool read_record(reading *r, const char *line, size_t length)
{
    json_error_t error;
    json_t *record = json_loadb(line, length, 0, &error);
    if (record == NULL)
        return bad_record(r, NULL, error.text);
    bool is_good = r->page == NULL ? read_meta(r, record) : read_step(r, record);
    json_decref(record);
    return is_good;
}

static bool read_all(reading *r)
{
    char *line;
    size_t length;
    int found;
    while ((found = input_line(r->in, &line, &length)) > 0)
        if (length > 0 && !read_record(r, line, length))
            return false;
    if (found < 0)
        fail_with("%s", input_error(r->in));
    else if (r->page == NULL)
        return bad_record(r, NULL, "contains no snapshots");
    return found == 0;
}

page *snapshots_read(const char *path)
{
    reading r = {.in = input_open(path)};
    if (r.in == NULL)
        return NULL;
    if (!read_all(&r)) {
        page_close(r.page);
        r.page = NULL;
    }
    input_close(r.in);
    return r.page;
}

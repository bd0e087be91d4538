#include "http/format.h"

#include "base/hex.h"
#include "base/utf8.h"

#include <quire/version.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_AT_ONCE = 32, SHOWN_HASH = 8, MAX_NAMES = 256 };

/* A number of a struct, by its name in JSON. */
typedef struct named_field {
    const char *name;
    size_t offset;
} named_field;

/* The columns between time and costs, in order: of 32 bits each. */
static const named_field COUNT_COLUMNS[] = {
    {"running", offsetof(quire_monitor_step, num_running)},
    {"waiting", offsetof(quire_monitor_step, num_waiting)},
    {"skipped", offsetof(quire_monitor_step, num_skipped)},
    {"scheduled", offsetof(quire_monitor_step, num_scheduled)},
    {"new", offsetof(quire_monitor_step, num_new)},
    {"resumed", offsetof(quire_monitor_step, num_resumed)},
    {"preempted", offsetof(quire_monitor_step, num_preempted)},
    {"finished", offsetof(quire_monitor_step, num_finished)},
    {"tokens", offsetof(quire_monitor_step, num_tokens)},
    {"prefill_tokens", offsetof(quire_monitor_step, num_prefill_tokens)},
    {"draft_tokens", offsetof(quire_monitor_step, num_draft_tokens)},
    {"query_tokens", offsetof(quire_monitor_step, num_query_tokens)},
    {"hit_tokens", offsetof(quire_monitor_step, num_hit_tokens)},
    {"external_tokens", offsetof(quire_monitor_step, num_external_tokens)},
    {"empty", offsetof(quire_monitor_step, num_empty)},
    {"cached", offsetof(quire_monitor_step, num_cached)},
    {"active", offsetof(quire_monitor_step, num_active)},
    {"swap_slots", offsetof(quire_monitor_step, num_swap_slots)},
    {"pinned_requests", offsetof(quire_monitor_step, num_pinned)},
    {"pinned", offsetof(quire_monitor_step, num_pinned_blocks)},
};
enum { NUM_COUNT_COLUMNS = sizeof COUNT_COLUMNS / sizeof COUNT_COLUMNS[0] };

/* The columns of each tier of the connector, behind the costs: "host_empty", ... */
static const named_field TIER_COLUMNS[] = {
    {"total", offsetof(quire_tier_step, total)},
    {"empty", offsetof(quire_tier_step, empty)},
    {"cached", offsetof(quire_tier_step, cached)},
    {"active", offsetof(quire_tier_step, active)},
    {"pinned", offsetof(quire_tier_step, pinned)},
    {"stored", offsetof(quire_tier_step, stored_blocks)},
    {"loaded", offsetof(quire_tier_step, loaded_blocks)},
    {"hit_tokens", offsetof(quire_tier_step, hit_tokens)},
    {"failed", offsetof(quire_tier_step, failed_blocks)},
};
enum { NUM_TIER_COLUMNS = sizeof TIER_COLUMNS / sizeof TIER_COLUMNS[0] };

/* ---- what never changes ----------------------------------------------------- */

static quire_bytes text_of(const char *text)
{
    return (quire_bytes){text, strlen(text)};
}

static uint32_t read_u32(const void *from, const named_field *field)
{
    uint32_t value;
    memcpy(&value, (const char *)from + field->offset, sizeof value);
    return value;
}

static uint64_t read_u64(const void *from, const named_field *field)
{
    uint64_t value;
    memcpy(&value, (const char *)from + field->offset, sizeof value);
    return value;
}

static void add_label(qr_http_body *body, const char *key, const qr_http_label *label)
{
    qr_http_body_print(body, "\"%s\":", key);
    if (label->is_known)
        qr_http_body_json(body, text_of(label->text));
    else
        qr_http_body_text(body, "null");
    qr_http_body_text(body, ",");
}

static void add_count(qr_http_body *body, const char *key, uint64_t count)
{
    qr_http_body_print(body, "\"%s\":%" PRIu64 ",", key, count);
}

/* A name of a tier is a stranger's text. */
static void add_tier_columns(qr_http_body *body, const quire_tier_usage *tier)
{
    for (size_t i = 0; i < NUM_TIER_COLUMNS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%.48s_%s", tier->name, TIER_COLUMNS[i].name);
        qr_http_body_text(body, ",");
        qr_http_body_json(body, text_of(name));
    }
}

static void add_columns(qr_http_body *body, const quire_tier_usage *tiers, uint32_t num_tiers,
                        uint32_t first)
{
    qr_http_body_text(body, "\"columns\":[\"step\",\"time_us\"");
    for (size_t i = 0; i < NUM_COUNT_COLUMNS; i++)
        qr_http_body_print(body, ",\"%s\"", COUNT_COLUMNS[i].name);
    qr_http_body_text(body, ",\"schedule_us\",\"update_us\"");
    for (uint32_t i = first; i < num_tiers; i++)
        add_tier_columns(body, &tiers[i]);
    qr_http_body_text(body, "]");
}

/* As it is now; null where it is not known. */
static void add_tier(qr_http_body *body, const quire_tier_usage *t, bool is_first)
{
    static const named_field FIELDS[] = {
        {"total", offsetof(quire_tier_usage, blocks.total)},
        {"empty", offsetof(quire_tier_usage, blocks.empty)},
        {"cached", offsetof(quire_tier_usage, blocks.cached)},
        {"active", offsetof(quire_tier_usage, blocks.active)},
        {"null", offsetof(quire_tier_usage, blocks.null_blocks)},
        {"pinned", offsetof(quire_tier_usage, pinned)},
        {"stored_blocks", offsetof(quire_tier_usage, stored_blocks)},
        {"loaded_blocks", offsetof(quire_tier_usage, loaded_blocks)},
        {"hit_tokens", offsetof(quire_tier_usage, hit_tokens)},
        {"stored_bytes", offsetof(quire_tier_usage, stored_bytes)},
        {"loaded_bytes", offsetof(quire_tier_usage, loaded_bytes)},
        {"failed_blocks", offsetof(quire_tier_usage, failed_blocks)},
        {"used_bytes", offsetof(quire_tier_usage, used_bytes)},
        {"capacity_bytes", offsetof(quire_tier_usage, capacity_bytes)},
    };
    qr_http_body_text(body, is_first ? "{\"name\":" : ",{\"name\":");
    qr_http_body_json(body, text_of(t->name));
    qr_http_body_text(body, ",\"medium\":");
    qr_http_body_json(body, text_of(t->medium));
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        uint64_t value = read_u64(t, &FIELDS[i]);
        if (value == QUIRE_UNKNOWN_BYTES)
            qr_http_body_print(body, ",\"%s\":null", FIELDS[i].name);
        else
            qr_http_body_print(body, ",\"%s\":%" PRIu64, FIELDS[i].name, value);
    }
    qr_http_body_text(body, "}");
}

void qr_http_format_meta(qr_http_body *body, const qr_http_site *site)
{
    qr_http_body_text(body, "\"meta\":{");
    add_label(body, "title", &site->title);
    add_label(body, "model", &site->model_name);
    add_label(body, "gpu", &site->gpu);
    add_label(body, "engine", &site->engine);
    qr_http_body_print(body, "\"version\":\"%s\",\"started\":", quire_version_string());
    qr_http_body_us(body, (uint64_t)(site->started * 1e3)); /* s, with its thousandths */
    qr_http_body_text(body, ",");
    add_count(body, "num_blocks", site->info.num_blocks);
    add_count(body, "total_blocks", site->info.num_blocks > 0 ? site->info.num_blocks - 1 : 0);
    add_count(body, "block_size", site->info.block_size);
    add_count(body, "max_num_seqs", site->info.max_num_seqs);
    quire_tier_usage tiers[QUIRE_MAX_TIERS];
    uint32_t num_tiers = quire_monitor_get_tiers(site->monitor, tiers, QUIRE_MAX_TIERS);
    qr_http_body_text(body, "\"tiers\":[");
    for (uint32_t i = 0; i < num_tiers; i++)
        add_tier(body, &tiers[i], i == 0);
    qr_http_body_text(body, "]},");
    add_columns(body, tiers, num_tiers, site->info.num_swap_slots > 0 ? 2 : 1);
}

/* ---- steps ------------------------------------------------------------------ */

static void add_step(qr_http_body *body, const quire_monitor_step *step)
{
    qr_http_body_print(body, "[%" PRIu64 ",%" PRIu64, step->step, step->time_ns / 1000);
    for (size_t i = 0; i < NUM_COUNT_COLUMNS; i++)
        qr_http_body_print(body, ",%u", read_u32(step, &COUNT_COLUMNS[i]));
    qr_http_body_text(body, ",");
    qr_http_body_us(body, step->schedule_ns);
    qr_http_body_text(body, ",");
    qr_http_body_us(body, step->update_ns);
    for (uint32_t i = 0; i < step->num_tiers; i++)
        for (size_t k = 0; k < NUM_TIER_COLUMNS; k++)
            qr_http_body_print(body, ",%" PRIu64, read_u64(&step->tiers[i], &TIER_COLUMNS[k]));
    qr_http_body_text(body, "]");
}

static bool is_shown(const char *id, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)id[i] < ' ')
            return false;
    return qr_utf8_is_text(id, len);
}

/* An id is any bytes: what is no text is written in hex, as 0x.... */
static void add_name(qr_http_body *body, const quire_name *name)
{
    char digits[2 + 2 * QUIRE_NAME_BYTES] = "0x";
    size_t len = name->bytes < QUIRE_NAME_BYTES ? name->bytes : QUIRE_NAME_BYTES;
    if (is_shown(name->text, len)) {
        qr_http_body_json(body, (quire_bytes){name->text, len});
        return;
    }
    (void)qr_hex_write(digits + 2, name->text, len);
    qr_http_body_json(body, (quire_bytes){digits, 2 + 2 * len});
}

static void add_names(qr_http_body *body, const char *key, const quire_name *names, uint32_t n)
{
    qr_http_body_print(body, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            qr_http_body_text(body, ",");
        add_name(body, &names[i]);
    }
    qr_http_body_text(body, "]");
}

void qr_http_format_names(qr_http_body *body, const quire_monitor *monitor)
{
    quire_name list[2 * MAX_NAMES];
    quire_step_names names = QUIRE_STEP_NAMES_INIT;
    quire_monitor_step last = QUIRE_MONITOR_STEP_INIT;
    int status = QUIRE_MISS; /* the step may be overwritten meanwhile: then the next one */
    while (status == QUIRE_MISS && quire_monitor_get_last_step(monitor, &last) == QUIRE_OK)
        status = quire_monitor_get_names(monitor, last.step, &names, list, 2 * MAX_NAMES);
    if (status != QUIRE_OK) {
        qr_http_body_text(body, "null");
        return;
    }
    qr_http_body_print(body, "{\"step\":%" PRIu64, names.step);
    add_names(body, "running", list, names.num_running);
    qr_http_body_print(body, ",\"more_running\":%u", names.num_more_running);
    add_names(body, "waiting", list + names.num_running, names.num_waiting);
    qr_http_body_print(body, ",\"more_waiting\":%u}", names.num_more_waiting);
}

/* ---- block maps -------------------------------------------------------------- */

static const named_field CELL_STATES[] = {
    {"cached", offsetof(quire_map_cell, cached)},
    {"active", offsetof(quire_map_cell, active)},
    {"pinned", offsetof(quire_map_cell, pinned)},
};
enum { NUM_CELL_STATES = sizeof CELL_STATES / sizeof CELL_STATES[0] };

/* One list for each state, with a number for each cell. */
static void add_cells(qr_http_body *body, const quire_map_cell *cells, uint32_t n)
{
    qr_http_body_text(body, "\"cells\":{");
    for (size_t k = 0; k < NUM_CELL_STATES; k++) {
        qr_http_body_print(body, "%s\"%s\":[", k == 0 ? "" : ",", CELL_STATES[k].name);
        for (uint32_t i = 0; i < n; i++)
            qr_http_body_print(body, "%s%u", i == 0 ? "" : ",",
                               read_u32(&cells[i], &CELL_STATES[k]));
        qr_http_body_text(body, "]");
    }
    qr_http_body_text(body, "}");
}

static void add_map(qr_http_body *body, const quire_block_map *map, const quire_map_cell *cells)
{
    uint64_t empty = 0;
    uint64_t sums[NUM_CELL_STATES] = {0};
    for (uint32_t i = 0; i < map->num_cells; i++) {
        empty += cells[i].empty;
        for (size_t k = 0; k < NUM_CELL_STATES; k++)
            sums[k] += read_u32(&cells[i], &CELL_STATES[k]);
    }
    qr_http_body_text(body, "{\"name\":");
    qr_http_body_json(body, text_of(map->name));
    qr_http_body_text(body, ",\"medium\":");
    qr_http_body_json(body, text_of(map->medium));
    qr_http_body_text(body, ",");
    add_count(body, "first_step", map->first_step);
    add_count(body, "last_step", map->last_step);
    qr_http_body_print(body, "\"after\":\"%s\",", map->is_after_update ? "update" : "schedule");
    add_count(body, "total", map->num_blocks);
    add_count(body, "null", 1);
    add_count(body, "empty", empty);
    for (size_t k = 0; k < NUM_CELL_STATES; k++)
        add_count(body, CELL_STATES[k].name, sums[k]);
    add_count(body, "cell_blocks", map->cell_blocks);
    add_cells(body, cells, map->num_cells);
    qr_http_body_text(body, "}");
}

void qr_http_format_maps(qr_http_body *body, const quire_monitor *monitor)
{
    quire_map_cell cells[QUIRE_MAP_CELLS];
    quire_block_map map = QUIRE_BLOCK_MAP_INIT;
    bool is_first = true;
    qr_http_body_text(body, "[");
    for (uint32_t i = 0; i < QUIRE_MAX_MAPS; i++) {
        if (quire_monitor_get_map(monitor, i, &map, cells, QUIRE_MAP_CELLS) != QUIRE_OK)
            continue;
        qr_http_body_text(body, is_first ? "" : ",");
        add_map(body, &map, cells);
        is_first = false;
    }
    qr_http_body_text(body, "]");
}

/* ---- rows -------------------------------------------------------------------- */

static void add_row(qr_http_body *body, qr_http_rows *rows, const quire_monitor_step *step)
{
    if (rows->num > 0)
        qr_http_body_text(body, ",");
    add_step(body, step);
    rows->num_skipped += step->step - rows->last - 1;
    rows->last = step->step;
    rows->num++;
}

qr_http_rows qr_http_format_steps(qr_http_body *body, const quire_monitor *monitor,
                                  const qr_http_range *range)
{
    qr_http_rows rows = {.last = range->after};
    quire_monitor_step steps[STEPS_AT_ONCE];
    steps[0].size = sizeof steps[0];
    uint64_t seen = range->after;
    uint32_t n = STEPS_AT_ONCE;
    while (n == STEPS_AT_ONCE) {
        n = quire_monitor_get_steps(monitor, seen, steps, STEPS_AT_ONCE);
        for (uint32_t i = 0; i < n; i++) {
            seen = steps[i].step;
            if (rows.num == range->limit || seen > range->until)
                return rows;
            if (range->every <= 1 || (range->until - seen) % range->every == 0)
                add_row(body, &rows, &steps[i]);
        }
    }
    return rows;
}

/* ---- events ----------------------------------------------------------------- */

/* The last 8 bytes: the number that vLLM makes of a hash. No hash: null. */
static void add_hash(qr_http_body *body, const char *key, const unsigned char *hash, size_t len)
{
    char text[2 * SHOWN_HASH + 1];
    size_t shown = len < SHOWN_HASH ? len : SHOWN_HASH;
    qr_http_body_print(body, hash == NULL ? ",\"%s\":null" : ",\"%s\":", key);
    if (hash == NULL)
        return;
    memset(text, '0', sizeof text);
    (void)qr_hex_write(text + 2 * (SHOWN_HASH - shown), hash + len - shown, shown);
    qr_http_body_print(body, "\"%.*s\"", 2 * SHOWN_HASH, text);
}

bool qr_http_format_event(qr_http_body *body, const quire_feed_event *event)
{
    if (event->kind == QUIRE_FEED_CLEARED) {
        qr_http_body_text(body, "{\"kind\":\"cleared\",\"group\":null,\"blocks\":null,"
                                "\"hash\":null,\"parent\":null}");
        return true;
    }
    if (event->kind != QUIRE_FEED_STORED && event->kind != QUIRE_FEED_REMOVED)
        return false;
    bool is_stored = event->kind == QUIRE_FEED_STORED;
    qr_http_body_print(body, "{\"kind\":\"%s\",\"group\":%u,\"blocks\":%u",
                       is_stored ? "stored" : "removed", event->group_id, event->num_blocks);
    add_hash(body, "hash", event->num_blocks > 0 ? event->hashes : NULL, event->hash_bytes);
    add_hash(body, "parent", is_stored ? event->parent.data : NULL, event->parent.len);
    qr_http_body_text(body, ",\"medium\":");
    qr_http_body_json(body, text_of(event->medium));
    qr_http_body_text(body, "}");
    return true;
}

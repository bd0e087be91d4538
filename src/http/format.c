#include "http/format.h"

#include "base/hex.h"
#include "base/utf8.h"

#include <quire/version.h>

#include <stddef.h>
#include <string.h>

enum { STEPS_AT_ONCE = 32, SHOWN_HASH = 8, MAX_NAMES = 256 };

/* The columns between time and costs, in order. */
static const struct {
    const char *name;
    size_t offset;
} COUNT_COLUMNS[] = {
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
static const struct {
    const char *name;
    size_t offset;
} TIER_COLUMNS[] = {
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

static void add_label(qr_http_body *body, const char *key, const qr_http_label *label)
{
    qr_http_body_text(body, "\"");
    qr_http_body_text(body, key);
    qr_http_body_text(body, "\":");
    if (label->is_known)
        qr_http_body_json(body, (quire_bytes){label->text, strlen(label->text)});
    else
        qr_http_body_text(body, "null");
    qr_http_body_text(body, ",");
}

static void add_count(qr_http_body *body, const char *key, uint64_t count)
{
    qr_http_body_text(body, "\"");
    qr_http_body_text(body, key);
    qr_http_body_text(body, "\":");
    qr_http_body_number(body, count);
    qr_http_body_text(body, ",");
}

static quire_bytes text_of(const char *text)
{
    return (quire_bytes){text, strlen(text)};
}

/* A name of a tier is a stranger's text. */
static void add_tier_columns(qr_http_body *body, const quire_tier_usage *tier)
{
    for (size_t i = 0; i < NUM_TIER_COLUMNS; i++) {
        char name[64];
        size_t len = strnlen(tier->name, sizeof name - 16);
        memcpy(name, tier->name, len);
        name[len++] = '_';
        memcpy(name + len, TIER_COLUMNS[i].name, strlen(TIER_COLUMNS[i].name) + 1);
        qr_http_body_text(body, ",");
        qr_http_body_json(body, text_of(name));
    }
}

static void add_columns(qr_http_body *body, const quire_tier_usage *tiers, uint32_t num_tiers,
                        uint32_t first)
{
    qr_http_body_text(body, "\"columns\":[\"step\",\"time_us\"");
    for (size_t i = 0; i < NUM_COUNT_COLUMNS; i++) {
        qr_http_body_text(body, ",\"");
        qr_http_body_text(body, COUNT_COLUMNS[i].name);
        qr_http_body_text(body, "\"");
    }
    qr_http_body_text(body, ",\"schedule_us\",\"update_us\"");
    for (uint32_t i = first; i < num_tiers; i++)
        add_tier_columns(body, &tiers[i]);
    qr_http_body_text(body, "]");
}

/* As it is now; null where it is not known. */
static void add_tier(qr_http_body *body, const quire_tier_usage *t, bool is_first)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"total", t->blocks.total},          {"empty", t->blocks.empty},
                  {"cached", t->blocks.cached},        {"active", t->blocks.active},
                  {"null", t->blocks.null_blocks},     {"pinned", t->pinned},
                  {"stored_blocks", t->stored_blocks}, {"loaded_blocks", t->loaded_blocks},
                  {"hit_tokens", t->hit_tokens},       {"stored_bytes", t->stored_bytes},
                  {"loaded_bytes", t->loaded_bytes},   {"failed_blocks", t->failed_blocks},
                  {"used_bytes", t->used_bytes},       {"capacity_bytes", t->capacity_bytes}};
    qr_http_body_text(body, is_first ? "{\"name\":" : ",{\"name\":");
    qr_http_body_json(body, text_of(t->name));
    qr_http_body_text(body, ",\"medium\":");
    qr_http_body_json(body, text_of(t->medium));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        qr_http_body_text(body, ",\"");
        qr_http_body_text(body, counts[i].name);
        qr_http_body_text(body, "\":");
        if (counts[i].value == QUIRE_UNKNOWN_BYTES)
            qr_http_body_text(body, "null");
        else
            qr_http_body_number(body, counts[i].value);
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
    qr_http_body_text(body, "\"version\":\"");
    qr_http_body_text(body, quire_version_string());
    qr_http_body_text(body, "\",\"started\":");
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

void qr_http_format_step(qr_http_body *body, const quire_monitor_step *step)
{
    qr_http_body_text(body, "[");
    qr_http_body_number(body, step->step);
    qr_http_body_text(body, ",");
    qr_http_body_number(body, step->time_ns / 1000);
    for (size_t i = 0; i < NUM_COUNT_COLUMNS; i++) {
        uint32_t count;
        memcpy(&count, (const char *)step + COUNT_COLUMNS[i].offset, sizeof count);
        qr_http_body_text(body, ",");
        qr_http_body_number(body, count);
    }
    qr_http_body_text(body, ",");
    qr_http_body_us(body, step->schedule_ns);
    qr_http_body_text(body, ",");
    qr_http_body_us(body, step->update_ns);
    for (uint32_t i = 0; i < step->num_tiers; i++) {
        for (size_t k = 0; k < NUM_TIER_COLUMNS; k++) {
            uint64_t count;
            memcpy(&count, (const char *)&step->tiers[i] + TIER_COLUMNS[k].offset, sizeof count);
            qr_http_body_text(body, ",");
            qr_http_body_number(body, count);
        }
    }
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
    qr_http_body_text(body, ",\"");
    qr_http_body_text(body, key);
    qr_http_body_text(body, "\":[");
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
    quire_step_names names;
    quire_monitor_step last;
    int status = QUIRE_MISS; /* the step may be overwritten meanwhile: then the next one */
    while (status == QUIRE_MISS && quire_monitor_last_step(monitor, &last) == QUIRE_OK)
        status = quire_monitor_get_names(monitor, last.step, &names, list, 2 * MAX_NAMES);
    if (status != QUIRE_OK) {
        qr_http_body_text(body, "null");
        return;
    }
    qr_http_body_text(body, "{\"step\":");
    qr_http_body_number(body, names.step);
    add_names(body, "running", list, names.num_running);
    qr_http_body_text(body, ",\"more_running\":");
    qr_http_body_number(body, names.num_more_running);
    add_names(body, "waiting", list + names.num_running, names.num_waiting);
    qr_http_body_text(body, ",\"more_waiting\":");
    qr_http_body_number(body, names.num_more_waiting);
    qr_http_body_text(body, "}");
}

/* ---- block maps -------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} CELL_STATES[] = {
    {"cached", offsetof(quire_map_cell, cached)},
    {"active", offsetof(quire_map_cell, active)},
    {"pinned", offsetof(quire_map_cell, pinned)},
};
enum { NUM_CELL_STATES = sizeof CELL_STATES / sizeof CELL_STATES[0] };

static uint32_t count_of(const quire_map_cell *cell, size_t state)
{
    uint32_t count;
    memcpy(&count, (const char *)cell + CELL_STATES[state].offset, sizeof count);
    return count;
}

/* One list for each state, with a number for each cell. */
static void add_cells(qr_http_body *body, const quire_map_cell *cells, uint32_t n)
{
    qr_http_body_text(body, "\"cells\":{");
    for (size_t k = 0; k < NUM_CELL_STATES; k++) {
        qr_http_body_text(body, k == 0 ? "\"" : ",\"");
        qr_http_body_text(body, CELL_STATES[k].name);
        qr_http_body_text(body, "\":[");
        for (uint32_t i = 0; i < n; i++) {
            if (i > 0)
                qr_http_body_text(body, ",");
            qr_http_body_number(body, count_of(&cells[i], k));
        }
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
            sums[k] += count_of(&cells[i], k);
    }
    qr_http_body_text(body, "{\"name\":");
    qr_http_body_json(body, text_of(map->name));
    qr_http_body_text(body, ",\"medium\":");
    qr_http_body_json(body, text_of(map->medium));
    qr_http_body_text(body, ",");
    add_count(body, "first_step", map->first_step);
    add_count(body, "last_step", map->last_step);
    qr_http_body_text(body,
                      map->is_after_update ? "\"after\":\"update\"," : "\"after\":\"schedule\",");
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
    quire_block_map map;
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

static bool is_in_range(const qr_http_range *range, uint64_t step)
{
    return range->every <= 1 || (range->until - step) % range->every == 0;
}

static void add_row(qr_http_body *body, qr_http_rows *rows, const quire_monitor_step *step)
{
    if (rows->num > 0)
        qr_http_body_text(body, ",");
    qr_http_format_step(body, step);
    rows->num_skipped += step->step - rows->last - 1;
    rows->last = step->step;
    rows->num++;
}

qr_http_rows qr_http_format_steps(qr_http_body *body, const quire_monitor *monitor,
                                  const qr_http_range *range)
{
    qr_http_rows rows = {.last = range->after};
    quire_monitor_step steps[STEPS_AT_ONCE];
    uint64_t seen = range->after;
    uint32_t n = STEPS_AT_ONCE;
    while (n == STEPS_AT_ONCE) {
        n = quire_monitor_get_steps(monitor, seen, steps, STEPS_AT_ONCE);
        for (uint32_t i = 0; i < n; i++) {
            seen = steps[i].step;
            if (rows.num == range->limit || seen > range->until)
                return rows;
            if (is_in_range(range, seen))
                add_row(body, &rows, &steps[i]);
        }
    }
    return rows;
}

uint64_t qr_http_step_before(const quire_monitor *monitor, uint64_t limit)
{
    quire_monitor_step last;
    if (quire_monitor_last_step(monitor, &last) != QUIRE_OK || last.step < limit)
        return 0;
    return last.step - limit;
}

/* ---- events ----------------------------------------------------------------- */

/* The last 8 bytes: the number that vLLM makes of a hash. */
static void add_hash(qr_http_body *body, const unsigned char *hash, size_t len)
{
    char text[2 + 2 * SHOWN_HASH];
    size_t shown = len < SHOWN_HASH ? len : SHOWN_HASH;
    memset(text, '0', sizeof text);
    text[0] = text[sizeof text - 1] = '"';
    (void)qr_hex_write(text + 1 + 2 * (SHOWN_HASH - shown), hash + len - shown, shown);
    qr_http_body_add(body, text, sizeof text);
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
    qr_http_body_text(body, event->kind == QUIRE_FEED_STORED ? "{\"kind\":\"stored\",\"group\":"
                                                             : "{\"kind\":\"removed\",\"group\":");
    qr_http_body_number(body, event->group_id);
    qr_http_body_text(body, ",\"blocks\":");
    qr_http_body_number(body, event->num_blocks);
    qr_http_body_text(body, ",\"hash\":");
    if (event->num_blocks > 0 && event->hashes != NULL)
        add_hash(body, event->hashes, event->hash_bytes);
    else
        qr_http_body_text(body, "null");
    qr_http_body_text(body, ",\"parent\":");
    if (event->kind == QUIRE_FEED_STORED && event->parent.data != NULL)
        add_hash(body, event->parent.data, event->parent.len);
    else
        qr_http_body_text(body, "null");
    qr_http_body_text(body, ",\"medium\":");
    qr_http_body_json(body, text_of(event->medium));
    qr_http_body_text(body, "}");
    return true;
}

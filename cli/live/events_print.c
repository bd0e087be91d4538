#include "events_print.h"

#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* ---- parts ------------------------------------------------------------------- */

static void print_hex(FILE *out, quire_bytes bytes)
{
    const unsigned char *at = bytes.data;
    for (size_t i = 0; at != NULL && i < bytes.len; i++)
        fprintf(out, "%02x", at[i]);
}

void events_print_hash(FILE *out, const quire_wire_hash *hash)
{
    if (hash->bytes.data == NULL)
        fprintf(out, "%016" PRIx64, hash->number);
    print_hex(out, hash->bytes);
}

void events_print_text(FILE *out, quire_bytes text)
{
    const unsigned char *bytes = text.data;
    for (size_t i = 0; bytes != NULL && i < text.len; i++)
        fputc(bytes[i] >= 0x20 && bytes[i] < 0x7f ? bytes[i] : '?', out);
}

/* What is no UTF-8 is shown byte by byte. */
void events_print_json_text(FILE *out, quire_bytes text)
{
    const unsigned char *bytes = text.data;
    if (bytes == NULL) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (size_t i = 0, used = 0; i < text.len; i += used) {
        char form[QR_JSON_CHAR];
        size_t n = qr_json_char(bytes + i, text.len - i, form, &used);
        if (qr_utf8_char(bytes + i, text.len - i) == 0)
            fprintf(out, "\\u%04x", bytes[i]);
        else
            fwrite(form, 1, n, out);
    }
    fputc('"', out);
}

static const char *const delivery_names[] = {
    [QUIRE_DELIVERY_LIVE] = "live",   [QUIRE_DELIVERY_REPLAY] = "replay",
    [QUIRE_DELIVERY_GAP] = "gap",     [QUIRE_DELIVERY_SNAPSHOT] = "index",
    [QUIRE_DELIVERY_WHOLE] = "whole", [QUIRE_DELIVERY_RESTART] = "restart"};

static const char *const event_names[] = {[QUIRE_WIRE_STORED] = "stored",
                                          [QUIRE_WIRE_REMOVED] = "removed",
                                          [QUIRE_WIRE_CLEARED] = "cleared",
                                          [QUIRE_WIRE_OTHER] = "other"};

/* ---- for people -------------------------------------------------------------- */

/* The last second of the year 9999: what is beyond has no time of day. */
#define LAST_TIME 253402300799.0

static void print_time(FILE *out, double time_s)
{
    struct tm parts;
    time_t whole = time_s >= 0 && time_s < LAST_TIME ? (time_t)time_s : 0;
    if (!(time_s >= 0 && time_s < LAST_TIME) || localtime_r(&whole, &parts) == NULL) {
        fprintf(out, "%12g", time_s);
        return;
    }
    fprintf(out, "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec,
            (int)((time_s - floor(time_s)) * 1e3));
}

/* An event, or several of one kind as one: what follows `event` up to and including `last`. */
typedef struct event_run {
    const quire_wire_event *event;
    const quire_wire_event *last;
    uint64_t num_hashes;
} event_run;

static void print_run(FILE *out, const quire_delivery *d, const event_run *run)
{
    const quire_wire_event *event = run->event;
    fprintf(out, "%8" PRIu64 " ", d->number);
    print_time(out, d->batch.time);
    fprintf(out, " %-8s", event_names[event->kind]);
    if (event->kind == QUIRE_WIRE_STORED || event->kind == QUIRE_WIRE_REMOVED) {
        if (event->has_group)
            fprintf(out, " group %u", event->group);
        fputc(' ', out);
        events_print_text(out, event->medium);
        fprintf(out, "  %" PRIu64 " block%s", run->num_hashes, run->num_hashes == 1 ? "" : "s");
        if (event->kind == QUIRE_WIRE_STORED)
            fprintf(out, " of %u", event->block_size);
        fputs("  ", out);
        if (event->num_hashes > 0)
            events_print_hash(out, &event->hashes[0]);
        if (run->num_hashes > 1 && run->last->num_hashes > 0) {
            fputs(" to ", out);
            events_print_hash(out, &run->last->hashes[run->last->num_hashes - 1]);
        }
        if (event->has_parent) {
            fputs(" after ", out);
            events_print_hash(out, &event->parent);
        }
        if (event->lora_name.data != NULL) {
            fputs("  LoRA ", out);
            events_print_text(out, event->lora_name);
        }
    }
    if (d->kind != QUIRE_DELIVERY_LIVE)
        fprintf(out, "  (%s)", delivery_names[d->kind]);
    fputc('\n', out);
}

static bool is_same_text(quire_bytes a, quire_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Whether both tell of removed blocks of the same place; a batch has an event for each block. */
static bool is_one_removal(const quire_wire_event *a, const quire_wire_event *b)
{
    return a->kind == QUIRE_WIRE_REMOVED && b->kind == QUIRE_WIRE_REMOVED &&
           a->has_group == b->has_group && (!a->has_group || a->group == b->group) &&
           is_same_text(a->medium, b->medium);
}

static void print_batch(FILE *out, const quire_delivery *d)
{
    for (uint32_t i = 0; i < d->batch.num_events;) {
        const quire_wire_event *event = quire_wire_get(d->events, i);
        event_run run = {.event = event, .last = event, .num_hashes = event->num_hashes};
        for (i++; i < d->batch.num_events; i++) {
            const quire_wire_event *next = quire_wire_get(d->events, i);
            if (!is_one_removal(event, next))
                break;
            run.last = next;
            run.num_hashes += next->num_hashes;
        }
        print_run(out, d, &run);
    }
}

static void print_notice(FILE *out, const quire_delivery *d)
{
    if (d->kind == QUIRE_DELIVERY_GAP)
        fprintf(out, "%8" PRIu64 " -- %" PRIu64 " batches are missing before this one\n", d->number,
                d->num_missed);
    else if (d->kind == QUIRE_DELIVERY_WHOLE)
        fprintf(out, "%8" PRIu64 " -- end of the whole index; new events follow\n", d->number);
    else
        fprintf(out, "%8" PRIu64 " -- publisher restarted: batch numbers start again\n", d->number);
}

/* ---- for programs ------------------------------------------------------------ */

static void json_head(FILE *out, const quire_delivery *d)
{
    fprintf(out, "{\"number\":%" PRIu64 ",\"delivery\":\"%s\"", d->number, delivery_names[d->kind]);
}

static void json_hash(FILE *out, const quire_wire_hash *hash)
{
    fputc('"', out);
    events_print_hash(out, hash);
    fputc('"', out);
}

static void json_hashes(FILE *out, const quire_wire_event *event)
{
    fputs(",\"block_hashes\":[", out);
    for (uint32_t i = 0; i < event->num_hashes; i++) {
        fputs(i == 0 ? "" : ",", out);
        json_hash(out, &event->hashes[i]);
    }
    fputc(']', out);
}

static void json_key(FILE *out, const quire_wire_key *key)
{
    switch (key->kind) {
    case QUIRE_WIRE_TEXT:
        events_print_json_text(out, key->value);
        break;
    case QUIRE_WIRE_FEATURE:
        fputc('[', out);
        events_print_json_text(out, key->value);
        fprintf(out, ",%" PRId64 "]", key->number);
        break;
    case QUIRE_WIRE_NUMBER:
        fprintf(out, "%" PRId64, key->number);
        break;
    default:
        fputc('"', out);
        print_hex(out, key->value);
        fputc('"', out);
    }
}

/* For each hash a list, or null. */
static void json_extra_keys(FILE *out, const quire_wire_event *event)
{
    if (event->key_start == NULL) {
        fputs(",\"extra_keys\":null", out);
        return;
    }
    fputs(",\"extra_keys\":[", out);
    for (uint32_t i = 0; i < event->num_hashes; i++) {
        uint32_t first = event->key_start[i];
        uint32_t end = event->key_start[i + 1];
        fputs(i == 0 ? "" : ",", out);
        fputs(first == end ? "null" : "[", out);
        for (uint32_t k = first; k < end; k++) {
            fputs(k == first ? "" : ",", out);
            json_key(out, &event->keys[k]);
        }
        fputs(first == end ? "" : "]", out);
    }
    fputc(']', out);
}

static void json_stored(FILE *out, const quire_wire_event *event)
{
    fputs(",\"parent_block_hash\":", out);
    if (event->has_parent)
        json_hash(out, &event->parent);
    else
        fputs("null", out);
    fputs(",\"token_ids\":[", out);
    for (uint32_t i = 0; i < event->num_tokens; i++)
        fprintf(out, "%s%" PRId64, i == 0 ? "" : ",", event->tokens[i]);
    fprintf(out, "],\"block_size\":%u", event->block_size);
    if (event->has_lora_id)
        fprintf(out, ",\"lora_id\":%" PRId64, event->lora_id);
    fputs(",\"lora_name\":", out);
    events_print_json_text(out, event->lora_name);
    json_extra_keys(out, event);
}

static void json_event(FILE *out, const quire_delivery *d, const quire_wire_event *event)
{
    json_head(out, d);
    if (isfinite(d->batch.time))
        fprintf(out, ",\"time\":%.6f", d->batch.time);
    if (d->batch.has_rank)
        fprintf(out, ",\"rank\":%" PRId64, d->batch.rank);
    fprintf(out, ",\"kind\":\"%s\"", event_names[event->kind]);
    if (event->kind == QUIRE_WIRE_STORED || event->kind == QUIRE_WIRE_REMOVED)
        json_hashes(out, event);
    if (event->kind == QUIRE_WIRE_STORED)
        json_stored(out, event);
    if (event->kind == QUIRE_WIRE_STORED || event->kind == QUIRE_WIRE_REMOVED) {
        fputs(",\"medium\":", out);
        events_print_json_text(out, event->medium);
        if (event->has_group)
            fprintf(out, ",\"group\":%u", event->group);
    }
    fputs("}\n", out);
}

static void json_notice(FILE *out, const quire_delivery *d)
{
    json_head(out, d);
    fprintf(out, ",\"kind\":\"%s\"", delivery_names[d->kind]);
    if (d->kind == QUIRE_DELIVERY_GAP)
        fprintf(out, ",\"missed\":%" PRIu64, d->num_missed);
    fputs("}\n", out);
}

void events_print(FILE *out, const quire_delivery *d, bool as_json)
{
    if (d->kind == QUIRE_DELIVERY_GAP || d->kind == QUIRE_DELIVERY_RESTART ||
        d->kind == QUIRE_DELIVERY_WHOLE) {
        if (as_json)
            json_notice(out, d);
        else
            print_notice(out, d);
        return;
    }
    if (!as_json) {
        print_batch(out, d);
        return;
    }
    for (uint32_t i = 0; i < d->batch.num_events; i++)
        json_event(out, d, quire_wire_get(d->events, i));
}

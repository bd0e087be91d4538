#include "events_index.h"
#include "events_print.h"
#include "replay/report.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_WORKERS = 64, MAX_ROWS = 256, MAX_SHOWN = 20 };

int events_index_open(events_index *x)
{
    /* Counting copies fits vLLM; where each hash is stored and removed once it changes nothing. */
    quire_index_config config = QUIRE_INDEX_CONFIG_INIT;
    config.max_workers = MAX_WORKERS;
    config.count_copies = 1;
    *x = (events_index){0};
    return quire_index_create(&config, &x->index);
}

void events_index_close(events_index *x)
{
    quire_index_destroy(x->index);
    x->index = NULL;
}

static uint32_t worker_of(const quire_delivery *d)
{
    if (!d->batch.has_rank)
        return 0;
    return d->batch.rank >= 0 && d->batch.rank < MAX_WORKERS ? (uint32_t)d->batch.rank
                                                             : MAX_WORKERS;
}

void events_index_forget(events_index *x)
{
    for (uint32_t i = 0; i < x->workers; i++)
        quire_index_clear(x->index, i);
    x->is_whole = false;
    x->has_number = false;
}

/* Longer names are cut. */
static void copy_name(char name[EVENTS_NAME_BYTES], quire_bytes medium)
{
    size_t length = medium.len < EVENTS_NAME_BYTES - 1 ? medium.len : EVENTS_NAME_BYTES - 1;
    memset(name, 0, EVENTS_NAME_BYTES);
    if (medium.data != NULL)
        memcpy(name, medium.data, length);
}

/* The last one stands for all that have no room. */
static events_medium *medium_of(events_index *x, quire_bytes name)
{
    char text[EVENTS_NAME_BYTES];
    uint32_t i = 0;
    copy_name(text, name);
    while (i < x->num_media && strcmp(x->media[i].name, text) != 0)
        i++;
    if (i == EVENTS_MAX_MEDIA)
        return &x->media[EVENTS_MAX_MEDIA - 1];
    if (i == x->num_media) {
        x->media[i] = (events_medium){0};
        memcpy(x->media[i].name, text, sizeof text);
        x->num_media++;
    }
    return &x->media[i];
}

/* A block that is removed was stored in the same medium before, where the index is whole. */
static void apply_event(events_index *x, uint32_t worker, const quire_wire_event *event)
{
    uint64_t before = quire_index_get_stats(x->index)->num_unknown;
    quire_index_apply(x->index, worker, event);
    if (event->kind != QUIRE_WIRE_STORED && event->kind != QUIRE_WIRE_REMOVED)
        return;
    events_medium *medium = medium_of(x, event->medium);
    if (event->kind == QUIRE_WIRE_STORED)
        medium->num_stored += event->num_hashes;
    else
        medium->num_removed += event->num_hashes;
    if (x->is_whole)
        medium->num_unknown += quire_index_get_stats(x->index)->num_unknown - before;
}

void events_index_add(events_index *x, const quire_delivery *d)
{
    if (d->kind == QUIRE_DELIVERY_GAP || d->kind == QUIRE_DELIVERY_RESTART) {
        events_index_forget(x);
        return;
    }
    if (d->kind == QUIRE_DELIVERY_WHOLE) {
        x->is_whole = true;
        return;
    }
    uint32_t worker = worker_of(d);
    if (worker == MAX_WORKERS) /* beyond what the index takes */
        return;
    x->workers = worker >= x->workers ? worker + 1 : x->workers;
    bool is_first = !x->has_number && d->number == 0 && d->kind != QUIRE_DELIVERY_SNAPSHOT;
    x->is_whole = x->is_whole || is_first;
    for (uint32_t i = 0; i < d->batch.num_events; i++) {
        const quire_wire_event *event = quire_wire_get(d->events, i);
        bool is_new = event->kind == QUIRE_WIRE_CLEARED && d->kind != QUIRE_DELIVERY_SNAPSHOT;
        x->is_whole = x->is_whole || is_new;
        apply_event(x, worker, event);
    }
    x->has_number = true;
    x->number = d->number;
}

/* ---- its size ---------------------------------------------------------------- */

typedef struct size_row {
    uint32_t group;
    char medium[EVENTS_NAME_BYTES];
    uint64_t num_blocks;
} size_row;

typedef struct sizes {
    size_row rows[MAX_ROWS];
    uint32_t count;
} sizes;

static void add_size(void *user, const quire_wire_hash *hash, uint32_t group, quire_bytes medium,
                     uint32_t copies)
{
    sizes *s = user;
    char name[EVENTS_NAME_BYTES];
    uint32_t i = 0;
    (void)hash;
    (void)copies;
    copy_name(name, medium);
    while (i < s->count &&
           (s->rows[i].group != group || memcmp(s->rows[i].medium, name, sizeof name) != 0))
        i++;
    if (i == MAX_ROWS)
        return;
    if (i == s->count) {
        s->rows[s->count++] = (size_row){.group = group};
        memcpy(s->rows[i].medium, name, sizeof name);
    }
    s->rows[i].num_blocks++;
}

/* Begins a line, or an element of a JSON array. */
static void print_medium(FILE *out, const char *name, bool is_first, bool as_json)
{
    quire_bytes text = {name, strlen(name)};
    if (as_json) {
        fputs(is_first ? "{\"medium\":" : ",{\"medium\":", out);
        events_print_json_text(out, text);
    } else {
        fputs("  ", out);
        events_print_text(out, text);
    }
}

static void print_rows(FILE *out, const sizes *s, bool as_json)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const size_row *row = &s->rows[i];
        print_medium(out, row->medium, i == 0, as_json);
        if (row->group != QUIRE_INDEX_NO_GROUP)
            fprintf(out, as_json ? ",\"group\":%u" : ", group %u", row->group);
        if (as_json)
            fprintf(out, ",\"blocks\":%" PRIu64 "}", row->num_blocks);
        else
            fprintf(out, ": %s blocks\n", report_number(row->num_blocks));
    }
}

void events_index_print(FILE *out, const events_index *x, bool as_json)
{
    static sizes s;
    const quire_index_stats *stats = quire_index_get_stats(x->index);
    s.count = 0;
    for (uint32_t i = 0; i < x->workers; i++)
        quire_index_visit(x->index, i, add_size, &s);
    if (as_json) {
        fprintf(out,
                "{\"blocks\":%" PRIu64 ",\"whole\":%s,\"unknown_removed\":%" PRIu64
                ",\"dropped\":%" PRIu64 ",\"parts\":[",
                stats->num_blocks, x->is_whole ? "true" : "false", stats->num_unknown,
                stats->num_dropped);
        print_rows(out, &s, true);
        fputs("]}", out);
        return;
    }
    fprintf(out, "Index: %s blocks%s\n", report_number(stats->num_blocks),
            x->is_whole ? "" : ", counting blocks stored since this command started");
    print_rows(out, &s, false);
    if (stats->num_unknown > 0)
        fprintf(out, "  %s removed blocks that were not in it\n",
                report_number(stats->num_unknown));
    if (stats->num_dropped > 0)
        fprintf(out, "  %s stored blocks that did not fit\n", report_number(stats->num_dropped));
}

/* ---- by medium --------------------------------------------------------------- */

void events_index_print_media(FILE *out, const events_index *x, bool as_json)
{
    fputs(as_json ? "[" : "", out);
    for (uint32_t i = 0; i < x->num_media; i++) {
        const events_medium *m = &x->media[i];
        print_medium(out, m->name, i == 0, as_json);
        if (as_json) {
            fprintf(out,
                    ",\"stored\":%" PRIu64 ",\"removed\":%" PRIu64 ",\"unknown_removed\":%" PRIu64
                    "}",
                    m->num_stored, m->num_removed, m->num_unknown);
            continue;
        }
        fprintf(out, ": %s blocks stored, %s removed", report_number(m->num_stored),
                report_number(m->num_removed));
        if (m->num_unknown > 0)
            fprintf(out, ", of them %s that were not there", report_number(m->num_unknown));
        fputc('\n', out);
    }
    fputs(as_json ? "]" : "", out);
}

uint64_t events_index_num_unknown(const events_index *x)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < x->num_media; i++)
        n += x->media[i].num_unknown;
    return n;
}

/* ---- beside another ---------------------------------------------------------- */

typedef struct search {
    FILE *out;
    const quire_index *other;
    uint32_t worker;
    const char *where;
    uint64_t num_differing;
} search;

static void look_up(void *user, const quire_wire_hash *hash, uint32_t group, quire_bytes medium,
                    uint32_t copies)
{
    search *s = user;
    uint32_t found[MAX_WORKERS];
    (void)copies;
    quire_index_match(s->other, hash, 1, group, medium, found);
    if (found[s->worker] == 1)
        return;
    if (s->num_differing++ >= MAX_SHOWN)
        return;
    fprintf(s->out, "  only in %s: ", s->where);
    events_print_hash(s->out, hash);
    if (group != QUIRE_INDEX_NO_GROUP)
        fprintf(s->out, " group %u ", group);
    events_print_text(s->out, medium);
    fputc('\n', s->out);
}

static uint64_t count_missing(FILE *out, const events_index *of, const events_index *in,
                              const char *where)
{
    search s = {.out = out, .other = in->index, .where = where};
    for (s.worker = 0; s.worker < of->workers; s.worker++)
        quire_index_visit(of->index, s.worker, look_up, &s);
    if (s.num_differing > MAX_SHOWN)
        fprintf(out, "  ... and %s more only in %s\n", report_number(s.num_differing - MAX_SHOWN),
                where);
    return s.num_differing;
}

uint64_t events_index_compare(FILE *out, const events_index *ours, const events_index *theirs)
{
    return count_missing(out, ours, theirs, "the events") +
           count_missing(out, theirs, ours, "the publisher's index");
}

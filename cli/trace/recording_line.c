#include "recording_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "output/grown.h"

enum { HASH_DIGITS = 16, MAX_ITEMS = 1 << 28, PART_DIGITS = 4 };

static const struct {
    const char *name;
    recording_type type;
} types[] = {
    {"header", RECORDING_HEADER}, {"request", RECORDING_REQUEST}, {"schedule", RECORDING_SCHEDULE},
    {"update", RECORDING_UPDATE}, {"drafts", RECORDING_DRAFTS},   {"end", RECORDING_END},
    {"finish", RECORDING_FINISH}, {"reset", RECORDING_RESET},     {"set", RECORDING_SET},
    {"lost", RECORDING_LOST},     {"close", RECORDING_CLOSE}};

static const char *const reasons[] = {"",      "stop",       "length", "abort",
                                      "error", "repetition", "ignored"};

static bool wrong(recording_line *line, const char *field, const char *what)
{
    if (line->problem[0] == 0)
        (void)snprintf(line->problem, sizeof line->problem, "field \"%.40s\": %s", field, what);
    return false;
}

static bool push(recording_line *line, recording_list *list, uint64_t item)
{
    if (!grow(&list->items, list->count, &list->room, MAX_ITEMS, sizeof item))
        return wrong(line, "reqs", "no memory");
    list->items[list->count++] = item;
    return true;
}

/* ---- values ------------------------------------------------------------------- */

static bool take_number(recording_line *line, scanner *scan, const char *name, uint64_t *number)
{
    scan_value value;
    if (scan_peek(scan) != JSON_NUMBER || !scan_number(scan, &value))
        return (void)scan_skip(scan), wrong(line, name, "is not a number");
    if (!value.is_integer || value.is_negative)
        return wrong(line, name, "is not a whole number, 0 or more");
    *number = value.magnitude;
    return true;
}

static bool take_real(recording_line *line, scanner *scan, const char *name, double *real)
{
    scan_value value;
    if (scan_peek(scan) != JSON_NUMBER || !scan_number(scan, &value))
        return (void)scan_skip(scan), wrong(line, name, "is not a number");
    *real = value.real;
    return true;
}

/* Numbers, or lists of numbers; strings in them are skipped. */
static bool take_list(recording_line *line, scanner *scan, const char *name, recording_list *list)
{
    int depth = 1;
    int more = 0;
    if (scan_peek(scan) != JSON_ARRAY)
        return (void)scan_skip(scan), wrong(line, name, "is not a list");
    scan_open(scan, '[');
    list->is_given = true;
    while (depth > 0 && (more = scan_element(scan)) >= 0) {
        uint64_t number = 0;
        scan_kind kind = more == 1 ? scan_peek(scan) : JSON_NOTHING;
        if (more == 0)
            depth--;
        else if (kind == JSON_STRING)
            (void)scan_skip(scan);
        else if (kind == JSON_ARRAY)
            depth += scan_open(scan, '[');
        else if (!take_number(line, scan, name, &number) || !push(line, list, number))
            return false;
    }
    return more == 0 || wrong(line, name, "is not a list");
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A string of hex digits, 16 for each hash; recording numbers have 32. It has no escapes: the
 * scanner's own window is read. */
static bool take_hashes(recording_line *line, scanner *scan, const char *name, recording_list *list)
{
    if (scan_peek(scan) != JSON_STRING)
        return (void)scan_skip(scan), wrong(line, name, "is not a string");
    const char *at = scan->at + 1;
    const char *quote = memchr(at, '"', (size_t)(scan->end - at));
    if (quote == NULL || (quote - at) % HASH_DIGITS != 0)
        return wrong(line, name, "is not 16 hex digits for each hash");
    for (; at < quote; at += HASH_DIGITS) {
        uint64_t hash = 0;
        for (int i = 0; i < HASH_DIGITS; i++) {
            int digit = digit_of(at[i]);
            if (digit < 0)
                return wrong(line, name, "is not 16 hex digits for each hash");
            hash = hash << 4 | (uint64_t)digit;
        }
        if (!push(line, list, hash))
            return false;
    }
    return scan_skip(scan);
}

/* The first of them. */
static bool take_hash(recording_line *line, scanner *scan, const char *name, uint64_t *hash)
{
    uint32_t before = line->hashes.count;
    bool ok = take_hashes(line, scan, name, &line->hashes);
    if (ok && line->hashes.count > before)
        *hash = line->hashes.items[before];
    line->hashes.count = before;
    return ok;
}

static bool take_word(recording_line *line, scanner *scan, const char *name)
{
    scan_text word;
    if (scan_peek(scan) != JSON_STRING || !scan_string(scan, &word))
        return (void)scan_skip(scan), wrong(line, name, "is not a string");
    if (strcmp(name, "type") == 0) {
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (scan_is(&word, types[i].name))
                line->type = types[i].type;
    } else if (strcmp(name, "reason") == 0) {
        for (int i = 1; i < (int)(sizeof reasons / sizeof *reasons); i++)
            if (scan_is(&word, reasons[i]))
                line->reason = (recording_reason)i;
        if (line->reason == RECORDING_NO_REASON)
            return wrong(line, name, "is not a known reason");
    } else if (strcmp(name, "format") == 0) {
        line->has_format = scan_is(&word, RECORDING_FORMAT);
    } else if (strcmp(name, "what") == 0) {
        line->is_encoder = scan_is(&word, "encoder");
    } else {
        (void)snprintf(line->inexact, sizeof line->inexact, "%s", word.head);
    }
    return true;
}

/* ---- lines ---------------------------------------------------------------------- */

static bool take_config(recording_line *line, scanner *scan)
{
    if (scan_peek(scan) != JSON_OBJECT)
        return (void)scan_skip(scan), wrong(line, "config", "is not an object");
    line->config = scan->at;
    if (!scan_skip(scan))
        return false;
    line->config_bytes = (size_t)(scan->at - line->config);
    return true;
}

typedef enum field_kind { NUMBER, REAL, SWITCH, LIST, HASHES, HASH, WORD } field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset;
} field;

static const field fields[] = {
#define X(field, text) {text, NUMBER, offsetof(recording_line, field)},
    RECORDING_NUMBERS(X)
#undef X
#define X(field, text) {text, REAL, offsetof(recording_line, field)},
        RECORDING_REALS(X)
#undef X
#define X(field, text) {text, SWITCH, offsetof(recording_line, field)},
            RECORDING_SWITCHES(X)
#undef X
#define X(field, text) {text, LIST, offsetof(recording_line, field)},
                RECORDING_LISTS(X)
#undef X
                    {"hashes", HASHES, offsetof(recording_line, hashes)},
    {"adapter", HASH, offsetof(recording_line, adapter)},
    {"session", HASH, offsetof(recording_line, session)},
    {"recording", HASH, offsetof(recording_line, recording)},
    {"type", WORD, 0},
    {"reason", WORD, 0},
    {"format", WORD, 0},
    {"what", WORD, 0},
    {"inexact", WORD, 0}};

/* "running" is a number in one type of line, and a switch in another. */
static const field *find_field(const scan_text *name, bool is_switch)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if ((fields[i].kind == SWITCH) == is_switch && scan_is(name, fields[i].name))
            return &fields[i];
    return NULL;
}

static bool take_field(recording_line *line, scanner *scan, const scan_text *name)
{
    const field *f = find_field(name, scan_peek(scan) == JSON_BOOL);
    void *at = (char *)line + (f != NULL ? f->offset : 0);
    if (scan_is(name, "config"))
        return take_config(line, scan);
    if (f == NULL)
        return scan_skip(scan);
    switch (f->kind) {
    case NUMBER:
        return take_number(line, scan, f->name, at);
    case REAL:
        return take_real(line, scan, f->name, at);
    case SWITCH:
        return scan_bool(scan, at);
    case LIST:
        return take_list(line, scan, f->name, at);
    case HASHES:
        return take_hashes(line, scan, f->name, at);
    case HASH:
        return take_hash(line, scan, f->name, at);
    case WORD:
        return take_word(line, scan, f->name);
    }
    return false;
}

static void clear(recording_line *line)
{
    recording_line empty = {0};
#define X(field, name)                                                                             \
    empty.field.items = line->field.items;                                                         \
    empty.field.room = line->field.room;
    RECORDING_LISTS(X)
#undef X
    empty.hashes.items = line->hashes.items;
    empty.hashes.room = line->hashes.room;
    *line = empty;
}

bool recording_read(recording_line *line, const char *text, size_t length)
{
    scanner scan;
    scan_text name;
    int more;
    clear(line);
    scan_of_text(&scan, text, length);
    if (scan_peek(&scan) != JSON_OBJECT)
        return wrong(line, "type", "the line is not an object");
    scan_open(&scan, '{');
    while ((more = scan_field(&scan, &name)) == 1) {
        line->has_hit |= scan_is(&name, "hit");
        line->has_tokens |= scan_is(&name, "last");
        if (!take_field(line, &scan, &name))
            break;
    }
    if (line->problem[0] == 0 && (more != 0 || !scan_at_end(&scan)))
        (void)snprintf(line->problem, sizeof line->problem, "%s",
                       scan.error != NULL ? scan.error : "is not a JSON object");
    return line->problem[0] == 0;
}

void recording_line_free(recording_line *line)
{
#define X(field, name) free(line->field.items);
    RECORDING_LISTS(X)
#undef X
    free(line->hashes.items);
    *line = (recording_line){0};
}

/* ---- parts ------------------------------------------------------------------------ */

bool recording_next_path(const char *path, int step, char *next, size_t room)
{
    static const char suffix[] = ".jsonl.zst";
    size_t length = strlen(path);
    size_t tail = sizeof suffix - 1;
    size_t digits = 0;
    if (length <= tail || strcmp(path + length - tail, suffix) != 0)
        return false;
    const char *end = path + length - tail;
    while (end - digits > path && end[-1 - (ptrdiff_t)digits] >= '0' &&
           end[-1 - (ptrdiff_t)digits] <= '9')
        digits++;
    if (digits < PART_DIGITS || digits > 9 || end - digits == path ||
        end[-1 - (ptrdiff_t)digits] != '.')
        return false;
    long part = strtol(end - digits, NULL, 10) + step;
    if (part < 0)
        return false;
    int made = snprintf(next, room, "%.*s%04ld%s", (int)(end - digits - path), path, part, suffix);
    return made > 0 && (size_t)made < room;
}

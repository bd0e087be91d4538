#include "parity/recording.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FORMAT = 1 };
static const uint64_t FNV_OFFSET = UINT64_C(0xcbf29ce484222325);
static const uint64_t FNV_PRIME = UINT64_C(0x100000001b3);

/* ---- text ------------------------------------------------------------------ */

void text_clear(text *t)
{
    t->len = 0;
    if (t->data != NULL)
        t->data[0] = '\0';
}

void text_add(text *t, const char *format, ...)
{
    size_t needed = 256;
    for (;;) {
        if (t->data == NULL || needed >= t->capacity - t->len) {
            t->capacity = 2 * t->capacity + needed + 1;
            t->data = realloc(t->data, t->capacity);
            assert_non_null(t->data);
        }
        va_list args;
        va_start(args, format);
        needed = (size_t)vsnprintf(t->data + t->len, t->capacity - t->len, format, args);
        va_end(args);
        if (needed < t->capacity - t->len)
            break;
    }
    t->len += needed;
}

void text_add_ids(text *t, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        text_add(t, i == 0 ? "%" PRIu32 : ",%" PRIu32, ids[i]);
    if (count == 0)
        text_add(t, "-");
}

void text_free(text *t)
{
    free(t->data);
    *t = (text){0};
}

/* ---- differences ----------------------------------------------------------- */

void recording_differs(recording *r, const char *what, const char *expected, const char *got)
{
    print_error("%s:%lu: %s differs\n", r->path, r->line_number, what);
    print_error("    operation  %s\n", r->line);
    print_error("    expected   %s\n", expected);
    print_error("    got        %s\n", got);
    fail();
}

void recording_expect(recording *r, bool holds, const char *what)
{
    if (!holds)
        recording_differs(r, what, "true", "false");
}

/* ---- lines ----------------------------------------------------------------- */

/* One line without its end; false at the end of the file. */
static bool read_line(recording *r)
{
    ssize_t len = getline(&r->line, &r->capacity, r->file);
    if (len < 0)
        return false;
    if (len > 0 && r->line[len - 1] == '\n')
        r->line[len - 1] = '\0';
    r->line_number++;
    return true;
}

void recording_open(recording *r, const char *path, const char *kind)
{
    *r = (recording){.path = path, .file = fopen(path, "r")};
    if (r->file == NULL)
        print_error("%s: no such recording\n", path);
    assert_non_null(r->file);
    assert_true(read_line(r));
    char recorded_kind[16];
    char release[16] = "0.20";
    int version = 0;
    uint64_t seed = 0;
    int fields =
        sscanf(r->line,
               "quire-parity %d %15s seed %" SCNu64 " runs %" SCNu64 " count %" SCNu64 " vllm %15s",
               &version, recorded_kind, &seed, &r->runs, &r->count, release);
    recording_expect(r, fields >= 5 && version == FORMAT, "header is of this format");
    bool is_0_32 = strncmp(release, "0.32", 4) == 0;
    recording_expect(r, is_0_32 || strncmp(release, "0.20", 4) == 0, "release is known");
    r->profile = is_0_32 ? QUIRE_PROFILE_VLLM_0_32 : QUIRE_PROFILE_VLLM_0_20;
    recording_expect(r, strcmp(recorded_kind, kind) == 0, "kind of recording");
    recording_start_case(r);
}

bool recording_next(recording *r)
{
    while (read_line(r)) {
        if (r->line[0] == '#')
            continue;
        if (strncmp(r->line, "seed ", 5) == 0) {
            r->runs_seen++;
            continue;
        }
        free(r->words);
        r->words = strdup(r->line);
        assert_non_null(r->words);
        r->cursor = r->words;
        return true;
    }
    return false;
}

void recording_close(recording *r)
{
    recording_expect(r, r->runs_seen == r->runs, "number of runs is that of the header");
    recording_expect(r, r->compared == r->count, "number of checks is that of the header");
    print_message("%s: %" PRIu64 " seeds, %" PRIu64 " compared\n", r->path, r->runs_seen,
                  r->compared);
    fclose(r->file);
    free(r->line);
    free(r->words);
    text_free(&r->answer);
}

/* ---- words ----------------------------------------------------------------- */

char *recording_word(recording *r)
{
    char *word = strsep(&r->cursor, " ");
    recording_expect(r, word != NULL, "line has one more word");
    return word;
}

uint64_t recording_number(recording *r)
{
    char *end;
    const char *word = recording_word(r);
    uint64_t value = strtoull(word, &end, 10);
    recording_expect(r, end != word && *end == '\0', "word is a number");
    return value;
}

uint32_t recording_u32(recording *r)
{
    uint64_t value = recording_number(r);
    recording_expect(r, value <= UINT32_MAX, "number fits 32 bits");
    return (uint32_t)value;
}

uint32_t recording_ids(recording *r, uint32_t *ids, uint32_t capacity)
{
    char *list = recording_word(r);
    uint32_t count = 0;
    if (strcmp(list, "-") == 0)
        return 0;
    for (char *id = strsep(&list, ","); id != NULL; id = strsep(&list, ",")) {
        recording_expect(r, count < capacity, "list of ids fits");
        ids[count++] = (uint32_t)strtoul(id, NULL, 10);
    }
    return count;
}

static unsigned nibble(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
}

size_t recording_hex(recording *r, const char *word, unsigned char *out, size_t capacity)
{
    size_t len = strlen(word) / 2;
    recording_expect(r, strlen(word) % 2 == 0 && len <= capacity, "hexadecimal word fits");
    for (size_t i = 0; i < len; i++) {
        unsigned high = nibble(word[2 * i]);
        unsigned low = nibble(word[2 * i + 1]);
        recording_expect(r, high < 16 && low < 16, "word is hexadecimal");
        out[i] = (unsigned char)(high << 4 | low);
    }
    return len;
}

/* ---- comparing ------------------------------------------------------------- */

void recording_start_case(recording *r)
{
    r->fingerprint = FNV_OFFSET;
}

/* The comment that --explain wrote behind the operation, or a hint how to get it. */
static void explain_difference(recording *r)
{
    char *operation = strdup(r->line);
    unsigned long line_number = r->line_number;
    assert_non_null(operation);
    bool explained = read_line(r) && r->line[0] == '#';
    const char *expected = explained ? r->line + 2 : "(record the same seed with --explain)";
    print_error("%s:%lu: answer differs, here or (one time in 4,096) in the operations before\n",
                r->path, line_number);
    print_error("    operation  %s\n    expected   %s\n    got        %s\n", operation, expected,
                r->answer.data);
    free(operation);
    fail();
}

/* Whether the list "common,zero" has a name. */
static bool is_listed(const char *list, const char *name, size_t len)
{
    while (*list != '\0') {
        size_t item_len = strcspn(list, ",");
        if (item_len == len && memcmp(list, name, len) == 0)
            return true;
        list += item_len;
        list += *list == ',';
    }
    return false;
}

void recording_ignore_fields(recording *r)
{
    const char *list = getenv("QUIRE_PARITY_IGNORE");
    if (list == NULL || list[0] == '\0' || r->answer.data == NULL)
        return;
    char *out = r->answer.data;
    const char *at = r->answer.data;
    while (*at != '\0') {
        size_t len = strcspn(at, "|");
        size_t name_len = strcspn(at, "=|");
        bool is_ignored = at[name_len] == '=' && is_listed(list, at, name_len);
        size_t kept = is_ignored ? name_len + 1 : len;
        memmove(out, at, kept);
        out += kept;
        at += len;
        if (*at == '|')
            *out++ = *at++;
    }
    *out = '\0';
    r->answer.len = (size_t)(out - r->answer.data);
}

void recording_check_answer(recording *r)
{
    recording_ignore_fields(r);
    for (size_t i = 0; i < r->answer.len; i++)
        r->fingerprint = (r->fingerprint ^ (unsigned char)r->answer.data[i]) * FNV_PRIME;
    uint64_t expected = strtoull(recording_word(r), NULL, 16);
    if (r->fingerprint >> 52 != expected)
        explain_difference(r);
    recording_expect(r, r->cursor == NULL, "line ends after the fingerprint");
    text_clear(&r->answer);
    r->compared++;
}

void recording_check_case(recording *r)
{
    char got[17];
    snprintf(got, sizeof got, "%016" PRIx64, r->fingerprint);
    const char *expected = recording_word(r);
    if (strcmp(expected, got) != 0)
        recording_differs(r, "fingerprint of the whole case", expected, got);
}

void recording_check_bytes(recording *r, const char *what, const char *word,
                           const unsigned char *got, size_t len)
{
    text shown = {0};
    size_t digits = strlen(word);
    for (size_t i = 0; i < len; i++)
        text_add(&shown, "%02x", got[i]);
    bool same = digits > 0 && digits <= shown.len && memcmp(word, shown.data, digits) == 0;
    if (!same)
        recording_differs(r, what, word, shown.len == 0 ? "(nothing)" : shown.data);
    text_free(&shown);
}

const char *recording_path(int argc, char **argv, const char *committed)
{
    return argc > 1 ? argv[1] : committed;
}

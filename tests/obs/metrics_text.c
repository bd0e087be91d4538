#include "metrics_text.h"

#include "base/unit.h"

#include <ctype.h>

enum { MAX_SAMPLES = 4096, MAX_LABELS = 8, MAX_FAMILIES = 256 };

/* Where the reading stands. */
typedef struct reading {
    metrics_text *out;
    bool is_open;
    char family[96]; /* of the samples that may come now */
    char type[16];
    bool has_help;
    char seen[MAX_FAMILIES][96];
    double last_le;
    double last_count;
    double infinite;
} reading;

static void copy_word(char *to, size_t size, const char *from)
{
    assert_true(strlen(from) < size);
    memcpy(to, from, strlen(from) + 1);
}

static bool is_name_byte(char c, bool is_first)
{
    return c == '_' || c == ':' || isalpha((unsigned char)c) ||
           (!is_first && isdigit((unsigned char)c));
}

/* ---- labels ---------------------------------------------------------------- */

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The byte behind one label: name="value". */
static char *label_end(char *at)
{
    while (*at != '"')
        assert_int_not_equal(*at++, 0);
    for (at++; *at != '"'; at++) {
        assert_int_not_equal(*at, 0);
        if (*at == '\\') {
            at++;
            assert_true(*at == '\\' || *at == '"' || *at == 'n');
        }
    }
    return at + 1;
}

void text_sort_labels(char *labels)
{
    char copy[512];
    char *words[MAX_LABELS];
    size_t n = 0;
    copy_word(copy, sizeof copy, labels);
    for (char *at = copy; *at != 0;) {
        assert_true(n < MAX_LABELS);
        words[n++] = at;
        at = label_end(at);
        assert_true(*at == ',' || *at == 0);
        if (*at == ',')
            *at++ = 0;
    }
    qsort(words, n, sizeof *words, compare_words);
    for (size_t i = 0; i < n; i++) { /* as long together as before */
        size_t len = strlen(words[i]);
        memcpy(labels, words[i], len);
        labels[len] = i + 1 < n ? ',' : 0;
        labels += len + 1;
    }
}

/* ---- samples --------------------------------------------------------------- */

static double label_le(const char *labels)
{
    const char *le = strstr(labels, "le=\"");
    assert_non_null(le);
    return strncmp(le + 4, "+Inf", 4) == 0 ? 1e300 : strtod(le + 4, NULL);
}

static void check_histogram(reading *r, const text_sample *s, const char *suffix)
{
    if (strcmp(suffix, "_bucket") == 0) {
        double le = label_le(s->labels);
        assert_true(le > r->last_le && s->value >= r->last_count);
        r->last_le = le;
        r->last_count = s->value;
        if (le == 1e300)
            r->infinite = s->value;
        return;
    }
    assert_true(r->last_le == 1e300); /* all buckets come first */
    if (strcmp(suffix, "_count") == 0)
        assert_true(s->value == r->infinite);
    else
        assert_string_equal(suffix, "_sum");
}

static void check_sample(reading *r, const text_sample *s)
{
    size_t len = strlen(r->family);
    assert_true(r->has_help && r->type[0] != 0);
    assert_int_equal(strncmp(s->name, r->family, len), 0);
    const char *suffix = s->name + len;
    assert_true(s->value >= 0);
    if (strcmp(r->type, "histogram") == 0) {
        check_histogram(r, s, suffix);
        return;
    }
    bool is_counter = strcmp(r->type, "counter") == 0;
    assert_string_equal(suffix, is_counter && r->is_open ? "_total" : "");
    if (is_counter) {
        assert_true(strlen(s->name) > 6 && strcmp(s->name + strlen(s->name) - 6, "_total") == 0);
        assert_true(s->value == (double)(uint64_t)s->value);
    }
}

static void read_sample(reading *r, char *line)
{
    metrics_text *out = r->out;
    assert_true(out->num_samples < MAX_SAMPLES);
    text_sample *s = &out->samples[out->num_samples++];
    char *open = strchr(line, '{');
    assert_non_null(open);
    char *end = open + 1;
    while (*end != '}') {
        end = label_end(end);
        assert_true(*end == ',' || *end == '}');
        end += *end == ',';
    }
    *open = 0;
    *end = 0;
    assert_true(end[1] == ' ');
    for (const char *c = line; *c != 0; c++)
        assert_true(is_name_byte(*c, c == line));
    copy_word(s->name, sizeof s->name, line);
    copy_word(s->labels, sizeof s->labels, open + 1);
    text_sort_labels(s->labels);
    char *rest;
    s->value = strtod(end + 2, &rest);
    assert_true(rest > end + 2 && *rest == 0);
    check_sample(r, s);
}

/* ---- what stands above them ------------------------------------------------ */

static void begin_family(reading *r, const char *name)
{
    if (strcmp(r->family, name) == 0)
        return;
    for (uint32_t i = 0; i < r->out->num_families; i++)
        assert_string_not_equal(r->seen[i], name);
    assert_true(r->out->num_families < MAX_FAMILIES);
    copy_word(r->seen[r->out->num_families++], sizeof r->seen[0], name);
    copy_word(r->family, sizeof r->family, name);
    r->type[0] = 0;
    r->has_help = false;
    r->last_le = -1;
    r->last_count = 0;
    r->infinite = -1;
}

static void read_comment(reading *r, char *line)
{
    char *name = line + 7;
    char *text = strchr(name, ' ');
    assert_non_null(text);
    *text++ = 0;
    begin_family(r, name);
    if (strncmp(line, "# HELP ", 7) == 0) {
        assert_false(r->has_help);
        assert_null(strchr(text, '"'));
        assert_null(strchr(text, '\\'));
        r->has_help = true;
    } else if (strncmp(line, "# TYPE ", 7) == 0) {
        assert_true(r->type[0] == 0);
        copy_word(r->type, sizeof r->type, text);
    } else {
        assert_int_equal(strncmp(line, "# UNIT ", 7), 0);
        assert_true(r->is_open);
        size_t len = strlen(name);
        assert_true(len > strlen(text) + 1);
        assert_true(name[len - strlen(text) - 1] == '_');
        assert_string_equal(name + len - strlen(text), text);
    }
}

void text_parse(metrics_text *parsed, const char *text, bool is_openmetrics)
{
    static reading r;
    size_t len = strlen(text);
    char *copy = malloc(len + 1);
    memcpy(copy, text, len + 1);
    *parsed = (metrics_text){.samples = malloc(MAX_SAMPLES * sizeof(text_sample))};
    r = (reading){.out = parsed, .is_open = is_openmetrics};
    bool has_end = false;
    for (char *line = copy; *line != 0;) {
        char *next = strchr(line, '\n');
        assert_non_null(next); /* the last line ends too */
        *next++ = 0;
        assert_false(has_end);
        if (strcmp(line, "# EOF") == 0)
            has_end = true;
        else if (*line == '#')
            read_comment(&r, line);
        else
            read_sample(&r, line);
        line = next;
    }
    assert_true(has_end == is_openmetrics);
    free(copy);
}

void text_free(metrics_text *parsed)
{
    free(parsed->samples);
}

const text_sample *text_find(const metrics_text *parsed, const char *name, const char *labels)
{
    for (uint32_t i = 0; i < parsed->num_samples; i++) {
        const text_sample *s = &parsed->samples[i];
        if (strcmp(s->name, name) == 0 && strcmp(s->labels, labels) == 0)
            return s;
    }
    return NULL;
}

double text_value(const metrics_text *parsed, const char *name, const char *part)
{
    const text_sample *found = NULL;
    for (uint32_t i = 0; i < parsed->num_samples; i++) {
        const text_sample *s = &parsed->samples[i];
        if (strcmp(s->name, name) != 0 || strstr(s->labels, part) == NULL)
            continue;
        assert_null(found);
        found = s;
    }
    if (found == NULL)
        fail_msg("no %s{%s}", name, part);
    return found->value;
}

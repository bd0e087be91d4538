/* steps_file.c - reads measured steps: a header, then a row for each. */
#include "steps_file.h"

#include "output/failure.h"
#include "output/grown.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 32, MAX_LINE = 4096, MAX_STEPS = 1000000 };

typedef enum column {
    COLUMN_MODEL,
    COLUMN_KIND,
    COLUMN_TOKENS,
    COLUMN_BATCH,
    COLUMN_CONTEXT,
    COLUMN_MS,
    COLUMN_LAYERS,
    COLUMN_HIDDEN,
    COLUMN_HEADS,
    COLUMN_KV_HEADS,
    COLUMN_HEAD_DIM,
    COLUMN_FFN,
    COLUMN_VOCAB,
    NUM_KNOWN_COLUMNS
} column;

static const char *const column_names[NUM_KNOWN_COLUMNS] = {
    "model",  "kind",  "tokens",   "batch",    "context", "ms",   "layers",
    "hidden", "heads", "kv_heads", "head_dim", "ffn",     "vocab"};

typedef struct steps_reader {
    const char *path;
    const shape *fallback;
    steps_file *out;
    uint32_t line;
    uint32_t room;                /* of steps */
    int place[NUM_KNOWN_COLUMNS]; /* of each known column in a row; -1: not there */
    char text[MAX_LINE];          /* of the row, which cells point into */
    char *cells[MAX_COLUMNS];
    int num_cells;
} steps_reader;

static int step_error(steps_reader *r, column which, const char *why)
{
    return fail_with("%s:%u: %s: %s", r->path, r->line, column_names[which], why);
}

/* ---- cells --------------------------------------------------------------- */

static char *trimmed(char *text)
{
    text += strspn(text, " \t\"");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\"\r\n", text[length - 1]))
        text[--length] = '\0';
    return text;
}

static void split_row(steps_reader *r, char *line)
{
    r->num_cells = 0;
    for (char *rest = line; rest && r->num_cells < MAX_COLUMNS;) {
        char *comma = strchr(rest, ',');
        if (comma)
            *comma = '\0';
        r->cells[r->num_cells++] = trimmed(rest);
        rest = comma ? comma + 1 : NULL;
    }
}

/* NULL where the row has no such cell, or an empty one. */
static const char *cell(const steps_reader *r, column which)
{
    int place = r->place[which];
    return place >= 0 && place < r->num_cells && *r->cells[place] ? r->cells[place] : NULL;
}

static int read_count(steps_reader *r, column which, uint32_t *out)
{
    const char *text = cell(r, which);
    char *end;
    if (!text)
        return step_error(r, which, "is missing");
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value == 0 || value > 1u << 30)
        return step_error(r, which, "is not a whole number (expected 1..1073741824)");
    *out = (uint32_t)value;
    return 0;
}

static int read_ms(steps_reader *r, double *out)
{
    const char *text = cell(r, COLUMN_MS);
    char *end;
    *out = 0;
    if (!text)
        return 0;
    *out = strtod(text, &end);
    if (*end || !isfinite(*out) || *out <= 0)
        return step_error(r, COLUMN_MS, "is not a time (expected more than 0)");
    return 0;
}

/* ---- models -------------------------------------------------------------- */

static int read_own_shape(steps_reader *r, shape *s)
{
    *s = (shape){.model_type = "llama"};
    snprintf(s->name, sizeof s->name, "%s", cell(r, COLUMN_MODEL) ? cell(r, COLUMN_MODEL) : "row");
    if (read_count(r, COLUMN_LAYERS, &s->num_layers) || read_count(r, COLUMN_HIDDEN, &s->hidden) ||
        read_count(r, COLUMN_HEADS, &s->num_heads) ||
        read_count(r, COLUMN_KV_HEADS, &s->num_kv_heads) ||
        read_count(r, COLUMN_HEAD_DIM, &s->head_dim) || read_count(r, COLUMN_FFN, &s->ffn) ||
        read_count(r, COLUMN_VOCAB, &s->vocab))
        return -1;
    s->max_model_len = 1u << 30;
    return 0;
}

static int find_row_shape(steps_reader *r, shape *s)
{
    const char *name = cell(r, COLUMN_MODEL);
    if (cell(r, COLUMN_LAYERS)) {
        if (read_own_shape(r, s) != 0)
            return -1;
        return shape_check(s) == 0 ? 0 : step_error(r, COLUMN_LAYERS, failure());
    }
    if (!name) {
        if (!r->fallback)
            return step_error(r, COLUMN_MODEL, "is missing");
        *s = *r->fallback;
        return 0;
    }
    if (shape_find(name, s) != 0)
        return step_error(r, COLUMN_MODEL, failure());
    return s->needs_weights ? step_error(r, COLUMN_MODEL, "names a model with unknown weights") : 0;
}

static bool is_same_shape(const shape *a, const shape *b)
{
    return strcmp(a->name, b->name) == 0 && a->num_layers == b->num_layers &&
           a->hidden == b->hidden && a->num_heads == b->num_heads &&
           a->num_kv_heads == b->num_kv_heads && a->head_dim == b->head_dim && a->ffn == b->ffn &&
           a->vocab == b->vocab;
}

/* The row's model among those of the file. */
static int note_shape(steps_reader *r, uint32_t *place)
{
    shape found;
    steps_file *f = r->out;
    if (find_row_shape(r, &found) != 0)
        return -1;
    for (uint32_t i = 0; i < f->num_shapes; i++) {
        if (is_same_shape(&f->shapes[i], &found)) {
            *place = i;
            return 0;
        }
    }
    shape *grown = realloc(f->shapes, (f->num_shapes + 1) * sizeof *grown);
    if (!grown)
        return step_error(r, COLUMN_MODEL, "out of memory");
    f->shapes = grown;
    f->shapes[f->num_shapes] = found;
    *place = f->num_shapes++;
    return 0;
}

/* ---- rows ---------------------------------------------------------------- */

static int read_step(steps_reader *r, measured_step *step)
{
    const char *kind = cell(r, COLUMN_KIND);
    *step = (measured_step){.line = r->line};
    if (!kind || (strcmp(kind, "prefill") != 0 && strcmp(kind, "decode") != 0))
        return step_error(r, COLUMN_KIND, "is neither prefill nor decode");
    step->is_decode = kind[0] == 'd';
    if (read_count(r, COLUMN_TOKENS, &step->num_tokens) ||
        read_count(r, COLUMN_BATCH, &step->batch) ||
        read_count(r, COLUMN_CONTEXT, &step->context) || read_ms(r, &step->ms))
        return -1;
    if (step->num_tokens % step->batch != 0)
        return step_error(r, COLUMN_TOKENS, "are not the same for each request of the batch");
    if (step->num_tokens / step->batch > step->context)
        return step_error(r, COLUMN_CONTEXT, "is less than the new tokens of a request");
    return note_shape(r, &step->shape);
}

static int read_header(steps_reader *r, char *line)
{
    if (strncmp(line, "\xef\xbb\xbf", 3) == 0)
        line += 3;
    split_row(r, line);
    for (int i = 0; i < NUM_KNOWN_COLUMNS; i++) {
        r->place[i] = -1;
        for (int k = 0; k < r->num_cells; k++)
            if (strcmp(r->cells[k], column_names[i]) == 0)
                r->place[i] = k;
    }
    for (int i = COLUMN_KIND; i <= COLUMN_CONTEXT; i++)
        if (r->place[i] < 0)
            return step_error(r, (column)i, "is missing in the header");
    return 0;
}

static int append_step(steps_reader *r, const measured_step *step)
{
    steps_file *f = r->out;
    if (f->num_steps == MAX_STEPS)
        return step_error(r, COLUMN_MS, "the file has more than a million steps");
    if (!grow(&f->steps, f->num_steps, &r->room, MAX_STEPS, sizeof *step))
        return step_error(r, COLUMN_MS, "out of memory");
    f->steps[f->num_steps++] = *step;
    return 0;
}

static int read_rows(steps_reader *r, FILE *file)
{
    char *line = r->text;
    measured_step step;
    int status = 0;
    while (status == 0 && fgets(line, sizeof r->text, file)) {
        r->line++;
        if (strlen(line) == sizeof r->text - 1)
            return fail_with("%s:%u: the line is too long", r->path, r->line);
        if (line[strspn(line, " \t\r\n")] == '\0' || line[0] == '#')
            continue;
        if (r->num_cells == 0) {
            status = read_header(r, line);
            continue;
        }
        split_row(r, line);
        status = read_step(r, &step);
        if (status == 0)
            status = append_step(r, &step);
    }
    if (status == 0 && r->out->num_steps == 0)
        return fail_with("%s: contains no steps", r->path);
    return status;
}

int steps_read(const char *path, const shape *fallback, steps_file *out)
{
    steps_reader reader = {.path = path, .fallback = fallback, .out = out};
    *out = (steps_file){0};
    FILE *file = fopen(path, "r");
    if (!file)
        return fail_with("%s: %s", path, strerror(errno));
    int status = read_rows(&reader, file);
    fclose(file);
    if (status != 0)
        steps_free(out);
    return status;
}

void steps_free(steps_file *file)
{
    free(file->shapes);
    free(file->steps);
    *file = (steps_file){0};
}

step_work steps_work(const time_model *model, const measured_step *step)
{
    uint32_t new_tokens = step->num_tokens / step->batch;
    step_work work = {0};
    step_work_add(model, &work, new_tokens, step->context - new_tokens);
    for (size_t i = 0; i < sizeof work / sizeof(uint64_t); i++) /* it is nothing but sums */
        ((uint64_t *)&work)[i] *= step->batch;
    return work;
}

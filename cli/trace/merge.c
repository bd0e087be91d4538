#include "merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files.h"
#include "output/failure.h"
#include "output/grown.h"
#include "reader.h"

/* A trace of the command line. */
typedef struct part {
    trace_files files;
    trace_clock clock;
    const trace_kind *kind;
    double speed;    /* its times are divided by it */
    double base_s;   /* the first request of all files, on the clock that they were recorded on */
    uint32_t first;  /* of its sources, which are in the order of their first requests */
    uint32_t num;    /* how many */
    uint32_t opened; /* how many of them were opened */
    uint32_t open;   /* how many are open now */
} part;

/* A file, or all files of a folder where one reader reads them all. */
typedef struct source {
    const char *path;
    uint32_t part;
    uint32_t order; /* by name, within all files: decides among equal times */
    double
        first_s; /* its first request, on the clock of the recording; HUGE_VAL: it has no times */
    uint64_t bytes;
    trace_reader *reader; /* NULL: not yet, or not any more */
    trace_request ahead;
    bool has_ahead;
    bool is_done;
} source;

typedef struct state {
    part *parts;
    uint32_t num_parts;
    source *sources;
    uint32_t num_sources;
    uint32_t source_room;
    uint32_t *active; /* sources that are open, in any order */
    uint32_t num_active;
} state;

/* ---- opening --------------------------------------------------------------- */

/* 0: it is no file. */
static uint64_t bytes_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
}

static bool add_source(state *st, uint32_t p, const char *path, double first_s)
{
    source s = {.path = path,
                .part = p,
                .order = st->num_sources,
                .first_s = first_s,
                .bytes = bytes_of(path)};
    if (!grow(&st->sources, st->num_sources, &st->source_room, UINT32_MAX, sizeof s))
        return fail_with("%s: not enough memory to read it", path) == 0;
    st->sources[st->num_sources++] = s;
    st->parts[p].num++;
    return true;
}

/* When its first request came; HUGE_VAL: it has no times, or nothing that stands for itself. False:
 * it has no requests at all. What is wrong is said when the file is read. */
static bool find_first(trace_reader *reader, double *first_s)
{
    trace_request request;
    const trace_clock *clock = reader->clock;
    int more = trace_next(reader, &request);
    bool has_time = more > 0 && clock->has_first && clock->num_starts == 0;
    *first_s = has_time ? (double)clock->whole_s + clock->first_s : HUGE_VAL;
    return more != 0 || reader->num_bad > 0;
}

/* The kind of the file, and its first request. *is_all: one reader reads all files. */
static bool look_at(state *st, uint32_t p, uint32_t file, const trace_options *options,
                    bool *is_all)
{
    part *it = &st->parts[p];
    const char *path = it->files.paths[file];
    trace_options first = *options;
    first.skip_bad = true;
    first.on_bad = NULL; /* it is read once more */
    input *in = input_open(path);
    trace_reader *reader = in != NULL ? trace_open_input(in, &first) : NULL;
    if (reader == NULL)
        return false;
    double first_s = HUGE_VAL;
    bool ok = true;
    if (it->kind != NULL && it->kind != reader->kind)
        ok = fail_with("%s: is a trace of format %s, but %s is %s (all files of a folder must have "
                       "the same format)",
                       path, reader->kind->name, it->files.paths[0], it->kind->name) == 0;
    it->kind = reader->kind;
    *is_all = reader->kind->reads_all;
    bool has_requests = ok && (*is_all ? it->num == 0 : find_first(reader, &first_s));
    trace_close(reader);
    return ok && (!has_requests || add_source(st, p, path, first_s));
}

static int compare_first(const void *a_, const void *b_)
{
    const source *a = a_;
    const source *b = b_;
    if (a->first_s != b->first_s)
        return a->first_s < b->first_s ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* An empty file has no requests. */
static void drop_empty_files(trace_files *files)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < files->count; i++) {
        struct stat status;
        if (stat(files->paths[i], &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0)
            free(files->paths[i]);
        else
            files->paths[n++] = files->paths[i];
    }
    files->count = n;
}

static bool find_sources(state *st, uint32_t p, const char *path, const trace_options *options)
{
    part *it = &st->parts[p];
    it->first = st->num_sources;
    if (!trace_is_folder(path))
        return add_source(st, p, path, 0);
    if (!trace_files_find(&it->files, path))
        return false;
    drop_empty_files(&it->files);
    bool is_all = false;
    for (uint32_t i = 0; i < it->files.count; i++)
        if (!look_at(st, p, i, options, &is_all))
            return false;
    for (uint32_t i = 1; is_all && i < it->files.count; i++)
        st->sources[it->first].bytes += bytes_of(it->files.paths[i]);
    if (it->num == 0)
        return fail_with("%s: the folder has no requests", path) == 0;
    qsort(st->sources + it->first, it->num, sizeof *st->sources, compare_first);
    it->base_s = st->sources[it->first].first_s;
    return true;
}

static bool open_source(trace_reader *merged, part *it)
{
    state *st = merged->state;
    source *s = &st->sources[it->first + it->opened];
    trace_options options = merged->options;
    options.max_requests = 0; /* of all files together */
    trace_membership member = {&merged->own_shared, &it->clock, s->part};
    input *in = input_open(s->path);
    s->reader = in != NULL ? trace_open_member(in, &options, &member) : NULL;
    it->opened++;
    if (s->reader == NULL)
        return false;
    st->active[st->num_active++] = (uint32_t)(s - st->sources);
    it->open++;
    it->kind = s->reader->kind;
    if (s->reader->kind->reads_all && it->files.count > 1) {
        s->reader->files = it->files.paths;
        s->reader->num_files = it->files.count;
        s->reader->num_opened = 1;
    }
    return true;
}

static bool is_named_twice(const char *const *paths, uint32_t num_paths)
{
    uint32_t num = 0;
    for (uint32_t i = 0; i < num_paths; i++)
        num += strcmp(paths[i], "-") == 0;
    return num > 1;
}

static bool begin(trace_reader *reader, const char *const *paths, uint32_t num_paths)
{
    state *st = calloc(1, sizeof *st);
    reader->state = st;
    reader->kind = &trace_merged;
    if (st != NULL)
        st->parts = calloc(num_paths, sizeof *st->parts);
    if (st == NULL || st->parts == NULL || !trace_shared_begin(&reader->own_shared))
        return fail_with("%s: not enough memory to read it", paths[0]) == 0;
    st->num_parts = num_paths;
    if (is_named_twice(paths, num_paths))
        return fail_with("standard input cannot be given twice as a trace") == 0;
    const double *speeds = reader->options.speeds;
    for (uint32_t i = 0; i < num_paths; i++) {
        st->parts[i].speed = speeds != NULL ? speeds[i] : 1;
        if (!find_sources(st, i, paths[i], &reader->options))
            return false;
    }
    st->active = calloc(st->num_sources, sizeof *st->active);
    if (st->active == NULL)
        return fail_with("%s: not enough memory to read it", paths[0]) == 0;
    for (uint32_t i = 0; i < num_paths; i++)
        if (!open_source(reader, &st->parts[i]))
            return false;
    return true;
}

trace_reader *trace_merge(const char *const *paths, uint32_t num_paths,
                          const trace_options *options)
{
    trace_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        fail_with("%s: not enough memory to read it", paths[0]);
        return NULL;
    }
    reader->shared = &reader->own_shared;
    reader->clock = &reader->own_clock;
    if (options != NULL)
        reader->options = *options;
    if (begin(reader, paths, num_paths))
        return reader;
    trace_close(reader);
    return NULL;
}

static void end(trace_reader *reader)
{
    state *st = reader->state;
    for (uint32_t i = 0; i < st->num_sources; i++)
        trace_close(st->sources[i].reader);
    for (uint32_t i = 0; i < st->num_parts; i++)
        trace_files_free(&st->parts[i].files);
    free(st->active);
    free(st->sources);
    free(st->parts);
}

/* ---- which request is next -------------------------------------------------- */

static bool is_later_turn(const trace_request *r)
{
    return r->is_closed_loop && (r->turn > 0 || r->num_after > 0);
}

static bool waits_for(const trace_request *r, const trace_request *other)
{
    bool is_turn_before = r->session != 0 && r->session == other->session && r->turn > other->turn;
    for (uint32_t i = 0; i < r->num_after && !is_turn_before; i++)
        is_turn_before = r->after[i] == other->number;
    return is_turn_before;
}

/* Whether another file of the trace has what it waits for, not handed out yet. */
static bool is_blocked(const state *st, const source *s)
{
    for (uint32_t i = 0; i < st->num_active; i++) {
        const source *other = &st->sources[st->active[i]];
        if (other != s && other->part == s->part && waits_for(&s->ahead, &other->ahead))
            return true;
    }
    return false;
}

static bool is_before(const source *a, const source *b)
{
    if (is_later_turn(&a->ahead) != is_later_turn(&b->ahead))
        return is_later_turn(&a->ahead);
    return a->ahead.time_s < b->ahead.time_s ||
           (a->ahead.time_s == b->ahead.time_s && a->order < b->order);
}

static source *find_next(const state *st)
{
    source *best = NULL;
    for (uint32_t i = 0; i < st->num_active; i++) {
        source *s = &st->sources[st->active[i]];
        if ((best == NULL || is_before(s, best)) && !is_blocked(st, s))
            best = s;
    }
    return best;
}

/* When the trace's next file begins, on the merged clock; HUGE_VAL: it has none, or one that waits
 * for the file before. */
static double next_begin_s(const state *st, const part *it)
{
    if (it->opened == it->num)
        return HUGE_VAL;
    double first_s = st->sources[it->first + it->opened].first_s;
    if (it->open == 0 && first_s == HUGE_VAL)
        return 0;
    return (first_s - it->base_s) / it->speed;
}

/* Opens files that begin no later than that. True: there was one. */
static bool open_due(trace_reader *reader, double time_s, bool *has_failed)
{
    state *st = reader->state;
    part *due = NULL;
    double begin_s = HUGE_VAL;
    for (uint32_t i = 0; i < st->num_parts; i++) {
        double s = next_begin_s(st, &st->parts[i]);
        if (s < begin_s && s <= time_s) {
            due = &st->parts[i];
            begin_s = s;
        }
    }
    *has_failed = due != NULL && !open_source(reader, due);
    if (*has_failed)
        snprintf(reader->message, sizeof reader->message, "%s", failure());
    return due != NULL;
}

/* One request of each open file is read ahead; a file at its end is closed. */
static bool read_ahead(trace_reader *reader, source *s)
{
    state *st = reader->state;
    uint64_t num_bad = s->reader->num_bad;
    int more = trace_next(s->reader, &s->ahead);
    reader->num_bad += s->reader->num_bad - num_bad;
    reader->has_contents = reader->has_contents || s->reader->has_contents;
    s->has_ahead = more > 0;
    if (more > 0 && s->ahead.file == NULL)
        s->ahead.file = s->path;
    s->ahead.time_s /= st->parts[s->part].speed;
    s->ahead.think_s /= st->parts[s->part].speed;
    if (more < 0)
        snprintf(reader->message, sizeof reader->message, "%s", trace_error(s->reader));
    if (more != 0)
        return more > 0;
    s->is_done = true;
    st->parts[s->part].open--;
    trace_close(s->reader);
    s->reader = NULL;
    return true;
}

static bool read_all_ahead(trace_reader *reader)
{
    state *st = reader->state;
    for (uint32_t i = 0; i < st->num_active;) {
        source *s = &st->sources[st->active[i]];
        if (!s->has_ahead && !read_ahead(reader, s))
            return false;
        if (s->is_done)
            st->active[i] = st->active[--st->num_active];
        else
            i++;
    }
    return true;
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    source *s;
    bool has_failed = false;
    do {
        if (!read_all_ahead(reader))
            return TRACE_BROKEN;
        s = find_next(st);
    } while (!(s != NULL && is_later_turn(&s->ahead)) &&
             open_due(reader, s != NULL ? s->ahead.time_s : HUGE_VAL, &has_failed) && !has_failed);
    if (has_failed)
        return TRACE_BROKEN;
    if (s == NULL)
        return TRACE_END;
    s->has_ahead = false;
    *request = s->ahead;
    return TRACE_OK;
}

const trace_kind trace_merged = {.format = TRACE_MIXED, .name = "mixed", .next = next, .end = end};

/* ---- what is said of all of them -------------------------------------------- */

trace_format trace_merge_format(const trace_reader *reader)
{
    const state *st = reader->state;
    for (uint32_t i = 1; i < st->num_parts; i++)
        if (st->parts[i].kind != st->parts[0].kind)
            return TRACE_MIXED;
    return st->parts[0].kind->format;
}

uint64_t trace_merge_position(const trace_reader *reader)
{
    const state *st = reader->state;
    uint64_t position = 0;
    for (uint32_t i = 0; i < st->num_sources; i++) {
        const source *s = &st->sources[i];
        bool is_read = s->is_done || (s->reader != NULL && s->reader->files != NULL);
        if (is_read)
            position += s->bytes;
        else if (s->reader != NULL)
            position += trace_position(s->reader);
    }
    return position;
}

uint64_t trace_merge_size(const trace_reader *reader)
{
    const state *st = reader->state;
    uint64_t size = 0;
    for (uint32_t i = 0; i < st->num_sources; i++) {
        if (st->sources[i].bytes == 0)
            return 0; /* standard input: not known */
        size += st->sources[i].bytes;
    }
    return size;
}

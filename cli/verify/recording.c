#include "recording.h"

#include "output/failure.h"
#include "trace/input.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct recording {
    input *in;
    char path[PATH_MAX];
    char place[PATH_MAX + 32];
    uint64_t number; /* of the recording, its first 64 bits */
    uint64_t part;
    bool has_header;
    recording_line line;
};

recording *recording_open(const char *path)
{
    recording *rec = calloc(1, sizeof *rec);
    if (rec == NULL) {
        fail_with("%s: not enough memory", path);
        return NULL;
    }
    (void)snprintf(rec->path, sizeof rec->path, "%s", path);
    rec->in = input_open(path);
    if (rec->in == NULL) {
        free(rec);
        return NULL;
    }
    return rec;
}

void recording_close(recording *rec)
{
    if (rec == NULL)
        return;
    input_close(rec->in);
    recording_line_free(&rec->line);
    free(rec);
}

const char *recording_place(recording *rec)
{
    (void)snprintf(rec->place, sizeof rec->place, "%s:%llu", rec->path,
                   (unsigned long long)input_line_number(rec->in));
    return rec->place;
}

/* 1: the next part is open; 0: there is none; -1: it cannot be read. */
static int open_next(recording *rec)
{
    char next[PATH_MAX];
    if (!recording_next_path(rec->path, 1, next, sizeof next) || access(next, F_OK) != 0)
        return 0;
    input *in = input_open(next);
    if (in == NULL)
        return -1;
    input_close(rec->in);
    rec->in = in;
    memcpy(rec->path, next, sizeof rec->path);
    return 1;
}

static int check_header(recording *rec)
{
    const recording_line *line = &rec->line;
    if (line->type != RECORDING_HEADER || !line->has_format)
        return fail_with("%s: is not a recording (expected a header with format %s)",
                         recording_place(rec), RECORDING_FORMAT);
    if (!rec->has_header && line->part != 0)
        return fail_with("%s: is part %llu of a recording; give part 0", rec->path,
                         (unsigned long long)line->part);
    if (rec->has_header && (line->recording != rec->number || line->part != rec->part + 1))
        return fail_with("%s: does not follow part %llu of the recording", rec->path,
                         (unsigned long long)rec->part);
    rec->number = line->recording;
    rec->part = line->part;
    rec->has_header = true;
    return 1;
}

int recording_next(recording *rec, const recording_line **line)
{
    bool is_first = input_line_number(rec->in) == 0;
    char *text;
    size_t length;
    int more = input_line(rec->in, &text, &length);
    while (more == 0 || (more < 0 && input_is_truncated(rec->in))) {
        more = open_next(rec);
        if (more <= 0)
            return more == 0 && !rec->has_header ? fail_with("%s: the file is empty", rec->path)
                                                 : more;
        is_first = true;
        more = input_line(rec->in, &text, &length);
    }
    if (more < 0)
        return fail_with("%s", input_error(rec->in));
    if (!recording_read(&rec->line, text, length))
        return fail_with("%s: %s", recording_place(rec), rec->line.problem);
    *line = &rec->line;
    return is_first ? check_header(rec) : 1;
}

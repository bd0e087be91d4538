/* cli/workload/rewrite.h - a trace that is read, changed and written again.
 *
 *      rewrite_open     the output, its first line
 *      rewrite_read     reader ──► change: kept or dropped ──► writer      once, or for each copy
 *      rewrite_close    the output gets its name; a failure or a signal leaves an earlier file
 *
 * The times of what is written begin at 0.
 */
#ifndef QUIRE_CLI_WORKLOAD_REWRITE_H
#define QUIRE_CLI_WORKLOAD_REWRITE_H

#include "options/options.h"
#include "output/packed.h"
#include "output/progress.h"
#include "roots.h"
#include "writer.h"

typedef enum rewrite_answer {
    REWRITE_KEEP,
    REWRITE_DROP,
    REWRITE_END,   /* drop it and all that follow */
    REWRITE_FAILED /* no memory */
} rewrite_answer;

/* What becomes of a request, which it may change. root: the arrival that it goes back to; is_new:
 * it is that arrival. */
typedef rewrite_answer rewrite_change(void *user, trace_request *request, root *root, bool is_new);

typedef struct rewrite {
    const command *cmd;
    const char *const *paths;
    uint32_t num_paths;
    const trace_options *trace;
    const char *out;
    workload_options writer; /* kind and made_by are filled in */
    bool is_anonymous;       /* nothing says where the trace came from */
    rewrite_change *change;  /* NULL: all are kept */
    void *user;
    double copies; /* readings that will come, for the progress bar */
    /* found: */
    packed_file *file;
    workload_writer *to;
    char *made_by;
    trace_reader *reader; /* of the reading to come, if it is open */
    trace_format format;
    uint64_t num_bad;
    uint64_t num_read;
    uint64_t num_written;
    double num_done; /* readings */
    bool has_first;
    double first_s;
    uint64_t *after; /* room for what a request waits for */
    uint32_t after_room;
    progress progress;
    double shown_s;
} rewrite;

/* All of these: 0, or an exit status after a sentence. */
trace_reader *rewrite_reader(rewrite *job); /* or NULL after a sentence */
/* Reads all without writing. Names and roots are as in the readings that follow. */
int rewrite_scan(rewrite *job, rewrite_change *look, void *user);
int rewrite_begin(rewrite *job); /* progress, signals, and rewrite_open */
int rewrite_open(rewrite *job);
int rewrite_read(rewrite *job);
/* status: of the steps before. Says on standard error what was written, if it is not all. */
int rewrite_close(rewrite *job, int status);
/* The three in one. */
int rewrite_run(rewrite *job);

/* Whether paths name standard input: it cannot be read twice. */
bool rewrite_is_stdin(const command *cmd);

/* Rows of a table of options: the trace, and the output. */
/* clang-format off */
#define REWRITE_OPTIONS(t, format_text, out_text)                                                  \
    {"out", OPTION_TEXT, &(out_text), "FILE",                                                      \
     "output file; packed if it ends with .zst or .gz; -: standard output", .def = "-",            \
     .section = "Output", .role = OPTION_OUTPUT},                                                  \
    TRACE_OPTIONS(t, format_text, "skip invalid records, and count them")
/* clang-format on */

#endif

/* cli/trace/recording_line.h - one line of a recording (docs/recording.md), read into a struct.
 *
 * All lines share one struct: a field that a line does not have is 0, a list is empty. Fields and
 * types that are not known are skipped.
 */
#ifndef QUIRE_CLI_TRACE_RECORDING_LINE_H
#define QUIRE_CLI_TRACE_RECORDING_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORDING_FORMAT "quire.recording.v1"

typedef enum recording_type {
    RECORDING_OTHER, /* a type that is not known */
    RECORDING_HEADER,
    RECORDING_REQUEST,
    RECORDING_SCHEDULE,
    RECORDING_UPDATE,
    RECORDING_DRAFTS,
    RECORDING_END,
    RECORDING_FINISH,
    RECORDING_RESET,
    RECORDING_SET,
    RECORDING_LOST,
    RECORDING_CLOSE
} recording_type;

typedef enum recording_reason {
    RECORDING_NO_REASON,
    RECORDING_STOP,
    RECORDING_LENGTH,
    RECORDING_ABORT,
    RECORDING_ERROR,
    RECORDING_REPETITION,
    RECORDING_IGNORED
} recording_reason;

typedef struct recording_list {
    uint64_t *items;
    uint32_t count;
    uint32_t room;
    bool is_given;
} recording_list;

/* X(field, name) of numbers. */
#define RECORDING_NUMBERS(X)                                                                       \
    X(part, "part")                                                                                \
    X(req, "req")                                                                                  \
    X(step, "step")                                                                                \
    X(prompt, "prompt")                                                                            \
    X(max_tokens, "max_tokens")                                                                    \
    X(min_tokens, "min_tokens")                                                                    \
    X(stops, "stops")                                                                              \
    X(client, "client")                                                                            \
    X(running, "running")                                                                          \
    X(waiting, "waiting")                                                                          \
    X(free, "free")                                                                                \
    X(output, "output")                                                                            \
    X(hit, "hit")                                                                                  \
    X(preemptions, "preemptions")                                                                  \
    X(pause, "pause")                                                                              \
    X(lines, "lines")

#define RECORDING_REALS(X)                                                                         \
    X(time, "time")                                                                                \
    X(t, "t")                                                                                      \
    X(arrival, "arrival")                                                                          \
    X(priority, "priority")                                                                        \
    X(first, "first")                                                                              \
    X(last, "last")                                                                                \
    X(seconds, "seconds")

#define RECORDING_SWITCHES(X)                                                                      \
    X(eos, "eos")                                                                                  \
    X(grammar, "grammar")                                                                          \
    X(pooling, "pooling")                                                                          \
    X(resumable, "resumable")                                                                      \
    X(skip_prefix, "skip_prefix")                                                                  \
    X(throttle, "throttle")                                                                        \
    X(is_running, "running")                                                                       \
    X(connector, "connector")                                                                      \
    X(done, "done")

/* Pairs are two items each; `mm` has three numbers of each input. */
#define RECORDING_LISTS(X)                                                                         \
    X(reqs, "reqs")                                                                                \
    X(tokens, "tokens")                                                                            \
    X(new_reqs, "new")                                                                             \
    X(resumed, "resumed")                                                                          \
    X(preempted, "preempted")                                                                      \
    X(drafts, "drafts")                                                                            \
    X(encoder, "encoder")                                                                          \
    X(sampled, "sampled")                                                                          \
    X(mm, "mm")

typedef struct recording_line {
    recording_type type;
    recording_reason reason;
    bool is_encoder; /* of a reset */
    bool has_format; /* a header whose format is known */
    bool has_hit;
    bool has_tokens; /* first and last are given */
    uint64_t adapter;
    uint64_t session;
    uint64_t recording; /* the first 64 bits of its number */
#define X(field, name) uint64_t field;
    RECORDING_NUMBERS(X)
#undef X
#define X(field, name) double field;
    RECORDING_REALS(X)
#undef X
#define X(field, name) bool field;
    RECORDING_SWITCHES(X)
#undef X
#define X(field, name) recording_list field;
    RECORDING_LISTS(X)
#undef X
    recording_list hashes; /* salted */
    const char *config;    /* the header's, a JSON object within the text; NULL: none */
    size_t config_bytes;
    char inexact[256]; /* the header's; "": none */
    char problem[256]; /* what is wrong */
} recording_line;

/* False: `problem` says what is wrong with the line. text[length] must be 0. */
bool recording_read(recording_line *line, const char *text, size_t length);
void recording_line_free(recording_line *line);

/* The path of the part behind this one, "NAME.0001.jsonl.zst" behind "NAME.0000.jsonl.zst". False:
 * the path is not that of a part. step is 1, or -1 for the part before. */
bool recording_next_path(const char *path, int step, char *next, size_t room);

#endif

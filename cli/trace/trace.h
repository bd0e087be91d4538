/* cli/trace/trace.h - requests from a trace file, one after the other, whatever the format.
 *
 *      mooncake.jsonl.zst ─┐
 *      azure.csv.gz ───────┼─► trace_next ─► trace_request ─► replay, curve, generate's tests
 *      sessions.tar.zst ───┘
 *
 * content    what tokens say, as a number: token j of content c is the same token wherever it
 *            stands (content.h makes it). A prompt is a row of segments, each `num_tokens` tokens
 *            of one content from its first token on; so prompts share a prefix exactly where their
 *            segments do, at any block size.
 * session    turns that follow each other. Closed loop: a turn comes think_s after the end of the
 *            one before. Open loop: at its time, whatever happened before.
 * time_s     the time of a request in an open loop and of the first turn of a session. Of a later
 *            turn in a closed loop: the earliest that it can come, as if the turns before took no
 *            time. So whoever has read on until time_s is later than now has read all that can
 *            come now. It never decreases but for later turns (those of one session may stand
 *            together): a trace is read in the order in which it was written.
 *
 * Readers stream: memory does not grow with the length of the trace (one record, or one session, at
 * a time). What trace_next fills in is valid until the next call.
 */
#ifndef QUIRE_CLI_TRACE_H
#define QUIRE_CLI_TRACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct trace_segment {
    uint64_t content;
    uint32_t num_tokens;
} trace_segment;

typedef struct trace_request {
    uint64_t line;       /* where it stands: for messages */
    uint64_t session;    /* 0: none */
    uint32_t turn;       /* of the session, from 0 on */
    bool is_closed_loop; /* its time is think_s after the end of the turn before (turn 0: time_s) */
    bool is_last_turn;
    double time_s;  /* from the start of the trace on */
    double think_s; /* closed loop, turn > 0 */
    const trace_segment *prompt;
    uint32_t num_segments;
    uint32_t num_prompt_tokens;
    uint32_t num_output_tokens;
    uint64_t output_content; /* what it generates: a later prompt may contain it */
    uint32_t id_block_size;  /* tokens of one of the trace's own block ids; 0: it has none */
    int32_t priority;
    double pin_s; /* its blocks are kept for so long after its end; negative: it does not say */
    /* 0, 1, ... as they are read: in the order of the file. Of several files, of which records are
     * read ahead, the numbers may be handed out in another order. */
    uint64_t number;
    const char *file; /* of several: the one that it stands in, until trace_close; NULL: the only
                         one */
    const uint64_t *after; /* closed loop: numbers of the requests at whose end it may come, if it
                              is not simply the turn before (agents that wait for their helpers) */
    uint32_t num_after;    /* 0: the turn before */
    uint32_t part;         /* of several traces: the one that it is of, from 0 on */
} trace_request;

typedef enum trace_format {
    TRACE_DETECT = 0,
    TRACE_MOONCAKE, /* JSON lines; also with sessions, and the agentic form */
    TRACE_BAILIAN,
    TRACE_AZURE,
    TRACE_BURSTGPT,
    TRACE_SHAREGPT,
    TRACE_AGENT,          /* one JSON file for each session, or a tar of them */
    TRACE_QUIRE,          /* what `quire generate` writes */
    TRACE_MOONCAKE_DELTA, /* a turn has what is new in its prompt; cannot be told from the above */
    TRACE_DYNAMO,         /* request traces of NVIDIA Dynamo */
    TRACE_RECORDING,      /* recordings of an engine */
    TRACE_LMCACHE,        /* agents' calls with their texts, as LMCache publishes them */
    TRACE_OTEL,           /* spans of OpenTelemetry, OTLP as JSON */
    TRACE_VLLM_LOG,       /* the log of a vLLM server that logs requests */
    TRACE_MIXED           /* several traces of more than one format */
} trace_format;

/* "mooncake", "azure", ...; TRACE_DETECT where there is none of that name. */
trace_format trace_format_of(const char *name);
const char *trace_format_name(trace_format format);

typedef struct trace_options {
    trace_format format;
    bool skip_bad;          /* count broken records and go on */
    uint64_t max_requests;  /* 0: all */
    uint32_t id_block_size; /* tokens of one block id, where the trace does not say; 0: as usual */
    double session_gap_s;   /* sessions of a trace without times start this far apart; 0: 1 s */
    /* Of several traces, one for each: how many times as fast its requests come. NULL: once. */
    const double *speeds;
    void (*on_bad)(void *user, const char *message); /* of each record that is skipped; or NULL */
    void *on_bad_user;
} trace_options;

typedef struct trace_reader trace_reader;

/* A file, "-" for standard input, or a folder. NULL, and a sentence (failure.h), when it cannot be
 * read.
 *
 * All trace files of a folder and of the folders in it (files.h) are one trace in one format: the
 * same ids, sessions and clock, ordered by time, equal times in the order of the files' names. */
trace_reader *trace_open(const char *path, const trace_options *options);
/* Several traces as one: all begin at time 0, and are ordered by time, equal times in the order of
 * the paths. Sessions, and what only one trace can know (ids, contents of workload files), are
 * different in different traces; texts and hashes of tokens mean the same in all. One path is
 * trace_open. */
trace_reader *trace_open_all(const char *const *paths, uint32_t num_paths,
                             const trace_options *options);
/* 1: a request; 0: the end; -1: trace_error says what is wrong, with file, line and field. */
int trace_next(trace_reader *reader, trace_request *request);
const char *trace_error(const trace_reader *reader);
trace_format trace_reader_format(const trace_reader *reader);
/* Whether anything read so far says that prompts are alike: block ids, texts, sessions. Tables such
 * as Azure's have lengths alone, and every prompt counts as unique. */
bool trace_has_contents(const trace_reader *reader);
uint64_t trace_num_bad(const trace_reader *reader); /* skipped */
/* Bytes of the records that were read, and of the file (0: not known): for the progress bar. */
uint64_t trace_position(const trace_reader *reader);
uint64_t trace_size(const trace_reader *reader);
void trace_close(trace_reader *reader);

#endif

/* cli/trace/reader.h - what the readers of all formats share; only cli/trace*.c include it.
 *
 * A format is a table of functions over one reader:
 *
 *      trace_next ─► kind->next: reads a record's fields, each checked by trace_take_*,
 *                                makes segments with trace_push*, places it with trace_place
 *
 * The trace_take_* functions take a value in any case, and note the first thing that is wrong with
 * a record; so a record is read to its end before it is refused, and the next one can be read.
 */
#ifndef QUIRE_CLI_TRACE_READER_H
#define QUIRE_CLI_TRACE_READER_H

#include "input.h"
#include "json.h"
#include "memo.h"
#include "trace.h"

#define TRACE_MAX_TOKENS UINT32_C(0x7fffffff)
enum { TRACE_MESSAGE_BYTES = 512 };

typedef enum trace_outcome {
    TRACE_BROKEN = -2, /* cannot be read on */
    TRACE_BAD = -1,    /* this record is broken, the next one may not be */
    TRACE_END = 0,
    TRACE_OK = 1
} trace_outcome;

/* Kinds of contents, for content_of. */
enum {
    TRACE_CONTENT_ID = 1, /* block id, scope (0: the whole trace) */
    TRACE_CONTENT_TAIL,   /* behind the last id: request */
    TRACE_CONTENT_UNIQUE, /* a prompt of which nothing is known: request */
    TRACE_CONTENT_OUTPUT, /* what a request generates: request */
    TRACE_CONTENT_TEXT,   /* hash of a message, its length */
    TRACE_CONTENT_NUMBER, /* a content of a workload file */
    TRACE_CONTENT_HASH,   /* hash of tokens and of all before them, tokens of a block */
    TRACE_CONTENT_SCOPE   /* a name, the trace that it belongs to: for own names */
};

typedef struct trace_kind {
    trace_format format;
    const char *name;
    const char *alias;                   /* NULL: none */
    uint32_t id_block_size;              /* usual tokens of one block id; 0: it has none */
    size_t state_bytes;                  /* 0: it has no state of its own */
    bool reads_all;                      /* one reader reads all files of a folder */
    bool (*begin)(trace_reader *reader); /* state is all zero; NULL: nothing to do */
    trace_outcome (*next)(trace_reader *reader, trace_request *request);
    void (*end)(trace_reader *reader);
} trace_kind;

extern const trace_kind trace_mooncake;
extern const trace_kind trace_mooncake_delta;
extern const trace_kind trace_bailian;
extern const trace_kind trace_azure;
extern const trace_kind trace_burstgpt;
extern const trace_kind trace_sharegpt;
extern const trace_kind trace_agent;
extern const trace_kind trace_quire;
extern const trace_kind trace_dynamo;
extern const trace_kind trace_recording;
extern const trace_kind trace_lmcache;
extern const trace_kind trace_otel;
extern const trace_kind trace_vllm_log;
extern const trace_kind trace_merged;

/* What readers have in common whose requests become one trace. */
typedef struct trace_shared {
    trace_memo sessions;
    trace_memo requests;  /* by their names */
    uint64_t num_records; /* begun, broken ones too */
    uint64_t number;      /* of the next request */
    uint64_t num_sessions;
} trace_shared;

/* What the files of one trace have in common: its time 0. */
typedef struct trace_clock {
    bool has_first;
    double first_s;      /* as recorded: time 0 */
    int64_t whole_s;     /* dates: whole seconds since 1970 at which first_s counts from 0 */
    uint64_t num_starts; /* of sessions without times */
} trace_clock;

/* One reader of several. */
typedef struct trace_membership {
    trace_shared *shared;
    trace_clock *clock;
    uint64_t scope; /* the trace: 0, 1, ... */
} trace_membership;

struct trace_reader {
    input *in;
    trace_options options;
    const trace_kind *kind;
    void *state;
    trace_shared *shared; /* &own_shared, unless it is one of several */
    trace_clock *clock;   /* the same */
    trace_shared own_shared;
    trace_clock own_clock;
    bool is_merged; /* it is one of several */
    uint64_t scope; /* names that only this trace knows are different from those of scope 0 */
    char **files;   /* of a folder, where one reader reads them all */
    uint32_t num_files;
    uint32_t num_opened;
    uint64_t num_requests;  /* handed out */
    uint32_t id_block_size; /* as the options or the format have it */
    bool are_ids_local;     /* to a play */
    uint64_t line;          /* of the record that is read */
    const char *name;       /* of the file in messages; NULL: that of the input */
    const char *entry;      /* of the archive; NULL: no archive */
    uint64_t item;          /* of the record, from 1 on: its request, its message; 0: it has none */
    bool has_problem;       /* with the record that is read, or with all */
    bool is_finished;
    bool is_broken;
    char message[TRACE_MESSAGE_BYTES];
    /* the record's prompt */
    trace_segment *segments;
    uint32_t num_segments;
    uint32_t segment_room;
    uint64_t num_tokens;
    /* the record's block ids, or other numbers */
    uint64_t *ids;
    uint32_t num_ids;
    uint32_t id_room;
    uint64_t *after; /* what the record waits for: names, and then numbers of requests */
    uint32_t num_after;
    uint32_t after_room;
    uint64_t num_bad;
    bool has_contents; /* something other than trace_push_unique was called */
    double last_s;
};

/* Takes over the input. */
trace_reader *trace_open_input(input *in, const trace_options *options);
/* The same for one reader of several; NULL: it is the only one. */
trace_reader *trace_open_member(input *in, const trace_options *options,
                                const trace_membership *member);
bool trace_shared_begin(trace_shared *shared);
void trace_shared_end(trace_shared *shared);
/* The input becomes the next of `files`. TRACE_END: there is none; TRACE_BROKEN: it cannot be
 * read. */
trace_outcome trace_next_file(trace_reader *reader);
/* First room for segments, ids and what is remembered: there is always some. */
bool trace_reader_reserve(trace_reader *reader);

/* Notes what is wrong: "FILE:LINE: " and the sentence, with `field "NAME": ` where there is one. */
trace_outcome trace_problem(trace_reader *reader, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
trace_outcome trace_no_memory(trace_reader *reader);
/* Begins a record: no problem, no segments, no ids. */
void trace_begin_record(trace_reader *reader, uint64_t line);
/* The next line that is not blank, as a record. */
trace_outcome trace_next_line(trace_reader *reader, char **line, size_t *length);

/* A field of a record that is one value, and where that goes in the reader's row. */
typedef enum trace_field_kind {
    TRACE_FIELD_LENGTH,   /* int64_t */
    TRACE_FIELD_TIME,     /* double */
    TRACE_FIELD_U64,      /* uint64_t */
    TRACE_FIELD_PRIORITY, /* int32_t */
    TRACE_FIELD_KEY       /* uint64_t: a string's hash, or that of a number's digits; 0: none */
} trace_field_kind;

typedef struct trace_field {
    const char *name; /* NULL ends a table */
    trace_field_kind kind;
    size_t offset;
} trace_field;

/* What takes the value of a field that the table does not have; NULL: such values are skipped. */
typedef void trace_take_other(trace_reader *reader, scanner *scan, const scan_text *name,
                              void *row);

/* The fields of the object that comes next, each by the table or by `other`. */
void trace_take_object(trace_reader *reader, scanner *scan, const trace_field *fields,
                       trace_take_other *other, void *row);
/* The next line that is not blank, as a record of one such object. */
trace_outcome trace_next_object(trace_reader *reader, const trace_field *fields,
                                trace_take_other *other, void *row);

/* The objects of a JSON document, one at a time: [ {...}, {...} ] or {...} {...}. The document is
 * never held as a whole. What is no JSON ends it: nobody knows where the next object begins. */
typedef struct trace_document {
    scanner scan;
    bool is_begun;
    bool is_list;
} trace_document;

/* The next num_bytes of the input are one (UINT64_MAX: all). */
void trace_document_begin(trace_document *document, trace_reader *reader, uint64_t num_bytes);
/* TRACE_OK: an object comes next, a record of its own; TRACE_BAD: something else stood there. */
trace_outcome trace_document_next(trace_document *document, trace_reader *reader);
/* After an object was read: what came of it. */
trace_outcome trace_document_outcome(trace_document *document, trace_reader *reader);

/* Values of fields. null counts as missing: the value stays as it was. */
void trace_take_length(trace_reader *reader, scanner *scan, const char *field, int64_t *tokens);
void trace_take_time(trace_reader *reader, scanner *scan, const char *field, double *time);
void trace_take_u64(trace_reader *reader, scanner *scan, const char *field, uint64_t *value);
void trace_take_key(trace_reader *reader, scanner *scan, const char *field, uint64_t *key);
/* A name or a content that means something in its own trace only. */
uint64_t trace_own_key(const trace_reader *reader, uint64_t key);
uint64_t trace_own_content(const trace_reader *reader, uint64_t kind, uint64_t a, uint64_t b);
/* Appends a list of numbers to the record's ids. */
void trace_take_ids(trace_reader *reader, scanner *scan, const char *field);
void trace_add_id(trace_reader *reader, uint64_t id);
void trace_add_after(trace_reader *reader, uint64_t name);
/* Opens a list, if one comes next; null is none, and anything else a problem. */
bool trace_open_list(trace_reader *reader, scanner *scan, const char *field);
/* A list of keys goes to `after`. */
void trace_take_after(trace_reader *reader, scanner *scan, const char *field);

/* Lengths that a record must have; a missing output is a problem, one of 0 tokens is 1. */
bool trace_check_lengths(trace_reader *reader, const char *input_field, int64_t num_prompt_tokens,
                         const char *output_field, int64_t *num_output_tokens);

void trace_push(trace_reader *reader, uint64_t content, uint64_t num_tokens);
/* What another request was and generated, which this prompt begins with. */
void trace_push_all(trace_reader *reader, const trace_segment *segments, uint32_t num_segments);
/* A problem where they do not. */
bool trace_ids_fit(trace_reader *reader, const char *field, uint32_t num_ids, uint32_t num_tokens,
                   uint32_t block_size);
/* Prompt tokens behind ids of block_size tokens each: as many ids as full blocks, and perhaps one
 * for the part-filled last one. */
void trace_push_ids(trace_reader *reader, const char *field, const uint64_t *ids, uint32_t num_ids,
                    uint32_t num_tokens, uint32_t block_size, uint64_t scope);
void trace_push_unique(trace_reader *reader, uint32_t num_tokens);

/* The time of a request that does not wait for another one, from its time in the trace. One with a
 * time before that of the one before it comes together with it. */
double trace_place(trace_reader *reader, double recorded_s);
/* The start of a session that has no time of its own. */
double trace_place_session(trace_reader *reader, double after_start_s);
/* What a request waits for: the names in `after` become numbers, and the request's. The earliest
 * time that leaves; a problem with `field` where a name is not known. */
double trace_find_waits(trace_reader *reader, const char *field, const char *why,
                        trace_request *request);
/* What a session has said when the request has ended: its prompt and its output. False: no memory,
 * or too much. */
bool trace_note_said(trace_reader *reader, trace_known *session, trace_request *request);
/* Prompt and output as they were pushed; all else 0. False: there is a problem. */
bool trace_fill(trace_reader *reader, trace_request *request, uint32_t num_output_tokens);

#endif

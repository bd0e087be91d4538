/* cli/trace/reader.c - fields, segments, times and messages, for all formats. */
#include "reader.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "output/grown.h"

enum { FIRST_ROOM = 64, MAX_ROOM = 1 << 26 };

#define MAX_TIME 1e15 /* beyond it, a double does not tell milliseconds any more */

bool trace_reader_reserve(trace_reader *reader)
{
    reader->ids = malloc(FIRST_ROOM * sizeof *reader->ids);
    reader->segments = malloc(FIRST_ROOM * sizeof *reader->segments);
    reader->id_room = FIRST_ROOM;
    reader->segment_room = FIRST_ROOM;
    return reader->ids != NULL && reader->segments != NULL &&
           (reader->shared != &reader->own_shared || trace_shared_begin(&reader->own_shared));
}

bool trace_shared_begin(trace_shared *shared)
{
    return trace_memo_begin(&shared->sessions, TRACE_MEMO_ENTRIES) &&
           trace_memo_begin(&shared->requests, TRACE_MEMO_ENTRIES);
}

void trace_shared_end(trace_shared *shared)
{
    trace_memo_end(&shared->sessions);
    trace_memo_end(&shared->requests);
}

uint64_t trace_own_key(const trace_reader *reader, uint64_t key)
{
    return reader->scope == 0 ? key : content_of(TRACE_CONTENT_SCOPE, key, reader->scope) | 1;
}

uint64_t trace_own_content(const trace_reader *reader, uint64_t kind, uint64_t a, uint64_t b)
{
    return content_of(kind, a,
                      reader->scope == 0 ? b : content_of(TRACE_CONTENT_SCOPE, b, reader->scope));
}

/* ---- problems -------------------------------------------------------------- */

trace_outcome trace_problem(trace_reader *reader, const char *field, const char *format, ...)
{
    if (reader->has_problem)
        return TRACE_BAD;
    reader->has_problem = true;
    size_t size = sizeof reader->message;
    const char *name = reader->name != NULL ? reader->name : input_name(reader->in);
    int n = snprintf(reader->message, size, "%s:", name);
    if (n > 0 && (size_t)n < size && reader->entry != NULL)
        n += snprintf(reader->message + n, size - (size_t)n, "%s:", reader->entry);
    if (n > 0 && (size_t)n < size)
        n += snprintf(reader->message + n, size - (size_t)n,
                      "%llu: ", (unsigned long long)reader->line);
    if (n > 0 && (size_t)n < size && reader->item != 0)
        n += snprintf(reader->message + n, size - (size_t)n,
                      "item %llu: ", (unsigned long long)reader->item);
    if (n > 0 && (size_t)n < size && field != NULL)
        n += snprintf(reader->message + n, size - (size_t)n, "field \"%s\": ", field);
    if (n > 0 && (size_t)n < size) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(reader->message + n, size - (size_t)n, format, arguments);
        va_end(arguments);
    }
    return TRACE_BAD;
}

trace_outcome trace_no_memory(trace_reader *reader)
{
    trace_problem(reader, NULL, "no memory for this record");
    return TRACE_BROKEN;
}

void trace_begin_record(trace_reader *reader, uint64_t line)
{
    reader->line = line;
    reader->item = 0;
    reader->has_problem = false;
    reader->num_segments = 0;
    reader->num_tokens = 0;
    reader->num_ids = 0;
    reader->num_after = 0;
    reader->shared->num_records++;
}

trace_outcome trace_next_line(trace_reader *reader, char **line, size_t *length)
{
    int more;
    do {
        more = input_line(reader->in, line, length);
        if (more == 0)
            return TRACE_END;
        if (more < 0) {
            snprintf(reader->message, sizeof reader->message, "%s", input_error(reader->in));
            return TRACE_BROKEN;
        }
    } while (strspn(*line, " \t") == *length);
    trace_begin_record(reader, input_line_number(reader->in));
    return TRACE_OK;
}

/* ---- values ---------------------------------------------------------------- */

/* False: null, or no number; it is taken all the same. */
static bool take_number(trace_reader *reader, scanner *scan, const char *field, scan_value *value)
{
    scan_kind kind = scan_peek(scan);
    if (kind == JSON_NUMBER)
        return scan_number(scan, value);
    if (kind != JSON_NULL && kind != JSON_NOTHING)
        trace_problem(reader, field, "is not a number");
    scan_skip(scan);
    return false;
}

/* A whole number up to `most`; programs that write tables write 512.0 too. */
static bool is_whole(trace_reader *reader, const char *field, scan_value *value, uint64_t most)
{
    if (value->is_negative && value->real < 0) {
        trace_problem(reader, field, "%.*s is negative", value->length, value->text);
        return false;
    }
    if (!value->is_integer && value->real < 0x1p53 && value->real == floor(value->real)) {
        value->magnitude = (uint64_t)value->real;
        value->is_integer = true;
    }
    if (!value->is_integer && value->real < (double)most) {
        trace_problem(reader, field, "%.*s is not a whole number", value->length, value->text);
        return false;
    }
    if (!value->is_integer || value->magnitude > most) {
        trace_problem(reader, field, "%.*s is more than %llu", value->length, value->text,
                      (unsigned long long)most);
        return false;
    }
    return true;
}

void trace_take_length(trace_reader *reader, scanner *scan, const char *field, int64_t *tokens)
{
    scan_value value;
    if (take_number(reader, scan, field, &value) &&
        is_whole(reader, field, &value, TRACE_MAX_TOKENS))
        *tokens = (int64_t)value.magnitude;
}

void trace_take_time(trace_reader *reader, scanner *scan, const char *field, double *time)
{
    scan_value value;
    if (!take_number(reader, scan, field, &value))
        return;
    if (value.real < 0)
        trace_problem(reader, field, "%.*s is negative", value.length, value.text);
    else if (!(value.real <= MAX_TIME))
        trace_problem(reader, field, "%.*s is out of range", value.length, value.text);
    else
        *time = value.real;
}

void trace_take_u64(trace_reader *reader, scanner *scan, const char *field, uint64_t *value)
{
    scan_value v;
    if (take_number(reader, scan, field, &v) && is_whole(reader, field, &v, UINT64_MAX))
        *value = v.magnitude;
}

static void take_priority(trace_reader *reader, scanner *scan, const char *field, int32_t *value)
{
    scan_value v;
    if (!take_number(reader, scan, field, &v))
        return;
    bool is_negative = v.is_negative;
    v.is_negative = false;
    v.real = fabs(v.real);
    if (is_whole(reader, field, &v, INT32_MAX))
        *value = is_negative ? -(int32_t)v.magnitude : (int32_t)v.magnitude;
}

void trace_take_key(trace_reader *reader, scanner *scan, const char *field, uint64_t *key)
{
    scan_text text;
    scan_value value;
    switch (scan_peek(scan)) {
    case JSON_STRING:
        if (scan_string(scan, &text))
            *key = trace_own_key(reader, content_of(JSON_STRING, text.hash, text.num_bytes) | 1);
        break;
    case JSON_NUMBER:
        if (scan_number(scan, &value))
            *key = trace_own_key(reader,
                                 content_of(JSON_NUMBER, value.magnitude, value.is_negative) | 1);
        break;
    case JSON_NULL:
    case JSON_NOTHING:
        scan_skip(scan);
        break;
    default:
        trace_problem(reader, field, "is neither a string nor a number");
        scan_skip(scan);
    }
}

static void append(trace_reader *reader, uint64_t id, uint64_t **list, uint32_t *num,
                   uint32_t *room)
{
    if (grow(list, *num, room, MAX_ROOM, sizeof id))
        (*list)[(*num)++] = id;
    else
        trace_no_memory(reader);
}

void trace_add_id(trace_reader *reader, uint64_t id)
{
    append(reader, id, &reader->ids, &reader->num_ids, &reader->id_room);
}

void trace_add_after(trace_reader *reader, uint64_t name)
{
    append(reader, name, &reader->after, &reader->num_after, &reader->after_room);
}

bool trace_open_list(trace_reader *reader, scanner *scan, const char *field)
{
    scan_kind kind = scan_peek(scan);
    if (kind == JSON_ARRAY)
        return scan_open(scan, '[');
    if (kind != JSON_NULL && kind != JSON_NOTHING)
        trace_problem(reader, field, "is not a list");
    scan_skip(scan);
    return false;
}

void trace_take_ids(trace_reader *reader, scanner *scan, const char *field)
{
    if (!trace_open_list(reader, scan, field))
        return;
    while (scan_element(scan) == 1) {
        scan_value value;
        if (!take_number(reader, scan, field, &value)) {
            if (scan->error == NULL)
                trace_problem(reader, field, "has an element that is not a number");
        } else if (value.is_integer && !value.is_negative) {
            trace_add_id(reader, value.magnitude);
        } else if (is_whole(reader, field, &value, UINT64_MAX)) {
            trace_add_id(reader, value.magnitude);
        }
    }
}

void trace_take_after(trace_reader *reader, scanner *scan, const char *field)
{
    if (!trace_open_list(reader, scan, field))
        return;
    while (scan_element(scan) == 1) {
        uint64_t key = 0;
        trace_take_key(reader, scan, field, &key);
        if (key != 0)
            trace_add_after(reader, key);
    }
}

/* ---- records --------------------------------------------------------------- */

static void take_field(trace_reader *reader, scanner *scan, const trace_field *f, void *row)
{
    void *value = (char *)row + f->offset;
    switch (f->kind) {
    case TRACE_FIELD_LENGTH:
        trace_take_length(reader, scan, f->name, value);
        break;
    case TRACE_FIELD_TIME:
        trace_take_time(reader, scan, f->name, value);
        break;
    case TRACE_FIELD_U64:
        trace_take_u64(reader, scan, f->name, value);
        break;
    case TRACE_FIELD_PRIORITY:
        take_priority(reader, scan, f->name, value);
        break;
    case TRACE_FIELD_KEY:
        trace_take_key(reader, scan, f->name, value);
    }
}

void trace_take_object(trace_reader *reader, scanner *scan, const trace_field *fields,
                       trace_take_other *other, void *row)
{
    scan_text name;
    scan_open(scan, '{');
    while (scan_field(scan, &name) == 1) {
        const trace_field *f = fields;
        while (f->name != NULL && !scan_is(&name, f->name))
            f++;
        if (f->name != NULL)
            take_field(reader, scan, f, row);
        else if (other != NULL)
            other(reader, scan, &name, row);
        else
            scan_skip(scan);
    }
}

/* After a line was read as one JSON value: what came of it. */
static trace_outcome end_line(trace_reader *reader, scanner *scan)
{
    if (scan->error == NULL && !scan_at_end(scan))
        scan->error = "unexpected text after the record";
    if (scan->error != NULL) {
        /* a line that is no JSON is a clearer message than what was wrong in its first half */
        reader->has_problem = false;
        return trace_problem(reader, NULL, "invalid JSON: %s", scan->error);
    }
    return reader->has_problem ? TRACE_BAD : TRACE_OK;
}

trace_outcome trace_next_object(trace_reader *reader, const trace_field *fields,
                                trace_take_other *other, void *row)
{
    char *line;
    size_t length;
    scanner scan;
    trace_outcome outcome = trace_next_line(reader, &line, &length);
    if (outcome != TRACE_OK)
        return outcome;
    scan_of_text(&scan, line, length);
    trace_take_object(reader, &scan, fields, other, row);
    return end_line(reader, &scan);
}

bool trace_check_lengths(trace_reader *reader, const char *input_field, int64_t num_prompt_tokens,
                         const char *output_field, int64_t *num_output_tokens)
{
    if (num_prompt_tokens < 0)
        trace_problem(reader, input_field, "is missing");
    else if (num_prompt_tokens == 0)
        trace_problem(reader, input_field, "0: a prompt has at least one token");
    if (*num_output_tokens < 0)
        trace_problem(reader, output_field, "is missing");
    else if (*num_output_tokens == 0)
        *num_output_tokens = 1; /* an engine that computed a prompt has sampled a token */
    return !reader->has_problem;
}

/* ---- documents ------------------------------------------------------------- */

void trace_document_begin(trace_document *document, trace_reader *reader, uint64_t num_bytes)
{
    if (num_bytes >= 3 && input_ahead(reader->in, 3) >= 3 &&
        memcmp(input_bytes(reader->in), "\xef\xbb\xbf", 3) == 0) {
        input_skip(reader->in, 3);
        num_bytes -= num_bytes == UINT64_MAX ? 0 : 3;
    }
    scan_of_input(&document->scan, reader->in, num_bytes);
    document->is_begun = false;
    document->is_list = false;
}

trace_outcome trace_document_outcome(trace_document *document, trace_reader *reader)
{
    const char *error = document->scan.error;
    if (error == NULL)
        return reader->has_problem ? TRACE_BAD : TRACE_OK;
    reader->has_problem = false;
    if (input_error(reader->in) != NULL) {
        snprintf(reader->message, sizeof reader->message, "%s", error);
        reader->has_problem = true;
        return TRACE_BROKEN;
    }
    reader->line = scan_line_number(&document->scan);
    trace_problem(reader, NULL, "invalid JSON: %s", error);
    return TRACE_BROKEN;
}

trace_outcome trace_document_next(trace_document *document, trace_reader *reader)
{
    scanner *scan = &document->scan;
    if (!document->is_begun) {
        document->is_begun = true;
        document->is_list = scan_peek(scan) == JSON_ARRAY && scan_open(scan, '[');
    }
    if (document->is_list && scan_element(scan) == 0)
        document->is_list = false;
    if (!document->is_list && scan_at_end(scan))
        return TRACE_END;
    scan_kind kind = scan_peek(scan);
    trace_begin_record(reader, scan_line_number(scan));
    if (kind == JSON_OBJECT)
        return TRACE_OK;
    if (scan_skip(scan))
        trace_problem(reader, NULL, "expected an object");
    return trace_document_outcome(document, reader);
}

/* ---- segments -------------------------------------------------------------- */

static void push(trace_reader *reader, uint64_t content, uint64_t num_tokens)
{
    if (num_tokens == 0)
        return;
    reader->num_tokens += num_tokens;
    if (reader->num_tokens > TRACE_MAX_TOKENS) {
        trace_problem(reader, NULL, "the prompt has more than %u tokens", TRACE_MAX_TOKENS);
        reader->num_tokens = TRACE_MAX_TOKENS;
        return;
    }
    trace_segment segment = {.content = content, .num_tokens = (uint32_t)num_tokens};
    if (grow(&reader->segments, reader->num_segments, &reader->segment_room, MAX_ROOM,
             sizeof segment))
        reader->segments[reader->num_segments++] = segment;
    else
        trace_no_memory(reader);
}

void trace_push(trace_reader *reader, uint64_t content, uint64_t num_tokens)
{
    reader->has_contents = reader->has_contents || num_tokens > 0;
    push(reader, content, num_tokens);
}

void trace_push_all(trace_reader *reader, const trace_segment *segments, uint32_t num_segments)
{
    for (uint32_t i = 0; i < num_segments; i++)
        trace_push(reader, segments[i].content, segments[i].num_tokens);
}

void trace_push_unique(trace_reader *reader, uint32_t num_tokens)
{
    push(reader, content_of(TRACE_CONTENT_UNIQUE, reader->shared->num_records, 0), num_tokens);
}

bool trace_ids_fit(trace_reader *reader, const char *field, uint32_t num_ids, uint32_t num_tokens,
                   uint32_t block_size)
{
    uint32_t num_full = num_tokens / block_size;
    uint32_t num_all = num_full + (num_tokens % block_size > 0);
    if (num_ids == num_full || num_ids == num_all)
        return true;
    trace_problem(reader, field, "%u ids of %u tokens do not fit a prompt of %u tokens", num_ids,
                  block_size, num_tokens);
    return false;
}

void trace_push_ids(trace_reader *reader, const char *field, const uint64_t *ids, uint32_t num_ids,
                    uint32_t num_tokens, uint32_t block_size, uint64_t scope)
{
    if (!trace_ids_fit(reader, field, num_ids, num_tokens, block_size))
        return;
    uint32_t num_full = num_tokens / block_size;
    uint32_t rest = num_tokens % block_size;
    for (uint32_t i = 0; i < num_full; i++)
        trace_push(reader, trace_own_content(reader, TRACE_CONTENT_ID, ids[i], scope), block_size);
    if (num_ids > num_full)
        trace_push(reader, trace_own_content(reader, TRACE_CONTENT_ID, ids[num_full], scope), rest);
    else
        trace_push(reader, content_of(TRACE_CONTENT_TAIL, reader->shared->num_records, 0), rest);
}

/* ---- requests -------------------------------------------------------------- */

double trace_place(trace_reader *reader, double recorded_s)
{
    if (!reader->clock->has_first) {
        reader->clock->has_first = true;
        reader->clock->first_s = recorded_s;
    }
    reader->last_s = fmax(recorded_s - reader->clock->first_s, reader->last_s);
    return reader->last_s;
}

double trace_place_session(trace_reader *reader, double after_start_s)
{
    double gap_s = reader->options.session_gap_s > 0 ? reader->options.session_gap_s : 1;
    return trace_place(reader, (double)reader->clock->num_starts++ * gap_s + after_start_s);
}

double trace_find_waits(trace_reader *reader, const char *field, const char *why,
                        trace_request *request)
{
    double time_s = 0;
    if (!trace_memo_number(&reader->shared->requests, reader->after, reader->num_after, &time_s)) {
        trace_problem(reader, field, "%s", why);
        return 0;
    }
    request->after = reader->after;
    request->num_after = reader->num_after;
    return time_s;
}

bool trace_note_said(trace_reader *reader, trace_known *session, trace_request *request)
{
    push(reader, request->output_content, request->num_output_tokens); /* says nothing yet */
    request->prompt = reader->segments;                                /* may have moved */
    return !reader->has_problem && trace_memo_say(&reader->shared->sessions, session,
                                                  reader->segments, reader->num_segments);
}

bool trace_fill(trace_reader *reader, trace_request *request, uint32_t num_output_tokens)
{
    /* a later prompt may be this one and its output */
    if (reader->num_tokens + num_output_tokens > TRACE_MAX_TOKENS)
        trace_problem(reader, NULL, "prompt and output have more than %u tokens", TRACE_MAX_TOKENS);
    if (reader->has_problem)
        return false;
    *request = (trace_request){
        .line = reader->line,
        .prompt = reader->segments,
        .num_segments = reader->num_segments,
        .num_prompt_tokens = (uint32_t)reader->num_tokens,
        .num_output_tokens = num_output_tokens,
        .output_content = content_of(TRACE_CONTENT_OUTPUT, reader->shared->num_records, 0),
        .number = reader->shared->number,
        .pin_s = -1,
        .part = (uint32_t)reader->scope,
    };
    return true;
}

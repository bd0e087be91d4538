/* cli/trace/lmcache.c - recorded calls of agents with their texts: JSON lines of the LMCache
 * project's agent traces.
 *
 *   {"session_id": "a", "input": "user: Below ...", "output": "- Use ...",
 *    "timestamp": 1760995776640783}                                a recorded time: open loop
 *   {"session_id": "a", "input": [{"role": "system", "content": "You ..."}, ...],
 *    "output_length": 234, "pre_gap": 1.25}                        seconds since the turn before
 *                                                                  ended: closed loop
 *   ... "session_timestamp": 17.5                                  seconds since the session began
 *
 * "input" is the whole prompt: a text, or a list of messages. There is no tokenizer: a token is
 * four bytes of text. A text is cut into pieces of 64 bytes, and so is each message; equal pieces
 * are equal contents, so prompts share whole pieces from the beginning on. Of a message all strings
 * count that are values.
 *
 * Times are seconds, milliseconds or microseconds since 1970, which their size tells. The rows of a
 * file with times are put in their order, so all of them are read before the first is handed out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "memo.h"
#include "output/grown.h"
#include "reader.h"

enum { BYTES_PER_TOKEN = 4, PIECE_BYTES = 64, MAX_ROWS = 1 << 28 };

#define FNV_START UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

/* A text on its way into pieces. */
typedef struct pieces {
    scan_tap tap; /* first: it is what the scanner knows */
    trace_reader *reader;
    uint64_t hash;
    uint32_t num_bytes; /* of the piece that is being filled */
} pieces;

/* A row of a file with times. */
typedef struct kept {
    uint64_t line;
    uint64_t session;
    uint64_t first_segment;
    uint32_t num_segments;
    uint32_t num_output_tokens;
    double time_s;
} kept;

typedef struct state {
    bool is_read; /* all rows are kept */
    bool is_streamed;
    kept *rows;
    uint32_t num_rows;
    uint32_t room;
    uint32_t next;
    trace_segment *segments;
    uint64_t num_segments;
    uint64_t segment_room;
} state;

typedef struct row {
    double time_s; /* -1: missing, as all others below 0 */
    double pre_gap_s;
    double session_time_s;
    int64_t num_output_tokens;
    uint64_t session;
    bool has_input;
} row;

static void end(trace_reader *reader)
{
    state *st = reader->state;
    free(st->rows);
    free(st->segments);
}

/* ---- texts -------------------------------------------------------------------------- */

static void end_piece(pieces *p)
{
    if (p->num_bytes == 0)
        return;
    uint64_t content = content_of(TRACE_CONTENT_TEXT, p->hash, p->num_bytes);
    trace_push(p->reader, content, (p->num_bytes + BYTES_PER_TOKEN - 1) / BYTES_PER_TOKEN);
    p->hash = FNV_START;
    p->num_bytes = 0;
}

static void take_byte(scan_tap *tap, unsigned char byte)
{
    pieces *p = (pieces *)tap;
    p->hash = (p->hash ^ byte) * FNV_PRIME;
    if (++p->num_bytes == PIECE_BYTES)
        end_piece(p);
}

/* All strings in a value. */
static void take_strings(scanner *scan, pieces *p, int depth)
{
    scan_text text;
    switch (scan_peek(scan)) {
    case JSON_STRING:
        scan_string_to(scan, &text, &p->tap);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    default:
        scan_skip(scan);
        return;
    }
    bool is_object = scan_peek(scan) == JSON_OBJECT;
    if (depth == JSON_MAX_DEPTH) {
        scan->error = "brackets are nested too deep";
        return;
    }
    scan_open(scan, is_object ? '{' : '[');
    while ((is_object ? scan_field(scan, &text) : scan_element(scan)) == 1)
        take_strings(scan, p, depth + 1);
}

static void take_input(trace_reader *reader, scanner *scan, row *r)
{
    pieces p = {.tap = {take_byte}, .reader = reader, .hash = FNV_START};
    scan_kind kind = scan_peek(scan);
    if (kind != JSON_STRING && kind != JSON_ARRAY) {
        if (scan_skip(scan) && kind != JSON_NULL)
            trace_problem(reader, "input", "is neither a string nor a list of messages");
        return;
    }
    if (r->has_input)
        trace_problem(reader, "input", "there is already one");
    r->has_input = true;
    if (kind == JSON_STRING) {
        take_strings(scan, &p, 0);
        end_piece(&p);
        return;
    }
    scan_open(scan, '[');
    while (scan_element(scan) == 1) {
        take_strings(scan, &p, 1);
        end_piece(&p);
    }
}

/* ---- one row ------------------------------------------------------------------------ */

static void take_output(trace_reader *reader, scanner *scan, row *r)
{
    scan_text text;
    if (scan_peek(scan) != JSON_STRING) {
        if (scan_peek(scan) != JSON_NULL)
            trace_problem(reader, "output", "is not a string");
        scan_skip(scan);
        return;
    }
    if (!scan_string(scan, &text) || r->num_output_tokens >= 0)
        return;
    uint64_t num_tokens = (text.num_bytes + BYTES_PER_TOKEN - 1) / BYTES_PER_TOKEN;
    if (num_tokens > TRACE_MAX_TOKENS)
        trace_problem(reader, "output", "has more than %u tokens", TRACE_MAX_TOKENS);
    r->num_output_tokens = (int64_t)num_tokens;
}

/* Numbers of seconds reach 1e11 in the year 5138, and of milliseconds 1e14. */
static double to_seconds(double time)
{
    return time >= 1e14 ? time / 1e6 : time >= 1e11 ? time / 1e3 : time;
}

static void take_timestamp(trace_reader *reader, scanner *scan, row *r)
{
    scan_value value;
    if (scan_peek(scan) != JSON_NUMBER) {
        if (scan_peek(scan) != JSON_NULL)
            trace_problem(reader, "timestamp", "is not a number");
        scan_skip(scan);
        return;
    }
    if (!scan_number(scan, &value))
        return;
    if (value.real < 0)
        trace_problem(reader, "timestamp", "%.*s is negative", value.length, value.text);
    else if (!(value.real < 1e17))
        trace_problem(reader, "timestamp", "%.*s is out of range", value.length, value.text);
    else
        r->time_s = to_seconds(value.real);
}

static void take_other(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    row *r = row_;
    if (scan_is(name, "timestamp"))
        take_timestamp(reader, scan, r);
    else if (scan_is(name, "input"))
        take_input(reader, scan, r);
    else if (scan_is(name, "output"))
        take_output(reader, scan, r);
    else
        scan_skip(scan);
}

static const trace_field fields[] = {
    {"session_id", TRACE_FIELD_KEY, offsetof(row, session)},
    {"pre_gap", TRACE_FIELD_TIME, offsetof(row, pre_gap_s)},
    {"session_timestamp", TRACE_FIELD_TIME, offsetof(row, session_time_s)},
    {"output_length", TRACE_FIELD_LENGTH, offsetof(row, num_output_tokens)},
    {0}};

static trace_outcome read_row(trace_reader *reader, row *r)
{
    *r = (row){.time_s = -1, .pre_gap_s = -1, .session_time_s = -1, .num_output_tokens = -1};
    trace_outcome outcome = trace_next_object(reader, fields, take_other, r);
    if (outcome != TRACE_OK)
        return outcome;
    bool has_gap = r->pre_gap_s >= 0 || r->session_time_s >= 0;
    if (!r->has_input)
        trace_problem(reader, "input", "is missing");
    else if (reader->num_tokens == 0)
        trace_problem(reader, "input", "is empty: a prompt has at least one token");
    if (r->num_output_tokens < 0)
        trace_problem(reader, "output", "is missing, and so is \"output_length\"");
    if (r->session == 0 && has_gap)
        trace_problem(reader, "session_id", "is missing");
    if (r->time_s < 0 && !has_gap)
        trace_problem(reader, "timestamp",
                      "is missing, and so are \"pre_gap\" and \"session_timestamp\"");
    if (r->num_output_tokens == 0)
        r->num_output_tokens = 1; /* an engine that computed a prompt has sampled a token */
    return reader->has_problem ? TRACE_BAD : TRACE_OK;
}

static trace_known *find_session(trace_reader *reader, uint64_t key)
{
    trace_known *known = trace_memo_find(&reader->shared->sessions, key);
    if (known != NULL)
        return known;
    known = trace_memo_add(&reader->shared->sessions, key);
    if (known != NULL)
        known->session = ++reader->shared->num_sessions;
    return known;
}

/* ---- rows with think times, as they come ---------------------------------------------- */

/* What is known of the turn before, if there is one, makes the think time. */
static trace_outcome hand_out(trace_reader *reader, const row *r, trace_request *request)
{
    if (!trace_fill(reader, request, (uint32_t)r->num_output_tokens))
        return TRACE_BAD;
    trace_known *known = find_session(reader, r->session);
    if (known == NULL)
        return trace_no_memory(reader);
    request->session = known->session;
    request->turn = known->turn;
    request->is_closed_loop = true;
    if (known->turn == 0) {
        request->time_s = trace_place_session(reader, 0);
    } else {
        double gap_s = r->session_time_s - known->recorded_s;
        request->think_s = r->pre_gap_s >= 0 ? r->pre_gap_s : isnan(gap_s) ? 0 : fmax(gap_s, 0);
        request->time_s = known->time_s + request->think_s;
    }
    known->turn++;
    known->number = request->number;
    known->time_s = request->time_s;
    known->recorded_s = r->session_time_s >= 0 ? r->session_time_s : NAN;
    return TRACE_OK;
}

/* ---- rows with times, in their order ---------------------------------------------------- */

static trace_outcome keep(trace_reader *reader, const row *r)
{
    state *st = reader->state;
    if (reader->num_tokens + (uint64_t)r->num_output_tokens > TRACE_MAX_TOKENS)
        return trace_problem(reader, NULL, "prompt and output have more than %u tokens",
                             TRACE_MAX_TOKENS);
    if (!grow(&st->rows, st->num_rows, &st->room, MAX_ROWS, sizeof *st->rows) ||
        !reserve(&st->segments, st->num_segments + reader->num_segments, &st->segment_room,
                 sizeof *st->segments))
        return trace_no_memory(reader);
    st->rows[st->num_rows++] = (kept){.line = reader->line,
                                      .session = r->session,
                                      .first_segment = st->num_segments,
                                      .num_segments = reader->num_segments,
                                      .num_output_tokens = (uint32_t)r->num_output_tokens,
                                      .time_s = r->time_s};
    memcpy(st->segments + st->num_segments, reader->segments,
           reader->num_segments * sizeof *st->segments);
    st->num_segments += reader->num_segments;
    return TRACE_OK;
}

static int compare_times(const void *a_, const void *b_)
{
    const kept *a = a_;
    const kept *b = b_;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    return a->line < b->line ? -1 : a->line > b->line;
}

static trace_outcome next_kept(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    if (st->next == st->num_rows)
        return TRACE_END;
    const kept *k = &st->rows[st->next++];
    trace_begin_record(reader, k->line);
    trace_push_all(reader, st->segments + k->first_segment, k->num_segments);
    if (!trace_fill(reader, request, k->num_output_tokens))
        return TRACE_BAD;
    request->time_s = trace_place(reader, k->time_s);
    if (k->session == 0)
        return TRACE_OK;
    trace_known *known = find_session(reader, k->session);
    if (known == NULL)
        return trace_no_memory(reader);
    request->session = known->session;
    request->turn = known->turn++;
    return TRACE_OK;
}

/* The first good row says which form the file has. */
static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    row r;
    while (!st->is_read) {
        trace_outcome outcome = read_row(reader, &r);
        if (outcome == TRACE_END && !st->is_streamed) {
            st->is_read = true;
            if (st->num_rows > 0)
                qsort(st->rows, st->num_rows, sizeof *st->rows, compare_times);
            break;
        }
        if (outcome != TRACE_OK)
            return outcome;
        bool has_time = r.time_s >= 0 && r.pre_gap_s < 0 && r.session_time_s < 0;
        if (st->is_streamed == has_time && (st->is_streamed || st->num_rows > 0))
            return trace_problem(
                reader, has_time ? "timestamp" : "pre_gap", "earlier records of the file have %s",
                has_time ? "\"pre_gap\" or \"session_timestamp\"" : "\"timestamp\"");
        st->is_streamed = !has_time;
        if (!has_time)
            return hand_out(reader, &r, request);
        outcome = keep(reader, &r);
        if (outcome != TRACE_OK)
            return outcome;
    }
    return next_kept(reader, request);
}

const trace_kind trace_lmcache = {
    .format = TRACE_LMCACHE,
    .name = "lmcache",
    .alias = "lmcache-agent-trace",
    .state_bytes = sizeof(state),
    .next = next,
    .end = end,
};

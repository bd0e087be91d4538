/* cli/trace/mooncake.c - Mooncake's JSON lines, and what Dynamo made of them.
 *
 *   plain     {"timestamp": 3000, "input_length": 1100, "output_length": 60, "hash_ids": [0, 1, 7]}
 *             one id for each 512 tokens of the prompt; times in ms; open loop
 *   sessions  ... "session_id": "a", and from the second turn on "delay": 50 (or "timestamp", whose
 *             distance to the one before is the delay): closed loop
 *   agentic   ... "request_id": "r2", "wait_for": ["r1", "s4"], "delay", "tool_wait_ms": after the
 *             end of all of those. Version 2: a header with "schema" and "block_size", then rows
 *             with "play_id", "not_before_ms" and "dependencies"
 *   delta     rows as with sessions, whose ids and length are those of what is new: the prompt is
 *             the prompt before, what was generated, and these. It looks like the others: it must
 *             be named
 */
#include <math.h>

#include "memo.h"
#include "reader.h"

typedef struct row {
    int64_t num_prompt_tokens; /* -1: missing, as all others below 0 */
    int64_t num_output_tokens;
    double time_ms;
    double delay_ms;
    double tool_wait_ms;
    bool has_ids;
    bool is_header;
    bool is_agentic; /* without wait_for it comes at its time, whatever its session did */
    uint64_t session;
    uint64_t request;
    uint64_t play;
    uint64_t block_size;
    int32_t priority;
} row;

static bool is_delta(const trace_reader *reader)
{
    return reader->kind == &trace_mooncake_delta;
}

/* ---- one row --------------------------------------------------------------- */

/* Version 2: whom it waits for and how long after; the longest delay holds for all. What waits for
 * the start of another one, not for its end, counts as started with it. */
static void take_dependencies(trace_reader *reader, scanner *scan, row *r)
{
    static const char field[] = "dependencies";
    typedef struct dependency {
        uint64_t request;
        double delay_ms;
    } dependency;
    static const trace_field parts[] = {
        {"request_id", TRACE_FIELD_KEY, offsetof(dependency, request)},
        {"delay_ms", TRACE_FIELD_TIME, offsetof(dependency, delay_ms)},
        {0}};
    if (!trace_open_list(reader, scan, field))
        return;
    while (scan_element(scan) == 1) {
        dependency d = {0};
        if (scan_peek(scan) != JSON_OBJECT) {
            trace_problem(reader, field, "has an element that is not an object");
            scan_skip(scan);
            continue;
        }
        trace_take_object(reader, scan, parts, NULL, &d);
        if (d.request == 0)
            trace_problem(reader, field, "has an element without \"request_id\"");
        trace_add_after(reader, d.request);
        r->delay_ms = fmax(r->delay_ms, d.delay_ms);
    }
}

static void take_other(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    row *r = row_;
    if (scan_is(name, "wait_for") || scan_is(name, "branches") || scan_is(name, "prefix_reset") ||
        scan_is(name, "play_id"))
        r->is_agentic = true;
    if (scan_is(name, "hash_ids")) {
        r->has_ids = scan_peek(scan) != JSON_NULL;
        trace_take_ids(reader, scan, "hash_ids");
    } else if (scan_is(name, "play_id")) {
        trace_take_key(reader, scan, "play_id", &r->play);
    } else if (scan_is(name, "wait_for")) {
        trace_take_after(reader, scan, "wait_for");
    } else if (scan_is(name, "dependencies")) {
        take_dependencies(reader, scan, r);
    } else {
        r->is_header = r->is_header || scan_is(name, "schema");
        scan_skip(scan);
    }
}

static const trace_field fields[] = {
    {"timestamp", TRACE_FIELD_TIME, offsetof(row, time_ms)},
    {"created_time", TRACE_FIELD_TIME, offsetof(row, time_ms)},
    {"not_before_ms", TRACE_FIELD_TIME, offsetof(row, time_ms)},
    {"input_length", TRACE_FIELD_LENGTH, offsetof(row, num_prompt_tokens)},
    {"input_tokens", TRACE_FIELD_LENGTH, offsetof(row, num_prompt_tokens)},
    {"output_length", TRACE_FIELD_LENGTH, offsetof(row, num_output_tokens)},
    {"output_tokens", TRACE_FIELD_LENGTH, offsetof(row, num_output_tokens)},
    {"delay", TRACE_FIELD_TIME, offsetof(row, delay_ms)},
    {"delay_ms", TRACE_FIELD_TIME, offsetof(row, delay_ms)},
    {"tool_wait_ms", TRACE_FIELD_TIME, offsetof(row, tool_wait_ms)},
    {"block_size", TRACE_FIELD_U64, offsetof(row, block_size)},
    {"priority", TRACE_FIELD_PRIORITY, offsetof(row, priority)},
    {"session_id", TRACE_FIELD_KEY, offsetof(row, session)},
    {"request_id", TRACE_FIELD_KEY, offsetof(row, request)},
    {0}};

static trace_outcome read_row(trace_reader *reader, row *r)
{
    *r = (row){.num_prompt_tokens = -1, .num_output_tokens = -1, .time_ms = -1, .delay_ms = -1};
    return trace_next_object(reader, fields, take_other, r);
}

/* ---- a row becomes a request ----------------------------------------------- */

static trace_outcome take_header(trace_reader *reader, const row *r)
{
    if (r->block_size == 0 || r->block_size > TRACE_MAX_TOKENS)
        return trace_problem(reader, "block_size", "is missing or out of range");
    reader->id_block_size = (uint32_t)r->block_size;
    reader->are_ids_local = true;
    return TRACE_OK;
}

static void push_prompt(trace_reader *reader, const row *r, const trace_known *session)
{
    uint32_t num_tokens = (uint32_t)r->num_prompt_tokens;
    if (is_delta(reader) && session != NULL)
        trace_push_all(reader, session->said, session->num_said);
    if (r->has_ids)
        trace_push_ids(reader, "hash_ids", reader->ids, reader->num_ids, num_tokens,
                       reader->id_block_size, reader->are_ids_local ? r->play : 0);
    else
        trace_push_unique(reader, num_tokens);
}

static void place(trace_reader *reader, const row *r, const trace_known *session,
                  trace_request *request)
{
    double wait_s = (fmax(r->delay_ms, 0) + r->tool_wait_ms) / 1000;
    request->turn = session != NULL ? session->turn : 0;
    if (reader->num_after > 0) {
        double ready_s =
            trace_find_waits(reader, "wait_for", "no earlier request has this name", request);
        request->is_closed_loop = true;
        request->think_s = wait_s;
        request->time_s = ready_s + wait_s;
        return;
    }
    request->is_closed_loop = r->session != 0 && !r->is_agentic;
    bool is_later_turn = session != NULL && !r->is_agentic;
    if (!is_later_turn && r->time_ms < 0) {
        trace_problem(reader, "timestamp", "is missing");
    } else if (!is_later_turn) {
        request->time_s = trace_place(reader, r->time_ms / 1000);
    } else {
        if (r->delay_ms < 0 && r->time_ms >= 0 && !isnan(session->recorded_s)) {
            wait_s += r->time_ms / 1000 - session->recorded_s;
            if (wait_s < 0)
                trace_problem(reader, "timestamp", "is earlier than that of the turn before");
        }
        request->think_s = wait_s;
        request->time_s = session->time_s + wait_s;
    }
}

static bool note(trace_reader *reader, const row *r, trace_request *request)
{
    if (r->session != 0) {
        trace_known *known = trace_memo_find(&reader->shared->sessions, r->session);
        if (known == NULL) {
            known = trace_memo_add(&reader->shared->sessions, r->session);
            if (known == NULL)
                return false;
            known->session = ++reader->shared->num_sessions;
        }
        request->session = known->session;
        known->turn = request->turn + 1;
        known->number = request->number;
        known->time_s = request->time_s;
        known->recorded_s = r->time_ms >= 0 ? r->time_ms / 1000 : NAN;
        if (is_delta(reader) && !trace_note_said(reader, known, request))
            return false;
    }
    return trace_memo_note(&reader->shared->requests, r->request, request);
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    row r;
    trace_outcome outcome = read_row(reader, &r);
    while (outcome == TRACE_OK && r.is_header) {
        outcome = take_header(reader, &r);
        if (outcome == TRACE_OK)
            outcome = read_row(reader, &r);
    }
    if (outcome != TRACE_OK)
        return outcome;
    if (!trace_check_lengths(reader, "input_length", r.num_prompt_tokens, "output_length",
                             &r.num_output_tokens))
        return TRACE_BAD;
    const trace_known *session =
        r.session != 0 ? trace_memo_find(&reader->shared->sessions, r.session) : NULL;
    push_prompt(reader, &r, session);
    if (!trace_fill(reader, request, (uint32_t)r.num_output_tokens))
        return TRACE_BAD;
    request->id_block_size = r.has_ids && !is_delta(reader) ? reader->id_block_size : 0;
    request->priority = r.priority;
    place(reader, &r, session, request);
    if (reader->has_problem)
        return TRACE_BAD;
    if (!note(reader, &r, request))
        return trace_no_memory(reader);
    return TRACE_OK;
}

const trace_kind trace_mooncake = {
    .format = TRACE_MOONCAKE,
    .name = "mooncake",
    .alias = "agentic_mooncake",
    .id_block_size = 512,
    .next = next,
};

const trace_kind trace_mooncake_delta = {
    .format = TRACE_MOONCAKE_DELTA,
    .name = "mooncake-delta",
    .alias = "mooncake_delta",
    .id_block_size = 512,
    .next = next,
};

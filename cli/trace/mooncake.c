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
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "memo.h"
#include "reader.h"

enum { USUAL_BLOCK_SIZE = 512 };

typedef struct row {
    int64_t num_prompt_tokens; /* -1: missing, as all others below 0 */
    int64_t num_output_tokens;
    double time_ms;
    double delay_ms;
    double tool_wait_ms;
    bool has_ids;
    bool is_header;
    bool is_agentic;    /* without wait_for it comes at its time, whatever its session did */
    uint32_t num_waits; /* the first ids are keys of what it waits for, the others block ids */
    uint64_t session;
    uint64_t request;
    uint64_t play;
    uint64_t block_size;
    int32_t priority;
} row;

typedef struct state {
    trace_memo sessions;
    trace_memo requests; /* by request_id */
    uint32_t block_size;
    bool are_ids_local; /* to a play */
    bool is_delta;
    uint64_t *after;
    uint32_t after_room;
} state;

static bool begin(trace_reader *reader)
{
    state *st = reader->state;
    st->block_size = reader->options.id_block_size;
    if (st->block_size == 0)
        st->block_size = USUAL_BLOCK_SIZE;
    st->is_delta = reader->kind == &trace_mooncake_delta;
    return trace_memo_begin(&st->sessions, TRACE_MEMO_ENTRIES) &&
           trace_memo_begin(&st->requests, TRACE_MEMO_ENTRIES);
}

static void end(trace_reader *reader)
{
    state *st = reader->state;
    trace_memo_end(&st->sessions);
    trace_memo_end(&st->requests);
    free(st->after);
}

/* ---- one row --------------------------------------------------------------- */

/* Version 2: whom it waits for and how long after; the longest delay holds for all. What waits for
 * the start of another one, not for its end, counts as started with it. */
static void take_dependencies(trace_reader *reader, scanner *scan, row *r)
{
    static const char field[] = "dependencies";
    if (scan_peek(scan) != JSON_ARRAY) {
        if (scan_peek(scan) != JSON_NULL)
            trace_problem(reader, field, "is not a list");
        scan_skip(scan);
        return;
    }
    scan_open(scan, '[');
    while (scan_element(scan) == 1) {
        uint64_t key = 0;
        double delay_ms = 0;
        scan_text name;
        if (scan_peek(scan) != JSON_OBJECT) {
            trace_problem(reader, field, "has an element that is not an object");
            scan_skip(scan);
            continue;
        }
        scan_open(scan, '{');
        while (scan_field(scan, &name) == 1) {
            if (scan_is(&name, "request_id"))
                trace_take_key(reader, scan, field, &key);
            else if (scan_is(&name, "delay_ms"))
                trace_take_time(reader, scan, field, &delay_ms);
            else
                scan_skip(scan);
        }
        if (key == 0)
            trace_problem(reader, field, "has an element without \"request_id\"");
        trace_add_id(reader, key);
        if (delay_ms > r->delay_ms)
            r->delay_ms = delay_ms;
    }
}

/* Ids of both lists lie in one array; whoever comes second moves behind, or before. */
static void put_waits_first(trace_reader *reader, row *r, uint32_t first)
{
    uint32_t num_new = reader->num_ids - first;
    if (num_new == 0)
        return;
    for (uint32_t i = 0; i < num_new; i++)
        trace_add_id(reader, reader->ids[first + i]);
    if (reader->num_ids != first + 2 * num_new)
        return; /* no memory, which was noted */
    memmove(reader->ids + num_new, reader->ids, first * sizeof *reader->ids);
    memcpy(reader->ids, reader->ids + first + num_new, num_new * sizeof *reader->ids);
    reader->num_ids = first + num_new;
    r->num_waits += num_new;
}

static void take_text_field(trace_reader *reader, scanner *scan, const scan_text *name, row *r)
{
    uint32_t first = reader->num_ids;
    if (scan_is(name, "wait_for") || scan_is(name, "branches") || scan_is(name, "prefix_reset") ||
        scan_is(name, "play_id"))
        r->is_agentic = true;
    if (scan_is(name, "session_id")) {
        trace_take_key(reader, scan, "session_id", &r->session);
    } else if (scan_is(name, "request_id")) {
        trace_take_key(reader, scan, "request_id", &r->request);
    } else if (scan_is(name, "play_id")) {
        trace_take_key(reader, scan, "play_id", &r->play);
    } else if (scan_is(name, "wait_for")) {
        trace_take_keys(reader, scan, "wait_for");
        put_waits_first(reader, r, first);
    } else if (scan_is(name, "dependencies")) {
        take_dependencies(reader, scan, r);
        put_waits_first(reader, r, first);
    } else if (scan_is(name, "schema")) {
        r->is_header = true;
        scan_skip(scan);
    } else {
        scan_skip(scan);
    }
}

static void take_field(trace_reader *reader, scanner *scan, const scan_text *name, row *r)
{
    if (scan_is(name, "hash_ids")) {
        r->has_ids = scan_peek(scan) != JSON_NULL;
        trace_take_ids(reader, scan, "hash_ids");
    } else if (scan_is(name, "timestamp") || scan_is(name, "created_time") ||
               scan_is(name, "not_before_ms")) {
        trace_take_time(reader, scan, name->head, &r->time_ms);
    } else if (scan_is(name, "input_length") || scan_is(name, "input_tokens")) {
        trace_take_length(reader, scan, name->head, &r->num_prompt_tokens);
    } else if (scan_is(name, "output_length") || scan_is(name, "output_tokens")) {
        trace_take_length(reader, scan, name->head, &r->num_output_tokens);
    } else if (scan_is(name, "delay") || scan_is(name, "delay_ms")) {
        trace_take_time(reader, scan, name->head, &r->delay_ms);
    } else if (scan_is(name, "tool_wait_ms")) {
        trace_take_time(reader, scan, "tool_wait_ms", &r->tool_wait_ms);
    } else if (scan_is(name, "block_size")) {
        trace_take_u64(reader, scan, "block_size", &r->block_size);
    } else if (scan_is(name, "priority")) {
        trace_take_priority(reader, scan, "priority", &r->priority);
    } else {
        take_text_field(reader, scan, name, r);
    }
}

static trace_outcome read_row(trace_reader *reader, row *r)
{
    char *line;
    size_t length;
    trace_outcome outcome = trace_next_line(reader, &line, &length);
    if (outcome != TRACE_OK)
        return outcome;
    *r = (row){.num_prompt_tokens = -1, .num_output_tokens = -1, .time_ms = -1, .delay_ms = -1};
    scanner scan;
    scan_text name;
    scan_of_text(&scan, line, length);
    scan_open(&scan, '{');
    while (scan_field(&scan, &name) == 1)
        take_field(reader, &scan, &name, r);
    return trace_end_line(reader, &scan);
}

/* ---- a row becomes a request ----------------------------------------------- */

static trace_outcome take_header(trace_reader *reader, const row *r)
{
    state *st = reader->state;
    if (r->block_size == 0 || r->block_size > TRACE_MAX_TOKENS)
        return trace_problem(reader, "block_size", "is missing or out of range");
    st->block_size = (uint32_t)r->block_size;
    st->are_ids_local = true;
    return TRACE_OK;
}

static void push_prompt(trace_reader *reader, const row *r, const trace_known *session)
{
    state *st = reader->state;
    uint32_t num_tokens = (uint32_t)r->num_prompt_tokens;
    if (st->is_delta && session != NULL)
        for (uint32_t i = 0; i < session->num_said; i++)
            trace_push(reader, session->said[i].content, session->said[i].num_tokens);
    if (r->has_ids)
        trace_push_ids(reader, "hash_ids", reader->ids + r->num_waits,
                       reader->num_ids - r->num_waits, num_tokens, st->block_size,
                       st->are_ids_local ? r->play : 0);
    else
        trace_push_unique(reader, num_tokens);
}

/* What it waits for, as numbers of requests; the earliest time that leaves. */
static double find_waits(trace_reader *reader, const row *r, trace_request *request)
{
    state *st = reader->state;
    double time_s = 0;
    if (r->num_waits > st->after_room) {
        uint64_t *after = realloc(st->after, r->num_waits * sizeof *after);
        if (after == NULL) {
            trace_no_memory(reader);
            return 0;
        }
        st->after = after;
        st->after_room = r->num_waits;
    }
    if (!trace_memo_number(&st->requests, reader->ids, r->num_waits, st->after, &time_s)) {
        trace_problem(reader, "wait_for", "no earlier request has this name");
        return 0;
    }
    request->after = st->after;
    request->num_after = r->num_waits;
    return time_s;
}

static void place(trace_reader *reader, const row *r, const trace_known *session,
                  trace_request *request)
{
    double wait_s = (fmax(r->delay_ms, 0) + r->tool_wait_ms) / 1000;
    request->turn = session != NULL ? session->turn : 0;
    if (r->num_waits > 0) {
        double ready_s = find_waits(reader, r, request);
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
    state *st = reader->state;
    if (r->session != 0) {
        trace_known *known = trace_memo_find(&st->sessions, r->session);
        if (known == NULL) {
            known = trace_memo_add(&st->sessions, r->session);
            if (known == NULL)
                return false;
            known->session = ++reader->num_sessions;
        }
        request->session = known->session;
        known->turn = request->turn + 1;
        known->number = request->number;
        known->time_s = request->time_s;
        known->recorded_s = r->time_ms >= 0 ? r->time_ms / 1000 : NAN;
        if (st->is_delta) {
            trace_push(reader, request->output_content, request->num_output_tokens);
            if (reader->has_problem ||
                !trace_memo_say(&st->sessions, known, reader->segments, reader->num_segments))
                return false;
            request->prompt = reader->segments; /* may have moved */
        }
    }
    return trace_memo_note(&st->requests, r->request, request);
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
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
    const trace_known *session = r.session != 0 ? trace_memo_find(&st->sessions, r.session) : NULL;
    push_prompt(reader, &r, session);
    if (!trace_fill(reader, request, (uint32_t)r.num_output_tokens))
        return TRACE_BAD;
    request->id_block_size = r.has_ids && !st->is_delta ? st->block_size : 0;
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
    .state_bytes = sizeof(state),
    .begin = begin,
    .next = next,
    .end = end,
};

const trace_kind trace_mooncake_delta = {
    .format = TRACE_MOONCAKE_DELTA,
    .name = "mooncake-delta",
    .alias = "mooncake_delta",
    .state_bytes = sizeof(state),
    .begin = begin,
    .next = next,
    .end = end,
};

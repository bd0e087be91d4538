/* cli/trace/dynamo.c - request traces of NVIDIA Dynamo (dynamo.request.trace.v1): JSON lines.
 *
 *   {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1100,
 *    "agent_context": {"session_id": "child", "parent_session_id": "root"},
 *    "request": {"request_id": "r1", "request_received_ms": 1000, "total_time_ms": 100,
 *                "output_tokens": 4,
 *                "replay": {"trace_block_size": 64, "input_length": 100,
 *                           "input_sequence_hashes": [14879255164371896291, 7]}}}
 *
 * or the same as {"timestamp": ..., "event": {...}}. A line is written when a request has ended, so
 * the lines do not stand in the order in which the requests came: all requests are read before the
 * first one is handed out, of all files of a folder. A hash stands for the tokens of its block and
 * all before them. Without agent_context a request comes at its time: an open loop. With it, it
 * waits for others (workflow.h): a closed loop. Of the events of tools, "tool_end" and "tool_error"
 * may say which request launched a session ("claude"); the other events say nothing of requests.
 */
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "output/grown.h"
#include "reader.h"
#include "workflow.h"

enum { MAX_REQUESTS = 1 << 30 };

static const char schema[] = "dynamo.request.trace.v1";

typedef enum event {
    EVENT_MISSING,
    EVENT_REQUEST,
    EVENT_TOOL,  /* of which it is known what came of it */
    EVENT_OTHER, /* says nothing of requests */
    EVENT_UNKNOWN
} event;

typedef struct row {
    event event;
    bool has_schema;
    bool has_request;
    bool has_replay;
    double event_ms; /* -1: missing, as all others below 0 */
    double received_ms;
    double total_ms;
    int64_t num_output_tokens;
    int64_t num_prompt_tokens;
    uint64_t block_size;
    uint64_t id;
    uint64_t session;
    uint64_t parent;
    uint64_t child;
    uint64_t source;
    uint64_t consumer;
} row;

/* Where a record stands. */
typedef struct spot {
    uint64_t line;
    uint32_t file;
} spot;

typedef struct kept {
    spot at;
    size_t first_hash;
    uint32_t num_hashes;
    uint32_t block_size;
    uint32_t num_prompt_tokens;
    uint32_t num_output_tokens;
    uint64_t number; /* among the requests, once it is handed out */
    double time_s;
} kept;

typedef struct state {
    workflow_request *requests;
    kept *kept;
    uint32_t num;
    uint32_t request_room;
    uint32_t kept_room;
    uint64_t *hashes;
    uint64_t num_hashes;
    uint64_t hash_room;
    workflow_launch *launches;
    spot *launched_at;
    uint32_t num_launches;
    uint32_t launch_room;
    uint32_t spot_room;
    workflow flow;
    bool is_read;
    uint32_t next;
    double start_ms; /* of the first request */
    uint64_t first_session;
} state;

static void end(trace_reader *reader)
{
    state *st = reader->state;
    workflow_free(&st->flow);
    free(st->requests);
    free(st->kept);
    free(st->hashes);
    free(st->launches);
    free(st->launched_at);
}

/* ---- one line ---------------------------------------------------------------- */

/* An object's fields; null is none, and anything else a problem. */
static bool take_part(trace_reader *reader, scanner *scan, const char *name,
                      const trace_field *fields, trace_take_other *other, row *r)
{
    scan_kind kind = scan_peek(scan);
    if (kind == JSON_OBJECT) {
        trace_take_object(reader, scan, fields, other, r);
        return true;
    }
    if (kind != JSON_NULL && kind != JSON_NOTHING)
        trace_problem(reader, name, "is not an object");
    scan_skip(scan);
    return false;
}

/* False: no string; it is taken all the same. */
static bool take_string(trace_reader *reader, scanner *scan, const char *field, scan_text *text)
{
    if (scan_peek(scan) == JSON_STRING)
        return scan_string(scan, text);
    if (scan_skip(scan))
        trace_problem(reader, field, "is not a string");
    return false;
}

static void take_event_type(trace_reader *reader, scanner *scan, row *r)
{
    static const struct {
        const char *name;
        event event;
    } known[] = {{"request_end", EVENT_REQUEST},
                 {"request_payload", EVENT_OTHER},
                 {"tool_start", EVENT_OTHER},
                 {"tool_end", EVENT_TOOL},
                 {"tool_error", EVENT_TOOL}};
    scan_text name;
    if (!take_string(reader, scan, "event_type", &name))
        return;
    r->event = EVENT_UNKNOWN;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (scan_is(&name, known[i].name))
            r->event = known[i].event;
    if (r->event == EVENT_UNKNOWN)
        trace_problem(reader, "event_type",
                      "\"%s\" is unknown (expected request_end, request_payload, tool_start, "
                      "tool_end or tool_error)",
                      name.head);
}

static void take_schema(trace_reader *reader, scanner *scan, row *r)
{
    scan_text name;
    if (!take_string(reader, scan, "schema", &name))
        return;
    r->has_schema = true;
    if (!scan_is(&name, schema))
        trace_problem(reader, "schema", "\"%s\" is unknown (expected %s)", name.head, schema);
}

static void take_of_replay(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    (void)row_;
    if (scan_is(name, "input_sequence_hashes"))
        trace_take_ids(reader, scan, "input_sequence_hashes");
    else
        scan_skip(scan);
}

static void take_of_request(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    static const trace_field fields[] = {
        {"trace_block_size", TRACE_FIELD_U64, offsetof(row, block_size)},
        {"input_length", TRACE_FIELD_LENGTH, offsetof(row, num_prompt_tokens)},
        {0}};
    row *r = row_;
    if (scan_is(name, "replay"))
        r->has_replay = take_part(reader, scan, "replay", fields, take_of_replay, r);
    else
        scan_skip(scan);
}

static void take_of_tool(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    static const trace_field fields[] = {
        {"child_session_id", TRACE_FIELD_KEY, offsetof(row, child)},
        {"source_request_id", TRACE_FIELD_KEY, offsetof(row, source)},
        {"consumer_request_id", TRACE_FIELD_KEY, offsetof(row, consumer)},
        {0}};
    if (scan_is(name, "claude"))
        take_part(reader, scan, "claude", fields, NULL, row_);
    else
        scan_skip(scan);
}

static const trace_field record_fields[] = {
    {"event_time_unix_ms", TRACE_FIELD_TIME, offsetof(row, event_ms)}, {0}};

static void take_of_record(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    static const trace_field request[] = {
        {"request_id", TRACE_FIELD_KEY, offsetof(row, id)},
        {"request_received_ms", TRACE_FIELD_TIME, offsetof(row, received_ms)},
        {"total_time_ms", TRACE_FIELD_TIME, offsetof(row, total_ms)},
        {"output_tokens", TRACE_FIELD_LENGTH, offsetof(row, num_output_tokens)},
        {0}};
    static const trace_field context[] = {
        {"session_id", TRACE_FIELD_KEY, offsetof(row, session)},
        {"parent_session_id", TRACE_FIELD_KEY, offsetof(row, parent)},
        {0}};
    static const trace_field none[] = {{0}};
    row *r = row_;
    if (scan_is(name, "event_type"))
        take_event_type(reader, scan, r);
    else if (scan_is(name, "schema"))
        take_schema(reader, scan, r);
    else if (scan_is(name, "request"))
        r->has_request = take_part(reader, scan, "request", request, take_of_request, r);
    else if (scan_is(name, "agent_context"))
        take_part(reader, scan, "agent_context", context, NULL, r);
    else if (scan_is(name, "tool"))
        take_part(reader, scan, "tool", none, take_of_tool, r);
    else
        scan_skip(scan);
}

/* The record itself, or "event" around it. */
static void take_of_line(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    if (scan_is(name, "event"))
        take_part(reader, scan, "event", record_fields, take_of_record, row_);
    else
        take_of_record(reader, scan, name, row_);
}

/* ---- what is kept of it --------------------------------------------------------- */

/* All that can be wrong with it: once it is kept, others may wait for it. */
static void check_request(trace_reader *reader, row *r)
{
    if (!r->has_request)
        trace_problem(reader, "request", "is missing");
    else if (r->id == 0)
        trace_problem(reader, "request_id", "is missing");
    else if (r->received_ms < 0)
        trace_problem(reader, "request_received_ms", "is missing");
    else if (!r->has_replay)
        trace_problem(reader, "replay", "is missing");
    else if (r->block_size == 0 || r->block_size > TRACE_MAX_TOKENS)
        trace_problem(reader, "trace_block_size", "is missing or out of range (expected 1..%u)",
                      TRACE_MAX_TOKENS);
    else if (trace_check_lengths(reader, "input_length", r->num_prompt_tokens, "output_tokens",
                                 &r->num_output_tokens))
        trace_ids_fit(reader, "input_sequence_hashes", reader->num_ids,
                      (uint32_t)r->num_prompt_tokens, (uint32_t)r->block_size);
    if (!reader->has_problem && r->num_prompt_tokens + r->num_output_tokens > TRACE_MAX_TOKENS)
        trace_problem(reader, NULL, "prompt and output have more than %u tokens", TRACE_MAX_TOKENS);
}

/* The time in which it was served: as recorded, or until its line was written. */
static double duration_ms(const row *r)
{
    if (r->total_ms >= 0)
        return r->total_ms;
    return r->event_ms > r->received_ms ? r->event_ms - r->received_ms : 0;
}

static spot spot_of(const trace_reader *reader)
{
    return (spot){reader->line, reader->num_opened > 0 ? reader->num_opened - 1 : 0};
}

static trace_outcome keep_request(trace_reader *reader, row *r)
{
    state *st = reader->state;
    check_request(reader, r);
    if (reader->has_problem)
        return TRACE_BAD;
    if (!grow(&st->requests, st->num, &st->request_room, MAX_REQUESTS, sizeof *st->requests) ||
        !grow(&st->kept, st->num, &st->kept_room, MAX_REQUESTS, sizeof *st->kept) ||
        !reserve(&st->hashes, st->num_hashes + reader->num_ids, &st->hash_room, sizeof *st->hashes))
        return trace_no_memory(reader);
    st->requests[st->num] = (workflow_request){.id = r->id,
                                               .session = r->session,
                                               .parent = r->parent,
                                               .start_ms = r->received_ms,
                                               .end_ms = r->received_ms + duration_ms(r)};
    st->kept[st->num] = (kept){.at = spot_of(reader),
                               .first_hash = st->num_hashes,
                               .num_hashes = reader->num_ids,
                               .block_size = (uint32_t)r->block_size,
                               .num_prompt_tokens = (uint32_t)r->num_prompt_tokens,
                               .num_output_tokens = (uint32_t)r->num_output_tokens};
    if (reader->num_ids > 0)
        memcpy(st->hashes + st->num_hashes, reader->ids, reader->num_ids * sizeof *st->hashes);
    st->num_hashes += reader->num_ids;
    st->num++;
    return TRACE_OK;
}

static trace_outcome keep_launch(trace_reader *reader, const row *r)
{
    state *st = reader->state;
    if (r->child == 0)
        return TRACE_OK;
    if (r->source == 0)
        return trace_problem(reader, "source_request_id", "is missing");
    if (!grow(&st->launches, st->num_launches, &st->launch_room, MAX_REQUESTS,
              sizeof *st->launches) ||
        !grow(&st->launched_at, st->num_launches, &st->spot_room, MAX_REQUESTS,
              sizeof *st->launched_at))
        return trace_no_memory(reader);
    st->launches[st->num_launches] = (workflow_launch){r->child, r->source, r->consumer};
    st->launched_at[st->num_launches++] = spot_of(reader);
    return TRACE_OK;
}

static trace_outcome read_record(trace_reader *reader)
{
    row r = {.event_ms = -1,
             .received_ms = -1,
             .total_ms = -1,
             .num_output_tokens = -1,
             .num_prompt_tokens = -1};
    trace_outcome outcome = trace_next_object(reader, record_fields, take_of_line, &r);
    if (outcome != TRACE_OK)
        return outcome;
    if (r.event == EVENT_MISSING)
        return trace_problem(reader, "event_type", "is missing");
    if (!r.has_schema)
        return trace_problem(reader, "schema", "is missing");
    if (r.event == EVENT_REQUEST)
        return keep_request(reader, &r);
    return r.event == EVENT_TOOL ? keep_launch(reader, &r) : TRACE_OK;
}

/* ---- all of them ------------------------------------------------------------------ */

/* What is wrong with the whole, at the record where it shows. */
static trace_outcome refuse(trace_reader *reader, workflow_problem problem, uint32_t at)
{
    static const struct {
        const char *field;
        const char *why;
    } sentences[] = {
        [WORKFLOW_SAME_ID] = {"request_id", "an earlier request has the same one"},
        [WORKFLOW_TWO_PARENTS] = {"parent_session_id",
                                  "an earlier request of the session has another one"},
        [WORKFLOW_UNKNOWN_LAUNCH] = {"source_request_id", "it, or consumer_request_id, is not a "
                                                          "request of the session's parent"},
        [WORKFLOW_TWO_LAUNCHES] = {"child_session_id", "another tool has launched this session"},
        [WORKFLOW_CYCLE] = {"request_id", "the request waits for itself, through other requests"}};
    state *st = reader->state;
    bool is_launch = problem == WORKFLOW_UNKNOWN_LAUNCH || problem == WORKFLOW_TWO_LAUNCHES;
    trace_begin_record(reader, 0);
    if (problem == WORKFLOW_NO_MEMORY)
        return trace_no_memory(reader);
    spot place = is_launch ? st->launched_at[at] : st->kept[at].at;
    reader->line = place.line;
    reader->name = reader->files != NULL ? reader->files[place.file] : NULL;
    trace_problem(reader, sentences[problem].field, "%s", sentences[problem].why);
    return TRACE_BROKEN;
}

static trace_outcome read_all(trace_reader *reader)
{
    state *st = reader->state;
    trace_outcome outcome;
    do {
        outcome = read_record(reader);
        if (outcome == TRACE_END) {
            outcome = trace_next_file(reader);
            if (outcome == TRACE_END)
                st->is_read = true;
        }
    } while (outcome == TRACE_OK);
    if (!st->is_read)
        return outcome;
    uint32_t at;
    workflow_problem problem =
        workflow_find(&st->flow, st->requests, st->num, st->launches, st->num_launches, &at);
    if (problem != WORKFLOW_OK)
        return refuse(reader, problem, at);
    st->first_session = reader->shared->num_sessions;
    for (uint32_t i = 0; i < st->num; i++) {
        const workflow_request *r = &st->requests[i];
        st->start_ms = i == 0 || r->start_ms < st->start_ms ? r->start_ms : st->start_ms;
        if (r->session != 0 && r->is_last_turn)
            reader->shared->num_sessions++;
    }
    return TRACE_OK;
}

static void push_prompt(trace_reader *reader, const kept *k)
{
    uint32_t left = k->num_prompt_tokens;
    for (uint32_t i = 0; i < k->num_hashes && left > 0; i++) {
        uint32_t n = left < k->block_size ? left : k->block_size;
        uint64_t hash = ((const state *)reader->state)->hashes[k->first_hash + i];
        trace_push(reader, content_of(TRACE_CONTENT_HASH, hash, k->block_size), n);
        left -= n;
    }
    if (left > 0)
        trace_push(reader, content_of(TRACE_CONTENT_TAIL, reader->shared->num_records, 0), left);
}

/* A turn that waits for the turn before alone needs no list. */
static void place(trace_reader *reader, const workflow_request *r, trace_request *request)
{
    const state *st = reader->state;
    const uint32_t *waits = st->flow.waits + r->first_wait;
    double ready_s = 0;
    if (r->num_waits == 0) {
        request->time_s = trace_place(reader, (r->start_ms - st->start_ms) / 1000);
        return;
    }
    for (uint32_t i = 0; i < r->num_waits; i++) {
        const kept *k = &st->kept[waits[i]];
        trace_add_after(reader, k->number);
        ready_s = k->time_s > ready_s ? k->time_s : ready_s;
    }
    bool is_turn_before = st->requests[waits[0]].session == r->session;
    if (r->num_waits > 1 || !is_turn_before) {
        request->after = reader->after;
        request->num_after = reader->num_after;
    }
    request->think_s = r->think_ms / 1000;
    request->time_s = ready_s + request->think_s;
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    trace_outcome outcome = st->is_read ? TRACE_OK : read_all(reader);
    if (outcome != TRACE_OK || st->next == st->num)
        return outcome == TRACE_OK ? TRACE_END : outcome;
    uint32_t index = st->flow.order[st->next++];
    const workflow_request *r = &st->requests[index];
    kept *k = &st->kept[index];
    trace_begin_record(reader, k->at.line);
    push_prompt(reader, k);
    if (!trace_fill(reader, request, k->num_output_tokens))
        return TRACE_BAD;
    request->session = r->session != 0 ? st->first_session + r->session_number : 0;
    request->turn = r->turn;
    request->is_last_turn = r->is_last_turn;
    request->is_closed_loop = r->session != 0;
    request->id_block_size = k->block_size;
    request->file = reader->files != NULL ? reader->files[k->at.file] : NULL;
    place(reader, r, request);
    if (reader->has_problem)
        return TRACE_BAD;
    k->number = request->number;
    k->time_s = request->time_s;
    return TRACE_OK;
}

const trace_kind trace_dynamo = {
    .format = TRACE_DYNAMO,
    .name = "dynamo",
    .alias = "request-trace",
    .state_bytes = sizeof(state),
    .reads_all = true,
    .next = next,
    .end = end,
};

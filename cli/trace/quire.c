/* cli/trace/quire.c - Quire's own workload files: JSON lines that say all that a request has.
 *
 *   {"quire_workload": 1, "kind": "chat", "seed": 7}
 *   {"time": 0.25, "prompt": [[1, 2000], [2, 180]], "output": [3, 90]}
 *   {"time": 0.31, "session": 1, "prompt": [[1, 2000], [4, 60]], "output": [5, 120]}
 *   {"session": 1, "think": 8.5, "more": [[6, 40]], "output": [7, 200], "last": true}
 *
 * A content is a number, and [content, tokens] so many tokens of it; a number of tokens alone is a
 * prompt that no other one has anything of. "more" goes on behind what the
 * turn before had and generated, "prompt" begins anew. "think" makes it a closed loop. "id" and
 * "after" name requests, for one that waits for others than the turn before. docs/traces.md has all
 * fields.
 */
#include "content.h"
#include "memo.h"
#include "reader.h"

typedef struct row {
    double time_s; /* -1: missing, as all others below 0 */
    double think_s;
    double pin_s;
    uint64_t session;
    uint64_t id;
    uint64_t id_block_size;
    uint64_t output_content;
    int64_t num_prompt_tokens; /* of a prompt without contents */
    int64_t num_output_tokens;
    int32_t priority;
    bool is_header;
    bool is_last;
    bool has_prompt;
    bool has_more;
    bool has_output_content;
} row;

/* ---- one row --------------------------------------------------------------- */

/* [content, tokens] */
static bool take_pair(trace_reader *reader, scanner *scan, const char *field, uint64_t *content,
                      int64_t *num_tokens)
{
    int num_elements = 0;
    if (scan_peek(scan) != JSON_ARRAY) {
        if (scan_skip(scan))
            trace_problem(reader, field, "is not made of [content, tokens]");
        return false;
    }
    scan_open(scan, '[');
    while (scan_element(scan) == 1) {
        if (num_elements == 0)
            trace_take_u64(reader, scan, field, content);
        else if (num_elements == 1)
            trace_take_length(reader, scan, field, num_tokens);
        else
            scan_skip(scan);
        num_elements++;
    }
    if (num_elements != 2 && scan->error == NULL)
        trace_problem(reader, field, "is not made of [content, tokens]");
    return num_elements == 2;
}

/* Pairs go into the record's ids: where they stand in the prompt is known only when all is read. */
static void take_prompt(trace_reader *reader, scanner *scan, const char *field)
{
    if (scan_peek(scan) != JSON_ARRAY) {
        if (scan_skip(scan))
            trace_problem(reader, field, "is not a list");
        return;
    }
    scan_open(scan, '[');
    while (scan_element(scan) == 1) {
        uint64_t content = 0;
        int64_t num_tokens = -1;
        if (!take_pair(reader, scan, field, &content, &num_tokens))
            continue;
        if (num_tokens <= 0)
            trace_problem(reader, field, "a part of it has no tokens");
        trace_add_id(reader, content);
        trace_add_id(reader, (uint64_t)num_tokens);
    }
}

static void take_output(trace_reader *reader, scanner *scan, row *r)
{
    if (scan_peek(scan) == JSON_ARRAY)
        r->has_output_content =
            take_pair(reader, scan, "output", &r->output_content, &r->num_output_tokens);
    else
        trace_take_length(reader, scan, "output", &r->num_output_tokens);
}

static void take_last(trace_reader *reader, scanner *scan, row *r)
{
    if (scan_peek(scan) == JSON_BOOL)
        scan_bool(scan, &r->is_last);
    else if (scan_skip(scan))
        trace_problem(reader, "last", "is neither true nor false");
}

static void take_other(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    row *r = row_;
    if (scan_is(name, "prompt") || scan_is(name, "more")) {
        if (r->has_prompt || r->has_more)
            trace_problem(reader, name->head, "there is already a prompt");
        r->has_prompt = scan_is(name, "prompt");
        r->has_more = !r->has_prompt;
        if (r->has_prompt && scan_peek(scan) == JSON_NUMBER)
            trace_take_length(reader, scan, "prompt", &r->num_prompt_tokens);
        else
            take_prompt(reader, scan, name->head);
    } else if (scan_is(name, "output")) {
        take_output(reader, scan, r);
    } else if (scan_is(name, "last")) {
        take_last(reader, scan, r);
    } else if (scan_is(name, "after")) {
        trace_take_after(reader, scan, "after");
    } else {
        r->is_header = r->is_header || scan_is(name, "quire_workload");
        scan_skip(scan);
    }
}

static const trace_field fields[] = {
    {"time", TRACE_FIELD_TIME, offsetof(row, time_s)},
    {"think", TRACE_FIELD_TIME, offsetof(row, think_s)},
    {"session", TRACE_FIELD_U64, offsetof(row, session)},
    {"priority", TRACE_FIELD_PRIORITY, offsetof(row, priority)},
    {"pin", TRACE_FIELD_TIME, offsetof(row, pin_s)},
    {"id", TRACE_FIELD_KEY, offsetof(row, id)},
    {"id_block_size", TRACE_FIELD_U64, offsetof(row, id_block_size)},
    {0}};

/* ---- a row becomes a request ----------------------------------------------- */

static void check_row(trace_reader *reader, row *r, const trace_known *session)
{
    if (!r->has_prompt && !r->has_more)
        trace_problem(reader, "prompt", "is missing, and so is \"more\"");
    if (r->has_more && session == NULL)
        trace_problem(reader, "more", "there is no earlier turn");
    if (r->id_block_size > TRACE_MAX_TOKENS)
        trace_problem(reader, "id_block_size", "is out of range");
    if (r->think_s >= 0 && session == NULL && reader->num_after == 0)
        trace_problem(reader, "think", "there is no earlier turn");
    if (r->think_s < 0 && reader->num_after > 0)
        r->think_s = 0;
    if (r->think_s < 0 && r->time_s < 0)
        trace_problem(reader, "time", "is missing");
}

static void push_prompt(trace_reader *reader, const row *r, const trace_known *session)
{
    if (r->num_prompt_tokens > 0)
        trace_push_unique(reader, (uint32_t)r->num_prompt_tokens);
    if (r->has_more)
        trace_push_all(reader, session->said, session->num_said);
    for (uint32_t i = 0; i + 1 < reader->num_ids; i += 2)
        trace_push(reader, trace_own_content(reader, TRACE_CONTENT_NUMBER, reader->ids[i], 0),
                   reader->ids[i + 1]);
}

static void place(trace_reader *reader, const row *r, const trace_known *session,
                  trace_request *request)
{
    if (r->think_s < 0) {
        request->time_s = trace_place(reader, r->time_s);
        return;
    }
    double ready_s =
        reader->num_after > 0
            ? trace_find_waits(reader, "after", "no earlier request has this id", request)
            : session->time_s;
    request->is_closed_loop = true;
    request->think_s = r->think_s;
    request->time_s = ready_s + r->think_s;
}

/* Remembers it for the next turn, and for those that wait for it. */
static bool note(trace_reader *reader, const row *r, trace_known *session, trace_request *request)
{
    if (!trace_memo_note(&reader->shared->requests, r->id, request))
        return false;
    if (r->session == 0)
        return true;
    if (r->is_last) {
        if (session != NULL)
            trace_memo_forget(&reader->shared->sessions, session);
        return true;
    }
    if (session == NULL)
        session = trace_memo_add(&reader->shared->sessions, trace_own_key(reader, r->session));
    if (session == NULL)
        return false;
    session->session = request->session;
    session->turn = request->turn + 1;
    session->time_s = request->time_s;
    return trace_note_said(reader, session, request);
}

/* The file's own number, unless there are other files with such numbers. */
static uint64_t session_number(trace_reader *reader, const row *r, const trace_known *session)
{
    if (r->session == 0 || !reader->is_merged)
        return r->session;
    return session != NULL ? session->session : ++reader->shared->num_sessions;
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    row r;
    trace_outcome outcome;
    do {
        r = (row){.time_s = -1,
                  .think_s = -1,
                  .pin_s = -1,
                  .num_prompt_tokens = -1,
                  .num_output_tokens = -1};
        outcome = trace_next_object(reader, fields, take_other, &r);
    } while (outcome == TRACE_OK && r.is_header);
    if (outcome != TRACE_OK)
        return outcome;
    trace_known *session = r.session != 0 ? trace_memo_find(&reader->shared->sessions,
                                                            trace_own_key(reader, r.session))
                                          : NULL;
    check_row(reader, &r, session);
    if (reader->has_problem)
        return TRACE_BAD;
    push_prompt(reader, &r, session);
    if (!trace_check_lengths(reader, "prompt", (int64_t)reader->num_tokens, "output",
                             &r.num_output_tokens) ||
        !trace_fill(reader, request, (uint32_t)r.num_output_tokens))
        return TRACE_BAD;
    if (r.has_output_content)
        request->output_content =
            trace_own_content(reader, TRACE_CONTENT_NUMBER, r.output_content, 0);
    request->session = session_number(reader, &r, session);
    request->turn = session != NULL ? session->turn : 0;
    request->is_last_turn = r.is_last;
    request->priority = r.priority;
    request->pin_s = r.pin_s;
    request->id_block_size = (uint32_t)r.id_block_size;
    place(reader, &r, session, request);
    if (reader->has_problem)
        return TRACE_BAD;
    if (!note(reader, &r, session, request))
        return trace_no_memory(reader);
    return TRACE_OK;
}

const trace_kind trace_quire = {
    .format = TRACE_QUIRE,
    .name = "quire",
    .next = next,
};

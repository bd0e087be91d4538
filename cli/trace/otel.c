/* cli/trace/otel.c - spans of OpenTelemetry: OTLP as JSON, as a collector's file exporter writes
 * it.
 *
 *   {"resourceSpans": [{"scopeSpans": [{"spans": [
 *      {"traceId": "5b8e...", "spanId": "eee1...", "parentSpanId": "", "name": "chat gpt-4o",
 *       "startTimeUnixNano": "1777312800000000000", "endTimeUnixNano": "1777312803890000000",
 *       "attributes": [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": "374"}},
 *                      {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "44"}},
 *                      {"key": "gen_ai.conversation.id", "value": {"stringValue": "c1"}}]}]}]}]}
 *
 * A span that has numbers of tokens is a request. The attributes are those of the GenAI semantic
 * conventions, of vLLM (prompt_tokens, completion_tokens) and of OpenInference. Spans of agents,
 * tools, embeddings and retrieval are no requests, even with numbers of tokens: these are sums, or
 * nothing was generated. A request whose parent span is a request is the same call, seen by the
 * server: the parent is kept.
 *
 * A span is written when it has ended, so all files are read before the first request is handed
 * out. Requests of one conversation are turns of a closed loop (workflow.h); all others come at
 * their time. The contents are not known.
 */
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "output/grown.h"
#include "reader.h"
#include "workflow.h"

enum { MAX_SPANS = UINT32_MAX / 64, NUM_LEVELS = 7 };

/* Where a document is read: lists at even levels, and in them objects with the next list. */
static const char *const lists[NUM_LEVELS] = {
    [1] = "resourceSpans", [3] = "scopeSpans", [5] = "spans"};

/* What an attribute may be for us. */
typedef enum attribute {
    ATTRIBUTE_OTHER,
    ATTRIBUTE_INPUT,
    ATTRIBUTE_OUTPUT,
    ATTRIBUTE_OPERATION,
    ATTRIBUTE_CONVERSATION,
    ATTRIBUTE_SESSION
} attribute;

typedef struct span {
    uint64_t trace_id; /* 0: missing, as all others */
    uint64_t id;
    uint64_t parent;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t conversation;
    uint64_t session;
    int64_t num_prompt_tokens; /* -1: missing */
    int64_t num_output_tokens;
    bool is_other; /* an operation that is no request */
} span;

typedef struct kept {
    uint64_t line;
    uint32_t file;
    uint32_t num_prompt_tokens;
    uint32_t num_output_tokens;
    uint64_t parent; /* span */
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t number; /* among the requests, once it is handed out */
    double time_s;
} kept;

typedef struct state {
    trace_document document;
    uint32_t level;
    workflow_request *requests;
    kept *kept;
    uint32_t num;
    uint32_t request_room;
    uint32_t kept_room;
    workflow flow;
    bool is_read;
    uint32_t next;
    uint64_t first_session;
} state;

static bool begin(trace_reader *reader)
{
    state *st = reader->state;
    trace_document_begin(&st->document, reader, UINT64_MAX);
    return true;
}

static void end(trace_reader *reader)
{
    state *st = reader->state;
    workflow_free(&st->flow);
    free(st->requests);
    free(st->kept);
}

/* ---- values ------------------------------------------------------------------------- */

/* 64-bit numbers are strings in OTLP's JSON; some programs write numbers. */
static void take_number(trace_reader *reader, scanner *scan, const char *field, uint64_t *number)
{
    scan_text text;
    if (scan_peek(scan) != JSON_STRING) {
        trace_take_u64(reader, scan, field, number);
        return;
    }
    if (!scan_string(scan, &text) || text.num_bytes == 0)
        return;
    size_t digits = strspn(text.head, "0123456789");
    if (digits != text.num_bytes || digits > 19)
        trace_problem(reader, field, "\"%.40s\" is not a whole number of at most 19 digits",
                      text.head);
    else
        *number = strtoull(text.head, NULL, 10);
}

static void take_id(trace_reader *reader, scanner *scan, const char *field, uint64_t *id)
{
    scan_text text;
    if (scan_peek(scan) == JSON_STRING) {
        if (scan_string(scan, &text) && text.num_bytes > 0)
            *id = content_of(JSON_STRING, text.hash, text.num_bytes) | 1;
    } else {
        if (scan_peek(scan) != JSON_NULL)
            trace_problem(reader, field, "is not a string");
        scan_skip(scan);
    }
}

/* ---- attributes ---------------------------------------------------------------------- */

static attribute attribute_of(const scan_text *key)
{
    static const struct {
        const char *name;
        attribute attribute;
    } known[] = {{"gen_ai.usage.input_tokens", ATTRIBUTE_INPUT},
                 {"gen_ai.usage.prompt_tokens", ATTRIBUTE_INPUT},
                 {"llm.token_count.prompt", ATTRIBUTE_INPUT},
                 {"gen_ai.usage.output_tokens", ATTRIBUTE_OUTPUT},
                 {"gen_ai.usage.completion_tokens", ATTRIBUTE_OUTPUT},
                 {"llm.token_count.completion", ATTRIBUTE_OUTPUT},
                 {"gen_ai.operation.name", ATTRIBUTE_OPERATION},
                 {"gen_ai.conversation.id", ATTRIBUTE_CONVERSATION},
                 {"session.id", ATTRIBUTE_SESSION}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (scan_is(key, known[i].name))
            return known[i].attribute;
    return ATTRIBUTE_OTHER;
}

static bool is_no_request(const scan_text *operation)
{
    static const char *const names[] = {"create_agent", "invoke_agent", "invoke_workflow",
                                        "execute_tool", "embeddings",   "retrieval"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (scan_is(operation, names[i]))
            return true;
    return false;
}

/* One attribute: its key may stand behind its value. */
typedef struct pair {
    scan_text key;
    scan_text text;
    bool has_text;
    bool has_number;
    bool is_whole; /* the number */
    uint64_t number;
} pair;

static void take_value(trace_reader *reader, scanner *scan, pair *p)
{
    scan_text name;
    scan_value value;
    if (scan_peek(scan) != JSON_OBJECT) {
        scan_skip(scan);
        return;
    }
    scan_open(scan, '{');
    while (scan_field(scan, &name) == 1) {
        bool is_number = scan_is(&name, "intValue") || scan_is(&name, "doubleValue");
        if (scan_peek(scan) == JSON_STRING && scan_string(scan, &p->text)) {
            size_t digits = strspn(p->text.head, "0123456789");
            p->has_text = !is_number;
            p->has_number = is_number;
            p->is_whole = digits > 0 && digits == p->text.num_bytes && digits <= 19;
            p->number = p->is_whole ? strtoull(p->text.head, NULL, 10) : 0;
        } else if (is_number && scan_peek(scan) == JSON_NUMBER && scan_number(scan, &value)) {
            p->has_number = true;
            p->is_whole = value.real >= 0 && value.real < 0x1p53 &&
                          value.real == (double)(uint64_t)value.real;
            p->number = p->is_whole ? (uint64_t)value.real : 0;
        } else {
            scan_skip(scan);
        }
    }
    (void)reader;
}

static void take_tokens(trace_reader *reader, const pair *p, int64_t *tokens)
{
    if (!p->has_number || !p->is_whole || p->number > TRACE_MAX_TOKENS)
        trace_problem(reader, p->key.head, "is not a whole number from 0 to %u", TRACE_MAX_TOKENS);
    else
        *tokens = (int64_t)p->number;
}

static void note_attribute(trace_reader *reader, const pair *p, span *s)
{
    uint64_t key = content_of(JSON_STRING, p->text.hash, p->text.num_bytes) | 1;
    switch (attribute_of(&p->key)) {
    case ATTRIBUTE_INPUT:
        take_tokens(reader, p, &s->num_prompt_tokens);
        break;
    case ATTRIBUTE_OUTPUT:
        take_tokens(reader, p, &s->num_output_tokens);
        break;
    case ATTRIBUTE_OPERATION:
        s->is_other = p->has_text && is_no_request(&p->text);
        break;
    case ATTRIBUTE_CONVERSATION:
        s->conversation = p->has_text ? trace_own_key(reader, key) : 0;
        break;
    case ATTRIBUTE_SESSION:
        s->session = p->has_text ? trace_own_key(reader, key) : 0;
        break;
    case ATTRIBUTE_OTHER:
        break;
    }
}

static void take_attributes(trace_reader *reader, scanner *scan, span *s)
{
    scan_text name;
    if (!trace_open_list(reader, scan, "attributes"))
        return;
    while (scan_element(scan) == 1) {
        pair p = {.number = 0};
        if (scan_peek(scan) != JSON_OBJECT) {
            if (scan_skip(scan))
                trace_problem(reader, "attributes", "has an element that is not an object");
            continue;
        }
        scan_open(scan, '{');
        while (scan_field(scan, &name) == 1) {
            if (scan_is(&name, "key") && scan_peek(scan) == JSON_STRING)
                scan_string(scan, &p.key);
            else if (scan_is(&name, "value"))
                take_value(reader, scan, &p);
            else
                scan_skip(scan);
        }
        if (scan->error == NULL)
            note_attribute(reader, &p, s);
    }
}

/* ---- spans --------------------------------------------------------------------------- */

static void take_span(trace_reader *reader, scanner *scan, span *s)
{
    scan_text name;
    scan_open(scan, '{');
    while (scan_field(scan, &name) == 1) {
        if (scan_is(&name, "traceId"))
            take_id(reader, scan, "traceId", &s->trace_id);
        else if (scan_is(&name, "spanId"))
            take_id(reader, scan, "spanId", &s->id);
        else if (scan_is(&name, "parentSpanId"))
            take_id(reader, scan, "parentSpanId", &s->parent);
        else if (scan_is(&name, "startTimeUnixNano"))
            take_number(reader, scan, "startTimeUnixNano", &s->start_ns);
        else if (scan_is(&name, "endTimeUnixNano"))
            take_number(reader, scan, "endTimeUnixNano", &s->end_ns);
        else if (scan_is(&name, "attributes"))
            take_attributes(reader, scan, s);
        else
            scan_skip(scan);
    }
}

static void check_span(trace_reader *reader, span *s)
{
    if (s->id == 0)
        trace_problem(reader, "spanId", "is missing");
    else if (s->start_ns == 0)
        trace_problem(reader, "startTimeUnixNano", "is missing");
    else if (s->end_ns != 0 && s->end_ns < s->start_ns)
        trace_problem(reader, "endTimeUnixNano", "is earlier than startTimeUnixNano");
    else
        trace_check_lengths(reader, "gen_ai.usage.input_tokens", s->num_prompt_tokens,
                            "gen_ai.usage.output_tokens", &s->num_output_tokens);
    if (!reader->has_problem && s->num_prompt_tokens + s->num_output_tokens > TRACE_MAX_TOKENS)
        trace_problem(reader, NULL, "prompt and output have more than %u tokens", TRACE_MAX_TOKENS);
}

static trace_outcome keep_span(trace_reader *reader, span *s)
{
    state *st = reader->state;
    bool has_tokens = s->num_prompt_tokens >= 0 || s->num_output_tokens >= 0;
    if (s->is_other)
        return TRACE_OK;
    if (has_tokens)
        check_span(reader, s);
    if (reader->has_problem)
        return TRACE_BAD;
    if (!has_tokens)
        return TRACE_OK;
    if (!grow(&st->requests, st->num, &st->request_room, MAX_SPANS, sizeof *st->requests) ||
        !grow(&st->kept, st->num, &st->kept_room, MAX_SPANS, sizeof *st->kept))
        return trace_no_memory(reader);
    uint64_t end_ns = s->end_ns != 0 ? s->end_ns : s->start_ns;
    st->requests[st->num] = (workflow_request){
        .id = content_of(s->trace_id, s->id, 0),
        .session = s->conversation != 0 ? s->conversation : s->session,
    };
    st->kept[st->num++] =
        (kept){.line = reader->line,
               .file = reader->num_opened > 0 ? reader->num_opened - 1 : 0,
               .num_prompt_tokens = (uint32_t)s->num_prompt_tokens,
               .num_output_tokens = (uint32_t)s->num_output_tokens,
               .parent = s->parent != 0 ? content_of(s->trace_id, s->parent, 0) : 0,
               .start_ns = s->start_ns,
               .end_ns = end_ns};
    return TRACE_OK;
}

/* ---- documents ------------------------------------------------------------------------ */

static trace_outcome read_span(trace_reader *reader)
{
    state *st = reader->state;
    scanner *scan = &st->document.scan;
    span s = {.num_prompt_tokens = -1, .num_output_tokens = -1};
    trace_begin_record(reader, scan_line_number(scan));
    take_span(reader, scan, &s);
    if (scan->error != NULL)
        return trace_document_outcome(&st->document, reader);
    return keep_span(reader, &s);
}

/* An element of a list: an object, or a problem. */
static trace_outcome enter_element(trace_reader *reader)
{
    state *st = reader->state;
    scanner *scan = &st->document.scan;
    if (scan_peek(scan) == JSON_OBJECT) {
        if (st->level == NUM_LEVELS - 1)
            return read_span(reader);
        scan_open(scan, '{');
        st->level++;
        return TRACE_OK;
    }
    trace_begin_record(reader, scan_line_number(scan));
    if (!scan_skip(scan))
        return trace_document_outcome(&st->document, reader);
    return trace_problem(reader, lists[st->level - 1], "has an element that is not an object");
}

static trace_outcome enter_field(trace_reader *reader, const scan_text *name)
{
    state *st = reader->state;
    scanner *scan = &st->document.scan;
    if (scan_is(name, lists[st->level]) && scan_peek(scan) == JSON_ARRAY) {
        scan_open(scan, '[');
        st->level++;
    } else {
        scan_skip(scan);
    }
    return TRACE_OK;
}

/* One step through the document: in, out, or over a span. */
static trace_outcome step(trace_reader *reader)
{
    state *st = reader->state;
    scanner *scan = &st->document.scan;
    scan_text name;
    if (st->level == 0) {
        trace_outcome outcome = trace_document_next(&st->document, reader);
        if (outcome != TRACE_OK)
            return outcome;
        scan_open(scan, '{');
        st->level = 1;
        return TRACE_OK;
    }
    bool is_list = st->level % 2 == 0;
    int more = is_list ? scan_element(scan) : scan_field(scan, &name);
    if (more < 0)
        return trace_document_outcome(&st->document, reader);
    if (more == 0) {
        st->level--;
        return TRACE_OK;
    }
    trace_outcome outcome = is_list ? enter_element(reader) : enter_field(reader, &name);
    return scan->error != NULL && outcome == TRACE_OK
               ? trace_document_outcome(&st->document, reader)
               : outcome;
}

/* ---- all of them ---------------------------------------------------------------------- */

static int compare_ids(const void *a_, const void *b_)
{
    uint64_t a = *(const uint64_t *)a_;
    uint64_t b = *(const uint64_t *)b_;
    return (a > b) - (a < b);
}

/* Calls inside of calls go. False: no memory. */
static bool drop_inner(state *st)
{
    uint32_t n = 0;
    uint64_t *ids = malloc((size_t)st->num * sizeof *ids);
    if (ids == NULL)
        return st->num == 0;
    for (uint32_t i = 0; i < st->num; i++)
        ids[i] = st->requests[i].id;
    qsort(ids, st->num, sizeof *ids, compare_ids);
    for (uint32_t i = 0; i < st->num; i++) {
        const kept *k = &st->kept[i];
        bool is_inner = k->parent != 0 && k->parent != st->requests[i].id &&
                        bsearch(&k->parent, ids, st->num, sizeof *ids, compare_ids) != NULL;
        if (is_inner)
            continue;
        st->kept[n] = *k;
        st->requests[n++] = st->requests[i];
    }
    st->num = n;
    free(ids);
    return true;
}

/* Milliseconds from the first start on: a double does not hold nanoseconds since 1970. */
static void set_times(state *st)
{
    uint64_t first_ns = UINT64_MAX;
    for (uint32_t i = 0; i < st->num; i++)
        first_ns = st->kept[i].start_ns < first_ns ? st->kept[i].start_ns : first_ns;
    for (uint32_t i = 0; i < st->num; i++) {
        st->requests[i].start_ms = (double)(st->kept[i].start_ns - first_ns) / 1e6;
        st->requests[i].end_ms = (double)(st->kept[i].end_ns - first_ns) / 1e6;
    }
}

static trace_outcome refuse(trace_reader *reader, workflow_problem problem, uint32_t at)
{
    state *st = reader->state;
    trace_begin_record(reader, 0);
    if (problem == WORKFLOW_NO_MEMORY)
        return trace_no_memory(reader);
    reader->line = st->kept[at].line;
    reader->name = reader->files != NULL ? reader->files[st->kept[at].file] : NULL;
    trace_problem(reader, "spanId",
                  problem == WORKFLOW_SAME_ID
                      ? "an earlier span of the trace has the same one"
                      : "the request waits for itself, through other requests");
    return TRACE_BROKEN;
}

static trace_outcome next_file(trace_reader *reader)
{
    state *st = reader->state;
    trace_outcome outcome = trace_next_file(reader);
    if (outcome == TRACE_OK)
        trace_document_begin(&st->document, reader, UINT64_MAX);
    st->is_read = outcome == TRACE_END;
    return outcome;
}

static trace_outcome read_all(trace_reader *reader)
{
    state *st = reader->state;
    trace_outcome outcome;
    do {
        outcome = step(reader);
        if (outcome == TRACE_END)
            outcome = next_file(reader);
    } while (outcome == TRACE_OK);
    if (!st->is_read)
        return outcome;
    uint32_t at = 0;
    workflow_problem problem = WORKFLOW_NO_MEMORY;
    if (drop_inner(st)) {
        set_times(st);
        problem = workflow_find(&st->flow, st->requests, st->num, NULL, 0, &at);
    }
    if (problem != WORKFLOW_OK)
        return refuse(reader, problem, at);
    st->first_session = reader->shared->num_sessions;
    for (uint32_t i = 0; i < st->num; i++)
        if (st->requests[i].session != 0 && st->requests[i].is_last_turn)
            reader->shared->num_sessions++;
    return TRACE_OK;
}

static void place(trace_reader *reader, const workflow_request *r, trace_request *request)
{
    const state *st = reader->state;
    if (r->num_waits == 0) {
        request->time_s = trace_place(reader, r->start_ms / 1000);
        return;
    }
    request->think_s = r->think_ms / 1000;
    request->time_s = st->kept[st->flow.waits[r->first_wait]].time_s + request->think_s;
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
    trace_begin_record(reader, k->line);
    trace_push_unique(reader, k->num_prompt_tokens);
    if (!trace_fill(reader, request, k->num_output_tokens))
        return TRACE_BAD;
    request->session = r->session != 0 ? st->first_session + r->session_number : 0;
    request->turn = r->turn;
    request->is_last_turn = r->is_last_turn;
    request->is_closed_loop = r->session != 0;
    request->file = reader->files != NULL ? reader->files[k->file] : NULL;
    place(reader, r, request);
    k->number = request->number;
    k->time_s = request->time_s;
    return TRACE_OK;
}

const trace_kind trace_otel = {
    .format = TRACE_OTEL,
    .name = "otel",
    .alias = "otlp",
    .state_bytes = sizeof(state),
    .reads_all = true,
    .begin = begin,
    .next = next,
    .end = end,
};

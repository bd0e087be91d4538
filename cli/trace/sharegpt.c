/* cli/trace/sharegpt.c - ShareGPT's conversations.
 *
 *   [{"id": "a", "conversations": [{"from": "human", "value": "Hello"},
 *                                  {"from": "gpt", "value": "Hello, how can I help?"}, ...]}, ...]
 *
 * Each answer of the assistant is a request, and what stands before it is its prompt; so the turns
 * of a conversation share it, and what was generated is part of the next prompt. Equal messages
 * have equal contents. There are no times: a closed loop without think times. There is no
 * tokenizer either: a token is taken to be four bytes of text.
 */
#include <stdlib.h>

#include "content.h"
#include "output/grown.h"
#include "reader.h"

enum { BYTES_PER_TOKEN = 4, MAX_TURNS = 1 << 20 };

typedef struct answer {
    uint32_t num_segments; /* of the conversation, before it */
    uint32_t num_prompt_tokens;
    uint32_t num_tokens;
    uint64_t content;
} answer;

typedef struct state {
    trace_document document;
    answer *answers; /* of one conversation */
    uint32_t num_answers;
    uint32_t room;
    uint32_t next; /* the one to hand out */
    uint64_t session;
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
    free(st->answers);
}

static bool is_answer(const scan_text *from)
{
    static const char *const names[] = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (scan_is(from, names[i]))
            return true;
    return false;
}

static void add_answer(trace_reader *reader, uint64_t content, uint64_t num_tokens)
{
    state *st = reader->state;
    if (reader->num_tokens == 0)
        return; /* nobody asked */
    if (!grow(&st->answers, st->num_answers, &st->room, MAX_TURNS, sizeof *st->answers)) {
        trace_no_memory(reader);
        return;
    }
    st->answers[st->num_answers++] = (answer){
        .num_segments = reader->num_segments,
        .num_prompt_tokens = (uint32_t)reader->num_tokens,
        .num_tokens = num_tokens > 0 ? (uint32_t)num_tokens : 1,
        .content = content,
    };
}

static void read_message(trace_reader *reader, scanner *scan)
{
    scan_text name;
    scan_text from = {.num_bytes = 0};
    scan_text value = {.num_bytes = 0};
    if (scan_peek(scan) != JSON_OBJECT) {
        if (scan_skip(scan))
            trace_problem(reader, "conversations", "has an element that is not an object");
        return;
    }
    scan_open(scan, '{');
    while (scan_field(scan, &name) == 1) {
        bool is_string = scan_peek(scan) == JSON_STRING;
        if (is_string && (scan_is(&name, "from") || scan_is(&name, "role")))
            scan_string(scan, &from);
        else if (is_string && (scan_is(&name, "value") || scan_is(&name, "content")))
            scan_string(scan, &value);
        else
            scan_skip(scan);
    }
    if (from.num_bytes == 0)
        trace_problem(reader, "from", "is missing");
    uint64_t num_tokens = (value.num_bytes + BYTES_PER_TOKEN - 1) / BYTES_PER_TOKEN;
    if (num_tokens > TRACE_MAX_TOKENS)
        trace_problem(reader, "value", "has more than %u tokens", TRACE_MAX_TOKENS);
    uint64_t content = content_of(TRACE_CONTENT_TEXT, value.hash, value.num_bytes);
    if (is_answer(&from))
        add_answer(reader, content, num_tokens);
    trace_push(reader, content, num_tokens);
}

static trace_outcome read_conversation(trace_reader *reader)
{
    state *st = reader->state;
    scanner *scan = &st->document.scan;
    st->num_answers = 0;
    st->next = 0;
    trace_outcome outcome = trace_document_next(&st->document, reader);
    if (outcome != TRACE_OK)
        return outcome;
    scan_text name;
    bool has_messages = false;
    scan_open(scan, '{');
    while (scan_field(scan, &name) == 1) {
        bool is_list = scan_peek(scan) == JSON_ARRAY;
        if (is_list && (scan_is(&name, "conversations") || scan_is(&name, "conversation") ||
                        scan_is(&name, "items") || scan_is(&name, "messages"))) {
            has_messages = true;
            scan_open(scan, '[');
            while (scan_element(scan) == 1) {
                reader->item++;
                read_message(reader, scan);
            }
        } else {
            scan_skip(scan);
        }
    }
    if (!has_messages)
        trace_problem(reader, "conversations", "is missing");
    return trace_document_outcome(&st->document, reader);
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    while (st->next == st->num_answers) {
        trace_outcome outcome = read_conversation(reader);
        if (outcome != TRACE_OK) {
            st->num_answers = 0;
            return outcome;
        }
        if (st->num_answers > 0)
            st->session = ++reader->shared->num_sessions;
    }
    const answer *a = &st->answers[st->next];
    trace_fill(reader, request, a->num_tokens);
    request->num_segments = a->num_segments;
    request->num_prompt_tokens = a->num_prompt_tokens;
    request->output_content = a->content;
    request->session = st->session;
    request->turn = st->next;
    request->is_closed_loop = true;
    request->time_s = st->next == 0 ? trace_place_session(reader, 0) : reader->last_s;
    st->next++;
    request->is_last_turn = st->next == st->num_answers;
    return TRACE_OK;
}

const trace_kind trace_sharegpt = {
    .format = TRACE_SHAREGPT,
    .name = "sharegpt",
    .state_bytes = sizeof(state),
    .begin = begin,
    .next = next,
    .end = end,
};

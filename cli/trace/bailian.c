/* cli/trace/bailian.c - Qwen-Bailian's JSON lines.
 *
 *   {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521,
 *    "output_length": 132, "type": "text", "turn": 2, "hash_ids": [1089, 1090, 1091, ...]}
 *
 * Times are in seconds: an open loop. An id is the content of 16 tokens, wherever they stand. A
 * chat and its descendants are one session, as far back as chats are remembered.
 */
#include "memo.h"
#include "reader.h"

typedef struct row {
    int64_t num_prompt_tokens;
    int64_t num_output_tokens;
    double time_s;
    uint64_t chat;
    uint64_t parent;
    bool has_ids;
} row;

static void take_other(trace_reader *reader, scanner *scan, const scan_text *name, void *row_)
{
    row *r = row_;
    if (!scan_is(name, "hash_ids")) {
        scan_skip(scan);
        return;
    }
    r->has_ids = scan_peek(scan) != JSON_NULL;
    trace_take_ids(reader, scan, "hash_ids");
}

static const trace_field fields[] = {
    {"timestamp", TRACE_FIELD_TIME, offsetof(row, time_s)},
    {"input_length", TRACE_FIELD_LENGTH, offsetof(row, num_prompt_tokens)},
    {"output_length", TRACE_FIELD_LENGTH, offsetof(row, num_output_tokens)},
    {"chat_id", TRACE_FIELD_KEY, offsetof(row, chat)},
    {"parent_chat_id", TRACE_FIELD_KEY, offsetof(row, parent)}, /* -1 is no chat */
    {0}};

/* The session of its parent, or a new one. */
static bool join_session(trace_reader *reader, const row *r, trace_request *request)
{
    trace_memo *chats = &reader->shared->sessions;
    const trace_known *parent = r->parent != 0 ? trace_memo_find(chats, r->parent) : NULL;
    request->session = parent != NULL ? parent->session : ++reader->shared->num_sessions;
    request->turn = parent != NULL ? parent->turn + 1 : 0;
    if (r->chat == 0)
        return true;
    trace_known *known = trace_memo_get(chats, r->chat);
    if (known == NULL)
        return false;
    known->session = request->session;
    known->turn = request->turn;
    return true;
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    row r = {.num_prompt_tokens = -1, .num_output_tokens = -1, .time_s = -1};
    trace_outcome outcome = trace_next_object(reader, fields, take_other, &r);
    if (outcome != TRACE_OK)
        return outcome;
    if (r.time_s < 0)
        return trace_problem(reader, "timestamp", "is missing");
    if (!trace_check_lengths(reader, "input_length", r.num_prompt_tokens, "output_length",
                             &r.num_output_tokens))
        return TRACE_BAD;
    if (r.has_ids)
        trace_push_ids(reader, "hash_ids", reader->ids, reader->num_ids,
                       (uint32_t)r.num_prompt_tokens, reader->id_block_size, 0);
    else
        trace_push_unique(reader, (uint32_t)r.num_prompt_tokens);
    if (!trace_fill(reader, request, (uint32_t)r.num_output_tokens))
        return TRACE_BAD;
    request->id_block_size = r.has_ids ? reader->id_block_size : 0;
    request->time_s = trace_place(reader, r.time_s);
    return join_session(reader, &r, request) ? TRACE_OK : trace_no_memory(reader);
}

const trace_kind trace_bailian = {
    .format = TRACE_BAILIAN,
    .name = "bailian",
    .alias = "qwen-bailian",
    .id_block_size = 16,
    .next = next,
};

/* cli/trace/vllm_log.c - the log of a vLLM server that logs its requests.
 *
 *   DEBUG 11-19 20:14:11 [request_logger.py:52] Request chatcmpl-1 details: prompt: 'Hi',
 *       prompt_token_ids: [13347, 0], prompt_embeds shape: None.               the prompt
 *   INFO 11-19 20:14:11 [request_logger.py:63] Received request chatcmpl-1: params: ...
 *   INFO 11-19 20:14:13 [request_logger.py:104] Generated response chatcmpl-1: output: 'Hello',
 *       output_token_ids: [9906], finish_reason: stop                          the output
 *
 * (One line each. Earlier releases have the prompt in the second line, later ones the output's
 * tokens in a line "... details: output_token_ids: ...".) A streamed output has a line for each
 * part, and its length is their sum. All other lines are passed over.
 *
 * Requests come in the order of their first lines: open loop, in whole seconds, since a log has no
 * finer times. Equal token ids are equal contents, in blocks of 16. All lines are read before the
 * first request is handed out: a request's length is known when it has ended.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "content.h"
#include "output/grown.h"
#include "reader.h"

enum { MAX_EVENTS = UINT32_MAX / 64, DAY_S = 86400, YEAR_S = 366 * DAY_S, ID_BYTES = 48 };

#define FNV_START UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

typedef enum event_kind { EVENT_RECEIVED, EVENT_PROMPT, EVENT_OUTPUT } event_kind;

/* A line that says something of a request. */
typedef struct event {
    uint64_t id;
    uint64_t line;
    event_kind kind;
    int64_t num_tokens; /* -1: it does not say */
    uint64_t first_hash;
    double time_s;
    char name[ID_BYTES]; /* for messages */
} event;

/* All lines of a request together. */
typedef struct kept {
    uint64_t line;
    double time_s;
    int64_t num_prompt_tokens;
    int64_t num_output_tokens;
    uint64_t first_hash;
    char name[ID_BYTES];
} kept;

typedef struct state {
    event *events;
    uint32_t num_events;
    uint32_t event_room;
    uint64_t *hashes; /* of the blocks of prompts */
    uint64_t num_hashes;
    uint64_t hash_room;
    kept *requests;
    uint32_t num;
    uint32_t next;
    bool is_read;
    double last_s; /* as the log has it */
    double year_s; /* years that have ended since the first line */
} state;

static void end(trace_reader *reader)
{
    state *st = reader->state;
    free(st->events);
    free(st->hashes);
    free(st->requests);
}

/* ---- a line --------------------------------------------------------------------------- */

static bool has_form(const char *text, const char *form)
{
    for (; *form != 0; form++, text++)
        if (*form == '0' ? *text < '0' || *text > '9' : *text != *form)
            return false;
    return true;
}

static int two_digits(const char *at)
{
    return (at[0] - '0') * 10 + at[1] - '0';
}

/* The message behind "INFO 11-19 20:14:11 [file.py:1] ", and the time; NULL: no such line. */
static char *message_of(char *line, double *time_s)
{
    static const char *const levels[] = {"DEBUG ", "INFO ", "WARNING "};
    char *stamp = NULL;
    for (size_t i = 0; i < sizeof levels / sizeof *levels && stamp == NULL; i++) {
        char *level = strstr(line, levels[i]);
        if (level != NULL && has_form(level + strlen(levels[i]), "00-00 00:00:00 ["))
            stamp = level + strlen(levels[i]);
    }
    char *bracket = stamp != NULL ? strchr(stamp, ']') : NULL;
    if (bracket == NULL || bracket[1] != ' ')
        return NULL;
    struct tm t = {.tm_year = 72, /* a leap year: every day of a log is in it */
                   .tm_mon = two_digits(stamp) - 1,
                   .tm_mday = two_digits(stamp + 3),
                   .tm_hour = two_digits(stamp + 6),
                   .tm_min = two_digits(stamp + 9),
                   .tm_sec = two_digits(stamp + 12)};
    *time_s = (double)timegm(&t);
    return bracket + 2;
}

/* Lines have no year: half a year back is the next one. */
static double place_in_years(state *st, double time_s)
{
    if (time_s < st->last_s - YEAR_S / 2.0)
        st->year_s += YEAR_S;
    st->last_s = time_s;
    return time_s + st->year_s;
}

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = FNV_START;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * FNV_PRIME;
    return content_of(JSON_STRING, hash, length) | 1;
}

/* What stands behind the last `name` of a text: a prompt may contain the name too. NULL: nothing.
 */
static const char *find_last(const char *text, const char *name)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++)
        found = at + strlen(name);
    return found;
}

static bool add_hash(state *st, uint64_t hash)
{
    if (!reserve(&st->hashes, st->num_hashes + 1, &st->hash_room, sizeof *st->hashes))
        return false;
    st->hashes[st->num_hashes++] = hash;
    return true;
}

/* A list of token ids; their blocks are hashed if it is a prompt. -1: there is none. */
static int64_t take_tokens(trace_reader *reader, const char *field, const char *list,
                           bool is_prompt)
{
    state *st = reader->state;
    int64_t n = 0;
    uint64_t hash = 0;
    uint64_t first = st->num_hashes;
    if (list == NULL || strncmp(list, "None", 4) == 0)
        return -1;
    if (*list != '[' && *list != '(') {
        trace_problem(reader, field, "is not a list of numbers");
        return -1;
    }
    bool has_memory = true;
    const char *at = list + 1;
    while (*at >= '0' && *at <= '9') {
        char *behind;
        hash = content_of(hash, strtoull(at, &behind, 10), 1);
        n++;
        if (is_prompt && n % reader->id_block_size == 0)
            has_memory = has_memory && add_hash(st, hash);
        at = behind + strspn(behind, ", ");
    }
    if (is_prompt && n % reader->id_block_size != 0)
        has_memory = has_memory && add_hash(st, hash);
    if (!has_memory)
        trace_no_memory(reader);
    if (*at == ']' || *at == ')')
        return n;
    st->num_hashes = first;
    trace_problem(reader, field, "is not a list of numbers");
    return -1;
}

/* Whether the message begins like this; *id is what follows, up to a blank or a colon. */
static bool begins(const char *message, const char *words, const char **id, size_t *length)
{
    size_t n = strlen(words);
    if (strncmp(message, words, n) != 0)
        return false;
    *id = message + n;
    *length = strcspn(*id, " :");
    return *length > 0;
}

static trace_outcome add_event(trace_reader *reader, const event *e, const char *id, size_t length)
{
    state *st = reader->state;
    if (reader->has_problem)
        return TRACE_BAD;
    if (!grow(&st->events, st->num_events, &st->event_room, MAX_EVENTS, sizeof *e))
        return trace_no_memory(reader);
    event *to = &st->events[st->num_events++];
    *to = *e;
    to->id = hash_of(id, length);
    to->line = reader->line;
    memcpy(to->name, id, length < ID_BYTES ? length : ID_BYTES - 1);
    return TRACE_OK;
}

static trace_outcome read_line(trace_reader *reader)
{
    state *st = reader->state;
    char *line;
    const char *id;
    size_t length;
    size_t id_length;
    double time_s;
    trace_outcome outcome = trace_next_line(reader, &line, &length);
    if (outcome != TRACE_OK)
        return outcome;
    const char *message = message_of(line, &time_s);
    if (message == NULL)
        return TRACE_OK;
    event e = {.num_tokens = -1, .first_hash = st->num_hashes};
    if (begins(message, "Request ", &id, &id_length) &&
        strncmp(id + id_length, " details: prompt: ", 18) == 0) {
        e.kind = EVENT_PROMPT;
    } else if (begins(message, "Received request ", &id, &id_length)) {
        e.kind = EVENT_RECEIVED;
    } else if (begins(message, "Generated response ", &id, &id_length)) {
        e.kind = EVENT_OUTPUT;
    } else {
        return TRACE_OK;
    }
    e.time_s = place_in_years(st, time_s);
    if (e.kind == EVENT_OUTPUT)
        e.num_tokens =
            take_tokens(reader, "output_token_ids", find_last(id, "output_token_ids: "), false);
    else
        e.num_tokens =
            take_tokens(reader, "prompt_token_ids", find_last(id, ", prompt_token_ids: "), true);
    return add_event(reader, &e, id, id_length);
}

/* ---- requests ---------------------------------------------------------------------------- */

static int compare_events(const void *a_, const void *b_)
{
    const event *a = a_;
    const event *b = b_;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return a->line < b->line ? -1 : a->line > b->line;
}

static int compare_lines(const void *a_, const void *b_)
{
    const kept *a = a_;
    const kept *b = b_;
    return a->line < b->line ? -1 : a->line > b->line;
}

static void add_to(kept *k, const event *e)
{
    if (e->kind == EVENT_OUTPUT) {
        if (e->num_tokens >= 0)
            k->num_output_tokens =
                (k->num_output_tokens > 0 ? k->num_output_tokens : 0) + e->num_tokens;
    } else if (e->num_tokens >= 0 && k->num_prompt_tokens < 0) {
        k->num_prompt_tokens = e->num_tokens;
        k->first_hash = e->first_hash;
    }
}

/* Lines of one request become one; a request whose beginning is not in the log is none. */
static bool join_events(state *st)
{
    st->requests = calloc(st->num_events > 0 ? st->num_events : 1, sizeof *st->requests);
    if (st->requests == NULL)
        return false;
    if (st->num_events > 0)
        qsort(st->events, st->num_events, sizeof *st->events, compare_events);
    for (uint32_t i = 0; i < st->num_events; i++) {
        const event *e = &st->events[i];
        bool is_first = i == 0 || st->events[i - 1].id != e->id;
        if (is_first && e->kind == EVENT_OUTPUT) {
            while (i + 1 < st->num_events && st->events[i + 1].id == e->id)
                i++;
            continue;
        }
        if (is_first) {
            kept *k = &st->requests[st->num++];
            *k = (kept){.line = e->line,
                        .time_s = e->time_s,
                        .num_prompt_tokens = -1,
                        .num_output_tokens = -1};
            memcpy(k->name, e->name, sizeof k->name);
        }
        add_to(&st->requests[st->num - 1], e);
    }
    if (st->num > 0)
        qsort(st->requests, st->num, sizeof *st->requests, compare_lines);
    return true;
}

static trace_outcome read_all(trace_reader *reader)
{
    state *st = reader->state;
    trace_outcome outcome;
    do {
        outcome = read_line(reader);
    } while (outcome == TRACE_OK);
    if (outcome != TRACE_END)
        return outcome;
    if (!join_events(st))
        return trace_no_memory(reader);
    free(st->events);
    st->events = NULL;
    st->is_read = true;
    return TRACE_OK;
}

static trace_outcome check(trace_reader *reader, kept *k)
{
    if (k->num_prompt_tokens < 0)
        return trace_problem(reader, "prompt_token_ids",
                             "the log does not have that of request %s (VLLM_LOGGING_LEVEL=DEBUG "
                             "writes it)",
                             k->name);
    if (k->num_output_tokens < 0)
        return trace_problem(reader, "output_token_ids",
                             "the log does not have that of request %s (--enable-log-outputs "
                             "writes it)",
                             k->name);
    if (k->num_prompt_tokens + k->num_output_tokens > TRACE_MAX_TOKENS)
        return trace_problem(reader, NULL, "prompt and output have more than %u tokens",
                             TRACE_MAX_TOKENS);
    return trace_check_lengths(reader, "prompt_token_ids", k->num_prompt_tokens, "output_token_ids",
                               &k->num_output_tokens)
               ? TRACE_OK
               : TRACE_BAD;
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    trace_outcome outcome = st->is_read ? TRACE_OK : read_all(reader);
    if (outcome != TRACE_OK || st->next == st->num)
        return outcome == TRACE_OK ? TRACE_END : outcome;
    kept *k = &st->requests[st->next++];
    trace_begin_record(reader, k->line);
    outcome = check(reader, k);
    if (outcome != TRACE_OK)
        return outcome;
    uint32_t block_size = reader->id_block_size;
    uint32_t left = (uint32_t)k->num_prompt_tokens;
    for (uint64_t i = k->first_hash; left > 0; i++) {
        uint32_t n = left < block_size ? left : block_size;
        trace_push(reader, content_of(TRACE_CONTENT_HASH, st->hashes[i], block_size), n);
        left -= n;
    }
    if (!trace_fill(reader, request, (uint32_t)k->num_output_tokens))
        return TRACE_BAD;
    request->id_block_size = block_size;
    request->time_s = trace_place(reader, k->time_s);
    return TRACE_OK;
}

const trace_kind trace_vllm_log = {
    .format = TRACE_VLLM_LOG,
    .name = "vllm-log",
    .alias = "vllm",
    .id_block_size = 16,
    .state_bytes = sizeof(state),
    .next = next,
    .end = end,
};

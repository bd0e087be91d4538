/* cli/trace/recording.c - recordings of an engine (docs/recording.md): the requests of its traffic.
 *
 *      request 1 ... request 2 ... request 3 ... end 1 ... end 3 ...
 *         └──── waiting until its end is read ────┘          handed out in the order of arrival
 *
 * A request is handed out when its end is known: what it generated, and how much. Lines between are
 *         └──── waits until its end is read ──┘          handed out in the order of arrival
 * The blocks that a request generated have hashes too: if a later prompt has the hash of the last
 * of them, it continues with what the request was and generated.
 *
 * The parts of a recording follow each other by their names. The first part reads all of them; in a
 * folder, the others are not read again.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "content.h"
#include "output/grown.h"
#include "reader.h"
#include "recording_line.h"

enum { MAX_WAITING = 1 << 24, NUM_FLIGHTS = 64 };
#define MAX_SECONDS 1e12

/* A request whose end is not read yet, or whose turn has not come. */
typedef struct waiting {
    uint64_t line;
    uint64_t req;
    double time_s;
    uint64_t session;
    uint64_t *hashes; /* of its prompt, then of what it generated */
    uint32_t num_hashes;
    uint32_t num_generated;
    uint32_t num_prompt_tokens;
    uint32_t num_output_tokens;
    int32_t priority;
    bool has_ended;
} waiting;

typedef struct flight {
    uint64_t step;
    uint64_t *reqs;
    uint64_t room;
    uint32_t num_reqs;
} flight;

typedef struct state {
    recording_line line;
    double start_s; /* of the recording, since 1970 */
    uint32_t block_size;
    bool has_header;
    bool is_at_end;
    waiting *queue; /* from `first` on, in the order of arrival */
    uint32_t first;
    uint32_t count; /* behind the last one */
    uint32_t room;
    flight flights[NUM_FLIGHTS];
    uint64_t last_step;
    uint32_t num_handed;
} state;

static void end(trace_reader *reader)
{
    state *st = reader->state;
    for (uint32_t i = st->first; i < st->count; i++)
        free(st->queue[i].hashes);
    for (int i = 0; i < NUM_FLIGHTS; i++)
        free(st->flights[i].reqs);
    free(st->queue);
    recording_line_free(&st->line);
}

/* ---- lines --------------------------------------------------------------------- */

/* Numbers of requests only grow. */
static waiting *waiting_of(state *st, uint64_t req)
{
    uint32_t low = st->first;
    uint32_t high = st->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (st->queue[mid].req < req)
            low = mid + 1;
        else
            high = mid;
    }
    return low < st->count && st->queue[low].req == req ? &st->queue[low] : NULL;
}

/* The number behind a name of the header's config. */
static uint32_t config_number(const recording_line *line, const char *name)
{
    scanner scan;
    scan_text field;
    scan_value value;
    scan_of_text(&scan, line->config, line->config_bytes);
    scan_open(&scan, '{');
    while (scan_field(&scan, &field) == 1) {
        if (!scan_is(&field, name) || scan_peek(&scan) != JSON_NUMBER) {
            scan_skip(&scan);
            continue;
        }
        bool is_number = scan_number(&scan, &value) && value.is_integer && !value.is_negative &&
                         value.magnitude <= TRACE_MAX_TOKENS;
        return is_number ? (uint32_t)value.magnitude : 0;
    }
    return 0;
}

/* TRACE_END: a part behind another one, which reads it. */
static trace_outcome take_header(trace_reader *reader, state *st)
{
    char before[PATH_MAX];
    const recording_line *line = &st->line;
    bool is_later = line->part > 0;
    if (!line->has_format)
        return trace_problem(reader, "format", "is not %s", RECORDING_FORMAT), TRACE_BROKEN;
    if (!st->has_header && is_later &&
        recording_next_path(input_name(reader->in), -1, before, sizeof before) &&
        access(before, F_OK) == 0)
        return TRACE_END;
    if (!st->has_header && line->config != NULL)
        st->block_size = config_number(line, "hash_block_size");
    st->has_header = true;
    st->start_s = line->time;
    return TRACE_OK;
}

static trace_outcome take_request(trace_reader *reader, state *st)
{
    const recording_line *line = &st->line;
    if (line->prompt == 0 || line->prompt > TRACE_MAX_TOKENS)
        return trace_problem(reader, "prompt", "%llu is not a number from 1 to %u",
                             (unsigned long long)line->prompt, TRACE_MAX_TOKENS);
    if (line->hashes.count != 0 &&
        (st->block_size == 0 || line->hashes.count != line->prompt / st->block_size))
        return trace_problem(reader, "hashes", "%u hashes of %u tokens do not fit a prompt of %llu",
                             line->hashes.count, st->block_size, (unsigned long long)line->prompt);
    if (!(fabs(line->arrival) < MAX_SECONDS) || !(fabs(st->start_s) < MAX_SECONDS))
        return trace_problem(reader, "arrival", "is too large");
    if (!(fabs(line->priority) <= INT32_MAX))
        return trace_problem(reader, "priority", "is not a whole number of 32 bits");
    if (st->count > st->first && line->req <= st->queue[st->count - 1].req)
        return trace_problem(reader, "req", "%llu is not larger than that of the request before",
                             (unsigned long long)line->req);
    if (st->first == st->count)
        st->first = st->count = 0;
    if (st->count == st->room && st->first > st->count / 2) {
        memmove(st->queue, st->queue + st->first, (st->count - st->first) * sizeof *st->queue);
        st->count -= st->first;
        st->first = 0;
    }
    size_t bytes = line->hashes.count * sizeof *line->hashes.items;
    uint64_t *hashes = malloc(bytes + 1);
    if (hashes == NULL || !grow(&st->queue, st->count, &st->room, MAX_WAITING, sizeof *st->queue)) {
        free(hashes);
        return trace_no_memory(reader);
    }
    if (bytes != 0)
        memcpy(hashes, line->hashes.items, bytes);
    st->queue[st->count++] = (waiting){.line = reader->line,
                                       .req = line->req,
                                       .time_s = st->start_s + line->arrival,
                                       .session = line->session,
                                       .hashes = hashes,
                                       .num_hashes = line->hashes.count,
                                       .num_prompt_tokens = (uint32_t)line->prompt,
                                       .priority = (int32_t)line->priority};
    return TRACE_OK;
}

static trace_outcome take_end(trace_reader *reader, state *st)
{
    const recording_line *line = &st->line;
    waiting *w = waiting_of(st, line->req);
    if (w == NULL)
        return TRACE_OK; /* it began before the first line */
    if (line->output > TRACE_MAX_TOKENS)
        return trace_problem(reader, "output", "%llu is more than %u",
                             (unsigned long long)line->output, TRACE_MAX_TOKENS);
    w->has_ended = true;
    w->num_output_tokens = (uint32_t)line->output;
    if (line->hashes.count == 0 || st->block_size == 0 ||
        w->num_hashes != w->num_prompt_tokens / st->block_size)
        return TRACE_OK;
    uint32_t count = w->num_hashes + line->hashes.count;
    uint64_t *hashes = realloc(w->hashes, count * sizeof *hashes);
    if (hashes == NULL)
        return trace_no_memory(reader);
    memcpy(hashes + w->num_hashes, line->hashes.items, line->hashes.count * sizeof *hashes);
    w->hashes = hashes;
    w->num_generated = line->hashes.count;
    return TRACE_OK;
}

/* The requests of the steps in flight: a recording that was cut off has no ends, and its tokens are
 * counted. */
static trace_outcome take_schedule(trace_reader *reader, state *st)
{
    const recording_line *line = &st->line;
    flight *f = &st->flights[line->step % NUM_FLIGHTS];
    const flight *last = &st->flights[st->last_step % NUM_FLIGHTS];
    bool is_same = !line->reqs.is_given && last->step == st->last_step;
    const uint64_t *reqs = is_same ? last->reqs : line->reqs.items;
    uint32_t count = is_same ? last->num_reqs : line->reqs.count;
    if (!reserve(&f->reqs, count, &f->room, sizeof *f->reqs))
        return trace_no_memory(reader);
    if (count != 0 && f->reqs != reqs)
        memcpy(f->reqs, is_same ? last->reqs : reqs, count * sizeof *reqs);
    f->num_reqs = count;
    f->step = st->last_step = line->step;
    return TRACE_OK;
}

static void take_update(state *st)
{
    const recording_line *line = &st->line;
    const flight *f = &st->flights[line->step % NUM_FLIGHTS];
    if (f->step != line->step || f->num_reqs == 0)
        return;
    for (uint32_t i = 0; i < f->num_reqs; i++) {
        waiting *w = waiting_of(st, f->reqs[i]);
        uint64_t sampled = !line->sampled.is_given   ? 1
                           : i < line->sampled.count ? line->sampled.items[i]
                                                     : 0;
        if (w != NULL && !w->has_ended && sampled < TRACE_MAX_TOKENS - w->num_output_tokens)
            w->num_output_tokens += (uint32_t)sampled;
    }
}

/* ---- requests -------------------------------------------------------------------- */

/* What an earlier request was and generated, as far as the prompt's blocks say that it is the same:
 * the segments are pushed, and *at is behind their blocks. */
static void push_known(trace_reader *reader, const waiting *w, uint32_t block_size, uint32_t *at)
{
    for (uint32_t i = w->num_hashes; i-- > 0;) {
        const trace_known *known = trace_memo_find(
            &reader->shared->sessions, content_of(TRACE_CONTENT_HASH, w->hashes[i], block_size));
        uint64_t wanted = (uint64_t)(i + 1) * block_size;
        uint64_t num = 0;
        for (uint32_t k = 0; known != NULL && k < known->num_said && num < wanted; k++) {
            uint64_t left = wanted - num;
            uint32_t tokens = known->said[k].num_tokens;
            trace_push(reader, known->said[k].content, tokens < left ? tokens : left);
            num += tokens < left ? tokens : left;
        }
        if (known != NULL && num > 0) {
            *at = i + 1;
            return;
        }
    }
}

static void push_prompt(trace_reader *reader, const waiting *w, uint32_t block_size)
{
    uint32_t at = 0;
    if (w->num_hashes == 0 && block_size == 0) {
        trace_push_unique(reader, w->num_prompt_tokens);
        return;
    }
    push_known(reader, w, block_size, &at);
    for (; at < w->num_hashes; at++)
        trace_push(reader, content_of(TRACE_CONTENT_HASH, w->hashes[at], block_size), block_size);
    uint32_t rest = w->num_prompt_tokens - w->num_hashes * block_size;
    uint64_t first = w->num_generated > 0 ? w->hashes[w->num_hashes] : 0;
    if (first != 0)
        trace_push(reader, content_of(TRACE_CONTENT_HASH, first, block_size), rest);
    else if (rest > 0)
        trace_push_unique(reader, rest);
}

/* The last block that it generated names all of it. */
static bool note_output(trace_reader *reader, const waiting *w, uint32_t block_size,
                        trace_request *request)
{
    uint64_t last = w->hashes[w->num_hashes + w->num_generated - 1];
    request->output_content = content_of(TRACE_CONTENT_OUTPUT, last, block_size);
    trace_known *known =
        trace_memo_get(&reader->shared->sessions, content_of(TRACE_CONTENT_HASH, last, block_size));
    uint32_t num_segments = request->num_segments;
    uint64_t num_tokens = reader->num_tokens;
    if (known == NULL || !trace_note_said(reader, known, request))
        return false;
    reader->num_segments = num_segments; /* the output is not of the prompt */
    reader->num_tokens = num_tokens;
    return true;
}

static bool join_session(trace_reader *reader, const waiting *w, trace_request *request)
{
    if (w->session == 0)
        return true;
    trace_known *known =
        trace_memo_get(&reader->shared->sessions, content_of(TRACE_CONTENT_SCOPE, w->session, 0));
    if (known == NULL)
        return false;
    if (known->session == 0)
        known->session = ++reader->shared->num_sessions;
    request->session = known->session;
    request->turn = known->turn++;
    return true;
}

static trace_outcome hand_out(trace_reader *reader, state *st, trace_request *request)
{
    waiting w = st->queue[st->first++];
    uint64_t line = reader->line;
    trace_begin_record(reader, w.line);
    push_prompt(reader, &w, st->block_size);
    uint32_t num_output = w.num_output_tokens > 0 ? w.num_output_tokens : 1;
    bool ok = trace_fill(reader, request, num_output) &&
              (w.num_generated == 0 || note_output(reader, &w, st->block_size, request)) &&
              join_session(reader, &w, request);
    if (ok) {
        request->priority = w.priority;
        request->id_block_size = w.num_hashes > 0 ? st->block_size : 0;
        request->time_s = trace_place(reader, w.time_s);
    }
    free(w.hashes);
    reader->line = line;
    return ok ? TRACE_OK : reader->has_problem ? TRACE_BAD : trace_no_memory(reader);
}

/* ---- the reader -------------------------------------------------------------------- */

/* TRACE_END: there is no next part. */
static trace_outcome open_next(trace_reader *reader)
{
    char next[PATH_MAX];
    if (!recording_next_path(input_name(reader->in), 1, next, sizeof next) ||
        access(next, F_OK) != 0)
        return TRACE_END;
    input *in = input_open(next);
    if (in == NULL)
        return TRACE_END; /* it is empty, or cannot be read: the recording ends here */
    input_close(reader->in);
    reader->in = in;
    return TRACE_OK;
}

static trace_outcome take_line(trace_reader *reader, state *st)
{
    char *text;
    size_t length;
    trace_outcome outcome = trace_next_line(reader, &text, &length);
    if (outcome == TRACE_END || (outcome == TRACE_BROKEN && input_is_truncated(reader->in))) {
        st->is_at_end = open_next(reader) == TRACE_END;
        return TRACE_OK;
    }
    if (outcome != TRACE_OK)
        return outcome;
    if (!recording_read(&st->line, text, length))
        return trace_problem(reader, NULL, "%s", st->line.problem);
    if (!st->has_header && st->line.type != RECORDING_HEADER)
        return trace_problem(reader, "type", "the first line is not a header"), TRACE_BROKEN;
    switch (st->line.type) {
    case RECORDING_HEADER:
        return take_header(reader, st);
    case RECORDING_REQUEST:
        return take_request(reader, st);
    case RECORDING_END:
        return take_end(reader, st);
    case RECORDING_SCHEDULE:
        return take_schedule(reader, st);
    case RECORDING_UPDATE:
        take_update(st);
        return TRACE_OK;
    default:
        return TRACE_OK;
    }
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    for (;;) {
        bool has_any = st->first < st->count;
        if (has_any && (st->queue[st->first].has_ended || st->is_at_end))
            return hand_out(reader, st, request);
        if (st->is_at_end)
            return TRACE_END;
        trace_outcome outcome = take_line(reader, st);
        if (outcome != TRACE_OK)
            return outcome;
    }
}

const trace_kind trace_recording = {
    .format = TRACE_RECORDING,
    .name = "recording",
    .state_bytes = sizeof(state),
    .next = next,
    .end = end,
};

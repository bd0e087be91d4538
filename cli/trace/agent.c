/* cli/trace/agent.c - sessions of coding agents: one JSON object each, or a tar of such files.
 *
 *   {"id": "trace_0006", "block_size": 64, "hash_id_scope": "local", "tool_tokens": 12439,
 *    "requests": [{"t": 0.0, "in": 16981, "out": 154, "hash_ids": [1, 2, ..., 265],
 *                  "api_time": 3.89, "think_time": 0.0},
 *                 {"t": 15.0, "type": "subagent", "requests": [...]}, ...]}
 *
 * Closed loop: a turn comes its think time after the end of the one before. Where the trace has
 * none, that is the distance of the two starts, less the time that the one before took, where that
 * is known.
 *
 *      turn 0 ──► turn 1 ──┬──────────────────► turn 2      waits for the helpers started since,
 *                          └─► helper 0 ─► 1 ──┘            each a session of its own
 *
 * An id stands for block_size tokens of the prompt; there is none for what is left behind the last
 * full block, so that much is unique, and so is what a turn generates. Ids are local to the
 * session, helpers included, unless hash_id_scope is "global".
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "output/grown.h"
#include "reader.h"
#include "tar.h"

enum { MAX_TURNS = 1 << 22, MAX_NESTING = 4 };

#define NONE UINT32_MAX

typedef struct turn {
    int64_t num_prompt_tokens; /* -1: missing */
    int64_t num_output_tokens;
    uint32_t first_id;
    uint32_t num_ids;
    double start_s; /* in the trace, from the start of its session on */
    double think_s; /* NAN: not known */
    double api_s;   /* the same */
    double time_s;
    uint32_t agent; /* 0: the session itself */
    uint32_t number;
    uint64_t request; /* its number among the requests, once it is handed out */
    uint32_t before;  /* the turn before of the same agent, of who started it; NONE */
    uint32_t helpers; /* the first helper that it waits for, or NONE */
    bool is_last;
    uint64_t line;
} turn;

/* A helper that its session waits for: in a list, newest first. */
typedef struct helper {
    uint32_t last_turn;
    uint32_t next;
} helper;

typedef struct state {
    trace_document document;
    trace_tar tar;
    bool is_tar;
    bool is_inside_entry;
    uint64_t left; /* bytes of the file before that were not read */
    turn *turns;
    uint32_t num_turns;
    uint32_t turn_room;
    helper *helpers;
    uint32_t num_helpers;
    uint32_t helper_room;
    uint32_t num_agents;
    uint32_t next; /* the turn to hand out */
    uint64_t first_session;
    uint64_t block_size;
    bool are_ids_global;
} state;

static bool begin(trace_reader *reader)
{
    state *st = reader->state;
    size_t n = input_ahead(reader->in, TRACE_TAR_BLOCK);
    st->is_tar = trace_tar_is_header(input_bytes(reader->in), n);
    if (!st->is_tar)
        trace_document_begin(&st->document, reader, UINT64_MAX);
    return true;
}

static void end(trace_reader *reader)
{
    state *st = reader->state;
    free(st->turns);
    free(st->helpers);
}

/* ---- reading a session ----------------------------------------------------- */

static turn *add_turn(trace_reader *reader, const turn *t)
{
    state *st = reader->state;
    if (!grow(&st->turns, st->num_turns, &st->turn_room, MAX_TURNS, sizeof *t)) {
        trace_no_memory(reader);
        return NULL;
    }
    st->turns[st->num_turns] = *t;
    return &st->turns[st->num_turns++];
}

static uint32_t add_helper(trace_reader *reader, uint32_t last_turn, uint32_t next)
{
    state *st = reader->state;
    if (!grow(&st->helpers, st->num_helpers, &st->helper_room, MAX_TURNS, sizeof *st->helpers)) {
        trace_no_memory(reader);
        return next;
    }
    st->helpers[st->num_helpers] = (helper){.last_turn = last_turn, .next = next};
    return st->num_helpers++;
}

static const trace_field turn_fields[] = {
    {"t", TRACE_FIELD_TIME, offsetof(turn, start_s)},
    {"in", TRACE_FIELD_LENGTH, offsetof(turn, num_prompt_tokens)},
    {"out", TRACE_FIELD_LENGTH, offsetof(turn, num_output_tokens)},
    {"think_time", TRACE_FIELD_TIME, offsetof(turn, think_s)},
    {"api_time", TRACE_FIELD_TIME, offsetof(turn, api_s)},
    {0}};

/* One agent's turns, as they are read. */
typedef struct agent {
    uint32_t id;
    uint32_t turns;
    uint32_t last;    /* its last turn, or who started it; NONE */
    uint32_t helpers; /* started since its last turn */
} agent;

static void read_requests(trace_reader *reader, scanner *scan, agent *a, int nesting);

/* The turn that was just read takes its place in the session. */
static void join_agent(trace_reader *reader, agent *a, const turn *read)
{
    state *st = reader->state;
    turn *t = add_turn(reader, read);
    if (t == NULL)
        return;
    t->agent = a->id;
    t->number = a->turns++;
    t->before = a->last;
    t->helpers = a->helpers;
    t->is_last = true;
    t->line = reader->line;
    if (t->number > 0)
        st->turns[a->last].is_last = false;
    a->last = st->num_turns - 1;
    a->helpers = NONE;
    if (t->start_s < 0)
        trace_problem(reader, "t", "is missing");
    trace_check_lengths(reader, "in", t->num_prompt_tokens, "out", &t->num_output_tokens);
}

/* A turn, or, where there are requests in it, a helper. */
typedef struct request_row {
    turn turn; /* first, as the table says */
    agent sub;
    int nesting;
} request_row;

static void take_other(trace_reader *reader, scanner *scan, const scan_text *name, void *row)
{
    state *st = reader->state;
    request_row *r = row;
    if (scan_is(name, "requests") && scan_peek(scan) == JSON_ARRAY) {
        r->sub.id = ++st->num_agents;
        read_requests(reader, scan, &r->sub, r->nesting + 1);
    } else if (scan_is(name, "hash_ids")) {
        trace_take_ids(reader, scan, "hash_ids");
    } else {
        scan_skip(scan);
    }
}

static void read_request(trace_reader *reader, scanner *scan, agent *a, int nesting)
{
    request_row r = {.turn = {.num_prompt_tokens = -1,
                              .num_output_tokens = -1,
                              .first_id = reader->num_ids,
                              .start_s = -1,
                              .think_s = NAN,
                              .api_s = NAN,
                              .helpers = NONE},
                     .sub = {.last = a->last, .helpers = NONE},
                     .nesting = nesting};
    trace_take_object(reader, scan, turn_fields, take_other, &r);
    if (scan->error != NULL)
        return;
    if (r.sub.id == 0) {
        r.turn.num_ids = reader->num_ids - r.turn.first_id;
        join_agent(reader, a, &r.turn);
    } else if (r.sub.turns > 0) {
        a->helpers = add_helper(reader, r.sub.last, a->helpers);
    }
}

static void read_requests(trace_reader *reader, scanner *scan, agent *a, int nesting)
{
    uint64_t item = 0;
    if (nesting > MAX_NESTING) {
        if (scan_skip(scan))
            trace_problem(reader, "requests", "subagents are nested too deep");
        return;
    }
    scan_open(scan, '[');
    while (scan_element(scan) == 1) {
        reader->item = ++item;
        reader->line = scan_line_number(scan);
        if (scan_peek(scan) == JSON_OBJECT)
            read_request(reader, scan, a, nesting);
        else if (scan_skip(scan))
            trace_problem(reader, "requests", "has an element that is not an object");
    }
    reader->item = 0;
}

static void take_scope(trace_reader *reader, scanner *scan)
{
    state *st = reader->state;
    scan_text scope;
    if (scan_peek(scan) != JSON_STRING) {
        scan_skip(scan);
        return;
    }
    if (!scan_string(scan, &scope))
        return;
    st->are_ids_global = scan_is(&scope, "global");
    if (!st->are_ids_global && !scan_is(&scope, "local"))
        trace_problem(reader, "hash_id_scope", "is neither \"local\" nor \"global\"");
}

/* Ids are checked when all is known: the block size may stand behind the requests. */
static void check_ids(trace_reader *reader)
{
    state *st = reader->state;
    if (st->block_size == 0 || st->block_size > TRACE_MAX_TOKENS) {
        trace_problem(reader, "block_size", "is out of range");
        return;
    }
    for (uint32_t i = 0; i < st->num_turns && !reader->has_problem; i++) {
        const turn *t = &st->turns[i];
        reader->line = t->line;
        reader->item = i + 1;
        trace_ids_fit(reader, "hash_ids", t->num_ids, (uint32_t)t->num_prompt_tokens,
                      (uint32_t)st->block_size);
    }
}

static trace_outcome read_session(trace_reader *reader)
{
    state *st = reader->state;
    scanner *scan = &st->document.scan;
    trace_outcome outcome = trace_document_next(&st->document, reader);
    if (outcome != TRACE_OK)
        return outcome;
    st->block_size = reader->id_block_size;
    st->are_ids_global = false;
    agent root = {.last = NONE, .helpers = NONE};
    bool has_requests = false;
    scan_text name;
    scan_open(scan, '{');
    while (scan_field(scan, &name) == 1) {
        if (scan_is(&name, "requests") && scan_peek(scan) == JSON_ARRAY) {
            read_requests(reader, scan, &root, 0);
            has_requests = true;
        } else if (scan_is(&name, "block_size")) {
            trace_take_u64(reader, scan, "block_size", &st->block_size);
        } else if (scan_is(&name, "hash_id_scope")) {
            take_scope(reader, scan);
        } else {
            scan_skip(scan);
        }
    }
    if (!has_requests)
        trace_problem(reader, "requests", "is missing");
    if (scan->error == NULL && !reader->has_problem)
        check_ids(reader);
    return trace_document_outcome(&st->document, reader);
}

/* ---- files of an archive --------------------------------------------------- */

static bool is_session_file(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash != NULL ? slash + 1 : name;
    const char *dot = strrchr(base, '.');
    return base[0] != '.' && dot != NULL &&
           (strcmp(dot, ".json") == 0 || strcmp(dot, ".jsonl") == 0);
}

static trace_outcome open_entry(trace_reader *reader)
{
    state *st = reader->state;
    int more;
    do {
        more = trace_tar_next(&st->tar, reader->in, st->left);
        st->left = st->tar.size;
    } while (more == 1 && !is_session_file(st->tar.name));
    if (more == 0)
        return TRACE_END;
    if (more < 0) {
        const char *why = input_error(reader->in);
        trace_begin_record(reader, 0);
        trace_problem(reader, NULL, "%s", why != NULL ? why : st->tar.error);
        return TRACE_BROKEN;
    }
    reader->entry = st->tar.name;
    st->is_inside_entry = true;
    trace_document_begin(&st->document, reader, st->tar.size);
    return TRACE_OK;
}

/* The next session, from the next file where this one is at its end. A file that is no JSON spoils
 * only itself. */
static trace_outcome next_session(trace_reader *reader)
{
    state *st = reader->state;
    for (;;) {
        st->num_turns = 0;
        st->num_helpers = 0;
        st->num_agents = 0;
        st->next = 0;
        if (st->is_tar && !st->is_inside_entry) {
            trace_outcome opened = open_entry(reader);
            if (opened != TRACE_OK)
                return opened;
        }
        trace_outcome outcome = read_session(reader);
        bool is_over = outcome == TRACE_END || outcome == TRACE_BROKEN;
        if (!st->is_tar || !is_over || input_error(reader->in) != NULL)
            return outcome;
        scan_leave(&st->document.scan);
        st->left = st->document.scan.limit;
        st->is_inside_entry = false;
        if (outcome == TRACE_BROKEN)
            return TRACE_BAD;
    }
}

/* ---- handing out ----------------------------------------------------------- */

/* What it waits for, as numbers of requests; the earliest time that leaves. */
static double find_waits(trace_reader *reader, const turn *t, trace_request *request)
{
    state *st = reader->state;
    double time_s = st->turns[t->before].time_s;
    if (t->helpers == NONE && t->number > 0)
        return time_s; /* just the turn before */
    uint32_t h = t->helpers;
    for (uint32_t last = t->before; last != NONE;) {
        trace_add_after(reader, st->turns[last].request);
        time_s = fmax(time_s, st->turns[last].time_s);
        last = h != NONE ? st->helpers[h].last_turn : NONE;
        h = h != NONE ? st->helpers[h].next : NONE;
    }
    request->after = reader->after;
    request->num_after = reader->num_after;
    return time_s;
}

static double think_time(const turn *t, const turn *before)
{
    if (!isnan(t->think_s))
        return t->think_s;
    double gap_s = t->start_s - before->start_s;
    if (!isnan(before->api_s))
        gap_s -= before->api_s;
    return fmax(gap_s, 0);
}

static trace_outcome hand_out(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    turn *t = &st->turns[st->next];
    uint64_t scope = st->are_ids_global ? 0 : st->first_session;
    if (st->next > 0)
        trace_begin_record(reader, t->line);
    trace_push_ids(reader, "hash_ids", reader->ids + t->first_id, t->num_ids,
                   (uint32_t)t->num_prompt_tokens, (uint32_t)st->block_size, scope);
    if (!trace_fill(reader, request, (uint32_t)t->num_output_tokens))
        return TRACE_BAD;
    request->session = st->first_session + t->agent;
    request->turn = t->number;
    request->is_closed_loop = true;
    request->is_last_turn = t->is_last;
    request->id_block_size = (uint32_t)st->block_size;
    if (t->before == NONE) {
        t->time_s = trace_place_session(reader, st->next == 0 ? 0 : t->start_s);
    } else {
        request->think_s = think_time(t, &st->turns[t->before]);
        t->time_s = find_waits(reader, t, request) + request->think_s;
    }
    request->time_s = t->time_s;
    t->request = request->number;
    st->next++;
    return TRACE_OK;
}

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    while (st->next == st->num_turns) {
        trace_outcome outcome = next_session(reader);
        if (outcome != TRACE_OK) {
            st->num_turns = 0;
            st->next = 0;
            return outcome;
        }
        st->first_session = reader->shared->num_sessions + 1;
    }
    if (st->next == 0)
        reader->shared->num_sessions += 1 + st->num_agents;
    trace_outcome outcome = hand_out(reader, request);
    if (outcome != TRACE_OK)
        st->next = st->num_turns; /* others wait for it: the rest of the session goes with it */
    return outcome;
}

const trace_kind trace_agent = {
    .format = TRACE_AGENT,
    .name = "agent",
    .alias = "weka",
    .id_block_size = 64,
    .state_bytes = sizeof(state),
    .begin = begin,
    .next = next,
    .end = end,
};

#include "record/format.h"

#include "base/memory.h"

#include <quire/error.h>
#include <quire/record.h>

#include <string.h>

static const char *const REASONS[] = {"",      "stop",       "length", "abort",
                                      "error", "repetition", "ignored"};

int qr_format_init(qr_format *format, qr_salt *salt)
{
    memset(format, 0, sizeof *format);
    format->salt = salt;
    format->says_reqs = true;
    format->live = qr_alloc(QR_MAX_LIVE, sizeof *format->live);
    return format->live == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

void qr_format_free(qr_format *format)
{
    for (int i = 0; i < QR_MAX_FLIGHT; i++)
        qr_free(format->flights[i].reqs);
    qr_free(format->live);
    format->live = NULL;
}

/* ---- parts of lines ------------------------------------------------------- */

static void begin(qr_format *format, const char *type, uint64_t t_ns)
{
    uint64_t since_ns = t_ns > format->start_ns ? t_ns - format->start_ns : 0;
    qr_record_text_put_string(format->out, "{\"type\": \"");
    qr_record_text_put_string(format->out, type);
    qr_record_text_put_string(format->out, "\", \"t\": ");
    qr_record_text_put_seconds(format->out, since_ns);
}

static void end(qr_format *format)
{
    qr_record_text_put(format->out, "}\n", 2);
}

static void put_name(qr_format *format, const char *name)
{
    qr_record_text_put(format->out, ", \"", 3);
    qr_record_text_put_string(format->out, name);
    qr_record_text_put(format->out, "\": ", 3);
}

static void put_field(qr_format *format, const char *name, uint64_t number)
{
    put_name(format, name);
    qr_record_text_put_number(format->out, number);
}

static void put_if(qr_format *format, const char *name, uint64_t number)
{
    if (number != 0)
        put_field(format, name, number);
}

static void put_true(qr_format *format, const char *name, uint32_t is_true)
{
    if (is_true != 0) {
        put_name(format, name);
        qr_record_text_put(format->out, "true", 4);
    }
}

static void put_bool(qr_format *format, const char *name, uint32_t is_true)
{
    put_name(format, name);
    qr_record_text_put_string(format->out, is_true != 0 ? "true" : "false");
}

static void put_list(qr_format *format, const char *name, const uint32_t *numbers, uint64_t count)
{
    put_name(format, name);
    qr_record_text_put(format->out, "[", 1);
    for (uint64_t i = 0; i < count; i++) {
        if (i != 0)
            qr_record_text_put(format->out, ", ", 2);
        qr_record_text_put_number(format->out, numbers[i]);
    }
    qr_record_text_put(format->out, "]", 1);
}

static void put_pair(qr_format *format, const quire_recorded_pair *pair)
{
    qr_record_text_put(format->out, "[", 1);
    qr_record_text_put_number(format->out, pair->req);
    qr_record_text_put(format->out, ", ", 2);
    qr_record_text_put_number(format->out, pair->number);
    qr_record_text_put(format->out, "]", 1);
}

static void put_pairs(qr_format *format, const char *name, const quire_recorded_pair *pairs,
                      uint32_t count)
{
    if (count == 0)
        return;
    put_name(format, name);
    for (uint32_t i = 0; i < count; i++) {
        qr_record_text_put_string(format->out, i == 0 ? "[" : ", ");
        put_pair(format, &pairs[i]);
    }
    qr_record_text_put(format->out, "]", 1);
}

static void put_salted(qr_format *format, qr_salt_kind kind, const void *value, size_t bytes)
{
    unsigned char hash[QR_SALTED_BYTES];
    if (qr_salt_hash(format->salt, kind, value, bytes, hash) != QUIRE_OK)
        format->out->has_failed = true;
    else
        qr_record_text_put_hex(format->out, hash, sizeof hash);
}

static void put_hashes(qr_format *format, const unsigned char *hashes, uint32_t count,
                       uint32_t hash_bytes)
{
    if (count == 0)
        return;
    put_name(format, "hashes");
    qr_record_text_put(format->out, "\"", 1);
    for (uint32_t i = 0; i < count; i++)
        put_salted(format, QR_SALT_BLOCK, hashes + (size_t)i * hash_bytes, hash_bytes);
    qr_record_text_put(format->out, "\"", 1);
}

static bool are_ones(const uint32_t *numbers, uint64_t count)
{
    uint32_t differs = 0;
    for (uint64_t i = 0; i < count; i++)
        differs |= numbers[i] ^ 1;
    return differs == 0;
}

/* ---- requests --------------------------------------------------------------- */

static qr_record_live *live_of(qr_format *format, uint32_t req)
{
    qr_record_live *live = &format->live[req % QR_MAX_LIVE];
    return live->req == req ? live : NULL;
}

static void put_inputs(qr_format *format, const unsigned char *at, uint32_t count)
{
    const qr_line_input *inputs = (const qr_line_input *)at;
    const unsigned char *identifier = at + count * sizeof *inputs;
    put_name(format, "mm");
    for (uint32_t i = 0; i < count; i++) {
        qr_record_text_put_string(format->out, i == 0 ? "[[" : ", [");
        qr_record_text_put_number(format->out, inputs[i].offset);
        qr_record_text_put(format->out, ", ", 2);
        qr_record_text_put_number(format->out, inputs[i].length);
        qr_record_text_put(format->out, ", ", 2);
        qr_record_text_put_number(format->out, inputs[i].num_embeds);
        qr_record_text_put(format->out, ", \"", 3);
        put_salted(format, QR_SALT_INPUT, identifier, inputs[i].identifier_bytes);
        qr_record_text_put(format->out, "\"]", 2);
        identifier += inputs[i].identifier_bytes;
    }
    qr_record_text_put(format->out, "]", 1);
}

static void put_names(qr_format *format, const qr_line_request *line, const unsigned char **at)
{
    static const char *const NAMES[QR_NUM_NAMES] = {"adapter", "salt", "session"};
    static const qr_salt_kind KINDS[QR_NUM_NAMES] = {QR_SALT_ADAPTER, QR_SALT_SALT,
                                                     QR_SALT_SESSION};
    for (int i = 0; i < QR_NUM_NAMES; i++) {
        if (line->name_bytes[i] == 0)
            continue;
        put_name(format, NAMES[i]);
        qr_record_text_put(format->out, "\"", 1);
        put_salted(format, KINDS[i], *at, line->name_bytes[i]);
        qr_record_text_put(format->out, "\"", 1);
        *at += line->name_bytes[i];
    }
}

static void put_priority(qr_format *format, int32_t priority)
{
    if (priority == 0)
        return;
    put_name(format, "priority");
    if (priority < 0)
        qr_record_text_put(format->out, "-", 1);
    qr_record_text_put_number(format->out,
                              (uint64_t)(priority < 0 ? -(int64_t)priority : priority));
}

static void format_request(qr_format *format, const qr_line_request *line)
{
    const unsigned char *at = (const unsigned char *)(line + 1);
    format->live[line->req % QR_MAX_LIVE] = (qr_record_live){.req = line->req};
    begin(format, "request", line->line.t_ns);
    put_field(format, "req", line->req);
    put_name(format, "arrival");
    qr_record_text_put_real(format->out, line->arrival_time - format->start_s);
    put_field(format, "prompt", line->num_prompt_tokens);
    put_field(format, "max_tokens", line->max_tokens);
    put_if(format, "min_tokens", line->min_tokens);
    put_true(format, "eos", line->flags & QR_REQUEST_HAS_EOS);
    put_if(format, "stops", line->num_stop_tokens);
    put_priority(format, line->priority);
    put_if(format, "client", line->client_index);
    put_hashes(format, at, line->num_hashes, line->hash_bytes);
    at += (size_t)line->num_hashes * line->hash_bytes;
    put_names(format, line, &at);
    at = (const unsigned char *)(((uintptr_t)at + 7) & ~(uintptr_t)7);
    if (line->num_inputs != 0)
        put_inputs(format, at, line->num_inputs);
    put_true(format, "grammar", line->flags & QR_REQUEST_GRAMMAR);
    put_true(format, "pooling", line->flags & QR_REQUEST_POOLING);
    put_true(format, "resumable", line->flags & QR_REQUEST_RESUMABLE);
    put_true(format, "skip_prefix", line->flags & QR_REQUEST_SKIPS_PREFIX);
    end(format);
}

static void format_end(qr_format *format, const qr_line_end *line)
{
    qr_record_live *live = live_of(format, line->req);
    begin(format, "end", line->line.t_ns);
    put_field(format, "req", line->req);
    put_name(format, "reason");
    qr_record_text_put(format->out, "\"", 1);
    qr_record_text_put_string(format->out, REASONS[line->reason]);
    qr_record_text_put(format->out, "\"", 1);
    put_field(format, "output", line->num_output_tokens);
    if (live != NULL) {
        if (live->has_run != 0)
            put_field(format, "hit", live->hit);
        put_if(format, "preemptions", live->num_preemptions);
        if (live->first_ns != 0) {
            put_name(format, "first");
            qr_record_text_put_seconds(format->out, live->first_ns - format->start_ns);
            put_name(format, "last");
            qr_record_text_put_seconds(format->out, live->last_ns - format->start_ns);
        }
        live->req = 0;
    }
    put_hashes(format, (const unsigned char *)(line + 1), line->num_hashes, line->hash_bytes);
    end(format);
}

/* ---- steps ------------------------------------------------------------------ */

/* Remembers the requests of a step; they are the same as those of the line before: true. */
static bool note_flight(qr_format *format, const qr_line_schedule *line, const uint32_t *reqs)
{
    qr_record_flight *flight = &format->flights[line->step % QR_MAX_FLIGHT];
    qr_record_flight *last = &format->flights[format->last_step % QR_MAX_FLIGHT];
    size_t bytes = line->num_reqs * sizeof *reqs;
    bool is_same = format->last_step != 0 && last->step == format->last_step &&
                   last->num_reqs == line->num_reqs &&
                   (bytes == 0 || memcmp(last->reqs, reqs, bytes) == 0);
    flight->step = 0;
    format->last_step = 0;
    if (flight->room < line->num_reqs) {
        qr_free(flight->reqs);
        flight->room = 2 * line->num_reqs;
        flight->reqs = qr_alloc_raw(flight->room * sizeof *reqs);
        if (flight->reqs == NULL) {
            flight->room = 0;
            return is_same; /* its update has no times */
        }
    }
    if (bytes != 0)
        memcpy(flight->reqs, reqs, bytes);
    flight->num_reqs = line->num_reqs;
    flight->t_ns = line->line.t_ns;
    flight->step = line->step;
    format->last_step = line->step;
    return is_same;
}

static void note_hits(qr_format *format, const quire_recorded_pair *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        qr_record_live *live = live_of(format, pairs[i].req);
        if (live != NULL && live->has_run == 0) {
            live->hit = pairs[i].number;
            live->has_run = 1;
        }
    }
}

/* An engine may list a request that was preempted as a new one: what has run before is resumed. */
static void put_admitted(qr_format *format, const qr_line_schedule *line,
                         const quire_recorded_pair *pairs, bool has_run)
{
    uint32_t count = line->num_new + (has_run ? line->num_resumed : 0);
    uint32_t num_put = 0;
    for (uint32_t i = 0; i < count; i++) {
        const qr_record_live *live = live_of(format, pairs[i].req);
        bool is_resumed = i >= line->num_new || (live != NULL && live->has_run != 0);
        if (is_resumed != has_run)
            continue;
        if (num_put == 0)
            put_name(format, has_run ? "resumed" : "new");
        qr_record_text_put_string(format->out, num_put++ == 0 ? "[" : ", ");
        put_pair(format, &pairs[i]);
    }
    if (num_put != 0)
        qr_record_text_put(format->out, "]", 1);
}

static void note_preempted(qr_format *format, const uint32_t *reqs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        qr_record_live *live = live_of(format, reqs[i]);
        if (live != NULL)
            live->num_preemptions++;
    }
}

static void format_schedule(qr_format *format, const qr_line_schedule *line)
{
    const uint32_t *reqs = (const uint32_t *)(line + 1);
    const uint32_t *tokens = reqs + line->num_reqs;
    const uint32_t *preempted = tokens + line->num_reqs;
    const quire_recorded_pair *news =
        (const quire_recorded_pair *)(preempted + line->num_preempted);
    const quire_recorded_pair *resumed = news + line->num_new;
    const quire_recorded_pair *drafts = resumed + line->num_resumed;
    bool is_same = note_flight(format, line, reqs);
    note_preempted(format, preempted, line->num_preempted);
    begin(format, "schedule", line->line.t_ns);
    put_field(format, "step", line->step);
    if (!is_same || format->says_reqs)
        put_list(format, "reqs", reqs, line->num_reqs);
    format->says_reqs = false;
    if (!are_ones(tokens, line->num_reqs))
        put_list(format, "tokens", tokens, line->num_reqs);
    put_admitted(format, line, news, false);
    put_admitted(format, line, news, true);
    note_hits(format, news, line->num_new);
    if (line->num_preempted != 0)
        put_list(format, "preempted", preempted, line->num_preempted);
    put_pairs(format, "drafts", drafts, line->num_drafts);
    put_pairs(format, "encoder", drafts + line->num_drafts, line->num_encoder);
    put_field(format, "running", line->num_running);
    put_field(format, "waiting", line->num_waiting);
    put_field(format, "free", line->num_free_blocks);
    put_true(format, "throttle", line->throttle_prefills);
    end(format);
}

static void note_tokens(qr_format *format, const qr_record_flight *flight, const uint32_t *sampled,
                        uint64_t num_sampled, uint64_t t_ns)
{
    for (uint32_t i = 0; i < flight->num_reqs; i++) {
        qr_record_live *live = live_of(format, flight->reqs[i]);
        if (live == NULL || (num_sampled != 0 && (i >= num_sampled || sampled[i] == 0)))
            continue;
        if (live->first_ns == 0)
            live->first_ns = t_ns;
        live->last_ns = t_ns;
    }
}

static void format_update(qr_format *format, const qr_line_update *line)
{
    const uint32_t *sampled = (const uint32_t *)(line + 1);
    const qr_record_flight *flight = &format->flights[line->step % QR_MAX_FLIGHT];
    bool is_known = flight->step == line->step;
    if (is_known)
        note_tokens(format, flight, sampled, line->num_reqs, line->line.t_ns);
    begin(format, "update", line->line.t_ns);
    put_field(format, "step", line->step);
    if (is_known) {
        put_name(format, "seconds");
        qr_record_text_put_seconds(format->out, line->line.t_ns - flight->t_ns);
    }
    if (!are_ones(sampled, line->num_reqs))
        put_list(format, "sampled", sampled, line->num_reqs);
    end(format);
}

/* ---- other lines ------------------------------------------------------------- */

static void format_finish(qr_format *format, const qr_line_list *line)
{
    begin(format, "finish", line->line.t_ns);
    put_list(format, "reqs", (const uint32_t *)(line + 1), line->number);
    put_name(format, "reason");
    qr_record_text_put(format->out, "\"", 1);
    qr_record_text_put_string(format->out, REASONS[line->reason]);
    qr_record_text_put(format->out, "\"", 1);
    end(format);
}

static void format_reset(qr_format *format, const qr_line_list *line)
{
    bool is_encoder = (line->number & QUIRE_RECORDED_RESET_ENCODER) != 0;
    begin(format, "reset", line->line.t_ns);
    put_name(format, "what");
    qr_record_text_put_string(format->out, is_encoder ? "\"encoder\"" : "\"prefix\"");
    put_bool(format, "running", line->number & QUIRE_RECORDED_RESET_RUNNING);
    put_bool(format, "connector", line->number & QUIRE_RECORDED_RESET_CONNECTOR);
    put_bool(format, "done", line->number & QUIRE_RECORDED_RESET_DONE);
    end(format);
}

static void format_drafts(qr_format *format, const qr_line_list *line)
{
    begin(format, "drafts", line->line.t_ns);
    put_pairs(format, "drafts", (const quire_recorded_pair *)(line + 1), line->number);
    end(format);
}

void qr_format_lost(qr_format *format, uint64_t num_lines, uint64_t t_ns)
{
    begin(format, "lost", t_ns);
    put_field(format, "lines", num_lines);
    end(format);
    format->says_reqs = true;
}

void qr_format_line(qr_format *format, const qr_line *line)
{
    const qr_line_list *list = (const qr_line_list *)line;
    switch ((qr_line_kind)line->kind) {
    case QR_LINE_REQUEST:
        format_request(format, (const qr_line_request *)line);
        break;
    case QR_LINE_SCHEDULE:
        format_schedule(format, (const qr_line_schedule *)line);
        break;
    case QR_LINE_UPDATE:
        format_update(format, (const qr_line_update *)line);
        break;
    case QR_LINE_DRAFTS:
        format_drafts(format, list);
        break;
    case QR_LINE_END:
        format_end(format, (const qr_line_end *)line);
        break;
    case QR_LINE_FINISH:
        format_finish(format, list);
        break;
    case QR_LINE_RESET:
        format_reset(format, list);
        break;
    case QR_LINE_SET:
        begin(format, "set", line->t_ns);
        put_field(format, "pause", list->number);
        end(format);
        break;
    case QR_LINE_LOST:
        qr_format_lost(format, list->number, line->t_ns);
        break;
    }
}

/* record/recorder.c - the calls of quire/record.h, and the thread behind them.
 *
 *      calls ─► ring ─► thread: format ─► lines ─► parts
 *
 * The thread looks into the ring by itself, every few milliseconds: waking it would be a system
 * call in a step.
 */
#include <quire/record.h>

#include "base/config.h"
#include "base/count.h"
#include "base/fork_guard.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "base/thread.h"
#include "record/format.h"
#include "record/header.h"
#include "record/parts.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    WAIT_MS = 5,
    MAX_HASH_BYTES = 64,
    FRAME_BYTES = 4 << 20 /* of lines, before they are compressed: a frame ends there */
};

struct quire_recorder {
    qr_fork_guard guard;
    quire_hooks hooks;
    qr_line_ring ring;
    /* of the engine's thread */
    uint32_t num_reqs;
    uint64_t num_steps;
    uint64_t num_unsaid; /* lines lost since the last line in the ring */
    _Atomic uint64_t num_full;
    /* of the recorder's thread */
    qr_salt *salt;
    qr_format format;
    qr_record_parts parts;
    qr_header header;
    qr_record_text lines;   /* of the next frame */
    uint64_t num_in_frame;  /* its lines, headers and lost lines aside */
    uint64_t num_unwritten; /* lost with frames since the last frame that was written */
    uint64_t frame_ns;      /* when its first line came */
    uint64_t flush_ns;
    bool has_logged;

    _Atomic uint64_t num_lines;
    _Atomic uint64_t num_failed;
    _Atomic uint64_t num_bytes;
    _Atomic uint64_t num_parts;
    _Atomic uint64_t num_errors;
    pthread_t thread;
    bool has_thread;
    _Atomic bool is_stopping;
};

/* ---- the thread ----------------------------------------------------------------- */

/* What comes before the first line of a frame: a header in a new part, what was lost. */
static void begin_frame(quire_recorder *r)
{
    uint64_t now_ns = qr_now_ns(&r->hooks);
    if (r->lines.len != 0)
        return;
    r->frame_ns = now_ns;
    if (qr_record_parts_is_new(&r->parts)) {
        uint32_t next = r->parts.number; /* unless that is open, and its first frame failed */
        qr_header_put(&r->header, &r->lines, r->parts.fd < 0 ? next : next - 1, now_ns);
        r->format.says_reqs = true;
    }
    if (r->num_unwritten != 0)
        qr_format_lost(&r->format, r->num_unwritten, now_ns);
}

static void note_error(quire_recorder *r, int problem)
{
    qr_count_add(&r->num_errors, 1);
    qr_count_add(&r->num_failed, r->num_in_frame);
    r->num_unwritten += r->num_in_frame;
    if (!r->has_logged)
        qr_log(&r->hooks, QUIRE_LOG_ERROR,
               "recording \"%s\": cannot write: %s; lines are lost and counted, and the recorder "
               "tries again",
               r->parts.path, strerror(problem));
    r->has_logged = true;
}

static void end_frame(quire_recorder *r)
{
    uint64_t num_bytes = 0;
    if (r->lines.len == 0 && !r->lines.has_failed)
        return;
    int problem = qr_record_parts_write(&r->parts, &r->lines, &num_bytes);
    if (problem == 0) {
        qr_count_add(&r->num_lines, r->num_in_frame);
        qr_count_add(&r->num_bytes, num_bytes);
        qr_count_set(&r->num_parts, r->parts.number);
        r->num_unwritten = 0;
    } else {
        note_error(r, problem);
    }
    r->lines.len = 0;
    r->lines.has_failed = false;
    r->num_in_frame = 0;
}

static void take_line(quire_recorder *r, const qr_line *line)
{
    begin_frame(r);
    qr_format_line(&r->format, line);
    if (line->kind != QR_LINE_LOST)
        r->num_in_frame++;
    qr_line_ring_pop(&r->ring, line);
}

/* Whether there was anything. */
static bool take_lines(quire_recorder *r)
{
    const qr_line *line = qr_line_ring_peek(&r->ring);
    bool has_any = line != NULL;
    for (; line != NULL; line = qr_line_ring_peek(&r->ring)) {
        take_line(r, line);
        if (r->lines.len >= FRAME_BYTES)
            end_frame(r);
    }
    if (r->lines.len != 0 && qr_now_ns(&r->hooks) - r->frame_ns >= r->flush_ns)
        end_frame(r);
    return has_any;
}

static void put_close(quire_recorder *r)
{
    begin_frame(r);
    uint64_t num_lost = qr_count_get(&r->num_full) + qr_count_get(&r->num_failed);
    qr_header_put_close(&r->header, &r->lines, qr_count_get(&r->num_lines) + r->num_in_frame,
                        num_lost, qr_now_ns(&r->hooks));
}

static void *recorder_thread(void *user)
{
    quire_recorder *r = user;
    const struct timespec wait = {0, WAIT_MS * 1000000L};
    while (!atomic_load_explicit(&r->is_stopping, memory_order_acquire)) {
        (void)take_lines(r);
        (void)nanosleep(&wait, NULL);
    }
    while (take_lines(r))
        ;
    if (r->num_unsaid != 0) { /* nothing records any more */
        begin_frame(r);
        qr_format_lost(&r->format, r->num_unsaid, qr_now_ns(&r->hooks));
    }
    put_close(r);
    end_frame(r);
    return NULL;
}

/* ---- creating --------------------------------------------------------------------- */

static int check_config(quire_recorder_config *config)
{
    config->buffer_bytes = qr_or_default(config->buffer_bytes, 16 << 20);
    config->part_bytes = qr_or_default(config->part_bytes, 256 << 20);
    config->flush_ms = (uint32_t)qr_or_default(config->flush_ms, 1000);
    config->level = (uint32_t)qr_or_default(config->level, 3);
    const qr_field fields[] = {QR_FIELD(config, buffer_bytes, 64 << 10, 1 << 30),
                               QR_FIELD(config, part_bytes, 4096, UINT64_MAX),
                               QR_FIELD(config, flush_ms, 10, 60000),
                               QR_FIELD(config, level, 1, 19)};
    return qr_refuse_fields(fields, sizeof fields / sizeof *fields);
}

static int begin(quire_recorder *r, const quire_recorder_config *config)
{
    r->hooks = config->hooks;
    r->flush_ns = (uint64_t)config->flush_ms * 1000000;
    qr_fork_guard_init(&r->guard);
    int status = qr_header_init(&r->header, config);
    if (status == QUIRE_OK)
        status = qr_line_ring_init(&r->ring, config->buffer_bytes);
    if (status == QUIRE_OK)
        status = qr_salt_create(&r->hooks, &r->salt);
    if (status == QUIRE_OK)
        status = qr_format_init(&r->format, r->salt);
    if (status == QUIRE_OK)
        status = qr_record_parts_open(&r->parts, config->path, config->part_bytes, config->level);
    if (status != QUIRE_OK)
        return status;
    r->format.out = &r->lines;
    r->format.start_ns = r->header.start_ns;
    r->format.start_s = r->header.start_s;
    r->has_thread = qr_thread_start(&r->thread, "quire-record", recorder_thread, r);
    if (!r->has_thread)
        return qr_fail(QUIRE_E_SYSTEM, "cannot start the recorder's thread");
    return QUIRE_OK;
}

static void release(quire_recorder *r)
{
    qr_record_parts_close(&r->parts);
    qr_format_free(&r->format);
    qr_salt_destroy(r->salt);
    qr_line_ring_free(&r->ring);
    qr_header_free(&r->header);
    qr_record_text_free(&r->lines);
    qr_free(r);
}

int quire_recorder_create(const quire_recorder_config *config, quire_recorder **recorder)
{
    quire_recorder_config ours;
    int status = qr_refuse_opening(&ours, sizeof ours, config, recorder, NULL, "recorder");
    if (status != QUIRE_OK)
        return status;
    status = check_config(&ours);
    if (status != QUIRE_OK)
        return status;
    quire_recorder *r = qr_alloc(1, sizeof *r);
    if (r == NULL)
        return qr_fail_plain(QUIRE_E_NOMEM, "recorder");
    r->parts.fd = -1;
    status = begin(r, &ours);
    if (status != QUIRE_OK) {
        release(r);
        return qr_fail_plain(status, "recorder");
    }
    *recorder = r;
    return QUIRE_OK;
}

void quire_recorder_destroy(quire_recorder *r)
{
    if (r == NULL)
        return;
    if (r->has_thread && !qr_fork_guard_is_child(&r->guard)) {
        atomic_store_explicit(&r->is_stopping, true, memory_order_release);
        (void)pthread_join(r->thread, NULL);
    }
    release(r);
}

/* ---- lines ------------------------------------------------------------------------- */

static int lose(quire_recorder *r)
{
    r->num_unsaid++;
    qr_count_add(&r->num_full, 1);
    return QUIRE_FULL;
}

/* Room for a line; before it, how many were lost. NULL: no room. */
static void *reserve(quire_recorder *r, qr_line_kind kind, uint64_t bytes)
{
    uint64_t t_ns = qr_now_ns(&r->hooks);
    if (r->num_unsaid != 0) {
        qr_line_list *lost = (qr_line_list *)qr_line_ring_reserve(&r->ring, sizeof *lost);
        if (lost == NULL)
            return NULL;
        lost->line.kind = QR_LINE_LOST;
        lost->line.t_ns = t_ns;
        lost->number = (uint32_t)r->num_unsaid;
        qr_line_ring_commit(&r->ring);
        r->num_unsaid = 0;
    }
    qr_line *line = qr_line_ring_reserve(&r->ring, bytes);
    if (line == NULL)
        return NULL;
    line->kind = kind;
    line->t_ns = t_ns;
    return line;
}

static unsigned char *put(unsigned char *at, const void *bytes, size_t len)
{
    if (len != 0)
        memcpy(at, bytes, len);
    return at + len;
}

static bool is_text(quire_bytes bytes)
{
    return bytes.len == 0 || (bytes.data != NULL && bytes.len <= UINT32_MAX);
}

static bool are_hashes(const void *hashes, uint32_t num_hashes, uint32_t hash_bytes)
{
    return num_hashes == 0 || (hashes != NULL && hash_bytes > 0 && hash_bytes <= MAX_HASH_BYTES);
}

static bool is_request(const quire_recorded_request *request)
{
    if (request == NULL || !isfinite(request->arrival_time) ||
        !are_hashes(request->hashes, request->num_hashes, request->hash_bytes) ||
        !is_text(request->adapter) || !is_text(request->cache_salt) || !is_text(request->session) ||
        (request->num_inputs != 0 && request->inputs == NULL))
        return false;
    for (uint32_t i = 0; i < request->num_inputs; i++)
        if (!is_text(request->inputs[i].identifier))
            return false;
    return true;
}

static uint32_t flags_of(const quire_recorded_request *request)
{
    return (request->has_eos != 0 ? (uint32_t)QR_REQUEST_HAS_EOS : 0) |
           (request->use_grammar != 0 ? (uint32_t)QR_REQUEST_GRAMMAR : 0) |
           (request->is_pooling != 0 ? (uint32_t)QR_REQUEST_POOLING : 0) |
           (request->is_resumable != 0 ? (uint32_t)QR_REQUEST_RESUMABLE : 0) |
           (request->skip_reading_prefix != 0 ? (uint32_t)QR_REQUEST_SKIPS_PREFIX : 0);
}

static void put_request(qr_line_request *line, const quire_recorded_request *request)
{
    const quire_bytes names[QR_NUM_NAMES] = {request->adapter, request->cache_salt,
                                             request->session};
    unsigned char *at = (unsigned char *)(line + 1);
    line->arrival_time = request->arrival_time;
    line->num_prompt_tokens = request->num_prompt_tokens;
    line->max_tokens = request->max_tokens;
    line->min_tokens = request->min_tokens;
    line->num_stop_tokens = request->num_stop_tokens;
    line->priority = request->priority;
    line->client_index = request->client_index;
    line->flags = flags_of(request);
    line->num_hashes = request->num_hashes;
    line->hash_bytes = request->hash_bytes;
    line->num_inputs = request->num_inputs;
    at = put(at, request->hashes, (size_t)request->num_hashes * request->hash_bytes);
    for (int i = 0; i < QR_NUM_NAMES; i++) {
        line->name_bytes[i] = (uint32_t)names[i].len;
        at = put(at, names[i].data, names[i].len);
    }
    at = (unsigned char *)(((uintptr_t)at + 7) & ~(uintptr_t)7);
    for (uint32_t i = 0; i < request->num_inputs; i++) {
        const quire_recorded_input *input = &request->inputs[i];
        const qr_line_input made = {input->offset, input->length, input->num_embeds,
                                    (uint32_t)input->identifier.len};
        at = put(at, &made, sizeof made);
    }
    for (uint32_t i = 0; i < request->num_inputs; i++)
        at = put(at, request->inputs[i].identifier.data, request->inputs[i].identifier.len);
}

int quire_recorder_add(quire_recorder *r, const quire_recorded_request *request, uint32_t *req)
{
    quire_recorded_request room;
    request = qr_struct_in(&room, sizeof room, request);
    if (r == NULL || req == NULL || !is_request(request))
        return QUIRE_E_ARGUMENT;
    if (qr_fork_guard_is_child(&r->guard))
        return QUIRE_E_SYSTEM;
    uint64_t bytes = sizeof(qr_line_request) + 8 +
                     (uint64_t)request->num_hashes * request->hash_bytes + request->adapter.len +
                     request->cache_salt.len + request->session.len +
                     request->num_inputs * sizeof(qr_line_input);
    for (uint32_t i = 0; i < request->num_inputs; i++)
        bytes += request->inputs[i].identifier.len;
    *req = ++r->num_reqs;
    qr_line_request *line = reserve(r, QR_LINE_REQUEST, bytes);
    if (line == NULL)
        return lose(r);
    line->req = *req;
    put_request(line, request);
    qr_line_ring_commit(&r->ring);
    return QUIRE_OK;
}

static bool is_step(const quire_recorded_step *step)
{
    return step != NULL &&
           (step->num_reqs == 0 || (step->reqs != NULL && step->num_tokens != NULL)) &&
           (step->num_new == 0 || step->new_reqs != NULL) &&
           (step->num_resumed == 0 || step->resumed != NULL) &&
           (step->num_preempted == 0 || step->preempted != NULL) &&
           (step->num_drafts == 0 || step->drafts != NULL) &&
           (step->num_encoder == 0 || step->encoder != NULL);
}

int quire_recorder_schedule(quire_recorder *r, const quire_recorded_step *recorded, uint64_t *step)
{
    quire_recorded_step room;
    recorded = qr_struct_in(&room, sizeof room, recorded);
    if (r == NULL || step == NULL || !is_step(recorded))
        return QUIRE_E_ARGUMENT;
    if (qr_fork_guard_is_child(&r->guard))
        return QUIRE_E_SYSTEM;
    const size_t word = sizeof(uint32_t);
    const size_t pair = sizeof(quire_recorded_pair);
    uint64_t num_pairs = (uint64_t)recorded->num_new + recorded->num_resumed +
                         recorded->num_drafts + recorded->num_encoder;
    uint64_t num_words = 2 * (uint64_t)recorded->num_reqs + recorded->num_preempted;
    *step = ++r->num_steps;
    qr_line_schedule *line =
        reserve(r, QR_LINE_SCHEDULE, sizeof *line + num_words * word + num_pairs * pair);
    if (line == NULL)
        return lose(r);
    line->step = *step;
    line->num_reqs = recorded->num_reqs;
    line->num_preempted = recorded->num_preempted;
    line->num_new = recorded->num_new;
    line->num_resumed = recorded->num_resumed;
    line->num_drafts = recorded->num_drafts;
    line->num_encoder = recorded->num_encoder;
    line->num_running = recorded->num_running;
    line->num_waiting = recorded->num_waiting;
    line->num_free_blocks = recorded->num_free_blocks;
    line->throttle_prefills = recorded->throttle_prefills;
    unsigned char *at = put((unsigned char *)(line + 1), recorded->reqs, recorded->num_reqs * word);
    at = put(at, recorded->num_tokens, recorded->num_reqs * word);
    at = put(at, recorded->preempted, recorded->num_preempted * word);
    at = put(at, recorded->new_reqs, recorded->num_new * pair);
    at = put(at, recorded->resumed, recorded->num_resumed * pair);
    at = put(at, recorded->drafts, recorded->num_drafts * pair);
    (void)put(at, recorded->encoder, recorded->num_encoder * pair);
    qr_line_ring_commit(&r->ring);
    return QUIRE_OK;
}

int quire_recorder_update(quire_recorder *r, uint64_t step, const uint32_t *num_sampled,
                          uint32_t num_reqs)
{
    if (r == NULL)
        return QUIRE_E_ARGUMENT;
    if (qr_fork_guard_is_child(&r->guard))
        return QUIRE_E_SYSTEM;
    size_t bytes = num_sampled == NULL ? 0 : num_reqs * sizeof *num_sampled;
    qr_line_update *line = reserve(r, QR_LINE_UPDATE, sizeof *line + bytes);
    if (line == NULL)
        return lose(r);
    line->step = step;
    line->num_reqs = num_sampled == NULL ? 0 : num_reqs;
    (void)put((unsigned char *)(line + 1), num_sampled, bytes);
    qr_line_ring_commit(&r->ring);
    return QUIRE_OK;
}

/* A line that is a list, of items of this many bytes. */
static int record_list(quire_recorder *r, qr_line_kind kind, uint32_t number, uint32_t reason,
                       const void *items, size_t item_bytes)
{
    if (r == NULL || (items == NULL && item_bytes != 0 && number != 0))
        return QUIRE_E_ARGUMENT;
    if (qr_fork_guard_is_child(&r->guard))
        return QUIRE_E_SYSTEM;
    qr_line_list *line = reserve(r, kind, sizeof *line + number * (uint64_t)item_bytes);
    if (line == NULL)
        return lose(r);
    line->number = number;
    line->reason = reason;
    (void)put((unsigned char *)(line + 1), items, number * item_bytes);
    qr_line_ring_commit(&r->ring);
    return QUIRE_OK;
}

int quire_recorder_drafts(quire_recorder *r, const quire_recorded_pair *drafts, uint32_t num_drafts)
{
    return record_list(r, QR_LINE_DRAFTS, num_drafts, 0, drafts, sizeof *drafts);
}

static bool is_reason(quire_recorded_reason reason)
{
    return (int)reason >= QUIRE_RECORDED_STOP && (int)reason <= QUIRE_RECORDED_IGNORED;
}

int quire_recorder_end(quire_recorder *r, uint32_t req, quire_recorded_reason reason,
                       uint32_t num_output_tokens, const void *hashes, uint32_t num_hashes,
                       uint32_t hash_bytes)
{
    if (r == NULL || !is_reason(reason) || !are_hashes(hashes, num_hashes, hash_bytes))
        return QUIRE_E_ARGUMENT;
    if (qr_fork_guard_is_child(&r->guard))
        return QUIRE_E_SYSTEM;
    uint64_t bytes = (uint64_t)num_hashes * hash_bytes;
    qr_line_end *line = reserve(r, QR_LINE_END, sizeof *line + bytes);
    if (line == NULL)
        return lose(r);
    line->req = req;
    line->reason = (uint32_t)reason;
    line->num_output_tokens = num_output_tokens;
    line->num_hashes = num_hashes;
    line->hash_bytes = hash_bytes;
    line->zero = 0;
    (void)put((unsigned char *)(line + 1), hashes, (size_t)bytes);
    qr_line_ring_commit(&r->ring);
    return QUIRE_OK;
}

int quire_recorder_finish(quire_recorder *r, const uint32_t *reqs, uint32_t num_reqs,
                          quire_recorded_reason reason)
{
    if (!is_reason(reason))
        return QUIRE_E_ARGUMENT;
    return record_list(r, QR_LINE_FINISH, num_reqs, (uint32_t)reason, reqs, sizeof *reqs);
}

int quire_recorder_reset(quire_recorder *r, uint32_t what)
{
    if (what > (QUIRE_RECORDED_RESET_DONE << 1) - 1)
        return QUIRE_E_ARGUMENT;
    return record_list(r, QR_LINE_RESET, what, 0, NULL, 0);
}

int quire_recorder_set_pause(quire_recorder *r, uint32_t pause)
{
    if (pause > 2)
        return QUIRE_E_ARGUMENT;
    return record_list(r, QR_LINE_SET, pause, 0, NULL, 0);
}

/* ---- stats -------------------------------------------------------------------------- */

int quire_recorder_get_stats(const quire_recorder *r, quire_recorder_stats *stats)
{
    quire_recorder_stats ours;
    memset(&ours, 0, sizeof ours);
    if (r == NULL)
        return QUIRE_E_ARGUMENT;
    ours.num_lines = qr_count_get(&r->num_lines);
    ours.num_lost = qr_count_get(&r->num_full) + qr_count_get(&r->num_failed);
    ours.num_bytes = qr_count_get(&r->num_bytes);
    ours.num_parts = qr_count_get(&r->num_parts);
    ours.num_errors = qr_count_get(&r->num_errors);
    return qr_struct_out(stats, &ours, sizeof ours);
}

const char *quire_recorder_get_path(const quire_recorder *r)
{
    return r == NULL ? "" : r->parts.first;
}

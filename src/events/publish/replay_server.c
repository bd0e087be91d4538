#include "events/publish/replay_server.h"

#include "base/hooks.h"
#include "events/frames.h"

#include <errno.h>
#include <string.h>

enum {
    READ_AT_ONCE = 16,   /* requests */
    SEND_AT_ONCE = 64,   /* messages for each answer: live batches come first */
    STUCK_MS = 5000,     /* nothing went out: its peer does not read */
    LONGEST_MS = 60000,  /* an answer takes its place for no longer */
    WALK_MS = 1000,      /* the whole index waits so long for a walk to end */
    WHOLE_EVERY_MS = 100 /* a new one is made, or ten times what making it takes */
};

typedef enum answer_state { ANSWER_MOVED, ANSWER_WAITS, ANSWER_DONE, ANSWER_GONE } answer_state;

/* ---- the whole index, shared ----------------------------------------------- */

static void leave_whole(qr_replay_server *a, qr_snapshot *whole)
{
    if (whole == NULL || --whole->users > 0)
        return;
    qr_snapshot_destroy(whole);
    a->num_wholes--;
}

/* Whether who starts with the last one made can be caught up from there. */
static bool is_last_fresh(const qr_replay_server *a, uint64_t now_ms)
{
    if (a->last == NULL || now_ms >= a->last_until_ms)
        return false;
    uint64_t oldest = a->buffer->next - a->buffer->count;
    return a->last->number + 1 >= oldest;
}

static qr_snapshot *take_whole(qr_replay_server *a, uint64_t now_ms)
{
    if (!is_last_fresh(a, now_ms)) {
        if (a->num_wholes >= QR_REPLAY_MOST_SNAPSHOTS)
            return NULL;
        uint64_t number = a->buffer->next - 1;
        qr_snapshot *made =
            qr_snapshot_make(&a->maker, a->batches->mirror, number, a->batches->time, a->budget);
        if (made == NULL)
            return NULL;
        leave_whole(a, a->last);
        made->users = 1;
        a->num_wholes++;
        a->last = made;
        uint64_t cost_ms = qr_now_ms() - now_ms;
        a->last_until_ms = now_ms + WHOLE_EVERY_MS + 10 * cost_ms;
    }
    a->last->users++;
    return a->last;
}

/* ---- requests -------------------------------------------------------------- */

bool qr_replay_server_has_room(const qr_replay_server *a)
{
    return a->count < QR_REPLAY_SERVER_MOST;
}

static bool has_answer(const qr_replay_server *a, const void *id, size_t id_len)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->list[i].id_len == id_len && memcmp(a->list[i].id, id, id_len) == 0)
            return true;
    return false;
}

/* A request has three frames: [id, "", number or "snapshot"]. */
static bool accept_request(qr_replay_server *a, qr_frames *frames, uint64_t now_ms)
{
    const void *id = zmq_msg_data(&frames->all[0]);
    size_t id_len = zmq_msg_size(&frames->all[0]);
    const void *body = zmq_msg_data(&frames->all[2]);
    if (frames->count != 3 || id_len > QR_REPLAY_SERVER_ID_BYTES ||
        zmq_msg_size(&frames->all[1]) != 0 || zmq_msg_size(&frames->all[2]) != QR_NUMBER_BYTES ||
        has_answer(a, id, id_len))
        return false;
    qr_replay_answer *answer = &a->list[a->count++];
    *answer = (qr_replay_answer){.id_len = id_len, .asked_ms = now_ms, .moved_ms = now_ms};
    memcpy(answer->id, id, id_len);
    answer->wants_whole = memcmp(body, QR_REPLAY_SNAPSHOT, QR_NUMBER_BYTES) == 0;
    if (!answer->wants_whole)
        answer->next = qr_payload_read_number(body);
    return true;
}

void qr_replay_server_read(qr_replay_server *a, uint64_t now_ms)
{
    bool is_there = true;
    for (int i = 0; i < READ_AT_ONCE && is_there && qr_replay_server_has_room(a); i++) {
        qr_frames frames;
        is_there = qr_frames_receive(&frames, a->router);
        a->num_refused += is_there && !accept_request(a, &frames, now_ms);
        qr_frames_close(&frames);
    }
}

/* ---- answers --------------------------------------------------------------- */

/* One message, the end where payload is NULL. After the first frame has gone nothing can fail, so
 * what can is done before. */
static answer_state send_message(qr_replay_server *a, const qr_replay_answer *answer,
                                 qr_payload *payload)
{
    zmq_msg_t last;
    unsigned char number[QR_NUMBER_BYTES];
    qr_payload_write_number(payload == NULL ? UINT64_MAX : payload->number, number);
    if (payload == NULL)
        (void)zmq_msg_init(&last);
    else if (!qr_payload_wrap(payload, &last))
        return ANSWER_WAITS;
    if (zmq_send(a->router, answer->id, answer->id_len, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        bool is_gone = zmq_errno() == EHOSTUNREACH;
        (void)zmq_msg_close(&last);
        return is_gone ? ANSWER_GONE : ANSWER_WAITS;
    }
    (void)zmq_send(a->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (a->has_topic)
        (void)zmq_send(a->router, a->topic.data, payload == NULL ? 0 : a->topic.len,
                       ZMQ_SNDMORE | ZMQ_DONTWAIT);
    (void)zmq_send(a->router, number, sizeof number, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (zmq_msg_send(&last, a->router, ZMQ_DONTWAIT) < 0)
        (void)zmq_msg_close(&last);
    return payload == NULL ? ANSWER_DONE : ANSWER_MOVED;
}

static qr_payload *next_payload(const qr_replay_server *a, const qr_replay_answer *answer)
{
    if (!answer->wants_whole)
        return qr_replay_buffer_find(a->buffer, answer->next);
    if (answer->whole == NULL || answer->next == answer->whole->num_pieces)
        return NULL;
    return answer->whole->pieces[answer->next];
}

/* Before the first batch there is nothing to be whole: just the end, and all numbers follow. */
static bool can_begin(qr_replay_server *a, qr_replay_answer *answer, uint64_t now_ms)
{
    if (!answer->wants_whole || answer->whole != NULL || a->buffer->next == 0)
        return true;
    if (a->batches->is_walking && now_ms < answer->asked_ms + WALK_MS)
        return false;
    answer->whole = take_whole(a, now_ms);
    return answer->whole != NULL;
}

static answer_state move_answer(qr_replay_server *a, qr_replay_answer *answer, uint64_t now_ms)
{
    if (!can_begin(a, answer, now_ms))
        return ANSWER_WAITS;
    answer_state state = ANSWER_WAITS;
    for (int i = 0; i < SEND_AT_ONCE; i++) {
        qr_payload *payload = next_payload(a, answer);
        answer_state now = send_message(a, answer, payload);
        if (now != ANSWER_MOVED)
            return now == ANSWER_WAITS ? state : now;
        answer->next = answer->wants_whole ? answer->next + 1 : payload->number + 1;
        answer->moved_ms = now_ms;
        state = ANSWER_MOVED;
    }
    return state;
}

static void end_answer(qr_replay_server *a, uint32_t i, bool is_answered)
{
    qr_replay_answer *answer = &a->list[i];
    if (!is_answered)
        a->num_refused++;
    else if (answer->wants_whole)
        a->num_snapshots++;
    else
        a->num_replays++;
    leave_whole(a, answer->whole);
    *answer = a->list[--a->count];
}

bool qr_replay_server_serve(qr_replay_server *a, uint64_t now_ms)
{
    bool has_moved = false;
    bool is_full = atomic_load_explicit(&a->budget->bytes, memory_order_relaxed) > a->max_bytes;
    for (uint32_t i = a->count; i-- > 0;) {
        qr_replay_answer *answer = &a->list[i];
        answer_state state = is_full ? ANSWER_WAITS : move_answer(a, answer, now_ms);
        bool is_late =
            now_ms > answer->moved_ms + STUCK_MS || now_ms > answer->asked_ms + LONGEST_MS;
        has_moved = has_moved || state != ANSWER_WAITS;
        if (state == ANSWER_DONE || state == ANSWER_GONE || is_late)
            end_answer(a, i, state == ANSWER_DONE);
    }
    return has_moved;
}

void qr_replay_server_release(qr_replay_server *a)
{
    while (a->count > 0)
        end_answer(a, a->count - 1, false);
    leave_whole(a, a->last);
    a->last = NULL;
    qr_snapshot_maker_release(&a->maker);
}

#include "events/subscribe/subscription.h"

#include "base/bits.h"
#include "base/hooks.h"
#include "events/frames.h"
#include "events/payload.h"

enum { LIVE_FRAMES = 3, MOST_PATIENCE = 16 };

/* ---- messages -------------------------------------------------------------- */

void qr_live_message_init(qr_live_message *m)
{
    (void)zmq_msg_init(&m->topic);
    (void)zmq_msg_init(&m->payload);
}

void qr_live_message_close(qr_live_message *m)
{
    (void)zmq_msg_close(&m->topic);
    (void)zmq_msg_close(&m->payload);
}

static void move_message(qr_live_message *to, qr_live_message *from)
{
    to->number = from->number;
    (void)zmq_msg_move(&to->topic, &from->topic);
    (void)zmq_msg_move(&to->payload, &from->payload);
}

/* Tells two batches apart, not more: nobody gains by two that look alike. */
static uint64_t digest_of(zmq_msg_t *frame)
{
    const unsigned char *data = zmq_msg_data(frame);
    size_t len = zmq_msg_size(frame);
    uint64_t digest = len * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i + 8 <= len; i += 8)
        digest = ((digest ^ qr_load_u64(data + i)) * UINT64_C(0xff51afd7ed558ccd)) ^ (digest >> 29);
    for (size_t i = len & ~(size_t)7; i < len; i++)
        digest = (digest ^ data[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* The live message that comes next, into *m. */
static qr_outcome receive_live(quire_subscriber *s, long wait_ms, qr_live_message *m)
{
    zmq_pollitem_t item = {.socket = s->sub, .events = ZMQ_POLLIN};
    qr_frames frames;
    if (zmq_poll(&item, 1, wait_ms) <= 0)
        return QR_OUTCOME_NOTHING;
    qr_outcome result = QR_OUTCOME_BAD;
    if (!qr_frames_receive(&frames, s->sub)) {
        result = QR_OUTCOME_NOTHING;
    } else if (frames.count == LIVE_FRAMES && zmq_msg_size(&frames.all[1]) == QR_NUMBER_BYTES) {
        m->number = qr_payload_read_number(zmq_msg_data(&frames.all[1]));
        (void)zmq_msg_move(&m->topic, &frames.all[0]);
        (void)zmq_msg_move(&m->payload, &frames.all[2]);
        result = m->number == UINT64_MAX ? QR_OUTCOME_BAD : QR_OUTCOME_GO_ON;
    }
    qr_frames_close(&frames);
    return result;
}

/* ---- giving out ------------------------------------------------------------ */

static qr_outcome give_batch(quire_subscriber *s, quire_delivery_kind kind,
                             quire_delivery *delivery)
{
    *delivery =
        (quire_delivery){.size = sizeof(quire_delivery), .kind = kind, .number = s->current.number};
    if (kind == QUIRE_DELIVERY_SNAPSHOT)
        return QR_OUTCOME_BATCH;
    s->has_expected = true;
    s->expected = s->current.number + 1;
    s->digest = digest_of(&s->current.payload);
    s->has_digest = true;
    return QR_OUTCOME_BATCH;
}

/* From here on `number` is expected; what lies before is lost. */
static qr_outcome give_gap(quire_subscriber *s, uint64_t number, quire_delivery *delivery)
{
    *delivery = (quire_delivery){.size = sizeof(quire_delivery),
                                 .kind = QUIRE_DELIVERY_GAP,
                                 .number = number,
                                 .num_missed = number - s->expected};
    s->has_expected = true;
    s->expected = number;
    s->has_digest = false;
    return QR_OUTCOME_NOTICE;
}

/* ---- asking ---------------------------------------------------------------- */

static void ask_replay(quire_subscriber *s, uint64_t from)
{
    unsigned char request[QR_NUMBER_BYTES];
    qr_payload_write_number(from, request);
    s->mode = QR_MODE_REPLAY;
    s->asked_at = s->expected;
    (void)qr_replay_client_ask(&s->asker, request); /* a failure looks like a late answer */
}

static void ask_missing(quire_subscriber *s)
{
    s->takes_hole = false;
    s->was_empty = false;
    s->is_checking = s->has_digest;
    ask_replay(s, s->has_digest ? s->expected - 1 : s->expected);
}

/* Whether the last answer brought anything. vLLM's publisher drops what its peer does not take in
 * fast enough, the end too: then the same question brings the next part. */
static bool has_advanced(const quire_subscriber *s)
{
    return s->expected > s->asked_at;
}

static void ask_whole(quire_subscriber *s)
{
    s->mode = QR_MODE_WHOLE;
    s->num_pieces = 0;
    s->is_checking = false;
    (void)qr_replay_client_ask(&s->asker, QR_REPLAY_SNAPSHOT);
}

/* The publisher began anew, so all that it has told since is missing. */
static qr_outcome restart(quire_subscriber *s, uint64_t number, quire_delivery *delivery)
{
    *delivery = (quire_delivery){
        .size = sizeof(quire_delivery), .kind = QUIRE_DELIVERY_RESTART, .number = number};
    s->has_expected = true;
    s->expected = s->has_replay ? 0 : number;
    s->has_digest = false;
    s->is_hole_silent = false;
    s->was_empty = false;
    s->mode = QR_MODE_LIVE;
    if (s->has_replay)
        ask_whole(s);
    return QR_OUTCOME_NOTICE;
}

/* Nothing more can be got: on with what is there. */
static qr_outcome settle(quire_subscriber *s, quire_delivery *delivery)
{
    bool is_silent = s->is_hole_silent;
    s->mode = QR_MODE_LIVE;
    s->is_checking = false;
    s->is_hole_silent = false;
    if (s->num_pieces > 0) { /* half an index: the next batch shows a gap, and all is asked again */
        s->num_pieces = 0;
        s->expected = 0;
        return give_gap(s, 0, delivery);
    }
    if (!s->has_held || s->held.number <= s->expected)
        return QR_OUTCOME_GO_ON;
    if (!is_silent)
        return give_gap(s, s->held.number, delivery);
    s->expected = s->held.number;
    return QR_OUTCOME_GO_ON;
}

/* ---- the three modes ------------------------------------------------------- */

static void hold(quire_subscriber *s, qr_live_message *m)
{
    move_message(&s->held, m);
    s->has_held = true;
}

/* Whether a connection broke since this was last asked. */
static bool has_broken(quire_subscriber *s)
{
    bool is_broken = s->is_broken;
    s->is_broken = false;
    return is_broken;
}

static qr_outcome take_live(quire_subscriber *s, qr_live_message *m, quire_delivery *delivery)
{
    bool is_back = s->has_live && m->number <= s->last_live;
    s->has_live = true;
    s->last_live = m->number;
    if (is_back) {
        hold(s, m);
        return restart(s, m->number, delivery);
    }
    bool must_check = has_broken(s) && s->has_digest && s->has_replay;
    if (s->has_expected && m->number < s->expected && !must_check)
        return QR_OUTCOME_GO_ON;
    if (!s->has_expected || (m->number == s->expected && !must_check)) {
        move_message(&s->current, m);
        return give_batch(s, QUIRE_DELIVERY_LIVE, delivery);
    }
    hold(s, m);
    if (!s->has_replay)
        return give_gap(s, m->number, delivery);
    ask_missing(s);
    return QR_OUTCOME_GO_ON;
}

static void note_sound(quire_subscriber *s)
{
    s->quiet_until_ms = qr_now_ms() + (uint64_t)s->quiet_ms * s->patience;
}

/* How long to wait for a live batch, of the time that the caller gives. */
static long live_wait_ms(const quire_subscriber *s, long wait_ms)
{
    uint64_t now_ms = qr_now_ms();
    uint64_t left_ms = s->quiet_until_ms > now_ms ? s->quiet_until_ms - now_ms : 0;
    bool is_shorter = wait_ms < 0 || left_ms < (uint64_t)wait_ms;
    return s->has_replay && s->has_expected && is_shorter ? (long)left_ms : wait_ms;
}

static qr_outcome listen_live(quire_subscriber *s, long wait_ms, qr_live_message *m)
{
    qr_outcome result = receive_live(s, live_wait_ms(s, wait_ms), m);
    if (result != QR_OUTCOME_NOTHING) {
        note_sound(s);
    } else if (s->has_replay && s->has_expected && qr_now_ms() >= s->quiet_until_ms) {
        note_sound(s);
        ask_missing(s);
    }
    return result;
}

/* The connection broke, and there is no batch by which to know the publisher again: a new one whose
 * numbers are ahead would pass for the old one. */
static bool may_be_another(const quire_subscriber *s)
{
    bool knows_some = s->has_expected && s->expected > 0;
    return s->is_broken && s->has_replay && knows_some && !s->has_digest;
}

static qr_outcome next_live(quire_subscriber *s, long wait_ms, quire_delivery *delivery)
{
    if (may_be_another(s)) {
        s->is_broken = false;
        s->has_held = s->has_live = false; /* what came from the old one does not count */
        return restart(s, s->expected, delivery);
    }
    qr_live_message m;
    qr_live_message_init(&m);
    qr_outcome result = QR_OUTCOME_GO_ON;
    if (s->has_held) {
        move_message(&m, &s->held);
        s->has_held = false;
        s->has_live = false; /* it was seen before */
    } else {
        result = listen_live(s, wait_ms, &m);
    }
    if (result == QR_OUTCOME_GO_ON)
        result = take_live(s, &m, delivery);
    qr_live_message_close(&m);
    return result;
}

static qr_outcome take_replayed(quire_subscriber *s, quire_delivery *delivery)
{
    uint64_t number = s->current.number;
    if (number + 1 == s->expected) {
        uint64_t digest = digest_of(&s->current.payload);
        if (s->is_checking && digest != s->digest)
            return restart(s, number, delivery);
        s->is_checking = false;
        s->has_digest = true;
        s->digest = digest;
    }
    if (number < s->expected)
        return QR_OUTCOME_GO_ON;
    if (number > s->expected && has_advanced(s)) {
        ask_missing(s);
        return QR_OUTCOME_GO_ON;
    }
    if (s->is_checking || (number > s->expected && !s->takes_hole)) {
        ask_whole(s);
        return QR_OUTCOME_GO_ON;
    }
    bool is_told = number > s->expected && !s->is_hole_silent;
    s->is_hole_silent = false;
    if (!is_told)
        return give_batch(s, QUIRE_DELIVERY_REPLAY, delivery);
    qr_outcome result = give_gap(s, number, delivery);
    ask_replay(s, number); /* this one comes again, behind the notice */
    return result;
}

/* An end before the batch that was to be checked: a publisher that has not come so far. */
static qr_outcome end_replay(quire_subscriber *s, quire_delivery *delivery)
{
    s->patience = 1;
    if (s->is_checking)
        return restart(s, 0, delivery);
    if (!s->has_held || s->held.number <= s->expected)
        return settle(s, delivery);
    if (has_advanced(s))
        ask_missing(s);
    else if (!s->takes_hole)
        ask_whole(s);
    else
        return settle(s, delivery);
    return QR_OUTCOME_GO_ON;
}

static qr_outcome give_up(quire_subscriber *s, quire_delivery *delivery)
{
    s->patience = s->patience < MOST_PATIENCE ? 2 * s->patience : s->patience;
    note_sound(s);
    return settle(s, delivery);
}

static qr_outcome next_replayed(quire_subscriber *s, long wait_ms, quire_delivery *delivery)
{
    switch (qr_replay_client_next(&s->asker, wait_ms, &s->current.number, &s->current.payload)) {
    case QR_REPLAY_BATCH:
        return take_replayed(s, delivery);
    case QR_REPLAY_END:
        return end_replay(s, delivery);
    case QR_REPLAY_LATE:
        if (!has_advanced(s))
            return give_up(s, delivery);
        ask_missing(s);
        return QR_OUTCOME_GO_ON;
    default:
        return QR_OUTCOME_NOTHING;
    }
}

static qr_outcome end_whole(quire_subscriber *s, quire_delivery *delivery)
{
    if (s->num_pieces == 0) { /* the publisher has none to give, asked twice: as far as it goes */
        s->takes_hole = s->was_empty;
        s->was_empty = true;
        ask_replay(s, s->expected);
        return QR_OUTCOME_GO_ON;
    }
    s->num_pieces = 0;
    s->has_expected = true;
    s->expected = s->whole_number + 1;
    s->has_digest = false;
    s->takes_hole = s->was_empty = false;
    ask_replay(s, s->whole_number);
    *delivery = (quire_delivery){
        .size = sizeof(quire_delivery), .kind = QUIRE_DELIVERY_WHOLE, .number = s->whole_number};
    return QR_OUTCOME_NOTICE;
}

static qr_outcome next_of_whole(quire_subscriber *s, long wait_ms, quire_delivery *delivery)
{
    switch (qr_replay_client_next(&s->asker, wait_ms, &s->current.number, &s->current.payload)) {
    case QR_REPLAY_BATCH:
        s->num_pieces++;
        s->whole_number = s->current.number;
        return give_batch(s, QUIRE_DELIVERY_SNAPSHOT, delivery);
    case QR_REPLAY_END:
        return end_whole(s, delivery);
    case QR_REPLAY_LATE:
        return give_up(s, delivery);
    default:
        return QR_OUTCOME_NOTHING;
    }
}

/* In each step, also while nothing comes: ZeroMQ's thread waits for room in this queue. */
static void note_breaks(quire_subscriber *s)
{
    char text[1];
    while (s->breaks != NULL && zmq_recv(s->breaks, text, sizeof text, ZMQ_DONTWAIT) >= 0)
        s->is_broken = true;
}

qr_outcome qr_subscription_step(quire_subscriber *s, long wait_ms, quire_delivery *delivery)
{
    note_breaks(s);
    switch (s->mode) {
    case QR_MODE_REPLAY:
        return next_replayed(s, wait_ms, delivery);
    case QR_MODE_WHOLE:
        return next_of_whole(s, wait_ms, delivery);
    default:
        return next_live(s, wait_ms, delivery);
    }
}

void qr_subscription_begin(quire_subscriber *s, uint32_t start)
{
    note_sound(s);
    if (!s->has_replay || start == 1)
        return;
    s->has_expected = true;
    if (start == 0) {
        ask_whole(s);
        return;
    }
    s->takes_hole = true;
    s->is_hole_silent = true;
    ask_replay(s, 0);
}

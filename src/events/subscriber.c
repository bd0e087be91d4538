/* events/subscriber.c - batches in order, each once, whatever the network does.
 *
 *      live 7 8 9 . . 12      a gap: 12 is held, 10 and 11 are asked for
 *        replay 10 11 12      given out; 12, which was held, is then an old one
 *        replay 11 12         too late for 10: the whole index is asked for
 *          whole index at 12  given out; the live ones go on at 13
 *          end                the publisher has none (vLLM): the gap is told
 *      live 3                 back behind 12: another publisher, told as a restart
 *
 * A replay is asked for from the last batch on that was given out, and that one must come again
 * unchanged: if not, the publisher was restarted and has already passed our number. Without a gap
 * the same is asked after a connection broke, and when nothing came for a while: the last batch
 * before a silence can be missed too. The whole index is followed by a replay of the batch that it
 * ends with, so that this one is known as well.
 */
#include <quire/events.h>

#include "base/bits.h"
#include "events/asker.h"
#include "events/host.h"
#include "events/payload.h"
#include "events/zap.h"

#include <errno.h>

enum { LIVE_FRAMES = 3, NUMBER_BYTES = 8, MOST_PATIENCE = 16 };

typedef enum subscriber_mode {
    MODE_LIVE,
    MODE_REPLAY, /* batches are being asked for */
    MODE_WHOLE   /* the whole index is */
} subscriber_mode;

/* A batch as it came. */
typedef struct message {
    uint64_t number;
    zmq_msg_t topic;
    zmq_msg_t payload;
} message;

struct quire_subscriber {
    void *context;
    void *sub;
    void *breaks; /* tells of connections that broke; NULL: nobody does */
    bool has_replay;
    qr_asker asker;
    qr_curve_keys keys;
    quire_wire_reader *reader;

    subscriber_mode mode;
    bool has_expected;
    uint64_t expected; /* number of the next batch to give out */
    bool has_live;
    uint64_t last_live;
    bool has_digest; /* of the batch before expected */
    uint64_t digest;
    bool is_checking;  /* replay: that batch must come first */
    uint32_t quiet_ms; /* without a batch, until it is asked for one */
    uint32_t patience; /* times that: grows while nobody answers */
    uint64_t quiet_until_ms;
    bool takes_hole;     /* replay: what is not there any more stays a gap */
    bool is_hole_silent; /* and need not be told: nothing was known before */
    uint32_t num_pieces; /* of the whole index that came */
    uint64_t whole_number;
    bool has_held;
    message held;    /* a live one that waits until what is missing has come */
    message current; /* what the caller was given */
};

/* What a step of the machine leads to. */
typedef enum outcome {
    OUTCOME_GO_ON,
    OUTCOME_NOTHING, /* in the time that the caller gave */
    OUTCOME_BATCH,   /* current is to be given out */
    OUTCOME_NOTICE,  /* a gap or a restart is */
    OUTCOME_BAD      /* no batch */
} outcome;

/* ---- messages -------------------------------------------------------------- */

static void init_message(message *m)
{
    (void)zmq_msg_init(&m->topic);
    (void)zmq_msg_init(&m->payload);
}

static void close_message(message *m)
{
    (void)zmq_msg_close(&m->topic);
    (void)zmq_msg_close(&m->payload);
}

static void move_message(message *to, message *from)
{
    to->number = from->number;
    (void)zmq_msg_move(&to->topic, &from->topic);
    (void)zmq_msg_move(&to->payload, &from->payload);
}

static quire_bytes bytes_of(zmq_msg_t *frame)
{
    return (quire_bytes){zmq_msg_data(frame), zmq_msg_size(frame)};
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
static outcome receive_live(quire_subscriber *s, long wait_ms, message *m)
{
    zmq_pollitem_t item = {.socket = s->sub, .events = ZMQ_POLLIN};
    zmq_msg_t frames[LIVE_FRAMES];
    uint32_t count;
    if (zmq_poll(&item, 1, wait_ms) <= 0)
        return OUTCOME_NOTHING;
    for (int i = 0; i < LIVE_FRAMES; i++)
        (void)zmq_msg_init(&frames[i]);
    outcome result = OUTCOME_BAD;
    if (!qr_frames_receive(s->sub, frames, LIVE_FRAMES, &count)) {
        result = OUTCOME_NOTHING;
    } else if (count == LIVE_FRAMES && zmq_msg_size(&frames[1]) == NUMBER_BYTES) {
        m->number = qr_payload_read_number(zmq_msg_data(&frames[1]));
        (void)zmq_msg_move(&m->topic, &frames[0]);
        (void)zmq_msg_move(&m->payload, &frames[2]);
        result = m->number == UINT64_MAX ? OUTCOME_BAD : OUTCOME_GO_ON;
    }
    for (int i = 0; i < LIVE_FRAMES; i++)
        (void)zmq_msg_close(&frames[i]);
    return result;
}

/* ---- giving out ------------------------------------------------------------ */

static outcome give_batch(quire_subscriber *s, quire_delivery_kind kind, quire_delivery *delivery)
{
    *delivery = (quire_delivery){.kind = kind, .number = s->current.number};
    if (kind == QUIRE_DELIVERY_SNAPSHOT)
        return OUTCOME_BATCH;
    s->has_expected = true;
    s->expected = s->current.number + 1;
    s->digest = digest_of(&s->current.payload);
    s->has_digest = true;
    return OUTCOME_BATCH;
}

/* From here on `number` is expected; what lies before is lost. */
static outcome give_gap(quire_subscriber *s, uint64_t number, quire_delivery *delivery)
{
    *delivery = (quire_delivery){
        .kind = QUIRE_DELIVERY_GAP, .number = number, .num_missed = number - s->expected};
    s->has_expected = true;
    s->expected = number;
    s->has_digest = false;
    return OUTCOME_NOTICE;
}

/* ---- asking ---------------------------------------------------------------- */

static void ask_replay(quire_subscriber *s, uint64_t from)
{
    unsigned char request[NUMBER_BYTES];
    qr_payload_write_number(from, request);
    s->mode = MODE_REPLAY;
    (void)qr_asker_ask(&s->asker, request); /* a failure looks like a late answer */
}

static void ask_missing(quire_subscriber *s)
{
    s->takes_hole = false;
    s->is_checking = s->has_digest;
    ask_replay(s, s->has_digest ? s->expected - 1 : s->expected);
}

static void ask_whole(quire_subscriber *s)
{
    s->mode = MODE_WHOLE;
    s->num_pieces = 0;
    s->is_checking = false;
    (void)qr_asker_ask(&s->asker, QR_ASKER_WHOLE);
}

/* The publisher began anew, so all that it has told since is missing. */
static outcome restart(quire_subscriber *s, uint64_t number, quire_delivery *delivery)
{
    *delivery = (quire_delivery){.kind = QUIRE_DELIVERY_RESTART, .number = number};
    s->has_expected = true;
    s->expected = s->has_replay ? 0 : number;
    s->has_digest = false;
    s->is_hole_silent = false;
    s->mode = MODE_LIVE;
    if (s->has_replay)
        ask_whole(s);
    return OUTCOME_NOTICE;
}

/* Nothing more can be got: on with what is there. */
static outcome settle(quire_subscriber *s, quire_delivery *delivery)
{
    bool is_silent = s->is_hole_silent;
    s->mode = MODE_LIVE;
    s->is_checking = false;
    s->is_hole_silent = false;
    if (s->num_pieces > 0) { /* half an index: the next batch shows a gap, and all is asked again */
        s->num_pieces = 0;
        s->expected = 0;
        return give_gap(s, 0, delivery);
    }
    if (!s->has_held || s->held.number <= s->expected)
        return OUTCOME_GO_ON;
    if (!is_silent)
        return give_gap(s, s->held.number, delivery);
    s->expected = s->held.number;
    return OUTCOME_GO_ON;
}

/* ---- the three modes ------------------------------------------------------- */

static void hold(quire_subscriber *s, message *m)
{
    move_message(&s->held, m);
    s->has_held = true;
}

/* Whether a connection broke since this was last asked. */
static bool has_broken(quire_subscriber *s)
{
    char text[1];
    bool is_broken = false;
    while (s->breaks != NULL && zmq_recv(s->breaks, text, sizeof text, ZMQ_DONTWAIT) >= 0)
        is_broken = true;
    return is_broken;
}

static outcome take_live(quire_subscriber *s, message *m, quire_delivery *delivery)
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
        return OUTCOME_GO_ON;
    if (!s->has_expected || (m->number == s->expected && !must_check)) {
        move_message(&s->current, m);
        return give_batch(s, QUIRE_DELIVERY_LIVE, delivery);
    }
    hold(s, m);
    if (!s->has_replay)
        return give_gap(s, m->number, delivery);
    ask_missing(s);
    return OUTCOME_GO_ON;
}

static void note_sound(quire_subscriber *s)
{
    s->quiet_until_ms = qr_host_now_ms() + (uint64_t)s->quiet_ms * s->patience;
}

/* How long to wait for a live batch, of the time that the caller gives. */
static long live_wait_ms(const quire_subscriber *s, long wait_ms)
{
    uint64_t now_ms = qr_host_now_ms();
    uint64_t left_ms = s->quiet_until_ms > now_ms ? s->quiet_until_ms - now_ms : 0;
    bool is_shorter = wait_ms < 0 || left_ms < (uint64_t)wait_ms;
    return s->has_replay && s->has_expected && is_shorter ? (long)left_ms : wait_ms;
}

static outcome listen_live(quire_subscriber *s, long wait_ms, message *m)
{
    outcome result = receive_live(s, live_wait_ms(s, wait_ms), m);
    if (result != OUTCOME_NOTHING) {
        note_sound(s);
    } else if (s->has_replay && s->has_expected && qr_host_now_ms() >= s->quiet_until_ms) {
        note_sound(s);
        ask_missing(s);
    }
    return result;
}

static outcome next_live(quire_subscriber *s, long wait_ms, quire_delivery *delivery)
{
    message m;
    init_message(&m);
    outcome result = OUTCOME_GO_ON;
    if (s->has_held) {
        move_message(&m, &s->held);
        s->has_held = false;
        s->has_live = false; /* it was seen before */
    } else {
        result = listen_live(s, wait_ms, &m);
    }
    if (result == OUTCOME_GO_ON)
        result = take_live(s, &m, delivery);
    close_message(&m);
    return result;
}

static outcome take_replayed(quire_subscriber *s, quire_delivery *delivery)
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
        return OUTCOME_GO_ON;
    if (s->is_checking || (number > s->expected && !s->takes_hole)) {
        ask_whole(s);
        return OUTCOME_GO_ON;
    }
    bool is_told = number > s->expected && !s->is_hole_silent;
    s->is_hole_silent = false;
    if (!is_told)
        return give_batch(s, QUIRE_DELIVERY_REPLAY, delivery);
    outcome result = give_gap(s, number, delivery);
    ask_replay(s, number); /* this one comes again, behind the notice */
    return result;
}

/* An end before the batch that was to be checked: a publisher that has not come so far. */
static outcome end_replay(quire_subscriber *s, quire_delivery *delivery)
{
    s->patience = 1;
    if (s->is_checking)
        return restart(s, 0, delivery);
    if (s->takes_hole || !s->has_held || s->held.number <= s->expected)
        return settle(s, delivery);
    ask_whole(s);
    return OUTCOME_GO_ON;
}

static outcome give_up(quire_subscriber *s, quire_delivery *delivery)
{
    s->patience = s->patience < MOST_PATIENCE ? 2 * s->patience : s->patience;
    note_sound(s);
    return settle(s, delivery);
}

static outcome next_replayed(quire_subscriber *s, long wait_ms, quire_delivery *delivery)
{
    switch (qr_asker_next(&s->asker, wait_ms, &s->current.number, &s->current.payload)) {
    case QR_ASKER_BATCH:
        return take_replayed(s, delivery);
    case QR_ASKER_END:
        return end_replay(s, delivery);
    case QR_ASKER_LATE:
        return give_up(s, delivery);
    default:
        return OUTCOME_NOTHING;
    }
}

static outcome end_whole(quire_subscriber *s)
{
    if (s->num_pieces == 0) { /* the publisher has none to give: as far back as it goes */
        s->takes_hole = true;
        ask_replay(s, s->expected);
        return OUTCOME_GO_ON;
    }
    s->num_pieces = 0;
    s->has_expected = true;
    s->expected = s->whole_number + 1;
    s->has_digest = false;
    s->takes_hole = false;
    ask_replay(s, s->whole_number);
    return OUTCOME_GO_ON;
}

static outcome next_of_whole(quire_subscriber *s, long wait_ms, quire_delivery *delivery)
{
    switch (qr_asker_next(&s->asker, wait_ms, &s->current.number, &s->current.payload)) {
    case QR_ASKER_BATCH:
        s->num_pieces++;
        s->whole_number = s->current.number;
        return give_batch(s, QUIRE_DELIVERY_SNAPSHOT, delivery);
    case QR_ASKER_END:
        return end_whole(s);
    case QR_ASKER_LATE:
        return give_up(s, delivery);
    default:
        return OUTCOME_NOTHING;
    }
}

static outcome next_step(quire_subscriber *s, long wait_ms, quire_delivery *delivery)
{
    switch (s->mode) {
    case MODE_REPLAY:
        return next_replayed(s, wait_ms, delivery);
    case MODE_WHOLE:
        return next_of_whole(s, wait_ms, delivery);
    default:
        return next_live(s, wait_ms, delivery);
    }
}

static int read_delivery(quire_subscriber *s, quire_delivery *delivery)
{
    if (delivery->kind == QUIRE_DELIVERY_LIVE) /* answers come without */
        delivery->topic = bytes_of(&s->current.topic);
    delivery->bytes = bytes_of(&s->current.payload);
    delivery->events = s->reader;
    int status = quire_wire_read(s->reader, delivery->bytes, &delivery->batch);
    return status == QUIRE_E_RANGE ? QUIRE_E_CORRUPT : status;
}

QUIRE_API int quire_subscriber_next(quire_subscriber *s, int timeout_ms, quire_delivery *delivery)
{
    if (s == NULL || delivery == NULL)
        return QUIRE_E_ARGUMENT;
    uint64_t now_ms = qr_host_now_ms();
    uint64_t until_ms = timeout_ms < 0 ? UINT64_MAX : now_ms + (uint64_t)timeout_ms;
    for (;;) {
        long wait_ms = timeout_ms < 0 ? -1 : (long)(until_ms > now_ms ? until_ms - now_ms : 0);
        switch (next_step(s, wait_ms, delivery)) {
        case OUTCOME_BATCH:
            return read_delivery(s, delivery);
        case OUTCOME_NOTICE:
            return QUIRE_OK;
        case OUTCOME_BAD:
            return QUIRE_E_CORRUPT;
        case OUTCOME_NOTHING:
            if (wait_ms == 0)
                return QUIRE_RETRY;
            break;
        default:
            break;
        }
        now_ms = qr_host_now_ms();
    }
}

/* ---- making ---------------------------------------------------------------- */

static int read_keys(quire_subscriber *s, const quire_subscriber_config *config, char *text,
                     size_t text_bytes)
{
    unsigned char key[QR_KEY_BYTES];
    const char *given[3] = {config->curve_server_key, config->curve_public_key,
                            config->curve_secret_key};
    char *kept[3] = {s->keys.server, s->keys.own_public, s->keys.own_secret};
    static const char *const names[3] = {"curve_server_key", "curve_public_key",
                                         "curve_secret_key"};
    if (config->curve_server_key == NULL)
        return QUIRE_OK;
    if (zmq_has("curve") == 0) {
        qr_host_say(text, text_bytes, "%s is set, but this libzmq was built without CURVE",
                    names[0]);
        return QUIRE_E_SYSTEM;
    }
    /* A publisher that lets in whoever knows its key needs none of ours in particular. */
    if (zmq_curve_keypair(s->keys.own_public, s->keys.own_secret) != 0)
        return QUIRE_E_SYSTEM;
    s->keys.is_used = true;
    for (int i = 0; i < 3; i++) {
        bool is_half = i > 0 && (given[1] == NULL) != (given[2] == NULL);
        if (is_half || (given[i] != NULL && qr_zap_read_key(given[i], key) != QUIRE_OK)) {
            qr_host_say(text, text_bytes,
                        "%s is missing or no key: 40 characters, as zmq_curve_keypair makes them",
                        names[i]);
            return QUIRE_E_ARGUMENT;
        }
        if (given[i] != NULL)
            memcpy(kept[i], given[i], QR_KEY_TEXT_BYTES + 1);
    }
    return QUIRE_OK;
}

static int open_sub(quire_subscriber *s, const quire_subscriber_config *config,
                    qr_endpoint *endpoint, char *text, size_t text_bytes)
{
    const int linger_ms = 0;
    const int hwm = config->hwm > INT32_MAX ? INT32_MAX : (int)config->hwm;
    const int64_t most = (int64_t)config->max_message_bytes;
    const char *topic = config->topic == NULL ? "" : config->topic;
    s->context = zmq_ctx_new();
    s->sub = s->context == NULL ? NULL : zmq_socket(s->context, ZMQ_SUB);
    if (s->sub == NULL || zmq_setsockopt(s->sub, ZMQ_SUBSCRIBE, topic, strlen(topic)) != 0 ||
        !qr_curve_keys_apply(&s->keys, s->sub)) {
        qr_host_say(text, text_bytes, "no socket for '%s': %s", config->endpoint,
                    zmq_strerror(zmq_errno()));
        return QUIRE_E_SYSTEM;
    }
    (void)zmq_setsockopt(s->sub, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    (void)zmq_setsockopt(s->sub, ZMQ_RCVHWM, &hwm, sizeof hwm);
    (void)zmq_setsockopt(s->sub, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (zmq_socket_monitor(s->sub, "inproc://breaks", ZMQ_EVENT_DISCONNECTED) == 0) {
        s->breaks = zmq_socket(s->context, ZMQ_PAIR);
        if (s->breaks != NULL)
            (void)zmq_connect(s->breaks, "inproc://breaks");
    }
    endpoint->listens = config->listen == QUIRE_DEFAULT ? strchr(endpoint->text, '*') != NULL
                                                        : config->listen == QUIRE_ON;
    return qr_endpoint_attach(endpoint, s->sub, text, text_bytes);
}

/* Fills in the defaults. */
static int read_subscriber_config(const quire_subscriber_config *callers,
                                  quire_subscriber_config *config)
{
    int status = qr_host_read_config(config, sizeof *config, callers);
    if (status == QUIRE_OK && config->endpoint == NULL)
        status = QUIRE_E_ARGUMENT;
    if (status == QUIRE_OK &&
        (config->start > 2 || config->listen > QUIRE_OFF || config->max_message_bytes > INT64_MAX))
        status = QUIRE_E_CONFIG;
    if (config->hwm == 0)
        config->hwm = 100000;
    if (config->quiet_ms == 0)
        config->quiet_ms = 5000;
    if (config->replay_timeout_ms == 0)
        config->replay_timeout_ms = 2000;
    if (config->max_message_bytes == 0)
        config->max_message_bytes = UINT64_C(64) << 20;
    return status;
}

/* From where on: see quire_subscriber_config. */
static void begin(quire_subscriber *s, uint32_t start)
{
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

static int create_subscriber(quire_subscriber *s, const quire_subscriber_config *config, char *text,
                             size_t text_bytes)
{
    qr_endpoint endpoint;
    int status = qr_endpoint_read(config->endpoint, 0, &endpoint, text, text_bytes);
    if (status == QUIRE_OK && config->replay_endpoint != NULL) {
        s->has_replay = true;
        status = qr_endpoint_read(config->replay_endpoint, 0, &s->asker.endpoint, text, text_bytes);
    }
    if (status == QUIRE_OK)
        status = read_keys(s, config, text, text_bytes);
    if (status == QUIRE_OK)
        status = open_sub(s, config, &endpoint, text, text_bytes);
    if (status != QUIRE_OK)
        return status;
    s->asker.context = s->context;
    s->asker.keys = &s->keys;
    s->asker.max_message_bytes = config->max_message_bytes;
    s->asker.timeout_ms = config->replay_timeout_ms;
    status = quire_wire_reader_create(&s->reader);
    if (status != QUIRE_OK)
        qr_host_say(text, text_bytes, "subscriber: %s", quire_strerror(status));
    return status;
}

QUIRE_API int quire_subscriber_create(const quire_subscriber_config *callers,
                                      quire_subscriber **subscriber, char *text, size_t text_bytes)
{
    quire_subscriber_config config = {0};
    int status = subscriber == NULL ? QUIRE_E_ARGUMENT : read_subscriber_config(callers, &config);
    quire_subscriber *s = status == QUIRE_OK ? qr_host_alloc_zeroed(1, sizeof *s) : NULL;
    if (s == NULL) {
        status = status == QUIRE_OK ? QUIRE_E_NOMEM : status;
        qr_host_say(text, text_bytes, "subscriber: %s", quire_strerror(status));
        return status;
    }
    init_message(&s->held);
    init_message(&s->current);
    status = create_subscriber(s, &config, text, text_bytes);
    if (status != QUIRE_OK) {
        quire_subscriber_destroy(s);
        return status;
    }
    s->quiet_ms = config.quiet_ms;
    s->patience = 1;
    note_sound(s);
    begin(s, config.start);
    *subscriber = s;
    return QUIRE_OK;
}

QUIRE_API void quire_subscriber_destroy(quire_subscriber *s)
{
    if (s == NULL)
        return;
    close_message(&s->held);
    close_message(&s->current);
    qr_asker_close(&s->asker);
    if (s->sub != NULL)
        (void)zmq_close(s->sub);
    if (s->breaks != NULL)
        (void)zmq_close(s->breaks);
    if (s->context != NULL)
        while (zmq_ctx_term(s->context) != 0 && zmq_errno() == EINTR)
            ;
    quire_wire_reader_destroy(s->reader);
    qr_host_free(s);
}

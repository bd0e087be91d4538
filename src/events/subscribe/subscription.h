/* events/subscribe/subscription.h - where a subscriber stands, and how it goes on.
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
#ifndef QR_EVENTS_SUBSCRIBE_SUBSCRIPTION_H
#define QR_EVENTS_SUBSCRIBE_SUBSCRIPTION_H

#include "base/fork_guard.h"
#include "events/subscribe/replay_client.h"

#include <quire/events.h>

typedef enum qr_subscription_mode {
    QR_MODE_LIVE,
    QR_MODE_REPLAY, /* batches are being asked for */
    QR_MODE_WHOLE   /* the whole index is */
} qr_subscription_mode;

/* A batch as it came. */
typedef struct qr_live_message {
    uint64_t number;
    zmq_msg_t topic;
    zmq_msg_t payload;
} qr_live_message;

struct quire_subscriber {
    qr_fork_guard guard;
    void *context;
    void *sub;
    void *breaks;   /* tells of connections that broke; NULL: nobody does */
    bool is_broken; /* since a live batch came */
    bool has_replay;
    qr_replay_client asker;
    qr_curve_keys keys;
    quire_wire_reader *reader;

    qr_subscription_mode mode;
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
    uint64_t asked_at;   /* replay: expected, when it was asked for */
    bool takes_hole;     /* replay: what is not there any more stays a gap */
    bool was_empty;      /* whole: the last answer; so is that of one who has told nothing yet */
    bool is_hole_silent; /* and need not be told: nothing was known before */
    uint32_t num_pieces; /* of the whole index that came */
    uint64_t whole_number;
    bool has_held;
    qr_live_message held;    /* a live one that waits until what is missing has come */
    qr_live_message current; /* what the caller was given */
};

/* What a step of the machine leads to. */
typedef enum qr_outcome {
    QR_OUTCOME_GO_ON,
    QR_OUTCOME_NOTHING, /* in the time that the caller gave */
    QR_OUTCOME_BATCH,   /* current is to be given out */
    QR_OUTCOME_NOTICE,  /* a gap, a restart, or the end of the whole index is */
    QR_OUTCOME_BAD      /* no batch */
} qr_outcome;

void qr_live_message_init(qr_live_message *message);
void qr_live_message_close(qr_live_message *message);

/* From where on: see quire_subscriber_config. */
void qr_subscription_begin(quire_subscriber *s, uint32_t start);
/* One step, which waits no longer than wait_ms (below 0: for ever). */
qr_outcome qr_subscription_step(quire_subscriber *s, long wait_ms, quire_delivery *delivery);

#endif

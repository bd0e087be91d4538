/* events/publish/replay_server.h - the replay socket: requests for missed batches, and answers.
 *
 *      request   [id, "", number]       batches from that number on, as far as they are kept
 *                [id, "", "snapshot"]   the whole index. (As a number this is one that never comes,
 *                                       so vLLM's publisher answers it with the end alone.)
 *      answer    [id, "", number, batch] ... [id, "", ff ff ff ff ff ff ff ff, ""]
 *      of 0.32   [id, "", topic, number, batch] ... [id, "", "", ff ff ff ff ff ff ff ff, ""]
 *
 * An answer is sent in parts, as far as its peer takes them, between the live batches. One that
 * does not move for some seconds is given up. So a peer that asks and does not read holds some
 * dozen messages, a place among MAX_ANSWERS for a while, and nothing else. While all places are
 * taken no request is read: they wait in their peers' queues.
 *
 * The whole index is made at most about every tenth of a second, and shared by all who ask.
 */
#ifndef QR_EVENTS_PUBLISH_REPLAY_SERVER_H
#define QR_EVENTS_PUBLISH_REPLAY_SERVER_H

#include "events/publish/batches.h"
#include "events/publish/replay_buffer.h"
#include "events/publish/snapshot.h"

enum { QR_REPLAY_SERVER_MOST = 64, QR_REPLAY_SERVER_ID_BYTES = 255, QR_REPLAY_MOST_SNAPSHOTS = 4 };

typedef struct qr_replay_answer {
    unsigned char id[QR_REPLAY_SERVER_ID_BYTES];
    size_t id_len;
    bool wants_whole;
    qr_snapshot *whole; /* once it is made */
    uint64_t next;      /* number of a batch, or place of a piece */
    uint64_t asked_ms;
    uint64_t moved_ms; /* when something last went out */
} qr_replay_answer;

typedef struct qr_replay_server {
    void *router;
    qr_batches *batches;
    const qr_replay_buffer *buffer;
    qr_budget *budget;
    uint64_t max_bytes; /* of the budget: beyond it answers wait */
    bool has_topic;     /* answers have a frame for it */
    quire_bytes topic;
    qr_snapshot_maker maker;
    qr_snapshot *last; /* the whole index as it was last made, or NULL */
    uint64_t last_until_ms;
    uint32_t num_wholes; /* that are still held by somebody */
    uint32_t count;
    qr_replay_answer list[QR_REPLAY_SERVER_MOST];

    uint64_t num_replays;
    uint64_t num_snapshots;
    uint64_t num_refused;
} qr_replay_server;

void qr_replay_server_release(qr_replay_server *answers);

bool qr_replay_server_has_room(const qr_replay_server *answers);
/* Reads some requests, those that are there. */
void qr_replay_server_read(qr_replay_server *answers, uint64_t now_ms);
/* Sends what can be sent now, within bounds; whether anything was. */
bool qr_replay_server_serve(qr_replay_server *answers, uint64_t now_ms);

#endif

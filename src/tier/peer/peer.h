/* tier/peer/peer.h - the peer tier's inside: jobs become calls, links carry them.
 *
 *      job ─ batch ─┬─ call ──► link: | asked, in the order of the answers |  LOAD: one io
 *                   ├─ call ──► link                                          FIND: some ios
 *                   └─ ios that are no call yet
 *
 * call    a question. Without its batch (its user is gone: late, cancelled) its answer is read and
 *         thrown away, and when that takes too long the link is closed. So no memory is touched
 *         after its io has ended.
 * link    one connection. Anything that is not the next answer is a surprise: the link is closed,
 *         and its calls fail.
 * down    no connection could be made: until retry_at_ns jobs are REFUSED at once.
 *
 *      peer.c   jobs and calls, connecting, one turn     link.c   bytes
 */
#ifndef QR_TIER_PEER_PEER_H
#define QR_TIER_PEER_PEER_H

#include "tier/net/client.h"
#include "tier/peer/hints.h"
#include "tier/peer/wire.h"

#include "base/bits.h"

#include <quire/tier_peer.h>

enum {
    QR_PEER_CALLS = 64, /* on one link; a power of two */
    QR_PEER_MAX_LINKS = 16,
    QR_PEER_IN = 2048,
    QR_PEER_OUT = QR_PEER_FIND_BYTES + 4096,
    QR_PEER_SCRATCH = 64 * 1024
};

typedef struct qr_peer_call {
    qr_net_batch *batch; /* NULL: its user is gone */
    uint32_t io;         /* the first */
    uint32_t num_ios;
    uint32_t id;
    uint32_t bytes; /* LOAD: of the block */
    bool is_load;
    uint64_t due_ns; /* without a batch: the link is closed when there is no answer by then */
} qr_peer_call;

typedef enum qr_peer_link_state {
    QR_PEER_LINK_CLOSED = 0,
    QR_PEER_LINK_CONNECTING, /* and TLS */
    QR_PEER_LINK_HELLO,      /* is sent */
    QR_PEER_LINK_PROOF,      /* is sent */
    QR_PEER_LINK_READY
} qr_peer_link_state;

/* Where the next byte that comes belongs. */
typedef enum qr_peer_mode {
    QR_PEER_MODE_HEAD = 0,
    QR_PEER_MODE_BLOCK,
    QR_PEER_MODE_TAIL
} qr_peer_mode;

typedef struct qr_peer_link {
    qr_socket socket;
    qr_peer_link_state state;
    uint64_t until_ns; /* to be ready */
    qr_peer_talk talk;

    qr_peer_call calls[QR_PEER_CALLS]; /* [first_call, first_call + num_calls) */
    uint32_t first_call;
    uint32_t num_calls;
    uint32_t next_id;
    uint64_t bytes; /* of blocks that were asked for */

    qr_peer_mode mode;
    qr_net_block block;

    unsigned char in[QR_PEER_IN];
    uint32_t in_bytes;
    unsigned char out[QR_PEER_OUT];
    uint32_t out_bytes;
    uint32_t out_sent;
} qr_peer_link;

/* X(count, field of the stats). */
#define QR_PEER_COUNTS(X)                                                                          \
    QR_NET_COUNTS(X)                                                                               \
    X(VOIDED, voided)                                                                              \
    X(NOT_ASKED, not_asked)
enum { QR_NET_VOIDED = QR_NET_NUM_COUNTS, QR_NET_NOT_ASKED };

struct quire_tier_peer {
    qr_net_client net;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    /* The scheduler's, while there are no jobs; taken over with the next one. */
    unsigned char next_fingerprint[QUIRE_FINGERPRINT_BYTES];
    bool has_next_fingerprint;

    uint64_t window_bytes;
    qr_net_target target;
    uint64_t retry_ns;
    uint64_t retry_at_ns; /* down until then */
    uint64_t backoff_ns;

    uint32_t num_links;
    qr_peer_link *links;
    unsigned char *scratch; /* for what goes nowhere */

    qr_peer_hints hints; /* not the tier's thread's: see there */
};

static inline qr_peer_call *qr_peer_call_at(qr_peer_link *link, uint32_t i)
{
    return &link->calls[(link->first_call + i) & (QR_PEER_CALLS - 1)];
}

/* ---- link.c ------------------------------------------------------------- */

/* Its socket is being connected. */
void qr_peer_link_begin(quire_tier_peer *peer, qr_peer_link *link);
/* All its calls fail. */
void qr_peer_link_close(quire_tier_peer *peer, qr_peer_link *link);
/* The same for a reason; before it was ready, another address is tried. */
void qr_peer_link_lose(quire_tier_peer *peer, qr_peer_link *link, const char *why);
/* Sends and receives what can be. */
void qr_peer_link_pump(quire_tier_peer *peer, qr_peer_link *link);
/* The user of a batch's calls is gone: their answers go nowhere. */
void qr_peer_link_forget(quire_tier_peer *peer, qr_peer_link *link, const qr_net_batch *batch);

/* ---- peer.c ------------------------------------------------------------- */

/* A link was lost before it was ready: another address is tried in this turn, or the peer is
 * down. */
void qr_peer_not_connected(quire_tier_peer *peer);
void qr_peer_ready(quire_tier_peer *peer);
extern const qr_net_ops qr_peer_net_ops;

#endif

/* tier/peer/server.h - the server's inside: one thread, one session for each connection.
 *
 *      listener ──► session: TLS ─ HELLO ─ PROOF ─ READY
 *                            in ──► a question ──► out: | head | block's memory | tail |
 *
 * A session answers one question at a time, and reads the next when the answer is sent; what the
 * client sends meanwhile waits in the socket. Nothing here waits: a client that does not take its
 * bytes holds up itself, and is closed after stall_ns.
 *
 *      server.c    opening, the thread, the owner's calls
 *      session.c   a connection: handshake, questions, answers
 */
#ifndef QR_TIER_PEER_SERVER_H
#define QR_TIER_PEER_SERVER_H

#include "base/fork_guard.h"
#include "tier/net/client.h"
#include "tier/peer/table.h"
#include "tier/peer/wire.h"

#include <quire/tier_peer.h>

#include <pthread.h>

typedef enum qr_session_state {
    QR_SESSION_CLOSED = 0,
    QR_SESSION_TLS,
    QR_SESSION_HELLO, /* it has to come */
    QR_SESSION_PROOF,
    QR_SESSION_READY,
    QR_SESSION_LEAVING /* closed when the last answer is sent */
} qr_session_state;

typedef struct qr_session {
    qr_socket socket;
    qr_session_state state;
    uint64_t since_ns; /* of the handshake, or of the last byte that went out */
    uint64_t epoch;    /* of the identity that it has proven */
    qr_peer_talk talk;

    unsigned char in[QR_PEER_FIND_BYTES];
    uint32_t in_bytes;

    /* the answer: out[0, out_bytes), then the block, then its tail */
    unsigned char out[QR_PEER_FOUND_BYTES];
    uint32_t out_bytes;
    uint32_t out_sent;
    bool has_block;
    bool is_void; /* the offer did not stand: what is sent is filler */
    qr_peer_offer offer;
    uint32_t block_sent;
    uint32_t summed; /* bytes that are in crc */
    uint32_t crc;
    uint32_t id;
} qr_session;

/* X(count, field of the stats). */
#define QR_SERVED_COUNTS(X)                                                                        \
    X(CONNECTIONS, connections)                                                                    \
    X(ACCEPTED, accepted)                                                                          \
    X(TURNED_AWAY, turned_away)                                                                    \
    X(NOT_PROVEN, not_proven)                                                                      \
    X(NOT_SAME, not_same)                                                                          \
    X(BAD_FRAMES, bad_frames)                                                                      \
    X(STALLED, stalled)                                                                            \
    X(KEYS_FOUND, keys_found)                                                                      \
    X(KEYS_MISSING, keys_missing)                                                                  \
    X(BLOCKS, blocks_sent)                                                                         \
    X(MISSING, blocks_missing)                                                                     \
    X(VOID, blocks_void)                                                                           \
    X(BYTES, bytes_sent)
#define QR_SERVED_NAME(name, field) QR_SERVED_##name,
enum { QR_SERVED_COUNTS(QR_SERVED_NAME) QR_NUM_SERVED };

struct quire_peer_server {
    qr_peer_table table; /* first: it is aligned */
    qr_fork_guard guard;
    quire_hooks hooks;
    qr_secret secret;
    qr_tls *tls;
    int listener;
    int epoll_fd;
    int stop_fd;
    uint32_t port;
    char path[QR_ADDRESS_HOST]; /* of a socket that is removed at the end; "": none */
    uint32_t max_block_bytes;
    uint32_t max_sessions;
    uint64_t handshake_ns;
    uint64_t stall_ns;
    qr_session *sessions;
    uint64_t now_ns;
    bool has_more;      /* a session stopped before its work was done */
    bool is_out_of_fds; /* accept failed: tried again with the next turn */
    pthread_t thread;
    void *raw;
    _Atomic uint64_t counts[QR_NUM_SERVED];
};

static inline void qr_served(quire_peer_server *server, int what, uint64_t n)
{
    atomic_fetch_add_explicit(&server->counts[what], n, memory_order_relaxed);
}

/* A session whose socket was just taken. */
void qr_session_begin(quire_peer_server *server, qr_session *session);
/* Reads, answers and sends what can be. */
void qr_session_pump(quire_peer_server *server, qr_session *session);
void qr_session_close(quire_peer_server *server, qr_session *session);
/* When it is closed for doing nothing; UINT64_MAX: never. */
uint64_t qr_session_due(const quire_peer_server *server, const qr_session *session);

#endif

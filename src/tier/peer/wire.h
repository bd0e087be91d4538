/* tier/peer/wire.h - what a peer's client and server say to each other. Version 1; little-endian.
 *
 *      client                                             server
 *      HELLO      magic 8, version 4, 0 4, random 32  ──►
 *                                  ◄──  CHALLENGE  magic 8, version 4, status 4, random 32
 *      PROOF      fingerprint 32, proof 32            ──►
 *                                  ◄──  WELCOME    status 4, max_block_bytes 4, 0 8, proof 32
 *
 *      FIND       head: type, id, n, 0; n keys        ──►
 *                                  ◄──  FOUND      head: type, id, n, 0; n lengths, 0: missing
 *      LOAD       head: type, id, bytes, 0; one key   ──►
 *                                  ◄──  LOADED     head: type, id, status, bytes; key 40, 0 8
 *                                       | bytes |  and behind them, where status is OK,
 *                                       TAIL       head: type, id, status, CRC32C
 *
 * proof     HMAC-SHA256 with the secret, over a label of the side, HELLO, CHALLENGE, fingerprint
 *           and, of the server, the first 16 bytes of WELCOME. A WELCOME whose status is SECRET has
 *           no proof (zeros), and the server closes.
 * head      four numbers of four bytes. Answers come in the order of the questions; ids are theirs.
 * key       hash 32, group 4, rank 4.
 *
 * Whatever is not exactly so is a protocol error: the side that sees it closes the connection.
 */
#ifndef QR_TIER_PEER_WIRE_H
#define QR_TIER_PEER_WIRE_H

#include <quire/tier.h>

#include <stdbool.h>

enum {
    QR_PEER_VERSION = 1,
    QR_PEER_RANDOM = 32,
    QR_PEER_MAC = 32,
    QR_PEER_HELLO = 48,
    QR_PEER_CHALLENGE = 48,
    QR_PEER_PROOF = 64,
    QR_PEER_WELCOME = 48,
    QR_PEER_WELCOME_HEAD = 16,
    QR_PEER_HEAD = 16,
    QR_PEER_KEY = 40,
    QR_PEER_LOAD = QR_PEER_HEAD + QR_PEER_KEY,
    QR_PEER_LOADED = 64,
    QR_PEER_MAX_FIND = 256, /* keys in one FIND */
    QR_PEER_FIND_BYTES = QR_PEER_HEAD + QR_PEER_MAX_FIND * QR_PEER_KEY,
    QR_PEER_FOUND_BYTES = QR_PEER_HEAD + QR_PEER_MAX_FIND * 4,
    QR_PEER_SECRET_LEAST = 16
};

/* qr_secret_options of a config of either side. */
#define QR_PEER_SECRET_OPTIONS(c)                                                                  \
    {                                                                                              \
        .field = "secret", .text = (c)->secret, .file = (c)->secret_file, .get = (c)->get_secret,  \
        .get_user = (c)->secret_user, .least = QR_PEER_SECRET_LEAST                                \
    }

typedef enum qr_peer_type {
    QR_PEER_TYPE_FIND = 0x46500001,
    QR_PEER_TYPE_LOAD = 0x46500002,
    QR_PEER_TYPE_FOUND = 0x46500081,
    QR_PEER_TYPE_LOADED = 0x46500082,
    QR_PEER_TYPE_TAIL = 0x46500083
} qr_peer_type;

typedef enum qr_peer_status {
    QR_PEER_OK = 0,
    QR_PEER_MISSING = 1,  /* LOADED */
    QR_PEER_LENGTH = 2,   /* LOADED: the block has another length */
    QR_PEER_VOID = 3,     /* TAIL: the memory may have been written meanwhile */
    QR_PEER_SECRET = 4,   /* WELCOME: the proof is not right */
    QR_PEER_IDENTITY = 5, /* WELCOME: another fingerprint */
    QR_PEER_UNKNOWN = 6   /* CHALLENGE: another version */
} qr_peer_status;

typedef struct qr_peer_head {
    uint32_t type;
    uint32_t id;
    uint32_t a; /* n, bytes or status */
    uint32_t b; /* 0, bytes or CRC32C */
} qr_peer_head;
_Static_assert(sizeof(qr_peer_head) == QR_PEER_HEAD && sizeof(quire_tier_key) == QR_PEER_KEY,
               "a head and a key are sent as they lie in memory");

void qr_peer_put_head(unsigned char *at, uint32_t type, uint32_t id, uint32_t a, uint32_t b);
qr_peer_head qr_peer_get_head(const unsigned char *at);

/* HELLO, and CHALLENGE, which has a status where HELLO has 0. */
void qr_peer_put_greeting(unsigned char *at, qr_peer_status status, const unsigned char *random);
/* false: not the magic, or a status or version that is none. */
bool qr_peer_get_greeting(const unsigned char *at, uint32_t *version, uint32_t *status);
void qr_peer_put_welcome(unsigned char *at, qr_peer_status status, uint32_t max_block_bytes);
bool qr_peer_get_welcome(const unsigned char *at, uint32_t *status, uint32_t *max_block_bytes);

/* What both sides have seen before a proof. */
typedef struct qr_peer_talk {
    unsigned char hello[QR_PEER_HELLO];
    unsigned char challenge[QR_PEER_CHALLENGE];
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
} qr_peer_talk;

/* welcome NULL: the client's proof; else the server's, over these QR_PEER_WELCOME_HEAD bytes.
 * false: the library of digests failed. */
bool qr_peer_prove(const char *secret, const qr_peer_talk *talk, const unsigned char *welcome,
                   unsigned char *mac);

#endif

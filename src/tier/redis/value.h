/* tier/redis/value.h - the name of a block in Redis, and its commands.
 *
 *      key     quire:1:<fingerprint, 32 hex>:<hash, 64 hex>:<group>:<rank>
 *      value   | header, tier/net/header.h | the block's bytes |
 *
 * There is no { in a key, so that the whole of it decides the slot and blocks lie on all nodes
 * alike. */
#ifndef QR_TIER_REDIS_VALUE_H
#define QR_TIER_REDIS_VALUE_H

#include "tier/net/header.h"

enum {
    QR_REDIS_PREFIX = 64,
    QR_REDIS_SPACE = QR_REDIS_PREFIX + 40, /* prefix, version, fingerprint */
    QR_REDIS_KEY = QR_REDIS_SPACE + 93,
    QR_REDIS_COMMAND = QR_REDIS_KEY + QR_NET_HEADER + 64
};

/* What all keys of a tier have in common. */
typedef struct qr_redis_space {
    char text[QR_REDIS_SPACE]; /* "quire:1:<fingerprint>:" */
    uint32_t bytes;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
} qr_redis_space;

void qr_redis_space_init(qr_redis_space *space, const char *prefix,
                         const unsigned char *fingerprint);

/* Writes to at, up to QR_REDIS_KEY bytes; returns how many. */
uint32_t qr_redis_key_write(const qr_redis_space *space, const quire_tier_key *key, char *at);

/* A command with the key as its first argument, "GET key". SET goes up to the header of the value:
 * the bytes and what is behind them follow. Returns its length, at most QR_REDIS_COMMAND. */
uint32_t qr_redis_command_write(const qr_redis_space *space, quire_tier_op op,
                                const quire_tier_io *io, bool has_ttl, char *at, uint16_t *slot);

/* CRC16 (XMODEM) of a key, modulo 16,384. */
uint16_t qr_redis_slot_of(const char *key, size_t bytes);

#endif

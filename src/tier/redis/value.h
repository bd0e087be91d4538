/* tier/redis/value.h - the name of a block in Redis, and what stands before its bytes.
 *
 *      key     quire:1:<fingerprint, 32 hex>:<hash, 64 hex>:<group>:<rank>
 *
 *      value   0       8         12      16            48     80      84     88      96    104 108
 *              | magic | version | bytes | fingerprint | hash | group | rank | 0     | len | crc |
 *              | crc of this header | zeros to 128 | the block's bytes
 *
 * All numbers are little endian. There is no { in a key, so that the whole of it decides the slot
 * and blocks lie on all nodes alike. The value says again, in full, what it is: what a server gives
 * under a key is believed only if it is that. */
#ifndef QR_TIER_REDIS_VALUE_H
#define QR_TIER_REDIS_VALUE_H

#include <quire/tier.h>

#include <stdbool.h>

enum {
    QR_REDIS_HEADER = 128,
    QR_REDIS_PREFIX = 64,
    QR_REDIS_SPACE = QR_REDIS_PREFIX + 40, /* prefix, version, fingerprint */
    QR_REDIS_KEY = QR_REDIS_SPACE + 93,
    QR_REDIS_COMMAND = QR_REDIS_KEY + QR_REDIS_HEADER + 64
};

/* What all keys of a tier have in common. */
typedef struct qr_redis_space {
    char text[QR_REDIS_SPACE]; /* "quire:1:<fingerprint>:" */
    uint32_t bytes;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
} qr_redis_space;

void qr_redis_space_init(qr_redis_space *space, const char *prefix,
                         const unsigned char *fingerprint);

/* Both write to at, without a bound of their own: key up to QR_REDIS_KEY, header 128 bytes. */
uint32_t qr_redis_key_write(const qr_redis_space *space, const quire_tier_key *key, char *at);
void qr_redis_header_write(const qr_redis_space *space, const quire_tier_io *io, unsigned char *at);
/* Whether it is the header of this block in this namespace, with as many bytes; *crc of them. */
bool qr_redis_header_check(const qr_redis_space *space, const quire_tier_io *io,
                           const unsigned char *at, uint32_t *crc);

/* A command with the key as its first argument, "GET key". SET goes up to the header of the value:
 * the bytes and what is behind them follow. Returns its length, at most QR_REDIS_COMMAND. */
uint32_t qr_redis_command_write(const qr_redis_space *space, quire_tier_op op,
                                const quire_tier_io *io, bool has_ttl, char *at, uint16_t *slot);

/* CRC16 (XMODEM) of a key, modulo 16,384. */
uint16_t qr_redis_slot_of(const char *key, size_t bytes);

#endif

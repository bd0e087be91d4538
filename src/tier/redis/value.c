#include "tier/redis/value.h"

#include "base/hex.h"

#include <string.h>

static char *write_text(char *at, const char *text)
{
    while (*text != 0)
        *at++ = *text++;
    return at;
}

static char *write_number(char *at, uint64_t number)
{
    char digits[20];
    int n = 0;
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

void qr_redis_space_init(qr_redis_space *space, const char *prefix,
                         const unsigned char *fingerprint)
{
    char *at = write_text(space->text, prefix);
    at = write_text(at, ":1:");
    at = qr_hex_write(at, fingerprint, 16);
    *at++ = ':';
    space->bytes = (uint32_t)(at - space->text);
    memcpy(space->fingerprint, fingerprint, QUIRE_FINGERPRINT_BYTES);
}

uint32_t qr_redis_key_write(const qr_redis_space *space, const quire_tier_key *key, char *at)
{
    char *begin = at;
    memcpy(at, space->text, space->bytes);
    at = qr_hex_write(at + space->bytes, key->hash, sizeof key->hash);
    *at++ = ':';
    at = write_number(at, key->group);
    *at++ = ':';
    at = write_number(at, key->rank);
    return (uint32_t)(at - begin);
}

uint32_t qr_redis_command_write(const qr_redis_space *space, quire_tier_op op,
                                const quire_tier_io *io, bool has_ttl, char *at, uint16_t *slot)
{
    static const char *const begins[] = {
        [QUIRE_TIER_LOAD] = "*2\r\n$3\r\nGET\r\n$",
        [QUIRE_TIER_STORE] = "*3\r\n$3\r\nSET\r\n$",
        [QUIRE_TIER_REMOVE] = "*2\r\n$3\r\nDEL\r\n$",
        [QUIRE_TIER_FIND] = "*2\r\n$6\r\nSTRLEN\r\n$",
    };
    char key[QR_REDIS_KEY];
    char *begin = at;
    uint32_t key_bytes = qr_redis_key_write(space, &io->key, key);
    *slot = qr_redis_slot_of(key, key_bytes);
    at = write_text(at, op == QUIRE_TIER_STORE && has_ttl ? "*5\r\n$3\r\nSET\r\n$" : begins[op]);
    at = write_number(at, key_bytes);
    at = write_text(at, "\r\n");
    memcpy(at, key, key_bytes);
    at = write_text(at + key_bytes, "\r\n");
    if (op == QUIRE_TIER_STORE) {
        *at++ = '$';
        at = write_number(at, (uint64_t)QR_NET_HEADER + io->bytes);
        at = write_text(at, "\r\n");
        qr_net_header_write(space->fingerprint, io, (unsigned char *)at);
        at += QR_NET_HEADER;
    }
    return (uint32_t)(at - begin);
}

/* Keys are short, and a block is large: bit by bit is good enough. */
uint16_t qr_redis_slot_of(const char *key, size_t bytes)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= (uint32_t)(unsigned char)key[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return (uint16_t)(crc % 16384);
}

#include "tier/net/header.h"

#include "base/bits.h"

#include <string.h>

static const unsigned char MAGIC[8] = {'Q', 'U', 'I', 'R', 'E', 'K', 'V', '1'};
enum { VERSION = 1, HEADER_CRC_AT = 108 };

void qr_net_header_write(const unsigned char *fingerprint, const quire_tier_io *io,
                         unsigned char *at)
{
    memset(at, 0, QR_NET_HEADER);
    memcpy(at, MAGIC, sizeof MAGIC);
    qr_store_u32(at + 8, VERSION);
    qr_store_u32(at + 12, QR_NET_HEADER);
    memcpy(at + 16, fingerprint, QUIRE_FINGERPRINT_BYTES);
    memcpy(at + 48, io->key.hash, QUIRE_TIER_HASH_BYTES);
    qr_store_u32(at + 80, io->key.group);
    qr_store_u32(at + 84, io->key.rank);
    qr_store_u64(at + 96, io->bytes);
    qr_store_u32(at + 104, io->crc);
    qr_store_u32(at + HEADER_CRC_AT, quire_crc32c(0, at, HEADER_CRC_AT));
}

/* The header that it should be, with the CRC that it has, is compared as a whole. */
bool qr_net_header_check(const unsigned char *fingerprint, const quire_tier_io *io,
                         const unsigned char *at, uint32_t *crc)
{
    unsigned char expected[QR_NET_HEADER];
    quire_tier_io asked = *io;
    *crc = qr_load_u32(at + 104);
    asked.crc = *crc;
    qr_net_header_write(fingerprint, &asked, expected);
    return memcmp(at, expected, QR_NET_HEADER) == 0;
}

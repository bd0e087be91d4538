/* tier/net/header.h - what stands before the bytes of a block on a server that many engines share.
 *
 *      0       8         12      16            48     80      84     88      96    104 108
 *      | magic | version | bytes | fingerprint | hash | group | rank | 0     | len | crc |
 *      | crc of this header | zeros to 128 | the block's bytes
 *
 * All numbers are little endian. The header says in full what the value is: what a server gives
 * under a name is believed only if it is that. */
#ifndef QR_TIER_NET_HEADER_H
#define QR_TIER_NET_HEADER_H

#include <quire/tier.h>

#include <stdbool.h>

enum { QR_NET_HEADER = 128 };

/* QR_NET_HEADER bytes. */
void qr_net_header_write(const unsigned char *fingerprint, const quire_tier_io *io,
                         unsigned char *at);
/* Whether it is the header of this block in this namespace, with as many bytes; *crc of them. */
bool qr_net_header_check(const unsigned char *fingerprint, const quire_tier_io *io,
                         const unsigned char *at, uint32_t *crc);

#endif

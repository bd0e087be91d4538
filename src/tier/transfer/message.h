/* tier/transfer/message.h - what plans and reports begin with. Little-endian.
 *
 *      | magic 4 | version 4 | length 4 | CRC32C 4 | ... |
 *                                       of all behind it
 *
 * A reader trusts nothing: a message is looked at only when its length and its CRC are right, and
 * then every count in it is compared with what is left.
 */
#ifndef QR_TIER_TRANSFER_MESSAGE_H
#define QR_TIER_TRANSFER_MESSAGE_H

#include "base/bits.h"

#include <quire/hash.h>

enum { QR_MESSAGE_VERSION = 1, QR_MESSAGE_HEAD = 16 };

/* Writes the head of a message whose other bytes are there. */
void qr_message_seal(unsigned char *bytes, uint32_t magic, uint32_t length);
/* QUIRE_OK, or QUIRE_E_CORRUPT and a sentence. least: the shortest message of this kind; what: its
 * name in the sentence. */
int qr_message_check(quire_bytes message, uint32_t magic, uint32_t least, const char *what);

#endif

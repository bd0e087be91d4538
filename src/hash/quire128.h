/* hash/quire128.h - the native algorithm on its fast path: many blocks, no extra keys.
 *
 *      [ parent, 16 bytes | tokens, 4 bytes each | how much of each ]  --> XXH3-128 with secret
 *
 * The same message as qr_raw_encode writes, without the way through encoders and messages: between
 * two blocks there is nothing but the hash. */
#ifndef QR_HASH_QUIRE128_H
#define QR_HASH_QUIRE128_H

#include "base/bits.h"

#include <quire/config.h>

/* Hashes num_blocks blocks that lie one after the other. parent and each of the digests is 16
 * bytes; buffer has room for 24 bytes and a block's tokens. */
void qr_quire128_run(const unsigned char *secret, const unsigned char *parent,
                     const quire_token *tokens, uint32_t block_size, size_t num_blocks,
                     unsigned char *buffer, unsigned char *digests);

#endif

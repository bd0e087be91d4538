/* hash/safe.h - Quire's own encodings of a block key, in which no two different keys look alike.
 *
 * safe (for sha256_safe): every part has a tag and a length or count.
 *
 *      "quire/block/1"
 *      01 <u64 length> <parent>
 *      02 <u64 count> <i32> <i32> ...        or 03 and i64, when an id needs more than 32 bits
 *      1k <u64 length> <text> [<i64 offset>] for each extra key, k being its kind
 *      00
 *
 * raw (for quire128): parent, tokens as i32, extra keys as above, and one word that says how much
 * of each, so that the message can be read back from its end. All numbers are little-endian.
 */
#ifndef QR_HASH_SAFE_H
#define QR_HASH_SAFE_H

#include "hash/input.h"

/* Fill in a message's len and parent_at. */
void qr_safe_encode(qr_message *out, const qr_hash_input *input);
void qr_safe_encode_text(qr_message *out, quire_bytes text);
void qr_raw_encode(qr_message *out, const qr_hash_input *input);

/* quire128 on its fast path: hashes the raw messages of num_blocks blocks without extra keys that
 * lie one after the other, and between two blocks there is nothing but the hash. parent and each of
 * the digests is 16 bytes; buffer has room for 24 bytes and a block's tokens. */
void qr_quire128_run(const unsigned char *secret, const unsigned char *parent,
                     const quire_token *tokens, uint32_t block_size, size_t num_blocks,
                     unsigned char *buffer, unsigned char *digests);

#endif

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

/* The last word of a raw message. */
static inline uint64_t qr_raw_trailer(size_t parent_len, size_t num_tokens, size_t num_keys,
                                      bool wide)
{
    return (uint64_t)wide << 63 | (uint64_t)parent_len << 48 | (uint64_t)num_keys << 24 |
           num_tokens;
}

#endif

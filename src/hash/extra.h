/* hash/extra.h - which of a request's extra keys concern one block.
 *
 *      tokens     0 ............ 16 ............ 32 ............ 48
 *      image                [10 .......... 25)    block 0: offset 10, block 1: offset 10 - 16 = -6
 *      salt       block 0 only
 *      LoRA       every block
 */
#ifndef QR_HASH_EXTRA_H
#define QR_HASH_EXTRA_H

#include "base/bits.h"
#include "hash/digest.h"

#include <quire/hash.h>

/* Goes from block to block of one call. */
typedef struct qr_extra_cursor {
    const quire_extra_keys *extra; /* NULL: none at all */
    size_t feature;                /* features before it are past */
    bool has_path;                 /* a LoRA name is followed by its path */
    unsigned char embeds_digest[QR_SHA256_BYTES];
} qr_extra_cursor;

/* only_last: start at the last feature, as vLLM 0.20.0 does when it continues a request. */
qr_extra_cursor qr_extra_begin(const quire_extra_keys *extra, bool only_last);
/* Starts at the feature that a bisection by the features' ends finds for position `start`, as vLLM
 * 0.32.0 does when it continues a request. */
qr_extra_cursor qr_extra_begin_at(const quire_extra_keys *extra, uint64_t start);

/* The keys of tokens [start, end), in vLLM's order; false when there are more than max. The digest
 * that a key may point to lives in the cursor until the next block. */
bool qr_extra_of_block(qr_extra_cursor *cursor, uint64_t start, uint64_t end, quire_extra_key *keys,
                       size_t max, size_t *num_keys);

#endif

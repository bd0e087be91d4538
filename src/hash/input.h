/* hash/input.h - what one block's hash is made of, (parent, tokens, extra keys), and its encoded
 * form.
 *
 *      [ header | parent . . . . | tokens | extra keys | end ]
 *                 ^ parent_at: left open
 *
 * An encoder leaves a hole for the parent, whose length is known before its bytes are: a block can
 * be encoded while the one before it is still being hashed. */
#ifndef QR_HASH_INPUT_H
#define QR_HASH_INPUT_H

#include "base/bits.h"

#include <quire/hash.h>

typedef struct qr_message {
    unsigned char *bytes;
    size_t len;
    size_t parent_at;
} qr_message;

typedef struct qr_hash_input {
    size_t parent_len;
    const int32_t *tokens;   /* one of the two is NULL */
    const int64_t *tokens64; /* for ids beyond 32 bits */
    size_t num_tokens;
    const quire_extra_key *keys;
    size_t num_keys; /* 0: Python's None, not an empty tuple */
} qr_hash_input;

enum {
    /* The most bytes that any encoding writes... */
    QR_HASH_MAX_FIXED = 256, /* ...around everything, with a parent of up to QR_HASH_MAX_PARENT */
    QR_HASH_MAX_PER_TOKEN = 10, /* ...for a token */
    QR_HASH_MAX_PER_KEY = 24,   /* ...for an extra key, besides its text */
    QR_HASH_MAX_PARENT = 64,
    QR_HASH_MAX_SEED = 4096,
    QR_HASH_MAX_EXTRA = 65535, /* Python writes longer texts outside of frames */
    QR_HASH_MAX_BLOCK = 65536, /* tokens */
    /* Behind the message: room for SHA-256's padding, and for writing 8 bytes where fewer count. */
    QR_HASH_SLACK = 80
};

#endif

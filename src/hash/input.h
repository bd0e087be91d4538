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

/* The texts that tagged keys begin with, by kind. A path is part of its adapter's key. */
static const quire_bytes QR_KEY_TAGS[] = {[QUIRE_KEY_LORA_NAME] = {"lora", 4},
                                          [QUIRE_KEY_MM_FEATURE] = {"mm", 2},
                                          [QUIRE_KEY_CACHE_SALT] = {"cache_salt", 10},
                                          [QUIRE_KEY_PROMPT_EMBEDS] = {"prompt_embeds", 13},
                                          [QUIRE_KEY_LORA_PATH] = {NULL, 0}};

/* The number of tagged keys: a path counts with its adapter's name. */
static inline size_t qr_hash_num_tagged(const qr_hash_input *input)
{
    size_t n = 0;
    for (size_t i = 0; i < input->num_keys; i++)
        n += input->keys[i].kind != QUIRE_KEY_LORA_PATH;
    return n;
}

/* The path of the adapter whose name is key i, which may have none. */
static inline bool qr_hash_has_path(const qr_hash_input *input, size_t i)
{
    return i + 1 < input->num_keys && input->keys[i + 1].kind == QUIRE_KEY_LORA_PATH;
}

enum {
    /* The most bytes that any encoding writes... */
    QR_HASH_MAX_FIXED = 256, /* ...around everything, with a parent of up to QR_HASH_MAX_PARENT */
    QR_HASH_MAX_PER_TOKEN = 10, /* ...for a token */
    QR_HASH_MAX_PER_KEY = 24,   /* ...for an extra key with its tag, besides its text */
    QR_HASH_MAX_PARENT = 64,
    QR_HASH_MAX_SEED = 4096,
    QR_HASH_MAX_EXTRA = 65535, /* Python writes longer texts outside of frames */
    QR_HASH_MAX_BLOCK = 65536, /* tokens */
    /* Behind the message: room for SHA-256's padding, and for writing 8 bytes where fewer count. */
    QR_HASH_SLACK = 80
};

#endif

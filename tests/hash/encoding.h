/* hash/encoding.h - block keys that the encoders are tried on, each with the parent "parent".
 *
 * What must come out stands in the test of each encoder: bytes that Python writes for the tuple
 * (b"parent", tokens, extra keys).
 */
#ifndef HASH_ENCODING_H
#define HASH_ENCODING_H

#include "hash/input.h"

typedef enum encoding_case {
    NO_TOKENS,
    ONE_TOKEN,
    TWO_TOKENS,
    THREE_TOKENS,
    FOUR_TOKENS,
    LORA,
    SALT,
    FEATURE,        /* at offset 10 */
    FEATURE_BEFORE, /* at offset -6 */
    EMBEDS,
    TWO_KEYS,
    THREE_KEYS,
    FOUR_KEYS,
    FIVE_KEYS,
    SAME_TEXT,  /* a LoRA name and a feature that are one string object */
    EQUAL_TEXT, /* two objects, equal content */
    EMPTY_TEXT,
    UTF8_TEXT,
    TEXT_255,
    TEXT_256,
    BYTES_255,
    BYTES_256,
    NUM_ENCODING_CASES
} encoding_case;

enum { NUM_ENCODING_INTS = 34, ENCODING_ROOM = 1 << 20 };

/* Numbers at every edge of the two encodings, to be encoded as a block's only token. */
extern const int64_t ENCODING_INTS[NUM_ENCODING_INTS];

/* Any encoder, behind one face. */
typedef void encoding_function(qr_message *out, const qr_hash_input *input);

/* tokens point to memory that lives as long as the program, and parent_len is that of "parent". */
qr_hash_input encoding_input(encoding_case which);

/* Encodes, puts the parent in its place, and gives the message; valid until the next call. */
qr_message encoding_encode(encoding_function *encode, qr_hash_input input);

/* Every case, and every integer in both forms, against what is expected. */
void encoding_assert_cases(encoding_function *encode, const char *const *expected);
void encoding_assert_ints(encoding_function *encode, const char *const *expected);

#endif

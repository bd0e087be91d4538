/* group/checkpoint.h - where a Mamba state is kept that later requests can resume at.
 *
 *      tokens   0 ............... 128 ......... 144 .... 150     hashes of 16 tokens, blocks of 64
 *      blocks   [   -   ][   c   ][   a    ]
 *
 * A prompt of 150 tokens can be resumed behind 144. Either a chunk ends there, and its state is
 * kept; or the layers can write the state of a token inside a chunk: then one chunk computes all,
 * the block before the last one holds that state and has the key of 144 tokens (vLLM #52789).
 */
#ifndef QR_GROUP_CHECKPOINT_H
#define QR_GROUP_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

/* The last multiple of `size` at which num_tokens tokens can be resumed: one token must be left to
 * compute; with EAGLE, `drops`, the tokens behind the last but one multiple are. */
static inline uint32_t qr_checkpoint_end(uint32_t num_tokens, uint32_t size, bool drops)
{
    if (num_tokens == 0)
        return 0;
    uint32_t end = (num_tokens - !drops) / size * size;
    return !drops ? end : end > size ? end - size : 0;
}

/* A chunk, and what the layers can do. */
typedef struct qr_checkpoint_chunk {
    uint32_t start;
    uint32_t end;
    uint32_t hash_size;  /* tokens under one hash */
    uint32_t block_size; /* of the states */
    uint32_t alignment;  /* of states inside a chunk, from its start; 0: the layers write none */
} qr_checkpoint_chunk;

/* Whether the chunk can write the state behind token `at`. */
bool qr_checkpoint_is_possible(const qr_checkpoint_chunk *chunk, uint32_t at);

#endif

/* quire/cost.h - formulas for the cost of KV cache: bytes, blocks, seconds.
 *
 *      block bytes    stored by all layers for one block        65,536 x 80 layers = 5,242,880
 *      blocks         memory / block bytes, rounded down        43e9 / 5,242,880   = 8,201
 *      tokens         blocks x block size                       8,201 x 16         = 131,216
 *      watermark      blocks that a new request leaves free     1% of 8,201        = 82
 *
 * (Llama 70B, 16 tokens in a block, float16.) These formulas hold for a model whose layers are all
 * equal; quire/plan.h computes the general case.
 *
 * All functions here are pure: they have no state, and any thread may call them. A count that
 * exceeds 64 bits is UINT64_MAX. A division by 0 gives 0.
 */
#ifndef QUIRE_COST_H
#define QUIRE_COST_H

#include "layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes of one block in all layers; quire_layer_page_bytes gives the bytes of one layer. 0 if a
 * layer is invalid or layers is NULL. */
static inline uint64_t quire_cost_block_bytes(const quire_layer_spec *layers, uint32_t num_layers)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; layers != NULL && i < num_layers; i++) {
        uint64_t page_bytes = quire_layer_page_bytes(&layers[i]);
        if (page_bytes == 0)
            return 0;
        bytes = page_bytes > UINT64_MAX - bytes ? UINT64_MAX : bytes + page_bytes;
    }
    return bytes;
}

/* The number of blocks that a memory holds, and the bytes of a number of blocks. */
static inline uint64_t quire_cost_num_blocks(uint64_t memory_bytes, uint64_t block_bytes)
{
    return block_bytes == 0 ? 0 : memory_bytes / block_bytes;
}
static inline uint64_t quire_cost_total_bytes(uint64_t num_blocks, uint64_t block_bytes)
{
    int fits = block_bytes == 0 || num_blocks <= UINT64_MAX / block_bytes;
    return fits ? num_blocks * block_bytes : UINT64_MAX;
}

/* The number of blocks for num_tokens tokens, rounded up, and the number of tokens in num_blocks
 * blocks. */
static inline uint64_t quire_cost_blocks_for_tokens(uint64_t num_tokens, uint32_t block_size)
{
    return block_size == 0 ? 0 : num_tokens / block_size + (num_tokens % block_size != 0);
}
static inline uint64_t quire_cost_token_capacity(uint64_t num_blocks, uint32_t block_size)
{
    return quire_cost_total_bytes(num_blocks, block_size);
}

/* The number of blocks that a watermark (0 to 1) reserves, rounded down, as
 * quire_cache_config.watermark. */
static inline uint64_t quire_cost_watermark_blocks(uint64_t num_blocks, double watermark)
{
    double blocks = (double)num_blocks * watermark;
    if (!(blocks > 0.0)) /* NaN too */
        return 0;
    return blocks < (double)num_blocks ? (uint64_t)blocks : num_blocks;
}

/* The unused part of the blocks of a request with num_tokens tokens: 0 to 1. The part is largest if
 * the last block holds one token. */
static inline double quire_cost_fragmentation(uint64_t num_tokens, uint32_t block_size)
{
    double slots = (double)quire_cost_blocks_for_tokens(num_tokens, block_size) * block_size;
    return slots > 0.0 ? (slots - (double)num_tokens) / slots : 0.0;
}

/* The seconds to move bytes, and the seconds to compute the keys and values of tokens again. */
static inline double quire_cost_transfer_seconds(uint64_t bytes, double bytes_per_second)
{
    return bytes_per_second > 0.0 ? (double)bytes / bytes_per_second : 0.0;
}
static inline double quire_cost_recompute_seconds(uint64_t num_tokens, double tokens_per_second)
{
    return tokens_per_second > 0.0 ? (double)num_tokens / tokens_per_second : 0.0;
}

#ifdef __cplusplus
}
#endif
#endif

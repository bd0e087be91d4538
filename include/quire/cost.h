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
QUIRE_API uint64_t quire_cost_block_bytes(const quire_layer_spec *layers, uint32_t num_layers);

/* The number of blocks that a memory holds, and the bytes of a number of blocks. */
QUIRE_API uint64_t quire_cost_num_blocks(uint64_t memory_bytes, uint64_t block_bytes);
QUIRE_API uint64_t quire_cost_total_bytes(uint64_t num_blocks, uint64_t block_bytes);

/* The number of blocks for num_tokens tokens, rounded up, and the number of tokens in num_blocks
 * blocks. */
QUIRE_API uint64_t quire_cost_blocks_for_tokens(uint64_t num_tokens, uint32_t block_size);
QUIRE_API uint64_t quire_cost_token_capacity(uint64_t num_blocks, uint32_t block_size);

/* The number of blocks that a watermark (0 to 1) reserves, rounded down, as
 * quire_cache_config.watermark. */
QUIRE_API uint64_t quire_cost_watermark_blocks(uint64_t num_blocks, double watermark);

/* The unused part of the blocks of a request with num_tokens tokens: 0 to 1. The part is largest if
 * the last block holds one token. */
QUIRE_API double quire_cost_fragmentation(uint64_t num_tokens, uint32_t block_size);

/* The seconds to move bytes, and the seconds to compute the keys and values of tokens again. */
QUIRE_API double quire_cost_transfer_seconds(uint64_t bytes, double bytes_per_second);
QUIRE_API double quire_cost_recompute_seconds(uint64_t num_tokens, double tokens_per_second);

#ifdef __cplusplus
}
#endif
#endif

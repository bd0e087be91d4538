/* quire/cost.h - what KV cache costs: bytes, blocks, time.
 *
 *      block bytes    what all layers keep of one block         65,536 x 80 layers = 5,242,880
 *      blocks         memory / block bytes, rounded down        43e9 / 5,242,880   = 8,201
 *      tokens         blocks x block size                       8,201 x 16         = 131,216
 *      watermark      blocks that stay free for running ones    1% of 8,201        = 82
 *
 * (Llama 70B, 16 tokens in a block, float16.) This is the arithmetic behind a plan, for a model
 * whose layers are all alike; quire/plan.h does the general case.
 *
 * All functions here are pure: no state, any thread. A count that would pass 64 bits is UINT64_MAX;
 * dividing by 0 gives 0.
 */
#ifndef QUIRE_COST_H
#define QUIRE_COST_H

#include "layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of one block in all layers; quire_layer_page_bytes is that of one. 0 when a layer is not
 * valid. */
QUIRE_API uint64_t quire_cost_block_bytes(const quire_layer_spec *layers, uint32_t num_layers);

/* Blocks that a memory holds, and bytes that blocks take. */
QUIRE_API uint64_t quire_cost_num_blocks(uint64_t memory_bytes, uint64_t block_bytes);
QUIRE_API uint64_t quire_cost_total_bytes(uint64_t num_blocks, uint64_t block_bytes);

/* Blocks for so many tokens, and tokens in so many blocks. */
QUIRE_API uint64_t quire_cost_blocks_for_tokens(uint64_t num_tokens, uint32_t block_size);
QUIRE_API uint64_t quire_cost_token_capacity(uint64_t num_blocks, uint32_t block_size);

/* Blocks that a watermark (0 to 1) keeps free, rounded down; as quire_cache_config.watermark. */
QUIRE_API uint64_t quire_cost_watermark_blocks(uint64_t num_blocks, double watermark);

/* Of the blocks of a request with so many tokens, the part that is empty: 0 to 1. The worst request
 * has one token in its last block. */
QUIRE_API double quire_cost_fragmentation(uint64_t num_tokens, uint32_t block_size);

/* Seconds to move bytes, and to compute the keys and values of tokens anew. */
QUIRE_API double quire_cost_transfer_seconds(uint64_t bytes, double bytes_per_second);
QUIRE_API double quire_cost_recompute_seconds(uint64_t num_tokens, double tokens_per_second);

#ifdef __cplusplus
}
#endif
#endif

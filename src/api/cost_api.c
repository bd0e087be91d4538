/* api/cost_api.c - quire/cost.h: each function is its formula. */
#include "group/spec.h"

#include <quire/cost.h>

uint64_t quire_cost_block_bytes(const quire_layer_spec *layers, uint32_t num_layers)
{
    uint64_t bytes = 0;
    if (layers == NULL)
        return 0;
    for (uint32_t i = 0; i < num_layers; i++) {
        uint64_t page = qr_spec_page_bytes(&layers[i]);
        if (page == 0)
            return 0;
        bytes = qr_add_u64(bytes, page);
    }
    return bytes;
}

uint64_t quire_cost_num_blocks(uint64_t memory_bytes, uint64_t block_bytes)
{
    return block_bytes == 0 ? 0 : memory_bytes / block_bytes;
}

uint64_t quire_cost_total_bytes(uint64_t num_blocks, uint64_t block_bytes)
{
    return qr_mul_u64(num_blocks, block_bytes);
}

uint64_t quire_cost_blocks_for_tokens(uint64_t num_tokens, uint32_t block_size)
{
    return block_size == 0 ? 0 : qr_cdiv_u64(num_tokens, block_size);
}

uint64_t quire_cost_token_capacity(uint64_t num_blocks, uint32_t block_size)
{
    return qr_mul_u64(num_blocks, block_size);
}

uint64_t quire_cost_watermark_blocks(uint64_t num_blocks, double watermark)
{
    double blocks = (double)num_blocks * watermark;
    if (!(blocks > 0.0)) /* NaN too */
        return 0;
    return blocks < (double)num_blocks ? (uint64_t)blocks : num_blocks;
}

double quire_cost_fragmentation(uint64_t num_tokens, uint32_t block_size)
{
    uint64_t blocks = quire_cost_blocks_for_tokens(num_tokens, block_size);
    if (blocks == 0)
        return 0.0;
    double slots = (double)blocks * block_size;
    return (slots - (double)num_tokens) / slots;
}

double quire_cost_transfer_seconds(uint64_t bytes, double bytes_per_second)
{
    return bytes_per_second > 0.0 ? (double)bytes / bytes_per_second : 0.0;
}

double quire_cost_recompute_seconds(uint64_t num_tokens, double tokens_per_second)
{
    return tokens_per_second > 0.0 ? (double)num_tokens / tokens_per_second : 0.0;
}

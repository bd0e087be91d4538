#include "block/layout.h"

int qr_layout_make(quire_layout *layout, uint64_t base, uint32_t num_layers, uint32_t num_blocks,
                   uint64_t block_bytes, bool layer_outer)
{
    uint64_t pieces = (uint64_t)num_layers * num_blocks;
    uint64_t bytes;
    if (__builtin_mul_overflow(pieces, block_bytes, &bytes) ||
        (bytes > 0 && base > UINT64_MAX - (bytes - 1)))
        return QUIRE_E_OVERFLOW;
    *layout = (quire_layout){.base = base,
                             .layer_stride = layer_outer ? num_blocks * block_bytes : block_bytes,
                             .block_stride = layer_outer ? block_bytes : num_layers * block_bytes,
                             .block_bytes = block_bytes,
                             .num_layers = num_layers,
                             .num_blocks = num_blocks};
    return QUIRE_OK;
}

/* block/layout.h - where a block's bytes are: address = base + layer x layer_stride + block x
 * block_stride. */
#ifndef QR_BLOCK_LAYOUT_H
#define QR_BLOCK_LAYOUT_H

#include <quire/table.h>

#include <stdbool.h>

/* Fills a layout of the two kinds; QUIRE_E_OVERFLOW when its last byte has no 64-bit address. */
int qr_layout_make(quire_layout *layout, uint64_t base, uint32_t num_layers, uint32_t num_blocks,
                   uint64_t block_bytes, bool layer_outer);

#endif

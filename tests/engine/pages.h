/* engine/pages.h - a device for an arena whose blocks lie in pieces: one page for each layer.
 *
 *      block 2 of an arena [layer][block][page]            its slot in host memory
 *      layer 0   [ ][ ][#][ ]  ─── page 0 x 4 + 2 ──►      [#####|     ]   slot x 2
 *      layer 1   [ ][ ][#][ ]  ─── page 1 x 4 + 2 ──►      [     |#####]   slot x 2 + 1
 *
 * quire_device_host knows blocks in one piece. Here one of those moves pages, and each job becomes
 * a job of pages. The sum of a stored block is made from its slot; that of a loaded one is not
 * known.
 */
#ifndef ENGINE_PAGES_H
#define ENGINE_PAGES_H

#include <quire/device.h>

/* inner: of num_blocks * num_layers pages. It stays the caller's. NULL: no memory. */
void *engine_pages_create(quire_device *inner, uint32_t num_blocks, uint32_t num_layers,
                          const void *slots, uint64_t block_bytes, quire_device *device);

#endif

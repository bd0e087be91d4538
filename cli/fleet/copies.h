/* cli/fleet/copies.h - which caches of a fleet have which block.
 *
 *      pairs     (block, worker): the worker's cache has the block
 *      counts    block -> workers that have it
 *
 *      num_pairs - num_blocks = blocks that are held more than once, without their first copies
 *
 * A cache may report a block as stored twice: it counts once.
 */
#ifndef QUIRE_CLI_FLEET_COPIES_H
#define QUIRE_CLI_FLEET_COPIES_H

#include "views/pair_map.h"

/* All zero: no cache has a block. */
typedef struct copies {
    pair_map pairs;
    pair_map counts;
    uint64_t num_pairs;
    uint64_t num_blocks; /* different ones */
} copies;

/* Returns false if memory is short; nothing has changed then. */
bool copies_add(copies *c, uint64_t name, uint32_t worker);
void copies_remove(copies *c, uint64_t name, uint32_t worker);
/* The worker's cache is empty. Returns false if memory is short. */
bool copies_clear(copies *c, uint32_t worker);
/* Workers that have the block. */
uint32_t copies_of(const copies *c, uint64_t name);
void copies_free(copies *c);

#endif

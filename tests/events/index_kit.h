/* events/index_kit.h - whether a router's index is what the pool has. */
#ifndef EVENTS_INDEX_KIT_H
#define EVENTS_INDEX_KIT_H

#include <quire/pool.h>
#include <quire/wire.h>

#include <stdbool.h>

typedef struct index_kit {
    bool is_numbers;    /* hashes in the index are the last 8 bytes */
    bool counts_copies; /* each block with a key counts, not each key */
} index_kit;

/* Compares the blocks of a worker with the keys of the pool; a difference is printed. */
bool index_kit_is_pool(const index_kit *kit, const quire_index *index, uint32_t worker,
                       const quire_pool *pool);

#endif

/* cli/fleet/views/block_index.h - which workers have which blocks.
 *
 *      name ─► | name, worker 3, worker 9, -, 2 |        up to three workers: in the slot
 *              | name, set 17,            many |──► | 1 0 1 1 0 1 ... |   more: a bit for each
 * worker
 *
 * One walk along the prefix of a prompt finds the hits of all workers: the set of workers that have
 * all blocks so far only shrinks, and a worker's hit is known when the worker leaves the set. With
 * 1,024 workers the set is 16 words.
 *
 *      pairs = sum of the workers of all names
 *
 * Open addressing, 16 bytes a slot, at most three quarters used.
 */
#ifndef QUIRE_CLI_FLEET_VIEWS_BLOCK_INDEX_H
#define QUIRE_CLI_FLEET_VIEWS_BLOCK_INDEX_H

#include "fleet/routers/policy.h"

typedef struct block_index block_index;

/* NULL: no memory. */
block_index *block_index_open(uint32_t max_workers);
void block_index_close(block_index *index);

typedef enum block_change { BLOCK_SAME, BLOCK_CHANGED, BLOCK_NO_MEMORY } block_change;

block_change block_index_add(block_index *index, uint64_t name, uint32_t worker);
block_change block_index_remove(block_index *index, uint64_t name, uint32_t worker);
/* Asks for the memory of a block that will be needed soon. */
void block_index_fetch(const block_index *index, uint64_t name);
bool block_index_has(const block_index *index, uint64_t name, uint32_t worker);
/* All blocks of the worker; looks at every slot. */
void block_index_drop_worker(block_index *index, uint32_t worker);
/* Makes the blocks of the worker those of another index: after events were lost. Looks at every
 * slot of both. */
block_change block_index_copy_worker(block_index *index, const block_index *from, uint32_t worker);

uint64_t block_index_pairs(const block_index *index);
uint64_t block_index_pairs_of(const block_index *index, uint32_t worker);
uint64_t block_index_bytes(const block_index *index);

/* Hits of all workers in up to three tiers, GPU memory first; a tier may be NULL. Looks at
 * names[0], names[stride], ...: n of them. hits has max_workers elements, and is overwritten. */
void block_index_walk(const block_index *const tiers[3], const uint64_t *names, uint32_t n,
                      uint32_t stride, router_hit *hits);
/* The same for one index: leading blocks by worker. */
void block_index_leading(const block_index *index, const uint64_t *names, uint32_t n,
                         uint32_t stride, uint32_t *leading);

#endif

/* cli/fleet/views/active_blocks.h - the blocks that requests in flight use, as a router counts
 * them.
 *
 *      worker 3    a ─ b ─ c ─ d          request 7 ends at d
 *                      └─ e ─ f           request 9 ends at f:  6 different blocks
 *
 * The prompts of a worker's requests are paths of a tree. A request holds only its last block: a
 * block stays as long as a request or another block hangs on it, so a request costs only the
 * blocks that it shares with no other.
 *
 *      holds of a block = requests that end at it + blocks whose parent it is > 0
 */
#ifndef QUIRE_CLI_FLEET_VIEWS_ACTIVE_BLOCKS_H
#define QUIRE_CLI_FLEET_VIEWS_ACTIVE_BLOCKS_H

#include "block_index.h"

typedef struct active_blocks active_blocks;

#define ACTIVE_NONE UINT32_MAX

/* NULL: no memory. */
active_blocks *active_blocks_open(uint32_t max_workers);
void active_blocks_close(active_blocks *active);

/* Leading blocks by worker that its requests in flight use. */
void active_blocks_leading(const active_blocks *active, const uint64_t *names, uint32_t n,
                           uint32_t *leading);
/* A request with these blocks begins, of which the worker's requests use the first num_known, as
 * active_blocks_leading says. Returns what ends it; ACTIVE_NONE without blocks or memory.
 * */
uint32_t active_blocks_begin(active_blocks *active, uint32_t worker, const uint64_t *names,
                             uint32_t n, uint32_t num_known);
void active_blocks_end(active_blocks *active, uint32_t worker, uint32_t last);
/* Different blocks of the worker. */
uint64_t active_blocks_of(const active_blocks *active, uint32_t worker);
uint64_t active_blocks_bytes(const active_blocks *active);

#endif

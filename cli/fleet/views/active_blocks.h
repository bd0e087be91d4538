/* cli/fleet/views/active_blocks.h - the blocks that requests in flight use, as a router counts
 * them.
 *
 *      a b c d ──┬── e f           worker 3, 2 requests        worker 7, 1 request
 *                └── g h i j k     worker 3, 1 request
 *
 * A tree of runs of blocks, one for all workers. A run is split where a request ends or leaves it,
 * so a request covers whole runs, and holds each run on its path once. Work for a request is in
 * runs, not in blocks: it compares names along its path, and no more.
 *
 *      holds of a run and a worker = requests of the worker whose path has the run
 *      blocks of a worker = sum of the lengths of the runs that it holds
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
/* A request with these blocks begins. Returns what ends it; ACTIVE_NONE without blocks or memory.
 * */
uint32_t active_blocks_begin(active_blocks *active, uint32_t worker, const uint64_t *names,
                             uint32_t n);
void active_blocks_end(active_blocks *active, uint32_t worker, uint32_t last);
/* Different blocks of the worker. */
uint64_t active_blocks_of(const active_blocks *active, uint32_t worker);
/* Runs, and their memory. */
uint32_t active_blocks_runs(const active_blocks *active);
uint64_t active_blocks_bytes(const active_blocks *active);

#endif

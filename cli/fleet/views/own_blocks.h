/* cli/fleet/views/own_blocks.h - blocks that a router believes a worker to have because it sent
 * requests with them there: an approximate index.
 *
 *      worker 3    oldest ─ ... ─ newest        a touch makes a block the newest
 *
 * A block is forgotten ttl_s after its last touch, and the oldest block of a worker when the worker
 * has more than max_blocks. The blocks of one request are touched from the last one to the first,
 * so that the end of a prompt is forgotten before its beginning.
 */
#ifndef QUIRE_CLI_FLEET_VIEWS_OWN_BLOCKS_H
#define QUIRE_CLI_FLEET_VIEWS_OWN_BLOCKS_H

#include "block_index.h"

typedef struct own_blocks own_blocks;

/* ttl_s 0: no limit; max_blocks of each worker, 0: no limit. NULL: no memory. */
own_blocks *own_blocks_open(uint32_t max_workers, double ttl_s, uint64_t max_blocks);
void own_blocks_close(own_blocks *own);

/* A request with these blocks was sent to the worker: names[0], names[stride], ... False: no
 * memory; some blocks are missing then. */
bool own_blocks_touch(own_blocks *own, double now_s, uint32_t worker, const uint64_t *names,
                      uint32_t n, uint32_t stride);
/* Forgets what is too old at now_s. */
void own_blocks_expire(own_blocks *own, double now_s);
void own_blocks_drop_worker(own_blocks *own, uint32_t worker);
const block_index *own_blocks_index(const own_blocks *own);
uint64_t own_blocks_bytes(const own_blocks *own);

#endif

/* cli/fleet/hits.h - what is known of a worker's cache without looking into it.
 *
 *      ever     a bit by the name of a block: 0, if no block of such a name was ever in the cache
 *      last     the last hit that was found. It is there as long as nothing was removed
 *      found    hits of requests that come soon, which threads look for beside each other
 *               (hits_keep). Each is right as long as nothing was stored or removed
 *
 * A router that knows all asks every worker for every prompt, and nearly always the answer is a
 * beginning that all workers have. Then two words say it, and the cache is left alone.
 *
 * The worker notes changes, in its thread; the fleet asks between windows.
 */
#ifndef QUIRE_CLI_FLEET_HITS_H
#define QUIRE_CLI_FLEET_HITS_H

#include <quire/pool.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct hits_last {
    uint64_t name; /* of its last block */
    uint64_t num_removed;
    uint32_t num_blocks; /* 0: none was found */
} hits_last;

typedef struct hits_found {
    uint64_t of; /* number of the request + 1; 0: none */
    uint64_t num_changes;
    uint32_t num_blocks;
} hits_found;

enum { HITS_FOUND = 64 };

typedef struct hits_known {
    uint64_t *ever; /* mask + 1 bits */
    uint64_t mask;
    uint64_t num_stored;  /* blocks that came into the cache, since the start */
    uint64_t num_removed; /* blocks that left it */
    hits_last last;
    hits_found found[HITS_FOUND]; /* of request i in place i % HITS_FOUND */
} hits_known;

/* The blocks that are looked for. */
typedef struct hits_prompt {
    const unsigned char *hashes; /* block_bytes for each block */
    size_t block_bytes;
    const uint64_t *names;
    uint32_t num_blocks;
    uint64_t number; /* of the request */
} hits_prompt;

/* False: no memory. */
bool hits_open(hits_known *known, uint32_t num_blocks);
void hits_close(hits_known *known);

static inline void hits_note_stored(hits_known *known, uint64_t name)
{
    known->ever[(name & known->mask) / 64] |= UINT64_C(1) << (name % 64);
    known->num_stored++;
}

static inline void hits_note_removed(hits_known *known)
{
    known->num_removed++;
}

/* Leading blocks of the prompt that are in the pool. */
uint32_t hits_find(hits_known *known, const quire_pool *pool, const hits_prompt *prompt);
/* Looks for them now, so that hits_find need not. */
void hits_keep(hits_known *known, const quire_pool *pool, const hits_prompt *prompt);

#endif

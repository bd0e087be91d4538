/* model/noalloc_cache.h - an engine that uses every call of quire/cache.h, for test_noalloc.c.
 *
 *      requests    begin (lookup, admission, room) -> decode, fork, rewrite -> preempt or end
 *      between     steps, evictions, resets, and everything that can be looked at or taken
 *
 * Nothing here allocates or calls the system once it has started.
 */
#ifndef MODEL_NOALLOC_CACHE_H
#define MODEL_NOALLOC_CACHE_H

#include <quire/cache.h>
#include <stdbool.h>

enum {
    NOALLOC_REQUESTS = 24,
    NOALLOC_GROUPS = 3,
    NOALLOC_BLOCKS = 300,
    NOALLOC_BLOCK_SIZE = 4,
    NOALLOC_LEN = 96,
    NOALLOC_DIGEST = 16
};

typedef struct noalloc_request {
    quire_cache_request r;
    unsigned char hashes[NOALLOC_LEN / NOALLOC_BLOCK_SIZE * NOALLOC_DIGEST];
} noalloc_request;

typedef struct noalloc_cache {
    quire_cache *cache;
    noalloc_request requests[NOALLOC_REQUESTS];
    uint64_t random;
    uint64_t calls;
    uint64_t hits;
    uint64_t no_space;
    uint64_t full;
    uint64_t forks;
    uint64_t copies;
    uint64_t resets;
    uint64_t events;
    uint64_t failures; /* answers that must not be */
} noalloc_cache;

bool noalloc_cache_start(noalloc_cache *c, uint64_t seed);
void noalloc_cache_run(noalloc_cache *c, uint64_t calls);
void noalloc_cache_end(noalloc_cache *c);
/* Whether everything happened that can, and nothing that must not. */
bool noalloc_cache_did_all(const noalloc_cache *c);
void noalloc_cache_print(const noalloc_cache *c);

#endif

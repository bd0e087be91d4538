/* cli/fleet/shared_tier.h - storage that all workers share: which blocks it has, and what moving
 * them costs.
 *
 *      worker 0 ── its card ── its share ──╗
 *                                          ╠══ total ══ [ newest ... oldest | on their way ]
 *      worker 1 ── its card ── its share ──╝                 capacity, in blocks of one size
 *
 * block      block_bytes under a key of 64 bits; different blocks have different keys.
 * on its way a block of which a store has begun: it has its place, and is not found yet. So two
 *            workers do not store the same block twice.
 * oldest     the block that was not stored or used for longest: it is evicted when a store needs
 *            its place. Blocks on their way are not evicted.
 *
 *      stored + on their way + free places = capacity_bytes / block_bytes
 *
 * The bytes go over the caller's links (links.h): each transfer shares the tier's total bandwidth
 * of its direction, its client's own, and the worker's card. A place takes 28 to 40 bytes of
 * memory, all allocated at creation. The same calls give the same answers. Not for several threads.
 */
#ifndef QUIRE_CLI_FLEET_SHARED_TIER_H
#define QUIRE_CLI_FLEET_SHARED_TIER_H

#include "links.h"

typedef struct shared_tier shared_tier;

typedef struct shared_tier_config {
    uint64_t capacity_bytes;
    uint64_t block_bytes;
    double latency_s; /* of each load and each store, before its bytes */
    links *links;     /* stays the caller's; NULL: shared_tier_set_links gives them */
    /* The bandwidth of all clients together, and of each client: client i has link client_link + i.
     * LINKS_NONE: no limit. */
    uint32_t load_link;
    uint32_t store_link;
    uint32_t client_link;
    uint32_t num_clients;
} shared_tier_config;

typedef struct shared_tier_counts {
    uint64_t places;
    uint64_t stored; /* now */
    uint64_t coming; /* on their way now */
    /* since creation: */
    uint64_t stores; /* blocks that became stored */
    uint64_t used;
    uint64_t evicted;
    uint64_t refused; /* not stored: no place, or the tier was down */
    uint64_t failed;  /* stores that failed */
    uint64_t lost;    /* by shared_tier_clear */
} shared_tier_counts;

/* NULL, and a sentence (failure.h) that names the field: a value is out of range, or there is not
 * enough memory. */
shared_tier *shared_tier_create(const shared_tier_config *config);
void shared_tier_destroy(shared_tier *t);

/* How many of the keys, from the first on, are stored. Nothing changes. */
uint32_t shared_tier_find(const shared_tier *t, const uint64_t *keys, uint32_t num_keys);
/* These blocks, which a load wants, are the newest now, the first of them last, so that the end of
 * a prefix is evicted first. Keys that are not stored are passed over. */
void shared_tier_use(shared_tier *t, const uint64_t *keys, uint32_t num_keys);

/* Takes places for the keys that are not stored and not on their way, evicting the oldest blocks.
 * `added`, of num_keys, gets the keys that have a place now; they must come back through
 * shared_tier_end_store. How many those are. */
uint32_t shared_tier_begin_store(shared_tier *t, const uint64_t *keys, uint32_t num_keys,
                                 uint64_t *added);
/* The store has ended. If it failed, the places are free again. */
void shared_tier_end_store(shared_tier *t, const uint64_t *added, uint32_t num_added,
                           bool has_succeeded);

/* Before the first transfer. */
void shared_tier_set_links(shared_tier *t, links *l);

typedef enum shared_tier_way { SHARED_TIER_LOAD, SHARED_TIER_STORE } shared_tier_way;

/* Moves the blocks of a load or a store; card_link is the worker's, LINKS_NONE: without. The
 * transfer ends through links_take. LINKS_NONE: links_start refused it, or there is no such
 * client. */
uint32_t shared_tier_start(shared_tier *t, double now_s, shared_tier_way way, uint32_t client,
                           uint32_t card_link, uint32_t num_blocks, uint64_t user);

/* While it is down it finds nothing and stores nothing; what it has stays. Transfers are the
 * caller's to fail (links_fail). */
void shared_tier_set_down(shared_tier *t, bool is_down);
/* Loses all stored blocks; blocks on their way stay. */
void shared_tier_clear(shared_tier *t);
shared_tier_counts shared_tier_get_counts(const shared_tier *t);

#endif

/* cli/fleet/views/kv_feed.h - an index that is kept up to date by the workers' KV events, as well
 * as its router hears them.
 *
 *      worker 3   1 2 3 4 5 ──lag──►  1 2 . 4 5     batch 3 is lost: 4 shows the gap
 *                                           └─resync──► the whole cache of worker 3 is read again
 *
 * Each batch of a worker has the next number. Whether a batch is lost depends only on the seed, the
 * worker and the number, so that the order of calls for different workers does not matter. A gap is
 * seen when a later batch arrives, not before.
 */
#ifndef QUIRE_CLI_FLEET_VIEWS_KV_FEED_H
#define QUIRE_CLI_FLEET_VIEWS_KV_FEED_H

#include "block_index.h"
#include "fleet/routers/router.h"

typedef struct kv_feed kv_feed;

typedef struct kv_feed_settings {
    uint32_t max_workers;
    double lag_s;
    double loss;          /* 0 to 1 */
    double resync_s;      /* from seeing a gap; 0: never */
    const kv_feed *truth; /* without lag and loss: what a resync reads; needed if resync_s > 0 */
    uint64_t seed;
} kv_feed_settings;

/* NULL: no memory. */
kv_feed *kv_feed_open(const kv_feed_settings *settings);
void kv_feed_close(kv_feed *feed);

/* A batch leaves its worker. Times of one worker never decrease. False: no memory. */
bool kv_feed_event(kv_feed *feed, const router_kv_event *event);
/* A batch of the worker is lost, whatever the settings say. */
void kv_feed_lose(kv_feed *feed, uint32_t worker);
/* All that arrives until now_s. */
bool kv_feed_advance(kv_feed *feed, double now_s);
/* The worker's blocks are lost, and its batches in flight. */
void kv_feed_drop_worker(kv_feed *feed, uint32_t worker);

/* ROUTER_SHARED: an index of one worker, 0. */
const block_index *kv_feed_tier(const kv_feed *feed, router_tier tier);
/* Add what this feed has counted, and what its index holds. */
void kv_feed_count_events(const kv_feed *feed, router_view_stats *stats);
void kv_feed_count_index(const kv_feed *feed, router_view_stats *stats);

#endif

#include "kv_feed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_AHEAD = 8 }; /* blocks whose memory is fetched before it is needed */

typedef struct batch {
    struct batch *next;
    double due_s;
    uint64_t number;
    router_tier tier;
    router_kv_kind kind;
    uint32_t num_blocks;
    uint64_t blocks[];
} batch;

typedef struct worker_feed {
    batch *first; /* in flight, in order */
    batch *last;
    uint64_t num_sent;
    uint64_t expected;   /* number of the batch that should come next */
    double resync_due_s; /* infinite: none */
} worker_feed;

struct kv_feed {
    kv_feed_settings settings;
    block_index *tiers[ROUTER_NUM_TIERS];
    worker_feed *workers;
    double *due_s; /* by worker: of the first thing to happen; infinite: none */
    uint64_t num_batches;
    uint64_t num_lost;
    uint64_t num_gaps;
    uint64_t num_resyncs;
};

kv_feed *kv_feed_open(const kv_feed_settings *settings)
{
    kv_feed *feed = calloc(1, sizeof *feed);
    if (feed == NULL)
        return NULL;
    bool is_ok = true;
    feed->settings = *settings;
    for (uint32_t t = 0; t < ROUTER_NUM_TIERS; t++) {
        feed->tiers[t] = block_index_open(t == ROUTER_SHARED ? 1 : settings->max_workers);
        is_ok = is_ok && feed->tiers[t] != NULL;
    }
    feed->workers = calloc(settings->max_workers, sizeof *feed->workers);
    feed->due_s = calloc(settings->max_workers, sizeof *feed->due_s);
    if (!is_ok || feed->workers == NULL || feed->due_s == NULL) {
        kv_feed_close(feed);
        return NULL;
    }
    for (uint32_t w = 0; w < settings->max_workers; w++)
        feed->due_s[w] = feed->workers[w].resync_due_s = INFINITY;
    return feed;
}

static void free_batches(worker_feed *w)
{
    while (w->first != NULL) {
        batch *next = w->first->next;
        free(w->first);
        w->first = next;
    }
    w->last = NULL;
}

void kv_feed_close(kv_feed *feed)
{
    if (feed == NULL)
        return;
    for (uint32_t t = 0; t < ROUTER_NUM_TIERS; t++)
        block_index_close(feed->tiers[t]);
    for (uint32_t w = 0; feed->workers != NULL && w < feed->settings.max_workers; w++)
        free_batches(&feed->workers[w]);
    free(feed->workers);
    free(feed->due_s);
    free(feed);
}

static bool apply(kv_feed *feed, uint32_t worker, router_tier tier, router_kv_kind kind,
                  const uint64_t *blocks, uint32_t num_blocks)
{
    block_index *index = feed->tiers[tier];
    uint32_t owner = tier == ROUTER_SHARED ? 0 : worker;
    if (kind == ROUTER_KV_CLEARED)
        block_index_drop_worker(index, owner);
    for (uint32_t i = 0; i < num_blocks && kind != ROUTER_KV_CLEARED; i++) {
        if (i + LOOK_AHEAD < num_blocks)
            block_index_fetch(index, blocks[i + LOOK_AHEAD]);
        block_change change = kind == ROUTER_KV_STORED
                                  ? block_index_add(index, blocks[i], owner)
                                  : block_index_remove(index, blocks[i], owner);
        if (change == BLOCK_NO_MEMORY)
            return false;
    }
    return true;
}

static bool is_lost(const kv_feed *feed, uint32_t worker, uint64_t number)
{
    uint64_t x = feed->settings.seed + worker * UINT64_C(0xd6e8feb86659fd93) + number;
    if (feed->settings.loss <= 0)
        return false;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53 < feed->settings.loss;
}

static void set_due(kv_feed *feed, uint32_t worker)
{
    const worker_feed *w = &feed->workers[worker];
    double batch_s = w->first == NULL ? INFINITY : w->first->due_s;
    feed->due_s[worker] = batch_s < w->resync_due_s ? batch_s : w->resync_due_s;
}

/* A batch arrives: a number that is not the expected one is a gap. */
static void hear(kv_feed *feed, uint32_t worker, uint64_t number, double now_s)
{
    worker_feed *w = &feed->workers[worker];
    if (number != w->expected) {
        feed->num_gaps++;
        if (feed->settings.resync_s > 0 && isinf(w->resync_due_s))
            w->resync_due_s = now_s + feed->settings.resync_s;
    }
    w->expected = number + 1;
}

bool kv_feed_event(kv_feed *feed, const router_kv_event *event)
{
    worker_feed *w = &feed->workers[event->worker];
    uint64_t number = w->num_sent++;
    feed->num_batches++;
    if (is_lost(feed, event->worker, number)) {
        feed->num_lost++;
        return true;
    }
    if (feed->settings.lag_s <= 0) {
        hear(feed, event->worker, number, event->time_s);
        set_due(feed, event->worker);
        return apply(feed, event->worker, event->tier, event->kind, event->blocks,
                     event->num_blocks);
    }
    batch *b = malloc(sizeof *b + event->num_blocks * sizeof *b->blocks);
    if (b == NULL)
        return false;
    *b = (batch){NULL,        event->time_s + feed->settings.lag_s,
                 number,      event->tier,
                 event->kind, event->num_blocks};
    if (event->num_blocks > 0)
        memcpy(b->blocks, event->blocks, event->num_blocks * sizeof *b->blocks);
    if (w->last == NULL)
        w->first = b;
    else
        w->last->next = b;
    w->last = b;
    set_due(feed, event->worker);
    return true;
}

void kv_feed_lose(kv_feed *feed, uint32_t worker)
{
    feed->workers[worker].num_sent++;
    feed->num_batches++;
    feed->num_lost++;
}

/* The worker's whole cache as it is now. Batches in flight are older. */
static bool resync(kv_feed *feed, uint32_t worker)
{
    worker_feed *w = &feed->workers[worker];
    w->resync_due_s = INFINITY;
    w->expected = w->num_sent;
    free_batches(w);
    feed->num_resyncs++;
    for (uint32_t t = 0; t < ROUTER_SHARED; t++)
        if (block_index_copy_worker(feed->tiers[t], feed->settings.truth->tiers[t], worker) ==
            BLOCK_NO_MEMORY)
            return false;
    return true;
}

static bool take_batch(kv_feed *feed, uint32_t worker)
{
    worker_feed *w = &feed->workers[worker];
    batch *b = w->first;
    w->first = b->next;
    if (w->first == NULL)
        w->last = NULL;
    hear(feed, worker, b->number, b->due_s);
    bool is_ok = apply(feed, worker, b->tier, b->kind, b->blocks, b->num_blocks);
    free(b);
    return is_ok;
}

bool kv_feed_advance(kv_feed *feed, double now_s)
{
    bool is_ok = true;
    for (uint32_t worker = 0; worker < feed->settings.max_workers; worker++) {
        worker_feed *w = &feed->workers[worker];
        while (feed->due_s[worker] <= now_s) {
            bool is_batch = w->first != NULL && w->first->due_s <= w->resync_due_s;
            is_ok = (is_batch ? take_batch(feed, worker) : resync(feed, worker)) && is_ok;
            set_due(feed, worker);
        }
    }
    return is_ok;
}

void kv_feed_drop_worker(kv_feed *feed, uint32_t worker)
{
    worker_feed *w = &feed->workers[worker];
    free_batches(w);
    w->resync_due_s = INFINITY;
    w->expected = w->num_sent;
    set_due(feed, worker);
    for (uint32_t t = 0; t < ROUTER_SHARED; t++)
        block_index_drop_worker(feed->tiers[t], worker);
}

const block_index *kv_feed_tier(const kv_feed *feed, router_tier tier)
{
    return feed->tiers[tier];
}

void kv_feed_count_events(const kv_feed *feed, router_view_stats *stats)
{
    stats->kv_batches += feed->num_batches;
    stats->kv_lost += feed->num_lost;
    stats->gaps += feed->num_gaps;
    stats->resyncs += feed->num_resyncs;
}

void kv_feed_count_index(const kv_feed *feed, router_view_stats *stats)
{
    for (uint32_t t = 0; t < ROUTER_NUM_TIERS; t++) {
        stats->index_blocks += block_index_pairs(feed->tiers[t]);
        stats->index_bytes += block_index_bytes(feed->tiers[t]);
    }
}

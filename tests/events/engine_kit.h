/* events/engine_kit.h - a small engine whose prefix cache has much to tell, and who listens to it.
 *
 *      engine_step     requests come, with prompts of few kinds: hits, copies of the same blocks,
 *                      evictions; now and then the whole cache is reset
 *      listener        a subscriber, and the index that it makes of what comes
 *      engine_equals   whether that index is the pool's own
 */
#ifndef EVENTS_ENGINE_KIT_H
#define EVENTS_ENGINE_KIT_H

#include "base/unit.h"

#include <quire.h>
#include <quire/events.h>

enum { ENGINE_BLOCK = 4, ENGINE_SEQS = 8, ENGINE_LEN = 96, ENGINE_PATIENCE_MS = 20000 };

typedef struct engine_options {
    uint32_t num_blocks;  /* 0 = 120 */
    uint32_t event_bytes; /* of the monitor's ring; 0 = 1 MiB */
    bool has_tokens;
    bool has_window; /* a second group, of a sliding window */
    bool has_wide;   /* blocks of the first group have twice as many tokens */
    bool has_states; /* a second group, of Mamba in align mode, with such blocks too */
    bool has_resets;
    uint64_t seed;
    quire_profile profile;
} engine_options;

typedef struct engine {
    engine_options options;
    uint64_t random;
    uint64_t num_added;
    quire_group_config groups[2];
    quire_monitor_config monitor_config;
    quire_hasher *hasher;
    quire_sched *sched;
    quire_monitor *monitor;
} engine;

static inline quire_publisher_stats engine_publisher_stats(const quire_publisher *publisher)
{
    quire_publisher_stats stats = QUIRE_PUBLISHER_STATS_INIT;
    assert_int_equal(quire_publisher_get_stats(publisher, &stats), QUIRE_OK);
    return stats;
}

void engine_open(engine *e, const engine_options *options);
void engine_close(engine *e);
void engine_step(engine *e);
/* One in which nobody comes: the cache settles, and walks go on. */
void engine_idle(engine *e);
void engine_run(engine *e, uint32_t num_steps);

typedef struct listener {
    quire_subscriber *subscriber;
    quire_index *index;
    uint64_t num_deliveries[QUIRE_DELIVERY_WHOLE + 1];
    uint64_t num_corrupt;
    bool has_passed_over; /* a batch that was none, so that the next number may be a later one */
    bool has_restarted;   /* then its next batch may have any number */
    uint64_t next;        /* number of the batch that must come next */
} listener;

/* config has the endpoints; copies: how the publisher tells, see quire_index_config. */
void listener_open(listener *l, const quire_subscriber_config *config, uint32_t count_copies);
void listener_close(listener *l);
/* Takes one delivery in, and checks its number; false: none within timeout_ms. */
bool listener_take(listener *l, int timeout_ms);
/* Listens until the index is the pool's, with idle steps where nothing comes; false: it does not
 * come to that. */
bool listener_follows(listener *l, engine *e);
/* The difference, in words, to stdout. */
void listener_show(const listener *l, const engine *e);

bool engine_equals(const engine *e, const quire_index *index);

/* Resident memory of this process, in KiB. */
uint64_t engine_rss_kib(void);
uint64_t engine_now_ms(void);

#endif

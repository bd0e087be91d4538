/* obs/monitor.h - the monitor's state, and what the scheduler tells it.
 *
 *      feed.[ch]        events, in a ring that nobody waits for
 *      metrics.[ch]     counters and histograms          residency.[ch]   the life of some blocks
 *      exposition.[ch]  metrics as text                  names.[ch]       ids of requests
 *      tiers.[ch]       how full each tier is            maps.[ch]        block maps of pools
 *      monitor.c        batches, walks, steps, readers
 *
 * Steps are kept in a ring as events are: claimed before they are written, counted when they can be
 * seen. The room knows nothing of the scheduler: sched/watch/tell.c brings what is told.
 */
#ifndef QR_OBS_MONITOR_H
#define QR_OBS_MONITOR_H

#include "base/arena.h"
#include "base/hooks.h"
#include "obs/feed.h"
#include "obs/maps.h"
#include "obs/names.h"
#include "obs/residency.h"

#include <quire/monitor.h>
#include <quire/pool.h>

/* What a monitor has to know of the scheduler that it is a part of. */
typedef struct qr_monitor_world {
    quire_monitor_info info;
    uint32_t max_requests;
    uint32_t max_model_len;
    uint32_t num_spec_tokens;
    bool enable_caching;
    uint32_t num_tiers; /* that the connector may have */
} qr_monitor_world;

enum { QR_STEP_WORDS = sizeof(quire_monitor_step) / 8 };
_Static_assert(sizeof(quire_monitor_step) % 8 == 0 && sizeof(quire_tier_step) % 8 == 0, "words");

struct quire_monitor {
    uint32_t magic;
    bool has_token_ids;
    bool has_events; /* in the batch being made */
    bool is_walking;
    quire_monitor_info info;
    quire_hooks hooks;
    bool shares_clock; /* its clock is the scheduler's: one look serves both */
    double (*wall_time)(void *user);
    void *wall_user;
    quire_watched_blocks watched[QUIRE_MAX_TIERS]; /* of each tier whose events are told; else no
                                                      get_key */
    quire_monitor_group *groups;                   /* the scheduler fills it in */

    qr_feed feed;
    uint64_t num_batches;

    qr_metrics metrics;
    qr_residency residency; /* lives is NULL where it is not followed */

    uint32_t walk_tier;       /* the pool that is being told, */
    uint32_t walk_next;       /* and its next block */
    uint64_t walk_number;     /* of the walk under way, or of the last one */
    quire_block *walk_blocks; /* of one record */
    unsigned char *walk_hashes;
    _Alignas(64) _Atomic uint64_t num_walks_asked;
    _Alignas(64) _Atomic uint32_t num_unfinished;
    _Alignas(64) _Atomic uint64_t num_late_reads; /* of all readers */
    uint64_t num_late_told;

    _Atomic uint64_t
        *steps; /* step_words each: tiers that the connector cannot have are left out */
    uint32_t step_words;
    uint64_t steps_mask;
    qr_names names; /* of the same steps */
    qr_maps maps;
    uint64_t update_ns;
    qr_versions step_versions; /* of steps and names */
};

#define QR_MONITOR_MAGIC UINT32_C(0x514d4f4e) /* "QMON" */

/* The config with its defaults filled in, or an error. */
int qr_monitor_config_read(quire_monitor_config *config, const quire_monitor_config *callers);
/* Of its feed: as the config says, or more where hashes are long. */
uint32_t qr_monitor_feed_words(const quire_monitor_config *config, const qr_monitor_world *world);
quire_monitor *qr_monitor_carve(qr_arena *arena, const quire_monitor_config *config,
                                const qr_monitor_world *world);
int qr_monitor_init(quire_monitor *monitor, const quire_monitor_config *config,
                    const qr_monitor_world *world, const quire_pool *pool);

static inline uint64_t qr_monitor_now(const quire_monitor *monitor)
{
    return qr_now_ns(&monitor->hooks);
}

/* The place of the tier of this name; false: there is none. */
bool qr_monitor_watch_pool(quire_monitor *monitor, const char *name, const quire_pool *pool,
                           uint32_t *tier);
/* A tier of the connector; false: it is none. */
bool qr_monitor_watch_blocks(quire_monitor *monitor, uint32_t tier,
                             const quire_watched_blocks *blocks);
/* The tier of this name; false: there is none. */
bool qr_monitor_find_tier(const quire_monitor *monitor, const char *name, uint32_t *tier);
/* What the pool of a tier did. */
void qr_monitor_tell_event(quire_monitor *monitor, uint32_t tier, const quire_event *event);
/* Of the batch being made. */
void qr_monitor_add_event(quire_monitor *monitor, const qr_feed_entry *entry);
/* Ends the batch, goes on with a walk, and lets others see it. */
void qr_monitor_end_batch(quire_monitor *monitor);
void qr_monitor_add_step(quire_monitor *monitor, const quire_monitor_step *step);
/* Before it, where names are kept: the place of the step to come. */
uint64_t qr_monitor_claim_step(quire_monitor *monitor);

/* Any thread. */
/* The last step; how many there have been. 0: none. */
uint64_t qr_monitor_last_step(const quire_monitor *monitor, quire_monitor_step *step);
uint32_t qr_monitor_get_steps(const quire_monitor *monitor, uint64_t after,
                              quire_monitor_step *steps, uint32_t capacity);
int qr_monitor_get_names(const quire_monitor *monitor, uint64_t step, quire_step_names *names,
                         quire_name *list);

#endif

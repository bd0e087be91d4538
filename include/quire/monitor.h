/* quire/monitor.h - what other threads read while a scheduler runs: events, steps, metrics.
 *
 *      scheduler's thread                                         other threads
 *      schedule, update ──► events   [ .. | stored | removed | .. ]  ──► readers, each at its place
 *                       ──► steps    [ .. | step 7 | step 8 | .. ]   ──► quire_monitor_get_steps
 *                       ──► metrics  counters, histograms           ──► quire_monitor_write_metrics
 *                       ──► maps     states of blocks               ──► quire_monitor_get_map
 *
 * monitor   a part of a scheduler: created with it if quire_sched_config.monitor is set, and
 *           destroyed with it. Other threads must stop using the monitor before
 *           quire_sched_destroy.
 * event     a change of the prefix cache. All events of one update become visible together, and
 *           QUIRE_FEED_BATCH ends them: these are the batches in which vLLM publishes its events.
 * reader    reads the events in order. The scheduler never waits for a reader: events that a reader
 *           has not read are overwritten when the ring needs room, and the reader gets QUIRE_LOST.
 * walk      makes the copy of a reader complete again. Over the next steps each block that has a
 *           key is reported as QUIRE_FEED_PRESENT, some hundred blocks in each step, between the
 *           new events; QUIRE_FEED_WALKED ends the walk. If a reader starts with an empty copy when
 *           it asks for the walk, and keeps the last report of each block, then its copy equals the
 *           pool at the end of the walk.
 *
 * If token_ids is off, no event contains token ids, cache salts or identifiers of features.
 *
 * Cost: a step does not allocate, lock or make a system call for the monitor (the clock is read
 * without a system call). A stored block uses the bytes of its hash and tokens plus about 16 bytes
 * in the ring.
 *
 * Threads: the scheduler's thread writes events. One thread at a time may use a reader. Any thread
 * may call the other functions, unless their comment names the scheduler's thread.
 */
#ifndef QUIRE_MONITOR_H
#define QUIRE_MONITOR_H

#include "cache.h"
#include "config.h"
#include "error.h"
#include "hash.h"
#include "memory.h"
#include "observe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_monitor quire_monitor;

typedef struct quire_monitor_config {
    size_t size;
    /* Bytes of the event ring, rounded up to a power of two; 0 = 8 MiB, at most 1 GiB. An event
     * that needs more than a quarter of the ring is lost. */
    uint32_t event_bytes;
    quire_switch token_ids; /* default off */
    uint32_t num_steps;     /* number of steps kept, rounded up to a power of two; 0 = 4,096 */
    quire_switch residency; /* follow the lives of some blocks; default on */
    double sample_rate;     /* of residency: part of the allocated blocks; 0 = 0.01; at most 1 */

    /* Seconds since 1970, for the time of a batch; NULL: CLOCK_REALTIME */
    double (*wall_time)(void *user);
    void *wall_user;
    /* The clock measures the duration of schedule and update; the random bytes choose the sampled
     * blocks. The times of requests and blocks come from the scheduler's own clock. */
    quire_hooks hooks;
    /* With each step, keep the ids of at most num_names running requests and as many waiting
     * requests: quire_monitor_get_names, /snapshot. This needs 128 bytes x num_names for each step.
     * 0: no ids; at most 256. */
    uint32_t num_names;
    /* Milliseconds, by the clock in hooks, between two block maps of the GPU's pool and of the host
     * pool: quire_monitor_get_map, /blocks. The maps need 256 KiB. 0: no maps; at most
     * 3,600,000. */
    uint32_t map_ms;
} quire_monitor_config;

#define QUIRE_MONITOR_CONFIG_INIT QUIRE_SIZED_INIT(quire_monitor_config)

/* ---- events ------------------------------------------------------------- */

typedef enum quire_feed_kind {
    QUIRE_FEED_STORED = 1,  /* as in quire/pool.h: blocks got their keys */
    QUIRE_FEED_REMOVED = 2, /* a block lost its key */
    QUIRE_FEED_CLEARED = 3, /* all blocks lost their keys */
    QUIRE_FEED_PRESENT = 4, /* from a walk: these blocks have these keys */
    QUIRE_FEED_WALKED = 5,  /* the walk with this number, and all earlier walks, are complete */
    QUIRE_FEED_BATCH = 6    /* ends the events of one update */
} quire_feed_kind;

/* An extra key of one block. */
typedef struct quire_feed_key { /* final */
    uint32_t place;             /* index of the block in blocks */
    quire_extra_key key;
} quire_feed_key;

typedef struct quire_feed_event {
    size_t size;
    quire_feed_kind kind;
    uint32_t group_id; /* STORED, REMOVED and PRESENT */

    /* REMOVED: one block. PRESENT: any blocks of one group, without parent and tokens. STORED: the
     * blocks of one request from first_block on; null blocks among them were skipped, but have
     * their hash and tokens here too. */
    const quire_block *blocks;
    uint32_t num_blocks;
    uint32_t first_block;
    const unsigned char *hashes; /* hash_bytes bytes for each block */
    uint32_t hash_bytes;
    quire_bytes parent;    /* hash of the block before the first; absent if first_block is 0 */
    uint32_t block_size;   /* STORED and PRESENT: tokens in a block */
    uint32_t still_cached; /* REMOVED: 1 if another block has the same key */

    const quire_token *tokens; /* num_blocks x block_size; NULL with token_ids off */
    uint32_t num_tokens;
    uint32_t lora_id; /* 0: no adapter */
    quire_bytes lora_name;
    /* Features and salts, ordered by place; empty with token_ids off. The LoRA name, which all
     * blocks have, and the digests of embedded prompts are not in this list. */
    const quire_feed_key *keys;
    uint32_t num_keys;

    /* BATCH: number of the batch, from 0 on, without gaps; WALKED: number of the walk. */
    uint64_t number;
    double time; /* BATCH: wall_time at the end of the update */

    /* STORED, REMOVED, CLEARED and PRESENT: the tier of the blocks, an index of
     * quire_monitor_get_tiers; 0: the GPU. */
    uint32_t tier;
    const char *medium; /* the medium of this tier */
} quire_feed_event;

#define QUIRE_FEED_EVENT_INIT QUIRE_SIZED_INIT(quire_feed_event)

typedef struct quire_reader quire_reader;

/* Creates a reader that begins after the last batch; use a walk for the state before. The reader
 * allocates its memory here: half as much as the ring. Returns QUIRE_E_NOMEM, or QUIRE_E_ARGUMENT
 * if a pointer is NULL. Any thread. */
QUIRE_API int quire_reader_create(quire_monitor *monitor, const quire_allocator *allocator,
                                  quire_reader **reader);
/* Frees the reader. NULL: does nothing. */
QUIRE_API void quire_reader_destroy(quire_reader *reader);

/* Reads the next event; its pointers are valid until the next call. Returns QUIRE_RETRY if there is
 * no new event. Returns QUIRE_LOST if events were overwritten, or did not fit in the ring, before
 * this reader read them; the next call continues with the events that follow. */
QUIRE_API int quire_reader_next(quire_reader *reader, quire_feed_event *event);

/* For a connector that keeps blocks in its own pool, with the same groups: the pool is drawn in the
 * block maps (map_ms) as the connector's tier of this name, in place of the pool that was given for
 * this tier before. If tier is not NULL, events and walks report the pool too, and *tier is the
 * index of the tier. Call this on the scheduler's thread before readers are created;
 * quire_offload_bind calls it for the host pool, which must live as long as the scheduler makes
 * steps. Returns QUIRE_MISS if no tier has this name; if tier is NULL, also QUIRE_E_DISABLED
 * without map_ms, and QUIRE_FULL if QUIRE_MAX_MAPS other pools are drawn. */
QUIRE_API int quire_monitor_watch_pool(quire_monitor *monitor, const char *name,
                                       const quire_pool *pool, uint32_t *tier);
/* The same for a connector's tier that is not a pool: tier is an index of quire_monitor_get_tiers.
 * Returns QUIRE_E_RANGE if the connector has no such tier, QUIRE_E_ARGUMENT if get_key is NULL or
 * num_blocks is 0. */
typedef struct quire_watched_blocks {
    size_t size;
    void *user;
    uint32_t num_blocks; /* block numbers are below num_blocks; number 0 is not a block */
    /* Writes the key of a block, which is valid until the tier changes. Returns QUIRE_MISS if the
     * block has no key. Walks call it on the scheduler's thread. */
    int (*get_key)(void *user, quire_block block, quire_bytes *hash, uint32_t *group_id);
} quire_watched_blocks;

#define QUIRE_WATCHED_BLOCKS_INIT QUIRE_SIZED_INIT(quire_watched_blocks)

QUIRE_API int quire_monitor_watch_blocks(quire_monitor *monitor, uint32_t tier,
                                         const quire_watched_blocks *blocks);
/* Reports a change of such a pool or tier; on the scheduler's thread. Readers see the event with
 * the batch of the next update. Returns QUIRE_E_RANGE if the tier is not watched. */
QUIRE_API int quire_monitor_tell_event(quire_monitor *monitor, uint32_t tier,
                                       const quire_event *event);

/* Asks for a walk and returns its number; 0 if monitor is NULL. The walk begins with the next step
 * and needs about num_blocks / 256 steps. Any thread. */
QUIRE_API uint64_t quire_monitor_ask_walk(quire_monitor *monitor);

/* ---- steps -------------------------------------------------------------- */

/* A tier of the connector in one step: see quire_tier_usage. */
typedef struct quire_tier_step { /* final */
    uint64_t total;
    uint64_t empty;
    uint64_t cached;
    uint64_t active;
    uint64_t pinned;
    uint64_t stored_blocks; /* since the start */
    uint64_t loaded_blocks;
    uint64_t hit_tokens;
    uint64_t failed_blocks;
} quire_tier_step;

/* The numbers of a step (quire_snapshot of quire/observe.h) and its duration. quire_monitor_config
 * names the two clocks. */
typedef struct quire_monitor_step {
    size_t size;
    uint64_t step;
    uint64_t time_ns; /* scheduler's clock at the end of schedule */
    uint32_t num_running;
    uint32_t num_waiting;
    uint32_t num_skipped;
    uint32_t num_scheduled;
    uint32_t num_new;
    uint32_t num_resumed;
    uint32_t num_preempted;
    uint32_t num_finished;
    uint32_t num_tokens;
    uint32_t num_prefill_tokens;
    uint32_t num_draft_tokens;
    uint32_t num_query_tokens; /* prompt tokens of requests admitted in this step */
    uint32_t num_hit_tokens;   /* of them: tokens in the prefix cache */
    uint32_t num_external_tokens;
    uint32_t num_empty; /* blocks */
    uint32_t num_cached;
    uint32_t num_active;
    uint32_t num_swap_slots;    /* slots of the host buffer in use */
    uint64_t schedule_ns;       /* duration of this schedule */
    uint64_t update_ns;         /* duration of the last update before it */
    uint32_t num_pinned;        /* finished requests whose blocks a pin keeps */
    uint32_t num_pinned_blocks; /* different blocks that pins keep; included in num_active */
    /* Tiers of the connector: the tiers of quire_monitor_get_tiers after the GPU and the swap
     * buffer, in the same order. */
    uint32_t num_tiers;
    quire_tier_step tiers[QUIRE_CONNECTOR_TIERS];
} quire_monitor_step;

#define QUIRE_MONITOR_STEP_INIT QUIRE_SIZED_INIT(quire_monitor_step)

/* Copies the oldest steps after step number `after` that are still kept, in order; if `after` is
 * UINT64_MAX, the last step. Returns how many. Set the size of steps[0]: all elements have this
 * size. */
QUIRE_API uint32_t quire_monitor_get_steps(const quire_monitor *monitor, uint64_t after,
                                           quire_monitor_step *steps, uint32_t capacity);
/* Copies the last step. Returns QUIRE_MISS before the first step. */
static inline int quire_monitor_get_last_step(const quire_monitor *monitor,
                                              quire_monitor_step *step)
{
    if (monitor == NULL || step == NULL)
        return QUIRE_E_ARGUMENT;
    return quire_monitor_get_steps(monitor, UINT64_MAX, step, 1) == 1 ? QUIRE_OK : QUIRE_MISS;
}

/* ---- who ran and waited --------------------------------------------------- */

#define QUIRE_NAME_BYTES 60

/* The id of a request. */
typedef struct quire_name { /* final */
    uint32_t bytes;         /* length of the id; text has its first QUIRE_NAME_BYTES bytes */
    char text[QUIRE_NAME_BYTES];
} quire_name;

typedef struct quire_step_names {
    size_t size;
    uint64_t step;
    uint32_t num_running;      /* listed ids of requests that run */
    uint32_t num_more_running; /* running requests that are not listed */
    /* Listed ids of waiting requests, in the order of service; requests that wait for a grammar, a
     * load or a connector come last. */
    uint32_t num_waiting;
    uint32_t num_more_waiting; /* waiting requests that are not listed */
} quire_step_names;

#define QUIRE_STEP_NAMES_INIT QUIRE_SIZED_INIT(quire_step_names)

/* The ids of the requests of a kept step, at the end of its schedule: first the running requests,
 * then the waiting requests. Returns QUIRE_MISS if the step is no longer kept or does not exist
 * yet, QUIRE_E_TOO_SMALL if capacity is below 2 x num_names, QUIRE_E_DISABLED if num_names is 0.
 * Any thread. */
QUIRE_API int quire_monitor_get_names(const quire_monitor *monitor, uint64_t step,
                                      quire_step_names *names, quire_name *list, uint32_t capacity);

/* ---- block maps ------------------------------------------------------------ */

#define QUIRE_MAX_MAPS  2    /* the GPU's pool, and one of the connector */
#define QUIRE_MAP_CELLS 4096 /* of a map, at most */

/* The numbers of blocks in each state, of blocks that follow each other in the pool. The null block
 * is in the first cell and is not counted. */
typedef struct quire_map_cell { /* final */
    uint32_t empty;
    uint32_t cached;
    uint32_t active;
    uint32_t pinned; /* active blocks that a pin keeps; active counts them too */
} quire_map_cell;

/* The states of all blocks of a pool.
 *
 * With map_ms, a map is drawn at the end of schedule when map_ms have passed since the last drawing
 * began. A step draws at most 8,192 blocks of one pool: a larger pool takes several steps, and the
 * pools take turns. A map that was drawn in one step (first_step == last_step) agrees with the
 * numbers of that step: the sums of its cells are the tier's empty, cached, active and pinned
 * blocks. In a map that took several steps each block is as it was in one of them, and all cells
 * together still have num_blocks - 1 blocks.
 *
 * When no request runs or waits after an update, no step may come for long: the update then draws
 * each pool of at most 65,536 blocks again, whole, if the pool has changed. The drawing of a larger
 * pool continues with the next step. */
typedef struct quire_block_map {
    size_t size;
    const char *name;         /* of the tier, as in quire_monitor_get_tiers */
    const char *medium;       /* valid while the monitor lives */
    uint64_t first_step;      /* the step in which the drawing began */
    uint64_t last_step;       /* the step in which the drawing ended */
    uint32_t is_after_update; /* 1: it ended with the update of last_step; 0: with the schedule */
    uint32_t num_blocks;      /* the null block included */
    uint32_t cell_blocks;     /* blocks of a cell; the last cell may have fewer */
    uint32_t num_cells;
} quire_block_map;

#define QUIRE_BLOCK_MAP_INIT QUIRE_SIZED_INIT(quire_block_map)

/* Copies the last map of the GPU's pool (map 0) or of the connector's pool (map 1). QUIRE_MISS:
 * there is no such pool, or it is not drawn yet. QUIRE_E_RANGE: map is not below QUIRE_MAX_MAPS.
 * QUIRE_E_TOO_SMALL: capacity is below QUIRE_MAP_CELLS. QUIRE_E_DISABLED: map_ms is 0. Any thread;
 * the scheduler never waits for it. */
QUIRE_API int quire_monitor_get_map(const quire_monitor *monitor, uint32_t map,
                                    quire_block_map *block_map, quire_map_cell *cells,
                                    uint32_t capacity);

/* The number of running and waiting requests, after the last call that changed the scheduler. Any
 * thread. */
QUIRE_API uint32_t quire_monitor_get_num_unfinished(const quire_monitor *monitor);

/* All tiers at the end of the last schedule or update: the GPU, the swap buffer if there is one,
 * then the tiers of the connector. The numbers belong to one moment, and in each tier empty,
 * cached, active and null blocks add up to the total. The names are distinct and valid as long as
 * the monitor. Writes at most `capacity` tiers, and returns the number of tiers. Any thread. */
QUIRE_API uint32_t quire_monitor_get_tiers(const quire_monitor *monitor, quire_tier_usage *tiers,
                                           uint32_t capacity);

/* A group of the scheduler. */
typedef struct quire_monitor_group { /* final */
    quire_layer_kind kind;
    uint32_t block_size;     /* tokens in a block, over all context-parallel ranks */
    uint32_t sliding_window; /* tokens; 0 for kinds without a window */
} quire_monitor_group;

/* Constants of the scheduler that the monitor belongs to. quire_monitor_get_info returns NULL if
 * monitor is NULL. Valid as long as the monitor. */
typedef struct quire_monitor_info { /* lent */
    uint32_t num_blocks;            /* with the null block */
    uint32_t num_groups;
    uint32_t hash_bytes;     /* of the longest key */
    uint32_t block_size;     /* tokens under one hash */
    uint32_t num_swap_slots; /* of the host buffer */
    uint32_t max_num_seqs;
    uint32_t has_token_ids; /* 1: events have token ids */
    /* 1: blocks had keys before the first step: the scheduler was restored, or a watched tier was
     * not empty. */
    uint32_t has_content;
    /* For each tier whose events are reported: its blocks, with the null block. 0: no events. */
    uint32_t tier_blocks[QUIRE_MAX_TIERS];
    uint32_t num_names; /* of the config */
    uint32_t map_ms;    /* of the config */
    quire_profile profile;
    const quire_monitor_group *groups; /* num_groups elements */
} quire_monitor_info;

QUIRE_API const quire_monitor_info *quire_monitor_get_info(const quire_monitor *monitor);

/* ---- metrics ------------------------------------------------------------ */

typedef enum quire_metrics_names {
    QUIRE_NAMES_BOTH = 0,
    QUIRE_NAMES_QUIRE = 1, /* quire_... */
    QUIRE_NAMES_VLLM = 2   /* vllm:..., the names of vLLM 0.20.0 for the same metrics */
} quire_metrics_names;

typedef struct quire_metrics_format {
    size_t size;
    quire_metrics_names names;
    uint32_t is_openmetrics; /* 0: Prometheus text 0.0.4; 1: OpenMetrics 1.0.0 */
    const char *model_name;  /* label; NULL = "" */
    const char *engine;      /* label; NULL = "0" */
} quire_metrics_format;

#define QUIRE_METRICS_FORMAT_INIT QUIRE_SIZED_INIT(quire_metrics_format)

/* Writes all metrics as text that ends with a zero byte; *written is its length without the zero
 * byte. If bytes is too small, returns QUIRE_E_TOO_SMALL, and *written is the number of bytes
 * needed (retry with some more: numbers grow). text may be NULL if bytes is 0. format may be NULL:
 * both names, Prometheus text, model_name "". Returns QUIRE_E_CONFIG if format is invalid. Any
 * thread. */
QUIRE_API int quire_monitor_write_metrics(const quire_monitor *monitor,
                                          const quire_metrics_format *format, char *text,
                                          size_t bytes, size_t *written);

#ifdef __cplusplus
}
#endif
#endif

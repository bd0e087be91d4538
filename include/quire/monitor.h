/* quire/monitor.h - what other threads see of a scheduler while it runs.
 *
 *      scheduler's thread                                         other threads
 *      schedule, update ──► events   [ .. | stored | removed | .. ]  ──► readers, each at its place
 *                       ──► steps    [ .. | step 7 | step 8 | .. ]   ──► quire_monitor_get_steps
 *                       ──► metrics  counters, histograms           ──► quire_monitor_write_metrics
 *
 * monitor   a part of a scheduler, made with it when quire_sched_config.monitor is set, and gone
 *           with it: whoever looks must stop before quire_sched_destroy.
 * event     something that the prefix cache did. All of one update become visible together, and
 *           QUIRE_FEED_BATCH ends them: the same batches in which vLLM publishes its events.
 * reader    goes through the events. The scheduler never waits for one: what a reader has not read
 *           when the room is needed is overwritten, and the reader is told (QUIRE_LOST).
 * walk      makes a reader's picture whole again: over the next steps each block that has a key is
 *           told as QUIRE_FEED_PRESENT, some hundred a step, between what happens meanwhile;
 *           QUIRE_FEED_WALKED ends it. A picture that notes for each block the last that was told
 *           of it, and began empty when the walk was asked for, then is the pool's.
 *
 * Token ids, cache salts and features' identifiers are in no event unless token_ids is on.
 *
 * Cost: nothing is allocated, locked or asked of the system in a step (the clock is read without a
 * system call); a block that is stored takes about its hash, tokens and 16 bytes of the ring.
 *
 * Threads: events are written by the scheduler's thread. A reader belongs to one thread at a time;
 * the other functions may be called by any.
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
    uint32_t event_bytes;   /* ring of events, rounded up to a power of two; 0 = 8 MiB, at most
                               1 GiB. An event that takes more than a quarter is lost */
    quire_switch token_ids; /* default off */
    uint32_t num_steps;     /* steps that are kept, rounded up to a power of two; 0 = 4,096 */
    quire_switch residency; /* follow the life of some blocks; default on */
    double sample_rate; /* of residency: how many of the blocks handed out; 0 = 0.01; at most 1 */

    /* Seconds since 1970, the time of a batch; NULL: CLOCK_REALTIME */
    double (*wall_time)(void *user);
    void *wall_user;
    /* Its clock measures what schedule and update take, its random bytes choose what is sampled.
     * Times of requests and blocks are of the scheduler's own clock. */
    quire_hooks hooks;
    /* The ids of at most so many requests that run, and of as many that wait, are kept with each
     * step: quire_monitor_get_names, /snapshot. They take 128 bytes x num_names of each step. 0:
     * none; at most 256 */
    uint32_t num_names;
} quire_monitor_config;

#define QUIRE_MONITOR_CONFIG_INIT QUIRE_SIZED_INIT(quire_monitor_config)

/* ---- events ------------------------------------------------------------- */

typedef enum quire_feed_kind {
    QUIRE_FEED_STORED = 1,  /* as in quire/pool.h: blocks got their keys */
    QUIRE_FEED_REMOVED = 2, /* a block lost its key */
    QUIRE_FEED_CLEARED = 3, /* all blocks lost their keys */
    QUIRE_FEED_PRESENT = 4, /* of a walk: these blocks have these keys */
    QUIRE_FEED_WALKED = 5,  /* the walk of this number, and those before, are complete */
    QUIRE_FEED_BATCH = 6    /* the events since the last BATCH are those of one update */
} quire_feed_kind;

/* An extra key of one block. */
typedef struct quire_feed_key {
    uint32_t place; /* of the block in blocks */
    quire_extra_key key;
} quire_feed_key;

typedef struct quire_feed_event {
    quire_feed_kind kind;
    uint32_t group_id; /* of STORED, REMOVED and PRESENT */

    /* One block: REMOVED. PRESENT: any, of one group, without parent and tokens. STORED: those from
     * first_block on of one request; null blocks among them were skipped, but have their hash and
     * tokens here too. */
    const quire_block *blocks;
    uint32_t num_blocks;
    uint32_t first_block;
    const unsigned char *hashes; /* hash_bytes for each block */
    uint32_t hash_bytes;
    quire_bytes parent;    /* hash before the first; absent when first_block is 0 */
    uint32_t block_size;   /* tokens in a block; STORED and PRESENT */
    uint32_t still_cached; /* REMOVED: 1 when another block has the same key */

    const quire_token *tokens; /* num_blocks x block_size; NULL with token_ids off */
    uint32_t num_tokens;
    uint32_t lora_id; /* 0: no adapter */
    quire_bytes lora_name;
    const quire_feed_key
        *keys; /* features and salts, ordered by place; none with token_ids off. The
                                   LoRA name, which all blocks have, and the digests of prompts of
                                   embeddings are not among them */
    uint32_t num_keys;

    uint64_t number; /* BATCH: from 0 on, gap-free; WALKED: of the walk */
    double time;     /* BATCH: wall_time at the end of the update */

    uint32_t tier;      /* of STORED, REMOVED, CLEARED and PRESENT: whose blocks these are, a place
                           in quire_monitor_get_tiers; 0: the GPU's */
    const char *medium; /* of that tier */
} quire_feed_event;

typedef struct quire_reader quire_reader;

/* A reader that begins behind the last batch: what there was before, a walk tells. Takes its memory
 * at once, half as much as the ring. */
QUIRE_API int quire_reader_create(quire_monitor *monitor, const quire_allocator *allocator,
                                  quire_reader **reader);
/* NULL is fine. */
QUIRE_API void quire_reader_destroy(quire_reader *reader);

/* The next event; its pointers are valid until the next call. QUIRE_RETRY: nothing new.
 * QUIRE_LOST: events were overwritten, or did not fit, before this reader came to them; it goes on
 * with those that come. */
QUIRE_API int quire_reader_next(quire_reader *reader, quire_feed_event *event);

/* For connectors that keep blocks in a pool of their own, of the same groups: events and walks tell
 * of that pool too, as the connector's tier of this name. Its place among the tiers is given back.
 * The scheduler's thread, before readers are made; quire_offload_bind does it for the host pool.
 * QUIRE_MISS: there is no such tier. */
QUIRE_API int quire_monitor_watch_pool(quire_monitor *monitor, const char *name,
                                       const quire_pool *pool, uint32_t *tier);
/* The same for a connector's tier that is no pool: tier is a place in quire_monitor_get_tiers.
 * QUIRE_E_RANGE: there is no such tier of the connector. */
typedef struct quire_watched_blocks {
    void *user;
    uint32_t num_blocks; /* numbers are below this; 0 is no block */
    /* The key of a block, valid until the tier changes; QUIRE_MISS: it has none. For walks, on the
     * scheduler's thread. */
    int (*get_key)(void *user, quire_block block, quire_bytes *hash, uint32_t *group_id);
} quire_watched_blocks;

QUIRE_API int quire_monitor_watch_blocks(quire_monitor *monitor, uint32_t tier,
                                         const quire_watched_blocks *blocks);
/* What such a pool or tier did; the scheduler's thread. It is told with the batch of the next
 * update. QUIRE_E_RANGE: the tier is not watched. */
QUIRE_API int quire_monitor_tell_event(quire_monitor *monitor, uint32_t tier,
                                       const quire_event *event);

/* Asks for a walk; its number is given back. It begins with the next step, and needs steps to go
 * on: about num_blocks / 256 of them. Any thread. */
QUIRE_API uint64_t quire_monitor_ask_walk(quire_monitor *monitor);

/* ---- steps -------------------------------------------------------------- */

/* A tier of the connector in one step: as quire_tier_usage. */
typedef struct quire_tier_step {
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

/* A step in numbers, as quire_snapshot of quire/sched.h, and what it cost. Times of the two clocks
 * that quire_monitor_config names. */
typedef struct quire_monitor_step {
    uint64_t step;
    uint64_t time_ns; /* of the scheduler's clock, at the end of schedule */
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
    uint32_t num_query_tokens; /* prompt tokens of requests admitted in this step, of which */
    uint32_t num_hit_tokens;   /* were in the prefix cache */
    uint32_t num_external_tokens;
    uint32_t num_empty; /* blocks */
    uint32_t num_cached;
    uint32_t num_active;
    uint32_t num_swap_slots;    /* of the host buffer, in use */
    uint64_t schedule_ns;       /* this schedule, and */
    uint64_t update_ns;         /* the last update before it took */
    uint32_t num_pinned;        /* requests that have ended and whose blocks are kept, */
    uint32_t num_pinned_blocks; /* so many different ones: a part of num_active */
    uint32_t num_tiers;         /* of the connector: those of quire_monitor_get_tiers behind the GPU
                                   and the swap buffer, in the same order */
    quire_tier_step tiers[QUIRE_CONNECTOR_TIERS];
} quire_monitor_step;

/* Copies the oldest steps after `after` that are still there, in order; returns how many. */
QUIRE_API uint32_t quire_monitor_get_steps(const quire_monitor *monitor, uint64_t after,
                                           quire_monitor_step *steps, uint32_t capacity);
/* The last one; QUIRE_MISS before the first. */
QUIRE_API int quire_monitor_last_step(const quire_monitor *monitor, quire_monitor_step *step);

/* ---- who ran and waited --------------------------------------------------- */

#define QUIRE_NAME_BYTES 60

/* The id of a request. */
typedef struct quire_name {
    uint32_t bytes; /* of the id; text has the first QUIRE_NAME_BYTES of them */
    char text[QUIRE_NAME_BYTES];
} quire_name;

typedef struct quire_step_names {
    uint64_t step;
    uint32_t num_running; /* ids that are listed, and requests that ran in this step, or could */
    uint32_t num_more_running; /* have, and are left out */
    uint32_t num_waiting; /* the same of those that waited: the next to be served first, those */
    uint32_t num_more_waiting; /* that are held up last */
} quire_step_names;

/* The ids of a step that is kept, at the end of its schedule: in list those that run, then those
 * that wait. QUIRE_MISS: the step is not kept any more, or not yet there. QUIRE_E_TOO_SMALL:
 * capacity is below 2 x num_names. QUIRE_E_DISABLED: the monitor's num_names is 0. Any thread. */
QUIRE_API int quire_monitor_get_names(const quire_monitor *monitor, uint64_t step,
                                      quire_step_names *names, quire_name *list, uint32_t capacity);

/* Requests that run or wait, as of the last call of the scheduler that changed it. */
QUIRE_API uint32_t quire_monitor_num_unfinished(const quire_monitor *monitor);

/* All tiers as they stood at the end of the last schedule or update: the GPU, the swap buffer where
 * there is one, then those of the connector. The tiers are of one moment, and each is consistent:
 * its empty, cached, active and null blocks are its total. Names are distinct, and stay valid while
 * the monitor lives. Returns how many there are; writes at most `capacity`. Any thread. */
QUIRE_API uint32_t quire_monitor_get_tiers(const quire_monitor *monitor, quire_tier_usage *tiers,
                                           uint32_t capacity);

/* What the monitor watches; never changes. */
typedef struct quire_monitor_info {
    uint32_t num_blocks; /* the null block included */
    uint32_t num_groups;
    uint32_t hash_bytes;     /* of the longest key */
    uint32_t block_size;     /* of a hash */
    uint32_t num_swap_slots; /* of the host buffer */
    uint32_t max_num_seqs;
    uint32_t has_token_ids; /* whether events have them */
    uint32_t has_content;   /* blocks had keys before the first step: it was restored, or a tier
                               that is watched was not empty */
    /* Of each tier whose events are told: its blocks, the null block included; 0: none are told */
    uint32_t tier_blocks[QUIRE_MAX_TIERS];
    uint32_t num_names; /* of the config */
} quire_monitor_info;

QUIRE_API quire_monitor_info quire_monitor_get_info(const quire_monitor *monitor);

/* ---- metrics ------------------------------------------------------------ */

typedef enum quire_metrics_names {
    QUIRE_NAMES_BOTH = 0,
    QUIRE_NAMES_QUIRE = 1, /* quire_... */
    QUIRE_NAMES_VLLM = 2   /* vllm:..., as vLLM 0.20.0 names the same things */
} quire_metrics_names;

typedef struct quire_metrics_format {
    size_t size;
    quire_metrics_names names;
    uint32_t is_openmetrics; /* 0: Prometheus text 0.0.4; 1: OpenMetrics 1.0.0 */
    const char *model_name;  /* labels; NULL: "" and */
    const char *engine;      /* "0" */
} quire_metrics_format;

#define QUIRE_METRICS_FORMAT_INIT QUIRE_SIZED_INIT(quire_metrics_format)

/* Writes all metrics as text that ends with a zero byte; *written counts without it. With
 * QUIRE_E_TOO_SMALL, *written says how many bytes are needed (ask again with some more: numbers
 * grow). text may be NULL with bytes 0; format may be NULL: both names, Prometheus text, model_name
 * "". */
QUIRE_API int quire_monitor_write_metrics(const quire_monitor *monitor,
                                          const quire_metrics_format *format, char *text,
                                          size_t bytes, size_t *written);

#ifdef __cplusplus
}
#endif
#endif

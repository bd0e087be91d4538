/* events/test_index_follows.c - a router's index follows the pool, in many random worlds.
 *
 *      sched/sim/sim.h ──► scheduler ──► monitor ──► reader ──► batch as bytes ──► index
 *                          └── pool ────────── the same, after every update? ────┘
 *
 * The worlds are those of sched_sim, linked so that making, updating and destroying a scheduler
 * come here first (--wrap). A seed takes one of four ways:
 *
 *      copies   each block is told, and the index counts them, as with vLLM 0.20.0
 *      keys     what is removed while another block has the key is not told: Quire's default
 *      losses   a ring so small, and read so rarely, that events are lost; a walk makes the picture
 *               whole again, and then it must be the pool's
 *      batches  what a publisher sends, in either form and manner, with and without losses
 *
 *      program [--seeds N] [--steps M] [--first SEED]
 */
#include "sched/sim/sim.h"

#include "events/index_kit.h"
#include "events/publish/batches.h"
#include "events/publish/feed_wire.h"
#include "model/plain.h"

#include <inttypes.h>

#if defined(MODEL_SLOW)
enum { SEEDS = 120, STEPS = 150 };
#else
enum { SEEDS = 400, STEPS = 150 };
#endif
enum {
    WAY_COPIES = 0,
    WAY_KEYS = 1,
    WAY_LOSSES = 2,
    WAY_BATCHES = 3,
    NUM_WAYS = 4,
    WORKER = 3,
    MOST_BLOCKS = 2048,
    MOST_HASH_BYTES = 32,
    SMALL_RING = 16 << 10,
    LARGE_RING = 1 << 20,
    RARELY = 60, /* updates between two looks, at most */
    SEEDS_THAT_SEE_ALL = 60
};

int __real_quire_sched_create(const quire_sched_config *config, const quire_allocator *allocator,
                              quire_sched **sched);
int __wrap_quire_sched_create(const quire_sched_config *config, const quire_allocator *allocator,
                              quire_sched **sched);
void __real_quire_sched_destroy(quire_sched *sched);
void __wrap_quire_sched_destroy(quire_sched *sched);
int __real_quire_sched_update(quire_sched *sched, uint64_t step, const quire_model_output *output,
                              const quire_outputs **outputs);
int __wrap_quire_sched_update(quire_sched *sched, uint64_t step, const quire_model_output *output,
                              const quire_outputs **outputs);

/* What a block was last told to hold. */
typedef struct seen_block {
    bool has_key;
    uint32_t group;
    uint32_t hash_bytes;
    unsigned char hash[MOST_HASH_BYTES];
} seen_block;

/* One seed. */
typedef struct follower {
    uint64_t random;
    uint32_t way;
    index_kit kit;
    quire_monitor *monitor;
    quire_reader *reader;
    qr_feed_wire feed;
    quire_wire_writer *writer;
    quire_wire_reader *wire;
    quire_index *index;
    qr_batches *batches;
    bool is_small;         /* the ring is, and looks at it are rare */
    uint32_t updates_left; /* until the next look */
    bool is_whole;         /* no walk is waited for */
    uint64_t walk;
    seen_block seen[MOST_BLOCKS];
} follower;

static struct {
    follower *one;
    uint64_t seed;
    bool has_failed;
    uint64_t num_compared[NUM_WAYS];
    uint64_t num_events;
    uint64_t num_losses;
    uint64_t num_walks;
    uint64_t num_present;
    uint64_t num_hidden; /* removed, and another block has the key */
    uint64_t num_batches;
    uint64_t num_batch_losses;
} world;

#define FOLLOW_CHECK(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            follow_fail(#condition, __LINE__);                                                     \
    } while (0)

static void follow_fail(const char *what, int line)
{
    if (!world.has_failed)
        printf("seed %" PRIu64 ", way %" PRIu32 ": line %d: %s\n", world.seed, world.one->way, line,
               what);
    world.has_failed = true;
}

/* ---- telling the index ----------------------------------------------------- */

/* An event goes through bytes, as to a router far away. */
static void tell(follower *f, const quire_wire_event *event)
{
    quire_bytes bytes;
    quire_wire_batch batch;
    FOLLOW_CHECK(quire_wire_begin(f->writer) == QUIRE_OK);
    FOLLOW_CHECK(quire_wire_add(f->writer, event) == QUIRE_OK);
    FOLLOW_CHECK(quire_wire_end(f->writer, 0, 0, &bytes) == QUIRE_OK);
    FOLLOW_CHECK(quire_wire_read(f->wire, bytes, &batch) == QUIRE_OK);
    FOLLOW_CHECK(batch.num_events == 1);
    FOLLOW_CHECK(quire_index_apply(f->index, WORKER, quire_wire_get(f->wire, 0)) == QUIRE_OK);
    world.num_events++;
}

static void tell_feed(follower *f, const quire_feed_event *event)
{
    quire_wire_event wire = QUIRE_WIRE_EVENT_INIT;
    bool is_hidden = event->kind == QUIRE_FEED_REMOVED && event->still_cached != 0;
    world.num_hidden += is_hidden;
    if (is_hidden && f->way == WAY_KEYS)
        return;
    int status = qr_feed_wire_make(&f->feed, event, 0, event->num_blocks, &wire);
    FOLLOW_CHECK(status == QUIRE_OK || status == QUIRE_MISS);
    if (status == QUIRE_OK)
        tell(f, &wire);
}

/* ---- a picture that can be lost -------------------------------------------- */

static void tell_block(follower *f, quire_block block, quire_wire_kind kind)
{
    static const char medium[] = "GPU";
    quire_wire_hash hash = {.bytes = {f->seen[block].hash, f->seen[block].hash_bytes}};
    quire_wire_event event = {.size = sizeof(quire_wire_event),
                              .kind = kind,
                              .hashes = &hash,
                              .num_hashes = 1,
                              .block_size = 1,
                              .medium = {medium, sizeof medium - 1},
                              .has_group = 1,
                              .group = f->seen[block].group};
    f->seen[block].has_key = kind == QUIRE_WIRE_STORED;
    tell(f, &event);
}

static void see_blocks(follower *f, const quire_feed_event *event)
{
    size_t hash_bytes = event->hash_bytes;
    FOLLOW_CHECK(hash_bytes == 16 || hash_bytes == MOST_HASH_BYTES);
    for (uint32_t i = 0; i < event->num_blocks && !world.has_failed; i++) {
        quire_block block = event->blocks[i];
        FOLLOW_CHECK(block < MOST_BLOCKS);
        if (block == QUIRE_NULL_BLOCK || world.has_failed)
            continue;
        seen_block *seen = &f->seen[block];
        const unsigned char *hash = event->hashes + i * hash_bytes;
        bool is_same = seen->has_key && seen->group == event->group_id &&
                       memcmp(seen->hash, hash, hash_bytes) == 0;
        FOLLOW_CHECK(!seen->has_key || (event->kind == QUIRE_FEED_PRESENT && is_same));
        if (is_same)
            continue;
        seen->group = event->group_id;
        seen->hash_bytes = event->hash_bytes;
        memcpy(seen->hash, hash, hash_bytes);
        tell_block(f, block, QUIRE_WIRE_STORED);
    }
}

static void forget_picture(follower *f)
{
    quire_wire_event cleared = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    memset(f->seen, 0, sizeof f->seen);
    tell(f, &cleared);
}

static void see_event(follower *f, const quire_feed_event *event)
{
    switch (event->kind) {
    case QUIRE_FEED_STORED:
    case QUIRE_FEED_PRESENT:
        world.num_present += event->kind == QUIRE_FEED_PRESENT;
        see_blocks(f, event);
        break;
    case QUIRE_FEED_REMOVED:
        FOLLOW_CHECK(event->num_blocks == 1 && event->blocks[0] < MOST_BLOCKS);
        if (f->seen[event->blocks[0]].has_key)
            tell_block(f, event->blocks[0], QUIRE_WIRE_REMOVED);
        else
            FOLLOW_CHECK(!f->is_whole); /* before the walk came to it */
        break;
    case QUIRE_FEED_CLEARED:
        forget_picture(f);
        break;
    case QUIRE_FEED_WALKED:
        f->is_whole |= event->number >= f->walk;
        world.num_walks++;
        break;
    default:
        break;
    }
}

static void begin_walk(follower *f)
{
    f->is_whole = false;
    f->walk = quire_monitor_ask_walk(f->monitor);
    forget_picture(f);
}

/* ---- looking --------------------------------------------------------------- */

static void read_all(follower *f)
{
    quire_feed_event event = QUIRE_FEED_EVENT_INIT;
    int status = QUIRE_OK;
    while (!world.has_failed && status != QUIRE_RETRY) {
        status = quire_reader_next(f->reader, &event);
        if (status == QUIRE_LOST) {
            FOLLOW_CHECK(f->way == WAY_LOSSES);
            world.num_losses++;
            begin_walk(f);
        } else if (status == QUIRE_OK && f->way == WAY_LOSSES) {
            see_event(f, &event);
        } else if (status == QUIRE_OK) {
            tell_feed(f, &event);
        } else {
            FOLLOW_CHECK(status == QUIRE_RETRY);
        }
    }
}

static void read_batches(follower *f)
{
    quire_bytes bytes;
    quire_wire_batch batch;
    uint32_t num_events;
    int status;
    while ((status = qr_batches_next(f->batches, &bytes, &num_events)) == QUIRE_OK) {
        FOLLOW_CHECK(quire_wire_read(f->wire, bytes, &batch) == QUIRE_OK);
        FOLLOW_CHECK(batch.num_events == num_events && num_events > 0);
        for (uint32_t i = 0; i < batch.num_events; i++)
            FOLLOW_CHECK(quire_index_apply(f->index, WORKER, quire_wire_get(f->wire, i)) ==
                         QUIRE_OK);
        world.num_events += num_events;
        world.num_batches++;
    }
    FOLLOW_CHECK(status == QUIRE_RETRY);
    f->is_whole = !f->batches->is_walking;
}

static void follow(follower *f, quire_sched *sched)
{
    if (world.has_failed || (f->is_small && f->updates_left-- > 0))
        return;
    f->updates_left = f->is_whole ? unit_random_below(&f->random, RARELY) : 0;
    if (f->way == WAY_BATCHES)
        read_batches(f);
    else
        read_all(f);
    if (!f->is_whole)
        return;
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(sched));
    FOLLOW_CHECK(index_kit_is_pool(&f->kit, f->index, WORKER, pool));
    FOLLOW_CHECK(quire_index_get_stats(f->index)->num_unknown == 0);
    FOLLOW_CHECK(quire_index_get_stats(f->index)->num_dropped == 0);
    world.num_compared[f->way]++;
}

/* ---- schedulers ------------------------------------------------------------ */

static void choose_kit(follower *f)
{
    f->kit = (index_kit){.is_numbers = f->way == WAY_COPIES, .counts_copies = f->way != WAY_KEYS};
    if (f->way != WAY_BATCHES)
        return;
    f->kit.is_numbers = unit_random_below(&f->random, 2) == 0;
    f->kit.counts_copies = unit_random_below(&f->random, 2) == 0;
}

static void open_follower(follower *f, quire_sched *sched)
{
    choose_kit(f);
    quire_index_config config = QUIRE_INDEX_CONFIG_INIT;
    config.count_copies = f->kit.counts_copies;
    f->monitor = quire_sched_get_monitor(sched);
    f->feed = (qr_feed_wire){.hashes_as_bytes = !f->kit.is_numbers};
    int err = QUIRE_OK;
    if (f->way == WAY_BATCHES) {
        qr_batches_config batches = {.monitor = f->monitor,
                                     .hashes_as_bytes = !f->kit.is_numbers,
                                     .every_copy = f->kit.counts_copies,
                                     .as_maps = unit_random_below(&f->random, 2)};
        err |= qr_batches_create(&batches, &f->batches);
    } else {
        err |= quire_reader_create(f->monitor, NULL, &f->reader);
    }
    err |= quire_index_create(&config, &f->index);
    err |= quire_wire_writer_create(NULL, &f->writer);
    err |= quire_wire_reader_create(&f->wire);
    FOLLOW_CHECK(err == QUIRE_OK);
    f->is_whole = true;
}

int __wrap_quire_sched_create(const quire_sched_config *config, const quire_allocator *allocator,
                              quire_sched **sched)
{
    static follower one;
    quire_sched_config watched = *config;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    memset(&one, 0, sizeof one);
    one.random = world.seed;
    one.way = (uint32_t)(world.seed % NUM_WAYS);
    world.one = &one;
    one.is_small =
        one.way == WAY_LOSSES || (one.way == WAY_BATCHES && unit_random_below(&one.random, 2) == 0);
    monitor.event_bytes = one.is_small ? SMALL_RING : LARGE_RING;
    monitor.token_ids = unit_random_below(&one.random, 2) == 0 ? QUIRE_ON : QUIRE_OFF;
    monitor.num_steps = 8;
    monitor.hooks = config->hooks;
    watched.monitor = &monitor;
    int status = __real_quire_sched_create(&watched, allocator, sched);
    if (status == QUIRE_OK)
        open_follower(&one, *sched);
    return status;
}

void __wrap_quire_sched_destroy(quire_sched *sched)
{
    follower *f = world.one;
    if (f->batches != NULL)
        world.num_batch_losses += f->batches->num_lost;
    qr_batches_destroy(f->batches);
    quire_reader_destroy(f->reader);
    quire_index_destroy(f->index);
    quire_wire_writer_destroy(f->writer);
    quire_wire_reader_destroy(f->wire);
    qr_free(f->feed.memory);
    __real_quire_sched_destroy(sched);
}

int __wrap_quire_sched_update(quire_sched *sched, uint64_t step, const quire_model_output *output,
                              const quire_outputs **outputs)
{
    int status = __real_quire_sched_update(sched, step, output, outputs);
    if (status == QUIRE_OK)
        follow(world.one, sched);
    return status;
}

/* ---- all seeds ------------------------------------------------------------- */

static bool saw_everything(void)
{
    return world.num_compared[WAY_COPIES] > 0 && world.num_compared[WAY_KEYS] > 0 &&
           world.num_compared[WAY_LOSSES] > 0 && world.num_losses > 0 && world.num_walks > 0 &&
           world.num_present > 0 && world.num_hidden > 0 && world.num_compared[WAY_BATCHES] > 0 &&
           world.num_batch_losses > 0;
}

int main(int argc, char **argv)
{
    uint64_t first = 1;
    uint64_t seeds = SEEDS;
    uint64_t steps = STEPS;
    uint64_t num_failed = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seeds") == 0)
            seeds = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--steps") == 0)
            steps = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--first") == 0)
            first = strtoull(argv[i + 1], NULL, 10);
    }
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        sim_tally tally;
        world.seed = seed;
        world.has_failed = false;
        bool is_good = sim_run(seed, false, (uint32_t)steps, UINT32_MAX, &tally);
        num_failed += !is_good || world.has_failed;
    }
    printf("%" PRIu64 " events; compared after %" PRIu64 " updates counting copies, %" PRIu64
           " with keys alone (%" PRIu64 " removals hidden), %" PRIu64 " with losses (%" PRIu64
           ", %" PRIu64 " walks), %" PRIu64 " with %" PRIu64 " batches (%" PRIu64 " losses)\n",
           world.num_events, world.num_compared[WAY_COPIES], world.num_compared[WAY_KEYS],
           world.num_hidden, world.num_compared[WAY_LOSSES], world.num_losses, world.num_walks,
           world.num_compared[WAY_BATCHES], world.num_batches, world.num_batch_losses);
    printf("%" PRIu64 " seeds from %" PRIu64 " on, %" PRIu64 " failed\n", seeds, first, num_failed);
    if (seeds >= SEEDS_THAT_SEE_ALL && !saw_everything()) {
        printf("something never happened\n");
        return EXIT_FAILURE;
    }
    return num_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

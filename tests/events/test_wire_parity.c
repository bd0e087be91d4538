/* events/test_wire_parity.c - what Quire publishes and what vLLM published, byte for byte: arrays
 * of 0.20.0, or maps of 0.32.0, as the profile of the recorded workload says.
 *
 *      recorded workload ──► parity_sched ──► scheduler ──► monitor ──► batch ──► same bytes?
 *                                                                         └──► index = pool?
 *
 * parity_sched replays the workloads, as it stands; linked so that making a scheduler, updating and
 * destroying it come here first (--wrap). Here the scheduler gets a monitor, and each update gives
 * the batch that vLLM's publisher got in the recording (record_events.py). A router's index that is
 * fed with what was read back from these bytes must have what the pool has, after every update.
 *
 * QUIRE_EVENTS_RECORDING names another recording, for another one of parity_sched: data/0.32 has
 * such a pair of vLLM 0.32.0.
 */
#include "base/memory.h"
#include "base/unit.h"
#include "events/index_kit.h"
#include "events/publish/feed_wire.h"
#include "events/wire_recording.h"
#include "parity/sched_model.h"

#include <inttypes.h>

enum { NUM_RANKS = 3, RING_BYTES = 1 << 20, LEAST_EVENTS = 5000 };

/* What was in the batches, so that a recording that lacks something is seen. */
typedef struct event_tally {
    uint64_t batches;
    uint64_t events;
    uint64_t in_full; /* events whose bytes the recording has */
    uint64_t stored;
    uint64_t removed;
    uint64_t cleared;
    uint64_t second_group;
    uint64_t null_blocks;
    uint64_t loras;
    uint64_t features;
    uint64_t names; /* of adapters */
    uint64_t salts;
    uint64_t numbers;
    uint64_t whole; /* hashes */
    uint64_t kinds; /* of groups; not in events of vLLM 0.20.0 */
    uint64_t windows;
} event_tally;

static struct {
    bool is_open;
    bool is_committed;
    bool has_maps;
    wire_recording recording;
    event_tally tally;
    quire_reader *reader;
    qr_feed_wire feed;
    quire_wire_writer *writer;
    quire_wire_reader *wire;
    quire_index *index;
    index_kit kit;
    double time;
    uint64_t num_seeds;
    uint32_t num_batches; /* of this seed */
    uint32_t num_events;  /* of the batch under way */
    uint64_t fingerprint;
} world;

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
void __real_sched_model_free(sched_model *m);
void __wrap_sched_model_free(sched_model *m);

/* ---- seeds ----------------------------------------------------------------- */

static double step_time(void *user)
{
    (void)user;
    return world.time;
}

static void open_world(void)
{
    const char *given = getenv("QUIRE_EVENTS_RECORDING");
    wire_recording_open(&world.recording,
                        given != NULL ? given : QUIRE_EVENTS_DATA "/events.bin.zst");
    world.is_committed =
        given == NULL || strncmp(given, QUIRE_EVENTS_DATA, strlen(QUIRE_EVENTS_DATA)) == 0;
    assert_int_equal(quire_wire_reader_create(&world.wire), QUIRE_OK);
    world.is_open = true;
}

/* As record_events.py chooses it. */
static uint32_t world_rank(void)
{
    return (uint32_t)((world.recording.first_seed + world.num_seeds - 1) % NUM_RANKS);
}

/* In the form of the scheduler's profile. */
static void create_writer(const quire_monitor_info *info)
{
    quire_wire_options options = QUIRE_WIRE_OPTIONS_INIT;
    world.has_maps = info->profile == QUIRE_PROFILE_VLLM_0_32;
    options.as_maps = world.has_maps;
    quire_wire_writer_destroy(world.writer);
    assert_int_equal(quire_wire_writer_create(&options, &world.writer), QUIRE_OK);
    world.feed = (qr_feed_wire){.hashes_as_bytes = !world.recording.is_numbers,
                                .specs = world.has_maps ? info : NULL};
}

static void start_seed(quire_sched *sched)
{
    assert_true(wire_recording_next_seed(&world.recording));
    create_writer(quire_monitor_get_info(quire_sched_get_monitor(sched)));
    quire_index_config config = QUIRE_INDEX_CONFIG_INIT;
    config.max_workers = NUM_RANKS;
    config.count_copies = 1;
    assert_int_equal(quire_index_create(&config, &world.index), QUIRE_OK);
    assert_int_equal(quire_reader_create(quire_sched_get_monitor(sched), NULL, &world.reader),
                     QUIRE_OK);
    world.kit = (index_kit){.is_numbers = world.recording.is_numbers, .counts_copies = true};
    world.num_seeds++;
    world.num_batches = 0;
    world.fingerprint = UINT64_C(0xcbf29ce484222325);
    assert_int_equal(quire_wire_begin(world.writer), QUIRE_OK);
    world.num_events = 0;
}

static void end_seed(void)
{
    assert_int_equal(world.num_batches, world.recording.num_batches);
    assert_int_equal(world.fingerprint, world.recording.fingerprint);
    quire_reader_destroy(world.reader);
    quire_index_destroy(world.index);
    qr_free(world.feed.memory);
    world.reader = NULL;
}

int __wrap_quire_sched_create(const quire_sched_config *config, const quire_allocator *allocator,
                              quire_sched **sched)
{
    quire_sched_config watched = *config;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    if (!world.is_open)
        open_world();
    monitor.token_ids = QUIRE_ON;
    monitor.event_bytes = RING_BYTES;
    monitor.num_steps = 16;
    monitor.wall_time = step_time;
    watched.monitor = &monitor;
    int status = __real_quire_sched_create(&watched, allocator, sched);
    if (status == QUIRE_OK)
        start_seed(*sched);
    return status;
}

void __wrap_quire_sched_destroy(quire_sched *sched)
{
    if (sched != NULL && world.reader != NULL)
        end_seed();
    __real_quire_sched_destroy(sched);
}

/* ---- batches --------------------------------------------------------------- */

static void count_event(const quire_wire_event *e)
{
    event_tally *t = &world.tally;
    t->events++;
    t->in_full += world.recording.has_bytes;
    t->stored += e->kind == QUIRE_WIRE_STORED;
    t->removed += e->kind == QUIRE_WIRE_REMOVED;
    t->cleared += e->kind == QUIRE_WIRE_CLEARED;
    t->second_group += e->has_group != 0 && e->group > 0;
    t->null_blocks += e->num_tokens > e->num_hashes * e->block_size;
    t->loras += e->lora_name.data != NULL;
    t->kinds += e->spec_kind.data != NULL;
    t->windows += e->has_sliding_window;
    t->numbers += world.recording.is_numbers ? e->num_hashes : 0;
    t->whole += world.recording.is_numbers ? 0 : e->num_hashes;
    uint32_t num_keys = e->key_start == NULL ? 0 : e->key_start[e->num_hashes];
    for (uint32_t i = 0; i < num_keys; i++) {
        t->features += e->keys[i].kind == QUIRE_WIRE_FEATURE;
        bool is_text = e->keys[i].kind == QUIRE_WIRE_TEXT && e->keys[i].value.len > 4;
        t->names += is_text && memcmp(e->keys[i].value.data, "lora", 4) == 0;
        t->salts += is_text && memcmp(e->keys[i].value.data, "salt", 4) == 0;
    }
}

static void show_bytes(const char *what, quire_bytes bytes, size_t from)
{
    print_error("    %s (%zu bytes), from %zu on: ", what, bytes.len, from);
    for (size_t i = from; i < bytes.len && i < from + 40; i++)
        print_error("%02x", ((const unsigned char *)bytes.data)[i]);
    print_error("\n");
}

static void compare(quire_bytes got, quire_bytes expected)
{
    size_t same = 0;
    while (same < got.len && same < expected.len &&
           ((const char *)got.data)[same] == ((const char *)expected.data)[same])
        same++;
    if (same == got.len && same == expected.len)
        return;
    print_error("seed %" PRIu64 " of the recording, batch %" PRIu32 ", step %.0f\n",
                world.num_seeds, world.num_batches, world.time);
    show_bytes("expected", expected, same > 8 ? same - 8 : 0);
    show_bytes("got", got, same > 8 ? same - 8 : 0);
    fail();
}

static void end_batch(double time)
{
    quire_bytes bytes;
    quire_wire_batch batch;
    uint32_t rank = world_rank();
    assert_int_equal(quire_wire_end(world.writer, time, rank, &bytes), QUIRE_OK);
    for (size_t i = 0; i < bytes.len; i++)
        world.fingerprint =
            (world.fingerprint ^ ((const unsigned char *)bytes.data)[i]) * UINT64_C(0x100000001b3);
    assert_true(world.num_batches < world.recording.num_batches);
    if (world.recording.has_bytes)
        compare(bytes, wire_recording_next_batch(&world.recording));
    assert_int_equal(quire_wire_read(world.wire, bytes, &batch), QUIRE_OK);
    assert_int_equal(batch.num_events, world.num_events);
    for (uint32_t i = 0; i < batch.num_events; i++) {
        count_event(quire_wire_get(world.wire, i));
        assert_int_equal(quire_index_apply(world.index, rank, quire_wire_get(world.wire, i)),
                         QUIRE_OK);
    }
    world.tally.batches++;
    world.num_batches++;
    world.num_events = 0;
    assert_int_equal(quire_wire_begin(world.writer), QUIRE_OK);
}

/* All that the update made visible. */
static void take_events(void)
{
    quire_feed_event event = QUIRE_FEED_EVENT_INIT;
    int status;
    while ((status = quire_reader_next(world.reader, &event)) == QUIRE_OK) {
        quire_wire_event wire = QUIRE_WIRE_EVENT_INIT;
        int made = qr_feed_wire_make(&world.feed, &event, 0, event.num_blocks, &wire);
        if (made == QUIRE_OK) {
            assert_int_equal(quire_wire_add(world.writer, &wire), QUIRE_OK);
            world.num_events++;
        } else if (event.kind == QUIRE_FEED_BATCH && world.num_events > 0) {
            end_batch(event.time);
        }
    }
    assert_int_equal(status, QUIRE_RETRY);
}

int __wrap_quire_sched_update(quire_sched *sched, uint64_t step, const quire_model_output *output,
                              const quire_outputs **outputs)
{
    world.time = (double)step;
    int status = __real_quire_sched_update(sched, step, output, outputs);
    take_events();
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(sched));
    assert_true(index_kit_is_pool(&world.kit, world.index, world_rank(), pool));
    assert_int_equal(quire_index_get_stats(world.index)->num_unknown, 0);
    return status;
}

/* ---- the end --------------------------------------------------------------- */

void __wrap_sched_model_free(sched_model *m)
{
    const event_tally *t = &world.tally;
    __real_sched_model_free(m);
    printf("%" PRIu64 " batches of %" PRIu64 " seeds, %" PRIu64
           " events as vLLM wrote them (%" PRIu64
           " byte for byte, the others by fingerprint): %" PRIu64 " stored, %" PRIu64
           " removed, %" PRIu64 " cleared\n",
           t->batches, world.num_seeds, t->events, t->in_full, t->stored, t->removed, t->cleared);
    printf("%" PRIu64 " of further groups, %" PRIu64 " with null blocks, %" PRIu64
           " with adapters; keys: %" PRIu64 " images, %" PRIu64 " adapters, %" PRIu64
           " salts; hashes: %" PRIu64 " numbers, %" PRIu64 " whole\n",
           t->second_group, t->null_blocks, t->loras, t->features, t->names, t->salts, t->numbers,
           t->whole);
    printf("%" PRIu64 " with the kind of their group, %" PRIu64 " of them with a window\n",
           t->kinds, t->windows);
    assert_int_equal(world.recording.runs_left, 0);
    assert_int_equal(t->kinds, world.has_maps ? t->stored : 0);
    bool has_all = t->in_full >= LEAST_EVENTS && t->stored > 0 && t->removed > 0 &&
                   t->cleared > 0 && t->second_group > 0 && t->null_blocks > 0 && t->loras > 0 &&
                   t->features > 0 && t->names > 0 && t->salts > 0 && t->numbers > 0 &&
                   t->whole > 0 && (t->windows > 0) == world.has_maps;
    assert_true(has_all || !world.is_committed);
    wire_recording_close(&world.recording);
    quire_wire_writer_destroy(world.writer);
    quire_wire_reader_destroy(world.wire);
}

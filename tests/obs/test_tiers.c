/* obs/test_tiers.c - tiers: names, and versions that are read whole while they are written; the
 * tiers of a scheduler and its connector in snapshots, steps and the monitor. */
#include "obs/tiers.h"
#include "sched/sched_kit.h"

#include <pthread.h>
#include <sched.h>

/* ---- names ----------------------------------------------------------------- */

static void names_are_distinct(void **state)
{
    (void)state;
    static qr_tiers tiers;
    quire_tier_usage seen[QUIRE_MAX_TIERS];
    const char *long_name = "a name of a tier that is longer than the room for it";
    quire_tier_usage all[] = {{.name = "file", .medium = "DISK"},
                              {.name = "file"},
                              {.name = "file"},
                              {.name = NULL},
                              {.name = long_name},
                              {.name = long_name}};
    qr_tiers_init(&tiers);
    assert_int_equal(qr_tiers_get(&tiers, seen, QUIRE_MAX_TIERS), 0);
    qr_tiers_set(&tiers, all, 6);
    assert_int_equal(qr_tiers_get(&tiers, seen, 2), 6);
    assert_int_equal(qr_tiers_get(&tiers, seen, QUIRE_MAX_TIERS), 6);
    assert_string_equal(seen[0].name, "file");
    assert_string_equal(seen[0].medium, "DISK");
    assert_string_equal(seen[1].name, "file_2");
    assert_string_equal(seen[2].name, "file_3");
    assert_string_equal(seen[3].name, "");
    assert_string_equal(seen[4].name, "a name of a tier that is longer");
    assert_string_equal(seen[5].name, "a name of a tier that is long_2");
    all[1].pinned = 9;
    qr_tiers_set(&tiers, all, 8 - 2);
    qr_tiers_get(&tiers, seen, QUIRE_MAX_TIERS);
    assert_int_equal(seen[1].pinned, 9);
    assert_string_equal(seen[1].name, "file_2");
}

/* ---- versions -------------------------------------------------------------- */

enum { NUM_VERSIONS = 300000, THREE = 3 };
static _Atomic bool has_been_read; /* the reader has seen one of the first versions */

static quire_tier_usage version_of(uint64_t n)
{
    return (quire_tier_usage){
        .name = "t",
        .blocks = {.total = 4 * n + 1, .empty = n, .cached = 2 * n, .active = n, .null_blocks = 1},
        .pinned = n,
        .failed_blocks = n};
}

static void *write_versions(void *user)
{
    qr_tiers *tiers = user;
    for (uint64_t n = 1; n <= NUM_VERSIONS; n++) {
        quire_tier_usage all[THREE] = {version_of(n), version_of(n), version_of(n)};
        qr_tiers_set(tiers, all, THREE);
        while (n == NUM_VERSIONS / 2 && !has_been_read)
            sched_yield();
    }
    return NULL;
}

/* All tiers of an answer are of one version, and no version comes after a later one. */
static void a_reader_sees_whole_versions(void **state)
{
    (void)state;
    static qr_tiers tiers;
    pthread_t writer;
    uint64_t last = 0;
    uint64_t num_seen = 0;
    qr_tiers_init(&tiers);
    assert_int_equal(pthread_create(&writer, NULL, write_versions, &tiers), 0);
    while (last < NUM_VERSIONS) {
        quire_tier_usage seen[QUIRE_MAX_TIERS];
        uint32_t count = qr_tiers_get(&tiers, seen, QUIRE_MAX_TIERS);
        if (count == 0)
            continue;
        assert_int_equal(count, THREE);
        assert_true(seen[0].pinned >= last);
        num_seen += seen[0].pinned > last;
        last = seen[0].pinned;
        has_been_read = true;
        for (uint32_t i = 0; i < THREE; i++) {
            const quire_usage *b = &seen[i].blocks;
            assert_int_equal(b->total, b->empty + b->cached + b->active + b->null_blocks);
            assert_int_equal(b->total, 4 * last + 1);
            assert_int_equal(seen[i].failed_blocks, last);
        }
    }
    pthread_join(writer, NULL);
    assert_true(num_seen >= 2);
}

/* ---- of a scheduler ---------------------------------------------------------- */

static uint64_t calls;

static uint32_t give_two(void *user, quire_tier_usage *tiers, uint32_t capacity)
{
    (void)user;
    calls++;
    assert_int_equal(capacity, QUIRE_CONNECTOR_TIERS);
    tiers[0] = (quire_tier_usage){.name = "host",
                                  .medium = "CPU",
                                  .blocks = {.total = 9, .empty = 3, .cached = 4, .active = 2},
                                  .pinned = 1,
                                  .stored_blocks = 10 + calls,
                                  .loaded_blocks = 20,
                                  .hit_tokens = 30,
                                  .failed_blocks = 40,
                                  .used_bytes = 50,
                                  .capacity_bytes = 60};
    tiers[1] = (quire_tier_usage){.name = "file", .medium = "DISK", .blocks = {.total = 1}};
    return 2;
}

static quire_snapshot told;
static quire_tier_usage told_tiers[QUIRE_MAX_TIERS];

static void take_snapshot(void *user, const quire_snapshot *snapshot)
{
    (void)user;
    told = *snapshot;
    memcpy(told_tiers, snapshot->tiers, snapshot->num_tiers * sizeof *told_tiers);
}

static void a_connectors_tiers_are_seen(void **state)
{
    (void)state;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_connector connector = {.size = sizeof(quire_connector), .get_tiers = give_two};
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.monitor = &monitor;
    config.connector = &connector;
    config.on_snapshot = take_snapshot;
    calls = 0;
    kit_open(&kit, &config);
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    quire_tier_usage seen[QUIRE_MAX_TIERS];
    assert_int_equal(calls, 1); /* before the first step, tiers are known */
    assert_int_equal(quire_monitor_get_tiers(m, seen, QUIRE_MAX_TIERS), 3);
    assert_int_equal(seen[0].blocks.total, 17);
    assert_int_equal(seen[0].blocks.empty, 16);
    assert_string_equal(seen[1].medium, "CPU");
    assert_string_equal(seen[2].name, "file");
    assert_int_equal(seen[1].used_bytes, 50);
    assert_int_equal(seen[1].capacity_bytes, 60);
    assert_true(seen[0].used_bytes == QUIRE_UNKNOWN_BYTES);
    assert_true(seen[0].capacity_bytes == QUIRE_UNKNOWN_BYTES);
    kit_step(&kit);
    assert_int_equal(told.num_tiers, 3);
    assert_int_equal(told_tiers[1].stored_blocks, 12);
    quire_monitor_step step = QUIRE_MONITOR_STEP_INIT;
    assert_int_equal(quire_monitor_get_last_step(m, &step), QUIRE_OK);
    assert_int_equal(step.num_tiers, 2);
    quire_tier_step expected = {.total = 9,
                                .empty = 3,
                                .cached = 4,
                                .active = 2,
                                .pinned = 1,
                                .stored_blocks = 12,
                                .loaded_blocks = 20,
                                .hit_tokens = 30,
                                .failed_blocks = 40};
    assert_memory_equal(&step.tiers[0], &expected, sizeof expected);
    assert_int_equal(step.tiers[1].total, 1);
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(calls, 3); /* creation, schedule, update */
    assert_int_equal(quire_monitor_get_tiers(NULL, seen, QUIRE_MAX_TIERS), 0);
    kit_close(&kit);
}

/* Without a connector: the pool, the swap buffer, and pins as a part of what is active. */
static void pins_are_a_part_of_the_pool(void **state)
{
    (void)state;
    enum { PROMPT = 16 };
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.monitor = &monitor;
    config.max_pins = 2;
    kit_open(&kit, &config);
    quire_req req = kit_add(&kit, "a", PROMPT);
    assert_int_equal(quire_sched_pin(kit.sched, req, UINT64_MAX), QUIRE_OK);
    kit_run(&kit, 1);
    quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_STOPPED, NULL);
    kit_run(&kit, 1);
    quire_tier_usage seen[QUIRE_MAX_TIERS];
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    quire_monitor_step step = QUIRE_MONITOR_STEP_INIT;
    assert_int_equal(quire_monitor_get_tiers(m, seen, QUIRE_MAX_TIERS), 1);
    assert_string_equal(seen[0].name, "gpu");
    assert_int_equal(seen[0].pinned, PROMPT / KIT_BLOCK);
    assert_int_equal(seen[0].blocks.active, PROMPT / KIT_BLOCK);
    assert_true(seen[0].stored_bytes == QUIRE_UNKNOWN_BYTES);
    assert_true(seen[0].loaded_bytes == QUIRE_UNKNOWN_BYTES);
    assert_int_equal(quire_monitor_get_last_step(m, &step), QUIRE_OK);
    assert_int_equal(step.num_pinned, 1);
    assert_int_equal(step.num_pinned_blocks, PROMPT / KIT_BLOCK);
    assert_int_equal(step.num_tiers, 0);
    kit_close(&kit);
}

/* ---- events of a connector's pool ---------------------------------------------- */

static quire_monitor *pool_monitor;
static uint32_t pool_tier;

static void tell_pool_event(void *user, const quire_event *event)
{
    (void)user;
    assert_int_equal(quire_monitor_tell_event(pool_monitor, pool_tier, event), QUIRE_OK);
}

/* The blocks that were told of a tier, as a set of bits: STORED and PRESENT, less REMOVED. */
static uint32_t follow(quire_reader *reader, uint32_t tier, const char *medium, uint32_t held)
{
    quire_feed_event e = QUIRE_FEED_EVENT_INIT;
    while (quire_reader_next(reader, &e) == QUIRE_OK) {
        bool is_block = e.kind <= QUIRE_FEED_REMOVED || e.kind == QUIRE_FEED_PRESENT;
        if (!is_block || e.tier != tier)
            continue;
        assert_string_equal(e.medium, medium);
        for (uint32_t i = 0; i < e.num_blocks; i++)
            held = e.kind == QUIRE_FEED_REMOVED ? held & ~(1u << e.blocks[i])
                                                : held | 1u << e.blocks[i];
        if (e.kind != QUIRE_FEED_REMOVED)
            assert_int_equal(e.block_size, KIT_BLOCK);
    }
    return held;
}

static void events_of_another_pool_are_told(void **state)
{
    (void)state;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_connector connector = {.size = sizeof(quire_connector), .get_tiers = give_two};
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.monitor = &monitor;
    config.connector = &connector;
    kit_open(&kit, &config);
    pool_monitor = quire_sched_get_monitor(kit.sched);
    quire_pool_config pool_config = QUIRE_POOL_CONFIG_INIT;
    pool_config.num_blocks = 9;
    pool_config.hash_bytes = 32;
    pool_config.on_event = tell_pool_event;
    quire_pool *pool;
    assert_int_equal(quire_pool_create(&pool_config, NULL, &pool), QUIRE_OK);
    assert_int_equal(quire_monitor_watch_pool(pool_monitor, "tape", pool, &pool_tier), QUIRE_MISS);
    assert_int_equal(quire_monitor_watch_pool(pool_monitor, "host", NULL, &pool_tier),
                     QUIRE_E_ARGUMENT);
    quire_event none = {.size = sizeof(quire_event), .kind = QUIRE_EVENT_CLEARED};
    assert_int_equal(quire_monitor_tell_event(pool_monitor, 1, &none), QUIRE_E_RANGE);
    assert_int_equal(quire_monitor_tell_event(pool_monitor, 0, &none), QUIRE_E_RANGE);
    assert_int_equal(quire_monitor_tell_event(pool_monitor, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_watch_pool(pool_monitor, "host", pool, &pool_tier), QUIRE_OK);
    assert_int_equal(pool_tier, 1);
    assert_int_equal(quire_monitor_get_info(pool_monitor)->tier_blocks[0], 17);
    assert_int_equal(quire_monitor_get_info(pool_monitor)->tier_blocks[1], 9);
    assert_int_equal(quire_monitor_get_info(pool_monitor)->tier_blocks[2], 0);
    quire_reader *reader;
    quire_reader *late;
    assert_int_equal(quire_reader_create(pool_monitor, NULL, &reader), QUIRE_OK);

    quire_block blocks[3];
    unsigned char hashes[3 * 32];
    for (uint32_t i = 0; i < sizeof hashes; i++)
        hashes[i] = (unsigned char)(i * 7 + 1);
    assert_int_equal(quire_pool_get_new_blocks(pool, 3, blocks), QUIRE_OK);
    quire_cache_full_params full = {.size = sizeof(quire_cache_full_params),
                                    .blocks = blocks,
                                    .num_full_blocks = 3,
                                    .hashes = hashes,
                                    .hash_len = 32,
                                    .num_hashes = 3};
    assert_int_equal(quire_pool_cache_full_blocks(pool, &full), QUIRE_OK);
    assert_int_equal(quire_pool_evict_blocks(pool, &blocks[1], 1), QUIRE_OK);
    kit_run(&kit, 1);
    uint32_t held = 1u << blocks[0] | 1u << blocks[2];
    assert_int_equal(follow(reader, 1, "CPU", 0), held);

    assert_int_equal(quire_reader_create(pool_monitor, NULL, &late), QUIRE_OK);
    quire_monitor_ask_walk(pool_monitor); /* who comes late is told of both pools */
    kit_run(&kit, 1);
    assert_int_equal(follow(late, 1, "CPU", 0), held);
    quire_reader_destroy(reader);
    quire_reader_destroy(late);
    quire_pool_destroy(pool);
    kit_close(&kit);
}

/* ---- events of a connector's tier that is no pool -------------------------------- */

static unsigned char shelf_hashes[4][32] = {{0}, {1}, {2}, {3}}; /* block 0 is none */
static bool shelf_has[4];

static int get_shelf_key(void *user, quire_block block, quire_bytes *hash, uint32_t *group_id)
{
    assert_ptr_equal(user, shelf_has);
    if (!shelf_has[block])
        return QUIRE_MISS;
    *hash = (quire_bytes){shelf_hashes[block], 32};
    *group_id = 0;
    return QUIRE_OK;
}

static void events_of_a_tier_that_is_no_pool_are_told(void **state)
{
    (void)state;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_connector connector = {.size = sizeof(quire_connector), .get_tiers = give_two};
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.monitor = &monitor;
    config.connector = &connector;
    kit_open(&kit, &config);
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    quire_watched_blocks shelf = {.size = sizeof(quire_watched_blocks),
                                  .user = shelf_has,
                                  .num_blocks = 4,
                                  .get_key = get_shelf_key};
    quire_watched_blocks none = {.size = sizeof(quire_watched_blocks), .num_blocks = 4};
    assert_int_equal(quire_monitor_watch_blocks(m, 2, &none), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_watch_blocks(m, 2, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_watch_blocks(m, 0, &shelf), QUIRE_E_RANGE);
    assert_int_equal(quire_monitor_watch_blocks(m, 3, &shelf), QUIRE_E_RANGE);
    assert_int_equal(quire_monitor_get_info(m)->has_content, 0);
    shelf_has[3] = true; /* it was there before */
    assert_int_equal(quire_monitor_watch_blocks(m, 2, &shelf), QUIRE_OK);
    assert_int_equal(quire_monitor_get_info(m)->has_content, 1);
    assert_int_equal(quire_monitor_get_info(m)->tier_blocks[2], 4);
    quire_reader *reader;
    assert_int_equal(quire_reader_create(m, NULL, &reader), QUIRE_OK);
    for (quire_block block = 1; block <= 2; block++) {
        quire_event stored = {.size = sizeof(quire_event),
                              .kind = QUIRE_EVENT_STORED,
                              .blocks = &block,
                              .num_blocks = 1,
                              .hashes = shelf_hashes[block],
                              .hash_bytes = 32};
        shelf_has[block] = true;
        assert_int_equal(quire_monitor_tell_event(m, 2, &stored), QUIRE_OK);
        stored.kind = QUIRE_EVENT_REMOVED;
        shelf_has[block] = block == 2;
        if (block == 1)
            assert_int_equal(quire_monitor_tell_event(m, 2, &stored), QUIRE_OK);
    }
    kit_run(&kit, 1);
    assert_int_equal(follow(reader, 2, "DISK", 0), 1u << 2);
    quire_monitor_ask_walk(m);
    kit_run(&kit, 1);
    assert_int_equal(follow(reader, 2, "DISK", 0), 1u << 2 | 1u << 3);
    quire_reader_destroy(reader);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_distinct),
        cmocka_unit_test(a_reader_sees_whole_versions),
        cmocka_unit_test(a_connectors_tiers_are_seen),
        cmocka_unit_test(pins_are_a_part_of_the_pool),
        cmocka_unit_test(events_of_another_pool_are_told),
        cmocka_unit_test(events_of_a_tier_that_is_no_pool_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* obs/test_maps.c - block maps: they agree with the pool and with the numbers of the step in which
 * they were drawn, in parts too, and readers in other threads see them whole. */
#include "obs/monitor.h"
#include "sched/sched_kit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { PERIOD_MS = 2, MS = 1000000, KIT_BLOCKS = 17 };

/* A clock that goes on when the test says so. */
static _Atomic uint64_t clock_ns;

static uint64_t read_clock(void *user)
{
    (void)user;
    return atomic_load_explicit(&clock_ns, memory_order_relaxed);
}

static quire_monitor_config monitor_with_maps(uint32_t map_ms)
{
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    monitor.map_ms = map_ms;
    monitor.hooks.now_ns = read_clock;
    return monitor;
}

/* The hostile build draws nearly all maps in several steps. */
static bool is_whole_in_a_step(uint32_t num_blocks)
{
    return num_blocks <= (uint32_t)QR_MAP_PART;
}

/* ---- a pool -------------------------------------------------------------------- */

typedef struct pool_world {
    quire_pool *pool;
    quire_block *held; /* blocks that are in use, of which some have a key */
    uint32_t num_held;
    uint64_t random;
    uint32_t num_keys;
} pool_world;

static void open_pool(pool_world *w, uint32_t num_blocks)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = num_blocks;
    config.hash_bytes = 32;
    assert_int_equal(quire_pool_create(&config, NULL, &w->pool), QUIRE_OK);
    w->held = calloc(num_blocks, sizeof *w->held);
    w->num_held = 0;
    w->num_keys = 0;
    assert_non_null(w->held);
}

static void close_pool(pool_world *w)
{
    quire_pool_destroy(w->pool);
    free(w->held);
}

static void take_block(pool_world *w)
{
    quire_block block;
    unsigned char hash[32] = {0};
    if (quire_pool_get_new_blocks(w->pool, 1, &block) != QUIRE_OK)
        return;
    w->held[w->num_held++] = block;
    if (unit_random_below(&w->random, 3) == 0)
        return;
    w->num_keys++;
    memcpy(hash, &w->num_keys, sizeof w->num_keys);
    quire_cache_full_params full = {.size = sizeof(quire_cache_full_params),
                                    .blocks = &block,
                                    .num_full_blocks = 1,
                                    .hashes = hash,
                                    .hash_len = 32,
                                    .num_hashes = 1};
    assert_int_equal(quire_pool_cache_full_blocks(w->pool, &full), QUIRE_OK);
}

/* Half of the blocks, in two calls, of which one half is free again and has no keys. */
static void fill_pool(pool_world *w, uint32_t num_blocks)
{
    uint32_t n = num_blocks / 2;
    if (n == 0)
        return;
    assert_int_equal(quire_pool_get_new_blocks(w->pool, n, w->held), QUIRE_OK);
    w->num_held = n - n / 2;
    assert_int_equal(quire_pool_free_blocks(w->pool, w->held + w->num_held, n / 2), QUIRE_OK);
}

static void change_pool(pool_world *w, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        if (w->num_held > 0 && unit_random_below(&w->random, 100) < 45) {
            uint32_t at = unit_random_below(&w->random, w->num_held);
            assert_int_equal(quire_pool_free_blocks(w->pool, &w->held[at], 1), QUIRE_OK);
            w->held[at] = w->held[--w->num_held];
        } else {
            take_block(w);
        }
    }
}

/* ---- maps of a pool -------------------------------------------------------------- */

static quire_map_cell cells[QUIRE_MAP_CELLS];

/* A map that was drawn while the pool did not change, block by block. */
static void expect_pool(const qr_maps *maps, const quire_pool *pool)
{
    quire_block_map map = QUIRE_BLOCK_MAP_INIT;
    uint32_t tier;
    uint32_t total = (uint32_t)quire_pool_get_usage(pool).total;
    char *letters = malloc((size_t)total + 1);
    assert_non_null(letters);
    assert_int_equal(quire_pool_draw(pool, 0, total, letters), QUIRE_OK);
    assert_true(qr_maps_get(maps, 0, &tier, &map, cells));
    assert_int_equal(map.num_blocks, total);
    assert_true(map.num_cells <= QR_MAP_CELLS);
    assert_true((uint64_t)map.num_cells * map.cell_blocks >= total);
    assert_true((uint64_t)(map.num_cells - 1) * map.cell_blocks < total);
    for (uint32_t i = 0; i < map.num_cells; i++) {
        quire_map_cell wanted = {0};
        uint32_t end = (i + 1) * map.cell_blocks;
        for (uint32_t b = i * map.cell_blocks; b < end && b < total; b++) {
            wanted.empty += letters[b] == 'E';
            wanted.cached += letters[b] == 'C';
            wanted.active += letters[b] == 'A';
        }
        assert_memory_equal(&cells[i], &wanted, sizeof wanted);
    }
    free(letters);
}

static void open_maps(qr_maps *maps, void **memory)
{
    qr_arena plan = qr_arena_plan();
    qr_maps_carve(maps, &plan, PERIOD_MS);
    *memory = aligned_alloc(64, (plan.used + 63) / 64 * 64);
    assert_non_null(*memory);
    qr_arena arena = qr_arena_carve(*memory, plan.used);
    qr_maps_carve(maps, &arena, PERIOD_MS);
    qr_arena_seal(&arena);
    qr_maps_init(maps);
}

/* Pools of all sizes around cells and parts: after as many steps as their parts are, the map is the
 * pool's, and no step has drawn more than a part. */
static void maps_are_the_pools(void **state)
{
    (void)state;
    enum { CHANGES = 40 };
    static qr_maps maps;
    const uint32_t sizes[] = {1,
                              2,
                              QR_MAP_PART,
                              QR_MAP_PART + 1,
                              QR_MAP_CELLS - 1,
                              QR_MAP_CELLS,
                              QR_MAP_CELLS + 1,
                              3 * QR_MAP_CELLS,
                              3 * QR_MAP_PART + 7,
                              100000};
    for (size_t k = 0; k < COUNT(sizes); k++) {
        void *memory;
        uint32_t tier;
        quire_block_map map = QUIRE_BLOCK_MAP_INIT;
        pool_world w = {.random = k + 1};
        open_maps(&maps, &memory);
        open_pool(&w, sizes[k]);
        assert_true(qr_maps_add(&maps, 0, w.pool));
        assert_false(qr_maps_get(&maps, 0, &tier, &map, cells));
        fill_pool(&w, sizes[k]);
        change_pool(&w, CHANGES);
        uint32_t parts = (sizes[k] + QR_MAP_PART - 1) / QR_MAP_PART;
        for (uint32_t round = 0; round < 3; round++) {
            uint64_t step = 1 + (uint64_t)round * parts;
            uint64_t now = (uint64_t)round * PERIOD_MS * MS;
            for (uint32_t i = 0; i < parts; i++) {
                bool is_there = qr_maps_get(&maps, 0, &tier, &map, cells);
                assert_true(round == 0 ? !is_there : map.last_step < step);
                assert_int_equal(maps.maps[0].next, i * QR_MAP_PART);
                qr_maps_end_schedule(&maps, step + i, now, false);
            }
            expect_pool(&maps, w.pool);
            assert_true(qr_maps_get(&maps, 0, &tier, &map, cells));
            assert_int_equal(map.first_step, step);
            assert_int_equal(map.last_step, step + parts - 1);
            assert_int_equal(map.is_after_update, 0);
            change_pool(&w, CHANGES);
            qr_maps_end_schedule(&maps, step + parts, now + PERIOD_MS * MS - 1,
                                 false); /* too early */
            assert_true(qr_maps_get(&maps, 0, &tier, &map, cells));
            assert_int_equal(map.last_step, step + parts - 1);
        }
        close_pool(&w);
        free(memory);
    }
}

/* A map that is larger than what is drawn at rest: its parts go on, however often there is a rest,
 * and nothing in between is drawn of it. */
static void a_large_map_is_not_held_up_by_rests(void **state)
{
    (void)state;
    enum { BLOCKS = QR_MAP_IDLE + 1, PARTS = QR_MAP_IDLE / QR_MAP_PART + 1 };
    static qr_maps maps;
    void *memory;
    uint32_t tier;
    quire_block_map map = QUIRE_BLOCK_MAP_INIT;
    pool_world w = {.random = 8};
    open_maps(&maps, &memory);
    open_pool(&w, BLOCKS);
    fill_pool(&w, BLOCKS);
    assert_true(qr_maps_add(&maps, 0, w.pool));
    for (uint64_t step = 1; step <= PARTS; step++) {
        assert_false(qr_maps_get(&maps, 0, &tier, &map, cells));
        qr_maps_end_schedule(&maps, step, 1, false);
        qr_maps_end_update(&maps, step, true);
    }
    expect_pool(&maps, w.pool);
    assert_true(qr_maps_get(&maps, 0, &tier, &map, cells));
    assert_int_equal(map.first_step, 1);
    assert_int_equal(map.last_step, PARTS);
    assert_int_equal(map.is_after_update, 0);
    close_pool(&w);
    free(memory);
}

/* Copies end while nothing runs: a map is drawn again for them, and for nothing else. */
static void a_pool_that_changes_at_rest_is_drawn(void **state)
{
    (void)state;
    enum { BLOCKS = QR_MAP_IDLE };
    static qr_maps maps;
    void *memory;
    uint32_t tier;
    quire_block_map map = QUIRE_BLOCK_MAP_INIT;
    pool_world w = {.random = 9};
    open_maps(&maps, &memory);
    open_pool(&w, BLOCKS);
    fill_pool(&w, BLOCKS);
    assert_true(qr_maps_add(&maps, 0, w.pool));
    qr_maps_end_schedule(&maps, 1, PERIOD_MS * MS, true);
    for (uint64_t step = 1; step < 12; step++) {
        bool is_changed = step % 3 == 1;
        if (is_changed)
            take_block(&w);
        qr_maps_end_schedule(&maps, step, PERIOD_MS * MS, true);
        qr_maps_end_update(&maps, step, true);
        assert_true(qr_maps_get(&maps, 0, &tier, &map, cells));
        assert_int_equal(map.last_step, step - (step - 1) % 3);
        assert_int_equal(map.is_after_update, 1);
        expect_pool(&maps, w.pool);
    }
    close_pool(&w);
    free(memory);
}

/* While the pool changes between parts, no block is counted twice or left out. */
static void parts_add_up(void **state)
{
    (void)state;
    enum { BLOCKS = 3 * QR_MAP_PART + 5, CHANGES = 5, STEPS = 100 };
    static qr_maps maps;
    void *memory;
    pool_world w = {.random = 7};
    open_maps(&maps, &memory);
    open_pool(&w, BLOCKS);
    fill_pool(&w, BLOCKS);
    assert_true(qr_maps_add(&maps, 0, w.pool));
    uint64_t num_seen = 0;
    for (uint64_t step = 1; step <= STEPS; step++) {
        uint32_t tier;
        quire_block_map map = QUIRE_BLOCK_MAP_INIT;
        change_pool(&w, CHANGES);
        if (step % 13 == 0)
            qr_maps_end_update(&maps, step,
                               true); /* begins again, in the middle of a drawing too */
        qr_maps_end_schedule(&maps, step, step * PERIOD_MS * MS, false);
        if (!qr_maps_get(&maps, 0, &tier, &map, cells))
            continue;
        num_seen++;
        uint64_t sum = 0;
        for (uint32_t i = 0; i < map.num_cells; i++) {
            assert_true(cells[i].empty <= map.cell_blocks);
            sum += (uint64_t)cells[i].empty + cells[i].cached + cells[i].active;
        }
        assert_int_equal(sum, BLOCKS - 1);
        assert_true(map.first_step <= map.last_step && map.last_step <= step);
    }
    assert_true(num_seen > STEPS / 2);
    close_pool(&w);
    free(memory);
}

/* ---- of a scheduler ------------------------------------------------------------------ */

static quire_snapshot told;
static quire_tier_usage told_tiers[QUIRE_MAX_TIERS];
static quire_pool *host;

static void take_snapshot(void *user, const quire_snapshot *snapshot)
{
    (void)user;
    told = *snapshot;
    memcpy(told_tiers, snapshot->tiers, snapshot->num_tiers * sizeof *told_tiers);
}

static uint32_t give_host(void *user, quire_tier_usage *tiers, uint32_t capacity)
{
    (void)user;
    assert_true(capacity >= 2);
    tiers[0] = (quire_tier_usage){.name = "host", .medium = "CPU"};
    if (host != NULL)
        tiers[0].blocks = quire_pool_get_usage(host);
    tiers[1] = (quire_tier_usage){.name = "file", .medium = "DISK"};
    return 2;
}

static bool sums_agree(const quire_block_map *map, const quire_tier_usage *tier)
{
    quire_map_cell sum = {0};
    for (uint32_t i = 0; i < map->num_cells; i++) {
        sum.empty += cells[i].empty;
        sum.cached += cells[i].cached;
        sum.active += cells[i].active;
        sum.pinned += cells[i].pinned;
    }
    return sum.empty == tier->blocks.empty && sum.cached == tier->blocks.cached &&
           sum.active == tier->blocks.active && sum.pinned == tier->pinned &&
           map->num_blocks == tier->blocks.total;
}

/* The last map, where it was drawn in the step that was told last; true when there was one. */
static bool agrees_with_step(const quire_monitor *m, uint32_t i)
{
    quire_block_map map = QUIRE_BLOCK_MAP_INIT;
    int status = quire_monitor_get_map(m, i, &map, cells, QUIRE_MAP_CELLS);
    assert_true(status == QUIRE_OK || status == QUIRE_MISS);
    if (status != QUIRE_OK || map.first_step != told.step || map.is_after_update)
        return false;
    assert_int_equal(map.last_step, told.step);
    assert_string_equal(map.name, i == 0 ? "gpu" : "host");
    assert_string_equal(map.medium, i == 0 ? "GPU" : "CPU");
    assert_true(sums_agree(&map, &told_tiers[i]));
    return true;
}

static void open_mapped(sched_kit *kit, quire_monitor_config *monitor, quire_connector *connector,
                        uint32_t max_pins)
{
    quire_sched_config config = kit_config(kit);
    config.monitor = monitor;
    config.connector = connector;
    config.on_snapshot = take_snapshot;
    config.max_pins = max_pins;
    kit_open(kit, &config);
}

/* Requests come, run and end, some with pins; the host pool changes at random. Each map that was
 * drawn in one step agrees with the snapshot of that step. */
static void maps_agree_with_their_step(void **state)
{
    (void)state;
    enum { HOST_BLOCKS = 29 };
    quire_monitor_config monitor = monitor_with_maps(1);
    quire_connector connector = {.size = sizeof(quire_connector), .get_tiers = give_host};
    pool_world w = {.random = 3};
    sched_kit kit;
    uint32_t agreed[2] = {0};
    host = NULL;
    open_mapped(&kit, &monitor, &connector, 2);
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    open_pool(&w, HOST_BLOCKS);
    host = w.pool;
    assert_int_equal(quire_monitor_get_info(m)->map_ms, 1);
    assert_int_equal(quire_monitor_watch_pool(m, "tape", w.pool, NULL), QUIRE_MISS);
    assert_int_equal(quire_monitor_watch_pool(m, "host", w.pool, NULL), QUIRE_OK);
    assert_int_equal(quire_monitor_watch_pool(m, "host", w.pool, NULL), QUIRE_OK); /* again */
    assert_int_equal(quire_monitor_watch_pool(m, "file", w.pool, NULL), QUIRE_FULL);
    uint32_t num_pinned = 0;
    for (uint32_t round = 0; round < 300; round++) {
        char id[8];
        (void)snprintf(id, sizeof id, "r%u", round);
        quire_req req = kit_add(&kit, id, 4 + 4 * unit_random_below(&w.random, 4));
        if (round % 3 == 0)
            assert_int_equal(quire_sched_pin(kit.sched, req, UINT64_MAX), QUIRE_OK);
        for (uint32_t i = 0; i < 4; i++) {
            change_pool(&w, 5);
            clock_ns += MS;
            kit_run(&kit, 1);
            agreed[0] += agrees_with_step(m, 0);
            agreed[1] += agrees_with_step(m, 1);
            num_pinned += told_tiers[0].pinned > 0;
        }
        quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_STOPPED, NULL);
    }
    assert_true(num_pinned > 100);
    if (is_whole_in_a_step(HOST_BLOCKS)) { /* every second step draws the one, or the other */
        assert_true(agreed[0] > 300);
        assert_true(agreed[1] > 300);
    }
    close_pool(&w);
    kit_close(&kit);
    host = NULL;
}

/* The last update before a pause draws once more: no step says that the blocks are free. */
static void the_last_map_is_of_an_idle_pool(void **state)
{
    (void)state;
    quire_monitor_config monitor = monitor_with_maps(1000);
    quire_block_map map = QUIRE_BLOCK_MAP_INIT;
    sched_kit kit;
    open_mapped(&kit, &monitor, NULL, 0);
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    clock_ns += (uint64_t)2000 * MS;
    kit_add(&kit, "a", 16);
    kit_run(&kit, 1);
    if (is_whole_in_a_step(KIT_BLOCKS)) {
        assert_true(agrees_with_step(m, 0));
        assert_int_not_equal(told_tiers[0].blocks.active, 0);
    }
    quire_tier_usage now[QUIRE_MAX_TIERS];
    while (quire_monitor_get_num_unfinished(m) > 0)
        kit_run(&kit, 1); /* within the period: nothing is drawn but at the end */
    assert_int_equal(quire_monitor_get_map(m, 0, &map, cells, QUIRE_MAP_CELLS), QUIRE_OK);
    uint64_t last_step = map.last_step;
    quire_monitor_get_tiers(m, now, QUIRE_MAX_TIERS);
    assert_int_equal(now[0].blocks.active, 0);
    assert_true(sums_agree(&map, &now[0]));
    assert_int_equal(map.is_after_update, 1);
    assert_int_equal(map.first_step, last_step);
    assert_int_equal(last_step, told.step);
    kit_run(&kit, 1); /* nothing has changed: nothing is drawn */
    assert_int_equal(quire_monitor_get_map(m, 0, &map, cells, QUIRE_MAP_CELLS), QUIRE_OK);
    assert_int_equal(map.last_step, last_step);
    kit_close(&kit);
}

static void maps_are_off_unless_asked_for(void **state)
{
    (void)state;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_block_map map = QUIRE_BLOCK_MAP_INIT;
    sched_kit kit;
    pool_world w = {.random = 1};
    open_pool(&w, 4);
    open_mapped(&kit, &monitor, NULL, 0);
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    kit_run(&kit, 1);
    assert_int_equal(quire_monitor_get_map(m, 0, &map, cells, QUIRE_MAP_CELLS), QUIRE_E_DISABLED);
    assert_int_equal(quire_monitor_watch_pool(m, "host", w.pool, NULL), QUIRE_E_DISABLED);
    assert_null(m->maps.maps[0].words); /* and take no memory */
    kit_close(&kit);
    monitor.map_ms = 3600000;
    open_mapped(&kit, &monitor, NULL, 0);
    m = quire_sched_get_monitor(kit.sched);
    assert_int_equal(quire_monitor_get_map(m, 0, &map, cells, QUIRE_MAP_CELLS), QUIRE_MISS);
    assert_int_equal(quire_monitor_get_map(m, 1, &map, cells, QUIRE_MAP_CELLS), QUIRE_MISS);
    assert_int_equal(quire_monitor_get_map(m, 2, &map, cells, QUIRE_MAP_CELLS), QUIRE_E_RANGE);
    assert_int_equal(quire_monitor_get_map(m, 0, &map, cells, QUIRE_MAP_CELLS - 1),
                     QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_monitor_get_map(m, 0, NULL, cells, QUIRE_MAP_CELLS), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_get_map(m, 0, &map, NULL, QUIRE_MAP_CELLS), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_get_map(NULL, 0, &map, cells, QUIRE_MAP_CELLS),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_watch_pool(NULL, "host", w.pool, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_watch_pool(m, NULL, w.pool, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_watch_pool(m, "host", NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_watch_pool(m, "gpu", w.pool, NULL), QUIRE_MISS);
    kit_close(&kit);
    close_pool(&w);
    monitor.map_ms = 3600001;
    quire_sched_config config = kit_config(&kit);
    quire_sched *sched;
    config.monitor = &monitor;
    assert_int_equal(quire_sched_create(&config, NULL, &sched), QUIRE_E_CONFIG);
    quire_hasher_destroy(kit.hasher);
}

/* ---- from another thread --------------------------------------------------------------- */

typedef struct watcher {
    const quire_monitor *monitor;
    _Atomic bool is_over;
    _Atomic uint64_t num_seen;   /* maps, each counted once */
    _Atomic uint64_t num_agreed; /* whose step was still kept */
} watcher;

/* A map is whole: its blocks are those of the pool; and where it was drawn in one step, they are in
 * the states that this step has. */
static void look_at_map(watcher *w, const quire_block_map *map, const quire_map_cell *mine)
{
    quire_monitor_step step = QUIRE_MONITOR_STEP_INIT;
    uint64_t sums[4] = {0};
    for (uint32_t i = 0; i < map->num_cells; i++) {
        sums[0] += mine[i].empty;
        sums[1] += mine[i].cached;
        sums[2] += mine[i].active;
        sums[3] += mine[i].pinned;
    }
    if (sums[0] + sums[1] + sums[2] != map->num_blocks - 1)
        fail_msg("a map with %llu blocks", (unsigned long long)(sums[0] + sums[1] + sums[2]));
    if (map->first_step != map->last_step || map->is_after_update ||
        quire_monitor_get_steps(w->monitor, map->last_step - 1, &step, 1) != 1 ||
        step.step != map->last_step)
        return;
    w->num_agreed++;
    if (sums[0] != step.num_empty || sums[1] != step.num_cached || sums[2] != step.num_active ||
        sums[3] != step.num_pinned_blocks)
        fail_msg("the map of step %llu", (unsigned long long)step.step);
}

static void *watch(void *user)
{
    static quire_map_cell mine[QUIRE_MAP_CELLS];
    watcher *w = user;
    uint64_t last = 0;
    while (!w->is_over) {
        quire_block_map map = QUIRE_BLOCK_MAP_INIT;
        if (quire_monitor_get_map(w->monitor, 0, &map, mine, QUIRE_MAP_CELLS) != QUIRE_OK)
            continue;
        if (map.last_step < last)
            fail_msg("step %llu after %llu", (unsigned long long)map.last_step,
                     (unsigned long long)last);
        w->num_seen += map.last_step > last;
        last = map.last_step;
        look_at_map(w, &map, mine);
    }
    return NULL;
}

static void other_threads_see_whole_maps(void **state)
{
    (void)state;
    quire_monitor_config monitor = monitor_with_maps(1);
    sched_kit kit;
    open_mapped(&kit, &monitor, NULL, 2);
    watcher w = {.monitor = quire_sched_get_monitor(kit.sched)};
    pthread_t thread;
    bool is_whole = is_whole_in_a_step(KIT_BLOCKS); /* the hostile build draws no map in one step */
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    for (uint32_t round = 0;
         round < 2000 ||
         ((w.num_seen < 200 || (is_whole && w.num_agreed < 100)) && round < 1000000);
         round++) {
        quire_req reqs[3];
        for (uint32_t i = 0; i < COUNT(reqs); i++) {
            char id[16];
            (void)snprintf(id, sizeof id, "%u-%u", round, i);
            reqs[i] = kit_add(&kit, id, 4 + 4 * ((round + i) % 3));
        }
        if (round % 2 == 0)
            quire_sched_pin(kit.sched, reqs[0], UINT64_MAX);
        clock_ns += MS;
        kit_run(&kit, 2);
        quire_sched_finish(kit.sched, reqs, COUNT(reqs), QUIRE_REQ_FINISHED_STOPPED, NULL);
        clock_ns += MS;
        kit_run(&kit, 1);
    }
    w.is_over = true;
    pthread_join(thread, NULL);
    assert_true(w.num_seen > 0);
    assert_true(!is_whole || w.num_agreed > 0);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_the_pools),
        cmocka_unit_test(a_large_map_is_not_held_up_by_rests),
        cmocka_unit_test(a_pool_that_changes_at_rest_is_drawn),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(maps_agree_with_their_step),
        cmocka_unit_test(the_last_map_is_of_an_idle_pool),
        cmocka_unit_test(maps_are_off_unless_asked_for),
        cmocka_unit_test(other_threads_see_whole_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a consumer of the KV events believes, tier by tier, and what is really there.
 *
 *      every step     events follow each other for each block: stored, removed, stored, ...
 *      now and then   a tier's view is what its slots have
 *      at the end     every block of a view can be loaded; a walk gives the same view */
#include "torture.h"

#include "tier/core/tier.h"

#include <quire/slots.h>

enum { HASH_BYTES = 32, LOADED_AT_ONCE = 64, MOST_SECONDS = 60 };

typedef struct view_block {
    bool is_held;
    uint32_t group;
    unsigned char hash[HASH_BYTES];
} view_block;

struct torture_view {
    view_block *blocks[QUIRE_MAX_TIERS];
    uint32_t num_blocks[QUIRE_MAX_TIERS]; /* 0: its events are not told */
};

/* ---- following ----------------------------------------------------------------- */

static torture_view *make_view(const quire_monitor *monitor)
{
    const quire_monitor_info *info = quire_monitor_get_info(monitor);
    torture_view *view = calloc(1, sizeof *view);
    assert_non_null(view);
    for (uint32_t i = 0; i < QUIRE_MAX_TIERS; i++) {
        view->num_blocks[i] = info->tier_blocks[i];
        view->blocks[i] = calloc(info->tier_blocks[i] + 1, sizeof(view_block));
        assert_non_null(view->blocks[i]);
    }
    return view;
}

static void free_view(torture_view *view)
{
    for (uint32_t i = 0; view != NULL && i < QUIRE_MAX_TIERS; i++)
        free(view->blocks[i]);
    free(view);
}

/* is_whole: it has all that there is; else blocks that were there before are removed too. */
static void take_block(torture_view *view, const quire_feed_event *e, uint32_t i, bool is_whole)
{
    const unsigned char *hash = e->hashes + (size_t)i * e->hash_bytes;
    assert_true(e->blocks[i] < view->num_blocks[e->tier]);
    view_block *block = &view->blocks[e->tier][e->blocks[i]];
    assert_int_equal(e->hash_bytes, HASH_BYTES);
    bool is_same = block->group == e->group_id && memcmp(block->hash, hash, HASH_BYTES) == 0;
    if (e->kind == QUIRE_FEED_REMOVED) {
        assert_true(block->is_held ? is_same : !is_whole);
        block->is_held = false;
        return;
    }
    assert_true(!block->is_held || (is_same && e->kind == QUIRE_FEED_PRESENT));
    block->is_held = true;
    block->group = e->group_id;
    memcpy(block->hash, hash, HASH_BYTES);
}

/* The number of the last walk that ended. */
static uint64_t take_events(quire_reader *reader, torture_view *view, bool is_whole)
{
    quire_feed_event e = QUIRE_FEED_EVENT_INIT;
    uint64_t walked = 0;
    int status;
    while ((status = quire_reader_next(reader, &e)) == QUIRE_OK) {
        if (e.kind == QUIRE_FEED_WALKED)
            walked = e.number;
        if (e.kind == QUIRE_FEED_CLEARED)
            memset(view->blocks[e.tier], 0, view->num_blocks[e.tier] * sizeof(view_block));
        bool is_told = e.kind == QUIRE_FEED_STORED || e.kind == QUIRE_FEED_PRESENT ||
                       e.kind == QUIRE_FEED_REMOVED;
        for (uint32_t i = 0; is_told && i < e.num_blocks; i++)
            if (e.blocks[i] != 0)
                take_block(view, &e, i, is_whole);
    }
    assert_int_equal(status, QUIRE_RETRY);
    return walked;
}

static void check_sums(const quire_monitor *monitor)
{
    quire_tier_usage tiers[QUIRE_MAX_TIERS];
    uint32_t n = quire_monitor_get_tiers(monitor, tiers, QUIRE_MAX_TIERS);
    for (uint32_t i = 0; i < n; i++) {
        const quire_usage *b = &tiers[i].blocks;
        assert_int_equal(b->total, b->empty + b->cached + b->active + b->null_blocks);
    }
}

void torture_open_events(torture *t)
{
    quire_monitor *monitor = quire_sched_get_monitor(t->sched);
    assert_int_equal(quire_reader_create(monitor, NULL, &t->reader), QUIRE_OK);
    t->view = make_view(monitor);
    if (quire_monitor_get_info(monitor)->has_content != 0) /* of the era before */
        (void)quire_monitor_ask_walk(monitor);
}

void torture_close_events(torture *t)
{
    quire_reader_destroy(t->reader);
    free_view(t->view);
    t->view = NULL;
}

void torture_follow(torture *t)
{
    check_sums(quire_sched_get_monitor(t->sched));
    if (take_events(t->reader, t->view, t->is_view_whole) > 0 ||
        quire_monitor_get_info(quire_sched_get_monitor(t->sched))->has_content == 0)
        t->is_view_whole = true;
}

/* ---- comparing ----------------------------------------------------------------- */

/* Tiers of the offload stand behind the GPU and the host pool. */
enum { FIRST_LOWER = 2 };

static void compare_slots(const torture *t, uint32_t tier)
{
    const quire_slots *slots = qr_tier_slots(t->tiers[tier]);
    const view_block *blocks = t->view->blocks[FIRST_LOWER + tier];
    uint32_t num_blocks = t->view->num_blocks[FIRST_LOWER + tier];
    if (slots == NULL) {
        assert_int_equal(num_blocks, 0);
        return;
    }
    assert_int_equal(num_blocks, quire_slots_usage(slots).total + 1);
    for (uint32_t i = 1; i < num_blocks; i++) {
        const quire_tier_key *key = quire_slots_key_at(slots, i - 1);
        assert_int_equal(blocks[i].is_held, key != NULL);
        if (key == NULL)
            continue;
        assert_int_equal(blocks[i].group, key->group);
        assert_memory_equal(blocks[i].hash, key->hash, HASH_BYTES);
    }
}

static void compare_pool(const torture *t, uint32_t place, const quire_pool *pool)
{
    const view_block *blocks = t->view->blocks[place];
    for (uint32_t i = 1; i < t->view->num_blocks[place]; i++) {
        quire_block_info info;
        assert_int_equal(quire_pool_get_block(pool, i, &info), QUIRE_OK);
        assert_int_equal(blocks[i].is_held, info.hash.len > 0);
        if (info.hash.len > 0)
            assert_memory_equal(blocks[i].hash, info.hash.data, HASH_BYTES);
    }
}

void torture_compare_events(torture *t)
{
    torture_follow(t);
    if (!t->is_view_whole)
        return;
    compare_pool(t, 0, quire_cache_get_pool(quire_sched_get_cache(t->sched)));
    compare_pool(t, 1, quire_cache_get_pool(quire_offload_cache(t->offload)));
    for (uint32_t i = 0; i < t->num_tiers; i++)
        compare_slots(t, i);
    t->compared++;
}

/* ---- at the end ---------------------------------------------------------------- */

static void run_job(quire_tier *tier, quire_tier_job *job)
{
    uint64_t since_ns = torture_now_ns();
    quire_tier_job *ended;
    int status;
    while ((status = quire_tier_submit(tier, job)) == QUIRE_BUSY) { /* its breaker */
        torture_sleep_us(1000);
        assert_true(torture_now_ns() - since_ns < MOST_SECONDS * UINT64_C(1000000000));
    }
    assert_int_equal(status, QUIRE_OK);
    while (quire_tier_poll(tier, &ended, 1) == 0) {
        torture_sleep_us(50);
        assert_true(torture_now_ns() - since_ns < MOST_SECONDS * UINT64_C(1000000000));
    }
    assert_ptr_equal(ended, job);
}

/* Loads all blocks of a view; returns how many are there. num_other: how many could not be loaded
 * since the tier failed. */
static uint32_t load_view(torture *t, uint32_t tier, unsigned char *memory, uint32_t *num_other)
{
    static quire_tier_io ios[LOADED_AT_ONCE];
    const view_block *blocks = t->view->blocks[FIRST_LOWER + tier];
    uint32_t num_done = 0;
    uint32_t n = 0;
    *num_other = 0;
    for (uint32_t i = 1; i <= t->view->num_blocks[FIRST_LOWER + tier]; i++) {
        bool is_end = i == t->view->num_blocks[FIRST_LOWER + tier];
        if (!is_end && blocks[i].is_held) {
            ios[n] = (quire_tier_io){.memory = memory + (size_t)n * TORTURE_BYTES,
                                     .bytes = TORTURE_BYTES};
            quire_tier_key_of((quire_bytes){blocks[i].hash, HASH_BYTES}, blocks[i].group, 0,
                              &ios[n].key);
            n++;
        }
        if (n == 0 || (n < LOADED_AT_ONCE && !is_end))
            continue;
        quire_tier_job job = {.op = QUIRE_TIER_LOAD, .num_ios = n, .ios = ios};
        run_job(t->tiers[tier], &job);
        for (uint32_t k = 0; k < n; k++) {
            num_done += ios[k].status == QUIRE_TIER_DONE;
            *num_other += ios[k].status != QUIRE_TIER_DONE && ios[k].status != QUIRE_TIER_MISSING &&
                          ios[k].status != QUIRE_TIER_WRONG;
        }
        n = 0;
    }
    return num_done;
}

static uint32_t count_held(const torture *t, uint32_t place)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < t->view->num_blocks[place]; i++)
        n += t->view->blocks[place][i].is_held;
    return n;
}

/* What others have deleted or damaged turns out when it is loaded, and is told then. After that
 * the view is what can be loaded. */
static void load_all(torture *t, uint32_t tier)
{
    uint64_t since_ns = torture_now_ns();
    unsigned char *memory = aligned_alloc(4096, (size_t)LOADED_AT_ONCE * TORTURE_BYTES);
    assert_non_null(memory);
    for (;;) {
        uint32_t num_other;
        uint32_t num_held = count_held(t, FIRST_LOWER + tier);
        uint32_t num_done = load_view(t, tier, memory, &num_other);
        torture_step(t, true); /* an update ends the batch of events */
        torture_compare_events(t);
        assert_int_equal(count_held(t, FIRST_LOWER + tier), num_done + num_other);
        t->loaded_blocks += num_done;
        if (num_done == num_held)
            break;
        assert_true(torture_now_ns() - since_ns < MOST_SECONDS * UINT64_C(1000000000));
    }
    free(memory);
}

/* One who comes late gets the same by a walk. */
static void walk_all(torture *t)
{
    quire_monitor *monitor = quire_sched_get_monitor(t->sched);
    torture_view *walked = make_view(monitor);
    quire_reader *reader;
    assert_int_equal(quire_reader_create(monitor, NULL, &reader), QUIRE_OK);
    uint64_t number = quire_monitor_ask_walk(monitor);
    uint64_t since_ns = torture_now_ns();
    while (take_events(reader, walked, false) < number) {
        torture_step(t, true);
        torture_follow(t);
        assert_true(torture_now_ns() - since_ns < MOST_SECONDS * UINT64_C(1000000000));
    }
    for (uint32_t place = 0; place < QUIRE_MAX_TIERS; place++)
        for (uint32_t i = 1; i < walked->num_blocks[place]; i++)
            assert_int_equal(walked->blocks[place][i].is_held, t->view->blocks[place][i].is_held);
    quire_reader_destroy(reader);
    free_view(walked);
}

void torture_end_events(torture *t)
{
    uint64_t since_ns = torture_now_ns();
    while (!t->is_view_whole) {
        torture_step(t, true);
        torture_follow(t);
        assert_true(torture_now_ns() - since_ns < MOST_SECONDS * UINT64_C(1000000000));
    }
    torture_compare_events(t);
    for (uint32_t i = 0; i < t->num_tiers; i++)
        if (t->view->num_blocks[FIRST_LOWER + i] > 0)
            load_all(t, i);
    walk_all(t);
}

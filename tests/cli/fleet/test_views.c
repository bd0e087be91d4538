/* test_views.c - what a router knows: the index of blocks, own decisions, active blocks and KV
 * events, each beside a naive one.
 *
 *      test_views [SEED]
 */
#include "base/unit.h"

#include "fleet/views/active_blocks.h"
#include "fleet/views/kv_feed.h"
#include "fleet/views/own_blocks.h"
#include "fleet/views/pair_map.h"
#include "fleet/views/view.h"

#include <math.h>

enum { NAMES = 40, WORKERS = 70 }; /* two words of a set, the second one part-filled */

static uint64_t seed;

/* ---- pair_map -------------------------------------------------------------- */

static void a_map_is_a_map(void **state)
{
    pair_map map = {0};
    uint32_t naive[NAMES][3];
    uint64_t random = seed;
    (void)state;
    memset(naive, 0xff, sizeof naive);
    assert_int_equal(pair_map_get(&map, 0, 0), PAIR_MAP_NONE);
    pair_map_remove(&map, 0, 0);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t name = unit_random_below(&random, NAMES);
        uint32_t worker = unit_random_below(&random, 3);
        if (unit_random_below(&random, 2) == 0) {
            assert_true(pair_map_set(&map, name, worker, i));
            naive[name][worker] = i;
        } else {
            pair_map_remove(&map, name, worker);
            naive[name][worker] = PAIR_MAP_NONE;
        }
        uint64_t used = 0;
        for (uint32_t n = 0; n < NAMES; n++) {
            for (uint32_t w = 0; w < 3; w++) {
                assert_int_equal(pair_map_get(&map, n, w), naive[n][w]);
                used += naive[n][w] != PAIR_MAP_NONE;
            }
        }
        assert_int_equal(map.num_used, used);
    }
    pair_map_free(&map);
}

/* ---- block_index ----------------------------------------------------------- */

typedef struct naive_index {
    bool has[NAMES][WORKERS];
} naive_index;

static void compare_index(const block_index *index, const naive_index *naive)
{
    uint64_t pairs = 0;
    for (uint32_t w = 0; w < WORKERS; w++) {
        uint64_t of = 0;
        for (uint32_t n = 0; n < NAMES; n++) {
            assert_int_equal(block_index_has(index, n, w), naive->has[n][w]);
            of += naive->has[n][w];
        }
        assert_int_equal(block_index_pairs_of(index, w), of);
        pairs += of;
    }
    assert_int_equal(block_index_pairs(index), pairs);
}

/* From no worker to all and back, so that rows pass from the slot to a set and back. */
static void random_change(block_index *index, naive_index *naive, uint64_t *random, uint32_t i)
{
    uint32_t name = unit_random_below(random, NAMES);
    uint32_t worker = unit_random_below(random, WORKERS);
    bool adds = unit_random_below(random, 10) < (i / 3000 % 2 == 0 ? 8 : 2);
    block_change change =
        adds ? block_index_add(index, name, worker) : block_index_remove(index, name, worker);
    assert_int_equal(change, naive->has[name][worker] == adds ? BLOCK_SAME : BLOCK_CHANGED);
    naive->has[name][worker] = adds;
}

static void an_index_is_a_table_of_bits(void **state)
{
    static naive_index naive;
    static naive_index other_naive;
    uint64_t random = seed;
    (void)state;
    memset(&naive, 0, sizeof naive);
    memset(&other_naive, 0, sizeof other_naive);
    block_index *index = block_index_open(WORKERS);
    block_index *other = block_index_open(WORKERS);
    for (uint32_t i = 0; i < 12000; i++) {
        random_change(index, &naive, &random, i);
        random_change(other, &other_naive, &random, i + 1500);
        uint32_t w = unit_random_below(&random, WORKERS);
        if (i % 97 == 0) {
            block_index_drop_worker(index, w);
            for (uint32_t n = 0; n < NAMES; n++)
                naive.has[n][w] = false;
        }
        if (i % 89 == 0) {
            assert_int_not_equal(block_index_copy_worker(index, other, w), BLOCK_NO_MEMORY);
            for (uint32_t n = 0; n < NAMES; n++)
                naive.has[n][w] = other_naive.has[n][w];
            assert_int_equal(block_index_copy_worker(index, other, w), BLOCK_SAME);
        }
        if (i % 50 == 0)
            compare_index(index, &naive);
    }
    compare_index(index, &naive);
    for (uint32_t w = 0; w < WORKERS; w++)
        block_index_drop_worker(index, w);
    assert_int_equal(block_index_pairs(index), 0);
    block_index_close(index);
    block_index_close(other);
}

/* Names come and end all the time, so that slots close gaps. */
static void names_end_with_their_last_worker(void **state)
{
    bool has[NAMES] = {false};
    uint64_t random = seed;
    (void)state;
    block_index *index = block_index_open(1);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t name = unit_random_below(&random, NAMES);
        has[name] = !has[name];
        assert_int_equal(has[name] ? block_index_add(index, name, 0)
                                   : block_index_remove(index, name, 0),
                         BLOCK_CHANGED);
        for (uint32_t n = 0; n < NAMES; n++)
            assert_int_equal(block_index_has(index, n, 0), has[n]);
    }
    block_index_close(index);
}

static router_hit naive_walk(const naive_index tiers[3], const uint64_t *names, uint32_t n,
                             uint32_t stride, uint32_t w)
{
    router_hit hit = {0};
    bool is_straight = true;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t name = names[(size_t)i * stride];
        bool gpu = tiers[0].has[name][w];
        bool host = tiers[1].has[name][w];
        if (!gpu && !host && !tiers[2].has[name][w])
            break;
        is_straight = is_straight && gpu;
        hit.leading += is_straight;
        if (gpu)
            hit.gpu++;
        else if (host)
            hit.host++;
        else
            hit.disk++;
    }
    return hit;
}

/* Tables that are dense in the first names: so hits are long, of many workers, and of few. */
static void fill_tier(block_index *index, naive_index *naive, uint64_t *random, uint32_t density)
{
    for (uint32_t n = 0; n < NAMES; n++) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            naive->has[n][w] = unit_random_below(random, 100) < density + w / 2;
            if (naive->has[n][w])
                assert_int_equal(block_index_add(index, n, w), BLOCK_CHANGED);
        }
    }
}

static void a_walk_finds_all_hits(void **state)
{
    static naive_index naive[3];
    static const uint32_t densities[][3] = {{0, 0, 0},   {60, 0, 0},  {90, 0, 0},   {99, 0, 0},
                                            {50, 50, 0}, {30, 0, 70}, {20, 60, 60}, {100, 0, 1}};
    uint64_t random = seed;
    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        block_index *tiers[3];
        const uint32_t *density = densities[round % COUNT(densities)];
        for (uint32_t t = 0; t < 3; t++) {
            memset(&naive[t], 0, sizeof naive[t]);
            tiers[t] = block_index_open(WORKERS);
            if (density[t] > 0)
                fill_tier(tiers[t], &naive[t], &random, density[t]);
        }
        uint64_t names[NAMES];
        uint32_t stride = 1 + round % 3;
        uint32_t n = unit_random_below(&random, NAMES / stride + 1);
        for (uint32_t i = 0; i < NAMES; i++)
            names[i] = unit_random_below(&random, NAMES);
        router_hit hits[WORKERS];
        uint32_t leading[WORKERS];
        block_index_walk((const block_index *const *)tiers, names, n, stride, hits);
        block_index_leading(tiers[0], names, n, stride, leading);
        for (uint32_t w = 0; w < WORKERS; w++) {
            router_hit expected = naive_walk(naive, names, n, stride, w);
            assert_memory_equal(&hits[w], &expected, sizeof expected);
            assert_int_equal(leading[w], expected.leading);
        }
        for (uint32_t t = 0; t < 3; t++)
            block_index_close(tiers[t]);
    }
}

/* ---- own_blocks ------------------------------------------------------------ */

static uint32_t own_leading(const own_blocks *own, const uint64_t *names, uint32_t n, uint32_t w)
{
    uint32_t leading[4];
    block_index_leading(own_blocks_index(own), names, n, 1, leading);
    return leading[w];
}

static void own_decisions_end_after_their_ttl(void **state)
{
    (void)state;
    const uint64_t names[] = {1, 2, 3, 4};
    own_blocks *own = own_blocks_open(4, 10, 0);
    assert_true(own_blocks_touch(own, 0, 1, names, 4, 1));
    assert_true(own_blocks_touch(own, 4, 1, names, 2, 1)); /* the first two live on */
    own_blocks_expire(own, 9.999);
    assert_int_equal(own_leading(own, names, 4, 1), 4);
    assert_int_equal(own_leading(own, names, 4, 0), 0);
    own_blocks_expire(own, 10); /* at its end a block is forgotten */
    assert_int_equal(own_leading(own, names, 4, 1), 2);
    own_blocks_expire(own, 13.999);
    assert_int_equal(own_leading(own, names, 4, 1), 2);
    own_blocks_expire(own, 14);
    assert_int_equal(own_leading(own, names, 4, 1), 0);
    assert_int_equal(block_index_pairs(own_blocks_index(own)), 0);
    own_blocks_close(own);
}

static void own_decisions_forget_the_oldest(void **state)
{
    (void)state;
    const uint64_t a[] = {1, 2, 3};
    const uint64_t b[] = {1, 5, 6};
    own_blocks *own = own_blocks_open(4, 0, 4);
    assert_true(own_blocks_touch(own, 0, 2, a, 3, 1));
    assert_true(own_blocks_touch(own, 1, 2, b, 3, 1)); /* 3, the end of a, is the oldest */
    assert_int_equal(own_leading(own, a, 3, 2), 2);
    assert_int_equal(own_leading(own, b, 3, 2), 3);
    assert_true(own_blocks_touch(own, 2, 3, a, 3, 1)); /* each worker has its own limit */
    assert_int_equal(own_leading(own, b, 3, 2), 3);
    assert_true(own_blocks_touch(own, 3, 2, a, 3, 1)); /* 6, then 5 would be next */
    assert_int_equal(own_leading(own, a, 3, 2), 3);
    assert_int_equal(own_leading(own, b, 3, 2), 2);
    own_blocks_expire(own, 1e9); /* no limit of time */
    assert_int_equal(own_leading(own, a, 3, 2), 3);
    own_blocks_drop_worker(own, 2);
    assert_int_equal(own_leading(own, a, 3, 2), 0);
    assert_int_equal(own_leading(own, a, 3, 3), 3);
    own_blocks_close(own);
}

/* ---- active_blocks --------------------------------------------------------- */

enum { PATHS = 12, LENGTH = 6, LIVE = 30 };

/* Prompts that share prefixes: a name stands for the block and all before it. */
static void make_path(uint64_t path[LENGTH], uint32_t number)
{
    for (uint32_t i = 0; i < LENGTH; i++)
        path[i] = 1 + number % (i + 2) + 100 * (i == 0 ? 0 : path[i - 1]);
}

static void active_blocks_are_counted_once(void **state)
{
    struct {
        bool is_live;
        uint32_t worker, path, length, last;
    } live[LIVE] = {0};
    uint64_t random = seed;
    (void)state;
    active_blocks *active = active_blocks_open(3);
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t i = unit_random_below(&random, LIVE);
        uint64_t path[LENGTH];
        if (live[i].is_live) {
            active_blocks_end(active, live[i].worker, live[i].last);
            live[i].is_live = false;
        } else {
            live[i].is_live = true;
            live[i].worker = unit_random_below(&random, 3);
            live[i].path = unit_random_below(&random, PATHS);
            live[i].length = unit_random_below(&random, LENGTH + 1);
            make_path(path, live[i].path);
            live[i].last = active_blocks_begin(active, live[i].worker, path, live[i].length);
            assert_int_equal(live[i].last == ACTIVE_NONE, live[i].length == 0);
        }
        uint32_t leading[3];
        uint64_t asked[LENGTH];
        make_path(asked, round % PATHS);
        active_blocks_leading(active, asked, LENGTH, leading);
        for (uint32_t w = 0; w < 3; w++) {
            pair_map different = {0};
            for (uint32_t k = 0; k < LIVE; k++) {
                make_path(path, live[k].path);
                for (uint32_t b = 0; live[k].is_live && live[k].worker == w && b < live[k].length;
                     b++)
                    assert_true(pair_map_set(&different, path[b], 0, 1));
            }
            uint32_t expected = 0;
            while (expected < LENGTH && pair_map_get(&different, asked[expected], 0) == 1)
                expected++;
            assert_int_equal(active_blocks_of(active, w), different.num_used);
            assert_int_equal(leading[w], expected);
            pair_map_free(&different);
        }
    }
    for (uint32_t i = 0; i < LIVE; i++)
        if (live[i].is_live)
            active_blocks_end(active, live[i].worker, live[i].last);
    assert_int_equal(active_blocks_runs(active), 0);
    active_blocks_close(active);
}

/* ---- kv_feed --------------------------------------------------------------- */

static void tell(kv_feed *feed, double time_s, uint32_t worker, router_kv_kind kind, uint64_t block)
{
    router_kv_event event = {time_s, worker, ROUTER_GPU, kind, &block, 1};
    assert_true(kv_feed_event(feed, &event));
}

static bool knows(const kv_feed *feed, uint32_t worker, uint64_t block)
{
    return block_index_has(kv_feed_tier(feed, ROUTER_GPU), block, worker);
}

static void events_arrive_after_their_lag(void **state)
{
    (void)state;
    kv_feed *feed = kv_feed_open(&(kv_feed_settings){.max_workers = 4, .lag_s = 0.5});
    tell(feed, 1, 2, ROUTER_KV_STORED, 7);
    tell(feed, 1.25, 2, ROUTER_KV_REMOVED, 7);
    tell(feed, 0.75, 3, ROUTER_KV_STORED, 7); /* another worker: its own order of times */
    assert_true(kv_feed_advance(feed, 1.25));
    assert_false(knows(feed, 2, 7));
    assert_true(knows(feed, 3, 7));
    assert_true(kv_feed_advance(feed, 1.5)); /* at 1 + 0.5 it is there */
    assert_true(knows(feed, 2, 7));
    assert_true(kv_feed_advance(feed, 1.75));
    assert_false(knows(feed, 2, 7));
    tell(feed, 2, 3, ROUTER_KV_STORED, 8);
    kv_feed_drop_worker(feed, 3); /* what is in flight is lost too */
    assert_true(kv_feed_advance(feed, 9));
    assert_false(knows(feed, 3, 7));
    assert_false(knows(feed, 3, 8));
    kv_feed_close(feed);
}

static void clears_and_tiers_are_apart(void **state)
{
    (void)state;
    const uint64_t blocks[] = {1, 2};
    kv_feed *feed = kv_feed_open(&(kv_feed_settings){.max_workers = 4});
    for (uint32_t t = 0; t < ROUTER_NUM_TIERS; t++)
        assert_true(kv_feed_event(
            feed, &(router_kv_event){1, 1, (router_tier)t, ROUTER_KV_STORED, blocks, 2}));
    assert_true(
        kv_feed_event(feed, &(router_kv_event){2, 1, ROUTER_HOST, ROUTER_KV_CLEARED, NULL, 0}));
    assert_int_equal(block_index_pairs(kv_feed_tier(feed, ROUTER_GPU)), 2);
    assert_int_equal(block_index_pairs(kv_feed_tier(feed, ROUTER_HOST)), 0);
    kv_feed_drop_worker(feed, 1);
    assert_int_equal(block_index_pairs(kv_feed_tier(feed, ROUTER_DISK)), 0);
    assert_int_equal(block_index_pairs(kv_feed_tier(feed, ROUTER_SHARED)), 2); /* of no worker */
    kv_feed_close(feed);
}

static router_view_stats events_of(const kv_feed *feed)
{
    router_view_stats stats = {0};
    kv_feed_count_events(feed, &stats);
    return stats;
}

/* Batches 1, 2, ... store blocks 1, 2, ...; the lost ones are those that a hearing feed lacks. */
static void lost_batches_are_gaps_and_resyncs_repair_them(void **state)
{
    (void)state;
    kv_feed *truth = kv_feed_open(&(kv_feed_settings){.max_workers = 2});
    kv_feed *deaf = kv_feed_open(&(kv_feed_settings){.max_workers = 2, .loss = 0.25, .seed = seed});
    kv_feed *repaired = kv_feed_open(&(kv_feed_settings){
        .max_workers = 2, .loss = 0.25, .seed = seed, .resync_s = 2, .truth = truth});
    uint32_t num_lost = 0;
    uint32_t num_gaps = 0;
    bool was_lost = false;
    for (uint32_t i = 1; i <= 4000; i++) {
        kv_feed *feeds[] = {truth, deaf, repaired};
        for (uint32_t f = 0; f < COUNT(feeds); f++)
            tell(feeds[f], i, 1, ROUTER_KV_STORED, i);
        bool is_lost = !knows(deaf, 1, i);
        num_lost += is_lost;
        num_gaps += was_lost && !is_lost; /* a row of lost batches is one gap */
        was_lost = is_lost;
        assert_true(kv_feed_advance(repaired, i));
    }
    assert_true(num_lost > 900 && num_lost < 1100);
    assert_int_equal(events_of(deaf).kv_lost, num_lost);
    assert_int_equal(events_of(deaf).gaps, num_gaps);
    assert_int_equal(events_of(deaf).resyncs, 0);
    assert_true(events_of(repaired).resyncs > 0);
    assert_true(events_of(repaired).resyncs <= num_gaps);
    /* Two seconds after the last gap all is known again; without a resync it never is. */
    for (uint32_t i = 1; i <= 3; i++)
        assert_true(kv_feed_advance(repaired, 4000 + i));
    uint32_t num_unknown = 0;
    for (uint32_t i = 1; i <= 4000; i++)
        num_unknown += !knows(repaired, 1, i);
    assert_true(num_unknown <= (was_lost ? 16 : 0)); /* lost at the end: no gap was seen yet */
    kv_feed_close(truth);
    kv_feed_close(deaf);
    kv_feed_close(repaired);
}

/* Whether of the first n batches of worker 0 exactly number `lost` is lost. */
static bool loses_only(uint64_t with_seed, uint32_t n, uint32_t lost)
{
    kv_feed *feed =
        kv_feed_open(&(kv_feed_settings){.max_workers = 1, .loss = 0.5, .seed = with_seed});
    bool is_so = true;
    for (uint32_t i = 0; i < n; i++) {
        tell(feed, i, 0, ROUTER_KV_STORED, i);
        is_so = is_so && knows(feed, 0, i) == (i != lost);
    }
    kv_feed_close(feed);
    return is_so;
}

/* A removal is lost, the next batch shows it, and the resync comes 2 s later, not before. Batches
 * in flight are older than the resync, and are no gap. */
static void a_resync_takes_its_time(void **state)
{
    (void)state;
    uint64_t chosen = 0;
    while (!loses_only(chosen, 5, 1))
        chosen++;
    kv_feed *truth = kv_feed_open(&(kv_feed_settings){.max_workers = 1});
    kv_feed *feed = kv_feed_open(&(kv_feed_settings){.max_workers = 1,
                                                     .lag_s = 0.5,
                                                     .loss = 0.5,
                                                     .resync_s = 2,
                                                     .truth = truth,
                                                     .seed = chosen});
    tell(truth, 0, 0, ROUTER_KV_STORED, 8);
    tell(feed, 0, 0, ROUTER_KV_STORED, 7);
    tell(feed, 1, 0, ROUTER_KV_REMOVED, 7);
    tell(feed, 2, 0, ROUTER_KV_STORED, 8);
    assert_true(kv_feed_advance(feed, 2.5));
    assert_true(knows(feed, 0, 7) && knows(feed, 0, 8));
    assert_int_equal(events_of(feed).gaps, 1);
    tell(feed, 4.25, 0, ROUTER_KV_STORED, 9); /* removed again before the resync reads */
    assert_true(kv_feed_advance(feed, 4.499));
    assert_true(knows(feed, 0, 7));
    assert_true(kv_feed_advance(feed, 4.5));
    assert_false(knows(feed, 0, 7));
    assert_true(knows(feed, 0, 8));
    assert_int_equal(events_of(feed).resyncs, 1);
    assert_true(kv_feed_advance(feed, 5));
    assert_false(knows(feed, 0, 9));
    tell(feed, 6, 0, ROUTER_KV_STORED, 10);
    assert_true(kv_feed_advance(feed, 6.5));
    assert_true(knows(feed, 0, 10));
    assert_int_equal(events_of(feed).gaps, 1);
    kv_feed_close(feed);
    kv_feed_close(truth);
}

/* Whether a batch is lost does not depend on the batches of other workers. */
static void loss_depends_on_the_worker_alone(void **state)
{
    (void)state;
    kv_feed_settings settings = {.max_workers = 2, .loss = 0.5, .seed = seed};
    kv_feed *a = kv_feed_open(&settings);
    kv_feed *b = kv_feed_open(&settings);
    for (uint32_t i = 0; i < 100; i++) {
        tell(a, i, 0, ROUTER_KV_STORED, i);
        tell(a, i, 1, ROUTER_KV_STORED, i);
    }
    for (uint32_t i = 0; i < 100; i++)
        tell(b, i, 1, ROUTER_KV_STORED, i);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(knows(a, 1, i), knows(b, 1, i));
    kv_feed_close(a);
    kv_feed_close(b);
}

/* ---- view ------------------------------------------------------------------ */

/* The longer of both indexes; blocks of lower tiers that the router's own decisions cover count as
 * computed again. */
static void the_longer_index_counts(void **state)
{
    (void)state;
    const router_policy policy = {.name = "any"};
    const uint64_t blocks[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const router_request request = {
        .blocks = blocks, .num_blocks = 8, .block_size = 16, .num_prompt_tokens = 128};
    const router_request start = {
        .blocks = blocks, .num_blocks = 4, .block_size = 16, .num_prompt_tokens = 64};
    kv_feed *feed = kv_feed_open(&(kv_feed_settings){.max_workers = 2});
    view v;
    view_settings settings = {.policy = &policy, .max_workers = 2, .block_size = 16, .feed = feed};
    settings.knows.knowledge = (router_knowledge){.index = ROUTER_INDEX_BOTH, .ttl_s = 2};
    assert_true(view_open(&v, &settings));
    for (uint32_t w = 0; w < 2; w++)
        view_join(&v, 0, w, &(router_worker_info){ROUTER_SERVE, 100, 1000, 0});
    assert_true(
        kv_feed_event(feed, &(router_kv_event){0, 1, ROUTER_GPU, ROUTER_KV_STORED, blocks, 3}));
    assert_true(kv_feed_event(
        feed, &(router_kv_event){0, 1, ROUTER_HOST, ROUTER_KV_STORED, blocks + 3, 2}));
    assert_true(kv_feed_event(
        feed, &(router_kv_event){0, 1, ROUTER_DISK, ROUTER_KV_STORED, blocks + 5, 2}));
    view_look(&v, &request);
    assert_memory_equal(&v.hits[1], (&(router_hit){3, 2, 2, 3}), sizeof(router_hit));
    view_flight flight = view_begin(&v, 1, 1, ROUTER_SERVE, &start);
    view_look(&v, &request);
    assert_memory_equal(&v.hits[1], (&(router_hit){4, 1, 2, 4}), sizeof(router_hit));
    assert_memory_equal(&v.hits[0], (&(router_hit){0, 0, 0, 0}), sizeof(router_hit));
    view_advance(&v, 3, NULL); /* own decisions end */
    view_look(&v, &request);
    assert_memory_equal(&v.hits[1], (&(router_hit){3, 2, 2, 3}), sizeof(router_hit));
    view_end(&v, &flight);
    view_close(&v);
    kv_feed_close(feed);
}

/* Of requests whose prompt another worker computes each one has its own blocks. */
static void decode_requests_share_no_blocks(void **state)
{
    (void)state;
    const router_policy policy = {.needs = ROUTER_NEEDS_ACTIVE};
    const uint64_t blocks[4] = {1, 2, 3, 4};
    const router_request request = {
        .blocks = blocks, .num_blocks = 4, .block_size = 16, .num_prompt_tokens = 64};
    const router_role roles[4] = {ROUTER_SERVE, ROUTER_DECODE, ROUTER_SERVE, ROUTER_DECODE};
    const uint64_t active[4] = {4, 8, 8, 12};
    view_flight flights[4];
    view v;
    view_settings settings = {.policy = &policy, .max_workers = 2, .block_size = 16};
    assert_true(view_open(&v, &settings));
    view_join(&v, 0, 1, &(router_worker_info){ROUTER_DECODE, 100, 1000, 0});
    for (uint32_t i = 0; i < 4; i++) {
        flights[i] = view_begin(&v, i, 1, roles[i], &request);
        assert_int_equal(v.workers[1].active_blocks, active[i]);
    }
    view_look(&v, &request);
    assert_int_equal(v.active_hits[1], 4);
    const uint64_t left[4] = {12, 8, 4, 0};
    for (uint32_t i = 0; i < 4; i++) {
        view_end(&v, &flights[i]);
        view_end(&v, &flights[i]); /* changes nothing */
        assert_int_equal(v.workers[1].active_blocks, left[i]);
    }
    assert_int_equal(v.workers[0].active_blocks, 0);
    view_close(&v);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_is_a_map),
        cmocka_unit_test(an_index_is_a_table_of_bits),
        cmocka_unit_test(names_end_with_their_last_worker),
        cmocka_unit_test(a_walk_finds_all_hits),
        cmocka_unit_test(own_decisions_end_after_their_ttl),
        cmocka_unit_test(own_decisions_forget_the_oldest),
        cmocka_unit_test(active_blocks_are_counted_once),
        cmocka_unit_test(events_arrive_after_their_lag),
        cmocka_unit_test(clears_and_tiers_are_apart),
        cmocka_unit_test(lost_batches_are_gaps_and_resyncs_repair_them),
        cmocka_unit_test(a_resync_takes_its_time),
        cmocka_unit_test(loss_depends_on_the_worker_alone),
        cmocka_unit_test(the_longer_index_counts),
        cmocka_unit_test(decode_requests_share_no_blocks),
    };
    seed = unit_seed(argc, argv, 28);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

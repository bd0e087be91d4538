/* cli/test_tiers.c - the simulated links, device and tiers of a replay: what takes how long, what
 * is where. The whole of it, with scheduler and offload: test_tiers.py. */
#include "base/unit.h"
#include "options/tiers_options.h"
#include "output/failure.h"
#include "tiers/device.h"
#include "tiers/sim.h"

#include <string.h>

/* ---- links -------------------------------------------------------------------- */

static void one_behind_the_other(void **state)
{
    (void)state;
    tiers_queue q;
    int jobs[3];
    assert_true(tiers_queue_init(&q, 2, 1e9, 100e-9)); /* a byte a nanosecond */
    assert_int_equal(tiers_queue_next_ns(&q), UINT64_MAX);
    tiers_queue_put(&q, &jobs[0], 1000, 50);
    tiers_queue_put(&q, &jobs[1], 1000, 30);
    assert_true(tiers_queue_is_full(&q));
    assert_int_equal(tiers_queue_next_ns(&q), 1150);
    assert_null(tiers_queue_take(&q, 1149));
    assert_ptr_equal(tiers_queue_take(&q, 1150), &jobs[0]);
    assert_int_equal(tiers_queue_next_ns(&q), 1180); /* latencies overlap, bytes do not */
    tiers_queue_put_failed(&q, &jobs[2], 1100);
    assert_ptr_equal(tiers_queue_take(&q, 1180), &jobs[1]);
    assert_ptr_equal(tiers_queue_take(&q, 1180), &jobs[2]);
    assert_null(tiers_queue_take(&q, UINT64_MAX));
    tiers_queue_delay(&q, 2000, 500);
    tiers_queue_put(&q, &jobs[0], 2000, 50);
    assert_int_equal(tiers_queue_next_ns(&q), 2650);
    tiers_queue_free(&q);
}

static void dice_are_fair_and_the_same(void **state)
{
    (void)state;
    uint64_t one = 0;
    uint64_t other = 0;
    uint32_t low = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        double value = tiers_dice(&one);
        assert_true(value >= 0 && value < 1);
        assert_true(value == tiers_dice(&other));
        low += value < 0.25;
    }
    assert_in_range(low, 2300, 2700);
}

/* ---- the device ---------------------------------------------------------------- */

typedef struct clock_state {
    uint64_t now_ns;
    uint64_t compute_end_ns;
} clock_state;

static uint64_t now_of(void *user)
{
    const clock_state *c = user;
    return c->now_ns;
}

static uint64_t compute_end_of(void *user)
{
    const clock_state *c = user;
    return c->compute_end_ns;
}

static void make_device(tiers_device *d, clock_state *clock, double failures)
{
    *d = (tiers_device){.block_bytes = 100,
                        .failures = failures,
                        .user = clock,
                        .now_ns = now_of,
                        .compute_end_ns = compute_end_of};
    assert_true(tiers_queue_init(&d->stores, 4, 1e9, 0));
    assert_true(tiers_queue_init(&d->loads, 4, 1e9, 0));
    tiers_device_init(d);
}

static void copies_wait_for_the_mark(void **state)
{
    (void)state;
    clock_state clock = {.now_ns = 1000, .compute_end_ns = 5000};
    tiers_device d;
    make_device(&d, &clock, 0);
    quire_device_copy copies[3] = {{.block = 1}, {.block = 2}, {.block = 3}};
    quire_device_job store = {.op = QUIRE_DEVICE_STORE, .num_copies = 3, .copies = copies};
    quire_device_job load = {.op = QUIRE_DEVICE_LOAD, .num_copies = 2, .copies = copies};
    quire_device_job *done[4];
    const quire_device_ops *ops = d.device.ops;
    assert_int_equal(ops->mark(&d, &store.after), QUIRE_OK);
    assert_int_equal(store.after, 5000);
    load.after = store.after;
    assert_int_equal(ops->submit(&d, &store), QUIRE_OK);
    assert_int_equal(ops->submit(&d, &load), QUIRE_OK);
    assert_int_equal(tiers_device_next_ns(&d), 5200); /* both links at one time */
    clock.now_ns = 5199;
    assert_int_equal(ops->poll(&d, done, 4), 0);
    clock.now_ns = 5300;
    assert_int_equal(ops->poll(&d, done, 4), 2);
    assert_ptr_equal(done[0], &load);
    assert_ptr_equal(done[1], &store);
    assert_int_equal(store.status, QUIRE_OK);
    assert_int_equal(d.in_blocks, 3);
    assert_int_equal(d.out_blocks, 2);
    tiers_device_free(&d);
}

static void copies_that_fail(void **state)
{
    (void)state;
    clock_state clock = {.now_ns = 1000};
    tiers_device d;
    make_device(&d, &clock, 0.999999);
    quire_device_job store = {.op = QUIRE_DEVICE_STORE, .num_copies = 3};
    quire_device_job *done[4];
    assert_int_equal(d.device.ops->submit(&d, &store), QUIRE_OK);
    assert_int_equal(d.device.ops->poll(&d, done, 4), 1);
    assert_int_equal(store.status, QUIRE_E_SYSTEM);
    assert_int_equal(d.failed_blocks, 3);
    assert_int_equal(d.in_blocks, 0);
    d.failures = 1;
    assert_int_equal(d.device.ops->submit(&d, &store), QUIRE_E_SYSTEM);
    assert_int_equal(d.device.ops->poll(&d, done, 4), 0);
    tiers_device_free(&d);
}

/* ---- a tier -------------------------------------------------------------------- */

typedef struct tier_state {
    clock_state clock;
    quire_tier *tier;
    tiers_sim *sim;
} tier_state;

static int no_random(void *user, void *out, size_t bytes)
{
    (void)user;
    memset(out, 7, bytes);
    return 0;
}

/* Four slots of 1,000 bytes, a byte a nanosecond, 100 ns of latency. */
static void open_tier(tier_state *t, tiers_kind kind, double failures)
{
    fail_with("%s", "");
    tiers_lower lower = {.kind = kind, .bytes = 4000, .bytes_per_s = 1e9, .latency_s = 100e-9};
    *t = (tier_state){.clock.now_ns = 1000};
    tiers_sim_config config = {
        .lower = &lower,
        .num_slots = 4,
        .block_bytes = 1000,
        .failures = failures,
        .hooks = {.user = &t->clock, .now_ns = now_of, .random_bytes = no_random}};
    assert_int_equal(tiers_sim_open(&config, &t->tier, &t->sim), QUIRE_OK);
    assert_string_equal(failure(), "");
}

typedef struct one_job {
    quire_tier_job job;
    quire_tier_io ios[4];
} one_job;

static void submit(tier_state *t, one_job *j, quire_tier_op op, uint32_t first, uint32_t n)
{
    *j = (one_job){.job = {.op = op, .num_ios = n, .ios = j->ios}};
    for (uint32_t i = 0; i < n; i++) {
        unsigned char hash[16] = {(unsigned char)(first + i)};
        quire_tier_key_of((quire_bytes){hash, sizeof hash}, 0, 0, &j->ios[i].key);
        j->ios[i].bytes = 1000;
    }
    assert_int_equal(quire_tier_submit(t->tier, &j->job), QUIRE_OK);
}

static uint32_t poll_at(tier_state *t, uint64_t now_ns)
{
    quire_tier_job *jobs[8];
    t->clock.now_ns = now_ns;
    return quire_tier_poll(t->tier, jobs, 8);
}

static void stored_and_loaded(void **state)
{
    (void)state;
    tier_state t;
    one_job store;
    one_job load;
    open_tier(&t, TIERS_FILE, 0);
    submit(&t, &load, QUIRE_TIER_LOAD, 1, 1);
    assert_int_equal(poll_at(&t, 1000), 1); /* that it is not there is known at once */
    assert_int_equal(load.ios[0].status, QUIRE_TIER_MISSING);
    submit(&t, &store, QUIRE_TIER_STORE, 1, 4);
    assert_int_equal(tiers_sim_next_ns(t.sim), 1000 + 4000 + 100);
    assert_int_equal(poll_at(&t, 5099), 0);
    assert_int_equal(poll_at(&t, 5100), 1);
    assert_int_equal(store.ios[3].status, QUIRE_TIER_DONE);
    uint8_t found[4];
    quire_tier_key keys[4];
    for (uint32_t i = 0; i < 4; i++)
        keys[i] = store.ios[i].key;
    quire_tier_lookup(t.tier, keys, 4, found);
    assert_memory_equal(found, "\1\1\1\1", 4);
    submit(&t, &load, QUIRE_TIER_LOAD, 2, 2);
    assert_int_equal(poll_at(&t, 5100 + 2099), 0);
    assert_int_equal(poll_at(&t, 5100 + 2100), 1);
    assert_int_equal(load.ios[1].status, QUIRE_TIER_DONE);
    assert_int_equal(quire_tier_touch(t.tier, keys + 1, 2), QUIRE_OK);
    submit(&t, &store, QUIRE_TIER_STORE, 11, 2); /* full: the two used longest ago go */
    assert_int_equal(poll_at(&t, 100000), 1);
    quire_tier_lookup(t.tier, keys, 4, found);
    assert_memory_equal(found, "\0\1\1\0", 4);
    assert_int_equal(quire_tier_close(t.tier), QUIRE_OK);
}

static void loads_go_before_stores(void **state)
{
    (void)state;
    tier_state t;
    one_job first;
    one_job load;
    one_job second;
    open_tier(&t, TIERS_FILE, 0);
    submit(&t, &first, QUIRE_TIER_STORE, 1, 1);
    assert_int_equal(poll_at(&t, 10000), 1);
    submit(&t, &first, QUIRE_TIER_STORE, 2, 2);
    submit(&t, &load, QUIRE_TIER_LOAD, 1, 1);
    assert_int_equal(tiers_sim_next_ns(t.sim), 10000 + 1000 + 100);
    submit(&t, &second, QUIRE_TIER_STORE, 5,
           1); /* behind 2,000 bytes of stores, 1,000 of the load */
    assert_int_equal(poll_at(&t, 11100), 1);
    assert_int_equal(load.ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(poll_at(&t, 12100), 1);
    assert_int_equal(poll_at(&t, 14099), 0);
    assert_int_equal(poll_at(&t, 14100), 1);
    assert_int_equal(quire_tier_close(t.tier), QUIRE_OK);
}

static void redis_is_asked(void **state)
{
    (void)state;
    tier_state t;
    one_job j;
    uint8_t found[1] = {9};
    open_tier(&t, TIERS_REDIS, 0);
    submit(&t, &j, QUIRE_TIER_STORE, 1, 1);
    assert_int_equal(poll_at(&t, 10000), 1);
    quire_tier_lookup(t.tier, &j.ios[0].key, 1, found);
    assert_int_equal(found[0], 2);
    submit(&t, &j, QUIRE_TIER_FIND, 1, 2);
    assert_int_equal(poll_at(&t, 10099), 0);
    assert_int_equal(poll_at(&t, 10100), 1);
    assert_int_equal(j.ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(j.ios[1].status, QUIRE_TIER_MISSING);
    assert_int_equal(quire_tier_close(t.tier), QUIRE_OK);
}

static void all_jobs_fail(void **state)
{
    (void)state;
    tier_state t;
    one_job j;
    open_tier(&t, TIERS_FILE, 1);
    submit(&t, &j, QUIRE_TIER_STORE, 1, 3);
    assert_int_equal(poll_at(&t, 1000), 1);
    assert_int_equal(j.ios[2].status, QUIRE_TIER_FAILED);
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(quire_tier_get_stats(t.tier, &stats), QUIRE_OK);
    assert_int_equal(stats.usage.empty, 4);
    assert_int_equal(quire_tier_close(t.tier), QUIRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_behind_the_other),     cmocka_unit_test(dice_are_fair_and_the_same),
        cmocka_unit_test(copies_wait_for_the_mark), cmocka_unit_test(copies_that_fail),
        cmocka_unit_test(stored_and_loaded),        cmocka_unit_test(loads_go_before_stores),
        cmocka_unit_test(redis_is_asked),           cmocka_unit_test(all_jobs_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

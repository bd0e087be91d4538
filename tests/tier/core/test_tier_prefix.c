/* tier/core/test_tier_prefix.c - a FIND of a prefix: the runner asks for a few keys first, for
 * more if
 * they are there, and stops at the first that is not. */
#include "tier_kit.h"

enum { MOST = 600 };

static quire_tier_io ios[MOST];
static quire_tier_job job;

static void fill(uint32_t num_ios)
{
    memset(&job, 0, sizeof job);
    job.op = QUIRE_TIER_FIND;
    job.is_prefix = 1;
    job.num_ios = num_ios;
    job.ios = ios;
    for (uint32_t i = 0; i < num_ios; i++) {
        memset(&ios[i], 0xcd, sizeof ios[i]);
        ios[i].key = faulty_key(i);
    }
}

/* Keys [0, num_keys), but for one. */
static void store(kit *k, uint32_t num_keys, uint32_t gap)
{
    static kit_job jobs[MOST];
    uint32_t num_jobs = 0;
    for (uint32_t key = 0; key < num_keys; key++)
        if (key != gap)
            kit_submit(k, &jobs[num_jobs++], QUIRE_TIER_STORE, key, 1);
    while (num_jobs-- > 0)
        assert_int_equal(kit_wait(k)->ios[0].status, QUIRE_TIER_DONE);
}

static uint32_t count(quire_tier_status status)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job.num_ios; i++)
        n += ios[i].status == status;
    return n;
}

static void open_shared(kit *k, uint32_t variant, uint32_t num_keys, uint32_t gap)
{
    memset(k, 0, sizeof *k);
    k->faults = (faulty_config){.is_shared = true, .max_keys = MOST, .seed = variant};
    k->config.run_inline = (variant & 1) != 0 ? QUIRE_ON : QUIRE_OFF;
    k->config.max_jobs = MOST;
    assert_int_equal(kit_open(k), QUIRE_OK);
    store(k, num_keys, gap);
    faulty_set_delay(k->part, (variant & 2) != 0 ? 3 : 0);
}

/* Asked: 1, 4, 16, 64, ... keys, until one is not there. */
static void stops_at_the_first_gap(void **state)
{
    static const struct {
        uint32_t gap;
        uint32_t asked;
        uint32_t begins;
    } CASES[] = {{0, 1, 1},   {1, 5, 2},     {4, 5, 2},     {5, 21, 3},
                 {20, 21, 3}, {100, 341, 5}, {341, 600, 6}, {MOST, 600, 6}};
    (void)state;
    for (uint32_t i = 0; i < 4 * sizeof CASES / sizeof CASES[0]; i++) {
        uint32_t gap = CASES[i / 4].gap;
        kit k;
        open_shared(&k, i % 4, MOST, gap);
        uint64_t begun = faulty_num_begun(k.part);
        fill(MOST);
        assert_int_equal(quire_tier_submit(k.tier, &job), QUIRE_OK);
        assert_ptr_equal(kit_wait(&k), &job);
        assert_int_equal(job.num_ios, MOST);
        assert_int_equal(count(QUIRE_TIER_DONE), CASES[i / 4].asked - (gap < MOST));
        assert_int_equal(count(QUIRE_TIER_MISSING), gap < MOST);
        assert_int_equal(count(QUIRE_TIER_CANCELLED), MOST - CASES[i / 4].asked);
        assert_int_equal(faulty_num_begun(k.part) - begun, CASES[i / 4].begins);
        assert_int_equal(kit_stats(&k).bad_ends, 0);
        assert_int_equal(kit_stats(&k).health, QUIRE_TIER_CLOSED);
        kit_close(&k);
    }
}

/* What is known before is not asked for, and a gap there stops it too. */
static void known_answers(void **state)
{
    (void)state;
    kit k = {.faults.max_keys = MOST};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    store(&k, 100, MOST);
    fill(MOST);
    assert_int_equal(quire_tier_submit(k.tier, &job), QUIRE_OK);
    assert_ptr_equal(kit_wait(&k), &job);
    assert_int_equal(count(QUIRE_TIER_DONE), 100);
    assert_int_equal(count(QUIRE_TIER_MISSING), MOST - 100);
    kit_close(&k);
}

/* Cancelled in any part, or late: it ends, once, and the caller's job is not changed meanwhile. */
static void cancelled_in_between(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        kit k;
        open_shared(&k, i % 4, 40, MOST);
        fill(40);
        faulty_set(k.part, FAULTY_HOLD, i / 4 * 50);
        job.deadline_ns = i % 3 == 0 ? kit_true_now() + 1000000 : 0;
        assert_int_equal(quire_tier_submit(k.tier, &job), QUIRE_OK);
        for (uint32_t n = 0; n < i; n++)
            assert_int_equal(job.num_ios, 40);
        (void)quire_tier_cancel(k.tier, &job);
        faulty_set(k.part, FAULTY_HOLD, 0);
        faulty_release(k.part);
        assert_ptr_equal(kit_wait(&k), &job);
        assert_int_equal(count(QUIRE_TIER_PENDING), 0);
        assert_int_equal(count(QUIRE_TIER_DONE) + count(QUIRE_TIER_CANCELLED), 40);
        kit_nothing_comes(&k);
        kit_close(&k);
    }
}

/* Ends that come twice, strays, statuses that there are not, failures: each job comes back once,
 * and no key counts as found behind one that is not, but for those of the same part. */
static void faults(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        kit k;
        open_shared(&k, i, 60, MOST);
        faulty_set_all(k.part, 40);
        fill(60);
        if (quire_tier_submit(k.tier, &job) != QUIRE_OK) {
            kit_close(&k);
            continue;
        }
        assert_ptr_equal(kit_wait(&k), &job);
        kit_nothing_comes(&k);
        uint32_t part_end = 1;
        uint32_t first_gap = 0;
        while (first_gap < 60 && ios[first_gap].status == QUIRE_TIER_DONE)
            first_gap++;
        while (part_end <= first_gap)
            part_end = 4 * part_end + 1;
        for (uint32_t at = part_end; at < 60; at++)
            assert_int_equal(ios[at].status, QUIRE_TIER_CANCELLED);
        kit_close(&k);
    }
}

/* Closed while parts are under way. */
static void closed_in_between(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        kit k;
        open_shared(&k, i, 40, MOST);
        fill(40);
        faulty_set_delay(k.part, 5);
        assert_int_equal(quire_tier_submit(k.tier, &job), QUIRE_OK);
        assert_int_equal(quire_tier_close(k.tier), QUIRE_OK);
        assert_int_equal(count(QUIRE_TIER_PENDING), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_at_the_first_gap), cmocka_unit_test(known_answers),
        cmocka_unit_test(cancelled_in_between),   cmocka_unit_test(faults),
        cmocka_unit_test(closed_in_between),
    };
    return cmocka_run_group_tests_name("a FIND of a prefix", tests, NULL, NULL);
}

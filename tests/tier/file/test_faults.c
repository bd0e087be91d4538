/* tier/file/test_faults.c - each way a disk can fail, one after the other and all at once.
 *
 * Whatever it does: no byte comes back that was not stored, each job ends once, the tier works
 * again when the disk does, and what it wrote meanwhile is safe to read in the next life.
 *
 *      tier_file_faults [--steps N] [--seeds N] [--seed N]
 */
#include "tier/file/crowd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 24 };

static uint32_t num_steps = 40;
static uint32_t num_seeds = 1;
static uint64_t first_seed = 1;

typedef struct fault_case {
    disk_fault fault;
    uint32_t reads; /* 1: reads alone, 2: writes alone */
    uint32_t one_in;
} fault_case;

static void check_recovers(crowd *c, file_disk *disk)
{
    disk->one_in = 0;
    disk->is_let_go = true;
    assert_int_equal(crowd_wait(c, 20000), 0);
    (void)crowd_load_all(c); /* forgets what is wrong */
    for (uint32_t i = 0; i < 20; i++)
        crowd_step(c, false);
    assert_int_equal(crowd_wait(c, 20000), 0);
    memset(c->statuses, 0, sizeof c->statuses);
    uint64_t found = crowd_load_all(c);
    assert_true(found != 0);
    assert_int_equal(c->statuses[QUIRE_TIER_LOAD][QUIRE_TIER_FAILED], 0);
}

static void check_next_life(crowd *c, file_disk *disk)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    quire_tier_get_stats(c->tier, &stats);
    assert_int_equal(stats.bad_ends, 0);
    assert_int_equal(stats.usage.active, 0); /* nobody uses a slot any more */
    assert_int_equal(quire_tier_close(c->tier), QUIRE_OK);
    int status = crowd_open(c, disk);
    if (status != QUIRE_OK) /* a write of its first pages may have gone astray */
        assert_int_equal(status, QUIRE_E_CORRUPT);
    if (status != QUIRE_OK)
        return;
    (void)crowd_load_all(c);
    assert_int_equal(quire_tier_close(c->tier), QUIRE_OK);
}

static void run_case(const fault_case *with, uint64_t seed)
{
    static crowd c;
    static file_disk disk;
    crowd_init(&c, SLOTS, seed);
    disk_init(&disk, c.config.capacity_bytes + 4096, seed);
    assert_int_equal(crowd_open(&c, &disk), QUIRE_OK);
    disk.fault = with->fault;
    disk.reads = with->reads;
    disk.one_in = with->one_in;
    for (uint32_t i = 0; i < num_steps; i++) {
        if (with->fault == DISK_FAULTS) /* all of them, in turn */
            disk.fault = (disk_fault)(i % DISK_NEVER);
        crowd_step(&c, i > num_steps / 2);
    }
    assert_true(disk.num_faults > 0);
    check_recovers(&c, &disk);
    check_next_life(&c, &disk);
    disk_free(&disk);
    crowd_free(&c);
}

static void test_fault(void **state)
{
    for (uint64_t seed = first_seed; seed < first_seed + num_seeds; seed++)
        run_case(*state, seed);
}

/* A tier whose disk hangs closes in bounded time, and says that its memory is still lent. */
static void test_hung_close(void **state)
{
    static crowd c;
    static file_disk disk;
    (void)state;
    crowd_init(&c, SLOTS, 5);
    disk_init(&disk, c.config.capacity_bytes + 4096, 5);
    assert_int_equal(crowd_open(&c, &disk), QUIRE_OK);
    disk.fault = DISK_NEVER;
    disk.one_in = 4;
    for (uint32_t i = 0; i < 20; i++)
        crowd_step(&c, false);
    assert_true(crowd_wait(&c, 100) > 0);
    assert_int_equal(quire_tier_close(c.tier), QUIRE_BUSY);
    disk.is_let_go = true;
    disk.one_in = 0;
    assert_int_equal(quire_tier_close(c.tier), QUIRE_OK);
    disk_free(&disk);
    crowd_free(&c);
}

/* Every op of opening fails once, in every way: an error or a tier, nothing else. */
static void test_faults_while_opening(void **state)
{
    static crowd c;
    static file_disk disk;
    uint32_t num_refused = 0;
    (void)state;
    crowd_init(&c, SLOTS, 6);
    for (uint32_t fault = DISK_EIO; fault < DISK_NEVER; fault++)
        for (uint64_t seed = 0; seed < 40; seed++) {
            disk_init(&disk, c.config.capacity_bytes + 4096, seed * 100 + fault);
            if (seed % 2 == 1) { /* not only the first time */
                assert_int_equal(crowd_open(&c, &disk), QUIRE_OK);
                for (uint32_t i = 0; i < 3; i++)
                    crowd_step(&c, false);
                assert_int_equal(crowd_wait(&c, 1000), 0);
                assert_int_equal(quire_tier_close(c.tier), QUIRE_OK);
            }
            disk.fault = (disk_fault)fault;
            disk.one_in = 3;
            int status = crowd_open(&c, &disk);
            disk.one_in = 0;
            num_refused += status != QUIRE_OK;
            if (status == QUIRE_OK) {
                (void)crowd_load_all(&c);
                assert_int_equal(quire_tier_close(c.tier), QUIRE_OK);
            }
            disk_free(&disk);
        }
    assert_true(num_refused > 0);
    crowd_free(&c);
}

/* An index that cannot be written is said once, and costs what was stored since the last one. */
static void test_no_checkpoint(void **state)
{
    static crowd c;
    static file_disk disk;
    (void)state;
    crowd_init(&c, SLOTS, 7);
    disk_init(&disk, c.config.capacity_bytes + 4096, 7);
    assert_int_equal(crowd_open(&c, &disk), QUIRE_OK);
    for (uint32_t i = 0; i < 10; i++)
        crowd_step(&c, false);
    assert_int_equal(crowd_wait(&c, 1000), 0);
    disk.fault = DISK_EROFS;
    disk.reads = 2;
    disk.one_in = 1;
    for (uint32_t i = 0; i < 80; i++)
        crowd_step(&c, i == 40);
    assert_int_equal(crowd_wait(&c, 1000), 0);
    assert_int_equal(quire_tier_close(c.tier), QUIRE_OK);
    disk.one_in = 0;
    assert_int_equal(crowd_open(&c, &disk), QUIRE_OK);
    (void)crowd_load_all(&c);
    assert_int_equal(quire_tier_close(c.tier), QUIRE_OK);
    disk_free(&disk);
    crowd_free(&c);
}

/* When every write fails, or every read, none is said to be done. */
static void test_none_done(void **state)
{
    static crowd c;
    static file_disk disk;
    (void)state;
    for (uint32_t fault = DISK_EIO; fault <= DISK_SHORT_ZERO; fault++) {
        crowd_init(&c, SLOTS, fault);
        disk_init(&disk, c.config.capacity_bytes + 4096, fault);
        assert_int_equal(crowd_open(&c, &disk), QUIRE_OK);
        for (uint32_t i = 0; i < 3; i++)
            crowd_step(&c, false);
        assert_int_equal(crowd_wait(&c, 1000), 0);
        memset(c.statuses, 0, sizeof c.statuses);
        disk.fault = (disk_fault)fault;
        disk.reads = 1;
        disk.one_in = 1;
        assert_true(crowd_load_all(&c) == 0);
        assert_true(c.statuses[QUIRE_TIER_LOAD][QUIRE_TIER_FAILED] > 0);
        disk.reads = 2;
        for (uint32_t i = 0; i < 3; i++)
            crowd_step(&c, false);
        assert_int_equal(crowd_wait(&c, 1000), 0);
        assert_int_equal(c.statuses[QUIRE_TIER_STORE][QUIRE_TIER_DONE], 0);
        if (fault >= DISK_SHORT_ONE) { /* as a full disk does: no fault of the tier's */
            assert_true(c.statuses[QUIRE_TIER_STORE][QUIRE_TIER_NO_ROOM] > 0);
            assert_int_equal(c.statuses[QUIRE_TIER_STORE][QUIRE_TIER_FAILED], 0);
        }
        disk.one_in = 0;
        check_next_life(&c, &disk);
        disk_free(&disk);
        crowd_free(&c);
    }
}

/* A clock that jumps far ahead and back is no reason to stop, or to write without end. */
static void test_clock_jumps(void **state)
{
    static crowd c;
    static file_disk disk;
    const uint64_t year_ns = UINT64_C(31536000) * 1000000000;
    (void)state;
    crowd_init(&c, SLOTS, 8);
    c.common.deadline_ns = UINT64_C(3600) * 1000000000;
    disk_init(&disk, c.config.capacity_bytes + 4096, 8);
    assert_int_equal(crowd_open(&c, &disk), QUIRE_OK);
    for (uint32_t i = 0; i < 40; i++) {
        crowd_step(&c, false);
        c.now_ns = i % 4 == 1 ? c.now_ns + year_ns : i % 4 == 3 ? c.now_ns - year_ns : c.now_ns;
    }
    assert_int_equal(crowd_wait(&c, 1000), 0);
    assert_true(crowd_load_all(&c) != 0);
    check_next_life(&c, &disk);
    disk_free(&disk);
    crowd_free(&c);
}

int main(int argc, char **argv)
{
    static fault_case cases[3 * (DISK_FAULTS + 1)];
    static char names[3 * (DISK_FAULTS + 1)][64];
    static struct CMUnitTest tests[3 * (DISK_FAULTS + 1) + 5];
    static const char *const WHERE[] = {"anywhere", "of reads", "of writes"};
    size_t n = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--steps") == 0)
            num_steps = (uint32_t)strtoul(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--seeds") == 0)
            num_seeds = (uint32_t)strtoul(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--seed") == 0)
            first_seed = strtoull(argv[i + 1], NULL, 0);
    }
    for (uint32_t fault = DISK_EIO; fault <= DISK_FAULTS; fault++)
        for (uint32_t reads = 0; reads < 3; reads++, n++) {
            const char *name = fault == DISK_FAULTS ? "all" : DISK_FAULT_NAMES[fault];
            cases[n] = (fault_case){
                .fault = (disk_fault)fault, .reads = reads, .one_in = fault == DISK_NEVER ? 40 : 4};
            (void)snprintf(names[n], sizeof names[n], "%s %s", name, WHERE[reads]);
            tests[n] = (struct CMUnitTest){
                .name = names[n], .test_func = test_fault, .initial_state = &cases[n]};
        }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_hung_close);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_faults_while_opening);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_no_checkpoint);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_clock_jumps);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_none_done);
    return _cmocka_run_group_tests("a disk that fails", tests, n, NULL, NULL);
}

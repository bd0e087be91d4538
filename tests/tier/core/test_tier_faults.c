/* tier/core/test_tier_faults.c - the faults of a tier that the runner must survive, a test each:
 * jobs
 * that end twice, late, never, or are not there; threads that hang; clocks that jump.
 * Always: one completion for a job, no wrong bytes, nothing waits, and all memory comes back. */
#include "tier_kit.h"

#include "tier/core/tier.h"

#include <unistd.h>

#define MS UINT64_C(1000000)

/* As many turns of the thread as it takes to have seen what was said before. */
static void wait_turns(kit *k)
{
    uint64_t turns = faulty_num_turns(k->part) + 3;
    uint64_t end_ns = kit_true_now() + UINT64_C(1000000000) * KIT_SECONDS;
    while (faulty_num_turns(k->part) < turns) {
        assert_true(kit_true_now() < end_ns);
        usleep(100);
    }
}

/* ---- accounting ------------------------------------------------------------ */

static void cancel_after_completion(void **state)
{
    (void)state;
    static kit_job j;
    for (int variant = 0; variant < 2; variant++) {
        kit k = {.config.run_inline = variant == 0 ? QUIRE_ON : QUIRE_OFF};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        kit_submit(&k, &j, QUIRE_TIER_STORE, 1, 1);
        if (variant == 1)
            usleep(2000); /* it has ended by now, or so: both must be fine */
        assert_int_equal(quire_tier_cancel(k.tier, &j.job), QUIRE_OK);
        assert_int_equal(quire_tier_cancel(k.tier, &j.job), QUIRE_OK);
        assert_ptr_equal(kit_wait(&k), &j.job);
        assert_true(j.ios[0].status == QUIRE_TIER_DONE ||
                    (variant == 1 && j.ios[0].status == QUIRE_TIER_CANCELLED));
        assert_int_equal(quire_tier_cancel(k.tier, &j.job), QUIRE_MISS);
        kit_nothing_comes(&k);
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_FIND, 9), QUIRE_TIER_MISSING);
        kit_close(&k);
    }
}

/* The cancel was obeyed, and then the work ends all the same. */
static quire_tier_job *begun;

static void begin_nothing(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    (void)self;
    (void)ends;
    begun = job;
}

static void turn_ends_begun(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    (void)self;
    (void)wake_fd;
    (void)timeout_ms;
    if (begun != NULL)
        for (uint32_t i = 0; i < 2; i++)
            ends->end(ends, begun, i, QUIRE_TIER_DONE);
}

static void cancel_begun(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    (void)self;
    for (uint32_t i = 0; i < job->num_ios; i++)
        ends->end(ends, job, i, QUIRE_TIER_CANCELLED);
}

static void completion_after_cancel(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {0};
    quire_tier_ops ops = {.abi = 1,
                          .size = sizeof ops,
                          .begin = begin_nothing,
                          .turn = turn_ends_begun,
                          .cancel = cancel_begun};
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = &ops;
    config.run_inline = QUIRE_ON;
    begun = NULL;
    assert_int_equal(quire_tier_open(&config, NULL, &k.tier), QUIRE_OK);
    kit_submit(&k, &j, QUIRE_TIER_STORE, 1, 2);
    assert_int_equal(quire_tier_cancel(k.tier, &j.job), QUIRE_OK);
    assert_ptr_equal(kit_wait(&k), &j.job);
    assert_int_equal(j.ios[0].status, QUIRE_TIER_CANCELLED);
    assert_int_equal(j.ios[1].status, QUIRE_TIER_CANCELLED);
    kit_nothing_comes(&k);
    assert_true(kit_stats(&k).bad_ends >= 2 * 20);
    kit_close(&k);
}

/* While the thread hangs, slots are used again and again, and each of their jobs is cancelled, also
 * those that have ended already: none is lost. */
static void cancels_while_the_thread_hangs(void **state)
{
    (void)state;
    enum { JOBS = 4, TIMES = 100 };
    static kit_job jobs[JOBS];
    static kit_job known;
    quire_tier_job *done = NULL;
    kit k = {.config.max_jobs = JOBS};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    for (uint32_t i = 1; i < JOBS; i++)
        kit_submit(&k, &jobs[i], QUIRE_TIER_STORE, i, 1);
    kit_wait_begun(&k, JOBS - 1);
    usleep(2000); /* they have ended */
    faulty_block(k.part, true);
    kit_submit(&k, &jobs[0], QUIRE_TIER_STORE, 0, 1);
    kit_wait_begun(&k, JOBS);
    for (uint32_t i = 1; i < JOBS; i++) {
        assert_int_equal(quire_tier_cancel(k.tier, &jobs[i].job), QUIRE_OK);
        (void)kit_wait(&k);
    }
    for (int i = 0; i < TIMES; i++) { /* it knows that they are missing: they have ended at once */
        kit_submit(&k, &known, QUIRE_TIER_LOAD, 50, 1);
        assert_int_equal(quire_tier_cancel(k.tier, &known.job), QUIRE_OK);
        assert_int_equal(quire_tier_poll(k.tier, &done, 1), 1);
    }
    for (uint32_t i = 1; i < JOBS; i++) {
        kit_submit(&k, &jobs[i], QUIRE_TIER_STORE, i, 1);
        assert_int_equal(quire_tier_cancel(k.tier, &jobs[i].job), QUIRE_OK);
    }
    faulty_block(k.part, false);
    for (uint32_t i = 0; i < JOBS; i++)
        (void)kit_wait(&k);
    assert_int_equal(jobs[0].ios[0].status, QUIRE_TIER_DONE);
    for (uint32_t i = 1; i < JOBS; i++)
        assert_int_equal(jobs[i].ios[0].status, QUIRE_TIER_CANCELLED);
    kit_close(&k);
}

static void double_completion(void **state)
{
    (void)state;
    enum { JOBS = 50 };
    static kit_job jobs[JOBS];
    for (int variant = 0; variant < 2; variant++) {
        kit k = {.config.run_inline = variant == 0 ? QUIRE_ON : QUIRE_OFF,
                 .faults.has_ghosts = true};
        uint64_t ended = 0;
        assert_int_equal(kit_open(&k), QUIRE_OK);
        faulty_set(k.part, FAULTY_TWICE, 1000);
        for (uint32_t i = 0; i < JOBS; i++)
            kit_submit(&k, &jobs[i], QUIRE_TIER_STORE, i, 1);
        for (; ended < JOBS; ended++)
            assert_int_equal(kit_wait(&k)->ios[0].status, QUIRE_TIER_DONE);
        while (kit_stats(&k).bad_ends < 2 * JOBS) /* at once, and long after */
            kit_nothing_comes(&k);
        assert_int_equal(kit_stats(&k).keys[QUIRE_TIER_STORE][QUIRE_TIER_DONE], JOBS);
        kit_close(&k);
    }
}

static void completion_of_an_unknown_job(void **state)
{
    (void)state;
    static kit_job j;
    for (int variant = 0; variant < 2; variant++) {
        kit k = {.config.run_inline = variant == 0 ? QUIRE_ON : QUIRE_OFF};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        faulty_set(k.part, FAULTY_STRAY, 1000);
        for (uint32_t i = 0; i < 20; i++)
            assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, i), QUIRE_TIER_DONE);
        kit_nothing_comes(&k);
        assert_int_equal(kit_stats(&k).bad_ends, 4 * 20);
        kit_close(&k);
    }
}

static void status_that_does_not_exist(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {.config.run_inline = QUIRE_ON, .config.breaker_strikes = 1000};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_set(k.part, FAULTY_BAD_STATUS, 1000);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, i), QUIRE_TIER_FAILED);
    assert_int_equal(kit_stats(&k).bad_ends, 20);
    kit_close(&k);
}

/* Rings and epochs count up to 2^32 and on. */
static void counts_wrap(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {.config.run_inline = QUIRE_ON};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    qr_spsc *rings[] = {&k.tier->runner.submitted, &k.tier->runner.ended, &k.tier->ready};
    for (size_t i = 0; i < COUNT(rings); i++) {
        rings[i]->put = UINT32_MAX - 20;
        rings[i]->taken = UINT32_MAX - 20;
    }
    for (uint32_t i = 0; i < 60; i++) {
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, i % 50), QUIRE_TIER_DONE);
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_LOAD, i % 50), QUIRE_TIER_DONE);
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_LOAD, 55), QUIRE_TIER_MISSING);
    }
    kit_close(&k);
}

static void full_in_flight_table(void **state)
{
    (void)state;
    enum { JOBS = 7 };
    static kit_job jobs[JOBS];
    static kit_job more;
    kit k = {.config.max_jobs = JOBS};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    for (int round = 0; round < 3; round++) {
        faulty_hold(k.part, true);
        for (uint32_t i = 0; i < JOBS; i++)
            kit_submit(&k, &jobs[i], QUIRE_TIER_STORE, i, 2);
        kit_fill(&more, QUIRE_TIER_FIND, 1, 1);
        kit_job before = more;
        assert_int_equal(quire_tier_submit(k.tier, &more.job), QUIRE_FULL);
        assert_memory_equal(&before, &more, sizeof more);
        kit_nothing_comes(&k);
        faulty_hold(k.part, false);
        for (uint32_t i = 0; i < JOBS; i++)
            (void)kit_wait(&k);
        assert_int_equal(kit_do(&k, &more, QUIRE_TIER_FIND, 1), QUIRE_TIER_DONE);
    }
    kit_close(&k);
}

static void full_store_queue(void **state)
{
    (void)state;
    static kit_job jobs[8];
    kit k = {.config.max_bytes_in_flight = 4 * KIT_BYTES};
    uint32_t taken = 0;
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_hold(k.part, true);
    for (uint32_t i = 0; i < 8; i++) {
        kit_fill(&jobs[i], QUIRE_TIER_STORE, i, 1);
        int status = quire_tier_submit(k.tier, &jobs[i].job);
        assert_int_equal(status, i < 4 ? QUIRE_OK : QUIRE_FULL);
        taken += status == QUIRE_OK ? 1 : 0;
    }
    assert_int_equal(kit_stats(&k).bytes_in_flight, 4 * KIT_BYTES);
    faulty_hold(k.part, false);
    for (; taken > 0; taken--)
        (void)kit_wait(&k);
    kit_submit(&k, &jobs[7], QUIRE_TIER_STORE, 7, 1);
    (void)kit_wait(&k);
    kit_close(&k);
}

static void keys_alone(void *self, quire_tier_caps *caps)
{
    (void)self;
    *caps = (quire_tier_caps){.is_simulated = 1};
}

static void never_end(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    (void)self;
    (void)ends;
    (void)job;
}

/* By default a tier takes 1 GiB: 100 ms of a fast disk between two polls. */
static void default_room(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20, JOBS = 17 };
    static const quire_tier_ops OPS = {
        .abi = 1, .size = sizeof OPS, .caps = keys_alone, .begin = never_end};
    static quire_tier_job jobs[JOBS];
    static quire_tier_io ios[JOBS];
    quire_tier *tier;
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = &OPS;
    config.run_inline = QUIRE_ON;
    assert_int_equal(quire_tier_open(&config, NULL, &tier), QUIRE_OK);
    for (uint32_t i = 0; i < JOBS; i++) {
        ios[i] = (quire_tier_io){.key = faulty_key(i), .bytes = BYTES};
        jobs[i] = (quire_tier_job){.op = QUIRE_TIER_LOAD, .num_ios = 1, .ios = &ios[i]};
        assert_int_equal(quire_tier_submit(tier, &jobs[i]), i < 16 ? QUIRE_OK : QUIRE_FULL);
    }
    assert_int_equal(quire_tier_close(tier), QUIRE_OK);
}

/* ---- late ------------------------------------------------------------------ */

/* Past the deadline the user goes on; the memory stays the tier's until the completion, which comes
 * once, and is written up to then. */
static void late_load(void **state)
{
    (void)state;
    static kit_job j;
    for (int variant = 0; variant < 4; variant++) {
        kit k = {.config = {.run_inline = variant % 2 == 0 ? QUIRE_ON : QUIRE_OFF,
                            .deadline_ns = 50 * MS},
                 .faults.ignores_cancel = variant >= 2,
                 .has_clock = true};
        k.now_ns = 1000 * MS;
        assert_int_equal(kit_open(&k), QUIRE_OK);
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, 1), QUIRE_TIER_DONE);
        faulty_hold(k.part, true);
        kit_submit(&k, &j, QUIRE_TIER_LOAD, 1, 1);
        assert_int_equal(j.job.due_ns, 1050 * MS);
        if (variant % 2 == 1)
            kit_wait_begun(&k, 2);
        k.now_ns = 1050 * MS;
        kit_nothing_comes(&k);
        assert_false(quire_tier_is_late(k.tier, &j.job));
        k.now_ns++;
        assert_true(quire_tier_is_late(k.tier, &j.job));
        kit_nothing_comes(&k);
        assert_int_equal(kit_stats(&k).late, 1);
        assert_int_equal(kit_stats(&k).bytes_late, KIT_BYTES);
        assert_int_equal(kit_stats(&k).jobs_in_flight, 1);
        if (variant % 2 == 1)
            wait_turns(&k);
        kit_nothing_comes(&k);
        faulty_hold(k.part, false); /* it comes back after all */
        assert_ptr_equal(kit_wait(&k), &j.job);
        assert_true(quire_tier_is_late(k.tier, &j.job));
        assert_int_equal(kit_stats(&k).late, 1);
        assert_int_equal(kit_stats(&k).bytes_late, 0);
        kit_nothing_comes(&k);
        kit_close(&k);
    }
}

/* A deadline of its own; and one that is over before the thread came to it: not begun at all. */
static void late_before_it_was_begun(void **state)
{
    (void)state;
    static kit_job jobs[3];
    kit k = {.has_clock = true};
    k.now_ns = 1000 * MS;
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_block(k.part, true);
    kit_submit(&k, &jobs[0], QUIRE_TIER_STORE, 0, 1);
    kit_wait_begun(&k, 1);
    for (uint32_t i = 1; i < 3; i++) {
        kit_fill(&jobs[i], QUIRE_TIER_STORE, i, 1);
        jobs[i].job.deadline_ns = (1000 + i) * MS;
        assert_int_equal(quire_tier_submit(k.tier, &jobs[i].job), QUIRE_OK);
    }
    k.now_ns = 1002 * MS;
    kit_nothing_comes(&k);
    assert_int_equal(kit_stats(&k).late, 1);
    faulty_block(k.part, false);
    for (int i = 0; i < 3; i++)
        (void)kit_wait(&k);
    assert_int_equal(jobs[0].ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(jobs[1].ios[0].status, QUIRE_TIER_CANCELLED);
    assert_int_equal(jobs[2].ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(faulty_num_begun(k.part), 2);
    kit_close(&k);
}

/* Nobody has polled meanwhile: the thread itself sees that the time is over. */
static void late_before_anybody_looked(void **state)
{
    (void)state;
    static kit_job jobs[2];
    kit k = {.config.deadline_ns = 50 * MS, .has_clock = true};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_block(k.part, true);
    for (uint32_t i = 0; i < 2; i++)
        kit_submit(&k, &jobs[i], QUIRE_TIER_STORE, i, 1);
    kit_wait_begun(&k, 1);
    k.now_ns = 51 * MS;
    faulty_block(k.part, false);
    usleep(5000); /* or more: the second is begun by then, if it is begun at all */
    (void)kit_wait(&k);
    (void)kit_wait(&k);
    assert_int_equal(jobs[1].ios[0].status, QUIRE_TIER_CANCELLED);
    assert_int_equal(faulty_num_begun(k.part), 1);
    kit_close(&k);
}

static void cancelled_before_it_was_begun(void **state)
{
    (void)state;
    static kit_job jobs[3];
    kit k = {0};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_block(k.part, true);
    for (uint32_t i = 0; i < 3; i++)
        kit_submit(&k, &jobs[i], QUIRE_TIER_STORE, i, 1);
    kit_wait_begun(&k, 1);
    assert_int_equal(quire_tier_cancel(k.tier, &jobs[1].job), QUIRE_OK);
    faulty_block(k.part, false);
    for (int i = 0; i < 3; i++)
        (void)kit_wait(&k);
    assert_int_equal(jobs[0].ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(jobs[1].ios[0].status, QUIRE_TIER_CANCELLED);
    assert_int_equal(jobs[2].ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(faulty_num_begun(k.part), 2);
    kit_close(&k);
}

/* It would take for ever, but can be given up: then its memory comes back soon after its
 * deadline. */
static void late_jobs_are_given_up(void **state)
{
    (void)state;
    static kit_job j;
    for (int variant = 0; variant < 2; variant++) {
        kit k = {
            .config = {.run_inline = variant == 0 ? QUIRE_ON : QUIRE_OFF, .deadline_ns = 50 * MS},
            .faults.seed = 5,
            .has_clock = true};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        faulty_set_delay(k.part, UINT32_MAX - 1);
        kit_submit(&k, &j, QUIRE_TIER_STORE, 1, 4);
        kit_wait_begun(&k, 1);
        kit_nothing_comes(&k);
        k.now_ns = 51 * MS;
        assert_ptr_equal(kit_wait(&k), &j.job);
        assert_int_equal(j.ios[3].status, QUIRE_TIER_CANCELLED);
        assert_int_equal(kit_stats(&k).late, 1);
        kit_close(&k);
    }
}

static void duplicate_completion_after_the_deadline(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {.config = {.run_inline = QUIRE_ON, .deadline_ns = 50 * MS},
             .faults = {.has_ghosts = true, .ignores_cancel = true},
             .has_clock = true};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_set(k.part, FAULTY_TWICE, 1000);
    faulty_hold(k.part, true);
    kit_submit(&k, &j, QUIRE_TIER_STORE, 1, 1);
    k.now_ns = 51 * MS;
    kit_nothing_comes(&k);
    faulty_hold(k.part, false);
    assert_ptr_equal(kit_wait(&k), &j.job);
    kit_nothing_comes(&k);
    assert_int_equal(kit_stats(&k).bad_ends, 2);
    assert_int_equal(kit_stats(&k).late, 1);
    kit_close(&k);
}

/* The thread hangs: three late jobs open the breaker, what waits behind them is not tried, and when
 * it comes back one probe closes it again. */
static void hung_thread_opens_the_breaker(void **state)
{
    (void)state;
    enum { JOBS = 10 };
    static kit_job jobs[JOBS];
    static kit_job more;
    kit k = {.config = {.deadline_ns = 50 * MS, .breaker_ns = 1000 * MS}, .has_clock = true};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_block(k.part, true);
    for (uint32_t i = 0; i < JOBS; i++) {
        kit_fill(&jobs[i], QUIRE_TIER_STORE, i, 1);
        if (i >= 3)
            jobs[i].job.deadline_ns = 100000 * MS;
        assert_int_equal(quire_tier_submit(k.tier, &jobs[i].job), QUIRE_OK);
    }
    kit_wait_begun(&k, 1);
    k.now_ns = 51 * MS;
    kit_nothing_comes(&k);
    assert_int_equal(kit_stats(&k).health, QUIRE_TIER_OPEN);
    assert_int_equal(kit_stats(&k).late, 3);
    kit_fill(&more, QUIRE_TIER_FIND, 0, 1);
    assert_int_equal(quire_tier_submit(k.tier, &more.job), QUIRE_BUSY);
    faulty_block(k.part, false);
    for (int i = 0; i < JOBS; i++)
        (void)kit_wait(&k);
    assert_int_equal(jobs[0].ios[0].status, QUIRE_TIER_DONE);
    for (uint32_t i = 1; i < JOBS; i++)
        assert_int_equal(jobs[i].ios[0].status, QUIRE_TIER_REFUSED);
    assert_int_equal(faulty_num_begun(k.part), 1);
    assert_int_equal(kit_stats(&k).health, QUIRE_TIER_OPEN); /* what was late says nothing now */
    k.now_ns = 2000 * MS;
    assert_int_equal(kit_do(&k, &more, QUIRE_TIER_FIND, 0), QUIRE_TIER_DONE);
    assert_int_equal(kit_stats(&k).health, QUIRE_TIER_CLOSED);
    kit_close(&k);
}

/* The probe itself does not come back: open again, for longer; nothing waits for it. */
static void probe_that_hangs(void **state)
{
    (void)state;
    static kit_job jobs[3];
    kit k = {.config = {.deadline_ns = 50 * MS, .breaker_ns = 1000 * MS, .breaker_strikes = 1},
             .has_clock = true};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_hold(k.part, true);
    for (uint32_t i = 0; i < 3; i++) {
        kit_submit(&k, &jobs[i], QUIRE_TIER_STORE, i, 1);
        assert_int_equal(kit_stats(&k).health, i == 0 ? QUIRE_TIER_CLOSED : QUIRE_TIER_PROBING);
        kit_wait_begun(&k, i + 1);
        k.now_ns += 51 * MS;
        kit_nothing_comes(&k);
        assert_int_equal(kit_stats(&k).health, QUIRE_TIER_OPEN);
        k.now_ns += 20000 * MS;
    }
    assert_int_equal(kit_stats(&k).breaker_opened, 3);
    assert_int_equal(kit_stats(&k).bytes_late, 3 * KIT_BYTES);
    faulty_hold(k.part, false);
    for (int i = 0; i < 3; i++)
        (void)kit_wait(&k);
    kit_close(&k);
}

static void clock_that_jumps(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {.config.run_inline = QUIRE_ON, .has_clock = true};
    k.now_ns = UINT64_C(1) << 60;
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_set_delay(k.part, 3);
    kit_submit(&k, &j, QUIRE_TIER_STORE, 1, 2);
    k.now_ns = 5; /* years back */
    assert_false(quire_tier_is_late(k.tier, &j.job));
    assert_ptr_equal(kit_wait(&k), &j.job);
    assert_int_equal(kit_stats(&k).late, 0);
    kit_submit(&k, &j, QUIRE_TIER_STORE, 1, 2);
    k.now_ns = UINT64_C(1) << 62; /* and forward */
    assert_true(quire_tier_is_late(k.tier, &j.job));
    assert_ptr_equal(kit_wait(&k), &j.job);
    assert_int_equal(kit_stats(&k).late, 1);
    assert_int_equal(kit_do(&k, &j, QUIRE_TIER_FIND, 1), QUIRE_TIER_DONE);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_after_completion),
        cmocka_unit_test(completion_after_cancel),
        cmocka_unit_test(cancels_while_the_thread_hangs),
        cmocka_unit_test(double_completion),
        cmocka_unit_test(completion_of_an_unknown_job),
        cmocka_unit_test(status_that_does_not_exist),
        cmocka_unit_test(counts_wrap),
        cmocka_unit_test(full_in_flight_table),
        cmocka_unit_test(full_store_queue),
        cmocka_unit_test(default_room),
        cmocka_unit_test(late_load),
        cmocka_unit_test(late_before_it_was_begun),
        cmocka_unit_test(late_before_anybody_looked),
        cmocka_unit_test(cancelled_before_it_was_begun),
        cmocka_unit_test(late_jobs_are_given_up),
        cmocka_unit_test(duplicate_completion_after_the_deadline),
        cmocka_unit_test(hung_thread_opens_the_breaker),
        cmocka_unit_test(probe_that_hangs),
        cmocka_unit_test(clock_that_jumps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

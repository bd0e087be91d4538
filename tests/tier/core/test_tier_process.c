/* tier/core/test_tier_process.c - what the process does to a tier: it shuts down while the tier
 * hangs,
 * it forks, it resets the cache. Bounded time, nothing freed that is in use, and no call of the
 * child reaches the parent's thread. */
#include "tier_kit.h"

#include "tier/core/tier.h"

#include <sys/wait.h>

#define MS UINT64_C(1000000)

/* Bounded time, nothing freed, and closed for good when it comes back. */
static void shutdown_with_a_hung_thread(void **state)
{
    (void)state;
    static kit_job jobs[3];
    kit k = {.config.close_ns = 30 * MS};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_block(k.part, true);
    for (uint32_t i = 0; i < 3; i++)
        kit_submit(&k, &jobs[i], QUIRE_TIER_STORE, i, 1);
    kit_wait_begun(&k, 1);
    uint64_t start_ns = kit_true_now();
    assert_int_equal(quire_tier_close(k.tier), QUIRE_BUSY);
    assert_int_equal(quire_tier_close(k.tier), QUIRE_BUSY);
    assert_in_range(kit_true_now() - start_ns, 60 * MS, 10000 * MS);
    assert_non_null(strstr(k.log, "does not end its work"));
    static kit_job more;
    uint8_t found = 9;
    kit_fill(&more, QUIRE_TIER_FIND, 1, 1);
    assert_int_equal(quire_tier_submit(k.tier, &more.job), QUIRE_BUSY);
    assert_int_equal(quire_tier_lookup(k.tier, &more.ios[0].key, 1, &found), QUIRE_OK);
    assert_int_equal(found, 0);
    assert_int_equal(kit_stats(&k).jobs_in_flight, 3);
    kit_nothing_comes(&k);
    faulty_block(k.part, false);
    for (int i = 0; i < 3; i++)
        (void)kit_wait(&k);
    assert_int_equal(jobs[0].ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(jobs[2].ios[0].status, QUIRE_TIER_REFUSED);
    kit_close(&k);
}

static void shutdown_with_a_job_that_does_not_end(void **state)
{
    (void)state;
    static kit_job j;
    for (int variant = 0; variant < 2; variant++) {
        kit k = {
            .config = {.run_inline = variant == 0 ? QUIRE_ON : QUIRE_OFF, .close_ns = 20 * MS}};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        faulty_hold(k.part, true);
        kit_submit(&k, &j, QUIRE_TIER_STORE, 1, 2);
        kit_wait_begun(&k, 1);
        assert_int_equal(quire_tier_close(k.tier), QUIRE_BUSY);
        assert_int_not_equal(j.job.state, 0);
        faulty_hold(k.part, false);
        int status = QUIRE_BUSY;
        for (int i = 0; i < 500 && status == QUIRE_BUSY; i++)
            status = quire_tier_close(k.tier);
        assert_int_equal(status, QUIRE_OK);
        assert_int_equal(j.job.state, 0);
        assert_int_not_equal(j.ios[1].status, QUIRE_TIER_PENDING);
    }
}

/* What the child of a fork gets; returns how many answers are not as they should be. */
static int calls_in_a_child(kit *k, kit_job *in_flight)
{
    static kit_job j;
    quire_tier_job *done;
    uint8_t found;
    int wrong = 0;
    kit_fill(&j, QUIRE_TIER_STORE, 5, 1);
    wrong += quire_tier_submit(k->tier, &j.job) != QUIRE_E_SYSTEM;
    wrong += quire_tier_cancel(k->tier, &in_flight->job) != QUIRE_E_SYSTEM;
    wrong += quire_tier_poll(k->tier, &done, 1) != 0;
    wrong += quire_tier_lookup(k->tier, &j.ios[0].key, 1, &found) != QUIRE_E_SYSTEM;
    wrong += quire_tier_touch(k->tier, &j.ios[0].key, 1) != QUIRE_E_SYSTEM;
    wrong += quire_tier_reset(k->tier) != QUIRE_E_SYSTEM;
    wrong += quire_tier_close(k->tier) != QUIRE_E_SYSTEM;
    return wrong;
}

static void fork_with_jobs_in_flight(void **state)
{
    (void)state;
    static kit_job j;
    for (int variant = 0; variant < 4; variant++) {
        kit k = {.config.run_inline = variant % 2 == 0 ? QUIRE_ON : QUIRE_OFF};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        if (variant >= 2) /* as where the kernel does not empty pages */
            k.tier->guard.page = NULL;
        faulty_hold(k.part, true);
        kit_submit(&k, &j, QUIRE_TIER_STORE, 1, 1);
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(calls_in_a_child(&k, &j));
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        faulty_hold(k.part, false);
        assert_ptr_equal(kit_wait(&k), &j.job); /* the parent's are as before */
        assert_int_equal(j.ios[0].status, QUIRE_TIER_DONE);
        kit_close(&k);
    }
}

static void reset_with_jobs_in_flight(void **state)
{
    (void)state;
    static kit_job jobs[6];
    for (int variant = 0; variant < 2; variant++) {
        kit k = {.config.run_inline = variant == 0 ? QUIRE_ON : QUIRE_OFF};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(kit_do(&k, &jobs[i], QUIRE_TIER_STORE, i), QUIRE_TIER_DONE);
        faulty_hold(k.part, true);
        for (uint32_t i = 0; i < 6; i++)
            kit_submit(&k, &jobs[i], i % 2 == 0 ? QUIRE_TIER_LOAD : QUIRE_TIER_STORE, i, 1);
        assert_int_equal(quire_tier_reset(k.tier), QUIRE_OK);
        faulty_hold(k.part, false);
        for (uint32_t i = 0; i < 6; i++)
            (void)kit_wait(&k);
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(jobs[i].ios[0].status,
                             i % 2 == 0 ? QUIRE_TIER_MISSING : QUIRE_TIER_DONE);
        kit_close(&k);
    }
}

/* What it keeps elsewhere goes too: the thread gets a turn, though nothing else is to be done. */
static void reset_wakes_the_thread(void **state)
{
    (void)state;
    kit k = {0};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    for (int i = 0; i < 20; i++) {
        uint64_t end_ns = kit_true_now() + UINT64_C(1000000000) * KIT_SECONDS;
        usleep(1000); /* it sleeps */
        uint64_t turns = faulty_num_turns(k.part);
        assert_int_equal(quire_tier_reset(k.tier), QUIRE_OK);
        while (faulty_num_turns(k.part) == turns) {
            assert_true(kit_true_now() < end_ns);
            usleep(100);
        }
    }
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shutdown_with_a_hung_thread),
        cmocka_unit_test(shutdown_with_a_job_that_does_not_end),
        cmocka_unit_test(fork_with_jobs_in_flight),
        cmocka_unit_test(reset_with_jobs_in_flight),
        cmocka_unit_test(reset_wakes_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tier/core/test_tier_storm.c - everything that can go wrong with a tier at once, at random: no
 * wrong
 * bytes, one completion for each job, and at the end all memory has come back.
 *
 *      program [SEED [ROUNDS]]
 */
#include "tier_kit.h"

#include <unistd.h>

#define MS UINT64_C(1000000)

static int num_rounds = 10000;

static void check_loaded(const quire_tier_job *job, uint64_t *counts)
{
    for (uint32_t i = 0; i < job->num_ios; i++) {
        const quire_tier_io *io = &job->ios[i];
        assert_in_range(io->status, QUIRE_TIER_DONE, QUIRE_TIER_REFUSED);
        counts[io->status]++;
        if (job->op == QUIRE_TIER_LOAD && io->status == QUIRE_TIER_DONE)
            assert_true(faulty_is_pattern(&io->key, io->memory, io->bytes));
    }
}

/* All faults, each with 20 of 1,000 ios, and some that hang for a while: no wrong bytes, each job
 * once, and at the end nothing is in flight. */
static void everything_goes_wrong(uint64_t *random, quire_switch run_inline, int rounds)
{
    enum { JOBS = 24, KEYS = 60 };
    static kit_job jobs[JOBS];
    uint64_t counts[8] = {0};
    uint64_t submitted = 0;
    uint64_t ended = 0;
    kit k = {.config = {.run_inline = run_inline,
                        .max_jobs = 20,
                        .deadline_ns = 40 * MS,
                        .breaker_ns = run_inline == QUIRE_ON ? 100 * MS : 2 * MS},
             .faults = {.max_keys = KEYS, .seed = *random},
             .has_clock = run_inline == QUIRE_ON};
    memset(jobs, 0, sizeof jobs);
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_set_all(k.part, 20);
    faulty_set(k.part, FAULTY_HOLD, 3);
    faulty_set_delay(k.part, 3);
    for (int round = 0; round < rounds || ended < submitted; round++) {
        quire_tier_job *done[4];
        kit_job *j = &jobs[unit_random_below(random, JOBS)];
        k.now_ns += MS;
        if (j->job.state == 0 && round < rounds) {
            kit_fill(j, (quire_tier_op)(1 + unit_random_below(random, 2)),
                     unit_random_below(random, KEYS - 4), 1 + unit_random_below(random, 4));
            int status = quire_tier_submit(k.tier, &j->job);
            assert_true(status == QUIRE_OK || status == QUIRE_FULL || status == QUIRE_BUSY);
            submitted += status == QUIRE_OK ? 1 : 0;
        }
        if (unit_random_below(random, 20) == 0 && j->job.state != 0)
            assert_int_equal(quire_tier_cancel(k.tier, &j->job), QUIRE_OK);
        if (unit_random_below(random, 500) == 0 || round >= rounds)
            faulty_release(k.part);
        if (unit_random_below(random, 1000) == 0)
            assert_int_equal(quire_tier_reset(k.tier), QUIRE_OK);
        uint32_t count = quire_tier_poll(k.tier, done, 4);
        for (uint32_t d = 0; d < count; d++, ended++)
            check_loaded(done[d], counts);
        if (round >= rounds || (run_inline != QUIRE_ON && round % 4 == 0))
            usleep(30);
    }
    printf("jobs %llu: done %llu, missing %llu, no room %llu, wrong %llu, failed %llu, cancelled "
           "%llu, refused %llu\n",
           (unsigned long long)submitted, (unsigned long long)counts[1],
           (unsigned long long)counts[2], (unsigned long long)counts[3],
           (unsigned long long)counts[4], (unsigned long long)counts[5],
           (unsigned long long)counts[6], (unsigned long long)counts[7]);
    for (int status = QUIRE_TIER_DONE; status <= QUIRE_TIER_FAILED; status++)
        assert_true(counts[status] > 0);
    assert_true(kit_stats(&k).bad_ends > 0);
    assert_true(kit_stats(&k).late > 0 || run_inline != QUIRE_ON);
    assert_int_equal(kit_stats(&k).jobs, submitted);
    kit_close(&k);
}

static void everything_goes_wrong_inline(void **state)
{
    everything_goes_wrong(*state, QUIRE_ON, num_rounds);
}

static void everything_goes_wrong_with_a_thread(void **state)
{
    everything_goes_wrong(*state, QUIRE_OFF, num_rounds / 2);
}

int main(int argc, char **argv)
{
    uint64_t random = unit_seed(argc, argv, 1);
    if (argc > 2)
        num_rounds = atoi(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(everything_goes_wrong_inline, &random),
        cmocka_unit_test_prestate(everything_goes_wrong_with_a_thread, &random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

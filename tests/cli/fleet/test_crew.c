/* The crew: each job once, those of one lane one after the other, round after round. */
#include "fleet/crew.h"

#include "base/unit.h"

#include <stdatomic.h>
#include <string.h>

enum { MOST = 5000 };

typedef struct count {
    _Atomic uint32_t done[MOST];
    _Atomic uint32_t in_lane[CREW_MAX_THREADS]; /* jobs that run in it now */
    _Atomic uint32_t wrong;
    uint32_t num_lanes;
    uint64_t sums[CREW_MAX_THREADS]; /* changed by jobs of the lane alone, without a lock */
} count;

static void count_job(void *user, uint32_t i, uint32_t lane)
{
    count *c = user;
    if (lane >= c->num_lanes || atomic_fetch_add(&c->in_lane[lane], 1) != 0)
        atomic_fetch_add(&c->wrong, 1);
    atomic_fetch_add(&c->done[i], 1);
    c->sums[lane] += i;
    atomic_fetch_sub(&c->in_lane[lane], 1);
}

static count c;

static void check_rounds(uint32_t num_threads, uint32_t num_jobs, uint32_t num_rounds)
{
    memset(&c, 0, sizeof c);
    c.num_lanes = num_threads;
    crew *it = crew_open(num_threads);
    assert_non_null(it);
    for (uint32_t round = 1; round <= num_rounds; round++) {
        crew_run(it, num_jobs, count_job, &c);
        for (uint32_t i = 0; i < num_jobs; i++) /* all are done when it returns */
            assert_int_equal(c.done[i], round);
    }
    crew_close(it);
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < num_threads; lane++)
        sum += c.sums[lane];
    assert_int_equal(sum, (uint64_t)num_rounds * num_jobs * (num_jobs - (num_jobs > 0)) / 2);
    assert_int_equal(c.wrong, 0);
    assert_int_equal(c.done[num_jobs], 0);
}

static void test_each_job_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        check_rounds(threads, 0, 3);
        check_rounds(threads, 1, 3);
        check_rounds(threads, 2, 200);
        check_rounds(threads, 100, 200);
        check_rounds(threads, MOST - 1, 2);
    }
}

static void test_more_threads_than_jobs(void **state)
{
    (void)state;
    check_rounds(16, 3, 50);
}

static void test_without_a_round(void **state)
{
    (void)state;
    crew *it = crew_open(3);
    assert_non_null(it);
    crew_close(it);
    crew_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_job_once),
                                       cmocka_unit_test(test_more_threads_than_jobs),
                                       cmocka_unit_test(test_without_a_round)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sched_image/test_image_runs.c - workloads that are saved and restored at a random step: from
 * there on the restored scheduler decides as the one that was not interrupted, step by step.
 *
 *      sched_image_runs [NUM_WORKLOADS [FIRST_SEED]]
 */
#include "image_world.h"
#include "model/plain.h"

#include "sched/sched.h"

enum { NUM_ROUNDS = 80, WIDE_ONE_IN = 8 };

#ifdef MODEL_SLOW
static uint32_t num_workloads = 150;
#else
static uint32_t num_workloads = 1000;
#endif
static uint64_t first_seed = 1;

typedef struct run_tally {
    uint64_t num_rounds;
    uint64_t num_preempted;
    uint64_t num_drafted;
    uint64_t num_in_flight; /* steps, when the image was made */
    uint64_t num_swapped;   /* requests, at that time */
    uint64_t image_bytes;
    uint32_t with_preemption;
    /* Of profile VLLM_0_32, at that time */
    uint64_t num_fenced;
    uint64_t num_deferred;
    uint64_t num_doomed;
    uint64_t num_stale;
    uint64_t num_extras;
} run_tally;

/* A second image of the same state has the same bytes, whichever scheduler it is made from. */
static void check_same_image(world *w, const unsigned char *image, size_t bytes)
{
    size_t again_bytes;
    unsigned char *again = world_save(w, 1, &again_bytes);
    assert_int_equal(again_bytes, bytes);
    assert_memory_equal(again, image, bytes);
    free(again);
}

static void note_0_32(run_tally *tally, const quire_sched *s)
{
    const qr_extras *extras = &s->cache->pool->extras;
    tally->num_fenced += s->fences.num_rows;
    tally->num_deferred += s->queues.num_deferred;
    tally->num_doomed += s->results.bad_grammars.num + s->results.other_sizes.num;
    for (uint32_t i = 0; i < s->settings.max_requests; i++)
        tally->num_stale += s->table.requests[i].is_in_use && s->table.requests[i].num_stale > 0;
    for (uint32_t i = 0; extras->heads != NULL && i < extras->num_extras; i++)
        tally->num_extras += extras->owners[i] != 0;
}

static void run_one(uint64_t seed, bool is_0_32, run_tally *tally)
{
    static world w;
    if (is_0_32)
        world_open_0_32(&w, seed, seed % WIDE_ONE_IN == 0);
    else if (seed % WIDE_ONE_IN == 0)
        world_open_wide(&w, seed, false);
    else
        world_open(&w, seed);
    uint64_t random = seed * 77;
    uint32_t save_at = unit_random_below(&random, NUM_ROUNDS);
    size_t bytes = 0;
    for (uint32_t round = 0; round < NUM_ROUNDS; round++) {
        if (round == save_at) {
            unsigned char *image = world_save(&w, 0, &bytes);
            int err = world_restore(&w, image, bytes);
            if (err != QUIRE_OK)
                fail_msg("seed %llu, round %u: restore says %s", (unsigned long long)seed, round,
                         quire_status_name(err));
            check_same_image(&w, image, bytes);
            memset(image, 0xa5, bytes); /* nothing refers to it any more */
            free(image);
            tally->num_in_flight += w.num_batches;
            tally->num_swapped += w.sides[0].sched->swap.num_requests;
            note_0_32(tally, w.sides[0].sched);
        }
        if (!world_round(&w))
            fail_msg("seed %llu: saved at round %u, differs in round %u", (unsigned long long)seed,
                     save_at, round);
    }
    for (uint32_t side = 0; side < 2; side++)
        assert_int_equal(quire_sched_check(w.sides[side].sched), QUIRE_OK);
    tally->num_rounds += NUM_ROUNDS - save_at;
    tally->num_preempted += w.num_preempted;
    tally->with_preemption += w.num_preempted > 0;
    tally->num_drafted += w.num_drafted;
    tally->image_bytes += bytes;
    world_close(&w);
}

static void restored_runs_decide_the_same(void **state)
{
    (void)state;
    run_tally tally = {0};
    for (uint32_t i = 0; i < num_workloads; i++)
        run_one(first_seed + i, false, &tally);
    printf("%u workloads, %llu rounds compared, %llu preemptions (in %u workloads), %llu drafts, "
           "%llu steps in flight and %llu requests swapped when saved, %llu bytes an image\n",
           num_workloads, (unsigned long long)tally.num_rounds,
           (unsigned long long)tally.num_preempted, tally.with_preemption,
           (unsigned long long)tally.num_drafted, (unsigned long long)tally.num_in_flight,
           (unsigned long long)tally.num_swapped,
           (unsigned long long)(tally.image_bytes / num_workloads));
    if (num_workloads >= 100) {
        assert_true(tally.num_preempted > num_workloads);
        assert_true(tally.num_drafted > num_workloads);
        assert_true(tally.num_in_flight > num_workloads / 4);
        assert_true(tally.num_swapped > num_workloads / 100);
    }
}

static void restored_runs_of_0_32_decide_the_same(void **state)
{
    (void)state;
    run_tally tally = {0};
    for (uint32_t i = 0; i < num_workloads; i++)
        run_one(first_seed + i, true, &tally);
    printf("vllm-0.32: %u workloads, %llu rounds compared; when saved: %llu steps in flight, %llu "
           "rows behind fences, %llu requests deferred, %llu doomed, %llu with stale outputs, %llu "
           "extra keys\n",
           num_workloads, (unsigned long long)tally.num_rounds,
           (unsigned long long)tally.num_in_flight, (unsigned long long)tally.num_fenced,
           (unsigned long long)tally.num_deferred, (unsigned long long)tally.num_doomed,
           (unsigned long long)tally.num_stale, (unsigned long long)tally.num_extras);
    if (num_workloads >= 500)
        assert_true(tally.num_fenced > 0 && tally.num_deferred > 0 && tally.num_doomed > 0 &&
                    tally.num_stale > 0 && tally.num_extras > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(restored_runs_decide_the_same),
                                       cmocka_unit_test(restored_runs_of_0_32_decide_the_same)};
    if (argc > 1)
        num_workloads = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

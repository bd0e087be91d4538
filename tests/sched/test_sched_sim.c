/* sched/test_sched_sim.c - many seeds of sched/sim.h.
 *
 *      program [--seeds N] [--steps M] [--first SEED] [--check EVERY]
 *
 * Every seed is its own world; a failure prints the seed, `--first SEED --seeds 1` repeats it.
 */
#include "sched/sim.h"

#include "model/plain.h"

#include <time.h>

#if defined(MODEL_SLOW)
enum { SEEDS = 40, STEPS = 400, CHECK_EVERY = 1 };
#else
enum { SEEDS = 300, STEPS = 400, CHECK_EVERY = 8 };
#endif
enum { SEEDS_THAT_SEE_ALL = 40 };

static void add_tally(sim_tally *all, const sim_tally *one)
{
    all->steps += one->steps;
    all->tokens += one->tokens;
    all->requests += one->requests;
    all->preempted += one->preempted;
    all->hits += one->hits;
    all->aborts += one->aborts;
    all->resets += one->resets;
    all->loads += one->loads;
    all->lost += one->lost;
    all->sendings += one->sendings;
    all->turns += one->turns;
    all->rejected += one->rejected;
    all->encoded += one->encoded;
    all->full += one->full;
    all->swapped_out += one->swapped_out;
    all->swapped_in += one->swapped_in;
    all->forgotten += one->forgotten;
    all->pins += one->pins;
}

static void print_tally(const sim_tally *t)
{
    printf("%llu steps, %llu tokens, %llu requests; %llu hits, %llu preempted, %llu aborted, "
           "%llu resets\n",
           (unsigned long long)t->steps, (unsigned long long)t->tokens,
           (unsigned long long)t->requests, (unsigned long long)t->hits,
           (unsigned long long)t->preempted, (unsigned long long)t->aborts,
           (unsigned long long)t->resets);
    printf("%llu loads, %llu failed, %llu sendings, %llu turns of sessions, %llu drafts rejected, "
           "%llu images, %llu times full, %llu blocks swapped out and %llu in, %llu steps "
           "forgotten, %llu pins\n",
           (unsigned long long)t->loads, (unsigned long long)t->lost,
           (unsigned long long)t->sendings, (unsigned long long)t->turns,
           (unsigned long long)t->rejected, (unsigned long long)t->encoded,
           (unsigned long long)t->full, (unsigned long long)t->swapped_out,
           (unsigned long long)t->swapped_in, (unsigned long long)t->forgotten,
           (unsigned long long)t->pins);
}

static bool saw_all(const sim_tally *t)
{
    return t->hits > 0 && t->preempted > 0 && t->aborts > 0 && t->resets > 0 && t->loads > 0 &&
           t->lost > 0 && t->sendings > 0 && t->turns > 0 && t->rejected > 0 && t->encoded > 0 &&
           t->swapped_out > 0 && t->swapped_in > 0 && t->forgotten > 0 && t->pins > 0;
}

int main(int argc, char **argv)
{
    uint64_t first = 1;
    uint64_t seeds = SEEDS;
    uint64_t steps = STEPS;
    uint64_t check_every = CHECK_EVERY; /* steps between two walks */
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seeds") == 0)
            seeds = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--steps") == 0)
            steps = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--first") == 0)
            first = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--check") == 0)
            check_every = strtoull(argv[i + 1], NULL, 10);
    }
    sim_tally all = {0};
    uint64_t failed = 0;
    clock_t start = clock();
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        sim_tally one;
        failed += !sim_run(seed, (uint32_t)steps, (uint32_t)check_every, &one);
        add_tally(&all, &one);
    }
    print_tally(&all);
    printf("%llu seeds from %llu on, %.1f s, %llu failed\n", (unsigned long long)seeds,
           (unsigned long long)first, (double)(clock() - start) / CLOCKS_PER_SEC,
           (unsigned long long)failed);
    if (seeds >= SEEDS_THAT_SEE_ALL && !saw_all(&all)) {
        printf("something never happened\n");
        return EXIT_FAILURE;
    }
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

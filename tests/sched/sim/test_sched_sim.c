/* sched/sim/test_sched_sim.c - many seeds of sched/sim/sim.h.
 *
 *      program [--seeds N] [--steps M] [--first SEED] [--check EVERY] [--jobs J]
 *
 * Every seed is its own world; a failure prints the seed, `--first SEED --seeds 1` repeats it.
 */
#include "sched/sim/sim.h"

#include "model/plain.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(MODEL_SLOW)
enum { SEEDS = 240, STEPS = 300 };
#else
enum { SEEDS = 400, STEPS = 400 };
#endif
enum { SEEDS_THAT_SEE_ALL = 240, MOST_JOBS = 64 };

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
    all->overtaking += one->overtaking;
    all->saves += one->saves;
    all->forks += one->forks;
    all->shared += one->shared;
    all->copies += one->copies;
    all->calls += one->calls;
    all->refused += one->refused;
    all->configs += one->configs;
    all->outgrown += one->outgrown;
    all->cuts += one->cuts;
    all->moves += one->moves;
    all->states += one->states;
    all->pooled += one->pooled;
    all->repeated += one->repeated;
    all->embedded += one->embedded;
    all->hashed += one->hashed;
    all->found += one->found;
    all->large += one->large;
    all->slowest = one->slowest > all->slowest ? one->slowest : all->slowest;
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
           "forgotten, %llu pins, %llu admitted before others, %llu moved by the caller, %llu "
           "saved by the connector\n",
           (unsigned long long)t->loads, (unsigned long long)t->lost,
           (unsigned long long)t->sendings, (unsigned long long)t->turns,
           (unsigned long long)t->rejected, (unsigned long long)t->encoded,
           (unsigned long long)t->full, (unsigned long long)t->swapped_out,
           (unsigned long long)t->swapped_in, (unsigned long long)t->forgotten,
           (unsigned long long)t->pins, (unsigned long long)t->overtaking,
           (unsigned long long)t->moves, (unsigned long long)t->saves);
    printf(
        "%llu calls, each walked; refused: %llu configs, %llu requests and inputs; %llu requests "
        "outgrew the pool, %llu prompts cut, %llu states read, %llu steps of more than 16 "
        "requests, the last requests took %llu steps at most\n",
        (unsigned long long)t->calls, (unsigned long long)t->configs,
        (unsigned long long)t->refused, (unsigned long long)t->outgrown,
        (unsigned long long)t->cuts, (unsigned long long)t->states, (unsigned long long)t->large,
        (unsigned long long)t->slowest);
    printf(
        "%llu pooled, %llu ended by repetition, %llu prompts of embeddings, %llu with hashes, "
        "%llu images that the encoder connector had\n%llu forks, of which %llu ran at once, %llu "
        "copies on write\n",
        (unsigned long long)t->pooled, (unsigned long long)t->repeated,
        (unsigned long long)t->embedded, (unsigned long long)t->hashed,
        (unsigned long long)t->found, (unsigned long long)t->forks, (unsigned long long)t->shared,
        (unsigned long long)t->copies);
}

static bool saw_all(const sim_tally *t)
{
    return t->hits > 0 && t->preempted > 0 && t->aborts > 0 && t->resets > 0 && t->loads > 0 &&
           t->lost > 0 && t->sendings > 0 && t->turns > 0 && t->rejected > 0 && t->encoded > 0 &&
           t->swapped_out > 0 && t->swapped_in > 0 && t->forgotten > 0 && t->pins > 0 &&
           t->overtaking > 0 && t->saves > 0 && t->refused > 0 && t->configs > 0 &&
           t->outgrown > 0 && t->cuts > 0 && t->moves > 0 && t->states > 0 && t->large > 0 &&
           t->pooled > 0 && t->repeated > 0 && t->embedded > 0 && t->hashed > 0 && t->found > 0 &&
           t->forks > 0 && t->shared > 0 && t->copies > 0;
}

typedef struct share {
    uint64_t first; /* seeds first, first + every, ... */
    uint64_t every;
    uint64_t end;
    uint32_t steps;
    uint32_t check_every; /* calls between two walks */
} share;

typedef struct result {
    sim_tally tally;
    uint64_t failed;
} result;

static result run_share(const share *given)
{
    result all = {0};
    for (uint64_t seed = given->first; seed < given->end; seed += given->every) {
        sim_tally one;
        all.failed += !sim_run(seed, given->steps, given->check_every, &one);
        add_tally(&all.tally, &one);
    }
    return all;
}

/* Each job is a process of its own, and sends its result through a pipe. */
static result run_jobs(share given, uint64_t num_jobs)
{
    int pipes[MOST_JOBS];
    result all = {0};
    given.every = num_jobs;
    for (uint64_t i = 0; i < num_jobs; i++, given.first++) {
        int ends[2];
        fflush(stdout);
        pid_t child = pipe(ends) == 0 ? fork() : -1;
        if (child < 0)
            abort();
        if (child == 0) {
            result one = run_share(&given);
            fflush(stdout);
            _exit(write(ends[1], &one, sizeof one) == sizeof one ? 0 : 1);
        }
        close(ends[1]);
        pipes[i] = ends[0];
    }
    for (uint64_t i = 0; i < num_jobs; i++) {
        result one;
        bool is_whole = read(pipes[i], &one, sizeof one) == sizeof one;
        all.failed += is_whole ? one.failed : 1; /* it crashed */
        if (is_whole)
            add_tally(&all.tally, &one.tally);
        close(pipes[i]);
    }
    while (wait(NULL) > 0)
        continue;
    return all;
}

int main(int argc, char **argv)
{
    uint64_t first = 1;
    uint64_t seeds = SEEDS;
    uint64_t steps = STEPS;
    uint64_t check_every = 1;
    uint64_t jobs = 1;
    const struct {
        const char *name;
        uint64_t *value;
    } options[] = {{"--seeds", &seeds},
                   {"--steps", &steps},
                   {"--first", &first},
                   {"--check", &check_every},
                   {"--jobs", &jobs}};
    for (int i = 1; i + 1 < argc; i += 2)
        for (size_t k = 0; k < COUNT(options); k++)
            if (strcmp(argv[i], options[k].name) == 0)
                *options[k].value = strtoull(argv[i + 1], NULL, 10);
    share given = {first, 1, first + seeds, (uint32_t)steps, (uint32_t)check_every};
    struct timespec start;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    result all = jobs > 1 && jobs <= MOST_JOBS ? run_jobs(given, jobs) : run_share(&given);
    clock_gettime(CLOCK_MONOTONIC, &end);
    print_tally(&all.tally);
    printf("%llu seeds from %llu on, %.1f s, %llu failed\n", (unsigned long long)seeds,
           (unsigned long long)first, (double)(end.tv_sec - start.tv_sec),
           (unsigned long long)all.failed);
    if (seeds >= SEEDS_THAT_SEE_ALL && !saw_all(&all.tally)) {
        printf("something never happened\n");
        return EXIT_FAILURE;
    }
    return all.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* sched_image/test_image_forge.c - forged images with a right checksum: whatever restore accepts
 * passes the walker and FORGE_STEPS further steps, and no sanitizer has anything to say.
 *
 *      sched_image_forge [--images N] [--seed S] [--jobs J] [--only I]
 *
 * Image I of a seed is always the same. IMAGES_OF_WORLD images are forged from each world. Jobs are
 * processes: one that dies is started again behind the image that it died of, which is named.
 */
#include "image_forge.h"
#include "model/plain.h"

#include "sched/sched.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { IMAGES_OF_WORLD = 50, MAX_JOBS = 64, MAX_ROUNDS = 40, TOLD = 40 };

#ifdef MODEL_SLOW
static uint64_t num_images = 300;
#else
static uint64_t num_images = 4000;
#endif
static uint64_t seed = 1;
static uint64_t only = UINT64_MAX;
static bool is_0_32; /* the profile of the worlds */
static uint32_t num_jobs = 1;

/* Shared with the parent. */
typedef struct job_state {
    uint64_t next;    /* the image that the job is at */
    uint64_t end;     /* of its images */
    uint64_t refused; /* by restore */
    uint64_t accepted;
    uint64_t failed;
    uint64_t died;
    char what[400]; /* was changed in that image */
} job_state;

static job_state *jobs;

static world w;
static forge_image image;
static uint64_t open_world = UINT64_MAX;

static void close_world(void)
{
    if (open_world == UINT64_MAX)
        return;
    forge_close(&image);
    quire_hasher_destroy(w.sides[1].hasher);
    w.sides[1].hasher = NULL;
    world_close(&w);
    open_world = UINT64_MAX;
}

/* A world in the middle of its work: three in four are wide. */
static void open_number(uint64_t number)
{
    if (open_world == number)
        return;
    close_world();
    uint64_t random = seed * UINT64_C(0x100000001) + number;
    uint32_t rounds = 4 + unit_random_below(&random, MAX_ROUNDS);
    if (is_0_32)
        world_open_0_32(&w, unit_random(&random), number % 4 != 0);
    else if (number % 4 == 0)
        world_open(&w, unit_random(&random));
    else
        world_open_wide(&w, unit_random(&random), true);
    for (uint32_t i = 0; i < rounds; i++)
        world_round(&w);
    w.sides[1] = (world_side){.world = &w, .hasher = world_make_hasher(&w)};
    forge_open(&image, &w);
    open_world = number;
}

static void forge_one(job_state *job, uint64_t number)
{
    uint64_t random = seed ^ (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    open_number(number / IMAGES_OF_WORLD);
    unsigned char *forged = malloc(image.size);
    assert_non_null(forged);
    memcpy(forged, image.bytes, image.size);
    forge_change(&image, forged, &random, job->what, sizeof job->what);
    quire_sched_config config = world_side_config(&w, 1);
    quire_sched *sched = NULL;
    int err = quire_sched_restore(&config, NULL, forged, image.size, &sched);
    free(forged);
    if (err != QUIRE_OK) {
        job->refused++;
        return;
    }
    job->accepted++;
    const char *refused = forge_use(&w, sched, &random);
    quire_sched_destroy(sched);
    if (refused == NULL)
        return;
    if (job->failed++ < TOLD)
        printf("image %llu: refused by %s: %s\n", (unsigned long long)number, refused, job->what);
}

static void run_job(job_state *job)
{
    for (; job->next < job->end; job->next++)
        forge_one(job, job->next);
    close_world();
}

/* ---- processes ------------------------------------------------------------- */

static pid_t start_job(job_state *job)
{
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    run_job(job);
    fflush(stdout);
    _exit(0);
}

static void run_jobs(void)
{
    pid_t pids[MAX_JOBS];
    for (uint32_t i = 0; i < num_jobs; i++)
        pids[i] = start_job(&jobs[i]);
    for (uint32_t left = num_jobs; left > 0;) {
        int status;
        pid_t pid = wait(&status);
        uint32_t i = 0;
        while (i < num_jobs && pids[i] != pid)
            i++;
        assert_true(i < num_jobs);
        job_state *job = &jobs[i];
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            left--;
            continue;
        }
        if (job->died++ < TOLD)
            printf("image %llu: the process died: %s\n", (unsigned long long)job->next, job->what);
        job->next++;
        pids[i] = start_job(job);
    }
}

static void accepted_images_can_be_used(void **state)
{
    (void)state;
    job_state sum = {0};
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    size_t bytes = num_jobs * sizeof *jobs;
    jobs = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(jobs, MAP_FAILED);
    for (uint32_t i = 0; i < num_jobs; i++)
        jobs[i] =
            (job_state){.next = num_images * i / num_jobs, .end = num_images * (i + 1) / num_jobs};
    if (only != UINT64_MAX)
        jobs[0] = (job_state){.next = only, .end = only + 1};
    if (only != UINT64_MAX)
        run_job(&jobs[0]); /* here, for a debugger */
    else
        run_jobs();
    for (uint32_t i = 0; i < num_jobs; i++) {
        sum.refused += jobs[i].refused;
        sum.accepted += jobs[i].accepted;
        sum.failed += jobs[i].failed;
        sum.died += jobs[i].died;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds =
        (double)(ended.tv_sec - began.tv_sec) + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec);
    uint64_t all = sum.refused + sum.accepted + sum.died;
    printf(
        "%sseed %llu: %llu forged images, %llu refused by restore, %llu accepted and used for %d "
        "steps, of which %llu failed; %llu died; %.0f images/s\n",
        is_0_32 ? "vllm-0.32, " : "", (unsigned long long)seed, (unsigned long long)all,
        (unsigned long long)sum.refused, (unsigned long long)sum.accepted, FORGE_STEPS,
        (unsigned long long)sum.failed, (unsigned long long)sum.died, (double)all / seconds);
    munmap(jobs, bytes);
    assert_true(sum.failed == 0 && sum.died == 0);
    assert_true(num_images < 1000 || only != UINT64_MAX || (sum.refused > 0 && sum.accepted > 0));
}

static void accepted_images_of_0_32_can_be_used(void **state)
{
    is_0_32 = true;
    accepted_images_can_be_used(state);
    is_0_32 = false;
}

/* Images whose schedulers failed once. 300, 225800 is not forged: a session of the vLLM profile
 * began its next input with the load of the last one. */
static void images_that_failed_once_do_not(void **state)
{
    static const struct {
        uint64_t seed;
        uint64_t number;
        bool is_0_32;
    } FOUND[] = {{101, 224292, false}, {101, 882972, false},  {105, 45047, false},
                 {300, 225800, false}, {300, 1657422, false}, {300, 1694825, false},
                 {1, 1126, true},      {5, 43099, true}};
    static job_state job;
    uint64_t given = seed;
    (void)state;
    for (size_t i = 0; i < COUNT(FOUND); i++) {
        seed = FOUND[i].seed;
        is_0_32 = FOUND[i].is_0_32;
        forge_one(&job, FOUND[i].number);
        close_world();
    }
    seed = given;
    is_0_32 = false;
    assert_int_equal(job.refused + job.accepted, COUNT(FOUND));
    assert_int_equal(job.failed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(images_that_failed_once_do_not),
                                       cmocka_unit_test(accepted_images_can_be_used),
                                       cmocka_unit_test(accepted_images_of_0_32_can_be_used)};
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--images") == 0)
            num_images = value;
        else if (strcmp(argv[i], "--seed") == 0)
            seed = value;
        else if (strcmp(argv[i], "--only") == 0)
            only = value;
        else if (strcmp(argv[i], "--jobs") == 0 && value >= 1 && value <= MAX_JOBS)
            num_jobs = (uint32_t)value;
        else
            return fprintf(stderr, "%s: unknown option or value: %s\n", argv[0], argv[i]), 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sched_scale.c - a decode step with 1 to 65,536 running requests: is a request's cost flat?
 *
 *      sched/decode/N, sched/decode_async/N    N of 256 and 1,024, beside vLLM: prompts of 500 to
 *                                              2,000 tokens
 *      sched/steps/N, sched/steps_async/N      N of 1 to 65,536: prompts of 64 to 128 tokens
 *      sched/schedule/N, sched/update/N        the same, the two calls apart
 *
 * All in ns for one request in one step. Each request takes a block every 16 steps, which evicts a
 * cached one, and fills one, which is hashed and gets its key. Calls are timed apart only where one
 * takes long beside the clock itself.
 */
#include "sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum part { BOTH, SCHEDULE, UPDATE } part;

typedef struct decoding {
    bench_engine *engine;
    part timed;
} decoding;

/* ---- one life ----------------------------------------------------------- */

static void decode_both(bench_engine *e, bench_timer *timer)
{
    bench_start(timer);
    for (uint32_t i = 0; i < BENCH_DECODE_STEPS; i++) {
        bench_engine_schedule(e);
        bench_engine_update(e);
    }
    bench_stop(timer, (uint64_t)BENCH_DECODE_STEPS * e->num_requests);
}

static void decode_apart(bench_engine *e, part timed, bench_timer *timer)
{
    bench_timer schedule = {0}, update = {0};
    for (uint32_t i = 0; i < BENCH_DECODE_STEPS; i++) {
        bench_start(&schedule);
        bench_engine_schedule(e);
        bench_stop(&schedule, e->num_requests);
        bench_start(&update);
        bench_engine_update(e);
        bench_stop(&update, e->num_requests);
    }
    const bench_timer *chosen = timed == SCHEDULE ? &schedule : &update;
    timer->timed_ns += chosen->timed_ns;
    timer->operations += chosen->operations;
}

static void live(decoding *d, bench_timer *timer)
{
    bench_engine_start(d->engine);
    if (d->timed == BOTH)
        decode_both(d->engine, timer);
    else
        decode_apart(d->engine, d->timed, timer);
}

static uint64_t decode_pass(void *state, bench_timer *timer)
{
    decoding *d = state;
    live(d, timer);
    bench_engine_stop(d->engine);
    return d->engine->check;
}

static void decode_teardown(void *state)
{
    decoding *d = state;
    bench_engine_teardown(d->engine);
    free(d);
}

/* ---- the cases ---------------------------------------------------------- */

/* size: requests, batch: the part that is timed, shuffled: async scheduling */
static void *setup(const bench_case *self, uint32_t shortest, uint32_t longest)
{
    const uint32_t blocks = (longest + BENCH_DECODE_STEPS) / BENCH_BLOCK_SIZE + 2;
    const bench_engine_config config = {.num_blocks = 2 * blocks * self->size,
                                        .num_requests = self->size,
                                        .shortest = shortest,
                                        .longest = longest,
                                        .max_tokens = 2 * BENCH_DECODE_STEPS,
                                        .is_async = self->shuffled};
    decoding *d = bench_memory(sizeof *d);
    *d = (decoding){bench_engine_new(&config), (part)self->batch};
    bench_timer unused = {0};
    live(d, &unused);
    d->engine->check = bench_engine_check(d->engine);
    bench_engine_stop(d->engine);
    return d;
}

static void *long_setup(const bench_case *self)
{
    return setup(self, 500, 2000);
}

static void *short_setup(const bench_case *self)
{
    return setup(self, 64, 128);
}

#define LIMIT_NS 50 /* of one request and step, schedule and update together */

#define DECODE(name, limit, requests, timed, is_async, make)                                       \
    {                                                                                              \
        "sched/" name, "ns/request", 1, limit, requests, timed, is_async, make, decode_pass,       \
            decode_teardown                                                                        \
    }

#define BESIDE_VLLM(name, requests, is_async)                                                      \
    DECODE(name, LIMIT_NS, requests, BOTH, is_async, long_setup)

#define STEPS(size, requests) DECODE("steps/" size, 0, requests, BOTH, false, short_setup)

#define ASYNC(size, requests) DECODE("steps_async/" size, 0, requests, BOTH, true, short_setup)

#define APART(size, requests)                                                                      \
    DECODE("schedule/" size, 0, requests, SCHEDULE, false, short_setup),                           \
        DECODE("update/" size, 0, requests, UPDATE, false, short_setup)

static const bench_case cases[] = {
    BESIDE_VLLM("decode/256", 256, false),
    BESIDE_VLLM("decode/1024", 1024, false),
    BESIDE_VLLM("decode_async/256", 256, true),
    BESIDE_VLLM("decode_async/1024", 1024, true),
    STEPS("1", 1),
    STEPS("16", 16),
    STEPS("256", 256),
    STEPS("1k", 1024),
    STEPS("4k", 4096),
    STEPS("16k", 16384),
    STEPS("64k", 65536),
    ASYNC("1", 1),
    ASYNC("16", 16),
    ASYNC("256", 256),
    ASYNC("1k", 1024),
    ASYNC("4k", 4096),
    ASYNC("16k", 16384),
    ASYNC("64k", 65536),
    APART("256", 256),
    APART("1k", 1024),
    APART("4k", 4096),
    APART("16k", 16384),
    APART("64k", 65536),
};

bench_group bench_sched_scale_group(void)
{
    return (bench_group){cases, sizeof cases / sizeof *cases};
}

/* ---- summary ------------------------------------------------------------ */

/* One line: the medians of the cases whose names start so. */
static void print_line(const bench_result *results, size_t num_results, const char *prefix)
{
    double first = 0, last = 0;
    const size_t length = strlen(prefix);
    for (size_t i = 0; i < num_results; i++) {
        const bench_result *r = &results[i];
        if (strncmp(r->of->name, prefix, length) != 0)
            continue;
        if (first == 0) {
            first = r->median;
            printf("  %-12s", prefix + strlen("sched/"));
        }
        last = r->median;
        printf("  %s %.1f", r->of->name + length, r->median);
    }
    if (first > 0)
        printf("   from first to last %.1fx\n", last / first);
}

void bench_sched_scale_summary(const bench_result *results, size_t num_results, bool machine)
{
    static const char *const lines[] = {"sched/steps/", "sched/steps_async/", "sched/schedule/",
                                        "sched/update/"};
    bool any = false;
    for (size_t i = 0; i < num_results; i++)
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
            any |= strncmp(results[i].of->name, lines[k], strlen(lines[k])) == 0;
    if (!any || machine)
        return;
    printf("\nscheduler, ns for one request in one decode step\n");
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
        print_line(results, num_results, lines[k]);
}

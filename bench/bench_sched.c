/* bench_sched.c - the scheduler's single operations. */
#include "bench_sched.h"

/* ---- the cases ---------------------------------------------------------- */

static void *prompt_setup(const bench_case *self)
{
    const bench_engine_config config = {.num_blocks = 100000,
                                        .num_requests = 1,
                                        .shortest = self->size,
                                        .longest = self->size,
                                        .max_tokens = 1};
    return bench_engine_new(&config);
}

static uint64_t admit_pass(void *state, bench_timer *timer)
{
    bench_engine *e = state;
    bench_engine_add(e, 0);
    bench_start(timer);
    bench_engine_schedule(e);
    bench_stop(timer, 1);
    bench_engine_update(e);
    return e->check;
}

static const bench_case cases[] = {
    {"sched/admit/128k", "us/call", 1000, 0, 131073, 0, false, prompt_setup, admit_pass,
     bench_engine_teardown},
};

bench_group bench_sched_group(void)
{
    return (bench_group){cases, sizeof cases / sizeof *cases};
}

/* sched.c - the scheduler's single operations.
 *
 *      sched/add/128k                  a prompt of 131,073 tokens comes in: copied and hashed
 *      sched/admit/128k, admit_hit     the schedule() call that takes it in: every block is new, or
 *                                      every full block is in the cache
 *      sched/preempt/256               a step of 256 requests, from their arrival to the last one's
 *                                      end, in a pool that holds a third of what they grow to
 *      sched/abort/10k                 one of 10,000 waiting requests is aborted, at any place
 *
 * Decode steps are in bench_sched_scale.c.
 */
#include "sched.h"

#define PROMPT_TOKENS  (128u * 1024 + 1) /* the last block is never a hit */
#define PROMPT_POOL    100000u
#define NUM_WAITING    10000u
#define ABORTS         500u
#define ABORT_STRIDE   7919u /* prime: all requests have their turn, and no neighbours */
#define PREEMPT_TOKENS 256u
#define PREEMPT_POOL   2000u

/* ---- one long prompt ---------------------------------------------------- */

static bench_engine *prompt_engine(void)
{
    const bench_engine_config config = {.num_blocks = PROMPT_POOL,
                                        .num_requests = 1,
                                        .shortest = PROMPT_TOKENS,
                                        .longest = PROMPT_TOKENS,
                                        .max_tokens = 1};
    return bench_engine_new(&config);
}

/* From its arrival to its end, which comes with the first token. */
static void serve_prompt(bench_engine *e, bench_timer *timer)
{
    bench_start(timer);
    bench_engine_schedule(e);
    bench_stop(timer, 1);
    bench_engine_update(e);
}

static void *admit_setup(const bench_case *self)
{
    (void)self;
    bench_engine *e = prompt_engine();
    bench_timer unused = {0};
    bench_engine_add(e, 0);
    serve_prompt(e, &unused);
    e->check = bench_engine_check_step(e, BENCH_CHECK_START);
    return e;
}

static void *admit_hit_setup(const bench_case *self)
{
    bench_engine *e = admit_setup(self);
    bench_timer unused = {0};
    bench_engine_add_again(e, 0);
    serve_prompt(e, &unused);
    e->check = bench_engine_check_step(e, BENCH_CHECK_START);
    return e;
}

static uint64_t admit_pass(void *state, bench_timer *timer)
{
    bench_engine *e = state;
    bench_engine_add(e, 0);
    serve_prompt(e, timer);
    return e->check;
}

static uint64_t admit_hit_pass(void *state, bench_timer *timer)
{
    bench_engine *e = state;
    bench_engine_add_again(e, 0);
    serve_prompt(e, timer);
    return e->check;
}

static void *add_setup(const bench_case *self)
{
    (void)self;
    return prompt_engine();
}

static uint64_t add_pass(void *state, bench_timer *timer)
{
    bench_engine *e = state;
    bench_start(timer);
    bench_engine_add(e, 0);
    bench_stop(timer, 1);
    bench_engine_stop(e);
    return 0;
}

/* ---- too small a pool --------------------------------------------------- */

/* All requests from their arrival to their end; returns the check value of all steps. */
static uint64_t serve_all(bench_engine *e, bench_timer *timer, bool checks)
{
    uint64_t check = BENCH_CHECK_START;
    const uint64_t before = e->scheduled;
    for (uint32_t i = 0; i < e->num_requests; i++)
        bench_engine_add(e, i);
    bench_start(timer);
    while (quire_sched_get_num_unfinished(e->sched) > 0) {
        bench_engine_schedule(e);
        if (checks)
            check = bench_engine_check_step(e, check);
        bench_engine_update(e);
    }
    bench_stop(timer, e->scheduled - before);
    bench_engine_stop(e);
    return check;
}

static void *preempt_setup(const bench_case *self)
{
    const bench_engine_config config = {.num_blocks = PREEMPT_POOL,
                                        .num_requests = self->size,
                                        .shortest = 64,
                                        .longest = 128,
                                        .max_tokens = PREEMPT_TOKENS};
    bench_engine *e = bench_engine_new(&config);
    bench_timer unused = {0};
    e->check = serve_all(e, &unused, true);
    return e;
}

static uint64_t preempt_pass(void *state, bench_timer *timer)
{
    bench_engine *e = state;
    (void)serve_all(e, timer, false);
    return e->check;
}

/* ---- aborts ------------------------------------------------------------- */

static void *abort_setup(const bench_case *self)
{
    const bench_engine_config config = {.num_blocks = 1000,
                                        .num_requests = self->size,
                                        .shortest = 16,
                                        .longest = 32,
                                        .max_tokens = 1};
    bench_engine *e = bench_engine_new(&config);
    bench_must(quire_sched_set_pause(e->sched, QUIRE_PAUSED_ALL), "quire_sched_set_pause");
    for (uint32_t i = 0; i < e->num_requests; i++)
        bench_engine_add(e, i);
    return e;
}

/* Those aborted come back at the end of the queue. */
static uint64_t abort_pass(void *state, bench_timer *timer)
{
    bench_engine *e = state;
    const uint32_t first = (uint32_t)(e->random++ % e->num_requests) * ABORTS;
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < ABORTS; i++) {
        const uint32_t which = (uint32_t)((uint64_t)(first + i) * ABORT_STRIDE % e->num_requests);
        status |=
            quire_sched_finish(e->sched, &e->reqs[which], 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    }
    bench_stop(timer, ABORTS);
    bench_must(status, "quire_sched_finish");
    bench_engine_schedule(e); /* tells which have ended; nobody is taken in */
    bench_engine_drain(e);
    for (uint32_t i = 0; i < ABORTS; i++)
        bench_engine_add(e, (uint32_t)((uint64_t)(first + i) * ABORT_STRIDE % e->num_requests));
    return quire_sched_get_counts(e->sched).num_waiting;
}

/* ---- the cases ---------------------------------------------------------- */

#define CASE(name, unit, unit_ns, size, setup, pass)                                               \
    {                                                                                              \
        "sched/" name, unit, unit_ns, 0, size, 1, true, setup, pass, bench_engine_teardown         \
    }

static const bench_case cases[] = {
    CASE("add/128k", "us/call", 1e3, 1, add_setup, add_pass),
    CASE("admit/128k", "us/call", 1e3, 1, admit_setup, admit_pass),
    CASE("admit_hit/128k", "us/call", 1e3, 1, admit_hit_setup, admit_hit_pass),
    CASE("preempt/256", "us/step", 1e3, 256, preempt_setup, preempt_pass),
    CASE("abort/10k", "ns/call", 1, NUM_WAITING, abort_setup, abort_pass),
};

bench_group bench_sched_group(void)
{
    return (bench_group){cases, sizeof cases / sizeof *cases};
}

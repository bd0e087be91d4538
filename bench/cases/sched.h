/* sched.h - an engine without a model: a scheduler, its requests, and tokens out of a table.
 *
 *      start     every request is added with a new prompt, and computed up to its first token
 *      decode    BENCH_DECODE_STEPS steps of one token for each request
 *      stop      every request is aborted, and the step that tells so is taken
 *
 *      prompt of request i    [ a number of its own ][ the table's tokens from 1 on ... ]
 *      sampled in step n      the table's tokens from n % BENCH_DECODE_STEPS on, one a request
 *
 * So no prompt shares a block with another or with an earlier one, while vllm_sched.py can make the
 * same ones at little cost.
 */
#ifndef QUIRE_BENCH_SCHED_H
#define QUIRE_BENCH_SCHED_H

#include "bench.h"

typedef struct bench_engine_config {
    uint32_t num_blocks;
    uint32_t num_requests;
    uint32_t shortest; /* tokens of a prompt, drawn between the two */
    uint32_t longest;
    uint32_t max_tokens; /* of the output */
    bool is_async;
    const quire_monitor_config *monitor; /* NULL: none */
} bench_engine_config;

typedef struct bench_engine {
    quire_sched *sched;
    quire_hasher *hasher;
    uint32_t num_requests;
    uint32_t max_tokens;
    uint32_t *prompt_tokens;
    quire_req *reqs;
    quire_token *table;
    quire_token *prompt;
    const quire_step *step; /* the last one scheduled, and the numbers of that */
    uint64_t scheduled;
    uint64_t updated; /* and of the last one updated */
    bool is_async;
    quire_token num_added;
    uint64_t random;
    uint64_t check; /* of the case */
} bench_engine;

bench_engine *bench_engine_new(const bench_engine_config *config);
void bench_engine_teardown(void *state);
/* Adds request i with a new prompt; or with the one that it had before. */
void bench_engine_add(bench_engine *engine, uint32_t i);
void bench_engine_add_again(bench_engine *engine, uint32_t i);
void bench_engine_schedule(bench_engine *engine);
/* Takes the output of the oldest step in flight; or of all. */
void bench_engine_update(bench_engine *engine);
void bench_engine_drain(bench_engine *engine);
void bench_engine_start(bench_engine *engine);
void bench_engine_stop(bench_engine *engine);
/* Check values, of what the last step scheduled on top of another; of all blocks of all requests.
 * The same numbers in another order give the same value: vLLM lists requests in another one. */
uint64_t bench_engine_check_step(const bench_engine *engine, uint64_t check);
uint64_t bench_engine_check(const bench_engine *engine);

#endif

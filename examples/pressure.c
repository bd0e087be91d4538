/* pressure.c - twelve requests in a pool that holds half of them, five times: what the scheduler
 * does about it is a choice.
 *
 *      as it is     admits while prompts fit; a request that finds no block for its next token has
 *                   the last one preempted, which is computed again from its beginning
 *      watermark    a new request must leave a tenth of the pool free, for requests that run
 *      pressure     admits below 0.6, preempts above 0.9 of the pool
 *      swap         the KV of a preempted request goes to host memory and comes back, if
 *
 *                       2 * blocks * (time to move a block) < tokens * (time to compute a token)
 *
 *      slow link    the same over a link on which computing again is cheaper: nothing is swapped
 *
 * The requests have 56 to 100 prompt tokens (4 to 7 blocks of 16) and generate 60 tokens each.
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_SIZE   16
#define NUM_BLOCKS   61 /* 60 and the null block */
#define NUM_REQUESTS 12
#define PROMPT       100
#define OUTPUT       60
#define BLOCK_BYTES  UINT64_C(2097152) /* 16 tokens of an 8B model */
#define PCIE         55e9              /* bytes a second to the host */
#define NETWORK      1e9               /* a slow one */
#define TOKENS_PER_S 30e3              /* that the GPU computes of prompts */

typedef struct choice {
    const char *name;
    double watermark, admit_below, preempt_above;
    uint32_t num_swap_blocks;
    double bytes_per_s;
} choice;

typedef struct tally {
    uint32_t steps, preemptions, again, out, in;
    double most; /* of the pool, in use at the end of a step */
} tally;

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

static uint64_t block_ns(const choice *c)
{
    return (uint64_t)(quire_cost_transfer_seconds(BLOCK_BYTES, c->bytes_per_s) * 1e9);
}

static uint64_t token_ns(void)
{
    return (uint64_t)(quire_cost_recompute_seconds(1, TOKENS_PER_S) * 1e9);
}

static quire_sched *make_scheduler(const choice *c, const quire_group_config *group)
{
    quire_sched *sched = NULL;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = NUM_BLOCKS;
    cache.groups = group;
    cache.num_groups = 1;
    cache.max_model_len = 512;
    cache.enable_caching = QUIRE_OFF; /* else much of a victim is still found */
    cache.watermark = c->watermark;
    if (c->preempt_above > 0) {
        config.use_pressure = QUIRE_ON;
        cache.admit_below = c->admit_below;
        cache.preempt_above = c->preempt_above;
    }
    if (c->num_swap_blocks > 0) {
        config.num_swap_blocks = c->num_swap_blocks;
        config.swap_block_ns = block_ns(c);
        config.recompute_token_ns = token_ns();
    }
    must(quire_sched_create(&config, NULL, &sched), "scheduler");
    return sched;
}

/* The user of a request is how many of its tokens were ever computed. */
static void take_step(quire_sched *sched, tally *t)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[NUM_REQUESTS] = {0};
    must(quire_sched_schedule(sched, &step), "schedule");
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t *most = quire_sched_get_user(sched, step->reqs[i]);
        uint32_t first = step->num_computed_tokens[i];
        uint32_t end = first + step->num_tokens[i];
        if (first < *most) /* they were computed before */
            t->again += (end < *most ? end : *most) - first;
        *most = end > *most ? end : *most;
    }
    t->steps++;
    t->preemptions += step->num_preempted;
    t->out += step->num_swap_out;
    t->in += step->num_swap_in;
    double level = quire_usage_level(quire_cache_get_usage(quire_sched_get_cache(sched)));
    t->most = level > t->most ? level : t->most;
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    must(quire_sched_update(sched, step->step, &output, &outputs), "update");
}

static tally run(const choice *c, const quire_group_config *group)
{
    tally t = {0};
    uint32_t most_computed[NUM_REQUESTS] = {0};
    quire_token prompt[PROMPT] = {0};
    quire_sched *sched = make_scheduler(c, group);
    for (uint32_t i = 0; i < NUM_REQUESTS; i++) {
        const char name = (char)('a' + i);
        const quire_request_params params = {.size = sizeof(quire_request_params),
                                             .id = {&name, 1},
                                             .prompt = prompt,
                                             .num_prompt_tokens = PROMPT - 4 * i,
                                             .max_tokens = OUTPUT,
                                             .user = &most_computed[i]};
        must(quire_sched_add(sched, &params, &(quire_req){0}), "add");
    }
    while (quire_sched_get_num_unfinished(sched) > 0)
        take_step(sched, &t);
    quire_sched_destroy(sched);
    return t;
}

int main(void)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = BLOCK_SIZE,
                                               .num_kv_heads = 8,
                                               .head_size = 128,
                                               .dtype = QUIRE_DTYPE_BFLOAT16}};
    const choice choices[] = {
        {.name = "as it is"},
        {.name = "watermark", .watermark = 0.1},
        {.name = "pressure", .admit_below = 0.6, .preempt_above = 0.9},
        {.name = "swap", .num_swap_blocks = 60, .bytes_per_s = PCIE},
        {.name = "slow link", .num_swap_blocks = 60, .bytes_per_s = NETWORK},
    };
    printf("           steps  preempted  tokens again  blocks out  back  most in use\n");
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        tally t = run(&choices[i], &group);
        printf("%-10s %5u %10u %13u %11u %5u %11.0f%%\n", choices[i].name, t.steps, t.preemptions,
               t.again, t.out, t.in, 100 * t.most);
    }
    printf("\nA request of 112 tokens, 7 blocks, leaves the GPU:\n");
    for (size_t i = 3; i < sizeof choices / sizeof *choices; i++)
        printf("  %-9s  %5.1f ms to move it out and back, %.1f ms to compute it again\n",
               choices[i].name, 2 * 7 * (double)block_ns(&choices[i]) * 1e-6,
               112 * (double)token_ns() * 1e-6);
    return 0;
}

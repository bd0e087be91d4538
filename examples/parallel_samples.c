/* parallel_samples.c - four samples of one prompt as requests of the scheduler: the prompt is
 * computed once, its blocks are shared, and a block is copied when a sample writes into it.
 *
 *      step 1   the first 6 tokens of the prompt      then three forks
 *      step 2   the last token, four times            copies of the block that all of them write
 *      step 3   each sample goes on by itself
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 4, PROMPT = 7, SAMPLES = 4, CHUNK = 6 };

static void must(int status, const char *what)
{
    if (status == QUIRE_OK)
        return;
    printf("%s: %s\n", what, quire_strerror(status));
    exit(EXIT_FAILURE);
}

static quire_sched *make_scheduler(quire_hasher *hasher, const quire_group_config *group)
{
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = 33;
    cache.groups = group;
    cache.num_groups = 1;
    cache.max_model_len = 64;
    cache.max_copies = SAMPLES;
    config.hasher = hasher;
    config.max_num_seqs = SAMPLES;
    config.max_num_batched_tokens = CHUNK;
    quire_sched *sched = NULL;
    must(quire_sched_create(&config, NULL, &sched), "scheduler");
    return sched;
}

/* What an engine would do: copy pages, compute, sample. Here sample i takes token 100 + i. */
static void run_step(quire_sched *sched)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[SAMPLES] = {0};
    must(quire_sched_schedule(sched, &step), "schedule");
    printf("step %llu: %u requests, %u tokens, %u copies, %llu blocks in use\n",
           (unsigned long long)step->step, step->num_reqs, step->total_tokens, step->num_copies,
           (unsigned long long)quire_sched_get_usage(sched).active);
    for (uint32_t i = 0; i < step->num_copies; i++)
        printf("  request %u has a copy of its block %u\n", step->copies[i].place,
               step->copies[i].index);
    for (uint32_t i = 0; i < step->num_reqs; i++)
        sampled[i] = (quire_token)(100 + i);
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    must(quire_sched_update(sched, step->step, &output, &outputs), "update");
}

int main(void)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = BLOCK,
                                               .num_kv_heads = 1,
                                               .head_size = 8,
                                               .dtype = QUIRE_DTYPE_FLOAT16}};
    const quire_token prompt[PROMPT] = {1, 2, 3, 4, 5, 6, 7};
    static const char *const names[SAMPLES] = {"s0", "s1", "s2", "s3"};
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher *hasher = NULL;
    hashing.block_size = BLOCK;
    must(quire_hasher_create(&hashing, NULL, &hasher), "hasher");
    quire_sched *sched = make_scheduler(hasher, &group);
    quire_req samples[SAMPLES];
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {names[0], 2},
                                   .prompt = prompt,
                                   .num_prompt_tokens = PROMPT,
                                   .max_tokens = 3};
    must(quire_sched_add(sched, &params, &samples[0]), "add");
    run_step(sched);
    for (uint32_t i = 1; i < SAMPLES; i++) {
        const quire_request_params own = {
            .size = sizeof(quire_request_params), .id = {names[i], 2}, .max_tokens = 3};
        must(quire_sched_fork(sched, samples[0], &own, &samples[i]), "fork");
    }
    run_step(sched);
    run_step(sched);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        quire_token tokens[2];
        must(quire_sched_get_tokens(sched, samples[i], PROMPT, 2, tokens), "tokens");
        printf("%s: %d %d\n", names[i], (int)tokens[0], (int)tokens[1]);
    }
    quire_sched_destroy(sched);
    quire_hasher_destroy(hasher);
    return EXIT_SUCCESS;
}

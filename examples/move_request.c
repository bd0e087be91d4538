/* move_request.c - the KV of one request leaves the GPU and comes back.
 *
 *      GPU pool    1,024 blocks of 16 tokens (and the null block)
 *      host slots  2,048, of the same size
 *
 *      computed    a prompt of 100 tokens: 7 blocks
 *      offloaded   the step lists 7 copies to host slots; the blocks are free again
 *      resumed     the next step lists what comes back. Here all full blocks are still cached, so
 *                  that only the last, half-filled one is copied
 *      finished    everything is free
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_SIZE 16
#define GPU_BLOCKS 1024
#define HOST_SLOTS 2048
#define PROMPT     100

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

static uint32_t host_used;

/* The engine's part: here it only counts what it would copy. */
static const quire_step *run_step(quire_sched *sched)
{
    const quire_step *step;
    const quire_outputs *outputs;
    static const quire_token token[1] = {7};
    must(quire_sched_schedule(sched, &step), "schedule");
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = token};
    must(quire_sched_update(sched, step->step, &output, &outputs), "update");
    return step;
}

static void print_line(const quire_sched *sched, quire_req req, const char *what)
{
    static const char *const NAMES[] = {"nowhere", "GPU", "host"};
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_usage usage = quire_sched_get_usage(sched);
    quire_sched_get_req_info(sched, req, &info);
    printf("%-10s GPU free %4u   host free %4u   KV: %s\n", what,
           (unsigned)(usage.empty + usage.cached), (unsigned)(HOST_SLOTS - host_used),
           NAMES[info.location]);
}

int main(void)
{
    quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                         .block_size = BLOCK_SIZE,
                                         .num_kv_heads = 8,
                                         .head_size = 64,
                                         .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    hashing.algo = QUIRE_HASH_QUIRE128;
    hashing.block_size = BLOCK_SIZE;
    quire_hasher *hasher;
    must(quire_hasher_create(&hashing, NULL, &hasher), "hasher");

    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = GPU_BLOCKS + 1;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = 4096;
    cache.digest_bytes = 16;
    config.hasher = hasher;
    config.num_swap_blocks = HOST_SLOTS;
    quire_sched *sched;
    must(quire_sched_create(&config, NULL, &sched), "scheduler");

    quire_token prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i;
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {"one", 3},
                                   .prompt = prompt,
                                   .num_prompt_tokens = PROMPT,
                                   .max_tokens = 50};
    quire_req req;
    must(quire_sched_add(sched, &params, &req), "add");
    print_line(sched, req, "added");

    run_step(sched);
    print_line(sched, req, "computed");

    must(quire_sched_offload(sched, req), "offload");
    const quire_step *step = run_step(sched);
    host_used += step->num_swap_out;
    print_line(sched, req, "offloaded");
    printf("           %u copies to the host; the step computes %u requests\n", step->num_swap_out,
           step->num_reqs);

    must(quire_sched_resume(sched, req), "resume");
    step = run_step(sched);
    host_used = 0; /* slots of a request that came back are free */
    print_line(sched, req, "resumed");
    printf("           %u copy back, %u of %u tokens need no computing\n", step->num_swap_in,
           step->num_computed_tokens[0], step->num_computed_tokens[0] + step->num_tokens[0]);

    must(quire_sched_finish(sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL), "finish");
    print_line(sched, req, "finished");
    quire_sched_destroy(sched);
    quire_hasher_destroy(hasher);
    return 0;
}

/* engine.c - a whole engine in one loop: schedule, compute, update, until nobody is left.
 *
 * Five chats that begin with the same 8 tokens arrive in a pool that is too small for all of them.
 * Each line is a step: who computes how many tokens (+ first time, * back after preemption), how
 * many run and wait, and the pool: N null, A active, C cached (free, but can be found), E empty.
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_SIZE  4 /* small, so that the picture is */
#define NUM_BLOCKS  20
#define NUM_CHATS   5
#define MAX_RUNNING 4

typedef struct chat {
    char name[2];
    uint32_t arrives, prompt_tokens, max_tokens;
    uint32_t num_new, num_hit, num_preempted; /* what became of it */
} chat;

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

static void arrive(quire_sched *sched, chat *c)
{
    quire_token prompt[24];
    for (quire_token i = 0; i < 24; i++)
        prompt[i] = i < 8 ? i : c->name[0] * 100 + i; /* all begin alike */
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {c->name, 1},
                                   .max_tokens = c->max_tokens,
                                   .user = c};
    params.prompt = prompt;
    params.num_prompt_tokens = c->prompt_tokens;
    must(quire_sched_add(sched, &params, &(quire_req){0}), "add");
}

/* Where a model would run. This one only says how far each request has come. */
static void compute(const quire_step *step, quire_token *sampled)
{
    for (uint32_t i = 0; i < step->num_reqs; i++)
        sampled[i] = 1000 + (quire_token)(step->num_computed_tokens[i] + step->num_tokens[i]);
}

static void print_step(quire_sched *sched, const quire_step *step)
{
    char pool[NUM_BLOCKS + 1];
    must(quire_pool_draw(quire_cache_get_pool(quire_sched_get_cache(sched)), 0, NUM_BLOCKS, pool),
         "draw");
    const char marks[] = {' ', '+', '*'}; /* of each quire_step_kind */
    printf("%3d ", (int)step->step);
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        const chat *c = quire_sched_get_user(sched, step->reqs[i]);
        printf("  %s%c%-2u", c->name, marks[step->kinds[i]], step->num_tokens[i]);
    }
    printf("%*s   running %u  waiting %u   %s", (int)(MAX_RUNNING - step->num_reqs) * 6, "",
           quire_sched_get_counts(sched).num_running, quire_sched_get_counts(sched).num_waiting,
           pool);
    for (uint32_t i = 0; i < step->num_preempted; i++) {
        chat *c = quire_sched_get_user(sched, step->preempted[i]);
        c->num_preempted++;
        printf("  %s preempted", c->name);
    }
}

int main(void)
{
    quire_layer_spec layer = {.kind = QUIRE_LAYER_FULL, .num_kv_heads = 8, .head_size = 64};
    layer.block_size = BLOCK_SIZE;
    layer.dtype = QUIRE_DTYPE_BFLOAT16;
    const quire_group_config group = {.spec = layer};
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT; /* sha256 */
    hashing.block_size = BLOCK_SIZE;
    hashing.seed = (quire_bytes){"engine", 6}; /* the same hashes in every run */
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    must(quire_hasher_create(&hashing, NULL, &config.hasher), "hasher");
    cache.num_blocks = NUM_BLOCKS;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = 64;
    config.max_num_seqs = MAX_RUNNING;
    config.max_num_batched_tokens = 16; /* of one step */
    quire_sched *sched = NULL;
    must(quire_sched_create(&config, NULL, &sched), "scheduler");
    chat chats[NUM_CHATS] = {{.name = "A", 1, 18, 20},
                             {.name = "B", 1, 14, 16},
                             {.name = "C", 3, 20, 14},
                             {.name = "D", 5, 11, 9},
                             {.name = "E", 6, 16, 8}};
    uint32_t arrived = 0;
    for (uint32_t n = 1; arrived < NUM_CHATS || quire_sched_get_num_unfinished(sched) > 0; n++) {
        while (arrived < NUM_CHATS && chats[arrived].arrives <= n)
            arrive(sched, &chats[arrived++]);
        const quire_step *step;
        const quire_outputs *out;
        quire_token sampled[MAX_RUNNING];
        must(quire_sched_schedule(sched, &step), "schedule");
        compute(step, sampled);
        print_step(sched, step);
        must(quire_sched_update(
                 sched, n,
                 &(quire_model_output){.size = sizeof(quire_model_output), .sampled = sampled},
                 &out),
             "update");
        for (const quire_output *o = out->outputs; o < out->outputs + out->num_outputs; o++) {
            chat *c = o->user;
            c->num_new += o->num_new_tokens;
            if (o->has_prefill_stats) /* with its first token */
                c->num_hit = o->num_local_cached;
            if (o->finish_reason != QUIRE_FINISH_NONE)
                printf("  %s ends", c->name);
        }
        printf("\n");
    }
    for (const chat *c = chats; c < chats + NUM_CHATS; c++)
        printf("%s: prompt %u, of which %u cached; %u new tokens; preempted %u times\n", c->name,
               c->prompt_tokens, c->num_hit, c->num_new, c->num_preempted);
    quire_sched_destroy(sched);
    quire_hasher_destroy(config.hasher);
}

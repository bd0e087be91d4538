/* beams.c - four beams as requests of the scheduler (quire_sched_fork).
 *
 *      schedule   one token for each beam; copies of the blocks that a beam shares and writes
 *      compute    copies first, then the tokens
 *      choose     the four best continuations of all beams
 *      update     each beam takes its best token
 *      finish     beams that no continuation chose
 *      fork       each further token of a beam is a beam of its own: the fork has the text of its
 *                 parent, with that token in the place of the parent's last one
 *
 * The search is that of beam_search.c, which drives the cache without a scheduler, and finds the
 * same beams. KV memory is played by an array: each beam must find its own tokens in it.
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH         4
#define BLOCK_SIZE    4
#define NUM_BLOCKS    64
#define PROMPT_TOKENS 10
#define STEPS         12
#define MAX_TOKENS    (PROMPT_TOKENS + STEPS + 1)
#define VOCABULARY    26

typedef struct beam {
    quire_req req; /* 0: this place is free */
    uint32_t cost; /* the lower, the better */
    uint32_t num_tokens;
    quire_token tokens[MAX_TOKENS];
} beam;

typedef struct candidate {
    beam *parent;
    quire_token token;
    uint32_t cost;
} candidate;

static quire_token kv[NUM_BLOCKS][BLOCK_SIZE]; /* KV memory */
static beam beams[2 * WIDTH];                  /* while the next beams replace the last */
static uint32_t num_forks, num_copies, num_names;

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

/* The toy model: what a token costs after the two before it. */
static uint32_t token_cost(const beam *b, quire_token token)
{
    const quire_token *last = &b->tokens[b->num_tokens - 1];
    uint32_t x = (uint32_t)(last[0] * 676 + last[-1] * 26 + token) * UINT32_C(2654435761);
    return 100 + (x >> 16) % 900;
}

/* The engine's part of a step. */
static void compute(quire_sched *sched, const quire_step *step)
{
    for (uint32_t i = 0; i < step->num_copies; i++)
        memcpy(kv[step->copies[i].to], kv[step->copies[i].from], sizeof kv[0]);
    num_copies += step->num_copies;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        quire_block_span blocks;
        const beam *b = quire_sched_get_user(sched, step->reqs[i]);
        uint32_t first = step->num_computed_tokens[i];
        must(quire_sched_get_blocks(sched, step->reqs[i], &blocks), "blocks");
        for (uint32_t t = first; t < first + step->num_tokens[i]; t++)
            kv[blocks.ids[t / BLOCK_SIZE]][t % BLOCK_SIZE] = b->tokens[t];
    }
}

/* The best WIDTH of all continuations, cheapest first. */
static void choose(candidate *best)
{
    uint32_t count = 0;
    for (beam *b = beams; b < beams + 2 * WIDTH; b++) {
        for (quire_token token = 0; b->req != 0 && token < VOCABULARY; token++) {
            const uint32_t cost = b->cost + token_cost(b, token);
            uint32_t at = count < WIDTH ? count++ : WIDTH;
            for (; at > 0 && best[at - 1].cost > cost; at--)
                if (at < WIDTH)
                    best[at] = best[at - 1];
            if (at < WIDTH)
                best[at] = (candidate){b, token, cost};
        }
    }
}

/* The best continuation of a beam, NULL: there is none. */
static const candidate *first_of(const candidate *best, const beam *b)
{
    for (uint32_t i = 0; i < WIDTH; i++)
        if (best[i].parent == b)
            return &best[i];
    return NULL;
}

static void append(beam *b, const candidate *c)
{
    b->tokens[b->num_tokens++] = c->token;
    b->cost = c->cost;
}

static quire_request_params name_request(beam *b, char name[8])
{
    snprintf(name, 8, "b%u", num_names++);
    return (quire_request_params){.size = sizeof(quire_request_params),
                                  .id = {name, strlen(name)},
                                  .max_tokens = STEPS + 1,
                                  .user = b};
}

/* A beam that differs from its parent, which has its own token already, in the last token. */
static void fork_beam(quire_sched *sched, const candidate *c, const beam *parent_before)
{
    char name[8];
    beam *b = beams;
    while (b->req != 0)
        b++;
    quire_request_params params = name_request(b, name);
    params.prompt = &c->token;
    params.num_prompt_tokens = 1;
    must(quire_sched_fork(sched, c->parent->req, &params, &b->req), "fork");
    quire_req req = b->req;
    *b = *parent_before;
    b->req = req;
    append(b, c);
    num_forks++;
}

static void update(quire_sched *sched, const quire_step *step, const candidate *best)
{
    quire_token sampled[WIDTH] = {0};
    const quire_outputs *outputs;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        const candidate *c = first_of(best, quire_sched_get_user(sched, step->reqs[i]));
        sampled[i] = c != NULL ? c->token : 0; /* of a beam that ends here: any */
    }
    must(quire_sched_update(
             sched, step->step,
             &(quire_model_output){.size = sizeof(quire_model_output), .sampled = sampled},
             &outputs),
         "update");
}

static void advance(quire_sched *sched, const candidate *best)
{
    beam before[2 * WIDTH];
    memcpy(before, beams, sizeof before);
    for (beam *b = beams; b < beams + 2 * WIDTH; b++) {
        const candidate *c = first_of(best, b);
        if (b->req == 0)
            continue;
        if (c != NULL) {
            append(b, c);
            continue;
        }
        must(quire_sched_finish(sched, &b->req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL), "finish");
        b->req = 0;
    }
    for (uint32_t i = 0; i < WIDTH; i++)
        if (first_of(best, best[i].parent) != &best[i])
            fork_beam(sched, &best[i], &before[best[i].parent - beams]);
}

/* Its tokens as letters, read from KV memory through its blocks, and the blocks; a '*' marks a
 * block that another beam has too. 0 when memory does not hold its tokens. */
static int print_beam(quire_sched *sched, const beam *b)
{
    quire_block_span blocks;
    quire_block_info info;
    int is_right = 1;
    must(quire_sched_get_blocks(sched, b->req, &blocks), "blocks");
    printf("  %5u  ", b->cost);
    for (uint32_t t = 0; t < b->num_tokens; t++) {
        const quire_token token = kv[blocks.ids[t / BLOCK_SIZE]][t % BLOCK_SIZE];
        is_right &= token == b->tokens[t];
        printf("%s%c", t == PROMPT_TOKENS ? " " : "", 'a' + token);
    }
    printf("%s  [", is_right ? "" : " WRONG");
    for (uint32_t i = 0; i < blocks.count; i++) {
        quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(sched));
        must(quire_pool_get_block(pool, blocks.ids[i], &info), "info");
        printf(" %2u%c", blocks.ids[i], info.ref_cnt > 1 ? '*' : ' ');
    }
    printf("]\n");
    return is_right;
}

/* Cheapest first. */
static int print_beams(quire_sched *sched, uint32_t step)
{
    uint32_t in_tables = 0, printed = 0;
    int is_right = 1;
    printf("step %u: cost, tokens, blocks (* shared)\n", step);
    for (uint32_t cost = 0; printed < WIDTH; cost++) {
        for (const beam *b = beams; b < beams + 2 * WIDTH; b++) {
            if (b->req == 0 || b->cost != cost)
                continue;
            is_right &= print_beam(sched, b);
            in_tables += (b->num_tokens + BLOCK_SIZE - 1) / BLOCK_SIZE;
            printed++;
        }
    }
    printf("  %u blocks in the tables, %u in use; so far %u forks, %u blocks copied\n", in_tables,
           (unsigned)quire_sched_get_usage(sched).active, num_forks, num_copies);
    return is_right;
}

static quire_sched *make_scheduler(const quire_group_config *group)
{
    quire_sched *sched = NULL;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = NUM_BLOCKS;
    cache.groups = group;
    cache.num_groups = 1;
    cache.max_model_len = MAX_TOKENS + 1;
    cache.max_copies = WIDTH;
    cache.enable_caching = QUIRE_OFF; /* beams are seldom asked for again */
    config.max_num_seqs = WIDTH;
    must(quire_sched_create(&config, NULL, &sched), "scheduler");
    return sched;
}

int main(void)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = BLOCK_SIZE,
                                               .num_kv_heads = 8,
                                               .head_size = 64,
                                               .dtype = QUIRE_DTYPE_BFLOAT16}};
    quire_sched *sched = make_scheduler(&group);
    char name[8];
    beam *first = &beams[0];
    for (first->num_tokens = 0; first->num_tokens < PROMPT_TOKENS; first->num_tokens++)
        first->tokens[first->num_tokens] = "quirebeams"[first->num_tokens] - 'a';
    quire_request_params params = name_request(first, name);
    params.prompt = first->tokens;
    params.num_prompt_tokens = PROMPT_TOKENS;
    must(quire_sched_add(sched, &params, &first->req), "add");
    int is_right = 1;
    for (uint32_t step = 0; step <= STEPS; step++) { /* step 0 computes the prompt */
        const quire_step *now;
        candidate best[WIDTH];
        must(quire_sched_schedule(sched, &now), "schedule");
        compute(sched, now);
        if (step > 0 && step % 4 == 0)
            is_right &= print_beams(sched, step);
        if (step == STEPS)
            break;
        choose(best);
        update(sched, now, best);
        advance(sched, best);
    }
    must(quire_sched_finish_all(sched, QUIRE_REQ_FINISHED_ABORTED, NULL), "finish");
    printf("finished: %u blocks in use\n", (unsigned)quire_sched_get_usage(sched).active);
    quire_sched_destroy(sched);
    return is_right ? 0 : 1;
}

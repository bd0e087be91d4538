/* beam_search.c - four beams that share their past.
 *
 * In each step every beam proposes its best tokens, and the four best continuations of all stay. A
 * beam that continues in two ways is forked: both share all blocks, and nothing is copied. Only
 * when one of them writes into a block that is not full does it get its own copy of that block:
 *
 *      a beam                  [ 1 ][ 2 ][ 3. ]       the dot: there is room in block 3
 *      its fork                [ 1 ][ 2 ][ 3. ]       all shared
 *      the fork, one token on  [ 1 ][ 2 ][ 4  ]       4 is a copy of 3, with the token in it
 *      the beam, one token on  [ 1 ][ 2 ][ 3  ]       3 is its own now
 *
 * KV memory is played by an array with the token that each slot belongs to, so the end can be
 * checked: read through its table, each beam must find exactly its own tokens.
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
#define MAX_TOKENS    (PROMPT_TOKENS + STEPS)
#define VOCABULARY    26

typedef struct beam {
    quire_cache_request state;
    quire_token tokens[MAX_TOKENS];
    uint32_t cost; /* the lower, the better */
} beam;

typedef struct candidate {
    uint32_t parent;
    quire_token token;
    uint32_t cost;
} candidate;

static quire_token kv[NUM_BLOCKS][BLOCK_SIZE]; /* KV memory */
static uint32_t num_forks, num_copies;

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
    const quire_token *last = &b->tokens[b->state.num_tokens - 1];
    uint32_t x = (uint32_t)(last[0] * 676 + last[-1] * 26 + token) * UINT32_C(2654435761);
    return 100 + (x >> 16) % 900;
}

/* One step of the engine: room for the new tokens of all beams, then the copies that this asks for,
 * then the model runs and writes. */
static void compute(quire_cache *cache, beam *beams, uint32_t num_beams)
{
    for (uint32_t i = 0; i < num_beams; i++) {
        quire_cache_request *state = &beams[i].state;
        const quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                              .num_new_tokens =
                                                  state->num_tokens - state->num_computed_tokens};
        must(quire_cache_allocate_slots(cache, state, &params, NULL), "allocate");
    }

    const quire_block_copy *copies = NULL;
    uint32_t count = 0;
    must(quire_cache_take_copies(cache, &copies, &count), "take_copies");
    for (uint32_t i = 0; i < count; i++)
        memcpy(kv[copies[i].to], kv[copies[i].from], sizeof kv[0]);
    num_copies += count;

    for (uint32_t i = 0; i < num_beams; i++) {
        quire_cache_request *state = &beams[i].state;
        quire_block_span blocks;
        must(quire_cache_get_blocks(cache, state->seq, &blocks), "get_blocks");
        for (uint32_t t = state->num_computed_tokens; t < state->num_tokens; t++)
            kv[blocks.ids[t / BLOCK_SIZE]][t % BLOCK_SIZE] = beams[i].tokens[t];
        state->num_computed_tokens = state->num_tokens;
    }
}

/* The best WIDTH of all continuations, cheapest first. */
static void choose(const beam *beams, uint32_t num_beams, candidate *best)
{
    uint32_t count = 0;
    for (uint32_t parent = 0; parent < num_beams; parent++) {
        for (quire_token token = 0; token < VOCABULARY; token++) {
            const uint32_t cost = beams[parent].cost + token_cost(&beams[parent], token);
            uint32_t at = count < WIDTH ? count++ : WIDTH;
            for (; at > 0 && best[at - 1].cost > cost; at--)
                if (at < WIDTH)
                    best[at] = best[at - 1];
            if (at < WIDTH)
                best[at] = (candidate){parent, token, cost};
        }
    }
}

/* The next beams: the first child of a parent takes its blocks over, the others are forks. */
static void advance(quire_cache *cache, beam *beams, uint32_t num_beams, const candidate *best)
{
    beam next[WIDTH];
    uint32_t heir[WIDTH] = {0}; /* of a parent, plus 1 */
    for (uint32_t i = 0; i < WIDTH; i++) {
        const beam *parent = &beams[best[i].parent];
        next[i] = *parent;
        next[i].state.seq = 0;
        if (heir[best[i].parent] == 0) {
            heir[best[i].parent] = i + 1;
        } else {
            must(quire_cache_fork(cache, &parent->state, &next[i].state), "fork");
            num_forks++;
        }
        next[i].tokens[next[i].state.num_tokens++] = best[i].token;
        next[i].cost = best[i].cost;
    }
    for (uint32_t i = 0; i < num_beams; i++) {
        if (heir[i] > 0)
            next[heir[i] - 1].state.seq = beams[i].state.seq;
        else
            must(quire_cache_free(cache, &beams[i].state), "free");
    }
    for (uint32_t i = 0; i < WIDTH; i++)
        beams[i] = next[i];
}

/* Its tokens as letters, read from KV memory through its table, and the table; a '*' marks a block
 * that another beam has too. False when memory does not hold its tokens. */
static int print_beam(quire_cache *cache, const beam *b)
{
    quire_block_span blocks;
    int is_right = 1;
    must(quire_cache_get_blocks(cache, b->state.seq, &blocks), "get_blocks");
    printf("  %5u  ", b->cost);
    for (uint32_t t = 0; t < b->state.num_tokens; t++) {
        const quire_token token = kv[blocks.ids[t / BLOCK_SIZE]][t % BLOCK_SIZE];
        is_right &= token == b->tokens[t];
        printf("%s%c", t == PROMPT_TOKENS ? " " : "", 'a' + token);
    }
    printf("%s  [", is_right ? "" : " WRONG");
    for (uint32_t i = 0; i < blocks.count; i++) {
        quire_block_info info;
        must(quire_pool_get_block(quire_cache_get_pool(cache), blocks.ids[i], &info), "info");
        printf(" %2u%c", blocks.ids[i], info.ref_cnt > 1 ? '*' : ' ');
    }
    printf("]\n");
    return is_right;
}

int main(void)
{
    const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = BLOCK_SIZE,
                                               .num_kv_heads = 8,
                                               .head_size = 64,
                                               .dtype = QUIRE_DTYPE_BFLOAT16}};
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    config.num_blocks = NUM_BLOCKS;
    config.groups = &group;
    config.num_groups = 1;
    config.max_model_len = MAX_TOKENS;
    config.max_requests = 2 * WIDTH; /* while the next beams replace the last */
    config.max_copies = WIDTH;
    config.enable_caching = QUIRE_OFF; /* beams are seldom asked for again */
    quire_cache *cache = NULL;
    must(quire_cache_create(&config, NULL, &cache), "cache");

    beam beams[WIDTH] = {{.state = {.num_tokens = PROMPT_TOKENS}}};
    for (int i = 0; i < PROMPT_TOKENS; i++)
        beams[0].tokens[i] = "quirebeams"[i] - 'a';
    compute(cache, beams, 1);
    uint32_t num_beams = 1;
    int is_right = 1;
    for (uint32_t step = 1; step <= STEPS; step++) {
        candidate best[WIDTH];
        choose(beams, num_beams, best);
        advance(cache, beams, num_beams, best);
        num_beams = WIDTH;
        compute(cache, beams, num_beams);
        if (step % 4 != 0)
            continue;
        uint32_t in_tables = 0;
        printf("step %u: cost, tokens, blocks (* shared)\n", step);
        for (uint32_t i = 0; i < num_beams; i++) {
            is_right &= print_beam(cache, &beams[i]);
            in_tables += (beams[i].state.num_tokens + BLOCK_SIZE - 1) / BLOCK_SIZE;
        }
        printf("  %u blocks in the tables, %u in use; so far %u forks, %u blocks copied\n",
               in_tables, (unsigned)quire_cache_get_usage(cache).active, num_forks, num_copies);
    }
    for (uint32_t i = 0; i < num_beams; i++)
        must(quire_cache_free(cache, &beams[i].state), "free");
    printf("freed: %u blocks in use\n", (unsigned)quire_cache_get_usage(cache).active);
    is_right &= quire_cache_get_usage(cache).active == 0;
    quire_cache_destroy(cache);
    return is_right ? 0 : 1;
}

/* kv_cache.c - the life of three requests in a model with two kinds of layers.
 *
 *      full     these layers look at every token: a request keeps all of its blocks
 *      window   these look at the last 8: blocks behind that are given back, and a null block,
 *               drawn as a dot, stands in their place
 *
 *      A   [ system prompt: 12 tokens ][ question: 7 ]      19 tokens, computed in two chunks
 *      B   [ system prompt: 12 tokens ][ question: 4 ]      finds A's blocks while A runs
 *      C   [ all of A, with its answer ][ and more: 5 ]     finds them after A has finished
 *
 * Each line is one step: computed tokens before and after, the table of each group, and the pool (N
 * null, A active, C cached: free, but it can be found, E empty).
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_SIZE 4 /* small, so that the tables are */
#define NUM_BLOCKS 20
#define MAX_TOKENS 40
#define NUM_GROUPS 2
#define CHUNK      10 /* tokens computed in one step */

typedef struct request {
    const char *name;
    quire_cache_request state; /* as the cache sees it */
    quire_chain *chain;        /* hashes its tokens as they come */
    _Alignas(8) unsigned char chain_memory[256];
    unsigned char hashes[MAX_TOKENS / BLOCK_SIZE][32]; /* bytes of a sha256 */
} request;

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

/* A prompt arrives, or a token was sampled: full blocks get their hashes. */
static void add_tokens(quire_hasher *hasher, request *r, const quire_token *tokens, uint32_t count)
{
    const uint32_t have = r->state.num_hashes;
    size_t num_new = 0;
    must(quire_chain_append(hasher, r->chain, tokens, count, NULL, r->hashes[have],
                            MAX_TOKENS / BLOCK_SIZE - have, &num_new),
         "append");
    r->state.num_tokens += count;
    r->state.num_hashes = have + (uint32_t)num_new;
}

static void arrive(quire_hasher *hasher, request *r, const quire_token *prompt, uint32_t count)
{
    r->state.hashes = r->hashes;
    must(quire_chain_init(hasher, r->chain_memory, sizeof r->chain_memory, &r->chain), "chain");
    add_tokens(hasher, r, prompt, count);
}

static void print_step(quire_cache *cache, const request *r, uint32_t before)
{
    quire_block_span blocks[NUM_GROUPS];
    char letters[NUM_BLOCKS + 1];
    must(quire_cache_get_blocks(cache, r->state.seq, blocks), "get_blocks");
    must(quire_pool_draw(quire_cache_get_pool(cache), 0, NUM_BLOCKS, letters), "draw");
    printf("%s  %2u -> %2u", r->name, before, r->state.num_computed_tokens);
    for (int g = 0; g < NUM_GROUPS; g++) {
        printf("  %s [", g == 0 ? "full" : "window");
        for (uint32_t i = 0; i < blocks[g].count; i++)
            if (blocks[g].ids[i] == QUIRE_NULL_BLOCK)
                printf("  .");
            else
                printf(" %2u", blocks[g].ids[i]);
        printf(" ]%*s", (int)(7 - blocks[g].count) * 3, "");
    }
    printf("  %s\n", letters);
}

/* Room for the next tokens; then the model would run. A new request starts with what is cached. */
static void step(quire_cache *cache, request *r)
{
    quire_block_span hit[NUM_GROUPS];
    uint32_t num_hit = 0;
    quire_allocate_params params = QUIRE_ALLOCATE_PARAMS_INIT;
    if (r->state.seq == 0) {
        must(quire_cache_get_computed_blocks(cache, &r->state, hit, &num_hit), "lookup");
        params.new_computed_blocks = hit;
        params.num_new_computed_tokens = num_hit;
        printf("%s: %u tokens, of which %u are cached\n", r->name, r->state.num_tokens, num_hit);
    }
    const uint32_t computed = r->state.num_computed_tokens + num_hit;
    params.num_new_tokens = r->state.num_tokens - computed;
    if (params.num_new_tokens > CHUNK)
        params.num_new_tokens = CHUNK;
    must(quire_cache_allocate_slots(cache, &r->state, &params, NULL), "allocate");
    r->state.num_computed_tokens = computed + params.num_new_tokens;
    print_step(cache, r, computed);
}

static void finish(quire_cache *cache, request *r)
{
    const uint32_t computed = r->state.num_computed_tokens;
    must(quire_cache_free(cache, &r->state), "free");
    r->state.num_computed_tokens = 0;
    print_step(cache, r, computed);
}

int main(void)
{
    quire_layer_spec layer = {.kind = QUIRE_LAYER_FULL, .num_kv_heads = 8, .head_size = 64};
    layer.block_size = BLOCK_SIZE;
    layer.dtype = QUIRE_DTYPE_BFLOAT16;
    quire_group_config groups[NUM_GROUPS] = {{.spec = layer}, {.spec = layer}};
    groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    groups[1].spec.sliding_window = 8;
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    config.num_blocks = NUM_BLOCKS;
    config.groups = groups;
    config.num_groups = NUM_GROUPS;
    config.prefix_cache_retention_interval = QUIRE_RETAIN_ALL; /* any block may be found again */
    config.max_model_len = MAX_TOKENS;
    config.prefix_cache_retention_interval = QUIRE_RETAIN_ALL; /* B shares a part of A */
    quire_cache *cache = NULL;
    must(quire_cache_create(&config, NULL, &cache), "cache");
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT; /* sha256 */
    hashing.block_size = BLOCK_SIZE;
    quire_hasher *hasher = NULL;
    must(quire_hasher_create(&hashing, NULL, &hasher), "hasher");
    quire_token a_tokens[MAX_TOKENS], b_tokens[MAX_TOKENS]; /* the first 12 are the same */
    for (int i = 0; i < MAX_TOKENS; i++) {
        a_tokens[i] = 100 + i;
        b_tokens[i] = i < 12 ? 100 + i : 200 + i;
    }
    static request a = {.name = "A"}, b = {.name = "B"}, c = {.name = "C"};
    arrive(hasher, &a, a_tokens, 19);
    step(cache, &a);
    step(cache, &a);
    arrive(hasher, &b, b_tokens, 16);
    step(cache, &b);
    for (uint32_t n = 19; n < 22; n++) { /* A's answer, token by token, until a block fills */
        add_tokens(hasher, &a, &a_tokens[n], 1);
        step(cache, &a);
    }
    finish(cache, &a);
    finish(cache, &b);
    arrive(hasher, &c, a_tokens, 27); /* A's conversation goes on */
    step(cache, &c);
    finish(cache, &c);
    quire_cache_destroy(cache);
    quire_hasher_destroy(hasher);
}

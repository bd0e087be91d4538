/* pool_usage.c - "free" is not "empty": three numbers that say how full a pool is.
 *
 *      N A A A A A A A C C C C C C C C C C C C C C C C C E E E E E E E       32 blocks
 *
 * A active (ref_cnt > 0), C cached (ref_cnt = 0: free, and a later prompt can find it), E empty.
 * The free counter counts C and E. That is right for an allocator, which may take both. But "total
 * - free" is not what the pool holds: it counts the active blocks alone. In a cache between two
 * bursts of requests that can be 400 times less than the blocks that have content.
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_SIZE 16

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

/* Takes blocks, computes them and gives them a key each, so that they can be found later. */
static void fill(quire_pool *pool, quire_hasher *hasher, quire_block *blocks, uint32_t num,
                 quire_token first)
{
    size_t digest_bytes = quire_hash_digest_bytes(QUIRE_HASH_SHA256);
    size_t num_hashes = 0;
    quire_token *tokens = malloc((size_t)num * BLOCK_SIZE * sizeof *tokens);
    unsigned char *hashes = malloc(num * digest_bytes);
    void *memory = malloc(quire_chain_bytes(hasher));
    quire_chain *chain = NULL;
    if (tokens == NULL || hashes == NULL)
        exit(1);
    for (uint32_t i = 0; i < num * BLOCK_SIZE; i++)
        tokens[i] = first + (quire_token)i;
    must(quire_chain_init(hasher, memory, quire_chain_bytes(hasher), &chain), "chain");
    must(quire_chain_append(hasher, chain, tokens, (size_t)num * BLOCK_SIZE, NULL, hashes, num,
                            &num_hashes),
         "append");
    must(quire_pool_get_new_blocks(pool, num, blocks), "take");
    const quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                            .blocks = blocks,
                                            .num_full_blocks = num,
                                            .hashes = hashes,
                                            .hash_len = digest_bytes,
                                            .num_hashes = num};
    must(quire_pool_cache_full_blocks(pool, &params), "cache");
    free(memory);
    free(hashes);
    free(tokens);
}

/* A pool in which requests with num_cached blocks have ended, and one with num_active runs. */
static quire_pool *make_pool(quire_hasher *hasher, uint32_t num_blocks, uint32_t num_cached,
                             uint32_t num_active)
{
    quire_pool *pool = NULL;
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    quire_block *blocks = calloc(num_blocks, sizeof *blocks);
    if (blocks == NULL)
        exit(1);
    config.num_blocks = num_blocks;
    must(quire_pool_create(&config, NULL, &pool), "pool");
    fill(pool, hasher, blocks, num_cached, 1);
    must(quire_pool_free_blocks(pool, blocks, num_cached), "free");
    fill(pool, hasher, blocks, num_active, 1000000);
    free(blocks);
    return pool;
}

static void print_row(const char *name, uint64_t a, uint64_t b)
{
    printf("%-44s %9llu %9llu\n", name, (unsigned long long)a, (unsigned long long)b);
}

int main(void)
{
    quire_hasher *hasher = NULL;
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT; /* sha256, blocks of 16 tokens */
    must(quire_hasher_create(&hashing, NULL, &hasher), "hasher");
    quire_pool *pools[2] = {make_pool(hasher, 32, 17, 7), make_pool(hasher, 8192, 7581, 19)};

    char letters[33];
    must(quire_pool_draw(pools[0], 0, 32, letters), "draw");
    printf("32 blocks: %s\n\n", letters);
    quire_usage u[2];
    uint64_t used[2], content[2];
    for (int i = 0; i < 2; i++) {
        u[i] = quire_pool_get_usage(pools[i]);
        used[i] = u[i].total - u[i].null_blocks - quire_pool_get_num_free_blocks(pools[i]);
        content[i] = u[i].cached + u[i].active;
    }
    print_row("blocks", u[0].total, u[1].total);
    print_row("free counter", quire_pool_get_num_free_blocks(pools[0]),
              quire_pool_get_num_free_blocks(pools[1]));
    print_row("read as \"used\": total - null - free counter", used[0], used[1]);
    printf("\n");
    print_row("E  empty", u[0].empty, u[1].empty);
    print_row("C  cached: free, and has content", u[0].cached, u[1].cached);
    print_row("A  active", u[0].active, u[1].active);
    print_row("N  null", u[0].null_blocks, u[1].null_blocks);
    print_row("blocks with content: C + A", content[0], content[1]);
    printf("%-44s %8.1fx %8.1fx\n", "times what \"used\" says",
           (double)content[0] / (double)used[0], (double)content[1] / (double)used[1]);
    for (int i = 0; i < 2; i++)
        quire_pool_destroy(pools[i]);
    quire_hasher_destroy(hasher);
    return 0;
}

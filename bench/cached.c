/* cached.c - what the cases stand on: random numbers, memory, and a pool full of cached blocks. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EVICT_CHUNK 65536u
#define HUGE_PAGE   ((size_t)2 << 20)

void bench_must(int status, const char *call)
{
    if (status == QUIRE_OK)
        return;
    fprintf(stderr, "quire_bench: %s: %s (%s)\n", call, quire_strerror(status),
            quire_status_name(status));
    exit(1);
}

void *bench_memory(size_t bytes)
{
    size_t rounded = bytes / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    bool large = bytes >= HUGE_PAGE;
    void *memory = large ? aligned_alloc(HUGE_PAGE, rounded) : malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "quire_bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
#ifdef MADV_HUGEPAGE
    if (large) /* advice only: without huge pages everything still works */
        (void)madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    return memory;
}

uint64_t bench_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void bench_shuffle(uint32_t *values, uint32_t count, uint64_t seed)
{
    for (uint32_t left = count; left > 1; left--) {
        uint32_t i = (uint32_t)(bench_random(&seed) % left);
        uint32_t value = values[i];
        values[i] = values[left - 1];
        values[left - 1] = value;
    }
}

void bench_tokens(quire_token *tokens, size_t count)
{
    uint64_t random = 1;
    for (size_t i = 0; i < count; i++)
        tokens[i] = (quire_token)(bench_random(&random) % 128000);
}

quire_pool *bench_pool(uint32_t num_blocks, uint32_t hash_bytes)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = num_blocks;
    config.hash_bytes = hash_bytes;
    quire_pool *pool = NULL;
    bench_must(quire_pool_create(&config, NULL, &pool), "quire_pool_create");
    return pool;
}

bench_cached *bench_cached_new(uint32_t count, uint32_t hash_bytes)
{
    bench_cached *c = bench_memory(sizeof *c);
    memset(c, 0, sizeof *c);
    c->pool = bench_pool(count + 1, hash_bytes);
    c->count = count;
    c->hash_bytes = hash_bytes;
    c->hashes = bench_memory((size_t)count * hash_bytes);
    c->blocks = bench_memory(count * sizeof *c->blocks);
    c->reversed = bench_memory(count * sizeof *c->reversed);
    c->out = bench_memory(count * sizeof *c->out);
    c->random = 3;
    uint64_t random = 2;
    for (size_t at = 0; at < (size_t)count * hash_bytes; at += sizeof random) {
        uint64_t word = bench_random(&random);
        memcpy(c->hashes + at, &word, sizeof word);
    }
    return c;
}

void bench_cached_fill(bench_cached *cached, bool shuffled)
{
    uint32_t count = cached->count;
    bench_must(quire_pool_get_new_blocks(cached->pool, count, cached->blocks),
               "quire_pool_get_new_blocks");
    if (shuffled)
        bench_shuffle(cached->blocks, count, 4);
    for (uint32_t i = 0; i < count; i++)
        cached->reversed[i] = cached->blocks[count - 1 - i];
    bench_cached_store(cached, 0, count);
    bench_must(quire_pool_free_blocks(cached->pool, cached->blocks, count),
               "quire_pool_free_blocks");
}

void *bench_cached_setup(const bench_case *self)
{
    bench_cached *cached = bench_cached_new(self->size, 32);
    cached->batch = self->batch;
    bench_cached_fill(cached, self->shuffled);
    return cached;
}

void bench_cached_teardown(void *state)
{
    bench_cached *cached = state;
    quire_pool_destroy(cached->pool);
    free(cached->hashes);
    free(cached->blocks);
    free(cached->reversed);
    free(cached->out);
    free(cached);
}

void bench_cached_store(bench_cached *cached, uint32_t first, uint32_t count)
{
    quire_cache_full_params params = QUIRE_CACHE_FULL_PARAMS_INIT;
    params.blocks = cached->blocks + first;
    params.num_full_blocks = count;
    params.hashes = cached->hashes + (size_t)first * cached->hash_bytes;
    params.hash_len = cached->hash_bytes;
    params.num_hashes = count;
    params.block_size = 16;
    bench_must(quire_pool_cache_full_blocks(cached->pool, &params), "quire_pool_cache_full_blocks");
}

uint64_t bench_evict_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    uint32_t count = c->count - c->cursor;
    if (count > EVICT_CHUNK)
        count = EVICT_CHUNK;
    count -= count % c->batch;
    int status = QUIRE_OK;

    bench_start(timer);
    for (uint32_t i = 0; i < count; i += c->batch)
        status |= quire_pool_get_new_blocks(c->pool, c->batch, c->out + i);
    bench_stop(timer, count);

    bench_must(status, "quire_pool_get_new_blocks");
    /* The queue is a ring in the order of blocks[], so what came out is known. */
    if (memcmp(c->out, c->blocks + c->cursor, count * sizeof *c->out) != 0 ||
        quire_pool_get_counts(c->pool).num_keys != c->count - count)
        bench_must(QUIRE_E_CORRUPT, "evicted other blocks than the oldest");
    bench_cached_store(c, c->cursor, count);
    bench_must(quire_pool_free_blocks(c->pool, c->blocks + c->cursor, count),
               "quire_pool_free_blocks");
    c->cursor = (c->cursor + count) % c->count;
    return c->out[count - 1];
}

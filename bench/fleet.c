/* fleet.c - a cache under load: its pool full of cached blocks, and requests that run in it.
 *
 *      new      every block cached, at ids in no order, so that each block taken evicts one
 *      start    every request gets new hashes and is prefilled: up to its last block border, then
 *               the rest
 *      decode   one token for each request, and again
 *      stop     every request is freed; what it computed stays cached
 *
 * vllm_cache.py does the same with vLLM's KVCacheManager, from the same random numbers: both must
 * come to the same block ids.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW    1024u
#define FNV_PRIME UINT64_C(0x100000001b3)

/* Pages of 128 bytes, whatever the kind. */
static quire_group_config group_of(quire_layer_kind kind)
{
    quire_group_config group = {.spec = {.kind = kind, .block_size = BENCH_BLOCK_SIZE}};
    quire_layer_spec *spec = &group.spec;
    if (kind == QUIRE_LAYER_MAMBA) {
        spec->states[0] = (quire_state){1, {2 * BENCH_BLOCK_SIZE}, QUIRE_DTYPE_FLOAT32};
        spec->mamba_mode = QUIRE_MAMBA_MODE_ALIGN;
        return group;
    }
    spec->num_kv_heads = 1;
    spec->head_size = 1;
    spec->dtype = QUIRE_DTYPE_FLOAT32;
    spec->sliding_window = kind == QUIRE_LAYER_SLIDING_WINDOW ? WINDOW : 0;
    return group;
}

static void create_cache(bench_fleet *f, const bench_fleet_config *fleet)
{
    const quire_group_config groups[BENCH_MAX_GROUPS] = {group_of(QUIRE_LAYER_FULL),
                                                         group_of(fleet->second)};
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    f->num_groups = fleet->second ? 2 : 1;
    config.num_blocks = fleet->num_blocks;
    config.groups = groups;
    config.num_groups = f->num_groups;
    config.max_model_len = fleet->longest + BENCH_DECODE_STEPS;
    config.max_requests = fleet->num_requests + 1; /* one to be forked */
    config.max_copies = fleet->max_copies;
    if (fleet->max_copies == 0) /* only the default profile forks */
        config.profile = bench_profile();
    bench_must(quire_cache_create(&config, NULL, &f->cache), "quire_cache_create");
}

static void draw_hashes(uint64_t *random, unsigned char *hashes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t x = bench_random(random);
        const uint64_t words[4] = {x, 3 * x, 5 * x, 7 * x};
        memcpy(hashes + (size_t)i * sizeof words, words, sizeof words);
    }
}

void bench_fleet_hashes(bench_fleet *f, unsigned char *hashes, uint32_t count)
{
    draw_hashes(&f->random, hashes, count);
}

void bench_fill_pool(quire_pool *pool, uint32_t count, uint64_t *random)
{
    quire_block *blocks = bench_memory(count * sizeof *blocks);
    unsigned char *hashes = bench_memory((size_t)count * BENCH_DIGEST_BYTES);
    bench_must(quire_pool_get_new_blocks(pool, count, blocks), "quire_pool_get_new_blocks");
    bench_shuffle(blocks, count, 4);
    draw_hashes(random, hashes, count);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = blocks,
                                      .num_full_blocks = count,
                                      .hashes = hashes,
                                      .hash_len = BENCH_DIGEST_BYTES,
                                      .num_hashes = count,
                                      .block_size = BENCH_BLOCK_SIZE};
    bench_must(quire_pool_cache_full_blocks(pool, &params), "quire_pool_cache_full_blocks");
    bench_must(quire_pool_free_blocks(pool, blocks, count), "quire_pool_free_blocks");
    free(blocks);
    free(hashes);
}

bench_fleet *bench_fleet_new(const bench_fleet_config *config)
{
    bench_fleet *f = bench_memory(sizeof *f);
    memset(f, 0, sizeof *f);
    f->num_requests = config->num_requests;
    f->stride = (config->longest + BENCH_DECODE_STEPS) / BENCH_BLOCK_SIZE * BENCH_DIGEST_BYTES;
    f->prompt_tokens = bench_memory(f->num_requests * sizeof *f->prompt_tokens);
    f->requests = bench_memory(f->num_requests * sizeof *f->requests);
    f->hashes = bench_memory((size_t)f->num_requests * f->stride);
    f->random = 11;
    for (uint32_t i = 0; i < f->num_requests; i++)
        f->prompt_tokens[i] =
            config->shortest +
            (uint32_t)(bench_random(&f->random) % (config->longest - config->shortest + 1));
    create_cache(f, config);
    bench_fill_pool(quire_cache_get_pool(f->cache), config->num_blocks - 1, &f->random);
    return f;
}

void bench_fleet_draw(bench_fleet *f)
{
    for (uint32_t i = 0; i < f->num_requests; i++) {
        uint32_t tokens = f->prompt_tokens[i];
        unsigned char *hashes = f->hashes + i * f->stride;
        bench_fleet_hashes(f, hashes, tokens / BENCH_BLOCK_SIZE);
        f->requests[i] = (quire_cache_request){
            .num_tokens = tokens, .hashes = hashes, .num_hashes = tokens / BENCH_BLOCK_SIZE};
    }
}

static int prefill(bench_fleet *f, quire_cache_request *request, uint32_t num_new)
{
    const quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                          .num_new_tokens = num_new};
    int status = quire_cache_allocate_slots(f->cache, request, &params, NULL);
    request->num_computed_tokens += num_new;
    return status;
}

void bench_fleet_start(bench_fleet *f)
{
    int status = QUIRE_OK;
    bench_fleet_draw(f);
    for (uint32_t i = 0; i < f->num_requests; i++) {
        quire_cache_request *request = &f->requests[i];
        uint32_t border = (request->num_tokens - 1) / BENCH_BLOCK_SIZE * BENCH_BLOCK_SIZE;
        status |= prefill(f, request, border);
        status |= prefill(f, request, request->num_tokens - border);
    }
    bench_must(status, "quire_cache_allocate_slots");
}

void bench_fleet_decode(bench_fleet *f, bench_timer *timer)
{
    const quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                          .num_new_tokens = 1};
    quire_block_span new_blocks[BENCH_MAX_GROUPS];
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t step = 0; step < BENCH_DECODE_STEPS; step++) {
        for (uint32_t i = 0; i < f->num_requests; i++) {
            quire_cache_request *request = &f->requests[i];
            request->num_tokens++; /* the one that was sampled in the step before */
            if (request->num_tokens % BENCH_BLOCK_SIZE == 0) /* it was hashed just now */
                bench_fleet_hashes(
                    f, f->hashes + i * f->stride + request->num_hashes++ * BENCH_DIGEST_BYTES, 1);
            status |= quire_cache_allocate_slots(f->cache, request, &params, new_blocks);
            request->num_computed_tokens++;
        }
    }
    bench_stop(timer, (uint64_t)f->num_requests * BENCH_DECODE_STEPS);
    bench_must(status, "quire_cache_allocate_slots");
}

void bench_fleet_hit(bench_fleet *f, quire_cache_request *request)
{
    quire_block_span hit[BENCH_MAX_GROUPS];
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .new_computed_blocks = hit};
    bench_must(
        quire_cache_get_computed_blocks(f->cache, request, hit, &params.num_new_computed_tokens),
        "quire_cache_get_computed_blocks");
    params.num_new_tokens = request->num_tokens - params.num_new_computed_tokens;
    bench_must(quire_cache_allocate_slots(f->cache, request, &params, NULL),
               "quire_cache_allocate_slots");
}

void bench_fleet_stop(bench_fleet *f)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < f->num_requests; i++) {
        status |= quire_cache_free(f->cache, &f->requests[i]);
        f->requests[i].num_computed_tokens = 0;
    }
    bench_must(status, "quire_cache_free");
}

uint64_t bench_check_spans(uint64_t check, const quire_block_span *spans, uint32_t num_groups)
{
    for (uint32_t g = 0; g < num_groups; g++)
        for (uint32_t i = 0; i < spans[g].count; i++)
            check = (check ^ spans[g].ids[i]) * FNV_PRIME;
    return check;
}

uint64_t bench_fleet_check(const bench_fleet *f)
{
    quire_block_span spans[BENCH_MAX_GROUPS];
    uint64_t check = BENCH_CHECK_START;
    for (uint32_t i = 0; i < f->num_requests; i++) {
        bench_must(quire_cache_get_blocks(f->cache, f->requests[i].seq, spans),
                   "quire_cache_get_blocks");
        check = bench_check_spans(check, spans, f->num_groups);
    }
    return check;
}

bench_fleet *bench_fleet_decoding(const bench_fleet_config *config)
{
    bench_fleet *f = bench_fleet_new(config);
    bench_timer unused = {0};
    bench_fleet_start(f);
    bench_fleet_decode(f, &unused);
    f->check = bench_fleet_check(f);
    bench_fleet_stop(f);
    return f;
}

uint64_t bench_fleet_decode_pass(void *state, bench_timer *timer)
{
    bench_fleet *f = state;
    bench_fleet_start(f);
    bench_fleet_decode(f, timer);
    bench_fleet_stop(f);
    return f->check;
}

void bench_fleet_teardown(void *state)
{
    bench_fleet *f = state;
    quire_cache_destroy(f->cache);
    free(f->prompt_tokens);
    free(f->requests);
    free(f->hashes);
    free(f);
}

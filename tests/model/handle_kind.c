#include "handle_kind.h"

#include <stdlib.h>
#include <string.h>

void *untouched(void)
{
    static char nowhere;
    return &nowhere;
}

/* ---- the allocator ------------------------------------------------------ */

static void *ledger_alloc(void *user, size_t bytes, size_t alignment)
{
    ledger *book = user;
    book->calls++;
    if (book->calls == book->fail_at || (book->max_bytes > 0 && bytes > book->max_bytes))
        return NULL;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory == NULL)
        return NULL;
    memset(memory, 0xc3, bytes < 4096 ? bytes : 4096); /* the bytes need not be zero */
    book->live++;
    book->last_bytes = bytes;
    book->last_alignment = alignment;
    book->last_memory = memory;
    return memory;
}

static void ledger_free(void *user, void *memory, size_t bytes, size_t alignment)
{
    ledger *book = user;
    if (memory != book->last_memory || bytes != book->last_bytes ||
        alignment != book->last_alignment || book->live == 0)
        book->wrong_free = true;
    book->live--;
    free(memory);
}

quire_allocator ledger_allocator(ledger *book)
{
    return (quire_allocator){.user = book, .alloc = ledger_alloc, .free = ledger_free};
}

/* ---- pool --------------------------------------------------------------- */

static const quire_pool_config pool_config = {
    .size = sizeof(quire_pool_config), .num_blocks = 10, .hash_bytes = 16};

static size_t pool_bytes(const void *config)
{
    return quire_pool_bytes(config);
}

static int pool_create(const void *config, const quire_allocator *allocator, void **handle)
{
    quire_pool *pool = *handle;
    int status = quire_pool_create(config, allocator, &pool);
    *handle = pool;
    return status;
}

static int pool_create_in(void *memory, size_t bytes, const void *config, void **handle)
{
    quire_pool *pool = *handle;
    int status =
        quire_pool_create(config, &(quire_allocator){.memory = memory, .bytes = bytes}, &pool);
    *handle = pool;
    return status;
}

static void pool_destroy(void *handle)
{
    quire_pool_destroy(handle);
}

/* Caches a block, frees it, finds it again. */
static bool pool_caches(quire_pool *pool, quire_block block)
{
    static const unsigned char hash[16] = "a hash, 16 bytes";
    const uint32_t group = 3;
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = &block,
                                      .num_full_blocks = 1,
                                      .hashes = hash,
                                      .hash_len = sizeof hash,
                                      .num_hashes = 1,
                                      .group_id = group};
    quire_block found = 0;
    quire_bytes key = {hash, sizeof hash};
    int status = quire_pool_cache_full_blocks(pool, &params);
    if (status == QUIRE_E_DISABLED)
        return quire_pool_free_blocks(pool, &block, 1) == QUIRE_OK;
    return status == QUIRE_OK && quire_pool_free_blocks(pool, &block, 1) == QUIRE_OK &&
           quire_pool_get_cached_block(pool, key, &group, 1, &found) == QUIRE_OK &&
           found == block && quire_pool_touch(pool, &found, 1) == QUIRE_OK &&
           quire_pool_free_blocks(pool, &found, 1) == QUIRE_OK;
}

static bool pool_works(void *handle)
{
    quire_pool *pool = handle;
    quire_usage usage = quire_pool_get_usage(pool);
    if (usage.total == 0 || usage.null_blocks != 1 || usage.empty != usage.total - 1)
        return false;
    quire_block block;
    int status = quire_pool_get_new_blocks(pool, 1, &block);
    if (usage.total == 1)
        return status == QUIRE_E_RANGE && quire_pool_check(pool) == QUIRE_OK;
    return status == QUIRE_OK && block == 1 && pool_caches(pool, block) &&
           quire_pool_check(pool) == QUIRE_OK;
}

/* ---- hasher ------------------------------------------------------------- */

/* A small block and little room for extra keys: tests try every size below the needed one. */
static const quire_hasher_config hasher_config = {
    .size = sizeof(quire_hasher_config), .block_size = 4, .max_extra_bytes = 64};

static size_t hasher_bytes(const void *config)
{
    return quire_hasher_bytes(config);
}

static int hasher_create(const void *config, const quire_allocator *allocator, void **handle)
{
    quire_hasher *hasher = *handle;
    int status = quire_hasher_create(config, allocator, &hasher);
    *handle = hasher;
    return status;
}

static int hasher_create_in(void *memory, size_t bytes, const void *config, void **handle)
{
    quire_hasher *hasher = *handle;
    int status =
        quire_hasher_create(config, &(quire_allocator){.memory = memory, .bytes = bytes}, &hasher);
    *handle = hasher;
    return status;
}

static void hasher_destroy(void *handle)
{
    quire_hasher_destroy(handle);
}

/* A chain over one token at a time gives a block's hash when it is full, and it is the hash of the
 * same tokens given at once. */
static bool hasher_works(void *handle)
{
    enum { MOST_TOKENS = 65536 };
    static uint64_t memory[MOST_TOKENS / 2 + 64];
    static quire_token tokens[MOST_TOKENS];
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
    unsigned char again[QUIRE_MAX_DIGEST_BYTES];
    quire_hasher *hasher = handle;
    quire_chain *chain;
    if (quire_chain_init(hasher, memory, sizeof memory, &chain) != QUIRE_OK)
        return false;
    memset(again, 0, sizeof again);
    memset(digest, 0, sizeof digest);
    size_t num_tokens = 0;
    size_t num_new = 0;
    while (num_new == 0 && num_tokens < MOST_TOKENS) {
        tokens[num_tokens] = (quire_token)(1000 - num_tokens);
        if (quire_chain_append(hasher, chain, &tokens[num_tokens++], 1, NULL, digest, 1,
                               &num_new) != QUIRE_OK)
            return false;
    }
    return num_new == 1 && quire_chain_get_num_tokens(chain) == num_tokens &&
           quire_hasher_hash_block(hasher, (quire_bytes){NULL, 0}, tokens, num_tokens, NULL, 0,
                                   again) == QUIRE_OK &&
           memcmp(digest, again, sizeof digest) == 0;
}

/* ---- table -------------------------------------------------------------- */

static const quire_table_config table_config = {.size = sizeof(quire_table_config),
                                                .max_num_reqs = 4,
                                                .max_num_blocks_per_req = 5,
                                                .max_num_batched_tokens = 8};

static size_t table_bytes(const void *config)
{
    return quire_table_bytes(config);
}

static int table_create(const void *config, const quire_allocator *allocator, void **handle)
{
    quire_table *table = *handle;
    int status = quire_table_create(config, allocator, &table);
    *handle = table;
    return status;
}

static int table_create_in(void *memory, size_t bytes, const void *config, void **handle)
{
    quire_table *table = *handle;
    int status =
        quire_table_create(config, &(quire_allocator){.memory = memory, .bytes = bytes}, &table);
    *handle = table;
    return status;
}

static void table_destroy(void *handle)
{
    quire_table_destroy(handle);
}

/* The last row gets block 0, the one block that fits with kernel blocks of any size; then its first
 * position has the first slot, or none where another rank keeps it. */
static bool table_works(void *handle)
{
    quire_table *table = handle;
    const quire_block block = 0;
    const int32_t query_start_loc[] = {0, 1};
    const int64_t position = 0;
    quire_table_view view = quire_table_get_view(table);
    if (view.num_rows == 0 || view.row_stride == 0 || view.num_slots == 0)
        return false;
    uint32_t last = view.num_rows - 1;
    if (quire_table_append_row(table, last, &block, 1) != QUIRE_OK ||
        quire_table_swap_row(table, last, 0) != QUIRE_OK || view.row_lengths[0] == 0)
        return false;
    return quire_table_append_row(table, view.num_rows, &block, 1) == QUIRE_E_RANGE &&
           quire_table_compute_slot_mapping(table, 1, query_start_loc, &position, 1) == QUIRE_OK &&
           (view.slot_mapping[0] == 0 || view.slot_mapping[0] == QUIRE_PAD_SLOT);
}

/* ---- cache -------------------------------------------------------------- */

enum { CACHE_HASHES = 8, CACHE_DIGEST = 4080 }; /* the longest digest that a config may ask for */

static const quire_group_config cache_groups[] = {
    {.spec = {.kind = QUIRE_LAYER_FULL,
              .block_size = 4,
              .num_kv_heads = 1,
              .head_size = 8,
              .dtype = QUIRE_DTYPE_FLOAT16}},
    {.spec = {.kind = QUIRE_LAYER_SLIDING_WINDOW,
              .block_size = 4,
              .num_kv_heads = 1,
              .head_size = 8,
              .dtype = QUIRE_DTYPE_FLOAT16,
              .sliding_window = 6}},
    {.spec = {.kind = QUIRE_LAYER_MAMBA,
              .block_size = 4,
              .states = {{.num_dims = 1, .dims = {16}, .dtype = QUIRE_DTYPE_FLOAT32}}}},
};

static const quire_cache_config cache_config = {.size = sizeof(quire_cache_config),
                                                .num_blocks = 12,
                                                .groups = cache_groups,
                                                .num_groups = 3,
                                                .max_model_len = 12,
                                                .max_requests = 2,
                                                .digest_bytes = 16,
                                                .max_copies = 2,
                                                .event_log_bytes = 64};

static size_t cache_bytes(const void *config)
{
    return quire_cache_bytes(config);
}

static int cache_create(const void *config, const quire_allocator *allocator, void **handle)
{
    quire_cache *cache = *handle;
    int status = quire_cache_create(config, allocator, &cache);
    *handle = cache;
    return status;
}

static int cache_create_in(void *memory, size_t bytes, const void *config, void **handle)
{
    quire_cache *cache = *handle;
    int status =
        quire_cache_create(config, &(quire_allocator){.memory = memory, .bytes = bytes}, &cache);
    *handle = cache;
    return status;
}

static void cache_destroy(void *handle)
{
    quire_cache_destroy(handle);
}

/* A request that grows token by token until the blocks or the longest length end it; afterwards
 * everything is free again. */
static bool cache_works(void *handle)
{
    static const unsigned char hashes[CACHE_HASHES * CACHE_DIGEST];
    quire_cache *cache = handle;
    quire_usage before = quire_cache_get_usage(cache);
    quire_cache_request r = {
        .num_tokens = 1, .hashes = hashes, .num_hashes = CACHE_HASHES, .user = NULL};
    const quire_allocate_params one = {
        .size = sizeof(quire_allocate_params), .num_new_tokens = 1, .num_lookahead_tokens = 1};
    int status = QUIRE_OK;
    while (status == QUIRE_OK && r.num_computed_tokens < CACHE_HASHES) {
        status = quire_cache_allocate_slots(cache, &r, &one, NULL);
        r.num_computed_tokens += status == QUIRE_OK;
        r.num_tokens += status == QUIRE_OK;
        if (status == QUIRE_OK && quire_cache_get_counts(cache).num_seqs != 1)
            return false;
    }
    if (status != QUIRE_OK && status != QUIRE_NO_SPACE && status != QUIRE_E_RANGE)
        return false;
    return quire_cache_check(cache) == QUIRE_OK && quire_cache_free(cache, &r) == QUIRE_OK &&
           quire_cache_get_counts(cache).num_seqs == 0 && quire_cache_check(cache) == QUIRE_OK &&
           quire_cache_get_usage(cache).active == before.active;
}

/* ---- scheduler ---------------------------------------------------------- */

/* Without prefix caching, which would need a hasher. */
static quire_cache_config sched_cache = {.size = sizeof(quire_cache_config),
                                         .num_blocks = 12,
                                         .groups = cache_groups,
                                         .num_groups = 3,
                                         .max_model_len = 12,
                                         .enable_caching = QUIRE_OFF};

static const quire_sched_config sched_config = {.size = sizeof(quire_sched_config),
                                                .cache = &sched_cache,
                                                .max_num_seqs = 2,
                                                .max_num_batched_tokens = 8,
                                                .max_requests = 4,
                                                .max_loading = 1,
                                                .max_text_tokens = 1,
                                                .max_request_bytes = 64,
                                                .max_encoder_items = 1};

static size_t sched_bytes(const void *config)
{
    return quire_sched_bytes(config);
}

static int sched_create(const void *config, const quire_allocator *allocator, void **handle)
{
    quire_sched *sched = *handle;
    int status = quire_sched_create(config, allocator, &sched);
    *handle = sched;
    return status;
}

static int sched_create_in(void *memory, size_t bytes, const void *config, void **handle)
{
    quire_sched *sched = *handle;
    int status =
        quire_sched_create(config, &(quire_allocator){.memory = memory, .bytes = bytes}, &sched);
    *handle = sched;
    return status;
}

static void sched_destroy(void *handle)
{
    quire_sched_destroy(handle);
}

static bool sched_runs(quire_sched *sched)
{
    static const quire_token sampled[2];
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    const quire_outputs *outputs;
    const quire_step *step;
    for (uint32_t i = 0; i < 8; i++)
        if (quire_sched_schedule(sched, &step) != QUIRE_OK || step->num_reqs > 2 ||
            quire_sched_update(sched, step->step, &output, &outputs) != QUIRE_OK)
            return false;
    return true;
}

/* Two requests for eight steps, where the config lets them in; then everything is free again. */
static bool sched_works(void *handle)
{
    static const quire_token prompt[2] = {1, 2};
    quire_sched *sched = handle;
    quire_req req;
    uint64_t before = quire_sched_get_usage(sched).active;
    for (uint32_t i = 0; i < 2; i++) {
        const quire_request_params params = {.size = sizeof(quire_request_params),
                                             .id = {&"ab"[i], 1},
                                             .prompt = prompt,
                                             .num_prompt_tokens = i + 1,
                                             .max_tokens = 6};
        int status = quire_sched_add(sched, &params, &req);
        if (status != QUIRE_OK && status != QUIRE_E_RANGE && status != QUIRE_E_TOO_LONG &&
            status != QUIRE_FULL)
            return false;
    }
    return sched_runs(sched) && quire_sched_check(sched) == QUIRE_OK &&
           quire_sched_finish_all(sched, QUIRE_REQ_FINISHED_ABORTED, NULL) == QUIRE_OK &&
           quire_sched_get_counts(sched).num_running == 0 && quire_sched_check(sched) == QUIRE_OK &&
           quire_sched_get_usage(sched).active == before;
}

/* ---- all of them -------------------------------------------------------- */

const handle_kind all_kinds[] = {
    {"pool", &pool_config, sizeof pool_config, offsetof(quire_pool_config, hooks), pool_bytes,
     pool_create, pool_create_in, pool_destroy, pool_works},
    {"hasher", &hasher_config, sizeof hasher_config, offsetof(quire_hasher_config, hooks),
     hasher_bytes, hasher_create, hasher_create_in, hasher_destroy, hasher_works},
    {"table", &table_config, sizeof table_config, 0, table_bytes, table_create, table_create_in,
     table_destroy, table_works},
    {"cache", &cache_config, sizeof cache_config, offsetof(quire_cache_config, hooks), cache_bytes,
     cache_create, cache_create_in, cache_destroy, cache_works},
    {"sched", &sched_config, sizeof sched_config, offsetof(quire_sched_config, hooks), sched_bytes,
     sched_create, sched_create_in, sched_destroy, sched_works},
};
_Static_assert(sizeof(quire_sched_config) <= MAX_CONFIG_BYTES, "tests copy a config by its bytes");
const size_t num_kinds = sizeof all_kinds / sizeof all_kinds[0];

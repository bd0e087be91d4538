// A C++ program that uses the library as it is: the headers need no wrapper, the _INIT macros are
// valid initialisers, and names are not mangled. Its exit status says which step failed.
#include <quire.h>

#include <cstring>

static int use_pool()
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = 8;
    quire_pool *pool = nullptr;
    if (quire_pool_create(&config, nullptr, &pool) != QUIRE_OK)
        return 1;
    quire_block blocks[3];
    int status = quire_pool_get_new_blocks(pool, 3, blocks);
    quire_usage usage = quire_pool_get_usage(pool);
    quire_pool_destroy(pool);
    return status == QUIRE_OK && usage.active == 3 && usage.empty == 4 ? 0 : 2;
}

static int use_hasher()
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.block_size = 4;
    quire_hasher *hasher = nullptr;
    if (quire_hasher_create(&config, nullptr, &hasher) != QUIRE_OK)
        return 3;
    const quire_token tokens[4] = {1, 2, 3, 4};
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
    quire_bytes parent = {nullptr, 0};
    int status = quire_hasher_hash_block(hasher, parent, tokens, 4, nullptr, 0, digest);
    quire_hasher_destroy(hasher);
    return status == QUIRE_OK ? 0 : 4;
}

static int use_table()
{
    quire_table_config config = QUIRE_TABLE_CONFIG_INIT;
    config.max_num_reqs = 2;
    config.max_num_blocks_per_req = 4;
    config.max_num_batched_tokens = 16;
    quire_table *table = nullptr;
    if (quire_table_create(&config, nullptr, &table) != QUIRE_OK)
        return 5;
    const quire_block blocks[2] = {3, 5};
    int status = quire_table_add_row(table, 1, blocks, 2);
    quire_table_view view = quire_table_get_view(table);
    bool same = view.row_lengths[1] == 2 && view.entries[view.row_stride + 1] == 5;
    quire_table_destroy(table);
    return status == QUIRE_OK && same ? 0 : 6;
}

static int use_sched()
{
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    cache.num_blocks = 8;
    cache.max_model_len = 16;
    cache.enable_caching = QUIRE_OFF;
    quire_sched *sched = nullptr;
    int status = quire_sched_create(&config, nullptr, &sched);
    quire_sched_destroy(sched);
    return status == QUIRE_OK && cache.size == sizeof(quire_cache_config) ? 0 : 9;
}

int main()
{
    if (std::strcmp(quire_version_string(), QUIRE_VERSION_STRING) != 0)
        return 7;
    if (std::strcmp(quire_status_name(QUIRE_NO_SPACE), "QUIRE_NO_SPACE") != 0)
        return 8;
    int failed = use_pool();
    if (failed == 0)
        failed = use_hasher();
    if (failed == 0)
        failed = use_table();
    return failed == 0 ? use_sched() : failed;
}

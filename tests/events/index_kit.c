#include "events/index_kit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 4096, MOST_HASH = 256 };

typedef struct kit_key {
    uint32_t group;
    uint32_t copies;
    size_t len;
    unsigned char hash[MOST_HASH];
} kit_key;

typedef struct kit_keys {
    kit_key *keys;
    uint32_t count;
} kit_keys;

static int compare_keys(const void *a, const void *b)
{
    const kit_key *x = a;
    const kit_key *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->hash, y->hash, x->len);
}

static void add_key(kit_keys *keys, uint32_t group, quire_bytes hash, uint32_t copies)
{
    kit_key *key = &keys->keys[keys->count];
    if (keys->count == MOST_BLOCKS || hash.len > MOST_HASH)
        abort();
    keys->count++;
    *key = (kit_key){.group = group, .copies = copies, .len = hash.len};
    memcpy(key->hash, hash.data, hash.len);
}

static void add_number(kit_keys *keys, uint32_t group, uint64_t number, uint32_t copies)
{
    add_key(keys, group, (quire_bytes){&number, sizeof number}, copies);
}

static void take_block(void *user, const quire_wire_hash *hash, uint32_t group, quire_bytes medium,
                       uint32_t copies)
{
    if (medium.len != 3 || memcmp(medium.data, "GPU", 3) != 0)
        abort();
    if (hash->bytes.data == NULL)
        add_number(user, group, hash->number, copies);
    else
        add_key(user, group, hash->bytes, copies);
}

static void take_pool(const index_kit *kit, const quire_pool *pool, kit_keys *keys)
{
    uint64_t num_blocks = quire_pool_get_usage(pool).total;
    for (quire_block block = 1; block < num_blocks; block++) {
        quire_block_info info;
        if (quire_pool_get_block(pool, block, &info) != QUIRE_OK)
            abort();
        if (info.hash.data == NULL)
            continue;
        if (kit->is_numbers)
            add_number(keys, info.group_id, quire_hash_external(info.hash), 1);
        else
            add_key(keys, info.group_id, info.hash, 1);
    }
}

/* Sorted, equal ones joined. */
static void join(const index_kit *kit, kit_keys *keys)
{
    uint32_t num_joined = 0;
    qsort(keys->keys, keys->count, sizeof keys->keys[0], compare_keys);
    for (uint32_t i = 0; i < keys->count; i++) {
        kit_key *last = num_joined == 0 ? NULL : &keys->keys[num_joined - 1];
        if (last != NULL && compare_keys(last, &keys->keys[i]) == 0)
            last->copies += kit->counts_copies ? keys->keys[i].copies : 0;
        else
            keys->keys[num_joined++] = keys->keys[i];
    }
    keys->count = num_joined;
}

static void show_key(const char *what, const kit_key *key)
{
    printf("    %s: group %" PRIu32 ", %" PRIu32 " copies, hash ", what, key->group, key->copies);
    for (size_t i = 0; i < key->len; i++)
        printf("%02x", key->hash[i]);
    printf("\n");
}

/* Shows the first difference. */
static void show_difference(const kit_keys *index, const kit_keys *pool)
{
    printf("the index has %" PRIu32 " keys, the pool %" PRIu32 "\n", index->count, pool->count);
    for (uint32_t i = 0; i < index->count || i < pool->count; i++) {
        bool is_same = i < index->count && i < pool->count &&
                       compare_keys(&index->keys[i], &pool->keys[i]) == 0 &&
                       index->keys[i].copies == pool->keys[i].copies;
        if (is_same)
            continue;
        if (i < index->count)
            show_key("index", &index->keys[i]);
        if (i < pool->count)
            show_key("pool ", &pool->keys[i]);
        return;
    }
}

bool index_kit_is_pool(const index_kit *kit, const quire_index *index, uint32_t worker,
                       const quire_pool *pool)
{
    static kit_key index_keys[MOST_BLOCKS];
    static kit_key pool_keys[MOST_BLOCKS];
    kit_keys from_index = {index_keys, 0};
    kit_keys from_pool = {pool_keys, 0};
    quire_index_visit(index, worker, take_block, &from_index);
    take_pool(kit, pool, &from_pool);
    join(kit, &from_index);
    join(kit, &from_pool);
    bool is_same = from_index.count == from_pool.count;
    for (uint32_t i = 0; is_same && i < from_index.count; i++)
        is_same = compare_keys(&index_keys[i], &pool_keys[i]) == 0 &&
                  index_keys[i].copies == pool_keys[i].copies;
    if (!is_same)
        show_difference(&from_index, &from_pool);
    return is_same;
}

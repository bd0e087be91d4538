#include "state.h"

#include "operation.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1 << 16, REF_BITS = 2, KEY_BITS = 3 };

static uint32_t key_number(const naive_pool *pool, quire_block block, const key_space *keys)
{
    const naive_block *b = &pool->blocks[block];
    if (b->hash_len == 0)
        return 0;
    unsigned char hash[NAIVE_MAX_HASH];
    for (uint32_t id = 0; id < keys->num_hashes; id++) {
        op_hash(id, b->hash_len, hash);
        if (memcmp(hash, b->hash, b->hash_len) == 0)
            return 1 + b->group_id * keys->num_hashes + id;
    }
    abort(); /* a key that no operation in scope can give */
}

state state_of_pool(const naive_pool *pool, const key_space *keys)
{
    state out = {{0}};
    uint32_t numbers[STATE_MAX_BLOCKS] = {0};
    for (uint32_t i = 0; i < pool->num_free; i++)
        out.bytes[i] = (unsigned char)pool->queue[i];
    for (quire_block b = 1; b < pool->num_blocks; b++)
        numbers[b] = key_number(pool, b, keys);
    for (quire_block b = 1; b < pool->num_blocks; b++) {
        uint32_t rank = 0;
        for (quire_block other = 1; other < pool->num_blocks && numbers[b] != 0; other++)
            rank +=
                numbers[other] == numbers[b] && pool->blocks[other].order < pool->blocks[b].order;
        out.bytes[7 + b] = (unsigned char)(rank << (KEY_BITS + REF_BITS) | numbers[b] << REF_BITS |
                                           pool->blocks[b].ref_cnt);
    }
    return out;
}

void state_to_pool(const state *from, const key_space *keys, naive_pool *pool)
{
    pool->num_free = 0;
    while (pool->num_free < pool->num_blocks - 1 && from->bytes[pool->num_free] != 0) {
        pool->queue[pool->num_free] = from->bytes[pool->num_free];
        pool->num_free++;
    }
    pool->next_order = STATE_MAX_BLOCKS;
    for (quire_block b = 1; b < pool->num_blocks; b++) {
        naive_block *block = &pool->blocks[b];
        uint32_t packed = from->bytes[7 + b];
        uint32_t number = packed >> REF_BITS & ((1u << KEY_BITS) - 1);
        block->ref_cnt = packed & ((1u << REF_BITS) - 1);
        block->order = packed >> (KEY_BITS + REF_BITS);
        block->hash_len = number != 0 ? pool->hash_bytes : 0;
        if (number == 0)
            continue;
        block->group_id = (number - 1) / keys->num_hashes;
        op_hash((number - 1) % keys->num_hashes, pool->hash_bytes, block->hash);
    }
}

/* ---- the set: open addressing, doubled when half full -------------------- */

static size_t home_of(const state_set *set, const state *s)
{
    uint64_t words[2];
    memcpy(words, s->bytes, sizeof words);
    uint64_t h =
        (words[0] ^ (words[1] * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
    return (size_t)(h ^ (h >> 32)) & (set->capacity - 1);
}

static bool is_empty(const state *s)
{
    static const state zero;
    return memcmp(s, &zero, sizeof zero) == 0;
}

/* The slot of a state, or the empty one where it belongs. */
static state *slot_of(const state_set *set, const state *s)
{
    size_t at = home_of(set, s);
    while (!is_empty(&set->slots[at]) && memcmp(&set->slots[at], s, sizeof *s) != 0)
        at = (at + 1) & (set->capacity - 1);
    return &set->slots[at];
}

static bool grow(state_set *set)
{
    state_set bigger = {calloc(set->capacity * 2, sizeof(state)), set->capacity * 2, set->used};
    if (bigger.slots == NULL)
        return false;
    for (size_t i = 0; i < set->capacity; i++)
        if (!is_empty(&set->slots[i]))
            *slot_of(&bigger, &set->slots[i]) = set->slots[i];
    free(set->slots);
    *set = bigger;
    return true;
}

bool state_set_init(state_set *set)
{
    *set = (state_set){calloc(FIRST_CAPACITY, sizeof(state)), FIRST_CAPACITY, 0};
    return set->slots != NULL;
}

int state_set_add(state_set *set, const state *added)
{
    if (set->used * 2 >= set->capacity && !grow(set))
        return -1;
    state *slot = slot_of(set, added);
    if (!is_empty(slot))
        return 0;
    *slot = *added;
    set->used++;
    return 1;
}

void state_set_destroy(state_set *set)
{
    free(set->slots);
}

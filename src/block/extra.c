#include "block/extra.h"

#include "base/assert.h"

void qr_extras_carve(qr_extras *extras, qr_arena *arena, uint32_t num_blocks, uint32_t num_extras)
{
    *extras = (qr_extras){.base = num_blocks + 1, .num_extras = num_extras};
    extras->heads = qr_arena_take(arena, num_blocks, sizeof *extras->heads);
    extras->owners = qr_arena_take(arena, num_extras, sizeof *extras->owners);
    extras->nexts = qr_arena_take(arena, num_extras, sizeof *extras->nexts);
}

void qr_extras_clear(qr_extras *extras)
{
    memset(extras->heads, 0, (size_t)(extras->base - 1) * sizeof *extras->heads);
    memset(extras->owners, 0, (size_t)extras->num_extras * sizeof *extras->owners);
    extras->first_free = extras->base;
    for (uint32_t i = 0; i < extras->num_extras; i++)
        extras->nexts[i] = i + 1 < extras->num_extras ? extras->base + i + 1 : 0;
}

bool qr_extras_has_key(const qr_extras *extras, const qr_map *map, uint32_t block, qr_key key)
{
    if (qr_map_has_key(map, block, key))
        return true;
    uint32_t extra = extras->heads[block].first;
    while (extra != 0 && !qr_map_has_key(map, extra, key))
        extra = qr_extras_next(extras, extra);
    return extra != 0;
}

bool qr_extras_add(qr_extras *extras, qr_map *map, uint32_t block, qr_key key)
{
    uint32_t extra = extras->first_free;
    if (extra == 0)
        return false;
    uint32_t i = extra - extras->base;
    extras->first_free = extras->nexts[i];
    extras->owners[i] = block;
    extras->nexts[i] = 0;
    uint32_t *last = &extras->heads[block].first;
    while (*last != 0)
        last = &extras->nexts[*last - extras->base];
    *last = extra;
    qr_map_insert(map, key, extra);
    return true;
}

void qr_extras_drop_first(qr_extras *extras, uint32_t block)
{
    uint32_t extra = extras->heads[block].first;
    uint32_t i = extra - extras->base;
    qr_assert(extra != 0 && extras->owners[i] == block);
    extras->heads[block].first = extras->nexts[i];
    extras->owners[i] = 0;
    extras->nexts[i] = extras->first_free;
    extras->first_free = extra;
}

/* The extras of one list, each once; says how many, or UINT32_MAX where something is wrong. */
static uint32_t count_list(const qr_extras *extras, const qr_map *map, uint32_t first,
                           uint32_t owner)
{
    uint32_t count = 0;
    for (uint32_t extra = first; extra != 0; extra = qr_extras_next(extras, extra)) {
        if (extra < extras->base || extra - extras->base >= extras->num_extras ||
            extras->owners[extra - extras->base] != owner || ++count > extras->num_extras ||
            qr_block_has_key(&map->blocks[extra]) != (owner != 0))
            return UINT32_MAX;
    }
    return count;
}

bool qr_extras_is_valid(const qr_extras *extras, const qr_map *map)
{
    uint64_t count = count_list(extras, map, extras->first_free, 0);
    for (uint32_t block = 0; block + 1 < extras->base; block++) {
        const qr_extra_head *head = &extras->heads[block];
        bool has_key = qr_block_has_key(&map->blocks[block]);
        if (!has_key && (head->first != 0 || head->num_tokens != 0))
            return false;
        count += count_list(extras, map, head->first, block);
    }
    return count == extras->num_extras;
}

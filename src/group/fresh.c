#include "group/fresh.h"

void qr_fresh_carve(qr_fresh *fresh, qr_arena *arena, uint32_t num_blocks)
{
    uint32_t capacity = 2 * num_blocks;
    *fresh = (qr_fresh){.capacity = capacity};
    fresh->ids = qr_arena_take(arena, capacity, sizeof *fresh->ids);
    fresh->groups = qr_arena_take(arena, capacity, sizeof *fresh->groups);
    fresh->sorted = qr_arena_take(arena, capacity, sizeof *fresh->sorted);
}

/* Keeps the first mention of every block. */
static void drop_second_mentions(qr_fresh *fresh, qr_block *blocks)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < fresh->count; i++) {
        qr_block *b = &blocks[fresh->ids[i]];
        if (b->mark)
            continue;
        b->mark = true;
        fresh->ids[kept] = fresh->ids[i];
        fresh->groups[kept++] = fresh->groups[i];
    }
    for (uint32_t i = 0; i < kept; i++)
        blocks[fresh->ids[i]].mark = false;
    fresh->count = kept;
}

void qr_fresh_add(qr_fresh *fresh, quire_pool *pool, uint32_t group, const uint32_t *ids,
                  uint32_t n)
{
    if ((uint64_t)fresh->count + n > fresh->capacity)
        drop_second_mentions(fresh, pool->queue.blocks);
    qr_assert((uint64_t)fresh->count + n <= fresh->capacity);
    memcpy(fresh->ids + fresh->count, ids, (size_t)n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++)
        fresh->groups[fresh->count + i] = (uint16_t)group;
    fresh->count += n;
}

uint32_t qr_fresh_take(qr_fresh *fresh, uint32_t num_groups)
{
    uint32_t taken = 0;
    for (uint32_t group = 0; group < num_groups && taken < fresh->count; group++)
        for (uint32_t i = 0; i < fresh->count; i++)
            if (fresh->groups[i] == group)
                fresh->sorted[taken++] = fresh->ids[i];
    fresh->count = 0;
    return taken;
}

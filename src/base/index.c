#include "base/index.h"

/* Twice the entries, and at least one slot that stays empty, where every probe ends. */
static uint32_t capacity_for(uint32_t max_entries)
{
    return max_entries < 2 ? 4 : max_entries * 2;
}

void qr_index_carve(qr_index *index, qr_arena *arena, uint32_t max_entries)
{
    index->capacity = capacity_for(max_entries);
    index->slots = qr_arena_take(arena, index->capacity, sizeof(qr_slot));
}

void qr_index_init(qr_index *index, uint64_t secret0, uint64_t secret1)
{
    index->secret[0] = secret0;
    index->secret[1] = secret1;
    qr_index_clear(index);
}

void qr_index_clear(qr_index *index)
{
    memset(index->slots, 0, (size_t)index->capacity * sizeof *index->slots);
    index->used = 0;
}

void qr_index_insert(qr_index *index, uint32_t tag, uint32_t id)
{
    qr_assert(id != 0 && index->used < index->capacity / 2);
    uint32_t slot = qr_index_home(index, tag);
    while (index->slots[slot].id != 0)
        slot = qr_index_after(index, slot);
    index->slots[slot] = (qr_slot){.tag = tag, .id = id};
    index->used++;
}

uint32_t qr_index_find_id(const qr_index *index, uint32_t tag, uint32_t id)
{
    uint32_t slot = qr_index_home(index, tag);
    for (; index->slots[slot].id != 0; slot = qr_index_after(index, slot))
        if (index->slots[slot].id == id)
            return slot;
    return QR_NIL;
}

/* How far `to` is from `from`, going up and around the end. */
static uint32_t probe_distance(const qr_index *index, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + index->capacity - from;
}

void qr_index_remove_at(qr_index *index, uint32_t slot)
{
    qr_assert_internal(index->slots[slot].id != 0);
    uint32_t gap = slot;
    uint32_t next = qr_index_after(index, gap);
    while (index->slots[next].id != 0) {
        uint32_t home = qr_index_home(index, index->slots[next].tag);
        /* An entry may move into the gap unless its home lies behind the gap. */
        if (probe_distance(index, home, next) >= probe_distance(index, gap, next)) {
            index->slots[gap] = index->slots[next];
            gap = next;
        }
        next = qr_index_after(index, next);
    }
    index->slots[gap] = (qr_slot){.tag = 0, .id = 0};
    index->used--;
}

bool qr_index_is_valid(const qr_index *index)
{
    uint32_t used = 0;
    for (uint32_t slot = 0; slot < index->capacity; slot++) {
        if (index->slots[slot].id == 0)
            continue;
        used++;
        uint32_t probe = qr_index_home(index, index->slots[slot].tag);
        while (probe != slot && index->slots[probe].id != 0)
            probe = qr_index_after(index, probe);
        if (probe != slot)
            return false;
    }
    return used == index->used && used <= index->capacity / 2;
}

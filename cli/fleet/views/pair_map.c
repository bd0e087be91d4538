#include "pair_map.h"

#include "base/bits.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 16 };

static uint64_t home_of(const pair_map *map, uint64_t name, uint32_t worker)
{
    uint64_t mixed = (name ^ name >> 32) + worker * UINT64_C(0xd6e8feb86659fd93);
    mixed *= UINT64_C(0x9e3779b97f4a7c15);
    return (mixed ^ mixed >> 29) & (map->num_slots - 1);
}

static pair_slot *find(const pair_map *map, uint64_t name, uint32_t worker)
{
    uint64_t at = home_of(map, name, worker);
    while (map->slots[at].is_used &&
           (map->slots[at].name != name || map->slots[at].worker != worker))
        at = (at + 1) & (map->num_slots - 1);
    return &map->slots[at];
}

uint32_t pair_map_get(const pair_map *map, uint64_t name, uint32_t worker)
{
    if (map->num_slots == 0)
        return PAIR_MAP_NONE;
    const pair_slot *s = find(map, name, worker);
    return s->is_used ? s->number : PAIR_MAP_NONE;
}

void pair_map_fetch(const pair_map *map, uint64_t name, uint32_t worker)
{
    if (map->num_slots > 0)
        qr_prefetch(&map->slots[home_of(map, name, worker)]);
}

static bool grow(pair_map *map)
{
    pair_map larger = {.num_slots = map->num_slots == 0 ? FIRST_SLOTS : 2 * map->num_slots,
                       .num_used = map->num_used};
    larger.slots = calloc(larger.num_slots, sizeof *larger.slots);
    if (larger.slots == NULL)
        return false;
    for (uint64_t i = 0; i < map->num_slots; i++)
        if (map->slots[i].is_used)
            *find(&larger, map->slots[i].name, map->slots[i].worker) = map->slots[i];
    free(map->slots);
    *map = larger;
    return true;
}

bool pair_map_set(pair_map *map, uint64_t name, uint32_t worker, uint32_t number)
{
    if (4 * (map->num_used + 1) > 3 * map->num_slots && !grow(map))
        return false;
    pair_slot *s = find(map, name, worker);
    map->num_used += !s->is_used;
    *s = (pair_slot){name, number, (uint16_t)worker, 1};
    return true;
}

void pair_map_remove(pair_map *map, uint64_t name, uint32_t worker)
{
    if (map->num_slots == 0)
        return;
    pair_slot *s = find(map, name, worker);
    if (!s->is_used)
        return;
    uint64_t mask = map->num_slots - 1;
    uint64_t gap = (uint64_t)(s - map->slots);
    map->num_used--;
    for (uint64_t at = (gap + 1) & mask; map->slots[at].is_used; at = (at + 1) & mask) {
        uint64_t home = home_of(map, map->slots[at].name, map->slots[at].worker);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            map->slots[gap] = map->slots[at];
            gap = at;
        }
    }
    map->slots[gap].is_used = 0;
}

void pair_map_free(pair_map *map)
{
    free(map->slots);
    *map = (pair_map){0};
}

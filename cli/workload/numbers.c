#include "numbers.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_PLACES = 1 << 10 };

static number_place *place_of(const number_map *map, uint64_t key)
{
    size_t mask = map->num_places - 1;
    uint64_t mixed = (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(mixed >> 20) & mask;
    while (map->places[at].number != 0 && map->places[at].key != key)
        at = (at + 1) & mask;
    return &map->places[at];
}

static bool grow(number_map *map)
{
    number_map larger = {.num_places = map->num_places > 0 ? 2 * map->num_places : FIRST_PLACES,
                         .count = map->count};
    larger.places = calloc(larger.num_places, sizeof *larger.places);
    if (larger.places == NULL)
        return false;
    for (size_t i = 0; i < map->num_places; i++)
        if (map->places[i].number != 0)
            *place_of(&larger, map->places[i].key) = map->places[i];
    free(map->places);
    *map = larger;
    return true;
}

uint64_t *number_map_at(number_map *map, uint64_t key)
{
    if (4 * (map->count + 1) > 3 * map->num_places && !grow(map))
        return NULL;
    number_place *place = place_of(map, key);
    if (place->number == 0) {
        place->key = key;
        map->count++;
    }
    return &place->number;
}

uint64_t number_map_get(const number_map *map, uint64_t key)
{
    return map->num_places > 0 ? place_of(map, key)->number : 0;
}

void number_map_clear(number_map *map)
{
    if (map->num_places > 0)
        memset(map->places, 0, map->num_places * sizeof *map->places);
    map->count = 0;
}

void number_map_free(number_map *map)
{
    free(map->places);
    *map = (number_map){.places = NULL};
}

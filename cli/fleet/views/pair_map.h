/* cli/fleet/views/pair_map.h - a number for each pair of a name and a worker.
 *
 *      | name, number, worker |    open addressing, 16 bytes a slot, at most three quarters used
 */
#ifndef QUIRE_CLI_FLEET_VIEWS_PAIR_MAP_H
#define QUIRE_CLI_FLEET_VIEWS_PAIR_MAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pair_slot {
    uint64_t name;
    uint32_t number;
    uint16_t worker;
    uint16_t is_used;
} pair_slot;

/* All zero is an empty map. */
typedef struct pair_map {
    pair_slot *slots;
    uint64_t num_slots; /* 0, or a power of two */
    uint64_t num_used;
} pair_map;

#define PAIR_MAP_NONE UINT32_MAX

/* PAIR_MAP_NONE: the pair is not in the map. */
uint32_t pair_map_get(const pair_map *map, uint64_t name, uint32_t worker);
/* Adds the pair, or changes its number. False: no memory. */
bool pair_map_set(pair_map *map, uint64_t name, uint32_t worker, uint32_t number);
/* Asks for the memory of a pair that will be needed soon. */
void pair_map_fetch(const pair_map *map, uint64_t name, uint32_t worker);
void pair_map_remove(pair_map *map, uint64_t name, uint32_t worker);
void pair_map_free(pair_map *map);

#endif

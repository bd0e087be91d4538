/* cli/workload/numbers.h - a number for each of many 64-bit keys.
 *
 *      | key, number |    open addressing, 16 bytes a place, at most three quarters used
 *
 * A number is never 0: that is an empty place. Nothing is removed.
 */
#ifndef QUIRE_CLI_WORKLOAD_NUMBERS_H
#define QUIRE_CLI_WORKLOAD_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct number_place {
    uint64_t key;
    uint64_t number;
} number_place;

/* All zero is an empty map. */
typedef struct number_map {
    number_place *places;
    size_t num_places; /* 0, or a power of two */
    size_t count;
} number_map;

/* Where the number of the key is; 0 is there if the key is new, and the caller writes another
 * number. Valid until the next call. NULL: no memory. */
uint64_t *number_map_at(number_map *map, uint64_t key);
/* 0: the key is not in the map. */
uint64_t number_map_get(const number_map *map, uint64_t key);
/* Empties it and keeps its memory. */
void number_map_clear(number_map *map);
void number_map_free(number_map *map);

#endif

/* cli/output/grown.h - arrays that grow: their room doubles. */
#ifndef QUIRE_CLI_OUTPUT_GROWN_H
#define QUIRE_CLI_OUTPUT_GROWN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more element of `bytes` behind the `used` ones of *array, a pointer of any type; the
 * array may move. False: no memory, or it has `most` elements already; nothing has changed then. */
static inline bool grow(void *array, uint32_t used, uint32_t *room, uint32_t most, size_t bytes)
{
    void *elements;
    if (used < *room)
        return true;
    uint64_t wanted = *room < 16 ? 32 : 2 * (uint64_t)*room;
    wanted = wanted < most ? wanted : most;
    memcpy(&elements, array, sizeof elements);
    elements = wanted <= used ? NULL : realloc(elements, (size_t)wanted * bytes);
    if (elements == NULL)
        return false;
    memcpy(array, &elements, sizeof elements);
    *room = (uint32_t)wanted;
    return true;
}

/* Room for `wanted` elements; where there is not, for more than that. False: no memory. */
static inline bool reserve(void *array, uint64_t wanted, uint64_t *room, size_t bytes)
{
    void *elements;
    if (wanted <= *room)
        return true;
    uint64_t larger = wanted + wanted / 2 + 1024;
    memcpy(&elements, array, sizeof elements);
    elements = realloc(elements, larger * bytes);
    if (elements == NULL)
        return false;
    memcpy(array, &elements, sizeof elements);
    *room = larger;
    return true;
}

#endif

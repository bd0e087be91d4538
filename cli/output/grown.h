/* cli/output/grown.h - arrays that grow: their room doubles. */
#ifndef QUIRE_CLI_OUTPUT_GROWN_H
#define QUIRE_CLI_OUTPUT_GROWN_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The array with room for one more element of `bytes` behind the `used` ones; it may have moved.
 * NULL: no memory, or it has `most` elements already; array and *room are then as they were. */
static inline void *grown(void *array, uint32_t used, uint32_t *room, uint32_t most, size_t bytes)
{
    if (used < *room)
        return array;
    uint64_t wanted = *room < 16 ? 32 : 2 * (uint64_t)*room;
    wanted = wanted < most ? wanted : most;
    void *moved = wanted <= used ? NULL : realloc(array, (size_t)wanted * bytes);
    if (moved != NULL)
        *room = (uint32_t)wanted;
    return moved;
}

#endif

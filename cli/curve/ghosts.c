#include "ghosts.h"

#include "output/grown.h"
#include <stdlib.h>
#include <string.h>

void curve_ghosts_free(curve_ghosts *ghosts)
{
    free(ghosts->list);
    *ghosts = (curve_ghosts){0};
}

/* The first ghost above a position. */
static uint32_t first_above(const curve_ghosts *ghosts, uint32_t position)
{
    uint32_t low = 0;
    uint32_t high = ghosts->num_ghosts;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ghosts->list[middle].position > position)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool curve_ghosts_add(curve_ghosts *ghosts, curve_ghost ghost)
{
    if (!grow(&ghosts->list, ghosts->num_ghosts, &ghosts->room, UINT32_MAX, sizeof ghost))
        return false;
    uint32_t at = first_above(ghosts, ghost.position);
    memmove(ghosts->list + at + 1, ghosts->list + at,
            (ghosts->num_ghosts - at) * sizeof *ghosts->list);
    ghosts->list[at] = ghost;
    ghosts->num_ghosts++;
    return true;
}

/* From the smallest pool that could be: as long as ghosts that count in it make it too small, the
 * next candidate has room for them. */
uint32_t curve_ghosts_min_blocks(const curve_ghosts *ghosts, uint32_t position, uint32_t num_above)
{
    uint32_t first = first_above(ghosts, position);
    uint32_t count = 0;
    for (;;) {
        uint32_t candidate = num_above + count + 1;
        uint32_t before = count;
        count = 0;
        for (uint32_t i = first; i < ghosts->num_ghosts; i++)
            count += ghosts->list[i].min_blocks <= candidate;
        if (count == before)
            return candidate;
    }
}

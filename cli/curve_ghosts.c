#include "curve_ghosts.h"

#include <stdlib.h>
#include <string.h>

void curve_ghosts_free(curve_ghosts *ghosts)
{
    free(ghosts->list);
    free(ghosts->edges);
    *ghosts = (curve_ghosts){0};
}

void curve_sizes_free(curve_sizes *sizes)
{
    free(sizes->ranges);
    *sizes = (curve_sizes){0};
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

bool curve_ghosts_add(curve_ghosts *ghosts, uint32_t position, const curve_sizes *sizes)
{
    uint32_t more = sizes->num_ranges;
    if (more > ghosts->room - ghosts->num_ghosts) {
        uint32_t room = 2 * (ghosts->num_ghosts + more) + 16;
        curve_ghost *list = realloc(ghosts->list, room * sizeof *list);
        if (list == NULL)
            return false;
        ghosts->list = list;
        ghosts->room = room;
    }
    uint32_t at = first_above(ghosts, position);
    memmove(ghosts->list + at + more, ghosts->list + at,
            (ghosts->num_ghosts - at) * sizeof *ghosts->list);
    for (uint32_t i = 0; i < more; i++)
        ghosts->list[at + i] = (curve_ghost){position, sizes->ranges[i]};
    ghosts->num_ghosts += more;
    return true;
}

/* A range that begins where the last one ends goes on with it. */
static bool append(curve_sizes *sizes, uint32_t from, uint32_t to)
{
    if (from >= to)
        return true;
    if (sizes->num_ranges > 0 && sizes->ranges[sizes->num_ranges - 1].to == from) {
        sizes->ranges[sizes->num_ranges - 1].to = to;
        return true;
    }
    if (sizes->num_ranges == sizes->room) {
        uint32_t room = 2 * sizes->room + 4;
        curve_range *ranges = realloc(sizes->ranges, room * sizeof *ranges);
        if (ranges == NULL)
            return false;
        sizes->ranges = ranges;
        sizes->room = room;
    }
    sizes->ranges[sizes->num_ranges++] = (curve_range){from, to};
    return true;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t count_at(const curve_ghost *list, uint32_t num_ghosts, uint32_t size)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < num_ghosts; i++)
        count += list[i].sizes.from <= size && size < list[i].sizes.to;
    return count;
}

static bool make_edges(curve_ghosts *ghosts, uint32_t num_above)
{
    uint64_t wanted = 2 * (uint64_t)num_above + 2;
    if (wanted <= ghosts->edges_room)
        return true;
    uint32_t *edges = realloc(ghosts->edges, wanted * sizeof *edges);
    if (edges == NULL)
        return false;
    ghosts->edges = edges;
    ghosts->edges_room = (uint32_t)wanted;
    return true;
}

/* With c ghosts above it, a block is in no pool of up to num_above blocks and in all of num_above +
 * c + 1 or more. Between those it depends on which of them count: from edge to edge. */
bool curve_ghosts_sizes(curve_ghosts *ghosts, uint32_t position, uint32_t num_above,
                        curve_sizes *sizes)
{
    uint32_t first = first_above(ghosts, position);
    uint32_t c = ghosts->num_ghosts - first;
    const curve_ghost *list = ghosts->list + first;
    sizes->num_ranges = 0;
    if (c == 0)
        return append(sizes, num_above + 1, CURVE_ANY_SIZE);
    if (!make_edges(ghosts, c))
        return false;
    uint32_t low = num_above + 1;
    uint32_t high = num_above + c + 1;
    uint32_t num_edges = 0;
    ghosts->edges[num_edges++] = low;
    for (uint32_t i = 0; i < c; i++) {
        if (list[i].sizes.from > low && list[i].sizes.from < high)
            ghosts->edges[num_edges++] = list[i].sizes.from;
        if (list[i].sizes.to > low && list[i].sizes.to < high)
            ghosts->edges[num_edges++] = list[i].sizes.to;
    }
    qsort(ghosts->edges, num_edges, sizeof *ghosts->edges, by_size);
    ghosts->edges[num_edges] = high;
    for (uint32_t i = 0; i < num_edges; i++) {
        uint32_t from = ghosts->edges[i];
        uint32_t least = num_above + count_at(list, c, from) + 1;
        if (!append(sizes, from > least ? from : least, ghosts->edges[i + 1]))
            return false;
    }
    return append(sizes, high, CURVE_ANY_SIZE);
}

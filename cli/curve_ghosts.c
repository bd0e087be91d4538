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
    uint32_t x = ((const curve_edge *)a)->size;
    uint32_t y = ((const curve_edge *)b)->size;
    return (x > y) - (x < y);
}

static bool reserve_edges(curve_ghosts *ghosts, uint32_t num_above)
{
    uint64_t wanted = 2 * (uint64_t)num_above + 1;
    if (wanted <= ghosts->edges_room)
        return true;
    curve_edge *edges = realloc(ghosts->edges, 2 * wanted * sizeof *edges);
    if (edges == NULL)
        return false;
    ghosts->edges = edges;
    ghosts->edges_room = 2 * wanted;
    return true;
}

/* Edges of ghosts between low and high in order, the last one at high; *count is how many ghosts
 * count at low. */
static uint32_t find_edges(curve_ghosts *ghosts, uint32_t first, uint32_t low, uint32_t high,
                           uint32_t *count)
{
    uint32_t n = 0;
    *count = 0;
    for (uint32_t i = first; i < ghosts->num_ghosts; i++) {
        curve_range r = ghosts->list[i].sizes;
        *count += r.from <= low && low < r.to;
        if (r.from > low && r.from < high)
            ghosts->edges[n++] = (curve_edge){r.from, 1};
        if (r.to > low && r.to < high)
            ghosts->edges[n++] = (curve_edge){r.to, -1};
    }
    qsort(ghosts->edges, n, sizeof *ghosts->edges, by_size);
    ghosts->edges[n++] = (curve_edge){high, 0};
    return n;
}

/* With c ghosts above it, a block is in no pool of up to num_above blocks and in all of num_above +
 * c + 1 or more. Between those it depends on which of them count: from edge to edge. */
bool curve_ghosts_sizes(curve_ghosts *ghosts, uint32_t position, uint32_t num_above,
                        curve_sizes *sizes)
{
    uint32_t first = first_above(ghosts, position);
    uint32_t num_ghosts = ghosts->num_ghosts - first;
    uint32_t count;
    sizes->num_ranges = 0;
    if (!reserve_edges(ghosts, num_ghosts))
        return false;
    uint32_t at = num_above + 1;
    uint32_t high = num_above + num_ghosts + 1;
    uint32_t num_edges = find_edges(ghosts, first, at, high, &count);
    for (uint32_t i = 0; i < num_edges; i++) {
        uint32_t least = num_above + count + 1;
        if (!append(sizes, at > least ? at : least, ghosts->edges[i].size))
            return false;
        at = ghosts->edges[i].size;
        count += (uint32_t)ghosts->edges[i].change;
    }
    return append(sizes, high, CURVE_ANY_SIZE);
}

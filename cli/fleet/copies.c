#include "copies.h"

#include <stdlib.h>

/* Counts are of pairs with this worker: the map asks for one. */
enum { ANY = 0 };

uint32_t copies_of(const copies *c, uint64_t name)
{
    uint32_t n = pair_map_get(&c->counts, name, ANY);
    return n == PAIR_MAP_NONE ? 0 : n;
}

bool copies_add(copies *c, uint64_t name, uint32_t worker)
{
    if (pair_map_get(&c->pairs, name, worker) != PAIR_MAP_NONE)
        return true;
    uint32_t n = copies_of(c, name);
    if (!pair_map_set(&c->pairs, name, worker, 0))
        return false;
    if (!pair_map_set(&c->counts, name, ANY, n + 1)) {
        pair_map_remove(&c->pairs, name, worker);
        return false;
    }
    c->num_pairs++;
    c->num_blocks += n == 0;
    return true;
}

void copies_remove(copies *c, uint64_t name, uint32_t worker)
{
    if (pair_map_get(&c->pairs, name, worker) == PAIR_MAP_NONE)
        return;
    uint32_t n = copies_of(c, name);
    pair_map_remove(&c->pairs, name, worker);
    if (n > 1)
        pair_map_set(&c->counts, name, ANY, n - 1); /* it is there: no memory is needed */
    else
        pair_map_remove(&c->counts, name, ANY);
    c->num_pairs--;
    c->num_blocks -= n == 1;
}

bool copies_clear(copies *c, uint32_t worker)
{
    uint64_t n = 0;
    uint64_t *names = malloc(c->num_pairs * sizeof *names + 1);
    if (names == NULL)
        return false;
    for (uint64_t i = 0; i < c->pairs.num_slots; i++)
        if (c->pairs.slots[i].is_used && c->pairs.slots[i].worker == worker)
            names[n++] = c->pairs.slots[i].name;
    for (uint64_t i = 0; i < n; i++)
        copies_remove(c, names[i], worker);
    free(names);
    return true;
}

void copies_free(copies *c)
{
    pair_map_free(&c->pairs);
    pair_map_free(&c->counts);
    *c = (copies){0};
}

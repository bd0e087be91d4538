#include "prefixes.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 1024, CANDIDATES = 1024 };

static prefix *find(const prefixes *p, uint64_t name)
{
    uint64_t mixed = (name ^ name >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t at = (mixed ^ mixed >> 29) & (p->num_slots - 1);
    while (p->slots[at].blocks > 0 && p->slots[at].name != name)
        at = (at + 1) & (p->num_slots - 1);
    return &p->slots[at];
}

/* A table of that size with the prefixes that were seen more often than `least` times. */
static bool rebuild(prefixes *p, uint64_t num_slots, uint64_t least)
{
    prefixes other = {.num_slots = num_slots, .slots = calloc(num_slots, sizeof *other.slots)};
    if (other.slots == NULL)
        return false;
    for (uint64_t i = 0; i < p->num_slots; i++) {
        if (p->slots[i].blocks == 0 || p->slots[i].seen <= least)
            continue;
        *find(&other, p->slots[i].name) = p->slots[i];
        other.num_used++;
    }
    free(p->slots);
    *p = other;
    return true;
}

static bool make_room(prefixes *p)
{
    if (4 * (p->num_used + 1) <= 3 * p->num_slots)
        return true;
    if (p->num_slots < PREFIXES_MOST)
        return rebuild(p, p->num_slots == 0 ? FIRST_SLOTS : 2 * p->num_slots, 0);
    for (uint64_t least = 1; 2 * p->num_used > p->num_slots; least *= 2)
        if (!rebuild(p, p->num_slots, least))
            return false;
    return true;
}

bool prefixes_note(prefixes *p, uint64_t request, const uint64_t *blocks, uint32_t num_blocks)
{
    uint64_t parent = 0;
    for (uint64_t n = 1; n <= num_blocks; n *= 2) {
        uint64_t name = blocks[n - 1];
        if (!make_room(p))
            return false;
        prefix *slot = find(p, name);
        if (slot->blocks == 0) {
            *slot = (prefix){.name = name,
                             .parent = parent,
                             .has_parent = n > 1,
                             .blocks = (uint32_t)n,
                             .request = request};
            p->num_used++;
        }
        slot->seen++;
        parent = name;
    }
    return true;
}

static double spares(const prefix *x)
{
    return (double)(x->seen - 1) * x->blocks;
}

static int compare(const void *a, const void *b)
{
    const prefix *x = a;
    const prefix *y = b;
    if (spares(x) != spares(y))
        return spares(x) > spares(y) ? -1 : 1;
    if (x->request != y->request)
        return x->request < y->request ? -1 : 1;
    return x->blocks > y->blocks ? -1 : x->blocks < y->blocks;
}

static bool is_part_of(const prefixes *p, const prefix *part, const prefix *whole)
{
    const prefix *at = whole;
    while (at->blocks > part->blocks && at->has_parent) {
        at = find(p, at->parent);
        if (at->blocks == 0)
            return false; /* it was forgotten */
    }
    return at->name == part->name;
}

static bool is_like(const prefixes *p, const prefix *x, const prefix *y)
{
    bool is_related = x->blocks < y->blocks ? is_part_of(p, x, y) : is_part_of(p, y, x);
    return is_related && x->seen < 2 * y->seen && y->seen < 2 * x->seen;
}

uint32_t prefixes_hot(const prefixes *p, prefix hot[PREFIXES_HOT])
{
    uint64_t n = 0;
    uint32_t num_hot = 0;
    prefix *shared = malloc(p->num_used * sizeof *shared + 1);
    for (uint64_t i = 0; shared != NULL && i < p->num_slots; i++)
        if (p->slots[i].blocks > 0 && p->slots[i].seen > 1)
            shared[n++] = p->slots[i];
    if (n > 0)
        qsort(shared, n, sizeof *shared, compare);
    for (uint64_t i = 0; i < n && i < CANDIDATES && num_hot < PREFIXES_HOT; i++) {
        bool is_new = true;
        for (uint32_t k = 0; k < num_hot && is_new; k++)
            is_new = !is_like(p, &shared[i], &hot[k]);
        if (is_new)
            hot[num_hot++] = shared[i];
    }
    free(shared);
    return num_hot;
}

void prefixes_free(prefixes *p)
{
    free(p->slots);
    *p = (prefixes){0};
}

#include "id_set.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BITS = 12 };
static const uint64_t COMPUTED = 1;

/* Ids are mixed numbers (content.h), so any bits of them do; 0 is an empty place. */
static uint64_t key_of(uint64_t id)
{
    uint64_t key = id & ~COMPUTED;
    return key == 0 ? UINT64_C(0x8000000000000000) : key;
}

static size_t home_of(const id_set *set, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & set->mask;
}

static size_t place_of(const id_set *set, uint64_t key)
{
    size_t place = home_of(set, key);
    while (set->places[place] != 0 && (set->places[place] & ~COMPUTED) != key)
        place = (place + 1) & set->mask;
    return place;
}

static bool grow(id_set *set)
{
    size_t old = set->places == NULL ? 0 : set->mask + 1;
    size_t size = old == 0 ? (size_t)1 << FIRST_BITS : 2 * old;
    id_set bigger = {.mask = size - 1, .count = set->count};
    if (size > (size_t)1 << ID_SET_MAX_BITS)
        return false;
    bigger.places = calloc(size, sizeof *bigger.places);
    if (bigger.places == NULL)
        return false;
    for (size_t i = 0; i < old; i++)
        if (set->places[i] != 0)
            bigger.places[place_of(&bigger, set->places[i] & ~COMPUTED)] = set->places[i];
    free(set->places);
    *set = bigger;
    return true;
}

bool id_set_add(id_set *set, uint64_t id)
{
    if (set->gave_up)
        return false;
    bool is_crowded = set->places == NULL || 4 * (set->count + 1) > 3 * (set->mask + 1);
    if (is_crowded && !grow(set)) {
        set->gave_up = true;
        return false;
    }
    uint64_t key = key_of(id);
    size_t place = place_of(set, key);
    if (set->places[place] != 0)
        return true;
    set->places[place] = key;
    set->count++;
    return false;
}

void id_set_fetch(const id_set *set, uint64_t id)
{
    if (set->places != NULL)
        __builtin_prefetch(&set->places[home_of(set, key_of(id))]);
}

bool id_set_has(const id_set *set, uint64_t id)
{
    return !set->gave_up && set->places != NULL && set->places[place_of(set, key_of(id))] != 0;
}

void id_set_mark_computed(id_set *set, uint64_t id)
{
    if (set->gave_up || set->places == NULL)
        return;
    size_t place = place_of(set, key_of(id));
    if (set->places[place] != 0)
        set->places[place] |= COMPUTED;
}

bool id_set_is_computed(const id_set *set, uint64_t id)
{
    if (set->gave_up || set->places == NULL)
        return false;
    return (set->places[place_of(set, key_of(id))] & COMPUTED) != 0;
}

void id_set_free(id_set *set)
{
    free(set->places);
    memset(set, 0, sizeof *set);
}

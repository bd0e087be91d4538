#include "shared_tier.h"

#include "output/failure.h"

#include <math.h>
#include <stdlib.h>

/* The index is a table of places by the hash of their keys, open addressing, at most 2/3 full; the
 * place after the last one with that hash is empty. Removing moves later places back, so nothing
 * marks what was removed.
 *
 *      slots[hash ...] ─► places: key, newer, older        newest ◄─► ... ◄─► oldest
 */
#define NONE       UINT32_MAX
#define COMING     (UINT32_MAX - 1) /* as `newer`: on its way, in no list */
#define MAX_PLACES (UINT32_C(1) << 30)

typedef struct place {
    uint64_t key;
    uint32_t newer;
    uint32_t older; /* of an unused one: the next unused one */
} place;

/* With the hash, so that a search reads the keys of equal hashes alone. */
typedef struct slot {
    uint32_t place; /* NONE: empty */
    uint32_t hash;  /* its home is hash & mask */
} slot;

struct shared_tier {
    shared_tier_config config;
    shared_tier_counts counts;
    place *places;
    slot *slots;
    uint32_t mask;      /* of the number of a slot */
    uint32_t num_fresh; /* places that were ever used */
    uint32_t unused;
    uint32_t newest;
    uint32_t oldest;
    bool is_down;
};

/* ---- creation ------------------------------------------------------------------- */

static bool check(const shared_tier_config *c)
{
    if (c->block_bytes == 0)
        return fail_with("shared_tier_config.block_bytes is 0 (expected at least 1)") == 0;
    uint64_t places = c->capacity_bytes / c->block_bytes;
    if (places == 0 || places > MAX_PLACES)
        return fail_with("shared_tier_config.capacity_bytes (%llu) has %llu blocks of %llu bytes "
                         "(expected 1..%u)",
                         (unsigned long long)c->capacity_bytes, (unsigned long long)places,
                         (unsigned long long)c->block_bytes, MAX_PLACES) == 0;
    if (!(c->latency_s >= 0) || !isfinite(c->latency_s))
        return fail_with("shared_tier_config.latency_s is %g (expected 0 or more, finite)",
                         c->latency_s) == 0;
    return true;
}

shared_tier *shared_tier_create(const shared_tier_config *config)
{
    if (!check(config))
        return NULL;
    shared_tier *t = calloc(1, sizeof *t);
    uint64_t places = config->capacity_bytes / config->block_bytes;
    uint64_t slots = 4;
    while (slots * 2 < places * 3)
        slots *= 2;
    if (t != NULL) {
        t->places = malloc(places * sizeof *t->places);
        t->slots = malloc(slots * sizeof *t->slots);
    }
    if (t == NULL || t->places == NULL || t->slots == NULL) {
        shared_tier_destroy(t);
        fail_with("not enough memory for a shared tier of %llu blocks", (unsigned long long)places);
        return NULL;
    }
    t->config = *config;
    t->counts.places = places;
    t->mask = (uint32_t)(slots - 1);
    for (uint64_t i = 0; i < slots; i++)
        t->slots[i] = (slot){.place = NONE};
    t->unused = NONE;
    t->newest = NONE;
    t->oldest = NONE;
    return t;
}

void shared_tier_destroy(shared_tier *t)
{
    if (t == NULL)
        return;
    free(t->places);
    free(t->slots);
    free(t);
}

/* ---- the index ------------------------------------------------------------------- */

static uint32_t hash_of(uint64_t key)
{
    key = (key ^ key >> 32) * UINT64_C(0xd6e8feb86659fd93);
    key = (key ^ key >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(key ^ key >> 32);
}

/* The slot of the key, or the empty one where it would be. */
static uint32_t slot_of(const shared_tier *t, uint64_t key)
{
    uint32_t hash = hash_of(key);
    uint32_t at = hash & t->mask;
    while (t->slots[at].place != NONE &&
           (t->slots[at].hash != hash || t->places[t->slots[at].place].key != key))
        at = (at + 1) & t->mask;
    return at;
}

static uint32_t find_place(const shared_tier *t, uint64_t key)
{
    return t->slots[slot_of(t, key)].place;
}

/* What follows without a gap moves back, if its home is not behind the hole. */
static void remove_slot(shared_tier *t, uint32_t hole)
{
    for (uint32_t at = (hole + 1) & t->mask; t->slots[at].place != NONE; at = (at + 1) & t->mask) {
        if (((at - t->slots[at].hash) & t->mask) < ((at - hole) & t->mask))
            continue;
        t->slots[hole] = t->slots[at];
        hole = at;
    }
    t->slots[hole].place = NONE;
}

/* ---- by age ------------------------------------------------------------------------ */

static void leave_order(shared_tier *t, uint32_t i)
{
    const place *it = &t->places[i];
    if (it->newer != NONE)
        t->places[it->newer].older = it->older;
    else
        t->newest = it->older;
    if (it->older != NONE)
        t->places[it->older].newer = it->newer;
    else
        t->oldest = it->newer;
}

static void become_newest(shared_tier *t, uint32_t i)
{
    t->places[i].newer = NONE;
    t->places[i].older = t->newest;
    if (t->newest != NONE)
        t->places[t->newest].newer = i;
    else
        t->oldest = i;
    t->newest = i;
}

/* The place is free; it is in no list. */
static void release(shared_tier *t, uint32_t i)
{
    remove_slot(t, slot_of(t, t->places[i].key));
    t->places[i].older = t->unused;
    t->unused = i;
}

static void remove_oldest(shared_tier *t)
{
    uint32_t i = t->oldest;
    leave_order(t, i);
    release(t, i);
    t->counts.stored--;
}

/* NONE: all places have blocks on their way. */
static uint32_t take_place(shared_tier *t)
{
    if (t->unused == NONE && t->num_fresh < t->counts.places)
        return t->num_fresh++;
    if (t->unused == NONE && t->oldest != NONE) {
        remove_oldest(t);
        t->counts.evicted++;
    }
    uint32_t i = t->unused;
    if (i != NONE)
        t->unused = t->places[i].older;
    return i;
}

/* ---- loads and stores ---------------------------------------------------------------- */

uint32_t shared_tier_find(const shared_tier *t, const uint64_t *keys, uint32_t num_keys)
{
    uint32_t found = 0;
    while (!t->is_down && found < num_keys) {
        uint32_t i = find_place(t, keys[found]);
        if (i == NONE || t->places[i].newer == COMING)
            break;
        found++;
    }
    return found;
}

void shared_tier_use(shared_tier *t, const uint64_t *keys, uint32_t num_keys)
{
    for (uint32_t k = num_keys; k-- > 0;) {
        uint32_t i = find_place(t, keys[k]);
        if (i == NONE || t->places[i].newer == COMING)
            continue;
        leave_order(t, i);
        become_newest(t, i);
        t->counts.used++;
    }
}

uint32_t shared_tier_begin_store(shared_tier *t, const uint64_t *keys, uint32_t num_keys,
                                 uint64_t *added)
{
    uint32_t num_added = 0;
    for (uint32_t k = 0; k < num_keys; k++) {
        if (!t->is_down && find_place(t, keys[k]) != NONE)
            continue;
        uint32_t i = t->is_down ? NONE : take_place(t);
        if (i == NONE) {
            t->counts.refused++;
            continue;
        }
        t->places[i] = (place){.key = keys[k], .newer = COMING, .older = NONE};
        /* looked up again: an eviction moves slots */
        t->slots[slot_of(t, keys[k])] = (slot){.place = i, .hash = hash_of(keys[k])};
        t->counts.coming++;
        added[num_added++] = keys[k];
    }
    return num_added;
}

void shared_tier_end_store(shared_tier *t, const uint64_t *added, uint32_t num_added,
                           bool has_succeeded)
{
    for (uint32_t k = num_added; k-- > 0;) {
        uint32_t i = find_place(t, added[k]);
        if (i == NONE || t->places[i].newer != COMING)
            continue;
        t->counts.coming--;
        if (has_succeeded) {
            become_newest(t, i);
            t->counts.stored++;
            t->counts.stores++;
        } else {
            release(t, i);
            t->counts.failed++;
        }
    }
}

void shared_tier_set_links(shared_tier *t, links *l)
{
    t->config.links = l;
}

uint32_t shared_tier_start(shared_tier *t, double now_s, shared_tier_way way, uint32_t client,
                           uint32_t card_link, uint32_t num_blocks, uint64_t user)
{
    const shared_tier_config *c = &t->config;
    uint32_t route[LINKS_MAX_ROUTE];
    uint32_t num_route = 0;
    uint32_t total = way == SHARED_TIER_LOAD ? c->load_link : c->store_link;
    if (client >= c->num_clients)
        return LINKS_NONE;
    if (total != LINKS_NONE)
        route[num_route++] = total;
    if (c->client_link != LINKS_NONE)
        route[num_route++] = c->client_link + client;
    if (card_link != LINKS_NONE)
        route[num_route++] = card_link;
    double bytes = (double)num_blocks * (double)c->block_bytes;
    return links_start(c->links, now_s, c->latency_s, bytes, route, num_route, user);
}

/* ---- outages ------------------------------------------------------------------------- */

void shared_tier_set_down(shared_tier *t, bool is_down)
{
    t->is_down = is_down;
}

void shared_tier_clear(shared_tier *t)
{
    t->counts.lost += t->counts.stored;
    while (t->oldest != NONE)
        remove_oldest(t);
}

shared_tier_counts shared_tier_get_counts(const shared_tier *t)
{
    return t->counts;
}

#include "block_index.h"

#include "base/bits.h"

#include <stdlib.h>

enum {
    INLINE_WORKERS = 3,
    MANY = UINT16_MAX, /* in place of the number of workers: they are in a set */
    FIRST_SLOTS = 16,
    FEW_ALIVE = 4,  /* workers that are asked one by one instead of as a set */
    LOOK_AHEAD = 8, /* blocks whose slots are fetched before they are needed */
    SETS_AT_A_TIME = QR_AT_A_TIME(256, 1)
};

typedef struct slot {
    uint64_t name;
    uint16_t workers[INLINE_WORKERS]; /* or the number of the set, in the first two */
    uint16_t count;                   /* 0: an empty slot */
} slot;

_Static_assert(sizeof(slot) == 16, "four slots in a cache line");

struct block_index {
    slot *slots;
    uint64_t num_slots; /* a power of two */
    uint64_t num_names;
    uint64_t num_pairs;
    uint64_t *pairs_of; /* by worker */
    uint32_t max_workers;
    uint32_t words; /* of a set */
    uint64_t *sets; /* words + 1 each: the last one counts */
    uint32_t num_sets;
    uint32_t sets_room;
    uint32_t free_set; /* QR_NIL: none; the first word of a free set is the next one */
    uint64_t *alive;   /* scratch of the walk: words each */
    uint64_t *have;
    uint64_t *next;
    uint32_t *leading; /* by worker */
};

/* ---- sets ------------------------------------------------------------------ */

static uint32_t set_of(const slot *s)
{
    return s->workers[0] | (uint32_t)s->workers[1] << 16;
}

static uint64_t *bits_of(const block_index *index, uint32_t set)
{
    return index->sets + (size_t)set * (index->words + 1);
}

static uint32_t take_set(block_index *index)
{
    if (index->free_set != QR_NIL) {
        uint32_t set = index->free_set;
        index->free_set = (uint32_t)bits_of(index, set)[0];
        memset(bits_of(index, set), 0, (index->words + 1) * sizeof(uint64_t));
        return set;
    }
    if (index->num_sets == index->sets_room) {
        uint32_t room = index->sets_room + index->sets_room / 2 + SETS_AT_A_TIME;
        uint64_t *sets = realloc(index->sets, (size_t)room * (index->words + 1) * sizeof *sets);
        if (sets == NULL)
            return QR_NIL;
        index->sets = sets;
        index->sets_room = room;
    }
    uint32_t set = index->num_sets++;
    memset(bits_of(index, set), 0, (index->words + 1) * sizeof(uint64_t));
    return set;
}

static void give_set(block_index *index, uint32_t set)
{
    bits_of(index, set)[0] = index->free_set;
    index->free_set = set;
}

static bool has_bit(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

static bool slot_has(const block_index *index, const slot *s, uint32_t worker)
{
    if (s->count == MANY)
        return has_bit(bits_of(index, set_of(s)), worker);
    for (uint32_t i = 0; i < s->count; i++)
        if (s->workers[i] == worker)
            return true;
    return false;
}

/* Three workers become a set of four. */
static bool spread(block_index *index, slot *s)
{
    uint32_t set = take_set(index);
    if (set == QR_NIL)
        return false;
    uint64_t *bits = bits_of(index, set);
    for (uint32_t i = 0; i < s->count; i++)
        bits[s->workers[i] / 64] |= UINT64_C(1) << (s->workers[i] % 64);
    bits[index->words] = s->count;
    s->workers[0] = (uint16_t)set;
    s->workers[1] = (uint16_t)(set >> 16);
    s->count = MANY;
    return true;
}

/* A set of two workers goes back into its slot: not one of three, which may be four again soon. */
static void gather(block_index *index, slot *s)
{
    uint32_t set = set_of(s);
    const uint64_t *bits = bits_of(index, set);
    uint16_t count = 0;
    for (uint32_t w = 0; w < index->words; w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1)
            s->workers[count++] = (uint16_t)(w * 64 + (uint32_t)__builtin_ctzll(left));
    s->count = count;
    give_set(index, set);
}

/* ---- slots ----------------------------------------------------------------- */

static uint64_t home_of(const block_index *index, uint64_t name)
{
    uint64_t mixed = (name ^ name >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (mixed ^ mixed >> 29) & (index->num_slots - 1);
}

/* The slot of the name, or the empty one where it would be. */
static slot *find(const block_index *index, uint64_t name)
{
    uint64_t at = home_of(index, name);
    while (index->slots[at].count != 0 && index->slots[at].name != name)
        at = (at + 1) & (index->num_slots - 1);
    return &index->slots[at];
}

static bool grow_slots(block_index *index)
{
    block_index larger = *index;
    larger.num_slots = 2 * index->num_slots;
    larger.slots = calloc(larger.num_slots, sizeof *larger.slots);
    if (larger.slots == NULL)
        return false;
    for (uint64_t i = 0; i < index->num_slots; i++)
        if (index->slots[i].count != 0)
            *find(&larger, index->slots[i].name) = index->slots[i];
    free(index->slots);
    *index = larger;
    return true;
}

/* Closes the gap: slots behind it that are not at home move up. */
static void empty_slot(block_index *index, slot *s)
{
    uint64_t mask = index->num_slots - 1;
    uint64_t gap = (uint64_t)(s - index->slots);
    index->num_names--;
    for (uint64_t at = (gap + 1) & mask; index->slots[at].count != 0; at = (at + 1) & mask) {
        uint64_t home = home_of(index, index->slots[at].name);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            index->slots[gap] = index->slots[at];
            gap = at;
        }
    }
    index->slots[gap].count = 0;
}

void block_index_fetch(const block_index *index, uint64_t name)
{
    qr_prefetch(&index->slots[home_of(index, name)]);
}

block_change block_index_add(block_index *index, uint64_t name, uint32_t worker)
{
    slot *s = find(index, name);
    if (s->count != 0 && slot_has(index, s, worker))
        return BLOCK_SAME;
    if (s->count == 0) {
        if (4 * (index->num_names + 1) > 3 * index->num_slots) {
            if (!grow_slots(index))
                return BLOCK_NO_MEMORY;
            s = find(index, name);
        }
        s->name = name;
        index->num_names++;
    }
    if (s->count == INLINE_WORKERS && !spread(index, s))
        return BLOCK_NO_MEMORY;
    if (s->count == MANY) {
        uint64_t *bits = bits_of(index, set_of(s));
        bits[worker / 64] |= UINT64_C(1) << (worker % 64);
        bits[index->words]++;
    } else {
        s->workers[s->count++] = (uint16_t)worker;
    }
    index->num_pairs++;
    index->pairs_of[worker]++;
    return BLOCK_CHANGED;
}

static void remove_from(block_index *index, slot *s, uint32_t worker)
{
    index->num_pairs--;
    index->pairs_of[worker]--;
    if (s->count == MANY) {
        uint64_t *bits = bits_of(index, set_of(s));
        bits[worker / 64] &= ~(UINT64_C(1) << (worker % 64));
        if (--bits[index->words] == INLINE_WORKERS - 1)
            gather(index, s);
        return;
    }
    for (uint32_t i = 0; i < s->count; i++)
        if (s->workers[i] == worker)
            s->workers[i] = s->workers[s->count - 1];
    if (--s->count == 0)
        empty_slot(index, s);
}

block_change block_index_remove(block_index *index, uint64_t name, uint32_t worker)
{
    slot *s = find(index, name);
    if (s->count == 0 || !slot_has(index, s, worker))
        return BLOCK_SAME;
    remove_from(index, s, worker);
    return BLOCK_CHANGED;
}

bool block_index_has(const block_index *index, uint64_t name, uint32_t worker)
{
    const slot *s = find(index, name);
    return s->count != 0 && slot_has(index, s, worker);
}

/* ---- whole workers --------------------------------------------------------- */

static bool is_in(const block_index *index, uint64_t name, uint32_t worker)
{
    return index != NULL && block_index_has(index, name, worker);
}

/* Removes the worker's blocks that `but` has not. An emptied slot is filled from behind, perhaps
 * by a slot that wraps around to the start and was seen already: seen twice does no harm. */
static void drop_but(block_index *index, const block_index *but, uint32_t worker)
{
    for (uint64_t i = 0; i < index->num_slots && index->pairs_of[worker] > 0;) {
        slot *s = &index->slots[i];
        uint64_t name = s->name;
        if (s->count != 0 && slot_has(index, s, worker) && !is_in(but, name, worker))
            remove_from(index, s, worker);
        if (s->count == 0 || s->name == name)
            i++;
    }
}

void block_index_drop_worker(block_index *index, uint32_t worker)
{
    drop_but(index, NULL, worker);
}

block_change block_index_copy_worker(block_index *index, const block_index *from, uint32_t worker)
{
    uint64_t before = index->pairs_of[worker];
    drop_but(index, from, worker);
    block_change change = index->pairs_of[worker] == before ? BLOCK_SAME : BLOCK_CHANGED;
    for (uint64_t i = 0; i < from->num_slots; i++) {
        const slot *s = &from->slots[i];
        if (s->count == 0 || !slot_has(from, s, worker))
            continue;
        block_change added = block_index_add(index, s->name, worker);
        if (added == BLOCK_NO_MEMORY)
            return added;
        change = added == BLOCK_CHANGED ? added : change;
    }
    return change;
}

/* ---- the walk -------------------------------------------------------------- */

static void set_bits(const block_index *index, const slot *s, uint64_t *bits)
{
    if (s->count == MANY) {
        memcpy(bits, bits_of(index, set_of(s)), index->words * sizeof *bits);
        return;
    }
    memset(bits, 0, index->words * sizeof *bits);
    for (uint32_t i = 0; i < s->count; i++)
        bits[s->workers[i] / 64] |= UINT64_C(1) << (s->workers[i] % 64);
}

/* Blocks from `from` on, of one worker alone. */
static uint32_t follow(const block_index *index, const uint64_t *names, uint32_t from, uint32_t n,
                       uint32_t stride, uint32_t worker)
{
    uint32_t i = from;
    while (i < n) {
        if (i + LOOK_AHEAD < n)
            block_index_fetch(index, names[(size_t)(i + LOOK_AHEAD) * stride]);
        const slot *s = find(index, names[(size_t)i * stride]);
        if (s->count == 0 || !slot_has(index, s, worker))
            break;
        i++;
    }
    return i;
}

#define FOR_EACH_BIT(bits, worker, body)                                                           \
    for (uint64_t left_ = (bits); left_ != 0; left_ &= left_ - 1) {                                \
        uint32_t worker = (uint32_t)__builtin_ctzll(left_);                                        \
        body;                                                                                      \
    }

static uint32_t num_bits(const uint64_t *bits, uint32_t words)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < words; w++)
        n += (uint32_t)__builtin_popcountll(bits[w]);
    return n;
}

void block_index_leading(const block_index *index, const uint64_t *names, uint32_t n,
                         uint32_t stride, uint32_t *leading)
{
    memset(leading, 0, index->max_workers * sizeof *leading);
    if (n == 0)
        return;
    uint64_t *alive = index->alive;
    set_bits(index, find(index, names[0]), alive);
    uint32_t i = 1;
    for (; i < n && num_bits(alive, index->words) > FEW_ALIVE; i++) {
        if (i + LOOK_AHEAD < n)
            block_index_fetch(index, names[(size_t)(i + LOOK_AHEAD) * stride]);
        set_bits(index, find(index, names[(size_t)i * stride]), index->have);
        for (uint32_t w = 0; w < index->words; w++) {
            uint64_t lost = alive[w] & ~index->have[w];
            alive[w] &= index->have[w];
            FOR_EACH_BIT(lost, bit, leading[w * 64 + bit] = i);
        }
    }
    for (uint32_t w = 0; w < index->words; w++)
        FOR_EACH_BIT(alive[w], bit,
                     leading[w * 64 + bit] = follow(index, names, i, n, stride, w * 64 + bit));
}

/* One block in several tiers. alive: workers with all blocks so far, in any tier; straight: in GPU
 * memory. gpu of a hit is set when its worker leaves: to all its blocks, before host and disk are
 * taken off. */
static void step_tiers(const block_index *const tiers[3], uint64_t name, uint32_t i,
                       router_hit *hits)
{
    const block_index *gpu = tiers[0];
    uint64_t *alive = gpu->alive;
    uint64_t *straight = gpu->next;
    set_bits(gpu, find(gpu, name), gpu->have);
    for (uint32_t t = 1; t < 3; t++)
        if (tiers[t] != NULL)
            set_bits(tiers[t], find(tiers[t], name), tiers[t]->have);
    for (uint32_t w = 0; w < gpu->words; w++) {
        uint64_t host = tiers[1] == NULL ? 0 : tiers[1]->have[w];
        uint64_t disk = tiers[2] == NULL ? 0 : tiers[2]->have[w];
        uint64_t not_gpu = alive[w] & ~gpu->have[w];
        FOR_EACH_BIT(not_gpu & host, bit, hits[w * 64 + bit].host++);
        FOR_EACH_BIT(not_gpu & ~host & disk, bit, hits[w * 64 + bit].disk++);
        FOR_EACH_BIT(not_gpu & ~host & ~disk, bit, hits[w * 64 + bit].gpu = i);
        FOR_EACH_BIT(straight[w] & ~gpu->have[w], bit, hits[w * 64 + bit].leading = i);
        alive[w] &= gpu->have[w] | host | disk;
        straight[w] &= gpu->have[w];
    }
}

static void walk_tiers(const block_index *const tiers[3], const uint64_t *names, uint32_t n,
                       uint32_t stride, router_hit *hits)
{
    const block_index *gpu = tiers[0];
    for (uint32_t w = 0; w < gpu->max_workers; w++)
        gpu->alive[w / 64] |= UINT64_C(1) << (w % 64);
    memcpy(gpu->next, gpu->alive, gpu->words * sizeof *gpu->next);
    for (uint32_t i = 0; i < n && num_bits(gpu->alive, gpu->words) > 0; i++)
        step_tiers(tiers, names[(size_t)i * stride], i, hits);
    for (uint32_t w = 0; w < gpu->words; w++) {
        FOR_EACH_BIT(gpu->alive[w], bit, hits[w * 64 + bit].gpu = n);
        FOR_EACH_BIT(gpu->next[w], bit, hits[w * 64 + bit].leading = n);
    }
    for (uint32_t w = 0; w < gpu->max_workers; w++)
        hits[w].gpu -= hits[w].host + hits[w].disk;
}

void block_index_walk(const block_index *const tiers[3], const uint64_t *names, uint32_t n,
                      uint32_t stride, router_hit *hits)
{
    const block_index *gpu = tiers[0];
    memset(hits, 0, gpu->max_workers * sizeof *hits);
    bool has_lower = (tiers[1] != NULL && tiers[1]->num_pairs > 0) ||
                     (tiers[2] != NULL && tiers[2]->num_pairs > 0);
    if (has_lower) {
        memset(gpu->alive, 0, gpu->words * sizeof *gpu->alive);
        walk_tiers(tiers, names, n, stride, hits);
        return;
    }
    block_index_leading(gpu, names, n, stride, gpu->leading);
    for (uint32_t w = 0; w < gpu->max_workers; w++)
        hits[w].gpu = hits[w].leading = gpu->leading[w];
}

/* ---- creation -------------------------------------------------------------- */

block_index *block_index_open(uint32_t max_workers)
{
    block_index *index = calloc(1, sizeof *index);
    if (index == NULL)
        return NULL;
    index->max_workers = max_workers;
    index->words = (max_workers + 63) / 64;
    index->num_slots = FIRST_SLOTS;
    index->free_set = QR_NIL;
    index->slots = calloc(index->num_slots, sizeof *index->slots);
    index->pairs_of = calloc(max_workers, sizeof *index->pairs_of);
    index->alive = calloc(index->words, sizeof *index->alive);
    index->have = calloc(index->words, sizeof *index->have);
    index->next = calloc(index->words, sizeof *index->next);
    index->leading = calloc(max_workers, sizeof *index->leading);
    if (index->slots == NULL || index->pairs_of == NULL || index->alive == NULL ||
        index->have == NULL || index->next == NULL || index->leading == NULL) {
        block_index_close(index);
        return NULL;
    }
    return index;
}

void block_index_close(block_index *index)
{
    if (index == NULL)
        return;
    free(index->slots);
    free(index->sets);
    free(index->pairs_of);
    free(index->alive);
    free(index->have);
    free(index->next);
    free(index->leading);
    free(index);
}

uint64_t block_index_pairs(const block_index *index)
{
    return index->num_pairs;
}

uint64_t block_index_pairs_of(const block_index *index, uint32_t worker)
{
    return index->pairs_of[worker];
}

uint64_t block_index_bytes(const block_index *index)
{
    return index->num_slots * sizeof *index->slots +
           (uint64_t)index->sets_room * (index->words + 1) * sizeof *index->sets;
}

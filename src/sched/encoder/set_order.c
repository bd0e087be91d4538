#include "sched/encoder/set_order.h"

#include "base/assert.h"

/* CPython's own numbers (Objects/setobject.c). */
enum { MIN_SLOTS = 8, LINEAR_PROBES = 9, PERTURB_SHIFT = 5, LARGE_SET = 50000 };

#define LEFT (QR_NIL - 1) /* where a number was */

static uint32_t set_slots_after(uint32_t used)
{
    uint64_t least = (uint64_t)used * (used > LARGE_SET ? 2 : 4);
    uint64_t slots = MIN_SLOTS;
    while (slots <= least)
        slots *= 2;
    qr_assert(slots <= (uint64_t)UINT32_MAX / 2 + 1);
    return (uint32_t)slots;
}

/* The table of a set that grew to `numbers`: it grows at the first `used` that asks for it. */
static uint32_t set_slots_for(uint32_t numbers)
{
    uint32_t slots = MIN_SLOTS;
    for (;;) {
        uint32_t used = (uint32_t)(((uint64_t)(slots - 1) * 3 + 4) / 5);
        if (used > numbers)
            return slots;
        slots = set_slots_after(used);
    }
}

/* Where numbers leave, the table may be full of marks at any number of numbers. */
static uint32_t set_slots_with_marks(uint32_t numbers)
{
    uint32_t most = set_slots_for(numbers);
    uint32_t small = set_slots_after(numbers < LARGE_SET ? numbers : LARGE_SET);
    uint32_t large = set_slots_after(numbers);
    most = small > most ? small : most;
    return large > most ? large : most;
}

void qr_set_order_carve(qr_set_order *set, qr_arena *arena, uint32_t max_numbers, bool may_leave)
{
    set->max_slots = may_leave ? set_slots_with_marks(max_numbers) : set_slots_for(max_numbers);
    set->table = qr_arena_take(arena, set->max_slots, sizeof *set->table);
    set->other = qr_arena_take(arena, set->max_slots, sizeof *set->other);
}

static void set_clear(qr_set_order *set, uint32_t slots)
{
    set->mask = slots - 1;
    memset(set->table, 0xff, (size_t)slots * sizeof *set->table);
}

void qr_set_order_begin(qr_set_order *set)
{
    set->used = 0;
    set->fill = 0;
    set_clear(set, MIN_SLOTS);
}

/* The slot that has the number, or the first empty one on the way to it; and *mark, the last place
 * before it where a number was. */
static uint32_t set_find(const uint32_t *table, uint32_t mask, uint32_t number, uint32_t *mark)
{
    uint32_t perturb = number;
    uint32_t slot = number & mask;
    for (;;) {
        uint32_t last = slot + LINEAR_PROBES <= mask ? slot + LINEAR_PROBES : slot;
        for (uint32_t i = slot; i <= last; i++) {
            if (table[i] == QR_NIL || table[i] == number)
                return i;
            if (table[i] == LEFT)
                *mark = i;
        }
        perturb >>= PERTURB_SHIFT;
        slot = (slot * 5 + 1 + perturb) & mask;
    }
}

/* True where it took a place that was empty, and not one where a number was. */
static bool set_put(const qr_set_order *set, uint32_t number)
{
    uint32_t mark = QR_NIL;
    uint32_t slot = set_find(set->table, set->mask, number, &mark);
    qr_assert_internal(set->table[slot] != number);
    set->table[mark != QR_NIL ? mark : slot] = number;
    return mark == QR_NIL;
}

void qr_set_order_add(qr_set_order *set, uint32_t number)
{
    set->used++;
    if (!set_put(set, number))
        return;
    set->fill++;
    if ((uint64_t)set->fill * 5 < (uint64_t)set->mask * 3)
        return;
    uint32_t old_mask = set->mask;
    uint32_t slots = set_slots_after(set->used);
    qr_assert(slots <= set->max_slots);
    memcpy(set->other, set->table, ((size_t)old_mask + 1) * sizeof *set->table);
    set_clear(set, slots);
    set->fill = set->used;
    for (uint32_t i = 0; i <= old_mask; i++)
        if (set->other[i] < LEFT)
            (void)set_put(set, set->other[i]);
}

void qr_set_order_discard(qr_set_order *set, uint32_t number)
{
    for (uint32_t i = 0; i <= set->mask; i++) {
        if (set->table[i] != number)
            continue;
        set->table[i] = LEFT;
        set->used--;
        return;
    }
}

void qr_set_order_resume(qr_set_order *set, const qr_kept_set *kept, uint32_t *table)
{
    set->table = table;
    if (kept->used == 0) { /* an empty one is forgotten, with its marks */
        qr_set_order_begin(set);
        return;
    }
    set->mask = kept->mask;
    set->used = kept->used;
    set->fill = kept->fill;
}

qr_kept_set qr_set_order_keep(const qr_set_order *set)
{
    return (qr_kept_set){.mask = set->mask, .used = set->used, .fill = set->fill};
}

bool qr_set_order_is_valid(const qr_kept_set *kept, const uint32_t *table, uint32_t max_slots,
                           uint32_t n)
{
    uint64_t slots = (uint64_t)kept->mask + 1;
    uint32_t used = 0;
    uint32_t fill = 0;
    if (kept->used == 0)
        return true;
    if (slots < MIN_SLOTS || slots > max_slots || (slots & kept->mask) != 0 ||
        (uint64_t)kept->fill * 5 >= (uint64_t)kept->mask * 3)
        return false;
    for (uint32_t i = 0; i < slots; i++) {
        used += table[i] < LEFT;
        fill += table[i] <= LEFT;
        if (table[i] < LEFT && table[i] >= n)
            return false;
    }
    if (used != kept->used || fill != kept->fill) /* so that searches end */
        return false;
    uint32_t mark;
    for (uint32_t i = 0; i < slots; i++)
        if (table[i] < LEFT && set_find(table, kept->mask, table[i], &mark) != i)
            return false;
    return true;
}

const uint32_t *qr_set_order_list(qr_set_order *set)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i <= set->mask; i++)
        if (set->table[i] < LEFT)
            set->other[n++] = set->table[i];
    qr_assert_internal(n == set->used);
    return set->other;
}

/* sched/encoder/set_order.h - the order in which CPython 3.11 walks a set of small integers.
 *
 * vLLM frees the encoder inputs of a request by walking a set of their numbers, and the order in
 * which items become free decides which of them is evicted first. The set is a hash table, a number
 * is its own hash, and walking it is walking the table:
 *
 *      {1, 8}      [ 8 | 1 | . | . | . | . | . | . ]      8 & 7 = 0, so 8 comes before 1
 *                    0   1   2   3   4   5   6   7
 *
 * Colliding numbers go to one of the 9 slots behind, if all of those are inside the table, and else
 * jump. When 3 of 5 slots are used the numbers move, in their order, to a table of more than four
 * times as many slots as there are numbers.
 *
 * A number that leaves the set leaves a mark. A number that is added later takes the last mark that
 * its search passes before it comes to an empty slot. Marks count as numbers when the table grows,
 * and end then.
 *
 *      used <= fill;  fill x 5 < mask x 3;  all numbers are different
 */
#ifndef QR_SCHED_ENCODER_SET_ORDER_H
#define QR_SCHED_ENCODER_SET_ORDER_H

#include "base/arena.h"

typedef struct qr_set_order {
    uint32_t *table; /* QR_NIL: nothing there */
    uint32_t *other; /* of the same size: to grow with, and to list in */
    uint32_t mask;
    uint32_t used;
    uint32_t fill; /* numbers, and marks of those that left */
    uint32_t max_slots;
} qr_set_order;

/* What is kept of a set between two uses; the table stands elsewhere. 0: an empty set. */
typedef struct qr_kept_set {
    uint32_t mask;
    uint32_t used;
    uint32_t fill;
} qr_kept_set;

/* For at most max_numbers numbers. may_leave: discard will be called. */
void qr_set_order_carve(qr_set_order *set, qr_arena *arena, uint32_t max_numbers, bool may_leave);
/* An empty set. */
void qr_set_order_begin(qr_set_order *set);
/* Adds a number that is not there. */
void qr_set_order_add(qr_set_order *set, uint32_t number);
/* Takes a number out, if it is there. */
void qr_set_order_discard(qr_set_order *set, uint32_t number);
/* Goes on with a set that was kept, and keeps it again. */
void qr_set_order_resume(qr_set_order *set, const qr_kept_set *kept, uint32_t *table);
qr_kept_set qr_set_order_keep(const qr_set_order *set);
/* Whether a set that was kept can have come about: of numbers below n, each where a search from its
 * own slot finds it. */
bool qr_set_order_is_valid(const qr_kept_set *kept, const uint32_t *table, uint32_t max_slots,
                           uint32_t n);
/* The numbers in the set's order; valid until the next begin or add. */
const uint32_t *qr_set_order_list(qr_set_order *set);

#endif

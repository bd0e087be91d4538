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
 *      used x 5 < mask x 3;  all numbers are different
 */
#ifndef QR_SCHED_ENCODER_SET_ORDER_H
#define QR_SCHED_ENCODER_SET_ORDER_H

#include "base/arena.h"

typedef struct qr_set_order {
    uint32_t *table; /* QR_NIL: nothing there */
    uint32_t *other; /* of the same size: to grow into */
    uint32_t mask;
    uint32_t used;
    uint32_t max_slots;
} qr_set_order;

/* For at most max_numbers numbers. */
void qr_set_order_carve(qr_set_order *set, qr_arena *arena, uint32_t max_numbers);
/* An empty set. */
void qr_set_order_begin(qr_set_order *set);
/* Adds a number that is not there. */
void qr_set_order_add(qr_set_order *set, uint32_t number);
/* The numbers in the set's order; valid until the next begin or add. */
const uint32_t *qr_set_order_list(qr_set_order *set);

#endif

/* cli/curve/stack_distance.h - how many elements of a stack stand above a given one.
 *
 *      position   0 1 2 3 4 5 6 7 8 9           a new element takes the next position
 *      bit        1 0 0 1 1 0 1 1 0 1           one that moves to the top leaves a hole
 *                       ^
 *      above(3) = 4: so 5 elements down to it, and a pool of 5 blocks or more still holds it
 *
 * A bit for each position, and a Fenwick tree over lines of 512 bits: pushing, removing and asking
 * cost O(log n), the tree is a 128th of the bits' size and stays in the processor's cache. When the
 * positions are used up the caller gives all elements new ones without holes (stack_compact).
 *
 *      num_elements = bits that are set <= next <= num_positions
 */
#ifndef QUIRE_CLI_CURVE_STACK_DISTANCE_H
#define QUIRE_CLI_CURVE_STACK_DISTANCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct stack_distance {
    uint64_t *words;
    uint32_t *tree; /* sums of lines, from 1 on */
    uint32_t num_lines;
    uint32_t num_positions;
    uint32_t next;
    uint32_t num_elements;
} stack_distance;

#define STACK_MAX_POSITIONS UINT32_C(0xfffffe00)

/* All zero is an empty stack without positions. */
void stack_free(stack_distance *stack);

/* Whether `more` elements can be pushed as it is. */
bool stack_has_room(const stack_distance *stack, uint32_t more);
/* Makes room for `more`. Element at position p is then at stack_below(p) of the time before: call
 * it for all that are kept, then this. False: no memory, or too many; nothing has changed. */
bool stack_compact(stack_distance *stack, uint32_t more);

uint32_t stack_push(stack_distance *stack); /* its position; there must be room */
void stack_remove(stack_distance *stack, uint32_t position);
uint32_t stack_below(const stack_distance *stack, uint32_t position);
/* Elements at higher positions. */
uint32_t stack_above(const stack_distance *stack, uint32_t position);

#endif

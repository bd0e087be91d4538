#include "stack_distance.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_BITS = 64, LINE_WORDS = 8, LINE_BITS = WORD_BITS * LINE_WORDS };

void stack_free(stack_distance *stack)
{
    free(stack->words);
    free(stack->tree);
    *stack = (stack_distance){0};
}

bool stack_has_room(const stack_distance *stack, uint32_t more)
{
    return more <= stack->num_positions - stack->next;
}

static void add_to_line(stack_distance *stack, uint32_t line, uint32_t change)
{
    for (uint32_t i = line + 1; i <= stack->num_lines; i += i & -i)
        stack->tree[i] += change; /* wraps around for -1 */
}

uint32_t stack_push(stack_distance *stack)
{
    uint32_t position = stack->next++;
    stack->words[position / WORD_BITS] |= UINT64_C(1) << position % WORD_BITS;
    add_to_line(stack, position / LINE_BITS, 1);
    stack->num_elements++;
    return position;
}

void stack_remove(stack_distance *stack, uint32_t position)
{
    stack->words[position / WORD_BITS] &= ~(UINT64_C(1) << position % WORD_BITS);
    add_to_line(stack, position / LINE_BITS, UINT32_MAX);
    stack->num_elements--;
}

uint32_t stack_below(const stack_distance *stack, uint32_t position)
{
    uint32_t count = 0;
    uint32_t word = position / WORD_BITS;
    for (uint32_t i = position / LINE_BITS; i > 0; i -= i & -i)
        count += stack->tree[i];
    for (uint32_t i = word / LINE_WORDS * LINE_WORDS; i < word; i++)
        count += (uint32_t)__builtin_popcountll(stack->words[i]);
    uint64_t lower = (UINT64_C(1) << position % WORD_BITS) - 1;
    return count + (uint32_t)__builtin_popcountll(stack->words[word] & lower);
}

uint32_t stack_above(const stack_distance *stack, uint32_t position)
{
    return stack->num_elements - stack_below(stack, position) - 1;
}

/* As many positions again as there are elements, so that the next time is far away. */
static uint64_t positions_for(const stack_distance *stack, uint32_t more)
{
    enum { AT_LEAST = 1 << 16 };
    uint64_t wanted = 2 * ((uint64_t)stack->num_elements + more);
    if (wanted < AT_LEAST)
        wanted = AT_LEAST;
    if (wanted > STACK_MAX_POSITIONS)
        wanted = STACK_MAX_POSITIONS;
    return (wanted + LINE_BITS - 1) / LINE_BITS * LINE_BITS;
}

bool stack_compact(stack_distance *stack, uint32_t more)
{
    uint64_t positions = positions_for(stack, more);
    if ((uint64_t)stack->num_elements + more > positions)
        return false;
    uint32_t lines = (uint32_t)(positions / LINE_BITS);
    uint64_t *words = calloc((size_t)lines * LINE_WORDS, sizeof *words);
    uint32_t *tree = calloc((size_t)lines + 1, sizeof *tree);
    if (words == NULL || tree == NULL) {
        free(words);
        free(tree);
        return false;
    }
    uint32_t full = stack->num_elements / WORD_BITS;
    memset(words, 0xff, full * sizeof *words);
    if (stack->num_elements % WORD_BITS > 0)
        words[full] = (UINT64_C(1) << stack->num_elements % WORD_BITS) - 1;
    free(stack->words);
    free(stack->tree);
    stack->words = words;
    stack->tree = tree;
    stack->num_lines = lines;
    stack->num_positions = (uint32_t)positions;
    stack->next = stack->num_elements;
    for (uint32_t line = 0; line * LINE_BITS < stack->num_elements; line++) {
        uint32_t left = stack->num_elements - line * LINE_BITS;
        add_to_line(stack, line, left < LINE_BITS ? left : LINE_BITS);
    }
    return true;
}

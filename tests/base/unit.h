/* base/unit.h - what the unit tests share: cmocka with the headers that it asks for, and random
 * numbers that repeat.
 *
 *      program [SEED]      the random tests print their seed; given back, it repeats the run
 */
#ifndef BASE_UNIT_H
#define BASE_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many elements an array has. */
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* splitmix64: every state is good, 0 too. */
static inline uint64_t unit_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number below n. */
static inline uint32_t unit_random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((unit_random(state) >> 32) * n >> 32);
}

/* The first argument, or the fallback; printed either way. */
static inline uint64_t unit_seed(int argc, char **argv, uint64_t fallback)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : fallback;
    printf("seed %llu\n", (unsigned long long)seed);
    return seed;
}

#endif

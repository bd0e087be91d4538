/* cli/output/distribution.h - many numbers, and then their mean and percentiles.
 *
 *      the first DISTRIBUTION_EXACT numbers are kept: percentiles are exact
 *      beyond that      bins of 1/512 of a power of two: within 0.2 %, and memory does not grow
 */
#ifndef QUIRE_CLI_OUTPUT_DISTRIBUTION_H
#define QUIRE_CLI_OUTPUT_DISTRIBUTION_H

#include <stdint.h>

enum { DISTRIBUTION_EXACT = 1 << 20 };

typedef struct distribution {
    uint64_t count;
    double sum;
    double max;
    double *values;
    uint32_t capacity;
    uint64_t *bins; /* NULL as long as values has all */
} distribution;

/* Negative numbers count as 0. False: no memory. */
int distribution_add(distribution *d, double value);
/* Adds all numbers of another one. False: no memory. */
int distribution_take(distribution *d, const distribution *from);
double distribution_mean(const distribution *d);
/* The smallest number that at least `share` (0 to 1) of all are not above; 0 when there are none.
 * Sorts what is kept. */
double distribution_percentile(distribution *d, double share);
void distribution_free(distribution *d);

/* For qsort: doubles from the smallest on. */
int compare_doubles(const void *a, const void *b);

#endif

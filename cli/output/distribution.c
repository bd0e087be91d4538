#include "distribution.h"

#include "output/grown.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BINS_PER_OCTAVE = 512, MIN_EXPONENT = -40, NUM_OCTAVES = 80 };
enum { NUM_BINS = BINS_PER_OCTAVE * NUM_OCTAVES };

static size_t bin_of(double value)
{
    int exponent;
    double mantissa = frexp(value, &exponent); /* 0.5 to 1 */
    int octave = exponent - MIN_EXPONENT;
    if (value <= 0 || octave < 0)
        return 0;
    if (octave >= NUM_OCTAVES)
        return NUM_BINS - 1;
    return (size_t)octave * BINS_PER_OCTAVE + (size_t)((mantissa - 0.5) * 2 * BINS_PER_OCTAVE);
}

static double middle_of(size_t bin)
{
    if (bin == 0)
        return 0;
    double mantissa = 0.5 + ((double)(bin % BINS_PER_OCTAVE) + 0.5) / (2 * BINS_PER_OCTAVE);
    return ldexp(mantissa, (int)(bin / BINS_PER_OCTAVE) + MIN_EXPONENT);
}

static int start_bins(distribution *d)
{
    d->bins = calloc(NUM_BINS, sizeof *d->bins);
    if (d->bins == NULL)
        return 0;
    for (uint64_t i = 0; i < d->count; i++)
        d->bins[bin_of(d->values[i])]++;
    free(d->values);
    d->values = NULL;
    return 1;
}

int distribution_add(distribution *d, double value)
{
    double v = value > 0 ? value : 0;
    if (d->bins == NULL && d->count == DISTRIBUTION_EXACT && !start_bins(d))
        return 0;
    if (d->bins != NULL)
        d->bins[bin_of(v)]++;
    else if (grow(&d->values, (uint32_t)d->count, &d->capacity, UINT32_MAX, sizeof v))
        d->values[d->count] = v;
    else
        return 0;
    d->count++;
    d->sum += v;
    d->max = v > d->max ? v : d->max;
    return 1;
}

int distribution_take(distribution *d, const distribution *from)
{
    double sum = d->sum + from->sum; /* of both as they are: adding one by one would round more */
    for (uint64_t i = 0; from->bins == NULL && i < from->count; i++)
        if (!distribution_add(d, from->values[i]))
            return 0;
    if (from->bins != NULL) {
        if (d->bins == NULL && !start_bins(d))
            return 0;
        for (size_t i = 0; i < NUM_BINS; i++)
            d->bins[i] += from->bins[i];
        d->count += from->count;
        d->max = from->max > d->max ? from->max : d->max;
    }
    d->sum = sum;
    return 1;
}

double distribution_mean(const distribution *d)
{
    return d->count == 0 ? 0 : d->sum / (double)d->count;
}

int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double distribution_percentile(distribution *d, double share)
{
    if (d->count == 0)
        return 0;
    uint64_t rank = (uint64_t)ceil(share * (double)d->count); /* from 1 on */
    rank = rank < 1 ? 1 : rank > d->count ? d->count : rank;
    if (d->bins == NULL) {
        qsort(d->values, d->count, sizeof *d->values, compare_doubles);
        return d->values[rank - 1];
    }
    size_t bin = 0;
    for (uint64_t seen = d->bins[0]; seen < rank; seen += d->bins[bin])
        bin++;
    return middle_of(bin);
}

void distribution_free(distribution *d)
{
    free(d->values);
    free(d->bins);
    memset(d, 0, sizeof *d);
}

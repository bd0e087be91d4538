/* cli/gpubench/results.h - what was measured on a GPU: medians, spread, limit, goal. */
#ifndef QUIRE_CLI_GPUBENCH_RESULTS_H
#define QUIRE_CLI_GPUBENCH_RESULTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { GPU_MOST_ROUNDS = 101, GPU_MOST_RESULTS = 256 };

/* Rounds of one case. */
typedef struct gpu_rounds {
    double values[GPU_MOST_ROUNDS];
    uint32_t count;
} gpu_rounds;

typedef struct gpu_result {
    char name[56];
    const char *unit; /* "GB/s", "us", "%" */
    uint64_t piece;   /* bytes; 0: does not apply */
    double median;
    double low;
    double high;
    uint32_t rounds;
    double limit; /* in the same unit; 0: none */
    double goal;  /* percent of the limit at least, or without a limit the value at most; 0: none */
    bool is_met;
    bool is_first; /* of a section */
    const char *section;
} gpu_result;

typedef struct gpu_results {
    gpu_result all[GPU_MOST_RESULTS];
    uint32_t count;
    const char *section; /* of what is added next */
} gpu_results;

double gpu_rounds_median(const gpu_rounds *rounds);

/* Adds a case and returns its median. */
double gpu_results_add(gpu_results *results, const char *name, const char *unit, uint64_t piece,
                       const gpu_rounds *rounds, double limit, double goal);
/* Whether all goals are met. */
bool gpu_results_are_met(const gpu_results *results);
void gpu_results_print(const gpu_results *results, FILE *out);
void gpu_results_print_json(const gpu_results *results, FILE *out);

#endif

/* cli/trace/fuzz_samples.h - a small trace of each format, plain and packed, and words to put in.
 * */
#ifndef TESTS_CLI_FUZZ_SAMPLES_H
#define TESTS_CLI_FUZZ_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#include "trace/trace.h"

enum {
    FUZZ_NUM_SAMPLES = 20,
    FUZZ_NUM_WORDS = 48,
    FUZZ_NUM_NUMBERS = 16,
    FUZZ_SAMPLE_BYTES = 2048
};

typedef struct fuzz_sample {
    trace_format format;
    size_t num_bytes;
    uint8_t *bytes;
} fuzz_sample;

extern const char *const fuzz_words[FUZZ_NUM_WORDS];
extern const char *const fuzz_numbers[FUZZ_NUM_NUMBERS];

void fuzz_make_samples(fuzz_sample samples[FUZZ_NUM_SAMPLES]);
void fuzz_free_samples(fuzz_sample samples[FUZZ_NUM_SAMPLES]);

#endif

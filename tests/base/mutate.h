/* base/mutate.h - changes samples at random, the same way for the same seed, and runs a fuzz target
 * over them, for when there is no libFuzzer.
 *
 *      sample ──► a few changes: bits, bytes, parts left out or repeated, words put in ──► target
 *
 *      program [--runs N] [--seed N]
 */
#ifndef BASE_MUTATE_H
#define BASE_MUTATE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MUTATE_ROOM = 65536 };

/* What libFuzzer calls, too. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes);

#define MUTATE_EXPECT(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

typedef struct mutate_bytes {
    const void *bytes;
    size_t n;
} mutate_bytes;

typedef struct mutate_text {
    uint8_t bytes[MUTATE_ROOM];
    size_t n;
} mutate_text;

typedef struct mutate_plan {
    uint64_t runs; /* unless --runs says otherwise */
    const mutate_bytes *samples;
    size_t num_samples;
    const mutate_bytes *words; /* put into samples: values at which something could go wrong */
    size_t num_words;
    /* Besides these changes, one of the caller's; and at the end, what every input must have, as a
     * checksum. NULL: none. */
    void (*change)(mutate_text *text, size_t at);
    void (*seal)(mutate_text *text, size_t sample);
} mutate_plan;

/* Returns the exit status. */
int mutate_main(int argc, char **argv, const mutate_plan *plan);
/* The same, of samples and words that are C strings. */
int mutate_strings(int argc, char **argv, uint64_t runs, const char *const *samples,
                   size_t num_samples, const char *const *words, size_t num_words);
/* Runs the target over bytes whose end is the end of memory. */
void mutate_run(const void *bytes, size_t n);

/* For changes of the caller's. */
size_t mutate_below(size_t n);
void mutate_insert(mutate_text *text, size_t at, const void *bytes, size_t n);
void mutate_erase(mutate_text *text, size_t at, size_t n);

#endif

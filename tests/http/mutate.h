/* http/mutate.h - changes texts at random, the same way for the same seed, for when there is no
 * libFuzzer.
 *
 *      program [--runs N] [--seed N]
 */
#ifndef HTTP_MUTATE_H
#define HTTP_MUTATE_H

#include <stddef.h>
#include <stdint.h>

enum { MUTATE_ROOM = 65536 };

/* What libFuzzer calls, too. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes);

/* Runs it over changed samples; words are put into them. Returns the exit status. */
int mutate_main(int argc, char **argv, uint64_t runs, const char *const *samples,
                size_t num_samples, const char *const *words, size_t num_words);

#define MUTATE_EXPECT(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif

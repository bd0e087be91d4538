/* cli/options/nearest.h - the known name that a mistyped word was probably meant to be.
 *
 *      nearest n = nearest_to("blocksize");
 *      nearest_offer(&n, "block-size");
 *      nearest_offer(&n, "model");
 *      nearest_name(&n)                        "block-size"; NULL where nothing is near
 */
#ifndef QUIRE_CLI_OPTIONS_NEAREST_H
#define QUIRE_CLI_OPTIONS_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct nearest {
    const char *word;
    const char *name;
    size_t distance;
} nearest;

nearest nearest_to(const char *word);
void nearest_offer(nearest *n, const char *name);
const char *nearest_name(const nearest *n);
/* Letters and digits alone, small: "RTX 4090", "rtx-4090" and "rtx4090" are one name. */
void squeeze_name(const char *name, char *out, size_t capacity);
/* Whether a word is one of the names, NULL at their end. */
bool is_one_of(const char *word, const char *const *names);

#endif

/* nearest.c - distance between two words: letters to insert, drop, change or swap.
 *
 *          b l o c k s          each place: the cheapest way to make the one beginning from the
 *        0 1 2 3 4 5 6          other; only the two rows before are needed
 *      b 1 0 1 2 3 4 5
 *      l 2 1 0 1 2 3 4
 */
#include "nearest.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

enum { MAX_WORD = 63 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t word_distance(const char *a, const char *b)
{
    size_t length_a = strlen(a);
    size_t length_b = strlen(b);
    size_t rows[3][MAX_WORD + 1];
    if (length_a > MAX_WORD || length_b > MAX_WORD)
        return SIZE_MAX;
    for (size_t j = 0; j <= length_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i - 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            row[j] = least(above[j], row[j - 1]) + 1;
            row[j] = least(row[j], above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[length_a % 3][length_b];
}

nearest nearest_to(const char *word)
{
    return (nearest){.word = word, .name = NULL, .distance = SIZE_MAX};
}

void nearest_offer(nearest *n, const char *name)
{
    size_t distance = word_distance(n->word, name);
    /* A beginning was probably meant to be the whole. */
    if (strlen(n->word) >= 3 && strncmp(name, n->word, strlen(n->word)) == 0)
        distance = 1;
    if (distance < n->distance) {
        n->distance = distance;
        n->name = name;
    }
}

const char *nearest_name(const nearest *n)
{
    size_t limit = strlen(n->word) / 3 + 1;
    return n->distance <= limit ? n->name : NULL;
}

void squeeze_name(const char *name, char *out, size_t capacity)
{
    size_t used = 0;
    for (; *name && used + 1 < capacity; name++)
        if (isalnum((unsigned char)*name))
            out[used++] = (char)tolower((unsigned char)*name);
    out[used] = '\0';
}

bool is_one_of(const char *word, const char *const *names)
{
    while (*names != NULL && strcmp(word, *names) != 0)
        names++;
    return *names != NULL;
}

/* cli/size/search.h - the fewest workers that are enough, with few tries.
 *
 *      1 no   2 no   4 no   8 yes          doubled, until a number is enough
 *                      6 yes  5 no         between the last "no" and the first "yes": halved
 *                    4 no         7 yes    the neighbours of the answer 6: one below 5, one above
 *
 * More workers are usually better, and then the answer is exact. They need not be: another number
 * of workers changes which requests meet in a cache. If the neighbour below is enough, the search
 * goes on below it; tries that contradict "more is better" are said (search_is_monotone).
 */
#ifndef QUIRE_CLI_SIZE_SEARCH_H
#define QUIRE_CLI_SIZE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { SEARCH_MAX_TRIES = 64 };

typedef struct search_try {
    uint32_t workers;
    bool is_enough;
} search_try;

/* All zero but most: nothing is tried yet. */
typedef struct search {
    uint32_t most; /* never more workers than these; at least 1 */
    uint32_t num_tries;
    search_try tries[SEARCH_MAX_TRIES]; /* in their order */
} search;

/* The number of workers to try next; 0: the search is over. */
uint32_t search_next(const search *s);
void search_add(search *s, uint32_t workers, bool is_enough);
/* The fewest workers that were enough; 0: none were. */
uint32_t search_best(const search *s);
/* If more workers are better, at least so many are needed. */
uint32_t search_least(const search *s);
/* Whether no try was enough with fewer workers than one that was not. */
bool search_is_monotone(const search *s);

#endif

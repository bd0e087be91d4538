/* cli/fleet/prefixes.h - prefixes that many prompts share.
 *
 *      prompt    b1 b2 b3 b4 b5 b6 b7 b8 b9      blocks
 *      counted   |1  |2    |4          |8        prefixes of 1, 2, 4, 8, ... blocks
 *
 * The name of a prefix's last block stands for the whole prefix. A shared prefix is found up to its
 * longest part with such a length, so at least half of it is. Beyond PREFIXES_MOST prefixes, those
 * that were seen least often are forgotten.
 */
#ifndef QUIRE_CLI_FLEET_PREFIXES_H
#define QUIRE_CLI_FLEET_PREFIXES_H

#include <stdbool.h>
#include <stdint.h>

enum { PREFIXES_MOST = 1 << 20, PREFIXES_HOT = 20 };

typedef struct prefix {
    uint64_t name;    /* of its last block */
    uint64_t parent;  /* the name of the prefix of half its length, */
    bool has_parent;  /* if it has more than one block */
    uint32_t blocks;  /* 0: an empty slot */
    uint64_t seen;    /* prompts that begin with it */
    uint64_t request; /* the number of the first of them */
} prefix;

/* All zero: none was seen. */
typedef struct prefixes {
    prefix *slots; /* open addressing, at most three quarters used */
    uint64_t num_slots;
    uint64_t num_used;
} prefixes;

/* Counts the prefixes of a prompt. Returns false if memory is short. */
bool prefixes_note(prefixes *p, uint64_t request, const uint64_t *blocks, uint32_t num_blocks);
/* The hottest first: those that spare most blocks, (seen - 1) * blocks, if each prompt but the
 * first finds them. Of a prefix and a part of it that about as many prompts have (less than twice
 * as many), only the one that spares more is listed. Returns how many, at most PREFIXES_HOT. */
uint32_t prefixes_hot(const prefixes *p, prefix hot[PREFIXES_HOT]);
void prefixes_free(prefixes *p);

#endif

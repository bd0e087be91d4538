/* cli/live/events_index.h - the index that a router would build of a publisher's events, and how it
 * compares with the publisher's own.
 *
 *      from events    index at n0 ── n0+1 ── ... ── M ──┐
 *      from publisher           whole index at M ───────┴── the same blocks?
 */
#ifndef QUIRE_CLI_LIVE_EVENTS_INDEX_H
#define QUIRE_CLI_LIVE_EVENTS_INDEX_H

#include <quire/events.h>

#include <stdbool.h>
#include <stdio.h>

enum { EVENTS_MAX_MEDIA = 16, EVENTS_NAME_BYTES = 16 };

/* What was said of the blocks in one medium. */
typedef struct events_medium {
    char name[EVENTS_NAME_BYTES];
    uint64_t num_stored;
    uint64_t num_removed;
    uint64_t num_unknown; /* of those removed: not there, although the index was whole */
} events_medium;

typedef struct events_index {
    quire_index *index;
    events_medium media[EVENTS_MAX_MEDIA];
    uint32_t num_media;
    bool is_whole; /* it began with all there was, and has missed nothing since */
    bool has_number;
    uint64_t number;  /* of the last batch in it */
    uint32_t workers; /* that were heard of: those below */
} events_index;

int events_index_open(events_index *x);
void events_index_close(events_index *x);
void events_index_forget(events_index *x);
/* Takes in a delivery, whatever kind it is. */
void events_index_add(events_index *x, const quire_delivery *delivery);

/* Blocks by group and medium, as lines, or as one JSON object. */
void events_index_print(FILE *out, const events_index *x, bool as_json);

/* Blocks stored and removed by medium, as lines, or as one JSON array. */
void events_index_print_media(FILE *out, const events_index *x, bool as_json);
/* Blocks that were removed and not there, of all media. */
uint64_t events_index_num_unknown(const events_index *x);

/* Prints the hashes that only one of them has, the first few; returns how many there are. */
uint64_t events_index_compare(FILE *out, const events_index *ours, const events_index *theirs);

#endif

/* cli/live/events_tally.h - what came from a publisher, counted, and whether it came in order.
 *
 *      numbers   5 6 7 | 8 9 . 12 ...      each once, one more than the last; a gap that nothing
 *                 index  live   ^          fills is told, and counted
 */
#ifndef QUIRE_CLI_LIVE_EVENTS_TALLY_H
#define QUIRE_CLI_LIVE_EVENTS_TALLY_H

#include <quire/events.h>

#include <stdbool.h>
#include <stdio.h>

typedef struct events_tally {
    uint64_t num_live; /* batches */
    uint64_t num_replayed;
    uint64_t num_index; /* parts of whole indexes */
    uint64_t num_events;
    uint64_t num_stored; /* events, and their blocks */
    uint64_t num_stored_blocks;
    uint64_t num_removed;
    uint64_t num_removed_blocks;
    uint64_t num_cleared;
    uint64_t num_anew; /* of those, outside whole indexes: the publisher tells all anew */
    uint64_t num_other;
    uint64_t num_bytes;

    uint64_t num_gaps;
    uint64_t num_missed; /* batches */
    uint64_t num_restarts;
    uint64_t num_corrupt;
    uint64_t num_repeated;   /* batches with the number of the one before */
    uint64_t num_disordered; /* with any other but the next */
    uint64_t num_covered;    /* batches that did not come, since a whole index had them */

    bool has_number;
    uint64_t first_number;
    uint64_t last_number;
} events_tally;

void events_tally_add(events_tally *t, const quire_delivery *delivery);
/* Batches, without those of whole indexes. */
uint64_t events_tally_num_batches(const events_tally *t);
/* Something came, and nothing of it was wrong. */
bool events_tally_is_sound(const events_tally *t);
enum { FAULTS_BYTES = 256 };
/* What was wrong: "2 gaps, 1 restart"; empty where nothing was. */
void events_tally_faults(const events_tally *t, char text[FAULTS_BYTES]);

void events_tally_print(FILE *out, const events_tally *t, double seconds);
/* Members of a JSON object, without its braces. */
void events_tally_print_json(FILE *out, const events_tally *t, double seconds);

#endif

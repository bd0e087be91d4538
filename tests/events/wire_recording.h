/* events/wire_recording.h - the batches that vLLM's scheduler published, seed by seed.
 *
 *      quire-events 1 | first seed, runs, limit         record_events.py has the format
 *      seed     batches, events, whether hashes are numbers, FNV-1a over all bytes
 *      batch    length, bytes                           in the first seeds only
 */
#ifndef EVENTS_WIRE_RECORDING_H
#define EVENTS_WIRE_RECORDING_H

#include <quire/hash.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct wire_recording {
    unsigned char *memory;
    const unsigned char *at;
    const unsigned char *end;
    uint32_t first_seed;
    uint32_t runs_left;
    uint32_t limit;
    uint64_t num_bytes; /* of batches that were kept */

    /* the seed under way */
    uint32_t num_batches;
    uint32_t num_events;
    bool is_numbers;
    bool has_bytes;
    uint64_t fingerprint;
} wire_recording;

/* Fails the test where the file is not as it should be. */
void wire_recording_open(wire_recording *r, const char *path);
void wire_recording_close(wire_recording *r);
/* The next seed; false at the end. */
bool wire_recording_next_seed(wire_recording *r);
/* The next batch of a seed that has bytes. */
quire_bytes wire_recording_next_batch(wire_recording *r);

#endif

/* cli/verify/recorded_ends.h - how each request of a recording ends, known before it begins: what
 * it generates, and which token is its last.
 */
#ifndef QUIRE_CLI_VERIFY_RECORDED_ENDS_H
#define QUIRE_CLI_VERIFY_RECORDED_ENDS_H

#include "trace/recording_line.h"

#include <quire/config.h>

typedef struct recorded_end {
    uint64_t first_hash; /* of its hashes, in the list of all */
    uint32_t num_hashes;
    uint32_t num_output_tokens;
    recording_reason reason; /* RECORDING_NO_REASON: it does not end in the recording */
} recorded_end;

typedef struct recorded_ends {
    recorded_end *ends; /* by the request's number */
    uint32_t num_ends;
    uint64_t *hashes;
    uint64_t num_hashes;
    uint64_t ends_room;
    uint64_t hashes_room;
    uint64_t num_requests;
    uint64_t num_ended;
} recorded_ends;

/* Reads the whole recording. -1 and a sentence. */
int recorded_ends_read(recorded_ends *ends, const char *path);
void recorded_ends_free(recorded_ends *ends);
recorded_end recorded_ends_of(const recorded_ends *ends, uint64_t req);

#endif

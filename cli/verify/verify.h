/* cli/verify/verify.h - repeats the calls of a recording on a quire_sched, and compares what it
 * decides.
 *
 *      recording   request ─► schedule ─► update ─► end ...
 *                     │          │ ▲        │        ▲
 *      quire_sched   add      schedule   update      │       in the order of the lines
 *                                │                   │
 *                   requests, tokens, hits,     which requests end
 *                   preemptions, queues, free blocks
 *
 * Tokens are made up: a full block has tokens that follow from its salted hash, so two blocks of
 * the repetition are equal exactly if they were equal in the engine. Outputs have the recorded
 * number of tokens, and end as recorded.
 */
#ifndef QUIRE_CLI_VERIFY_H
#define QUIRE_CLI_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

enum { VERIFY_SENTENCE_BYTES = 1024 };

typedef struct verify_result {
    uint64_t num_steps;
    uint64_t num_requests;
    uint64_t num_ended;
    uint64_t num_admitted; /* resumed requests included */
    uint64_t num_preempted;
    uint64_t num_hit_tokens;
    uint64_t num_tokens; /* scheduled */
    bool differs;
    char sentence[VERIFY_SENTENCE_BYTES]; /* the first difference */
} verify_result;

/* -1 and a sentence: the recording cannot be read or repeated. */
int verify_recording(const char *path, verify_result *result);

#endif

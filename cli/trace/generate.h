/* cli/trace/generate.h - workloads made up from a seed, written as workload files (docs/traces.md).
 *
 * All kinds have one shape, and differ in its numbers:
 *
 *      turn 0:  [ head: one of a few, shared ][ document: popular, or fresh ][ the user's words ]
 *      turn 1:  [ all of turn 0, and what it generated                      ][ more words ]
 *
 * Lengths and think times are log-normal, so a few are very long; arrivals are a Poisson process. A
 * document is either one that nobody asked for before (a share `fresh` of requests) or that of a
 * request before, any of them: so the more often it was asked for, the more often it will be, and a
 * hit rate does not depend on how long the workload is.
 */
#ifndef QUIRE_CLI_TRACE_GENERATE_H
#define QUIRE_CLI_TRACE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum generate_kind {
    GENERATE_CHAT,
    GENERATE_MULTI_TURN,
    GENERATE_RAG,
    GENERATE_CODE,
    GENERATE_AGENT,
    GENERATE_UNIQUE,
    GENERATE_KINDS, /* how many there are */
    GENERATE_MIXED = GENERATE_KINDS
} generate_kind;

extern const char *const generate_kind_names[GENERATE_KINDS + 2]; /* NULL at the end */

/* Lengths in tokens are means, but for the head's, which is exact. */
typedef struct generate_shape {
    double head_tokens; /* numbers of things are whole */
    double num_heads;
    double document_tokens; /* 0: no documents */
    double fresh;
    double user_tokens; /* of the first turn */
    double more_tokens; /* of later turns: words, results of tools; 0: as user_tokens */
    double output_tokens;
    double min_turns;
    double turns;   /* mean; <= min_turns: that many */
    double think_s; /* mean */
    double spread;  /* sigma of the logarithm of lengths and think times */
} generate_shape;

typedef struct generate_options {
    generate_kind kind;
    uint64_t seed;
    uint64_t num_requests;
    double rate;         /* arrivals a second: of sessions, where a session has turns */
    uint32_t max_tokens; /* of a prompt and what it generates; heads and documents are whole */
    generate_shape shapes[GENERATE_KINDS];
    double shares[GENERATE_KINDS]; /* of arrivals, if mixed */
    char *made_by; /* JSON of one line, for the first line of the workload; NULL: none */
} generate_options;

generate_options generate_defaults(generate_kind kind);
/* False: not enough memory. What could not be written is noted in `out` (packed_close). */
bool generate(const generate_options *options, FILE *out);

#endif

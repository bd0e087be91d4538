/* parity/hash_case.h - what the lines of a hash recording describe: strings, requests, extra keys.
 *
 *      strings    6162,3*c3a9     "ab" and "ééé". Each entry is one object: it gets memory of its
 *                                 own, so that pointers are equal where Python's objects are
 *      features   0:10:15,1:40:3  string 0 at offset 10, 15 tokens long; then string 1
 *      embeds     40x12           40 rows of 12 bytes, drawn with the request's seed plus 1
 *      keys       L:0,M:1:-6,S:0,P:<digest>; of vLLM 0.32.0 L:0:1, string 1 being the path
 */
#ifndef PARITY_HASH_CASE_H
#define PARITY_HASH_CASE_H

#include "parity/recording.h"

#include <quire/hash.h>

enum { CASE_MAX_STRINGS = 256, CASE_MAX_KEYS = 256 };

typedef struct case_strings {
    quire_bytes items[CASE_MAX_STRINGS];
    uint32_t count;
} case_strings;

void case_strings_read(recording *r, char *word, case_strings *strings);
void case_strings_free(case_strings *strings);
/* One text such as "3*c3a9", in memory that the caller frees. */
quire_bytes case_text_read(recording *r, char *word);

typedef struct case_request {
    uint64_t stream; /* of its tokens */
    case_strings strings;
    quire_mm_feature features[CASE_MAX_KEYS];
    unsigned char *embeds;
    quire_extra_keys extra; /* points into the above */
} case_request;

/* Reads the rest of an `r` line over a request that was freed or never used. */
void case_request_read(recording *r, case_request *request);
void case_request_free(case_request *request);

typedef struct case_keys {
    case_strings strings;
    unsigned char digests[CASE_MAX_KEYS][QUIRE_MAX_DIGEST_BYTES];
    quire_extra_key items[CASE_MAX_KEYS];
    uint32_t count;
} case_keys;

/* Reads the two words "keys strings" of a `b` line. */
void case_keys_read(recording *r, case_keys *keys);
void case_keys_free(case_keys *keys);

#endif

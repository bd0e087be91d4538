/* cli/recording/header.h - what a recording's header says of the engine and its scheduler. */
#ifndef QUIRE_CLI_RECORDING_HEADER_H
#define QUIRE_CLI_RECORDING_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers that are missing are 0, texts empty. */
typedef struct recorded_header {
    char engine[32];
    char engine_version[32];
    char model[256];
    char profile[24];
    char policy[16];
    uint32_t num_blocks;
    uint32_t block_size;
    uint32_t hash_block_size;
    uint32_t max_model_len;
    uint32_t max_num_seqs;
    uint32_t max_num_batched_tokens;
    uint32_t long_prefill_token_threshold;
    uint32_t num_spec_tokens;
    uint32_t num_groups;
    bool enable_caching;
    bool enable_chunked_prefill;
    bool reserve_full_sequence;
    bool async_scheduling;
    bool is_pooling_model;
    double watermark;
} recorded_header;

/* Of the text of a header line, which must end with a 0 byte. False: it is no JSON. */
bool recorded_header_parse(const char *text, size_t length, recorded_header *out);
/* The first line of a recording. 0, or -1 and a sentence. */
int recorded_header_read(const char *path, recorded_header *out);
/* Whether a file begins as a part of a recording does. Not to be asked of standard input. */
bool recorded_is_one(const char *path);

#endif

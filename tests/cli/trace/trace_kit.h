/* cli/trace/trace_kit.h - what the tests of traces share: readers over text, and a cache without
 * limits.
 *
 *      blocks of a prompt, from its segments, at any block size:
 *      [ head 20 ][ words 20 ]   at 16:  (head 0..15) (head 16..19, words 0..11) (rest: no block)
 *
 * A block's key is made of its parent's and of the pieces of contents in it; so equal keys are
 * equal prefixes, without a token being made.
 */
#ifndef TESTS_CLI_TRACE_KIT_H
#define TESTS_CLI_TRACE_KIT_H

#include "base/unit.h"

#include "trace/reader.h"
#include "trace/trace.h"

/* A reader over these bytes; fails the test where it cannot be opened. */
trace_reader *kit_open(const void *bytes, size_t num_bytes, const trace_options *options);
trace_reader *kit_open_text(const char *text, trace_format format);
/* The next request must be there. */
trace_request kit_next(trace_reader *reader);
void kit_expect_end(trace_reader *reader);
/* The next one must fail with exactly this, behind "bytes:". */
void kit_expect_error(trace_reader *reader, const char *message);
/* A text that fails at its first bad record with exactly this. */
void kit_expect_bad(const char *text, trace_format format, const char *message);

/* The bytes packed; to be freed. */
void *kit_pack_zstd(const void *bytes, size_t num_bytes, int window_log, size_t *packed_bytes);
void *kit_pack_gzip(const void *bytes, size_t num_bytes, size_t *packed_bytes);

/* ---- a cache without limits ------------------------------------------------ */

typedef struct kit_cache {
    uint32_t block_size;
    uint64_t *keys; /* open addressing, 0: free */
    size_t num_slots;
    size_t num_keys;
    uint64_t num_requests;
    uint64_t num_prompt_tokens;
    uint64_t num_output_tokens;
    uint64_t num_blocks; /* of prompts, part-filled ones too */
    uint64_t num_hit_blocks;
    uint64_t num_hit_tokens;
} kit_cache;

kit_cache kit_cache_create(uint32_t block_size);
void kit_cache_destroy(kit_cache *cache);
/* A request, whose output is cached too where that is asked for. Part-filled last blocks count as
 * blocks where the trace's ids do. */
void kit_cache_run(kit_cache *cache, const trace_request *request, bool with_partial,
                   bool with_output);

#endif

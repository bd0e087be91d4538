/* cli/trace/trace_kit.c - see trace_kit.h. */
#include "trace_kit.h"
#include "output/failure.h"

#include <zlib.h>
#include <zstd.h>

#include "trace/content.h"

trace_reader *kit_open(const void *bytes, size_t num_bytes, const trace_options *options)
{
    input *in = input_of_bytes(bytes, num_bytes);
    assert_non_null(in);
    trace_reader *reader = trace_open_input(in, options);
    if (reader == NULL)
        fail_msg("%s", failure());
    return reader;
}

trace_reader *kit_open_text(const char *text, trace_format format)
{
    return kit_open(text, strlen(text), &(trace_options){.format = format});
}

trace_request kit_next(trace_reader *reader)
{
    trace_request request;
    if (trace_next(reader, &request) != 1)
        fail_msg("no request: \"%s\"", trace_error(reader));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < request.num_segments; i++) {
        assert_true(request.prompt[i].num_tokens > 0);
        sum += request.prompt[i].num_tokens;
    }
    assert_int_equal(sum, request.num_prompt_tokens);
    assert_true(request.num_output_tokens > 0);
    return request;
}

void kit_expect_end(trace_reader *reader)
{
    trace_request request;
    if (trace_next(reader, &request) != 0)
        fail_msg("no end: \"%s\"", trace_error(reader));
    assert_int_equal(trace_next(reader, &request), 0);
    trace_close(reader);
}

void kit_expect_error(trace_reader *reader, const char *message)
{
    char whole[TRACE_MESSAGE_BYTES];
    trace_request request;
    assert_int_equal(trace_next(reader, &request), -1);
    snprintf(whole, sizeof whole, "bytes:%s", message);
    assert_string_equal(trace_error(reader), whole);
    assert_int_equal(trace_next(reader, &request), -1);
    trace_close(reader);
}

void kit_expect_bad(const char *text, trace_format format, const char *message)
{
    trace_reader *reader = kit_open_text(text, format);
    kit_expect_error(reader, message);
}

void *kit_pack_zstd(const void *bytes, size_t num_bytes, int window_log, size_t *packed_bytes)
{
    size_t room = ZSTD_compressBound(num_bytes);
    void *packed = malloc(room);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    assert_true(packed != NULL && zstd != NULL);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    if (window_log > 0) {
        ZSTD_CCtx_setParameter(zstd, ZSTD_c_enableLongDistanceMatching, 1);
        ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, window_log);
    }
    ZSTD_inBuffer from = {bytes, num_bytes, 0};
    ZSTD_outBuffer to = {packed, room, 0};
    assert_int_equal(ZSTD_compressStream2(zstd, &to, &from, ZSTD_e_end), 0);
    ZSTD_freeCCtx(zstd);
    *packed_bytes = to.pos;
    return packed;
}

void *kit_pack_gzip(const void *bytes, size_t num_bytes, size_t *packed_bytes)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)num_bytes};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&stream, (uLong)num_bytes) + 64;
    unsigned char *packed = malloc(room);
    assert_non_null(packed);
    stream.next_out = packed;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    *packed_bytes = room - stream.avail_out;
    deflateEnd(&stream);
    return packed;
}

/* ---- a cache without limits ------------------------------------------------ */

kit_cache kit_cache_create(uint32_t block_size)
{
    kit_cache cache = {.block_size = block_size, .num_slots = 1024};
    cache.keys = calloc(cache.num_slots, sizeof *cache.keys);
    assert_non_null(cache.keys);
    return cache;
}

void kit_cache_destroy(kit_cache *cache)
{
    free(cache->keys);
}

static uint64_t *find_slot(const kit_cache *cache, uint64_t key)
{
    size_t slot = key & (cache->num_slots - 1);
    while (cache->keys[slot] != 0 && cache->keys[slot] != key)
        slot = (slot + 1) & (cache->num_slots - 1);
    return &cache->keys[slot];
}

static void grow(kit_cache *cache)
{
    kit_cache bigger = *cache;
    bigger.num_slots *= 2;
    bigger.keys = calloc(bigger.num_slots, sizeof *bigger.keys);
    assert_non_null(bigger.keys);
    for (size_t i = 0; i < cache->num_slots; i++)
        if (cache->keys[i] != 0)
            *find_slot(&bigger, cache->keys[i]) = cache->keys[i];
    free(cache->keys);
    *cache = bigger;
}

/* True: it was there already. */
static bool put(kit_cache *cache, uint64_t key)
{
    uint64_t *slot = find_slot(cache, key);
    if (*slot != 0)
        return true;
    *slot = key;
    if (++cache->num_keys * 2 > cache->num_slots)
        grow(cache);
    return false;
}

/* Keys of blocks, as pieces of contents come in. */
typedef struct chain {
    uint64_t parent;
    uint64_t pieces; /* of the block that is being filled */
    uint32_t filled;
} chain;

static uint64_t key_of(const chain *c)
{
    return content_of(2, c->parent, c->pieces) | 1;
}

static void run_block(kit_cache *cache, chain *c, bool is_prompt, bool *is_hit)
{
    uint64_t key = key_of(c);
    bool is_known = put(cache, key);
    if (is_prompt) {
        *is_hit = *is_hit && is_known;
        cache->num_blocks++;
        cache->num_hit_blocks += *is_hit;
        cache->num_hit_tokens += *is_hit ? c->filled : 0;
    }
    *c = (chain){.parent = key};
}

static void run_content(kit_cache *cache, chain *c, trace_segment segment, bool is_prompt,
                        bool *is_hit)
{
    uint32_t at = 0;
    while (at < segment.num_tokens) {
        uint32_t n = cache->block_size - c->filled;
        if (n > segment.num_tokens - at)
            n = segment.num_tokens - at;
        c->pieces = content_of(3 + c->pieces, segment.content, (uint64_t)at << 32 | n);
        c->filled += n;
        at += n;
        if (c->filled == cache->block_size)
            run_block(cache, c, is_prompt, is_hit);
    }
}

void kit_cache_run(kit_cache *cache, const trace_request *request, bool with_partial,
                   bool with_output)
{
    chain c = {.parent = 0};
    bool is_hit = true;
    for (uint32_t i = 0; i < request->num_segments; i++)
        run_content(cache, &c, request->prompt[i], true, &is_hit);
    if (with_partial && c.filled > 0)
        run_block(cache, &c, true, &is_hit);
    trace_segment output = {request->output_content, request->num_output_tokens};
    if (with_output)
        run_content(cache, &c, output, false, &is_hit);
    cache->num_requests++;
    cache->num_prompt_tokens += request->num_prompt_tokens;
    cache->num_output_tokens += request->num_output_tokens;
}

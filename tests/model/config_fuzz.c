/* See config_fuzz.h. A config is taken as bytes, and a table says where its fields are and which
 * values to try. What a value must lead to:
 *
 *      GOOD    a working handle, as long as the rest of the config is valid
 *      BAD     an error, whatever the rest is
 *      ALONE   an error as long as the rest is as in the valid config, else MAYBE
 *      MAYBE   depends on other fields; either, but nothing else
 */
#include "config_fuzz.h"

#include "handle_kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Above this, the allocator says no: QUIRE_E_NOMEM is a fine answer to a huge config. */
#define MOST_BYTES ((size_t)4 << 20)

typedef enum verdict { END = 0, GOOD, BAD, ALONE, MAYBE } verdict;

typedef struct value {
    verdict verdict;
    uint64_t value;
} value;

typedef struct field {
    const char *name;
    size_t offset;
    size_t width;
    value values[8];
} field;

#define FIELD(type, name) #name, offsetof(type, name), sizeof(((type *)NULL)->name)
#define POOL(name)        FIELD(quire_pool_config, name)
#define HASHER(name)      FIELD(quire_hasher_config, name)
#define TABLE(name)       FIELD(quire_table_config, name)
#define CACHE(name)       FIELD(quire_cache_config, name)
#define SCHED(name)       FIELD(quire_sched_config, name)

static const field pool_fields[] = {
    {POOL(num_blocks),
     {{BAD, 0},
      {GOOD, 1},
      {GOOD, 2},
      {GOOD, QUIRE_MAX_BLOCKS},
      {BAD, (uint64_t)QUIRE_MAX_BLOCKS + 1},
      {BAD, UINT32_MAX}}},
    {POOL(enable_caching), {{GOOD, 0}, {GOOD, 1}, {GOOD, 2}, {BAD, 3}, {BAD, UINT32_MAX}}},
    {POOL(hash_bytes),
     {{GOOD, 0},
      {BAD, 1},
      {GOOD, 16},
      {BAD, 17},
      {GOOD, 4080},
      {BAD, 4096},
      {BAD, UINT32_MAX - 15}}},
};

static const field hasher_fields[] = {
    {HASHER(algo),
     {{GOOD, 0}, {GOOD, 1}, {GOOD, 2}, {GOOD, 4}, {GOOD, 5}, {BAD, 6}, {BAD, UINT32_MAX}}},
    {HASHER(block_size), {{GOOD, 0}, {GOOD, 1}, {GOOD, 65536}, {BAD, 65537}, {BAD, UINT32_MAX}}},
    {HASHER(profile), {{GOOD, 0}, {GOOD, 1}, {MAYBE, 2}, {BAD, 3}, {BAD, UINT32_MAX}}},
    {HASHER(max_extra_bytes),
     {{GOOD, 0}, {GOOD, 1}, {GOOD, 16384}, {MAYBE, 65535}, {MAYBE, UINT32_MAX}}},
};

#define COUNTS                                                                                     \
    {                                                                                              \
        {BAD, 0}, {GOOD, 1}, {MAYBE, INT32_MAX}, {MAYBE, UINT32_C(1) << 31},                       \
        {                                                                                          \
            MAYBE, UINT32_MAX                                                                      \
        }                                                                                          \
    }
#define WORLDS                                                                                     \
    {                                                                                              \
        {GOOD, 0}, {GOOD, 1}, {GOOD, 2}, {MAYBE, 65536}, {MAYBE, INT32_MAX},                       \
        {                                                                                          \
            MAYBE, UINT32_MAX                                                                      \
        }                                                                                          \
    }
#define RANKS                                                                                      \
    {                                                                                              \
        {GOOD, 0}, {ALONE, 1}, {ALONE, 65536},                                                     \
        {                                                                                          \
            BAD, UINT32_MAX                                                                        \
        }                                                                                          \
    }

static const field table_fields[] = {
    {TABLE(max_num_reqs), COUNTS},
    {TABLE(max_num_blocks_per_req), COUNTS},
    {TABLE(max_num_batched_tokens), COUNTS},
    {TABLE(block_size),
     {{GOOD, 0},
      {GOOD, 1},
      {GOOD, 48},
      {MAYBE, INT32_MAX},
      {MAYBE, UINT32_C(1) << 31},
      {MAYBE, UINT32_MAX}}},
    {TABLE(kernel_block_size),
     {{GOOD, 0},
      {GOOD, 1},
      {GOOD, 16},
      {ALONE, 3},
      {ALONE, 48},
      {MAYBE, INT32_MAX},
      {MAYBE, UINT32_MAX}}},
    {TABLE(pcp_world_size), WORLDS},
    {TABLE(pcp_rank), RANKS},
    {TABLE(dcp_world_size), WORLDS},
    {TABLE(dcp_rank), RANKS},
    {TABLE(cp_kv_cache_interleave_size),
     {{GOOD, 0}, {GOOD, 1}, {MAYBE, INT32_MAX}, {MAYBE, UINT32_MAX}}},
};

#define SWITCH                                                                                     \
    {                                                                                              \
        {GOOD, 0}, {GOOD, 1}, {GOOD, 2}, {BAD, 3},                                                 \
        {                                                                                          \
            BAD, UINT32_MAX                                                                        \
        }                                                                                          \
    }
/* Doubles, as their bits: 0, 0.5, 1, 2, -1, not a number. */
#define PART_GOOD(bits)                                                                            \
    {                                                                                              \
        GOOD, UINT64_C(bits)                                                                       \
    }
#define PART_BAD(bits)                                                                             \
    {                                                                                              \
        BAD, UINT64_C(bits)                                                                        \
    }
#define HALF      0x3fe0000000000000
#define ONE       0x3ff0000000000000
#define TWO       0x4000000000000000
#define MINUS_ONE 0xbff0000000000000
#define NO_NUMBER 0x7ff8000000000000

static const field cache_fields[] = {
    {CACHE(num_blocks),
     {{BAD, 0},
      {GOOD, 1},
      {GOOD, 2},
      {MAYBE, QUIRE_MAX_BLOCKS},
      {BAD, (uint64_t)QUIRE_MAX_BLOCKS + 1},
      {BAD, UINT32_MAX}}},
    {CACHE(num_groups), {{GOOD, 0}, {GOOD, 1}, {GOOD, 2}, {BAD, UINT32_MAX}}},
    {CACHE(max_model_len),
     {{BAD, 0}, {GOOD, 1}, {GOOD, 5}, {MAYBE, INT32_MAX}, {MAYBE, UINT32_MAX}}},
    {CACHE(max_num_batched_tokens), {{GOOD, 0}, {GOOD, 1}, {MAYBE, UINT32_MAX}}},
    {CACHE(max_encoder_tokens), {{GOOD, 0}, {GOOD, 1}, {MAYBE, UINT32_MAX}}},
    {CACHE(max_requests), {{GOOD, 0}, {GOOD, 1}, {MAYBE, INT32_MAX}, {MAYBE, UINT32_MAX}}},
    {CACHE(hash_block_size),
     {{GOOD, 0}, {GOOD, 1}, {GOOD, 2}, {GOOD, 4}, {ALONE, 3}, {ALONE, 8}, {ALONE, UINT32_MAX}}},
    {CACHE(digest_bytes),
     {{GOOD, 0},
      {GOOD, 16},
      {ALONE, 1},
      {ALONE, 17},
      {GOOD, 4080},
      {ALONE, 4096},
      {ALONE, UINT32_MAX - 15}}},
    {CACHE(enable_caching), SWITCH},
    {CACHE(use_eagle), SWITCH},
    {CACHE(log_stats), SWITCH},
    {CACHE(track_new_blocks), SWITCH},
    {CACHE(dcp_world_size), {{GOOD, 0}, {GOOD, 1}, {ALONE, 2}, {ALONE, UINT32_MAX}}},
    {CACHE(pcp_world_size), {{GOOD, 0}, {GOOD, 1}, {ALONE, 2}, {ALONE, UINT32_MAX}}},
    {CACHE(profile), {{GOOD, 0}, {GOOD, 1}, {MAYBE, 2}, {BAD, 3}, {BAD, UINT32_MAX}}},
    {CACHE(watermark),
     {PART_GOOD(0), PART_GOOD(HALF), PART_GOOD(ONE), PART_BAD(TWO), PART_BAD(MINUS_ONE),
      PART_BAD(NO_NUMBER)}},
    {CACHE(admit_below),
     {PART_GOOD(0), PART_GOOD(HALF), PART_BAD(TWO), PART_BAD(MINUS_ONE), PART_BAD(NO_NUMBER)}},
    {CACHE(preempt_above),
     {PART_GOOD(0), PART_GOOD(ONE), PART_BAD(TWO), PART_BAD(MINUS_ONE), PART_BAD(NO_NUMBER)}},
    {CACHE(max_copies), {{GOOD, 0}, {GOOD, 1}, {MAYBE, UINT32_MAX}}},
    {CACHE(event_log_bytes), {{GOOD, 0}, {GOOD, 1}, {MAYBE, UINT32_MAX}}},
    {CACHE(num_host_blocks), {{GOOD, 0}, {MAYBE, 1}, {MAYBE, 1 << 28}, {BAD, UINT32_MAX}}},
    {CACHE(prefix_cache_retention_interval),
     {{GOOD, 0}, {ALONE, 1}, {MAYBE, 64}, {MAYBE, 1 << 30}, {MAYBE, UINT32_MAX}}},
    {CACHE(num_prefill_lookahead), {{GOOD, 0}, {ALONE, 1}, {ALONE, 64}, {BAD, UINT32_MAX}}},
    {CACHE(mamba_shared_prefix_checkpoint), SWITCH},
    {CACHE(max_in_flight_tokens), {{GOOD, 0}, {GOOD, 1}, {GOOD, 1 << 30}, {BAD, UINT32_MAX}}},
};

#define TOKENS                                                                                     \
    {                                                                                              \
        {GOOD, 0}, {GOOD, 1}, {MAYBE, INT32_MAX},                                                  \
        {                                                                                          \
            BAD, UINT32_MAX                                                                        \
        }                                                                                          \
    }

static const field sched_fields[] = {
    {SCHED(policy), {{GOOD, 0}, {GOOD, 1}, {BAD, 2}, {BAD, UINT32_MAX}}},
    {SCHED(max_num_seqs), {{ALONE, 0}, {GOOD, 1}, {GOOD, 4}, {ALONE, 5}, {BAD, UINT32_MAX}}},
    {SCHED(max_num_batched_tokens), TOKENS},
    {SCHED(max_num_scheduled_tokens), TOKENS},
    {SCHED(long_prefill_token_threshold), {{GOOD, 0}, {GOOD, 1}, {GOOD, UINT32_MAX}}},
    {SCHED(enable_chunked_prefill), /* off: a step would be shorter than max_model_len */
     {{GOOD, 0}, {GOOD, 1}, {ALONE, 2}, {BAD, 3}, {BAD, UINT32_MAX}}},
    {SCHED(reserve_full_sequence), SWITCH},
    {SCHED(async_scheduling), SWITCH},
    {SCHED(max_batches), {{GOOD, 0}, {GOOD, 1}, {GOOD, 64}, {BAD, 65}, {BAD, UINT32_MAX}}},
    {SCHED(num_spec_tokens), {{GOOD, 0}, {GOOD, 1}, {MAYBE, 1024}, {BAD, 1025}}},
    {SCHED(num_lookahead_tokens), TOKENS},
    {SCHED(max_loras), {{GOOD, 0}, {GOOD, 1}, {GOOD, 65536}, {BAD, 65537}}},
    {SCHED(is_encoder_decoder), {{GOOD, 0}, {MAYBE, 1}, {GOOD, 2}, {BAD, 3}}},
    {SCHED(disable_chunked_mm_input), SWITCH},
    {SCHED(encoder_compute_budget), TOKENS},
    {SCHED(encoder_cache_size), TOKENS},
    {SCHED(mamba_block_size), {{GOOD, 0}, {GOOD, 1}, {MAYBE, UINT32_MAX}}},
    {SCHED(include_finished_set), SWITCH},
    {SCHED(fail_on_load_error), SWITCH},
    {SCHED(log_stats), SWITCH},
    {SCHED(max_requests),
     {{GOOD, 0}, {ALONE, 1}, {GOOD, 2}, {MAYBE, 1 << 24}, {BAD, (1 << 24) + 1}, {BAD, UINT32_MAX}}},
    {SCHED(max_loading), {{GOOD, 0}, {GOOD, 1}, {GOOD, 4}, {ALONE, 5}, {BAD, UINT32_MAX}}},
    {SCHED(max_text_tokens), {{GOOD, 0}, {GOOD, 1}, {MAYBE, UINT64_C(1) << 40}, {BAD, UINT64_MAX}}},
    {SCHED(max_request_bytes),
     {{GOOD, 0}, {BAD, 63}, {GOOD, 64}, {GOOD, 1 << 20}, {BAD, (1 << 20) + 1}, {BAD, UINT32_MAX}}},
    {SCHED(max_encoder_items), {{GOOD, 0}, {GOOD, 1}, {MAYBE, 1 << 20}, {BAD, (1 << 20) + 1}}},
    {SCHED(profile), {{GOOD, 0}, {GOOD, 1}, {MAYBE, 2}, {BAD, 3}, {BAD, UINT32_MAX}}},
};

typedef struct fields_of_kind {
    const field *fields;
    size_t count;
} fields_of_kind;

/* In the order of all_kinds. */
static const fields_of_kind all_fields[] = {
    {pool_fields, sizeof pool_fields / sizeof pool_fields[0]},
    {hasher_fields, sizeof hasher_fields / sizeof hasher_fields[0]},
    {table_fields, sizeof table_fields / sizeof table_fields[0]},
    {cache_fields, sizeof cache_fields / sizeof cache_fields[0]},
    {sched_fields, sizeof sched_fields / sizeof sched_fields[0]},
};

/* ---- trying one --------------------------------------------------------- */

typedef union config_bytes {
    max_align_t aligned;
    unsigned char bytes[16 * MAX_CONFIG_BYTES];
} config_bytes;

static void set_field(config_bytes *config, const field *f, uint64_t v)
{
    uint32_t narrow = (uint32_t)v;
    if (f->width == sizeof narrow)
        memcpy(config->bytes + f->offset, &narrow, sizeof narrow);
    else
        memcpy(config->bytes + f->offset, &v, sizeof v);
}

/* An error or a working handle, no leak either way. */
static int try_config(const handle_kind *kind, const config_bytes *config)
{
    size_t bytes = kind->bytes(config->bytes);
    ledger book = {.max_bytes = MOST_BYTES};
    quire_allocator allocator = ledger_allocator(&book);
    void *handle = untouched();
    int status = kind->create(config->bytes, &allocator, &handle);
    assert_true(status <= QUIRE_OK);
    assert_true((bytes == 0) == (status != QUIRE_OK && status != QUIRE_E_NOMEM));
    if (bytes == 0)
        assert_int_equal(book.calls, 0);
    if (status == QUIRE_E_NOMEM)
        assert_true(bytes > MOST_BYTES);
    if (status == QUIRE_OK) {
        assert_int_equal(book.last_bytes, bytes);
        assert_true(kind->works(handle));
        kind->destroy(handle);
    } else {
        assert_true(handle == NULL || handle == untouched());
    }
    assert_int_equal(book.live, 0);
    assert_false(book.wrong_free);
    return status;
}

static config_bytes base_config(const handle_kind *kind)
{
    config_bytes config;
    memset(&config, 0, sizeof config);
    memcpy(config.bytes, kind->config, kind->config_bytes);
    return config;
}

static void expect(const handle_kind *kind, const field *f, const value *v, int status)
{
    bool refused = status != QUIRE_OK && status != QUIRE_E_NOMEM;
    bool bad = v->verdict == BAD || v->verdict == ALONE;
    bool right = v->verdict == MAYBE || refused == bad;
    if (!right)
        print_error("%s: %s = %llu gives %s\n", kind->name, f->name, (unsigned long long)v->value,
                    quire_status_name(status));
    assert_true(right);
    if (bad)
        assert_int_equal(status, QUIRE_E_CONFIG);
}

/* ---- the tests ---------------------------------------------------------- */

void config_fuzz_single_fields(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++)
        for (size_t i = 0; i < all_fields[k].count; i++) {
            const field *f = &all_fields[k].fields[i];
            for (const value *v = f->values; v < f->values + 8 && v->verdict != END; v++) {
                config_bytes config = base_config(&all_kinds[k]);
                set_field(&config, f, v->value);
                expect(&all_kinds[k], f, v, try_config(&all_kinds[k], &config));
            }
        }
}

static void fuzz_pair(const handle_kind *kind, const field *f, const field *g)
{
    for (const value *v = f->values; v < f->values + 8 && v->verdict != END; v++)
        for (const value *w = g->values; w < g->values + 8 && w->verdict != END; w++) {
            config_bytes config = base_config(kind);
            set_field(&config, f, v->value);
            set_field(&config, g, w->value);
            int status = try_config(kind, &config);
            if (v->verdict == BAD || w->verdict == BAD)
                assert_int_equal(status, QUIRE_E_CONFIG);
        }
}

void config_fuzz_pairs_of_fields(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++)
        for (size_t i = 0; i < all_fields[k].count; i++)
            for (size_t j = i + 1; j < all_fields[k].count; j++)
                fuzz_pair(&all_kinds[k], &all_fields[k].fields[i], &all_fields[k].fields[j]);
}

static int try_size(const handle_kind *kind, size_t size, size_t nonzero_at)
{
    config_bytes config = base_config(kind);
    memcpy(config.bytes, &size, sizeof size);
    if (nonzero_at > 0)
        config.bytes[nonzero_at] = 1;
    return try_config(kind, &config);
}

void config_fuzz_size_field(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++) {
        const handle_kind *kind = &all_kinds[k];
        size_t ours = kind->config_bytes;
        for (size_t size = 0; size < sizeof size; size++)
            assert_int_equal(try_size(kind, size, 0), QUIRE_E_CONFIG);
        /* Older callers: fields past their end count as zero. */
        for (size_t size = sizeof size; size < ours; size++)
            (void)try_size(kind, size, 0);
        assert_int_equal(try_size(kind, ours, 0), QUIRE_OK);
        /* Newer callers: fine as long as they ask for nothing that this library does not know. */
        assert_int_equal(try_size(kind, ours + 8, 0), QUIRE_OK);
        assert_int_equal(try_size(kind, ours * 2, 0), QUIRE_OK);
        assert_int_equal(try_size(kind, ours + 8, ours), QUIRE_E_CONFIG);
        assert_int_equal(try_size(kind, ours + 8, ours + 7), QUIRE_E_CONFIG);
        assert_int_equal(try_size(kind, SIZE_MAX, 0), QUIRE_E_CONFIG);
    }
    /* A pool's first fields are all it needs. */
    assert_int_equal(try_size(&all_kinds[0], offsetof(quire_pool_config, hash_bytes), 0), QUIRE_OK);
}

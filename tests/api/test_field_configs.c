/* Every field of every config, at the edges of its range and outside: a value out of its range is
 * QUIRE_E_CONFIG, and quire_refusal names the field; any other either makes a handle or is refused.
 * One field at a time, then pairs. */
#include "api/fields_kit.h"
#include "base/inner.h"
#include "model/plain.h"

#define N(name, least, most) ROW_NUMBER(TYPE, name, least, most)
#define R(name, least, most) ROW_REAL(TYPE, name, least, most)
#define F(name)              ROW_FLAG(TYPE, name)
#define A(name)              ROW_ANY(TYPE, name)

enum { MOST_GROUPS = 4096, MOST_BYTES = 1 << 20 };
#ifdef MODEL_SLOW
enum { PAIRS_APART = 9 };
#else
enum { PAIRS_APART = 3 };
#endif

/* What is done with one config. */
typedef struct subject {
    const char *place; /* of the config in the sentence: "cache: " */
    const field *fields;
    size_t num_fields;
    void *config;
    size_t config_bytes;
    size_t (*bytes)(const void *config);
    int (*try)(const void *config); /* makes a handle and ends it */
} subject;

static void check_single(const subject *s, const field *f)
{
    char expected[120];
    bool is_ok = field_in_range(f, s->config);
    size_t bytes = s->bytes(s->config);
    if (is_ok) {
        if (bytes > 0 && bytes < MOST_BYTES)
            assert_true(s->try(s->config) <= QUIRE_OK);
        return;
    }
    assert_int_equal(bytes, 0);
    assert_int_equal(s->try(s->config), QUIRE_E_CONFIG);
    snprintf(expected, sizeof expected, "%sinvalid %s ", s->place, f->name);
    if (strncmp(quire_refusal(), expected, strlen(expected)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", quire_refusal(), expected);
}

static void check_pair(const subject *s)
{
    size_t bytes = s->bytes(s->config);
    if (bytes > 0 && bytes < MOST_BYTES)
        assert_true(s->try(s->config) <= QUIRE_OK);
}

static void check_all(const subject *s)
{
    void *good = malloc(s->config_bytes);
    assert_non_null(good);
    memcpy(good, s->config, s->config_bytes);
    assert_int_equal(s->try(s->config), QUIRE_OK);
    for (size_t a = 0; a < s->num_fields; a++)
        for (uint32_t i = 0; i < field_num_edges(&s->fields[a]); i++) {
            memcpy(s->config, good, s->config_bytes);
            field_set_edge(&s->fields[a], s->config, i);
            check_single(s, &s->fields[a]);
            uint32_t first = (uint32_t)(a + i) % PAIRS_APART;
            for (size_t b = 0; b < a; b++)
                for (uint32_t k = first; k < field_num_edges(&s->fields[b]); k += PAIRS_APART) {
                    memcpy(s->config, good, s->config_bytes);
                    field_set_edge(&s->fields[a], s->config, i);
                    field_set_edge(&s->fields[b], s->config, k);
                    check_pair(s);
                }
        }
    memcpy(s->config, good, s->config_bytes);
    free(good);
}

/* ---- pool, table, hasher ---------------------------------------------------- */

#define SUBJECT_CALLS(name)                                                                        \
    static size_t name##_bytes_of(const void *config)                                              \
    {                                                                                              \
        return quire_##name##_bytes(config);                                                       \
    }                                                                                              \
    static int try_##name(const void *config)                                                      \
    {                                                                                              \
        quire_##name *made = NULL;                                                                 \
        int err = quire_##name##_create(config, NULL, &made);                                      \
        quire_##name##_destroy(made);                                                              \
        return err;                                                                                \
    }

SUBJECT_CALLS(pool)
SUBJECT_CALLS(table)
SUBJECT_CALLS(hasher)
SUBJECT_CALLS(cache)
SUBJECT_CALLS(sched)

#define CHECK_CONFIG(says, name, rows, object)                                                     \
    check_all(&(subject){says, rows, COUNT(rows), &(object), sizeof(object), name##_bytes_of,      \
                         try_##name})

static void pools_tables_and_hashers(void **state)
{
    (void)state;
#define TYPE quire_pool_config
    const field pool_rows[] = {QR_FIELDS_quire_pool_config(N, R, F, A)};
#undef TYPE
#define TYPE quire_table_config
    const field table_rows[] = {QR_FIELDS_quire_table_config(N, R, F, A)};
#undef TYPE
#define TYPE quire_hasher_config
    const field hasher_rows[] = {QR_FIELDS_quire_hasher_config(N, R, F, A)};
#undef TYPE
    quire_pool_config pool = QUIRE_POOL_CONFIG_INIT;
    pool.num_blocks = 9;
    CHECK_CONFIG("", pool, pool_rows, pool);
    quire_table_config table = QUIRE_TABLE_CONFIG_INIT;
    table.max_num_reqs = 2;
    table.max_num_blocks_per_req = 3;
    table.max_num_batched_tokens = 4;
    CHECK_CONFIG("", table, table_rows, table);
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    CHECK_CONFIG("", hasher, hasher_rows, hasher);
}

/* ---- cache, scheduler and monitor ------------------------------------------- */

static quire_group_config groups[MOST_GROUPS];
#define TYPE quire_cache_config
static const field CACHE_ROWS[] = {QR_FIELDS_quire_cache_config(N, R, F, A)};
#undef TYPE

static quire_cache_config good_cache(void)
{
    for (uint32_t g = 0; g < MOST_GROUPS; g++)
        groups[g] = (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                                  .block_size = 4,
                                                  .num_kv_heads = 1,
                                                  .head_size = 8,
                                                  .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_cache_config c = QUIRE_CACHE_CONFIG_INIT;
    c.num_blocks = 20;
    c.groups = groups;
    c.num_groups = 1;
    c.max_model_len = 48;
    c.max_requests = 4;
    return c;
}

static void caches(void **state)
{
    (void)state;
    quire_cache_config c = good_cache();
    CHECK_CONFIG("", cache, CACHE_ROWS, c);
    groups[0].is_eagle = 2;
    assert_int_equal(try_cache(&c), QUIRE_E_CONFIG);
    assert_string_equal(quire_refusal(), "groups[0]: invalid is_eagle 2 (expected 0..1)");
    groups[0].is_eagle = 0;
    c.groups = NULL;
    assert_int_equal(try_cache(&c), QUIRE_E_CONFIG);
}

static quire_sched_config sched_config;
static quire_cache_config sched_cache; /* of sched_config */

static int try_nested_cache(const void *config)
{
    sched_cache = *(const quire_cache_config *)config;
    return try_sched(&sched_config);
}

static size_t nested_cache_bytes(const void *config)
{
    sched_cache = *(const quire_cache_config *)config;
    return quire_sched_bytes(&sched_config);
}

static quire_monitor_config monitor_config = QUIRE_MONITOR_CONFIG_INIT;

static int try_nested_monitor(const void *config)
{
    (void)config;
    return try_sched(&sched_config);
}

static size_t nested_monitor_bytes(const void *config)
{
    (void)config;
    return quire_sched_bytes(&sched_config);
}

static void schedulers(void **state)
{
    (void)state;
#define TYPE quire_sched_config
    const field rows[] = {QR_FIELDS_quire_sched_config(N, R, F, A)};
#undef TYPE
#define TYPE quire_monitor_config
    const field monitor_rows[] = {QR_FIELDS_quire_monitor_config(N, R, F, A)};
#undef TYPE
    sched_config = (quire_sched_config)QUIRE_SCHED_CONFIG_INIT;
    sched_cache = good_cache();
    sched_config.cache = &sched_cache;
    sched_config.cache->enable_caching = QUIRE_OFF;
    sched_config.max_num_seqs = 2;
    sched_config.max_requests = 4;
    sched_config.max_text_tokens = 64;
    sched_config.max_request_bytes = 256;
    sched_config.max_encoder_items = 4;
    CHECK_CONFIG("", sched, rows, sched_config);
    quire_cache_config cache = sched_cache;
    check_all(&(subject){"cache: ", CACHE_ROWS, COUNT(CACHE_ROWS), &cache, sizeof cache,
                         nested_cache_bytes, try_nested_cache});
    sched_cache = cache;
    sched_config.monitor = &monitor_config;
    monitor_config.event_bytes = 4096;
    monitor_config.num_steps = 16;
    check_all(&(subject){"monitor: ", monitor_rows, COUNT(monitor_rows), &monitor_config,
                         sizeof monitor_config, nested_monitor_bytes, try_nested_monitor});
}

/* An older program has fewer fields; a newer one has more, which must be 0. */
static void a_nested_config_of_another_size(void **state)
{
    (void)state;
    sched_config = (quire_sched_config)QUIRE_SCHED_CONFIG_INIT;
    sched_cache = good_cache();
    sched_config.cache = &sched_cache;
    sched_config.cache->enable_caching = QUIRE_OFF;
    struct {
        quire_cache_config config;
        uint64_t newer;
    } larger = {sched_cache, 0};
    sched_config.cache = &larger.config;
    const struct {
        size_t size;
        uint64_t newer;
        bool is_ok;
    } cases[] = {{0, 0, false},
                 {8, 0, false}, /* no groups and no blocks */
                 {sizeof(quire_cache_config), 0, true},
                 {offsetof(quire_cache_config, hooks), 0, true},
                 {sizeof(quire_cache_config) + 8, 0, true},
                 {sizeof(quire_cache_config) + 8, 1, false}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        larger.config.size = cases[i].size;
        larger.newer = cases[i].newer;
        if ((quire_sched_bytes(&sched_config) > 0) != cases[i].is_ok)
            fail_msg("case %zu: %s", i, quire_refusal());
        assert_int_equal(try_sched(&sched_config), cases[i].is_ok ? QUIRE_OK : QUIRE_E_CONFIG);
    }
    sched_config.cache = NULL;
    assert_int_equal(try_sched(&sched_config), QUIRE_E_ARGUMENT);
    assert_string_equal(quire_refusal(), "cache: quire_cache_config is NULL");
}

static void what_is_no_hasher(void **state)
{
    (void)state;
    uint64_t zeros[64] = {0};
    sched_config = (quire_sched_config)QUIRE_SCHED_CONFIG_INIT;
    sched_cache = good_cache();
    sched_config.cache = &sched_cache;
    sched_config.hasher = (quire_hasher *)(void *)zeros;
    assert_int_equal(try_sched(&sched_config), QUIRE_E_CONFIG);
}

/* ---- layers ----------------------------------------------------------------- */

/* Fields of another kind do not count, whatever they hold. */
static void stray_fields_of_another_kind(void **state)
{
    (void)state;
    quire_cache_config c = good_cache();
    groups[0].spec.sink_len = 40; /* SINK_FULL */
    groups[0].spec.num_speculative_blocks = UINT32_MAX;
    groups[0].spec.mamba_mode = QUIRE_MAMBA_MODE_ALIGN;
    groups[0].spec.states[1].num_dims = UINT32_MAX;
    groups[0].spec.mla_cache = (quire_mla_cache)77;
    c.max_copies = 4;
    quire_cache *cache;
    assert_int_equal(quire_cache_create(&c, NULL, &cache), QUIRE_OK);
    quire_block_span sinks;
    sinks = inner_sinks(cache, 0);
    assert_int_equal(sinks.count, 0);
    assert_int_equal(quire_cache_get_usage(cache).active, 0);
    unsigned char hashes[12 * 32] = {0};
    quire_cache_request a = {.num_tokens = 8, .hashes = hashes, .num_hashes = 2};
    quire_cache_request b = {.num_tokens = 8, .hashes = hashes, .num_hashes = 2};
    hashes[32] = 1;
    const quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                          .num_new_tokens = 8};
    assert_int_equal(quire_cache_allocate_slots(cache, &a, &params, NULL), QUIRE_OK);
    assert_int_equal(quire_cache_fork(cache, &a, &b), QUIRE_OK); /* not with ALIGN */
    assert_int_equal(quire_cache_get_usage(cache).active, 2);
    assert_int_equal(quire_cache_check(cache), QUIRE_OK);
    quire_cache_destroy(cache);
    groups[0].spec.block_size = 0;
    assert_int_equal(quire_cache_create(&c, NULL, &cache), QUIRE_E_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_tables_and_hashers),
        cmocka_unit_test(caches),
        cmocka_unit_test(schedulers),
        cmocka_unit_test(a_nested_config_of_another_size),
        cmocka_unit_test(what_is_no_hasher),
        cmocka_unit_test(stray_fields_of_another_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tier/planner/test_planner_refused.c - configs and calls that a planner refuses. */
#include "base/unit.h"

#include <quire/planner.h>

enum { TOKENS = 16, SLOTS = 100, HASH = 32 };

static const quire_group_config FULL = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                 .block_size = TOKENS,
                                                 .num_kv_heads = 1,
                                                 .head_size = 8,
                                                 .dtype = QUIRE_DTYPE_FLOAT16}};
static quire_cache_config cache;
static quire_planner_config config;
static quire_planner_tier disk;

static void make_config(void)
{
    cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    cache.groups = &FULL;
    cache.num_groups = 1;
    cache.num_blocks = 50;
    cache.max_model_len = 40 * TOKENS;
    cache.hash_block_size = TOKENS;
    cache.digest_bytes = HASH;
    disk = (quire_planner_tier){.tier = {.label = "disk"}, .admit = QUIRE_ADMIT_ALL};
    config = (quire_planner_config)QUIRE_PLANNER_CONFIG_INIT;
    config.cache = &cache;
    config.num_slots = SLOTS;
    config.block_bytes = 32;
    config.max_requests = 64;
    config.num_ranks = 2;
    config.tiers = &disk;
    config.num_tiers = 1;
}

#define REFUSED(field, value, word)                                                                \
    do {                                                                                           \
        quire_planner_config wrong = config;                                                       \
        quire_planner *none = NULL;                                                                \
        wrong.field = value;                                                                       \
        assert_int_equal(quire_planner_create(&wrong, &none), QUIRE_E_CONFIG);                     \
        assert_non_null(strstr(quire_refusal(), word));                                            \
        assert_null(none);                                                                         \
    } while (0)

static void refused_configs(void **state)
{
    (void)state;
    quire_req req;
    make_config();
    config.event_user = &req;
    config.recompute_token_ns = 5;
    config.learns = QUIRE_OFF;
    config.shares_loads = QUIRE_OFF;
    config.holds_loads = QUIRE_OFF;
    disk.bytes_per_s = 1e9;
    disk.latency_ns = 1000;
    disk.unused = 0;
    REFUSED(size, 3, "size");
    REFUSED(num_slots, 1, "num_slots");
    REFUSED(block_bytes, UINT64_MAX, "block_bytes");
    REFUSED(max_requests, UINT32_MAX, "max_requests");
    REFUSED(num_ranks, QUIRE_TRANSFER_MAX_RANKS + 1, "num_ranks");
    REFUSED(num_tiers, QUIRE_TRANSFER_MAX_TIERS + 1, "num_tiers");
    REFUSED(tiers, NULL, "tiers");
    REFUSED(learns, QUIRE_OFF + 1, "learns");
    REFUSED(shares_loads, QUIRE_OFF + 1, "shares_loads");
    REFUSED(holds_loads, QUIRE_OFF + 1, "holds_loads");
    cache.digest_bytes = 0;
    REFUSED(num_slots, SLOTS, "digest_bytes");
    cache.digest_bytes = HASH;
    cache.groups = NULL;
    REFUSED(num_slots, SLOTS, "groups");
    make_config();
    config.max_requests = 2;
    quire_planner *p = NULL;
    assert_int_equal(quire_planner_create(&config, &p), QUIRE_OK);
    assert_int_equal(quire_planner_add(p, &req), QUIRE_OK);
    assert_int_equal(quire_planner_add(p, &req), QUIRE_OK);
    assert_int_equal(quire_planner_add(p, &req), QUIRE_FULL);
    assert_int_equal(quire_planner_finished(p, req), QUIRE_OK);
    assert_int_equal(quire_planner_add(p, &req), QUIRE_OK);
    quire_planner_request none = {.req = req, .num_hashes = 1};
    uint32_t n;
    quire_planner_out out;
    quire_block_span span = {NULL, 0};
    assert_int_equal(quire_planner_match(p, &none, 0, &n), QUIRE_E_ARGUMENT);
    none = (quire_planner_request){.req = req, .is_last = 2};
    assert_int_equal(quire_planner_computed(p, &none, &span, 0), QUIRE_E_ARGUMENT);
    none = (quire_planner_request){.req = req, .unused = 1};
    assert_int_equal(quire_planner_computed(p, &none, &span, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_planner_allocated(p, req, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_planner_report(p, (quire_bytes){"?", 1}), QUIRE_E_CORRUPT);
    quire_planner_destroy(p);
    quire_planner_destroy(NULL);
    assert_int_equal(quire_planner_create(NULL, &p), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_planner_plan(NULL, 1, 0, 0, &out), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_planner_check(NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_planner_has_pending(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_configs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

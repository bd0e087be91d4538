/* cache/test_diverge.c - hits for a connector that brings Mamba states, and events for hits. */
#include "base/inner.h"
#include "cache/cache_kit.h"

#include <string.h>

enum { FULL, STATES };

static quire_cache_config config_of(const quire_group_config *groups, uint32_t num_groups)
{
    quire_cache_config config = kit_config(groups, num_groups, 60);
    config.profile = QUIRE_PROFILE_VLLM_0_32;
    config.prefix_cache_retention_interval = QUIRE_RETAIN_ALL;
    return config;
}

static void evict_block(cache_kit *kit, const quire_block_span *spans, uint32_t group, uint32_t i)
{
    assert_int_equal(inner_evict(kit->cache, &spans[group].ids[i], 1), QUIRE_OK);
}

/* Looks up both ways, and compares. */
static void expect_hits(cache_kit *kit, const kit_request *q, uint32_t diverged, bool has_diverged,
                        uint32_t common)
{
    quire_block_span spans[KIT_MAX_GROUPS];
    uint32_t num_tokens = 99;
    bool is = !has_diverged;
    assert_int_equal(qr_cache_get_diverged_blocks(kit->cache, &q->r, spans, &num_tokens, &is),
                     QUIRE_OK);
    assert_int_equal(num_tokens, diverged);
    assert_int_equal(is, has_diverged);
    assert_int_equal(quire_cache_get_computed_blocks(kit->cache, &q->r, spans, &num_tokens),
                     QUIRE_OK);
    assert_int_equal(num_tokens, common);
}

static void full_groups_may_be_ahead(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), kit_mamba(4, QUIRE_MAMBA_MODE_NONE, 0)};
    quire_cache_config config = config_of(groups, 2);
    quire_block_span spans[KIT_MAX_GROUPS];
    uint32_t num_tokens;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaabbbbccccddddeeee");
    kit_prefill(&kit, &q);
    kit_free(&kit, &q);
    q.r.num_computed_tokens = 0;
    assert_int_equal(quire_cache_new_step_starts(kit.cache), QUIRE_OK);
    expect_hits(&kit, &q, 16, false, 16);
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, spans, &num_tokens),
                     QUIRE_OK);
    evict_block(&kit, spans, STATES, 3);
    expect_hits(&kit, &q, 16, true, 12);
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, spans, &num_tokens),
                     QUIRE_OK);
    evict_block(&kit, spans, FULL, 1); /* now a state is ahead: that is no hit */
    expect_hits(&kit, &q, 4, false, 4);
    q.r.skip_reading_prefix = 1;
    expect_hits(&kit, &q, 0, false, 0);
    kit_close(&kit);
}

/* A group without keys never has the hit: something must always be loaded. */
static void a_ring_always_lags(void **state)
{
    (void)state;
    quire_group_config groups[3] = {kit_full(4), kit_mamba(4, QUIRE_MAMBA_MODE_NONE, 0),
                                    kit_full(4)};
    groups[2].spec.kind = QUIRE_LAYER_CIRCULAR_BUFFER;
    quire_cache_config config = config_of(groups, 3);
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaabbbbccccddddeeee");
    expect_hits(&kit, &q, 0, false, 0);
    kit_prefill(&kit, &q);
    kit_free(&kit, &q);
    expect_hits(&kit, &q, 16, true, 16);
    kit_close(&kit);
}

static void other_models_agree(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), kit_window(4, 4)};
    quire_cache_config config = config_of(groups, 2);
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaabbbbccccddddeeee");
    kit_prefill(&kit, &q);
    expect_hits(&kit, &q, 16, false, 16);
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* ---- events for hits ----------------------------------------------------------- */

typedef struct reported {
    uint32_t num_events;
    uint32_t num_blocks[2];
    quire_block first[2];
    unsigned char hashes[2][8 * KIT_DIGEST];
    void *request;
} reported;

static void take_event(void *user, const quire_event *event)
{
    reported *r = user;
    if (event->kind != QUIRE_EVENT_REPORTED)
        return;
    assert_true(event->num_blocks <= 8 && event->first_block == 0 && event->parent.data == NULL);
    assert_int_equal(event->block_size, event->group_id == 0 ? 8 : 4);
    r->num_events++;
    r->num_blocks[event->group_id] = event->num_blocks;
    r->first[event->group_id] = event->blocks[0];
    memcpy(r->hashes[event->group_id], event->hashes, event->num_blocks * (size_t)KIT_DIGEST);
    r->request = event->request;
}

static void hits_are_reported(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(8), kit_window(4, 5)};
    quire_cache_config config = config_of(groups, 2);
    quire_block_span spans[KIT_MAX_GROUPS];
    uint32_t num_tokens;
    reported told = {0};
    cache_kit kit;
    kit_request q;
    config.on_event = take_event;
    config.event_user = &told;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaabbbbccccddddeeeeffff");
    q.r.user = &q;
    kit.cache->reports_hits = true;
    kit_prefill(&kit, &q);
    assert_int_equal(told.num_events, 0); /* no hit, no report */
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, spans, &num_tokens),
                     QUIRE_OK);
    assert_int_equal(num_tokens, 16);
    assert_int_equal(told.num_events, 2);
    assert_true(told.request == &q && told.num_blocks[0] == 2 && told.num_blocks[1] == 4);
    assert_int_equal(told.first[1], QUIRE_NULL_BLOCK);
    assert_memory_equal(told.hashes[1], q.hashes, 4 * KIT_DIGEST); /* null blocks have theirs */
    assert_memory_equal(told.hashes[0], q.hashes + KIT_DIGEST, KIT_DIGEST);
    assert_memory_equal(told.hashes[0] + KIT_DIGEST, q.hashes + 3 * KIT_DIGEST, KIT_DIGEST);
    kit.cache->reports_hits = false;
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, spans, &num_tokens),
                     QUIRE_OK);
    assert_int_equal(told.num_events, 2);
    kit_free(&kit, &q);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_groups_may_be_ahead),
        cmocka_unit_test(a_ring_always_lags),
        cmocka_unit_test(other_models_agree),
        cmocka_unit_test(hits_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cache/test_cache_reports.c - what a cache tells about itself: stats, events, new blocks,
 * pressure, sinks, common prefixes; and the watermark, which is about pressure too. */
#include "base/inner.h"
#include "cache/cache_kit.h"

static cache_kit open_full(uint32_t num_blocks)
{
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, num_blocks);
    config.max_model_len = 40;
    config.max_requests = 2;
    cache_kit kit;
    kit_open(&kit, &config);
    return kit;
}

/* ---- stats ------------------------------------------------------------------- */

static void stats_of_requests(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, 20);
    quire_prefix_stats stats;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    assert_int_equal(quire_cache_take_prefix_stats(kit.cache, &stats), QUIRE_E_DISABLED);
    kit_close(&kit);
    config.log_stats = QUIRE_ON;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_prefill(&kit, &q);
    kit_free(&kit, &q);
    q.r.was_preempted = 1;
    kit_prefill(&kit, &q);
    assert_int_equal(quire_cache_take_prefix_stats(kit.cache, &stats), QUIRE_OK);
    assert_true(stats.requests == 1 && stats.queries == 9 && stats.hits == 0);
    assert_true(stats.preempted_requests == 1 && stats.preempted_queries == 9 &&
                stats.preempted_hits == 8);
    assert_int_equal(stats.was_reset, 0);
    assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_BUSY);
    kit_free(&kit, &q);
    assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_OK);
    assert_int_equal(quire_cache_take_prefix_stats(kit.cache, &stats), QUIRE_OK);
    assert_true(stats.was_reset == 1 && stats.requests == 0 && stats.preempted_hits == 0);
    kit_close(&kit);
}

/* ---- events ------------------------------------------------------------------ */

typedef struct diary {
    char text[KIT_TEXT];
    size_t used;
} diary;

static void write_down(void *user, const quire_event *event)
{
    diary *d = user;
    const char *names[] = {"?", "stored", "removed", "cleared"};
    d->used += (size_t)snprintf(d->text + d->used, sizeof d->text - d->used, "%s",
                                names[event->kind <= 3 ? event->kind : 0]);
    for (uint32_t i = 0; i < event->num_blocks; i++)
        d->used += (size_t)snprintf(d->text + d->used, sizeof d->text - d->used, " %u",
                                    (unsigned)event->blocks[i]);
    d->used += (size_t)snprintf(d->text + d->used, sizeof d->text - d->used, "%s; ",
                                event->parent.data != NULL ? " with parent" : "");
    assert_true(d->used < sizeof d->text);
    for (uint32_t i = 0; event->kind == QUIRE_EVENT_STORED && i < event->num_blocks; i++)
        assert_non_null(event->hashes);
}

static void events_are_told_at_once_and_kept(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, 20);
    diary at_once = {"", 0};
    diary later = {"", 0};
    uint64_t lost = 7;
    cache_kit kit;
    kit_request q;
    char text[KIT_MAX_TOKENS] = "aaaabbbbccc";
    config.on_event = write_down;
    config.event_user = &at_once;
    config.event_log_bytes = 4096;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, text);
    kit_prefill(&kit, &q);
    kit_append(&kit, &q, text, 'c');
    assert_int_equal(kit_extend(&kit, &q, 1), QUIRE_OK);
    const quire_block second = 2;
    assert_int_equal(inner_evict(kit.cache, &second, 1), QUIRE_OK);
    kit_free(&kit, &q);
    assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_OK);
    assert_int_equal(quire_cache_take_events(kit.cache, write_down, &later, &lost), QUIRE_OK);
    assert_string_equal(later.text, "stored 1 2; stored 3 with parent; removed 2; cleared; ");
    assert_string_equal(later.text, at_once.text);
    assert_true(lost == 0);
    later.used = 0;
    later.text[0] = '\0';
    assert_int_equal(quire_cache_take_events(kit.cache, write_down, &later, NULL), QUIRE_OK);
    assert_string_equal(later.text, "");
    kit_close(&kit);
}

static void lost_events_are_counted(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, 20);
    diary d = {"", 0};
    uint64_t lost = 7;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    assert_int_equal(quire_cache_take_events(kit.cache, write_down, &d, &lost), QUIRE_E_DISABLED);
    kit_close(&kit);
    for (uint32_t bytes = 1; bytes < 700; bytes += 13) {
        config.event_log_bytes = bytes;
        kit_open(&kit, &config);
        for (int i = 0; i < 5; i++) {
            kit_request_init(&kit, &q, i % 2 == 0 ? "aaaabbbbc" : "xxxxyyyyz");
            kit_prefill(&kit, &q);
            kit_free(&kit, &q);
            assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_OK);
        }
        d.used = 0;
        d.text[0] = '\0';
        assert_int_equal(quire_cache_take_events(kit.cache, write_down, &d, &lost), QUIRE_OK);
        uint64_t seen = 0;
        for (const char *c = d.text; *c != '\0'; c++)
            seen += *c == ';';
        assert_int_equal(seen + lost, 10);
        assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_OK);
        assert_int_equal(quire_cache_take_events(kit.cache, write_down, &d, &lost), QUIRE_OK);
        assert_true(lost <= 1); /* the count starts anew */
        kit_close(&kit);
    }
}

/* ---- new blocks --------------------------------------------------------------- */

static void new_blocks_are_listed_group_by_group(void **state)
{
    (void)state;
    quire_group_config groups[] = {kit_window(4, 9), kit_full(4), kit_full(4),
                                   kit_mamba(4, QUIRE_MAMBA_MODE_NONE, 0)};
    groups[2].spec.head_size = 16;
    quire_cache_config config = kit_config(groups, 4, 30);
    cache_kit kit;
    kit_request q;
    quire_block_span ids;
    char text[KIT_MAX_TOKENS] = "aaaabbbbccc";
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, text);
    kit_prefill(&kit, &q);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3 | 4 5 6 | 7 8 9 | 10 11 12");
    kit_append(&kit, &q, text, 'c');
    kit_append(&kit, &q, text, 'd');
    assert_int_equal(kit_extend(&kit, &q, 2), QUIRE_OK);
    assert_int_equal(quire_cache_take_new_block_ids(kit.cache, &ids), QUIRE_OK);
    const quire_block wanted[] = {1, 2, 3, 13, 4, 5, 6, 14, 7, 8, 9, 15}; /* not the state's */
    assert_int_equal(ids.count, COUNT(wanted));
    assert_memory_equal(ids.ids, wanted, sizeof wanted);
    assert_int_equal(quire_cache_take_new_block_ids(kit.cache, &ids), QUIRE_OK);
    assert_int_equal(ids.count, 0);
    kit_close(&kit);
}

/* Nobody takes them for a long time: bounded, and no block that was taken is forgotten. */
static void new_blocks_that_nobody_takes(void **state)
{
    (void)state;
    enum { NUM_BLOCKS = 12 };
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, NUM_BLOCKS);
    config.track_new_blocks = QUIRE_ON;
    uint64_t random = 1;
    cache_kit kit;
    quire_block_span ids;
    kit_open(&kit, &config);
    for (int round = 0; round < 50; round++) {
        bool was_taken[NUM_BLOCKS] = {false};
        uint32_t lives = 1 + unit_random_below(&random, 60);
        for (uint32_t i = 0; i < lives; i++) {
            kit_request q;
            char text[] = "?aaabbbbccccddddeeee";
            text[0] = (char)('a' + (char)unit_random_below(&random, 20));
            text[1 + unit_random_below(&random, 19)] = '\0';
            kit_request_init(&kit, &q, text);
            q.r.skip_reading_prefix = 1;
            kit_prefill(&kit, &q);
            quire_block_span blocks;
            assert_int_equal(quire_cache_get_blocks(kit.cache, q.r.seq, &blocks), QUIRE_OK);
            for (uint32_t b = 0; b < blocks.count; b++)
                was_taken[blocks.ids[b]] = true;
            kit_free(&kit, &q);
        }
        assert_int_equal(quire_cache_take_new_block_ids(kit.cache, &ids), QUIRE_OK);
        assert_true(ids.count <= 2 * NUM_BLOCKS);
        for (uint32_t i = 0; i < ids.count; i++) {
            assert_true(ids.ids[i] > 0 && ids.ids[i] < NUM_BLOCKS);
            was_taken[ids.ids[i]] = false;
        }
        for (uint32_t b = 0; b < NUM_BLOCKS; b++)
            assert_false(was_taken[b]);
    }
    kit_close(&kit);
}

static void new_blocks_are_not_tracked_by_default(void **state)
{
    (void)state;
    cache_kit kit = open_full(10);
    kit_request q;
    quire_block_span ids = {NULL, 5};
    kit_request_init(&kit, &q, "aaaab");
    kit_prefill(&kit, &q);
    assert_int_equal(quire_cache_take_new_block_ids(kit.cache, &ids), QUIRE_OK);
    assert_int_equal(ids.count, 0);
    kit_close(&kit);
}

/* ---- pressure and watermark ---------------------------------------------------- */

static void assert_pressure(cache_kit *kit, uint32_t num_free, uint32_t admit, uint32_t preempt)
{
    quire_block taken[KIT_MAX_BLOCKS];
    quire_pressure p;
    uint32_t n = kit_fill(kit, num_free, taken);
    assert_int_equal(quire_cache_get_pressure(kit->cache, &p), QUIRE_OK);
    double level = 1.0 - (double)num_free / 100;
    assert_true(p.level > level - 1e-9 && p.level < level + 1e-9);
    assert_int_equal(p.should_admit, admit);
    assert_int_equal(p.should_preempt, preempt);
    kit_unfill(kit, taken, n);
}

static void pressure_has_hysteresis(void **state)
{
    (void)state;
    cache_kit kit = open_full(101);
    assert_pressure(&kit, 100, 1, 0);
    assert_pressure(&kit, 10, 1, 0); /* 0.90: was below, may go on */
    assert_pressure(&kit, 4, 0, 1);  /* 0.96 */
    assert_pressure(&kit, 10, 0, 0); /* 0.90: was above, not yet */
    assert_pressure(&kit, 21, 1, 0); /* 0.79 */
    assert_pressure(&kit, 10, 1, 0);
    assert_pressure(&kit, 0, 0, 1);
    assert_pressure(&kit, 100, 1, 0);
    kit_close(&kit);
}

static void watermark_keeps_blocks_from_new_requests(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, 20);
    config.watermark = 0.1; /* 2 blocks */
    cache_kit kit;
    kit_request q;
    kit_request late;
    quire_block taken[KIT_MAX_BLOCKS];
    const quire_allocate_params none = QUIRE_ALLOCATE_PARAMS_INIT;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_request_init(&kit, &late, "xxxxyyyyz");
    kit_prefill(&kit, &q);
    uint32_t n = kit_fill(&kit, 4, taken);
    assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &late.r, &none), QUIRE_NO_SPACE);
    quire_allocate_params one = {.size = sizeof(quire_allocate_params), .num_new_tokens = 1};
    assert_int_equal(quire_cache_can_allocate(kit.cache, &late.r, &one), QUIRE_OK);
    assert_int_equal(kit_try_prefill(&kit, &late), QUIRE_NO_SPACE); /* 3 of 4: leaves 1 */
    assert_int_equal(kit_extend(&kit, &q, 16), QUIRE_OK);           /* not new: may take the last */
    assert_int_equal(kit_num_free(&kit), 0);
    kit_unfill(&kit, taken, 5);
    quire_allocate_params whole = {
        .size = sizeof(quire_allocate_params), .num_new_tokens = 1, .full_sequence_must_fit = 1};
    assert_int_equal(quire_cache_can_allocate(kit.cache, &late.r, &whole), QUIRE_OK);
    assert_int_equal(kit_try_prefill(&kit, &late), QUIRE_OK);
    assert_int_equal(kit_num_free(&kit), 2);
    kit_unfill(&kit, taken + 5, n - 5);
    kit_close(&kit);
}

/* ---- sinks and common prefixes --------------------------------------------------- */

static void sinks_belong_to_their_group(void **state)
{
    (void)state;
    const quire_group_config groups[] = {kit_full(4), kit_sink(4, 12)};
    quire_cache_config config = kit_config(groups, 2, 20);
    quire_block_span sinks = {NULL, 9};
    cache_kit kit;
    kit_open(&kit, &config);
    sinks = inner_sinks(kit.cache, 0);
    assert_int_equal(sinks.count, 0);
    sinks = inner_sinks(kit.cache, 1);
    assert_int_equal(sinks.count, 3);
    assert_true(sinks.ids[0] == 1 && sinks.ids[1] == 2 && sinks.ids[2] == 3);
    assert_int_equal(kit_num_free(&kit), 16);
    assert_int_equal(quire_cache_get_usage(kit.cache).active, 3);
    kit_close(&kit);
}

static void common_prefix_of_all_requests(void **state)
{
    (void)state;
    const quire_group_config groups[] = {kit_window(4, 20), kit_full(4)};
    quire_cache_config config = kit_config(groups, 2, 40);
    cache_kit kit;
    kit_request q[3];
    uint32_t n[2] = {9, 9};
    kit_open(&kit, &config);
    kit_request_init(&kit, &q[0], "aaaabbbbccccd");
    kit_request_init(&kit, &q[1], "aaaabbbbcccce");
    kit_request_init(&kit, &q[2], "aaaabbbbx");
    kit_prefill(&kit, &q[0]);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(kit.cache, q[0].r.seq, n), QUIRE_OK);
    assert_true(n[0] == 0 && n[1] == 4); /* alone, it shares all with everybody */
    kit_prefill(&kit, &q[1]);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(kit.cache, q[0].r.seq, n), QUIRE_OK);
    assert_true(n[0] == 0 && n[1] == 3);
    kit_prefill(&kit, &q[2]);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(kit.cache, q[1].r.seq, n), QUIRE_OK);
    assert_true(n[0] == 0 && n[1] == 2);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_of_requests),
        cmocka_unit_test(events_are_told_at_once_and_kept),
        cmocka_unit_test(lost_events_are_counted),
        cmocka_unit_test(new_blocks_are_listed_group_by_group),
        cmocka_unit_test(new_blocks_that_nobody_takes),
        cmocka_unit_test(new_blocks_are_not_tracked_by_default),
        cmocka_unit_test(pressure_has_hysteresis),
        cmocka_unit_test(watermark_keeps_blocks_from_new_requests),
        cmocka_unit_test(sinks_belong_to_their_group),
        cmocka_unit_test(common_prefix_of_all_requests),
    };
    return cmocka_run_group_tests_name("cache_reports", tests, NULL, NULL);
}

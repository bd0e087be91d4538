/* tier/peer/test_engines.c - engines that share host memory: what one has computed, another loads
 * through its lower tiers; what the CPU pool gives to other blocks, resets or renames is not
 * offered any more. The "model" knows what belongs into each block, and looks before it uses
 * one. */
#include "engine.h"

enum { NUM_PROMPTS = 6 };

static void run_prompts(peer_engine *e)
{
    for (uint32_t p = 0; p < NUM_PROMPTS; p++)
        peer_engine_run(e, p);
}

/* ---- tests ------------------------------------------------------------------- */

/* B computes nothing of what A has; C gets it from B, which loaded it. Nobody stores to a peer. */
static void a_prefix_comes_from_another_engines_host_memory(void **state)
{
    (void)state;
    peer_engine a = {.num_cpu = 101};
    peer_engine b = {.num_cpu = 101, .sources = {&a}};
    peer_engine c = {.num_cpu = 101, .sources = {&b}};
    peer_engine_open(&a);
    run_prompts(&a);
    assert_int_equal(peer_engine_served(&a).offered, NUM_PROMPTS * PEER_PROMPT_BLOCKS);
    peer_engine_open(&b);
    run_prompts(&b);
    quire_offload_stats stats = peer_engine_stats(&b);
    assert_int_equal(stats.tiers[0].hit_tokens, NUM_PROMPTS * PEER_PROMPT_BLOCKS * PEER_BLOCK_SIZE);
    assert_int_equal(stats.tiers[0].promoted_blocks, NUM_PROMPTS * PEER_PROMPT_BLOCKS);
    assert_int_equal(stats.tiers[0].stored_blocks + stats.tiers[0].failed_blocks +
                         stats.tiers[0].dropped_blocks + stats.tiers[0].not_admitted,
                     0);
    assert_int_equal(peer_engine_served(&a).blocks_sent, NUM_PROMPTS * PEER_PROMPT_BLOCKS);
    assert_int_equal(peer_engine_served(&b).offered, NUM_PROMPTS * PEER_PROMPT_BLOCKS);
    peer_engine_open(&c);
    run_prompts(&c);
    assert_int_equal(peer_engine_stats(&c).tiers[0].hit_tokens,
                     NUM_PROMPTS * PEER_PROMPT_BLOCKS * PEER_BLOCK_SIZE);
    peer_engine_close(&c);
    peer_engine_close(&b);
    peer_engine_close(&a);
}

/* Host memory for two prompts: the blocks of the first are withdrawn before the third is written
 * there, by stores (A) and by loads (B, which has nothing to store). */
static void blocks_are_withdrawn_before_their_memory_is_written(void **state)
{
    (void)state;
    peer_engine large = {.num_cpu = 101};
    peer_engine a = {.num_cpu = 2 * PEER_PROMPT_BLOCKS + 1};
    peer_engine b = {.num_cpu = 2 * PEER_PROMPT_BLOCKS + 1, .sources = {&large}};
    peer_engine_open(&large);
    run_prompts(&large);
    peer_engine_open(&a);
    peer_engine_open(&b);
    peer_engine *const both[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        peer_engine_run(both[i], 0);
        peer_engine_run(both[i], 1);
        assert_int_equal(peer_engine_served(both[i]).offered, 2 * PEER_PROMPT_BLOCKS);
        both[i]->least_offered = UINT64_MAX;
        peer_engine_run(both[i], 2);
        assert_true(both[i]->least_offered < 2 * PEER_PROMPT_BLOCKS);
        assert_int_equal(peer_engine_served(both[i]).offered, 2 * PEER_PROMPT_BLOCKS);
    }
    assert_int_equal(peer_engine_stats(&b).tiers[0].promoted_blocks, 3 * PEER_PROMPT_BLOCKS);
    assert_int_equal(peer_engine_stats(&b).stored_blocks, 0);
    peer_engine_close(&b);
    peer_engine_close(&a);
    peer_engine_close(&large);
}

/* A's host memory has room for two prompts, and goes on to others while B loads. */
static void evicted_blocks_are_not_offered(void **state)
{
    for (int mode = 0; mode < 2; mode++) {
        (void)state;
        peer_engine a = {.num_cpu = 22,
                         .mode = mode == 0 ? QUIRE_OFFLOAD_EAGER : QUIRE_OFFLOAD_LAZY};
        peer_engine b = {.num_cpu = 22, .sources = {&a}, .mode = a.mode};
        peer_engine_open(&a);
        peer_engine_open(&b);
        for (uint32_t round = 0; round < 40; round++) {
            peer_engine_run(&a, round * 7 % NUM_PROMPTS);
            peer_engine_run(&b, round * 5 % NUM_PROMPTS);
            assert_true(peer_engine_served(&a).offered <= a.num_cpu - 1);
        }
        assert_true(peer_engine_served(&a).blocks_sent > 0);
        assert_true(peer_engine_stats(&b).tiers[0].hit_tokens > 0);
        peer_engine_close(&b);
        peer_engine_close(&a);
    }
}

/* ---- events of a peer -------------------------------------------------------- */

typedef struct told {
    uint32_t num_stored;
    uint32_t num_removed;
    uint8_t is_held[NUM_PROMPTS * PEER_PROMPT_BLOCKS + 1]; /* by block */
} told;

static void take_told(quire_reader *reader, told *t)
{
    quire_feed_event e = QUIRE_FEED_EVENT_INIT;
    while (quire_reader_next(reader, &e) == QUIRE_OK) {
        if (e.kind > QUIRE_FEED_REMOVED || strcmp(e.medium, "PEER") != 0)
            continue;
        assert_int_equal(e.num_blocks, 1);
        assert_true(e.blocks[0] < sizeof t->is_held);
        bool is_stored = e.kind == QUIRE_FEED_STORED;
        assert_int_equal(t->is_held[e.blocks[0]], !is_stored); /* in this order for each block */
        t->is_held[e.blocks[0]] = is_stored;
        *(is_stored ? &t->num_stored : &t->num_removed) += 1;
    }
}

static quire_usage peer_usage(const peer_engine *e)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(quire_tier_get_stats(e->tiers[0], &stats), QUIRE_OK);
    const quire_usage *u = &stats.usage;
    assert_int_equal(u->total, u->empty + u->cached + u->active + u->null_blocks);
    return stats.usage;
}

/* What B has seen of A's memory is told as medium PEER, and as removed when A has it no more. */
static void what_a_peer_has_is_told(void **state)
{
    (void)state;
    peer_engine a = {.num_cpu = 3 * PEER_PROMPT_BLOCKS + 1};
    peer_engine b = {.num_cpu = 2 * PEER_PROMPT_BLOCKS + 1,
                     .sources = {&a},
                     .has_events = true,
                     .event_keys = NUM_PROMPTS * PEER_PROMPT_BLOCKS};
    told t = {0};
    quire_reader *reader;
    peer_engine_open(&a);
    peer_engine_open(&b);
    assert_int_equal(quire_reader_create(quire_sched_get_monitor(b.sched), NULL, &reader),
                     QUIRE_OK);
    for (uint32_t p = 0; p < 3; p++)
        peer_engine_run(&a, p);
    for (uint32_t p = 0; p < 3; p++)
        peer_engine_run(&b, p);
    take_told(reader, &t);
    assert_int_equal(t.num_stored, 3 * PEER_PROMPT_BLOCKS);
    assert_int_equal(t.num_removed, 0);
    assert_int_equal(peer_usage(&b).cached, 3 * PEER_PROMPT_BLOCKS);
    for (uint32_t p = 3; p < NUM_PROMPTS; p++) /* A's memory has others now */
        peer_engine_run(&a, p);
    peer_engine_run(&b, 0); /* B's own host memory has had two other prompts since */
    take_told(reader, &t);
    assert_true(t.num_removed > 0); /* it was looked for, and not found */
    assert_int_equal(peer_usage(&b).cached, t.num_stored - t.num_removed);
    quire_reader_destroy(reader);
    peer_engine_close(&b); /* closes the tier before the offload */
    peer_engine_close(&a);
}

static void a_reset_and_a_new_identity_withdraw_all(void **state)
{
    (void)state;
    static const unsigned char other[QUIRE_FINGERPRINT_BYTES] = {2};
    peer_engine a = {.num_cpu = 101};
    peer_engine b = {.num_cpu = 101, .sources = {&a}};
    peer_engine_open(&a);
    peer_engine_open(&b);
    run_prompts(&a);
    assert_true(peer_engine_served(&a).offered > 0);
    assert_int_equal(quire_sched_reset_prefix_cache(a.sched, 0, 1), QUIRE_OK);
    assert_int_equal(peer_engine_served(&a).offered, 0);
    run_prompts(&a);
    assert_true(peer_engine_served(&a).offered > 0);
    assert_int_equal(quire_offload_set_identity(a.offload, other), QUIRE_OK);
    assert_int_equal(peer_engine_served(&a).offered, 0);
    assert_int_equal(quire_sched_reset_prefix_cache(a.sched, 0, 0), QUIRE_OK);
    run_prompts(&a); /* the same keys, under another identity */
    assert_true(peer_engine_served(&a).offered > 0);
    peer_engine_run(&b, 0);
    assert_int_equal(peer_engine_stats(&b).tiers[0].hit_tokens, 0);
    assert_int_equal(peer_engine_served(&a).blocks_sent, 0);
    assert_int_equal(quire_offload_set_identity(b.offload, other), QUIRE_OK);
    peer_engine_run(&b, 1);
    assert_int_equal(peer_engine_stats(&b).tiers[0].hit_tokens,
                     PEER_PROMPT_BLOCKS * PEER_BLOCK_SIZE);
    peer_engine_close(&b);
    peer_engine_close(&a);
}

static void the_server_must_fit(void **state)
{
    (void)state;
    peer_engine e = {.num_cpu = 30};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    static unsigned char memory[31 * PEER_BLOCK_BYTES];
    peer_engine_set(&e, &config);
    peer_engine_serve(&e);
    quire_offload_config good = QUIRE_OFFLOAD_CONFIG_INIT;
    good.sched = &config;
    good.num_cpu_blocks = 30;
    good.memory = memory;
    good.block_bytes = PEER_BLOCK_BYTES;
    good.peer_server = e.server;
    assert_true(quire_offload_bytes(&good) > 0);
    quire_offload_config c = good;
    c.num_cpu_blocks = 31;
    assert_int_equal(quire_offload_create(&c, NULL, &e.offload), QUIRE_E_CONFIG);
    c = good;
    c.block_bytes = PEER_BLOCK_BYTES + 1;
    assert_int_equal(quire_offload_create(&c, NULL, &e.offload), QUIRE_E_CONFIG);
    c = good;
    c.memory = NULL;
    assert_int_equal(quire_offload_create(&c, NULL, &e.offload), QUIRE_E_CONFIG);
    assert_int_equal(quire_peer_server_close(e.server), QUIRE_OK);
    quire_hasher_destroy(e.hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_comes_from_another_engines_host_memory),
        cmocka_unit_test(blocks_are_withdrawn_before_their_memory_is_written),
        cmocka_unit_test(evicted_blocks_are_not_offered),
        cmocka_unit_test(what_a_peer_has_is_told),
        cmocka_unit_test(a_reset_and_a_new_identity_withdraw_all),
        cmocka_unit_test(the_server_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

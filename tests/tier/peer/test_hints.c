/* tier/peer/test_hints.c - the table of hints beside a naive one; and of two peers the one is asked
 * whose events name the block: real engines, publishers and subscribers. */
#include "engine.h"

#include "tier/peer/hints.h"

#include <quire/events.h>
#include <quire/wire.h>

enum { NUM_HASHES = 60, HASH_BYTES = 16, MAX_HINTS = 40 };

/* ---- the table --------------------------------------------------------------- */

static quire_bytes hash_of(uint32_t n, unsigned char bytes[HASH_BYTES])
{
    uint64_t random = n;
    for (uint32_t i = 0; i < HASH_BYTES; i++)
        bytes[i] = (unsigned char)unit_random_below(&random, 256);
    return (quire_bytes){bytes, HASH_BYTES};
}

static void compare(const qr_peer_hints *hints, const uint32_t *counts)
{
    uint32_t num = 0;
    uint32_t num_absent = 0;
    for (uint32_t i = 0; i < NUM_HASHES; i++) {
        unsigned char bytes[HASH_BYTES];
        quire_tier_key key;
        uint8_t found = 9;
        quire_tier_key_of(hash_of(i, bytes), i % 3, i % 2, &key);
        num_absent += qr_peer_hints_lookup(hints, &key, 1, &found);
        assert_int_equal(found, counts[i] > 0 ? 1 : 0);
        num += counts[i] > 0;
    }
    assert_int_equal(num, hints->num);
    assert_int_equal(num + num_absent, NUM_HASHES);
}

static void the_table_is_a_multiset(void **state)
{
    (void)state;
    uint64_t random = 11;
    qr_peer_hints hints = {0};
    uint32_t counts[NUM_HASHES] = {0};
    assert_int_equal(qr_peer_hints_open(&hints, NUM_HASHES, 77), QUIRE_OK);
    qr_peer_hints_set_whole(&hints, true);
    for (uint32_t n = 0; n < 20000; n++) {
        unsigned char bytes[HASH_BYTES];
        uint32_t which = unit_random_below(&random, NUM_HASHES);
        quire_bytes hash = hash_of(which, bytes);
        uint32_t dice = unit_random_below(&random, 1000);
        if (dice == 0) {
            qr_peer_hints_clear(&hints);
            memset(counts, 0, sizeof counts);
        } else if (dice < 480) {
            assert_int_equal(qr_peer_hints_add(&hints, hash), QUIRE_OK);
            counts[which]++;
        } else {
            qr_peer_hints_remove(&hints, hash); /* also what is not there */
            counts[which] -= counts[which] > 0;
        }
        if (n % 16 == 0)
            compare(&hints, counts);
    }
    qr_peer_hints_close(&hints);
}

/* Without all blocks of the peer nothing can be said about the others. */
static void what_is_not_whole_is_asked(void **state)
{
    (void)state;
    qr_peer_hints hints = {0};
    unsigned char bytes[HASH_BYTES];
    quire_tier_key key;
    uint8_t found = 9;
    quire_tier_key_of(hash_of(NUM_HASHES, bytes), 0, 0, &key);
    assert_int_equal(qr_peer_hints_lookup(&hints, &key, 1, &found), 0);
    assert_int_equal(found, 2);
    assert_int_equal(qr_peer_hints_open(&hints, MAX_HINTS, 5), QUIRE_OK);
    assert_int_equal(qr_peer_hints_lookup(&hints, &key, 1, &found), 0);
    assert_int_equal(found, 2);
    qr_peer_hints_set_whole(&hints, true);
    for (uint32_t i = 0; i < MAX_HINTS; i++)
        assert_int_equal(qr_peer_hints_add(&hints, hash_of(i, bytes)), QUIRE_OK);
    assert_int_equal(qr_peer_hints_lookup(&hints, &key, 1, &found), 1);
    assert_int_equal(found, 0);
    assert_int_equal(qr_peer_hints_add(&hints, hash_of(0, bytes)), QUIRE_OK);
    assert_int_equal(qr_peer_hints_add(&hints, hash_of(MAX_HINTS, bytes)), QUIRE_FULL);
    assert_int_equal(qr_peer_hints_lookup(&hints, &key, 1, &found), 0);
    assert_int_equal(found, 2);
    qr_peer_hints_close(&hints);
}

/* ---- events ------------------------------------------------------------------ */

static void events_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    unsigned char bytes[HASH_BYTES];
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {1};
    quire_tier_peer *peer = NULL;
    quire_tier_peer_config config = QUIRE_TIER_PEER_CONFIG_INIT;
    config.server = "127.0.0.1:1";
    config.fingerprint = fingerprint;
    config.secret = "sixteen letters!";
    config.max_hints = (1u << 26) + 1;
    assert_int_equal(quire_tier_peer_create(&config, 1, NULL, &peer), QUIRE_E_CONFIG);
    assert_string_equal(quire_refusal(), "invalid max_hints (expected at most 2^26, 67,108,864)");
    quire_wire_hash hash = {.bytes = hash_of(1, bytes)};
    quire_wire_event event = {.size = sizeof(quire_wire_event),
                              .kind = QUIRE_WIRE_STORED,
                              .hashes = &hash,
                              .num_hashes = 1,
                              .medium = {"CPU", 3}};
    config.max_hints = 0;
    assert_int_equal(quire_tier_peer_create(&config, 1, NULL, &peer), QUIRE_OK);
    assert_int_equal(quire_tier_peer_take_event(peer, &event), QUIRE_E_DISABLED);
    assert_int_equal(quire_tier_peer_set_whole(peer, 1), QUIRE_E_DISABLED);
    quire_tier_peer_ops()->close(peer);
    config.max_hints = 1;
    assert_int_equal(quire_tier_peer_create(&config, 1, NULL, &peer), QUIRE_OK);
    quire_tier_peer_stats stats = QUIRE_TIER_PEER_STATS_INIT;
    assert_int_equal(quire_tier_peer_take_event(NULL, &event), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_tier_peer_take_event(peer, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_tier_peer_set_whole(NULL, 1), QUIRE_E_ARGUMENT);
    event.medium = (quire_bytes){"GPU", 3};
    assert_int_equal(quire_tier_peer_take_event(peer, &event), QUIRE_OK);
    assert_int_equal(quire_tier_peer_get_stats(peer, &stats), QUIRE_OK);
    assert_int_equal(stats.hints, 0);
    event.medium = (quire_bytes){"CPU", 3};
    hash = (quire_wire_hash){.number = 7};
    assert_int_equal(quire_tier_peer_take_event(peer, &event), QUIRE_E_ARGUMENT);
    hash = (quire_wire_hash){.bytes = hash_of(1, bytes)};
    assert_int_equal(quire_tier_peer_take_event(peer, &event), QUIRE_OK);
    hash.bytes = hash_of(2, bytes);
    assert_int_equal(quire_tier_peer_take_event(peer, &event), QUIRE_FULL);
    assert_int_equal(quire_tier_peer_get_stats(peer, &stats), QUIRE_OK);
    assert_int_equal(stats.hints, 1);
    event = (quire_wire_event){.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    assert_int_equal(quire_tier_peer_take_event(peer, &event), QUIRE_OK);
    assert_int_equal(quire_tier_peer_get_stats(peer, &stats), QUIRE_OK);
    assert_int_equal(stats.hints, 0);
    quire_tier_peer_ops()->close(peer);
}

/* ---- engines ------------------------------------------------------------------- */

typedef struct listener {
    quire_publisher *publisher;
    quire_subscriber *subscriber;
    quire_tier_peer *peer;
    bool is_whole;
} listener;

static void listen_to(listener *l, const peer_engine *from, quire_tier_peer *peer)
{
    quire_publisher_config publisher = QUIRE_PUBLISHER_CONFIG_INIT;
    publisher.monitor = quire_sched_get_monitor(from->sched);
    publisher.endpoint = "tcp://127.0.0.1:*";
    publisher.replay_endpoint = "tcp://127.0.0.1:*";
    publisher.hashes_as_bytes = 1;
    assert_int_equal(quire_publisher_create(&publisher, &l->publisher), QUIRE_OK);
    quire_subscriber_config subscriber = QUIRE_SUBSCRIBER_CONFIG_INIT;
    subscriber.endpoint = quire_publisher_endpoint(l->publisher);
    subscriber.replay_endpoint = quire_publisher_replay_endpoint(l->publisher);
    assert_int_equal(quire_subscriber_create(&subscriber, &l->subscriber), QUIRE_OK);
    l->peer = peer;
}

/* What a thread that reads events does. */
static void hear(listener *l)
{
    quire_delivery d = QUIRE_DELIVERY_INIT;
    int status = quire_subscriber_next(l->subscriber, 50, &d);
    if (status == QUIRE_RETRY)
        return;
    assert_int_equal(status, QUIRE_OK);
    bool is_lost = d.kind == QUIRE_DELIVERY_GAP || d.kind == QUIRE_DELIVERY_RESTART;
    if (is_lost) {
        assert_int_equal(quire_tier_peer_set_whole(l->peer, 0), QUIRE_OK);
        l->is_whole = false;
    }
    for (uint32_t i = 0; i < d.batch.num_events; i++)
        assert_int_equal(quire_tier_peer_take_event(l->peer, quire_wire_get(d.events, i)),
                         QUIRE_OK);
    if (d.kind == QUIRE_DELIVERY_WHOLE || (!is_lost && d.number == 0)) {
        assert_int_equal(quire_tier_peer_set_whole(l->peer, 1), QUIRE_OK);
        l->is_whole = true;
    }
}

static quire_tier_peer_stats stats_of(const quire_tier_peer *peer)
{
    quire_tier_peer_stats stats = QUIRE_TIER_PEER_STATS_INIT;
    assert_int_equal(quire_tier_peer_get_stats(peer, &stats), QUIRE_OK);
    return stats;
}

static void hear_until(listener *l, uint64_t num_hints)
{
    for (uint32_t tries = 0; !l->is_whole || stats_of(l->peer).hints != num_hints; tries++) {
        assert_true(tries < 200);
        hear(l);
    }
}

static void stop_listening(listener *l)
{
    quire_subscriber_destroy(l->subscriber);
    quire_publisher_destroy(l->publisher);
}

static uint64_t questions_to(const peer_engine *e)
{
    quire_peer_server_stats stats = peer_engine_served(e);
    return stats.keys_found + stats.keys_missing + stats.blocks_sent + stats.blocks_missing;
}

/* Odd prompts are A's, even ones are B's, prompt 5 is nobody's. C hears of both. */
static void the_peer_that_has_it_is_asked(void **state)
{
    (void)state;
    peer_engine a = {.num_cpu = 101, .has_events = true};
    peer_engine b = {.num_cpu = 101, .has_events = true};
    peer_engine c = {.num_cpu = 101, .sources = {&a, &b}, .max_hints = 200};
    listener to_a = {0};
    listener to_b = {0};
    peer_engine_open(&a);
    peer_engine_open(&b);
    peer_engine_open(&c);
    peer_engine_run(&a, 1);
    peer_engine_run(&b, 2);
    peer_engine_run(&c, 2); /* no events yet: A, the first, is asked before B is */
    assert_true(peer_engine_served(&a).keys_missing > 0);
    assert_int_equal(peer_engine_stats(&c).tiers[1].promoted_blocks, PEER_PROMPT_BLOCKS);

    listen_to(&to_a, &a, c.peers[0]);
    listen_to(&to_b, &b, c.peers[1]);
    peer_engine_run(&a, 3);
    peer_engine_run(&b, 4);
    hear_until(&to_a, 2 * PEER_PROMPT_BLOCKS);
    hear_until(&to_b, 2 * PEER_PROMPT_BLOCKS);
    uint64_t asked_a = questions_to(&a);
    uint64_t asked_b = questions_to(&b);
    assert_int_equal(stats_of(c.peers[0]).not_asked, 0);
    peer_engine_run(&c, 4);
    assert_int_equal(questions_to(&a), asked_a); /* B has it: A is not asked */
    assert_true(stats_of(c.peers[0]).not_asked > 0);
    assert_true(questions_to(&b) > asked_b);
    assert_int_equal(peer_engine_stats(&c).tiers[1].promoted_blocks, 2 * PEER_PROMPT_BLOCKS);
    asked_b = questions_to(&b);
    peer_engine_run(&c, 3);
    assert_int_equal(questions_to(&b), asked_b);
    assert_int_equal(peer_engine_stats(&c).tiers[0].promoted_blocks, PEER_PROMPT_BLOCKS);
    asked_a = questions_to(&a);
    peer_engine_run(&c, 5); /* nobody is asked */
    assert_int_equal(questions_to(&a), asked_a);
    assert_int_equal(questions_to(&b), asked_b);

    /* B forgets before C hears of it: B's own answer counts. */
    peer_engine_run(&b, 6);
    hear_until(&to_b, 3 * PEER_PROMPT_BLOCKS);
    assert_int_equal(quire_sched_reset_prefix_cache(b.sched, 0, 1), QUIRE_OK);
    peer_engine_run(&c, 6);
    assert_true(peer_engine_served(&b).blocks_missing > 0);
    assert_int_equal(peer_engine_stats(&c).tiers[1].promoted_blocks, 2 * PEER_PROMPT_BLOCKS);
    asked_b = questions_to(&b);

    /* A forgets, and tells: it is not asked any more for what it had. */
    assert_int_equal(quire_sched_reset_prefix_cache(a.sched, 0, 1), QUIRE_OK);
    peer_engine_run(&a, 0);
    hear_until(&to_a, PEER_PROMPT_BLOCKS);
    assert_int_equal(quire_tier_peer_set_whole(c.peers[1], 0), QUIRE_OK); /* a gap in B's */
    asked_a = questions_to(&a);
    peer_engine_run(&c, 1);
    assert_int_equal(questions_to(&a), asked_a);
    assert_true(questions_to(&b) > asked_b); /* of B nothing is known: it is asked */
    stop_listening(&to_a);
    stop_listening(&to_b);
    peer_engine_close(&c);
    peer_engine_close(&b);
    peer_engine_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_a_multiset),
        cmocka_unit_test(what_is_not_whole_is_asked),
        cmocka_unit_test(events_that_do_not_fit_are_refused),
        cmocka_unit_test(the_peer_that_has_it_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

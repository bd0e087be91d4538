/* tier/peer/test_hints.c - of two peers the one is asked whose events name the block: real engines,
 * publishers and subscribers. The table itself: test_hint_table.c. */
#include "engine.h"

#include <quire/events.h>
#include <quire/wire.h>

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
        cmocka_unit_test(the_peer_that_has_it_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

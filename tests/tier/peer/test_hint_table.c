/* tier/peer/test_hint_table.c - the table of hints beside a naive one; events that it is made of;
 * and what the tier says of keys that they name. */
#include "peer_kit.h"

#include "tier/peer/hints.h"

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

/* ---- lookups --------------------------------------------------------------------- */

/* 0: not there, 1: there, 2: the peer is to be asked. */
static void expect_lookup(quire_tier *tier, int named, int other)
{
    unsigned char bytes[HASH_BYTES];
    quire_tier_key keys[2];
    uint8_t found[2] = {9, 9};
    for (uint32_t i = 0; i < 2; i++)
        quire_tier_key_of(hash_of(i, bytes), 0, 0, &keys[i]);
    assert_int_equal(quire_tier_lookup(tier, keys, 2, found), QUIRE_OK);
    assert_int_equal(found[0], named);
    assert_int_equal(found[1], other);
}

/* The tier says what it knows from events while these name all, and asks where they do not. */
static void lookups_follow_what_is_whole(void **state)
{
    (void)state;
    unsigned char bytes[HASH_BYTES];
    quire_wire_hash hash = {.bytes = hash_of(0, bytes)};
    quire_wire_event event = {.size = sizeof(quire_wire_event),
                              .kind = QUIRE_WIRE_STORED,
                              .hashes = &hash,
                              .num_hashes = 1,
                              .medium = {"CPU", 3}};
    peer_kit k = {.config = {.server = "127.0.0.1:1", .max_hints = MAX_HINTS}, .bytes = 100};
    assert_int_equal(peer_connect(&k), QUIRE_OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(quire_tier_peer_take_event(k.peer, &event), QUIRE_OK);
        expect_lookup(k.tier, 2, 2);
        assert_int_equal(quire_tier_peer_set_whole(k.peer, 1), QUIRE_OK);
        expect_lookup(k.tier, 1, 0);
        assert_int_equal(peer_stats(&k).not_asked, 1 + round);
        assert_int_equal(peer_stats(&k).hints, 1);
        assert_int_equal(quire_tier_peer_set_whole(k.peer, 0), QUIRE_OK);
        expect_lookup(k.tier, 2, 2);
        assert_int_equal(peer_stats(&k).hints, 0);
    }
    peer_leave(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_a_multiset),
        cmocka_unit_test(what_is_not_whole_is_asked),
        cmocka_unit_test(events_that_do_not_fit_are_refused),
        cmocka_unit_test(lookups_follow_what_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

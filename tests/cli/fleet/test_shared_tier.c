/* cli/fleet/test_shared_tier.c - the shared tier against a list of keys, and its transfers.
 *
 *      test_shared_tier [SEED]
 */
#include "base/unit.h"
#include "fleet/shared_tier.h"
#include "output/failure.h"

#include <math.h>

enum { PLACES = 7, MAX_KEYS = 24, NUM_STEPS = 100000 };

static uint64_t seed;

static shared_tier *create(uint64_t places)
{
    shared_tier_config config = {.capacity_bytes =
                                     places * 100 + 99, /* a part of a block is no place */
                                 .block_bytes = 100,
                                 .load_link = LINKS_NONE,
                                 .store_link = LINKS_NONE,
                                 .client_link = LINKS_NONE};
    shared_tier *t = shared_tier_create(&config);
    if (t == NULL)
        fail_msg("%s", failure());
    return t;
}

/* ---- the list ---------------------------------------------------------------------- */

/* Stored keys, oldest first, and keys on their way. */
typedef struct model {
    uint64_t stored[PLACES];
    uint32_t num_stored;
    uint64_t coming[PLACES];
    uint32_t num_coming;
} model;

static uint32_t index_of(const uint64_t *keys, uint32_t n, uint64_t key)
{
    uint32_t i = 0;
    while (i < n && keys[i] != key)
        i++;
    return i;
}

static void take_out(uint64_t *keys, uint32_t *n, uint32_t i)
{
    (*n)--;
    memmove(keys + i, keys + i + 1, (*n - i) * sizeof *keys);
}

static uint32_t model_find(const model *m, const uint64_t *keys, uint32_t n)
{
    uint32_t found = 0;
    while (found < n && index_of(m->stored, m->num_stored, keys[found]) < m->num_stored)
        found++;
    return found;
}

static void model_use(model *m, const uint64_t *keys, uint32_t n)
{
    while (n-- > 0) {
        uint32_t i = index_of(m->stored, m->num_stored, keys[n]);
        if (i == m->num_stored)
            continue;
        take_out(m->stored, &m->num_stored, i);
        m->stored[m->num_stored++] = keys[n];
    }
}

static uint32_t model_begin(model *m, const uint64_t *keys, uint32_t n, uint64_t *added)
{
    uint32_t num = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (index_of(m->stored, m->num_stored, keys[k]) < m->num_stored ||
            index_of(m->coming, m->num_coming, keys[k]) < m->num_coming)
            continue;
        if (m->num_coming == PLACES)
            continue;
        if (m->num_stored + m->num_coming == PLACES)
            take_out(m->stored, &m->num_stored, 0);
        m->coming[m->num_coming++] = keys[k];
        added[num++] = keys[k];
    }
    return num;
}

static void model_end(model *m, const uint64_t *added, uint32_t n, bool has_succeeded)
{
    while (n-- > 0) {
        take_out(m->coming, &m->num_coming, index_of(m->coming, m->num_coming, added[n]));
        if (has_succeeded)
            m->stored[m->num_stored++] = added[n];
    }
}

static void random_operations_agree_with_a_list(void **state)
{
    (void)state;
    model m = {.num_stored = 0};
    shared_tier *t = create(PLACES);
    uint64_t random = seed;
    for (int step = 0; step < NUM_STEPS; step++) {
        uint64_t keys[4];
        uint64_t added[4];
        uint64_t expected[4];
        uint32_t n = unit_random_below(&random, 5);
        uint64_t first = unit_random_below(&random, MAX_KEYS);
        for (uint32_t k = 0; k < n; k++)
            keys[k] = (first + k) % MAX_KEYS;
        assert_int_equal(shared_tier_find(t, keys, n), model_find(&m, keys, n));
        switch (unit_random_below(&random, 4)) {
        case 0:
            shared_tier_use(t, keys, n);
            model_use(&m, keys, n);
            break;
        case 1:
            assert_int_equal(shared_tier_begin_store(t, keys, n, added),
                             model_begin(&m, keys, n, expected));
            break;
        case 2:
            n = m.num_coming < 4 ? m.num_coming : 4;
            memcpy(keys, m.coming, n * sizeof *keys);
            bool has_succeeded = unit_random_below(&random, 3) > 0;
            shared_tier_end_store(t, keys, n, has_succeeded);
            model_end(&m, keys, n, has_succeeded);
            break;
        default:
            if (unit_random_below(&random, 500) == 0) {
                shared_tier_clear(t);
                m.num_stored = 0;
            }
        }
        shared_tier_counts counts = shared_tier_get_counts(t);
        assert_int_equal(counts.stored, m.num_stored);
        assert_int_equal(counts.coming, m.num_coming);
        assert_int_equal(counts.stores - counts.evicted - counts.lost, counts.stored);
    }
    assert_true(shared_tier_get_counts(t).evicted > 1000);
    assert_true(shared_tier_get_counts(t).refused > 10);
    shared_tier_destroy(t);
}

/* ---- by hand ------------------------------------------------------------------------- */

static void store(shared_tier *t, const uint64_t *keys, uint32_t n)
{
    uint64_t added[8];
    uint32_t num = shared_tier_begin_store(t, keys, n, added);
    shared_tier_end_store(t, added, num, true);
}

static void the_end_of_a_prefix_is_evicted_first(void **state)
{
    (void)state;
    static const uint64_t prefix[] = {1, 2, 3};
    shared_tier *t = create(4);
    store(t, prefix, 3);
    store(t, (const uint64_t[]){9}, 1);
    shared_tier_use(t, prefix, 3); /* 9 is the oldest now */
    store(t, (const uint64_t[]){10}, 1);
    assert_int_equal(shared_tier_find(t, (const uint64_t[]){9}, 1), 0);
    assert_int_equal(shared_tier_find(t, prefix, 3), 3);
    store(t, (const uint64_t[]){11}, 1);
    assert_int_equal(shared_tier_find(t, prefix, 3), 2);
    store(t, (const uint64_t[]){12}, 1);
    assert_int_equal(shared_tier_find(t, prefix, 3), 1);
    shared_tier_destroy(t);
}

static void blocks_on_their_way_are_not_stored_twice(void **state)
{
    (void)state;
    static const uint64_t keys[] = {1, 2};
    uint64_t added[2];
    uint64_t other[2];
    shared_tier *t = create(2);
    assert_int_equal(shared_tier_begin_store(t, keys, 2, added), 2);
    assert_int_equal(shared_tier_find(t, keys, 2), 0);
    assert_int_equal(shared_tier_begin_store(t, keys, 2, other), 0);
    assert_int_equal(shared_tier_begin_store(t, (const uint64_t[]){3}, 1, other), 0); /* no place */
    assert_int_equal(shared_tier_get_counts(t).refused, 1);
    shared_tier_end_store(t, added, 2, false);
    assert_int_equal(shared_tier_get_counts(t).failed, 2);
    assert_int_equal(shared_tier_begin_store(t, (const uint64_t[]){3}, 1, other), 1);
    shared_tier_end_store(t, other, 1, true);
    assert_int_equal(shared_tier_find(t, (const uint64_t[]){3}, 1), 1);
    shared_tier_set_down(t, true);
    assert_int_equal(shared_tier_find(t, (const uint64_t[]){3}, 1), 0);
    assert_int_equal(shared_tier_begin_store(t, keys, 2, added), 0);
    shared_tier_set_down(t, false);
    assert_int_equal(shared_tier_find(t, (const uint64_t[]){3}, 1), 1);
    shared_tier_destroy(t);
}

/* Three clients with 40 bytes a second each, 60 together: two loads at 30, then one at 40. */
static void clients_share_the_bandwidth(void **state)
{
    (void)state;
    enum { TOTAL, STORES, FIRST, CARD = FIRST + 3, NUM_LINKS };
    static const double bandwidths[NUM_LINKS] = {60, 1000, 40, 40, 40, 10};
    links *l = links_create(NUM_LINKS, 8);
    for (uint32_t i = 0; i < NUM_LINKS; i++)
        links_set_bandwidth(l, 0, i, bandwidths[i]);
    shared_tier_config config = {.capacity_bytes = 1000,
                                 .block_bytes = 10,
                                 .latency_s = 0.5,
                                 .links = l,
                                 .load_link = TOTAL,
                                 .store_link = STORES,
                                 .client_link = FIRST,
                                 .num_clients = 3};
    shared_tier *t = shared_tier_create(&config);
    assert_non_null(t);
    shared_tier_start(t, 0, SHARED_TIER_LOAD, 0, LINKS_NONE, 6, 0);
    shared_tier_start(t, 0, SHARED_TIER_LOAD, 1, LINKS_NONE, 10, 1);
    shared_tier_start(t, 0, SHARED_TIER_STORE, 2, CARD, 2, 2); /* its card has 10 */
    assert_int_equal(shared_tier_start(t, 0, SHARED_TIER_LOAD, 3, LINKS_NONE, 1, 3), LINKS_NONE);
    links_advance(l, 100);
    static const double ends[] = {2.5, 2.5, 3.5};
    static const uint64_t users[] = {0, 2, 1};
    for (int i = 0; i < 3; i++) {
        links_ended ended;
        assert_true(links_take(l, &ended));
        assert_int_equal(ended.user, users[i]);
        assert_true(fabs(ended.time_s - ends[i]) < 1e-9);
    }
    shared_tier_destroy(t);
    links_destroy(l);
}

static void invalid_values_are_named(void **state)
{
    (void)state;
    shared_tier_config config = {.capacity_bytes = 99, .block_bytes = 100};
    assert_null(shared_tier_create(&config));
    assert_string_equal(failure(), "shared_tier_config.capacity_bytes (99) has 0 blocks of 100 "
                                   "bytes (expected 1..1073741824)");
    config.block_bytes = 0;
    assert_null(shared_tier_create(&config));
    assert_string_equal(failure(), "shared_tier_config.block_bytes is 0 (expected at least 1)");
    config = (shared_tier_config){.capacity_bytes = 100, .block_bytes = 100, .latency_s = -1};
    assert_null(shared_tier_create(&config));
    assert_string_equal(failure(),
                        "shared_tier_config.latency_s is -1 (expected 0 or more, finite)");
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_a_list),
        cmocka_unit_test(the_end_of_a_prefix_is_evicted_first),
        cmocka_unit_test(blocks_on_their_way_are_not_stored_twice),
        cmocka_unit_test(clients_share_the_bandwidth),
        cmocka_unit_test(invalid_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

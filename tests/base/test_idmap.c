/* base/test_idmap.c - ids of callers to values: keys of all lengths, nothing found that was not put
 * in, and a naive model at random.
 */
#include "base/idmap.h"
#include "base/unit.h"

#include <quire/error.h>

enum { MAX_ENTRIES = 64, MAX_KEY = 24, ROOM = 8192, RANDOM_STEPS = 100000 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];
static uint64_t seed;

static qr_idmap make_map(uint32_t max_entries)
{
    qr_arena arena = qr_arena_carve(memory, ROOM);
    qr_idmap map;
    qr_idmap_carve(&map, &arena, max_entries, MAX_KEY);
    qr_idmap_init(&map, seed, ~seed);
    return map;
}

static int insert(qr_idmap *map, const char *key, uint32_t value)
{
    return qr_idmap_insert(map, key, (uint32_t)strlen(key), value);
}

static uint32_t find(const qr_idmap *map, const char *key)
{
    return qr_idmap_find(map, key, (uint32_t)strlen(key));
}

static bool is_valid(const qr_idmap *map)
{
    uint32_t present = 0;
    for (uint32_t value = 0; value < map->max_entries; value++) {
        if (map->key_lens[value] == 0)
            continue;
        present++;
        if (qr_idmap_find(map, qr_idmap_key(map, value), map->key_lens[value] - 1) != value)
            return false;
    }
    uint64_t sum_passed;
    return present == map->index.used && qr_buckets_is_valid(&map->index, &sum_passed);
}

static void new_map_is_empty(void **state)
{
    (void)state;
    qr_idmap map = make_map(MAX_ENTRIES);
    assert_int_equal(map.index.used, 0);
    assert_int_equal(find(&map, "req"), QR_NIL);
    assert_int_equal(find(&map, ""), QR_NIL);
    assert_false(qr_idmap_remove(&map, 0));
    assert_true(is_valid(&map));
}

static void u64_keys_are_found(void **state)
{
    (void)state;
    qr_idmap map = make_map(MAX_ENTRIES);
    static const uint64_t KEYS[] = {0, UINT64_MAX, 1, 2};
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(qr_idmap_insert(&map, &KEYS[i], 8, 5 + i), QUIRE_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(qr_idmap_find(&map, &KEYS[i], 8), 5 + i);
    assert_int_equal(qr_idmap_find(&map, &KEYS[3], 8), QR_NIL);
}

static void keys_with_equal_beginning_differ(void **state)
{
    (void)state;
    qr_idmap map = make_map(MAX_ENTRIES);
    static const char *const KEYS[] = {"",       "r",        "re",        "req",   "req-1",
                                       "req-12", "req-1234", "req-12345", "req-13"};
    for (uint32_t i = 0; i < COUNT(KEYS); i++)
        assert_int_equal(insert(&map, KEYS[i], i), QUIRE_OK);
    for (uint32_t i = 0; i < COUNT(KEYS); i++)
        assert_int_equal(find(&map, KEYS[i]), i);
    assert_int_equal(find(&map, "req-"), QR_NIL);
}

static void zero_bytes_count(void **state)
{
    (void)state;
    qr_idmap map = make_map(MAX_ENTRIES);
    static const char ZEROS[MAX_KEY] = {0};
    for (uint32_t len = 0; len <= MAX_KEY; len++)
        assert_int_equal(qr_idmap_insert(&map, ZEROS, len, len), QUIRE_OK);
    for (uint32_t len = 0; len <= MAX_KEY; len++)
        assert_int_equal(qr_idmap_find(&map, ZEROS, len), len);
}

static void key_of_any_length_up_to_the_longest(void **state)
{
    (void)state;
    qr_idmap map = make_map(MAX_ENTRIES);
    char key[MAX_KEY + 1];
    memset(key, 'k', sizeof key);
    assert_int_equal(qr_idmap_insert(&map, key, MAX_KEY, 3), QUIRE_OK);
    assert_int_equal(qr_idmap_find(&map, key, MAX_KEY), 3);
    assert_int_equal(qr_idmap_insert(&map, key, MAX_KEY + 1, 4), QUIRE_E_RANGE);
    assert_int_equal(qr_idmap_find(&map, key, MAX_KEY + 1), QR_NIL);
    assert_int_equal(map.index.used, 1);
}

static void duplicates_are_refused(void **state)
{
    (void)state;
    qr_idmap map = make_map(MAX_ENTRIES);
    assert_int_equal(insert(&map, "one", 1), QUIRE_OK);
    assert_int_equal(insert(&map, "one", 2), QUIRE_E_ARGUMENT);
    assert_int_equal(insert(&map, "two", 1), QUIRE_E_ARGUMENT);
    assert_int_equal(find(&map, "one"), 1);
    assert_int_equal(find(&map, "two"), QR_NIL);
    assert_int_equal(map.index.used, 1);
    assert_true(is_valid(&map));
}

static void values_have_a_limit(void **state)
{
    (void)state;
    qr_idmap map = make_map(2);
    assert_int_equal(insert(&map, "a", 2), QUIRE_E_RANGE);
    assert_int_equal(insert(&map, "a", QR_NIL), QUIRE_E_RANGE);
    assert_int_equal(insert(&map, "a", 1), QUIRE_OK);
    assert_false(qr_idmap_remove(&map, 2));
    assert_false(qr_idmap_remove(&map, QR_NIL));
}

static void removed_value_is_free_again(void **state)
{
    (void)state;
    qr_idmap map = make_map(1);
    assert_int_equal(insert(&map, "first", 0), QUIRE_OK);
    assert_true(qr_idmap_remove(&map, 0));
    assert_false(qr_idmap_remove(&map, 0));
    assert_int_equal(find(&map, "first"), QR_NIL);
    assert_int_equal(insert(&map, "other", 0), QUIRE_OK);
    assert_int_equal(find(&map, "other"), 0);
    assert_int_equal(find(&map, "first"), QR_NIL);
}

static void keys_are_copied(void **state)
{
    (void)state;
    qr_idmap map = make_map(MAX_ENTRIES);
    char key[] = "request";
    assert_int_equal(insert(&map, key, 9), QUIRE_OK);
    memset(key, '?', sizeof key - 1);
    assert_int_equal(find(&map, "request"), 9);
    assert_int_equal(find(&map, key), QR_NIL);
}

/* ---- at random ------------------------------------------------------------- */

typedef struct naive_key {
    char text[MAX_KEY];
    uint32_t len;
    bool present;
} naive_key;

/* Few letters and lengths, so that keys meet again. */
static naive_key random_key(uint64_t *r)
{
    naive_key key = {.present = true};
    key.len = unit_random_below(r, 4) == 0 ? 8 : unit_random_below(r, 5);
    for (uint32_t i = 0; i < key.len; i++)
        key.text[i] = (char)('a' + unit_random_below(r, i < 4 ? 3 : 1));
    return key;
}

static uint32_t naive_find(const naive_key *keys, const naive_key *key)
{
    for (uint32_t v = 0; v < MAX_ENTRIES; v++)
        if (keys[v].present && keys[v].len == key->len &&
            memcmp(keys[v].text, key->text, key->len) == 0)
            return v;
    return QR_NIL;
}

static void random_step(qr_idmap *map, naive_key *keys, uint32_t *count, uint64_t *r)
{
    uint32_t value = unit_random_below(r, MAX_ENTRIES + 1);
    if (unit_random_below(r, 2) == 0) {
        bool present = value < MAX_ENTRIES && keys[value].present;
        assert_int_equal(qr_idmap_remove(map, value), present);
        if (present)
            keys[value].present = false;
        *count -= present;
        return;
    }
    naive_key key = random_key(r);
    uint32_t at = naive_find(keys, &key);
    assert_int_equal(qr_idmap_find(map, key.text, key.len), at);
    int wanted = value >= MAX_ENTRIES                  ? QUIRE_E_RANGE
                 : at != QR_NIL || keys[value].present ? QUIRE_E_ARGUMENT
                                                       : QUIRE_OK;
    assert_int_equal(qr_idmap_insert(map, key.text, key.len, value), wanted);
    if (wanted == QUIRE_OK)
        keys[value] = key;
    *count += wanted == QUIRE_OK;
}

static void random_steps_agree_with_a_list(void **state)
{
    (void)state;
    qr_idmap map = make_map(MAX_ENTRIES);
    naive_key keys[MAX_ENTRIES];
    memset(keys, 0, sizeof keys);
    uint32_t count = 0;
    uint32_t most = 0;
    uint64_t r = seed;
    for (uint32_t step = 0; step < RANDOM_STEPS; step++) {
        random_step(&map, keys, &count, &r);
        assert_int_equal(map.index.used, count);
        most = count > most ? count : most;
        if (step % 64 == 0)
            assert_true(is_valid(&map));
    }
    assert_true(most > MAX_ENTRIES / 3);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_map_is_empty),
        cmocka_unit_test(u64_keys_are_found),
        cmocka_unit_test(keys_with_equal_beginning_differ),
        cmocka_unit_test(zero_bytes_count),
        cmocka_unit_test(key_of_any_length_up_to_the_longest),
        cmocka_unit_test(duplicates_are_refused),
        cmocka_unit_test(values_have_a_limit),
        cmocka_unit_test(removed_value_is_free_again),
        cmocka_unit_test(keys_are_copied),
        cmocka_unit_test(random_steps_agree_with_a_list),
    };
    return cmocka_run_group_tests_name("base_idmap", tests, NULL, NULL);
}

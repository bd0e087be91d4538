/* block/test_map.c - keys to blocks: of several blocks with one key the first is found, and when it
 * goes the next.
 *
 * A key is a letter, a length and a group: the hash whose bytes are all that letter.
 */
#include "block/map.h"

#include "base/unit.h"

enum { NUM_BLOCKS = 40, STRIDE = 64, ROOM = 8192, MAX_RUN = 39 };

typedef struct fixture {
    qr_map map;
    qr_block blocks[NUM_BLOCKS];
    _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];
} fixture;

static void init(fixture *f)
{
    qr_arena arena = qr_arena_carve(f->memory, ROOM);
    memset(f->blocks, 0, sizeof f->blocks);
    qr_map_carve(&f->map, &arena, NUM_BLOCKS, STRIDE);
    qr_map_init(&f->map, f->blocks, false, (const uint64_t[]){11, 22});
}

/* The bytes live until the fourth call from here. */
static qr_key key_of(char letter, uint32_t len, uint32_t group_id)
{
    static unsigned char hashes[4][STRIDE];
    static unsigned turn;
    unsigned char *hash = hashes[turn++ % 4];
    memset(hash, 0xee, STRIDE);
    memset(hash, letter, len);
    return (qr_key){hash, len, group_id};
}

static void put(fixture *f, char letter, uint32_t block)
{
    qr_map_insert(&f->map, key_of(letter, 32, 0), block);
    assert_true(qr_map_is_valid(&f->map));
}

static bool take_out(fixture *f, uint32_t block)
{
    bool more = qr_map_remove(&f->map, block);
    assert_true(qr_map_is_valid(&f->map));
    return more;
}

static uint32_t find(const fixture *f, char letter)
{
    return qr_map_get(&f->map, key_of(letter, 32, 0));
}

static void empty_map_finds_nothing(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    assert_int_equal(find(&f, 'a'), 0);
    assert_true(qr_map_is_valid(&f.map));
}

static void what_was_put_is_found(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    put(&f, 'a', 5);
    put(&f, 'b', 2);
    assert_int_equal(find(&f, 'a'), 5);
    assert_int_equal(find(&f, 'b'), 2);
    assert_int_equal(find(&f, 'c'), 0);
    assert_int_equal(f.map.index.used, 2);
    assert_memory_equal(qr_map_hash_of(&f.map, 5), key_of('a', 32, 0).hash, 32);
}

static void removed_key_is_gone(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    put(&f, 'a', 5);
    assert_false(take_out(&f, 5));
    assert_int_equal(find(&f, 'a'), 0);
    assert_int_equal(f.map.index.used, 0);
    put(&f, 'b', 5);
    assert_int_equal(find(&f, 'b'), 5);
}

static void first_of_duplicates_is_found(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    put(&f, 'a', 9);
    put(&f, 'a', 3);
    put(&f, 'a', 7);
    assert_int_equal(find(&f, 'a'), 9);
    assert_int_equal(f.map.index.used, 1);
}

static void next_duplicate_takes_the_place(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    put(&f, 'a', 9);
    put(&f, 'a', 3);
    put(&f, 'a', 7);
    assert_true(take_out(&f, 9));
    assert_int_equal(find(&f, 'a'), 3);
    assert_true(take_out(&f, 3));
    assert_int_equal(find(&f, 'a'), 7);
    assert_false(take_out(&f, 7));
    assert_int_equal(find(&f, 'a'), 0);
}

static void later_duplicate_goes_without_the_first(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    put(&f, 'a', 9);
    put(&f, 'a', 3);
    put(&f, 'a', 7);
    assert_true(take_out(&f, 3));
    assert_int_equal(find(&f, 'a'), 9);
    assert_true(take_out(&f, 9));
    assert_int_equal(find(&f, 'a'), 7);
}

static void duplicate_that_returns_is_last(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    put(&f, 'a', 1);
    put(&f, 'a', 2);
    take_out(&f, 1);
    put(&f, 'a', 1);
    assert_int_equal(find(&f, 'a'), 2);
    take_out(&f, 2);
    assert_int_equal(find(&f, 'a'), 1);
}

static void lengths_and_groups_are_part_of_the_key(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    static const uint32_t LENGTHS[] = {16, 32, 48, 64};
    static const uint32_t GROUPS[] = {0, 1, 255, 256, QR_MAX_GROUP_ID};
    uint32_t block = 1;
    for (size_t l = 0; l < COUNT(LENGTHS); l++)
        for (size_t g = 0; g < COUNT(GROUPS); g++)
            qr_map_insert(&f.map, key_of('a', LENGTHS[l], GROUPS[g]), block++);
    assert_true(qr_map_is_valid(&f.map));
    assert_int_equal(f.map.index.used, 20);
    block = 1;
    for (size_t l = 0; l < COUNT(LENGTHS); l++)
        for (size_t g = 0; g < COUNT(GROUPS); g++)
            assert_int_equal(qr_map_get(&f.map, key_of('a', LENGTHS[l], GROUPS[g])), block++);
    assert_int_equal(qr_map_get(&f.map, key_of('a', 32, 2)), 0);
    assert_int_equal(qr_map_get(&f.map, key_of('a', 32, QR_MAX_GROUP_ID + 1)), 0);
}

/* Joined hashes may begin or end alike. */
static void joined_hashes_differ_in_any_part(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    unsigned char joined[16][STRIDE];
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t part = 0; part < 4; part++)
            memset(joined[i] + part * 16, i >> part & 1 ? 'x' : 'y', 16);
        qr_map_insert(&f.map, (qr_key){joined[i], STRIDE, 0}, i + 1);
    }
    assert_true(qr_map_is_valid(&f.map));
    assert_int_equal(f.map.index.used, 16);
    for (uint32_t i = 0; i < 16; i++)
        assert_int_equal(qr_map_get(&f.map, (qr_key){joined[i], STRIDE, 0}), i + 1);
}

static void every_byte_of_the_hash_counts(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    put(&f, 'a', 1);
    for (uint32_t i = 0; i < 32; i++) {
        unsigned char hash[32];
        memset(hash, 'a', sizeof hash);
        hash[i] ^= 1;
        assert_int_equal(qr_map_get(&f.map, (qr_key){hash, 32, 0}), 0);
    }
}

static void keys_are_copied(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    unsigned char hash[32];
    memset(hash, 'a', sizeof hash);
    qr_map_insert(&f.map, (qr_key){hash, 32, 0}, 4);
    memset(hash, 'z', sizeof hash);
    assert_int_equal(find(&f, 'a'), 4);
    assert_int_equal(find(&f, 'z'), 0);
}

static void clear_forgets_all(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    put(&f, 'a', 1);
    put(&f, 'a', 2);
    put(&f, 'b', 3);
    qr_map_clear(&f.map);
    assert_true(qr_map_is_valid(&f.map));
    assert_int_equal(find(&f, 'a'), 0);
    assert_int_equal(f.map.index.used, 0);
    put(&f, 'a', 2);
    assert_int_equal(find(&f, 'a'), 2);
}

/* ---- runs ------------------------------------------------------------------ */

/* Hash i is all of the letter '0' + i; blocks 1 .. cached have the first ones. */
static void run_stops_at_the_first_miss(void **state)
{
    (void)state;
    unsigned char hashes[MAX_RUN][16];
    for (uint32_t i = 0; i < MAX_RUN; i++)
        memset(hashes[i], (int)('0' + i), 16);
    for (uint32_t cached = 0; cached <= MAX_RUN; cached++) {
        fixture f;
        init(&f);
        for (uint32_t i = 0; i < cached; i++)
            qr_map_insert(&f.map, (qr_key){hashes[i], 16, 0}, i + 1);
        for (uint32_t count = 0; count <= MAX_RUN; count += 3) {
            uint32_t out[2 * MAX_RUN];
            memset(out, 0xff, sizeof out);
            uint32_t hit = qr_map_get_run(&f.map, (qr_key){hashes[0], 16, 0}, count, out, 2);
            assert_int_equal(hit, count < cached ? count : cached);
            for (uint32_t i = 0; i < MAX_RUN; i++) {
                assert_int_equal(out[2 * i], i < hit ? i + 1 : UINT32_MAX);
                assert_int_equal(out[2 * i + 1], UINT32_MAX); /* another group's place */
            }
        }
    }
}

/* Neighbours are looked at before the index: whatever lies there, the answer is the index's. Key i
 * is cached in runs of ids that go up and down; some keys twice, some not at all. */
static void run_finds_what_each_key_finds(void **state)
{
    (void)state;
    unsigned char hashes[MAX_RUN][16];
    uint64_t r = 5;
    for (uint32_t i = 0; i < MAX_RUN; i++)
        memset(hashes[i], (int)('0' + i), 16);
    for (uint32_t round = 0; round < 2000; round++) {
        fixture f;
        init(&f);
        uint32_t key = unit_random_below(&r, MAX_RUN);
        uint32_t step = 1;
        for (uint32_t block = 1; block < NUM_BLOCKS; block++) {
            if (unit_random_below(&r, 8) == 0)
                key = unit_random_below(&r, MAX_RUN);
            if (unit_random_below(&r, 12) == 0)
                step = MAX_RUN - step; /* backwards, or forwards again */
            key = (key + step) % MAX_RUN;
            qr_map_insert(&f.map, (qr_key){hashes[key], 16, 0}, block);
        }
        for (uint32_t first = 0; first < MAX_RUN; first++) {
            uint32_t out[MAX_RUN];
            uint32_t hit =
                qr_map_get_run(&f.map, (qr_key){hashes[first], 16, 0}, MAX_RUN - first, out, 1);
            for (uint32_t i = 0; i <= hit && first + i < MAX_RUN; i++) {
                uint32_t block = qr_map_get(&f.map, (qr_key){hashes[first + i], 16, 0});
                assert_int_equal(block, i < hit ? out[i] : 0);
            }
        }
    }
}

static void run_does_not_skip_a_gap(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    unsigned char hashes[3][16];
    for (int i = 0; i < 3; i++)
        memset(hashes[i], 'a' + i, 16);
    qr_map_insert(&f.map, (qr_key){hashes[0], 16, 0}, 1);
    qr_map_insert(&f.map, (qr_key){hashes[2], 16, 0}, 2);
    uint32_t out[3];
    assert_int_equal(qr_map_get_run(&f.map, (qr_key){hashes[0], 16, 0}, 3, out, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_map_finds_nothing),
        cmocka_unit_test(what_was_put_is_found),
        cmocka_unit_test(removed_key_is_gone),
        cmocka_unit_test(first_of_duplicates_is_found),
        cmocka_unit_test(next_duplicate_takes_the_place),
        cmocka_unit_test(later_duplicate_goes_without_the_first),
        cmocka_unit_test(duplicate_that_returns_is_last),
        cmocka_unit_test(lengths_and_groups_are_part_of_the_key),
        cmocka_unit_test(joined_hashes_differ_in_any_part),
        cmocka_unit_test(every_byte_of_the_hash_counts),
        cmocka_unit_test(keys_are_copied),
        cmocka_unit_test(clear_forgets_all),
        cmocka_unit_test(run_stops_at_the_first_miss),
        cmocka_unit_test(run_finds_what_each_key_finds),
        cmocka_unit_test(run_does_not_skip_a_gap),
    };
    return cmocka_run_group_tests_name("block_map", tests, NULL, NULL);
}

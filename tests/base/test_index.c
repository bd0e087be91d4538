/* base/test_index.c - the index against a naive list: at random, and through every order of
 * insertions and removals there is.
 *
 *      capacity 10, five entries whose homes are 8, 9 or 0:   [ 0 | . . . . . . . | 8 | 9 ]
 *                                                              ^-- clusters wrap around --^
 *
 * Each entry is put in once and taken out once, in every possible interleaving. The entries are
 * interchangeable, so it is enough to try each multiset of homes once.
 */
#include "base/index.h"
#include "base/unit.h"

enum { NUM_ENTRIES = 5, TINY_CAPACITY = 2 * NUM_ENTRIES, ROOM = 8192 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];
static uint64_t seed;

static qr_index make_index(uint32_t max_entries)
{
    qr_arena arena = qr_arena_carve(memory, ROOM);
    qr_index index;
    qr_index_carve(&index, &arena, max_entries);
    qr_index_init(&index, 1, 2);
    return index;
}

/* The smallest tag whose home this is. */
static uint32_t tag_with_home(const qr_index *index, uint32_t home)
{
    return (uint32_t)((((uint64_t)home << 32) + index->capacity - 1) / index->capacity);
}

static void assert_present(const qr_index *index, uint32_t tag, uint32_t id)
{
    uint32_t slot = qr_index_find_id(index, tag, id);
    assert_true(slot < index->capacity);
    assert_int_equal(index->slots[slot].id, id);
    assert_int_equal(index->slots[slot].tag, tag);
}

static void new_index_is_empty(void **state)
{
    (void)state;
    qr_index index = make_index(4);
    assert_int_equal(index.used, 0);
    assert_int_equal(qr_index_find_id(&index, 7, 1), QR_NIL);
    assert_true(qr_index_is_valid(&index));
}

static void at_most_half_is_used(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 50; n++) {
        qr_index index = make_index(n);
        assert_true(index.capacity >= 2 * n && index.capacity > n);
    }
}

static void home_keeps_the_order_of_tags(void **state)
{
    (void)state;
    qr_index index = make_index(5);
    assert_int_equal(qr_index_home(&index, 0), 0);
    assert_int_equal(qr_index_home(&index, UINT32_MAX), TINY_CAPACITY - 1);
    for (uint32_t home = 0; home < TINY_CAPACITY; home++)
        assert_int_equal(qr_index_home(&index, tag_with_home(&index, home)), home);
}

static void after_goes_around_the_end(void **state)
{
    (void)state;
    qr_index index = make_index(5);
    assert_int_equal(qr_index_after(&index, 0), 1);
    assert_int_equal(qr_index_after(&index, TINY_CAPACITY - 1), 0);
}

static void equal_tags_are_different_entries(void **state)
{
    (void)state;
    qr_index index = make_index(4);
    uint32_t tag = UINT32_MAX;
    for (uint32_t id = 1; id <= 4; id++)
        qr_index_insert(&index, tag, id);
    for (uint32_t id = 1; id <= 4; id++)
        assert_present(&index, tag, id);
    assert_int_equal(qr_index_find_id(&index, tag, 5), QR_NIL);
}

static void clear_forgets_all(void **state)
{
    (void)state;
    qr_index index = make_index(4);
    qr_index_insert(&index, 1, 1);
    qr_index_clear(&index);
    assert_int_equal(index.used, 0);
    assert_int_equal(qr_index_find_id(&index, 1, 1), QR_NIL);
}

static void walker_sees_an_unreachable_entry(void **state)
{
    (void)state;
    qr_index index = make_index(5);
    qr_index_insert(&index, tag_with_home(&index, 3), 1);
    index.slots[5] = index.slots[3];
    index.slots[3].id = 0;
    assert_false(qr_index_is_valid(&index));
}

static void walker_sees_a_wrong_count(void **state)
{
    (void)state;
    qr_index index = make_index(5);
    qr_index_insert(&index, 9, 1);
    index.used = 2;
    assert_false(qr_index_is_valid(&index));
}

static void tag_depends_on_both_words_and_the_secret(void **state)
{
    (void)state;
    qr_index index = make_index(5);
    uint64_t r = seed;
    unsigned differ[3] = {0};
    for (int i = 0; i < 1000; i++) {
        uint64_t a = unit_random(&r);
        uint64_t b = unit_random(&r);
        index.secret[0] = unit_random(&r);
        index.secret[1] = unit_random(&r);
        uint32_t tag = qr_index_tag(&index, a, b);
        assert_int_equal(qr_index_tag(&index, a, b), tag);
        differ[0] += qr_index_tag(&index, a ^ 1, b) != tag;
        differ[1] += qr_index_tag(&index, a, b ^ 1) != tag;
        index.secret[0] ^= UINT64_C(1) << 40;
        differ[2] += qr_index_tag(&index, a, b) != tag;
    }
    for (int i = 0; i < 3; i++)
        assert_true(differ[i] > 700); /* 4 bits of tag are left in the hostile build */
}

/* ---- every order ----------------------------------------------------------- */

typedef enum life { NOT_YET, PRESENT, GONE } life;

typedef struct walk {
    qr_index index;
    uint32_t tags[NUM_ENTRIES];
    life lives[NUM_ENTRIES];
    uint64_t steps;
} walk;

static void assert_walk(const walk *w)
{
    assert_true(qr_index_is_valid(&w->index));
    uint32_t present = 0;
    for (uint32_t e = 0; e < NUM_ENTRIES; e++) {
        uint32_t slot = qr_index_find_id(&w->index, w->tags[e], e + 1);
        bool found = slot != QR_NIL && w->index.slots[slot].id == e + 1;
        assert_int_equal(found, w->lives[e] == PRESENT);
        present += found;
    }
    assert_int_equal(present, w->index.used);
}

/* Puts in or takes out each entry that can be, and goes on from there. */
static void walk_on(walk *w)
{
    qr_slot before[TINY_CAPACITY];
    memcpy(before, w->index.slots, sizeof before);
    uint32_t used = w->index.used;
    for (uint32_t e = 0; e < NUM_ENTRIES; e++) {
        if (w->lives[e] == GONE)
            continue;
        if (w->lives[e] == NOT_YET)
            qr_index_insert(&w->index, w->tags[e], e + 1);
        else
            qr_index_remove_at(&w->index, qr_index_find_id(&w->index, w->tags[e], e + 1));
        w->lives[e]++;
        w->steps++;
        assert_walk(w);
        walk_on(w);
        w->lives[e]--;
        memcpy(w->index.slots, before, sizeof before);
        w->index.used = used;
    }
}

static void every_order_of_five_entries(void **state)
{
    (void)state;
    static const uint32_t HOMES[3] = {TINY_CAPACITY - 2, TINY_CAPACITY - 1, 0};
    uint64_t steps = 0;
    for (uint32_t a = 0; a <= NUM_ENTRIES; a++) {
        for (uint32_t b = 0; a + b <= NUM_ENTRIES; b++) {
            walk w = {.index = make_index(NUM_ENTRIES)};
            assert_int_equal(w.index.capacity, TINY_CAPACITY);
            for (uint32_t e = 0; e < NUM_ENTRIES; e++)
                w.tags[e] = tag_with_home(&w.index, HOMES[(e >= a) + (e >= a + b)]);
            walk_on(&w);
            steps += w.steps;
        }
    }
    assert_true(steps > UINT64_C(21) * 113400); /* 10! / 2^5 orders of each of 21 multisets */
}

/* ---- at random ------------------------------------------------------------- */

enum { RANDOM_ENTRIES = 200, RANDOM_STEPS = 30000 };

typedef struct naive {
    bool present[RANDOM_ENTRIES];
    uint32_t tags[RANDOM_ENTRIES];
    uint32_t count;
} naive;

/* Mostly a long cluster that goes around the end, sometimes anywhere. */
static uint32_t random_tag(uint64_t *r)
{
    uint32_t kind = unit_random_below(r, 8);
    if (kind == 0)
        return (uint32_t)unit_random(r);
    return kind < 6 ? UINT32_MAX - unit_random_below(r, 4) * 0x00800000 : unit_random_below(r, 9);
}

static void assert_same(const qr_index *index, const naive *n)
{
    assert_int_equal(index->used, n->count);
    assert_true(qr_index_is_valid(index));
    for (uint32_t i = 0; i < RANDOM_ENTRIES; i++)
        if (n->present[i])
            assert_present(index, n->tags[i], i + 1);
}

static void random_steps_agree_with_a_list(void **state)
{
    (void)state;
    qr_index index = make_index(RANDOM_ENTRIES);
    naive n = {.count = 0};
    uint64_t r = seed;
    for (uint32_t step = 0; step < RANDOM_STEPS; step++) {
        uint32_t i = unit_random_below(&r, RANDOM_ENTRIES);
        if (n.present[i]) {
            qr_index_remove_at(&index, qr_index_find_id(&index, n.tags[i], i + 1));
            assert_int_equal(qr_index_find_id(&index, n.tags[i], i + 1), QR_NIL);
            n.count--;
        } else {
            n.tags[i] = random_tag(&r);
            qr_index_insert(&index, n.tags[i], i + 1);
            n.count++;
        }
        n.present[i] = !n.present[i];
        assert_true(qr_index_is_valid(&index));
        if (step % 50 == 0)
            assert_same(&index, &n);
    }
    assert_same(&index, &n);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 20);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_index_is_empty),
        cmocka_unit_test(at_most_half_is_used),
        cmocka_unit_test(home_keeps_the_order_of_tags),
        cmocka_unit_test(after_goes_around_the_end),
        cmocka_unit_test(equal_tags_are_different_entries),
        cmocka_unit_test(clear_forgets_all),
        cmocka_unit_test(walker_sees_an_unreachable_entry),
        cmocka_unit_test(walker_sees_a_wrong_count),
        cmocka_unit_test(tag_depends_on_both_words_and_the_secret),
        cmocka_unit_test(every_order_of_five_entries),
        cmocka_unit_test(random_steps_agree_with_a_list),
    };
    return cmocka_run_group_tests_name("base_index", tests, NULL, NULL);
}

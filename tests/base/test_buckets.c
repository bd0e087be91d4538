/* base/test_buckets.c - the buckets against a naive list: at random, and through every order in
 * which entries that do not fit into their home come and go.
 *
 *      3 buckets, 4 entries of each of two homes, the rest filled up for good:
 *
 *      [ 11 of 12 ][ 11 of 12 ][ 10 of 12 ]       the last goes on to the first
 */
#include "base/arena.h"
#include "base/buckets.h"
#include "base/unit.h"

enum { ROOM = 8192, FEW = 12, NUM_BUCKETS = 3, NUM_MOVING = 4, MAX_ID = 1000 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];
static uint64_t seed;

static qr_buckets make_buckets(uint32_t max_entries)
{
    qr_arena arena = qr_arena_carve(memory, ROOM);
    qr_buckets buckets = {.count = qr_buckets_needed(max_entries)};
    buckets.all = qr_arena_take(&arena, buckets.count, sizeof *buckets.all);
    qr_buckets_init(&buckets, MAX_ID, (const uint64_t[]){1, 2});
    qr_buckets_clear(&buckets);
    return buckets;
}

/* The n-th tag whose home this is. */
static uint32_t tag_with_home(const qr_buckets *buckets, uint32_t home, uint32_t n)
{
    return (uint32_t)((((uint64_t)home << 32) + buckets->count - 1) / buckets->count) + n;
}

static bool is_present(const qr_buckets *buckets, uint32_t tag, uint32_t id)
{
    uint64_t place = qr_buckets_find_id(buckets, tag, id);
    if (place == QR_NO_PLACE)
        return false;
    assert_int_equal(*qr_buckets_at(buckets, place) & buckets->id_mask, id);
    return true;
}

/* The walker's answer, with the distances of all entries. */
static bool is_valid(const qr_buckets *buckets, const uint32_t *tags, const bool *present,
                     uint32_t num_ids)
{
    uint64_t sum_passed;
    uint64_t distances = 0;
    if (!qr_buckets_is_valid(buckets, &sum_passed))
        return false;
    for (uint32_t i = 0; i < num_ids; i++) {
        assert_int_equal(is_present(buckets, tags[i], i + 1), present[i]);
        if (present[i])
            distances +=
                qr_buckets_distance(buckets, tags[i], qr_buckets_find_id(buckets, tags[i], i + 1));
    }
    return distances == sum_passed;
}

static void new_buckets_are_empty(void **state)
{
    (void)state;
    qr_buckets buckets = make_buckets(4);
    assert_int_equal(buckets.used, 0);
    assert_false(is_present(&buckets, 7, 1));
}

static void at_most_half_is_used(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 50; n++) {
        qr_buckets buckets = make_buckets(n);
        assert_true(buckets.count * QR_BUCKET_PLACES > n);
        assert_true(buckets.count * QR_BUCKET_PLACES >= 2 * n);
    }
}

static void home_keeps_the_order_of_tags(void **state)
{
    (void)state;
    qr_buckets buckets = make_buckets(FEW);
    assert_int_equal(buckets.count, NUM_BUCKETS);
    assert_int_equal(qr_buckets_home(&buckets, 0), 0);
    assert_int_equal(qr_buckets_home(&buckets, UINT32_MAX), NUM_BUCKETS - 1);
    assert_int_equal(qr_buckets_after(&buckets, 0), 1);
    assert_int_equal(qr_buckets_after(&buckets, NUM_BUCKETS - 1), 0);
    for (uint32_t home = 0; home < NUM_BUCKETS; home++)
        assert_int_equal(qr_buckets_home(&buckets, tag_with_home(&buckets, home, 0)), home);
}

static void no_mark_is_zero(void **state)
{
    (void)state;
    for (uint32_t tag = 0; tag < 1024; tag++)
        assert_int_not_equal(qr_tag_mark(tag), 0);
}

/* A bit for each place, next to each other. */
static uint32_t bits_of(qr_places places)
{
    uint32_t bits = 0;
    for (; places != 0; places &= places - 1)
        bits |= 1u << qr_first_place(places);
    return bits;
}

/* Both ways to compare: the lowest bit is right, no place is left out. */
static void match_finds_what_a_loop_finds(void **state)
{
    (void)state;
    uint64_t r = seed;
    for (uint32_t step = 0; step < 100000; step++) {
        qr_bucket bucket = {.passed = (uint32_t)unit_random(&r)};
        uint8_t mark = (uint8_t)unit_random_below(&r, 4);
        uint32_t wanted = 0;
        for (uint32_t place = 0; place < QR_BUCKET_PLACES; place++) {
            uint32_t kind = unit_random_below(&r, 3);
            bucket.marks[place] = (uint8_t)(kind == 0 ? unit_random(&r) : mark ^ (kind - 1));
            wanted |= (uint32_t)(bucket.marks[place] == mark) << place;
        }
        const uint32_t found[] = {bits_of(qr_bucket_match(&bucket, mark)),
                                  qr_bucket_match_words(&bucket, mark)};
        for (size_t i = 0; i < COUNT(found); i++) {
            assert_int_equal(found[i] & wanted, wanted);
            assert_true(found[i] < 1u << QR_BUCKET_PLACES);
            assert_int_equal(found[i] & (~found[i] + 1), wanted & (~wanted + 1));
        }
    }
}

static void clear_forgets_all(void **state)
{
    (void)state;
    qr_buckets buckets = make_buckets(FEW);
    for (uint32_t id = 1; id <= 20; id++)
        qr_buckets_insert(&buckets, 9, id);
    qr_buckets_clear(&buckets);
    uint64_t sum_passed;
    assert_true(qr_buckets_is_valid(&buckets, &sum_passed));
    assert_int_equal(buckets.used + sum_passed, 0);
    assert_false(is_present(&buckets, 9, 1));
}

static void search_ends_where_every_bucket_was_gone_past(void **state)
{
    (void)state;
    qr_buckets buckets = make_buckets(FEW);
    for (uint32_t id = 1; id <= NUM_BUCKETS * QR_BUCKET_PLACES; id++)
        qr_buckets_insert(&buckets, tag_with_home(&buckets, id % NUM_BUCKETS, 0), id);
    for (uint32_t at = 0; at < NUM_BUCKETS; at++)
        buckets.all[at].passed = QR_ONE_PASSED | 0xff;
    assert_false(is_present(&buckets, 0, 1000));
    qr_buckets_search search = qr_buckets_search_begin(&buckets, 7);
    assert_int_equal(qr_buckets_search_next(&search), 0);
}

static void ids_take_the_bits_that_they_need(void **state)
{
    (void)state;
    qr_buckets buckets;
    const uint32_t most[] = {0, 1, 2, 255, 256, 65535, UINT32_MAX};
    const uint32_t masks[] = {0, 1, 3, 255, 511, 65535, UINT32_MAX};
    for (size_t i = 0; i < COUNT(most); i++) {
        qr_buckets_init(&buckets, most[i], (const uint64_t[]){1, 2});
        assert_int_equal(buckets.id_mask, masks[i]);
        uint32_t entry = qr_buckets_entry(&buckets, UINT32_MAX, most[i]);
        uint32_t rest = qr_tag_rest(buckets.id_mask, UINT32_MAX);
        assert_int_equal(rest & buckets.id_mask, 0);
        assert_int_equal(qr_entry_id(buckets.id_mask, entry, rest), most[i]);
    }
}

/* Tags of one home and one mark are told apart by what stands beside the id. */
static void rest_of_a_tag_tells_more_than_its_mark(void **state)
{
    (void)state;
    qr_buckets buckets = make_buckets(FEW);
    for (uint32_t i = 0; i < FEW; i++)
        qr_buckets_insert(&buckets, 9 + (i << 8), i + 1);
    for (uint32_t i = 0; i < 2 * FEW; i++) {
        uint32_t tag = 9 + (i << 8);
        uint32_t id = i < FEW ? i + 1 : 0;
        assert_int_equal(qr_bucket_first_id(&buckets.all[0], buckets.id_mask, tag), id);
        qr_buckets_search search = qr_buckets_search_begin(&buckets, tag);
        assert_int_equal(qr_buckets_search_next(&search), id);
        assert_int_equal(qr_buckets_search_next(&search), 0);
    }
}

static void search_shows_all_that_have_a_tag(void **state)
{
    (void)state;
    enum { SAME = 30 };
    qr_buckets buckets = make_buckets(FEW);
    bool shown[SAME + 1] = {false};
    for (uint32_t id = 1; id <= SAME; id++)
        qr_buckets_insert(&buckets, 9, id);
    qr_buckets_search search = qr_buckets_search_begin(&buckets, 9);
    for (uint32_t n = 0; n < SAME; n++) {
        uint32_t id = qr_buckets_search_next(&search);
        assert_true(id >= 1 && id <= SAME && !shown[id]);
        shown[id] = true;
    }
    assert_int_equal(qr_buckets_search_next(&search), 0);
}

/* A bit is set until all that went past are gone. */
static void bits_tell_which_tags_went_past(void **state)
{
    (void)state;
    qr_buckets buckets = make_buckets(FEW);
    const qr_bucket *home = &buckets.all[0];
    for (uint32_t id = 1; id <= QR_BUCKET_PLACES; id++)
        qr_buckets_insert(&buckets, 0, id);
    assert_int_equal(home->passed, 0);
    qr_buckets_insert(&buckets, 3, 21);
    qr_buckets_insert(&buckets, 5, 22);
    qr_buckets_insert(&buckets, 13, 23);
    for (uint32_t tag = 0; tag < 16; tag++)
        assert_int_equal(qr_bucket_has_passed(home, tag), tag % 8 == 3 || tag % 8 == 5);
    assert_int_equal(home->passed / QR_ONE_PASSED, 3);
    qr_buckets_remove(&buckets, 3, 21);
    qr_buckets_remove(&buckets, 5, 22);
    assert_true(qr_bucket_has_passed(home, 3) && is_present(&buckets, 13, 23));
    qr_buckets_remove(&buckets, 13, 23);
    assert_int_equal(home->passed, 0);
}

static void walker_sees_damage(void **state)
{
    (void)state;
    uint64_t sum_passed;
    qr_buckets buckets = make_buckets(FEW);
    qr_buckets_insert(&buckets, 9, 1);
    assert_true(qr_buckets_is_valid(&buckets, &sum_passed));
    buckets.used = 2;
    assert_false(qr_buckets_is_valid(&buckets, &sum_passed));
    buckets.used = 1;
    buckets.all[0].marks[0] = 0;
    assert_false(qr_buckets_is_valid(&buckets, &sum_passed));
    buckets.all[0].marks[0] = 9;
    buckets.all[0].marks[5] = 9;
    assert_false(qr_buckets_is_valid(&buckets, &sum_passed));
    buckets.all[0].marks[5] = 0;
    buckets.all[0].entries[5] = UINT32_C(1) << 31; /* of a tag, without an id */
    assert_false(qr_buckets_is_valid(&buckets, &sum_passed));
    buckets.all[0].entries[5] = 0;
    assert_true(qr_buckets_is_valid(&buckets, &sum_passed));
    buckets.all[1].passed = 4; /* which, and none */
    assert_false(qr_buckets_is_valid(&buckets, &sum_passed));
    buckets.all[1].passed = QR_ONE_PASSED; /* one, and not which */
    assert_false(qr_buckets_is_valid(&buckets, &sum_passed));
}

/* ---- every order ----------------------------------------------------------- */

typedef struct walk {
    qr_buckets buckets;
    uint32_t tags[NUM_MOVING];
    bool present[NUM_MOVING];
    bool was_here[NUM_MOVING];
    uint64_t steps;
} walk;

/* Puts in or takes out each entry that can be, and goes on from there. */
static void walk_on(walk *w)
{
    qr_bucket before[NUM_BUCKETS];
    memcpy(before, w->buckets.all, sizeof before);
    uint32_t used = w->buckets.used;
    for (uint32_t e = 0; e < NUM_MOVING; e++) {
        if (!w->present[e] && w->was_here[e])
            continue;
        if (w->present[e])
            qr_buckets_remove(&w->buckets, w->tags[e], e + 1);
        else
            qr_buckets_insert(&w->buckets, w->tags[e], e + 1);
        bool was_here = w->was_here[e];
        w->present[e] = !w->present[e];
        w->was_here[e] = true;
        w->steps++;
        assert_true(is_valid(&w->buckets, w->tags, w->present, NUM_MOVING));
        walk_on(w);
        w->present[e] = !w->present[e];
        w->was_here[e] = was_here;
        memcpy(w->buckets.all, before, sizeof before);
        w->buckets.used = used;
    }
}

static void every_order_of_entries_that_overflow(void **state)
{
    (void)state;
    static const uint32_t FILLED[NUM_BUCKETS] = {11, 11, 10};
    uint64_t steps = 0;
    for (uint32_t homes = 0; homes < 81; homes++) { /* 3 homes for each of 4 entries */
        walk w = {.buckets = make_buckets(FEW)};
        for (uint32_t at = 0, id = 100; at < NUM_BUCKETS; at++)
            for (uint32_t i = 0; i < FILLED[at]; i++)
                qr_buckets_insert(&w.buckets, tag_with_home(&w.buckets, at, i), id++);
        for (uint32_t e = 0, rest = homes; e < NUM_MOVING; e++, rest /= 3)
            w.tags[e] = tag_with_home(&w.buckets, rest % 3, 0);
        walk_on(&w);
        steps += w.steps;
    }
    assert_true(steps > UINT64_C(81) * 2520); /* 8! / 2^4 orders of each */
}

/* ---- at random ------------------------------------------------------------- */

enum { RANDOM_ENTRIES = 200, RANDOM_STEPS = 30000 };

static void random_steps_agree_with_a_list(void **state)
{
    (void)state;
    qr_buckets buckets = make_buckets(RANDOM_ENTRIES);
    static bool present[RANDOM_ENTRIES];
    static uint32_t tags[RANDOM_ENTRIES];
    uint32_t count = 0;
    uint64_t r = seed;
    for (uint32_t step = 0; step < RANDOM_STEPS; step++) {
        uint32_t i = unit_random_below(&r, RANDOM_ENTRIES);
        if (present[i]) {
            qr_buckets_remove(&buckets, tags[i], i + 1);
        } else { /* half of them at one home, the last; its entries go around the end */
            uint32_t far = UINT32_MAX - unit_random_below(&r, 9);
            tags[i] = unit_random_below(&r, 2) == 0 ? far : (uint32_t)unit_random(&r);
            qr_buckets_insert(&buckets, tags[i], i + 1);
        }
        present[i] = !present[i];
        count += present[i] ? 1 : UINT32_MAX;
        assert_int_equal(buckets.used, count);
        assert_int_equal(is_present(&buckets, tags[i], i + 1), present[i]);
        if (step % 50 == 0)
            assert_true(is_valid(&buckets, tags, present, RANDOM_ENTRIES));
    }
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 21);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_buckets_are_empty),
        cmocka_unit_test(at_most_half_is_used),
        cmocka_unit_test(home_keeps_the_order_of_tags),
        cmocka_unit_test(no_mark_is_zero),
        cmocka_unit_test(match_finds_what_a_loop_finds),
        cmocka_unit_test(clear_forgets_all),
        cmocka_unit_test(search_ends_where_every_bucket_was_gone_past),
        cmocka_unit_test(ids_take_the_bits_that_they_need),
        cmocka_unit_test(rest_of_a_tag_tells_more_than_its_mark),
        cmocka_unit_test(search_shows_all_that_have_a_tag),
        cmocka_unit_test(bits_tell_which_tags_went_past),
        cmocka_unit_test(walker_sees_damage),
        cmocka_unit_test(every_order_of_entries_that_overflow),
        cmocka_unit_test(random_steps_agree_with_a_list),
    };
    return cmocka_run_group_tests_name("base_buckets", tests, NULL, NULL);
}

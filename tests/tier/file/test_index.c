/* tier/file/test_index.c - the private file: when its index is written, by a clock that the test
 * moves, what is known of a block without reading its head, and what the next life knows. */
#include "tier/file/file_kit.h"

#include "tier/file/format.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>

static _Atomic uint64_t now_ns;

static uint64_t get_now(void *user)
{
    (void)user;
    return now_ns;
}

static void begin(file_kit *kit, void **state)
{
    kit_begin(kit, 20, KIT_BLOCK);
    kit->config.uring = *state == NULL ? QUIRE_DEFAULT : QUIRE_OFF;
    kit->common.hooks.now_ns = get_now;
    now_ns = 1000000000;
}

static qr_file_layout layout_of(const file_kit *kit)
{
    qr_file_layout layout;
    assert_true(qr_file_layout_plan(kit->config.capacity_bytes, kit->config.block_bytes, &layout));
    return layout;
}

/* The number of the newest index in the file; 0: there is none. */
static uint64_t newest_index(const file_kit *kit)
{
    qr_file_layout layout = layout_of(kit);
    uint64_t newest = 0;
    for (int i = 0; i < 2; i++) {
        unsigned char page[QR_FILE_PAGE];
        qr_file_index index;
        kit_peek(kit, layout.index_at[i], page, sizeof page);
        if (qr_file_index_read(page, &index) == QR_FILE_GOOD && index.seq > newest)
            newest = index.seq;
    }
    return newest;
}

/* The tier's thread looks at its clock in each of these. */
static void let_it_work(file_kit *kit)
{
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(kit_load_all(kit, 0, 5), 5);
}

static void expect_index_after(file_kit *kit, uint64_t before)
{
    for (uint32_t i = 0; i < 5000 && newest_index(kit) == before; i++) {
        let_it_work(kit);
        poll(NULL, 0, 1);
    }
    assert_int_equal(newest_index(kit), before + 1);
}

/* Every 30 s where nothing else is said, or as often as is said; if something changed. */
static void test_when_it_is_written(void **state)
{
    static const uint32_t INTERVALS[] = {0, 1, 700};
    for (uint32_t k = 0; k < 3; k++) {
        file_kit kit;
        begin(&kit, state);
        kit.config.checkpoint_ms = INTERVALS[k];
        uint64_t interval_ns =
            INTERVALS[k] == 0 ? UINT64_C(30000000000) : INTERVALS[k] * 1000000ULL;
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        uint64_t before = newest_index(&kit);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 5, QUIRE_TIER_DONE), 5);
        now_ns += interval_ns - 1;
        let_it_work(&kit);
        assert_int_equal(newest_index(&kit), before);
        now_ns += 1;
        expect_index_after(&kit, before);
        for (uint32_t i = 0; i < 5; i++) { /* nothing has changed since */
            now_ns += interval_ns;
            let_it_work(&kit);
        }
        assert_int_equal(newest_index(&kit), before + 1);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 7, 1, QUIRE_TIER_DONE), 1);
        expect_index_after(&kit, before + 1);
        kit_end(&kit);
    }
}

/* Of two heads with the same key the newer is known by its number, whenever they were written. */
static void test_numbers_grow_from_life_to_life(void **state)
{
    enum { LIVES = 3, EACH = 5 };
    file_kit kit;
    uint64_t seqs[LIVES * EACH] = {0};
    begin(&kit, state);
    for (uint32_t life = 0; life < LIVES; life++) {
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, life * EACH, EACH, QUIRE_TIER_DONE), EACH);
        kit_close(&kit);
    }
    qr_file_layout layout = layout_of(&kit);
    for (uint32_t slot = 0; slot < layout.num_slots; slot++) {
        unsigned char page[QR_FILE_PAGE];
        qr_file_head head;
        kit_peek(&kit, qr_file_slot_at(&layout, slot), page, sizeof page);
        if (qr_file_head_read(page, &head) != QR_FILE_GOOD)
            continue;
        for (uint32_t i = 0; i < LIVES * EACH; i++) {
            quire_tier_key key = kit_key(i);
            if (memcmp(&key, &head.entry.key, sizeof key) == 0)
                seqs[i] = head.entry.seq;
        }
    }
    for (uint32_t i = 0; i < LIVES * EACH; i++)
        for (uint32_t later = i / EACH * EACH + EACH; later < LIVES * EACH; later++)
            assert_true(seqs[i] != 0 && seqs[i] < seqs[later]);
    kit_end(&kit);
}

/* Of what this process stored it knows all that the head would say: a load is one read. What
 * another life stored is not believed without its head. */
static void test_heads_are_read_once(void **state)
{
    file_kit kit;
    unsigned char zeros[QR_FILE_PAGE] = {0};
    begin(&kit, state);
    qr_file_layout layout = layout_of(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
    for (uint32_t slot = 0; slot < layout.num_slots; slot++)
        kit_poke(&kit, qr_file_slot_at(&layout, slot), zeros, sizeof zeros);
    assert_int_equal(kit_load_all(&kit, 0, 10), 10);
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_LOAD, 0, 10, QUIRE_TIER_MISSING), 10);
    kit_end(&kit);
}

/* Which way the file is read is said where the tier has chosen it. */
static void test_the_way_is_said(void **state)
{
    file_kit kit;
    begin(&kit, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_true((strstr(kit.log, "/slab by ") != NULL) == (kit.config.uring == QUIRE_DEFAULT));
    kit_end(&kit);
}

/* An index of several pages is as good as one of a single page: no head has to be read. */
static void test_an_index_of_pages(void **state)
{
    file_kit kit;
    kit_begin(&kit, 200, 512);
    kit.config.uring = *state == NULL ? QUIRE_DEFAULT : QUIRE_OFF;
    for (uint32_t life = 0; life < 4; life++) { /* both places */
        kit.log[0] = 0;
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_true(life == 0 || strstr(kit.log, "blocks\n") != NULL);
        assert_null(strstr(kit.log, "no valid index"));
        assert_int_equal(kit_load_all(&kit, 0, 200), life * 50);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, life * 50, 50, QUIRE_TIER_DONE), 50);
        kit_close(&kit);
    }
    kit_end(&kit);
}

/* The next life evicts what was stored longest ago, wherever it lies. */
static void test_ages_from_life_to_life(void **state)
{
    file_kit kit;
    begin(&kit, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    for (uint32_t i = 0; i < 30; i++) /* the last ten lie where the first ten did */
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, i, 1, QUIRE_TIER_DONE), 1);
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    for (uint32_t i = 100; i < 110; i++)
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, i, 1, QUIRE_TIER_DONE), 1);
    assert_int_equal(kit_load_all(&kit, 10, 10), 0);
    assert_int_equal(kit_load_all(&kit, 20, 10), 10);
    assert_int_equal(kit_load_all(&kit, 100, 10), 10);
    kit_end(&kit);
}

/* Of the first two pages the newer one counts, whichever it is: what was reset stays away. */
static void test_an_old_first_page(void **state)
{
    file_kit kit;
    unsigned char old[2][QR_FILE_PAGE];
    begin(&kit, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
    kit_close(&kit);
    kit_peek(&kit, 0, old, sizeof old);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(quire_tier_reset(kit.tier), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 20, 5, QUIRE_TIER_DONE), 5);
    kit_close(&kit);
    for (uint32_t i = 0; i < 2; i++) {
        kit_poke(&kit, (uint64_t)i * QR_FILE_PAGE, old[i], QR_FILE_PAGE);
        kit.log[0] = 0;
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_non_null(strstr(kit.log, "holds 5 of 20 blocks"));
        assert_int_equal(kit_load_all(&kit, 0, 10), 0);
        assert_int_equal(kit_load_all(&kit, 20, 5), 5);
        kit_close(&kit);
    }
    kit_end(&kit);
}

#define BOTH(test)                                                                                 \
    {.name = #test " (io_uring)", .test_func = test},                                              \
    {                                                                                              \
        .name = #test " (threads)", .test_func = test, .initial_state = &with_threads              \
    }

int main(void)
{
    static int with_threads;
    const struct CMUnitTest tests[] = {
        BOTH(test_when_it_is_written),  BOTH(test_numbers_grow_from_life_to_life),
        BOTH(test_heads_are_read_once), BOTH(test_the_way_is_said),
        BOTH(test_an_index_of_pages),   BOTH(test_ages_from_life_to_life),
        BOTH(test_an_old_first_page),
    };
    return cmocka_run_group_tests_name("the index of a private file", tests, NULL, NULL);
}

/* sched/encoder/test_encoder.c - items, their users, who is evicted when; limits; and the walker.
 *
 * Requests are arrays of features, a, b and c; sizes are in embeddings.
 */
#include "sched/encoder/encoder_kit.h"

static encoder_kit kit;
static qr_encoder *const encoder = &kit.encoder;

static void make(uint32_t cache_size, uint32_t max_items)
{
    kit_init(&kit, (qr_encoder_config){.cache_size = cache_size, .max_items = max_items});
}

static void make_decoder(uint32_t cache_size, uint32_t max_items, bool frees_again)
{
    kit_init(&kit, (qr_encoder_config){.cache_size = cache_size,
                                       .max_items = max_items,
                                       .is_encoder_decoder = true,
                                       .frees_again = frees_again});
}

/* ---- users ----------------------------------------------------------------- */

static void item_is_shared_and_stays_until_all_let_go(void **state)
{
    (void)state;
    make(10, 4);
    qr_feature a[] = {kit_feature("x", 0, 4)};
    qr_feature b[] = {kit_feature("x", 9, 4)};
    assert_false(qr_encoder_check_and_update(encoder, a, 1, 0));
    kit_allocate(&kit, a, 0);
    kit_expect_room(&kit, 6, 6);
    assert_true(qr_encoder_check_and_update(encoder, b, 1, 0));
    assert_int_equal(kit_num_uses(encoder), 2);
    qr_encoder_free(encoder, a, 1);
    kit_expect_room(&kit, 6, 6);
    kit_expect_unused(&kit, "");
    qr_encoder_free(encoder, b, 1);
    kit_expect_room(&kit, 6, 10);
    kit_expect_unused(&kit, "x");
    assert_true(qr_encoder_check_and_update(encoder, a, 1, 0));
    kit_expect_room(&kit, 6, 6);
    kit_expect_unused(&kit, "");
    kit_expect_freed(&kit, "");
}

static void request_that_names_an_item_twice_is_one_user(void **state)
{
    (void)state;
    make(10, 4);
    qr_feature a[] = {kit_feature("x", 0, 4), kit_feature("y", 4, 1), kit_feature("x", 5, 4)};
    kit_allocate(&kit, a, 0);
    assert_true(qr_encoder_check_and_update(encoder, a, 3, 2));
    assert_true(qr_encoder_check_and_update(encoder, a, 3, 0));
    assert_int_equal(kit_num_uses(encoder), 1);
    qr_encoder_free_input(encoder, a, 3, 2); /* the other feature of the same item */
    assert_int_equal(kit_num_uses(encoder), 0);
    assert_false(qr_encoder_holds(encoder, &a[0]));
    kit_expect_unused(&kit, "x");
    qr_encoder_free_input(encoder, a, 3, 0);
    kit_expect_room(&kit, 6, 10);
}

static void freeing_what_one_does_not_use_changes_nothing(void **state)
{
    (void)state;
    make(10, 4);
    qr_feature a[] = {kit_feature("x", 0, 4)};
    qr_feature b[] = {kit_feature("x", 0, 4), kit_feature("y", 4, 4)};
    kit_allocate(&kit, a, 0);
    qr_encoder_free_input(encoder, b, 2, 0);
    qr_encoder_free_input(encoder, b, 2, 1);
    qr_encoder_free(encoder, b, 2);
    kit_expect_room(&kit, 6, 6);
    assert_int_equal(kit_num_uses(encoder), 1);
}

/* ---- eviction -------------------------------------------------------------- */

static void longest_unused_goes_first_and_no_more_than_needed(void **state)
{
    (void)state;
    make(12, 8);
    qr_feature a[] = {kit_feature("u", 0, 4), kit_feature("v", 4, 4), kit_feature("w", 8, 4)};
    qr_feature b[] = {kit_feature("x", 0, 5)};
    for (uint32_t i = 0; i < 3; i++)
        kit_allocate(&kit, a, i);
    assert_false(qr_encoder_can_allocate(encoder, b, 100, 0, 0));
    qr_encoder_free_input(encoder, a, 3, 2);
    qr_encoder_free_input(encoder, a, 3, 0);
    qr_encoder_free_input(encoder, a, 3, 1);
    kit_expect_unused(&kit, "w u v");
    assert_true(qr_encoder_can_allocate(encoder, b, 100, 0, 0));
    kit_expect_room(&kit, 8, 12);
    kit_expect_unused(&kit, "v");
    assert_int_equal(qr_encoder_allocate(encoder, b, 0), QUIRE_OK);
    kit_expect_room(&kit, 3, 7);
    kit_expect_freed(&kit, "w u");
    kit_expect_freed(&kit, "");
    assert_false(qr_encoder_check_and_update(encoder, a, 3, 2));
    assert_true(qr_encoder_check_and_update(encoder, a, 3, 1));
}

static void budget_and_what_is_scheduled_count(void **state)
{
    (void)state;
    make(10, 8);
    qr_feature a[] = {kit_feature("u", 0, 4), kit_feature("v", 4, 4)};
    assert_false(qr_encoder_can_allocate(encoder, &a[0], 3, 0, 0));
    assert_true(qr_encoder_can_allocate(encoder, &a[0], 4, 6, 1));
    assert_false(qr_encoder_can_allocate(encoder, &a[0], 4, 7, 1));
    kit_allocate(&kit, a, 0);
    qr_encoder_free(encoder, a, 2);
    assert_true(qr_encoder_can_allocate(encoder, &a[1], 4, 6, 1));
    kit_expect_freed(&kit, "u");
    assert_false(qr_encoder_can_allocate(encoder, &a[1], UINT32_MAX, UINT32_MAX, 1));
}

static void evicted_and_encoded_again_in_one_step(void **state)
{
    (void)state;
    make(4, 2);
    qr_feature a[] = {kit_feature("u", 0, 4)};
    qr_feature b[] = {kit_feature("v", 0, 4)};
    kit_allocate(&kit, a, 0);
    qr_encoder_free(encoder, a, 1);
    kit_allocate(&kit, b, 0);
    qr_encoder_free(encoder, b, 1);
    kit_allocate(&kit, a, 0);
    kit_expect_freed(&kit, "u v");
    kit_expect_room(&kit, 0, 0);
}

/* The order of a set of numbers is not that of the numbers: 8 is before 1. */
static void free_goes_in_the_order_of_a_set(void **state)
{
    (void)state;
    static const char *NAMES[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8"};
    make(20, 16);
    qr_feature a[9];
    for (uint32_t i = 0; i < 9; i++)
        a[i] = kit_feature(NAMES[i], i, 1);
    kit_allocate(&kit, a, 1);
    kit_allocate(&kit, a, 8);
    const uint32_t *inputs;
    assert_int_equal(qr_encoder_cached_inputs(encoder, a, 9, &inputs), 2);
    assert_int_equal(inputs[0], 8);
    assert_int_equal(inputs[1], 1);
    qr_encoder_free(encoder, a, 9);
    kit_expect_unused(&kit, "8 1");
}

/* Items of others are in the set too, and give it another order. */
static void items_of_others_shape_the_set(void **state)
{
    (void)state;
    static const char *NAMES[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8"};
    make(20, 16);
    qr_feature a[9];
    qr_feature b[9];
    for (uint32_t i = 0; i < 9; i++)
        a[i] = b[i] = kit_feature(NAMES[i], i, 1);
    for (uint32_t i = 0; i < 9; i++)
        kit_allocate(&kit, i == 1 || i == 8 ? a : b, i);
    qr_encoder_free(encoder, a, 9);
    kit_expect_unused(&kit, "1 8");
}

static void computed_features_are_freed(void **state)
{
    (void)state;
    make(20, 8);
    qr_feature a[] = {kit_feature("u", 2, 3), kit_feature("v", 5, 3), kit_feature("w", 9, 1)};
    for (uint32_t i = 0; i < 3; i++)
        kit_allocate(&kit, a, i);
    qr_encoder_free_computed(encoder, a, 3, 4);
    kit_expect_unused(&kit, "");
    qr_encoder_free_computed(encoder, a, 3, 7);
    kit_expect_unused(&kit, "u");
    qr_encoder_free_computed(encoder, a, 3, 10);
    kit_expect_unused(&kit, "u v w");
    qr_encoder_free_computed(encoder, a, 3, 11);
    kit_expect_room(&kit, 13, 20);
    a[0] = kit_feature("t", UINT32_MAX, UINT32_MAX); /* whose end is past 32 bits */
    a[0].num_embeds = 1;
    kit_allocate(&kit, a, 0);
    qr_encoder_free_computed(encoder, a, 1, UINT32_MAX);
    assert_true(qr_encoder_holds(encoder, &a[0]));
}

/* ---- sizes that do not agree ----------------------------------------------- */

static void size_of_an_item_stays_as_allocated(void **state)
{
    (void)state;
    make(10, 4);
    qr_feature a[] = {kit_feature("x", 0, 4)};
    qr_feature b[] = {kit_feature("x", 0, 9)};
    kit_allocate(&kit, a, 0);
    assert_true(qr_encoder_check_and_update(encoder, b, 1, 0));
    qr_encoder_free(encoder, a, 1);
    qr_encoder_free(encoder, b, 1);
    kit_expect_room(&kit, 6, 10);
}

static void size_of_an_item_by_its_last_user(void **state)
{
    (void)state;
    kit_init(&kit, (qr_encoder_config){.cache_size = 10, .max_items = 4, .sizes_by_user = true});
    qr_feature a[] = {kit_feature("x", 0, 4)};
    qr_feature b[] = {kit_feature("x", 0, 9), kit_feature("y", 9, 15)};
    kit_allocate(&kit, a, 0);
    assert_true(qr_encoder_check_and_update(encoder, b, 2, 0));
    qr_encoder_free(encoder, a, 1);
    qr_encoder_free(encoder, b, 2);
    kit_expect_room(&kit, 6, 15);
    assert_true(qr_encoder_check_and_update(encoder, a, 1, 0));
    kit_expect_room(&kit, 6, 6);
    qr_encoder_free(encoder, a, 1);
    kit_expect_room(&kit, 6, 10);
    assert_true(qr_encoder_check_and_update(encoder, b, 2, 0));
    qr_encoder_free(encoder, b, 2);
    assert_true(qr_encoder_can_allocate(encoder, &b[1], 15, 0, 0));
    kit_expect_room(&kit, 15, 15);
}

/* ---- limits ---------------------------------------------------------------- */

static void items_have_a_limit(void **state)
{
    (void)state;
    make(100, 2);
    qr_feature a[] = {kit_feature("u", 0, 1), kit_feature("v", 1, 1), kit_feature("w", 2, 1)};
    assert_true(qr_encoder_can_allocate(encoder, &a[0], 9, 1, 1));
    assert_false(qr_encoder_can_allocate(encoder, &a[0], 9, 2, 2));
    kit_allocate(&kit, a, 0);
    kit_allocate(&kit, a, 1);
    assert_false(qr_encoder_can_allocate(encoder, &a[2], 9, 0, 0));
    assert_int_equal(qr_encoder_allocate(encoder, a, 2), QUIRE_FULL);
    qr_encoder_free_input(encoder, a, 3, 0);
    assert_int_equal(qr_encoder_allocate(encoder, a, 2), QUIRE_FULL);
    kit_expect_room(&kit, 98, 99);
    kit_allocate(&kit, a, 2); /* asking first evicts the unused one, though there is room */
    kit_expect_freed(&kit, "u");
}

static void untold_items_have_a_limit(void **state)
{
    (void)state;
    make(4, 2);
    qr_feature a[] = {kit_feature("u", 0, 4)};
    qr_feature b[] = {kit_feature("v", 0, 4)};
    for (uint32_t k = 0; k < 2; k++) {
        qr_feature *now = k % 2 == 0 ? a : b;
        kit_allocate(&kit, now, 0);
        qr_encoder_free(encoder, now, 1);
    }
    kit_allocate(&kit, a, 0);
    qr_encoder_free(encoder, a, 1);
    assert_int_equal(encoder->num_gone, 2);
    assert_false(qr_encoder_can_allocate(encoder, b, 4, 0, 0));
    kit_expect_unused(&kit, "u");
    kit_expect_freed(&kit, "u v");
    assert_true(qr_encoder_can_allocate(encoder, b, 4, 0, 0));
    kit_expect_freed(&kit, "u");
}

static void allocate_refuses_without_a_change(void **state)
{
    (void)state;
    make(4, 4);
    qr_feature a[] = {kit_feature("u", 0, 3), kit_feature("v", 0, 2), kit_feature("too long", 0, 1),
                      kit_feature("too long!", 0, 1)};
    kit_allocate(&kit, a, 0);
    assert_int_equal(qr_encoder_allocate(encoder, a, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(qr_encoder_allocate(encoder, a, 1), QUIRE_FULL);
    assert_int_equal(qr_encoder_allocate(encoder, a, 3), QUIRE_E_RANGE);
    kit_expect_room(&kit, 1, 1);
    assert_false(qr_encoder_holds(encoder, &a[3]));
    kit_allocate(&kit, a, 2);
}

static void identifiers_of_any_bytes(void **state)
{
    (void)state;
    make(100, 8);
    qr_feature a[] = {kit_feature("", 0, 1), kit_feature("a", 1, 1), kit_feature("ab", 2, 1)};
    a[0].identifier.data = NULL;
    a[1].identifier = (quire_bytes){"\0", 1};
    a[2].identifier = (quire_bytes){"\0\0", 2};
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(qr_encoder_check_and_update(encoder, a, 3, i));
        kit_allocate(&kit, a, i);
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_true(qr_encoder_check_and_update(encoder, a, 3, i));
    assert_int_equal(kit_num_uses(encoder), 3);
}

static void identifiers_are_copied(void **state)
{
    (void)state;
    make(4, 2);
    char name[] = "mine";
    qr_feature a[] = {kit_feature(name, 0, 4)};
    qr_feature b[] = {kit_feature("b", 0, 4)};
    kit_allocate(&kit, a, 0);
    qr_encoder_free(encoder, a, 1);
    memset(name, '?', 4);
    assert_true(qr_encoder_can_allocate(encoder, b, 4, 0, 0));
    kit_expect_freed(&kit, "mine");
}

static void reset_ends_all_uses(void **state)
{
    (void)state;
    make(10, 4);
    qr_feature a[] = {kit_feature("x", 0, 4)};
    qr_feature b[] = {kit_feature("x", 0, 4), kit_feature("y", 4, 8)};
    kit_allocate(&kit, a, 0);
    qr_encoder_free(encoder, a, 1);
    assert_true(qr_encoder_can_allocate(encoder, &b[1], 8, 0, 0)); /* "x" waits to be told */
    kit_allocate(&kit, b, 1);
    qr_encoder_reset(encoder);
    kit_expect_room(&kit, 10, 10);
    kit_expect_freed(&kit, "");
    kit_allocate(&kit, a, 0);
    qr_encoder_reset(encoder);
    assert_false(qr_encoder_check_and_update(encoder, a, 1, 0));
    kit_allocate(&kit, b, 0);
    qr_encoder_free(encoder, a, 1); /* a's use ended with the reset: b's stays */
    assert_int_equal(kit_num_uses(encoder), 1);
    kit_expect_unused(&kit, "");
}

static void epoch_is_never_zero(void **state)
{
    (void)state;
    make(10, 4);
    encoder->epoch = UINT32_MAX;
    qr_encoder_reset(encoder);
    qr_feature a[] = {kit_feature("x", 0, 4)};
    assert_false(qr_encoder_holds(encoder, &a[0]));
    kit_expect_room(&kit, 10, 10);
}

/* ---- encoder-decoder ------------------------------------------------------- */

static void decoder_shares_nothing(void **state)
{
    (void)state;
    make_decoder(10, 4, false);
    qr_feature a[] = {kit_feature("x", 0, 4)};
    qr_feature b[] = {kit_feature("x", 0, 4)};
    kit_allocate(&kit, a, 0);
    assert_false(qr_encoder_check_and_update(encoder, b, 1, 0));
    kit_allocate(&kit, b, 0);
    assert_int_equal(encoder->num_free, 2);
    assert_false(qr_encoder_can_allocate(encoder, a, 100, 0, 0));
    const uint32_t *inputs;
    assert_int_equal(qr_encoder_cached_inputs(encoder, b, 1, &inputs), 1);
    assert_int_equal(qr_encoder_allocate(encoder, a, 0), QUIRE_E_ARGUMENT);
}

static void decoder_tells_one_step_later(void **state)
{
    (void)state;
    make_decoder(10, 4, false);
    qr_feature a[] = {kit_feature("x", 0, 4), kit_feature("y", 0, 4)};
    kit_allocate(&kit, a, 0);
    kit_expect_freed(&kit, "");
    qr_encoder_free_computed(encoder, a, 2, 1);
    assert_int_equal(encoder->num_free, 10);
    kit_allocate(&kit, a, 1);
    kit_expect_freed(&kit, "x");
    kit_expect_freed(&kit, "y");
    kit_expect_freed(&kit, "");
    kit_allocate(&kit, a, 0);
    qr_encoder_reset(encoder);
    kit_expect_freed(&kit, "");
    kit_expect_freed(&kit, "");
    assert_int_equal(encoder->num_free, 10);
}

static void decoder_gives_back_what_was_taken(void **state)
{
    (void)state;
    make_decoder(10, 4, false);
    qr_feature a[] = {kit_feature("x", 0, 4)};
    qr_encoder_free(encoder, a, 1);
    assert_int_equal(encoder->num_free, 10);
    kit_allocate(&kit, a, 0);
    qr_encoder_free_computed(encoder, a, 1, 0); /* no token yet: still needed */
    assert_int_equal(encoder->num_free, 6);
    qr_encoder_free_computed(encoder, a, 1, 1);
    qr_encoder_free_computed(encoder, a, 1, 2);
    qr_encoder_free(encoder, a, 1);
    assert_int_equal(encoder->num_free, 10);
}

static void decoder_frees_again_where_asked(void **state)
{
    (void)state;
    make_decoder(10, 4, true);
    qr_feature a[] = {kit_feature("x", 0, 4)};
    kit_allocate(&kit, a, 0);
    qr_encoder_free_computed(encoder, a, 1, 1);
    qr_encoder_free_computed(encoder, a, 1, 2);
    qr_encoder_free(encoder, a, 1);
    assert_int_equal(encoder->num_free, 18);
    assert_true(qr_encoder_is_valid(encoder));
}

static void decoder_limits(void **state)
{
    (void)state;
    make_decoder(10, 2, false);
    qr_feature a[] = {kit_feature("x", 0, 4), kit_feature("y", 0, 4), kit_feature("z", 0, 4)};
    assert_false(qr_encoder_can_allocate(encoder, a, 3, 0, 0));
    assert_false(qr_encoder_can_allocate(encoder, a, 4, 7, 0));
    assert_true(qr_encoder_can_allocate(encoder, a, 4, 0, 1));
    assert_false(qr_encoder_can_allocate(encoder, a, 4, 0, 2));
    kit_allocate(&kit, a, 0);
    kit_allocate(&kit, a, 1);
    assert_int_equal(qr_encoder_allocate(encoder, a, 2), QUIRE_FULL);
    qr_encoder_free(encoder, a, 2);
    assert_int_equal(qr_encoder_allocate(encoder, a, 2), QUIRE_FULL);
    kit_expect_freed(&kit, "");
    kit_allocate(&kit, a, 2);
    kit_expect_freed(&kit, "x y");
    kit_expect_freed(&kit, "z");
}

/* ---- embeddings in a range ------------------------------------------------- */

static void embeds_in_range(void **state)
{
    (void)state;
    static const uint8_t FLAGS[] = {0, 1, 0, 1, 1};
    qr_feature a = kit_feature("x", 2, 5);
    assert_int_equal(qr_feature_embeds_in_range(&a, kit_flags(), kit_chain(), 1, 4), 3);
    assert_int_equal(qr_feature_embeds_in_range(&a, kit_flags(), kit_chain(), 3, 3), 0);
    assert_int_equal(qr_feature_embeds_in_range(&a, kit_flags(), kit_chain(), 4, 3), 0);
    kit_set_flags(&a, FLAGS, 5);
    assert_int_equal(qr_feature_embeds_in_range(&a, kit_flags(), kit_chain(), 0, 5), 3);
    assert_int_equal(qr_feature_embeds_in_range(&a, kit_flags(), kit_chain(), 3, 5), 2);
    assert_int_equal(qr_feature_embeds_in_range(&a, kit_flags(), kit_chain(), 0, 1), 0);
    assert_int_equal(qr_feature_embeds_in_range(&a, kit_flags(), kit_chain(), 2, 3), 0);
}

/* ---- the walker ------------------------------------------------------------ */

/* Spoils a field, sees the walker find it, and mends it. */
#define SPOIL(field, value)                                                                        \
    do {                                                                                           \
        __typeof__(field) was = (field);                                                           \
        (field) = (value);                                                                         \
        assert_false(qr_encoder_is_valid(encoder));                                                \
        (field) = was;                                                                             \
        assert_true(qr_encoder_is_valid(encoder));                                                 \
    } while (0)

static void walker_finds_damage(void **state)
{
    (void)state;
    make(10, 4);
    qr_feature a[] = {kit_feature("t", 0, 6), kit_feature("u", 0, 2), kit_feature("v", 0, 2),
                      kit_feature("w", 0, 4)};
    for (uint32_t i = 0; i < 3; i++)
        kit_allocate(&kit, a, i);
    qr_encoder_free_input(encoder, a, 4, 0);
    kit_allocate(&kit, a, 3); /* evicts t */
    qr_encoder_free_input(encoder, a, 4, 1);
    qr_encoder_free_input(encoder, a, 4, 2);
    uint32_t gone = encoder->gone[0];
    uint32_t unused = encoder->items[encoder->num_slots].link.next;
    uint32_t used = 0;
    for (uint32_t slot = 0; slot < encoder->num_slots; slot++)
        if (encoder->items[slot].num_users > 0)
            used = slot;
    SPOIL(encoder->num_free, encoder->num_free + 1);
    SPOIL(encoder->num_freeable, encoder->num_freeable - 1);
    SPOIL(encoder->num_unused, 1);
    SPOIL(encoder->num_gone, 0);
    SPOIL(encoder->num_fresh, 1);
    SPOIL(encoder->num_spare, encoder->num_spare - 1);
    SPOIL(encoder->epoch, 0);
    SPOIL(encoder->items[gone].state, 9);
    SPOIL(encoder->items[gone].place, 1);
    SPOIL(encoder->items[gone].len, KIT_ID_BYTES + 1);
    SPOIL(encoder->items[used].num_users, 0);
    SPOIL(encoder->items[used].len, 0);
    SPOIL(encoder->items[unused].num_users, 1);
    SPOIL(encoder->items[unused].num_embeds, 1);
    SPOIL(encoder->items[unused].link.prev, unused);
    SPOIL(encoder->items[unused].link.next, unused);
    SPOIL(encoder->items[unused].link.next, encoder->num_slots + 7);
    SPOIL(encoder->names[(size_t)used * KIT_ID_BYTES], '?');
}

static void walker_finds_damage_of_a_decoder(void **state)
{
    (void)state;
    make_decoder(10, 4, false);
    qr_feature a[] = {kit_feature("t", 0, 6)};
    kit_allocate(&kit, a, 0);
    SPOIL(encoder->num_free, 11);
    SPOIL(encoder->items[encoder->fresh[0]].place, 1);
    SPOIL(encoder->index.used, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(item_is_shared_and_stays_until_all_let_go),
        cmocka_unit_test(request_that_names_an_item_twice_is_one_user),
        cmocka_unit_test(freeing_what_one_does_not_use_changes_nothing),
        cmocka_unit_test(longest_unused_goes_first_and_no_more_than_needed),
        cmocka_unit_test(budget_and_what_is_scheduled_count),
        cmocka_unit_test(evicted_and_encoded_again_in_one_step),
        cmocka_unit_test(free_goes_in_the_order_of_a_set),
        cmocka_unit_test(items_of_others_shape_the_set),
        cmocka_unit_test(computed_features_are_freed),
        cmocka_unit_test(size_of_an_item_stays_as_allocated),
        cmocka_unit_test(size_of_an_item_by_its_last_user),
        cmocka_unit_test(items_have_a_limit),
        cmocka_unit_test(untold_items_have_a_limit),
        cmocka_unit_test(allocate_refuses_without_a_change),
        cmocka_unit_test(identifiers_of_any_bytes),
        cmocka_unit_test(identifiers_are_copied),
        cmocka_unit_test(reset_ends_all_uses),
        cmocka_unit_test(epoch_is_never_zero),
        cmocka_unit_test(decoder_shares_nothing),
        cmocka_unit_test(decoder_tells_one_step_later),
        cmocka_unit_test(decoder_gives_back_what_was_taken),
        cmocka_unit_test(decoder_frees_again_where_asked),
        cmocka_unit_test(decoder_limits),
        cmocka_unit_test(embeds_in_range),
        cmocka_unit_test(walker_finds_damage),
        cmocka_unit_test(walker_finds_damage_of_a_decoder),
    };
    return cmocka_run_group_tests_name("sched_encoder", tests, NULL, NULL);
}

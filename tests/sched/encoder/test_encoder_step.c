/* sched/encoder/test_encoder_step.c - which features a step encodes, and where it ends when it
 * cannot.
 *
 *      tokens     0    4         10     14   15        20
 *                 text [u: 4..9  ] text [v: 14 .. 19  ]
 */
#include "sched/encoder/encoder_step.h"

#include "sched/encoder/encoder_kit.h"

enum { RANDOM_STEPS = 20000, REQUESTS = 6, FEATURES = 8, NAMES = 12 };

static uint64_t seed;
static encoder_kit kit;
static qr_encoder *const encoder = &kit.encoder;
static qr_feature uv[2];
static uint32_t inputs[8];

static void make(uint32_t cache_size, uint32_t max_items)
{
    kit_init(&kit, (qr_encoder_config){.cache_size = cache_size, .max_items = max_items});
    uv[0] = kit_feature("u", 4, 6);
    uv[1] = kit_feature("v", 14, 6);
}

static qr_encoder_ask ask_for(uint32_t num_computed, uint32_t num_new)
{
    return (qr_encoder_ask){.features = uv,
                            .num_features = 2,
                            .flags = kit_flags(),
                            .chain = kit_chain(),
                            .num_computed_tokens = num_computed,
                            .num_new_tokens = num_new,
                            .budget = 100};
}

static void expect(const qr_encoder_ask *ask, uint32_t num_inputs, uint32_t num_new,
                   uint32_t budget)
{
    qr_encoder_plan plan = qr_encoder_schedule(encoder, ask, inputs);
    assert_int_equal(plan.num_inputs, num_inputs);
    assert_int_equal(plan.num_new_tokens, num_new);
    assert_int_equal(plan.budget, budget);
    assert_true(qr_encoder_is_valid(encoder));
}

static void features_that_the_step_touches(void **state)
{
    (void)state;
    make(100, 8);
    qr_encoder_ask ask = ask_for(0, 4);
    expect(&ask, 0, 4, 100); /* ends where u begins */
    ask = ask_for(0, 5);
    expect(&ask, 1, 5, 94);
    assert_int_equal(inputs[0], 0);
    ask = ask_for(9, 6);
    expect(&ask, 2, 6, 88);
    ask = ask_for(10, 5); /* u is past */
    expect(&ask, 1, 5, 94);
    assert_int_equal(inputs[0], 1);
    ask = ask_for(20, 5);
    expect(&ask, 0, 5, 100);
    ask = ask_for(5, 0);
    expect(&ask, 0, 0, 100);
    ask = (qr_encoder_ask){.num_new_tokens = 7, .budget = 3};
    expect(&ask, 0, 7, 3);
}

static void cached_features_get_a_user(void **state)
{
    (void)state;
    make(100, 8);
    kit_allocate(&kit, uv, 0);
    qr_encoder_free(encoder, uv, 2);
    qr_encoder_ask ask = ask_for(0, 20);
    expect(&ask, 1, 20, 94);
    assert_int_equal(inputs[0], 1);
    assert_true(qr_encoder_holds(encoder, &uv[0]));
    assert_false(qr_encoder_holds(encoder, &uv[1]));
}

/* Who does not need an item now does not become its user, and cannot be stopped by it. */
static void features_out_of_the_step_are_left_alone(void **state)
{
    (void)state;
    make(100, 8);
    kit_allocate(&kit, uv, 0);
    qr_encoder_free(encoder, uv, 2);
    qr_encoder_ask ask = ask_for(0, 4);
    expect(&ask, 0, 4, 100);
    ask = ask_for(0, 3);
    ask.shift = 1;
    expect(&ask, 0, 3, 100);
    ask = ask_for(5, 0);
    expect(&ask, 0, 0, 100);
    ask = ask_for(10, 4);
    expect(&ask, 0, 4, 100);
    kit_expect_unused(&kit, "u");
    qr_encoder_reset(encoder);
    ask.budget = 5;
    expect(&ask, 0, 4, 5);
}

static void same_item_twice_is_encoded_once(void **state)
{
    (void)state;
    make(100, 8);
    uv[1].identifier = uv[0].identifier;
    qr_encoder_ask ask = ask_for(0, 20);
    expect(&ask, 1, 20, 94);
}

static void step_ends_before_what_cannot_be_encoded(void **state)
{
    (void)state;
    make(100, 8);
    qr_encoder_ask ask = ask_for(0, 20);
    ask.budget = 11; /* not enough for both */
    expect(&ask, 1, 14, 5);
    ask.budget = 5;
    expect(&ask, 0, 4, 5);
    ask.shift = 1;
    expect(&ask, 0, 3, 5);
    ask = ask_for(3, 20); /* with the shift, u is seen at once */
    ask.budget = 5;
    ask.shift = 1;
    expect(&ask, 0, 0, 5);
    ask = ask_for(6, 20); /* a prefix hit ends inside u */
    ask.budget = 5;
    expect(&ask, 0, 0, 5);
    make(11, 8); /* the cache, not the budget */
    ask = ask_for(0, 20);
    expect(&ask, 1, 14, 94);
    make(100, 1); /* nor the places */
    expect(&ask, 1, 14, 94);
}

static void room_is_made_for_the_whole_plan(void **state)
{
    (void)state;
    make(12, 8);
    qr_feature old[] = {kit_feature("o", 0, 3), kit_feature("p", 0, 3)};
    kit_allocate(&kit, old, 0);
    kit_allocate(&kit, old, 1);
    qr_encoder_free(encoder, old, 2);
    qr_encoder_ask ask = ask_for(0, 20);
    expect(&ask, 2, 20, 88);
    kit_expect_freed(&kit, "o p");
    assert_int_equal(qr_encoder_allocate(encoder, uv, 0), QUIRE_OK);
    assert_int_equal(qr_encoder_allocate(encoder, uv, 1), QUIRE_OK);
    kit_expect_room(&kit, 0, 0);
}

static void features_are_not_split_where_that_is_off(void **state)
{
    (void)state;
    make(100, 8);
    qr_encoder_ask ask = ask_for(0, 16);
    ask.disable_chunked = true;
    expect(&ask, 1, 14, 94);
    ask.shift = 1;
    expect(&ask, 1, 13, 94);
    ask = ask_for(3, 2);
    ask.disable_chunked = true;
    ask.shift = 1;
    expect(&ask, 0, 0, 100);
    ask = ask_for(4, 2); /* has begun: goes on */
    ask.disable_chunked = true;
    expect(&ask, 1, 2, 94);
    ask = ask_for(0, 10); /* fits as a whole */
    ask.disable_chunked = true;
    expect(&ask, 1, 10, 94);
}

static void features_without_embeddings_in_the_step(void **state)
{
    (void)state;
    static const uint8_t FLAGS[] = {0, 0, 1, 0, 1, 0};
    make(100, 8);
    kit_set_flags(&uv[0], FLAGS, COUNT(FLAGS));
    uv[0].num_embeds = 2;
    qr_encoder_ask ask = ask_for(0, 6);
    expect(&ask, 0, 6, 100); /* tokens 4 and 5 have none */
    ask = ask_for(0, 7);
    expect(&ask, 1, 7, 98);
    ask = ask_for(9, 3); /* only its last token, which has none */
    expect(&ask, 0, 3, 100);
    ask = ask_for(8, 3);
    expect(&ask, 1, 3, 98);
}

/* The shift alone reaches the feature: it must be possible to encode it, but it is not yet. */
static void features_that_only_the_shift_reaches(void **state)
{
    (void)state;
    static const uint8_t FLAGS[] = {1, 1, 1, 1, 1, 1};
    make(100, 8);
    qr_encoder_ask ask = ask_for(0, 4);
    ask.shift = 1;
    expect(&ask, 0, 4, 100);
    ask.budget = 5;
    expect(&ask, 0, 3, 5);
    ask = ask_for(0, 3);
    ask.shift = 2;
    expect(&ask, 1, 3, 94);
    kit_set_flags(&uv[0], FLAGS, COUNT(FLAGS));
    expect(&ask, 0, 3, 100);
}

static void decoder_encodes_before_its_first_token(void **state)
{
    (void)state;
    kit_init(&kit,
             (qr_encoder_config){.cache_size = 20, .max_items = 8, .is_encoder_decoder = true});
    uv[0] = kit_feature("u", 0, 6);
    uv[1] = kit_feature("u", 0, 6); /* shared by nobody, so encoded twice */
    qr_encoder_ask ask = ask_for(0, 3);
    expect(&ask, 2, 3, 88);
    ask = ask_for(1, 3);
    expect(&ask, 0, 3, 100);
    ask = ask_for(0, 3);
    ask.budget = 10;
    expect(&ask, 1, 0, 4);
}

static void positions_at_the_end_of_32_bits(void **state)
{
    (void)state;
    make(UINT32_MAX, 8);
    uv[0] = kit_feature("u", UINT32_MAX - 2, UINT32_MAX);
    qr_encoder_ask ask = ask_for(UINT32_MAX - 3, UINT32_MAX);
    ask.num_features = 1;
    ask.budget = UINT32_MAX;
    ask.shift = 1;
    expect(&ask, 1, UINT32_MAX, 0);
    ask.disable_chunked = true;
    ask.num_new_tokens = 2;
    expect(&ask, 0, 0, UINT32_MAX);
}

/* ---- at random, with few places -------------------------------------------- */

static qr_feature requests[REQUESTS][FEATURES];

/* Every name has its own size. */
static void random_request(qr_feature *features, uint64_t *r)
{
    static const char LETTERS[NAMES + 1] = "abcdefghijkl";
    uint32_t offset = 0;
    for (uint32_t i = 0; i < FEATURES; i++) {
        uint32_t name = unit_random_below(r, NAMES);
        features[i] = kit_feature("", offset, 1 + name % 5);
        features[i].identifier = (quire_bytes){&LETTERS[name], 1};
        offset += features[i].length + unit_random_below(r, 3);
    }
}

static void random_ask(qr_feature *features, uint64_t *r)
{
    qr_encoder_ask ask = {.features = features,
                          .num_features = FEATURES,
                          .num_computed_tokens = unit_random_below(r, 30),
                          .num_new_tokens = unit_random_below(r, 30),
                          .budget = unit_random_below(r, 20),
                          .shift = unit_random_below(r, 2),
                          .disable_chunked = unit_random_below(r, 2) == 1};
    qr_encoder_plan plan = qr_encoder_schedule(encoder, &ask, inputs);
    assert_true(plan.num_new_tokens <= ask.num_new_tokens);
    for (uint32_t k = 0; k < plan.num_inputs; k++)
        assert_int_equal(qr_encoder_allocate(encoder, features, inputs[k]), QUIRE_OK);
}

static uint32_t num_held(void)
{
    uint32_t held = 0;
    for (uint32_t q = 0; q < REQUESTS; q++)
        for (uint32_t i = 0; i < FEATURES; i++)
            held += qr_encoder_holds(encoder, &requests[q][i]);
    return held;
}

static void random_step(uint64_t *r)
{
    qr_feature *features = requests[unit_random_below(r, REQUESTS)];
    const quire_bytes *freed;
    switch (unit_random_below(r, 8)) {
    case 0:
        qr_encoder_free(encoder, features, FEATURES);
        random_request(features, r);
        break;
    case 1:
        qr_encoder_free_computed(encoder, features, FEATURES, unit_random_below(r, 30));
        break;
    case 2:
        (void)qr_encoder_take_freed(encoder, &freed);
        break;
    case 3:
        if (unit_random_below(r, 50) == 0)
            qr_encoder_reset(encoder);
        break;
    default:
        random_ask(features, r);
    }
}

/* What a plan says can be allocated, whatever the limits. */
static void plans_can_be_allocated(void **state)
{
    (void)state;
    uint64_t r = seed;
    bool was_full = false;
    for (uint32_t max_items = 1; max_items < 10; max_items++) {
        make(5 + unit_random_below(&r, 20), max_items);
        for (uint32_t q = 0; q < REQUESTS; q++)
            random_request(requests[q], &r);
        for (uint32_t step = 0; step < RANDOM_STEPS; step++) {
            random_step(&r);
            assert_int_equal(num_held(), kit_num_uses(encoder));
            if (step % 16 == 0)
                assert_true(qr_encoder_is_valid(encoder));
            was_full = was_full || encoder->index.used == max_items;
        }
    }
    assert_true(was_full);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 5);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_that_the_step_touches),
        cmocka_unit_test(cached_features_get_a_user),
        cmocka_unit_test(features_out_of_the_step_are_left_alone),
        cmocka_unit_test(same_item_twice_is_encoded_once),
        cmocka_unit_test(step_ends_before_what_cannot_be_encoded),
        cmocka_unit_test(room_is_made_for_the_whole_plan),
        cmocka_unit_test(features_are_not_split_where_that_is_off),
        cmocka_unit_test(features_without_embeddings_in_the_step),
        cmocka_unit_test(features_that_only_the_shift_reaches),
        cmocka_unit_test(decoder_encodes_before_its_first_token),
        cmocka_unit_test(positions_at_the_end_of_32_bits),
        cmocka_unit_test(plans_can_be_allocated),
    };
    return cmocka_run_group_tests_name("sched_encoder_step", tests, NULL, NULL);
}

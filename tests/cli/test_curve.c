/* test_curve.c - stack distances, copies, Belady's policy and the plot, on examples that fit a page
 * and at random beside a naive stack. test_curve.py compares whole traces.
 */
#include "base/unit.h"

#include "curve/belady.h"
#include "curve/curve.h"
#include "curve/lane.h"
#include "curve/stack_distance.h"
#include "output/plot.h"

/* ---- the stack ------------------------------------------------------------- */

static uint64_t seed;

enum { NUM_ELEMENTS = 700, NUM_MOVES = 60000 };

/* Gives all elements positions without holes. */
static void compact(stack_distance *stack, uint32_t positions[NUM_ELEMENTS], uint32_t more)
{
    for (uint32_t i = 0; i < NUM_ELEMENTS; i++)
        if (positions[i] != UINT32_MAX)
            positions[i] = stack_below(stack, positions[i]);
    assert_true(stack_compact(stack, more));
    assert_true(stack_has_room(stack, more));
}

static uint32_t count_above(const uint32_t positions[NUM_ELEMENTS], uint32_t element)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < NUM_ELEMENTS; i++)
        count += positions[i] != UINT32_MAX && positions[i] > positions[element];
    return count;
}

static void test_stack(void **state)
{
    static uint32_t positions[NUM_ELEMENTS];
    stack_distance stack = {0};
    uint64_t random = seed;
    uint32_t num_compacted = 0;
    (void)state;
    memset(positions, 0xff, sizeof positions);
    for (uint32_t i = 0; i < NUM_MOVES + 70000; i++) {
        uint32_t element = (uint32_t)(unit_random(&random) % NUM_ELEMENTS);
        if (!stack_has_room(&stack, 1)) {
            compact(&stack, positions, 1);
            num_compacted++;
        }
        if (positions[element] != UINT32_MAX) {
            if (i % 16 == 0)
                assert_int_equal(stack_above(&stack, positions[element]),
                                 count_above(positions, element));
            stack_remove(&stack, positions[element]);
        }
        positions[element] = stack_push(&stack);
        assert_int_equal(stack_above(&stack, positions[element]), 0);
    }
    assert_int_equal(stack.num_elements, NUM_ELEMENTS);
    assert_true(num_compacted >= 2);
    stack_free(&stack);
}

/* ---- lanes ----------------------------------------------------------------- */

static void use(curve_lane *lane, const char *blocks, uint32_t num_lookups, uint32_t num_others)
{
    uint64_t keys[32];
    uint32_t n = (uint32_t)strlen(blocks);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = (uint64_t)blocks[i] * UINT64_C(0x9e3779b97f4a7c15);
    assert_true(curve_lane_add(lane, &(curve_blocks){.keys = keys,
                                                     .num_lookups = num_lookups,
                                                     .num_full = n,
                                                     .num_held = n + num_others}));
}

/* Of a pool without end: all hits. */
static uint64_t all_hits(const curve_lane *lane)
{
    return curve_lane_hits(lane, UINT32_MAX);
}

static void test_picture(void **state)
{
    curve_lane lane = {.has_belady = true};
    (void)state;
    use(&lane, "ABC", 3, 0); /* A B C */
    use(&lane, "ABX", 3, 0); /* A B X C, and A and B were found by pools of 1, 2 and more */
    use(&lane, "ABC", 3, 0); /* C stood under three others */
    curve_lane_finish(&lane);
    assert_int_equal(curve_lane_hits(&lane, 0), 0);
    assert_int_equal(curve_lane_hits(&lane, 1), 2);
    assert_int_equal(curve_lane_hits(&lane, 3), 4);
    assert_int_equal(curve_lane_hits(&lane, 4), 5);
    assert_int_equal(all_hits(&lane), 5);
    assert_int_equal(lane.num_distinct, 4);
    curve_lane_free(&lane);
}

/* Part-filled blocks take a place in the pool while their request runs, and are never found. */
static void test_others(void **state)
{
    curve_lane lane = {0};
    (void)state;
    use(&lane, "AB", 2, 1); /* three blocks */
    use(&lane, "C", 1, 1);  /* C, A and B, and one that was not full */
    use(&lane, "AB", 2, 0); /* A was the 2nd of two and the other, B the 3rd */
    use(&lane, "X", 1, 0);  /* nothing was left of the other */
    use(&lane, "C", 1, 0);  /* under X, A and B */
    curve_lane_finish(&lane);
    assert_int_equal(curve_lane_hits(&lane, 2), 0);
    assert_int_equal(curve_lane_hits(&lane, 3), 1);
    assert_int_equal(curve_lane_hits(&lane, 4), 3);
    assert_int_equal(lane.num_distinct, 5);
    curve_lane_free(&lane);
}

/* The picture of curve/ghosts.h: D is computed twice, then found. */
static void test_copies(void **state)
{
    curve_lane lane = {0};
    (void)state;
    use(&lane, "V", 0, 0);
    use(&lane, "D", 0, 0);  /* D1 V */
    use(&lane, "XY", 0, 0); /* X Y D1 V */
    use(&lane, "D", 0, 0);  /* D2 X Y D1 V: not looked up, so computed again */
    use(&lane, "Z", 0, 0);  /* Z D2 X Y D1 V */
    assert_int_equal(lane.ghosts.num_ghosts, 0);
    use(&lane, "D", 1, 0); /* pools of 2 to 4: D2 moves; from 5 on: D1 moves, D2 is a ghost */
    assert_int_equal(lane.ghosts.num_ghosts, 1);
    assert_int_equal(lane.ghosts.list[0].min_blocks, 5);
    /* pools of 2 to 4: D Z X Y; from 5 on: D Z (D2) X Y V */
    use(&lane, "XY", 2, 0); /* X is the 3rd, in pools of 5 and more the 4th; Y the 4th or 5th */
    use(&lane, "V", 1, 0);  /* the 6th: with D2 counted twice or not at all it would be another */
    curve_lane_finish(&lane);
    assert_int_equal(curve_lane_hits(&lane, 1), 0);
    assert_int_equal(curve_lane_hits(&lane, 2), 1);
    assert_int_equal(curve_lane_hits(&lane, 3), 2);
    assert_int_equal(curve_lane_hits(&lane, 4), 3);
    assert_int_equal(curve_lane_hits(&lane, 5), 3);
    assert_int_equal(curve_lane_hits(&lane, 6), 4);
    curve_lane_free(&lane);
}

/* A ghost counts in the pools from its own size on, for what is below it. */
static void test_ghosts(void **state)
{
    curve_ghosts ghosts = {0};
    (void)state;
    assert_int_equal(curve_ghosts_min_blocks(&ghosts, 5, 7), 8);
    assert_true(curve_ghosts_add(&ghosts, (curve_ghost){20, 9}));
    assert_int_equal(curve_ghosts_min_blocks(&ghosts, 5, 7), 8); /* not in a pool of 8 */
    assert_int_equal(curve_ghosts_min_blocks(&ghosts, 5, 8), 10);
    assert_int_equal(curve_ghosts_min_blocks(&ghosts, 20, 8), 9); /* not below it */
    assert_true(curve_ghosts_add(&ghosts, (curve_ghost){10, 10}));
    assert_int_equal(curve_ghosts_min_blocks(&ghosts, 5, 8), 11); /* room for one, then for both */
    assert_int_equal(curve_ghosts_min_blocks(&ghosts, 15, 8), 10);
    assert_int_equal(curve_ghosts_min_blocks(&ghosts, 5, 7), 8);
    assert_int_equal(ghosts.list[0].position, 10);
    free(ghosts.list);
}

/* ---- Belady ---------------------------------------------------------------- */

static uint64_t min_hits(const curve_lane *lane, uint64_t num_blocks)
{
    uint64_t hits;
    assert_true(belady_hits(&lane->belady, num_blocks, &hits));
    return hits;
}

/* A, B and C in turn: LRU finds nothing in two blocks, who knows the future keeps one of them. */
static void test_belady(void **state)
{
    curve_lane lane = {.has_belady = true};
    (void)state;
    for (int i = 0; i < 4; i++) {
        use(&lane, "A", 1, 0);
        use(&lane, "B", 1, 0);
        use(&lane, "C", 1, 0);
    }
    curve_lane_finish(&lane);
    assert_int_equal(curve_lane_hits(&lane, 2), 0);
    assert_int_equal(min_hits(&lane, 1), 0);
    assert_int_equal(min_hits(&lane, 2), 5);
    assert_int_equal(min_hits(&lane, 3), 9);
    assert_int_equal(curve_lane_hits(&lane, 3), 9);
    curve_lane_free(&lane);
}

/* Blocks in use cannot be evicted, and of a prompt the deepest goes first. */
static void test_belady_prefix(void **state)
{
    curve_lane lane = {.has_belady = true};
    (void)state;
    use(&lane, "ABCD", 4, 0);
    use(&lane, "XY", 0, 0);
    use(&lane, "ABCD", 4, 0);
    assert_int_equal(min_hits(&lane, 4), 2); /* X and Y take the places of D and C */
    assert_int_equal(min_hits(&lane, 5), 3);
    assert_int_equal(min_hits(&lane, 6), 4);
    curve_lane_free(&lane);
}

/* ---- requests -------------------------------------------------------------- */

/* One request of prompt segments (1, a), (2, b) and an output. */
static void add(curve *c, uint32_t a, uint32_t b, uint64_t output_content, uint32_t output)
{
    trace_segment segments[2] = {{1, a}, {2, b}};
    trace_request request = {.prompt = segments,
                             .num_segments = 2,
                             .num_prompt_tokens = a + b,
                             .num_output_tokens = output,
                             .output_content = output_content};
    assert_true(curve_add(c, &request));
}

static uint64_t unlimited(const curve *c)
{
    return (uint64_t)curve_hits(c, curve_last_size(c)).value;
}

static void test_requests(void **state)
{
    curve *c = curve_open(&(curve_options){.block_size = 4, .sample = 1, .has_belady = true});
    (void)state;
    add(c, 6, 5, 7, 6);  /* 16 tokens computed: 4 full blocks, the prompt has 2 of them */
    add(c, 6, 5, 8, 1);  /* both are found */
    add(c, 6, 2, 9, 1);  /* 8 tokens: the last is computed, so one block */
    add(c, 5, 3, 10, 0); /* differs in the second block; no output counts as one */
    trace_segment longer[3] = {{1, 6}, {2, 5}, {7, 5}};
    trace_request next = {.prompt = longer,
                          .num_segments = 3,
                          .num_prompt_tokens = 16,
                          .num_output_tokens = 2,
                          .output_content = 11};
    assert_true(curve_add(c, &next)); /* what the first had and generated: 3 blocks of 4 */
    curve_finish(c);
    curve_totals t = curve_get_totals(c);
    assert_int_equal(t.requests, 5);
    assert_int_equal(t.lookups, 2 + 2 + 1 + 1 + 3);
    assert_int_equal(t.query_blocks, 3 + 3 + 2 + 2 + 4);
    assert_int_equal(t.min_blocks, 5);
    assert_int_equal(unlimited(c), 2 + 1 + 1 + 3);
    curve_value bound;
    assert_true(curve_belady(c, 1000, &bound));
    assert_true(bound.value == (double)unlimited(c));
    curve_close(c);
}

/* Pieces are told apart by content, place and length, and empty segments do not count. */
static void test_identities(void **state)
{
    static const trace_segment prompts[][3] = {
        {{1, 4}, {1, 4}, {9, 1}}, /* the same 4 tokens twice */
        {{1, 8}, {9, 1}, {9, 0}},
        {{1, 4}, {2, 4}, {9, 1}},
        {{1, 4}, {3, 0}, {1, 5}}}; /* as the first */
    curve *c = curve_open(&(curve_options){.block_size = 4, .sample = 1});
    (void)state;
    for (size_t i = 0; i < COUNT(prompts); i++) {
        trace_request request = {.prompt = prompts[i], .num_segments = 3, .output_content = 50 + i};
        for (int s = 0; s < 3; s++)
            request.num_prompt_tokens += prompts[i][s].num_tokens;
        assert_true(curve_add(c, &request));
    }
    curve_finish(c);
    assert_int_equal(unlimited(c), 0 + 1 + 1 + 2);
    curve_close(c);
}

/* ---- the plot -------------------------------------------------------------- */

static void test_plot(void **state)
{
    static const double x[] = {100, 1000, 10000};
    static const double y[] = {0, 20, 40};
    static char text[8192];
    const plot_series line = {.name = "a line", .x = x, .y = y, .num_points = 3};
    const plot p = {.x_name = "blocks",
                    .y_unit = " %",
                    .series = &line,
                    .num_series = 1,
                    .is_log_x = true,
                    .width = 72,
                    .height = 9};
    FILE *file = tmpfile();
    (void)state;
    assert_non_null(file);
    plot_draw(file, &p);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *top = strstr(text, "40 % ┤");
    const char *middle = strstr(text, "20 % ┤");
    const char *bottom = strstr(text, " 0 % ┤");
    assert_true(top != NULL && middle > top && bottom > middle);
    assert_non_null(strstr(text, "100"));
    assert_non_null(strstr(text, "1k"));
    assert_non_null(strstr(text, "blocks"));
    assert_non_null(strstr(text, "a line"));
    assert_null(strchr(text, '\033'));
    /* the line rises: it begins at the bottom left, and is far to the right at the top */
    assert_int_equal(bottom[strlen(" 0 % ┤")], '\xe2');
    assert_int_equal(top[strlen("40 % ┤")], ' ');
    assert_true(strcspn(top + strlen("40 % ┤"), "\xe2") > 30);
}

static void test_short_numbers(void **state)
{
    static const struct {
        double number;
        const char *text;
    } cases[] = {{0, "0"}, {999, "999"}, {1000, "1k"}, {1500, "1.5k"}, {2e6, "2M"}, {999600, "1M"}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[32];
        plot_short_number(text, sizeof text, cases[i].number);
        assert_string_equal(text, cases[i].text);
    }
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stack),         cmocka_unit_test(test_picture),
        cmocka_unit_test(test_others),        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_ghosts),        cmocka_unit_test(test_belady),
        cmocka_unit_test(test_belady_prefix), cmocka_unit_test(test_requests),
        cmocka_unit_test(test_identities),    cmocka_unit_test(test_plot),
        cmocka_unit_test(test_short_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cli/test_page_idle.c - idle time is idle on the page, however many steps there are: rows of idle
 * time are not merged with rows of steps.
 */
#include "page_data.h"

enum { MANY = 5000 };

typedef struct bursts {
    uint32_t num;    /* times of work, with idle time before each but the first */
    uint32_t steps;  /* of one */
    double idle_s;   /* after it; every second one is a thousandth of this */
    uint32_t pieces; /* page_idle is called so often in one idle time */
} bursts;

static const quire_usage AT_REST = {.total = 1000, .empty = 49, .cached = 950, .null_blocks = 1};

static void fill_bursts(page *p, const bursts *b)
{
    double now = 0;
    uint64_t step = 0;
    for (uint32_t burst = 0; burst < b->num; burst++) {
        double idle_s = burst % 2 ? b->idle_s : b->idle_s / 1000;
        for (uint32_t i = 0; burst > 0 && i < b->pieces; i++, now += idle_s / b->pieces)
            page_idle(p, now, &AT_REST, NULL);
        for (uint32_t i = 0; i < b->steps; i++, now += 0.01) {
            quire_snapshot s = {.step = ++step,
                                .num_running = 3,
                                .num_tokens = 4096,
                                .num_prefill_tokens = 4096,
                                .num_hit_tokens = 512,
                                .blocks = {.total = 1000, .cached = 99, .active = 900}};
            page_step(p, &s, now, 0.01, 4608, NULL);
        }
    }
}

/* Rows that stand for longer than their steps took are idle time in all that they say. */
static void compare_idle(const json_t *rows, const bursts *b, size_t num_long)
{
    static const char *const QUIET[] = {"running", "waiting", "tokens",     "prefill",
                                        "decode",  "active",  "duration_us"};
    size_t count = count_of(rows, "count");
    int64_t *steps = calloc(6 * count, sizeof *steps);
    int64_t *points = steps + count;
    int64_t *gaps = points + count;
    int64_t *durations = gaps + count;
    int64_t *queries = durations + count;
    int64_t *values = queries + count;
    column_of(rows, "steps", steps, count);
    column_of(rows, "points", points, count);
    column_of(rows, "query_tokens", queries, count);
    column_of(json_object_get(rows, "duration_us"), "sum", durations, count);
    differences_of(json_string_value(json_object_get(rows, "gap_us")), gaps, count);
    int64_t num_steps = 0;
    size_t num_idle = 0;
    for (size_t i = 0; i < count; i++) {
        num_steps += steps[i];
        assert_true(steps[i] == 0 || points[i] <= (int64_t)count_of(rows, "points_per_row"));
        if (i + 1 == count || gaps[i + 1] < (int64_t)(0.9e6 * b->idle_s))
            continue;
        num_idle++;
        assert_int_equal(steps[i], 0);
        assert_int_equal(queries[i], 0);
        for (size_t k = 0; k < COUNT(QUIET); k++) {
            column_of(json_object_get(rows, QUIET[k]), "max", values, count);
            assert_int_equal(values[i], 0);
        }
    }
    assert_int_equal(num_steps, (int64_t)b->num * b->steps);
    assert_int_equal(num_idle, num_long);
    free(steps);
}

static void idle_time_is_idle_in_merged_rows(void **state)
{
    (void)state;
    static const bursts CASES[] = {{2, 3000, 14 * 3600.0, 1}, /* the first idle time is long */
                                   {2, 3001, 14 * 3600.0, 1}, {9, 1111, 3600, 1}, {9, 777, 3600, 5},
                                   {16, 1, 3600, 1},          {16, 400, 3600, 1}};
    static const uint32_t ROOMS[] = {64, 66, 100, 1000};
    for (size_t c = 0; c < COUNT(CASES); c++)
        for (size_t r = 0; r < COUNT(ROOMS); r++) {
            if (CASES[c].num * CASES[c].steps < ROOMS[r])
                continue;
            page *p = page_open(&(page_meta){.max_rows = ROOMS[r]});
            fill_bursts(p, &CASES[c]);
            json_t *data = data_of(p, NULL);
            const json_t *rows = json_object_get(data, "rows");
            assert_true(count_of(rows, "count") <= ROOMS[r]);
            assert_true(count_of(rows, "points_per_row") > 1);
            compare_idle(rows, &CASES[c], CASES[c].num / 2);
            json_decref(data);
            page_close(p);
        }
}

/* An idle time after each step: more of them than there is room for. */
static void many_idle_times_fit(void **state)
{
    (void)state;
    static const uint32_t ROOMS[] = {2, 4, 16, 100};
    for (size_t r = 0; r < COUNT(ROOMS); r++) {
        page *p = page_open(&(page_meta){.max_rows = ROOMS[r]});
        fill_bursts(p, &(bursts){MANY, 1, 10, 1});
        json_t *data = data_of(p, NULL);
        const json_t *rows = json_object_get(data, "rows");
        size_t count = count_of(rows, "count");
        assert_in_range(count, 1, ROOMS[r]);
        int64_t steps[100];
        column_of(rows, "steps", steps, count);
        int64_t all = 0;
        for (size_t i = 0; i < count; i++)
            all += steps[i];
        assert_int_equal(all, MANY);
        json_decref(data);
        page_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_time_is_idle_in_merged_rows),
        cmocka_unit_test(many_idle_times_fit),
    };
    return cmocka_run_group_tests_name("cli_page_idle", tests, NULL, NULL);
}

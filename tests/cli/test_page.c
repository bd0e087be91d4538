/* cli/test_page.c - what the writer of the page keeps when a run is longer than there is room:
 * every extreme, every mark, every sum; and that what it packs can be unpacked.
 */
#include "base/unit.h"
#include "page/pack.h"
#include "page_data.h"

enum { MANY = 5000 };

static quire_snapshot snapshot_of(uint64_t step, uint64_t *random)
{
    uint32_t active = (uint32_t)(unit_random(random) % 900);
    uint32_t prefill = (uint32_t)(unit_random(random) % 3 == 0 ? unit_random(random) % 2048 : 0);
    uint32_t decode = (uint32_t)(unit_random(random) % 128);
    return (quire_snapshot){.step = step,
                            .num_running = decode,
                            .num_waiting = (uint32_t)(unit_random(random) % 10),
                            .num_skipped = (uint32_t)(unit_random(random) % 2),
                            .num_tokens = prefill + decode,
                            .num_prefill_tokens = prefill,
                            .num_hit_tokens = prefill / 2,
                            .num_preempted = unit_random(random) % 50 == 0,
                            .blocks = {.total = 1000,
                                       .empty = 50,
                                       .cached = 949 - active,
                                       .active = active,
                                       .null_blocks = 1}};
}

static void exact_rows(void **state)
{
    (void)state;
    page *p = page_open(&(page_meta){.trace = "exact"});
    uint64_t random = 7;
    int64_t active[100];
    int64_t waiting[100];
    int64_t times[100];
    double now = 0.25;
    for (uint64_t i = 0; i < 100; i++) {
        quire_snapshot s = snapshot_of(i + 1, &random);
        active[i] = (int64_t)s.blocks.active;
        waiting[i] = s.num_waiting + s.num_skipped;
        times[i] = (int64_t)(now * 1e6 + 0.5);
        page_step(p, &s, now, 0.0123456, 10, NULL);
        now += i % 10 == 9 ? 1 : 0.0123456;
    }
    json_t *data = data_of(p, "{\"requests\": 3}");
    const json_t *rows = json_object_get(data, "rows");
    assert_int_equal(count_of(rows, "count"), 100);
    assert_int_equal(count_of(rows, "points_per_row"), 1);
    assert_int_equal(count_of(json_object_get(data, "report"), "requests"), 3);
    int64_t found[100];
    column_of(json_object_get(rows, "active"), "min", found, 100);
    assert_memory_equal(found, active, sizeof active);
    assert_null(json_object_get(json_object_get(rows, "active"), "max"));
    column_of(json_object_get(rows, "waiting"), "min", found, 100);
    assert_memory_equal(found, waiting, sizeof waiting);

    int64_t gaps[100];
    column_of(json_object_get(rows, "duration_us"), "min", found, 100);
    differences_of(json_string_value(json_object_get(rows, "gap_us")), gaps, 100);
    int64_t end = 0;
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(end + gaps[i], times[i]);
        assert_true(i % 10 == 0 || gaps[i] == 0); /* steps that follow each other touch */
        end = times[i] + found[i];
    }
    json_decref(data);
    page_close(p);
}

/* ---- more steps than rows -------------------------------------------------- */

typedef struct series {
    const char *name;
    int64_t values[MANY];
} series;

static series EXPECTED[] = {{.name = "empty"},   {.name = "cached"},  {.name = "active"},
                            {.name = "running"}, {.name = "waiting"}, {.name = "tokens"},
                            {.name = "prefill"}, {.name = "decode"}};
static int64_t QUERIES[MANY];

static void fill(page *p)
{
    uint64_t random = 99;
    for (uint64_t i = 0; i < MANY; i++) {
        quire_snapshot s = snapshot_of(i + 1, &random);
        int64_t values[] = {(int64_t)s.blocks.empty,       (int64_t)s.blocks.cached,
                            (int64_t)s.blocks.active,      s.num_running,
                            s.num_waiting + s.num_skipped, s.num_tokens,
                            s.num_prefill_tokens,          s.num_tokens - s.num_prefill_tokens};
        for (size_t k = 0; k < COUNT(EXPECTED); k++)
            EXPECTED[k].values[i] = values[k];
        QUERIES[i] = (int64_t)(unit_random(&random) % 1000);
        page_step(p, &s, 0.01 * (double)i, 0.01, (uint64_t)QUERIES[i], NULL);
    }
}

/* Each row has the extremes and the sum of just those steps that it says it stands for. */
static void compare_rows(const json_t *rows, const series *expected)
{
    size_t count = count_of(rows, "count");
    int64_t *points = calloc(4 * count, sizeof *points);
    int64_t *mins = points + count;
    int64_t *maxs = mins + count;
    int64_t *sums = maxs + count;
    int64_t points_per_row = (int64_t)count_of(rows, "points_per_row");
    const json_t *table = json_object_get(rows, expected->name);
    column_of(rows, "points", points, count);
    column_of(table, "min", mins, count);
    column_of(table, "max", maxs, count);
    column_of(table, "sum", sums, count);
    size_t step = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t min = INT64_MAX;
        int64_t max = INT64_MIN;
        int64_t sum = 0;
        for (int64_t k = 0; k < points[i]; k++, step++) {
            int64_t value = expected->values[step];
            min = value < min ? value : min;
            max = value > max ? value : max;
            sum += value;
        }
        assert_int_equal(mins[i], min);
        assert_int_equal(maxs[i], max);
        assert_int_equal(sums[i], sum);
        assert_true(points[i] == points_per_row || (i + 1 == count && points[i] < points_per_row));
    }
    assert_int_equal(step, MANY);
    free(points);
}

static void merged_rows_keep_extremes(void **state)
{
    (void)state;
    static const uint32_t ROOMS[] = {2, 3, 64, 1000, MANY - 1, MANY};
    for (size_t r = 0; r < COUNT(ROOMS); r++) {
        page *p = page_open(&(page_meta){.max_rows = ROOMS[r]});
        fill(p);
        json_t *data = data_of(p, NULL);
        const json_t *rows = json_object_get(data, "rows");
        uint32_t room = (ROOMS[r] + 1) / 2 * 2;
        assert_in_range(count_of(rows, "count"), room / 2, room);
        assert_true(json_is_null(json_object_get(data, "report")));
        if (room < MANY)
            for (size_t k = 0; k < COUNT(EXPECTED); k++)
                compare_rows(rows, &EXPECTED[k]);
        size_t count = count_of(rows, "count");
        int64_t *queries = calloc(count, sizeof *queries);
        column_of(rows, "query_tokens", queries, count);
        int64_t found = 0;
        int64_t all = 0;
        for (size_t i = 0; i < count; i++)
            found += queries[i];
        for (size_t i = 0; i < MANY; i++)
            all += QUERIES[i];
        assert_int_equal(found, all);
        free(queries);
        json_decref(data);
        page_close(p);
    }
}

/* ---- marks ----------------------------------------------------------------- */

static void no_mark_is_lost(void **state)
{
    (void)state;
    page *p = page_open(&(page_meta){.max_rows = 16});
    int64_t steps[MANY];
    size_t num = 0;
    uint64_t random = 5;
    for (uint64_t i = 0; i < MANY; i++) {
        quire_snapshot s = snapshot_of(3 * i + 1, &random);
        if (s.num_preempted > 0)
            steps[num++] = (int64_t)s.step;
        page_step(p, &s, 0.5 * (double)i, 0.5, 0, NULL);
    }
    json_t *data = data_of(p, NULL);
    const json_t *marks = json_object_get(data, "marks");
    assert_true(num > 50);
    assert_int_equal(count_of(marks, "count"), num);
    assert_int_equal(count_of(marks, "steps_per_mark"), 1);
    assert_int_equal(count_of(json_object_get(data, "meta"), "num_preemptions"), num);
    int64_t *found = calloc(num, sizeof *found);
    column_of(marks, "step", found, num);
    assert_memory_equal(found, steps, num * sizeof *found);
    column_of(marks, "time_us", found, num);
    for (size_t i = 0; i < num; i++)
        assert_int_equal(found[i], (steps[i] - 1) / 3 * 500000);
    free(found);
    json_decref(data);
    page_close(p);
}

/* ---- frames ---------------------------------------------------------------- */

static void unpack_frame(bytes *b, unsigned char *cells, size_t count)
{
    size_t cell = 0;
    while (cell < count) {
        unsigned char control = b->at[b->next++];
        size_t n = control < 128 ? control + 1u : control - 126u;
        assert_true(n <= count - cell);
        for (size_t i = 0; i < n; i++)
            cells[cell++] = b->at[control < 128 ? b->next + i : b->next];
        b->next += control < 128 ? n : 1;
    }
}

static void frames_of_single_blocks(void **state)
{
    (void)state;
    page *p = page_open(&(page_meta){0});
    uint64_t owners[8] = {0, 5, 5, 0, 0, 9, 0, 0};
    assert_true(page_wants_blocks(p, PAGE_GPU, 1));
    page_blocks(p, PAGE_GPU, 1, "NAACCAEE", 8, owners);
    page_blocks(p, PAGE_GPU, 2, "NEEEEEEE", 8, owners);
    page_blocks(p, PAGE_GPU, 3, "NE", 2, owners); /* another pool: not shown */
    page_blocks(p, PAGE_HOST, 2, "NAC", 3, NULL);
    json_t *data = data_of(p, NULL);
    const json_t *frames = json_object_get(data, "frames");
    assert_int_equal(count_of(frames, "count"), 2);
    assert_int_equal(count_of(frames, "cell_blocks"), 1);
    bytes b = bytes_of(json_string_value(json_object_get(frames, "data")));
    static const unsigned char WANTED[2][8] = {{0xff, 0x10, 0x10, 1, 1, 0x10, 0, 0}, {0xff}};
    for (size_t i = 0; i < 2; i++) {
        unsigned char cells[8];
        unpack_frame(&b, cells, 8);
        assert_memory_equal(cells, WANTED[i], 8);
    }
    assert_int_equal(b.next, b.size);
    free(b.at);
    int64_t found[16];
    column_of(frames, "owners", found, 16);
    const json_t *host = json_object_get(data, "host_frames");
    assert_int_equal(count_of(host, "count"), 1);
    assert_int_equal(count_of(host, "num_blocks"), 3);
    assert_null(json_object_get(host, "owners"));
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(found[i], owners[i % 8]);
    json_decref(data);
    page_close(p);
}

/* 200,000 blocks in 4,082 cells of 49: shares say none and all only where it is so. */
static void frames_of_large_pools(void **state)
{
    (void)state;
    enum { BLOCKS = 200000, CELL = 49, CELLS = 4082 };
    page *p = page_open(&(page_meta){0});
    char *states = malloc(BLOCKS);
    memset(states, 'E', BLOCKS);
    states[1 * CELL] = 'A';
    memset(states + 2 * CELL, 'A', CELL - 1);
    memset(states + 3 * CELL, 'A', CELL);
    memset(states + 4 * CELL, 'C', CELL / 2);
    for (uint64_t step = 1; step <= 3000; step++)
        if (page_wants_blocks(p, PAGE_GPU, step))
            page_blocks(p, PAGE_GPU, step, states, BLOCKS, NULL);
    json_t *data = data_of(p, NULL);
    const json_t *frames = json_object_get(data, "frames");
    size_t count = count_of(frames, "count");
    size_t cells = count_of(frames, "cells");
    assert_in_range(count, 200, 400);
    assert_int_equal(cells, CELLS);
    assert_int_equal(count_of(frames, "cell_blocks"), CELL);
    int64_t *steps = calloc(count, sizeof *steps);
    column_of(frames, "step", steps, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(steps[i], 1 + (int64_t)i * steps[1] - (int64_t)i);
    bytes b = bytes_of(json_string_value(json_object_get(frames, "data")));
    unsigned char found[CELLS];
    unpack_frame(&b, found, cells);
    static const unsigned char WANTED[] = {0, 0x10, 0xe0, 0xf0, 0x07, 0};
    assert_memory_equal(found, WANTED, sizeof WANTED);
    free(b.at);
    free(steps);
    free(states);
    json_decref(data);
    page_close(p);
}

/* ---- requests -------------------------------------------------------------- */

static void preempted_requests_stay(void **state)
{
    (void)state;
    enum { REQUESTS = 120000 };
    page *p = page_open(&(page_meta){0});
    page_interval interval = {.from_s = 2, .to_s = 3};
    for (uint64_t i = 1; i <= REQUESTS; i++) {
        page_request r = {.id = i,
                          .arrival_s = (double)(REQUESTS - i),
                          .scheduled_s = (double)(REQUESTS - i) + 0.5,
                          .first_token_s = (double)(REQUESTS - i) + 1,
                          .end_s = (double)(REQUESTS - i) + 11,
                          .prompt_tokens = 10,
                          .output_tokens = 11,
                          .preempted = &interval,
                          .num_preempted = i % 1000 == 0};
        page_request_end(p, &r);
    }
    json_t *data = data_of(p, NULL);
    const json_t *requests = json_object_get(data, "requests");
    size_t count = count_of(requests, "count");
    assert_in_range(count, 25000, 50000);
    assert_int_equal(count_of(requests, "total"), REQUESTS);
    int64_t *ids = calloc(2 * count, sizeof *ids);
    int64_t *preempted = ids + count;
    column_of(requests, "id", ids, count);
    column_of(requests, "preempted", preempted, count);
    size_t num_preempted = 0;
    for (size_t i = 0; i < count; i++) {
        num_preempted += preempted[i] > 0;
        assert_int_equal(preempted[i] > 0, ids[i] % 1000 == 0);
        assert_true(i == 0 || (ids[i] < ids[i - 1] && ids[i - 1] - ids[i] <= 8)); /* evenly */
    }
    assert_int_equal(num_preempted, REQUESTS / 1000);
    static const struct {
        const char *name;
        double us;
    } LATENCIES[] = {{"queue", 0.5e6}, {"ttft", 1e6}, {"tpot", 1e6}, {"e2e", 11e6}};
    for (size_t k = 0; k < COUNT(LATENCIES); k++) {
        const json_t *latency =
            json_object_get(json_object_get(data, "latency"), LATENCIES[k].name);
        assert_int_equal(count_of(latency, "count"), REQUESTS);
        bytes b = bytes_of(json_string_value(json_object_get(latency, "bins")));
        double edge = 1;
        while (number_of(&b) == 0)
            edge *= 1.0905077326652577;
        assert_true(edge <= LATENCIES[k].us * 1.000001 && LATENCIES[k].us < edge * 1.0906);
        free(b.at);
    }
    free(ids);
    json_decref(data);
    page_close(p);
}

/* ---- texts ----------------------------------------------------------------- */

static void texts_cannot_leave_their_element(void **state)
{
    (void)state;
    json_t *given = json_pack("[[s,s]]", "a</script>", "b\"\\\n\x01");
    page *p = page_open(
        &(page_meta){.title = "</script><script>", .trace = "\xff\xc3\xa9\xe2", .options = given});
    json_t *data = data_of(p, "{\"x\": \"<!--</script>\"}");
    const json_t *meta = json_object_get(data, "meta");
    assert_string_equal(json_string_value(json_object_get(meta, "title")), "</script><script>");
    const json_t *report = json_object_get(data, "report");
    assert_string_equal(json_string_value(json_object_get(report, "x")), "<!--</script>");
    const json_t *options = json_object_get(meta, "options");
    const json_t *first = json_array_get(options, 0);
    assert_string_equal(json_string_value(json_array_get(first, 0)), "a</script>");
    assert_string_equal(json_string_value(json_array_get(first, 1)), "b\"\\\n\x01");
    assert_string_equal(json_string_value(json_object_get(meta, "trace")),
                        "\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd");
    json_decref(data);
    json_decref(given);
    page_close(p);
}

static void same_run_same_bytes(void **state)
{
    (void)state;
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        page *p = page_open(&(page_meta){.max_rows = 100});
        fill(p);
        json_t *data = data_of(p, NULL);
        texts[i] = json_dumps(data, JSON_SORT_KEYS);
        json_decref(data);
        page_close(p);
    }
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_rows),
        cmocka_unit_test(merged_rows_keep_extremes),
        cmocka_unit_test(no_mark_is_lost),
        cmocka_unit_test(frames_of_single_blocks),
        cmocka_unit_test(frames_of_large_pools),
        cmocka_unit_test(preempted_requests_stay),
        cmocka_unit_test(texts_cannot_leave_their_element),
        cmocka_unit_test(same_run_same_bytes),
    };
    return cmocka_run_group_tests_name("cli_page", tests, NULL, NULL);
}

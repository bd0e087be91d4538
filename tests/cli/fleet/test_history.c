/* The history of a fleet: sums of bins and rows against a second writing, and at the edges. */
#include "base/unit.h"

#include "fleet/history.h"

#include <math.h>

static const slo NO_LIMITS = {0};
static uint64_t seed;

static void close_to(double a, double b)
{
    if (fabs(a - b) > 1e-6 * (1 + fabs(b)))
        fail_msg("%.9f is not %.9f", a, b);
}

/* ---- time ----------------------------------------------------------------------- */

/* A request of one worker, which the test spreads over bins itself. */
typedef struct stay {
    uint32_t worker;
    double routed_s;
    double admitted_s;
    double ended_s;
} stay;

enum { STAYS = 300, EVENTS = 3 * STAYS, WORKERS = 5 };

typedef struct moment {
    double time_s;
    uint32_t stay;
    int what; /* 0: routed, 1: admitted, 2: ended */
} moment;

static int compare_moments(const void *a, const void *b)
{
    const moment *x = a;
    const moment *y = b;
    if (x->time_s != y->time_s)
        return x->time_s < y->time_s ? -1 : 1;
    return x->what - y->what;
}

static double overlap(double from_s, double to_s, double bin_from_s, double bin_to_s)
{
    double first = from_s > bin_from_s ? from_s : bin_from_s;
    double last = to_s < bin_to_s ? to_s : bin_to_s;
    return last > first ? last - first : 0;
}

static void check_cells(const history *h, const stay *stays)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        for (uint32_t bin = 0; bin < h->num_bins; bin++) {
            double waiting_s = 0;
            double running_s = 0;
            double from_s = bin * h->width_s;
            for (uint32_t i = 0; i < STAYS; i++) {
                const stay *s = &stays[i];
                if (s->worker != w)
                    continue;
                waiting_s += overlap(s->routed_s, s->admitted_s, from_s, from_s + h->width_s);
                running_s += overlap(s->admitted_s, s->ended_s, from_s, from_s + h->width_s);
            }
            close_to(h->cells[w * h->num_bins + bin].waiting_s, waiting_s);
            close_to(h->cells[w * h->num_bins + bin].running_s, running_s);
        }
}

static void run_stays(double span_s)
{
    static stay stays[STAYS];
    static moment moments[EVENTS];
    history *h = history_open(WORKERS, &NO_LIMITS);
    assert_non_null(h);
    for (uint32_t i = 0; i < STAYS; i++) {
        stay *s = &stays[i];
        s->worker = unit_random_below(&seed, WORKERS);
        s->routed_s = span_s * unit_random_below(&seed, 1000) / 1000;
        s->admitted_s = s->routed_s + span_s * unit_random_below(&seed, 100) / 1000;
        s->ended_s = s->admitted_s + span_s * unit_random_below(&seed, 300) / 1000;
        moments[3 * i] = (moment){s->routed_s, i, 0};
        moments[3 * i + 1] = (moment){s->admitted_s, i, 1};
        moments[3 * i + 2] = (moment){s->ended_s, i, 2};
    }
    qsort(moments, EVENTS, sizeof *moments, compare_moments);
    for (uint32_t i = 0; i < EVENTS; i++) {
        const moment *m = &moments[i];
        uint32_t w = stays[m->stay].worker;
        if (m->what == 0)
            history_routed(h, w, m->time_s);
        else if (m->what == 1)
            history_admitted(h, w, m->time_s);
        else
            history_ended(h, w, m->time_s, &(history_end){.tpot_ms = -1});
    }
    history_finish(h, moments[EVENTS - 1].time_s);
    uint32_t used = history_used_bins(h);
    assert_in_range(used, 1, h->num_bins);
    check_cells(h, stays);
    uint64_t ended = 0;
    for (uint32_t bin = 0; bin < used; bin++)
        ended += h->bins[bin].ended;
    assert_int_equal(ended, STAYS);
    history_close(h);
}

static void test_cells_against_stays(void **state)
{
    (void)state;
    const double spans_s[] = {0.001, 0.3, 0.5, 20, 86400};
    for (size_t i = 0; i < COUNT(spans_s); i++)
        run_stays(spans_s[i]);
}

/* The time that is just beyond the last bin merges bins; the one just before it does not. */
static void test_edge_of_the_last_bin(void **state)
{
    (void)state;
    history *h = history_open(1, &NO_LIMITS);
    double end_s = h->width_s * h->num_bins;
    double width_s = h->width_s;
    assert_int_equal(h->num_bins, HISTORY_BINS);
    history_arrived(h, 0, 0, NULL, 0);
    history_arrived(h, nextafter(end_s, 0), 1, NULL, 0);
    close_to(h->width_s, width_s);
    assert_int_equal(h->bins[HISTORY_BINS - 1].arrived, 1);
    history_arrived(h, end_s, 2, NULL, 0);
    close_to(h->width_s, 2 * width_s);
    assert_int_equal(h->bins[0].arrived, 1);
    assert_int_equal(h->bins[HISTORY_BINS / 2 - 1].arrived, 1);
    assert_int_equal(h->bins[HISTORY_BINS / 2].arrived, 1);
    assert_int_equal(history_used_bins(h),
                     HISTORY_BINS / 2 + 1); /* it has what comes at its edge */
    history_close(h);
}

static void test_nothing_happened(void **state)
{
    (void)state;
    history *h = history_open(3, &NO_LIMITS);
    history_finish(h, 0);
    assert_int_equal(history_used_bins(h), 1);
    assert_true(history_is_whole(h));
    history_close(h);
    history_close(NULL);
}

/* A request that has not ended counts up to the end. */
static void test_unfinished(void **state)
{
    (void)state;
    history *h = history_open(2, &NO_LIMITS);
    history_routed(h, 1, 0.1);
    history_admitted(h, 1, 0.2);
    history_routed(h, 1, 0.2);
    history_left_out(h, 1, 0.25);
    history_finish(h, 0.4);
    double waiting_s = 0;
    double running_s = 0;
    for (uint32_t bin = 0; bin < h->num_bins; bin++) {
        waiting_s += h->cells[h->num_bins + bin].waiting_s;
        running_s += h->cells[h->num_bins + bin].running_s;
        close_to(h->cells[bin].running_s, 0);
    }
    close_to(waiting_s, 0.15);
    close_to(running_s, 0.2);
    history_close(h);
}

/* ---- rows ------------------------------------------------------------------------ */

static void check_rows(uint32_t num_workers, uint32_t per_row, uint32_t num_rows, uint32_t num_bins)
{
    history *h = history_open(num_workers, &NO_LIMITS);
    const ideal_share share = {.tokens = 7};
    assert_int_equal(h->workers_per_row, per_row);
    assert_int_equal(h->num_rows, num_rows);
    assert_int_equal(h->num_bins, num_bins);
    history_first_token(h, num_workers - 1, 0,
                        &(history_prompt){.prompt_tokens = 10, .hit_tokens = 4, .ideal = &share});
    const history_cell *last = &h->cells[(size_t)(num_rows - 1) * num_bins];
    assert_int_equal(last->prompt_tokens, 10);
    assert_int_equal(last->hit_tokens, 4);
    assert_int_equal(h->bins[0].ideal_tokens, 7);
    history_close(h);
}

static void test_rows(void **state)
{
    (void)state;
    check_rows(1, 1, 1, HISTORY_BINS);
    check_rows(256, 1, 256, HISTORY_BINS);
    check_rows(257, 1, 257, HISTORY_BINS / 2);
    check_rows(1024, 1, 1024, HISTORY_LEAST_BINS);
    check_rows(1025, 2, 513, HISTORY_LEAST_BINS);
    check_rows(65535, 64, 1024, HISTORY_LEAST_BINS);
}

/* ---- requests --------------------------------------------------------------------- */

static void end_with(history *h, const history_end *end)
{
    history_routed(h, 0, 0);
    history_admitted(h, 0, 0);
    history_ended(h, 0, 0, end);
}

static const history_class *class_of(const history *h, const char *group, int64_t from)
{
    for (uint32_t i = 0; i < h->num_classes; i++)
        if (strcmp(h->classes[i].group, group) == 0 && h->classes[i].from == from)
            return &h->classes[i];
    return NULL;
}

static void check_class(const history *h, const char *group, int64_t from, uint64_t ended,
                        uint64_t good)
{
    const history_class *c = class_of(h, group, from);
    assert_non_null(c);
    assert_int_equal(c->ended, ended);
    assert_int_equal(c->good, good);
}

static void test_classes(void **state)
{
    (void)state;
    const slo limits = {.ttft_ms = 100};
    const uint32_t tokens[] = {1, 1024, 1025, 8192, 8193, 32768, 32769, 1000000};
    history *h = history_open(1, &limits);
    for (size_t i = 0; i < COUNT(tokens); i++)
        end_with(h, &(history_end){.prompt_tokens = tokens[i],
                                   .turn = (uint32_t)i / 3,
                                   .priority = -1,
                                   .ttft_ms = i % 2 == 0 ? 100 : 101,
                                   .tpot_ms = -1});
    check_class(h, "prompt", 0, 2, 1);
    check_class(h, "prompt", 1025, 2, 1);
    check_class(h, "prompt", 8193, 2, 1);
    check_class(h, "prompt", 32769, 2, 1);
    check_class(h, "turn", 0, 3, 2);
    check_class(h, "turn", 1, 5, 2);
    check_class(h, "priority", -1, 8, 4);
    assert_int_equal(h->bins[0].good, 4);
    history_close(h);
}

/* Each request is in one class of priorities, even if there are more than classes. */
static void test_many_priorities(void **state)
{
    (void)state;
    const slo limits = {.ttft_ms = 1};
    history *h = history_open(1, &limits);
    uint64_t sum = 0;
    for (int32_t priority = 0; priority < 40; priority++)
        end_with(h, &(history_end){.priority = priority, .tpot_ms = -1});
    assert_int_equal(h->num_classes, HISTORY_CLASSES);
    for (uint32_t i = 0; i < h->num_classes; i++)
        sum += strcmp(h->classes[i].group, "priority") == 0 ? h->classes[i].ended : 0;
    assert_int_equal(sum, 40);
    check_class(h, "priority", INT64_MIN, 40 - 9, 40 - 9);
    history_close(h);
}

static void check_latency(double ms, uint32_t bin)
{
    history *h = history_open(1, &NO_LIMITS);
    end_with(h, &(history_end){.ttft_ms = ms, .tpot_ms = -1});
    assert_int_equal(h->times[HISTORY_TTFT].count, 1);
    assert_int_equal(h->times[HISTORY_TTFT].bins[bin], 1);
    assert_int_equal(h->times[HISTORY_TPOT].count, 0); /* one token has none */
    history_close(h);
}

static void test_latencies(void **state)
{
    (void)state;
    check_latency(0, 0);
    check_latency(0.0005, 0);
    check_latency(0.001, 0);
    check_latency(0.002, 8);
    check_latency(0.00399, 15);
    check_latency(0.004, 16);
    check_latency(1e300, HISTORY_LATENCY_BINS - 1);
}

/* ---- caches ------------------------------------------------------------------------ */

enum { NAMES = 40 };

static void test_copies(void **state)
{
    (void)state;
    static bool has[WORKERS][NAMES];
    history *h = history_open(WORKERS, &NO_LIMITS);
    memset(has, 0, sizeof has);
    for (uint32_t step = 0; step < 4000; step++) {
        uint32_t w = unit_random_below(&seed, WORKERS);
        uint64_t names[2] = {unit_random_below(&seed, NAMES), unit_random_below(&seed, NAMES)};
        uint32_t what = unit_random_below(&seed, 100);
        double time_s = step * 0.01;
        if (what == 0) {
            history_cleared(h, w, time_s);
            memset(has[w], 0, sizeof has[w]);
        } else if (what < 55) {
            history_stored(h, w, time_s, names, 2);
            has[w][names[0]] = has[w][names[1]] = true;
        } else {
            history_removed(h, w, time_s, names, 2);
            has[w][names[0]] = has[w][names[1]] = false;
        }
        uint64_t pairs = 0;
        uint64_t blocks = 0;
        for (uint32_t name = 0; name < NAMES; name++) {
            uint32_t n = 0;
            for (uint32_t i = 0; i < WORKERS; i++)
                n += has[i][name];
            assert_int_equal(copies_of(&h->copies, name), n);
            pairs += n;
            blocks += n > 0;
        }
        assert_int_equal(h->copies.num_pairs, pairs);
        assert_int_equal(h->copies.num_blocks, blocks);
    }
    int64_t pairs = 0;
    int64_t blocks = 0;
    for (uint32_t bin = 0; bin < history_used_bins(h); bin++) {
        pairs += h->bins[bin].new_copies;
        blocks += h->bins[bin].new_blocks;
        assert_in_range(blocks, 0, NAMES);
        assert_in_range(pairs, blocks, WORKERS * NAMES);
    }
    assert_int_equal(pairs, h->copies.num_pairs);
    assert_int_equal(blocks, h->copies.num_blocks);
    history_close(h);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cells_against_stays),
                                       cmocka_unit_test(test_edge_of_the_last_bin),
                                       cmocka_unit_test(test_nothing_happened),
                                       cmocka_unit_test(test_unfinished),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_many_priorities),
                                       cmocka_unit_test(test_latencies),
                                       cmocka_unit_test(test_copies)};
    seed = unit_seed(argc, argv, 28);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

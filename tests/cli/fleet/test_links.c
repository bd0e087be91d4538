/* cli/fleet/test_links.c - transfers that share links, against a solver that fills all of them from
 * 0 at every change, one link after the other; and what is true by hand.
 *
 *      test_links [SEED]
 */
#include "base/unit.h"
#include "fleet/links.h"

#include <math.h>

enum { MAX_LINKS = 12, MAX_TRANSFERS = 64, NUM_CASES = 1000 };

static uint64_t seed;

static void expect_near(double a, double b)
{
    if (a == b) /* infinite, too */
        return;
    if (!(fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b)) + 1e-12))
        fail_msg("%.17g is not near %.17g", a, b);
}

/* ---- the slow solver ----------------------------------------------------------- */

typedef struct slow_transfer {
    double begin_s;
    double left;
    double rate;
    uint32_t route[LINKS_MAX_ROUTE];
    uint32_t num_route;
    bool is_open; /* waits or moves */
    uint32_t id;  /* in links */
} slow_transfer;

typedef struct slow {
    double bandwidth[MAX_LINKS];
    uint32_t num_links;
    slow_transfer transfers[MAX_TRANSFERS];
    uint32_t num;
    double now_s;
} slow;

static bool moves(const slow *s, const slow_transfer *t)
{
    return t->is_open && t->begin_s <= s->now_s && t->left > 0;
}

static bool is_on(const slow_transfer *t, uint32_t link)
{
    for (uint32_t i = 0; i < t->num_route; i++)
        if (t->route[i] == link)
            return true;
    return false;
}

/* All rates grow together; those on the link that is full first stop growing. */
static void solve(slow *s)
{
    bool is_done[MAX_TRANSFERS] = {false};
    double left[MAX_LINKS];
    memcpy(left, s->bandwidth, sizeof left);
    for (uint32_t i = 0; i < s->num; i++)
        s->transfers[i].rate = 0;
    for (;;) {
        double least = HUGE_VAL;
        uint32_t at = 0;
        for (uint32_t k = 0; k < s->num_links; k++) {
            uint32_t num_open = 0;
            for (uint32_t i = 0; i < s->num; i++)
                num_open += moves(s, &s->transfers[i]) && !is_done[i] && is_on(&s->transfers[i], k);
            if (num_open > 0 && left[k] / num_open < least) {
                least = left[k] / num_open;
                at = k;
            }
        }
        if (least == HUGE_VAL)
            return;
        for (uint32_t i = 0; i < s->num; i++) {
            slow_transfer *t = &s->transfers[i];
            if (!moves(s, t) || is_done[i] || !is_on(t, at))
                continue;
            is_done[i] = true;
            t->rate = least;
            for (uint32_t k = 0; k < t->num_route; k++)
                left[t->route[k]] = fmax(left[t->route[k]] - least, 0);
        }
    }
}

static double next_event(const slow *s)
{
    double next = HUGE_VAL;
    for (uint32_t i = 0; i < s->num; i++) {
        const slow_transfer *t = &s->transfers[i];
        if (!t->is_open)
            continue;
        if (t->begin_s > s->now_s)
            next = fmin(next, t->begin_s);
        else if (t->left == 0)
            next = s->now_s;
        else if (t->rate > 0)
            next = fmin(next, s->now_s + t->left / t->rate);
    }
    return next;
}

static void move_to(slow *s, double time_s)
{
    for (uint32_t i = 0; i < s->num; i++) {
        slow_transfer *t = &s->transfers[i];
        if (!moves(s, t))
            continue;
        double gone = t->rate * (time_s - s->now_s);
        t->left = t->left - gone <= 1e-7 * t->left + 1e-9 * gone ? 0 : t->left - gone;
    }
    s->now_s = time_s;
}

/* ---- both side by side ------------------------------------------------------------ */

static void expect_same_rates(links *l, slow *s)
{
    solve(s);
    for (uint32_t i = 0; i < s->num; i++) {
        const slow_transfer *t = &s->transfers[i];
        if (t->is_open)
            expect_near(links_rate(l, t->id), t->rate);
    }
    for (uint32_t k = 0; k < s->num_links; k++) {
        double load = 0;
        for (uint32_t i = 0; i < s->num; i++)
            load +=
                moves(s, &s->transfers[i]) && is_on(&s->transfers[i], k) ? s->transfers[i].rate : 0;
        expect_near(links_load(l, k), load);
        assert_true(links_load(l, k) <= s->bandwidth[k] * (1 + 1e-6));
    }
}

/* Both go on to time_s, event by event; what ends is the same at the same times. */
static void go_to(links *l, slow *s, double time_s)
{
    for (;;) {
        solve(s);
        double next = next_event(s);
        if (next > time_s || next == HUGE_VAL)
            break;
        expect_near(links_next_s(l), next);
        double until = fmax(next, links_next_s(l));
        while (links_next_s(l) <= until + 1e-7 * (1 + until)) { /* one time, but for rounding */
            until = fmax(until, links_next_s(l));
            links_advance(l, until);
        }
        move_to(s, until);
        links_ended ended;
        while (links_take(l, &ended)) {
            slow_transfer *t = &s->transfers[ended.user];
            assert_true(t->is_open && ended.outcome == LINKS_DONE && ended.left_bytes == 0);
            expect_near(ended.time_s, next);
            assert_true(t->left <= 1e-3);
            t->left = 0;
            t->is_open = false;
        }
        expect_same_rates(l, s);
    }
    if (time_s == HUGE_VAL)
        return;
    move_to(s, time_s);
    links_advance(l, time_s);
}

static void start_one(links *l, slow *s, uint64_t *random)
{
    slow_transfer *t = &s->transfers[s->num];
    uint32_t max_route = s->num_links < LINKS_MAX_ROUTE ? s->num_links : LINKS_MAX_ROUTE;
    double latency_s = unit_random_below(random, 2) * 0.001 * unit_random_below(random, 9);
    *t = (slow_transfer){.is_open = true, .begin_s = s->now_s + latency_s};
    t->left = unit_random_below(random, 8) == 0 ? 0 : 1 + unit_random_below(random, 1000);
    uint32_t num = 1 + unit_random_below(random, max_route);
    while (t->num_route < num) {
        uint32_t link = unit_random_below(random, s->num_links);
        if (!is_on(t, link))
            t->route[t->num_route++] = link;
    }
    t->id = links_start(l, s->now_s, latency_s, t->left, t->route, t->num_route, s->num);
    assert_int_not_equal(t->id, LINKS_NONE);
    s->num++;
}

static void change_one(links *l, slow *s, uint64_t *random)
{
    uint32_t k = unit_random_below(random, s->num_links);
    s->bandwidth[k] = unit_random_below(random, 6) * 100.0; /* 0, too */
    links_set_bandwidth(l, s->now_s, k, s->bandwidth[k]);
}

static void cancel_one(links *l, slow *s, uint64_t *random)
{
    slow_transfer *t = s->num > 0 ? &s->transfers[unit_random_below(random, s->num)] : NULL;
    if (t == NULL || !t->is_open || next_event(s) <= s->now_s + 1e-6)
        return;
    double left = links_cancel(l, s->now_s, t->id);
    if (t->left > 1e-3)
        expect_near(left, t->left);
    t->is_open = false;
}

static void run_case(uint64_t random)
{
    slow s = {.num_links = 1 + unit_random_below(&random, MAX_LINKS)};
    links *l = links_create(s.num_links, MAX_TRANSFERS);
    assert_non_null(l);
    bool is_equal = unit_random_below(&random, 3) == 0; /* many ties */
    for (uint32_t k = 0; k < s.num_links; k++) {
        s.bandwidth[k] = is_equal ? 300 : 1 + unit_random_below(&random, 1000);
        links_set_bandwidth(l, 0, k, s.bandwidth[k]);
    }
    uint32_t num = 2 + unit_random_below(&random, MAX_TRANSFERS - 2);
    while (s.num < num) {
        uint32_t kind = unit_random_below(&random, 16);
        if (kind == 0)
            change_one(l, &s, &random);
        else if (kind == 1)
            cancel_one(l, &s, &random);
        else
            start_one(l, &s, &random);
        go_to(l, &s, s.now_s);
        expect_same_rates(l, &s);
        if (unit_random_below(&random, 2) == 0)
            go_to(l, &s, s.now_s + unit_random_below(&random, 400) * 0.01);
    }
    go_to(l, &s, HUGE_VAL); /* but what stands still on links of bandwidth 0 */
    for (uint32_t i = 0; i < s.num; i++)
        assert_true(!s.transfers[i].is_open || s.transfers[i].rate == 0);
    links_destroy(l);
}

static void random_cases_agree_with_the_slow_solver(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < NUM_CASES; i++)
        run_case(seed * NUM_CASES + i);
}

/* ---- by hand ------------------------------------------------------------------------ */

static links *with_links(const double *bandwidths, uint32_t num)
{
    links *l = links_create(num, 8);
    assert_non_null(l);
    for (uint32_t i = 0; i < num; i++)
        links_set_bandwidth(l, 0, i, bandwidths[i]);
    return l;
}

static void expect_end(links *l, double time_s, uint64_t user)
{
    links_ended ended;
    assert_true(links_take(l, &ended));
    assert_true(ended.user == user && ended.outcome == LINKS_DONE && ended.left_bytes == 0);
    expect_near(ended.time_s, time_s);
}

/* The picture of links.h. */
static void the_slowest_link_decides_first(void **state)
{
    (void)state;
    enum { SEND_0, SEND_1, TOTAL, RECEIVE_0, RECEIVE_1 };
    links *l = with_links((const double[]){100, 100, 180, 100, 100}, 5);
    uint32_t a = links_start(l, 0, 0, 1e3, (const uint32_t[]){SEND_0, TOTAL, RECEIVE_0}, 3, 0);
    expect_near(links_rate(l, a), 100);
    uint32_t b = links_start(l, 0, 0, 1e3, (const uint32_t[]){SEND_0, TOTAL, RECEIVE_1}, 3, 1);
    uint32_t c = links_start(l, 0, 0, 1e3, (const uint32_t[]){SEND_1, TOTAL, RECEIVE_1}, 3, 2);
    expect_near(links_rate(l, a), 50);
    expect_near(links_rate(l, b), 50);
    expect_near(links_rate(l, c), 50); /* shares the receiver with b, so the total has 30 left */
    expect_near(links_load(l, TOTAL), 150);
    expect_near(links_cancel(l, 2, b), 900);
    expect_near(links_rate(l, a), 90); /* the total is full now: 180 for two */
    expect_near(links_rate(l, c), 90);
    assert_int_equal(links_num_open(l), 2);
    expect_near(links_moved(l, SEND_0), 100);
    links_destroy(l);
}

static void one_link_is_shared_equally(void **state)
{
    (void)state;
    static const uint32_t only[] = {0};
    links *l = with_links((const double[]){100}, 1);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_not_equal(links_start(l, 0, 0, 100, only, 1, i), LINKS_NONE);
    assert_int_not_equal(links_start(l, 0, 0, 200, only, 1, 4), LINKS_NONE);
    expect_near(links_next_s(l), 5); /* five at 20: equal ends come in the order of the starts */
    links_advance(l, 5);
    for (uint64_t i = 0; i < 4; i++)
        expect_end(l, 5, i);
    expect_near(links_next_s(l), 6);
    links_advance(l, 100);
    expect_end(l, 6, 4);
    expect_near(links_moved(l, 0), 600);
    assert_true(links_next_s(l) == HUGE_VAL && links_num_open(l) == 0);
    links_destroy(l);
}

static void transfers_without_bytes_take_their_latency(void **state)
{
    (void)state;
    static const uint32_t only[] = {0};
    links *l = with_links((const double[]){0}, 1);
    links_start(l, 1, 0.5, 0, only, 1, 7);
    links_start(l, 1, 0, 0, only, 1, 8); /* at once, but after links_advance */
    links_ended ended;
    assert_false(links_take(l, &ended));
    expect_near(links_next_s(l), 1);
    links_advance(l, 2);
    expect_end(l, 1, 8);
    expect_end(l, 1.5, 7);
    uint32_t t = links_start(l, 2, 0.5, 10, only, 1, 9);
    links_advance(l, 3); /* it begins, and stands still */
    assert_true(links_next_s(l) == HUGE_VAL && links_rate(l, t) == 0);
    links_set_bandwidth(l, 4, 0, 5);
    expect_near(links_next_s(l), 6);
    links_advance(l, 6);
    expect_end(l, 6, 9);
    links_destroy(l);
}

static void a_failed_link_ends_its_transfers(void **state)
{
    (void)state;
    links *l = with_links((const double[]){100, 100, 100}, 3);
    links_start(l, 0, 9, 50, (const uint32_t[]){1}, 1, 0); /* still waits */
    links_start(l, 0, 0, 100, (const uint32_t[]){0, 1}, 2, 1);
    uint32_t other = links_start(l, 0, 0, 100, (const uint32_t[]){0, 2}, 2, 2);
    links_fail(l, 1, 1);
    links_ended ended;
    assert_true(links_take(l, &ended));
    assert_true(ended.user == 0 && ended.outcome == LINKS_FAILED && ended.left_bytes == 50);
    assert_true(links_take(l, &ended));
    assert_true(ended.user == 1 && ended.outcome == LINKS_FAILED && ended.time_s == 1);
    expect_near(ended.left_bytes, 50);
    assert_false(links_take(l, &ended));
    expect_near(links_rate(l, other), 100);
    expect_near(links_next_s(l), 1.5);
    links_destroy(l);
}

static void wrong_calls_change_nothing(void **state)
{
    (void)state;
    static const uint32_t route[] = {0, 1, 0, 1, 0};
    links *l = with_links((const double[]){1, 1}, 2);
    assert_null(links_create(0, 1));
    assert_null(links_create(1, 0));
    assert_int_equal(links_start(l, 0, 0, 1, route, 0, 0), LINKS_NONE);
    assert_int_equal(links_start(l, 0, 0, 1, route, 3, 0), LINKS_NONE); /* one twice */
    assert_int_equal(links_start(l, 0, 0, 1, route, 5, 0), LINKS_NONE);
    assert_int_equal(links_start(l, 0, 0, 1, (const uint32_t[]){2}, 1, 0), LINKS_NONE);
    assert_int_equal(links_start(l, 0, -1, 1, route, 1, 0), LINKS_NONE);
    assert_int_equal(links_start(l, 0, 0, -1, route, 1, 0), LINKS_NONE);
    assert_int_equal(links_start(l, 0, 0, HUGE_VAL, route, 1, 0), LINKS_NONE);
    assert_int_equal(links_start(l, 0, NAN, 1, route, 1, 0), LINKS_NONE);
    assert_int_equal(links_num_open(l), 0);
    uint32_t last = LINKS_NONE;
    for (int i = 0; i < 8; i++)
        last = links_start(l, 0, 0, 1, route, 2, 0);
    assert_int_not_equal(last, LINKS_NONE);
    assert_int_equal(links_start(l, 0, 0, 1, route, 2, 0), LINKS_NONE); /* eight at a time */
    expect_near(links_cancel(l, 0, last), 1);
    expect_near(links_cancel(l, 0, last), 0); /* not again */
    assert_int_not_equal(links_start(l, 0, 0, 1, route, 2, 0), LINKS_NONE);
    links_destroy(l);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases_agree_with_the_slow_solver),
        cmocka_unit_test(the_slowest_link_decides_first),
        cmocka_unit_test(one_link_is_shared_equally),
        cmocka_unit_test(transfers_without_bytes_take_their_latency),
        cmocka_unit_test(a_failed_link_ends_its_transfers),
        cmocka_unit_test(wrong_calls_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

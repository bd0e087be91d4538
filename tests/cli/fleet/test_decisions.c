/* Routing decisions that are kept for the page, and lines of --why. */
#include "base/unit.h"

#include "fleet/decisions.h"
#include "fleet/routers/router_table.h"

static routers *open_routers(router_spec *spec)
{
    routers *r = NULL;
    routers_settings settings;
    char why[ROUTER_WHY_BYTES] = "";
    assert_true(router_spec_read("least-loaded", spec, why));
    routers_defaults(spec->policy, &settings);
    settings.values = spec->values;
    settings.max_workers = 4;
    settings.block_size = 16;
    assert_true(routers_open(&settings, &r, why));
    return r;
}

static router_request request_of(uint64_t number, double time_s)
{
    return (router_request){
        .number = number, .time_s = time_s, .num_prompt_tokens = 100, .block_size = 16};
}

static router_answer to_worker(uint32_t worker)
{
    return (router_answer){.action = ROUTER_ROUTE,
                           .worker = worker,
                           .prefill_worker = ROUTER_NONE,
                           .believed_blocks = 3,
                           .best_hit_worker = ROUTER_NONE,
                           .choice = {.worker = worker, .runner_up = ROUTER_NONE}};
}

static void fill(decisions *d, const routers *r, uint64_t from, uint64_t end)
{
    for (uint64_t i = from; i < end; i++) {
        router_request request = request_of(i, (double)i);
        router_answer answer = to_worker(i % 4);
        assert_true(decisions_note(d, r, &request, &answer));
    }
}

/* All are kept up to DECISIONS_MOST; with one more, those of every second request. */
static void test_thinning(void **state)
{
    (void)state;
    router_spec spec = {0};
    routers *r = open_routers(&spec);
    decisions d = {0};
    fill(&d, r, 0, DECISIONS_MOST);
    assert_int_equal(d.count, DECISIONS_MOST);
    assert_int_equal(d.every, 1);
    fill(&d, r, DECISIONS_MOST, DECISIONS_MOST + 1);
    assert_int_equal(d.count, DECISIONS_MOST / 2 + 1);
    assert_int_equal(d.every, 2);
    fill(&d, r, DECISIONS_MOST + 1, 10 * DECISIONS_MOST);
    assert_int_equal(d.every, 16);
    assert_int_equal(d.count, 10 * DECISIONS_MOST / 16);
    for (uint32_t i = 0; i < d.count; i++) {
        assert_int_equal(d.list[i].request, 16 * i);
        assert_int_equal(d.list[i].believed_tokens, 48);
        assert_non_null(strstr(d.list[i].why, "worker 0"));
    }
    decisions_free(&d);
    routers_close(r);
    router_spec_free(&spec);
}

/* While a request waits, its latest decision replaces the one before; what was found is of the
 * decision that sent it. */
static void test_waiting(void **state)
{
    (void)state;
    router_spec spec = {0};
    routers *r = open_routers(&spec);
    decisions d = {0};
    router_request request = request_of(5, 1);
    router_answer waits = {.action = ROUTER_WAIT,
                           .worker = ROUTER_NONE,
                           .prefill_worker = ROUTER_NONE,
                           .best_hit_worker = ROUTER_NONE,
                           .choice = {.reason = "all workers are full"}};
    router_answer sent = to_worker(2);
    assert_true(decisions_note(&d, r, &request, &waits));
    request.time_s = 2;
    assert_true(decisions_note(&d, r, &request, &waits));
    assert_int_equal(d.count, 1);
    assert_true(d.list[0].time_s == 2 && d.list[0].worker == ROUTER_NONE);
    assert_string_equal(d.list[0].why, "request waits: all workers are full");
    fill(&d, r, 6, 8);
    assert_true(decisions_note(&d, r, &request, &sent));
    decisions_found(&d, 5, 32);
    assert_int_equal(d.count, 4);
    assert_int_equal(d.list[3].worker, 2);
    assert_true(d.list[3].has_first_token && d.list[3].hit_tokens == 32);
    assert_false(d.list[0].has_first_token);
    decisions_found(&d, 99, 1); /* not in the list */
    decisions_free(&d);
    routers_close(r);
    router_spec_free(&spec);
}

static void check_line(const router_answer *answer, const char *expected)
{
    char line[512] = "";
    router_spec spec = {0};
    routers *r = open_routers(&spec);
    router_request request = request_of(7, 1.5);
    FILE *file = fmemopen(line, sizeof line, "w");
    assert_non_null(file);
    decisions_print(file, r, &request, answer);
    fclose(file);
    assert_string_equal(line, expected);
    routers_close(r);
    router_spec_free(&spec);
}

static void test_lines(void **state)
{
    (void)state;
    router_answer refused = {.action = ROUTER_REFUSE,
                             .worker = ROUTER_NONE,
                             .prefill_worker = ROUTER_NONE,
                             .best_hit_worker = ROUTER_NONE,
                             .choice = {.reason = "a \"quoted\" \\ and\na new line"}};
    check_line(&refused, "{\"time_s\":1.500000,\"kind\":\"refused\",\"request\":8,\"router\":0,"
                         "\"why\":\"request refused: a \\\"quoted\\\" \\\\ and\\u000aa new "
                         "line\"}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_thinning),
                                       cmocka_unit_test(test_waiting),
                                       cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a worker reports is the state after its last step, as in vLLM: a request that came during a
 * step is not in it. Without reports a router knows the state at once. */
#include "base/unit.h"
#include "commands/commands.h"
#include "fleet/fleet.h"
#include "fleet/routers/policy.h"
#include "options/replay_options.h"
#include "output/failure.h"

#include <string.h>
#include <unistd.h>

/* The first prompt takes 0.1 s or more, the second and the third come meanwhile; the first request
 * generates for 2 s or more, and the fourth comes after 1 s. */
static const char trace[] = "{\"timestamp\": 0, \"input_length\": 6000, \"output_length\": 500}\n"
                            "{\"timestamp\": 20, \"input_length\": 100, \"output_length\": 500}\n"
                            "{\"timestamp\": 40, \"input_length\": 100, \"output_length\": 500}\n"
                            "{\"timestamp\": 1000, \"input_length\": 100, \"output_length\": 1}\n";
enum { NUM_REQUESTS = 4 };

static char path[] = "/tmp/quire-fleet-reports-XXXXXX";
static router_load seen[NUM_REQUESTS]; /* of worker 0, by request */

static void choose_first(void *state, const router_ask *ask, router_choice *choice)
{
    (void)state;
    assert_true(ask->request->number < NUM_REQUESTS);
    seen[ask->request->number] = ask->workers[0].load;
    choice->worker = 0;
}

static const router_policy first_worker = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_NEEDS_REPORTS,
    .name = "first-worker",
    .summary = "all requests to worker 0",
    .choose = choose_first,
};

static void run(uint32_t max_num_seqs, double every_s, bool gives_all)
{
    replay_options o = REPLAY_OPTIONS_INIT;
    replay_setup setup;
    fleet_result result;
    o.engine.plan.max_num_seqs = max_num_seqs;
    cmd_fleet.arguments[0] = path;
    cmd_fleet.num_arguments = 1;
    memset(seen, 0xff, sizeof seen);
    assert_int_equal(replay_prepare(&cmd_fleet, &o, &setup), 0);
    fleet_settings s = {
        .replay = &setup.settings, .num_workers = 2, .num_threads = 1, .gives_all = gives_all};
    routers_defaults(&first_worker, &s.routers);
    s.routers.view.knowledge.metrics_every_s = every_s;
    if (fleet_run(&s, &result) != 0)
        fail_msg("%s", failure());
    assert_int_equal(result.total.requests, NUM_REQUESTS);
    fleet_result_free(&result);
    replay_unprepare(&setup);
}

static void check(uint32_t number, uint32_t waiting, uint32_t running)
{
    assert_int_equal(seen[number].waiting, waiting);
    assert_int_equal(seen[number].running, running);
}

static void a_report_is_of_the_last_step(void **state)
{
    (void)state;
    for (int gives_all = 0; gives_all < 2; gives_all++) {
        run(256, 0.001, gives_all);
        check(0, 0, 0);
        check(1, 0, 0); /* the first step has not ended */
        check(2, 0, 0);
        check(3, 0, 3);
        assert_true(seen[3].used_blocks >= (6000 + 100 + 100) / 16);
        assert_true(seen[3].kv_usage > 0 && seen[3].kv_usage < 1);
    }
}

static void requests_that_no_step_admits_wait(void **state)
{
    (void)state;
    for (int gives_all = 0; gives_all < 2; gives_all++) {
        run(1, 0.001, gives_all);
        check(2, 0, 0);
        check(3, 2, 1);
    }
}

static void without_reports_a_router_knows_all(void **state)
{
    (void)state;
    run(256, 0, false);
    check(0, 0, 0);
    check(1, 0, 1);
    check(2, 1, 1); /* the second one waits for the end of the step */
    check(3, 0, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_is_of_the_last_step),
        cmocka_unit_test(requests_that_no_step_admits_wait),
        cmocka_unit_test(without_reports_a_router_knows_all),
    };
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, trace, sizeof trace - 1), sizeof trace - 1);
    close(file);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

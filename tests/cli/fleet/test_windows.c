/* The windows of a fleet: how long they are changes nothing. If a worker went on beyond the time at
 * which a turn of a session may come, that turn would come late, and later with longer windows. */
#include "base/unit.h"
#include "commands/commands.h"
#include "fleet/fleet.h"
#include "fleet/routers/router_table.h"
#include "options/replay_options.h"
#include "output/failure.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUM_SESSIONS = 24, NUM_TURNS = 9 };

static char path[] = "/tmp/quire-fleet-windows-XXXXXX";

/* Sessions whose turns are short and follow each other after a moment, or at once. */
static void write_trace(void)
{
    int file = mkstemp(path);
    assert_true(file >= 0);
    FILE *out = fdopen(file, "w");
    assert_non_null(out);
    fprintf(out, "{\"quire_workload\": 1, \"kind\": \"agent\", \"seed\": 1}\n");
    for (int i = 1; i <= NUM_SESSIONS; i++) {
        fprintf(out,
                "{\"time\": %.3f, \"session\": %d, \"prompt\": [[7, 600], [%d, %d]], \"output\": "
                "[%d, %d]}\n",
                0.05 * i, i, 1000 * i, 40 + 37 * i, 1000 * i + 1, 1 + i % 5 * 7);
        for (int turn = 1; turn < NUM_TURNS; turn++)
            fprintf(out,
                    "{\"session\": %d, \"think\": %.3f, \"more\": [[%d, %d]], \"output\": [%d, "
                    "%d]}\n",
                    i, turn % 3 * 0.004, 1000 * i + 2 * turn, 20 + 300 * (turn % 2),
                    1000 * i + 2 * turn + 1, 1 + (i + turn) % 4 * 11);
    }
    assert_int_equal(fclose(out), 0);
}

/* The rows of all requests, to be freed. */
static char *run(const replay_options *o, const char *router, int mode, double window_s,
                 uint64_t *windows)
{
    replay_setup setup;
    router_spec spec;
    char why[ROUTER_WHY_BYTES];
    fleet_result result;
    char *rows = NULL;
    size_t num_bytes = 0;
    FILE *out = open_memstream(&rows, &num_bytes);
    assert_non_null(out);
    cmd_fleet.arguments[0] = path;
    cmd_fleet.num_arguments = 1;
    assert_int_equal(replay_prepare(&cmd_fleet, o, &setup), 0);
    assert_true(router_spec_read(router, &spec, why));
    fleet_settings s = {.replay = &setup.settings,
                        .num_workers = 3,
                        .num_threads = 2,
                        .requests_csv = out,
                        .window_s = window_s};
    fleet_pool pools[] = {{.role = ROUTER_PREFILL, .num_workers = 1},
                          {.role = ROUTER_DECODE, .num_workers = 2}};
    for (int i = 0; i < 2; i++) {
        pools[i].replay = &setup.settings;
        pools[i].options = "";
        pools[i].gpu = "";
        pools[i].node_bytes_per_s = 4e9;
        pools[i].block_bytes = (double)setup.plan_result.block_bytes;
        pools[i].num_layers = setup.engine.shape.num_layers;
    }
    if (mode >= 0) {
        s.pools = pools;
        s.num_pools = 2;
        s.transfers = (transfer_settings){.mode = (transfer_mode)mode,
                                          .latency_s = 2e-6,
                                          .lease_s = 0.2,
                                          .failures = 0.1,
                                          .seed = 1};
    }
    routers_defaults(spec.policy, &s.routers);
    s.routers.values = spec.values;
    int status = fleet_run(&s, &result);
    if (status != 0)
        fail_msg("%s", failure());
    assert_int_equal(result.total.requests, NUM_SESSIONS * NUM_TURNS);
    assert_int_equal(result.total.unfinished, 0);
    *windows = result.num_windows;
    fleet_result_free(&result);
    router_spec_free(&spec);
    replay_unprepare(&setup);
    fclose(out);
    return rows;
}

/* mode: of the transfers from prefill to decode; negative: all workers serve. */
static void check_mode(const replay_options *o, const char *router, int mode)
{
    uint64_t few;
    uint64_t many;
    char *one = run(o, router, mode, 0, &few);
    char *other = run(o, router, mode, 0.0007, &many); /* much shorter than a step */
    assert_true(many > (mode < 0 ? 2 * few : few));
    assert_string_equal(one, other);
    free(one);
    free(other);
}

static void check(const replay_options *o, const char *router)
{
    check_mode(o, router, -1);
}

static void nor_with_transfers(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    for (int mode = TRANSFER_PULL; mode <= TRANSFER_LAYERS; mode++) {
        check_mode(&o, "round-robin", mode);
        check_mode(&o, "dynamo-kv:conditional-disagg=isl-bounding", mode);
    }
    o.engine.plan.num_gpu_blocks = 900;
    o.engine.plan.max_num_seqs = 4;
    check_mode(&o, "least-loaded", TRANSFER_PUSH);
    o.settings.async_scheduling = true;
    check_mode(&o, "least-loaded", TRANSFER_LAYERS);
}

static void lengths_change_nothing(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    check(&o, "round-robin");
    check(&o, "least-loaded");
    check(&o, "dynamo-kv");
}

static void nor_with_async_scheduling_and_few_blocks(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    o.settings.async_scheduling = true;
    o.engine.plan.num_gpu_blocks = 700;
    o.engine.plan.max_num_seqs = 4;
    check(&o, "round-robin");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lengths_change_nothing),
                                       cmocka_unit_test(nor_with_async_scheduling_and_few_blocks),
                                       cmocka_unit_test(nor_with_transfers)};
    write_trace();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

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

/* What happens to the workers, and the tier that they share: NULL, nothing. */
typedef struct changes {
    const char *shared;
    bool has_peers; /* shared is of --peer-memory */
    const char *failures[4];
    const char *scale;
    double mtbf_s;
} changes;

static void add_changes(const changes *c, fleet_settings *s, failures *fail, scale_spec *scale)
{
    if (c == NULL)
        return;
    *fail = (failures){.mtbf_s = c->mtbf_s, .mtbf_restart_s = 0.1, .seed = 7};
    for (size_t i = 0; i < COUNT(c->failures) && c->failures[i] != NULL; i++)
        assert_int_equal(failures_add(fail, c->failures[i], 3), 0);
    s->failures = fail;
    if (c->scale == NULL)
        return;
    assert_int_equal(scale_spec_read(c->scale, 3, scale), 0);
    s->scale = scale;
    s->num_first = 1;
}

/* So that a difference of the workers' story is one of the text. */
static void add_members(FILE *out, const members_result *m)
{
    fprintf(out, "%llu %llu %llu %llu %.9f\n", (unsigned long long)m->num_added,
            (unsigned long long)m->num_removed, (unsigned long long)m->num_handed_over,
            (unsigned long long)m->recomputed_tokens, m->gpu_hours);
    for (uint32_t i = 0; i < m->num_crashes; i++)
        fprintf(out, "%u %.9f %u %u %.9f\n", m->crashes[i].worker, m->crashes[i].at_s,
                m->crashes[i].num_begun, m->crashes[i].num_queued, m->crashes[i].resumed_s);
}

/* The same of the shared tier: evictions and failures too, else the test shows little. */
static void add_shared(FILE *out, const changes *c, const shared_stats *s)
{
    fprintf(out, "%llu %llu %llu %llu %llu %llu %llu %.3f %.9f\n", (unsigned long long)s->loads,
            (unsigned long long)s->peer_blocks, (unsigned long long)s->failed_loads,
            (unsigned long long)s->stores, (unsigned long long)s->tier.stores,
            (unsigned long long)s->tier.evicted, (unsigned long long)s->tier.refused,
            s->store_bytes, s->load_ms.sum);
    assert_true(s->loads > 20);
    assert_true((s->peer_blocks > 100) == c->has_peers);
    if (c->failures[0] == NULL)
        assert_true(s->tier.evicted > 20);
    else
        assert_true(s->failed_loads > 0 && s->tier.failed > 0 && s->tier.lost > 0);
}

/* The rows of all requests, to be freed. */
static char *run(const replay_options *o, const char *router, int mode, const changes *c,
                 double window_s, uint64_t *windows)
{
    failures fail = {0};
    scale_spec scale;
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
    shared_spec shared;
    if (c != NULL && c->shared != NULL) {
        int (*read)(const char *text, shared_spec *spec) =
            c->has_peers ? shared_spec_read_peers : shared_spec_read;
        assert_int_equal(read(c->shared, &shared), 0);
        s.shared = &shared;
        s.shared_block_bytes = setup.plan_result.block_bytes;
    }
    routers_defaults(spec.policy, &s.routers);
    s.routers.values = spec.values;
    add_changes(c, &s, &fail, &scale);
    int status = fleet_run(&s, &result);
    if (status != 0)
        fail_msg("%s", failure());
    assert_int_equal(result.total.requests, NUM_SESSIONS * NUM_TURNS);
    assert_int_equal(result.total.unfinished, 0);
    *windows = result.num_windows;
    add_members(out, &result.members);
    if (s.shared != NULL)
        add_shared(out, c, &result.shared);
    else if (c != NULL) /* else the test shows nothing */
        assert_true((mode < 0 ? result.members.num_begun : result.members.lost_batches) > 0);
    failures_free(&fail);
    fleet_result_free(&result);
    router_spec_free(&spec);
    replay_unprepare(&setup);
    fclose(out);
    return rows;
}

/* mode: of the transfers from prefill to decode; negative: all workers serve. */
static void check_mode(const replay_options *o, const char *router, int mode, const changes *c)
{
    uint64_t few;
    uint64_t many;
    char *one = run(o, router, mode, c, 0, &few);
    double short_s =
        c != NULL && c->shared != NULL ? 0.00005 : 0.0007; /* than a step, or latency */
    char *other = run(o, router, mode, c, short_s, &many);
    assert_true(many > (mode < 0 && c == NULL ? 2 : 1) * few);
    assert_string_equal(one, other);
    free(one);
    free(other);
}

static void check(const replay_options *o, const char *router, const changes *c)
{
    check_mode(o, router, -1, c);
}

static void nor_with_transfers(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    for (int mode = TRANSFER_PULL; mode <= TRANSFER_LAYERS; mode++) {
        check_mode(&o, "round-robin", mode, NULL);
        check_mode(&o, "dynamo-kv:conditional-disagg=isl-bounding", mode, NULL);
    }
    o.engine.plan.num_gpu_blocks = 900;
    o.engine.plan.max_num_seqs = 4;
    check_mode(&o, "least-loaded", TRANSFER_PUSH, NULL);
    o.settings.async_scheduling = true;
    check_mode(&o, "least-loaded", TRANSFER_LAYERS, NULL);
}

static void lengths_change_nothing(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    check(&o, "round-robin", NULL);
    check(&o, "least-loaded", NULL);
    check(&o, "dynamo-kv", NULL);
}

static void nor_with_async_scheduling_and_few_blocks(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    o.settings.async_scheduling = true;
    o.engine.plan.num_gpu_blocks = 700;
    o.engine.plan.max_num_seqs = 4;
    check(&o, "round-robin", NULL);
}

static void nor_when_workers_fail(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    const changes crashes = {
        .failures = {"crash:worker=0,at=0.2,restart=0.15", "crash:worker=2,at=0.5,restart=0",
                     "slow:worker=1,from=0.1,to=0.6,factor=3", "partition:worker=1,from=0.3,to=1"}};
    const changes random = {.mtbf_s = 0.4};
    check(&o, "round-robin", &crashes);
    check(&o, "dynamo-kv", &crashes);
    check(&o, "llm-d", &random);
    o.settings.async_scheduling = true;
    check(&o, "round-robin", &random);
}

static void nor_when_pools_are_slow_and_unheard(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    const changes failing = {
        .failures = {"slow:worker=0,from=0.1,to=0.6,factor=3", "slow:worker=2,from=0.4,factor=2",
                     "partition:worker=1,from=0.2,to=0.7", "gap:worker=0,from=0.3,to=0.5"}};
    for (int mode = TRANSFER_PULL; mode <= TRANSFER_LAYERS; mode++)
        check_mode(&o, "dynamo-kv", mode, &failing);
}

static void nor_when_the_fleet_grows_and_shrinks(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    const changes queue = {.failures = {"crash:worker=0,at=0.3,restart=0.1"},
                           .scale =
                               "queue:requests=3,max=3,startup=0.1,interval=0.05,down-window=0"};
    const changes latency = {.failures = {"crash:worker=0,at=0.3,restart=0.1"},
                             .scale =
                                 "slo:ttft=0.03,max=3,startup=0.1,interval=0.05,down-window=0.1,"
                                 "hand-over=1"};
    check(&o, "round-robin", &queue);
    o.engine.plan.max_num_seqs = 2;
    check(&o, "least-loaded", &latency);
}

static void nor_with_a_shared_tier(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    const changes fast = {.shared = "blocks=1000,bandwidth=100,latency=200"};
    const changes slow = {.shared = "blocks=3000,bandwidth=10,client-bandwidth=4,latency=5000"};
    const changes down = {.shared = "blocks=2500,bandwidth=5,latency=400",
                          .failures = {"tier:from=0.5,to=0.9,lose=1", "tier:from=1.2,to=1.3",
                                       "tier:from=1.5,to=1.55;tier:from=1.7,to=1.75;"
                                       "tier:from=2,to=2.1;tier:from=2.4,to=2.5"}};
    check(&o, "round-robin", &fast);
    check(&o, "least-loaded", &slow);
    check(&o, "round-robin", &down);
    o.engine.plan.num_gpu_blocks = 700;
    o.engine.plan.max_num_seqs = 4;
    check(&o, "round-robin", &slow);
    o.settings.async_scheduling = true;
    check(&o, "round-robin", &fast);
    check(&o, "round-robin", &down);
}

static void nor_with_peers(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    const changes slow = {.shared = "blocks=600,bandwidth=4,host-bandwidth=8,latency=3000",
                          .has_peers = true};
    const changes fast = {.shared = "blocks=900,latency=200", .has_peers = true};
    check(&o, "round-robin", &slow);
    check(&o, "least-loaded", &fast);
    o.engine.plan.num_gpu_blocks = 700;
    o.engine.plan.max_num_seqs = 4;
    o.settings.async_scheduling = true;
    check(&o, "round-robin", &fast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lengths_change_nothing),
                                       cmocka_unit_test(nor_with_async_scheduling_and_few_blocks),
                                       cmocka_unit_test(nor_with_transfers),
                                       cmocka_unit_test(nor_with_a_shared_tier),
                                       cmocka_unit_test(nor_with_peers),
                                       cmocka_unit_test(nor_when_workers_fail),
                                       cmocka_unit_test(nor_when_pools_are_slow_and_unheard),
                                       cmocka_unit_test(nor_when_the_fleet_grows_and_shrinks)};
    write_trace();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

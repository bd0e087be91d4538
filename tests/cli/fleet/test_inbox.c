/* Requests that cannot be admitted yet stay in the inbox of their worker: with a queue that grows,
 * prompts that share a part, several in one step, and fewer blocks than the requests need, each
 * request gets the same times and the same hit as if the scheduler had had it at once. */
#include "base/unit.h"
#include "commands/commands.h"
#include "fleet/fleet.h"
#include "fleet/routers/router_table.h"
#include "options/replay_options.h"
#include "output/failure.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUM_REQUESTS = 400, LONGEST = 6 };

static char path[] = "/tmp/quire-fleet-inbox-XXXXXX";

/* Ids as in Mooncake's traces: each stands for all that is before it. Every third prompt is one
 * that came before, so that it needs next to nothing. */
static void write_trace(void)
{
    uint64_t random = 5;
    uint32_t ids[NUM_REQUESTS][LONGEST];
    uint32_t lengths[NUM_REQUESTS];
    uint32_t next_id = 1;
    int file = mkstemp(path);
    assert_true(file >= 0);
    FILE *out = fdopen(file, "w");
    assert_non_null(out);
    for (uint32_t i = 0; i < NUM_REQUESTS; i++) {
        uint32_t from = i > 0 ? (uint32_t)(unit_random(&random) % i) : 0;
        uint32_t same = i == 0       ? 0
                        : i % 3 == 0 ? lengths[from]
                                     : 1 + (uint32_t)(unit_random(&random) % lengths[from]);
        uint32_t more = i % 3 == 0 && i > 0 ? 0 : (uint32_t)(unit_random(&random) % LONGEST);
        lengths[i] = same + more < 1 ? 1 : same + more > LONGEST ? LONGEST : same + more;
        for (uint32_t k = 0; k < lengths[i]; k++)
            ids[i][k] = k < same ? ids[from][k] : next_id++;
        uint32_t last = i % 3 == 0 ? 512 : 1 + (uint32_t)(unit_random(&random) % 512);
        fprintf(out,
                "{\"timestamp\": %u, \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
                2 * i, (lengths[i] - 1) * 512 + last, 1 + (uint32_t)(unit_random(&random) % 40));
        for (uint32_t k = 0; k < lengths[i]; k++)
            fprintf(out, "%s%u", k > 0 ? ", " : "", ids[i][k]);
        fprintf(out, "]}\n");
    }
    assert_int_equal(fclose(out), 0);
}

/* Requests are taken out of the middle of a queue; the others come in their order. */
static void requests_leave_a_queue(void **state)
{
    enum { COUNT = 64 };
    arrival all[COUNT] = {0};
    (void)state;
    for (uint64_t random = 1; random < 50; random++) {
        uint64_t r = random;
        bool is_gone[COUNT] = {0};
        arrival_queue q = {0};
        for (uint32_t i = 0; i < COUNT; i++) {
            all[i] = (arrival){.number = i, .time_s = (double)(unit_random(&r) % 16)};
            assert_true(arrival_queue_push(&q, &all[i]));
        }
        for (uint32_t k = 0; k < COUNT / 2; k++) {
            uint32_t i = (uint32_t)(unit_random(&r) % COUNT);
            assert_int_equal(arrival_queue_remove(&q, &all[i]), !is_gone[i]);
            is_gone[i] = true;
        }
        const arrival *last = NULL;
        uint32_t num_left = 0;
        for (const arrival *it; (it = arrival_queue_pop(&q)) != NULL; last = it) {
            assert_false(is_gone[it->number]);
            assert_true(last == NULL || last->time_s < it->time_s ||
                        (last->time_s == it->time_s && last->number < it->number));
            num_left++;
        }
        for (uint32_t i = 0; i < COUNT; i++)
            num_left += is_gone[i];
        assert_int_equal(num_left, COUNT);
        arrival_queue_free(&q);
    }
}

/* The rows of all requests, to be freed. */
static char *run(const replay_options *o, const char *router, bool gives_all)
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
                        .num_workers = 2,
                        .num_threads = 1,
                        .requests_csv = out,
                        .gives_all = gives_all};
    routers_defaults(spec.policy, &s.routers);
    s.routers.values = spec.values;
    int status = fleet_run(&s, &result);
    if (status != 0)
        fail_msg("%s", failure());
    assert_int_equal(result.total.requests, NUM_REQUESTS);
    assert_true(result.total.max_waiting > NUM_REQUESTS / 4);
    assert_true(result.total.hit_tokens > 0);
    fleet_result_free(&result);
    router_spec_free(&spec);
    replay_unprepare(&setup);
    fclose(out);
    return rows;
}

static void check(const replay_options *o, const char *router)
{
    char *one = run(o, router, false);
    char *other = run(o, router, true);
    assert_string_equal(one, other);
    free(one);
    free(other);
}

static void an_inbox_changes_nothing(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    check(&o, "round-robin");
    check(&o, "dynamo-kv");
    check(&o, "dynamo-kv:router-queue-threshold=1,router-queue-policy=lcfs"); /* out of order */
}

static void nor_with_few_blocks_and_requests(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    o.engine.plan.num_gpu_blocks = 700;
    o.engine.plan.max_num_seqs = 8;
    o.engine.plan.max_num_batched_tokens = 1024;
    check(&o, "round-robin");
    o.settings.async_scheduling = true;
    check(&o, "dynamo-kv");
}

static void nor_with_a_limit_of_a_prompt_in_a_step(void **state)
{
    (void)state;
    replay_options o = REPLAY_OPTIONS_INIT;
    o.engine.plan.max_num_batched_tokens = 2048;
    o.settings.sched.long_prefill_token_threshold = 100;
    check(&o, "round-robin");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_inbox_changes_nothing),
        cmocka_unit_test(requests_leave_a_queue),
        cmocka_unit_test(nor_with_few_blocks_and_requests),
        cmocka_unit_test(nor_with_a_limit_of_a_prompt_in_a_step),
    };
    write_trace();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

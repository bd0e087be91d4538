/* cli/trace/test_trace_lines.c - traces of JSON lines: Mooncake and what Dynamo made of it,
 * Qwen-Bailian,
 * and Quire's own workload files. */
#include <math.h>

#include "trace/content.h"
#include "trace_kit.h"

static bool shares_segments(const trace_segment *a, const trace_segment *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a[i].content != b[i].content || a[i].num_tokens != b[i].num_tokens)
            return false;
    return true;
}

/* A copy of a prompt: the reader's own goes with the next request. */
typedef struct prompt_copy {
    trace_segment segments[32];
    uint32_t n;
} prompt_copy;

static prompt_copy copy_of(const trace_request *request)
{
    prompt_copy copy = {.n = request->num_segments};
    assert_true(copy.n <= COUNT(copy.segments));
    memcpy(copy.segments, request->prompt, copy.n * sizeof copy.segments[0]);
    return copy;
}

/* ---- Mooncake -------------------------------------------------------------- */

static void mooncake_ids_are_shared_prefixes(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "\xef\xbb\xbf{\"timestamp\": 3000, \"input_length\": 1100, \"output_length\": 60, "
        "\"hash_ids\": [0, 1, 7]}\r\n"
        "\r\n"
        "   \n"
        "{\"hash_ids\": [0, 1], \"output_length\": 0, \"input_length\": 1024, \"timestamp\": "
        "4500.5}",
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_MOONCAKE);
    trace_request a = kit_next(reader);
    prompt_copy first = copy_of(&a);
    assert_int_equal(a.line, 1);
    assert_int_equal(a.session, 0);
    assert_false(a.is_closed_loop);
    assert_true(a.time_s == 0);
    assert_int_equal(a.num_segments, 3);
    assert_int_equal(a.prompt[2].num_tokens, 1100 - 1024);
    assert_int_equal(a.num_prompt_tokens, 1100);
    assert_int_equal(a.num_output_tokens, 60);
    assert_int_equal(a.id_block_size, 512);
    assert_int_equal(a.number, 0);
    trace_request b = kit_next(reader);
    assert_int_equal(b.line, 4);
    assert_true(fabs(b.time_s - 1.5005) < 1e-9);
    assert_int_equal(b.num_segments, 2);
    assert_int_equal(b.num_output_tokens, 1); /* 0 in the trace */
    assert_true(shares_segments(first.segments, b.prompt, 2));
    assert_true(a.output_content != b.output_content);
    assert_int_equal(b.number, 1);
    kit_expect_end(reader);
}

static void mooncake_takes_other_names_and_sizes(void **state)
{
    (void)state;
    static const char text[] =
        "{\"created_time\": 0, \"input_tokens\": 100.0, \"output_tokens\": 5, \"priority\": -2, "
        "\"hash_ids\": [18446744073709551615], \"unknown\": {\"a\": [1, {}]}}\n"
        "{\"timestamp\": 0, \"input_length\": 130, \"output_length\": 5}\n"
        "{\"timestamp\": 0, \"input_length\": 130, \"output_length\": 5, \"hash_ids\": null}\n";
    trace_reader *reader = kit_open(text, sizeof text - 1, &(trace_options){.id_block_size = 64});
    trace_request request = kit_next(reader);
    assert_int_equal(request.num_segments, 2); /* 64 with an id, 36 without */
    assert_int_equal(request.id_block_size, 64);
    assert_int_equal(request.priority, -2);
    request = kit_next(reader);
    assert_int_equal(request.num_segments, 1);
    assert_int_equal(request.id_block_size, 0);
    uint64_t content = request.prompt[0].content;
    request = kit_next(reader);
    assert_true(request.prompt[0].content != content); /* nothing is known: nothing is shared */
    kit_expect_end(reader);
}

/* The example of Dynamo's own documentation. */
static void mooncake_sessions_are_closed_loops(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "{\"session_id\":\"a\",\"timestamp\":1000,\"input_length\":2048,\"output_length\":128,"
        "\"hash_ids\":[1,2,3,4]}\n"
        "{\"session_id\":\"a\",\"delay_ms\":50,\"input_length\":2560,\"output_length\":128,"
        "\"hash_ids\":[1,2,3,4,5]}\n"
        "{\"session_id\":\"b\",\"timestamp\":1010,\"input_length\":1024,\"output_length\":64,"
        "\"hash_ids\":[9,10]}\n"
        "{\"session_id\":\"b\",\"timestamp\":1060,\"input_length\":1536,\"output_length\":64,"
        "\"hash_ids\":[9,10,11]}\n",
        TRACE_DETECT);
    static const struct {
        uint64_t session;
        uint32_t turn;
        double time_s;
        double think_s;
    } expected[] = {{1, 0, 0, 0}, {1, 1, 0.05, 0.05}, {2, 0, 0.01, 0}, {2, 1, 0.06, 0.05}};
    for (size_t i = 0; i < COUNT(expected); i++) {
        trace_request request = kit_next(reader);
        assert_int_equal(request.session, expected[i].session);
        assert_int_equal(request.turn, expected[i].turn);
        assert_true(request.is_closed_loop);
        assert_true(fabs(request.time_s - expected[i].time_s) < 1e-9);
        assert_true(fabs(request.think_s - expected[i].think_s) < 1e-9);
        assert_int_equal(request.num_after, 0);
    }
    kit_expect_end(reader);
}

static void agentic_requests_wait_for_others(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "{\"request_id\":\"r1\",\"session_id\":\"root\",\"timestamp\":1000,\"input_length\":600,"
        "\"output_length\":8,\"hash_ids\":[0,1],\"branches\":[\"c1\",\"c2\"]}\n"
        "{\"request_id\":\"c1\",\"session_id\":\"one\",\"wait_for\":[\"r1\"],\"input_length\":512,"
        "\"output_length\":8,\"hash_ids\":[5],\"delay\":100}\n"
        "{\"request_id\":\"c2\",\"session_id\":\"two\",\"hash_ids\":[6],\"wait_for\":[\"r1\"],"
        "\"input_length\":512,\"output_length\":8,\"delay\":300}\n"
        "{\"request_id\":\"r2\",\"session_id\":\"root\",\"hash_ids\":[0,1,2],\"wait_for\":[\"c1\","
        "\"c2\"],\"input_length\":1536,\"output_length\":8,\"delay\":10,\"tool_wait_ms\":2500}\n"
        "{\"request_id\":\"r3\",\"session_id\":\"root\",\"timestamp\":4000,\"input_length\":600,"
        "\"output_length\":8,\"hash_ids\":[0,1],\"wait_for\":[]}\n",
        TRACE_DETECT);
    trace_request request = kit_next(reader);
    assert_false(request.is_closed_loop);
    request = kit_next(reader);
    assert_true(request.is_closed_loop);
    assert_int_equal(request.turn, 0);
    assert_int_equal(request.num_after, 1);
    assert_int_equal(request.after[0], 0);
    assert_true(fabs(request.time_s - 0.1) < 1e-9);
    assert_int_equal(request.num_segments, 1);
    kit_next(reader);
    request = kit_next(reader);
    assert_int_equal(request.session, 1);
    assert_int_equal(request.turn, 1);
    assert_int_equal(request.num_after, 2);
    assert_int_equal(request.after[0], 1);
    assert_int_equal(request.after[1], 2);
    assert_true(fabs(request.think_s - 2.51) < 1e-9);
    assert_true(fabs(request.time_s - 2.81) < 1e-9);
    assert_int_equal(request.num_segments, 3); /* ids stayed ids */
    assert_true(request.prompt[0].content == content_of(TRACE_CONTENT_ID, 0, 0));
    assert_true(request.prompt[2].content == content_of(TRACE_CONTENT_ID, 2, 0));
    request = kit_next(reader);
    assert_false(request.is_closed_loop); /* waits for nobody, not for its session either */
    assert_true(request.time_s == 3);
    kit_expect_end(reader);
}

static void agentic_version_2_has_a_header(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "{\"schema\":\"dynamo.agentic_mooncake\",\"version\":2,\"block_size\":64,"
        "\"hash_id_scope\":\"local\",\"source\":{\"format\":\"x\",\"digest\":\"y\"}}\n"
        "{\"request_id\":\"a\",\"play_id\":\"p\",\"session_id\":\"s\",\"model\":\"m\","
        "\"input_length\":128,\"output_length\":4,\"hash_ids\":[1,2],\"not_before_ms\":500}\n"
        "{\"request_id\":\"b\",\"play_id\":\"p\",\"session_id\":\"s\",\"model\":\"m\","
        "\"input_length\":192,\"output_length\":4,\"not_before_ms\":0,\"dependencies\":["
        "{\"request_id\":\"a\",\"trigger\":\"completion\",\"delay_ms\":250,\"relation\":"
        "\"sequence\"}],\"hash_ids\":[1,2,3]}\n"
        "{\"request_id\":\"c\",\"play_id\":\"q\",\"session_id\":\"t\",\"model\":\"m\","
        "\"input_length\":128,\"output_length\":4,\"hash_ids\":[1,2],\"not_before_ms\":700}\n",
        TRACE_DETECT);
    trace_request request = kit_next(reader);
    prompt_copy a = copy_of(&request);
    assert_int_equal(request.line, 2);
    assert_int_equal(request.id_block_size, 64);
    request = kit_next(reader);
    assert_true(shares_segments(a.segments, request.prompt, 2));
    assert_true(request.is_closed_loop);
    assert_int_equal(request.num_after, 1);
    assert_true(request.think_s == 0.25);
    request = kit_next(reader);
    assert_false(shares_segments(a.segments, request.prompt, 1)); /* ids of another play */
    assert_true(fabs(request.time_s - 0.2) < 1e-9);
    kit_expect_end(reader);
}

static void delta_turns_go_on(void **state)
{
    (void)state;
    static const char text[] =
        "{\"session_id\":\"s\",\"timestamp\":0,\"input_length\":4,\"output_length\":2,"
        "\"hash_ids\":[1]}\n"
        "{\"timestamp\":1,\"input_length\":4,\"output_length\":2,\"hash_ids\":[1]}\n"
        "{\"session_id\":\"s\",\"delay\":5,\"input_length\":2,\"output_length\":1,"
        "\"hash_ids\":[2]}\n"
        "{\"session_id\":\"s\",\"delay\":5,\"input_length\":5,\"output_length\":1,"
        "\"hash_ids\":[2,3]}\n";
    trace_reader *reader =
        kit_open(text, sizeof text - 1,
                 &(trace_options){.format = TRACE_MOONCAKE_DELTA, .id_block_size = 4});
    trace_request request = kit_next(reader);
    uint64_t output = request.output_content;
    assert_int_equal(request.id_block_size, 0);
    request = kit_next(reader);
    assert_int_equal(request.num_prompt_tokens, 4);
    request = kit_next(reader);
    assert_int_equal(request.num_prompt_tokens, 8); /* 4, 2 generated, 2 more */
    assert_int_equal(request.num_segments, 3);
    assert_true(request.prompt[1].content == output);
    assert_int_equal(request.prompt[1].num_tokens, 2);
    prompt_copy second = copy_of(&request);
    request = kit_next(reader);
    assert_int_equal(request.num_prompt_tokens, 14);
    assert_true(shares_segments(second.segments, request.prompt, 3));
    assert_int_equal(request.turn, 2);
    kit_expect_end(reader);
}

static void early_requests_come_with_the_one_before(void **state)
{
    (void)state;
    trace_reader *reader =
        kit_open_text("{\"timestamp\": 5000, \"input_length\": 1, \"output_length\": 1}\n"
                      "{\"timestamp\": 9000, \"input_length\": 1, \"output_length\": 1}\n"
                      "{\"timestamp\": 4000, \"input_length\": 1, \"output_length\": 1}\n"
                      "{\"timestamp\": 9000, \"input_length\": 1, \"output_length\": 1}\n"
                      "{\"timestamp\": 9500, \"input_length\": 1, \"output_length\": 1}\n",
                      TRACE_DETECT);
    static const double times[] = {0, 4, 4, 4, 4.5};
    for (size_t i = 0; i < COUNT(times); i++)
        assert_true(kit_next(reader).time_s == times[i]);
    kit_expect_end(reader);
}

/* ---- Qwen-Bailian ---------------------------------------------------------- */

static void bailian_chats_are_sessions(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "{\"chat_id\": 159, \"parent_chat_id\": -1, \"timestamp\": 61.114, \"input_length\": 40, "
        "\"output_length\": 132, \"type\": \"text\", \"turn\": 1, \"hash_ids\": [1, 2, 3]}\n"
        "{\"chat_id\": 160, \"parent_chat_id\": -1, \"timestamp\": 61.5, \"input_length\": 33, "
        "\"output_length\": 1, \"type\": \"search\", \"turn\": 1, \"hash_ids\": [1, 2, 4]}\n"
        "{\"chat_id\": 161, \"parent_chat_id\": 159, \"timestamp\": 62.114, \"input_length\": 64, "
        "\"output_length\": 7, \"type\": \"text\", \"turn\": 2, \"hash_ids\": [1, 2, 3, 5]}\n",
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_BAILIAN);
    trace_request request = kit_next(reader);
    prompt_copy a = copy_of(&request);
    assert_int_equal(request.id_block_size, 16);
    assert_int_equal(request.num_segments, 3);
    assert_int_equal(request.prompt[2].num_tokens, 8);
    assert_int_equal(request.session, 1);
    request = kit_next(reader);
    assert_int_equal(request.session, 2);
    assert_true(shares_segments(a.segments, request.prompt, 2));
    request = kit_next(reader);
    assert_int_equal(request.session, 1);
    assert_int_equal(request.turn, 1);
    assert_false(request.is_closed_loop);
    assert_true(fabs(request.time_s - 1) < 1e-9);
    kit_expect_end(reader);
}

/* ---- Quire ----------------------------------------------------------------- */

static void workload_files_say_all(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "{\"quire_workload\": 1, \"kind\": \"chat\", \"seed\": 7}\n"
        "{\"time\": 0.25, \"prompt\": [[1, 2000], [2, 180]], \"output\": [3, 90]}\n"
        "{\"time\": 0.5, \"session\": 9, \"id\": \"x\", \"prompt\": [[1, 2000], [4, 60]], "
        "\"output\": [5, 120], \"priority\": 3, \"id_block_size\": 16}\n"
        "{\"session\": 9, \"think\": 8.5, \"more\": [[6, 40]], \"output\": 200}\n"
        "{\"session\": 9, \"think\": 1, \"prompt\": [[1, 2000]], \"output\": 1, \"last\": true}\n"
        "{\"time\": 1, \"session\": 9, \"prompt\": [[1, 5]], \"output\": 1}\n"
        "{\"after\": [\"x\"], \"prompt\": [[1, 5]], \"output\": 1}\n",
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_QUIRE);
    trace_request request = kit_next(reader);
    uint64_t head = request.prompt[0].content;
    assert_int_equal(request.num_prompt_tokens, 2180);
    assert_int_equal(request.num_output_tokens, 90);
    request = kit_next(reader);
    prompt_copy first = copy_of(&request);
    uint64_t output = request.output_content;
    assert_true(request.prompt[0].content == head);
    assert_true(request.time_s == 0.25);
    assert_int_equal(request.session, 9);
    assert_int_equal(request.priority, 3);
    assert_int_equal(request.id_block_size, 16);
    assert_false(request.is_last_turn);
    request = kit_next(reader);
    assert_int_equal(request.turn, 1);
    assert_true(request.is_closed_loop);
    assert_true(request.think_s == 8.5 && request.time_s == 8.75);
    assert_int_equal(request.num_prompt_tokens, 2060 + 120 + 40);
    assert_true(shares_segments(first.segments, request.prompt, 2));
    assert_true(request.prompt[2].content == output);
    request = kit_next(reader);
    assert_int_equal(request.num_prompt_tokens, 2000);
    assert_int_equal(request.turn, 2);
    assert_true(request.is_last_turn);
    request = kit_next(reader);
    assert_int_equal(request.turn, 0); /* the session had ended */
    assert_false(request.is_closed_loop);
    request = kit_next(reader);
    assert_int_equal(request.num_after, 1);
    assert_int_equal(request.after[0], 1);
    assert_true(request.time_s == 0.25);
    kit_expect_end(reader);
}

static void only_so_many_requests_are_read(void **state)
{
    (void)state;
    static const char text[] = "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n"
                               "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n"
                               "broken\n";
    trace_reader *reader = kit_open(text, sizeof text - 1, &(trace_options){.max_requests = 2});
    kit_next(reader);
    kit_next(reader);
    kit_expect_end(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mooncake_ids_are_shared_prefixes),
        cmocka_unit_test(mooncake_takes_other_names_and_sizes),
        cmocka_unit_test(mooncake_sessions_are_closed_loops),
        cmocka_unit_test(agentic_requests_wait_for_others),
        cmocka_unit_test(agentic_version_2_has_a_header),
        cmocka_unit_test(delta_turns_go_on),
        cmocka_unit_test(early_requests_come_with_the_one_before),
        cmocka_unit_test(bailian_chats_are_sessions),
        cmocka_unit_test(workload_files_say_all),
        cmocka_unit_test(only_so_many_requests_are_read),
    };
    return cmocka_run_group_tests_name("cli_trace_lines", tests, NULL, NULL);
}

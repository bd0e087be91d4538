/* cli/trace/test_trace_imports.c - what other programs record: spans of OpenTelemetry, vLLM's log,
 * LMCache's agent traces. */
#include <math.h>

#include "output/failure.h"
#include "trace_kit.h"

/* ---- OpenTelemetry ------------------------------------------------------------- */

#define SPANS(spans) "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[" spans "]}]}]}\n"
#define SPAN(ids, start, end, attributes)                                                          \
    "{\"traceId\":\"t\"," ids ",\"startTimeUnixNano\":\"" start "\",\"endTimeUnixNano\":\"" end    \
    "\",\"attributes\":[" attributes "]}"
#define NUMBER(key, number) "{\"key\":\"" key "\",\"value\":{\"intValue\":" number "}}"
#define TEXT(key, text)     "{\"key\":\"" key "\",\"value\":{\"stringValue\":\"" text "\"}}"
#define TOKENS(in, out)                                                                            \
    NUMBER("gen_ai.usage.input_tokens", in) "," NUMBER("gen_ai.usage.output_tokens", out)

/* clang-format off */
#define ID(id)            "\"spanId\":\"" id "\""
#define INSIDE(id, other) ID(id) ",\"parentSpanId\":\"" other "\""
#define OPERATION(name)   TEXT("gen_ai.operation.name", name)
#define OLD_TOKENS(in, out)                                                                        \
    NUMBER("gen_ai.usage.prompt_tokens", in) "," NUMBER("gen_ai.usage.completion_tokens", out)

static void spans_become_requests_in_the_order_of_their_starts(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        SPANS(SPAN(ID("a"), "1777312802500000000", "1777312803000000000", TOKENS("\"20\"", "2")) ","
              SPAN(ID("b"), "1777312800000000001", "1777312801000000000",
                   OPERATION("chat") "," TOKENS("10", "0")))
        SPANS(SPAN(ID("c"), "1777312801000000001", "1777312802000000000", OLD_TOKENS("30", "3"))),
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_OTEL);
    trace_request r = kit_next(reader);
    assert_int_equal(r.num_prompt_tokens, 10);
    assert_int_equal(r.num_output_tokens, 1);
    assert_true(r.time_s == 0);
    assert_int_equal(r.session, 0);
    uint64_t content = r.prompt[0].content;
    r = kit_next(reader);
    assert_int_equal(r.num_prompt_tokens, 30);
    assert_true(r.time_s == 1);
    assert_int_equal(r.line, 2);
    assert_true(r.prompt[0].content != content);
    r = kit_next(reader);
    assert_int_equal(r.num_prompt_tokens, 20);
    assert_true(fabs(r.time_s - 2.499999999) < 1e-9);
    assert_false(trace_has_contents(reader));
    kit_expect_end(reader);
}

/* Sums of agents, calls without tokens, and the server's side of a call are no requests. */
static void other_spans_are_no_requests(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        SPANS(SPAN(INSIDE("inner", "outer"), "2000000000", "3000000000", TOKENS("11", "1")) ","
              SPAN(ID("agent"), "1", "9000000000",
                   TOKENS("99", "9") "," OPERATION("invoke_agent")) ","
              SPAN(ID("tool"), "1", "2", OPERATION("execute_tool")) ","
              SPAN(ID("error"), "1", "2", OPERATION("chat")) ","
              SPAN(INSIDE("outer", "agent"), "1000000000", "4000000000", TOKENS("10", "1"))),
        TRACE_OTEL);
    trace_request r = kit_next(reader);
    assert_int_equal(r.num_prompt_tokens, 10);
    kit_expect_end(reader);
}

static void conversations_are_closed_loops(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "[" SPANS(SPAN(ID("a"), "1000000000", "2000000000",
                       TOKENS("10", "1") "," TEXT("gen_ai.conversation.id", "x")) ","
                  SPAN(ID("b"), "4500000000", "5000000000",
                       TEXT("gen_ai.conversation.id", "x") "," TOKENS("20", "1")) ","
                  SPAN(ID("c"), "3000000000", "9000000000",
                       TOKENS("5", "1") "," TEXT("session.id", "y"))) "]",
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_OTEL);
    trace_request a = kit_next(reader);
    trace_request b = kit_next(reader);
    assert_true(a.is_closed_loop && b.is_closed_loop && a.session == b.session);
    assert_int_equal(b.turn, 1);
    assert_true(b.is_last_turn);
    assert_true(b.think_s == 2.5);
    trace_request c = kit_next(reader);
    assert_int_equal(c.num_prompt_tokens, 5);
    assert_true(c.session != a.session && c.time_s == 2);
    kit_expect_end(reader);
}

#define ONE(attributes) SPANS(SPAN(ID("a"), "5", "6", attributes))
#define INPUT           "1: field \"gen_ai.usage.input_tokens\": "

static const struct {
    const char *text;
    const char *message;
} otel_cases[] = {
    {SPANS("{\"startTimeUnixNano\":\"1\",\"attributes\":[" TOKENS("1", "1") "]}"),
     "1: field \"spanId\": is missing"},
    {SPANS("{\"spanId\":\"a\",\"attributes\":[" TOKENS("1", "1") "]}"),
     "1: field \"startTimeUnixNano\": is missing"},
    {SPANS(SPAN(ID("a"), "x1", "2", TOKENS("1", "1"))),
     "1: field \"startTimeUnixNano\": \"x1\" is not a whole number of at most 19 digits"},
    {SPANS(SPAN(ID("a"), "12345678901234567890", "2", TOKENS("1", "1"))),
     "1: field \"startTimeUnixNano\": \"12345678901234567890\" is not a whole number of at most 19 "
     "digits"},
    {SPANS(SPAN(ID("a"), "5", "4", TOKENS("1", "1"))),
     "1: field \"endTimeUnixNano\": is earlier than startTimeUnixNano"},
    {ONE(NUMBER("gen_ai.usage.input_tokens", "1")),
     "1: field \"gen_ai.usage.output_tokens\": is missing"},
    {ONE(NUMBER("gen_ai.usage.output_tokens", "1")), INPUT "is missing"},
    {ONE(TOKENS("0", "1")), INPUT "0: a prompt has at least one token"},
    {ONE(TOKENS("-1", "1")), INPUT "is not a whole number from 0 to 2147483647"},
    {ONE(TOKENS("\"1.5\"", "1")), INPUT "is not a whole number from 0 to 2147483647"},
    {ONE(TOKENS("2147483648", "1")), INPUT "is not a whole number from 0 to 2147483647"},
    {ONE(TOKENS("2147483647", "1")), "1: prompt and output have more than 2147483647 tokens"},
    {SPANS(SPAN("\"spanId\":7", "5", "6", TOKENS("1", "1"))),
     "1: field \"spanId\": is not a string"},
    {SPANS("{\"attributes\":7}"), "1: field \"attributes\": is not a list"},
    {SPANS("{\"attributes\":[7]}"),
     "1: field \"attributes\": has an element that is not an object"},
    {SPANS("\n7"), "2: field \"spans\": has an element that is not an object"},
    {"{\"resourceSpans\":[3]}", "1: field \"resourceSpans\": has an element that is not an object"},
    {SPANS(SPAN(ID("a"), "5", "6", TOKENS("1", "1")) "\n,"
           SPAN(ID("a"), "5", "6", TOKENS("1", "1"))),
     "2: field \"spanId\": an earlier span of the trace has the same one"},
    {"{\"resourceSpans\":[{\"scopeSpans\":[", "1: invalid JSON: unexpected end of the text"},
};
/* clang-format on */

static void broken_spans_say_where(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(otel_cases); i++)
        kit_expect_bad(otel_cases[i].text, TRACE_OTEL, otel_cases[i].message);
}

/* A broken span costs itself alone. */
static void broken_spans_can_be_passed_over(void **state)
{
    (void)state;
    static const char first[] = SPAN(ID("a"), "5", "6", TOKENS("7", "1"));
    static const char last[] = SPAN(ID("b"), "6", "7", TOKENS("8", "1"));
    char text[1024];
    int n = snprintf(text, sizeof text, SPANS("%s,{\"spanId\":7},8,%s"), first, last);
    trace_reader *reader = kit_open(text, (size_t)n, &(trace_options){.skip_bad = true});
    assert_int_equal(kit_next(reader).num_prompt_tokens, 7);
    assert_int_equal(kit_next(reader).num_prompt_tokens, 8);
    assert_int_equal(trace_num_bad(reader), 2);
    kit_expect_end(reader);
}

/* ---- vLLM's log ------------------------------------------------------------------ */

#define AT(time) " 11-19 " time " [request_logger.py:52] "
#define SIXTEEN  "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16"
#define DETAILS(id, ids)                                                                           \
    "DEBUG" AT("20:14:11") "Request " id " details: prompt: 'a', prompt_token_ids: " ids           \
                           ", prompt_embeds shape: None.\n"
#define GENERATED(id, ids)                                                                         \
    "INFO" AT("20:14:15") "Generated response " id ": output: 'b', output_token_ids: " ids         \
                          ", finish_reason: stop\n"

/* clang-format off */
static void requests_of_a_log(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "INFO 11-19 20:14:10 [api_server.py:1] prompt_token_ids: [1]\n"
        "\033[0;36m(APIServer pid=1)\033[0;0m DEBUG" AT("20:14:11")
        "Request chatcmpl-1 details: prompt: 'x, prompt_token_ids: [9]', prompt_token_ids: "
        "[" SIXTEEN ", 17], prompt_embeds shape: None.\n"
        "INFO" AT("20:14:11") "Received request chatcmpl-1: params: S(n=1), lora_request: None.\n"
        "INFO" AT("20:14:12") "Received request chatcmpl-2: prompt: 'x', params: S(), "
        "prompt_token_ids: [" SIXTEEN ", 18], lora_request: None.\n"
        "INFO" AT("20:14:13") "Generated response chatcmpl-2 (streaming delta): output: 'H', "
        "output_token_ids: [9, 2], finish_reason: streaming_delta\n"
        "INFO" AT("20:14:13") "Generated response chatcmpl-2 (streaming delta): output: 'e', "
        "output_token_ids: (99,), finish_reason: streaming_delta\n"
        "INFO" AT("20:14:13") "Generated response chatcmpl-2 (streaming complete): output: 'He', "
        "output_token_ids: None, finish_reason: streaming_complete\n"
        GENERATED("chatcmpl-1", "[9906]")
        GENERATED("chatcmpl-of-yesterday", "[1, 2]")
        "INFO:     127.0.0.1:41234 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK\n",
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_VLLM_LOG);
    trace_request a = kit_next(reader);
    assert_int_equal(a.line, 2);
    assert_int_equal(a.num_prompt_tokens, 17);
    assert_int_equal(a.num_output_tokens, 1);
    assert_int_equal(a.id_block_size, 16);
    assert_int_equal(a.num_segments, 2);
    uint64_t first = a.prompt[0].content;
    uint64_t second = a.prompt[1].content;
    trace_request b = kit_next(reader);
    assert_int_equal(b.num_output_tokens, 3);
    assert_true(b.time_s == 1);
    assert_true(b.prompt[0].content == first);
    assert_true(b.prompt[1].content != second);
    kit_expect_end(reader);
}
/* clang-format on */

static void a_log_goes_on_in_the_next_year(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "INFO 12-31 23:59:59 [l.py:1] Received request a: prompt: '', prompt_token_ids: [1], x\n"
        "INFO 01-01 00:00:01 [l.py:1] Received request b: prompt: '', prompt_token_ids: [1], "
        "x\n" GENERATED("a", "[1]") GENERATED("b", "[1]"),
        TRACE_VLLM_LOG);
    assert_true(kit_next(reader).time_s == 0);
    assert_true(kit_next(reader).time_s == 2);
    kit_expect_end(reader);
}

static const struct {
    const char *text;
    const char *message;
} log_cases[] = {
    {"INFO" AT("20:14:11") "Received request a: params: S()\n" GENERATED("a", "[1]"),
     "1: field \"prompt_token_ids\": the log does not have that of request a "
     "(VLLM_LOGGING_LEVEL=DEBUG writes it)"},
    {"\n" DETAILS("a", "[1]"),
     "2: field \"output_token_ids\": the log does not have that of request a "
     "(--enable-log-outputs writes it)"},
    {DETAILS("a", "[1]") GENERATED("a", "None"),
     "1: field \"output_token_ids\": the log does not have that of request a "
     "(--enable-log-outputs writes it)"},
    {DETAILS("a", "[1, x]"), "1: field \"prompt_token_ids\": is not a list of numbers"},
    {DETAILS("a", "7"), "1: field \"prompt_token_ids\": is not a list of numbers"},
    {DETAILS("a", "[1]") GENERATED("a", "[1"),
     "2: field \"output_token_ids\": is not a list of numbers"},
    {DETAILS("a", "[]") GENERATED("a", "[1]"),
     "1: field \"prompt_token_ids\": 0: a prompt has at least one token"},
};

static void requests_that_a_log_does_not_have_as_a_whole_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(log_cases); i++)
        kit_expect_bad(log_cases[i].text, TRACE_VLLM_LOG, log_cases[i].message);
    static const char text[] =
        DETAILS("a", "[1]") DETAILS("b", "[1, 2]") GENERATED("b", "[1]") DETAILS("c", "[oops");
    trace_reader *reader = kit_open(text, sizeof text - 1,
                                    &(trace_options){.format = TRACE_VLLM_LOG, .skip_bad = true});
    assert_int_equal(kit_next(reader).num_prompt_tokens, 2);
    kit_expect_end(reader);
}

static void an_access_log_is_refused_by_name(void **state)
{
    (void)state;
    static const char text[] = "INFO:     127.0.0.1:1 - \"POST /v1/completions HTTP/1.1\" 200 OK\n";
    assert_null(trace_open_input(input_of_bytes(text, sizeof text - 1), NULL));
    assert_string_equal(failure(), "bytes: is an access log: it says nothing of the lengths of "
                                   "prompts and outputs");
}

/* ---- LMCache's agent traces --------------------------------------------------------- */

#define X64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void texts_share_whole_pieces(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text("{\"timestamp\": 1760995776640783, \"input\": \"" X64 X64
                                         "b\", \"output\": \"12345\", \"session_id\": \"s\"}\n"
                                         "{\"timestamp\": 1760995773640783, \"input\": \"" X64
                                         "a" X64 "\", \"output\": \"\", \"session_id\": \"s\"}\n"
                                         "{\"timestamp\": 1760995778640783, \"input\": \"" X64 X64
                                         "\", \"output\": \"123\"}\n",
                                         TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_LMCACHE);
    trace_request a = kit_next(reader); /* the earliest */
    assert_int_equal(a.line, 2);
    assert_int_equal(a.num_prompt_tokens, 16 + 16 + 1);
    assert_int_equal(a.num_output_tokens, 1);
    assert_int_equal(a.turn, 0);
    assert_false(a.is_closed_loop);
    uint64_t first = a.prompt[0].content;
    uint64_t other = a.prompt[1].content;
    trace_request b = kit_next(reader);
    assert_int_equal(b.line, 1);
    assert_true(b.time_s == 3);
    assert_true(b.session == a.session && b.turn == 1);
    assert_int_equal(b.num_prompt_tokens, 33);
    assert_int_equal(b.num_output_tokens, 2);
    assert_true(b.prompt[0].content == first && b.prompt[1].content == first);
    assert_true(b.prompt[1].content != other);
    trace_request c = kit_next(reader);
    assert_true(c.time_s == 5 && c.session == 0);
    assert_int_equal(c.num_prompt_tokens, 32);
    kit_expect_end(reader);
}

static void times_have_the_unit_that_fits_their_size(void **state)
{
    (void)state;
    static const char *const rows[] = {"1760995776", "1760995777000", "1760995778000000"};
    char text[1024] = "";
    for (size_t i = 0; i < COUNT(rows); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"timestamp\": %s, \"input\": \"a\", \"output_length\": 3}\n", rows[i]);
    trace_reader *reader = kit_open_text(text, TRACE_DETECT);
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_true(kit_next(reader).time_s == (double)i);
    kit_expect_end(reader);
}

/* Messages are cut apart: what stands in front of one does not move its pieces. */
static void messages_and_think_times(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "{\"session_id\": \"s\", \"model\": \"m\", \"input\": [{\"role\": \"user\", \"content\": "
        "\"hello\"}], \"output_length\": 7, \"pre_gap\": 0.0}\n"
        "{\"session_id\": \"s\", \"input\": [{\"role\": \"user\", \"content\": \"hello\"}, "
        "{\"role\":"
        " \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"n\": 5}]}, "
        "{\"role\": "
        "\"tool\", \"content\": [{\"text\": \"out\"}]}], \"output_length\": 9, \"pre_gap\": 1.25}\n"
        "{\"session_id\": \"t\", \"input\": [\"x\"], \"output_length\": 1, \"session_timestamp\": "
        "0}\n"
        "{\"session_id\": \"t\", \"input\": [\"x\"], \"output_length\": 1, \"session_timestamp\": "
        "4.5}\n",
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_LMCACHE);
    trace_request a = kit_next(reader);
    assert_int_equal(a.num_prompt_tokens, 3); /* userhello */
    uint64_t hello = a.prompt[0].content;
    trace_request b = kit_next(reader);
    assert_int_equal(b.num_segments, 3);
    assert_true(b.prompt[0].content == hello);
    assert_int_equal(b.prompt[1].num_tokens, 3); /* assistant1 */
    assert_int_equal(b.prompt[2].num_tokens, 2); /* toolout */
    assert_true(b.is_closed_loop && b.turn == 1 && b.think_s == 1.25);
    trace_request c = kit_next(reader);
    assert_true(c.time_s == 1 && c.session != a.session);
    assert_true(kit_next(reader).think_s == 4.5);
    kit_expect_end(reader);
}

#define GOOD "{\"timestamp\": 1, \"input\": \"a\", \"output\": \"b\"}\n"

static const struct {
    const char *text;
    const char *message;
} lmcache_cases[] = {
    {"{\"timestamp\": 1, \"output\": \"b\"}", "1: field \"input\": is missing"},
    {"{\"timestamp\": 1, \"input\": \"\", \"output\": \"b\"}",
     "1: field \"input\": is empty: a prompt has at least one token"},
    {"{\"timestamp\": 1, \"input\": 7, \"output\": \"b\"}",
     "1: field \"input\": is neither a string nor a list of messages"},
    {"{\"timestamp\": 1, \"input\": \"a\", \"input\": \"a\", \"output\": \"b\"}",
     "1: field \"input\": there is already one"},
    {"{\"timestamp\": 1, \"input\": \"a\"}",
     "1: field \"output\": is missing, and so is \"output_length\""},
    {"{\"timestamp\": 1, \"input\": \"a\", \"output\": 7}", "1: field \"output\": is not a string"},
    {"{\"input\": \"a\", \"output\": \"b\"}",
     "1: field \"timestamp\": is missing, and so are \"pre_gap\" and \"session_timestamp\""},
    {"{\"timestamp\": -1, \"input\": \"a\", \"output\": \"b\"}",
     "1: field \"timestamp\": -1 is negative"},
    {"{\"timestamp\": 1e17, \"input\": \"a\", \"output\": \"b\"}",
     "1: field \"timestamp\": 1e17 is out of range"},
    {"{\"timestamp\": \"x\", \"input\": \"a\", \"output\": \"b\"}",
     "1: field \"timestamp\": is not a number"},
    {"{\"pre_gap\": 1, \"input\": \"a\", \"output\": \"b\"}",
     "1: field \"session_id\": is missing"},
    {"{\"pre_gap\": -1, \"session_id\": 1, \"input\": \"a\", \"output\": \"b\"}",
     "1: field \"pre_gap\": -1 is negative"},
    {"{\"timestamp\": 1, \"input\": \"a\", \"output_length\": -1}",
     "1: field \"output_length\": -1 is negative"},
    {"{\"timestamp\": 1, \"input\": \"a\", \"output_length\": 2147483647}",
     "1: prompt and output have more than 2147483647 tokens"},
    {GOOD "{\"pre_gap\": 1, \"session_id\": 1, \"input\": \"a\", \"output\": \"b\"}",
     "2: field \"pre_gap\": earlier records of the file have \"timestamp\""},
};

static void broken_calls_say_where(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(lmcache_cases); i++)
        kit_expect_bad(lmcache_cases[i].text, TRACE_LMCACHE, lmcache_cases[i].message);
    trace_reader *reader = kit_open_text("{\"pre_gap\": 1, \"session_id\": 1, \"input\": \"a\", "
                                         "\"output\": \"b\"}\n" GOOD,
                                         TRACE_LMCACHE);
    kit_next(reader);
    kit_expect_error(reader, "2: field \"timestamp\": earlier records of the file have \"pre_gap\" "
                             "or \"session_timestamp\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_become_requests_in_the_order_of_their_starts),
        cmocka_unit_test(other_spans_are_no_requests),
        cmocka_unit_test(conversations_are_closed_loops),
        cmocka_unit_test(broken_spans_say_where),
        cmocka_unit_test(broken_spans_can_be_passed_over),
        cmocka_unit_test(requests_of_a_log),
        cmocka_unit_test(a_log_goes_on_in_the_next_year),
        cmocka_unit_test(requests_that_a_log_does_not_have_as_a_whole_are_refused),
        cmocka_unit_test(an_access_log_is_refused_by_name),
        cmocka_unit_test(texts_share_whole_pieces),
        cmocka_unit_test(times_have_the_unit_that_fits_their_size),
        cmocka_unit_test(messages_and_think_times),
        cmocka_unit_test(broken_calls_say_where),
    };
    return cmocka_run_group_tests_name("cli_trace_imports", tests, NULL, NULL);
}

/* cli/trace/test_trace_dynamo.c - Dynamo's request traces: their records, and who waits for whom.
 * Times are in ms; expected waits are what Dynamo's own replay makes of the same records. */
#include <math.h>

#include "trace/content.h"
#include "trace/workflow.h"
#include "trace_kit.h"

#define HEAD "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\","
/* A request of `tokens` tokens in blocks of 2. */
#define REQUEST(id, start, total, tokens, hashes)                                                  \
    "\"request\":{\"request_id\":\"" id "\",\"request_received_ms\":" #start                       \
    ",\"total_time_ms\":" #total ",\"output_tokens\":5,\"replay\":{\"trace_block_size\":2,"        \
    "\"input_length\":" #tokens ",\"input_sequence_hashes\":[" hashes "]}}"
#define CONTEXT(session) "\"agent_context\":{\"session_id\":\"" session "\"},"
#define CHILD(session, parent)                                                                     \
    "\"agent_context\":{\"session_id\":\"" session "\",\"parent_session_id\":\"" parent "\"},"
#define TOOL(type, child, source, consumer)                                                        \
    "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"" type                               \
    "\",\"event_time_unix_ms\":1,\"tool\":{\"tool_call_id\":\"c\",\"claude\":{"                    \
    "\"child_session_id\":\"" child "\",\"source_request_id\":\"" source                           \
    "\",\"execution_mode\":\"background\"" consumer "}}}\n"

/* ---- records ----------------------------------------------------------------- */

/* Lines stand in the order of ends, requests come in the order of starts. */
static void requests_come_in_the_order_of_their_starts(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_payload\",\"payload\":{"
        "\"request\":{\"messages\":[{\"content\":\"}{\"}]}}}\n" /* no request of its own */
        HEAD REQUEST(
            "b", 1500, 100, 4,
            "11,33") "}\n"
                     "{\"timestamp\":7,\"event\":" HEAD REQUEST(
                         "a", 1000, 900, 3,
                         "11,22") "}}\n" HEAD
                                  "\"event_time_unix_ms\":1700,\"agent_context\":null," REQUEST(
                                      "c", 1500, null, 2, "18446744073709551615") "}\n",
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_DYNAMO);
    trace_request a = kit_next(reader);
    assert_int_equal(a.line, 3);
    assert_int_equal(a.num_prompt_tokens, 3);
    assert_int_equal(a.num_output_tokens, 5);
    assert_int_equal(a.id_block_size, 2);
    assert_int_equal(a.session, 0);
    assert_false(a.is_closed_loop);
    assert_true(a.time_s == 0);
    assert_int_equal(a.num_segments, 2);
    assert_int_equal(a.prompt[1].num_tokens, 1);
    uint64_t shared = a.prompt[0].content;
    trace_request b = kit_next(reader);
    assert_int_equal(b.line, 2);
    assert_true(b.time_s == 0.5);
    assert_true(b.prompt[0].content == shared);
    trace_request c = kit_next(reader);
    assert_int_equal(c.line, 4);
    assert_true(c.time_s == 0.5);
    assert_true(trace_has_contents(reader));
    kit_expect_end(reader);
}

static void invalid_records_name_their_field(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } bad[] = {
        {"{\"event_type\":\"request_end\"}", "1: field \"schema\": is missing"},
        {"{\"schema\":\"dynamo.request.trace.v1\",\"event\":{}}", /* a wrong place for it */
         "1: field \"event_type\": is missing"},
        {"{\"schema\":\"dynamo.request.trace.v2\",\"event_type\":\"request_end\"}",
         "1: field \"schema\": \"dynamo.request.trace.v2\" is unknown (expected "
         "dynamo.request.trace.v1)"},
        {"{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_begin\"}",
         "1: field \"event_type\": \"request_begin\" is unknown (expected request_end, "
         "request_payload, tool_start, tool_end or tool_error)"},
        {HEAD "\"request\":null}", "1: field \"request\": is missing"},
        {HEAD "\"request\":[]}", "1: field \"request\": is not an object"},
        {HEAD "\"request\":{\"request_received_ms\":1}}", "1: field \"request_id\": is missing"},
        {HEAD "\"request\":{\"request_id\":\"a\"}}",
         "1: field \"request_received_ms\": is missing"},
        {HEAD "\"request\":{\"request_id\":\"a\",\"request_received_ms\":1}}",
         "1: field \"replay\": is missing"},
        {HEAD "\"request\":{\"request_id\":\"a\",\"request_received_ms\":1,\"replay\":{}}}",
         "1: field \"trace_block_size\": is missing or out of range (expected 1..2147483647)"},
        {HEAD "\"request\":{\"request_id\":\"a\",\"request_received_ms\":1,\"replay\":{"
              "\"trace_block_size\":2,\"input_length\":2,\"input_sequence_hashes\":[1]}}}",
         "1: field \"output_tokens\": is missing"},
        {HEAD REQUEST("a", 1000, 1, 2, "11,22") "}",
         "1: field \"input_sequence_hashes\": 2 ids of 2 tokens do not fit a prompt of 2 tokens"},
        {HEAD REQUEST("a", 1000, 1, 2, "11") "}\n\n" HEAD REQUEST("a", 2000, 1, 2, "11") "}",
         "3: field \"request_id\": an earlier request has the same one"},
    };
    for (size_t i = 0; i < COUNT(bad); i++)
        kit_expect_bad(bad[i].text, TRACE_DYNAMO, bad[i].message);
}

static void invalid_records_are_skipped_and_counted(void **state)
{
    (void)state;
    static const char text[] =
        HEAD REQUEST("a", 1000, 1, 2, "11") "}\n" HEAD
                                            "\"request\":{\"request_id\":\"b\"}}\n" HEAD REQUEST(
                                                "c", 900, 1, 2, "11") "}\n";
    trace_reader *reader = kit_open(text, sizeof text - 1, &(trace_options){.skip_bad = true});
    assert_int_equal(kit_next(reader).line, 3);
    trace_request a = kit_next(reader);
    assert_int_equal(a.line, 1);
    assert_true(fabs(a.time_s - 0.1) < 1e-9);
    assert_int_equal(trace_num_bad(reader), 1);
    kit_expect_end(reader);
}

/* A think time of 200 ms: from the end at 1,100 to the start at 1,300. */
static void sessions_are_closed_loops(void **state)
{
    (void)state;
    trace_reader *reader =
        kit_open_text(HEAD CONTEXT("root") REQUEST("r1", 1000, 100, 2, "11") "}\n" HEAD REQUEST(
                          "other", 1200, 10, 2, "99") "}\n" HEAD CONTEXT("root")
                          REQUEST("r2", 1300, 100, 4, "11,22") "}\n",
                      TRACE_DETECT);
    trace_request r = kit_next(reader);
    assert_true(r.is_closed_loop && r.turn == 0 && r.session == 1 && !r.is_last_turn);
    r = kit_next(reader); /* at once, as it waits for the first one alone */
    assert_true(r.is_closed_loop && r.turn == 1 && r.session == 1 && r.is_last_turn);
    assert_int_equal(r.num_after, 0);
    assert_true(fabs(r.think_s - 0.2) < 1e-9);
    assert_true(fabs(r.time_s - 0.2) < 1e-9);
    r = kit_next(reader);
    assert_true(!r.is_closed_loop && r.session == 0);
    assert_true(fabs(r.time_s - 0.2) < 1e-9);
    kit_expect_end(reader);
}

static void launched_sessions_wait_for_their_source(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        HEAD CONTEXT("root") REQUEST("p1", 1000, 100, 2, "11") "}\n" HEAD CONTEXT("root")
            REQUEST("p2", 1300, 100, 2, "11") "}\n" HEAD CHILD("kid", "root")
                REQUEST("c1", 1400, 300, 2, "33") "}\n" TOOL("tool_start", "kid", "none",
                                                             "") /* says nothing yet */
        TOOL("tool_end", "kid", "p1", ",\"consumer_request_id\":\"p3\"")
            TOOL("tool_end", "absent", "p1", "") /* its session was not recorded */
        HEAD CONTEXT("root") REQUEST("p3", 1650, 100, 2, "11") "}\n",
        TRACE_DETECT);
    trace_request p1 = kit_next(reader);
    assert_int_equal(p1.line, 1);
    trace_request p2 = kit_next(reader);
    assert_int_equal(p2.line, 2);
    trace_request c1 = kit_next(reader);
    assert_int_equal(c1.line, 3);
    assert_int_equal(c1.num_after, 1);
    assert_true(c1.after[0] == p1.number && c1.turn == 0 && c1.session == 2);
    assert_true(fabs(c1.think_s - 0.3) < 1e-9);
    trace_request p3 = kit_next(reader); /* it began before the child had ended: no think time */
    assert_int_equal(p3.num_after, 2);
    assert_true(p3.after[0] == p2.number && p3.after[1] == c1.number);
    assert_true(p3.think_s == 0);
    kit_expect_end(reader);
    kit_expect_bad(
        HEAD CONTEXT("root") REQUEST("p1", 1000, 100, 2, "11") "}\n" HEAD CHILD("kid", "root")
            REQUEST("c1", 1400, 300, 2, "33") "}\n" TOOL("tool_error", "kid", "c1", ""),
        TRACE_DYNAMO,
        "3: field \"source_request_id\": it, or consumer_request_id, is not a request of "
        "the session's parent");
}

/* ---- who waits for whom --------------------------------------------------------- */

enum { ROOT = 1, KID = 2 };

static workflow_request request(uint64_t id, uint64_t session, uint64_t parent, double start_ms,
                                double end_ms)
{
    return (workflow_request){
        .id = id, .session = session, .parent = parent, .start_ms = start_ms, .end_ms = end_ms};
}

/* waits[i]: ids that request i + 1 waits for, in any order, 0 at the end. */
static void expect_waits(workflow_request *requests, uint32_t n, const workflow_launch *launches,
                         uint32_t num_launches, const uint64_t waits[][3], const uint64_t *order)
{
    workflow w;
    uint32_t at;
    assert_int_equal(workflow_find(&w, requests, n, launches, num_launches, &at), WORKFLOW_OK);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t num = 0;
        for (; num < 3 && waits[i][num] != 0; num++) {
            bool is_there = false;
            for (uint32_t k = 0; k < requests[i].num_waits; k++)
                is_there =
                    is_there || requests[w.waits[requests[i].first_wait + k]].id == waits[i][num];
            assert_true(is_there);
        }
        assert_int_equal(requests[i].num_waits, num);
        assert_int_equal(requests[w.order[i]].id, order[i]);
    }
    workflow_free(&w);
}

static void children_join_where_they_ended(void **state)
{
    (void)state;
    workflow_request requests[] = {
        request(1, ROOT, 0, 1000, 1100), request(2, KID, ROOT, 1200, 1900),
        request(3, KID, ROOT, 1300, 1400), request(4, ROOT, 0, 1500, 1600),
        request(5, ROOT, 0, 1900, 2100)}; /* just when the child's slow request ends */
    static const uint64_t waits[][3] = {{0}, {1}, {2}, {1}, {4, 2}};
    static const uint64_t order[] = {1, 2, 3, 4, 5};
    expect_waits(requests, 5, NULL, 0, waits, order);
    assert_true(requests[4].think_ms == 0 && requests[1].think_ms == 100);
    assert_true(requests[4].turn == 2 && requests[4].is_last_turn && !requests[3].is_last_turn);
    /* A little earlier it does not take the result; and a child may begin at the same time. */
    workflow_request again[] = {request(1, ROOT, 0, 1000, 1100), request(2, KID, ROOT, 1000, 1900),
                                request(3, KID, ROOT, 1300, 1400), request(4, ROOT, 0, 1500, 1600),
                                request(5, ROOT, 0, 1899, 2100)};
    static const uint64_t fewer[][3] = {{0}, {1}, {2}, {1}, {4}};
    expect_waits(again, 5, NULL, 0, fewer, order);
}

/* Of two that end together the one that started last counts; and a child that began before its
 * parent goes back to itself: what waits for both stands behind both. */
static void joins_stand_behind_all_they_wait_for(void **state)
{
    (void)state;
    workflow_request requests[] = {request(1, KID, ROOT, 0, 50), request(2, ROOT, 0, 10, 20),
                                   request(3, KID, ROOT, 30, 50), request(4, ROOT, 0, 60, 70)};
    static const uint64_t waits[][3] = {{0}, {0}, {1}, {2, 3}};
    static const uint64_t order[] = {1, 3, 2, 4};
    expect_waits(requests, 4, NULL, 0, waits, order);
    assert_true(requests[3].think_ms == 10 && requests[2].think_ms == 0);
}

/* Two agents at a time: each one's requests stand together, in the order of the agents' starts. */
static void each_root_keeps_its_requests(void **state)
{
    (void)state;
    workflow_request requests[] = {request(1, 7, 0, 0, 10), request(2, 8, 0, 5, 10),
                                   request(3, 7, 0, 20, 30), request(4, 8, 0, 15, 40),
                                   request(5, 0, 0, 12, 13)};
    static const uint64_t waits[][3] = {{0}, {0}, {1}, {2}, {0}};
    static const uint64_t order[] = {1, 3, 2, 4, 5};
    expect_waits(requests, 5, NULL, 0, waits, order);
    assert_true(requests[0].session_number == 1 && requests[3].session_number == 2);
    assert_true(requests[4].session_number == 0);
}

static void problems_of_the_whole_are_found(void **state)
{
    (void)state;
    workflow w;
    uint32_t at;
    workflow_request parents[] = {request(1, KID, 5, 0, 1), request(2, KID, 6, 2, 3)};
    assert_int_equal(workflow_find(&w, parents, 2, NULL, 0, &at), WORKFLOW_TWO_PARENTS);
    assert_int_equal(at, 1);
    workflow_request cycle[] = {request(1, ROOT, 0, 1000, 1100), request(2, KID, ROOT, 1200, 1300),
                                request(3, ROOT, 0, 1400, 1500)};
    workflow_launch launch = {KID, 3, 1}; /* launched after its result was taken */
    assert_int_equal(workflow_find(&w, cycle, 3, &launch, 1, &at), WORKFLOW_CYCLE);
    workflow_launch twice[] = {{KID, 1, 0}, {KID, 1, 0}};
    assert_int_equal(workflow_find(&w, cycle, 3, twice, 2, &at), WORKFLOW_TWO_LAUNCHES);
    assert_int_equal(at, 1);
    assert_int_equal(workflow_find(&w, NULL, 0, NULL, 0, &at), WORKFLOW_OK);
    workflow_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_in_the_order_of_their_starts),
        cmocka_unit_test(invalid_records_name_their_field),
        cmocka_unit_test(invalid_records_are_skipped_and_counted),
        cmocka_unit_test(sessions_are_closed_loops),
        cmocka_unit_test(launched_sessions_wait_for_their_source),
        cmocka_unit_test(children_join_where_they_ended),
        cmocka_unit_test(joins_stand_behind_all_they_wait_for),
        cmocka_unit_test(each_root_keeps_its_requests),
        cmocka_unit_test(problems_of_the_whole_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cli/trace/test_trace_tables.c - traces that are tables: Azure and BurstGPT. */
#include <math.h>

#include "trace_kit.h"

static void azure_times_start_at_the_first(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                         "2023-11-16 23:59:59.9805900,374,44\r\n"
                                         "2023-11-17 00:00:00.0005900,396,109\r\n"
                                         "\r\n"
                                         "2023-11-17 01:00:00,879,0",
                                         TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_AZURE);
    trace_request request = kit_next(reader);
    assert_int_equal(request.line, 2);
    assert_true(request.time_s == 0);
    assert_int_equal(request.num_prompt_tokens, 374);
    assert_int_equal(request.num_output_tokens, 44);
    assert_int_equal(request.num_segments, 1);
    assert_int_equal(request.id_block_size, 0);
    assert_false(request.is_closed_loop);
    uint64_t content = request.prompt[0].content;
    request = kit_next(reader);
    assert_true(fabs(request.time_s - 0.02) < 1e-9);
    assert_true(request.prompt[0].content != content);
    request = kit_next(reader);
    assert_true(fabs(request.time_s - 3600.01941) < 1e-9);
    assert_int_equal(request.num_output_tokens, 1);
    kit_expect_end(reader);
}

/* The trace of 2024 has zones; calendars have leap years. */
static void azure_times_have_zones_and_leap_days(void **state)
{
    (void)state;
    static const struct {
        const char *from;
        const char *to;
        double seconds;
    } cases[] = {
        {"2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01.009930+00:00", 1},
        {"2024-05-10T00:00:00Z", "2024-05-10T02:30:00+02:00", 1800},
        {"2024-05-10 00:00:00+01:00", "2024-05-09 22:00:00-01:30", 1800},
        {"2024-02-28 00:00:00", "2024-03-01 00:00:00", 2 * 86400},
        {"2023-02-28 00:00:00", "2023-03-01 00:00:00", 86400},
        {"1999-12-31 23:59:59", "2000-03-01 00:00:00", 60 * 86400 + 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, "TIMESTAMP,ContextTokens,GeneratedTokens\n%s,1,1\n%s,1,1\n",
                 cases[i].from, cases[i].to);
        trace_reader *reader = kit_open_text(text, TRACE_DETECT);
        kit_next(reader);
        assert_true(fabs(kit_next(reader).time_s - cases[i].seconds) < 1e-6);
        kit_expect_end(reader);
    }
}

static void columns_are_found_by_name(void **state)
{
    (void)state;
    trace_reader *reader =
        kit_open_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                      "5,ChatGPT,472,18,490,Conversation log\n"
                      "45.5,\"GPT \"\"4\"\", mini\", 1087 ,\"230\",1317,API log\n",
                      TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_BURSTGPT);
    trace_request request = kit_next(reader);
    assert_int_equal(request.num_prompt_tokens, 472);
    assert_int_equal(request.num_output_tokens, 18);
    request = kit_next(reader);
    assert_true(request.time_s == 40.5);
    assert_int_equal(request.num_prompt_tokens, 1087);
    assert_int_equal(request.num_output_tokens, 230);
    kit_expect_end(reader);

    reader = kit_open_text("Session ID,Response tokens,Timestamp,Request tokens\n7,1,2,3\n",
                           TRACE_DETECT);
    request = kit_next(reader);
    assert_int_equal(request.num_prompt_tokens, 3);
    assert_int_equal(request.num_output_tokens, 1);
    kit_expect_end(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(azure_times_start_at_the_first),
        cmocka_unit_test(azure_times_have_zones_and_leap_days),
        cmocka_unit_test(columns_are_found_by_name),
    };
    return cmocka_run_group_tests_name("cli_trace_tables", tests, NULL, NULL);
}

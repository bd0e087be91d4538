/* cli/trace/test_trace_bad.c - broken records: each is refused with file, line and field, and can
 * be
 * passed over; files that are no traces; packed traces that are cut off. */
#include "output/failure.h"
#include "trace_kit.h"

typedef struct bad_case {
    trace_format format;
    const char *text;
    const char *message;
} bad_case;

#define LENGTHS "\"input_length\": 5, \"output_length\": 5"
#define AZURE   "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define BURST   "Timestamp,Model,Request tokens,Response tokens\n"

static const bad_case cases[] = {
    /* numbers */
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"input_length\": -3, \"output_length\": 5}",
     "1: field \"input_length\": -3 is negative"},
    {TRACE_MOONCAKE, "\n\n{\"timestamp\": -1, " LENGTHS "}",
     "3: field \"timestamp\": -1 is negative"},
    {TRACE_MOONCAKE, "{\"timestamp\": 1e400, " LENGTHS "}",
     "1: field \"timestamp\": 1e400 is out of range"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"input_length\": 2147483648, \"output_length\": 5}",
     "1: field \"input_length\": 2147483648 is more than 2147483647"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"input_length\": 1e300, \"output_length\": 5}",
     "1: field \"input_length\": 1e300 is more than 2147483647"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"input_length\": 2.5, \"output_length\": 5}",
     "1: field \"input_length\": 2.5 is not a whole number"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 5}",
     "1: field \"input_length\": 0: a prompt has at least one token"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"input_length\": \"5\", \"output_length\": 5}",
     "1: field \"input_length\": is not a number"},
    {TRACE_MOONCAKE, "{\"timestamp\": [], " LENGTHS "}", "1: field \"timestamp\": is not a number"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"priority\": 2147483648, " LENGTHS "}",
     "1: field \"priority\": 2147483648 is more than 2147483647"},
    /* what is missing */
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"output_length\": 5}",
     "1: field \"input_length\": is missing"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": null}",
     "1: field \"output_length\": is missing"},
    {TRACE_MOONCAKE, "{" LENGTHS "}", "1: field \"timestamp\": is missing"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"session_id\": [1], " LENGTHS "}",
     "1: field \"session_id\": is neither a string nor a number"},
    /* ids */
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"hash_ids\": [1, 2], " LENGTHS "}",
     "1: field \"hash_ids\": 2 ids of 512 tokens do not fit a prompt of 5 tokens"},
    {TRACE_MOONCAKE,
     "{\"timestamp\": 0, \"hash_ids\": [], \"input_length\": 1024, \"output_length\": 5}",
     "1: field \"hash_ids\": 0 ids of 512 tokens do not fit a prompt of 1024 tokens"},
    {TRACE_MOONCAKE,
     "{\"timestamp\": 0, \"hash_ids\": [1, 2, 3], \"input_length\": 1024, \"output_length\": 5}",
     "1: field \"hash_ids\": 3 ids of 512 tokens do not fit a prompt of 1024 tokens"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"hash_ids\": [-1], " LENGTHS "}",
     "1: field \"hash_ids\": -1 is negative"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"hash_ids\": [null], " LENGTHS "}",
     "1: field \"hash_ids\": has an element that is not a number"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"hash_ids\": 7, " LENGTHS "}",
     "1: field \"hash_ids\": is not a list"},
    {TRACE_BAILIAN, "{\"chat_id\": 1, \"timestamp\": 0, \"hash_ids\": [1, 2], " LENGTHS "}",
     "1: field \"hash_ids\": 2 ids of 16 tokens do not fit a prompt of 5 tokens"},
    {TRACE_BAILIAN, "{\"chat_id\": 1, " LENGTHS "}", "1: field \"timestamp\": is missing"},
    /* sessions */
    {TRACE_MOONCAKE,
     "{\"timestamp\": 0, \"request_id\": \"a\", \"wait_for\": [\"b\"], " LENGTHS "}",
     "1: field \"wait_for\": no earlier request has this name"},
    {TRACE_MOONCAKE, "{\"schema\": \"dynamo.agentic_mooncake\", \"block_size\": 0}",
     "1: field \"block_size\": is missing or out of range"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"dependencies\": [{}], " LENGTHS "}",
     "1: field \"dependencies\": has an element without \"request_id\""},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"dependencies\": [3], " LENGTHS "}",
     "1: field \"dependencies\": has an element that is not an object"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, \"dependencies\": 1, " LENGTHS "}",
     "1: field \"dependencies\": is not a list"},
    /* no JSON */
    {TRACE_MOONCAKE, "{\"timestamp\": 0, ", "1: invalid JSON: expected a string"},
    {TRACE_MOONCAKE, "{\"timestamp\": 0, " LENGTHS "} {}",
     "1: invalid JSON: unexpected text after the record"},
    {TRACE_MOONCAKE, "[1]", "1: invalid JSON: expected an object"},
    {TRACE_BAILIAN, "hello", "1: invalid JSON: expected an object"},
    /* tables */
    {TRACE_AZURE, AZURE "2023-11-16 18:15:46,374,-44",
     "2: field \"GeneratedTokens\": -44 is negative"},
    {TRACE_AZURE, AZURE "2023-11-16 18:15:46,374",
     "2: field \"GeneratedTokens\": the row has only 2 cells"},
    {TRACE_AZURE, AZURE "2023-11-16 18:15:46,,4", "2: field \"ContextTokens\": is missing"},
    {TRACE_AZURE, AZURE "2023-11-16 18:15:46,3x,4",
     "2: field \"ContextTokens\": \"3x\" is not a number"},
    {TRACE_AZURE, AZURE "2023-13-16 18:15:46,3,4",
     "2: field \"TIMESTAMP\": \"2023-13-16 18:15:46\" is not a time (expected the form 2023-11-16 "
     "18:15:46.680)"},
    {TRACE_AZURE, AZURE "now,3,4",
     "2: field \"TIMESTAMP\": \"now\" is not a time (expected the form 2023-11-16 18:15:46.680)"},
    {TRACE_AZURE, AZURE "2023-11-16 18:15:46+1,3,4",
     "2: field \"TIMESTAMP\": \"2023-11-16 18:15:46+1\" is not a time (expected the form "
     "2023-11-16 18:15:46.680)"},
    {TRACE_AZURE, AZURE "2023-11-16 18:15:46+01x00,3,4",
     "2: field \"TIMESTAMP\": \"2023-11-16 18:15:46+01x00\" is not a time (expected the form "
     "2023-11-16 18:15:46.680)"},
    {TRACE_AZURE, AZURE "2023-11-16 18:15,3,4",
     "2: field \"TIMESTAMP\": \"2023-11-16 18:15\" is not a time (expected the form 2023-11-16 "
     "18:15:46.680)"},
    {TRACE_BURSTGPT, BURST "-5,ChatGPT,1,1", "2: field \"Timestamp\": -5 is negative"},
    {TRACE_BURSTGPT, BURST "5,ChatGPT,0,1",
     "2: field \"Request tokens\": 0: a prompt has at least one token"},
    /* conversations */
    {TRACE_SHAREGPT, "[{\"id\": 1}]", "1: field \"conversations\": is missing"},
    {TRACE_SHAREGPT, "[\n7]", "2: expected an object"},
    {TRACE_SHAREGPT, "[{\"conversations\": [\"a\"]}]",
     "1: item 1: field \"conversations\": has an element that is not an object"},
    {TRACE_SHAREGPT, "[{\"conversations\": [{\"value\": \"a\"}]}]",
     "1: item 1: field \"from\": is missing"},
    /* agents */
    {TRACE_AGENT, "{\"id\": 1}", "1: field \"requests\": is missing"},
    {TRACE_AGENT, "{\"block_size\": 0, \"requests\": []}",
     "1: field \"block_size\": is out of range"},
    {TRACE_AGENT, "{\"hash_id_scope\": \"mine\", \"requests\": []}",
     "1: field \"hash_id_scope\": is neither \"local\" nor \"global\""},
    {TRACE_AGENT, "{\"requests\": [{\"t\": 0, \"in\": 5, \"out\": 1},\n {\"in\": 5, \"out\": 1}]}",
     "2: item 2: field \"t\": is missing"},
    {TRACE_AGENT, "{\"requests\": [{\"t\": 0, \"in\": 500, \"out\": 1, \"hash_ids\": [1]}]}",
     "1: item 1: field \"hash_ids\": 1 ids of 64 tokens do not fit a prompt of 500 tokens"},
    {TRACE_AGENT, "{\"requests\": [{\"t\": 0, \"in\": 5, \"out\": 1, \"think_time\": -1}]}",
     "1: item 1: field \"think_time\": -1 is negative"},
    {TRACE_AGENT, "{\"requests\": [3]}",
     "1: item 1: field \"requests\": has an element that is not an object"},
    {TRACE_AGENT,
     "{\"requests\":[{\"requests\":[{\"requests\":[{\"requests\":[{\"requests\":[{\"requests\":"
     "[]}]}]}]}]}]}",
     "1: item 1: field \"requests\": subagents are nested too deep"},
    /* workloads */
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": {}, \"output\": 1}",
     "1: field \"prompt\": is not a list"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": 0, \"output\": 1}",
     "1: field \"prompt\": 0: a prompt has at least one token"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": -7, \"output\": 1}",
     "1: field \"prompt\": -7 is negative"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": 1.5, \"output\": 1}",
     "1: field \"prompt\": 1.5 is not a whole number"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [1, 2], \"output\": 1}",
     "1: field \"prompt\": is not made of [content, tokens]"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [[1, 2, 3]], \"output\": 1}",
     "1: field \"prompt\": is not made of [content, tokens]"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [[1, 2]], \"more\": [[1, 2]], \"output\": 1}",
     "1: field \"more\": there is already a prompt"},
    {TRACE_QUIRE,
     "{\"time\": 0, \"prompt\": [[1, 2]], \"output\": 1, \"id_block_size\": 4294967296}",
     "1: field \"id_block_size\": is out of range"},
    {TRACE_QUIRE, "{\"time\": 0, \"output\": 1}",
     "1: field \"prompt\": is missing, and so is \"more\""},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [], \"output\": 1}",
     "1: field \"prompt\": 0: a prompt has at least one token"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [[1, 0]], \"output\": 1}",
     "1: field \"prompt\": a part of it has no tokens"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [[1]], \"output\": 1}",
     "1: field \"prompt\": is not made of [content, tokens]"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [[1, 2147483647], [2, 1]], \"output\": 1}",
     "1: the prompt has more than 2147483647 tokens"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [[1, 2147483647]], \"output\": 1}",
     "1: prompt and output have more than 2147483647 tokens"},
    {TRACE_QUIRE, "{\"time\": 0, \"session\": 1, \"more\": [[1, 1]], \"output\": 1}",
     "1: field \"more\": there is no earlier turn"},
    {TRACE_QUIRE, "{\"think\": 1, \"session\": 1, \"prompt\": [[1, 1]], \"output\": 1}",
     "1: field \"think\": there is no earlier turn"},
    {TRACE_QUIRE, "{\"prompt\": [[1, 1]], \"output\": 1}", "1: field \"time\": is missing"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [[1, 1]]}", "1: field \"output\": is missing"},
    {TRACE_QUIRE, "{\"time\": 0, \"prompt\": [[1, 1]], \"output\": 1, \"last\": 1}",
     "1: field \"last\": is neither true nor false"},
    {TRACE_QUIRE, "{\"time\": 0, \"after\": [3], \"prompt\": [[1, 1]], \"output\": 1}",
     "1: field \"after\": no earlier request has this id"},
};

static void every_broken_record_says_where(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        kit_expect_bad(cases[i].text, cases[i].format, cases[i].message);
}

/* The same record among good ones: it alone is missing. */
static void broken_records_can_be_passed_over(void **state)
{
    (void)state;
    static const char *const good[] = {
        [TRACE_MOONCAKE] = "{\"timestamp\": 0, " LENGTHS "}\n",
        [TRACE_BAILIAN] = "{\"chat_id\": 3, \"timestamp\": 0, " LENGTHS "}\n",
        [TRACE_QUIRE] = "{\"time\": 0, \"prompt\": [[1, 1]], \"output\": 1}\n",
        [TRACE_AGENT] = "{\"requests\": [{\"t\": 0, \"in\": 5, \"out\": 1}]}\n",
        [TRACE_AZURE] = "2023-11-16 18:15:46,1,1\n",
        [TRACE_BURSTGPT] = "5,x,1,1\n",
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *record = cases[i].text;
        const char *head = "";
        char text[1024];
        if (cases[i].format == TRACE_SHAREGPT)
            continue;
        if (cases[i].format == TRACE_AZURE || cases[i].format == TRACE_BURSTGPT) {
            head = cases[i].format == TRACE_AZURE ? AZURE : BURST;
            record += strlen(head);
        }
        snprintf(text, sizeof text, "%s%s%s\n%s", head, good[cases[i].format], record,
                 good[cases[i].format]);
        trace_options options = {.format = cases[i].format, .skip_bad = true};
        trace_reader *reader = kit_open(text, strlen(text), &options);
        kit_next(reader);
        trace_request request = kit_next(reader);
        assert_int_equal(request.number, 1);
        assert_int_equal(trace_num_bad(reader), 1);
        kit_expect_end(reader);
    }
}

/* What is no JSON ends a document, for nobody knows where its next part begins. */
static void a_broken_document_ends(void **state)
{
    (void)state;
    static const char text[] = "[{\"conversations\": []},\n {\"conversations\": oops}, {}]";
    trace_reader *reader = kit_open(text, sizeof text - 1, &(trace_options){.skip_bad = true});
    kit_expect_error(reader, "2: invalid JSON: expected a value");
}

/* One that was refused is not there to wait for, whatever was wrong with it. */
static void nobody_waits_for_a_refused_request(void **state)
{
    (void)state;
    static const char text[] =
        "{\"quire_workload\": 1}\n"
        "{\"time\": 0, \"session\": 1, \"id\": 1, \"prompt\": [[1, 2147483647]], \"output\": 1}\n"
        "{\"after\": [1], \"prompt\": [[1, 1]], \"output\": 1}\n";
    trace_reader *reader = kit_open(text, sizeof text - 1, &(trace_options){.skip_bad = true});
    trace_request request;
    assert_int_equal(trace_next(reader, &request), 0);
    assert_int_equal(trace_num_bad(reader), 2);
    trace_close(reader);
}

static void a_turn_before_the_one_before_is_refused(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text("{\"session_id\": 1, \"timestamp\": 9, " LENGTHS "}\n"
                                         "{\"session_id\": 1, \"timestamp\": 8, " LENGTHS "}\n",
                                         TRACE_DETECT);
    kit_next(reader);
    kit_expect_error(reader, "2: field \"timestamp\": is earlier than that of the turn before");
}

static void expect_refused(const char *text, trace_format format, const char *message)
{
    input *in = input_of_bytes(text, strlen(text));
    assert_null(trace_open_input(in, &(trace_options){.format = format}));
    assert_string_equal(failure(), message);
}

static void what_is_no_trace_is_refused(void **state)
{
    (void)state;
    static const char unknown[] = "bytes: unknown trace format; --format names one";
    expect_refused("", TRACE_DETECT, "bytes: the file is empty");
    expect_refused("hello\n", TRACE_DETECT, unknown);
    expect_refused("{\"a\": 1}", TRACE_DETECT, unknown);
    expect_refused("a,b,c\n1,2,3\n", TRACE_DETECT, unknown);
    assert_null(trace_open("no/such/trace", NULL));
    assert_string_equal(failure(), "no/such/trace: cannot be opened: No such file or directory");
    kit_expect_bad("Timestamp,Model\n1,2\n", TRACE_BURSTGPT,
                   "1: the first line has no column \"Request tokens\"");
}

static void formats_have_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "mooncake",       "bailian", "azure",     "burstgpt", "sharegpt", "agent",   "quire",
        "mooncake-delta", "dynamo",  "recording", "lmcache",  "otel",     "vllm-log"};
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(trace_format_of(names[i]), i + 1);
        assert_string_equal(trace_format_name((trace_format)(i + 1)), names[i]);
    }
    assert_int_equal(trace_format_of("nothing"), TRACE_DETECT);
}

/* Rows of numbers that do not pack well. */
static size_t make_text(char *text, size_t room, trace_format format)
{
    static const char *const forms[] = {
        [TRACE_MOONCAKE] = "{\"timestamp\": %llu, " LENGTHS "}\n",
        [TRACE_AGENT] = "{\"requests\": [{\"t\": %llu, \"in\": 5, \"out\": 5}]}\n",
    };
    uint64_t random = 1;
    size_t n = 0;
    while (n + 100 < room) {
        unsigned long long stamp = unit_random(&random) >> 20;
        n += (size_t)snprintf(text + n, room - n, forms[format], stamp);
    }
    return n;
}

static void expect_cut_off(const void *bytes, size_t num_bytes)
{
    fail_with("%s", "");
    trace_request request;
    trace_options options = {.skip_bad = true};
    trace_reader *reader = trace_open_input(input_of_bytes(bytes, num_bytes), &options);
    int more = reader != NULL ? 1 : -1;
    while (more == 1)
        more = trace_next(reader, &request);
    assert_int_equal(more, -1);
    assert_string_equal(reader != NULL ? trace_error(reader) : failure(),
                        "bytes: is truncated: its compressed data ends too early");
    trace_close(reader);
}

/* However far it comes, a trace that is cut off ends with an error and not as a shorter one. */
static void cut_off_archives_are_errors(void **state)
{
    (void)state;
    enum { BYTES = 400000, SHORT = 2000 };
    static const trace_format formats[] = {TRACE_MOONCAKE, TRACE_AGENT};
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (int kind = 0; kind < 4; kind++) {
        size_t n = make_text(text, BYTES, formats[kind / 2]);
        size_t packed_bytes;
        void *packed = kind % 2 == 0 ? kit_pack_zstd(text, n, 0, &packed_bytes)
                                     : kit_pack_gzip(text, n, &packed_bytes);
        for (size_t cut = 4; cut < packed_bytes; cut += cut < SHORT ? 7 : 4999)
            expect_cut_off(packed, cut);
        expect_cut_off(packed, packed_bytes - 1);
        free(packed);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_broken_record_says_where),
        cmocka_unit_test(broken_records_can_be_passed_over),
        cmocka_unit_test(a_broken_document_ends),
        cmocka_unit_test(nobody_waits_for_a_refused_request),
        cmocka_unit_test(a_turn_before_the_one_before_is_refused),
        cmocka_unit_test(what_is_no_trace_is_refused),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(cut_off_archives_are_errors),
    };
    return cmocka_run_group_tests_name("cli_trace_bad", tests, NULL, NULL);
}

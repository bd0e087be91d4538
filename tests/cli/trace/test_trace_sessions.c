/* cli/trace/test_trace_sessions.c - traces of sessions: ShareGPT's conversations, and agents,
 * whose files
 * may lie in a tar. */
#include <math.h>

#include "trace/tar.h"
#include "trace_kit.h"

/* ---- ShareGPT -------------------------------------------------------------- */

static void answers_are_requests(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        "[{\"id\": \"a\", \"conversations\": [\n"
        "  {\"from\": \"system\", \"value\": \"12345678\"},\n"
        "  {\"from\": \"human\", \"value\": \"12345\"},\n"
        "  {\"from\": \"gpt\", \"value\": \"123456789012\"},\n"
        "  {\"value\": \"1\", \"from\": \"human\"},\n"
        "  {\"from\": \"gpt\", \"value\": \"\", \"markdown\": null}]},\n"
        " {\"id\": \"only asked\", \"conversations\": [{\"from\": \"human\", \"value\": \"x\"}]},\n"
        " {\"id\": \"only said\", \"conversations\": [{\"from\": \"gpt\", \"value\": \"x\"}]},\n"
        " {\"id\": \"b\", \"conversations\": [\n"
        "  {\"from\": \"system\", \"value\": \"12345678\"},\n"
        "  {\"from\": \"human\", \"value\": \"other\"},\n"
        "  {\"from\": \"gpt\", \"value\": \"\\u00e9\\u00e9\\u00e9\"}]}]\n",
        TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_SHAREGPT);
    trace_request request = kit_next(reader);
    assert_int_equal(request.line, 1);
    assert_int_equal(request.num_segments, 2);
    assert_int_equal(request.num_prompt_tokens, 2 + 2);
    assert_int_equal(request.num_output_tokens, 3);
    assert_int_equal(request.session, 1);
    assert_true(request.is_closed_loop);
    assert_false(request.is_last_turn);
    uint64_t head = request.prompt[0].content;
    uint64_t output = request.output_content;
    request = kit_next(reader);
    assert_int_equal(request.turn, 1);
    assert_int_equal(request.num_prompt_tokens, 4 + 3 + 1);
    assert_true(request.prompt[0].content == head);
    assert_true(request.prompt[2].content == output);
    assert_int_equal(request.num_output_tokens, 1); /* an empty answer */
    assert_true(request.is_last_turn);
    request = kit_next(reader);
    assert_int_equal(request.session, 2);
    assert_true(request.prompt[0].content == head); /* the same words */
    assert_int_equal(request.num_output_tokens, 2); /* six bytes */
    assert_true(request.time_s == 1);               /* sessions start one second apart */
    assert_int_equal(request.line, 9);
    kit_expect_end(reader);
}

static void conversations_may_follow_each_other(void **state)
{
    (void)state;
    static const char text[] =
        "\xef\xbb\xbf{\"conversations\": [{\"role\": \"user\", \"content\": \"a\"}, "
        "{\"role\": \"assistant\", \"content\": \"b\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": [1]}, {\"role\": \"user\", \"content\": "
        "\"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}\n";
    trace_reader *reader = kit_open(text, sizeof text - 1, &(trace_options){.session_gap_s = 0.25});
    kit_next(reader);
    trace_request request = kit_next(reader);
    assert_int_equal(request.num_prompt_tokens, 1);
    assert_true(request.time_s == 0.25);
    kit_expect_end(reader);
}

/* ---- agents ---------------------------------------------------------------- */

static const char session_text[] =
    "{\"id\":\"one\",\"block_size\":64,\"hash_id_scope\":\"local\",\"tool_tokens\":100,"
    "\"requests\":["
    "{\"t\":0.0,\"type\":\"n\",\"in\":150,\"out\":10,\"hash_ids\":[1,2],\"api_time\":4.0},"
    "{\"t\":15.0,\"type\":\"s\",\"in\":192,\"out\":20,\"hash_ids\":[1,2,3],\"think_time\":11.5},"
    "{\"t\":35.0,\"type\":\"s\",\"in\":200,\"out\":20,\"hash_ids\":[1,2,3,4],\"api_time\":5},"
    "{\"t\":36.0,\"type\":\"s\",\"in\":64,\"out\":20,\"hash_ids\":[1]}],"
    "\"totals\":{\"x\":[1]}}";

static void expect_session(trace_reader *reader, uint64_t session, double start_s)
{
    static const struct {
        double think_s;
        double time_s;
        uint32_t num_segments;
    } expected[] = {
        {0, 0, 3},       /* two ids, and 22 tokens without */
        {11.5, 11.5, 3}, /* what the trace says */
        {20, 31.5, 4},   /* 35 - 15: nothing else is known */
        {0, 31.5, 1},    /* 36 - 35 - 5: not before its end */
    };
    for (uint32_t i = 0; i < COUNT(expected); i++) {
        trace_request request = kit_next(reader);
        assert_int_equal(request.session, session);
        assert_int_equal(request.turn, i);
        assert_true(request.is_closed_loop);
        assert_int_equal(request.is_last_turn, i + 1 == COUNT(expected));
        assert_true(fabs(request.think_s - expected[i].think_s) < 1e-9);
        assert_true(fabs(request.time_s - start_s - expected[i].time_s) < 1e-9);
        assert_int_equal(request.num_segments, expected[i].num_segments);
        assert_int_equal(request.id_block_size, 64);
        assert_int_equal(request.num_after, 0);
    }
}

static void think_times_come_from_the_trace(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(session_text, TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_AGENT);
    expect_session(reader, 1, 0);
    kit_expect_end(reader);
}

/* A session's ids are its own, or everybody's. */
static void ids_have_a_scope(void **state)
{
    (void)state;
    for (int is_global = 0; is_global < 2; is_global++) {
        char text[1024];
        const char *scope = is_global ? "global" : "local";
        int n = 0;
        for (int i = 0; i < 2; i++)
            n += snprintf(text + n, sizeof text - (size_t)n,
                          "{\"requests\":[{\"t\":0,\"in\":64,\"out\":1,\"hash_ids\":[7]},"
                          "{\"t\":1,\"in\":64,\"out\":1,\"hash_ids\":[7]}],"
                          "\"block_size\":64,\"hash_id_scope\":\"%s\"}\n",
                          scope);
        trace_reader *reader = kit_open_text(text, TRACE_DETECT);
        uint64_t first = kit_next(reader).prompt[0].content;
        assert_true(kit_next(reader).prompt[0].content == first);
        assert_int_equal(kit_next(reader).prompt[0].content == first, is_global);
        kit_next(reader);
        kit_expect_end(reader);
    }
}

/* turn 0 ─┬─► helpers a (two turns) and b ─► turn 1 ─► turn 2 */
static void sessions_wait_for_their_helpers(void **state)
{
    (void)state;
    trace_reader *reader =
        kit_open_text("{\"id\":\"p\",\"block_size\":4,\"requests\":["
                      "{\"t\":0,\"in\":4,\"out\":2,\"hash_ids\":[1],\"api_time\":1},"
                      "{\"t\":1.5,\"type\":\"subagent\",\"agent_id\":\"a\",\"requests\":["
                      "{\"t\":1.5,\"in\":4,\"out\":1,\"hash_ids\":[1],\"api_time\":1},"
                      "{\"t\":9,\"in\":8,\"out\":1,\"hash_ids\":[1,2],\"think_time\":3}]},"
                      "{\"t\":1.5,\"type\":\"subagent\",\"requests\":[{\"t\":2,\"in\":4,\"out\":1,"
                      "\"hash_ids\":[5]}]},"
                      "{\"t\":20,\"in\":8,\"out\":2,\"hash_ids\":[1,7],\"think_time\":0.5},"
                      "{\"t\":30,\"in\":8,\"out\":2,\"hash_ids\":[1,7],\"think_time\":1}]}",
                      TRACE_DETECT);
    static const struct {
        uint64_t session;
        uint32_t turn;
        double think_s;
        double time_s;
        bool is_last;
        uint32_t num_after;
        uint64_t after[3];
    } expected[] = {
        {1, 0, 0, 0, false, 0, {0}},         {2, 0, 0.5, 0.5, false, 1, {0}},
        {2, 1, 3, 3.5, true, 0, {0}},        {3, 0, 1, 1, true, 1, {0}},
        {1, 1, 0.5, 4, false, 3, {0, 3, 2}}, {1, 2, 1, 5, true, 0, {0}},
    };
    uint64_t shared = 0;
    for (uint32_t i = 0; i < COUNT(expected); i++) {
        trace_request request = kit_next(reader);
        assert_int_equal(request.number, i);
        assert_int_equal(request.session, expected[i].session);
        assert_int_equal(request.turn, expected[i].turn);
        assert_int_equal(request.is_last_turn, expected[i].is_last);
        assert_true(fabs(request.think_s - expected[i].think_s) < 1e-9);
        assert_true(fabs(request.time_s - expected[i].time_s) < 1e-9);
        assert_int_equal(request.num_after, expected[i].num_after);
        for (uint32_t w = 0; w < request.num_after; w++)
            assert_int_equal(request.after[w], expected[i].after[w]);
        if (i == 0)
            shared = request.prompt[0].content;
        assert_int_equal(request.prompt[0].content == shared, i != 3);
    }
    kit_expect_end(reader);
}

/* ---- archives -------------------------------------------------------------- */

typedef struct archive {
    char bytes[16 * TRACE_TAR_BLOCK];
    size_t n;
} archive;

static void add_entry(archive *tar, const char *name, char kind, const char *text)
{
    char *head = tar->bytes + tar->n;
    size_t length = strlen(text);
    snprintf(head, 100, "%s", name);
    snprintf(head + 100, 8, "%07o", 0644);
    snprintf(head + 124, 12, "%011o", (unsigned)length);
    memcpy(head + 148, "        ", 8);
    head[156] = kind;
    memcpy(head + 257, "ustar", 5);
    unsigned sum = 0;
    for (int i = 0; i < TRACE_TAR_BLOCK; i++)
        sum += (unsigned char)head[i];
    snprintf(head + 148, 8, "%06o", sum);
    memcpy(head + TRACE_TAR_BLOCK, text, length);
    tar->n += TRACE_TAR_BLOCK + (length + TRACE_TAR_BLOCK - 1) / TRACE_TAR_BLOCK * TRACE_TAR_BLOCK;
    assert_true(tar->n + 2 * TRACE_TAR_BLOCK <= sizeof tar->bytes);
}

static void files_of_an_archive_are_sessions(void **state)
{
    (void)state;
    archive tar = {.n = 0};
    add_entry(&tar, "folder/", '5', "");
    add_entry(&tar, "folder/one.json", '0', session_text);
    add_entry(&tar, "folder/README.md", '0', "no session");
    add_entry(&tar, "folder/._two.json", '0', "left by a file system");
    add_entry(&tar, "folder/two.json", 0, session_text);
    tar.n += 2 * TRACE_TAR_BLOCK;
    size_t n;
    void *packed = kit_pack_zstd(tar.bytes, tar.n, 27, &n);
    trace_reader *reader = kit_open(packed, n, NULL);
    assert_int_equal(trace_reader_format(reader), TRACE_AGENT);
    expect_session(reader, 1, 0);
    expect_session(reader, 2, 1);
    kit_expect_end(reader);
    free(packed);
}

static void a_broken_file_spoils_only_itself(void **state)
{
    (void)state;
    archive tar = {.n = 0};
    add_entry(&tar, "bad.json", '0', "{\"requests\":[{\"t\":0,,");
    add_entry(&tar, "good.json", '0', session_text);
    tar.n += 2 * TRACE_TAR_BLOCK;
    trace_reader *reader = kit_open(tar.bytes, tar.n, NULL);
    kit_expect_error(reader, "bad.json:1: invalid JSON: expected a string");
    reader = kit_open(tar.bytes, tar.n, &(trace_options){.skip_bad = true});
    expect_session(reader, 1, 0);
    assert_int_equal(trace_num_bad(reader), 1);
    kit_expect_end(reader);
}

static void damaged_archives_are_errors(void **state)
{
    (void)state;
    archive tar = {.n = 0};
    add_entry(&tar, "one.json", '0', session_text);
    add_entry(&tar, "two.json", '0', session_text);
    trace_options skip = {.skip_bad = true};
    size_t second = tar.n / 2;
    trace_reader *reader = kit_open(tar.bytes, second + 100, &skip);
    expect_session(reader, 1, 0);
    kit_expect_error(reader, "one.json:0: the archive ends too early");
    reader = kit_open(tar.bytes, second + TRACE_TAR_BLOCK + 100, &skip);
    expect_session(reader, 1, 0);
    kit_expect_error(reader, "two.json:0: the archive ends too early");
    tar.bytes[second] ^= 1;
    reader = kit_open(tar.bytes, tar.n, &skip);
    expect_session(reader, 1, 0);
    kit_expect_error(reader, "one.json:0: the archive is damaged: no header where one is due");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_requests),
        cmocka_unit_test(conversations_may_follow_each_other),
        cmocka_unit_test(think_times_come_from_the_trace),
        cmocka_unit_test(ids_have_a_scope),
        cmocka_unit_test(sessions_wait_for_their_helpers),
        cmocka_unit_test(files_of_an_archive_are_sessions),
        cmocka_unit_test(a_broken_file_spoils_only_itself),
        cmocka_unit_test(damaged_archives_are_errors),
    };
    return cmocka_run_group_tests_name("cli_trace_sessions", tests, NULL, NULL);
}

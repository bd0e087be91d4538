/* cli/trace/test_trace_known.c - the figures that are known of public traces. They lie beside the
 * checkout, in ../shared/traces; where they do not, the test is skipped. */
#include <math.h>
#include <unistd.h>

#include "output/failure.h"
#include "trace_kit.h"

#define TRACES QUIRE_SHARED "/traces/"

typedef struct figures {
    kit_cache cache;
    double last_s;
    uint64_t num_sessions;
} figures;

static figures read_trace(const char *path, trace_format format, uint32_t block_size)
{
    figures f = {.cache = kit_cache_create(block_size)};
    trace_reader *reader = trace_open(path, NULL);
    trace_request request;
    int more;
    if (reader == NULL)
        fail_msg("%s", failure());
    assert_int_equal(trace_reader_format(reader), format);
    while ((more = trace_next(reader, &request)) == 1) {
        kit_cache_run(&f.cache, &request, true, false);
        f.last_s = request.time_s;
        f.num_sessions += request.is_closed_loop && request.turn == 0;
    }
    if (more < 0)
        fail_msg("%s", trace_error(reader));
    /* An archive ends before its file does: what is behind the last member is not unpacked. */
    assert_in_range(trace_position(reader), trace_size(reader) - 64, trace_size(reader));
    trace_close(reader);
    return f;
}

static void mooncake_conversation(void **state)
{
    (void)state;
    figures f = read_trace(TRACES "mooncake_conversation.jsonl.zst", TRACE_MOONCAKE, 512);
    assert_int_equal(f.cache.num_requests, 12031);
    assert_int_equal(f.cache.num_blocks, 288500);
    assert_int_equal(f.cache.num_keys, 182790);
    assert_int_equal(f.cache.num_hit_blocks, 105710); /* 36.6 % */
    assert_int_equal(f.cache.num_prompt_tokens / f.cache.num_requests, 12035);
    assert_true(fabs((double)f.cache.num_output_tokens / 12031 - 343) < 0.5);
    double by_token = (double)f.cache.num_hit_tokens / (double)f.cache.num_prompt_tokens;
    assert_true(fabs(by_token - 0.374) < 0.0005);
    kit_cache_destroy(&f.cache);
}

static void azure_conversation(void **state)
{
    (void)state;
    figures f = read_trace(TRACES "azure2023_conv.csv.zst", TRACE_AZURE, 16);
    assert_int_equal(f.cache.num_requests, 19366);
    assert_true(fabs((double)f.cache.num_prompt_tokens / 19366 - 1155) < 0.5);
    assert_true(fabs((double)f.cache.num_output_tokens / 19366 - 211) < 0.5);
    assert_int_equal(f.cache.num_hit_tokens, 0);
    assert_true(f.last_s > 3500 && f.last_s < 3600);
    kit_cache_destroy(&f.cache);
}

static void claude_code_sessions(void **state)
{
    (void)state;
    figures f = read_trace(TRACES "claude_code_sessions.tar.zst", TRACE_AGENT, 64);
    assert_int_equal(f.cache.num_requests, 1734);
    assert_int_equal(f.num_sessions, 40);
    assert_true((double)f.cache.num_hit_blocks > 0.9 * (double)f.cache.num_blocks);
    kit_cache_destroy(&f.cache);
}

int main(void)
{
    if (access(TRACES "mooncake_conversation.jsonl.zst", R_OK) != 0) {
        printf("skipped: no traces in %s\n", TRACES);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mooncake_conversation),
        cmocka_unit_test(azure_conversation),
        cmocka_unit_test(claude_code_sessions),
    };
    return cmocka_run_group_tests_name("cli_trace_known", tests, NULL, NULL);
}

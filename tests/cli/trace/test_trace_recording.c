/* cli/trace/test_trace_recording.c - recordings as traces: lengths, contents and times of requests,
 * parts, recordings that were cut off, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "output/failure.h"
#include "trace_kit.h"

#define HEADER(part)                                                                               \
    "{\"type\":\"header\",\"format\":\"quire.recording.v1\",\"part\":" #part                       \
    ",\"recording\":\"00112233445566778899aabbccddeeff\",\"time\":1000.5,\"t\":0,\"config\":{"     \
    "\"max_model_len\":64,\"hash_block_size\":4}}\n"
#define REQUEST(req, arrival, prompt, hashes)                                                      \
    "{\"type\":\"request\",\"t\":0,\"req\":" #req ",\"arrival\":" #arrival ",\"prompt\":" #prompt  \
    ",\"max_tokens\":9,\"hashes\":\"" hashes "\"}\n"
#define END(req, output, hashes)                                                                   \
    "{\"type\":\"end\",\"t\":0,\"req\":" #req ",\"reason\":\"stop\",\"output\":" #output           \
    ",\"hashes\":\"" hashes "\"}\n"
#define A "00000000000000aa"
#define B "00000000000000bb"
#define C "00000000000000cc"
#define D "00000000000000dd"
#define E "00000000000000ee"

static void requests_have_their_lengths_times_and_contents(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(HEADER(0) REQUEST(1, 0.25, 9, A B) REQUEST(2, 1.25, 6, A)
                                             END(2, 3, "") END(1, 5, ""),
                                         TRACE_DETECT);
    assert_int_equal(trace_reader_format(reader), TRACE_RECORDING);
    trace_request one = kit_next(reader); /* ends later than the other one */
    assert_int_equal(one.line, 2);
    assert_int_equal(one.num_prompt_tokens, 9);
    assert_int_equal(one.num_output_tokens, 5);
    assert_int_equal(one.id_block_size, 4);
    assert_int_equal(one.num_segments, 3);
    assert_true(one.time_s == 0);
    assert_false(one.is_closed_loop);
    uint64_t shared = one.prompt[0].content;
    trace_request two = kit_next(reader);
    assert_true(two.time_s == 1);
    assert_int_equal(two.num_output_tokens, 3);
    assert_true(two.prompt[0].content == shared && two.prompt[0].num_tokens == 4);
    assert_int_equal(two.prompt[1].num_tokens, 2);
    assert_true(trace_has_contents(reader));
    kit_expect_end(reader);
}

/* Request 1 has a prompt of 6 and an output of 7: block C is the end of the prompt and two tokens,
 * block D four more. Request 2 continues with all of it. */
static void a_prompt_continues_with_an_output(void **state)
{
    (void)state;
    trace_reader *reader =
        kit_open_text(HEADER(0) REQUEST(1, 0, 6, A) END(1, 7, C D) REQUEST(2, 1, 18, A C D E)
                          END(2, 1, "") REQUEST(3, 2, 6, A) END(3, 7, C D),
                      TRACE_DETECT);
    trace_request one = kit_next(reader);
    trace_segment prompt[2] = {one.prompt[0], one.prompt[1]};
    uint64_t output = one.output_content;
    assert_int_equal(one.num_segments, 2);
    assert_int_equal(one.num_prompt_tokens, 6);
    trace_request two = kit_next(reader);
    assert_int_equal(two.num_segments, 5); /* A, the tail, the output, E, a tail of its own */
    assert_memory_equal(&two.prompt[0], &prompt[0], sizeof prompt[0]);
    assert_memory_equal(&two.prompt[1], &prompt[1], sizeof prompt[1]);
    assert_true(two.prompt[2].content == output && two.prompt[2].num_tokens == 6);
    assert_int_equal(two.prompt[3].num_tokens, 4);
    assert_int_equal(two.prompt[4].num_tokens, 2);
    trace_request three = kit_next(reader); /* the same prompt and the same answer */
    assert_memory_equal(three.prompt, prompt, sizeof prompt);
    assert_true(three.output_content == output);
    kit_expect_end(reader);
}

static void a_recording_that_was_cut_off_counts_tokens(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        HEADER(0) REQUEST(1, 0, 5, A) REQUEST(2, 0, 5, A) REQUEST(
            3, 0, 5,
            A) "{\"type\":\"schedule\",\"t\":0,\"step\":1,\"reqs\":[1,2],\"tokens\":[5,3]}\n"
               "{\"type\":\"update\",\"t\":0,\"step\":1,\"sampled\":[1,0]}\n"
               "{\"type\":\"schedule\",\"t\":0,\"step\":2}\n"
               "{\"type\":\"schedule\",\"t\":0,\"step\":3}\n"
               "{\"type\":\"update\",\"t\":0,\"step\":2}\n"
               "{\"type\":\"update\",\"t\":0,\"step\":3}\n",
        TRACE_DETECT);
    assert_int_equal(kit_next(reader).num_output_tokens, 3);
    assert_int_equal(kit_next(reader).num_output_tokens, 2);
    assert_int_equal(kit_next(reader).num_output_tokens, 1); /* none is read as 1 */
    kit_expect_end(reader);
}

static void sessions_and_priorities_are_read(void **state)
{
    (void)state;
    trace_reader *reader = kit_open_text(
        HEADER(0) "{\"type\":\"request\",\"t\":0,\"req\":1,\"arrival\":0,\"prompt\":3,"
                  "\"max_tokens\":1,\"priority\":-2,\"session\":\"" A "\"}\n"
                  "{\"type\":\"request\",\"t\":0,\"req\":4,\"arrival\":0,\"prompt\":3,"
                  "\"max_tokens\":1,\"session\":\"" A "\"}\n",
        TRACE_DETECT);
    trace_request one = kit_next(reader);
    assert_int_equal(one.priority, -2);
    assert_true(one.session != 0 && one.turn == 0);
    trace_request two = kit_next(reader);
    assert_true(two.session == one.session && two.turn == 1);
    kit_expect_end(reader);
}

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* cut: bytes that the file lacks at its end. */
static void write_part(const char *name, const char *text, size_t cut)
{
    size_t packed_bytes;
    void *packed = kit_pack_zstd(text, strlen(text), 0, &packed_bytes);
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(packed, 1, packed_bytes - cut, file), packed_bytes - cut);
    (void)fclose(file);
    free(packed);
}

static void parts_are_one_trace(void **state)
{
    static const char *const names[] = {"r.0000.jsonl.zst", "r.0001.jsonl.zst", "r.0002.jsonl.zst"};
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/quire-trace-XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_part(names[0], HEADER(0) REQUEST(1, 0, 8, A B), 0);
    write_part(names[1], HEADER(1) REQUEST(2, 1, 8, A B) END(1, 4, C), 0);
    write_part(names[2], HEADER(2) END(2, 6, D), 3); /* the process was killed */
    char first[128];
    (void)snprintf(first, sizeof first, "%s", path_of(names[0]));
    const char *const paths[] = {first, folder};
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            write_part(names[2], HEADER(2) END(2, 6, D), 0);
        trace_reader *reader = trace_open(paths[i], &(trace_options){0});
        if (reader == NULL)
            fail_msg("%s", failure());
        trace_request one = kit_next(reader);
        assert_int_equal(one.num_output_tokens, 4);
        uint64_t content = one.prompt[0].content;
        trace_request two = kit_next(reader);
        assert_true(two.prompt[0].content == content);
        assert_true(two.time_s == 1);
        assert_int_equal(two.num_output_tokens,
                         6); /* all lines are there, the frame's end is not */
        kit_expect_end(reader);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(unlink(path_of(names[i])), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void invalid_lines_name_their_field(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } bad[] = {
        {REQUEST(1, 0, 5, A), "1: field \"type\": the first line is not a header"},
        {"{\"type\":\"header\",\"format\":\"quire.recording.v2\",\"recording\":\"\"}",
         "1: field \"format\": is not quire.recording.v1"},
        {HEADER(0) "[1]", "2: field \"type\": the line is not an object"},
        {HEADER(0) REQUEST(1, 0, 0, ""), "2: field \"prompt\": 0 is not a number from 1 to "
                                         "2147483647"},
        {HEADER(0) REQUEST(1, 0, -4, ""), "2: field \"prompt\": is not a whole number, 0 or more"},
        {HEADER(0) REQUEST(1, 0, 9, A),
         "2: field \"hashes\": 1 hashes of 4 tokens do not fit a prompt of 9"},
        {HEADER(0) REQUEST(1, 0, 4, "00aa"),
         "2: field \"hashes\": is not 16 hex digits for each hash"},
        {HEADER(0) REQUEST(1, 0, 4, "00000000000000xx"),
         "2: field \"hashes\": is not 16 hex digits for each hash"},
        {HEADER(0) REQUEST(1, 1e300, 4, A), "2: field \"arrival\": is too large"},
        {HEADER(0) REQUEST(1, "x", 4, A), "2: field \"arrival\": is not a number"},
        {HEADER(0) REQUEST(2, 0, 4, A) REQUEST(2, 0, 4, A),
         "3: field \"req\": 2 is not larger than that of the request before"},
        {HEADER(0) REQUEST(1, 0, 4, A) END(1, 4000000000, ""),
         "3: field \"output\": 4000000000 is more than 2147483647"},
        {HEADER(0) "{\"type\":\"request\",\"req\":1,\"prompt\":3,\"priority\":1e10}",
         "2: field \"priority\": is not a whole number of 32 bits"},
        {HEADER(0) "{\"type\":\"schedule\",\"reqs\":3}", "2: field \"reqs\": is not a list"},
        {HEADER(0) "{\"type\":\"end\",\"reason\":\"why\"}",
         "2: field \"reason\": is not a known reason"},
        {HEADER(0) "{\"type\":3}", "2: field \"type\": is not a string"},
        {"{\"type\":\"header\",\"recording\":7}", "1: field \"recording\": is not a string"},
        {"{\"type\":\"header\",\"recording\":\"\",\"config\":7}",
         "1: field \"config\": is not an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        kit_expect_bad(bad[i].text, TRACE_RECORDING, bad[i].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_have_their_lengths_times_and_contents),
        cmocka_unit_test(a_prompt_continues_with_an_output),
        cmocka_unit_test(a_recording_that_was_cut_off_counts_tokens),
        cmocka_unit_test(sessions_and_priorities_are_read),
        cmocka_unit_test(parts_are_one_trace),
        cmocka_unit_test(invalid_lines_name_their_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cli/trace/test_input.c - lines and bytes of plain and packed files, cut off and damaged ones
 * too. */
#include "output/failure.h"
#include "trace/input.h"
#include "trace_kit.h"

#include <unistd.h>

static void expect_lines(input *in, const char *const *lines, size_t num_lines)
{
    char *line;
    size_t length;
    for (size_t i = 0; i < num_lines; i++) {
        assert_int_equal(input_line(in, &line, &length), 1);
        assert_string_equal(line, lines[i]);
        assert_int_equal(length, strlen(lines[i]));
        assert_int_equal(input_line_number(in), i + 1);
    }
    assert_int_equal(input_line(in, &line, &length), 0);
    assert_int_equal(input_line(in, &line, &length), 0);
    assert_null(input_error(in));
    input_close(in);
}

static void lines_end_in_many_ways(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf"
                               "first\r\n\nthird\n\r\nlast";
    static const char *const lines[] = {"first", "", "third", "", "last"};
    expect_lines(input_of_bytes(text, sizeof text - 1), lines, COUNT(lines));
}

static void small_files_are_files(void **state)
{
    (void)state;
    static const char *const one[] = {"a"};
    static const char *const blank[] = {""};
    expect_lines(input_of_bytes("", 0), NULL, 0);
    expect_lines(input_of_bytes("a", 1), one, 1);
    expect_lines(input_of_bytes("a\n", 2), one, 1);
    expect_lines(input_of_bytes("\n", 1), blank, 1);
}

/* Wherever a newline stands, also where the buffer was filled up to. */
static void newlines_stand_anywhere(void **state)
{
    (void)state;
    enum { MOST = 10000 };
    char *text = malloc(MOST + 3);
    assert_non_null(text);
    for (size_t n = 0; n <= MOST; n++) {
        memset(text, 'x', n);
        memcpy(text + n, "\ny", 3);
        input *in = input_of_bytes(text, n + 2);
        char *line;
        size_t length;
        assert_int_equal(input_line(in, &line, &length), 1);
        assert_int_equal(length, n);
        assert_int_equal(input_line(in, &line, &length), 1);
        assert_string_equal(line, "y");
        input_close(in);
    }
    free(text);
}

/* Some lines longer than the buffer's first size, with a number in front. */
static char *make_text(size_t num_bytes)
{
    char *text = malloc(num_bytes + 1);
    uint64_t random = 5;
    assert_non_null(text);
    for (size_t i = 0; i < num_bytes; i++)
        text[i] = (char)('a' + unit_random_below(&random, 20));
    for (size_t at = 7, step = 1; at < num_bytes; at += step, step = step * 3 % 20011 + 1)
        text[at] = '\n';
    text[num_bytes - 1] = '\n';
    text[num_bytes] = 0;
    return text;
}

/* What comes out line by line is the text; the number of bytes, or -1 after an error. */
static long read_all(input *in, const char *text)
{
    char *line;
    size_t length;
    size_t at = 0;
    int more;
    while ((more = input_line(in, &line, &length)) == 1) {
        assert_memory_equal(line, text + at, length);
        assert_int_equal(text[at + length], '\n');
        assert_int_equal(line[length], 0);
        at += length + 1;
    }
    assert_true((more < 0) == (input_error(in) != NULL));
    input_close(in);
    return more < 0 ? -1 : (long)at;
}

static void packed_files_are_unpacked(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    char *text = make_text(BYTES);
    size_t n;
    assert_int_equal(read_all(input_of_bytes(text, BYTES), text), BYTES);
    void *packed = kit_pack_zstd(text, BYTES, 0, &n);
    assert_int_equal(read_all(input_of_bytes(packed, n), text), BYTES);
    free(packed);
    packed = kit_pack_zstd(text, BYTES, 27, &n);
    assert_int_equal(read_all(input_of_bytes(packed, n), text), BYTES);
    free(packed);
    packed = kit_pack_gzip(text, BYTES, &n);
    assert_int_equal(read_all(input_of_bytes(packed, n), text), BYTES);
    free(packed);
    free(text);
}

/* Files packed apart and then put together are one file. */
static void frames_follow_each_other(void **state)
{
    (void)state;
    enum { BYTES = 40000, HALF = 15000 };
    char *text = make_text(BYTES);
    for (int kind = 0; kind < 2; kind++) {
        size_t n[2];
        unsigned char *parts[2];
        for (int i = 0; i < 2; i++) {
            const char *from = i == 0 ? text : text + HALF;
            size_t bytes = i == 0 ? HALF : BYTES - HALF;
            parts[i] = kind == 0 ? kit_pack_zstd(from, bytes, 0, &n[i])
                                 : kit_pack_gzip(from, bytes, &n[i]);
        }
        unsigned char *both = calloc(1, n[0] + n[1] + 512);
        assert_non_null(both);
        memcpy(both, parts[0], n[0]);
        memcpy(both + n[0], parts[1], n[1]);
        assert_int_equal(read_all(input_of_bytes(both, n[0] + n[1]), text), BYTES);
        if (kind == 1) /* zeros behind a gzip file fill up a tape */
            assert_int_equal(read_all(input_of_bytes(both, n[0] + n[1] + 512), text), BYTES);
        free(both);
        free(parts[0]);
        free(parts[1]);
    }
    free(text);
}

static void cut_off_files_are_errors(void **state)
{
    (void)state;
    enum { BYTES = 3000 };
    char *text = make_text(BYTES);
    for (int kind = 0; kind < 2; kind++) {
        size_t n;
        unsigned char *packed =
            kind == 0 ? kit_pack_zstd(text, BYTES, 0, &n) : kit_pack_gzip(text, BYTES, &n);
        for (size_t cut = kind == 0 ? 4 : 2; cut < n; cut++) {
            unsigned char *part = malloc(cut);
            assert_non_null(part);
            memcpy(part, packed, cut);
            assert_int_equal(read_all(input_of_bytes(part, cut), text), -1);
            free(part);
        }
        free(packed);
    }
    free(text);
}

/* Both have checksums; a byte of the header may say nothing of importance. */
static void damaged_files_are_errors(void **state)
{
    (void)state;
    enum { BYTES = 3000, HEADER = 20 };
    char *text = make_text(BYTES);
    for (int kind = 0; kind < 2; kind++) {
        size_t n;
        unsigned char *packed =
            kind == 0 ? kit_pack_zstd(text, BYTES, 0, &n) : kit_pack_gzip(text, BYTES, &n);
        for (size_t at = HEADER; at < n; at++) {
            packed[at] ^= 0x10;
            input *in = input_of_bytes(packed, n);
            char *line;
            size_t length;
            while (input_line(in, &line, &length) == 1)
                ;
            assert_non_null(input_error(in));
            input_close(in);
            packed[at] ^= 0x10;
        }
        free(packed);
    }
    free(text);
}

static void a_line_has_a_limit(void **state)
{
    (void)state;
    size_t num_bytes = (size_t)INPUT_MAX_LINE_BYTES + (1 << 20);
    char *text = malloc(num_bytes);
    size_t n;
    assert_non_null(text);
    memset(text, 'x', num_bytes);
    memcpy(text, "ok\n", 3);
    void *packed = kit_pack_zstd(text, num_bytes, 0, &n);
    free(text);
    input *in = input_of_bytes(packed, n);
    char *line;
    size_t length;
    assert_int_equal(input_line(in, &line, &length), 1);
    assert_string_equal(line, "ok");
    assert_int_equal(input_line(in, &line, &length), -1);
    assert_string_equal(input_error(in), "bytes: line 2 is longer than 64 MiB");
    input_close(in);
    free(packed);
}

static void bytes_ahead_are_seen_and_skipped(void **state)
{
    (void)state;
    enum { BYTES = 100000 };
    char *text = make_text(BYTES);
    input *in = input_of_bytes(text, BYTES);
    size_t at = 0;
    uint64_t random = 3;
    while (at < BYTES) {
        size_t want = unit_random_below(&random, 9000);
        size_t n = input_ahead(in, want);
        assert_true(n >= want || at + n == BYTES);
        assert_memory_equal(input_bytes(in), text + at, n);
        assert_int_equal(input_bytes(in)[n], 0);
        size_t step = n < 50 ? n : unit_random_below(&random, (uint32_t)n + 1);
        input_skip(in, step);
        at += step;
        assert_in_range(input_position(in), at - (at > 0), at); /* not what waits in the buffer */
    }
    assert_int_equal(input_ahead(in, 1), 0);
    assert_int_equal(input_position(in), BYTES);
    assert_int_equal(input_size(in), BYTES);
    input_close(in);
    free(text);
}

static void files_that_cannot_be_read_say_why(void **state)
{
    (void)state;
    assert_null(input_open("no/such/file"));
    assert_string_equal(failure(), "no/such/file: cannot be opened: No such file or directory");
    assert_null(input_open("/"));
    assert_string_equal(failure(), "/: cannot be read: Is a directory");
}

static void a_file_is_read_from_disk(void **state)
{
    (void)state;
    char path[] = "input_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "one\ntwo\n", 8), 8);
    close(fd);
    input *in = input_open(path);
    assert_non_null(in);
    assert_string_equal(input_name(in), path);
    assert_int_equal(input_size(in), 8);
    static const char *const lines[] = {"one", "two"};
    expect_lines(in, lines, COUNT(lines));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_in_many_ways),
        cmocka_unit_test(small_files_are_files),
        cmocka_unit_test(newlines_stand_anywhere),
        cmocka_unit_test(packed_files_are_unpacked),
        cmocka_unit_test(frames_follow_each_other),
        cmocka_unit_test(cut_off_files_are_errors),
        cmocka_unit_test(damaged_files_are_errors),
        cmocka_unit_test(a_line_has_a_limit),
        cmocka_unit_test(bytes_ahead_are_seen_and_skipped),
        cmocka_unit_test(files_that_cannot_be_read_say_why),
        cmocka_unit_test(a_file_is_read_from_disk),
    };
    return cmocka_run_group_tests_name("cli_input", tests, NULL, NULL);
}

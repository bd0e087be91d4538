/* cli/trace/test_trace_merge.c - folders and several traces as one: which files, in which order,
 * and what they share. */
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output/failure.h"
#include "trace/files.h"
#include "trace_kit.h"

enum { PATH_BYTES = 256 };

static char folder[PATH_BYTES];

static const char *path_of(const char *name)
{
    static char paths[4][2 * PATH_BYTES];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *write_bytes(const char *name, const void *bytes, size_t num_bytes)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, num_bytes, file), num_bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

static const char *write_text(const char *name, const char *text)
{
    return write_bytes(name, text, strlen(text));
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/quire-merge-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status;
    (void)kind;
    (void)at;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void write_row(char *text, size_t size, int time_ms, int id)
{
    size_t n = strlen(text);
    snprintf(text + n, size - n,
             "{\"timestamp\":%d,\"input_length\":512,\"output_length\":1,\"hash_ids\":[%d]}\n",
             time_ms, id);
}

/* A file of requests at these times, in ms, each with its time as id. -1 ends them. */
static const char *write_times(const char *name, const int *times)
{
    char text[2048] = "";
    for (; *times >= 0; times++)
        write_row(text, sizeof text, *times, *times);
    return write_text(name, text);
}

static trace_reader *open_all(const char *const *paths, uint32_t num)
{
    trace_reader *reader = trace_open_all(paths, num, &(trace_options){.format = TRACE_DETECT});
    if (reader == NULL)
        fail_msg("%s", failure());
    return reader;
}

static void expect_time(trace_reader *reader, double time_s, const char *file)
{
    trace_request request = kit_next(reader);
    assert_true(fabs(request.time_s - time_s) < 1e-9);
    assert_non_null(request.file);
    assert_string_equal(request.file, path_of(file));
}

/* ---- files -------------------------------------------------------------------- */

static void files_are_found_by_their_names(void **state)
{
    (void)state;
    static const char *const names[] = {"b.jsonl", "a.csv.gz",       "c.json.zst",
                                        "d.tar",   "sub/e.jsonl.xz", "sub/f.csv.bz2"};
    static const char *const others[] = {"README.md", ".hidden.jsonl", "jsonl",        ".jsonl",
                                         "x.gz",      "x.jsonl.lz4",   "y.jsonl.gz.gz"};
    assert_int_equal(mkdir(path_of("sub"), 0755), 0);
    assert_int_equal(symlink("..", path_of("sub/loop")), 0); /* links to folders are not followed */
    assert_int_equal(symlink("b.jsonl", path_of("link.jsonl")), 0);
    for (size_t i = 0; i < COUNT(names); i++)
        write_text(names[i], "");
    for (size_t i = 0; i < COUNT(others); i++)
        write_text(others[i], "");
    static const char *const found[] = {"a.csv.gz",   "b.jsonl",        "c.json.zst",   "d.tar",
                                        "link.jsonl", "sub/e.jsonl.xz", "sub/f.csv.bz2"};
    trace_files files;
    assert_true(trace_files_find(&files, folder));
    assert_int_equal(files.count, COUNT(found));
    for (size_t i = 0; i < COUNT(found); i++)
        assert_string_equal(files.paths[i], path_of(found[i]));
    trace_files_free(&files);
    assert_true(trace_is_folder(folder));
    assert_false(trace_is_folder(path_of("b.jsonl")));
    assert_false(trace_is_folder("-"));
}

static void folders_without_traces_are_refused(void **state)
{
    (void)state;
    write_text("README.md", "");
    assert_null(trace_open(folder, &(trace_options){0}));
    assert_non_null(strstr(failure(), "the folder has no trace (expected files that end with"));
    write_times("a.jsonl", (int[]){0, -1});
    write_text("b.csv", "Timestamp,Model,Request tokens,Response tokens\n5,x,7,8\n");
    assert_null(trace_open(folder, &(trace_options){0}));
    assert_non_null(strstr(failure(), "b.csv: is a trace of format burstgpt, but "));
    assert_non_null(strstr(failure(), "a.jsonl is mooncake (all files of a folder must"));
    write_bytes("b.csv",
                "\xfd"
                "7zXZ\0\0\4",
                8);
    assert_null(trace_open(folder, &(trace_options){0}));
    assert_non_null(strstr(failure(), "b.csv: is compressed with xz; decompress it first"));
    write_bytes("b.csv", "BZh91AY&SY", 10);
    assert_null(trace_open(folder, &(trace_options){0}));
    assert_non_null(strstr(failure(), "b.csv: is compressed with bzip2; decompress it first"));
}

/* ---- a folder is one trace -------------------------------------------------------- */

static void parts_follow_each_other_on_one_clock(void **state)
{
    (void)state;
    write_times("part-1.jsonl", (int[]){1000, 3000, -1});
    write_times("part-2.jsonl", (int[]){3000, 3500, -1});
    write_text("part-0.jsonl",
               "{\"schema\":\"dynamo.agentic_mooncake\",\"block_size\":64}\n"); /* no requests */
    trace_reader *reader = trace_open(folder, &(trace_options){0});
    assert_non_null(reader);
    assert_int_equal(trace_reader_format(reader), TRACE_MOONCAKE);
    expect_time(reader, 0, "part-1.jsonl");
    expect_time(reader, 2, "part-1.jsonl"); /* equal times: in the order of the names */
    expect_time(reader, 2, "part-2.jsonl");
    expect_time(reader, 2.5, "part-2.jsonl");
    assert_true(trace_size(reader) > 0 && trace_position(reader) <= trace_size(reader));
    kit_expect_end(reader);
}

/* The file whose name comes first begins last, and each overlaps the others. */
static void overlapping_files_are_ordered_by_time(void **state)
{
    (void)state;
    write_times("a.jsonl", (int[]){2000, 5000, 5000, -1});
    write_times("b.jsonl", (int[]){0, 3000, 9000, -1});
    write_times("c.jsonl", (int[]){1000, 5000, 6000, -1});
    trace_reader *reader = trace_open(folder, &(trace_options){0});
    assert_non_null(reader);
    expect_time(reader, 0, "b.jsonl");
    expect_time(reader, 1, "c.jsonl");
    expect_time(reader, 2, "a.jsonl");
    expect_time(reader, 3, "b.jsonl");
    expect_time(reader, 5, "a.jsonl");
    expect_time(reader, 5, "a.jsonl");
    expect_time(reader, 5, "c.jsonl");
    expect_time(reader, 6, "c.jsonl");
    expect_time(reader, 9, "b.jsonl");
    kit_expect_end(reader);
}

static void dates_have_one_clock(void **state)
{
    (void)state;
    write_text("code.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                           "2023-11-16 18:15:46.5,4808,10\n");
    write_text("conv.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                           "2023-11-16 18:15:45.25,374,44\n2023-11-16 18:15:47,5,4\n");
    trace_reader *reader = trace_open(folder, &(trace_options){0});
    assert_non_null(reader);
    expect_time(reader, 0, "conv.csv");
    expect_time(reader, 1.25, "code.csv");
    expect_time(reader, 1.75, "conv.csv");
    kit_expect_end(reader);
}

/* Ids, sessions and names of requests go on in the next file. */
static void sessions_go_on_in_the_next_file(void **state)
{
    (void)state;
    write_text("0.jsonl", "{\"session_id\":\"s\",\"request_id\":\"a\",\"timestamp\":0,"
                          "\"input_length\":512,\"output_length\":1,\"hash_ids\":[5]}\n");
    write_text("1.jsonl", "{\"session_id\":\"s\",\"delay\":700,\"input_length\":1024,"
                          "\"output_length\":1,\"hash_ids\":[5,6]}\n"
                          "{\"request_id\":\"b\",\"wait_for\":[\"a\"],\"delay\":100,"
                          "\"input_length\":512,\"output_length\":1,\"hash_ids\":[7]}\n");
    trace_reader *reader = trace_open(folder, &(trace_options){0});
    assert_non_null(reader);
    trace_request a = kit_next(reader);
    uint64_t content = a.prompt[0].content;
    uint64_t number = a.number;
    trace_request turn = kit_next(reader);
    assert_true(turn.session == a.session && turn.turn == 1 && turn.is_closed_loop);
    assert_true(fabs(turn.think_s - 0.7) < 1e-9);
    assert_true(turn.prompt[0].content == content);
    trace_request b = kit_next(reader);
    assert_int_equal(b.num_after, 1);
    assert_true(b.after[0] == number && b.number == 2);
    kit_expect_end(reader);
}

/* A turn is read while the turn before it, of another file, is not handed out yet. */
static void turns_of_overlapping_files_keep_their_order(void **state)
{
    (void)state;
    char text[512] = "";
    write_row(text, sizeof text, 0, 1);
    snprintf(text + strlen(text), sizeof text - strlen(text),
             "{\"session_id\":\"s\",\"timestamp\":5000,\"input_length\":1,\"output_length\":1}\n");
    write_text("0.jsonl", text);
    text[0] = 0;
    write_row(text, sizeof text, 0, 2);
    snprintf(text + strlen(text), sizeof text - strlen(text),
             "{\"session_id\":\"s\",\"delay\":700,\"input_length\":1,\"output_length\":1}\n");
    write_text("1.jsonl", text);
    trace_reader *reader = trace_open(folder, &(trace_options){0});
    assert_non_null(reader);
    expect_time(reader, 0, "0.jsonl");
    expect_time(reader, 0, "1.jsonl");
    expect_time(reader, 5, "0.jsonl");
    trace_request turn = kit_next(reader);
    assert_true(turn.turn == 1 && fabs(turn.time_s - 5.7) < 1e-9);
    kit_expect_end(reader);
}

/* A folder may have more files than a process may open. */
static void files_are_opened_when_they_are_due(void **state)
{
    (void)state;
    enum { NUM_FILES = 60 };
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int has_times = 0; has_times < 2; has_times++) {
        for (int i = 0; i < NUM_FILES; i++) {
            char name[32];
            snprintf(name, sizeof name, "%02d.json", i);
            if (has_times)
                write_times(name, (int[]){1000 * i, 1000 * i + 500, -1});
            else
                write_text(name, "{\"requests\":[{\"t\":0,\"in\":4,\"out\":1},{\"t\":1,\"in\":4,"
                                 "\"out\":1}]}");
        }
        struct rlimit few = {.rlim_cur = 20, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        trace_reader *reader = trace_open(folder, &(trace_options){0});
        if (reader == NULL)
            fail_msg("%s", failure());
        for (int i = 0; i < 2 * NUM_FILES; i++)
            kit_next(reader);
        kit_expect_end(reader);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    }
}

/* Files of sessions without times follow each other, as those of an archive do. */
static void files_without_times_follow_each_other(void **state)
{
    (void)state;
    static const char text[] = "{\"block_size\":4,\"requests\":[{\"t\":0,\"in\":4,\"out\":1,"
                               "\"hash_ids\":[1]},{\"t\":9,\"in\":4,\"out\":1,\"hash_ids\":[1]}]}";
    write_text("x.json", text);
    write_text("y.json", text);
    trace_reader *reader = trace_open(folder, &(trace_options){0});
    assert_non_null(reader);
    for (int i = 0; i < 2; i++) {
        trace_request first = kit_next(reader);
        uint64_t content = first.prompt[0].content;
        assert_true(first.time_s == i && first.turn == 0);
        assert_int_equal(first.session, i + 1);
        trace_request second = kit_next(reader);
        assert_true(second.turn == 1 && second.think_s == 9);
        assert_true(second.prompt[0].content == content); /* ids are those of their session */
        static uint64_t before;
        assert_true(content != before);
        before = content;
    }
    kit_expect_end(reader);
}

#define DYNAMO(session, id, start, hash)                                                           \
    "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\",\"agent_context\":{"   \
    "\"session_id\":\"" session "\"},\"request\":{\"request_id\":\"" id                            \
    "\",\"request_received_ms\":" #start ",\"total_time_ms\":100,\"output_tokens\":5,\"replay\":{" \
    "\"trace_block_size\":2,\"input_length\":2,\"input_sequence_hashes\":[" #hash "]}}}\n"

/* Dynamo rolls its files by size: the next one has the next turn, or an earlier request. */
static void rolled_files_are_read_as_one(void **state)
{
    (void)state;
    write_text("t.000000.jsonl", DYNAMO("s", "a", 1000, 7) DYNAMO("s", "b", 1500, 8));
    write_text("t.000001.jsonl", DYNAMO("u", "x", 500, 7) DYNAMO("s", "c", 2000, 9));
    trace_reader *reader = trace_open(folder, &(trace_options){0});
    assert_non_null(reader);
    assert_int_equal(trace_reader_format(reader), TRACE_DYNAMO);
    expect_time(reader, 0, "t.000001.jsonl");
    expect_time(reader, 0.5, "t.000000.jsonl");
    trace_request b = kit_next(reader);
    assert_true(b.turn == 1 && b.session == 2);
    trace_request c = kit_next(reader);
    assert_true(c.turn == 2 && c.session == 2 && c.is_last_turn);
    assert_string_equal(c.file, path_of("t.000001.jsonl"));
    kit_expect_end(reader);
    write_text("t.000002.jsonl", DYNAMO("s", "a", 9000, 7));
    reader = trace_open(folder, &(trace_options){0});
    trace_request request;
    assert_int_equal(trace_next(reader, &request), -1);
    assert_non_null(strstr(trace_error(reader), "t.000002.jsonl:1: field \"request_id\": "));
    trace_close(reader);
}

static void errors_name_the_file(void **state)
{
    (void)state;
    write_times("a.jsonl", (int[]){0, 100, -1});
    write_text("b.jsonl", "{\"timestamp\":50,\"input_length\":1,\"output_length\":1}\n{]\n");
    trace_request request;
    trace_reader *reader = trace_open(folder, &(trace_options){0});
    kit_next(reader);
    kit_next(reader);
    assert_int_equal(trace_next(reader, &request), -1);
    char start[2 * PATH_BYTES + 32];
    snprintf(start, sizeof start, "%s:2: invalid JSON", path_of("b.jsonl"));
    assert_memory_equal(trace_error(reader), start, strlen(start));
    trace_close(reader);
    reader = trace_open(folder, &(trace_options){.skip_bad = true});
    for (int i = 0; i < 3; i++)
        kit_next(reader);
    assert_int_equal(trace_next(reader, &request), 0);
    assert_int_equal(trace_num_bad(reader), 1);
    trace_close(reader);
    reader = trace_open(folder, &(trace_options){.skip_bad = true, .max_requests = 2});
    kit_next(reader);
    kit_next(reader);
    kit_expect_end(reader);
}

/* ---- several traces ------------------------------------------------------------------ */

static void traces_begin_together_and_are_kept_apart(void **state)
{
    (void)state;
    write_times("a.jsonl", (int[]){5000, 6000, -1});
    write_times("b.jsonl", (int[]){5000, 5500, 6000, -1}); /* 5000 is its id, too */
    char a[PATH_BYTES * 2];
    char b[PATH_BYTES * 2];
    snprintf(a, sizeof a, "%s", path_of("a.jsonl"));
    snprintf(b, sizeof b, "%s", path_of("b.jsonl"));
    trace_reader *alone = trace_open(a, &(trace_options){0});
    uint64_t single = kit_next(alone).prompt[0].content;
    trace_close(alone);
    trace_reader *reader = open_all((const char *[]){a, b}, 2);
    trace_request first = kit_next(reader);
    assert_string_equal(first.file, a);
    assert_true(first.time_s == 0 && first.prompt[0].content == single); /* as if it were alone */
    trace_request other = kit_next(reader);
    assert_string_equal(other.file, b);
    assert_true(other.time_s == 0 && other.prompt[0].content != single);
    expect_time(reader, 0.5, "b.jsonl");
    expect_time(reader, 1, "a.jsonl");
    expect_time(reader, 1, "b.jsonl");
    assert_int_equal(trace_reader_format(reader), TRACE_MOONCAKE);
    kit_expect_end(reader);
}

static void sessions_of_traces_are_different(void **state)
{
    (void)state;
    static const char text[] = "{\"quire_workload\":1}\n"
                               "{\"time\":0,\"session\":1,\"prompt\":[[1,20]],\"output\":[2,5]}\n"
                               "{\"session\":1,\"think\":3,\"more\":[[3,4]],\"output\":[4,5]}\n"
                               "{\"time\":1,\"session\":2,\"prompt\":[[1,20]],\"output\":2}\n";
    write_text("a.jsonl", text);
    const char *const paths[] = {path_of("a.jsonl"), path_of("a.jsonl")};
    trace_reader *reader = open_all(paths, 2);
    trace_request r[6];
    uint64_t contents[6];
    uint64_t seen = 0;
    for (int i = 0; i < 6; i++) {
        r[i] = kit_next(reader);
        contents[i] = r[i].prompt[0].content;
        assert_true(r[i].number < 6 && (seen >> r[i].number & 1) == 0);
        seen |= UINT64_C(1) << r[i].number;
    }
    /* turns at once behind the turn before: a1 a1' b1 b1' a2 b2 */
    assert_true(r[1].turn == 1 && r[1].session == r[0].session && r[1].think_s == 3);
    assert_true(r[3].turn == 1 && r[3].session == r[2].session);
    assert_true(r[0].session != r[2].session && r[4].session != r[5].session);
    assert_true(r[4].session != r[0].session && r[5].session != r[2].session);
    assert_true(contents[0] == contents[1] && contents[0] == contents[4]);
    assert_true(contents[2] == contents[3] && contents[2] == contents[5]);
    assert_true(contents[0] != contents[2]);
    assert_true(r[4].time_s == 1 && r[5].time_s == 1);
    kit_expect_end(reader);
}

/* Hashes of tokens and texts mean the same everywhere. */
static void hashes_and_texts_are_shared(void **state)
{
    (void)state;
    static const char chat[] = "[{\"conversations\":[{\"from\":\"human\",\"value\":\"Hello\"},{"
                               "\"from\":\"gpt\",\"value\":\"Hi\"}]}]";
    write_text("a.jsonl", DYNAMO("s", "a", 1000, 7));
    write_text("b.jsonl", DYNAMO("s", "a", 4000, 7));
    write_text("c.json", chat);
    const char *const paths[] = {path_of("a.jsonl"), path_of("b.jsonl"), path_of("c.json"),
                                 path_of("c.json")};
    trace_reader *reader = open_all(paths, 4);
    assert_int_equal(trace_reader_format(reader), TRACE_MIXED);
    assert_string_equal(trace_format_name(TRACE_MIXED), "mixed");
    uint64_t contents[4];
    uint64_t sessions[4];
    for (int i = 0; i < 4; i++) {
        trace_request r = kit_next(reader);
        assert_true(r.time_s == 0);
        contents[i] = r.prompt[0].content;
        sessions[i] = r.session;
        for (int k = 0; k < i; k++)
            assert_true(sessions[k] != sessions[i]);
    }
    assert_true(contents[0] == contents[1] && contents[2] == contents[3]);
    assert_true(contents[0] != contents[2]);
    kit_expect_end(reader);
}

static void missing_files_are_refused(void **state)
{
    (void)state;
    write_times("a.jsonl", (int[]){0, -1});
    const char *const paths[] = {path_of("a.jsonl"), path_of("absent.jsonl")};
    assert_null(trace_open_all(paths, 2, &(trace_options){0}));
    assert_non_null(strstr(failure(), "absent.jsonl: cannot be opened"));
    const char *const twice[] = {"-", "-"};
    assert_null(trace_open_all(twice, 2, &(trace_options){0}));
    assert_string_equal(failure(), "standard input cannot be given twice as a trace");
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(files_are_found_by_their_names),
        IN_FOLDER(folders_without_traces_are_refused),
        IN_FOLDER(parts_follow_each_other_on_one_clock),
        IN_FOLDER(overlapping_files_are_ordered_by_time),
        IN_FOLDER(dates_have_one_clock),
        IN_FOLDER(sessions_go_on_in_the_next_file),
        IN_FOLDER(turns_of_overlapping_files_keep_their_order),
        IN_FOLDER(files_are_opened_when_they_are_due),
        IN_FOLDER(files_without_times_follow_each_other),
        IN_FOLDER(rolled_files_are_read_as_one),
        IN_FOLDER(errors_name_the_file),
        IN_FOLDER(traces_begin_together_and_are_kept_apart),
        IN_FOLDER(sessions_of_traces_are_different),
        IN_FOLDER(hashes_and_texts_are_shared),
        IN_FOLDER(missing_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

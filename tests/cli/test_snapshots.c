/* cli/test_snapshots.c - steps written as JSON lines come back as the same page; broken ones are
 * told with file, line and key.
 */
#include "base/unit.h"
#include "output/failure.h"
#include "replay/snapshots.h"

#include <unistd.h>

static char PATH[] = "test_snapshots_XXXXXX";

static void write_file(const char *text)
{
    FILE *out = fopen(PATH, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static const page_tier TIERS[] = {{"Host", 300}, {"Disk", 4000}};
static page_meta META = {.title = "t",
                         .trace = "x.jsonl",
                         .model = "m",
                         .gpu = "g",
                         .block_size = 16,
                         .bytes_per_block = 4096,
                         .tiers = TIERS,
                         .num_tiers = 2};

static quire_snapshot a_step(uint64_t step)
{
    uint32_t n = (uint32_t)step;
    return (quire_snapshot){.step = step,
                            .num_running = n % 7,
                            .num_waiting = n % 5,
                            .num_skipped = n % 3,
                            .num_scheduled = n % 7,
                            .num_preempted = n % 11 == 0,
                            .num_tokens = 10 * n,
                            .num_prefill_tokens = 3 * n,
                            .num_hit_tokens = n,
                            .num_external_tokens = n / 2,
                            .blocks = {.empty = 100 - n, .cached = n / 2, .active = n - n / 2}};
}

static char *page_text(const page *p)
{
    char path[] = "test_snapshots_page_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *out = fdopen(fd, "w");
    assert_true(page_write(p, out, NULL));
    assert_int_equal(fclose(out), 0);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    char *text = calloc(1, 4 << 20);
    assert_in_range(fread(text, 1, (4 << 20) - 1, in), 1000, (4 << 20) - 2);
    fclose(in);
    unlink(path);
    return text;
}

static void written_and_read(void **state)
{
    (void)state;
    fail_with("%s", "");
    FILE *out = fopen(PATH, "w");
    json_t *options = json_pack("[[s,s],[s,s]]", "block-size", "16", "note", "a \"b\" <c>");
    META.options = options;
    page *direct = page_open(&META);
    snapshots_write_meta(out, &META);
    json_decref(options);
    for (uint64_t step = 1; step <= 60; step++) {
        quire_snapshot s = a_step(step);
        page_tier_step tiers[2] = {{.blocks = {.empty = 300 - step, .cached = step},
                                    .in_blocks = 3 * step,
                                    .out_blocks = step / 2,
                                    .hit_tokens = 16 * step},
                                   {.blocks = {.empty = 4000}}};
        double time_s = 0.125 * (double)step;
        page_step(direct, &s, time_s, 0.0625, 2 * step, tiers);
        snapshots_write_step(out, &s, time_s, 0.0625, 2 * step, tiers, 2);
    }
    assert_int_equal(fclose(out), 0);
    page *read = snapshots_read(PATH);
    assert_string_equal(failure(), "");
    assert_non_null(read);
    char *one = page_text(direct);
    char *other = page_text(read);
    assert_string_equal(one, other);
    free(one);
    free(other);
    page_close(direct);
    page_close(read);
}

#define FIRST "{\"quire_snapshots\":1}\n"
#define REST                                                                                       \
    "\"num_skipped\":0,\"num_scheduled\":0,\"num_new\":0,\"num_resumed\":0,\"num_preempted\":0,"   \
    "\"num_finished\":0,\"num_tokens\":1,\"num_prefill_tokens\":0,\"num_draft_tokens\":0,"         \
    "\"num_hit_tokens\":0,\"num_external_tokens\":0,\"num_swapped_out_blocks\":0,"                 \
    "\"num_swapped_in_blocks\":0,\"num_swapped\":0,\"num_free_swap_blocks\":0,"                    \
    "\"num_pinned\":0,\"num_pinned_blocks\":0,"                                                    \
    "\"query_tokens\":0,\"empty\":1,\"cached\":1,\"active\":1}\n"
#define STEP(time) "{\"step\":1,\"time_s\":" time ",\"duration_ms\":1,\"num_running\":0,"

static void broken_records(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *said; /* behind the file's name */
    } CASES[] = {
        {"", ":0: contains no snapshots"},
        {"[1]\n", ":1: not a snapshot file of this version"},
        {"{\"step\":1}\n", ":1: not a snapshot file of this version"},
        {FIRST "{\"step\":1\n", ":2: "},
        {FIRST "7\n", ":2: "},
        {FIRST "\n{}\n", ":3: \"step\": is missing"},
        {FIRST "{\"step\":-1}\n", ":2: \"step\": is out of range"},
        {FIRST "{\"step\":1.5}\n", ":2: \"step\": is not a whole number"},
        {FIRST "{\"step\":1,\"time_s\":\"1\"}\n", ":2: \"time_s\": is not a number"},
        {FIRST "{\"step\":1,\"time_s\":-1}\n", ":2: \"time_s\": is out of range"},
        {FIRST STEP("1") "\"num_waiting\":4294967296," REST,
         ":2: \"num_waiting\": is out of range"},
        {FIRST STEP("2") "\"num_waiting\":0," REST STEP("1") "\"num_waiting\":0," REST,
         ":3: \"time_s\": is earlier"},
        {"{\"quire_snapshots\":1,\"tiers\":[[\"a\",5]]}\n" STEP("1") "\"num_waiting\":0," REST,
         ":2: \"tiers\": does not have"},
        {"{\"quire_snapshots\":1,\"tiers\":[[5,5]]}\n", ":1: \"tiers\": has an entry"},
        {"{\"quire_snapshots\":1,\"tiers\":[1,2,3,4,5,6,7]}\n", ":1: \"tiers\": has more"},
    };
    for (size_t i = 0; i < COUNT(CASES); i++) {
        fail_with("%s", "");
        write_file(CASES[i].text);
        assert_null(snapshots_read(PATH));
        assert_memory_equal(failure(), PATH, strlen(PATH));
        if (strncmp(failure() + strlen(PATH), CASES[i].said, strlen(CASES[i].said)) != 0)
            fail_msg("case %zu: %s", i, failure());
    }
}

static void a_missing_file(void **state)
{
    (void)state;
    fail_with("%s", "");
    assert_null(snapshots_read("no/such/file"));
    assert_non_null(strstr(failure(), "no/such/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(broken_records),
        cmocka_unit_test(a_missing_file),
    };
    int file = mkstemp(PATH);
    if (file < 0)
        return 1;
    close(file);
    int failed = cmocka_run_group_tests_name("cli_snapshots", tests, NULL, NULL);
    unlink(PATH);
    return failed;
}

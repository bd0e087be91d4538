/* record/test_record_disk.c - a full disk and a full buffer cost lines, which are counted; memory
 * is bounded. */
#include "record_kit.h"

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static _Atomic int num_logs;
static char logged[512];

static void note(void *user, quire_log_level level, const char *message)
{
    (void)user, (void)level;
    (void)snprintf(logged, sizeof logged, "%s", message);
    num_logs++;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void add_some(quire_recorder *r, int count, int seed)
{
    static unsigned char hashes[64][32];
    for (int i = 0; i < count; i++) {
        quire_recorded_request request = request_with(hashes, 64, seed + i);
        uint32_t req;
        assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_OK);
    }
}

static quire_recorder_stats wait_for_errors(quire_recorder *r, uint64_t num_errors)
{
    quire_recorder_stats stats = QUIRE_RECORDER_STATS_INIT;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(quire_recorder_get_stats(r, &stats), QUIRE_OK);
        if (stats.num_errors >= num_errors)
            return stats;
        (void)usleep(5000);
    }
    fail_msg("no error after 5 seconds");
    return stats;
}

/* A write that the limit cuts in the middle is what a full disk does too. */
static void a_full_disk_costs_lines(void **state)
{
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    uint32_t num_parts;
    folder f;
    (void)state;
    folder_open(&f);
    (void)signal(SIGXFSZ, SIG_IGN);
    config.path = folder_file(&f, "full");
    config.flush_ms = 20;
    config.hooks.log = note;
    quire_recorder *r = recorder_open(&config);
    add_some(r, 3, 1);
    (void)usleep(300000);
    quire_recorder_stats before = QUIRE_RECORDER_STATS_INIT;
    assert_int_equal(quire_recorder_get_stats(r, &before), QUIRE_OK);
    assert_int_equal(before.num_lines, 3);
    assert_int_equal(before.num_parts, 1);
    assert_in_range(before.num_bytes, 3 * 64 * 8, 3000);
    limit_files(3000); /* some of the next frame fits */
    add_some(r, 20, 10);
    (void)wait_for_errors(r, 1);
    (void)usleep(100000);
    add_some(r, 5, 40);
    quire_recorder_stats stats = wait_for_errors(r, 2);
    limit_files(RLIM_INFINITY);
    assert_int_equal(stats.num_lost, 25);
    assert_int_equal(num_logs, 1); /* once */
    assert_non_null(strstr(logged, "full.0000.jsonl.zst"));
    add_some(r, 2, 50);
    quire_recorder_destroy(r);
    char *text = parts_read(&f, "full", &num_parts); /* whole frames alone */
    assert_int_equal(text_count(text, "\"type\": \"request\""), 5);
    assert_int_equal(text_last_number(text, "\"type\": \"lost\", \"t\": ") > 0, 1);
    assert_non_null(strstr(text, "\"lines\": 25}\n{\"type\": \"request\""));
    assert_non_null(strstr(text, "\"lines\": 5, \"lost\": 25}\n"));
    free(text);
    folder_close(&f);
}

static void a_folder_that_is_gone_costs_lines(void **state)
{
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    folder f;
    (void)state;
    folder_open(&f);
    config.path = folder_file(&f, "gone");
    config.flush_ms = 10;
    config.part_bytes = 4096;
    quire_recorder *r = recorder_open(&config);
    assert_int_equal(unlink(folder_file(&f, "gone.0000.jsonl.zst")), 0);
    folder_close(&f);
    add_some(r, 20, 1); /* into a file without a name; the next part has no folder */
    (void)usleep(200000);
    add_some(r, 3, 1);
    assert_int_equal(wait_for_errors(r, 1).num_lost, 3);
    quire_recorder_destroy(r);
}

static void a_full_buffer_costs_lines(void **state)
{
    static unsigned char hashes[512][32];
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    quire_recorder_stats stats = QUIRE_RECORDER_STATS_INIT;
    uint32_t num_parts;
    uint32_t num_lost = 0;
    uint32_t req = 0;
    folder f;
    (void)state;
    folder_open(&f);
    config.path = folder_file(&f, "e");
    config.buffer_bytes = 64 << 10;
    quire_recorder *r = recorder_open(&config);
    for (int i = 0; i < 200; i++) { /* faster than they can be hashed */
        quire_recorded_request request = request_with(hashes, 512, i);
        int status = quire_recorder_add(r, &request, &req);
        assert_true(status == QUIRE_OK || status == QUIRE_FULL);
        num_lost += status == QUIRE_FULL;
    }
    assert_int_equal(req, 200);
    assert_true(num_lost > 0);
    assert_int_equal(quire_recorder_get_stats(r, &stats), QUIRE_OK);
    assert_int_equal(stats.num_lost, num_lost);
    quire_recorder_destroy(r);
    char *text = parts_read(&f, "e", &num_parts);
    uint32_t said = 0;
    for (const char *at = strstr(text, "\"type\": \"lost\""); at != NULL;
         at = strstr(at + 1, "\"type\": \"lost\""))
        said += (uint32_t)strtoul(strstr(at, "\"lines\": ") + 9, NULL, 10);
    assert_int_equal(said, num_lost);
    assert_int_equal(text_count(text, "\"type\": \"request\""), 200 - num_lost);
    free(text);
    folder_close(&f);
}

static void memory_is_bounded(void **state)
{
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    size_t before = 0;
    folder f;
    (void)state;
    folder_open(&f);
    config.path = folder_file(&f, "g");
    config.flush_ms = 10;
    quire_recorder *r = recorder_open(&config);
    for (uint32_t i = 0; i < 400; i++) {
        quire_recorded_step step = QUIRE_RECORDED_STEP_INIT;
        uint64_t number;
        uint32_t tokens = 5;
        uint32_t req = i;
        add_some(r, 3, (int)i); /* they never end */
        step.num_reqs = 1;
        step.reqs = &req;
        step.num_tokens = &tokens;
        assert_int_equal(quire_recorder_schedule(r, &step, &number), QUIRE_OK);
        (void)usleep(2000);
        if (i == 100)
            before = mallinfo2().uordblks;
    }
    assert_true(mallinfo2().uordblks < before + (1 << 20));
    quire_recorder_destroy(r);
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_disk_costs_lines),
                                       cmocka_unit_test(a_folder_that_is_gone_costs_lines),
                                       cmocka_unit_test(a_full_buffer_costs_lines),
                                       cmocka_unit_test(memory_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

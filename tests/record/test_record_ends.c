/* record/test_record_ends.c - a process that is killed, one that forks, and calls that allocate
 * nothing. */
#include "record_kit.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Thread_local bool is_counting;
static _Thread_local uint32_t num_allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    num_allocations += is_counting;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    num_allocations += is_counting;
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    num_allocations += is_counting;
    return __real_realloc(memory, bytes);
}

static double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void record_step(quire_recorder *r, int i)
{
    unsigned char hashes[4][32];
    quire_recorded_request request = request_with(hashes, 4, i & 127);
    quire_recorded_step step = QUIRE_RECORDED_STEP_INIT;
    uint32_t tokens = 67;
    uint32_t req;
    uint64_t number;
    (void)quire_recorder_add(r, &request, &req);
    step.num_reqs = 1;
    step.reqs = &req;
    step.num_tokens = &tokens;
    (void)quire_recorder_schedule(r, &step, &number);
    (void)quire_recorder_update(r, number, NULL, 0);
    (void)quire_recorder_end(r, req, QUIRE_RECORDED_STOP, 1, NULL, 0, 0);
}

static void a_killed_process_leaves_all_but_a_second(void **state)
{
    uint32_t num_parts;
    folder f;
    (void)state;
    folder_open(&f);
    pid_t child = fork();
    if (child == 0) {
        quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
        config.path = folder_file(&f, "killed");
        quire_recorder *r = recorder_open(&config);
        for (int i = 0;; i++) {
            record_step(r, i);
            (void)usleep(500);
        }
    }
    (void)sleep(4);
    assert_int_equal(kill(child, SIGKILL), 0);
    double killed_s = seconds_now();
    assert_int_equal(waitpid(child, NULL, 0), child);
    char *text = parts_read(&f, "killed", &num_parts); /* whole frames alone */
    assert_int_equal(num_parts, 1);
    double start_s = strtod(strstr(text, "\"time\": ") + 8, NULL);
    double last_s = start_s + text_last_number(text, "\"t\": ");
    assert_true(text_count(text, "\"type\": \"end\"") > 500);
    assert_null(strstr(text, "\"type\": \"close\""));
    if (killed_s - last_s > 1.5) /* a second, and what a busy machine adds */
        fail_msg("the last line is %.2f s old", killed_s - last_s);
    free(text);
    folder_close(&f);
}

static int is_harmless_in_child(quire_recorder *r)
{
    quire_recorded_request request = QUIRE_RECORDED_REQUEST_INIT;
    quire_recorded_step step = QUIRE_RECORDED_STEP_INIT;
    uint32_t req;
    uint64_t number;
    bool is_refused =
        quire_recorder_add(r, &request, &req) == QUIRE_E_SYSTEM &&
        quire_recorder_schedule(r, &step, &number) == QUIRE_E_SYSTEM &&
        quire_recorder_update(r, 1, NULL, 0) == QUIRE_E_SYSTEM &&
        quire_recorder_end(r, 1, QUIRE_RECORDED_STOP, 1, NULL, 0, 0) == QUIRE_E_SYSTEM &&
        quire_recorder_reset(r, 0) == QUIRE_E_SYSTEM;
    quire_recorder_destroy(r);
    return is_refused ? 0 : 1;
}

static void a_child_changes_nothing(void **state)
{
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    uint32_t num_parts;
    folder f;
    int status;
    (void)state;
    folder_open(&f);
    config.path = folder_file(&f, "forked");
    config.flush_ms = 10;
    quire_recorder *r = recorder_open(&config);
    for (int i = 0; i < 100; i++)
        record_step(r, i);
    pid_t child = fork();
    if (child == 0)
        _exit(is_harmless_in_child(r));
    for (int i = 0; i < 100; i++)
        record_step(r, i);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < 100; i++)
        record_step(r, i);
    quire_recorder_destroy(r);
    char *text = parts_read(&f, "forked", &num_parts);
    assert_int_equal(text_count(text, "\"type\": \"end\""), 300);
    assert_non_null(strstr(text, "\"lines\": 1200, \"lost\": 0}\n"));
    free(text);
    folder_close(&f);
}

static void calls_allocate_nothing(void **state)
{
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    folder f;
    (void)state;
    folder_open(&f);
    config.path = folder_file(&f, "h");
    quire_recorder *r = recorder_open(&config);
    is_counting = true;
    void *volatile one = malloc(1); /* the counter counts */
    free(one);
    assert_int_equal(num_allocations, 1);
    for (int i = 0; i < 1000; i++)
        record_step(r, i);
    is_counting = false;
    assert_int_equal(num_allocations, 1);
    quire_recorder_destroy(r);
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_killed_process_leaves_all_but_a_second),
                                       cmocka_unit_test(a_child_changes_nothing),
                                       cmocka_unit_test(calls_allocate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

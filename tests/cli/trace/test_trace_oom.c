/* cli/trace/test_trace_oom.c - memory that runs out: for every n, the n-th allocation of a reader
 * fails.
 * It ends with a sentence, and gives back what it has. (Linked so that malloc and its kin come
 * here.) */
#include "fuzz_samples.h"
#include "output/failure.h"
#include "trace_kit.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);

static uint64_t calls;
static uint64_t failing; /* this one; 0: none */

static bool may_go_on(void)
{
    return ++calls != failing;
}

void *__wrap_malloc(size_t size)
{
    return may_go_on() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_go_on() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *memory, size_t size)
{
    return may_go_on() ? __real_realloc(memory, size) : NULL;
}

char *__wrap_strdup(const char *text)
{
    return may_go_on() ? __real_strdup(text) : NULL;
}

/* How many requests came; *has_failed: it ended with a sentence. */
static uint64_t run(const fuzz_sample *sample, bool skip_bad, bool *has_failed)
{
    trace_options options = {.format = sample->format, .skip_bad = skip_bad};
    fail_with("%s", "");
    trace_request request;
    *has_failed = true;
    input *in = input_of_bytes(sample->bytes, sample->num_bytes);
    if (in == NULL)
        return 0;
    trace_reader *reader = trace_open_input(in, &options);
    if (reader == NULL) {
        assert_true(failure()[0] != 0);
        return 0;
    }
    int more;
    while ((more = trace_next(reader, &request)) == 1)
        ;
    assert_true(more == 0 || trace_error(reader)[0] != 0);
    *has_failed = more < 0 || trace_num_bad(reader) > 0;
    uint64_t num_requests = reader->shared->number;
    trace_close(reader);
    return num_requests;
}

/* Long lists and many sessions, so that arrays grow. */
static fuzz_sample long_sample(trace_format format)
{
    enum { BYTES = 1 << 20, ROWS = 200 };
    fuzz_sample sample = {.format = format, .bytes = malloc(BYTES)};
    char *at = (char *)sample.bytes;
    assert_non_null(at);
    if (format == TRACE_AGENT)
        at += snprintf(at, 100, "{\"requests\":[");
    for (int i = 0; i < ROWS; i++) {
        size_t room = BYTES - (size_t)(at - (char *)sample.bytes);
        if (format == TRACE_AGENT)
            at += snprintf(at, room,
                           "%s{\"t\":1,\"in\":1,\"out\":1},{\"t\":1,\"requests\":[{\"t\":1,\"in\":"
                           "1,\"out\":1}]}",
                           i > 0 ? "," : "");
        else
            at += snprintf(at, room,
                           "{\"session_id\":%d,\"timestamp\":0,\"delay\":1,\"request_id\":%d,"
                           "\"%s\":[%d,%d],\"input_length\":1,\"output_length\":1}\n",
                           i / 20, i, i > 0 ? "wait_for" : "first", i - 1, i / 2);
    }
    if (format == TRACE_AGENT)
        at += snprintf(at, 100, "],\"block_size\":4}");
    sample.num_bytes = (size_t)(at - (char *)sample.bytes);
    return sample;
}

static void fail_each(const fuzz_sample *sample)
{
    bool has_failed;
    failing = 0;
    uint64_t all = run(sample, true, &has_failed);
    assert_true(all > 0 && !has_failed);
    for (uint64_t n = 1;; n++) {
        calls = 0;
        failing = n;
        uint64_t num_requests = run(sample, n % 2 == 0, &has_failed);
        failing = 0;
        if (calls < n)
            break;
        assert_true(has_failed || num_requests == all);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fuzz_sample samples[FUZZ_NUM_SAMPLES];
    fuzz_make_samples(samples);
    for (int i = 0; i < FUZZ_NUM_SAMPLES; i++)
        fail_each(&samples[i]);
    fuzz_free_samples(samples);
    static const trace_format formats[] = {TRACE_AGENT, TRACE_MOONCAKE, TRACE_MOONCAKE_DELTA};
    for (size_t i = 0; i < COUNT(formats); i++) {
        fuzz_sample sample = long_sample(formats[i]);
        fail_each(&sample);
        free(sample.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("cli_trace_oom", tests, NULL, NULL);
}

/* cli/trace/test_generate.c - generated workloads: the hit rates that they are made for, their
 * shape, and
 * that a seed is all that they depend on. */
#include <math.h>
#include <unistd.h>

#include "output/failure.h"
#include "output/packed.h"
#include "trace/generate.h"
#include "trace_kit.h"

typedef struct made {
    char path[32];
} made;

static made make_file(const generate_options *options, const char *ending)
{
    made m;
    snprintf(m.path, sizeof m.path, "workload_XXXXXX%s", ending);
    int fd = mkstemps(m.path, (int)strlen(ending));
    assert_true(fd >= 0);
    close(fd);
    packed_file *file = packed_open(m.path);
    assert_non_null(file);
    assert_true(generate(options, packed_text(file)));
    assert_true(packed_close(file));
    return m;
}

static trace_reader *open_made(const made *m)
{
    trace_reader *reader = trace_open(m->path, NULL);
    if (reader == NULL)
        fail_msg("%s", failure());
    assert_int_equal(trace_reader_format(reader), TRACE_QUIRE);
    return reader;
}

/* The share of prompt tokens that a cache of unlimited size finds at block size 16, if each request
 * has ended before the next begins. */
static double hit_rate(const generate_options *options)
{
    made m = make_file(options, ".jsonl.zst");
    trace_reader *reader = open_made(&m);
    kit_cache cache = kit_cache_create(16);
    trace_request request;
    int more;
    while ((more = trace_next(reader, &request)) == 1)
        kit_cache_run(&cache, &request, false, true);
    assert_int_equal(more, 0);
    assert_int_equal(cache.num_requests, options->num_requests);
    double rate = (double)cache.num_hit_tokens / (double)cache.num_prompt_tokens;
    kit_cache_destroy(&cache);
    trace_close(reader);
    unlink(m.path);
    return rate;
}

static void hit_rates_are_those_of_the_literature(void **state)
{
    (void)state;
    static const struct {
        generate_kind kind;
        double percent;
    } cases[] = {{GENERATE_CHAT, 92},
                 {GENERATE_MULTI_TURN, 78},
                 {GENERATE_RAG, 65},
                 {GENERATE_CODE, 55},
                 {GENERATE_UNIQUE, 5}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            generate_options options = generate_defaults(cases[i].kind);
            options.seed = seed;
            double percent = 100 * hit_rate(&options);
            printf("%-10s seed %d: %.2f %%\n", generate_kind_names[cases[i].kind], (int)seed,
                   percent);
            assert_true(fabs(percent - cases[i].percent) <= 1.5);
        }
    }
}

/* A rate must not depend on the length of the workload. */
static void hit_rates_do_not_depend_on_length(void **state)
{
    (void)state;
    for (uint64_t n = 2500; n <= 40000; n *= 4) {
        generate_options options = generate_defaults(GENERATE_RAG);
        options.num_requests = n;
        assert_true(fabs(100 * hit_rate(&options) - 65) <= 2.5);
    }
}

static char *contents_of(const made *m, size_t *n)
{
    input *in = input_open(m->path);
    assert_non_null(in);
    *n = input_ahead(in, INPUT_MAX_LINE_BYTES);
    char *bytes = malloc(*n);
    assert_non_null(bytes);
    memcpy(bytes, input_bytes(in), *n);
    input_close(in);
    return bytes;
}

static void a_seed_is_all_it_takes(void **state)
{
    (void)state;
    for (int kind = 0; kind <= GENERATE_MIXED; kind++) {
        char *bytes[3];
        size_t n[3];
        for (int i = 0; i < 3; i++) {
            generate_options options = generate_defaults((generate_kind)kind);
            options.num_requests = 300;
            options.seed = i == 2 ? 8 : 7;
            made m = make_file(&options, i == 1 ? ".zst" : ".jsonl");
            bytes[i] = contents_of(&m, &n[i]);
            unlink(m.path);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        assert_true(n[0] != n[2] || memcmp(bytes[0], bytes[2], n[0]) != 0);
        for (int i = 0; i < 3; i++)
            free(bytes[i]);
    }
}

typedef struct seen {
    uint64_t num_requests;
    uint64_t num_sessions;
    uint64_t num_last;
    uint64_t longest;
    double sum_output;
    double sum_think;
    uint64_t num_later;
    double last_s;
} seen;

static seen look_at(const generate_options *options)
{
    made m = make_file(options, ".jsonl");
    trace_reader *reader = open_made(&m);
    trace_request request;
    seen s = {.num_requests = 0};
    uint64_t session = 0;
    uint32_t turn = 0;
    while (trace_next(reader, &request) == 1) {
        s.num_requests++;
        s.num_last += request.is_last_turn;
        s.sum_output += request.num_output_tokens;
        uint64_t length = (uint64_t)request.num_prompt_tokens + request.num_output_tokens;
        s.longest = length > s.longest ? length : s.longest;
        if (request.turn == 0) {
            assert_true(request.time_s >= s.last_s);
            s.last_s = request.time_s;
            s.num_sessions += request.session != 0;
        } else {
            assert_int_equal(request.session, session); /* turns stand together */
            assert_int_equal(request.turn, turn + 1);
            assert_true(request.is_closed_loop);
            s.sum_think += request.think_s;
            s.num_later++;
        }
        session = request.session;
        turn = request.turn;
    }
    trace_close(reader);
    unlink(m.path);
    return s;
}

static void sessions_have_turns_and_think_times(void **state)
{
    (void)state;
    generate_options options = generate_defaults(GENERATE_AGENT);
    options.num_requests = 20000;
    options.max_tokens = 1000000;
    seen s = look_at(&options);
    assert_int_equal(s.num_requests, 20000);
    assert_int_equal(s.num_sessions, s.num_last);
    double turns = (double)s.num_requests / (double)s.num_sessions;
    assert_true(fabs(turns - 25) < 2.5);
    assert_true(fabs(s.sum_think / (double)s.num_later - 8) < 0.8);
    assert_true(fabs(s.sum_output / (double)s.num_requests - 400) < 40);
    assert_true(fabs(s.last_s * options.rate / (double)s.num_sessions - 1) < 0.15);
}

static void prompts_stay_within_their_limit(void **state)
{
    (void)state;
    generate_options options = generate_defaults(GENERATE_MULTI_TURN);
    options.max_tokens = 3000;
    options.shapes[GENERATE_MULTI_TURN].turns = 50;
    seen s = look_at(&options);
    assert_true(s.longest <= 3000);
    assert_true(s.longest > 2900);
    assert_int_equal(s.num_sessions, s.num_last);
}

static void shares_decide_what_is_mixed(void **state)
{
    (void)state;
    generate_options options = generate_defaults(GENERATE_MIXED);
    for (int k = 0; k < GENERATE_KINDS; k++)
        options.shares[k] = k == GENERATE_CHAT;
    assert_true(fabs(100 * hit_rate(&options) - 92) <= 1.5);
    assert_int_equal(look_at(&options).num_sessions, 0);
    options.shares[GENERATE_MULTI_TURN] = 1;
    seen s = look_at(&options); /* half of the arrivals, four turns each */
    assert_true(fabs((double)s.num_later / (double)s.num_requests - 3.0 / 5) < 0.05);
}

static void what_cannot_be_written_says_so(void **state)
{
    (void)state;
    assert_null(packed_open("no/such/folder/file"));
    assert_string_equal(failure(),
                        "no/such/folder/file: cannot be written: No such file or directory");
    if (access("/dev/full", W_OK) != 0)
        skip();
    packed_file *file = packed_open("/dev/full");
    assert_non_null(file);
    generate_options options = generate_defaults(GENERATE_CHAT);
    assert_true(generate(&options, packed_text(file)));
    assert_false(packed_close(file));
    assert_string_equal(failure(), "/dev/full: cannot be written: No space left on device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hit_rates_are_those_of_the_literature),
        cmocka_unit_test(hit_rates_do_not_depend_on_length),
        cmocka_unit_test(a_seed_is_all_it_takes),
        cmocka_unit_test(sessions_have_turns_and_think_times),
        cmocka_unit_test(prompts_stay_within_their_limit),
        cmocka_unit_test(shares_decide_what_is_mixed),
        cmocka_unit_test(what_cannot_be_written_says_so),
    };
    return cmocka_run_group_tests_name("cli_generate", tests, NULL, NULL);
}

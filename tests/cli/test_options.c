/* test_options.c - command lines in, values or sentences out. */
#include "base/unit.h"

#include "options/completion.h"
#include "options/nearest.h"
#include "options/options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    uint32_t block_size;
    uint64_t seed;
    double share;
    double offset;
    const char *out;
    int policy;
    bool caching;
    bool is_caching_given;
} o;

static const char *const policies[] = {"fcfs", "priority", NULL};

static const option table[] = {
    {"block-size", OPTION_U32, &o.block_size, "TOKENS", "tokens of a block", .def = "16", .min = 1,
     .max = 4096},
    {"seed", OPTION_U64, &o.seed, "N", "of the random numbers", .def = "0"},
    {"share", OPTION_REAL, &o.share, "F", "a share", .max = 1, .section = "Numbers"},
    {"offset", OPTION_REAL, &o.offset, "F", "may be negative", .min = -10, .max = 10},
    {"out", OPTION_TEXT, &o.out, "FILE", "it's written here: \\n", .def = NULL},
    {"policy", OPTION_CHOICE, &o.policy, "NAME", "who comes first", .choices = policies},
    {"caching", OPTION_SWITCH, &o.caching, NULL, "find prefixes", .is_given = &o.is_caching_given},
    {0}};

static command cmd = {.name = "replay",
                      .usage = "replay [OPTION]... TRACE",
                      .summary = "runs a trace",
                      .examples = "  quire replay trace.jsonl",
                      .options = table,
                      .max_arguments = 2};

static char said[4096]; /* what the last call wrote to the stream that was caught */

/* Runs `call` with a stream caught in `said`. */
static int caught(FILE *stream, int (*call)(void *), void *context)
{
    int number = fileno(stream);
    fflush(stream);
    int before = dup(number);
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_true(before >= 0 && dup2(fileno(file), number) >= 0);
    int status = call(context);
    fflush(stream);
    assert_true(dup2(before, number) >= 0);
    close(before);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    return status;
}

typedef struct line {
    int argc;
    char *argv[10];
} line;

static int parse_line(void *context)
{
    line *l = context;
    return command_parse(&cmd, l->argc, l->argv);
}

static int parse(const char *text)
{
    static char words[256];
    line l = {.argc = 1, .argv = {"replay"}};
    memset(&o, 0, sizeof o);
    snprintf(words, sizeof words, "%s", text);
    char *rest = words;
    while (*rest) {
        l.argv[l.argc++] = rest;
        rest += strcspn(rest, " ");
        if (*rest)
            *rest++ = '\0';
    }
    return caught(stderr, parse_line, &l);
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(parse("--block-size 32 a --seed=18446744073709551615 - --share .25"), 0);
    assert_int_equal(o.block_size, 32);
    assert_true(o.seed == UINT64_MAX);
    assert_true(o.share == 0.25);
    assert_int_equal(cmd.num_arguments, 2);
    assert_string_equal(cmd.arguments[0], "a");
    assert_string_equal(cmd.arguments[1], "-");
    assert_int_equal(parse("--out=--x --policy priority --offset -2.5 -- --seed"), 0);
    assert_string_equal(o.out, "--x");
    assert_int_equal(o.policy, 1);
    assert_true(o.offset == -2.5);
    assert_int_equal(cmd.num_arguments, 1);
    assert_string_equal(cmd.arguments[0], "--seed");
    assert_int_equal(parse("--out= --seed 1 --seed 2"), 0);
    assert_string_equal(o.out, "");
    assert_int_equal(o.seed, 2);
}

static void test_switches(void **state)
{
    (void)state;
    assert_int_equal(parse("--caching"), 0);
    assert_true(o.caching && o.is_caching_given);
    assert_int_equal(parse("--caching --no-caching"), 0);
    assert_true(!o.caching && o.is_caching_given);
    assert_int_equal(parse(""), 0);
    assert_true(!o.is_caching_given);
    assert_int_equal(parse("--caching=yes"), 3);
    assert_string_equal(said,
                        "quire replay: --caching takes no value (use --caching or --no-caching)\n");
    assert_int_equal(parse("--no-seed"), 3);
}

static void test_suffixes(void **state)
{
    static const struct {
        const char *text;
        uint64_t number;
    } good[] = {{"3k", 3000},       {"2M", 2000000},
                {"1G", 1000000000}, {"4Ki", 4096},
                {"1Mi", 1048576},   {"2Gi", UINT64_C(2147483648)},
                {"1.5k", 1500},     {"1e6", 1000000},
                {"0", 0},           {"16Ti", UINT64_C(16) << 40}};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[64];
        snprintf(text, sizeof text, "--seed %s", good[i].text);
        assert_int_equal(parse(text), 0);
        assert_true(o.seed == good[i].number);
    }
    assert_int_equal(parse("--share=0.0005k"), 0);
    assert_true(o.share == 0.5);
}

static void test_bad_numbers(void **state)
{
    static const char *const bad[] = {
        "--seed -1",     "--seed x",       "--seed 1x",           "--seed 18446744073709551616",
        "--seed=",       "--seed 1.5",     "--seed 20000000000G", "--seed 0x10",
        "--share nan",   "--share inf",    "--share 1.01",        "--share -0.1",
        "--share 0x1p2", "--block-size 0", "--block-size 4097",   "--block-size 5k",
        "--share 1e999", "--offset -10.5", "--offset 11",         "--seed 1e30"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse(bad[i]), 3);
        assert_non_null(strstr(said, "invalid value "));
        assert_true(o.seed == 0 && o.share == 0 && o.block_size == 0);
    }
    assert_int_equal(parse("--block-size 5k"), 3);
    assert_string_equal(said,
                        "quire replay: invalid value \"5k\" for --block-size (expected 1..4096)\n");
    assert_int_equal(parse("--seed 1.5"), 3);
    assert_string_equal(
        said,
        "quire replay: invalid value \"1.5\" for --seed (expected a whole number, 0 or more)\n");
    assert_int_equal(parse("--share 2"), 3);
    assert_string_equal(
        said, "quire replay: invalid value \"2\" for --share (expected a number, 0..1)\n");
}

static void test_sentences(void **state)
{
    static const struct {
        const char *text;
        const char *sentence;
    } cases[] = {
        {"--blocksize 3", "unknown option --blocksize; did you mean --block-size?"},
        {"--block 3", "unknown option --block; did you mean --block-size?"},
        {"--no-cachign", "unknown option --no-cachign"},
        {"--zzzzzz", "see quire replay --help"},
        {"--policy lifo", "invalid value \"lifo\" for --policy (expected fcfs or priority)"},
        {"--out", "--out needs a value: FILE"},
        {"--out --seed 3", "--out needs a value: FILE"},
        {"-x", "unknown option -x"},
        {"a b c", "unexpected argument \"c\"; usage: quire replay [OPTION]... TRACE"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].text), 3);
        if (!strstr(said, cases[i].sentence))
            fail_msg("%s: %s", cases[i].text, said);
    }
}

static int parse_help(void *context)
{
    char *argv[] = {"replay", "--help"};
    (void)context;
    return command_parse(&cmd, 2, argv);
}

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(caught(stdout, parse_help, NULL), 1);
    assert_non_null(strstr(said, "usage: quire replay [OPTION]... TRACE\n\nruns a trace\n"));
    assert_non_null(
        strstr(said, "  --block-size TOKENS         tokens of a block (default: 16)\n"));
    assert_non_null(strstr(said, "\nNumbers:\n  --share F"));
    assert_non_null(strstr(said, "who comes first: fcfs, priority\n"));
    assert_non_null(strstr(said, "  --[no-]caching              find prefixes\n"));
    assert_non_null(strstr(said, "\nNumbers take k, M, G, T (1,000) and Ki, Mi, Gi, Ti"));
    assert_non_null(strstr(said, "\nExamples:\n  quire replay trace.jsonl\n"));
}

static int print_shell(void *context)
{
    const command *const commands[] = {&cmd, NULL};
    return completion_print(commands, context);
}

static int print_man(void *context)
{
    const command *const commands[] = {&cmd, NULL};
    (void)context;
    man_print(commands);
    return 0;
}

static void test_completion(void **state)
{
    (void)state;
    assert_true(caught(stdout, print_shell, "bash"));
    assert_non_null(strstr(said, "--policy) COMPREPLY=($(compgen -W 'fcfs priority'"));
    assert_non_null(strstr(said, "--caching --no-caching --help"));
    assert_true(caught(stdout, print_shell, "zsh"));
    assert_non_null(strstr(said, "'--out=[it'\\''s written here \\n]:FILE:_files'"));
    assert_true(caught(stdout, print_shell, "fish"));
    assert_non_null(strstr(said, "-l 'policy' -x -a 'fcfs priority'"));
    assert_false(caught(stdout, print_shell, "tcsh"));
    assert_string_equal(said, "");
    assert_int_equal(caught(stdout, print_man, NULL), 0);
    assert_non_null(strstr(said, ".TP\n\\fB\\-\\-block\\-size\\fR \\fITOKENS\\fR\n"));
    assert_non_null(strstr(said, "it's written here: \\en\n"));
}

static const char *nearest_of(const char *word, const char *a, const char *b)
{
    nearest n = nearest_to(word);
    nearest_offer(&n, a);
    nearest_offer(&n, b);
    return nearest_name(&n);
}

static void test_nearest(void **state)
{
    (void)state;
    assert_string_equal(nearest_of("repaly", "replay", "relay"), "replay");
    assert_string_equal(nearest_of("pln", "plan", "man"), "plan");
    assert_string_equal(nearest_of("comp", "time", "compare"), "compare");
    assert_string_equal(nearest_of("ba", "ab", "zz"), "ab"); /* letters swapped: one mistake */
    assert_null(nearest_of("xyz", "replay", "plan"));
    assert_null(nearest_of("", "replay", "plan"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_switches),
        cmocka_unit_test(test_suffixes),   cmocka_unit_test(test_bad_numbers),
        cmocka_unit_test(test_sentences),  cmocka_unit_test(test_help),
        cmocka_unit_test(test_completion), cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

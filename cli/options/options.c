/* options.c - reads a command line by a table, and prints the table as help.
 *
 *      --block-size 32 ─► find the row ─► number in its limits? ─► *(uint32_t *)row->value = 32
 *                           │ none              │ no
 *                           ▼                   ▼
 *                    the nearest name     option, value, what is allowed      exit status 2
 */
#include "options.h"
#include "nearest.h"
#include "output/file_uses.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 30, HELP_WIDTH = 80, MAX_NAME = 64 };

int command_say(const command *cmd, int status, const char *format, ...)
{
    va_list values;
    fprintf(stderr, "quire %s: ", cmd->name);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    return status;
}

/* ---- numbers ------------------------------------------------------------ */

static const struct {
    const char *letters;
    double factor;
} suffixes[] = {
    {"", 1},     {"k", 1e3},   {"K", 1e3},        {"M", 1e6},           {"G", 1e9},
    {"T", 1e12}, {"Ki", 1024}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0}};

/* 0 where the letters after a number are none of the known ones. */
static double suffix_factor(const char *letters)
{
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcmp(letters, suffixes[i].letters) == 0)
            return suffixes[i].factor;
    return 0;
}

/* Digits alone: exact up to 64 bits, which a double is not. */
static bool read_whole(const char *text, uint64_t *number)
{
    char *end;
    size_t digits = strspn(text, "0123456789");
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    double factor = suffix_factor(text + digits);
    if (digits == 0 || errno != 0 || factor <= 0 || value > UINT64_MAX / (uint64_t)factor)
        return false;
    *number = value * (uint64_t)factor;
    return true;
}

static bool read_real(const char *text, double *number)
{
    char *end;
    size_t sign = text[0] == '-' || text[0] == '+';
    if (strspn(text + sign, "0123456789.") == 0 || strpbrk(text, "xX"))
        return false;
    double value = strtod(text, &end);
    *number = value * suffix_factor(end);
    return end != text && suffix_factor(end) > 0 && isfinite(*number);
}

bool option_is_number(const option *opt)
{
    return opt->kind == OPTION_U32 || opt->kind == OPTION_U64 || opt->kind == OPTION_REAL;
}

double option_number(const char *text)
{
    double number = 0;
    (void)read_real(text, &number);
    return number;
}

static double largest_of(const option *opt)
{
    double of_type = opt->kind == OPTION_U32   ? (double)UINT32_MAX
                     : opt->kind == OPTION_U64 ? 18446744073709549568.0 /* below 2^64 */
                                               : HUGE_VAL;
    return opt->max != 0 && opt->max < of_type ? opt->max : of_type;
}

static int wrong_number(const command *cmd, const option *opt, const char *text)
{
    double number;
    bool is_real = opt->kind == OPTION_REAL;
    bool is_fraction = !is_real && read_real(text, &number) && floor(number) != number;
    const char *kind = is_real ? "a number, " : is_fraction ? "a whole number, " : "";
    if (opt->max != 0 || opt->kind == OPTION_U32)
        return command_error(cmd, "invalid value \"%s\" for --%s (expected %s%.15g..%.15g)", text,
                             opt->name, kind, opt->min, largest_of(opt));
    return command_error(cmd, "invalid value \"%s\" for --%s (expected %s%.15g or more)", text,
                         opt->name, kind, opt->min);
}

static int set_number(const command *cmd, const option *opt, const char *text)
{
    double real = 0;
    uint64_t whole = 0;
    if (opt->kind != OPTION_REAL && read_whole(text, &whole)) {
        real = (double)whole;
    } else {
        if (!read_real(text, &real))
            return wrong_number(cmd, opt, text);
        if (opt->kind != OPTION_REAL) { /* 1.5k, 1e6: whole numbers all the same */
            if (real < 0 || real > largest_of(opt) || floor(real) != real)
                return wrong_number(cmd, opt, text);
            whole = (uint64_t)real;
        }
    }
    bool fits = opt->kind == OPTION_U64 && opt->max == 0 ? true : real <= largest_of(opt);
    if (real < opt->min || !fits)
        return wrong_number(cmd, opt, text);
    if (opt->kind == OPTION_U32)
        *(uint32_t *)opt->value = (uint32_t)whole;
    else if (opt->kind == OPTION_U64)
        *(uint64_t *)opt->value = whole;
    else
        *(double *)opt->value = real;
    return 0;
}

/* ---- other values ------------------------------------------------------- */

static int set_choice(const command *cmd, const option *opt, const char *text)
{
    for (int i = 0; opt->choices[i]; i++) {
        if (strcmp(opt->choices[i], text) == 0) {
            *(int *)opt->value = i;
            return 0;
        }
    }
    fprintf(stderr, "quire %s: invalid value \"%s\" for --%s (expected ", cmd->name, text,
            opt->name);
    for (size_t i = 0; opt->choices[i]; i++)
        fprintf(stderr, "%s%s", i == 0 ? "" : opt->choices[i + 1] ? ", " : " or ", opt->choices[i]);
    fputs(")\n", stderr);
    return COMMAND_WRONG_CALL;
}

static int add_text(const command *cmd, const option *opt, const char *text)
{
    option_list *list = opt->value;
    if (list->count == list->max)
        return command_error(cmd, "too many values for --%s (at most %u)", opt->name, list->max);
    list->texts[list->count++] = text;
    return 0;
}

static int set_switch(const command *cmd, const option *opt, const char *text)
{
    bool is_on = strcmp(text, "on") == 0;
    if (!is_on && strcmp(text, "off") != 0)
        return command_error(cmd, "invalid value \"%s\" for --%s (expected on or off)", text,
                             opt->name);
    *(bool *)opt->value = is_on;
    return 0;
}

int option_set(const command *cmd, const option *opt, const char *text)
{
    if (opt->is_given)
        *opt->is_given = true;
    switch (opt->kind) {
    case OPTION_SWITCH:
        return set_switch(cmd, opt, text);
    case OPTION_TEXT:
        *(const char **)opt->value = text;
        return 0;
    case OPTION_LIST:
        return add_text(cmd, opt, text);
    case OPTION_CHOICE:
        return set_choice(cmd, opt, text);
    default:
        return set_number(cmd, opt, text);
    }
}

/* ---- one command line --------------------------------------------------- */

const option *option_find(const command *cmd, const char *name)
{
    for (const option *opt = cmd->options; opt && opt->name; opt++)
        if (strcmp(opt->name, name) == 0)
            return opt;
    return NULL;
}

static int unknown_option(const command *cmd, const char *name)
{
    nearest near = nearest_to(name);
    for (const option *opt = cmd->options; opt && opt->name; opt++)
        nearest_offer(&near, opt->name);
    if (nearest_name(&near))
        return command_error(cmd, "unknown option --%s; did you mean --%s?", name,
                             nearest_name(&near));
    return command_error(cmd, "unknown option --%s; see quire %s --help", name, cmd->name);
}

static int take_value(const command *cmd, const option *opt, const char *text)
{
    bool is_list = cmd->lists != NULL && opt >= cmd->lists;
    return is_list ? cmd->take_list(opt, text) : option_set(cmd, opt, text);
}

/* Takes the option at argv[*at], and moves *at on where its value is an argument of its own. */
static int parse_option(const command *cmd, int argc, char **argv, int *at)
{
    char name[MAX_NAME];
    const char *text = argv[*at] + 2;
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    if (length >= sizeof name)
        return command_error(cmd, "unknown option %s", argv[*at]);
    memcpy(name, text, length);
    name[length] = '\0';

    const option *opt = option_find(cmd, name);
    bool is_on = true;
    if (!opt && strncmp(name, "no-", 3) == 0) {
        opt = option_find(cmd, name + 3);
        is_on = false;
    }
    if (!opt || (!is_on && opt->kind != OPTION_SWITCH))
        return unknown_option(cmd, name);
    bool is_list = cmd->lists != NULL && opt >= cmd->lists;
    if (opt->kind == OPTION_SWITCH && !equals)
        return take_value(cmd, opt, is_on ? "on" : "off");
    if (opt->kind == OPTION_SWITCH && !(is_list && is_on))
        return command_error(cmd, "--%s takes no value (use --%s or --no-%s)", name, opt->name,
                             opt->name);
    if (equals)
        return take_value(cmd, opt, equals + 1);
    /* An option in the place of a value is a forgotten value; --name=--text says it is meant. */
    if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
        return command_error(cmd, "--%s needs a value: %s", name,
                             opt->argument ? opt->argument : "VALUE");
    return take_value(cmd, opt, argv[++*at]);
}

static int take_argument(command *cmd, const char *text)
{
    if (cmd->num_arguments == cmd->max_arguments)
        return command_error(cmd, "unexpected argument \"%s\"; usage: quire %s", text, cmd->usage);
    cmd->arguments[cmd->num_arguments++] = text;
    return 0;
}

int command_parse(command *cmd, int argc, char **argv)
{
    bool only_arguments = false;
    cmd->num_arguments = 0;
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        int status = 0;
        if (only_arguments || text[0] != '-' || text[1] == '\0') {
            status = take_argument(cmd, text);
        } else if (strcmp(text, "--") == 0) {
            only_arguments = true;
        } else if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0) {
            command_help(cmd);
            return 1;
        } else if (text[1] != '-') {
            status = command_error(cmd, "unknown option %s; long options begin with --", text);
        } else {
            status = parse_option(cmd, argc, argv, &i);
        }
        if (status != 0)
            return status + 1;
    }
    file_uses all = {.cmd = cmd};
    file_uses_add_command(&all);
    int status = file_uses_check(&all);
    file_uses_free(&all);
    return status == 0 ? 0 : status + 1;
}

/* ---- commands with parts -------------------------------------------------- */

const char *command_word(const command *cmd)
{
    const char *space = strrchr(cmd->name, ' ');
    return space ? space + 1 : cmd->name;
}

command *command_find_part(const command *cmd, const char *name)
{
    for (int i = 0; cmd->parts && cmd->parts[i]; i++)
        if (strcmp(command_word(cmd->parts[i]), name) == 0)
            return cmd->parts[i];
    return NULL;
}

static int unknown_part(const command *cmd, const char *name)
{
    nearest near = nearest_to(name);
    for (int i = 0; cmd->parts[i]; i++)
        nearest_offer(&near, command_word(cmd->parts[i]));
    if (nearest_name(&near))
        return command_error(cmd, "unknown command \"%s\"; did you mean %s?", name,
                             nearest_name(&near));
    return command_error(cmd, "unknown command \"%s\"; see quire %s --help", name, cmd->name);
}

static int run_part(const command *cmd, int argc, char **argv)
{
    if (argc < 2)
        return command_error(cmd, "%s", cmd->missing);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        command_help(cmd);
        return 0;
    }
    if (argv[1][0] == '-')
        return command_error(cmd, "unknown option %s; see quire %s --help", argv[1], cmd->name);
    command *part = command_find_part(cmd, argv[1]);
    return part ? command_run(part, argc - 1, argv + 1) : unknown_part(cmd, argv[1]);
}

int command_run(command *cmd, int argc, char **argv)
{
    if (cmd->parts)
        return run_part(cmd, argc, argv);
    if (cmd->run_line)
        return cmd->run_line(argc, argv);
    int leave = command_parse(cmd, argc, argv);
    if (leave != 0)
        return leave - 1;
    int min_arguments = cmd->min_arguments > 0 ? cmd->min_arguments : cmd->max_arguments;
    if (cmd->missing && cmd->num_arguments < min_arguments)
        return command_error(cmd, "%s", cmd->missing);
    return cmd->run();
}

/* ---- help --------------------------------------------------------------- */

/* Prints words, and begins a new line under `indent` where the next one would pass the width. */
static int print_words(const char *text, int column, int indent)
{
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > indent && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        column += printf("%s%.*s", column > indent ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    return column;
}

static void print_option(const option *opt)
{
    char tail[512] = "";
    size_t used = 0;
    int column = printf("  --%s%s%s%s", opt->kind == OPTION_SWITCH ? "[no-]" : "", opt->name,
                        opt->argument ? " " : "", opt->argument ? opt->argument : "");
    if (column >= HELP_COLUMN)
        printf("\n%*s", HELP_COLUMN, "");
    else
        printf("%*s", HELP_COLUMN - column, "");
    column = print_words(opt->help, HELP_COLUMN, HELP_COLUMN);
    for (size_t i = 0; opt->choices && opt->choices[i] && used < sizeof tail; i++)
        used += (size_t)snprintf(tail + used, sizeof tail - used, "%s%s", i == 0 ? ": " : ", ",
                                 opt->choices[i]);
    if (opt->def && used < sizeof tail)
        snprintf(tail + used, sizeof tail - used, "%s(default: %s)", used ? " " : "", opt->def);
    if (tail[0] == ':')
        putchar(':');
    print_words(tail + (tail[0] == ':' ? 2 : 0), column, HELP_COLUMN);
    putchar('\n');
}

void command_help(const command *cmd)
{
    bool has_section = false;
    bool has_number = false;
    printf("usage: quire %s\n\n", cmd->usage);
    print_words(cmd->summary, 0, 0);
    printf("\n");
    for (int i = 0; cmd->parts && cmd->parts[i]; i++)
        printf("%s  %-12s %s\n", i == 0 ? "\nCommands:\n" : "", command_word(cmd->parts[i]),
               cmd->parts[i]->summary);
    if (cmd->parts)
        printf("\nquire %s COMMAND --help shows the options of one.\n", cmd->name);
    for (const option *opt = cmd->options; opt && opt->name; opt++) {
        if (opt->section || !has_section)
            printf("\n%s:\n", opt->section ? opt->section : "Options");
        has_section = true;
        has_number = has_number || option_is_number(opt);
        print_option(opt);
    }
    if (has_number)
        printf("\nNumbers take k, M, G, T (1,000) and Ki, Mi, Gi, Ti (1,024): 64k, 1.5M, 2Gi.\n");
    if (cmd->examples)
        printf("\nExamples:\n%s%s", cmd->examples,
               cmd->examples[strlen(cmd->examples) - 1] == '\n' ? "" : "\n");
}

/* cli/options/options.h - one table of options for a command: parsing, --help, completion and man
 * page.
 *
 *      static const option table[] = {
 *          {"block-size", OPTION_U32, &o.block_size, "TOKENS", "tokens of a block", .def = "16"},
 *          {"enable-prefix-caching", OPTION_SWITCH, &o.caching, NULL, "find shared prefixes",
 *           .def = "on"},
 *          {0}};
 *
 * --name VALUE and --name=VALUE; a switch is --name or --no-name. Numbers take k, M, G, T (1,000)
 * and Ki, Mi, Gi, Ti (1,024). A value that does not fit is a sentence with option, value and what
 * is allowed; an unknown option names the nearest known one. "--": only arguments follow. A list
 * takes its option several times, or names with commas between them.
 *
 * An option whose argument is FILE names a file. If a file that the command writes is also one that
 * it reads, or is written twice, the command line is refused (file_uses.h).
 */
#ifndef QUIRE_CLI_OPTIONS_H
#define QUIRE_CLI_OPTIONS_H

#include <quire/error.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum option_kind {
    OPTION_SWITCH, /* bool */
    OPTION_U32,    /* uint32_t */
    OPTION_U64,    /* uint64_t */
    OPTION_REAL,   /* double */
    OPTION_TEXT,   /* const char * */
    OPTION_LIST,   /* option_list */
    OPTION_CHOICE  /* int: the place in choices */
} option_kind;

/* What a result owes to an option: see made_by.h. */
typedef enum option_role {
    OPTION_SETTING = 0, /* it may change a result: every result names it and its value */
    OPTION_OUTPUT,      /* a FILE that is written, or how a result is shown: no result names it */
    OPTION_ADDITION /* a FILE that is written, and adds to the result: named, without its path */
} option_role;

/* Texts as they were given, each perhaps several names with commas between them. */
typedef struct option_list {
    const char **texts; /* room for max */
    uint32_t max;
    uint32_t count;
} option_list;

typedef struct option {
    const char *name;
    option_kind kind;
    void *value;
    const char *argument; /* its name in the help: "TOKENS" */
    const char *help;
    const char *def;            /* shown in the help; the value itself is set by the caller */
    const char *const *choices; /* NULL at the end */
    double min;                 /* of numbers; so those below 0 must be asked for */
    double max;                 /* 0: no limit but the type's */
    const char *section;        /* begins a section of the help */
    bool *is_given;             /* set to true when it was given; may be NULL */
    option_role role;
    bool is_rare;    /* results name it only where it was given */
    bool has_commas; /* a value may have commas: lists of values are separated by semicolons */
    const char *(*preset)(uint32_t i); /* for completion: values known by name; NULL at the end */
} option;

enum { COMMAND_MAX_WORDS = 16 };

typedef struct command {
    const char *name;
    const char *usage;    /* "replay [OPTION]... TRACE" */
    const char *summary;  /* one line */
    const char *examples; /* lines "  quire replay ...", with what they do */
    const option *options;
    const char *arguments[COMMAND_MAX_WORDS]; /* filled in: what is no option */
    int max_arguments;
    int min_arguments; /* 0: max_arguments */
    int num_arguments;
    bool reads_arguments; /* they are files, or - for standard input */
    const char *missing;  /* the sentence for fewer than min_arguments; NULL: fewer are fine */
    int (*run)(void);     /* an exit status: 0, 1 when its work failed, 2 for a wrong call */
    int (*run_line)(int argc, char **argv); /* instead of run: parses the command line itself */
    /* The options from this row on may have several values: take_list gets their texts, and nothing
     * is set. A switch is then --name, --no-name or --name=on,off. NULL: none may. */
    const option *lists;
    int (*take_list)(const option *opt, const char *text); /* 0, or an exit status */
    /* For completion: the words that argument 1, 2 may be, NULL at the end. NULL: a file. */
    const char *const *words[COMMAND_MAX_WORDS];
    /* The commands that its first argument names, NULL at the end; it has no options itself. The
     * name of each begins with its own: "trace info" of "trace". NULL: it has none. */
    struct command *const *parts;
} command;

/* argv[0] is the command's name. 0: parsed. Else an exit status + 1 to leave with: help was
 * printed, or a sentence on stderr. */
int command_parse(command *cmd, int argc, char **argv);
/* Parses and runs, a part of the command where it has parts: an exit status. */
int command_run(command *cmd, int argc, char **argv);
/* The part of that name, without the command's own; NULL: none. */
command *command_find_part(const command *cmd, const char *name);
/* The last word of the name: "info" of "trace info". */
const char *command_word(const command *cmd);
/* Sets one option as on a command line; a switch takes on and off. 0, or an exit status. */
int option_set(const command *cmd, const option *opt, const char *text);
/* The option of that name; NULL: none. */
const option *option_find(const command *cmd, const char *name);
bool option_is_number(const option *opt);
/* The number of a text that such an option takes, with its suffix. */
double option_number(const char *text);
/* Usage, options and examples, or the parts of the command. */
void command_help(const command *cmd);
/* A sentence on stderr, "quire replay: ...", and the exit status. */
enum { COMMAND_FAILED = 1, COMMAND_WRONG_CALL = 2 };
int command_say(const command *cmd, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define command_error(cmd, ...)  command_say(cmd, COMMAND_WRONG_CALL, __VA_ARGS__)
#define command_failed(cmd, ...) command_say(cmd, COMMAND_FAILED, __VA_ARGS__)

/* A status of the library as a sentence, with the field where the library names one. Right after
 * the call that returned it. */
static inline const char *why_refused(int status)
{
    int is_named = status == QUIRE_E_CONFIG || status == QUIRE_E_UNKNOWN_NAME;
    return is_named && quire_refusal()[0] != '\0' ? quire_refusal() : quire_strerror(status);
}

#endif

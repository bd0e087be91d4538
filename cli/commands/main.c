/* main.c - `quire COMMAND ...`: finds the command and runs it. */
#include "commands.h"
#include "options/completion.h"
#include "options/nearest.h"
#include "output/output.h"

#include <quire/version.h>

#include <stdio.h>
#include <string.h>

typedef struct entry {
    int (*run)(int argc, char **argv);
    const command *(*describe)(void);
} entry;

#define COMMAND(name)                                                                              \
    {                                                                                              \
        cmd_##name, cmd_##name##_command                                                           \
    }

static const entry entries[] = {
    COMMAND(replay),  COMMAND(serve), COMMAND(events),   COMMAND(sweep), COMMAND(curve),
    COMMAND(compare), COMMAND(rerun), COMMAND(generate), COMMAND(plan),  COMMAND(time),
    COMMAND(view),    COMMAND(bench), COMMAND(tier),
};

enum { NUM_ENTRIES = sizeof entries / sizeof *entries };

static const entry *find_entry(const char *name)
{
    for (int i = 0; i < NUM_ENTRIES; i++)
        if (strcmp(entries[i].describe()->name, name) == 0)
            return &entries[i];
    return NULL;
}

static void print_overview(void)
{
    printf("usage: quire COMMAND [OPTION]... [ARGUMENT]...\n\n"
           "The memory manager and scheduler of an LLM engine, on traces instead of GPUs.\n\n"
           "Commands:\n");
    for (int i = 0; i < NUM_ENTRIES; i++)
        printf("  %-12s %s\n", entries[i].describe()->name, entries[i].describe()->summary);
    printf("  %-12s %s\n", "help", "what a command does, with its options (quire help COMMAND)");
    printf("  %-12s %s\n", "completion", "a script for the shell: bash, zsh or fish");
    printf("  %-12s %s\n", "man", "the manual page, as roff\n");
    printf("quire COMMAND --help shows its options; quire --version prints the version.\n");
}

static int unknown_command(const char *name)
{
    nearest near = nearest_to(name);
    for (int i = 0; i < NUM_ENTRIES; i++)
        nearest_offer(&near, entries[i].describe()->name);
    nearest_offer(&near, "help");
    nearest_offer(&near, "completion");
    nearest_offer(&near, "man");
    if (nearest_name(&near))
        fprintf(stderr, "quire: unknown command \"%s\"; did you mean %s?\n", name,
                nearest_name(&near));
    else
        fprintf(stderr, "quire: unknown command \"%s\"; see quire --help\n", name);
    return 2;
}

static int print_help(int argc, char **argv)
{
    if (argc < 2) {
        print_overview();
        return 0;
    }
    const entry *found = find_entry(argv[1]);
    if (!found)
        return unknown_command(argv[1]);
    command_help(found->describe());
    return 0;
}

static int print_pages(int argc, char **argv)
{
    const command *commands[NUM_ENTRIES + 1];
    for (int i = 0; i < NUM_ENTRIES; i++)
        commands[i] = entries[i].describe();
    commands[NUM_ENTRIES] = NULL;
    if (strcmp(argv[0], "man") == 0) {
        man_print(commands);
        return 0;
    }
    if (argc == 2 && completion_print(commands, argv[1]))
        return 0;
    fprintf(stderr, "quire completion: expected bash, zsh or fish\n");
    return 2;
}

/* What was asked for is on its way only when the last byte is written: a full disk is an error. */
static int finish(int status)
{
    outputs_discard(); /* of a command that failed */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("quire: standard output");
        return status ? status : 1;
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview();
        return finish(2);
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_overview();
        return finish(0);
    }
    if (strcmp(name, "--version") == 0) {
        printf("quire %s\n", quire_version_string());
        return finish(0);
    }
    if (strcmp(name, "help") == 0)
        return finish(print_help(argc - 1, argv + 1));
    if (strcmp(name, "completion") == 0 || strcmp(name, "man") == 0)
        return finish(print_pages(argc - 1, argv + 1));
    const entry *found = find_entry(name);
    return found ? finish(found->run(argc - 1, argv + 1)) : unknown_command(name);
}

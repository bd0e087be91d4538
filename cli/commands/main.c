/* main.c - `quire COMMAND ...`: finds the command and runs it. */
#include "commands.h"
#include "options/completion.h"
#include "options/nearest.h"
#include "output/output.h"

#include <quire/version.h>

#include <stdio.h>
#include <string.h>

static command *const commands[] = {
    &cmd_replay, &cmd_fleet,   &cmd_size,  &cmd_serve,    &cmd_events, &cmd_sweep,
    &cmd_curve,  &cmd_compare, &cmd_rerun, &cmd_generate, &cmd_trace,  &cmd_plan,
    &cmd_time,   &cmd_view,    &cmd_bench, &cmd_tier,     &cmd_verify, NULL};

static command *find_command(const char *name)
{
    for (int i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static void print_overview(void)
{
    printf("usage: quire COMMAND [OPTION]... [ARGUMENT]...\n\n"
           "The memory manager and scheduler of an LLM engine, on traces instead of GPUs.\n\n"
           "Commands:\n");
    for (int i = 0; commands[i]; i++)
        printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    printf("  %-12s %s\n", "help", "what a command does, with its options (quire help COMMAND)");
    printf("  %-12s %s\n", "completion", "a script for the shell: bash, zsh or fish");
    printf("  %-12s %s\n", "man", "the manual page, as roff\n");
    printf("quire COMMAND --help shows its options; quire --version prints the version.\n");
}

static int unknown_command(const char *name)
{
    nearest near = nearest_to(name);
    for (int i = 0; commands[i]; i++)
        nearest_offer(&near, commands[i]->name);
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
    const command *found = find_command(argv[1]);
    if (!found)
        return unknown_command(argv[1]);
    const command *part = argc > 2 ? command_find_part(found, argv[2]) : NULL;
    command_help(part ? part : found);
    return 0;
}

static int print_pages(int argc, char **argv)
{
    if (strcmp(argv[0], "man") == 0) {
        man_print((const command *const *)commands);
        return 0;
    }
    if (argc == 2 && completion_print((const command *const *)commands, argv[1]))
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
    command *found = find_command(name);
    return found ? finish(command_run(found, argc - 1, argv + 1)) : unknown_command(name);
}

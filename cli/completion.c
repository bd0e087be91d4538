/* completion.c - one function for each shell, one for the manual page.
 *
 * Each walks the same tables: commands, their options, the choices of an option. What takes free
 * text is completed as a file name, since most of it is one.
 */
#include "completion.h"

#include <quire/version.h>

#include <stdio.h>
#include <string.h>

static const char *const own_words = "help completion man";

/* ---- bash --------------------------------------------------------------- */

static void bash_command(const command *cmd)
{
    printf("    %s)\n        case $prev in\n", cmd->name);
    for (const option *opt = cmd->options; opt && opt->name; opt++) {
        if (opt->kind == OPTION_CHOICE) {
            printf("        --%s) COMPREPLY=($(compgen -W '", opt->name);
            for (size_t i = 0; opt->choices[i]; i++)
                printf("%s%s", i ? " " : "", opt->choices[i]);
            printf("' -- \"$cur\")); return ;;\n");
        } else if (opt->kind != OPTION_SWITCH && opt->kind != OPTION_TEXT) {
            printf("        --%s) return ;;\n", opt->name); /* a number: nothing to offer */
        } else if (opt->kind == OPTION_TEXT) {
            printf("        --%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", opt->name);
        }
    }
    printf("        esac\n        words='");
    for (const option *opt = cmd->options; opt && opt->name; opt++) {
        printf("--%s ", opt->name);
        if (opt->kind == OPTION_SWITCH)
            printf("--no-%s ", opt->name);
    }
    printf("--help' ;;\n");
}

static void bash_print(const command *const *commands)
{
    printf("# bash completion of quire\n"
           "_quire() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; commands[i]; i++)
        printf("%s ", commands[i]->name);
    printf("%s --help --version' -- \"$cur\"))\n"
           "        return\n"
           "    fi\n"
           "    case ${COMP_WORDS[1]} in\n"
           "    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$cur\")); return ;;\n"
           "    help) words='",
           own_words);
    for (size_t i = 0; commands[i]; i++)
        printf("%s%s", i ? " " : "", commands[i]->name);
    printf("'; COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n");
    for (size_t i = 0; commands[i]; i++)
        bash_command(commands[i]);
    printf("    esac\n"
           "    case $cur in\n"
           "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
           "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
           "    esac\n"
           "}\n"
           "complete -o filenames -F _quire quire\n");
}

/* ---- zsh and fish ------------------------------------------------------- */

/* Text inside single quotes, with what the shell would understand otherwise taken away. */
static void print_quoted(const char *text, const char *unwanted)
{
    for (; *text; text++)
        if (!strchr(unwanted, *text))
            putchar(*text);
}

static void zsh_option(const option *opt)
{
    printf("            '--%s", opt->name);
    if (opt->kind == OPTION_SWITCH) {
        printf("[");
        print_quoted(opt->help, "'[]:");
        printf("]' '--no-%s[not: ", opt->name);
        print_quoted(opt->help, "'[]:");
        printf("]'");
    } else {
        printf("=[");
        print_quoted(opt->help, "'[]:");
        printf("]:%s:", opt->argument ? opt->argument : "value");
        if (opt->kind == OPTION_TEXT)
            printf("_files");
        if (opt->kind == OPTION_CHOICE) {
            printf("(");
            for (size_t i = 0; opt->choices[i]; i++)
                printf("%s%s", i ? " " : "", opt->choices[i]);
            printf(")");
        }
        printf("'");
    }
    printf(" \\\n");
}

static void zsh_print(const command *const *commands)
{
    printf("#compdef quire\n"
           "_quire() {\n"
           "    if (( CURRENT == 2 )); then\n"
           "        local -a names=(");
    for (size_t i = 0; commands[i]; i++) {
        printf("'%s:", commands[i]->name);
        print_quoted(commands[i]->summary, "':");
        printf("' ");
    }
    printf("%s)\n"
           "        _describe command names\n"
           "        return\n"
           "    fi\n"
           "    local name=$words[2]\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $name in\n"
           "    completion) _values shell bash zsh fish ;;\n",
           own_words);
    for (size_t i = 0; commands[i]; i++) {
        printf("    %s)\n        _arguments \\\n", commands[i]->name);
        for (const option *opt = commands[i]->options; opt && opt->name; opt++)
            zsh_option(opt);
        printf("            '--help[what it does]' '*:file:_files' ;;\n");
    }
    printf("    esac\n}\n_quire \"$@\"\n");
}

static void fish_option(const char *name, const option *opt, const char *prefix)
{
    printf("complete -c quire -n '__fish_seen_subcommand_from %s' -l '%s%s'", name, prefix,
           opt->name);
    if (opt->kind == OPTION_CHOICE) {
        printf(" -x -a '");
        for (size_t i = 0; opt->choices[i]; i++)
            printf("%s%s", i ? " " : "", opt->choices[i]);
        printf("'");
    } else if (opt->kind == OPTION_TEXT) {
        printf(" -r -F");
    } else if (opt->kind != OPTION_SWITCH) {
        printf(" -x");
    }
    printf(" -d '%s", prefix[0] ? "not: " : "");
    print_quoted(opt->help, "'");
    printf("'\n");
}

static void fish_print(const command *const *commands)
{
    printf("# fish completion of quire\n");
    for (size_t i = 0; commands[i]; i++) {
        printf("complete -c quire -f -n __fish_use_subcommand -a '%s' -d '", commands[i]->name);
        print_quoted(commands[i]->summary, "'");
        printf("'\n");
    }
    printf("complete -c quire -f -n __fish_use_subcommand -a '%s'\n", own_words);
    printf("complete -c quire -f -n '__fish_seen_subcommand_from completion' "
           "-a 'bash zsh fish'\n");
    for (size_t i = 0; commands[i]; i++) {
        for (const option *opt = commands[i]->options; opt && opt->name; opt++) {
            fish_option(commands[i]->name, opt, "");
            if (opt->kind == OPTION_SWITCH)
                fish_option(commands[i]->name, opt, "no-");
        }
    }
}

bool completion_print(const command *const *commands, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        bash_print(commands);
    else if (strcmp(shell, "zsh") == 0)
        zsh_print(commands);
    else if (strcmp(shell, "fish") == 0)
        fish_print(commands);
    else
        return false;
    return true;
}

/* ---- manual page -------------------------------------------------------- */

/* Roff reads a backslash, and a dot or a quote at the beginning of a line, as its own; and a plain
 * hyphen as one that may be broken at. */
static void print_roff(const char *text)
{
    bool is_first = true;
    for (; *text; text++) {
        if (is_first && (*text == '.' || *text == '\''))
            printf("\\&");
        if (*text == '\\')
            printf("\\e");
        else if (*text == '-')
            printf("\\-");
        else
            putchar(*text);
        is_first = *text == '\n';
    }
}

static void man_option(const option *opt)
{
    printf(".TP\n\\fB\\-\\-%s", opt->kind == OPTION_SWITCH ? "[no\\-]" : "");
    print_roff(opt->name);
    printf("\\fR");
    if (opt->argument)
        printf(" \\fI%s\\fR", opt->argument);
    printf("\n");
    print_roff(opt->help);
    for (size_t i = 0; opt->choices && opt->choices[i]; i++) {
        printf("%s", i == 0 ? ": " : ", ");
        print_roff(opt->choices[i]);
    }
    if (opt->def) {
        printf(" (default: ");
        print_roff(opt->def);
        printf(")");
    }
    printf("\n");
}

static void man_command(const command *cmd)
{
    printf(".SS quire ");
    print_roff(cmd->usage);
    printf("\n");
    print_roff(cmd->summary);
    printf("\n");
    for (const option *opt = cmd->options; opt && opt->name; opt++) {
        if (opt->section) {
            printf(".PP\n\\fI");
            print_roff(opt->section);
            printf("\\fR\n");
        }
        man_option(opt);
    }
    if (cmd->examples) {
        printf(".PP\nExamples:\n.PP\n.nf\n");
        print_roff(cmd->examples);
        printf("\n.fi\n");
    }
}

void man_print(const command *const *commands)
{
    printf(".TH QUIRE 1 \"\" \"quire %s\" \"Quire\"\n"
           ".SH NAME\n"
           "quire \\- the memory manager and scheduler of an LLM engine, on traces\n"
           ".SH SYNOPSIS\n"
           ".B quire\n"
           "\\fICOMMAND\\fR [\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...\n"
           ".SH DESCRIPTION\n"
           "Runs the scheduler and the KV cache of the library on recorded or made traffic, with\n"
           "the time of the GPU taken from a model of it.\n"
           "Numbers take k, M, G and T (1,000) and Ki, Mi, Gi and Ti (1,024).\n"
           ".SH COMMANDS\n",
           quire_version_string());
    for (size_t i = 0; commands[i]; i++)
        man_command(commands[i]);
    printf(
        ".SH EXIT STATUS\n"
        "0: done; 1: the work failed; 2: a wrong call. A sentence on standard error says why.\n");
}

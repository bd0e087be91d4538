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

/* ---- what may stand where ------------------------------------------------- */

static bool has_words(const option *opt)
{
    return opt->kind == OPTION_CHOICE || opt->preset != NULL;
}

/* The values that an option may have by name. */
static void print_values(const option *opt)
{
    for (uint32_t i = 0; opt->preset && opt->preset(i); i++)
        printf("%s%s", i ? " " : "", opt->preset(i));
    for (size_t i = 0; opt->choices && opt->choices[i]; i++)
        printf("%s%s", i ? " " : "", opt->choices[i]);
}

/* An option with presets takes a file too where its argument says so: --model NAME|FILE. */
static bool takes_files(const option *opt)
{
    return opt->kind == OPTION_TEXT &&
           (!opt->preset || (opt->argument && strstr(opt->argument, "FILE")));
}

static void print_words(const char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        printf("%s%s", i ? " " : "", words[i]);
}

/* Text inside single quotes; `unwanted` is what the shell's own format would read otherwise. */
static void print_quoted(const char *text, const char *unwanted, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs(quote, stdout);
        else if (!strchr(unwanted, *text))
            putchar(*text);
    }
}

#define SH_QUOTE   "'\\''" /* end the text, a quote, begin it again */
#define FISH_QUOTE "\\'"

/* ---- bash --------------------------------------------------------------- */

static void bash_option(const option *opt)
{
    printf("        --%s)", opt->name);
    if (has_words(opt)) {
        printf(" COMPREPLY=($(compgen -W '");
        print_values(opt);
        printf("' -- \"$cur\")%s);", takes_files(opt) ? " $(compgen -f -- \"$cur\")" : "");
    } else if (opt->kind == OPTION_TEXT) {
        printf(" COMPREPLY=($(compgen -f -- \"$cur\"));");
    } /* a number: nothing to offer */
    printf(" return ;;\n");
}

static void bash_command(const command *cmd);

/* What follows is one level deeper: the word behind the command says which. */
static void bash_parts(const command *cmd)
{
    printf("    %s)\n        if [ \"$COMP_CWORD\" -eq 2 ]; then\n            COMPREPLY=($(compgen "
           "-W '",
           cmd->name);
    for (int i = 0; cmd->parts[i]; i++)
        printf("%s ", command_word(cmd->parts[i]));
    printf("--help' -- \"$cur\"))\n            return\n        fi\n"
           "        case ${COMP_WORDS[2]} in\n");
    for (int i = 0; cmd->parts[i]; i++)
        bash_command(cmd->parts[i]);
    printf("        esac\n        ;;\n");
}

static void bash_command(const command *cmd)
{
    if (cmd->parts) {
        bash_parts(cmd);
        return;
    }
    printf("    %s)\n        case $prev in\n", command_word(cmd));
    for (const option *opt = cmd->options; opt && opt->name; opt++)
        if (opt->kind != OPTION_SWITCH)
            bash_option(opt);
    printf("        esac\n        words='");
    for (const option *opt = cmd->options; opt && opt->name; opt++) {
        printf("--%s ", opt->name);
        if (opt->kind == OPTION_SWITCH)
            printf("--no-%s ", opt->name);
    }
    printf("--help'\n");
    for (int i = 0; i < COMMAND_MAX_WORDS && cmd->words[i]; i++) {
        printf("        named[%d]='", i);
        print_words(cmd->words[i]);
        printf("'\n");
    }
    printf("        ;;\n");
}

static void bash_print(const command *const *commands)
{
    printf("# bash completion of quire\n"
           "_quire() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
           "    local -a named=()\n"
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
           "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n"
           "    esac\n"
           "    if [ -n \"${named[COMP_CWORD-2]}\" ]; then\n"
           "        COMPREPLY=($(compgen -W \"${named[COMP_CWORD-2]}\" -- \"$cur\"))\n"
           "    elif [ ${#named[@]} -eq 0 ]; then\n"
           "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
           "    fi\n"
           "}\n"
           "complete -o filenames -F _quire quire\n");
}

/* ---- zsh ---------------------------------------------------------------- */

static void zsh_option(const option *opt)
{
    printf("            '--%s", opt->name);
    if (opt->kind == OPTION_SWITCH) {
        printf("[");
        print_quoted(opt->help, "[]:", SH_QUOTE);
        printf("]' '--no-%s[not: ", opt->name);
        print_quoted(opt->help, "[]:", SH_QUOTE);
        printf("]'");
    } else {
        printf("=[");
        print_quoted(opt->help, "[]:", SH_QUOTE);
        printf("]:%s:", opt->argument ? opt->argument : "value");
        if (has_words(opt) && takes_files(opt)) {
            printf("{compadd -- ");
            print_values(opt);
            printf("; _files}");
        } else if (has_words(opt)) {
            printf("(");
            print_values(opt);
            printf(")");
        } else if (opt->kind == OPTION_TEXT) {
            printf("_files");
        }
        printf("'");
    }
    printf(" \\\n");
}

static void zsh_arguments(const command *cmd)
{
    for (int i = 0; i < COMMAND_MAX_WORDS && cmd->words[i]; i++) {
        printf("            '%d:word:(", i + 1);
        print_words(cmd->words[i]);
        printf(")' \\\n");
    }
    printf("            '--help[what it does]'%s ;;\n", cmd->words[0] ? "" : " '*:file:_files'");
}

static void zsh_command(const command *cmd)
{
    printf("        _arguments \\\n");
    for (const option *opt = cmd->options; opt && opt->name; opt++)
        zsh_option(opt);
    zsh_arguments(cmd);
}

static void zsh_names(const command *const *commands)
{
    for (size_t i = 0; commands[i]; i++) {
        printf("'%s:", command_word(commands[i]));
        print_quoted(commands[i]->summary, ":", SH_QUOTE);
        printf("' ");
    }
}

static void zsh_parts(const command *cmd)
{
    printf("        if (( CURRENT == 2 )); then\n            local -a parts=(");
    zsh_names((const command *const *)cmd->parts);
    printf(")\n            _describe command parts\n            return\n        fi\n"
           "        local part=$words[2]\n        shift words\n        (( CURRENT-- ))\n"
           "        case $part in\n");
    for (int i = 0; cmd->parts[i]; i++) {
        printf("    %s)\n", command_word(cmd->parts[i]));
        zsh_command(cmd->parts[i]);
    }
    printf("        esac ;;\n");
}

static void zsh_print(const command *const *commands)
{
    printf("#compdef quire\n"
           "_quire() {\n"
           "    if (( CURRENT == 2 )); then\n"
           "        local -a names=(");
    zsh_names(commands);
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
        printf("    %s)\n", commands[i]->name);
        if (commands[i]->parts)
            zsh_parts(commands[i]);
        else
            zsh_command(commands[i]);
    }
    printf("    esac\n}\n_quire \"$@\"\n");
}

/* ---- fish --------------------------------------------------------------- */

/* "__fish_seen_subcommand_from trace; and __fish_seen_subcommand_from info". */
static void fish_condition(const command *cmd)
{
    const char *word = command_word(cmd);
    if (word > cmd->name)
        printf("__fish_seen_subcommand_from %.*s; and ", (int)(word - cmd->name - 1), cmd->name);
    printf("__fish_seen_subcommand_from %s", word);
}

static void fish_option(const command *cmd, const option *opt, const char *prefix)
{
    printf("complete -c quire -n '");
    fish_condition(cmd);
    printf("' -l '%s%s'", prefix, opt->name);
    if (has_words(opt)) {
        printf("%s -a '", takes_files(opt) ? " -r -F" : " -x");
        print_values(opt);
        printf("'");
    } else if (opt->kind == OPTION_TEXT) {
        printf(" -r -F");
    } else if (opt->kind != OPTION_SWITCH) {
        printf(" -x");
    }
    printf(" -d '%s", prefix[0] ? "not: " : "");
    print_quoted(opt->help, "", FISH_QUOTE);
    printf("'\n");
}

/* The first argument where none of its words has come, the second where one of them has. */
static void fish_arguments(const command *cmd)
{
    for (int i = 0; i < COMMAND_MAX_WORDS && cmd->words[i]; i++) {
        printf("complete -c quire -f -n '__fish_seen_subcommand_from %s", cmd->name);
        for (int before = 0; before <= i; before++) {
            printf("; and %s__fish_seen_subcommand_from ", before < i ? "" : "not ");
            print_words(cmd->words[before]);
        }
        printf("' -a '");
        print_words(cmd->words[i]);
        printf("'\n");
    }
}

static void fish_command(const command *cmd)
{
    for (const option *opt = cmd->options; opt && opt->name; opt++) {
        fish_option(cmd, opt, "");
        if (opt->kind == OPTION_SWITCH)
            fish_option(cmd, opt, "no-");
    }
    fish_arguments(cmd);
}

/* The names of the parts, until one of them has come; then its options. */
static void fish_parts(const command *cmd)
{
    for (int i = 0; cmd->parts[i]; i++) {
        printf("complete -c quire -f -n '__fish_seen_subcommand_from %s; and not "
               "__fish_seen_subcommand_from",
               cmd->name);
        for (int other = 0; cmd->parts[other]; other++)
            printf(" %s", command_word(cmd->parts[other]));
        printf("' -a '%s' -d '", command_word(cmd->parts[i]));
        print_quoted(cmd->parts[i]->summary, "", FISH_QUOTE);
        printf("'\n");
        fish_command(cmd->parts[i]);
    }
}

static void fish_print(const command *const *commands)
{
    printf("# fish completion of quire\n");
    for (size_t i = 0; commands[i]; i++) {
        printf("complete -c quire -f -n __fish_use_subcommand -a '%s' -d '", commands[i]->name);
        print_quoted(commands[i]->summary, "", FISH_QUOTE);
        printf("'\n");
    }
    printf("complete -c quire -f -n __fish_use_subcommand -a '%s'\n", own_words);
    printf("complete -c quire -f -n '__fish_seen_subcommand_from completion' "
           "-a 'bash zsh fish'\n");
    for (size_t i = 0; commands[i]; i++) {
        if (commands[i]->parts)
            fish_parts(commands[i]);
        else
            fish_command(commands[i]);
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
    for (int i = 0; cmd->parts && cmd->parts[i]; i++)
        man_command(cmd->parts[i]);
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

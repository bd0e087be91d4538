/* cli/output/file_uses.h - no output of a command may be its input, or another output.
 *
 *      quire replay --csv trace.jsonl trace.jsonl
 *      quire replay: --csv (trace.jsonl) and the input (trace.jsonl) are the same file
 *
 * Two paths may name the same file through links, hard links and /proc/self/fd. Terminals and
 * devices (/dev/null) may be used twice. The check opens no file.
 */
#ifndef QUIRE_CLI_OUTPUT_FILE_USES_H
#define QUIRE_CLI_OUTPUT_FILE_USES_H

#include "options/options.h"
#include "trace/files.h"

/* A file that a command reads or writes. */
typedef struct file_use {
    const char *option; /* without --; NULL: an argument */
    const char *path;   /* "-": standard input or output */
    bool is_written;
} file_use;

typedef struct file_uses {
    const command *cmd;
    file_use *uses;
    uint32_t num_uses;
    uint32_t room;
    trace_files folders[COMMAND_MAX_WORDS]; /* their files are read */
    uint32_t num_folders;
    bool no_memory;
} file_uses;

/* path may be NULL: the option was not given. */
void file_uses_add(file_uses *all, const char *name, const char *path, bool is_written);
/* What the options and arguments of a command name, once they are parsed. An argument that is a
 * folder stands for its trace files. */
void file_uses_add_command(file_uses *all);
/* 0, or exit status 2 after a sentence. */
int file_uses_check(const file_uses *all);
void file_uses_free(file_uses *all);

/* Whether the value of an option is the path of a file: its argument is FILE. */
bool option_is_file(const option *opt);

#endif

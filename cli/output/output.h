/* cli/output/output.h - files that a command writes: whole, or not at all.
 *
 *      output_open     out.csv (of an earlier run)      .out.csv.quire-tmp-3f2a91c0 (empty)
 *      ... writes ...  out.csv (of an earlier run)      .out.csv.quire-tmp-3f2a91c0 (grows)
 *      outputs_commit  out.csv (of this run)
 *
 * A command opens all its outputs before its work begins and commits them together at the end: if
 * one of them cannot be written, all earlier files stay. outputs_discard, a signal that ends the
 * program, and the end of main remove the temporary files. After SIGKILL or a power failure the
 * temporary files remain beside the earlier files; they can be deleted.
 *
 * A link stays a link: the file that it leads to is replaced. The new file has the mode and, where
 * that is permitted, the owner of the earlier one. If the directory is not writable, or the file is
 * a mount point, the earlier file is overwritten at the commit instead. Standard output ("-" and
 * /dev/stdout), pipes, devices and /dev/fd/N are written directly.
 */
#ifndef QUIRE_CLI_OUTPUT_H
#define QUIRE_CLI_OUTPUT_H

#include "options/options.h"

#include <stdio.h>
#include <sys/stat.h>

enum { OUTPUT_MAX = 16 };

/* NULL, and a sentence (failure.h): "out.csv: cannot be written: Permission denied". The caller
 * does not close the file. It is stdout if the path is. */
FILE *output_open(const char *path);
/* A file that the command reads: from now on output_open refuses it. file_uses_check does this for
 * all files that a command line names. */
void output_protect(const struct stat *file);
/* The paths get what was written to all open outputs. 0, or -1 and a sentence, and then no earlier
 * file has changed (if the last step itself, the renaming, does not fail). Closes all. */
int outputs_commit(void);
/* What the row of an option that names an output points to; file is NULL where path is NULL. */
typedef struct output_file {
    const char *path;
    FILE *file;
} output_file;

/* Both for a command, with a sentence where they fail: 0, or 1. All its options that name an output
 * point to an output_file. */
int outputs_open_for(const command *cmd);
int outputs_commit_for(const command *cmd);
/* Closes all open outputs; earlier files stay. Does nothing when none is open. */
void outputs_discard(void);

#endif

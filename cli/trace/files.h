/* cli/trace/files.h - the trace files of a folder, and of the folders in it.
 *
 *      day/                       day/a.jsonl.zst
 *        b/part-0.csv.gz    ──►   day/b/part-0.csv.gz      in the order of their names
 *        a.jsonl.zst
 *        README.md                (no trace)
 *
 * A trace file ends with .jsonl, .json, .csv or .tar, then perhaps with .zst, .gz, .xz or .bz2.
 * Names that begin with a dot are passed over, and so are links to folders.
 */
#ifndef QUIRE_CLI_TRACE_FILES_H
#define QUIRE_CLI_TRACE_FILES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct trace_files {
    char **paths;
    uint32_t count;
    uint32_t room;
} trace_files;

bool trace_is_folder(const char *path);
/* The files of a folder, at least one. False, and a sentence (failure.h): it cannot be read, or has
 * none. */
bool trace_files_find(trace_files *files, const char *folder);
void trace_files_free(trace_files *files);

/* The paths of a command line as one name, "a.jsonl + day/", cut where it is too long. One path is
 * returned as it is. */
enum { TRACE_NAMES_BYTES = 1024 };
const char *trace_names(char names[TRACE_NAMES_BYTES], const char *const *paths,
                        uint32_t num_paths);

#endif

/* cli/output/packed.h - text into one output, packed as its name says.
 *
 *      packed_open("day.jsonl.zst") ──► packed_text ──► zstd ──► an output (output.h)
 *                  "day.jsonl.gz"                       gzip
 *                  anything else, "-"                   as it is
 *
 * The output is committed with packed_close. It is the command's only one.
 */
#ifndef QUIRE_CLI_OUTPUT_PACKED_H
#define QUIRE_CLI_OUTPUT_PACKED_H

#include <stdbool.h>
#include <stdio.h>

typedef struct packed_file packed_file;

/* "-": standard output. NULL, and a sentence (failure.h), when it cannot be written. The path stays
 * valid until the file is closed. */
packed_file *packed_open(const char *path);
/* What the text is written to. */
FILE *packed_text(const packed_file *file);
/* The path gets the file when this returns true; else, also after a write that failed, an earlier
 * file is still there, and there is a sentence. */
bool packed_close(packed_file *file);
/* Closes it; an earlier file stays. NULL: nothing. */
void packed_discard(packed_file *file);

#endif

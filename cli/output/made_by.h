/* cli/output/made_by.h - what made a result, in the result itself.
 *
 *      table of options ─┐
 *      version ──────────┼─► "made_by": {"program": "quire", "version": "0.1.0",
 *      trace ────────────┘       "command": "replay",
 *                                "options": {"model": "llama-3.1-8b", "tp": 4, ...},
 *                                "trace": {"path": "day.jsonl", "bytes": 812, "sha256": "09af..."},
 *                                "resolved": {"num-gpu-blocks": 56096, ...}}
 *
 * options    every row of the command's table but its outputs (OPTION_OUTPUT), so that a new option
 *            is in the record without further work. null: not set, and the program finds a value.
 *            A sweep has lists of values for the options that were given to it.
 * resolved   the values that the program found for options that are null.
 *
 * `quire rerun` reads the record and repeats the command.
 */
#ifndef QUIRE_CLI_OUTPUT_MADE_BY_H
#define QUIRE_CLI_OUTPUT_MADE_BY_H

#include "options/options.h"
#include "output.h"

#include <jansson.h>
#include <stdio.h>

/* The value that an option has now; NULL: no memory. */
json_t *option_json(const option *opt);

/* The record of a command that was parsed, without its trace. NULL: no memory. */
json_t *made_by(const command *cmd);
/* The record in one line, for JSON that is printed by hand. */
void made_by_print(FILE *out, const command *cmd);
/* The trace as it is now: path, bytes, sha256. Both are null where it is no regular file and no
 * folder. Of a folder: the hash of lines "HASH  NAME" for its trace files, and their bytes. */
json_t *made_by_trace(const char *path);
/* The same of several, with a record for each in "traces"; one trace is made_by_trace. */
json_t *made_by_traces(const char *const *paths, uint32_t num_paths);

/* Options of the record as pairs of texts for the page, `resolved` included. NULL: no memory. */
json_t *made_by_pairs(const json_t *record);

/* Writes {"made_by": ...} to PATH.meta.json, an output like others (output.h): CSV and JSON lines
 * have no place for it that readers would pass over. Does nothing where PATH is NULL, standard
 * output or a device. If the folder takes no new file, a sentence goes to stderr, and the result is
 * written all the same. */
void made_by_write_beside(const command *cmd, const json_t *record, const char *path);

#endif

/* cli/output/failure.h - why a call failed, as a sentence.
 *
 *      if (input_open(path) == NULL)
 *          return command_failed(cmd, "%s", failure());        "day.jsonl: cannot be opened: ..."
 *
 * Functions that say "or -1 and a sentence", "NULL, and a sentence" note it here, each thread its
 * own.
 */
#ifndef QUIRE_CLI_OUTPUT_FAILURE_H
#define QUIRE_CLI_OUTPUT_FAILURE_H

enum { FAILURE_BYTES = 1024 };

/* Notes the sentence, which may contain the one before. Returns -1. */
int fail_with(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The sentence that was noted last; "": none was. */
const char *failure(void);

#endif

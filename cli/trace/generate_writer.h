/* cli/trace/generate_writer.h - text into a file, packed with zstd if its name ends with .zst. */
#ifndef QUIRE_CLI_TRACE_GENERATE_WRITER_H
#define QUIRE_CLI_TRACE_GENERATE_WRITER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct generate_writer generate_writer;

enum { GENERATE_MESSAGE_BYTES = 512 };

/* "-": standard output. NULL, and a sentence in message, when it cannot be written. */
generate_writer *generate_writer_open(const char *path, char message[GENERATE_MESSAGE_BYTES]);
/* After a failure nothing more is written; close says so. */
void generate_write(generate_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The path gets the file when this returns true; else an earlier file is still there. */
bool generate_writer_close(generate_writer *writer, char message[GENERATE_MESSAGE_BYTES]);

#endif

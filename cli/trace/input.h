/* cli/trace/input.h - bytes of a file, whatever it is packed in.
 *
 *      plain ─┐              buffer
 *      zstd ──┼─► fill ─►  [....at=========end]0     input_line: up to the next newline
 *      gzip ──┘                 └─ input_ahead ─┘    input_skip: on
 *
 * How it is packed is told by its first bytes. Memory is bounded: the buffer holds one line, or
 * what the caller asks to see ahead, and at most INPUT_MAX_LINE_BYTES of it. A packed file that
 * ends too early or does not unpack is an error, never a shorter file.
 */
#ifndef QUIRE_CLI_TRACE_INPUT_H
#define QUIRE_CLI_TRACE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct input input;

enum { INPUT_MESSAGE_BYTES = 512, INPUT_MAX_LINE_BYTES = 64 << 20 };

/* "-": standard input. NULL, and a sentence (failure.h), when it cannot be read. */
input *input_open(const char *path);
/* The same from memory that stays valid: for tests. NULL: no memory. */
input *input_of_bytes(const void *bytes, size_t num_bytes);
void input_close(input *in);

/* Makes `want` bytes visible at input_bytes, and says how many are: fewer only at the end, after an
 * error, or past INPUT_MAX_LINE_BYTES. A 0 byte follows the last of them. */
size_t input_ahead(input *in, size_t want);
const char *input_bytes(const input *in);
/* Goes on by num_bytes of the visible ones. */
void input_skip(input *in, size_t num_bytes);

/* 1: a line without its end (LF or CR LF), valid until the next call, a 0 byte behind it; 0: the
 * end; -1: input_error. A byte order mark before the first line is not part of it. */
int input_line(input *in, char **line, size_t *length);
uint64_t input_line_number(const input *in); /* of the line last read, from 1 on */

const char *input_name(const input *in);
const char *input_error(const input *in); /* NULL: none */
/* The error is that the compressed data ends too early; all before it was seen. */
bool input_is_truncated(const input *in);
/* Bytes of the file itself that the caller has gone on by, and its size (0: not known). */
uint64_t input_position(const input *in);
uint64_t input_size(const input *in);

#endif

/* cli/trace/tar.h - the files of a tar archive, one after the other.
 *
 *      | header 512 | bytes of the file | zeros up to 512 | header ...        two zero headers: end
 *       name size checksum kind
 *
 * Names longer than a header's are cut (they are for messages only); entries that are no files are
 * passed over.
 */
#ifndef QUIRE_CLI_TRACE_TAR_H
#define QUIRE_CLI_TRACE_TAR_H

#include <stdbool.h>

#include "input.h"

enum { TRACE_TAR_BLOCK = 512, TRACE_TAR_NAME_BYTES = 101 };

typedef struct trace_tar {
    char name[TRACE_TAR_NAME_BYTES]; /* of the file */
    uint64_t size;
    const char *error; /* NULL: none */
} trace_tar;

bool trace_tar_is_header(const char *head, size_t num_bytes);
/* 1: a file begins, its bytes come next in the input; 0: the end; -1: error. `left` bytes of the
 * file before were not read. */
int trace_tar_next(trace_tar *tar, input *in, uint64_t left);

#endif

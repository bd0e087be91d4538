/* cli/trace/document.h - the objects of a JSON document, one at a time.
 *
 *      [ {...}, {...} ]   or   {...} {...}        a list of them, or one behind the other
 *
 * The document is never held as a whole. What is no JSON ends it: nobody knows where the next
 * object begins.
 */
#ifndef QUIRE_CLI_TRACE_DOCUMENT_H
#define QUIRE_CLI_TRACE_DOCUMENT_H

#include "reader.h"

typedef struct trace_document {
    scanner scan;
    bool is_begun;
    bool is_list;
} trace_document;

/* The next num_bytes of the input are one (UINT64_MAX: all). */
void trace_document_begin(trace_document *document, trace_reader *reader, uint64_t num_bytes);
/* TRACE_OK: an object comes next, a record of its own; TRACE_BAD: something else stood there. */
trace_outcome trace_document_next(trace_document *document, trace_reader *reader);
/* After an object was read: what came of it. */
trace_outcome trace_document_outcome(trace_document *document, trace_reader *reader);

#endif

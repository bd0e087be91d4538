#include "document.h"

#include <stdio.h>
#include <string.h>

void trace_document_begin(trace_document *document, trace_reader *reader, uint64_t num_bytes)
{
    if (num_bytes >= 3 && input_ahead(reader->in, 3) >= 3 &&
        memcmp(input_bytes(reader->in), "\xef\xbb\xbf", 3) == 0) {
        input_skip(reader->in, 3);
        num_bytes -= num_bytes == UINT64_MAX ? 0 : 3;
    }
    scan_of_input(&document->scan, reader->in, num_bytes);
    document->is_begun = false;
    document->is_list = false;
}

trace_outcome trace_document_outcome(trace_document *document, trace_reader *reader)
{
    const char *error = document->scan.error;
    if (error == NULL)
        return reader->has_problem ? TRACE_BAD : TRACE_OK;
    reader->has_problem = false;
    if (input_error(reader->in) != NULL) {
        snprintf(reader->message, sizeof reader->message, "%s", error);
        reader->has_problem = true;
        return TRACE_BROKEN;
    }
    reader->line = scan_line_number(&document->scan);
    trace_problem(reader, NULL, "invalid JSON: %s", error);
    return TRACE_BROKEN;
}

trace_outcome trace_document_next(trace_document *document, trace_reader *reader)
{
    scanner *scan = &document->scan;
    if (!document->is_begun) {
        document->is_begun = true;
        document->is_list = scan_peek(scan) == JSON_ARRAY && scan_open(scan, '[');
    }
    if (document->is_list && scan_element(scan) == 0)
        document->is_list = false;
    if (!document->is_list && scan_at_end(scan))
        return TRACE_END;
    scan_kind kind = scan_peek(scan);
    trace_begin_record(reader, scan_line_number(scan));
    if (kind == JSON_OBJECT)
        return TRACE_OK;
    if (scan_skip(scan))
        trace_problem(reader, NULL, "expected an object");
    return trace_document_outcome(document, reader);
}

/* cli/trace/csv.h - rows of a table with commas, and its columns by name.
 *
 *      TIMESTAMP,ContextTokens,GeneratedTokens        the header says which column is where
 *      2023-11-16 18:15:46.6805900,374,44
 *
 * A cell may be quoted ("a,b", "" for one quote); a row is one line.
 */
#ifndef QUIRE_CLI_TRACE_CSV_H
#define QUIRE_CLI_TRACE_CSV_H

#include "reader.h"

enum { TRACE_CSV_COLUMNS = 32 };

typedef struct trace_csv {
    uint32_t places[TRACE_CSV_COLUMNS];   /* of each, in a row */
    const char *cells[TRACE_CSV_COLUMNS]; /* of each, in the row last read */
    bool has_header;
} trace_csv;

/* Reads the header at the first call, then one row. */
trace_outcome trace_csv_next(trace_csv *csv, trace_reader *reader, const char *const *columns,
                             uint32_t num_columns);
/* A request from the row last read: its tokens are in the columns 1 and 2, and nothing is known of
 * the contents, so that every prompt is unique. */
trace_outcome trace_csv_request(const trace_csv *csv, trace_reader *reader,
                                const char *const *columns, trace_request *request);
/* A cell as a number, checked as the values of JSON are. */
double trace_csv_time(trace_reader *reader, const char *field, const char *cell);

#endif

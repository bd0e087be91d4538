#include "csv.h"

#include <string.h>

/* The cell at *at, 0-terminated in its place; *at moves behind the comma, or becomes NULL. */
static char *take_cell(char **at)
{
    char *from = *at;
    char *to = from;
    char *cell = from;
    if (*from == '"') {
        from++;
        while (*from != 0 && (*from != '"' || from[1] == '"')) {
            from += *from == '"';
            *to++ = *from++;
        }
        from += *from == '"';
        while (*from != 0 && *from != ',')
            from++;
    } else {
        while (*from != 0 && *from != ',')
            from++;
        to = from;
    }
    *at = *from == ',' ? from + 1 : NULL;
    *to = 0;
    while (to > cell && (to[-1] == ' ' || to[-1] == '\t'))
        *--to = 0;
    return cell + strspn(cell, " \t");
}

static trace_outcome read_header(trace_csv *csv, trace_reader *reader, char *line,
                                 const char *const *columns, uint32_t num_columns)
{
    for (uint32_t c = 0; c < num_columns; c++)
        csv->places[c] = TRACE_CSV_COLUMNS;
    uint32_t place = 0;
    for (char *at = line; at != NULL && place < TRACE_CSV_COLUMNS; place++) {
        const char *cell = take_cell(&at);
        for (uint32_t c = 0; c < num_columns; c++)
            if (strcmp(cell, columns[c]) == 0)
                csv->places[c] = place;
    }
    for (uint32_t c = 0; c < num_columns; c++) {
        if (csv->places[c] == TRACE_CSV_COLUMNS) {
            trace_problem(reader, NULL, "the first line has no column \"%s\"", columns[c]);
            return TRACE_BROKEN;
        }
    }
    csv->has_header = true;
    return TRACE_OK;
}

trace_outcome trace_csv_next(trace_csv *csv, trace_reader *reader, const char *const *columns,
                             uint32_t num_columns)
{
    char *line;
    size_t length;
    trace_outcome outcome = trace_next_line(reader, &line, &length);
    if (outcome == TRACE_OK && !csv->has_header) {
        outcome = read_header(csv, reader, line, columns, num_columns);
        if (outcome == TRACE_OK)
            outcome = trace_next_line(reader, &line, &length);
    }
    if (outcome != TRACE_OK)
        return outcome;
    for (uint32_t c = 0; c < num_columns; c++)
        csv->cells[c] = NULL;
    uint32_t place = 0;
    for (char *at = line; at != NULL; place++) {
        const char *cell = take_cell(&at);
        for (uint32_t c = 0; c < num_columns; c++)
            if (csv->places[c] == place)
                csv->cells[c] = cell;
    }
    for (uint32_t c = 0; c < num_columns; c++)
        if (csv->cells[c] == NULL)
            return trace_problem(reader, columns[c], "the row has only %u cells", place);
    return TRACE_OK;
}

/* A cell is read as a value of JSON is. */
static bool open_cell(trace_reader *reader, const char *field, const char *cell, scanner *scan)
{
    size_t length = strlen(cell);
    if (length == 0) {
        trace_problem(reader, field, "is missing");
        return false;
    }
    scan_of_text(scan, cell, length);
    scan_value value;
    if (scan_peek(scan) != JSON_NUMBER || !scan_number(scan, &value) || !scan_at_end(scan)) {
        trace_problem(reader, field, "\"%.40s\" is not a number", cell);
        return false;
    }
    scan_of_text(scan, cell, length);
    return true;
}

static int64_t length_of(trace_reader *reader, const char *field, const char *cell)
{
    scanner scan;
    int64_t tokens = -1;
    if (open_cell(reader, field, cell, &scan))
        trace_take_length(reader, &scan, field, &tokens);
    return tokens;
}

trace_outcome trace_csv_request(const trace_csv *csv, trace_reader *reader,
                                const char *const *columns, trace_request *request)
{
    int64_t num_prompt_tokens = length_of(reader, columns[1], csv->cells[1]);
    int64_t num_output_tokens = length_of(reader, columns[2], csv->cells[2]);
    if (!trace_check_lengths(reader, columns[1], num_prompt_tokens, columns[2], &num_output_tokens))
        return TRACE_BAD;
    trace_push_unique(reader, (uint32_t)num_prompt_tokens);
    return trace_fill(reader, request, (uint32_t)num_output_tokens) ? TRACE_OK : TRACE_BAD;
}

double trace_csv_time(trace_reader *reader, const char *field, const char *cell)
{
    scanner scan;
    double time = -1;
    if (open_cell(reader, field, cell, &scan))
        trace_take_time(reader, &scan, field, &time);
    return time;
}
